//! `[dask_cluster.NAME]` with groups, and `[dask_job.NAME]`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::namespaces::own;
use crate::pod::{self, Part, Short};
use crate::{Draft, Found, key, text};
use kinds::dask;
use kinds::dask::service::{ServiceSpec, is_internal};
use kinds::section::Manage;
use model::address::FieldPath;
use model::resource::ObjectId;
use model::schema::DASK_GROUP;
use stack::{
    DaskCluster, DaskGroup, DaskJob, DaskService, IdleTimeout, Replicas, ReplicasTable, Restart, Scheduler,
    ServiceType, Worker,
};

/// The maximum length of a name. The operator refuses longer ones, and so does a stack.
const LONGEST: usize = 53;

pub(crate) fn import(found: &Found, draft: &mut Draft) {
    let mut clusters: BTreeMap<ObjectId, String> = BTreeMap::new();
    for (object, live) in of_kind(found, "DaskCluster") {
        if let Some(job) = owner(live, "DaskJob") {
            draft
                .unsupported
                .push(format!("{object}: the cluster of DaskJob {job}, created by the operator"));
        } else if let Some(why) = unnamable(&object.name) {
            draft.unsupported.push(format!("{object}: {why}"));
        } else {
            let key = cluster(found, object, live, draft);
            clusters.insert(object.clone(), key);
        }
    }
    let of = |object: &ObjectId, live: &Value| {
        let name = text(&live["spec"]["cluster"]);
        let same = |cluster: &&ObjectId| cluster.name == name && cluster.namespace == object.namespace;
        clusters.iter().find(|(cluster, _)| same(cluster)).map(|(_, key)| (name.to_owned(), key.clone()))
    };
    for (object, live) in of_kind(found, "DaskWorkerGroup") {
        let wanted = text(&live["spec"]["cluster"]);
        if object.name == format!("{wanted}-default") {
            continue;
        }
        match of(object, live) {
            Some((name, key)) => group(object, live, &name, &key, draft),
            None => draft.unsupported.push(format!("{object}: its cluster {wanted} is not in this file")),
        }
    }
    for (object, live) in of_kind(found, "DaskAutoscaler") {
        let wanted = text(&live["spec"]["cluster"]);
        if object.name != wanted {
            draft
                .unsupported
                .push(format!("{object}: in a stack an autoscaler has the name of its cluster, {wanted}"));
        } else if of(object, live).is_none() {
            draft.unsupported.push(format!("{object}: its cluster {wanted} is not in this file"));
        }
    }
    for (object, live) in of_kind(found, "DaskJob") {
        match unnamable(&object.name) {
            Some(why) => draft.unsupported.push(format!("{object}: {why}")),
            None => job(object, live, draft),
        }
    }
}

fn of_kind<'f>(found: &'f Found, kind: &'f str) -> impl Iterator<Item = (&'f ObjectId, &'f Value)> {
    found.objects.iter().filter(move |(object, _)| object.gvk.kind == kind && object.gvk.group == DASK_GROUP)
}

fn owner<'v>(live: &'v Value, kind: &str) -> Option<&'v str> {
    let mut owners = live["metadata"]["ownerReferences"].as_array()?.iter();
    owners.find(|owner| owner["kind"] == kind).and_then(|owner| owner["name"].as_str())
}

/// Returns why a live name is not valid in a stack file.
fn unnamable(name: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if !name.chars().all(plain) {
        return Some(format!("`{name}` is not a valid name in a stack: lower-case letters, digits and `-`"));
    }
    (name.len() > LONGEST)
        .then(|| format!("its name has {} characters, a stack allows {LONGEST}", name.len()))
}

fn cluster(found: &Found, object: &ObjectId, live: &Value, draft: &mut Draft) -> String {
    let namespace = object.namespace.clone().unwrap_or_default();
    let taken: BTreeSet<&String> = draft.stack.dask_cluster.keys().collect();
    let key = key(&object.name, &namespace, &taken);
    let section = format!("dask_cluster.{key}");
    draft.above(&section, format!("{object}, {}.", phase(live)));
    crate::gke::owned(&section, live, draft);
    let spec = &live["spec"];
    let scheduler = pod_of(Part::Scheduler, &spec["scheduler"]["spec"], None, &section, draft);
    let image = scheduler.image.clone();
    let worker = pod_of(Part::Worker, &spec["worker"]["spec"], Some(&image), &section, draft);
    let worker = marked(worker, &spec["worker"]["metadata"]);
    // Annotations of the scheduler are its Service's.
    let labels = json!({ "labels": spec["scheduler"]["metadata"]["labels"] });
    let scheduler = marked(scheduler, &labels);
    let made = DaskCluster {
        name: (key != object.name).then(|| object.name.clone()),
        namespace: (namespace != "default").then_some(namespace),
        image,
        scheduler: scheduler_of(scheduler),
        worker: worker_of(worker, replicas(found, object, live, &section, draft)),
        idle_timeout: spec["idleTimeout"].as_u64().filter(|seconds| *seconds > 0).and_then(idle),
        service: service(live),
        labels: own(&live["metadata"]["labels"]),
        annotations: own(&live["metadata"]["annotations"]),
        manage: Manage::EXTERNAL,
        ..DaskCluster::default()
    };
    draft.stack.dask_cluster.insert(key.clone(), made.clone());
    let lowered = dask::cluster::lower(&key, &made, &draft.scope());
    if let Some(said) = lowered.first() {
        unsaid(&section, &said.body["spec"], spec, draft);
    }
    key
}

/// Returns how the scheduler is reached, and whether annotations keep a load balancer off the internet.
fn service(live: &Value) -> DaskService {
    let scheduler = &live["spec"]["scheduler"];
    let r#type = match text(&scheduler["service"]["type"]) {
        "NodePort" => ServiceType::NodePort,
        "LoadBalancer" => ServiceType::LoadBalancer,
        _ => ServiceType::ClusterIP,
    };
    let given = [&live["metadata"]["annotations"], &scheduler["metadata"]["annotations"]];
    let pairs = given.into_iter().filter_map(Value::as_object).flatten();
    let internal = is_internal(pairs.map(|(key, value)| (key.as_str(), text(value))));
    let public = r#type == ServiceType::LoadBalancer && !internal;
    let mut service = DaskService { public, ..DaskService::of(r#type) };
    // Annotations that the section makes by itself are left out.
    let brought = service.annotations(true).into_iter().chain(service.annotations(false));
    let brought: BTreeSet<String> = brought.map(|(key, _)| key).collect();
    let own = scheduler["metadata"]["annotations"].as_object().into_iter().flatten();
    let own = own.filter(|(key, _)| !brought.contains(*key));
    service.annotations = own.map(|(key, value)| (key.clone(), text(value).to_owned())).collect();
    let more = scheduler["service"].as_object().into_iter().flatten();
    let more: Map<String, Value> = more
        .filter(|(key, _)| !["type", "selector", "ports"].contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    service.spec = (!more.is_empty()).then_some(ServiceSpec(Value::Object(more)));
    service
}

fn phase(live: &Value) -> String {
    match text(&live["status"]["phase"]) {
        "" => "not yet seen by an operator".to_owned(),
        phase => format!("phase {phase}"),
    }
}

fn idle(seconds: u64) -> Option<IdleTimeout> {
    serde_json::from_value(json!(seconds)).ok()
}

/// Returns the key `replicas`. The effective number is that of the default group; if there is an autoscaler, it owns the number.
fn replicas(found: &Found, object: &ObjectId, live: &Value, section: &str, draft: &mut Draft) -> Replicas {
    let beside = |api: model::resource::Gvk, name: String| {
        let id = ObjectId { gvk: api, namespace: object.namespace.clone(), name };
        found.objects.get(&id)
    };
    let number = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
    if let Some(scaler) = beside(dask::api::autoscaler(), object.name.clone()) {
        let (min, max) = (number(&scaler["spec"]["minimum"]), number(&scaler["spec"]["maximum"]));
        return Replicas::Table(ReplicasTable { min: min.or(Some(0)), max, start: None });
    }
    let asked = number(&live["spec"]["worker"]["replicas"]).unwrap_or(1);
    let default = beside(dask::api::group(), format!("{}-default", object.name));
    let there = default.and_then(|group| number(&group["spec"]["worker"]["replicas"])).unwrap_or(asked);
    if there != asked {
        draft.below(section, format!(
            "the DaskCluster requests {asked} workers, but its default group was scaled to {there} since, so \
             the number is managed elsewhere"
        ));
        return Replicas::Table(ReplicasTable { start: Some(there), ..ReplicasTable::default() });
    }
    Replicas::Fixed(there)
}

/// Returns the pod as keys of a section. Values that look like secrets are left out.
fn pod_of(part: Part, live: &Value, image: Option<&str>, section: &str, draft: &mut Draft) -> Short {
    let mut pod = live.clone();
    for name in pod::without_secrets(&mut pod) {
        draft.below(section, format!(
            "the value of the variable {name} looks like a secret, so the variables of its container are not \
             written here: move it to a Secret and refer to it in `pod` (`valueFrom`) before you adopt this"
        ));
    }
    pod::short(part, &pod, image, &draft.scope())
}

/// Adds the labels and annotations that the part gives its pods.
fn marked(mut short: Short, metadata: &Value) -> Short {
    short.keys.labels = own(&metadata["labels"]);
    short.keys.annotations = own(&metadata["annotations"]);
    short
}

fn scheduler_of(short: Short) -> Scheduler {
    let Short { image: _, resources: _, args, keys } = short;
    Scheduler { keys, args, ..Scheduler::default() }
}

fn worker_of(short: Short, replicas: Replicas) -> Worker {
    let Short { image: _, resources, args, keys } = short;
    Worker { replicas, keys, resources, args, ..Worker::default() }
}

fn group(object: &ObjectId, live: &Value, cluster: &str, cluster_key: &str, draft: &mut Draft) {
    let Some(section) = draft.stack.dask_cluster.get(cluster_key) else { return };
    let image = section.image.clone();
    let short_key = object.name.strip_prefix(&format!("{cluster}-")).filter(|key| !key.is_empty());
    let key = short_key.unwrap_or(&object.name).to_owned();
    if !object.name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-') {
        draft.unsupported.push(format!("{object}: `{}` is not a valid name in a stack", object.name));
        return;
    }
    let header = format!("dask_cluster.{cluster_key}.group.{key}");
    draft.above(&header, format!("{object}."));
    crate::gke::owned(&header, live, draft);
    let worker = &live["spec"]["worker"];
    let own_image = worker["spec"]["containers"].as_array().into_iter().flatten();
    let own_image =
        own_image.filter(|container| container["name"] == "worker").find_map(|c| c["image"].as_str());
    let own_image = own_image.filter(|own| *own != image).map(str::to_owned);
    let short = pod_of(Part::Worker, &worker["spec"], own_image.as_deref().or(Some(&image)), &header, draft);
    let short = marked(short, &worker["metadata"]);
    let Short { image: _, resources, args, keys } = short;
    let replicas = worker["replicas"].as_u64().and_then(|number| u32::try_from(number).ok()).unwrap_or(1);
    let made = DaskGroup {
        name: short_key.is_none().then(|| object.name.clone()),
        replicas: Replicas::Fixed(replicas),
        image: own_image,
        keys,
        resources,
        args,
        manage: Manage::EXTERNAL,
        ..DaskGroup::default()
    };
    let Some(section) = draft.stack.dask_cluster.get_mut(cluster_key) else { return };
    section.group.insert(key.clone(), made);
    let lowered = dask::cluster::lower(cluster_key, &section.clone(), &draft.scope());
    let said = lowered.iter().find(|resource| resource.address.as_str() == header);
    if let Some(said) = said {
        unsaid(&header, &said.body["spec"], &live["spec"], draft);
    }
}

fn job(object: &ObjectId, live: &Value, draft: &mut Draft) {
    let namespace = object.namespace.clone().unwrap_or_default();
    let taken: BTreeSet<&String> = draft.stack.dask_job.keys().collect();
    let key = key(&object.name, &namespace, &taken);
    let section = format!("dask_job.{key}");
    let status = match text(&live["status"]["jobStatus"]) {
        "" => "not yet seen by an operator".to_owned(),
        status => format!("status {status}"),
    };
    draft.above(&section, format!("{object}, {status}."));
    crate::gke::owned(&section, live, draft);
    let spec = &live["spec"];
    let program = &spec["job"]["spec"];
    let (restart, policy) = match text(&program["restartPolicy"]) {
        "OnFailure" => (Restart::OnFailure, "OnFailure"),
        _ => (Restart::Never, "Never"),
    };
    let program = pod_of(Part::Program(policy), program, None, &section, draft);
    let program = marked(program, &spec["job"]["metadata"]);
    let inner = &spec["cluster"]["spec"];
    let image = program.image.clone();
    let scheduler = pod_of(Part::Scheduler, &inner["scheduler"]["spec"], Some(&image), &section, draft);
    let worker = pod_of(Part::Worker, &inner["worker"]["spec"], Some(&image), &section, draft);
    let (scheduler, worker) =
        (marked(scheduler, &inner["scheduler"]["metadata"]), marked(worker, &inner["worker"]["metadata"]));
    let replicas = inner["worker"]["replicas"].as_u64().and_then(|number| u32::try_from(number).ok());
    let Short { image, resources: _, args, keys } = program;
    let made = DaskJob {
        name: (key != object.name).then(|| object.name.clone()),
        namespace: (namespace != "default").then_some(namespace),
        image: Some(image),
        args,
        keys,
        scheduler: Some(scheduler_of(scheduler)),
        worker: Some(worker_of(worker, Replicas::Fixed(replicas.unwrap_or(1)))),
        restart,
        manage: Manage::EXTERNAL,
        ..DaskJob::default()
    };
    draft.stack.dask_job.insert(key.clone(), made.clone());
    let said = dask::job::lower(&key, &made, None, &draft.scope());
    let said = said.first().map_or(&Value::Null, |said| &said.body["spec"]);
    unsaid(&section, said, spec, draft);
}

/// Adds comments on live fields that the section does not set, or sets to another value.
pub(crate) fn unsaid(section: &str, said: &Value, live: &Value, draft: &mut Draft) {
    let (mut more, mut other) = (Vec::new(), Vec::new());
    walk(&FieldPath::keys(["spec"]), said, live, &mut more, &mut other);
    // Numbers have a word of their own, and secrets, too.
    let told = |path: &&FieldPath| {
        let path = path.to_string();
        !path.ends_with("worker.replicas") && !path.contains(".env[") && !path.ends_with(".env")
    };
    let list = |paths: &[FieldPath]| {
        paths.iter().filter(told).map(ToString::to_string).collect::<Vec<_>>().join(", ")
    };
    let (more, other) = (list(&more), list(&other));
    if !more.is_empty() {
        draft.below(section, format!("also set and left unchanged: {more}"));
    }
    if !other.is_empty() {
        draft.below(section, format!("it differs there, so adopting it would change: {other}"));
    }
}

fn walk(path: &FieldPath, said: &Value, live: &Value, more: &mut Vec<FieldPath>, other: &mut Vec<FieldPath>) {
    match (said, live) {
        (Value::Object(said), Value::Object(live)) => {
            for (key, value) in live.iter().filter(|(_, value)| !value.is_null()) {
                match said.get(key) {
                    Some(said) => walk(&path.key(key), said, value, more, other),
                    None => more.push(path.key(key)),
                }
            }
            other.extend(
                said.keys().filter(|key| live.get(*key).is_none_or(Value::is_null)).map(|key| path.key(key)),
            );
        }
        (Value::Array(said), Value::Array(live)) if said.len() == live.len() => {
            for (place, (said, live)) in said.iter().zip(live).enumerate() {
                walk(&path.index(place), said, live, more, other);
            }
        }
        (said, live) if said == live => {}
        _ => other.push(path.clone()),
    }
}
