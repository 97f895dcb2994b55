//! Golden cases of the stack file: `tests/cases/diag-*/stack.toml`, and what is said about it in `diag.txt`.
//! `vars.txt` beside it holds what `--var` gives.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use model::diag::{self, Look, render};
use stack::lower::{self, lower};
use stack::{Options, fields, json_schema, load, parse_in, reference};

use crate::charts;
use crate::golden::{cases, golden, root};

fn env(name: &str) -> Option<String> {
    (name == "GOOGLE_CLOUD_PROJECT").then(|| "demo".to_owned())
}

fn check(case: &Path) -> Result<(), String> {
    let text = fs::read_to_string(case.join("stack.toml")).map_err(|error| error.to_string())?;
    let vars = fs::read_to_string(case.join("vars.txt")).unwrap_or_default();
    let vars = vars.lines().filter_map(|line| line.split_once('='));
    let vars = vars.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let helm = charts::recorded(case, "stack");
    let options = Options { env: &env, vars: &vars, helm: Some(&helm) };
    let said = match parse_in(case, "stack.toml", &text, &options) {
        Ok(mut loaded) => {
            let lowered = lower(&loaded.stack, true);
            loaded.warnings.extend(lower::check(&lowered.resources, &loaded.sources));
            match loaded.warnings.is_empty() {
                true => "nothing to say\n".to_owned(),
                false => render(&loaded.warnings, &loaded.sources, Look::PLAIN),
            }
        }
        Err(failure) => render(&failure.diagnostics, &failure.sources, Look::PLAIN),
    };
    golden(&case.join("diag.txt"), &said)
}

#[test]
fn what_is_said_about_stack_files() {
    let cases = cases("diag-");
    let failures: Vec<String> = cases.iter().filter_map(|case| check(case).err()).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(cases.len() >= 30, "{} cases", cases.len());
}

#[test]
fn the_ready_stacks_load_without_a_word() {
    let vars = BTreeMap::new();
    for stack in fs::read_dir(root().join("stacks")).unwrap() {
        let loaded = load(&stack.unwrap().path(), &Options { env: &env, vars: &vars, helm: None });
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
        ("docs/gke-fields.md", fields()),
        ("docs/diagnostics.md", diag::page()),
    ];
    let failures: Vec<String> =
        files.iter().filter_map(|(path, text)| golden(&root().join(path), text).err()).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
