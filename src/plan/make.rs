//! Making a plan: each wanted thing against the live world, then what is live and no longer wanted.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::Value;

use super::cascade::defines;
use super::inputs::Inputs;
use super::leave::Known;
use super::select::Selected;
use super::shapes::Shapes;
use super::{ASKED, Action, Change, Mode, Note, Plan, Taken, diff, given, graph, review};
use crate::address::{Address, FieldPath};
use crate::diag::{Code, Diagnostic};
use crate::kinds::gke::compare::Compared;
use crate::kinds::json::is_going;
use crate::kinds::kind::{Amiss, Compare, Doing, Kind};
use crate::kinds::{self, gke};
use crate::resource::{
    self, Effect, FieldChange, Gvk, Identity, KindId, LABEL_STACK, Lane, ObjectId, Owner, Resource, Role,
    Seen, Target, Theirs, Wanted,
};
use crate::schema;

/// The cure for what cannot be read when nothing more is known.
pub const SEE_FIRST: &str =
    "nothing is planned against what cannot be seen; `--offline` plans against an empty world";

/// What must be read to plan these resources.
pub fn wanted(desired: &[Resource], theirs: &[Theirs], target: &Target, owner: &Owner) -> Wanted {
    let operator = desired.iter().any(|resource| resource.address.section() == kinds::scope::DASK_OPERATOR);
    let needed = theirs.iter().filter(|theirs| theirs.role == Role::Needed).map(|theirs| &theirs.resource);
    let objects = desired.iter().chain(needed).filter_map(|resource| match &resource.identity {
        Identity::Object(object) => Some(object),
        Identity::Cluster(_) | Identity::NodePool { .. } | Identity::Check(_) => None,
    });
    let objects: Vec<&ObjectId> = objects.collect();
    let mut collections: BTreeSet<(Gvk, Option<String>)> = BTreeSet::new();
    for object in &objects {
        collections.insert((object.gvk.clone(), object.namespace.clone()));
    }
    for (gvk, namespace) in collections.clone() {
        // Whose number of workers counts, what others attached, and what the operator made.
        if gvk == kinds::dask::api::cluster() {
            collections.insert((kinds::dask::api::group(), namespace.clone()));
            collections.insert((kinds::dask::api::autoscaler(), namespace.clone()));
            collections.insert((
                kinds::kubernetes::object::gvk("apps", "v1", "Deployment", "deployments"),
                namespace.clone(),
            ));
            collections.insert((kinds::kubernetes::object::gvk("", "v1", "Service", "services"), namespace));
        }
    }
    if operator {
        // Who has an operator must see everything that needs it, others' things in other namespaces too.
        collections.retain(|(gvk, _)| gvk.group != schema::DASK_GROUP);
        collections.extend(kinds::dask::api::needing_operator().map(|gvk| (gvk, None)));
    }
    let everywhere: BTreeSet<Gvk> =
        collections.iter().filter(|(_, namespace)| namespace.is_none()).map(|(gvk, _)| gvk.clone()).collect();
    collections.retain(|(gvk, namespace)| namespace.is_none() || !everywhere.contains(gvk));
    let listed: BTreeMap<&Gvk, &str> =
        collections.iter().map(|(gvk, _)| (gvk, gvk.version.as_str())).collect();
    let apart = objects.iter().filter(|object| {
        let place = collections.get(&(object.gvk.clone(), object.namespace.clone()));
        let version = place.map(|(gvk, _)| gvk.version.as_str()).or(listed.get(&object.gvk).copied());
        version.is_some_and(|version| version != object.gvk.version)
    });
    // A pod that a lost answer left behind is in no record.
    let pods = desired.iter().filter(|resource| resource.kind == KindId::Check);
    let pods = pods.map(|check| kinds::kubernetes::check::pod(&check.body)).filter(|pod| {
        !everywhere.contains(&pod.gvk) && !collections.contains(&(pod.gvk.clone(), pod.namespace.clone()))
    });
    let apart = apart.map(|object| (*object).clone()).chain(pods).collect();
    Wanted {
        cluster: target.gke.clone(),
        collections,
        apart,
        record: Some(crate::record::Record::object(&owner.stack)),
        owner: owner.clone(),
    }
}

/// The plan, or everything that stands against making one, in order of the file.
pub fn plan(inputs: Inputs) -> Result<Plan, Vec<Diagnostic>> {
    let mut maker = Maker::new(&inputs);
    maker.readable();
    maker.select();
    let reads = maker.read_theirs();
    maker.at_its_place();
    match inputs.mode {
        Mode::Apply => {
            // The cluster first: when it is made anew, everything in it is.
            for resource in &inputs.desired {
                maker.want(resource);
            }
            maker.checks();
            let places: BTreeMap<&Address, usize> =
                inputs.desired.iter().map(|resource| &resource.address).zip(0..).collect();
            maker.changes.sort_by_key(|change| places.get(&change.address).copied());
            maker.no_longer_wanted();
        }
        Mode::Destroy => maker.destroy(),
    }
    maker.goes_along();
    maker.drained();
    maker.what_cannot_be_known();
    // Deletes are shown as they are done: what was made last goes first.
    let rank = |change: &Change| kinds::of(change.kind).rank;
    let deletes = maker.changes.iter().position(|change| change.action == Action::Delete);
    if let Some(first) = deletes {
        maker.changes[first..].sort_by_key(|change| std::cmp::Reverse(rank(change)));
    }
    maker.steps();
    let barriers = match graph::connect(&mut maker.changes, &inputs.desired, inputs.world) {
        Ok(barriers) => barriers,
        Err(circle) => {
            maker.problems.push(circle_problem(&circle, &inputs));
            Vec::new()
        }
    };
    maker.looks(&barriers);
    let partial = maker.partial();
    let Maker { changes, problems, mut notes, .. } = maker;
    notes.dedup();
    if !problems.is_empty() {
        let mut problems = problems;
        crate::diag::sort(&mut problems, inputs.sources);
        return Err(problems);
    }
    let mut plan = inputs.into_plan(changes, reads, notes, partial);
    plan.barriers = barriers;
    let reviewed = review::review(&plan);
    plan.notes.extend(reviewed);
    Ok(plan)
}

/// Why a change takes something from others, before why else it is made.
fn because_taken(taken: &Taken, reason: Option<String>) -> String {
    let whose = if taken.fields.is_empty() { format!("it {taken}") } else { taken.to_string() };
    match reason {
        Some(reason) => format!("{whose}; {reason}"),
        None => format!("{whose}; it would be taken over"),
    }
}

fn circle_problem(circle: &[Address], inputs: &Inputs) -> Diagnostic {
    let path: Vec<&str> = circle.iter().chain(circle.first()).map(Address::as_str).collect();
    let problem =
        Diagnostic::error(Code::Cycle, format!("these follow each other in a circle: {}", path.join(" -> ")));
    let places = circle.iter().map(|address| inputs.sources.address_span(address));
    let problem = places.fold(problem, |problem, span| problem.at(span, "in the circle"));
    problem.help("take one `depends_on` out of the circle")
}

/// A plan on its way.
pub(super) struct Maker<'a> {
    pub(super) inputs: &'a Inputs<'a>,
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
    /// The shapes of custom kinds.
    pub(super) shapes: Shapes,
    /// What is wanted, by what it is to the API.
    pub(super) wanted: BTreeMap<&'a Identity, &'a Resource>,
    /// Wanted definitions, by plural and group of their kind.
    definitions: BTreeMap<(&'a str, &'a str), &'a Resource>,
    /// What people call things.
    pub(super) known: Known<'a>,
}

impl<'a> Maker<'a> {
    pub(super) fn new(inputs: &'a Inputs<'a>) -> Self {
        Self {
            inputs,
            changes: Vec::new(),
            problems: Vec::new(),
            notes: Vec::new(),
            renewed: false,
            with_owner: BTreeSet::new(),
            gone: BTreeSet::new(),
            selected: Selected::All,
            amiss: BTreeMap::new(),
            shapes: Shapes::of(inputs),
            wanted: resource::by_identity(&inputs.desired),
            definitions: definitions(&inputs.desired),
            known: Known::of(&inputs.desired, inputs.world.record.as_ref()),
        }
    }
}

impl Maker<'_> {
    /// What cannot be read cannot be planned: it must never look empty.
    pub(super) fn readable(&mut self) {
        let world = self.inputs.world;
        let unread = match (&world.cluster, &world.inside) {
            (Seen::Unreadable(why), _) => Some(("the GKE cluster", why)),
            (Seen::Live(_), Seen::Unreadable(why)) if self.goes_unseen() => {
                self.deleted_unseen(why);
                None
            }
            (_, Seen::Unreadable(why)) if !self.is_leaving() => Some(("the Kubernetes cluster", why)),
            _ => None,
        };
        if let Some((what, why)) = unread {
            let problem = Diagnostic::error(Code::Unreadable, format!("{what} cannot be read: {why}"));
            let help = match (self.inputs.mode, &world.cluster) {
                (Mode::Destroy, Seen::Live(_)) => {
                    "nothing is planned against what cannot be seen; `destroy --allow delete:unseen` deletes the GKE \
                     cluster with whatever is in it"
                }
                _ => SEE_FIRST,
            };
            self.problems.push(problem.about(Address::new("cluster"), "").help(help));
        }
        if let Some(why) = &world.unusable {
            let stack = &self.inputs.owner.stack;
            let problem = Diagnostic::error(
                Code::Unreadable,
                format!(
                    "the record of stack {stack} cannot be used ({}): {why}",
                    crate::record::Record::object(stack)
                ),
            );
            self.problems.push(problem.about(Address::new("stack"), "").help(why.cure(stack)));
        }
        if let Some(record) = world.record.as_ref().filter(|record| record.id != self.inputs.owner.id) {
            let what = format!(
                "the cluster holds the record of another stack named {} (id {}), not of id {}",
                record.stack, record.id, self.inputs.owner.id
            );
            let span = self.inputs.sources.span(&FieldPath::keys(["stack", "name"]));
            let problem = Diagnostic::error(Code::NotOurs, what);
            // A plan of a file has no text of its stack.
            let problem = match span {
                Some(_) => problem.at(span, "named here"),
                None => problem.about(Address::new("stack"), ""),
            };
            self.problems.push(problem.help("give this stack another name, or its own `id` back"));
        }
    }

    /// A cluster that is being deleted, or was never whole, takes with it what nobody can read any more.
    fn is_leaving(&self) -> bool {
        let status = self.inputs.world.cluster.live().and_then(|cluster| cluster["status"].as_str());
        matches!(status, Some("STOPPING" | "ERROR"))
    }

    fn live(&self, identity: &Identity) -> Option<&Value> {
        let inside = !matches!(identity, Identity::Cluster(_));
        if inside && self.renewed { None } else { self.inputs.world.find(identity) }
    }

    fn want(&mut self, resource: &Resource) {
        let kind = kinds::of(resource.kind);
        if matches!(kind.compare, Compare::Action) {
            return;
        }
        if !self.selected.has(&resource.address) {
            // What goes with its owner is in the plan whatever that is limited to.
            let live = self.live(&resource.identity);
            if live.is_none_or(|live| self.goes_with(resource, live).is_none()) {
                return;
            }
            self.selected.add(&resource.address);
        }
        self.is_given(resource);
        let is_cluster = matches!(resource.identity, Identity::Cluster(_));
        if self.stays_gone(resource) {
            self.gone.insert(resource.identity.clone());
            self.push(resource, Action::Keep, Vec::new(), None, None);
            return;
        }
        let Some(live) = self.live(&resource.identity).cloned() else {
            if self.renewed && self.inputs.world.find(&resource.identity).is_some() {
                self.protected(resource, "delete");
            }
            self.renewed |= is_cluster;
            let reruns = self.may_have_run(resource);
            let action = if reruns.is_some() { Action::Replace } else { Action::Create };
            self.push(resource, action, Vec::new(), reruns, None);
            return;
        };
        if let Some(owner) = self.goes_with(resource, &live) {
            self.protected(resource, "delete");
            self.with_owner.insert(resource.identity.clone());
            let reason = Some(format!("it goes with {owner}, and is made anew after it"));
            self.push(resource, Action::Create, Vec::new(), reason, Some(fingerprint(&live, &[])));
            return;
        }
        if is_going(&live) {
            self.renewed |= is_cluster;
            let reason = Some("it is being deleted; made anew when it is gone".to_owned());
            self.push(resource, Action::Create, Vec::new(), reason, Some(fingerprint(&live, &[])));
            return;
        }
        self.want_of(resource, kind, live);
    }

    /// An object that was read in another version than the file asks for: the server has no such version (any more).
    fn is_served(&mut self, resource: &Resource, live: &Value) {
        let (Some(wanted), Some(served)) =
            (resource.body["apiVersion"].as_str(), live["apiVersion"].as_str())
        else {
            return;
        };
        if wanted == served || self.will_serve(resource) {
            return;
        }
        let what =
            format!("the cluster has {} as `{served}` and does not serve `{wanted}`", resource.identity);
        let place = resource.origin_of(&FieldPath::keys(["apiVersion"]));
        let span = self.inputs.sources.span(&place);
        let help = format!("write `apiVersion: {served}`, with the fields that this version has");
        let problem = Diagnostic::error(Code::VersionNotServed, what).at(span, "asked for here");
        self.problems.push(problem.about(resource.address.clone(), "").help(help));
    }

    /// Whether the stack has the definition of an object's kind, with the version that the object is asked for in.
    fn will_serve(&self, resource: &Resource) -> bool {
        let Identity::Object(object) = &resource.identity else { return false };
        let definition = self.definition_of(object);
        definition.is_some_and(|other| served(&other.body).any(|version| version == object.gvk.version))
    }

    /// The wanted definition of an object's kind.
    fn definition_of(&self, object: &ObjectId) -> Option<&Resource> {
        self.definitions.get(&(object.gvk.plural.as_str(), object.gvk.group.as_str())).copied()
    }

    /// An object that goes while its definition stops serving the version that it was read in: a version that is served
    /// before and after.
    pub(super) fn in_lasting_version(&self, identity: Identity) -> Identity {
        let Identity::Object(mut object) = identity else { return identity };
        let later = (!object.gvk.group.is_empty()).then(|| self.definition_of(&object)).flatten();
        if let Some(later) = later
            && !served(&later.body).any(|version| version == object.gvk.version)
        {
            let now = self.inputs.world.find(&later.identity).unwrap_or(&Value::Null);
            let mut both = served(&later.body).filter(|version| served(now).any(|other| other == *version));
            if let Some(version) = both.next() {
                object.gvk.version = version.to_owned();
            }
        }
        Identity::Object(object)
    }

    /// What is wanted of something that is there and stays.
    fn want_of(&mut self, resource: &Resource, kind: &Kind, live: Value) {
        self.is_served(resource, &live);
        let live = self.with_size(resource, live);
        let live = self.in_its_zones(resource, live);
        let standing = self.standing(resource, kind, &live);
        let joins = !matches!(standing, Standing::Ours) && matches!(kind.compare, Compare::Kubernetes(_));
        let Some(mut compared) = self.compared(resource, kind, &live) else { return };
        self.number_of_workers(resource, &live, &mut compared);
        self.tell_move(resource, &mut compared.changes);
        let (mut action, mut reason) = self.action(resource, &live, &compared.changes);
        if action != Action::Keep {
            compared.seen.extend(which_pool(&live));
        }
        let fingerprint = Some(fingerprint(&live, &compared.seen));
        let taken = match standing {
            Standing::Ours => taken_fields(&compared.others),
            Standing::Shared(stacks) => {
                // Our entry on the object is what tells the others that we use it.
                reason = reason.or(Some(format!("{} uses it too, and this stack joins", stacks.join(", "))));
                taken_fields(&compared.others)
            }
            Standing::Others(from) => Some(Taken { from, fields: Vec::new() }),
        };
        if action == Action::Keep && joins {
            action = Action::Update;
        }
        if matches!(action, Action::Keep | Action::Update)
            && let Some(amiss) = self.looked_over(resource, kind, &live, action)
        {
            action = Action::Update;
            let why = amiss.why.clone();
            reason = Some(reason.map_or_else(|| why.clone(), |reason| format!("{reason}; {why}")));
            self.amiss.insert(resource.address.clone(), amiss);
        }
        if let Some(taken) = &taken {
            reason = Some(because_taken(taken, reason));
        }
        if action == Action::Update && resource.kind == KindId::Definition {
            self.keeps_what_is_stored(resource, &live);
        }
        if action == Action::Replace {
            if matches!(resource.identity, Identity::Cluster(_)) {
                self.renewed = true;
                // Nothing in it outlives it, so nothing in it can be left out.
                self.selected = Selected::All;
            }
            self.protected(resource, "replace");
        }
        self.push(resource, action, compared.changes, reason, fingerprint);
        if let Some(change) = self.changes.last_mut() {
            change.taken = taken;
        }
    }

    /// What is amiss with something, whatever its fields say.
    fn looked_over(&self, resource: &Resource, kind: &Kind, live: &Value, action: Action) -> Option<Amiss> {
        (kind.amiss)(&Doing {
            resource: Some(resource),
            live: Some(live),
            inside: self.inputs.world.inside.live(),
            ..Doing::of(action, &resource.identity, &self.inputs.owner)
        })
    }

    /// What is wanted beside what is live; `None` for actions.
    fn compared(&self, resource: &Resource, kind: &Kind, live: &Value) -> Option<Compared> {
        match kind.compare {
            Compare::Gke(rules) => {
                let record = self.inputs.world.record.as_ref();
                let last = record.and_then(|record| record.last_set(&resource.identity));
                Some(gke::compare::compare(rules, &resource.body, live, last))
            }
            Compare::Kubernetes(effect) => {
                let schema = self.shapes.schema(resource);
                let manager = self.inputs.owner.field_manager();
                let given = &self.inputs.world.given;
                let mut compared =
                    given::compare(given, &resource.body, live, &manager, schema.as_ref(), effect);
                compared.changes.extend(other_version(&resource.body, live, &manager));
                Some(compared)
            }
            Compare::Action => None,
        }
    }

    /// The live number of nodes is not in a pool's own JSON; unknown is left out and then not compared.
    pub(super) fn with_size(&mut self, resource: &Resource, mut live: Value) -> Value {
        let Identity::NodePool { pool, .. } = &resource.identity else { return live };
        let wanted = &resource.body["nodeCount"];
        match self.inputs.world.sizes.get(pool) {
            Some(nodes) if self.has_surge_nodes(resource, &live, *nodes) => {
                live["nodeCount"] = wanted.clone();
                self.notes.push(Note {
                    code: Code::UnknownSize.as_str().into(),
                    address: resource.address.clone(),
                    message: format!(
                        "GKE is at work on it and has brought it to {nodes} nodes; those above {wanted} are there for an \
                         upgrade, so no change of size is planned"
                    ),
                });
            }
            Some(nodes) => live["nodeCount"] = (*nodes).into(),
            None if wanted.is_null() => {}
            None => {
                live["nodeCount"] = wanted.clone();
                self.notes.push(Note {
                    code: Code::UnknownSize.as_str().into(),
                    address: resource.address.clone(),
                    message: "how many nodes are live is not known, so no change of size is planned".into(),
                });
            }
        }
        live
    }

    fn action(
        &mut self,
        resource: &Resource,
        live: &Value,
        changes: &[FieldChange],
    ) -> (Action, Option<String>) {
        let asked = self.inputs.replace.iter().any(|address| address == &resource.address);
        if asked {
            return (Action::Replace, Some(ASKED.into()));
        }
        if let Some(trouble) = self.trouble(resource, live) {
            return (Action::Replace, Some(trouble));
        }
        for change in changes.iter().filter(|change| change.effect == Effect::Unknown) {
            let what = format!("{}: what changing `{}` does is not known", resource.address, change.path);
            let span = self.inputs.sources.span(&resource.origin_of(&change.path));
            let help = format!("if it is meant, make it anew: --replace {}", resource.address);
            self.problems
                .push(Diagnostic::error(Code::UnknownEffect, what).at(span, "wanted here").help(help));
        }
        if changes.iter().any(|change| change.effect == Effect::Replace) {
            (Action::Replace, None)
        } else if changes.iter().all(|change| change.effect == Effect::Ignored) {
            (Action::Keep, None)
        } else {
            (Action::Update, None)
        }
    }

    /// A pool whose creation failed stays behind and never becomes whole; one that could not grow may yet.
    fn trouble(&mut self, resource: &Resource, live: &Value) -> Option<String> {
        if matches!(resource.identity, Identity::Object(_) | Identity::Check(_)) {
            return None;
        }
        let why = gke::node_pool::conditions(live);
        match live["status"].as_str() {
            Some("ERROR") => Some(format!("its status is ERROR{why}")),
            Some("RUNNING_WITH_ERROR") => {
                self.notes.push(Note {
                    code: Code::PoolInTrouble.as_str().into(),
                    address: resource.address.clone(),
                    message: format!("its status is RUNNING_WITH_ERROR{why}; GKE goes on trying"),
                });
                None
            }
            _ => None,
        }
    }

    pub(super) fn protected(&mut self, resource: &Resource, verb: &str) {
        if resource.protect {
            let what = format!("{} is protected and the plan would {verb} it", resource.address);
            let section: FieldPath = resource.address.section().parse().unwrap_or_default();
            let span = self.inputs.sources.span(&section.key("protect"));
            let help = "take `protect` out of the section if it is meant";
            self.problems
                .push(Diagnostic::error(Code::Protected, what).at(span, "protected here").help(help));
        }
    }

    /// Whose a live thing is. What other stacks of this tool made under the same name is shared; what anyone else
    /// made is theirs.
    pub(super) fn standing(&self, resource: &Resource, kind: &Kind, live: &Value) -> Standing {
        if matches!(kind.compare, Compare::Gke(_)) {
            let labels = gke_labels(&resource.identity, live);
            if gke::compare::is_ours(labels, &self.inputs.owner) {
                return Standing::Ours;
            }
            return Standing::Others(match labels[LABEL_STACK].as_str() {
                Some(stack) => format!("its label names stack `{stack}`"),
                None => "it has no label of a stack".to_owned(),
            });
        }
        let manager = self.inputs.owner.field_manager();
        if diff::applied_by(live, &manager) {
            return Standing::Ours;
        }
        let stacks = diff::other_stacks(live, &manager);
        if kind.shared && !stacks.is_empty() {
            return Standing::Shared(stacks.into_iter().map(stack_of).collect());
        }
        let makers = live["metadata"]["managedFields"].as_array();
        let maker = makers.and_then(|list| list.first()).and_then(|entry| entry["manager"].as_str());
        Standing::Others(match maker {
            Some(maker) => format!("its field manager is `{maker}`"),
            None => "it has no field manager".to_owned(),
        })
    }

    pub(super) fn push(
        &mut self,
        resource: &Resource,
        action: Action,
        fields: Vec<FieldChange>,
        reason: Option<String>,
        fingerprint: Option<String>,
    ) {
        let first = fields.iter().find(|field| field.effect == Effect::Replace).or(fields.first());
        let origin = first.map_or_else(|| resource.origin.clone(), |field| resource.origin_of(&field.path));
        self.changes.push(Change {
            address: resource.address.clone(),
            identity: resource.identity.clone(),
            kind: resource.kind,
            action,
            fields,
            reason,
            location: self.inputs.sources.locate(&origin).map(|location| location.to_string()),
            origin,
            lane: lane(&resource.identity),
            steps: Vec::new(),
            follows: Vec::new(),
            fingerprint,
            foreign: false,
            taken: None,
            before: Value::Null,
        });
    }

    /// A check runs when no pass of this very text is recorded, or when what it checked is made anew.
    fn checks(&mut self) {
        let inputs = self.inputs;
        let is_check = |resource: &Resource| matches!(resource.identity, Identity::Check(_));
        let nothing_is_managed = inputs.desired.iter().all(is_check);
        for resource in
            inputs.desired.iter().filter(|resource| matches!(resource.identity, Identity::Check(_)))
        {
            if !self.selected.has(&resource.address) {
                continue;
            }
            let digest = kinds::kubernetes::check::digest(&resource.body);
            let record = inputs.world.record.as_ref().filter(|_| !self.renewed);
            let passed = record.and_then(|record| record.passes.get(&resource.identity));
            let renewed = self.changes.iter().find(|change| {
                let disturbs = match change.action {
                    Action::Create | Action::Replace => {
                        matches!(change.kind, KindId::NodePool | KindId::GpuDriver)
                    }
                    Action::Update => change.kind == KindId::GpuDriver,
                    Action::Keep | Action::Delete | Action::Forget | Action::Run => false,
                };
                let before = |address| graph::names(address, &change.address);
                disturbs && resource.follows.iter().any(before)
            });
            let asked = inputs.replace.contains(&resource.address);
            let reason = match (passed, renewed) {
                _ if asked => Some(ASKED.to_owned()),
                (Some(_), Some(change)) => Some(format!("{} is made anew or changed", change.address)),
                (Some(passed), None) if *passed == digest => None,
                (Some(_), None) => Some("what it runs changed since it passed".to_owned()),
                _ if nothing_is_managed => Some("no pass is kept where nothing is managed".to_owned()),
                _ => Some("no pass is recorded".to_owned()),
            };
            let action = if reason.is_some() { Action::Run } else { Action::Keep };
            self.push(resource, action, Vec::new(), reason, None);
        }
    }
}

fn definitions(desired: &[Resource]) -> BTreeMap<(&str, &str), &Resource> {
    let mut definitions = BTreeMap::new();
    for resource in desired {
        if let Identity::Object(object) = &resource.identity
            && let Some(name) = defines(object)
        {
            definitions.entry(name).or_insert(resource);
        }
    }
    definitions
}

/// The versions that a definition serves.
fn served(definition: &Value) -> impl Iterator<Item = &str> {
    let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    versions.filter(|version| version["served"] == true).filter_map(|version| version["name"].as_str())
}

/// An object that we have applied in another version of its API is applied once in the wanted one: which fields are ours
/// is noted under a version, and the note goes with it when the server no longer knows that version.
/// Source: `merge/update.go` of structured-merge-diff (recalled): managers of versions that cannot be converted are dropped.
fn other_version(wanted: &Value, live: &Value, manager: &str) -> Option<FieldChange> {
    let applied = diff::applied_in(live, manager)?;
    let now = wanted["apiVersion"].as_str().filter(|now| *now != applied)?;
    Some(FieldChange {
        path: FieldPath::keys(["apiVersion"]),
        before: Some(applied.into()),
        after: Some(now.into()),
        effect: Effect::InPlace,
        note: Some("the same object in another version of its API".to_owned()),
        drift: None,
        secret: false,
    })
}

/// Whose a live thing is.
pub(super) enum Standing {
    /// This stack's.
    Ours,
    /// Other stacks', of a kind that several stacks may have.
    Shared(Vec<String>),
    /// Somebody else's; how that is known.
    Others(String),
}

/// `stack rapids` of the field manager `dask-infra/rapids`.
pub(super) fn stack_of(manager: &str) -> String {
    let stack = manager.trim_start_matches("dask-infra/");
    format!("stack {}", stack.split(':').next().unwrap_or(stack))
}

/// The fields that other tools apply with other values.
fn taken_fields(others: &[(FieldPath, String)]) -> Option<Taken> {
    let mut managers: Vec<String> =
        others.iter().map(|(_, manager)| format!("field manager `{manager}`")).collect();
    managers.dedup();
    let fields = others.iter().map(|(path, _)| path.clone()).collect();
    (!others.is_empty()).then(|| Taken { from: managers.join(", "), fields })
}

pub(super) fn lane(identity: &Identity) -> Lane {
    match identity {
        Identity::Cluster(_) => Lane::Cluster,
        Identity::NodePool { pool, .. } => Lane::Pool(pool.clone()),
        Identity::Object(_) | Identity::Check(_) => Lane::Kubernetes,
    }
}

fn gke_labels<'v>(identity: &Identity, live: &'v Value) -> &'v Value {
    match identity {
        Identity::NodePool { .. } => &live["config"]["resourceLabels"],
        Identity::Cluster(_) | Identity::Object(_) | Identity::Check(_) => &live["resourceLabels"],
    }
}

/// GKE gives a pool no id, and its link is its name; the instance groups behind it are new with each pool.
pub(super) fn which_pool(live: &Value) -> Option<(FieldPath, Value)> {
    // A cluster has an id, and lists the groups of all its pools.
    let groups = live.get("instanceGroupUrls").filter(|_| live["id"].is_null())?;
    Some((FieldPath::keys(["instanceGroupUrls"]), groups.clone()))
}

/// A digest of what a change relies on: which thing it is, and the live values that were compared.
pub(super) fn fingerprint(live: &Value, seen: &[(FieldPath, Value)]) -> String {
    let uid = live["metadata"]["uid"].as_str().or(live["id"].as_str()).or(live["selfLink"].as_str());
    // One text and one digest: a definition of a custom kind has thousands of fields.
    let mut text = uid.unwrap_or_default().to_owned();
    for (path, value) in seen {
        // Writing to a string does not fail.
        let _ = write!(text, "\n{path}={value}");
    }
    blake3::hash(text.as_bytes()).to_hex().as_str()[..16].to_owned()
}
