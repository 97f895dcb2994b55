//! Access to JSON values that know their paths. Absent and null values are empty, as in Go. A value whose type Kubernetes does
//! not accept is [`Unreadable`], because kube-apiserver would refuse it: `nodeSelector: { spot: true }` without quotes.

use std::collections::BTreeMap;

use model::address::FieldPath;
use serde_json::{Map, Value};

use crate::error::Unreadable;

static NULL: Value = Value::Null;

/// A value with its path.
#[derive(Clone, Copy)]
pub struct At<'p, 'v> {
    value: &'v Value,
    place: Place<'p, 'v>,
}

#[derive(Clone, Copy)]
enum Place<'p, 'v> {
    Root(&'p FieldPath),
    Key(&'p At<'p, 'v>, &'p str),
    Index(&'p At<'p, 'v>, usize),
}

impl<'p, 'v> At<'p, 'v> {
    /// Returns the value at a path.
    pub fn new(value: &'v Value, path: &'p FieldPath) -> Self {
        Self { value, place: Place::Root(path) }
    }

    /// Returns the value of a key, with its path.
    pub fn key(&'p self, key: &'p str) -> Self {
        Self { value: self.value.get(key).unwrap_or(&NULL), place: Place::Key(self, key) }
    }

    /// Builds the path. Only errors and results need it.
    pub fn path(&self) -> FieldPath {
        match self.place {
            Place::Root(path) => path.clone(),
            Place::Key(above, key) => above.path().key(key),
            Place::Index(above, index) => above.path().index(index),
        }
    }

    pub fn value(&self) -> &'v Value {
        self.value
    }

    pub fn is_absent(&self) -> bool {
        self.value.is_null()
    }

    /// Returns the error for a value of the wrong kind.
    pub fn wrong(&self, expected: &'static str) -> Unreadable {
        let found = self.value.as_str().map_or_else(|| self.value.to_string(), str::to_owned);
        Unreadable::at(self.path(), &found, expected)
    }

    fn optional<T>(
        &self,
        read: impl FnOnce(&'v Value) -> Option<T>,
        expected: &'static str,
    ) -> Result<Option<T>, Unreadable> {
        if self.value.is_null() {
            return Ok(None);
        }
        read(self.value).map(Some).ok_or_else(|| self.wrong(expected))
    }

    /// Returns the string; empty if there is none.
    pub fn text(&self) -> Result<&'v str, Unreadable> {
        Ok(self.optional(Value::as_str, "a string")?.unwrap_or_default())
    }

    pub fn integer(&self) -> Result<Option<i64>, Unreadable> {
        self.optional(Value::as_i64, "an integer")
    }

    /// Returns the boolean; false if there is none.
    pub fn flag(&self) -> Result<bool, Unreadable> {
        Ok(self.optional(Value::as_bool, "a boolean")?.unwrap_or(false))
    }

    fn object(&self) -> Result<Option<&'v Map<String, Value>>, Unreadable> {
        self.optional(Value::as_object, "an object")
    }

    /// Returns true for an object, also an empty one.
    pub fn is_object(&self) -> Result<bool, Unreadable> {
        Ok(self.object()?.is_some())
    }

    /// Returns the items of an array.
    pub fn items(&'p self) -> Result<impl Iterator<Item = At<'p, 'v>>, Unreadable> {
        let items = self.optional(Value::as_array, "an array")?.map_or(&[][..], Vec::as_slice);
        Ok(items.iter().enumerate().map(|(at, value)| At { value, place: Place::Index(self, at) }))
    }

    /// Returns the entries of an object.
    pub fn entries(&'p self) -> Result<impl Iterator<Item = (&'v str, At<'p, 'v>)>, Unreadable>
    where
        'v: 'p,
    {
        let entries = self.object()?.into_iter().flatten();
        Ok(entries.map(|(key, value)| (key.as_str(), At { value, place: Place::Key(self, key) })))
    }

    /// Returns the strings in an array.
    pub fn texts(&self) -> Result<Vec<String>, Unreadable> {
        self.items()?.map(|item| item.text().map(str::to_owned)).collect()
    }

    /// Returns an object whose values are all strings, such as labels.
    pub fn labels(&self) -> Result<BTreeMap<String, String>, Unreadable> {
        self.entries()?.map(|(key, value)| Ok((key.to_owned(), value.text()?.to_owned()))).collect()
    }
}

/// Returns the items of a list in a live object; empty if it is no list.
pub fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns the string of a key in a live object; empty if there is none.
pub fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_of_another_type_are_refused_with_their_place() {
        let value = json!({ "spec": { "on": "yes", "labels": { "spot": true }, "keys": ["a", 1], "none": null, "skew": 1.5 } });
        let root = FieldPath::root();
        let root = At::new(&value, &root);
        let spec = root.key("spec");
        let told = |error: Option<Unreadable>| error.map(|error| error.to_string()).unwrap();
        assert_eq!(told(spec.key("labels").labels().err()), "spec.labels.spot: `true` is not a string");
        assert_eq!(told(spec.key("keys").texts().err()), "spec.keys[1]: `1` is not a string");
        assert_eq!(told(spec.key("on").flag().err()), "spec.on: `yes` is not a boolean");
        assert_eq!(told(spec.key("skew").integer().err()), "spec.skew: `1.5` is not an integer");
        assert_eq!(told(spec.key("keys").labels().err()), "spec.keys: `[\"a\",1]` is not an object");
        let none = spec.key("none");
        assert!(none.is_absent() && none.items().unwrap().next().is_none());
        assert_eq!((none.text(), none.integer(), none.flag()), (Ok(""), Ok(None), Ok(false)));
    }
}
