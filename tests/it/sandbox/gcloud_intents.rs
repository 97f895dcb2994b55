//! Requests of gcloud 528 for nearly four hundred intents, sent to the sandbox: it accepts them as the real service
//! does,
//! ends the operation, and then shows the new values.

use std::collections::BTreeMap;

use sandbox::{Clock, Options, Sandbox, Scale};
use serde_json::{Value, json};

use crate::sandbox::recorded_gke::facts;

/// Writes that the sandbox refuses, as the real service does. May only get shorter.
const REFUSED: &[(&str, &str)] = &[
    ("cluster-create-auto-zone", "Autopilot clusters are regional"),
    ("cluster-create-channel-no-autoupgrade", "nodes of a channel upgrade by themselves"),
    ("cluster-create-node-version", "a version enrols in a channel, whose nodes upgrade by themselves"),
    ("pool-create-autoupgrade-off", "nodes of a channel upgrade by themselves"),
    ("pool-create-management-off", "nodes of a channel upgrade by themselves"),
    ("pool-create-max-run-words", "a duration is written in seconds"),
    ("pool-create-version-autoupgrade-off", "nodes of a channel upgrade by themselves"),
    ("pool-update-autoupgrade", "nodes of a channel upgrade by themselves"),
    ("pool-update-flex-start", "the pool of the intent has no autoscaler"),
    ("pool-update-queued", "the pool of the intent has a node"),
];

/// Writes whose fields come back otherwise, as recorded. May only get shorter.
const SHOWN_OTHERWISE: &[(&str, &str)] = &[
    ("cluster-create-auto-labels", "GKE makes pools of its own beside the first one"),
    ("cluster-create-auto-private", "GKE makes pools of its own beside the first one"),
    ("cluster-create-create-subnetwork", "createSubnetwork is never in answers"),
    ("cluster-create-create-subnetwork-auto", "createSubnetwork is never in answers"),
    ("cluster-create-database-encryption", "ENCRYPTED comes back as ALL_OBJECTS_ENCRYPTION_ENABLED"),
    ("cluster-create-nap-scopes", "the scope of monitoring is added"),
    ("cluster-update-password", "names and passwords are not in answers"),
];

/// Names of update fields in answers, where they are not the field's name without `desired`.
const NAMES: &[(&str, &str)] = &[
    ("desiredAutopilotWorkloadPolicyConfig", "workloadPolicyConfig"),
    ("desiredClusterAutoscaling", "autoscaling"),
    ("desiredIntraNodeVisibilityConfig", "enableIntraNodeVisibility"),
    ("desiredL4ilbSubsettingConfig", "enableL4ilbSubsetting"),
    ("desiredMasterVersion", "currentMasterVersion"),
    ("desiredNodePoolAutoConfigKubeletConfig", "nodeKubeletConfig"),
    ("desiredNodePoolAutoConfigNetworkTags", "networkTags"),
    ("desiredNodePoolAutoConfigResourceManagerTags", "resourceManagerTags"),
    ("desiredNodePoolAutoscaling", "autoscaling"),
    ("desiredNodePoolLoggingConfig", "loggingConfig"),
    ("desiredNodeVersion", "version"),
    ("nodeCount", "initialNodeCount"),
    ("nodeNetworkConfig", "networkConfig"),
    ("nodeVersion", "version"),
];

/// Fields that say where or how, and are not part of what is shown.
const UNSEEN: &[&str] = &[
    "action",
    "desiredNodePoolId",
    "labelFingerprint",
    "name",
    "removedAdditionalPodRangesConfig",
    "respectPdb",
    "rotateCredentials",
];

/// How long an operation may take, in minutes of the real service.
const LONGEST_MINUTES: u32 = 30;

struct World {
    sandbox: Sandbox,
    /// `/v1/projects/p/locations/L`.
    place: String,
}

impl World {
    fn call(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let reply = self.sandbox.gke_request(method, path, "", &bytes).expect("an answer");
        (reply.code, reply.body)
    }

    fn get(&self, path: &str) -> Value {
        let (code, body) = self.call("GET", &format!("{}/{path}", self.place), &Value::Null);
        assert_eq!(code, 200, "{path}: {body}");
        body
    }

    /// Sends a write and lets its operation end; what it was refused with, or what it ended with.
    fn write(&self, method: &str, path: &str, body: &Value) -> Result<(), String> {
        let (code, answer) = self.call(method, path, body);
        if code != 200 {
            return Err(format!("{code}: {}", answer["error"]["message"]));
        }
        let Some(name) = answer["name"].as_str() else { return Ok(()) };
        let mut operation = answer.clone();
        for _ in 0..LONGEST_MINUTES {
            if operation["status"] == "DONE" {
                break;
            }
            self.sandbox.advance(Scale::default().real(60.0)).expect("time passes");
            operation = self.get(&format!("operations/{name}"));
        }
        match (operation["status"].as_str(), &operation["error"]) {
            (Some("DONE"), Value::Null) => Ok(()),
            (status, error) => Err(format!("{name} is {status:?}: {error}")),
        }
    }
}

/// The location of an intent's requests, and whether it makes the cluster or a pool itself.
struct Outline {
    location: String,
    creates: bool,
    adds_pool: bool,
}

fn outline(requests: &[Value]) -> Outline {
    let paths: Vec<&str> = requests.iter().filter_map(|request| request["path"].as_str()).collect();
    let posts = |end: &str| {
        requests.iter().any(|r| r["method"] == "POST" && r["path"].as_str().is_some_and(|p| p.ends_with(end)))
    };
    let location = paths.iter().find_map(|path| path.split("/locations/").nth(1)?.split('/').next());
    Outline {
        location: location.filter(|place| *place != "-").unwrap_or("us-central1-c").to_owned(),
        creates: posts("/clusters"),
        adds_pool: posts("/nodePools"),
    }
}

/// Returns the world that an intent needs: cluster `c` with pool `n`, and the values of its `given`.
fn world(intent: &Value, requests: &[Value]) -> World {
    let Outline { location, creates, adds_pool } = outline(requests);
    let clock = Clock::Manual(jiff::Timestamp::UNIX_EPOCH);
    let sandbox = Sandbox::open(Options { clock, ..Options::default() }).expect("a sandbox");
    let world = World { sandbox, place: format!("/v1/projects/p/locations/{location}") };
    if creates {
        return world;
    }
    let mut pool = json!({ "name": if adds_pool { "other" } else { "n" }, "initialNodeCount": 1 });
    if !adds_pool && Value::from(requests).to_string().contains("nvidia-l4") {
        let gpu = json!([{ "acceleratorType": "nvidia-l4", "acceleratorCount": "1" }]);
        pool["config"] = json!({ "machineType": "g2-standard-4", "accelerators": gpu });
    }
    let mut cluster = json!({
        "name": "c", "initialClusterVersion": "1.33", "releaseChannel": { "channel": "REGULAR" },
    });
    for (target, given) in [(&mut pool, "pool"), (&mut cluster, "cluster")] {
        for (key, value) in intent["given"][given].as_object().into_iter().flatten() {
            target[key] = value.clone();
        }
    }
    cluster["nodePools"] = json!([pool]);
    let path = format!("{}/clusters", world.place);
    world.write("POST", &path, &json!({ "cluster": cluster })).expect("the cluster of the intent");
    world
}

/// Collects desired values that are not shown, as `place: wanted, shown`. Zero values need not be shown.
fn missing(wanted: &Value, shown: &Value, place: &str, found: &mut Vec<String>) {
    match (wanted, shown) {
        (Value::Object(map), _) => {
            for (key, value) in map {
                missing(value, &shown[key], &format!("{place}.{key}"), found);
            }
        }
        (Value::Array(wanted), Value::Array(shown)) if wanted.len() == shown.len() => {
            let is_known = |value: &Value| shown.iter().any(|other| says(value, other, place));
            for (at, value) in wanted.iter().enumerate() {
                match value {
                    Value::Object(_) => missing(value, &shown[at], &format!("{place}[{at}]"), found),
                    _ if is_known(value) => {}
                    _ => found.push(format!("{place}: {value}, {shown:?}")),
                }
            }
        }
        (Value::Array(wanted), Value::Null) if wanted.is_empty() => {}
        _ if says(wanted, shown, place) => {}
        _ => found.push(format!("{place}: {wanted}, {shown}")),
    }
}

fn says(wanted: &Value, shown: &Value, place: &str) -> bool {
    let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let (wanted, shown) = (word(wanted).to_ascii_lowercase(), word(shown).to_ascii_lowercase());
    let is_zero = matches!(wanted.as_str(), "" | "0" | "false") || wanted.ends_with("unspecified");
    // Made anew with every policy.
    if place.ends_with("resourceVersion") {
        return true;
    }
    let is_version = place.to_ascii_lowercase().ends_with("version");
    wanted == shown
        || is_zero && shown == "null"
        || is_version && (matches!(wanted.as_str(), "-" | "latest") || shown.starts_with(&wanted))
        // Networks go by their last name.
        || place.ends_with("network") && wanted.ends_with(&format!("/{shown}"))
}

/// Every value in the tree that a field of this name holds.
fn collect_fields<'v>(tree: &'v Value, name: &str, found: &mut Vec<&'v Value>) {
    match tree {
        Value::Object(map) => {
            found.extend(map.get(name));
            map.values().for_each(|value| collect_fields(value, name, found));
        }
        Value::Array(items) => items.iter().for_each(|value| collect_fields(value, name, found)),
        _ => {}
    }
}

fn shown_name(key: &str) -> String {
    if let Some((_, name)) = NAMES.iter().find(|(field, _)| *field == key) {
        return (*name).to_owned();
    }
    let name = key.strip_prefix("desired").unwrap_or(key);
    let mut letters = name.chars();
    letters.next().map(|first| first.to_ascii_lowercase()).into_iter().chain(letters).collect()
}

/// Collects fields of a change that are not shown anywhere under their name.
fn unshown(change: &Value, tree: &Value, found: &mut Vec<String>) {
    for (key, value) in change.as_object().into_iter().flatten() {
        if UNSEEN.contains(&key.as_str()) {
            continue;
        }
        let name = shown_name(key);
        // Maps and lists of pools are wrapped in a message; some switches of clusters, too.
        let inner = [value.get(key), value.get("labels"), value.get("enabled")].into_iter().flatten().next();
        let mut places = Vec::new();
        collect_fields(tree, &name, &mut places);
        let mut best: Option<Vec<String>> = None;
        for place in places.into_iter().chain([&Value::Null]) {
            for wanted in [Some(value), inner].into_iter().flatten() {
                let mut lacks = Vec::new();
                missing(wanted, place, &name, &mut lacks);
                if best.as_ref().is_none_or(|best| lacks.len() < best.len()) {
                    best = Some(lacks);
                }
            }
        }
        found.extend(best.into_iter().flatten());
    }
}

/// Sends the writes of an intent; why they are refused, or what is not shown afterwards.
fn run(intent: &Value, requests: &[Value]) -> (Result<usize, String>, Vec<String>) {
    let world = world(intent, requests);
    let mut lacks = Vec::new();
    let mut writes = 0;
    for request in requests.iter().filter(|request| request["method"] != "GET") {
        let (method, path) =
            (request["method"].as_str().expect("text"), request["path"].as_str().expect("text"));
        let mut body = request["body"].clone();
        if body["labelFingerprint"].is_string() {
            body["labelFingerprint"] = world.get("clusters/c")["labelFingerprint"].clone();
        }
        if let Err(why) = world.write(method, path, &body) {
            return (Err(why), lacks);
        }
        writes += 1;
        let name = |value: &Value| value["name"].as_str().expect("a name").to_owned();
        if path.ends_with("/clusters") {
            let shown = world.get(&format!("clusters/{}", name(&body["cluster"])));
            missing(&body["cluster"], &shown, "", &mut lacks);
        } else if path.ends_with("/nodePools") {
            let shown = world.get(&format!("clusters/c/nodePools/{}", name(&body["nodePool"])));
            missing(&body["nodePool"], &shown, "", &mut lacks);
        } else if method != "DELETE" {
            let change = if body["update"].is_object() { &body["update"] } else { &body };
            let shown = world.get(if path.contains("/nodePools/n") {
                "clusters/c/nodePools/n"
            } else {
                "clusters/c"
            });
            unshown(change, &shown, &mut lacks);
        }
    }
    (Ok(writes), lacks)
}

#[test]
fn the_sandbox_takes_what_gcloud_sends() {
    let Ok(text) = std::fs::read_to_string(facts().join("facts/gcloud-requests/intents.jsonl")) else {
        println!("skipped: no requests of gcloud beside the project");
        return;
    };
    let (mut taken, mut refused, mut otherwise) = (0, BTreeMap::new(), BTreeMap::new());
    for line in text.lines() {
        let intent: Value = serde_json::from_str(line).expect("JSON");
        let id = intent["id"].as_str().expect("an id").to_owned();
        let requests = intent["requests"].as_array().cloned().unwrap_or_default();
        // A stand-in's operation is not known here.
        let is_ours =
            |request: &Value| !request["path"].as_str().is_some_and(|path| path.contains("/operations/"));
        let requests: Vec<Value> = requests.into_iter().filter(is_ours).collect();
        if requests.iter().all(|request| request["method"] == "GET") {
            continue;
        }
        let (result, lacks) = run(&intent, &requests);
        match result {
            Ok(writes) => taken += writes,
            Err(why) => drop(refused.insert(id.clone(), why)),
        }
        if !lacks.is_empty() {
            otherwise.insert(id, lacks);
        }
    }
    println!(
        "{taken} writes taken, {} refused: {refused:#?}\nshown otherwise: {otherwise:#?}",
        refused.len()
    );
    let known = |rows: &[(&'static str, &'static str)]| {
        rows.iter().map(|(id, _)| (*id).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(refused.keys().cloned().collect::<Vec<_>>(), known(REFUSED), "{refused:#?}");
    assert_eq!(otherwise.keys().cloned().collect::<Vec<_>>(), known(SHOWN_OTHERWISE), "{otherwise:#?}");
    assert!(taken >= 350, "{taken}");
}
