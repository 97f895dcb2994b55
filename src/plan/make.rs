//! Making a plan: each wanted thing against the live world, then what is live and no longer wanted.

use serde_json::Value;

use super::{Action, Change, Consent, Mode, Note, Plan, diff, graph, review};
use crate::address::{Address, FieldPath};
use crate::diag::{Code, Diagnostic};
use crate::kinds::{self, Compare, Doing, Kind, gke};
use crate::resource::{
    Effect, FieldChange, Identity, LABEL_STACK, Lane, ObjectId, Owner, Resource, Seen, Step, Target, Wanted,
    World,
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
    let objects = desired.iter().filter_map(|resource| match &resource.identity {
        Identity::Object(object) => Some(object),
        Identity::Cluster(_) | Identity::NodePool { .. } | Identity::Check(_) => None,
    });
    Wanted {
        cluster: target.gke.clone(),
        collections: objects.map(|object| (object.gvk.clone(), object.namespace.clone())).collect(),
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

struct Maker<'a> {
    inputs: &'a Inputs<'a>,
    changes: Vec<Change>,
    problems: Vec<Diagnostic>,
    notes: Vec<Note>,
    /// Whether the GKE cluster is made or made anew, so that nothing inside is live afterwards.
    renewed: bool,
}

impl Maker<'_> {
    /// What cannot be read cannot be planned: it must never look empty.
    fn readable(&mut self) {
        let world = self.inputs.world;
        let mut refuse = |what: &str, why: &str| {
            let problem = Diagnostic::error(Code::Unreadable, format!("{what} cannot be read: {why}"));
            let help =
                "nothing is planned against what cannot be seen; `--offline` plans against an empty world";
            self.problems.push(problem.about(Address::new("cluster"), "").help(help));
        };
        if let Seen::Unreadable(why) = &world.cluster {
            refuse("the GKE cluster", why);
        } else if let Seen::Unreadable(why) = &world.inside {
            refuse("the Kubernetes cluster", why);
        }
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
        let Some(live) = self.live(&resource.identity).cloned() else {
            self.renewed |= matches!(resource.identity, Identity::Cluster(_));
            self.push(resource, Action::Create, Vec::new(), None, None);
            return;
        };
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
                if !self.ours_in_kubernetes(resource, &live) {
                    return;
                }
                let schema = kinds::object_schema(&resource.identity);
                let manager = self.inputs.owner.field_manager();
                diff::compare(&resource.body, &live, &manager, schema.as_ref(), effect)
            }
            Compare::Action => return,
        };
        let fingerprint = Some(fingerprint(&live, &compared.seen));
        let (action, reason) = self.action(resource, &live, &compared.changes);
        if action == Action::Replace {
            self.renewed |= matches!(resource.identity, Identity::Cluster(_));
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
            let span = self.inputs.sources.span(resource.origin_of(&change.path));
            let help = format!("if it is meant, make it anew: --replace {}", resource.address);
            self.problems
                .push(Diagnostic::error(Code::UnknownEffect, what).at(span, "wanted here").help(help));
        }
        if changes.iter().any(|change| change.effect == Effect::Replace) {
            (Action::Replace, None)
        } else if changes.is_empty() {
            (Action::Keep, None)
        } else {
            (Action::Update, None)
        }
    }

    /// A pool whose creation failed stays behind and never becomes whole; one that could not grow may yet.
    fn trouble(&mut self, resource: &Resource, live: &Value) -> Option<String> {
        if !matches!(resource.identity, Identity::NodePool { .. }) {
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

    fn protected(&mut self, resource: &Resource, verb: &str) {
        if resource.protect {
            let what = format!("{} is protected and the plan would {verb} it", resource.address);
            let span = self.inputs.sources.span(&resource.origin.key("protect"));
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
    fn ours_in_kubernetes(&mut self, resource: &Resource, live: &Value) -> bool {
        let manager = self.inputs.owner.field_manager();
        let known = diff::applied_by(live, &manager) || !diff::other_stacks(live, &manager).is_empty();
        if !known {
            let makers = live["metadata"]["managedFields"].as_array();
            let maker = makers.and_then(|list| list.first()).and_then(|entry| entry["manager"].as_str());
            let who = maker.map_or(String::new(), |maker| format!(": its field manager is `{maker}`"));
            self.not_ours(resource, &who);
        }
        known
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
        let origin = first.map_or(&resource.origin, |field| resource.origin_of(&field.path)).clone();
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
                let disturbs = matches!(change.action, Action::Create | Action::Replace);
                let hardware = matches!(change.kind.as_str(), "node_pool" | "gpu_driver");
                disturbs && hardware && resource.follows.iter().any(|address| names(address, change))
            });
            let reason = match (passed, renewed) {
                (_, Some(change)) if passed.is_some() => Some(format!("{} is made anew", change.address)),
                (Some(passed), None) if *passed == digest => None,
                (Some(_), None) => Some("what it runs changed since it passed".to_owned()),
                _ => Some("no pass is recorded".to_owned()),
            };
            let action = if reason.is_some() { Action::Run } else { Action::Keep };
            self.push(resource, action, Vec::new(), reason, None);
        }
    }

    /// Live things of ours that the file no longer asks for. A GKE cluster is never among them.
    fn no_longer_wanted(&mut self) {
        if self.renewed {
            return;
        }
        let wanted: Vec<Identity> =
            self.inputs.desired.iter().map(|resource| resource.identity.clone()).collect();
        for (identity, live, address, kind) in self.owned() {
            if !wanted.contains(&identity) && !matches!(identity, Identity::Cluster(_)) {
                self.delete(identity, &live, address, kind, Some("no longer in the stack file"), false);
            }
        }
    }

    fn destroy(&mut self) {
        for (identity, live, address, kind) in self.owned() {
            if let Some(resource) = self.inputs.desired.iter().find(|resource| resource.identity == identity)
            {
                self.protected(resource, "delete");
            }
            self.delete(identity, &live, address, kind, None, false);
        }
        let goes = self.changes.iter().any(|change| matches!(change.identity, Identity::Cluster(_)));
        let Some(name) = self.inputs.target.gke.clone().filter(|_| goes) else { return };
        for (pool, live) in &self.inputs.world.pools {
            let identity = Identity::NodePool { cluster: name.clone(), pool: pool.clone() };
            if self.changes.iter().any(|change| change.identity == identity) {
                continue;
            }
            let address = Address::object("cluster", "NodePool", None, pool);
            let why = "others made it, and it would go with the cluster";
            self.delete(identity, live, address, kinds::node_pool::KIND.name, Some(why), true);
        }
    }

    /// Everything live that is ours, with the address it has or had.
    fn owned(&self) -> Vec<(Identity, Value, Address, &'static str)> {
        let Inputs { world, target, owner, desired, .. } = self.inputs;
        let mut owned = Vec::new();
        let mut add = |identity: Identity, live: &Value| {
            let (address, kind) = self.known_as(&identity, desired);
            owned.push((identity, live.clone(), address, kind));
        };
        if let (Some(name), Some(live)) = (&target.gke, world.cluster.live())
            && gke::is_ours(&live["resourceLabels"], owner)
        {
            add(Identity::Cluster(name.clone()), live);
        }
        for (pool, live) in &world.pools {
            let identity = |name: &crate::resource::ClusterName| Identity::NodePool {
                cluster: name.clone(),
                pool: pool.clone(),
            };
            if let Some(name) = &target.gke
                && gke::is_ours(&live["config"]["resourceLabels"], owner)
            {
                add(identity(name), live);
            }
        }
        let manager = owner.field_manager();
        for (object, live) in world.inside.live().into_iter().flatten() {
            if diff::applied_by(live, &manager) && !self.is_record(object) {
                add(Identity::Object(object.clone()), live);
            }
        }
        owned
    }

    /// The record and its namespace are not things of the stack: apply keeps them.
    fn is_record(&self, object: &ObjectId) -> bool {
        let namespace = kinds::namespace::object(crate::record::NAMESPACE);
        *object == crate::record::Record::object(&self.inputs.owner.stack) || *object == namespace
    }

    fn known_as(&self, identity: &Identity, desired: &[Resource]) -> (Address, &'static str) {
        let name = |kind: &str| kinds::find(kind).map_or(kinds::object::PLAIN.name, |kind: &Kind| kind.name);
        if let Some(resource) = desired.iter().find(|resource| &resource.identity == identity) {
            return (resource.address.clone(), name(&resource.kind));
        }
        let record = self.inputs.world.record.as_ref();
        if let Some(entry) = record.and_then(|r| r.inventory.iter().find(|entry| &entry.identity == identity))
        {
            return (entry.address.clone(), name(&entry.kind));
        }
        match identity {
            Identity::Cluster(_) => (Address::new("cluster"), kinds::cluster::KIND.name),
            Identity::NodePool { pool, .. } => (Address::of("node_pool", pool), kinds::node_pool::KIND.name),
            Identity::Check(address) => (address.clone(), kinds::check::KIND.name),
            Identity::Object(object) => kinds::known_as(object),
        }
    }

    fn delete(
        &mut self,
        identity: Identity,
        live: &Value,
        address: Address,
        kind: &'static str,
        reason: Option<&str>,
        foreign: bool,
    ) {
        let wanted = self.inputs.desired.iter().find(|resource| resource.identity == identity);
        let origin = wanted.map_or(FieldPath::keys(["stack", "name"]), |resource| resource.origin.clone());
        self.changes.push(Change {
            location: self.inputs.sources.locate(&origin).map(|location| location.to_string()),
            lane: lane(&identity),
            address,
            identity,
            kind: kind.to_owned(),
            action: Action::Delete,
            fields: Vec::new(),
            reason: reason.map(str::to_owned),
            origin,
            steps: Vec::new(),
            follows: Vec::new(),
            fingerprint: Some(fingerprint(live, &[])),
            foreign,
        });
    }

    fn steps(&mut self) {
        let inputs = self.inputs;
        let made = |change: &Change| matches!(change.action, Action::Create | Action::Replace);
        let cluster = self.changes.iter().find(|change| matches!(change.identity, Identity::Cluster(_)));
        let cluster_made = cluster.is_some_and(made);
        let cluster_goes = cluster.is_some_and(|change| change.action == Action::Delete);
        let inline = inline_pool(&inputs.desired).filter(|_| cluster_made);
        for change in &mut self.changes {
            let Some(kind) = kinds::find(&change.kind) else { continue };
            let resource = inputs.desired.iter().find(|resource| resource.identity == change.identity);
            let is_pool = matches!(change.identity, Identity::NodePool { .. });
            let is_inline = inline.is_some_and(|inline| inline.identity == change.identity);
            let wanted =
                |resource: &&Resource| is_inline || matches!(resource.identity, Identity::Cluster(_));
            let inline_pool = inline.filter(|_| resource.as_ref().is_some_and(wanted)).map(|pool| &pool.body);
            let live = inputs.world.find(&change.identity).cloned();
            let doing = Doing {
                action: change.action,
                identity: &change.identity,
                resource: resource.filter(|_| change.action != Action::Delete),
                live: live.as_ref(),
                fields: &change.fields,
                owner: &inputs.owner,
                inline_pool,
                goes_along: is_pool && cluster_goes,
            };
            change.steps = (kind.program)(&doing);
            if is_inline && change.action == Action::Create {
                change.reason = Some("made together with the cluster".into());
            }
            if is_pool && cluster_goes {
                change.reason = change.reason.take().or(Some("goes with the cluster".into()));
                change.steps = Vec::new();
            }
        }
    }

    /// Waiting for what is kept matters only to those that follow it: an apply that was killed may have left
    /// it half made.
    fn drop_idle_waits(&mut self) {
        let followed: Vec<usize> = self
            .changes
            .iter()
            .filter(|change| change.action != Action::Keep)
            .flat_map(|change| change.follows.iter().copied())
            .collect();
        for (place, change) in self.changes.iter_mut().enumerate() {
            let waits = change.steps.iter().all(|step| matches!(step, Step::Await(_)));
            if change.action == Action::Keep && waits && !followed.contains(&place) {
                change.steps.clear();
            }
        }
    }
}

/// The pool that is made with its cluster: the first without GPUs, else the first, for GKE wants one there.
pub fn inline_pool(desired: &[Resource]) -> Option<&Resource> {
    let pools: Vec<&Resource> =
        desired.iter().filter(|resource| matches!(resource.identity, Identity::NodePool { .. })).collect();
    let plain = pools.iter().find(|pool| pool.body["config"]["accelerators"].is_null());
    plain.or(pools.first()).copied()
}

fn names(address: &Address, change: &Change) -> bool {
    address == &change.address || address.as_str() == change.address.section()
}

fn lane(identity: &Identity) -> Lane {
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
fn fingerprint(live: &Value, seen: &[(FieldPath, Value)]) -> String {
    let uid = live["metadata"]["uid"].as_str().or(live["id"].as_str()).or(live["selfLink"].as_str());
    let mut hasher = blake3::Hasher::new();
    hasher.update(uid.unwrap_or_default().as_bytes());
    for (path, value) in seen {
        hasher.update(format!("\n{path}={value}").as_bytes());
    }
    hasher.finalize().to_hex().as_str()[..16].to_owned()
}
