//! Compute Engine as the sandbox serves it, against the types that its clients read it with.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::settings::Settings;
use super::super::{Gke, Request};

/// Fields and their types: the discovery document of Compute Engine v1 (`compute/v1/compute-api.json` of
/// googleapis/google-api-go-client), as far as the sandbox answers with them. `u64` is a text, `link` a URL.
const FIELDS: &[(&str, &str, &str)] = &[
    ("compute#instanceGroup", "id", "u64"),
    ("compute#instanceGroup", "creationTimestamp", "text"),
    ("compute#instanceGroup", "description", "text"),
    ("compute#instanceGroup", "fingerprint", "bytes"),
    ("compute#instanceGroup", "name", "text"),
    ("compute#instanceGroup", "network", "link"),
    ("compute#instanceGroup", "selfLink", "itself"),
    ("compute#instanceGroup", "size", "i32"),
    ("compute#instanceGroup", "subnetwork", "link"),
    ("compute#instanceGroup", "zone", "link"),
    ("compute#instanceGroupManager", "id", "u64"),
    ("compute#instanceGroupManager", "baseInstanceName", "text"),
    ("compute#instanceGroupManager", "creationTimestamp", "text"),
    ("compute#instanceGroupManager", "currentActions", "i32s"),
    ("compute#instanceGroupManager", "fingerprint", "bytes"),
    ("compute#instanceGroupManager", "instanceGroup", "link"),
    ("compute#instanceGroupManager", "instanceLifecyclePolicy", "object"),
    ("compute#instanceGroupManager", "instanceTemplate", "link"),
    ("compute#instanceGroupManager", "name", "text"),
    ("compute#instanceGroupManager", "selfLink", "itself"),
    ("compute#instanceGroupManager", "status", "object"),
    ("compute#instanceGroupManager", "targetSize", "i32"),
    ("compute#instanceGroupManager", "updatePolicy", "object"),
    ("compute#instanceGroupManager", "versions", "list"),
    ("compute#instanceGroupManager", "zone", "link"),
    ("compute#machineType", "id", "u64"),
    ("compute#machineType", "accelerators", "list"),
    ("compute#machineType", "creationTimestamp", "text"),
    ("compute#machineType", "guestCpus", "i32"),
    ("compute#machineType", "isSharedCpu", "bool"),
    ("compute#machineType", "memoryMb", "i32"),
    ("compute#machineType", "name", "text"),
    ("compute#machineType", "selfLink", "itself"),
    ("compute#machineType", "zone", "text"),
    ("compute#acceleratorType", "id", "u64"),
    ("compute#acceleratorType", "creationTimestamp", "text"),
    ("compute#acceleratorType", "maximumCardsPerInstance", "i32"),
    ("compute#acceleratorType", "name", "text"),
    ("compute#acceleratorType", "selfLink", "itself"),
    ("compute#acceleratorType", "zone", "link"),
    ("compute#zone", "id", "u64"),
    ("compute#zone", "creationTimestamp", "text"),
    ("compute#zone", "description", "text"),
    ("compute#zone", "name", "text"),
    ("compute#zone", "region", "link"),
    ("compute#zone", "selfLink", "itself"),
    ("compute#zone", "status", "text"),
    ("compute#region", "id", "u64"),
    ("compute#region", "creationTimestamp", "text"),
    ("compute#region", "description", "text"),
    ("compute#region", "name", "text"),
    ("compute#region", "quotas", "list"),
    ("compute#region", "selfLink", "itself"),
    ("compute#region", "status", "text"),
    ("compute#region", "zones", "list"),
    ("compute#project", "id", "u64"),
    ("compute#project", "creationTimestamp", "text"),
    ("compute#project", "name", "text"),
    ("compute#project", "quotas", "list"),
    ("compute#project", "selfLink", "itself"),
];

struct Bench(Gke);

impl Bench {
    fn call(&mut self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let now = "2026-11-21T09:00:00Z".parse().expect("a time");
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let reply = self.0.handle(now, &Settings::default(), Request { method, path, query, body: &body });
        (reply.code, reply.body)
    }

    fn get(&mut self, path: &str) -> Value {
        let (code, body) = self.call("GET", path, &Value::Null);
        assert_eq!(code, 200, "{path}: {body}");
        body
    }
}

fn bench() -> Bench {
    let mut bench = Bench(Gke::new());
    let pool = |name: &str| json!({ "name": name, "initialNodeCount": 1 });
    let cluster = json!({ "cluster": { "name": "c", "nodePools": [pool("a"), pool("b")] } });
    let (code, body) = bench.call("POST", "/v1/projects/p/locations/us-central1-c/clusters", &cluster);
    assert_eq!(code, 200, "{body}");
    bench
}

const HERE: &str = "/compute/v1/projects/p/zones/us-central1-c";

#[test]
fn every_field_has_the_type_that_clients_read_it_with() {
    let mut bench = bench();
    let types: BTreeMap<(&str, &str), &str> =
        FIELDS.iter().map(|(kind, key, ty)| ((*kind, *key), *ty)).collect();
    let mut things = vec![bench.get("/compute/v1/projects/p")];
    let lists = ["zones", "regions"].map(|word| format!("/compute/v1/projects/p/{word}"));
    let of_zone =
        ["instanceGroupManagers", "instanceGroups", "machineTypes", "acceleratorTypes", "operations"];
    let lists = lists.into_iter().chain(of_zone.map(|word| format!("{HERE}/{word}")));
    for path in lists {
        let list = bench.get(&path);
        let kind = list["kind"].as_str().unwrap_or_default();
        assert!(kind.starts_with("compute#") && kind.ends_with("List"), "{path}: {kind}");
        assert_eq!(list["selfLink"], format!("https://www.googleapis.com{path}"), "{path}");
        assert_eq!(list["id"], path.trim_start_matches("/compute/v1/"), "{path}");
        let items = list["items"].as_array().cloned().unwrap_or_default();
        assert_eq!(items.is_empty(), path.ends_with("operations"), "{path}");
        for item in items {
            assert_eq!(format!("{}List", item["kind"].as_str().unwrap_or_default()), kind, "{path}");
            things.push(item);
        }
    }
    things.push(bench.get("/compute/v1/projects/p/regions/us-central1"));
    for thing in things {
        let kind = thing["kind"].as_str().unwrap_or_default().to_owned();
        for (key, value) in thing.as_object().into_iter().flatten().filter(|(key, _)| *key != "kind") {
            let Some(ty) = types.get(&(kind.as_str(), key.as_str())) else { panic!("{kind}: unknown {key}") };
            let text = value.as_str().unwrap_or_default();
            let path = text.trim_start_matches("https://www.googleapis.com");
            let good = match *ty {
                "u64" => text.parse::<u64>().is_ok(),
                "text" => !text.is_empty(),
                "bytes" => text.len().is_multiple_of(4) && text.chars().all(|c| c.is_ascii_alphanumeric()),
                "link" => path.starts_with("/compute/v1/projects/p/"),
                // The target of the link is the same object.
                "itself" => bench.get(path)["id"] == thing["id"],
                "i32" => value.as_i64().is_some_and(|number| i32::try_from(number).is_ok()),
                "i32s" => value.as_object().is_some_and(|all| all.values().all(Value::is_i64)),
                "bool" => value.is_boolean(),
                "list" => value.is_array(),
                "object" => value.is_object(),
                other => panic!("{other}"),
            };
            assert!(good, "{kind}.{key} is no {ty}: {value}");
        }
    }
}

#[test]
fn lists_come_in_pages_and_filtered() {
    let mut bench = bench();
    let names = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().into_iter().flatten();
        items.map(|item| item["name"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let whole = names(&bench.get(&format!("{HERE}/instanceGroupManagers")));
    assert_eq!(whole.len(), 2);
    let first = bench.get(&format!("{HERE}/instanceGroupManagers?maxResults=1"));
    let token = first["nextPageToken"].as_str().expect("a token").to_owned();
    let second = bench.get(&format!("{HERE}/instanceGroupManagers?maxResults=1&pageToken={token}"));
    assert_eq!([names(&first), names(&second)].concat(), whole);
    assert!(second.get("nextPageToken").is_none());
    let one = bench.get(&format!("{HERE}/instanceGroupManagers?filter=name%3D%22{}%22", whole[1]));
    assert_eq!(names(&one), whole[1..]);
    for bad in ["maxResults=501", "maxResults=x", "pageToken=x"] {
        assert_eq!(bench.call("GET", &format!("{HERE}/machineTypes?{bad}"), &Value::Null).0, 400, "{bad}");
    }
    for (path, code) in [
        ("/compute/v1/projects/p/zones/us-central1-x/instanceGroupManagers", 404),
        ("/compute/v1/projects/p/zones/us-central1/machineTypes", 404),
        ("/compute/v1/projects/p/regions/us-central1/operations", 200),
        ("/compute/beta/projects/p/zones/us-central1-a/instanceGroupManagers", 200),
    ] {
        assert_eq!(bench.call("GET", path, &Value::Null).0, code, "{path}");
    }
}
