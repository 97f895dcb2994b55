//! How the Kubernetes API of one cluster reaches its state: under the sandbox's one lock, stored before the
//! answer leaves.

use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::watch;

use super::Sandbox;
use super::gke::ClusterId;
use super::kube::Access;
use super::kube::run::logs;
use super::kube::store::{Cluster, Key};

/// One cluster of a sandbox.
#[derive(Clone, Debug)]
pub struct Inside {
    sandbox: Sandbox,
    id: ClusterId,
}

impl Inside {
    /// The cluster of this id.
    pub fn new(sandbox: Sandbox, id: ClusterId) -> Self {
        Self { sandbox, id }
    }
}

impl Access for Inside {
    /// A cluster that has just been deleted looks empty, and what is written to it is lost with it.
    fn with<R>(&self, f: impl FnOnce(&mut Cluster, Timestamp) -> R) -> R {
        let now = self.sandbox.now();
        let (mut f, mut answer) = (Some(f), None);
        // A full disk ends the tick loop with its error; what this request saw is in memory and stands.
        let _stored = self.sandbox.change(|state, _| {
            if let Some(member) = state.clusters.get_mut(&self.id) {
                answer = f.take().map(|f| f(&mut member.cluster, now));
            }
        });
        match (answer, f) {
            (Some(answer), _) => answer,
            (None, Some(f)) => f(&mut Cluster::default(), now),
            (None, None) => unreachable!("the closure is taken only for an answer"),
        }
    }

    fn changed(&self) -> watch::Receiver<u64> {
        self.sandbox.shared.changes.subscribe()
    }

    fn log(&self, pod: &Value, container: &str) -> Option<String> {
        let part = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
        let key = Key::new("", "pods", part("namespace"), part("name"));
        self.with(|cluster, _| match container {
            "" => logs::log(cluster, &key),
            container => logs::container_log(cluster, &key, container),
        })
    }
}
