//! Nodes over zones: whatever the file, the record and the live pool say of zones and numbers, after the planned calls
//! there are as many nodes as the file asks for, or the plan refuses.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use apply::schedule::has_work;
use model::diag::{self, Look};
use model::record::{Entry, Record};
use model::resource::{Call, Identity, JsonText, Method, Seen, Step, World};
use model::source::Sources;
use plan::{Action, Inputs, Mode, Plan, Selection, plan};
use proptest::prelude::*;
use proptest::sample::subsequence;
use serde_json::{Value, json};
use stack::lower::{Lowered, lower};
use stack::{Options, parse_text};

use crate::props::cases;
use crate::pure::partial_failure;

const REGION: &str = "us-central1";
const LETTERS: [&str; 4] = ["a", "b", "c", "f"];

/// The node count of the file.
#[derive(Clone, Copy, Debug)]
enum NodeCount {
    Fixed(u64),
    Between(u64, u64),
}

#[derive(Clone, Debug)]
struct Case {
    regional: bool,
    /// `zones` of `[cluster]`; none when the file leaves them out.
    cluster_zones: Vec<&'static str>,
    /// `zones` of `[node_pool.gpu]`.
    pool_zones: Vec<&'static str>,
    wish: NodeCount,
    live_cluster: Vec<&'static str>,
    /// The pool's zones and the nodes in each; `None` when it is to be made.
    live_pool: Option<(Vec<&'static str>, u64)>,
    live_autoscaled: bool,
    /// True if the record has the live zones.
    recorded: bool,
    /// True if only the pool is selected.
    only_pool: bool,
    /// Nodes with which GKE begins in a zone that a pool gets by its own update.
    newcomers: u64,
}

fn zone(letter: &str) -> String {
    format!("{REGION}-{letter}")
}

fn listed(letters: &[&str]) -> Vec<String> {
    letters.iter().map(|letter| zone(letter)).collect()
}

/// The stack file.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let location = if self.regional { REGION.to_owned() } else { zone("a") };
        let zones = |zones: &[&str]| match zones {
            [] => String::new(),
            zones => format!("zones = {}\n", json!(listed(zones))),
        };
        let nodes = match self.wish {
            NodeCount::Fixed(nodes) => nodes.to_string(),
            NodeCount::Between(min, max) => format!("{{ min = {min}, max = {max} }}"),
        };
        write!(
            f,
            "[stack]\nname = \"s\"\n\n[gke]\nproject = \"demo\"\nlocation = \"{location}\"\n\n[cluster]\nname = \"c\"\n{}\n\
             [node_pool.gpu]\nmachine_type = \"n1-standard-2\"\n{}nodes = {nodes}\n",
            zones(&self.cluster_zones),
            zones(&self.pool_zones),
        )
    }
}

fn generated_case() -> impl Strategy<Value = Case> {
    let some = || subsequence(LETTERS.to_vec(), 1..=4);
    let with_a = || subsequence(vec!["b", "c", "f"], 0..=3).prop_map(|rest| [vec!["a"], rest].concat());
    let wish = prop_oneof![
        4 => (0_u64..=24).prop_map(NodeCount::Fixed),
        1 => (0_u64..=6, 0_u64..=6).prop_map(|(min, more)| NodeCount::Between(min, (min + more).max(1))),
    ];
    let live_pool = prop_oneof![
        1 => Just(None),
        4 => (some(), 0_u64..=6).prop_map(Some),
    ];
    let said =
        (any::<bool>(), prop_oneof![Just(Vec::new()), with_a()], prop_oneof![Just(Vec::new()), some()]);
    let live = (subsequence(LETTERS.to_vec(), 2..=4), with_a(), live_pool, any::<bool>());
    (said, wish, live, any::<bool>(), prop::bool::weighted(0.2), 0_u64..=5).prop_map(
        |(
            (regional, cluster_zones, pool_zones),
            wish,
            (region, zonal, live_pool, live_autoscaled),
            recorded,
            only_pool,
            newcomers,
        )| {
            let live_cluster = if regional { region } else { zonal };
            Case {
                regional,
                cluster_zones,
                pool_zones,
                wish,
                live_cluster,
                live_pool,
                live_autoscaled,
                recorded,
                only_pool,
                newcomers,
            }
        },
    )
}

/// The live state of GKE: the zones of the cluster, and the nodes of the pool in each zone.
#[derive(Clone, Debug, PartialEq)]
struct Gke {
    cluster: Vec<String>,
    pool: Option<BTreeMap<String, u64>>,
    autoscaling: Value,
}

impl Gke {
    fn nodes(&self) -> u64 {
        self.pool.iter().flat_map(BTreeMap::values).sum()
    }

    /// Gives the pool other zones; a new one begins with so many nodes.
    fn move_zones(&mut self, zones: &Value, newcomers: Option<u64>) {
        let zones: Vec<String> = serde_json::from_value(zones.clone()).unwrap_or_default();
        // Seen on nodePools.update: an empty list changes nothing.
        let Some(pool) = self.pool.as_mut().filter(|_| !zones.is_empty()) else { return };
        let each = newcomers.unwrap_or_else(|| pool.values().copied().max().unwrap_or_default());
        *pool =
            zones.into_iter().map(|zone| (zone.clone(), pool.get(&zone).copied().unwrap_or(each))).collect();
    }

    fn perform(&mut self, call: &Call, newcomers: u64) {
        let body = &call.body.as_ref().map(JsonText::value).unwrap_or_default();
        let path = call.path.as_str();
        match call.method {
            Method::Put if path.ends_with("/clusters/c") => {
                let zones = &body["update"]["desiredLocations"];
                if zones.as_array().is_some_and(|zones| !zones.is_empty()) {
                    self.cluster = serde_json::from_value(zones.clone()).unwrap();
                    self.move_zones(zones, None);
                }
            }
            Method::Put if path.ends_with("/nodePools/gpu") => {
                self.move_zones(&body["locations"], Some(newcomers));
            }
            Method::Post if path.ends_with(":setSize") => {
                let each = body["nodeCount"].as_u64().unwrap_or_default();
                self.pool.as_mut().unwrap().values_mut().for_each(|nodes| *nodes = each);
            }
            Method::Post if path.ends_with(":setAutoscaling") => {
                self.autoscaling = body["autoscaling"].clone();
            }
            Method::Post if path.ends_with("/nodePools") => {
                let pool = &body["nodePool"];
                let each = pool["initialNodeCount"].as_u64().unwrap_or_default();
                let own: Vec<String> = serde_json::from_value(pool["locations"].clone()).unwrap_or_default();
                let zones = if own.is_empty() { self.cluster.clone() } else { own };
                self.pool = Some(zones.into_iter().map(|zone| (zone, each)).collect());
                self.autoscaling = pool["autoscaling"].clone();
            }
            _ => {}
        }
    }

    fn world(&self, lowered: &Lowered, recorded: Option<&Value>) -> World {
        let mut world = World::empty();
        world.objects = Seen::Live(BTreeMap::new());
        let owner = &lowered.owner;
        let mut record = Record {
            version: Record::VERSION,
            stack: owner.stack.clone(),
            id: owner.id.clone(),
            ..Record::default()
        };
        for resource in lowered.resources.iter() {
            let mut live = resource.body.clone();
            live["status"] = json!("RUNNING");
            let mut set = resource.body.clone();
            match &resource.identity {
                Identity::Cluster(_) => {
                    live["locations"] = json!(self.cluster);
                    world.cluster = Seen::Live(live);
                }
                Identity::NodePool { pool, .. } => {
                    let Some(zones) = &self.pool else { continue };
                    let fields = live.as_object_mut().unwrap();
                    fields.remove("nodeCount");
                    live["locations"] = zones.keys().map(|zone| json!(zone)).collect();
                    live["autoscaling"] = self.autoscaling.clone();
                    world.sizes.insert(pool.clone(), u32::try_from(self.nodes()).unwrap());
                    world.pools.insert(pool.clone(), live);
                    if let Some(zones) = recorded {
                        set["locations"] = zones.clone();
                    }
                }
                _ => continue,
            }
            record.inventory.push(Entry {
                address: resource.address.clone(),
                identity: resource.identity.clone(),
                kind: resource.kind.into(),
                set,
                ready: None,
                took: None,
            });
        }
        world.record = Some(record);
        world
    }
}

fn planned(lowered: &Lowered, sources: &Sources, world: &World, only_pool: bool) -> Result<Plan, String> {
    let targets = if only_pool { vec!["node_pool.gpu".to_owned()] } else { Vec::new() };
    let selection = Selection { targets, excludes: Vec::new() };
    plan(Inputs { selection, ..Inputs::of(lowered.clone(), Mode::Apply, world, sources) })
        .map_err(|problems| diag::render(&problems, sources, Look::PLAIN))
}

/// The calls of a plan, each after those of what it follows.
fn in_order(plan: &Plan) -> Vec<&Call> {
    let order = partial_failure::run(plan, |_| true).order;
    let runs = plan.changes.iter().filter(|change| has_work(change)).count();
    assert_eq!(order.len(), runs, "a plan has no circle");
    let steps = order.into_iter().flat_map(|place| &plan.changes[place].steps);
    let calls = steps.filter_map(|step| match step {
        Step::Call(call) => Some(call),
        _ => None,
    });
    calls.collect()
}

fn holds(case: &Case) -> Result<(), String> {
    let vars = BTreeMap::new();
    let loaded =
        parse_text("stack.toml", &case.to_string(), &Options { env: &|_| None, vars: &vars, helm: None });
    // An error of the file alone ends before the plan.
    let Ok(loaded) = loaded else { return Ok(()) };
    let lowered = lower(&loaded.stack, true);
    let mut gke = Gke {
        cluster: listed(&case.live_cluster),
        pool: case
            .live_pool
            .as_ref()
            .map(|(zones, each)| zones.iter().map(|letter| (zone(letter), *each)).collect()),
        autoscaling: match case.live_autoscaled {
            true => json!({ "enabled": true, "totalMinNodeCount": 0, "totalMaxNodeCount": 9 }),
            false => Value::Null,
        },
    };
    let before = gke.clone();
    let recorded = case.live_pool.as_ref().filter(|_| case.recorded).map(|(zones, _)| json!(listed(zones)));
    let world = gke.world(&lowered, recorded.as_ref());
    let plan = planned(&lowered, &loaded.sources, &world, case.only_pool);
    // A plan that is limited to a pool may take the cluster along.
    let moves = |call: &&Call| {
        call.body.as_ref().is_some_and(|body| !body.value()["update"]["desiredLocations"].is_null())
    };
    let cluster_moves = plan.as_ref().map_or(!case.only_pool, |plan| in_order(plan).iter().any(moves));
    let zones_after = if !case.pool_zones.is_empty() {
        listed(&case.pool_zones)
    } else if cluster_moves
        && !case.cluster_zones.is_empty()
        && sorted(&listed(&case.cluster_zones)) != sorted(&gke.cluster)
    {
        listed(&case.cluster_zones)
    } else if let Some((zones, _)) = &case.live_pool {
        listed(zones)
    } else {
        gke.cluster.clone()
    };
    let number = u64::try_from(zones_after.len()).unwrap();
    let plan = match plan {
        Ok(plan) => plan,
        Err(why) => {
            let divides = matches!(case.wish, NodeCount::Fixed(nodes) if nodes % number != 0);
            let right = divides && why.contains("DI0209");
            return if right { Ok(()) } else { Err(format!("refused: {why}")) };
        }
    };
    for call in in_order(&plan) {
        gke.perform(call, case.newcomers);
    }
    let shown: Vec<String> =
        in_order(&plan).iter().map(|call| format!("{} {}", call.path, json!(call.body))).collect();
    let tell = |what: String| {
        Err(format!(
            "{what}\ncase {case:?}\nbefore {before:?}\nafter  {gke:?}\ncalls {}",
            shown.join("\n      ")
        ))
    };
    let pool = gke.pool.clone().unwrap();
    let lies: BTreeSet<String> = pool.keys().cloned().collect();
    if lies != zones_after.iter().cloned().collect() {
        return tell(format!("the pool lies in {lies:?}, not in {zones_after:?}"));
    }
    match case.wish {
        NodeCount::Fixed(nodes) if gke.nodes() != nodes => {
            return tell(format!("{} nodes, not {nodes}", gke.nodes()));
        }
        // As many of the minimum as all zones can have: so never more than the maximum.
        NodeCount::Between(min, _) if case.live_pool.is_none() && gke.nodes() != min - min % number => {
            return tell(format!("{} nodes, not {}", gke.nodes(), min - min % number));
        }
        NodeCount::Fixed(_) | NodeCount::Between(..) => {}
    }
    let set = (!case.pool_zones.is_empty()).then(|| json!(zones_after));
    let again = planned(&lowered, &loaded.sources, &gke.world(&lowered, set.as_ref()), case.only_pool)?;
    let more: Vec<_> = again.changes.iter().filter(|change| change.action != Action::Keep).collect();
    if more.is_empty() { Ok(()) } else { tell(format!("the next plan has {more:?}")) }
}

fn sorted(zones: &[String]) -> Vec<&String> {
    let mut zones: Vec<&String> = zones.iter().collect();
    zones.sort();
    zones
}

#[test]
fn the_nodes_of_all_zones_are_as_many_as_are_asked_for() {
    cases::check("arithmetic", 2000, generated_case().boxed(), holds);
}
