//! Stack files: `tests/cases/diag-*/stack.toml`, and what is said about it in `diag.txt`. `vars.txt` beside it holds what
//! `--var` gives.

use std::fs;
use std::path::Path;

use model::diag::{Look, render};
use stack::lower::{self, lower};
use stack::{Options, parse_in};

use crate::charts;
use crate::golden::golden;

fn env(name: &str) -> Option<String> {
    (name == "GOOGLE_CLOUD_PROJECT").then(|| "demo".to_owned())
}

pub fn check(case: &Path) -> Result<(), String> {
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
