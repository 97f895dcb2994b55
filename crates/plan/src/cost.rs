//! The cost of a plan: what its sections cost now, after the apply, when idle, and at most.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::needed_nodes::{ChangesByIdentity, NodeCounts, needed_nodes};
use crate::observe::inputs::Inputs;
use crate::{Action, Change, Mode};
use kinds::cost::Billed;
use kinds::gke::cluster::autopilot;
use kinds::gke::node_pool::{billed_node, node_bounds};
use kinds::json::is_terminating;
use kinds::scale::ReplicaOwner;
use model::address::Address;
use model::catalog;
use model::prices::{Prices, Sum};
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
    /// The cost of each section with a cluster or nodes.
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
}

impl Bill {
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

    fn sum(&self, part: impl Fn(&SectionCost) -> &Sum) -> Sum {
        self.sections.values().map(part).sum()
    }

    /// The names of everything that has no price, now or later.
    pub fn unknown(&self) -> BTreeSet<String> {
        let sums = self.sections.values().flat_map(|section| [&section.after, &section.idle, &section.most]);
        sums.flat_map(|sum| sum.unknown.iter().cloned()).collect()
    }

    /// Returns true if prices of Spot machines are in a sum.
    pub fn has_spot(&self) -> bool {
        let sums =
            self.sections.values().flat_map(|section| [&section.before, &section.after, &section.most]);
        sums.into_iter().any(|sum| sum.spot)
    }
}

/// Returns the region whose prices count: that of the cluster. `None` for stacks that go elsewhere.
pub fn region(target: &Target) -> Option<&str> {
    let location = target.gke.as_ref()?.location.as_str();
    Some(catalog::region_of(location).unwrap_or(location))
}

/// Returns the bill of a plan; `None` where the stack has neither a cluster nor node pools of its own.
pub(crate) fn bill(inputs: &Inputs<'_>, changes: &[Change]) -> Option<Bill> {
    let region = region(&inputs.target)?;
    let billing = Billing { inputs, changes: by_identity(changes), prices: inputs.prices, region };
    let billed = billing.resources(changes);
    if billed.is_empty() {
        return None;
    }
    let needed = needed_nodes(inputs, &billing.changes, region);
    let sections = billed.into_iter().map(|(identity, address)| {
        let cost = match identity {
            Identity::NodePool { .. } => billing.pool(identity, &needed),
            _ => billing.cluster(identity),
        };
        (address.clone(), cost)
    });
    Some(Bill {
        region: region.to_owned(),
        date: inputs.prices.date().to_owned(),
        prices: (!inputs.prices.is_list()).then(|| Box::new(inputs.prices.clone())),
        is_live_known: !inputs.offline,
        sections: sections.collect(),
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

/// The state of a resource after the apply.
enum After<'b> {
    Absent,
    /// As the file has it.
    Desired(&'b Resource),
    /// As it is: nothing of it is in the plan.
    Live(&'b Value),
}

impl<'b> Billing<'b> {
    /// Clusters and pools of the stack, desired or to be deleted.
    fn resources(&self, changes: &'b [Change]) -> Vec<(&'b Identity, &'b Address)> {
        let is_billed =
            |identity: &Identity| matches!(identity, Identity::Cluster(_) | Identity::NodePool { .. });
        let desired = self.inputs.desired.iter().map(|resource| (&resource.identity, &resource.address));
        let changed = changes.iter().map(|change| (&change.identity, &change.address));
        let all: BTreeMap<&Identity, &Address> =
            changed.chain(desired).filter(|(identity, _)| is_billed(identity)).collect();
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
        let mut most = after.clone();
        // GKE makes pools of machines that nobody has named yet.
        if body.is_some_and(|body| body["autoscaling"]["enableNodeAutoprovisioning"] == true) {
            most.add(None, || "pools that GKE creates".to_owned());
        }
        SectionCost { before, idle: after.clone(), after, most }
    }

    fn pool(&self, identity: &Identity, needed: &NodeCounts) -> SectionCost {
        let name = identity.pool().unwrap_or_default();
        let price = |body: &Value| billed_node(body).price(self.prices, self.region);
        let live = self.live(identity);
        let size = self.inputs.world.sizes.get(name).copied();
        let before = live.map(|live| match size.or_else(|| fixed_size(live)) {
            Some(nodes) => price(live).times(nodes),
            None => number_unknown(name),
        });
        let before = before.unwrap_or_default();
        match self.after(identity) {
            After::Absent => SectionCost { before, ..SectionCost::default() },
            After::Live(live) => {
                let (least, most) = live_bounds(live, size).unwrap_or_default();
                let nodes = needed.get(name).or(size).map(|nodes| nodes.clamp(least, most.max(least)));
                let after = nodes.map_or_else(|| before.clone(), |nodes| price(live).times(nodes));
                SectionCost { before, after, idle: price(live).times(least), most: price(live).times(most) }
            }
            After::Desired(resource) => {
                let (least, most) = self.desired_bounds(resource);
                let nodes = needed.get(name).or(size.filter(|_| live.is_some())).unwrap_or(least);
                let each = price(&resource.body);
                let nodes = nodes.clamp(least, most.max(least));
                let cost = SectionCost {
                    before,
                    after: each.clone().times(nodes),
                    idle: each.clone().times(least),
                    most: each.times(most),
                };
                match self.open_options(identity) {
                    Some(options) => self.over_options(cost, options),
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

    /// The options of a pool of which any may become the one that it is made by.
    fn open_options(&self, identity: &Identity) -> Option<&'b [CapacityOption]> {
        let change = self.changes.get(identity)?;
        matches!(change.action, Action::Create | Action::Replace).then_some(())?;
        let mut all = self.inputs.capacity_options.iter();
        let CapacityOptions { options, .. } = all.find(|capacity| capacity.identity == *identity)?;
        Some(options)
    }

    /// Widens the cost at the minimum and at the maximum to that of every option. Spot machines cost less than those on demand,
    /// even where nobody knows how much.
    fn over_options(&self, mut cost: SectionCost, options: &[CapacityOption]) -> SectionCost {
        for option in options {
            let (node, (least, most)) =
                (billed_node(&option.body), node_bounds(&option.body).unwrap_or_default());
            let each = node.price(self.prices, self.region);
            let (idle, most) = match node.is_spot() && !each.is_known() {
                true => (Sum::default(), node.on_demand().price(self.prices, self.region).times(most)),
                false => (each.clone().times(least), each.times(most)),
            };
            if idle.is_known() && idle.usd < cost.idle.usd {
                cost.idle = idle;
            }
            match most.is_known() {
                true if most.usd > cost.most.usd => cost.most.usd = most.usd,
                true => cost.most.spot |= most.spot,
                false => cost.most.unknown.extend(most.unknown),
            }
        }
        cost
    }
}

/// The least and the most nodes of a live pool. Its body says how many nodes it began with, and not how many it has.
fn live_bounds(live: &Value, size: Option<u32>) -> Option<(u32, u32)> {
    match (live["autoscaling"]["enabled"] == true, size) {
        (false, Some(size)) => Some((size, size)),
        (_, _) => node_bounds(live),
    }
}

/// The number of nodes of a pool that is not autoscaled, as its body says; a live one says it by zone.
fn fixed_size(pool: &Value) -> Option<u32> {
    node_bounds(pool).filter(|(least, most)| least == most).map(|(least, _)| least)
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
