//! Proof of fit: whether a pod can run on a node, by the rules of kube-scheduler, before either exists.
//!
//! A caller turns node pools into template nodes, and pods (or the pod templates of sections, manifests and charts) into
//! requirements. The answer is "this pod fits on a new node of this pool", never "GKE will choose this pool":
//!
//! ```ignore
//! let mut cluster = Cluster::default();
//! for (pool, zone) in pools {
//!     cluster.add(gke::template(pool, zone, features)?);
//! }
//! let pod = PodRequirements::read(&template, "default")?.with_extended_resource_tolerations();
//! let question = cluster.ask(&pod);
//! for (id, node) in cluster.nodes() {
//!     match question.verdict(node) {
//!         Fit::Fits => taken_by.push(id),
//!         Fit::Near(margins) => notes.extend(margins),
//!         // `refusal.path` is a path in the pod: the provenance of its object has the line of the stack file.
//!         Fit::Refused(refusals) => why.extend(refusals),
//!     }
//! }
//! ```
//!
//! For many pods, [`groups`] finds equal ones, and [`Question::takes`] answers without building messages. For totals ("2 of 10
//! workers fit"), call [`Cluster::bind`] for each pod and its node, and ask again. A scheduler of live nodes uses [`Node::read`]
//! and [`Question::refusals`]; the autoscaler's simulation is the same with a template added to the live nodes.
//!
//! Checked, in this order: scheduling gates, cordons, node names, taints, node selector and affinity, host ports, resources,
//! restrictions and topology of volumes, topology spread, pod affinity and anti-affinity. Not checked: preemption and priority,
//! the number of disks that a node can attach, inline volumes other than Compute Engine's disks, dynamic resource allocation,
//! gang scheduling, and everything that only prefers a node. `tests/judge.rs` compares with kube-scheduler's own code.

mod admission;
mod cluster;
mod error;
pub mod gke;
mod json;
mod labels;
mod node;
mod pod;
mod question;
mod refusal;
mod requests;
mod resources;
mod taints;
mod topology;
mod verdict;
mod volumes;
mod words;

pub use admission::{Admission, LimitRange, RuntimeClass};
pub use cluster::{Cluster, NodeId, groups};
pub use error::{UnknownNode, Unreadable};
pub use labels::{LabelSelector, Labels, NodeTerm, Operator, Requirement};
pub use model::quantity::Quantity;
pub use node::{Bound, Node};
pub use pod::{HostPort, PodRequirements, PodTerm, Spread, Volume};
pub use question::Question;
pub use refusal::{Predicate, Reason, Refusal};
pub use requests::Request;
pub use resources::{Amounts, Resource};
pub use taints::{Effect, Taint, Toleration};
pub use topology::Skew;
pub use verdict::{Fit, Margin};
pub use volumes::{BoundVolume, Claim, ClaimState, ClassName, StorageClass, Topology};

/// Returns all reasons why a pod does not fit on a node, in the order of kube-scheduler's predicates; none if it fits. For one
/// pod and many nodes, use [`Cluster::ask`], which counts the pods of all nodes only once.
///
/// # Errors
/// The cluster has no such node.
pub fn fits(pod: &PodRequirements, node: NodeId, cluster: &Cluster) -> Result<Vec<Refusal>, UnknownNode> {
    cluster.node(node).map(|node| cluster.ask(pod).refusals(node)).ok_or(UnknownNode)
}
