//! Dask jobs: programs that run once, each with its own Dask cluster.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::code::{Code, CodeKeys};
use crate::dask::cluster::DaskCluster;
use crate::dask::device_memory;
use crate::dask::network::{self, Network};
use crate::dask::parts::{Scheduler, SchedulerAndWorkers, Worker};
use crate::dask::pods::{self, PodSpecKeys};
use crate::dask::queued_workers::{self, WorkerCapacity, WorkerRequest};
use crate::dask::service::DaskService;
use crate::dask::{api, idle_wait, worker_count, workers};
use crate::dask_config::DaskConfig;
use crate::descriptions::{counted, image, workers};
use crate::env::{self, NeededVariable};
use crate::json::{is_false, text};
use crate::kind::{
    ChangeContext, Compare, DeletionBlocker, FreedCapacity, Kind, MissingQuery, Part, Queries, QueryResults,
    StopEffect, own_object_query,
};
use crate::kubernetes::calls::object_change_steps;
use crate::kubernetes::kueue::gang::{self, Gang};
use crate::kubernetes::kueue::workload;
use crate::kubernetes::object::{gvk, new_object, strip_generated_fields};
use crate::kubernetes::pod_code::PodCode;
use crate::kubernetes::pod_state::{ContainerState, PodState};
use crate::kubernetes::pods::{broken, gpus, gpus_held, pending};
use crate::scope::Scope;
use crate::section::{Lifecycle, LiveName, Manage, NameRule, PodKeys, PodRole, Pods, Section, SectionHead};
use crate::status::StatusLine;
use model::address::{Address, FieldPath};
use model::resource::{
    Api, Await, Effect, Facts, Identity, KindId, ObjectId, Query, Readiness, Recreation, Resource, Step,
};

/// Seconds until the operator has created the program's pod.
const START_TIMEOUT: u32 = 300;
/// Seconds for which an apply follows a job that sets no timeout.
const DEFAULT_JOB_TIMEOUT: u32 = 3600;
/// The path of its workers in the body.
const WORKER: [&str; 4] = ["spec", "cluster", "spec", "worker"];

pub const KIND: Kind = Kind {
    rank: 63,
    deletion_blocker: DeletionBlocker::Operator,
    freed_capacity: FreedCapacity::Nodes,
    // Their clusters, which have the files that the job was started with.
    also_read: || vec![api::cluster()],
    compare: Compare::Kubernetes(effect),
    change_steps: |context| workers::change_steps(context, KindId::DaskJob, change_steps(context)),
    queries,
    readiness,
    status_line,
    plan_summary: about,
    pods: pods::of_cluster,
    endpoint: api::endpoint,
    address: |object| Address::of("dask_job", &object.name),
    stop_effect: StopEffect::DeletesWhile(|job| idle_wait::job_readiness(job) != Readiness::Ready),
    runs_to_completion: true,
    has_workers: true,
    ..Kind::DEFAULT
};

fn about(resource: &Resource) -> Vec<String> {
    let spec = &resource.body["spec"];
    let worker = &spec["cluster"]["spec"]["worker"];
    let create_only = &resource.create_only["spec"]["cluster"]["spec"]["worker"];
    vec![workers(worker, create_only), image(&spec["job"]["spec"])]
}

/// A program that runs once, beside a Dask cluster of its own that the operator removes when it ends. A changed job is
/// a new run, and needs approval by its address.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct DaskJob {
    /// The live name, at most 53 characters, also of its cluster; defaults to the section's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The namespace. Default `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The `[dask_cluster.NAME]` whose image, scheduler and workers its own cluster copies. Give this or `image`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub like: Option<String>,
    /// On a host: the `[environment.NAME]` of the program and of its cluster. Default that of `like`, else the only one of the
    /// file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// The image of the program, and of scheduler and workers unless `like` gives theirs. Not used on a host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The program: arguments of the image's entry point, `["python", "train.py"]`. On a host a command, whose `python` is that of the
    /// environment.
    pub args: Vec<String>,
    /// Dask's configuration of the program and of its cluster, as in `[dask_cluster]`. Default that of `like`.
    #[serde(default, skip_serializing_if = "DaskConfig::is_empty")]
    pub config: DaskConfig,
    /// Your own code. Default that of `like`.
    #[serde(flatten)]
    pub code: CodeKeys,
    /// The resources and the placement of the program's pod.
    #[serde(flatten)]
    pub keys: PodKeys,
    /// The scheduler of its cluster, when it is not `like` another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<Scheduler>,
    /// The workers of its cluster, when it is not `like` another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<Worker>,
    /// The number of workers of its cluster. Default as in `worker` or `like`; an autoscaler's `max`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10000))]
    pub replicas: Option<u32>,
    /// The `[queue.NAME]` that it waits in: its program, the scheduler and the workers start together when the queue has
    /// room for all of them, or not at all. It is not copied by `like`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// How urgent it is among the work of its queue: one of the queue's `priorities`. What is more urgent starts first; nothing
    /// that runs is stopped for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<String>,
    /// `"queued"`: nodes for all workers of its cluster are requested at once from a pool with `queued = true`, and the job is created when they are
    /// there, which may take days. Without Kueue; with it, use `queue`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<WorkerCapacity>,
    /// How long the nodes of `capacity = "queued"` last: `"12h"`. At most 7 days, and 7 days when nothing is said. Then they go,
    /// with what runs on them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_run_duration: Option<String>,
    /// `true` creates a NetworkPolicy for the pods of the job and of its cluster, as in `[dask_cluster]`. Default as in `like`, else
    /// `false`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_policy: Option<Network>,
    /// The reaction to a failure of the program. Default `never`: the job has failed.
    #[serde(default)]
    pub restart: Restart,
    /// Waits for it to end and shows the end of its log; a failed job fails the apply. Default `false`: the apply
    /// ends when the job has begun.
    #[serde(default, skip_serializing_if = "is_false")]
    pub wait: bool,
    /// Seconds that `wait` lasts at most. Default 3600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub timeout: Option<u32>,
    /// `false`: it exists and is managed elsewhere. It is read, compared with this section and relied on, never
    /// written or deleted. Default `true`.
    #[serde(default, skip_serializing_if = "Manage::is_managed")]
    pub manage: Manage,
    /// `protect` and `depends_on`.
    #[serde(flatten)]
    pub lifecycle: Lifecycle,
}

/// The reaction to a failure of a job's program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Restart {
    /// The job has failed.
    #[default]
    Never,
    /// It is started again, for ever.
    OnFailure,
}

impl Restart {
    /// Returns the `restartPolicy` of its pod.
    fn policy(self) -> &'static str {
        match self {
            Self::Never => "Never",
            Self::OnFailure => "OnFailure",
        }
    }
}

impl Section for DaskJob {
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

    fn pods(&self, path: &FieldPath) -> Vec<Pods<'_>> {
        let Self { keys, args, scheduler, worker, .. } = self;
        let image = self.image.as_deref().unwrap_or_default();
        let image_path = path.key("image");
        let own = Pods {
            path: path.clone(),
            role: PodRole::Program,
            replicas: 1,
            image,
            image_path: image_path.clone(),
            args,
            keys,
        };
        let image = (image_path, image);
        let scheduler = scheduler.as_ref().map(|own| own.pods(path.key("scheduler"), image.clone()));
        let worker = worker.as_ref().map(|own| {
            own.pods(path.key("worker"), image.clone(), self.replicas.unwrap_or(own.replicas.most()))
        });
        [Some(own), scheduler, worker].into_iter().flatten().collect()
    }
}

impl DaskJob {
    /// Returns the variables that the parts copied from a section need in the job's own namespace.
    pub fn copied_environment<'a>(&'a self, like: Option<&'a DaskCluster>) -> Vec<NeededVariable<'a>> {
        let Some((like, from)) = like.zip(self.like.as_ref()) else { return Vec::new() };
        let section = FieldPath::keys(["dask_cluster", from]);
        let scheduler = ("scheduler", &like.scheduler.keys.env, self.scheduler.is_none());
        let worker = ("worker", &like.worker.keys.env, self.worker.is_none());
        let copied = [scheduler, worker].into_iter().filter(|(_, _, is_copied)| *is_copied);
        copied
            .flat_map(|(part, env, _)| env::needed(env, self.namespace(), &section.key(part).key("env")))
            .collect()
    }

    /// Returns Dask's configuration and the path of its table: its own, or that of the section that it copies.
    pub fn config<'a>(
        &'a self,
        like: Option<&'a DaskCluster>,
        origin: &FieldPath,
    ) -> (&'a DaskConfig, FieldPath) {
        match self.like.as_ref().zip(like).filter(|_| self.config.is_empty()) {
            Some((key, like)) => (&like.config, FieldPath::keys(["dask_cluster", key, "config"])),
            None => (&self.config, origin.key("config")),
        }
    }

    /// Returns its code: its own, or that of the section that it copies.
    pub fn code<'a>(&'a self, like: Option<&'a DaskCluster>, origin: &FieldPath) -> Code<'a> {
        let copied = self.like.as_ref().zip(like).filter(|_| self.manage.is_managed());
        self.code
            .at(origin)
            .or(copied.map(|(key, like)| like.code.at(&FieldPath::keys(["dask_cluster", key]))))
    }

    /// Returns the NetworkPolicy of its pods: its own, or that of the section that it copies.
    fn policy(&self, job: &Resource, like: Option<&DaskCluster>, scope: &Scope) -> Option<Resource> {
        let copied = || Some((&like?.network_policy, FieldPath::keys(["dask_cluster", self.like.as_ref()?])));
        let own = self.network_policy.as_ref().map(|own| (own, job.origin.clone()));
        let (network, section) = own.or_else(copied).filter(|_| self.manage.is_managed())?;
        network::lower(job, network, &section.key("network_policy"), scope)
    }

    pub fn live_name<'a>(&'a self, key: &'a str) -> &'a str {
        self.name.as_deref().unwrap_or(key)
    }

    pub fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or("default")
    }
}

/// Returns the pod of a job's program. Source: `operator/controller/controller.py` of dask-kubernetes 2026.3.0.
pub fn runner(job: &ObjectId) -> ObjectId {
    ObjectId {
        gvk: gvk("", "v1", "Pod", "pods"),
        namespace: job.namespace.clone(),
        name: format!("{}-runner", job.name),
    }
}

/// Returns the effect of a change: replacement, as the operator reads a job once. Source: as above.
fn effect(path: &FieldPath) -> (Effect, Option<&'static str>) {
    if let Some(effect) = gang::effect(path).or_else(|| queued_workers::effect(path, &WORKER)) {
        return effect;
    }
    if FieldPath::keys(["metadata"]).contains(path) {
        return (Effect::InPlace, Some("what the operator created keeps the old value"));
    }
    (Effect::Replace, Some("a job runs once: a changed job is deleted and runs again"))
}

/// Lowers `[dask_job.KEY]` to the job, and the request for its workers' nodes; `like` is the section that it names.
pub fn lower(key: &str, section: &DaskJob, like: Option<&DaskCluster>, scope: &Scope) -> Vec<Resource> {
    let (name, namespace) = (section.live_name(key), section.namespace());
    let origin = FieldPath::keys(["dask_job", key]);
    let image = section.image.as_deref().or(like.map(|like| like.image.as_str())).unwrap_or_default();
    let defaults = (Scheduler::default(), Worker::default());
    let copied_image = like.map_or(image, |like| &like.image);
    let parts = parts(section, &origin, (name, copied_image), (like, &defaults));
    let program = pod_keys(section, image, parts.config.0);
    let (worker, worker_of) = &parts.worker;
    let replicas = section.replicas.unwrap_or(worker.replicas.most());
    let number = number_from(&origin, section);
    let mut provenance = provenance(&origin, section);
    let mut metadata = json!({ "name": name, "namespace": namespace, "labels": scope.labels() });
    let mut job = json!({ "spec": pods::program(&program, scope) });
    let container = FieldPath::keys(["spec", "job", "spec", "containers"]).index(0);
    if let Some(spill) = &parts.cudf_spill {
        let made = &mut job["spec"]["containers"][0];
        device_memory::add_spill_to_container(made, &section.keys.env);
        provenance.extend(device_memory::spill_provenance(made, &section.keys.env, &container, spill));
    }
    job["spec"]["restartPolicy"] = json!(section.restart.policy());
    parts.code.add_to(&mut job["spec"], &section.keys.env, None);
    provenance.extend(parts.code.provenance(&job["spec"], &FieldPath::keys(["spec", "job", "spec"]), None));
    let mut cluster = parts.spec(scope);
    cluster["worker"]["replicas"] = json!(replicas);
    let path = FieldPath::keys(["spec", "cluster", "spec"]);
    let service = path.key("scheduler").key("service");
    cluster["scheduler"]["service"] = DaskService::default().body(name, &service, &origin, &mut provenance);
    let (queue, priority) = (section.queue.as_deref(), section.priority.as_deref());
    if let Some(gang) = Gang::from_queue(queue, priority, (name, 2 + replicas), scope) {
        gang.add_labels(&mut metadata);
        gang::set_role(&mut job, "runner");
        gang::set_cluster_roles(&mut cluster);
        provenance.extend(gang::provenance(&FieldPath::keys(["metadata"]), &origin, &number));
    }
    let (config, config_of) = &parts.config;
    provenance.extend(config.container_provenance(&job["spec"]["containers"][0], &container, config_of));
    section.keys.merge_into(&mut job, &FieldPath::keys(["spec", "job"]), &origin, &mut provenance);
    parts.merge_into(&mut cluster, &path, &mut provenance);
    let [scheduler, workers] = parts.pod_keys();
    let mut depends_on = pods::dependencies(&[&program, &scheduler, &workers], namespace, scope);
    depends_on.extend(queue.map(|queue| Address::of("queue", queue)));
    depends_on.extend(section.lifecycle.depends_on.iter().map(Address::new));
    let spec = json!({ "job": job, "cluster": { "spec": cluster } });
    let (identity, body) = new_object(api::job(), metadata, spec);
    let mut job = Resource {
        address: Address::of("dask_job", key),
        kind: KindId::DaskJob,
        identity,
        body,
        create_only: Value::Null,
        provenance,
        origin,
        depends_on,
        protect: section.lifecycle.protect,
        recreation: Recreation::Once {
            timeout: section.wait.then(|| section.timeout.unwrap_or(DEFAULT_JOB_TIMEOUT)),
        },
    };
    let request = WorkerRequest {
        path: &WORKER,
        number: (replicas, number),
        workers: worker_of.key("worker"),
        image: worker_of.key("image"),
        keys: &worker.keys,
        longest: section.max_run_duration.as_deref(),
        // The settings that the request copies may change while the job runs, and the job keeps its nodes.
        name_by_digest: false,
    };
    let capacity = section.capacity.filter(|_| section.manage.is_managed());
    let requests = queued_workers::request_workers(capacity, &mut job, request, scope);
    let policy = section.policy(&job, like, scope);
    let files = parts.code.resource(&job.address, scope);
    job.depends_on.extend(policy.iter().chain(&files).map(|before| before.address.clone()));
    [job].into_iter().chain(requests.into_iter().flatten()).chain(policy).chain(files).collect()
}

/// Returns the scheduler and the workers of a job's cluster: its own, those of the section that it copies, or the default ones.
fn parts<'a>(
    section: &'a DaskJob,
    origin: &FieldPath,
    (name, image): (&str, &'a str),
    (like, defaults): (Option<&'a DaskCluster>, &'a (Scheduler, Worker)),
) -> SchedulerAndWorkers<'a> {
    let copied = section.like.as_ref().map(|like| FieldPath::keys(["dask_cluster", like]));
    let of = |is_own: bool| copied.clone().filter(|_| !is_own).unwrap_or_else(|| origin.clone());
    let DaskJob { scheduler, worker, .. } = section;
    let at = (of(scheduler.is_some()), of(worker.is_some()));
    let scheduler = scheduler.as_ref().or(like.map(|like| &like.scheduler)).unwrap_or(&defaults.0);
    let worker = worker.as_ref().or(like.map(|like| &like.worker)).unwrap_or(&defaults.1);
    let config = section.config(like, origin);
    let cudf_spill = worker.device_memory.cudf_spill.then(|| at.1.key("worker").key("cudf_spill"));
    let code = PodCode::new(name, section.namespace(), section.code(like, origin));
    let (scheduler, worker) = ((scheduler, at.0), (worker, at.1));
    SchedulerAndWorkers { image, config, code, cudf_spill, scheduler, worker }
}

/// Returns the external job that `[dask_job.KEY]` describes with `manage = false`.
pub fn lower_external(
    key: &str,
    section: &DaskJob,
    like: Option<&DaskCluster>,
    scope: &Scope,
) -> Vec<Resource> {
    lower(key, section, like, scope).into_iter().map(strip_generated_fields).collect()
}

fn pod_keys<'a>(section: &'a DaskJob, image: &'a str, config: &'a DaskConfig) -> PodSpecKeys<'a> {
    PodSpecKeys { image, args: &section.args, keys: &section.keys, resources: None, config: Some(config) }
}

fn provenance(origin: &FieldPath, section: &DaskJob) -> Vec<(FieldPath, FieldPath)> {
    let own = FieldPath::keys(["spec", "job", "spec"]);
    let image = match (&section.like, &section.image) {
        (Some(like), None) => FieldPath::keys(["dask_cluster", like, "image"]),
        _ => origin.key("image"),
    };
    let mut provenance = pods::provenance(&own, origin, &image);
    provenance.push((own.key("restartPolicy"), origin.key("restart")));
    let cluster = FieldPath::keys(["spec", "cluster", "spec"]);
    provenance.push((cluster.key("worker").key("replicas"), number_from(origin, section)));
    provenance
}

/// Returns the path of the number of workers in the stack file.
pub fn number_from(origin: &FieldPath, section: &DaskJob) -> FieldPath {
    match (&section.like, &section.replicas) {
        (Some(like), None) => FieldPath::keys(["dask_cluster", like]).key("worker").key("replicas"),
        _ => origin.key("replicas"),
    }
}

fn change_steps(context: &ChangeContext) -> Vec<Step> {
    let runner = context.object().map(runner);
    follow(context, KindId::DaskJob, (gang::name_in_body(context.body()), START_TIMEOUT), runner)
}

/// Returns how an apply follows a job: its facts, and the seconds until it has begun. They are not part of the job's object, so
/// changing them does not rerun the job.
pub fn follow(
    context: &ChangeContext,
    kind: KindId,
    (gang, starts): (Option<String>, u32),
    program: Option<ObjectId>,
) -> Vec<Step> {
    let wait = context.resource.and_then(|resource| match resource.recreation {
        Recreation::Once { timeout } => timeout,
        Recreation::Always => None,
    });
    let facts = Facts::Job { to_the_end: wait.is_some(), gang };
    let mut steps = object_change_steps(context, kind, facts, wait.unwrap_or(starts));
    let makes = context.action.creates();
    if let (Some(_), true, Some(pod)) = (wait, makes, program) {
        let end =
            steps.iter().rposition(|step| matches!(step, Step::Await(_))).map_or(steps.len(), |at| at + 1);
        steps.insert(end, Step::ReadLog { pod, expect: None });
    }
    steps
}

/// Reads the job, its program's pod, its cluster, and the cluster's pods.
fn queries(wait: &Await) -> Queries {
    let mut queries = own_object_query(wait);
    let Identity::Object(job) = &wait.identity else { return queries };
    let namespace = job.namespace.as_deref();
    let at = |path: String| Query { api: Api::Kubernetes, path };
    queries.part(Part::Program, at(runner(job).path()));
    queries.part(Part::Cluster, at(format!("{}/{}", api::cluster().collection(namespace), job.name)));
    queries.part(Part::Pods, worker_count::pods(namespace, &job.name));
    workload::query(&mut queries, &wait.identity, wait.gang());
    queries
}

/// Returns the readiness, from the operator's states of a job. Source: as above.
fn readiness(wait: &Await, found: &QueryResults) -> Result<Readiness, MissingQuery> {
    let (job, runner, pods) = (found.own_object(), found.get(Part::Program)?, found.get(Part::Pods)?);
    Ok(followed(wait, job, (runner, pods), workload::wait_reason(found, wait.gang(), pods)))
}

fn followed(
    wait: &Await,
    job: &Value,
    (runner, pods): (&Value, &Value),
    waiting: Option<workload::WaitReason>,
) -> Readiness {
    if !job.is_object() {
        return Readiness::progressing("not created yet");
    }
    let to_the_end = matches!(wait.facts, Facts::Job { to_the_end: true, .. });
    let status = text(&job["status"]["jobStatus"]);
    match status {
        "Successful" => return Readiness::Ready,
        "Failed" if to_the_end => return Readiness::Failed(why_failed(runner)),
        "" => return Readiness::progressing("not yet handled by the Dask operator"),
        "JobCreated" => {
            return Readiness::progressing("the Dask operator has not created its cluster yet");
        }
        _ => {}
    }
    // The operator calls a job created, and running, while all of its pods are held back.
    if let Some(waiting) = waiting.filter(|_| status != "Failed") {
        return waiting.readiness();
    }
    if !to_the_end {
        return Readiness::Ready;
    }
    if let Some(reason) = PodState::each(pods).find_map(broken) {
        return Readiness::Failed(reason);
    }
    let what = format!("{status}, not finished yet");
    Readiness::Progressing(pods::with_pods(&what, pods, "job-runner"))
}

fn why_failed(runner: &Value) -> String {
    let mut codes = PodState(runner).containers().filter_map(ContainerState::exit_code);
    match codes.find(|code| *code != 0) {
        Some(code) => format!("its program failed with exit code {code}"),
        None => "its program failed".to_owned(),
    }
}

/// Returns the `status` line: the job's stage, its program and its cluster.
fn status_line(wait: &Await, found: &QueryResults) -> Result<StatusLine, MissingQuery> {
    let (job, runner) = (found.own_object(), found.get(Part::Program)?);
    let (cluster, pods) = (found.get(Part::Cluster)?, found.get(Part::Pods)?);
    let phase = match text(&job["status"]["jobStatus"]) {
        "" => "not seen yet",
        phase => phase,
    };
    let program = match PodState(runner).phase() {
        "" => "no program yet".to_owned(),
        phase => format!("program {phase}"),
    };
    let workers = cluster["spec"]["worker"]["replicas"].as_u64();
    let beside =
        workers.map(|workers| format!(", {} requested", counted(workers, "worker"))).unwrap_or_default();
    let gpus = gpus(PodState::each(pods));
    let waiting = workload::wait_reason(found, wait.gang(), pods);
    if let Some(waiting) = waiting {
        let [why, since] = waiting.facts();
        let phase = ("phase", job["status"]["jobStatus"].clone());
        return Ok(StatusLine {
            line: waiting.line(),
            facts: vec![phase, why, since],
            ..StatusLine::default()
        });
    }
    let lacks = workload::note(found).map(|note| format!("; {note}")).unwrap_or_default();
    Ok(StatusLine {
        line: format!("{phase}; {program}{beside}{}{lacks}", gpus_held(gpus)),
        facts: vec![
            ("phase", job["status"]["jobStatus"].clone()),
            ("program", runner["status"]["phase"].clone()),
            ("started", job["status"]["startTime"].clone()),
            ("ended", job["status"]["endTime"].clone()),
            ("workers_wanted", json!(workers)),
            ("gpus", json!(gpus)),
        ],
        pending: pending(pods),
        failed: (phase == "Failed").then(|| why_failed(runner)),
        ..StatusLine::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::resource::Until;

    fn check(status: &str, end: bool, runner: &Value) -> Readiness {
        let identity = Identity::Object(ObjectId {
            gvk: api::job(),
            namespace: Some("default".into()),
            name: "j".into(),
        });
        let facts = Facts::Job { to_the_end: end, gang: None };
        let wait = Await { kind: KindId::DaskJob, identity, until: Until::Ready, facts, deadline: 1 };
        let job = json!({ "status": { "jobStatus": status } });
        followed(&wait, &job, (runner, &json!({ "items": [runner] })), None)
    }

    #[test]
    fn a_job_is_begun_or_followed_to_its_end() {
        let none = Value::Null;
        let waits = |found: Readiness| assert!(matches!(found, Readiness::Progressing(_)), "{found:?}");
        for end in [false, true] {
            waits(check("", end, &none));
            waits(check("JobCreated", end, &none));
            assert_eq!(check("Successful", end, &none), Readiness::Ready);
        }
        for status in ["ClusterCreated", "Running", "Failed"] {
            assert_eq!(check(status, false, &none), Readiness::Ready, "{status}");
        }
        waits(check("Running", true, &none));
        let ended =
            json!({ "status": { "containerStatuses": [{ "state": { "terminated": { "exitCode": 3 } } }] } });
        assert_eq!(
            check("Failed", true, &ended),
            Readiness::Failed("its program failed with exit code 3".into())
        );
        let stuck = json!({ "metadata": { "name": "j-runner" }, "status": { "containerStatuses": [
            { "state": { "waiting": { "reason": "ImagePullBackOff", "message": "no" } } }
        ] } });
        assert!(matches!(check("Running", true, &stuck), Readiness::Failed(_)));
    }

    #[test]
    fn a_changed_job_is_a_new_run() {
        assert_eq!(effect(&"spec.job.spec.containers[0].args".parse().unwrap()).0, Effect::Replace);
        assert_eq!(effect(&"metadata.labels.a".parse().unwrap()).0, Effect::InPlace);
        for (map, key) in
            [("labels", gang::QUEUE), ("labels", gang::POD_GROUP_LABEL), ("annotations", gang::COUNT)]
        {
            assert_eq!(effect(&FieldPath::keys(["metadata", map, key])).0, Effect::Replace, "{key}");
        }
    }
}
