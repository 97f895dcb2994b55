//! Tables of the pages whose last column says what holds a row: each test and each case that they name is there, and one of them
//! runs on every change.

#![allow(clippy::unwrap_used, reason = "test code outside of test functions")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::golden::root;

/// The files of Rust below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let found = entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] });
    found.filter(|path| path.extension().is_some_and(|ending| ending == "rs")).collect()
}

/// Tests as pages and cargo name them, `group::module::function`, and the folders of cases. True for those that run on every change,
/// and false for those that wait for the night.
fn known_tests() -> BTreeMap<String, bool> {
    let (mut known, tests) = (BTreeMap::new(), root().join("tests/it"));
    for file in sources(&tests) {
        let inside = file.strip_prefix(&tests).unwrap().with_extension("");
        let parts: Vec<&str> = inside.iter().map(|part| part.to_str().unwrap()).collect();
        let module = parts.join("::");
        let text = fs::read_to_string(&file).unwrap();
        let (mut is_test, mut is_ignored) = (false, false);
        for line in text.lines().map(str::trim) {
            is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
            is_ignored |= line.starts_with("#[ignore");
            let function = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
            let Some((name, _)) = function.and_then(|rest| rest.split_once('(')) else { continue };
            let runs = !std::mem::take(&mut is_ignored);
            if std::mem::take(&mut is_test) {
                known.insert(format!("{module}::{name}"), runs);
                *known.entry(format!("{module}::*")).or_default() |= runs;
            }
        }
    }
    for folder in fs::read_dir(root().join("tests/cases")).unwrap() {
        known.insert(folder.unwrap().file_name().into_string().unwrap(), true);
    }
    known
}

#[test]
fn what_a_page_says_holds_a_row_is_there() {
    let known = known_tests();
    let mut missing = Vec::new();
    for page in ["docs/anywhere.md", "docs/queues.md"] {
        let text = fs::read_to_string(root().join(page)).unwrap();
        let rows = text.lines().skip_while(|line| !line.ends_with("| held by |")).skip(2);
        let rows: Vec<&str> = rows.take_while(|line| line.starts_with('|')).collect();
        assert!(rows.len() >= 10, "{page}: {} rows", rows.len());
        for row in rows {
            let cell = row.trim_end_matches('|').rsplit('|').next().unwrap().trim();
            let names: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
            if !cell.starts_with("not tested") && !names.iter().any(|name| known.get(*name) == Some(&true)) {
                missing.push(format!("{page}: nothing holds on every change: {row}"));
            }
            for name in names.into_iter().filter(|name| !known.contains_key(*name)) {
                missing.push(format!("{page}: there is no {name}"));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}
