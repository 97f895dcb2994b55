//! The workers of clusters and groups on a host.

use serde_json::{Value, json};

use crate::dask::device_memory::DeviceMemoryKeys;
use crate::dask::pods::desired;
use crate::dask::process::ProcessKeys;
use crate::dask_config::DaskConfig;
use crate::descriptions::{counted, in_parentheses};
use crate::env::{self, Env, Variable, own_secret};
use crate::hosts::adaptive::{self, Bounds};
use crate::hosts::api;
use crate::hosts::slurm;
use crate::json::{count, text};
use crate::kind::{ChangeContext, Defect};
use crate::kubernetes::calls::object_change_steps;
use crate::kubernetes::why::{self, Cause};
use crate::scale::{ReplicaOwner, ScaleTarget};
use crate::scope::Scope;
use crate::section::PodKeys;
use crate::short_forms::host_names;
use crate::slurm::SlurmKeys;
use crate::status::StatusLine;
use crate::worker_resources::WorkerResources;
use model::address::{Address, FieldPath};
use model::quantity::Quantity;
use model::resource::{Await, Effect, Facts, KindId, Readiness, Resource, Step};

/// Seconds: importing Dask takes up to ten on a busy machine, for each process.
const DEADLINE: u32 = 600;

/// The effect of a rolling change on workers, as plans state it.
pub(crate) const RESTART_EFFECT: &str = "workers are restarted";

/// Returns `spec.worker`.
pub(crate) fn body(
    replicas: u32,
    keys: &PodKeys,
    (process, device_memory): (&ProcessKeys, &DeviceMemoryKeys),
    config: &DaskConfig,
    resources: &WorkerResources,
    scope: &Scope,
) -> Value {
    let ProcessKeys { threads, processes, interface, local_directory, worker_port, nanny_port, nanny: _ } =
        process;
    let mut worker = limits(keys);
    worker["replicas"] = json!(replicas);
    if let Some(threads) = threads {
        worker["threads"] = json!(threads);
    }
    if let Some(processes) = processes.filter(|processes| *processes > 1) {
        worker["processes"] = json!(processes);
    }
    if keys.gpus() > 0 {
        worker["gpus"] = json!(keys.gpus());
    }
    let cuda_options = device_memory.args();
    if !cuda_options.is_empty() {
        worker["cudaOptions"] = json!(cuda_options);
    }
    if let Some(interface) = interface {
        worker["interface"] = json!(interface);
    }
    if let Some(folder) = local_directory {
        worker["localDirectory"] = json!(folder);
    }
    for (field, ports) in [("workerPort", worker_port), ("nannyPort", nanny_port)] {
        if let Some(ports) = ports {
            worker[field] = json!(ports);
        }
    }
    if !process.has_nanny() {
        worker["nanny"] = json!(false);
    }
    for (name, value) in process.variables() {
        worker["env"][name] = json!(value);
    }
    config.add_to_process(&mut worker, &keys.env);
    if !resources.is_empty() {
        worker["resources"] = json!(resources);
    }
    for (name, value) in keys.env.iter().filter_map(|(name, value)| Some((name, value.text()?))) {
        worker["env"][name] = json!(value);
    }
    add_secret_refs(&mut worker, &keys.env, scope);
    worker
}

/// Returns the limits of a process: its threads (one per CPU) and its memory in bytes.
pub(crate) fn limits(keys: &PodKeys) -> Value {
    let mut limits = json!({ "threads": keys.cpu.as_deref().and_then(threads_of).unwrap_or(1) });
    if let Some(bytes) = keys.memory.as_deref().and_then(whole) {
        limits["memory"] = json!(bytes);
    }
    limits
}

/// Returns a quantity as a whole number, rounded up.
fn whole(text: &str) -> Option<u64> {
    u64::try_from(Quantity::parse(text)?.whole()).ok()
}

/// Returns the threads of a worker from its `cpu`: at least one.
pub fn threads_of(cpu: &str) -> Option<u64> {
    whole(cpu).map(|threads| threads.max(1))
}

/// Adds the SLURM options if workers are SLURM jobs.
pub(crate) fn add_slurm_options(worker: &mut Value, own: Option<&SlurmKeys>, scope: &Scope) {
    let Some(base) = &scope.slurm else { return };
    worker["slurm"] = own.unwrap_or(&SlurmKeys::default()).over(base).worker_options(worker);
}

/// Returns the hosts that a section names, in their order; all if it names none.
pub(crate) fn hosts_of(named: &[String], all: &[String]) -> Vec<String> {
    let named: Vec<String> = named.iter().flat_map(|name| host_names(name)).collect();
    all.iter().filter(|name| named.is_empty() || named.contains(name)).cloned().collect()
}

/// Returns the addresses of the environment that the processes depend on.
pub(crate) fn dependencies(environment: Option<&str>, scope: &Scope) -> Vec<Address> {
    scope.environment(environment).map(|facts| Address::of("environment", &facts.key)).into_iter().collect()
}

/// Returns the variables that have a text as their value; rules of the stack refuse references to Secrets on hosts.
pub(crate) fn variables(env: &Env) -> Value {
    env.iter().filter_map(|(name, value)| Some((name.clone(), json!(value.text()?)))).collect()
}

/// Adds the key of the stack's Secret for each variable with a secret value: hosts store it, and pass it to processes when they
/// start.
pub(crate) fn add_secret_refs(to: &mut Value, env: &Env, scope: &Scope) {
    for (name, value) in env {
        if let Variable::Secret(key) = value
            && let Some(variable) = key.variable()
        {
            to["secrets"][name] = json!({ "secret": own_secret(&scope.owner), "key": variable });
        }
    }
}

/// Returns the address of the Secret that processes with these variables need, if any.
pub(crate) fn secret_dependency<'e>(
    envs: impl IntoIterator<Item = &'e Env>,
    scope: &Scope,
) -> Option<Address> {
    let values = envs.into_iter().flat_map(|env| env.values());
    env::dependencies(values, api::NAMESPACE, &scope.owner)
}

/// Returns `spec.environment`: its name and its digest.
pub(crate) fn environment(key: Option<&str>, scope: &Scope) -> Value {
    match scope.environment(key) {
        Some(facts) => json!({ "name": facts.live_name(&scope.owner), "digest": facts.digest }),
        None => json!({ "name": key.unwrap_or_default(), "digest": "" }),
    }
}

/// Returns the provenance of the worker's fields.
pub(crate) fn provenance(origin: &FieldPath, process: &ProcessKeys) -> Vec<(FieldPath, FieldPath)> {
    let path = |key: &str| FieldPath::keys(["spec", "worker", key]);
    let threads = if process.threads.is_some() { "threads" } else { "cpu" };
    vec![
        (FieldPath::keys(["spec", "worker"]), origin.clone()),
        (path("threads"), origin.key(threads)),
        (path("processes"), origin.key("processes")),
        (path("gpus"), origin.key("gpus")),
        (path("cudaOptions"), origin.clone()),
        (path("interface"), origin.key("interface")),
        (path("localDirectory"), origin.key("local_directory")),
        (path("workerPort"), origin.key("worker_port")),
        (path("nannyPort"), origin.key("nanny_port")),
        (path("nanny"), origin.key("nanny")),
        (path("resources"), origin.key("resources")),
        (path("env"), origin.key("env")),
        (path("secrets"), origin.key("env")),
        (path("hosts"), origin.key("hosts")),
        (path("slurm"), origin.key("slurm")),
        (path("memory"), origin.key("memory")),
    ]
}

/// Returns the effect of changing a field of the workers; `None` for other fields.
pub(crate) fn effect(path: &FieldPath) -> Option<(Effect, Option<&'static str>)> {
    if api::replicas_path().contains(path) || adaptive::path().contains(path) {
        return Some((Effect::InPlace, None));
    }
    if let Some(spread) = hosts_effect(path) {
        return Some(spread);
    }
    if FieldPath::keys(["metadata"]).contains(path) {
        return Some((Effect::InPlace, None));
    }
    let worker = FieldPath::keys(["spec", "worker"]).contains(path);
    worker.then_some((Effect::Rolling, Some(RESTART_NOTE)))
}

/// Returns the effect of changing the hosts; `None` for other fields.
pub(crate) fn hosts_effect(path: &FieldPath) -> Option<(Effect, Option<&'static str>)> {
    let hosts = api::hosts_paths();
    let does = "workers are started on new hosts, and retired on hosts that are left";
    hosts.iter().any(|hosts| hosts.contains(path)).then_some((Effect::InPlace, Some(does)))
}

/// The note on changes that restart workers: how they restart, and what is lost.
pub(crate) const RESTART_NOTE: &str = "its workers are retired and started again, half of them at a time; what the only worker of \
     a Dask cluster holds in memory is lost";

/// The text of a wait for a scheduler that installs packages and does not answer meanwhile.
pub(crate) const INSTALL_WAIT: &str = "the packages of `pip_install` are being installed";

/// The remedy for limits that are more than the memory of their host.
const LESS_MEMORY: &str =
    "the kernel may end a worker before Dask spills: lower `memory`, or the number of workers or processes";

/// The remedy for versions that do not work together.
const SAME_VERSIONS: &str = "use one environment for scheduler and workers, with versions that are pinned; `--replace` of the Dask \
     cluster restarts what was started before its packages changed";

pub(crate) fn change_steps(context: &ChangeContext, kind: KindId) -> Vec<Step> {
    let spec = &context.body()["spec"];
    let replicas = spec["worker"]["replicas"].as_u64();
    let facts = Facts::Workers { replicas, cluster: spec["cluster"].as_str().map(str::to_owned), gang: None };
    object_change_steps(context, kind, facts, DEADLINE)
}

/// Finds processes that have ended. The repair starts them again.
pub(crate) fn find_defect(context: &ChangeContext) -> Option<Defect> {
    let live = context.live?;
    let status = live.get("status").filter(|status| status["converging"] == false)?;
    let (desired, running) =
        (count(&live["spec"]["worker"]["replicas"]), count(&status["workers"]["running"]));
    let (of_cluster, adapts) =
        (live["kind"] == "Cluster", adaptive::bounds(&live["spec"]["worker"]).is_some());
    let why = if of_cluster && status["scheduler"]["running"] == false {
        let how = in_parentheses(&slurm::ended(&status["scheduler"]["queue"]));
        format!("the scheduler is not running{how}; it and all workers are started again")
    } else if status["scheduler"]["queue"].is_object() && status["scheduler"]["address"].is_null() {
        "what waits for the job of its scheduler was interrupted; it goes on".to_owned()
    } else if let Some(why) = status["plugin"].as_str() {
        format!("the packages of `pip_install` are not installed ({why}); they are installed again")
    } else if let Some(why) = adapts.then(|| adaptive::defect(status)).flatten() {
        why
    } else if running < desired {
        let how = in_parentheses(&slurm::ended(&status["queue"]));
        format!("{} of {desired} workers not running{how}; they are started again", desired - running)
    } else if !adapts && count(&status["workers"]["present"]) > desired {
        let more = count(&status["workers"]["present"]) - desired;
        format!("{more} more than {desired} workers are running; they are retired")
    } else if let Some(what) = adaptive::unrestarted(status) {
        let how = in_parentheses(text(&status["message"]));
        format!("{what}{how}; this is tried again")
    } else if let Some(strays) = status["strays"].as_array() {
        let hosts: Vec<&str> = strays.iter().filter_map(Value::as_str).collect();
        format!(
            "an interrupted apply left a part of it on {}; that is completed or removed",
            hosts.join(", ")
        )
    } else {
        return None;
    };
    Some(Defect::of(context, why))
}

/// Returns the readiness, from the processes that the agent finds and the workers that the scheduler knows.
pub(crate) fn readiness(wait: &Await, live: &Value) -> Readiness {
    api::unread_hosts(live).unwrap_or_else(|| judged(wait, live))
}

fn judged(wait: &Await, live: &Value) -> Readiness {
    let status = &live["status"];
    let (desired, whose) = desired(wait, live);
    let workers = &status["workers"];
    let (running, registered) = (count(&workers["running"]), count(&workers["registered"]));
    let ended = |what: String| match text(&status["message"]) {
        "" => what,
        said => format!("{what}: {said}"),
    };
    let converging = status["converging"] == true;
    if status["scheduler"]["running"] != true {
        return match converging {
            true => Readiness::progressing("its scheduler is being started"),
            false => Readiness::Failed(ended("its scheduler is not running".to_owned())),
        };
    }
    if let Some(waits) = slurm::scheduler_readiness(&status["scheduler"]["queue"]) {
        return waits;
    }
    if status["installs"] == true {
        return Readiness::progressing(INSTALL_WAIT);
    }
    if let Some(why) = status["plugin"].as_str() {
        return Readiness::Failed(format!("`pip_install`: {why}"));
    }
    if let Some(bounds) = adaptive::bounds(&live["spec"]["worker"]) {
        let waits = adaptive::readiness(bounds, status);
        return waits.or_else(|| version_mismatch(status)).unwrap_or_else(|| running_readiness(status));
    }
    if running < desired && !converging {
        return Readiness::Failed(ended(format!("{running} of {desired} workers{whose} are running")));
    }
    if status["scheduler"]["answers"] != true {
        return Readiness::progressing(adaptive::SILENT);
    }
    match slurm::readiness(&status["queue"]) {
        // While converging, jobs that can never start may be about to be removed.
        Some(Readiness::Failed(why)) if converging => return Readiness::progressing(why),
        Some(waits) => return waits,
        None => {}
    }
    if let Some(skewed) = version_mismatch(status) {
        return skewed;
    }
    if let Some(what) = adaptive::unrestarted(status).filter(|_| !converging) {
        return Readiness::Failed(ended(what));
    }
    if registered < desired {
        return Readiness::progressing(format!("{registered} of {desired} workers{whose} are registered"));
    }
    if converging {
        return Readiness::progressing("workers that are no longer wanted are ending");
    }
    if count(&workers["present"]) > desired {
        return Readiness::Failed(ended("workers that are no longer wanted go on".to_owned()));
    }
    running_readiness(status)
}

/// Returns failed for versions that do not work together. While hosts are being changed they may still have an earlier
/// environment, so versions may differ then.
fn version_mismatch(status: &Value) -> Option<Readiness> {
    let skew = text(&status["skew"]);
    let said = !skew.is_empty() && status["converging"] != true;
    said.then(|| Readiness::Failed(format!("versions that do not work together: {skew}; {SAME_VERSIONS}")))
}

/// Returns the readiness of a cluster whose processes run: impaired if versions differ that may still work together, or if the
/// limits of workers are more than the memory of their host.
fn running_readiness(status: &Value) -> Readiness {
    match (text(&status["unlike"]), text(&status["memory"])) {
        ("", "") => Readiness::Ready,
        ("", memory) => Readiness::Impaired(format!("{memory}; {LESS_MEMORY}")),
        (unlike, _) => Readiness::Impaired(format!("versions differ: {unlike}; {SAME_VERSIONS}")),
    }
}

/// Returns the cause for a process that has ended, with the end of its log.
pub fn ended(log: Option<String>, program: &str) -> Cause {
    let said = log.map(|log| format!("the end of its log:\n{log}"));
    why::cause("ended", "it ended", said, vec![format!("`{program} apply` starts it again")])
}

pub(crate) fn status_line(live: &Value) -> StatusLine {
    let status = &live["status"];
    let (desired, registered) =
        (count(&live["spec"]["worker"]["replicas"]), count(&status["workers"]["registered"]));
    let bounds = adaptive::bounds(&live["spec"]["worker"]);
    let desired = bounds.map_or(desired, |_| count(&status["workers"]["wanted"]));
    let mut said = Vec::new();
    let mut facts = vec![("workers", json!(registered)), ("workers_desired", json!(desired))];
    let address = text(&status["scheduler"]["address"]);
    if !address.is_empty() {
        said.push(format!("scheduler at {address}"));
        facts.push(("scheduler", json!(address)));
        facts.push(("dashboard", status["scheduler"]["dashboard"].clone()));
    }
    said.push(format!("{registered} of {desired} workers registered"));
    if let Some(Bounds { least, most }) = bounds {
        said.push(format!("adapts between {least} and {most}"));
        facts.push(("workers_least", json!(least)));
        facts.push(("workers_most", json!(most)));
    }
    if let Some(waits) = slurm::waits(&status["scheduler"]["queue"]) {
        said.push(format!("scheduler: {waits}"));
        facts.push(("scheduler_queue", status["scheduler"]["queue"]["waiting"].clone()));
    }
    if let Some(waits) = slurm::waits(&status["queue"]) {
        said.push(waits);
        facts.push(("queue", status["queue"]["waiting"].clone()));
    }
    let version = text(&status["versions"]["distributed"]);
    if !version.is_empty() {
        said.push(format!("distributed {version}"));
    }
    StatusLine { line: said.join(", "), facts, ..StatusLine::default() }
}

/// Returns how the number of workers is scaled: the owner is the file or the adapter.
pub(crate) fn scaled(resource: &Resource, _: &[Resource]) -> Option<ScaleTarget> {
    let path = api::replicas_path();
    let origin = resource.origin_of(&path);
    let file = || {
        path.find(&resource.body).and_then(Value::as_u64).map_or(ReplicaOwner::Unmanaged, ReplicaOwner::File)
    };
    let number = adaptive::replica_owner(resource).unwrap_or_else(file);
    Some(ScaleTarget { path, origin, unit: "workers", replica_owner: number })
}

/// Returns `2 workers with 1 thread each`.
pub(crate) fn about(worker: &Value) -> String {
    let (number, threads) = (count(&worker["replicas"]), count(&worker["threads"]));
    let bounds = adaptive::bounds(worker);
    let each = if number == 1 && bounds.is_none() { "" } else { " each" };
    let (gpus, processes) = (count(&worker["gpus"]), count(&worker["processes"]));
    let threads = counted(threads, "thread");
    let has = match (gpus, processes) {
        (0, 0..=1) => threads,
        (0, several) => format!("{several} processes of {threads}"),
        (gpus, _) => format!("{} and {threads} a process", counted(gpus, "GPU")),
    };
    let workers = match bounds {
        Some(Bounds { least, most }) => format!("{least} to {most} workers"),
        None => counted(number, "worker"),
    };
    format!("{workers} with {has}{each}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::resource::{Action, Identity, ObjectId, Until};

    fn live(status: &Value) -> Value {
        json!({ "kind": "Cluster", "spec": { "worker": { "replicas": 2 } }, "status": status })
    }

    fn of(status: &Value) -> Readiness {
        let object = ObjectId { gvk: api::cluster(), namespace: None, name: "c".to_owned() };
        let facts = Facts::Workers { replicas: Some(2), cluster: None, gang: None };
        let identity = Identity::Object(object);
        let wait = Await { kind: KindId::HostCluster, identity, until: Until::Ready, facts, deadline: 1 };
        readiness(&wait, &live(status))
    }

    fn status(scheduler: bool, answers: bool, workers: [u64; 3], converging: bool) -> Value {
        let [running, present, registered] = workers;
        json!({
            "converging": converging, "scheduler": { "running": scheduler, "answers": answers },
            "workers": { "running": running, "present": present, "registered": registered },
        })
    }

    /// Returns the status of two workers, one of which was not restarted.
    fn earlier(converging: bool) -> Value {
        let mut status = status(true, true, [2, 2, 2], converging);
        status["workers"]["changed"] = json!(1);
        status["message"] = json!("no room");
        status
    }

    fn stray() -> Value {
        let mut status = status(true, true, [2, 2, 2], false);
        status["strays"] = json!(["n2", "n3"]);
        status
    }

    #[test]
    fn a_cluster_is_ready_when_its_workers_are_registered() {
        let waits = |text: &str| Readiness::progressing(text);
        let fails = |text: &str| Readiness::Failed(text.to_owned());
        let skewed = |field: &str, registered: u64, converging: bool| {
            let mut status = status(true, true, [2, 2, registered], converging);
            status[field] = json!("x");
            status
        };
        let pip = |of: Value| {
            let mut status = status(true, true, [2, 2, 2], false);
            for (field, value) in of.as_object().unwrap() {
                status[field.as_str()] = value.clone();
            }
            status
        };
        for (status, expect) in [
            (status(true, true, [2, 2, 2], false), Readiness::Ready),
            (status(true, true, [2, 2, 1], false), waits("1 of 2 workers are registered")),
            (status(true, false, [2, 2, 0], false), waits("its scheduler does not answer yet")),
            (status(false, false, [0, 0, 0], true), waits("its scheduler is being started")),
            (status(false, false, [0, 0, 0], false), fails("its scheduler is not running")),
            (status(true, true, [1, 2, 1], false), fails("1 of 2 workers are running")),
            (status(true, true, [2, 3, 2], true), waits("workers that are no longer wanted are ending")),
            (status(true, true, [2, 3, 2], false), fails("workers that are no longer wanted go on")),
            (earlier(false), fails("1 worker did not restart: no room")),
            (earlier(true), waits("workers that are no longer wanted are ending")),
            (pip(json!({ "installs": true })), waits(INSTALL_WAIT)),
            (pip(json!({ "plugin": "no such package" })), fails("`pip_install`: no such package")),
            (
                skewed("skew", 2, false),
                fails(&format!("versions that do not work together: x; {SAME_VERSIONS}")),
            ),
            // Such workers may not even come to be registered.
            (
                skewed("skew", 0, false),
                fails(&format!("versions that do not work together: x; {SAME_VERSIONS}")),
            ),
            (skewed("skew", 2, true), waits("workers that are no longer wanted are ending")),
            (skewed("memory", 2, false), Readiness::Impaired(format!("x; {LESS_MEMORY}"))),
            (skewed("unlike", 2, false), Readiness::Impaired(format!("versions differ: x; {SAME_VERSIONS}"))),
        ] {
            assert_eq!(of(&status), expect, "{status}");
        }
    }

    #[test]
    fn what_ended_is_a_fault() {
        let identity = Identity::Object(ObjectId { gvk: api::cluster(), namespace: None, name: "c".into() });
        let owner = model::resource::Owner::default();
        for (status, expect) in [
            (status(true, true, [2, 2, 2], false), None),
            (status(true, true, [1, 2, 1], false), Some("1 of 2 workers not running")),
            (status(false, false, [2, 2, 0], false), Some("the scheduler is not running")),
            (status(true, true, [3, 3, 2], false), Some("1 more than 2 workers are running")),
            (earlier(false), Some("1 worker did not restart (no room); this is tried again")),
            (earlier(true), None),
            (stray(), Some("an interrupted apply left a part of it on n2, n3; ")),
            (status(false, false, [0, 0, 0], true), None),
            (Value::Null, None),
        ] {
            let live = live(&status);
            let context =
                ChangeContext { live: Some(&live), ..ChangeContext::of(Action::Keep, &identity, &owner) };
            let why = find_defect(&context).map(|defect| defect.why);
            assert_eq!(why.is_some(), expect.is_some(), "{status}");
            assert!(why.unwrap_or_default().starts_with(expect.unwrap_or_default()), "{status}");
        }
    }
}
