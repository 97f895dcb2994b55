//! The requirements of a pod on its node, read from a Pod or a PodTemplateSpec.

use std::collections::BTreeSet;

use model::address::FieldPath;
use serde_json::Value;

use crate::error::Unreadable;
use crate::json::{At, list};
use crate::labels::{LabelSelector, Labels, NodeTerm, Operator, Requirement};
use crate::requests::{Filled, Request, is_sidecar, requests};
use crate::resources::{Amounts, Resource};
use crate::taints::{Effect, Toleration};
use crate::volumes::ClassName;

/// The key of required affinity terms.
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// The requirements of a pod on its node, as kube-scheduler sees them after the defaults of kube-apiserver. Two pods with equal
/// requirements fit on the same nodes, so the answer for one pod of a group holds for the whole group.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodRequirements {
    /// The namespace of the pod: pod affinity and topology spread count the pods in it.
    pub namespace: String,
    pub labels: Labels,
    /// The requests, in the order of [`Resource`]. Every pod also counts 1 for [`Resource::Pods`].
    pub requests: Vec<Request>,
    /// Extended resources (with a domain, such as `nvidia.com/gpu`) that the containers name, also if they request 0.
    pub extended: BTreeSet<String>,
    pub ports: Vec<HostPort>,
    /// The node that the pod names in `spec.nodeName`.
    pub node_name: Option<String>,
    pub node_selector: Labels,
    /// The terms of required node affinity, one of which must select the node. `None` without node affinity.
    pub node_terms: Option<Vec<NodeTerm>>,
    pub tolerations: Vec<Toleration>,
    /// Required topology spread constraints (`DoNotSchedule`).
    pub spread: Vec<Spread>,
    /// Required pod affinity.
    pub near: Vec<PodTerm>,
    /// Required pod anti-affinity.
    pub apart: Vec<PodTerm>,
    pub volumes: Vec<Volume>,
    /// The names of the scheduling gates that must be removed before the pod is scheduled.
    pub gates: Vec<String>,
}

/// A port of the node that the pod uses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    /// The address that the port is bound to; `0.0.0.0` for all addresses.
    pub ip: String,
    pub protocol: String,
    pub port: i64,
    /// `spec.containers[0].ports[0].hostPort`.
    pub path: FieldPath,
}

impl HostPort {
    /// Returns true if two pods with these ports cannot be on one node. Source: `HostPortInfo.CheckConflict` of
    /// k8s.io/kube-scheduler v0.36.1.
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
    /// The number of pods that a domain may have beyond the domain with the fewest pods (`maxSkew`).
    pub max_skew: i64,
    /// The node label whose values are the domains.
    pub topology_key: String,
    /// Selects the pods that are counted; includes `matchLabelKeys`.
    pub selector: LabelSelector,
    /// With fewer domains than this, the minimum number of pods counts as 0 (`minDomains`).
    pub min_domains: i64,
    /// True if only those nodes count that the pod's node selector and affinity allow (`nodeAffinityPolicy: Honor`).
    pub honors_affinity: bool,
    /// True if only those nodes count whose taints the pod tolerates (`nodeTaintsPolicy: Honor`).
    pub honors_taints: bool,
    /// `spec.topologySpreadConstraints[0]`.
    pub path: FieldPath,
}

/// A term of pod affinity or anti-affinity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodTerm {
    /// Selects the pods that the term is about; includes `matchLabelKeys` and `mismatchLabelKeys`.
    pub selector: LabelSelector,
    /// Namespaces of these pods, by name.
    pub namespaces: BTreeSet<String>,
    /// Namespaces of these pods, by label.
    pub namespace_selector: LabelSelector,
    /// The node label whose values are the domains.
    pub topology_key: String,
    /// `spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]`.
    pub path: FieldPath,
}

/// A volume that restricts the nodes a pod can run on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Volume {
    /// A PersistentVolumeClaim in the pod's namespace, by name. `path` is the path of `claimName`.
    Claim { name: String, path: FieldPath },
    /// A claim that Kubernetes creates with the pod for the volume of this name.
    Ephemeral { volume: String, class: ClassName, path: FieldPath },
    /// A Compute Engine disk, by name.
    Disk { name: String, read_only: bool, path: FieldPath },
}

impl PodRequirements {
    /// Reads a Pod or a PodTemplateSpec. `namespace` counts where its metadata names none. Paths begin at its root:
    /// `spec.containers[0]…`.
    ///
    /// It is read as it stands: [`crate::Admission`] adds what kube-apiserver adds to a pod that is not stored yet.
    ///
    /// # Errors
    /// A value is none that Kubernetes takes: a quantity, an operator, an effect, or a value of another type.
    pub fn read(pod: &Value, namespace: &str) -> Result<Self, Unreadable> {
        let root = FieldPath::root();
        let root = At::new(pod, &root);
        let (metadata, spec) = (root.key("metadata"), root.key("spec"));
        let own = metadata.key("labels").labels()?;
        let namespace = match metadata.key("namespace").text()? {
            "" => namespace,
            own => own,
        };
        let affinity = spec.key("affinity");
        let terms = |kind: &str| {
            let kind = affinity.key(kind);
            let terms = kind.key(REQUIRED);
            terms.items()?.map(|term| PodTerm::read(&term, namespace, &own)).collect::<Result<Vec<_>, _>>()
        };
        let gate = |gate: At<'_, '_>| gate.key("name").text().map(str::to_owned);
        Ok(Self {
            requests: requests(&root, &Filled::default())?,
            extended: extended(spec.value()),
            ports: host_ports(&spec)?,
            node_name: Some(spec.key("nodeName").text()?).filter(|name| !name.is_empty()).map(str::to_owned),
            node_selector: spec.key("nodeSelector").labels()?,
            node_terms: NodeTerm::read_all(&affinity.key("nodeAffinity").key(REQUIRED))?,
            tolerations: Toleration::at(&spec.key("tolerations"))?,
            spread: Spread::read_all(&spec, &own)?,
            near: terms("podAffinity")?,
            apart: terms("podAntiAffinity")?,
            volumes: volumes(&spec)?,
            gates: spec.key("schedulingGates").items()?.map(gate).collect::<Result<_, _>>()?,
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

    /// Adds all tolerations that GKE adds to pods: those of extended resources, and that of Arm nodes for pods that select them.
    /// Source: GKE's page "Prepare an Arm workload for deployment".
    #[must_use]
    pub fn with_gke_tolerations(mut self) -> Self {
        const ARM: &str = "arm64";
        let key = "kubernetes.io/arch";
        let by_term = |term: &NodeTerm| {
            let names = |one: &Requirement| one.key == key && one.values.iter().any(|value| value == ARM);
            term.expressions.iter().any(|one| one.operator == Operator::In && names(one))
        };
        let selects = self.node_selector.get(key).is_some_and(|arch| arch == ARM)
            || self.node_terms.iter().flatten().any(by_term);
        if selects {
            self.tolerations.push(Toleration::equal(key, ARM, Effect::NoSchedule));
        }
        self.with_extended_resource_tolerations()
    }

    /// Returns the request for a resource; `None` if the pod does not request it.
    pub fn request(&self, resource: &Resource) -> Option<&Request> {
        self.requests.iter().find(|request| request.resource == *resource)
    }

    /// Adds the pod's requests to the used amounts of a node.
    pub(crate) fn take(&self, of: &mut Amounts) {
        of.pods += 1;
        for Request { resource, amount, .. } in &self.requests {
            of.add(resource, *amount);
        }
    }
}

impl Spread {
    fn read_all(spec: &At<'_, '_>, own: &Labels) -> Result<Vec<Self>, Unreadable> {
        let constraints = spec.key("topologySpreadConstraints");
        let each = |at: At<'_, '_>| Self::read(&at, own).transpose();
        constraints.items()?.filter_map(each).collect()
    }

    /// Reads a constraint. Returns `None` for a constraint that only prefers nodes (`ScheduleAnyway`).
    fn read(at: &At<'_, '_>, own: &Labels) -> Result<Option<Self>, Unreadable> {
        if at.key("whenUnsatisfiable").text()? != "DoNotSchedule" {
            return Ok(None);
        }
        let mut selector = LabelSelector::at(&at.key("labelSelector"))?;
        selector.merge(&at.key("matchLabelKeys").texts()?, Operator::In, own);
        Ok(Some(Self {
            max_skew: at.key("maxSkew").integer()?.unwrap_or(1),
            topology_key: at.key("topologyKey").text()?.to_owned(),
            selector,
            min_domains: at.key("minDomains").integer()?.unwrap_or(1),
            honors_affinity: at.key("nodeAffinityPolicy").text()? != "Ignore",
            honors_taints: at.key("nodeTaintsPolicy").text()? == "Honor",
            path: at.path(),
        }))
    }
}

impl PodTerm {
    fn read(at: &At<'_, '_>, namespace: &str, own: &Labels) -> Result<Self, Unreadable> {
        let mut selector = LabelSelector::at(&at.key("labelSelector"))?;
        selector.merge(&at.key("matchLabelKeys").texts()?, Operator::In, own);
        selector.merge(&at.key("mismatchLabelKeys").texts()?, Operator::NotIn, own);
        let mut namespaces: BTreeSet<String> = at.key("namespaces").texts()?.into_iter().collect();
        let by_label = at.key("namespaceSelector");
        // A term without namespaces or namespace selector means the namespace of the pod.
        if namespaces.is_empty() && !by_label.is_object()? {
            namespaces.insert(namespace.to_owned());
        }
        Ok(Self {
            selector,
            namespaces,
            namespace_selector: LabelSelector::at(&by_label)?,
            topology_key: at.key("topologyKey").text()?.to_owned(),
            path: at.path(),
        })
    }
}

/// Returns the extended resources that containers name. Source: `IsExtendedResourceName` in pkg/apis/core/helper of Kubernetes
/// 1.36.
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

/// Returns the host ports. With `hostNetwork`, every container port is a host port.
fn host_ports(spec: &At<'_, '_>) -> Result<Vec<HostPort>, Unreadable> {
    let on_host = spec.key("hostNetwork").flag()?;
    let mut all = Vec::new();
    for container in spec.key("initContainers").items()?.filter(|container| is_sidecar(container.value())) {
        of_container(&container, on_host, &mut all)?;
    }
    for container in spec.key("containers").items()? {
        of_container(&container, on_host, &mut all)?;
    }
    Ok(all)
}

fn of_container(container: &At<'_, '_>, on_host: bool, to: &mut Vec<HostPort>) -> Result<(), Unreadable> {
    let or = |text: &str, default: &str| if text.is_empty() { default.to_owned() } else { text.to_owned() };
    for at in container.key("ports").items()? {
        let (of_node, of_container) = (at.key("hostPort"), at.key("containerPort"));
        let own = of_node.integer()?.filter(|number| *number > 0).map(|number| (number, of_node.path()));
        let on_host =
            || Ok(of_container.integer()?.filter(|_| on_host).map(|number| (number, of_container.path())));
        let Some((port, path)) = own.map_or_else(on_host, |own| Ok(Some(own)))? else { continue };
        to.push(HostPort {
            ip: or(at.key("hostIP").text()?, "0.0.0.0"),
            protocol: or(at.key("protocol").text()?, "TCP"),
            port,
            path,
        });
    }
    Ok(())
}

fn volumes(spec: &At<'_, '_>) -> Result<Vec<Volume>, Unreadable> {
    spec.key("volumes").items()?.filter_map(|volume| Volume::read(&volume).transpose()).collect()
}

impl Volume {
    /// Reads a volume of a pod. Returns `None` for a volume that does not restrict the nodes.
    fn read(at: &At<'_, '_>) -> Result<Option<Self>, Unreadable> {
        let (claim, ephemeral, disk) =
            (at.key("persistentVolumeClaim"), at.key("ephemeral"), at.key("gcePersistentDisk"));
        if claim.is_object()? {
            let name = claim.key("claimName");
            return Ok(Some(Self::Claim { name: name.text()?.to_owned(), path: name.path() }));
        }
        if ephemeral.is_object()? {
            let class = ClassName::at(&ephemeral.key("volumeClaimTemplate").key("spec"))?;
            let volume = at.key("name").text()?.to_owned();
            return Ok(Some(Self::Ephemeral { volume, class, path: ephemeral.path() }));
        }
        if disk.is_object()? {
            let name = disk.key("pdName").text()?.to_owned();
            let read_only = disk.key("readOnly").flag()?;
            return Ok(Some(Self::Disk { name, read_only, path: disk.path() }));
        }
        Ok(None)
    }
}

#[cfg(test)]
#[path = "pod_tests.rs"]
mod tests;
