//! Properties of the plans of all cases (`tests/cases/plan-*`), and of the plan of a ready stack.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use dask_infra::cli::plan_file;
use model::address::Address;
use model::diag::{self, Look};
use model::resource::World;
use plan::{Action, Mode, Plan, plan};

use crate::golden::cases;
use crate::overlay::stop;
use crate::planned::{Case, inputs, planned_cases, read, ready, ready_plan};
use crate::world::settled;

/// A delete with its own request comes after every delete that must be done before it.
#[test]
fn deletes_stand_in_the_order_in_which_they_happen() {
    let (mut pairs, mut wrong) = (0, Vec::new());
    for (case, plan) in planned_cases() {
        let goes = |change: &plan::Change| change.action == Action::Delete && !change.steps.is_empty();
        for (place, after) in plan.changes.iter().enumerate().filter(|(_, change)| goes(change)) {
            for before in plan.predecessors(after).filter(|before| goes(&plan.changes[*before])) {
                pairs += 1;
                if before > place {
                    let before = &plan.changes[before].address;
                    wrong.push(format!("{case}: {before} goes before {}", after.address));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(pairs > 50, "{pairs} pairs");
}

/// The pods of a section name an account, a ConfigMap and a claim of a manifest.
#[test]
fn pods_of_sections_come_after_what_manifests_make_for_them() {
    let (_, plan) = planned_cases().find(|(name, _)| name == "plan-pods-of-manifests").expect("the case");
    let cluster = plan.changes.iter().find(|change| change.address.as_str() == "dask_cluster.d").expect("it");
    let before: BTreeSet<&str> =
        plan.predecessors(cluster).map(|place| plan.changes[place].address.as_str()).collect();
    for (object, depends_on) in [
        ("ServiceAccount/default/reader", true),
        ("ConfigMap/default/conf", true),
        ("PersistentVolumeClaim/default/data", true),
        ("ConfigMap/default/unrelated", false),
    ] {
        assert_eq!(
            before.contains(&*format!("manifest.access/{object}")),
            depends_on,
            "{object}: {before:?}"
        );
    }
}

/// Of the cases that were applied before every ninth, all of it deleted.
#[test]
fn where_everything_goes_nobody_looks_at_who_wrote_which_field() {
    let applied = cases("plan-").into_iter().filter(|folder| folder.join("before.toml").exists());
    let mut spared = 0;
    for folder in applied.step_by(9) {
        let Case { mut asked, mut world, wanted, sources } = Case::read(&folder);
        asked.destroy = true;
        let made = |world: &World| {
            let made = plan(inputs(wanted.clone(), &sources, world, &asked));
            made.map(|plan| serde_json::to_string(&plan).unwrap())
                .map_err(|problems| diag::render(&problems, &sources, Look::PLAIN))
        };
        let whole = (made(&world), world.clone());
        plan::drop_unused_managed_fields(&mut world, Mode::Destroy, &wanted.external);
        assert_eq!(made(&world), whole.0, "{}", folder.display());
        spared += usize::from(world != whole.1);
    }
    assert!(spared >= 4, "{spared} cases with fields");
}

/// In every case in which a Dask cluster changes that is checked.
#[test]
fn checks_compute_when_all_of_their_dask_cluster_is_there() {
    let mut pairs = 0;
    for (case, plan) in planned_cases() {
        for check in plan.changes.iter().filter(|change| change.action == Action::Run) {
            let wanted = plan.desired.iter().find(|resource| resource.address == check.address).unwrap();
            let clusters = wanted.depends_on.iter().filter(|one| one.as_str().starts_with("dask_cluster."));
            let parts: Vec<String> =
                clusters.flat_map(|cluster| [format!("{cluster}.group."), format!("{cluster}/")]).collect();
            let mut before: BTreeSet<usize> = plan.predecessors(check).collect();
            let mut open: Vec<usize> = before.iter().copied().collect();
            while let Some(place) = open.pop() {
                open.extend(
                    plan.predecessors(&plan.changes[place]).filter(|further| before.insert(*further)),
                );
            }
            for (place, part) in plan.changes.iter().enumerate() {
                if part.action != Action::Keep
                    && parts.iter().any(|start| part.address.as_str().starts_with(start))
                {
                    assert!(before.contains(&place), "{case}: {} beside {}", check.address, part.address);
                    pairs += 1;
                }
            }
        }
    }
    assert!(pairs >= 3, "{pairs} pairs");
}

/// Others start what is stopped when the plan is made, before it is applied, and the other way round.
#[test]
fn a_plan_that_is_made_again_is_the_plan_of_the_file() {
    let (mut started, mut stopped) = (0, 0);
    let is_stopped = |folder: &Path| {
        fs::read_to_string(folder.join("live.json")).is_ok_and(|live| live.contains("\"stopped\""))
    };
    for (number, folder) in cases("plan-").into_iter().enumerate() {
        if number % 6 != 0 && !is_stopped(&folder) {
            continue;
        }
        let Case { asked, world, wanted, sources } = Case::read(&folder);
        let halts = asked.stop.is_some() || asked.start || asked.scale.is_some() || asked.refresh_only;
        let mut later = world.clone();
        let Some(record) = later.record.as_mut().filter(|_| !halts) else { continue };
        let starts = !record.stopped.is_empty();
        if starts {
            record.stopped.clear();
            for pool in world.sizes.keys() {
                later.sizes.insert(pool.clone(), 2);
            }
        } else {
            let pools: Vec<Address> = record.inventory.iter().map(|entry| entry.address.clone()).collect();
            let pools = pools.iter().filter(|address| address.as_str().starts_with("node_pool."));
            let live = |pool: &&Address| {
                pool.as_str().strip_prefix("node_pool.").is_some_and(|key| world.pools.contains_key(key))
            };
            pools.filter(live).for_each(|pool| stop(&mut later, pool));
        }
        let Ok(saved) = plan(inputs(wanted.clone(), &sources, &world, &asked)) else { continue };
        let fresh = plan(inputs(wanted, &sources, &later, &asked));
        let again = plan(plan::file::replan_inputs(&saved, &later, &sources));
        assert!(fresh == again, "{}: {fresh:#?}\n\nagain: {again:#?}", folder.display());
        *(if starts { &mut started } else { &mut stopped }) += 1;
    }
    assert!(started >= 4 && stopped >= 10, "{started} started, {stopped} stopped");
}

/// A digest binds what was agreed to, so nothing that a stack becomes is left out.
#[test]
fn every_edit_of_a_stack_has_another_digest() {
    const STACK: &str = r#"
[stack]
name = "s"
id = "one"

[gke]
project = "demo"
location = "us-central1-c"

[cluster]
name = "c"

[node_pool.cpu]
machine_type = "e2-standard-4"
nodes = 1

[node_pool.gpu]
machine_type = "a2-highgpu-1g"
nodes = 1
capacity = ["on-demand", "spot"]

[node_pool.theirs]
manage = false
machine_type = "e2-standard-8"

[namespace.team]
"#;
    let folder = tempfile::tempdir().unwrap();
    let digest = |text: &str| {
        let path = folder.path().join("stack.toml");
        fs::write(&path, text).unwrap();
        read(&path).unwrap().0.digest().unwrap()
    };
    let mut seen = BTreeMap::from([(digest(STACK).to_hex().to_string(), "as it is")]);
    assert_eq!(digest(&format!("# Another text.\n{STACK}")), digest(STACK));
    for (from, to) in [
        ("project = \"demo\"", "project = \"other-team-prod\""),
        ("location = \"us-central1-c\"", "location = \"us-central1-a\""),
        ("name = \"s\"", "name = \"t\""),
        ("id = \"one\"", "id = \"two\""),
        ("[cluster]\nname = \"c\"", "[cluster]\nname = \"d\""),
        ("[\"on-demand\", \"spot\"]", "[\"spot\", \"on-demand\"]"),
        ("e2-standard-8", "e2-standard-16"),
        ("e2-standard-4", "e2-standard-2"),
        ("[namespace.team]\n", "[namespace.team]\nprotect = true\n"),
    ] {
        assert!(STACK.contains(from), "{from}");
        let now = digest(&STACK.replace(from, to)).to_hex().to_string();
        assert_eq!(seen.insert(now, to), None, "{from} -> {to}");
    }
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let text = |plan: Plan| serde_json::to_string(&plan).unwrap();
    assert_eq!(text(ready_plan(&World::empty())), text(ready_plan(&World::empty())));
}

#[test]
fn what_is_as_wanted_gives_an_empty_plan() {
    let plan = ready_plan(&settled(&ready().0));
    let left: Vec<_> = plan.changes.iter().filter(|change| change.action != Action::Keep).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_saved_plan_comes_back_and_a_changed_file_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan");
    let made = ready_plan(&World::empty());
    plan_file::save(&path, &made).unwrap();
    assert_eq!(plan_file::load(&path).unwrap(), made);
    let text = fs::read_to_string(&path).unwrap().replace("us-central1-c", "us-central1-a");
    fs::write(&path, text).unwrap();
    assert!(plan_file::load(&path).unwrap_err().message.contains("digest"));
    let settled = ready_plan(&settled(&ready().0));
    assert!(!plan::file::stale_changes(&made, &settled).is_empty());
    assert_eq!(plan::file::stale_changes(&made, &made), Vec::<String>::new());
}

#[test]
fn what_would_be_sent_fits_the_schemas() {
    let (wanted, sources) = ready();
    assert_eq!(stack::lower::check(&wanted.resources, &sources), []);
}
