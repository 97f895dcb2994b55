//! Environment variables of containers: text, or a key of a Kubernetes Secret.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

/// A key of a Kubernetes Secret. Its value never comes here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretKey {
    /// The Secret's name: `kubectl create secret generic NAME --from-literal=KEY=…` makes one.
    pub secret: String,
    /// The key in it.
    pub key: String,
}

impl SecretKey {
    /// As a container asks for it.
    pub fn reference(&self) -> Value {
        json!({ "secretKeyRef": { "name": self.secret, "key": self.key } })
    }

    /// The same backwards, when it says nothing else.
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
    /// What a Secret in the pod's namespace has.
    Secret(SecretKey),
}

impl Variable {
    /// The text, when it stands in the file.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Secret(_) => None,
        }
    }
}

/// As a container lists them.
pub fn list(env: &Env) -> Value {
    let item = |(name, value): (&String, &Variable)| match value {
        Variable::Text(text) => json!({ "name": name, "value": text }),
        Variable::Secret(key) => json!({ "name": name, "valueFrom": key.reference() }),
    };
    env.iter().map(item).collect()
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
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = Variable;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text or a table with `secret` and `key`")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Variable, E> {
                Ok(Variable::Text(text.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Variable, A::Error> {
                SecretKey::deserialize(MapAccessDeserializer::new(map)).map(Variable::Secret)
            }
        }

        deserializer.deserialize_any(Either)
    }
}

impl JsonSchema for Variable {
    fn schema_name() -> Cow<'static, str> {
        "Variable".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "The value of an environment variable: text, or a key of a Secret in the pod's namespace.",
            "oneOf": [{ "type": "string" }, generator.subschema_for::<SecretKey>()],
        })
    }
}
