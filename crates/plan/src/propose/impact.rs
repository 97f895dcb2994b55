//! Checks what a server deletes with a deleted resource ([`crate::observe::cascade`]). Resources that the stack still needs are
//! protected from it. Foreign objects are named and need an approval of their own. Objects that a controller created for a
//! resource of the stack count as the stack's.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::observe::cascade::{
    Cascade, CascadeEntry, CascadeReason, cascade_reason, defined_kind, is_namespace, pods_of_pool,
};
use crate::planner::Planner;
use crate::propose::prune::dask_objects;
use crate::reason::{Parent, Reason};
use crate::{Action, Change, Mode, Note, Plan, Selection, observe::system, propose::kueue};
use kinds::json::{is_terminating, text};
use model::address::{Address, FieldPath};
use model::diag::{Code, Diagnostic, listed};
use model::resource::{self, DeletionScope, Effect, Identity, KindId, ObjectId};

/// Kinds whose objects controllers derive from other objects. They contain no data of users.
const DERIVED_KINDS: &[&str] =
    &["Event", "Endpoints", "EndpointSlice", "Lease", "ControllerRevision", "PodMetrics"];
/// The maximum number of resources that a message lists.
pub(crate) const MAX_LISTED: usize = 3;

/// Returns the scope in which resources that were not read could be deleted with those of the plan.
pub fn deletion_scope(plan: &Plan) -> Option<DeletionScope> {
    scope_of_deletions(&plan.changes)
}

/// Returns true if a change deletes a live resource of the stack, or the nodes of a pool.
fn deletes(change: &Change) -> bool {
    (matches!(change.action, Action::Delete | Action::Replace) || change.scales_to_zero()) && !change.foreign
}

/// Returns true if a change makes GKE recreate the nodes of a pool.
pub(crate) fn recreates_nodes(change: &Change) -> bool {
    matches!(change.identity, Identity::NodePool { .. })
        && matches!(change.action, Action::Update | Action::Forget)
        && change.fields.iter().any(|field| field.effect == Effect::Rolling)
}

/// Returns true if a change switches queued provisioning on for a live pool, which has no nodes then.
pub(crate) fn enables_queued_provisioning(change: &Change) -> bool {
    let switch = FieldPath::keys(["queuedProvisioning", "enabled"]);
    let on = |value: &Option<Value>| value.as_ref().is_some_and(|value| *value == true);
    matches!(change.identity, Identity::NodePool { .. })
        && change.action == Action::Update
        && change
            .fields
            .iter()
            .any(|field| switch.contains(&field.path) && on(&field.after) && !on(&field.before))
}

/// Returns the new node count per zone if the change shrinks the pool.
pub(crate) fn shrinks_to(change: &Change) -> Option<u64> {
    let number = FieldPath::keys(["nodeCount"]);
    let is_pool = matches!(change.identity, Identity::NodePool { .. }) && change.action == Action::Update;
    change.fields.iter().find(|field| field.path == number).filter(|_| is_pool)?.falls_to()
}

fn scope_of_deletions(changes: &[Change]) -> Option<DeletionScope> {
    let mut scope = DeletionScope::default();
    for change in changes.iter().filter(|change| deletes(change)) {
        match &change.identity {
            Identity::Cluster(_) => scope.cluster = true,
            Identity::NodePool { .. } => scope.nodes = true,
            Identity::Object(object) if is_namespace(object) => {
                scope.namespaces.insert(object.name.clone());
            }
            Identity::Object(object) if defined_kind(object).is_some() => {
                scope.crds.insert(object.name.clone());
            }
            Identity::Object(object) if kueue::is_queue(object) => {
                scope.crds.extend(kueue::crds());
            }
            Identity::Object(_) | Identity::Check(_) => {}
        }
    }
    scope.nodes |= changes.iter().any(|change| {
        recreates_nodes(change) || enables_queued_provisioning(change) || shrinks_to(change).is_some()
    });
    (scope != DeletionScope::default()).then_some(DeletionScope { excluded_kinds: DERIVED_KINDS, ..scope })
}

/// Returns true if a Pod has not ended, is not being deleted and is in no system namespace. Callers know that it is a Pod.
pub(crate) fn is_user_pod(object: &ObjectId, live: &Value) -> bool {
    let ended = matches!(live["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    !ended && !is_terminating(live) && !object.namespace.as_deref().is_some_and(system::is_system)
}

/// Returns the kind of the controller that recreates a Pod.
pub(crate) fn controller_kind(live: &Value) -> Option<&str> {
    let owners = live["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    let mut controllers = owners.filter(|owner| owner["controller"] != false);
    controllers.find_map(|owner| owner["kind"].as_str())
}

/// Foreign objects by namespace.
type ForeignObjects<'w> = BTreeMap<String, Vec<(&'w ObjectId, &'w Value)>>;

impl<'w> Planner<'w> {
    /// Proposes what happens to every resource that a server deletes with a deleted one: the stack's own and foreign ones.
    pub(crate) fn plan_cascade(&mut self) {
        let inputs = self.observed.inputs;
        let deleted: Vec<Identity> = self
            .changes
            .iter()
            .filter(|change| deletes(change))
            .map(|change| change.identity.clone())
            .collect();
        if deleted.is_empty() {
            return;
        }
        let manager = inputs.owner.field_manager();
        let cascade = Cascade::new(inputs.world, inputs.target.gke.as_ref(), &manager);
        let cascaded = cascade.all(&deleted);
        self.delete_owned_dependents(&deleted, &cascaded);
        let mut planned: BTreeSet<Identity> =
            self.changes.iter().map(|change| change.identity.clone()).collect();
        self.delete_attached(&mut planned);
        self.delete_foreign_dependents(&cascade, &cascaded, &mut planned);
        self.delete_pods_of_foreign_jobs(&cascade, &cascaded, &mut planned);
        self.delete_foreign_work(&mut planned);
        if scope_of_deletions(&self.changes).is_none() {
            return;
        }
        for message in &inputs.world.unlisted_foreign {
            self.notes.push(Note::new(
                Code::ForeignUnlisted,
                &Address::new("cluster"),
                format!(
                    "resources outside this stack could not be listed, and would be deleted unnamed: \
                     {message}"
                ),
            ));
        }
    }

    /// Refuses deletes that would delete resources which the stack still needs. Adds the stack's other resources that are deleted
    /// with them to the plan.
    fn delete_owned_dependents(&mut self, deleted: &[Identity], cascaded: &BTreeMap<Identity, CascadeEntry>) {
        let inputs = self.observed.inputs;
        let desired = resource::by_identity(&inputs.desired);
        let planned: BTreeMap<Identity, usize> =
            self.changes.iter().map(|change| change.identity.clone()).zip(0..).collect();
        let action = |planner: &Self, identity: &Identity| {
            planned.get(identity).map(|index| planner.changes[*index].action)
        };
        let mut kept: BTreeMap<&Identity, Vec<&Identity>> = BTreeMap::new();
        // Everything is deleted with a GKE cluster, and all of it is planned again or deleted.
        let cascaded = cascaded.iter().filter(|(_, cascaded)| !matches!(cascaded.root, Identity::Cluster(_)));
        for (dependent, CascadeEntry { root, reason }) in cascaded {
            let Some(live) = inputs.world.find(dependent) else { continue };
            let action = action(self, dependent);
            let desired = desired.get(dependent).copied();
            // It is stopped together with what it is deleted with.
            if action == Some(Action::Delete) && inputs.stop_of(dependent).is_some() {
                continue;
            }
            if let Some(resource) = desired.filter(|_| inputs.mode == Mode::Apply) {
                let is_recreated = action == Some(Action::Replace)
                    && (*reason == CascadeReason::Pool || self.is_replaced(root));
                if !is_recreated && !self.recreated_with_parent.contains(dependent) {
                    self.refuse_if_protected(resource, "delete");
                    kept.entry(root).or_default().push(dependent);
                }
                continue;
            }
            match action {
                Some(Action::Delete | Action::Replace) => {}
                // Others need it: that is why it is not deleted.
                Some(Action::Keep) => kept.entry(root).or_default().push(dependent),
                Some(Action::Forget) => self.delete_with_parent(dependent, root),
                Some(Action::Create | Action::Update | Action::Run) => {}
                None if !self.observed.has_applied(live) || self.observed.is_external(dependent) => {}
                None => {
                    if let Some(resource) = desired {
                        self.refuse_if_protected(resource, "delete");
                    }
                    let (name, root) = (self.observed.name_of(dependent), self.observed.name_of(root).0);
                    let why = Some(Reason::DeletedWith(root));
                    self.changes.push(self.deletion(dependent.clone(), live, name, why));
                }
            }
        }
        // A missing dependent would be created inside something that is deleted.
        let parents: Vec<&Identity> = deleted
            .iter()
            .filter(|parent| {
                parent.object().is_some_and(|object| is_namespace(object) || defined_kind(object).is_some())
            })
            .filter(|parent| !self.is_replaced(parent))
            .collect();
        for resource in inputs.desired.iter().filter(|_| inputs.mode == Mode::Apply && !parents.is_empty()) {
            let identity = &resource.identity;
            let made =
                action(self, identity) == Some(Action::Create) && inputs.world.find(identity).is_none();
            if made
                && let Some(parent) = parents.iter().find(|parent| cascade_reason(parent, identity).is_some())
            {
                kept.entry(parent).or_default().push(identity);
            }
        }
        for (root, dependents) in kept {
            self.refuse(root, &dependents);
        }
    }

    fn is_replaced(&self, identity: &Identity) -> bool {
        self.changes.iter().any(|change| change.identity == *identity && change.action == Action::Replace)
    }

    /// Marks a resource that other stacks use, too, as deleted with its parent: it cannot be released to them.
    fn delete_with_parent(&mut self, dependent: &Identity, root: &Identity) {
        let (users, with) =
            (self.observed.other_stacks_of(dependent), Parent::Named(self.observed.name_of(root).0));
        if let Some(change) = self.changes.iter_mut().find(|change| change.identity == *dependent) {
            (change.action, change.foreign) = (Action::Delete, true);
            // A handed-over object has no known users.
            let handed_over = users.0.is_empty();
            change.reasons = vec![match handed_over {
                true => Reason::ForeignIn(with),
                false => Reason::TakenFromUsers { other_stacks: users, with },
            }];
        }
    }

    /// Reports why a resource cannot be deleted, and what to do instead.
    fn refuse(&mut self, root: &Identity, dependents: &[&Identity]) {
        let inputs = self.observed.inputs;
        let (parent, _) = self.observed.name_of(root);
        let names: Vec<String> = dependents
            .iter()
            .take(MAX_LISTED)
            .map(|dependent| self.observed.name_of(dependent).0.to_string())
            .collect();
        let more = dependents.len() - names.len();
        let names = listed(names.iter().map(String::as_str), "and");
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        let them = if dependents.len() == 1 { "it" } else { "them" };
        let is_wanted =
            |dependent: &&Identity| inputs.desired.iter().any(|resource| resource.identity == **dependent);
        let desired = inputs.mode == Mode::Apply && dependents.iter().any(is_wanted);
        let who = if desired { "the stack still needs" } else { "other stacks still need" };
        let what =
            format!("{parent} cannot be deleted: {names}{more} would be deleted with it, but {who} {them}");
        let replaced = self.is_replaced(root);
        let help = match root {
            _ if !desired => format!("keep it until they no longer do: --exclude {parent}"),
            Identity::NodePool { .. } => format!(
                "no controller recreates {them} on another node; to recreate {them}: {}",
                self.flags(dependents)
            ),
            _ if replaced => format!("to recreate {them} with it: {}", self.flags(dependents)),
            Identity::Object(object) if is_namespace(object) => format!(
                "keep the namespace in the file, `[namespace.{}]`, with `manage = false` if it is now managed \
                 elsewhere; or remove its contents from the file, too",
                object.name
            ),
            Identity::Object(object) if defined_kind(object).is_some() => {
                "keep the definition in the file while objects of its kind are in it, or remove them, too"
                    .to_owned()
            }
            _ => format!("keep {parent} in the file, or remove what belongs to it, too"),
        };
        let mut problem = Diagnostic::error(Code::GoesAlong, what).help(help);
        let mut origins: Vec<&FieldPath> = Vec::new();
        for dependent in dependents.iter().take(MAX_LISTED) {
            let desired = inputs.desired.iter().find(|resource| resource.identity == **dependent);
            origins
                .extend(desired.map(|resource| &resource.origin).filter(|origin| !origins.contains(origin)));
        }
        for origin in origins {
            let text = if desired { "requested here" } else { "from here" };
            problem = problem.at_value(origin.clone(), text);
        }
        // A resource that left the file has no position in it.
        if inputs.desired.iter().any(|resource| resource.address.section() == parent.section()) {
            problem = problem.about(parent, "");
        }
        self.problems.push(problem);
    }

    /// Returns the options that include these resources in the plan: a partial plan may leave them out.
    fn flags(&self, dependents: &[&Identity]) -> String {
        let Selection { targets, excludes } = &self.observed.inputs.selection;
        let names: BTreeSet<Address> =
            dependents.iter().map(|dependent| self.observed.name_of(dependent).0).collect();
        let is_out = |name: &&Address| !self.selected.has(name);
        let mut flags: Vec<String> = Vec::new();
        if !targets.is_empty() {
            flags.extend(names.iter().filter(is_out).map(|name| format!("--target {name}")));
        }
        flags.extend(names.iter().map(|name| format!("--replace {name}")));
        let excluded = !excludes.is_empty() && names.iter().any(|name| is_out(&name));
        let without = if excluded { ", without the `--exclude` that leaves them out" } else { "" };
        format!("{}{without}", flags.join(" "))
    }

    /// Adds the deletes of foreign resources, except those that a controller created for a deleted resource.
    fn delete_foreign_dependents(
        &mut self,
        cascade: &Cascade<'w>,
        cascaded: &BTreeMap<Identity, CascadeEntry>,
        planned: &mut BTreeSet<Identity>,
    ) {
        let inputs = self.observed.inputs;
        let deleted: BTreeSet<Identity> = self
            .changes
            .iter()
            .filter(|change| deletes(change))
            .map(|change| change.identity.clone())
            .collect();
        let with_cluster = deleted.iter().any(|one| matches!(one, Identity::Cluster(_)));
        if with_cluster {
            self.delete_foreign_pools(planned);
        }
        let mut foreign: ForeignObjects<'w> = BTreeMap::new();
        let gangs = self.own_gangs();
        for (object, live) in inputs.world.objects.live().into_iter().flatten() {
            let identity = Identity::Object(object.clone());
            let Some(CascadeEntry { reason, .. }) = cascaded.get(&identity) else { continue };
            let ours = self.is_ours(object, live) || self.is_of_own_work(&gangs, object, live);
            let ours = ours || cascade.has_ancestor(live, &|owner, live| self.is_ours(owner, live));
            let child = match reason {
                CascadeReason::Cluster => {
                    live["metadata"]["ownerReferences"].as_array().is_some_and(|all| !all.is_empty())
                }
                CascadeReason::Owner => true,
                CascadeReason::Pool
                | CascadeReason::Namespace
                | CascadeReason::Crd
                | CascadeReason::DaskCluster => {
                    cascade.has_owner(live, |owner| cascaded.contains_key(owner) || deleted.contains(owner))
                }
            };
            if ours || child || is_boilerplate(object, live) || is_default_group(object, live) {
                continue;
            }
            let namespace = object.namespace.as_deref();
            match (reason, namespace) {
                // Foreign cluster-wide objects cannot be told from the system's.
                (CascadeReason::Cluster, None) => continue,
                (CascadeReason::Cluster, Some(_))
                    if system::is_system_object(object, live, &inputs.owner.stack) =>
                {
                    continue;
                }
                (CascadeReason::Cluster, Some(namespace)) => {
                    foreign.entry(namespace.to_owned()).or_default().push((object, live));
                    continue;
                }
                // Named by themselves.
                (CascadeReason::Owner | CascadeReason::DaskCluster, _) => continue,
                (CascadeReason::Pool | CascadeReason::Namespace | CascadeReason::Crd, _) => {}
            }
            let with = match reason {
                CascadeReason::Crd => Parent::Crd,
                CascadeReason::Pool => Parent::Node,
                _ => Parent::Namespace,
            };
            self.delete_foreign_object(planned, object, live, with);
        }
        if with_cluster {
            self.delete_foreign_namespaces(planned, &mut foreign);
        }
        for (object, live) in foreign.into_values().flatten() {
            self.delete_foreign_object(planned, object, live, Parent::Cluster);
        }
    }

    fn is_ours(&self, object: &ObjectId, live: &Value) -> bool {
        self.observed.has_applied(live) && !self.observed.is_external(&Identity::Object(object.clone()))
    }

    /// Adds the deletes of Pods of foreign Jobs that stay, on nodes that `stop` deletes: the Jobs count them as failures.
    fn delete_pods_of_foreign_jobs(
        &mut self,
        cascade: &Cascade<'w>,
        cascaded: &BTreeMap<Identity, CascadeEntry>,
        planned: &mut BTreeSet<Identity>,
    ) {
        let world = self.observed.inputs.world;
        let emptied = self.changes.iter().filter(|change| change.scales_to_zero());
        let pools: Vec<String> =
            emptied.filter_map(|change| Some(change.identity.pool()?.to_owned())).collect();
        let deletes = |owner: &Identity, planned: &BTreeSet<Identity>| {
            cascaded.contains_key(owner) || planned.contains(owner)
        };
        for (object, live) in pools.iter().flat_map(|pool| pods_of_pool(world, pool)) {
            let of_job = is_user_pod(object, live) && controller_kind(live) == Some("Job");
            let ours = || cascade.has_ancestor(live, &|owner, live| self.is_ours(owner, live));
            if of_job && !ours() && !cascade.has_owner(live, |owner| deletes(owner, planned)) {
                self.delete_foreign_object(planned, object, live, Parent::NodeOfJob);
            }
        }
    }

    fn delete_foreign_object(
        &mut self,
        planned: &mut BTreeSet<Identity>,
        object: &ObjectId,
        live: &Value,
        parent: Parent,
    ) {
        let section = match object.namespace.as_deref() {
            Some(namespace) => format!("others.{namespace}"),
            None => "others".to_owned(),
        };
        let address = Address::object(&section, &object.gvk.kind, None, &object.name);
        let kind = KindId::Object;
        self.delete_foreign(
            planned,
            Identity::Object(object.clone()),
            (live, address, kind),
            Reason::ForeignIn(parent),
        );
    }

    pub(crate) fn delete_foreign(
        &mut self,
        planned: &mut BTreeSet<Identity>,
        identity: Identity,
        (live, address, kind): (&Value, Address, KindId),
        why: Reason,
    ) {
        if planned.insert(identity.clone()) {
            let deleted = self.deletion(identity, live, (address, kind), Some(why));
            self.changes.push(Change { foreign: true, ..deleted });
        }
    }

    /// Adds the deletes of foreign pools in a GKE cluster that is deleted or recreated.
    fn delete_foreign_pools(&mut self, planned: &mut BTreeSet<Identity>) {
        let Some(name) = self.observed.inputs.target.gke.clone() else { return };
        for (pool, live) in &self.observed.inputs.world.pools {
            let identity = Identity::NodePool { cluster: name.clone(), pool: pool.clone() };
            let ours =
                kinds::gke::compare::is_ours(&live["config"]["resourceLabels"], &self.observed.inputs.owner);
            let of_gke = kinds::gke::node_pool::is_autoprovisioned(live);
            if of_gke || ours && !self.observed.is_external(&identity) {
                continue;
            }
            let (address, kind) = (Address::of("node_pool", pool), KindId::NodePool);
            self.delete_foreign(planned, identity, (live, address, kind), Reason::ForeignIn(Parent::Cluster));
        }
    }

    /// Adds the deletes of foreign worker groups and autoscalers of a deleted DaskCluster of the stack.
    fn delete_attached(&mut self, planned: &mut BTreeSet<Identity>) {
        let clusters =
            self.changes.iter().filter(|change| deletes(change) && change.kind == KindId::DaskCluster);
        let deletes: Vec<ObjectId> =
            clusters.filter_map(|change| change.identity.object().cloned()).collect();
        for (object, live) in dask_objects(self.observed.inputs.world) {
            let cluster = deletes.iter().find(|cluster| {
                cluster.namespace == object.namespace && live["spec"]["cluster"] == cluster.name.as_str()
            });
            let Some(cluster) = cluster.filter(|_| !self.observed.has_applied(live)) else { continue };
            if is_default_group(object, live) {
                continue;
            }
            let address =
                Address::object("dask_cluster", &object.gvk.kind, object.namespace.as_deref(), &object.name);
            let why = Reason::AttachedTo { cluster: cluster.name.clone() };
            let kind = KindId::Object;
            self.delete_foreign(planned, Identity::Object(object.clone()), (live, address, kind), why);
        }
    }

    /// Adds the deletes of foreign namespaces in a deleted GKE cluster. The approval of a namespace covers its contents.
    fn delete_foreign_namespaces(
        &mut self,
        planned: &mut BTreeSet<Identity>,
        foreign: &mut ForeignObjects<'_>,
    ) {
        for (object, live) in self.observed.inputs.world.objects.live().into_iter().flatten() {
            let name = object.name.as_str();
            let known = name == "default" || system::is_created_by_system(name, live);
            let ours = self.observed.has_applied(live)
                && !self.observed.is_external(&Identity::Object(object.clone()));
            if !is_namespace(object) || known || ours {
                continue;
            }
            let inside = foreign.remove(name).unwrap_or_default();
            let named: Vec<String> = inside
                .iter()
                .take(MAX_LISTED)
                .map(|(object, _)| format!("{} {}", object.gvk.kind, object.name))
                .collect();
            let more = inside.len().saturating_sub(MAX_LISTED);
            let address = Address::of("namespace", name);
            let kind = KindId::Namespace;
            self.delete_foreign(
                planned,
                Identity::Object(object.clone()),
                (live, address, kind),
                Reason::ForeignNamespace { named, more },
            );
        }
    }
}

/// Returns true for the group that the operator creates with each cluster: it is part of the cluster.
fn is_default_group(object: &ObjectId, live: &Value) -> bool {
    let cluster = live["spec"]["cluster"].as_str().unwrap_or_default();
    object.gvk == kinds::dask::api::group() && object.name == format!("{cluster}-default")
}

/// Returns true for an object that every namespace has, or that a controller derives from another object.
pub fn is_boilerplate(object: &ObjectId, live: &Value) -> bool {
    let kind = object.gvk.kind.as_str();
    let everywhere = match kind {
        "ConfigMap" => object.name == "kube-root-ca.crt",
        "ServiceAccount" => object.name == "default",
        "Service" => object.name == "kubernetes" && object.namespace.as_deref() == Some("default"),
        "Secret" => text(&live["type"]) == "kubernetes.io/service-account-token",
        _ => false,
    };
    everywhere || DERIVED_KINDS.contains(&kind)
}
