//! Access of one cluster's Kubernetes API to its state: under the sandbox's single lock, and stored before the response is sent.

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
    /// Creates the access to the cluster with this id.
    pub fn new(sandbox: Sandbox, id: ClusterId) -> Self {
        Self { sandbox, id }
    }
}

impl Access for ClusterAccess {
    /// A cluster that has just been deleted looks empty, and writes to it are lost. A write that cannot be stored ends the
    /// sandbox at the next tick; until then it is only in memory.
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

    /// Returns the version of the control plane that GKE reports.
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
