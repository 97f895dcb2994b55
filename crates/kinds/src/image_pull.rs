//! The images that a node pulls before a Pod starts, and how long that usually takes.

use serde_json::Value;

use model::address::FieldPath;
use model::images;
use model::resource::DurationEstimate;

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
            if seen.contains(&image) {
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageSource {
    /// True if containers start while an image of Artifact Registry is pulled.
    pub streams: bool,
    /// True if disks of the nodes have images. Which ones the file does not say.
    pub has_disks: bool,
}

impl ImageSource {
    /// Reads the body of a node pool. `streams` is the default of its cluster.
    pub fn of_pool(pool: &Value, streams: bool) -> Self {
        let config = &pool["config"];
        Self {
            streams: config["gcfsConfig"]["enabled"].as_bool().unwrap_or(streams),
            has_disks: config["secondaryBootDisks"].as_array().is_some_and(|disks| !disks.is_empty()),
        }
    }

    /// Returns true if a Pod waits until a new node has pulled an image. Nothing is expected of images that may be streamed, or may be
    /// there.
    pub fn pulls(self, image: &str) -> bool {
        let is_streamed = self.streams && images::is_streamed(image) != Some(false);
        !is_streamed && !self.has_disks
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
        let source = |config: Value, default: bool| {
            let source = ImageSource::of_pool(&json!({ "config": config }), default);
            (source.pulls(nvidia), source.pulls(own))
        };
        assert_eq!(source(json!({}), false), (true, true));
        assert_eq!(source(json!({}), true), (true, false));
        assert_eq!(source(json!({ "gcfsConfig": { "enabled": false } }), true), (true, true));
        assert_eq!(source(json!({ "gcfsConfig": { "enabled": true } }), false), (true, false));
        let disks = json!([{ "diskImage": "projects/p/global/images/i" }]);
        assert_eq!(source(json!({ "secondaryBootDisks": disks }), false), (false, false));
    }
}
