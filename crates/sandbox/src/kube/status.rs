//! The `Status` object: how the Kubernetes API says that something failed.

use serde_json::{Value, json};

/// One entry of `details.causes`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cause {
    /// `FieldValueInvalid`, `FieldManagerConflict`, …
    pub reason: String,
    /// The problem, for people.
    pub message: String,
    /// The path of the field, in the API's own notation.
    pub field: String,
}

impl Cause {
    /// A field that breaks a rule.
    pub fn new(reason: &str, field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { reason: reason.to_owned(), message: message.into(), field: field.into() }
    }

    /// A value that is none for its field, as it is shown.
    pub fn invalid(field: impl Into<String>, value: impl std::fmt::Display, why: &str) -> Self {
        Self::new("FieldValueInvalid", field, format!("Invalid value: {value}: {why}"))
    }

    /// A field that must have a value.
    pub fn required(field: impl Into<String>) -> Self {
        Self::new("FieldValueRequired", field, "Required value")
    }

    /// A field that may not have this value now.
    pub fn forbidden(field: impl Into<String>, why: &str) -> Self {
        Self::new("FieldValueForbidden", field, format!("Forbidden: {why}"))
    }

    /// A value, as it is shown, that is not one of the few that its field takes.
    pub fn unsupported(field: impl Into<String>, value: impl std::fmt::Display, supported: &[&str]) -> Self {
        let supported: Vec<String> = supported.iter().map(|value| format!("\"{value}\"")).collect();
        let message = format!("Unsupported value: {value}: supported values: {}", supported.join(", "));
        Self::new("FieldValueNotSupported", field, message)
    }
}

/// A refusal (or, with code 200, an acknowledgement) as the API server words it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// HTTP status code.
    pub code: u16,
    /// `NotFound`, `AlreadyExists`, `Conflict`, `Invalid`, …
    pub reason: String,
    /// The sentence that `kubectl` prints.
    pub message: String,
    /// `details.group`; empty for the core group.
    pub group: String,
    /// `details.kind`: the plural of the resource for most errors, the kind for `Invalid`.
    pub kind: String,
    /// `details.name`.
    pub name: String,
    /// `details.uid`.
    pub uid: String,
    /// `details.causes`.
    pub causes: Vec<Cause>,
    /// `metadata.continue`: the token by which an expired list may go on.
    pub next: String,
}

/// `deployments.apps`, or `pods` in the core group.
fn qualified(group: &str, resource: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}

impl Status {
    fn new(code: u16, reason: &str, message: String) -> Self {
        Self { code, reason: reason.to_owned(), message, ..Self::default() }
    }

    fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        group.clone_into(&mut self.group);
        kind.clone_into(&mut self.kind);
        name.clone_into(&mut self.name);
        self
    }

    /// 404: `deployments.apps "x" not found`.
    pub fn not_found(group: &str, resource: &str, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", qualified(group, resource));
        Self::new(404, "NotFound", message).about(group, resource, name)
    }

    /// 503: something behind the API server does not answer.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(503, "ServiceUnavailable", message.into())
    }

    /// 404 for a path that no API serves.
    pub fn no_such_path() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource".to_owned())
    }

    /// 409: `pods "x" already exists`.
    pub fn already_exists(group: &str, resource: &str, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", qualified(group, resource));
        Self::new(409, "AlreadyExists", message).about(group, resource, name)
    }

    /// 409 with a cause of its own wording.
    pub fn conflict(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {} \"{name}\": {why}", qualified(group, resource));
        Self::new(409, "Conflict", message).about(group, resource, name)
    }

    /// 403: admission or authorization said no.
    pub fn forbidden(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let message = format!("{} \"{name}\" is forbidden: {why}", qualified(group, resource));
        Self::new(403, "Forbidden", message).about(group, resource, name)
    }

    /// 400: the request itself makes no sense.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message.into())
    }

    /// 405: the resource does not do that.
    pub fn not_allowed() -> Self {
        Self::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource".to_owned(),
        )
    }

    /// 410: the history does not reach back that far.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message.into())
    }

    /// 504: a version is asked for that is still to come.
    pub fn too_new(asked: u64, current: u64) -> Self {
        let cause = Cause::new("ResourceVersionTooLarge", "", "Too large resource version");
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        Self { causes: vec![cause], ..Self::new(504, "Timeout", message) }
    }

    /// 413: the body is too large.
    pub fn too_large(message: String) -> Self {
        Self::new(413, "RequestEntityTooLarge", message)
    }

    /// 415: that kind of patch is not understood here.
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(415, "UnsupportedMediaType", message.into())
    }

    /// 422: the object breaks rules; one cause a rule. The message joins them as the API server does.
    pub fn invalid(group: &str, kind: &str, name: &str, causes: Vec<Cause>) -> Self {
        let mut texts: Vec<String> =
            causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        texts.dedup();
        let list = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let message = format!("{} \"{name}\" is invalid: {list}", qualified(group, kind));
        Self { causes, ..Self::new(422, "Invalid", message).about(group, kind, name) }
    }

    /// 422: an option of the request has a value that there is not.
    pub fn bad_option(options: &str, field: &str, value: &str, supported: &[&str]) -> Self {
        Self::invalid("meta.k8s.io", options, "", vec![Cause::unsupported(field, value, supported)])
    }

    /// 422: an option of the request that does not go with another one.
    pub fn forbidden_option(options: &str, field: &str, why: &str) -> Self {
        Self::invalid("meta.k8s.io", options, "", vec![Cause::forbidden(field, why)])
    }

    /// 409 with one `FieldManagerConflict` for each field that another manager owns.
    pub fn apply_conflict(message: String, causes: Vec<Cause>) -> Self {
        Self { causes, ..Self::new(409, "Conflict", message) }
    }

    /// 500: something that the API server itself could not do.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "InternalError", message.into())
    }

    /// 500 without a reason: an error that the API server did not foresee, passed on as it is.
    pub fn unknown(message: String) -> Self {
        Self::new(500, "", message)
    }

    /// 200: `details` names what was deleted.
    pub fn success(group: &str, resource: &str, name: &str, uid: &str) -> Self {
        let mut status = Self::new(200, "", String::new()).about(group, resource, name);
        uid.clone_into(&mut status.uid);
        status
    }

    /// The body as it goes over the wire.
    pub fn body(&self) -> Value {
        let Self { code, reason, message, group, kind, name, uid, causes, next } = self;
        let success = *code < 300;
        let mut body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {},
            "status": if success { "Success" } else { "Failure" },
        });
        if !next.is_empty() {
            body["metadata"]["continue"] = json!(next);
        }
        if !success {
            body["message"] = json!(message);
            if !reason.is_empty() {
                body["reason"] = json!(reason);
            }
            body["code"] = json!(code);
        }
        let mut details = serde_json::Map::new();
        for (key, value) in [("name", name), ("group", group), ("kind", kind), ("uid", uid)] {
            if !value.is_empty() {
                details.insert(key.to_owned(), json!(value));
            }
        }
        if !causes.is_empty() {
            let causes: Vec<Value> = causes
                .iter()
                .map(|Cause { reason, message, field }| {
                    let mut cause = json!({"reason": reason, "message": message});
                    if !field.is_empty() {
                        cause["field"] = json!(field);
                    }
                    cause
                })
                .collect();
            details.insert("causes".to_owned(), json!(causes));
        }
        if !details.is_empty() || matches!(code, 404 | 405 | 415 | 422) {
            body["details"] = Value::Object(details);
        }
        body
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}: {}", self.code, self.reason, self.message)
    }
}

impl std::error::Error for Status {}
