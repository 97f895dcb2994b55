//! Progress of an apply: a line for each event, or on a terminal a bar for each change that waits, below the
//! lines of what has ended.

use std::collections::BTreeMap;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::style::{Tint, paint, push_line, tame};
use crate::apply::{Event, Outcome};
use crate::diag::Colour;
use crate::plan::{Action, Plan};
use crate::report::{brief, words};

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

/// The lines that a reader of a log sees.
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
            let (waited, deadline, message) = (brief(*waited), brief(*deadline), one_line(message));
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
