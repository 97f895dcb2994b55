//! Plays a case: the engine as the commands use it, against a sandbox in this process, with a look at everything before
//! and after each step.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use apply::lock::LockError;
use apply::{ApplyOptions, Outcome, Summary};
use dask_infra::cli::Exit;
use live::Request;
use model::record::Stop;
use model::resource::{Api as Which, Identity, Method, Resource};
use plan::propose::adopt::{self, AcceptedChanges};
use plan::{Action, Approval, Mode, Plan, Selection, StopRequest};
use serde_json::{Value, json};

use super::harness::{
    ApplyResult, ApprovedApply, Flags, Gate, Harness, Injection, InjectionPoint, Process, Stack,
};
use super::script::{
    Adopt, Approvals, Command, CronRun, Edit, Kill, Others, Run, Scale, Script, Step, Wait, WhenCapacity,
    Within,
};
use super::snapshot::{Maker, Snapshot, Thing, Uid};

/// The result of a step.
pub struct StepResult {
    pub before: Snapshot,
    pub after: Snapshot,
    /// The plan, if there was one.
    pub plan: Option<Plan>,
    /// Why it was not applied, in the program's words.
    pub refused: Option<String>,
    pub given: Vec<Approval>,
    /// How the apply ended; `None` when there was none, or the program died.
    pub summary: Option<Summary>,
    /// The refusals of the dry runs of the plan.
    pub refused_dry_runs: Vec<String>,
    /// True if the program died.
    pub died: bool,
    /// How long the apply took, by the clock of its client.
    pub took: Duration,
    /// Writes that were done.
    pub written: Vec<Request>,
    /// Plans that other processes applied at the same time, with their approvals.
    pub others: Vec<(Plan, Vec<Approval>)>,
    /// The results of what a second person tried under this command's lock.
    pub within: Vec<Self>,
}

impl StepResult {
    /// Returns true if everything that was planned is done.
    pub fn is_whole(&self) -> bool {
        let done =
            |summary: &Summary| summary.outcomes.iter().all(|(_, outcome, _)| *outcome == Outcome::Done);
        self.summary.as_ref().is_some_and(done)
    }

    /// Returns true if an apply has begun.
    pub fn is_begun(&self) -> bool {
        self.summary.is_some() || self.died
    }

    /// Returns true if another process held the lock. The name of the error comes from its type: one that is written here would
    /// go on to compile when it is renamed, and never be found.
    pub fn is_locked_out(&self) -> bool {
        let error = format!("{:?}", LockError::HeldByOther(String::new()));
        let name = error.trim_end_matches("\"\")");
        self.refused.as_deref().is_some_and(|why| why.contains(name))
    }

    /// Returns the unsuccessful changes, in words.
    pub fn failures(&self) -> Vec<String> {
        let (Some(plan), Some(summary)) = (&self.plan, &self.summary) else { return Vec::new() };
        let bad = summary.outcomes.iter().filter(|(_, outcome, _)| *outcome != Outcome::Done);
        bad.map(|(place, outcome, _)| format!("{}: {outcome:?}", plan.changes[*place].address)).collect()
    }
}

/// A sandbox with a stack file beside it.
pub struct Player {
    /// The sandbox.
    pub harness: Harness,
    /// The stack as the file says it; `None` before the first edit.
    pub stack: Option<Stack>,
    pub file: Edit,
    /// True once a command has died.
    pub died: bool,
    /// The number of the process that has the number 0 in a script.
    pub process: u32,
    /// Things that the stack had and handed over. They are the next owner's.
    pub handed_over: BTreeSet<Uid>,
    folder: tempfile::TempDir,
}

/// Why `--when-capacity` ends after an edit.
pub const EDITED: &str = "the stack file has changed since this apply was agreed to";
/// Seconds that each apply of `--when-capacity` waits for it, and those between two.
const TRY: u64 = 10;
const ASLEEP: u64 = 15;

impl Player {
    /// Nothing is there yet.
    pub fn new() -> Self {
        Self::with_harness(Harness::empty())
    }

    /// At a world.
    pub fn with_harness(harness: Harness) -> Self {
        let (harness, folder) = (Harness { strict: true, ..harness }, tempfile::tempdir().unwrap());
        Self {
            harness,
            stack: None,
            file: Edit::default(),
            died: false,
            process: 0,
            handed_over: BTreeSet::new(),
            folder,
        }
    }

    /// A stack of a file, which stands beside the others.
    ///
    /// # Errors
    /// The diagnostics of a stack that does not load.
    pub fn load(&self, edit: &Edit) -> Result<Stack, String> {
        for (name, text) in &edit.files {
            std::fs::write(self.path(name), text).unwrap();
        }
        Stack::load(self.folder.path(), &edit.stack)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the file without any `protect`, so that everything may be deleted.
    ///
    /// # Panics
    /// It is no stack, although it was one.
    pub fn unprotected(&self) -> Stack {
        let stack = self.file.stack.replace("protect = true\n", "");
        self.load(&Edit { stack, files: self.file.files.clone() }).unwrap()
    }

    /// Does one step.
    pub async fn step(&mut self, step: &Step) -> StepResult {
        let before = Snapshot::read(&self.harness.sandbox);
        let mut done = match step {
            Step::Edit(edit) => self.edit(edit),
            Step::Wait(Wait { seconds }) => {
                if let Some(stack) = &self.stack {
                    self.harness.wait(stack, *seconds).await;
                }
                StepResult::nothing()
            }
            Step::Others(request) => self.external_request(request).await,
            Step::Apply(command) => self.command(Mode::Apply, StopRequest::Leave, command).await,
            Step::Destroy(command) => self.command(Mode::Destroy, StopRequest::Leave, command).await,
            Step::Stop(command) => {
                let stop =
                    Stop { by: "ann@laptop".into(), since: "2026-11-20T18:00:00Z".into(), section: None };
                self.command(Mode::Apply, StopRequest::Stop(stop), command).await
            }
            Step::Start(command) => self.start(command).await,
            Step::Scale(scale) => self.scale(scale).await,
            Step::Adopt(section) => self.adopt(section).await,
            Step::Run(run) => self.run(run).await,
            Step::WhenCapacity(command) => Box::pin(self.when_capacity(command)).await,
            Step::CronRun(run) => self.run_cron_jobs(run).await,
        };
        (done.before, done.after) = (before, Snapshot::read(&self.harness.sandbox));
        if let Step::Apply(command) = step {
            self.note_hand_over(command, &done);
        }
        done
    }

    /// Notes what a whole apply has handed over, and what one has taken back.
    fn note_hand_over(&mut self, command: &Command, done: &StepResult) {
        let is_idle = done.refused.is_none() && done.plan.as_ref().is_some_and(Plan::has_nothing_to_do);
        let is_settled = command.is_alone() && command.is_whole() && (is_idle || done.is_whole());
        let Some(stack) = self.stack.as_ref().filter(|_| is_settled) else { return };
        for (uid, thing) in &done.after.things {
            let was_ours = done.before.things.get(uid).is_some_and(|before| before.maker == Maker::Us);
            if was_ours && stack.is_handed_over(|identity| is(identity, thing)) {
                self.handed_over.insert(uid.clone());
            } else if stack.resources().iter().any(|resource| is(&resource.identity, thing)) {
                self.handed_over.remove(uid);
            }
        }
    }

    /// As the controller of CronJobs starts Jobs. Their Pods count as workers, which do not end by themselves in the sandbox.
    async fn run_cron_jobs(&self, CronRun { namespace }: &CronRun) -> StepResult {
        let Some(stack) = &self.stack else { return StepResult::refused("no stack yet".into()) };
        let path = format!("/apis/batch/v1/namespaces/{namespace}");
        let list = Request::get(Which::Kubernetes, format!("{path}/cronjobs"));
        let all = match self.harness.try_kubernetes(stack, list).await {
            Ok(all) => all,
            Err(why) => return StepResult::refused(why),
        };
        for cron_job in all["items"].as_array().into_iter().flatten() {
            let body = Some(job_of(cron_job));
            let path = format!("{path}/jobs?fieldManager=kube-controller-manager");
            let request = Request { api: Which::Kubernetes, method: Method::Post, path, body };
            if let Err(why) = self.harness.try_kubernetes(stack, request).await {
                return StepResult::refused(why);
            }
        }
        // Their Pods get nodes.
        self.harness.wait(stack, 1).await;
        StepResult::nothing()
    }

    fn edit(&mut self, edit: &Edit) -> StepResult {
        match self.load(edit) {
            Ok(stack) => {
                (self.stack, self.file) = (Some(stack), edit.clone());
                StepResult::nothing()
            }
            Err(why) => StepResult::refused(why),
        }
    }

    async fn external_request(&mut self, Others { method, path, body }: &Others) -> StepResult {
        let body: Value = serde_json::from_str(body).unwrap_or_default();
        if path.starts_with("/v1/") {
            let done = self.harness.try_gke(method, path, &body);
            self.harness.pass(10);
            return if done { StepResult::nothing() } else { StepResult::refused("refused".into()) };
        }
        let Some(stack) = &self.stack else { return StepResult::refused("no stack yet".into()) };
        let method = match method.as_str() {
            "POST" => Method::Post,
            "PATCH" => Method::Patch,
            "MERGE" => Method::Merge,
            "DELETE" => Method::Delete,
            other => panic!("{other} is no verb of others"),
        };
        let body = (!body.is_null()).then_some(body);
        let request = Request { api: Which::Kubernetes, method, path: path.clone(), body };
        let done = self.harness.try_kubernetes(stack, request).await;
        self.harness.wait(stack, 1).await;
        done.map_or_else(StepResult::refused, |_| StepResult::nothing())
    }

    /// As `cli/commands/stop.rs` does it: the stopped resources that are meant are found first.
    async fn start(&mut self, command: &Command) -> StepResult {
        let Some(stack) = &self.stack else { return StepResult::refused("no stack yet".into()) };
        let world = match self.harness.world_of(stack).await {
            Ok(world) => world,
            Err(why) => return StepResult::refused(why),
        };
        let comes = stack.startable(&world).into_iter().map(ToString::to_string);
        let meant = |address: &String| {
            let section = address.split('/').next().unwrap_or_default();
            command.target.is_empty() || command.target.iter().any(|typed| typed == section)
        };
        let target: Vec<String> = comes.filter(meant).collect();
        if target.is_empty() {
            return StepResult::refused("nothing is stopped".into());
        }
        self.command(Mode::Apply, StopRequest::Start, &Command { target, ..command.clone() }).await
    }

    async fn command(&mut self, mode: Mode, stop_request: StopRequest, command: &Command) -> StepResult {
        let Some(mut stack) = self.stack.take() else { return StepResult::refused("no stack yet".into()) };
        let Command { target, exclude, replace, retry_capacity, meanwhile, .. } = command;
        let selection = Selection { targets: target.clone(), excludes: exclude.clone() };
        let flags = Flags {
            selection,
            replace: replace.clone(),
            retry_capacity: *retry_capacity,
            stop_request,
            ..Flags::default()
        };
        let done = match self.harness.plan_with(&stack, mode, &flags).await {
            Err(why) => StepResult::refused(why),
            Ok(plan) => {
                let mut others = Vec::new();
                if let Some(edit) = meanwhile {
                    others = self.apply_other_edit(edit, command.process).await;
                }
                for step in &command.during {
                    let held = self.stack.replace(stack);
                    let second = Box::pin(self.step(step)).await;
                    stack = std::mem::replace(&mut self.stack, held).unwrap();
                    others.extend(
                        second.plan.filter(|_| second.summary.is_some()).map(|plan| (plan, second.given)),
                    );
                }
                let mut done = self.apply_approved(&stack, plan, command).await;
                done.others.extend(others);
                done
            }
        };
        self.stack = Some(stack);
        done
    }

    /// Another process applies another file.
    async fn apply_other_edit(&self, edit: &Edit, process: u32) -> Vec<(Plan, Vec<Approval>)> {
        let Some((stack, plan, given)) = self.of_others(edit).await else { return Vec::new() };
        let process = Process::Number(process + 100);
        let going = ApprovedApply { process, stack: &stack, plan, moment: None };
        let ended = self.harness.apply_concurrently(vec![going]).await;
        ended.into_iter().filter_map(|ended| Some((ended.plan?, given.clone()))).collect()
    }

    /// The plan of another file, agreed to as a whole.
    async fn of_others(&self, edit: &Edit) -> Option<(Stack, Plan, Vec<Approval>)> {
        let stack = self.load(edit).ok()?;
        let mut plan = self.harness.plan(&stack, Mode::Apply).await.ok()?;
        plan.approved = plan.missing_approvals(&[]);
        let given = plan.approved.clone();
        (!plan.has_nothing_to_do()).then_some((stack, plan, given))
    }

    /// Applies a plan as far as it is agreed to.
    async fn apply_approved(&mut self, stack: &Stack, mut plan: Plan, command: &Command) -> StepResult {
        let Command { approval, kill, process, within, beside, .. } = command;
        let process = process + self.process;
        let missing = plan.missing_approvals(&[]);
        let given: Vec<Approval> = match approval {
            Approvals::Nothing => Vec::new(),
            Approvals::All => missing,
            Approvals::Ours => missing.into_iter().filter(|approval| is_of_ours(&plan, approval)).collect(),
        };
        let left = plan.missing_approvals(&given);
        if !left.is_empty() {
            return StepResult {
                plan: Some(plan),
                ..StepResult::refused(format!("approval required: {left:?}"))
            };
        }
        let gate = Arc::<Gate>::default();
        let moment = match (within, kill) {
            (Some(Within { write, done, .. }), _) => {
                Some(InjectionPoint::UnderLock { skip: *write, done: *done, gate: Arc::clone(&gate) })
            }
            (None, Some(kill)) => {
                let turn = if kill.after { Injection::DeathAfter } else { Injection::DeathBefore };
                Some(InjectionPoint::Write { skip: kill.write, turn })
            }
            (None, None) => None,
        };
        if plan.has_nothing_to_do() {
            return StepResult { plan: Some(plan), ..StepResult::nothing() };
        }
        let refused_dry_runs = self.harness.try_out(stack, &plan).await;
        plan.approved.clone_from(&given);
        let going = ApprovedApply { process: Process::Number(process), stack, plan: plan.clone(), moment };
        let beside = match beside {
            Some(edit) => self.of_others(edit).await,
            None => None,
        };
        let second = beside.as_ref().map(|(stack, plan, _)| {
            let process = Process::Number(process + 200);
            ApprovedApply { process, stack, plan: plan.clone(), moment: None }
        });
        let other = within.as_ref().map(|within| (self.second_person(), within));
        let applies = self.harness.apply_concurrently(std::iter::once(going).chain(second).collect());
        let over = tokio::sync::Notify::new();
        let applies = async {
            let ended = applies.await;
            over.notify_one();
            ended
        };
        let within = async {
            let Some((second, within)) = other else { return Vec::new() };
            tokio::select! {
                biased;
                () = gate.reached.notified() => run_at_gate(&gate, second, within).await,
                () = over.notified() => Vec::new(),
            }
        };
        let (mut ended, within) = futures::future::join(applies, within).await;
        self.harness.alone();
        let second = ended.split_off(1).pop().and_then(|ended| ended.plan);
        let others = second.zip(beside.map(|(_, _, given)| given)).into_iter();
        let begun = within.iter().filter(|done| done.is_begun());
        let begun = begun.filter_map(|done| Some((done.plan.clone()?, done.given.clone())));
        let others = others.chain(begun).collect();
        let Some(ApplyResult { summary, took, refused, plan: again, written, .. }) = ended.pop() else {
            return StepResult::nothing();
        };
        let died = summary.is_none() && refused.is_none();
        self.died |= died;
        StepResult {
            plan: Some(again.unwrap_or(plan)),
            refused,
            given,
            summary,
            refused_dry_runs,
            died,
            took,
            written,
            others,
            within,
            ..StepResult::nothing()
        }
    }

    /// A second person with the same file, in a folder of their own.
    fn second_person(&mut self) -> Self {
        let mut second =
            Self { process: self.process + 50, ..Self::with_harness(self.harness.second_process()) };
        let edited = second.edit(&self.file);
        assert_eq!(edited.refused, None);
        second
    }

    /// As `cli/commands/run.rs` does it.
    async fn run(&mut self, Run { section, kill, within }: &Run) -> StepResult {
        let Some(stack) = &self.stack else { return StepResult::refused("no stack yet".into()) };
        let meant = stack.resources().iter().filter(|resource| {
            resource.address.section() == section && kinds::of(resource.kind).runs_to_completion
        });
        let meant: Vec<String> = meant.map(|resource| resource.address.to_string()).collect();
        if meant.is_empty() {
            return StepResult::refused(format!("`{section}` does not run to completion"));
        }
        let (target, replace, within) = (meant.clone(), meant, within.clone());
        let command = Command { target, replace, kill: *kill, within, ..Command::default() };
        self.command(Mode::Apply, StopRequest::Leave, &command).await
    }

    /// As `cli/commands/when_capacity.rs` does it, but that it does not look at what waits: it sleeps for a while.
    async fn when_capacity(&mut self, WhenCapacity { asleep, kill }: &WhenCapacity) -> StepResult {
        let Some(stack) = &self.stack else { return StepResult::refused("no stack yet".into()) };
        let (agreed, mut asleep, mut kill) = (stack.digest(), asleep.iter(), *kill);
        let (mut written, mut others, mut within) = (Vec::new(), Vec::new(), Vec::new());
        let done = loop {
            self.harness.capacity = Duration::from_secs(TRY);
            let command = Command { kill, ..Command::default() };
            let mut done = self.command(Mode::Apply, StopRequest::Leave, &command).await;
            self.harness.capacity = ApplyOptions::CAPACITY;
            kill = kill.and_then(|Kill { write, after }| {
                Some(Kill { write: write.checked_sub(done.written.len())?, after })
            });
            written.append(&mut done.written);
            others.append(&mut done.others);
            let exit = done.summary.as_ref().map(|summary| Exit::of_summary(summary, None));
            if exit != Some(Exit::Queued) {
                break done;
            }
            let Some(step) = asleep.next() else { break done };
            let met = Box::pin(self.step(step)).await;
            others.extend(met.plan.clone().filter(|_| met.is_begun()).map(|plan| (plan, met.given.clone())));
            within.push(met);
            let Some(stack) = &self.stack else { break done };
            self.harness.wait(stack, ASLEEP).await;
            if stack.digest() != agreed {
                break StepResult { summary: None, ..StepResult::refused(EDITED.into()) };
            }
        };
        StepResult { written, others, within, ..done }
    }

    async fn scale(&mut self, Scale { address, number, kill, within }: &Scale) -> StepResult {
        let Some(stack) = self.stack.take() else { return StepResult::refused("no stack yet".into()) };
        let done = match self.harness.scale(&stack, address, *number).await {
            Err(why) => StepResult::refused(why),
            Ok(plan) => {
                let within = within.clone();
                self.apply_approved(&stack, plan, &Command { kill: *kill, within, ..Command::default() })
                    .await
            }
        };
        self.stack = Some(stack);
        done
    }

    /// As `cli/commands/adopt.rs` does: the line goes, the plan must be of that section alone.
    async fn adopt(&mut self, Adopt { section, kill }: &Adopt) -> StepResult {
        let head = format!("[{section}]\n");
        let Some((start, rest)) = self.file.stack.split_once(&head) else {
            return StepResult::refused(format!("no section {section}"));
        };
        let edit = Edit {
            stack: format!("{start}{head}{}", rest.replacen("manage = false\n", "", 1)),
            files: self.file.files.clone(),
        };
        let stack = match self.load(&edit) {
            Ok(stack) => stack,
            Err(why) => return StepResult::refused(why),
        };
        let selection = Selection { targets: vec![section.clone()], excludes: Vec::new() };
        let flags = Flags { selection, ..Flags::default() };
        let mut plan = match self.harness.plan_with(&stack, Mode::Apply, &flags).await {
            Ok(plan) => plan,
            Err(why) => return StepResult::refused(why),
        };
        let world = match self.harness.world_of(&stack).await {
            Ok(world) => world,
            Err(why) => return StepResult::refused(why),
        };
        let approvals = plan.missing_approvals(&[]);
        let agreed = AcceptedChanges { field_changes: true, approvals: &approvals };
        let address = model::address::Address::new(section.as_str());
        let against = adopt::adoption_errors(&plan, &address, &world, agreed, stack.sources());
        if let Some(problem) = against.first() {
            return StepResult::refused(problem.message.clone());
        }
        adopt::without_waits(&mut plan);
        let done = self.apply_approved(&stack, plan, &Command { kill: *kill, ..Command::default() }).await;
        if done.is_whole() || done.plan.as_ref().is_some_and(Plan::is_empty) {
            (self.stack, self.file) = (Some(stack), edit);
        }
        done
    }
}

impl StepResult {
    fn nothing() -> Self {
        Self {
            before: Snapshot::default(),
            after: Snapshot::default(),
            plan: None,
            refused: None,
            given: Vec::new(),
            summary: None,
            refused_dry_runs: Vec::new(),
            died: false,
            took: Duration::ZERO,
            written: Vec::new(),
            others: Vec::new(),
            within: Vec::new(),
        }
    }

    fn refused(why: String) -> Self {
        Self { refused: Some(why), ..Self::nothing() }
    }
}

/// Returns what came of what a second person types while the first is at a gate, and opens it.
async fn run_at_gate(gate: &Gate, mut second: Player, within: &Within) -> Vec<StepResult> {
    let mut done = Vec::new();
    for step in &within.steps {
        done.push(Box::pin(second.step(step)).await);
    }
    gate.opens.notify_one();
    done
}

/// A Job of a CronJob.
fn job_of(cron_job: &Value) -> Value {
    let name = cron_job["metadata"]["name"].as_str().unwrap_or_default();
    let owner = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "name": name, "uid": cron_job["metadata"]["uid"], "controller": true,
    });
    let mut spec = cron_job["spec"]["jobTemplate"]["spec"].clone();
    if let Some(fields) = spec.as_object_mut() {
        fields.remove("activeDeadlineSeconds");
    }
    spec["template"]["metadata"]["labels"] = json!({ "dask.org/component": "worker" });
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "spec": spec,
        "metadata": { "name": format!("{name}-run"), "ownerReferences": [owner] },
    })
}

/// Returns true if an approval is not about foreign objects.
fn is_of_ours(plan: &Plan, approval: &Approval) -> bool {
    let meant = plan.changes.iter().filter(|change| {
        change.address == approval.address || change.address.section() == approval.address.as_str()
    });
    meant
        .filter(|change| change.action != Action::Keep)
        .all(|change| !change.foreign && change.adopted.is_none())
}

/// Returns true if the engine's identity is that thing.
pub fn is(identity: &Identity, thing: &Thing) -> bool {
    match identity {
        Identity::Cluster(name) => thing.kind == "cluster" && thing.name == name.cluster,
        Identity::NodePool { pool, .. } => thing.kind == "pool" && thing.name == *pool,
        Identity::Object(object) => {
            let named = (&thing.kind, &thing.group, &thing.namespace, &thing.name);
            named == (&object.gvk.kind, &object.gvk.group, &object.namespace, &object.name)
        }
        Identity::Check(_) => false,
    }
}

/// The protected resources of a stack.
pub fn protected(stack: &Stack) -> impl Iterator<Item = &Resource> {
    stack.resources().iter().filter(|resource| resource.protect)
}

/// Plays a case on a clock that jumps over waiting; `judge` sees every step.
///
/// # Errors
/// The judge's error, with the number of the step.
pub fn play<J>(script: &Script, judge: J) -> Result<(), String>
where
    J: AsyncFn(&mut Player, &Step, &StepResult) -> Result<(), String>,
{
    paused(async {
        let mut player = Player::new();
        for (number, step) in script.steps.iter().enumerate() {
            let done = player.step(step).await;
            judge(&mut player, step, &done).await.map_err(|why| format!("at step {}: {why}", number + 1))?;
        }
        Ok(())
    })
}

/// Runs on a clock that jumps over waiting. What takes two days of that clock never ends.
///
/// # Panics
/// It never ends.
pub fn paused<T>(future: impl Future<Output = T>) -> T {
    let builder = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let days = Duration::from_secs(48 * 3600);
    builder.unwrap().block_on(async { tokio::time::timeout(days, future).await.expect("it never ended") })
}
