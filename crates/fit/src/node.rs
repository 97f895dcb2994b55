//! Nodes with their pods.

use std::sync::Arc;

use serde_json::Value;

use crate::json::text;
use crate::labels::{Labels, any_term, labels};
use crate::pod::{HostPort, PodRequirements};
use crate::resources::Amounts;
use crate::taints::Taint;

/// A node: a live one, or the node that GKE would create for a pool ([`crate::gke::template`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    pub labels: Labels,
    pub taints: Vec<Taint>,
    /// The amounts that all pods together may request.
    pub allocatable: Amounts,
    /// True if the node is cordoned.
    pub unschedulable: bool,
    /// The amounts by which `allocatable` and the system pods may be off. `None` for a live node, whose amounts are exact.
    pub slack: Option<Amounts>,
    pub(crate) pods: Vec<Bound>,
    pub(crate) used: Amounts,
    pub(crate) ports: Vec<HostPort>,
}

/// A pod on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    pub pod: Arc<PodRequirements>,
    /// True while the pod is being deleted: its requests still count, but topology spread no longer counts it.
    pub terminating: bool,
}

impl Node {
    /// Reads a live Node, without pods.
    pub fn read(node: &Value) -> Self {
        Self {
            name: text(&node["metadata"], "name").to_owned(),
            labels: labels(&node["metadata"]["labels"]),
            taints: Taint::read_all(&node["spec"]["taints"]),
            allocatable: Amounts::read(&node["status"]["allocatable"]),
            unschedulable: node["spec"]["unschedulable"] == true,
            ..Self::default()
        }
    }

    /// Puts a pod on the node, whether it fits or not.
    pub fn bind(&mut self, pod: Bound) {
        pod.pod.take(&mut self.used);
        self.ports.extend_from_slice(&pod.pod.ports);
        self.pods.push(pod);
    }

    /// Returns the pods on the node.
    pub fn pods(&self) -> &[Bound] {
        &self.pods
    }

    /// Returns the amounts that the node's pods request.
    pub fn used(&self) -> &Amounts {
        &self.used
    }

    /// Returns the host ports that the node's pods use.
    pub fn ports(&self) -> &[HostPort] {
        &self.ports
    }
}

impl PodRequirements {
    /// Returns true if the pod's node selector and its required node affinity allow the node.
    pub fn selects(&self, node: &Node) -> bool {
        self.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value))
            && self.node_terms.as_ref().is_none_or(|terms| any_term(terms, &node.labels, &node.name))
    }
}

impl Bound {
    /// Returns a pod that is not being deleted.
    pub fn running(pod: impl Into<Arc<PodRequirements>>) -> Self {
        Self { pod: pod.into(), terminating: false }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nodes_are_read_and_filled() {
        let mut node = Node::read(&json!({
            "metadata": { "name": "n", "labels": { "pool": "a" } },
            "spec": { "unschedulable": true, "taints": [{ "key": "k", "value": "v", "effect": "NoSchedule" }] },
            "status": { "allocatable": { "cpu": "4", "memory": "8Gi", "pods": "110" } },
        }));
        assert_eq!(
            (&*node.name, node.unschedulable, node.taints[0].to_string()),
            ("n", true, "k=v:NoSchedule".to_owned())
        );
        let pod = json!({ "spec": { "containers": [{
            "resources": { "limits": { "cpu": "1", "nvidia.com/gpu": "1" } }, "ports": [{ "hostPort": 80 }],
        }] } });
        node.bind(Bound::running(PodRequirements::read(&pod, "default").unwrap()));
        let used = node.used();
        assert_eq!(
            (used.pods, used.cpu, used.extended["nvidia.com/gpu"], node.ports().len()),
            (1, 1000, 1, 1)
        );
    }
}
