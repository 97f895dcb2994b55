//! Parts of one object on several hosts: splits an object, and merges its parts.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::Request;

/// The kind and the name of an object.
pub(super) type Key = (String, String);

pub(super) fn names_of(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Returns the parts that the field manager in the query has applied, and those without any field manager.
pub(super) fn parts_of_manager(query: &str, parts: &[(String, Value)]) -> Vec<(String, Value)> {
    let manager = query.split('&').find_map(|word| word.strip_prefix("fieldManager="));
    let manager = manager.unwrap_or_default().replace("%2F", "/");
    let ours =
        |part: &Value| apply_managers(part).is_empty() || apply_managers(part).contains(manager.as_str());
    parts.iter().filter(|(_, part)| ours(part)).cloned().collect()
}

/// Returns the values that only the scheduler's host knows, from its part.
pub(super) fn leader_values(body: &Value, part: &Value) -> Vec<(&'static str, Value)> {
    let (scheduler, mut told) = (&part["status"]["scheduler"], Vec::new());
    // The address of an interface.
    if !body["spec"]["scheduler"]["interface"].is_null() && scheduler["host"].is_string() {
        told.push(("reach", scheduler["host"].clone()));
    }
    // Ports that it chose, while there is somebody to connect to.
    if body["spec"].get("program").is_some() && scheduler["port"].is_u64() {
        let ports = json!({ "port": scheduler["port"], "dashboardPort": scheduler["dashboardPort"] });
        told.push(("ports", ports));
    }
    told
}

/// Returns the leader of an object: the host of its scheduler, else the first.
pub(super) fn leader(object: &Value, hosts: &[String]) -> Option<String> {
    let on = object["spec"]["scheduler"]["on"].as_str().map(str::to_owned);
    on.or_else(|| hosts.first().cloned())
}

/// Returns the leader's part.
pub(super) fn leader_part(parts: &[(String, Value)]) -> Option<&Value> {
    let (_, any) = parts.first()?;
    let leader = leader(any, &names_of(&any["spec"]["hosts"]));
    let leader_part = parts.iter().find(|(name, _)| Some(name) == leader.as_ref());
    Some(leader_part.map_or(any, |(_, part)| part))
}

/// Returns a part of a Dask cluster without workers, for a host other than that of `base`.
pub(super) fn cluster_part(base: &Value, host: &str) -> Value {
    let metadata = &base["metadata"];
    let mut cluster_part = json!({
        "apiVersion": base["apiVersion"], "kind": base["kind"], "spec": base["spec"],
        "metadata": { "name": metadata["name"], "labels": metadata["labels"] },
    });
    if metadata["annotations"].is_object() {
        cluster_part["metadata"]["annotations"] = metadata["annotations"].clone();
    }
    let hosts = names_of(&base["spec"]["hosts"]).into_iter().chain(Some(host.to_owned()));
    cluster_part["spec"]["hosts"] = hosts.collect();
    cluster_part["spec"]["host"] = json!(host);
    for (field, value) in leader_values(base, base) {
        cluster_part["spec"][field] = value;
    }
    let worker = &mut cluster_part["spec"]["worker"];
    if worker["replicas"].is_u64() {
        worker["replicas"] = json!(0);
    }
    cluster_part
}

/// Returns a host's share of a number: the first hosts get one more if it does not divide evenly.
pub(super) fn worker_share(number: u64, hosts: &[String], host: &str) -> u64 {
    let Some(index) = hosts.iter().position(|name| name == host) else { return 0 };
    let (index, count) = (index as u64, hosts.len() as u64);
    number / count + u64::from(index < number % count)
}

/// Returns the part of an object for a host.
pub(super) fn part(body: &Value, host: &str) -> Value {
    let mut part = body.clone();
    part["spec"]["host"] = json!(host);
    if let Some(number) = body["spec"]["worker"]["replicas"].as_u64() {
        let hosts = names_of(&body["spec"]["worker"]["hosts"]);
        part["spec"]["worker"]["replicas"] = json!(worker_share(number, &hosts, host));
    }
    keep_host_identity(&mut part["metadata"], host);
    part
}

/// Returns the uid of a part with its host: `node1=UID`.
pub(super) fn uid_on(host: &str, part: &Value) -> String {
    format!("{host}={}", part["metadata"]["uid"].as_str().unwrap_or_default())
}

/// Returns the kind and name of an object.
pub(super) fn key_of(object: &Value) -> Key {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&object["kind"]), text(&object["metadata"]["name"]))
}

/// Returns the delete of a host's part, if it belongs to the same object as `base`. Another stack of the same user may have an
/// object with that name there.
pub(super) fn deletion(
    request: &Request,
    host: &str,
    parts: &[(String, Value)],
    base: &Value,
) -> Option<Request> {
    let (_, part) = parts.iter().find(|(name, part)| name == host && is_same_object(part, base))?;
    let mut own = host_preconditions(request, host);
    own.body.get_or_insert_with(|| json!({}))["preconditions"]["uid"] = part["metadata"]["uid"].clone();
    Some(own)
}

/// Returns true if two parts belong to one object: one field manager applied both, or none applied either.
pub(super) fn is_same_object(part: &Value, base: &Value) -> bool {
    let (one, other) = (apply_managers(part), apply_managers(base));
    one.is_empty() && other.is_empty() || !one.is_disjoint(&other)
}

pub(super) fn apply_managers(part: &Value) -> BTreeSet<&str> {
    let entries = part["metadata"]["managedFields"].as_array().into_iter().flatten();
    entries
        .filter(|entry| entry["operation"] == "Apply")
        .filter_map(|entry| entry["manager"].as_str())
        .collect()
}

/// Returns the request with the preconditions of a delete for one host.
pub(super) fn host_preconditions(request: &Request, host: &str) -> Request {
    let mut own = request.clone();
    if let Some(conditions) = own.body.as_mut().and_then(|body| body.get_mut("preconditions")) {
        keep_host_identity(conditions, host);
    }
    own
}

/// Reduces `node1=V,node2=W` to the value of one host; a value without host names is for every host.
fn keep_host_identity(metadata: &mut Value, host: &str) {
    for field in ["uid", "resourceVersion"] {
        let Some(text) = metadata[field].as_str().filter(|text| text.contains('=')) else { continue };
        let own = text.split(',').filter_map(|pair| pair.split_once('=')).find(|(name, _)| *name == host);
        match own.map(|(_, value)| value.to_owned()) {
            Some(own) => metadata[field] = json!(own),
            None => {
                if let Some(fields) = metadata.as_object_mut() {
                    fields.remove(field);
                }
            }
        }
    }
}

/// Merges the parts into one object; `None` if there are none.
pub(super) fn merge_parts(mut parts: Vec<(String, Value)>) -> Option<Value> {
    let hosts = names_of(&parts.first()?.1["spec"]["hosts"]);
    let first = leader(&parts.first()?.1, &hosts);
    let rank = |name: &String| (Some(name) != first.as_ref(), hosts.iter().position(|host| host == name));
    parts.sort_by_key(|(name, _)| rank(name));
    let base = parts.first()?.1.clone();
    parts.retain(|(_, part)| is_same_object(part, &base));
    let whole: u64 = parts.iter().filter_map(|(_, part)| part["spec"]["worker"]["replicas"].as_u64()).sum();
    let (base_name, base) = parts.first()?.clone();
    let wanted = comparable_spec(&base);
    // A host that has it on other settings is one that does not have it: the next apply writes it there, too.
    let same: Vec<&String> = hosts
        .iter()
        .filter(|host| parts.iter().any(|(name, part)| name == *host && comparable_spec(part) == wanted))
        .collect();
    // Their workers still run on those.
    let old: u64 = parts
        .iter()
        .filter(|(_, part)| comparable_spec(part) != wanted)
        .filter_map(|(_, part)| part["status"]["workers"]["running"].as_u64())
        .sum();
    // Hosts that it should have left, or that only a group brought it to.
    let stays = |part: &Value| part["metadata"]["deletionTimestamp"].is_null();
    let strays: Vec<&String> = parts
        .iter()
        .filter(|(name, part)| !hosts.contains(name) && stays(part))
        .map(|(name, _)| name)
        .collect();
    let mut object = base.clone();
    own_fields().for_each(|field| remove_field(&mut object["spec"], field));
    object["spec"]["hosts"] = json!(same);
    if object["spec"]["worker"].is_object() && object["spec"]["worker"].get("adapt").is_none() {
        object["spec"]["worker"]["replicas"] = json!(whole);
    }
    let versions: Vec<String> = parts
        .iter()
        .map(|(name, part)| {
            format!("{name}={}", part["metadata"]["resourceVersion"].as_str().unwrap_or_default())
        })
        .collect();
    object["metadata"]["resourceVersion"] = json!(versions.join(","));
    object["metadata"]["uid"] = json!(uid_on(&base_name, &base));
    for entry in object["metadata"]["managedFields"].as_array_mut().into_iter().flatten() {
        own_fields().for_each(|field| remove_field(&mut entry["fieldsV1"]["f:spec"], &format!("f:{field}")));
    }
    object["status"] = status(&parts);
    if !strays.is_empty() {
        object["status"]["strays"] = json!(strays);
    }
    if let Some(changed) = object["status"]["workers"]["changed"].as_u64() {
        object["status"]["workers"]["changed"] = json!(changed + old);
    }
    Some(object)
}

/// Returns the spec of a part without the host's own fields and without the number of workers.
pub(super) fn comparable_spec(part: &Value) -> Value {
    let mut spec = part["spec"].clone();
    own_fields().for_each(|field| remove_field(&mut spec, field));
    if spec["worker"].is_object() {
        remove_field(&mut spec["worker"], "replicas");
    }
    spec
}

/// Returns the fields that only a host's part has: the host, and values that the leader reported.
fn own_fields() -> impl Iterator<Item = &'static str> {
    ["host", "reach", "ports"].into_iter()
}

pub(super) fn remove_field(object: &mut Value, field: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove(field);
    }
}

/// Merges the statuses of parts. A value that one part lacks is missing in the result.
fn status(parts: &[(String, Value)]) -> Value {
    let Some((_, base)) = parts.first() else { return Value::Null };
    let mut status = base["status"].clone();
    if status["phase"].is_string() {
        let worst = ["Failed", "Stuck", "Making"]
            .into_iter()
            .find_map(|phase| parts.iter().find(|(_, part)| part["status"]["phase"] == phase));
        if let Some((_, part)) = worst {
            status["phase"] = part["status"]["phase"].clone();
        }
    }
    if status["workers"].is_object() {
        for count in ["running", "present", "registered", "wanted", "changed"] {
            if status["workers"][count].is_null() {
                continue;
            }
            let sum: u64 =
                parts.iter().filter_map(|(_, part)| part["status"]["workers"][count].as_u64()).sum();
            status["workers"][count] = json!(sum);
        }
        status["converging"] = json!(parts.iter().any(|(_, part)| part["status"]["converging"] == true));
    }
    if status["scheduler"]["tls"].is_object() {
        let of = |field: &'static str| {
            parts.iter().map(move |(_, part)| &part["status"]["scheduler"]["tls"][field])
        };
        let own = &base["status"]["scheduler"]["tls"];
        let differs = of("fingerprint").any(|other| *other != own["fingerprint"]);
        // The other hosts get the scheduler's certificates.
        if own["lost"] != true && (differs || of("lost").any(|lost| lost == true)) {
            status["scheduler"]["tls"]["differs"] = json!(true);
        }
    }
    if status["boot"].is_string() && parts.iter().any(|(_, part)| part["status"]["boot"].is_null()) {
        status["boot"] = Value::Null;
    }
    if let Some((name, part)) = parts.iter().find(|(_, part)| part["status"]["adapter"]["running"] == false) {
        status["adapter"] = part["status"]["adapter"].clone();
        let said = part["status"]["adapter"]["message"].as_str().unwrap_or("it was not started");
        status["adapter"]["message"] = json!(format!("{name}: {said}"));
    }
    if matches!(status["jobStatus"].as_str(), Some("Successful" | "Failed")) {
        // Hosts without the program clean up by themselves when its scheduler has gone, and what they wait for does not come.
        status["converging"] = base["status"]["converging"].clone();
        status["followed"] = json!(parts.iter().any(|(_, part)| part["status"]["followed"] == true));
    }
    if status["phase"] == "Ready" {
        // Packages that are not pinned may have another version on each host.
        let ready = parts.iter().filter(|(_, part)| part["status"]["phase"] == "Ready");
        status["onHosts"] =
            ready.map(|(name, part)| (name.clone(), part["status"]["versions"].clone())).collect();
        return status;
    }
    for field in ["message", "plugin", "skew", "unlike", "memory"] {
        let said = parts.iter().find_map(|(name, part)| Some((name, part["status"][field].as_str()?)));
        if let Some((name, text)) = said {
            status[field] = json!(format!("{name}: {text}"));
        }
    }
    if let Some(log) = parts.iter().map(|(_, part)| &part["status"]["log"]).find(|log| log.is_string()) {
        status["log"] = log.clone();
    }
    status
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn hosts(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn workers_are_shared_out_evenly() {
        let names = hosts(&["a", "b", "c"]);
        for (number, shares) in [(0, [0, 0, 0]), (2, [1, 1, 0]), (3, [1, 1, 1]), (7, [3, 2, 2])] {
            let found: Vec<u64> = names.iter().map(|name| worker_share(number, &names, name)).collect();
            assert_eq!(found, shares, "{number}");
        }
        assert_eq!(worker_share(5, &names, "elsewhere"), 0);
    }

    fn wanted() -> Value {
        json!({
            "metadata": { "name": "work", "uid": "b=1", "resourceVersion": "b=7,a=8" },
            "spec": {
                "hosts": ["a", "b"], "scheduler": { "on": "b", "port": 1 },
                "worker": { "replicas": 3, "hosts": ["a", "b"], "threads": 1 },
            },
        })
    }

    pub(in super::super) fn live(host: &str, registered: u64) -> (String, Value) {
        let mut part = part(&wanted(), host);
        part["metadata"]["uid"] = json!("1");
        part["metadata"]["managedFields"] = json!([{ "fieldsV1": { "f:spec": { "f:host": {}, "f:hosts": {}, "f:ports": { "f:port": {} } } } }]);
        part["spec"]["ports"] = json!({ "port": 1, "dashboardPort": 2 });
        part["status"] = json!({
            "converging": false, "scheduler": { "running": host == "b" },
            "workers": { "running": 1, "present": 1, "registered": registered },
        });
        (host.to_owned(), part)
    }

    #[test]
    fn certificates_that_a_host_does_not_have_are_told_of() {
        let with = |host: &str, tls: Value| {
            let (name, mut part) = live(host, 1);
            part["status"]["scheduler"]["tls"] = tls;
            (name, part)
        };
        let own = || with("b", json!({ "fingerprint": "f1", "ends": "e" }));
        for (other, told) in [
            (json!({ "fingerprint": "f1" }), json!({ "fingerprint": "f1", "ends": "e" })),
            (json!({ "fingerprint": "f2" }), json!({ "fingerprint": "f1", "ends": "e", "differs": true })),
            (
                json!({ "fingerprint": "f1", "lost": true }),
                json!({ "fingerprint": "f1", "ends": "e", "differs": true }),
            ),
        ] {
            assert_eq!(status(&[own(), with("a", other)])["scheduler"]["tls"], told);
        }
    }

    #[test]
    fn what_is_taken_apart_is_put_together_again() {
        let one = part(&wanted(), "a");
        assert_eq!((&one["spec"]["worker"]["replicas"], &one["spec"]["host"]), (&json!(2), &json!("a")));
        assert_eq!(one["metadata"], json!({ "name": "work", "resourceVersion": "8" }));
        assert_eq!(part(&wanted(), "b")["metadata"]["uid"], "1");
        let whole = merge_parts(vec![live("a", 2), live("b", 1)]).unwrap();
        assert_eq!(whole["spec"], wanted()["spec"]);
        assert_eq!(whole["metadata"]["uid"], "b=1");
        assert_eq!(whole["metadata"]["resourceVersion"], "b=7,a=8");
        assert_eq!(whole["metadata"]["managedFields"][0]["fieldsV1"], json!({ "f:spec": { "f:hosts": {} } }));
        assert_eq!(whole["status"]["workers"], json!({ "running": 2, "present": 2, "registered": 3 }));
        assert_eq!(whole["status"]["scheduler"]["running"], true);
        let stale = |host: &str, changed: u64| {
            let mut one = live(host, 1);
            one.1["status"]["workers"]["changed"] = json!(changed);
            one
        };
        let whole = merge_parts(vec![stale("a", 2), stale("b", 1)]).unwrap();
        assert_eq!(whole["status"]["workers"]["changed"], 3);
    }

    #[test]
    fn an_environment_tells_its_versions_by_host() {
        let on = |host: &str, dask: &str| {
            let mut one = live(host, 0);
            one.1["status"] = json!({ "phase": "Ready", "versions": { "dask": dask } });
            one
        };
        let whole = merge_parts(vec![on("a", "2026.8.0"), on("b", "2026.3.0")]).unwrap();
        let expect = json!({ "a": { "dask": "2026.8.0" }, "b": { "dask": "2026.3.0" } });
        assert_eq!(whole["status"]["onHosts"], expect);
        let mut stays = on("b", "2026.3.0");
        stays.1["status"] = json!({ "phase": "Stuck", "message": "no permission" });
        let mut goes = on("a", "2026.8.0");
        goes.1["status"] = json!({ "phase": "Removing" });
        let whole = merge_parts(vec![goes, stays]).unwrap();
        assert_eq!(whole["status"], json!({ "phase": "Stuck", "message": "b: no permission" }));
    }

    #[test]
    fn a_host_without_its_part_or_with_another_one_is_missing() {
        let alone = merge_parts(vec![live("b", 1)]).unwrap();
        assert_eq!(
            (&alone["spec"]["hosts"], &alone["spec"]["worker"]["replicas"]),
            (&json!(["b"]), &json!(1))
        );
        let mut other = live("a", 2);
        other.1["spec"]["worker"]["threads"] = json!(4);
        other.1["status"]["message"] = json!("no");
        let whole = merge_parts(vec![other, live("b", 1)]).unwrap();
        assert_eq!(whole["spec"]["hosts"], json!(["b"]));
        assert_eq!(whole["status"]["message"], "a: no");
        assert_eq!(merge_parts(Vec::new()), None);
        // Another stack has one of the same name on a host.
        let by = |manager: &str, (host, mut part): (String, Value)| {
            part["metadata"]["managedFields"] = json!([{ "operation": "Apply", "manager": manager }]);
            (host, part)
        };
        let whole = merge_parts(vec![by("theirs", live("a", 2)), by("ours", live("b", 1))]).unwrap();
        assert_eq!((&whole["spec"]["hosts"], &whole["metadata"]["uid"]), (&json!(["b"]), &json!("b=1")));
    }
}
