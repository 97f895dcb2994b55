//! Progress on a terminal: a bar for each section that waits, and below them how much is done.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use super::plan_text::Detail;
use super::progress::{Tally, one_line, section, usual};
use super::style::{Tint, paint};
use crate::report::brief;
use apply::Event;
use kinds::kubernetes::why::shortened;
use model::diag::{Colour, Look};
use plan::Plan;

/// With fewer columns a bar says only what matters most.
const NARROW: usize = 80;

/// The bars on a terminal.
pub struct Bars {
    look: Look,
    tally: Tally,
    begun: Instant,
    group: MultiProgress,
    bars: BTreeMap<String, Bar>,
    /// Below all bars, as long as there are some.
    total: Option<ProgressBar>,
}

struct Bar {
    bar: ProgressBar,
    /// Changes of the section that are in progress, with their latest messages; the newest message is last.
    waits: Vec<(usize, String)>,
}

impl Bars {
    /// Bars on stderr, of an apply that begins.
    pub fn new(look: Look, detail: Detail) -> Self {
        let group = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(10));
        let (tally, bars) = (Tally::new(detail), BTreeMap::new());
        Self { look, tally, begun: Instant::now(), group, bars, total: None }
    }

    /// Tells one event.
    ///
    /// # Errors
    /// When the terminal cannot be written.
    pub fn event(&mut self, plan: &Plan, event: &Event) -> std::io::Result<()> {
        let lines = self.tally.lines(plan, event, self.begun.elapsed());
        match event {
            Event::Waiting { change, message, operation: _, waited: _, deadline } => {
                let limit = match usual(plan, *change) {
                    Some(usual) => format!("usually {usual}"),
                    None => format!("of {}", brief(*deadline)),
                };
                self.show(plan, *change, one_line(shortened(message)), Some(&limit));
            }
            Event::Retrying { change, message, after } => {
                let text = format!("{} (trying again in {})", one_line(message), brief(*after));
                self.show(plan, *change, text, None);
                return Ok(());
            }
            Event::Finished { change, .. } => self.end(plan, *change),
            // A bar starts at a change's first wait: changes without one are too quick to show.
            Event::Started { .. } | Event::Log { .. } | Event::Warning { .. } | Event::Interrupted => {}
        }
        if lines.is_empty() { Ok(()) } else { self.group.println(self.coloured(lines.trim_end())) }
    }

    /// Takes all bars away.
    ///
    /// # Errors
    /// When the terminal cannot be written.
    pub fn clear(&mut self) -> std::io::Result<()> {
        self.bars.clear();
        self.total = None;
        self.group.clear()
    }

    fn show(&mut self, plan: &Plan, change: usize, text: String, limit: Option<&str>) {
        let name = section(plan, change);
        if !self.bars.contains_key(name) {
            let bar = self.bar(plan, name);
            self.bars.insert(name.to_owned(), Bar { bar, waits: Vec::new() });
        }
        if let Some(Bar { bar, waits }) = self.bars.get_mut(name) {
            waits.retain(|(place, _)| *place != change);
            waits.push((change, text));
            if limit.is_some() {
                bar.set_style(timed(self.look, limit));
            }
        }
        self.update_totals(plan, change);
    }

    /// Returns a new bar above the line of the total. It joins the group first: before that it would draw on its own.
    fn bar(&mut self, plan: &Plan, name: &str) -> ProgressBar {
        let total = self.total.get_or_insert_with(|| {
            let total = self.group.add(ProgressBar::new_spinner().with_elapsed(self.begun.elapsed()));
            total.set_style(style("  {msg}, {took}"));
            total.enable_steady_tick(Duration::from_millis(100));
            total
        });
        let bar = self.group.insert_before(total, ProgressBar::new_spinner());
        bar.set_style(timed(self.look, None));
        let widest = plan.changes.iter().map(|change| change.address.section().chars().count()).max();
        let prefix = column(name, widest.unwrap_or(0).min(self.look.width / 3));
        bar.set_prefix(self.coloured(&paint(Tint::Bold, &prefix)));
        bar.enable_steady_tick(Duration::from_millis(100));
        bar
    }

    fn end(&mut self, plan: &Plan, change: usize) {
        let name = section(plan, change);
        let Some(Bar { bar, waits }) = self.bars.get_mut(name) else { return };
        waits.retain(|(place, _)| *place != change);
        if waits.is_empty() {
            bar.finish_and_clear();
            self.group.remove(bar);
            self.bars.remove(name);
        }
        self.update_totals(plan, change);
    }

    /// How much of the section is done and the newest of what it waits for; how much of all is done.
    fn update_totals(&mut self, plan: &Plan, change: usize) {
        if let Some(total) = &self.total {
            total.set_message(format!("{} done", self.tally.whole()));
        }
        let Some(Bar { bar, waits }) = self.bars.get(section(plan, change)) else { return };
        let part = self.tally.part(plan, change);
        let newest = waits.last().map(|(_, text)| text.clone());
        let text: Vec<String> = part.into_iter().chain(newest).collect();
        bar.set_message(text.join("; "));
    }

    fn coloured(&self, text: &str) -> String {
        match self.look.colour {
            Colour::On => text.to_owned(),
            Colour::Off => anstream::adapter::strip_str(text).to_string(),
        }
    }
}

/// So wide, cut when it is longer.
fn column(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return format!("{text:width$}");
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// Returns a bar with the time that it has taken, and where there is room how long it usually takes or may take.
fn timed(look: Look, limit: Option<&str>) -> ProgressStyle {
    let limit = limit.filter(|_| look.width >= NARROW).map(|limit| format!(" {limit}"));
    style(&format!("{{spinner}} {{prefix}}  {{wide_msg}}  {{took}}{}", limit.unwrap_or_default()))
}

fn style(template: &str) -> ProgressStyle {
    let took = |state: &ProgressState, out: &mut dyn std::fmt::Write| {
        let _ = write!(out, "{}", brief(state.elapsed()));
    };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner());
    style.with_key("took", took)
}
