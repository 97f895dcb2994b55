//! The requirements of a pod on its node, read from a Pod or a PodTemplateSpec.

use std::collections::BTreeSet;

use model::address::FieldPath;
use serde_json::Value;

use crate::error::Unreadable;
use crate::json::{list, text, texts};
use crate::labels::{LabelSelector, Labels, NodeTerm, Operator, labels};
use crate::requests::{Request, is_sidecar, requests};
use crate::resources::{Amounts, Resource};
use crate::taints::{Effect, Toleration};

/// The requirements of a pod on its node, as kube-scheduler sees them after the defaults of kube-apiserver. Two pods with equal
/// requirements fit on the same nodes, so that one of a group answers for all.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodRequirements {
    /// The namespace of the pod: pod affinity and topology spread count within it.
    pub namespace: String,
    pub labels: Labels,
    /// In the order of [`Resource`]. Every pod also takes one place.
    pub requests: Vec<Request>,
    /// Resources with a domain that its containers name, also with 0 of them: `nvidia.com/gpu`.
    pub extended: BTreeSet<String>,
    pub ports: Vec<HostPort>,
    /// The node that the pod names itself.
    pub node_name: Option<String>,
    pub node_selector: Labels,
    /// The terms of required node affinity, one of which must select the node. `None` without node affinity.
    pub node_terms: Option<Vec<NodeTerm>>,
    pub tolerations: Vec<Toleration>,
    /// Topology spread constraints that refuse nodes (`DoNotSchedule`).
    pub spread: Vec<Spread>,
    /// Required pod affinity.
    pub near: Vec<PodTerm>,
    /// Required pod anti-affinity.
    pub apart: Vec<PodTerm>,
    pub volumes: Vec<Volume>,
    /// The names of the gates that must be lifted before the pod is scheduled at all.
    pub gates: Vec<String>,
}

/// A port of the node that the pod takes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    /// The address it is bound to; `0.0.0.0` for all.
    pub ip: String,
    pub protocol: String,
    pub port: i64,
    /// `spec.containers[0].ports[0].hostPort`.
    pub path: FieldPath,
}

impl HostPort {
    /// Returns true if both cannot be on one node. Source: `HostPortInfo.CheckConflict` of k8s.io/kube-scheduler v0.36.1.
    pub fn conflicts(&self, other: &Self) -> bool {
        let all = "0.0.0.0";
        self.port == other.port
            && self.protocol == other.protocol
            && (self.ip == all || other.ip == all || self.ip == other.ip)
    }
}

/// A topology spread constraint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spread {
    /// Pods that a domain may have more than the one with the fewest.
    pub max_skew: i64,
    /// The label of nodes whose values are the domains.
    pub topology_key: String,
    /// The pods that are counted, `matchLabelKeys` merged in.
    pub selector: LabelSelector,
    /// With fewer domains than this, the fewest counts as none.
    pub min_domains: i64,
    /// True if only nodes count that the pod's node selector and affinity allow (`nodeAffinityPolicy: Honor`).
    pub honors_affinity: bool,
    /// True if only nodes count whose taints the pod tolerates (`nodeTaintsPolicy: Honor`).
    pub honors_taints: bool,
    /// `spec.topologySpreadConstraints[0]`.
    pub path: FieldPath,
}

/// A term of pod affinity or anti-affinity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodTerm {
    /// The pods that it is about, `matchLabelKeys` and `mismatchLabelKeys` merged in.
    pub selector: LabelSelector,
    /// Namespaces of these pods, by name.
    pub namespaces: BTreeSet<String>,
    /// Namespaces of these pods, by label.
    pub namespace_selector: LabelSelector,
    /// The label of nodes whose values are the domains.
    pub topology_key: String,
    /// `spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]`.
    pub path: FieldPath,
}

/// A volume that decides on nodes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Volume {
    /// A PersistentVolumeClaim of the pod's namespace, by name. The place is that of `claimName`.
    Claim { name: String, path: FieldPath },
    /// A claim that is made with the pod; `class` is its StorageClass, the default one when `None`.
    Ephemeral { class: Option<String>, path: FieldPath },
    /// A Compute Engine disk, by name.
    Disk { name: String, read_only: bool, path: FieldPath },
}

impl PodRequirements {
    /// Reads a Pod or a PodTemplateSpec. `namespace` counts where its metadata names none. Paths begin at its root:
    /// `spec.containers[0]…`.
    ///
    /// # Errors
    /// A quantity, an operator or an effect is none that Kubernetes takes.
    pub fn read(pod: &Value, namespace: &str) -> Result<Self, Unreadable> {
        let (spec, path) = (&pod["spec"], FieldPath::keys(["spec"]));
        let own = labels(&pod["metadata"]["labels"]);
        let namespace = match text(&pod["metadata"], "namespace") {
            "" => namespace,
            own => own,
        };
        let affinity = path.key("affinity");
        let terms = |kind: &str| {
            let (list, path) = required(&spec["affinity"], &affinity, kind);
            let each = |(at, term)| PodTerm::read(term, path.index(at), namespace, &own);
            list.iter().enumerate().map(each).collect::<Result<Vec<_>, _>>()
        };
        Ok(Self {
            requests: requests(spec, &path)?,
            extended: extended(spec),
            ports: host_ports(spec, &path),
            node_name: Some(text(spec, "nodeName")).filter(|name| !name.is_empty()).map(str::to_owned),
            node_selector: labels(&spec["nodeSelector"]),
            node_terms: node_terms(spec, &affinity)?,
            tolerations: Toleration::read_all(&spec["tolerations"], &path.key("tolerations"))?,
            spread: Spread::read_all(spec, &path, &own)?,
            near: terms("podAffinity")?,
            apart: terms("podAntiAffinity")?,
            volumes: volumes(spec, &path),
            gates: list(&spec["schedulingGates"]).iter().map(|gate| text(gate, "name").to_owned()).collect(),
            namespace: namespace.to_owned(),
            labels: own,
        })
    }

    /// Adds the tolerations that GKE's admission adds: for each extended resource that the containers name, of the taint with the
    /// resource's name (`nvidia.com/gpu`). Source: kube-apiserver's admission plugin `ExtendedResourceToleration`, which GKE
    /// runs (GKE's page "About GPUs in GKE").
    #[must_use]
    pub fn with_extended_resource_tolerations(mut self) -> Self {
        self.tolerations
            .extend(self.extended.iter().map(|name| Toleration::exists(name, Effect::NoSchedule)));
        self
    }

    /// The request for a resource; `None` when it asks for none.
    pub fn request(&self, resource: &Resource) -> Option<&Request> {
        self.requests.iter().find(|request| request.resource == *resource)
    }

    /// Adds the pod to what is taken of a node.
    pub(crate) fn take(&self, of: &mut Amounts) {
        of.pods += 1;
        for Request { resource, amount, .. } in &self.requests {
            of.add(resource, *amount);
        }
    }
}

impl Spread {
    fn read_all(spec: &Value, path: &FieldPath, own: &Labels) -> Result<Vec<Self>, Unreadable> {
        let path = path.key("topologySpreadConstraints");
        let each = |(at, constraint): (usize, &Value)| {
            let path = path.index(at);
            // The other value, `ScheduleAnyway`, only prefers nodes.
            if text(constraint, "whenUnsatisfiable") != "DoNotSchedule" {
                return Ok(None);
            }
            let mut selector = LabelSelector::read(&constraint["labelSelector"], &path.key("labelSelector"))?;
            selector.merge(&texts(&constraint["matchLabelKeys"]), Operator::In, own);
            Ok(Some(Self {
                max_skew: constraint["maxSkew"].as_i64().unwrap_or(1),
                topology_key: text(constraint, "topologyKey").to_owned(),
                selector,
                min_domains: constraint["minDomains"].as_i64().unwrap_or(1),
                honors_affinity: text(constraint, "nodeAffinityPolicy") != "Ignore",
                honors_taints: text(constraint, "nodeTaintsPolicy") == "Honor",
                path,
            }))
        };
        list(&spec["topologySpreadConstraints"])
            .iter()
            .enumerate()
            .map(each)
            .filter_map(Result::transpose)
            .collect()
    }
}

impl PodTerm {
    fn read(term: &Value, path: FieldPath, namespace: &str, own: &Labels) -> Result<Self, Unreadable> {
        let mut selector = LabelSelector::read(&term["labelSelector"], &path.key("labelSelector"))?;
        selector.merge(&texts(&term["matchLabelKeys"]), Operator::In, own);
        selector.merge(&texts(&term["mismatchLabelKeys"]), Operator::NotIn, own);
        let mut namespaces: BTreeSet<String> = texts(&term["namespaces"]).into_iter().collect();
        // Those of the pod itself, where the term says nothing.
        if namespaces.is_empty() && !term["namespaceSelector"].is_object() {
            namespaces.insert(namespace.to_owned());
        }
        Ok(Self {
            selector,
            namespaces,
            namespace_selector: LabelSelector::read(
                &term["namespaceSelector"],
                &path.key("namespaceSelector"),
            )?,
            topology_key: text(term, "topologyKey").to_owned(),
            path,
        })
    }
}

/// Extended resources that containers name. Source: `IsExtendedResourceName` in pkg/apis/core/helper of Kubernetes 1.36.
fn extended(spec: &Value) -> BTreeSet<String> {
    let containers = ["containers", "initContainers"].into_iter().flat_map(|kind| list(&spec[kind]));
    let resources =
        containers.flat_map(|container| ["limits", "requests"].map(|of| &container["resources"][of]));
    let names = resources.flat_map(|given| given.as_object().into_iter().flatten()).map(|(name, _)| name);
    let is_extended = |name: &&String| {
        name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests.")
    };
    names.filter(is_extended).cloned().collect()
}

/// The required terms of an affinity, and their place.
fn required<'v>(affinity: &'v Value, path: &FieldPath, kind: &str) -> (&'v [Value], FieldPath) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    (list(&affinity[kind][REQUIRED]), path.key(kind).key(REQUIRED))
}

fn node_terms(spec: &Value, affinity: &FieldPath) -> Result<Option<Vec<NodeTerm>>, Unreadable> {
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let found = &spec["affinity"]["nodeAffinity"][required];
    if !found.is_object() {
        return Ok(None);
    }
    let path = affinity.key("nodeAffinity").key(required).key("nodeSelectorTerms");
    let each = |(at, term)| NodeTerm::read(term, &path.index(at));
    list(&found["nodeSelectorTerms"]).iter().enumerate().map(each).collect::<Result<_, _>>().map(Some)
}

/// Ports of the node. On the network of the node, every port of a container is one.
fn host_ports(spec: &Value, path: &FieldPath) -> Vec<HostPort> {
    let on_host = spec["hostNetwork"] == true;
    let or = |text: &str, default: &str| if text.is_empty() { default.to_owned() } else { text.to_owned() };
    let mut all = Vec::new();
    for (kind, counts) in [("initContainers", is_sidecar as fn(&Value) -> bool), ("containers", |_| true)] {
        for (at, container) in list(&spec[kind]).iter().enumerate().filter(|(_, container)| counts(container))
        {
            for (index, port) in list(&container["ports"]).iter().enumerate() {
                let number = |key: &'static str| {
                    port[key].as_i64().filter(|number| *number > 0).map(|number| (key, number))
                };
                let taken = number("hostPort").or_else(|| number("containerPort").filter(|_| on_host));
                let Some((key, port_number)) = taken else { continue };
                all.push(HostPort {
                    ip: or(text(port, "hostIP"), "0.0.0.0"),
                    protocol: or(text(port, "protocol"), "TCP"),
                    port: port_number,
                    path: path.key(kind).index(at).key("ports").index(index).key(key),
                });
            }
        }
    }
    all
}

fn volumes(spec: &Value, path: &FieldPath) -> Vec<Volume> {
    let path = path.key("volumes");
    let each = |(at, volume): (usize, &Value)| {
        let path = path.index(at);
        if let Some(claim) = volume.get("persistentVolumeClaim") {
            let path = path.key("persistentVolumeClaim").key("claimName");
            return Some(Volume::Claim { name: text(claim, "claimName").to_owned(), path });
        }
        if let Some(template) = volume.pointer("/ephemeral/volumeClaimTemplate/spec") {
            let class = template["storageClassName"].as_str().map(str::to_owned);
            return Some(Volume::Ephemeral { class, path: path.key("ephemeral") });
        }
        let disk = volume.get("gcePersistentDisk")?;
        let read_only = disk["readOnly"] == true;
        Some(Volume::Disk {
            name: text(disk, "pdName").to_owned(),
            read_only,
            path: path.key("gcePersistentDisk"),
        })
    };
    list(&spec["volumes"]).iter().enumerate().filter_map(each).collect()
}

#[cfg(test)]
#[path = "pod_tests.rs"]
mod tests;
