//! Plans, progress and summaries for programs: writes the lines of [`event`](super::event).

use std::io;
use std::time::Duration;

use jiff::Timestamp;

use super::cost;
use super::dry_run;
use super::event::{
    Body, Changes, Drift, End, Ended, Field, Hook, Level, Line, Place, PlannedChange, Position, Range, Thing,
    Told, UI_VERSION,
};
use super::human::plan_text::{approval_text, counts_text};
use super::{Reporter, Screen, View, brief, words};
use apply::{AbortCause, Event, Outcome, Summary};
use model::address::Address;
use model::diag::{Diagnostic, Severity};
use model::resource::{ByIdentity, Effect, FieldChange, Identity, Owner, Resource, Target, by_identity};
use model::source::Sources;
use plan::{Action, Change, Drift as Drifts, DriftKind, DriftReport, ExternalRead, Mode, Plan};

/// The reporter for programs: every line goes to stdout.
pub struct Json {
    screen: Screen,
    clock: fn() -> Timestamp,
}

impl Json {
    /// Creates the reporter and writes the first line, which has the version.
    pub fn new(screen: Screen, clock: fn() -> Timestamp) -> Self {
        let mut json = Self { screen, clock };
        let program = env!("CARGO_PKG_VERSION");
        json.line(Level::Info, format!("dask-infra {program}"), Body::Version { program, ui: UI_VERSION });
        json
    }

    fn line(&mut self, level: Level, message: String, body: Body) {
        let line = Line { level, message, module: "dask-infra", timestamp: (self.clock)(), body };
        match serde_json::to_string(&line) {
            Ok(text) => self.screen.data(&format!("{text}\n")),
            Err(error) => self.screen.message(&format!("a line could not be written as JSON: {error}\n")),
        }
    }
}

impl Reporter for Json {
    fn plan(&mut self, plan: &Plan, view: &View<'_>) {
        let wanted = by_identity(&plan.desired);
        for change in &plan.changes {
            let change = planned(&wanted, change, view);
            let drifted = change.fields.iter().filter(|field| field.drift.is_some()).cloned();
            let drifted: Vec<Field> = drifted.map(swapped).collect();
            if !drifted.is_empty() {
                let message = format!("{}: changed outside this stack", change.resource.addr);
                let change = PlannedChange { fields: drifted, action: "update", ..change.clone() };
                self.line(Level::Info, message, Body::ResourceDrift { place: place(plan), change });
            }
        }
        for read in &plan.reads {
            let change = read_of(read);
            let message = format!("{}: read", change.resource.addr);
            self.line(Level::Info, message, Body::PlannedChange { place: place(plan), change });
        }
        let shown = |change: &&Change| change.action != Action::Keep || !change.fields.is_empty();
        for change in plan.changes.iter().filter(shown) {
            let change = planned(&wanted, change, view);
            let message = format!("{}: plan to {}", change.resource.addr, change.action);
            self.line(Level::Info, message, Body::PlannedChange { place: place(plan), change });
        }
        for note in &plan.notes {
            let diagnostic = Told {
                severity: "warning",
                code: Some(note.code.clone()),
                summary: note.message.clone(),
                detail: None,
                address: Some(note.address.to_string()),
                range: None,
            };
            self.line(Level::Warn, note.message.clone(), Body::Diagnostic { diagnostic });
        }
        self.line(Level::Info, format!("Plan: {}.", counts_text(plan)), plan_summary(plan));
    }

    fn drift(&mut self, drifted: &DriftReport, owner: &Owner, target: &Target) {
        let place = || place_of(owner, target);
        for drift in &drifted.found {
            let change = drifted_change(drift);
            let what = match drift.drift_kind {
                DriftKind::Changed => "changed outside this stack",
                DriftKind::Deleted => "gone",
                DriftKind::Replaced(_) => "replaced outside this stack",
                DriftKind::OwnershipRemoved => "this stack's field manager was removed outside this stack",
            };
            let message = format!("{}: {what}", drift.address);
            self.line(Level::Info, message, Body::ResourceDrift { place: place(), change });
        }
        let (change, gone) = drifted.counts();
        let changes =
            Changes { add: 0, change, replace: 0, remove: gone, run: 0, forget: 0, operation: "refresh" };
        let body = Body::ChangeSummary {
            place: place(),
            changes,
            offline: false,
            hourly: None,
            hourly_minimum: None,
            usual_seconds: None,
            unknown_pulls: Vec::new(),
            unpriced: Vec::new(),
            cost: None,
            still_running: None,
            approvals: Vec::new(),
            dry_run: None,
            outcomes: Vec::new(),
            elapsed_seconds: None,
            interrupted: None,
            left_out: Vec::new(),
        };
        self.line(Level::Info, format!("Drift: {change} changed, {gone} deleted."), body);
    }

    fn event(&mut self, plan: &Plan, event: &Event) {
        let (level, message, body) = event_line(plan, event);
        self.line(level, message, body);
    }

    fn summary(&mut self, plan: &Plan, summary: &Summary) {
        let Summary { outcomes, took, stopped } = summary;
        let operation = match plan.mode {
            Mode::Apply => "apply",
            Mode::Destroy => "destroy",
        };
        let done = |action| {
            let is = |place: &usize| plan.changes.get(*place).is_some_and(|change| change.action == action);
            outcomes.iter().filter(|(place, outcome, _)| *outcome == Outcome::Done && is(place)).count()
        };
        let changes = Changes {
            add: done(Action::Create),
            change: done(Action::Update),
            replace: done(Action::Replace),
            remove: done(Action::Delete),
            forget: done(Action::Forget),
            run: done(Action::Run),
            operation,
        };
        let all = outcomes.iter().all(|(_, outcome, _)| *outcome == Outcome::Done);
        let queued = outcomes.iter().all(|(_, outcome, _)| {
            matches!(outcome, Outcome::Done | Outcome::Queued { .. } | Outcome::Waits { .. })
        });
        let (level, word) = match (all, queued) {
            (true, _) => (Level::Info, "complete"),
            (false, true) => (Level::Warn, "queued"),
            (false, false) => (Level::Error, "incomplete"),
        };
        let ended = outcomes.iter().filter_map(|(place, outcome, took)| {
            let change = plan.changes.get(*place)?;
            let (addr, action) = (change.address.to_string(), words(change.action).verb);
            Some(Ended { addr, action, elapsed_seconds: seconds(*took), end: end(outcome) })
        });
        let body = Body::ChangeSummary {
            place: place(plan),
            changes,
            offline: plan.offline,
            hourly: cost::most(plan),
            hourly_minimum: cost::idle(plan),
            usual_seconds: None,
            unknown_pulls: Vec::new(),
            unpriced: cost::unknown(plan),
            cost: cost::plan_cost(plan).map(Box::new),
            still_running: cost::still_running(plan, summary),
            approvals: Vec::new(),
            dry_run: None,
            outcomes: ended.collect(),
            elapsed_seconds: Some(seconds(*took)),
            interrupted: Some(*stopped == AbortCause::Interrupted),
            left_out: left_out(plan),
        };
        self.line(level, format!("{operation} {word} after {}", brief(*took)), body);
    }

    fn valid(&mut self, warnings: usize) {
        let body = Body::Validation { valid: true, error_count: 0, warning_count: warnings };
        self.line(Level::Info, "The stack is valid.".to_owned(), body);
    }

    fn diagnostics(&mut self, diagnostics: &[Diagnostic], sources: &Sources) {
        for diagnostic in diagnostics {
            let (level, severity) = match diagnostic.severity {
                Severity::Error => (Level::Error, "error"),
                Severity::Warning => (Level::Warn, "warning"),
            };
            let range = diagnostic.location(sources).map(|location| Range {
                filename: location.file,
                start: Position { line: location.line, column: location.column },
            });
            let told = Told {
                severity,
                code: Some(diagnostic.code.to_string()),
                summary: diagnostic.message.clone(),
                detail: diagnostic.help.clone(),
                address: diagnostic.address().map(ToString::to_string),
                range,
            };
            self.line(level, diagnostic.message.clone(), Body::Diagnostic { diagnostic: told });
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        self.screen.finish()
    }
}

fn place(plan: &Plan) -> Place {
    place_of(&plan.owner, &plan.target)
}

fn place_of(owner: &Owner, target: &Target) -> Place {
    Place { stack: owner.stack.clone(), target: target.to_string(), simulated: target.simulated }
}

/// Returns an external resource in Terraform's format for resources that are only read.
fn read_of(read: &ExternalRead) -> PlannedChange {
    let ExternalRead { address, identity, kind, location, found, fingerprint: _ } = read;
    PlannedChange {
        resource: thing_of(address, identity, kind.as_str()),
        action: "read",
        reason: found.clone(),
        location: location.clone(),
        usual_seconds: None,
        fields: Vec::new(),
    }
}

fn thing(change: &Change) -> Thing {
    thing_of(&change.address, &change.identity, change.kind.as_str())
}

fn thing_of(address: &Address, identity: &Identity, kind: &str) -> Thing {
    let name = address.as_str().split_once(['.', '/']).map_or(address.as_str(), |(_, name)| name);
    Thing {
        addr: address.to_string(),
        resource_type: kind.to_owned(),
        resource_name: name.to_owned(),
        identity: identity.to_string(),
    }
}

fn planned(wanted: &ByIdentity<'_>, change: &Change, view: &View<'_>) -> PlannedChange {
    let resource = wanted.get(&change.identity).copied();
    let fields = change.fields.iter().map(|field| field_of(resource, change, field, view));
    PlannedChange {
        resource: thing(change),
        action: words(change.action).verb,
        reason: change.why(),
        location: change.location.clone(),
        usual_seconds: change.estimate,
        fields: fields.collect(),
    }
}

fn drifted_change(drift: &Drifts) -> PlannedChange {
    let Drifts { address, identity, kind, drift_kind: what, fields, set_by_others, location } = drift;
    let action = match what {
        DriftKind::Changed | DriftKind::OwnershipRemoved => Action::Update,
        DriftKind::Deleted => Action::Delete,
        DriftKind::Replaced(_) => Action::Replace,
    };
    let fields = fields.iter().chain(set_by_others).map(|field| swapped(field_at(field, location.clone())));
    PlannedChange {
        resource: thing_of(address, identity, kind.as_str()),
        action: words(action).verb,
        reason: None,
        location: location.clone(),
        usual_seconds: None,
        fields: fields.collect(),
    }
}

/// Returns a field of `resource_drift`. As in Terraform, `before` is the last known value and `after` the value found. Source:
/// <https://developer.hashicorp.com/terraform/internals/json-format>, `resource_drift`.
fn swapped(field: Field) -> Field {
    Field { before: field.after, after: field.before, ..field }
}

fn field_of(resource: Option<&Resource>, change: &Change, field: &FieldChange, view: &View<'_>) -> Field {
    field_at(field, view.location(resource, field).or_else(|| change.location.clone()))
}

fn field_at(field: &FieldChange, location: Option<String>) -> Field {
    let FieldChange { path, before: _, after: _, effect, note, drift, secret: _ } = field;
    let effect = match effect {
        Effect::InPlace => "in_place",
        Effect::Rolling => "rolling",
        Effect::Replace => "replace",
        Effect::Ignored => "ignored",
        Effect::Unknown => "unknown",
    };
    let drift = drift.clone().map(|(manager, time)| Drift { manager, time });
    let ((before, after), note) = (field.shown(), note.clone());
    Field { path: path.to_string(), before, after, effect, note, location, drift }
}

fn plan_summary(plan: &Plan) -> Body {
    let plan::Counts { add, change, replace, destroy, forget, run } = plan.counts();
    Body::ChangeSummary {
        place: place(plan),
        changes: Changes { add, change, replace, remove: destroy, forget, run, operation: "plan" },
        offline: plan.offline,
        hourly: cost::most(plan),
        hourly_minimum: cost::idle(plan),
        usual_seconds: plan.critical_path().map(|path| path.estimate),
        unknown_pulls: plan.unknown_pulls.clone(),
        unpriced: cost::unknown(plan),
        cost: cost::plan_cost(plan).map(Box::new),
        still_running: None,
        approvals: plan.missing_approvals(&[]).iter().map(approval_text).collect(),
        dry_run: dry_run::of(plan),
        outcomes: Vec::new(),
        elapsed_seconds: None,
        interrupted: None,
        left_out: left_out(plan),
    }
}

fn left_out(plan: &Plan) -> Vec<String> {
    let left_out = plan.partial.iter().flat_map(|partial| &partial.left_out);
    left_out.map(|(address, _)| address.to_string()).collect()
}

/// Returns one event as a line.
fn event_line(plan: &Plan, event: &Event) -> (Level, String, Body) {
    let place = place(plan);
    let level = match event {
        Event::Retrying { .. } | Event::Interrupted | Event::Warning { .. } => Level::Warn,
        Event::Finished { outcome: Outcome::Queued { .. } | Outcome::Waits { .. }, .. } => Level::Warn,
        Event::Finished { outcome, .. } if *outcome != Outcome::Done => Level::Error,
        Event::Started { .. } | Event::Waiting { .. } | Event::Log { .. } | Event::Finished { .. } => {
            Level::Info
        }
    };
    let text = super::human::progress::lines(plan, event);
    let message = anstream::adapter::strip_str(text.trim_end()).to_string();
    let hook = |change: &usize| hook(plan, *change);
    let body = match event {
        Event::Started { change } => Body::ApplyStart { place, hook: hook(change) },
        Event::Waiting { change, message, operation, waited, deadline } => {
            let (waiting_for, operation) = (Some(message.clone()), operation.clone());
            let (elapsed_seconds, deadline_seconds) = (Some(seconds(*waited)), Some(seconds(*deadline)));
            let hook = Hook { waiting_for, operation, elapsed_seconds, deadline_seconds, ..hook(change) };
            Body::ApplyProgress { place, hook }
        }
        Event::Retrying { change, message, after } => {
            let (waiting_for, after) = (Some(message.clone()), Some(seconds(*after)));
            Body::ApplyProgress {
                place,
                hook: Hook { waiting_for, retry_after_seconds: after, ..hook(change) },
            }
        }
        Event::Log { change, lines } => {
            Body::ApplyProgress { place, hook: Hook { log: lines.clone(), ..hook(change) } }
        }
        Event::Finished { change, outcome: Outcome::Done, took } => {
            let hook = Hook { elapsed_seconds: Some(seconds(*took)), ..hook(change) };
            Body::ApplyComplete { place, hook }
        }
        Event::Finished { change, outcome, took } => {
            let (outcome, took) = (Some(end(outcome)), Some(seconds(*took)));
            Body::ApplyErrored { place, hook: Hook { outcome, elapsed_seconds: took, ..hook(change) } }
        }
        Event::Interrupted => Body::ApplyInterrupted { place },
        Event::Warning { message } => {
            let summary = message.clone();
            let (code, detail, address, range) = (None, None, None, None);
            Body::Diagnostic {
                diagnostic: Told { severity: "warning", code, summary, detail, address, range },
            }
        }
    };
    (level, message, body)
}

/// Returns a change without progress. An index that the plan does not have is a bug in apply, and is shown rather than hidden.
fn hook(plan: &Plan, change: usize) -> Hook {
    let unknown = || Thing {
        addr: format!("change {change}"),
        resource_type: String::new(),
        resource_name: String::new(),
        identity: String::new(),
    };
    let found = plan.changes.get(change);
    Hook {
        resource: found.map_or_else(unknown, thing),
        action: words(found.map_or(Action::Keep, |change| change.action)).verb,
        elapsed_seconds: None,
        waiting_for: None,
        operation: None,
        deadline_seconds: None,
        retry_after_seconds: None,
        log: Vec::new(),
        outcome: None,
    }
}

fn end(outcome: &Outcome) -> End {
    let bare = |outcome| End { outcome, code: None, message: None, help: None, because: None };
    match outcome {
        Outcome::Done => bare("done"),
        Outcome::Failed { code, message, help } => End {
            code: Some(code.clone()),
            message: Some(message.clone()),
            help: help.clone(),
            ..bare("failed")
        },
        Outcome::TimedOut { message } => End { message: Some(message.clone()), ..bare("timed_out") },
        Outcome::Queued { message } => End { message: Some(message.clone()), ..bare("queued") },
        Outcome::Waits { because } => End { because: Some(because.to_string()), ..bare("queued") },
        Outcome::Skipped { because } => End { because: Some(because.to_string()), ..bare("skipped") },
        Outcome::InDoubt { message } => End { message: Some(message.clone()), ..bare("in_doubt") },
        Outcome::NotStarted => bare("not_started"),
    }
}

/// Returns seconds, rounded to milliseconds.
fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1000.0).round() / 1000.0
}
