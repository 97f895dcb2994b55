//! Names: [`Address`] is what people read and type, [`FieldPath`] is a place in a tree of values.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The TOML path of what is managed: `cluster`, `node_pool.a100`, `dask_cluster.rapids`. An object
/// that a section makes beside its main one adds its own name: `gpu_driver/DaemonSet/kube-system/x`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Address(String);

impl Address {
    /// An address from its printed form.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// `section.key`.
    pub fn of(section: &str, key: &str) -> Self {
        Self(format!("{section}.{key}"))
    }

    /// The address of an object inside a section: `section/Kind/namespace/name`, or without the
    /// namespace for cluster-wide kinds.
    pub fn object(section: &str, kind: &str, namespace: Option<&str>, name: &str) -> Self {
        match namespace {
            Some(namespace) => Self(format!("{section}/{kind}/{namespace}/{name}")),
            None => Self(format!("{section}/{kind}/{name}")),
        }
    }

    /// The part that names a place in the TOML file: everything before the first `/`.
    pub fn section(&self) -> &str {
        self.0.split('/').next().unwrap_or_default()
    }

    /// The printed form.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `text` is this address or a unique-looking ending of it, cut at `.` or `/`.
    pub fn ends_with(&self, text: &str) -> bool {
        match self.0.strip_suffix(text) {
            Some("") => true,
            Some(before) => before.ends_with(['.', '/']),
            None => false,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One step into a tree.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Segment {
    /// A key of a table or object.
    Key(String),
    /// A place in a list.
    Index(usize),
}

/// A place in a tree of values, TOML or JSON: `node_pool.a100.labels`, `spec.containers[0].image`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldPath(Vec<Segment>);

impl FieldPath {
    /// The root of a tree.
    pub fn root() -> Self {
        Self::default()
    }

    /// A path of keys.
    pub fn keys<'a>(keys: impl IntoIterator<Item = &'a str>) -> Self {
        Self(keys.into_iter().map(|key| Segment::Key(key.to_owned())).collect())
    }

    /// This path and one key more.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        let mut path = self.clone();
        path.0.push(Segment::Key(key.to_owned()));
        path
    }

    /// This path and one index more.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        let mut path = self.clone();
        path.0.push(Segment::Index(index));
        path
    }

    /// The segments, outermost first.
    pub fn segments(&self) -> &[Segment] {
        &self.0
    }

    /// The path one level up, `None` at the root.
    pub fn parent(&self) -> Option<Self> {
        let (_, rest) = self.0.split_last()?;
        Some(Self(rest.to_vec()))
    }

    /// Whether this is the root.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `other` is this path or lies below it.
    pub fn contains(&self, other: &Self) -> bool {
        other.0.starts_with(&self.0)
    }

    /// The value at this path in a JSON tree.
    pub fn find<'v>(&self, value: &'v serde_json::Value) -> Option<&'v serde_json::Value> {
        self.0.iter().try_fold(value, |value, segment| match segment {
            Segment::Key(key) => value.get(key),
            Segment::Index(index) => value.get(index),
        })
    }
}

impl FromIterator<Segment> for FieldPath {
    fn from_iter<T: IntoIterator<Item = Segment>>(segments: T) -> Self {
        Self(segments.into_iter().collect())
    }
}

/// Keys that TOML would write bare stay bare, others are quoted: `labels."a/b"`.
impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Key(key) => {
                    if place > 0 {
                        f.write_str(".")?;
                    }
                    let bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
                    if !key.is_empty() && key.bytes().all(bare) {
                        f.write_str(key)?;
                    } else {
                        write!(f, "{key:?}")?;
                    }
                }
                Segment::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

/// The inverse of `Display`.
impl FromStr for FieldPath {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut segments = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            if let Some(tail) = rest.strip_prefix('.') {
                rest = tail;
            } else if let Some((index, tail)) = rest.strip_prefix('[').and_then(|t| t.split_once(']')) {
                segments.push(index.parse().map_or_else(|_| Segment::Key(index.to_owned()), Segment::Index));
                rest = tail;
            } else if let Some((key, tail)) = rest.strip_prefix('"').and_then(|t| t.split_once('"')) {
                segments.push(Segment::Key(key.to_owned()));
                rest = tail;
            } else {
                let end = rest.find(['.', '[']).unwrap_or(rest.len());
                segments.push(Segment::Key(rest[..end].to_owned()));
                rest = &rest[end..];
            }
        }
        Ok(Self(segments))
    }
}

impl Serialize for FieldPath {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for FieldPath {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(text.parse().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_paths_print_and_parse_back() {
        for text in ["", "a", "a.b", "a[0].b", r#"labels."a/b".c"#, "a[12]"] {
            let path: FieldPath = text.parse().unwrap();
            assert_eq!(path.to_string(), text);
        }
    }

    #[test]
    fn an_address_is_found_by_a_whole_ending() {
        let address = Address::of("dask_cluster", "rapids");
        assert!(address.ends_with("rapids"));
        assert!(address.ends_with("dask_cluster.rapids"));
        assert!(!address.ends_with("apids"));
    }
}
