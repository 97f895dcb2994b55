//! Calls that create, change and delete Kubernetes objects.

use serde_json::{Value, json};

use crate::kind::ChangeContext;
use crate::kubernetes::{once_digest, ownership};
use model::address::{FieldPath, Segment};
use model::resource::{
    Action, Api, Await, Call, Facts, KindId, Method, ObjectId, Owner, Recreation, Step, Until, encoded,
};

/// Returns a server-side apply of an object.
fn apply_call(object: &ObjectId, owner: &Owner, body: Value, force: bool) -> Call {
    applied(object.path(), &owner.field_manager(), body, if force { "&force=true" } else { "" })
}

fn applied(path: String, manager: &str, body: Value, force: &str) -> Call {
    let manager = encoded(manager);
    Call {
        api: Api::Kubernetes,
        method: Method::Patch,
        path: format!("{path}?fieldManager={manager}&fieldValidation=Strict{force}"),
        body: Some(body.into()),
        deferred: Vec::new(),
    }
}

/// A resourceVersion that no live object has. An apply with it fails if the object exists.
pub const ABSENT: &str = "1";

/// Returns the apply that creates an object: its resourceVersion fails if the object exists. Source: seen on kube-apiserver 1.36;
/// without it, an apply to a foreign object would be merged silently.
pub(crate) fn create_call(object: &ObjectId, owner: &Owner, body: &Value) -> Call {
    let mut body = body.clone();
    body["metadata"]["resourceVersion"] = json!(ABSENT);
    apply_call(object, owner, body, false)
}

/// Returns a dry run of the apply that will replace an object, to be sent while the old object still exists. It writes nothing.
pub(crate) fn dry_run_call(object: &ObjectId, owner: &Owner, body: &Value) -> Call {
    applied(object.path(), &owner.field_manager(), body.clone(), "&force=true&dryRun=All")
}

/// Returns the apply that updates exactly the object (the uid) that the plan read. A change that reverts manual edits or adopts
/// fields is forced; then it also requires that the object is unchanged since the plan.
fn update_call(context: &ChangeContext, object: &ObjectId) -> Call {
    let mut body = context.body().clone();
    let live = context.live.unwrap_or(&Value::Null);
    body["metadata"]["uid"] = live["metadata"]["uid"].clone();
    let drifted = context.adopting || context.fields.iter().any(|field| field.drift.is_some());
    if drifted {
        body["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"].clone();
    }
    // Fields that the stack released have no other owner when it takes them back, so this is forced, too.
    apply_call(object, context.owner, body, drifted || takes_back(context))
}

/// Returns true if the file sets fields that were create-only before.
fn takes_back(context: &ChangeContext) -> bool {
    let manager = context.owner.initial_manager();
    let entries = context.live.and_then(|live| live["metadata"]["managedFields"].as_array());
    let ours = |entry: &Value| entry["manager"] == *manager && entry["operation"] == "Apply";
    context.resource.is_some_and(|resource| resource.create_only.is_null())
        && entries.into_iter().flatten().any(ours)
}

/// Returns the apply of create-only fields by the `:initial` field manager, which keeps their values. Without fields it releases
/// all of them.
fn initial_call(object: &ObjectId, context: &ChangeContext, fields: &Value) -> Call {
    let mut body = fields.as_object().cloned().unwrap_or_default();
    for key in ["apiVersion", "kind"] {
        body.insert(key.to_owned(), context.body()[key].clone());
    }
    let mut metadata = json!({ "name": object.name });
    if let Some(namespace) = &object.namespace {
        metadata["namespace"] = json!(namespace);
    }
    body.insert("metadata".to_owned(), metadata);
    let owner = context.owner.initial_manager();
    applied(object.path(), &owner, Value::Object(body), "")
}

/// Returns the steps that create an object with create-only fields. First, one apply sets all fields, so that the CRD's defaults
/// are not used. Then a second field manager applies the create-only fields. Last, the first manager releases them; they keep
/// their values. Source: seen on kube-apiserver 1.36: a field that its last owner releases returns to its default, and the
/// operator would react to that.
fn create_steps(object: &ObjectId, context: &ChangeContext) -> Vec<Step> {
    let create_only = context.resource.map_or(&Value::Null, |resource| &resource.create_only);
    if create_only.is_null() {
        return vec![Step::Call(create_call(object, context.owner, context.body()))];
    }
    let mut whole = context.body().clone();
    merge(&mut whole, create_only);
    vec![
        Step::Call(create_call(object, context.owner, &whole)),
        Step::Call(initial_call(object, context, create_only)),
        Step::Call(apply_call(object, context.owner, context.body().clone(), false)),
    ]
}

/// Returns the steps that change an object. Fields that become create-only first get a second owner with their live value. Fields
/// that the file sets again lose that owner afterwards.
fn update_steps(object: &ObjectId, context: &ChangeContext) -> Vec<Step> {
    let create_only = context.resource.map_or(&Value::Null, |resource| &resource.create_only);
    let mut left = Value::Null;
    for field in context.fields.iter().filter(|field| field.after.is_none()) {
        if let (Some(_), Some(before)) = (field.path.find(create_only), &field.before) {
            merge(&mut left, &nested(&field.path, before));
        }
    }
    let update = Step::Call(update_call(context, object));
    if !left.is_null() {
        return vec![Step::Call(initial_call(object, context, &left)), update];
    }
    if takes_back(context) {
        return vec![update, Step::Call(initial_call(object, context, &json!({})))];
    }
    vec![update]
}

/// Returns a tree with one value at a path of keys.
fn nested(path: &FieldPath, value: &Value) -> Value {
    path.segments().iter().rev().fold(value.clone(), |inner, segment| match segment {
        Segment::Key(key) => json!({ key: inner }),
        Segment::Index(_) => json!([inner]),
    })
}

/// Merges `patch` into `target`; values of `patch` win.
fn merge(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                merge(target.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (target, patch) => *target = patch.clone(),
    }
}

/// Returns the call that writes a resource's replica count, whoever owns it, and takes ownership of nothing else. It is not a
/// server-side apply: kube-apiserver 1.36 answers 500 to an apply of the Scale of a custom resource (seen).
pub(crate) fn scale_call(object: &ObjectId, owner: &Owner, replicas: Value) -> Call {
    scale_call_as(object, &owner.field_manager(), replicas)
}

/// Returns the call of [`scale_call`] with another field manager.
pub fn scale_call_as(object: &ObjectId, manager: &str, replicas: Value) -> Call {
    let body = json!({
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": { "name": object.name, "namespace": object.namespace },
        "spec": { "replicas": replicas },
    });
    let call = applied(format!("{}/scale", object.path()), manager, body, "");
    Call { method: Method::Put, ..call }
}

/// Returns the call that makes an operator handle an object as if it were new. `body` has the status that triggers this, for a
/// kind without a status subresource.
pub(crate) fn repair_call(object: &ObjectId, owner: &Owner, body: Value) -> Call {
    applied(object.path(), &format!("{}:mend", owner.field_manager()), body, "&force=true")
}

/// Returns an apply that contains only the object's name. The field manager loses every field; fields that another manager
/// applies, too, stay. Source: apimachinery, `managedfields/internal/stripmeta.go`: a manager without fields loses its entry.
fn release_call(context: &ChangeContext, object: &ObjectId) -> Call {
    let live = context.live.unwrap_or(&Value::Null);
    let mut metadata = json!({ "name": object.name, "uid": live["metadata"]["uid"] });
    if let Some(namespace) = &object.namespace {
        metadata["namespace"] = json!(namespace);
    }
    // Two stacks that leave at once would each leave it to the other: whoever comes second plans again, and deletes it.
    if let Some(version) = live["metadata"]["resourceVersion"].as_str() {
        metadata["resourceVersion"] = json!(version);
    }
    let body =
        json!({ "apiVersion": object.gvk.api_version(), "kind": object.gvk.kind, "metadata": metadata });
    apply_call(object, context.owner, body, false)
}

/// Returns the delete of exactly the object (the uid) that the plan read.
pub(crate) fn delete_call(object: &ObjectId, live: &Value) -> Call {
    let mut body = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background" });
    if let Some(uid) = live["metadata"]["uid"].as_str() {
        body["preconditions"] = json!({ "uid": uid });
    }
    Call {
        api: Api::Kubernetes,
        method: Method::Delete,
        path: object.path(),
        body: Some(body.into()),
        deferred: Vec::new(),
    }
}

/// Returns the steps of a change for nearly all Kubernetes kinds; `facts` are passed to the readiness function.
pub(crate) fn object_change_steps(
    context: &ChangeContext,
    kind: KindId,
    facts: Facts,
    deadline: u32,
) -> Vec<Step> {
    let Some(object) = context.object() else { return Vec::new() };
    let wait = |until| {
        let (identity, facts) = (context.identity.clone(), facts.clone());
        Step::Await(Await { kind, identity, until, facts, deadline })
    };
    let delete = || Step::Call(delete_call(object, context.live.unwrap_or(&Value::Null)));
    // An object that is created only once is recorded, so that its later absence is not mistaken for an accidental deletion.
    let once = context.resource.filter(|resource| matches!(resource.recreation, Recreation::Once { .. }));
    let note = || once.map(|resource| Step::RecordCompletion { digest: once_digest::digest(resource) });
    let steps = |before: Vec<Step>, middle: Vec<Step>, until| {
        // Recorded right after creation, so that an interruption of the wait does not create it again.
        before.into_iter().chain(middle).chain(note()).chain([wait(until)]).collect()
    };
    match context.action {
        Action::Keep => vec![wait(Until::StillReady)],
        Action::Create if context.terminating => {
            steps(vec![wait(Until::Gone)], create_steps(object, context), Until::Ready)
        }
        Action::Create => steps(Vec::new(), create_steps(object, context), Until::Ready),
        // Two stacks never have it at once: the other one's hold ends before ours begins.
        Action::Update if !context.removed_managers.is_empty() => {
            let release = Step::Call(ownership::release(context, object));
            steps(vec![release], update_steps(object, context), Until::Ready)
        }
        Action::Update => steps(Vec::new(), update_steps(object, context), Until::Ready),
        // It has gone already, and is made once more.
        Action::Replace if context.live.is_none() => {
            steps(Vec::new(), create_steps(object, context), Until::Ready)
        }
        Action::Replace => {
            steps(vec![delete(), wait(Until::Gone)], create_steps(object, context), Until::Ready)
        }
        Action::Delete => vec![delete(), wait(Until::Gone)],
        Action::Forget if !context.removed_managers.is_empty() => {
            vec![Step::Call(ownership::release(context, object))]
        }
        Action::Forget => vec![Step::Call(release_call(context, object))],
        Action::Run => Vec::new(),
    }
}
