//! What goes: what is live and ours and no longer wanted. What several stacks use goes with the last of them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::booked::Left;
use super::cascade::is_namespace;
use super::observe::{fingerprint, which_pool};
use super::planner::Planner;
use super::reason::{Holder, Reason};
use super::{Action, Change, Inputs, Mode, Note, diff};
use crate::address::{Address, FieldPath};
use crate::diag::Code;
use crate::kinds::gke::compare::Relied;
use crate::kinds::{self, gke};
use crate::resource::{Identity, KindId, ObjectId, Packed, World};

/// A live thing that this stack has made or uses.
pub(super) struct Owned<'a> {
    pub(super) identity: Identity,
    live: &'a Value,
    pub(super) address: Address,
    kind: KindId,
    /// Field managers of other stacks that use it too.
    shared: Vec<String>,
    /// Why it stays although nobody here wants it any more.
    stays: Option<Reason>,
}

impl Owned<'_> {
    /// Whether it goes, or this stack's hold on it.
    pub(super) fn goes(&self) -> bool {
        self.stays.is_none()
    }
}

impl<'a> Planner<'a> {
    /// Live things of ours that the file no longer asks for. A GKE cluster is never among them.
    pub(super) fn no_longer_wanted(&mut self) {
        if self.renewed {
            return;
        }
        let (owned, note) = self.owned();
        self.notes.extend(note);
        let desired = self.seen.inputs.desired.iter();
        let sections: BTreeSet<&str> = desired.map(|resource| resource.address.section()).collect();
        for mut owned in owned {
            let stays = matches!(owned.identity, Identity::Cluster(_)) || !self.selected.has(&owned.address);
            // A pod of the same text is taken over by the check that runs now; any other one was left behind.
            let check = self.seen.known.check_of(&owned.identity);
            let taken = check.is_some_and(|check| {
                self.changes.iter().any(|change| change.action == Action::Run && change.address == *check)
            });
            if !stays && !taken && !self.seen.wanted.contains_key(&owned.identity) {
                let why = match self.left_by_workers(&owned.identity, &owned.address) {
                    Some(Left::Goes(why)) => why,
                    Some(Left::Stays(why)) => {
                        owned.stays = Some(why.clone());
                        why
                    }
                    None if check.is_some() => Reason::LeftByEarlierRun,
                    None if sections.contains(owned.address.section()) => Reason::NoLongerInSection,
                    None => Reason::NoLongerInFile,
                };
                self.changes.push(self.release(owned, Some(why)));
            }
        }
    }

    pub(super) fn destroy(&mut self) {
        let (owned, note) = self.owned();
        self.notes.extend(note);
        for owned in owned {
            if !self.selected.has(&owned.address) {
                continue;
            }
            if let Some(resource) = self.seen.wanted.get(&owned.identity).copied() {
                self.protected(resource, "delete");
            }
            self.changes.push(self.release(owned, None));
        }
    }

    /// The last stack that uses a thing deletes it; another one only gives up its hold.
    fn release(&self, owned: Owned<'_>, reason: Option<Reason>) -> Change {
        let Owned { identity, live, address, kind, shared, stays } = owned;
        let gone = |why| self.deletion(identity.clone(), live, (address, kind), why);
        if stays.is_some() {
            // It is in the plan, so that the record goes on knowing it.
            return Change { action: Action::Keep, before: Packed::default(), ..gone(stays) };
        }
        if shared.is_empty() {
            return gone(reason);
        }
        let users = self.seen.users_of(&identity);
        if self.seen.inputs.mode == Mode::Destroy && self.cluster_goes() {
            let with = Holder::Cluster;
            return Change { foreign: true, ..gone(Some(Reason::TakenFromUsers { users, with })) };
        }
        // Another one that leaves meanwhile would leave it to nobody.
        let fingerprint = Some(fingerprint(live, &Relied::of([("users", &Value::from(shared))])));
        Change { action: Action::Forget, fingerprint, ..gone(Some(Reason::Released(users))) }
    }

    /// Whether the GKE cluster is ours and in the plan, so that `destroy` deletes it.
    pub(super) fn cluster_goes(&self) -> bool {
        let Inputs { world, target, owner, external, .. } = self.seen.inputs;
        let Some(name) = &target.gke else { return false };
        if !self.selected.has(&self.seen.name_of(&Identity::Cluster(name.clone())).0) {
            return false;
        }
        let of_others =
            external.iter().any(|external| matches!(external.resource.identity, Identity::Cluster(_)));
        let ours = |cluster: &Value| gke::compare::is_ours(&cluster["resourceLabels"], owner) && !of_others;
        world.cluster.live().is_some_and(ours)
    }

    /// Everything live that is ours, with the address it has or had; and the word on an operator that stays for others.
    pub(super) fn owned(&self) -> (Vec<Owned<'a>>, Option<Note>) {
        let Inputs { world, target, owner, desired, external, .. } = self.seen.inputs;
        let mut owned = Vec::new();
        let homes = self.operators_namespaces();
        let needed_by = self.operator_is_needed_by(&homes);
        let mut kept = None;
        let known = &self.seen.known;
        let manager = owner.field_manager();
        let mut add = |identity: Identity, live: &'a Value, shared: Vec<String>| {
            // What was handed over to others is theirs, whatever marks of ours it still carries.
            if external.iter().any(|external| external.resource.identity == identity) {
                return;
            }
            let (address, kind) = known.find(&identity);
            let operator = shared.is_empty() && address.section() == kinds::scope::DASK_OPERATOR;
            let is_home = |object: &ObjectId| is_namespace(object) && homes.contains(object.name.as_str());
            let home = shared.is_empty() && identity.object().is_some_and(is_home);
            let needed_by = needed_by.as_ref().filter(|_| operator || home);
            if operator && needed_by.is_some() && self.selected.has(&address) {
                kept.get_or_insert(Address::new(address.section()));
            }
            let stays = needed_by.cloned().map(|by| match operator {
                true => Reason::OperatorNeeded { by },
                false => Reason::HoldsNeededOperator { by },
            });
            owned.push(Owned { identity, live, address, kind, shared, stays });
        };
        if let (Some(name), true) = (&target.gke, self.cluster_goes())
            && let Some(live) = world.cluster.live()
        {
            add(Identity::Cluster(name.clone()), live, Vec::new());
        }
        for (pool, live) in &world.pools {
            // Whatever its labels say, GKE deletes it when no Pod needs it.
            let of_gke = gke::node_pool::is_autoprovisioned(live);
            if let Some(name) = &target.gke
                && !of_gke
                && gke::compare::is_ours(&live["config"]["resourceLabels"], owner)
            {
                add(Identity::NodePool { cluster: name.clone(), pool: pool.clone() }, live, Vec::new());
            }
        }
        for (object, live) in world.inside.live().into_iter().flatten() {
            if self.seen.has_applied(live) && !self.seen.is_record(object) {
                let shared = diff::other_stacks(live, &manager);
                let shared = shared.into_iter().map(str::to_owned).collect();
                add(Identity::Object(object.clone()), live, shared);
            }
        }
        let wanted = desired.iter().any(|resource| resource.address.section() == kinds::scope::DASK_OPERATOR);
        let told = self.seen.inputs.mode == Mode::Destroy || !wanted;
        let note = kept.zip(needed_by).filter(|_| told).map(|(address, by)| {
            let message =
                format!("it and its definitions are not deleted: {by} needs it to work and to be deleted");
            Note::of(Code::OperatorStays, &address, message)
        });
        (owned, note)
    }

    /// Where the operator of this stack runs.
    fn operators_namespaces(&self) -> BTreeSet<&str> {
        let is_operator = |object: &ObjectId| {
            let (address, _) = self.seen.known.find(&Identity::Object(object.clone()));
            address.section() == kinds::scope::DASK_OPERATOR
        };
        let inside = self.seen.inputs.world.inside.live().into_iter().flatten();
        let own = inside.filter(|(object, live)| self.seen.has_applied(live) && is_operator(object));
        own.filter_map(|(object, _)| object.namespace.as_deref()).collect()
    }

    /// Namespaces that this plan deletes, with everything in them. The operator's own may stay for its sake.
    fn namespaces_that_go(&self, homes: &BTreeSet<&str>) -> BTreeSet<&str> {
        let Inputs { world, owner, external, mode, .. } = self.seen.inputs;
        let manager = owner.field_manager();
        let goes = |(object, live): &(&ObjectId, &Value)| {
            let identity = Identity::Object((*object).clone());
            is_namespace(object)
                && !homes.contains(object.name.as_str())
                && self.seen.has_applied(live)
                && diff::other_stacks(live, &manager).is_empty()
                && (*mode == Mode::Destroy || !self.seen.wanted.contains_key(&identity))
                && !external.iter().any(|external| external.resource.identity == identity)
                && self.selected.has(&self.seen.known.find(&identity).0)
        };
        let inside = world.inside.live().into_iter().flatten();
        inside.filter(goes).map(|(object, _)| object.name.as_str()).collect()
    }

    /// The operator and its definitions stay while the cluster stays and others have Dask things in it that stay, too:
    /// without them those could neither work nor go. Names one of them.
    fn operator_is_needed_by(&self, homes: &BTreeSet<&str>) -> Option<String> {
        if self.seen.inputs.mode == Mode::Destroy && self.cluster_goes() {
            return None;
        }
        let going = self.namespaces_that_go(homes);
        let alone = |(object, live): &(&ObjectId, &Value)| {
            let goes = object.namespace.as_deref().is_some_and(|namespace| going.contains(namespace));
            // What was handed over still carries our marks.
            let ours =
                self.seen.has_applied(live) && !self.seen.is_theirs(&Identity::Object((*object).clone()));
            !goes && !live["metadata"]["ownerReferences"].is_array() && !ours
        };
        // The operator's own default group is part of its cluster.
        let mut things = dask_things(self.seen.inputs.world).filter(alone).filter(|(object, live)| {
            let cluster = live["spec"]["cluster"].as_str().unwrap_or_default();
            object.name != format!("{cluster}-default")
        });
        things.next().map(|(object, _)| object.to_string())
    }

    /// The end of something live, whatever it is called; `reason` when the file does not say it.
    pub(super) fn deletion(
        &self,
        identity: Identity,
        live: &Value,
        (address, kind): (Address, KindId),
        reason: Option<Reason>,
    ) -> Change {
        let identity = self.seen.in_lasting_version(identity);
        let wanted = self.seen.wanted.get(&identity).copied();
        let origin = wanted.map_or(FieldPath::keys(["stack", "name"]), |resource| resource.origin.clone());
        // What left the file has no line in it.
        let location = wanted.and_then(|_| self.seen.inputs.sources.locate(&origin));
        Change {
            location: location.map(|location| location.to_string()),
            reasons: Vec::from_iter(reason),
            origin,
            fingerprint: Some(fingerprint(live, &Relied::of(which_pool(live)))),
            before: without_secrets(live).into(),
            ..Change::of(address, identity, kind, Action::Delete)
        }
    }
}

/// What is live, without what is secret and without who wrote which field.
fn without_secrets(live: &Value) -> Value {
    let mut live = live.clone();
    let secret = live["kind"] == "Secret";
    if let Some(metadata) = live.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        if secret {
            // kubectl keeps a copy of the content in one of them.
            metadata.remove("annotations");
        }
    }
    if let Some(fields) = live.as_object_mut() {
        // Keys and passwords of GKE clusters of old are in here.
        fields.remove("masterAuth");
        if secret {
            fields.remove("data");
            fields.remove("stringData");
        }
    }
    crate::secrets::masked(&live)
}

/// Live things of the Dask operator's kinds.
pub(super) fn dask_things(world: &World) -> impl Iterator<Item = (&ObjectId, &Value)> {
    let dask = |object: &ObjectId| kinds::dask::api::needing_operator().any(|gvk| gvk == object.gvk);
    world.inside.live().into_iter().flatten().filter(move |(object, _)| dask(object))
}
