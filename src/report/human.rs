//! Plans, progress and summaries for people: text with colors, in the terminal's width.

use std::io;
use std::time::Instant;

use apply::{Event, Summary};
use model::diag::{self, Diagnostic};
use model::resource::{Owner, Target};
use model::source::Sources;
use plan::{DriftReport, Plan};

use super::{Reporter, Screen, View, count};

mod bars;
pub mod cost;
mod drift_text;
mod fallbacks;
pub mod findings;
pub mod page;
pub mod plan_text;
pub mod progress;
mod steps;
mod stop_text;
pub(super) mod style;

pub use style::printable;
pub mod summary;
mod values;

pub use plan_text::Detail;

/// The reporter for people. Plans and summaries are data (stdout); progress and diagnostics are not.
pub struct Human {
    screen: Screen,
    detail: Detail,
    program: String,
    bars: Option<bars::Bars>,
    log: progress::Log,
    /// The time of the first event.
    begun: Option<Instant>,
    error: Option<io::Error>,
}

impl Human {
    /// `program` is how the program was called, up to the command: messages that name a next command begin
    /// with it.
    pub fn new(screen: Screen, detail: Detail, program: String) -> Self {
        let log = progress::Log::new(detail);
        Self { screen, detail, program, bars: None, log, begun: None, error: None }
    }

    fn clear_bars(&mut self) {
        if let Some(mut bars) = self.bars.take() {
            let cleared = bars.clear();
            self.keep(cleared);
            // The last line above the bars was left open.
            self.screen.message("\n");
        }
    }

    fn keep(&mut self, written: io::Result<()>) {
        if let (Err(error), None) = (written, &self.error) {
            self.error = Some(error);
        }
    }
}

impl Reporter for Human {
    fn plan(&mut self, plan: &Plan, view: &View<'_>) {
        let Self { screen, detail, program, .. } = self;
        let options = plan_text::Options { width: screen.data_look().width, detail: *detail, program };
        let text = plan_text::render(plan, view, &options);
        screen.data(&text);
    }

    fn drift(&mut self, drifted: &DriftReport, owner: &Owner, target: &Target) {
        let Self { screen, program, .. } = self;
        let text = drift_text::render(drifted, owner, target, program, screen.data_look().width);
        screen.data(&text);
    }

    fn event(&mut self, plan: &Plan, event: &Event) {
        if !self.screen.has_terminal() {
            let now = self.begun.get_or_insert_with(Instant::now).elapsed();
            self.screen.message(&self.log.event(plan, event, now));
            return;
        }
        let (look, detail) = (self.screen.messages_look(), self.detail);
        let told = self.bars.get_or_insert_with(|| bars::Bars::new(look, detail)).event(plan, event);
        self.keep(told);
    }

    fn summary(&mut self, plan: &Plan, summary: &Summary) {
        self.clear_bars();
        let text = summary::render(plan, summary, &self.program, self.screen.data_look().width);
        self.screen.data(&text);
    }

    fn valid(&mut self, warnings: usize) {
        let with = match warnings {
            0 => String::new(),
            number => format!(", with {}", count(number, "warning")),
        };
        self.screen.data(&format!("Success! The stack is valid{with}.\n"));
    }

    fn diagnostics(&mut self, diagnostics: &[Diagnostic], sources: &Sources) {
        self.clear_bars();
        if !diagnostics.is_empty() {
            let text = diag::render_counted(diagnostics, sources, self.screen.messages_look());
            self.screen.message(&text);
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        self.clear_bars();
        self.screen.finish()?;
        self.error.take().map_or(Ok(()), Err)
    }
}
