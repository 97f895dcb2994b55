//! Kinds: a section of the stack file, what it becomes, how its fields may change, when it is ready.
//! A kind is one file; [`of`] is the one list. Kinds never import each other's sections: what one
//! must know of its neighbours comes in [`scope::Scope`].

use serde_json::Value;

use crate::address::Address;
use crate::resource::{Action, Await, KindId, ObjectId, Owner, Resource, Step};
use crate::schema;
use kind::{Doing, Kind};
use scope::DASK_OPERATOR;

pub mod about;
pub mod dask;
pub mod door;
pub mod env;
pub mod gke;
pub mod json;
pub mod kind;
pub mod kubernetes;
pub mod own_pods;
pub mod pod;
pub mod scale;
pub mod scope;
pub mod section;
pub mod short;
pub mod status;
pub mod why;

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

/// What an apply that keeps a thing looks at.
pub fn kept(resource: &Resource, owner: &Owner, live: &Value) -> Option<Await> {
    let steps = (of(resource.kind).program)(&Doing {
        action: Action::Keep,
        identity: &resource.identity,
        resource: Some(resource),
        live: Some(live),
        fields: &[],
        owner,
        inline_pool: None,
        zones: 0,
        leaving: false,
        taking: false,
    });
    steps.into_iter().find_map(|step| match step {
        Step::Await(wait) => Some(wait),
        Step::Call(_) | Step::ReadLog { .. } | Step::RecordPass { .. } => None,
    })
}

/// The address and kind of an object of ours that neither the file nor the record knows.
pub fn known_as(object: &ObjectId) -> (Address, KindId) {
    let (kind, name, namespace) =
        (object.gvk.kind.as_str(), object.name.as_str(), object.namespace.as_deref());
    match kind {
        "DaskCluster" => (Address::of("dask_cluster", name), KindId::DaskCluster),
        "DaskJob" => (Address::of("dask_job", name), KindId::DaskJob),
        "DaskWorkerGroup" => (Address::object("dask_cluster", kind, namespace, name), KindId::DaskGroup),
        "DaskAutoscaler" => (Address::object("dask_cluster", kind, namespace, name), KindId::DaskAutoscaler),
        "Namespace" => (Address::of("namespace", name), KindId::Namespace),
        "DaemonSet" if name == gke::gpu_driver::NAME => {
            (Address::object("gpu_driver", kind, namespace, name), KindId::GpuDriver)
        }
        "CustomResourceDefinition" if name.ends_with(schema::DASK_GROUP) => {
            (Address::object(DASK_OPERATOR, kind, namespace, name), KindId::Definition)
        }
        _ => {
            let kind_name = kubernetes::manifest::kind_of(object);
            let operator = name.starts_with(dask::operator::NAME);
            let section = if operator { DASK_OPERATOR } else { "object" };
            (Address::object(section, kind, namespace, name), kind_name)
        }
    }
}
