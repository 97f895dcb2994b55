//! Saved plans: what is refused and how it is said, the document that policy scripts read, and the promise that apply
//! sends what the plan holds and nothing else.

use std::sync::{Arc, Mutex};

use dask_infra::apply::{ApplyOptions, Outcome, apply};
use dask_infra::live::connection::{Connection, InProcess, Options as Connect};
use dask_infra::live::gke::GkeAccess;
use dask_infra::live::{ApiError, LiveApi, Request, read};
use dask_infra::plan::{self, Inputs, Mode, Plan};
use dask_infra::report::document;
use dask_infra::resource::{Action, Call, Method, Step};
use dask_infra::sandbox::{Options, Sandbox, Scale};
use dask_infra::source::Sources;
use dask_infra::stack::lower::{Lowered, lower};
use dask_infra::stack::{self, parse_text};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::golden::{golden, root};
use crate::served::{Served, User};

const FAST: Scale = Scale { time_scale: 1200.0 };

#[test]
fn the_committed_schema_of_plans_is_current() {
    golden(&root().join("schemas/plan.schema.json"), &format!("{:#}\n", document::schema())).unwrap();
}

/// What a conftest policy does: goes over `resource_changes` and collects denials.
fn denials(plan: &Value, dear: f64) -> Vec<String> {
    let mut denied = Vec::new();
    for change in plan["resource_changes"].as_array().unwrap() {
        let actions: Vec<&str> =
            change["change"]["actions"].as_array().unwrap().iter().map(|a| a.as_str().unwrap()).collect();
        let address = change["address"].as_str().unwrap();
        if actions.contains(&"delete") && change["type"] == "node_pool" {
            denied.push(format!("{address}: no pool is deleted"));
        }
        let after = &change["change"]["after"];
        for gpu in after["config"]["accelerators"].as_array().into_iter().flatten() {
            if gpu["acceleratorType"] == "nvidia-tesla-a100" && after["config"]["spot"] != true {
                denied.push(format!("{address}: A100 only as spot"));
            }
        }
        let (before, after) = (&change["change"]["before"], after);
        if actions == ["update"]
            && before["spec"]["worker"]["replicas"] != after["spec"]["worker"]["replicas"]
        {
            denied.push(format!("{address}: {} workers", after["spec"]["worker"]["replicas"]));
        }
    }
    if plan["dask_infra"]["hourly"].as_f64().is_some_and(|hourly| hourly > dear) {
        denied.push("too dear".into());
    }
    denied
}

#[test]
fn policies_for_terraform_read_our_plans() {
    let served = Served::with(Options { scale: FAST, ..Options::default() });
    let user = User::with_ready_stack(Some(&served.gke));
    let show = |file: &str| -> Value {
        let out = user.run(&["show", "--json", file]).expect(0).out;
        let plan: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(plan["format_version"], "1.2");
        for key in ["planned_values", "resource_drift", "output_changes", "dask_infra_version"] {
            assert!(plan.get(key).is_some(), "{key}");
        }
        plan
    };
    user.run(&["plan", "--out", "new"]).expect(0);
    let new = show("new");
    assert_eq!(denials(&new, 5.0), ["node_pool.default-pool: A100 only as spot", "too dear"]);
    let created = |change: &&Value| change["change"]["actions"] == json!(["create"]);
    assert_eq!(new["resource_changes"].as_array().unwrap().iter().filter(created).count(), 15);
    assert!(
        new["resource_changes"]
            .as_array()
            .unwrap()
            .iter()
            .filter(created)
            .all(|c| c["change"]["before"].is_null())
    );
    user.run(&["apply", "new"]).expect(0);

    user.edit("replicas = 2", "replicas = 1");
    user.run(&["plan", "--out", "fewer"]).expect(0);
    let fewer = show("fewer");
    assert!(denials(&fewer, 50.0).contains(&"dask_cluster.rapids-dask-cluster: 1 workers".to_owned()));
    let kept = |change: &&Value| change["change"]["actions"] == json!(["no-op"]);
    assert_eq!(fewer["resource_changes"].as_array().unwrap().iter().filter(kept).count(), 14);
    user.edit("base:25.04", "base:25.06");
    user.run(&["plan", "--out", "image"]).expect(0);
    let image = show("image");
    let find = |address: &str| {
        let changes = image["resource_changes"].as_array().unwrap();
        changes.iter().find(|change| change["address"] == address).unwrap().clone()
    };
    let replaced = find("dask_cluster.rapids-dask-cluster");
    assert_eq!(replaced["change"]["actions"], json!(["delete", "create"]));
    assert_eq!(replaced["action_reason"], "replace_because_cannot_update");
    let paths = replaced["change"]["replace_paths"].as_array().unwrap();
    assert!(paths.contains(&json!(["spec", "worker", "spec", "containers", 0, "image"])), "{paths:?}");
    let image_of =
        |side: &str| replaced["change"][side].pointer("/spec/worker/spec/containers/0/image").cloned();
    assert!(image_of("before").unwrap().as_str().unwrap().contains("25.04"));
    assert!(image_of("after").unwrap().as_str().unwrap().contains("25.06"));

    user.run(&["plan", "--destroy", "--out", "gone"]).expect(0);
    let gone = show("gone");
    assert_eq!(denials(&gone, 50.0).len(), 2, "both pools");
    assert_eq!(gone["planned_values"]["root_module"]["resources"], json!([]));
}

#[test]
fn what_cannot_be_applied_is_told_apart() {
    let served = Served::with(Options { scale: FAST, ..Options::default() });
    let user = User::with_ready_stack(Some(&served.gke));
    user.run(&["plan", "--out", "plan"]).expect(0);
    let path = |name: &str| user.path().join(name);
    let text = std::fs::read_to_string(path("plan")).unwrap();
    let write = |name: &str, text: &[u8]| std::fs::write(path(name), text).unwrap();
    write("empty", b"");
    write("half", &text.as_bytes()[..text.len() / 2]);
    write("zip", b"PK\x03\x04");
    write("words", b"hello");
    write("other", b"{\"a\":1}");
    write(
        "newer",
        text.replacen(&format!("\"tool\":\"{}\"", env!("CARGO_PKG_VERSION")), "\"tool\":\"99.0.0\"", 1)
            .as_bytes(),
    );
    write("changed", text.replace("us-central1-c", "us-central1-a").as_bytes());
    for (name, says) in [
        ("nowhere", "there is no such file"),
        ("empty", "it is empty"),
        ("half", "ends in the middle"),
        ("zip", "ZIP archive"),
        ("words", "it is no JSON"),
        ("other", "not what `plan --out` writes"),
        ("newer", "version 99.0.0 of dask-infra wrote it"),
        ("changed", "its content was changed after it was written"),
    ] {
        user.run(&["apply", name]).expect(1).says("DI0307").says(says);
        user.run(&["show", name]).expect(1).says(says);
        user.run(&["show", "--json", name]).expect(1).says(says);
    }
    user.edit("name = \"rapids\"", "name = \"another\"");
    user.run(&["apply", "plan"]).expect(1).says("is a plan of stack rapids");
    user.edit("name = \"another\"", "name = \"rapids\"");
    user.edit("us-central1-c", "us-central1-a");
    user.run(&["apply", "plan"]).expect(1).says("was made for").says("the stack file says");
    // Without a stack file the plan is enough.
    std::fs::remove_file(path("stack.toml")).unwrap();
    user.run(&["apply", "plan"]).expect(0).says("14 added");
    let hidden = std::fs::read_dir(user.path())
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with(".plan"));
    assert_eq!(hidden.count(), 0, "nothing is left beside a saved plan");
}

/// Passes everything on and keeps what was written.
struct Recorder {
    api: Connection,
    writes: Mutex<Vec<Request>>,
}

impl LiveApi for Recorder {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Value, ApiError>> {
        // What is sent again after a passing refusal counts once: only what was done is kept.
        async move {
            let writes = request.method != Method::Get;
            let answer = self.api.send(request.clone()).await;
            if writes && answer.is_ok() {
                self.writes.lock().unwrap().push(request);
            }
            answer
        }
        .boxed()
    }
}

/// One line for a write; places that are filled right before sending are left out.
fn line(method: Method, path: &str, body: Option<&Value>, late: &[String]) -> String {
    let mut body = body.cloned().unwrap_or_default();
    for hole in late {
        if let Value::Object(fields) = &mut body {
            fields.remove(hole);
        }
    }
    format!("{} {path} {body}", method.as_str())
}

fn planned_calls(plan: &Plan) -> Vec<(Call, String)> {
    let changes = plan.changes.iter().filter(|change| change.action != Action::Keep);
    let calls = changes.flat_map(|change| &change.steps).filter_map(|step| match step {
        Step::Call(call) if call.method != Method::Get => Some(call.clone()),
        Step::Call(_) | Step::Await(_) | Step::ReadLog { .. } | Step::RecordPass { .. } => None,
    });
    calls
        .map(|call| {
            let holes: Vec<String> = call.late.iter().map(|(path, _)| path.to_string()).collect();
            let line = line(call.method, &call.path, call.body.as_ref(), &holes);
            (call, line)
        })
        .collect()
}

/// xorshift64*: the same stacks in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % most
    }

    fn odds(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }
}

/// A stack, more or less of everything; `second` changes it.
fn generated(seed: u64, second: bool) -> String {
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut text = String::from(
        "[stack]\nname = \"gen\"\n\n[gke]\nproject = \"demo\"\nlocation = \"us-central1-c\"\n\n[cluster]\nname = \"gen\"\n",
    );
    let mut later = Dice(seed ^ 0xABCD_EF01 | 1);
    if dice.odds(2) {
        text += "labels = { team = \"a\" }\n";
    }
    if second && later.odds(2) {
        text = text.replace("team = \"a\"", "team = \"b\", more = \"c\"");
    }
    let pools = 1 + dice.below(3);
    for pool in 0..pools {
        let gpu = pool > 0 || dice.odds(3);
        let nodes = 1 + dice.below(3) + u64::from(second && later.odds(2));
        let machine = if gpu { "n1-standard-4" } else { "e2-standard-4" };
        if second && pool > 0 && later.odds(4) {
            continue;
        }
        text += &format!("\n[node_pool.p{pool}]\nmachine_type = \"{machine}\"\nnodes = {nodes}\n");
        if gpu {
            text += "accelerator = { type = \"nvidia-tesla-t4\", count = 1 }\n";
        }
        if dice.odds(2) {
            let value = if second && later.odds(2) { "y" } else { "x" };
            text += &format!("labels = {{ use = \"{value}\" }}\n");
        }
    }
    for namespace in 0..dice.below(3) {
        if second && later.odds(3) {
            continue;
        }
        let value = if second && later.odds(2) { "y" } else { "x" };
        text += &format!("\n[namespace.n{namespace}]\nlabels = {{ of = \"{value}\" }}\n");
    }
    if dice.odds(3) {
        return text;
    }
    text += "\n[dask_operator]\nversion = \"2026.3.0\"\n";
    for cluster in 0..dice.below(3) {
        if second && later.odds(3) {
            continue;
        }
        let image = if second && later.odds(3) { "img:2" } else { "img:1" };
        let replicas = 1 + dice.below(2) + u64::from(second && later.odds(2));
        text += &format!(
            "\n[dask_cluster.d{cluster}]\nimage = \"{image}\"\nworker = {{ replicas = {replicas} }}\n"
        );
    }
    text
}

fn lowered(text: &str) -> Lowered {
    let vars = std::collections::BTreeMap::new();
    let loaded = parse_text("stack.toml", text, &stack::Options { env: &|_| None, vars: &vars, helm: None });
    let loaded = loaded.unwrap_or_else(|failure| panic!("{text}\n{:?}", failure.diagnostics));
    lower(&loaded.stack, true)
}

async fn planned(api: &Recorder, lowered: &Lowered, mode: Mode) -> Plan {
    let Lowered { owner, target, resources, hourly, theirs } = lowered.clone();
    let world = read(api, &plan::wanted(&resources, &theirs, &target, &owner), 16).await.world;
    let (sources, world) = (&Sources::default(), &world);
    let (allowed, replace) = (Vec::new(), Vec::new());
    let made = plan::plan(Inputs {
        desired: resources,
        theirs,
        world,
        target,
        owner,
        mode,
        offline: false,
        allowed,
        replace,
        selection: plan::Selection::default(),
        retarget: false,
        when_idle: None,
        sources,
        hourly,
    });
    made.unwrap_or_else(|problems| panic!("{problems:?}"))
}

/// Applies and compares what was sent with what was planned; both without the record and its lock.
async fn sends_what_it_plans(api: &Arc<Recorder>, plan: &Plan, of: &str) -> usize {
    api.writes.lock().unwrap().clear();
    let (_sender, interrupt) = watch::channel(0);
    let shared: Arc<dyn LiveApi> = Arc::<Recorder>::clone(api);
    let summary = apply(plan, shared, ApplyOptions::new(interrupt), |_| {}).await;
    let failed: Vec<_> =
        summary.outcomes.iter().filter(|(_, outcome, _)| *outcome != Outcome::Done).collect();
    assert!(failed.is_empty(), "{of}: {failed:?}");
    let calls = planned_calls(plan);
    let own = |request: &&Request| !request.path.contains("/namespaces/dask-infra");
    let writes = api.writes.lock().unwrap();
    let mut sent: Vec<String> = writes
        .iter()
        .filter(own)
        .map(|request| {
            let planned =
                calls.iter().find(|(call, _)| call.path == request.path && call.method == request.method);
            let holes = planned.map(|(call, _)| call.late.iter().map(|(path, _)| path.to_string()).collect());
            let holes: Vec<String> = holes.unwrap_or_default();
            line(request.method, &request.path, request.body.as_ref(), &holes)
        })
        .collect();
    let mut wanted: Vec<String> = calls.into_iter().map(|(_, line)| line).collect();
    sent.sort();
    wanted.sort();
    assert_eq!(sent, wanted, "{of}");
    wanted.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_sends_what_the_plan_holds_and_nothing_else() {
    let scale = Scale { time_scale: 6000.0 };
    let mut calls = 0;
    for seed in 1..=8 {
        let sandbox = Sandbox::open(Options { scale, ..Options::default() }).unwrap();
        let clusters = sandbox.clone();
        let in_process: InProcess = Arc::new(move |endpoint| {
            clusters.cluster_by_endpoint(endpoint).map(|id| clusters.kubernetes_router(&id))
        });
        let (first, second) = (lowered(&generated(seed, false)), lowered(&generated(seed, true)));
        let connection = Connection::new(Connect {
            gke: GkeAccess::InProcess(sandbox.gke_router()),
            cluster: first.target.gke.clone(),
            kubernetes: None,
            in_process_kubernetes: Some(in_process),
        });
        let running = tokio::spawn(sandbox.run(std::future::pending()));
        let api = Arc::new(Recorder { api: connection, writes: Mutex::default() });
        for (step, lowered, mode) in [
            ("made", &first, Mode::Apply),
            ("changed", &second, Mode::Apply),
            ("destroyed", &second, Mode::Destroy),
        ] {
            let plan = planned(&api, lowered, mode).await;
            calls += sends_what_it_plans(&api, &plan, &format!("stack {seed}, {step}")).await;
            let again = planned(&api, lowered, mode).await;
            assert!(again.is_empty(), "stack {seed}, {step}: the second plan is not empty");
        }
        running.abort();
    }
    assert!(calls > 100, "{calls} calls are too few to say anything");
}

/// Two applies at the same time: the second is refused and named the first; a killed one locks nobody out.
#[test]
fn a_second_apply_at_the_same_time_is_refused() {
    let served = Served::with(Options { scale: FAST, ..Options::default() });
    let user = User::with_ready_stack(Some(&served.gke));
    // More workers than the pool has GPUs: the first apply waits for them until it is killed.
    user.edit("replicas = 2", "replicas = 20");
    let mut first = user
        .command(&["apply", "--auto-approve"])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(first.stderr.take().unwrap()));
    let waits =
        |line: std::io::Result<String>| line.unwrap().starts_with("dask_cluster.rapids-dask-cluster: creat");
    assert!(lines.any(waits), "it ended early");
    user.edit("replicas = 20", "replicas = 2");
    user.run(&["apply", "--auto-approve"])
        .expect(5)
        .says("DI0411")
        .says(&format!("process {}", first.id()))
        .says("nothing was done")
        .says("--force-unlock");
    first.kill().unwrap();
    first.wait().unwrap();
    user.run(&["apply", "--auto-approve"]).expect(0).says("Apply complete");
    user.run(&["plan", "--detailed-exitcode"]).expect(0);
}
