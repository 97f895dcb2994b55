//! The requests of a pod as kube-scheduler counts them.
//!
//! Source: `PodRequests` in k8s.io/component-helpers v0.36.1 `resource/helpers.go`, after the defaults of
//! kube-apiserver 1.36 (`pkg/apis/core/v1/defaults.go`): a limit without a request is a request.

use std::collections::BTreeMap;

use model::address::FieldPath;
use serde_json::Value;

use crate::error::Unreadable;
use crate::json::{list, text};
use crate::quantity::Quantity;
use crate::resources::Resource;

/// The request of a pod for one resource. Never zero.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Request {
    pub resource: Resource,
    /// Thousandths of a CPU, bytes, or whole units.
    pub amount: i64,
    /// The place of the largest part of it: `spec.containers[0].resources.limits."nvidia.com/gpu"`.
    pub path: FieldPath,
}

/// A quantity and the place of its largest part.
#[derive(Clone, Debug)]
struct Part {
    sum: Quantity,
    largest: Quantity,
    path: FieldPath,
}

/// Quantities by the name of the resource.
type Parts = BTreeMap<String, Part>;

/// Returns the requests of a pod: its containers and sidecars together, or more if one of the other init containers needs more with
/// the sidecars that have started before it. Where the pod states `resources` of its own, those count. `overhead` comes on top.
///
/// # Errors
/// A value is no quantity.
pub fn requests(spec: &Value, path: &FieldPath) -> Result<Vec<Request>, Unreadable> {
    let mut sum = Parts::new();
    for (at, container) in list(&spec["containers"]).iter().enumerate() {
        add_all(&mut sum, of_container(container, &path.key("containers").index(at))?);
    }
    let (mut sidecars, mut first) = (Parts::new(), Parts::new());
    for (at, container) in list(&spec["initContainers"]).iter().enumerate() {
        let own = of_container(container, &path.key("initContainers").index(at))?;
        if is_sidecar(container) {
            add_all(&mut sum, own.clone());
            add_all(&mut sidecars, own);
            at_least(&mut first, &sidecars);
        } else {
            let mut with_sidecars = sidecars.clone();
            add_all(&mut with_sidecars, own);
            at_least(&mut first, &with_sidecars);
        }
    }
    at_least(&mut sum, &first);
    override_by_pod(&mut sum, &spec["resources"], &path.key("resources"))?;
    add_all(&mut sum, quantities(&spec["overhead"], &path.key("overhead"))?);
    let counted = sum.into_iter().filter_map(|(name, part)| {
        let resource = Resource::of(&name).filter(|resource| *resource != Resource::Pods)?;
        let amount = resource.count(part.sum);
        (amount > 0).then_some(Request { resource, amount, path: part.path })
    });
    let mut all: Vec<Request> = counted.collect();
    all.sort();
    Ok(all)
}

/// Returns true for an init container that runs as long as the pod does.
pub fn is_sidecar(container: &Value) -> bool {
    text(container, "restartPolicy") == "Always"
}

/// A container's requests, and its limits where it states no request.
fn of_container(container: &Value, path: &FieldPath) -> Result<Parts, Unreadable> {
    let resources = path.key("resources");
    let mut parts = quantities(&container["resources"]["limits"], &resources.key("limits"))?;
    parts.extend(quantities(&container["resources"]["requests"], &resources.key("requests"))?);
    Ok(parts)
}

fn quantities(values: &Value, path: &FieldPath) -> Result<Parts, Unreadable> {
    let each = |(name, value): (&String, &Value)| {
        let path = path.key(name);
        let Some(sum) = Quantity::of(value) else {
            let found = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            return Err(Unreadable::at(path, &found, "a quantity"));
        };
        Ok((name.clone(), Part { sum, largest: sum, path }))
    };
    values.as_object().into_iter().flatten().map(each).collect()
}

fn add_all(to: &mut Parts, more: Parts) {
    for (name, part) in more {
        match to.get_mut(&name) {
            None => drop(to.insert(name, part)),
            Some(held) => {
                held.sum = held.sum.plus(part.sum);
                if part.largest > held.largest {
                    (held.largest, held.path) = (part.largest, part.path);
                }
            }
        }
    }
}

fn at_least(to: &mut Parts, least: &Parts) {
    for (name, part) in least {
        if to.get(name).is_none_or(|held| part.sum > held.sum) {
            to.insert(name.clone(), part.clone());
        }
    }
}

/// Resources that a pod can state as a whole (`spec.resources`): a request there counts in place of the containers'; a limit there
/// when no container says anything.
fn override_by_pod(sum: &mut Parts, resources: &Value, path: &FieldPath) -> Result<(), Unreadable> {
    let is_huge = |name: &str| name.starts_with("hugepages-");
    let can_be = |name: &str| matches!(name, "cpu" | "memory") || is_huge(name);
    for (name, part) in quantities(&resources["limits"], &path.key("limits"))? {
        if can_be(&name) && (is_huge(&name) || !sum.contains_key(&name)) {
            sum.insert(name, part);
        }
    }
    let requests = quantities(&resources["requests"], &path.key("requests"))?;
    sum.extend(requests.into_iter().filter(|(name, _)| can_be(name)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// `RESOURCE=AMOUNT at PLACE` for each.
    fn of(spec: &Value) -> Vec<String> {
        let all = requests(spec, &FieldPath::keys(["spec"])).unwrap();
        let text =
            |one: &Request| format!("{}={} at {}", one.resource, one.resource.text(one.amount), one.path);
        all.iter().map(text).collect()
    }

    fn container(requests: Value) -> Value {
        json!({ "name": "c", "resources": { "requests": requests } })
    }

    #[test]
    fn containers_are_added_and_limits_are_requests() {
        let spec = json!({ "containers": [
            container(json!({ "cpu": "500m", "memory": "1Gi" })),
            { "name": "d", "resources": { "limits": { "cpu": 1, "memory": "2Gi", "nvidia.com/gpu": "2" }, "requests": { "cpu": "700m" } } },
            { "name": "e" },
        ] });
        assert_eq!(
            of(&spec),
            [
                "cpu=1.2 at spec.containers[1].resources.requests.cpu",
                "memory=3Gi at spec.containers[1].resources.limits.memory",
                "nvidia.com/gpu=2 at spec.containers[1].resources.limits.\"nvidia.com/gpu\"",
            ]
        );
    }

    #[test]
    fn init_containers_run_one_after_the_other_beside_sidecars() {
        let mut sidecar = container(json!({ "cpu": "200m" }));
        sidecar["restartPolicy"] = json!("Always");
        let (main, init) = (container(json!({ "cpu": "1" })), container(json!({ "cpu": "900m" })));
        let with = |init: Value| of(&json!({ "containers": [main], "initContainers": init }));
        let at = |place: &str| [format!("{place}.resources.requests.cpu")];
        assert_eq!(with(json!([init])), at("cpu=1 at spec.containers[0]"));
        assert_eq!(with(json!([sidecar])), at("cpu=1.2 at spec.containers[0]"));
        // 1 + 200m of the sidecar is less than 1.3 + 200m when the sidecar has started before, and 1.3 when after.
        let big = container(json!({ "cpu": "1300m" }));
        assert_eq!(with(json!([sidecar, big])), at("cpu=1.5 at spec.initContainers[1]"));
        assert_eq!(with(json!([big, sidecar])), at("cpu=1.3 at spec.initContainers[0]"));
    }

    #[test]
    fn overhead_and_resources_of_the_pod() {
        let containers = json!([container(json!({ "cpu": "1", "ephemeral-storage": "1Gi" }))]);
        let overhead = json!({ "containers": containers, "overhead": { "cpu": "250m" } });
        assert_eq!(of(&overhead)[0], "cpu=1.25 at spec.containers[0].resources.requests.cpu");
        for (resources, expected) in [
            (json!({ "requests": { "cpu": "3" } }), "cpu=3 at spec.resources.requests.cpu"),
            (json!({ "limits": { "cpu": "3" } }), "cpu=1 at spec.containers[0].resources.requests.cpu"),
            (json!({ "limits": { "memory": "3Gi" } }), "memory=3Gi at spec.resources.limits.memory"),
            (
                json!({ "requests": { "ephemeral-storage": "9Gi" } }),
                "ephemeral-storage=1Gi at spec.containers[0].resources.requests.ephemeral-storage",
            ),
        ] {
            let found = of(&json!({ "containers": containers, "resources": resources }));
            assert!(found.iter().any(|one| one == expected), "{resources}: {found:?}");
        }
    }

    #[test]
    fn sums_are_rounded_once() {
        let small = container(json!({ "cpu": "100u", "memory": "0.4", "nvidia.com/gpu": "0" }));
        let spec = json!({ "containers": [small, small, small] });
        let all = requests(&spec, &FieldPath::root()).unwrap();
        let amounts: Vec<i64> = all.iter().map(|one| one.amount).collect();
        assert_eq!(amounts, [1, 2]);
        let wrong =
            requests(&json!({ "containers": [container(json!({ "cpu": "two" }))] }), &FieldPath::root());
        assert_eq!(
            wrong.unwrap_err().to_string(),
            "containers[0].resources.requests.cpu: `two` is not a quantity"
        );
    }
}
