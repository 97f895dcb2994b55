//! POST, PUT, PATCH and DELETE: from a body to a change of the store.

use serde_json::{Value, json};

use super::apply::{self, Force, Writer};
use super::body;
use super::call::Call;
use super::form::{self, normalize};
use super::object::{Key, merge, text};
use super::patch;
use super::read::versioned;
use super::request::{Place, Request, Response};
use super::scale::scale_of;
use super::scheme::{Kind, Origin};
use super::status::{Cause, Status};
use super::store::{Cluster, DeleteOptions, Propagation, keep_identity, next_generation};
use super::strategy::Deletion;
use super::validate::{self, Unknown};

/// The parameters of a write.
struct Job<'a> {
    call: Call<'a>,
    manager: String,
    dry_run: bool,
    unknown: Unknown,
}

impl<'a> Job<'a> {
    fn new(call: &Call<'a>) -> Result<Self, Status> {
        let dry_run = call.request.dry_run()?;
        let unknown = Unknown::parse(call.request.param("fieldValidation"))?;
        Ok(Self { call: *call, manager: call.request.manager(), dry_run, unknown })
    }

    fn writer(&self) -> Writer<'_> {
        Writer { manager: &self.manager, subresource: &self.call.place.subresource, now: self.call.now }
    }
}

/// Takes `apiVersion` and `kind` from the path if a body of a built-in kind has none, as the server's decoder does.
/// kopf posts its events like this.
fn complete_type(kind: &Kind, object: &mut Value) {
    if kind.origin != Origin::BuiltIn || !object.is_object() {
        return;
    }
    for (field, value) in [("apiVersion", kind.api_version()), ("kind", kind.kind.clone())] {
        if text(object, &format!("/{field}")).is_empty() {
            object[field] = json!(value);
        }
    }
}

/// The object's `apiVersion` and `kind` must be those of the path.
fn check_type(kind: &Kind, object: &Value) -> Result<(), Status> {
    let (version, name) = (text(object, "/apiVersion"), text(object, "/kind"));
    let wanted = kind.api_version();
    if name.is_empty() {
        return Err(Status::bad_request("Object 'Kind' is missing in the body of the request"));
    }
    if version != wanted {
        return Err(Status::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({wanted})"
        )));
    }
    if name != kind.kind {
        return Err(Status::bad_request(format!(
            "{name} in version \"{}\" cannot be handled as a {}: the kind in the data ({name}) does not match",
            kind.version, kind.kind
        )));
    }
    Ok(())
}

/// The body's namespace and name must be those of the path; missing ones are filled in.
fn check_place(kind: &Kind, place: &Place, object: &mut Value) -> Result<(), Status> {
    if !object.get("metadata").is_some_and(Value::is_object) {
        object["metadata"] = json!({});
    }
    if kind.namespaced {
        let found = text(object, "/metadata/namespace").to_owned();
        if !found.is_empty() && found != place.namespace {
            let what =
                "the namespace of the provided object does not match the namespace sent on the request";
            return Err(Status::bad_request(what));
        }
        object["metadata"]["namespace"] = json!(place.namespace);
    } else if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("namespace");
    }
    if !place.name.is_empty() {
        let found = text(object, "/metadata/name").to_owned();
        if !found.is_empty() && found != place.name {
            return Err(Status::bad_request(format!(
                "the name of the object ({found}) does not match the name on the URL ({})",
                place.name
            )));
        }
        object["metadata"]["name"] = json!(place.name);
    }
    Ok(())
}

/// POST to a collection.
pub fn create(cluster: &mut Cluster, call: &Call<'_>) -> Result<Response, Status> {
    let Call { kind, place, request, now } = *call;
    let job = Job::new(call)?;
    let mut object = body::read(request)?;
    complete_type(kind, &mut object);
    check_type(kind, &object)?;
    check_place(kind, place, &mut object)?;
    if !text(&object, "/metadata/resourceVersion").is_empty() {
        let why = "resourceVersion should not be set on objects to be created";
        return Err(Status::unknown(why.to_owned()));
    }
    let warnings = validate::read(kind, &mut object, job.unknown)?;
    if kind.has("status")
        && let Some(fields) = object.as_object_mut()
    {
        fields.remove("status");
    }
    // Owners are worked out before admission and the kind's own rules add anything: that is nobody's.
    form::fill(kind, &mut object);
    normalize(kind, &mut object);
    apply::update(kind, None, &mut object, job.writer());
    if cluster.get(&kind.key(&object)).is_some() {
        // The server judges the object before its store finds the name taken. Source: `Store.create` of `registry/generic`.
        validate::object(kind, &object)?;
    }
    cluster.prepare(now, kind, &mut object)?;
    normalize(kind, &mut object);
    validate::object(kind, &object)?;
    let object = if job.dry_run { object } else { cluster.insert(kind, object)? };
    Ok(Response { warnings, ..Response::json(201, &object) })
}

/// PUT of an object or one of its subresources.
pub fn update(cluster: &mut Cluster, call: &Call<'_>) -> Result<Response, Status> {
    let Call { kind, place, request, .. } = *call;
    let job = Job::new(call)?;
    let mut object = body::read(request)?;
    if place.subresource == "scale" {
        return scale_to(cluster, &job, &object);
    }
    complete_type(kind, &mut object);
    check_type(kind, &object)?;
    check_place(kind, place, &mut object)?;
    let (_, live) = cluster.live(&job.call.key())?;
    let version = text(&object, "/metadata/resourceVersion");
    if version.is_empty() && kind.origin == Origin::Custom {
        let cause = Cause::invalid("metadata.resourceVersion", 0, "must be specified for an update");
        return Err(Status::invalid(&kind.group, &kind.plural, &place.name, vec![cause]));
    }
    let warnings = validate::read(kind, &mut object, job.unknown)?;
    let object = store(cluster, &job, &live, object, Ownership::Track)?;
    Ok(Response { warnings, ..Response::json(200, &object) })
}

/// The progress of field ownership in a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ownership {
    /// A plain write.
    Track,
    /// Server-side apply has done it.
    Done,
}

/// The common end of PUT and PATCH: takes from `object` what the door lets through, fills defaults,
/// judges it, records owners and stores it.
fn store(
    cluster: &mut Cluster,
    job: &Job<'_>,
    live: &Value,
    mut object: Value,
    ownership: Ownership,
) -> Result<Value, Status> {
    let kind = job.call.kind;
    let key = kind.key(live);
    check_preconditions(&key, live, &object)?;
    keep_other_parts(job, live, &mut object);
    form::fill(kind, &mut object);
    normalize(kind, &mut object);
    form::null_times(kind, &mut object);
    (kind.strategy.prepare_for_update)(live, &mut object);
    keep_identity(live, &mut object);
    drop_empty_lists(&mut object);
    validate::object(kind, &object)?;
    validate::finalizers(kind, live, &object)?;
    if job.call.place.subresource.is_empty() {
        validate::change(kind, live, &object)?;
    }
    if same_but_entries(live, &object) && ownership == Ownership::Track && !touches_entries(live, &object) {
        return Ok(live.clone());
    }
    if ownership == Ownership::Track {
        apply::update(kind, Some(live), &mut object, job.writer());
    }
    if same_but_times(live, &object) {
        return Ok(live.clone());
    }
    if job.dry_run {
        if kind.generation_moves(live, &object) {
            next_generation(&mut object);
        }
        return Ok(object);
    }
    cluster.replace(kind, &key, object)
}

/// Returns true if a write changes the ownership entries themselves.
fn touches_entries(live: &Value, object: &Value) -> bool {
    let entries = |object: &Value| object.pointer("/metadata/managedFields").cloned();
    entries(object).is_some() && entries(object) != entries(live)
}

fn same_but_entries(a: &Value, b: &Value) -> bool {
    let bare = |object: &Value| {
        let mut object = object.clone();
        drop(object["metadata"].as_object_mut().and_then(|metadata| metadata.remove("managedFields")));
        object
    };
    bare(a) == bare(b)
}

/// Returns true if only the times of ownership entries would change: the real server writes nothing then
/// (`IgnoreManagedFieldsTimestampsTransformer`).
fn same_but_times(live: &Value, object: &Value) -> bool {
    let timeless = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("resourceVersion");
            let entries = metadata.get_mut("managedFields").and_then(Value::as_array_mut);
            for entry in entries.into_iter().flatten().filter_map(Value::as_object_mut) {
                entry.remove("time");
            }
        }
        object
    };
    timeless(live) == timeless(object)
}

/// Lists of the metadata that the server does not print when they are empty.
fn drop_empty_lists(object: &mut Value) {
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    for name in ["finalizers", "ownerReferences"] {
        if metadata.get(name).is_some_and(|list| list.as_array().is_some_and(Vec::is_empty)) {
            metadata.remove(name);
        }
    }
}

fn check_preconditions(key: &Key, live: &Value, object: &Value) -> Result<(), Status> {
    let conflict = |why: &str| Err(Status::conflict(&key.group, &key.resource, &key.name, why));
    let (wanted, found) = (text(object, "/metadata/uid"), text(live, "/metadata/uid"));
    if !wanted.is_empty() && wanted != found {
        return conflict(&format!(
            "StorageError: invalid object, Code: 4, Key: /registry/{}/{}/{}, ResourceVersion: 0, AdditionalErrorMsg: \
             Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}",
            key.resource, key.namespace, key.name
        ));
    }
    let (wanted, found) =
        (text(object, "/metadata/resourceVersion"), text(live, "/metadata/resourceVersion"));
    if !wanted.is_empty() && wanted != found {
        return conflict(
            "the object has been modified; please apply your changes to the latest version and try again",
        );
    }
    Ok(())
}

/// Restores the parts of an object that a request may not write: all but the status through `status`, and the status through
/// the object itself when the kind has that subresource.
fn keep_other_parts(job: &Job<'_>, live: &Value, object: &mut Value) {
    let take = |from: &Value, to: &mut Value, name: &str| match (from.get(name), to.as_object_mut()) {
        (Some(value), Some(fields)) => drop(fields.insert(name.to_owned(), value.clone())),
        (None, Some(fields)) => drop(fields.remove(name)),
        _ => {}
    };
    match job.call.place.subresource.as_str() {
        "status" => {
            let mut door = live.clone();
            take(object, &mut door, "status");
            if let Some(entries) = object.pointer("/metadata/managedFields") {
                door["metadata"]["managedFields"] = entries.clone();
            }
            *object = door;
        }
        "finalize" => {
            let finalizers = object.pointer("/spec/finalizers").cloned();
            *object = live.clone();
            match finalizers {
                Some(list) => object["spec"]["finalizers"] = list,
                None => drop(object["spec"].as_object_mut().and_then(|spec| spec.remove("finalizers"))),
            }
        }
        _ if job.call.kind.has("status") => take(live, object, "status"),
        _ => {}
    }
}

/// PATCH of an object or one of its subresources, by content type.
pub fn patch(cluster: &mut Cluster, call: &Call<'_>) -> Result<Response, Status> {
    let Call { kind, place, request, .. } = *call;
    let job = Job::new(call)?;
    let media = request.content_type.split(';').next().unwrap_or_default().trim().to_owned();
    if media == "application/apply-patch+yaml" {
        return server_side_apply(cluster, &job);
    }
    let change = body::read(request)?;
    if place.subresource == "scale" {
        return patch_scale(cluster, &job, &change);
    }
    let (_, live) = cluster.live(&job.call.key())?;
    let mut object = versioned(kind, &live);
    change_by(&media, kind, &mut object, &change)?;
    check_type(kind, &object)?;
    check_place(kind, place, &mut object)?;
    let warnings = validate::read(kind, &mut object, job.unknown)?;
    let object = store(cluster, &job, &live, object, Ownership::Track)?;
    Ok(Response { warnings, ..Response::json(200, &object) })
}

fn change_by(media: &str, kind: &Kind, object: &mut Value, change: &Value) -> Result<(), Status> {
    match (media, kind.origin) {
        ("application/json-patch+json", _) => patch::json(object, change),
        ("application/merge-patch+json", _) => {
            merge(object, change);
            Ok(())
        }
        ("application/strategic-merge-patch+json", Origin::BuiltIn) => {
            patch::strategic(object, change, kind.schema.as_ref());
            Ok(())
        }
        (_, Origin::Custom) => Err(Status::unsupported(
            "the body of the request was in an unknown format - accepted media types include: \
             application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
        )),
        _ => Err(Status::unsupported(
            "the body of the request was in an unknown format - accepted media types include: \
             application/json-patch+json, application/merge-patch+json, \
             application/strategic-merge-patch+json, application/apply-patch+yaml",
        )),
    }
}

fn server_side_apply(cluster: &mut Cluster, job: &Job<'_>) -> Result<Response, Status> {
    let Call { kind, place, request, .. } = job.call;
    if request.param("fieldManager").is_none_or(str::is_empty) {
        let message = "Required value: is required for apply patch";
        let cause = Cause::new("FieldValueRequired", "fieldManager", message);
        let mut status = Status::invalid("meta.k8s.io", "PatchOptions", "", vec![cause]);
        status.name = String::new();
        return Err(status);
    }
    let mut config = body::read(request)?;
    if place.subresource == "scale" {
        return patch_scale(cluster, job, &config);
    }
    check_type(kind, &config)?;
    // Before the path fills in the namespace: the server's message has what the body says.
    apply::check(kind, &config)?;
    check_place(kind, place, &mut config)?;
    let force = if request.flag("force") { Force::Yes } else { Force::No };
    let live = cluster.live(&job.call.key()).ok().map(|(_, live)| live);
    let Some(live) = live else {
        if !place.subresource.is_empty() {
            return Err(Status::not_found(&kind.group, &kind.plural, &place.name));
        }
        return apply_new(cluster, job, &config, force);
    };
    let mut object = apply::apply(kind, Some(&live), &config, job.writer(), force)?;
    // A version or uid in the configuration is a precondition; merging has put it in.
    for name in ["resourceVersion", "uid"] {
        if let Some(value) = config["metadata"].get(name) {
            object["metadata"][name] = value.clone();
        }
    }
    let object = store(cluster, job, &live, object, Ownership::Done)?;
    Ok(Response::json(200, &object))
}

/// Apply of an object that is not there creates it, whatever version the configuration names.
fn apply_new(cluster: &mut Cluster, job: &Job<'_>, config: &Value, force: Force) -> Result<Response, Status> {
    let Call { kind, now, .. } = job.call;
    if !text(config, "/metadata/uid").is_empty() {
        let why = "uid mismatch: the provided object specified uid ".to_owned()
            + text(config, "/metadata/uid")
            + ", and no existing object was found";
        return Err(Status::conflict(&kind.group, &kind.plural, &job.call.place.name, &why));
    }
    let mut object = apply::apply(kind, None, config, job.writer(), force)?;
    if kind.has("status")
        && let Some(fields) = object.as_object_mut()
    {
        fields.remove("status");
    }
    if let Some(fields) = object.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    cluster.prepare(now, kind, &mut object)?;
    normalize(kind, &mut object);
    validate::object(kind, &object)?;
    let object = if job.dry_run { object } else { cluster.insert(kind, object)? };
    Ok(Response::json(201, &object))
}

fn patch_scale(cluster: &mut Cluster, job: &Job<'_>, change: &Value) -> Result<Response, Status> {
    let (_, live) = cluster.live(&job.call.key())?;
    let mut scale = scale_of(job.call.kind, &live);
    let media = job.call.request.content_type.split(';').next().unwrap_or_default().trim();
    match media {
        "application/json-patch+json" => patch::json(&mut scale, change)?,
        _ => merge(&mut scale, change),
    }
    scale_to(cluster, job, &scale)
}

/// Writes the replicas of a `Scale` object through to the scaled one.
fn scale_to(cluster: &mut Cluster, job: &Job<'_>, scale: &Value) -> Result<Response, Status> {
    let (_, live) = cluster.live(&job.call.key())?;
    let Some(paths) = job.call.kind.scale.as_ref() else { return Err(Status::no_such_path()) };
    let replicas = scale.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
    if replicas < 0 {
        let cause = Cause::invalid("spec.replicas", replicas, "must be greater than or equal to 0");
        return Err(Status::invalid("autoscaling", "Scale", &job.call.place.name, vec![cause]));
    }
    let mut object = live.as_ref().clone();
    let version = text(scale, "/metadata/resourceVersion");
    if version.is_empty() {
        drop(object["metadata"].as_object_mut().and_then(|metadata| metadata.remove("resourceVersion")));
    } else {
        object["metadata"]["resourceVersion"] = json!(version);
    }
    let mut place = &mut object;
    for name in paths.spec.split('.').filter(|name| !name.is_empty()) {
        place = &mut place[name];
    }
    *place = json!(replicas);
    let object = store(cluster, job, &live, object, Ownership::Track)?;
    Ok(Response::json(200, &scale_of(job.call.kind, &object)))
}

/// Options of a DELETE from its body and query.
fn delete_options(request: &Request) -> Result<DeleteOptions, Status> {
    let body = body::read(request)?;
    let own = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let policy = own("/propagationPolicy").or_else(|| request.param("propagationPolicy").map(str::to_owned));
    let orphans = body.get("orphanDependents").and_then(Value::as_bool);
    let propagation = match (policy.as_deref(), orphans) {
        (Some("Background"), _) | (None, Some(false)) => Some(Propagation::Background),
        (Some("Foreground"), _) => Some(Propagation::Foreground),
        (Some("Orphan"), _) | (None, Some(true)) => Some(Propagation::Orphan),
        (None | Some(""), None) => None,
        (Some(other), _) => {
            let supported = ["Foreground", "Background", "Orphan", "nil"];
            return Err(Status::bad_option(
                "DeleteOptions",
                "propagationPolicy",
                &format!("{other:?}"),
                &supported,
            ));
        }
    };
    let asked = request.param("gracePeriodSeconds").and_then(|value| value.parse().ok());
    Ok(DeleteOptions {
        grace_period_seconds: body.get("gracePeriodSeconds").and_then(Value::as_i64).or(asked),
        propagation,
        uid: own("/preconditions/uid"),
        resource_version: own("/preconditions/resourceVersion"),
        dry_run: request.dry_run()? || body.get("dryRun").is_some_and(|list| list == &json!(["All"])),
    })
}

/// DELETE of one object.
pub fn delete(cluster: &mut Cluster, call: &Call<'_>) -> Result<Response, Status> {
    let Call { kind, place, request, now } = *call;
    let options = delete_options(request)?;
    let key = call.key();
    if kind.strategy.lasting.contains(&place.name.as_str()) {
        return Err(Status::forbidden(
            &kind.group,
            &kind.plural,
            &place.name,
            "this namespace may not be deleted",
        ));
    }
    let object = cluster.delete(now, &key, &options)?;
    let gone = options.dry_run || cluster.get(&key).is_none();
    // Pods and whatever is left waiting come back as they are, the rest as a status.
    let echo = !gone || kind.strategy.deletion == Deletion::Graceful;
    let mut response = if echo {
        Response::json(200, &object)
    } else {
        let uid = text(&object, "/metadata/uid");
        Response::json(200, &Status::success(&kind.group, &kind.plural, &place.name, uid).body())
    };
    if kind.strategy.deletion == Deletion::KeepsDependents && options.propagation.is_none() {
        response.warnings.push(
            "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to \
             remove them or set propagationPolicy=Orphan to suppress this warning"
                .to_owned(),
        );
    }
    Ok(response)
}

/// DELETE of a collection; the answer lists what was deleted.
pub fn delete_collection(cluster: &mut Cluster, call: &Call<'_>) -> Result<Response, Status> {
    let Call { kind, place, request, now } = *call;
    let options = delete_options(request)?;
    let selector = call.selector()?;
    let keys: Vec<Key> = cluster
        .list(&kind.group, &kind.plural)
        .filter(|(key, object)| {
            (place.namespace.is_empty() || key.namespace == place.namespace) && selector.matches(object)
        })
        .map(|(key, _)| key.clone())
        .collect();
    let mut items = Vec::new();
    for key in keys {
        let (_, live) = cluster.live(&key)?;
        let mut item = cluster.delete(now, &key, &options)?;
        if options.dry_run || cluster.get(&key).is_none() {
            item = live.as_ref().clone();
        }
        if kind.origin == Origin::BuiltIn
            && let Some(fields) = item.as_object_mut()
        {
            fields.retain(|name, _| name != "apiVersion" && name != "kind");
        }
        items.push(item);
    }
    let list = json!({"kind": format!("{}List", kind.kind), "apiVersion": kind.api_version(),
        "metadata": {"resourceVersion": cluster.revision().to_string()}, "items": items});
    Ok(Response::json(200, &list))
}
