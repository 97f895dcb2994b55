//! "Off" is a value: every `false`, empty, `none` or other plain form of every key of `[cluster]` and `[node_pool]` that the
//! schema of stacks has is applied on the sandbox, when the cluster is created and as a change of a live one, and the next
//! plan is empty.

use std::collections::BTreeSet;

use apply::Outcome;
use model::resource::Action;
use plan::{Mode, Plan};
use serde_json::{Map, Value, json};

use crate::golden::root;
use crate::props::harness::{Harness, Stack};

/// Keys that have no plain form: text that names something, numbers in bounds of their own, and tables with required keys.
/// And keys that say nothing to GKE about the thing itself, or close the way in.
const NONE: [&str; 28] = [
    "cluster.api",
    "cluster.autopilot",
    "cluster.enabled",
    "cluster.endpoint",
    "cluster.fleet",
    "cluster.ip_endpoints",
    "cluster.manage",
    "cluster.max_pods_per_node",
    "cluster.name",
    "cluster.network",
    "cluster.notification_topic",
    "cluster.pods_range",
    "cluster.secrets_key",
    "cluster.services_range",
    "cluster.subnetwork",
    "cluster.version",
    "node_pool.accelerator",
    "node_pool.api",
    "node_pool.boot_disk_key",
    "node_pool.disk_type",
    "node_pool.driver",
    "node_pool.enabled",
    "node_pool.image_type",
    "node_pool.machine_type",
    "node_pool.manage",
    "node_pool.max_run_duration",
    "node_pool.name",
    "node_pool.surge",
];

/// One form of a key.
#[derive(Clone, Debug)]
struct Form {
    section: &'static str,
    key: String,
    value: Value,
}

impl Form {
    fn name(&self) -> String {
        format!("{}.{}", self.section, self.key)
    }
}

/// Plain forms of a value of a schema: `false`, the least number, the empty text, list or table, every word of a choice,
/// and tables with one key in each of its plain forms.
fn forms(node: &Value, definitions: &Value) -> Vec<Value> {
    if let Some(name) = node["$ref"].as_str() {
        let name = name.rsplit('/').next().unwrap();
        return forms(&definitions[name], definitions);
    }
    let mut found = Vec::new();
    for list in ["allOf", "anyOf", "oneOf"] {
        let inner = node[list].as_array().into_iter().flatten();
        found.extend(inner.flat_map(|node| forms(node, definitions)));
    }
    found.extend(node.get("const").cloned());
    found.extend(node["enum"].as_array().into_iter().flatten().cloned());
    let types = match &node["type"] {
        Value::Array(types) => types.clone(),
        one => vec![one.clone()],
    };
    for ty in types.iter().filter_map(Value::as_str) {
        match ty {
            "boolean" => found.push(json!(false)),
            "integer" => found.push(node.get("minimum").cloned().unwrap_or(json!(0))),
            // References stand beside the type that they give.
            "string" if types.len() == 1 && node.get("pattern").is_none() => found.push(json!("")),
            "array" => found.push(json!([])),
            "object" => {
                found.push(json!({}));
                for (key, node) in node["properties"].as_object().into_iter().flatten() {
                    found.extend(forms(node, definitions).into_iter().map(|value| json!({ key: value })));
                }
            }
            _ => {}
        }
    }
    found
}

fn all() -> Vec<Form> {
    let text = std::fs::read_to_string(root().join("schemas/stack.schema.json")).unwrap();
    let schema: Value = serde_json::from_str(&text).unwrap();
    let definitions = &schema["definitions"];
    let mut all = Vec::new();
    for (section, name) in [("cluster", "Cluster"), ("node_pool", "NodePool")] {
        for (key, node) in definitions[name]["properties"].as_object().unwrap() {
            // An empty text names nothing.
            let forms =
                forms(node, definitions).into_iter().filter(|value| !value.to_string().contains("\"\""));
            all.extend(forms.map(|value| Form { section, key: key.clone(), value }));
        }
    }
    // Overlays take keys away with `unset`. The driver of persistent disks is on in a new cluster whatever was asked for
    // (recorded), so that only the apply after it switches it off.
    let disks = json!({ "persistent_disk_csi": false });
    all.retain(|form| form.key != "unset" && form.value != disks && !NONE.contains(&&*form.name()));
    all
}

/// A cluster and its pool, as far as the forms that it takes allow.
#[derive(Clone)]
struct File {
    cluster: Map<String, Value>,
    pool: Map<String, Value>,
}

impl File {
    fn bare() -> Self {
        let of = |value: Value| value.as_object().cloned().unwrap();
        Self {
            cluster: of(json!({ "name": "c" })),
            pool: of(json!({ "machine_type": "n2-standard-4", "nodes": { "min": 0, "max": 2 } })),
        }
    }

    fn with(&self, form: &Form) -> Option<Self> {
        let mut next = self.clone();
        let section = if form.section == "cluster" { &mut next.cluster } else { &mut next.pool };
        if form.key != "nodes" && section.contains_key(&form.key) {
            return None;
        }
        section.insert(form.key.clone(), form.value.clone());
        // Nodes may stay as they are outside of a channel only.
        if form.key == "auto_upgrade" {
            let channel = next.cluster.entry("release_channel").or_insert(json!("none"));
            return (*channel == "none").then_some(next);
        }
        Some(next)
    }

    fn stack(&self) -> Result<Stack, String> {
        let whole = json!({
            "stack": { "name": "off" },
            "gke": { "project": "demo", "location": "us-central1-c" },
            "cluster": self.cluster,
            "node_pool": { "system": { "machine_type": "e2-standard-4" }, "x": self.pool },
        });
        let text = toml::to_string(&toml::Value::try_from(whole).unwrap()).unwrap();
        Stack::load(std::path::Path::new(""), &text)
    }
}

/// As few stacks as take all forms that a stack can have, and the keys that none of them has.
fn stacks() -> (Vec<(File, Stack)>, BTreeSet<String>) {
    let mut left = all();
    let mut missing: BTreeSet<String> = left.iter().map(Form::name).collect();
    left.retain(|form| File::bare().with(form).is_some_and(|file| file.stack().is_ok()));
    let mut found = Vec::new();
    while !left.is_empty() {
        let mut file = File::bare();
        let before = left.len();
        left.retain(|form| {
            let Some(next) = file.with(form).filter(|next| next.stack().is_ok()) else { return true };
            missing.remove(&form.name());
            file = next;
            false
        });
        assert!(left.len() < before, "{left:?}");
        let stack = file.stack().unwrap();
        found.push((file, stack));
    }
    (found, missing)
}

/// The fields that a plan changes.
fn changed_fields(plan: &Plan) -> Vec<String> {
    let fields = plan.changes.iter().filter(|change| change.action != Action::Keep);
    fields.map(|change| format!("{} {:?} {:#?}", change.address, change.action, change.fields)).collect()
}

async fn settles(harness: &Harness, stack: &Stack, what: &str) -> Vec<String> {
    let plan = match harness.plan(stack, Mode::Apply).await {
        Ok(plan) => plan,
        Err(why) => return vec![format!("{what}: {why}")],
    };
    let ended = harness.apply(stack, &plan, Vec::new(), None).await;
    let outcomes = ended.summary.iter().flat_map(|summary| &summary.outcomes);
    let failed = outcomes.filter(|(_, outcome, _)| *outcome != Outcome::Done);
    let failed: Vec<String> = failed
        .map(|(place, outcome, _)| format!("{what}: {}: {outcome:?}", plan.changes[*place].address))
        .collect();
    if !failed.is_empty() {
        return failed;
    }
    match harness.plan(stack, Mode::Apply).await {
        Ok(again) => changed_fields(&again).into_iter().map(|change| format!("{what}: {change}")).collect(),
        Err(why) => vec![format!("{what}: {why}")],
    }
}

#[tokio::test(start_paused = true)]
async fn the_plan_after_an_apply_of_every_plain_form_of_every_key_is_empty() {
    let (stacks, missing) = stacks();
    assert_eq!(missing, BTreeSet::new(), "keys of which no plain form can stand in a stack");
    let mut wrong = Vec::new();
    let live = Harness::empty();
    wrong.extend(settles(&live, &File::bare().stack().unwrap(), "bare").await);
    for (number, (file, stack)) in stacks.iter().enumerate() {
        let says = json!({ "cluster": file.cluster, "pool": file.pool });
        wrong.extend(settles(&Harness::empty(), stack, &format!("create {number} {says}")).await);
        wrong.extend(settles(&live, stack, &format!("change {number} {says}")).await);
    }
    println!("{} stacks", stacks.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
