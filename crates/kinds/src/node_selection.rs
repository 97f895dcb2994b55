//! Node selection by properties of the machine instead of by node pool. Autopilot creates a node for such a pod. In a Standard
//! cluster, the pod runs on any node with these properties.
//!
//! Source: GKE's pages "Deploy GPU workloads in Autopilot", "Run fault-tolerant workloads in Spot Pods" and "Choose compute
//! classes for Autopilot Pods": the selectors, and the taints of the nodes that GKE makes for them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::json::{append, is_false};
use model::address::FieldPath;

/// The node label with the type of its GPUs.
pub const ACCELERATOR_LABEL: &str = "cloud.google.com/gke-accelerator";

/// The label of Spot nodes. On nodes that GKE creates for pending pods, it is a taint as well.
pub const SPOT_LABEL: &str = "cloud.google.com/gke-spot";

/// The label and taint of the nodes of a compute class.
pub const CLASS_LABEL: &str = "cloud.google.com/compute-class";

/// Which machines run a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct Machines {
    /// The GPU type of the node, as GKE names it: `"nvidia-l4"`. Autopilot needs it for every pod with `gpus`; elsewhere it
    /// takes a node of any pool with such GPUs. Not with `pool`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<String>,
    /// Spot machines only: cheaper, may be reclaimed at any time. Not with `pool`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub spot: bool,
    /// The compute class of the node: `"Balanced"`, `"Scale-Out"`, `"Performance"`, or the name of a ComputeClass in the
    /// cluster. Not with `pool`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_class: Option<String>,
}

/// A key of the section, the node label that it selects, and the value.
struct Selected<'a> {
    key: &'static str,
    label: &'static str,
    value: &'a str,
    /// True if GKE taints such nodes.
    tainted: bool,
}

impl Machines {
    fn selected(&self) -> impl Iterator<Item = Selected<'_>> {
        let Self { accelerator, spot, compute_class } = self;
        // The taint of GPU nodes is `nvidia.com/gpu`, which goes with the GPUs that a pod requests.
        let rows = [
            ("accelerator", ACCELERATOR_LABEL, accelerator.as_deref(), false),
            ("spot", SPOT_LABEL, spot.then_some("true"), true),
            ("compute_class", CLASS_LABEL, compute_class.as_deref(), true),
        ];
        rows.into_iter()
            .filter_map(|(key, label, value, tainted)| Some(Selected { key, label, value: value?, tainted }))
    }

    /// Returns the keys that are set, with the node labels that they select.
    pub fn selected_labels(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.selected().map(|selected| (selected.key, selected.label))
    }

    /// Adds the selectors and tolerations to a PodSpec.
    pub fn add_to_pod(&self, pod: &mut Value) {
        for Selected { label, value, tainted, .. } in self.selected() {
            pod["nodeSelector"][label] = json!(value);
            if !tainted {
                continue;
            }
            let toleration =
                json!({ "key": label, "operator": "Equal", "value": value, "effect": "NoSchedule" });
            append(pod, "tolerations", vec![toleration]);
        }
    }

    /// Reads the machines from a live node selector.
    pub fn of(selector: &Value) -> Self {
        let text = |label: &str| selector[label].as_str().map(str::to_owned);
        Self {
            accelerator: text(ACCELERATOR_LABEL),
            spot: selector[SPOT_LABEL] == "true",
            compute_class: text(CLASS_LABEL),
        }
    }

    /// Returns the provenance of the selectors of a PodSpec at `pod`.
    pub fn provenance(pod: &FieldPath, section: &FieldPath) -> Vec<(FieldPath, FieldPath)> {
        let selector = pod.key("nodeSelector");
        let rows = [(ACCELERATOR_LABEL, "accelerator"), (SPOT_LABEL, "spot"), (CLASS_LABEL, "compute_class")];
        rows.into_iter().map(|(label, key)| (selector.key(label), section.key(key))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_become_selectors_and_tolerations_and_come_back() {
        let machines = Machines {
            accelerator: Some("nvidia-l4".into()),
            spot: true,
            compute_class: Some("Performance".into()),
        };
        let mut pod = json!({ "tolerations": [{ "key": "nvidia.com/gpu", "operator": "Exists" }] });
        machines.add_to_pod(&mut pod);
        assert_eq!(
            pod["nodeSelector"],
            json!({ ACCELERATOR_LABEL: "nvidia-l4", SPOT_LABEL: "true", CLASS_LABEL: "Performance" })
        );
        let tolerated: Vec<_> =
            pod["tolerations"].as_array().unwrap().iter().map(|item| &item["key"]).collect();
        assert_eq!(tolerated, ["nvidia.com/gpu", SPOT_LABEL, CLASS_LABEL]);
        assert_eq!(Machines::of(&pod["nodeSelector"]), machines);

        let mut plain = json!({ "containers": [] });
        Machines::default().add_to_pod(&mut plain);
        assert_eq!(plain, json!({ "containers": [] }));
        assert_eq!(Machines::of(&plain["nodeSelector"]), Machines::default());
    }
}
