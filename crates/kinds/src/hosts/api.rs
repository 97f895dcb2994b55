//! Names in the API of the agent that runs on a host.

use serde_json::Value;

pub use crate::dask::api::replicas_path;
use crate::kubernetes::object::gvk;
use crate::scope::HOSTS_GROUP;
use model::address::FieldPath;
use model::resource::{Gvk, Identity, ObjectId, Readiness};

/// The namespace of the pods that stand for processes.
pub const NAMESPACE: &str = "default";

pub fn environment() -> Gvk {
    gvk(HOSTS_GROUP, "v1", "Environment", "environments")
}

pub fn files() -> Gvk {
    gvk(HOSTS_GROUP, "v1", "Files", "files")
}

pub fn cluster() -> Gvk {
    gvk(HOSTS_GROUP, "v1", "Cluster", "clusters")
}

pub fn group() -> Gvk {
    gvk(HOSTS_GROUP, "v1", "WorkerGroup", "workergroups")
}

pub fn job() -> Gvk {
    gvk(HOSTS_GROUP, "v1", "Job", "jobs")
}

/// Returns the identity of an object on hosts. These objects have no namespace.
pub(crate) fn identity(gvk: &Gvk, name: &str) -> Identity {
    Identity::Object(ObjectId { gvk: gvk.clone(), namespace: None, name: name.to_owned() })
}

/// Returns progressing if the state of an object is unknown or some of its hosts could not be read, with the reason; `None`
/// otherwise.
pub(crate) fn unread_hosts(live: &Value) -> Option<Readiness> {
    if let Some(why) = live["status"]["unknown"].as_str() {
        return Some(Readiness::progressing(format!("its state is not known: {why}")));
    }
    let names: Vec<&str> = live["status"]["unasked"].as_array()?.iter().filter_map(Value::as_str).collect();
    Some(Readiness::progressing(format!("what is on {} is not known", names.join(", "))))
}

/// Returns the paths of hosts: those of all processes of a section, and those of its workers if they have their own.
pub fn hosts_paths() -> [FieldPath; 2] {
    [FieldPath::keys(["spec", "hosts"]), FieldPath::keys(["spec", "worker", "hosts"])]
}
