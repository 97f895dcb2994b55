//! What goes: what is live and ours and no longer wanted. What several stacks use goes with the last of them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::cascade::is_namespace;
use super::make::{Maker, fingerprint, lane, stack_of, which_pool};
use super::{Action, Change, Inputs, Mode, Note, diff};
use crate::address::{Address, FieldPath};
use crate::diag::Code;
use crate::kinds::kubernetes::check;
use crate::kinds::kubernetes::object::kind_of;
use crate::kinds::{self, gke};
use crate::record::Record;
use crate::resource::{Identity, KindId, ObjectId, Resource, World};

/// A live thing that this stack has made or uses.
pub(super) struct Owned {
    pub(super) identity: Identity,
    live: Value,
    pub(super) address: Address,
    kind: KindId,
    /// Field managers of other stacks that use it too.
    shared: Vec<String>,
    /// Why it stays although nobody here wants it any more.
    stays: Option<String>,
}

impl Owned {
    /// Whether it goes, or this stack's hold on it.
    pub(super) fn goes(&self) -> bool {
        self.stays.is_none()
    }
}

impl Maker<'_> {
    /// Live things of ours that the file no longer asks for. A GKE cluster is never among them.
    pub(super) fn no_longer_wanted(&mut self) {
        if self.renewed {
            return;
        }
        let wanted: BTreeSet<Identity> =
            self.inputs.desired.iter().map(|resource| resource.identity.clone()).collect();
        for owned in self.owned() {
            let stays = matches!(owned.identity, Identity::Cluster(_)) || !self.selected.has(&owned.address);
            // A pod of the same text is taken over by the check that runs now; any other one was left behind.
            let check = self.known.check_of(&owned.identity);
            let taken = check.is_some_and(|check| {
                self.changes.iter().any(|change| change.action == Action::Run && change.address == *check)
            });
            if !stays && !taken && !wanted.contains(&owned.identity) {
                let why = check.map_or("no longer in the stack file", |_| "left behind by an earlier run");
                self.let_go(owned, Some(why));
            }
        }
    }

    pub(super) fn destroy(&mut self) {
        for owned in self.owned() {
            if !self.selected.has(&owned.address) {
                continue;
            }
            if let Some(resource) = self.wanted.get(&owned.identity).copied() {
                self.protected(resource, "delete");
            }
            self.let_go(owned, None);
        }
    }

    /// The last stack that uses a thing deletes it; another one only gives up its hold.
    fn let_go(&mut self, owned: Owned, reason: Option<&str>) {
        let Owned { identity, live, address, kind, shared, stays } = owned;
        if let Some(why) = stays {
            // It is in the plan, so that the record goes on knowing it.
            self.delete(identity, &live, address, kind, Some(&why), false);
            if let Some(change) = self.changes.last_mut() {
                (change.action, change.before) = (Action::Keep, Value::Null);
            }
            return;
        }
        if shared.is_empty() {
            self.delete(identity, &live, address, kind, reason, false);
            return;
        }
        let users = self.users_of(&identity);
        if self.inputs.mode == Mode::Destroy && self.cluster_goes() {
            let why = format!("{users}, and it would go with the cluster");
            self.delete(identity, &live, address, kind, Some(&why), true);
            return;
        }
        let why = format!("{users}: it stays, and this stack gives up its hold");
        self.delete(identity, &live, address, kind, Some(&why), false);
        if let Some(change) = self.changes.last_mut() {
            change.action = Action::Forget;
            // Another one that leaves meanwhile would leave it to nobody.
            let users = Value::from(shared);
            change.fingerprint = Some(fingerprint(&live, &[(FieldPath::keys(["users"]), users)]));
        }
    }

    /// "stack other uses it too".
    pub(super) fn users_of(&self, identity: &Identity) -> String {
        let manager = self.inputs.owner.field_manager();
        let live = self.inputs.world.find(identity).unwrap_or(&Value::Null);
        let stacks: Vec<String> = diff::other_stacks(live, &manager).into_iter().map(stack_of).collect();
        let verb = if stacks.len() == 1 { "uses" } else { "use" };
        format!("{} {verb} it too", stacks.join(", "))
    }

    /// What people call a thing, and its kind.
    pub(super) fn name_of(&self, identity: &Identity) -> (Address, KindId) {
        self.known.find(identity)
    }

    /// Whether the GKE cluster is ours and in the plan, so that `destroy` deletes it.
    pub(super) fn cluster_goes(&self) -> bool {
        let Inputs { world, target, owner, theirs, .. } = self.inputs;
        let Some(name) = &target.gke else { return false };
        if !self.selected.has(&self.name_of(&Identity::Cluster(name.clone())).0) {
            return false;
        }
        let of_others = theirs.iter().any(|theirs| matches!(theirs.resource.identity, Identity::Cluster(_)));
        let ours = |cluster: &Value| gke::compare::is_ours(&cluster["resourceLabels"], owner) && !of_others;
        world.cluster.live().is_some_and(ours)
    }

    /// Everything live that is ours, with the address it has or had.
    pub(super) fn owned(&mut self) -> Vec<Owned> {
        let Inputs { world, target, owner, desired, theirs, .. } = self.inputs;
        let mut owned = Vec::new();
        let needed_by = self.operator_is_needed_by();
        let mut kept = None;
        let known = &self.known;
        let manager = owner.field_manager();
        let is_operator =
            |identity: &Identity| known.find(identity).0.section() == kinds::scope::DASK_OPERATOR;
        // Where the operator runs.
        let homes: BTreeSet<&str> = world
            .inside
            .live()
            .into_iter()
            .flatten()
            .filter(|(object, live)| {
                needed_by.is_some()
                    && diff::applied_by(live, &manager)
                    && is_operator(&Identity::Object((*object).clone()))
            })
            .filter_map(|(object, _)| object.namespace.as_deref())
            .collect();
        let mut add = |identity: Identity, live: &Value, shared: Vec<String>| {
            // What was handed over to others is theirs, whatever marks of ours it still carries.
            if theirs.iter().any(|theirs| theirs.resource.identity == identity) {
                return;
            }
            let (address, kind) = known.find(&identity);
            let operator = shared.is_empty() && address.section() == kinds::scope::DASK_OPERATOR;
            let home = match &identity {
                Identity::Object(object) => {
                    shared.is_empty() && is_namespace(object) && homes.contains(object.name.as_str())
                }
                Identity::Cluster(_) | Identity::NodePool { .. } | Identity::Check(_) => false,
            };
            let needed_by = needed_by.as_ref().filter(|_| operator || home);
            if operator && needed_by.is_some() && self.selected.has(&address) {
                kept.get_or_insert(Address::new(address.section()));
            }
            let stays = needed_by.map(|by| match operator {
                true => format!("{by} of others needs it: it stays"),
                false => format!("the operator in it stays, as {by} of others needs it"),
            });
            owned.push(Owned { identity, live: live.clone(), address, kind, shared, stays });
        };
        if let (Some(name), true) = (&target.gke, self.cluster_goes())
            && let Some(live) = world.cluster.live()
        {
            add(Identity::Cluster(name.clone()), live, Vec::new());
        }
        for (pool, live) in &world.pools {
            if let Some(name) = &target.gke
                && gke::compare::is_ours(&live["config"]["resourceLabels"], owner)
            {
                add(Identity::NodePool { cluster: name.clone(), pool: pool.clone() }, live, Vec::new());
            }
        }
        for (object, live) in world.inside.live().into_iter().flatten() {
            if diff::applied_by(live, &manager) && !self.is_record(object) {
                let shared = diff::other_stacks(live, &manager);
                let shared = shared.into_iter().map(str::to_owned).collect();
                add(Identity::Object(object.clone()), live, shared);
            }
        }
        let wanted = desired.iter().any(|resource| resource.address.section() == kinds::scope::DASK_OPERATOR);
        if let (Some(address), Some(by)) = (kept, needed_by)
            && (self.inputs.mode == Mode::Destroy || !wanted)
        {
            let message = format!(
                "it stays with its definitions, as others need it: without it {by} could neither work nor go"
            );
            self.notes.push(Note { code: Code::OperatorStays.as_str().into(), address, message });
        }
        owned
    }

    /// The operator and its definitions stay while the cluster stays and others have Dask things in it: without
    /// them those could neither work nor go. Names one of them.
    fn operator_is_needed_by(&self) -> Option<String> {
        if self.inputs.mode == Mode::Destroy && self.cluster_goes() {
            return None;
        }
        let manager = self.inputs.owner.field_manager();
        let alone = |(_, live): &(&ObjectId, &Value)| {
            !live["metadata"]["ownerReferences"].is_array() && !diff::applied_by(live, &manager)
        };
        // The operator's own default group is part of its cluster.
        let mut things = dask_things(self.inputs.world).filter(alone).filter(|(object, live)| {
            let cluster = live["spec"]["cluster"].as_str().unwrap_or_default();
            object.name != format!("{cluster}-default")
        });
        things.next().map(|(object, _)| object.to_string())
    }

    /// The record and its namespace are not things of the stack: apply keeps them.
    fn is_record(&self, object: &ObjectId) -> bool {
        let namespace = kinds::kubernetes::namespace::object(crate::record::NAMESPACE);
        *object == Record::object(&self.inputs.owner.stack) || *object == namespace
    }

    pub(super) fn delete(
        &mut self,
        identity: Identity,
        live: &Value,
        address: Address,
        kind: KindId,
        reason: Option<&str>,
        foreign: bool,
    ) {
        let identity = self.in_lasting_version(identity);
        let wanted = self.wanted.get(&identity).copied();
        let origin = wanted.map_or(FieldPath::keys(["stack", "name"]), |resource| resource.origin.clone());
        self.changes.push(Change {
            // What left the file has no line in it.
            location: wanted
                .and_then(|_| self.inputs.sources.locate(&origin))
                .map(|location| location.to_string()),
            lane: lane(&identity),
            address,
            identity,
            kind,
            action: Action::Delete,
            fields: Vec::new(),
            reason: reason.map(str::to_owned),
            origin,
            steps: Vec::new(),
            follows: Vec::new(),
            fingerprint: Some(fingerprint(live, &Vec::from_iter(which_pool(live)))),
            foreign,
            taken: None,
            before: without_secrets(live),
        });
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

/// The addresses of what is wanted and of what the record knows, by identity.
pub(super) struct Known<'a> {
    wanted: BTreeMap<&'a Identity, (&'a Address, KindId)>,
    /// The pods that the checks of the file run, and the checks.
    pods: BTreeMap<Identity, &'a Address>,
}

impl<'a> Known<'a> {
    pub(super) fn of(desired: &'a [Resource], record: Option<&'a Record>) -> Self {
        let recorded = record.into_iter().flat_map(|record| &record.inventory);
        let recorded = recorded.map(|entry| (&entry.identity, (&entry.address, entry.kind.id())));
        let wanted = desired.iter().map(|wanted| (&wanted.identity, (&wanted.address, wanted.kind)));
        let checks = desired.iter().filter(|wanted| wanted.kind == KindId::Check);
        let pods = checks.map(|wanted| (Identity::Object(check::pod(&wanted.body)), &wanted.address));
        Self { wanted: recorded.chain(wanted).collect(), pods: pods.collect() }
    }

    /// The check of the file whose pod a thing is.
    fn check_of(&self, identity: &Identity) -> Option<&'a Address> {
        self.pods.get(identity).copied()
    }

    fn find(&self, identity: &Identity) -> (Address, KindId) {
        if let Some((address, kind)) = self.wanted.get(identity) {
            return ((*address).clone(), *kind);
        }
        match identity {
            Identity::Cluster(_) => (Address::new("cluster"), KindId::Cluster),
            Identity::NodePool { pool, .. } => (Address::of("node_pool", pool), KindId::NodePool),
            Identity::Check(address) => (address.clone(), KindId::Check),
            Identity::Object(object) => {
                let kind = kind_of(object);
                let address = match self.check_of(identity) {
                    Some(check) => check::address_of(check, object),
                    None => (kinds::of(kind).address)(object),
                };
                (address, kind)
            }
        }
    }
}

/// Live things of the Dask operator's kinds.
pub(super) fn dask_things(world: &World) -> impl Iterator<Item = (&ObjectId, &Value)> {
    let dask = |object: &ObjectId| kinds::dask::api::needing_operator().any(|gvk| gvk == object.gvk);
    world.inside.live().into_iter().flatten().filter(move |(object, _)| dask(object))
}
