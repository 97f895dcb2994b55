//! Values under a schema, as sigs.k8s.io/structured-merge-diff (package typed) sees them: validate,
//! turn into a field set, merge, compare, remove items.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::fields::{Element, Set};
use super::scheme::Kind;
use model::schema::{self, List, Schema, Type};

/// The known shape of the value at a place.
#[derive(Clone, Debug)]
pub enum Shape {
    /// A whole object: its kind's schema, and ObjectMeta below `metadata`.
    Root(Option<Schema>),
    /// A declared field.
    Of(Schema),
    /// Anything: the type is deduced from the value.
    Deduced,
    /// Nothing may be here.
    Nothing,
}

/// The shape of ObjectMeta, from a built-in kind: CRDs do not spell it out.
fn object_meta() -> Shape {
    static META: LazyLock<Shape> = LazyLock::new(|| {
        let meta = schema::builtin("", "v1", "ConfigMap").and_then(|kind| kind.property("metadata"));
        meta.map_or(Shape::Deduced, Shape::Of)
    });
    META.clone()
}

/// How the items of two lists are matched (`x-kubernetes-list-type`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Relation {
    /// The list is one value.
    Atomic,
    /// By their value.
    Set,
    /// By these fields.
    Keys(Vec<String>),
}

/// The type a value is handled as.
#[derive(Clone, Debug)]
pub enum Atom {
    /// One value.
    Scalar(Scalar),
    List {
        /// How items are told apart.
        relation: Relation,
        /// The shape of each item.
        items: Shape,
    },
    /// A map or struct; its fields are the shape's.
    Map {
        /// Owned as a whole.
        atomic: bool,
    },
    /// No type at all: not in the schema.
    Nothing,
}

/// Scalar types as the API server tells them apart when applying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar {
    /// Integer or float.
    Numeric,
    String,
    Boolean,
    /// Any of them (quantities, int-or-string).
    Untyped,
}

impl Shape {
    /// The shape of a kind's objects.
    pub fn of_kind(kind: &Kind) -> Self {
        Self::Root(kind.schema.clone())
    }

    /// Returns true if the schema declares that field by name.
    pub fn declares(&self, name: &str) -> bool {
        match self {
            Self::Root(schema) => {
                matches!(name, "apiVersion" | "kind" | "metadata")
                    || schema.as_ref().is_some_and(|schema| schema.property(name).is_some())
            }
            Self::Of(schema) => schema.property(name).is_some(),
            Self::Deduced | Self::Nothing => false,
        }
    }

    /// The shape of a field, `None` when the schema knows no such field.
    pub fn field(&self, name: &str) -> Option<Self> {
        let schema = match self {
            Self::Deduced => return Some(Self::Deduced),
            Self::Nothing => return None,
            Self::Root(_) if name == "metadata" => return Some(object_meta()),
            Self::Root(None) => return Some(Self::Deduced),
            Self::Root(Some(schema)) | Self::Of(schema) => schema,
        };
        if let Some(property) = schema.property(name) {
            return Some(Self::Of(property));
        }
        if let Some(values) = schema.values() {
            return Some(Self::Of(values));
        }
        let open = schema.preserves_unknown()
            || matches!(schema.ty(), Type::Any)
            || (matches!(self, Self::Of(_)) && schema.property_names().is_empty());
        open.then_some(Self::Deduced)
    }

    /// How `value` is handled here; without a value, how the schema alone says.
    pub fn atom(&self, value: Option<&Value>) -> Atom {
        let schema = match self {
            Self::Nothing => return Atom::Nothing,
            Self::Root(_) => return Atom::Map { atomic: false },
            Self::Deduced => return deduced(value),
            Self::Of(schema) => schema,
        };
        match schema.ty() {
            Type::Object | Type::Map => Atom::Map { atomic: schema.atomic_map() },
            Type::List => Atom::List {
                relation: match schema.list() {
                    List::Atomic => Relation::Atomic,
                    List::Set => Relation::Set,
                    List::Map(keys) => Relation::Keys(keys),
                },
                items: schema.items().map_or(Self::Deduced, Self::Of),
            },
            Type::String => Atom::Scalar(Scalar::String),
            Type::Integer | Type::Number => Atom::Scalar(Scalar::Numeric),
            Type::Boolean => Atom::Scalar(Scalar::Boolean),
            Type::Quantity | Type::IntOrString => Atom::Scalar(Scalar::Untyped),
            Type::Any => deduced(value),
        }
    }

    /// Returns the path element that identifies `item` in a list of these items.
    fn element(&self, relation: &Relation, item: &Value) -> Result<Element, String> {
        match relation {
            Relation::Atomic => Err("invalid indexing of non-associative list".to_owned()),
            Relation::Set => match item {
                Value::Object(_) => {
                    Err("associative list without keys has an element that's a map type".to_owned())
                }
                Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
                Value::Null => {
                    Err("associative list without keys has an element that's an explicit null".to_owned())
                }
                scalar => Ok(Element::Value(scalar.clone())),
            },
            Relation::Keys(keys) => self.keyed(keys, item),
        }
    }

    fn keyed(&self, keys: &[String], item: &Value) -> Result<Element, String> {
        let fields = match item {
            Value::Object(fields) => fields,
            Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
            _ => return Err("associative list with keys may not have non-map elements".to_owned()),
        };
        let mut found: Vec<(String, Value)> = Vec::new();
        for name in keys {
            let default = || match self.field(name) {
                Some(Self::Of(schema)) => schema.default(),
                _ => None,
            };
            if let Some(value) = fields.get(name).cloned().or_else(default) {
                found.push((name.clone(), value));
            }
        }
        if found.is_empty() {
            let keys: Vec<String> = keys.iter().map(|key| format!("{key:?}")).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] \
                 (and doesn't have default values for any key fields)",
                keys.join(" ")
            ));
        }
        found.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(Element::Key(found))
    }
}

fn deduced(value: Option<&Value>) -> Atom {
    match value {
        None | Some(Value::Object(_) | Value::Null) => Atom::Map { atomic: false },
        Some(Value::Array(_)) => Atom::List { relation: Relation::Atomic, items: Shape::Deduced },
        Some(_) => Atom::Scalar(Scalar::Untyped),
    }
}

/// A value as Go prints it with `%#v` inside structured-merge-diff's messages.
fn go_value(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::Object(fields) => {
            let parts: Vec<String> =
                fields.iter().map(|(name, value)| format!("{name:?}:{}", go_value(value))).collect();
            format!("map[string]interface {{}}{{{}}}", parts.join(", "))
        }
        Value::Array(items) => {
            let parts: Vec<String> = items.iter().map(go_value).collect();
            format!("[]interface {{}}{{{}}}", parts.join(", "))
        }
        scalar => scalar.to_string(),
    }
}

/// A value as Go prints it with `%v`.
fn go_plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Object(fields) => {
            let parts: Vec<String> =
                fields.iter().map(|(name, value)| format!("{name}:{}", go_plain(value))).collect();
            format!("map[{}]", parts.join(" "))
        }
        Value::Array(items) => {
            let parts: Vec<String> = items.iter().map(go_plain).collect();
            format!("[{}]", parts.join(" "))
        }
        scalar => scalar.to_string(),
    }
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// Everything by which `value` breaks its shape, each as `.path: message`.
pub fn validate(shape: &Shape, value: &Value) -> Vec<String> {
    let mut errors = Vec::new();
    validate_at(shape, value, String::new(), &mut errors);
    errors
}

fn validate_at(shape: &Shape, value: &Value, path: String, errors: &mut Vec<String>) {
    let mut error = |message: String| {
        errors.push(if path.is_empty() { message } else { format!("{path}: {message}") });
    };
    match (shape.atom(Some(value)), value) {
        (_, Value::Null) => {}
        (Atom::Map { .. }, Value::Object(fields)) => {
            for (name, value) in fields {
                match shape.field(name) {
                    Some(below) => validate_at(&below, value, format!("{path}.{name}"), errors),
                    None => {
                        errors.push(format!("{path}.{name}: field not declared in schema"));
                        return;
                    }
                }
            }
        }
        (Atom::Map { .. }, other) => error(format!("expected map, got &{{{}}}", go_plain(other))),
        (Atom::List { relation, items }, Value::Array(list)) => {
            validate_items(&relation, &items, list, &path, errors);
        }
        (Atom::List { .. }, other) => error(format!("expected list, got &{{{}}}", go_plain(other))),
        (Atom::Scalar(Scalar::Numeric), value) if !value.is_number() => {
            error(format!("expected numeric (int or float), got {}", go_type(value)));
        }
        (Atom::Scalar(Scalar::String), value) if !value.is_string() => {
            error(format!("expected string, got &value.valueUnstructured{{Value:{}}}", go_value(value)));
        }
        (Atom::Scalar(Scalar::Boolean), value) if !value.is_boolean() => {
            error(format!("expected boolean, got &{{{}}}", go_plain(value)));
        }
        (Atom::Scalar(Scalar::Untyped), value) if value.is_array() || value.is_object() => {
            error(format!("expected any scalar, got &{{{}}}", go_plain(value)));
        }
        (Atom::Scalar(_), _) => {}
        (Atom::Nothing, _) => error("schema error: invalid atom: inlined".to_owned()),
    }
}

fn validate_items(relation: &Relation, items: &Shape, list: &[Value], path: &str, errors: &mut Vec<String>) {
    let mut seen: Vec<Element> = Vec::new();
    for (index, item) in list.iter().enumerate() {
        let element = if *relation == Relation::Atomic {
            Element::Index(index)
        } else {
            match items.element(relation, item) {
                Ok(element) => element,
                Err(message) => {
                    errors.push(format!("{path}: element {index}: {message}"));
                    return;
                }
            }
        };
        if seen.contains(&element) {
            errors.push(format!("{path}: duplicate entries for key {element}"));
        }
        validate_at(items, item, format!("{path}{element}"), errors);
        seen.push(element);
    }
}

/// Every field that `value` states.
pub fn field_set(shape: &Shape, value: &Value) -> Set {
    let mut set = Set::default();
    collect(shape, value, &mut Vec::new(), &mut set);
    set
}

fn collect(shape: &Shape, value: &Value, path: &mut Vec<Element>, set: &mut Set) {
    match (shape.atom(Some(value)), value) {
        (Atom::Scalar(_), _) | (Atom::Map { atomic: true }, _) => set.insert(path),
        (Atom::List { relation: Relation::Atomic, .. }, _) => set.insert(path),
        (Atom::Map { .. }, Value::Object(fields)) => {
            for (name, value) in fields {
                path.push(Element::Field(name.clone()));
                if let Some(below) = shape.field(name) {
                    collect(&below, value, path, set);
                }
                let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                if empty || !shape.declares(name) {
                    set.insert(path);
                }
                path.pop();
            }
        }
        (Atom::List { relation, items }, Value::Array(list)) => {
            for (element, values) in grouped(&relation, &items, list) {
                path.push(element);
                if let [value] = values.as_slice() {
                    collect(&items, value, path, set);
                }
                set.insert(path);
                path.pop();
            }
        }
        _ => {}
    }
}

/// The set with every declared field that has members below it as a member too.
pub fn with_named_fields(shape: &Shape, set: &Set) -> Set {
    let mut named = Set { members: set.members.clone(), ..Set::default() };
    for (element, below) in &set.children {
        let inner = match element {
            Element::Field(name) => {
                if shape.declares(name) {
                    named.members.insert(element.clone());
                }
                shape.field(name)
            }
            Element::Key(_) => match shape.atom(None) {
                Atom::List { items, .. } => Some(items),
                Atom::Scalar(_) | Atom::Map { .. } | Atom::Nothing => None,
            },
            Element::Value(_) | Element::Index(_) => None,
        };
        let inner = inner.unwrap_or(Shape::Nothing);
        named.children.insert(element.clone(), with_named_fields(&inner, below));
    }
    named
}

/// Items by what tells them apart, in order of appearance. Items that nothing tells apart are left out:
/// `validate` has refused them before.
fn grouped<'v>(relation: &Relation, items: &Shape, list: &'v [Value]) -> Vec<(Element, Vec<&'v Value>)> {
    let mut groups: Vec<(Element, Vec<&Value>)> = Vec::new();
    for item in list {
        let Ok(element) = items.element(relation, item) else { continue };
        match groups.iter_mut().find(|(known, _)| *known == element) {
            Some((_, values)) => values.push(item),
            None => groups.push((element, vec![item])),
        }
    }
    groups
}

/// `rhs` laid over `lhs`: nothing is removed, leaves come from `rhs`, items are matched by their keys.
pub fn merge(shape: &Shape, lhs: Option<&Value>, rhs: Option<&Value>) -> Option<Value> {
    let keep_right = || rhs.or(lhs).cloned();
    let value = rhs.or(lhs)?;
    // An explicit null takes whatever form the other side has.
    let value = if value.is_null() { lhs.unwrap_or(value) } else { value };
    match shape.atom(Some(value)) {
        Atom::Map { atomic: false } => {
            let (left, right) = (lhs.and_then(Value::as_object), rhs.and_then(Value::as_object));
            if left.is_none_or(Map::is_empty) && right.is_none_or(Map::is_empty) {
                return keep_right();
            }
            let mut out = Map::new();
            let names = left.into_iter().chain(right).flat_map(Map::keys);
            for name in names {
                if out.contains_key(name) {
                    continue;
                }
                let below = shape.field(name).unwrap_or(Shape::Deduced);
                let merged =
                    merge(&below, left.and_then(|map| map.get(name)), right.and_then(|map| map.get(name)));
                if let Some(merged) = merged {
                    out.insert(name.clone(), merged);
                }
            }
            (!out.is_empty()).then_some(Value::Object(out))
        }
        Atom::List { relation, items } if relation != Relation::Atomic => {
            let empty = Vec::new();
            let left = lhs.and_then(Value::as_array).unwrap_or(&empty);
            let right = rhs.and_then(Value::as_array).unwrap_or(&empty);
            if left.is_empty() && right.is_empty() {
                return keep_right();
            }
            let out = merge_lists(&relation, &items, left, right);
            (!out.is_empty()).then_some(Value::Array(out))
        }
        _ => keep_right(),
    }
}

/// Items of both lists: shared ones in the right list's order, the left list's own where they stood.
fn merge_lists(relation: &Relation, items: &Shape, left: &[Value], right: &[Value]) -> Vec<Value> {
    let index = |list: &[Value]| -> Vec<Element> {
        list.iter().filter_map(|item| items.element(relation, item).ok()).collect()
    };
    let (left_keys, right_keys) = (index(left), index(right));
    let on_left = |key: &Element| -> Option<Value> {
        let mut found = left_keys.iter().zip(left).filter(|(known, _)| *known == key);
        let first = found.next()?.1;
        // Duplicates on the left are not merged with; the new item replaces them.
        Some(if found.next().is_some() { Value::Null } else { first.clone() })
    };
    let on_right = |key: &Element| right_keys.iter().position(|known| known == key).map(|at| &right[at]);
    let mut shared = right_keys.iter().filter(|key| left_keys.contains(key));
    let mut next_shared = shared.next();
    let mut merged_right: Vec<&Element> = Vec::new();
    let mut out = Vec::new();
    let (mut l, mut r) = (0, 0);
    while l < left_keys.len() || r < right_keys.len() {
        if l < left_keys.len() && r < right_keys.len() {
            let key = &left_keys[l];
            if *key == right_keys[r] {
                merged_right.push(key);
                out.extend(merge(items, on_left(key).as_ref(), on_right(key)));
                l += 1;
                r += 1;
                next_shared = shared.next();
                continue;
            }
            if on_right(key).is_some() && next_shared.is_some_and(|next| next != key) {
                // Shared, but not the one that comes next on the right.
                l += 1;
                continue;
            }
        }
        if l < left_keys.len() {
            let key = &left_keys[l];
            if on_right(key).is_none() {
                out.extend(merge(items, left.get(l), None));
                l += 1;
                continue;
            }
            if merged_right.contains(&key) {
                l += 1;
            }
        }
        if r < right_keys.len() {
            let key = &right_keys[r];
            merged_right.push(key);
            out.extend(merge(items, on_left(key).as_ref(), on_right(key)));
            r += 1;
            if next_shared == Some(key) {
                next_shared = shared.next();
            }
        }
    }
    out
}

/// The differences between two values.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// Only on the left.
    pub removed: Set,
    /// On both sides, different.
    pub modified: Set,
    /// Only on the right.
    pub added: Set,
}

/// Compares two objects of the same shape.
pub fn compare(shape: &Shape, lhs: &Value, rhs: &Value) -> Comparison {
    let mut comparison = Comparison::default();
    compare_at(shape, Some(lhs), Some(rhs), &mut Vec::new(), &mut comparison);
    comparison
}

fn compare_at(
    shape: &Shape,
    lhs: Option<&Value>,
    rhs: Option<&Value>,
    path: &mut Vec<Element>,
    out: &mut Comparison,
) {
    let atom_of = |value: Option<&Value>| value.map(|value| shape.atom(Some(value)));
    let (left, right) = (atom_of(lhs), atom_of(rhs));
    let Some(atom) = right.clone().or_else(|| left.clone()) else { return };
    let mut leaf = false;
    if let (Some(left), Some(right)) = (&left, &right)
        && std::mem::discriminant(left) != std::mem::discriminant(right)
    {
        compare_atom(shape, left, lhs, rhs, path, out);
        leaf = compare_atom(shape, right, lhs, rhs, path, out);
    } else {
        leaf |= compare_atom(shape, &atom, lhs, rhs, path, out);
    }
    if !leaf {
        match (lhs, rhs) {
            (None, _) => out.added.insert(path),
            (_, None) => out.removed.insert(path),
            _ => {}
        }
    }
}

/// Compares as one type; says whether the value counted as a leaf.
fn compare_atom(
    shape: &Shape,
    atom: &Atom,
    lhs: Option<&Value>,
    rhs: Option<&Value>,
    path: &mut Vec<Element>,
    out: &mut Comparison,
) -> bool {
    match atom {
        Atom::Map { atomic: false } => {
            let (left, right) = (lhs.and_then(Value::as_object), rhs.and_then(Value::as_object));
            if !(left.is_none_or(Map::is_empty) && right.is_none_or(Map::is_empty)) {
                let fresh = right
                    .into_iter()
                    .flat_map(Map::keys)
                    .filter(|name| left.is_none_or(|left| !left.contains_key(*name)));
                for name in left.into_iter().flat_map(Map::keys).chain(fresh) {
                    path.push(Element::Field(name.clone()));
                    let below = shape.field(name).unwrap_or(Shape::Deduced);
                    let (left, right) = (entry(left, name), entry(right, name));
                    compare_at(&below, left, right, path, out);
                    path.pop();
                }
                return false;
            }
        }
        Atom::List { relation, items } if *relation != Relation::Atomic => {
            let (left, right) = (lhs.and_then(Value::as_array), rhs.and_then(Value::as_array));
            if !(left.is_none_or(Vec::is_empty) && right.is_none_or(Vec::is_empty)) {
                let empty = Vec::new();
                compare_lists(relation, items, left.unwrap_or(&empty), right.unwrap_or(&empty), path, out);
                return false;
            }
        }
        _ => {}
    }
    match (lhs, rhs) {
        (None, _) => out.added.insert(path),
        (_, None) => out.removed.insert(path),
        (Some(left), Some(right)) if !equal(left, right) => out.modified.insert(path),
        _ => {}
    }
    true
}

fn entry<'v>(map: Option<&'v Map<String, Value>>, name: &str) -> Option<&'v Value> {
    map.and_then(|map| map.get(name))
}

/// The items that share a key.
fn group<'g, 'v>(groups: &'g [(Element, Vec<&'v Value>)], key: &Element) -> &'g [&'v Value] {
    groups.iter().find(|(known, _)| known == key).map_or(&[], |(_, values)| values.as_slice())
}

/// Equality as structured-merge-diff has it: 1 equals 1.0.
fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| equal(a, b)))
        }
        (a, b) => a == b,
    }
}

fn compare_lists(
    relation: &Relation,
    items: &Shape,
    left: &[Value],
    right: &[Value],
    path: &mut Vec<Element>,
    out: &mut Comparison,
) {
    let (left, right) = (grouped(relation, items, left), grouped(relation, items, right));
    let fresh = right.iter().filter(|(key, _)| left.iter().all(|(known, _)| known != key));
    for (key, _) in left.iter().chain(fresh) {
        let (old, new) = (group(&left, key), group(&right, key));
        path.push(key.clone());
        match (old.len(), new.len()) {
            (0 | 1, 0 | 1) => compare_at(items, old.first().copied(), new.first().copied(), path, out),
            (2.., 2..) => {
                if old != new {
                    out.modified.insert(path);
                }
            }
            (2.., _) => {
                if let Some(new) = new.first() {
                    compare_at(items, None, Some(new), path, out);
                }
                out.removed.insert(path);
            }
            _ => {
                if let Some(old) = old.first() {
                    compare_at(items, Some(old), None, path, out);
                }
                out.added.insert(path);
            }
        }
        path.pop();
    }
}

/// `value` without the fields and items of `gone`; containers that become empty go too.
pub fn remove(shape: &Shape, value: &Value, gone: &Set) -> Value {
    match (shape.atom(Some(value)), value) {
        (Atom::Scalar(_), value) => value.clone(),
        (Atom::Map { atomic: false }, Value::Object(fields)) if !fields.is_empty() => {
            let mut out = Map::new();
            for (name, value) in fields {
                let element = Element::Field(name.clone());
                if gone.has_member(&element) {
                    continue;
                }
                let kept = match gone.below(&element) {
                    Some(below) => remove(&shape.field(name).unwrap_or(Shape::Deduced), value, below),
                    None => value.clone(),
                };
                out.insert(name.clone(), kept);
            }
            if out.is_empty() { Value::Null } else { Value::Object(out) }
        }
        (Atom::List { relation, items }, Value::Array(list))
            if relation != Relation::Atomic && !list.is_empty() =>
        {
            let mut out = Vec::new();
            for item in list {
                match items.element(&relation, item) {
                    Ok(element) if gone.has_member(&element) => {}
                    Ok(element) => match gone.below(&element) {
                        Some(below) => out.push(remove(&items, item, below)),
                        None => out.push(item.clone()),
                    },
                    Err(_) => out.push(item.clone()),
                }
            }
            if out.is_empty() { Value::Null } else { Value::Array(out) }
        }
        _ => Value::Null,
    }
}
