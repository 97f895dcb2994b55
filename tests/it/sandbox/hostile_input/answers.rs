//! Input from servers and from the program's own files: answers, records, saved plans.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex};

use apply::{ApplyOptions, Outcome};
use dask_infra::cli::plan_file;
use dask_infra::report::human::printable;
use dask_infra::report::{Next, Reporter as _, View, document};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use import::{Found, Place};
use live::answer::Answer;
use live::retry::RetryPolicy;
use live::shape::Media;
use live::{ApiError, LiveApi, Request, read, record};
use model::diag::{Code, Diagnostic};
use model::record::Record;
use model::resource::{Api, Await, Endpoint, Facts, Identity, KindId, ObjectId, Owner, Until};
use model::secrets;
use model::source::Sources;
use plan::{Inputs, Mode, Plan};
use serde_json::{Value, json};
use stack::lower::{Lowered, lower};
use stack::{Options as Load, parse_in};

use super::texts::{env, load};
use super::{check_terminal_safe, rendered_output};
use crate::props::harness::Harness;

/// As they are saved: everything made, changed and replaced, and taken away.
pub fn plans() -> Vec<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p");
    let saved = |plan: &Plan| {
        plan_file::save(&path, plan).unwrap();
        fs::read(&path).unwrap()
    };
    WORLD.plans.iter().map(saved).collect()
}

fn look_at(plan: &Plan) -> Result<(), String> {
    let view = View { sources: None, next: Next::ApplyFile(Path::new("p")) };
    rendered_output(|human| human.plan(plan, &view))?;
    check_terminal_safe(&printable(&document::text(plan)))?;
    let moved = plan::file::stale_changes(plan, plan);
    if moved.is_empty() { Ok(()) } else { Err(format!("moved from itself: {moved:?}")) }
}

/// Values are changed, and the digest is made to fit.
pub fn saved(bytes: &[u8], folder: &Path) -> Result<(), String> {
    let Ok(mut value) = serde_json::from_slice::<Value>(bytes) else { return Ok(()) };
    let Ok(plan) = serde_json::from_value::<Plan>(value["plan"].clone()) else { return Ok(()) };
    if !value.is_object() {
        return Ok(());
    }
    value["digest"] = json!(blake3::hash(&serde_json::to_vec(&plan).unwrap()).to_hex().to_string());
    saved_bytes(value.to_string().as_bytes(), folder)
}

pub fn saved_bytes(bytes: &[u8], folder: &Path) -> Result<(), String> {
    let path = folder.join("p");
    fs::write(&path, bytes).unwrap();
    match plan_file::load(&path) {
        Ok(plan) => look_at(&plan),
        Err(why) => {
            if !why.message.contains("/p") {
                return Err(format!("no place: {}", why.message));
            }
            rendered_output(|human| human.diagnostics(&[why], &Sources::default())).map(drop)
        }
    }
}

/// A stack that was applied, and what the servers say when it is read.
struct World {
    lowered: Lowered,
    answers: Value,
    /// Requests and their answers, each once.
    asked: Vec<(Request, Value)>,
    plans: Vec<Plan>,
}

/// Keeps what is answered.
struct Recorder {
    api: Arc<dyn LiveApi>,
    kept: Mutex<BTreeMap<String, (Request, Value)>>,
}

impl Recorder {
    fn taken(&self) -> BTreeMap<String, (Request, Value)> {
        std::mem::take(&mut self.kept.lock().unwrap())
    }
}

fn key(request: &Request) -> String {
    format!("{:?} {}", request.api, request.path)
}

impl LiveApi for Recorder {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Value, ApiError>> {
        async move {
            let answer = self.api.send(request.clone()).await;
            if let Ok(value) = &answer {
                let name = format!("{} {}", request.method.as_str(), key(&request));
                self.kept.lock().unwrap().insert(name, (request, value.clone()));
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
            class: live::ErrorClass::NotFound,
            status: Some(404),
            request: request.title(),
            message: "not found".into(),
            body: None,
        };
        std::future::ready(found.ok_or(none)).boxed()
    }
}

const STACK: &str = "[stack]\nname = \"h\"\n\n[gke]\nproject = \"demo\"\nlocation = \"us-central1-c\"\n\n[cluster]\nname = \"h\"\n\n\
    [node_pool.p]\nmachine_type = \"n1-standard-4\"\naccelerator = \"nvidia-tesla-t4\"\n\n[namespace.n]\n\n\
    [dask_operator]\nversion = \"2026.3.0\"\n\n[dask_cluster.d]\nimage = \"i:1\"\nnamespace = \"n\"\nworker = { replicas = 1 }\n";

/// Edits of the stack that change, replace, add and remove.
const EDITS: [(&str, &str); 4] = [
    ("n1-standard-4", "n1-standard-8"),
    ("[namespace.n]\n", "[namespace.n]\nlabels = { a = \"b\" }\n\n[namespace.m]\n"),
    ("image = \"i:1\"", "image = \"i:2\""),
    ("replicas = 1", "replicas = 2"),
];

/// A stack as resources. The definitions of the Dask operator are cut down: 300 kB of schema that no reader looks into
/// would take nearly all changes.
fn lower_stack(text: &str) -> Lowered {
    let vars = BTreeMap::new();
    let loaded =
        parse_in(Path::new(""), "stack.toml", text, &Load { env: &env, vars: &vars, helm: None }).unwrap();
    let mut lowered = lower(&loaded.stack, true);
    for resource in Arc::make_mut(&mut lowered.resources) {
        let versions = resource.body.pointer_mut("/spec/versions").and_then(Value::as_array_mut);
        for version in versions.into_iter().flatten() {
            version["schema"]["openAPIV3Schema"] =
                json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        }
    }
    lowered
}

static WORLD: LazyLock<World> = LazyLock::new(|| {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let lowered_now = lower_stack(STACK);
        let harness = Harness::empty();
        let api =
            Arc::new(Recorder { api: harness.api(lowered_now.target.gke.clone()), kept: Mutex::default() });
        let made = planned(&*api, &lowered_now, Mode::Apply).await.unwrap();
        let (_sender, interrupt) = tokio::sync::watch::channel(0);
        let shared: Arc<dyn LiveApi> = Arc::<Recorder>::clone(&api);
        let ended = apply::apply(&made, shared, ApplyOptions::new(interrupt), |_| {}).await;
        assert!(
            ended.outcomes.iter().all(|(_, outcome, _)| *outcome == Outcome::Done),
            "{:?}",
            ended.outcomes
        );
        let mut asked = api.taken();
        assert!(planned(&*api, &lowered_now, Mode::Apply).await.unwrap().is_empty());
        let read = api.taken();
        let answers = read.values().map(|(request, value)| (key(request), value.clone()));
        let answers = Value::Object(answers.collect());
        let text = EDITS.iter().fold(STACK.to_owned(), |text, (from, to)| text.replacen(from, to, 1));
        let changed = planned(&*api, &lower_stack(&text), Mode::Apply).await.unwrap();
        let gone = planned(&*api, &lowered_now, Mode::Destroy).await.unwrap();
        asked.extend(read);
        asked.extend(api.taken());
        let asked = asked.into_values().collect();
        World { lowered: lowered_now, answers, asked, plans: vec![made, changed, gone] }
    })
});

async fn planned(api: &dyn LiveApi, lowered: &Lowered, mode: Mode) -> Result<Plan, Vec<Diagnostic>> {
    let Lowered { owner, target, resources, external, .. } = lowered;
    let world = read(api, &plan::read_set(resources, external, target, owner), 4).await.world;
    plan::plan(Inputs::of(lowered.clone(), mode, &world, &Sources::default()))
}

pub fn answers() -> Vec<Vec<u8>> {
    vec![WORLD.answers.to_string().into_bytes()]
}

pub fn answer(bytes: &[u8], _: &Path) -> Result<(), String> {
    serde_json::from_slice::<Value>(bytes).map_or(Ok(()), plan_with_answers)
}

/// Plans with these answers.
fn plan_with_answers(answers: Value) -> Result<(), String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    match runtime.block_on(planned(&Fake(answers), &WORLD.lowered, Mode::Apply)) {
        Ok(plan) => look_at(&plan),
        Err(problems) => {
            let text = rendered_output(|human| human.diagnostics(&problems, &Sources::default()))?;
            // Without a file that asks for it, the place is an address, a request, or the thing as the API names it.
            let nowhere =
                problems.iter().find(|told| told.address().is_none() && !told.message.contains(['/', '`']));
            nowhere.map_or(Ok(()), |told| Err(format!("no place: {}\n{text}", told.message)))
        }
    }
}

fn record_key() -> String {
    key(&Request::get(Api::Kubernetes, Record::object("h").path()))
}

/// The record of the stack as JSON.
pub fn records() -> Vec<Vec<u8>> {
    let place = Record::object("h");
    let api = Fake(WORLD.answers.clone());
    let found = record::fetch(&api, &place, RetryPolicy::Read).now_or_never().unwrap().unwrap();
    vec![serde_json::to_vec(found.record().unwrap()).unwrap()]
}

/// Plain, as earlier versions wrote it.
pub fn recorded(bytes: &[u8], _: &Path) -> Result<(), String> {
    let mut answers = WORLD.answers.clone();
    let held = &mut answers[record_key()];
    held["data"] = json!({ "record": String::from_utf8_lossy(bytes) });
    held.as_object_mut().unwrap().remove("binaryData");
    plan_with_answers(answers)
}

/// The number of a request, that of a status, and a body.
pub fn bodies() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = Vec::new();
    for (place, (_, value)) in WORLD.asked.iter().enumerate() {
        let place = u8::try_from(place % 256).unwrap();
        let body = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        seeds.push([&[place, 0], body.as_bytes()].concat());
    }
    for (place, refusal) in [
        json!({ "error": { "code": 409, "message": "Already exists", "status": "ALREADY_EXISTS",
            "details": [{ "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "x" }] } }),
        json!({ "kind": "Status", "status": "Failure", "reason": "Conflict", "message": "Apply failed with 1 conflict", "code": 409,
            "details": { "name": "x", "causes": [{ "reason": "FieldManagerConflict", "message": "conflict with \"kubectl\"", "field": ".a" }] } }),
    ]
    .iter()
    .enumerate()
    {
        let place = u8::try_from(place).unwrap();
        seeds.push([&[place, 9], refusal.to_string().as_bytes()].concat());
    }
    seeds
}

const STATUSES: [u16; 20] =
    [200, 201, 202, 204, 0, 99, 301, 400, 401, 409, 403, 404, 410, 412, 422, 429, 500, 503, 504, 65535];

/// The body of one answer.
pub fn body(bytes: &[u8], _: &Path) -> Result<(), String> {
    let [which, status, body @ ..] = bytes else { return Ok(()) };
    let (request, _) = &WORLD.asked[usize::from(*which) % WORLD.asked.len()];
    let status = STATUSES[usize::from(*status) % STATUSES.len()];
    for media in [Media::Other, Media::Html] {
        match request.read(Answer { status, media, warnings: Vec::new(), body: body.to_vec() }) {
            Ok(_) if !(200..300).contains(&status) => return Err(format!("{status} is taken for a success")),
            Ok(_) => {}
            Err(error) => {
                let words = error.to_string();
                if !words.contains(&request.title()) || error.message.trim().is_empty() {
                    return Err(format!("no place: {words:?}"));
                }
                let _ = (error.conflicts(), error.is_webhook(), error.is_unknown_path());
                let told = Diagnostic::error(Code::Unreadable, words);
                rendered_output(|human| human.diagnostics(&[told], &Sources::default()))?;
            }
        }
    }
    Ok(())
}

/// Everything that was answered, one by one.
pub fn objects() -> Vec<Vec<u8>> {
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
    let gvk = model::resource::Gvk {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: text(&value["kind"]),
        plural: "things".to_owned(),
    };
    let namespace = value["metadata"]["namespace"].as_str().map(str::to_owned);
    Identity::Object(ObjectId { gvk, namespace, name: text(&value["metadata"]["name"]) })
}

pub fn judge(bytes: &[u8], _: &Path) -> Result<(), String> {
    let Ok(value) = serde_json::from_slice::<Value>(bytes) else { return Ok(()) };
    let list = json!({ "items": [value, value["status"], null] });
    for &id in KindId::ALL {
        let kind = kinds::of(id);
        let told = [
            (Until::Ready, Facts::Workers { replicas: Some(1), cluster: None, gang: None }),
            (Until::Ready, Facts::Nodes { nodes: Some(1), gpus: true }),
            (Until::Gone, Facts::None),
            (Until::Idle, Facts::Cluster("c".to_owned())),
        ];
        for (until, facts) in told {
            let wait = Await { kind: id, identity: identity(&value), until, facts, deadline: 60 };
            let queries = (kind.queries)(&wait);
            let found: Vec<Value> = (0..queries.all().count().max(1))
                .map(|place| if place % 2 == 0 { value.clone() } else { list.clone() })
                .collect();
            kind.readiness(&wait, &kinds::kind::QueryResults::answers(&queries, &found));
            kind.readiness(&wait, &kinds::kind::QueryResults::of::<kinds::kind::Part>([]));
        }
    }
    let _ = secrets::masked(&value);
    Ok(())
}

pub fn imported(bytes: &[u8], _: &Path) -> Result<(), String> {
    let Ok(value) = serde_json::from_slice::<Value>(bytes) else { return Ok(()) };
    let mut found = nothing(Place::Kubeconfig { path: None, context: Some("kind".into()) });
    let Identity::Object(object) = identity(&value) else { return Ok(()) };
    found.objects.insert(object, value.clone());
    if value["metadata"].is_null() {
        found.place = Place::Gke(WORLD.lowered.target.gke.clone().unwrap());
        found.pools.insert("p".into(), value.clone());
        found.cluster = value;
    }
    reads_back(&found)
}

/// A place where nothing is.
pub fn nothing(place: Place) -> Found {
    Found {
        place,
        endpoint: Endpoint::Auto,
        cluster: Value::Null,
        pools: BTreeMap::new(),
        sizes: BTreeMap::new(),
        objects: BTreeMap::new(),
        unmanaged: Vec::new(),
        unread: Vec::new(),
    }
}

/// Checks that an imported stack is a stack.
pub fn reads_back(found: &Found) -> Result<(), String> {
    let text = import::import(found, &Owner { stack: "h".into(), id: "h".into() }).text;
    load(Path::new(""), &text).map_err(|why| format!("{why}\n{text}"))
}
