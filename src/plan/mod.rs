//! Desired and live in, a plan out. Pure: no clock, no network, no terminal; same input, same bytes.

use serde::{Deserialize, Serialize};

mod dask;
pub mod diff;
pub mod file;
pub mod graph;
mod leave;
pub mod make;
pub mod review;
mod steps;

pub use make::{Inputs, plan, wanted};
pub use steps::inline_pool;

use crate::address::{Address, FieldPath};
use crate::resource::{FieldChange, Identity, Lane, Owner, Resource, Step, Target};

pub use crate::resource::Action;

/// One thing and what happens to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// Its name for people.
    pub address: Address,
    /// Its name for the API.
    pub identity: Identity,
    /// The name of its kind.
    pub kind: String,
    /// What happens.
    pub action: Action,
    /// What differs, for updates and replaces.
    pub fields: Vec<FieldChange>,
    /// Why, when the fields alone do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The TOML place that asks for it; the place of the stack's name for what is no longer in the file.
    pub origin: FieldPath,
    /// `stack.toml:12:1`, as text, so that a saved plan still shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// What limits it.
    pub lane: Lane,
    /// What apply does, in order. Empty for `Keep`.
    pub steps: Vec<Step>,
    /// Places in the plan's list of changes that must be done before.
    pub follows: Vec<usize>,
    /// Digest of what the plan relies on (uid and the fields compared); `None` when nothing was live.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// Whether others made it, so that also `destroy` needs consent to it by address.
    #[serde(default, skip_serializing_if = "crate::kinds::is_false")]
    pub foreign: bool,
}

/// Something about a finished plan that a person should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// Stable code, `DI0301`.
    pub code: String,
    /// What it is about.
    pub address: Address,
    /// The text.
    pub message: String,
}

/// A consent that a plan needs beyond `yes`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Consent {
    /// `replace` or `delete`.
    pub verb: Verb,
    /// Of what.
    pub address: Address,
}

/// What is consented to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// Deleting and making anew.
    Replace,
    /// Deleting.
    Delete,
}

/// How the plan was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Make the world as the stack says.
    Apply,
    /// Delete all that the stack owns.
    Destroy,
}

/// What apply would do. Data that leaves nothing to decide.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Where.
    pub target: Target,
    /// Whose.
    pub owner: Owner,
    /// How it was asked for.
    pub mode: Mode,
    /// Whether nothing was read: planned against an empty world.
    pub offline: bool,
    /// All things, those to keep included, in the order in which they are shown.
    pub changes: Vec<Change>,
    /// What was desired, for the record and for planning again.
    pub desired: Vec<Resource>,
    /// Review notes.
    pub notes: Vec<Note>,
    /// US dollars per hour of everything desired, where prices are known (list prices, us-central1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hourly: Option<f64>,
    /// Consents given when the plan was made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed: Vec<Consent>,
}

/// How many changes of each action.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Creates.
    pub add: usize,
    /// Updates.
    pub change: usize,
    /// Replaces.
    pub replace: usize,
    /// Deletes.
    pub destroy: usize,
    /// Checks to run.
    pub run: usize,
}

impl Plan {
    /// Whether apply would do nothing.
    pub fn is_empty(&self) -> bool {
        self.changes.iter().all(|change| change.action == Action::Keep)
    }

    /// Changes of each action.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for change in &self.changes {
            match change.action {
                Action::Keep => {}
                Action::Create => counts.add += 1,
                Action::Update => counts.change += 1,
                Action::Replace => counts.replace += 1,
                Action::Delete => counts.destroy += 1,
                Action::Run => counts.run += 1,
            }
        }
        counts
    }

    /// Consents that are needed and were not given: one for each address, and one for several objects of one
    /// section. What others made needs its own.
    pub fn missing_consents(&self, allowed: &[Consent]) -> Vec<Consent> {
        let given: Vec<Consent> =
            allowed.iter().chain(&self.allowed).map(|given| self.meant(given)).collect();
        let missing: Vec<(Consent, Consent, bool)> = self
            .changes
            .iter()
            .filter_map(|change| {
                let (own, section) = self.consents_of(change)?;
                let covered = given.contains(&own) || (!change.foreign && given.contains(&section));
                (!covered).then_some((own, section, change.foreign))
            })
            .collect();
        let alone = |section: &Consent| {
            missing.iter().filter(|(_, other, foreign)| other == section && !foreign).count() < 2
        };
        let mut wanted = Vec::new();
        for (own, section, foreign) in &missing {
            let consent = if *foreign || alone(section) { own } else { section };
            if !wanted.contains(consent) {
                wanted.push(consent.clone());
            }
        }
        wanted
    }

    /// The consent that a change needs, by its own address and by its section's; `None` when it needs none.
    fn consents_of(&self, change: &Change) -> Option<(Consent, Consent)> {
        let verb = match change.action {
            Action::Replace => Verb::Replace,
            Action::Delete => Verb::Delete,
            Action::Keep | Action::Create | Action::Update | Action::Run => return None,
        };
        if self.mode == Mode::Destroy && !change.foreign {
            return None;
        }
        let section = Address::new(change.address.section());
        Some((Consent { verb, address: change.address.clone() }, Consent { verb, address: section }))
    }

    /// A consent may name any unique ending of an address.
    fn meant(&self, given: &Consent) -> Consent {
        let mut found = self.changes.iter().filter(|change| change.address.ends_with(given.address.as_str()));
        match (found.next(), found.next()) {
            (Some(change), None) => Consent { verb: given.verb, address: change.address.clone() },
            _ => given.clone(),
        }
    }

    /// Consents that were given and fit nothing in the plan.
    pub fn idle_consents(&self) -> Vec<&Consent> {
        let fits = |given: &&Consent| {
            let meant = self.meant(given);
            let needed = self.changes.iter().filter_map(|change| self.consents_of(change));
            !needed.into_iter().any(|(own, section)| own == meant || section == meant)
        };
        self.allowed.iter().filter(fits).collect()
    }
}
