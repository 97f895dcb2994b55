//! Environment variables of containers: a text, a key of a Kubernetes Secret, or a variable of the environment in which the stack
//! is applied. For the last, the stack creates a Secret in each namespace that needs it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};

use crate::scope::Scope;
use crate::short_forms::text_or_table;
use model::address::{Address, FieldPath};
use model::resource::{Identity, KindId, ObjectId, Owner, Recreation, Resource, gvk};
use model::secrets::env_values::ENV_PREFIX;

/// A key of a Kubernetes Secret, or an environment variable; never the value itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretKey {
    /// The Secret's name: `kubectl create secret generic NAME --from-literal=KEY=…` creates one. Or `env:NAME`: the
    /// value of the environment variable `NAME` when the stack is applied, which is put into a Secret of the stack.
    pub secret: String,
    /// The key in it; not with `env:NAME`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
}

impl SecretKey {
    /// Returns the environment variable that it names.
    pub fn variable(&self) -> Option<&str> {
        self.secret.strip_prefix(ENV_PREFIX)
    }

    /// Returns the reference as a container's `valueFrom`. `own` is the name of the stack's Secret.
    pub fn reference(&self, own: &str) -> Value {
        let (name, key) = match self.variable() {
            Some(variable) => (own, variable),
            None => (self.secret.as_str(), self.key.as_str()),
        };
        json!({ "secretKeyRef": { "name": name, "key": key } })
    }

    /// Parses a container's reference to a Secret; `None` for any other value.
    pub fn of(reference: &Value) -> Option<Self> {
        let selector =
            reference.as_object().filter(|all| all.len() == 1)?.get("secretKeyRef")?.as_object()?;
        let text = |key: &str| selector.get(key)?.as_str().map(str::to_owned);
        (selector.len() == 2).then_some(Self { secret: text("name")?, key: text("key")? })
    }
}

/// Variables by name.
pub type Env = BTreeMap<String, Variable>;

/// The value of a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Variable {
    /// This text.
    Text(String),
    /// The value of a key of a Secret in the pod's namespace.
    Secret(SecretKey),
}

impl Variable {
    /// Returns the text, if the file has it.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Secret(_) => None,
        }
    }
}

/// Returns the variables as the `env` list of a container. `own` is the name of the stack's Secret.
pub fn list(env: &Env, own: &str) -> Value {
    let item = |(name, value): (&String, &Variable)| match value {
        Variable::Text(text) => json!({ "name": name, "value": text }),
        Variable::Secret(key) => json!({ "name": name, "valueFrom": key.reference(own) }),
    };
    env.iter().map(item).collect()
}

/// Returns the name of the Secret that a stack writes for its pods.
pub fn own_secret(owner: &Owner) -> String {
    format!("{}-env", owner.stack)
}

/// Returns the address of the stack's Secret in a namespace. It belongs to no single section.
pub fn own_address(owner: &Owner, namespace: &str) -> Address {
    Address::object("stack", "Secret", Some(namespace), &own_secret(owner))
}

/// Returns the address of the stack's own Secret if any variable takes its value from the environment.
pub fn dependencies<'v>(
    mut values: impl Iterator<Item = &'v Variable>,
    namespace: &str,
    owner: &Owner,
) -> Option<Address> {
    let given = |value: &Variable| matches!(value, Variable::Secret(key) if key.variable().is_some());
    values.any(given).then(|| own_address(owner, namespace))
}

/// An environment variable that pods of a namespace need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeededVariable<'a> {
    /// The namespace of the pods.
    pub namespace: &'a str,
    /// The environment variable.
    pub variable: &'a str,
    /// The path in the stack file that asks for it.
    pub origin: FieldPath,
}

/// Returns the environment variables that an `env` needs.
pub fn needed<'a>(env: &'a Env, namespace: &'a str, origin: &FieldPath) -> Vec<NeededVariable<'a>> {
    let all = env.iter().filter_map(|(name, value)| match value {
        Variable::Secret(key) => {
            let origin = origin.key(name).key("secret");
            Some(NeededVariable { namespace, variable: key.variable()?, origin })
        }
        Variable::Text(_) => None,
    });
    all.collect()
}

/// Lowers the Secrets of a stack: one in each namespace whose pods need a variable. A value is `env:NAME` until apply inserts the
/// value of the variable.
pub fn lower(needed: &[NeededVariable], scope: &Scope) -> Vec<Resource> {
    let namespaces: BTreeSet<&str> = needed.iter().map(|needed| needed.namespace).collect();
    let of = |namespace: &str| {
        let name = own_secret(&scope.owner);
        let here: Vec<&NeededVariable> =
            needed.iter().filter(|needed| needed.namespace == namespace).collect();
        let data: Map<String, Value> = here
            .iter()
            .map(|needed| (needed.variable.to_owned(), json!(format!("{ENV_PREFIX}{}", needed.variable))))
            .collect();
        let provenance =
            |needed: &&NeededVariable| (FieldPath::keys(["data", needed.variable]), needed.origin.clone());
        Resource {
            address: own_address(&scope.owner, namespace),
            kind: KindId::Object,
            body: json!({
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": { "name": name, "namespace": namespace, "labels": scope.labels() },
                "data": data,
            }),
            identity: Identity::Object(ObjectId {
                gvk: gvk("", "v1", "Secret", "secrets"),
                namespace: Some(namespace.to_owned()),
                name,
            }),
            create_only: Value::Null,
            origin: here.first().map(|first| first.origin.clone()).unwrap_or_default(),
            // Of several places that ask for one variable the first counts.
            provenance: here.iter().rev().map(provenance).collect(),
            depends_on: scope.namespace_dependencies(namespace),
            protect: false,
            recreation: Recreation::Always,
        }
    };
    namespaces.into_iter().map(of).collect()
}

impl Serialize for Variable {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Secret(key) => key.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Variable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "text or a table with `secret` and `key`, or with `secret = \"env:NAME\"`";
        text_or_table(deserializer, expected, |text| Self::Text(text.to_owned()), Self::Secret)
    }
}

impl JsonSchema for Variable {
    fn schema_name() -> Cow<'static, str> {
        "Variable".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "The value of an environment variable: text, a key of a Secret in the pod's \
                 namespace, or `{ secret = \"env:NAME\" }`.",
            "oneOf": [{ "type": "string" }, generator.subschema_for::<SecretKey>()],
        })
    }
}
