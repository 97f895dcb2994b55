//! Further groups of workers of a Dask cluster.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::dask::api::{self, GROUP_LABEL, UNATTACHED, UNHANDLED};
use crate::dask::device_memory::DeviceMemoryKeys;
use crate::dask::kopf::{self, is_handled, scaled_to};
use crate::dask::pods::{self, PodSpecKeys, WorkerCounts, Workers};
use crate::dask::process::ProcessKeys;
use crate::dask::queued_workers::{self, WorkerCapacity, WorkerRequest};
use crate::dask::replicas::Replicas;
use crate::dask::worker_count::{self, RegisteredWorkers};
use crate::dask::{scale, workers};
use crate::dask_config::DaskConfig;
use crate::descriptions::{image, workers};
use crate::json::text;
use crate::kind::{
    ChangeContext, Compare, DeletionBlocker, FreedCapacity, Kind, MissingQuery, Neighbor, Part, Queries,
    QueryResults, StopEffect, address_in, own_object_query,
};
use crate::kubernetes::calls::object_change_steps;
use crate::kubernetes::kueue::gang::{self, Gang};
use crate::kubernetes::kueue::workload;
use crate::kubernetes::object::{gvk, labelled, new_object, pods_labelled};
use crate::kubernetes::pod_code::PodCode;
use crate::kubernetes::pod_state::PodState;
use crate::kubernetes::pods::{broken, pending};
use crate::scope::Scope;
use crate::section::{Lifecycle, LiveName, Manage, NameRule, PodKeys, PodRole, Pods, Section, SectionHead};
use crate::slurm::SlurmKeys;
use crate::status::StatusLine;
use crate::worker_resources::WorkerResources;
use model::address::{Address, FieldPath};
use model::resource::{Await, Effect, Facts, Identity, KindId, Readiness, Recreation, Resource, Step, Until};

/// Seconds: images of 10 GB are pulled on every node, and GPU nodes may have to be created first.
const DEADLINE: u32 = 1800;

pub const KIND: Kind = Kind {
    rank: 61,
    deletion_blocker: DeletionBlocker::Contents,
    freed_capacity: FreedCapacity::Nodes,
    compare: Compare::Kubernetes(effect),
    change_steps: |context| workers::change_steps(context, KindId::DaskGroup, change_steps(context)),
    find_defect: workers::find_defect,
    deleted_workers: workers::deleted_workers,
    queries,
    readiness,
    status_line,
    plan_summary: about,
    pods: pods::of_group,
    scale_target: scale::scaled,
    address: |object| address_in("dask_cluster", object),
    stop_effect: StopEffect::Deletes,
    has_workers: true,
    ..Kind::DEFAULT
};

fn about(resource: &Resource) -> Vec<String> {
    let worker = &resource.body["spec"]["worker"];
    vec![workers(worker, &resource.create_only["spec"]["worker"]), image(&worker["spec"])]
}

/// A group of workers beside the default one, with its own pool, GPUs and number. A changed pod replaces the group.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct DaskGroup {
    /// The live name. Default the cluster's name, `-` and the group's key, as `KubeCluster` names groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How many workers: a number, or `{ start = 2 }` for the initial number, which then belongs to notebooks. Default 1.
    #[serde(default)]
    pub replicas: Replicas,
    /// The image. Default the cluster's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// On a host: the `[environment.NAME]` of these workers. Default the cluster's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// With `[slurm]`: what their jobs ask for, where it is not what `[slurm]` says: `{ partition = "gpu" }`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slurm: Option<SlurmKeys>,
    /// With `[ssh]`: the hosts that these workers are spread over; `gpu[1-4]` is `gpu1` to `gpu4`. Default all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// How their processes run.
    #[serde(flatten)]
    pub process: ProcessKeys,
    /// Their use of GPU memory.
    #[serde(flatten)]
    pub device_memory: DeviceMemoryKeys,
    /// The resources and the placement of each pod.
    #[serde(flatten)]
    pub keys: PodKeys,
    /// The `[queue.NAME]` that the workers of the group wait in, as a gang of their own. Default the cluster's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// How urgent it is among the work of its queue. Default the cluster's, in the cluster's queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<String>,
    /// `"queued"`: nodes for all workers of the group are requested at once from a pool with `queued = true`, and the group is created when they are
    /// there, which may take days. Without Kueue; with it, use `queue`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<WorkerCapacity>,
    /// How long the nodes of `capacity = "queued"` last: `"12h"`. At most 7 days, and 7 days when nothing is said. Then they go,
    /// with what runs on them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_run_duration: Option<String>,
    /// Dask resources of each worker, which tasks can request: `{ GPU = 1 }`.
    #[serde(default, skip_serializing_if = "WorkerResources::is_empty")]
    pub resources: WorkerResources,
    /// Arguments of the image's entry point. Default as for the cluster's `worker`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// `false`: it exists and is managed elsewhere. It is read, compared with this section and relied on, never
    /// written or deleted. Default `true`.
    #[serde(default, skip_serializing_if = "Manage::is_managed")]
    pub manage: Manage,
    /// `protect` and `depends_on`.
    #[serde(flatten)]
    pub lifecycle: Lifecycle,
}

impl Section for DaskGroup {
    fn head(&self) -> SectionHead<'_> {
        SectionHead { manage: self.manage, depends_on: &self.lifecycle.depends_on, ..SectionHead::default() }
    }

    fn live_name<'a>(&'a self, key: &'a str) -> Option<LiveName<'a>> {
        Some(LiveName::new(self.name.as_deref(), key, NameRule::Object))
    }
}

impl DaskGroup {
    /// Returns the live name of the group with this key.
    pub fn live_name(&self, cluster: &str, key: &str) -> String {
        self.name.clone().unwrap_or_else(|| format!("{cluster}-{key}"))
    }

    /// Returns its pods; `image` is the cluster's, with its path.
    pub(crate) fn pods_of<'a>(&'a self, path: FieldPath, image: &(FieldPath, &'a str)) -> Pods<'a> {
        let own = self.image.as_deref().map(|own| (path.key("image"), own));
        let (image_path, image) = own.unwrap_or_else(|| image.clone());
        let replicas = self.replicas.most();
        Pods { path, role: PodRole::Worker, replicas, image, image_path, args: &self.args, keys: &self.keys }
    }

    fn pod_keys<'a>(&'a self, cluster: &ParentCluster<'a>) -> PodSpecKeys<'a> {
        let image = self.image.as_deref().unwrap_or(cluster.image);
        let (resources, config) = (Some(&self.resources), Some(cluster.config));
        PodSpecKeys { image, args: &self.args, keys: &self.keys, resources, config }
    }
}

/// Returns the effect of a change. The operator follows the number of workers. A changed pod template would only reach later
/// workers, so the group would have two kinds of workers; retiring the old ones by number may hit workers of other groups,
/// because the scheduler chooses among all (dask-kubernetes issue 914). So the group is recreated. Source:
/// `operator/controller/controller.py` of dask-kubernetes 2026.3.0.
fn effect(path: &FieldPath) -> (Effect, Option<&'static str>) {
    let at = |keys: &[&str]| FieldPath::keys(keys.iter().copied()).contains(path);
    if at(&["spec", "worker", "replicas"]) {
        return (Effect::InPlace, None);
    }
    let gang = FieldPath::keys(["spec", "worker"]);
    let inside = path.segments().get(gang.segments().len()..).filter(|_| gang.contains(path));
    if let Some(effect) = inside.and_then(|inside| gang::effect(&inside.iter().cloned().collect())) {
        return effect;
    }
    if let Some(effect) = queued_workers::effect(path, &["spec", "worker"]) {
        return effect;
    }
    if at(&["metadata"]) {
        return (Effect::InPlace, Some("what the operator created keeps the old value"));
    }
    if at(&["spec", "cluster"]) {
        return (Effect::Replace, Some("a group belongs to the cluster it was created for"));
    }
    (Effect::Replace, Some("the operator sets it on new workers only, so the group's workers are recreated"))
}

/// Facts about a group's cluster.
pub struct ParentCluster<'a> {
    pub address: &'a Address,
    /// The path of its section.
    pub origin: &'a FieldPath,
    /// Its live name.
    pub name: &'a str,
    /// Its namespace, which is the group's.
    pub namespace: &'a str,
    pub image: &'a str,
    pub config: &'a DaskConfig,
    pub code: &'a PodCode<'a>,
    /// The queue of its own gang.
    pub queue: Option<&'a str>,
    pub priority: Option<&'a str>,
}

pub fn address(cluster: &Address, key: &str) -> Address {
    Address::new(format!("{cluster}.group.{key}"))
}

/// Lowers `[dask_cluster.X.group.KEY]` to the group, and the request for its workers' nodes.
pub fn lower(
    cluster: &ParentCluster,
    key: &str,
    section: &DaskGroup,
    scope: &Scope,
) -> (Resource, Option<[Resource; 2]>) {
    let ParentCluster { address: of, origin: cluster_origin, name: cluster_name, namespace, .. } = cluster;
    let name = section.live_name(cluster_name, key);
    let origin = cluster_origin.key("group").key(key);
    let pod_keys = section.pod_keys(cluster);
    let (_, create_only) = section.replicas.split();
    let image = if section.image.is_some() { origin.key("image") } else { cluster_origin.key("image") };
    let (worker, provenance) = workers_of(cluster, (&name, &origin, &image), section, scope);
    let queue = section.queue.as_deref().or(cluster.queue);
    let mut depends_on = vec![(*of).clone()];
    depends_on.extend(pods::dependencies(&[&pod_keys], namespace, scope));
    depends_on.extend(queue.map(|queue| Address::of("queue", queue)));
    depends_on.extend(section.lifecycle.depends_on.iter().map(Address::new));
    let metadata = json!({ "name": name, "namespace": namespace, "labels": scope.labels() });
    let spec = json!({ "cluster": cluster_name, "worker": worker });
    let (identity, body) = new_object(api::group(), metadata, spec);
    let mut group = Resource {
        address: address(of, key),
        kind: KindId::DaskGroup,
        identity,
        body,
        create_only,
        provenance,
        origin: origin.clone(),
        depends_on,
        protect: section.lifecycle.protect,
        recreation: Recreation::Always,
    };
    let request = WorkerRequest {
        path: &["spec", "worker"],
        number: (section.replicas.most(), origin.key("replicas")),
        workers: origin,
        image,
        keys: &section.keys,
        longest: section.max_run_duration.as_deref(),
        name_by_digest: true,
    };
    let capacity = section.capacity.filter(|_| section.manage.is_managed());
    let requests = queued_workers::request_workers(capacity, &mut group, request, scope);
    (group, requests)
}

/// Returns `spec.worker`, and the provenance of the whole body.
fn workers_of(
    cluster: &ParentCluster,
    (name, origin, image): (&str, &FieldPath, &FieldPath),
    section: &DaskGroup,
    scope: &Scope,
) -> (Value, Vec<(FieldPath, FieldPath)>) {
    let (path, number) = (FieldPath::keys(["spec", "worker"]), origin.key("replicas"));
    let pod_keys = section.pod_keys(cluster);
    let mut pod = pods::worker(&pod_keys, &section.process, &section.device_memory, scope);
    cluster.code.add_to(&mut pod, &section.keys.env, None);
    let mut worker = json!({ "spec": pod });
    if let (Some(replicas), _) = section.replicas.split() {
        worker["replicas"] = json!(replicas);
    }
    let mut provenance = vec![
        (path.key("replicas"), number.clone()),
        (FieldPath::keys(["metadata", "name"]), origin.key("name")),
    ];
    // The operator hands the labels of a cluster to the workers of all its groups, so those of a cluster with a gang need
    // entries of their own.
    let own = section.queue.as_deref();
    let priority = section.priority.as_deref().or(cluster.priority.filter(|_| own.is_none()));
    let count = section.replicas.most();
    if let Some(gang) = Gang::from_queue(own.or(cluster.queue), priority, (name, count), scope) {
        gang.add_labels(&mut worker["metadata"]);
        gang::set_role(&mut worker, "worker");
        gang::set_short_grace_period(&mut worker["spec"]);
        let from = if own.is_some() { origin } else { cluster.origin };
        provenance.extend(gang::provenance(&path.key("metadata"), from, &number));
    }
    provenance.extend(pods::provenance(&path.key("spec"), origin, image));
    let container = path.key("spec").key("containers").index(0);
    let made = &worker["spec"]["containers"][0];
    let config = cluster.config.container_provenance(made, &container, &cluster.origin.key("config"));
    provenance.extend(config);
    provenance.extend(cluster.code.provenance(&worker["spec"], &path.key("spec"), None));
    section.keys.merge_into(&mut worker, &path, origin, &mut provenance);
    (worker, provenance)
}

fn change_steps(context: &ChangeContext) -> Vec<Step> {
    let spec = &context.body()["spec"];
    let replicas = spec["worker"]["replicas"].as_u64();
    let cluster = spec["cluster"].as_str().map(str::to_owned);
    let facts = Facts::Workers { replicas, cluster, gang: gang::name_in_body(context.body()) };
    object_change_steps(context, KindId::DaskGroup, facts, DEADLINE)
}

/// Reads the group, its worker Deployments and pods; all pods of its cluster, and the scheduler's counts.
fn queries(wait: &Await) -> Queries {
    let mut queries = own_object_query(wait);
    let Identity::Object(group) = &wait.identity else { return queries };
    let namespace = group.namespace.as_deref();
    let own = [(GROUP_LABEL, group.name.as_str())];
    if wait.until == Until::Handled {
        return queries;
    }
    queries.part(Part::Workers, labelled(&gvk("apps", "v1", "Deployment", "deployments"), namespace, own));
    queries.part(Part::Pods, pods_labelled(namespace, own));
    workload::query(&mut queries, &wait.identity, wait.gang());
    // The scheduler counts the workers of all groups.
    if let (true, Some(cluster)) = (wait.until.is_ready(), wait.cluster()) {
        queries.neighbor(Neighbor::ClusterPods, worker_count::pods(namespace, cluster));
        queries.neighbor(Neighbor::Counts, worker_count::counts(namespace, cluster));
    }
    queries
}

fn readiness(wait: &Await, found: &QueryResults) -> Result<Readiness, MissingQuery> {
    let group = found.own_object();
    if wait.until == Until::Handled {
        return Ok(kopf::readiness(group));
    }
    let (workers, pods) = (found.get(Part::Workers)?, found.get(Part::Pods)?);
    let name = text(&group["metadata"]["name"]);
    let registered = registered_of(found);
    let (number_is_final, autoscalers) = (true, found.find(Neighbor::Autoscalers));
    let workers = Workers { wait, group, name, workers, pods, registered, number_is_final, autoscalers };
    let waiting = workload::wait_reason(found, wait.gang(), pods);
    Ok(ready(wait, group, pods, (workers, waiting)))
}

fn ready(
    wait: &Await,
    group: &Value,
    pods: &Value,
    (workers, waiting): (Workers, Option<workload::WaitReason>),
) -> Readiness {
    if !group.is_object() {
        return Readiness::progressing("not created yet");
    }
    // Only whether the operator has seen a number: it is about to change again.
    if let Facts::ScaledTo(number) = wait.facts {
        return match scaled_to(group) {
            Some(noted) if noted == number => Readiness::Ready,
            _ => Readiness::Unhandled(UNHANDLED.into()),
        };
    }
    if let Some(reason) = PodState::each(pods).find_map(broken) {
        return Readiness::Failed(reason);
    }
    if group["metadata"]["ownerReferences"].as_array().is_none_or(Vec::is_empty) {
        return Readiness::Unhandled(UNATTACHED.into());
    }
    if is_handled(group) == Some(false) {
        return Readiness::Unhandled(UNHANDLED.into());
    }
    match waiting {
        Some(waiting) => waiting.readiness(),
        None => workers.ready(),
    }
}

fn registered_of(found: &QueryResults) -> Option<RegisteredWorkers> {
    Some(RegisteredWorkers::of(found.find(Neighbor::ClusterPods)?, found.find(Neighbor::Counts)?))
}

/// Returns the `status` line: the number of workers of the group.
fn status_line(wait: &Await, found: &QueryResults) -> Result<StatusLine, MissingQuery> {
    let (group, workers, pods) = (found.own_object(), found.get(Part::Workers)?, found.get(Part::Pods)?);
    let workers: Vec<&Value> = workers["items"].as_array().into_iter().flatten().collect();
    let tally = WorkerCounts::of(wait, group, &workers, pods, registered_of(found));
    let mut facts = vec![("cluster", group["spec"]["cluster"].clone())];
    facts.extend(tally.facts());
    if let Some(waiting) = workload::wait_reason(found, wait.gang(), pods) {
        facts.extend(waiting.facts());
        let line = format!("{}; {}", waiting.line(), tally.line(true));
        return Ok(StatusLine { line, facts, ..StatusLine::default() });
    }
    let lacks = workload::note(found).map(|note| format!("; {note}")).unwrap_or_default();
    let line = format!("{}{lacks}", tally.line(true));
    Ok(StatusLine { line, facts, pending: pending(pods), ..StatusLine::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::resource::ObjectId;

    fn check(owned: bool, ready: &[u64], replicas: Value, live: u64) -> Readiness {
        let identity = Identity::Object(ObjectId {
            gvk: api::group(),
            namespace: Some("default".into()),
            name: "c-g".into(),
        });
        let facts = Facts::Workers { replicas: replicas.as_u64(), cluster: None, gang: None };
        let wait = Await { kind: KindId::DaskGroup, identity, until: Until::Ready, facts, deadline: 1 };
        let owners = if owned { json!([{ "kind": "DaskCluster" }]) } else { json!([]) };
        let worker = |ready: &u64| {
            json!({
                "metadata": { "generation": 1, "labels": { "dask.org/workergroup-name": "c-g" } },
                "spec": { "replicas": 1 },
                "status": {
                    "observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": ready,
                    "availableReplicas": ready, "conditions": [{ "type": "Available", "status": "True" }],
                },
            })
        };
        let workers: Vec<Value> = ready.iter().map(worker).collect();
        let group = json!({
            "metadata": { "name": "c-g", "ownerReferences": owners },
            "spec": { "worker": { "replicas": live } },
        });
        let answers = [group, json!({ "items": workers }), json!({ "items": [] })];
        readiness(&wait, &QueryResults::answers(&queries(&wait), &answers)).unwrap()
    }

    #[test]
    fn a_group_is_ready_with_its_workers() {
        let waits = |found, expect: &str| assert_eq!(found, Readiness::progressing(expect));
        assert_eq!(check(false, &[1], json!(1), 1), Readiness::Unhandled(UNATTACHED.into()));
        waits(check(true, &[1], json!(2), 2), "1 of 2 workers ready");
        waits(check(true, &[1, 0], json!(2), 2), "1 of 2 workers ready");
        waits(check(true, &[1, 1, 1], json!(2), 2), "1 of 3 workers still to be removed");
        assert_eq!(check(true, &[1, 1], json!(2), 2), Readiness::Ready);
        // A number of others' is whatever the group says.
        assert_eq!(check(true, &[1, 1, 1], Value::Null, 3), Readiness::Ready);
        waits(check(true, &[1, 1], Value::Null, 3), "2 of 3 workers ready");
    }

    #[test]
    fn only_the_number_is_followed() {
        for (path, expect) in [
            ("spec.worker.replicas", Effect::InPlace),
            ("metadata.labels.a", Effect::InPlace),
            ("spec.cluster", Effect::Replace),
            ("spec.worker.spec.containers[0].image", Effect::Replace),
            ("spec.worker.metadata.labels.a", Effect::Replace),
        ] {
            assert_eq!(effect(&path.parse().unwrap()).0, expect, "{path}");
        }
    }
}
