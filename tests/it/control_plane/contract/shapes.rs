//! The shape of a request: what is left when names, versions and values are taken out of it.

use serde_json::Value;

use super::script::{Case, Step};

/// Query keys whose values change what is asked for. Of the others only the key counts.
const TELLING: &[&str] = &[
    "allowWatchBookmarks",
    "dryRun",
    "fieldValidation",
    "follow",
    "force",
    "includeObject",
    "resourceVersionMatch",
    "sendInitialEvents",
    "watch",
];

/// A request as it came or as a case has it.
pub struct RequestParts<'a> {
    pub method: &'a str,
    /// With the query.
    pub path: &'a str,
    pub accept: &'a str,
    pub content_type: &'a str,
    pub body: &'a [u8],
}

impl RequestParts<'_> {
    /// `METHOD PATTERN?QUERY < ACCEPT > CONTENT-TYPE BODY`.
    pub fn shape(&self) -> String {
        let (path, query) = self.path.split_once('?').unwrap_or((self.path, ""));
        let mut shape = format!("{} {}", self.method, pattern(path));
        let mut keys: Vec<String> = query.split('&').filter(|pair| !pair.is_empty()).map(pair).collect();
        keys.sort();
        if !keys.is_empty() {
            shape += &format!("?{}", keys.join("&"));
        }
        if !self.accept.is_empty() {
            shape += &format!(" < {}", self.accept);
        }
        if !self.body.is_empty() {
            shape += &format!(" > {} {}", self.content_type, self.sort());
        }
        shape
    }

    fn sort(&self) -> &'static str {
        if self.method == "PATCH" {
            return "patch";
        }
        let json: Value = serde_json::from_slice(self.body).unwrap_or_default();
        let options = json["kind"] == "DeleteOptions" || (self.method == "DELETE" && json.is_object());
        if options { "options" } else { "object" }
    }
}

fn pair(pair: &str) -> String {
    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
    if TELLING.contains(&key) { format!("{key}={value}") } else { key.to_owned() }
}

/// A path without names. Groups of the server's own are told from those of definitions.
fn pattern(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let (group, rest) = match parts.as_slice() {
        ["openapi", "v3", "api" | "apis", ..] => return "/openapi/v3/{group-version}".to_owned(),
        ["api", _, rest @ ..] => ("", rest),
        ["apis", group, _, rest @ ..] => (*group, rest),
        _ => return path.to_owned(),
    };
    let own = model::schema::apis().iter().any(|api| api.group == group);
    let group = if own { "{built-in}" } else { "{custom}" };
    let (scope, rest) = match rest {
        ["namespaces", _, rest @ ..] if !rest.is_empty() && rest[0] != "finalize" => {
            ("/namespaces/{namespace}", rest)
        }
        rest => ("", rest),
    };
    let rest = match rest {
        [] => "",
        [_] => "/{resource}",
        [_, _] => "/{resource}/{name}",
        [_, _, below, ..] => return format!("{group}{scope}/{{resource}}/{{name}}/{below}"),
    };
    format!("{group}{scope}{rest}")
}

/// The shape of each request of a case.
pub fn of_case(case: &Case) -> Vec<String> {
    case.steps.iter().flat_map(of_step).collect()
}

/// A client may watch for ever, a case may not: its time limit counts as none, too.
fn of_step(step: &Step) -> Vec<String> {
    let shape = shape_of(step);
    let endless = shape.replace("&timeoutSeconds", "");
    if shape.contains("watch=true") && endless != shape { vec![shape, endless] } else { vec![shape] }
}

fn shape_of(step: &Step) -> String {
    let header = |wanted: &str| {
        let found = step.headers.iter().find(|(name, _)| name == wanted);
        found.map_or("", |(_, value)| value.as_str())
    };
    let body = step.bytes(&[]);
    RequestParts {
        method: step.method,
        path: &step.path,
        accept: header("accept"),
        content_type: header("content-type"),
        body: &body,
    }
    .shape()
}
