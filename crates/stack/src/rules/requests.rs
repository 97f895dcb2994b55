//! Checks of provisioning requests: their pods, if they can be met, and parts of Google's guide that do not work.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::rules::anti_affinity::anti_affinity;
use crate::rules::queued_workers::queued_workers;
use crate::rules::{Context, counted, queues};
use crate::{Nodes, ProvisioningRequest};
use kinds::dask::api::COMPONENT_LABEL;
use kinds::gke::cluster::Cluster;
use kinds::gke::node_pool::{Capacity, ServesRequests};
use kinds::kubernetes::bundle::{self, Bundle, Object};
use kinds::kubernetes::provisioning::{MAX_DURATION_SECONDS, MAX_NODES, QUEUED_CLASS};
use kinds::kubernetes::request_state::{CLASS_ANNOTATION, CONSUMES};
use kinds::pod;
use kinds::scope::POOL_LABEL;
use kinds::section::{PodKeys, PodRole, Pods, managed};
use kinds::short_forms::seconds;
use model::address::{FieldPath, Segment};
use model::diag::{Code, Diagnostic, listed, nearest};
use model::schema::{AUTOSCALING_GROUP, DASK_GROUP};

/// The label with the LocalQueue of work.
const QUEUE_LABEL: &str = "kueue.x-k8s.io/queue-name";

/// The earlier prefix of the pods' annotations, which the guide uses.
const OLD: &str = "cluster-autoscaler.kubernetes.io/";

/// Labels or annotations.
type Marks = BTreeMap<String, String>;

/// A request with the pods that it is for.
struct Asked<'a> {
    path: FieldPath,
    /// The path of the keys of the pods.
    pods: FieldPath,
    keys: &'a PodKeys,
    count: u32,
    /// The path of the number of pods.
    number: FieldPath,
}

fn requests<'a>(
    context: &Context<'a>,
) -> impl Iterator<Item = (FieldPath, &'a String, &'a ProvisioningRequest)> + use<'a> {
    let all = context.stack.provisioning_request.iter();
    all.map(|(key, request)| (FieldPath::keys(["provisioning_request", key]), key, request))
}

/// Returns the requests whose pods are known.
fn asked<'a>(context: &Context<'a>) -> Vec<Asked<'a>> {
    let stack = context.stack;
    let all = requests(context).filter_map(|(path, _, request)| {
        if let Some(key) = &request.job {
            let job = stack.job.get(key)?;
            let pods = FieldPath::keys(["job", key]);
            let number = pods.key("parallelism");
            return Some(Asked { path, pods, keys: &job.keys, count: job.at_a_time(), number });
        }
        let (pods, number) = (path.clone(), path.key("count"));
        Some(Asked { path, pods, keys: &request.keys, count: request.count?, number })
    });
    let queued = queued_workers(stack).into_iter().map(|queued| Asked {
        path: queued.section,
        pods: queued.workers,
        keys: queued.keys,
        count: queued.count,
        number: queued.number,
    });
    all.chain(queued.filter(|asked| asked.count > 0)).collect()
}

/// Checks that a request names a job of the file or describes pods.
pub(crate) fn requests_have_pods(context: &mut Context<'_>) {
    let mut taken: Vec<(&String, FieldPath)> = Vec::new();
    for (path, _, request) in requests(context) {
        let Some(job) = &request.job else {
            if request.count.is_none() {
                let message = format!("`{path}` does not say for which pods the nodes are");
                let finding =
                    Diagnostic::error(Code::RequestPods, message).at_value(path, "neither `job` nor `count`");
                context.say(finding.help(
                    "`job = \"NAME\"` asks for the nodes of a job of this file; `count`, `pool`, `gpus`, `cpu` and `memory` \
                     describe pods that others create",
                ));
            }
            continue;
        };
        describes_too(context, &path, request);
        known_job(context, &path, job, request);
        match taken.iter().find(|(other, _)| *other == job).map(|(_, first)| first.clone()) {
            Some(first) => {
                let message = format!("`{first}` and `{path}` are both for the job `{job}`");
                let finding = Diagnostic::error(Code::RequestPods, message)
                    .at_value(path.key("job"), "again here")
                    .at_value(first.key("job"), "first here");
                context.say(finding.help("a pod names one request: keep one of them"));
            }
            None => taken.push((job, path)),
        }
    }
}

/// Reports keys of a request for a job that describe pods, as the job does that already.
fn describes_too(context: &mut Context<'_>, path: &FieldPath, request: &ProvisioningRequest) {
    let keys = &request.keys;
    let said = [
        ("count", request.count.is_some()),
        ("image", request.image.is_some()),
        ("gpus", keys.gpus.is_some()),
        ("cpu", keys.cpu.is_some()),
        ("memory", keys.memory.is_some()),
        ("pool", keys.pool.is_some()),
        ("prefer_pool", keys.prefer_pool.is_some()),
        ("env", !keys.env.is_empty()),
        ("labels", !keys.labels.is_empty()),
        ("annotations", !keys.annotations.is_empty()),
        ("pod", keys.pod.is_some()),
    ];
    for (key, _) in said.iter().filter(|(_, given)| *given) {
        let message = format!("`{path}` is for a job and describes pods of its own");
        let finding = Diagnostic::error(Code::RequestPods, message).at_value(path.key(key), "its own");
        context.say(
            finding.at_value(path.key("job"), "the job's").help(format!("remove `{key}`: the job says it")),
        );
    }
}

fn known_job(context: &mut Context<'_>, path: &FieldPath, job: &str, request: &ProvisioningRequest) {
    let jobs = &context.stack.job;
    let place = path.key("job");
    if let Some(known) = jobs.get(job) {
        let Some(namespace) =
            request.namespace.as_deref().filter(|namespace| *namespace != known.namespace())
        else {
            return;
        };
        let message = format!(
            "the request is in the namespace `{namespace}`, and the pods of `{job}` are in `{}`",
            known.namespace()
        );
        let finding = Diagnostic::error(Code::JobUnknown, message).at_value(path.key("namespace"), "");
        context.say(finding.help("remove `namespace`: the default is the job's"));
        return;
    }
    if context.is_doubtful(&FieldPath::keys(["job", job])) {
        return;
    }
    let keys = context.keys("job", jobs.keys());
    let names = || keys.iter().copied();
    let help = match nearest(job, names()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if keys.is_empty() => {
            "this file has no `[job]`: describe the pods with `count`, `pool`, `gpus`, `cpu` and `memory`"
                .to_owned()
        }
        None => format!("this file has {}", listed(names(), "and")),
    };
    let message = format!("there is no job `{job}`");
    context.say(Diagnostic::error(Code::JobUnknown, message).at_value(place, "").help(help));
}

/// Checks that a request names a pool that serves requests.
pub(crate) fn requests_have_a_queued_pool(context: &mut Context<'_>) {
    // Where pools are made by themselves, or are others', nobody here knows which there are.
    let unknown = context.stack.node_pool.is_empty()
        || context.stack.cluster.as_ref().is_some_and(Cluster::makes_pools);
    for asked in asked(context) {
        let Some(name) = &asked.keys.pool else {
            if !unknown && asked.keys.pod.is_none() {
                let message = format!("`{}` does not say from which pool its nodes are", asked.path);
                let finding =
                    Diagnostic::error(Code::RequestPool, message).at_value(asked.pods.clone(), "no `pool`");
                context.say(finding.help("name a pool with `queued = true`"));
            }
            continue;
        };
        let Some(pool) = context.pool(name) else { continue };
        let section = FieldPath::keys(["node_pool", name]);
        match pool.serves_requests() {
            ServesRequests::Always => continue,
            ServesRequests::Perhaps if !pool.capacity.contains(&Capacity::FlexStart) => continue,
            ServesRequests::Perhaps => {
                let message = format!(
                    "by flex-start the pool `{name}` gets no nodes for pods that name a request: the autoscaler passes them over"
                );
                let finding = Diagnostic::error(Code::RequestPool, message)
                    .at_value(asked.pods.key("pool"), "asked for here")
                    .at_value(section.key("capacity"), "may be bought by flex-start");
                context.say(
                    finding.help("remove \"flex-start\" from `capacity`, or the request and \"queued\""),
                );
                continue;
            }
            ServesRequests::Never if !pool.manage.is_managed() && pool.queued.is_none() => continue,
            ServesRequests::Never => {}
        }
        let message = format!("the pool `{name}` makes no nodes for requests");
        let finding = Diagnostic::error(Code::RequestPool, message)
            .at_value(asked.pods.key("pool"), "asked for here")
            .at_key(section, "without `queued`");
        context.say(finding.help(
            "give the pool `queued = true`, `reservation = \"none\"` and `nodes = { min = 0, max = … }`",
        ));
    }
}

/// Reports pods that select a queued pool and belong to no ProvisioningRequest: GKE would never create nodes for them.
pub(crate) fn queued_pools_are_asked(context: &mut Context<'_>) {
    copied_workers_are_asked(context);
    let stack = context.stack;
    for pod in context.pods() {
        let Some(name) = &pod.keys.pool else { continue };
        let Some(pool) = context.pool(name).filter(|_| pod.role != PodRole::Requested) else { continue };
        let serves_requests = pool.serves_requests();
        if serves_requests == ServesRequests::Never || is_asked_for(context, &pod) {
            continue;
        }
        let when = match serves_requests {
            ServesRequests::Perhaps => " when the pool is bought by the way \"queued\"",
            ServesRequests::Always | ServesRequests::Never => "",
        };
        let message = format!(
            "{} waits for ever{when}: the autoscaler makes nodes of the pool `{name}` for provisioning requests only",
            pod.role
        );
        let key = if pool.capacity.is_empty() { "queued" } else { "capacity" };
        let finding = Diagnostic::warning(Code::RequestPool, message)
            .at_value(pod.path.key("pool"), "on this pool")
            .at_value(FieldPath::keys(["node_pool", name, key]), "queued");
        if pool.capacity.contains(&Capacity::FlexStart) {
            let help = "remove \"queued\" from `capacity`: after \"flex-start\", which waits for machines, it is reached \
                        only without quota";
            context.say(finding.help(help));
            continue;
        }
        let help = match pod.role {
            PodRole::Job => {
                let key = stack.job.keys().find(|key| pod.path == FieldPath::keys(["job", key]));
                let key = key.map_or("NAME", String::as_str);
                format!("add `[provisioning_request.{key}]` with `job = \"{key}\"`")
            }
            PodRole::Worker => {
                let section = match keys_of(&pod).as_slice() {
                    [kind, key, "worker"] => format!("{kind}.{key}"),
                    _ => pod.path.to_string(),
                };
                format!("add `capacity = \"queued\"` to `{section}`, which requests nodes for all of them")
            }
            _ => format!(
                "add a `[provisioning_request.NAME]` for them, and `annotations = {{ \"{CONSUMES}\" = \"NAME\", \
                 \"{CLASS_ANNOTATION}\" = \"{QUEUED_CLASS}\" }}` here"
            ),
        };
        context.say(finding.help(help));
    }
}

fn keys_of<'p>(pod: &'p Pods<'_>) -> Vec<&'p str> {
    pod.path.segments().iter().filter_map(Segment::key).collect()
}

/// Reports workers on a queued pool that a Dask job copies from a cluster: the job does not copy the cluster's `queue` and
/// `capacity`.
fn copied_workers_are_asked(context: &mut Context<'_>) {
    let stack = context.stack;
    let jobs = managed(&stack.dask_job).filter(|(_, job)| job.worker.is_none());
    for (key, job) in jobs.filter(|(_, job)| job.capacity.is_none() && job.queue.is_none()) {
        let like = job.like.as_ref().and_then(|like| stack.dask_cluster.get(like));
        let Some((like, name)) = like.and_then(|like| Some((like, like.worker.keys.pool.as_ref()?))) else {
            continue;
        };
        let asked = like.worker.keys.annotations.contains_key(CONSUMES);
        let Some(pool) = context.pool(name).filter(|_| !asked) else { continue };
        if pool.serves_requests() == ServesRequests::Never {
            continue;
        }
        let section = FieldPath::keys(["dask_job", key]);
        let message = format!(
            "the workers of `{section}` wait for ever: the autoscaler makes nodes of the pool `{name}` for provisioning requests \
             only, and the job does not copy what requests them"
        );
        let finding = Diagnostic::warning(Code::RequestPool, message).at_value(section.key("like"), "copied");
        context.say(finding.help(format!("add `capacity = \"queued\"` or a `queue` to `{section}`")));
    }
}

/// Returns true if a request or a queue exists for a pod.
fn is_asked_for(context: &Context<'_>, pod: &Pods<'_>) -> bool {
    let stack = context.stack;
    let keys = keys_of(pod);
    let marked = |labels: &Marks, annotations: &Marks| {
        labels.contains_key(QUEUE_LABEL) || annotations.contains_key(CONSUMES)
    };
    let of_section = match keys.as_slice() {
        ["job", key] => stack.request_of(key).is_some(),
        // Pods inherit the labels and annotations of their cluster.
        ["dask_cluster", key, ..] => {
            stack.dask_cluster.get(*key).is_some_and(|cluster| marked(&cluster.labels, &cluster.annotations))
        }
        _ => false,
    };
    of_section
        || queues::waiting(stack).contains(&pod.path)
        || queued_workers(stack)
            .iter()
            .any(|queued| queued.section.contains(&pod.path) && queued.workers == pod.path)
        || marked(&pod.keys.labels, &pod.keys.annotations)
}

/// Checks that a request can be met: by its pool, and within GKE's limits. Source: GKE's guide, "Limitations".
pub(crate) fn requests_can_be_met(context: &mut Context<'_>) {
    for asked in asked(context) {
        anti_affinity(context, asked.keys.pod.as_ref().map(|pod| &pod.0), &asked.pods.key("pod"));
        if let Some(finding) = too_large(context, asked) {
            context.say(finding);
        }
    }
}

fn too_large(context: &Context<'_>, asked: Asked<'_>) -> Option<Diagnostic> {
    let Asked { path, pods: _, keys, count, number } = asked;
    let pool = keys.pool.as_ref().and_then(|name| Some((name, context.pool(name)?)));
    // How many fit by CPU and memory is the scheduler's to know; at least one pod has room.
    let per_node = pool.and_then(|(_, pool)| pool.allocatable_gpus().checked_div(keys.gpus())).unwrap_or(0);
    let nodes = if per_node == 0 { 1 } else { u64::from(count).div_ceil(u64::from(per_node)) };
    let each = (per_node > 0).then(|| format!(" with {} each", counted(per_node, "pod")));
    let needs = format!("`{path}` needs {nodes} nodes{}", each.unwrap_or_default());
    let finding = |why: String| {
        let finding = Diagnostic::error(Code::RequestTooLarge, format!("{needs}{why}"));
        finding.at_value(number, format!("{count} pods"))
    };
    if nodes > MAX_NODES {
        let finding = finding(format!(", and GKE makes at most {MAX_NODES} for one request"));
        return Some(finding.help("split it into several requests, or use machines with more GPUs"));
    }
    let (name, pool) = pool.filter(|(_, pool)| pool.manage.is_managed() || pool.nodes.is_some())?;
    let (at_first, max) = (pool.size().least(), pool.size().most());
    if pool.capacity.is_empty() && matches!(pool.size(), Nodes::Fixed(_)) {
        return None;
    }
    let place = FieldPath::keys(["node_pool", name, "nodes"]);
    let others = pool.serves_requests() == ServesRequests::Perhaps;
    if others && nodes > u64::from(at_first) && nodes <= u64::from(max) {
        let finding = finding(format!(
            ", and the pool `{name}` has {at_first} when it is not bought by the way \"queued\": the autoscaler adds none for \
             pods that name a request"
        ));
        let finding = finding.at_value(place, format!("{at_first} at first"));
        return Some(finding.help(format!("set `nodes = {nodes}`, or keep only \"queued\" in `capacity`")));
    }
    (nodes > u64::from(max)).then(|| {
        let finding =
            finding(format!(" at once, and the pool `{name}` has at most {max}: the request would fail"));
        let finding = finding.at_value(place, format!("at most {max}"));
        finding.help(format!("set `nodes = {{ min = 0, max = {nodes} }}`, or ask for fewer pods"))
    })
}

/// Checks the durations of jobs and nodes.
pub(crate) fn durations_are_durations(context: &mut Context<'_>) {
    let stack = context.stack;
    let jobs = stack.job.iter().map(|(key, job)| {
        (FieldPath::keys(["job", key]), job.max_run_duration.as_deref(), u64::from(u32::MAX))
    });
    let requests = stack.provisioning_request.iter().map(|(key, request)| {
        (
            FieldPath::keys(["provisioning_request", key]),
            request.max_run_duration.as_deref(),
            MAX_DURATION_SECONDS,
        )
    });
    let queued = queued_workers(stack);
    let queued = queued.iter().map(|queued| (queued.section.clone(), queued.longest, MAX_DURATION_SECONDS));
    let all: Vec<_> = jobs.chain(requests).chain(queued).collect();
    for (path, text, most) in all {
        let Some(text) = text else { continue };
        let (message, help) = match seconds(text) {
            None | Some(0) => (format!("`{text}` is not a duration"), "write `7d`, `12h`, `30m` or `45s`"),
            Some(seconds) if seconds > most => (format!("`{text}` is too long"), "7 days are the most"),
            Some(_) => continue,
        };
        let place = path.key("max_run_duration");
        context.say_of_value(Diagnostic::error(Code::BadDuration, message).at_value(place, "").help(help));
    }
}

/// Reports labels that the operator overwrites, and old annotations that have no effect.
pub(crate) fn marks_have_an_effect(context: &mut Context<'_>) {
    for pod in context.pods() {
        for key in pod.keys.labels.keys().filter(|_| pod.role.is_dask()) {
            if !key.starts_with("dask.org/") && key != "sidecar.istio.io/inject" {
                continue;
            }
            let message = format!("the Dask operator sets the label `{key}` itself");
            let place = pod.path.key("labels").key(key);
            let finding = Diagnostic::warning(Code::LabelOfOperator, message).at_key(place, "has no effect");
            context.say(finding.help("remove it, or use another key"));
        }
        for key in pod.keys.annotations.keys() {
            old_annotation(context, &pod.path.key("annotations"), key);
        }
    }
    let bundles = context.stack.bundles();
    for object in bundle::objects(&bundles).filter(|object| object.group_version().0 == DASK_GROUP) {
        let spec = object.origin().key("spec");
        let parts: &[&[&str]] = match object.kind() {
            "DaskCluster" => &[&["worker"], &["scheduler"]],
            "DaskWorkerGroup" => &[&["worker"]],
            "DaskJob" => &[&["job"], &["cluster", "spec", "worker"], &["cluster", "spec", "scheduler"]],
            _ => continue,
        };
        for part in parts {
            let of = part.iter().fold(&object.value["spec"], |value, key| &value[*key]);
            let place =
                part.iter().fold(spec.clone(), |place, key| place.key(key)).key("metadata").key("labels");
            for (key, value) in of["metadata"]["labels"].as_object().into_iter().flatten() {
                // Setting a label to the operator's own value does no harm.
                let same = key == COMPONENT_LABEL && part.last().is_some_and(|part| value == part);
                if key.starts_with("dask.org/") && !same {
                    let message = format!("the Dask operator sets the label `{key}` itself");
                    let finding = Diagnostic::warning(Code::LabelOfOperator, message)
                        .at_key(place.key(key), "has no effect");
                    context.say(finding.help("remove it, or use another key"));
                }
            }
        }
    }
}

fn old_annotation(context: &mut Context<'_>, annotations: &FieldPath, key: &str) {
    let new = match key.strip_prefix(OLD) {
        Some("consume-provisioning-request") => CONSUMES,
        Some("provisioning-class-name") => CLASS_ANNOTATION,
        _ => return,
    };
    let message = format!("`{key}` is the name of the annotation on old clusters");
    let finding = Diagnostic::warning(Code::RequestManifest, message)
        .at_key(annotations.key(key), "the autoscaler no longer reads it");
    context.say(finding.help(format!("write `{new}`")));
}

/// Checks requests in manifests, and the pods that use them, for errors in Google's guide.
pub(crate) fn manifests_of_requests_work(context: &mut Context<'_>) {
    let bundles = context.stack.bundles();
    for object in bundle::objects(&bundles) {
        let origin = object.origin();
        if object.kind() == "ProvisioningRequest" && object.group_version().0 == AUTOSCALING_GROUP {
            request_works(context, &object, &origin);
            sets_can_be_met(context, &object, &origin, &bundles);
        }
        if object.kind() == "PodTemplate" {
            let spec = &object.value["template"]["spec"];
            let named = bundle::objects(&bundles).any(|request| names(&request, &object));
            anti_affinity(context, named.then_some(spec), &origin.key("template").key("spec"));
        }
        old_annotations(context, object.value, &origin);
    }
}

/// Returns true if a request names a PodTemplate.
fn names(request: &Object<'_>, template: &Object<'_>) -> bool {
    let sets = request.value["spec"]["podSets"].as_array().into_iter().flatten();
    request.kind() == "ProvisioningRequest"
        && request.namespace() == template.namespace()
        && sets.into_iter().any(|set| set["podTemplateRef"]["name"] == template.name())
}

fn request_works(context: &mut Context<'_>, object: &Object<'_>, origin: &FieldPath) {
    let spec = &object.value["spec"];
    if object.group_version().1 != "v1" {
        let message = "an old version of ProvisioningRequests";
        let finding =
            Diagnostic::warning(Code::RequestManifest, message).at_value(origin.key("apiVersion"), "");
        context.say(
            finding.help(format!("write `apiVersion: {AUTOSCALING_GROUP}/v1`; the fields are the same")),
        );
    }
    if spec["provisioningClassName"] != QUEUED_CLASS {
        return;
    }
    let at = origin.key("spec");
    let sets = spec["podSets"].as_array().map_or(0, Vec::len);
    if sets > 1 {
        let message = format!("GKE takes requests with one pod set, and this one has {sets}");
        let finding = Diagnostic::error(Code::RequestManifest, message).at_value(at.key("podSets"), "");
        context.say(finding.help(
            "use the pod that asks for most, with the number of all pods; machines of different sorts need a request each",
        ));
    }
    let place = at.key("parameters").key("maxRunDurationSeconds");
    nodes_last(context, &spec["parameters"]["maxRunDurationSeconds"], place);
}

/// Checks that the lifetime of a request's nodes is a number of seconds that GKE accepts.
pub(crate) fn nodes_last(context: &mut Context<'_>, longest: &Value, place: FieldPath) {
    let Some(text) = longest.as_str() else { return };
    let (message, help) = match text.parse::<u64>() {
        Ok(1..=MAX_DURATION_SECONDS) => return,
        Ok(_) => (
            format!("nodes of a request last for at most 7 days, and `{text}` seconds is not within"),
            "604800 is the most",
        ),
        Err(_) => (format!("`{text}` is not a number of seconds"), "write `\"43200\"` for 12 hours"),
    };
    context.say(Diagnostic::error(Code::RequestManifest, message).at_value(place, "").help(help));
}

/// Checks that the number of pods in a manifest's request can be met.
fn sets_can_be_met(
    context: &mut Context<'_>,
    request: &Object<'_>,
    origin: &FieldPath,
    bundles: &[Bundle<'_>],
) {
    if request.value["spec"]["provisioningClassName"] != QUEUED_CLASS {
        return;
    }
    let sets = request.value["spec"]["podSets"].as_array().into_iter().flatten();
    for (at, set) in sets.enumerate() {
        let Some(count) = set["count"].as_u64() else { continue };
        let mut all = bundle::objects(bundles);
        let template = all.find(|object| {
            object.kind() == "PodTemplate"
                && object.namespace() == request.namespace()
                && set["podTemplateRef"]["name"] == object.name()
        });
        let Some(spec) = template.map(|template| &template.value["template"]["spec"]) else { continue };
        let named = spec["nodeSelector"][POOL_LABEL].as_str();
        let pool = named
            .and_then(|name| context.stack.node_pool.iter().find(|(key, pool)| pool.live_name(key) == name));
        let gpus = pod::gpus(spec);
        // One node has room for so many of them by their GPUs; without a pool of this file nobody here knows.
        let each = match pool {
            Some((_, pool)) if gpus > 0 => (u64::from(pool.allocatable_gpus()) / gpus).max(1),
            _ => continue,
        };
        let nodes = count.div_ceil(each);
        let most = pool.map(|(key, pool)| (key, u64::from(pool.size().most())));
        let most = most.filter(|(_, most)| nodes > *most);
        let (what, help) = match most {
            _ if nodes > MAX_NODES => (
                format!("GKE makes at most {MAX_NODES} for one request"),
                "split it into several requests, or use machines with more GPUs",
            ),
            Some((key, most)) => (
                format!("the pool `{key}` has at most {most}"),
                "ask for fewer pods, or raise `nodes` of the pool",
            ),
            None => continue,
        };
        let place = origin.key("spec").key("podSets").index(at).key("count");
        let message = format!("the request needs {nodes} nodes for {count} pods at once, and {what}");
        context.say(Diagnostic::error(Code::RequestTooLarge, message).at_value(place, "").help(help));
    }
}

/// Reports old annotations of pods, at every pod template.
fn old_annotations(context: &mut Context<'_>, value: &Value, path: &FieldPath) {
    match value {
        Value::Object(table) => {
            for (key, value) in table {
                let path = path.key(key);
                if key == "annotations" {
                    for annotation in value.as_object().into_iter().flat_map(|annotations| annotations.keys())
                    {
                        old_annotation(context, &path, annotation);
                    }
                } else {
                    old_annotations(context, value, &path);
                }
            }
        }
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(place, item)| old_annotations(context, item, &path.index(place)));
        }
        _ => {}
    }
}
