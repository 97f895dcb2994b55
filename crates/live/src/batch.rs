//! Parallel reads with independent results.

use futures::StreamExt as _;
use futures::stream;
use serde_json::Value;

use crate::retry::get;
use crate::{ApiError, ErrorClass, LiveApi, Request};
use model::resource::Query;

/// Returns the result of each query, in the order of the queries; `null` for an object that does not exist.
pub async fn read_queries(
    api: &dyn LiveApi,
    queries: Vec<Query>,
    parallelism: usize,
) -> Vec<Result<Value, ApiError>> {
    let one = |query: Query| async move {
        match get(api, Request::get(query.api, query.path)).await {
            Err(error) if error.class == ErrorClass::NotFound => Ok(Value::Null),
            result => result,
        }
    };
    stream::iter(queries).map(one).buffered(parallelism.max(1)).collect().await
}
