//! The number of nodes per zone. The stack file counts the nodes of all zones together, but GKE takes the number per zone. So a
//! request depends on the zones that the pool has when it is sent, not on those of the file.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::Action;
use crate::planner::Planner;
use kinds::gke;
use model::address::FieldPath;
use model::diag::{Code, Diagnostic, listed};
use model::resource::{FieldChange, Identity, Resource};

/// Fields that set the number of a pool's nodes.
const SIZE_FIELDS: [&str; 3] = ["nodeCount", "locations", "autoscaling"];

/// Returns the zones of a live or desired cluster or pool; none if it sets none.
fn zones(body: &Value) -> Vec<&str> {
    body["locations"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Returns the number of nodes once a pool with the same number in each of `from` zones has `to` zones; `None` if
/// they cannot be spread evenly.
fn after_move(nodes: u64, from: usize, to: usize) -> Option<u64> {
    let (from, to) = (u64::try_from(from).ok()?, u64::try_from(to).ok()?);
    let each = nodes.checked_div(from)?;
    if from == to {
        return Some(nodes);
    }
    nodes.is_multiple_of(from).then(|| each.saturating_mul(to))
}

impl Planner<'_> {
    /// Returns the zones that this plan gives the cluster, if it changes them. Source: googleapis `cluster_service.proto`,
    /// `desired_locations`: they become those of all node pools, "and will result in nodes being added and/or removed".
    fn planned_zones(&self) -> Option<&Value> {
        let cluster = self.changes.iter().find(|change| matches!(change.identity, Identity::Cluster(_)))?;
        let at = FieldPath::keys(["locations"]);
        let updated = cluster.action == Action::Update;
        gke::compare::sent_changes(&cluster.fields)
            .filter(|_| updated)
            .find(|field| field.path == at)?
            .after
            .as_ref()
    }

    /// Returns a live pool as it is when its own change begins, with the number of nodes that it has after its zones have
    /// changed.
    pub(crate) fn with_planned_zones(&self, resource: &Resource, mut live: Value) -> Value {
        if !matches!(resource.identity, Identity::NodePool { .. }) {
            return live;
        }
        let mut moves = Vec::new();
        if let Some(of_cluster) = self.planned_zones() {
            moves.push(of_cluster.clone());
        }
        let own = &resource.body["locations"];
        if !own.is_null() {
            moves.push(own.clone());
        }
        let mut lies: Vec<String> = zones(&live).into_iter().map(str::to_owned).collect();
        if let (Some(before), false) = (live["nodeCount"].as_u64(), lies.is_empty()) {
            let mut nodes = Some(before);
            for to in &moves {
                let to: Vec<String> = to
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_str)
                    .map(str::to_owned)
                    .collect();
                nodes = nodes.and_then(|nodes| after_move(nodes, lies.len(), to.len()));
                lies = to;
            }
            // Nobody knows how many there will be, so the number has to be said.
            let unknown = if resource.body["nodeCount"] == before { Value::Null } else { before.into() };
            live["nodeCount"] = nodes.map_or(unknown, Value::from);
        }
        if let Some(of_cluster) = self.planned_zones() {
            live["locations"] = of_cluster.clone();
        }
        live
    }

    /// Adds a note to a number of nodes that differs because the zones change.
    pub(crate) fn note_move(&self, resource: &Resource, fields: &mut [FieldChange]) {
        let Identity::NodePool { pool, .. } = &resource.identity else { return };
        let Some(now) = self.observed.inputs.world.sizes.get(pool) else { return };
        let at = FieldPath::keys(["nodeCount"]);
        for field in fields.iter_mut().filter(|field| field.path == at) {
            if let Some(before) = field.before.as_ref().filter(|before| **before != json!(now)) {
                field.note = Some(format!("{now} now, {before} once the zones have changed"));
            }
        }
    }

    /// Returns the zones that a pool's nodes have when their number is set; empty if GKE chooses them.
    pub(crate) fn zones_of(&self, resource: &Resource, action: Action) -> Vec<String> {
        let world = self.observed.inputs.world;
        let live = || world.find(&resource.identity).filter(|_| !action.creates());
        let own = |body: &Value| {
            let zones: Vec<String> = zones(body).into_iter().map(str::to_owned).collect();
            (!zones.is_empty()).then_some(zones)
        };
        let of_cluster = || {
            let moved = self.planned_zones().map(|to| json!({ "locations": to }));
            moved.as_ref().and_then(own)
        };
        let found = own(&resource.body).or_else(of_cluster).or_else(|| live().and_then(own));
        let found = found.or_else(|| world.cluster.live().filter(|_| !self.cluster_is_new).and_then(own));
        found.unwrap_or_default()
    }

    /// Returns the zones of pools that are created, or whose number is set, keyed by the index of the change.
    pub(crate) fn zones_of_pools(&self) -> BTreeMap<usize, Vec<String>> {
        let mut found = BTreeMap::new();
        for (index, change) in self.changes.iter().enumerate() {
            let Some(resource) = self.observed.desired.get(&change.identity) else { continue };
            let set = match (&change.identity, change.action) {
                (Identity::NodePool { .. }, Action::Create | Action::Replace) => true,
                (Identity::NodePool { .. }, Action::Update) => gke::compare::sent_changes(&change.fields)
                    .any(|field| {
                        SIZE_FIELDS.iter().any(|name| FieldPath::keys([*name]).contains(&field.path))
                    }),
                _ => false,
            };
            if set {
                found.insert(index, self.zones_of(resource, change.action));
            }
        }
        found
    }

    /// Returns an error for each number of nodes that cannot be divided by its zones.
    pub(crate) fn uneven_zone_counts(&self, zones: &BTreeMap<usize, Vec<String>>) -> Vec<Diagnostic> {
        // Said already, of the zones of others.
        let said = self.problems.iter().any(|problem| problem.code == Code::OthersZones);
        let desired = |index: usize| self.observed.desired.get(&self.changes[index].identity);
        let problem = |(index, zones): (&usize, &Vec<String>)| self.uneven_zones(desired(*index)?, zones);
        zones.iter().filter(|_| !said).filter_map(problem).collect()
    }

    /// Returns the current zones of a live pool's nodes.
    pub(crate) fn live_zones(&self, resource: &Resource) -> Vec<String> {
        let live = self.observed.inputs.world.find(&resource.identity);
        live.map(zones).unwrap_or_default().into_iter().map(str::to_owned).collect()
    }

    /// Returns the error for a number of nodes that the zones do not divide.
    pub(crate) fn uneven_zones(&self, resource: &Resource, zones: &[String]) -> Option<Diagnostic> {
        let nodes = resource.body["nodeCount"].as_u64()?;
        let number = u64::try_from(zones.len()).ok().filter(|number| *number > 0)?;
        if nodes.is_multiple_of(number) {
            return None;
        }
        let noun = if nodes == 1 { "node" } else { "nodes" };
        let what = format!(
            "{}: {nodes} {noun} cannot be spread over its {number} zones, {}",
            resource.address,
            listed(zones.iter().map(String::as_str), "and")
        );
        let origin = resource.origin_of(&FieldPath::keys(["nodeCount"]));
        let below = nodes - nodes % number;
        let neighbours = match below {
            0 => format!("at least {number} nodes are needed"),
            below => format!("use {below} or {} nodes", below + number),
        };
        let help = format!("{neighbours}, or set the pool's own `zones`");
        let problem = Diagnostic::error(Code::NodesNotDivisible, what).at_value(origin, "all zones together");
        Some(problem.about(resource.address.clone(), "").help(help))
    }

    /// Returns true if excess nodes come from an upgrade that GKE is doing. A surge adds a few beside the pool's own, a
    /// blue-green one as many again. Returns false if the file's number has changed since it was last set. Source: googleapis
    /// `cluster_service.proto`, `UpgradeSettings`: "the number of nodes simultaneously under upgrade is maxSurge +
    /// maxUnavailable". That instance groups aim for them meanwhile is from memory.
    pub(crate) fn has_surge_nodes(&self, resource: &Resource, live: &Value, nodes: u32) -> bool {
        let Some(desired) = resource.body["nodeCount"].as_u64() else { return false };
        let record = self.observed.inputs.world.record.as_ref();
        let last = record.and_then(|record| record.last_set(&resource.identity));
        let edited = last.is_some_and(|last| last["nodeCount"] != desired);
        !edited && is_surge(live, desired, nodes)
    }
}

/// Returns true if a pool has additional nodes because it is being upgraded.
pub(crate) fn is_surge(live: &Value, desired: u64, nodes: u32) -> bool {
    let settings = &live["upgradeSettings"];
    let more = match settings["strategy"].as_str() {
        Some("BLUE_GREEN") => desired,
        _ => settings["maxSurge"].as_u64().unwrap_or_default(),
    };
    let nodes = u64::from(nodes);
    live["status"] == "RECONCILING" && nodes > desired && nodes <= desired.saturating_add(more)
}
