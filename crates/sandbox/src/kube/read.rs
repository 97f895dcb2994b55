//! GET of one object and of collections.

use base64::Engine as _;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::call::Call;
use super::request::{Place, Request, Response};
use super::scale::scale_of;
use super::scheme::{Kind, Origin};
use super::status::Status;
use super::store::Cluster;
use super::table::{self, Include};

/// The object as the asked-for version shows it: versions differ only in their name here.
pub fn versioned(kind: &Kind, object: &Value) -> Value {
    let mut object = object.clone();
    object["apiVersion"] = json!(kind.api_version());
    object["kind"] = json!(kind.kind);
    object
}

/// GET of an object or its `scale` or `status`.
pub fn get(cluster: &Cluster, call: &Call<'_>) -> Result<Response, Status> {
    let Call { kind, place, request, now } = *call;
    check_version(cluster, request)?;
    let object = versioned(kind, cluster.get(&call.key()).ok_or_else(|| call.not_found())?);
    if place.subresource == "scale" {
        return Ok(Response::json(200, &scale_of(kind, &object)));
    }
    if request.wants_table() {
        let metadata = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
        let include = Include::parse(request.param("includeObject"));
        return Ok(Response::json(200, &table::table(kind, &[&object], &metadata, include, now)));
    }
    if request.wants_metadata() {
        return Ok(Response::json(200, &table::partial(&object)));
    }
    Ok(Response::json(200, &object))
}

/// A version that is still to come cannot be read.
fn check_version(cluster: &Cluster, request: &Request) -> Result<Option<u64>, Status> {
    let Some(text) = request.param("resourceVersion").filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let version: u64 = text.parse().map_err(|_| {
        Status::bad_request(format!(
            "invalid resource version: resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        ))
    })?;
    if version > cluster.revision() {
        return Err(Status::too_new(version, cluster.revision()));
    }
    Ok(Some(version))
}

/// Options of a list that do not go together.
fn check_options(request: &Request) -> Result<(), Status> {
    let given = |name: &str| request.param(name).filter(|text| !text.is_empty());
    if let Some(how) = given("resourceVersionMatch") {
        if given("resourceVersion").is_none() {
            let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            return Err(Status::forbidden_option("ListOptions", "resourceVersionMatch", why));
        }
        if !matches!(how, "Exact" | "NotOlderThan") {
            let (value, supported) = (format!("{how:?}"), ["Exact", "NotOlderThan", ""]);
            return Err(Status::bad_option("ListOptions", "resourceVersionMatch", &value, &supported));
        }
    }
    if given("continue").is_some() && given("resourceVersion").is_some_and(|version| version != "0") {
        return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
    }
    Ok(())
}

/// Where a paged list goes on: after this name, at this revision. A token without a revision goes on in
/// the present.
struct Continue {
    revision: Option<u64>,
    namespace: String,
    name: String,
}

impl Continue {
    /// In the form of apiserver's `storage.EncodeContinue`: the key below that of the collection.
    fn encode(&self, place: &Place) -> String {
        let Self { revision, namespace, name } = self;
        let key = if place.namespace.is_empty() && !namespace.is_empty() {
            format!("{namespace}/{name}\0")
        } else {
            format!("{name}\0")
        };
        let revision = revision.map_or(json!(-1), |revision| json!(revision));
        let text = json!({"v": "meta.k8s.io/v1", "rv": revision, "start": key});
        base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text.to_string())
    }

    fn decode(text: &str, place: &Place) -> Result<Self, Status> {
        let bad = || Status::bad_request("continue key is not valid");
        let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(text).map_err(|_| bad())?;
        let value: Value = serde_json::from_slice(&bytes).map_err(|_| bad())?;
        let start = value["start"].as_str().ok_or_else(bad)?.trim_end_matches('\0');
        let (namespace, name) = start.split_once('/').unwrap_or((&place.namespace, start));
        let revision = value["rv"].as_i64().ok_or_else(bad)?;
        Ok(Self {
            revision: u64::try_from(revision).ok(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }
}

/// 410 for a page whose revision is forgotten, with a token that goes on in the present.
fn lost_page(token: &Continue, place: &Place) -> Status {
    let next = Continue { revision: None, namespace: token.namespace.clone(), name: token.name.clone() };
    let status = Status::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new \
         list without the continue parameter, or use the continue token in this response to retrieve the \
         remainder of the results. Continuing with the provided token results in an inconsistent list - \
         objects that were created, modified, or deleted between the time the first chunk was returned and \
         now may show up in the list.",
    );
    Status { next: next.encode(place), ..status }
}

/// GET of a collection: selected, paged, as a list or as a table.
pub fn list(cluster: &Cluster, call: &Call<'_>) -> Result<Response, Status> {
    let Call { kind, place, request, now } = *call;
    let selector = call.selector()?;
    check_options(request)?;
    let asked = check_version(cluster, request)?;
    let token = request.param("continue").filter(|token| !token.is_empty());
    let token = token.map(|token| Continue::decode(token, place)).transpose()?;
    let exact = request.param("resourceVersionMatch") == Some("Exact");
    let revision = match (&token, asked) {
        (Some(token), _) => token.revision.unwrap_or(cluster.revision()),
        (None, Some(asked)) if exact => asked,
        _ => cluster.revision(),
    };
    let all = cluster.list_at(revision, &kind.group, &kind.plural).ok_or_else(|| match &token {
        Some(token) => lost_page(token, place),
        None => Status::expired("The resourceVersion for the provided list is too old."),
    })?;
    let selected: Vec<_> = all
        .into_iter()
        .filter(|(key, _)| place.namespace.is_empty() || key.namespace == place.namespace)
        .filter(|(key, _)| {
            token.as_ref().is_none_or(|token| (&key.namespace, &key.name) > (&token.namespace, &token.name))
        })
        .filter(|(_, object)| selector.matches(object))
        .collect();
    let limit = request.param("limit").and_then(|limit| limit.parse().ok()).filter(|limit| *limit > 0);
    let page = selected.len().min(limit.unwrap_or(usize::MAX));
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    if page < selected.len()
        && let Some((last, _)) = selected[..page].last()
    {
        let (namespace, name) = (last.namespace.clone(), last.name.clone());
        let next = Continue { revision: Some(revision), namespace, name };
        metadata["continue"] = json!(next.encode(place));
        if selector.is_empty() {
            metadata["remainingItemCount"] = json!(selected.len() - page);
        }
    }
    if kind.origin == Origin::Custom && !request.wants_table() && metadata.get("continue").is_none() {
        // Lists of custom resources are printed from maps, which leave nothing out.
        metadata["continue"] = json!("");
    }
    let objects: Vec<Value> = selected[..page].iter().map(|(_, object)| versioned(kind, object)).collect();
    Ok(Response::json(200, &collection(kind, objects, &metadata, request, now)))
}

fn collection(
    kind: &Kind,
    mut objects: Vec<Value>,
    metadata: &Value,
    request: &Request,
    now: Timestamp,
) -> Value {
    if request.wants_table() {
        let include = Include::parse(request.param("includeObject"));
        let rows: Vec<&Value> = objects.iter().collect();
        return table::table(kind, &rows, metadata, include, now);
    }
    if request.accept.split(',').next().is_some_and(|media| media.contains("as=PartialObjectMetadataList")) {
        let items: Vec<Value> = objects.iter().map(table::partial).collect();
        return json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata, "items": items});
    }
    if kind.origin == Origin::BuiltIn {
        // Items of built-in lists do not repeat what they are.
        for fields in objects.iter_mut().filter_map(Value::as_object_mut) {
            fields.remove("apiVersion");
            fields.remove("kind");
        }
    }
    json!({"kind": format!("{}List", kind.kind), "apiVersion": kind.api_version(), "metadata": metadata,
        "items": objects})
}
