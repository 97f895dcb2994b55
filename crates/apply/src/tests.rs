//! An apply against scripted replies, on tokio's paused clock.

use std::collections::BTreeMap;
use std::sync::Mutex;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::*;
use kinds::kind::{Kind, MissingQuery, Part, QueryResults};
use live::{ApiError, ErrorClass, Request};
use model::address::FieldPath;
use model::record::Record;
use model::resource::{
    Api, Await, Call, ClusterName, Effect, Facts, FieldChange, Gvk, Identity, KindId, LABEL_ID, Lowered,
    Method, ObjectId, Owner, Queued, Readiness, Recreation, Resource, Step, Target, Until, World,
};
use plan::{Action, Change, Inputs, Mode};

mod checks;
mod control_plane_down;
mod idle;
mod interrupts;
mod kept;
mod locks;
mod queued;
mod records;
mod watches;

type Reply = Result<Value, ApiError>;
type Answer = Box<dyn Fn(&Request, usize) -> Reply + Send + Sync>;

/// Answers by `METHOD path` and the number of earlier requests of that kind. A path without a line does not exist.
struct Fake {
    answers: Vec<(&'static str, Answer)>,
    asked: Mutex<Vec<Request>>,
}

impl Fake {
    fn new() -> Self {
        Self {
            answers: vec![("PATCH /api/v1/namespaces/dask-infra/", always(json!({})))],
            asked: Mutex::default(),
        }
    }

    /// Adds a line. The first line whose text is a prefix of the request's title answers the request.
    fn on(mut self, title: &'static str, answer: Answer) -> Self {
        self.answers.insert(0, (title, answer));
        self
    }

    fn titles(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().map(Request::title).collect()
    }

    fn writes(&self) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|request| request.writes()).map(Request::title).collect()
    }

    fn records(&self) -> Vec<Record> {
        let asked = self.asked.lock().unwrap();
        let records = asked.iter().filter(|request| request.writes()).filter_map(|request| {
            let text = request.body.as_ref()?.pointer("/binaryData/record")?.as_str()?;
            let packed = BASE64_STANDARD.decode(text).ok()?;
            serde_json::from_slice(&miniz_oxide::inflate::decompress_to_vec_zlib(&packed).ok()?).ok()
        });
        records.collect()
    }
}

impl LiveApi for Fake {
    fn send(&self, request: Request) -> BoxFuture<'_, Reply> {
        let title = request.title();
        let mut asked = self.asked.lock().unwrap();
        let before = asked.iter().filter(|other| other.title() == title).count();
        asked.push(request.clone());
        let found = self.answers.iter().find(|(begins, _)| title.starts_with(begins));
        let reply = match found {
            Some((_, answer)) => answer(&request, before),
            None => Err(refused(&request, ErrorClass::NotFound, "not found")),
        };
        async move {
            tokio::time::sleep(Duration::from_millis(10)).await;
            reply
        }
        .boxed()
    }
}

fn refused(request: &Request, class: ErrorClass, message: &str) -> ApiError {
    request.failed(class, message)
}

fn always(value: Value) -> Answer {
    Box::new(move |_, _| Ok(value.clone()))
}

fn refuses(class: ErrorClass, message: &'static str) -> Answer {
    Box::new(move |request, _| Err(refused(request, class, message)))
}

/// Returns an answer that gives one reply after another, and then repeats the last one.
fn in_turn(replies: Vec<Result<Value, (ErrorClass, &'static str)>>) -> Answer {
    Box::new(move |request, before| {
        let reply = replies.get(before).or(replies.last()).cloned();
        reply.unwrap_or(Ok(Value::Null)).map_err(|(class, message)| refused(request, class, message))
    })
}

/// Ready when `phase` says so, failed when it says so.
const KIND: Kind = Kind { readiness: judge, ..Kind::DEFAULT };

fn judge(_: &Await, found: &QueryResults) -> Result<Readiness, MissingQuery> {
    Ok(match found.get(Part::Itself)?["phase"].as_str() {
        Some("ready") => Readiness::Ready,
        Some("failed") => Readiness::Failed("it fell over".into()),
        Some("stalled") => Readiness::Stalled("machines".into()),
        Some("queued") => Readiness::Queued(Queued::since("machines", &json!("then"))),
        _ => Readiness::progressing("its phase"),
    })
}

fn cluster() -> ClusterName {
    ClusterName { project: "p".into(), location: "l".into(), cluster: "c".into() }
}

fn object(kind: &str, plural: &str, name: &str) -> ObjectId {
    let gvk = Gvk { group: String::new(), version: "v1".into(), kind: kind.into(), plural: plural.into() };
    ObjectId { gvk, namespace: Some("n".into()), name: name.into() }
}

fn call(api: Api, method: Method, path: &str, body: Value) -> Step {
    Step::Call(Call { api, method, path: path.into(), body: Some(body.into()), deferred: Vec::new() })
}

fn wait(identity: &Identity, until: Until, deadline: u32) -> Step {
    let (kind, facts) = (KindId::Object, Facts::None);
    Step::Await(Await { kind, identity: identity.clone(), until, facts, deadline })
}

fn change(name: &str, identity: Identity, action: Action, steps: Vec<Step>, depends_on: &[usize]) -> Change {
    let change = Change::new(Address::new(name), identity, KindId::Object, action);
    Change { steps, depends_on: depends_on.to_vec(), ..change }
}

/// Makes a ConfigMap and waits for it.
fn makes(name: &str, depends_on: &[usize]) -> Change {
    let object = object("ConfigMap", "configmaps", name);
    let body = json!({"metadata": {"name": name, "resourceVersion": "1"}});
    let path = format!("{}?fieldManager=dask-infra/s", object.path());
    let identity = Identity::Object(object);
    let steps = vec![call(Api::Kubernetes, Method::Patch, &path, body), wait(&identity, Until::Ready, 60)];
    change(name, identity, Action::Create, steps, depends_on)
}

fn makes_pool(name: &str, depends_on: &[usize]) -> Change {
    let identity = Identity::NodePool { cluster: cluster(), pool: name.into() };
    let path = format!("/v1/{}/nodePools", cluster().path());
    let body = json!({"nodePool": {"name": name}});
    let steps = vec![call(Api::Gke, Method::Post, &path, body), wait(&identity, Until::Ready, 600)];
    change(name, identity, Action::Create, steps, depends_on)
}

fn check(name: &str) -> Change {
    let pod = object("Pod", "pods", "check");
    let identity = Identity::Object(pod.clone());
    let steps = vec![
        call(Api::Kubernetes, Method::Patch, &pod.path(), json!({})),
        wait(&identity, Until::Ready, 60),
        Step::ReadLog { pod: pod.clone(), expect: Some("Test PASSED".into()) },
        call(Api::Kubernetes, Method::Delete, &pod.path(), json!({})),
        wait(&identity, Until::Gone, 60),
        Step::RecordCompletion { digest: "d".into() },
    ];
    change(name, Identity::Check(Address::new(name)), Action::Run, steps, &[])
}

fn plan(changes: Vec<Change>) -> Plan {
    let desired = changes.iter().filter(|change| change.action != Action::Delete).map(|change| Resource {
        address: change.address.clone(),
        identity: change.identity.clone(),
        kind: change.kind,
        body: json!({"name": change.address.as_str()}),
        origin: FieldPath::root(),
        provenance: Vec::new(),
        depends_on: Vec::new(),
        protect: false,
        recreation: Recreation::Always,
        create_only: Value::Null,
    });
    let lowered = Lowered {
        owner: Owner { stack: "s".into(), id: "i".into() },
        target: Target { gke: Some(cluster()), simulated: true, ..Target::default() },
        resources: desired.collect(),
        external: Vec::new(),
        capacity_options: Vec::new(),
    };
    let (world, sources) = (World::empty(), Default::default());
    Inputs::of(lowered, Mode::Apply, &world, &sources).into_plan(changes, Vec::new(), Vec::new(), None)
}

struct Applied {
    outcomes: Vec<Outcome>,
    events: Vec<Event>,
    summary: Summary,
}

impl Applied {
    fn failure(&self, place: usize) -> (&str, &str) {
        match &self.outcomes[place] {
            Outcome::Failed { code, message, .. } => (code, message),
            other => panic!("{other:?}"),
        }
    }
}

async fn run(plan: &Plan, api: &Arc<Fake>, interrupt: watch::Receiver<u8>) -> Applied {
    let kinds: Kinds = |_| &KIND;
    let options = ApplyOptions { now: || jiff::Timestamp::UNIX_EPOCH, kinds, ..ApplyOptions::new(interrupt) };
    let mut events = Vec::new();
    let summary = apply(plan, Arc::<Fake>::clone(api), options, |event| events.push(event)).await;
    let outcomes = summary.outcomes.iter().map(|(_, outcome, _)| outcome.clone()).collect();
    Applied { outcomes, events, summary }
}

async fn quiet(changes: Vec<Change>, api: Fake) -> (Applied, Arc<Fake>) {
    let (_sender, interrupt) = watch::channel(0);
    let api = Arc::new(api);
    (run(&plan(changes), &api, interrupt).await, api)
}

const CONFIG: &str = "/api/v1/namespaces/n/configmaps/";
const OPERATION: &str = "GET /v1/projects/p/locations/l/operations/operation-1";

fn operation(status: &str) -> Value {
    json!({"name": "operation-1", "operationType": "CREATE_NODE_POOL", "status": status,
        "targetLink": "https://x/v1/projects/1/zones/l/clusters/c/nodePools/a"})
}

fn ready() -> Value {
    json!({"phase": "ready"})
}

#[tokio::test(start_paused = true)]
async fn what_is_not_to_be_had_is_not_waited_for_to_the_deadline() {
    let pool = "GET /v1/projects/p/locations/l/clusters/c/nodePools/a";
    let identity = Identity::NodePool { cluster: cluster(), pool: "a".into() };
    let waits = || {
        let steps = vec![wait(&identity, Until::Ready, 5400)];
        vec![change("a", identity.clone(), Action::Update, steps, &[])]
    };
    let stalled = || json!({"phase": "stalled"});
    let (applied, _) = quiet(waits(), Fake::new().on(pool, always(stalled()))).await;
    let (code, message) = applied.failure(0);
    assert_eq!(code, Code::NotReady.as_str());
    assert!(message.contains("is not ready after 10 min: machines"), "{message}");
    let passing = in_turn(vec![Ok(stalled()), Ok(stalled()), Ok(ready())]);
    let (applied, _) = quiet(waits(), Fake::new().on(pool, passing)).await;
    assert_eq!(applied.outcomes, [Outcome::Done]);
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_is_done_may_have_failed() {
    let mut done = operation("DONE");
    done["error"] = json!({"code": 8, "message": "[GCE_STOCKOUT]: no A100"});
    let api = Fake::new()
        .on("POST", always(operation("RUNNING")))
        .on(OPERATION, in_turn(vec![Ok(operation("RUNNING")), Ok(done)]))
        .on(
            "GET /v1/projects/p/locations/l/clusters/c/nodePools/a",
            always(json!({"conditions": [{"message": "zone z is full"}]})),
        );
    let (applied, api) = quiet(vec![makes_pool("a", &[]), makes("b", &[0])], api).await;
    let (code, message) = applied.failure(0);
    assert_eq!(code, Code::OperationFailed.as_str());
    assert!(message.contains("GCE_STOCKOUT") && message.contains("zone z is full"), "{message}");
    assert_eq!(applied.outcomes[1], Outcome::Skipped { because: Address::new("a") });
    // The pool may have stayed behind, and the record says so.
    let names: Vec<String> =
        api.records().pop().unwrap().inventory.iter().map(|entry| entry.identity.to_string()).collect();
    assert_eq!(names, ["node pool a"]);
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_to_a_create_is_followed_when_it_is_ours() {
    let ours = json!({"phase": "ready", "config": {"resourceLabels": {LABEL_ID: "i"}}});
    let post = || in_turn(vec![Err((ErrorClass::Lost, "reset")), Err((ErrorClass::AlreadyExists, "exists"))]);
    let api = Fake::new()
        .on("POST", post())
        .on("GET /v1/projects/p/locations/l/clusters/c/nodePools/a", always(ours))
        .on(
            "GET /v1/projects/p/locations/l/operations",
            always(json!({"operations": [operation("RUNNING")]})),
        )
        .on(OPERATION, always(operation("DONE")));
    let (applied, api) = quiet(vec![makes_pool("a", &[])], api).await;
    assert_eq!(applied.outcomes, [Outcome::Done]);
    assert!(api.titles().contains(&OPERATION.to_owned()));

    let foreign = json!({"phase": "ready", "config": {"resourceLabels": {LABEL_ID: "other"}}});
    let api = Fake::new()
        .on("POST", post())
        .on("GET /v1/projects/p/locations/l/clusters/c/nodePools/a", always(foreign));
    let (applied, _) = quiet(vec![makes_pool("a", &[])], api).await;
    assert_eq!(applied.failure(0).0, Code::MadeByOthers.as_str());
}

#[tokio::test(start_paused = true)]
async fn an_object_that_others_made_is_not_taken_over() {
    for (manager, done) in [("dask-infra/s", true), ("kubectl", false)] {
        let live = json!({"phase": "ready", "metadata": {"managedFields": [{"manager": manager, "operation": "Apply"}]}});
        let api = Fake::new()
            .on("PATCH /api/v1/namespaces/n/", refuses(ErrorClass::Conflict, "the object has been modified"))
            .on("GET /api/v1/namespaces/n/", always(live));
        let (applied, _) = quiet(vec![makes("a", &[])], api).await;
        assert_eq!(applied.outcomes[0] == Outcome::Done, done, "{:?}", applied.outcomes);
    }
}

/// Runs an apply that reverts drift, at the version that was planned.
async fn takes_back(
    answers: Vec<Result<Value, (ErrorClass, &'static str)>>,
    live: Value,
) -> (Outcome, Vec<Value>) {
    let path = format!("{CONFIG}a?fieldManager=dask-infra/s&force=true");
    let wanted = json!({"metadata": {"name": "a"}, "data": {"k": "wanted"}});
    let mut body = wanted.clone();
    body["metadata"]["uid"] = json!("u");
    body["metadata"]["resourceVersion"] = json!("7");
    let steps = vec![call(Api::Kubernetes, Method::Patch, &path, body)];
    let identity = Identity::Object(object("ConfigMap", "configmaps", "a"));
    let mut update = change("a", identity, Action::Update, steps, &[]);
    update.kind = KindId::Object;
    update.fields = vec![FieldChange {
        path: FieldPath::keys(["data", "k"]),
        before: Some(json!("by hand")),
        after: Some(json!("wanted")),
        effect: Effect::InPlace,
        note: None,
        drift: Some(("kubectl".into(), "2026-01-01T00:00:00Z".into())),
        secret: false,
    }];
    let mut plan = plan(vec![update]);
    Arc::make_mut(&mut plan.desired)[0].body = wanted;
    let api = Fake::new()
        .on("PATCH /api/v1/namespaces/n/", in_turn(answers))
        .on("GET /api/v1/namespaces/n/", always(live));
    let api = Arc::new(api);
    let (_keep, interrupt) = watch::channel(0);
    let applied = run(&plan, &api, interrupt).await;
    let asked = api.asked.lock().unwrap();
    let sent = asked.iter().filter(|request| request.writes() && request.path == path);
    let versions =
        sent.map(|request| request.body.as_ref().unwrap()["metadata"]["resourceVersion"].clone()).collect();
    (applied.outcomes[0].clone(), versions)
}

#[tokio::test(start_paused = true)]
async fn a_version_that_moved_is_looked_at_again_and_what_the_plan_relies_on_decides() {
    let live = |uid: &str, value: &str, manager: &str| {
        json!({
            "metadata": { "name": "a", "uid": uid, "resourceVersion": "9", "managedFields": [
                { "manager": manager, "operation": "Apply", "time": "2026-01-01T00:00:00Z",
                  "fieldsV1": { "f:data": { "f:k": {} } } },
            ] },
            "data": { "k": value },
        })
    };
    let moved = || Err((ErrorClass::Conflict, "the object has been modified"));
    let lost = || Err((ErrorClass::Lost, "reset"));
    let ours = "dask-infra/s";
    let rows = [
        // A status was written: once more at its version.
        (vec![moved(), Ok(json!({}))], live("u", "by hand", ours), None, vec!["7", "9"]),
        (vec![moved(), moved(), Ok(json!({}))], live("u", "by hand", ours), None, vec!["7", "9", "9"]),
        // This very request was done, and its answer lost.
        (vec![lost(), moved()], live("u", "wanted", ours), None, vec!["7", "7"]),
        // Another value, another object, nothing at all.
        (vec![moved()], live("u", "by another", ours), Some(Code::ChangedByOthers), vec!["7"]),
        (vec![moved()], live("v", "by hand", ours), Some(Code::ChangedByOthers), vec!["7"]),
        (vec![moved()], Value::Null, Some(Code::ChangedByOthers), vec!["7"]),
        // It never rests.
        (
            vec![moved(), moved(), moved(), moved()],
            live("u", "by hand", ours),
            Some(Code::ChangedByOthers),
            vec!["7", "9", "9", "9"],
        ),
    ];
    for (answers, live, fails, versions) in rows {
        let (outcome, sent) = takes_back(answers, live.clone()).await;
        match (&outcome, fails) {
            (Outcome::Done, None) => {}
            (Outcome::Failed { code, .. }, Some(wanted)) if code == wanted.as_str() => {}
            _ => panic!("{live}: {outcome:?}"),
        }
        assert_eq!(sent, versions, "{live}");
    }
}

/// GKE's `409 ABORTED` means that another operation was running, not that the pool exists.
#[tokio::test(start_paused = true)]
async fn a_create_that_was_refused_while_nothing_is_there_is_sent_again() {
    for class in [ErrorClass::Conflict, ErrorClass::AlreadyExists] {
        let post = in_turn(vec![Err((class, "The operation was aborted.")), Ok(json!({}))]);
        let absent = vec![Err((ErrorClass::NotFound, "Not found")), Ok(ready())];
        let api = Fake::new()
            .on("POST", post)
            .on("GET /v1/projects/p/locations/l/clusters/c/nodePools/a", in_turn(absent));
        let (applied, api) = quiet(vec![makes_pool("a", &[])], api).await;
        assert_eq!(applied.outcomes, [Outcome::Done]);
        assert_eq!(api.writes().iter().filter(|title| title.starts_with("POST")).count(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_nobody_confirms_is_in_doubt_and_its_followers_are_skipped() {
    for replies in [
        vec![Err((ErrorClass::Lost, "the answer is not a Kubernetes object: it is a web page"))],
        vec![Err((ErrorClass::Lost, "reset")), Err((ErrorClass::Unavailable, "away"))],
    ] {
        let api = Fake::new().on("PATCH /api/v1/namespaces/n/", in_turn(replies));
        let (applied, _) = quiet(vec![makes("a", &[]), makes("b", &[0])], api).await;
        assert!(matches!(applied.outcomes[0], Outcome::InDoubt { .. }), "{:?}", applied.outcomes);
        assert_eq!(applied.outcomes[1], Outcome::Skipped { because: Address::new("a") });
    }
}

/// A server that fails on a body will fail on it again.
#[tokio::test(start_paused = true)]
async fn a_request_that_breaks_the_server_is_not_sent_for_minutes() {
    let broken: Answer = Box::new(|request, _| {
        let error = refused(request, ErrorClass::Unavailable, "Internal error");
        Err(ApiError { status: Some(500), ..error })
    });
    let api = Fake::new().on("PATCH /api/v1/namespaces/n/", broken);
    let (applied, _) = quiet(vec![makes("a", &[])], api).await;
    assert_eq!(applied.failure(0).0, Code::NoAnswer.as_str());
    assert!((25..45).contains(&applied.summary.took.as_secs()), "{:?}", applied.summary.took);
}

#[tokio::test(start_paused = true)]
async fn a_busy_cluster_is_waited_for_and_the_blocker_named() {
    let busy = || Err((ErrorClass::Busy, "Cluster is running incompatible operation operation-1."));
    let api = Fake::new()
        .on("POST", in_turn(vec![busy(), busy(), Ok(json!({}))]))
        .on(
            "GET /v1/projects/p/locations/l/operations",
            always(json!({"operations": [operation("RUNNING")]})),
        )
        .on("GET /v1/projects/p/locations/l/clusters/c/nodePools/a", always(ready()));
    let (applied, _) = quiet(vec![makes_pool("a", &[])], api).await;
    assert_eq!(applied.outcomes, [Outcome::Done]);
    let named = |event: &Event| {
        matches!(event, Event::Waiting { message, operation: Some(name), .. } if name == "operation-1" && message == "another operation on \
         the cluster is running: GKE is creating a node pool")
    };
    assert!(applied.events.iter().any(named), "{:?}", applied.events);
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_at_its_deadline_or_when_it_is_hopeless() {
    let stuck = || Fake::new().on("PATCH /api/v1/namespaces/n/", always(json!({})));
    let api = stuck().on("GET /api/v1/namespaces/n/", always(json!({})));
    let (applied, _) = quiet(vec![makes("a", &[])], api).await;
    let expected = "ConfigMap n/a is not ready after 60 s: its phase";
    assert_eq!(applied.outcomes, [Outcome::TimedOut { message: expected.into() }]);
    assert!((60..62).contains(&applied.summary.took.as_secs()));
    let waits = applied.events.iter().filter(|event| matches!(event, Event::Waiting { .. })).count();
    assert!((5..8).contains(&waits), "{waits}");

    let api = stuck().on("GET /api/v1/namespaces/n/", always(json!({"phase": "failed"})));
    let (applied, _) = quiet(vec![makes("a", &[])], api).await;
    assert_eq!(applied.failure(0), (Code::NotReady.as_str(), "ConfigMap n/a: it fell over"));

    // A host cannot remove what is to go.
    let stays = json!({"kind": "Environment", "status": {"phase": "Stuck", "message": "no permission"}});
    let api = Fake::new()
        .on("DELETE /api/v1/namespaces/n/", always(json!({"status": "Success"})))
        .on("GET /api/v1/namespaces/n/", always(stays));
    let identity = Identity::Object(object("Environment", "environments", "a"));
    let delete = call(Api::Kubernetes, Method::Delete, "/api/v1/namespaces/n/environments/a", json!({}));
    let steps = vec![delete, wait(&identity, Until::Gone, 60)];
    let (applied, _) = quiet(vec![change("a", identity, Action::Delete, steps, &[])], api).await;
    assert_eq!(applied.failure(0), (Code::NotReady.as_str(), "Environment n/a: no permission"));
}

#[tokio::test(start_paused = true)]
async fn a_failure_skips_its_followers_only() {
    let api = Fake::new()
        .on("PATCH /api/v1/namespaces/n/", always(json!({})))
        .on("PATCH /api/v1/namespaces/n/configmaps/a", refuses(ErrorClass::Invalid, "spec is wrong"))
        .on("GET /api/v1/namespaces/n/", always(ready()));
    let changes = vec![makes("a", &[]), makes("b", &[0]), makes("c", &[1]), makes("d", &[])];
    let (applied, api) = quiet(changes, api).await;
    let skipped = Outcome::Skipped { because: Address::new("a") };
    assert_eq!(applied.failure(0).0, Code::Refused.as_str());
    assert_eq!(applied.outcomes[1..], [skipped.clone(), skipped, Outcome::Done]);
    let last = api.records().pop().unwrap();
    let names: Vec<String> = last.inventory.iter().map(|entry| entry.identity.to_string()).collect();
    assert_eq!(names, ["ConfigMap n/a", "ConfigMap n/d"]);
}

#[tokio::test(start_paused = true)]
async fn a_delete_of_what_is_gone_is_done_and_another_uid_counts_as_gone() {
    let gone = object("ConfigMap", "configmaps", "gone");
    let again = object("ConfigMap", "configmaps", "again");
    let late = Call {
        api: Api::Kubernetes,
        method: Method::Delete,
        path: again.path(),
        body: Some(json!({"preconditions": {"uid": "old"}}).into()),
        deferred: Vec::new(),
    };
    let deletes = |object: &ObjectId, call: Step| {
        let identity = Identity::Object(object.clone());
        let steps = vec![call, wait(&identity, Until::Gone, 60)];
        change(&object.name, identity, Action::Delete, steps, &[])
    };
    let uid = |uid: &str| json!({"metadata": {"uid": uid}});
    let api = Fake::new()
        .on("GET /api/v1/namespaces/n/configmaps/again", in_turn(vec![Ok(uid("old")), Ok(uid("new"))]))
        .on("DELETE /api/v1/namespaces/n/configmaps/again", always(json!({"status": "Success"})))
        .on("GET /api/v1/namespaces/dask-infra/configmaps", always(json!({"items": []})))
        .on("GET /api/v1/namespaces/dask-infra/configmaps/dask-infra-s", refuses(ErrorClass::NotFound, "no"));
    let delete_gone = call(Api::Kubernetes, Method::Delete, &gone.path(), json!({}));
    let (applied, api) =
        quiet(vec![deletes(&gone, delete_gone), deletes(&again, Step::Call(late))], api).await;
    assert_eq!(applied.outcomes, [Outcome::Done, Outcome::Done]);
    let asked = api.asked.lock().unwrap();
    let delete =
        asked.iter().find(|request| request.method == Method::Delete && request.path == again.path());
    assert_eq!(delete.unwrap().body, Some(json!({"preconditions": {"uid": "old"}})));
    // Nothing is left, so the record goes too.
    let record = Record::object("s").path();
    assert!(asked.iter().any(|request| request.method == Method::Delete && request.path == record));
}

#[tokio::test(start_paused = true)]
async fn an_empty_plan_does_nothing() {
    let mut kept = makes("a", &[]);
    kept.action = Action::Keep;
    kept.steps.clear();
    let (applied, api) = quiet(vec![kept], Fake::new()).await;
    assert!(applied.outcomes.is_empty() && applied.events.is_empty() && api.titles().is_empty());
}
