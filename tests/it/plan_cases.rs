//! Golden cases of plans: `tests/cases/plan-*/stack.toml` against a world gives `plan.txt`, or `diag.txt` when
//! no plan is made. The world is what applying `before.toml` left (nothing when there is none), with
//! `live.json` merged over it by identity. `options.json` may ask for more.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use dask_infra::cli::plan_file;
use dask_infra::report::human::Detail;
use dask_infra::report::{Human, Json, Next, Reporter as _, Screen, Stream, View};
use kinds::kubernetes::check;
use model::address::{Address, FieldPath};
use model::diag::{self, Look};
use model::record::{Entry, Record, Stop};
use model::resource::{ClusterName, Elsewhere, Identity, ObjectId, Resource, Seen, Step, World};
use model::schema::{List, Schema};
use model::secrets::given::Given;
use model::source::{Sources, Span};
use plan::{Action, Approval, ApprovalVerb, Inputs, Mode, Plan, Selection, StopRequest, drift, plan};
use serde::Deserialize;
use serde_json::{Value, json};
use stack::disk::Trust;
use stack::lower::{Lowered, lower};
use stack::{Options, load_with, parse_in};

use crate::charts;
use crate::golden::{cases, golden, root};

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Asked {
    destroy: bool,
    allow: Vec<String>,
    replace: Vec<String>,
    target: Vec<String>,
    exclude: Vec<String>,
    refresh_only: bool,
    without_record: bool,
    /// Addresses that no apply has seen ready.
    half_made: Vec<String>,
    retarget: bool,
    retry_capacity: bool,
    also_applied_by: Option<String>,
    applied_instead_by: Option<String>,
    /// The thing, the number, and whether the stack file keeps it.
    scale: Option<(String, u32, bool)>,
    when_idle: Option<u32>,
    /// What `stop` was given: nothing means all.
    stop: Option<Vec<String>>,
    start: bool,
    /// Whether the target is Google's own, not the sandbox's.
    for_google: bool,
    /// What the environment has where the plan is made.
    environment: BTreeMap<String, String>,
}

fn read(path: &Path) -> Option<(Lowered, Sources)> {
    let text = fs::read_to_string(path).ok()?;
    let vars = BTreeMap::new();
    let env = |name: &str| (name == "GOOGLE_CLOUD_PROJECT").then(|| "demo".to_owned());
    let name = path.file_name()?.to_string_lossy().into_owned();
    let helm = charts::recorded(path.parent()?, path.file_stem()?.to_str()?);
    let options = Options { env: &env, vars: &vars, helm: Some(&helm) };
    let loaded = match parse_in(path.parent()?, &name, &text, &options) {
        Ok(loaded) => loaded,
        Err(failure) => panic!("{}", diag::render(&failure.diagnostics, &failure.sources, Look::PLAIN)),
    };
    Some((lower(&loaded.stack, true), loaded.sources))
}

/// The same with another number at one place.
fn read_with(path: &Path, place: &FieldPath, number: u32) -> (Lowered, Sources) {
    let vars = BTreeMap::new();
    let env = |name: &str| (name == "GOOGLE_CLOUD_PROJECT").then(|| "demo".to_owned());
    let options = Options { env: &env, vars: &vars, helm: None };
    let loaded = load_with(path, &options, &[(place.clone(), json!(number))], Trust::Repository).unwrap();
    let mut sources = Sources::default();
    let file = sources.add("stack.toml", fs::read_to_string(path).unwrap());
    if let Some(span) = loaded.sources.written(place) {
        sources.record(place, None, Span { file, ..span });
    }
    (lower(&loaded.stack, true), sources)
}

/// fieldsV1 of everything that a body says, lists told apart as the schema says.
fn fields(value: &Value, schema: Option<&Schema>) -> Value {
    match value {
        Value::Object(map) if schema.is_none_or(|schema| !schema.atomic_map()) => {
            let child =
                |key: &str| schema.and_then(|schema| schema.property(key).or_else(|| schema.values()));
            map.iter().map(|(key, value)| (format!("f:{key}"), fields(value, child(key).as_ref()))).collect()
        }
        Value::Array(items) => match schema.map(Schema::list) {
            Some(List::Map(keys)) => {
                let item_schema = schema.and_then(Schema::items);
                let key = |item: &Value| -> Value {
                    keys.iter().filter_map(|key| Some((key.clone(), item.get(key)?.clone()))).collect()
                };
                items
                    .iter()
                    .map(|item| (format!("k:{}", key(item)), fields(item, item_schema.as_ref())))
                    .collect()
            }
            Some(List::Set) => items.iter().map(|item| (format!("v:{item}"), json!({}))).collect(),
            Some(List::Atomic) | None => json!({}),
        },
        _ => json!({}),
    }
}

/// The world after a quiet apply, as far as a plan looks at it.
pub(crate) fn settled(lowered: &Lowered) -> World {
    let Lowered { owner, resources, .. } = lowered;
    let mut world = World::empty();
    let mut inside = BTreeMap::new();
    let mut record = Record {
        version: Record::VERSION,
        stack: owner.stack.clone(),
        id: owner.id.clone(),
        ..Record::default()
    };
    for resource in resources.iter() {
        let Resource { address, identity, kind, body, create_only, life, .. } = resource;
        let set = match identity {
            Identity::Cluster(_) => {
                let mut live = body.clone();
                live["status"] = json!("RUNNING");
                world.cluster = Seen::Live(live);
                body.clone()
            }
            Identity::NodePool { pool, .. } => {
                let mut live = body.clone();
                live["status"] = json!("RUNNING");
                let nodes = live.as_object_mut().unwrap().remove("nodeCount").unwrap_or(json!(1));
                world.sizes.insert(pool.clone(), u32::try_from(nodes.as_u64().unwrap()).unwrap());
                world.pools.insert(pool.clone(), live);
                body.clone()
            }
            Identity::Object(object) => {
                let schema = kinds::kubernetes::object::object_schema(identity);
                let mut live = body.clone();
                live["metadata"]["uid"] = json!(format!("uid-{}", object.name));
                live["metadata"]["managedFields"] = json!([{
                    "manager": owner.field_manager(), "operation": "Apply", "time": "2026-11-01T00:00:00Z",
                    "fieldsV1": fields(body, schema.as_ref()),
                }]);
                if !create_only.is_null() {
                    merge(&mut live, create_only);
                    live["metadata"]["managedFields"].as_array_mut().unwrap().push(json!({
                        "manager": owner.initial_manager(), "operation": "Apply",
                        "time": "2026-11-01T00:00:00Z", "fieldsV1": fields(create_only, schema.as_ref()),
                    }));
                }
                if object.gvk.kind == "Deployment" {
                    live["status"] = json!({ "availableReplicas": 1 });
                }
                if object.gvk.kind == "DaemonSet" {
                    live["status"] = json!({ "numberReady": 2, "desiredNumberScheduled": 2 });
                }
                if object.gvk.kind == "CustomResourceDefinition" {
                    live["status"]["conditions"] = json!([{ "type": "Established", "status": "True" }]);
                }
                inside.insert(object.clone(), live);
                Value::Null
            }
            Identity::Check(_) => {
                record.passes.insert(identity.clone(), check::digest(body));
                continue;
            }
        };
        if !life.is_kept() {
            record.passes.insert(identity.clone(), kinds::kubernetes::once_digest::digest(resource));
        }
        let (address, identity, kind) = (address.clone(), identity.clone(), (*kind).into());
        record.inventory.push(Entry { address, identity, kind, set, ready: Some(true), took: None });
    }
    world.inside = Seen::Live(inside);
    world.record = Some(record);
    world
}

/// The identity behind `Kind namespace/name`, `Kind name` or `Kind.group namespace/name`.
fn made_by_others(name: &str) -> ObjectId {
    let (kind, name) = name.split_once(' ').unwrap();
    let (kind, group) = match kind.split_once('.') {
        Some(both) => both,
        None if kind == "Deployment" => (kind, "apps"),
        None if kind.starts_with("Dask") => (kind, "kubernetes.dask.org"),
        None => (kind, ""),
    };
    let gvk = kinds::kubernetes::object::gvk(group, "v1", kind, &format!("{}s", kind.to_lowercase()));
    match name.split_once('/') {
        Some((namespace, name)) => ObjectId { gvk, namespace: Some(namespace.into()), name: name.into() },
        None => ObjectId { gvk, namespace: None, name: name.into() },
    }
}

/// RFC 7386.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in fields {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut target[key], value);
        }
    }
}

/// RFC 7386, and `null` deletes the whole thing. Keys are identities as printed.
fn overlay(world: &mut World, patch: &Value) {
    let stopped: Vec<Address> = serde_json::from_value(patch["stopped"].clone()).unwrap_or_default();
    stopped.iter().for_each(|address| stop(world, address));
    let starting: Vec<Address> = serde_json::from_value(patch["starting"].clone()).unwrap_or_default();
    if let Some(record) = world.record.as_mut() {
        let known = record.inventory.iter().filter(|entry| starting.contains(&entry.address));
        record.starting = known.map(|entry| entry.identity.clone()).collect();
    }
    for (name, patch) in patch.as_object().unwrap() {
        if name == "stopped" || name == "starting" {
            continue;
        }
        if name == "not made" {
            let addresses: Vec<Address> = serde_json::from_value(patch.clone()).unwrap();
            let record = world.record.as_mut().unwrap();
            let known = record.inventory.iter().filter(|entry| addresses.contains(&entry.address));
            let known: Vec<Identity> = known.map(|entry| entry.identity.clone()).collect();
            record.passes.retain(|identity, _| !known.contains(identity));
            record.inventory.retain(|entry| !known.contains(&entry.identity));
            continue;
        }
        if let Some(pool) = name.strip_prefix("node pool ") {
            merge(world.pools.entry(pool.to_owned()).or_insert_with(|| json!({ "name": pool })), patch);
            world.sizes.entry(pool.to_owned()).or_insert(1);
        } else if let Some(pool) = name.strip_prefix("size of ") {
            match patch.as_u64() {
                Some(nodes) => drop(world.sizes.insert(pool.to_owned(), u32::try_from(nodes).unwrap())),
                None => drop(world.sizes.remove(pool)),
            }
        } else if name.starts_with("GKE cluster ") {
            if let Seen::Live(cluster) = &mut world.cluster {
                merge(cluster, patch);
            }
        } else if name == "elsewhere" {
            let place = |name: &Value| {
                let parts: Vec<&str> = name.as_str().unwrap().split('/').collect();
                let [project, location, cluster] = parts[..] else { panic!("{name}") };
                ClusterName { project: project.into(), location: location.into(), cluster: cluster.into() }
            };
            world.elsewhere = match patch {
                Value::String(why) => Elsewhere::Unknown(why.clone()),
                places => Elsewhere::Found(places.as_array().unwrap().iter().map(place).collect()),
            };
        } else if name == "took" {
            let took: BTreeMap<String, u32> = serde_json::from_value(patch.clone()).unwrap();
            let entries = world.record.iter_mut().flat_map(|record| &mut record.inventory);
            entries.for_each(|entry| entry.took = took.get(entry.address.as_str()).copied());
        } else if name == "unseen" {
            world.unseen = serde_json::from_value(patch.clone()).unwrap();
        } else if name == "unreadable" {
            world.inside = Seen::Unreadable(patch.as_str().unwrap().to_owned());
        } else if let Seen::Live(objects) = &mut world.inside {
            let known = objects.keys().find(|object| object.to_string() == *name).cloned();
            let object = known.unwrap_or_else(|| made_by_others(name));
            if patch.is_null() {
                objects.remove(&object);
            } else {
                merge(objects.entry(object).or_insert(json!({})), patch);
            }
        }
    }
}

/// The world after a thing was stopped; with `!` behind its address, before it was gone.
fn stop(world: &mut World, address: &Address) {
    let record = world.record.as_mut().unwrap();
    let (address, is_left) = match address.as_str().strip_suffix('!') {
        Some(address) => (Address::new(address), true),
        None => (address.clone(), false),
    };
    let known = record.inventory.iter_mut().find(|entry| entry.address == address).unwrap();
    if !known.set.is_null() {
        known.set["nodeCount"] = json!(0);
        known.set["autoscaling"] = json!({ "enabled": false });
    }
    let entry = known.clone();
    let by = Stop {
        by: "ann@laptop".into(),
        since: "2026-11-20T18:00:00Z".into(),
        section: Some(address.section().to_owned()),
    };
    record.stopped.insert(entry.identity.clone(), by);
    match &entry.identity {
        Identity::NodePool { pool, .. } => {
            world.sizes.insert(pool.clone(), 0);
            world.pools.get_mut(pool).unwrap().as_object_mut().unwrap().remove("autoscaling");
        }
        Identity::Object(_) if is_left => {}
        Identity::Object(object) => {
            record.inventory.retain(|other| other.identity != entry.identity);
            record.passes.remove(&entry.identity);
            let Seen::Live(objects) = &mut world.inside else { return };
            objects.remove(object);
        }
        Identity::Cluster(_) | Identity::Check(_) => {}
    }
}

/// What stacks share is applied by another one too, or instead.
fn share(world: &mut World, manager: &str, instead: bool) {
    let record = world.record.clone().unwrap();
    let Seen::Live(objects) = &mut world.inside else { return };
    for entry in record.inventory.iter().filter(|entry| kinds::of(entry.kind.id()).shared) {
        let Identity::Object(object) = &entry.identity else { continue };
        let entries = objects.get_mut(object).unwrap()["metadata"]["managedFields"].as_array_mut().unwrap();
        let mut other = entries[0].clone();
        other["manager"] = json!(manager);
        if instead {
            entries.clear();
        }
        entries.push(other);
    }
}

fn consent(text: &str) -> Approval {
    let (verb, address) = text.split_once(':').unwrap();
    let verb = match verb {
        "delete" => ApprovalVerb::Delete,
        "take" => ApprovalVerb::Adopt,
        "update" => ApprovalVerb::Update,
        _ => ApprovalVerb::Replace,
    };
    Approval { verb, address: Address::new(address) }
}

fn inputs<'a>(wanted: Lowered, sources: &'a Sources, world: &'a World, asked: &Asked) -> Inputs<'a> {
    let mode = if asked.destroy { Mode::Destroy } else { Mode::Apply };
    // By it they are found when the record is lost.
    let objects = wanted.resources.iter().filter(|one| matches!(one.identity, Identity::Object(_)));
    for object in objects {
        let label = &object.body["metadata"]["labels"]["app.kubernetes.io/managed-by"];
        assert!(label.is_string(), "{} has no label", object.address);
    }
    let mut inputs = Inputs {
        approved: asked.allow.iter().map(|text| consent(text)).collect(),
        replace: asked.replace.iter().map(Address::new).collect(),
        selection: Selection {
            targets: asked.stop.clone().unwrap_or_else(|| asked.target.clone()),
            excludes: asked.exclude.clone(),
        },
        retarget: asked.retarget,
        retry_capacity: asked.retry_capacity,
        when_idle: asked.when_idle,
        ..Inputs::of(wanted, mode, world, sources)
    };
    inputs.stop_state.request = match (&asked.stop, asked.start) {
        (Some(_), _) => StopRequest::Stop(Stop {
            by: "bob@desk".into(),
            since: "2026-11-23T18:00:00Z".into(),
            section: None,
        }),
        (None, true) => StopRequest::Start,
        (None, false) => StopRequest::Leave,
    };
    inputs
}

#[derive(Clone, Default)]
struct Page(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

impl std::io::Write for Page {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The plan as people see it, and under it the calls that apply would send.
fn shown(plan: &Plan, sources: &Sources) -> String {
    let page = Page::default();
    let screen = Screen::new(
        Stream::plain(Box::new(page.clone()), 100),
        Stream::plain(Box::new(Page::default()), 100),
    );
    let mut human = Human::new(screen, Detail::Sections, "dask-infra".to_owned());
    human.plan(plan, &View { sources: Some(sources), next: Next::Apply });
    drop(human);
    let mut text = String::from_utf8(page.0.lock().unwrap().clone()).unwrap();
    text.push_str("\nCalls:\n");
    for change in plan.changes.iter().filter(|change| change.action != Action::Keep || change.is_waited_for())
    {
        let ways = change.fallback.iter().flat_map(|climb| {
            let rungs = climb.then.iter().map(|rung| (format!("  else {}:\n", rung.option), &rung.steps));
            rungs.chain([("  after the last way:\n".to_owned(), &climb.cleanup)])
        });
        for (heading, steps) in [(String::new(), &change.steps)].into_iter().chain(ways) {
            text.push_str(&heading);
            called(&mut text, steps);
        }
    }
    text
}

/// The steps of a program.
fn called(text: &mut String, steps: &[Step]) {
    for step in steps {
        match step {
            Step::Call(call) => {
                text.push_str(&format!("  {} {}\n", call.method.as_str(), call.path));
                let brief = call.body.as_ref().filter(|body| body.text().len() < 750);
                text.extend(brief.map(|body| format!("    {body}\n")));
            }
            Step::Await(wait) => {
                text.push_str(&format!("  await {:?} of {}\n", wait.until, wait.identity));
            }
            Step::ReadLog { pod, expect: Some(expect) } => {
                text.push_str(&format!("  read log of {pod}: {expect}\n"));
            }
            Step::ReadLog { pod, expect: None } => text.push_str(&format!("  read log of {pod}\n")),
            Step::RecordPass { .. } => text.push_str("  record the pass\n"),
        }
    }
}

/// What others changed, as people and as programs see it.
fn drifted(wanted: Lowered, sources: &Sources, world: &World, asked: &Asked) -> String {
    let (owner, target) = (wanted.owner.clone(), wanted.target.clone());
    let found = match drift(inputs(wanted, sources, world, asked)) {
        Ok(found) => found,
        Err(problems) => return diag::render(&problems, sources, Look::PLAIN),
    };
    let page = Page::default();
    let screen = |page: &Page| {
        Screen::new(Stream::plain(Box::new(page.clone()), 100), Stream::plain(Box::new(Page::default()), 100))
    };
    Human::new(screen(&page), Detail::Sections, "dask-infra".to_owned()).drift(&found, &owner, &target);
    Json::new(screen(&page), || jiff::Timestamp::UNIX_EPOCH).drift(&found, &owner, &target);
    let text = page.0.lock().unwrap().clone();
    String::from_utf8(text).unwrap()
}

/// A plan or why there is none, and the sources that it speaks of.
pub type Planned = (Result<Plan, Vec<diag::Diagnostic>>, Sources);

/// A case, ready to be planned.
struct Case {
    asked: Asked,
    world: World,
    wanted: Lowered,
    sources: Sources,
}

impl Case {
    fn read(folder: &Path) -> Self {
        let asked: Asked = fs::read_to_string(folder.join("options.json"))
            .map_or_else(|_| Asked::default(), |text| serde_json::from_str(&text).unwrap());
        let mut world =
            read(&folder.join("before.toml")).map_or_else(World::empty, |(before, _)| settled(&before));
        for (manager, instead) in [(&asked.also_applied_by, false), (&asked.applied_instead_by, true)] {
            if let Some(manager) = manager {
                share(&mut world, manager, instead);
            }
        }
        let (mut wanted, sources) = read(&folder.join("stack.toml")).unwrap();
        wanted.target.simulated = !asked.for_google;
        let bodies = wanted.resources.iter().map(|resource| &resource.body);
        world.given = Given::read(bodies, |name| asked.environment.get(name).cloned());
        if let Seen::Live(objects) = &mut world.inside {
            objects.values_mut().for_each(|live| *live = world.given.filled(live));
        }
        if let Ok(text) = fs::read_to_string(folder.join("live.json")) {
            overlay(&mut world, &serde_json::from_str(&text).unwrap());
        }
        for entry in world.record.iter_mut().flat_map(|record| &mut record.inventory) {
            entry.ready = Some(!asked.half_made.contains(&entry.address.to_string()));
        }
        if asked.without_record {
            world.record = None;
        }
        Self { asked, world, wanted, sources }
    }

    fn plan(self, folder: &Path) -> Planned {
        let Self { asked, world, wanted, sources } = self;
        let Some((address, number, kept)) = &asked.scale else {
            return (plan(inputs(wanted, &sources, &world, &asked)), sources);
        };
        let address = Address::new(address);
        let found = wanted.resources.iter().find(|resource| resource.address == address).unwrap();
        let scaled = &(kinds::of(found.kind).scaled)(found, &wanted.resources).unwrap();
        let (wanted, scaled_sources) = read_with(&folder.join("stack.toml"), &scaled.place, *number);
        let asked = Asked { target: vec![address.to_string()], ..Asked::default() };
        let wish = plan::scale::Wish { address: &address, scaled, number: *number, kept: *kept };
        (plan::scale::scale(inputs(wanted, &scaled_sources, &world, &asked), &wish), sources)
    }
}

/// What a case makes of its stack.
pub fn planned(folder: &Path) -> Planned {
    Case::read(folder).plan(folder)
}

/// What the cases make of their stacks, once for all tests: it takes a while. `None` where drift alone is asked for.
static PLANNED: LazyLock<Vec<(PathBuf, Option<Planned>)>> = LazyLock::new(|| {
    let planned = |folder: PathBuf| {
        let case = Case::read(&folder);
        let made = (!case.asked.refresh_only).then(|| case.plan(&folder));
        (folder, made)
    };
    cases("plan-").into_iter().map(planned).collect()
});

/// The plans of the cases, each with its name.
pub fn planned_cases() -> impl Iterator<Item = (String, &'static Plan)> {
    PLANNED.iter().filter_map(|(folder, made)| {
        let (Ok(plan), _) = made.as_ref()? else { return None };
        Some((folder.file_name()?.to_string_lossy().into_owned(), plan))
    })
}

fn case((folder, made): &(PathBuf, Option<Planned>)) -> Result<(), String> {
    match made {
        None => {
            let Case { asked, world, wanted, sources } = Case::read(folder);
            golden(&folder.join("drift.txt"), &drifted(wanted, &sources, &world, &asked))
        }
        Some((Ok(plan), sources)) => {
            let missing = plan.missing_approvals(&[]);
            let consents: String =
                missing.iter().map(|c| format!("needs consent: {:?} {}\n", c.verb, c.address)).collect();
            golden(&folder.join("plan.txt"), &format!("{}{consents}", shown(plan, sources)))
        }
        Some((Err(problems), sources)) => {
            golden(&folder.join("diag.txt"), &diag::render(problems, sources, Look::PLAIN))
        }
    }
}

#[test]
fn plans() {
    let failures: Vec<String> = PLANNED.iter().filter_map(|planned| case(planned).err()).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(PLANNED.len() >= 10, "{} cases", PLANNED.len());
}

/// What goes by requests of its own stands where it is done: after what must be gone before it.
#[test]
fn deletes_stand_in_the_order_in_which_they_happen() {
    let (mut pairs, mut wrong) = (0, Vec::new());
    for (case, plan) in planned_cases() {
        let goes = |change: &plan::Change| change.action == Action::Delete && !change.steps.is_empty();
        for (place, after) in plan.changes.iter().enumerate().filter(|(_, change)| goes(change)) {
            for before in plan.before(after).filter(|before| goes(&plan.changes[*before])) {
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
        plan.before(cluster).map(|place| plan.changes[place].address.as_str()).collect();
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
        plan::spare(&mut world, Mode::Destroy, &wanted.external);
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
            let mut before: BTreeSet<usize> = plan.before(check).collect();
            let mut open: Vec<usize> = before.iter().copied().collect();
            while let Some(place) = open.pop() {
                open.extend(plan.before(&plan.changes[place]).filter(|further| before.insert(*further)));
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
        let again = plan(plan::file::again(&saved, &later, &sources));
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

pub fn ready() -> (Lowered, Sources) {
    read(&root().join("stacks/rapids-gke/stack.toml")).unwrap()
}

pub fn ready_plan(world: &World) -> Plan {
    let (wanted, sources) = ready();
    plan(inputs(wanted, &sources, world, &Asked::default())).unwrap()
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
    assert!(!plan::file::moved(&made, &settled).is_empty());
    assert_eq!(plan::file::moved(&made, &made), Vec::<String>::new());
}

#[test]
fn what_would_be_sent_fits_the_schemas() {
    let (wanted, sources) = ready();
    assert_eq!(stack::lower::check(&wanted.resources, &sources), []);
}
