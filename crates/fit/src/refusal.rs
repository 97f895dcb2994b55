//! Reasons why a pod does not fit on a node.

use std::fmt;

use model::address::FieldPath;

use crate::labels::{LabelSelector, Requirement};
use crate::resources::Resource;
use crate::taints::Taint;
use crate::topology::Skew;

/// One reason why a pod does not fit on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub reason: Reason,
    /// The path in the Pod of the setting that the node does not meet: `spec.nodeSelector.pool`. If something is missing, such as
    /// a toleration, the path where it would be.
    pub path: FieldPath,
}

/// Reasons, in the order of the predicates of kube-scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Scheduling gates keep the pod from being scheduled.
    Gated { gates: Vec<String> },
    /// The node is cordoned.
    Cordoned,
    /// The pod names another node.
    NodeName { wanted: String },
    /// The pod does not tolerate a taint.
    Taint { taint: Taint },
    /// The node has another value, or none, for a label of `nodeSelector`.
    Selector { key: String, wanted: String, found: Option<String> },
    /// Node affinity: for each term, the first requirement that the node does not meet; `None` for a term without requirements.
    Affinity { unmet: Vec<Option<Requirement>> },
    /// A host port is already used.
    Port { port: i64, protocol: String },
    /// The node has too little of a resource. Units as in [`crate::Request`]. `allocatable` is the amount for all pods of the
    /// node together.
    Short { resource: Resource, wanted: i64, free: i64, allocatable: i64 },
    /// The claim does not exist.
    NoClaim { claim: String },
    /// The claim is for a single pod, and another pod uses it.
    ClaimInUse { claim: String },
    /// Another pod on the node uses the disk, and one of the two writes to it.
    DiskInUse { disk: String },
    /// The claim must be bound before a pod can use it (`Immediate`), and is not bound yet.
    Unbound { claim: String },
    /// The claim names a volume, but is not bound to it yet.
    NotBoundYet { claim: String, volume: String },
    /// The claim is being deleted.
    ClaimGoing { claim: String },
    /// The claim has lost its volume permanently.
    ClaimLost { claim: String, volume: String },
    /// The claim is bound to a volume that does not exist.
    NoVolume { claim: String, volume: String },
    /// The storage class of the claim does not exist.
    NoClass { claim: String, class: String },
    /// The storage class of an ephemeral volume of the pod does not exist.
    NoClassOfVolume { volume: String, class: String },
    /// The volume of the claim is being created for another node.
    MadeElsewhere { claim: String, node: String },
    /// The volume of the claim cannot be mounted on this node: the volume's requirements that the node does not meet.
    VolumeElsewhere { claim: String, unmet: Vec<Option<Requirement>> },
    /// The storage class of the claim creates no volumes for this node's topology.
    ClassElsewhere { claim: String, class: String },
    /// The label of the claim's volume names another zone or region.
    Zone { claim: String, key: String, zones: String },
    /// The node lacks the topology label of a spread constraint.
    NoDomain { topology_key: String },
    /// The domain has too many pods already.
    Skewed { topology_key: String, domain: String, skew: Skew, max_skew: i64 },
    /// No pod that the pod has affinity to is in the node's domain. `domain` is `None` if the node lacks the topology label.
    NotNear { topology_key: String, domain: Option<String>, selector: LabelSelector },
    /// A pod that the pod has anti-affinity to is in the node's domain.
    NotApart { topology_key: String, domain: String, selector: LabelSelector },
    /// A pod in the node's domain has anti-affinity to this pod.
    KeptOut { topology_key: String, domain: String },
}

/// The predicates of kube-scheduler, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Predicate {
    SchedulingGates,
    NodeUnschedulable,
    NodeName,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    VolumeRestrictions,
    VolumeBinding,
    VolumeZone,
    PodTopologySpread,
    InterPodAffinity,
}

impl Predicate {
    /// The name of the plugin of kube-scheduler.
    pub fn plugin(self) -> &'static str {
        match self {
            Self::SchedulingGates => "SchedulingGates",
            Self::NodeUnschedulable => "NodeUnschedulable",
            Self::NodeName => "NodeName",
            Self::TaintToleration => "TaintToleration",
            Self::NodeAffinity => "NodeAffinity",
            Self::NodePorts => "NodePorts",
            Self::NodeResourcesFit => "NodeResourcesFit",
            Self::VolumeRestrictions => "VolumeRestrictions",
            Self::VolumeBinding => "VolumeBinding",
            Self::VolumeZone => "VolumeZone",
            Self::PodTopologySpread => "PodTopologySpread",
            Self::InterPodAffinity => "InterPodAffinity",
        }
    }
}

impl Refusal {
    /// Returns the first predicate that refuses for this reason.
    pub fn predicate(&self) -> Predicate {
        self.predicates().first().copied().unwrap_or(Predicate::NodeResourcesFit)
    }

    /// Returns all predicates that would refuse for this reason, in the order in which kube-scheduler runs them.
    pub fn predicates(&self) -> &'static [Predicate] {
        match &self.reason {
            Reason::Gated { .. } => &[Predicate::SchedulingGates],
            Reason::Cordoned => &[Predicate::NodeUnschedulable],
            Reason::NodeName { .. } => &[Predicate::NodeName],
            Reason::Taint { .. } => &[Predicate::TaintToleration],
            Reason::Selector { .. } | Reason::Affinity { .. } => &[Predicate::NodeAffinity],
            Reason::Port { .. } => &[Predicate::NodePorts],
            Reason::Short { .. } => &[Predicate::NodeResourcesFit],
            Reason::NoClaim { .. } => {
                &[Predicate::VolumeRestrictions, Predicate::VolumeBinding, Predicate::VolumeZone]
            }
            Reason::ClaimInUse { .. } | Reason::DiskInUse { .. } => &[Predicate::VolumeRestrictions],
            Reason::Unbound { .. }
            | Reason::NoClass { .. }
            | Reason::NoVolume { .. }
            | Reason::ClaimLost { .. } => &[Predicate::VolumeBinding, Predicate::VolumeZone],
            // VolumeZone does not look at volumes of the pod's own.
            Reason::NoClassOfVolume { .. }
            | Reason::NotBoundYet { .. }
            | Reason::ClaimGoing { .. }
            | Reason::VolumeElsewhere { .. }
            | Reason::ClassElsewhere { .. }
            | Reason::MadeElsewhere { .. } => &[Predicate::VolumeBinding],
            Reason::Zone { .. } => &[Predicate::VolumeZone],
            Reason::NoDomain { .. } | Reason::Skewed { .. } => &[Predicate::PodTopologySpread],
            Reason::NotNear { .. } | Reason::NotApart { .. } | Reason::KeptOut { .. } => {
                &[Predicate::InterPodAffinity]
            }
        }
    }

    /// Returns true if the pod names an object that the [`crate::Cluster`] does not have. For a live cluster, whose objects are
    /// all read, that is a refusal. For a stack file alone, it means that the answer is unknown.
    pub fn is_of_a_missing_object(&self) -> bool {
        matches!(
            self.reason,
            Reason::NoClaim { .. }
                | Reason::NoClass { .. }
                | Reason::NoClassOfVolume { .. }
                | Reason::NoVolume { .. }
        )
    }

    /// Returns true if the pod could be placed after other pods have left the node.
    pub fn is_preemptible(&self) -> bool {
        match &self.reason {
            Reason::Short { wanted, allocatable, .. } => wanted <= allocatable,
            Reason::Port { .. }
            | Reason::ClaimInUse { .. }
            | Reason::DiskInUse { .. }
            | Reason::Skewed { .. }
            | Reason::NotApart { .. }
            | Reason::KeptOut { .. } => true,
            _ => false,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl fmt::Display for Reason {
    /// Writes one clause whose subject is the pod: `asks for 100Gi of memory, 5.48Gi are free`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gated { gates } => write!(f, "waits for scheduling gates: {}", gates.join(", ")),
            Self::Cordoned => f.write_str("may not use a cordoned node"),
            Self::NodeName { wanted } => write!(f, "names the node {wanted}"),
            Self::Taint { taint } => write!(f, "does not tolerate the taint {taint}"),
            Self::Selector { key, wanted, found: Some(found) } => {
                write!(f, "selects nodes with {key}={wanted}, this one has {key}={found}")
            }
            Self::Selector { key, wanted, found: None } => {
                write!(f, "selects nodes with {key}={wanted}, this one has no such label")
            }
            Self::Affinity { unmet } => write!(f, "requires nodes with {}", alternatives(unmet)),
            Self::Port { port, protocol } => {
                write!(f, "takes port {port}/{protocol} of the node, which another pod has")
            }
            Self::Short { resource, wanted, free, allocatable } => {
                short(f, resource, *wanted, *free, *allocatable)
            }
            Self::NoClaim { claim } => write!(f, "uses the claim {claim}, which does not exist"),
            Self::ClaimInUse { claim } => {
                write!(f, "uses the claim {claim}, which is for one pod and has one")
            }
            Self::DiskInUse { disk } => write!(f, "uses the disk {disk}, which another pod of the node has"),
            Self::Unbound { claim } => write!(f, "uses the claim {claim}, which has no volume yet"),
            Self::NotBoundYet { claim, volume } => {
                write!(f, "uses the claim {claim}, which is not bound to its volume {volume} yet")
            }
            Self::ClaimGoing { claim } => write!(f, "uses the claim {claim}, which is being deleted"),
            Self::ClaimLost { claim, volume } => {
                write!(f, "uses the claim {claim}, which has lost its volume {volume}")
            }
            Self::NoVolume { claim, volume } => {
                write!(f, "uses the claim {claim}, whose volume {volume} does not exist")
            }
            Self::NoClass { claim, class } => {
                write!(f, "uses the claim {claim}, whose class {class} does not exist")
            }
            Self::NoClassOfVolume { volume, class } => {
                write!(f, "has the volume {volume}, whose class {class} does not exist")
            }
            Self::MadeElsewhere { claim, node } => {
                write!(f, "uses the claim {claim}, whose volume is being made for the node {node}")
            }
            Self::VolumeElsewhere { claim, unmet } => {
                write!(f, "uses the claim {claim}, whose volume is on nodes with {}", alternatives(unmet))
            }
            Self::ClassElsewhere { claim, class } => {
                write!(f, "uses the claim {claim}, whose class {class} makes no volumes for such nodes")
            }
            Self::Zone { claim, key, zones } => {
                write!(f, "uses the claim {claim}, whose volume has {key}={zones}")
            }
            Self::NoDomain { topology_key } => {
                write!(f, "spreads by the label {topology_key}, which the node does not have")
            }
            Self::Skewed { topology_key, domain, skew: Skew { pods, fewest }, max_skew } => write!(
                f,
                "spreads by {topology_key} with a difference of {max_skew} at most: {domain} has {pods}, the fewest are {fewest}"
            ),
            Self::NotNear { topology_key, domain: Some(domain), selector } => {
                write!(f, "must be near {selector}, and {topology_key}={domain} has none")
            }
            Self::NotNear { topology_key, domain: None, selector } => {
                write!(f, "must be near {selector} by the label {topology_key}, which the node does not have")
            }
            Self::NotApart { topology_key, domain, selector } => {
                write!(f, "must be apart from {selector}, and {topology_key}={domain} has some")
            }
            Self::KeptOut { topology_key, domain } => {
                write!(f, "is kept out of {topology_key}={domain} by the anti-affinity of another pod")
            }
        }
    }
}

/// Returns the text of alternative requirements, one of which would have sufficed.
fn alternatives(unmet: &[Option<Requirement>]) -> String {
    let text =
        |one: &Option<Requirement>| one.as_ref().map_or_else(|| "nothing".to_owned(), ToString::to_string);
    let all: Vec<String> = unmet.iter().map(text).collect();
    if all.is_empty() { "nothing".to_owned() } else { all.join(", or ") }
}

fn short(
    f: &mut fmt::Formatter<'_>,
    resource: &Resource,
    wanted: i64,
    free: i64,
    allocatable: i64,
) -> fmt::Result {
    if *resource == Resource::Pods {
        return write!(f, "is one pod more than the {allocatable} that the node takes");
    }
    let noun = match resource {
        Resource::Cpu => " CPUs".to_owned(),
        Resource::Memory => " of memory".to_owned(),
        Resource::EphemeralStorage => " of disk".to_owned(),
        Resource::Extended(_) | Resource::Pods => format!(" {resource}"),
    };
    let (mut asked, mut left) = (resource.text(wanted), resource.text(free));
    if asked == left {
        // Too close for the short form.
        (asked, left) = (wanted.to_string(), free.to_string());
    }
    if allocatable == 0 {
        return write!(f, "asks for {asked}{noun}, and the node has none");
    }
    write!(f, "asks for {asked}{noun}, {left} of {} are free", resource.text(allocatable))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(reason: Reason) -> String {
        Refusal { reason, path: FieldPath::root() }.to_string()
    }

    fn short(resource: Resource, wanted: i64, free: i64, allocatable: i64) -> String {
        text(Reason::Short { resource, wanted, free, allocatable })
    }

    #[test]
    fn refusals_are_clauses() {
        let gi = 1 << 30;
        assert_eq!(short(Resource::Cpu, 6000, 1566, 1930), "asks for 6 CPUs, 1.566 of 1.93 are free");
        assert_eq!(
            short(Resource::Memory, 100 * gi, 5 * gi, 6 * gi),
            "asks for 100Gi of memory, 5Gi of 6Gi are free"
        );
        assert_eq!(
            short(Resource::Memory, 5 * gi + 1, 5 * gi, 6 * gi),
            "asks for 5368709121 of memory, 5368709120 of 6Gi are free"
        );
        assert_eq!(short(Resource::Pods, 1, 0, 110), "is one pod more than the 110 that the node takes");
        let gpu = Resource::Extended("nvidia.com/gpu".to_owned());
        assert_eq!(short(gpu.clone(), 2, 1, 1), "asks for 2 nvidia.com/gpu, 1 of 1 are free");
        assert_eq!(short(gpu, 2, 0, 0), "asks for 2 nvidia.com/gpu, and the node has none");
        let taint = Taint::no_schedule("nvidia.com/gpu", "present");
        assert_eq!(
            text(Reason::Taint { taint }),
            "does not tolerate the taint nvidia.com/gpu=present:NoSchedule"
        );
        let affinity = Reason::Affinity { unmet: vec![None] };
        assert_eq!(text(affinity), "requires nodes with nothing");
    }
}
