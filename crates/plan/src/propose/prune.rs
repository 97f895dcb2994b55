//! Deletes of live resources that the stack owns and that are no longer desired. Objects that several stacks use are deleted with
//! the last of them.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::observe::cascade::is_namespace;
use crate::observe::{fingerprint, is_in_kubernetes, labels_path, pool_identity_field};
use crate::planner::Planner;
use crate::propose::code;
use crate::propose::provisioned_workers::Former;
use crate::reason::{Parent, Reason};
use crate::{Action, Change, Inputs, Mode, Note, observe::diff};
use kinds::comparison::FingerprintInput;
use kinds::gke;
use kinds::json::is_terminating;
use kinds::kubernetes::ownership;
use model::address::{Address, FieldPath};
use model::diag::Code;
use model::resource::{
    Effect, FieldChange, Identity, JsonText, KindId, LABEL_ID, LABEL_STACK, ObjectId, World,
};

/// A live resource that this stack has created or uses.
pub(crate) struct OwnedResource<'a> {
    pub(crate) identity: Identity,
    live: &'a Value,
    pub(crate) address: Address,
    kind: KindId,
    ownership: RemovalOwnership,
    /// The reason why it is kept although the file no longer has it.
    kept_because: Option<Reason>,
}

/// The ownership of a live resource that the stack file no longer has. It decides whether the resource is deleted or released.
#[derive(Debug, PartialEq)]
enum RemovalOwnership {
    /// It is this stack's alone.
    Sole,
    /// Other stacks, by their field managers, use it too: its kind may have several.
    Shared(Vec<String>),
    /// Its kind can have only one owner, but several stacks have applied it: none of them has removed the field managers of the
    /// other stacks.
    Contested,
    /// The file says that it is managed elsewhere.
    Released,
    /// The record and a label name this stack, and no stack has applied it: another tool removed the field manager.
    OwnershipRemoved,
}

impl OwnedResource<'_> {
    /// Returns true if it is deleted or released.
    pub(crate) fn is_removed(&self) -> bool {
        self.kept_because.is_none() && self.ownership != RemovalOwnership::Released
    }
}

impl<'a> Planner<'a> {
    /// Proposes what happens to the stack's live resources that the file no longer has. A GKE cluster is never among them.
    pub(crate) fn prune(&mut self) {
        if self.cluster_is_new {
            return;
        }
        let (mut owned, note) = self.owned();
        self.notes.extend(note);
        // They go with the last resource that uses them.
        owned.sort_by_key(|owned| code::is_config_map(&owned.identity, owned.live));
        let desired = self.observed.inputs.desired.iter();
        let sections: BTreeSet<&str> = desired.map(|resource| resource.address.section()).collect();
        for mut owned in owned {
            if owned.ownership == RemovalOwnership::Released {
                self.release_to_external(owned);
                continue;
            }
            let stays = matches!(owned.identity, Identity::Cluster(_)) || !self.selected.has(&owned.address);
            // A pod of the same text is taken over by the check that runs now; any other one was left behind.
            let check = self.observed.addresses.check_of(&owned.identity);
            let taken = check.is_some_and(|check| {
                self.changes.iter().any(|change| change.action == Action::Run && change.address == *check)
            });
            if !stays && !taken && !self.observed.desired.contains_key(&owned.identity) {
                let former = self.former_request(&owned.identity, &owned.address);
                let why = match former.or_else(|| self.former_files(&owned.identity)) {
                    Some(Former::Delete(why)) => why,
                    Some(Former::Keep(why)) => {
                        owned.kept_because = Some(why.clone());
                        why
                    }
                    None if check.is_some() => Reason::LeftByEarlierRun,
                    None if sections.contains(owned.address.section()) => Reason::NoLongerInSection,
                    None => Reason::NoLongerInFile,
                };
                self.changes.push(self.removal(owned, Some(why)));
            }
        }
    }

    pub(crate) fn destroy(&mut self) {
        let (owned, note) = self.owned();
        self.notes.extend(note);
        self.notes.extend(self.orphan_notes());
        for owned in owned {
            if owned.ownership == RemovalOwnership::Released {
                self.release_to_external(owned);
                continue;
            }
            if !self.selected.has(&owned.address) {
                continue;
            }
            if let Some(resource) = self.observed.desired.get(&owned.identity).copied() {
                self.refuse_if_protected(resource, "delete");
            }
            self.changes.push(self.removal(owned, None));
        }
    }

    /// Returns the change for a resource that is no longer desired: a delete for the last stack that uses it, a release for any
    /// other stack.
    fn removal(&self, owned: OwnedResource<'_>, reason: Option<Reason>) -> Change {
        let OwnedResource { identity, live, address, kind, ownership, kept_because: stays } = owned;
        let gone = |why| self.deletion(identity.clone(), live, (address, kind), why);
        if stays.is_some() {
            // It is in the plan, so that the record goes on knowing it.
            return Change { action: Action::Keep, before: JsonText::default(), ..gone(stays) };
        }
        let users = self.observed.other_stacks_of(&identity);
        let shared = match ownership {
            RemovalOwnership::Shared(shared) => shared,
            RemovalOwnership::Sole | RemovalOwnership::Released => return gone(reason),
            RemovalOwnership::Contested => return gone(Some(Reason::Contested(users))),
            RemovalOwnership::OwnershipRemoved => return gone(Some(Reason::OwnershipRemoved)),
        };
        if self.observed.inputs.mode == Mode::Destroy && self.deletes_cluster() {
            let with = Parent::Cluster;
            return Change {
                foreign: true,
                ..gone(Some(Reason::TakenFromUsers { other_stacks: users, with }))
            };
        }
        // Another one that leaves meanwhile would leave it to nobody.
        let fingerprint = Some(fingerprint(live, &FingerprintInput::of([("users", &Value::from(shared))])));
        Change { action: Action::Forget, fingerprint, ..gone(Some(Reason::Released(users))) }
    }

    /// Releases a resource that the file says is managed elsewhere. Objects that are deleted with the cluster need no release.
    fn release_to_external(&mut self, owned: OwnedResource<'_>) {
        let OwnedResource { identity, live, address, kind, .. } = owned;
        let with_cluster = self.observed.inputs.mode == Mode::Destroy && self.deletes_cluster();
        if with_cluster || !self.selected.has(&address) {
            return;
        }
        let fingerprint = Some(fingerprint(live, &FingerprintInput::of(pool_identity_field(live))));
        let fields = labels_removed(&identity, live);
        let gone = self.deletion(identity, live, (address, kind), Some(Reason::ManagedElsewhere));
        self.changes.push(Change { action: Action::Forget, fields, fingerprint, ..gone });
    }

    /// Returns notes on recorded objects that another tool has recreated or adopted. They stay, and the record forgets them.
    fn orphan_notes(&self) -> Vec<Note> {
        let Inputs { world, owner, .. } = self.observed.inputs;
        let mut notes = Vec::new();
        for entry in world.record.iter().flat_map(|record| &record.inventory) {
            let Some(live) = entry.identity.object().and_then(|_| world.find(&entry.identity)) else {
                continue;
            };
            let ours = self.observed.has_applied(live) || ownership::has_stack_labels(live, &owner.stack);
            let told =
                ours || self.observed.is_external(&entry.identity) || !self.selected.has(&entry.address);
            if told || is_terminating(live) {
                continue;
            }
            let stacks = self.observed.other_stacks_of(&entry.identity).0;
            let whose = match stacks.as_slice() {
                [] => "others created another one of its name, or removed this stack's marks".to_owned(),
                stacks => format!("it belongs to {} now", stacks.join(", ")),
            };
            let message = format!("{} is not deleted: {whose}", entry.identity);
            notes.push(Note::new(Code::MadeByOthers, &entry.address, message));
        }
        notes
    }

    /// Returns true if the GKE cluster is owned by the stack and in the plan, so that `destroy` deletes it.
    pub(crate) fn deletes_cluster(&self) -> bool {
        let Inputs { world, target, owner, external, .. } = self.observed.inputs;
        let Some(name) = &target.gke else { return false };
        if !self.selected.has(&self.observed.name_of(&Identity::Cluster(name.clone())).0) {
            return false;
        }
        let external_cluster =
            external.iter().any(|external| matches!(external.resource.identity, Identity::Cluster(_)));
        let ours =
            |cluster: &Value| gke::compare::is_ours(&cluster["resourceLabels"], owner) && !external_cluster;
        world.cluster.live().is_some_and(ours)
    }

    /// Returns the stack's live resources with their current or last address, and a note if the operator stays because foreign
    /// Dask objects need it.
    pub(crate) fn owned(&self) -> (Vec<OwnedResource<'a>>, Option<Note>) {
        let Inputs { world, target, owner, desired, external, .. } = self.observed.inputs;
        let mut owned = Vec::new();
        let operator_namespaces = self.operators_namespaces();
        let needed_by = self.operator_is_needed_by(&operator_namespaces);
        let mut kept = None;
        let known = &self.observed.addresses;
        let manager = owner.field_manager();
        let mut add = |identity: Identity, live: &'a Value, users: Vec<String>| {
            let declared = external.iter().find(|external| external.resource.identity == identity);
            if let Some(declared) = declared {
                // The agent of a host keeps the field managers as they are.
                if !matches!(identity, Identity::Object(_)) || is_in_kubernetes(&identity) {
                    let (address, kind) = (declared.resource.address.clone(), declared.resource.kind);
                    owned.push(OwnedResource {
                        identity,
                        live,
                        address,
                        kind,
                        ownership: RemovalOwnership::Released,
                        kept_because: None,
                    });
                }
                return;
            }
            let (address, kind) = known.find(&identity);
            let ownership = match &identity {
                _ if users.is_empty() => RemovalOwnership::Sole,
                _ if kinds::of(kind).shared => RemovalOwnership::Shared(users),
                _ => RemovalOwnership::Contested,
            };
            let alone = !matches!(ownership, RemovalOwnership::Shared(_));
            let operator = alone && address.section() == kinds::scope::DASK_OPERATOR;
            let is_home = |object: &ObjectId| {
                is_namespace(object) && operator_namespaces.contains(object.name.as_str())
            };
            let is_operator_namespace = alone && identity.object().is_some_and(is_home);
            let needed_by = needed_by.as_ref().filter(|_| operator || is_operator_namespace);
            if operator && needed_by.is_some() && self.selected.has(&address) {
                kept.get_or_insert(Address::new(address.section()));
            }
            let stays = needed_by.cloned().map(|by| match operator {
                true => Reason::OperatorNeeded { by },
                false => Reason::HoldsNeededOperator { by },
            });
            owned.push(OwnedResource { identity, live, address, kind, ownership, kept_because: stays });
        };
        if let (Some(name), Some(live)) = (&target.gke, world.cluster.live())
            && (self.deletes_cluster()
                || gke::compare::is_ours(&live["resourceLabels"], owner)
                    && self.observed.is_external(&Identity::Cluster(name.clone())))
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
        for (object, live) in world.objects.live().into_iter().flatten() {
            if self.observed.has_applied(live) && !self.observed.is_record(object) {
                let shared = diff::other_stacks(live, &manager);
                let shared = shared.into_iter().map(str::to_owned).collect();
                add(Identity::Object(object.clone()), live, shared);
            }
        }
        owned.extend(self.with_removed_ownership());
        let has_operator =
            desired.iter().any(|resource| resource.address.section() == kinds::scope::DASK_OPERATOR);
        let told = self.observed.inputs.mode == Mode::Destroy || !has_operator;
        let note = kept.zip(needed_by).filter(|_| told).map(|(address, by)| {
            let message =
                format!("it and its definitions are not deleted: {by} needs it to work and to be deleted");
            Note::new(Code::OperatorStays, &address, message)
        });
        (owned, note)
    }

    /// Returns objects that the record and a label name as this stack's, and that no stack has applied. If the file has one, a
    /// plan to apply adopts it again, with approval.
    fn with_removed_ownership(&self) -> impl Iterator<Item = OwnedResource<'a>> {
        let Inputs { world, owner, mode, .. } = self.observed.inputs;
        let recorded = world.record.iter().flat_map(|record| &record.inventory);
        recorded.filter_map(move |entry| {
            let object = entry.identity.object().filter(|object| !self.observed.is_record(object))?;
            let live = world.objects.live()?.get(object)?;
            let desired = *mode == Mode::Apply && self.observed.desired.contains_key(&entry.identity);
            let is_applied = self.observed.has_applied(live) || !diff::other_stacks(live, "").is_empty();
            let lost =
                ownership::has_stack_labels(live, &owner.stack) && !is_applied && !is_terminating(live);
            if !lost || desired || self.observed.is_external(&entry.identity) {
                return None;
            }
            let (address, kind) = self.observed.addresses.find(&entry.identity);
            let identity = entry.identity.clone();
            Some(OwnedResource {
                identity,
                live,
                address,
                kind,
                ownership: RemovalOwnership::OwnershipRemoved,
                kept_because: None,
            })
        })
    }

    /// Returns the namespaces of this stack's operator.
    fn operators_namespaces(&self) -> BTreeSet<&str> {
        let is_operator = |object: &ObjectId| {
            let (address, _) = self.observed.addresses.find(&Identity::Object(object.clone()));
            address.section() == kinds::scope::DASK_OPERATOR
        };
        let objects = self.observed.inputs.world.objects.live().into_iter().flatten();
        let own = objects.filter(|(object, live)| self.observed.has_applied(live) && is_operator(object));
        own.filter_map(|(object, _)| object.namespace.as_deref()).collect()
    }

    /// Returns the namespaces that this plan deletes, with everything in them. The operator's own may stay for the operator.
    fn deleted_namespaces(&self, operator_namespaces: &BTreeSet<&str>) -> BTreeSet<&str> {
        let Inputs { world, owner, external, mode, .. } = self.observed.inputs;
        let manager = owner.field_manager();
        let goes = |(object, live): &(&ObjectId, &Value)| {
            let identity = Identity::Object((*object).clone());
            is_namespace(object)
                && !operator_namespaces.contains(object.name.as_str())
                && self.observed.has_applied(live)
                && diff::other_stacks(live, &manager).is_empty()
                && (*mode == Mode::Destroy || !self.observed.desired.contains_key(&identity))
                && !external.iter().any(|external| external.resource.identity == identity)
                && self.selected.has(&self.observed.addresses.find(&identity).0)
        };
        let objects = world.objects.live().into_iter().flatten();
        objects.filter(goes).map(|(object, _)| object.name.as_str()).collect()
    }

    /// Returns the name of a foreign Dask object that needs the operator and its CRDs. As long as such an object exists, both
    /// stay: without them it can neither work nor be deleted.
    fn operator_is_needed_by(&self, operator_namespaces: &BTreeSet<&str>) -> Option<String> {
        if self.observed.inputs.mode == Mode::Destroy && self.deletes_cluster() {
            return None;
        }
        let going = self.deleted_namespaces(operator_namespaces);
        let alone = |(object, live): &(&ObjectId, &Value)| {
            let goes = object.namespace.as_deref().is_some_and(|namespace| going.contains(namespace));
            // Handed-over objects still carry the stack's labels.
            let ours = self.observed.has_applied(live)
                && !self.observed.is_external(&Identity::Object((*object).clone()));
            !goes && !live["metadata"]["ownerReferences"].is_array() && !ours
        };
        // The operator's own default group is part of its cluster.
        let mut needing = dask_objects(self.observed.inputs.world).filter(alone).filter(|(object, live)| {
            let cluster = live["spec"]["cluster"].as_str().unwrap_or_default();
            object.name != format!("{cluster}-default")
        });
        needing.next().map(|(object, _)| object.to_string())
    }

    /// Returns the change that deletes a live resource. `reason` is for deletes that do not follow from the file.
    pub(crate) fn deletion(
        &self,
        identity: Identity,
        live: &Value,
        (address, kind): (Address, KindId),
        reason: Option<Reason>,
    ) -> Change {
        let identity = self.observed.in_served_version(identity);
        let desired = self.observed.desired.get(&identity).copied();
        let origin = desired.map_or(FieldPath::keys(["stack", "name"]), |resource| resource.origin.clone());
        // A resource that left the file has no position in it.
        let location = desired.and_then(|_| self.observed.inputs.sources.locate(&origin));
        Change {
            location: location.map(|location| location.to_string()),
            reasons: Vec::from_iter(reason),
            origin,
            fingerprint: Some(fingerprint(live, &FingerprintInput::of(pool_identity_field(live)))),
            before: without_secrets(live).into(),
            ..Change::new(address, identity, kind, Action::Delete)
        }
    }
}

/// Returns the changes that remove the ownership labels of a cluster or pool.
fn labels_removed(identity: &Identity, live: &Value) -> Vec<FieldChange> {
    let is_pool = match identity {
        Identity::NodePool { .. } => true,
        Identity::Cluster(_) => false,
        Identity::Object(_) | Identity::Check(_) => return Vec::new(),
    };
    let path = labels_path(identity);
    let labels = [LABEL_ID, LABEL_STACK].map(|key| path.key(key));
    let removed = labels.into_iter().filter_map(|path| {
        let before = Some(path.find(live)?.clone());
        let effect = if is_pool { Effect::Rolling } else { Effect::InPlace };
        let note = is_pool.then(|| gke::node_pool::LABELS_ROLL.to_owned());
        Some(FieldChange { path, before, after: None, effect, note, drift: None, secret: false })
    });
    removed.collect()
}

/// Returns a live object without secrets and without `managedFields`.
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
    model::secrets::masked(&live)
}

/// Returns the live objects of the Dask operator's kinds.
pub(crate) fn dask_objects(world: &World) -> impl Iterator<Item = (&ObjectId, &Value)> {
    let dask = |object: &ObjectId| kinds::dask::api::needing_operator().any(|gvk| gvk == object.gvk);
    world.objects.live().into_iter().flatten().filter(move |(object, _)| dask(object))
}
