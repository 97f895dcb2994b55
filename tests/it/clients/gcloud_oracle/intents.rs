//! The intents of `intents.toml` and the configurations of `terraform.toml`, and what we send for them.

use std::collections::BTreeMap;
use std::path::Path;

use model::diag::{self, Look};
use model::resource::{Api, Call, JsonText, Seen, Step, World};
use model::source::Sources;
use plan::{Action, Inputs, Mode, Plan, plan};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use stack::lower::{Lowered, lower};
use stack::{Options, parse_in};

use super::{Request, fake_gke};
use crate::golden::root;
use crate::world::{merge, settled};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    /// The sections that all stacks have.
    standard: Value,
    /// The pool of a cluster that is made, and of one that is there.
    first_pool: Value,
    /// Abbreviations for the beginning of a command.
    #[serde(default)]
    words: BTreeMap<String, String>,
    /// Fields that Terraform's provider sends for every cluster, and for every pool.
    #[serde(default)]
    every_cluster: Map<String, Value>,
    #[serde(default)]
    every_pool: Map<String, Value>,
    intent: Vec<Intent>,
}

/// One meaning, said twice.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Intent {
    pub name: String,
    /// The words after `gcloud container`, without cluster and location. `FILES/` is where `files` are.
    #[serde(default)]
    gcloud: String,
    /// The arguments of Terraform's resource, for who reads this.
    #[serde(default)]
    arguments: String,
    /// The cluster or the pool that Terraform's provider sends for them.
    #[serde(default)]
    pub terraform: Map<String, Value>,
    /// Files that the command reads.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// True if the cluster exists before.
    #[serde(default = "yes")]
    pub exists: bool,
    /// The stack's values before and after, beside the standard.
    #[serde(default = "nothing")]
    before: Value,
    /// The stack's values after, beside those before.
    #[serde(default = "nothing")]
    after: Value,
    /// Keys with the meaning of the `api` of `after`.
    #[serde(default)]
    keys: Option<Value>,
    /// Keys that are removed.
    #[serde(default)]
    without: Vec<String>,
    /// GKE's additional values of cluster and pools.
    #[serde(default = "nothing")]
    live: Value,
    /// The whole stack goes.
    #[serde(default)]
    destroy: bool,
    #[serde(skip)]
    standard: Value,
}

/// Behind the name of an intent that is said by keys.
const BY_KEY: &str = "-by-key";

/// The cluster that is there before, and the plan; or why there is none.
pub type IntentPlan = Result<(Option<Value>, Plan), String>;

fn yes() -> bool {
    true
}

fn nothing() -> Value {
    json!({})
}

/// All of a table.
pub fn all(text: &str) -> Vec<Intent> {
    let Table { standard, first_pool, words, every_cluster, every_pool, intent: mut intents } =
        toml::from_str(text).unwrap();
    for intent in &mut intents {
        assert!(intent.gcloud.is_empty() != intent.arguments.is_empty(), "{} is said by nobody", intent.name);
        let every = if intent.exists { &every_pool } else { &every_cluster };
        for (key, value) in every {
            intent.terraform.entry(key).or_insert_with(|| value.clone());
        }
        intent.standard = standard.clone();
        let first = intent.gcloud.split(' ').next().unwrap_or_default();
        if let Some(words) = words.get(first) {
            intent.gcloud = intent.gcloud.replacen(first, words, 1);
        }
        let pool = if intent.exists { "n" } else { "default-pool" };
        intent.standard["node_pool"] = json!({ pool: first_pool });
    }
    intents
        .into_iter()
        .flat_map(|mut intent| [intent.said_by_keys(), Some(intent)].into_iter().rev().flatten())
        .collect()
}

/// Takes `api` out of the sections of a stack.
fn without_api(stack: &mut Value) {
    let pools = stack.get_mut("node_pool").and_then(Value::as_object_mut);
    let pools = pools.into_iter().flat_map(Map::values_mut);
    pools.filter_map(Value::as_object_mut).for_each(|pool| drop(pool.remove("api")));
    if let Some(cluster) = stack.get_mut("cluster").and_then(Value::as_object_mut) {
        cluster.remove("api");
    }
}

impl Intent {
    /// Returns the intent with keys in place of `api`.
    fn said_by_keys(&mut self) -> Option<Self> {
        let keys = self.keys.take()?;
        let mut twin = self.clone();
        without_api(&mut twin.after);
        assert_ne!(twin.after, self.after, "{}: nothing to say by keys", self.name);
        merge(&mut twin.after, &keys);
        Some(Self { name: format!("{}{BY_KEY}", self.name), ..twin })
    }

    /// Returns true if this is another intent, stated by keys: gcloud need not run twice.
    pub fn says_by_key(&self, other: &Self) -> bool {
        self.name.strip_suffix(BY_KEY) == Some(&other.name)
    }

    /// Writes the files that the command reads into a folder, and returns all words of it.
    pub fn command(&self, folder: &Path) -> String {
        for (name, text) in &self.files {
            std::fs::write(folder.join(name), text).unwrap();
        }
        self.words(&folder.display().to_string())
    }

    /// Returns all words of the command, whose files are in `folder`.
    pub fn words(&self, folder: &str) -> String {
        let stack = self.stack(&[&self.before, &self.after]);
        let place = stack["gke"]["location"].as_str().unwrap();
        let cluster = if self.gcloud.starts_with("node-pools") { "--cluster c" } else { "" };
        let words = self.gcloud.replace("FILES", folder);
        format!("container {words} {cluster} --location {place}")
    }

    fn stack(&self, parts: &[&Value]) -> Value {
        let mut stack = self.standard.clone();
        parts.iter().for_each(|part| merge(&mut stack, part));
        stack
    }

    /// Itself, with what is made of it.
    pub fn planned(self) -> (Self, IntentPlan) {
        let made = self.plan();
        (self, made)
    }

    fn plan(&self) -> IntentPlan {
        let mut world = World::empty();
        if self.exists {
            world = self.world(&read(&self.stack(&[&self.before]))?.0);
        }
        let mut after = self.stack(&[&self.before, &self.after]);
        self.without.iter().for_each(|place| remove(&mut after, place));
        let (wanted, sources) = read(&after)?;
        let mode = if self.destroy { Mode::Destroy } else { Mode::Apply };
        let made = plan(Inputs::of(wanted, mode, &world, &sources))
            .map_err(|problems| diag::render(&problems, &sources, Look::PLAIN))?;
        Ok((world.cluster.live().cloned(), made))
    }

    /// Returns the world for both: the state after an undisturbed apply, and the values that the intent sets for GKE.
    fn world(&self, before: &Lowered) -> World {
        let mut world = settled(before);
        let Seen::Live(cluster) = &mut world.cluster else { panic!("{}: no cluster", self.name) };
        let sized = |(name, pool): (&String, &Value)| {
            let mut pool = pool.clone();
            if let Some(live) = self.live.get(name) {
                merge(&mut pool, live);
            }
            pool
        };
        cluster["nodePools"] = world.pools.iter().map(sized).collect();
        if let Some(live) = self.live.get("cluster") {
            merge(cluster, live);
        }
        fake_gke::dress(cluster);
        for pool in cluster["nodePools"].as_array().into_iter().flatten() {
            world.pools.insert(pool["name"].as_str().unwrap().to_owned(), pool.clone());
        }
        world
    }
}

fn remove(stack: &mut Value, place: &str) {
    let (parent, key) = place.rsplit_once('.').unwrap_or(("", place));
    let pointer = if parent.is_empty() { String::new() } else { format!("/{}", parent.replace('.', "/")) };
    let table = stack.pointer_mut(&pointer).and_then(Value::as_object_mut);
    assert!(table.is_some_and(|table| table.remove(key).is_some()), "{place} is not there");
}

fn read(stack: &Value) -> Result<(Lowered, Sources), String> {
    let text = toml::to_string(stack).unwrap();
    let (vars, env) = (BTreeMap::new(), |_: &str| None);
    match parse_in(&root(), "stack.toml", &text, &Options { env: &env, vars: &vars, helm: None }) {
        Ok(loaded) => Ok((lower(&loaded.stack, true), loaded.sources)),
        Err(failure) => Err(diag::render(&failure.diagnostics, &failure.sources, Look::PLAIN)),
    }
}

/// The writes of a plan to GKE, in its order, with what is known only when they are sent.
pub fn writes(plan: &Plan, cluster: Option<&Value>) -> Vec<Request> {
    let changes = plan.changes.iter().filter(|change| change.action != Action::Keep);
    let calls = changes.flat_map(|change| &change.steps).filter_map(|step| match step {
        Step::Call(call) if call.api == Api::Gke => Some(call),
        Step::Call(_) | Step::Await(_) | Step::ReadLog { .. } | Step::RecordCompletion { .. } => None,
    });
    calls.map(|call| request(call, cluster)).collect()
}

fn request(call: &Call, cluster: Option<&Value>) -> Request {
    let mut body = call.body.as_ref().map(JsonText::value).unwrap_or_default();
    if !call.deferred.is_empty() {
        body["labelFingerprint"] = cluster.map_or(json!("f"), |cluster| cluster["labelFingerprint"].clone());
    }
    Request::new(call.method.as_str(), &call.path, body)
}
