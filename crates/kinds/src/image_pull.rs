//! The images that a node pulls before a Pod starts, and how long that usually takes.

use serde_json::Value;

use model::address::FieldPath;
use model::catalog;
use model::images;
use model::resource::{ClusterName, DurationEstimate};

/// Returns the images of a PodSpec with their paths in it.
pub fn images(spec: &Value) -> impl Iterator<Item = (FieldPath, &str)> {
    ["initContainers", "containers"].into_iter().flat_map(move |list| {
        let containers = spec[list].as_array().into_iter().flatten().enumerate();
        containers.filter_map(move |(index, container)| {
            Some((FieldPath::keys([list]).index(index).key("image"), container["image"].as_str()?))
        })
    })
}

/// The pulls that a Pod on a new node waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImagePull<'s> {
    /// The usual time of the pulls of images whose size is known.
    pub known: DurationEstimate,
    /// Images whose size is not known.
    pub unknown: Vec<&'s str>,
}

impl<'s> ImagePull<'s> {
    /// Returns the pulls of images, which come one after the other, each once.
    pub fn of(images: impl IntoIterator<Item = &'s str>) -> Self {
        let mut pull = Self::default();
        let mut seen: Vec<&str> = Vec::new();
        for image in images {
            if seen.contains(&image) || images::is_small(image) {
                continue;
            }
            seen.push(image);
            match images::pull_time(image) {
                Some(time) => pull.known = pull.known + time,
                None => pull.unknown.push(image),
            }
        }
        pull
    }
}

/// The nodes on which Pods start, as far as their images are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageSource<'r> {
    /// True if containers start while an image of Artifact Registry in the region is pulled.
    pub streams: bool,
    /// True if disks of the nodes have images. Which ones the file does not say.
    pub has_disks: bool,
    /// True if registries have mirrors, of which the file does not say where they are.
    pub has_mirrors: bool,
    pub region: &'r str,
}

impl<'r> ImageSource<'r> {
    /// Reads the body of a node pool; `cluster` is that of its cluster, which has the default of image streaming. GKE writes the default
    /// into a live pool.
    pub fn of(pool: &Value, cluster: &Value, name: &'r ClusterName) -> Self {
        let config = &pool["config"];
        let default = &cluster["nodePoolDefaults"]["nodeConfigDefaults"]["gcfsConfig"]["enabled"];
        let has = |list: &Value| list.as_array().is_some_and(|list| !list.is_empty());
        Self {
            streams: config["gcfsConfig"]["enabled"].as_bool().unwrap_or(*default == true),
            has_disks: has(&config["secondaryBootDisks"]),
            has_mirrors: has(&config["containerdConfig"]["registryHosts"]),
            region: catalog::region_of(&name.location).unwrap_or(&name.location),
        }
    }

    /// Returns true if a Pod waits until a new node has pulled an image. Nothing is expected of images that may be streamed, or may be
    /// there.
    pub fn pulls(self, image: &str) -> bool {
        !self.may_stream(image) && !self.has_disks
    }

    /// Returns true if an image may be streamed. A mirror may be one of Artifact Registry.
    pub fn may_stream(self, image: &str) -> bool {
        self.streams && (self.has_mirrors || images::is_streamed(image, self.region) != Some(false))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn name(location: &str) -> ClusterName {
        ClusterName { project: "demo".into(), location: location.into(), cluster: "c".into() }
    }

    #[test]
    fn each_image_is_pulled_once_and_the_unknown_ones_are_named() {
        let spec = json!({
            "initContainers": [{ "image": "mine:1" }],
            "containers": [{ "image": "ghcr.io/dask/dask:1" }, { "image": "ghcr.io/dask/dask:1" }, { "name": "none" }],
        });
        let found: Vec<(String, &str)> =
            images(&spec).map(|(path, image)| (path.to_string(), image)).collect();
        assert_eq!(found[0], ("initContainers[0].image".to_owned(), "mine:1"));
        let pull = ImagePull::of(found.iter().map(|(_, image)| *image));
        assert_eq!(
            pull,
            ImagePull { known: DurationEstimate { least: 9, most: 50 }, unknown: vec!["mine:1"] }
        );
        assert_eq!(ImagePull::of([]), ImagePull::default());
    }

    #[test]
    fn a_pool_may_stream_an_image_or_have_it() {
        let (nvidia, own) = ("nvcr.io/nvidia/rapidsai/base:1", "us-docker.pkg.dev/p/r/i:1");
        let (us, europe) = (name("us-central1-c"), name("europe-west4"));
        let source = |config: Value, default: bool| {
            let gcfs = json!({ "gcfsConfig": { "enabled": default } });
            let cluster = json!({ "nodePoolDefaults": { "nodeConfigDefaults": gcfs } });
            let pulls = |name| {
                let source = ImageSource::of(&json!({ "config": config }), &cluster, name);
                (source.pulls(nvidia), source.pulls(own))
            };
            // A repository elsewhere is not streamed.
            assert_eq!(pulls(&europe).0, pulls(&europe).1);
            pulls(&us)
        };
        assert_eq!(source(json!({}), false), (true, true));
        assert_eq!(source(json!({}), true), (true, false));
        assert_eq!(source(json!({ "gcfsConfig": { "enabled": false } }), true), (true, true));
        assert_eq!(source(json!({ "gcfsConfig": { "enabled": true } }), false), (true, false));
        let disks = json!([{ "diskImage": "projects/p/global/images/i" }]);
        assert_eq!(source(json!({ "secondaryBootDisks": disks }), false), (false, false));
        let mirrors = json!({ "registryHosts": [{ "server": "nvcr.io" }] });
        assert_eq!(source(json!({ "containerdConfig": mirrors }), false), (true, true));
        assert_eq!(source(json!({ "containerdConfig": mirrors }), true), (false, false));
    }
}
