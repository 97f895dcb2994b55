//! The errors that rules answer with, in the formats of GKE and of the Kubernetes API. The sources of the wordings are noted
//! beside them.

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use serde_json::Value;

use super::super::gke::errors::{Code, Refusal};
use super::super::gke::path::{self, ClusterId, Target};
use super::super::kube::request::Place;
use super::super::kube::status::Status;
use super::rule::Refuse;

/// Which API a request goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// GKE with the other Google APIs.
    Gke,
    /// The Kubernetes API of a cluster.
    Kubernetes,
}

/// HTTP codes with the possible reasons; the first reason is the default.
pub const REASONS: &[(u16, &[&str])] = &[
    (200, &[]),
    (400, &["INVALID_ARGUMENT", "FAILED_PRECONDITION", "CLUSTER_ALREADY_HAS_OPERATION", "BadRequest"]),
    (401, &["UNAUTHENTICATED", "Unauthorized"]),
    (403, &["PERMISSION_DENIED", "Forbidden"]),
    (404, &["NOT_FOUND", "NotFound"]),
    (409, &["ALREADY_EXISTS", "ABORTED", "Conflict", "AlreadyExists"]),
    (410, &["Expired"]),
    (412, &["FAILED_PRECONDITION"]),
    (422, &["Invalid"]),
    (429, &["RESOURCE_EXHAUSTED", "CONCURRENT_OPERATIONS", "TooManyRequests"]),
    (500, &["INTERNAL", "InternalError"]),
    (502, &[]),
    (503, &["UNAVAILABLE", "ServiceUnavailable"]),
    (504, &["DEADLINE_EXCEEDED", "Timeout"]),
];

/// Returns the response to a refused request; `number` is used for unique ids.
pub fn refusal(side: Side, method: &str, path: &str, refuse: &Refuse, number: u64) -> Response<Body> {
    match refuse.code {
        200 => return page(refuse, "Sign in", "Sign in to use this network."),
        502 => return page(refuse, "Error 502 (Server Error)", "The server encountered a temporary error."),
        _ => {}
    }
    match side {
        Side::Gke => gke(method, path, refuse, number),
        Side::Kubernetes => kubernetes(method, path, refuse),
    }
}

fn respond(code: u16, content_type: &'static str, text: String) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Returns the HTML page of a proxy on the way, for any API behind it: a gateway answers 502, a captive portal 200.
fn page(refuse: &Refuse, title: &str, usual: &str) -> Response<Body> {
    let why = refuse.message.as_deref().unwrap_or(usual);
    let page = format!("<!DOCTYPE html>\n<html><title>{title}</title>\n<p>{why}</html>\n");
    respond(refuse.code, "text/html; charset=UTF-8", page)
}

fn gke(method: &str, path: &str, refuse: &Refuse, number: u64) -> Response<Body> {
    let Refuse { code, reason, message } = refuse;
    let reason = reason.as_deref().unwrap_or_default();
    let (subject, permission) = subject(method, path);
    let usual = match (*code, reason) {
        // Seen in threads of 2024 and later.
        (400, "CLUSTER_ALREADY_HAS_OPERATION") => Refusal::busy(&format!("operation-{number}")),
        (400, "FAILED_PRECONDITION") => Refusal::new(Code::FailedPrecondition, "Precondition check failed."),
        (401, _) => Refusal::new(
            Code::Unauthenticated,
            "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other \
             valid authentication credential.",
        ),
        // hashicorp/terraform-provider-google issue 10567, 2i2c-org/infrastructure issue 488.
        (403, _) => Refusal::new(
            Code::PermissionDenied,
            format!("Required \"{permission}\" permission(s) for \"{subject}\"."),
        ),
        (404, _) => Refusal::not_found(subject),
        (409, "ABORTED") => Refusal::new(Code::Aborted, "The etag is not the current one."),
        (409, _) => Refusal::exists(subject),
        (412, _) => Refusal::new(Code::ConditionNotMet, "Precondition check failed."),
        // hashicorp/terraform-provider-google issues 15205 and 15579.
        (429, "CONCURRENT_OPERATIONS") => Refusal::new(
            Code::ResourceExhausted,
            "Too many operations: cluster hits the concurrent operations quota 5, please try again later.",
        ),
        // The form of every Google API, as in GoogleCloudPlatform/python-docs-samples issue 3482.
        (429, _) => Refusal::new(
            Code::ResourceExhausted,
            format!(
                "Quota exceeded for quota metric '{0} requests' and limit '{0} requests per minute' of service \
                 'container.googleapis.com' for consumer 'project_number:123456789'.",
                if method == "GET" { "Read" } else { "Write" }
            ),
        ),
        (500, _) => Refusal::new(Code::Internal, "Internal error encountered."),
        (503, _) => Refusal::new(Code::Unavailable, "The service is currently unavailable."),
        (504, _) => Refusal::new(Code::DeadlineExceeded, "Deadline expired before operation could complete."),
        _ => Refusal::invalid("Request contains an invalid argument."),
    };
    let mut refusal = usual;
    refusal.message = message.clone().unwrap_or(refusal.message);
    let mut body = refusal.body(number);
    // A code without an error of its own keeps its number.
    body["error"]["code"] = Value::from(*code);
    let text = serde_json::to_string_pretty(&body).unwrap_or_default();
    respond(*code, "application/json; charset=UTF-8", text)
}

/// Returns the resource of a request and the permission that it needs. Source of the names: GKE's list of permissions.
fn subject(method: &str, path: &str) -> (String, &'static str) {
    let project = |project: &str| format!("projects/{project}");
    match (method, path::parse(path)) {
        ("GET", Some(Target::Clusters { project: name, .. })) => (project(&name), "container.clusters.list"),
        (_, Some(Target::Clusters { project: name, .. })) => (project(&name), "container.clusters.create"),
        ("GET", Some(Target::Operation { project: name, .. })) => {
            (project(&name), "container.operations.get")
        }
        (_, Some(Target::Operations { project: name, .. } | Target::Operation { project: name, .. })) => {
            (project(&name), "container.operations.list")
        }
        ("DELETE", Some(Target::Cluster { id, .. })) => (id.link(), "container.clusters.delete"),
        ("GET", Some(Target::Pool { id, pool, .. })) => (of_pool(&id, &pool), "container.clusters.get"),
        (_, Some(Target::Pool { id, pool, .. })) => (of_pool(&id, &pool), "container.clusters.update"),
        (verb, Some(Target::Cluster { id, .. } | Target::Pools { id } | Target::Keys { id })) => {
            (id.link(), if verb == "GET" { "container.clusters.get" } else { "container.clusters.update" })
        }
        (_, Some(Target::ComputeProject { project: name })) => (project(&name), "compute.projects.get"),
        (_, Some(Target::Offer { project: name, machine: true, .. })) => {
            (project(&name), "compute.machineTypes.get")
        }
        (_, Some(Target::Offer { project: name, .. })) => (project(&name), "compute.acceleratorTypes.get"),
        (_, Some(Target::Policy { project: name, .. })) => (project(&name), "orgpolicy.policy.get"),
        (_, Some(Target::Project { project: name, .. })) => (project(&name), "resourcemanager.projects.get"),
        (
            _,
            Some(
                Target::ServerConfig { .. }
                | Target::UsableSubnetworks { .. }
                | Target::Service { .. }
                | Target::InstanceGroup { .. }
                | Target::Places { .. }
                | Target::Collection { .. },
            )
            | None,
        ) => (path.trim_start_matches('/').to_owned(), "container.clusters.get"),
    }
}

fn of_pool(id: &ClusterId, pool: &str) -> String {
    format!("{}/nodePools/{pool}", id.link())
}

fn kubernetes(method: &str, path: &str, refuse: &Refuse) -> Response<Body> {
    let Refuse { code, reason, message } = refuse;
    let place = Place::parse(path).unwrap_or_default();
    let Place { group, resource, name, .. } = &place;
    if (*code, message) == (429, &None) {
        // API priority and fairness answers with text. Source: the filters of k8s.io/apiserver.
        let text = "Too many requests, please try again later.\n".to_owned();
        let mut response = respond(429, "text/plain; charset=utf-8", text);
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        return response;
    }
    let plain = |reason: &str, message: &str| Status {
        code: *code,
        reason: reason.to_owned(),
        message: message.to_owned(),
        ..Status::default()
    };
    // The wordings are those of k8s.io/apimachinery's api/errors.
    let mut status = match (*code, reason.as_deref()) {
        (401, _) => plain("Unauthorized", "Unauthorized"),
        (403, _) => Status::forbidden(group, resource, name, &forbidden(method, &place)),
        (404, _) => Status::not_found(group, resource, name),
        (409, Some("AlreadyExists")) => Status::already_exists(group, resource, name),
        (409, _) => Status::conflict(
            group,
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        ),
        (410, _) => Status::expired("The provided resourceVersion is too old."),
        (422, _) => Status::invalid(group, resource, name, Vec::new()),
        (500, _) => Status::internal("Internal error occurred: etcdserver: request timed out"),
        (503, _) => plain("ServiceUnavailable", "the server is currently unable to handle the request"),
        (504, _) => plain("Timeout", "Timeout: request did not complete within the allotted timeout"),
        (400, _) => Status::bad_request("the server rejected our request for an unknown reason"),
        _ => plain("", &format!("the server responded with the status code {code}")),
    };
    if let Some(message) = message {
        status.message.clone_from(message);
    }
    respond(*code, "application/json", status.body().to_string())
}

/// `User "…" cannot patch resource "pods" in API group "" in the namespace "n"`.
fn forbidden(method: &str, place: &Place) -> String {
    let Place { group, namespace, resource, name, .. } = place;
    let verb = match (method, name.is_empty()) {
        ("GET", true) => "list",
        ("GET", false) => "get",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("DELETE", true) => "deletecollection",
        ("DELETE", false) => "delete",
        _ => "patch",
    };
    let scope = if namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace \"{namespace}\"")
    };
    format!("User \"sandbox\" cannot {verb} resource \"{resource}\" in API group \"{group}\" {scope}")
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use serde_json::json;

    use super::*;

    async fn body(response: Response<Body>) -> (u16, String, String) {
        let (parts, body) = response.into_parts();
        let content = parts.headers[header::CONTENT_TYPE].to_str().expect("text").to_owned();
        let bytes = body.collect().await.expect("a body").to_bytes();
        (parts.status.as_u16(), content, String::from_utf8_lossy(&bytes).into_owned())
    }

    async fn answered(side: Side, method: &str, path: &str, code: u16, reason: Option<&str>) -> Value {
        let refuse = Refuse { reason: reason.map(str::to_owned), ..Refuse::with(code) };
        let (status, _, text) = body(refusal(side, method, path, &refuse, 7)).await;
        assert_eq!(status, code, "{text}");
        serde_json::from_str(&text).unwrap_or(Value::String(text))
    }

    const CLUSTER: &str = "/v1/projects/p/locations/us-central1-c/clusters/c";

    /// Method, path, code, reason asked for; canonical status, legacy reason, beginning of the message.
    type Row<'a> = (&'a str, &'a str, u16, Option<&'a str>, &'a str, &'a str, String);

    #[tokio::test]
    async fn gke_refuses_in_its_own_shape() {
        let pools = format!("{CLUSTER}/nodePools");
        let link = "projects/p/zones/us-central1-c/clusters/c";
        let rows: &[Row<'_>] = &[
            ("GET", CLUSTER, 401, None, "UNAUTHENTICATED", "authError", "Request had invalid".into()),
            (
                "POST",
                "/v1/projects/p/locations/us-central1-c/clusters",
                403,
                None,
                "PERMISSION_DENIED",
                "forbidden",
                "Required \"container.clusters.create\" permission(s) for \"projects/p\".".into(),
            ),
            (
                "DELETE",
                CLUSTER,
                403,
                None,
                "PERMISSION_DENIED",
                "forbidden",
                format!("Required \"container.clusters.delete\" permission(s) for \"{link}\"."),
            ),
            ("GET", CLUSTER, 404, None, "NOT_FOUND", "notFound", format!("Not found: {link}.")),
            ("POST", CLUSTER, 409, None, "ALREADY_EXISTS", "alreadyExists", "Already exists: ".into()),
            ("PUT", CLUSTER, 409, Some("ABORTED"), "ABORTED", "aborted", "The etag".into()),
            ("PUT", CLUSTER, 412, None, "FAILED_PRECONDITION", "conditionNotMet", "Precondition".into()),
            (
                "POST",
                &pools,
                400,
                Some("CLUSTER_ALREADY_HAS_OPERATION"),
                "FAILED_PRECONDITION",
                "failedPrecondition",
                "Cluster is running incompatible operation operation-7.".into(),
            ),
            (
                "POST",
                &pools,
                429,
                None,
                "RESOURCE_EXHAUSTED",
                "rateLimitExceeded",
                "Quota exceeded for quota metric 'Write requests'".into(),
            ),
            ("GET", CLUSTER, 500, None, "INTERNAL", "backendError", "Internal error".into()),
            ("GET", CLUSTER, 503, None, "UNAVAILABLE", "backendError", "The service is".into()),
            ("GET", CLUSTER, 504, None, "DEADLINE_EXCEEDED", "backendError", "Deadline".into()),
        ];
        for (method, path, code, reason, status, legacy, message) in rows {
            let error = answered(Side::Gke, method, path, *code, *reason).await["error"].clone();
            assert_eq!((&error["code"], &error["status"]), (&json!(code), &json!(status)), "{error}");
            assert_eq!(error["errors"][0]["reason"], *legacy, "{error}");
            assert_eq!(error["errors"][0]["message"], error["message"]);
            assert!(error["message"].as_str().is_some_and(|text| text.starts_with(message)), "{error}");
        }
    }

    #[tokio::test]
    async fn kubernetes_refuses_with_a_status() {
        let path = "/apis/apps/v1/namespaces/n/deployments/d";
        let rows: &[(u16, Option<&str>, &str, &str)] = &[
            (401, None, "Unauthorized", "Unauthorized"),
            (
                403,
                None,
                "Forbidden",
                "deployments.apps \"d\" is forbidden: User \"sandbox\" cannot patch resource \"deployments\" in API \
                 group \"apps\" in the namespace \"n\"",
            ),
            (404, None, "NotFound", "deployments.apps \"d\" not found"),
            (409, None, "Conflict", "Operation cannot be fulfilled on deployments.apps \"d\": the object"),
            (409, Some("AlreadyExists"), "AlreadyExists", "deployments.apps \"d\" already exists"),
            (500, None, "InternalError", "Internal error occurred: "),
            (503, None, "ServiceUnavailable", "the server is currently unable"),
            (504, None, "Timeout", "Timeout: "),
        ];
        for (code, reason, word, message) in rows {
            let status = answered(Side::Kubernetes, "PATCH", path, *code, *reason).await;
            assert_eq!((&status["kind"], &status["reason"]), (&json!("Status"), &json!(word)), "{status}");
            assert_eq!(status["code"], *code);
            assert!(status["message"].as_str().is_some_and(|text| text.starts_with(message)), "{status}");
        }
    }

    #[tokio::test]
    async fn some_errors_are_no_json() {
        let (code, content, text) = body(refusal(Side::Gke, "GET", CLUSTER, &Refuse::with(502), 1)).await;
        assert!(code == 502 && content.starts_with("text/html") && text.starts_with("<!DOCTYPE"), "{text}");
        let response = refusal(Side::Kubernetes, "GET", "/api/v1/pods", &Refuse::with(429), 1);
        assert_eq!(response.headers()[header::RETRY_AFTER], "1");
        assert!(body(response).await.1.starts_with("text/plain"));
    }

    #[tokio::test]
    async fn words_of_ones_own_replace_the_usual_ones() {
        let refuse = Refuse { message: Some("no".to_owned()), ..Refuse::with(403) };
        for side in [Side::Gke, Side::Kubernetes] {
            let (code, _, text) = body(refusal(side, "GET", "/api/v1/pods", &refuse, 1)).await;
            assert!(code == 403 && text.contains("\"no\"") && !text.contains("forbidden: "), "{text}");
        }
    }
}
