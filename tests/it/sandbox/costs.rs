//! Costs on a served sandbox: the sum in a plan is what `status` shows after its apply, and a budget is kept.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use sandbox::{Options, Scale};
use serde_json::{Value, json};

use crate::golden::root;
use crate::sandbox_server::{CommandOutput, RunningCommand, SandboxServer, User};

/// The cost that `plan --json` prints in its last line.
fn planned(user: &User) -> Value {
    let said = user.run(&["plan", "--json"]).expect(0);
    let mut last = said.out.lines().rev().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    last.find(|line| line["type"] == "change_summary").unwrap()["cost"].clone()
}

/// The running cost that `status --json` prints.
fn running(user: &User) -> Value {
    let said = user.run(&["status", "--json"]);
    let status: Value =
        serde_json::from_str(&said.out).unwrap_or_else(|why| panic!("{why}: {}{}", said.out, said.err));
    status["running_cost"].clone()
}

/// A `helm` that prints what it printed when the golden case of a ready stack was made.
fn with_helm(user: User, stack: &str) -> User {
    let kept = root().join(format!("tests/cases/plan-stack-{stack}/helm"));
    let Ok(files) = fs::read_dir(&kept) else { return user };
    let file = files.filter_map(Result::ok).map(|file| file.path()).next().unwrap();
    let program = user.path().join("helm");
    let script = format!(
        "#!/bin/sh\ncase $1 in\nversion) echo v4.0.0 ;;\npull) mkdir -p \"$5/$(basename \"$2\")\" && : > \"$5/$(basename \"$2\")/Chart.yaml\" ;;\n\
         *) cat > /dev/null; cat '{}' ;;\nesac\n",
        file.display()
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    user.rendering(program)
}

/// Serves a sandbox in which ten minutes of GKE are some seconds: so long the nodes of a job that has ended stay.
fn slow_sandbox() -> SandboxServer {
    SandboxServer::with(Options { scale: Scale { time_scale: 60.0 }, ..Options::default() })
}

/// Ready stacks that create a cluster with node pools, and are applied without anything else.
const STACKS: [&str; 10] = [
    "rapids-gke-lean",
    "rapids-gke",
    "autopilot",
    "dask-autoscaled",
    "dask-groups",
    "dask-job",
    "dask-notebook",
    "helm-gpu",
    "ladder",
    "queued-a100",
];

#[test]
fn the_sum_in_a_plan_is_what_status_shows_after_its_apply() {
    for stack in STACKS {
        let served = if stack == "dask-job" { slow_sandbox() } else { SandboxServer::fast() };
        let user = with_helm(User::with_stack(stack, Some(&served.gke)), stack);
        let before = planned(&user);
        assert_eq!(before["before"]["usd_per_hour"], 0.0, "{stack}");
        user.run(&["apply", "--auto-approve"]).expect(0);
        let now = running(&user);
        let unknown = |list: &Value| list.as_array().cloned().unwrap_or_default();
        assert_eq!(now["usd_per_hour"], before["after"]["usd_per_hour"], "{stack}: {now} {before}");
        assert_eq!(unknown(&now["unpriced"]), unknown(&before["after"]["unknown"]), "{stack}");
        // The next plan says the same of now, and changes nothing.
        let next = planned(&user);
        assert_eq!(next["before"], before["after"], "{stack}: {next}");
        assert_eq!(next["after"], before["after"], "{stack}: {next}");
    }
}

/// Reads a refusal: exit code 3, and nothing was created.
fn assert_refused(said: CommandOutput, served: &SandboxServer, text: &str) {
    said.expect(3).says("DI0348").says(text);
    assert!(served.sandbox.clusters().is_empty());
}

#[test]
fn a_budget_is_refused_and_allowed_once() {
    let served = SandboxServer::fast();
    let user = User::with_stack("dask-groups", Some(&served.gke));
    let stack = format!("{}\n[budget]\nmax_per_hour = 5\n", user.stack());
    user.write(&stack);
    let text = "$5.00/h";
    assert_refused(user.run(&["plan"]), &served, text);
    assert_refused(user.run(&["apply", "--auto-approve"]), &served, text);
    // The option counts more than the file, and limits what the file does not.
    assert_refused(user.run(&["plan", "--budget", "5.5/h"]), &served, "$5.50/h");
    assert_refused(user.run(&["plan", "--budget", "20/h", "--budget", "8/day"]), &served, "`idle_per_day`");
    user.run(&["plan", "--budget", "20/h"]).expect(0);
    let budget = |words: &[&str]| {
        let said = user.run(&[&["plan", "--json"], words].concat());
        let mut last = said.out.lines().rev().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        last.find(|line| line["type"] == "change_summary").unwrap()["cost"]["budget"].clone()
    };
    let over = budget(&["--budget", "8/day"]);
    let limits =
        over["exceeded"].as_array().unwrap().iter().map(|exceeded| exceeded["limit"].as_str().unwrap());
    assert_eq!(limits.collect::<Vec<_>>(), ["max_per_hour", "idle_per_day"], "{over}");
    assert_eq!(
        (&over["max_per_hour"], &over["idle_per_day"], &over["approved"]),
        (&json!(5.0), &json!(8.0), &json!(false))
    );
    assert!(
        over["exceeded"][0]["cost"].as_f64() > Some(5.0) && over["exceeded"][0]["allowed"] == 5.0,
        "{over}"
    );
    assert_eq!(
        budget(&["--budget", "20/h"]),
        json!({ "max_per_hour": 20.0, "exceeded": [], "approved": false })
    );
    let allowed = budget(&["--allow", "budget"]);
    assert_eq!((&allowed["approved"], allowed["exceeded"].as_array().map(Vec::len)), (&json!(true), Some(1)));
    let without_prices = User::empty();
    without_prices.write("[stack]\nname = \"s\"\n\n[kubernetes]\ncontext = \"lab\"\n\n[namespace.a]\n");
    let said = without_prices.run(&["plan", "--offline", "--budget", "20/h"]).expect(1);
    said.says("`--budget` needs `[gke]`");
    user.run(&["plan", "--allow", "budget", "--out", "p"]).expect(0);
    // The approval is in the plan.
    user.run(&["apply", "p"]).expect(0);
    // A second plan changes nothing: the stack still costs more than its budget, and nothing is refused.
    user.run(&["plan"]).expect(0).says("unchanged").says("DI0348");
    user.run(&["plan", "--detailed-exitcode"]).expect(0);
    user.run(&["apply", "--auto-approve"]).expect(0).says("DI0348");
    // A change that saves money is allowed, although it saves too little.
    let scaled = |number: u32| {
        let nodes = stack.replace("nodes = 4", &format!("nodes = {number}"));
        nodes.replace("replicas = 4", &format!("replicas = {number}"))
    };
    user.write(scaled(3));
    user.run(&["plan"]).expect(0).says("DI0348");
    user.write(scaled(5));
    user.run(&["plan"]).expect(3).says("DI0348");
    user.write(&stack);
    user.run(&["stop", "--auto-approve"]).expect(0);
    user.run(&["start", "--auto-approve"]).expect(3).says("DI0348");
    user.run(&["destroy", "--auto-approve"]).expect(0);
}

#[test]
fn an_unknown_price_under_a_budget_is_refused_by_its_name_until_a_file_has_it() {
    let served = slow_sandbox();
    let user = User::with_stack("dask-job", Some(&served.gke));
    let spot = "price unknown: n1-standard-4 with nvidia-tesla-t4 (spot)";
    let said = user.run(&["plan", "--budget", "1000/h"]);
    said.expect(3).says(spot).says("--prices FILE");
    // Without nodes nothing is unknown.
    user.run(&["plan", "--budget", "8/day"]).expect(0).says("at least").says(spot);
    let prices = "date\t2026-01-02\nwhat\tname\tus-central1\nfee\tcluster\t0.1\nmachine\te2-standard-*\t0.025\n\
                  machine\tn1-standard-*\t0.05/0.01\ngpu\tnvidia-tesla-t4\t0.35/0.06\ndisk\tpd-balanced\t0.073\n";
    fs::write(user.path().join("prices.tsv"), prices).unwrap();
    // A cluster, a machine for 0.10 and four for 0.04 + 0.06, each with a disk of a cent.
    let plan = ["plan", "--budget", "0.65/h", "--prices", "prices.tsv", "--out", "p"];
    let said = user.run(&plan).expect(0).says("$0.65/h").says("prices of the given file");
    assert!(!said.out.contains("at least"), "{}", said.out);
    user.run(&["apply", "p"]).expect(0).says("$0.65/h");
    user.run(&["status", "--prices", "prices.tsv"]).says("$0.65/h");
    fs::write(user.path().join("prices.tsv"), "date\tnever\n").unwrap();
    user.run(&["plan", "--prices", "prices.tsv"]).expect(1).says("DI0008").says("prices.tsv:1");
    user.run(&["plan", "--prices", "none.tsv"]).expect(1).says("DI0008");
}

#[test]
fn an_apply_that_is_interrupted_says_what_still_runs_and_costs() {
    let served = slow_sandbox();
    let user = User::with_stack("dask-groups", Some(&served.gke));
    let mut applying = RunningCommand::start(&user, &["apply", "--auto-approve"]);
    applying.wait_until("cluster: ");
    applying.signal("INT");
    let (code, said) = applying.end_saying();
    assert_eq!(code, Some(130), "{said}");
    // A cluster that GKE still makes, with its first pool: nobody has seen it ready.
    let line = said.lines().find(|line| line.starts_with("May still run: "));
    assert!(line.is_some_and(|line| line.starts_with("May still run: cluster, node_pool.")), "{said}");
    assert!(said.contains("`dask-infra destroy`"), "{said}");
    user.run(&["destroy", "--auto-approve"]).expect(0);
}
