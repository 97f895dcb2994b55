//! The end of an apply: what is done, what is not, and the next command.

use std::time::Duration;

use serde_json::Value;

use super::halts;
use super::plan_text::{asked_again, sum};
use super::style::{Tint, paint, push_line, tame, wrap};
use crate::report::brief;
use apply::{AbortCause, Outcome, Summary};
use model::address::Address;
use model::resource::{ClusterName, Identity, ObjectId};
use plan::{Action, Change, Mode, Plan};

/// How many of the slowest are told.
const SLOWEST: usize = 3;

/// The whole text, with colours, each line ended. `program` is how the program was called, up to the command.
pub fn render(plan: &Plan, summary: &Summary, program: &str, width: usize) -> String {
    let ends = Ends::of(plan, summary);
    let mut text = format!("\n{}", wrap("", &verdict(plan, summary, &ends), width));
    text.push_str(&timings(summary, &ends, width));
    for problem in &ends.problems {
        text.push_str(&problem.text(width));
    }
    text.push_str(&not_done(&ends, width));
    text.push_str(&next(plan, summary, &ends, program));
    text
}

/// Outcomes by kind.
#[derive(Default)]
struct Ends<'a> {
    done: Vec<(&'a Change, Duration)>,
    problems: Vec<Problem<'a>>,
    /// Changes that wait for capacity, with their messages.
    queued: Vec<(&'a Change, &'a str)>,
    /// Changes that wait for a queued one, with its address.
    behind: Vec<(&'a Change, &'a Address)>,
    skipped: Vec<(&'a Change, String)>,
    doubt: Vec<(&'a Change, String)>,
    not_started: Vec<&'a Change>,
}

struct Problem<'a> {
    change: &'a Change,
    code: Option<&'a str>,
    message: &'a str,
    help: Option<&'a str>,
}

impl<'a> Ends<'a> {
    fn of(plan: &'a Plan, summary: &'a Summary) -> Self {
        let mut ends = Self::default();
        for (place, outcome, took) in &summary.outcomes {
            let Some(change) = plan.changes.get(*place) else { continue };
            match outcome {
                Outcome::Done => ends.done.push((change, *took)),
                Outcome::Failed { code, message, help } => {
                    let (code, help) = (Some(code.as_str()), help.as_deref());
                    ends.problems.push(Problem { change, code, message, help });
                }
                Outcome::TimedOut { message } => {
                    ends.problems.push(Problem { change, code: None, message, help: None });
                }
                Outcome::Queued { message } => ends.queued.push((change, message)),
                Outcome::Waits { because } => ends.behind.push((change, because)),
                Outcome::Skipped { because } => ends.skipped.push((change, because.to_string())),
                Outcome::InDoubt { message } => ends.doubt.push((change, message.clone())),
                Outcome::NotStarted => ends.not_started.push(change),
            }
        }
        ends
    }

    fn all_done(&self) -> bool {
        let Self { done: _, problems, queued, behind, skipped, doubt, not_started } = self;
        problems.is_empty()
            && queued.is_empty()
            && behind.is_empty()
            && skipped.is_empty()
            && doubt.is_empty()
            && not_started.is_empty()
    }

    /// Returns true if every change that is not done waits for capacity, directly or through a dependency.
    fn only_queued(&self) -> bool {
        let Self { done: _, problems, queued, behind: _, skipped, doubt, not_started } = self;
        !queued.is_empty()
            && problems.is_empty()
            && skipped.is_empty()
            && doubt.is_empty()
            && not_started.is_empty()
    }

    fn number(&self, action: Action) -> usize {
        self.done.iter().filter(|(change, _)| change.action == action).count()
    }
}

/// `Apply complete! Resources: 14 added, 1 check passed.`
fn verdict(plan: &Plan, summary: &Summary, ends: &Ends<'_>) -> String {
    let what = match plan.mode {
        Mode::Apply if plan.stop_state.is_stop() => "Stop",
        Mode::Apply if halts::is_start(plan) => "Start",
        Mode::Apply => "Apply",
        Mode::Destroy => "Destroy",
    };
    let (tint, end) = match (ends.all_done(), summary.stopped) {
        (true, _) => (Tint::Add, format!("{what} complete!")),
        (false, AbortCause::None) if ends.only_queued() => {
            (Tint::Change, format!("{what} queued: the rest waits for capacity."))
        }
        (false, AbortCause::Interrupted) => (Tint::Change, format!("{what} interrupted.")),
        (false, AbortCause::LockLost) => {
            (Tint::Change, format!("{what} stopped: another apply took the stack's lock."))
        }
        (false, AbortCause::None) => (Tint::Remove, format!("{what} failed.")),
    };
    format!("{} Resources: {}.", paint(tint, &end), done_text(plan, ends))
}

fn done_text(plan: &Plan, ends: &Ends<'_>) -> String {
    let objects = [
        (ends.number(Action::Create), "added"),
        (ends.number(Action::Update), "changed"),
        (ends.number(Action::Replace), "replaced"),
        (ends.number(Action::Delete), "destroyed"),
        (ends.number(Action::Forget), "released"),
    ];
    let begun = !(ends.problems.is_empty() && ends.doubt.is_empty() && ends.queued.is_empty());
    let nothing = match (begun, plan.mode) {
        // What did not succeed may have changed something before.
        (true, _) => "none completed",
        (false, Mode::Destroy) => "nothing destroyed",
        (false, Mode::Apply) => "nothing changed",
    };
    sum(&objects, (ends.number(Action::Run), "passed")).unwrap_or_else(|| nothing.to_owned())
}

fn timings(summary: &Summary, ends: &Ends<'_>, width: usize) -> String {
    let mut slowest = ends.done.clone();
    slowest.retain(|(_, took)| took.as_secs() > 0);
    slowest.sort_by(|(a, x), (b, y)| y.cmp(x).then_with(|| a.address.cmp(&b.address)));
    let slowest: Vec<String> = slowest
        .iter()
        .take(SLOWEST)
        .map(|(change, took)| format!("{} {}", change.address, brief(*took)))
        .collect();
    if slowest.is_empty() && summary.took.as_secs() == 0 {
        return String::new();
    }
    let slowest =
        if slowest.is_empty() { String::new() } else { format!(", the slowest: {}", slowest.join(", ")) };
    wrap("", &format!("Took {}{slowest}.", brief(summary.took)), width)
}

impl Problem<'_> {
    /// `Error: node_pool.x (stack.toml:12:1): message [DI0401]`, and the help below.
    fn text(&self, width: usize) -> String {
        let Self { change, code, message, help } = self;
        let place = change.location.as_deref().map(|place| format!(" ({place})")).unwrap_or_default();
        let code = code.map(|code| format!(" [{code}]")).unwrap_or_default();
        let line = format!("{}{place}: {}{code}", change.address, tame(message));
        let mut text = format!("\n{}", wrap(&format!("{} ", paint(Tint::Remove, "Error:")), &line, width));
        if let Some(help) = help {
            text.push_str(&wrap("  help: ", &tame(help), width));
        }
        text
    }
}

fn not_done(ends: &Ends<'_>, width: usize) -> String {
    let mut text = String::new();
    if !ends.doubt.is_empty() {
        text.push_str("\nUnfinished, interrupted while running (state unknown):\n");
        for (change, message) in &ends.doubt {
            text.push_str(&wrap("  ", &format!("{}: {}", change.address, tame(message)), width));
        }
    }
    if !ends.queued.is_empty() {
        text.push_str("\nWaiting for capacity:\n");
        for (change, message) in &ends.queued {
            text.push_str(&wrap("  ", &format!("{}: {}", change.address, tame(message)), width));
        }
        for (change, because) in &ends.behind {
            push_line(&mut text, &format!("  {} waits for {because}", change.address));
        }
        text.push_str(&wrap(
            "  ",
            "No process and no lock is held. The requests stay; `status` says how they are.",
            width,
        ));
    }
    if !ends.skipped.is_empty() {
        // Each had a line of its own already, so here is one for each cause.
        text.push_str("\nSkipped:\n");
        let mut causes: Vec<(&str, Vec<&str>)> = Vec::new();
        for (change, because) in &ends.skipped {
            match causes.iter_mut().find(|(cause, _)| cause == because) {
                Some((_, skipped)) => skipped.push(change.address.as_str()),
                None => causes.push((because.as_str(), vec![change.address.as_str()])),
            }
        }
        for (cause, skipped) in causes {
            match skipped.as_slice() {
                [one] => push_line(&mut text, &format!("  {one} because {cause} did not succeed")),
                many => {
                    let line = format!("{} because {cause} did not succeed", many.join(", "));
                    text.push_str(&wrap("  ", &line, width));
                }
            }
        }
    }
    // What stays as it is had only to be looked at.
    let changes = |change: &&&Change| change.action != Action::Keep || change.is_waited_for();
    let not_started: Vec<_> = ends.not_started.iter().filter(changes).collect();
    if !not_started.is_empty() {
        text.push_str("\nNot started:\n");
        for change in not_started {
            push_line(&mut text, &format!("  {}", change.address));
        }
    }
    text
}

fn next(plan: &Plan, summary: &Summary, ends: &Ends<'_>, program: &str) -> String {
    let verb = match plan.mode {
        Mode::Apply if plan.stop_state.is_stop() => "stop",
        Mode::Apply if halts::is_start(plan) => "start",
        Mode::Apply => "apply",
        Mode::Destroy => "destroy",
    };
    if !ends.all_done() || summary.stopped != AbortCause::None && plan.mode == Mode::Destroy {
        let done =
            |place| summary.outcomes.iter().any(|(done, end, _)| *done == place && *end == Outcome::Done);
        // An apply would put the number of the stack file back.
        let scaled =
            plan.partial.as_ref().and_then(|partial| partial.number.zip(partial.selection.targets.first()));
        let again = match scaled {
            Some((number, address)) => format!("scale {address} {number}"),
            None => format!("{verb}{}", asked_again(plan, done)),
        };
        return format!("\nTo continue (plans again from live state):\n  {program} {again}\n");
    }
    if plan.mode == Mode::Destroy {
        return String::new();
    }
    if plan.stop_state.is_stop() {
        let what = if plan.stop_state.is_all_of_stop() { String::new() } else { asked_again(plan, |_| true) };
        return format!("\nTo restore it:\n  {program} start{what}\n");
    }
    let mut text = String::new();
    let is_there = |change: &&Change| {
        change.action != Action::Delete && !plan.stop_state.stopped.contains_key(&change.identity)
    };
    for change in plan.changes.iter().filter(is_there) {
        if let Identity::Object(object) = &change.identity
            && object.gvk.kind == "DaskCluster"
        {
            text.push_str(&connect(plan, change, object));
        }
    }
    if text.is_empty() {
        return text;
    }
    if plan.target.simulated {
        return format!(
            "\nSIMULATED: no GPU was used, and there is nothing to connect to.\n\nTo delete everything:\n  {program} destroy\n"
        );
    }
    format!("{text}\nTo delete everything:\n  {program} destroy\n")
}

/// The lines that connect a notebook to a Dask cluster.
fn connect(plan: &Plan, change: &Change, object: &ObjectId) -> String {
    let ObjectId { gvk: _, namespace, name } = object;
    let namespace = namespace.as_deref().unwrap_or("default");
    let mut text = format!("\nTo connect to {}:\n", change.address);
    let context = match (&plan.target.gke, &plan.target.context) {
        (Some(ClusterName { project, location, cluster }), _) => {
            push_line(
                &mut text,
                &format!(
                    "  gcloud container clusters get-credentials {cluster} --location {location} --project \
                     {project}"
                ),
            );
            String::new()
        }
        (None, Some(context)) => format!("--context {context} "),
        (None, None) => String::new(),
    };
    let forward =
        format!("  kubectl {context}port-forward -n {namespace} service/{name}-scheduler 8786 8787");
    push_line(&mut text, &forward);
    let image = image(plan, &change.identity);
    let image = image.map(|image| format!(", with the packages of {image}")).unwrap_or_default();
    push_line(&mut text, &format!("and in Python{image}:"));
    push_line(&mut text, "  from dask.distributed import Client");
    push_line(&mut text, "  client = Client(\"tcp://localhost:8786\")  # dashboard: http://localhost:8787");
    text
}

/// The workers' image: a client should have the same packages.
fn image<'p>(plan: &'p Plan, identity: &Identity) -> Option<&'p str> {
    let body = &plan.desired.iter().find(|resource| &resource.identity == identity)?.body;
    body.pointer("/spec/worker/spec/containers/0/image").and_then(Value::as_str)
}
