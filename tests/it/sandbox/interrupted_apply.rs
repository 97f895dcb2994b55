//! An apply that is killed while it waits, and what the next commands say of what it left. The sandbox's time stands still
//! between commands, so what was not ready then is hardly ready when the next one begins.

#![allow(clippy::unwrap_used, reason = "test code outside of test functions")]

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use serde_json::Value;

use crate::sandbox_server::{RunningCommand, User};

/// Runs until a line has the words, and kills.
fn killed_at(user: &User, words: &[&str], line: &str) {
    let mut child = user.command(words).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let found = said.any(|said| said.contains(line));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(found, "it never said {line:?}");
}

#[test]
fn an_apply_that_goes_on_waits_for_what_is_not_ready() {
    let user = User::with_ready_stack(None);
    // `check.cudf` would be a change once the Dask cluster is replaced.
    let stack = user.stack();
    user.write(stack.split_once("[check.cudf]").unwrap().0);
    user.run(&["--sandbox", "apply", "--auto-approve"]).expect(0);
    user.run(&["--sandbox", "plan", "--refresh-only"]).expect(0).says("No drift.").says("Not compared");
    let stack = user.stack();
    let (before, after) = stack.split_once("/base:").unwrap();
    user.write(format!("{before}/base:1{after}"));
    let allow = "replace:dask_cluster.rapids-dask-cluster";
    let replace = ["--sandbox", "apply", "--auto-approve", "--allow", allow];
    killed_at(&user, &replace, "scheduler not ready");

    let ready = || {
        let status = user.run(&["--sandbox", "status", "--json"]).expect(0).out;
        serde_json::from_str::<Value>(&status).unwrap()["ready"].clone()
    };
    // There is nothing to change, which is not all that there is to say.
    let plan = user.run(&["--sandbox", "plan", "--detailed-exitcode"]).expect(0).says("No changes.");
    // Its time goes on while a command runs, which takes long on a loaded machine.
    if ready() == false {
        plan.says("1 section is not ready").says("DI0380");
    }
    user.run(&["--sandbox", "apply", "--auto-approve"]).expect(0);
    assert_eq!(ready(), true);
    user.run(&["--sandbox", "plan", "--detailed-exitcode"]).expect(0).says("The stack is up to date.");
}

#[test]
fn a_scale_that_is_interrupted_goes_on_with_its_number() {
    let user = User::with_ready_stack(None);
    user.run(&["--sandbox", "apply", "--auto-approve"]).expect(0);
    for (write, again) in [
        (None, "scale dask_cluster.rapids-dask-cluster 40"),
        // The file says it now.
        (Some("--write"), "apply --target dask_cluster.rapids-dask-cluster"),
    ] {
        // There are not so many GPUs.
        let words = ["--sandbox", "scale", "rapids-dask-cluster", "40", "--auto-approve"];
        let words: Vec<&str> = words.into_iter().chain(write).collect();
        let mut scaling = RunningCommand::start(&user, &words);
        scaling.wait_until("of 40 workers");
        scaling.signal("INT");
        let (code, said) = scaling.end_saying();
        assert_eq!(code, Some(130), "{said}");
        let (_, next) = said.split_once("To continue (plans again").unwrap();
        assert_eq!(next.lines().nth(1), Some(format!("  dask-infra --sandbox {again}").as_str()), "{next}");
        user.run(&["--sandbox", "scale", "rapids-dask-cluster", "2", "--auto-approve"]).expect(0);
    }
}
