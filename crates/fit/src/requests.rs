//! The requests of a pod as kube-scheduler counts them.
//!
//! Source: `PodRequests` in k8s.io/component-helpers v0.36.1 `resource/helpers.go`, after the defaults of
//! kube-apiserver 1.36 (`pkg/apis/core/v1/defaults.go`): a limit without a request is a request.

use std::collections::BTreeMap;

use model::address::FieldPath;
use model::quantity::Quantity;
use serde_json::Value;

use crate::error::Unreadable;
use crate::json::{At, list, text};
use crate::resources::Resource;

/// The request of a pod for one resource. Never zero.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Request {
    pub resource: Resource,
    /// Thousandths of a CPU, bytes, or whole units.
    pub amount: i64,
    /// The path of the largest part of the amount: `spec.containers[0].resources.limits."nvidia.com/gpu"`.
    pub path: FieldPath,
}

/// A quantity, with the path of its largest part.
#[derive(Clone, Debug)]
pub struct Part {
    pub sum: Quantity,
    largest: Quantity,
    path: FieldPath,
}

/// Quantities by the name of the resource.
pub type Parts = BTreeMap<String, Part>;

/// Amounts that admission fills in.
#[derive(Default)]
pub struct Filled<'a> {
    /// Default requests for containers that set none; the first entry that has a resource counts.
    pub requests: Vec<&'a Parts>,
    /// The overhead of the RuntimeClass, which replaces the pod's own.
    pub overhead: Option<&'a Parts>,
}

/// Returns the requests of a pod: its containers and sidecars together, or more if one of the other init containers needs more
/// with the sidecars that have started before it. If the pod sets `resources` at pod level, those count. `overhead` is added. A
/// container that is being resized counts with the largest of its desired, allocated and actual amounts.
///
/// # Errors
/// A value is no quantity, or has the wrong type.
pub fn requests(pod: &At<'_, '_>, filled: &Filled<'_>) -> Result<Vec<Request>, Unreadable> {
    let spec = pod.key("spec");
    let resized = Resized::of(pod.value());
    let mut sum = Parts::new();
    for container in spec.key("containers").items()? {
        add_all(&mut sum, resized.over(of_container(&container, filled)?, &container)?);
    }
    let (mut sidecars, mut first) = (Parts::new(), Parts::new());
    for container in spec.key("initContainers").items()? {
        let own = of_container(&container, filled)?;
        if is_sidecar(container.value()) {
            let own = resized.over(own, &container)?;
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
    override_by_pod(&mut sum, &spec.key("resources"))?;
    let overhead = quantities(&spec.key("overhead"))?;
    add_all(&mut sum, filled.overhead.cloned().unwrap_or(overhead));
    let counted = sum.into_iter().filter_map(|(name, part)| {
        let resource = Resource::of(&name).filter(|resource| *resource != Resource::Pods)?;
        let amount = resource.count(part.sum);
        (amount > 0).then_some(Request { resource, amount, path: part.path })
    });
    let mut all: Vec<Request> = counted.collect();
    all.sort();
    Ok(all)
}

/// Returns true for an init container that runs as long as the pod does (a sidecar).
pub fn is_sidecar(container: &Value) -> bool {
    text(container, "restartPolicy") == "Always"
}

/// Returns the container's requests. Its limits replace missing requests, and admission fills in what has neither.
fn of_container(container: &At<'_, '_>, filled: &Filled<'_>) -> Result<Parts, Unreadable> {
    let resources = container.key("resources");
    let requests = resources.key("requests");
    let mut parts = quantities(&resources.key("limits"))?;
    parts.extend(quantities(&requests)?);
    for (name, part) in filled.requests.iter().copied().flatten() {
        let path = || requests.key(name).path();
        parts.entry(name.clone()).or_insert_with(|| Part { path: path(), ..part.clone() });
    }
    Ok(parts)
}

/// Reads quantities as kube-apiserver stores them, rounded up to thousandths. Null is 0.
pub fn quantities(values: &At<'_, '_>) -> Result<Parts, Unreadable> {
    let each = |(name, at): (&str, At<'_, '_>)| {
        let read = if at.is_absent() { Some(Quantity::default()) } else { Quantity::of(at.value()) };
        let sum = read.ok_or_else(|| at.wrong("a quantity"))?.rounded_to_milli();
        Ok((name.to_owned(), Part { sum, largest: sum, path: at.path() }))
    };
    values.entries()?.map(each).collect()
}

/// The containers of a live pod that are being resized, or were.
struct Resized<'v> {
    statuses: Vec<&'v Value>,
    /// True if the node can never provide the desired amounts, so they do not count.
    is_infeasible: bool,
}

impl<'v> Resized<'v> {
    fn of(pod: &'v Value) -> Self {
        let status = &pod["status"];
        let all =
            ["containerStatuses", "initContainerStatuses"].into_iter().flat_map(|kind| list(&status[kind]));
        let statuses = all.filter(|one| one["resources"].is_object()).collect();
        let pending = list(&status["conditions"]).iter().find(|one| one["type"] == "PodResizePending");
        Self { statuses, is_infeasible: pending.is_some_and(|one| one["reason"] == "Infeasible") }
    }

    /// Returns the requests of a container, raised to the amounts in its status. Source: `determineEffectiveRequests`.
    fn over(&self, asked: Parts, container: &At<'_, '_>) -> Result<Parts, Unreadable> {
        let name = &container.value()["name"];
        let Some(status) = self.statuses.iter().find(|one| one["name"] == *name) else { return Ok(asked) };
        let path = container.path().key("resources").key("requests");
        let mut most = if self.is_infeasible { Parts::new() } else { asked };
        for held in [&status["resources"]["requests"], &status["allocatedResources"]] {
            at_least(&mut most, &quantities(&At::new(held, &path))?);
        }
        Ok(most)
    }
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

/// Applies pod-level resources (`spec.resources`): a request there replaces the sum of the containers' requests; a limit there
/// counts if no container sets the resource.
fn override_by_pod(sum: &mut Parts, resources: &At<'_, '_>) -> Result<(), Unreadable> {
    let is_huge = |name: &str| name.starts_with("hugepages-");
    let can_be = |name: &str| matches!(name, "cpu" | "memory") || is_huge(name);
    for (name, part) in quantities(&resources.key("limits"))? {
        if can_be(&name) && (is_huge(&name) || !sum.contains_key(&name)) {
            sum.insert(name, part);
        }
    }
    let requests = quantities(&resources.key("requests"))?;
    sum.extend(requests.into_iter().filter(|(name, _)| can_be(name)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// `RESOURCE=AMOUNT at PLACE` for each.
    fn of(spec: &Value) -> Vec<String> {
        of_pod(&json!({ "spec": spec }))
    }

    fn of_pod(pod: &Value) -> Vec<String> {
        let all = requests(&At::new(pod, &FieldPath::root()), &Filled::default()).unwrap();
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
    fn each_amount_is_rounded_up_to_thousandths() {
        let small = || container(json!({ "cpu": "100u", "memory": "0.3" }));
        let spec = json!({ "containers": [small(), small(), small()] });
        let at = "spec.containers[0].resources.requests";
        assert_eq!(of(&spec), [format!("cpu=0.003 at {at}.cpu"), format!("memory=1 at {at}.memory")]);
    }

    #[test]
    fn containers_that_are_being_resized() {
        let pod = |reason: &str, name: &str| {
            json!({
                "spec": { "containers": [container(json!({ "cpu": "3", "memory": "1Gi" }))] },
                "status": {
                    "conditions": [{ "type": "PodResizePending", "reason": reason }],
                    "containerStatuses": [{
                        "name": name, "allocatedResources": { "cpu": "2", "memory": "1Gi" },
                        "resources": { "requests": { "cpu": "1", "memory": "2Gi" } },
                    }],
                },
            })
        };
        let at = |cpu: &str, memory: &str| {
            let at = "spec.containers[0].resources.requests";
            [format!("cpu={cpu} at {at}.cpu"), format!("memory={memory} at {at}.memory")]
        };
        assert_eq!(of_pod(&pod("Deferred", "c")), at("3", "2Gi"));
        assert_eq!(of_pod(&pod("Infeasible", "c")), at("2", "2Gi"));
        assert_eq!(of_pod(&pod("Deferred", "other")), at("3", "1Gi"));
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
    fn amounts_of_whole_units_are_rounded_in_the_sum() {
        let small = container(json!({ "cpu": null, "memory": "0.4", "nvidia.com/gpu": "0" }));
        let at = "memory=2 at spec.containers[0].resources.requests.memory";
        assert_eq!(of(&json!({ "containers": [small, small, small] })), [at]);
        let wrong = json!({ "spec": { "containers": [container(json!({ "cpu": "two" }))] } });
        assert_eq!(
            requests(&At::new(&wrong, &FieldPath::root()), &Filled::default()).unwrap_err().to_string(),
            "spec.containers[0].resources.requests.cpu: `two` is not a quantity"
        );
    }
}
