//! Tries the capacity options of a change one after another. If an option has no machines, its pool is deleted and the next
//! option is tried. All requests come from the plan; apply only decides how many options it uses.

use crate::change_run::ChangeRun;
use crate::failure::failed;
use crate::{Event, Outcome};
use model::diag::Code;
use model::record::Tried;
use model::resource::{Fallback, Step};

impl ChangeRun<'_> {
    /// Tries the next capacity option for as long as a step fails for lack of machines.
    pub(crate) async fn try_fallbacks(&mut self, fallback: &Fallback, first: Outcome) -> Result<(), Outcome> {
        let thing = &self.change.identity;
        let (mut option, mut outcome) = (fallback.first.as_str(), first);
        let mut tried: Vec<Tried> = Vec::new();
        for attempt in &fallback.then {
            let Some(why) = self.take_capacity_failure(&outcome) else {
                return Err(with_tried(&tried, outcome));
            };
            let address = &self.change.address;
            let message = format!("{address}: no machines by {option}: {why}; trying {}", attempt.option);
            self.report(Event::Warning { message });
            tried.push(Tried { option: option.to_owned(), why });
            option = &attempt.option;
            match self.run_steps(&attempt.steps).await {
                Ok(()) => {
                    self.shared.writer.note_capacity_used(thing, option, tried).await;
                    return Ok(());
                }
                Err(next) => outcome = next,
            }
        }
        let Some(why) = self.take_capacity_failure(&outcome) else { return Err(with_tried(&tried, outcome)) };
        tried.push(Tried { option: option.to_owned(), why });
        if let Err(outcome) = self.run_steps(&fallback.cleanup).await {
            return Err(with_tried(&tried, outcome));
        }
        let options: Vec<String> =
            tried.iter().map(|Tried { option, why }| format!("{option}: {why}")).collect();
        let message = format!("{thing} has no machines by any way of `capacity`\n{}", options.join("\n"));
        let help = "nothing of it is left; apply again later, or add a zone or a way to `capacity`: \"flex-start\" and \"queued\" \
                    wait for machines";
        Err(failed(Code::OperationFailed, message, Some(help)))
    }

    /// Takes GKE's message that machines are not available, if the step failed because of that.
    fn take_capacity_failure(&mut self, outcome: &Outcome) -> Option<String> {
        self.no_capacity.take().filter(|_| matches!(outcome, Outcome::Failed { .. }))
    }

    async fn run_steps(&mut self, steps: &[Step]) -> Result<(), Outcome> {
        for step in steps {
            self.step_unless_stopped(step, &mut None).await?;
        }
        Ok(())
    }
}

/// Adds the capacity options that were tried before to the message of an outcome.
fn with_tried(tried: &[Tried], outcome: Outcome) -> Outcome {
    let before: Vec<&str> = tried.iter().map(|tried| tried.option.as_str()).collect();
    if before.is_empty() {
        return outcome;
    }
    let more = |message: String| format!("{message} (without machines before: {})", before.join(", "));
    match outcome {
        Outcome::Failed { code, message, help } => Outcome::Failed { code, message: more(message), help },
        Outcome::TimedOut { message } => Outcome::TimedOut { message: more(message) },
        Outcome::InDoubt { message } => Outcome::InDoubt { message: more(message) },
        // The way before was taken back, or may be half taken back.
        Outcome::NotStarted => Outcome::InDoubt { message: more("the next way was not tried".to_owned()) },
        Outcome::Queued { message } => Outcome::Queued { message: more(message) },
        other @ (Outcome::Done | Outcome::Skipped { .. } | Outcome::Waits { .. }) => other,
    }
}
