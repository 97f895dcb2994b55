//! API discovery. Only discovery proves that a 404 means "kind not served": the 404 itself may come from a proxy in front of the
//! API.
//!
//! A server with aggregated discovery (Kubernetes 1.30 and later) returns all of it in its response to `/apis`; for others each
//! group is read. Source: <https://kubernetes.io/docs/concepts/overview/kubernetes-api/#aggregated-discovery>.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::retry::get;
use crate::shape::ApiPath;
use crate::{ApiError, ErrorClass, LiveApi, Request};
use model::resource::{Api, Gvk};

/// A group that every cluster serves. A list of groups without it does not come from a cluster.
const COMMON_GROUP: &str = "apps";

/// An API group in discovery.
pub(crate) struct Group {
    pub name: String,
    /// The versions, the preferred one first.
    pub versions: Vec<Version>,
}

pub(crate) struct Version {
    pub group: String,
    pub name: String,
    /// The kinds; `None` if they have to be read.
    kinds: Option<Vec<Served>>,
}

/// A kind that is served.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Served {
    pub gvk: Gvk,
    pub namespaced: bool,
    /// True if its objects can be listed.
    pub listable: bool,
    /// True if its objects can be applied.
    pub appliable: bool,
}

impl Version {
    /// Returns true if its kinds are known already.
    pub fn has_kinds(&self) -> bool {
        self.kinds.is_some()
    }

    pub fn new(group: &str, name: &str) -> Self {
        Self { group: group.to_owned(), name: name.to_owned(), kinds: None }
    }

    /// Returns the kinds of the group.
    ///
    /// # Errors
    ///
    /// Discovery fails.
    pub async fn kinds(self, api: &dyn LiveApi) -> Result<Vec<Served>, ApiError> {
        if let Some(kinds) = self.kinds {
            return Ok(kinds);
        }
        let path = match self.group.as_str() {
            "" => format!("/api/{}", self.name),
            group => format!("/apis/{group}/{}", self.name),
        };
        let kinds = get(api, Request::get(Api::Kubernetes, path)).await?;
        let kinds = items(&kinds, "resources").filter_map(|kind| {
            let plural = kind["name"].as_str().filter(|name| !name.contains('/'))?;
            Some(self.kind(plural, &kind["kind"], kind["namespaced"] == true, &kind["verbs"]))
        });
        Ok(kinds.collect())
    }

    fn kind(&self, plural: &str, kind: &Value, namespaced: bool, verbs: &Value) -> Served {
        let can = |wanted: &str| verbs.as_array().into_iter().flatten().any(|verb| verb == wanted);
        let gvk = Gvk {
            group: self.group.clone(),
            version: self.name.clone(),
            kind: kind.as_str().unwrap_or_default().to_owned(),
            plural: plural.to_owned(),
        };
        let listed = can("list") && !gvk.kind.is_empty();
        Served { gvk, namespaced, listable: listed, appliable: can("patch") }
    }

    /// Reads a group of an `APIGroupDiscoveryList`. Kinds of an aggregated server that are not current are read later.
    fn from_discovery(group: &str, item: &Value) -> Option<Self> {
        let mut version = Self::new(group, item["version"].as_str()?);
        if item["freshness"] == "Current" {
            let kinds = items(item, "resources").filter_map(|kind| {
                let (plural, scope) = (kind["resource"].as_str()?, &kind["scope"]);
                Some(version.kind(
                    plural,
                    &kind["responseKind"]["kind"],
                    scope == "Namespaced",
                    &kind["verbs"],
                ))
            });
            version.kinds = Some(kinds.collect());
        }
        Some(version)
    }
}

/// Returns the groups that a cluster serves beside the core one.
///
/// # Errors
///
/// Discovery fails.
pub(crate) async fn groups(api: &dyn LiveApi) -> Result<Vec<Group>, ApiError> {
    let answer = get(api, Request::get(Api::Kubernetes, "/apis")).await?;
    let aggregated = items(&answer, "items").filter_map(|item| {
        let name = item["metadata"]["name"].as_str()?;
        let versions = items(item, "versions").filter_map(|version| Version::from_discovery(name, version));
        Some(Group { name: name.to_owned(), versions: versions.collect() })
    });
    let plain = items(&answer, "groups").filter_map(|item| {
        let name = item["name"].as_str()?;
        let preferred = &item["preferredVersion"]["version"];
        let mut versions: Vec<&Value> = items(item, "versions").map(|version| &version["version"]).collect();
        versions.sort_by_key(|version| *version != preferred);
        let versions = versions.into_iter().filter_map(|version| Some(Version::new(name, version.as_str()?)));
        Some(Group { name: name.to_owned(), versions: versions.collect() })
    });
    Ok(aggregated.chain(plain).collect())
}

/// Returns true if discovery shows that the cluster does not serve the kind of a path.
///
/// # Errors
///
/// Discovery fails, or it lists the kind.
pub async fn is_unserved(api: &dyn LiveApi, refused: &ApiError, path: &str) -> Result<bool, ApiError> {
    let Some(ApiPath { api_version, plural, .. }) = ApiPath::parse(path) else { return Ok(false) };
    let Some((group, version)) = api_version.split_once('/') else { return Ok(false) };
    let served = versions_of(api, group).await?;
    let Some(version) = served.into_iter().find(|served| served.name == version) else { return Ok(true) };
    if version.kinds(api).await?.iter().any(|kind| kind.gvk.plural == plural) {
        return Err(ApiError { class: ErrorClass::Unreadable, ..refused.clone() });
    }
    Ok(true)
}

/// Returns the versions of a group, the preferred one first; none if the cluster does not serve the group.
///
/// # Errors
///
/// Discovery fails.
pub(crate) async fn versions_of(api: &dyn LiveApi, group: &str) -> Result<Vec<Version>, ApiError> {
    let mut groups = groups(api).await?;
    if !groups.iter().any(|group| group.name == COMMON_GROUP) {
        let request = Request::get(Api::Kubernetes, "/apis");
        return Err(
            request.failed(ErrorClass::Unreadable, format!("its list of groups has no `{COMMON_GROUP}`"))
        );
    }
    let index = groups.iter().position(|served| served.name == group);
    Ok(index.map(|index| groups.swap_remove(index).versions).unwrap_or_default())
}

/// Returns the versions that a cluster serves of each of these groups, the preferred one first.
///
/// # Errors
///
/// Discovery fails.
pub async fn served_versions(
    api: &dyn LiveApi,
    wanted: &BTreeSet<String>,
) -> Result<BTreeMap<String, Vec<String>>, ApiError> {
    let groups = groups(api).await?.into_iter().filter(|group| wanted.contains(&group.name));
    let versions = |group: Group| {
        (group.name, group.versions.into_iter().map(|version| version.name).collect::<Vec<String>>())
    };
    Ok(groups.map(versions).collect())
}

fn items<'v>(value: &'v Value, field: &str) -> impl Iterator<Item = &'v Value> {
    value[field].as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use futures::future::BoxFuture;
    use serde_json::json;

    use super::*;
    use crate::deletion_scope;

    /// Fixed answers by path.
    struct Fixed(BTreeMap<&'static str, Value>);

    impl LiveApi for Fixed {
        fn send(&self, request: Request) -> BoxFuture<'_, Result<Value, ApiError>> {
            let answer = self.0.get(request.path.as_str()).cloned();
            let denied = move || request.failed(ErrorClass::Denied, "no");
            async move { answer.ok_or_else(denied) }.boxed()
        }
    }

    /// Returns the kinds as `plural.version.group`, and the groups whose kinds have to be read separately.
    async fn item(answers: &[(&'static str, Value)]) -> (Vec<String>, Vec<String>) {
        let deletion_scope::ListableKinds { kinds, failed } =
            deletion_scope::listable_kinds(&Fixed(answers.iter().cloned().collect()), 4).await;
        let mut names: Vec<String> = kinds
            .into_iter()
            .map(|Served { gvk, .. }| format!("{}.{}.{}", gvk.plural, gvk.version, gvk.group))
            .collect();
        names.sort();
        (names, failed.into_iter().filter_map(|failed| failed.group).collect())
    }

    /// Discovery in both forms. The aggregated form also has kinds that only an older version serves; groups that are not current
    /// are read separately.
    #[tokio::test]
    async fn kinds_are_told_by_one_answer_or_by_one_for_each_group() {
        let plain =
            |name: &str| json!({ "name": name, "kind": "K", "namespaced": true, "verbs": ["list", "patch"] });
        let core = (
            "/api/v1",
            json!({ "resources": [plain("pods"), { "name": "pods/log", "kind": "Pod", "verbs": ["get"] }] }),
        );
        let group = |name: &str, versions: &[&str]| {
            let versions: Vec<Value> = versions.iter().map(|version| json!({ "version": version })).collect();
            json!({ "name": name, "versions": versions, "preferredVersion": versions.last() })
        };
        let by_group = [
            core.clone(),
            (
                "/apis",
                json!({ "groups": [group("apps", &["v1beta1", "v1"]), group("x.example.com", &["v2"])] }),
            ),
            ("/apis/apps/v1", json!({ "resources": [plain("deployments")] })),
        ];
        let (kinds, failed) = item(&by_group).await;
        assert_eq!(kinds, ["deployments.v1.apps", "pods.v1."]);
        assert_eq!(failed, ["x.example.com"]);

        let kind = |name: &str| json!({ "resource": name, "responseKind": { "kind": "K" }, "scope": "Namespaced", "verbs": ["list"], "subresources": [{ "subresource": "status" }] });
        let version = |name: &str, freshness: &str, kinds: &[&str]| {
            let kinds: Vec<Value> = kinds.iter().map(|name| kind(name)).collect();
            json!({ "version": name, "freshness": freshness, "resources": kinds })
        };
        let at_once = [
            core,
            (
                "/apis",
                json!({ "kind": "APIGroupDiscoveryList", "items": [
                    { "metadata": { "name": "apps" }, "versions": [
                        version("v1", "Current", &["deployments"]),
                        version("v1beta1", "Current", &["deployments", "scales"]),
                    ] },
                    { "metadata": { "name": "x.example.com" }, "versions": [version("v2", "Stale", &["xs"])] },
                    { "metadata": { "name": "y.example.com" }, "versions": [version("v3", "Stale", &[])] },
                ] }),
            ),
            ("/apis/y.example.com/v3", json!({ "resources": [plain("ys")] })),
        ];
        let (kinds, failed) = item(&at_once).await;
        assert_eq!(kinds, ["deployments.v1.apps", "pods.v1.", "scales.v1beta1.apps", "ys.v3.y.example.com"]);
        assert_eq!(failed, ["x.example.com"]);
    }
}
