//! How GKE refuses: HTTP code, canonical status, the list that old clients read and the typed details.
//! Shapes and wordings are those of published exchanges and threads; the ones marked "from memory" are not.

use serde_json::{Value, json};

const DOMAIN: &str = "container.googleapis.com";

/// A canonical status with the HTTP code and the legacy reason that go with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// 400, the request is wrong whatever the state is.
    InvalidArgument,
    /// 400, the request cannot be done now.
    FailedPrecondition,
    /// 401, nobody knows who asks. The wording is from memory.
    Unauthenticated,
    /// 403.
    PermissionDenied,
    /// 404.
    NotFound,
    /// 409, something of that name exists.
    AlreadyExists,
    /// 409, the caller acts on an old version. The HTTP number is from memory.
    Aborted,
    /// 412, a condition of the caller's does not hold: the general form of Google's APIs, from memory; GKE itself
    /// says 400 or 409.
    ConditionNotMet,
    /// 429.
    ResourceExhausted,
    /// 500. The wording is from memory.
    Internal,
    /// 503. The wording is from memory.
    Unavailable,
    /// 504, it took too long and may still be done. The wording is from memory.
    DeadlineExceeded,
    /// 501, a part of GKE that the sandbox does not have.
    Unimplemented,
}

impl Code {
    pub fn http(self) -> u16 {
        match self {
            Self::InvalidArgument | Self::FailedPrecondition => 400,
            Self::Unauthenticated => 401,
            Self::PermissionDenied => 403,
            Self::NotFound => 404,
            Self::AlreadyExists | Self::Aborted => 409,
            Self::ConditionNotMet => 412,
            Self::ResourceExhausted => 429,
            Self::Internal => 500,
            Self::Unavailable => 503,
            Self::DeadlineExceeded => 504,
            Self::Unimplemented => 501,
        }
    }

    /// The canonical name, `NOT_FOUND`.
    pub fn status(self) -> &'static str {
        match self {
            Self::InvalidArgument => "INVALID_ARGUMENT",
            Self::FailedPrecondition | Self::ConditionNotMet => "FAILED_PRECONDITION",
            Self::Unauthenticated => "UNAUTHENTICATED",
            Self::PermissionDenied => "PERMISSION_DENIED",
            Self::NotFound => "NOT_FOUND",
            Self::AlreadyExists => "ALREADY_EXISTS",
            Self::Aborted => "ABORTED",
            Self::ResourceExhausted => "RESOURCE_EXHAUSTED",
            Self::Internal => "INTERNAL",
            Self::Unavailable => "UNAVAILABLE",
            Self::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Self::Unimplemented => "UNIMPLEMENTED",
        }
    }

    fn reason(self) -> &'static str {
        match self {
            Self::InvalidArgument => "badRequest",
            Self::FailedPrecondition => "failedPrecondition",
            Self::Unauthenticated => "authError",
            Self::PermissionDenied => "forbidden",
            Self::NotFound => "notFound",
            Self::AlreadyExists => "alreadyExists",
            Self::Aborted => "aborted",
            Self::ConditionNotMet => "conditionNotMet",
            Self::ResourceExhausted => "rateLimitExceeded",
            Self::Internal | Self::Unavailable | Self::DeadlineExceeded => "backendError",
            Self::Unimplemented => "notImplemented",
        }
    }
}

/// One refused field of a request body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Path in the words of the protocol, `cluster.node_pools[0].config`.
    pub field: String,
    /// The problem with it, as a whole sentence.
    pub description: String,
}

/// A refusal, ready to be rendered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Status and HTTP code.
    pub code: Code,
    /// The text that every client shows.
    pub message: String,
    info: Option<&'static str>,
    violations: Vec<Violation>,
}

impl Refusal {
    /// A refusal without typed details but the request's id.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), info: None, violations: Vec::new() }
    }

    /// 400 INVALID_ARGUMENT.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    /// 404 in GKE's words: `Not found: projects/P/zones/Z/clusters/C.`
    pub fn not_found(what: impl std::fmt::Display) -> Self {
        Self::new(Code::NotFound, format!("Not found: {what}."))
    }

    /// 409. The wording is from memory.
    pub fn exists(what: impl std::fmt::Display) -> Self {
        Self::new(Code::AlreadyExists, format!("Already exists: {what}."))
    }

    /// The cluster, or the pool, is busy with `operation`; clients wait and try again.
    pub fn busy(operation: &str) -> Self {
        let message = format!("Cluster is running incompatible operation {operation}.");
        let mut refusal = Self::new(Code::FailedPrecondition, message);
        refusal.info = Some("CLUSTER_ALREADY_HAS_OPERATION");
        refusal
    }

    /// A body that does not fit its message; the first sentence of each violation makes the text.
    pub fn bad_body(violations: Vec<Violation>) -> Self {
        let lines: Vec<&str> = violations.iter().map(|violation| violation.description.as_str()).collect();
        let mut refusal = Self::invalid(lines.join("\n"));
        refusal.violations = violations;
        refusal
    }

    /// The JSON body; `request` is the id that the details carry.
    pub fn body(&self, request: u64) -> Value {
        let Self { code, message, info, violations } = self;
        let mut details = Vec::new();
        if let Some(reason) = info {
            details.push(json!({
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": reason, "domain": DOMAIN, "metadata": {},
            }));
        }
        if violations.is_empty() {
            let id = format!("0x{request:x}");
            details.push(json!({ "@type": "type.googleapis.com/google.rpc.RequestInfo", "requestId": id }));
        } else {
            let fields: Vec<Value> = violations
                .iter()
                .map(|Violation { field, description }| json!({ "field": field, "description": description }))
                .collect();
            details.push(
                json!({ "@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": fields }),
            );
        }
        json!({ "error": {
            "code": code.http(),
            "message": message,
            "status": code.status(),
            "errors": [{ "message": message, "domain": "global", "reason": code.reason() }],
            "details": details,
        }})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_cluster_is_told_in_three_places() {
        let body = Refusal::busy("operation-1").body(7);
        assert_eq!(body["error"]["code"], 400);
        assert_eq!(body["error"]["status"], "FAILED_PRECONDITION");
        assert_eq!(body["error"]["errors"][0]["reason"], "failedPrecondition");
        assert_eq!(body["error"]["details"][0]["reason"], "CLUSTER_ALREADY_HAS_OPERATION");
        assert_eq!(body["error"]["details"][1]["requestId"], "0x7");
    }
}
