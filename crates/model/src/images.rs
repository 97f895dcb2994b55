//! Facts about container images that their names tell. `images.toml` has the sizes.

use std::net::{IpAddr, SocketAddr};
use std::sync::LazyLock;

use serde::Deserialize;

use crate::resource::DurationEstimate;

/// The registry of images whose name has none. Source: Kubernetes, "Images", "Image names".
const DOCKER_HUB: &str = "docker.io";

/// `images.toml`.
#[derive(Deserialize)]
struct Facts {
    /// MB of an unpacked image that a node pulls in a second, when it goes slowly.
    slowest: f64,
    /// MB in a second when it goes fast.
    fastest: f64,
    /// Names, without a tag, of images that are pulled in seconds.
    small: Vec<String>,
    #[serde(rename = "image")]
    images: Vec<Size>,
}

/// The size of images of some names.
#[derive(Deserialize)]
struct Size {
    /// Names with the registry, without a tag.
    names: Vec<String>,
    /// The least and the largest size of the unpacked image in GB.
    gb: [f64; 2],
}

static FACTS: LazyLock<Option<Facts>> = LazyLock::new(|| toml::from_str(include_str!("images.toml")).ok());

/// Returns the usual time in which a node pulls an image; `None` if its size is not known.
pub fn pull_time(image: &str) -> Option<DurationEstimate> {
    let facts = FACTS.as_ref()?;
    let (registry, path) = registry_and_path(image);
    let path = path.split(['@', ':']).next().unwrap_or_default();
    let is_behind = |name: &str| {
        // In a remote repository of Artifact Registry, the path of an image follows the project and the repository.
        let upstream = name.split_once('/').map_or(name, |(_, path)| path);
        registry.ends_with(".pkg.dev") && path.splitn(3, '/').nth(2) == Some(upstream)
    };
    let is_named = |name: &String| *name == format!("{registry}/{path}") || is_behind(name);
    let size = facts.images.iter().find(|size| size.names.iter().any(is_named))?;
    let [least, most] = size.gb;
    Some(DurationEstimate { least: seconds(least, facts.fastest), most: seconds(most, facts.slowest) })
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
fn seconds(gb: f64, mb_per_second: f64) -> u32 {
    (gb * 1000.0 / mb_per_second).round() as u32
}

/// Returns true if GKE streams an image on nodes with image streaming in a region, and false if a node pulls the whole image before its
/// container starts. `None` for images of `gcr.io`: Artifact Registry serves them in projects that have moved them there, and only there.
///
/// Source: GKE, "Use Image streaming to pull container images", "Requirements" and "Limitations": images are in Artifact Registry, in the
/// region of the nodes or in the multi-region that has it. A remote repository of it has the names of Artifact Registry.
pub fn is_streamed(image: &str, region: &str) -> Option<bool> {
    let (registry, _) = registry_and_path(image);
    match registry_location(registry) {
        // The multi-regions of Artifact Registry are `us`, `europe` and `asia`.
        Some(location) => Some(location == region || region.split('-').next() == Some(location)),
        None => (!is_in(registry, "gcr.io") && !is_in(registry, "pkg.dev")).then_some(false),
    }
}

/// Returns the location of a registry of Artifact Registry: `us-central1` for `us-central1-docker.pkg.dev`.
pub fn registry_location(registry: &str) -> Option<&str> {
    registry.strip_suffix("-docker.pkg.dev")
}

fn is_in(registry: &str, domain: &str) -> bool {
    registry.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// Returns true for an image that a node pulls in seconds: its pull is not part of a time, and plans do not name it.
pub fn is_small(image: &str) -> bool {
    let (registry, path) = registry_and_path(image);
    let name = format!("{registry}/{}", path.split(['@', ':']).next().unwrap_or_default());
    FACTS.as_ref().is_some_and(|facts| facts.small.contains(&name))
}

/// Splits the name of an image, with its tag: `("nvcr.io", "nvidia/rapidsai/base:26.04")`, `("docker.io", "library/python:3.13")`.
pub fn registry_and_path(image: &str) -> (&str, String) {
    match image.split_once('/') {
        // As containerd tells a registry from the first part of a path.
        Some((first, path)) if first.contains(['.', ':']) || first == "localhost" => {
            let is_official = first == DOCKER_HUB && !path.contains('/');
            (first, if is_official { format!("library/{path}") } else { path.to_owned() })
        }
        Some(_) => (DOCKER_HUB, image.to_owned()),
        None => (DOCKER_HUB, format!("library/{image}")),
    }
}

/// A remote repository of Artifact Registry, and the name that an image has behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteRepository {
    /// The command that creates it.
    pub command: String,
    /// The image in it.
    pub image: String,
}

impl RemoteRepository {
    /// Returns the repository in a region through which an image of another registry is pulled; `None` for a registry without a public
    /// name, which Google cannot reach, and for Google's own.
    ///
    /// Source: `gcloud artifacts repositories create --help` of gcloud 528, and Artifact Registry, "Create remote repositories".
    pub fn of(image: &str, project: &str, region: &str) -> Option<Self> {
        let (registry, path) = registry_and_path(image);
        if !has_public_name(registry) || is_in(registry, "pkg.dev") {
            return None;
        }
        let (name, upstream) = match registry {
            DOCKER_HUB => ("docker-hub".to_owned(), "docker-hub".to_owned()),
            other => (repository_name(other), format!("https://{other}")),
        };
        let command = format!(
            "gcloud artifacts repositories create {name} --project={project} --location={region} --repository-format=docker \
             --mode=remote-repository --remote-docker-repo={upstream}"
        );
        Some(Self { command, image: format!("{region}-docker.pkg.dev/{project}/{name}/{path}") })
    }
}

/// Returns true for a registry whose name public DNS may have: not an IP address, and not a name of one label, such as `localhost`.
fn has_public_name(registry: &str) -> bool {
    const PRIVATE: [&str; 4] = [".local", ".internal", ".localhost", ".svc"];
    let is_address = registry.parse::<SocketAddr>().is_ok() || registry.parse::<IpAddr>().is_ok();
    let host = registry.split(':').next().unwrap_or_default();
    !is_address && host.contains('.') && !PRIVATE.iter().any(|end| host.ends_with(end))
}

/// Returns a name for a repository after a registry: lower case letters, digits and hyphens, first a letter.
fn repository_name(registry: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let name: String = registry.chars().map(letter).collect();
    match name.starts_with(|c: char| c.is_ascii_lowercase()) {
        true => name,
        false => format!("r-{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_artifact_registry_of_the_region_is_streamed() {
        for (image, region, expected) in [
            ("us-central1-docker.pkg.dev/p/r/base:1", "us-central1", Some(true)),
            ("us-central1-docker.pkg.dev/p/r/base:1", "us-central2", Some(false)),
            ("us-docker.pkg.dev/p/r/base:1", "us-central1", Some(true)),
            ("us-docker.pkg.dev/p/r/base:1", "europe-west4", Some(false)),
            ("europe-docker.pkg.dev/p/r/base:1", "europe-west4", Some(true)),
            ("asia-docker.pkg.dev/p/r/base:1", "asia-east1", Some(true)),
            ("pkg.dev/p/r/base:1", "us-central1", None),
            ("gcr.io/p/base:1", "us-central1", None),
            ("eu.gcr.io/p/base:1", "us-central1", None),
            ("nvcr.io/nvidia/rapidsai/base:26.04", "us-central1", Some(false)),
            ("rapidsai/base:26.04", "us-central1", Some(false)),
            ("python", "us-central1", Some(false)),
            ("notpkg.dev/p", "us-central1", Some(false)),
            ("localhost:5000/pkg.dev", "us-central1", Some(false)),
        ] {
            assert_eq!(is_streamed(image, region), expected, "{image} in {region}");
        }
    }

    #[test]
    fn the_sample_of_the_check_is_small() {
        assert!(is_small("nvidia/samples:vectoradd-cuda11.6.0-ubuntu18.04"));
        assert!(!is_small("nvidia/cuda:12") && !is_small("example.com/nvidia/samples:1"));
    }

    #[test]
    fn the_time_of_a_pull_is_known_where_the_size_is() {
        for (image, expected) in [
            ("nvcr.io/nvidia/rapidsai/base:26.04-cuda12-py3.13", Some("2–12 min")),
            ("rapidsai/base:26.04-cuda12-py3.13", Some("2–12 min")),
            ("docker.io/rapidsai/base@sha256:0", Some("2–12 min")),
            ("europe-docker.pkg.dev/p/nvcr-io/nvidia/rapidsai/base:26.04", Some("2–12 min")),
            ("europe-docker.pkg.dev/p/docker-hub/rapidsai/base:26.04", Some("2–12 min")),
            ("ghcr.io/dask/dask:2026.8.0-py3.13", Some("9–50 s")),
            ("ghcr.io/dask/dask-notebook", Some("18 s–2 min")),
            ("europe-docker.pkg.dev/p/rapidsai/base:26.04", None),
            ("example.com/rapidsai/base:1", None),
            ("rapidsai/notebooks:26.04", None),
            ("mine", None),
            ("", None),
        ] {
            let found = pull_time(image).map(|time| time.to_string());
            assert_eq!(found.as_deref(), expected, "{image}");
        }
    }

    #[test]
    fn names_have_a_registry_and_a_path() {
        for (image, registry, path) in [
            ("nvcr.io/nvidia/rapidsai/base:26.04", "nvcr.io", "nvidia/rapidsai/base:26.04"),
            ("rapidsai/base:26.04", "docker.io", "rapidsai/base:26.04"),
            ("docker.io/python:3", "docker.io", "library/python:3"),
            ("python:3", "docker.io", "library/python:3"),
            ("localhost/a", "localhost", "a"),
        ] {
            assert_eq!(registry_and_path(image), (registry, path.to_owned()), "{image}");
        }
    }

    #[test]
    fn a_remote_repository_keeps_the_path_of_an_image() {
        let repository = |image: &str| RemoteRepository::of(image, "demo", "us-central1").unwrap();
        let nvidia = repository("nvcr.io/nvidia/rapidsai/base:26.04");
        assert_eq!(nvidia.image, "us-central1-docker.pkg.dev/demo/nvcr-io/nvidia/rapidsai/base:26.04");
        assert!(nvidia.command.ends_with("--remote-docker-repo=https://nvcr.io"), "{}", nvidia.command);
        let hub = repository("python:3");
        assert_eq!(hub.image, "us-central1-docker.pkg.dev/demo/docker-hub/library/python:3");
        assert!(hub.command.ends_with("--remote-docker-repo=docker-hub"), "{}", hub.command);
        assert_eq!(repository("1a.example/a").image, "us-central1-docker.pkg.dev/demo/r-1a-example/a");
        for image in ["localhost/a", "localhost:5000/a", "registry:5000/a", "10.0.0.1:5000/a", "10.0.0.1/a"] {
            assert_eq!(RemoteRepository::of(image, "demo", "us-central1"), None, "{image}");
        }
    }
}
