//! Why a thing is as it is: its state, what a plan would change, and why its pods do not run; for people and programs.

use serde_json::{Value, json};

use super::human::style::{Tint, paint, push_line, strip_controls, wrap};
use super::status::State;
use kinds::kubernetes::why::Cause;
use model::address::Address;

/// One thing that was asked about.
#[derive(Clone, Debug, PartialEq)]
pub struct Thing {
    /// Its name for people.
    pub address: Address,
    /// Its state.
    pub state: State,
    /// Its status line.
    pub line: String,
    /// Where the file asks for it.
    pub place: Option<String>,
}

/// A change that a plan would make to one of the things.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// Its name for people.
    pub address: Address,
    /// `update`, `replace`.
    pub action: &'static str,
    /// Why, where the fields do not say it.
    pub reason: Option<String>,
    /// The fields that differ, with the effect of each: `spec.worker.replicas: 2 -> 3 (stack.toml:12:5)`.
    pub fields: Vec<String>,
    /// The addresses whose changes come before this one.
    pub after: Vec<Address>,
}

/// A cause, and the things that it holds up.
#[derive(Clone, Debug, PartialEq)]
pub struct Because {
    /// Pods or other things, by name.
    pub of: Vec<String>,
    /// Why.
    pub cause: Cause,
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Why {
    pub things: Vec<Thing>,
    /// Changes that a plan would make.
    pub planned: Vec<Planned>,
    /// Notes of the plan about them, and why there is no plan when there is none.
    pub notes: Vec<String>,
    /// Why they do not run.
    pub causes: Vec<Because>,
}

impl Why {
    /// Returns true if everything is ready, nothing would change and no cause was found.
    pub fn has_no_problem(&self) -> bool {
        let ready = self.things.iter().all(|thing| thing.state == State::Ready);
        ready && self.planned.is_empty() && self.causes.is_empty()
    }

    /// Adds a cause, to one that is the same when there is one.
    pub fn because(&mut self, of: String, cause: Cause) {
        match self.causes.iter_mut().find(|known| known.cause == cause) {
            Some(known) => known.of.push(of),
            None => self.causes.push(Because { of: vec![of], cause }),
        }
    }

    /// Returns the answer as JSON, for programs.
    pub fn json(&self) -> Value {
        let things = self.things.iter().map(|Thing { address, state, line, place }| {
            json!({ "address": address, "state": state.word(), "why": state.why(), "says": line, "location": place })
        });
        let planned = self.planned.iter().map(|Planned { address, action, reason, fields, after }| {
            json!({ "address": address, "action": action, "reason": reason, "fields": fields, "after": after })
        });
        let causes = self.causes.iter().map(|Because { of, cause: Cause { code, what, said, remedies, outlook: _ } }| {
            json!({ "of": of, "code": code, "what": what, "said": said, "cures": remedies })
        });
        json!({
            "well": self.has_no_problem(), "things": things.collect::<Vec<_>>(), "planned": planned.collect::<Vec<_>>(),
            "notes": self.notes, "causes": causes.collect::<Vec<_>>(),
        })
    }

    /// For people; `every` also shows what is as it should be.
    pub fn text(&self, every: bool, width: usize, program: &str) -> String {
        let mut text = String::new();
        let shown = |thing: &&Thing| every || self.things.len() == 1 || thing.state != State::Ready;
        for Thing { address, state, line, place } in self.things.iter().filter(shown) {
            let place = place.as_ref().map(|place| format!(" ({place})")).unwrap_or_default();
            let head = format!("{}{place}: {}", paint(Tint::Bold, address.as_str()), state.word());
            let line = if line.is_empty() { String::new() } else { format!("; {line}") };
            text.push_str(&wrap("", &strip_controls(&format!("{head}{line}")), width));
            // The causes below give the reason in their own words.
            if let Some(why) = state.why_above(!self.causes.is_empty()) {
                text.push_str(&wrap("  ", &strip_controls(&why), width));
            }
        }
        for Because { of, cause } in &self.causes {
            text.push('\n');
            let names = match of.as_slice() {
                [one] => one.clone(),
                [first, rest @ ..] => format!("{first} and {} more", rest.len()),
                [] => String::new(),
            };
            text.push_str(&wrap(
                "",
                &format!("{}: {}", paint(Tint::Bold, &strip_controls(&names)), strip_controls(&cause.what)),
                width,
            ));
            for line in cause.said.iter().flat_map(|said| said.lines()) {
                push_line(&mut text, &format!("    {}", paint(Tint::Dim, &strip_controls(line))));
            }
            for remedy in &cause.remedies {
                text.push_str(&wrap("  -> ", &strip_controls(remedy), width));
            }
        }
        for Planned { address, action, reason, fields, after } in &self.planned {
            text.push('\n');
            let what = format!("{}: the next apply would {action} it", paint(Tint::Bold, address.as_str()));
            text.push_str(&wrap("", &what, width));
            for line in reason.iter().chain(fields) {
                text.push_str(&wrap("    ", &strip_controls(line), width));
            }
            if !after.is_empty() {
                let name = |address| if every { Address::as_str(address) } else { Address::section(address) };
                let mut names: Vec<&str> = after.iter().map(name).collect();
                names.dedup();
                text.push_str(&wrap("    ", &format!("after {}", names.join(", ")), width));
            }
            let next = format!("  -> {program} plan shows the details, {program} apply applies it");
            push_line(&mut text, &next);
        }
        for note in &self.notes {
            text.push('\n');
            text.push_str(&wrap("note: ", &strip_controls(note), width));
        }
        if self.has_no_problem() {
            text.push_str("Healthy; no changes planned.\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kinds::kubernetes::why::Outlook;

    #[test]
    fn causes_that_are_the_same_are_told_once() {
        let cause = Cause {
            code: "gpus",
            what: "no node has a free GPU".to_owned(),
            said: Some("0/2 nodes are available: 2 Insufficient nvidia.com/gpu.".to_owned()),
            remedies: vec!["more nodes: dask-infra scale node_pool.t4 3 --write".to_owned()],
            outlook: Outlook::Unknown,
        };
        let state = State::Waiting("1 of 3 workers".into());
        let address = Address::new("dask_cluster.d");
        let place = Some("stack.toml:9:1".to_owned());
        let mut why = Why {
            things: vec![Thing { address: address.clone(), state, line: "Running".to_owned(), place }],
            ..Why::default()
        };
        why.because("pod a".to_owned(), cause.clone());
        why.because("pod b".to_owned(), cause);
        why.planned.push(Planned {
            address,
            action: "update",
            reason: None,
            fields: vec!["spec.worker.replicas: 3 -> 2 (stack.toml:9:1)".to_owned()],
            after: vec![Address::new("node_pool.t4")],
        });
        let text = anstream::adapter::strip_str(&why.text(false, 100, "dask-infra")).to_string();
        let expected = "dask_cluster.d (stack.toml:9:1): waiting; Running\n\
            \x20 1 of 3 workers\n\
            \n\
            pod a and 1 more: no node has a free GPU\n\
            \x20   0/2 nodes are available: 2 Insufficient nvidia.com/gpu.\n\
            \x20 -> more nodes: dask-infra scale node_pool.t4 3 --write\n\
            \n\
            dask_cluster.d: the next apply would update it\n\
            \x20   spec.worker.replicas: 3 -> 2 (stack.toml:9:1)\n\
            \x20   after node_pool.t4\n\
            \x20 -> dask-infra plan shows the details, dask-infra apply applies it\n";
        assert_eq!(text, expected);
        assert_eq!(why.json()["causes"][0]["of"], json!(["pod a", "pod b"]));
        assert!(!why.has_no_problem());
    }
}
