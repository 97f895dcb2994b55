//! GKE's work on a cluster while its Kubernetes API does not answer, or while GKE refuses a request without naming the operation
//! that is in the way. A zonal control plane is unavailable for minutes while GKE upgrades, repairs or resizes it, which GKE also
//! starts by itself. Waiting helps.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::operations::{self, OPERATION, running_operation};
use live::{ApiError, ErrorClass, LiveApi, Request};
use model::resource::{Api, ClusterName};

/// How long a control plane may be unavailable while GKE works on the cluster.
pub const CONTROL_PLANE_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// How long after its creation a cluster may refuse tokens.
const TOKEN_DELAY: jiff::SignedDuration = jiff::SignedDuration::from_secs(10 * 60);
/// The pause between two tries.
pub const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// Work of GKE that apply waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GkeWork {
    pub operation: Option<String>,
    pub message: String,
    /// How long apply waits for it.
    pub at_most: Duration,
}

/// The time since GKE's work first blocked a request.
#[derive(Debug, Default)]
pub struct Stopwatch(Option<Instant>);

impl Stopwatch {
    /// Returns the time since the first call of this function.
    pub fn elapsed(&mut self) -> Duration {
        self.0.get_or_insert_with(Instant::now).elapsed()
    }
}

/// Returns the work of GKE that explains an error; `None` if waiting does not help.
pub async fn blocking_work(
    api: &dyn LiveApi,
    cluster: Option<&ClusterName>,
    api_kind: Api,
    error: &ApiError,
) -> Option<GkeWork> {
    let cluster = cluster?;
    match symptom(api_kind, error)? {
        Symptom::Unreachable => work_on(api, cluster).await,
        Symptom::Refused => match work_on(api, cluster).await {
            Some(work) => Some(work),
            None => is_new(api, cluster).await,
        },
        Symptom::Unnamed => {
            let (operation, work) = running(api, cluster).await?;
            let message = format!("GKE is {work}");
            Some(GkeWork { operation: Some(operation), message, at_most: OPERATION })
        }
    }
}

/// Returns the name and the description of the operation that is running on a cluster.
async fn running(api: &dyn LiveApi, cluster: &ClusterName) -> Option<(String, String)> {
    let operation = running_operation(api, &format!("/v1/{}", cluster.path()), None).await?;
    Some((operation["name"].as_str()?.to_owned(), operations::describe(&operation)))
}

/// Returns a running operation, or the cluster's own status.
async fn work_on(api: &dyn LiveApi, cluster: &ClusterName) -> Option<GkeWork> {
    if let Some((operation, work)) = running(api, cluster).await {
        let message = format!("the control plane does not answer while GKE is {work}");
        return Some(GkeWork { operation: Some(operation), message, at_most: CONTROL_PLANE_TIMEOUT });
    }
    let live = api.send(Request::get(Api::Gke, format!("/v1/{}", cluster.path()))).await.ok()?;
    let status = live["status"].as_str().filter(|status| ["RECONCILING", "PROVISIONING"].contains(status))?;
    let message = format!("the control plane does not answer; the cluster's status is {status}");
    Some(GkeWork { operation: None, message, at_most: CONTROL_PLANE_TIMEOUT })
}

/// Returns the work if the cluster is new: the authenticator of a new cluster starts after its API.
async fn is_new(api: &dyn LiveApi, cluster: &ClusterName) -> Option<GkeWork> {
    let live = api.send(Request::get(Api::Gke, format!("/v1/{}", cluster.path()))).await.ok()?;
    let made: jiff::Timestamp = live["createTime"].as_str()?.parse().ok()?;
    let age = jiff::Timestamp::now().duration_since(made);
    let message = "the new cluster does not accept credentials yet".to_owned();
    (age < TOKEN_DELAY).then_some(GkeWork { operation: None, message, at_most: CONTROL_PLANE_TIMEOUT })
}

/// Kinds of errors that GKE's work may cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Symptom {
    /// The Kubernetes API does not answer.
    Unreachable,
    /// The Kubernetes API answers, but does not accept any token.
    Refused,
    /// GKE refuses the request because of the cluster's state, without naming an operation.
    Unnamed,
}

fn symptom(api: Api, error: &ApiError) -> Option<Symptom> {
    let state = error.body.as_ref().and_then(|body| body.pointer("/error/status")).and_then(Value::as_str);
    match (api, error.class) {
        _ if error.is_webhook() => None,
        // The lock is in the cluster.
        (_, ErrorClass::LockUnsure) => Some(Symptom::Unreachable),
        (Api::Kubernetes, ErrorClass::Unavailable | ErrorClass::Lost) if error.status != Some(500) => {
            Some(Symptom::Unreachable)
        }
        (Api::Kubernetes, ErrorClass::Unauthenticated) if error.status == Some(401) => Some(Symptom::Refused),
        (Api::Gke, ErrorClass::Invalid) if state == Some("FAILED_PRECONDITION") => Some(Symptom::Unnamed),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_work_on_the_cluster_can_cause_is_waited_for() {
        let precondition = json!({ "error": { "status": "FAILED_PRECONDITION" } });
        let rows = [
            (Api::Kubernetes, ErrorClass::Unavailable, None, None, Some(Symptom::Unreachable)),
            (Api::Kubernetes, ErrorClass::Lost, Some(504), None, Some(Symptom::Unreachable)),
            (Api::Kubernetes, ErrorClass::Unavailable, Some(500), None, None),
            (Api::Kubernetes, ErrorClass::Unauthenticated, Some(401), None, Some(Symptom::Refused)),
            (Api::Kubernetes, ErrorClass::Unauthenticated, None, None, None),
            (Api::Kubernetes, ErrorClass::Denied, Some(403), None, None),
            (Api::Kubernetes, ErrorClass::Untrusted, None, None, None),
            (Api::Gke, ErrorClass::Invalid, Some(400), Some(&precondition), Some(Symptom::Unnamed)),
            (Api::Gke, ErrorClass::Invalid, Some(400), None, None),
            (Api::Gke, ErrorClass::Unavailable, None, None, None),
            (Api::Gke, ErrorClass::LockUnsure, None, None, Some(Symptom::Unreachable)),
        ];
        for (api, class, status, body, expect) in rows {
            let request = Request::get(api, "/x");
            let error = ApiError { status, body: body.cloned(), ..request.failed(class, "no") };
            assert_eq!(symptom(api, &error), expect, "{api:?} {class:?} {status:?}");
        }
    }
}
