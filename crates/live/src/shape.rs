//! The shape that the response to a request must have. A response of another shape is an error, whatever its status: captive
//! portals, proxies and load balancers answer 200 with pages of their own, and an unreadable response must never be taken for an
//! absent object. Pure.

use serde_json::{Map, Value};

use crate::Request;
use model::resource::{Api, Method};

/// Kinds of bodies, by their content type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Media {
    /// A web page.
    Html,
    /// JSON, text, or nothing.
    Other,
}

impl Media {
    /// Returns the kind of body that the headers of a response name.
    pub fn from_headers(headers: &http::HeaderMap) -> Self {
        let value = headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        match value {
            Some(value) if value.trim_start().to_ascii_lowercase().starts_with("text/html") => Self::Html,
            _ => Self::Other,
        }
    }
}

/// Shapes of responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A GKE cluster or a resource of Compute Engine, by name.
    Named(ResourceType, String),
    /// A list of the GKE API: the field with its items, which is missing if there are none.
    Listed(&'static str),
    /// A GKE operation; its name if it was requested by name.
    Operation(Option<String>),
    /// One Kubernetes object.
    Object(ExpectedObject),
    /// A list of Kubernetes objects.
    Collection {
        /// `apps/v1`.
        api_version: String,
    },
    /// The response to a DELETE: the object that is being deleted, or a Status if it is already gone.
    Deleted {
        /// Its name; `None` for a whole collection.
        name: Option<String>,
    },
    /// An object with a property of the API server itself, such as its version: the field and its type.
    Field(&'static str, JsonType),
    /// The groups of an API server, with or without their kinds.
    Groups,
    /// Any JSON object.
    Any,
    /// Text: the log of a container.
    Text,
    /// The response of a program behind a Service. Its shape is checked where it is used.
    Proxied,
}

/// Types of resources with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceType {
    /// A GKE cluster.
    Cluster,
    NodePool,
    /// A managed instance group.
    InstanceGroup,
}

/// One Kubernetes object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedObject {
    /// The API version; `None` for a subresource, which has its own.
    pub api_version: Option<String>,
    /// The name; `None` if the server chooses it.
    pub name: Option<String>,
    /// True after a write: then it must have a uid.
    pub written: bool,
}

/// The JSON type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonType {
    Array,
    Text,
}

/// Returns true if the API server serves a group itself. Then a list has a resourceVersion, and its items are never `null`.
/// Aggregated servers, such as the metrics server, may break both rules.
pub fn is_built_in(group: &str) -> bool {
    let built_in = !group.contains('.') || group.ends_with(".k8s.io");
    built_in && !group.ends_with("metrics.k8s.io")
}

impl Shape {
    /// Creates the shape of the answer to a request.
    pub fn for_request(request: &Request) -> Self {
        let parts = parts(&request.path);
        match request.api {
            Api::Gke => gke(request.method, &parts),
            Api::Compute => compute(&parts),
            Api::Projects | Api::Policies => Self::Any,
            Api::Billing if request.path.contains("/services/") => Self::Listed("skus"),
            Api::Billing => Self::Listed("billingAccountPrices"),
            Api::Kubernetes => kubernetes(request, &parts),
        }
    }

    /// Returns the response as a value.
    ///
    /// # Errors
    ///
    /// The difference from the expected shape.
    pub fn read(&self, media: Media, body: &[u8]) -> Result<Value, String> {
        match self {
            Self::Text if media == Media::Html => Err("it is a web page".into()),
            Self::Text => Ok(Value::String(String::from_utf8_lossy(body).into_owned())),
            Self::Proxied => Ok(serde_json::from_slice(body)
                .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(body).into_owned()))),
            _ => {
                let value = json(media, body)?;
                self.fits(&value)?;
                Ok(value)
            }
        }
    }

    /// Returns the noun for messages.
    pub fn description(&self) -> &'static str {
        match self {
            Self::Named(ResourceType::Cluster, _) => "GKE cluster",
            Self::Named(ResourceType::NodePool, _) => "node pool",
            Self::Named(ResourceType::InstanceGroup, _) => "managed instance group",
            Self::Listed(_) => "list of GKE",
            Self::Operation(_) => "GKE operation",
            Self::Object(_) => "Kubernetes object",
            Self::Collection { .. } => "list of Kubernetes objects",
            Self::Deleted { .. } => "answer to a deletion",
            Self::Field(..) | Self::Groups => "answer of a Kubernetes API server",
            Self::Any => "JSON object",
            Self::Text => "log",
            Self::Proxied => "answer",
        }
    }

    fn fits(&self, value: &Value) -> Result<(), String> {
        let Value::Object(fields) = value else { return Err(format!("it is {}", json_kind(value))) };
        match self {
            Self::Any | Self::Text | Self::Proxied => Ok(()),
            Self::Named(noun, name) => {
                named(fields, name)?;
                match noun {
                    ResourceType::Cluster => cluster(fields),
                    ResourceType::NodePool => text(fields, "status"),
                    ResourceType::InstanceGroup => match fields.get("targetSize") {
                        None => Ok(()),
                        Some(size) if size.is_u64() => Ok(()),
                        Some(_) => Err("its `targetSize` is not a number".into()),
                    },
                }
            }
            Self::Listed(field) => listed(fields, field),
            Self::Operation(name) => {
                match name {
                    Some(name) => named(fields, name)?,
                    None => text(fields, "name")?,
                }
                text(fields, "status")
            }
            Self::Object(object) => object.fits(fields),
            Self::Collection { api_version } => collection(fields, api_version),
            Self::Deleted { name } => {
                if fields.get("kind").is_some_and(|kind| kind == "Status") {
                    return match fields.get("status").and_then(Value::as_str) {
                        Some("Success") => Ok(()),
                        _ => Err("its `status` is not `Success`".into()),
                    };
                }
                match name {
                    Some(name) => {
                        ExpectedObject { api_version: None, name: Some(name.clone()), written: false }
                            .fits(fields)
                    }
                    None => array(fields, "items"),
                }
            }
            Self::Field(field, JsonType::Array) => array(fields, field),
            Self::Field(field, JsonType::Text) => text(fields, field),
            Self::Groups if fields.get("kind").is_some_and(|kind| kind == "APIGroupDiscoveryList") => {
                array(fields, "items")
            }
            Self::Groups => array(fields, "groups"),
        }
    }
}

impl ExpectedObject {
    fn fits(&self, fields: &Map<String, Value>) -> Result<(), String> {
        text(fields, "kind")?;
        versioned(fields, self.api_version.as_deref())?;
        let metadata = metadata(fields)?;
        match &self.name {
            Some(name) => named(metadata, name)?,
            None => text(metadata, "name")?,
        }
        if self.written {
            text(metadata, "uid").map_err(|_| "it has no `metadata.uid`")?;
        }
        Ok(())
    }
}

fn parts(path: &str) -> Vec<&str> {
    let path = path.split('?').next().unwrap_or_default();
    path.split('/').filter(|part| !part.is_empty()).collect()
}

fn gke(method: Method, parts: &[&str]) -> Shape {
    // `v1/projects/P/locations/L/KIND/NAME/nodePools/NAME`.
    let ["v1", "projects", _, "locations", _, rest @ ..] = parts else { return Shape::Any };
    if method != Method::Get {
        return Shape::Operation(None);
    }
    match rest {
        ["clusters"] => Shape::Listed("clusters"),
        ["clusters", name] => Shape::Named(ResourceType::Cluster, (*name).to_owned()),
        ["clusters", _, "nodePools"] => Shape::Listed("nodePools"),
        ["clusters", _, "nodePools", name] => Shape::Named(ResourceType::NodePool, (*name).to_owned()),
        ["operations"] => Shape::Listed("operations"),
        ["operations", name] => Shape::Operation(Some((*name).to_owned())),
        _ => Shape::Any,
    }
}

fn compute(parts: &[&str]) -> Shape {
    match parts {
        [.., "instanceGroupManagers", name] => Shape::Named(ResourceType::InstanceGroup, (*name).to_owned()),
        _ => Shape::Any,
    }
}

/// A path of the Kubernetes API.
#[derive(Debug, PartialEq, Eq)]
pub struct ApiPath<'p> {
    /// `v1`, `apps/v1`.
    pub api_version: String,
    /// `deployments`.
    pub plural: &'p str,
    /// The name of an object.
    pub name: Option<&'p str>,
    /// `status`, `log`.
    pub subresource: Option<&'p str>,
}

impl<'p> ApiPath<'p> {
    /// Parses a path; `None` if it is not of a kind, such as `/version`.
    pub fn parse(path: &'p str) -> Option<Self> {
        Self::from_parts(&parts(path))
    }

    fn from_parts(parts: &[&'p str]) -> Option<Self> {
        let (api_version, rest) = match parts {
            ["api", version, rest @ ..] => ((*version).to_owned(), rest),
            ["apis", group, version, rest @ ..] => (format!("{group}/{version}"), rest),
            _ => return None,
        };
        let rest = match rest {
            ["namespaces", _, "status" | "finalize"] => rest,
            ["namespaces", _, rest @ ..] if !rest.is_empty() => rest,
            _ => rest,
        };
        let mut rest = rest.iter().copied();
        Some(Self { api_version, plural: rest.next()?, name: rest.next(), subresource: rest.next() })
    }
}

fn kubernetes(request: &Request, parts: &[&str]) -> Shape {
    match parts {
        ["version"] => return Shape::Field("gitVersion", JsonType::Text),
        ["api"] | ["apis", _] => return Shape::Field("versions", JsonType::Array),
        ["apis"] => return Shape::Groups,
        ["api", _] | ["apis", _, _] => return Shape::Field("resources", JsonType::Array),
        _ => {}
    }
    let Some(ApiPath { api_version, plural: _, name, subresource }) = ApiPath::from_parts(parts) else {
        return Shape::Any;
    };
    let name = name.map(str::to_owned);
    match (request.method, subresource) {
        (_, Some("proxy")) => Shape::Proxied,
        (Method::Get, Some("log")) => Shape::Text,
        (Method::Delete, None) => Shape::Deleted { name },
        (_, Some("status" | "scale" | "finalize")) => {
            Shape::Object(ExpectedObject { api_version: None, name, written: false })
        }
        (_, Some(_)) => Shape::Any,
        (Method::Get, None) if name.is_none() => Shape::Collection { api_version },
        (Method::Get, None) => {
            Shape::Object(ExpectedObject { api_version: Some(api_version), name, written: false })
        }
        (Method::Post | Method::Put | Method::Patch | Method::Merge, None) => {
            let of_body = || {
                let body = request.body.as_ref()?;
                body.pointer("/metadata/name")?.as_str().map(str::to_owned)
            };
            let name = name.or_else(of_body);
            Shape::Object(ExpectedObject { api_version: Some(api_version), name, written: true })
        }
    }
}

fn json(media: Media, body: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(body).map_err(|error| match body {
        [] => "it is empty".to_owned(),
        [0x1f, 0x8b, ..] => "it is compressed, although that was not requested".to_owned(),
        [b'<', ..] => "it is a web page".to_owned(),
        _ if media == Media::Html => "it is a web page".to_owned(),
        _ if error.is_eof() => "it is cut off".to_owned(),
        _ => "it is not valid JSON".to_owned(),
    })
}

fn json_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "`null`",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn text(fields: &Map<String, Value>, field: &str) -> Result<(), String> {
    match fields.get(field) {
        Some(Value::String(text)) if !text.is_empty() => Ok(()),
        Some(Value::String(_)) | None => Err(format!("it has no `{field}`")),
        Some(other) => Err(format!("its `{field}` is {}", json_kind(other))),
    }
}

fn array(fields: &Map<String, Value>, field: &str) -> Result<(), String> {
    match fields.get(field) {
        Some(Value::Array(_)) => Ok(()),
        None => Err(format!("it has no `{field}`")),
        Some(other) => Err(format!("its `{field}` is {}", json_kind(other))),
    }
}

fn named(fields: &Map<String, Value>, name: &str) -> Result<(), String> {
    text(fields, "name")?;
    match fields.get("name") {
        Some(found) if found == name => Ok(()),
        _ => Err(format!("its `name` is not `{name}`")),
    }
}

fn metadata(fields: &Map<String, Value>) -> Result<&Map<String, Value>, String> {
    fields.get("metadata").and_then(Value::as_object).ok_or_else(|| "it has no `metadata`".to_owned())
}

fn versioned(fields: &Map<String, Value>, api_version: Option<&str>) -> Result<(), String> {
    text(fields, "apiVersion")?;
    match (fields.get("apiVersion"), api_version) {
        (Some(found), Some(asked)) if found != asked => Err(format!("its `apiVersion` is not `{asked}`")),
        _ => Ok(()),
    }
}

/// Checks the fields of a cluster that a plan uses: its location, its owner, and its pools.
fn cluster(fields: &Map<String, Value>) -> Result<(), String> {
    text(fields, "status")?;
    if fields.get("endpoint").is_some_and(|endpoint| !endpoint.is_string()) {
        return Err("its `endpoint` is not a string".into());
    }
    if fields.get("resourceLabels").is_some_and(|labels| !labels.is_object()) {
        return Err("its `resourceLabels` are not an object".into());
    }
    match fields.get("nodePools") {
        None => Ok(()),
        Some(pools) => check_names(pools, "nodePools"),
    }
}

fn check_names(items: &Value, field: &str) -> Result<(), String> {
    let items = items.as_array().ok_or_else(|| format!("its `{field}` is {}", json_kind(items)))?;
    let nameless = |item: &Value| item["name"].as_str().is_none_or(str::is_empty);
    if items.iter().any(nameless) { Err(format!("one of its `{field}` has no name")) } else { Ok(()) }
}

/// Checks a list of the GKE API. GKE leaves out empty fields, so `{}` is an empty list. A response with other fields must have
/// the field of the list.
fn listed(fields: &Map<String, Value>, field: &str) -> Result<(), String> {
    if fields.get("missingZones").is_some_and(|zones| !zones.is_array()) {
        return Err("its `missingZones` is not an array".into());
    }
    match fields.get(field) {
        Some(items) => check_names(items, field),
        None if fields.is_empty() || fields.contains_key("missingZones") => Ok(()),
        None => Err(format!("it has no `{field}`")),
    }
}

fn collection(fields: &Map<String, Value>, api_version: &str) -> Result<(), String> {
    text(fields, "kind")?;
    if !fields["kind"].as_str().is_some_and(|kind| kind.ends_with("List")) {
        return Err("its `kind` is not a list".into());
    }
    versioned(fields, Some(api_version))?;
    let metadata = metadata(fields)?;
    let built_in = api_version.rsplit_once('/').is_none_or(|(group, _)| is_built_in(group));
    if built_in {
        text(metadata, "resourceVersion").map_err(|_| "it has no `metadata.resourceVersion`")?;
    }
    for field in ["continue", "resourceVersion"] {
        if metadata.get(field).is_some_and(|token| !token.is_string()) {
            return Err(format!("its `metadata.{field}` is not a string"));
        }
    }
    let items = match fields.get("items") {
        // Go writes a list without items so where nobody has made an empty one.
        Some(Value::Null) if !built_in && !metadata.contains_key("resourceVersion") => return Ok(()),
        Some(Value::Array(items)) => items,
        Some(other) => return Err(format!("its `items` is {}", json_kind(other))),
        None => return Err("it has no `items`".into()),
    };
    let nameless = |item: &Value| {
        let name = item.pointer("/metadata/name").and_then(Value::as_str);
        name.is_none_or(str::is_empty)
    };
    if items.iter().any(nameless) { Err("one of its `items` has no `metadata.name`".into()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::answer::Answer;
    use crate::{ErrorClass, Request};

    const CLUSTER: &str = "/v1/projects/p/locations/l/clusters/c";

    /// Returns a request for every shape, with a valid answer.
    fn asked() -> Vec<(Request, Value)> {
        let gke = |method, path: &str, answer: Value| {
            (Request { api: Api::Gke, method, path: path.into(), body: Some(json!({})) }, answer)
        };
        let kubernetes = |method, path: &str, answer: Value| {
            let body = Some(json!({ "metadata": { "name": "x" } }));
            (Request { api: Api::Kubernetes, method, path: path.into(), body }, answer)
        };
        let cluster = json!({"name": "c", "status": "RUNNING", "endpoint": "1.2.3.4", "resourceLabels": {"a": "b"},
            "nodePools": [{"name": "n", "status": "RUNNING"}]});
        let pool = json!({"name": "n", "status": "RUNNING", "initialNodeCount": 1});
        let operation =
            json!({"name": "operation-1", "status": "RUNNING", "operationType": "CREATE_CLUSTER"});
        let group = json!({"kind": "compute#instanceGroupManager", "name": "g", "targetSize": 3});
        let list = |kind: &str, version: &str| {
            let item = json!({"metadata": {"name": "x"}});
            json!({"kind": kind, "apiVersion": version, "metadata": {"resourceVersion": "7"}, "items": [item]})
        };
        let object = |kind: &str, version: &str| json!({"kind": kind, "apiVersion": version, "metadata": {"name": "x", "uid": "u"}});
        let gone = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
        let pods = "/api/v1/namespaces/n/pods";
        let queues = "/apis/q.example.com/v1/namespaces/n/queues";
        let (pod, queue) = (format!("{pods}/x"), format!("{queues}/x"));
        let pool_path = format!("{CLUSTER}/nodePools/n");
        let nodes = json!({"kind": "NodeMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": []});
        vec![
            gke(Method::Get, CLUSTER, cluster.clone()),
            gke(Method::Get, "/v1/projects/p/locations/-/clusters", json!({"clusters": [cluster]})),
            gke(Method::Get, &pool_path, pool.clone()),
            gke(Method::Get, &format!("{CLUSTER}/nodePools"), json!({"nodePools": [pool]})),
            gke(Method::Get, "/v1/projects/p/locations/l/operations/operation-1", operation.clone()),
            gke(Method::Get, "/v1/projects/p/locations/l/operations", json!({"operations": [operation]})),
            gke(Method::Post, "/v1/projects/p/locations/l/clusters", operation.clone()),
            gke(Method::Put, CLUSTER, operation.clone()),
            gke(Method::Post, &format!("{CLUSTER}:setResourceLabels"), operation.clone()),
            gke(Method::Post, &format!("{pool_path}:setSize"), operation.clone()),
            gke(Method::Delete, &pool_path, operation),
            (Request::get(Api::Compute, "/compute/v1/projects/p/zones/z/instanceGroupManagers/g"), group),
            kubernetes(Method::Get, &format!("{pods}?limit=500"), list("PodList", "v1")),
            kubernetes(Method::Get, "/api/v1/namespaces", list("NamespaceList", "v1")),
            kubernetes(Method::Get, queues, list("QueueList", "q.example.com/v1")),
            kubernetes(Method::Get, "/apis/metrics.k8s.io/v1beta1/nodes", nodes),
            kubernetes(Method::Get, &pod, object("Pod", "v1")),
            kubernetes(Method::Get, "/api/v1/namespaces/x", object("Namespace", "v1")),
            kubernetes(Method::Get, &format!("{queue}/scale"), object("Scale", "autoscaling/v1")),
            kubernetes(Method::Get, "/apis", json!({"kind": "APIGroupList", "groups": []})),
            kubernetes(Method::Get, "/apis", json!({"kind": "APIGroupDiscoveryList", "items": []})),
            kubernetes(Method::Get, "/apis/apps/v1", json!({"kind": "APIResourceList", "resources": []})),
            kubernetes(Method::Get, "/version", json!({"gitVersion": "v1.36.1"})),
            kubernetes(Method::Patch, &format!("{pod}?fieldManager=m"), object("Pod", "v1")),
            kubernetes(Method::Patch, "/api/v1/namespaces/x", object("Namespace", "v1")),
            kubernetes(Method::Post, queues, object("Queue", "q.example.com/v1")),
            kubernetes(Method::Put, &format!("{queue}/scale"), object("Scale", "autoscaling/v1")),
            kubernetes(Method::Delete, &pod, gone),
            kubernetes(Method::Delete, &queue, object("Queue", "q.example.com/v1")),
        ]
    }

    fn read(request: &Request, media: Media, body: &[u8]) -> Result<Value, (ErrorClass, String)> {
        let answer = Answer { status: 200, media, warnings: Vec::new(), body: body.to_vec() };
        request.read(answer).map_err(|error| (error.class, error.message))
    }

    #[test]
    fn what_was_asked_for_is_read() {
        for (request, answer) in asked() {
            let read = read(&request, Media::Other, answer.to_string().as_bytes());
            assert_eq!(read, Ok(answer), "{}", request.title());
        }
    }

    /// Returns bodies that proxies, captive portals and broken servers send with status 200.
    fn bodies(good: &Value) -> Vec<(&'static str, Vec<u8>)> {
        let whole = good.to_string();
        let cut = |share: usize| whole.as_bytes()[..whole.len() * share / 100].to_vec();
        let text = |text: &str| text.as_bytes().to_vec();
        vec![
            ("cut at the start", cut(3)),
            ("cut in the middle", cut(50)),
            ("cut before the end", whole.as_bytes()[..whole.len() - 1].to_vec()),
            ("a page", text("<!DOCTYPE html><html><body>Sign in</body></html>")),
            ("a page after a newline", text("\n<html>")),
            ("empty", Vec::new()),
            ("blank", text("  \n")),
            ("deep", vec![b'['; 200_000]),
            ("deep objects", "{\"a\":".repeat(100_000).into_bytes()),
            ("bad UTF-8", vec![b'"', 0xff, 0xfe, b'"']),
            ("bad UTF-8 inside", whole.replacen('"', "\"\u{0}", 1).into_bytes()),
            ("gzip", vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3]),
            ("two answers", format!("{whole}{whole}").into_bytes()),
            ("null", text("null")),
            ("true", text("true")),
            ("a number", text("42")),
            ("text", text("\"ok\"")),
            ("quoted", json!(whole).to_string().into_bytes()),
            ("a list", text("[1,2,3]")),
            ("in a list", format!("[{whole}]").into_bytes()),
            ("an empty list", text("[]")),
            ("ok", text("ok")),
            ("another object", text("{\"ok\":true}")),
            ("an error", text("{\"error\":{\"code\":403,\"message\":\"sign in\"}}")),
            ("a failure", text("{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"status\":\"Failure\"}")),
            (
                "another kind",
                text("{\"kind\":\"Foo\",\"apiVersion\":\"v9\",\"metadata\":{\"name\":\"q\"},\"name\":\"q\"}"),
            ),
            ("no object", text("{}")),
        ]
    }

    /// Returns true for a fault that cannot be detected: GKE leaves out empty fields, so an empty list is an empty object.
    fn may_be(request: &Request, fault: &str) -> bool {
        fault == "no object" && matches!(Shape::for_request(request), Shape::Listed(_))
    }

    #[test]
    fn what_was_not_asked_for_is_no_answer() {
        let mut tried = 0;
        for (request, answer) in asked() {
            let expect = if request.writes() { ErrorClass::Lost } else { ErrorClass::Unreadable };
            for (fault, body) in bodies(&answer) {
                for media in [Media::Other, Media::Html] {
                    let read = read(&request, media, &body);
                    let refused = read.as_ref().is_err_and(|(class, _)| *class == expect);
                    assert!(refused || may_be(&request, fault), "{} {fault}: {read:?}", request.title());
                    tried += 1;
                }
            }
        }
        assert_eq!(tried, asked().len() * 27 * 2);
    }

    /// Removes every field that a shape requires, or gives it another type.
    #[test]
    fn every_field_that_is_asked_for_counts() {
        let required: &[(&str, &[&str])] = &[
            ("GET /v1/projects/p/locations/l/clusters/c", &["/name", "/status"]),
            ("GET /v1/projects/p/locations/-/clusters", &["/clusters/0/name"]),
            ("GET /v1/projects/p/locations/l/operations/operation-1", &["/name", "/status"]),
            ("PUT /v1/projects/p/locations/l/clusters/c", &["/name", "/status"]),
            (
                "GET /api/v1/namespaces/n/pods",
                &[
                    "/kind",
                    "/apiVersion",
                    "/metadata",
                    "/items",
                    "/metadata/resourceVersion",
                    "/items/0/metadata/name",
                ],
            ),
            ("GET /apis/q.example.com/v1/namespaces/n/queues", &["/kind", "/apiVersion", "/items"]),
            ("GET /api/v1/namespaces/n/pods/x", &["/kind", "/apiVersion", "/metadata", "/metadata/name"]),
            (
                "PATCH /api/v1/namespaces/n/pods/x",
                &["/kind", "/apiVersion", "/metadata", "/metadata/name", "/metadata/uid"],
            ),
            ("POST /apis/q.example.com/v1/namespaces/n/queues", &["/metadata/uid"]),
            ("GET /apis", &["/groups"]),
            ("GET /apis/apps/v1", &["/resources"]),
        ];
        for (title, pointers) in required {
            let asked = asked();
            let (request, good) = asked.iter().find(|(request, _)| request.title() == *title).unwrap();
            for pointer in *pointers {
                for wrong in [Value::Null, json!(7), json!(true), json!({}), json!("")] {
                    let mut body = good.clone();
                    *body.pointer_mut(pointer).unwrap() = wrong;
                    let read = read(request, Media::Other, body.to_string().as_bytes());
                    assert!(read.is_err(), "{title} {pointer}: {body}");
                }
            }
        }
    }

    #[test]
    fn what_answers_for_another_thing_is_no_answer() {
        for (title, pointer) in [
            ("GET /v1/projects/p/locations/l/clusters/c", "/name"),
            ("GET /v1/projects/p/locations/l/operations/operation-1", "/name"),
            ("GET /api/v1/namespaces/n/pods/x", "/metadata/name"),
            ("GET /api/v1/namespaces/n/pods/x", "/apiVersion"),
            ("GET /api/v1/namespaces/n/pods", "/apiVersion"),
            ("GET /api/v1/namespaces/n/pods", "/kind"),
            ("PATCH /api/v1/namespaces/n/pods/x", "/metadata/name"),
        ] {
            let asked = asked();
            let (request, good) = asked.iter().find(|(request, _)| request.title() == title).unwrap();
            let mut body = good.clone();
            *body.pointer_mut(pointer).unwrap() = json!("another");
            assert!(read(request, Media::Other, body.to_string().as_bytes()).is_err(), "{title} {pointer}");
        }
    }

    #[test]
    fn wrong_types_inside_a_cluster_count() {
        let (request, good) = asked().remove(0);
        for (field, wrong) in [
            ("endpoint", json!(7)),
            ("resourceLabels", json!("x")),
            ("resourceLabels", json!([])),
            ("nodePools", json!({})),
            ("nodePools", json!("x")),
            ("nodePools", json!([{"status": "RUNNING"}])),
            ("nodePools", Value::Null),
        ] {
            let mut body = good.clone();
            body[field] = wrong;
            assert!(read(&request, Media::Other, body.to_string().as_bytes()).is_err(), "{body}");
        }
    }

    #[test]
    fn a_service_proxy_answers_for_itself() {
        let path = "/api/v1/namespaces/n/services/c-scheduler:http-dashboard/proxy/json/counts.json";
        let request = Request::get(Api::Kubernetes, path);
        assert_eq!(read(&request, Media::Other, b"{\"tasks\": 1}"), Ok(json!({"tasks": 1})));
        assert_eq!(read(&request, Media::Html, b"<html>"), Ok(json!("<html>")));
    }
}
