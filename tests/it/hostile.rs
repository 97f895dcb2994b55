//! Hostile input: every parser and every reader, fed with what seeds become when they are cut, repeated, spliced and
//! mixed with what breaks parsers and terminals. No panic, no hang, no message without a place, and nothing that steers
//! a terminal comes through to a stream. `DASK_INFRA_CASES=N` is the number of inputs for each of [`PARSERS`].

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use dask_infra::address::{Address, FieldPath};
use dask_infra::diag::Diagnostic;
use dask_infra::import::{self, Found, Place};
use dask_infra::kinds::{self, KINDS};
use dask_infra::live::connection::{Connection, InProcess, Options as Connect};
use dask_infra::live::gke::GkeAccess;
use dask_infra::live::{ApiError, LiveApi, Request, read};
use dask_infra::plan::{self, Inputs, Mode, Plan, diff, file, same};
use dask_infra::report::human::plan_text;
use dask_infra::report::{Human, Next, Reporter as _, Screen, Stream, View, document};
use dask_infra::resource::{Await, Effect, Identity, Method, ObjectId, Owner, Until};
use dask_infra::sandbox::faults::file as faults;
use dask_infra::sandbox::{Options, Sandbox, Scale};
use dask_infra::secrets;
use dask_infra::source::Sources;
use dask_infra::stack::effective::Effective;
use dask_infra::stack::lower::{Lowered, check, lower};
use dask_infra::stack::{Options as Load, parse_in};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::golden::root;
use crate::served::User;

/// A parser or reader: what it reads when all is well, and how it is fed. What a feed gives back is a complaint.
struct Parser {
    name: &'static str,
    seeds: fn() -> Vec<Vec<u8>>,
    /// Whether values are changed rather than bytes: most broken JSON tells nothing about a reader of JSON.
    json: bool,
    feed: fn(&[u8], &Path) -> Result<(), String>,
}

const PARSERS: &[Parser] = &[
    Parser { name: "stack (TOML)", seeds: stacks, json: false, feed: stack },
    Parser { name: "manifest (YAML)", seeds: manifests, json: false, feed: manifest },
    Parser { name: "field paths, addresses", seeds: paths, json: false, feed: path },
    Parser { name: "quantities, flags, faults", seeds: words, json: false, feed: word },
    Parser { name: "secrets in texts", seeds: texts, json: false, feed: text },
    Parser { name: "comparison", seeds: pairs, json: true, feed: compare },
    Parser { name: "saved plan", seeds: plans, json: true, feed: saved },
    Parser { name: "saved plan, bytes", seeds: plans, json: false, feed: saved_bytes },
    Parser { name: "answers, records", seeds: answers, json: true, feed: answer },
    Parser { name: "answers, readiness", seeds: objects, json: true, feed: judge },
    Parser { name: "answers, import", seeds: objects, json: true, feed: imported },
    Parser { name: "sandbox folder", seeds: folders, json: false, feed: folder },
];

/// xorshift64*: the same inputs for the same seed.
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        usize::try_from(number).unwrap() % most.max(1)
    }

    fn of<'t, T>(&mut self, from: &'t [T]) -> &'t T {
        &from[self.below(from.len())]
    }
}

/// What parsers, terminals and readers of JSON stumble over.
const PIECES: [&str; 46] = [
    "[",
    "]",
    "{",
    "}",
    "[[",
    "]]",
    "\"",
    "'",
    "\"\"\"",
    "\\",
    ".",
    "..",
    "=",
    ":",
    "- ",
    "\n",
    "\r\n",
    "\t",
    "&a ",
    "*a ",
    "<<: ",
    "!!binary ",
    "|\n",
    ">\n",
    "---\n",
    "#",
    "${",
    "${var.x}",
    "${env.X}",
    "$${",
    "null",
    "true",
    "-1",
    "1e999",
    "18446744073709551616",
    "0x",
    "NaN",
    "\u{0}",
    "\u{1b}[2J",
    "\u{9b}31m",
    "\u{202e}",
    "\u{200b}",
    "\u{2028}",
    "\u{feff}",
    "é",
    "\u{10ffff}",
];

fn mutated(seed: &[u8], others: &[Vec<u8>], dice: &mut Dice) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=dice.below(4) {
        let at = dice.below(bytes.len() + 1);
        let end = (at + dice.below(40)).min(bytes.len());
        match dice.below(9) {
            0 => drop(bytes.drain(at..end)),
            1 => bytes.truncate(at),
            2 => {
                let piece = dice.of(&PIECES).as_bytes().to_vec();
                bytes.splice(at..at, piece);
            }
            3 => {
                let piece = dice.of(&PIECES).as_bytes().repeat(1 + dice.below(300));
                bytes.splice(at..at, piece);
            }
            4 => {
                let piece = bytes[at..end].to_vec().repeat(1 + dice.below(8));
                bytes.splice(at..at, piece);
            }
            5 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << dice.below(8);
                }
            }
            6 => {
                let other = dice.of(others);
                let from = dice.below(other.len() + 1);
                let to = (from + dice.below(200)).min(other.len());
                bytes.splice(at..end, other[from..to].to_vec());
            }
            7 => {
                let piece = dice.of(&PIECES).as_bytes().to_vec();
                bytes.splice(at..end, piece);
            }
            _ => {
                // A line somewhere else.
                let text = String::from_utf8_lossy(&bytes).into_owned();
                let mut lines: Vec<&str> = text.split('\n').collect();
                let line = lines.remove(dice.below(lines.len()));
                lines.insert(dice.below(lines.len() + 1), line);
                bytes = lines.join("\n").into_bytes();
            }
        }
    }
    bytes
}

fn odd(dice: &mut Dice) -> Value {
    let deep = |depth: usize| (0..depth).fold(json!(1), |inner, _| json!([inner]));
    match dice.below(14) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(-1),
        3 => json!(u64::MAX),
        4 => json!(1e300),
        5 => json!(""),
        6 => json!({}),
        7 => json!([]),
        8 => json!([null, {}, [], "", 0]),
        9 => deep(60),
        10 => json!("x".repeat(5000)),
        _ => json!(format!("a{}b", dice.of(&PIECES))),
    }
}

fn changed(value: &mut Value, dice: &mut Dice) {
    let keys: Vec<String> = value.as_object().map(|all| all.keys().cloned().collect()).unwrap_or_default();
    let length = value.as_array().map_or(keys.len(), Vec::len);
    if length == 0 || dice.below(12) == 0 {
        *value = odd(dice);
        return;
    }
    let at = dice.below(length);
    match (value, dice.below(10)) {
        (Value::Object(table), 0) => drop(table.remove(&keys[at])),
        (Value::Object(table), 1) => {
            let key = format!("{}{}", keys[at], dice.of(&PIECES));
            table.insert(key, odd(dice));
        }
        (Value::Object(table), _) => changed(&mut table[&keys[at]], dice),
        (Value::Array(items), 0) => drop(items.remove(at)),
        (Value::Array(items), 1) => items.push(items[at].clone()),
        (Value::Array(items), _) => changed(&mut items[at], dice),
        _ => {}
    }
}

/// What a person would see, through the one gate; and that nothing in it steers a terminal.
fn shown(say: impl FnOnce(&mut Human)) -> Result<String, String> {
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);
    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let kept = Kept::default();
    let stream = || Stream::plain(Box::new(kept.clone()), 100);
    let mut human =
        Human::new(Screen::new(stream(), stream()), plan_text::Detail::Objects, "dask-infra".into());
    say(&mut human);
    let text =
        String::from_utf8(kept.0.lock().unwrap().clone()).map_err(|_| "output is not text".to_owned())?;
    let steers = |c: char| {
        (c.is_control() && !matches!(c, '\n' | '\t'))
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200b}'..='\u{200f}' | '\u{2028}' | '\u{2029}')
    };
    match text.chars().find(|c| steers(*c)) {
        Some(c) => Err(format!("{c:?} reaches the terminal: {text:?}")),
        None => Ok(text),
    }
}

fn told(diagnostics: &[Diagnostic], sources: &Sources) -> Result<(), String> {
    let text = shown(|human| human.diagnostics(diagnostics, sources))?;
    let longest = text.lines().map(str::len).max().unwrap_or_default();
    if text.len() > 400_000 || longest > 20_000 {
        return Err(format!("{} bytes, {longest} in a line, are printed", text.len()));
    }
    let nowhere = |told: &&Diagnostic| told.location(sources).is_none() && told.address().is_none();
    diagnostics
        .iter()
        .find(nowhere)
        .map_or(Ok(()), |told| Err(format!("no place: {} {}", told.code, told.message)))
}

fn env(name: &str) -> Option<String> {
    ["GOOGLE_CLOUD_PROJECT", "HF_TOKEN", "X"].contains(&name).then(|| format!("value of {name}"))
}

fn load(folder: &Path, text: &str) -> Result<(), String> {
    let vars = BTreeMap::new();
    match parse_in(folder, "stack.toml", text, &Load { env: &env, vars: &vars, helm: None }) {
        Err(failure) => told(&failure.diagnostics, &failure.sources),
        Ok(loaded) => {
            told(&loaded.warnings, &loaded.sources)?;
            let lowered = lower(&loaded.stack, true);
            told(&check(&lowered.resources, &loaded.sources), &loaded.sources)?;
            let effective = Effective::new(&loaded.stack, &loaded.sources, &lowered);
            if effective.toml(true).is_empty() { Err("nothing is effective".into()) } else { Ok(()) }
        }
    }
}

fn files(folder: &Path, ending: &str) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    for name in names {
        if name.is_dir() {
            found.extend(files(&name, ending));
        } else if name.extension().is_some_and(|end| end == ending)
            && fs::metadata(&name).unwrap().len() < 6000
        {
            found.push(fs::read(&name).unwrap());
        }
    }
    found
}

fn stacks() -> Vec<Vec<u8>> {
    let cases = files(&root().join("tests/cases"), "toml");
    files(&root().join("stacks"), "toml").into_iter().chain(cases.into_iter().step_by(4)).collect()
}

fn stack(bytes: &[u8], folder: &Path) -> Result<(), String> {
    std::str::from_utf8(bytes).map_or(Ok(()), |text| load(folder, text))
}

fn manifests() -> Vec<Vec<u8>> {
    files(&root().join("tests/cases"), "yaml")
}

fn manifest(bytes: &[u8], folder: &Path) -> Result<(), String> {
    fs::write(folder.join("m.yaml"), bytes).unwrap();
    load(
        folder,
        "[stack]\nname = \"m\"\n\n[kubernetes]\ncontext = \"kind\"\n\n[manifest.m]\nfile = \"m.yaml\"\n",
    )
}

fn paths() -> Vec<Vec<u8>> {
    [
        "node_pool.a100.labels.\"a/b\"",
        "spec.containers[0].env[12].value",
        "dask_cluster.c/Service/default/x",
        "",
        "a[b",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

fn path(bytes: &[u8], _: &Path) -> Result<(), String> {
    let text = String::from_utf8_lossy(bytes);
    let path: FieldPath = text.parse().unwrap();
    let again: FieldPath = path.to_string().parse().unwrap();
    let address = Address::new(text.clone());
    if !address.ends_with(&text) || !text.starts_with(address.section()) {
        return Err("an address does not end with itself".into());
    }
    if again == path { Ok(()) } else { Err(format!("{path} does not come back")) }
}

fn words() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> =
        ["500m", "1.5Gi", "1e3", "-0.1k", "12E", "us-central1-c:nvidia-tesla-t4:2", "us-central1:a100=3"]
            .map(|text| text.as_bytes().to_vec())
            .to_vec();
    seeds.push(b"[[stockout]]\nlocation = \"us-central1-c\"\nmachine_type = \"a2-highgpu-1g\"\nfor = \"10m\"\n\n[[request]]\npath = \"x\"\nstatus = 503\n".to_vec());
    seeds
}

fn word(bytes: &[u8], _: &Path) -> Result<(), String> {
    let text = String::from_utf8_lossy(bytes);
    let number = same::quantity(&json!(text));
    if number.is_some() && text.trim().is_empty() {
        return Err("an empty quantity is a number".into());
    }
    let _ = (faults::stockout_flag(&text), faults::quota_flag(&text));
    match faults::parse(&text) {
        Ok(_) => Ok(()),
        Err(problems) => {
            let outside = problems.iter().find(|problem| problem.at.end > text.len());
            outside.map_or(Ok(()), |problem| Err(format!("{:?} is outside of the file", problem.at)))
        }
    }
}

fn texts() -> Vec<Vec<u8>> {
    let mut seeds = files(&root().join("tests/cases/diag-literal-secrets"), "toml");
    seeds.extend(files(&root().join("tests/cases/diag-literal-secrets-manifest"), "yaml"));
    seeds.push(br#"{"env":[{"name":"DB_PASSWORD","value":"abc"}],"url":"https://a:b@c/?token=d","x":"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc"}"#.to_vec());
    seeds
}

fn text(bytes: &[u8], _: &Path) -> Result<(), String> {
    let text = String::from_utf8_lossy(bytes);
    if secrets::starred(&text, &secrets::Secrets::default()).len() != text.len() {
        return Err("stars take another room".into());
    }
    let once = secrets::masked(&json!({ "a": [text] }));
    if secrets::masked(&once) != once
        && secrets::found_in(&once).iter().any(|found| !found.contains(secrets::HIDDEN))
    {
        return Err(format!("a second look hides more: {once}"));
    }
    Ok(())
}

fn pairs() -> Vec<Vec<u8>> {
    let wanted = json!({ "metadata": { "name": "w", "labels": { "a": "b" } }, "spec": { "replicas": 1, "template": { "spec": {
        "containers": [{ "name": "a", "image": "x", "args": ["--token", "y"], "env": [{ "name": "A_TOKEN", "value": "z" }],
            "ports": [{ "containerPort": 80 }], "resources": { "limits": { "cpu": "1", "memory": "1Gi" } } }] } } } });
    let mut live = wanted.clone();
    live["spec"]["replicas"] = json!(3);
    live["metadata"]["managedFields"] = json!([
        { "manager": "dask-infra/s", "operation": "Apply", "fieldsV1": { "f:spec": { "f:replicas": {}, "f:paused": {}, "f:template": {
            "f:spec": { "f:containers": { r#"k:{"name":"a"}"#: { ".": {}, "f:image": {}, "f:args": {},
                "f:env": { r#"k:{"name":"A_TOKEN"}"#: { "f:value": {} } },
                "f:ports": { r#"k:{"containerPort":80,"protocol":"TCP"}"#: { "f:containerPort": {} } } } } } } } } },
        { "manager": "kubectl", "operation": "Update", "time": "2026-01-01T00:00:00Z", "fieldsV1": { "f:spec": { "f:replicas": {} } } },
    ]);
    vec![json!({ "wanted": wanted, "live": live, "set": { "f": ["v:\"a\""] } }).to_string().into_bytes()]
}

fn compare(bytes: &[u8], _: &Path) -> Result<(), String> {
    let Ok(value) = serde_json::from_slice::<Value>(bytes) else { return Ok(()) };
    for schema in [dask_infra::schema::builtin("apps", "v1", "Deployment"), None] {
        let effect = |_: &FieldPath| (Effect::InPlace, None);
        let compared =
            diff::compare(&value["wanted"], &value["live"], "dask-infra/s", schema.as_ref(), effect);
        for change in &compared.changes {
            if change.before == change.after && change.before.is_some() {
                return Err(format!("{} differs from itself: {:?}", change.path, change.before));
            }
        }
    }
    Ok(())
}

static PLAN: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let user = User::with_ready_stack(None);
    user.run(&["--sandbox", "plan", "--out", "p"]).expect(0);
    fs::read(user.path().join("p")).unwrap()
});

fn plans() -> Vec<Vec<u8>> {
    vec![PLAN.clone()]
}

fn look_at(plan: &Plan) -> Result<(), String> {
    let view = View { sources: None, next: Next::ApplyFile(Path::new("p")) };
    shown(|human| human.plan(plan, &view))?;
    let _ = (document::text(plan), file::moved(plan, plan));
    Ok(())
}

/// Values are changed, and the digest is made to fit.
fn saved(bytes: &[u8], folder: &Path) -> Result<(), String> {
    let Ok(mut value) = serde_json::from_slice::<Value>(bytes) else { return Ok(()) };
    let Ok(plan) = serde_json::from_value::<Plan>(value["plan"].clone()) else { return Ok(()) };
    if !value.is_object() {
        return Ok(());
    }
    value["digest"] = json!(blake3::hash(&serde_json::to_vec(&plan).unwrap()).to_hex().to_string());
    saved_bytes(value.to_string().as_bytes(), folder)
}

fn saved_bytes(bytes: &[u8], folder: &Path) -> Result<(), String> {
    let path = folder.join("p");
    fs::write(&path, bytes).unwrap();
    match file::load(&path) {
        Ok(plan) => look_at(&plan),
        Err(why) => {
            if !why.message.contains("/p") {
                return Err(format!("no place: {}", why.message));
            }
            shown(|human| human.diagnostics(&[why], &Sources::default())).map(drop)
        }
    }
}

/// A stack that was applied, and what the servers say when it is read.
struct World {
    lowered: Lowered,
    answers: Value,
}

/// Keeps what is answered.
struct Recorder {
    api: Arc<dyn LiveApi>,
    kept: Mutex<BTreeMap<String, Value>>,
}

fn key(request: &Request) -> String {
    format!("{:?} {}", request.api, request.path)
}

impl LiveApi for Recorder {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Value, ApiError>> {
        async move {
            let (key, reads) = (key(&request), request.method == Method::Get);
            let answer = self.api.send(request).await;
            if let (true, Ok(value)) = (reads, &answer) {
                self.kept.lock().unwrap().insert(key, value.clone());
            }
            answer
        }
        .boxed()
    }
}

/// Answers what it was given.
struct Fake(Value);

impl LiveApi for Fake {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Value, ApiError>> {
        let found = self.0.get(key(&request)).cloned();
        let none = ApiError {
            class: dask_infra::live::Class::NotFound,
            status: Some(404),
            request: request.title(),
            message: "not found".into(),
            body: None,
        };
        std::future::ready(found.ok_or(none)).boxed()
    }
}

static WORLD: LazyLock<World> = LazyLock::new(|| {
    let text = "[stack]\nname = \"h\"\n\n[gke]\nproject = \"demo\"\nlocation = \"us-central1-c\"\n\n[cluster]\nname = \"h\"\n\n\
                [node_pool.p]\nmachine_type = \"n1-standard-4\"\naccelerator = \"nvidia-tesla-t4\"\n\n[namespace.n]\n\n\
                [dask_operator]\nversion = \"2026.3.0\"\n\n[dask_cluster.d]\nimage = \"i:1\"\nnamespace = \"n\"\nworker = { replicas = 1 }\n";
    let vars = BTreeMap::new();
    let loaded =
        parse_in(Path::new(""), "stack.toml", text, &Load { env: &env, vars: &vars, helm: None }).unwrap();
    let lowered = lower(&loaded.stack, true);
    let options = Options { scale: Scale { time_scale: 6000.0 }, ..Options::default() };
    let sandbox = Sandbox::open(options).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let answers = runtime.block_on(async {
        let clusters = sandbox.clone();
        let in_process: InProcess = Arc::new(move |endpoint| {
            clusters.cluster_by_endpoint(endpoint).map(|id| clusters.kubernetes_router(&id))
        });
        let connection = Connection::new(Connect {
            gke: GkeAccess::InProcess(sandbox.gke_router()),
            cluster: lowered.target.gke.clone(),
            kubernetes: None,
            in_process_kubernetes: Some(in_process),
        });
        let running = tokio::spawn(sandbox.run(std::future::pending()));
        let api = Arc::new(Recorder { api: Arc::new(connection), kept: Mutex::default() });
        let made = planned(&*api, &lowered).await.unwrap();
        let (_sender, interrupt) = tokio::sync::watch::channel(0);
        let shared: Arc<dyn LiveApi> = Arc::<Recorder>::clone(&api);
        dask_infra::apply::apply(&made, shared, dask_infra::apply::ApplyOptions::new(interrupt), |_| {})
            .await;
        api.kept.lock().unwrap().clear();
        planned(&*api, &lowered).await.unwrap();
        running.abort();
        let kept = api.kept.lock().unwrap().clone();
        serde_json::to_value(kept).unwrap()
    });
    World { lowered, answers }
});

async fn planned(api: &dyn LiveApi, lowered: &Lowered) -> Result<Plan, Vec<Diagnostic>> {
    let Lowered { owner, target, resources, hourly: _, theirs } = lowered;
    let world = read(api, &plan::wanted(resources, theirs, target, owner), 4).await.world;
    plan::plan(Inputs::of(lowered.clone(), Mode::Apply, &world, &Sources::default()))
}

fn answers() -> Vec<Vec<u8>> {
    vec![WORLD.answers.to_string().into_bytes()]
}

fn answer(bytes: &[u8], _: &Path) -> Result<(), String> {
    let Ok(value) = serde_json::from_slice::<Value>(bytes) else { return Ok(()) };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    match runtime.block_on(planned(&Fake(value), &WORLD.lowered)) {
        Ok(plan) => look_at(&plan),
        Err(problems) => shown(|human| human.diagnostics(&problems, &Sources::default())).map(drop),
    }
}

/// Everything that was answered, one by one.
fn objects() -> Vec<Vec<u8>> {
    let mut found: Vec<&Value> = Vec::new();
    for answer in WORLD.answers.as_object().unwrap().values() {
        match answer["items"].as_array() {
            Some(items) => found.extend(items),
            None => found.push(answer),
        }
    }
    found.iter().map(|value| value.to_string().into_bytes()).collect()
}

fn identity(value: &Value) -> Identity {
    let text = |value: &Value| value.as_str().unwrap_or("x").to_owned();
    let api_version = text(&value["apiVersion"]);
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let gvk = dask_infra::resource::Gvk {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: text(&value["kind"]),
        plural: "things".to_owned(),
    };
    let namespace = value["metadata"]["namespace"].as_str().map(str::to_owned);
    Identity::Object(ObjectId { gvk, namespace, name: text(&value["metadata"]["name"]) })
}

fn judge(bytes: &[u8], _: &Path) -> Result<(), String> {
    let Ok(value) = serde_json::from_slice::<Value>(bytes) else { return Ok(()) };
    let list = json!({ "items": [value, value["status"], null] });
    for kind in KINDS {
        for until in [Until::Ready, Until::Gone, Until::Idle] {
            let facts = json!({ "replicas": 1, "nodes": 1, "gpus": value["spec"] });
            let wait =
                Await { kind: kind.name.into(), identity: identity(&value), until, facts, deadline: 60 };
            let queries = (kind.queries)(&wait);
            let found: Vec<Value> = (0..queries.len().max(1))
                .map(|place| if place % 2 == 0 { value.clone() } else { list.clone() })
                .collect();
            (kind.judge)(&wait, &found);
            (kind.judge)(&wait, &[]);
        }
    }
    let _ = (kinds::find("x"), secrets::masked(&value));
    Ok(())
}

fn imported(bytes: &[u8], _: &Path) -> Result<(), String> {
    let Ok(value) = serde_json::from_slice::<Value>(bytes) else { return Ok(()) };
    let mut found = Found {
        place: Place::Kubeconfig { path: None, context: Some("kind".into()) },
        cluster: Value::Null,
        pools: BTreeMap::new(),
        sizes: BTreeMap::new(),
        objects: BTreeMap::new(),
        unread: Vec::new(),
    };
    let Identity::Object(object) = identity(&value) else { return Ok(()) };
    found.objects.insert(object, value.clone());
    if value["metadata"].is_null() {
        found.place = Place::Gke(WORLD.lowered.target.gke.clone().unwrap());
        found.pools.insert("p".into(), value.clone());
        found.cluster = value;
    }
    let text = import::import(&found, &Owner { stack: "h".into(), id: "h".into() }).text;
    load(Path::new(""), &text).map_err(|why| format!("{why}\n{text}"))
}

static FOLDER: LazyLock<BTreeMap<String, Vec<u8>>> = LazyLock::new(|| {
    let user = User::with_ready_stack(None);
    user.run(&["--sandbox=box", "plan"]).expect(0);
    let entries = fs::read_dir(user.path().join("box")).unwrap().map(|entry| entry.unwrap().path());
    let entries = entries.filter(|path| path.is_file());
    entries
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(&path).unwrap()))
        .collect()
});

/// The number of a file, and its bytes.
fn folders() -> Vec<Vec<u8>> {
    FOLDER
        .values()
        .enumerate()
        .map(|(place, bytes)| [&[u8::try_from(place).unwrap()], bytes.as_slice()].concat())
        .collect()
}

fn folder(bytes: &[u8], scratch: &Path) -> Result<(), String> {
    let dir = scratch.join("box");
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir(&dir).unwrap();
    let which = usize::from(bytes.first().copied().unwrap_or_default()) % FOLDER.len();
    for (place, (name, content)) in FOLDER.iter().enumerate() {
        let content = if place == which { bytes.get(1..).unwrap_or_default() } else { content };
        fs::write(dir.join(name), content).unwrap();
    }
    match Sandbox::open(Options { dir: Some(dir.clone()), ..Options::default() }) {
        Ok(sandbox) => {
            drop(sandbox.clusters());
            Ok(())
        }
        Err(error) if error.to_string().is_empty() => Err("an error without words".into()),
        Err(_) => Ok(()),
    }
}

/// What an input did: nothing, a complaint, or a panic.
fn fed(parser: &Parser, input: &[u8], scratch: &Path) -> Option<String> {
    match catch_unwind(AssertUnwindSafe(|| (parser.feed)(input, scratch))) {
        Ok(said) => said.err(),
        Err(panic) => {
            let words = panic.downcast_ref::<String>().cloned();
            let words = words.or_else(|| panic.downcast_ref::<&str>().map(|words| (*words).to_owned()));
            Some(format!("panic: {}", words.unwrap_or_default()))
        }
    }
}

/// The shortest that still does it, by leaving out ever smaller pieces.
fn shrunk(parser: &Parser, input: Vec<u8>, scratch: &Path) -> Vec<u8> {
    let mut best = input;
    let mut size = best.len() / 2;
    let mut tries = 400;
    while size > 0 && tries > 0 {
        let mut at = 0;
        while at < best.len() && tries > 0 {
            tries -= 1;
            let mut less = best.clone();
            less.drain(at..(at + size).min(best.len()));
            if fed(parser, &less, scratch).is_some() { best = less } else { at += size }
        }
        size /= 2;
    }
    best
}

/// Longer than this no input takes, on any machine that runs the tests; an endless loop takes longer.
const HANGS: Duration = Duration::from_secs(240);

fn number(name: &str, or: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(or)
}

#[test]
fn no_input_breaks_a_parser_or_a_terminal() {
    let cases = number("DASK_INFRA_CASES", 60);
    let first = number("DASK_INFRA_SEED", 1);
    let only = std::env::var("DASK_INFRA_PARSER").unwrap_or_default();
    let mut found = Vec::new();
    println!("{:<28} {:>8} {:>7} {:>6} {:>11}", "parser", "inputs", "panics", "hangs", "complaints");
    for parser in PARSERS.iter().filter(|parser| parser.name.contains(&only)) {
        let (say, heard) = channel::<(usize, Option<(String, Vec<u8>)>)>();
        std::thread::spawn(move || {
            let scratch = tempfile::tempdir().unwrap();
            let seeds = (parser.seeds)();
            let mut complaints = 0;
            for case in 0..cases {
                let mut dice = Dice::new((first + case) as u64);
                let seed = dice.of(&seeds).clone();
                // The seeds themselves come first.
                let input = match seeds.get(case) {
                    Some(seed) => seed.clone(),
                    None if parser.json => {
                        let mut value: Value = serde_json::from_slice(&seed).unwrap();
                        for _ in 0..=dice.below(3) {
                            changed(&mut value, &mut dice);
                        }
                        value.to_string().into_bytes()
                    }
                    None => mutated(&seed, &seeds, &mut dice),
                };
                let told = fed(parser, &input, scratch.path());
                complaints += usize::from(told.is_some());
                let told = told.map(|why| match complaints {
                    0..=3 => (why, shrunk(parser, input, scratch.path())),
                    _ => (why, input),
                });
                if say.send((case, told)).is_err() {
                    return;
                }
            }
        });
        let (mut inputs, mut panics, mut complaints, mut hangs) = (0, 0, 0, 0);
        loop {
            match heard.recv_timeout(HANGS) {
                Ok((case, told)) => {
                    inputs += 1;
                    let Some((why, input)) = told else { continue };
                    if why.starts_with("panic") {
                        panics += 1;
                    } else {
                        complaints += 1;
                    }
                    if panics + complaints <= 3 {
                        let input = String::from_utf8_lossy(&input).chars().take(2000).collect::<String>();
                        found.push(format!("{} (seed {}): {why}\n{input:?}", parser.name, first + case));
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    hangs += 1;
                    found.push(format!("{} (seed {}): hangs", parser.name, first + inputs));
                    break;
                }
            }
        }
        println!("{:<28} {inputs:>8} {panics:>7} {hangs:>6} {complaints:>11}", parser.name);
        if inputs < cases && hangs == 0 {
            found.push(format!("{}: the seeds could not be made", parser.name));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n\n"));
}
