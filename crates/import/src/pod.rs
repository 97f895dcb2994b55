//! A live PodSpec as keys of a section: short keys where possible, and `pod` for the rest. The result is lowered again and
//! compared with the live spec. A part that differs goes into `pod` as a whole.

use serde_json::{Map, Value, json};

use crate::text;
use kinds::dask;
use kinds::dask::device_memory::DeviceMemoryKeys;
use kinds::dask::pods::PodSpecKeys;
use kinds::dask::process::ProcessKeys;
use kinds::driver_path;
use kinds::node_selection::Machines;
use kinds::pod::{self, DIRECTIVE, Pod};
use kinds::scope::{POOL_LABEL, PoolFacts, Scope};
use kinds::section::{PodKeys, PodRole};
use kinds::security_defaults;
use kinds::worker_resources::{self, WorkerResources};
use model::address::FieldPath;
use model::schema::{self, Schema};
use model::secrets::{has_secret_shape, is_literal};
use stack::{Env, SecretKey, Variable};

/// Which pod of Dask it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Scheduler,
    Worker,
    /// A job's program, with its restart policy.
    Program(&'static str),
}

/// The keys of a stack's section that describe a pod, read from the pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Short {
    pub(crate) image: String,
    pub(crate) resources: WorkerResources,
    pub(crate) args: Vec<String>,
    pub(crate) keys: PodKeys,
}

/// The short keys that an attempt uses: those for GPUs and pools, which add tolerations, and those for variables. Everything else
/// goes into `pod`.
#[derive(Clone, Copy)]
struct Tried {
    gpus: bool,
    pool: bool,
    env: bool,
}

impl Part {
    fn container(self) -> &'static str {
        let role = match self {
            Self::Scheduler => PodRole::Scheduler,
            Self::Worker => PodRole::Worker,
            Self::Program(_) => PodRole::Program,
        };
        role.container()
    }

    fn spec(self, pod_keys: &PodSpecKeys, scope: &Scope) -> Value {
        match self {
            Self::Scheduler => dask::pods::scheduler(pod_keys, scope),
            Self::Worker => {
                dask::pods::worker(pod_keys, &ProcessKeys::default(), &DeviceMemoryKeys::default(), scope)
            }
            Self::Program(restart) => {
                let mut pod = dask::pods::program(pod_keys, scope);
                pod["restartPolicy"] = json!(restart);
                pod
            }
        }
    }
}

/// Returns the short-form keys that reproduce this pod. `image` is the default that the section inherits from its
/// cluster.
pub(crate) fn short(part: Part, live: &Value, image: Option<&str>, scope: &Scope) -> Short {
    for gpus in [true, false] {
        for pool in [true, false] {
            for env in [true, false] {
                let tried = Tried { gpus, pool, env };
                if let Some(short) = attempt(part, live, image, scope, tried) {
                    return short;
                }
            }
        }
    }
    let mut whole = live.clone();
    whole[DIRECTIVE] = json!("replace");
    let own = own_container(part, live);
    let image = image.unwrap_or(text(&own["image"])).to_owned();
    Short {
        image,
        keys: PodKeys { pod: Some(Pod(whole)), confined: Some(false), ..PodKeys::default() },
        ..Short::default()
    }
}

fn own_container(part: Part, live: &Value) -> Value {
    let mut containers = live["containers"].as_array().into_iter().flatten();
    containers.find(|container| container["name"] == part.container()).cloned().unwrap_or_default()
}

fn attempt(part: Part, live: &Value, image: Option<&str>, scope: &Scope, tried: Tried) -> Option<Short> {
    let own = own_container(part, live);
    let mut short = Short { image: image.unwrap_or(text(&own["image"])).to_owned(), ..Short::default() };
    let (limits, requests) = (&own["resources"]["limits"], &own["resources"]["requests"]);
    if tried.gpus {
        let gpus = limits["nvidia.com/gpu"].as_str().filter(|_| requests["nvidia.com/gpu"].is_null());
        short.keys.gpus = gpus.and_then(|gpus| gpus.parse().ok()).filter(|gpus| *gpus > 0);
    }
    let both =
        |name: &str| limits[name].as_str().filter(|amount| requests[name] == **amount).map(str::to_owned);
    (short.keys.cpu, short.keys.memory) = (both("cpu"), both("memory"));
    if tried.pool {
        let named = live["nodeSelector"].get(POOL_LABEL).and_then(Value::as_str);
        short.keys.pool = named.and_then(|name| key_of(name, scope));
        short.keys.prefer_pool = preferred(&live["affinity"]).and_then(|name| key_of(name, scope));
        // Beside a pool they would say the same twice.
        if short.keys.pool.is_none() {
            short.keys.machines = Machines::of(&live["nodeSelector"]);
        }
    }
    if !security_defaults::is_applied(live, &own) {
        short.keys.confined = Some(false);
    }
    if tried.env {
        let mut own = own.clone();
        driver_path::remove_default(&mut own);
        short.keys.env = env(&own["env"]);
    }
    (short.args, short.resources) = args(part, &own, &short);
    let resources = (part == Part::Worker).then_some(&short.resources);
    let pod_keys =
        PodSpecKeys { image: &short.image, args: &short.args, keys: &short.keys, resources, config: None };
    let base = part.spec(&pod_keys, scope);
    let schema = schema::definition("io.k8s.api.core.v1.PodSpec");
    let given = difference(&base, live, schema.as_ref(), "").map(Pod);
    let mut laid = base;
    let root = FieldPath::root();
    pod::merge_pod(&mut laid, given.as_ref(), &root, &root, &mut Vec::new());
    if let Some(Pod(given)) = given.as_ref().filter(|_| short.keys.has_security_defaults()) {
        security_defaults::remove_conflicts(&mut laid, given);
    }
    // `pod` does not repeat values that have a key of their own.
    let args_twice = !short.args.is_empty()
        && given.as_ref().is_some_and(|Pod(given)| !own_container(part, given)["args"].is_null());
    short.keys.pod = given;
    (laid == *live && !args_twice).then_some(short)
}

fn key_of(name: &str, scope: &Scope) -> Option<String> {
    scope.pools.iter().find(|PoolFacts { name: live, .. }| live == name).map(|pool| pool.key.clone())
}

/// Returns the pool that an affinity prefers, if the affinity has nothing else.
fn preferred(affinity: &Value) -> Option<&str> {
    let soft = affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"].as_array()?;
    let [only] = soft.as_slice() else { return None };
    let [expression] = only["preference"]["matchExpressions"].as_array()?.as_slice() else { return None };
    let [name] = expression["values"].as_array()?.as_slice() else { return None };
    let fits = expression["key"] == POOL_LABEL && expression["operator"] == "In" && only["weight"] == 100;
    name.as_str().filter(|_| fits)
}

/// Returns the variables with plain values or from Secrets. It is empty if one refers to another, because then their order
/// matters, and a table has no order.
fn env(live: &Value) -> Env {
    let list: Vec<&Value> = live.as_array().into_iter().flatten().collect();
    let refers = |item: &&Value| item["value"].as_str().is_some_and(|value| value.contains("$("));
    if list.iter().any(refers) {
        return Env::new();
    }
    let plain = |item: &&Value| {
        let fields: Option<&Map<String, Value>> = item.as_object().filter(|fields| fields.len() == 2);
        let text = fields?.get("value").and_then(Value::as_str).map(|text| Variable::Text(text.to_owned()));
        let secret = || fields?.get("valueFrom").and_then(SecretKey::of).map(Variable::Secret);
        Some((fields?.get("name")?.as_str()?.to_owned(), text.or_else(secret)?))
    };
    list.iter().filter_map(plain).collect()
}

/// Returns the arguments if they are not the default ones, and Dask's resources, which are taken from the end of the arguments.
fn args(part: Part, own: &Value, short: &Short) -> (Vec<String>, WorkerResources) {
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut given = texts(&own["args"]);
    let mut resources = WorkerResources::default();
    if let (Part::Worker, [.., flag, list]) = (part, given.as_slice())
        && flag == worker_resources::OPTION
    {
        let pairs = list.split(' ').map(|pair| {
            let (name, amount) = pair.split_once('=')?;
            let amount: f64 = amount.parse().ok()?;
            (format!("{name}={amount}") == pair).then(|| (name.to_owned(), amount))
        });
        let pairs: Option<WorkerResources> = pairs.collect();
        if let Some(pairs) = pairs.filter(|pairs| pairs.problems().next().is_none()) {
            given.truncate(given.len() - 2);
            resources = pairs;
        }
    }
    let words: &[&str] = match part {
        Part::Scheduler => &["dask", "scheduler"],
        Part::Worker if short.keys.gpus.is_some() => {
            &["dask", "cuda", "worker", "--name", "$(DASK_WORKER_NAME)"]
        }
        Part::Worker => &["dask", "worker", "--name", "$(DASK_WORKER_NAME)"],
        Part::Program(_) => return (given, resources),
    };
    if given == words { (Vec::new(), resources) } else { (given, resources) }
}

/// Returns the object that [`pod::merge_pod`] has to merge into `base` to get `live`; `None` if they are equal.
pub(crate) fn difference(base: &Value, live: &Value, schema: Option<&Schema>, field: &str) -> Option<Value> {
    if base == live {
        return None;
    }
    match (base, live) {
        (Value::Object(base), Value::Object(live)) => {
            let mut over = Map::new();
            for (key, value) in live {
                let child = schema.and_then(|schema| schema.property(key).or_else(|| schema.values()));
                let different = match base.get(key) {
                    Some(base) => difference(base, value, child.as_ref(), key),
                    None => Some(value.clone()),
                };
                over.extend(different.map(|different| (key.clone(), different)));
            }
            for key in base.keys().filter(|key| !live.contains_key(*key)) {
                over.insert(key.clone(), json!({ DIRECTIVE: "delete" }));
            }
            Some(Value::Object(over))
        }
        (Value::Array(base), Value::Array(items)) => match pod::merge_key(schema) {
            Some(key) => Some(by_key(&key, base, items, schema.and_then(Schema::items).as_ref())),
            None if field == "tolerations" => {
                let more = items.iter().filter(|item| !base.contains(item));
                Some(more.cloned().collect())
            }
            None => Some(live.clone()),
        },
        _ => Some(live.clone()),
    }
}

fn by_key(key: &str, base: &[Value], live: &[Value], schema: Option<&Schema>) -> Value {
    let same = |one: &Value, other: &Value| !one[key].is_null() && one[key] == other[key];
    let mut over = Vec::new();
    for item in live {
        match base.iter().find(|base| same(base, item)) {
            Some(base) => {
                if let Some(mut different) = difference(base, item, schema, "") {
                    different[key] = item[key].clone();
                    over.push(different);
                }
            }
            None => over.push(item.clone()),
        }
    }
    for item in base.iter().filter(|item| !live.iter().any(|live| same(live, item))) {
        over.push(json!({ key: item[key], DIRECTIVE: "delete" }));
    }
    Value::Array(over)
}

/// Removes `env` of each container in which a variable looks like a secret, and returns the names of those variables. Dask's CRDs
/// treat the list as atomic: a part of it would be shown as a difference.
pub(crate) fn without_secrets(pod: &mut Value) -> Vec<String> {
    clean(pod);
    let mut found = Vec::new();
    for list in ["initContainers", "containers"] {
        for container in pod.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let variables = container["env"].as_array().into_iter().flatten();
            let secret = |variable: &&Value| {
                let value = text(&variable["value"]);
                is_literal(text(&variable["name"]), value) || has_secret_shape(value)
            };
            let secrets: Vec<String> =
                variables.filter(secret).map(|variable| text(&variable["name"]).to_owned()).collect();
            if let Some(fields) = container.as_object_mut().filter(|_| !secrets.is_empty()) {
                fields.remove("env");
            }
            found.extend(secrets);
        }
    }
    found
}

fn clean(value: &mut Value) {
    match value {
        Value::Object(table) => {
            table.retain(|_, value| !value.is_null());
            table.values_mut().for_each(clean);
        }
        Value::Array(items) => items.iter_mut().for_each(clean),
        _ => {}
    }
}
