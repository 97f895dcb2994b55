//! Lists all objects of a kind, page by page, each once.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use futures::StreamExt as _;
use serde_json::Value;

use crate::retry::get;
use crate::{ApiError, ErrorClass, LiveApi, Request, served_kinds};
use model::resource::{Api, Gvk, ObjectId, encoded};

/// Objects in a page of a list, as kubectl requests them.
const PAGE: u32 = 500;
/// Objects in a small page: a response can contain this many objects of the maximum size, 1.5 MiB.
const SMALL_PAGE: u32 = 40;

/// A kind that is needed in this many namespaces is listed in the whole cluster first: two pages cost less than a request per
/// namespace.
const MANY_NAMESPACES: usize = 4;

/// Kinds, each in one namespace or in the whole cluster.
pub type Collections = BTreeSet<(Gvk, Option<String>)>;

/// Live objects, each once: a server serves the same object in every version of its kind, and some kinds in two groups (Events,
/// old Ingresses). The first copy is kept.
#[derive(Default)]
pub(crate) struct UniqueObjects {
    pub(crate) by_id: BTreeMap<ObjectId, Value>,
    uids: HashSet<String>,
}

impl UniqueObjects {
    /// Starts with the objects of a world.
    pub(crate) fn new(by_id: BTreeMap<ObjectId, Value>) -> Self {
        let uids = by_id.values().filter_map(uid).map(str::to_owned).collect();
        Self { by_id, uids }
    }

    /// Adds objects that are missing.
    pub(crate) fn extend(&mut self, found: Vec<(ObjectId, Value)>) {
        for (object, live) in found {
            let another = uid(&live).is_none_or(|uid| self.uids.insert(uid.to_owned()));
            if another {
                self.by_id.entry(object).or_insert(live);
            }
        }
    }
}

fn uid(live: &Value) -> Option<&str> {
    live.pointer("/metadata/uid").and_then(Value::as_str)
}

/// Returns true if a field manager has applied an object.
pub(crate) fn is_applied_by(live: &Value, manager: &str) -> bool {
    let entries = live.pointer("/metadata/managedFields").and_then(Value::as_array);
    let applied = |entry: &Value| entry["manager"] == manager && entry["operation"] == "Apply";
    entries.into_iter().flatten().any(applied)
}

/// Lists all objects of a kind in a namespace, or in the cluster; empty if discovery shows that the cluster does not serve the
/// kind. If the cluster serves another version of the kind, lists that one: an old record may name a removed version.
pub async fn list(
    api: &dyn LiveApi,
    gvk: &Gvk,
    namespace: Option<&str>,
) -> Result<Vec<(ObjectId, Value)>, ApiError> {
    let (gvk, items) = match list_in(api, gvk, namespace, None).await? {
        Some(items) => (gvk.clone(), items),
        None => match list_other_version(api, gvk, namespace).await? {
            Some(found) => found,
            None => return Ok(Vec::new()),
        },
    };
    Ok(by_id(&gvk, items))
}

/// Lists objects as [`list`] does, but only those with a label and in this version.
pub(crate) async fn list_labelled(
    api: &dyn LiveApi,
    gvk: &Gvk,
    namespace: Option<&str>,
    label: &str,
) -> Result<Vec<(ObjectId, Value)>, ApiError> {
    let items = list_in(api, gvk, namespace, Some(label)).await?;
    Ok(by_id(gvk, items.unwrap_or_default()))
}

/// Returns objects of a kind by their ids.
fn by_id(gvk: &Gvk, items: Vec<Value>) -> Vec<(ObjectId, Value)> {
    let named = items.into_iter().filter_map(|mut item| {
        let name = item.pointer("/metadata/name")?.as_str()?.to_owned();
        let namespace = item.pointer("/metadata/namespace").and_then(Value::as_str).map(str::to_owned);
        // Lists of built-in kinds leave these out of their items.
        if let Value::Object(fields) = &mut item {
            fields.entry("apiVersion").or_insert_with(|| gvk.api_version().into());
            fields.entry("kind").or_insert_with(|| gvk.kind.clone().into());
        }
        Some((ObjectId { gvk: gvk.clone(), namespace, name }, item))
    });
    named.collect()
}

/// The objects of a LIST, or why it failed.
pub(crate) type ListResult = Result<Vec<(ObjectId, Value)>, ApiError>;

/// A query that lists one or more collections.
enum ListQuery<'a> {
    /// One collection.
    Collection(&'a Gvk, Option<&'a str>),
    /// The collections of a kind in many namespaces: it is cheaper to list all of the cluster if it has few objects.
    Kind(&'a Gvk, BTreeSet<&'a str>),
}

impl<'a> ListQuery<'a> {
    /// Returns the queries for collections. Secrets are listed by namespace: the stack needs those of its own namespaces only.
    fn for_collections(collections: &'a Collections) -> Vec<Self> {
        let mut queries = Vec::new();
        let mut namespaces: BTreeMap<&Gvk, BTreeSet<&str>> = BTreeMap::new();
        for (gvk, namespace) in collections {
            match namespace {
                Some(namespace) if gvk.kind != "Secret" => {
                    namespaces.entry(gvk).or_default().insert(namespace);
                }
                namespace => queries.push(Self::Collection(gvk, namespace.as_deref())),
            }
        }
        for (gvk, namespaces) in namespaces {
            if namespaces.len() < MANY_NAMESPACES {
                queries
                    .extend(namespaces.into_iter().map(|namespace| Self::Collection(gvk, Some(namespace))));
            } else {
                queries.push(Self::Kind(gvk, namespaces));
            }
        }
        queries
    }

    /// Lists the objects of the kind, or returns the collections to list instead.
    async fn list(self, api: &dyn LiveApi) -> Result<(&'a Gvk, ListResult), Vec<Self>> {
        let (gvk, namespaces) = match self {
            Self::Collection(gvk, namespace) => return Ok((gvk, list(api, gvk, namespace).await)),
            Self::Kind(gvk, namespaces) => (gvk, namespaces),
        };
        let Some(mut objects) = list_if_small(api, gvk).await else {
            return Err(namespaces
                .into_iter()
                .map(|namespace| Self::Collection(gvk, Some(namespace)))
                .collect());
        };
        objects.retain(|(object, _)| object.namespace.as_deref().is_some_and(|one| namespaces.contains(one)));
        Ok((gvk, Ok(objects)))
    }
}

/// Lists collections in parallel, and passes on each result as it arrives. A kind that is needed in many namespaces is listed
/// once for the cluster if it has few objects; otherwise, or without permission, it is listed in each namespace.
pub(crate) async fn list_all<E>(
    api: &dyn LiveApi,
    collections: &Collections,
    parallelism: usize,
    mut found: impl FnMut(&Gvk, ListResult) -> Result<(), E>,
) -> Result<(), E> {
    let mut queries = ListQuery::for_collections(collections);
    while !queries.is_empty() {
        let lists = std::mem::take(&mut queries).into_iter().map(|query| query.list(api));
        let mut lists = futures::stream::iter(lists).buffer_unordered(parallelism.max(1));
        while let Some(listed) = lists.next().await {
            match listed {
                Ok((gvk, listed)) => found(gvk, listed)?,
                Err(each) => queries.extend(each),
            }
        }
    }
    Ok(())
}

/// Lists all objects of a kind in the cluster if two pages are enough. Does not retry: after a failure each namespace is listed.
async fn list_if_small(api: &dyn LiveApi, gvk: &Gvk) -> Option<Vec<(ObjectId, Value)>> {
    let path = format!("{}?limit={PAGE}", gvk.collection(None));
    let mut page = api.send(Request::get(Api::Kubernetes, path.clone())).await.ok()?;
    let mut items = items_of(&mut page)?;
    if let Some(token) = next(&page) {
        // Source: `ListMeta.remainingItemCount`, which lists without a selector have.
        let rest = page.pointer("/metadata/remainingItemCount").and_then(Value::as_u64)?;
        if rest > PAGE.into() {
            return None;
        }
        let path = format!("{path}&continue={}", encoded(token));
        let mut last = api.send(Request::get(Api::Kubernetes, path)).await.ok()?;
        items.extend(items_of(&mut last)?);
        if next(&last).is_some() {
            return None;
        }
    }
    Some(by_id(gvk, items))
}

fn items_of(page: &mut Value) -> Option<Vec<Value>> {
    match page.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) => Some(items),
        _ => None,
    }
}

/// Returns the `continue` token for the next page.
fn next(page: &Value) -> Option<&str> {
    page.pointer("/metadata/continue").and_then(Value::as_str).filter(|token| !token.is_empty())
}

/// Lists a kind in its own version; `None` if discovery shows that the cluster does not serve it.
async fn list_in(
    api: &dyn LiveApi,
    gvk: &Gvk,
    namespace: Option<&str>,
    label: Option<&str>,
) -> Result<Option<Vec<Value>>, ApiError> {
    let collection = gvk.collection(namespace);
    match list_pages(api, &collection, label).await {
        Err(error) if error.is_unknown_path() => {
            match served_kinds::is_unserved(api, &error, &collection).await? {
                true => Ok(None),
                false => Err(error),
            }
        }
        result => result.map(Some),
    }
}

/// Lists a kind in the first other version of its group that serves it.
async fn list_other_version(
    api: &dyn LiveApi,
    gvk: &Gvk,
    namespace: Option<&str>,
) -> Result<Option<(Gvk, Vec<Value>)>, ApiError> {
    for version in served_kinds::versions_of(api, &gvk.group).await? {
        if version.name == gvk.version {
            continue;
        }
        let gvk = Gvk { version: version.name, ..gvk.clone() };
        if let Some(items) = list_in(api, &gvk, namespace, None).await? {
            return Ok(Some((gvk, items)));
        }
    }
    Ok(None)
}

/// Returns the items of a LIST, page by page. Starts again in one page if the pages expired, and in small pages if the objects
/// are too large for a full one.
pub(crate) async fn list_pages(
    api: &dyn LiveApi,
    collection: &str,
    label: Option<&str>,
) -> Result<Vec<Value>, ApiError> {
    let whole = match label {
        Some(label) => format!("{collection}?labelSelector={}", encoded(label)),
        None => collection.to_owned(),
    };
    let paged = |limit: u32| format!("{whole}{}limit={limit}", if label.is_some() { '&' } else { '?' });
    let mut items = Vec::new();
    let mut limit = PAGE;
    let mut path = paged(limit);
    loop {
        let mut page = match get(api, Request::get(Api::Kubernetes, path.clone())).await {
            Err(error) if error.status == Some(410) && path != whole => {
                items.clear();
                path.clone_from(&whole);
                continue;
            }
            Err(error) if error.class == ErrorClass::TooLarge && limit == PAGE => {
                items.clear();
                limit = SMALL_PAGE;
                path = paged(limit);
                continue;
            }
            result => result?,
        };
        items.extend(items_of(&mut page).unwrap_or_default());
        match next(&page) {
            Some(token) => path = format!("{}&continue={}", paged(limit), encoded(token)),
            None => return Ok(items),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures::FutureExt as _;
    use futures::future::BoxFuture;
    use serde_json::json;

    use super::*;

    /// Fixed answers by path, and the paths that were requested.
    struct Fixed(BTreeMap<String, Value>, Mutex<Vec<String>>);

    impl LiveApi for Fixed {
        fn send(&self, request: Request) -> BoxFuture<'_, Result<Value, ApiError>> {
            self.1.lock().unwrap().push(request.path.clone());
            let answer = self.0.get(&request.path).cloned();
            async move { answer.ok_or_else(|| request.failed(ErrorClass::Denied, "no")) }.boxed()
        }
    }

    fn gvk(kind: &str, plural: &str) -> Gvk {
        Gvk { group: String::new(), version: "v1".into(), kind: kind.into(), plural: plural.into() }
    }

    /// Returns a page of objects, each in a namespace with the object's name, and the number of objects after the page.
    fn page(names: &[&str], rest: Option<u64>) -> Value {
        let items = names.iter().map(|name| json!({ "metadata": { "name": name, "namespace": name } }));
        let metadata = match rest {
            Some(rest) => json!({ "continue": "next", "remainingItemCount": rest }),
            None => json!({}),
        };
        json!({ "metadata": metadata, "items": items.collect::<Vec<_>>() })
    }

    /// Returns the names found, the number of namespaces listed by themselves, and the number of requests for the whole cluster.
    async fn taken(namespaces: &[&str], kind: (&str, &str), pages: &[Value]) -> (Vec<String>, usize, usize) {
        let path = format!("/api/v1/{}?limit=500", kind.1);
        let paths = [path.clone(), format!("{path}&continue=next")];
        let api = Fixed(paths.into_iter().zip(pages.iter().cloned()).collect(), Mutex::default());
        let collections: Collections =
            namespaces.iter().map(|name| (gvk(kind.0, kind.1), Some((*name).to_owned()))).collect();
        let mut names = Vec::new();
        let found = |_: &Gvk, listed: ListResult| -> Result<(), ()> {
            names.extend(listed.into_iter().flatten().map(|(object, _)| object.name));
            Ok(())
        };
        list_all(&api, &collections, 4, found).await.unwrap();
        names.sort();
        let asked = api.1.lock().unwrap();
        let (each, whole): (Vec<&String>, Vec<&String>) =
            asked.iter().partition(|path| path.contains("/namespaces/"));
        (names, each.len(), whole.len())
    }

    #[tokio::test]
    async fn a_kind_of_many_namespaces_is_listed_at_once_where_it_is_few() {
        let (four, maps) = (["a", "b", "c", "d"], ("ConfigMap", "configmaps"));
        let none = Vec::<String>::new();
        let first = || page(&["a", "x"], Some(2));
        let second = page(&["b", "y"], None);
        // Others' objects are left out.
        assert_eq!(taken(&four, maps, &[page(&["a", "x"], None)]).await, (vec!["a".to_owned()], 0, 1));
        let both = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(taken(&four, maps, &[first(), second.clone()]).await, (both, 0, 2));
        // Refused, as is the second page; too many; how many is not said; more than was said.
        assert_eq!(taken(&four, maps, &[]).await, (none.clone(), 4, 1));
        assert_eq!(taken(&four, maps, &[first()]).await, (none.clone(), 4, 2));
        assert_eq!(
            taken(&four, maps, &[page(&["a"], Some(501)), second.clone()]).await,
            (none.clone(), 4, 1)
        );
        let unsaid = json!({ "metadata": { "continue": "next" }, "items": [] });
        assert_eq!(taken(&four, maps, &[unsaid, second]).await, (none.clone(), 4, 1));
        assert_eq!(taken(&four, maps, &[first(), first()]).await, (none.clone(), 4, 2));
        // Few namespaces, and Secrets.
        let all = [page(&["a"], None)];
        assert_eq!(taken(&four[..3], maps, &all).await, (none.clone(), 3, 0));
        assert_eq!(taken(&four, ("Secret", "secrets"), &all).await, (none, 4, 0));
    }
}
