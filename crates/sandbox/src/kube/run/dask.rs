//! An imitation of the Dask operator 2026.3.0: it acts only while a pod of its Deployment runs, reacts to
//! what the real one reacts to and to nothing else, and keeps kopf's records on the objects.
//!
//! Not imitated: `idleTimeout` (there is no scheduler that could be idle), batches of workers, and the
//! races that leave a healthy cluster `Pending`.

mod children;
mod kopf;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::object::{
    Key, annotation, hex, is_deleted, key, label, list, name, namespace, number, reference_to, text, time,
    uid,
};
use super::deployments;
use super::events::{self, Level};
use super::round::Run;
use super::stages::stages;
use super::workloads::is_ready;

/// Field managers of the operator's two clients, from their user agents.
const KOPF: &str = "kopf";
const KR8S: &str = "kr8s";

const GROUP: &str = "kubernetes.dask.org";
const COOLDOWN: &str = "kubernetes.dask.org/cooldown-until";
/// 63 characters of a name less `-scheduler`.
const LONGEST_NAME: usize = 53;

/// How many tasks the scheduler behind a Service has: none, or as many as the Service is annotated with.
pub fn tasks(service: &Value) -> usize {
    annotation(service, "sandbox.dask-infra.dev/tasks").and_then(|tasks| tasks.parse().ok()).unwrap_or(0)
}

/// One round of the operator, if it lives.
pub fn run(run: &mut Run<'_>) {
    if !run.scripts.imitate_operator || !lives(run) {
        return;
    }
    for cluster in run.objects(GROUP, "daskclusters") {
        Handler::new(run, cluster, "daskclusters").cluster();
    }
    for service in run.objects("", "services") {
        if label(service, "dask.org/component") == "scheduler" {
            Handler::new(run, service, "services").service();
        }
    }
    for group in run.objects(GROUP, "daskworkergroups") {
        Handler::new(run, group, "daskworkergroups").group();
    }
    for autoscaler in run.objects(GROUP, "daskautoscalers") {
        Handler::new(run, autoscaler, "daskautoscalers").autoscaler();
    }
    for job in run.objects(GROUP, "daskjobs") {
        Handler::new(run, job, "daskjobs").job();
    }
    for pod in run.objects("", "pods") {
        if label(pod, "dask.org/component") == "job-runner" {
            Handler::new(run, pod, "pods").runner();
        }
    }
}

/// Returns true if a pod of an operator Deployment runs.
fn lives(run: &Run<'_>) -> bool {
    let named = |object: &&Value| label(object, "app.kubernetes.io/name") == "dask-kubernetes-operator";
    run.objects("apps", "deployments").into_iter().filter(named).any(|deployment| {
        deployments::active_pods(run, deployment).iter().any(|pod| text(pod, "/status/phase") == "Running")
    })
}

/// The operator at work on one object.
struct Handler<'r, 'a> {
    run: &'r mut Run<'a>,
    object: &'a Value,
    resource: &'static str,
}

impl<'r, 'a> Handler<'r, 'a> {
    fn new(run: &'r mut Run<'a>, object: &'a Value, resource: &'static str) -> Self {
        Self { run, object, resource }
    }

    fn key(&self) -> Key {
        let group = if matches!(self.resource, "services" | "pods") { "" } else { GROUP };
        key(group, self.resource, self.object)
    }

    /// Returns true once the operator has had the time to react to `what`.
    fn reacts(&mut self, what: &str) -> bool {
        let wait = stages().delay("operator_reacts");
        self.run.passed(format!("{} operator {what}", uid(self.object)), wait)
    }

    /// Something is missing that the handler needs: kopf tries again after a minute, even when the thing
    /// turns up at once.
    fn retries(&mut self, what: &str, missing: bool) -> bool {
        let wait = format!("{} operator waits for {what}", uid(self.object));
        if !missing && !self.run.has_begun(&wait) {
            return false;
        }
        !self.run.passed(wait, stages().delay("operator_retry")) || missing
    }

    /// Records the state as handled, unless it is already.
    fn note(&mut self, watched: &[&str], more: Value) {
        let essence = kopf::essence(self.object, watched);
        let mut patch = more;
        if kopf::last_handled(self.object).as_ref() != Some(&essence) {
            super::super::object::merge(&mut patch, &kopf::handled(&essence));
        }
        if patch.as_object().is_some_and(|patch| !patch.is_empty()) {
            let key = self.key();
            self.run.merge(KOPF, key, patch);
        }
    }

    fn say(&mut self, message: &str) {
        events::emit(self.run, self.object, Level::Normal, "Logging", "kopf", message);
    }

    fn find(&self, resource: &str, object_name: &str) -> Option<&'a Value> {
        self.run.get(GROUP, resource, namespace(self.object), object_name)
    }

    /// Objects with timers hold a finalizer, and lose it when they are deleted. Says whether there is
    /// anything else to do.
    fn keeps_finalizer(&mut self) -> bool {
        if !is_deleted(self.object) {
            return true;
        }
        if kopf::has_finalizer(self.object) && self.reacts("deletion") {
            let patch = json!({"metadata": {"finalizers": kopf::without_finalizer(self.object)}});
            let key = self.key();
            self.run.merge(KOPF, key, patch);
        }
        false
    }

    fn create_missing(&mut self, group: &str, resource: &str, object: Value) {
        if self.run.get(group, resource, namespace(&object), name(&object)).is_none() {
            self.run.create(KR8S, object);
        }
    }

    /// A controller reference from a cluster; kr8s replaces whatever references were there.
    fn adopt(&mut self, cluster: &Value) {
        let key = self.key();
        self.run.merge(KR8S, key, json!({"metadata": {"ownerReferences": [reference_to(cluster)]}}));
    }

    fn cluster(&mut self) {
        const WATCHED: &[&str] = &["phase"];
        let cluster = self.object;
        if !self.keeps_finalizer() {
            return;
        }
        let phase = text(cluster, "/status/phase");
        let Some(last) = kopf::last_handled(cluster) else {
            if self.reacts("creation") {
                let valid = is_cluster_name(name(cluster));
                let phase = if valid { "Created" } else { "Error" };
                self.note(
                    WATCHED,
                    json!({
                        "metadata": {"finalizers": kopf::with_finalizer(cluster)},
                        "status": {"phase": phase},
                    }),
                );
                self.say(if valid {
                    "Handler 'daskcluster_create' succeeded."
                } else {
                    "Handler 'daskcluster_create' failed permanently: the name is no cluster name or too long."
                });
            }
            return;
        };
        if phase == "Created" && text(&last, "/status/phase") != "Created" {
            if self.reacts("components") {
                self.create_missing("apps", "deployments", children::scheduler_deployment(cluster));
                self.create_missing("", "services", children::scheduler_service(cluster));
                self.create_missing(GROUP, "daskworkergroups", children::default_group(cluster));
                self.note(WATCHED, json!({"status": {"phase": "Pending"}}));
                self.say("Handler 'daskcluster_create_components/status.phase' succeeded.");
            }
            return;
        }
        let (old, new) = (number(&last, "/spec/worker/replicas"), number(cluster, "/spec/worker/replicas"));
        if let (Some(old), Some(new)) = (old, new)
            && old != new
        {
            let group = self.find("daskworkergroups", &format!("{}-default", name(cluster)));
            if self.retries("default group", group.is_none())
                || !self.reacts(&format!("replicas {old} {new}"))
            {
                return;
            }
            if let Some(group) = group {
                self.scale_group(group, new);
            }
        }
        self.note(WATCHED, json!({}));
    }

    fn scale_group(&mut self, group: &Value, replicas: i64) {
        let patch = json!({"spec": {"worker": {"replicas": replicas}}});
        self.run.merge(KR8S, key(GROUP, "daskworkergroups", group), patch);
    }

    /// The scheduler's Service decides the phase: `Running`, or `Pending` for a load balancer without
    /// an address.
    fn service(&mut self) {
        let service = self.object;
        let seen = kopf::last_handled(service);
        if is_deleted(service) || seen.is_some_and(|seen| seen["status"] == service["status"]) {
            return;
        }
        let Some(cluster) = self.find("daskclusters", label(service, "dask.org/cluster-name")) else {
            return;
        };
        // Taken in the usual order, after the create handler's own last word.
        if matches!(text(cluster, "/status/phase"), "" | "Created") || !self.reacts("status") {
            return;
        }
        let waits = text(service, "/spec/type") == "LoadBalancer"
            && list(service, "/status/loadBalancer/ingress").is_empty();
        let phase = if waits { "Pending" } else { "Running" };
        self.run.merge(KR8S, key(GROUP, "daskclusters", cluster), json!({"status": {"phase": phase}}));
        self.note(&[""], json!({}));
    }

    fn group(&mut self) {
        let group = self.object;
        if is_deleted(group) {
            return;
        }
        let cluster = self.find("daskclusters", text(group, "/spec/cluster"));
        let Some(last) = kopf::last_handled(group) else {
            if self.retries("cluster", cluster.is_none()) || !self.reacts("creation") {
                return;
            }
            if let Some(cluster) = cluster {
                self.adopt(cluster);
                if self.scale(cluster) {
                    self.note(&[], json!({}));
                    self.say("Handler 'daskworkergroup_create' succeeded.");
                }
            }
            return;
        };
        let (old, new) = (number(&last, "/spec/worker/replicas"), wanted(group));
        if old != Some(new)
            && let Some(cluster) = cluster
        {
            let what = format!("replicas {} {new}", old.unwrap_or_default());
            if !self.reacts(&what) || !self.scale(cluster) {
                return;
            }
        }
        self.note(&[], json!({}));
    }

    /// Brings the number of worker Deployments to what the group asks for; `false`: try again later.
    fn scale(&mut self, cluster: &Value) -> bool {
        let group = self.object;
        let mine = |object: &&Value| {
            namespace(object) == namespace(group) && label(object, "dask.org/workergroup-name") == name(group)
        };
        let workers: Vec<&Value> = self.run.objects("apps", "deployments").into_iter().filter(mine).collect();
        let wanted = usize::try_from(wanted(group)).unwrap_or(0);
        let revision = self.run.revision();
        for number in workers.len()..wanted {
            let id = hex(&format!("{}/{revision}/{number}", uid(group)), 10);
            self.run.create(KR8S, children::worker_deployment(group, cluster, &id));
        }
        let surplus = workers.len().saturating_sub(wanted);
        if surplus == 0 {
            return true;
        }
        // The scheduler is asked which workers may go; without one there is no answer.
        if self.retries("scheduler", scheduler_pod(self.run, cluster).is_none()) {
            return false;
        }
        for worker in workers.iter().rev().take(surplus) {
            self.run.delete(key("apps", "deployments", worker));
        }
        true
    }

    fn autoscaler(&mut self) {
        let autoscaler = self.object;
        if !self.keeps_finalizer() {
            return;
        }
        let cluster = self.find("daskclusters", text(autoscaler, "/spec/cluster"));
        if kopf::last_handled(autoscaler).is_none() {
            if self.retries("cluster", cluster.is_none()) || !self.reacts("creation") {
                return;
            }
            if let Some(cluster) = cluster {
                self.adopt(cluster);
                self.note(&[], json!({"metadata": {"finalizers": kopf::with_finalizer(autoscaler)}}));
                self.say("Handler 'daskautoscaler_create' succeeded.");
            }
            return;
        }
        self.note(&[], json!({}));
        if let Some(cluster) = cluster {
            self.adapt(cluster);
        }
    }

    /// The timer: the scheduler's target, which for an idle one is no worker at all, within the bounds;
    /// at most a quarter fewer at a time, then a pause.
    fn adapt(&mut self, cluster: &Value) {
        let autoscaler = self.object;
        let group = self.find("daskworkergroups", &format!("{}-default", name(cluster)));
        let Some(group) = group.filter(|_| scheduler_pod(self.run, cluster).is_some()) else {
            return;
        };
        let bound = |field: &str| number(autoscaler, &format!("/spec/{field}")).unwrap_or(0);
        let (minimum, maximum, current) = (bound("minimum"), bound("maximum"), wanted(group));
        let mut target = minimum.min(maximum);
        if current > 0 {
            target = target.max(current - (current / 4).max(1));
        }
        if target == current {
            return;
        }
        let cooldown = annotation(autoscaler, COOLDOWN).and_then(|text| text.parse::<f64>().ok());
        let until = cooldown.and_then(|seconds| jiff::SignedDuration::try_from_secs_f64(seconds).ok());
        let until = until.and_then(|until| Timestamp::from_duration(until).ok());
        if until.is_some_and(|until| !self.run.reached(until)) {
            return;
        }
        let tick = format!("{} operator tick {current} {minimum} {maximum}", uid(autoscaler));
        if !self.run.passed(tick, stages().delay("autoscaler_tick")) {
            return;
        }
        self.scale_group(group, target);
        let pause = self.run.clock.real(stages().delay("autoscaler_cooldown"));
        let until = self.run.now.checked_add(pause).unwrap_or(self.run.now).as_duration().as_secs_f64();
        let key = self.key();
        self.run.merge(KR8S, key, json!({"metadata": {"annotations": {COOLDOWN: until.to_string()}}}));
    }

    fn job(&mut self) {
        const WATCHED: &[&str] = &["jobStatus"];
        let job = self.object;
        if is_deleted(job) {
            return;
        }
        let Some(last) = kopf::last_handled(job) else {
            if self.reacts("creation") {
                self.set_job(job, json!({"jobStatus": "JobCreated"}));
                self.note(WATCHED, json!({}));
            }
            return;
        };
        let created = "JobCreated";
        if text(job, "/status/jobStatus") == created && text(&last, "/status/jobStatus") != created {
            if self.reacts("components") {
                self.create_missing(GROUP, "daskclusters", children::job_cluster(job));
                self.create_missing("", "pods", children::job_runner(job));
                self.set_job(
                    job,
                    json!({
                        "clusterName": name(job), "jobStatus": "ClusterCreated",
                        "jobRunnerPodName": format!("{}-runner", name(job)),
                    }),
                );
                self.note(WATCHED, json!({}));
            }
            return;
        }
        self.note(WATCHED, json!({}));
    }

    fn set_job(&mut self, job: &Value, patch: Value) {
        let mut status = if job["status"].is_object() { job["status"].clone() } else { json!({}) };
        super::super::object::merge(&mut status, &patch);
        self.run.status(KR8S, key(GROUP, "daskjobs", job), job, status);
    }

    /// The runner pod's phase becomes the job's status; at the end the cluster is deleted.
    fn runner(&mut self) {
        let pod = self.object;
        let phase = text(pod, "/status/phase");
        let seen = kopf::last_handled(pod);
        if is_deleted(pod) || seen.is_some_and(|seen| text(&seen, "/status/phase") == phase) {
            return;
        }
        let job_name = label(pod, "dask.org/cluster-name");
        let job = self.find("daskjobs", job_name);
        let cluster = self.find("daskclusters", job_name);
        let now = time(self.run.now);
        match (phase, job, cluster) {
            ("Running", Some(job), _) => {
                if !self.reacts(phase) {
                    return;
                }
                self.set_job(job, json!({"jobStatus": "Running", "startTime": now}));
            }
            ("Succeeded" | "Failed", Some(job), Some(cluster)) => {
                if !self.reacts(phase) {
                    return;
                }
                self.run.delete(key(GROUP, "daskclusters", cluster));
                let outcome = if phase == "Succeeded" { "Successful" } else { "Failed" };
                self.set_job(job, json!({"jobStatus": outcome, "endTime": now}));
            }
            // The handler raises and is tried again forever: the job stays as it is.
            ("Running" | "Succeeded" | "Failed", ..) => return,
            _ => {}
        }
        self.note(&["phase"], json!({}));
    }
}

/// The replicas that a group asks for; the CRD's default is 1.
fn wanted(group: &Value) -> i64 {
    number(group, "/spec/worker/replicas").unwrap_or(1)
}

/// The Ready scheduler pod of a cluster.
fn scheduler_pod<'a>(run: &Run<'a>, cluster: &Value) -> Option<&'a Value> {
    run.objects("", "pods").into_iter().find(|pod| {
        namespace(pod) == namespace(cluster)
            && label(pod, "dask.org/component") == "scheduler"
            && label(pod, "dask.org/cluster-name") == name(cluster)
            && is_ready(pod)
    })
}

/// `^(?=.{,53}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
fn is_cluster_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.len() <= LONGEST_NAME
        && text.starts_with(plain)
        && text.ends_with(plain)
        && text.chars().all(|c| plain(c) || c == '-')
}

#[cfg(test)]
#[path = "dask_tests.rs"]
mod tests;
