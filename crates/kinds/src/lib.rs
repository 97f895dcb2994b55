//! Kinds: a section of the stack file, what it becomes, how its fields may change, when it is ready.
//!
//! A kind is one file, and a folder of the same name if it is long. The file has the section, its lowering, the rules of
//! comparison, the steps of each change, readiness, the line in `status`, the pods, the endpoint of `connect`, and the number
//! that `scale` sets. [`of`] is the one list of kinds, and `KindId` in `model` has their names. A kind learns about its neighbors
//! through [`scope::Scope`] alone.
//!
//! Layers: the files here, which all kinds share, then `kubernetes`, then `gke` and `dask`, then `hosts` (processes instead of
//! Pods). Each layer uses only the ones before it; [`of`] uses all. `tests/it/pure/tidy.rs` checks it.

use kind::Kind;

use model::resource::KindId;

pub mod code;
pub mod comparison;
pub mod cost;
pub mod dask;
pub mod dask_config;
pub mod descriptions;
pub mod driver_path;
pub mod env;
pub mod gke;
pub mod hosts;
pub mod image_pull;
pub mod json;
pub mod kind;
pub mod kubernetes;
pub mod node_selection;
pub mod pod;
pub mod pod_defaults;
pub mod scale;
pub mod scope;
pub mod section;
pub mod security_defaults;
pub mod short_forms;
pub mod slurm;
pub mod status;
pub mod worker_resources;

/// Returns the kind of an id.
pub fn of(id: KindId) -> &'static Kind {
    match id {
        KindId::Cluster => &gke::cluster::KIND,
        KindId::NodePool => &gke::node_pool::KIND,
        KindId::Namespace => &kubernetes::namespace::KIND,
        KindId::Crd => &kubernetes::conditioned_object::CRD,
        KindId::Object => &kubernetes::conditioned_object::GENERIC,
        KindId::Queue => &kubernetes::kueue::queue::KIND,
        KindId::Binding => &kubernetes::conditioned_object::BINDING,
        KindId::Service => &kubernetes::conditioned_object::SERVICE,
        KindId::Deployment => &kubernetes::workload::DEPLOYMENT,
        KindId::DaemonSet => &kubernetes::workload::DAEMON_SET,
        KindId::StatefulSet => &kubernetes::pods_and_stateful_sets::STATEFUL_SET,
        KindId::Pod => &kubernetes::pods_and_stateful_sets::POD,
        KindId::Job => &kubernetes::job::KIND,
        KindId::ProvisioningRequest => &kubernetes::provisioning::KIND,
        KindId::GpuDriver => &gke::gpu_driver::KIND,
        KindId::Check => &dask::check::KIND,
        KindId::DaskCluster => &dask::cluster::KIND,
        KindId::DaskGroup => &dask::group::KIND,
        KindId::DaskAutoscaler => &dask::autoscaler::KIND,
        KindId::Expiry => &dask::expiry::KIND,
        KindId::DaskJob => &dask::job::KIND,
        KindId::Notebook => &dask::notebook::KIND,
        KindId::Environment => &hosts::environment::KIND,
        KindId::HostFiles => &hosts::files::KIND,
        KindId::HostCluster => &hosts::cluster::KIND,
        KindId::HostGroup => &hosts::group::KIND,
        KindId::HostJob => &hosts::job::KIND,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::kind::QueryResults;
    use super::kubernetes::object::gvk;
    use super::*;
    use model::resource::{Await, Facts, Identity, ObjectId, Until};

    #[test]
    fn a_kind_asks_for_what_it_judges_by() {
        let id =
            ObjectId { gvk: gvk("", "v1", "Service", "services"), namespace: None, name: "x".to_owned() };
        for (kind, until) in KindId::ALL
            .iter()
            .flat_map(|kind| [Until::Ready, Until::StillReady, Until::Handled].map(|until| (*kind, until)))
        {
            let (identity, facts) = (Identity::Object(id.clone()), Facts::Cluster("c".to_owned()));
            let wait = Await { kind, identity, until, facts, deadline: 1 };
            let queries = (of(kind).queries)(&wait);
            let answers = vec![Value::Null; queries.all().count()];
            let found = QueryResults::answers(&queries, &answers);
            let dask = matches!(kind, KindId::DaskCluster | KindId::DaskGroup);
            if until.is_ready() || dask {
                assert!((of(kind).readiness)(&wait, &found).is_ok(), "{kind:?} {until:?}");
            }
            if until.is_ready() {
                assert!((of(kind).status_line)(&wait, &found).is_ok(), "{kind:?} {until:?}");
            }
        }
    }

    #[test]
    fn a_wait_until_a_thing_is_gone_reads_nothing_that_may_belong_to_others() {
        let id = ObjectId {
            gvk: gvk("", "v1", "Service", "services"),
            namespace: Some("default".to_owned()),
            name: "mine".to_owned(),
        };
        let gang = || Some("mine".to_owned());
        let told = [
            Facts::Workers { replicas: Some(1), cluster: Some("mine".to_owned()), gang: gang() },
            Facts::Job { to_the_end: true, gang: gang() },
            Facts::Cluster("mine".to_owned()),
            Facts::Request { pool: Some("pool".to_owned()), consumer: Some("/apis/x/y".to_owned()) },
            Facts::InQueue,
        ];
        for (kind, facts) in KindId::ALL.iter().flat_map(|kind| told.iter().map(|facts| (*kind, facts))) {
            for until in [Until::Gone, Until::Ready] {
                let (identity, facts) = (Identity::Object(id.clone()), facts.clone());
                let wait = Await { kind, identity, until, facts, deadline: 1 };
                for (part, query) in (of(kind).queries)(&wait).parts() {
                    let path = &query.path;
                    assert!(path.contains("mine"), "{kind:?}: {part:?} is not only of the thing: {path}");
                }
            }
        }
    }
}
