//! Bodies of built-in kinds in protobuf, as client-go sends them: an envelope (`runtime.Unknown`) that
//! names the kind, and in it the object, whose fields `schemas/protobuf.jsonl` knows by their numbers.
//!
//! The wire format is the one of <https://protobuf.dev/programming-guides/encoding/>. Libraries read it into
//! generated types or into their own JSON, which is not the one of Kubernetes; the reader here is small.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::scheme::{api_version, split_api_version};
use model::schema::protobuf::{Field, Many, fields};
use model::schema::{self};

/// The prefix of every such body.
const MAGIC: &[u8] = b"k8s\0";

/// Why a body cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// It does not start as it should.
    NoEnvelope,
    /// It ends too early or has bytes that mean nothing.
    Broken,
    /// No such kind travels as protobuf: `apiVersion` and `kind`.
    UnknownKind(String, String),
}

/// The object in a body, as JSON would have it.
pub fn read(body: &[u8]) -> Result<Value, Unreadable> {
    let envelope = body.strip_prefix(MAGIC).ok_or(Unreadable::NoEnvelope)?;
    let (mut version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for piece in Wire(envelope) {
        match piece? {
            (1, Piece::Bytes(meta)) => {
                for piece in Wire(meta) {
                    match piece? {
                        (1, Piece::Bytes(bytes)) => version = text(bytes)?,
                        (2, Piece::Bytes(bytes)) => kind = text(bytes)?,
                        _ => {}
                    }
                }
            }
            (2, Piece::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let (group, number) = split_api_version(&version);
    // Options of a request carry the group of what they are for.
    let definition = schema::definition_of(group, number, &kind)
        .or_else(|| schema::definition_of("", "v1", &kind).filter(|_| kind.ends_with("Options")));
    let known = definition.and_then(|definition| fields(&definition));
    let Some(known) = known else { return Err(Unreadable::UnknownKind(version, kind)) };
    let mut object = message(&known, raw)?;
    object.insert("apiVersion".to_owned(), json!(api_version(group, number)));
    object.insert("kind".to_owned(), json!(kind));
    Ok(Value::Object(object))
}

/// The value that follows a field number on the wire.
#[derive(Clone, Copy)]
enum Piece<'b> {
    Number(u64),
    Bytes(&'b [u8]),
}

/// The numbered pieces of a message.
struct Wire<'b>(&'b [u8]);

impl<'b> Wire<'b> {
    fn varint(&mut self) -> Result<u64, Unreadable> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or(Unreadable::Broken)?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Unreadable::Broken)
    }

    fn take(&mut self, length: usize) -> Result<&'b [u8], Unreadable> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Unreadable::Broken)?;
        self.0 = rest;
        Ok(taken)
    }

    fn piece(&mut self) -> Result<(u32, Piece<'b>), Unreadable> {
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).map_err(|_| Unreadable::Broken)?;
        let fixed = |bytes: &[u8]| bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
        let piece = match tag & 7 {
            0 => Piece::Number(self.varint()?),
            1 => Piece::Number(fixed(self.take(8)?)),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| Unreadable::Broken)?;
                Piece::Bytes(self.take(length)?)
            }
            5 => Piece::Number(fixed(self.take(4)?)),
            // Groups (3 and 4) are older than everything that Kubernetes sends.
            _ => return Err(Unreadable::Broken),
        };
        Ok((number, piece))
    }
}

impl<'b> Iterator for Wire<'b> {
    type Item = Result<(u32, Piece<'b>), Unreadable>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let piece = self.piece();
        if piece.is_err() {
            self.0 = &[];
        }
        Some(piece)
    }
}

fn text(bytes: &[u8]) -> Result<String, Unreadable> {
    String::from_utf8(bytes.to_vec()).map_err(|_| Unreadable::Broken)
}

/// A message as an object. Numbers that nobody knows are skipped, as Go does.
fn message(known: &[Field], bytes: &[u8]) -> Result<Map<String, Value>, Unreadable> {
    let mut object = Map::new();
    for piece in Wire(bytes) {
        let (number, piece) = piece?;
        let Some(field) = known.iter().find(|field| field.number == number) else { continue };
        let Some(name) = &field.name else {
            if let Piece::Bytes(bytes) = piece {
                object.extend(message(&fields(&field.ty).unwrap_or_default(), bytes)?);
            }
            continue;
        };
        match field.many {
            Many::One => {
                let value = one(&field.ty, piece)?;
                if !value.is_null() && (field.zero || !is_zero(&value)) {
                    object.insert(name.clone(), value);
                }
            }
            Many::List => {
                let value = one(&field.ty, piece)?;
                let list = object.entry(name.clone()).or_insert_with(|| json!([]));
                list.as_array_mut().ok_or(Unreadable::Broken)?.push(value);
            }
            Many::Map => {
                let (key, value) = entry(&field.ty, piece)?;
                let map = object.entry(name.clone()).or_insert_with(|| json!({}));
                map.as_object_mut().ok_or(Unreadable::Broken)?.insert(key, value);
            }
        }
    }
    Ok(object)
}

/// Returns true if Go writes this value for a scalar that was not set. Messages are written when they are there.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Bool(on) => !on,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    }
}

fn entry(ty: &str, piece: Piece<'_>) -> Result<(String, Value), Unreadable> {
    let Piece::Bytes(bytes) = piece else { return Err(Unreadable::Broken) };
    let (mut key, mut value) = (String::new(), Value::Null);
    for piece in Wire(bytes) {
        match piece? {
            (1, Piece::Bytes(bytes)) => key = text(bytes)?,
            (2, piece) => value = one(ty, piece)?,
            _ => {}
        }
    }
    Ok((key, value))
}

fn one(ty: &str, piece: Piece<'_>) -> Result<Value, Unreadable> {
    match (ty, piece) {
        ("bool", Piece::Number(number)) => Ok(json!(number != 0)),
        // Negative numbers are sent in 64 bits; the rest is their sign.
        ("int32" | "int64", Piece::Number(number)) => Ok(json!(number.cast_signed())),
        ("double", Piece::Number(bits)) => Ok(json!(f64::from_bits(bits))),
        ("string", Piece::Bytes(bytes)) => text(bytes).map(Value::String),
        ("bytes", Piece::Bytes(bytes)) => Ok(json!(STANDARD.encode(bytes))),
        (_, Piece::Bytes(bytes)) => special(ty, bytes),
        _ => Err(Unreadable::Broken),
    }
}

/// Messages that JSON writes in a way of their own; the others are objects.
fn special(ty: &str, bytes: &[u8]) -> Result<Value, Unreadable> {
    let numbers = |wanted: u32| -> Result<Option<i64>, Unreadable> {
        let mut found = None;
        for piece in Wire(bytes) {
            if let (number, Piece::Number(value)) = piece?
                && number == wanted
            {
                found = Some(value.cast_signed());
            }
        }
        Ok(found)
    };
    let strings = |wanted: u32| -> Result<Vec<&[u8]>, Unreadable> {
        let mut found = Vec::new();
        for piece in Wire(bytes) {
            if let (number, Piece::Bytes(value)) = piece?
                && number == wanted
            {
                found.push(value);
            }
        }
        Ok(found)
    };
    let name = ty.rsplit('.').next().unwrap_or(ty);
    match name {
        "Time" | "MicroTime" if bytes.is_empty() => Ok(Value::Null),
        "Time" => {
            let time = Timestamp::from_second(numbers(1)?.unwrap_or(0)).map_err(|_| Unreadable::Broken)?;
            Ok(json!(time.to_string()))
        }
        "MicroTime" => {
            let nanos = i32::try_from(numbers(2)?.unwrap_or(0)).map_err(|_| Unreadable::Broken)?;
            let time = Timestamp::new(numbers(1)?.unwrap_or(0), nanos).map_err(|_| Unreadable::Broken)?;
            Ok(json!(time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()))
        }
        "Quantity" => {
            let texts = strings(1)?;
            Ok(json!(text(texts.first().copied().unwrap_or_default())?))
        }
        "IntOrString" if numbers(1)?.unwrap_or(0) == 0 => Ok(json!(numbers(2)?.unwrap_or(0))),
        "IntOrString" => Ok(json!(text(strings(3)?.first().copied().unwrap_or_default())?)),
        "RawExtension" | "FieldsV1" => {
            let raw = strings(1)?;
            serde_json::from_slice(raw.first().copied().unwrap_or(b"null")).map_err(|_| Unreadable::Broken)
        }
        // Lists that protobuf can only write as messages.
        "ExtraValue" | "Verbs" => {
            let items: Result<Vec<String>, Unreadable> = strings(1)?.into_iter().map(text).collect();
            Ok(json!(items?))
        }
        _ => message(&fields(ty).unwrap_or_default(), bytes).map(Value::Object),
    }
}
