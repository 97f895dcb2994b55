//! The request of a client: the path taken apart, the query, the headers that matter.

use bytes::Bytes;
use percent_encoding::percent_decode_str;

use super::status::Status;

/// An HTTP request, complete.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// `GET`, `POST`, …
    pub method: String,
    /// Path without the query.
    pub path: String,
    /// Query pairs, decoded, in order.
    pub query: Vec<(String, String)>,
    /// `Accept`.
    pub accept: String,
    /// `Content-Type`.
    pub content_type: String,
    /// `User-Agent`.
    pub user_agent: String,
    pub body: Bytes,
}

/// An HTTP answer, complete.
#[derive(Clone, Debug)]
pub struct Response {
    /// Status code.
    pub code: u16,
    /// `Content-Type`.
    pub content_type: String,
    /// Texts of `Warning` headers.
    pub warnings: Vec<String>,
    pub body: Bytes,
}

impl Response {
    /// A JSON answer.
    pub fn json(code: u16, body: &serde_json::Value) -> Self {
        Self {
            code,
            content_type: "application/json".to_owned(),
            warnings: Vec::new(),
            body: Bytes::from(body.to_string()),
        }
    }

    /// Returns the answer when no handler is registered for a path: the server's mux answers in plain text.
    pub fn nowhere() -> Self {
        Self::text(404, "404 page not found\n")
    }

    /// A plain text answer.
    pub fn text(code: u16, body: impl Into<String>) -> Self {
        Self {
            code,
            content_type: "text/plain; charset=utf-8".to_owned(),
            warnings: Vec::new(),
            body: Bytes::from(body.into()),
        }
    }
}

impl From<Status> for Response {
    fn from(status: Status) -> Self {
        Self::json(status.code, &status.body())
    }
}

/// Taken apart `/api/v1/namespaces/x/pods/y/log` or `/apis/apps/v1/…`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// API group, empty for the core group.
    pub group: String,
    /// `v1`.
    pub version: String,
    /// Empty: cluster-wide, or all namespaces.
    pub namespace: String,
    /// `pods`.
    pub resource: String,
    /// Empty for a collection.
    pub name: String,
    /// Empty for the object itself.
    pub subresource: String,
}

impl Place {
    /// The place of a path below `/api/v1/` or `/apis/G/V/`; `None` for other paths.
    pub fn parse(path: &str) -> Option<Self> {
        let parts = path.split('/').filter(|part| !part.is_empty());
        let decoded = parts.map(|part| percent_decode_str(part).decode_utf8_lossy().into_owned());
        let mut parts: Vec<String> = decoded.collect();
        let group_parts = match parts.first().map(String::as_str) {
            Some("api") => 2,
            Some("apis") => 3,
            _ => return None,
        };
        if parts.len() <= group_parts {
            return None;
        }
        let rest = parts.split_off(group_parts);
        let group = if group_parts == 3 { parts[1].clone() } else { String::new() };
        let place = Self { group, version: parts[group_parts - 1].clone(), ..Self::default() };
        let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
        let (namespace, rest) = match rest.as_slice() {
            ["namespaces", _, "status" | "finalize"] => ("", rest.as_slice()),
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            rest => ("", rest),
        };
        let own = |at: usize| rest.get(at).copied().unwrap_or_default().to_owned();
        (rest.len() <= 3).then(|| Self {
            namespace: namespace.to_owned(),
            resource: own(0),
            name: own(1),
            subresource: own(2),
            ..place
        })
    }
}

impl Request {
    /// The last value of a query parameter.
    pub fn param(&self, name: &str) -> Option<&str> {
        self.query.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Returns true if a boolean query parameter is on, as Go reads booleans.
    pub fn flag(&self, name: &str) -> bool {
        self.param(name).is_some_and(|value| !matches!(value, "false" | "0" | "f" | "F" | "False" | "FALSE"))
    }

    /// Returns true if nothing may be stored.
    pub fn dry_run(&self) -> Result<bool, Status> {
        match self.param("dryRun") {
            None | Some("") => Ok(false),
            Some("All") => Ok(true),
            Some(other) => {
                let options = match self.method.as_str() {
                    "POST" => "CreateOptions",
                    "PUT" => "UpdateOptions",
                    "PATCH" => "PatchOptions",
                    _ => "DeleteOptions",
                };
                Err(Status::bad_option(options, "dryRun", &format!("[{other:?}]"), &["All"]))
            }
        }
    }

    /// The field manager: the query's, or the user agent up to its first slash.
    pub fn manager(&self) -> String {
        match self.param("fieldManager") {
            Some(name) if !name.is_empty() => name.to_owned(),
            _ => match self.user_agent.split('/').next().unwrap_or_default() {
                "" => "unknown".to_owned(),
                name => name.chars().take(128).collect(),
            },
        }
    }

    /// Returns true if the client accepts a `Table`, which kubectl prints.
    pub fn wants_table(&self) -> bool {
        self.accept.split(',').any(|media| media.contains("as=Table") && media.contains("g=meta.k8s.io"))
    }

    /// Returns true if the client wants objects with nothing but metadata.
    pub fn wants_metadata(&self) -> bool {
        self.accept.split(',').next().is_some_and(|media| media.contains("as=PartialObjectMetadata"))
    }
}

/// Query pairs, decoded.
pub fn parse_query(query: &str) -> Vec<(String, String)> {
    form_urlencoded::parse(query.as_bytes()).into_owned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_taken_apart() {
        for (path, expected) in [
            ("/api/v1/pods", ["", "v1", "", "pods", "", ""]),
            ("/api/v1/namespaces", ["", "v1", "", "namespaces", "", ""]),
            ("/api/v1/namespaces/a", ["", "v1", "", "namespaces", "a", ""]),
            ("/api/v1/namespaces/a/finalize", ["", "v1", "", "namespaces", "a", "finalize"]),
            ("/api/v1/namespaces/a/pods", ["", "v1", "a", "pods", "", ""]),
            ("/api/v1/namespaces/a/pods/b/log", ["", "v1", "a", "pods", "b", "log"]),
            ("/apis/apps/v1/namespaces/a/deployments/b", ["apps", "v1", "a", "deployments", "b", ""]),
            ("/apis/apps/v1/deployments", ["apps", "v1", "", "deployments", "", ""]),
        ] {
            let Place { group, version, namespace, resource, name, subresource } =
                Place::parse(path).unwrap();
            assert_eq!(
                [&group, &version, &namespace, &resource, &name, &subresource],
                expected.each_ref(),
                "{path}"
            );
        }
        assert_eq!(Place::parse("/api/v1"), None);
        assert_eq!(Place::parse("/apis/apps/v1"), None);
        assert_eq!(Place::parse("/version"), None);
    }

    #[test]
    fn queries_may_start_with_an_empty_piece() {
        let pairs = parse_query("&labelSelector=a%3Db%2Cc&x=1+2");
        assert_eq!(
            pairs,
            [("labelSelector".to_owned(), "a=b,c".to_owned()), ("x".to_owned(), "1 2".to_owned())]
        );
    }
}
