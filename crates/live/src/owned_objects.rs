//! Finds every object of a stack without a record, of any kind and in any namespace: one LIST for each kind that the cluster
//! serves and that can be applied.

use std::collections::BTreeSet;

use futures::StreamExt as _;
use serde_json::Value;

use crate::deletion_scope::{DiscoveryError, ListableKinds, listable_kinds};
use crate::list::{is_applied_by, list_labelled};
use crate::served_kinds::Served;
use crate::shape::is_built_in;
use crate::{ApiError, ErrorClass, LiveApi};
use model::resource::{OBJECT_LABEL_MANAGED_BY, ObjectId};

#[derive(Debug, Default)]
pub(crate) struct OwnedObjects {
    pub objects: Vec<(ObjectId, Value)>,
    /// Kinds that could not be listed completely.
    pub unlisted: BTreeSet<String>,
}

/// Returns the objects that a field manager has applied. They are listed by a label that all objects of stacks have. Its value
/// may be another one if the file sets it, as Helm charts do. A kind that may not be listed everywhere is listed in the
/// namespaces of the stack, and reported.
///
/// # Errors
/// A kind that the API server itself serves cannot be listed.
pub(crate) async fn read_owned(
    api: &dyn LiveApi,
    manager: &str,
    namespaces: &BTreeSet<&str>,
    parallelism: usize,
) -> Result<OwnedObjects, ApiError> {
    let ListableKinds { kinds, failed } = listable_kinds(api, parallelism).await;
    let mut owned = OwnedObjects::default();
    for DiscoveryError { group, error } in failed {
        let own = group.as_deref().is_none_or(is_built_in);
        owned.note_unlisted(group.unwrap_or_default(), own, error)?;
    }
    let lists = kinds.iter().filter(|kind| kind.appliable).map(|kind| list_of(api, kind, namespaces));
    let mut lists = futures::stream::iter(lists).buffer_unordered(parallelism.max(1));
    while let Some((Served { gvk, .. }, found, refused)) = lists.next().await {
        let ours = found.into_iter().filter(|(_, live)| is_applied_by(live, manager));
        owned.objects.extend(ours);
        if let Some(error) = refused {
            owned.note_unlisted(gvk.kind.clone(), is_built_in(&gvk.group), error)?;
        }
    }
    Ok(owned)
}

/// Lists the objects of a kind. Returns them, and the error if some could not be listed.
async fn list_of<'k>(
    api: &dyn LiveApi,
    kind: &'k Served,
    namespaces: &BTreeSet<&str>,
) -> (&'k Served, Vec<(ObjectId, Value)>, Option<ApiError>) {
    let list = async |namespace: Option<&str>| {
        list_labelled(api, &kind.gvk, namespace, OBJECT_LABEL_MANAGED_BY).await
    };
    let refused = match list(None).await {
        Ok(found) => return (kind, found, None),
        Err(error) => error,
    };
    let mut found = Vec::new();
    if refused.class == ErrorClass::Denied && kind.namespaced {
        for namespace in namespaces {
            match list(Some(*namespace)).await {
                Ok(more) => found.extend(more),
                // A missing right to list is reported elsewhere.
                Err(error) if error.class == ErrorClass::Denied => {}
                Err(error) => return (kind, found, Some(error)),
            }
        }
    }
    (kind, found, Some(refused))
}

impl OwnedObjects {
    /// Notes a kind that could not be listed. A refusal is noted, and so is an unavailable aggregated API or conversion webhook:
    /// these are not the stack's, and often broken. For a kind of the API server itself, a missing response is an error, because
    /// the result would be incomplete.
    fn note_unlisted(&mut self, what: String, own: bool, error: ApiError) -> Result<(), ApiError> {
        if own && error.class != ErrorClass::Denied {
            return Err(error);
        }
        self.unlisted.insert(what);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use futures::FutureExt as _;
    use futures::future::BoxFuture;
    use serde_json::json;

    use super::*;
    use crate::Request;

    /// Fixed answers by path. All other requests are refused with a class and a status.
    struct Fixed(BTreeMap<&'static str, Result<Value, (ErrorClass, u16)>>);

    impl LiveApi for Fixed {
        fn send(&self, request: Request) -> BoxFuture<'_, Result<Value, ApiError>> {
            let answer = match self.0.get(request.path.as_str()) {
                Some(Ok(value)) => Ok(value.clone()),
                Some(Err((class, status))) => {
                    Err(ApiError { status: Some(*status), ..request.failed(*class, "no") })
                }
                None => panic!("{} was asked for", request.path),
            };
            async move { answer }.boxed()
        }
    }

    const MAPS: &str = "/api/v1/configmaps?labelSelector=app.kubernetes.io%2Fmanaged-by&limit=500";
    const OF_TEAM: &str =
        "/api/v1/namespaces/team/configmaps?labelSelector=app.kubernetes.io%2Fmanaged-by&limit=500";
    const QUEUES: &str = "/apis/example.com/v1/queues?labelSelector=app.kubernetes.io%2Fmanaged-by&limit=500";

    fn world(maps: Result<Value, (ErrorClass, u16)>, queues: Result<Value, (ErrorClass, u16)>) -> Fixed {
        let kind = |name: &str, kind: &str, verbs: &[&str]| json!({ "name": name, "kind": kind, "namespaced": true, "verbs": verbs });
        Fixed(BTreeMap::from([
            (
                "/apis",
                Ok(
                    json!({ "groups": [{ "name": "example.com", "versions": [{ "version": "v1" }], "preferredVersion": { "version": "v1" } }] }),
                ),
            ),
            (
                "/api/v1",
                Ok(json!({ "resources": [
                    kind("configmaps", "ConfigMap", &["list", "patch"]), kind("bindings", "Binding", &["create"]),
                    kind("statuses", "Status", &["list"]),
                ] })),
            ),
            (
                "/apis/example.com/v1",
                Ok(json!({ "resources": [kind("queues", "Queue", &["list", "patch"])] })),
            ),
            (MAPS, maps),
            (OF_TEAM, Ok(list(&[("here", "dask-infra/s")]))),
            (QUEUES, queues),
        ]))
    }

    fn list(objects: &[(&str, &str)]) -> Value {
        let items = objects.iter().map(|(name, manager)| {
            json!({ "metadata": { "name": name, "namespace": "team",
                "managedFields": [{ "manager": manager, "operation": "Apply" }] } })
        });
        json!({ "metadata": {}, "items": items.collect::<Vec<_>>() })
    }

    async fn found(api: &Fixed) -> Result<(Vec<String>, Vec<String>), ErrorClass> {
        let owned = read_owned(api, "dask-infra/s", &BTreeSet::from(["team"]), 4).await;
        let OwnedObjects { objects, unlisted } = owned.map_err(|error| error.class)?;
        let mut names: Vec<String> = objects.into_iter().map(|(object, _)| object.to_string()).collect();
        names.sort();
        Ok((names, unlisted.into_iter().collect()))
    }

    #[tokio::test]
    async fn what_the_manager_has_applied_is_found_and_what_may_not_be_listed_is_told() {
        let all = || Ok(list(&[("ours", "dask-infra/s"), ("theirs", "helm"), ("another", "dask-infra/s2")]));
        let ours = |names: &[&str], unlisted: &[&str]| {
            let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
            Ok((words(names), words(unlisted)))
        };
        let denied = || Err((ErrorClass::Denied, 403));
        for (maps, queues, expected) in [
            (all(), all(), ours(&["ConfigMap team/ours", "Queue team/ours"], &[])),
            (denied(), all(), ours(&["ConfigMap team/here", "Queue team/ours"], &["ConfigMap"])),
            // The webhook that converts a custom kind is down; the API server itself is not.
            (all(), Err((ErrorClass::Other, 500)), ours(&["ConfigMap team/ours"], &["Queue"])),
            (Err((ErrorClass::Other, 500)), all(), Err(ErrorClass::Other)),
        ] {
            let mut api = world(maps, queues);
            api.0.insert(
                "/apis/example.com/v1/namespaces/team/queues?labelSelector=app.kubernetes.io%2Fmanaged-by&limit=500",
                Ok(list(&[])),
            );
            assert_eq!(found(&api).await, expected);
        }
    }
}
