//! Pods that no node takes: what they wait for, by their events and the state of their node pools at GKE. A wait for a node that
//! never comes ends before the deadline of the wait.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::Outcome;
use crate::change_run::ChangeRun;
use crate::failure::{brief, failed};
use kinds::dask::why::part_of;
use kinds::gke::node_pool::{NEW_GPU_NODE, allocatable_gpus};
use kinds::gke::placement::Pools;
use kinds::image_pull::{self, ImagePull, ImageSource};
use kinds::kubernetes::object::is_ready;
use kinds::kubernetes::pod_state::PodState;
use kinds::kubernetes::why::{self, Cause, Outlook, PodContext, Pool};
use kinds::pod::selected_pool;
use kinds::scope::POOL_LABEL;
use live::Request;
use model::address::FieldPath;
use model::diag::Code;
use model::resource::{Action, Api, Await, Identity, Progress, Readiness, Resource, Until};

/// How long no node may come before a wait ends. The autoscaler looks every 10 s and tries the other zones of a pool within a
/// minute; after a failure in all of them it backs off for 5 minutes or more, and a shortage of GPUs lasts for hours. Source:
/// cluster-autoscaler, `--scan-interval` and `--initial-node-group-backoff-duration`.
const NODE_TIMEOUT: Duration = Duration::from_secs(120);
/// How long no node may come where GKE chooses the machines, as it tries others, and for pods that existed before.
const ANY_NODE_TIMEOUT: Duration = Duration::from_secs(600);
/// The least time between two looks at events: the autoscaler's scan interval.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// The knowledge of a wait about its pods that no node takes.
#[derive(Debug, Default)]
pub struct Unscheduled {
    looked: Option<Instant>,
    found: Option<PodCause>,
    /// The time since which no node has come.
    blocked: Option<Instant>,
}

/// The cause for a pod that no node takes.
#[derive(Debug)]
struct PodCause {
    cause: Cause,
    /// The pool that the pod selects.
    pool: Option<String>,
    /// The usual time until it runs.
    usual: String,
}

impl ChangeRun<'_> {
    /// Returns the readiness with the cause of pods that no node takes, by the last look at what is waited for.
    ///
    /// # Errors
    /// No node has come for too long.
    pub(crate) async fn with_cause(
        &mut self,
        wait: &Await,
        readiness: Readiness,
        known: &mut Unscheduled,
    ) -> Result<Readiness, Outcome> {
        let Readiness::Progressing(progress) = readiness else { return Ok(readiness) };
        let has_pods = !self.pods.unscheduled.is_empty() || self.pods.query.is_some();
        if !has_pods || wait.until != Until::Ready {
            *known = Unscheduled::default();
            return Ok(Readiness::Progressing(progress));
        }
        // A wait ends by a fresh look.
        if self.is_over(known) || known.looked.is_none_or(|looked| looked.elapsed() >= LOOK_INTERVAL) {
            let is_first = known.looked.replace(Instant::now()).is_none();
            known.found = self.look_at_pods(is_first).await;
        }
        let Some(found) = &known.found else {
            known.blocked = None;
            return Ok(Readiness::Progressing(progress));
        };
        if matches!(
            found.cause.outlook,
            Outlook::NoMachines | Outlook::NoNode | Outlook::NoFit | Outlook::PoolIsFull
        ) {
            known.blocked.get_or_insert_with(Instant::now);
        } else {
            known.blocked = None;
        }
        if self.is_over(known) {
            if !self.gets_room(found).await {
                return Err(no_node(wait, &found.cause, self.limit(found)));
            }
            known.blocked = None;
        }
        Ok(Readiness::Progressing(Progress { blocked_by: Some(line(found)), ..progress }))
    }

    /// Returns true if no node has come for too long.
    fn is_over(&self, known: &Unscheduled) -> bool {
        let limit = known.found.as_ref().map(|found| self.limit(found));
        limit.is_some_and(|limit| known.blocked.is_some_and(|since| since.elapsed() >= limit))
    }

    /// Returns how long no node may come for a pod: shorter if it selects a pool, or no new node of any pool takes it. Events of pods that existed before this change may be old: GKE tries again after a
    /// backoff of at least five minutes.
    fn limit(&self, found: &PodCause) -> Duration {
        let is_new = matches!(self.change.action, Action::Create | Action::Replace | Action::Run);
        let names_pool = found.pool.is_some() || found.cause.outlook == Outlook::NoFit;
        if is_new && names_pool { NODE_TIMEOUT } else { ANY_NODE_TIMEOUT }
    }

    async fn look_at_pods(&mut self, is_first: bool) -> Option<PodCause> {
        // Most pods that a look at their owner has not read get a node at once.
        if !is_first && let Some(query) = &self.pods.query {
            let list = self.list(&query.path).await;
            self.pods.read(&list);
        }
        let mut coming = None;
        for pod in &self.pods.unscheduled {
            let pool = match selected_pool(&pod["spec"]) {
                Some(name) => match self.pool(name).await {
                    Some(pool) => Some(pool),
                    None => continue,
                },
                None => None,
            };
            let source = pool.as_ref().zip(self.shared.cluster);
            // A live pool has the settings of its cluster.
            let source = source.map(|(pool, name)| ImageSource::of(&pool.live, &Value::Null, name));
            let usual = usual_time(&pod["spec"], source);
            let Some(cause) = self.cause_of(pod, pool).await else { continue };
            let found = PodCause { cause, pool: selected_pool(&pod["spec"]).map(str::to_owned), usual };
            match found.cause.outlook {
                Outlook::NoMachines | Outlook::NoNode | Outlook::NoFit | Outlook::PoolIsFull => {
                    return Some(found);
                }
                Outlook::NodeIsComing | Outlook::RoomIsComing => coming = coming.or(Some(found)),
                Outlook::Unknown => {}
            }
        }
        coming
    }

    /// Returns the cause for a pod and the pool that it selects. `None` if nodes of the pool are requested: requests bring their nodes,
    /// and machines of flex-start may take days.
    async fn cause_of(&self, pod: &Value, pool: Option<Pool>) -> Option<Cause> {
        let is_requested = |pool: &Pool| {
            pool.live["queuedProvisioning"]["enabled"] == true || pool.live["config"]["flexStart"] == true
        };
        if pool.as_ref().is_some_and(is_requested) {
            return None;
        }
        let events = self.events_of(pod).await;
        let resource = self.desired()?;
        let part = part_of(resource, pod);
        // An apply may take hours, and no longer has the texts of its stack: fields are named by their paths.
        let position = |key: &str| part.key(key).to_string();
        let pools: Vec<Pool> = pool.into_iter().collect();
        let context = PodContext {
            events: &events,
            log: None,
            pools: &pools,
            refusal: &|_| None,
            position: &position,
            // Objects of manifests and charts have none.
            has_keys: !self.change.address.as_str().contains('/'),
            program: "dask-infra",
            workers_address: None,
        };
        let mut cause = why::of_pod(pod, &context)?;
        if cause.outlook == Outlook::Unknown {
            let live = self.live_pools().await;
            let new_nodes = Pools::of(&live, &[], &[]);
            let refusal = |pod: &Value| new_nodes.as_ref()?.refusal_of(pod);
            cause = why::of_pod(pod, &PodContext { refusal: &refusal, ..context })?;
        }
        if cause.outlook != Outlook::PoolIsFull {
            return Some(cause);
        }
        let pool = pools.first()?;
        let nodes = self.nodes_of(&pool.name).await;
        if pool.most.is_none_or(|most| (nodes.len() as u64) < most) {
            return None;
        }
        // Its own pods end, or its nodes are about to be there: then there is room.
        let ends = (self.shared.kinds)(resource.kind).runs_to_completion;
        let needs_gpus = !pool.live["config"]["accelerators"][0].is_null();
        let is_usable = |node: &Value| {
            is_ready(node)
                && node["spec"]["unschedulable"] != true
                && !(needs_gpus && allocatable_gpus(node) == 0)
        };
        if ends || !nodes.iter().all(is_usable) {
            return Some(Cause { outlook: Outlook::RoomIsComing, ..cause });
        }
        Some(cause)
    }

    /// Returns the resources that decide on new nodes, with the live cluster and its live pools; none if the cluster has other pools,
    /// which the pod may wait for.
    async fn live_pools(&self) -> Vec<Resource> {
        let decides = |resource: &&Resource| match &resource.identity {
            Identity::Cluster(_) | Identity::NodePool { .. } => true,
            Identity::Object(id) => id.gvk.kind == "DaemonSet",
            Identity::Check(_) => false,
        };
        let Some(cluster) = self.shared.cluster else { return Vec::new() };
        let path = format!("/v1/{}", cluster.path());
        let live = self.shared.api.send(Request::get(Api::Gke, path)).await.unwrap_or_default();
        let mut found: Vec<Resource> = self.shared.desired.iter().filter(decides).cloned().collect();
        let pools = live["nodePools"].as_array().map_or(&[][..], Vec::as_slice);
        for pool in pools {
            let own = found.iter_mut().find(|resource| resource.identity.pool() == pool["name"].as_str());
            let Some(own) = own else { return Vec::new() };
            own.body = pool.clone();
        }
        if let Some(own) = found.iter_mut().find(|resource| matches!(resource.identity, Identity::Cluster(_)))
        {
            own.body = live;
        }
        found
    }

    /// Returns true if pods on the nodes of a full pool are about to go: they are deleted, or belong to a job or a check.
    async fn gets_room(&self, found: &PodCause) -> bool {
        let Some(pool) = found.pool.as_deref().filter(|_| found.cause.outlook == Outlook::PoolIsFull) else {
            return false;
        };
        let nodes = self.nodes_of(pool).await;
        let names: Vec<&str> = nodes.iter().filter_map(|node| node["metadata"]["name"].as_str()).collect();
        let pods = self.list("/api/v1/pods?fieldSelector=status.phase%3DRunning").await;
        pods.iter().any(|pod| {
            let is_here = pod["spec"]["nodeName"].as_str().is_some_and(|node| names.contains(&node));
            let ends = pod["spec"]["restartPolicy"].as_str().is_some_and(|policy| policy != "Always");
            is_here && (ends || PodState(pod).is_terminating())
        })
    }

    /// Returns a pool of the stack with its live state.
    async fn pool(&self, name: &str) -> Option<Pool> {
        let all = self.shared.desired;
        let resource = all.iter().find(|resource| resource.identity.pool() == Some(name))?;
        let scaled = ((self.shared.kinds)(resource.kind).scale_target)(resource, all)?;
        let pool = Pool::of(resource, &scaled, &|path: &FieldPath| path.to_string())?;
        let path = format!("/v1/{}", self.shared.cluster?.pool_path(name));
        let live = self.shared.api.send(Request::get(Api::Gke, path)).await.ok()?;
        Some(Pool { live, ..pool })
    }

    /// Returns the events of a pod. Without the right to read them its own status and its pool say what is known.
    async fn events_of(&self, pod: &Value) -> Vec<Value> {
        let metadata = |key: &str| pod["metadata"][key].as_str().unwrap_or_default();
        let (namespace, uid) = (metadata("namespace"), metadata("uid"));
        self.list(&format!("/api/v1/namespaces/{namespace}/events?fieldSelector=involvedObject.uid%3D{uid}"))
            .await
    }

    async fn nodes_of(&self, pool: &str) -> Vec<Value> {
        self.list(&format!("/api/v1/nodes?labelSelector={}%3D{pool}", POOL_LABEL.replace('/', "%2F"))).await
    }

    /// Returns the items of a LIST; none without an answer.
    async fn list(&self, path: &str) -> Vec<Value> {
        let mut found = self.shared.api.send(Request::get(Api::Kubernetes, path)).await.unwrap_or_default();
        match found["items"].take() {
            Value::Array(items) => items,
            _ => Vec::new(),
        }
    }
}

/// `waiting for a node: the autoscaler is adding one to node_pool.workers (usually 2–10 min with GPUs, then 2–12 min for its image)`.
fn line(PodCause { cause, usual, .. }: &PodCause) -> String {
    match cause.outlook {
        Outlook::NodeIsComing => format!("{} ({usual})", cause.what),
        Outlook::RoomIsComing
        | Outlook::NoMachines
        | Outlook::NoNode
        | Outlook::NoFit
        | Outlook::PoolIsFull
        | Outlook::Unknown => cause.what.clone(),
    }
}

/// Returns the usual time of a new node, and that of the pulls of a pod's images.
fn usual_time(spec: &Value, source: Option<ImageSource<'_>>) -> String {
    let pulls = |image: &&str| source.is_none_or(|source| source.pulls(image));
    let images = image_pull::images(spec).map(|(_, image)| image).filter(pulls);
    let pull = ImagePull::of(images);
    let node = format!("usually {NEW_GPU_NODE} with GPUs");
    match (pull.known.most, pull.unknown.is_empty()) {
        (0, true) => node,
        (_, true) => format!("{node}, then {} for its image", pull.known),
        (_, false) => format!("{node}, without the pull of its image"),
    }
}

/// Returns the failure of a wait for a node that does not come.
fn no_node(wait: &Await, cause: &Cause, after: Duration) -> Outcome {
    let said = cause.said.as_ref().map(|said| format!(" ({said})")).unwrap_or_default();
    let what = format!("{}: no node after {}: {}{said}", wait.identity, brief(after), cause.what);
    let cures: Vec<&str> =
        cause.remedies.iter().map(String::as_str).filter(|cure| !cure.starts_with("wait")).collect();
    let help = match cures.as_slice() {
        [] => "fix the cause, then apply again".to_owned(),
        cures => format!("{}; apply again afterwards", cures.join("; ").replace(", then apply", "")),
    };
    failed(Code::NoNode, what, Some(&help))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use model::resource::ClusterName;

    #[test]
    fn the_pull_of_the_image_comes_after_the_node() {
        let usual = |image: &str, config: Value| {
            let spec = json!({ "containers": [{ "image": image }] });
            let pool = json!({ "config": config });
            let name =
                ClusterName { project: "demo".into(), location: "us-central1-c".into(), cluster: "c".into() };
            usual_time(&spec, Some(ImageSource::of(&pool, &Value::Null, &name)))
        };
        let rapids = "nvcr.io/nvidia/rapidsai/base:26.04-cuda12-py3.13";
        let disks = json!({ "secondaryBootDisks": [{ "diskImage": "projects/p/global/images/i" }] });
        assert_eq!(usual(rapids, json!({})), "usually 2–10 min with GPUs, then 2–12 min for its image");
        assert_eq!(usual("mine:1", json!({})), "usually 2–10 min with GPUs, without the pull of its image");
        assert_eq!(usual(rapids, disks), "usually 2–10 min with GPUs");
        let streams = json!({ "gcfsConfig": { "enabled": true } });
        let own = "us-docker.pkg.dev/p/r/mine:1";
        assert_eq!(usual(own, streams.clone()), "usually 2–10 min with GPUs");
        let elsewhere = usual("europe-docker.pkg.dev/p/r/mine:1", streams);
        assert_eq!(elsewhere, "usually 2–10 min with GPUs, without the pull of its image");
        let sample = "nvidia/samples:vectoradd-cuda11.6.0-ubuntu18.04";
        assert_eq!(usual(sample, json!({})), "usually 2–10 min with GPUs");
    }
}
