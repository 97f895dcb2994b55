//! A sandbox in this process on tokio's paused clock, the engine pointed at it, and a look at what is there.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use apply::lock::{Holder, Liveness, Lock, LockOptions};
use apply::{AcquireError, ApplyOptions, Event, Summary};
use dask_infra::cli::dry_run::{DryRunChoice, dry_run};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::SignedDuration;
use live::connection::InProcess;
use live::deletion_scope::read_scope;
use live::{ApiError, Connection, GkeAccess, LiveApi, Options as Connect, Request};
use model::diag::{self, Look, Severity};
use model::resource::{ClusterName, Identity, Method, ObjectId, Resource, World};
use model::secrets::env_values::EnvValues;
use model::source::Sources;
use plan::scale::{ScaleRequest, scale};
use plan::{Approval, Bill, DriftReport, Inputs, Mode, Plan, Selection, StopRequest};
use sandbox::faults::Rule;
use sandbox::{Clock, Options, Sandbox, Scale, Stockout};
use serde_json::{Value, json};
use stack::lower::{Lowered, check, lower};
use stack::{Options as Reading, parse_in};
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
    pub fn of(text: &str) -> Self {
        Self::load(Path::new(""), text).unwrap_or_else(|why| panic!("{why}"))
    }

    /// Of a text, with the files that it names in a folder.
    ///
    /// # Errors
    /// The diagnostics, as users see them.
    pub fn load(folder: &Path, text: &str) -> Result<Self, String> {
        let env = |name: &str| (name == "GOOGLE_CLOUD_PROJECT").then(|| "demo".to_owned());
        let vars = BTreeMap::new();
        let options = Reading { env: &env, vars: &vars, helm: None };
        let loaded = parse_in(folder, "stack.toml", text, &options)
            .map_err(|failure| diag::render(&failure.diagnostics, &failure.sources, Look::PLAIN))?;
        let stack = Self { lowered: lower(&loaded.stack, true), sources: loaded.sources };
        match check(&stack.lowered.resources, &stack.sources).as_slice() {
            [] => Ok(stack),
            problems => Err(diag::render(problems, &stack.sources, Look::PLAIN)),
        }
    }

    /// Returns the desired resources.
    pub fn resources(&self) -> &[Resource] {
        &self.lowered.resources
    }

    /// Returns the cost of what is live, also for a stack that cannot be planned.
    pub fn live_bill(&self, world: &World) -> Option<Bill> {
        plan::cost::live_bill(&Inputs::of(self.lowered.clone(), Mode::Apply, world, &self.sources))
    }

    /// By which what was agreed to is known again.
    pub fn digest(&self) -> blake3::Hash {
        self.lowered.digest().unwrap()
    }

    /// Addresses of what `start` would bring back.
    pub fn startable(&self, world: &World) -> Vec<&model::address::Address> {
        plan::stop::startable(&self.lowered.resources, &self.lowered.external, world)
    }

    /// Returns true if the file declares a matching resource as external, also one that was the stack's before.
    pub fn is_handed_over(&self, is: impl Fn(&Identity) -> bool) -> bool {
        self.lowered.external.iter().any(|external| is(&external.resource.identity))
    }

    /// Where its fields stand.
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// The path of its GKE cluster.
    pub fn cluster(&self) -> String {
        let cluster = self.lowered.target.gke.as_ref().unwrap();
        format!("/v1/{}", cluster.path())
    }
}

/// A fault that is injected at a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Injection {
    /// The program dies, and the request is never sent.
    DeathBefore,
    /// The request is done, and the program dies.
    DeathAfter,
    /// The request is sent when the gate is opened. The program goes on with all else.
    Held,
    /// The request is done, and its answer comes when the gate is opened. The program goes on with all else.
    AnswerHeld,
    /// There are no machines from then on, for two attempts: the operation fails, and GKE has some when it
    /// tries later.
    StockOut,
}

/// Where something else than an answer goes wrong.
#[derive(Clone, Debug)]
pub enum InjectionPoint {
    /// At a request.
    At {
        /// Its verb.
        method: String,
        /// Its path without the query.
        path: String,
        /// After so many others of the same kind.
        skip: usize,
        /// The fault.
        turn: Injection,
    },
    /// At a write, whatever it is.
    Write {
        /// After so many others.
        skip: usize,
        /// The fault.
        turn: Injection,
    },
    /// At a write after the lock is taken.
    UnderLock {
        /// After so many others.
        skip: usize,
        /// True if the write is done, and its answer is late.
        done: bool,
        gate: Arc<Gate>,
    },
}

/// Where a program is held.
#[derive(Debug, Default)]
pub struct Gate {
    /// The program has come to it.
    pub reached: Notify,
    pub opens: Notify,
}

/// The connection, with a clock that follows tokio's, a list of what was asked, and a moment at which
/// something happens.
pub struct Api {
    connection: Connection,
    sandbox: Sandbox,
    clock: Seconds,
    asked: Mutex<Vec<Request>>,
    written: Mutex<Vec<Request>>,
    moment: Option<InjectionPoint>,
    dead: Notify,
}

/// Until when the sandbox has seen tokio's time pass. Processes of one time share it.
type Seconds = Arc<Mutex<Instant>>;

/// A layer in front of the APIs of a world: GKE's (`true`) and its clusters'.
pub type Layer = Arc<dyn Fn(bool, axum::Router) -> axum::Router + Send + Sync>;

/// A connection to a world through what stands before it.
fn connect(sandbox: &Sandbox, cluster: Option<ClusterName>, layer: &Layer) -> Connection {
    let (clusters, inside) = (sandbox.clone(), Arc::clone(layer));
    let in_process: InProcess = Arc::new(move |endpoint| {
        clusters.cluster_by_endpoint(endpoint).map(|id| inside(false, clusters.kubernetes_router(&id)))
    });
    Connection::new(Connect {
        endpoint: model::resource::Endpoint::Auto,
        gke: GkeAccess::InProcess(layer(true, sandbox.gke_router())),
        cluster,
        kubernetes: None,
        hosts: Vec::new(),
        gone_hosts: Vec::new(),
        in_process_kubernetes: Some(in_process),
    })
}

impl Api {
    pub(super) fn of(harness: &Harness, stack: &Stack) -> Arc<Self> {
        Self::at(&harness.sandbox, stack.lowered.target.gke.clone(), None, harness.clock())
    }

    fn to(sandbox: &Sandbox, cluster: Option<ClusterName>, moment: Option<InjectionPoint>) -> Arc<Self> {
        Self::at(sandbox, cluster, moment, Arc::new(Mutex::new(Instant::now())))
    }

    fn at(
        sandbox: &Sandbox,
        cluster: Option<ClusterName>,
        moment: Option<InjectionPoint>,
        clock: Seconds,
    ) -> Arc<Self> {
        let as_they_are: Layer = Arc::new(|_, router| router);
        let connection = connect(sandbox, cluster, &as_they_are);
        let (asked, written) = Default::default();
        Arc::new(Self {
            connection,
            sandbox: sandbox.clone(),
            clock,
            asked,
            written,
            moment,
            dead: Notify::new(),
        })
    }

    fn follow(&self) {
        follow(&self.sandbox, &self.clock);
    }

    /// Returns the fault that is injected at this request.
    fn turn(&self, request: &Request) -> Option<Injection> {
        let mut asked = self.asked.lock().unwrap();
        let turn = match self.moment.as_ref() {
            None => None,
            Some(InjectionPoint::At { method, path, skip, turn }) => {
                let is = |other: &Request| (method.as_str(), path.as_str()) == title(other);
                (is(request) && *skip == asked.iter().filter(|other| is(other)).count()).then_some(*turn)
            }
            Some(InjectionPoint::Write { skip, turn }) => {
                let writes = || asked.iter().filter(|other| other.writes()).count();
                (request.writes() && *skip == writes()).then_some(*turn)
            }
            Some(InjectionPoint::UnderLock { skip, done, .. }) => {
                let writes = asked.iter().filter(|other| other.writes());
                let since = writes.skip_while(|other| !is_of_record(other)).count();
                let turn = if *done { Injection::AnswerHeld } else { Injection::Held };
                (request.writes() && !releases(request) && since == *skip + 1).then_some(turn)
            }
        };
        asked.push(request.clone());
        turn
    }

    /// Waits at the gate.
    async fn hold(&self) {
        if let Some(InjectionPoint::UnderLock { gate, .. }) = &self.moment {
            gate.reached.notify_one();
            gate.opens.notified().await;
        }
    }

    /// Returns all requests, in order.
    pub fn asked(&self) -> Vec<Request> {
        self.asked.lock().unwrap().clone()
    }
}

/// True for requests of the ConfigMap that holds the record and the lock.
fn is_of_record(request: &Request) -> bool {
    request.path.contains("/configmaps/dask-infra-")
}

/// True for the write that gives the lock back. Nothing renews the lock any more then, so a second process may take it.
fn releases(request: &Request) -> bool {
    let without = |body: &Value| body["metadata"]["annotations"] == json!({}) && body["binaryData"].is_null();
    let gives_back = request.method == Method::Delete || request.body.as_ref().is_some_and(without);
    is_of_record(request) && gives_back
}

/// Lets the sandbox see the time that has passed, not in one leap: what is due leads to what is due next.
fn follow(sandbox: &Sandbox, clock: &Seconds) {
    let mut clock = clock.lock().unwrap();
    let gap = clock.elapsed();
    *clock = Instant::now();
    let steps = u32::try_from(gap.as_millis() / 250).unwrap_or(u32::MAX).clamp(1, 40);
    let step = SignedDuration::try_from(gap / steps).unwrap();
    for _ in 0..steps {
        sandbox.advance(step).unwrap();
    }
}

/// Tokio's clock, as a process sees it.
fn since_start() -> Duration {
    thread_local!(static FIRST: Instant = Instant::now());
    FIRST.with(Instant::elapsed)
}

/// Verb and path of a request, without its query.
pub fn title(request: &Request) -> (&str, &str) {
    (request.method.as_str(), request.path.split('?').next().unwrap_or_default())
}

impl LiveApi for Api {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Value, ApiError>> {
        async move {
            let turn = self.turn(&request);
            tokio::time::sleep(LATENCY).await;
            self.follow();
            if turn == Some(Injection::Held) {
                self.hold().await;
            }
            if turn == Some(Injection::StockOut) {
                self.sandbox.add_stockout(Stockout::next("*", 2)).unwrap();
            }
            if turn != Some(Injection::DeathBefore) {
                let result = self.connection.send(request.clone()).await;
                if request.writes() && result.is_ok() {
                    self.written.lock().unwrap().push(request);
                }
                self.follow();
                if turn == Some(Injection::AnswerHeld) {
                    self.hold().await;
                }
                if turn != Some(Injection::DeathAfter) {
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
pub struct ApplyResult {
    /// `None`: it did not begin, or the program died.
    pub summary: Option<Summary>,
    /// How long it took, by the clock of its client.
    pub took: Duration,
    /// All requests.
    pub asked: Vec<Request>,
    /// Writes that were done.
    pub written: Vec<Request>,
    /// Why it did not begin, when it did not.
    pub refused: Option<String>,
    /// The plan as it was made again under the lock, once it was.
    pub plan: Option<Plan>,
}

/// An apply that is agreed to.
pub struct ApprovedApply<'a> {
    pub process: Process,
    pub stack: &'a Stack,
    /// The plan that was approved, with its approvals.
    pub plan: Plan,
    /// The fault to inject.
    pub moment: Option<InjectionPoint>,
}

/// Why an apply ended before its first change.
enum NotStarted {
    Refused(String),
    /// Under the lock there was nothing to do any more.
    Idle,
}

/// How a plan is asked for, beyond its mode.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flags {
    /// `--target` and `--exclude`.
    pub selection: Selection,
    /// `--replace`: whole addresses or sections.
    pub replace: Vec<String>,
    /// `--retry-capacity`.
    pub retry_capacity: bool,
    pub allow: Vec<Approval>,
    pub retarget: bool,
    /// `stop` and `start`.
    pub stop_request: StopRequest,
}

/// The process that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// Without a lock.
    Unlocked,
    /// With the lock of the stack, as this process.
    Number(u32),
}

/// A world.
pub struct Harness {
    pub sandbox: Sandbox,
    /// True to refuse a world that has one thing twice.
    pub strict: bool,
    /// How long a change of an apply waits for capacity.
    pub capacity: Duration,
    /// The clock that processes of one time share, while there are several.
    pub(super) together: Option<Seconds>,
}

/// How a refusal of a world begins in which one thing has two identities.
pub const IDENTITY: &str = "one thing, one identity";

/// Requests at a time.
const PARALLEL: usize = 64;

/// Makes a plan of a stack and a world.
fn make(
    stack: &Stack,
    mode: Mode,
    flags: &Flags,
    world: &World,
    plan: impl FnOnce(Inputs<'_>) -> Result<Plan, Vec<diag::Diagnostic>>,
) -> Result<Plan, String> {
    let Flags { selection, replace, retry_capacity, allow, retarget, stop_request } = flags.clone();
    let meant = |typed: &String| {
        let named = stack.resources().iter().map(|resource| &resource.address);
        let found: Vec<_> =
            named.filter(|address| address.as_str() == typed || address.section() == typed).collect();
        found.into_iter().cloned().collect::<Vec<_>>()
    };
    let replace = replace.iter().flat_map(meant).collect();
    let mut inputs = Inputs {
        approved: allow,
        replace,
        selection,
        retry_capacity,
        allow_retarget: retarget,
        ..Inputs::of(stack.lowered.clone(), mode, world, &stack.sources)
    };
    inputs.stop_state.request = stop_request;
    plan(inputs).map_err(|problems| diag::render(&problems, &stack.sources, Look::PLAIN))
}

/// A thing that a world has under two identities.
fn duplicate_identity(world: &World) -> Option<String> {
    let mut seen: BTreeMap<&str, &ObjectId> = BTreeMap::new();
    for (object, live) in world.objects.live().into_iter().flatten() {
        let uid = live["metadata"]["uid"].as_str().unwrap_or_default();
        if let Some(other) = seen.insert(uid, object).filter(|_| !uid.is_empty()) {
            let (one, other) = (Identity::Object(object.clone()), Identity::Object(other.clone()));
            return Some(format!("{uid} is {one:?} and {other:?}"));
        }
    }
    None
}

impl Harness {
    pub fn empty() -> Self {
        Self::with(Options::default())
    }

    /// One of a sandbox with more options.
    pub fn with(options: Options) -> Self {
        Self::at_scale(SCALE, options)
    }

    /// One of a sandbox with more options, whose clusters live so many times as fast as their clients.
    pub fn at_scale(scale: Scale, options: Options) -> Self {
        let start = "2026-11-21T09:00:00Z".parse().unwrap();
        let options = Options { scale, clock: Clock::Manual(start), ..options };
        Self::of(Sandbox::open(options).unwrap(), false)
    }

    fn of(sandbox: Sandbox, strict: bool) -> Self {
        Self { sandbox, strict, capacity: ApplyOptions::CAPACITY, together: None }
    }

    /// Returns a harness for a second process on the same world. Both follow one clock from now on.
    pub fn second_process(&mut self) -> Self {
        let together = Some(self.clock());
        self.together.clone_from(&together);
        Self { together, capacity: self.capacity, ..Self::of(self.sandbox.clone(), self.strict) }
    }

    /// Nobody else is there any more.
    pub fn alone(&mut self) {
        self.together = None;
    }

    fn clock(&self) -> Seconds {
        self.together.clone().unwrap_or_else(|| Arc::new(Mutex::new(Instant::now())))
    }

    /// One with a GKE cluster that belongs to others.
    pub fn new() -> Self {
        let harness = Self::empty();
        let theirs = json!({ "cluster": { "name": "theirs", "initialNodeCount": 1 } });
        harness.gke("POST", "/v1/projects/demo/locations/us-central1-c/clusters", &theirs);
        harness.pass(20);
        harness
    }

    /// The way to its APIs, and to a cluster.
    pub fn api(&self, cluster: Option<ClusterName>) -> Arc<dyn LiveApi> {
        Api::to(&self.sandbox, cluster, None)
    }

    /// Another one that goes on from here.
    pub fn copy(&self) -> Self {
        let clock = Clock::Manual(self.sandbox.now());
        let options = Options { scale: SCALE, clock, ..Options::default() };
        Self::of(self.sandbox.copy(options).unwrap(), self.strict)
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

    /// Plans; the error has the diagnostics.
    pub async fn plan(&self, stack: &Stack, mode: Mode) -> Result<Plan, String> {
        self.plan_with(stack, mode, &Flags::default()).await
    }

    /// The plan of a command, made as `cli/session.rs` does: what would go along is looked for when something goes.
    ///
    /// # Errors
    /// The diagnostics, as users see them.
    pub async fn plan_with(&self, stack: &Stack, mode: Mode, flags: &Flags) -> Result<Plan, String> {
        let api = Api::of(self, stack);
        self.plan_over(&*api, stack, mode, flags).await
    }

    /// Plans through a layer between the program and the APIs, while the world does not change.
    ///
    /// # Errors
    /// The diagnostics, as users see them.
    pub async fn plan_through(
        &self,
        stack: &Stack,
        mode: Mode,
        flags: &Flags,
        layer: &Layer,
    ) -> Result<Plan, String> {
        let cluster = stack.lowered.target.gke.clone();
        self.plan_over(&connect(&self.sandbox, cluster, layer), stack, mode, flags).await
    }

    async fn plan_over(
        &self,
        api: &dyn LiveApi,
        stack: &Stack,
        mode: Mode,
        flags: &Flags,
    ) -> Result<Plan, String> {
        let mut read = self.read(api, stack).await?;
        let mut plan = make(stack, mode, flags, &read.world, plan::plan)?;
        if let Some(scope) = plan::deletion_scope(&plan) {
            read_scope(api, (&mut read.world, &read.listed), &scope, PARALLEL).await;
            plan = make(stack, mode, flags, &read.world, plan::plan)?;
        }
        Ok(plan)
    }

    /// The refusals of the dry runs of a plan, as the command sends them.
    ///
    /// # Panics
    /// A dry run has changed anything.
    pub async fn try_out(&self, stack: &Stack, plan: &Plan) -> Vec<String> {
        let before = self.everything();
        let api = self.api(stack.lowered.target.gke.clone());
        let (mut plan, values) = (plan.clone(), EnvValues::default());
        let context = (Some(&values), &stack.sources);
        let found = dry_run(&*api, &mut plan, context, DryRunChoice::Run, PARALLEL).await;
        assert!(before == self.everything(), "a dry run has changed something");
        let errors = found.iter().filter(|finding| finding.severity == Severity::Error);
        errors.map(|finding| finding.message.clone()).collect()
    }

    /// Every object with every field, by cluster.
    fn everything(&self) -> Vec<Vec<Value>> {
        let clusters = self.sandbox.clusters();
        clusters.iter().map(|cluster| self.sandbox.objects(cluster, Value::clone)).collect()
    }

    /// The plan of `scale ADDRESS NUMBER`.
    ///
    /// # Errors
    /// The diagnostics.
    pub async fn scale(&self, stack: &Stack, address: &str, number: u32) -> Result<Plan, String> {
        let api = Api::of(self, stack);
        let world = self.read(&*api, stack).await?.world;
        let all = stack.resources();
        let resource = all.iter().find(|resource| resource.address.as_str() == address);
        let resource = resource.ok_or_else(|| format!("{address} is not in the stack"))?;
        let scaled =
            (kinds::of(resource.kind).scale_target)(resource, all).ok_or("it has nothing to scale")?;
        let wish =
            ScaleRequest { address: &resource.address, target: &scaled, replicas: number, persist: false };
        make(stack, Mode::Apply, &Flags::default(), &world, |inputs| scale(inputs, &wish))
    }

    /// The results of `plan` and `plan --refresh-only` for one reading.
    ///
    /// # Errors
    /// The diagnostics of either.
    pub async fn plan_and_drift(&self, stack: &Stack) -> Result<(Plan, DriftReport), String> {
        let world = self.world_of(stack).await?;
        let plan = make(stack, Mode::Apply, &Flags::default(), &world, plan::plan)?;
        let inputs = Inputs::of(stack.lowered.clone(), Mode::Apply, &world, &stack.sources);
        let drift = plan::drift(inputs);
        Ok((plan, drift.map_err(|problems| diag::render(&problems, &stack.sources, Look::PLAIN))?))
    }

    /// Reads the live world as the engine does.
    ///
    /// # Errors
    /// One thing is in it twice.
    pub async fn world_of(&self, stack: &Stack) -> Result<World, String> {
        Ok(self.read(&*Api::of(self, stack), stack).await?.world)
    }

    /// Reads the live world as the engine does. It is an error if one thing is in it twice.
    async fn read(&self, api: &dyn LiveApi, stack: &Stack) -> Result<live::Reading, String> {
        let Lowered { owner, target, resources, external, .. } = &stack.lowered;
        let wanted = plan::read_set(resources, external, target, owner);
        let read = live::read(api, &wanted, PARALLEL).await;
        match duplicate_identity(&read.world) {
            Some(twice) if self.strict => Err(format!("{IDENTITY}: {twice}")),
            _ => Ok(read),
        }
    }

    /// Plans a saved plan again; the error has the diagnostics.
    pub async fn plan_again(&self, stack: &Stack, saved: &Plan) -> Result<Plan, String> {
        self.plan_again_through(&*Api::of(self, stack), stack, saved).await
    }

    async fn plan_again_through(
        &self,
        api: &dyn LiveApi,
        stack: &Stack,
        saved: &Plan,
    ) -> Result<Plan, String> {
        let wanted = plan::read_set(&saved.desired, &saved.external, &saved.target, &saved.owner);
        let mut read = live::read(api, &wanted, PARALLEL).await;
        let make = |world: &World| {
            let made = plan::plan(plan::file::replan_inputs(saved, world, &stack.sources));
            made.map_err(|problems| diag::render(&problems, &stack.sources, Look::PLAIN))
        };
        let plan = make(&read.world)?;
        let Some(scope) = plan::deletion_scope(&plan) else { return Ok(plan) };
        read_scope(api, (&mut read.world, &read.listed), &scope, PARALLEL).await;
        make(&read.world)
    }

    /// Applies a plan as it is, without a lock, under rules and with something that happens at a moment, until it ends or
    /// the program dies.
    pub async fn apply(
        &self,
        stack: &Stack,
        plan: &Plan,
        rules: Vec<Rule>,
        moment: Option<InjectionPoint>,
    ) -> ApplyResult {
        let plan = plan.clone();
        self.apply_one(ApprovedApply { process: Process::Unlocked, stack, plan, moment }, rules).await
    }

    /// Applies one plan under rules, until it ends or the program dies.
    pub async fn apply_one(&self, going: ApprovedApply<'_>, rules: Vec<Rule>) -> ApplyResult {
        self.sandbox.set_rules(rules).unwrap();
        let clock = self.clock();
        let ended = self.run(going, &clock).await;
        self.settle(&clock).await;
        self.sandbox.set_rules(Vec::new()).unwrap();
        ended
    }

    /// Applies plans at the same time, each as the commands do: under the lock, as it is made again there.
    pub async fn apply_concurrently(&self, going: Vec<ApprovedApply<'_>>) -> Vec<ApplyResult> {
        let clock = self.clock();
        let running = going.into_iter().map(|going| self.run(going, &clock));
        let ended = futures::future::join_all(running).await;
        self.settle(&clock).await;
        ended
    }

    /// Waits until requests and operations that are under way have ended.
    async fn settle(&self, clock: &Seconds) {
        tokio::time::sleep(Duration::from_secs(60)).await;
        follow(&self.sandbox, clock);
    }

    async fn run(
        &self,
        ApprovedApply { process, stack, plan, moment }: ApprovedApply<'_>,
        clock: &Seconds,
    ) -> ApplyResult {
        let api = Api::at(&self.sandbox, stack.lowered.target.gke.clone(), moment, Arc::clone(clock));
        let again = std::sync::OnceLock::new();
        let begun = Instant::now();
        let (summary, refused) = tokio::select! {
            ended = self.under_lock(process, stack, &plan, Arc::clone(&api), &again) => match ended {
                Ok(summary) => (Some(summary), None),
                Err(NotStarted::Refused(why)) => (None, Some(why)),
                Err(NotStarted::Idle) => (None, Some("under the lock there is nothing to do".to_owned())),
            },
            () = api.dead.notified() => (None, None),
        };
        let took = begun.elapsed();
        let written = std::mem::take(&mut *api.written.lock().unwrap());
        ApplyResult { summary, took, asked: api.asked(), written, refused, plan: again.into_inner() }
    }

    /// As `cli/commands/apply.rs` does it for approval that was given before.
    async fn under_lock(
        &self,
        process: Process,
        stack: &Stack,
        plan: &Plan,
        api: Arc<Api>,
        again: &std::sync::OnceLock<Plan>,
    ) -> Result<Summary, NotStarted> {
        let (_keep, interrupt) = watch::channel(0);
        let live: Arc<dyn LiveApi> = Arc::<Api>::clone(&api);
        let Process::Number(pid) = process else {
            let _first = again.set(plan.clone());
            return Ok(apply::apply(plan, live, ApplyOptions::new(interrupt), |_: Event| {}).await);
        };
        let holder = Holder { who: format!("user@host-{pid}"), pid, process: None };
        let (liveness, now) =
            ((|_| Liveness::Unknown) as fn(&str) -> Liveness, jiff::Timestamp::now as fn() -> _);
        let locking = LockOptions { holder, liveness, force: false, now, clock: since_start };
        let lock = Arc::new(Lock::new(Arc::clone(&live), &plan.owner, locking));
        let under_lock = self.plan_again_through(&*live, stack, plan);
        let now = match apply::acquire(plan, &*live, &lock, &interrupt, under_lock).await {
            Ok(now) => now,
            Err(AcquireError::Failed(why)) => return Err(NotStarted::Refused(why)),
            Err(why) => return Err(NotStarted::Refused(format!("{why:?}"))),
        };
        let missing = now.missing_approvals(&[]);
        let stopped = match () {
            () if !missing.is_empty() => Some(NotStarted::Refused(format!("stale: {missing:?}"))),
            () if now.has_nothing_to_do() => Some(NotStarted::Idle),
            () => None,
        };
        if let Some(stopped) = stopped {
            apply::release(&lock, &interrupt).await;
            return Err(stopped);
        }
        let now = again.get_or_init(|| now);
        let capacity = self.capacity;
        let options = ApplyOptions { lock: Some(lock), capacity, ..ApplyOptions::new(interrupt) };
        Ok(apply::apply(now, live, options, |_: Event| {}).await)
    }

    /// Lets time pass, as the engine's clients see it too.
    pub async fn wait(&self, stack: &Stack, seconds: u64) {
        let api = Api::of(self, stack);
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        api.follow();
    }

    /// A request of somebody else to GKE; whether it succeeded.
    pub fn try_gke(&self, method: &str, path: &str, body: &Value) -> bool {
        let bytes = if body.is_null() { String::new() } else { body.to_string() };
        self.sandbox.gke_request(method, path, "", bytes.as_bytes()).is_ok_and(|reply| reply.code < 300)
    }

    /// A request of somebody else into the stack's cluster.
    ///
    /// # Errors
    /// It was refused, or there is no cluster.
    pub async fn try_kubernetes(&self, stack: &Stack, request: Request) -> Result<Value, String> {
        let api = Api::of(self, stack);
        api.send(request).await.map_err(|error| error.to_string())
    }

    /// A request of somebody else into the stack's cluster, which must succeed.
    pub async fn kubernetes(&self, stack: &Stack, request: Request) -> Value {
        let api = Api::of(self, stack);
        let title = request.title();
        api.send(request).await.unwrap_or_else(|error| panic!("{title}: {error}"))
    }
}
