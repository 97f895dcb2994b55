//! The fault sweep: every request of an apply of the ready stacks meets every fault, then the program is run
//! again, both as the commands do it: under the lock, planned again there. Whatever happened: only followers of what failed were skipped, what others made is untouched, the
//! second run ends well, the world is that of a quiet run, and the next plan is empty.
//!
//! A sample by default; `DASK_INFRA_SWEEP=all` tries everything, `DASK_INFRA_SWEEP=N` so many of each
//! scenario, `DASK_INFRA_SEED=N` another sample, `DASK_INFRA_FAULT=late+configmaps` only cases with both words in their titles.

#![allow(clippy::unwrap_used, reason = "test code outside of test functions")]

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use apply::Outcome;
use live::Request;
use model::resource::{Api as Which, Method};
use plan::{Action, Mode, Plan};
use sandbox::faults::{DryRuns, FaultEffect, Refuse, Rule};
use serde_json::{Value, json};

use crate::props::harness::{
    ApplyResult, ApprovedApply, Harness, Injection, InjectionPoint, Process, Stack, title,
};

/// Cases of each scenario when nobody says how many. One costs about two seconds of a core in a debug build.
const SAMPLE: usize = 3;

/// The process that applies first, and the one that goes on.
const FIRST: Process = Process::Number(1);
const SECOND: Process = Process::Number(2);

/// A fault of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    /// Refused with this code, once.
    Once(u16),
    /// Refused with this code, as often as it is asked.
    Always(u16),
    /// GKE says that another operation runs.
    Busy,
    /// A proxy on the way answers 200 with a page of its own; it never arrives.
    Page,
    /// Done; half of the answer arrives.
    AnswerCut,
    /// Done; the answer is lost.
    AnswerLost,
    /// Done again and again; every answer is lost.
    AnswersLost,
    /// Never arrives.
    RequestLost,
    /// Done after the client has given up waiting and asked again.
    Late,
    /// The operation is DONE with an error.
    OperationFails,
    /// There are no machines.
    StockOut,
    /// The program dies before it is sent.
    DeathBefore,
    /// The program dies when it is done.
    DeathAfter,
}

impl Fault {
    fn name(self) -> String {
        match self {
            Self::Once(code) => format!("answer {code} once"),
            Self::Always(code) => format!("answer {code} always"),
            Self::Busy => "busy once".into(),
            Self::Page => "a page with 200".into(),
            Self::AnswerCut => "answer cut in half".into(),
            Self::AnswerLost => "answer lost".into(),
            Self::AnswersLost => "every answer lost".into(),
            Self::RequestLost => "request lost".into(),
            Self::Late => "late, past the time-out".into(),
            Self::OperationFails => "operation DONE with error".into(),
            Self::StockOut => "stock-out".into(),
            Self::DeathBefore => "restart before".into(),
            Self::DeathAfter => "restart after".into(),
        }
    }

    /// The faults that a request can meet.
    fn of(method: &str, path: &str) -> Vec<Self> {
        if method == "GET" {
            return vec![
                Self::Once(403),
                Self::Once(503),
                Self::Page,
                Self::AnswerCut,
                Self::Late,
                Self::DeathBefore,
            ];
        }
        let mut faults = vec![
            Self::Once(400),
            Self::Once(401),
            Self::Once(403),
            Self::Once(409),
            Self::Once(429),
            Self::Once(500),
            Self::Once(502),
            Self::Once(503),
            Self::Always(503),
            Self::Page,
            Self::AnswerCut,
            Self::AnswerLost,
            Self::AnswersLost,
            Self::RequestLost,
            Self::Late,
            Self::DeathBefore,
            Self::DeathAfter,
        ];
        if path.starts_with("/v1/") {
            faults.extend([Self::Busy, Self::OperationFails]);
        }
        let makes_machines = ["/clusters", "/nodePools", ":setSize"].iter().any(|end| path.ends_with(end));
        if method == "POST" && makes_machines {
            faults.push(Self::StockOut);
        }
        faults
    }
}

/// One fault at one request.
#[derive(Clone, Debug)]
struct Case {
    fault: Fault,
    method: String,
    path: String,
    skip: usize,
}

impl Case {
    fn title(&self) -> String {
        format!("{} at {} {} (number {})", self.fault.name(), self.method, self.path, self.skip + 1)
    }

    fn rules(&self) -> Vec<Rule> {
        let refuse = |code, reason: Option<&str>| {
            FaultEffect::Refuse(Refuse { reason: reason.map(str::to_owned), ..Refuse::with(code) })
        };
        let (times, delay, then) = match self.fault {
            Fault::Once(code) => (Some(1), 0, refuse(code, None)),
            Fault::Always(code) => (None, 0, refuse(code, None)),
            Fault::Busy => (Some(1), 0, refuse(400, Some("CLUSTER_ALREADY_HAS_OPERATION"))),
            Fault::Page => (Some(1), 0, refuse(200, None)),
            Fault::AnswerCut => (Some(1), 0, FaultEffect::CutAnswer),
            Fault::AnswerLost => (Some(1), 0, FaultEffect::LoseAnswer),
            Fault::AnswersLost => (None, 0, FaultEffect::LoseAnswer),
            Fault::RequestLost => (Some(1), 0, FaultEffect::LoseRequest),
            Fault::Late => (Some(1), 45, FaultEffect::Usual),
            Fault::OperationFails => {
                (Some(1), 0, FaultEffect::FailOperation("Internal error: something broke on the way.".into()))
            }
            Fault::StockOut | Fault::DeathBefore | Fault::DeathAfter => return Vec::new(),
        };
        vec![Rule {
            method: Some(self.method.clone()),
            path: self.path.clone(),
            dry_run: DryRuns::Never,
            skip: u32::try_from(self.skip).unwrap(),
            times,
            delay: Duration::from_secs(delay),
            then,
        }]
    }

    fn moment(&self) -> Option<InjectionPoint> {
        let turn = match self.fault {
            Fault::DeathBefore => Injection::DeathBefore,
            Fault::DeathAfter => Injection::DeathAfter,
            Fault::StockOut => Injection::StockOut,
            _ => return None,
        };
        let Self { method, path, skip, .. } = self.clone();
        Some(InjectionPoint::At { method, path, skip, turn })
    }

    fn dies(&self) -> bool {
        matches!(self.fault, Fault::DeathBefore | Fault::DeathAfter)
    }
}

/// A plan to be disturbed.
struct Scenario {
    name: String,
    base: Harness,
    stack: Stack,
    mode: Mode,
    /// Of others, inside the cluster: paths of what must stay as it is.
    theirs: Vec<String>,
}

/// The plan, the cases and the result of a run without any fault.
struct UndisturbedRun {
    plan: Plan,
    cases: Vec<Case>,
    world: BTreeMap<String, Value>,
}

/// How a disturbed apply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Ending {
    /// All was done in spite of it.
    Unnoticed,
    /// Something failed, and the second run mended it.
    Mended,
    /// As before, and the second run asked for an approval.
    MendedWithApproval,
    /// The program died, and the second run ended what it had begun.
    Resumed,
}

/// Runs on a clock that jumps over waiting.
fn paused<T>(future: impl Future<Output = T>) -> T {
    let builder = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    builder.unwrap().block_on(future)
}

impl Scenario {
    /// The plan to be disturbed, every case (what a quiet run asks, times what can go wrong), and the world
    /// that a quiet run leaves.
    async fn run_undisturbed(&self) -> UndisturbedRun {
        let Self { stack, mode, .. } = self;
        let harness = self.base.copy();
        let first = with_all_approvals(harness.plan(stack, *mode).await.unwrap());
        assert!(!first.is_empty(), "{}: there is nothing to do", self.name);
        let going = ApprovedApply { process: FIRST, stack, plan: first.clone(), moment: None };
        let ApplyResult { summary, asked, .. } = harness.apply_one(going, Vec::new()).await;
        let outcomes = summary.unwrap().outcomes;
        assert!(outcomes.iter().all(|(_, outcome, _)| *outcome == Outcome::Done), "{outcomes:?}");
        let after = harness.plan(stack, *mode).await.unwrap();
        assert!(after.is_empty(), "{}: {:?}", self.name, actions(&after));
        let mut seen: BTreeMap<(String, String), usize> = BTreeMap::new();
        let mut cases = Vec::new();
        for request in &asked {
            let (method, path) = title(request);
            let (method, path) = (method.to_owned(), path.to_owned());
            let skip = seen.entry((method.clone(), path.clone())).or_default();
            // A wait looks again and again; its first look stands for all. Operations have names of their own.
            let counts = method != "GET" || *skip == 0;
            if counts && !path.contains("/operations") {
                let case = |fault| Case { fault, method: method.clone(), path: path.clone(), skip: *skip };
                cases.extend(Fault::of(&method, &path).into_iter().map(case));
            }
            *skip += 1;
        }
        UndisturbedRun { plan: first, cases, world: harness.world(stack).await }
    }

    /// Disturbs the plan and mends it. The plan is that of the quiet run: it was made of the same world.
    async fn run(&self, case: &Case, quiet: &UndisturbedRun) -> Result<Ending, String> {
        let Self { stack, .. } = self;
        let harness = self.base.copy();
        let plan = &quiet.plan;
        let theirs = self.foreign_objects(&harness).await;
        let going = ApprovedApply { process: FIRST, stack, plan: plan.clone(), moment: case.moment() };
        let first = harness.apply_one(going, case.rules()).await;
        let undisturbed = match &first {
            ApplyResult { summary: Some(summary), plan, .. } => {
                let plan = plan.as_ref().ok_or("it ended and never began")?;
                skipped_for_nothing(plan, &summary.outcomes)?;
                Some(summary.outcomes.iter().all(|(_, outcome, _)| *outcome == Outcome::Done))
            }
            ApplyResult { summary: None, refused: Some(_), .. } => Some(false),
            ApplyResult { summary: None, refused: None, .. } => None,
        };
        if case.dies() && undisturbed.is_some() {
            return Err("the request was never made, and the program did not die".into());
        }
        let (again, approvals) = self.run_again(&harness, plan).await?;
        if undisturbed == Some(true) && again && case.fault != Fault::Late {
            return Err("all was done, and the next plan was not empty".into());
        }
        let world = harness.world(stack).await;
        if let Some(difference) = difference(&quiet.world, &world) {
            return Err(difference);
        }
        for (before, now) in theirs.iter().zip(self.foreign_objects(&harness).await) {
            if *before != now {
                let place = first_difference(before, &now, String::new());
                return Err(format!("what others made was touched: {place}"));
            }
        }
        Ok(match undisturbed {
            Some(true) if !again => Ending::Unnoticed,
            None if !approvals => Ending::Resumed,
            _ if approvals => Ending::MendedWithApproval,
            _ => Ending::Mended,
        })
    }

    /// Plans and applies without any fault: whether there was anything to do, and whether that took a
    /// approval that the first run did not need.
    async fn run_again(&self, harness: &Harness, first: &Plan) -> Result<(bool, bool), String> {
        let Self { stack, mode, .. } = self;
        let plan = harness.plan(stack, *mode).await.map_err(|why| format!("no second plan: {why}"))?;
        let more = plan.missing_approvals(&first.approved);
        if plan.is_empty() {
            return Ok((false, false));
        }
        let plan = with_all_approvals(plan);
        // The lock of a program that died holds others up for as long as it may have lived on.
        harness.wait(stack, 120).await;
        let going = ApprovedApply { process: SECOND, stack, plan: plan.clone(), moment: None };
        let ApplyResult { summary, refused, .. } = harness.apply_one(going, Vec::new()).await;
        let Some(outcomes) = summary.map(|summary| summary.outcomes) else {
            return Err(format!("the second run did not begin: {}", refused.unwrap_or_default()));
        };
        if let Some((place, outcome, _)) = outcomes.iter().find(|(_, outcome, _)| *outcome != Outcome::Done) {
            let address = &plan.changes[*place].address;
            return Err(format!("the second run: {address}: {outcome:?}"));
        }
        let after = harness.plan(stack, *mode).await.map_err(|why| format!("no third plan: {why}"))?;
        if !after.is_empty() {
            return Err(format!("the plan after the second run is not empty: {:?}", actions(&after)));
        }
        Ok((true, !more.is_empty()))
    }

    /// Returns the foreign objects as they are.
    async fn foreign_objects(&self, harness: &Harness) -> Vec<Value> {
        let mut found = Vec::new();
        let cluster = "/v1/projects/demo/locations/us-central1-c/clusters/theirs";
        found.push(harness.gke("GET", cluster, &Value::Null));
        for path in &self.theirs {
            let mut thing = match path.starts_with("/v1/") {
                true => harness.gke("GET", path, &Value::Null),
                false => {
                    harness.kubernetes(&self.stack, Request::get(Which::Kubernetes, path.as_str())).await
                }
            };
            // Which certificate a sandbox has is its own matter.
            thing.as_object_mut().unwrap().remove("etag");
            found.push(thing);
        }
        for thing in &mut found {
            thing.as_object_mut().unwrap().remove("masterAuth");
            // How full the cluster's range of addresses is, which every node of the cluster moves.
            if let Some(network) = thing.get_mut("networkConfig").and_then(Value::as_object_mut) {
                network.remove("podIpv4RangeUtilization");
            }
        }
        found
    }
}

/// With all approvals that it needs.
fn with_all_approvals(mut plan: Plan) -> Plan {
    plan.approved = plan.missing_approvals(&[]);
    plan
}

fn actions(plan: &Plan) -> Vec<String> {
    let changed = plan.changes.iter().filter(|change| change.action != Action::Keep);
    changed
        .map(|change| {
            let fields: Vec<String> = change.fields.iter().map(|field| field.path.to_string()).collect();
            format!("{:?} {} {:?} {}", change.action, change.address, change.why(), fields.join(" "))
        })
        .collect()
}

/// Only what follows something that did not succeed may be skipped, or, when the record could not be
/// written, what would have been written inside the cluster.
fn skipped_for_nothing(plan: &Plan, outcomes: &[(usize, Outcome, Duration)]) -> Result<(), String> {
    let outcomes: BTreeMap<usize, &Outcome> =
        outcomes.iter().map(|(place, outcome, _)| (*place, outcome)).collect();
    let unrecorded =
        outcomes.values().any(|outcome| matches!(outcome, Outcome::Failed { code, .. } if code == "DI0407"));
    for (place, outcome) in &outcomes {
        let lost = plan
            .predecessors(&plan.changes[*place])
            .any(|before| outcomes.get(&before).is_some_and(|before| **before != Outcome::Done));
        let skipped = matches!(outcome, Outcome::Skipped { .. });
        let address = &plan.changes[*place].address;
        if skipped && !lost && !unrecorded {
            return Err(format!("{address} was skipped for nothing"));
        }
        if lost && !skipped {
            return Err(format!("{address} was not skipped: {outcome:?}"));
        }
        if matches!(outcome, Outcome::NotStarted) {
            return Err(format!("{address} was not started"));
        }
    }
    Ok(())
}

fn difference(quiet: &BTreeMap<String, Value>, world: &BTreeMap<String, Value>) -> Option<String> {
    let names: std::collections::BTreeSet<&String> = quiet.keys().chain(world.keys()).collect();
    names.into_iter().find_map(|name| match (quiet.get(name), world.get(name)) {
        (Some(one), Some(other)) if one == other => None,
        (Some(_), None) => Some(format!("{name} is missing")),
        (None, _) => Some(format!("{name} is there, and not after a quiet run")),
        (Some(one), Some(other)) => {
            let place = first_difference(one, other, String::new());
            Some(format!("{name} differs: {place}"))
        }
    })
}

fn first_difference(one: &Value, other: &Value, at: String) -> String {
    if let (Value::Object(a), Value::Object(b)) = (one, other) {
        for key in a.keys().chain(b.keys()) {
            let (a, b) = (a.get(key).unwrap_or(&Value::Null), b.get(key).unwrap_or(&Value::Null));
            if a != b {
                return first_difference(a, b, format!("{at}/{key}"));
            }
        }
    }
    if let (Value::Array(a), Value::Array(b)) = (one, other)
        && let Some(index) = a.iter().zip(b).position(|(a, b)| a != b)
    {
        return first_difference(&a[index], &b[index], format!("{at}/{index}"));
    }
    format!("{at}: {one} after a quiet run, {other} now")
}

/// Which of the cases are tried: as many as asked, of every fault in turn, the same for the same seed.
fn sample(mut cases: Vec<Case>) -> Vec<Case> {
    if let Ok(words) = std::env::var("DASK_INFRA_FAULT") {
        cases.retain(|case| words.split('+').all(|word| case.title().contains(word)));
    }
    let wanted = std::env::var("DASK_INFRA_SWEEP").unwrap_or_default();
    if wanted == "all" {
        return cases;
    }
    let count = wanted.parse().unwrap_or(SAMPLE);
    let seed = std::env::var("DASK_INFRA_SEED").unwrap_or_default();
    cases.sort_by_cached_key(|case| blake3::hash(format!("{seed} {}", case.title()).as_bytes()).to_hex());
    let mut turns: BTreeMap<Fault, usize> = BTreeMap::new();
    let mut ranked: Vec<(usize, Case)> = cases
        .into_iter()
        .map(|case| {
            let turn = turns.entry(case.fault).or_default();
            *turn += 1;
            (*turn, case)
        })
        .collect();
    ranked.sort_by_key(|(turn, _)| *turn);
    ranked.into_iter().take(count).map(|(_, case)| case).collect()
}

/// One case to its end. A case that panics is broken, and the others go on.
fn run_case(scenario: &Scenario, case: &Case, quiet: &UndisturbedRun) -> Result<Ending, String> {
    let hours = Duration::from_secs(48 * 3600);
    let run = || paused(async { tokio::time::timeout(hours, scenario.run(case, quiet)).await });
    let ended = match catch_unwind(AssertUnwindSafe(run)) {
        Ok(ended) => ended.unwrap_or_else(|_| Err("it never ended".to_owned())),
        Err(_) => Err("a panic".to_owned()),
    };
    if let Err(why) = &ended {
        println!("broken: {}: {}: {why}", scenario.name, case.title());
    }
    ended
}

fn sweep(scenario: &Scenario) {
    let quiet = paused(scenario.run_undisturbed());
    let whole = quiet.cases.len();
    let cases = sample(quiet.cases.clone());
    let began = std::time::Instant::now();
    let next = AtomicUsize::new(0);
    // Each case has a world and a clock of its own: they run side by side.
    let work = || {
        let mut ended = Vec::new();
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            ended.push((case, run_case(scenario, case, &quiet)));
        }
        ended
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let ended: Vec<(&Case, Result<Ending, String>)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cores.min(cases.len())).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    let mut table: BTreeMap<Fault, BTreeMap<Ending, usize>> = BTreeMap::new();
    let mut broken = Vec::new();
    for (case, ended) in ended {
        match ended {
            Ok(ending) => *table.entry(case.fault).or_default().entry(ending).or_default() += 1,
            Err(why) => broken.push(format!("{}: {}: {why}", scenario.name, case.title())),
        }
    }
    println!("{}: {} of {whole} cases in {} s", scenario.name, cases.len(), began.elapsed().as_secs());
    for (fault, endings) in &table {
        let endings: Vec<String> =
            endings.iter().map(|(ending, count)| format!("{ending:?} {count}")).collect();
        println!("  {:28} {}", fault.name(), endings.join(", "));
    }
    assert!(broken.is_empty(), "{} of {}:\n{}", broken.len(), cases.len(), broken.join("\n"));
}

fn ready(name: &str) -> String {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("stacks");
    std::fs::read_to_string(folder.join(name).join("stack.toml")).unwrap()
}

/// A world in which a stack was applied, with things of others in its cluster.
async fn applied_world(text: &str, foreign: bool) -> (Harness, Vec<String>) {
    let (harness, stack) = (Harness::new(), Stack::of(text));
    let plan = harness.plan(&stack, Mode::Apply).await.unwrap();
    let ended = harness.apply(&stack, &plan, Vec::new(), None).await;
    let outcomes = ended.summary.unwrap().outcomes;
    assert!(outcomes.iter().all(|(_, outcome, _)| *outcome == Outcome::Done), "{outcomes:?}");
    let mut theirs = Vec::new();
    if foreign {
        let pools = format!("{}/nodePools", stack.cluster());
        harness.gke("POST", &pools, &json!({ "nodePool": { "name": "theirs", "initialNodeCount": 1 } }));
        harness.pass(10);
        theirs.push(format!("{pools}/theirs"));
        let objects = [
            ("/api/v1/namespaces", "Namespace"),
            ("/api/v1/namespaces/theirs/configmaps", "ConfigMap"),
            ("/api/v1/namespaces/default/configmaps", "ConfigMap"),
        ];
        for (path, kind) in objects {
            let body = json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": "theirs" } });
            let request = Request {
                api: Which::Kubernetes,
                method: Method::Post,
                path: path.to_owned(),
                body: Some(body),
            };
            harness.kubernetes(&stack, request).await;
            theirs.push(format!("{path}/theirs"));
        }
    }
    (harness, theirs)
}

fn apply_of(name: &str) {
    let (base, stack) = (paused(async { Harness::new() }), Stack::of(&ready(name)));
    sweep(&Scenario { name: format!("apply {name}"), base, stack, mode: Mode::Apply, theirs: Vec::new() });
}

#[test]
fn an_apply_of_the_ready_stack_survives_every_fault() {
    apply_of("rapids-gke");
}

#[test]
fn an_apply_of_the_lean_stack_survives_every_fault() {
    apply_of("rapids-gke-lean");
}

#[test]
fn a_destroy_of_the_ready_stack_survives_every_fault() {
    let text = ready("rapids-gke");
    let (base, theirs) = paused(applied_world(&text, false));
    let stack = Stack::of(&text);
    sweep(&Scenario { name: "destroy".into(), base, stack, mode: Mode::Destroy, theirs });
}

/// Labels, sizes, an image that forces a replacement, GPUs that force one of a pool.
#[test]
fn a_changed_stack_survives_every_fault() {
    let text = ready("rapids-gke");
    let (base, theirs) = paused(applied_world(&text, true));
    let edits = [
        ("nodes = 1 ", "nodes = 2 "),
        ("replicas = 2", "replicas = 1"),
        ("base:25.04", "base:25.06"),
        ("release_channel = \"stable\"", "release_channel = \"stable\"\nlabels = { team = \"x\" }"),
        ("accelerator = \"nvidia-tesla-t4\"", "accelerator = { type = \"nvidia-tesla-t4\", count = 2 }"),
    ];
    let changed = edits.iter().fold(text, |text, (from, to)| {
        assert!(text.contains(from), "no {from:?} in the stack");
        text.replacen(from, to, 1)
    });
    sweep(&Scenario { name: "change".into(), base, stack: Stack::of(&changed), mode: Mode::Apply, theirs });
}

/// Everything inside the cluster has left the file.
#[test]
fn a_stack_that_leaves_its_cluster_survives_every_fault() {
    let text = ready("rapids-gke");
    let (base, theirs) = paused(applied_world(&text, true));
    let (left, _) = text.split_once("[gpu_driver]").unwrap();
    sweep(&Scenario { name: "leave".into(), base, stack: Stack::of(left), mode: Mode::Apply, theirs });
}
