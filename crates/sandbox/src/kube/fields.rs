//! Sets of fields, as `metadata.managedFields[].fieldsV1` writes them. The operations are those of
//! sigs.k8s.io/structured-merge-diff, package fieldpath.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Map, Value, json};

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Element {
    /// `f:name`
    Field(String),
    /// `k:{"name":"x"}`, sorted by key.
    Key(Vec<(String, Value)>),
    /// `v:"x"`
    Value(Value),
    /// `i:0`
    Index(usize),
}

impl Element {
    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }

    /// The key of a `fieldsV1` object.
    fn encode(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(keys) => {
                let parts: Vec<String> =
                    keys.iter().map(|(name, value)| format!("{}:{value}", json!(name))).collect();
                format!("k:{{{}}}", parts.join(","))
            }
            Self::Value(value) => format!("v:{value}"),
            Self::Index(index) => format!("i:{index}"),
        }
    }

    fn decode(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(':')?;
        match kind {
            "f" => Some(Self::Field(rest.to_owned())),
            "v" => serde_json::from_str(rest).ok().map(Self::Value),
            "i" => rest.parse().ok().map(Self::Index),
            "k" => {
                let keys: Map<String, Value> = serde_json::from_str(rest).ok()?;
                let mut keys: Vec<(String, Value)> = keys.into_iter().collect();
                keys.sort_by(|a, b| a.0.cmp(&b.0));
                Some(Self::Key(keys))
            }
            _ => None,
        }
    }
}

fn compare_values(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            a.as_f64().partial_cmp(&b.as_f64()).unwrap_or(Ordering::Equal)
        }
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (a, b) => {
            let rank = |value: &Value| match value {
                Value::Number(_) => 0,
                Value::String(_) => 1,
                Value::Bool(_) => 2,
                Value::Array(_) => 3,
                Value::Object(_) => 4,
                Value::Null => 5,
            };
            rank(a).cmp(&rank(b)).then_with(|| a.to_string().cmp(&b.to_string()))
        }
    }
}

impl Ord for Element {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a.cmp(b),
            (Self::Value(a), Self::Value(b)) => compare_values(a, b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            (Self::Key(a), Self::Key(b)) => {
                for ((name_a, value_a), (name_b, value_b)) in a.iter().zip(b) {
                    let order = name_a.cmp(name_b).then_with(|| compare_values(value_a, value_b));
                    if order != Ordering::Equal {
                        return order;
                    }
                }
                a.len().cmp(&b.len())
            }
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Element {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// `.name`, `[name="x"]`, `[="x"]`, `[0]`.
impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(keys) => {
                let parts: Vec<String> = keys.iter().map(|(name, value)| format!("{name}={value}")).collect();
                write!(f, "[{}]", parts.join(","))
            }
            Self::Value(value) => write!(f, "[={value}]"),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// A set of paths. A path is a member on its own; having children does not make it one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    pub(super) members: BTreeSet<Element>,
    pub(super) children: BTreeMap<Element, Set>,
}

impl Set {
    /// Returns true if no path is a member.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.values().all(Self::is_empty)
    }

    /// Adds a path; the root cannot be a member.
    pub fn insert(&mut self, path: &[Element]) {
        match path {
            [] => {}
            [last] => drop(self.members.insert(last.clone())),
            [first, rest @ ..] => self.children.entry(first.clone()).or_default().insert(rest),
        }
    }

    /// Returns true if the path is a member.
    pub fn has(&self, path: &[Element]) -> bool {
        match path {
            [] => false,
            [last] => self.members.contains(last),
            [first, rest @ ..] => self.children.get(first).is_some_and(|child| child.has(rest)),
        }
    }

    /// Returns true if that direct child is a member.
    pub fn has_member(&self, element: &Element) -> bool {
        self.members.contains(element)
    }

    /// Returns the set below a child, unless it is empty.
    pub fn below(&self, element: &Element) -> Option<&Self> {
        self.children.get(element).filter(|set| !set.is_empty())
    }

    /// Paths in either.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut children = self.children.clone();
        for (element, set) in &other.children {
            children
                .entry(element.clone())
                .and_modify(|mine| *mine = mine.union(set))
                .or_insert_with(|| set.clone());
        }
        Self { members: self.members.union(&other.members).cloned().collect(), children }
    }

    /// Paths in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let children = self
            .children
            .iter()
            .filter_map(|(element, set)| {
                Some((element.clone(), set.intersection(other.children.get(element)?)))
            })
            .filter(|(_, set)| !set.is_empty())
            .collect();
        Self { members: self.members.intersection(&other.members).cloned().collect(), children }
    }

    /// Paths of this set that are not in the other.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let children = self
            .children
            .iter()
            .map(|(element, set)| match other.children.get(element) {
                Some(theirs) => (element.clone(), set.difference(theirs)),
                None => (element.clone(), set.clone()),
            })
            .filter(|(_, set)| !set.is_empty())
            .collect();
        Self { members: self.members.difference(&other.members).cloned().collect(), children }
    }

    /// The part at or below a field of the root.
    #[must_use]
    pub fn only(&self, name: &str) -> Self {
        let element = Element::Field(name.to_owned());
        Self {
            members: self.members.iter().filter(|known| **known == element).cloned().collect(),
            children: self
                .children
                .get(&element)
                .map(|set| (element.clone(), set.clone()))
                .into_iter()
                .collect(),
        }
    }

    /// Everything but a field of the root and what is below it.
    #[must_use]
    pub fn without(&self, name: &str) -> Self {
        let element = Element::Field(name.to_owned());
        let mut set = self.clone();
        set.members.remove(&element);
        set.children.remove(&element);
        set
    }

    /// All member paths: those of a level before those below it.
    pub fn paths(&self) -> Vec<Vec<Element>> {
        let mut paths = Vec::new();
        self.walk(&mut Vec::new(), &mut paths);
        paths
    }

    fn walk(&self, prefix: &mut Vec<Element>, paths: &mut Vec<Vec<Element>>) {
        for element in &self.members {
            prefix.push(element.clone());
            paths.push(prefix.clone());
            prefix.pop();
        }
        for (element, set) in &self.children {
            prefix.push(element.clone());
            set.walk(prefix, paths);
            prefix.pop();
        }
    }

    /// The `fieldsV1` object.
    pub fn encode(&self) -> Value {
        Value::Object(self.encode_level())
    }

    fn encode_level(&self) -> Map<String, Value> {
        let mut level = Map::new();
        for element in &self.members {
            level.insert(element.encode(), json!({}));
        }
        for (element, set) in &self.children {
            if set.is_empty() {
                continue;
            }
            let mut below = set.encode_level();
            if self.members.contains(element) {
                below.insert(".".to_owned(), json!({}));
            }
            level.insert(element.encode(), Value::Object(below));
        }
        level
    }

    /// The set that a `fieldsV1` object writes; unreadable keys are skipped.
    pub fn decode(fields: &Value) -> Self {
        let mut set = Self::default();
        for (key, below) in fields.as_object().into_iter().flatten() {
            let Some(element) = Element::decode(key) else { continue };
            let child = Self::decode(below);
            let is_member = below.get(".").is_some() || below.as_object().is_none_or(Map::is_empty);
            if is_member {
                set.members.insert(element.clone());
            }
            if !child.is_empty() {
                set.children.insert(element, child);
            }
        }
        set
    }
}

impl FromIterator<Vec<Element>> for Set {
    fn from_iter<T: IntoIterator<Item = Vec<Element>>>(paths: T) -> Self {
        let mut set = Self::default();
        for path in paths {
            set.insert(&path);
        }
        set
    }
}

/// `.spec.ports[port=80,protocol="TCP"].name`
pub fn path_text(path: &[Element]) -> String {
    path.iter().map(ToString::to_string).collect()
}
