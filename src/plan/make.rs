//! Making a plan: each wanted thing against the live world, then what is live and no longer wanted.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Action, Change, Consent, Mode, Note, Plan, diff, graph, review};
use crate::address::{Address, FieldPath};
use crate::diag::{Code, Diagnostic};
use crate::kinds::{self, Compare, Kind, gke};
use crate::resource::{
    Effect, FieldChange, Identity, LABEL_STACK, Lane, Owner, Resource, Seen, Target, Wanted, World,
};
use crate::source::Sources;

/// All that a plan is made of.
pub struct Inputs<'a> {
    /// What is wanted.
    pub desired: Vec<Resource>,
    /// What is live.
    pub world: &'a World,
    /// Where.
    pub target: Target,
    /// Whose.
    pub owner: Owner,
    /// What for.
    pub mode: Mode,
    /// Whether the world is empty because nothing was read.
    pub offline: bool,
    /// Consents given.
    pub allowed: Vec<Consent>,
    /// Addresses to replace although nothing forces it.
    pub replace: Vec<Address>,
    /// Where values stand in the stack file.
    pub sources: &'a Sources,
    /// US dollars per hour of what is desired.
    pub hourly: Option<f64>,
}

/// What must be read to plan these resources.
pub fn wanted(desired: &[Resource], target: &Target, owner: &Owner) -> Wanted {
    let operator = desired.iter().any(|resource| resource.address.section() == kinds::dask_operator::SECTION);
    let objects = desired.iter().filter_map(|resource| match &resource.identity {
        Identity::Object(object) => Some(object),
        Identity::Cluster(_) | Identity::NodePool { .. } | Identity::Check(_) => None,
    });
    let mut collections: BTreeSet<_> =
        objects.map(|object| (object.gvk.clone(), object.namespace.clone())).collect();
    if operator {
        // Who has an operator must see everything that needs it, others' things in other namespaces too.
        collections.retain(|(gvk, _)| gvk.group != kinds::dask_cluster::GROUP);
        collections.extend(kinds::dask_cluster::needing_operator().map(|gvk| (gvk, None)));
    }
    Wanted {
        cluster: target.gke.clone(),
        collections,
        record: Some(crate::record::Record::object(&owner.stack)),
        owner: owner.clone(),
    }
}

/// The plan, or everything that stands against making one, in order of the file.
pub fn plan(inputs: Inputs) -> Result<Plan, Vec<Diagnostic>> {
    let mut maker = Maker {
        inputs: &inputs,
        changes: Vec::new(),
        problems: Vec::new(),
        notes: Vec::new(),
        renewed: false,
    };
    maker.readable();
    match inputs.mode {
        Mode::Apply => {
            // The cluster first: when it is made anew, everything in it is.
            for resource in &inputs.desired {
                maker.want(resource);
            }
            maker.checks();
            maker.changes.sort_by_key(|change| {
                inputs.desired.iter().position(|resource| resource.address == change.address)
            });
            maker.no_longer_wanted();
        }
        Mode::Destroy => maker.destroy(),
    }
    maker.attached();
    // Deletes are shown as they are done: what was made last goes first.
    let rank = |change: &Change| kinds::find(&change.kind).map_or(0, |kind| kind.rank);
    let deletes = maker.changes.iter().position(|change| change.action == Action::Delete);
    if let Some(first) = deletes {
        maker.changes[first..].sort_by_key(|change| std::cmp::Reverse(rank(change)));
    }
    maker.steps();
    if let Err(circle) = graph::connect(&mut maker.changes, &inputs.desired) {
        maker.problems.push(circle_problem(&circle, &inputs));
    }
    maker.drop_idle_waits();
    let Maker { changes, problems, notes, .. } = maker;
    if !problems.is_empty() {
        let mut problems = problems;
        crate::diag::sort(&mut problems, inputs.sources);
        return Err(problems);
    }
    let Inputs { desired, target, owner, mode, offline, allowed, hourly, .. } = inputs;
    let mut plan = Plan { target, owner, mode, offline, changes, desired, notes, hourly, allowed };
    let reviewed = review::review(&plan);
    plan.notes.extend(reviewed);
    Ok(plan)
}

fn circle_problem(circle: &[Address], inputs: &Inputs) -> Diagnostic {
    let path: Vec<&str> = circle.iter().chain(circle.first()).map(Address::as_str).collect();
    let problem =
        Diagnostic::error(Code::Cycle, format!("these follow each other in a circle: {}", path.join(" -> ")));
    let span = circle.first().and_then(|address| inputs.sources.address_span(address));
    problem.at(span, "in the circle").help("take one `depends_on` out of the circle")
}

/// A plan on its way.
pub(super) struct Maker<'a> {
    pub(super) inputs: &'a Inputs<'a>,
    pub(super) changes: Vec<Change>,
    problems: Vec<Diagnostic>,
    notes: Vec<Note>,
    /// Whether the GKE cluster is made or made anew, so that nothing inside is live afterwards.
    pub(super) renewed: bool,
}

impl Maker<'_> {
    /// What cannot be read cannot be planned: it must never look empty.
    fn readable(&mut self) {
        let world = self.inputs.world;
        let unread = match (&world.cluster, &world.inside) {
            (Seen::Unreadable(why), _) => Some(("the GKE cluster", why)),
            (_, Seen::Unreadable(why)) if !self.is_leaving() => Some(("the Kubernetes cluster", why)),
            _ => None,
        };
        if let Some((what, why)) = unread {
            let problem = Diagnostic::error(Code::Unreadable, format!("{what} cannot be read: {why}"));
            let help =
                "nothing is planned against what cannot be seen; `--offline` plans against an empty world";
            self.problems.push(problem.about(Address::new("cluster"), "").help(help));
        }
        if let Some(record) = world.record.as_ref().filter(|record| record.id != self.inputs.owner.id) {
            let what = format!(
                "the cluster holds the record of another stack named {} (id {}), not of id {}",
                record.stack, record.id, self.inputs.owner.id
            );
            let span = self.inputs.sources.span(&FieldPath::keys(["stack", "name"]));
            let problem = Diagnostic::error(Code::NotOurs, what).at(span, "named here");
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
        let Some(kind) = kinds::find(&resource.kind) else { return };
        if matches!(kind.compare, Compare::Action) {
            return;
        }
        let is_cluster = matches!(resource.identity, Identity::Cluster(_));
        let Some(live) = self.live(&resource.identity).cloned() else {
            if self.renewed && self.inputs.world.find(&resource.identity).is_some() {
                self.protected(resource, "delete");
            }
            self.renewed |= is_cluster;
            self.push(resource, Action::Create, Vec::new(), None, None);
            return;
        };
        if is_going(&live) && self.may_follow(resource, kind, &live) {
            self.renewed |= is_cluster;
            let reason = Some("it is being deleted; made anew when it is gone".to_owned());
            self.push(resource, Action::Create, Vec::new(), reason, Some(fingerprint(&live, &[])));
            return;
        }
        let live = self.with_size(resource, live);
        let compared = match kind.compare {
            Compare::Gke(rules) => {
                if !self.ours_in_gke(resource, &live) {
                    return;
                }
                let record = self.inputs.world.record.as_ref();
                let last = record.and_then(|record| record.last_set(&resource.identity));
                gke::compare(rules, &resource.body, &live, last)
            }
            Compare::Kubernetes(effect) => {
                if !self.ours_in_kubernetes(resource, kind, &live) {
                    return;
                }
                let schema = kinds::object_schema(&resource.identity);
                let manager = self.inputs.owner.field_manager();
                diff::compare(&resource.body, &live, &manager, schema.as_ref(), effect)
            }
            Compare::Action => return,
        };
        for (path, manager) in &compared.others {
            let what = format!("{}: `{path}` is applied by field manager `{manager}`", resource.address);
            let span = self.inputs.sources.span(&resource.origin_of(path));
            let help = "two appliers of one field take it from each other for ever: leave it to one of them";
            self.problems.push(Diagnostic::error(Code::NotOurs, what).at(span, "wanted here").help(help));
        }
        let fingerprint = Some(fingerprint(&live, &compared.seen));
        let (action, reason) = self.action(resource, &live, &compared.changes);
        if action == Action::Replace {
            self.renewed |= is_cluster;
            self.protected(resource, "replace");
        }
        self.push(resource, action, compared.changes, reason, fingerprint);
    }

    /// The live number of nodes is not in a pool's own JSON; unknown is left out and then not compared.
    fn with_size(&mut self, resource: &Resource, mut live: Value) -> Value {
        let Identity::NodePool { pool, .. } = &resource.identity else { return live };
        let wanted = &resource.body["nodeCount"];
        match self.inputs.world.sizes.get(pool) {
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
            return (Action::Replace, Some("asked for by --replace".into()));
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
        let why = kinds::node_pool::conditions(live);
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

    fn not_ours(&mut self, resource: &Resource, who: &str) {
        let what = format!("{} exists already and is not of this stack{who}", resource.identity);
        let span = self.inputs.sources.span(&resource.origin);
        let help = "nothing is taken over: choose another name, or delete it if nobody needs it";
        let problem = Diagnostic::error(Code::NotOurs, what).at(span, "wanted here");
        self.problems.push(problem.about(resource.address.clone(), "").help(help));
    }

    fn ours_in_gke(&mut self, resource: &Resource, live: &Value) -> bool {
        let labels = gke_labels(&resource.identity, live);
        let ours = gke::is_ours(labels, &self.inputs.owner);
        if !ours {
            let other = labels[LABEL_STACK].as_str();
            let who = other.map_or(String::new(), |stack| format!(": its label names stack `{stack}`"));
            self.not_ours(resource, &who);
        }
        ours
    }

    /// What other stacks of this tool made under the same name is shared; what anyone else made is theirs.
    fn ours_in_kubernetes(&mut self, resource: &Resource, kind: &Kind, live: &Value) -> bool {
        let manager = self.inputs.owner.field_manager();
        let shared = kind.shared && !diff::other_stacks(live, &manager).is_empty();
        let known = shared || diff::applied_by(live, &manager);
        if !known {
            let makers = live["metadata"]["managedFields"].as_array();
            let maker = makers.and_then(|list| list.first()).and_then(|entry| entry["manager"].as_str());
            let who = maker.map_or(String::new(), |maker| format!(": its field manager is `{maker}`"));
            self.not_ours(resource, &who);
        }
        known
    }

    /// Whether what is being deleted was ours, so that ours may be made when it is gone.
    fn may_follow(&mut self, resource: &Resource, kind: &Kind, live: &Value) -> bool {
        match kind.compare {
            Compare::Gke(_) => self.ours_in_gke(resource, live),
            Compare::Kubernetes(_) => self.ours_in_kubernetes(resource, kind, live),
            Compare::Action => false,
        }
    }

    fn push(
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
            kind: resource.kind.clone(),
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
        });
    }

    /// A check runs when no pass of this very text is recorded, or when what it checked is made anew.
    fn checks(&mut self) {
        let inputs = self.inputs;
        for resource in
            inputs.desired.iter().filter(|resource| matches!(resource.identity, Identity::Check(_)))
        {
            let digest = kinds::check::digest(&resource.body);
            let record = inputs.world.record.as_ref().filter(|_| !self.renewed);
            let passed = record.and_then(|record| record.passes.get(&resource.address));
            let renewed = self.changes.iter().find(|change| {
                let made = matches!(change.action, Action::Create | Action::Replace);
                let disturbs = match change.kind.as_str() {
                    "node_pool" => made,
                    "gpu_driver" => made || change.action == Action::Update,
                    _ => false,
                };
                let before = |address| graph::names(address, &change.address);
                disturbs && resource.follows.iter().any(before)
            });
            let asked = inputs.replace.contains(&resource.address);
            let reason = match (passed, renewed) {
                _ if asked => Some("asked for by --replace".to_owned()),
                (Some(_), Some(change)) => Some(format!("{} is made anew or changed", change.address)),
                (Some(passed), None) if *passed == digest => None,
                (Some(_), None) => Some("what it runs changed since it passed".to_owned()),
                _ => Some("no pass is recorded".to_owned()),
            };
            let action = if reason.is_some() { Action::Run } else { Action::Keep };
            self.push(resource, action, Vec::new(), reason, None);
        }
    }
}

/// Whether a live thing is on its way out.
pub(super) fn is_going(live: &Value) -> bool {
    !live["metadata"]["deletionTimestamp"].is_null() || live["status"] == "STOPPING"
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

/// A digest of what a change relies on: which thing it is, and the live values that were compared.
pub(super) fn fingerprint(live: &Value, seen: &[(FieldPath, Value)]) -> String {
    let uid = live["metadata"]["uid"].as_str().or(live["id"].as_str()).or(live["selfLink"].as_str());
    let mut hasher = blake3::Hasher::new();
    hasher.update(uid.unwrap_or_default().as_bytes());
    for (path, value) in seen {
        hasher.update(format!("\n{path}={value}").as_bytes());
    }
    hasher.finalize().to_hex().as_str()[..16].to_owned()
}
