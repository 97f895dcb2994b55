//! Errors: values that cannot be read, and unknown nodes.

use std::fmt;

use model::address::FieldPath;

/// Error: Kubernetes would refuse a value of the pod, so nothing can be said about the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// The path of the value in the Pod or the PodTemplateSpec.
    pub path: FieldPath,
    /// The value at the path.
    pub found: String,
    /// The kind of value that is expected, with its article: `a text`.
    pub expected: &'static str,
}

impl Unreadable {
    pub(crate) fn at(path: FieldPath, found: &str, expected: &'static str) -> Self {
        Self { path, found: found.to_owned(), expected }
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, found, expected } = self;
        write!(f, "{path}: `{found}` is not {expected}")
    }
}

impl std::error::Error for Unreadable {}

/// Error: the [`crate::NodeId`] belongs to another cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownNode;

impl fmt::Display for UnknownNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the cluster has no such node")
    }
}

impl std::error::Error for UnknownNode {}
