//! Storage of the record: compressed in a ConfigMap, and in further ConfigMaps if it is too large for one. The first one names
//! the others. Their names contain a digest of the whole record, so an interrupted write leaves the previous record intact.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::list::is_applied_by;
use crate::retry::{self, RetryPolicy};
use crate::{ApiError, ErrorClass, LiveApi, MANAGER, Request, deletion_scope};
pub use model::record::is_part;
use model::record::{DIGEST, Expired, NAMESPACE, Record, Stop, Unusable, is_part_of};
use model::resource::{Api, Identity, Method, OBJECT_LABEL_MANAGED_BY, ObjectId};

/// The maximum number of bytes of a record in one ConfigMap. Kubernetes accepts 1 MiB of content, which is 768 KiB before base64.
/// Source: <https://kubernetes.io/docs/concepts/configuration/configmap/>.
const MAX_PART_BYTES: usize = 768 * 1024;
/// The maximum size of an unpacked record in bytes. A larger one was not written by this program.
const MAX_UNPACKED_BYTES: usize = 256 * 1024 * 1024;
/// The maximum number of further ConfigMaps that are read. They can contain more than [`MAX_UNPACKED_BYTES`], as compressed
/// content is not larger than its source.
const MAX_PARTS: usize = 1000;
/// The compression level: miniz's own default.
const LEVEL: u8 = 6;

/// A record and its ConfigMaps.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordContent {
    /// The record, or the reason why it cannot be used.
    pub record: Result<Record, Unusable>,
    /// The further ConfigMaps that the first one names.
    pub parts: Vec<ObjectId>,
}

/// The content of the ConfigMap with the record of a stack.
#[derive(Clone, Debug, PartialEq)]
pub enum StoredRecord {
    Absent,
    /// A lock and no record: an apply is starting, or was interrupted right after its start.
    OnlyLock,
    Record(Box<RecordContent>),
}

impl StoredRecord {
    /// Returns the record, if there is one and it can be used.
    pub fn record(&self) -> Option<&Record> {
        match self {
            Self::Record(stored) => stored.record.as_ref().ok(),
            Self::Absent | Self::OnlyLock => None,
        }
    }
}

/// Reads the record from its ConfigMaps.
///
/// # Errors
/// The cluster cannot be read.
pub async fn fetch(
    api: &dyn LiveApi,
    record_id: &ObjectId,
    policy: RetryPolicy,
) -> Result<StoredRecord, ApiError> {
    let mut again = true;
    loop {
        let Some(first) = get(api, record_id, policy).await? else { return Ok(StoredRecord::Absent) };
        if !holds_record(&first) {
            return Ok(StoredRecord::OnlyLock);
        }
        let parts = match parts_of(record_id, &first) {
            Ok(parts) => parts,
            Err(why) => {
                return Ok(StoredRecord::Record(Box::new(RecordContent {
                    record: Err(why),
                    parts: Vec::new(),
                })));
            }
        };
        let mut content = Vec::new();
        let mut missing = None;
        for part in &parts {
            match get(api, part, policy).await? {
                Some(live) => content.push(live),
                None => missing = Some(part),
            }
        }
        match missing {
            // Another apply may have written a newer one in between.
            Some(_) if again => again = false,
            Some(part) => {
                let record = Err(Unusable::Damaged(format!("it is incomplete: {part} is missing")));
                return Ok(StoredRecord::Record(Box::new(RecordContent { record, parts })));
            }
            None => {
                return Ok(StoredRecord::Record(Box::new(RecordContent {
                    record: unpack(&first, &content).map(|record| with_expiry(record, &first)),
                    parts,
                })));
            }
        }
    }
}

/// Returns the uid of the namespace of records if this program created it and it contains only objects for which `these` is true.
///
/// # Errors
///
/// The cluster cannot be read.
pub async fn removable_namespace(
    api: &dyn LiveApi,
    these: impl Fn(&ObjectId) -> bool,
    policy: RetryPolicy,
    parallelism: usize,
) -> Result<Option<String>, ApiError> {
    let request = Request::get(Api::Kubernetes, format!("/api/v1/namespaces/{NAMESPACE}"));
    let namespace = match retry::send(api, request, policy).await {
        Err(error) if matches!(error.class, ErrorClass::NotFound | ErrorClass::Denied) => return Ok(None),
        result => result?,
    };
    let stays = namespace["metadata"]["deletionTimestamp"].is_null();
    let uid = namespace["metadata"]["uid"].as_str().filter(|_| stays);
    let Some(uid) = uid.filter(|_| is_applied_by(&namespace, MANAGER)) else { return Ok(None) };
    // Unlisted objects may exist, so the namespace stays: an empty namespace costs nothing.
    let alone = deletion_scope::holds_only(api, NAMESPACE, these, parallelism).await;
    Ok(alone.then(|| uid.to_owned()))
}

async fn get(
    api: &dyn LiveApi,
    record_id: &ObjectId,
    policy: RetryPolicy,
) -> Result<Option<Value>, ApiError> {
    match retry::send(api, Request::get(Api::Kubernetes, record_id.path()), policy).await {
        Err(error) if error.class == ErrorClass::NotFound => Ok(None),
        result => result.map(Some),
    }
}

/// Returns true if a record's ConfigMap already contains a record: the lock is written first.
pub fn holds_record(config_map: &Value) -> bool {
    config_map.get("data").is_some() || config_map.get("binaryData").is_some()
}

/// Returns the further ConfigMaps that the first one names. They are deleted when the record is rewritten, so names that this
/// program does not use are refused.
fn parts_of(record_id: &ObjectId, first: &Value) -> Result<Vec<ObjectId>, Unusable> {
    let names = first["data"]["parts"].as_str().unwrap_or_default();
    let mut parts = Vec::new();
    for name in names.split_whitespace() {
        if !is_part_of(record_id, name) {
            return Err(Unusable::Damaged(format!("it names {name:?}, which is not a part of it")));
        }
        if parts.len() == MAX_PARTS {
            return Err(Unusable::Damaged(format!("it names more than {MAX_PARTS} parts")));
        }
        parts.push(ObjectId { name: name.to_owned(), ..record_id.clone() });
    }
    Ok(parts)
}

/// Returns the ConfigMaps of a record in the order of writing: further parts, then the first one.
pub fn pack(record: &Record) -> Vec<(ObjectId, Value)> {
    pack_in(record, MAX_PART_BYTES)
}

/// Packs a record as [`pack`] does, with a given maximum size of parts.
pub fn pack_in(record: &Record, size: usize) -> Vec<(ObjectId, Value)> {
    let record_id = Record::object(&record.stack);
    let text = serde_json::to_vec(record).unwrap_or_default();
    let packed = miniz_oxide::deflate::compress_to_vec_zlib(&text, LEVEL);
    let digest = blake3::hash(&packed).to_hex();
    let digest = &digest.as_str()[..DIGEST];
    let config_map = |name: &str, content: &[u8], data: Value| {
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": name, "namespace": NAMESPACE, "labels": { OBJECT_LABEL_MANAGED_BY: MANAGER },
            },
            "data": data,
            "binaryData": { "record": BASE64_STANDARD.encode(content) },
        })
    };
    let mut chunks = packed.chunks(size.max(1));
    let first = chunks.next().unwrap_or_default();
    let mut parts: Vec<(ObjectId, Value)> = Vec::new();
    for (number, chunk) in chunks.enumerate() {
        let name = format!("{}.{digest}-{}", record_id.name, number + 2);
        let body = config_map(&name, chunk, json!({ "digest": digest }));
        parts.push((ObjectId { name, ..record_id.clone() }, body));
    }
    let names: Vec<&str> = parts.iter().map(|(part, _)| part.name.as_str()).collect();
    let mut data = json!({ "digest": digest });
    if let Some(started) = &record.started {
        // For the CronJobs of the stack, which cannot read the record.
        data["started"] = json!(started);
    }
    if !names.is_empty() {
        data["parts"] = json!(names.join(" "));
    }
    let body = config_map(&record_id.name, first, data);
    parts.push((record_id, body));
    parts
}

/// The annotation with which a CronJob of the stack notes that it stops the stack.
pub const EXPIRED: &str = "dask-infra.dev/ended";

/// The content of that annotation.
#[derive(serde::Deserialize)]
struct ExpiryNote {
    /// `ttl` or `idle_stop`.
    by: String,
    /// RFC 3339 time, to the second.
    since: String,
    /// The digest of the record at that time.
    digest: String,
    /// The API paths of what it deletes.
    deleted: BTreeSet<String>,
}

/// Returns the record with the stop by a CronJob of the stack. What that deletes has not been completed any more, as with any
/// delete, so that `start` creates it again.
fn with_expiry(mut record: Record, first: &Value) -> Record {
    record.expired = expired(first);
    if let Some(expired) = &record.expired {
        let is_deleted = |identity: &Identity| {
            identity.object().is_some_and(|object| expired.deleted.contains(&object.path()))
        };
        record.completed.retain(|identity, _| !is_deleted(identity));
    }
    record
}

/// Returns the stop of the stack by one of its CronJobs, unless the record has been written since.
fn expired(first: &Value) -> Option<Expired> {
    let noted = first["metadata"]["annotations"][EXPIRED].as_str()?;
    let ExpiryNote { by, since, digest, deleted } = serde_json::from_str(noted).ok()?;
    let by = ["ttl", "idle_stop"].into_iter().find(|key| *key == by)?;
    let is_current = first["data"]["digest"] == digest.as_str() && since.parse::<jiff::Timestamp>().is_ok();
    let stop = Stop { by: format!("the stack's {by}"), since, section: None };
    is_current.then_some(Expired { stop, deleted })
}

/// Returns the record in its ConfigMaps. Earlier versions wrote it uncompressed.
///
/// # Errors
///
/// The reason why it cannot be used.
fn unpack(first: &Value, parts: &[Value]) -> Result<Record, Unusable> {
    if let Some(text) = first["data"]["record"].as_str() {
        return parse(text.as_bytes());
    }
    let mut packed = Vec::new();
    for part in std::iter::once(first).chain(parts) {
        let text = part["binaryData"]["record"].as_str().ok_or_else(|| damaged("it is empty"))?;
        let content = BASE64_STANDARD.decode(text);
        packed.extend(content.map_err(|error| damaged(format!("it is not valid base64 ({error})")))?);
    }
    if first["data"]["digest"].as_str() != blake3::hash(&packed).to_hex().as_str().get(..DIGEST) {
        return Err(damaged("it does not match its digest: it was changed or is incomplete"));
    }
    let text = miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(&packed, MAX_UNPACKED_BYTES);
    parse(&text.map_err(|error| damaged(format!("it cannot be decompressed ({error})")))?)
}

fn damaged(why: impl Into<String>) -> Unusable {
    Unusable::Damaged(why.into())
}

fn parse(text: &[u8]) -> Result<Record, Unusable> {
    if let Ok(record) = serde_json::from_slice::<Record>(text)
        && record.version == Record::VERSION
    {
        return Ok(record);
    }
    // An earlier one, or one that cannot be used: why not is told by its parts.
    let mut value: Value =
        serde_json::from_slice(text).map_err(|error| damaged(format!("it is not valid JSON ({error})")))?;
    match value["version"].as_u64() {
        Some(version) if version == u64::from(Record::VERSION) => {}
        Some(version) => return Err(Unusable::Version(version)),
        None => return Err(damaged("it has no version")),
    }
    by_identity(&mut value);
    serde_json::from_value(value).map_err(|error| damaged(format!("it cannot be parsed ({error})")))
}

/// Keys completions by identity. Earlier records key them by address: the address of a resource in their inventory, else of a
/// check.
fn by_identity(record: &mut Value) {
    let Some(passes) = record["passes"].as_object().cloned() else { return };
    let identity = |address: &str| {
        let known = record["inventory"].as_array().into_iter().flatten();
        let known = known.into_iter().find(|entry| entry["address"] == address);
        known.map_or_else(|| json!({ "check": address }), |entry| entry["identity"].clone())
    };
    let passes = passes.iter().map(|(address, digest)| json!([identity(address), digest])).collect();
    record["passes"] = Value::Array(passes);
}

/// Creates the namespace of records.
pub async fn ensure_namespace(api: &dyn LiveApi, policy: RetryPolicy) -> Result<(), ApiError> {
    retry::send(api, forced_apply(namespace_path(), namespace(), MANAGER), policy).await.map(drop)
}

/// Returns the request for a forced server-side apply by a field manager.
pub fn forced_apply(path: String, body: Value, manager: &str) -> Request {
    let path = format!("{path}?fieldManager={manager}&force=true");
    Request { api: Api::Kubernetes, method: Method::Patch, path, body: Some(body) }
}

pub fn namespace_path() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}")
}

fn namespace() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": { "name": NAMESPACE, "labels": { OBJECT_LABEL_MANAGED_BY: MANAGER } },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::address::Address;
    use model::record::Entry;
    use model::resource::{Identity, KindId};

    fn record(entries: usize) -> Record {
        let entry = |number| Entry {
            address: Address::of("manifest", format!("m{number}").as_str()),
            identity: Identity::Check(Address::new(format!("{:x}", number * 2_654_435_761_usize))),
            kind: KindId::Object.into(),
            set: Value::Null,
            ready: None,
            took: None,
        };
        Record {
            version: Record::VERSION,
            stack: "s".into(),
            inventory: (0..entries).map(entry).collect(),
            ..Record::default()
        }
    }

    fn read(packed: &[(ObjectId, Value)]) -> Result<Record, Unusable> {
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
        let (record_id, first) = packed.last().unwrap();
        let named: Vec<ObjectId> = parts_of(record_id, first).unwrap();
        assert!(named.iter().eq(packed.iter().rev().skip(1).rev().map(|(part, _)| part)));
        assert!(named.iter().all(|part| is_part("s", &part.name) && !is_part("another", &part.name)));
        assert!(!is_part("s", &record_id.name));
        assert_eq!(read(&packed), Ok(record));
        let mut mixed = packed.clone();
        mixed[0].1 = pack_in(&self::record(400), 1000)[0].1.clone();
        assert!(read(&mixed).unwrap_err().to_string().contains("digest"));
        assert!(read(&packed[1..]).unwrap_err().to_string().contains("digest"));
    }

    #[test]
    fn a_part_of_the_largest_size_fits_into_a_config_map() {
        assert!(BASE64_STANDARD.encode(vec![0_u8; MAX_PART_BYTES]).len() <= 1024 * 1024);
    }

    #[test]
    fn a_plain_record_of_an_earlier_version_is_read() {
        let text = serde_json::to_string(&record(1)).unwrap();
        assert_eq!(unpack(&json!({ "data": { "record": text } }), &[]), Ok(record(1)));
    }

    #[test]
    fn passes_by_address_become_those_of_things() {
        let mut old = serde_json::to_value(record(1)).unwrap();
        let thing = old["inventory"][0]["identity"].clone();
        old["passes"] = json!({ "manifest.m0": "a", "check.gpu": "b" });
        let read = parse(old.to_string().as_bytes()).unwrap();
        let check = Identity::Check(Address::new("check.gpu"));
        let thing: Identity = serde_json::from_value(thing).unwrap();
        assert_eq!(read.completed, [(thing, "a".to_owned()), (check, "b".to_owned())].into());
        assert_eq!(parse(&serde_json::to_vec(&read).unwrap()), Ok(read));
    }

    #[test]
    fn records_that_cannot_be_used_say_why() {
        let rows = [
            (json!({}), "it is empty"),
            (json!({"data": {"record": "{"}}), "not valid JSON"),
            (json!({"data": {"record": "{}"}}), "no version"),
            (json!({"data": {"record": r#"{"version": 9}"#}}), "version 9"),
            (json!({"data": {"record": r#"{"version": 1}"#}}), "cannot be parsed"),
            (json!({"binaryData": {"record": "?"}}), "not valid base64"),
            (json!({"binaryData": {"record": "AAAA"}}), "digest"),
        ];
        for (config_map, why) in rows {
            let said = unpack(&config_map, &[]).unwrap_err().to_string();
            assert!(said.contains(why), "{said}");
        }
        let mut broken = pack(&record(1)).remove(0).1;
        broken["binaryData"]["record"] = json!("AAAA");
        broken["data"]["digest"] = json!(blake3::hash(&[0, 0, 0]).to_hex().as_str()[..16]);
        assert!(unpack(&broken, &[]).unwrap_err().to_string().contains("cannot be decompressed"));
    }
}
