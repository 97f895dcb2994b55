//! One cluster of the sandbox as its Kubernetes API sees it.

use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::watch;

use super::kube::api::Access;
use super::kube::run::logs;
use super::kube::store::{Cluster, Key};
use super::{ClusterId, Sandbox};

/// Access to one cluster under the sandbox's lock.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub sandbox: Sandbox,
    pub id: ClusterId,
}

impl Access for Member {
    /// A deleted cluster answers as an empty one for the moment until its listener is gone. A write that
    /// cannot be stored ends the sandbox with the next tick, see [`Sandbox::tick`].
    fn with<R>(&self, f: impl FnOnce(&mut Cluster, Timestamp) -> R) -> R {
        let now = self.sandbox.now();
        self.sandbox.change_anyway(|state, shared| {
            let result = match state.clusters.get_mut(&self.id) {
                Some(member) => f(&mut member.cluster, now),
                None => f(&mut Cluster::default(), now),
            };
            state.follow(now, shared);
            result
        })
    }

    fn changed(&self) -> watch::Receiver<u64> {
        self.sandbox.shared.changes.subscribe()
    }

    fn git_version(&self) -> String {
        let state = self.sandbox.lock();
        let cluster = state.gke.cluster(&self.id);
        let version = cluster.and_then(|cluster| cluster.body["currentMasterVersion"].as_str());
        format!("v{}", version.unwrap_or("0.0.0"))
    }

    fn log(&self, pod: &Value, container: &str) -> Option<String> {
        let word = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let key = Key::new("", "pods", word("/metadata/namespace"), word("/metadata/name"));
        let state = self.sandbox.lock();
        let member = state.clusters.get(&self.id)?;
        logs::container_log(&member.cluster, &key, container)
    }
}
