//! Properties that hold after any step of any case. Judged by uid, out of the sandbox's store.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use live::Request;
use model::accrued_cost::{AccruedCost, CostRange};
use model::record::{NAMESPACE as RECORDS, Record};
use model::resource::{Api, Identity, Method};
use plan::{Action, Approval, ApprovalVerb, Change, Mode, Plan};
use serde_json::Value;

use super::harness::{Flags, IDENTITY};
use super::player::{Player, StepResult, is, protected};
use super::script::{Approvals, Command, Run, Step};
use super::snapshot::{Maker, Snapshot, Thing, Uid, is_ours};
use super::{calls, cases, gke_keys};

/// Every law that can be judged step by step.
///
/// # Errors
/// The law that is broken, and by what.
pub async fn all(player: &mut Player, step: &Step, done: &StepResult) -> Result<(), String> {
    deletions_are_named(player, step, done)?;
    one_identity(done)?;
    calls::calls_match_plan(done)?;
    dry_runs_match_apply(done)?;
    // The lock of a program that died is waited for.
    if !player.died {
        in_time(step, done)?;
    }
    foreign_only(done)?;
    costs_are_in_bounds(player, done).await?;
    second_plan_is_empty(player, step, done).await?;
    live_keys_match(player, step, done)?;
    everything_is_found(player).await
}

/// **Dry runs match the apply.** A dry run refuses nothing that the apply of the plan then does.
///
/// # Errors
/// The refusal.
pub fn dry_runs_match_apply(done: &StepResult) -> Result<(), String> {
    match done.refused_dry_runs.first().filter(|_| done.is_whole()) {
        Some(refused) => Err(format!("dry runs match the apply: {refused}, and the apply did it")),
        None => Ok(()),
    }
}

/// **Honesty.** Whatever vanished was named as going, or belongs to what was; what others made was named as theirs and
/// approved; what is protected is still there.
///
/// # Errors
/// The thing that vanished.
pub fn deletions_are_named(player: &Player, step: &Step, done: &StepResult) -> Result<(), String> {
    if matches!(step, Step::Edit(_) | Step::Others(_) | Step::CronRun(_) | Step::Wait(_)) {
        return Ok(());
    }
    let changes: &[Change] = match &done.plan {
        Some(plan) if done.is_begun() => &plan.changes,
        _ => &[],
    };
    let goes = |change: &&Change| matches!(change.action, Action::Delete | Action::Replace);
    let of_others = done.others.iter().flat_map(|(plan, _)| &plan.changes);
    let named: Vec<&Change> = changes.iter().chain(of_others).filter(goes).collect();
    let given = done.others.iter().flat_map(|(_, given)| given).chain(&done.given);
    let given: Vec<&Approval> = given.collect();
    let covered = DeletedWith::of(&done.before, &named);
    let stack = player.stack.as_ref();
    for (uid, thing) in done.before.removed_since(&done.after) {
        let shielded = stack.into_iter().flat_map(protected).find(|resource| is(&resource.identity, thing));
        if let Some(resource) = shielded.filter(|_| !thing.passing) {
            return Err(format!("honesty: {} is protected, and {thing} is gone", resource.address));
        }
        // A cluster's contents are deleted with it.
        let is_next_owners =
            player.handed_over.contains(uid) && done.after.things.contains_key(&thing.cluster);
        match if is_next_owners { Maker::Others } else { thing.maker } {
            Maker::Machine => {}
            Maker::Us if is_bookkeeping(thing) => {}
            Maker::Us if covered.has(uid) => {}
            Maker::Us => return Err(format!("honesty: {thing} is gone, and the plan did not say so")),
            Maker::Others => foreign_deletions_are_approved(thing, uid, &covered, &named, &given)?,
        }
    }
    Ok(())
}

/// Foreign things are deleted only by their own name or that of their namespace, marked as foreign, with an approval.
fn foreign_deletions_are_approved(
    thing: &Thing,
    uid: &Uid,
    covered: &DeletedWith<'_>,
    named: &[&Change],
    given: &[&Approval],
) -> Result<(), String> {
    let home = |change: &&&Change| match &change.identity {
        Identity::Object(object) => {
            object.gvk.kind == "Namespace" && thing.namespace.as_deref() == Some(object.name.as_str())
        }
        _ => false,
    };
    let foreign = |change: &&&Change| change.foreign;
    let by = named.iter().filter(foreign).find(|change| is(&change.identity, thing));
    let Some(by) = by.or_else(|| named.iter().filter(foreign).find(home)) else {
        let how = if covered.has(uid) { "as a thing of its own" } else { "at all" };
        return Err(format!("honesty: others made {thing}; it is gone, and the plan did not name it {how}"));
    };
    let agreed = given.iter().any(|approval| {
        approval.verb == ApprovalVerb::Delete
            && (approval.address == by.address || approval.address.as_str() == by.address.section())
    });
    match agreed {
        true => Ok(()),
        false => {
            Err(format!("honesty: others made {thing}; it is gone without an approval of {}", by.address))
        }
    }
}

/// The record, its lock, its namespace, and pods of checks: what a command keeps for itself.
fn is_bookkeeping(thing: &Thing) -> bool {
    let record = thing.namespace.as_deref() == Some(RECORDS) && thing.name.starts_with("dask-infra-");
    let home = thing.kind == "Namespace" && thing.name == RECORDS;
    record || home || (thing.kind == "Pod" && thing.name.starts_with("check-"))
}

/// Returns true for objects that a cluster puts into every namespace. An object that is not managed by
/// the stack may name no manager: one that was applied with its name alone has no field of its own.
fn is_of_every_namespace(thing: &Thing) -> bool {
    matches!(
        (thing.kind.as_str(), thing.name.as_str()),
        ("ConfigMap", "kube-root-ca.crt") | ("ServiceAccount", "default") | ("Event", _)
    )
}

/// Things that are deleted with the named ones.
struct DeletedWith<'a> {
    uids: BTreeSet<&'a Uid>,
}

impl<'a> DeletedWith<'a> {
    fn of(before: &'a Snapshot, named: &[&Change]) -> Self {
        let is_named = |thing: &Thing| named.iter().any(|change| is(&change.identity, thing));
        let named = before.things.iter().filter(|(_, thing)| is_named(thing) || thing.passing);
        let mut uids: BTreeSet<&Uid> = named.map(|(uid, _)| uid).collect();
        loop {
            let more: Vec<&Uid> = before
                .things
                .iter()
                .filter(|(uid, thing)| !uids.contains(uid) && Self::follows(&uids, thing))
                .map(|(uid, _)| uid)
                .collect();
            if more.is_empty() {
                return Self { uids };
            }
            uids.extend(more);
        }
    }

    /// Owners take along what they own, a cluster all that is in it.
    fn follows(uids: &BTreeSet<&Uid>, thing: &Thing) -> bool {
        uids.contains(&thing.cluster) || thing.owners.iter().any(|owner| uids.contains(owner))
    }

    fn has(&self, uid: &Uid) -> bool {
        self.uids.contains(uid)
    }
}

/// **One thing, one identity.** No world has a thing twice. Every plan looks, and is refused in these words.
///
/// # Errors
/// The thing.
pub fn one_identity(done: &StepResult) -> Result<(), String> {
    match &done.refused {
        Some(why) if why.starts_with(IDENTITY) => Err(why.clone()),
        _ => Ok(()),
    }
}

/// Seconds by the clock of the client that a command takes at most: a cluster is there after one of them, so what takes longer
/// waits for what will not be.
const SOON: Duration = Duration::from_secs(120);

/// **In time.** A command that nothing disturbs ends soon.
///
/// # Errors
/// How long it took, and what did not come.
pub fn in_time(step: &Step, done: &StepResult) -> Result<(), String> {
    let command = match step {
        Step::Apply(command) | Step::Destroy(command) | Step::Stop(command) | Step::Start(command) => command,
        Step::Run(Run { kill: None, within: None, .. }) => &Command::default(),
        _ => return Ok(()),
    };
    let others = command.meanwhile.is_some() || command.within.is_some() || command.beside.is_some();
    let disturbed = command.kill.is_some() || others;
    if disturbed || done.took <= SOON {
        return Ok(());
    }
    Err(format!("time: it took {:?}: {}", done.took, done.failures().join("; ")))
}

/// **Approvals name foreign objects.** What is asked for as not of this stack was not made by a controller for a thing of ours.
///
/// # Errors
/// The approval that is asked for, and the thing of the stack.
pub fn foreign_only(done: &StepResult) -> Result<(), String> {
    let asked = done.plan.iter().flat_map(|plan| plan.changes.iter().filter(|change| change.foreign));
    for change in asked {
        let Some((_, thing)) = done.before.things.iter().find(|(_, thing)| is(&change.identity, thing))
        else {
            continue;
        };
        if thing.maker != Maker::Machine {
            continue;
        }
        let mut open: Vec<&Uid> = thing.owners.iter().collect();
        while let Some(owner) = open.pop().and_then(|uid| done.before.things.get(uid)) {
            if owner.maker == Maker::Us {
                return Err(format!(
                    "foreign: approval of {} is asked for, which a controller made for {owner}",
                    change.address
                ));
            }
            open.extend(&owner.owners);
        }
    }
    Ok(())
}

/// **Costs are bounded.** After any command, and after its death, the live nodes and clusters cost no less and no more than the
/// record says from then on. From the mark of a stop of the whole stack, the bounds hold both them and a cluster without nodes.
///
/// # Errors
/// The cost, and the bounds; or a record without a cost that has something with a price.
pub async fn costs_are_in_bounds(player: &Player, done: &StepResult) -> Result<(), String> {
    let Some(stack) = player.stack.as_ref().filter(|_| done.is_begun()) else { return Ok(()) };
    let world = player.harness.world_of(stack).await?;
    let Some(cost) = accrued_cost(world.record.as_ref())? else { return Ok(()) };
    // What is live, as the stack may have edits that cannot be planned.
    let bill = stack.live_bill(&world).unwrap_or_default();
    let now = bill.total().before.usd;
    let clusters = stack.resources().iter().filter(|one| matches!(one.identity, Identity::Cluster(_)));
    let clusters = clusters.filter_map(|cluster| bill.sections.get(&cluster.address));
    let stopped: f64 = clusters.map(|section| section.before.usd).sum();
    let (running, stopping) = (&cost.rates.running, &cost.rates.while_stopping());
    // A hundredth of a cent, as sums of floats are apart.
    let holds = |range: &CostRange, usd: f64| range.least <= usd + 1e-4 && usd <= range.most + 1e-4;
    match cost.is_sound() && holds(running, now) && holds(stopping, now) && holds(stopping, stopped) {
        true => Ok(()),
        false => Err(format!(
            "costs are bounded: {now} an hour, {stopped} without nodes, and the record has {cost:?}"
        )),
    }
}

/// Returns the cost in a record; `None` where nothing of the stack has a price.
///
/// # Errors
/// The record has clusters or node pools, and no cost.
pub fn accrued_cost(record: Option<&Record>) -> Result<Option<AccruedCost>, String> {
    let Some(record) = record else { return Ok(None) };
    let is_billed =
        |identity: &Identity| matches!(identity, Identity::Cluster(_) | Identity::NodePool { .. });
    match (&record.accrued_cost, record.inventory.iter().find(|entry| is_billed(&entry.identity))) {
        (None, Some(billed)) => {
            Err(format!("costs are bounded: the record has {} and no cost", billed.address))
        }
        (cost, _) => Ok(cost.clone()),
    }
}

/// **A second plan is empty** after every apply that did all it planned, with the same flags.
///
/// # Errors
/// The changes of the second plan.
pub async fn second_plan_is_empty(player: &mut Player, step: &Step, done: &StepResult) -> Result<(), String> {
    let (Step::Apply(command) | Step::Destroy(command) | Step::Stop(command) | Step::Start(command)) = step
    else {
        return Ok(());
    };
    if !done.is_whole() || command.meanwhile.is_some() || !command.is_alone() {
        return Ok(());
    }
    let mode = if matches!(step, Step::Destroy(_)) { Mode::Destroy } else { Mode::Apply };
    let Some(stack) = &player.stack else { return Ok(()) };
    let halts = matches!(step, Step::Stop(_) | Step::Start(_));
    if halts && player.died {
        // A command that died elsewhere may have left changes to do.
        return Ok(());
    }
    let selection = plan::Selection { targets: command.target.clone(), excludes: command.exclude.clone() };
    let flags = Flags { selection, ..Flags::default() };
    match player.harness.plan_with(stack, mode, &flags).await {
        Ok(plan) if plan.is_empty() => Ok(()),
        Ok(plan) => Err(format!("second plan: it is not empty: {}", actions(&plan).join("; "))),
        // A flag cannot name a resource that is deleted.
        Err(why) if mode == Mode::Destroy && !command.is_whole() && why.contains("no address") => Ok(()),
        Err(why) => Err(format!("second plan: there is none: {why}")),
    }
}

/// **The wish is reached.** After a whole apply, or where there was nothing to do, our pools have the taints of the file
/// and no others but GKE's own, and GKE has what the keys of the cluster and of the pools say.
///
/// # Errors
/// The pool, or the key.
pub fn live_keys_match(player: &Player, step: &Step, done: &StepResult) -> Result<(), String> {
    let Step::Apply(command) = step else { return Ok(()) };
    let nothing = done.plan.as_ref().is_some_and(Plan::is_empty);
    let alone = command.is_alone() && command.is_whole();
    let Some(stack) = player.stack.as_ref().filter(|_| alone && (nothing || done.is_whole())) else {
        return Ok(());
    };
    let file: toml::Value = toml::from_str(&player.file.stack).unwrap();
    // Edits of what is stopped wait.
    let halts = done.plan.as_ref().map(|plan| &plan.stop_state);
    let runs = |resource: &&model::resource::Resource| {
        halts.is_none_or(|halts| !halts.stopped.contains_key(&resource.identity))
    };
    for resource in stack.resources().iter().filter(runs) {
        let (of, path, section) = match &resource.identity {
            Identity::Cluster(cluster) => (gke_keys::CLUSTER, cluster.path(), &file["cluster"]),
            Identity::NodePool { cluster, pool } => {
                let address = resource.address.to_string();
                let key = address.strip_prefix("node_pool.").unwrap_or_default();
                (gke_keys::POOL, cluster.pool_path(pool), &file["node_pool"][key])
            }
            _ => continue,
        };
        let live = player.harness.gke("GET", &format!("/v1/{path}"), &Value::Null);
        gke_keys::is_live(of, section, &live).map_err(|why| format!("wish: {}: {why}", resource.address))?;
    }
    for resource in stack.resources().iter().filter(runs) {
        let Identity::NodePool { cluster, pool } = &resource.identity else { continue };
        let live = player.harness.gke("GET", &format!("/v1/{}", cluster.pool_path(pool)), &Value::Null);
        let taints = |pool: &Value| {
            let all = pool["config"]["taints"].as_array().cloned().unwrap_or_default();
            // GKE adds these.
            let own = ["nvidia.com/gpu", "cloud.google.com/gke-queued", "kubernetes.io/arch"];
            let is_own = |taint: &Value| own.iter().any(|key| taint["key"] == *key);
            all.into_iter().filter(|taint| !is_own(taint)).collect::<Vec<_>>()
        };
        let (wished, found) = (taints(&resource.body), taints(&live));
        if wished != found {
            return Err(format!("wish: node pool {pool} has the taints {found:?}, the file says {wished:?}"));
        }
    }
    Ok(())
}

/// **Nothing is forgotten.** What carries our mark is found by `plan --destroy` with the file as it is.
///
/// # Errors
/// The thing that is not found.
pub async fn everything_is_found(player: &mut Player) -> Result<(), String> {
    if player.stack.is_none() {
        return Ok(());
    }
    let snapshot = Snapshot::read(&player.harness.sandbox);
    let ours: Vec<(&Uid, &Thing)> =
        snapshot.of(Maker::Us).filter(|(_, thing)| !is_bookkeeping(thing)).collect();
    if ours.is_empty() {
        return Ok(());
    }
    let stack = player.unprotected();
    let flags = Flags::default();
    let plan = match player.harness.plan_with(&stack, Mode::Destroy, &flags).await {
        // With the cure that it is told with.
        Err(why) if is_of_record(&why) => {
            let cured = player.harness.copy();
            cured.try_kubernetes(&stack, delete_record()).await.map_err(|why| format!("no cure: {why}"))?;
            cured.plan_with(&stack, Mode::Destroy, &flags).await
        }
        plan => plan,
    };
    let plan = match plan {
        Ok(plan) => plan,
        // A needed resource that would be deleted too is reported with the fix.
        Err(why) if why.contains("DI0313") => return Ok(()),
        Err(why) => return Err(format!("forgotten: there is no plan to destroy: {why}")),
    };
    let found = |thing: &Thing| {
        plan.changes.iter().any(|change| {
            is(&change.identity, thing) && (change.action != Action::Keep || !change.reasons.is_empty())
        })
    };
    // The operator stays, and the plan says so, while others have things that need it.
    let stays = plan.notes.iter().any(|note| note.code == "DI0356");
    // "A section that was managed and says `manage = false` now is handed over: it keeps its labels and is left alone."
    let handed = |thing: &Thing| stack.is_handed_over(|identity| is(identity, thing));
    let known = |thing: &Thing| thing.going || found(thing) || handed(thing) || (stays && thing.operator);
    match ours.iter().find(|(_, thing)| !known(thing)) {
        None => Ok(()),
        Some((_, thing)) => Err(format!("forgotten: {thing} is ours, and `plan --destroy` does not find it")),
    }
}

/// Returns true if a plan is refused because of a damaged record.
fn is_of_record(why: &str) -> bool {
    why.contains("DI0303") && why.contains("the record of")
}

fn delete_record() -> Request {
    let path = Record::object("team").path();
    Request { api: Api::Kubernetes, method: Method::Delete, path, body: None }
}

/// **Nothing is left.** After a full destroy nothing carries our mark, and what others made is there.
///
/// # Errors
/// The things that are left, or the foreign things that are gone.
pub async fn nothing_left(player: &mut Player) -> Result<(), String> {
    if player.stack.is_none() {
        return Ok(());
    }
    player.stack = Some(player.unprotected());
    let destroy = Step::Destroy(Command { approval: Approvals::All, ..Command::default() });
    let mut last = String::new();
    for _ in 0..4 {
        let done = player.step(&destroy).await;
        deletions_are_named(player, &destroy, &done)?;
        one_identity(&done)?;
        if done.refused.as_deref().is_some_and(is_of_record)
            && let Some(stack) = &player.stack
        {
            let cured = player.harness.try_kubernetes(stack, delete_record()).await;
            cured.map_err(|why| format!("no cure: {why}"))?;
        }
        last = done.refused.iter().cloned().chain(done.failures()).collect::<Vec<_>>().join("; ");
        if done.plan.as_ref().is_some_and(Plan::is_empty) {
            break;
        }
    }
    let stack = player.unprotected();
    let snapshot = Snapshot::read(&player.harness.sandbox);
    let handed = |thing: &Thing| stack.is_handed_over(|identity| is(identity, thing));
    let others = snapshot
        .things
        .values()
        .any(|thing| thing.group == "kubernetes.dask.org" && (thing.maker == Maker::Others || handed(thing)));
    let shared = snapshot
        .things
        .values()
        .filter(|thing| thing.namespace.as_deref() == Some(RECORDS))
        .any(|thing| thing.maker != Maker::Us && !is_of_every_namespace(thing));
    let homes: BTreeSet<&str> = snapshot
        .things
        .values()
        .filter(|thing| thing.operator)
        .filter_map(|thing| thing.namespace.as_deref())
        .collect();
    let is_its_home = |thing: &Thing| thing.kind == "Namespace" && homes.contains(thing.name.as_str());
    let marked = |thing: &&Thing| thing.maker == Maker::Us || thing.appliers.iter().any(|name| is_ours(name));
    let left: Vec<String> = snapshot
        .things
        .values()
        .filter(marked)
        .filter(|thing| !handed(thing))
        // The operator stays with its namespace and its record while others need it.
        .filter(|thing| !others || !(thing.operator || is_bookkeeping(thing) || is_its_home(thing)))
        // So does the namespace of records while others have something in it.
        .filter(|thing| !(shared && thing.kind == "Namespace" && thing.name == RECORDS))
        .map(ToString::to_string)
        .collect();
    match left.is_empty() {
        true => Ok(()),
        false => Err(format!("left: after a full destroy there is still {}; {last}", left.join(", "))),
    }
}

/// Returns the changes of a plan, in words.
pub fn actions(plan: &Plan) -> Vec<String> {
    let changed = plan.changes.iter().filter(|change| change.action != Action::Keep);
    changed
        .map(|change| {
            let fields: Vec<String> = change.fields.iter().map(|field| field.path.to_string()).collect();
            let reason = change.why().unwrap_or_default();
            format!("{:?} {} {reason} {}", change.action, change.address, fields.join(" "))
        })
        .collect()
}

/// How often each thing happened, to be looked at: a property that nothing ever gets to proves nothing.
#[derive(Debug, Default)]
pub struct Tally(std::sync::Mutex<BTreeMap<String, usize>>);

impl Tally {
    pub fn count(&self, what: impl Into<String>) {
        *self.0.lock().unwrap().entry(what.into()).or_default() += 1;
    }

    /// How often something happened.
    pub fn of(&self, what: &str) -> usize {
        self.0.lock().unwrap().get(what).copied().unwrap_or_default()
    }

    /// # Panics
    /// Something never happened in a run that is large enough for it. `default` is the usual number of cases.
    pub fn demand(&self, default: u32, whats: &[&str]) {
        let never: Vec<&&str> = whats.iter().filter(|what| self.of(what) == 0).collect();
        assert!(!cases::is_usual(default) || never.is_empty(), "never in all cases: {never:?}");
    }

    /// # Panics
    /// None of these happened in a run that is large enough for one. `default` is the usual number of cases.
    pub fn demand_any(&self, default: u32, whats: &[&str]) {
        let any = whats.iter().any(|what| self.of(what) > 0);
        assert!(!cases::is_usual(default) || any, "never in all cases: any of {whats:?}");
    }

    /// Counts what a step came to.
    pub fn step(&self, step: &Step, done: &StepResult) {
        let name = match step {
            Step::Edit(_) => "edit",
            Step::Apply(_) => "apply",
            Step::Destroy(_) => "destroy",
            Step::Stop(_) => "stop",
            Step::Start(_) => "start",
            Step::Scale(_) => "scale",
            Step::Adopt(_) => "adopt",
            Step::Run(_) => "run",
            Step::WhenCapacity(_) => "when capacity",
            Step::Others(_) => "others",
            Step::CronRun(_) => "cron jobs run",
            Step::Wait(_) => return,
        };
        let came = match () {
            () if done.died => "died",
            () if done.is_whole() => "done",
            () if done.summary.is_some() => "failed in part",
            () if done.refused.is_some() => "refused",
            () => "nothing to do",
        };
        self.count(format!("{name}: {came}"));
        if let Ok(calls @ 1..) = calls::calls_match_plan(done) {
            *self.0.lock().unwrap().entry("calls made as planned".to_owned()).or_default() += calls;
        }
        if std::env::var_os("DASK_INFRA_TELL").is_some() {
            for why in done.refused.iter().cloned().chain(done.failures()) {
                println!("  {name}: {}", why.lines().next().unwrap_or_default());
            }
        }
    }
}

/// Said also of a property that fails.
impl Drop for Tally {
    fn drop(&mut self) {
        for (what, count) in self.0.lock().unwrap().iter() {
            println!("  {count:6}  {what}");
        }
    }
}
