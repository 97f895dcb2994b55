//! Jobs on a host: a program that runs to completion with a Dask cluster of its own, which ends with it.

use serde_json::{Value, json};

use crate::dask::api::{CLUSTER_LABEL, COMPONENT_LABEL};
use crate::dask::cluster::{DaskCluster, Scheduler};
use crate::dask::device_memory;
use crate::dask::job::{self, DaskJob, Restart};
use crate::dask::replicas::Replicas;
use crate::descriptions::in_parentheses;
use crate::hosts::{api, cluster, files, slurm, workers};
use crate::json::{count, text};
use crate::kind::{ChangeContext, Compare, ConnectTarget, Defect, EndpointKind, Kind, PodSource, StopEffect};
use crate::kubernetes::object::{gvk, pods_labelled};
use crate::kubernetes::pod_state::{ContainerState, PodState};
use crate::kubernetes::why::{self, Cause};
use crate::scope::Scope;
use crate::status::StatusLine;
use model::address::{Address, FieldPath};
use model::resource::{
    Await, Effect, Facts, Identity, KindId, ObjectId, Readiness, Recreation, Resource, Step,
};

/// Seconds until the program runs: its scheduler comes before it, and importing Dask takes up to ten on a busy machine.
const START_TIMEOUT: u32 = 300;
/// Seconds for which an apply follows a job that sets no timeout, as for jobs of the Dask operator.
const DEFAULT_JOB_TIMEOUT: u32 = 3600;

pub const KIND: Kind = Kind {
    rank: 63,
    compare: Compare::Kubernetes(effect),
    change_steps,
    find_defect,
    readiness: |wait, found| Ok(readiness(wait, found.own_object())),
    status_line: |_, found| Ok(status_line(found.own_object())),
    plan_summary: |resource| vec![workers::about(&resource.body["spec"]["worker"])],
    pods,
    endpoint: |resource| {
        let service = resource.identity.object()?.clone();
        Some(ConnectTarget { kind: EndpointKind::Scheduler, service })
    },
    address: |object| Address::of("dask_job", &object.name),
    stop_effect: StopEffect::DeletesWhile(|live| State::of(live) == State::Runs),
    runs_to_completion: true,
    ..Kind::DEFAULT
};

/// States of a job, named as by the Dask operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Its program has not started or is running.
    Runs,
    Successful,
    Failed,
}

impl State {
    fn of(job: &Value) -> Self {
        match text(&job["status"]["jobStatus"]) {
            "Successful" => Self::Successful,
            "Failed" => Self::Failed,
            _ => Self::Runs,
        }
    }
}

/// Returns the process of a job's program, as the agent names it.
fn runner(job: &ObjectId) -> ObjectId {
    ObjectId {
        gvk: gvk("", "v1", "Pod", "pods"),
        namespace: Some(api::NAMESPACE.to_owned()),
        name: format!("{}-runner", job.name),
    }
}

/// Lowers `[dask_job.KEY]` on a host to the job and its files; `like` is the section that it names.
pub fn lower(key: &str, section: &DaskJob, like: Option<&DaskCluster>, scope: &Scope) -> Vec<Resource> {
    let origin = FieldPath::keys(["dask_job", key]);
    let api = api::job();
    let name = section.live_name(key);
    let environment = section.environment.as_deref().or(like.and_then(|like| like.environment.as_deref()));
    let own = own_cluster(section, like, environment);
    let code = section.code(like, &origin);
    let mut spec = cluster::spec(&own, &code, scope);
    // Without ports its scheduler takes two that are free: those of a copied cluster are that one's.
    for (key, port) in [("port", own.scheduler.port), ("dashboardPort", own.scheduler.dashboard_port)] {
        if let Some(port) = port {
            spec["scheduler"][key] = json!(port);
        }
    }
    spec["program"] = json!({ "args": section.args });
    files::add_folder(&mut spec["program"], code.folder());
    if !section.keys.env.is_empty() {
        spec["program"]["env"] = workers::variables(&section.keys.env);
        workers::add_secret_refs(&mut spec["program"], &section.keys.env, scope);
    }
    own.config.add_to_process(&mut spec["program"], &section.keys.env);
    if own.worker.device_memory.cudf_spill {
        device_memory::add_spill_to_process(&mut spec["program"], &section.keys.env);
    }
    if section.keys.gpus() > 0 {
        spec["program"]["gpus"] = json!(section.keys.gpus());
    }
    if section.restart == Restart::OnFailure {
        spec["restart"] = json!("on-failure");
    }
    let mut depends_on = workers::dependencies(environment, scope);
    let envs = [&section.keys.env, &own.scheduler.keys.env, &own.worker.keys.env];
    depends_on.extend(workers::secret_dependency(envs, scope));
    depends_on.extend(section.lifecycle.depends_on.iter().map(Address::new));
    let mut job = Resource {
        address: Address::of("dask_job", key),
        identity: api::identity(&api, name),
        kind: KindId::HostJob,
        body: json!({
            "apiVersion": api.api_version(), "kind": api.kind,
            "metadata": { "name": name, "labels": scope.labels() },
            "spec": spec,
        }),
        create_only: Value::Null,
        provenance: provenance(&origin, (section, like), &own, scope),
        origin,
        depends_on,
        protect: section.lifecycle.protect,
        recreation: Recreation::Once {
            timeout: section.wait.then(|| section.timeout.unwrap_or(DEFAULT_JOB_TIMEOUT)),
        },
    };
    let files = files::lower(&mut job, &code, scope);
    std::iter::once(job).chain(files).collect()
}

/// Returns the job's own cluster.
fn own_cluster(section: &DaskJob, like: Option<&DaskCluster>, environment: Option<&str>) -> DaskCluster {
    // It is beside the program, wherever that of the copied cluster is.
    let copied = like.map(|like| Scheduler {
        port: None,
        dashboard_port: None,
        slurm: None,
        ..like.scheduler.clone()
    });
    let mut worker = section.worker.clone().or(like.map(|like| like.worker.clone())).unwrap_or_default();
    if let Some(number) = section.replicas {
        worker.replicas = Replicas::Fixed(number);
    }
    DaskCluster {
        environment: environment.map(str::to_owned),
        config: section.config(like, &FieldPath::root()).0.clone(),
        scheduler: section.scheduler.clone().or(copied).unwrap_or_default(),
        worker,
        ..DaskCluster::default()
    }
}

/// Returns the provenance of the fields. Values from other sections are not part of the job's own text: more hosts, another
/// partition or other packages do not rerun it.
fn provenance(
    origin: &FieldPath,
    (section, like): (&DaskJob, Option<&DaskCluster>),
    own: &DaskCluster,
    scope: &Scope,
) -> Vec<(FieldPath, FieldPath)> {
    let copied = section.like.as_ref().map(|like| FieldPath::keys(["dask_cluster", like]));
    let from = |given: bool| match &copied {
        Some(copied) if !given => copied.clone(),
        _ => origin.clone(),
    };
    let target = FieldPath::keys([scope.target.hosts_section()]);
    let worker = from(section.worker.is_some()).key("worker");
    let mut provenance = workers::provenance(&worker, &own.worker.process);
    let path = |keys: &[&str]| keys.iter().fold(FieldPath::keys(["spec"]), |path, key| path.key(key));
    provenance.extend([
        (path(&["environment"]), from(section.environment.is_some()).key("environment")),
        (path(&["scheduler"]), from(section.scheduler.is_some()).key("scheduler")),
        // On another host it would run once more, whoever says so.
        (path(&["scheduler", "on"]), origin.clone()),
        (path(&["scheduler", "protocol"]), cluster::protocol_from(&worker, own, scope)),
        (path(&["scheduler", "dashboardPort"]), from(true).key("scheduler").key("dashboard_port")),
        (path(&["worker", "replicas"]), job::number_from(origin, section)),
        (path(&["program", "args"]), origin.key("args")),
        (path(&["program", "env"]), origin.key("env")),
        (path(&["program", "secrets"]), origin.key("env")),
        (path(&["program", "gpus"]), origin.key("gpus")),
        (path(&["restart"]), origin.key("restart")),
        (path(&["hosts"]), target.key("hosts")),
    ]);
    if let Some(facts) = scope.environment(own.environment.as_deref()) {
        let packages = FieldPath::keys(["environment", &facts.key]);
        provenance.push((path(&["environment", "digest"]), packages));
    }
    let code = section.code(like, origin);
    provenance.extend(cluster::code_provenance(&own.worker, &worker, &code));
    provenance.extend(files::provenance(&code, &[("program", None)]));
    let (config, table) = section.config(like, origin);
    provenance.extend(cluster::config_provenance(own, &table));
    provenance.extend(config.process_provenance(&section.keys.env, &path(&["program"]), &table));
    let parts = [("scheduler", &own.scheduler.keys.env), ("program", &section.keys.env)];
    let spill = own.worker.device_memory.cudf_spill.then(|| worker.key("cudf_spill"));
    provenance.extend(spill.into_iter().flat_map(|key| {
        let of = |(part, env)| device_memory::process_spill_provenance(env, &path(&[part]), key.clone());
        parts.map(of).into_iter().flatten()
    }));
    provenance.extend(cluster::pip_install_from(own.environment.as_deref(), scope));
    if own.worker.hosts.is_empty() {
        provenance.push((path(&["worker", "hosts"]), target.key("hosts")));
    }
    if own.worker.slurm.is_none() {
        provenance.push((path(&["worker", "slurm"]), target));
    }
    provenance
}

fn effect(path: &FieldPath) -> (Effect, Option<&'static str>) {
    if FieldPath::keys(["metadata"]).contains(path) {
        return (Effect::InPlace, None);
    }
    // Where its workers are is no part of what it computes, and a host that leaves the file is emptied.
    if let Some(spread) = workers::hosts_effect(path) {
        return spread;
    }
    (Effect::Replace, Some("a job runs once: a changed job is deleted and runs again"))
}

fn change_steps(context: &ChangeContext) -> Vec<Step> {
    let runner = context.object().map(runner);
    job::follow(context, KindId::HostJob, (None, START_TIMEOUT), runner)
}

/// Finds a job that no agent process follows, and workers that ended while the program runs.
fn find_defect(context: &ChangeContext) -> Option<Defect> {
    let live = context.live?;
    let status = live.get("status").filter(|status| status["converging"] == false)?;
    let workers = &status["workers"];
    let (running, present) = (count(&workers["running"]), count(&workers["present"]));
    let desired = count(&live["spec"]["worker"]["replicas"]);
    let why = match State::of(live) {
        State::Successful | State::Failed => {
            let is_left = present > 0 || status["scheduler"]["running"] == true;
            if !is_left || status["followed"] == true {
                return None;
            }
            "its program has ended, and processes of its cluster are left; they are stopped".to_owned()
        }
        State::Runs if status["followed"] == false => {
            "what takes care of it was killed; it is taken up again".to_owned()
        }
        State::Runs if running < desired && status["scheduler"]["answers"] == true => {
            let how = in_parentheses(&slurm::ended(&status["queue"]));
            format!("{} of {desired} workers not running{how}; they are started again", desired - running)
        }
        State::Runs => return None,
    };
    Some(Defect::of(context, why))
}

fn readiness(wait: &Await, live: &Value) -> Readiness {
    let waits = |what: &str| Readiness::progressing(what);
    if !live.is_object() {
        return waits("not created yet");
    }
    if let Some(unread_hosts) = api::unread_hosts(live) {
        return unread_hosts;
    }
    let status = &live["status"];
    let to_the_end = matches!(wait.facts, Facts::Job { to_the_end: true, .. });
    let (state, has_begun) = (State::of(live), status["jobStatus"] == "Running");
    let goes_on = status["followed"] == true || status["converging"] == true;
    match state {
        State::Successful | State::Failed if to_the_end && goes_on => {
            return waits("its program has ended, and its cluster is being stopped");
        }
        State::Successful => return Readiness::Ready,
        // One that failed later has begun; the plan tells of it.
        State::Failed if !to_the_end && status["startTime"].is_string() => return Readiness::Ready,
        State::Failed => return Readiness::Failed(why_failed(status)),
        State::Runs => {}
    }
    if !goes_on {
        return Readiness::Failed("what takes care of it was killed; apply again to take it up".to_owned());
    }
    let workers = &status["workers"];
    let (running, registered) = (count(&workers["running"]), count(&workers["registered"]));
    let desired = count(&live["spec"]["worker"]["replicas"]);
    match slurm::readiness(&status["queue"]) {
        Some(failed @ Readiness::Failed(_)) => return failed,
        // Without any worker it can only wait. Jobs in the queue count as running: they are there.
        Some(queued) if to_the_end && has_begun && registered == 0 => return queued,
        Some(_) | None => {}
    }
    if !has_begun && status["installs"] == true {
        return waits(workers::INSTALL_WAIT);
    }
    if !has_begun {
        return waits("its scheduler is being started");
    }
    if !to_the_end {
        return Readiness::Ready;
    }
    if running == 0 && desired > 0 && status["converging"] == false {
        let said = text(&status["message"]);
        let said = if said.is_empty() { String::new() } else { format!(": {said}") };
        return Readiness::Failed(format!("its program runs, but none of its {desired} workers does{said}"));
    }
    Readiness::progressing(format!("its program runs, {registered} of {desired} workers are registered"))
}

/// Returns why it failed, with the last output of the program.
fn why_failed(status: &Value) -> String {
    let said = text(&status["message"]);
    let Some(code) = status["exitCode"].as_u64() else {
        return if said.is_empty() { "its program failed".to_owned() } else { said.to_owned() };
    };
    // A shell reports a signal as 128 plus its number. Source: POSIX.1-2017, Shell and Utilities, 2.8.2.
    let signal = match code {
        130 => " (SIGINT)",
        137 => " (SIGKILL: by somebody, or because the host had no memory left)",
        139 => " (SIGSEGV)",
        143 => " (SIGTERM)",
        _ => "",
    };
    let said = if said.is_empty() { String::new() } else { format!(": {said}") };
    format!("its program failed with exit code {code}{signal}{said}")
}

fn status_line(live: &Value) -> StatusLine {
    let status = &live["status"];
    let workers = &status["workers"];
    let desired = count(&live["spec"]["worker"]["replicas"]);
    let (phase, mut said) = (text(&status["jobStatus"]), Vec::new());
    let mut facts = vec![
        ("phase", status["jobStatus"].clone()),
        ("started", status["startTime"].clone()),
        ("ended", status["endTime"].clone()),
        ("exit_code", status["exitCode"].clone()),
        ("workers_wanted", json!(desired)),
    ];
    said.push(if phase.is_empty() { "not seen yet".to_owned() } else { phase.to_owned() });
    let state = State::of(live);
    if state == State::Runs {
        let address = text(&status["scheduler"]["address"]);
        said.push(format!("{} of {desired} workers registered", count(&workers["registered"])));
        said.extend((!address.is_empty()).then(|| format!("scheduler at {address}")));
        said.extend(slurm::waits(&status["queue"]));
        facts.push(("scheduler", json!(address)));
        facts.push(("dashboard", status["scheduler"]["dashboard"].clone()));
    }
    StatusLine {
        line: said.join(", "),
        facts,
        failed: (state == State::Failed).then(|| why_failed(status)),
        waits: idle(live),
        ..StatusLine::default()
    }
}

/// Describes why a running program cannot compute: it has no workers.
fn idle(live: &Value) -> Option<String> {
    let status = &live["status"];
    let desired = count(&live["spec"]["worker"]["replicas"]);
    let runs = status["jobStatus"] == "Running" && status["unasked"].is_null();
    if !runs || desired == 0 || count(&status["workers"]["registered"]) > 0 {
        return None;
    }
    let what = format!("its program runs, and none of its {desired} workers is registered");
    let said = slurm::waits(&status["queue"]).unwrap_or_else(|| text(&status["message"]).to_owned());
    Some(if said.is_empty() { what } else { format!("{what}: {said}") })
}

/// Returns true if a process is the program of a job, and not one of its cluster.
pub fn is_program(pod: &Value) -> bool {
    pod["metadata"]["labels"][COMPONENT_LABEL] == "job-runner"
}

/// Returns the cause for a program that has failed: it runs again only on request.
pub fn ended(pod: &Value, log: Option<String>, program: &str, address: &Address) -> Cause {
    let code = PodState(pod).containers().find_map(ContainerState::exit_code);
    let message = text(&pod["status"]["message"]);
    let what = match code {
        Some(code) => format!("it ended with exit code {code}"),
        None if message.is_empty() => "it ended, and its exit code is not known".to_owned(),
        None => message.to_owned(),
    };
    let log = log.filter(|log| !log.is_empty());
    let said = log.map(|log| format!("the end of its log:\n{log}"));
    why::cause(
        "ended",
        &what,
        said,
        vec![format!("fix what it says; `{program} run {address}` runs it again")],
    )
}

/// Returns the pods of its program and of its cluster.
fn pods(resource: &Resource) -> PodSource {
    let Identity::Object(object) = &resource.identity else { return PodSource::None };
    PodSource::Known(pods_labelled(Some(api::NAMESPACE), [(CLUSTER_LABEL, object.name.as_str())]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::resource::{Action, Until};

    fn judged(status: &Value, to_the_end: bool) -> Readiness {
        let identity = api::identity(&api::job(), "j");
        let facts = Facts::Job { to_the_end, gang: None };
        let wait = Await { kind: KindId::HostJob, identity, until: Until::Ready, facts, deadline: 1 };
        readiness(&wait, &json!({ "spec": { "worker": { "replicas": 2 } }, "status": status }))
    }

    fn status(phase: &str, followed: bool, running: u64) -> Value {
        json!({
            "jobStatus": phase, "followed": followed, "converging": false,
            "workers": { "running": running, "present": running, "registered": running },
            "scheduler": { "running": true, "answers": true },
        })
    }

    #[test]
    fn a_job_is_begun_or_followed_to_its_end() {
        let waits = |found: Readiness| assert!(matches!(found, Readiness::Progressing(_)), "{found:?}");
        let fails = |found: Readiness, words: &str| {
            let Readiness::Failed(why) = found else { panic!("{found:?}") };
            assert!(why.contains(words), "{why}");
        };
        for to_the_end in [false, true] {
            waits(judged(&status("JobCreated", true, 0), to_the_end));
            assert_eq!(judged(&status("Successful", false, 0), to_the_end), Readiness::Ready);
            fails(judged(&status("Running", false, 2), to_the_end), "apply again");
        }
        assert_eq!(judged(&status("Running", true, 1), false), Readiness::Ready);
        waits(judged(&status("Running", true, 1), true));
        fails(judged(&status("Running", true, 0), true), "none of its 2 workers");
        // Its cluster is still there.
        waits(judged(&status("Successful", true, 2), true));
        waits(judged(&status("Failed", true, 2), true));
        let mut failed = status("Failed", false, 0);
        failed["startTime"] = json!("2026-01-01T00:00:00Z");
        failed["exitCode"] = json!(137);
        failed["message"] = json!("last words");
        assert_eq!(judged(&failed, false), Readiness::Ready);
        fails(judged(&failed, true), "exit code 137 (SIGKILL");
        fails(judged(&failed, true), "last words");
        // Its program never began.
        fails(judged(&json!({ "jobStatus": "Failed", "message": "port" }), false), "port");
        // In SLURM's queue: without a worker nothing can be computed.
        let mut queued = status("Running", true, 0);
        queued["queue"] = json!({ "waiting": { "Resources": 2 } });
        assert!(matches!(judged(&queued, true), Readiness::Queued(_)));
        assert_eq!(judged(&queued, false), Readiness::Ready);
        queued["queue"] = json!({ "waiting": { "PartitionConfig": 2 } });
        fails(judged(&queued, false), "can never start");
    }

    #[test]
    fn a_program_without_workers_waits() {
        let line = |status: Value| {
            status_line(&json!({ "spec": { "worker": { "replicas": 2 } }, "status": status })).waits
        };
        assert_eq!(line(status("Running", true, 1)), None);
        let mut none = status("Running", true, 0);
        let what = "its program runs, and none of its 2 workers is registered";
        assert_eq!(line(none.clone()).unwrap(), what);
        none["message"] = json!("j-worker-0 ended: job 4: TIMEOUT");
        assert_eq!(line(none.clone()).unwrap(), format!("{what}: j-worker-0 ended: job 4: TIMEOUT"));
        none["queue"] = json!({ "waiting": { "Resources": 2 } });
        assert!(line(none).unwrap().ends_with("2 jobs in SLURM's queue: no nodes are free (Resources)"));
        assert_eq!(line(status("JobCreated", true, 0)), None);
        assert_eq!(line(status("Successful", false, 0)), None);
    }

    #[test]
    fn what_nobody_takes_care_of_is_a_fault() {
        let identity = api::identity(&api::job(), "j");
        let owner = model::resource::Owner::default();
        for (status, expect) in [
            (status("Running", true, 2), None),
            (status("Running", true, 1), Some("1 of 2 workers not running")),
            (status("Running", false, 2), Some("taken up again")),
            (status("Successful", true, 2), None),
            (status("Failed", false, 2), Some("processes of its cluster are left")),
        ] {
            let live = json!({ "spec": { "worker": { "replicas": 2 } }, "status": status });
            let context =
                ChangeContext { live: Some(&live), ..ChangeContext::of(Action::Keep, &identity, &owner) };
            let why = find_defect(&context).map(|defect| defect.why);
            assert_eq!(why.is_some(), expect.is_some(), "{status}");
            assert!(why.unwrap_or_default().contains(expect.unwrap_or_default()), "{status}");
        }
        let ended = json!({ "spec": {}, "status": {
            "jobStatus": "Successful", "converging": false, "followed": false,
            "workers": { "running": 0, "present": 0 }, "scheduler": { "running": false },
        } });
        let context =
            ChangeContext { live: Some(&ended), ..ChangeContext::of(Action::Keep, &identity, &owner) };
        assert!(find_defect(&context).is_none(), "what has ended is left alone");
    }

    #[test]
    fn a_changed_job_is_a_new_run() {
        assert_eq!(effect(&"spec.program.args".parse().unwrap()).0, Effect::Replace);
        assert_eq!(effect(&"spec.worker.replicas".parse().unwrap()).0, Effect::Replace);
        assert_eq!(effect(&"metadata.labels.a".parse().unwrap()).0, Effect::InPlace);
        assert_eq!(effect(&"spec.hosts".parse().unwrap()).0, Effect::InPlace);
    }
}
