//! The usual time until the images of new Pods are on their nodes, which is most of the time of a section with Pods.
//!
//! A node pulls an image that it does not have: a new node has none, and no node has one that no Pod of the stack on its pool runs with.
//! Where Pods fill more nodes than there are, the time of a new node comes before.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::observe::inputs::Inputs;
use crate::{Action, Barrier, Change, Mode};
use fit::PodRequirements;
use fixedbitset::FixedBitSet;
use kinds::gke::cluster::autopilot;
use kinds::gke::node_pool::{initial_nodes, inline_pool, new_node, node_bounds};
use kinds::gke::placement::{Near, PodTemplate, Pools, all_pod_templates};
use kinds::image_pull::{ImagePull, ImageSource};
use kinds::kubernetes::manifest::pod_specs;
use model::address::FieldPath;
use model::resource::{self, ClusterName, DurationEstimate, Effect, Identity, KindId, Recreation, Resource};

/// Adds the time of nodes and images to changes that start Pods on GKE. Returns the images whose size is not known.
pub(crate) fn add_times(changes: &mut [Change], barriers: &[Barrier], inputs: &Inputs<'_>) -> Vec<String> {
    // The record has how long it took last time, with the pulls.
    let starts = |change: &Change| change.estimate.is_none() && starts_pods(change.action);
    let Some(name) = inputs.target.gke.as_ref().filter(|_| inputs.mode == Mode::Apply) else {
        return Vec::new();
    };
    if !changes.iter().any(starts) {
        return Vec::new();
    }
    let desired = resource::by_identity(&inputs.desired);
    let templates_of = |change: &Change| -> Vec<PodTemplate<'_>> {
        let resource = desired.get(&change.identity).copied().filter(|_| starts(change));
        let mut templates = resource.map(all_pod_templates).unwrap_or_default();
        // Pods in a queue start when the queue lets them.
        templates.retain(|pod| pod.is_work() && pod.queue.is_none());
        templates
    };
    let mut pods: Vec<(usize, Vec<PodTemplate<'_>>)> =
        changes.iter().enumerate().map(|(index, change)| (index, templates_of(change))).collect();
    pods.retain(|(_, templates)| !templates.is_empty());
    if pods.is_empty() {
        return Vec::new();
    }
    let with_pods: Vec<usize> = pods.iter().map(|(index, _)| *index).collect();
    let order = Order::of(changes, barriers, &with_pods);
    pods.sort_by_key(|(index, _)| order.place(*index));
    let numbers = with_pods.iter().enumerate().map(|(number, index)| (&changes[*index].identity, number));
    let live = LivePods::of(inputs, &numbers.collect());
    let mut pulls = Pulls::of(changes, inputs, name, &live);
    let mut times = Vec::new();
    for (index, templates) in pods {
        let (action, when) = (changes[index].action, order.when(index));
        let all = templates.iter().filter_map(|pod| pulls.time(pod, action, when));
        let longest = all.reduce(|one, other| DurationEstimate {
            least: one.least.max(other.least),
            most: one.most.max(other.most),
        });
        times.push((index, longest.filter(|time| time.most > 0)));
    }
    let unknown = pulls.unknown.into_iter().map(str::to_owned).collect();
    for (index, time) in times {
        changes[index].estimate = time;
    }
    unknown
}

/// Kinds of Pods on a pool beyond this many are taken to have room: a plan must not take long for an estimate.
const MAX_KINDS: usize = 256;

/// The order of changes, and which of those with Pods each waits for.
struct Order {
    /// The number of changes that come before each.
    places: Vec<usize>,
    /// The changes with Pods that are done before each, by their numbers.
    done: Vec<FixedBitSet>,
    /// The number of a change among those with Pods.
    own: Vec<Option<usize>>,
}

/// A moment of an apply: a change begins.
#[derive(Clone, Copy, Debug)]
struct When<'o> {
    /// The number of the change; `None` if it has no Pods.
    own: Option<usize>,
    /// The changes with Pods that are done.
    done: &'o FixedBitSet,
}

impl When<'_> {
    fn has_begun(self, change: usize) -> bool {
        self.own == Some(change) || self.done.contains(change)
    }
}

impl Order {
    /// Returns the order of changes, of which those in `with_pods` have Pods.
    fn of(changes: &[Change], barriers: &[Barrier], with_pods: &[usize]) -> Self {
        let count = changes.len() + barriers.len();
        let before = |index: usize| match index.checked_sub(changes.len()) {
            Some(barrier) => &barriers[barrier].depends_on,
            None => &changes[index].depends_on,
        };
        let none = FixedBitSet::with_capacity(with_pods.len());
        let mut order = Self { places: vec![0; count], done: vec![none; count], own: vec![None; count] };
        for (number, index) in with_pods.iter().enumerate() {
            order.own[*index] = Some(number);
        }
        let (mut seen, mut place) = (vec![false; count], 0);
        let mut open: Vec<(usize, bool)> = (0..count).rev().map(|index| (index, false)).collect();
        while let Some((index, is_left)) = open.pop() {
            if is_left {
                order.places[index] = place;
                place += 1;
                let mut done = std::mem::take(&mut order.done[index]);
                for before in before(index) {
                    done.union_with(&order.done[*before]);
                    done.extend(order.own[*before]);
                }
                order.done[index] = done;
            } else if !std::mem::replace(&mut seen[index], true) {
                open.push((index, true));
                open.extend(before(index).iter().rev().map(|before| (*before, false)));
            }
        }
        order
    }

    fn place(&self, index: usize) -> usize {
        self.places[index]
    }

    fn when(&self, index: usize) -> When<'_> {
        When { own: self.own[index], done: &self.done[index] }
    }
}

fn starts_pods(action: Action) -> bool {
    matches!(action, Action::Create | Action::Replace | Action::Run | Action::Update)
}

/// Returns true if Pods are there after their change. Those of checks, and of jobs and Dask jobs that apply waits for, have ended.
fn stays(resource: &Resource) -> bool {
    let is_waited_for = matches!(resource.recreation, Recreation::Once { timeout: Some(_) });
    resource.kind != KindId::Check && !is_waited_for
}

/// The live objects of the stack that have Pods.
struct LivePods {
    /// Each has the live body, and the number of the change that starts other Pods in place of its Pods.
    objects: Vec<(Resource, Option<usize>)>,
}

impl LivePods {
    /// `numbers` has the changes with Pods. Those of an object that is there start in place of its Pods.
    fn of(inputs: &Inputs<'_>, numbers: &BTreeMap<&Identity, usize>) -> Self {
        let live = inputs.desired.iter().filter(|resource| resource.identity.object().is_some());
        let live = live.filter_map(|resource| {
            let body = inputs.world.find(&resource.identity)?;
            let mut specs = Vec::new();
            pod_specs(body, &FieldPath::root(), &mut specs);
            let body = (!specs.is_empty()).then(|| body.clone())?;
            Some((Resource { body, ..resource.clone() }, numbers.get(&resource.identity).copied()))
        });
        Self { objects: live.collect() }
    }
}

/// Returns true if the Pods of a live object that runs to completion have ended.
fn has_ended(live: &Value) -> bool {
    let mut conditions = live["status"]["conditions"].as_array().into_iter().flatten();
    let ends = |condition: &Value| {
        condition["status"] == "True" && (condition["type"] == "Complete" || condition["type"] == "Failed")
    };
    let has_condition = conditions.any(ends);
    // Of a DaskJob.
    has_condition || ["Successful", "Failed"].iter().any(|state| live["status"]["jobStatus"] == *state)
}

/// The nodes of a plan and the images that they have.
struct Pulls<'a> {
    /// `None` where GKE makes the nodes, or where the stack has no pools.
    pools: Option<Pools<'a>>,
    /// Settings of nodes that no pool of the stack describes.
    elsewhere: Nodes<'a>,
    /// The pools of the stack by name.
    nodes: BTreeMap<&'a str, Nodes<'a>>,
    /// The Pods on a pool, and those with an image.
    placed: BTreeMap<Place<'a>, Placed>,
    unknown: BTreeSet<&'a str>,
}

/// A pool, and an image on its nodes.
type Place<'a> = (Option<&'a str>, Option<&'a str>);

/// Pods on nodes of a pool.
#[derive(Debug, Default)]
struct Placed {
    /// The number of nodes with live Pods that stay.
    live_nodes: u64,
    /// Live Pods, with the number of the change that starts others in their place.
    live: BTreeMap<(Option<usize>, PodRequirements), u64>,
    /// Pods that changes start, by the number of the change.
    started: BTreeMap<usize, Started>,
}

#[derive(Debug, Default)]
struct Started {
    pods: Vec<(PodRequirements, u64)>,
    /// False if they have ended once the change is done.
    stay: bool,
    /// The nodes that these and the ones before fill.
    nodes: u64,
}

impl Placed {
    fn add_live(&mut self, pods: (PodRequirements, u64), replaced_by: Option<usize>) {
        let (pod, count) = pods;
        if self.live.len() < MAX_KINDS {
            *self.live.entry((replaced_by, pod)).or_default() += count;
        }
    }

    /// Returns true if Pods need more nodes than there are when their change begins, and adds them. `there` nodes are there before the
    /// first change; `count` returns how many all Pods fill.
    fn needs_more(
        &mut self,
        there: u64,
        (pods, stay): (&(PodRequirements, u64), bool),
        when: When<'_>,
        count: impl Fn(&[(PodRequirements, u64)]) -> u64,
    ) -> bool {
        let mut all: BTreeMap<&PodRequirements, u64> = BTreeMap::new();
        let mut add = |pod, count| {
            if all.len() < MAX_KINDS {
                *all.entry(pod).or_default() += count;
            }
        };
        add(&pods.0, pods.1);
        let own = when.own.and_then(|own| self.started.get(&own));
        let earlier: Vec<&Started> =
            when.done.ones().filter_map(|change| self.started.get(&change)).collect();
        let stayed = earlier.iter().copied().filter(|earlier| earlier.stay);
        for (pod, count) in own.into_iter().chain(stayed).flat_map(|started| &started.pods) {
            add(pod, *count);
        }
        for ((replaced_by, pod), count) in &self.live {
            if replaced_by.is_none_or(|change| !when.has_begun(change)) {
                add(pod, *count);
            }
        }
        let all: Vec<(PodRequirements, u64)> =
            all.into_iter().map(|(pod, count)| (pod.clone(), count)).collect();
        let nodes = count(&all);
        let there = earlier.iter().map(|earlier| earlier.nodes).max().unwrap_or_default().max(there);
        if let Some(own) = when.own {
            let started = self.started.entry(own).or_default();
            started.pods.push(pods.clone());
            (started.stay, started.nodes) = (stay, started.nodes.max(nodes));
        }
        nodes > there
    }
}

/// The nodes of a pool when Pods come to it.
#[derive(Clone, Copy, Debug)]
struct Nodes<'a> {
    source: ImageSource<'a>,
    /// The number of nodes that are there without a Pod that asks for them.
    there: u64,
    /// True if `there` is the live number, or that of a new pool; false if it is the least that there can be.
    is_counted: bool,
    /// True if live nodes stay, with the images of their Pods.
    keeps_images: bool,
    /// True if Pods come to nodes of their own.
    are_for_each: bool,
    /// The largest number of nodes.
    most: u64,
    /// The usual time of a node; `None` if machines are waited for.
    new_node: Option<DurationEstimate>,
}

impl<'a> Pulls<'a> {
    fn of(changes: &[Change], inputs: &'a Inputs<'_>, name: &'a ClusterName, live: &'a LivePods) -> Self {
        let makes: BTreeSet<&Identity> =
            changes.iter().filter(|change| change.action.creates()).map(|change| &change.identity).collect();
        let external = inputs.external.iter().map(|external| &external.resource);
        let cluster = inputs.desired.iter().chain(external);
        let cluster = cluster.into_iter().find(|resource| matches!(resource.identity, Identity::Cluster(_)));
        let body = cluster.map_or(&Value::Null, |cluster| &cluster.body);
        let is_new = cluster.is_some_and(|cluster| makes.contains(&cluster.identity));
        // GKE recreates the nodes of a pool for some changes.
        let rolls: BTreeSet<&Identity> = changes
            .iter()
            .filter(|change| change.fields.iter().any(|field| field.effect == Effect::Rolling))
            .map(|change| &change.identity)
            .collect();
        let on_autopilot = autopilot::is_on(body);
        let inline = inline_pool(&inputs.desired, &inputs.capacity_options).filter(|_| is_new);
        let nodes = |pool: &Resource| {
            let size = pool.identity.pool().and_then(|name| inputs.world.sizes.get(name)).copied();
            let is_made = is_new || makes.contains(&pool.identity);
            // A cluster is created with a node of its first pool.
            let is_inline = inline.is_some_and(|inline| inline.identity == pool.identity);
            let bounds = node_bounds(&pool.body);
            let there = match is_made {
                true => initial_nodes(&pool.body).max(u64::from(is_inline)),
                false => size.unwrap_or_else(|| bounds.map_or(0, |(least, _)| least)).into(),
            };
            Nodes {
                source: ImageSource::of(&pool.body, body, name),
                there,
                is_counted: is_made || size.is_some(),
                keeps_images: !is_made && !rolls.contains(&pool.identity),
                are_for_each: false,
                most: bounds.map_or(u64::MAX, |(_, most)| most.into()),
                new_node: new_node(&pool.body),
            }
        };
        let named = |pool: &'a Resource| Some((pool.identity.pool()?, nodes(pool)));
        let source = ImageSource::of(&Value::Null, body, name);
        let mut pulls = Self {
            pools: Pools::of(&inputs.desired, &inputs.external, &inputs.capacity_options),
            // Autopilot makes nodes for Pods, and streams images. Source: GKE, "Use Image streaming to pull container images".
            elsewhere: Nodes {
                source: ImageSource { streams: on_autopilot || source.streams, ..source },
                there: 1,
                is_counted: true,
                keeps_images: !is_new,
                are_for_each: on_autopilot,
                most: 1,
                new_node: Some(DurationEstimate::default()),
            },
            nodes: inputs.desired.iter().filter_map(named).collect(),
            placed: BTreeMap::new(),
            unknown: BTreeSet::new(),
        };
        pulls.add_live(live);
        pulls
    }

    /// Puts the live Pods on their pools, and their images on the nodes that have them.
    fn add_live(&mut self, live: &'a LivePods) {
        let mut with_image: BTreeMap<Place<'a>, Vec<(PodRequirements, u64)>> = BTreeMap::new();
        for (resource, replaced_by) in &live.objects {
            for pod in all_pod_templates(resource).iter().filter(|pod| !pod.on_each_node) {
                let name = self.pool_of(pod);
                let own = alone(pod);
                let keeps_images = self.nodes_of(name).keeps_images;
                let images = pod.images().map(|(_, image)| Some(image));
                let ended = has_ended(&resource.body);
                for image in std::iter::once(None).chain(images) {
                    let placed = self.placed.entry((name, image)).or_default();
                    if !ended {
                        placed.add_live(own.clone(), *replaced_by);
                    }
                    if keeps_images {
                        with_image.entry((name, image)).or_default().push(own.clone());
                    }
                }
            }
        }
        for (place, pods) in with_image {
            let there = self.count(place.0, &pods);
            self.placed.entry(place).or_default().live_nodes = there;
        }
    }

    /// Returns the name of the pool on which Pods start; `None` for nodes that no pool of the stack describes.
    fn pool_of(&self, pod: &PodTemplate<'_>) -> Option<&'a str> {
        let pool = self.pools.as_ref()?.first_taker(&pod.requirements)?;
        pool.resource.identity.pool()
    }

    fn nodes_of(&self, name: Option<&str>) -> Nodes<'a> {
        name.and_then(|name| self.nodes.get(name)).copied().unwrap_or(self.elsewhere)
    }

    /// Returns how many nodes of a pool Pods fill.
    fn count(&self, name: Option<&str>, pods: &[(PodRequirements, u64)]) -> u64 {
        let pools = self.pools.as_ref();
        match pools.zip(pools.zip(name).and_then(|(pools, name)| pools.pool(name))) {
            Some((pools, pool)) => pools.pack(pool, pods, None, Near::Fits).nodes.max(1),
            None => 1,
        }
    }

    /// Returns the time until the Pods of a template have a node with their images. `None` if it may take days.
    fn time(&mut self, pod: &PodTemplate<'a>, action: Action, when: When<'_>) -> Option<DurationEstimate> {
        let name = self.pool_of(pod);
        let nodes = self.nodes_of(name);
        let stays = stays(pod.resource);
        let own = alone(pod);
        let mut placed = std::mem::take(&mut self.placed);
        let mut needs_more = |image: Option<&'a str>| {
            let placed = placed.entry((name, image)).or_default();
            // Pods of an update start where the ones before were.
            let there = match image {
                None if nodes.is_counted => nodes.there,
                None => nodes.there.max(placed.live_nodes),
                Some(_) if nodes.are_for_each && action != Action::Update => 0,
                Some(_) if nodes.is_counted => placed.live_nodes.min(nodes.there),
                Some(_) => placed.live_nodes,
            };
            let count = |pods: &[(PodRequirements, u64)]| self.count(name, pods).min(nodes.most);
            placed.needs_more(there, (&own, stays), when, count)
        };
        let waits = needs_more(None);
        let mut pulled = Vec::new();
        for (_, image) in pod.images() {
            if nodes.source.pulls(image) && needs_more(Some(image)) {
                pulled.push(image);
            }
        }
        self.placed = placed;
        let new_node = if waits { nodes.new_node? } else { DurationEstimate::default() };
        let pull = ImagePull::of(pulled);
        self.unknown.extend(pull.unknown);
        Some(new_node + pull.known)
    }
}

/// Returns the requirements and the number of the Pods of a template, without what depends on other Pods.
fn alone(pod: &PodTemplate<'_>) -> (PodRequirements, u64) {
    let mut own = pod.requirements.clone();
    own.spread.clear();
    (own, pod.count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::address::Address;

    /// Returns true for each change of one Pod, which fills a node, that needs another node.
    fn needs(depends_on: &[&[usize]], stay: &[bool]) -> Vec<bool> {
        let change = |depends_on: &&[usize]| {
            let address = Address::new("x");
            let identity = Identity::Check(address.clone());
            let change = Change::new(address, identity, KindId::Check, Action::Run);
            Change { depends_on: depends_on.to_vec(), ..change }
        };
        let changes: Vec<Change> = depends_on.iter().map(change).collect();
        // An index past the changes is a barrier, which is passed after the first one.
        let mut indices: Vec<usize> = (0..changes.len()).collect();
        let order = Order::of(&changes, &[Barrier { depends_on: vec![0] }], &indices);
        indices.sort_by_key(|index| order.place(*index));
        let (mut placed, mut needs) = (Placed::default(), vec![false; changes.len()]);
        for index in indices {
            let count = |pods: &[(PodRequirements, u64)]| pods.iter().map(|(_, count)| count).sum();
            let pods = (PodRequirements::default(), 1);
            needs[index] = placed.needs_more(0, (&pods, stay[index]), order.when(index), count);
        }
        needs
    }

    #[test]
    fn pods_that_end_leave_their_node_to_those_that_wait_for_them() {
        assert_eq!(needs(&[&[], &[0], &[1]], &[false, true, true]), [true, false, true]);
        // What runs beside it has its own.
        assert_eq!(needs(&[&[], &[], &[0, 1]], &[false, false, true]), [true, true, false]);
        // Changes stand in the order in which they are shown, and wait through barriers, too.
        assert_eq!(needs(&[&[1], &[]], &[true, false]), [false, true]);
        assert_eq!(needs(&[&[], &[2]], &[false, true]), [true, false]);
        // However many there are.
        let chain: Vec<Vec<usize>> =
            (0..130_usize).map(|index| index.checked_sub(1).into_iter().collect()).collect();
        let chain: Vec<&[usize]> = chain.iter().map(Vec::as_slice).collect();
        assert_eq!(needs(&chain, &[false; 130]).iter().filter(|needs| **needs).count(), 1);
    }
}
