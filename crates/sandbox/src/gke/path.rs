//! The REST surface: what a method and a path ask for.

use std::fmt;

use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};

use super::places;

/// The identity of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClusterId {
    /// Project id or number, as the client wrote it.
    pub project: String,
    /// Zone or region.
    pub location: String,
    /// Name within the location.
    pub name: String,
}

impl ClusterId {
    /// A cluster from its three parts.
    pub fn new(project: &str, location: &str, name: &str) -> Self {
        Self { project: project.to_owned(), location: location.to_owned(), name: name.to_owned() }
    }

    /// `projects/P/zones/Z/clusters/C`, or `locations` for a region: the spelling of links and messages.
    pub fn link(&self) -> String {
        let Self { project, location, name } = self;
        format!("projects/{project}/{}/{location}/clusters/{name}", places::word(location))
    }
}

/// `projects/P/locations/L/clusters/C`.
impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { project, location, name } = self;
        write!(f, "projects/{project}/locations/{location}/clusters/{name}")
    }
}

/// The thing that a path names, without the method. A location of `-` means all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `projects/P/locations/L/clusters`.
    Clusters { project: String, location: String },
    /// One cluster, with the custom verb after the colon.
    Cluster { id: ClusterId, verb: Option<String> },
    /// `…/clusters/C/jwks`.
    Keys { id: ClusterId },
    /// `…/clusters/C/nodePools`.
    Pools { id: ClusterId },
    /// One node pool, with the custom verb after the colon.
    Pool { id: ClusterId, pool: String, verb: Option<String> },
    /// `projects/P/locations/L/operations`.
    Operations { project: String, location: String },
    /// One operation, with the custom verb after the colon.
    Operation { project: String, location: String, name: String, verb: Option<String> },
    /// `projects/P/locations/L/serverConfig`.
    ServerConfig { project: String, location: String },
    /// `projects/P/aggregated/usableSubnetworks`.
    UsableSubnetworks { project: String },
    /// Service usage: `projects/P/services/S`.
    Service { project: String, service: String },
    /// Compute: one instance group manager, or its group.
    InstanceGroup { project: String, zone: String, name: String, manager: bool },
    /// Compute: a machine type, or a GPU, of a zone.
    Offer { project: String, zone: String, name: String, machine: bool },
    /// Compute: a project, with its quotas.
    ComputeProject { project: String },
    /// Resource manager: a project, with the custom verb after the colon.
    Project { project: String, verb: Option<String> },
    /// Organization policy: a constraint as it holds for a project, with the custom verb after the colon.
    Policy { project: String, name: String, verb: Option<String> },
    /// Compute: the zones or regions of a project, or one of them.
    Places { project: String, regions: bool, name: Option<String> },
    /// Compute: all of a sort in a zone or a region.
    Collection { project: String, place: String, collection: Collection },
}

/// Lists of Compute Engine in a zone or a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collection {
    InstanceGroupManagers,
    InstanceGroups,
    MachineTypes,
    AcceleratorTypes,
    Operations,
}

/// Returns the target that `path` names; `None` when nothing is served there.
pub fn parse(path: &str) -> Option<Target> {
    let parts = path.trim_matches('/').split('/');
    let decoded = parts.map(|part| percent_decode_str(part).decode_utf8_lossy().into_owned());
    let mut parts: Vec<String> = decoded.collect();
    if parts.first().map(String::as_str) == Some("compute") {
        parts.drain(..2.min(parts.len()));
        return compute(&words(&parts));
    }
    if !matches!(parts.first().map(String::as_str), Some("v1" | "v1beta1" | "v2")) {
        return None;
    }
    let verb = parts.last_mut().and_then(|last| {
        // A project of a domain has a colon in its name.
        let (name, verb) = last.rsplit_once(':')?;
        let verb = verb.to_owned();
        *last = name.to_owned();
        Some(verb)
    });
    match words(&parts).as_slice() {
        ["v2", "projects", project, "policies", name] => {
            Some(Target::Policy { project: (*project).to_owned(), name: (*name).to_owned(), verb })
        }
        ["v2", ..] => None,
        [_, "projects", project] => Some(Target::Project { project: (*project).to_owned(), verb }),
        all => container(&all[1..], verb),
    }
}

fn words(parts: &[String]) -> Vec<&str> {
    parts.iter().map(String::as_str).collect()
}

fn container(parts: &[&str], verb: Option<String>) -> Option<Target> {
    let ["projects", project, rest @ ..] = parts else { return None };
    let project = (*project).to_owned();
    match rest {
        ["services", service] => return Some(Target::Service { project, service: (*service).to_owned() }),
        ["aggregated", "usableSubnetworks"] => return Some(Target::UsableSubnetworks { project }),
        _ => {}
    }
    // The zonal twins of the locations paths are older; some clients still use them.
    let ["locations" | "zones", location, rest @ ..] = rest else { return None };
    let location = (*location).to_owned();
    Some(match rest {
        ["serverConfig" | "serverconfig"] => Target::ServerConfig { project, location },
        ["operations"] => Target::Operations { project, location },
        ["operations", name] => Target::Operation { project, location, name: (*name).to_owned(), verb },
        ["clusters"] => Target::Clusters { project, location },
        ["clusters", name, rest @ ..] => {
            let id = ClusterId { project, location, name: (*name).to_owned() };
            match rest {
                [] => Target::Cluster { id, verb },
                ["jwks"] => Target::Keys { id },
                ["nodePools"] => Target::Pools { id },
                ["nodePools", pool] => Target::Pool { id, pool: (*pool).to_owned(), verb },
                _ => return None,
            }
        }
        _ => return None,
    })
}

fn compute(parts: &[&str]) -> Option<Target> {
    let ["projects", project, rest @ ..] = parts else { return None };
    let project = (*project).to_owned();
    Some(match rest {
        [] => Target::ComputeProject { project },
        ["zones", zone, kind @ ("machineTypes" | "acceleratorTypes"), name] => Target::Offer {
            project,
            zone: (*zone).to_owned(),
            name: (*name).to_owned(),
            machine: *kind == "machineTypes",
        },
        ["zones"] => Target::Places { project, regions: false, name: None },
        ["regions"] => Target::Places { project, regions: true, name: None },
        ["zones", name] => Target::Places { project, regions: false, name: Some((*name).to_owned()) },
        ["regions", name] => Target::Places { project, regions: true, name: Some((*name).to_owned()) },
        ["zones", zone, kind @ ("instanceGroupManagers" | "instanceGroups"), name] => Target::InstanceGroup {
            project,
            zone: (*zone).to_owned(),
            name: (*name).to_owned(),
            manager: *kind == "instanceGroupManagers",
        },
        ["regions", place, "operations"] => {
            let collection = Collection::Operations;
            Target::Collection { project, place: (*place).to_owned(), collection }
        }
        ["zones", place, word] => {
            let collection = match *word {
                "instanceGroupManagers" => Collection::InstanceGroupManagers,
                "instanceGroups" => Collection::InstanceGroups,
                "machineTypes" => Collection::MachineTypes,
                "acceleratorTypes" => Collection::AcceleratorTypes,
                "operations" => Collection::Operations,
                _ => return None,
            };
            Target::Collection { project, place: (*place).to_owned(), collection }
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_things() {
        let id = || ClusterId::new("p", "us-central1-c", "c");
        let cases = [
            ("/v1/projects/p/locations/us-central1-c/clusters/c", Target::Cluster { id: id(), verb: None }),
            ("/v1beta1/projects/p/zones/us-central1-c/clusters/c/", Target::Cluster { id: id(), verb: None }),
            (
                "/v1/projects/p/locations/us-central1-c/clusters/c:setResourceLabels",
                Target::Cluster { id: id(), verb: Some("setResourceLabels".into()) },
            ),
            (
                "/v1/projects/p/locations/us-central1-c/clusters/c/nodePools/a%3AsetSize",
                Target::Pool { id: id(), pool: "a".into(), verb: Some("setSize".into()) },
            ),
            (
                "/v1/projects/p/services/container.googleapis.com",
                Target::Service { project: "p".into(), service: "container.googleapis.com".into() },
            ),
            (
                "/compute/v1/projects/p/zones/z/instanceGroupManagers/g",
                Target::InstanceGroup {
                    project: "p".into(),
                    zone: "z".into(),
                    name: "g".into(),
                    manager: true,
                },
            ),
        ];
        for (path, want) in cases {
            assert_eq!(parse(path), Some(want), "{path}");
        }
        let project = "/v1/projects/example.com:p:testIamPermissions";
        let verb = || Some("testIamPermissions".to_owned());
        assert_eq!(parse(project), Some(Target::Project { project: "example.com:p".into(), verb: verb() }));
        for path in
            ["/", "/v2/projects/p/locations/l/clusters", "/v1/projects", "/v1/projects/p/locations/l/x"]
        {
            assert_eq!(parse(path), None, "{path}");
        }
    }

    #[test]
    fn links_keep_the_older_spelling_for_zones() {
        assert_eq!(
            ClusterId::new("p", "us-central1-c", "c").link(),
            "projects/p/zones/us-central1-c/clusters/c"
        );
        assert_eq!(
            ClusterId::new("p", "us-central1", "c").link(),
            "projects/p/locations/us-central1/clusters/c"
        );
    }
}
