//! Pods that no node takes: what they wait for, by their events and the state of their node pools at GKE. A wait for a node that
//! never comes ends before the deadline of the wait.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::Outcome;
use crate::change_run::ChangeRun;
use crate::failure::{brief, failed};
use crate::waited_pods::{selected_pool, unscheduled};
use kinds::dask::why::part_of;
use kinds::kubernetes::pod_state::PodState;
use kinds::kubernetes::why::{self, Cause, Outlook, PodContext, Pool};
use kinds::scope::POOL_LABEL;
use live::{Request, probe};
use model::address::FieldPath;
use model::diag::Code;
use model::resource::{Api, Await, Progress, Query, Readiness, Until};

/// How long no node may come before a wait ends. The autoscaler looks every 10 s and tries the other zones of a pool within a
/// minute; after a failure in all of them it backs off for 5 minutes, and a shortage of GPUs lasts for hours. Source:
/// cluster-autoscaler, `--scan-interval` and `--initial-node-group-backoff-duration`.
const NODE_TIMEOUT: Duration = Duration::from_secs(120);
/// How long no node may come where GKE chooses the machines: it tries others.
const ANY_NODE_TIMEOUT: Duration = Duration::from_secs(600);
/// The least time between two looks at events: the autoscaler's scan interval.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// The knowledge of a wait about its pods that no node takes.
#[derive(Debug, Default)]
pub struct Unscheduled {
    looked: Option<Instant>,
    cause: Option<Cause>,
    /// True if one of the pods selects a pool.
    is_of_pool: bool,
    /// Since when no node has come.
    blocked: Option<Instant>,
}

impl ChangeRun<'_> {
    /// Returns the readiness with what the pods of the last look wait for, if no node takes them.
    ///
    /// # Errors
    /// No node has come for too long.
    pub(crate) async fn with_cause(
        &mut self,
        wait: &Await,
        found: Readiness,
        known: &mut Unscheduled,
    ) -> Result<Readiness, Outcome> {
        let Readiness::Progressing(progress) = found else { return Ok(found) };
        let has_pods = !self.pods.unscheduled.is_empty() || self.pods.query.is_some();
        if !has_pods || wait.until != Until::Ready {
            *known = Unscheduled::default();
            return Ok(Readiness::Progressing(progress));
        }
        if known.looked.is_none_or(|looked| looked.elapsed() >= LOOK_INTERVAL) {
            // Most pods that a look has not read get a node at once.
            let is_first = known.looked.replace(Instant::now()).is_none();
            if !is_first && let Some(query) = &self.pods.query {
                let found = probe(self.shared.api, query).await.unwrap_or_default();
                self.pods.unscheduled = unscheduled(found["items"].as_array().into_iter().flatten());
            }
            known.cause = self.cause_of_pods().await;
            known.is_of_pool = self.pods.unscheduled.iter().any(|pod| selected_pool(pod).is_some());
        }
        let Some(cause) = &known.cause else {
            known.blocked = None;
            return Ok(Readiness::Progressing(progress));
        };
        if cause.outlook == Outlook::NodeIsComing {
            known.blocked = None;
        } else {
            let since = *known.blocked.get_or_insert_with(Instant::now);
            let most = if known.is_of_pool { NODE_TIMEOUT } else { ANY_NODE_TIMEOUT };
            if since.elapsed() >= most {
                return Err(no_node(wait, cause, most));
            }
        }
        Ok(Readiness::Progressing(Progress { blocked_by: Some(line(cause)), ..progress }))
    }

    /// Returns the first cause that says what becomes of the wait: that no node comes before that one comes.
    async fn cause_of_pods(&self) -> Option<Cause> {
        let mut coming = None;
        for pod in &self.pods.unscheduled {
            let Some(cause) = self.cause_of(pod).await else { continue };
            match cause.outlook {
                Outlook::NoMachines | Outlook::NoNode => return Some(cause),
                Outlook::NodeIsComing => coming = coming.or(Some(cause)),
                Outlook::Unknown => {}
            }
        }
        coming
    }

    async fn cause_of(&self, pod: &Value) -> Option<Cause> {
        let state = PodState(pod);
        let pool = match selected_pool(pod) {
            Some(name) => self.pool(name).await,
            None => None,
        };
        // Requests bring their nodes, and machines of flex-start may take days.
        let is_queued = |pool: &Pool| {
            pool.live["queuedProvisioning"]["enabled"] == true || pool.live["config"]["flexStart"] == true
        };
        if pool.as_ref().is_some_and(is_queued) {
            return None;
        }
        let events = self.events_of(state.namespace(), state.name()).await;
        let resource = self.shared.desired.iter().find(|one| one.address == self.change.address)?;
        let part = part_of(resource, pod);
        // An apply may take hours, and no longer has the texts of its stack: fields are named by their paths.
        let position = |key: &str| part.key(key).to_string();
        let pools: Vec<Pool> = pool.into_iter().collect();
        let context = PodContext {
            events: &events,
            log: None,
            pools: &pools,
            position: &position,
            // Objects of manifests and charts have none.
            has_keys: !self.change.address.as_str().contains('/'),
            program: "dask-infra",
            workers_address: None,
        };
        let cause = why::of_pod(pod, &context)?;
        match (cause.code, pools.first()) {
            // The autoscaler names every pool at its largest size, also those that the pod does not select.
            ("most", Some(pool)) if !self.is_full(pool).await => None,
            ("most", None) => None,
            // Its own pods end, and then there is room.
            ("most", Some(_)) if (self.shared.kinds)(resource.kind).runs_to_completion => {
                Some(Cause { outlook: Outlook::NodeIsComing, ..cause })
            }
            _ => Some(cause),
        }
    }

    async fn pool(&self, name: &str) -> Option<Pool> {
        let all = self.shared.desired;
        let resource = all.iter().find(|resource| resource.identity.pool() == Some(name))?;
        let scaled = ((self.shared.kinds)(resource.kind).scale_target)(resource, all)?;
        let pool = Pool::of(resource, &scaled, &|path: &FieldPath| path.to_string())?;
        let path = format!("/v1/{}", self.shared.cluster?.pool_path(name));
        let live = probe(self.shared.api, &Query { api: Api::Gke, path }).await.unwrap_or_default();
        Some(Pool { live, ..pool })
    }

    async fn events_of(&self, namespace: &str, pod: &str) -> Vec<Value> {
        let path = format!("/api/v1/namespaces/{namespace}/events?fieldSelector=involvedObject.name%3D{pod}");
        // Without the right to read events the pod and its pool say what is known.
        let found = self.shared.api.send(Request::get(Api::Kubernetes, path)).await.unwrap_or_default();
        found["items"].as_array().cloned().unwrap_or_default()
    }

    async fn is_full(&self, pool: &Pool) -> bool {
        let path = format!("/api/v1/nodes?labelSelector={}%3D{}", POOL_LABEL.replace('/', "%2F"), pool.name);
        let found = self.shared.api.send(Request::get(Api::Kubernetes, path)).await.unwrap_or_default();
        let nodes = found["items"].as_array().map_or(0, Vec::len) as u64;
        pool.most.is_some_and(|most| nodes >= most)
    }
}

/// `waiting for a node: the autoscaler is adding one to node_pool.workers (usually 2–10 min with GPUs)`.
fn line(cause: &Cause) -> String {
    match cause.outlook {
        Outlook::NodeIsComing if cause.code != "most" => format!("{} ({USUAL})", cause.what),
        Outlook::NodeIsComing | Outlook::NoMachines | Outlook::NoNode | Outlook::Unknown => {
            cause.what.clone()
        }
    }
}

/// The usual time of a new node. Source: the guides' runs; the driver's installation is most of it.
const USUAL: &str = "usually 2–10 min with GPUs";

/// Returns the failure of a wait for a node that does not come.
fn no_node(wait: &Await, cause: &Cause, after: Duration) -> Outcome {
    let said = cause.said.as_ref().map(|said| format!(" ({said})")).unwrap_or_default();
    let what = format!("{}: no node after {}: {}{said}", wait.identity, brief(after), cause.what);
    let cures: Vec<&str> =
        cause.remedies.iter().map(String::as_str).filter(|cure| !cure.starts_with("wait")).collect();
    let help = match cures.as_slice() {
        [] => "fix the cause, then apply again".to_owned(),
        cures => format!("{}; then apply again", cures.join("; ")),
    };
    failed(Code::NoNode, what, Some(&help))
}
