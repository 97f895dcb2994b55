//! OpenAPI v2 as the protobuf that client-go asks for: the messages of `gnostic-models`, `OpenAPIv2.proto`, as far
//! as our documents use them. The field numbers are from there.

use serde_json::{Map, Value};

/// A message that is being written.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(u8::try_from(value & 0x7f).unwrap_or_default() | 0x80);
            value >>= 7;
        }
        self.0.push(u8::try_from(value).unwrap_or_default());
    }

    fn bytes(&mut self, number: u64, bytes: &[u8]) {
        self.varint(number << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn text(&mut self, number: u64, value: Option<&Value>) {
        if let Some(Value::String(text)) = value {
            self.bytes(number, text.as_bytes());
        }
    }

    fn flag(&mut self, number: u64, value: Option<&Value>) {
        if value == Some(&Value::Bool(true)) {
            self.varint(number << 3);
            self.varint(1);
        }
    }

    fn number(&mut self, number: u64, value: Option<&Value>) {
        if let Some(value) = value.and_then(Value::as_f64) {
            self.varint(number << 3 | 1);
            self.0.extend_from_slice(&value.to_le_bytes());
        }
    }

    fn below(&mut self, number: u64, message: &Self) {
        self.bytes(number, &message.0);
    }

    /// `Any`: the value as YAML, which JSON is.
    fn any(&mut self, number: u64, value: Option<&Value>) {
        if let Some(value) = value {
            let mut any = Self::default();
            any.bytes(2, value.to_string().as_bytes());
            self.below(number, &any);
        }
    }

    /// `NamedAny` for each `x-…`.
    fn extensions(&mut self, number: u64, fields: &Value) {
        for (name, value) in entries(fields).filter(|(name, _)| name.starts_with("x-")) {
            let mut named = Self::default();
            named.bytes(1, name.as_bytes());
            named.any(2, Some(value));
            self.below(number, &named);
        }
    }

    /// A list of `NamedSomething`: name 1, value 2.
    fn named(&mut self, number: u64, name: &str, value: &Self) {
        let mut named = Self::default();
        named.bytes(1, name.as_bytes());
        named.below(2, value);
        self.below(number, &named);
    }
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

fn items(value: Option<&Value>) -> impl Iterator<Item = &Value> {
    value.and_then(Value::as_array).into_iter().flatten()
}

/// A whole document.
pub fn document(document: &Value) -> Vec<u8> {
    let mut out = Message::default();
    out.text(1, document.get("swagger"));
    let mut info = Message::default();
    info.text(1, document.pointer("/info/title"));
    info.text(2, document.pointer("/info/version"));
    out.below(2, &info);
    let mut paths = Message::default();
    for (path, methods) in entries(&document["paths"]) {
        paths.named(2, path, &path_item(methods));
    }
    out.below(8, &paths);
    let mut definitions = Message::default();
    for (name, definition) in entries(&document["definitions"]) {
        definitions.named(1, name, &schema(definition));
    }
    out.below(9, &definitions);
    out.0
}

fn path_item(methods: &Value) -> Message {
    let mut out = Message::default();
    for (number, method) in [(2, "get"), (3, "put"), (4, "post"), (5, "delete"), (8, "patch")] {
        if let Some(found) = methods.get(method) {
            out.below(number, &operation(found));
        }
    }
    out
}

fn operation(operation: &Value) -> Message {
    let mut out = Message::default();
    out.text(5, operation.get("operationId"));
    for found in items(operation.get("parameters")) {
        // ParametersItem, Parameter and its two sorts are each a message around the next.
        let mut parameter = Message::default();
        if found["in"] == "body" {
            parameter.below(1, &body_parameter(found));
        } else {
            let mut plain = Message::default();
            plain.below(3, &query_parameter(found));
            parameter.below(2, &plain);
        }
        let mut item = Message::default();
        item.below(1, &parameter);
        out.below(8, &item);
    }
    let mut responses = Message::default();
    for (code, found) in entries(&operation["responses"]) {
        let mut response = Message::default();
        response.text(1, found.get("description"));
        if let Some(found) = found.get("schema") {
            let mut item = Message::default();
            item.below(1, &schema(found));
            response.below(2, &item);
        }
        let mut value = Message::default();
        value.below(1, &response);
        responses.named(1, code, &value);
    }
    out.below(9, &responses);
    out.extensions(13, operation);
    out
}

fn body_parameter(found: &Value) -> Message {
    let mut out = Message::default();
    out.text(2, found.get("name"));
    out.text(3, found.get("in"));
    out.flag(4, found.get("required"));
    out.below(5, &schema(&found["schema"]));
    out
}

fn query_parameter(found: &Value) -> Message {
    let mut out = Message::default();
    out.text(2, found.get("in"));
    out.text(4, found.get("name"));
    out.text(6, found.get("type"));
    out.flag(20, found.get("uniqueItems"));
    out
}

fn schema(found: &Value) -> Message {
    let mut out = Message::default();
    for (number, name) in [(1, "$ref"), (2, "format"), (3, "title"), (4, "description"), (13, "pattern")] {
        out.text(number, found.get(name));
    }
    out.any(5, found.get("default"));
    out.number(7, found.get("maximum"));
    out.number(9, found.get("minimum"));
    for name in items(found.get("required")) {
        out.text(19, Some(name));
    }
    for value in items(found.get("enum")) {
        out.any(20, Some(value));
    }
    match found.get("additionalProperties") {
        Some(Value::Bool(allowed)) => {
            let mut item = Message::default();
            item.varint(2 << 3);
            item.varint(u64::from(*allowed));
            out.below(21, &item);
        }
        Some(values) => {
            let mut item = Message::default();
            item.below(1, &schema(values));
            out.below(21, &item);
        }
        None => {}
    }
    if let Some(ty) = found.get("type") {
        let mut item = Message::default();
        item.text(1, Some(ty));
        out.below(22, &item);
    }
    if let Some(one) = found.get("items") {
        let mut item = Message::default();
        item.below(1, &schema(one));
        out.below(23, &item);
    }
    let properties = found.get("properties").filter(|properties| properties.is_object());
    if let Some(properties) = properties {
        let mut all = Message::default();
        for (name, property) in entries(properties) {
            all.named(1, name, &schema(property));
        }
        out.below(25, &all);
    }
    out.extensions(31, found);
    out
}
