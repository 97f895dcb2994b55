//! The cost of a plan: what its sections cost now, after the apply, when idle, and at most.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::needed_nodes::{ChangesByIdentity, NodeCounts, needed_nodes};
use crate::observe::inputs::Inputs;
use crate::{Action, Change, Mode};
use kinds::cost::Billed;
use kinds::gke::cluster::autopilot;
use kinds::gke::node_pool::{billed_node, certain_nodes, may_lose_nodes, node_bounds};
use kinds::json::is_terminating;
use kinds::scale::ReplicaOwner;
use model::address::Address;
use model::catalog;
use model::prices::{Origin, Prices, Sum};
use model::resource::{CapacityOption, CapacityOptions, Identity, Resource, Target};

/// The cost of a stack in US dollars per hour, at the list prices of its region: clusters and nodes with their boot disks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bill {
    /// The region whose prices count.
    pub region: String,
    /// The day of the prices.
    pub date: String,
    /// The prices of `--prices FILE`, so that an apply of the saved plan counts with the same ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prices: Option<Box<Prices>>,
    /// True if the live state was read, so that `before` is known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_live_known: bool,
    /// The cost of each section with a cluster or nodes. A pool with a new name counts together with the old one that goes.
    pub sections: BTreeMap<Address, SectionCost>,
}

/// The cost of a cluster or a node pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SectionCost {
    /// The cost now.
    pub before: Sum,
    /// The cost once all Pods of the stack run on the nodes that they need.
    pub after: Sum,
    /// The cost with autoscaled pools at their minimum.
    pub idle: Sum,
    /// The cost with autoscaled pools at their maximum.
    pub most: Sum,
    /// The cost that is certain when idle, where that is less than `idle`: the autoscaler does not always bring a pool to its minimum,
    /// Google Cloud takes Spot machines away, and the cheapest of several capacity options may be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certain_idle: Option<Sum>,
    /// The cost of what is there with autoscaled pools at their minimum.
    #[serde(default, skip_serializing_if = "Sum::is_zero")]
    pub live_idle: Sum,
    /// The cost of what is there with autoscaled pools at their maximum.
    #[serde(default, skip_serializing_if = "Sum::is_zero")]
    pub live_most: Sum,
    /// The cost that is certain of what is there, where that is less than `live_idle`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live_certain: Option<Sum>,
}

impl AddAssign<&Self> for SectionCost {
    fn add_assign(&mut self, other: &Self) {
        let Self { before, after, idle, most, certain_idle: _, live_idle, live_most, live_certain: _ } =
            other;
        if self.certain_idle.is_some() || other.certain_idle.is_some() {
            self.certain_idle = Some([self.least(), other.least()].into_iter().sum());
        }
        if self.live_certain.is_some() || other.live_certain.is_some() {
            self.live_certain = Some([self.live_least(), other.live_least()].into_iter().sum());
        }
        self.before += before;
        self.after += after;
        self.idle += idle;
        self.most += most;
        self.live_idle += live_idle;
        self.live_most += live_most;
    }
}

impl SectionCost {
    /// Returns the cost that is certain once the apply has ended.
    pub fn least(&self) -> &Sum {
        self.certain_idle.as_ref().unwrap_or(&self.idle)
    }

    /// Returns the cost that is certain of what is there.
    pub fn live_least(&self) -> &Sum {
        self.live_certain.as_ref().unwrap_or(&self.live_idle)
    }
}

impl Bill {
    /// Returns the origin of the prices.
    pub fn origin(&self) -> Origin {
        self.prices.as_ref().map_or(Origin::List, |prices| prices.origin())
    }

    /// The cost now; `None` if the live state was not read.
    pub fn before(&self) -> Option<Sum> {
        self.is_live_known.then(|| self.sum(|section| &section.before))
    }

    /// The cost once the apply has ended.
    pub fn after(&self) -> Sum {
        self.sum(|section| &section.after)
    }

    /// The cost when nothing runs: autoscaled pools are at their minimum.
    pub fn idle(&self) -> Sum {
        self.sum(|section| &section.idle)
    }

    /// The cost when autoscaled pools are at their maximum.
    pub fn most(&self) -> Sum {
        self.sum(|section| &section.most)
    }

    /// The cost of what is there with autoscaled pools at their minimum.
    pub fn live_idle(&self) -> Sum {
        self.sum(|section| &section.live_idle)
    }

    /// The cost of what is there with autoscaled pools at their maximum.
    pub fn live_most(&self) -> Sum {
        self.sum(|section| &section.live_most)
    }

    /// The cost of all sections together.
    pub fn total(&self) -> SectionCost {
        self.sections.values().fold(SectionCost::default(), |mut total, section| {
            total += section;
            total
        })
    }

    fn sum(&self, part: impl Fn(&SectionCost) -> &Sum) -> Sum {
        self.sections.values().map(part).sum()
    }

    /// Returns true if the stack may cost more than it does now, at the minimum or at the maximum of its pools.
    pub fn may_rise(&self) -> bool {
        // A cent is more than the sums of floats are apart.
        let rises = |after: &Sum, live: &Sum| !after.is_known() || after.usd > live.usd + 0.005 / 24.0;
        !self.is_live_known
            || rises(&self.idle(), &self.live_idle())
            || rises(&self.most(), &self.live_most())
    }

    /// The names of everything that has no price, now or later.
    pub fn unknown(&self) -> BTreeSet<String> {
        let sums = self.sections.values().flat_map(|section| [&section.after, &section.idle, &section.most]);
        sums.flat_map(|sum| sum.unknown.iter().cloned()).collect()
    }

    /// Returns true if prices of Spot machines are in a sum.
    pub fn has_spot(&self) -> bool {
        self.sections.values().any(|section| {
            let SectionCost { before, after, idle, most, live_idle, live_most, .. } = section;
            [before, after, idle, most, live_idle, live_most].iter().any(|sum| sum.spot)
        })
    }
}

/// Returns the region whose prices count: that of the cluster. `None` for stacks that go elsewhere.
pub fn region(target: &Target) -> Option<&str> {
    let location = target.gke.as_ref()?.location.as_str();
    Some(catalog::region_of(location).unwrap_or(location))
}

/// Returns true for resources that Google bills by the hour.
pub(crate) fn is_billed(identity: &Identity) -> bool {
    matches!(identity, Identity::Cluster(_) | Identity::NodePool { .. })
}

/// Returns the bill of what is there, for a stack without a plan: every section costs afterwards what it costs now. `None` where the
/// stack has neither a cluster nor node pools of its own.
pub fn live_bill(inputs: &Inputs<'_>) -> Option<Bill> {
    bill_of(inputs, &[], Left::All)
}

/// Returns the bill of a plan; `None` where the stack has neither a cluster nor node pools of its own.
pub(crate) fn bill(inputs: &Inputs<'_>, changes: &[Change]) -> Option<Bill> {
    let left = if inputs.selection.is_all() { Left::Nothing } else { Left::All };
    bill_of(inputs, changes, left)
}

fn bill_of(inputs: &Inputs<'_>, changes: &[Change], left: Left) -> Option<Bill> {
    let region = region(&inputs.target)?;
    let billing = Billing { inputs, changes: by_identity(changes), prices: inputs.prices, region };
    let billed = billing.resources(changes, left);
    if billed.is_empty() {
        return None;
    }
    let needed = needed_nodes(inputs, &billing.changes, region);
    let mut sections: BTreeMap<Address, SectionCost> = BTreeMap::new();
    for (identity, address) in billed {
        let cost = match identity {
            Identity::NodePool { .. } => billing.pool(identity, &needed),
            _ => billing.cluster(identity),
        };
        *sections.entry(address.clone()).or_default() += &cost;
    }
    Some(Bill {
        region: region.to_owned(),
        date: inputs.prices.date().to_owned(),
        prices: (!inputs.prices.is_list()).then(|| Box::new(inputs.prices.clone())),
        is_live_known: !inputs.offline,
        sections,
    })
}

fn by_identity(changes: &[Change]) -> ChangesByIdentity<'_> {
    changes.iter().map(|change| (&change.identity, change)).collect()
}

struct Billing<'b> {
    inputs: &'b Inputs<'b>,
    changes: ChangesByIdentity<'b>,
    prices: &'b Prices,
    region: &'b str,
}

/// The resources in the record that the changes do not have, and that stay.
enum Left {
    All,
    Nothing,
}

/// The state of a resource after the apply.
enum After<'b> {
    Absent,
    /// As the file has it.
    Desired(&'b Resource),
    /// As it is: nothing of it is in the plan.
    Live(&'b Value),
}

impl<'b> Billing<'b> {
    /// Clusters and pools of the stack: desired, to be deleted, or left in place by a plan of a part of the stack.
    fn resources(&self, changes: &'b [Change], left: Left) -> Vec<(&'b Identity, &'b Address)> {
        let desired = self.inputs.desired.iter().map(|resource| (&resource.identity, &resource.address));
        let changed = changes.iter().map(|change| (&change.identity, &change.address));
        let recorded = self.inputs.world.record.iter().filter(|_| matches!(left, Left::All));
        let left = recorded.flat_map(|record| &record.inventory);
        let left = left.filter(|entry| self.live(&entry.identity).is_some());
        let left = left.map(|entry| (&entry.identity, &entry.address));
        let all: BTreeMap<&Identity, &Address> =
            left.chain(changed).chain(desired).filter(|(identity, _)| is_billed(identity)).collect();
        all.into_iter().collect()
    }

    fn live(&self, identity: &Identity) -> Option<&'b Value> {
        self.inputs.world.find(identity).filter(|live| !is_terminating(live))
    }

    fn after(&self, identity: &Identity) -> After<'b> {
        let desired = || self.inputs.desired.iter().find(|resource| resource.identity == *identity);
        match self.changes.get(identity).map(|change| change.action) {
            Some(Action::Delete | Action::Forget) => After::Absent,
            Some(Action::Create | Action::Update | Action::Replace | Action::Run | Action::Keep) => {
                desired().map_or(After::Absent, After::Desired)
            }
            None => self.live(identity).map_or(After::Absent, After::Live),
        }
    }

    fn cluster(&self, identity: &Identity) -> SectionCost {
        let price = |body: &Value| {
            let mut sum = Billed::Cluster.price(self.prices, self.region);
            if autopilot::is_on(body) {
                sum += &Billed::AutopilotPods.price(self.prices, self.region);
            }
            sum
        };
        let before = self.live(identity).map(price).unwrap_or_default();
        let (body, after) = match self.after(identity) {
            After::Absent => (None, Sum::default()),
            After::Desired(resource) => (Some(&resource.body), price(&resource.body)),
            After::Live(live) => (Some(live), price(live)),
        };
        let (live_idle, live_most) = (before.clone(), with_created_pools(self.live(identity), &before));
        let most = with_created_pools(body, &after);
        let idle = after.clone();
        SectionCost { before, after, idle, most, live_idle, live_most, ..SectionCost::default() }
    }

    fn pool(&self, identity: &Identity, needed: &NodeCounts) -> SectionCost {
        let name = identity.pool().unwrap_or_default();
        let price = |body: &Value| billed_node(body).price(self.prices, self.region);
        let live = self.live(identity);
        let size = self.inputs.world.sizes.get(name).copied();
        let bounds = live.map(|live| live_bounds(live, size));
        let times = |each: Sum, nodes: Option<u32>| {
            nodes.map_or_else(|| number_unknown(name), |nodes| each.times(nodes))
        };
        let of_live = |nodes: Option<u32>| live.map(|live| times(price(live), nodes)).unwrap_or_default();
        let (live_least, live_most) = bounds.flatten().unzip();
        let live_certain = live.zip(live_least).and_then(|(live, least)| {
            let certain = self.certain_nodes(identity, live, least);
            (certain < least).then(|| price(live).times(certain))
        });
        // An autoscaled pool whose minimum is its maximum has that many nodes.
        let now = size.or(live_least.filter(|_| live_least == live_most));
        let now = SectionCost {
            before: of_live(now),
            live_idle: of_live(live_least),
            live_most: of_live(live_most),
            live_certain,
            ..SectionCost::default()
        };
        match self.after(identity) {
            After::Absent => now,
            After::Live(live) => {
                let nodes = needed.get(name).or(size);
                let nodes = live_least.zip(live_most).zip(nodes);
                let nodes = nodes.map(|((least, most), nodes)| nodes.clamp(least, most.max(least)));
                let after = nodes.map_or_else(|| now.before.clone(), |nodes| price(live).times(nodes));
                SectionCost {
                    after,
                    idle: now.live_idle.clone(),
                    certain_idle: now.live_certain.clone(),
                    most: now.live_most.clone(),
                    ..now
                }
            }
            After::Desired(resource) => {
                let (least, most) = self.desired_bounds(resource);
                // No change of a size is planned that could not be read.
                if bounds == Some(None) && least == most && !self.is_created(identity) {
                    let [after, idle, most] = [(); 3].map(|()| number_unknown(name));
                    return SectionCost { after, idle, most, ..now };
                }
                let nodes = needed.get(name).or(size.filter(|_| live.is_some())).unwrap_or(least);
                let each = price(&resource.body);
                let nodes = nodes.clamp(least, most.max(least));
                let certain = self.certain_nodes(identity, &resource.body, least);
                let cost = SectionCost {
                    after: each.clone().times(nodes),
                    idle: each.clone().times(least),
                    certain_idle: (certain < least).then(|| each.clone().times(certain)),
                    most: each.times(most),
                    ..now
                };
                match self.open_options(identity) {
                    Some(options) => self.over_options(identity, cost, options),
                    None => cost,
                }
            }
        }
    }

    /// The bounds of the nodes of a desired pool, in all zones together.
    fn desired_bounds(&self, resource: &Resource) -> (u32, u32) {
        let target = (kinds::of(resource.kind).scale_target)(resource, &self.inputs.desired);
        let number = |nodes: u64| u32::try_from(nodes).unwrap_or(u32::MAX);
        match target.map(|target| target.replica_owner) {
            Some(ReplicaOwner::File(nodes)) => (number(nodes), number(nodes)),
            Some(ReplicaOwner::Autoscaler { min, max, .. }) => (number(min), number(max)),
            Some(ReplicaOwner::Notebooks(_) | ReplicaOwner::Unmanaged) | None => (0, 0),
        }
    }

    /// The nodes that a pool certainly has once it is ready, of its least number.
    fn certain_nodes(&self, identity: &Identity, pool: &Value, least: u32) -> u32 {
        if may_lose_nodes(pool) {
            return 0;
        }
        if pool["autoscaling"]["enabled"] != true {
            return least;
        }
        let certain = certain_nodes(least.into(), self.zones(identity, pool));
        u32::try_from(certain).unwrap_or(least)
    }

    /// The number of zones of a pool; 0 if it is unknown.
    fn zones(&self, identity: &Identity, pool: &Value) -> u64 {
        let Inputs { desired, world, target, .. } = self.inputs;
        let cluster = desired.iter().find(|resource| matches!(resource.identity, Identity::Cluster(_)));
        let cluster = cluster.map(|cluster| &cluster.body);
        let bodies = [Some(pool), cluster, self.live(identity), world.cluster.live()];
        let named = |body: &Value| body["locations"].as_array().map(Vec::len).filter(|zones| *zones > 0);
        let location = target.gke.as_ref().map(|cluster| cluster.location.as_str());
        let of_zonal = || location.and_then(catalog::region_of).map(|_| 1);
        let zones = bodies.into_iter().flatten().find_map(named).or_else(of_zonal).unwrap_or_default();
        u64::try_from(zones).unwrap_or_default()
    }

    fn is_created(&self, identity: &Identity) -> bool {
        let change = self.changes.get(identity);
        change.is_some_and(|change| matches!(change.action, Action::Create | Action::Replace))
    }

    /// The options of a pool of which any may become the one that it is made by.
    fn open_options(&self, identity: &Identity) -> Option<&'b [CapacityOption]> {
        self.is_created(identity).then_some(())?;
        let mut all = self.inputs.capacity_options.iter();
        let CapacityOptions { options, .. } = all.find(|capacity| capacity.identity == *identity)?;
        Some(options)
    }

    /// Raises the cost at the minimum and at the maximum to that of the dearest option. Spot machines cost less than those on demand,
    /// even where nobody knows how much.
    fn over_options(
        &self,
        identity: &Identity,
        mut cost: SectionCost,
        options: &[CapacityOption],
    ) -> SectionCost {
        let mut cheapest = cost.least().clone();
        for option in options {
            let (least, most) = node_bounds(&option.body).unwrap_or_default();
            let node = billed_node(&option.body);
            let each = node.price(self.prices, self.region);
            let certain = self.certain_nodes(identity, &option.body, least);
            let idle = each.clone().times(certain);
            if idle.usd < cheapest.usd {
                cheapest = idle;
            }
            let is_unknown = node.machine_price(self.prices, self.region).is_none();
            let each = match node.is_spot() && is_unknown {
                true => node.on_demand().price(self.prices, self.region),
                false => each,
            };
            cost.idle.raise_to(each.clone().times(least));
            cost.most.raise_to(each.times(most));
        }
        cost.certain_idle = (cheapest.usd < cost.idle.usd).then_some(cheapest);
        cost
    }
}

/// The cost of a cluster with that of the pools that GKE creates in it, of machines that nobody has named yet.
fn with_created_pools(cluster: Option<&Value>, cost: &Sum) -> Sum {
    let mut most = cost.clone();
    if cluster.is_some_and(|cluster| cluster["autoscaling"]["enableNodeAutoprovisioning"] == true) {
        most.add(None, || "pools that GKE creates".to_owned());
    }
    most
}

/// The least and the most nodes of a live pool. Its body says how many nodes it began with, and not how many it has: without the live
/// size, only those of an autoscaled pool are known.
fn live_bounds(live: &Value, size: Option<u32>) -> Option<(u32, u32)> {
    match live["autoscaling"]["enabled"] == true {
        true => node_bounds(live),
        false => size.map(|size| (size, size)),
    }
}

/// The least and the most that all nodes of a pool cost with an option, where every price is known.
pub(crate) fn option_cost(option: &CapacityOption, inputs: &Inputs<'_>) -> Option<(f64, f64)> {
    let each = billed_node(&option.body).price(inputs.prices, region(&inputs.target)?);
    let (least, most) = node_bounds(&option.body)?;
    each.is_known().then(|| (each.usd * f64::from(least), each.usd * f64::from(most)))
}

fn number_unknown(pool: &str) -> Sum {
    let mut sum = Sum::default();
    sum.add(None, || format!("the number of nodes of {pool}"));
    sum
}

impl crate::Plan {
    /// Returns the cost of the stack; `None` where Google bills nothing of it by the hour.
    pub fn bill(&self) -> Option<&Bill> {
        self.bill.as_ref()
    }

    /// Returns true if the plan only takes away.
    pub fn is_destroy(&self) -> bool {
        self.mode == Mode::Destroy
    }
}
