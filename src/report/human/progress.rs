//! Progress of an apply: a line for each event, or on a terminal a bar for each change that waits, below the
//! lines of what has ended.

use std::collections::BTreeMap;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::style::{Tint, paint, push_line, tame};
use crate::apply::{Event, Outcome};
use crate::diag::Colour;
use crate::kinds::kubernetes::why::shortened;
use crate::plan::{Action, Plan};
use crate::report::{brief, words};
use crate::resource::Lane;

/// What an event is told as: lines to keep, and what a bar of its change would say.
#[derive(Debug, PartialEq, Eq)]
struct Telling {
    lines: String,
    bar: Bar,
}

#[derive(Debug, PartialEq, Eq)]
enum Bar {
    /// Nothing to do with one change.
    None,
    /// The change goes on like this.
    Shows(usize, String),
    /// The change has ended.
    Ends(usize),
}

/// Between two lines that only say that a change still goes on: as long as it has gone on, and at most this.
const STILL: Duration = Duration::from_secs(60);

/// Progress where there are no bars: in a log, or on a terminal that can draw nothing. What ends at once has one line, and
/// a wait says what it waits for when that changes.
#[derive(Debug, Default)]
pub struct Log {
    /// What each change that goes on has said: for what it waits, and when it said so.
    waits: BTreeMap<usize, (String, Duration)>,
}

impl Log {
    /// The lines for an event.
    pub fn event(&mut self, plan: &Plan, event: &Event) -> String {
        match event {
            // GKE takes minutes; in Kubernetes the first wait says that it has begun.
            Event::Started { change } if !is_slow(plan, *change) => String::new(),
            Event::Waiting { change, message, waited, deadline } => {
                let (address, doing) = (address(plan, *change), doing(plan, *change));
                let said = self.waits.get(change);
                let mut text = String::new();
                match said {
                    Some((old, when)) if old == message && *waited < *when + (*when).min(STILL) => {}
                    Some((old, _)) if old == message => {
                        push_line(&mut text, &format!("{address}: still {doing} ({})", brief(*waited)));
                    }
                    Some(_) | None => {
                        let (message, deadline) = (one_line(shortened(message)), brief(*deadline));
                        let line = format!(
                            "{address}: {doing} ({}, waiting for {message}, at most {deadline})",
                            brief(*waited)
                        );
                        push_line(&mut text, &line);
                    }
                }
                if !text.is_empty() {
                    self.waits.insert(*change, (message.clone(), *waited));
                }
                text
            }
            Event::Finished { change, .. } => {
                self.waits.remove(change);
                lines(plan, event)
            }
            Event::Started { .. }
            | Event::Retrying { .. }
            | Event::Log { .. }
            | Event::Interrupted
            | Event::Warning { .. } => lines(plan, event),
        }
    }
}

/// The lines of one event for those who do not know the others.
pub fn lines(plan: &Plan, event: &Event) -> String {
    tell(plan, event, Reader::Log).lines
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    /// Reads lines only: waiting is told in lines.
    Log,
    /// Sees bars: waiting is told there.
    Terminal,
}

fn tell(plan: &Plan, event: &Event, reader: Reader) -> Telling {
    let mut lines = String::new();
    let bar = match event {
        Event::Started { change } => {
            let (address, doing) = (address(plan, *change), doing(plan, *change));
            if reader == Reader::Log && !is_kept(plan, *change) {
                push_line(&mut lines, &format!("{address}: {doing}…"));
            }
            // A change that is quick has no bar, which would only flicker: the first wait makes it.
            Bar::None
        }
        Event::Waiting { change, message, waited, deadline } => {
            let (address, doing) = (address(plan, *change), doing(plan, *change));
            let (waited, deadline, message) =
                (brief(*waited), brief(*deadline), one_line(shortened(message)));
            if reader == Reader::Log {
                let text =
                    format!("{address}: still {doing} ({waited}, waiting for {message}, at most {deadline})");
                push_line(&mut lines, &text);
            }
            Bar::Shows(*change, format!("{address}: {doing}, waiting for {message} (at most {deadline})"))
        }
        Event::Retrying { change, message, after } => {
            let address = address(plan, *change);
            let text = format!("{address}: trying again in {}: {}", brief(*after), one_line(message));
            push_line(&mut lines, &paint(Tint::Change, &text));
            Bar::Shows(*change, text)
        }
        Event::Log { change, lines: log } => {
            let address = address(plan, *change);
            for line in log {
                push_line(&mut lines, &format!("{address}: {} {}", paint(Tint::Dim, "|"), one_line(line)));
            }
            Bar::None
        }
        Event::Finished { change, outcome, took } => {
            let at_once = *outcome == Outcome::Done && took.as_secs() == 0;
            if !(at_once && is_kept(plan, *change)) {
                push_line(&mut lines, &finished(plan, *change, outcome, *took));
            }
            Bar::Ends(*change)
        }
        Event::Warning { message } => {
            push_line(&mut lines, &format!("{} {}", paint(Tint::Change, "Warning:"), one_line(message)));
            Bar::None
        }
        Event::Interrupted => {
            let text = "interrupted: nothing new is started, what runs goes on to a safe point; interrupt again to stop now";
            push_line(&mut lines, &paint(Tint::Change, text));
            Bar::None
        }
    };
    Telling { lines, bar }
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
                one_line(message)
            )
        }
        Outcome::TimedOut { message } => {
            format!(
                "{address}: {} after {took}: {}",
                paint(Tint::Remove, "not ready in time"),
                one_line(message)
            )
        }
        Outcome::Skipped { because } => {
            format!("{address}: {} because {because} did not succeed", paint(Tint::Change, "skipped"))
        }
        Outcome::InDoubt { message } => {
            format!("{address}: {} after {took}: {}", paint(Tint::Change, "in doubt"), one_line(message))
        }
        Outcome::NotStarted => format!("{address}: {}", paint(Tint::Change, "not started")),
    }
}

fn address(plan: &Plan, change: usize) -> &str {
    plan.changes.get(change).map_or("?", |change| change.address.as_str())
}

/// What is kept is only looked at: it is worth a line when it has to be waited for or is not as it should be.
fn is_kept(plan: &Plan, change: usize) -> bool {
    plan.changes.get(change).is_some_and(|change| change.action == Action::Keep)
}

/// Whether a change goes to an API that takes minutes.
fn is_slow(plan: &Plan, change: usize) -> bool {
    plan.changes.get(change).is_some_and(|change| change.lane != Lane::Kubernetes)
}

fn doing(plan: &Plan, change: usize) -> &'static str {
    plan.changes.get(change).map_or("working", |change| words(change.action).doing)
}

fn one_line(text: &str) -> String {
    tame(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The bars on a terminal.
pub struct Bars {
    colour: Colour,
    group: MultiProgress,
    bars: BTreeMap<usize, ProgressBar>,
}

impl Bars {
    /// Bars on stderr.
    pub fn new(colour: Colour) -> Self {
        let group = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(10));
        Self { colour, group, bars: BTreeMap::new() }
    }

    /// Tells one event.
    ///
    /// # Errors
    /// When the terminal cannot be written.
    pub fn event(&mut self, plan: &Plan, event: &Event) -> std::io::Result<()> {
        let Telling { lines, bar } = tell(plan, event, Reader::Terminal);
        match bar {
            Bar::None => {}
            Bar::Shows(change, text) => self.show(change, text),
            Bar::Ends(change) => self.end(change),
        }
        if lines.is_empty() { Ok(()) } else { self.group.println(self.coloured(lines.trim_end())) }
    }

    /// Takes all bars away.
    ///
    /// # Errors
    /// When the terminal cannot be written.
    pub fn clear(&mut self) -> std::io::Result<()> {
        self.bars.clear();
        self.group.clear()
    }

    fn show(&mut self, change: usize, text: String) {
        let text = self.coloured(&text);
        if let Some(bar) = self.bars.get(&change) {
            bar.set_message(text);
            return;
        }
        // It joins the group first: before that it would draw on its own.
        let bar = self.group.add(ProgressBar::new_spinner());
        bar.set_style(style());
        bar.set_message(text);
        bar.enable_steady_tick(Duration::from_millis(100));
        self.bars.insert(change, bar);
    }

    fn end(&mut self, change: usize) {
        if let Some(bar) = self.bars.remove(&change) {
            bar.finish_and_clear();
            self.group.remove(&bar);
        }
    }

    fn coloured(&self, text: &str) -> String {
        match self.colour {
            Colour::On => text.to_owned(),
            Colour::Off => anstream::adapter::strip_str(text).to_string(),
        }
    }
}

/// How long it has run stands in front, so that it is seen on a narrow terminal too.
fn style() -> ProgressStyle {
    ProgressStyle::with_template("{spinner} {elapsed:>4} {wide_msg}")
        .unwrap_or_else(|_| ProgressStyle::default_spinner())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::{Address, FieldPath};
    use crate::plan::{Change, Mode};
    use crate::resource::{Identity, KindId, Owner, Target};

    fn plan() -> Plan {
        let change = |lane: Lane, name: &str| Change {
            address: Address::new(name),
            identity: Identity::Check(Address::new(name)),
            kind: KindId::Object,
            action: Action::Create,
            fields: Vec::new(),
            reason: None,
            origin: FieldPath::root(),
            location: None,
            lane,
            steps: Vec::new(),
            follows: Vec::new(),
            fingerprint: None,
            foreign: false,
            taken: None,
            before: serde_json::Value::Null,
        };
        Plan {
            target: Target { gke: None, context: None, kubeconfig: None, simulated: true },
            owner: Owner { stack: "s".into(), id: "i".into() },
            mode: Mode::Apply,
            offline: false,
            changes: vec![
                change(Lane::Kubernetes, "namespace.n"),
                change(Lane::Pool("p".into()), "node_pool.p"),
            ],
            desired: Vec::new(),
            theirs: Vec::new(),
            reads: Vec::new(),
            notes: Vec::new(),
            hourly: None,
            allowed: Vec::new(),
            partial: None,
            replace: Vec::new(),
            record_left: false,
            barriers: Vec::new(),
            incomplete: false,
            retarget: false,
            when_idle: None,
        }
    }

    #[test]
    fn a_log_says_each_thing_once() {
        let plan = plan();
        let told = |events: &[Event]| {
            let mut log = Log::default();
            let text: String = events.iter().map(|event| log.event(&plan, event)).collect();
            anstream::adapter::strip_str(&text).to_string()
        };
        let done = |change, seconds| {
            let took = Duration::from_secs(seconds);
            Event::Finished { change, outcome: Outcome::Done, took }
        };
        assert_eq!(told(&[Event::Started { change: 0 }, done(0, 0)]), "namespace.n: created\n");
        let waits = |message: &str, seconds| {
            let (waited, deadline) = (Duration::from_secs(seconds), Duration::from_secs(1800));
            Event::Waiting { change: 1, message: message.into(), waited, deadline }
        };
        let mut events = vec![Event::Started { change: 1 }, waits("a", 0)];
        events.extend((1..=18).map(|ten| waits("a", ten * 10)));
        events.extend([waits("b", 181), done(1, 182)]);
        let expected = "node_pool.p: creating…\n\
            node_pool.p: creating (0s, waiting for a, at most 30m)\n\
            node_pool.p: still creating (10s)\n\
            node_pool.p: still creating (20s)\n\
            node_pool.p: still creating (40s)\n\
            node_pool.p: still creating (1m20s)\n\
            node_pool.p: still creating (2m20s)\n\
            node_pool.p: creating (3m1s, waiting for b, at most 30m)\n\
            node_pool.p: created after 3m2s\n";
        assert_eq!(told(&events), expected);
    }
}
