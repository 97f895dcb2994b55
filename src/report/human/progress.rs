//! Progress of an apply: lines of a log, with the time since it began, or on a terminal a bar for each section that
//! waits, below the lines of what has ended. Both lead with the cause, and tell a change of state once.

use std::collections::BTreeMap;
use std::time::Duration;

use super::plan_text::Detail;
use super::style::{Tint, paint, push_line, strip_controls};
use crate::report::{brief, count, words};
use apply::{Event, Outcome};
use kinds::kubernetes::why::shortened;
use model::resource::DurationEstimate;
use plan::{Action, Change, Plan};

/// Between two lines that only say that a change still goes on.
const REPEAT_AFTER: Duration = Duration::from_secs(60);

/// One object of several is not worth a line before it has taken so long.
const QUICK: Duration = Duration::from_secs(5);

/// Progress where there are no bars: in a log, or on a terminal that can draw nothing.
#[derive(Debug)]
pub struct Log {
    tally: Tally,
    /// The last message of each change in progress, and its time.
    said: BTreeMap<usize, (String, Duration)>,
}

impl Log {
    /// Of an apply that is about to begin.
    pub fn new(detail: Detail) -> Self {
        Self { tally: Tally::new(detail), said: BTreeMap::new() }
    }

    /// Returns the lines for an event, so long after the apply began.
    pub fn event(&mut self, plan: &Plan, event: &Event, now: Duration) -> String {
        let text = match event {
            Event::Waiting { change, message, operation: _, waited, deadline } => {
                let (address, doing) = (address(plan, *change), verb(plan, *change));
                if *waited < QUICK && self.tally.part(plan, *change).is_some() {
                    return String::new();
                }
                match self.said.get(change) {
                    Some((old, when)) if old == message && now < *when + REPEAT_AFTER => {
                        return String::new();
                    }
                    Some((old, _)) if old == message => {
                        format!("{address}: still {doing} ({})", brief(*waited))
                    }
                    Some(_) => format!("{address}: {}", one_line(shortened(message))),
                    None => {
                        let message = one_line(shortened(message));
                        let usual = usual(plan, *change).map(|usual| format!("usually {usual}, "));
                        let usual = usual.unwrap_or_default();
                        format!("{address}: {doing}, {message} ({usual}at most {})", brief(*deadline))
                    }
                }
            }
            Event::Retrying { change, message, .. } => match self.said.get(change) {
                Some((old, when)) if old == message && now < *when + REPEAT_AFTER => return String::new(),
                Some(_) | None => self.tally.lines(plan, event, now),
            },
            Event::Started { .. }
            | Event::Finished { .. }
            | Event::Log { .. }
            | Event::Interrupted
            | Event::Warning { .. } => self.tally.lines(plan, event, now),
        };
        match event {
            Event::Waiting { change, message, .. } | Event::Retrying { change, message, .. } => {
                self.said.insert(*change, (message.clone(), now));
            }
            Event::Finished { change, .. } => {
                self.said.remove(change);
            }
            Event::Started { .. } | Event::Log { .. } | Event::Interrupted | Event::Warning { .. } => {}
        }
        let clock = paint(Tint::Dim, &clock(now));
        text.lines().map(|line| format!("{clock}  {line}\n")).collect()
    }
}

/// `05:02`, `1:05:02`.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes:02}:{seconds:02}"),
        hours => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

/// How far the sections of a plan are.
#[derive(Debug)]
pub(super) struct Tally {
    detail: Detail,
    sections: BTreeMap<String, Section>,
    /// Logs of checks that run: they are shown when the check fails.
    logs: BTreeMap<usize, Vec<String>>,
}

#[derive(Debug, Default)]
struct Section {
    all: usize,
    ended: usize,
    done: usize,
    begun: Option<Duration>,
}

impl Tally {
    pub(super) fn new(detail: Detail) -> Self {
        Self { detail, sections: BTreeMap::new(), logs: BTreeMap::new() }
    }

    /// Returns the lines of an event that stay on the screen. Waits are shown by the lines that change in place.
    pub(super) fn lines(&mut self, plan: &Plan, event: &Event, now: Duration) -> String {
        if self.sections.is_empty() {
            self.count(plan);
        }
        match event {
            Event::Started { change } => {
                if let Some(section) = self.section(plan, *change) {
                    section.begun.get_or_insert(now);
                }
                String::new()
            }
            Event::Log { change, lines } if self.is_silent(plan, *change) => {
                self.logs.insert(*change, lines.clone());
                String::new()
            }
            Event::Finished { change, outcome, took } => self.finished(plan, *change, outcome, *took, now),
            Event::Waiting { .. } => String::new(),
            Event::Retrying { .. } | Event::Log { .. } | Event::Interrupted | Event::Warning { .. } => {
                lines(plan, event)
            }
        }
    }

    /// `7 of 9 objects created`, for a section of several.
    pub(super) fn part(&self, plan: &Plan, change: usize) -> Option<String> {
        let Section { all, done, .. } = self.sections.get(section(plan, change))?;
        let word = words(plan.changes.get(change)?.action).done;
        (*all > 1).then(|| format!("{done} of {all} objects {word}"))
    }

    /// `3 of 7`: sections of which something changes.
    pub(super) fn whole(&self) -> String {
        let done = self.sections.values().filter(|section| section.done == section.all).count();
        format!("{done} of {}", self.sections.len())
    }

    fn count(&mut self, plan: &Plan) {
        for change in plan.changes.iter().filter(|change| change.action != Action::Keep) {
            self.sections.entry(change.address.section().to_owned()).or_default().all += 1;
        }
    }

    fn section(&mut self, plan: &Plan, change: usize) -> Option<&mut Section> {
        self.sections.get_mut(section(plan, change)).filter(|_| !is_kept(plan, change))
    }

    /// A check that passes has nothing to say, unless it is what was asked for.
    fn is_silent(&self, plan: &Plan, change: usize) -> bool {
        let runs = |change: &Change| change.action == Action::Run;
        let only = |change: &Change| runs(change) || change.action == Action::Keep;
        self.detail != Detail::Objects
            && plan.changes.get(change).is_some_and(runs)
            && !plan.changes.iter().all(only)
    }

    fn finished(
        &mut self,
        plan: &Plan,
        change: usize,
        outcome: &Outcome,
        took: Duration,
        now: Duration,
    ) -> String {
        let log = self.logs.remove(&change).filter(|_| *outcome != Outcome::Done);
        let mut text = log.map(|lines| log_lines(address(plan, change), &lines)).unwrap_or_default();
        let verbose = self.detail == Detail::Objects;
        let Some(section) = self.section(plan, change) else {
            if !(*outcome == Outcome::Done && took.as_secs() == 0) {
                push_line(&mut text, &finished(plan, change, outcome, took));
            }
            return text;
        };
        section.ended += 1;
        section.done += usize::from(*outcome == Outcome::Done);
        let Section { all, ended, done, begun } = *section;
        let over = ended == all;
        if all == 1 || verbose || *outcome != Outcome::Done {
            push_line(&mut text, &finished(plan, change, outcome, took));
        }
        if over && all > 1 {
            let took = now.saturating_sub(begun.unwrap_or(now));
            push_line(&mut text, &section_line(plan, change, done, all, took));
        }
        if over && done == all && self.sections.len() > 1 {
            let counted = format!(" ({})", self.whole());
            text.insert_str(text.trim_end().len(), &counted);
        }
        text
    }
}

/// `dask_operator: 9 objects created after 12s`.
fn section_line(plan: &Plan, change: usize, done: usize, all: usize, took: Duration) -> String {
    let word = words(plan.changes.get(change).map_or(Action::Keep, |change| change.action)).done;
    let section = section(plan, change);
    let after = if took.as_secs() == 0 { String::new() } else { format!(" after {}", brief(took)) };
    if done == all {
        format!("{section}: {}{after}", paint(Tint::Add, &format!("{} {word}", count(all, "object"))))
    } else {
        format!("{section}: {done} of {all} objects {word}{after}")
    }
}

/// Returns the lines of one event for those who do not know the others.
pub fn lines(plan: &Plan, event: &Event) -> String {
    let mut text = String::new();
    match event {
        Event::Started { change } if is_kept(plan, *change) => {}
        Event::Started { change } => {
            push_line(&mut text, &format!("{}: {}", address(plan, *change), verb(plan, *change)));
        }
        Event::Waiting { change, message, operation: _, waited, deadline } => {
            let (address, doing) = (address(plan, *change), verb(plan, *change));
            let (waited, deadline, message) =
                (brief(*waited), brief(*deadline), one_line(shortened(message)));
            push_line(&mut text, &format!("{address}: {doing}, {message} ({waited}, at most {deadline})"));
        }
        Event::Retrying { change, message, after } => {
            let line = format!(
                "{}: {} (trying again in {})",
                address(plan, *change),
                one_line(message),
                brief(*after)
            );
            push_line(&mut text, &paint(Tint::Change, &line));
        }
        Event::Log { change, lines } => text.push_str(&log_lines(address(plan, *change), lines)),
        Event::Finished { change, outcome, took } => {
            let at_once = *outcome == Outcome::Done && took.as_secs() == 0;
            if !(at_once && is_kept(plan, *change)) {
                push_line(&mut text, &finished(plan, *change, outcome, *took));
            }
        }
        Event::Warning { message } => {
            push_line(&mut text, &format!("{} {}", paint(Tint::Change, "Warning:"), one_line(message)));
        }
        Event::Interrupted => {
            let line = "interrupted: nothing new is started, running steps finish safely; interrupt again to \
                 stop now";
            push_line(&mut text, &paint(Tint::Change, line));
        }
    }
    text
}

fn log_lines(address: &str, log: &[String]) -> String {
    let line = |line: &String| format!("{address}: {} {}\n", paint(Tint::Dim, "|"), one_line(line));
    log.iter().map(line).collect()
}

fn finished(plan: &Plan, change: usize, outcome: &Outcome, took: Duration) -> String {
    let (address, took) = (address(plan, change), brief(took));
    let action = plan.changes.get(change).map_or(Action::Keep, |change| change.action);
    match outcome {
        Outcome::Done if took == "0s" => format!("{address}: {}", paint(Tint::Add, words(action).done)),
        Outcome::Done => format!("{address}: {} after {took}", paint(Tint::Add, words(action).done)),
        Outcome::Failed { code, message, help: _ } => {
            format!(
                "{address}: {} after {took}: {} [{code}]",
                paint(Tint::Remove, "failed"),
                // Only the first line: the outcome shows the rest, such as the end of a log.
                one_line(message.lines().next().unwrap_or_default())
            )
        }
        Outcome::TimedOut { message } => {
            format!(
                "{address}: {} after {took}: {}",
                paint(Tint::Remove, "not ready in time"),
                one_line(message)
            )
        }
        Outcome::Queued { message } => {
            format!("{address}: {} after {took}: {}", paint(Tint::Change, "left waiting"), one_line(message))
        }
        Outcome::Waits { because } => format!("{address}: {} for {because}", paint(Tint::Change, "waits")),
        Outcome::Skipped { because } => {
            format!("{address}: {} because {because} did not succeed", paint(Tint::Change, "skipped"))
        }
        Outcome::InDoubt { message } => {
            format!("{address}: {} after {took}: {}", paint(Tint::Change, "unfinished"), one_line(message))
        }
        Outcome::NotStarted => format!("{address}: {}", paint(Tint::Change, "not started")),
    }
}

pub(super) fn address(plan: &Plan, change: usize) -> &str {
    plan.changes.get(change).map_or("?", |change| change.address.as_str())
}

pub(super) fn section(plan: &Plan, change: usize) -> &str {
    plan.changes.get(change).map_or("?", |change| change.address.section())
}

/// Returns true if the change keeps the thing, which is only checked. It gets a line if it takes time or does not succeed.
fn is_kept(plan: &Plan, change: usize) -> bool {
    plan.changes.get(change).is_some_and(|change| change.action == Action::Keep)
}

/// Returns how long it usually takes; the sandbox takes seconds for everything.
pub(super) fn usual(plan: &Plan, change: usize) -> Option<DurationEstimate> {
    plan.changes.get(change)?.estimate.filter(|_| !plan.target.simulated)
}

fn verb(plan: &Plan, change: usize) -> &'static str {
    plan.changes.get(change).map_or("working", |change| words(change.action).doing)
}

pub(super) fn one_line(text: &str) -> String {
    strip_controls(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::address::Address;
    use model::resource::{Identity, KindId, Lane, Lowered, Owner, Target, World};
    use plan::{Inputs, Mode};

    fn plan() -> Plan {
        let change = |lane: Lane, name: &str| {
            let address = Address::new(name);
            let identity = Identity::Check(address.clone());
            Change { lane, ..Change::new(address, identity, KindId::Object, Action::Create) }
        };
        let changes =
            vec![change(Lane::Kubernetes, "namespace.n"), change(Lane::Pool("p".into()), "node_pool.p")];
        let lowered = Lowered {
            owner: Owner { stack: "s".into(), id: "i".into() },
            target: Target { simulated: true, ..Target::default() },
            resources: [].into(),
            external: Vec::new(),
            capacity_options: Vec::new(),
        };
        let (world, sources) = (World::empty(), Default::default());
        Inputs::of(lowered, Mode::Apply, &world, &sources).into_plan(changes, Vec::new(), Vec::new(), None)
    }

    #[test]
    fn a_log_says_each_thing_once() {
        let plan = plan();
        let told = |events: &[Event]| {
            let mut log = Log::new(Detail::Sections);
            let mut now = Duration::ZERO;
            let mut tell = |event: &Event| {
                match event {
                    Event::Waiting { waited, .. } => now = *waited,
                    Event::Finished { took, .. } => now = *took,
                    _ => {}
                }
                log.event(&plan, event, now)
            };
            let text: String = events.iter().map(&mut tell).collect();
            anstream::adapter::strip_str(&text).to_string()
        };
        let done = |change, seconds| {
            let took = Duration::from_secs(seconds);
            Event::Finished { change, outcome: Outcome::Done, took }
        };
        assert_eq!(
            told(&[Event::Started { change: 0 }, done(0, 0)]),
            "00:00  namespace.n: created (1 of 2)\n"
        );
        let waits = |message: &str, seconds| {
            let (waited, deadline) = (Duration::from_secs(seconds), Duration::from_secs(1800));
            let (message, operation) = (message.into(), Some("operation-1".into()));
            Event::Waiting { change: 1, message, operation, waited, deadline }
        };
        let mut events = vec![Event::Started { change: 1 }, waits("a", 0)];
        events.extend((1..=18).map(|ten| waits("a", ten * 10)));
        events.extend([waits("b", 181), done(1, 182)]);
        let expected = "00:00  node_pool.p: creating, a (at most 30m)\n\
            01:00  node_pool.p: still creating (1m)\n\
            02:00  node_pool.p: still creating (2m)\n\
            03:00  node_pool.p: still creating (3m)\n\
            03:01  node_pool.p: b\n\
            03:02  node_pool.p: created after 3m2s (1 of 2)\n";
        assert_eq!(told(&events), expected);
    }
}
