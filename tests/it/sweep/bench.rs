//! A sandbox in this process on tokio's paused clock, the engine pointed at it, and a look at what is there.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dask_infra::apply::{self, ApplyOptions, Event, Summary};
use dask_infra::diag::{self, Look};
use dask_infra::live::connection::InProcess;
use dask_infra::live::{ApiError, Connection, GkeAccess, LiveApi, Options as Connect, Request};
use dask_infra::plan::{self, Inputs, Mode, Plan};
use dask_infra::resource::Api as Which;
use dask_infra::sandbox::faults::Rule;
use dask_infra::sandbox::{Clock, Options, Sandbox, Scale, Stockout};
use dask_infra::source::Sources;
use dask_infra::stack::lower::{Lowered, lower};
use dask_infra::stack::{Options as Reading, parse_text};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::SignedDuration;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// How long a request is under way.
const LATENCY: Duration = Duration::from_millis(20);
/// A cluster takes half a second.
pub const SCALE: Scale = Scale { time_scale: 600.0 };

/// A stack as resources.
pub struct Stack {
    lowered: Lowered,
    sources: Sources,
}

impl Stack {
    /// Of a text.
    pub fn of(text: &str) -> Self {
        let env = |name: &str| (name == "GOOGLE_CLOUD_PROJECT").then(|| "demo".to_owned());
        let vars = BTreeMap::new();
        let loaded = parse_text("stack.toml", text, &Reading { env: &env, vars: &vars, helm: None });
        let loaded = loaded.unwrap_or_else(|failure| {
            panic!("{}", diag::render(&failure.diagnostics, &failure.sources, Look::PLAIN))
        });
        Self { lowered: lower(&loaded.stack, true), sources: loaded.sources }
    }

    /// The path of its GKE cluster.
    pub fn cluster(&self) -> String {
        let cluster = self.lowered.target.gke.as_ref().unwrap();
        format!("/v1/{}", cluster.path())
    }
}

/// What else happens when a request is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The program dies, and the request is never sent.
    DeathBefore,
    /// The request is done, and the program dies.
    DeathAfter,
    /// There are no machines from then on, for two attempts: the operation fails, and GKE has some when it
    /// tries later.
    StockOut,
}

/// Where something else than an answer goes wrong.
#[derive(Clone, Debug)]
pub struct Moment {
    /// At which request.
    pub method: String,
    /// Without its query.
    pub path: String,
    /// After so many others of the same kind.
    pub skip: usize,
    /// What happens.
    pub turn: Turn,
}

/// The connection, with a clock that follows tokio's, a list of what was asked, and a moment at which
/// something happens.
pub struct Api {
    connection: Connection,
    sandbox: Sandbox,
    clock: Mutex<Instant>,
    asked: Mutex<Vec<(String, String)>>,
    moment: Option<Moment>,
    dead: Notify,
}

impl Api {
    fn of(sandbox: &Sandbox, stack: &Stack, moment: Option<Moment>) -> Arc<Self> {
        let clusters = sandbox.clone();
        let in_process: InProcess = Arc::new(move |endpoint| {
            clusters.cluster_by_endpoint(endpoint).map(|id| clusters.kubernetes_router(&id))
        });
        let connection = Connection::new(Connect {
            gke: GkeAccess::InProcess(sandbox.gke_router()),
            cluster: stack.lowered.target.gke.clone(),
            kubernetes: None,
            in_process_kubernetes: Some(in_process),
        });
        let (clock, asked) = (Mutex::new(Instant::now()), Mutex::default());
        Arc::new(Self { connection, sandbox: sandbox.clone(), clock, asked, moment, dead: Notify::new() })
    }

    /// Lets the sandbox see the time that has passed, not in one leap: what is due leads to what is due next.
    fn follow(&self) {
        let mut clock = self.clock.lock().unwrap();
        let gap = clock.elapsed();
        *clock = Instant::now();
        let steps = u32::try_from(gap.as_millis() / 250).unwrap_or(u32::MAX).clamp(1, 40);
        let step = SignedDuration::try_from(gap / steps).unwrap();
        for _ in 0..steps {
            self.sandbox.advance(step).unwrap();
        }
    }

    /// What happens at this request.
    fn turn(&self, request: &Request) -> Option<Turn> {
        let path = request.path.split('?').next().unwrap_or_default().to_owned();
        let this = (request.method.as_str().to_owned(), path);
        let mut asked = self.asked.lock().unwrap();
        let before = asked.iter().filter(|other| **other == this).count();
        let moment = self
            .moment
            .as_ref()
            .filter(|moment| (&moment.method, &moment.path, moment.skip) == (&this.0, &this.1, before));
        asked.push(this);
        moment.map(|moment| moment.turn)
    }

    /// What was asked, in order.
    pub fn asked(&self) -> Vec<(String, String)> {
        self.asked.lock().unwrap().clone()
    }
}

impl LiveApi for Api {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Value, ApiError>> {
        async move {
            let turn = self.turn(&request);
            tokio::time::sleep(LATENCY).await;
            self.follow();
            if turn == Some(Turn::StockOut) {
                self.sandbox.add_stockout(Stockout::next("*", 2)).unwrap();
            }
            if turn != Some(Turn::DeathBefore) {
                let result = self.connection.send(request).await;
                self.follow();
                if turn != Some(Turn::DeathAfter) {
                    return result;
                }
            }
            self.dead.notify_one();
            std::future::pending().await
        }
        .boxed()
    }
}

/// How an apply ended.
pub struct Ended {
    /// `None`: the program died.
    pub summary: Option<Summary>,
    /// What was asked.
    pub asked: Vec<(String, String)>,
}

/// A world.
pub struct Bench {
    /// The sandbox.
    pub sandbox: Sandbox,
}

impl Bench {
    /// An empty one, with a GKE cluster beside it that belongs to others.
    pub fn new() -> Self {
        let start = "2026-11-21T09:00:00Z".parse().unwrap();
        let options = Options { scale: SCALE, clock: Clock::Manual(start), ..Options::default() };
        let bench = Self { sandbox: Sandbox::open(options).unwrap() };
        let theirs = json!({ "cluster": { "name": "theirs", "initialNodeCount": 1 } });
        bench.gke("POST", "/v1/projects/demo/locations/us-central1-c/clusters", &theirs);
        bench.pass(20);
        bench
    }

    /// Another one that goes on from here.
    pub fn copy(&self) -> Self {
        let clock = Clock::Manual(self.sandbox.now());
        let options = Options { scale: SCALE, clock, ..Options::default() };
        Self { sandbox: self.sandbox.copy(options).unwrap() }
    }

    /// Lets seconds pass.
    pub fn pass(&self, seconds: u32) {
        for _ in 0..seconds * 4 {
            self.sandbox.advance(SignedDuration::from_millis(250)).unwrap();
        }
    }

    /// A request of somebody else to GKE, which must succeed.
    pub fn gke(&self, method: &str, path: &str, body: &Value) -> Value {
        let bytes = if body.is_null() { String::new() } else { body.to_string() };
        let reply = self.sandbox.gke_request(method, path, "", bytes.as_bytes()).unwrap();
        assert!(reply.code < 300, "{method} {path}: {}", reply.body);
        reply.body
    }

    /// What a plan says; why there is none otherwise.
    pub async fn plan(&self, stack: &Stack, mode: Mode) -> Result<Plan, String> {
        let api = Api::of(&self.sandbox, stack, None);
        let Lowered { owner, target, resources, theirs, hourly } = stack.lowered.clone();
        let wanted = plan::wanted(&resources, &theirs, &target, &owner);
        let read = dask_infra::live::read(&*api, &wanted, 64).await;
        let inputs = Inputs {
            desired: resources,
            theirs,
            world: &read.world,
            target,
            owner,
            mode,
            offline: false,
            allowed: Vec::new(),
            replace: Vec::new(),
            selection: plan::Selection::default(),
            retarget: false,
            when_idle: None,
            sources: &stack.sources,
            hourly,
        };
        plan::plan(inputs).map_err(|problems| diag::render(&problems, &stack.sources, Look::PLAIN))
    }

    /// Applies a plan under rules and with something that happens at a moment, until it ends or the program
    /// dies.
    pub async fn apply(&self, stack: &Stack, plan: &Plan, rules: Vec<Rule>, moment: Option<Moment>) -> Ended {
        self.sandbox.set_rules(rules).unwrap();
        let api = Api::of(&self.sandbox, stack, moment);
        let (_keep, interrupt) = watch::channel(0);
        let live: Arc<dyn LiveApi> = Arc::<Api>::clone(&api);
        let applied = apply::apply(plan, live, ApplyOptions::new(interrupt), |_: Event| {});
        let summary = tokio::select! {
            summary = applied => Some(summary),
            () = api.dead.notified() => None,
        };
        // What is still on its way arrives.
        tokio::time::sleep(Duration::from_secs(60)).await;
        api.follow();
        self.sandbox.set_rules(Vec::new()).unwrap();
        Ended { summary, asked: api.asked() }
    }

    /// A request of somebody else into the stack's cluster, which must succeed.
    pub async fn kubernetes(&self, stack: &Stack, request: Request) -> Value {
        let api = Api::of(&self.sandbox, stack, None);
        let title = request.title();
        api.send(request).await.unwrap_or_else(|error| panic!("{title}: {error}"))
    }

    /// What is there, by path, without what differs from run to run; of things that a controller made only
    /// how many there are.
    pub async fn world(&self, stack: &Stack) -> BTreeMap<String, Value> {
        let mut world = BTreeMap::new();
        let clusters = self.gke("GET", "/v1/projects/demo/locations/-/clusters", &Value::Null);
        for mut cluster in clusters["clusters"].as_array().cloned().unwrap_or_default() {
            let name = cluster["name"].as_str().unwrap().to_owned();
            let pools = cluster["nodePools"].take();
            for pool in pools.as_array().into_iter().flatten() {
                world.insert(format!("{name}/{}", pool["name"].as_str().unwrap()), normal(pool));
            }
            // These echo the pool that happened to be made first.
            for echo in ["nodeConfig", "nodePools", "initialNodeCount", "ipAllocationPolicy"] {
                cluster.as_object_mut().unwrap().remove(echo);
            }
            world.insert(name, normal(&cluster));
        }
        if world.contains_key(stack.cluster().rsplit('/').next().unwrap()) {
            self.inside(stack, &mut world).await;
        }
        world
    }

    async fn inside(&self, stack: &Stack, world: &mut BTreeMap<String, Value>) {
        let api = Api::of(&self.sandbox, stack, None);
        let get = async |path: &str| {
            api.send(Request::get(Which::Kubernetes, path)).await.unwrap_or_else(|error| panic!("{error}"))
        };
        let groups = get("/apis").await;
        let versions = groups["groups"].as_array().into_iter().flatten();
        let mut roots: Vec<String> = versions
            .map(|group| format!("/apis/{}", group["preferredVersion"]["groupVersion"].as_str().unwrap()))
            .collect();
        roots.push("/api/v1".to_owned());
        for root in roots {
            let list = get(&root).await;
            for kind in list["resources"].as_array().into_iter().flatten() {
                let name = kind["name"].as_str().unwrap();
                let lists = kind["verbs"].as_array().is_some_and(|verbs| verbs.contains(&json!("list")));
                if !lists || name.contains('/') || PASSING.contains(&name) {
                    continue;
                }
                let found = get(&format!("{root}/{name}")).await;
                for item in found["items"].as_array().into_iter().flatten() {
                    note(world, name, item);
                }
            }
        }
    }
}

/// Kinds whose objects come and go by themselves.
const PASSING: &[&str] = &["events", "leases", "endpointslices", "endpoints", "controllerrevisions"];

/// Notes one object of a cluster.
fn note(world: &mut BTreeMap<String, Value>, kind: &str, item: &Value) {
    let metadata = &item["metadata"];
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (namespace, name) = (word(&metadata["namespace"]), word(&metadata["name"]));
    let owner = metadata.pointer("/ownerReferences/0/kind").map(word);
    let pool = metadata.pointer("/labels/cloud.google.com~1gke-nodepool").map(word);
    if let Some(maker) = owner.or(pool) {
        let count = world.entry(format!("{kind} {namespace} of {maker}")).or_insert(json!(0));
        *count = json!(count.as_u64().unwrap() + 1);
    } else if namespace == "dask-infra" {
        // The record tells of times and numbers of applies; what it is for shows in the next plan.
        world.insert(format!("{kind} {namespace}/{name}"), Value::Null);
    } else {
        world.insert(format!("{kind} {namespace}/{name}"), normal(item));
    }
}

/// Without times, ids, addresses and certificates.
fn normal(value: &Value) -> Value {
    const PASSING: &[&str] = &[
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "generation",
        "observedGeneration",
        "time",
        "createTime",
        "etag",
        "labelFingerprint",
        "endpoint",
        "publicEndpoint",
        "privateEndpoint",
        "id",
        "clusterCaCertificate",
        "ca.crt",
        "instanceGroupUrls",
        "clusterIP",
        "clusterIPs",
        "conditions",
    ];
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(key, _)| !PASSING.contains(&key.as_str()) && !key.ends_with("Time"))
            .map(|(key, value)| (key.clone(), normal(value)))
            .collect(),
        Value::Array(items) => items.iter().map(normal).collect(),
        other => other.clone(),
    }
}
