//! Names in the API of a host's agent.

use serde_json::Value;

pub use crate::dask::api::replicas_path;
use crate::kubernetes::object::gvk;
use crate::scope::HOSTS_GROUP;
use model::address::FieldPath;
use model::resource::{Gvk, Identity, ObjectId, Readiness};

/// The namespace of processes, which the agent shows as pods.
pub const NAMESPACE: &str = "default";

pub fn environment() -> Gvk {
    gvk(HOSTS_GROUP, "v1", "Environment", "environments")
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

/// Returns an object of the host; none of them is in a namespace.
pub(crate) fn identity(gvk: &Gvk, name: &str) -> Identity {
    Identity::Object(ObjectId { gvk: gvk.clone(), namespace: None, name: name.to_owned() })
}

/// Returns the readiness if hosts could not be read, or SLURM cannot be asked any more because the stack has no jobs.
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
