//! Answers for nodes that do not exist yet.

use std::fmt;

use model::address::FieldPath;

use crate::refusal::Refusal;
use crate::resources::Resource;

/// The answer for one pod and one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fit {
    /// The pod fits on the node.
    Fits,
    /// CPU, memory or disk are so close that only a live node can tell. Everything else fits.
    Near(Vec<Margin>),
    /// The pod does not fit on the node: all reasons, in the order of kube-scheduler's predicates.
    Refused(Vec<Refusal>),
}

impl Fit {
    /// Returns true if the pod fits on the node, or may fit.
    pub fn is_possible(&self) -> bool {
        match self {
            Self::Fits | Self::Near(_) => true,
            Self::Refused(_) => false,
        }
    }
}

/// A resource of which a node has about as much as a pod requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Margin {
    pub resource: Resource,
    /// The amount that the pod requests: thousandths of a CPU, or bytes.
    pub wanted: i64,
    /// The computed amount that the node has left, in the same unit.
    pub free: i64,
    /// The path of the request in the Pod.
    pub path: FieldPath,
}

impl fmt::Display for Margin {
    /// Writes a clause whose subject is the pod.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, wanted, free, .. } = self;
        write!(
            f,
            "asks for {} {resource} where about {} are free: only a node that is there tells",
            resource.text(*wanted),
            resource.text(*free)
        )
    }
}
