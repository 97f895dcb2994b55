//! The ways of a change, one after the other: what has no machines is taken back, and the next way is tried. All requests are
//! those of the plan; what is decided here is only how many of its ways are gone.

use crate::failure::failed;
use crate::program::Run;
use crate::{Event, Outcome};
use model::diag::Code;
use model::record::Tried;
use model::resource::{Fallback, Step};

impl Run<'_> {
    /// Goes on with the next way for as long as what fails is that there are no machines.
    pub(crate) async fn climb(&mut self, climb: &Fallback, first: Outcome) -> Result<(), Outcome> {
        let thing = &self.change.identity;
        let (mut way, mut outcome) = (climb.first.as_str(), first);
        let mut tried: Vec<Tried> = Vec::new();
        for rung in &climb.then {
            let Some(why) = self.lacks_machines(&outcome) else { return Err(told(&tried, outcome)) };
            let address = &self.change.address;
            let message = format!("{address}: no machines by {way}: {why}; trying {}", rung.option);
            self.tell(Event::Warning { message });
            tried.push(Tried { option: way.to_owned(), why });
            way = &rung.option;
            match self.all(&rung.steps).await {
                Ok(()) => {
                    self.shared.writer.bought(thing, way, tried).await;
                    return Ok(());
                }
                Err(next) => outcome = next,
            }
        }
        let Some(why) = self.lacks_machines(&outcome) else { return Err(told(&tried, outcome)) };
        tried.push(Tried { option: way.to_owned(), why });
        if let Err(outcome) = self.all(&climb.cleanup).await {
            return Err(told(&tried, outcome));
        }
        let ways: Vec<String> =
            tried.iter().map(|Tried { option: way, why }| format!("{way}: {why}")).collect();
        let message = format!("{thing} has no machines by any way of `capacity`\n{}", ways.join("\n"));
        let help = "nothing of it is left; apply again later, or add a zone or a way to `capacity`: \"flex-start\" and \"queued\" \
                    wait for machines";
        Err(failed(Code::OperationFailed, message, Some(help)))
    }

    /// Takes GKE's message about machines that are not available, when a step failed because of that.
    fn lacks_machines(&mut self, outcome: &Outcome) -> Option<String> {
        self.short.take().filter(|_| matches!(outcome, Outcome::Failed { .. }))
    }

    async fn all(&mut self, steps: &[Step]) -> Result<(), Outcome> {
        for step in steps {
            self.step_unless_stopped(step, &mut None).await?;
        }
        Ok(())
    }
}

/// An outcome with the ways before it.
fn told(tried: &[Tried], outcome: Outcome) -> Outcome {
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
