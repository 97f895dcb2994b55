//! Costs on a served sandbox: the sum in a plan is what `status` shows after its apply, and a budget is kept.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use live::retry::RetryPolicy;
use live::{ApiError, LiveApi, Request, record};
use model::record::Record;
use sandbox::{Options, Scale};
use serde_json::{Value, json};

use crate::golden::root;
use crate::sandbox_server::{CommandOutput, ON_GKE, RunningCommand, SandboxServer, User};

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
fn a_budget_does_not_ask_for_the_price_of_a_secondary_boot_disk() {
    let user = User::empty();
    let pool = "machine_type = \"g2-standard-8\"\nnodes = 1\nimage_streaming = true";
    user.write(format!(
        "[stack]\nname = \"s\"\n\n[gke]\nproject = \"demo\"\nlocation = \"us-central1-c\"\n\n[cluster]\nname = \"c\"\n\n\
         [node_pool.gpu]\n{pool}\nsecondary_boot_disks = [\"projects/demo/global/images/rapids\"]\n"
    ));
    let said = user.run(&["plan", "--offline", "--budget", "1000/h"]).expect(3);
    let said = said.says("DI0348").says("secondary boot disk rapids of node pool gpu");
    let said = said.says("remove `secondary_boot_disks`").says("accepts the unknown price once");
    assert!(!said.err.contains("--prices"), "{}", said.err);
    user.run(&["plan", "--offline", "--budget", "1000/h", "--allow", "budget"])
        .expect(0)
        .says("at least $0.87/h");
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
    user.run(&["cost", "--prices", "prices.tsv"]).expect(0).says("prices of the given file");
    user.run(&["cost"]).expect(0).says("at least").says(spot);
    // The cost so far keeps the prices of the apply.
    let since = cost(&user)["since"].clone();
    assert_eq!((&since["prices_from"], &since["unknown"]), (&json!("file"), &json!([])), "{since}");
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

/// Reads the objects of the newest cluster.
struct Reader<'s>(&'s SandboxServer);

impl LiveApi for Reader<'_> {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Value, ApiError>> {
        let answer = self.0.get(&request.path);
        async move { Ok(answer) }.boxed()
    }
}

/// The record of the stack `s`.
fn recorded(served: &SandboxServer) -> Record {
    let (reader, place) = (Reader(served), Record::object("s"));
    let found = record::fetch(&reader, &place, RetryPolicy::Read);
    found.now_or_never().unwrap().unwrap().record().unwrap().clone()
}

fn write_record(served: &SandboxServer, record: &Record) {
    for (id, body) in record::pack(record) {
        let (code, answer) =
            served.merge(&id.path(), &json!({ "data": body["data"], "binaryData": body["binaryData"] }));
        assert_eq!(code, 200, "{answer}");
    }
}

/// Moves the record back in time, as if so many hours had passed since it was written.
fn pass_hours(served: &SandboxServer, hours: i64) {
    let mut record = recorded(served);
    let cost = record.accrued_cost.as_mut().unwrap();
    let time = SignedDuration::from_hours(hours);
    (cost.since, cost.until) = (cost.since - time, cost.until - time);
    write_record(served, &record);
}

/// Returns the object that `cost --json` prints.
fn cost(user: &User) -> Value {
    serde_json::from_str(&user.run(&["cost", "--json"]).expect(0).out).unwrap()
}

/// The cost so far: the least and the most.
fn so_far(user: &User) -> (f64, f64) {
    let since = cost(user)["since"].clone();
    let bound = |name: &str| since[name].as_f64().unwrap_or_else(|| panic!("{since}"));
    (bound("usd_at_least"), bound("usd_at_most"))
}

/// The cost of an hour: the least and the most.
fn hourly(user: &User) -> (f64, f64) {
    let total = cost(user)["hourly"]["total"].clone();
    let sum = |name: &str| total[name]["usd_per_hour"].as_f64().unwrap();
    (sum("idle"), sum("most"))
}

/// Asserts that the cost grew by so much, give or take what the seconds of a test cost.
fn assert_grew(before: (f64, f64), after: (f64, f64), by: (f64, f64)) {
    for (before, after, by) in [(before.0, after.0, by.0), (before.1, after.1, by.1)] {
        assert!((after - before - by).abs() < 0.05, "{before} + {by} is not {after}");
    }
}

const AUTOSCALED: &str = "nodes = { min = 1, max = 3 }\n";

#[test]
fn the_cost_so_far_counts_each_period_at_its_own_rates() {
    let served = SandboxServer::fast();
    let user = User::at(&served, format!("{ON_GKE}{AUTOSCALED}"));
    let planned = cost(&user);
    assert_eq!((&planned["hourly"]["exists"], planned.get("since")), (&json!(false), None));
    user.run(&["cost"]).expect(0).says("Nothing that has a price exists yet.").says("as planned");

    user.run(&["apply", "--auto-approve"]).expect(0);
    let now = cost(&user);
    assert_eq!(now["hourly"]["total"]["now"]["usd_per_hour"], running(&user)["usd_per_hour"], "{now}");
    assert_eq!(now["hourly"]["total"]["planned"], planned["hourly"]["total"]["planned"], "{now}");
    assert_eq!(now["since"]["from_creation"], true);
    let (start, small) = (so_far(&user), hourly(&user));
    assert!(start.1 < 0.05 && small.0 < small.1, "{start:?} {small:?}");

    pass_hours(&served, 10);
    let first = so_far(&user);
    assert_grew(start, first, (10.0 * small.0, 10.0 * small.1));
    user.run(&["cost"]).expect(0).says("(10 h 0 min): between").says("the record does not know");
    // Nothing is changed, so nothing is written.
    let written = recorded(&served);
    user.run(&["apply", "--auto-approve"]).expect(0);
    assert_eq!(recorded(&served), written);

    user.edit("max = 3", "max = 5");
    user.run(&["cost"]).expect(0).says("After the next apply:");
    user.run(&["apply", "--auto-approve"]).expect(0);
    let large = hourly(&user);
    assert!(large.0 == small.0 && large.1 > small.1, "{small:?} {large:?}");
    assert_grew(first, so_far(&user), (0.0, 0.0));
    pass_hours(&served, 10);
    let second = so_far(&user);
    assert_grew(first, second, (10.0 * large.0, 10.0 * large.1));

    user.run(&["stop", "--auto-approve"]).expect(0);
    assert_eq!(hourly(&user), (0.1, 0.1), "the fee of the cluster");
    pass_hours(&served, 10);
    let stopped = so_far(&user);
    assert_grew(second, stopped, (1.0, 1.0));

    user.run(&["start", "--auto-approve"]).expect(0);
    assert_eq!(hourly(&user), large);
    pass_hours(&served, 10);
    assert_grew(stopped, so_far(&user), (10.0 * large.0, 10.0 * large.1));
    // From the mark of a stop on, nodes may be there until the next command: the mark is written before anything is emptied.
    expire(&served, 4);
    assert_grew(stopped, so_far(&user), (6.0 * large.0 + 0.4, 10.0 * large.1));

    user.run(&["destroy", "--auto-approve"]).expect(0);
    let gone = cost(&user);
    assert_eq!((&gone["hourly"]["exists"], gone.get("since")), (&json!(false), None));
}

/// Notes that the whole stack was stopped by its `ttl` so many hours ago, as its CronJob does.
fn expire(served: &SandboxServer, hours: i64) {
    let path = Record::object("s").path();
    let digest = served.get(&path)["data"]["digest"].clone();
    let since = Timestamp::now() - SignedDuration::from_hours(hours);
    let note = json!({ "by": "ttl", "since": since.to_string(), "digest": digest, "deleted": [] });
    let patch = json!({ "metadata": { "annotations": { record::EXPIRED: note.to_string() } } });
    assert_eq!(served.merge(&path, &patch).0, 200);
}

#[test]
fn a_fixed_number_of_nodes_has_one_amount_after_scale() {
    let served = SandboxServer::fast();
    let user = User::at(&served, format!("{ON_GKE}nodes = 1\n"));
    user.run(&["apply", "--auto-approve"]).expect(0);
    let one = hourly(&user);
    user.run(&["scale", "node_pool.cpu", "3", "--auto-approve"]).expect(0);
    let three = cost(&user)["hourly"]["total"].clone();
    let now = three["now"]["usd_per_hour"].as_f64().unwrap();
    assert_eq!((one.0, three["idle"] == three["now"]), (one.1, true), "{three}");
    assert!(((now - 0.1) - 3.0 * (one.0 - 0.1)).abs() < 0.001, "{now} {one:?}");
    let before = so_far(&user);
    pass_hours(&served, 100);
    assert_grew(before, so_far(&user), (100.0 * now, 100.0 * now));
}

#[test]
fn a_pool_that_a_partial_apply_leaves_in_place_still_counts() {
    let served = SandboxServer::fast();
    let more = "\n[node_pool.more]\nmachine_type = \"e2-standard-8\"\n";
    let user = User::at(&served, format!("{ON_GKE}{more}"));
    user.run(&["apply", "--auto-approve"]).expect(0);
    let both = hourly(&user);
    user.write(format!("{ON_GKE}\n[namespace.a]\n"));
    user.run(&["apply", "--auto-approve", "--target", "namespace.a"]).expect(0);
    assert_eq!(hourly(&user), both);
    let before = so_far(&user);
    pass_hours(&served, 10);
    assert_grew(before, so_far(&user), (10.0 * both.0, 10.0 * both.1));
}

#[test]
fn a_record_without_costs_begins_to_count_with_the_next_change() {
    let served = SandboxServer::fast();
    let user = User::at(&served, format!("{ON_GKE}{AUTOSCALED}"));
    user.run(&["apply", "--auto-approve"]).expect(0);
    write_record(&served, &Record { accrued_cost: None, ..recorded(&served) });
    user.run(&["cost"]).expect(0).says("The record of this stack has no costs.");
    assert_eq!(cost(&user).get("since"), None);
    user.edit("max = 3", "max = 4");
    user.run(&["apply", "--auto-approve"]).expect(0);
    user.run(&["cost"]).expect(0).says("Counted since").says("earlier costs are not in the record");
    assert_eq!(cost(&user)["since"]["from_creation"], false);
}

#[test]
fn node_pools_that_come_after_the_first_apply_are_counted_from_their_creation() {
    let served = SandboxServer::fast();
    let owner = User::at(&served, ON_GKE.replace("name = \"s\"", "name = \"owner\""));
    owner.run(&["apply", "--auto-approve"]).expect(0);
    let pool = "\n[node_pool.more]\nmachine_type = \"e2-standard-8\"\n";
    let cluster = ON_GKE.split("[node_pool.cpu]").next().unwrap().to_owned() + "manage = false\n";
    let user = User::at(&served, format!("{cluster}\n[namespace.a]\n"));
    user.run(&["apply", "--auto-approve"]).expect(0);
    let said = user.run(&["cost"]).expect(0).says("Nothing of this stack is counted");
    assert!(!said.out.contains("Since"), "{}", said.out);
    let since = cost(&user)["since"].clone();
    assert_eq!((&since["usd_at_most"], since.get("prices_of")), (&json!(0.0), None), "{since}");

    user.write(format!("{cluster}\n[namespace.a]\n{pool}"));
    user.run(&["apply", "--auto-approve"]).expect(0);
    let now = cost(&user)["since"].clone();
    assert_eq!((&now["from_creation"], &now["time"]), (&json!(true), &since["time"]), "{now}");
    pass_hours(&served, 10);
    let grown = so_far(&user);
    assert!(grown.1 > 1.0, "{grown:?}");

    // Without anything that has a price, the sum and the origin of its prices stay.
    user.write(format!("{cluster}\n[namespace.a]\n"));
    user.run(&["apply", "--auto-approve", "--allow", "delete:node_pool.more"]).expect(0);
    user.write(format!("{cluster}\n[namespace.a]\n[namespace.b]\n"));
    user.run(&["apply", "--auto-approve"]).expect(0);
    let last = cost(&user)["since"].clone();
    assert_eq!((&last["prices_of"], &last["prices_from"]), (&now["prices_of"], &json!("list")), "{last}");
    assert!(so_far(&user).1 >= grown.1, "{last}");
    user.run(&["cost"]).expect(0).says("Since");
}

#[test]
fn a_stack_that_cannot_be_planned_has_the_cost_of_what_exists() {
    let served = SandboxServer::fast();
    let user = User::at(&served, format!("{ON_GKE}{AUTOSCALED}"));
    user.run(&["apply", "--auto-approve"]).expect(0);
    let before = cost(&user);
    user.write(format!("{ON_GKE}{AUTOSCALED}\n[namespace.missing]\nmanage = false\n"));
    user.run(&["plan"]).expect(1).says("DI0232");
    let said = user.run(&["cost"]).expect(0);
    said.says("warning[DI0232]").says("No plan is possible").says("Since").says("node_pool.cpu");
    let after = cost(&user);
    let (one, two) = (&before["hourly"]["total"], &after["hourly"]["total"]);
    assert_eq!((&one["now"], &one["idle"], &one["most"]), (&two["now"], &two["idle"], &two["most"]));
    assert_eq!((two.get("planned"), &after["since"]["time"]), (None, &before["since"]["time"]));
    // A pool that is no longer in the file is there.
    user.write(
        ON_GKE.replace("node_pool.cpu", "node_pool.other") + "\n[namespace.missing]\nmanage = false\n",
    );
    let sections = cost(&user)["hourly"]["sections"].clone();
    assert_eq!(sections["node_pool.cpu"], after["hourly"]["sections"]["node_pool.cpu"], "{sections}");
}

#[test]
fn a_record_from_the_future_counts_nothing_back_and_is_named() {
    let served = SandboxServer::fast();
    let user = User::at(&served, format!("{ON_GKE}nodes = 1\n"));
    user.run(&["apply", "--auto-approve"]).expect(0);
    pass_hours(&served, 10);
    user.edit("nodes = 1", "nodes = 2");
    user.run(&["apply", "--auto-approve"]).expect(0);
    let before = so_far(&user);
    assert!(!user.run(&["cost"]).expect(0).out.contains("clock"));
    pass_hours(&served, -5);
    let until = recorded(&served).accrued_cost.unwrap().until.strftime("%Y-%m-%d %H:%M UTC");
    let line = format!("The record was written at {until} by a machine whose clock was ahead");
    user.run(&["cost"]).expect(0).says(&line);
    assert_grew(before, so_far(&user), (0.0, 0.0));
}

#[test]
fn a_world_that_cannot_be_read_is_the_same_error_as_that_of_status() {
    let served = SandboxServer::fast();
    let user = User::at(&served, format!("{ON_GKE}nodes = 1\n"));
    user.run(&["apply", "--auto-approve"]).expect(0);
    drop(served);
    let (cost, status) = (user.run(&["cost"]).expect(1), user.run(&["status"]).expect(1));
    let code =
        |said: &CommandOutput| said.err.lines().find(|line| line.contains("error[")).map(str::to_owned);
    assert!(code(&cost).is_some() && code(&cost) == code(&status), "{} {}", cost.err, status.err);
}

#[test]
fn an_interrupted_apply_counts_as_what_it_may_have_done() {
    let served = slow_sandbox();
    let user = User::at(&served, format!("{ON_GKE}nodes = 1\n"));
    user.run(&["apply", "--auto-approve"]).expect(0);
    let one = hourly(&user);
    user.write(format!(
        "{ON_GKE}nodes = 1\n\n[node_pool.more]\nmachine_type = \"e2-standard-8\"\nnodes = 2\n"
    ));
    let mut applying = RunningCommand::start(&user, &["apply", "--auto-approve"]);
    applying.wait_until("node_pool.more: ");
    applying.signal("KILL");
    applying.end();
    let before = so_far(&user);
    pass_hours(&served, 10);
    let node = one.0 - 0.1;
    assert_grew(before, so_far(&user), (10.0 * one.0, 10.0 * (one.0 + 2.0 * node)));
    // Done again, the amount is one again.
    user.run(&["apply", "--auto-approve", "--force-unlock"]).expect(0);
    let before = so_far(&user);
    pass_hours(&served, 10);
    assert_grew(before, so_far(&user), (10.0 * (one.0 + 2.0 * node), 10.0 * (one.0 + 2.0 * node)));
}

#[test]
fn a_stack_without_anything_that_has_a_price_says_so_and_reads_nothing() {
    for (place, said) in [
        ("[local]\n", "Hosts have no price: `cost` counts nothing for this stack."),
        ("[ssh]\nhosts = [\"nowhere\"]\n", "Hosts have no price: `cost` counts nothing"),
        ("[slurm]\npartition = \"gpu\"\n", "Hosts have no price: `cost` counts nothing"),
        ("[kubernetes]\ncontext = \"lab\"\n", "it manages no GKE cluster and no node pools"),
    ] {
        let user = User::empty();
        user.write(format!("[stack]\nname = \"s\"\n\n{place}\n"));
        user.run(&["cost"]).expect(0).says(said);
        let json = cost(&user);
        assert_eq!((json.get("hourly"), json.get("since")), (None, None), "{json}");
    }
}
