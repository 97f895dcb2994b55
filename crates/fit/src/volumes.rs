//! Volumes that decide on nodes: claims, the volumes they are bound to, and storage classes. They are an input: which zone a disk
//! is in, nobody knows from a pod.
//!
//! Source: plugins VolumeRestrictions, VolumeBinding and VolumeZone of kube-scheduler 1.36. Not followed: volumes that exist
//! and wait for a claim (a claim that waits for its first pod is taken to get a new one), storage capacity that drivers report, and
//! the number of disks a node takes (NodeVolumeLimits).

use std::collections::{BTreeMap, BTreeSet};

use model::address::FieldPath;
use serde_json::Value;

use crate::error::Unreadable;
use crate::json::{list, text, texts};
use crate::labels::{Labels, NodeTerm, labels};

/// A claim (`PersistentVolumeClaim`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub state: ClaimState,
    /// True if one pod alone may use it (`ReadWriteOncePod`).
    pub one_pod: bool,
}

/// The volume of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimState {
    /// It has one.
    Bound(BoundVolume),
    /// It has none, and gets one by its class. `None` for a claim that waits for a volume that it names, or that has no class.
    Unbound(Option<String>),
}

/// The volume that a claim is bound to (`PersistentVolume`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BoundVolume {
    /// The nodes that can mount it; `None` for all.
    pub node_terms: Option<Vec<NodeTerm>>,
    /// Its labels: older volumes have their zone and region there.
    pub labels: Labels,
}

/// A class of storage (`StorageClass`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorageClass {
    /// True if its volumes are made where the first pod goes (`WaitForFirstConsumer`).
    pub waits_for_pod: bool,
    /// True if it makes volumes.
    pub provisions: bool,
    /// Topologies that it makes them in, one of which the node must have; none for everywhere.
    pub topologies: Vec<Topology>,
}

/// A topology: labels with the values that they may have.
pub type Topology = BTreeMap<String, BTreeSet<String>>;

impl Claim {
    /// Reads a PersistentVolumeClaim, and the PersistentVolume that it names.
    ///
    /// # Errors
    /// An operator in the volume's node affinity is unknown.
    pub fn read(claim: &Value, volume: Option<&Value>) -> Result<Self, Unreadable> {
        let spec = &claim["spec"];
        let one_pod = texts(&spec["accessModes"]).iter().any(|mode| mode == "ReadWriteOncePod");
        // Its name stands in the claim before the volume is its own.
        let complete = claim["metadata"]["annotations"].get("pv.kubernetes.io/bind-completed").is_some();
        let state = match volume.filter(|_| complete && !text(spec, "volumeName").is_empty()) {
            Some(volume) => ClaimState::Bound(BoundVolume::read(volume)?),
            // A claim that names a volume gets no other, whatever its class does.
            None if !text(spec, "volumeName").is_empty() => ClaimState::Unbound(None),
            None => ClaimState::Unbound(spec["storageClassName"].as_str().map(str::to_owned)),
        };
        Ok(Self { state, one_pod })
    }
}

impl BoundVolume {
    /// Reads a PersistentVolume.
    ///
    /// # Errors
    /// An operator in its node affinity is unknown.
    pub fn read(volume: &Value) -> Result<Self, Unreadable> {
        let required = &volume["spec"]["nodeAffinity"]["required"];
        let path = FieldPath::keys(["spec", "nodeAffinity", "required", "nodeSelectorTerms"]);
        let each = |(at, term)| NodeTerm::read(term, &path.index(at));
        let terms = list(&required["nodeSelectorTerms"])
            .iter()
            .enumerate()
            .map(each)
            .collect::<Result<Vec<_>, _>>()?;
        let node_terms = required.is_object().then_some(terms);
        Ok(Self { node_terms, labels: labels(&volume["metadata"]["labels"]) })
    }

    /// The label of zone or region that keeps it off a node, and its values. Nodes without any such label take every volume.
    pub(crate) fn other_zone(&self, node: &Labels) -> Option<(&str, &str)> {
        if !ZONE_LABELS.iter().any(|(label, _)| node.contains_key(*label)) {
            return None;
        }
        let given = ZONE_LABELS
            .iter()
            .filter_map(|(label, new)| Some((*label, *new, self.labels.get(*label)?.as_str())));
        let away = |(label, new, zones): &(&str, &str, &str)| {
            let here = node.get(*label).or_else(|| node.get(*new));
            !here.is_some_and(|here| zones.split("__").any(|zone| zone.trim() == here))
        };
        given
            .filter(|(_, _, zones)| zones.split("__").all(|zone| !zone.trim().is_empty()))
            .find(away)
            .map(|(label, _, zones)| (label, zones))
    }
}

/// Labels of zone and region, old and new ones, each with the new one.
const ZONE_LABELS: [(&str, &str); 4] = [
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("topology.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("topology.kubernetes.io/region", "topology.kubernetes.io/region"),
];

impl StorageClass {
    /// Reads a StorageClass.
    pub fn read(class: &Value) -> Self {
        let topology = |term: &Value| {
            let each =
                |one: &Value| (text(one, "key").to_owned(), texts(&one["values"]).into_iter().collect());
            list(&term["matchLabelExpressions"]).iter().map(each).collect()
        };
        Self {
            waits_for_pod: text(class, "volumeBindingMode") == "WaitForFirstConsumer",
            provisions: !matches!(text(class, "provisioner"), "" | "kubernetes.io/no-provisioner"),
            topologies: list(&class["allowedTopologies"]).iter().map(topology).collect(),
        }
    }

    /// Returns true if it makes volumes for a node with these labels.
    pub(crate) fn reaches(&self, node: &Labels) -> bool {
        let has = |(key, values): (&String, &BTreeSet<String>)| {
            node.get(key).is_some_and(|value| values.contains(value))
        };
        let fits = |topology: &Topology| !topology.is_empty() && topology.iter().all(has);
        self.provisions && (self.topologies.is_empty() || self.topologies.iter().any(fits))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(zone: &str) -> Labels {
        labels(&json!({ "topology.kubernetes.io/zone": zone, "topology.kubernetes.io/region": "r" }))
    }

    #[test]
    fn claims_are_bound_when_their_volume_is() {
        let volume = json!({ "spec": {} });
        let claim = |annotations: Value, name: &str| {
            let claim = json!({
                "metadata": { "annotations": annotations },
                "spec": { "volumeName": name, "storageClassName": "fast", "accessModes": ["ReadWriteOncePod"] },
            });
            Claim::read(&claim, Some(&volume)).unwrap()
        };
        let done = json!({ "pv.kubernetes.io/bind-completed": "yes" });
        assert_eq!(claim(done.clone(), "v").state, ClaimState::Bound(BoundVolume::default()));
        assert_eq!(claim(json!({}), "v").state, ClaimState::Unbound(None));
        assert_eq!(claim(done, "").state, ClaimState::Unbound(Some("fast".to_owned())));
        assert!(claim(json!({}), "").one_pod);
    }

    #[test]
    fn zones_of_volumes() {
        let volume = |labels: Value| BoundVolume::read(&json!({ "metadata": { "labels": labels } })).unwrap();
        let zone = "topology.kubernetes.io/zone";
        let old = "failure-domain.beta.kubernetes.io/zone";
        assert_eq!(volume(json!({ zone: "a" })).other_zone(&node("a")), None);
        assert_eq!(volume(json!({ zone: "b" })).other_zone(&node("a")), Some((zone, "b")));
        assert_eq!(volume(json!({ zone: "b__a" })).other_zone(&node("a")), None);
        assert_eq!(volume(json!({ old: "b" })).other_zone(&node("a")), Some((old, "b")));
        assert_eq!(volume(json!({ zone: "b" })).other_zone(&Labels::new()), None);
    }

    #[test]
    fn classes_reach_their_topologies() {
        let class = |topologies: Value| {
            StorageClass::read(
                &json!({ "provisioner": "pd.csi.storage.gke.io", "allowedTopologies": topologies }),
            )
        };
        let term = json!({ "matchLabelExpressions": [{ "key": "topology.kubernetes.io/zone", "values": ["a", "b"] }] });
        assert!(class(json!(null)).reaches(&node("c")));
        assert!(class(json!([term])).reaches(&node("a")));
        assert!(!class(json!([term])).reaches(&node("c")));
        assert!(!class(json!([{}])).reaches(&node("a")));
        let local = StorageClass::read(
            &json!({ "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer" }),
        );
        assert!(local.waits_for_pod && !local.reaches(&node("a")));
    }
}
