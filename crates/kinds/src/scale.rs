//! Resources that can be scaled: the path of the replica count in the body and in the stack file, and its owner.

use model::address::FieldPath;

/// How a resource is scaled.
#[derive(Clone, Debug, PartialEq)]
pub struct ScaleTarget {
    /// The path of the replica count in its body.
    pub path: FieldPath,
    /// The path of the replica count in the stack file or in a file that the stack file names.
    pub origin: FieldPath,
    /// The unit of the replica count: `workers`, `nodes`, `pods`.
    pub unit: &'static str,
    /// The owner of the replica count, and its value.
    pub replica_owner: ReplicaOwner,
}

/// Owners of a replica count, with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicaOwner {
    /// The stack file, with this count.
    File(u64),
    /// Notebooks; the stack file sets only this initial count.
    Notebooks(u64),
    /// No owner: nothing sets the count.
    Unmanaged,
    /// An autoscaler with bounds.
    Autoscaler {
        /// The minimum.
        min: u64,
        /// The maximum.
        max: u64,
        /// The name of the autoscaler: "GKE's autoscaler", "DaskAutoscaler default/rapids".
        whose: String,
        /// The path of the bounds in the stack file.
        origin: FieldPath,
    },
}
