//! Answers for nodes that do not exist yet.

use std::fmt;

use model::address::FieldPath;

use crate::refusal::Refusal;
use crate::resources::Resource;

/// The answer for a pod and a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fit {
    /// The node takes the pod.
    Fits,
    /// CPU, memory or disk are so close that the node has to be measured: a file does not tell. Nothing else is in the way.
    Near(Vec<Margin>),
    /// The node does not take the pod: all reasons, in the order of kube-scheduler's predicates.
    Refused(Vec<Refusal>),
}

impl Fit {
    /// Returns true if the node takes the pod, or may.
    pub fn is_possible(&self) -> bool {
        match self {
            Self::Fits | Self::Near(_) => true,
            Self::Refused(_) => false,
        }
    }
}

/// A resource of which a node has about as much as a pod asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Margin {
    pub resource: Resource,
    /// The amount that the pod asks for: thousandths of a CPU, or bytes.
    pub wanted: i64,
    /// The amount that the node has left, by the file.
    pub free: i64,
    /// The place of the request in the Pod.
    pub path: FieldPath,
}

impl fmt::Display for Margin {
    /// A clause whose subject is the pod.
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
