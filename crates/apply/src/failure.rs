//! Failures of changes as messages for the user: what failed, why, and what to do next.

use std::time::Duration;

use serde_json::Value;

use crate::Outcome;
use crate::gke_errors::{self, GkeError};
use live::denial::{DenialCause, project_of};
use live::{ApiError, ErrorClass, SOMETHING_ELSE};
use model::diag::Code;

pub fn failed(code: Code, message: impl Into<String>, help: Option<&str>) -> Outcome {
    Outcome::Failed { code: code.as_str().to_owned(), message: message.into(), help: help.map(str::to_owned) }
}

/// Returns the failure of a refused or lost request.
pub fn request_failure(error: &ApiError) -> Outcome {
    let message = error.to_string();
    let again = Some("plan again to see what is live, then apply");
    match error.class {
        ErrorClass::Unauthenticated => failed(
            Code::Credentials,
            message,
            Some(error.remedy().unwrap_or("log in again, then apply again")),
        ),
        ErrorClass::Untrusted => failed(Code::Interception, message, error.remedy()),
        ErrorClass::Denied => denied(error),
        ErrorClass::Quota => {
            let help = gke_remedy(error);
            let plain = "request more quota, or use another region or machine type";
            failed(Code::Quota, message, Some(help.as_deref().unwrap_or(plain)))
        }
        ErrorClass::Conflict => conflict(error),
        ErrorClass::AlreadyExists => failed(Code::MadeByOthers, message, again),
        ErrorClass::NotFound => failed(Code::Missing, message, again),
        ErrorClass::Unavailable if error.proxy().is_some() => {
            failed(Code::Interception, message, error.remedy())
        }
        ErrorClass::Busy
        | ErrorClass::Throttled
        | ErrorClass::Unavailable
        | ErrorClass::LockUnsure
        | ErrorClass::Lost => failed(Code::NoAnswer, message, again),
        ErrorClass::Unreadable | ErrorClass::TooLarge => {
            failed(Code::NoAnswer, message, Some(SOMETHING_ELSE))
        }
        ErrorClass::Invalid | ErrorClass::Other => {
            failed(Code::Refused, message, gke_remedy(error).as_deref())
        }
    }
}

/// Returns the failure for a project or credentials that lack something, with the command that fixes it if the API names one.
fn denied(error: &ApiError) -> Outcome {
    let project = project_of(&error.request);
    match DenialCause::from_error(error.body.as_ref(), &error.message) {
        Some(cause) => {
            let what = format!("{}: {}", cause.what(project), error.request);
            let narrower =
                matches!(cause, DenialCause::OrgPolicy { .. }).then(|| gke_remedy(error)).flatten();
            failed(denial_code(&cause), what, Some(&narrower.unwrap_or_else(|| cause.remedy(project))))
        }
        None => {
            // Source: Kubernetes' words on RBAC, and GKE's on what its roles lack.
            let rbac =
                ["rbac.authorization.k8s.io", "clusterroles", "attempting to grant", "container.clusterRole"];
            let help = match rbac.iter().any(|word| error.message.contains(word)) {
                true => Some(
                    "objects of RBAC need cluster-admin, on GKE roles/container.admin: `dask-infra permissions` lists what the \
                     stack needs"
                        .to_owned(),
                ),
                false => gke_remedy(error),
            };
            let plain = "request the permission named in the message, then apply again";
            failed(Code::Denied, error.to_string(), Some(help.as_deref().unwrap_or(plain)))
        }
    }
}

/// Returns the diagnostic code for a denial.
pub fn denial_code(cause: &DenialCause) -> Code {
    match cause {
        DenialCause::ApiDisabled { .. } => Code::ApiDisabled,
        DenialCause::NoQuotaProject { .. } | DenialCause::QuotaProject { .. } => Code::QuotaProject,
        DenialCause::NoProject => Code::NoProject,
        DenialCause::Billing { .. } => Code::Billing,
        DenialCause::Scopes => Code::Credentials,
        DenialCause::OrgPolicy { .. } => Code::OrgPolicy,
    }
}

/// Returns the failure for a field that another manager owns, or a resource that has changed since the plan.
fn conflict(error: &ApiError) -> Outcome {
    let managers = error.conflicts();
    if managers.is_empty() {
        let help = "it changed after the plan was made: plan again, then apply";
        return failed(Code::ChangedByOthers, error.to_string(), Some(help));
    }
    let owned = managers.iter().map(|(manager, fields)| format!("{manager} owns {}", fields.join(", ")));
    let owned: Vec<String> = owned.collect();
    let help = "remove the field from the stack file, or have that manager release it";
    failed(Code::ChangedByOthers, format!("{}: {}", error.request, owned.join("; ")), Some(help))
}

/// Returns the failure of a GKE operation that ended with an error.
pub fn operation_failure(operation: &str, kind: &str, gke_error: &GkeError, project: &str) -> Outcome {
    let help = gke_errors::remedy(gke_error, project);
    let help = help.as_deref().unwrap_or("plan again to see what it left behind, then apply");
    failed(Code::OperationFailed, format!("{operation} ({kind}) failed: {}", gke_error.text), Some(help))
}

/// Returns the remedy for a request that GKE refused.
fn gke_remedy(error: &ApiError) -> Option<String> {
    let body = error.body.as_ref().unwrap_or(&Value::Null);
    gke_errors::remedy(
        &GkeError::from_text(error.message.as_str()).with_codes_of(body),
        project_of(&error.request),
    )
}

/// Formats a duration: `90 s`, `30 min`.
pub fn brief(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..=119 => format!("{seconds} s"),
        _ => format!("{} min", seconds / 60),
    }
}
