//! Discovery in the API server: versions, groups and resources; [`super::openapi`] has their shapes.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::openapi;
use super::request::{Request, Response};
use super::scheme::{Kind, Kinds, MINOR, Origin, api_version};

/// Groups in the API server's own order of preference; others follow by name.
const ORDER: &[&str] =
    &["", "apps", "events.k8s.io", "authentication.k8s.io", "authorization.k8s.io", "autoscaling", "batch"];

/// Groups of kinds that are served, versions in order, best first.
type Groups = Vec<(String, Versions)>;

/// Versions of a group, best first, with their kinds.
type Versions = Vec<(String, Vec<Arc<Kind>>)>;

fn groups(kinds: &Kinds) -> Groups {
    type Ranked = BTreeMap<VersionRank, (String, Vec<Arc<Kind>>)>;
    let mut found: BTreeMap<(usize, String), Ranked> = BTreeMap::new();
    for kind in kinds.all().filter(|kind| kind.served) {
        let rank = ORDER.iter().position(|group| *group == kind.group).unwrap_or(ORDER.len());
        found
            .entry((rank, kind.group.clone()))
            .or_default()
            .entry(version_rank(&kind.version))
            .or_insert_with(|| (kind.version.clone(), Vec::new()))
            .1
            .push(kind.clone());
    }
    found
        .into_iter()
        .map(|((_, group), versions)| {
            let versions = versions
                .into_values()
                .map(|(version, mut kinds)| {
                    kinds.sort_by(|a, b| a.plural.cmp(&b.plural));
                    (version, kinds)
                })
                .collect();
            (group, versions)
        })
        .collect()
}

type VersionRank = (u8, std::cmp::Reverse<u32>, std::cmp::Reverse<u32>, String);

/// `v2` before `v1` before `v1beta2` before `v1alpha1` before anything else.
fn version_rank(version: &str) -> VersionRank {
    let reverse = std::cmp::Reverse;
    let other = (3, reverse(0), reverse(0), version.to_owned());
    let Some(rest) = version.strip_prefix('v') else { return other };
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let Ok(major) = rest[..digits].parse::<u32>() else { return other };
    let minor = |text: &str| text.parse::<u32>().unwrap_or(0);
    match &rest[digits..] {
        "" => (0, reverse(major), reverse(0), version.to_owned()),
        tail => match (tail.strip_prefix("beta"), tail.strip_prefix("alpha")) {
            (Some(text), _) => (1, reverse(major), reverse(minor(text)), version.to_owned()),
            (_, Some(text)) => (2, reverse(major), reverse(minor(text)), version.to_owned()),
            _ => other,
        },
    }
}

/// Answers the paths that are about the server, not about objects; `None` for other paths.
pub fn handle(kinds: &Kinds, git_version: &str, request: &Request) -> Option<Response> {
    let aggregated = request.accept.split(',').any(|media| {
        media.contains("g=apidiscovery.k8s.io")
            && media.contains("v=v2;") | media.ends_with("v=v2")
            && media.contains("as=APIGroupDiscoveryList")
    });
    let parts: Vec<&str> = request.path.split('/').filter(|part| !part.is_empty()).collect();
    let response = match parts.as_slice() {
        ["healthz" | "readyz" | "livez", ..] => Response::text(200, "ok"),
        ["version"] => Response::json(200, &version(git_version)),
        [] => Response::json(
            200,
            &json!({"paths": ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/openapi/v2",
            "/openapi/v3", "/readyz", "/version"]}),
        ),
        ["api"] | ["apis"] if aggregated => aggregate(kinds, parts == ["api"]),
        ["api"] => Response::json(
            200,
            &json!({"kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:443"}]}),
        ),
        ["apis"] => {
            let groups: Vec<Value> =
                groups(kinds).iter().filter(|(name, _)| !name.is_empty()).map(group).collect();
            Response::json(200, &json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
        }
        ["apis", name] => match groups(kinds).iter().find(|(group, _)| group == name) {
            Some(found) => {
                let mut body = group(found);
                body["kind"] = json!("APIGroup");
                body["apiVersion"] = json!("v1");
                Response::json(200, &body)
            }
            None => Response::nowhere(),
        },
        ["api", "v1"] => resources(kinds, "", "v1"),
        ["apis", group, version] => resources(kinds, group, version),
        ["openapi", path @ ..] => openapi::handle(kinds, request, path),
        _ => return None,
    };
    Some(response)
}

fn version(git_version: &str) -> Value {
    let number = git_version.trim_start_matches('v');
    let mut parts = number.split(['.', '-']);
    let (major, minor) = (parts.next().unwrap_or("1"), parts.next().unwrap_or(MINOR));
    json!({"major": major, "minor": minor, "gitVersion": format!("v{number}"), "gitCommit": "",
        "gitTreeState": "clean", "buildDate": "2026-01-01T00:00:00Z", "goVersion": "go1.25.0", "compiler": "gc",
        "platform": "linux/amd64"})
}

fn group((name, versions): &(String, Versions)) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .map(|(version, _)| json!({"groupVersion": format!("{name}/{version}"), "version": version}))
        .collect();
    json!({"name": name, "versions": versions, "preferredVersion": versions.first()})
}

fn resources(kinds: &Kinds, group: &str, version: &str) -> Response {
    let all = groups(kinds);
    let found = all
        .iter()
        .find(|(name, _)| name == group)
        .and_then(|(_, versions)| versions.iter().find(|(name, _)| name == version));
    let Some((_, kinds)) = found else { return Response::nowhere() };
    let mut list = Vec::new();
    for kind in kinds {
        let mut entry = json!({"name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced,
            "kind": kind.kind, "verbs": kind.verbs});
        if !kind.short_names.is_empty() {
            entry["shortNames"] = json!(kind.short_names);
        }
        if !kind.categories.is_empty() {
            entry["categories"] = json!(kind.categories);
        }
        list.push(entry);
        for name in &kind.subresources {
            let (scope, as_kind) = subresource(kind, name);
            let mut entry = json!({"name": format!("{}/{name}", kind.plural), "singularName": "",
                "namespaced": kind.namespaced, "kind": as_kind, "verbs": subresource_verbs(name)});
            if let Some((group, version)) = scope {
                entry["group"] = json!(group);
                entry["version"] = json!(version);
            }
            list.push(entry);
        }
    }
    let version = api_version(group, version);
    Response::json(
        200,
        &json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version,
        "resources": list}),
    )
}

/// The kind that a subresource speaks, with its group and version when they are not the resource's.
fn subresource(kind: &Kind, name: &str) -> (Option<(&'static str, &'static str)>, String) {
    match name {
        "scale" => (Some(("autoscaling", "v1")), "Scale".to_owned()),
        "eviction" => (Some(("policy", "v1")), "Eviction".to_owned()),
        "token" => (Some(("authentication.k8s.io", "v1")), "TokenRequest".to_owned()),
        "binding" => (None, "Binding".to_owned()),
        _ => {
            let own = kind.strategy.options.iter().find(|(known, _)| *known == name);
            (None, own.map_or_else(|| kind.kind.clone(), |(_, kind)| (*kind).to_owned()))
        }
    }
}

fn subresource_verbs(name: &str) -> Vec<&'static str> {
    match name {
        "log" => vec!["get"],
        "binding" | "eviction" | "token" => vec!["create"],
        "attach" | "exec" | "portforward" => vec!["create", "get"],
        "finalize" | "approval" => vec!["update"],
        _ => vec!["get", "patch", "update"],
    }
}

/// `APIGroupDiscoveryList`: everything about `/api` or `/apis` in one answer.
fn aggregate(kinds: &Kinds, core: bool) -> Response {
    let items: Vec<Value> = groups(kinds)
        .into_iter()
        .filter(|(name, _)| name.is_empty() == core)
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|(version, kinds)| {
                    let resources: Vec<Value> =
                        kinds.iter().map(|kind| aggregated_resource(&group, version, kind)).collect();
                    json!({"version": version, "freshness": "Current", "resources": resources})
                })
                .collect();
            let mut metadata = json!({});
            if !group.is_empty() {
                metadata["name"] = json!(group);
            }
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    let mut response = Response::json(
        200,
        &json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}),
    );
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        .clone_into(&mut response.content_type);
    response
}

fn aggregated_resource(group: &str, version: &str, kind: &Kind) -> Value {
    let speaks =
        |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    // Built-in kinds leave out the group and version of the document that lists them.
    let (group, version) = match kind.origin {
        Origin::BuiltIn => ("", ""),
        Origin::Custom => (group, version),
    };
    let mut entry = json!({"resource": kind.plural, "responseKind": speaks(group, version, &kind.kind),
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" }, "singularResource": kind.singular,
        "verbs": kind.verbs});
    if !kind.short_names.is_empty() {
        entry["shortNames"] = json!(kind.short_names);
    }
    if !kind.categories.is_empty() {
        entry["categories"] = json!(kind.categories);
    }
    let subresources: Vec<Value> = kind
        .subresources
        .iter()
        .map(|name| {
            let (scope, as_kind) = subresource(kind, name);
            let (group, version) = scope.unwrap_or((group, version));
            json!({"subresource": name, "responseKind": speaks(group, version, &as_kind),
                "verbs": subresource_verbs(name)})
        })
        .collect();
    if !subresources.is_empty() {
        entry["subresources"] = json!(subresources);
    }
    entry
}
