//! One call: fills in its deferred values, sends it until it succeeds or cannot succeed, and follows the GKE operation in the
//! reply to its end.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::change_run::{ChangeRun, Pause};
use crate::control_plane_down::{self, Stopwatch};
use crate::failure::{brief, failed, operation_failure, request_failure};
use crate::gke_errors::GkeError;
use crate::operations::{self, OPERATION, OperationPath, running_operation};
use crate::watch_events::Reply;
use crate::{AbortCause, Outcome};
use kinds::json::is_terminating;
use kinds::kubernetes::calls::ABSENT;
use kinds::kubernetes::ownership;
use live::admission::{self, Admission};
use live::denial::project_of;
use live::list::list;
use live::retry::{RetryDecision, RetryPolicy, RetryReason, RetryState};
use live::{ApiError, ErrorClass, Request, served_kinds};
use model::diag::Code;
use model::resource::{Action, Api, Call, Deferred, Identity, JsonText, LABEL_ID, Method};
use plan::observe::recheck::{Recheck, recheck};

/// How often a change reads an object again because it has changed meanwhile.
const MAX_REREADS: usize = 3;
/// How long a running operation is still followed after Ctrl-C.
const OPERATION_GRACE: Duration = Duration::from_secs(5);

/// The state of a call between its tries.
#[derive(Default)]
struct CallState {
    tried: bool,
    /// A reply was lost: its request may have been carried out.
    lost: bool,
    /// The uid of the object that an earlier try created.
    made_by_us: Option<String>,
    /// The version of an object that has changed since it was read.
    newer: Option<Value>,
    /// The number of reads of the object after a conflict.
    rereads: usize,
    blocked: Stopwatch,
}

impl CallState {
    fn add_to(&self, mut request: Request) -> Request {
        if let Some(version) = &self.newer {
            put_version(&mut request, version);
        }
        if let Some(uid) = &self.made_by_us {
            bind(&mut request, uid);
        }
        request
    }
}

/// Ways to continue after an error.
enum Recovery {
    /// The requested state is reached.
    Done,
    /// The request is sent again, based on what was read.
    Resend,
    Failed(ApiError),
}

impl ChangeRun<'_> {
    pub(crate) async fn call(&mut self, call: &Call) -> Result<(), Outcome> {
        let start = Instant::now();
        let mut tries = RetryState::new(RetryPolicy::Write);
        let mut state = CallState::default();
        loop {
            let request = state.add_to(self.fill(call).await?);
            let error = match self.shared.api.send(request.clone()).await {
                Ok(reply) => {
                    self.wrote |= request.writes();
                    self.remember_deleted(&request, &reply);
                    self.remember_reply(&request, &reply);
                    return self.await_operation(&request, reply).await;
                }
                Err(error) => error,
            };
            if self.abort_cause() == AbortCause::LockLost {
                return Err(self.interrupted_call(&request, &error));
            }
            self.wrote |= error.class == ErrorClass::Lost;
            let error = match self.recover(&request, error, &mut state).await? {
                Recovery::Done => return Ok(()),
                Recovery::Resend => continue,
                Recovery::Failed(error) => error,
            };
            state.lost |= error.class == ErrorClass::Lost;
            state.tried = true;
            let rebuilt = call.deferred.iter().any(|(_, deferred)| *deferred == Deferred::LabelFingerprint);
            let verdict = tries.decide(&request, &error, rebuilt, start.elapsed());
            if verdict == RetryDecision::GiveUp
                && self.wait_for_gke(&request, &error, &mut state.blocked).await?
            {
                continue;
            }
            self.follow_verdict(verdict, &request, &error, state.lost).await?;
        }
    }

    /// Decides how to continue after an error: the resource to delete may be gone, the resource to create may exist, or the
    /// resource to change may have a new version that makes no difference to the plan.
    async fn recover(
        &mut self,
        request: &Request,
        mut error: ApiError,
        state: &mut CallState,
    ) -> Result<Recovery, Outcome> {
        if request.method == Method::Delete && is_deleted(&error, state.lost) {
            // A 404 for the whole path counts only when the cluster says that it does not serve the kind.
            let is_unserved = || served_kinds::is_unserved(self.shared.api, &error, &request.path);
            if !error.is_unknown_path() || is_unserved().await.unwrap_or(false) {
                self.remember_deleted(request, &Value::Null);
                self.reply = Some((request.path.clone(), Reply::Gone));
                return Ok(Recovery::Done);
            }
        }
        if creates(request) && already_exists(&error) {
            match self.read_existing(request).await? {
                Some((path, live)) => match self.take_over(request, &path, &live, state.tried).await? {
                    Existing::Complete => return Ok(Recovery::Done),
                    Existing::Apply(uid) => {
                        state.made_by_us = Some(uid);
                        return Ok(Recovery::Resend);
                    }
                    Existing::Terminating(why) => error = request.failed(ErrorClass::Busy, why),
                },
                // As `409 ABORTED` of GKE says it: something else was under way, and nothing was made.
                None => error.class = ErrorClass::Unavailable,
            }
        }
        if request.method == Method::Merge && already_exists(&error) && state.rereads < MAX_REREADS {
            // It is filled again, with the entries and the version of now. Another object has another uid.
            state.rereads += 1;
            return Ok(Recovery::Resend);
        }
        if is_versioned(request) && already_exists(&error) && state.rereads < MAX_REREADS {
            // A status moves the version, too, and so does this very request when its reply was lost.
            state.rereads += 1;
            let live = self.read_live(Request::get(request.api, object_path(request))).await;
            let live = live.map_err(|error| request_failure(&error))?;
            return match self.recheck(request, &live) {
                Recheck::UpToDate => Ok(Recovery::Done),
                Recheck::Planned => {
                    state.newer = Some(live["metadata"]["resourceVersion"].clone());
                    Ok(Recovery::Resend)
                }
                Recheck::Changed => Err(request_failure(&error)),
            };
        }
        Ok(Recovery::Failed(error))
    }

    /// Waits for the next try, or ends the call.
    async fn follow_verdict(
        &mut self,
        verdict: RetryDecision,
        request: &Request,
        error: &ApiError,
        lost: bool,
    ) -> Result<(), Outcome> {
        match verdict {
            RetryDecision::GiveUp if lost && is_unanswered(error) => {
                Err(Outcome::InDoubt { message: format!("{error}; the request may have succeeded") })
            }
            RetryDecision::GiveUp => {
                let gke_error = GkeError::from_text(error.message.as_str())
                    .with_codes_of(error.body.as_ref().unwrap_or(&Value::Null));
                self.no_capacity = gke_error.lacks_machines().then_some(gke_error.text);
                Err(self.refusal(error).await)
            }
            RetryDecision::Again { reason, after, lasted, at_most } => {
                self.report_retry(request, error, reason, after, lasted, at_most).await;
                match self.pause(after).await {
                    Pause::Interrupted => Err(self.interrupted_call(request, error)),
                    Pause::Elapsed => Ok(()),
                }
            }
        }
    }

    /// Waits a while if GKE's work on the cluster blocks the request. Returns false if no work blocks it, or if it has lasted too
    /// long.
    async fn wait_for_gke(
        &mut self,
        request: &Request,
        error: &ApiError,
        blocked: &mut Stopwatch,
    ) -> Result<bool, Outcome> {
        let Some(work) = self.blocking_work(request.api, error).await else { return Ok(false) };
        let waited = blocked.elapsed();
        if waited > work.at_most {
            return Ok(false);
        }
        self.report_operation_wait(work.operation.as_deref(), &work.message, waited, work.at_most);
        match self.pause(control_plane_down::RETRY_INTERVAL).await {
            Pause::Elapsed => Ok(true),
            Pause::Interrupted => Err(self.interrupted_call(request, error)),
        }
    }

    /// Compares the live object of a request with its planned change again.
    fn recheck(&self, request: &Request, live: &Value) -> Recheck {
        let wanted = self.shared.desired.iter().find(|wanted| wanted.identity == self.change.identity);
        let uid = request.body.as_ref().and_then(|body| body.pointer("/metadata/uid"));
        let same = uid.is_none_or(|uid| *uid == live["metadata"]["uid"]);
        match (wanted, &self.change.identity) {
            (Some(wanted), Identity::Object(object)) if same && object.path() == object_path(request) => {
                recheck(self.change, wanted, self.shared.owner, self.shared.given, live)
            }
            _ => Recheck::Changed,
        }
    }

    fn interrupted_call(&self, request: &Request, error: &ApiError) -> Outcome {
        if self.wrote {
            let message = format!("{} may have succeeded: {}", request.title(), error.message);
            Outcome::InDoubt { message }
        } else {
            Outcome::NotStarted
        }
    }

    async fn report_retry(
        &mut self,
        request: &Request,
        error: &ApiError,
        reason: RetryReason,
        after: Duration,
        lasted: Duration,
        at_most: Duration,
    ) {
        if reason != RetryReason::Busy {
            let message = error.to_string();
            self.report(crate::Event::Retrying { change: self.index, message, after });
            return;
        }
        if request.api == Api::Kubernetes {
            self.report_wait(&error.message, lasted, at_most);
            return;
        }
        let message = match self.blocker(request).await {
            Some((name, work)) => {
                let message = format!("another operation on the cluster is running: GKE is {work}");
                return self.report_operation_wait(Some(&name), &message, lasted, at_most);
            }
            None => format!("too many operations are running: {}", error.message),
        };
        self.report_wait(&message, lasted, at_most);
    }

    /// Returns the running operation that prevents a new one, and its description.
    async fn blocker(&self, request: &Request) -> Option<(String, String)> {
        let operation = running_operation(self.shared.api, &request.path, None).await?;
        Some((operation["name"].as_str()?.to_owned(), operations::describe(&operation)))
    }

    /// Fills in the deferred values of a call from the live state.
    async fn fill(&self, call: &Call) -> Result<Request, Outcome> {
        let Call { api, method, path, body, deferred } = call;
        let mut request = Request {
            api: *api,
            method: *method,
            path: path.clone(),
            body: body.as_ref().map(JsonText::value),
        };
        let mut object = None;
        for (path_in_body, deferred) in deferred {
            if let (Deferred::ManagedFields { .. } | Deferred::Version, None) = (deferred, &object) {
                let read = Request::get(request.api, object_path(&request));
                object = Some(self.read_live(read).await.map_err(|error| request_failure(&error))?);
            }
            let live = object.as_ref().unwrap_or(&Value::Null);
            let value = match deferred {
                Deferred::ManagedFields { without } => ownership::without(live, without),
                Deferred::Version => live["metadata"]["resourceVersion"].clone(),
                Deferred::LabelFingerprint => {
                    let cluster = cluster_of(path);
                    let cluster = self
                        .read_live(Request::get(Api::Gke, cluster))
                        .await
                        .map_err(|e| request_failure(&e))?;
                    let print = cluster.get("labelFingerprint").cloned();
                    let missing = "the cluster has no label fingerprint";
                    print.ok_or_else(|| failed(Code::Missing, missing, Some("plan again, then apply")))?
                }
                Deferred::Environment { variable, digest } => {
                    let env_values = self.shared.given;
                    let same = env_values.digest(variable, path).is_some_and(|now| now == *digest);
                    env_values.encoded(variable).filter(|_| same).ok_or_else(|| {
                        let what = format!(
                            "the environment variable `{variable}` has changed since the plan was made"
                        );
                        failed(Code::Stale, what, Some("plan again, then apply"))
                    })?
                }
            };
            path_in_body.put(request.body.get_or_insert_with(|| json!({})), value);
        }
        Ok(request)
    }

    fn remember_deleted(&mut self, request: &Request, reply: &Value) {
        if request.method != Method::Delete || request.api != Api::Kubernetes {
            return;
        }
        let asked = request.body.as_ref().and_then(|body| body.pointer("/preconditions/uid"));
        let gke_error = || reply.pointer("/metadata/uid").or_else(|| reply.pointer("/details/uid"));
        if let Some(uid) = asked.or_else(gke_error).and_then(Value::as_str) {
            self.deleted.insert(request.path.clone(), uid.to_owned());
        }
    }

    /// Stores the reply to a write, so that waits need not read the object.
    fn remember_reply(&mut self, request: &Request, reply: &Value) {
        self.reply = match (request.api, request.method) {
            (Api::Kubernetes, Method::Patch | Method::Post) => {
                created_path(request).map(|path| (path, Reply::Written(reply.clone())))
            }
            (Api::Kubernetes, Method::Delete) => Some((request.path.clone(), deletion_reply(reply))),
            _ => None,
        };
    }

    /// Returns the outcome of a refused request. If an admission webhook refused it, the message names its configuration and the
    /// remedy.
    async fn refusal(&self, error: &ApiError) -> Outcome {
        let outcome = request_failure(error);
        let Some(admission) = Admission::from_message(&error.message) else { return outcome };
        let mut live = Vec::new();
        for gvk in admission::configurations().iter().filter(|_| admission.webhook().is_some()) {
            // Configurations that may not be listed are left out of the message.
            live.extend(list(self.shared.api, gvk, None).await.unwrap_or_default());
        }
        let live = live.iter().map(|(object, live)| (object, live));
        let configured =
            admission.webhook().map(|webhook| admission::configured(webhook, live)).unwrap_or_default();
        match outcome {
            Outcome::Failed { code, message, help: _ } => {
                Outcome::Failed { code, message, help: Some(admission::remedy(&admission, &configured)) }
            }
            other => other,
        }
    }

    /// Returns the path and the live state of the resource that a request would create; `None` if it does not exist.
    async fn read_existing(&self, request: &Request) -> Result<Option<(String, Value)>, Outcome> {
        let Some(path) = created_path(request) else { return Ok(None) };
        let read = Request::get(request.api, path.clone());
        let live = self.read_live(read).await.map_err(|error| request_failure(&error))?;
        Ok(if live.is_null() { None } else { Some((path, live)) })
    }

    /// Decides what to do if the resource to create exists already. After a lost reply, this call may have created it. Otherwise
    /// another apply of the stack created it after the plan.
    async fn take_over(
        &mut self,
        request: &Request,
        path: &str,
        live: &Value,
        tried: bool,
    ) -> Result<Existing, Outcome> {
        if !is_owned(live, self.shared.owner) {
            let message = format!(
                "{} already exists and does not belong to this stack",
                path.trim_start_matches("/v1/")
            );
            let help = "rename it in the stack file, or delete the existing one, then apply again";
            return Err(failed(Code::MadeByOthers, message, Some(help)));
        }
        let name = path.trim_start_matches("/v1/");
        let going = is_terminating(live);
        if going {
            return Ok(Existing::Terminating(format!("{name} is still being deleted")));
        }
        if request.api == Api::Kubernetes {
            self.wrote = true;
            // The name of a check's pod has the digest of its text, so its text is known; and as hardly a field of a pod may
            // change, an apply that takes back what admission added (a toleration, a selector) would be refused.
            if self.change.action == Action::Run || self.recheck(request, live) == Recheck::UpToDate {
                return Ok(Existing::Complete);
            }
            let uid = live.pointer("/metadata/uid").and_then(Value::as_str).map(str::to_owned);
            let applies = request.method == Method::Patch;
            // It says something else, so what is wanted is said again.
            return Ok(uid.filter(|_| applies).map_or(Existing::Complete, Existing::Apply));
        }
        if !tried {
            let message =
                format!("{name} was created by another apply of this stack after this plan was made");
            return Err(failed(Code::ChangedByOthers, message, Some("plan again, then apply")));
        }
        self.wrote = true;
        let target = path.rsplit("/clusters/").next().map(|rest| format!("/clusters/{rest}"));
        if let Some(operation) = running_operation(self.shared.api, &request.path, target.as_deref()).await {
            self.await_operation(request, operation).await?;
        }
        Ok(Existing::Complete)
    }

    /// Follows a reply that is a GKE operation to its end.
    async fn await_operation(&mut self, request: &Request, reply: Value) -> Result<(), Outcome> {
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
                    Some(why) => {
                        let gke_error = self.with_conditions(request, why).await.with_codes_of(&operation);
                        self.no_capacity = gke_error.lacks_machines().then(|| gke_error.text.clone());
                        Err(operation_failure(&name, &kind, &gke_error, project_of(&request.path)))
                    }
                    None => Ok(()),
                };
            }
            self.report_operation_wait(Some(&name), &operations::stage(&status), start.elapsed(), OPERATION);
            if start.elapsed() > OPERATION {
                let message = format!("{name} ({kind}) is still running after {}", brief(OPERATION));
                return Err(Outcome::TimedOut { message });
            }
            match interrupted {
                None if self.pause(delay).await == Pause::Interrupted => interrupted = Some(Instant::now()),
                None => {}
                Some(since) if since.elapsed() >= OPERATION_GRACE => {
                    let message = format!("{name} ({kind}) continues in GKE");
                    return Err(Outcome::InDoubt { message });
                }
                Some(_) => tokio::time::sleep(delay.min(Duration::from_secs(1))).await,
            }
            delay = delay.mul_f64(1.5).min(Duration::from_secs(5));
            operation = match self.read_live(Request::get(Api::Gke, path.clone())).await {
                Ok(Value::Null) => {
                    let message = format!("GKE no longer knows {name} ({kind})");
                    return Err(Outcome::InDoubt { message });
                }
                Ok(operation) => operation,
                Err(error) => {
                    let message =
                        format!("{name} ({kind}) was started, but its progress cannot be read: {error}");
                    return Err(Outcome::InDoubt { message });
                }
            };
        }
    }

    /// Returns the error of an operation together with the conditions of its pool, which often have more details.
    async fn with_conditions(&self, request: &Request, why: String) -> GkeError {
        let path = match (request.method, created_path(request)) {
            (Method::Post, Some(path)) => path,
            _ => request.path.split([':', '?']).next().unwrap_or_default().to_owned(),
        };
        let live = self.shared.api.send(Request::get(Api::Gke, path)).await.unwrap_or(Value::Null);
        let conditions = live["conditions"].as_array().into_iter().flatten();
        let mut gke_error: Vec<&str> =
            conditions.filter_map(|condition| condition["message"].as_str()).collect();
        gke_error.extend(live["statusMessage"].as_str());
        let mut text = why;
        for message in gke_error {
            if !message.is_empty() && !text.contains(message) {
                text = format!("{text}; {message}");
            }
        }
        GkeError::from_text(text).with_codes_of(&live)
    }
}

/// Ways to continue a create if the resource exists already and is the stack's.
enum Existing {
    /// It is as desired.
    Complete,
    /// The desired fields have to be applied to the object with this uid.
    Apply(String),
    /// It is terminating; the desired one can be created afterwards.
    Terminating(String),
}

/// Returns the path of the cluster that a GKE path is in.
fn cluster_of(path: &str) -> String {
    match OperationPath::parse(path) {
        Some(OperationPath { parent, cluster: Some(cluster) }) => format!("/v1/{parent}/clusters/{cluster}"),
        _ => path.to_owned(),
    }
}

/// Returns the name and path of the GKE operation in a reply; `None` if the reply is not an operation.
fn operation(request: &Request, reply: &Value) -> Option<(String, String)> {
    if request.api != Api::Gke || !reply["status"].is_string() {
        return None;
    }
    let name = reply["name"].as_str().filter(|name| name.starts_with("operation-"))?;
    let OperationPath { parent, .. } = OperationPath::parse(&request.path)?;
    Some((name.to_owned(), format!("/v1/{parent}/operations/{name}")))
}

/// Returns why an ended operation failed. Both fields count: either may be set alone.
fn operation_error(operation: &Value) -> Option<String> {
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let status = text(&operation["statusMessage"]);
    match &operation["error"] {
        Value::Null => status,
        Value::Object(fields) if fields.is_empty() => status,
        error => text(&error["message"]).or(status).or_else(|| Some(error.to_string())),
    }
}

/// Returns true if a request creates a resource that must not exist yet.
fn creates(request: &Request) -> bool {
    match (request.api, request.method) {
        (Api::Gke, Method::Post) => {
            request.path.ends_with("/clusters") || request.path.ends_with("/nodePools")
        }
        (Api::Kubernetes, Method::Post) => true,
        (Api::Kubernetes, Method::Patch) => {
            request.body.as_ref().is_some_and(|body| body["metadata"]["resourceVersion"] == ABSENT)
        }
        _ => false,
    }
}

/// Returns true if a server-side apply has a resourceVersion.
fn is_versioned(request: &Request) -> bool {
    let version = request.body.as_ref().and_then(|body| body.pointer("/metadata/resourceVersion"));
    request.method == Method::Patch && version.is_some_and(Value::is_string)
}

/// Restricts a server-side apply to the object with this uid, in any version.
fn bind(request: &mut Request, uid: &str) {
    if let Some(Value::Object(metadata)) = request.body.as_mut().and_then(|body| body.get_mut("metadata")) {
        metadata.remove("resourceVersion");
        metadata.insert("uid".to_owned(), json!(uid));
    }
}

fn put_version(request: &mut Request, version: &Value) {
    if let Some(metadata) = request.body.as_mut().and_then(|body| body.get_mut("metadata")) {
        metadata["resourceVersion"] = version.clone();
    }
}

/// Returns the path of the object of a request, without the query.
fn object_path(request: &Request) -> String {
    request.path.split('?').next().unwrap_or_default().to_owned()
}

/// Returns the path of the resource that a request creates.
fn created_path(request: &Request) -> Option<String> {
    let body = request.body.as_ref()?;
    let path = request.path.split('?').next()?;
    let name = match (request.api, request.method) {
        (Api::Kubernetes, Method::Patch) => return Some(path.to_owned()),
        (Api::Kubernetes, _) => &body["metadata"]["name"],
        (Api::Gke | Api::Compute, _) if path.ends_with("/clusters") => &body["cluster"]["name"],
        (Api::Gke | Api::Compute, _) if path.ends_with("/nodePools") => &body["nodePool"]["name"],
        (Api::Gke | Api::Compute | Api::Projects | Api::Policies | Api::Billing, _) => return None,
    };
    Some(format!("{path}/{}", name.as_str()?))
}

/// Returns true if a create was refused because the resource exists.
fn already_exists(error: &ApiError) -> bool {
    match error.class {
        ErrorClass::AlreadyExists => true,
        ErrorClass::Conflict => error.conflicts().is_empty(),
        _ => false,
    }
}

/// Returns true if a delete has nothing left to do. After a lost reply, a conflict means that the object is gone and a new one
/// has its name.
fn is_deleted(error: &ApiError, lost: bool) -> bool {
    error.class == ErrorClass::NotFound || (lost && error.class == ErrorClass::Conflict)
}

/// Reads the reply to a DELETE. A Status with a uid means that the object is gone. If the object still waits for finalizers, the
/// reply is the object. Pods are returned as well, because only Pods terminate before they are deleted. Source: apiserver,
/// `registry/generic/registry/store.go`, `finalizeDelete`: it "enables clients to verify that the object was actually deleted and
/// not waiting for finalizers".
fn deletion_reply(reply: &Value) -> Reply {
    let is_gone =
        reply["kind"] == "Status" && reply["status"] == "Success" && reply["details"]["uid"].is_string();
    if is_gone { Reply::Gone } else { Reply::Deleted(reply.clone()) }
}

/// Returns true if an error does not answer the request.
fn is_unanswered(error: &ApiError) -> bool {
    match error.class {
        ErrorClass::Busy
        | ErrorClass::Throttled
        | ErrorClass::Unavailable
        | ErrorClass::LockUnsure
        | ErrorClass::Lost
        | ErrorClass::Unreadable
        | ErrorClass::TooLarge => true,
        ErrorClass::NotFound
        | ErrorClass::AlreadyExists
        | ErrorClass::Conflict
        | ErrorClass::Untrusted
        | ErrorClass::Unauthenticated
        | ErrorClass::Denied
        | ErrorClass::Quota
        | ErrorClass::Invalid
        | ErrorClass::Other => false,
    }
}

/// Returns true if the stack owns a live resource: a GKE resource by its labels, a Kubernetes object by its field managers.
fn is_owned(live: &Value, owner: &model::resource::Owner) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;
    use model::resource::Owner;

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
            assert_eq!(is_owned(&live, &owner), ours, "{live}");
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
        assert_eq!(created_path(&make).as_deref(), Some("/v1/projects/p/locations/l/clusters/c"));
        let (name, path) = operation(&make, &json!({"name": "operation-1", "status": "RUNNING"})).unwrap();
        assert_eq!(
            (name.as_str(), path.as_str()),
            ("operation-1", "/v1/projects/p/locations/l/operations/operation-1")
        );
    }
}
