//! Commands that are killed at any write and typed again come to the same end as undisturbed, and so do two people who type
//! commands at the same time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use model::accrued_cost::AccruedCost;
use model::record::Record;
use model::resource::Identity;
use plan::Action;
use proptest::prelude::*;
use sandbox::Sandbox;
use serde_json::{Value, json};

use super::cases::{self, check};
use super::harness::Stack;
use super::laws::{self, Tally};
use super::player::{Player, StepResult, paused, play};
use super::script::{Adopt, Command, CronRun, Kill, Run, Scale, Script, Step, Within};
use super::snapshot::{Maker, Snapshot, Thing, Uid};
use super::stacks::{self, Change, Expiry, Section, Slot, Spec, Tweak};

/// A command.
#[derive(Clone, Debug)]
enum UserCommand {
    Stop,
    Start,
    /// The address of so many, counted round.
    Scale(usize, u32),
    Adopt(usize),
    /// A job or a check of so many, counted round.
    Run(usize),
    /// `apply` after an edit.
    Apply(Change),
    /// An edit that is not applied.
    Edit(Change),
}

#[derive(Clone, Debug)]
struct Case {
    spec: Spec,
    /// True if nothing has been applied before the first command.
    fresh: bool,
    /// Commands, and the write at which each dies.
    commands: Vec<(UserCommand, Kill)>,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{:#?}", self.spec.render().stack, self.commands)
    }
}

fn case() -> impl Strategy<Value = Case> {
    let commands = prop::collection::vec((user_command(), kill()), 3..5);
    let begins = (proptest::bool::weighted(0.15), 0..4usize);
    (spec(), begins, commands).prop_map(|(spec, (fresh, stopped), mut commands)| {
        if stopped > 0 {
            commands[0].0 = UserCommand::Stop;
        }
        if stopped > 1 {
            // Between them, or after them, an edit.
            commands[stopped - 1].0 = UserCommand::Start;
        }
        Case { spec, fresh, commands }
    })
}

fn kill() -> impl Strategy<Value = Kill> {
    (0..10usize, any::<bool>()).prop_map(|(write, after)| Kill { write, after })
}

/// Mostly with something to run.
fn spec() -> impl Strategy<Value = Spec> {
    (stacks::spec(), proptest::bool::weighted(0.4), proptest::bool::weighted(0.15)).prop_map(
        |(mut spec, job, check)| {
            let mut put = |slot| {
                if !spec.sections.iter().any(|section| section.slot == slot) {
                    spec.sections.push(Section::of(slot));
                }
            };
            if job {
                put(Slot::Operator);
                put(Slot::Job);
            }
            if check {
                put(Slot::Pool(1));
                put(Slot::Check);
            }
            spec
        },
    )
}

fn user_command() -> impl Strategy<Value = UserCommand> {
    prop_oneof![
        2 => Just(UserCommand::Stop),
        2 => Just(UserCommand::Start),
        2 => (0..16usize, 0..4u32).prop_map(|(at, number)| UserCommand::Scale(at, number)),
        1 => (0..16usize).prop_map(UserCommand::Adopt),
        2 => (0..2usize).prop_map(UserCommand::Run),
        3 => stacks::change().prop_map(UserCommand::Apply),
        1 => stacks::change().prop_map(UserCommand::Edit),
    ]
}

/// The step of a command that dies, or does not. An edit is made before it.
async fn step_of(
    player: &mut Player,
    spec: &mut Spec,
    typed: &UserCommand,
    kill: Option<Kill>,
    edits: bool,
) -> Step {
    let command = Command { kill, ..Command::default() };
    let address = |at: &usize| {
        let all = spec.addresses();
        all[at % all.len()].clone()
    };
    match typed {
        UserCommand::Stop => Step::Stop(command),
        UserCommand::Start => Step::Start(command),
        UserCommand::Scale(at, number) => {
            Step::Scale(Scale { address: address(at), number: *number, kill, within: None })
        }
        UserCommand::Adopt(at) => Step::Adopt(Adopt { section: address(at), kill }),
        UserCommand::Run(at) => {
            let ends = |address: &String| address.starts_with("dask_job.") || address.starts_with("check.");
            let all: Vec<String> = spec.addresses().into_iter().filter(ends).collect();
            let section = if all.is_empty() { "cluster".to_owned() } else { all[at % all.len()].clone() };
            Step::Run(Run { section, kill, within: None })
        }
        UserCommand::Apply(change) => {
            if edits {
                spec.edit(change);
                player.step(&Step::Edit(spec.render())).await;
            }
            Step::Apply(command)
        }
        UserCommand::Edit(change) => {
            if edits {
                spec.edit(change);
            }
            Step::Edit(spec.render())
        }
    }
}

async fn new_player(spec: &Spec) -> Player {
    let mut player = Player::new();
    for request in stacks::platform(spec) {
        player.step(&Step::Others(request)).await;
    }
    player.step(&Step::Edit(spec.render())).await;
    player
}

async fn started_player(spec: &Spec) -> Player {
    let mut player = new_player(spec).await;
    player.step(&Step::Apply(Command::default())).await;
    player
}

/// Things that cost money: pools, and the owners of workers.
fn costly(snapshot: &Snapshot) -> BTreeMap<&Uid, &Thing> {
    let costs = |thing: &Thing| {
        ["pool", "DaskCluster", "DaskWorkerGroup", "DaskJob"].contains(&thing.kind.as_str())
            && thing.maker != Maker::Machine
    };
    snapshot.things.iter().filter(|(_, thing)| costs(thing)).collect()
}

/// A `stop` makes nothing, and while a section is stopped an edit of it neither makes anything nor changes its pool.
#[derive(Default)]
struct StoppedSections {
    /// Sections that were in the file when the stack was stopped.
    slots: BTreeSet<Slot>,
    pools: BTreeMap<String, Value>,
}

impl StoppedSections {
    /// # Errors
    /// Names the things that were created or changed.
    async fn judge(
        &mut self,
        player: &Player,
        spec: &Spec,
        typed: &UserCommand,
        done: &StepResult,
    ) -> Result<(), String> {
        if !done.is_begun() {
            return Ok(());
        }
        let waits = match typed {
            UserCommand::Stop => true,
            UserCommand::Apply(Change::Tweak(slot, _)) => self.slots.contains(slot),
            UserCommand::Start | UserCommand::Adopt(_) => {
                *self = Self::default();
                return Ok(());
            }
            _ => false,
        };
        if waits {
            makes_nothing(done).map_err(|why| format!("{typed:?} while it is stopped {why}"))?;
        }
        let pools = stopped_pools(player).await;
        if let UserCommand::Apply(Change::Tweak(..)) = typed {
            for (name, pool) in &self.pools {
                if pools.get(name).is_some_and(|now| now != pool) {
                    return Err(format!(
                        "{typed:?} changes {name}, which is stopped: {pool} {}",
                        pools[name]
                    ));
                }
            }
        }
        if matches!(typed, UserCommand::Stop) {
            self.slots.extend(spec.sections.iter().map(|section| section.slot));
        }
        self.pools = pools;
        Ok(())
    }
}

/// # Errors
/// Names what was made.
pub fn makes_nothing(done: &StepResult) -> Result<(), String> {
    let before = costly(&done.before);
    let made: Vec<String> = costly(&done.after)
        .iter()
        .filter(|(uid, _)| !before.contains_key(*uid))
        .map(|(_, thing)| thing.to_string())
        .collect();
    if made.is_empty() { Ok(()) } else { Err(format!("makes {}", made.join(", "))) }
}

/// The pools that the record calls stopped, as GKE has them, without what changes by itself. `null` if a pool does not exist.
pub async fn stopped_pools(player: &Player) -> BTreeMap<String, Value> {
    let mut pools = BTreeMap::new();
    for identity in comparable_record(player).await.stopped.keys() {
        if let Identity::NodePool { cluster, pool } = identity {
            let path = format!("/v1/{}", cluster.pool_path(pool));
            let reply = player.harness.sandbox.gke_request("GET", &path, "", b"").unwrap();
            let mut live = if reply.code < 300 { reply.body } else { Value::Null };
            for own in ["status", "statusMessage", "conditions", "etag", "networkConfig"] {
                if let Some(fields) = live.as_object_mut() {
                    fields.remove(own);
                }
            }
            pools.insert(pool.clone(), live);
        }
    }
    pools
}

/// The record without times and counts, and without what may have been made and was not.
async fn comparable_record(player: &Player) -> Record {
    let Some(stack) = &player.stack else { return Record::default() };
    let mut world = player.harness.world_of(stack).await.unwrap();
    let Some(mut record) = world.record.take() else { return Record::default() };
    (record.revision, record.written, record.started, record.accrued_cost) = Default::default();
    record.inventory.retain(|entry| {
        matches!(entry.identity, Identity::Check(_)) || world.find(&entry.identity).is_some()
    });
    record.inventory.iter_mut().for_each(|entry| entry.took = None);
    record.inventory.sort_by(|one, other| one.identity.cmp(&other.identity));
    record
}

/// # Errors
/// An undisturbed run and one that was killed and typed again cannot cost the same from now on, or one of them has no cost.
async fn rates_overlap(calm: &Player, killed: &Player) -> Result<(), String> {
    let (one, two) = match (Account::read(calm).await?, Account::read(killed).await?) {
        (Some(one), Some(two)) => (one.cost.rates.running, two.cost.rates.running),
        (None, None) => return Ok(()),
        (one, two) => return Err(format!("one run has a cost: {one:?} {two:?}")),
    };
    match one.least <= two.most + 1e-4 && two.least <= one.most + 1e-4 {
        true => Ok(()),
        false => Err(format!("costs do not overlap: {one:?} {two:?}")),
    }
}

/// The cost in the record of a stack.
#[derive(Debug)]
struct Account {
    cost: AccruedCost,
    /// The uid of the record, which goes with its cluster.
    record: Option<Uid>,
}

impl Account {
    /// # Errors
    /// The record has clusters or node pools, and no cost.
    async fn read(player: &Player) -> Result<Option<Self>, String> {
        let Some(stack) = &player.stack else { return Ok(None) };
        let world = player.harness.world_of(stack).await?;
        let cost = laws::accrued_cost(world.record.as_ref())?;
        Ok(cost.map(|cost| Self { cost, record: record_uid(&player.harness.sandbox) }))
    }

    /// # Errors
    /// The cost so far has fallen or is lost, or its bounds are in the wrong order.
    fn grows(before: Option<&Self>, player: &Player, after: Option<&Self>) -> Result<(), String> {
        let Some(before) = before else { return Ok(()) };
        // That of a cluster that was recreated counts from its own start.
        if record_uid(&player.harness.sandbox) != before.record {
            return Ok(());
        }
        let Some(after) = after else { return Err(format!("the cost so far is lost: {before:?}")) };
        let (one, two) = (&before.cost.total, &after.cost.total);
        let is_same = before.cost.since == after.cost.since;
        match is_same && one.least <= two.least && one.most <= two.most && after.cost.is_sound() {
            true => Ok(()),
            false => Err(format!("the cost so far has fallen from {before:?} to {after:?}")),
        }
    }
}

fn record_uid(sandbox: &Sandbox) -> Option<Uid> {
    let name = Record::object("team").name;
    let snapshot = Snapshot::read(sandbox);
    let mut all = snapshot.things.iter();
    all.find(|(_, thing)| thing.kind == "ConfigMap" && thing.name == name).map(|(uid, _)| uid.clone())
}

/// All that is there, and what the record says of each thing.
async fn facts(player: &Player, stack: &Stack) -> BTreeMap<String, Value> {
    player.harness.wait(stack, 120).await;
    let mut facts = player.harness.world(stack).await;
    let mut record = comparable_record(player).await;
    for entry in std::mem::take(&mut record.inventory) {
        facts.insert(format!("record of {}", entry.identity), json!(entry));
    }
    let Value::Object(rest) = json!(record) else { return facts };
    facts.extend(rest.into_iter().map(|(key, value)| (format!("record: {key}"), value)));
    facts
}

/// Says how two worlds of one stack and their records differ.
///
/// # Errors
/// They do.
pub async fn differ(calm: &Player, other: &Player) -> Result<(), String> {
    let (Some(stack), Some(same)) = (&calm.stack, &other.stack) else { return Ok(()) };
    let (one, two) = (facts(calm, stack).await, facts(other, same).await);
    let keys: BTreeSet<&String> = one.keys().chain(two.keys()).collect();
    let differ = keys.into_iter().filter(|key| one.get(*key) != two.get(*key));
    let differ: Vec<String> =
        differ.map(|key| format!("{key}: {:?} {:?}", one.get(key), two.get(key))).collect();
    if differ.is_empty() { Ok(()) } else { Err(differ.join("\n")) }
}

#[test]
fn a_command_that_is_killed_and_typed_again_comes_to_the_same_end() {
    let tally = Tally::default();
    check("killed commands", 4, case().boxed(), |Case { spec, fresh, commands }| {
        paused(async {
            let (mut calm, mut killed) = match fresh {
                true => (new_player(spec).await, new_player(spec).await),
                false => (started_player(spec).await, started_player(spec).await),
            };
            let (mut spec, mut same) = (spec.clone(), spec.clone());
            let mut stopped = StoppedSections::default();
            for (number, (typed, kill)) in commands.iter().enumerate() {
                let step = step_of(&mut calm, &mut spec, typed, None, true).await;
                let done = calm.step(&step).await;
                tally.step(&step, &done);
                let judged = stopped.judge(&calm, &spec, typed, &done).await;
                judged.map_err(|why| format!("{number}: {why}"))?;
                let cost = Account::read(&killed).await?;
                let dies = step_of(&mut killed, &mut same, typed, Some(*kill), true).await;
                let first = killed.step(&dies).await;
                tally.step(&dies, &first);
                laws::costs_are_in_bounds(&killed, &first).await?;
                if first.died {
                    let again = step_of(&mut killed, &mut same, typed, None, false).await;
                    let again = killed.step(&again).await;
                    // A death after the last write leaves nothing to do, and then nothing is stopped any more.
                    let idle = again.refused.as_deref().is_none_or(|why| why.contains("nothing"));
                    if !idle && done.refused.is_none() {
                        return Err(format!("{number}: {typed:?} again: {:?}", again.refused));
                    }
                }
                let grown = Account::read(&killed).await?;
                Account::grows(cost.as_ref(), &killed, grown.as_ref())?;
                if !done.is_begun() && !first.is_begun() {
                    continue;
                }
                rates_overlap(&calm, &killed).await.map_err(|why| format!("{number}: {typed:?}: {why}"))?;
                if first.died && matches!(typed, UserCommand::Run(_)) {
                    // It selects what the check needs. A first pool that came with a cluster is noted with the cluster, or, where
                    // that command died, by the next one that selects it.
                    calm.step(&Step::Apply(Command::default())).await;
                    killed.step(&Step::Apply(Command::default())).await;
                }
                differ(&calm, &killed)
                    .await
                    .map_err(|why| format!("{number}: {typed:?}: undisturbed and after a kill: {why}"))?;
            }
            Ok(())
        })
    });
}

/// A second person acts between plan and lock: in the end it is as if they had typed before the first.
#[test]
fn what_a_second_person_starts_or_stops_meanwhile_stays_so() {
    let tally = Tally::default();
    let edit = prop_oneof![
        2 => Just(Change::Put(Section::of(Slot::Namespace(2)))),
        1 => stacks::change(),
    ];
    let cases = (stacks::spec(), edit, any::<bool>());
    let cases = cases.prop_map(|(mut spec, edit, starts)| {
        (spec.own_cluster, spec.autopilot) = (true, false);
        SecondUser { spec, edit, starts }
    });
    check("second person", 4, cases.boxed(), |SecondUser { spec, edit, starts }| {
        paused(async {
            let (mut calm, mut player) = (started_player(spec).await, started_player(spec).await);
            let plain = Command::default;
            let mut spec = spec.clone();
            spec.edit(edit);
            for player in [&mut calm, &mut player] {
                if *starts {
                    player.step(&Step::Stop(plain())).await;
                }
                player.step(&Step::Edit(spec.render())).await;
            }
            let second = if *starts { Step::Start(plain()) } else { Step::Stop(plain()) };
            let apply = |during: Vec<Step>| Step::Apply(Command { during, process: 1, ..plain() });
            calm.step(&second).await;
            calm.step(&apply(Vec::new())).await;
            let first = apply(vec![second]);
            let done = player.step(&first).await;
            tally.step(&first, &done);
            laws::deletions_are_named(&player, &first, &done)?;
            if !done.is_whole() {
                player.step(&apply(Vec::new())).await;
            }
            differ(&calm, &player)
                .await
                .map_err(|why| format!("one after the other, and one within the other: {why}"))
        })
    });
}

/// Dask clusters that go by themselves, stopped or changed while their CronJobs look after them.
fn expiring_clusters() -> impl Strategy<Value = Script> {
    let passing = prop::sample::select(vec![Expiry::Ttl, Expiry::IdleStop, Expiry::Both]);
    let more = [Slot::Pool(1), Slot::Pool(2), Slot::Dask(1), Slot::Namespace(1)].map(Section::of).to_vec();
    let command = prop_oneof![
        2 => Just(None),
        2 => (0..3usize).prop_map(Some),
    ];
    let commands = prop::collection::vec(command, 1..3);
    (passing, 0..2usize, prop::sample::subsequence(more, 0..=3), commands).prop_map(
        |(passing, namespace, mut sections, commands)| {
            sections.push(Section::of(Slot::Operator));
            sections.push(Section { passing, namespace, ..Section::of(Slot::Dask(0)) });
            let (own_cluster, keys) = (true, super::gke_keys::Keys::new());
            let (regional, autopilot, labels, protect) = Default::default();
            let spec = Spec { own_cluster, regional, autopilot, keys, labels, protect, sections };
            let pools: Vec<String> =
                spec.addresses().into_iter().filter(|address| address.starts_with("node_pool.")).collect();
            let namespace = stacks::NAMESPACES[namespace].to_owned();
            let mut steps = vec![Step::Edit(spec.render()), Step::Apply(Command::default())];
            steps.push(Step::CronRun(CronRun { namespace }));
            steps.extend(commands.into_iter().map(|pool| {
                let target = pool.map(|at| pools[at % pools.len()].clone()).into_iter().collect();
                Step::Stop(Command { target, ..Command::default() })
            }));
            Script { steps, ..Script::default() }
        },
    )
}

#[test]
fn a_stop_needs_no_approval_for_what_the_stacks_own_controllers_made() {
    let tally = Tally::default();
    check("looked after", 2, expiring_clusters().boxed(), |script| {
        play(script, async |player, step, done| {
            tally.step(step, done);
            match (step, &done.refused) {
                (Step::CronRun(_), Some(why)) => Err(format!("the CronJobs start nothing: {why}")),
                _ => laws::all(player, step, done).await,
            }
        })
    });
    tally.demand(2, &["cron jobs run: nothing to do", "stop: done"]);
}

#[derive(Clone, Debug)]
struct SecondUser {
    spec: Spec,
    edit: Change,
    starts: bool,
}

impl fmt::Display for SecondUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\nedit: {:?}\nstarts: {}", self.spec.render().stack, self.edit, self.starts)
    }
}

/// Two people, and the write of the first at which the second types.
#[derive(Clone, Debug)]
struct TwoUsers {
    spec: Spec,
    /// True where the stack is stopped before.
    stopped: bool,
    first: UserCommand,
    second: UserCommand,
    /// Where the first dies, or waits for what the second does.
    at: Kill,
}

impl fmt::Display for TwoUsers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{self:#?}", self.spec.render().stack)
    }
}

/// They meet at every so manieth write.
fn two_users(apart: usize) -> impl Strategy<Value = TwoUsers> {
    let maybe = [Slot::Job, Slot::Dask(1), Slot::Pool(2), Slot::Namespace(1)].map(Section::of).to_vec();
    let spec = prop::sample::subsequence(maybe, 0..=3).prop_map(|mut sections| {
        sections.extend([Slot::Operator, Slot::Dask(0)].map(Section::of));
        let (keys, own_cluster) = (super::gke_keys::Keys::new(), true);
        let (regional, autopilot, labels, protect) = Default::default();
        Spec { own_cluster, regional, autopilot, keys, labels, protect, sections }
    });
    // Sections that both people know, so that each edit has something to do.
    let tweak = prop::sample::select(vec![Tweak::Variant, Tweak::Number(2), Tweak::Extra, Tweak::Labels]);
    let edit = prop_oneof![
        3 => tweak.prop_map(|tweak| Change::Tweak(Slot::Dask(0), tweak)),
        1 => Just(Change::Remove(Slot::Dask(0))),
        1 => stacks::change(),
    ];
    let first = prop_oneof![
        2 => Just(UserCommand::Stop),
        1 => (0..16usize, 0..4u32).prop_map(|(at, number)| UserCommand::Scale(at, number)),
        1 => Just(UserCommand::Run(0)),
        3 => edit.clone().prop_map(UserCommand::Apply),
    ];
    let second = prop_oneof![
        2 => Just(UserCommand::Stop),
        1 => Just(UserCommand::Start),
        1 => (0..16usize, 0..4u32).prop_map(|(at, number)| UserCommand::Scale(at, number)),
        3 => edit.prop_map(UserCommand::Apply),
    ];
    let people = (proptest::bool::weighted(0.25), first, second);
    (spec, people, (0..5usize, any::<bool>())).prop_map(move |(spec, people, (write, after))| {
        let (stopped, first, second) = people;
        let first = if stopped { UserCommand::Start } else { first };
        TwoUsers { spec, stopped, first, second, at: Kill { write: apart * write, after } }
    })
}

impl TwoUsers {
    /// The file and the command of a person. Each knows the file of before and what they edit themselves.
    async fn steps(&self, player: &mut Player, typed: &UserCommand, kill: Option<Kill>) -> [Step; 2] {
        let mut spec = self.spec.clone();
        let step = step_of(player, &mut spec, typed, kill, false).await;
        if let UserCommand::Apply(change) = typed {
            spec.edit(change);
        }
        [Step::Edit(spec.render()), step]
    }

    /// Types the command of a person.
    async fn types(
        &self,
        player: &mut Player,
        typed: &UserCommand,
        process: u32,
        kill: Option<Kill>,
    ) -> Result<(Step, StepResult), String> {
        let [edit, step] = self.steps(player, typed, kill).await;
        player.process = process;
        player.step(&edit).await;
        let done = player.step(&step).await;
        laws::deletions_are_named(player, &step, &done)?;
        Ok((step, done))
    }

    async fn started_player(&self) -> Player {
        let mut player = started_player(&self.spec).await;
        if self.stopped {
            player.step(&Step::Stop(Command::default())).await;
        }
        player
    }

    /// The first dies, and the second goes on; then both type their commands again.
    async fn over_a_dead_one(&self, tally: &Tally) -> Result<(), String> {
        let mut player = self.started_player().await;
        self.types(&mut player, &self.first, 0, Some(self.at)).await?;
        let died = player.died;
        for (typed, process) in [(&self.second, 50), (&self.first, 0), (&self.second, 50)] {
            let (step, done) = self.types(&mut player, typed, process, None).await?;
            tally.step(&step, &done);
            if done.is_locked_out() {
                return Err(format!("{typed:?} is locked out by a process that died ({died})"));
            }
            laws::second_plan_is_empty(&mut player, &step, &done).await?;
            laws::live_keys_match(&player, &step, &done)?;
        }
        laws::everything_is_found(&mut player).await
    }

    /// The second is locked out while the first is under way, and comes to the same end when it is typed afterwards.
    async fn check_locked_out(&self, tally: &Tally) -> Result<(), String> {
        let (mut calm, mut player) = (self.started_player().await, self.started_player().await);
        for (typed, process) in [(&self.first, 0), (&self.second, 50)] {
            self.types(&mut calm, typed, process, None).await?;
        }
        let [edit, mut step] = self.steps(&mut player, &self.first, None).await;
        let steps = self.steps(&mut player, &self.second, None).await.to_vec();
        let within = Some(Within { write: self.at.write, done: self.at.after, steps });
        match &mut step {
            Step::Stop(command) | Step::Start(command) | Step::Apply(command) => command.within = within,
            Step::Scale(scale) => scale.within = within,
            Step::Run(run) => run.within = within,
            other => unreachable!("{other:?} is no first command"),
        }
        player.step(&edit).await;
        let done = player.step(&step).await;
        tally.step(&step, &done);
        laws::deletions_are_named(&player, &step, &done)?;
        // With the cluster goes the place of the lock.
        let goes = |change: &plan::Change| {
            matches!(change.identity, Identity::Cluster(_))
                && matches!(change.action, Action::Delete | Action::Replace)
        };
        if done.plan.iter().any(|plan| plan.changes.iter().any(goes)) {
            return Ok(());
        }
        if let Some(tried) = done.within.last() {
            tally.count(if tried.is_locked_out() {
                LOCKED_OUT[usize::from(self.at.after)]
            } else {
                "not begun"
            });
            if tried.is_begun() || !tried.written.is_empty() {
                let titles =
                    |done: &StepResult| done.written.iter().map(live::Request::title).collect::<Vec<_>>();
                let (one, two) = (titles(&done), titles(tried));
                return Err(format!("the second wrote under the lock of the first: {two:?} within {one:?}"));
            }
        }
        self.types(&mut player, &self.second, 50, None).await?;
        differ(&calm, &player).await.map_err(|why| format!("alone and beside another one: {why}"))
    }
}

#[test]
fn a_second_person_goes_on_where_the_first_died() {
    let tally = Tally::default();
    check("after a death", 2, two_users(2).boxed(), |case| paused(case.over_a_dead_one(&tally)));
}

/// The results for the second person while the first waits to send a write, and while it waits for the answer.
const LOCKED_OUT: [&str; 2] = ["locked out before a write", "locked out before its answer"];

#[test]
fn a_second_person_between_two_writes_is_locked_out() {
    let tally = Tally::default();
    check("between two writes", 4, two_users(1).boxed(), |case| paused(case.check_locked_out(&tally)));
    // Both come within fourteen cases of seed 0, which is what a night tries at least.
    tally.demand_any(4, &LOCKED_OUT);
    if cases::count(4) >= 14 {
        tally.demand(4, &LOCKED_OUT);
    }
}
