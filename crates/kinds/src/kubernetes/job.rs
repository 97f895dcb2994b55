//! Jobs of Kubernetes: those of manifests and charts, and `[job.NAME]`, which runs once.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::descriptions::{image, with_gpus};
use crate::json::{count, is_false, text};
use crate::kind::{
    ChangeContext, Compare, FreedCapacity, Kind, MissingQuery, Part, PodSource, Queries, QueryResults,
    StopEffect, own_object_query,
};
use crate::kubernetes::calls::object_change_steps;
use crate::kubernetes::kueue::gang::{self, QUEUE as QUEUE_LABEL};
use crate::kubernetes::kueue::workload;
use crate::kubernetes::object::{condition, gvk, new_object, pods_labelled};
use crate::kubernetes::pod_state::{ContainerState, PodState};
use crate::kubernetes::pods::{self, broken, gpus, gpus_held, pending};
use crate::kubernetes::request_state::RequestRef;
use crate::kubernetes::template::{self, PodSpecKeys};
use crate::scope::Scope;
use crate::section::{Lifecycle, LiveName, NameRule, PodKeys, PodRole, Pods, Section, SectionHead};
use crate::short_forms::seconds;
use crate::status::StatusLine;
use model::address::{Address, FieldPath, Segment};
use model::resource::{
    Await, Effect, Facts, Gvk, Identity, KindId, ObjectId, Progress, Query, Queued, Readiness, Recreation,
    Resource, Step, Until,
};

/// Seconds: images of 10 GB are pulled, and GPU nodes may have to be created first.
const DEADLINE: u32 = 1800;
/// Seconds until a Job of a section has pods: only a controller has to act.
const START_TIMEOUT: u32 = 300;
/// Seconds for which an apply follows a Job that sets no timeout.
const DEFAULT_JOB_TIMEOUT: u32 = 3600;
/// The label of the Job controller on the pods of a Job. Source: `batch/v1/types.go`, `JobNameLabel`, since Kubernetes 1.27.
const JOB_LABEL: &str = "batch.kubernetes.io/job-name";

pub const SECTION: &str = "job";

pub const KIND: Kind = Kind {
    rank: 42,
    freed_capacity: FreedCapacity::Nodes,
    compare: Compare::Kubernetes(effect),
    change_steps,
    queries,
    readiness,
    status_line,
    shared: true,
    plan_summary: about,
    pods: |resource| match (&resource.recreation, &resource.identity) {
        (Recreation::Once { .. }, Identity::Object(job)) => PodSource::Known(pods_of(job)),
        _ => pods::selecting(resource),
    },
    stop_effect: StopEffect::DeletesWhile(runs),
    runs_to_completion: true,
    ..Kind::DEFAULT
};

fn about(resource: &Resource) -> Vec<String> {
    let spec = &resource.body["spec"];
    let pod = &spec["template"]["spec"];
    let pods = count(&spec["completions"]).max(count(&spec["parallelism"]));
    let gpus = with_gpus(pod);
    let number = match pods {
        0 | 1 => gpus.trim_start().to_owned(),
        many => format!("{many} pods{gpus}{}", if gpus.is_empty() { "" } else { " each" }),
    };
    vec![number, image(pod)]
}

/// A program that runs once, in one pod or in several: a Kubernetes Job. A changed job is a new run, and needs approval by
/// its address.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct Job {
    /// The live name; defaults to the section's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The namespace. Default `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The image of its pods.
    pub image: String,
    /// The program, in place of the image's entry point: `["python", "train.py"]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Arguments of `command`, or of the image's entry point.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Settings of each pod, such as its resources and where it runs.
    #[serde(flatten)]
    pub keys: PodKeys,
    /// The `[queue.NAME]` that it waits in: Kueue keeps it suspended until the queue has room for all pods that run at a
    /// time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// How urgent it is among the work of its queue: one of the queue's `priorities`. What is more urgent starts first; nothing
    /// that runs is stopped for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<String>,
    /// Pods that run at a time. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000))]
    pub parallelism: Option<u32>,
    /// Pods that must succeed. Default as many as `parallelism`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100000))]
    pub completions: Option<u32>,
    /// Pods that may fail and are replaced before the job has failed. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub retries: Option<u32>,
    /// How long it may run at most, its pods' wait for nodes included: `"12h"`. Then its pods are deleted and it has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_run_duration: Option<String>,
    /// Waits for it to end and shows the end of its log; a failed job fails the apply. Default `false`: the apply
    /// ends when the job has begun.
    #[serde(default, skip_serializing_if = "is_false")]
    pub wait: bool,
    /// Seconds that `wait` lasts at most, without the time in a queue. Default 3600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub timeout: Option<u32>,
    /// `protect` and `depends_on`.
    #[serde(flatten)]
    pub lifecycle: Lifecycle,
}

impl Section for Job {
    fn head(&self) -> SectionHead<'_> {
        SectionHead {
            depends_on: &self.lifecycle.depends_on,
            namespace: self.namespace.as_deref(),
            ..SectionHead::default()
        }
    }

    fn live_name<'a>(&'a self, key: &'a str) -> Option<LiveName<'a>> {
        Some(LiveName::new(self.name.as_deref(), key, NameRule::Object).within(self.namespace()))
    }

    fn pods(&self, path: &FieldPath) -> Vec<Pods<'_>> {
        vec![Pods {
            path: path.clone(),
            role: PodRole::Job,
            replicas: self.at_a_time(),
            image: &self.image,
            image_path: path.key("image"),
            args: &self.args,
            keys: &self.keys,
        }]
    }
}

impl Job {
    pub fn live_name<'a>(&'a self, key: &'a str) -> &'a str {
        self.name.as_deref().unwrap_or(key)
    }

    pub fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or("default")
    }

    /// Returns the number of pods that run at a time.
    pub fn at_a_time(&self) -> u32 {
        self.parallelism.unwrap_or(1)
    }
}

fn api() -> Gvk {
    gvk("batch", "v1", "Job", "jobs")
}

/// Returns the pod template for a ProvisioningRequest, with the provenance of its fields.
pub fn pod_template(
    section: &Job,
    origin: &FieldPath,
    path: &FieldPath,
    scope: &Scope,
) -> (Value, Vec<(FieldPath, FieldPath)>) {
    let pod_keys = section.pod_keys();
    let mut pod = template::bare(PodRole::Job.container(), &pod_keys, scope);
    for (key, words) in [("command", &section.command), ("args", &section.args)] {
        if !words.is_empty() {
            pod["containers"][0][key] = json!(words);
        }
    }
    pod["restartPolicy"] = json!("Never");
    let at = path.key("spec");
    let mut provenance = template::provenance(&at, origin, &origin.key("image"));
    provenance.push((at.key("containers").index(0).key("command"), origin.key("command")));
    let mut whole = json!({ "spec": pod });
    section.keys.merge_into(&mut whole, path, origin, &mut provenance);
    (whole, provenance)
}

/// Returns the resource of `[job.KEY]`. `request` is the provisioning request for its nodes.
pub fn lower(key: &str, section: &Job, request: Option<&RequestRef<'_>>, scope: &Scope) -> Resource {
    let (name, namespace) = (section.live_name(key), section.namespace());
    let origin = FieldPath::keys([SECTION, key]);
    let at = FieldPath::keys(["spec", "template"]);
    let (mut template, mut provenance) = pod_template(section, &origin, &at, scope);
    let mut depends_on = template::dependencies(&[&section.pod_keys()], namespace, None, scope);
    if let Some(request) = request {
        request.add_annotations(&mut template["metadata"]);
        depends_on.push(request.address.clone());
    }
    depends_on.extend(section.lifecycle.depends_on.iter().map(Address::new));
    let at_a_time = section.at_a_time();
    let mut spec = json!({
        "parallelism": at_a_time,
        "completions": section.completions.unwrap_or(at_a_time),
        "backoffLimit": section.retries.unwrap_or(0),
        "template": template,
    });
    if let Some(longest) = section.max_run_duration.as_deref().and_then(seconds) {
        spec["activeDeadlineSeconds"] = json!(longest);
    }
    for (field, key) in [
        ("parallelism", "parallelism"),
        ("completions", "completions"),
        ("backoffLimit", "retries"),
        ("activeDeadlineSeconds", "max_run_duration"),
    ] {
        provenance.push((FieldPath::keys(["spec", field]), origin.key(key)));
    }
    let mut labels = scope.labels();
    if let Some((key, queue)) = section.queue.as_deref().and_then(|queue| Some((queue, scope.queue(queue)?)))
    {
        labels[QUEUE_LABEL] = json!(queue.name);
        if let Some(priority) = section.priority.as_deref() {
            labels[gang::PRIORITY] = json!(queue.priority_class(priority));
            provenance
                .push((FieldPath::keys(["metadata", "labels", gang::PRIORITY]), origin.key("priority")));
        }
        provenance.push((FieldPath::keys(["metadata", "labels", QUEUE_LABEL]), origin.key("queue")));
        depends_on.push(Address::of("queue", key));
    }
    let (identity, body) =
        new_object(api(), json!({ "name": name, "namespace": namespace, "labels": labels }), spec);
    Resource {
        address: Address::of(SECTION, key),
        kind: KindId::Job,
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
    }
}

impl Job {
    pub(crate) fn pod_keys(&self) -> PodSpecKeys<'_> {
        PodSpecKeys { image: &self.image, args: &self.args, keys: &self.keys, resources: None, config: None }
    }
}

fn effect(path: &FieldPath) -> (Effect, Option<&'static str>) {
    if is_queue(path) {
        return (Effect::Replace, Some("Kueue fixes the queue of a Job that it has let go"));
    }
    let fixed = [
        &["spec", "template"][..],
        &["spec", "selector"],
        &["spec", "completionMode"],
        &["spec", "completions"],
    ];
    if fixed.iter().any(|keys| FieldPath::keys(keys.iter().copied()).contains(path)) {
        return (Effect::Replace, Some("a Job's template cannot be changed; it runs again"));
    }
    (Effect::InPlace, None)
}

/// Returns true if a field is the label of a Job with the name of its Kueue queue. It can change in place while the Job is suspended.
pub fn is_queue(path: &FieldPath) -> bool {
    FieldPath::keys(["metadata", "labels", QUEUE_LABEL]).contains(path)
}

/// Returns true if a live Job has pods, or will get some by itself. A suspended Job outside of a queue does nothing.
fn runs(job: &Value) -> bool {
    let ended = ["Complete", "Failed"].iter().any(|end| holds(job, end).is_some());
    let rests = job["spec"]["suspend"] == true && text(&job["metadata"]["labels"][QUEUE_LABEL]).is_empty();
    !ended && !rests
}

/// Returns true if a live Job has ended without success.
pub fn has_failed(job: &Value) -> bool {
    holds(job, "Failed").is_some()
}

/// Returns the steps, which include how an apply follows a Job. That is not part of the object, so changing it does not rerun the
/// Job.
fn change_steps(context: &ChangeContext) -> Vec<Step> {
    let life = context.resource.map(|resource| resource.recreation);
    let Some(Recreation::Once { timeout }) = life.filter(|_| context.resource.is_some_and(is_of_section))
    else {
        let facts = match context.body() {
            body if !body["metadata"]["labels"][QUEUE_LABEL].is_null() => Facts::InQueue,
            body if body["spec"]["suspend"] == true => Facts::Suspended,
            _ => Facts::None,
        };
        return object_change_steps(context, KindId::Job, facts, DEADLINE);
    };
    let queued = context.resource.is_some_and(workload::waits);
    let gang = context.object().filter(|_| queued).map(|job| job.name.clone());
    let facts = Facts::Job { to_the_end: timeout.is_some(), gang };
    let mut steps = object_change_steps(context, KindId::Job, facts, timeout.unwrap_or(START_TIMEOUT));
    let makes = context.action.creates();
    if let (Some(_), true, Some(job)) = (timeout, makes, context.object()) {
        steps.push(Step::ReadLog { pod: job.clone(), expect: None });
    }
    steps
}

/// Returns true if a resource is a job of a section. A chart's Job may run once, too; it is waited for like its other objects.
pub fn is_of_section(resource: &Resource) -> bool {
    let section = resource.origin.segments().first().and_then(Segment::key);
    resource.kind == KindId::Job && section == Some(SECTION)
}

fn pods_of(job: &ObjectId) -> Query {
    pods_labelled(job.namespace.as_deref(), [(JOB_LABEL, job.name.as_str())])
}

/// Returns the query for the pods whose log stands for an object that is not a pod itself.
pub fn log_of(object: &ObjectId) -> Option<Query> {
    (object.gvk == api()).then(|| pods_of(object))
}

/// Returns the pod in a LIST with the most useful log: a failed one, else the newest.
pub fn most_relevant_pod(pods: &Value) -> Option<&str> {
    let rank = |pod: &PodState<'_>| {
        (pod.phase() == "Failed", text(&pod.0["metadata"]["creationTimestamp"]).to_owned())
    };
    PodState::each(pods).max_by_key(rank).map(PodState::name)
}

/// Reads the Job, its pods if a section follows it, and Kueue's state if it is in a queue.
fn queries(wait: &Await) -> Queries {
    let mut queries = own_object_query(wait);
    let (Identity::Object(job), true) = (&wait.identity, wait.until.is_ready()) else { return queries };
    if let Facts::Job { .. } = &wait.facts {
        queries.part(Part::Pods, pods_of(job));
    }
    if wait.gang().is_some() || wait.facts == Facts::InQueue {
        workload::add_related_queries(&mut queries, job);
    }
    queries
}

fn readiness(wait: &Await, found: &QueryResults) -> Result<Readiness, MissingQuery> {
    let job = found.own_object();
    let waiting = held_back(job, workload::job_wait_reason(found, job));
    Ok(match wait.facts {
        Facts::Job { to_the_end, .. } => followed(job, found.get(Part::Pods)?, to_the_end, waiting),
        _ => ready(wait, job, waiting),
    })
}

fn holds<'v>(job: &'v Value, kind: &str) -> Option<&'v Value> {
    condition(job, kind).filter(|found| found["status"] == "True")
}

/// Returns the readiness of a Job that is held back; `waiting` is Kueue's reason.
fn held_back(job: &Value, waiting: Option<workload::WaitReason>) -> Option<Readiness> {
    if job["spec"]["suspend"] != true {
        return None;
    }
    let queue = text(&job["metadata"]["labels"][QUEUE_LABEL]);
    if let Some(waiting) = waiting.filter(|_| !queue.is_empty()) {
        return Some(waiting.readiness());
    }
    let since = holds(job, "Suspended").map_or(&Value::Null, |suspended| &suspended["lastTransitionTime"]);
    Some(match queue {
        "" => Readiness::progressing("suspended outside this stack (`spec.suspend`)"),
        queue => Readiness::Queued(Queued::since(
            format!("in queue {queue}: suspended, and Kueue has said nothing of it yet"),
            since,
        )),
    })
}

/// Returns the readiness of a Job of a manifest or a chart: ready once it has succeeded.
fn ready(wait: &Await, job: &Value, waiting: Option<Readiness>) -> Readiness {
    if !job.is_object() {
        return Readiness::progressing("not created yet");
    }
    if holds(job, "Complete").is_some() {
        return Readiness::Ready;
    }
    if let Some(failed) = holds(job, "Failed") {
        return Readiness::Failed(format!("{}: {}", text(&failed["reason"]), text(&failed["message"])));
    }
    match waiting {
        // It is as it is desired, and does nothing: no apply waits for it, and nobody calls it ready.
        Some(Readiness::Progressing(_)) if wait.facts == Facts::Suspended => {
            let what =
                "suspended by the stack itself (`spec.suspend`): nothing runs until that is false".to_owned();
            match wait.until {
                Until::Ready => Readiness::Impaired(what),
                Until::StillReady | Until::Gone | Until::Idle | Until::Handled => {
                    Readiness::progressing(what)
                }
            }
        }
        Some(waiting) => waiting,
        None => Readiness::progressing(finished(job)),
    }
}

/// Returns the readiness of a Job of a section: ready once it has begun, or once it has succeeded.
fn followed(job: &Value, pods: &Value, to_the_end: bool, waiting: Option<Readiness>) -> Readiness {
    if !job.is_object() {
        return Readiness::progressing("not created yet");
    }
    if holds(job, "Complete").is_some() {
        return Readiness::Ready;
    }
    if let Some(failed) = holds(job, "Failed") {
        return if to_the_end { Readiness::Failed(why_failed(failed, pods)) } else { Readiness::Ready };
    }
    if let Some(waiting) = waiting {
        return waiting;
    }
    let status = &job["status"];
    let begun = ["active", "succeeded", "failed"].iter().any(|field| count(&status[*field]) > 0);
    if !to_the_end {
        return match begun {
            true => Readiness::Ready,
            false => Readiness::progressing("it has no pods yet"),
        };
    }
    if let Some(reason) = PodState::each(pods).find_map(broken) {
        return Readiness::Failed(reason);
    }
    let blocked_by = PodState::each(pods).filter(|pod| !pod.is_ready()).find_map(pods::why);
    Readiness::Progressing(Progress { what: finished(job), blocked_by })
}

fn why_failed(failed: &Value, pods: &Value) -> String {
    let codes = PodState::each(pods).flat_map(PodState::containers).filter_map(ContainerState::exit_code);
    match (text(&failed["reason"]), codes.filter(|code| *code != 0).last()) {
        ("DeadlineExceeded", _) => "it ran longer than `max_run_duration`".to_owned(),
        (_, Some(code)) => format!("its program failed with exit code {code}"),
        (reason, None) => format!("{reason}: {}", text(&failed["message"])),
    }
}

/// Returns `1 of 2 runs finished`.
fn finished(job: &Value) -> String {
    let desired = job["spec"]["completions"].as_u64().unwrap_or(1);
    format!("{} of {desired} runs finished", count(&job["status"]["succeeded"]))
}

/// Returns the `status` line: the Job's progress.
fn status_line(wait: &Await, found: &QueryResults) -> Result<StatusLine, MissingQuery> {
    let job = found.own_object();
    if !matches!(wait.facts, Facts::Job { .. }) {
        return Ok(StatusLine::default());
    }
    let (pods, status) = (found.get(Part::Pods)?, &job["status"]);
    let held_by_kueue = workload::job_wait_reason(found, job).filter(|_| job["spec"]["suspend"] == true);
    let phase = match (holds(job, "Complete"), holds(job, "Failed"), job["spec"]["suspend"] == true) {
        (Some(_), _, _) => "complete",
        (None, Some(_), _) => "failed",
        (None, None, true) => "suspended",
        (None, None, false) if count(&status["active"]) > 0 => "running",
        (None, None, false) => "not started",
    };
    let waiting = gpus(PodState::each(pods));
    let runs = (phase == "running").then(|| format!(", {} pods active", count(&status["active"])));
    let mut facts = vec![
        ("phase", json!(phase)),
        ("active", json!(count(&status["active"]))),
        ("succeeded", json!(count(&status["succeeded"]))),
        ("failed", json!(count(&status["failed"]))),
        ("started", status["startTime"].clone()),
        ("ended", status["completionTime"].clone()),
        ("gpus", json!(waiting)),
    ];
    if let Some(waiting) = held_by_kueue {
        facts.extend(waiting.facts());
        let line = format!("{phase}; {}", waiting.line());
        return Ok(StatusLine { line, facts, ..StatusLine::default() });
    }
    Ok(StatusLine {
        line: format!("{phase}; {}{}{}", finished(job), runs.unwrap_or_default(), gpus_held(waiting)),
        facts,
        // Pods that failed stay as they are.
        pending: if phase == "failed" || phase == "complete" { Vec::new() } else { pending(pods) },
        failed: holds(job, "Failed").map(|failed| why_failed(failed, pods)),
        ..StatusLine::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::{Neighbor, QueryKey};

    fn with(kind: &str, reason: &str) -> Value {
        json!({ "status": { "conditions": [{ "type": kind, "status": "True", "reason": reason }] } })
    }

    fn waits(text: &str) -> Readiness {
        Readiness::progressing(text)
    }

    #[test]
    fn jobs_of_manifests_are_ready_when_complete() {
        let judged = |until: Until, facts: Facts, job: Value| {
            let (kind, identity) = (KindId::Job, Identity::Check(Address::new("x")));
            ready(&Await { kind, identity, until, facts, deadline: 1 }, &job, held_back(&job, None))
        };
        let readiness = |facts: Facts, job: Value| judged(Until::Ready, facts, job);
        assert_eq!(readiness(Facts::None, with("Complete", "r")), Readiness::Ready);
        assert!(matches!(readiness(Facts::None, with("Failed", "r")), Readiness::Failed(_)));
        assert_eq!(readiness(Facts::None, json!({ "status": {} })), waits("0 of 1 runs finished"));
        // Suspended by others, by the stack itself, and by Kueue, whoever said so first.
        let suspended = json!({ "spec": { "suspend": true } });
        let why = "suspended outside this stack (`spec.suspend`)";
        assert_eq!(readiness(Facts::None, suspended.clone()), waits(why));
        assert!(matches!(readiness(Facts::Suspended, suspended.clone()), Readiness::Impaired(_)));
        let looked_at = judged(Until::StillReady, Facts::Suspended, suspended.clone());
        assert!(matches!(looked_at, Readiness::Progressing(_)), "{looked_at:?}");
        let mut queued = suspended;
        queued["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = json!("gpus");
        let since = "2026-01-01T00:00:00Z";
        queued["status"]["conditions"] =
            json!([{ "type": "Suspended", "status": "True", "lastTransitionTime": since }]);
        for facts in [Facts::None, Facts::Suspended] {
            let Readiness::Queued(told) = readiness(facts, queued.clone()) else { panic!("not queued") };
            assert_eq!(
                told.to_string(),
                format!(
                    "queued since {since}: in queue gpus: suspended, and Kueue has said nothing of it yet"
                )
            );
        }
    }

    #[test]
    fn a_job_is_begun_or_followed_to_its_end() {
        let none = json!({ "items": [] });
        let judged = |job: &Value, pods: &Value, end| followed(job, pods, end, held_back(job, None));
        for end in [false, true] {
            assert_eq!(judged(&Value::Null, &none, end), waits("not created yet"));
            assert_eq!(judged(&with("Complete", "r"), &none, end), Readiness::Ready);
        }
        let active = json!({ "spec": { "completions": 2 }, "status": { "active": 2, "succeeded": 1 } });
        assert_eq!(judged(&active, &none, false), Readiness::Ready);
        assert_eq!(judged(&active, &none, true), waits("1 of 2 runs finished"));
        assert_eq!(judged(&json!({ "status": {} }), &none, false), waits("it has no pods yet"));
        assert_eq!(judged(&with("Failed", "r"), &none, false), Readiness::Ready);
        let ended = json!({ "items": [
            { "status": { "containerStatuses": [{ "state": { "terminated": { "exitCode": 3 } } }] } }
        ] });
        let fails = |why: &str| Readiness::Failed(why.into());
        assert_eq!(
            judged(&with("Failed", "BackoffLimitExceeded"), &ended, true),
            fails("its program failed with exit code 3")
        );
        assert_eq!(
            judged(&with("Failed", "DeadlineExceeded"), &ended, true),
            fails("it ran longer than `max_run_duration`")
        );
        let stuck = json!({ "items": [{ "metadata": { "name": "p" }, "status": { "containerStatuses": [
            { "state": { "waiting": { "reason": "ImagePullBackOff", "message": "no" } } }
        ] } }] });
        assert_eq!(judged(&active, &stuck, true), fails("pod p: ImagePullBackOff: no"));
    }

    #[test]
    fn the_log_is_that_of_a_pod_that_failed_or_of_the_newest() {
        let pod = |name: &str, phase: &str, made: &str| json!({ "metadata": { "name": name, "creationTimestamp": made }, "status": { "phase": phase } });
        let (a, b, c) = (
            pod("a", "Failed", "2026-01-01T00:00:00Z"),
            pod("b", "Succeeded", "2026-01-02T00:00:00Z"),
            pod("c", "Succeeded", "2026-01-03T00:00:00Z"),
        );
        assert_eq!(most_relevant_pod(&json!({ "items": [a, b, c] })), Some("a"));
        assert_eq!(most_relevant_pod(&json!({ "items": [c, b] })), Some("c"));
        assert_eq!(most_relevant_pod(&json!({ "items": [] })), None);
    }

    /// A Job that Kueue has given up no longer waits, whether it comes from a section or a manifest.
    #[test]
    fn a_job_that_kueue_gave_up_has_failed() {
        let identity =
            Identity::Object(ObjectId { gvk: api(), namespace: Some("n".into()), name: "j".into() });
        let workload = |active: bool| {
            json!({ "items": [{
                "metadata": { "name": "job-j-1", "namespace": "n", "ownerReferences": [{ "uid": "u" }] },
                "spec": { "active": active, "queueName": "gpus" },
                "status": { "conditions": [
                    { "type": "Evicted", "status": "True", "reason": "DeactivatedDueToAdmissionCheck", "message": "m" },
                    { "type": "QuotaReserved", "status": "False", "reason": "Pending", "message": "1 more needed" },
                ] },
            }] })
        };
        let live = |suspend: bool| json!({ "metadata": { "uid": "u", "labels": { QUEUE_LABEL: "gpus" } }, "spec": { "suspend": suspend } });
        let said = |facts: Facts, job: Value, workloads: Value| {
            let (kind, identity) = (KindId::Job, identity.clone());
            let wait = Await { kind, identity, until: Until::Ready, facts, deadline: 1 };
            let asked = queries(&wait);
            let answer = |read: QueryKey| match read {
                QueryKey::Part(Part::Itself) => job.clone(),
                QueryKey::Neighbor(Neighbor::Workloads) => workloads.clone(),
                _ => json!({ "items": [] }),
            };
            let answers: Vec<Value> = asked.all().map(|(read, _)| answer(read)).collect();
            let found = QueryResults::answers(&asked, &answers);
            (
                readiness(&wait, &found).unwrap(),
                status_line(&wait, &found).map(|line| line.line).unwrap_or_default(),
            )
        };
        let of_section = || Facts::Job { to_the_end: false, gang: Some("j".into()) };
        for facts in [of_section(), Facts::InQueue] {
            let (found, _) = said(facts.clone(), live(true), workload(false));
            assert!(
                matches!(&found, Readiness::Failed(why) if why.contains("delete workload job-j-1")),
                "{found:?}"
            );
            let (found, _) = said(facts, live(true), workload(true));
            assert!(
                matches!(&found, Readiness::Queued(told) if told.what.contains("1 more needed")),
                "{found:?}"
            );
        }
        let (_, line) = said(of_section(), live(true), workload(true));
        assert_eq!(line, "suspended; waits in queue gpus: 1 more needed");
        let (found, line) = said(of_section(), live(false), workload(true));
        assert_eq!(found, waits("it has no pods yet"));
        assert!(line.starts_with("not started"), "{line}");
    }

    #[test]
    fn what_cannot_be_changed_is_recreated() {
        let queue = FieldPath::keys(["metadata", "labels", QUEUE_LABEL]);
        assert_eq!(effect(&queue).0, Effect::Replace);
        for (path, expect) in [
            ("spec.template.spec.containers", Effect::Replace),
            ("spec.completions", Effect::Replace),
            ("spec.parallelism", Effect::InPlace),
            ("spec.activeDeadlineSeconds", Effect::InPlace),
            ("metadata.labels.a", Effect::InPlace),
        ] {
            assert_eq!(effect(&path.parse().unwrap()).0, expect, "{path}");
        }
    }
}
