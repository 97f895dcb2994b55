//! Each folder of `tests/cases` is a test of that name: `cargo test --test cases plan-pool-size` runs one.
//!
//! The first word of the name says what the folder holds, and which function checks it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod charts;
mod dry_run;
mod golden;
mod overlay;
mod page;
mod planned;
mod plans;
mod preflight;
mod reports;
mod stacks;
mod world;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

/// A kind of case: how names of its folders begin, the function that checks a folder, and how many there are at least.
struct Kind {
    prefix: &'static str,
    check: fn(&Path) -> Result<(), String>,
    at_least: usize,
}

const KINDS: &[Kind] = &[
    Kind { prefix: "diag-", check: stacks::check, at_least: 30 },
    Kind { prefix: "dry-run-", check: dry_run::check, at_least: 10 },
    Kind { prefix: "plan-", check: plans::check, at_least: 10 },
    Kind { prefix: "preflight-", check: preflight::check, at_least: 12 },
    Kind { prefix: "report-", check: reports::check, at_least: 6 },
];

/// Returns the test of a folder. A name of no kind is a test that fails.
fn trial(case: PathBuf) -> Trial {
    let name = case.file_name().unwrap().to_string_lossy().into_owned();
    let check = KINDS.iter().find(|kind| name.starts_with(kind.prefix)).map(|kind| kind.check);
    Trial::test(name, move || match check {
        Some(check) => check(&case).map_err(Failed::from),
        None => Err(format!("{}: the name begins with no kind of case", case.display()).into()),
    })
}

/// Fails if folders were not found.
fn every_kind_has_cases() -> Result<(), Failed> {
    for Kind { prefix, at_least, .. } in KINDS {
        let found = golden::cases(prefix).len();
        if found < *at_least {
            return Err(format!("{found} cases {prefix}*, not {at_least} or more").into());
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut trials: Vec<Trial> = golden::cases("").into_iter().map(trial).collect();
    trials.push(Trial::test("every_kind_has_cases", every_kind_has_cases));
    libtest_mimic::run(&arguments, trials).exit_code()
}
