//! A plan on its way: what is proposed so far, and what there is to say of it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::inputs::Inputs;
use super::observe::Observed;
use super::{Change, Note};
use kinds::kind::Amiss;
use model::address::{Address, FieldPath};
use model::diag::{Code, Diagnostic};
use model::resource::{Identity, Resource};

/// Which addresses a plan is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Selected {
    #[default]
    All,
    Only(BTreeSet<Address>),
}

impl Selected {
    pub(super) fn has(&self, address: &Address) -> bool {
        match self {
            Self::All => true,
            Self::Only(addresses) => addresses.contains(address),
        }
    }

    pub(super) fn add(&mut self, address: &Address) {
        match self {
            Self::All => {}
            Self::Only(addresses) => drop(addresses.insert(address.clone())),
        }
    }
}

/// A plan on its way.
pub(super) struct Planner<'a> {
    pub(super) seen: Observed<'a>,
    pub(super) changes: Vec<Change>,
    pub(super) problems: Vec<Diagnostic>,
    pub(super) notes: Vec<Note>,
    /// Whether the GKE cluster is made or made anew, so that nothing inside is live afterwards.
    pub(super) renewed: bool,
    /// Live things that go because their owner does, and are made again.
    pub(super) with_owner: BTreeSet<Identity>,
    /// Things that are wanted, not there, and not made.
    pub(super) gone: BTreeSet<Identity>,
    /// What the plan is about.
    pub(super) selected: Selected,
    /// What is done about what is amiss with things.
    pub(super) amiss: BTreeMap<Address, Amiss>,
}

impl<'a> Planner<'a> {
    pub(super) fn new(inputs: &'a Inputs<'a>) -> Self {
        Self {
            seen: Observed::of(inputs),
            changes: Vec::new(),
            problems: Vec::new(),
            notes: Vec::new(),
            renewed: false,
            with_owner: BTreeSet::new(),
            gone: BTreeSet::new(),
            selected: Selected::All,
            amiss: BTreeMap::new(),
        }
    }
}

impl<'a> Planner<'a> {
    pub(super) fn live(&self, identity: &Identity) -> Option<&'a Value> {
        let inside = !matches!(identity, Identity::Cluster(_));
        if inside && self.renewed { None } else { self.seen.inputs.world.find(identity) }
    }

    pub(super) fn protected(&mut self, resource: &Resource, verb: &str) {
        if resource.protect {
            let what = format!("{} is protected, but the plan would {verb} it", resource.address);
            let section: FieldPath = resource.address.section().parse().unwrap_or_default();
            let problem = Diagnostic::error(Code::Protected, what);
            let problem = problem.at_value(section.key("protect"), "protected here");
            self.problems.push(problem.help("remove `protect` from the section to allow it"));
        }
    }
}
