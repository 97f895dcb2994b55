//! Versions in the tags of images. A tag is what its author wrote: where it says nothing, nothing is known.

/// The parts of an image's tag: `26.04-cuda12-py3.13`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Tag<'i> {
    /// `RAPIDS`, `Dask`, or the image itself by another name.
    pub family: &'static str,
    pub version: Vec<u32>,
    pub python: Option<&'i str>,
}

impl<'i> Tag<'i> {
    /// Reads the tag of an image of RAPIDS or Dask.
    pub fn of(image: &'i str) -> Option<Self> {
        let (name, tag) = name_and_tag(image)?;
        let family = if name.contains("rapidsai") {
            "RAPIDS"
        } else if name.ends_with("/dask") || name.ends_with("/dask-notebook") || name.contains("daskdev/") {
            "Dask"
        } else {
            return None;
        };
        let mut parts = tag.split('-');
        let version = numbers(parts.next()?)?;
        let python = parts.find_map(|part| part.strip_prefix("py"));
        (version.len() > 1).then_some(Self { family, version, python })
    }
}

/// Returns the version of CUDA that an image's tag names, of any image: `cuda12`, `12.4-cuda12.8`, `nvidia/cuda:12.9.1-base`.
pub(super) fn cuda(image: &str) -> Option<Vec<u32>> {
    let (name, tag) = name_and_tag(image)?;
    let mut parts = tag.split('-');
    if name.ends_with("/cuda") {
        return numbers(parts.next()?);
    }
    parts.find_map(|part| numbers(part.strip_prefix("cuda")?))
}

fn name_and_tag(image: &str) -> Option<(&str, &str)> {
    image.split('@').next().unwrap_or(image).rsplit_once(':')
}

fn numbers(text: &str) -> Option<Vec<u32>> {
    text.split('.').map(str::parse).collect::<Result<_, _>>().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuda_is_read_from_tags() {
        for (image, expected) in [
            ("nvcr.io/nvidia/rapidsai/base:26.04-cuda13-py3.13", Some(vec![13])),
            ("rapidsai/base:25.04-cuda12.8-py3.12", Some(vec![12, 8])),
            ("pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime", Some(vec![12, 4])),
            ("nvcr.io/nvidia/cuda:12.9.1-base-ubuntu24.04", Some(vec![12, 9, 1])),
            ("rapidsai/base:26.04", None),
            ("rapidsai/base:26.04-cudax", None),
            ("localhost:5000/mine", None),
            ("mine", None),
        ] {
            assert_eq!(cuda(image), expected, "{image}");
        }
    }
}
