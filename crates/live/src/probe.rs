//! A read without retries, for waits, which retry themselves, and for commands that only show state.

use std::time::Duration;

use serde_json::Value;

use crate::{ApiError, ErrorClass, LiveApi, Request};
use model::resource::Query;

/// The timeout of a response through the API server's proxy. It is short, because the caller reads other things, too.
const PROXY_TIMEOUT: Duration = Duration::from_secs(3);

/// Returns the result of a query; `null` if the object does not exist. A target behind the API server's proxy may be off,
/// unreachable or forbidden while the API server works. Then the result is the reason, as text.
///
/// # Errors
///
/// The API itself does not answer, or refuses.
pub async fn probe(api: &dyn LiveApi, query: &Query) -> Result<Value, ApiError> {
    let answer = api.send(Request::get(query.api, &query.path));
    if query.is_proxied() {
        // Where the API server does not reach pods, it says so only when its own dialling has timed out.
        return Ok(match tokio::time::timeout(PROXY_TIMEOUT, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => Value::String(proxy_failure(&error)),
            Err(_) => Value::String("it does not answer".to_owned()),
        });
    }
    match answer.await {
        Err(error) if error.class == ErrorClass::NotFound => Ok(Value::Null),
        result => result,
    }
}

fn proxy_failure(error: &ApiError) -> String {
    // The API server's own 404 is a Status; a scheduler's is a page.
    let of_server = error.body.as_ref().is_some_and(|body| body["kind"] == "Status");
    match error.class {
        ErrorClass::NotFound if of_server => "its Service does not exist".to_owned(),
        ErrorClass::NotFound => "it serves no /json/counts.json".to_owned(),
        ErrorClass::Denied => "no permission to `get` `services/proxy`".to_owned(),
        _ => "it does not answer".to_owned(),
    }
}
