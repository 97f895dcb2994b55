//! A saved plan is stale exactly when a fresh plan with the same flags differs, and what is done is what planning again
//! makes: never what only the file says.

use std::sync::Arc;

use dask_infra::cli::plan_file;
use model::address::FieldPath;
use model::resource::{Api, Call, Deferred, Method, Resource, Step};
use model::secrets::env_values::EnvValues;
use plan::review::dry_run::DryRuns;
use plan::{Action, Mode, Plan};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::planned;
use crate::props::cases::check;
use crate::props::harness::{Harness, Stack};
use crate::sandbox_server::{CommandOutput, SandboxServer, User};
use crate::world::settled;

const STACK: &str = "[stack]\nname = \"s\"\n\n[gke]\nproject = \"demo\"\nlocation = \"us-central1-c\"\n\n\
    [cluster]\nname = \"c\"\n\n[node_pool.p]\nmachine_type = \"e2-standard-4\"\n\n\
    [manifest.m]\nfile = \"m.yaml\"\n";
const OURS: &str = "/api/v1/namespaces/default/configmaps/a";
const THEIRS: &str = "/api/v1/namespaces/default/secrets/precious";

fn config(value: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{ name: a, namespace: default }}\ndata: {{ k: {value} }}\n"
    )
}

fn write(user: &User, name: &str, text: &str) {
    std::fs::write(user.path().join(name), text).unwrap();
}

/// A cluster with a pool and a ConfigMap, and a Secret of others.
fn applied_stack() -> (SandboxServer, User) {
    let served = SandboxServer::fast();
    let user = User::empty_at(&served.gke);
    write(&user, "stack.toml", STACK);
    write(&user, "m.yaml", &config("first"));
    user.run(&["apply", "--auto-approve"]).expect(0);
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "precious" } });
    assert_eq!(served.post("/api/v1/namespaces/default/secrets", &secret).0, 201);
    (served, user)
}

fn call(method: Method, path: &str, body: Value) -> Step {
    Step::Call(Call {
        api: Api::Kubernetes,
        method,
        path: path.to_owned(),
        body: Some(body.into()),
        deferred: Vec::new(),
    })
}

type Tamper = (&'static str, fn(&mut Plan));

/// Edits of a plan file by anybody who can write it; the digest is computed again each time.
const TAMPERS: &[Tamper] = &[
    ("a step more on what is updated", |plan| {
        let smuggled = call(Method::Delete, THEIRS, json!({}));
        update(plan).push(smuggled);
    }),
    ("a step before", |plan| {
        let smuggled = call(Method::Delete, THEIRS, json!({}));
        update(plan).insert(0, smuggled);
    }),
    ("a step of what is kept", |plan| {
        let kept = plan.changes.iter_mut().find(|change| change.action == Action::Keep).unwrap();
        kept.steps.push(call(Method::Delete, THEIRS, json!({})));
    }),
    ("another body", |plan| {
        let Some(Step::Call(call)) = update(plan).first_mut() else { panic!("no call") };
        let mut body = call.body.as_ref().unwrap().value();
        body["data"] = json!({ "k": "second", "smuggled": "x" });
        call.body = Some(body.into());
    }),
    ("another path", |plan| {
        let Some(Step::Call(call)) = update(plan).first_mut() else { panic!("no call") };
        call.path = call.path.replace("configmaps/a", "configmaps/b");
    }),
    ("a path that cuts off `dryRun=All`", |plan| {
        let Some(Step::Call(call)) = update(plan).first_mut() else { panic!("no call") };
        let mut body = call.body.as_ref().unwrap().value();
        body["data"] = json!({ "k": "smuggled" });
        body["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        call.body = Some(body.into());
        let path = call.path.split_once("&fieldValidation").unwrap().0;
        call.path = format!("{path}&force=true#");
    }),
    ("a value of the environment that the stack does not ask for", |plan| {
        let Some(Step::Call(call)) = update(plan).first_mut() else { panic!("no call") };
        let deferred = Deferred::Environment { variable: "PATH".to_owned(), digest: String::new() };
        // The path leads through a text.
        call.deferred.push((FieldPath::keys(["kind", "x"]), deferred));
        let wanted = plan.desired.iter().find(|resource| resource.body["kind"] == "ConfigMap").unwrap();
        let text = serde_json::to_string(wanted).unwrap().replace("ConfigMap", "Secret");
        let mut secret: Resource = serde_json::from_str(&text).unwrap();
        secret.body["data"] = json!({ "k": "env:PATH" });
        plan.desired = plan.desired.iter().cloned().chain([secret]).collect();
    }),
    ("another address", |plan| {
        let update = plan.changes.iter_mut().find(|change| change.action == Action::Update).unwrap();
        update.address = model::address::Address::new("manifest.harmless");
    }),
    ("another wish", |plan| {
        let desired = Arc::make_mut(&mut plan.desired);
        let wanted = desired.iter_mut().find(|resource| resource.body["kind"] == "ConfigMap").unwrap();
        wanted.body["data"]["smuggled"] = json!("x");
    }),
    ("a change that is not shown", |plan| {
        let wanted = plan.desired.iter().find(|resource| resource.body["kind"] == "ConfigMap").unwrap();
        let text = serde_json::to_string(wanted).unwrap().replace("\"a\"", "\"smuggled\"");
        let more = serde_json::from_str(&text).unwrap();
        plan.desired = plan.desired.iter().cloned().chain([more]).collect();
    }),
];

fn update(plan: &mut Plan) -> &mut Vec<Step> {
    &mut plan.changes.iter_mut().find(|change| change.action == Action::Update).unwrap().steps
}

#[test]
fn what_only_the_file_of_a_plan_says_is_never_done() {
    let (served, user) = applied_stack();
    write(&user, "m.yaml", &config("second"));
    user.run(&["plan", "--out", "good"]).expect(0);
    let version = served.get(OURS)["metadata"]["resourceVersion"].clone();
    for (what, tamper) in TAMPERS {
        let mut plan = plan_file::load(&user.path().join("good")).unwrap();
        tamper(&mut plan);
        plan_file::save(&user.path().join("bad"), &plan).unwrap();
        let CommandOutput { code, err, .. } = user.run(&["apply", "bad"]);
        assert_eq!(code, 4, "{what}: {err}");
        assert_eq!(served.code(THEIRS), 200, "{what}");
        assert_eq!(served.get(OURS)["data"], json!({ "k": "first" }), "{what}");
        assert_eq!(served.get(OURS)["metadata"]["resourceVersion"], version, "{what}");
    }
    user.run(&["apply", "good"]).expect(0).says("1 changed");
    assert_eq!(served.get(OURS)["data"], json!({ "k": "second" }));
}

#[test]
fn what_moves_by_itself_makes_no_plan_stale() {
    let (served, user) = applied_stack();
    served.merge(OURS, &json!({ "data": { "k": "by hand" } }));
    user.run(&["plan", "--out", "plan"]).expect(0).says("by hand");
    let before = served.get(OURS)["metadata"]["resourceVersion"].clone();
    served.merge(OURS, &json!({ "metadata": { "annotations": { "of": "others" } } }));
    assert_ne!(served.get(OURS)["metadata"]["resourceVersion"], before);
    user.run(&["apply", "plan"]).expect(0).says("1 changed");
    assert_eq!(served.get(OURS)["data"]["k"], "first");
    assert_eq!(served.get(OURS)["metadata"]["annotations"]["of"], "others");

    served.merge(OURS, &json!({ "data": { "k": "by hand" } }));
    user.run(&["plan", "--out", "plan"]).expect(0);
    served.merge(OURS, &json!({ "data": { "k": "by another hand" } }));
    user.run(&["apply", "plan"]).expect(4).says("by another hand");
    assert_eq!(served.get(OURS)["data"]["k"], "by another hand");
}

/// The dry run of what only the file says would end as a refusal, with exit code 1.
#[test]
fn a_plan_whose_object_was_edited_since_is_stale_before_it_is_tried() {
    let (served, user) = applied_stack();
    write(&user, "m.yaml", &config("second"));
    user.run(&["plan", "--out", "plan"]).expect(0);
    let path = format!("{OURS}?fieldManager=kubectl-edit");
    assert_eq!(served.merge(&path, &json!({ "data": { "k": "by hand" } })).0, 200);
    user.run(&["apply", "plan"]).expect(4).says("plan is stale").says("by hand");
    assert_eq!(served.get(OURS)["data"]["k"], "by hand");
}

#[test]
fn what_was_asked_for_by_flags_is_in_the_plan() {
    let served = SandboxServer::fast();
    let user = User::with_ready_stack(Some(&served.gke));
    let part = ["apply", "--auto-approve", "--target", "check.cuda"];
    user.run(&part).expect(0);
    // A check that has passed runs again when it is asked for, also from a file.
    let words = ["plan", "--replace", "check.cuda", "--target", "check.cuda", "--out", "plan"];
    user.run(&words).expect(0).says("1 check to run");
    user.run(&["apply", "plan"]).expect(0).says("check.cuda");
    user.run(&["apply", "--auto-approve"]).expect(0);
    // A wait that was agreed to is part of what is done.
    user.edit("base:25.04", "base:25.06");
    let allow = "replace:dask_cluster.rapids-dask-cluster";
    let service = "/api/v1/namespaces/default/services/rapids-dask-cluster-scheduler";
    let busy = json!({ "metadata": { "annotations": { "sandbox.dask-infra.dev/tasks": "3" } } });
    assert_eq!(served.merge(service, &busy).0, 200);
    let words = ["plan", "--when-idle", "--wait", "1s", "--allow", allow, "--out", "plan"];
    user.run(&words).expect(0).says("waits until it is idle, at most 1s");
    user.run(&["apply", "plan"]).expect(6).says("3 tasks running");
}

#[test]
fn a_cluster_that_came_up_elsewhere_since_is_seen() {
    let served = SandboxServer::fast();
    let user = User::empty_at(&served.gke);
    write(&user, "stack.toml", STACK);
    write(&user, "m.yaml", &config("first"));
    user.run(&["plan", "--out", "plan"]).expect(0);
    user.run(&["plan", "--retarget", "--out", "meant"]).expect(0);
    user.edit("us-central1-c", "us-central1-a");
    user.run(&["apply", "--auto-approve"]).expect(0);
    std::fs::remove_file(user.path().join("stack.toml")).unwrap();
    user.run(&["apply", "plan"]).expect(3).says("DI0310");
    user.run(&["apply", "meant"]).expect(0);
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_has_recovered_is_not_made_anew() {
    let stack = Stack::of(
        "[stack]\nname = \"s\"\n\n[gke]\nproject = \"demo\"\nlocation = \"us-central1-c\"\n\n[cluster]\nname = \"c\"\n\n\
         [node_pool.p]\nmachine_type = \"e2-standard-4\"\n\n[node_pool.gpu]\nmachine_type = \"n1-standard-4\"\n\
         accelerator = \"nvidia-tesla-t4\"\n",
    );
    let harness = Harness::new();
    let first = harness.plan(&stack, Mode::Apply).await.unwrap();
    harness.apply(&stack, &first, Vec::new(), None).await;
    // As it was when the pool had met a stock-out and GKE went on trying.
    let mut world = harness.world_of(&stack).await.unwrap();
    world.pools.get_mut("gpu").unwrap()["status"] = json!("ERROR");
    let saved = plan::plan(plan::file::replan_inputs(&first, &world, stack.sources())).unwrap();
    let gpu = |plan: &Plan| {
        plan.changes.iter().find(|change| change.address.as_str() == "node_pool.gpu").unwrap().action
    };
    assert_eq!(gpu(&saved), Action::Replace);
    let now = harness.plan_again(&stack, &saved).await.unwrap();
    assert_eq!(gpu(&now), Action::Keep);
    assert_eq!(plan::file::stale_changes(&saved, &now), ["node_pool.gpu: planned: replaced; now: kept"]);

    // Asked for is asked for, whatever its status.
    let mut asked = harness.plan(&stack, Mode::Apply).await.unwrap();
    asked.replace = vec![model::address::Address::new("node_pool.gpu")];
    let asked = harness.plan_again(&stack, &asked).await.unwrap();
    assert_eq!(gpu(&asked), Action::Replace);
    let now = harness.plan_again(&stack, &asked).await.unwrap();
    assert_eq!(plan::file::stale_changes(&asked, &now), Vec::<String>::new());
}

/// GKE gives a pool no id, and its link is its name: the instance groups behind it tell one from the next.
#[tokio::test(start_paused = true)]
async fn a_pool_of_the_same_name_is_another_one() {
    let text = "[stack]\nname = \"s\"\n\n[gke]\nproject = \"demo\"\nlocation = \"us-central1-c\"\n\n[cluster]\nname = \"c\"\n\n\
         [node_pool.p]\nmachine_type = \"e2-standard-4\"\nlabels = { team = \"a\" }\n";
    let stack = Stack::of(text);
    let harness = Harness::new();
    let first = harness.plan(&stack, Mode::Apply).await.unwrap();
    harness.apply(&stack, &first, Vec::new(), None).await;
    let other = Stack::of(&text.replace("team = \"a\"", "team = \"b\""));
    for (stack, replace, action) in
        [(&other, None, Action::Update), (&stack, Some("node_pool.p"), Action::Replace)]
    {
        let mut saved = harness.plan(stack, Mode::Apply).await.unwrap();
        saved.replace = replace.map(model::address::Address::new).into_iter().collect();
        let saved = harness.plan_again(stack, &saved).await.unwrap();
        let pool = |plan: &Plan| {
            plan.changes.iter().find(|change| change.address.as_str() == "node_pool.p").unwrap().action
        };
        assert_eq!(pool(&saved), action);
        let mut world = harness.world_of(stack).await.unwrap();
        let same = plan::plan(plan::file::replan_inputs(&saved, &world, stack.sources())).unwrap();
        assert_eq!(plan::file::stale_changes(&saved, &same), Vec::<String>::new());
        // Deleted and made again by somebody, to the letter.
        let groups = &mut world.pools.get_mut("p").unwrap()["instanceGroupUrls"];
        assert!(groups[0].is_string(), "{groups}");
        *groups = json!([
            "https://www.googleapis.com/compute/v1/projects/demo/zones/us-central1-c/instanceGroupManagers/gke-new"
        ]);
        let now = plan::plan(plan::file::replan_inputs(&saved, &world, stack.sources())).unwrap();
        let moved = plan::file::stale_changes(&saved, &now);
        assert_eq!(moved, ["node_pool.p: it was replaced by another one of the same name, or changed"]);
    }
}

/// A change of some value of a plan file: the way to it, and what stands there instead.
#[derive(Clone, Debug)]
struct Mutation {
    way: Vec<u16>,
    with: usize,
}

impl std::fmt::Display for Mutations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

#[derive(Clone, Debug)]
struct Mutations(Vec<Mutation>);

fn mutate(value: &mut Value, Mutation { way, with }: &Mutation) {
    let mut at = value;
    for step in way {
        let count = match &*at {
            Value::Object(table) => table.len(),
            Value::Array(items) => items.len(),
            _ => 0,
        };
        if count == 0 {
            break;
        }
        let place = usize::from(*step) % count;
        at = match at {
            Value::Object(table) => table.values_mut().nth(place).unwrap(),
            Value::Array(items) => &mut items[place],
            _ => unreachable!(),
        };
    }
    let others = [
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(1.5e300),
        json!(""),
        json!("x"),
        json!("labels[x"),
        json!("\u{202e}\u{1b}[2J"),
        json!([]),
        json!({}),
        json!([[{ "a": "b" }]]),
    ];
    *at = others[with % others.len()].clone();
}

#[test]
fn any_plan_file_is_read_or_refused_and_never_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan");
    let (lowered, sources) = planned::ready();
    let worlds = [model::resource::World::empty(), settled(&lowered)];
    let good: Vec<Plan> = worlds.iter().map(planned::ready_plan).collect();
    let texts: Vec<Value> = good.iter().map(|plan| json!(plan)).collect();
    let mutation = (prop::collection::vec(any::<u16>(), 1..12), 0..12usize);
    let mutation = mutation.prop_map(|(way, with)| Mutation { way, with });
    let cases = prop::collection::vec(mutation, 1..4).prop_map(Mutations).boxed();
    check("plan files", 60, cases, |Mutations(mutations)| {
        for text in &texts {
            let mut value = text.clone();
            mutations.iter().for_each(|mutation| mutate(&mut value, mutation));
            let Ok(plan) = serde_json::from_value::<Plan>(value) else { continue };
            plan_file::save(&path, &plan).map_err(|problem| problem.message)?;
            let Ok(plan) = plan_file::load(&path) else { continue };
            DryRuns::of(&plan, Some(&EnvValues::default()));
            for world in &worlds {
                let now = plan::plan(plan::file::replan_inputs(&plan, world, &sources));
                now.map(|now| plan::file::stale_changes(&plan, &now)).ok();
            }
        }
        // As bytes: cut off, and with a byte that is another one.
        let bytes = texts[0].to_string().into_bytes();
        let at = mutations.iter().map(|mutation| usize::from(mutation.way[0]) * 97 % bytes.len());
        for at in at {
            std::fs::write(&path, &bytes[..at]).unwrap();
            plan_file::load(&path).err().ok_or("half a plan is read")?;
            let mut other = bytes.clone();
            other[at] ^= 0x55;
            std::fs::write(&path, other).unwrap();
            plan_file::load(&path).err().ok_or("no digest, and read")?;
        }
        Ok(())
    });
}

#[cfg(unix)]
#[test]
fn a_saved_plan_is_its_owners_alone() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let folder = tempfile::tempdir().unwrap();
    let (path, victim) = (folder.path().join("plan"), folder.path().join("victim"));
    std::fs::write(&victim, "theirs").unwrap();
    symlink(&victim, &path).unwrap();
    // A link at a predictable place was once followed and its target truncated.
    let beside = folder.path().join(format!(".plan.{}", std::process::id()));
    symlink(&victim, &beside).unwrap();
    plan_file::save(&path, &planned::ready_plan(&model::resource::World::empty())).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "theirs");
}
