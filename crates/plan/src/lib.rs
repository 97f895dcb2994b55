//! Computes a plan from the desired and the live state. Pure: no clock, no network, no terminal; same input, same
//! bytes.
//!
//! `make` joins four folders:
//!
//! - `observe`: desired and live state, who owns what, the comparison of Kubernetes objects (`diff`), and the resources that a
//!   server deletes with a resource (`cascade`).
//! - `propose`: what happens to each resource and why: `desired`, `prune`, `external`, the `impact` of deletions,
//!   `target_check`, `fallback` and others.
//! - `order`: what comes before what (`graph`, `relations`), as pairs and barriers.
//! - `review`: notes on the finished plan, `preflight`: what Google Cloud would refuse, and `dry_run`: what the API server would refuse.
//!
//! Beside them: `cost` says what the stack costs, with `needed_nodes` for autoscaled pools, `cost_rates` between which bounds while an apply runs, `steps` writes the steps of each change, `reason` says why a change is made, `stop`, `scale` and `drift`
//! serve their commands, and `file` saves plans.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub mod budget;
pub mod cost;
mod cost_rates;
pub mod drift;
mod external_effects;
pub mod file;
pub mod make;
mod needed_nodes;
pub mod observe;
pub mod order;
mod planner;
pub mod propose;
mod pulls;
mod reason;
pub mod review;
pub mod scale;
mod steps;
pub mod stop;

pub use budget::Budget;
pub use cost::{Bill, SectionCost};
pub use cost_rates::Progress;
pub use drift::{Drift, DriftKind, DriftReport, drift};
pub use make::{drop_unused_managed_fields, plan, read_set};
pub use observe::inputs::{FileBaseline, Inputs, Partial, Selection};
pub use observe::stop_state::{PreviousStops, StopRequest, StopState};
pub use order::duration::CriticalPath;
pub use propose::desired::invalidates_check;
pub use propose::impact::deletion_scope;
pub use propose::target_check::NEEDS_LIVE_STATE_HELP;
pub use reason::Reason;
pub use review::dry_run::{DryRun, Untried};

use model::address::{Address, FieldPath};
use model::diag::Code;
use model::resource::{
    CapacityOptions, DurationEstimate, External, Fallback, FieldChange, Identity, JsonText, KindId, Lane,
    Owner, Resource, Step, Target, Until,
};

pub use model::resource::Action;

/// One resource and what happens to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    pub address: Address,
    pub identity: Identity,
    pub kind: KindId,
    pub action: Action,
    /// The fields that differ, for updates and replacements.
    pub fields: Vec<FieldChange>,
    /// The reasons that the fields alone do not show.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<Reason>,
    /// The path in the stack file that asks for it; the path of the stack's name if the file no longer has it.
    pub origin: FieldPath,
    /// `stack.toml:12:1`, as text, so that a saved plan still shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// The lane, which limits the changes that run at the same time.
    pub lane: Lane,
    /// The steps that apply takes, in order. Empty for `Keep`.
    pub steps: Vec<Step>,
    /// The further capacity options to try when there are no machines for `steps`.
    #[serde(rename = "climb", default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<Fallback>,
    /// Indices of the changes that must finish first. An index past the end of `Plan::changes` refers to
    /// `Plan::barriers`.
    #[serde(rename = "follows")]
    pub depends_on: Vec<usize>,
    /// Digest of what the plan relies on: the uid and the compared fields. `None` if nothing was live.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// True if it was not created by the stack, or other stacks use it, too: then `destroy` needs its approval by address.
    #[serde(default, skip_serializing_if = "kinds::json::is_false")]
    pub foreign: bool,
    /// The current owner, if it or fields of it are adopted.
    #[serde(rename = "taken", default, skip_serializing_if = "Option::is_none")]
    pub adopted: Option<Adopted>,
    /// The live state of a deleted or released resource, without secrets.
    #[serde(default, skip_serializing_if = "JsonText::is_null")]
    pub before: JsonText,
    /// The expected duration: of a create or replace from the record, else a typical one with the pulls of images.
    #[serde(rename = "usual", default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<DurationEstimate>,
}

impl Change {
    /// Returns a change with its action, without steps and reasons.
    pub fn new(address: Address, identity: Identity, kind: KindId, action: Action) -> Self {
        let lane = match &identity {
            Identity::Cluster(_) => Lane::Cluster,
            Identity::NodePool { pool, .. } => Lane::Pool(pool.clone()),
            Identity::Object(_) | Identity::Check(_) => Lane::Kubernetes,
        };
        Self {
            address,
            identity,
            kind,
            action,
            fields: Vec::new(),
            reasons: Vec::new(),
            origin: FieldPath::root(),
            location: None,
            lane,
            steps: Vec::new(),
            fallback: None,
            depends_on: Vec::new(),
            fingerprint: None,
            foreign: false,
            adopted: None,
            before: JsonText::default(),
            estimate: None,
        }
    }
}

/// A node between m changes and the n that wait for all of them: m + n edges instead of m × n.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Barrier {
    /// Indices into `Plan::changes`: the changes that must finish before it is passed.
    #[serde(rename = "follows")]
    pub depends_on: Vec<usize>,
}

/// The foreign owner of a resource, or of fields, that the stack adopts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adopted {
    /// The owner, in words: "field manager `helm`".
    pub from: String,
    /// The fields that are adopted; none for the whole resource.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldPath>,
}

/// "already exists and does not belong to this stack: …", or the fields and who applies them.
impl std::fmt::Display for Adopted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { from, fields } = self;
        if fields.is_empty() {
            return write!(f, "already exists and does not belong to this stack: {from}");
        }
        let fields: Vec<String> = fields.iter().map(|path| format!("`{path}`")).collect();
        let verb = if fields.len() == 1 { "is" } else { "are" };
        write!(f, "{} {verb} applied by {from}", fields.join(", "))
    }
}

/// An external resource as it was read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExternalRead {
    pub address: Address,
    pub identity: Identity,
    pub kind: KindId,
    /// `stack.toml:12:1`, the position that names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// A short summary of what was found; `None` when nothing was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
    /// Digest of what the plan relies on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
}

/// Something about a finished plan that a person should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// Stable code, `DI0301`.
    pub code: String,
    /// The address of the resource that it is about.
    pub address: Address,
    pub message: String,
}

impl Note {
    fn new(code: Code, address: &Address, message: impl Into<String>) -> Self {
        Self { code: code.as_str().to_owned(), address: address.clone(), message: message.into() }
    }
}

/// An approval that a plan needs beyond `yes`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Approval {
    /// `replace`, `delete`, `take` or `update`.
    pub verb: ApprovalVerb,
    pub address: Address,
}

/// The word in place of an address in an approval to delete a cluster that cannot be read: `delete:unseen`.
pub const UNREAD_CONTENTS: &str = "unseen";

impl Approval {
    /// Returns true for an approval to delete a GKE cluster with whatever is in it, although that cannot be read.
    pub fn is_for_unread_contents(&self) -> bool {
        self.verb == ApprovalVerb::Delete && self.address.as_str() == UNREAD_CONTENTS
    }
}

/// Kinds of actions that need approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalVerb {
    /// Replacing a resource.
    Replace,
    Delete,
    /// Adopting a resource that the stack did not create, or fields that another field manager applies.
    #[serde(rename = "take")]
    Adopt,
    /// Changing a field whose effect is unknown.
    Update,
    /// Exceeding the budget, for once. It has no address but its own name.
    Budget,
}

impl ApprovalVerb {
    /// The verbs that approve a change of a resource, by its address.
    pub const OF_CHANGES: [Self; 4] = [Self::Replace, Self::Delete, Self::Adopt, Self::Update];

    /// Returns the verb as `--allow` takes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Replace => "replace",
            Self::Delete => "delete",
            Self::Adopt => "take",
            Self::Update => "update",
            Self::Budget => "budget",
        }
    }
}

/// An approval that a change needs, and the one that covers its whole section.
struct NeededApproval {
    own: Approval,
    section: Option<Approval>,
}

impl NeededApproval {
    fn is_given(&self, given: &Approval) -> bool {
        *given == self.own || self.section.as_ref() == Some(given)
    }
}

/// The two commands that a plan can be for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Change the live state to what the stack file says.
    Apply,
    /// Delete all that the stack owns.
    Destroy,
}

/// The changes that apply would make. Data that leaves nothing to decide.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub target: Target,
    pub owner: Owner,
    pub mode: Mode,
    /// True if nothing was read: planned against an empty world.
    pub offline: bool,
    /// All resources, including those to keep, in the order in which they are shown.
    pub changes: Vec<Change>,
    /// The barriers of the order. Each replaces many edges; their indices continue those of `changes`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub barriers: Vec<Barrier>,
    /// The desired state that was compared with the live one; the record needs it.
    pub desired: Arc<[Resource]>,
    /// The stack file's values that the plan compared otherwise (stopped pools, capacity options), to plan again from
    /// them.
    #[serde(rename = "in_file", default, skip_serializing_if = "FileBaseline::is_empty")]
    pub file_baseline: FileBaseline,
    /// Node pools with `capacity`, each with all its options.
    #[serde(rename = "ladders", default, skip_serializing_if = "Vec::is_empty")]
    pub capacity_options: Vec<CapacityOptions>,
    /// External resources, to plan again.
    #[serde(rename = "theirs", default, skip_serializing_if = "Vec::is_empty")]
    pub external: Vec<External>,
    /// The external resources as they were read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<ExternalRead>,
    /// Review notes.
    pub notes: Vec<Note>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bill: Option<Bill>,
    /// Images that nodes pull for the plan and whose size is not known, so that no estimate has the time of their pulls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown_pulls: Vec<String>,
    /// Limits of what the stack may cost.
    #[serde(default, skip_serializing_if = "Budget::is_none")]
    pub budget: Budget,
    /// The result of the dry runs; `None` if nothing was tried: offline, without changes of Kubernetes objects, on hosts, or
    /// with `--skip-dry-run`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<DryRun>,
    /// Approvals given when the plan was made.
    #[serde(rename = "allowed", default, skip_serializing_if = "Vec::is_empty")]
    pub approved: Vec<Approval>,
    /// The part of the stack that the plan is limited to; `None` for the whole stack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<Partial>,
    /// True if nothing of the stack is left but its record: an earlier destroy ended before it deleted the record.
    #[serde(default, skip_serializing_if = "kinds::json::is_false")]
    pub record_left: bool,
    /// True if the stack may have resources that no record names and that could not be searched for.
    #[serde(default, skip_serializing_if = "kinds::json::is_false")]
    pub incomplete: bool,
    /// True if the target may differ from that of the last apply.
    #[serde(rename = "retarget", default, skip_serializing_if = "kinds::json::is_false")]
    pub allow_retarget: bool,
    /// Addresses of `--replace`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replace: Vec<Address>,
    /// True if pools with several capacity options begin with the first one again.
    #[serde(default, skip_serializing_if = "kinds::json::is_false")]
    pub retry_capacity: bool,
    /// The longest wait, in seconds, for an idle scheduler before workers are deleted.
    #[serde(rename = "when_idle", default, skip_serializing_if = "Option::is_none")]
    pub idle_wait_seconds: Option<u32>,
    /// The resources that the plan stops and starts, and those that stay stopped.
    #[serde(rename = "halts", default, skip_serializing_if = "StopState::is_none")]
    pub stop_state: StopState,
}

/// The number of changes of each action.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Creates.
    pub add: usize,
    /// Updates.
    pub change: usize,
    pub replace: usize,
    /// Deletes.
    pub destroy: usize,
    /// Released: left to the other stacks that use them.
    pub forget: usize,
    /// Checks to run.
    pub run: usize,
}

impl Change {
    /// Returns true if it is kept and apply waits for it, because an earlier apply may have left it half created.
    pub fn is_waited_for(&self) -> bool {
        let waits = |step: &Step| matches!(step, Step::Await(wait) if wait.until == Until::Ready);
        self.action == Action::Keep && self.steps.iter().any(waits)
    }

    /// Returns true if `--replace` asked for it.
    pub fn is_requested(&self) -> bool {
        self.reasons.contains(&Reason::Requested)
    }

    /// Returns true if the change has a reason other than the fields that differ.
    pub fn has_reason(&self) -> bool {
        self.adopted.is_some() || !self.reasons.is_empty()
    }

    /// Returns the adoption and the reasons as one text.
    pub fn why(&self) -> Option<String> {
        let adopted = self.adopted.as_ref().map(|adopted| match adopted.fields.as_slice() {
            [] => format!("it {adopted}"),
            _ => adopted.to_string(),
        });
        let words: Vec<String> =
            adopted.into_iter().chain(self.reasons.iter().map(Reason::to_string)).collect();
        (!words.is_empty()).then(|| words.join("; "))
    }
}

impl Plan {
    /// Returns the names of the pools that use flex-start in at least one capacity option.
    pub fn flex_start_pools(&self) -> BTreeSet<String> {
        let desired = self.desired.iter().chain(self.external.iter().map(|external| &external.resource));
        let desired = desired.map(|resource| (&resource.identity, &resource.body));
        let options = self
            .capacity_options
            .iter()
            .flat_map(|capacity| capacity.options.iter().map(|option| (&capacity.identity, &option.body)));
        let pools = desired.chain(options).filter_map(|(identity, body)| Some((identity.pool()?, body)));
        kinds::kubernetes::flex_start::flex_start_pools(pools)
    }

    /// Returns the indices of the changes that `change` waits for, directly or through barriers.
    pub fn predecessors<'p>(&'p self, change: &'p Change) -> impl Iterator<Item = usize> + 'p {
        let count = self.changes.len();
        change
            .depends_on
            .iter()
            .flat_map(move |before| {
                let barrier = before.checked_sub(count).and_then(|number| self.barriers.get(number));
                barrier.map_or(std::slice::from_ref(before), |barrier| &barrier.depends_on)
            })
            .copied()
            .filter(move |before| *before < count)
    }

    /// Returns true if apply has nothing to change, nothing to wait for, and no record to update or delete.
    pub fn has_nothing_to_do(&self) -> bool {
        self.is_empty()
            && !self.record_left
            && !self.stop_state.differs_from_record
            && !self.changes.iter().any(Change::is_waited_for)
    }

    /// Returns true if apply would change nothing.
    pub fn is_empty(&self) -> bool {
        self.changes.iter().all(|change| change.action == Action::Keep)
    }

    /// Returns the addresses of kept resources that are not ready, as far as they were read.
    pub fn unready(&self) -> impl Iterator<Item = &Address> {
        let unready = |note: &&Note| note.code == Code::Unready.as_str();
        self.notes.iter().filter(unready).map(|note| &note.address)
    }

    /// Returns true if `--target` or `--exclude` leaves a resource of the stack out of the plan.
    pub fn leaves_out(&self, identity: &Identity) -> bool {
        let left_out = self.partial.iter().flat_map(|partial| &partial.left_out);
        left_out.into_iter().any(|(_, other)| other == identity)
    }

    /// Returns the number of changes of each action.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for change in &self.changes {
            match change.action {
                Action::Keep => {}
                Action::Create => counts.add += 1,
                Action::Update => counts.change += 1,
                Action::Replace => counts.replace += 1,
                Action::Delete => counts.destroy += 1,
                Action::Forget => counts.forget += 1,
                Action::Run => counts.run += 1,
            }
        }
        counts
    }

    /// Returns the approvals that are needed and were not given: one for each address, and one for several objects of one
    /// section. A section's approval does not cover foreign objects in it.
    pub fn missing_approvals(&self, approved: &[Approval]) -> Vec<Approval> {
        let given: Vec<Approval> =
            approved.iter().chain(&self.approved).map(|given| self.resolve_approval(given)).collect();
        let own = self.sections();
        let missing: Vec<NeededApproval> = self
            .changes
            .iter()
            .flat_map(|change| self.approvals_of(change, &own))
            .chain(self.approval_for_unlisted_foreign())
            .filter(|needed| !given.iter().any(|given| needed.is_given(given)))
            .collect();
        let mut counts: BTreeMap<&Approval, usize> = BTreeMap::new();
        for section in missing.iter().filter_map(|needed| needed.section.as_ref()) {
            *counts.entry(section).or_default() += 1;
        }
        let approvals = missing.iter().map(|needed| match &needed.section {
            Some(section) if counts.get(section).is_some_and(|count| *count > 1) => section,
            Some(_) | None => &needed.own,
        });
        let mut known = BTreeSet::new();
        approvals.filter(|approval| known.insert(*approval)).cloned().collect()
    }

    /// Returns the approval to delete foreign objects that could not be listed, with their cluster: `delete:others.unseen`.
    fn approval_for_unlisted_foreign(&self) -> Option<NeededApproval> {
        let unseen = self.notes.iter().any(|note| note.code == Code::ForeignUnlisted.as_str());
        let own = Approval { verb: ApprovalVerb::Delete, address: Address::new("others.unseen") };
        unseen.then_some(NeededApproval { own, section: None })
    }

    /// Returns the sections that own at least one of the changed resources.
    fn sections(&self) -> BTreeSet<&str> {
        self.changes.iter().filter(|change| !change.foreign).map(|change| change.address.section()).collect()
    }

    /// Returns the approvals that a change needs. `own` are the sections with at least one changed resource.
    fn approvals_of(&self, change: &Change, own: &BTreeSet<&str>) -> Vec<NeededApproval> {
        let doubtful = change.reasons.iter().any(Reason::has_unclear_owner);
        let whole = self.mode == Mode::Destroy
            && !change.foreign
            && !doubtful
            && !self.is_crd_of_kept_cluster(change);
        // `stop` asks for that, and its `yes` is the approval.
        let stopped = self.stop_state.is_stop() && change.stops();
        let left = change.reasons.iter().any(Reason::needs_no_own_approval);
        let implied = whole
            || stopped
            || left
            || kinds::dask::check::is_leftover_pod(&change.identity, &change.address);
        let verb = match change.action {
            Action::Replace if change.reasons.iter().any(Reason::loses_no_data) => None,
            Action::Replace => Some(ApprovalVerb::Replace),
            Action::Delete if !implied => Some(ApprovalVerb::Delete),
            Action::Update
                if change.fields.iter().any(|field| field.effect == model::resource::Effect::Unknown) =>
            {
                Some(ApprovalVerb::Update)
            }
            Action::Update | Action::Forget if self.recreates_nodes_for_labels(change) => {
                Some(ApprovalVerb::Update)
            }
            Action::Delete
            | Action::Keep
            | Action::Create
            | Action::Update
            | Action::Forget
            | Action::Run => None,
        };
        let adopt = change.adopted.is_some().then_some(ApprovalVerb::Adopt);
        let section = Address::new(change.address.section());
        // Foreign objects are approved by section only if the section has none of the stack's own.
        let mixed = change.foreign && own.contains(section.as_str());
        let needed = |verb| NeededApproval {
            own: Approval { verb, address: change.address.clone() },
            section: (!mixed).then(|| Approval { verb, address: section.clone() }),
        };
        verb.into_iter().chain(adopt).map(needed).collect()
    }

    /// Returns true if a pool with Pods is adopted or released: that changes its labels, and GKE may recreate its nodes for them.
    fn recreates_nodes_for_labels(&self, change: &Change) -> bool {
        let changes_hands = change.action == Action::Forget || change.adopted.is_some();
        let noted = |note: &Note| note.code == Code::NodesDrained.as_str() && note.address == change.address;
        changes_hands && propose::impact::recreates_nodes(change) && self.notes.iter().any(noted)
    }

    /// Returns true for a CRD in a cluster that is not deleted: deleting it deletes every object of its kind, so it
    /// needs an approval of its own.
    fn is_crd_of_kept_cluster(&self, change: &Change) -> bool {
        let goes =
            |other: &Change| other.action == Action::Delete && matches!(other.identity, Identity::Cluster(_));
        change.kind == KindId::Crd && !self.changes.iter().any(goes)
    }

    /// Returns an approval with the full address: it may name any unique ending.
    fn resolve_approval(&self, given: &Approval) -> Approval {
        let mut found = self.changes.iter().filter(|change| change.address.ends_with(given.address.as_str()));
        match (found.next(), found.next()) {
            (Some(change), None) => Approval { verb: given.verb, address: change.address.clone() },
            _ => given.clone(),
        }
    }

    /// Returns true if the plan deletes a GKE cluster whose contents could not be read.
    pub fn deletes_unread_cluster(&self) -> bool {
        self.notes.iter().any(|note| note.code == Code::DeletedUnread.as_str())
    }

    /// Returns the approvals that were given and match nothing in the plan.
    pub fn unused_approvals(&self) -> Vec<&Approval> {
        let unseen = self.deletes_unread_cluster();
        let own = self.sections();
        let fits = |given: &&Approval| {
            let meant = self.resolve_approval(given);
            let needed = self.changes.iter().flat_map(|change| self.approvals_of(change, &own));
            let mut needed = needed.chain(self.approval_for_unlisted_foreign());
            let is_needed = given.verb == ApprovalVerb::Budget
                || (unseen && given.is_for_unread_contents())
                || needed.any(|needed| needed.is_given(&meant));
            !is_needed
        };
        self.approved.iter().filter(fits).collect()
    }
}
