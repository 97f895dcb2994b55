//! The sandbox's state on disk: one redb file of JSON entries, written in one transaction for each request or tick, before the
//! response is sent. A killed process loses nothing that a client has seen.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::path::{Path, PathBuf};
use std::sync::Once;

use redb::{Database, ReadableDatabase as _, ReadableTable as _, TableDefinition};
use serde::{Deserialize as _, Serialize};
use serde_json::Value;

use super::error::SandboxError;

const TABLE: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("state");
/// The key of the format version. An unknown version is refused.
const FORMAT_KEY: &str = "format";
const FORMAT: u64 = 1;
const FILE: &str = "sandbox.redb";

/// The maximum of every counter. A larger number means that the file is damaged, and could overflow.
pub const MOST: u64 = 1 << 62;

/// Deserializes a counter of an entry, at most [`MOST`].
pub fn counter<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let counted = u64::deserialize(from)?;
    let wrong = || serde::de::Error::custom(format!("nothing has been counted up to {counted}"));
    if counted <= MOST { Ok(counted) } else { Err(wrong()) }
}

/// Gives each item a name that follows from its content. Counts are stored under the name, so they do not depend on the order in
/// the file or on the process.
pub fn named<T: Serialize>(items: Vec<T>) -> Vec<(String, T)> {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let name = |item: T| {
        let text = serde_json::to_string(&item).unwrap_or_default();
        let digest = blake3::hash(text.as_bytes()).to_hex()[..16].to_owned();
        let count = seen.entry(digest.clone()).or_default();
        *count += 1;
        (format!("{digest}-{count}"), item)
    };
    items.into_iter().map(name).collect()
}

/// The open state file.
#[derive(Debug)]
pub struct Store {
    database: Closing,
    path: PathBuf,
}

/// The database, closed with care: redb writes when it is dropped.
#[derive(Debug)]
struct Closing(Option<Database>);

impl Closing {
    fn open(&self) -> Result<&Database, redb::Error> {
        self.0.as_ref().ok_or(redb::Error::DatabaseClosed)
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        // Failed writes are repaired the next time the folder is opened.
        let _repaired = caught(|| {
            drop(self.0.take());
            Ok(())
        });
    }
}

/// A change of an entry: its key and new value; `None` deletes it.
pub type Change = (String, Option<Value>);

impl Store {
    /// Opens the file in `dir`, created if it does not exist, and returns its entries.
    pub fn open(dir: &Path) -> Result<(Self, Vec<(String, Value)>), SandboxError> {
        let path = dir.join(FILE);
        let unreadable = |cause: String| SandboxError::Unreadable { path: path.clone(), cause };
        if !path.exists() {
            make(dir, &path).map_err(|error| unreadable(error.to_string()))?;
        }
        // redb takes an empty file for a new one, and everything in it would be gone without a word.
        if std::fs::metadata(&path).is_ok_and(|file| file.len() == 0) {
            return Err(unreadable("it is empty".to_owned()));
        }
        let open = || {
            let database = Database::open(&path).map_err(|error| error.to_string())?;
            let store = Self { database: Closing(Some(database)), path: path.clone() };
            let entries = store.read()?;
            Ok((store, entries))
        };
        let (store, entries) = caught(open).map_err(&unreadable)?;
        match entries.iter().find(|(key, _)| key == FORMAT_KEY) {
            Some((_, format)) if *format != FORMAT => {
                let cause = format!("it has format {format}, this program knows {FORMAT}");
                return Err(unreadable(cause));
            }
            Some(_) => {}
            None => return Err(unreadable("it does not say its format".to_owned())),
        }
        Ok((store, entries.into_iter().filter(|(key, _)| key != FORMAT_KEY).collect()))
    }

    /// Writes all changes or none.
    pub fn write(&self, changes: Vec<Change>) -> Result<(), SandboxError> {
        if changes.is_empty() {
            return Ok(());
        }
        caught(|| self.try_write(changes).map_err(|error| error.to_string()))
            .map_err(|cause| SandboxError::Write { path: self.path.clone(), cause })
    }

    fn try_write(&self, changes: Vec<Change>) -> Result<(), redb::Error> {
        let transaction = self.database.open()?.begin_write()?;
        {
            let mut table = transaction.open_table(TABLE)?;
            for (key, value) in changes {
                match value {
                    Some(value) => table.insert(key.as_str(), value.to_string().as_bytes())?,
                    None => table.remove(key.as_str())?,
                };
            }
        }
        transaction.commit()?;
        Ok(())
    }

    fn read(&self) -> Result<Vec<(String, Value)>, String> {
        let database = self.database.open().map_err(|error| error.to_string())?;
        let transaction = database.begin_read().map_err(|error| error.to_string())?;
        let table = match transaction.open_table(TABLE) {
            Ok(table) => table,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
            Err(error) => return Err(error.to_string()),
        };
        let mut entries = Vec::new();
        for entry in table.iter().map_err(|error| error.to_string())? {
            let (key, value) = entry.map_err(|error| error.to_string())?;
            let key = key.value().to_owned();
            let value = serde_json::from_slice(value.value())
                .map_err(|error| format!("entry {key} is not JSON: {error}"))?;
            entries.push((key, value));
        }
        Ok(entries)
    }
}

/// Runs a redb call that may panic if the file is damaged in parts without checksums, returns the panic as an error, and keeps
/// its message off the terminal. Source: a fuzzer of the file on redb 4.4.
fn caught<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    thread_local!(static SILENT: Cell<bool> = const { Cell::new(false) });
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = take_hook();
        set_hook(Box::new(move |panic| {
            if !SILENT.get() {
                usual(panic);
            }
        }));
    });
    SILENT.set(true);
    let ran = catch_unwind(AssertUnwindSafe(run));
    SILENT.set(false);
    ran.unwrap_or_else(|_| Err("it is damaged".to_owned()))
}

/// Creates the file under another name first, so that a killed process leaves a complete file or none.
fn make(dir: &Path, path: &Path) -> Result<(), redb::Error> {
    let new = dir.join(format!("{FILE}.new"));
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        Ok(()) | Err(_) => {}
    }
    let store = Store { database: Closing(Some(Database::create(&new)?)), path: new.clone() };
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600))?;
    }
    store.try_write(vec![(FORMAT_KEY.to_owned(), Some(FORMAT.into()))])?;
    drop(store);
    std::fs::rename(&new, path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn entries_survive() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let (store, entries) = Store::open(dir.path()).expect("open");
        assert!(entries.is_empty());
        store.write(vec![("a".into(), Some(json!(1))), ("b".into(), Some(json!(2)))]).expect("write");
        store.write(vec![("a".into(), None)]).expect("write");
        drop(store);
        let (_, entries) = Store::open(dir.path()).expect("open again");
        assert_eq!(entries, [("b".to_owned(), json!(2))]);
    }

    #[test]
    fn a_foreign_file_and_an_emptied_one_are_refused_by_name() {
        let dir = tempfile::tempdir().expect("temporary folder");
        for content in ["not a database", ""] {
            std::fs::write(dir.path().join(FILE), content).expect("write");
            let error = Store::open(dir.path()).expect_err("refused").to_string();
            assert!(error.contains(FILE) && error.contains("dask-infra sandbox reset"), "{error}");
        }
    }

    #[test]
    fn a_file_with_a_damaged_byte_is_read_or_refused() {
        let dir = tempfile::tempdir().expect("temporary folder");
        drop(Store::open(dir.path()).expect("open"));
        let path = dir.path().join(FILE);
        let whole = std::fs::read(&path).expect("read");
        // Its header, and every so often a byte of the rest.
        let marked = (0..whole.len()).filter(|place| whole[*place] != 0);
        for (_, place) in marked.enumerate().filter(|(number, _)| *number < 64 || number % 499 == 0) {
            let mut damaged = whole.clone();
            damaged[place] = !damaged[place];
            std::fs::write(&path, damaged).expect("write");
            if let Err(error) = Store::open(dir.path()) {
                assert!(error.to_string().contains("dask-infra sandbox reset"), "byte {place}: {error}");
            }
        }
    }

    #[test]
    fn a_file_that_was_never_finished_is_made_anew() {
        let dir = tempfile::tempdir().expect("temporary folder");
        std::fs::write(dir.path().join("sandbox.redb.new"), "half").expect("write");
        let (_, entries) = Store::open(dir.path()).expect("open");
        assert!(entries.is_empty());
    }

    #[test]
    fn a_newer_format_is_refused() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let (store, _) = Store::open(dir.path()).expect("open");
        store.write(vec![(FORMAT_KEY.into(), Some(json!(99)))]).expect("write");
        drop(store);
        let error = Store::open(dir.path()).expect_err("refused").to_string();
        assert!(error.contains("format 99"), "{error}");
    }
}
