//! Explains one key of the stack file, from the schema that also makes `docs/stack-reference.md`.

use std::collections::BTreeSet;

use serde_json::Value;

use super::reference::{description, meaning_and_default, order, tables_in, type_of};
use super::schema::{resolve, shape};
use model::address::{FieldPath, Segment};
use model::diag;

/// A place of the stack file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explained {
    /// The path, with `NAME` for names that users choose: `node_pool.NAME.nodes`.
    pub path: String,
    /// The values that it takes: `number from 1`.
    pub takes: String,
    /// The default value, or that the key is required.
    pub default: String,
    /// The meaning of the path.
    pub about: String,
    /// The keys in it, required ones first.
    pub keys: Vec<Self>,
}

/// The error for a path that does not exist, with similar paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// Paths without names: `node_pool.nodes`.
    pub near: Vec<String>,
}

impl Unknown {
    /// Returns the path of a key that was typed without its section, if there is only one: `dask_cluster.idle_stop` for
    /// `idle_stop`.
    pub fn only(&self, typed: &str) -> Option<&str> {
        let [only] = self.near.as_slice() else { return None };
        only.rsplit_once('.').is_some_and(|(_, key)| key == typed).then_some(only)
    }
}

/// Explains a path. Names of pools and clusters may be given, written as `NAME`, or left out.
///
/// # Errors
/// The stack file has no such key.
pub fn explain(typed: &str) -> Result<Explained, Unknown> {
    let typed = typed.trim().trim_matches(['[', ']']);
    let path: FieldPath = typed.parse().unwrap_or_default();
    let keys: Vec<&str> = path.segments().iter().filter_map(key).collect();
    let unknown = || Unknown { near: near(typed) };
    let mut place = Place { path: Vec::new(), schema: shape(), about: "" };
    for key in &keys {
        place = place.below(key).ok_or_else(unknown)?;
    }
    // A name at the end that looks like a key was mostly meant to be one.
    if let (Some("NAME"), Some(last)) = (place.path.last().copied(), keys.last())
        && let Some(key) = diag::nearest(last, place.keys().iter().map(String::as_str))
    {
        let section =
            place.path.iter().filter(|name| **name != "NAME").copied().collect::<Vec<_>>().join(".");
        return Err(Unknown { near: vec![format!("{section}.{key}")] });
    }
    if keys.is_empty() { Err(unknown()) } else { Ok(place.whole()) }
}

/// Returns the sections in their usual order.
pub fn sections() -> Vec<Explained> {
    let root = Place { path: Vec::new(), schema: shape(), about: "" };
    order().into_iter().filter_map(|name| root.below(name)).map(|place| place.named().row("")).collect()
}

fn key(segment: &Segment) -> Option<&str> {
    match segment {
        Segment::Key(key) => Some(key),
        Segment::Index(_) => None,
    }
}

/// A node of the schema, during a walk down a path.
#[derive(Clone)]
struct Place<'s> {
    path: Vec<&'s str>,
    schema: &'s Value,
    /// The description; below a NAME, that of the section around it.
    about: &'s str,
}

impl<'s> Place<'s> {
    /// Returns the tables with keys that the value can be.
    fn tables(&self) -> Vec<&'s Value> {
        tables_in(self.schema)
    }

    fn keys(&self) -> Vec<String> {
        let properties = self.tables().into_iter().filter_map(|table| table["properties"].as_object());
        properties.flat_map(|properties| properties.keys().cloned()).collect()
    }

    /// Returns the schema of the members of a table whose keys users choose.
    fn members(&self) -> Option<&'s Value> {
        let schema = resolve(shape(), self.schema);
        schema.get("additionalProperties").filter(|members| members.is_object())
    }

    fn inside(&self, name: &'s str, schema: &'s Value) -> Self {
        let mut path = self.path.clone();
        path.push(name);
        Self { path, schema, about: description(schema) }
    }

    /// Returns a key of this table; skips a user's name if the path leaves it out.
    fn below(&self, wanted: &str) -> Option<Self> {
        let found = self.tables().into_iter().find_map(|table| {
            let (name, schema) = table["properties"].as_object()?.get_key_value(wanted)?;
            Some(self.inside(name, schema))
        });
        if found.is_some() {
            return found;
        }
        let named = self.members().map(|_| self.named())?;
        named.below(wanted).or(Some(named))
    }

    /// Returns the table of one member if users choose the names of the members, else this table.
    fn named(&self) -> Self {
        match self.members() {
            Some(members) => Self { about: self.about, ..self.inside("NAME", members) },
            None => self.clone(),
        }
    }

    /// Returns its explanation without keys, as a row of its table.
    fn row(&self, default: &str) -> Explained {
        let (meaning, own) = meaning_and_default(self.schema);
        let about = if self.about.is_empty() { meaning } else { self.about.to_owned() };
        let default = if default.is_empty() { own } else { default.to_owned() };
        Explained { path: self.path.join("."), takes: type_of(self.schema), default, about, keys: Vec::new() }
    }

    /// Returns its explanation with its keys.
    fn whole(&self) -> Explained {
        let place = self.named();
        let (meaning, default) = meaning_and_default(self.schema);
        let inner = description(resolve(shape(), place.schema));
        let about = if meaning.is_empty() { inner.to_owned() } else { meaning };
        let mut keys = Vec::new();
        let mut seen = BTreeSet::new();
        for table in place.tables() {
            let required: Vec<&str> =
                table["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let mut rows: Vec<(&String, &Value)> =
                table["properties"].as_object().into_iter().flatten().collect();
            rows.sort_by_key(|(name, _)| (!required.contains(&name.as_str()), name.as_str()));
            for (name, schema) in rows.into_iter().filter(|(name, _)| seen.insert(name.as_str())) {
                let must = if required.contains(&name.as_str()) { "required" } else { "" };
                let (about, _) = meaning_and_default(schema);
                let row = place.inside(name, schema).row(must);
                keys.push(Explained { path: name.clone(), about, ..row });
            }
        }
        let required = if default.is_empty() && self.is_required() { "required".into() } else { default };
        Explained { path: place.path.join("."), takes: type_of(self.schema), default: required, about, keys }
    }

    /// Returns true if the enclosing table requires it.
    fn is_required(&self) -> bool {
        let Some((last, above)) = self.path.split_last() else { return false };
        let root = Place { path: Vec::new(), schema: shape(), about: "" };
        let parent =
            above.iter().filter(|name| **name != "NAME").try_fold(root, |place, name| place.below(name));
        let tables = parent.map(|parent| parent.named().tables()).unwrap_or_default();
        tables
            .iter()
            .any(|table| table["required"].as_array().is_some_and(|list| list.contains(&(*last).into())))
    }
}

/// Returns all paths without users' names, the deepest last.
fn paths() -> Vec<String> {
    fn walk(place: &Place<'_>, prefix: &str, depth: usize, found: &mut Vec<String>) {
        let mut seen = BTreeSet::new();
        for table in place.named().tables() {
            for (name, schema) in table["properties"].as_object().into_iter().flatten() {
                if !seen.insert(name) {
                    continue;
                }
                let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
                found.push(path.clone());
                if depth > 0 {
                    walk(&place.named().inside(name, schema), &path, depth - 1, found);
                }
            }
        }
    }
    let mut found = Vec::new();
    walk(&Place { path: Vec::new(), schema: shape(), about: "" }, "", 4, &mut found);
    found.sort_by_key(|path| path.matches('.').count());
    found
}

/// Returns paths that end with the same key, else similar paths.
fn near(typed: &str) -> Vec<String> {
    let paths = paths();
    let last = typed.rsplit('.').next().unwrap_or(typed);
    let ending = |path: &&String| path.rsplit('.').next() == Some(last);
    let same: Vec<String> = paths.iter().filter(ending).take(6).cloned().collect();
    if !same.is_empty() && !last.is_empty() {
        let first = typed.split('.').next().unwrap_or_default();
        let closer: Vec<String> =
            same.iter().filter(|path| typed.contains('.') && path.starts_with(first)).cloned().collect();
        return if closer.is_empty() { same } else { closer };
    }
    let whole = diag::nearest(typed, paths.iter().map(String::as_str));
    let keys = paths.iter().filter_map(|path| path.rsplit('.').next());
    let by_key = || {
        // Few mistype the first letter: `cost` means no `host`.
        let key = diag::nearest(last, keys.filter(|key| key.chars().next() == last.chars().next()))?;
        paths.iter().find(|path| path.rsplit('.').next() == Some(key)).map(String::as_str)
    };
    whole.or_else(by_key).map(str::to_owned).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_be_given_written_or_left_out() {
        for typed in
            ["node_pool.nodes", "node_pool.a100.nodes", "node_pool.NAME.nodes", "[node_pool.a100].nodes"]
        {
            let found = explain(typed).unwrap();
            assert_eq!(found.path, "node_pool.NAME.nodes", "{typed}");
            assert!(found.about.contains("odes"), "{}", found.about);
        }
        assert_eq!(explain("dask_cluster.worker.gpus").unwrap().path, "dask_cluster.NAME.worker.gpus");
        assert_eq!(explain("gke.project").unwrap().default, "required");
        assert_eq!(explain("vars.anything").unwrap().path, "vars.NAME");
    }

    #[test]
    fn a_section_lists_its_keys_and_every_listed_path_is_explained() {
        let keys = explain("node_pool").unwrap().keys;
        assert_eq!((keys[0].path.as_str(), keys[0].default.as_str()), ("machine_type", "required"));
        assert!(keys.iter().any(|key| key.path == "nodes"));
        for path in paths() {
            let found = explain(&path).unwrap();
            assert!(!found.about.is_empty(), "{path} says nothing");
        }
        assert_eq!(sections().len(), order().len());
    }

    #[test]
    fn a_slip_of_the_finger_finds_the_place() {
        for (typed, near) in [
            ("nodes", "node_pool.nodes"),
            ("node_pol.nodes", "node_pool.nodes"),
            ("dask_cluster.workr", "dask_cluster.worker"),
            ("dask_operator.versoin", "dask_operator.version"),
        ] {
            let unknown = explain(typed).unwrap_err();
            assert!(unknown.near.iter().any(|path| path == near), "{typed}: {unknown:?}");
        }
        assert_eq!(explain("zzzzzzzz").unwrap_err().near, Vec::<String>::new());
        assert_eq!(explain(""), Err(Unknown { near: Vec::new() }));
    }
}
