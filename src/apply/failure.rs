//! Why a change did not succeed, in words for the user: what, why, and what to do next.

use std::time::Duration;

use super::Outcome;
use crate::live::{ApiError, Class};

/// Codes of what can go wrong during apply, one line each for the table of codes.
pub const CODES: &[(&str, &str)] = &[
    ("DI0401", "a request was refused as wrong"),
    ("DI0402", "a GKE operation ended with an error"),
    ("DI0403", "a thing will not become ready without help"),
    ("DI0404", "a check did not pass"),
    ("DI0405", "what the plan makes was made by somebody else"),
    ("DI0406", "a field is owned, or was changed, by somebody else"),
    ("DI0407", "a permission is missing"),
    ("DI0408", "a quota does not suffice"),
    ("DI0409", "an API did not answer, or did not take the request, for too long"),
    ("DI0410", "the record of the apply could not be written"),
    ("DI0411", "there are no valid credentials"),
    ("DI0412", "something that the plan relies on is not there"),
    ("DI0413", "the plan itself cannot be applied"),
];

/// A failure with its code.
pub fn failed(code: &str, message: impl Into<String>, help: Option<&str>) -> Outcome {
    Outcome::Failed { code: code.to_owned(), message: message.into(), help: help.map(str::to_owned) }
}

/// A refused or lost request.
pub fn of_request(error: &ApiError) -> Outcome {
    let message = error.to_string();
    let again = Some("see what is live with `dask-infra plan`, then apply again");
    match error.class {
        Class::Unauthenticated => failed("DI0411", message, Some("log in again, then apply again")),
        Class::Denied => {
            failed("DI0407", message, Some("ask for the permission that the message names, then apply again"))
        }
        Class::Quota => {
            failed("DI0408", message, Some("ask for more quota, or use another region or machine type"))
        }
        Class::Conflict => conflict(error),
        Class::AlreadyExists => failed("DI0405", message, again),
        Class::NotFound => failed("DI0412", message, again),
        Class::Busy | Class::Throttled | Class::Unavailable | Class::Lost => failed("DI0409", message, again),
        Class::Invalid | Class::Other => failed("DI0401", message, None),
    }
}

/// Others own a field, or the thing is not what it was when it was planned.
fn conflict(error: &ApiError) -> Outcome {
    let managers = error.conflicts();
    if managers.is_empty() {
        let help = "it changed after it was planned: plan again, then apply";
        return failed("DI0406", error.to_string(), Some(help));
    }
    let owned = managers.iter().map(|(manager, fields)| format!("{manager} owns {}", fields.join(", ")));
    let owned: Vec<String> = owned.collect();
    let help = "take the field out of the stack, or have that manager give it up";
    failed("DI0406", format!("{}: {}", error.request, owned.join("; ")), Some(help))
}

/// A GKE operation that ended with an error.
pub fn of_operation(operation: &str, kind: &str, why: &str) -> Outcome {
    let words = why.to_ascii_lowercase();
    let help = if words.contains("stockout") || words.contains("resource_pool_exhausted") {
        "the zone has no such machines now: use another zone, `spot = true`, or apply again later"
    } else if words.contains("quota") {
        "ask for more quota, or use another region or machine type"
    } else {
        "see what it left behind with `dask-infra plan`, then apply again"
    };
    failed("DI0402", format!("{operation} ({kind}) failed: {why}"), Some(help))
}

/// `90 s`, `30 min`: limits as people say them.
pub fn brief(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..=119 => format!("{seconds} s"),
        _ => format!("{} min", seconds / 60),
    }
}
