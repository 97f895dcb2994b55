//! Imports what a stack left on hosts: environments, Dask clusters with their groups, and jobs. Other Dask processes get no
//! section, but a comment with the command that stops them.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::dask::unsaid;
use crate::namespaces::own;
use crate::{Draft, Found, Hosts, stack_of, text};
use kinds::descriptions::counted;
use kinds::hosts::{api, cluster, environment, job};
use kinds::json::count;
use kinds::slurm::SlurmKeys;
use model::resource::{Gvk, ObjectId, Owner};
use model::secrets::{has_secret_shape, is_literal};
use model::shell::{ShellLine, quoted};
use stack::toml::is_bare;
use stack::{DaskCluster, DaskGroup, DaskJob, Environment, Local, Slurm, Ssh, Stack};

/// The length of the id of a stack that `init` or `import` wrote.
const ID: usize = 8;

/// Returns the names of the stacks that own objects on hosts.
pub fn stacks(found: &Found) -> BTreeSet<String> {
    found
        .objects
        .iter()
        .filter(|(object, _)| is_ours(object))
        .filter_map(|(_, live)| stack_of(live))
        .collect()
}

fn is_ours(object: &ObjectId) -> bool {
    [api::environment(), api::cluster(), api::group(), api::job()].contains(&object.gvk)
}

/// Returns the id of a stack whose record is lost, from the names of its Python environments on the hosts. `None` if none of them
/// has the stack's name.
pub fn id_of(found: &Found, stack: &str) -> Option<String> {
    let names = found.objects.iter().filter(|(object, live)| {
        object.gvk == api::environment() && stack_of(live).as_deref() == Some(stack)
    });
    names.map(|(object, _)| object.name.as_str()).find_map(|name| {
        if name.strip_prefix(stack).is_some_and(|rest| rest.starts_with('-')) {
            return Some(stack.to_owned());
        }
        let (id, rest) = name.split_at_checked(ID)?;
        rest.starts_with('-').then(|| id.to_owned())
    })
}

pub fn target(hosts: &Hosts, stack: &mut Stack) {
    match hosts {
        Hosts::Local => stack.local = Some(Local::default()),
        Hosts::Ssh { hosts, home } => {
            stack.ssh = Some(Ssh { hosts: hosts.clone(), home: home.clone(), ..Ssh::default() });
        }
        Hosts::Slurm { login } => {
            stack.slurm = Some(Slurm { login: login.clone(), ..Slurm::default() });
        }
    }
}

pub(crate) fn import(found: &Found, owner: &Owner, draft: &mut Draft) {
    let mut reader = Reader { found, owner, draft, known: BTreeSet::new() };
    for (object, live) in reader.of_kind(&api::environment()) {
        reader.environment(object, live);
    }
    for (object, live) in reader.of_kind(&api::cluster()) {
        reader.cluster(object, live);
    }
    for (object, live) in reader.of_kind(&api::job()) {
        reader.job(object, live);
    }
    let others = found.objects.iter().filter(|(object, _)| is_ours(object));
    for (object, live) in others.filter(|(_, live)| stack_of(live).as_deref() != Some(&owner.stack)) {
        let whose = stack_of(live).unwrap_or_default();
        draft.unsupported.push(format!(
            "{} {}: it belongs to the stack {whose}; `dask-infra import --name {whose}` reads that one",
            object.gvk.kind, object.name
        ));
    }
    draft.unsupported.extend(found.unmanaged.iter().map(unmanaged_process));
}

struct Reader<'a> {
    found: &'a Found,
    owner: &'a Owner,
    draft: &'a mut Draft,
    /// The hosts of the file.
    known: BTreeSet<String>,
}

impl<'a> Reader<'a> {
    /// Returns the stack's own objects of a kind.
    fn of_kind(&self, kind: &Gvk) -> Vec<(&'a ObjectId, &'a Value)> {
        let own = |live: &Value| stack_of(live).as_deref() == Some(&self.owner.stack);
        let found = self.found.objects.iter();
        found.filter(|(object, live)| object.gvk == *kind && own(live)).collect()
    }

    fn environment(&mut self, object: &ObjectId, live: &Value) {
        let key = self.environment_key(&object.name);
        if !is_bare(&key) {
            let why = "its name is not a key of a section: letters, digits, `_` and `-`";
            return self.cannot(object, &why);
        }
        let spec = &live["spec"];
        let mut section = Map::new();
        for name in ["packages", "path", "python"] {
            section.extend(spec.get(name).map(|value| (name.to_owned(), value.clone())));
        }
        if let Some(mut container) = spec.get("container").cloned() {
            // Only of a target with SLURM, which says it again.
            container.as_object_mut().map(|table| table.remove("jobs"));
            section.insert("container".to_owned(), container);
        }
        for (name, _) in spec["files"].as_object().into_iter().flatten() {
            let of = environment::FILES.iter().find(|(_, file)| file == name);
            section.extend(of.map(|(of, _)| ((*of).to_owned(), json!(format!("{key}/{name}")))));
        }
        // Names become paths on this machine: only those that environments know.
        let texts: Map<String, Value> = spec["files"]
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(name, _)| environment::is_usual_name(name))
            .map(|(name, text)| (name.clone(), text.clone()))
            .collect();
        if !texts.is_empty() {
            section.insert("texts".to_owned(), Value::Object(texts));
        }
        if spec["pip"] == true {
            // Its clusters tell what their workers install.
            let clusters = self.of_kind(&api::cluster());
            let own = clusters.iter().find(|(_, live)| live["spec"]["environment"]["name"] == *object.name);
            let packages = own.and_then(|(_, live)| live["spec"].get(cluster::PIP_INSTALL).cloned());
            section.insert("pip_install".to_owned(), packages.unwrap_or_else(|| json!([])));
        }
        let header = format!("environment.{key}");
        let said = said_of(live);
        self.draft.above(&header, format!("The environment {}{said}.", object.name));
        match serde_json::from_value::<Environment>(Value::Object(section)) {
            Ok(made) => {
                self.draft.stack.environment.insert(key.clone(), made);
                let made = &self.draft.stack.environment[&key];
                let lowered = environment::lower(&key, made, &self.draft.scope());
                let own = lowered.iter().find(|resource| resource.address.as_str() == header);
                if let Some(own) = own {
                    unsaid(&header, &own.body["spec"], spec, self.draft);
                }
            }
            Err(why) => self.cannot(object, &why),
        }
    }

    /// Returns the key of an environment: its name without the stack's id at the start.
    fn environment_key(&self, name: &str) -> String {
        let key = name.strip_prefix(&self.owner.id).and_then(|rest| rest.strip_prefix('-'));
        key.unwrap_or(name).to_owned()
    }

    fn cannot(&mut self, object: &ObjectId, why: &dyn std::fmt::Display) {
        self.draft.unsupported.push(format!("{} {}: {why}", object.gvk.kind, object.name));
    }

    /// Sets the key `environment` if the file has several environments.
    fn chosen(&self, spec: &Value, section: &mut Map<String, Value>) {
        if self.draft.stack.environment.len() > 1 {
            let key = self.environment_key(text(&spec["environment"]["name"]));
            section.insert("environment".to_owned(), json!(key));
        }
    }

    fn cluster(&mut self, object: &ObjectId, live: &Value) {
        let (key, spec) = (object.name.clone(), &live["spec"]);
        let header = format!("dask_cluster.{key}");
        self.draft.above(&header, format!("The Dask cluster {key}{}.", said_of(live)));
        let mut section = self.parts(spec, &header);
        self.chosen(spec, &mut section);
        section.extend(spec.get("restart").map(|restart| ("restart".to_owned(), restart.clone())));
        section.extend(spec.get("idleTimeout").map(|idle| ("idle_timeout".to_owned(), idle.clone())));
        section.extend(spec.get("ttl").map(|ttl| ("ttl".to_owned(), json!(format!("{}s", count(ttl))))));
        for name in ["labels", "annotations"] {
            let kept = own(&live["metadata"][name]);
            if !kept.is_empty() {
                section.insert(name.to_owned(), json!(kept));
            }
        }
        let mut groups = Map::new();
        for (group, live) in self.of_kind(&api::group()) {
            if live["spec"]["cluster"] == key {
                let short = group.name.strip_prefix(&format!("{key}-")).filter(|key| !key.is_empty());
                let own_key = short.unwrap_or(&group.name).to_owned();
                let header = format!("{header}.group.{own_key}");
                self.draft.above(&header, format!("Its group {}{}.", group.name, said_of(live)));
                let mut workers = self.workers(&live["spec"]["worker"], &header);
                if live["spec"]["environment"]["name"] != spec["environment"]["name"] {
                    self.chosen(&live["spec"], &mut workers);
                }
                if short.is_none() {
                    workers.insert("name".to_owned(), json!(group.name));
                }
                if let Err(why) = serde_json::from_value::<DaskGroup>(Value::Object(workers.clone())) {
                    self.cannot(group, &why);
                    continue;
                }
                groups.insert(own_key, Value::Object(workers));
            }
        }
        if !groups.is_empty() {
            section.insert("group".to_owned(), Value::Object(groups));
        }
        match serde_json::from_value::<DaskCluster>(Value::Object(section)) {
            Ok(made) => {
                self.draft.stack.dask_cluster.insert(key.clone(), made);
                let made = &self.draft.stack.dask_cluster[&key];
                for resource in cluster::lower(&key, made, &self.draft.scope()) {
                    let live = resource.identity.object().and_then(|object| self.found.objects.get(object));
                    let Some(live) = live else { continue };
                    unsaid(resource.address.as_str(), &resource.body["spec"], &live["spec"], self.draft);
                }
            }
            Err(why) => self.cannot(object, &why),
        }
    }

    fn job(&mut self, object: &ObjectId, live: &Value) {
        let (key, spec) = (object.name.clone(), &live["spec"]);
        let header = format!("dask_job.{key}");
        self.draft.above(&header, format!("The job {key}{}.", said_of(live)));
        let mut section = self.parts(spec, &header);
        self.chosen(spec, &mut section);
        section.insert("args".to_owned(), spec["program"]["args"].clone());
        if let Some(gpus) = spec["program"].get("gpus") {
            section.insert("gpus".to_owned(), gpus.clone());
        }
        self.variables(&spec["program"]["env"], &header, &mut section);
        secrets(&spec["program"]["secrets"], &mut section);
        if let Some(restart) = spec.get("restart") {
            section.insert("restart".to_owned(), restart.clone());
        }
        match serde_json::from_value::<DaskJob>(Value::Object(section)) {
            Ok(made) => {
                self.draft.stack.dask_job.insert(key.clone(), made);
                let made = &self.draft.stack.dask_job[&key];
                let lowered = job::lower(&key, made, None, &self.draft.scope());
                let own = lowered.iter().find(|resource| resource.address.as_str() == header);
                if let Some(own) = own {
                    unsaid(&header, &own.body["spec"], spec, self.draft);
                }
            }
            Err(why) => self.cannot(object, &why),
        }
    }

    /// Returns the keys `scheduler` and `worker` of a cluster or a job.
    fn parts(&mut self, spec: &Value, header: &str) -> Map<String, Value> {
        let (live, hosts) = (&spec["scheduler"], self.draft.stack.hosts());
        let mut scheduler = Map::new();
        let on = text(&live["on"]);
        if !on.is_empty() && hosts.first().is_none_or(|first| first.name != on) {
            scheduler.insert("on".to_owned(), json!(on));
        }
        let usual = serde_json::from_value(Value::Object(scheduler.clone())).unwrap_or_default();
        if let Some(slurm) = live.get(cluster::SLURM_FIELD) {
            let limits = ["--cpus-per-task=", "--mem="].map(|option| said_by(slurm, option));
            let keys = jobs(slurm, 3 + usize::from(limits[1].is_some()));
            scheduler.insert("slurm".to_owned(), keys);
            for (key, limit) in ["cpu", "memory"].into_iter().zip(limits) {
                // One is the default.
                let limit = limit.filter(|limit| limit != "1");
                scheduler.extend(limit.map(|limit| (key.to_owned(), json!(limit.replace('M', "Mi")))));
            }
        } else if live["host"] != cluster::listen_address(&usual, &hosts) && live["interface"].is_null() {
            scheduler.insert("host".to_owned(), live["host"].clone());
        }
        for (key, field, usual) in [
            ("interface", "interface", Value::Null),
            ("port", "port", json!(cluster::PORT)),
            ("dashboard_port", "dashboardPort", json!(cluster::DASHBOARD_PORT)),
        ] {
            if !live[field].is_null() && live[field] != usual {
                scheduler.insert(key.to_owned(), live[field].clone());
            }
        }
        self.variables(&live["env"], header, &mut scheduler);
        secrets(&live["secrets"], &mut scheduler);
        let mut worker = self.workers(&spec["worker"], header);
        let usual = if self.draft.stack.speaks_tls() { cluster::TLS } else { cluster::TCP };
        let protocol = live.get("protocol").cloned().unwrap_or_else(|| json!(cluster::TCP));
        if protocol != usual {
            worker.insert("protocol".to_owned(), protocol);
        }
        self.missing(&spec["scheduler"]["on"], header);
        [("scheduler".to_owned(), Value::Object(scheduler)), ("worker".to_owned(), Value::Object(worker))]
            .into_iter()
            .collect()
    }

    fn workers(&mut self, live: &Value, header: &str) -> Map<String, Value> {
        let mut worker = Map::new();
        for (key, field) in [
            ("replicas", "replicas"),
            ("threads", "threads"),
            ("processes", "processes"),
            ("gpus", "gpus"),
            ("interface", "interface"),
            ("local_directory", "localDirectory"),
            ("worker_port", "workerPort"),
            ("nanny_port", "nannyPort"),
            ("resources", "resources"),
        ] {
            worker.extend(live.get(field).map(|value| (key.to_owned(), value.clone())));
        }
        if let Some(adapt) = live.get("adapt") {
            let bounds = json!({ "min": adapt["minimum"], "max": adapt["maximum"] });
            worker.insert("replicas".to_owned(), bounds);
        }
        if let Some(bytes) = live["memory"].as_u64() {
            worker.insert("memory".to_owned(), json!(quantity(bytes)));
        }
        let mut nanny = Map::new();
        if live["nanny"] == false {
            nanny.insert("enabled".to_owned(), json!(false));
        }
        let mut env = live["env"].as_object().cloned().unwrap_or_default();
        for fraction in ["target", "spill", "pause", "terminate"] {
            let name = format!("{NANNY}{}", fraction.to_uppercase());
            let Some(value) = env.get(&name).and_then(|value| fraction_of(text(value))) else { continue };
            env.remove(&name);
            nanny.insert(fraction.to_owned(), value);
        }
        if !nanny.is_empty() {
            worker.insert("nanny".to_owned(), Value::Object(nanny));
        }
        self.variables(&Value::Object(env), header, &mut worker);
        secrets(&live["secrets"], &mut worker);
        let all: Vec<String> = self.draft.stack.hosts().into_iter().map(|host| host.name).collect();
        let hosts = live["hosts"].as_array().cloned().unwrap_or_default();
        hosts.iter().for_each(|host| self.missing(host, header));
        let listed = hosts.iter().filter(|host| all.iter().any(|name| *host == name)).count();
        if !hosts.is_empty() && listed < all.len() {
            worker.insert("hosts".to_owned(), json!(hosts));
        }
        if live["slurm"].is_object() {
            // Directives that follow from other keys are left out.
            let directives = live["slurm"]["directives"].as_array().into_iter().flatten();
            let directives: Vec<String> = directives.filter_map(Value::as_str).map(str::to_owned).collect();
            let there = directives.len();
            let keys = SlurmKeys { directives, ..SlurmKeys::default() };
            let implied = keys.script_options(live)["directives"].as_array().map_or(0, Vec::len) - there;
            worker.insert("slurm".to_owned(), jobs(&live["slurm"], implied));
        }
        worker
    }

    /// Adds a comment on a host that an object names and the file does not have.
    fn missing(&mut self, host: &Value, header: &str) {
        let hosts = self.draft.stack.hosts();
        let Some(name) = host.as_str() else { return };
        if hosts.iter().any(|host| host.name == name) || !self.known.insert(name.to_owned()) {
            return;
        }
        self.draft.unread_hosts = true;
        self.draft.below(header, format!(
            "it is also on {name}, which was not read: import again with `--ssh {name}`, or say in `[ssh]` that the host does not \
             exist any more: `gone = [\"{name}\"]`"
        ));
    }

    /// Imports environment variables, except those that look like secrets.
    fn variables(&mut self, live: &Value, header: &str, section: &mut Map<String, Value>) {
        let mut env = Map::new();
        for (name, value) in live.as_object().into_iter().flatten() {
            if is_literal(name, text(value)) || has_secret_shape(text(value)) {
                self.draft.below(header, format!(
                    "the value of the variable {name} looks like a secret, and is not written here: without it, its processes \
                     are started again"
                ));
            } else {
                env.insert(name.clone(), value.clone());
            }
        }
        if !env.is_empty() {
            section.insert("env".to_owned(), Value::Object(env));
        }
    }
}

/// Adds variables whose values come from the environment of the user who applies the stack.
fn secrets(live: &Value, section: &mut Map<String, Value>) {
    for (name, place) in live.as_object().into_iter().flatten() {
        let env = section.entry("env").or_insert_with(|| json!({}));
        env[name] = json!({ "secret": format!("env:{}", text(&place["key"])) });
    }
}

/// The prefix of the environment variables with the memory fractions of a nanny.
const NANNY: &str = "DASK_DISTRIBUTED__WORKER__MEMORY__";

fn fraction_of(text: &str) -> Option<Value> {
    if text == "False" {
        return Some(json!(false));
    }
    text.parse::<f64>().ok().map(|fraction| json!(fraction))
}

/// Returns bytes as a quantity: `4Gi` for 4294967296.
fn quantity(bytes: u64) -> String {
    let units = [("Gi", 1_u64 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];
    let whole = units.iter().find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit));
    whole.map_or_else(|| bytes.to_string(), |(name, unit)| format!("{}{name}", bytes / unit))
}

/// Returns the `#SBATCH` directives of a SLURM script.
fn directives(slurm: &Value) -> impl Iterator<Item = &str> {
    slurm["directives"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// Returns the value of an option in the directives.
fn said_by(slurm: &Value, option: &str) -> Option<String> {
    directives(slurm).find_map(|word| word.strip_prefix(option)).map(str::to_owned)
}

/// Returns the SLURM settings as keys, without the first `implied` directives.
fn jobs(slurm: &Value, implied: usize) -> Value {
    let mut rest = directives(slurm).skip(implied).peekable();
    let mut keys = Map::new();
    for (key, _) in SlurmKeys::default().named() {
        let option = format!("--{key}=");
        if let Some(word) = rest.next_if(|word| word.starts_with(&option)) {
            keys.insert(key.to_owned(), json!(word[option.len()..]));
        }
    }
    // No other directive is one for the time.
    if let Some(word) = rest.next_if(|word| word.starts_with("--time=")) {
        keys.insert("time_limit".to_owned(), json!(format!("{}m", &word["--time=".len()..])));
    }
    let rest: Vec<&str> = rest.collect();
    if !rest.is_empty() {
        keys.insert("directives".to_owned(), json!(rest));
    }
    keys.extend(slurm.get("prologue").map(|lines| ("prologue".to_owned(), lines.clone())));
    Value::Object(keys)
}

/// Returns the state of a job, as words.
fn said_of(live: &Value) -> String {
    let status = &live["status"];
    if let Some(phase) = status["phase"].as_str().or(status["jobStatus"].as_str()) {
        return format!(", {}", phase.to_lowercase());
    }
    match status["workers"]["running"].as_u64() {
        Some(running) => format!(", {}", counted(running, "running worker")),
        None => String::new(),
    }
}

/// Returns the text on a process that no stack manages: its role, its user, and the command that stops it.
fn unmanaged_process(live: &Value) -> String {
    let mut about = vec![match live["job"].as_str() {
        Some(job) if live["pid"].is_null() => format!("job {job} of SLURM"),
        Some(job) => format!("process {} of SLURM's job {job}", count(&live["pid"])),
        None => format!("process {}", count(&live["pid"])),
    }];
    about.extend(live["address"].as_str().map(str::to_owned));
    about.extend(live["workers"].as_u64().map(|number| counted(number, "worker")));
    about.extend(live["versions"]["distributed"].as_str().map(|version| format!("distributed {version}")));
    let whose = match (live["ours"] == true, live["state"].as_str().and_then(|state| state.rsplit_once('/')))
    {
        (true, Some((home, name))) => format!(
            "dask-infra started it, with its state in {}; `XDG_STATE_HOME={}` there imports it",
            quoted(&format!("{home}/{name}")),
            quoted(home)
        ),
        (true, None) => "dask-infra started it, and its notes of it are gone".to_owned(),
        (false, _) => "dask-infra did not start it".to_owned(),
    };
    format!(
        "`{}` of {} on {} ({}): {whose}; {}",
        text(&live["command"]).replace('`', "'"),
        text(&live["user"]),
        text(&live["host"]),
        about.join(", "),
        stops(live)
    )
}

/// Returns the command that stops a process not managed by a stack. It contains only numbers from the host, no other text.
fn stops(live: &Value) -> String {
    let line = match (live["job"].as_str(), live["pid"].as_u64()) {
        (Some(job), _) => Some(ShellLine::of("scancel").words([job])),
        (None, Some(pid)) => Some(ShellLine::of("kill").words([pid.to_string()])),
        (None, None) => None,
    };
    line.map_or_else(
        || "nothing is known that stops it".to_owned(),
        |line| format!("`{line}` there stops it"),
    )
}
