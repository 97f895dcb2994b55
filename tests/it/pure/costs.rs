//! Costs of generated stacks: whatever has no price is named, and the sum is "at least".

use std::collections::BTreeMap;
use std::fmt;

use dask_infra::report::document;
use dask_infra::report::human::Detail;
use dask_infra::report::{Next, Reporter as _, View};
use kinds::gke::node_pool::takes_hyperdisk_only;
use model::address::Address;
use model::resource::World;
use model::source::Sources;
use plan::{Inputs, Mode, Plan, plan};
use proptest::prelude::*;
use serde_json::Value;
use stack::lower::lower;
use stack::{Options, parse_text};

use crate::page::human;
use crate::props::cases;

/// A node pool of a generated stack.
#[derive(Clone, Debug)]
struct Pool {
    machine: &'static str,
    gpu: Option<&'static str>,
    spot: bool,
    disk: Option<&'static str>,
    min: u32,
    more: u32,
}

/// Locations. The list has no price of the first pool in the last one.
const LOCATIONS: [&str; 4] = ["us-central1-c", "europe-west3", "me-central2-a", "asia-southeast3-a"];

fn pool() -> impl Strategy<Value = Pool> {
    let machine = prop_oneof![
        4 => Just(("e2-standard-4", None)),
        3 => Just(("n1-standard-4", Some("nvidia-tesla-t4"))),
        3 => Just(("a2-highgpu-1g", None)),
        1 => Just(("a3-ultragpu-8g", None)),
        2 => Just(("c4-standard-8", None)),
        1 => Just(("n2-custom-8-16384", None)),
    ];
    let disk = prop::option::weighted(
        0.3,
        prop::sample::select(vec!["pd-ssd", "pd-standard", "hyperdisk-balanced"]),
    );
    (machine, any::<bool>(), disk, 0..3u32, 0..3u32).prop_map(|((machine, gpu), spot, disk, min, more)| {
        let takes = |disk: &&str| disk.starts_with("hyperdisk") || !takes_hyperdisk_only(machine);
        Pool { machine, gpu, spot, disk: disk.filter(takes), min, more }
    })
}

fn text(location: &str, pools: &[Pool]) -> String {
    let mut text = format!(
        "[stack]\nname = \"s\"\n[gke]\nproject = \"p\"\nlocation = \"{location}\"\n[cluster]\nname = \"c\"\n\
         [node_pool.first]\nmachine_type = \"e2-standard-4\"\nnodes = 3\n"
    );
    for (at, Pool { machine, gpu, spot, disk, min, more }) in pools.iter().enumerate() {
        let max = min + more;
        text.push_str(&format!("[node_pool.p{at}]\nmachine_type = \"{machine}\"\nspot = {spot}\n"));
        text.push_str(&format!("nodes = {{ min = {min}, max = {} }}\n", max.max(1)));
        text.extend(gpu.map(|gpu| format!("accelerator = \"{gpu}\"\n")));
        text.extend(disk.map(|disk| format!("disk_type = \"{disk}\"\n")));
    }
    text
}

fn planned(text: &str) -> Plan {
    let env = |_: &str| None;
    let options = Options { env: &env, vars: &BTreeMap::new(), helm: None };
    let loaded = parse_text("stack.toml", text, &options).map_err(|failure| failure.diagnostics).unwrap();
    let (world, sources) = (World::empty(), Sources::default());
    let inputs =
        Inputs { offline: true, ..Inputs::of(lower(&loaded.stack, true), Mode::Apply, &world, &sources) };
    plan(inputs).unwrap()
}

/// The line of costs as people read it.
fn cost_line(plan: &Plan) -> String {
    let (mut human, out, _) = human(Detail::Sections, 4000);
    human.plan(plan, &View { sources: None, next: Next::Nothing });
    let text = out.take();
    text.lines().find(|line| line.starts_with("Cost: ")).unwrap_or_default().to_owned()
}

/// A generated stack.
#[derive(Clone, Debug)]
struct Case {
    location: &'static str,
    pools: Vec<Pool>,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text(self.location, &self.pools))
    }
}

fn is(holds: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why()) }
}

/// Each amount of the line is a sum of the document, and whatever has no price is named in both.
fn names_what_is_unknown(case: &Case) -> Result<(), String> {
    let plan = planned(&case.to_string());
    let line = cost_line(&plan);
    let json: Value = serde_json::to_value(document::document(&plan)).unwrap();
    let cost = &json["dask_infra"]["cost"];
    let dollars = |part: &str| cost[part]["usd_per_hour"].as_f64().unwrap();
    let (head, _) = line.split_once(" (").unwrap();
    let mut names = Vec::new();
    for (part, word) in [("after", " as planned"), ("idle", " idle"), ("most", " at maximum")] {
        let unknown = cost[part]["unknown"].as_array().cloned().unwrap_or_default();
        let least = if unknown.is_empty() { "" } else { "at least " };
        let sum = format!("{least}${:.2}/h", dollars(part));
        let amount = format!("{sum}{word}");
        let is_first = head.starts_with(&format!("Cost: {sum} as planned"));
        is(is_first || head.contains(&amount), || format!("no {amount:?} in {line:?}"))?;
        names.extend(unknown);
    }
    for name in &names {
        let told = line.split_once("price unknown: ").map_or("", |(_, told)| told);
        is(told.contains(name.as_str().unwrap()), || format!("{name} is not in {line:?}"))?;
    }
    is(line.contains("price unknown") != names.is_empty(), || line.clone())?;
    is(dollars("idle") <= dollars("after") && dollars("after") <= dollars("most"), || cost.to_string())?;
    is(!line.contains("snapshot") || case.pools.iter().any(|pool| pool.spot), || line.clone())?;
    is(!case.location.starts_with("asia-southeast3") || !names.is_empty(), || line.clone())
}

#[test]
fn a_sum_without_a_price_is_at_least() {
    let pools = prop::collection::vec(pool(), 0..4);
    let cases = (prop::sample::select(LOCATIONS.to_vec()), pools)
        .prop_map(|(location, pools)| Case { location, pools })
        .boxed();
    cases::check("a sum without a price is at least", 64, cases, names_what_is_unknown);
}

#[test]
fn spot_prices_carry_the_day_of_their_snapshot() {
    let pools = [Pool { machine: "a2-highgpu-1g", gpu: None, spot: true, disk: None, min: 1, more: 0 }];
    let line = cost_line(&planned(&text("europe-west4-a", &pools)));
    assert!(line.contains("Spot prices: snapshot of 2026-07-30"), "{line}");
    assert!(line.contains("list prices of europe-west4, 2026-07-30"), "{line}");
}

/// Dollars per hour of the pool `p`: those that are certain, and those at its minimum.
fn certain_and_idle(location: &str, pool: &str) -> (f64, f64) {
    let text = format!(
        "[stack]\nname = \"s\"\n[gke]\nproject = \"p\"\nlocation = \"{location}\"\n[cluster]\nname = \"c\"\n\
         [node_pool.first]\nmachine_type = \"e2-standard-4\"\nnodes = 3\n[node_pool.p]\nmachine_type = \"n1-standard-4\"\n{pool}\n"
    );
    let plan = planned(&text);
    let cost = &plan.bill().unwrap().sections[&Address::of("node_pool", "p")];
    (cost.least().usd, cost.idle.usd)
}

#[test]
fn only_the_nodes_that_a_pool_has_in_any_case_are_certain() {
    for (location, pool, certain) in [
        ("us-central1-c", "nodes = 2\nspot = true", 0.0),
        ("us-central1-c", "nodes = 2\nmax_run_duration = \"2h\"", 0.0),
        ("us-central1-c", "nodes = { min = 2, max = 6 }", 2.0),
        ("us-central1-c", "nodes = 2", 2.0),
        // One node in each of three zones, or none.
        ("us-central1", "nodes = { min = 2, max = 6 }", 0.0),
        ("us-central1", "nodes = { min = 4, max = 6 }", 3.0),
        ("us-central1", "nodes = { min = 2, max = 6 }\nzones = [\"us-central1-a\", \"us-central1-b\"]", 2.0),
    ] {
        let (one, _) = certain_and_idle("us-central1-c", "nodes = 1");
        let (least, idle) = certain_and_idle(location, pool);
        assert!((least - certain * one).abs() < 1e-6 && least <= idle, "{location} {pool}: {least} {idle}");
    }
}

#[test]
fn nothing_is_certain_of_a_pool_that_may_be_spot() {
    let spot = "nodes = 2\ncapacity = [\"on-demand\", \"spot\"]";
    let (least, idle) = certain_and_idle("us-central1-c", spot);
    let (on_demand, _) = certain_and_idle("us-central1-c", "nodes = 2");
    assert!(least == 0.0 && (idle - on_demand).abs() < 1e-6, "{least} {idle} {on_demand}");
}
