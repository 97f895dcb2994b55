//! Fields of a Cluster message that follow from others: twins with the same meaning under an older name, the services
//! that follow from their components, and what answers leave out. Run after everything that writes a cluster.

use serde_json::{Value, json};

use super::facts::{FACTS, fill_sent};
use crate::kube::object::text;

/// How a field follows from its twin.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Twin {
    Same,
    Inverse,
}

/// Fields that the API shows under two names, the older one first. Source: published exchanges; the Terraform
/// provider reads and writes both.
const TWINS: &[(&str, &str, Twin)] = &[
    (
        "/masterAuthorizedNetworksConfig",
        "/controlPlaneEndpointsConfig/ipEndpointsConfig/authorizedNetworksConfig",
        Twin::Same,
    ),
    ("/privateClusterConfig/enablePrivateNodes", "/networkConfig/defaultEnablePrivateNodes", Twin::Same),
    (
        "/privateClusterConfig/enablePrivateEndpoint",
        "/controlPlaneEndpointsConfig/ipEndpointsConfig/enablePublicEndpoint",
        Twin::Inverse,
    ),
    (
        "/privateClusterConfig/privateEndpointSubnetwork",
        "/controlPlaneEndpointsConfig/ipEndpointsConfig/privateEndpointSubnetwork",
        Twin::Same,
    ),
    (
        "/privateClusterConfig/masterGlobalAccessConfig/enabled",
        "/controlPlaneEndpointsConfig/ipEndpointsConfig/globalAccess",
        Twin::Same,
    ),
];

/// A legacy service with its components.
struct Service {
    name: &'static str,
    config: &'static str,
    on: &'static str,
    /// The components that stay when the service is switched off.
    stays: &'static [&'static str],
}

/// Switching the legacy monitoring service off takes the components of the nodes; those of the control plane are
/// one switch behind it, so that any of them comes back as all (recorded with 1.35.1).
const SERVICES: &[Service] = &[
    Service {
        name: "loggingService",
        config: "loggingConfig",
        on: "logging.googleapis.com/kubernetes",
        stays: &[],
    },
    Service {
        name: "monitoringService",
        config: "monitoringConfig",
        on: "monitoring.googleapis.com/kubernetes",
        stays: &["APISERVER", "SCHEDULER", "CONTROLLER_MANAGER"],
    },
];

/// The value at `pointer`, with the objects on the way.
fn put(value: &mut Value, pointer: &str, new: Value) {
    let mut target = value;
    for part in pointer.split('/').skip(1) {
        if !target.is_object() {
            *target = json!({});
        }
        target = &mut target[part];
    }
    *target = new;
}

/// Before defaults are filled in: what was sent under one name is said under the other.
pub(super) fn sent(cluster: &mut Value) {
    twins(cluster, &json!({}));
    for service in SERVICES {
        let components = format!("/{}/componentConfig", service.config);
        match cluster.pointer(&components) {
            Some(_) => named(cluster, service),
            None if text(cluster, &format!("/{}", service.name)) == "none" => {
                put(cluster, &components, json!({}));
            }
            None => {}
        }
    }
}

/// After an update that changed `before` into `cluster`.
pub(super) fn updated(cluster: &mut Value, before: &Value) {
    twins(cluster, before);
    for service in SERVICES {
        let is_new = |pointer: &str| cluster.pointer(pointer) != before.pointer(pointer);
        let components = format!("/{}/componentConfig", service.config);
        if is_new(&components) {
            named(cluster, service);
        } else if is_new(&format!("/{}", service.name)) {
            switched(cluster, service);
        }
    }
    finish(cluster);
}

/// Applies the rules that hold after every write.
pub(super) fn finish(cluster: &mut Value) {
    fill_sent(cluster, &FACTS.sent);
    leave_out(cluster, &FACTS.left_out);
}

fn twins(cluster: &mut Value, before: &Value) {
    for (old, new, twin) in TWINS {
        let moved = |pointer: &str| {
            cluster.pointer(pointer).filter(|value| Some(*value) != before.pointer(pointer)).cloned()
        };
        let other = |value: Value| match (twin, value) {
            (Twin::Inverse, Value::Bool(on)) => json!(!on),
            (Twin::Inverse | Twin::Same, value) => value,
        };
        match (moved(old), moved(new)) {
            (_, Some(value)) => put(cluster, old, other(value)),
            (Some(value), None) => put(cluster, new, other(value)),
            (None, None) => {}
        }
    }
}

fn components(cluster: &Value, service: &Service) -> Vec<String> {
    let list = cluster.pointer(&format!("/{}/componentConfig/enableComponents", service.config));
    let names = list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    names.map(str::to_owned).collect()
}

/// The service follows from its components.
fn named(cluster: &mut Value, service: &Service) {
    let is_on = !components(cluster, service).is_empty();
    cluster[service.name] = json!(if is_on { service.on } else { "none" });
}

/// The components follow from the service.
fn switched(cluster: &mut Value, service: &Service) {
    let pointer = format!("/{}/componentConfig", service.config);
    if text(cluster, &format!("/{}", service.name)) != "none" {
        let default = FACTS.cluster.pointer(&pointer).cloned().unwrap_or_default();
        put(cluster, &pointer, default);
        return;
    }
    let stays = components(cluster, service).iter().any(|name| service.stays.contains(&name.as_str()));
    let left = if stays { json!({ "enableComponents": service.stays }) } else { json!({}) };
    put(cluster, &pointer, left);
}

/// Takes out what says just what its row says.
fn leave_out(value: &mut Value, rows: &Value) {
    let (Some(map), Some(rows)) = (value.as_object_mut(), rows.as_object()) else { return };
    for (key, row) in rows {
        if map.get(key) == Some(row) {
            map.remove(key);
        } else if let Some(inner) = map.get_mut(key) {
            leave_out(inner, row);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twins_say_the_same() {
        let cases = [
            (
                json!({"privateClusterConfig": {"enablePrivateNodes": true}}),
                "/networkConfig/defaultEnablePrivateNodes",
                json!(true),
            ),
            (
                json!({"controlPlaneEndpointsConfig": {"ipEndpointsConfig": {"enablePublicEndpoint": false}}}),
                "/privateClusterConfig/enablePrivateEndpoint",
                json!(true),
            ),
            (json!({"loggingConfig": {"componentConfig": {}}}), "/loggingService", json!("none")),
            (json!({"loggingService": "none"}), "/loggingConfig/componentConfig", json!({})),
        ];
        for (mut cluster, pointer, want) in cases {
            sent(&mut cluster);
            assert_eq!(cluster.pointer(pointer), Some(&want), "{cluster}");
        }
    }

    #[test]
    fn what_moved_decides() {
        let before = json!({
            "monitoringService": "monitoring.googleapis.com/kubernetes",
            "monitoringConfig": {"componentConfig": {"enableComponents": ["SYSTEM_COMPONENTS", "APISERVER"]}},
            "privateClusterConfig": {"enablePrivateNodes": true},
            "networkConfig": {"defaultEnablePrivateNodes": true},
        });
        let mut after = before.clone();
        after["monitoringService"] = json!("none");
        after["networkConfig"]["defaultEnablePrivateNodes"] = json!(false);
        updated(&mut after, &before);
        let components = after.pointer("/monitoringConfig/componentConfig/enableComponents");
        assert_eq!(components, Some(&json!(["APISERVER", "SCHEDULER", "CONTROLLER_MANAGER"])));
        assert_eq!(after["privateClusterConfig"], json!({}), "false is not shown");
    }
}
