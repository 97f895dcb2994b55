//! Whether a cluster serves a kind, by its own list of kinds: the only word that makes a path that is not there mean
//! that nothing of its kind is there. A 404 for a path alone may come from anything between here and the API.

use serde_json::Value;

use super::retry::get;
use super::shape::Place;
use super::{ApiError, Class, LiveApi, Request};
use crate::resource::Api;

/// A group that every cluster serves: a list of groups without it is not that of a cluster.
const EVERYWHERE: &str = "apps";

/// Whether the cluster says that it does not serve the kind of a path.
///
/// # Errors
/// It does not say, or it says that it does serve it.
pub async fn lacks(api: &dyn LiveApi, refused: &ApiError, path: &str) -> Result<bool, ApiError> {
    let Some(Place { api_version, plural, .. }) = Place::of_path(path) else { return Ok(false) };
    let Some((group, version)) = api_version.split_once('/') else { return Ok(false) };
    if !versions(api, group).await?.iter().any(|served| served == version) {
        return Ok(true);
    }
    let kinds = get(api, Request::get(Api::Kubernetes, format!("/apis/{api_version}"))).await?;
    if items(&kinds, "resources").any(|kind| kind["name"] == plural) {
        return Err(ApiError { class: Class::Unreadable, ..refused.clone() });
    }
    Ok(true)
}

/// Versions that the cluster says it serves a group in, the preferred one first; none when it does not serve the group.
///
/// # Errors
/// It does not say.
pub async fn versions(api: &dyn LiveApi, group: &str) -> Result<Vec<String>, ApiError> {
    let request = Request::get(Api::Kubernetes, "/apis");
    let groups = get(api, request.clone()).await?;
    let named = |name: &str| items(&groups, "groups").find(|group| group["name"] == name);
    if named(EVERYWHERE).is_none() {
        return Err(request.failed(Class::Unreadable, format!("its list of groups has no `{EVERYWHERE}`")));
    }
    let versions = named(group).into_iter().flat_map(|group| items(group, "versions"));
    Ok(versions.filter_map(|served| served["version"].as_str().map(str::to_owned)).collect())
}

fn items<'v>(value: &'v Value, field: &str) -> impl Iterator<Item = &'v Value> {
    value[field].as_array().into_iter().flatten()
}
