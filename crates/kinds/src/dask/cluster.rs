//! Dask clusters that the Dask operator runs.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::code::CodeKeys;
use crate::dask::api::{self, CLUSTER_LABEL, COMPONENT_LABEL, GROUP_LABEL};
use crate::dask::expiry::{self, After, ExpiryCause};
use crate::dask::group::{self, DaskGroup, ParentCluster};
use crate::dask::idle::IdleTimeout;
use crate::dask::kopf::{self, is_handled};
use crate::dask::network::{self, Network};
use crate::dask::parts::SchedulerAndWorkers;
pub use crate::dask::parts::{Scheduler, Worker};
use crate::dask::pods::{self, WorkerCounts, Workers, with_pods};
use crate::dask::queued_workers::{self, WorkerCapacity, WorkerRequest};
use crate::dask::replicas::{Replicas, WorkerCountOwner};
use crate::dask::service::DaskService;
use crate::dask::worker_count::{self, RegisteredWorkers};
use crate::dask::{autoscaler, scale, workers};
use crate::dask_config::DaskConfig;
use crate::descriptions::{image, with_gpus, workers};
use crate::env::NeededVariable;
use crate::json::text;
use crate::kind::{
    ChangeContext, Compare, DeletionBlocker, FreedCapacity, Kind, MissingQuery, Neighbor, Part, Queries,
    QueryResults, StopEffect, own_object_query,
};
use crate::kubernetes::calls::{object_change_steps, scale_call};
use crate::kubernetes::kueue::gang::{self, Gang};
use crate::kubernetes::kueue::workload;
use crate::kubernetes::object::{gvk, labelled, new_object, strip_generated_fields};
use crate::kubernetes::pod_code::PodCode;
use crate::kubernetes::pod_state::PodState;
use crate::kubernetes::pods::{broken, pending};
use crate::kubernetes::workload::deployment_ready;
use crate::scope::Scope;
use crate::section::{
    Labels, Lifecycle, LiveName, Manage, NameRule, NestedSection, PodKeys, Pods, Section, SectionHead,
    environment_of, external_sections, object_labels,
};
use crate::status::StatusLine;
use model::address::{Address, FieldPath};
use model::resource::{
    Action, Api, Await, Effect, Facts, Gvk, Identity, KindId, ObjectId, Query, Readiness, Recreation,
    Resource, Step, Until,
};

/// Seconds: images of 10 GB are pulled on every node, and GPU nodes may have to be created first.
const DEADLINE: u32 = 1800;

pub const KIND: Kind = Kind {
    rank: 60,
    deletion_blocker: DeletionBlocker::Operator,
    freed_capacity: FreedCapacity::Nodes,
    // Whose number of workers counts, what others attached, and what the operator made.
    also_read: || {
        vec![
            api::group(),
            api::autoscaler(),
            gvk("apps", "v1", "Deployment", "deployments"),
            gvk("", "v1", "Service", "services"),
        ]
    },
    compare: Compare::Kubernetes(effect),
    change_steps: |context| workers::change_steps(context, KindId::DaskCluster, change_steps(context)),
    find_defect: workers::find_defect,
    deleted_workers: workers::deleted_workers,
    queries,
    readiness,
    status_line,
    plan_summary: about,
    pods: pods::of_cluster,
    endpoint: api::endpoint,
    scale_target: scale::scaled,
    address: |object| Address::of("dask_cluster", &object.name),
    stop_effect: StopEffect::Deletes,
    has_workers: true,
    invalidates_checks: Action::creates,
    ..Kind::DEFAULT
};

/// Returns `scheduler with 1 GPU, 2 workers with 1 GPU each`, and the images.
fn about(resource: &Resource) -> Vec<String> {
    let spec = &resource.body["spec"];
    let scheduler = &spec["scheduler"]["spec"];
    let (one, other) = (image(scheduler), image(&spec["worker"]["spec"]));
    let images = if one == other || other.is_empty() { one } else { format!("{one} and {other}") };
    let workers = workers(&spec["worker"], &resource.create_only["spec"]["worker"]);
    vec![format!("scheduler{}", with_gpus(scheduler)), workers, images]
}

/// The event that starts a Dask cluster again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnReboot {
    /// A reboot of its host.
    OnBoot,
}

/// A Dask cluster run by the operator.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct DaskCluster {
    /// The live name, at most 53 characters; defaults to the section's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The namespace. Default `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The image of scheduler and workers; clients should use the same. Required on Kubernetes. It has no effect on a
    /// host: `environment` is what they run in there.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// On a host: the `[environment.NAME]` of scheduler and workers. Default the only one of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// Dask's configuration of scheduler, workers, groups, and of the checks and notebooks of the cluster, by dotted keys:
    /// `{ "distributed.adaptive.target-duration" = "10s" }`. They get it as `DASK_…` variables; `env` of a part overrides them
    /// there.
    #[serde(default, skip_serializing_if = "DaskConfig::is_empty")]
    pub config: DaskConfig,
    /// Your own code.
    #[serde(flatten)]
    pub code: CodeKeys,
    /// The scheduler.
    #[serde(default)]
    pub scheduler: Scheduler,
    /// The default group of workers.
    #[serde(default)]
    pub worker: Worker,
    /// More groups of workers, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub group: BTreeMap<String, DaskGroup>,
    /// How long without work until the operator deletes the whole cluster: `"30m"`, or seconds; 0, the default, is never. It
    /// is recreated only by `start`, when its section changes or with `--replace`; with `{ seconds = 3600, remake = true }`
    /// the next apply recreates it. On hosts its scheduler ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<IdleTimeout>,
    /// How long the cluster lives after it is created, or after its `queue` admits it: `"45m"`, `"8h"`, `"2d"`. A
    /// CronJob beside it (on hosts a process) then deletes it, with its groups and autoscaler, also when no machine but the cluster is on. It is
    /// recreated only by `start`, or when its section changes. `{ after = "8h", image = "python:3.13" }` sets the CronJob's image, which needs Python 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<After>,
    /// How long without work until a CronJob beside it deletes the cluster, with its groups and autoscaler, also when no machine
    /// but the cluster is on: `"30m"`. The scheduler says since when it has had no work; while the cluster waits in a queue
    /// or for its first worker, the time has not begun. It is recreated only by `start`, or when its section changes.
    /// `{ after = "30m", image = "ghcr.io/dask/dask:2026.8.0-py3.13" }` sets the CronJob's image, which needs `distributed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_stop: Option<After>,
    /// `"on-boot"`: what a reboot of a host ended is started again there, by a unit of the user's systemd if it lingers, else by the
    /// user's crontab. Without it the next apply does that. Kubernetes always starts Pods again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<OnReboot>,
    /// The `[queue.NAME]` that it waits in: the scheduler and the workers start together when the
    /// queue has room for all of them, or not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// How urgent it is among the work of its queue: one of the queue's `priorities`. What is more urgent starts first; nothing
    /// that runs is stopped for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<String>,
    /// `"queued"`: nodes for all workers of `worker` are requested at once from a pool with `queued = true`, and the cluster is created when they are
    /// there, which may take days. Without Kueue; with it, use `queue`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<WorkerCapacity>,
    /// How long the nodes of `capacity = "queued"` last: `"12h"`. At most 7 days, and 7 days when nothing is said. Then they go,
    /// with what runs on them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_run_duration: Option<String>,
    /// How the scheduler is exposed: `"ClusterIP"`, the default, `"NodePort"`, `"LoadBalancer"` (internal to the VPC
    /// network), or a table. `dask-infra connect` needs none of them. A Dask scheduler runs anyone's code.
    #[serde(default)]
    pub service: DaskService,
    /// `true` creates a NetworkPolicy: only its own pods, the Dask operator, this stack's checks and notebooks of it, and pods of its
    /// namespace with the label `dask-infra.dev/client-of-NAME = "true"` can connect. `{ from = […] }` allows more. `dask-infra connect`
    /// works without. The Kubernetes cluster must enforce policies: on GKE with `dataplane_v2` or `network_policy` of `[cluster]`.
    /// Default `false`.
    #[serde(default, skip_serializing_if = "Network::is_open")]
    pub network_policy: Network,
    /// Labels; the operator copies them to everything it creates.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations; the operator copies them to everything it creates.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// `false`: it exists and is managed elsewhere. It is read, compared with this section and relied on, never
    /// written or deleted; groups of this stack may join it. `image` is then optional. Default `true`.
    #[serde(default, skip_serializing_if = "Manage::is_managed")]
    pub manage: Manage,
    /// `protect` and `depends_on`.
    #[serde(flatten)]
    pub lifecycle: Lifecycle,
}

/// Returns the effect of an edit. The operator reacts to changes of replicas and idle timeout, and reads everything else only
/// once. Source: `operator/controller/controller.py` of dask-kubernetes 2026.3.0.
fn effect(path: &FieldPath) -> (Effect, Option<&'static str>) {
    let at = |keys: &[&str]| FieldPath::keys(keys.iter().copied()).contains(path);
    if at(&["spec", "worker", "replicas"]) || at(&["spec", "idleTimeout"]) {
        return (Effect::InPlace, None);
    }
    if let Some(effect) = gang::effect(path).or_else(|| queued_workers::effect(path, &["spec", "worker"])) {
        return effect;
    }
    if at(&["metadata"]) {
        return (Effect::InPlace, Some("what the operator created keeps the old value"));
    }
    (Effect::Replace, Some("the operator reads it only when it creates the cluster"))
}

/// Lowers `[dask_cluster.KEY]` to the cluster, its groups and its autoscaler, without those that are external.
pub fn lower(key: &str, section: &DaskCluster, scope: &Scope) -> Vec<Resource> {
    let all = all(key, section, scope).into_iter();
    all.filter(|(_, managed)| *managed).map(|(resource, _)| resource).collect()
}

/// Returns the external resources that `[dask_cluster.KEY]` or its groups describe with `manage = false`. If the section does not
/// describe scheduler and workers, the cluster only has to exist; the scheduler's image is compared if the section gives one, and
/// so is the Service.
pub fn lower_external(key: &str, section: &DaskCluster, scope: &Scope) -> Vec<Resource> {
    let external = all(key, section, scope).into_iter().filter(|(_, managed)| !managed);
    let plain = section.scheduler == Scheduler::default() && section.worker == Worker::default();
    let read = external.map(|(resource, _)| {
        let mut resource = strip_generated_fields(resource);
        resource.create_only = Value::Null;
        resource.recreation = Recreation::Always;
        if resource.kind != KindId::DaskCluster {
            return resource;
        }
        if plain || section.image.is_empty() {
            let container = (!section.image.is_empty()).then(|| json!([{ "image": section.image }]));
            let idle = resource.body["spec"].get("idleTimeout").cloned();
            resource.body["spec"] = match container {
                Some(containers) => json!({ "scheduler": { "spec": { "containers": containers } } }),
                None => json!({}),
            };
            if let Some(idle) = idle {
                resource.body["spec"]["idleTimeout"] = idle;
            }
        } else if let Some(scheduler) =
            resource.body.pointer_mut("/spec/scheduler").and_then(Value::as_object_mut)
        {
            // How a load balancer is kept inside is its owner's to say.
            scheduler.remove("metadata");
            let mut said = json!({});
            section.scheduler.keys.add_metadata(&mut said);
            scheduler.extend(said.as_object().cloned().unwrap_or_default());
            if section.service == DaskService::default() {
                scheduler.remove("service");
            }
        }
        resource
    });
    read.collect()
}

/// Returns all resources that a section describes, each with true if the stack manages it.
fn all(key: &str, section: &DaskCluster, scope: &Scope) -> Vec<(Resource, bool)> {
    let (cluster, requests) = lower_cluster(key, section, scope);
    let code = section.pod_code(key, cluster.origin.clone());
    let files = code.resource(&cluster.address, scope);
    let joined = ParentCluster {
        address: &cluster.address,
        origin: &cluster.origin,
        name: section.live_name(key),
        namespace: section.namespace(),
        image: &section.image,
        config: &section.config,
        code: &code,
        queue: section.queue.as_deref(),
        priority: section.priority.as_deref(),
    };
    let groups = section.group.iter().flat_map(|(key, group)| {
        let (group, requests, is_managed) = {
            let (resource, requests) = group::lower(&joined, key, group, scope);
            (resource, requests, group.manage.is_managed())
        };
        let requests = requests.into_iter().flatten().map(|resource| (resource, true));
        [(group, is_managed)].into_iter().chain(requests)
    });
    let mut resources: Vec<(Resource, bool)> = groups.collect();
    resources.extend(requests.into_iter().flatten().map(|resource| (resource, true)));
    if let WorkerCountOwner::Autoscaler { min, max } = section.worker.replicas.owner() {
        let autoscaler = autoscaler::lower(&cluster, min, max, scope);
        resources.extend(autoscaler.map(|autoscaler| (autoscaler, section.manage.is_managed())));
    }
    // A cluster of others is theirs to delete.
    let mut cluster = cluster;
    let mut groups: Vec<ObjectId> = cluster.identity.object().map(api::default_group).into_iter().collect();
    let of_file = resources.iter().filter(|(resource, _)| resource.kind == KindId::DaskGroup);
    groups.extend(of_file.filter_map(|(group, _)| group.identity.object().cloned()));
    for (cause, after) in section.expirations().filter(|_| section.manage.is_managed()) {
        let made = expiry::lower(&cluster, cause, after, &groups, scope);
        cluster.depends_on.extend(made.last().map(|job| job.address.clone()));
        resources.extend(made.into_iter().map(|resource| (resource, true)));
    }
    let policy =
        network::lower(&cluster, &section.network_policy, &cluster.origin.key("network_policy"), scope);
    if let Some(policy) = policy.filter(|_| section.manage.is_managed()) {
        // No pod is open for a moment.
        cluster.depends_on.push(policy.address.clone());
        resources.push((policy, true));
    }
    if let Some(files) = files {
        cluster.depends_on.push(files.address.clone());
        resources.push((files, section.manage.is_managed()));
    }
    resources.insert(0, (cluster, section.manage.is_managed()));
    resources
}

/// Describes a live cluster in a few words.
pub fn summary(live: &Value) -> String {
    let phase = match text(&live["status"]["phase"]) {
        "" => "no phase yet",
        phase => phase,
    };
    let image = text(&live["spec"]["scheduler"]["spec"]["containers"][0]["image"]);
    let image = if image.is_empty() {
        String::new()
    } else {
        format!("{}, ", image.rsplit('/').next().unwrap_or(image))
    };
    format!("{image}{phase}")
}

impl Section for DaskCluster {
    fn head(&self) -> SectionHead<'_> {
        SectionHead {
            manage: self.manage,
            depends_on: &self.lifecycle.depends_on,
            namespace: self.namespace.as_deref(),
        }
    }

    fn live_name<'a>(&'a self, key: &'a str) -> Option<LiveName<'a>> {
        Some(LiveName::new(self.name.as_deref(), key, NameRule::Dask).within(self.namespace()))
    }

    fn labels(&self) -> Vec<Labels<'_>> {
        object_labels(&self.labels, &self.annotations)
    }

    fn pods(&self, path: &FieldPath) -> Vec<Pods<'_>> {
        let image = (path.key("image"), self.image.as_str());
        let mut pods = Vec::new();
        // Of a cluster of others the stack makes groups only.
        if self.is_managed() {
            pods.extend(self.own_pods(path));
        }
        pods.extend(self.group.iter().map(|(key, group)| group.pods_of(path.key("group").key(key), &image)));
        pods
    }

    fn environment(&self, path: &FieldPath) -> Vec<NeededVariable<'_>> {
        let external = external_sections(&self.group);
        let external: Vec<FieldPath> = external.map(|(key, _)| path.key("group").key(key)).collect();
        let pods = self.pods(path).into_iter().filter(|pods| !external.contains(&pods.path));
        environment_of(pods, self.given_namespace())
    }

    fn inner(&self) -> Vec<NestedSection<'_>> {
        self.group.iter().map(|(key, section)| NestedSection { field: "group", key, section }).collect()
    }
}

/// Workers with GPUs.
pub struct GpuWorkers<'a> {
    replicas: Replicas,
    pub image: &'a str,
    pub keys: &'a PodKeys,
    args: &'a [String],
}

impl GpuWorkers<'_> {
    /// Returns how many processes there are at least. `dask cuda worker` has one for each GPU; other command lines have one.
    pub fn processes(&self) -> u32 {
        let each = if self.args.is_empty() { self.keys.gpus() } else { 1 };
        self.replicas.least().saturating_mul(each)
    }
}

impl DaskCluster {
    /// Returns the pods of its scheduler and of its default workers, also with `manage = false`.
    pub fn own_pods(&self, path: &FieldPath) -> [Pods<'_>; 2] {
        let Self { scheduler, worker, image, .. } = self;
        let image = (path.key("image"), image.as_str());
        let scheduler = scheduler.pods(path.key("scheduler"), image.clone());
        [scheduler, worker.pods(path.key("worker"), image, worker.replicas.most())]
    }

    pub fn live_name<'a>(&'a self, key: &'a str) -> &'a str {
        self.name.as_deref().unwrap_or(key)
    }

    pub fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or("default")
    }

    /// Returns its code for pods; `origin` is the path of the section.
    fn pod_code(&self, key: &str, origin: FieldPath) -> PodCode<'_> {
        PodCode::new(self.live_name(key), self.namespace(), self.code.at(&origin))
    }

    /// Returns true if some of its workers have cuDF's spilling.
    pub fn has_cudf_spill(&self) -> bool {
        self.cudf_spill(&FieldPath::root()).is_some()
    }

    /// Returns the path of the key that switches cuDF's spilling on, for some of its workers; `origin` is the path of the section.
    pub fn cudf_spill(&self, origin: &FieldPath) -> Option<FieldPath> {
        let worker = self.worker.device_memory.cudf_spill.then(|| origin.key("worker"));
        let group = self.group.iter().find(|(_, group)| group.device_memory.cudf_spill);
        let group = group.map(|(name, _)| origin.key("group").key(name));
        worker.or(group).map(|section| section.key("cudf_spill"))
    }

    /// Returns its workers and groups that have GPUs.
    pub fn gpu_workers(&self) -> impl Iterator<Item = GpuWorkers<'_>> {
        let Worker { replicas, keys, args, .. } = &self.worker;
        let worker = GpuWorkers { replicas: *replicas, image: &self.image, keys, args };
        let groups = self.group.values().map(|group| GpuWorkers {
            replicas: group.replicas,
            image: group.image.as_deref().unwrap_or(&self.image),
            keys: &group.keys,
            args: &group.args,
        });
        std::iter::once(worker).chain(groups).filter(|workers| workers.keys.gpus() > 0)
    }

    pub fn recreation(&self) -> Recreation {
        match self.expirations().next() {
            Some(_) => Recreation::Once { timeout: None },
            None => self.idle_timeout.map_or(Recreation::Always, IdleTimeout::recreation),
        }
    }

    /// Returns the reasons why CronJobs delete it, with their durations.
    pub fn expirations(&self) -> impl Iterator<Item = (ExpiryCause, &After)> {
        let keys = [(ExpiryCause::Ttl, &self.ttl), (ExpiryCause::IdleStop, &self.idle_stop)];
        keys.into_iter().filter_map(|(cause, after)| Some((cause, after.as_ref()?)))
    }
}

/// Lowers the cluster, and the request for its workers' nodes.
fn lower_cluster(key: &str, section: &DaskCluster, scope: &Scope) -> (Resource, Option<[Resource; 2]>) {
    let (name, namespace) = (section.live_name(key), section.namespace());
    let origin = FieldPath::keys(["dask_cluster", key]);
    let parts = SchedulerAndWorkers {
        image: &section.image,
        config: (&section.config, origin.key("config")),
        code: section.pod_code(key, origin.clone()),
        cudf_spill: section.cudf_spill(&origin),
        scheduler: (&section.scheduler, origin.clone()),
        worker: (&section.worker, origin.clone()),
    };
    let mut provenance = provenance(&origin);
    let mut metadata = metadata(name, section, scope);
    let (replicas, create_only) = section.worker.replicas.split();
    let mut spec = parts.spec(scope);
    if let Some(replicas) = replicas {
        spec["worker"]["replicas"] = json!(replicas);
    }
    if let Some(idle) = section.idle_timeout {
        spec["idleTimeout"] = json!(idle.seconds());
    }
    let path = FieldPath::keys(["spec", "scheduler", "service"]);
    spec["scheduler"]["service"] = section.service.body(name, &path, &origin.key("service"), &mut provenance);
    let annotations = section.service.annotations(scope.target.gke.is_some());
    if !annotations.is_empty() {
        spec["scheduler"]["metadata"] = json!({ "annotations": annotations });
    }
    let (most, number) = (section.worker.replicas.most(), origin.key("worker").key("replicas"));
    let (queue, priority) = (section.queue.as_deref(), section.priority.as_deref());
    if let Some(gang) = Gang::from_queue(queue, priority, (name, 1 + most), scope) {
        gang.add_labels(&mut metadata);
        gang::set_cluster_roles(&mut spec);
        provenance.extend(gang::provenance(&FieldPath::keys(["metadata"]), &origin, &number));
    }
    parts.merge_into(&mut spec, &FieldPath::keys(["spec"]), &mut provenance);
    let [scheduler, workers] = parts.pod_keys();
    let mut depends_on = pods::dependencies(&[&scheduler, &workers], namespace, scope);
    depends_on.extend(queue.map(|queue| Address::of("queue", queue)));
    depends_on.extend(section.lifecycle.depends_on.iter().map(Address::new));
    let (identity, body) = new_object(api::cluster(), metadata, spec);
    let mut cluster = Resource {
        address: Address::of("dask_cluster", key),
        kind: KindId::DaskCluster,
        identity,
        body,
        create_only,
        provenance,
        depends_on,
        origin: origin.clone(),
        protect: section.lifecycle.protect,
        recreation: section.recreation(),
    };
    let request = WorkerRequest {
        path: &["spec", "worker"],
        number: (most, number),
        workers: origin.key("worker"),
        image: origin.key("image"),
        keys: &section.worker.keys,
        longest: section.max_run_duration.as_deref(),
        name_by_digest: true,
    };
    let capacity = section.capacity.filter(|_| section.manage.is_managed());
    let requests = queued_workers::request_workers(capacity, &mut cluster, request, scope);
    (cluster, requests)
}

fn metadata(name: &str, section: &DaskCluster, scope: &Scope) -> Value {
    let labels = scope.labels();
    let mut metadata = json!({ "name": name, "namespace": section.namespace(), "labels": labels });
    for (label, value) in &section.labels {
        metadata["labels"][label] = json!(value);
    }
    if !section.annotations.is_empty() {
        metadata["annotations"] = json!(section.annotations);
    }
    metadata
}

fn provenance(origin: &FieldPath) -> Vec<(FieldPath, FieldPath)> {
    vec![
        (FieldPath::keys(["metadata", "labels"]), origin.key("labels")),
        (FieldPath::keys(["metadata", "annotations"]), origin.key("annotations")),
        (FieldPath::keys(["spec", "idleTimeout"]), origin.key("idle_timeout")),
        (FieldPath::keys(["spec", "scheduler", "service"]), origin.key("service")),
        (FieldPath::keys(["spec", "scheduler", "metadata"]), origin.key("service")),
        (FieldPath::keys(["spec", "worker", "replicas"]), origin.key("worker").key("replicas")),
    ]
}

/// Returns the steps of a change. A number that differs only on the default group is written to the group: the cluster already
/// has the desired number, and the operator reacts only to a change.
fn change_steps(context: &ChangeContext) -> Vec<Step> {
    let replicas = context.body()["spec"]["worker"]["replicas"].as_u64();
    let facts = Facts::Workers { replicas, cluster: None, gang: gang::name_in_body(context.body()) };
    let mut steps = object_change_steps(context, KindId::DaskCluster, facts, DEADLINE);
    let path = api::replicas_path();
    let live = context.live.and_then(|live| path.find(live));
    let scaled = context.fields.iter().find(|field| {
        field.path == path && field.drift.is_some() && field.after.is_some() && field.after.as_ref() == live
    });
    if let (Action::Update, Some(field), Some(cluster)) = (context.action, scaled, context.object()) {
        let replicas = field.after.clone().unwrap_or_default();
        let call = Step::Call(scale_call(&api::default_group(cluster), context.owner, replicas));
        // Nothing else of the cluster differs: it is not written.
        if context.fields.len() == 1 {
            steps.retain(|step| !matches!(step, Step::Call(_)));
        }
        let index = steps.iter().position(|step| matches!(step, Step::Await(_))).unwrap_or(steps.len());
        steps.insert(index, call);
    }
    steps
}

/// Reads the cluster, the objects that the operator creates for it, and the scheduler's counts.
fn queries(wait: &Await) -> Queries {
    let mut queries = own_object_query(wait);
    let Identity::Object(cluster) = &wait.identity else { return queries };
    let namespace = cluster.namespace.as_deref();
    let one = |gvk: Gvk, suffix: &str| Query {
        api: Api::Kubernetes,
        path: format!("{}/{}-{suffix}", gvk.collection(namespace), cluster.name),
    };
    let deployments = gvk("apps", "v1", "Deployment", "deployments");
    if wait.until == Until::Handled {
        return queries;
    }
    queries.part(Part::Scheduler, one(deployments.clone(), "scheduler"));
    queries.part(Part::Service, one(gvk("", "v1", "Service", "services"), "scheduler"));
    queries.part(Part::Group, one(api::group(), "default"));
    let workers = [(CLUSTER_LABEL, cluster.name.as_str()), (COMPONENT_LABEL, "worker")];
    queries.part(Part::Workers, labelled(&deployments, namespace, workers));
    queries.part(Part::Pods, worker_count::pods(namespace, &cluster.name));
    workload::query(&mut queries, &wait.identity, wait.gang());
    if wait.until.is_ready() {
        queries.neighbor(Neighbor::Counts, worker_count::counts(namespace, &cluster.name));
    }
    // DaskAutoscalers write the number of workers that this wait waits for.
    if wait.until == Until::Ready && wait.workers().is_some() {
        let path = api::autoscaler().collection(namespace);
        queries.neighbor(Neighbor::Autoscalers, Query { api: Api::Kubernetes, path });
    }
    queries
}

/// A live cluster and the objects that its readiness depends on.
struct Related<'a> {
    cluster: &'a Value,
    scheduler: &'a Value,
    service: &'a Value,
    group: &'a Value,
    workers: &'a Value,
    pods: &'a Value,
    registered: Option<RegisteredWorkers>,
    waiting: Option<workload::WaitReason>,
    autoscalers: Option<&'a Value>,
}

impl<'a> Related<'a> {
    fn of(wait: &Await, found: &QueryResults<'a>) -> Result<Self, MissingQuery> {
        let pods = found.get(Part::Pods)?;
        Ok(Self {
            cluster: found.own_object(),
            scheduler: found.get(Part::Scheduler)?,
            service: found.get(Part::Service)?,
            group: found.get(Part::Group)?,
            workers: found.get(Part::Workers)?,
            pods,
            registered: found.find(Neighbor::Counts).map(|counts| RegisteredWorkers::of(pods, counts)),
            waiting: workload::wait_reason(found, wait.gang(), pods),
            autoscalers: found.find(Neighbor::Autoscalers),
        })
    }
}

fn readiness(wait: &Await, found: &QueryResults) -> Result<Readiness, MissingQuery> {
    match wait.until {
        Until::Handled => Ok(kopf::readiness(found.own_object())),
        Until::Ready | Until::StillReady | Until::Gone | Until::Idle => {
            Ok(ready(wait, Related::of(wait, found)?))
        }
    }
}

/// Returns the readiness of a cluster. The phase is not reliable: `Running` means that there is a Service, and a healthy cluster
/// may stay `Pending` forever. So scheduler, Service, default group and workers are read.
fn ready(wait: &Await, related: Related<'_>) -> Readiness {
    let Related { cluster, scheduler, service, group, workers, pods, registered, waiting, autoscalers } =
        related;
    let phase = text(&cluster["status"]["phase"]);
    if !cluster.is_object() {
        return Readiness::progressing("not created yet");
    }
    if phase == "Error" {
        return Readiness::Failed("the operator gave it phase Error: its name is not valid".into());
    }
    let handled = is_handled(cluster);
    if phase.is_empty() || handled == Some(false) || is_handled(group) == Some(false) {
        return pods::unhandled(wait, group);
    }
    if let Some(reason) = PodState::each(pods).find_map(broken) {
        return Readiness::Failed(reason);
    }
    if let Some(waiting) = waiting {
        return waiting.readiness();
    }
    match deployment_ready(scheduler) {
        Readiness::Ready | Readiness::Impaired(_) => {}
        // The operator's Deployments give up after ten minutes, and come up all the same once there is a node.
        Readiness::Progressing(_)
        | Readiness::Unhandled(_)
        | Readiness::Stalled(_)
        | Readiness::Queued(_)
        | Readiness::Failed(_) => {
            return Readiness::Progressing(with_pods("scheduler not ready", pods, "scheduler"));
        }
    }
    if !service.is_object() {
        return Readiness::progressing("the scheduler has no Service yet");
    }
    let balanced = service["spec"]["type"] == "LoadBalancer";
    if balanced && service["status"]["loadBalancer"]["ingress"].as_array().is_none_or(Vec::is_empty) {
        return Readiness::progressing("the load balancer has no address yet");
    }
    if !group.is_object() {
        return Readiness::progressing("the default worker group does not exist yet");
    }
    let name = format!("{}-default", text(&cluster["metadata"]["name"]));
    let number_is_final = handled == Some(true);
    Workers { wait, group, name: &name, workers, pods, registered, number_is_final, autoscalers }.ready()
}

/// Returns the `status` line: the phase that the operator gave, and the number of workers.
fn status_line(wait: &Await, found: &QueryResults) -> Result<StatusLine, MissingQuery> {
    let Related { cluster, scheduler, service, group, workers, pods, registered, waiting, autoscalers: _ } =
        Related::of(wait, found)?;
    let phase = match text(&cluster["status"]["phase"]) {
        "" => "no phase yet",
        phase => phase,
    };
    let name = format!("{}-default", text(&cluster["metadata"]["name"]));
    let own = |worker: &&Value| worker["metadata"]["labels"][GROUP_LABEL] == *name;
    let workers: Vec<&Value> = workers["items"].as_array().into_iter().flatten().filter(own).collect();
    let tally = WorkerCounts::of(wait, group, &workers, pods, registered);
    let scheduler = deployment_ready(scheduler) == Readiness::Ready;
    let down = if scheduler { "" } else { "scheduler not ready; " };
    let ingress = &service["status"]["loadBalancer"]["ingress"][0];
    let address = ["ip", "hostname"].into_iter().find_map(|key| ingress[key].as_str());
    let reached = address.map(|address| format!("; at {address}")).unwrap_or_default();
    let mut facts = vec![
        ("address", json!(address)),
        ("phase", cluster["status"]["phase"].clone()),
        ("scheduler_ready", json!(scheduler)),
    ];
    facts.extend(tally.facts());
    if let Some(waiting) = waiting {
        facts.extend(waiting.facts());
        let line = format!("{}; {}", waiting.line(), tally.line(scheduler));
        return Ok(StatusLine { line, facts, ..StatusLine::default() });
    }
    let lacks = workload::note(found).map(|note| format!("; {note}")).unwrap_or_default();
    Ok(StatusLine {
        line: format!("{phase}; {down}{}{reached}{lacks}", tally.line(scheduler)),
        facts,
        pending: pending(pods),
        ..StatusLine::default()
    })
}

#[cfg(test)]
#[path = "cluster_tests.rs"]
mod tests;
