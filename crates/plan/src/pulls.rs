//! The usual time until the images of new Pods are on their nodes, which is most of the time of a section with Pods.
//!
//! A node pulls an image that it does not have: a new node has none, and no node has one that nothing of the stack runs with. The time of
//! a first node, where a pool has none, comes before.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::observe::inputs::Inputs;
use crate::{Action, Barrier, Change, Mode};
use fit::PodRequirements;
use kinds::gke::cluster::autopilot;
use kinds::gke::node_pool::{inline_pool, new_node, starts_empty};
use kinds::gke::placement::{Near, PodTemplate, Pools, all_pod_templates};
use kinds::image_pull::{self, ImagePull, ImageSource};
use kinds::kubernetes::manifest::pod_specs;
use model::address::FieldPath;
use model::resource::{self, ByIdentity, DurationEstimate, Identity, KindId, Resource};

/// Adds the time of nodes and images to changes that start Pods on GKE. Returns the images whose size is not known.
pub(crate) fn add_times(changes: &mut [Change], barriers: &[Barrier], inputs: &Inputs<'_>) -> Vec<String> {
    // The record has how long it took last time, with the pulls.
    let starts = |change: &Change| change.estimate.is_none() && starts_pods(change.action);
    if inputs.mode != Mode::Apply || inputs.target.gke.is_none() || !changes.iter().any(starts) {
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
    pods.truncate(MAX_CHANGES);
    let order = Order::of(changes, barriers, pods.iter().map(|(index, _)| *index));
    pods.sort_by_key(|(index, _)| order.place(*index));
    let mut pulls = Pulls::of(changes, inputs, &desired);
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

/// Changes with Pods beyond this many are taken to find their nodes and images: a plan must not take long for an estimate.
const MAX_CHANGES: usize = 64;

/// The order of changes, and which of those with Pods each waits for.
struct Order {
    /// The number of changes that come before each.
    places: Vec<usize>,
    /// The changes with Pods that are done before each, and the change itself, as a bit for each.
    done: Vec<u64>,
    /// The bit of a change with Pods.
    own: Vec<u64>,
}

/// A moment of an apply.
#[derive(Clone, Copy, Debug)]
struct When {
    own: u64,
    /// The changes with Pods that are done.
    done: u64,
}

impl Order {
    /// Returns the order of changes, of which those in `with_pods`, at most 64, have Pods.
    fn of(changes: &[Change], barriers: &[Barrier], with_pods: impl Iterator<Item = usize>) -> Self {
        let count = changes.len() + barriers.len();
        let before = |index: usize| match index.checked_sub(changes.len()) {
            Some(barrier) => &barriers[barrier].depends_on,
            None => &changes[index].depends_on,
        };
        let mut order = Self { places: vec![0; count], done: vec![0; count], own: vec![0; count] };
        for (bit, index) in with_pods.take(MAX_CHANGES).enumerate() {
            order.own[index] = 1 << bit;
        }
        let (mut seen, mut place) = (vec![false; count], 0);
        let mut open: Vec<(usize, bool)> = (0..count).rev().map(|index| (index, false)).collect();
        while let Some((index, is_left)) = open.pop() {
            if is_left {
                order.places[index] = place;
                place += 1;
                let earlier = before(index).iter().fold(0, |done, before| done | order.done[*before]);
                order.done[index] = earlier | order.own[index];
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

    fn when(&self, index: usize) -> When {
        When { own: self.own[index], done: self.done[index] & !self.own[index] }
    }
}

fn starts_pods(action: Action) -> bool {
    matches!(action, Action::Create | Action::Replace | Action::Run | Action::Update)
}

/// The nodes of a plan and the images that they have.
struct Pulls<'a> {
    /// `None` where GKE makes the nodes, or where the stack has no pools.
    pools: Option<Pools<'a>>,
    /// Settings of nodes that no pool of the stack describes.
    elsewhere: Nodes,
    /// The pools of the stack by name.
    nodes: BTreeMap<&'a str, Nodes>,
    /// Images that live Pods of the stack run with.
    live: BTreeSet<String>,
    /// The Pods of the plan on a pool, and those with an image.
    placed: BTreeMap<Place<'a>, Placed>,
    unknown: BTreeSet<&'a str>,
}

/// A pool, and an image on its nodes.
type Place<'a> = (Option<&'a str>, Option<&'a str>);

/// Pods on nodes of a pool.
#[derive(Debug, Default)]
struct Placed(Vec<PlacedPods>);

#[derive(Debug)]
struct PlacedPods {
    /// The bit of their change.
    change: u64,
    pods: (PodRequirements, u64),
    /// False if their nodes are free once the change is done.
    stay: bool,
    /// The nodes that these and the ones before fill.
    nodes: u64,
}

impl Placed {
    /// Returns true if Pods need more nodes than there are when their change begins, and adds them. `count` returns how many nodes all
    /// Pods fill.
    fn needs_more(
        &mut self,
        pods: &(PodRequirements, u64),
        stay: bool,
        when: When,
        count: impl Fn(&[(PodRequirements, u64)]) -> u64,
    ) -> bool {
        let here = self.0.iter().filter(|other| other.stay && (when.done | when.own) & other.change != 0);
        let mut all: Vec<(PodRequirements, u64)> = here.map(|other| other.pods.clone()).collect();
        all.push(pods.clone());
        let nodes = count(&all);
        let earlier = self.0.iter().filter(|other| when.done & other.change != 0);
        let there = earlier.map(|other| other.nodes).max().unwrap_or_default();
        self.0.push(PlacedPods { change: when.own, pods: pods.clone(), stay, nodes });
        nodes > there
    }
}

/// The nodes of a pool when Pods come to it.
#[derive(Clone, Copy, Debug, Default)]
struct Nodes {
    source: ImageSource,
    /// True if no node has run Pods of the stack yet.
    are_new: bool,
    /// True if the autoscaler has to add the first one.
    is_empty: bool,
    /// The usual time of a node; `None` if machines are waited for.
    new_node: Option<DurationEstimate>,
}

impl<'a> Pulls<'a> {
    fn of(changes: &[Change], inputs: &'a Inputs<'_>, desired: &ByIdentity<'a>) -> Self {
        let makes: BTreeSet<&Identity> =
            changes.iter().filter(|change| change.action.creates()).map(|change| &change.identity).collect();
        let external = inputs.external.iter().map(|external| &external.resource);
        let cluster = inputs.desired.iter().chain(external);
        let cluster = cluster.into_iter().find(|resource| matches!(resource.identity, Identity::Cluster(_)));
        let body = cluster.map_or(&Value::Null, |cluster| &cluster.body);
        let streams = body["nodePoolDefaults"]["nodeConfigDefaults"]["gcfsConfig"]["enabled"] == true;
        let is_new = cluster.is_some_and(|cluster| makes.contains(&cluster.identity));
        let on_autopilot = autopilot::is_on(body);
        let inline = inline_pool(&inputs.desired, &inputs.capacity_options).filter(|_| is_new);
        let nodes = |pool: &Resource| {
            let size = pool.identity.pool().and_then(|name| inputs.world.sizes.get(name)).copied();
            let is_made = is_new || makes.contains(&pool.identity);
            // A cluster is created with a node of its first pool.
            let is_inline = inline.is_some_and(|inline| inline.identity == pool.identity);
            let is_empty = if is_made { starts_empty(&pool.body) && !is_inline } else { size == Some(0) };
            Nodes {
                source: ImageSource::of_pool(&pool.body, streams),
                are_new: is_made || size == Some(0),
                is_empty,
                new_node: new_node(&pool.body),
            }
        };
        let named = |pool: &'a Resource| Some((pool.identity.pool()?, nodes(pool)));
        Self {
            pools: Pools::of(&inputs.desired, &inputs.external, &inputs.capacity_options),
            // Autopilot makes nodes for Pods, and streams images. Source: GKE, "Use Image streaming to pull container images".
            elsewhere: Nodes {
                source: ImageSource { streams: on_autopilot || streams, has_disks: false },
                are_new: on_autopilot || is_new,
                is_empty: false,
                new_node: Some(DurationEstimate::default()),
            },
            nodes: inputs.desired.iter().filter_map(named).collect(),
            live: live_images(inputs, desired),
            placed: BTreeMap::new(),
            unknown: BTreeSet::new(),
        }
    }

    /// Returns the time until the Pods of a template have a node with their images. `None` if it may take days.
    fn time(&mut self, pod: &PodTemplate<'a>, action: Action, when: When) -> Option<DurationEstimate> {
        let pools = self.pools.as_ref();
        let pool = pools.and_then(|pools| pools.takers(&pod.requirements).first().copied());
        let count = |pods: &[(PodRequirements, u64)]| match pools.zip(pool) {
            Some((pools, pool)) => pools.pack(pool, pods, None, Near::Fits).nodes.max(1),
            None => 1,
        };
        let name = pool.and_then(|pool| pool.resource.identity.pool());
        let nodes = name.and_then(|name| self.nodes.get(name)).copied().unwrap_or(self.elsewhere);
        let new_node = nodes.new_node?;
        let stays = pod.resource.kind != KindId::Check;
        let mut own = (pod.requirements.clone(), pod.count);
        own.0.spread.clear();
        // Pods of an update start where the ones before were.
        let are_new = nodes.are_new && action != Action::Update;
        let needs_node = self.placed.entry((name, None)).or_default().needs_more(&own, stays, when, count);
        let waits = nodes.is_empty && are_new && needs_node;
        let mut pulled = Vec::new();
        for (_, image) in pod.images() {
            let is_absent = are_new || !self.live.contains(image);
            let on = (name, Some(image));
            if is_absent
                && nodes.source.pulls(image)
                && self.placed.entry(on).or_default().needs_more(&own, stays, when, count)
            {
                pulled.push(image);
            }
        }
        let pull = ImagePull::of(pulled);
        self.unknown.extend(pull.unknown);
        Some(if waits { new_node + pull.known } else { pull.known })
    }
}

/// Returns the images of the stack's live Pods with work.
fn live_images(inputs: &Inputs<'_>, desired: &ByIdentity<'_>) -> BTreeSet<String> {
    let live = desired.keys().filter(|identity| identity.object().is_some());
    let live = live.filter_map(|identity| inputs.world.find(identity));
    let mut images = BTreeSet::new();
    for body in live {
        let mut specs = Vec::new();
        pod_specs(body, &FieldPath::root(), &mut specs);
        for (_, spec) in specs {
            images.extend(image_pull::images(spec).map(|(_, image)| image.to_owned()));
        }
    }
    images
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
        let order = Order::of(&changes, &[Barrier { depends_on: vec![0] }], 0..changes.len());
        let mut indices: Vec<usize> = (0..changes.len()).collect();
        indices.sort_by_key(|index| order.place(*index));
        let (mut placed, mut needs) = (Placed::default(), vec![false; changes.len()]);
        for index in indices {
            let count = |pods: &[(PodRequirements, u64)]| pods.iter().map(|(_, count)| count).sum();
            let pods = (PodRequirements::default(), 1);
            needs[index] = placed.needs_more(&pods, stay[index], order.when(index), count);
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
    }
}
