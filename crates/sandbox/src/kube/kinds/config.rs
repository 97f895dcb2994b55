//! ConfigMaps and Secrets. Source: `SetDefaults_Secret` in `pkg/apis/core/v1/defaults.go`, the strategies'
//! `PrepareForCreate` (`stringData`), `printConfigMap` and `printSecret` in
//! `pkg/printers/internalversion/printers.go`, `ValidateConfigMapUpdate` in `pkg/apis/core/validation`.

use base64::Engine as _;
use serde_json::{Map, Value, json};

use super::super::names::bad_config_key;
use super::super::status::Cause;
use super::super::strategy::Cell::{Of, Text};
use super::super::strategy::{AGE, NAME, Selectable, Strategy, column, put};

pub const STRATEGIES: &[Strategy] = &[
    Strategy {
        columns: &[
            NAME,
            column("Data", Of(|map| (size(&map["data"]) + size(&map["binaryData"])).to_string())),
            AGE,
        ],
        validate: |map, causes| {
            for key in map["data"].as_object().into_iter().flat_map(Map::keys) {
                if let Some(why) = bad_config_key(key) {
                    causes.push(Cause::invalid(format!("data[{key}]"), format!("\"{key}\""), why));
                }
            }
        },
        validate_update,
        ..Strategy::of("", "ConfigMap")
    },
    Strategy {
        columns: &[
            NAME,
            column("Type", Text("/type")),
            column("Data", Of(|secret| size(&secret["data"]).to_string())),
            AGE,
        ],
        defaults: secret,
        immutable: &["/type"],
        validate_update,
        selectable: Selectable::These(&["type"]),
        ..Strategy::of("", "Secret")
    },
];

fn size(data: &Value) -> usize {
    data.as_object().map_or(0, Map::len)
}

fn secret(secret: &mut Value) {
    put(secret, "type", json!("Opaque"));
    let Some(fields) = secret.as_object_mut() else { return };
    let Some(Value::Object(plain)) = fields.remove("stringData") else { return };
    let data = fields.entry("data").or_insert_with(|| json!({}));
    for (name, value) in plain {
        let encoded = base64::engine::general_purpose::STANDARD.encode(value.as_str().unwrap_or_default());
        data[name] = json!(encoded);
    }
}

fn validate_update(live: &Value, object: &Value, causes: &mut Vec<Cause>) {
    for field in ["data", "binaryData", "immutable"].into_iter().filter(|_| live["immutable"] == true) {
        if live.get(field) != object.get(field) {
            causes.push(Cause::forbidden(field, "field is immutable when `immutable` is set"));
        }
    }
}
