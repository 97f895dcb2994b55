//! All objects of a kind, page by page, each once.

use std::collections::{BTreeMap, HashSet};

use serde_json::Value;

use super::retry::get;
use super::{ApiError, Class, LiveApi, Request, served};
use crate::resource::{Api, Gvk, ObjectId, encoded};

/// Objects in a page of a list, as kubectl asks for.
const PAGE: u32 = 500;
/// Objects of the largest size that etcd keeps, 1.5 MiB, that an answer may have.
const SMALL_PAGE: u32 = 40;

/// Live objects, each once: a server serves the same object in every version of its kind, and some kinds in two groups
/// (Events, Ingresses of old). What comes first counts.
#[derive(Default)]
pub(super) struct Once {
    pub(super) by_id: BTreeMap<ObjectId, Value>,
    uids: HashSet<String>,
}

impl Once {
    /// Of what a world holds.
    pub(super) fn of(by_id: BTreeMap<ObjectId, Value>) -> Self {
        let uids = by_id.values().filter_map(uid).map(str::to_owned).collect();
        Self { by_id, uids }
    }

    /// Adds what is not there yet.
    pub(super) fn extend(&mut self, found: Vec<(ObjectId, Value)>) {
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

/// Whether a field manager has applied an object.
pub(super) fn is_applied_by(live: &Value, manager: &str) -> bool {
    let entries = live.pointer("/metadata/managedFields").and_then(Value::as_array);
    let applied = |entry: &Value| entry["manager"] == manager && entry["operation"] == "Apply";
    entries.into_iter().flatten().any(applied)
}

/// All objects of a kind in a namespace, or in the cluster; none when the cluster says that it does not serve the kind.
/// Where it is no longer served in this version and still in another, that one is listed: a record of old may name a
/// version that is gone.
pub async fn list(
    api: &dyn LiveApi,
    gvk: &Gvk,
    namespace: Option<&str>,
) -> Result<Vec<(ObjectId, Value)>, ApiError> {
    let (gvk, items) = match list_in(api, gvk, namespace, None).await? {
        Some(items) => (gvk.clone(), items),
        None => match list_otherwise(api, gvk, namespace).await? {
            Some(found) => found,
            None => return Ok(Vec::new()),
        },
    };
    Ok(named(&gvk, items))
}

/// The same, of objects that have a label, in this version.
pub(super) async fn list_labelled(
    api: &dyn LiveApi,
    gvk: &Gvk,
    namespace: Option<&str>,
    label: &str,
) -> Result<Vec<(ObjectId, Value)>, ApiError> {
    let items = list_in(api, gvk, namespace, Some(label)).await?;
    Ok(named(gvk, items.unwrap_or_default()))
}

/// Objects of a kind by their names.
fn named(gvk: &Gvk, items: Vec<Value>) -> Vec<(ObjectId, Value)> {
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

/// Items of a kind in its own version; `None` when the cluster says that it does not serve it.
async fn list_in(
    api: &dyn LiveApi,
    gvk: &Gvk,
    namespace: Option<&str>,
    label: Option<&str>,
) -> Result<Option<Vec<Value>>, ApiError> {
    let collection = gvk.collection(namespace);
    match list_pages(api, &collection, label).await {
        Err(error) if error.is_unknown_path() => match served::lacks(api, &error, &collection).await? {
            true => Ok(None),
            false => Err(error),
        },
        result => result.map(Some),
    }
}

/// Items of a kind in the first other version of its group that serves it.
async fn list_otherwise(
    api: &dyn LiveApi,
    gvk: &Gvk,
    namespace: Option<&str>,
) -> Result<Option<(Gvk, Vec<Value>)>, ApiError> {
    for version in served::versions(api, &gvk.group).await? {
        if version == gvk.version {
            continue;
        }
        let gvk = Gvk { version, ..gvk.clone() };
        if let Some(items) = list_in(api, &gvk, namespace, None).await? {
            return Ok(Some((gvk, items)));
        }
    }
    Ok(None)
}

/// Items of a LIST, page by page; from the start in one page when the pages went stale in between, and in small ones
/// when the objects are too large for a full one.
pub(super) async fn list_pages(
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
            Err(error) if error.class == Class::TooLarge && limit == PAGE => {
                items.clear();
                limit = SMALL_PAGE;
                path = paged(limit);
                continue;
            }
            result => result?,
        };
        if let Some(Value::Array(found)) = page.get_mut("items").map(Value::take) {
            items.extend(found);
        }
        match page.pointer("/metadata/continue").and_then(Value::as_str) {
            Some(token) if !token.is_empty() => {
                path = format!("{}&continue={}", paged(limit), encoded(token));
            }
            _ => return Ok(items),
        }
    }
}
