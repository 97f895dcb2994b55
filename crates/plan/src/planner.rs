//! A plan that is being computed: the changes proposed so far, and the notes on them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::observe::Observed;
use crate::observe::inputs::Inputs;
use crate::{Change, Note};
use kinds::kind::Defect;
use model::address::{Address, FieldPath};
use model::diag::{Code, Diagnostic};
use model::resource::{Identity, Resource};

/// The addresses that a plan is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Selected {
    #[default]
    All,
    Only(BTreeSet<Address>),
}

impl Selected {
    pub(crate) fn has(&self, address: &Address) -> bool {
        match self {
            Self::All => true,
            Self::Only(addresses) => addresses.contains(address),
        }
    }

    pub(crate) fn add(&mut self, address: &Address) {
        match self {
            Self::All => {}
            Self::Only(addresses) => drop(addresses.insert(address.clone())),
        }
    }
}

/// A plan that is being computed.
pub(crate) struct Planner<'a> {
    pub(crate) observed: Observed<'a>,
    pub(crate) changes: Vec<Change>,
    pub(crate) problems: Vec<Diagnostic>,
    pub(crate) notes: Vec<Note>,
    /// True if the GKE cluster is created or recreated, so that nothing in it exists afterward.
    pub(crate) cluster_is_new: bool,
    /// Live resources that are deleted with their parent and then recreated.
    pub(crate) recreated_with_parent: BTreeSet<Identity>,
    /// Desired resources that do not exist and are not created.
    pub(crate) not_created: BTreeSet<Identity>,
    /// The addresses that the plan is about.
    pub(crate) selected: Selected,
    /// Defects of live resources, by address.
    pub(crate) defects: BTreeMap<Address, Defect>,
}

impl<'a> Planner<'a> {
    pub(crate) fn new(inputs: &'a Inputs<'a>) -> Self {
        Self {
            observed: Observed::of(inputs),
            changes: Vec::new(),
            problems: Vec::new(),
            notes: Vec::new(),
            cluster_is_new: false,
            recreated_with_parent: BTreeSet::new(),
            not_created: BTreeSet::new(),
            selected: Selected::All,
            defects: BTreeMap::new(),
        }
    }
}

impl<'a> Planner<'a> {
    pub(crate) fn live(&self, identity: &Identity) -> Option<&'a Value> {
        let inside = !matches!(identity, Identity::Cluster(_));
        if inside && self.cluster_is_new { None } else { self.observed.inputs.world.find(identity) }
    }

    pub(crate) fn refuse_if_protected(&mut self, resource: &Resource, verb: &str) {
        if resource.protect {
            let what = format!("{} is protected, but the plan would {verb} it", resource.address);
            let section: FieldPath = resource.address.section().parse().unwrap_or_default();
            let problem = Diagnostic::error(Code::Protected, what);
            let problem = problem.at_value(section.key("protect"), "protected here");
            self.problems.push(problem.help("remove `protect` from the section to allow it"));
        }
    }
}
