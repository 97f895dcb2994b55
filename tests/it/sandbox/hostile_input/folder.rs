//! The folder of a sandbox: its files as bytes, and the entries of its store as values.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use dask_infra::report::Reporter as _;
use model::diag::{Code, Diagnostic};
use model::source::Sources;
use redb::{ReadableDatabase as _, ReadableTable as _};
use sandbox::{Options, Sandbox, SandboxError, Scale};
use serde_json::{Value, json};

use super::rendered_output;

static FOLDER: LazyLock<BTreeMap<String, Vec<u8>>> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("box");
    let options =
        Options { dir: Some(dir.clone()), scale: Scale { time_scale: 6000.0 }, ..Options::default() };
    let sandbox = Sandbox::open(options).unwrap();
    let cluster = json!({ "cluster": { "name": "c", "initialNodeCount": 1 } }).to_string();
    let made = sandbox.gke_request(
        "POST",
        "/v1/projects/p/locations/us-central1-c/clusters",
        "",
        cluster.as_bytes(),
    );
    assert!(made.unwrap().code < 300);
    drop(sandbox);
    let entries = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path());
    let entries = entries.filter(|path| path.is_file());
    entries
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(&path).unwrap()))
        .collect()
});

/// The number of a file, and its bytes.
pub fn folders() -> Vec<Vec<u8>> {
    FOLDER
        .values()
        .enumerate()
        .map(|(place, bytes)| [&[u8::try_from(place).unwrap()], bytes.as_slice()].concat())
        .collect()
}

pub fn folder(bytes: &[u8], scratch: &Path) -> Result<(), String> {
    let dir = scratch.join("box");
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir(&dir).unwrap();
    let which = usize::from(bytes.first().copied().unwrap_or_default()) % FOLDER.len();
    for (place, (name, content)) in FOLDER.iter().enumerate() {
        let content = if place == which { bytes.get(1..).unwrap_or_default() } else { content };
        fs::write(dir.join(name), content).unwrap();
    }
    open_sandbox(&dir)
}

/// Opens a sandbox and advances it; an error names the file.
fn open_sandbox(dir: &Path) -> Result<(), String> {
    match Sandbox::open(Options { dir: Some(dir.to_owned()), ..Options::default() }) {
        Ok(sandbox) => {
            for cluster in sandbox.clusters() {
                drop(sandbox.objects(&cluster, Value::clone));
            }
            match sandbox.tick() {
                Ok(()) => Ok(()),
                Err(error) => check_error_names_file(&error, dir),
            }
        }
        Err(error) => check_error_names_file(&error, dir),
    }
}

fn check_error_names_file(error: &SandboxError, dir: &Path) -> Result<(), String> {
    let words = error.to_string();
    if !words.contains(&dir.display().to_string()) {
        return Err(format!("no place: {words}"));
    }
    let told = Diagnostic::error(Code::SandboxDamaged, words);
    rendered_output(|human| human.diagnostics(&[told], &Sources::default())).map(drop)
}

const TABLE: redb::TableDefinition<'_, &str, &[u8]> = redb::TableDefinition::new("state");
const FILE: &str = "sandbox.redb";

/// Its entries, as one value.
pub fn entries() -> Vec<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(FILE);
    fs::write(&path, &FOLDER[FILE]).unwrap();
    let database = redb::Database::open(&path).unwrap();
    let read = database.begin_read().unwrap();
    let table = read.open_table(TABLE).unwrap();
    let entries = table.iter().unwrap().map(|entry| {
        let (key, value) = entry.unwrap();
        (key.value().to_owned(), serde_json::from_slice::<Value>(value.value()).unwrap())
    });
    let all: serde_json::Map<String, Value> = entries.collect();
    assert!(all.len() > 1, "{all:?}");
    vec![Value::Object(all).to_string().into_bytes()]
}

pub fn entry(bytes: &[u8], scratch: &Path) -> Result<(), String> {
    let Ok(Value::Object(entries)) = serde_json::from_slice::<Value>(bytes) else { return Ok(()) };
    let dir = scratch.join("box");
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir(&dir).unwrap();
    for (name, content) in FOLDER.iter().filter(|(name, _)| *name != FILE) {
        fs::write(dir.join(name), content).unwrap();
    }
    let database = redb::Database::create(dir.join(FILE)).unwrap();
    let mut write = database.begin_write().unwrap();
    write.set_durability(redb::Durability::None).unwrap();
    {
        let mut table = write.open_table(TABLE).unwrap();
        for (key, value) in &entries {
            table.insert(key.as_str(), value.to_string().as_bytes()).unwrap();
        }
    }
    write.commit().unwrap();
    drop(database);
    open_sandbox(&dir)
}
