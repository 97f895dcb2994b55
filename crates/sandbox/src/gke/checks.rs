//! Requests that GKE refuses at once because they are wrong. Rules that only the documentation has (a queued
//! pool without auto-repair, `ANY` as its location policy) are not here: the service accepts those.

use serde_json::Value;

use super::errors::{Code, Refusal};
use super::path::ClusterId;
use super::{machines, places, versions};
use crate::kube::object::text;

/// Names of clusters and pools: at most 40 letters, digits and hyphens, a letter first, no hyphen last.
/// The wording is from memory.
pub(super) fn name(what: &str, name: &str) -> Result<(), Refusal> {
    let starts = name.starts_with(|letter: char| letter.is_ascii_lowercase());
    let allowed =
        name.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-');
    if starts && allowed && !name.ends_with('-') && name.len() <= 40 {
        return Ok(());
    }
    Err(Refusal::invalid(format!(
        "Invalid value for field \"{what}.name\": \"{name}\". Must be a match of regex \
         '(?:[a-z](?:[-a-z0-9]{{0,38}}[a-z0-9])?)'."
    )))
}

/// The location in a request's path.
pub(super) fn location(location: &str) -> Result<(), Refusal> {
    if places::exists(location) {
        return Ok(());
    }
    Err(Refusal::invalid(format!("Location \"{location}\" does not exist.")))
}

/// Node zones lie in the cluster's region, each once.
pub(super) fn zones(body: &Value, id: &ClusterId) -> Result<(), Refusal> {
    let region = places::region(&id.location);
    let listed: Vec<&str> =
        body["locations"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (at, zone) in listed.iter().enumerate() {
        if !places::exists(zone) {
            return Err(Refusal::invalid(format!("Location \"{zone}\" does not exist.")));
        }
        if !places::is_zone(zone) || places::region(zone) != region {
            return Err(Refusal::invalid(format!(
                "Location \"{zone}\" is not a zone of region \"{region}\", where cluster \"{}\" is.",
                id.name
            )));
        }
        if listed[..at].contains(zone) {
            return Err(Refusal::invalid(format!("Location \"{zone}\" is listed more than once.")));
        }
    }
    Ok(())
}

/// The rules of one pool, as it would be stored; `channel` is that of its cluster.
pub(super) fn pool(body: &Value, id: &ClusterId, channel: &str, master: &str) -> Result<(), Refusal> {
    name("node_pool", text(body, "/name"))?;
    zones(body, id)?;
    counts(body)?;
    first_nodes(body)?;
    machines::check(&body["config"])?;
    disk(&body["config"])?;
    taints(&body["config"])?;
    duration(&body["config"])?;
    autoscaling(&body["autoscaling"])?;
    management(body, channel)?;
    scheduled(body)?;
    let version = text(body, "/version");
    if versions::compare(version, master).is_gt() {
        return Err(Refusal::invalid(format!(
            "Node version \"{version}\" must not be greater than master version \"{master}\"."
        )));
    }
    Ok(())
}

fn counts(body: &Value) -> Result<(), Refusal> {
    match body["initialNodeCount"].as_i64() {
        Some(count) if count < 0 => {
            Err(Refusal::invalid(format!("Node_pool.initial_node_count must not be negative: {count}.")))
        }
        _ => Ok(()),
    }
}

/// A pool that is made with more nodes than its autoscaler may have. That it is refused, and the wording, are from memory.
fn first_nodes(body: &Value) -> Result<(), Refusal> {
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let zones = body["locations"].as_array().map_or(1, Vec::len).max(1);
    let first = number(&body["initialNodeCount"]);
    let all = first * u64::try_from(zones).unwrap_or(1);
    let scaling = &body["autoscaling"];
    let (most, total) = (number(&scaling["maxNodeCount"]), number(&scaling["totalMaxNodeCount"]));
    if scaling["enabled"] != true || (most == 0 || first <= most) && (total == 0 || all <= total) {
        return Ok(());
    }
    Err(Refusal::invalid(format!(
        "Node_pool.initial_node_count: {all} nodes in all zones are above the maximum of the autoscaler."
    )))
}

fn disk(config: &Value) -> Result<(), Refusal> {
    let (kind, machine) = (text(config, "/diskType"), text(config, "/machineType"));
    if kind.starts_with("pd-") && machines::takes_hyperdisk_only(machine) {
        return Err(Refusal::invalid(format!(
            "[{kind}, {machine}] features are not compatible for creating instance"
        )));
    }
    match config["diskSizeGb"].as_i64() {
        Some(size) if size < 10 => {
            Err(Refusal::invalid(format!("Node_config.disk_size_gb must be at least 10: {size}.")))
        }
        _ => Ok(()),
    }
}

/// Refuses a taint without key or effect, and a repeated one. Only the taint that GKE itself adds may come twice.
fn taints(config: &Value) -> Result<(), Refusal> {
    let taints: Vec<&Value> = config["taints"].as_array().into_iter().flatten().collect();
    for (at, taint) in taints.iter().enumerate() {
        let (key, effect) = (text(taint, "/key"), text(taint, "/effect"));
        if key.is_empty() || effect.is_empty() {
            return Err(Refusal::invalid("Node_config.taints: every taint needs a key and an effect."));
        }
        if taints[..at].iter().any(|other| text(other, "/key") == key && text(other, "/effect") == effect) {
            return Err(Refusal::invalid(format!(
                "Found more than one taint with key {key} and effect {effect}."
            )));
        }
    }
    Ok(())
}

/// Protocol durations are seconds with an `s`; gcloud passes `7d` through unread.
fn duration(config: &Value) -> Result<(), Refusal> {
    let Some(text) = config["maxRunDuration"].as_str() else { return Ok(()) };
    let seconds = text.strip_suffix('s').and_then(|number| number.parse::<f64>().ok());
    match seconds {
        None => Err(Refusal::invalid(format!(
            "Invalid value at 'node_pool.config.max_run_duration' (type.googleapis.com/google.protobuf.Duration), \
             Field 'maxRunDuration', Illegal duration format; duration must end with 's': \"{text}\""
        ))),
        Some(seconds) if !(0.0..=604_800.0).contains(&seconds) => {
            Err(Refusal::invalid(format!("Max_run_duration must be at most 604800s, found {text}.")))
        }
        Some(_) => Ok(()),
    }
}

fn autoscaling(autoscaling: &Value) -> Result<(), Refusal> {
    let number = |key: &str| autoscaling[key].as_i64().unwrap_or_default();
    let (min, max) = (number("minNodeCount"), number("maxNodeCount"));
    let (total_min, total_max) = (number("totalMinNodeCount"), number("totalMaxNodeCount"));
    if (min, max) != (0, 0) && (total_min, total_max) != (0, 0) {
        return Err(Refusal::invalid(
            "Autoscaling: only one of total_[min|max]_node_count and [min|max]_node_count can be set.",
        ));
    }
    if autoscaling["enabled"] != true {
        return Ok(());
    }
    if max == 0 && total_max == 0 {
        return Err(Refusal::invalid("Autoscaling: max_node_count or total_max_node_count must be above 0."));
    }
    if min > max || total_min > total_max {
        return Err(Refusal::invalid("Autoscaling: the minimum node count is above the maximum."));
    }
    Ok(())
}

/// A cluster in a channel upgrades its nodes by itself. A thread of 2021 has the text for both fields, but
/// auto-repair may be off today.
fn management(body: &Value, channel: &str) -> Result<(), Refusal> {
    if channel.is_empty() || body["management"]["autoUpgrade"] == true {
        return Ok(());
    }
    Err(Refusal::invalid(format!("Auto_upgrade cannot be false when release_channel {channel} is set.")))
}

/// Queued provisioning and flex-start.
fn scheduled(body: &Value) -> Result<(), Refusal> {
    let config = &body["config"];
    let queued = body["queuedProvisioning"]["enabled"] == true;
    let flex = config["flexStart"] == true;
    let word = match (queued, flex) {
        (false, false) => return Ok(()),
        (true, _) => "Queued_provisioning",
        (false, true) => "Flex_start",
    };
    if body["autoscaling"]["enabled"] != true {
        return Err(Refusal::invalid(format!("{word} requires autoscaling to be enabled")));
    }
    let number = |key: &str| body["autoscaling"][key].as_i64().unwrap_or_default();
    if queued && (number("minNodeCount") > 0 || number("totalMinNodeCount") > 0) {
        return Err(Refusal::invalid(format!("{word} requires the minimum node count to be 0")));
    }
    if text(config, "/reservationAffinity/consumeReservationType") != "NO_RESERVATION" {
        return Err(Refusal::invalid(format!("{word} requires reservation affinity to be set to none")));
    }
    if config["spot"] == true || config["preemptible"] == true {
        return Err(Refusal::invalid(format!("{word} cannot be used with spot or preemptible nodes")));
    }
    Ok(())
}

/// Refuses a version that this service gave out and that is no longer the current one. Others
/// are not judged: published exchanges carry masked values.
pub fn etag(current: &str, sent: &str) -> Result<(), Refusal> {
    let ours = sent.len() == current.len() && sent.bytes().filter(|byte| *byte == b'-').count() == 4;
    if !ours || sent == current {
        return Ok(());
    }
    Err(Refusal::new(
        Code::Aborted,
        format!("The etag \"{sent}\" is not the current one, \"{current}\": read the resource again."),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_and_zones() {
        for good in ["a", "default-pool", "a1"] {
            assert_eq!(name("cluster", good), Ok(()), "{good}");
        }
        for bad in ["", "A", "1a", "a-", "a_b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"] {
            assert!(name("cluster", bad).is_err(), "{bad}");
        }
        let id = ClusterId::new("p", "us-central1-c", "c");
        for (locations, good) in [
            (json!(["us-central1-a", "us-central1-c"]), true),
            (json!(["us-central1"]), false),
            (json!(["us-east1-b"]), false),
            (json!(["us-central1-a", "us-central1-a"]), false),
        ] {
            assert_eq!(zones(&json!({ "locations": locations }), &id).is_ok(), good, "{locations}");
        }
    }

    #[test]
    fn pools() {
        let id = ClusterId::new("p", "us-central1-c", "c");
        let none = json!({ "consumeReservationType": "NO_RESERVATION" });
        let on = json!({ "enabled": true, "totalMaxNodeCount": 3 });
        let cases = [
            (json!({}), None),
            (
                json!({"management": {}}),
                Some("Auto_upgrade cannot be false when release_channel STABLE is set."),
            ),
            (
                json!({"autoscaling": {"enabled": true, "maxNodeCount": 2, "totalMaxNodeCount": 3}}),
                Some("only one of"),
            ),
            (
                json!({"queuedProvisioning": {"enabled": true}, "autoscaling": on}),
                Some("Queued_provisioning requires reservation affinity to be set to none"),
            ),
            (
                json!({"queuedProvisioning": {"enabled": true}, "config": {"reservationAffinity": none}}),
                Some("requires autoscaling"),
            ),
            (
                json!({"queuedProvisioning": {"enabled": true}, "autoscaling": on, "config": {"reservationAffinity": none}}),
                None,
            ),
            (json!({"config": {"maxRunDuration": "7d"}}), Some("must end with 's'")),
            (json!({"config": {"maxRunDuration": "604800s"}}), None),
        ];
        for (mut body, want) in cases {
            if body["management"].is_null() {
                body["management"] = json!({ "autoUpgrade": true });
            }
            let base =
                json!({ "name": "n", "version": "1.33.5-gke.1", "config": { "machineType": "e2-medium" } });
            crate::kube::object::fill(&mut body, &base);
            let found = pool(&body, &id, "STABLE", "1.33.5-gke.1").err().map(|refusal| refusal.message);
            match want {
                None => assert_eq!(found, None, "{body}"),
                Some(text) => {
                    assert!(found.as_deref().is_some_and(|found| found.contains(text)), "{body}: {found:?}");
                }
            }
        }
    }
}
