//! How a record lies in the cluster: compressed in a ConfigMap, and in further ones when it is larger than one may be.
//! The first one names the others, whose names hold a digest of the whole: a write that stops half way leaves the
//! record before it whole.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::retry::{self, Patience};
use super::{ApiError, Class, LiveApi, Request};
use crate::record::{NAMESPACE, Record};
use crate::resource::{Api, OBJECT_LABEL_MANAGED_BY, ObjectId};

/// The most bytes of a record in one ConfigMap. Kubernetes takes 1 MiB of content; base64 makes this as long.
/// Source: <https://kubernetes.io/docs/concepts/configuration/configmap/>.
const PART: usize = 768 * 1024;
/// The most that a record may unpack to; larger ones were not written by this program.
const LARGEST: usize = 256 * 1024 * 1024;
/// miniz's own default between speed and size.
const LEVEL: u8 = 6;

/// A record as it was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// The record, or why it cannot be used, in words for the user.
    pub record: Result<Record, String>,
    /// The further ConfigMaps that the first one names.
    pub parts: Vec<ObjectId>,
}

/// Reads the record of a place; none where there is none yet.
///
/// # Errors
/// The cluster cannot be read.
pub async fn fetch(
    api: &dyn LiveApi,
    place: &ObjectId,
    patience: Patience,
) -> Result<Option<Stored>, ApiError> {
    let mut again = true;
    loop {
        let Some(first) = get(api, place, patience).await? else { return Ok(None) };
        if !holds_record(&first) {
            return Ok(None);
        }
        let parts = parts_of(place, &first);
        let mut content = Vec::new();
        let mut missing = None;
        for part in &parts {
            match get(api, part, patience).await? {
                Some(live) => content.push(live),
                None => missing = Some(part),
            }
        }
        match missing {
            // Another apply may have written a newer one in between.
            Some(_) if again => again = false,
            Some(part) => {
                let record = Err(format!("its record is not whole: {part} is missing"));
                return Ok(Some(Stored { record, parts }));
            }
            None => return Ok(Some(Stored { record: unpack(&first, &content), parts })),
        }
    }
}

async fn get(api: &dyn LiveApi, place: &ObjectId, patience: Patience) -> Result<Option<Value>, ApiError> {
    match retry::send(api, Request::get(Api::Kubernetes, place.path()), patience).await {
        Err(error) if error.class == Class::NotFound => Ok(None),
        result => result.map(Some),
    }
}

/// Whether a record's ConfigMap holds one already: the lock comes into it first.
fn holds_record(config_map: &Value) -> bool {
    config_map.get("data").is_some() || config_map.get("binaryData").is_some()
}

fn parts_of(place: &ObjectId, first: &Value) -> Vec<ObjectId> {
    let names = first["data"]["parts"].as_str().unwrap_or_default();
    names.split_whitespace().map(|name| ObjectId { name: name.to_owned(), ..place.clone() }).collect()
}

/// Whether a ConfigMap is a further part of a stack's record. No name of a stack has a dot.
pub fn is_part(stack: &str, name: &str) -> bool {
    name.strip_prefix(&Record::object(stack).name).is_some_and(|rest| rest.starts_with('.'))
}

/// The ConfigMaps that hold a record: further parts, then the first one, in the order of writing.
pub fn pack(record: &Record) -> Vec<(ObjectId, Value)> {
    pack_in(record, PART)
}

fn pack_in(record: &Record, size: usize) -> Vec<(ObjectId, Value)> {
    let place = Record::object(&record.stack);
    let text = serde_json::to_vec(record).unwrap_or_default();
    let packed = miniz_oxide::deflate::compress_to_vec_zlib(&text, LEVEL);
    let digest = blake3::hash(&packed).to_hex();
    let digest = &digest.as_str()[..16];
    let config_map = |name: &str, content: &[u8], data: Value| {
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": name, "namespace": NAMESPACE, "labels": { OBJECT_LABEL_MANAGED_BY: super::MANAGER },
            },
            "data": data,
            "binaryData": { "record": BASE64_STANDARD.encode(content) },
        })
    };
    let mut chunks = packed.chunks(size.max(1));
    let first = chunks.next().unwrap_or_default();
    let mut parts: Vec<(ObjectId, Value)> = Vec::new();
    for (number, chunk) in chunks.enumerate() {
        let name = format!("{}.{digest}-{}", place.name, number + 2);
        let body = config_map(&name, chunk, json!({ "digest": digest }));
        parts.push((ObjectId { name, ..place.clone() }, body));
    }
    let names: Vec<&str> = parts.iter().map(|(part, _)| part.name.as_str()).collect();
    let mut data = json!({ "digest": digest });
    if !names.is_empty() {
        data["parts"] = json!(names.join(" "));
    }
    let body = config_map(&place.name, first, data);
    parts.push((place, body));
    parts
}

/// The record in its ConfigMaps; a plain one is what earlier versions wrote.
///
/// # Errors
/// Why it cannot be used, in words for the user.
fn unpack(first: &Value, parts: &[Value]) -> Result<Record, String> {
    if let Some(text) = first["data"]["record"].as_str() {
        return parse(text.as_bytes());
    }
    let mut packed = Vec::new();
    for part in std::iter::once(first).chain(parts) {
        let text = part["binaryData"]["record"].as_str().ok_or("it holds no record")?;
        let content = BASE64_STANDARD.decode(text);
        packed.extend(content.map_err(|error| format!("its record is no base64 ({error})"))?);
    }
    if first["data"]["digest"].as_str() != blake3::hash(&packed).to_hex().as_str().get(..16) {
        return Err("its record does not match its digest: it was changed or is not whole".into());
    }
    let text = miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(&packed, LARGEST);
    parse(&text.map_err(|error| format!("its record cannot be unpacked ({error})"))?)
}

fn parse(text: &[u8]) -> Result<Record, String> {
    let value: Value =
        serde_json::from_slice(text).map_err(|error| format!("its record is no JSON ({error})"))?;
    match value["version"].as_u64() {
        Some(version) if version == u64::from(Record::VERSION) => {}
        Some(version) => {
            let ours = Record::VERSION;
            return Err(format!(
                "its record has version {version} and this program reads {ours}; use the dask-infra that wrote it, or a newer one"
            ));
        }
        None => return Err("its record has no version".into()),
    }
    serde_json::from_value(value).map_err(|error| format!("its record cannot be understood ({error})"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Address;
    use crate::record::Entry;
    use crate::resource::Identity;

    fn record(entries: usize) -> Record {
        let entry = |number| Entry {
            address: Address::of("manifest", format!("m{number}").as_str()),
            identity: Identity::Check(Address::new(format!("{:x}", number * 2_654_435_761_usize))),
            kind: "object".into(),
            set: Value::Null,
        };
        Record {
            version: Record::VERSION,
            stack: "s".into(),
            inventory: (0..entries).map(entry).collect(),
            ..Record::default()
        }
    }

    fn read(packed: &[(ObjectId, Value)]) -> Result<Record, String> {
        let (last, parts) = packed.split_last().unwrap();
        let parts: Vec<Value> = parts.iter().map(|(_, body)| body.clone()).collect();
        unpack(&last.1, &parts)
    }

    #[test]
    fn a_record_is_packed_and_comes_back() {
        let record = record(500);
        let packed = pack(&record);
        assert_eq!(packed.len(), 1, "one ConfigMap is enough");
        assert!(packed[0].1.to_string().len() * 3 < serde_json::to_string(&record).unwrap().len());
        assert_eq!(read(&packed), Ok(record));
    }

    #[test]
    fn a_large_record_is_split_and_no_part_may_be_another_records() {
        let record = record(500);
        let packed = pack_in(&record, 1000);
        assert!(packed.len() > 2, "{}", packed.len());
        let (place, first) = packed.last().unwrap();
        let named: Vec<ObjectId> = parts_of(place, first);
        assert!(named.iter().eq(packed.iter().rev().skip(1).rev().map(|(part, _)| part)));
        assert!(named.iter().all(|part| is_part("s", &part.name) && !is_part("another", &part.name)));
        assert!(!is_part("s", &place.name));
        assert_eq!(read(&packed), Ok(record));
        let mut mixed = packed.clone();
        mixed[0].1 = pack_in(&self::record(400), 1000)[0].1.clone();
        assert!(read(&mixed).unwrap_err().contains("digest"));
        assert!(read(&packed[1..]).unwrap_err().contains("digest"));
    }

    #[test]
    fn a_part_of_the_largest_size_fits_into_a_config_map() {
        assert!(BASE64_STANDARD.encode(vec![0_u8; PART]).len() <= 1024 * 1024);
    }

    #[test]
    fn a_plain_record_of_an_earlier_version_is_read() {
        let text = serde_json::to_string(&record(1)).unwrap();
        assert_eq!(unpack(&json!({ "data": { "record": text } }), &[]), Ok(record(1)));
    }

    #[test]
    fn records_that_cannot_be_used_say_why() {
        let rows = [
            (json!({}), "no record"),
            (json!({"data": {"record": "{"}}), "no JSON"),
            (json!({"data": {"record": "{}"}}), "no version"),
            (json!({"data": {"record": r#"{"version": 9}"#}}), "version 9"),
            (json!({"data": {"record": r#"{"version": 1}"#}}), "cannot be understood"),
            (json!({"binaryData": {"record": "?"}}), "no base64"),
            (json!({"binaryData": {"record": "AAAA"}}), "digest"),
        ];
        for (config_map, why) in rows {
            let said = unpack(&config_map, &[]).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
        let mut broken = pack(&record(1)).remove(0).1;
        broken["binaryData"]["record"] = json!("AAAA");
        broken["data"]["digest"] = json!(blake3::hash(&[0, 0, 0]).to_hex().as_str()[..16]);
        assert!(unpack(&broken, &[]).unwrap_err().contains("cannot be unpacked"));
    }
}
