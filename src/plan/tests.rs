//! Plans of the ready stack against worlds.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::{Action, Inputs, Mode, Plan, plan};
use crate::resource::World;
use crate::stack::lower::{Lowered, check, lower};
use crate::stack::{Options, load};

fn rapids() -> (Lowered, crate::source::Sources) {
    let env = |name: &str| (name == "GOOGLE_CLOUD_PROJECT").then(|| "demo".to_owned());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("stacks/rapids-gke");
    let vars = BTreeMap::new();
    let loaded = load(&path, &Options { env: &env, vars: &vars }).map_err(|f| f.diagnostics).unwrap();
    let lowered = lower(&loaded.stack, true);
    assert_eq!(check(&lowered.resources, &loaded.sources), []);
    (lowered, loaded.sources)
}

fn make(world: &World) -> Plan {
    let (lowered, sources) = rapids();
    let Lowered { owner, target, resources, hourly } = lowered;
    let inputs = Inputs {
        desired: resources,
        world,
        target,
        owner,
        mode: Mode::Apply,
        offline: true,
        allowed: Vec::new(),
        replace: Vec::new(),
        sources: &sources,
        hourly,
    };
    plan(inputs).unwrap()
}

#[test]
fn everything_is_made_in_an_empty_world_and_in_order() {
    let plan = make(&World::empty());
    for change in &plan.changes {
        println!(
            "{:?} {} {:?} steps {} follows {:?}",
            change.action,
            change.address,
            change.location,
            change.steps.len(),
            change.follows.iter().map(|i| plan.changes[*i].address.as_str()).collect::<Vec<_>>()
        );
    }
    println!("{:?} {:?}", plan.hourly, plan.notes);
    let made = |address: &str| plan.changes.iter().find(|change| change.address.as_str() == address).unwrap();
    assert_eq!(made("cluster").action, Action::Create);
    assert_eq!(made("check.cuda").action, Action::Run);
    println!("{}", serde_json::to_string_pretty(&made("cluster").steps).unwrap());
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let text = |plan: &Plan| serde_json::to_value(plan).unwrap_or(Value::Null).to_string();
    assert_eq!(text(&make(&World::empty())), text(&make(&World::empty())));
}
