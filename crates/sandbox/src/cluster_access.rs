//! How the Kubernetes API of one cluster reaches its state: under the sandbox's one lock, stored before the
//! answer leaves.

use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::watch;

use super::gke::ClusterId;
use super::kube::Access;
use super::kube::run::logs;
use super::kube::store::Cluster;
use super::state::Sandbox;

#[derive(Clone, Debug)]
pub struct ClusterAccess {
    sandbox: Sandbox,
    id: ClusterId,
}

impl ClusterAccess {
    /// The cluster of this id.
    pub fn new(sandbox: Sandbox, id: ClusterId) -> Self {
        Self { sandbox, id }
    }
}

impl Access for ClusterAccess {
    /// A cluster that has just been deleted looks empty, and what is written to it is lost with it. A write
    /// that cannot be stored ends the sandbox with the next tick; what this request saw is in memory.
    fn with<R>(&self, f: impl FnOnce(&mut Cluster, Timestamp) -> R) -> R {
        let now = self.sandbox.now();
        self.sandbox.change_anyway(|state| match state.clusters.get_mut(&self.id) {
            Some(member) => f(&mut member.cluster, now),
            None => f(&mut Cluster::default(), now),
        })
    }

    fn changed(&self) -> watch::Receiver<u64> {
        self.sandbox.shared.changes.subscribe()
    }

    /// The version of the control plane that GKE tells.
    fn git_version(&self) -> String {
        let state = self.sandbox.lock();
        let cluster = state.gke.cluster(&self.id);
        let version = cluster.and_then(|cluster| cluster.body["currentMasterVersion"].as_str());
        format!("v{}", version.unwrap_or("0.0.0"))
    }

    fn log(&self, pod: &Value, container: &str) -> Option<String> {
        logs::container_log(pod, container)
    }
}
