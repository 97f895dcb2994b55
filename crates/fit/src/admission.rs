//! Changes that kube-apiserver's admission makes to pods before it stores them, and kube-scheduler sees them: RuntimeClasses, and
//! the requests that LimitRanges fill in.
//!
//! Source: plugins RuntimeClass and LimitRanger of kube-apiserver 1.36 (`plugin/pkg/admission`), and the defaults of LimitRanges
//! (`SetDefaults_LimitRangeItem`). Not followed: the bounds of LimitRanges, quotas, webhooks.

use std::collections::BTreeMap;

use model::address::FieldPath;
use serde_json::Value;

use crate::error::Unreadable;
use crate::json::At;
use crate::labels::Labels;
use crate::pod::PodRequirements;
use crate::requests::{Filled, Parts, quantities, requests};
use crate::taints::Toleration;

/// The objects in a cluster that determine these changes.
#[derive(Clone, Debug, Default)]
pub struct Admission {
    /// RuntimeClasses by name.
    pub runtime_classes: BTreeMap<String, RuntimeClass>,
    /// LimitRanges by namespace.
    pub limit_ranges: BTreeMap<String, Vec<LimitRange>>,
    /// True on GKE, which adds [tolerations](PodRequirements::with_gke_tolerations).
    pub gke: bool,
}

/// The settings of a RuntimeClass that determine the nodes a pod can run on.
#[derive(Clone, Debug, Default)]
pub struct RuntimeClass {
    overhead: Option<Parts>,
    node_selector: Labels,
    tolerations: Vec<Toleration>,
}

/// The settings of a LimitRange that fill in missing requests of containers.
#[derive(Clone, Debug, Default)]
pub struct LimitRange {
    requests: Parts,
}

impl Admission {
    /// Reads a Pod or a PodTemplateSpec as [`PodRequirements::read`] does, with what admission adds.
    ///
    /// # Errors
    /// Kubernetes would refuse a value, the RuntimeClass is unknown, or the pod contradicts the RuntimeClass. The path is the one
    /// in the pod.
    pub fn read(&self, pod: &Value, namespace: &str) -> Result<PodRequirements, Unreadable> {
        let root = FieldPath::root();
        let at = At::new(pod, &root);
        let mut read = PodRequirements::read(pod, namespace)?;
        let spec = at.key("spec");
        let name = spec.key("runtimeClassName");
        let class = match name.text()? {
            "" => None,
            known => Some(
                self.runtime_classes.get(known).ok_or_else(|| name.wrong("a RuntimeClass that is known"))?,
            ),
        };
        if let Some(class) = class {
            class.agrees(&spec.key("overhead"))?;
        }
        let ranges = self.limit_ranges.get(&read.namespace).into_iter().flatten();
        let filled = Filled {
            requests: ranges.map(|range| &range.requests).collect(),
            overhead: class.and_then(|class| class.overhead.as_ref()),
        };
        read.requests = requests(&at, &filled)?;
        if let Some(class) = class {
            class.select(&mut read.node_selector, &spec.key("nodeSelector"))?;
            read.tolerations.extend(class.tolerations.iter().cloned());
        }
        Ok(if self.gke { read.with_gke_tolerations() } else { read })
    }
}

impl RuntimeClass {
    /// Reads a RuntimeClass.
    ///
    /// # Errors
    /// Kubernetes would refuse a value.
    pub fn read(class: &Value) -> Result<Self, Unreadable> {
        let root = FieldPath::root();
        let at = At::new(class, &root);
        let (overhead, scheduling) = (at.key("overhead"), at.key("scheduling"));
        Ok(Self {
            overhead: overhead.is_object()?.then(|| quantities(&overhead.key("podFixed"))).transpose()?,
            node_selector: scheduling.key("nodeSelector").labels()?,
            tolerations: Toleration::at(&scheduling.key("tolerations"))?,
        })
    }

    /// Checks that the pod's own overhead, if any, equals that of the RuntimeClass.
    fn agrees(&self, at: &At<'_, '_>) -> Result<(), Unreadable> {
        let own = quantities(at)?;
        let Some(overhead) = self.overhead.as_ref().filter(|_| !own.is_empty()) else { return Ok(()) };
        let sums =
            |parts: &Parts| parts.iter().map(|(name, part)| (name.clone(), part.sum)).collect::<Vec<_>>();
        if sums(overhead) == sums(&own) { Ok(()) } else { Err(at.wrong("the overhead of the RuntimeClass")) }
    }

    /// Adds the node selector of the RuntimeClass to that of a pod.
    fn select(&self, to: &mut Labels, at: &At<'_, '_>) -> Result<(), Unreadable> {
        for (key, value) in &self.node_selector {
            if to.insert(key.clone(), value.clone()).is_some_and(|own| own != *value) {
                return Err(at.key(key).wrong("the value that the RuntimeClass asks for"));
            }
        }
        Ok(())
    }
}

impl LimitRange {
    /// Reads a LimitRange. A default limit is also the default request. Without defaults, the minimum is the default request, and
    /// the maximum the default limit.
    ///
    /// # Errors
    /// Kubernetes would refuse a value.
    pub fn read(range: &Value) -> Result<Self, Unreadable> {
        let root = FieldPath::root();
        let at = At::new(range, &root);
        let mut all = Parts::new();
        for item in at.key("spec").key("limits").items()? {
            if item.key("type").text()? == "Container" {
                // A default limit comes from `max`; a default request from the default limit, else from `min`.
                for kind in ["min", "max", "default", "defaultRequest"] {
                    all.extend(quantities(&item.key(kind))?);
                }
            }
        }
        Ok(Self { requests: all })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resources::Resource;

    fn gvisor() -> Admission {
        let class = json!({
            "overhead": { "podFixed": { "cpu": "250m" } },
            "scheduling": {
                "nodeSelector": { "runtime": "gvisor" },
                "tolerations": [{ "key": "runtime", "operator": "Equal", "value": "gvisor", "effect": "NoSchedule" }],
            },
        });
        let class = RuntimeClass::read(&class).unwrap();
        Admission { runtime_classes: [("gvisor".to_owned(), class)].into(), ..Admission::default() }
    }

    fn pod(class: &str, selector: Value) -> Value {
        let requests = json!({ "resources": { "requests": { "cpu": "1" } } });
        json!({ "spec": { "runtimeClassName": class, "nodeSelector": selector, "containers": [requests] } })
    }

    #[test]
    fn runtime_classes_add_overhead_selectors_and_tolerations() {
        let read = gvisor().read(&pod("gvisor", json!({ "pool": "a" })), "default").unwrap();
        assert_eq!(read.requests[0].amount, 1250);
        assert_eq!((read.node_selector.len(), read.tolerations.len()), (2, 1));
        let plain = gvisor().read(&pod("", json!({})), "default").unwrap();
        assert_eq!((plain.requests[0].amount, plain.tolerations.len()), (1000, 0));
        for (pod, told) in [
            (pod("kata", json!({})), "spec.runtimeClassName: `kata` is not a RuntimeClass that is known"),
            (
                pod("gvisor", json!({ "runtime": "runc" })),
                "spec.nodeSelector.runtime: `runc` is not the value that the RuntimeClass asks for",
            ),
        ] {
            assert_eq!(gvisor().read(&pod, "default").unwrap_err().to_string(), told);
        }
    }

    #[test]
    fn limit_ranges_fill_in_requests() {
        let range = |limits: Value| {
            let range = LimitRange::read(&json!({ "spec": { "limits": limits } })).unwrap();
            Admission { limit_ranges: [("team".to_owned(), vec![range])].into(), ..Admission::default() }
        };
        let amounts = |admission: &Admission, namespace: &str| {
            let container = json!({ "resources": { "limits": { "memory": "1Gi" } } });
            let pod = json!({ "spec": { "containers": [container, {}] } });
            let read = admission.read(&pod, namespace).unwrap();
            let of = |resource| read.request(&resource).map_or(0, |request| request.amount);
            (of(Resource::Cpu), of(Resource::Memory) >> 20)
        };
        let defaults = range(
            json!([{ "type": "Container", "defaultRequest": { "cpu": "100m" }, "default": { "memory": "512Mi", "cpu": "1" } }]),
        );
        assert_eq!(amounts(&defaults, "team"), (200, 1536));
        assert_eq!(amounts(&defaults, "default"), (0, 1024));
        let bounds = range(
            json!([{ "type": "Container", "min": { "cpu": "50m" }, "max": { "memory": "2Gi" } }, { "type": "Pod", "max": { "cpu": "1" } }]),
        );
        assert_eq!(amounts(&bounds, "team"), (100, 3072));
    }
}
