//! Volumes that restrict the nodes of a pod: claims, the volumes they are bound to, and storage classes. They are an input,
//! because the zone of a disk does not follow from the pod.
//!
//! Source: plugins VolumeRestrictions, VolumeBinding and VolumeZone of kube-scheduler 1.36, and the admission plugin
//! DefaultStorageClass of kube-apiserver. Not checked: existing unbound volumes (a claim that waits for its first pod is assumed
//! to get a new volume), storage capacity that drivers report, and the number of disks a node can attach (NodeVolumeLimits).

use std::collections::{BTreeMap, BTreeSet};

use model::address::FieldPath;
use serde_json::Value;

use crate::error::Unreadable;
use crate::json::{At, list, text};
use crate::labels::{Labels, NodeTerm};

/// A claim (`PersistentVolumeClaim`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub state: ClaimState,
    /// True if only one pod may use it (`ReadWriteOncePod`).
    pub one_pod: bool,
    /// True while it is being deleted: no new pod may use it.
    pub deleting: bool,
}

/// The state of a claim: its volume, or why it has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimState {
    /// The claim is bound to this volume.
    Bound(BoundVolume),
    /// The claim is bound to a volume that does not exist: its name.
    Gone(String),
    /// The volume of the claim is gone for good: its name.
    Lost(String),
    /// The claim names a volume that it is not bound to yet: the name, and the labels if the volume exists.
    Named(String, Option<Labels>),
    /// The claim has no volume yet; its storage class will create one.
    Unbound {
        class: ClassName,
        /// The node that kube-scheduler chose for a pod that waits for the volume: the volume is created for that node.
        node: Option<String>,
    },
    /// The claim does not exist yet; its storage class will create a volume before a pod needs it.
    Planned(ClassName),
}

/// The storage class that a claim names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClassName {
    /// The claim names none: kube-apiserver fills in the default class, if there is one.
    Default,
    /// The claim names `""`: it must bind to an existing volume.
    Empty,
    Named(String),
}

impl ClassName {
    /// Reads `storageClassName` of the spec of a claim.
    pub(crate) fn at(spec: &At<'_, '_>) -> Result<Self, Unreadable> {
        let class = spec.key("storageClassName");
        Ok(match class.text()? {
            _ if class.is_absent() => Self::Default,
            "" => Self::Empty,
            name => Self::Named(name.to_owned()),
        })
    }
}

/// The volume that a claim is bound to (`PersistentVolume`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BoundVolume {
    /// The terms that select the nodes that can mount the volume; `None` for all nodes.
    pub node_terms: Option<Vec<NodeTerm>>,
    /// The labels of the volume: older volumes name their zone and region there.
    pub labels: Labels,
}

/// A `StorageClass`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorageClass {
    /// True if volumes are created where the first pod is scheduled (`WaitForFirstConsumer`).
    pub waits_for_pod: bool,
    /// True if the class creates volumes.
    pub provisions: bool,
    /// The topologies in which the class creates volumes, one of which the node must match; empty for everywhere.
    pub topologies: Vec<Topology>,
}

/// A topology: labels with the values that they may have.
pub type Topology = BTreeMap<String, BTreeSet<String>>;

impl Claim {
    /// Reads a live PersistentVolumeClaim, and the PersistentVolume that it names.
    ///
    /// # Errors
    /// Kubernetes would refuse a value.
    pub fn read(claim: &Value, volume: Option<&Value>) -> Result<Self, Unreadable> {
        let root = FieldPath::root();
        let at = At::new(claim, &root);
        let annotations = &claim["metadata"]["annotations"];
        let volume = volume.map(BoundVolume::read).transpose()?;
        // Its name stands in the claim before the volume is its own.
        let complete = annotations.get("pv.kubernetes.io/bind-completed").is_some();
        let name = at.key("spec").key("volumeName").text()?.to_owned();
        let state = match (name.is_empty(), volume) {
            (_, _) if claim["status"]["phase"] == "Lost" => ClaimState::Lost(name),
            (true, _) => ClaimState::Unbound {
                class: ClassName::at(&at.key("spec"))?,
                node: annotations["volume.kubernetes.io/selected-node"].as_str().map(str::to_owned),
            },
            (false, Some(volume)) if complete => ClaimState::Bound(volume),
            (false, None) if complete => ClaimState::Gone(name),
            // A claim that names a volume gets no other, whatever its class does.
            (false, volume) => ClaimState::Named(name, volume.map(|volume| volume.labels)),
        };
        let deleting = !claim["metadata"]["deletionTimestamp"].is_null();
        Ok(Self { state, one_pod: is_for_one_pod(&at)?, deleting })
    }

    /// Reads a claim that does not exist yet, and the volume that it names, if known. The claim will be bound before a pod needs
    /// it.
    ///
    /// # Errors
    /// Kubernetes would refuse a value.
    pub fn planned(claim: &Value, volume: Option<&Value>) -> Result<Self, Unreadable> {
        let root = FieldPath::root();
        let at = At::new(claim, &root);
        let spec = at.key("spec");
        let state = match (spec.key("volumeName").text()?, volume) {
            ("", _) => ClaimState::Planned(ClassName::at(&spec)?),
            (_, Some(volume)) => ClaimState::Bound(BoundVolume::read(volume)?),
            (_, None) => ClaimState::Planned(ClassName::Empty),
        };
        Ok(Self { state, one_pod: is_for_one_pod(&at)?, deleting: false })
    }
}

fn is_for_one_pod(claim: &At<'_, '_>) -> Result<bool, Unreadable> {
    let modes = claim.key("spec").key("accessModes").texts()?;
    Ok(modes.iter().any(|mode| mode == "ReadWriteOncePod"))
}

impl BoundVolume {
    /// Reads a PersistentVolume.
    ///
    /// # Errors
    /// Kubernetes would refuse a value.
    pub fn read(volume: &Value) -> Result<Self, Unreadable> {
        let root = FieldPath::root();
        let at = At::new(volume, &root);
        let node_terms = NodeTerm::read_all(&at.key("spec").key("nodeAffinity").key("required"))?;
        Ok(Self { node_terms, labels: at.key("metadata").key("labels").labels()? })
    }

    /// Returns the zone or region label of the volume that does not match the node, with its values. Every volume matches nodes
    /// without such labels.
    pub(crate) fn other_zone<'v>(volume: &'v Labels, node: &Labels) -> Option<(&'v str, &'v str)> {
        if !ZONE_LABELS.iter().any(|(label, _)| node.contains_key(*label)) {
            return None;
        }
        let given =
            ZONE_LABELS.iter().filter_map(|(label, new)| Some((*label, *new, volume.get(*label)?.as_str())));
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

/// The labels of zone and region, old and new names, each with its new name.
const ZONE_LABELS: [(&str, &str); 4] = [
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("topology.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("topology.kubernetes.io/region", "topology.kubernetes.io/region"),
];

impl StorageClass {
    /// Reads a StorageClass.
    pub fn read(class: &Value) -> Self {
        let values =
            |one: &Value| list(&one["values"]).iter().filter_map(Value::as_str).map(str::to_owned).collect();
        let each = |one: &Value| (text(one, "key").to_owned(), values(one));
        let topology = |term: &Value| list(&term["matchLabelExpressions"]).iter().map(each).collect();
        Self {
            waits_for_pod: text(class, "volumeBindingMode") == "WaitForFirstConsumer",
            provisions: !matches!(text(class, "provisioner"), "" | "kubernetes.io/no-provisioner"),
            topologies: list(&class["allowedTopologies"]).iter().map(topology).collect(),
        }
    }

    /// Returns true if the class creates volumes for a node with these labels.
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
        crate::labels::labels(
            &json!({ "topology.kubernetes.io/zone": zone, "topology.kubernetes.io/region": "r" }),
        )
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
        let class = || ClassName::Named("fast".to_owned());
        assert_eq!(claim(done.clone(), "v").state, ClaimState::Bound(BoundVolume::default()));
        assert_eq!(claim(json!({}), "v").state, ClaimState::Named("v".to_owned(), Some(Labels::new())));
        assert_eq!(claim(done, "").state, ClaimState::Unbound { class: class(), node: None });
        let chosen = claim(json!({ "volume.kubernetes.io/selected-node": "n" }), "");
        assert_eq!(chosen.state, ClaimState::Unbound { class: class(), node: Some("n".to_owned()) });
        assert!(chosen.one_pod);
    }

    #[test]
    fn claims_that_are_lost_deleted_or_without_a_class() {
        let read = |claim: Value| Claim::read(&claim, None).unwrap();
        let class = |claim: Value| match read(claim).state {
            ClaimState::Unbound { class, .. } => class,
            other => panic!("{other:?}"),
        };
        assert_eq!(class(json!({ "spec": {} })), ClassName::Default);
        assert_eq!(class(json!({ "spec": { "storageClassName": "" } })), ClassName::Empty);
        let lost = json!({ "spec": { "volumeName": "v" }, "status": { "phase": "Lost" } });
        assert_eq!(read(lost).state, ClaimState::Lost("v".to_owned()));
        let bound = json!({
            "metadata": {
                "annotations": { "pv.kubernetes.io/bind-completed": "yes" }, "deletionTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": { "volumeName": "v" },
        });
        let going = read(bound);
        assert_eq!((going.state, going.deleting), (ClaimState::Gone("v".to_owned()), true));
    }

    #[test]
    fn planned_claims_are_bound_before_they_are_needed() {
        let volume = json!({ "metadata": { "labels": { "zone": "a" } } });
        let planned = |spec: Value, volume| Claim::planned(&json!({ "spec": spec }), volume).unwrap().state;
        assert_eq!(planned(json!({}), None), ClaimState::Planned(ClassName::Default));
        assert_eq!(planned(json!({ "volumeName": "v" }), None), ClaimState::Planned(ClassName::Empty));
        let ClaimState::Bound(bound) = planned(json!({ "volumeName": "v" }), Some(&volume)) else {
            panic!("unbound")
        };
        assert_eq!(bound.labels["zone"], "a");
    }

    #[test]
    fn zones_of_volumes() {
        let other_zone = |labels: Value, node: &Labels| {
            let volume = BoundVolume::read(&json!({ "metadata": { "labels": labels } })).unwrap();
            BoundVolume::other_zone(&volume.labels, node).map(|(key, zone)| (key.to_owned(), zone.to_owned()))
        };
        let told = |key: &str| Some((key.to_owned(), "b".to_owned()));
        let zone = "topology.kubernetes.io/zone";
        let old = "failure-domain.beta.kubernetes.io/zone";
        assert_eq!(other_zone(json!({ zone: "a" }), &node("a")), None);
        assert_eq!(other_zone(json!({ zone: "b" }), &node("a")), told(zone));
        assert_eq!(other_zone(json!({ zone: "b__a" }), &node("a")), None);
        assert_eq!(other_zone(json!({ old: "b" }), &node("a")), told(old));
        assert_eq!(other_zone(json!({ zone: "b" }), &Labels::new()), None);
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
