//! The end of an apply: what is done, what is not, and the next command.

use std::time::Duration;

use serde_json::Value;

use super::cost;
use super::plan_text::{repeated_options, sum};
use super::stop_text;
use super::style::{Tint, paint, push_line, strip_controls, wrap};
use crate::report::brief;
use apply::{AbortCause, Outcome, Summary};
use model::address::Address;
use model::resource::{ClusterName, Identity, ObjectId};
use plan::{Action, Change, Mode, Plan};

/// How many of the slowest are told.
const SLOWEST: usize = 3;

/// Returns the whole text, with colors, each line ended. `program` is how the program was called, up to the command.
pub fn render(plan: &Plan, summary: &Summary, program: &str, width: usize) -> String {
    let by_kind = OutcomesByKind::new(plan, summary);
    let mut text = format!("\n{}", wrap("", &verdict(plan, summary, &by_kind), width));
    text.push_str(&timings(summary, &by_kind, width));
    for problem in &by_kind.problems {
        text.push_str(&problem.text(width));
    }
    text.push_str(&not_done(&by_kind, width));
    if let Some(line) = cost::runs_on(plan, summary, program) {
        text.push_str(&format!("\n{}", wrap("", &line, width)));
    }
    text.push_str(&next(plan, summary, &by_kind, program));
    text
}

/// Outcomes by kind.
#[derive(Default)]
struct OutcomesByKind<'a> {
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

impl<'a> OutcomesByKind<'a> {
    fn new(plan: &'a Plan, summary: &'a Summary) -> Self {
        let mut by_kind = Self::default();
        for (place, outcome, took) in &summary.outcomes {
            let Some(change) = plan.changes.get(*place) else { continue };
            match outcome {
                Outcome::Done => by_kind.done.push((change, *took)),
                Outcome::Failed { code, message, help } => {
                    let (code, help) = (Some(code.as_str()), help.as_deref());
                    by_kind.problems.push(Problem { change, code, message, help });
                }
                Outcome::TimedOut { message } => {
                    by_kind.problems.push(Problem { change, code: None, message, help: None });
                }
                Outcome::Queued { message } => by_kind.queued.push((change, message)),
                Outcome::Waits { because } => by_kind.behind.push((change, because)),
                Outcome::Skipped { because } => by_kind.skipped.push((change, because.to_string())),
                Outcome::InDoubt { message } => by_kind.doubt.push((change, message.clone())),
                Outcome::NotStarted => by_kind.not_started.push(change),
            }
        }
        by_kind
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
fn verdict(plan: &Plan, summary: &Summary, by_kind: &OutcomesByKind<'_>) -> String {
    let what = match plan.mode {
        Mode::Apply if plan.stop_state.is_stop() => "Stop",
        Mode::Apply if stop_text::is_start(plan) => "Start",
        Mode::Apply => "Apply",
        Mode::Destroy => "Destroy",
    };
    let (tint, end) = match (by_kind.all_done(), summary.stopped) {
        (true, _) => (Tint::Add, format!("{what} complete!")),
        (false, AbortCause::None) if by_kind.only_queued() => {
            (Tint::Change, format!("{what} queued: the rest waits for capacity."))
        }
        (false, AbortCause::Interrupted) => (Tint::Change, format!("{what} interrupted.")),
        (false, AbortCause::LockLost) => {
            (Tint::Change, format!("{what} stopped: another apply took the stack's lock."))
        }
        (false, AbortCause::None) => (Tint::Remove, format!("{what} failed.")),
    };
    format!("{} Resources: {}.", paint(tint, &end), done_text(plan, by_kind))
}

fn done_text(plan: &Plan, by_kind: &OutcomesByKind<'_>) -> String {
    let objects = [
        (by_kind.number(Action::Create), "added"),
        (by_kind.number(Action::Update), "changed"),
        (by_kind.number(Action::Replace), "replaced"),
        (by_kind.number(Action::Delete), "destroyed"),
        (by_kind.number(Action::Forget), "released"),
    ];
    let begun = !(by_kind.problems.is_empty() && by_kind.doubt.is_empty() && by_kind.queued.is_empty());
    let nothing = match (begun, plan.mode) {
        // An unsuccessful change may have written something before it ended.
        (true, _) => "none completed",
        (false, Mode::Destroy) => "nothing destroyed",
        (false, Mode::Apply) => "nothing changed",
    };
    sum(&objects, (by_kind.number(Action::Run), "passed")).unwrap_or_else(|| nothing.to_owned())
}

fn timings(summary: &Summary, by_kind: &OutcomesByKind<'_>, width: usize) -> String {
    let mut slowest = by_kind.done.clone();
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
        let line = format!("{}{place}: {}{code}", change.address, strip_controls(message));
        let mut text = format!("\n{}", wrap(&format!("{} ", paint(Tint::Remove, "Error:")), &line, width));
        if let Some(help) = help {
            text.push_str(&wrap("  help: ", &strip_controls(help), width));
        }
        text
    }
}

fn not_done(by_kind: &OutcomesByKind<'_>, width: usize) -> String {
    let mut text = String::new();
    if !by_kind.doubt.is_empty() {
        text.push_str("\nUnfinished, interrupted while running (state unknown):\n");
        for (change, message) in &by_kind.doubt {
            text.push_str(&wrap("  ", &format!("{}: {}", change.address, strip_controls(message)), width));
        }
    }
    if !by_kind.queued.is_empty() {
        text.push_str("\nWaiting for capacity:\n");
        for (change, message) in &by_kind.queued {
            text.push_str(&wrap("  ", &format!("{}: {}", change.address, strip_controls(message)), width));
        }
        for (change, because) in &by_kind.behind {
            push_line(&mut text, &format!("  {} waits for {because}", change.address));
        }
        text.push_str(&wrap(
            "  ",
            "No process and no lock is held. The requests stay; `status` says how they are.",
            width,
        ));
    }
    if !by_kind.skipped.is_empty() {
        // Each had a line of its own already, so here is one for each cause.
        text.push_str("\nSkipped:\n");
        let mut causes: Vec<(&str, Vec<&str>)> = Vec::new();
        for (change, because) in &by_kind.skipped {
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
    // Unchanged resources would only have been read, so they are not counted.
    let changes = |change: &&&Change| change.action != Action::Keep || change.is_waited_for();
    let not_started: Vec<_> = by_kind.not_started.iter().filter(changes).collect();
    if !not_started.is_empty() {
        text.push_str("\nNot started:\n");
        for change in not_started {
            push_line(&mut text, &format!("  {}", change.address));
        }
    }
    text
}

fn next(plan: &Plan, summary: &Summary, by_kind: &OutcomesByKind<'_>, program: &str) -> String {
    let verb = match plan.mode {
        Mode::Apply if plan.stop_state.is_stop() => "stop",
        Mode::Apply if stop_text::is_start(plan) => "start",
        Mode::Apply => "apply",
        Mode::Destroy => "destroy",
    };
    if !by_kind.all_done() || summary.stopped != AbortCause::None && plan.mode == Mode::Destroy {
        let done =
            |place| summary.outcomes.iter().any(|(done, end, _)| *done == place && *end == Outcome::Done);
        // An apply would put the number of the stack file back.
        let scaled =
            plan.partial.as_ref().and_then(|partial| partial.replicas.zip(partial.selection.targets.first()));
        let again = match scaled {
            Some((number, address)) => format!("scale {address} {number}"),
            None => format!("{verb}{}", repeated_options(plan, done)),
        };
        return format!("\nTo continue (plans again from live state):\n  {program} {again}\n");
    }
    if plan.mode == Mode::Destroy {
        return String::new();
    }
    if plan.stop_state.is_stop() {
        let what = if plan.stop_state.stops_all_stopped() {
            String::new()
        } else {
            repeated_options(plan, |_| true)
        };
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

/// Returns the lines that connect a notebook to a Dask cluster.
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

/// Returns the workers' image: a client should have the same packages.
fn image<'p>(plan: &'p Plan, identity: &Identity) -> Option<&'p str> {
    let body = &plan.desired.iter().find(|resource| &resource.identity == identity)?.body;
    body.pointer("/spec/worker/spec/containers/0/image").and_then(Value::as_str)
}
