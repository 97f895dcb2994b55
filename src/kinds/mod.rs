//! Kinds: a section of the stack file, what it becomes, how its fields may change, when it is ready.
//! A kind is one file; [`of`] is the one list. What one must know of its neighbours comes in [`scope::Scope`].
//!
//! The files here are what all share; `kubernetes` stands on them, `gke` and `dask` on both, and this list on all.

use kind::Kind;

use crate::resource::KindId;

pub mod about;
pub mod dask;
pub mod env;
pub mod gke;
pub mod json;
pub mod kind;
pub mod kubernetes;
pub mod pod;
pub mod scale;
pub mod scope;
pub mod section;
pub mod short;
pub mod status;

/// What a kind is. Kubernetes kinds without a line here are [`kubernetes::plain::PLAIN`].
pub fn of(id: KindId) -> &'static Kind {
    match id {
        KindId::Cluster => &gke::cluster::KIND,
        KindId::NodePool => &gke::node_pool::KIND,
        KindId::Namespace => &kubernetes::namespace::KIND,
        KindId::Definition => &kubernetes::plain::DEFINITION,
        KindId::Object => &kubernetes::plain::PLAIN,
        KindId::Binding => &kubernetes::plain::BINDING,
        KindId::Service => &kubernetes::plain::SERVICE,
        KindId::Deployment => &kubernetes::workload::DEPLOYMENT,
        KindId::DaemonSet => &kubernetes::workload::DAEMON_SET,
        KindId::StatefulSet => &kubernetes::runs::STATEFUL_SET,
        KindId::Pod => &kubernetes::runs::POD,
        KindId::Job => &kubernetes::runs::JOB,
        KindId::GpuDriver => &gke::gpu_driver::KIND,
        KindId::Check => &kubernetes::check::KIND,
        KindId::DaskCluster => &dask::cluster::KIND,
        KindId::DaskGroup => &dask::group::KIND,
        KindId::DaskAutoscaler => &dask::autoscaler::KIND,
        KindId::DaskJob => &dask::job::KIND,
        KindId::Notebook => &dask::notebook::KIND,
    }
}
