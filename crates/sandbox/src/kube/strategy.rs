//! Behavior of the built-in kinds that their schemas do not have. [`super::kinds`] has one [`Strategy`] for each; the
//! name, and most of the fields', is that of `pkg/registry/*/*/strategy.go` of Kubernetes, where the API server
//! keeps the same.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::numbers::Numbers;
use super::object::{list, text};
use super::status::Cause;
use super::{age, names};

/// The rules of one kind. A rule that a kind does not set does nothing.
pub struct Strategy {
    /// API group, empty for the core group.
    pub group: &'static str,
    /// `Deployment`.
    pub kind: &'static str,
    /// True if objects carry `metadata.generation`, which then begins at 1. ConfigMap, Service, Node and others
    /// have none.
    pub generation: bool,
    /// Fields of the spec that can move without a new generation.
    pub no_generation: &'static [&'static str],
    /// The columns that `kubectl get` prints.
    pub columns: &'static [Column],
    /// `spec` and `status` of a new object as the server's own types print them: structs that cannot be left out
    /// are there, and so are not owned as such by whoever creates the object.
    pub zero: fn() -> Value,
    /// Defaults of an object that any write may lack.
    pub defaults: fn(&mut Value),
    /// Adds the fields that admission and the kind's own rules give to a new object.
    pub prepare_for_create: fn(&mut Numbers, &mut Value),
    /// Keeps fields of the live object in an update, and adds those of admission to the new one.
    pub prepare_for_update: fn(&Value, &mut Value),
    /// Why a name does not suit.
    pub bad_name: fn(&str) -> Option<&'static str>,
    /// The rules that people run into.
    pub validate: fn(&Value, &mut Vec<Cause>),
    /// Fields that keep their first value.
    pub immutable: &'static [&'static str],
    /// Refuses a change from the first to the second object.
    pub validate_update: fn(&Value, &Value, &mut Vec<Cause>),
    /// The fields that field selectors may name beside name and namespace.
    pub selectable: Selectable,
    /// Times of conditions that are printed as null when nobody has set them.
    pub condition_times: &'static [&'static str],
    /// How an object goes.
    pub deletion: Deletion,
    /// Names that admission keeps from deletion.
    pub lasting: &'static [&'static str],
    /// The kinds of those subresources that speak another one, in their group and version.
    pub options: &'static [(&'static str, &'static str)],
    /// The status with which a review answers; such a kind is never stored.
    pub review: Option<fn() -> Value>,
}

impl Strategy {
    /// A kind about which nothing else is said.
    pub const fn of(group: &'static str, kind: &'static str) -> Self {
        Self {
            group,
            kind,
            generation: false,
            no_generation: &[],
            columns: &[NAME, AGE],
            zero: || json!({}),
            defaults: |_| {},
            prepare_for_create: |_, _| {},
            prepare_for_update: |_, _| {},
            bad_name: names::bad_subdomain,
            validate: |_, _| {},
            immutable: &[],
            validate_update: |_, _, _| {},
            selectable: Selectable::These(&[]),
            condition_times: &[],
            deletion: Deletion::AtOnce,
            lasting: &[],
            options: &[],
            review: None,
        }
    }
}

impl std::fmt::Debug for Strategy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.group, self.kind)
    }
}

/// The fields that field selectors may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selectable {
    /// These paths.
    These(&'static [&'static str]),
    /// Any path.
    Any,
}

/// How an object goes once it is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// At once, unless finalizers hold it.
    AtOnce,
    /// At once, and its dependents stay unless the request says otherwise.
    KeepsDependents,
    /// After its grace period, when it runs somewhere.
    Graceful,
    /// When what is in it is gone.
    AfterContent,
    /// When the objects that it defines are gone.
    AfterInstances,
}

/// A column of a built-in kind.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Header.
    pub name: &'static str,
    /// `string`, `integer`, …
    pub ty: &'static str,
    /// True if only `-o wide` shows it.
    pub wide: bool,
    /// The content of its cells.
    pub cell: Cell,
}

/// The content of a cell.
#[derive(Clone, Copy, Debug)]
pub enum Cell {
    /// The text there.
    Text(&'static str),
    /// The text there, `<none>` for none.
    OrNone(&'static str),
    /// The number there, 0 for none.
    Count(&'static str),
    /// The time since then.
    Since(&'static str),
    /// Text derived from the object.
    Of(fn(&Value) -> String),
    /// Text derived from the object and the time.
    At(fn(&Value, Timestamp) -> String),
}

/// A column that is always shown.
pub const fn column(name: &'static str, cell: Cell) -> Column {
    Column { name, ty: "string", wide: false, cell }
}

pub const fn number(name: &'static str, pointer: &'static str) -> Column {
    Column { name, ty: "integer", wide: false, cell: Cell::Count(pointer) }
}

/// A column that only `-o wide` shows.
pub const fn wide(name: &'static str, cell: Cell) -> Column {
    Column { name, ty: "string", wide: true, cell }
}

/// The object's name.
pub const NAME: Column = column("Name", Cell::Text("/metadata/name"));
/// The time since its creation.
pub const AGE: Column = column("Age", Cell::Since("/metadata/creationTimestamp"));
/// When it was created.
pub const CREATED_AT: Column =
    Column { ty: "date", ..column("Created At", Cell::Text("/metadata/creationTimestamp")) };

impl Cell {
    pub fn show(self, object: &Value, now: Timestamp) -> Value {
        json!(match self {
            Self::Text(pointer) => text(object, pointer).to_owned(),
            Self::OrNone(pointer) => or_none(text(object, pointer)),
            Self::Count(pointer) => return json!(count(object, pointer)),
            Self::Since(pointer) => age::since(text(object, pointer), now),
            Self::Of(of) => of(object),
            Self::At(at) => at(object, now),
        })
    }
}

/// The text, `<none>` for an empty one.
pub fn or_none(text: &str) -> String {
    if text.is_empty() { "<none>".to_owned() } else { text.to_owned() }
}

/// The number at a JSON pointer, 0 for none.
pub fn count(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

/// Labels as one text.
pub fn labels(labels: Option<&Value>) -> String {
    or_none(&pairs(labels).join(","))
}

/// `name=value` of each label.
pub fn pairs(labels: Option<&Value>) -> Vec<String> {
    let labels = labels.and_then(Value::as_object).into_iter().flatten();
    labels.map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default())).collect()
}

/// Inserts a field that is missing.
pub fn put(object: &mut Value, name: &str, value: Value) {
    if !object.is_object() {
        *object = json!({});
    }
    if let Some(fields) = object.as_object_mut()
        && fields.get(name).is_none_or(Value::is_null)
    {
        fields.insert(name.to_owned(), value);
    }
}

/// The items of a list in `object`, to be changed.
pub fn each<'v>(object: &'v mut Value, name: &str) -> impl Iterator<Item = &'v mut Value> {
    object.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten()
}

/// The containers of a pod's spec, the first ones first.
pub fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    list(spec, "/initContainers").iter().chain(list(spec, "/containers"))
}
