//! `--target` and `--exclude`: selects the part of a stack that a plan is about. A target includes what it needs, and an
//! exclusion excludes what needs it. For a create that follows `depends_on`; for a delete it follows parents.

use std::collections::{BTreeMap, BTreeSet};

use crate::observe::cascade::{Cascade, cascade_reason};
use crate::planner::{Planner, Selected};
use crate::{Mode, Partial, Selection, observe::address_match};
use kinds::gke::node_pool::inline_pool;
use kinds::json::is_terminating;
use model::address::Address;
use model::diag::{self, Code, Diagnostic};
use model::resource::{Identity, ObjectId};
use model::schema;

/// A resource that may be in the plan.
struct Candidate {
    address: Address,
    identity: Identity,
    depends_on: Vec<Address>,
    /// True if it is deleted.
    is_deleted: bool,
}

impl Planner<'_> {
    /// Resolves the selection. An address that matches nothing, or several sections, is a problem.
    pub(crate) fn select(&mut self) {
        let Selection { targets, excludes } = &self.observed.inputs.selection;
        if self.observed.inputs.selection.is_all() {
            return;
        }
        if self.observed.inputs.stop_state.is_stop() {
            // Stopping a resource needs nothing else, and its dependents are already targets.
            let mut selected: BTreeSet<Address> = targets.iter().map(Address::new).collect();
            // Requests of workers before hold nodes, too.
            let sections: BTreeSet<String> =
                selected.iter().map(|address| address.section().to_owned()).collect();
            let asks = |identity: &Identity| {
                let object = identity.object().map(|object| object.gvk.kind.as_str());
                matches!(object, Some("ProvisioningRequest" | "PodTemplate"))
                    && !self.observed.desired.contains_key(identity)
            };
            let owned = self.owned().0.into_iter().filter(|owned| asks(&owned.identity));
            selected.extend(
                owned.map(|owned| owned.address).filter(|address| sections.contains(address.section())),
            );
            self.selected = Selected::Only(selected);
            return;
        }
        let candidates = self.candidates();
        let addresses: Vec<&Address> = candidates.iter().map(|candidate| &candidate.address).collect();
        let mut start = BTreeSet::new();
        let mut out = BTreeSet::new();
        for (typed, found) in
            targets.iter().map(|typed| (typed, true)).chain(excludes.iter().map(|typed| (typed, false)))
        {
            match resolve_addresses(typed, &addresses) {
                Ok(indices) if found => start.extend(indices),
                Ok(indices) => out.extend(indices),
                Err(problem) => self.problems.push(problem),
            }
        }
        if targets.is_empty() {
            start.extend(0..candidates.len());
        }
        let needs = self.needs(&candidates);
        let mut needed_by = vec![Vec::new(); candidates.len()];
        for (one, others) in needs.iter().enumerate() {
            others.iter().for_each(|other| needed_by[*other].push(one));
        }
        let (desired, unwanted) = (closure(start, &needs), closure(out, &needed_by));
        let kept = desired.difference(&unwanted).map(|index| candidates[*index].address.clone());
        self.selected = Selected::Only(kept.collect());
        self.check_replace_selected(&candidates);
    }

    fn check_replace_selected(&mut self, candidates: &[Candidate]) {
        let replace = self.observed.inputs.replace.iter();
        let known = replace.filter(|address| candidates.iter().any(|one| one.address == **address));
        for address in known.filter(|address| !self.selected.has(address)) {
            let what = format!("`--replace {address}` has no effect: {address} is not part of this plan");
            let help = format!("leave out what excludes it, or add `--target {address}`");
            self.problems.push(Diagnostic::error(Code::UnknownAddress, what).help(help));
        }
    }

    /// Returns the selection and the resources that the plan leaves out; `None` for a plan of the whole stack.
    pub(crate) fn partial(&self) -> Option<Partial> {
        if self.observed.inputs.selection.is_all() {
            return None;
        }
        let candidates = self.candidates();
        let out = candidates.into_iter().filter(|candidate| !self.selected.has(&candidate.address));
        let left_out: Vec<(Address, Identity)> =
            out.map(|Candidate { address, identity, .. }| (address, identity)).collect();
        let world = self.observed.inputs.world;
        let recorded: BTreeSet<&Identity> =
            world.record.iter().flat_map(|record| &record.inventory).map(|entry| &entry.identity).collect();
        let ours =
            |identity: &Identity| world.find(identity).is_some_and(|live| self.observed.has_applied(live));
        let unrecorded = left_out.iter().filter_map(|(address, identity)| match identity {
            Identity::Object(object) if !recorded.contains(identity) && ours(identity) => {
                Some((address.clone(), object.clone()))
            }
            Identity::Object(_) | Identity::Cluster(_) | Identity::NodePool { .. } | Identity::Check(_) => {
                None
            }
        });
        let unrecorded = unrecorded.collect();
        Some(Partial {
            selection: self.observed.inputs.selection.clone(),
            left_out,
            unrecorded,
            replicas: None,
        })
    }

    fn candidates(&self) -> Vec<Candidate> {
        let inputs = self.observed.inputs;
        let mut candidates: Vec<Candidate> = Vec::new();
        for resource in inputs.desired.iter() {
            candidates.push(Candidate {
                address: resource.address.clone(),
                identity: resource.identity.clone(),
                depends_on: resource.depends_on.clone(),
                is_deleted: inputs.mode == Mode::Destroy,
            });
        }
        let known: BTreeSet<Identity> = candidates.iter().map(|known| known.identity.clone()).collect();
        for owned in self.owned().0 {
            if !known.contains(&owned.identity) {
                let is_deleted = owned.is_removed();
                let (address, identity) = (owned.address, owned.identity);
                candidates.push(Candidate { address, identity, depends_on: Vec::new(), is_deleted });
            }
        }
        candidates
    }

    /// Returns for each candidate the other candidates that a plan with it must contain.
    fn needs(&self, candidates: &[Candidate]) -> Vec<Vec<usize>> {
        let named = address_match::AddressIndex::new(candidates.iter().map(|candidate| &candidate.address));
        let world = self.observed.inputs.world;
        let manager = self.observed.inputs.owner.field_manager();
        let cascade = Cascade::new(world, self.observed.inputs.target.gke.as_ref(), &manager);
        let indices: BTreeMap<&Identity, usize> =
            candidates.iter().map(|candidate| &candidate.identity).zip(0..).collect();
        let along = |one: &Candidate| {
            let along = cascade.direct(&one.identity);
            along.into_iter().filter_map(|(identity, _)| indices.get(&identity).copied()).collect::<Vec<_>>()
        };
        let deleted: Vec<usize> =
            (0..candidates.len()).filter(|index| candidates[*index].is_deleted).collect();
        let mut needs = vec![Vec::new(); candidates.len()];
        for (index, one) in candidates.iter().enumerate() {
            // A create comes after its dependencies; a delete comes after its dependents.
            for other in one.depends_on.iter().flat_map(|dependency| named.lookup(dependency)).copied() {
                match (one.is_deleted, candidates[other].is_deleted) {
                    (false, false) => needs[index].push(other),
                    (true, true) => needs[other].push(index),
                    (false, true) | (true, false) => {}
                }
            }
            if one.is_deleted {
                let inside = |other: &usize| lives_in(&candidates[*other].identity, one);
                needs[index].extend(deleted.iter().copied().filter(inside));
                needs[index].extend(along(one).into_iter().filter(|other| candidates[*other].is_deleted));
            } else if matches!(one.identity, Identity::Cluster(_)) {
                // GKE makes a cluster with one pool. One that is being deleted is recreated.
                let absent = world.cluster.live().is_none_or(is_terminating);
                let pool = inline_pool(&self.observed.inputs.desired, &self.observed.inputs.capacity_options)
                    .filter(|_| absent);
                let made = |other: &Candidate| pool.is_some_and(|pool| pool.identity == other.identity);
                needs[index].extend(candidates.iter().position(made));
            } else {
                // The autoscaler must be deleted in the same plan that sets the number of workers again.
                let autoscaler = |other: &usize| {
                    let Identity::Object(object) = &candidates[*other].identity else { return false };
                    candidates[*other].is_deleted && object.gvk == kinds::dask::api::autoscaler()
                };
                needs[index].extend(along(one).into_iter().filter(autoscaler));
            }
        }
        needs
    }
}

/// Returns true if a resource cannot stay without the other: its contents, objects of its kind, and objects that the operator
/// works on.
fn lives_in(identity: &Identity, other: &Candidate) -> bool {
    let by_operator = |object: &ObjectId| {
        other.address.section() == kinds::scope::DASK_OPERATOR && object.gvk.group == schema::DASK_GROUP
    };
    cascade_reason(&other.identity, identity).is_some()
        || matches!((&other.identity, identity), (Identity::Object(_), Identity::Object(object)) if by_operator(object))
}

fn closure(start: BTreeSet<usize>, next: &[Vec<usize>]) -> BTreeSet<usize> {
    let mut found = start.clone();
    let mut open: Vec<usize> = start.into_iter().collect();
    while let Some(one) = open.pop() {
        open.extend(next[one].iter().copied().filter(|other| found.insert(*other)));
    }
    found
}

/// Resolves a typed address to indices: the address itself, a section, all sections of a type (`node_pool`), or a unique ending
/// of a section.
///
/// # Errors
///
/// It matches nothing, or several sections.
pub fn resolve_addresses(typed: &str, addresses: &[&Address]) -> Result<Vec<usize>, Diagnostic> {
    let found = |is: &dyn Fn(&Address) -> bool| -> Vec<usize> {
        (0..addresses.len()).filter(|index| is(addresses[*index])).collect()
    };
    let whole = found(&|address| {
        let sort = address.section().split('.').next();
        address.as_str() == typed || address.section() == typed || sort == Some(typed)
    });
    if !whole.is_empty() {
        return Ok(whole);
    }
    let ending =
        found(&|address| address.ends_with(typed) || Address::new(address.section()).ends_with(typed));
    let sections: BTreeSet<&str> = ending.iter().map(|index| addresses[*index].section()).collect();
    if sections.len() == 1 {
        return Ok(ending);
    }
    if sections.len() > 1 {
        return Err(several(typed, sections));
    }
    let problem =
        Diagnostic::error(Code::UnknownAddress, format!("`{typed}` is not an address in this stack"));
    let addresses = addresses.iter().map(|address| address.section());
    Err(match diag::nearest(typed, addresses) {
        Some(near) => problem.help(format!("did you mean `{near}`?")),
        None => problem.help("`dask-infra plan -v` shows all addresses"),
    })
}

/// Resolves a typed address as [`resolve_addresses`] does, but it must name a single section.
///
/// # Errors
///
/// It matches nothing, or several sections.
pub fn resolve_one(typed: &str, addresses: &[&Address]) -> Result<Vec<usize>, Diagnostic> {
    let indices = resolve_addresses(typed, addresses)?;
    let sections: BTreeSet<&str> = indices.iter().map(|index| addresses[*index].section()).collect();
    if sections.len() > 1 { Err(several(typed, sections)) } else { Ok(indices) }
}

fn several(typed: &str, sections: BTreeSet<&str>) -> Diagnostic {
    let problem = Diagnostic::error(Code::UnknownAddress, format!("`{typed}` matches several addresses"));
    problem.help(format!("use one of {}", diag::listed(sections, "or")))
}
