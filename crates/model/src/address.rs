//! Names: [`Address`] names a resource for people, [`FieldPath`] is a path in a tree of values, [`Cursor`] is the position of a
//! walk through a tree.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The TOML path of a managed resource: `cluster`, `node_pool.a100`, `dask_cluster.rapids`. Further objects of a section add
/// their kind and name: `gpu_driver/DaemonSet/kube-system/x`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Address(String);

impl Address {
    /// Creates an address from its printed form.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Creates the address `section.key`.
    pub fn of(section: &str, key: &str) -> Self {
        Self(format!("{section}.{key}"))
    }

    /// Creates the address of an object inside a section: `section/Kind/namespace/name`, or without the namespace for
    /// cluster-wide kinds.
    pub fn object(section: &str, kind: &str, namespace: Option<&str>, name: &str) -> Self {
        match namespace {
            Some(namespace) => Self(format!("{section}/{kind}/{namespace}/{name}")),
            None => Self(format!("{section}/{kind}/{name}")),
        }
    }

    /// Returns the part that is a path in the TOML file: everything before the first `/`.
    pub fn section(&self) -> &str {
        self.0.split('/').next().unwrap_or_default()
    }

    /// Returns the printed form.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true if `text` is this address or an ending of it that starts after a `.` or `/`.
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
    /// An index of a list.
    Index(usize),
}

impl Segment {
    /// Returns the key; `None` for an index.
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::Key(key) => Some(key),
            Self::Index(_) => None,
        }
    }
}

/// A path in a tree of TOML or JSON values: `node_pool.a100.labels`, `spec.containers[0].image`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldPath(Vec<Segment>);

impl FieldPath {
    /// Creates the root of a tree.
    pub fn root() -> Self {
        Self::default()
    }

    /// Creates a path of keys.
    pub fn keys<'a>(keys: impl IntoIterator<Item = &'a str>) -> Self {
        Self(keys.into_iter().map(|key| Segment::Key(key.to_owned())).collect())
    }

    /// Returns this path with a key appended.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        self.and(Segment::Key(key.to_owned()))
    }

    /// Returns this path with an index appended.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        self.and(Segment::Index(index))
    }

    fn and(&self, last: Segment) -> Self {
        let mut segments = Vec::with_capacity(self.0.len() + 1);
        segments.extend_from_slice(&self.0);
        segments.push(last);
        Self(segments)
    }

    /// Sets the value at this path, and creates missing objects on the way. An index that a list does not have sets nothing.
    pub fn put(&self, tree: &mut Value, value: Value) {
        let mut at = tree;
        for segment in &self.0 {
            at = match segment {
                Segment::Key(key) => {
                    if !at.is_object() {
                        *at = Value::Object(Map::new());
                    }
                    &mut at[key.as_str()]
                }
                Segment::Index(index) => match at.get_mut(*index) {
                    Some(item) => item,
                    None => return,
                },
            };
        }
        *at = value;
    }

    /// Returns the segments, outermost first.
    pub fn segments(&self) -> &[Segment] {
        &self.0
    }

    /// Returns the last segment if it is a key.
    pub fn last_key(&self) -> Option<&str> {
        self.0.last()?.key()
    }

    /// Returns the path one level up, `None` at the root.
    pub fn parent(&self) -> Option<Self> {
        let (_, rest) = self.0.split_last()?;
        Some(Self(rest.to_vec()))
    }

    /// Returns true for the root.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if `other` is this path or is below it.
    pub fn contains(&self, other: &Self) -> bool {
        other.0.starts_with(&self.0)
    }

    /// Returns the value at this path in a JSON tree.
    pub fn find<'v>(&self, value: &'v Value) -> Option<&'v Value> {
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

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, segment) in self.0.iter().enumerate() {
            let segment = match segment {
                Segment::Key(key) => SegmentRef::Key(key),
                Segment::Index(index) => SegmentRef::Index(*index),
            };
            segment.write(f, place == 0)?;
        }
        Ok(())
    }
}

/// A [`Segment`] that borrows its key.
#[derive(Clone, Copy)]
pub enum SegmentRef<'a> {
    Key(&'a str),
    Index(usize),
}

impl SegmentRef<'_> {
    /// Writes the segment. A key is quoted if TOML would quote it: `labels."a/b"`.
    fn write(self, to: &mut impl fmt::Write, is_first: bool) -> fmt::Result {
        match self {
            Self::Key(key) => {
                if !is_first {
                    to.write_str(".")?;
                }
                let bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
                if !key.is_empty() && key.bytes().all(bare) {
                    to.write_str(key)
                } else {
                    write!(to, "{key:?}")
                }
            }
            Self::Index(index) => write!(to, "[{index}]"),
        }
    }
}

/// The current position of a walk through a tree. Its printed form grows and shrinks as the walk goes down and up, so that the
/// path is not printed from the root for each leaf.
#[derive(Default)]
pub struct Cursor<'a> {
    /// The segments, each with the length in bytes of the printed form above it.
    segments: Vec<(SegmentRef<'a>, usize)>,
    text: String,
}

impl<'a> Cursor<'a> {
    /// Goes one level down.
    pub fn enter(&mut self, segment: SegmentRef<'a>) {
        let above = self.text.len();
        // Writing to a string does not fail.
        let _ = segment.write(&mut self.text, self.segments.is_empty());
        self.segments.push((segment, above));
    }

    /// Goes one level up.
    pub fn leave(&mut self) {
        if let Some((_, above)) = self.segments.pop() {
            self.text.truncate(above);
        }
    }

    /// Returns the printed form of [`Self::path`].
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn path(&self) -> FieldPath {
        let segment = |(segment, _): &(SegmentRef<'_>, usize)| match *segment {
            SegmentRef::Key(key) => Segment::Key(key.to_owned()),
            SegmentRef::Index(index) => Segment::Index(index),
        };
        self.segments.iter().map(segment).collect()
    }
}

/// Parses the form that `Display` prints.
impl FromStr for FieldPath {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut segments = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            if let Some(tail) = rest.strip_prefix('.') {
                rest = tail;
            } else if let Some((index, tail)) = index(rest) {
                segments.push(Segment::Index(index));
                rest = tail;
            } else if let Some((key, tail)) = quoted(rest) {
                segments.push(Segment::Key(key));
                rest = tail;
            } else {
                // At least one character: a bracket or a quote that nothing closes is part of a key.
                let first = rest.chars().next().map_or(0, char::len_utf8);
                let end = rest[first..].find(['.', '[']).map_or(rest.len(), |end| first + end);
                segments.push(Segment::Key(rest[..end].to_owned()));
                rest = &rest[end..];
            }
        }
        Ok(Self(segments))
    }
}

/// Returns the text `[12]` at the start of a text, and the rest.
fn index(text: &str) -> Option<(usize, &str)> {
    let (digits, rest) = text.strip_prefix('[')?.split_once(']')?;
    // `parse` takes a sign, too.
    let index = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())??;
    Some((index, rest))
}

/// Returns a key in double quotes at the start of a text, and what follows it. Escapes are those that `Display` writes, which are
/// Rust's, and TOML's.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut key = String::new();
    let mut rest = text.strip_prefix('"')?.chars();
    loop {
        let c = match rest.next()? {
            '"' => return Some((key, rest.as_str())),
            '\\' => match rest.next()? {
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'b' => '\u{8}',
                'f' => '\u{c}',
                '0' => '\0',
                'u' => {
                    let (digits, tail) = match rest.as_str().strip_prefix('{') {
                        Some(braced) => braced.split_once('}')?,
                        None => rest.as_str().split_at_checked(4)?,
                    };
                    rest = tail.chars();
                    char::from_u32(u32::from_str_radix(digits, 16).ok()?)?
                }
                other => other,
            },
            c => c,
        };
        key.push(c);
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
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_put_where_the_path_leads() {
        let uid = FieldPath::keys(["preconditions", "uid"]);
        let index = FieldPath::keys(["items"]).index(1);
        for (path, before, after) in [
            (&uid, json!({ "kind": "x" }), json!({ "kind": "x", "preconditions": { "uid": "u" } })),
            (&uid, json!({ "preconditions": "text" }), json!({ "preconditions": { "uid": "u" } })),
            (&uid, json!(["list"]), json!({ "preconditions": { "uid": "u" } })),
            (&index, json!({ "items": [1, 2] }), json!({ "items": [1, "u"] })),
            (&index, json!({ "items": [1] }), json!({ "items": [1] })),
        ] {
            let mut tree = before.clone();
            path.put(&mut tree, json!("u"));
            assert_eq!(tree, after, "{path} of {before}");
        }
    }

    #[test]
    fn field_paths_print_and_parse_back() {
        for text in ["", "a", "a.b", "a[0].b", r#"labels."a/b".c"#, "a[12]"] {
            let path: FieldPath = text.parse().unwrap();
            assert_eq!(path.to_string(), text);
        }
    }

    #[test]
    fn what_nothing_closes_is_part_of_a_key() {
        let key = |text: &str| Segment::Key(text.to_owned());
        for (text, segments) in [
            ("labels[x", vec![key("labels"), key("[x")]),
            ("[", vec![key("[")]),
            ("a[b]", vec![key("a"), key("[b]")]),
            ("a[]", vec![key("a"), key("[]")]),
            ("a[+1]", vec![key("a"), key("[+1]")]),
            ("a[é", vec![key("a"), key("[é")]),
            ("a[[0]", vec![key("a"), key("["), Segment::Index(0)]),
            ("\"a.b", vec![key("\"a"), key("b")]),
            (r#""a\"b".c"#, vec![key("a\"b"), key("c")]),
            (r#""\u{202e}\u0041""#, vec![key("\u{202e}A")]),
            ("..a..", vec![key("a")]),
        ] {
            assert_eq!(text.parse::<FieldPath>().unwrap().segments(), segments, "{text}");
        }
    }

    #[test]
    fn any_text_parses_to_an_end_and_any_path_comes_back() {
        use proptest::prelude::*;
        let cases =
            std::env::var("DASK_INFRA_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(2_000);
        let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
        let mut runner = proptest::test_runner::TestRunner::new(config);
        // Characters with a meaning in the grammar are frequent.
        let text = r#"([.\[\]"\\u{}0-9a-z]|\PC|\pC){0,12}"#;
        let run = runner.run(&text, |text| {
            let path: FieldPath = text.parse().unwrap();
            let empty = path.segments().iter().any(|segment| *segment == Segment::Key(String::new()));
            prop_assert!(!empty || text.contains("\"\""), "an empty key that nobody wrote: {path}");
            prop_assert_eq!(path.to_string().parse::<FieldPath>().unwrap(), path);
            Ok(())
        });
        run.unwrap_or_else(|failed| panic!("{failed}"));
        let segment = prop_oneof![
            any::<usize>().prop_map(Segment::Index),
            text.prop_map(|key: String| Segment::Key(key)),
        ];
        let run = runner.run(&proptest::collection::vec(segment, 0..5), |segments| {
            let path: FieldPath = segments.into_iter().collect();
            prop_assert_eq!(path.to_string().parse::<FieldPath>().unwrap(), path);
            Ok(())
        });
        run.unwrap_or_else(|failed| panic!("{failed}"));
    }

    #[test]
    fn an_address_is_found_by_a_whole_ending() {
        let address = Address::of("dask_cluster", "rapids");
        assert!(address.ends_with("rapids"));
        assert!(address.ends_with("dask_cluster.rapids"));
        assert!(!address.ends_with("apids"));
    }
}
