//! One call: late holes filled, sent until it is done or will not be, and the GKE operation that it answers
//! followed to its end.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::Outcome;
use super::failure::{brief, failed, of_operation, of_request};
use super::program::{Pause, Run};
use crate::address::{FieldPath, Segment};
use crate::diag::Code;
use crate::live::retry::{Patience, Tries, Trouble, Verdict};
use crate::live::{ApiError, Class, Request};
use crate::resource::{Api, Call, LABEL_ID, Late, Method};

/// How long a GKE operation may take. Source: Terraform's limit for pools, raised to it after a replacement
/// took 75 minutes.
const OPERATION: Duration = Duration::from_secs(2 * 60 * 60);
/// How long a running operation is still watched after Ctrl-C.
const LAST_LOOK: Duration = Duration::from_secs(5);

impl Run<'_> {
    /// Performs a call.
    pub(super) async fn call(&mut self, call: &Call) -> Result<(), Outcome> {
        let start = Instant::now();
        let mut tries = Tries::new(Patience::Writing);
        let mut lost = false;
        let mut moved_by_us = false;
        loop {
            let mut request = self.fill(call).await?;
            if moved_by_us {
                drop_version(&mut request);
            }
            let error = match self.shared.api.send(request.clone()).await {
                Ok(reply) => {
                    self.wrote |= request.writes();
                    self.remember_deleted(&request, &reply);
                    return self.follow(&request, reply).await;
                }
                Err(error) => error,
            };
            self.wrote |= error.class == Class::Lost;
            if request.method == Method::Delete && is_gone(&error, lost) {
                return Ok(());
            }
            if creates(&request) && is_there(&error) {
                return self.take_ours(&request, error).await;
            }
            if lost && !moved_by_us && is_versioned(&request) && is_there(&error) {
                // What moved the object is this very request, whose reply was lost; its uid still guards it.
                moved_by_us = true;
                continue;
            }
            lost |= error.class == Class::Lost;
            let remade = !call.late.is_empty();
            match tries.after(&request, &error, remade, start.elapsed()) {
                Verdict::GiveUp => return Err(of_request(&error)),
                Verdict::Again { trouble, after, lasted, at_most } => {
                    self.say_trouble(&request, &error, trouble, after, lasted, at_most).await;
                    if self.pause(after).await == Pause::Interrupted {
                        return Err(self.interrupted_call(&request, &error));
                    }
                }
            }
        }
    }

    fn interrupted_call(&self, request: &Request, error: &ApiError) -> Outcome {
        if self.wrote {
            let message = format!("{} may have been done: {}", request.title(), error.message);
            Outcome::InDoubt { message }
        } else {
            Outcome::NotStarted
        }
    }

    async fn say_trouble(
        &mut self,
        request: &Request,
        error: &ApiError,
        trouble: Trouble,
        after: Duration,
        lasted: Duration,
        at_most: Duration,
    ) {
        if trouble != Trouble::Busy {
            let message = error.to_string();
            self.tell(crate::apply::Event::Retrying { change: self.place, message, after });
            return;
        }
        let message = match self.blocker(request).await {
            Some(operation) => format!("{operation} to end"),
            None => format!("a place among running operations: {}", error.message),
        };
        self.waits(&message, lasted, at_most);
    }

    /// The operation that keeps others from starting: `operation-1 (CREATE_NODE_POOL)`.
    async fn blocker(&self, request: &Request) -> Option<String> {
        let operation = self.running_operation(request, None).await?;
        let (name, kind) = (operation["name"].as_str()?, operation["operationType"].as_str()?);
        Some(format!("{name} ({kind})"))
    }

    /// A running operation on the request's cluster, or on exactly the thing at `target`.
    async fn running_operation(&self, request: &Request, target: Option<&str>) -> Option<Value> {
        let places = Places::of(&request.path)?;
        let list = Request::get(Api::Gke, format!("/v1/{}/operations", places.parent));
        let reply = self.shared.api.send(list).await.ok()?;
        let operations = reply.get("operations")?.as_array()?;
        let found = operations.iter().find(|operation| {
            let link = operation["targetLink"].as_str().unwrap_or_default();
            let hits = match (target, &places.cluster) {
                (Some(target), _) => link.ends_with(target),
                (None, Some(cluster)) => link.split('/').any(|part| part == *cluster),
                (None, None) => false,
            };
            hits && operation["status"] != "DONE"
        });
        found.cloned()
    }

    /// Fills the holes of a call with what is live now.
    async fn fill(&self, call: &Call) -> Result<Request, Outcome> {
        let Call { api, method, path, body, late } = call;
        let mut request = Request { api: *api, method: *method, path: path.clone(), body: body.clone() };
        for (place, late) in late {
            let value = match late {
                Late::LabelFingerprint => {
                    let cluster = cluster_of(path);
                    let cluster =
                        self.look(Request::get(Api::Gke, cluster)).await.map_err(|e| of_request(&e))?;
                    cluster.get("labelFingerprint").cloned()
                }
            };
            let Some(value) = value else {
                let Late::LabelFingerprint = late;
                return Err(failed(
                    Code::Missing,
                    "the label fingerprint of the cluster is not there",
                    Some("plan again, then apply"),
                ));
            };
            put(request.body.get_or_insert_with(|| json!({})), place, value);
        }
        Ok(request)
    }

    fn remember_deleted(&mut self, request: &Request, reply: &Value) {
        if request.method != Method::Delete || request.api != Api::Kubernetes {
            return;
        }
        let asked = request.body.as_ref().and_then(|body| body.pointer("/preconditions/uid"));
        let told = || reply.pointer("/metadata/uid").or_else(|| reply.pointer("/details/uid"));
        if let Some(uid) = asked.or_else(told).and_then(Value::as_str) {
            self.deleted.insert(request.path.clone(), uid.to_owned());
        }
    }

    /// Something is there where we wanted to make ours. After a lost reply it may be ours.
    async fn take_ours(&mut self, request: &Request, error: ApiError) -> Result<(), Outcome> {
        let Some(path) = made_path(request) else { return Err(of_request(&error)) };
        let read = Request::get(request.api, path.clone());
        let live = self.look(read).await.map_err(|error| of_request(&error))?;
        if !is_ours(&live, self.shared.owner) {
            let message =
                format!("{} is there already and is not of this stack", path.trim_start_matches("/v1/"));
            let help = "give it another name in the stack, or delete it, then apply again";
            return Err(failed(Code::MadeByOthers, message, Some(help)));
        }
        self.wrote = true;
        if request.api == Api::Kubernetes {
            return Ok(());
        }
        let target = path.rsplit("/clusters/").next().map(|rest| format!("/clusters/{rest}"));
        match self.running_operation(request, target.as_deref()).await {
            Some(operation) => self.follow(request, operation).await,
            None => Ok(()),
        }
    }

    /// Follows a reply that is a GKE operation to its end.
    async fn follow(&mut self, request: &Request, reply: Value) -> Result<(), Outcome> {
        let Some((name, path)) = operation(request, &reply) else { return Ok(()) };
        let start = Instant::now();
        let mut interrupted: Option<Instant> = None;
        let mut delay = Duration::from_millis(250);
        let mut operation = reply;
        loop {
            let kind = operation["operationType"].as_str().unwrap_or("operation").to_owned();
            let status = operation["status"].as_str().unwrap_or("unknown").to_owned();
            if status == "DONE" {
                return match operation_error(&operation) {
                    Some(why) => Err(of_operation(&name, &kind, &self.with_conditions(request, why).await)),
                    None => Ok(()),
                };
            }
            self.waits(&format!("{name} ({kind}), now {status}"), start.elapsed(), OPERATION);
            if start.elapsed() > OPERATION {
                let message = format!("{name} ({kind}) still runs after {}", brief(OPERATION));
                return Err(Outcome::TimedOut { message });
            }
            match interrupted {
                None if self.pause(delay).await == Pause::Interrupted => interrupted = Some(Instant::now()),
                None => {}
                Some(since) if since.elapsed() >= LAST_LOOK => {
                    let message = format!("{name} ({kind}) goes on in GKE");
                    return Err(Outcome::InDoubt { message });
                }
                Some(_) => tokio::time::sleep(delay.min(Duration::from_secs(1))).await,
            }
            delay = delay.mul_f64(1.5).min(Duration::from_secs(5));
            operation = match self.look(Request::get(Api::Gke, path.clone())).await {
                Ok(Value::Null) => {
                    let message = format!("{name} ({kind}) is not known to GKE any more");
                    return Err(Outcome::InDoubt { message });
                }
                Ok(operation) => operation,
                Err(error) => {
                    let message = format!("{name} ({kind}) was started and cannot be followed: {error}");
                    return Err(Outcome::InDoubt { message });
                }
            };
        }
    }

    /// An operation's error and what the pool says about it: the operation alone often says less.
    async fn with_conditions(&self, request: &Request, why: String) -> String {
        let path = match (request.method, made_path(request)) {
            (Method::Post, Some(path)) => path,
            _ => request.path.split([':', '?']).next().unwrap_or_default().to_owned(),
        };
        let live = self.shared.api.send(Request::get(Api::Gke, path)).await.unwrap_or(Value::Null);
        let conditions = live["conditions"].as_array().into_iter().flatten();
        let mut told: Vec<&str> = conditions.filter_map(|condition| condition["message"].as_str()).collect();
        told.extend(live["statusMessage"].as_str());
        let mut text = why;
        for message in told {
            if !message.is_empty() && !text.contains(message) {
                text = format!("{text}; {message}");
            }
        }
        text
    }
}

/// Parts of a GKE path.
struct Places<'p> {
    /// `projects/P/locations/L`.
    parent: String,
    cluster: Option<&'p str>,
}

impl<'p> Places<'p> {
    fn of(path: &'p str) -> Option<Self> {
        let rest = path.strip_prefix("/v1/")?;
        // A project of a domain has a colon in its name: `example.com:team`.
        let (path, last) = rest.rsplit_once('/')?;
        let last = last.split([':', '?']).next()?;
        let mut parts = path.split('/').chain([last]);
        let (projects, project) = (parts.next()?, parts.next()?);
        let (locations, location) = (parts.next()?, parts.next()?);
        if projects != "projects" || locations != "locations" {
            return None;
        }
        parts.next();
        let cluster = parts.next();
        Some(Self { parent: format!("projects/{project}/locations/{location}"), cluster })
    }
}

/// The path of the cluster in a path of something of it.
fn cluster_of(path: &str) -> String {
    match Places::of(path) {
        Some(Places { parent, cluster: Some(cluster) }) => format!("/v1/{parent}/clusters/{cluster}"),
        _ => path.to_owned(),
    }
}

/// The name and path of the operation that a reply is.
fn operation(request: &Request, reply: &Value) -> Option<(String, String)> {
    if request.api != Api::Gke || !reply["status"].is_string() {
        return None;
    }
    let name = reply["name"].as_str().filter(|name| name.starts_with("operation-"))?;
    let Places { parent, .. } = Places::of(&request.path)?;
    Some((name.to_owned(), format!("/v1/{parent}/operations/{name}")))
}

/// Why an ended operation failed. Both fields count: either may be set alone.
fn operation_error(operation: &Value) -> Option<String> {
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let status = text(&operation["statusMessage"]);
    match &operation["error"] {
        Value::Null => status,
        Value::Object(fields) if fields.is_empty() => status,
        error => text(&error["message"]).or(status).or_else(|| Some(error.to_string())),
    }
}

/// Whether a request makes something that must not be there before.
fn creates(request: &Request) -> bool {
    match (request.api, request.method) {
        (Api::Gke, Method::Post) => {
            request.path.ends_with("/clusters") || request.path.ends_with("/nodePools")
        }
        (Api::Kubernetes, Method::Post) => true,
        // The resourceVersion that no live object has: the apply fails when there is one.
        (Api::Kubernetes, Method::Patch) => {
            request.body.as_ref().is_some_and(|body| body["metadata"]["resourceVersion"] == "1")
        }
        _ => false,
    }
}

/// Whether an apply is bound to a resourceVersion.
fn is_versioned(request: &Request) -> bool {
    let version = request.body.as_ref().and_then(|body| body.pointer("/metadata/resourceVersion"));
    request.method == Method::Patch && version.is_some_and(Value::is_string)
}

fn drop_version(request: &mut Request) {
    let metadata = request.body.as_mut().and_then(|body| body.get_mut("metadata"));
    if let Some(Value::Object(metadata)) = metadata {
        metadata.remove("resourceVersion");
    }
}

/// Where the thing is that a request makes.
fn made_path(request: &Request) -> Option<String> {
    let body = request.body.as_ref()?;
    let path = request.path.split('?').next()?;
    let name = match (request.api, request.method) {
        (Api::Kubernetes, Method::Patch) => return Some(path.to_owned()),
        (Api::Kubernetes, _) => &body["metadata"]["name"],
        (Api::Gke | Api::Compute, _) if path.ends_with("/clusters") => &body["cluster"]["name"],
        (Api::Gke | Api::Compute, _) if path.ends_with("/nodePools") => &body["nodePool"]["name"],
        (Api::Gke | Api::Compute | Api::Projects, _) => return None,
    };
    Some(format!("{path}/{}", name.as_str()?))
}

/// Whether a create was refused because something is there.
fn is_there(error: &ApiError) -> bool {
    match error.class {
        Class::AlreadyExists => true,
        Class::Conflict => error.conflicts().is_empty(),
        _ => false,
    }
}

/// Whether a delete has nothing left to do. After a lost reply a conflict means that ours is gone and
/// another has its name.
fn is_gone(error: &ApiError, lost: bool) -> bool {
    error.class == Class::NotFound || (lost && error.class == Class::Conflict)
}

/// Whether a live thing is of this stack: GKE things by their label, objects by who applied them.
fn is_ours(live: &Value, owner: &crate::resource::Owner) -> bool {
    let manager = owner.field_manager();
    let entries = live.pointer("/metadata/managedFields").and_then(Value::as_array);
    let applied = entries
        .into_iter()
        .flatten()
        .any(|entry| entry["manager"] == *manager && entry["operation"] == "Apply");
    let labelled = ["/resourceLabels", "/config/resourceLabels"]
        .iter()
        .any(|labels| live.pointer(labels).is_some_and(|labels| labels[LABEL_ID] == *owner.id));
    applied || labelled
}

/// Puts a value at a place, making the objects on the way.
fn put(tree: &mut Value, place: &FieldPath, value: Value) {
    let mut at = tree;
    for segment in place.segments() {
        at = match segment {
            Segment::Key(key) => {
                if !at.is_object() {
                    *at = json!({});
                }
                &mut at[key.as_str()]
            }
            Segment::Index(index) => match at.get_mut(*index) {
                Some(item) => item,
                None => return,
            },
        };
    }
    *at = value;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::Owner;

    #[test]
    fn an_operation_fails_by_either_field() {
        let rows = [
            (json!({"status": "DONE"}), None),
            (json!({"status": "DONE", "error": {}}), None),
            (json!({"status": "DONE", "error": {"code": 8, "message": "stock"}}), Some("stock")),
            (json!({"status": "DONE", "statusMessage": "old"}), Some("old")),
            (json!({"status": "DONE", "error": {"code": 13}}), Some("{\"code\":13}")),
        ];
        for (operation, why) in rows {
            assert_eq!(operation_error(&operation).as_deref(), why, "{operation}");
        }
    }

    #[test]
    fn what_is_ours_is_known_by_label_or_apply_entry() {
        let owner = Owner { stack: "s".into(), id: "i".into() };
        let applied = |manager: &str, operation: &str| json!({"metadata": {"managedFields": [{"manager": manager, "operation": operation}]}});
        let rows = [
            (json!({"resourceLabels": {LABEL_ID: "i"}}), true),
            (json!({"config": {"resourceLabels": {LABEL_ID: "i"}}}), true),
            (json!({"resourceLabels": {LABEL_ID: "other"}}), false),
            (applied("dask-infra/s", "Apply"), true),
            (applied("dask-infra/s", "Update"), false),
            (applied("dask-infra/t", "Apply"), false),
            (Value::Null, false),
        ];
        for (live, ours) in rows {
            assert_eq!(is_ours(&live, &owner), ours, "{live}");
        }
    }

    #[test]
    fn paths_give_their_parts() {
        let pool = "/v1/projects/p/locations/l/clusters/c/nodePools/n:setSize";
        assert_eq!(cluster_of(pool), "/v1/projects/p/locations/l/clusters/c");
        let labels = "/v1/projects/p/locations/l/clusters/c:setResourceLabels";
        assert_eq!(cluster_of(labels), "/v1/projects/p/locations/l/clusters/c");
        let make = Request {
            api: Api::Gke,
            method: Method::Post,
            path: "/v1/projects/p/locations/l/clusters".into(),
            body: Some(json!({"cluster": {"name": "c"}})),
        };
        assert!(creates(&make));
        assert_eq!(made_path(&make).as_deref(), Some("/v1/projects/p/locations/l/clusters/c"));
        let (name, path) = operation(&make, &json!({"name": "operation-1", "status": "RUNNING"})).unwrap();
        assert_eq!(
            (name.as_str(), path.as_str()),
            ("operation-1", "/v1/projects/p/locations/l/operations/operation-1")
        );
    }

    #[test]
    fn holes_are_filled_where_they_are() {
        let mut body = json!({"kind": "DeleteOptions"});
        put(&mut body, &FieldPath::keys(["preconditions", "uid"]), json!("u"));
        assert_eq!(body, json!({"kind": "DeleteOptions", "preconditions": {"uid": "u"}}));
    }
}
