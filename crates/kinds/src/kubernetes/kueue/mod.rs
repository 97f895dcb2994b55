//! Kueue: its installation, the queues of a stack, and the gangs that wait in them. Source: Kueue 0.15.0, its API
//! `kueue.x-k8s.io/v1beta2` and its chart.

pub mod flavor;
pub mod gang;
pub mod install;
pub mod queue;
pub mod v1beta1;
pub mod workload;

use std::sync::LazyLock;

use crate::kubernetes::object::gvk;
use model::resource::{Gvk, ObjectId};
use model::schema::Api;

pub use crate::scope::KUEUE_GROUP as GROUP;

/// The API version that is written. A ClusterQueue in v1beta1 differs again after each server-side apply: the webhook, which uses
/// v1beta2, moves its `admissionChecks` to another field.
pub const VERSION: &str = "v1beta2";
/// The older API version, which guides use.
pub const OLDER: &str = "v1beta1";

/// Kinds, their plurals, and true for namespaced ones.
const KINDS: [(&str, &str, bool); 9] = [
    ("AdmissionCheck", "admissionchecks", false),
    ("ClusterQueue", "clusterqueues", false),
    ("Cohort", "cohorts", false),
    ("LocalQueue", "localqueues", true),
    ("ProvisioningRequestConfig", "provisioningrequestconfigs", false),
    ("ResourceFlavor", "resourceflavors", false),
    ("Topology", "topologies", false),
    ("Workload", "workloads", true),
    ("WorkloadPriorityClass", "workloadpriorityclasses", false),
];

/// Returns one of Kueue's kinds.
pub fn kind(kind: &str) -> Gvk {
    let plural = KINDS.iter().find(|(name, ..)| *name == kind).map_or("", |(_, plural, _)| *plural);
    gvk(GROUP, VERSION, kind, plural)
}

/// Returns all kinds of Kueue, so that manifests can use them if Kueue is managed elsewhere.
pub fn apis() -> &'static [Api] {
    &APIS
}

static APIS: LazyLock<Vec<Api>> = LazyLock::new(|| {
    let verbs = ["create", "delete", "get", "list", "patch", "update", "watch"].map(str::to_owned);
    let api = |version: &str, (kind, plural, namespaced): (&str, &str, bool)| Api {
        group: GROUP.to_owned(),
        version: version.to_owned(),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
        singular: kind.to_lowercase(),
        short_names: Vec::new(),
        categories: Vec::new(),
        namespaced,
        verbs: verbs.to_vec(),
        subresources: Vec::new(),
    };
    KINDS.iter().flat_map(|known| [VERSION, OLDER].map(|version| api(version, *known))).collect()
});

/// Returns the Workload of a name: Kueue's decision about a gang.
pub fn workload_of(namespace: Option<&str>, name: &str) -> ObjectId {
    ObjectId { gvk: kind("Workload"), namespace: namespace.map(str::to_owned), name: name.to_owned() }
}
