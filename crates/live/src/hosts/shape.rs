//! Types of the agent's responses, one for each kind. A response of another shape is an error. So all names, versions, states and
//! numbers that are used later are within bounds and without control characters. Pure.
//!
//! Fields without a type here are not used, or are values of the stack that the host only returns.
#![expect(dead_code, reason = "an answer is of these types or refused; its fields are read from the value")]

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;

use super::CERTIFICATES;
use crate::shape::ApiPath;

/// The maximum size of a message in bytes: the agent sends at most 20 lines of a log.
const MAX_TEXT: usize = 64 * 1024;

/// An upper bound for numbers of workers, jobs and processes.
const MAX_COUNT: u64 = 1_000_000_000;

/// Declares types of checked strings.
macro_rules! texts {
    ($($(#[$about:meta])* $name:ident, $noun:literal, $fits:expr;)*) => {$(
        $(#[$about])*
        #[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
        #[serde(try_from = "String")]
        struct $name(String);

        impl TryFrom<String> for $name {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                let fits: fn(&str) -> bool = $fits;
                if fits(&text) { Ok(Self(text)) } else { Err(concat!("is not ", $noun).to_owned()) }
            }
        }
    )*};
}

fn has_only(text: &str, longest: usize, signs: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || signs.contains(c);
    (1..=longest).contains(&text.len()) && text.chars().all(fits)
}

texts! {
    /// The name of an object, a package or a host.
    Name, "a name", |text| has_only(text, 253, "._-");
    /// The version of a package. Source: PEP 440; packages that are not installed as such have other forms.
    Version, "a version", |text| has_only(text, 128, "._-+!*");
    /// A state, a reason, a time, a uid, an address.
    Word, "a word", |text| text.len() <= 512 && !text.contains(char::is_control);
    /// A message, a command, the end of a log.
    Text, "a text of at most 64 KiB", |text| text.len() <= MAX_TEXT;
}

/// A number of workers or jobs, or a process id.
#[derive(Deserialize)]
#[serde(try_from = "u64")]
struct Count(u64);

impl TryFrom<u64> for Count {
    type Error = String;

    fn try_from(number: u64) -> Result<Self, String> {
        if number < MAX_COUNT { Ok(Self(number)) } else { Err("is out of bounds".to_owned()) }
    }
}

/// Versions of the compared packages; `None` for those that are not installed.
type Versions = BTreeMap<Name, Option<Version>>;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: Name,
    namespace: Option<Name>,
    uid: Option<Word>,
    resource_version: Option<Word>,
    creation_timestamp: Option<Word>,
    deletion_timestamp: Option<Word>,
    labels: Option<BTreeMap<String, Text>>,
    annotations: Option<BTreeMap<String, Text>>,
    managed_fields: Option<Vec<Managed>>,
}

#[derive(Deserialize)]
struct Managed {
    manager: Word,
    operation: Word,
}

/// An object with a status.
#[derive(Deserialize)]
struct Object<S> {
    metadata: Metadata,
    spec: BTreeMap<String, IgnoredAny>,
    #[serde(default = "Option::default")]
    status: Option<S>,
}

#[derive(Deserialize)]
struct Files {
    phase: Option<Word>,
    message: Option<Text>,
}

#[derive(Deserialize)]
struct Environment {
    phase: Option<Word>,
    digest: Option<Word>,
    message: Option<Text>,
    log: Option<Text>,
    python: Option<Word>,
    /// The command that starts Python in the environment's container, to run by hand.
    run: Option<Text>,
    versions: Option<Versions>,
    extras: Option<Versions>,
}

/// The status of a cluster, a group of workers or a job.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DaskStatus {
    /// The reason why its state is unknown.
    unknown: Option<Text>,
    /// True while the agent starts or ends its processes.
    converging: Option<bool>,
    /// True while workers install the packages of `pip_install`.
    installs: Option<bool>,
    workers: Option<Workers>,
    scheduler: Option<Scheduler>,
    adapter: Option<Adapter>,
    queue: Option<Queue>,
    /// The method that starts it after a boot.
    boot: Option<Word>,
    versions: Option<Versions>,
    message: Option<Text>,
    /// The reason why the packages of `pip_install` were not installed.
    plugin: Option<Text>,
    /// Versions of scheduler and workers that differ and do not work together.
    skew: Option<Text>,
    /// Versions of scheduler and workers that differ and may work.
    unlike: Option<Text>,
    /// The memory that workers may use together, if it is more than their host has.
    memory: Option<Text>,
    /// True while a process of the agent follows the job to its end.
    followed: Option<bool>,
    job_status: Option<Word>,
    exit_code: Option<i64>,
    start_time: Option<Word>,
    end_time: Option<Word>,
}

#[derive(Deserialize)]
struct Workers {
    running: Count,
    present: Option<Count>,
    registered: Option<Count>,
    /// Workers that run with settings from before the last change.
    changed: Option<Count>,
    wanted: Option<Count>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Scheduler {
    running: Option<bool>,
    answers: Option<bool>,
    host: Option<Word>,
    port: Option<u16>,
    dashboard_port: Option<u16>,
    address: Option<Word>,
    dashboard: Option<Word>,
    versions: Option<Versions>,
    queue: Option<Queue>,
    workers_on: Option<BTreeMap<Word, Count>>,
    tls: Option<Tls>,
}

/// The state of the certificates of a Dask cluster.
#[derive(Deserialize)]
struct Tls {
    fingerprint: Option<Name>,
    ends: Option<Word>,
    lost: Option<bool>,
    due: Option<bool>,
}

/// The certificates of a Dask cluster, which are written to files for clients.
#[derive(Deserialize)]
struct Certificates {
    authority: Text,
    certificate: Text,
    key: Text,
    begins: Word,
    ends: Word,
    folder: Word,
}

#[derive(Deserialize)]
struct Adapter {
    running: bool,
    message: Option<Text>,
}

/// Numbers of waiting SLURM jobs by reason, and of ended ones by state.
#[derive(Deserialize)]
struct Queue {
    waiting: BTreeMap<Word, Count>,
    ended: BTreeMap<Word, Count>,
    since: Option<Word>,
    starts: Option<Word>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Pod {
    phase: Word,
    message: Option<Text>,
    start_time: Option<Word>,
    slurm: Option<BTreeMap<Name, Word>>,
}

/// A process of Dask that belongs to no stack.
#[derive(Deserialize)]
struct ForeignProcess {
    metadata: Metadata,
    role: Word,
    command: Text,
    host: Word,
    user: Word,
    pid: Option<Count>,
    job: Option<Word>,
    ours: Option<bool>,
    state: Option<Word>,
    address: Option<Word>,
    dashboard: Option<Word>,
    workers: Option<Count>,
    versions: Option<Versions>,
}

/// A part of a log, and the offset of the next one.
#[derive(Deserialize)]
struct LogPart {
    end: u64,
    text: String,
    alive: bool,
}

/// Checks a successful response to a request for this path.
///
/// # Errors
///
/// The difference from the expected type.
pub fn check(path: &str, answer: &Value) -> Result<(), String> {
    let Some(ApiPath { plural, name, subresource, .. }) = ApiPath::parse(path) else { return Ok(()) };
    match subresource {
        Some("log") if path.contains("offset=") => return has_shape::<LogPart>(answer),
        Some(CERTIFICATES) => return has_shape::<Certificates>(answer),
        Some(_) => return Ok(()),
        None => {}
    }
    let one: fn(&Value) -> Result<(), String> = match plural {
        "environments" => has_shape::<Object<Environment>>,
        "files" => has_shape::<Object<Files>>,
        "clusters" | "workergroups" | "jobs" => has_shape::<Object<DaskStatus>>,
        "pods" => has_shape::<Object<Pod>>,
        "strangers" => has_shape::<ForeignProcess>,
        _ => return Ok(()),
    };
    match (name, answer["items"].as_array()) {
        // A deletion answers with a status.
        (Some(_), _) if answer["kind"] == "Status" => Ok(()),
        (Some(_), _) => one(answer),
        (None, Some(items)) => items.iter().try_for_each(one),
        (None, None) => Err("it has no `items`".to_owned()),
    }
}

/// Checks a response against a type. Errors name the field and the type, and contain no text from the host.
fn has_shape<T: DeserializeOwned>(answer: &Value) -> Result<(), String> {
    let wrong = |error: serde_path_to_error::Error<serde_json::Error>| {
        let path = error.path().to_string();
        let path = if has_only(&path, 80, "._-[]") { path } else { "one of its fields".to_owned() };
        let why = error.inner().to_string();
        format!(
            "`{path}` {}",
            if why.starts_with("is ") { why.as_str() } else { "is of another type or missing" }
        )
    };
    serde_path_to_error::deserialize::<_, T>(answer).map(drop).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::check;

    const CLUSTERS: &str = "/apis/hosts.dask-infra.dev/v1/clusters";

    #[test]
    fn an_answer_of_another_shape_is_none() {
        let cluster = json!({
            "metadata": { "name": "d", "uid": "1", "labels": { "a": "b" } }, "spec": { "worker": {} },
            "status": {
                "converging": false, "workers": { "running": 1, "registered": 1 },
                "scheduler": { "running": true, "tls": { "fingerprint": "0a", "ends": "2028-01-01T00:00:00Z" }, "port": 8786, "host": "127.0.0.1", "versions": { "dask-cuda": null, "dask": "2026.8.0" } },
            },
        });
        assert_eq!(check(&format!("{CLUSTERS}/d"), &cluster), Ok(()));
        assert_eq!(check(CLUSTERS, &json!({ "items": [cluster] })), Ok(()));
        for (pointer, broken, says) in [
            ("/metadata/name", json!("d; rm"), "`metadata.name` is not a name"),
            ("/metadata/name", json!(7), "`metadata.name` is of another type"),
            ("/status/workers/running", json!(-1), "`status.workers.running` is of another type"),
            ("/status/workers/running", json!(1_u64 << 40), "is out of bounds"),
            ("/status/scheduler/port", json!(70_000), "`status.scheduler.port` is of another type"),
            ("/status/scheduler/versions/dask", json!("1 `id`"), "is not a version"),
            ("/status/scheduler/host", json!("a\u{1b}[2J"), "is not a word"),
            (
                "/status/scheduler/tls/fingerprint",
                json!("../x"),
                "`status.scheduler.tls.fingerprint` is not a name",
            ),
            ("/spec", json!("x"), "`spec` is of another type"),
        ] {
            let mut other = cluster.clone();
            *other.pointer_mut(pointer).unwrap() = broken;
            let why = check(&format!("{CLUSTERS}/d"), &other).unwrap_err();
            assert!(why.contains(says), "{why}");
            assert!(check(CLUSTERS, &json!({ "items": [cluster, other] })).is_err());
        }
        let mut long = cluster.clone();
        long["status"]["message"] = json!("x".repeat(1 << 20));
        assert!(check(&format!("{CLUSTERS}/d"), &long).unwrap_err().contains("is not a text of at most"));
        assert!(check(CLUSTERS, &json!({})).is_err());
        let pem = "-----BEGIN CERTIFICATE-----\n";
        let mut certificates = json!({
            "authority": pem, "certificate": pem, "key": pem, "begins": "2026-01-01T00:00:00Z", "ends": "2028-01-01T00:00:00Z",
            "fingerprint": "0a", "folder": "/state/certificates/d/0a",
        });
        let path = format!("{CLUSTERS}/d/certificates");
        assert_eq!(check(&path, &certificates), Ok(()));
        certificates["key"] = json!("x".repeat(1 << 20));
        assert_eq!(check(&path, &certificates), Err("`key` is not a text of at most 64 KiB".to_owned()));
    }
}
