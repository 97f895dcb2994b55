//! HTTP responses of the GKE, Compute Engine and Kubernetes APIs as values: JSON of the expected shape, or an [`ApiError`] with
//! its class. All responses pass here. Pure, so that recorded bodies are its tests.

use http::StatusCode;
use serde_json::{Value, json};

use crate::admission::Admission;
use crate::denial::DenialCause;
use crate::shape::{Media, Shape};
use crate::trust::Trust;
use crate::{ApiError, ErrorClass, Request};
use model::resource::{Api, Method};

/// The maximum size of a response in bytes: a page of a LIST has 500 objects, and etcd stores no object above 1.5 MiB.
pub const MAX_RESPONSE_BYTES: usize = 64 * 1024 * 1024;

/// A response as it was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// The kind of body, from the content type.
    pub media: Media,
    /// The texts of `Warning` headers.
    pub warnings: Vec<String>,
    pub body: Vec<u8>,
}

impl Answer {
    /// Returns the response with these headers and this body.
    pub fn of(parts: &http::response::Parts, body: Vec<u8>) -> Self {
        let (media, warnings) = (Media::from_headers(&parts.headers), warnings(&parts.headers));
        Self { status: parts.status.as_u16(), media, warnings, body }
    }
}

/// The value of a response, with the warnings of the API server.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    pub value: Value,
    pub warnings: Vec<String>,
}

/// The number of warnings that are read of one response. Source: kube-apiserver truncates them to 4 KiB in all.
const MAX_WARNINGS: usize = 16;

/// Returns the texts of `Warning` headers with code 299: `299 - "text"`. Source: KEP 1693; RFC 7234, section 5.5.
fn warnings(headers: &http::HeaderMap) -> Vec<String> {
    let values = headers.get_all(http::header::WARNING).iter();
    let texts = values.filter_map(|value| warning_text(std::str::from_utf8(value.as_bytes()).ok()?));
    texts.take(MAX_WARNINGS).collect()
}

fn warning_text(value: &str) -> Option<String> {
    let quoted = value.trim().strip_prefix("299 ")?.split_once('"')?.1;
    let mut text = String::new();
    let mut letters = quoted.chars();
    loop {
        match letters.next()? {
            '"' => return Some(text),
            '\\' => text.extend(letters.next()),
            letter => text.push(letter),
        }
    }
}

impl Request {
    /// Returns the request for error messages: `GET /v1/projects/…`, without the query.
    pub fn title(&self) -> String {
        let path = self.path.split('?').next().unwrap_or_default();
        format!("{} {path}", self.method.as_str())
    }

    /// Returns true if the request can change anything.
    pub fn writes(&self) -> bool {
        self.method != Method::Get && !self.path.contains("dryRun=All")
    }

    /// Returns an error of this request that does not come from a response of the server.
    pub fn failed(&self, class: ErrorClass, message: impl Into<String>) -> ApiError {
        ApiError { class, status: None, request: self.title(), message: message.into(), body: None }
    }

    /// Returns the error for a request that was sent and not answered: a write may have been done, a read has not.
    pub fn unanswered(&self, message: impl Into<String>) -> ApiError {
        let class = if self.writes() { ErrorClass::Lost } else { ErrorClass::Unavailable };
        self.failed(class, message)
    }

    /// Returns the error for a server whose certificate the connection does not trust.
    pub fn untrusted(&self, server: &str, why: &str, trust: Trust) -> ApiError {
        let message = if why.contains(server) { why.to_owned() } else { format!("{server}: {why}") };
        let body = Some(json!({ "remedy": trust.remedy() }));
        ApiError { body, ..self.failed(ErrorClass::Untrusted, message) }
    }

    /// Returns the error for a response of an unexpected shape. A read has no result; a write may have been done.
    fn unreadable(&self, status: u16, why: &str) -> ApiError {
        let class = if self.writes() { ErrorClass::Lost } else { ErrorClass::Unreadable };
        let noun = Shape::for_request(self).description();
        ApiError { status: Some(status), ..self.failed(class, format!("the answer is not a {noun}: {why}")) }
    }

    /// Returns the error for a response larger than [`MAX_RESPONSE_BYTES`].
    pub fn too_large(&self) -> ApiError {
        let class = if self.writes() { ErrorClass::Lost } else { ErrorClass::TooLarge };
        self.failed(class, format!("the answer is larger than {} MiB", MAX_RESPONSE_BYTES / 1024 / 1024))
    }

    /// Returns the response as a value, or as an error with its class.
    ///
    /// # Errors
    ///
    /// The status is not 2xx, or the body does not have the expected [`Shape`].
    pub fn read(&self, answer: Answer) -> Result<Value, ApiError> {
        let Answer { status, media, warnings: _, body } = answer;
        match StatusCode::from_u16(status) {
            Ok(code) if code.is_success() => {
                Shape::for_request(self).read(media, &body).map_err(|why| self.unreadable(status, &why))
            }
            Ok(code) if code.is_redirection() => {
                let message = "a redirect, as sent by sign-in pages and proxies; not followed";
                Err(ApiError { status: Some(status), ..self.failed(ErrorClass::Other, message) })
            }
            _ => Err(self.refusal(status, &body)),
        }
    }

    fn refusal(&self, status: u16, body: &[u8]) -> ApiError {
        let parsed = serde_json::from_slice::<Value>(body).ok();
        let text = String::from_utf8_lossy(body);
        let error = Refusal { request: self, status, body: parsed.as_ref(), text: &text };
        let (class, message) = match self.api {
            Api::Gke | Api::Compute | Api::Projects | Api::Policies | Api::Billing => error.google(),
            Api::Kubernetes => error.kubernetes(),
        };
        let message = message.unwrap_or_else(|| first_line(&text, status));
        ApiError { class, status: Some(status), request: self.title(), message, body: parsed }
    }
}

/// A response that is not a success.
struct Refusal<'a> {
    request: &'a Request,
    status: u16,
    body: Option<&'a Value>,
    text: &'a str,
}

impl Refusal<'_> {
    /// Reads `{"error": {code, message, status, errors, details}}`.
    fn google(&self) -> (ErrorClass, Option<String>) {
        let error = self.body.and_then(|body| body.get("error"));
        let text = |field: &str| error.and_then(|error| error.get(field)).and_then(Value::as_str);
        let message = text("message").map(str::to_owned);
        let words = message.as_deref().unwrap_or_default().to_ascii_lowercase();
        let canonical = text("status").unwrap_or_default();
        let reasons = error_info_reasons(error);
        let cause = DenialCause::from_error(self.body, message.as_deref().unwrap_or_default());
        let class = match self.status {
            400..=499 if cause.is_some() && self.status != 429 => ErrorClass::Denied,
            400 if is_busy(&words, &reasons) => ErrorClass::Busy,
            400 if canonical == "FAILED_PRECONDITION" && words.contains("fingerprint") => {
                ErrorClass::Conflict
            }
            409 if canonical == "ABORTED" => ErrorClass::Conflict,
            409 if words.contains("operation") && words.contains("progress") => ErrorClass::Busy,
            409 => ErrorClass::AlreadyExists,
            412 => ErrorClass::Conflict,
            403 if reasons.contains(&"CONCURRENT_OPERATIONS_QUOTA_EXCEEDED") => ErrorClass::Busy,
            403 if words.contains("rate limit") || words.contains("per minute") => ErrorClass::Throttled,
            403 if names_exceeded_quota(&words) || canonical == "RESOURCE_EXHAUSTED" => ErrorClass::Quota,
            // Only the API itself can say that something is not there.
            404 if message.is_none() => ErrorClass::Other,
            429 if words.contains("operation")
                && words.contains("quota")
                && !words.contains("per minute") =>
            {
                ErrorClass::Busy
            }
            // Of a reservation: GoogleCloudPlatform/gsutil issue 1000.
            429 if words.contains("reservation") && words.contains("insufficient") => ErrorClass::Quota,
            429 => ErrorClass::Throttled,
            status => self.plain(status),
        };
        (class, message)
    }

    /// Reads a `Status` object.
    fn kubernetes(&self) -> (ErrorClass, Option<String>) {
        let text = |field: &str| self.body.and_then(|body| body.get(field)).and_then(Value::as_str);
        let reason = text("reason").unwrap_or_default();
        let class = match (self.status, reason) {
            (409, "AlreadyExists") => ErrorClass::AlreadyExists,
            (409, _) | (412, _) => ErrorClass::Conflict,
            // A namespace of the same name is still on its way out: it will be gone.
            (403, _) if self.has_cause("NamespaceTerminating") => ErrorClass::Busy,
            (403, _) if text("message").is_some_and(|text| text.contains("exceeded quota")) => {
                ErrorClass::Quota
            }
            (429, _) => ErrorClass::Throttled,
            (404, _) if !self.says_absent() => ErrorClass::Other,
            (status, _) => self.plain(status),
        };
        (class, text("message").map(str::to_owned))
    }

    /// Returns true if a 404 is the API server's own: a `Status` that names the object, or, for a kind that may not be defined
    /// yet, its text about paths. Every cluster has the core group. Source: kube-apiserver 1.36 answers a path that it does not
    /// serve with the text.
    fn says_absent(&self) -> bool {
        let text = |pointer: &str| self.body.and_then(|body| body.pointer(pointer)).and_then(Value::as_str);
        let about_the_path = match text("/message") {
            Some(message) => message.contains(UNKNOWN_RESOURCE),
            None => self.text.starts_with(UNKNOWN_PATH),
        };
        if about_the_path {
            return !self.request.path.starts_with("/api/");
        }
        match Shape::for_request(self.request) {
            // A program behind a Service answers with its own pages, in any shape.
            Shape::Proxied => true,
            Shape::Object(asked) if !self.request.writes() => {
                text("/kind") == Some("Status") && matches_name(text("/details/name"), asked.name.as_deref())
            }
            Shape::Deleted { name } => {
                text("/kind") == Some("Status") && matches_name(text("/details/name"), name.as_deref())
            }
            _ => text("/kind") == Some("Status"),
        }
    }

    fn has_cause(&self, reason: &str) -> bool {
        causes(self.body).any(|cause| cause["reason"] == reason)
    }

    /// Returns the error class from the HTTP status alone.
    fn plain(&self, status: u16) -> ErrorClass {
        match status {
            400 | 405 | 406 | 413 | 415 | 422 => ErrorClass::Invalid,
            401 => ErrorClass::Unauthenticated,
            403 => ErrorClass::Denied,
            404 => ErrorClass::NotFound,
            429 => ErrorClass::Throttled,
            // A gateway gave up on the server behind it, which may have done what was asked.
            408 | 502 | 504 if self.request.writes() => ErrorClass::Lost,
            // A store without room stays so until somebody makes room.
            507 => ErrorClass::Other,
            408 | 500..=599 => ErrorClass::Unavailable,
            _ => ErrorClass::Other,
        }
    }
}

/// Messages of an API server about a path that it does not serve, as JSON and as text.
const UNKNOWN_RESOURCE: &str = "could not find the requested resource";
const UNKNOWN_PATH: &str = "404 page not found";

/// Returns true unless the error names an object other than the requested one.
fn matches_name(told: Option<&str>, asked: Option<&str>) -> bool {
    told.zip(asked).is_none_or(|(told, asked)| told == asked)
}

/// Returns `reason` of each `google.rpc.ErrorInfo`.
fn error_info_reasons(error: Option<&Value>) -> Vec<&str> {
    let details = error.and_then(|error| error.get("details")).and_then(Value::as_array);
    details.into_iter().flatten().filter_map(|detail| detail.get("reason").and_then(Value::as_str)).collect()
}

/// Returns true if another operation is running. Knows the current reason and wording, and those from before 2024.
fn is_busy(words: &str, reasons: &[&str]) -> bool {
    reasons.contains(&"CLUSTER_ALREADY_HAS_OPERATION")
        || words.contains("running incompatible operation")
        || (words.contains("operation") && words.contains("is currently"))
        || words.contains("please wait and try again once it is done")
}

/// Returns true if a message says that a quota is exceeded. Many other messages contain the word quota.
fn names_exceeded_quota(words: &str) -> bool {
    words.contains("quota") && (words.contains("insufficient") || words.contains("exceeded"))
}

fn first_line(text: &str, status: u16) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    let phrase = || StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
    match line {
        Some(line) if !line.starts_with('<') => line.to_owned(),
        _ => phrase().unwrap_or("no reason given").to_ascii_lowercase(),
    }
}

impl ApiError {
    /// Returns true if the API server does not serve the path, as before a CustomResourceDefinition is established. This differs
    /// from a missing object.
    pub fn is_unknown_path(&self) -> bool {
        self.class == ErrorClass::NotFound
            && (self.message.contains(UNKNOWN_RESOURCE) || self.message.starts_with(UNKNOWN_PATH))
    }

    /// Returns true if an admission webhook did not answer, as when its pods have just been created.
    pub fn is_webhook(&self) -> bool {
        matches!(Admission::from_message(&self.message), Some(Admission::Unanswered { .. }))
    }

    /// Returns the causes in a Status of Kubernetes: each has a `reason`, a `field` and a `message`.
    pub fn causes(&self) -> impl Iterator<Item = &Value> {
        causes(self.body.as_ref())
    }

    /// Returns the field managers that own fields of a refused server-side apply, each once, with the fields.
    pub fn conflicts(&self) -> Vec<(String, Vec<String>)> {
        let mut managers = std::collections::BTreeMap::<String, Vec<String>>::new();
        for cause in self.causes() {
            if cause["reason"] != "FieldManagerConflict" {
                continue;
            }
            let message = cause["message"].as_str().unwrap_or_default();
            let manager = message.split('"').nth(1).unwrap_or("another manager");
            let field = cause["field"].as_str().unwrap_or_default();
            managers.entry(manager.to_owned()).or_default().push(field.to_owned());
        }
        managers.into_iter().collect()
    }
}

fn causes(body: Option<&Value>) -> impl Iterator<Item = &Value> {
    body.and_then(|body| body.pointer("/details/causes")).and_then(Value::as_array).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(api: Api, method: Method, status: u16, body: &Value) -> Result<Value, ApiError> {
        let request = Request { api, method, path: "/v1/x?y=z".into(), body: None };
        request.read(Answer {
            status,
            media: Media::Other,
            warnings: Vec::new(),
            body: body.to_string().into_bytes(),
        })
    }

    fn google(status: u16, canonical: &str, message: &str, reason: &str) -> Value {
        let details = if reason.is_empty() {
            json!([])
        } else {
            json!([{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": "container.googleapis.com"}])
        };
        json!({"error": {"code": status, "message": message, "status": canonical, "details": details}})
    }

    #[test]
    fn google_refusals_get_their_class() {
        let rows: &[(u16, &str, &str, &str, ErrorClass)] = &[
            (404, "NOT_FOUND", "Not found: projects/p/zones/z/clusters/c.", "", ErrorClass::NotFound),
            (
                409,
                "ALREADY_EXISTS",
                "Already exists: projects/p/zones/z/clusters/c.",
                "",
                ErrorClass::AlreadyExists,
            ),
            (409, "ABORTED", "etag mismatch", "", ErrorClass::Conflict),
            (400, "INVALID_ARGUMENT", "Accelerator count: 1 should not be updated.", "", ErrorClass::Invalid),
            (
                400,
                "FAILED_PRECONDITION",
                "Cluster is running incompatible operation operation-1.",
                "CLUSTER_ALREADY_HAS_OPERATION",
                ErrorClass::Busy,
            ),
            (
                400,
                "FAILED_PRECONDITION",
                "Operation operation-1 is currently creating a node pool for cluster c. Please wait and try \
                 again once it is done.",
                "",
                ErrorClass::Busy,
            ),
            (400, "FAILED_PRECONDITION", "Label fingerprint is out of date.", "", ErrorClass::Conflict),
            (400, "FAILED_PRECONDITION", "Node pool must be empty.", "", ErrorClass::Invalid),
            (
                429,
                "RESOURCE_EXHAUSTED",
                "Too many operations: cluster \"c\" hits the concurrent operations quota 5, please try again \
                 later.",
                "",
                ErrorClass::Busy,
            ),
            (
                429,
                "RESOURCE_EXHAUSTED",
                "Quota exceeded for quota metric 'Requests' and limit 'Requests per minute'",
                "",
                ErrorClass::Throttled,
            ),
            (
                403,
                "PERMISSION_DENIED",
                "Insufficient regional quota to satisfy request: resource \"NVIDIA_T4_GPUS\": request requires \
                 '2.0' and is short '1.0'.",
                "",
                ErrorClass::Quota,
            ),
            (
                403,
                "PERMISSION_DENIED",
                "Required \"container.clusters.create\" permission(s) for \"projects/p\".",
                "",
                ErrorClass::Denied,
            ),
            (
                401,
                "UNAUTHENTICATED",
                "Request had invalid authentication credentials.",
                "",
                ErrorClass::Unauthenticated,
            ),
            (500, "INTERNAL", "Internal error.", "", ErrorClass::Unavailable),
            (503, "UNAVAILABLE", "The service is currently unavailable.", "", ErrorClass::Unavailable),
            (504, "DEADLINE_EXCEEDED", "Deadline exceeded.", "", ErrorClass::Lost),
            (507, "INTERNAL", "cannot write box/sandbox.redb", "", ErrorClass::Other),
        ];
        for (status, canonical, message, reason, class) in rows {
            let body = google(*status, canonical, message, reason);
            let error = answer(Api::Gke, Method::Post, *status, &body).unwrap_err();
            assert_eq!(error.class, *class, "{message}");
            assert_eq!(error.message, *message);
            assert_eq!(error.request, "POST /v1/x");
        }
    }

    #[test]
    fn kubernetes_refusals_get_their_class() {
        let rows: &[(u16, &str, &str, ErrorClass)] = &[
            (404, "NotFound", "daskclusters.kubernetes.dask.org \"x\" not found", ErrorClass::NotFound),
            (409, "AlreadyExists", "pods \"x\" already exists", ErrorClass::AlreadyExists),
            (
                409,
                "Conflict",
                "Operation cannot be fulfilled on configmaps \"x\": the object has been modified",
                ErrorClass::Conflict,
            ),
            (
                403,
                "Forbidden",
                "pods is forbidden: User \"u\" cannot list resource \"pods\"",
                ErrorClass::Denied,
            ),
            (403, "Forbidden", "pods \"x\" is forbidden: exceeded quota: gpus", ErrorClass::Quota),
            (422, "Invalid", "Pod \"x\" is invalid: spec.containers: Required value", ErrorClass::Invalid),
            (429, "TooManyRequests", "too many requests", ErrorClass::Throttled),
            (
                500,
                "InternalError",
                "failed calling webhook \"w\": connection refused",
                ErrorClass::Unavailable,
            ),
            (504, "Timeout", "request did not complete within requested timeout", ErrorClass::Lost),
            (507, "InternalError", "cannot write box/sandbox.redb", ErrorClass::Other),
        ];
        for (status, reason, message, class) in rows {
            let body = json!({"kind": "Status", "code": status, "reason": reason, "message": message});
            let error = answer(Api::Kubernetes, Method::Patch, *status, &body).unwrap_err();
            assert_eq!(error.class, *class, "{message}");
        }
        let leaving = json!({"reason": "Forbidden", "message": "namespace x is being terminated",
            "details": {"causes": [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]}});
        assert_eq!(
            answer(Api::Kubernetes, Method::Patch, 403, &leaving).unwrap_err().class,
            ErrorClass::Busy
        );
    }

    #[test]
    fn a_read_cannot_be_lost() {
        let body = google(504, "DEADLINE_EXCEEDED", "Deadline exceeded.", "");
        assert_eq!(answer(Api::Gke, Method::Get, 504, &body).unwrap_err().class, ErrorClass::Unavailable);
    }

    #[test]
    fn only_the_api_itself_says_that_something_is_not_there() {
        let status = |message: &str, name: &str| {
            json!({"kind": "Status", "reason": "NotFound", "message": message, "details": {"name": name}})
                .to_string()
        };
        let of_gke =
            google(404, "NOT_FOUND", "Not found: projects/p/locations/l/clusters/c.", "").to_string();
        let text = "404 page not found\n".to_owned();
        let page = "<html><body>404 page not found".to_owned();
        let (pod, queue) = ("/api/v1/namespaces/n/pods/x", "/apis/q.example.com/v1/queues/x");
        let cluster = "/v1/projects/p/locations/l/clusters/c";
        let absent = Some(false);
        let not_served = Some(true);
        for (path, body, expect) in [
            (pod, status("pods \"x\" not found", "x"), absent),
            (pod, json!({"kind": "Status", "message": "gone"}).to_string(), absent),
            (pod, status("pods \"y\" not found", "y"), None),
            (pod, json!({"message": "not found"}).to_string(), None),
            (pod, text.clone(), None),
            (pod, page.clone(), None),
            (pod, status("the server could not find the requested resource", ""), None),
            (pod, of_gke.clone(), None),
            (pod, String::new(), None),
            (queue, text.clone(), not_served),
            (queue, page.clone(), None),
            (queue, status("the server could not find the requested resource", ""), not_served),
            (cluster, of_gke, absent),
            (cluster, text, None),
            (cluster, page, None),
            (cluster, status("pods \"x\" not found", "x"), None),
        ] {
            let api = if path == cluster { Api::Gke } else { Api::Kubernetes };
            for method in [Method::Get, Method::Delete] {
                let request = Request { api, method, path: path.into(), body: None };
                let (media, warnings) = (Media::Other, Vec::new());
                let answer = Answer { status: 404, media, warnings, body: body.clone().into_bytes() };
                let error = request.read(answer).unwrap_err();
                let said = (error.class == ErrorClass::NotFound).then(|| error.is_unknown_path());
                assert_eq!(said, expect, "{} {path}: {body}", method.as_str());
            }
        }
    }

    #[test]
    fn conflicts_name_managers_and_fields() {
        let body = json!({"reason": "Conflict", "message": "Apply failed with 2 conflicts", "details": {"causes": [
            {"reason": "FieldManagerConflict", "message": "conflict with \"kubectl-edit\" using v1", "field": ".data.a"},
            {"reason": "FieldManagerConflict", "message": "conflict with \"kubectl-edit\" using v1", "field": ".data.b"}]}});
        let error = answer(Api::Kubernetes, Method::Patch, 409, &body).unwrap_err();
        let expected = vec![("kubectl-edit".to_owned(), vec![".data.a".to_owned(), ".data.b".to_owned()])];
        assert_eq!(error.conflicts(), expected);
    }

    #[test]
    fn text_stays_text_and_pages_are_not_quoted() {
        let request = Request::get(Api::Kubernetes, "/api/v1/namespaces/n/pods/p/log");
        let answer =
            |status, media, body: &str| Answer { status, media, warnings: Vec::new(), body: body.into() };
        assert_eq!(request.read(answer(200, Media::Other, "42\n")).unwrap(), json!("42\n"));
        assert_eq!(request.read(answer(200, Media::Other, "")).unwrap(), json!(""));
        let page = request.read(answer(502, Media::Html, "<html>\n<p>oops"));
        assert_eq!(page.unwrap_err().message, "bad gateway");
        assert_eq!(
            request.read(answer(200, Media::Html, "<html>")).unwrap_err().class,
            ErrorClass::Unreadable
        );
    }

    #[test]
    fn warnings_are_read_as_they_were_quoted() {
        let mut headers = http::HeaderMap::new();
        for value in [r#"299 - "a \"b\" \\ c""#, r#"199 - "other""#, "299 -", r#"299 - "open"#] {
            headers.append(http::header::WARNING, value.parse().unwrap());
        }
        assert_eq!(warnings(&headers), [r#"a "b" \ c"#]);
    }

    #[test]
    fn a_redirect_is_no_answer() {
        for status in [301, 302, 303, 307, 308] {
            let request = Request::get(Api::Gke, "/v1/projects/p/locations/l/clusters/c");
            let (media, warnings, body) = (Media::Html, Vec::new(), Vec::new());
            let error = request.read(Answer { status, media, warnings, body }).unwrap_err();
            assert_eq!((error.class, error.status), (ErrorClass::Other, Some(status)));
            assert!(error.message.contains("redirect"), "{error}");
        }
    }
}
