//! Golden cases of the stack file: `tests/cases/diag-*/stack.toml`, and what is said about it in `diag.txt`.
//! `UPDATE_GOLDEN=1` rewrites what is expected; a missing `diag.txt` is created and fails once.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use dask_infra::diag::{self, Look, render};
use dask_infra::stack::{Options, json_schema, load, parse_text, reference};

fn env(name: &str) -> Option<String> {
    (name == "GOOGLE_CLOUD_PROJECT").then(|| "demo".to_owned())
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Compares `found` with a committed file; says how to accept it.
fn golden(path: &Path, found: &str) -> Result<(), String> {
    let shown = path.strip_prefix(root()).unwrap_or(path).display();
    let expected = fs::read_to_string(path).ok();
    if expected.as_deref() == Some(found) {
        return Ok(());
    }
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    if update || expected.is_none() {
        fs::write(path, found).map_err(|error| format!("cannot write {shown}: {error}"))?;
    }
    match expected {
        _ if update => Ok(()),
        None => Err(format!("{shown} was missing and has been written: look at it and run again")),
        Some(expected) => {
            let diff = similar::TextDiff::from_lines(expected.as_str(), found);
            Err(format!("{shown} is stale (UPDATE_GOLDEN=1 accepts):\n{}", diff.unified_diff()))
        }
    }
}

fn check(case: &Path) -> Result<(), String> {
    let text = fs::read_to_string(case.join("stack.toml")).map_err(|error| error.to_string())?;
    let vars = fs::read_to_string(case.join("vars.txt")).unwrap_or_default();
    let vars = vars.lines().filter_map(|line| line.split_once('='));
    let vars = vars.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let said = match parse_text("stack.toml", &text, &Options { env: &env, vars: &vars }) {
        Ok(loaded) if loaded.warnings.is_empty() => "nothing to say\n".to_owned(),
        Ok(loaded) => render(&loaded.warnings, &loaded.sources, Look::PLAIN),
        Err(failure) => render(&failure.diagnostics, &failure.sources, Look::PLAIN),
    };
    golden(&case.join("diag.txt"), &said)
}

#[test]
fn what_is_said_about_stack_files() {
    let folder = root().join("tests/cases");
    let mut cases: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.retain(|case| case.file_name().is_some_and(|name| name.to_string_lossy().starts_with("diag-")));
    cases.sort();
    let failures: Vec<String> = cases.iter().filter_map(|case| check(case).err()).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(cases.len() >= 30, "{} cases", cases.len());
}

#[test]
fn the_ready_stacks_load_without_a_word() {
    let vars = BTreeMap::new();
    for stack in fs::read_dir(root().join("stacks")).unwrap() {
        let loaded = load(&stack.unwrap().path(), &Options { env: &env, vars: &vars });
        let loaded = loaded.map_err(|failure| render(&failure.diagnostics, &failure.sources, Look::PLAIN));
        assert_eq!(loaded.unwrap().warnings, []);
    }
}

#[test]
fn generated_files_are_current() {
    let schema = format!("{:#}\n", json_schema());
    let files = [
        ("schemas/stack.schema.json", schema),
        ("docs/stack-reference.md", reference()),
        ("docs/diagnostics.md", diag::page()),
    ];
    let failures: Vec<String> =
        files.iter().filter_map(|(path, text)| golden(&root().join(path), text).err()).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
