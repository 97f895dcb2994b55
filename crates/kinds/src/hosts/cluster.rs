//! Dask clusters on a host: a scheduler and workers as processes.

use serde_json::{Value, json};

use crate::code::Code;
use crate::dask::api::CLUSTER_LABEL;
use crate::dask::cluster::{DaskCluster, Scheduler, Worker};
use crate::dask::device_memory;
use crate::dask::idle::IdleTimeout;
use crate::dask::replicas::WorkerCountOwner;
use crate::hosts::{adaptive, api, files, group, workers};
use crate::json::{count, text};
use crate::kind::{ChangeContext, Compare, ConnectTarget, Defect, EndpointKind, Kind, PodSource};
use crate::kubernetes::calls::dry_run_call;
use crate::kubernetes::object::pods_labelled;
use crate::scope::Scope;
use crate::short_forms::seconds;
use model::address::{Address, FieldPath};
use model::resource::{Action, Effect, Host, Identity, KindId, Resource, Step};

/// Dask's own default port.
pub const PORT: u16 = 8786;
/// Stands for the address of a login node in its cluster; the agent finds it out.
pub const AUTO: &str = "auto";

/// The field of `spec.scheduler` with the SLURM options of its job. A scheduler without it is a process on the login node.
pub const SLURM_FIELD: &str = "slurm";

/// The field with the seconds without work after which the scheduler ends, and the whole cluster with it.
const IDLE: &str = "idleTimeout";
/// The field with the lifetime of a cluster in seconds.
const TTL: &str = "ttl";

/// The field with the packages that workers install when they start.
pub const PIP_INSTALL: &str = "pipInstall";
/// The note on changes of the packages.
const PIP_INSTALL_NOTE: &str = "running workers install what is added, and those that start later all of them; for what is taken out they \
     are restarted, which loses what only they hold in memory";

/// The note on changes of the protocol.
const PROTOCOL_NOTE: &str = "the scheduler is started again, and all workers with it; what they hold in memory is lost, and with `tls` clients need \
     the certificates that `connect` names";

/// Dask's own default port of the dashboard.
pub const DASHBOARD_PORT: u16 = 8787;

/// The protocols of schedulers and workers: without TLS, the default of `[local]`, and with it.
pub const TCP: &str = "tcp";
pub const TLS: &str = "tls";

pub const KIND: Kind = Kind {
    rank: 60,
    compare: Compare::Kubernetes(effect),
    change_steps,
    find_defect: |context| {
        certificate_defect(context)
            .or_else(|| workers::find_defect(context))
            .or_else(|| missing_boot_unit(context))
    },
    readiness: |wait, found| Ok(workers::readiness(wait, found.own_object())),
    status_line: |_, found| Ok(workers::status_line(found.own_object())),
    plan_summary: about,
    pods,
    endpoint,
    scale_target: workers::scaled,
    rolling_effect: workers::RESTART_EFFECT,
    retires_gracefully: true,
    address: |object| Address::of("dask_cluster", &object.name),
    invalidates_checks: Action::creates,
    ..Kind::DEFAULT
};

/// Returns the host that a scheduler runs on: the one that its section names, else the first.
pub fn scheduler_host<'a>(scheduler: &Scheduler, hosts: &'a [Host]) -> Option<&'a Host> {
    let named = scheduler.on.as_ref().and_then(|on| hosts.iter().find(|host| host.name == *on));
    named.or_else(|| hosts.first())
}

/// Returns the address that the scheduler listens on: that of its section, else of its host, else the loopback.
pub fn listen_address<'a>(scheduler: &'a Scheduler, hosts: &'a [Host]) -> &'a str {
    let own = || match scheduler_host(scheduler, hosts) {
        Some(host) if host.slurm => AUTO,
        Some(host) => host.address(),
        None => "127.0.0.1",
    };
    scheduler.host.as_deref().unwrap_or_else(own)
}

/// Returns the protocol of a section's scheduler and workers; `tls` is the default of the target.
pub fn protocol(cluster: &DaskCluster, tls: bool) -> &str {
    cluster.worker.protocol.as_deref().unwrap_or(if tls { TLS } else { TCP })
}

/// Returns the address for workers, checks and clients to connect to the scheduler. For a scheduler with `interface` it contains
/// the interface's name: only the agent knows the address.
pub fn scheduler_address(cluster: &DaskCluster, hosts: &[Host], tls: bool) -> String {
    let scheduler = &cluster.scheduler;
    let host = scheduler.interface.as_deref().unwrap_or_else(|| listen_address(scheduler, hosts));
    format!("{}://{}:{}", protocol(cluster, tls), url_host(host), scheduler.port.unwrap_or(PORT))
}

fn url_host(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

/// Returns the path of the protocol in the stack file: `protocol` of the section, or `tls` of the target.
pub(crate) fn protocol_from(worker: &FieldPath, section: &DaskCluster, scope: &Scope) -> FieldPath {
    match section.worker.protocol {
        Some(_) => worker.key("protocol"),
        None => FieldPath::keys([scope.target.hosts_section(), "tls"]),
    }
}

/// The hosts of the parts of a Dask cluster, in the order of the file.
struct PartHosts {
    scheduler: String,
    workers: Vec<String>,
    all: Vec<String>,
}

impl PartHosts {
    /// Returns the hosts; `None` for a target with a single machine.
    fn of(section: &DaskCluster, scope: &Scope) -> Option<Self> {
        let names = scope.target.host_names()?;
        let scheduler = scheduler_host(&section.scheduler, &scope.target.hosts)?.name.clone();
        let workers = workers::hosts_of(&section.worker.hosts, &names);
        let groups = section.group.values();
        let groups: Vec<String> = groups.flat_map(|group| workers::hosts_of(&group.hosts, &names)).collect();
        let is_used = |name: &&String| **name == scheduler || workers.contains(name) || groups.contains(name);
        let all = names.iter().filter(is_used).cloned().collect();
        Some(Self { scheduler, workers, all })
    }
}

/// Returns the spec of a scheduler and its workers, without the scheduler's ports.
pub(crate) fn spec(section: &DaskCluster, code: &Code<'_>, scope: &Scope) -> Value {
    let Scheduler { interface, keys, slurm, .. } = &section.scheduler;
    let mut scheduler = json!({});
    match interface {
        Some(interface) => scheduler["interface"] = json!(interface),
        // Its job tells where it came to run.
        None if slurm.is_some() => {}
        None => scheduler["host"] = json!(listen_address(&section.scheduler, &scope.target.hosts)),
    }
    if let (Some(own), Some(base)) = (slurm, &scope.slurm) {
        scheduler[SLURM_FIELD] = own.over(base).script_options(&workers::limits(keys));
    }
    match protocol(section, scope.tls) {
        TCP => {}
        protocol => scheduler["protocol"] = json!(protocol),
    }
    if !keys.env.is_empty() {
        scheduler["env"] = workers::variables(&keys.env);
        workers::add_secret_refs(&mut scheduler, &keys.env, scope);
    }
    section.config.add_to_process(&mut scheduler, &keys.env);
    if section.has_cudf_spill() {
        device_memory::add_spill_to_process(&mut scheduler, &keys.env);
    }
    let environment = scope.environment(section.environment.as_deref());
    let worker = &section.worker;
    let hosts = PartHosts::of(section, scope);
    if let Some(hosts) = &hosts {
        scheduler["on"] = json!(hosts.scheduler);
    }
    let mut spec = json!({
        "environment": workers::environment(section.environment.as_deref(), scope),
        "scheduler": scheduler,
        "worker": workers::body(
            worker.replicas.most(),
            &worker.keys,
            (&worker.process, &worker.device_memory),
            &section.config,
            &worker.resources,
            scope,
        ),
    });
    if let Some(facts) = environment.filter(|facts| !facts.pip_install.is_empty()) {
        spec[PIP_INSTALL] = json!(facts.pip_install);
    }
    if let Some(PartHosts { scheduler: _, workers, all }) = &hosts {
        spec["hosts"] = json!(all);
        spec["worker"]["hosts"] = json!(workers);
    }
    files::add(&mut spec, code);
    files::add_folder(&mut spec["scheduler"], code.folder());
    files::add_folder(&mut spec["worker"], worker.working_dir.as_deref().or(code.folder()));
    workers::add_slurm_options(&mut spec["worker"], worker.slurm.as_ref(), scope);
    spec
}

/// Lowers `[dask_cluster.KEY]` on a host to the cluster and its groups.
pub fn lower(key: &str, section: &DaskCluster, scope: &Scope) -> Vec<Resource> {
    let name = section.live_name(key);
    let api = api::cluster();
    let origin = FieldPath::keys(["dask_cluster", key]);
    let Scheduler { port, dashboard_port, slurm, .. } = &section.scheduler;
    let mut metadata = json!({ "name": name, "labels": scope.labels() });
    for (label, value) in &section.labels {
        metadata["labels"][label] = json!(value);
    }
    if !section.annotations.is_empty() {
        metadata["annotations"] = json!(section.annotations);
    }
    let code = section.code.at(&origin);
    let mut spec = spec(section, &code, scope);
    for (field, port, usual) in [("port", port, PORT), ("dashboardPort", dashboard_port, DASHBOARD_PORT)] {
        // On a node of SLURM the usual ones may be taken by others.
        if let Some(port) = port.or(slurm.is_none().then_some(usual)) {
            spec["scheduler"][field] = json!(port);
        }
    }
    if let Some(restart) = section.restart {
        spec["restart"] = json!(restart);
    }
    if let Some(idle) = section.idle_timeout.map(IdleTimeout::seconds).filter(|seconds| *seconds > 0) {
        spec[IDLE] = json!(idle);
    }
    if let Some(ttl) = section.ttl.as_ref().and_then(|ttl| seconds(ttl.text())) {
        spec[TTL] = json!(ttl);
    }
    if let WorkerCountOwner::Autoscaler { min, max } = section.worker.replicas.owner() {
        adaptive::set_adaptive(&mut spec["worker"], min, max);
    }
    let mut depends_on = workers::dependencies(section.environment.as_deref(), scope);
    let envs = [&section.scheduler.keys.env, &section.worker.keys.env];
    depends_on.extend(workers::secret_dependency(envs, scope));
    depends_on.extend(section.lifecycle.depends_on.iter().map(Address::new));
    let mut provenance = workers::provenance(&origin.key("worker"), &section.worker.process);
    let path = FieldPath::keys(["spec", "scheduler"]);
    provenance.extend(config_provenance(section, &origin.key("config")));
    provenance.extend(code_provenance(&section.worker, &origin.key("worker"), &code));
    let spill = section.cudf_spill(&origin);
    let env = &section.scheduler.keys.env;
    provenance.extend(spill.and_then(|key| device_memory::process_spill_provenance(env, &path, key)));
    provenance.extend(pip_install_from(section.environment.as_deref(), scope));
    let number = origin.key("worker").key("replicas");
    provenance.extend([
        (adaptive::path().key("minimum"), number.key("min")),
        (adaptive::path().key("maximum"), number.key("max")),
        (adaptive::path(), number),
        (FieldPath::keys(["spec", "environment"]), origin.key("environment")),
        (FieldPath::keys(["spec", "restart"]), origin.key("restart")),
        (FieldPath::keys(["spec", IDLE]), origin.key("idle_timeout")),
        (FieldPath::keys(["spec", TTL]), origin.key("ttl")),
        (path.clone(), origin.key("scheduler")),
        (path.key("protocol"), protocol_from(&origin.key("worker"), section, scope)),
        (path.key("dashboardPort"), origin.key("scheduler").key("dashboard_port")),
        (FieldPath::keys(["metadata", "labels"]), origin.key("labels")),
        (FieldPath::keys(["metadata", "annotations"]), origin.key("annotations")),
    ]);
    let mut cluster = Resource {
        address: Address::of("dask_cluster", key),
        identity: api::identity(&api, name),
        kind: KindId::HostCluster,
        body: json!({
            "apiVersion": api.api_version(), "kind": api.kind, "metadata": metadata, "spec": spec,
        }),
        create_only: Value::Null,
        provenance,
        origin,
        depends_on,
        protect: section.lifecycle.protect,
        recreation: section.recreation(),
    };
    let groups = section.group.iter();
    let groups: Vec<Resource> = groups
        .map(|(group_key, group)| group::lower(&cluster, name, section, group_key, group, scope))
        .collect();
    let files = files::lower(&mut cluster, &code, scope);
    std::iter::once(cluster).chain(groups).chain(files).collect()
}

/// Finds certificates that are lost, expired or missing on a host. Schedulers and workers load certificates when they start. So a
/// running scheduler must be replaced to get new ones; a stopped one gets them when an apply starts it.
fn certificate_defect(context: &ChangeContext) -> Option<Defect> {
    let status = &context.live?["status"];
    let is_settled = status["converging"] == false && status["scheduler"]["running"] == true;
    let tls = status["scheduler"].get("tls").filter(|_| is_settled)?;
    let (what, replaces) = if tls["lost"] == true {
        ("its certificates are gone or have ended", true)
    } else if tls["differs"] == true {
        ("some of its hosts do not have the certificates of its scheduler", false)
    } else {
        return None;
    };
    let then = match replaces {
        true => {
            "new ones are created, and the scheduler and all workers are started again; what they hold in memory is lost, and \
             clients `connect` again"
        }
        false => "they get them, and workers there that have others are started again",
    };
    Some(Defect { needs_replace: replaces, ..Defect::of(context, format!("{what}: {then}")) })
}

/// Finds a missing boot unit: the spec asks for a restart after a reboot of the hosts, but nothing would do it.
fn missing_boot_unit(context: &ChangeContext) -> Option<Defect> {
    let live = context.live.filter(|live| live["spec"].get("restart").is_some())?;
    let why = "nothing starts it again after a reboot any more; that is set up again";
    live["status"]["boot"].is_null().then(|| Defect::of(context, why.to_owned()))
}

/// Returns the provenance of Dask's configuration in the body of a cluster or job; `table` is the path of the table.
pub(crate) fn config_provenance(section: &DaskCluster, table: &FieldPath) -> Vec<(FieldPath, FieldPath)> {
    let parts = [("scheduler", &section.scheduler.keys.env), ("worker", &section.worker.keys.env)];
    let of = |(part, env)| section.config.process_provenance(env, &FieldPath::keys(["spec", part]), table);
    parts.into_iter().flat_map(of).collect()
}

/// Returns the provenance of the code in the body of a cluster or job; `section` is the path of the workers.
pub(crate) fn code_provenance(
    worker: &Worker,
    section: &FieldPath,
    code: &Code<'_>,
) -> Vec<(FieldPath, FieldPath)> {
    let own = worker.working_dir.as_ref().map(|_| section.key("working_dir"));
    files::provenance(code, &[("scheduler", None), ("worker", own)])
}

/// Returns the path of the packages that workers install.
pub(crate) fn pip_install_from(environment: Option<&str>, scope: &Scope) -> Option<(FieldPath, FieldPath)> {
    let facts = scope.environment(environment)?;
    let origin = FieldPath::keys(["environment", &facts.key]).key("pip_install");
    Some((FieldPath::keys(["spec", PIP_INSTALL]), origin))
}

/// Returns the steps of a change. Before a scheduler is replaced, its host must report that a new one could start. Ports may be
/// in use, for example.
fn change_steps(context: &ChangeContext) -> Vec<Step> {
    let mut steps = workers::change_steps(context, KindId::HostCluster);
    let replaces = context.action == Action::Replace && context.live.is_some();
    if let Some(object) = context.object().filter(|_| replaces) {
        steps.insert(0, Step::Call(dry_run_call(object, context.owner, context.body())));
    }
    steps
}

fn effect(path: &FieldPath) -> (Effect, Option<&'static str>) {
    if FieldPath::keys(["spec", "restart"]).contains(path) {
        return (Effect::InPlace, Some("nothing that runs is started again for it"));
    }
    if FieldPath::keys(["spec", TTL]).contains(path) {
        return (Effect::InPlace, Some("it counts from the creation of the Dask cluster"));
    }
    if FieldPath::keys(["spec", PIP_INSTALL]).contains(path) {
        return (Effect::InPlace, Some(PIP_INSTALL_NOTE));
    }
    if FieldPath::keys(["spec", "scheduler", "protocol"]).contains(path) {
        return (Effect::Replace, Some(PROTOCOL_NOTE));
    }
    workers::effect(path).unwrap_or((
        Effect::Replace,
        Some("the scheduler is started again, and all workers with it; what they hold in memory is lost"),
    ))
}

fn about(resource: &Resource) -> Vec<String> {
    let spec = &resource.body["spec"];
    let restarts = spec.get("restart").map(|_| "started again after a reboot".to_owned());
    let scheduler = &spec["scheduler"];
    let with = if scheduler["protocol"] == TLS { " with TLS" } else { "" };
    let scheduler =
        match (scheduler.get(SLURM_FIELD), scheduler["interface"].as_str(), text(&scheduler["host"])) {
            (Some(_), ..) => format!("scheduler as a job of SLURM{with}"),
            (None, None, AUTO) => {
                format!("scheduler on port {} of the login node{with}", count(&scheduler["port"]))
            }
            (None, interface, host) => {
                let at = url_host(interface.unwrap_or(host));
                format!("scheduler on {at}:{}{with}", count(&scheduler["port"]))
            }
        };
    let parts = [scheduler, workers::about(&spec["worker"])];
    let ends = ends(&resource.body).map(|ends| format!("ends {ends}"));
    parts.into_iter().chain(restarts).chain(ends).collect()
}

/// Describes when a Dask cluster ends by itself: `28800 s after its creation, or after 1800 s without work`.
pub fn ends(body: &Value) -> Option<String> {
    let seconds = |key: &str| body["spec"][key].as_u64();
    let ttl = seconds(TTL).map(|seconds| format!("{seconds} s after its creation (`ttl`)"));
    let idle = seconds(IDLE).map(|seconds| format!("after {seconds} s without work (`idle_timeout`)"));
    let all: Vec<String> = [ttl, idle].into_iter().flatten().collect();
    (!all.is_empty()).then(|| all.join(", or "))
}

fn pods(resource: &Resource) -> PodSource {
    let Identity::Object(object) = &resource.identity else { return PodSource::None };
    PodSource::Known(pods_labelled(Some(api::NAMESPACE), [(CLUSTER_LABEL, object.name.as_str())]))
}

/// Returns the endpoint. On a host there is no Service: the status of the cluster's object has the address.
fn endpoint(resource: &Resource) -> Option<ConnectTarget> {
    let service = resource.identity.object()?.clone();
    Some(ConnectTarget { kind: EndpointKind::Scheduler, service })
}
