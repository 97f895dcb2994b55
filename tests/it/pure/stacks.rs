//! The ready stacks, and files that are made from the sections of stacks.

use std::collections::BTreeMap;
use std::fs;

use model::diag::{self, Look, render};
use stack::{Options, fields, json_schema, load, reference};

use crate::golden::{golden, root};

fn env(name: &str) -> Option<String> {
    (name == "GOOGLE_CLOUD_PROJECT").then(|| "demo".to_owned())
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
