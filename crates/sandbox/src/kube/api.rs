//! The HTTP side: an axum router over whoever holds the cluster, and the pure [`handle`] below it.

use axum::Router;
use axum::body::Body;
use axum::http::{
    HeaderMap, HeaderValue, Request as HttpRequest, Response as HttpResponse, StatusCode, header,
};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use serde_json::Value;

use super::access::Access;
use super::call::Call;
use super::object::{list, text};
use super::request::{Place, Request, Response, parse_query};
use super::scheme::Origin;
use super::status::Status;
use super::store::Cluster;
use super::watch::{self, Watch};
use super::{body, discovery, proxy, read, write};
use model::schema;

/// Bodies beyond this are refused, as etcd would.
const LARGEST_BODY: usize = 3 << 20;

/// The API of the cluster that `access` holds.
pub fn router<A: Access>(access: A) -> Router {
    Router::new().fallback(move |request: HttpRequest<Body>| {
        let access = access.clone();
        async move { serve(access, request).await }
    })
}

async fn serve<A: Access>(access: A, request: HttpRequest<Body>) -> HttpResponse<Body> {
    let request = match take(request).await {
        Ok(request) => request,
        Err(status) => return respond(status.into()),
    };
    if let Some(response) = server_paths(&access, &request) {
        return respond(response);
    }
    if let Some(response) = access.with(|cluster, _| proxy::answer(cluster, &request)) {
        return respond(response);
    }
    // A dry run writes to a copy: whatever a write draws, defines or admits on the way is gone with it.
    let routed = access.with(|cluster, now| match request.dry_run() {
        Ok(true) => route(&mut cluster.scratch(), now, &request),
        Ok(false) | Err(_) => route(cluster, now, &request),
    });
    match routed {
        Ok(Answer::Done(response)) => respond(response),
        Ok(Answer::Watch(watch)) => {
            let mut response = HttpResponse::new(Body::from_stream(watch::stream(access, *watch)));
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
        Ok(Answer::Log { pod, container }) => respond(log(&access, &request, &pod, &container)),
        Err(status) => respond(status.into()),
    }
}

fn server_paths<A: Access>(access: &A, request: &Request) -> Option<Response> {
    let version = access.git_version();
    access.with(|cluster, _| discovery::handle(&cluster.kinds, &version, request))
}

async fn take(request: HttpRequest<Body>) -> Result<Request, Status> {
    let (parts, body) = request.into_parts();
    let body = http_body_util::Limited::new(body, LARGEST_BODY)
        .collect()
        .await
        .map_err(|error| Status::too_large(format!("the request body cannot be read: {error}")))?;
    let header = |headers: &HeaderMap, name: header::HeaderName| {
        headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
    };
    Ok(Request {
        method: parts.method.to_string(),
        path: parts.uri.path().to_owned(),
        query: parse_query(parts.uri.query().unwrap_or_default()),
        accept: header(&parts.headers, header::ACCEPT),
        content_type: header(&parts.headers, header::CONTENT_TYPE),
        user_agent: header(&parts.headers, header::USER_AGENT),
        body: body.to_bytes(),
    })
}

fn respond(response: Response) -> HttpResponse<Body> {
    let Response { code, content_type, warnings, body } = response;
    let mut response = HttpResponse::new(Body::from(body));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or_default();
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(&content_type) {
        headers.insert(header::CONTENT_TYPE, value);
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    for warning in warnings {
        let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            headers.append(header::WARNING, value);
        }
    }
    response
}

/// The result of a request.
enum Answer {
    Done(Response),
    Watch(Box<Watch>),
    Log { pod: Value, container: String },
}

fn route(cluster: &mut Cluster, now: Timestamp, request: &Request) -> Result<Answer, Status> {
    let Some(place) = Place::parse(&request.path) else { return Ok(Answer::Done(Response::nowhere())) };
    let mut kind = cluster.kinds.by_path(&place.group, &place.version, &place.resource);
    // GKE has these definitions in every cluster; here each comes with the first object of its kind, unless somebody has
    // installed another one.
    let writes = matches!(request.method.as_str(), "PATCH" | "POST" | "PUT");
    if kind.is_none()
        && writes
        && let Some(definition) = schema::installed_crd(&place.group, &place.resource)
        && cluster.create(now, "addon-manager", definition).is_ok()
    {
        cluster.establish(now);
        kind = cluster.kinds.by_path(&place.group, &place.version, &place.resource);
    }
    let Some(kind) = kind.filter(|kind| kind.served) else {
        // Groups of the server's own answer for what they do not have; nobody answers for others.
        let own = cluster.kinds.all().any(|kind| kind.origin == Origin::BuiltIn && kind.group == place.group);
        return if own { Err(Status::no_such_path()) } else { Ok(Answer::Done(Response::nowhere())) };
    };
    if let Some(status) = kind.strategy.review {
        return review(status(), request).map(Answer::Done);
    }
    // Events outside of namespaces do not exist; other scopes must fit the path.
    if !kind.namespaced && !place.namespace.is_empty() {
        return Err(Status::no_such_path());
    }
    if kind.namespaced && place.namespace.is_empty() && (!place.name.is_empty() || request.method == "POST") {
        return Err(Status::no_such_path());
    }
    if !place.subresource.is_empty() && !kind.has(&place.subresource) {
        return Err(Status::no_such_path());
    }
    let call = Call { kind: &kind, place: &place, request, now };
    match place.subresource.as_str() {
        "" | "status" | "scale" | "finalize" => objects(cluster, &call),
        "log" if request.method == "GET" => log_place(cluster, &call),
        "binding" if request.method == "POST" => bind(cluster, &call).map(Answer::Done),
        "eviction" if request.method == "POST" => {
            write::delete(cluster, &call)?;
            Ok(Answer::Done(Response::json(201, &Status::success("", "", "", "").body())))
        }
        _ => Err(Status::not_allowed()),
    }
}

fn objects(cluster: &mut Cluster, call: &Call<'_>) -> Result<Answer, Status> {
    let Call { kind, place, request, .. } = *call;
    let verb = |name: &str| kind.verbs.iter().any(|verb| verb == name);
    let done = match (request.method.as_str(), place.name.is_empty()) {
        ("GET", _) if request.flag("watch") && place.subresource.is_empty() => {
            return Ok(Answer::Watch(Box::new(Watch::start(cluster, call)?)));
        }
        ("GET", true) if verb("list") => read::list(cluster, call)?,
        ("GET", false) => read::get(cluster, call)?,
        ("POST", true) if verb("create") => write::create(cluster, call)?,
        ("PUT", false) if verb("update") => write::update(cluster, call)?,
        ("PATCH", false) if verb("patch") => write::patch(cluster, call)?,
        ("DELETE", false) if verb("delete") && place.subresource.is_empty() => write::delete(cluster, call)?,
        ("DELETE", true) if verb("deletecollection") => write::delete_collection(cluster, call)?,
        _ => return Err(Status::not_allowed()),
    };
    Ok(Answer::Done(done))
}

/// A review, answered and not stored.
fn review(status: Value, request: &Request) -> Result<Response, Status> {
    if request.method != "POST" {
        return Err(Status::not_allowed());
    }
    let mut body = body::read(request)?;
    let fields = body.as_object_mut().ok_or_else(|| Status::bad_request("the body is not an object"))?;
    fields.insert("status".to_owned(), status);
    Ok(Response::json(201, &body))
}

/// The scheduler's POST: puts a pod on a node.
fn bind(cluster: &mut Cluster, call: &Call<'_>) -> Result<Response, Status> {
    let body = body::read(call.request)?;
    cluster.bind(call.now, &call.key(), text(&body, "/target/name"))?;
    Ok(Response::json(201, &Status::success("", "", "", "").body()))
}

/// Which container's log is asked for.
fn log_place(cluster: &Cluster, call: &Call<'_>) -> Result<Answer, Status> {
    let Call { place, request, .. } = *call;
    let pod = cluster.get(&call.key()).ok_or_else(|| call.not_found())?;
    let names = |pointer: &str| -> Vec<String> {
        list(pod, pointer).iter().map(|container| text(container, "/name").to_owned()).collect()
    };
    let (own, init) = (names("/spec/containers"), names("/spec/initContainers"));
    let container = match request.param("container").filter(|name| !name.is_empty()) {
        Some(name) if own.iter().chain(&init).any(|known| known == name) => name.to_owned(),
        Some(name) => {
            return Err(Status::bad_request(format!("container {name} is not valid for pod {}", place.name)));
        }
        None => match own.as_slice() {
            [only] => only.clone(),
            many => {
                let list = many.join(" ");
                let mut message = format!(
                    "a container name must be specified for pod {}, choose one of: [{list}]",
                    place.name
                );
                if !init.is_empty() {
                    message += &format!(" or one of the init containers: [{}]", init.join(" "));
                }
                return Err(Status::bad_request(message));
            }
        },
    };
    Ok(Answer::Log { pod: pod.clone(), container })
}

/// The log as the query cuts it: the last lines, then the first bytes. `follow` ends with what is there.
fn log<A: Access>(access: &A, request: &Request, pod: &Value, container: &str) -> Response {
    let Some(whole) = access.log(pod, container) else {
        let statuses = pod.pointer("/status/containerStatuses").and_then(Value::as_array);
        let waiting = statuses
            .into_iter()
            .flatten()
            .find(|status| status["name"] == container)
            .map(|status| text(status, "/state/waiting/reason").to_owned())
            .filter(|reason| !reason.is_empty());
        let name = text(pod, "/metadata/name");
        return match waiting {
            Some(reason) => Status::bad_request(format!(
                "container \"{container}\" in pod \"{name}\" is waiting to start: {reason}"
            )),
            None if text(pod, "/spec/nodeName").is_empty() => {
                Status::bad_request(format!("pod {name} does not have a host assigned"))
            }
            None => return Response::text(200, ""),
        }
        .into();
    };
    let number = |name: &str| request.param(name).and_then(|text| text.parse::<usize>().ok());
    let mut cut = whole.as_str();
    if let Some(lines) = number("tailLines") {
        let starts: Vec<usize> = std::iter::once(0)
            .chain(cut.match_indices('\n').map(|(at, _)| at + 1))
            .filter(|at| *at < cut.len())
            .collect();
        let first = starts.len().saturating_sub(lines);
        cut = starts.get(first).map_or("", |at| &cut[*at..]);
    }
    if let Some(limit) = number("limitBytes") {
        let end = (0..=limit.min(cut.len())).rev().find(|end| cut.is_char_boundary(*end)).unwrap_or(0);
        cut = &cut[..end];
    }
    Response::text(200, cut)
}

#[cfg(test)]
#[path = "api_tests.rs"]
mod tests;
