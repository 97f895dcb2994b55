//! How the cluster is reached that somebody else holds.

use jiff::Timestamp;
use serde_json::Value;

use super::scheme::MINOR;
use super::store::Cluster;

/// The holder of a cluster: gives access under its lock, with the time, and announces changes.
pub trait Access: Clone + Send + Sync + 'static {
    /// Runs `f` on the cluster.
    fn with<R>(&self, f: impl FnOnce(&mut Cluster, Timestamp) -> R) -> R;
    /// The cluster's revision; must be sent only when it has moved, as watches call `with` when woken.
    fn changed(&self) -> tokio::sync::watch::Receiver<u64>;
    /// The version that `/version` tells, such as `v1.33.5-gke.1201000`.
    fn git_version(&self) -> String {
        format!("v1.{MINOR}.0")
    }
    /// The log of a container of a pod; `None` when it has not started.
    fn log(&self, _pod: &Value, _container: &str) -> Option<String> {
        None
    }
}
