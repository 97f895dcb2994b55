//! Strategies: a stack as sections that can be taken away one by one, edits of it, and what others do. The names are
//! few, so that what is generated meets.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::gke_keys::{self, Keys};
use super::script::{Edit, Others};
use super::snapshot::{OTHERS, OTHERS_LABEL};

/// Namespaces that sections live in. The first needs no section; the last is the operator's own.
pub const NAMESPACES: [&str; 4] = ["default", "team", "lab", "dask-operator"];
/// Where the operator may run.
const OPERATORS: [&str; 3] = ["dask-operator", "dask-operator-2", "team"];
const IMAGES: [&str; 2] = [
    "nvcr.io/nvidia/rapidsai/base:25.04-cuda12.8-py3.12",
    "nvcr.io/nvidia/rapidsai/base:25.06-cuda12.8-py3.12",
];
/// The pools. The first one is always there.
pub const POOLS: [&str; 3] = ["system", "gpu", "extra"];
/// The Dask clusters.
pub const CLUSTERS: [&str; 2] = ["rapids", "blue"];
/// The groups of its manifests: an application, a definition with objects of it.
pub const MANIFESTS: [&str; 2] = ["app", "queues"];

#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// A cluster of the stack's own, or one of others with `manage = false`.
    pub own_cluster: bool,
    /// In one zone or three.
    pub regional: bool,
    /// An Autopilot cluster, if it is the stack's own and in a region.
    pub autopilot: bool,
    /// Keys of the cluster that are GKE's.
    pub keys: Keys,
    /// Labels of the cluster.
    pub labels: bool,
    /// `protect` of the cluster.
    pub protect: bool,
    /// Everything else.
    pub sections: Vec<Section>,
}

/// A section that a stack may have once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Slot {
    /// `[node_pool.…]`.
    Pool(usize),
    Namespace(usize),
    /// `[gpu_driver]`.
    Driver,
    /// `[dask_operator]`.
    Operator,
    /// `[dask_cluster.…]`.
    Dask(usize),
    /// `[dask_job.…]`.
    Job,
    Manifest(usize),
    Check,
}

/// A section. Which of its fields say something depends on the slot.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    pub slot: Slot,
    /// Its key is another one, its live name the same.
    pub renamed: bool,
    /// Index into [`NAMESPACES`] or the operator's.
    pub namespace: usize,
    /// An image, a version, a text: what forces a change.
    pub variant: usize,
    /// Nodes, workers.
    pub number: u32,
    /// How the number is given: fixed, autoscaled, `start`.
    pub writer: Writer,
    pub protect: bool,
    /// `manage = false`.
    pub theirs: bool,
    pub labels: bool,
    /// Taints of a pool; a group of a Dask cluster; objects of a definition.
    pub extra: bool,
    /// `protect` of that group.
    pub extra_protect: bool,
    /// Files of the user: none, or one of two contents.
    pub code: usize,
    /// Goes by itself.
    pub passing: Expiry,
    /// Keys of a pool that are GKE's.
    pub keys: Keys,
}

/// By what a Dask cluster goes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// It stays.
    Never,
    IdleTimeout,
    Ttl,
    IdleStop,
    /// `ttl` and `idle_stop`.
    Both,
}

/// The writer of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    File,
    Autoscaler,
    /// Notebooks, after the file.
    Start,
}

/// An edit of a stack.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A section comes, or its place is taken.
    Put(Section),
    /// A section goes.
    Remove(Slot),
    /// One thing of a section changes.
    Tweak(Slot, Tweak),
    /// One thing of the cluster's section changes.
    Cluster(Tweak),
}

/// One thing of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tweak {
    Key,
    Namespace(usize),
    /// Its image, version or text.
    Variant,
    Number(u32),
    /// The writer of the number.
    Writer(Writer),
    Protect,
    Manage,
    Labels,
    /// Group, taints, objects.
    Extra,
    /// Its files.
    Code(usize),
    /// By what it goes by itself.
    Expiry(Expiry),
    /// A key of a cluster or a pool.
    Gke(usize),
}

const SLOTS: [Slot; 13] = [
    Slot::Pool(1),
    Slot::Pool(2),
    Slot::Namespace(1),
    Slot::Namespace(2),
    Slot::Driver,
    Slot::Operator,
    Slot::Dask(0),
    Slot::Dask(1),
    Slot::Job,
    Slot::Manifest(0),
    Slot::Manifest(1),
    Slot::Check,
    Slot::Pool(0),
];

fn writer() -> impl Strategy<Value = Writer> {
    prop_oneof![4 => Just(Writer::File), 1 => Just(Writer::Autoscaler), 1 => Just(Writer::Start)]
}

/// Mostly never.
fn expiry() -> impl Strategy<Value = Expiry> {
    prop_oneof![
        16 => Just(Expiry::Never),
        1 => Just(Expiry::IdleTimeout),
        1 => Just(Expiry::Ttl),
        1 => Just(Expiry::IdleStop),
        1 => Just(Expiry::Both),
    ]
}

/// Seldom true; shrinks to false.
fn rarely_true() -> impl Strategy<Value = bool> {
    proptest::bool::weighted(0.15)
}

/// Mostly none.
fn code() -> impl Strategy<Value = usize> {
    prop_oneof![4 => Just(0usize), 1 => Just(1usize), 1 => Just(2usize)]
}

/// Mostly one that is there.
fn namespace() -> impl Strategy<Value = usize> {
    prop_oneof![4 => Just(0usize), 4 => Just(1usize), 2 => Just(2usize), 1 => Just(3usize)]
}

fn section(slot: Slot) -> impl Strategy<Value = Section> {
    let first = (proptest::bool::weighted(0.1), namespace(), 0..2usize, 1..3u32, writer());
    let group = proptest::bool::weighted(0.4);
    let keys = gke_keys::some(gke_keys::POOL, 4);
    let second = (rarely_true(), rarely_true(), group, rarely_true(), expiry(), keys, code());
    (first, second).prop_map(move |(first, second)| {
        let (renamed, namespace, variant, number, writer) = first;
        let (protect, labels, extra, extra_protect, passing, keys, code) = second;
        // A handed-over section was managed before; an edit hands it over.
        let theirs = false;
        Section {
            slot,
            renamed,
            namespace,
            variant,
            number,
            writer,
            protect,
            theirs,
            labels,
            extra,
            extra_protect,
            code,
            passing,
            keys: if slot == Slot::Pool(2) { keys } else { Keys::new() },
        }
    })
}

fn slot() -> impl Strategy<Value = Slot> {
    select(&SLOTS[..12])
}

/// A stack with some of the sections.
pub fn spec() -> impl Strategy<Value = Spec> {
    let maybe = |slot: Slot| {
        let often = match slot {
            Slot::Namespace(1) | Slot::Operator | Slot::Dask(0) => 0.75,
            Slot::Namespace(_) | Slot::Pool(1) | Slot::Manifest(_) => 0.5,
            _ => 0.25,
        };
        proptest::option::weighted(often, section(slot))
    };
    let sections: Vec<_> = SLOTS[..12].iter().copied().map(maybe).collect();
    let cluster =
        (any::<bool>(), proptest::bool::weighted(0.2), rarely_true(), proptest::bool::weighted(0.05));
    let gke = (proptest::bool::weighted(0.3), gke_keys::some(gke_keys::CLUSTER, 4));
    (cluster, gke, sections).prop_map(|((own_cluster, regional, labels, protect), gke, sections)| Spec {
        own_cluster,
        regional,
        autopilot: gke.0,
        keys: gke.1,
        labels,
        protect,
        sections: sections.into_iter().flatten().collect(),
    })
}

fn tweak() -> impl Strategy<Value = Tweak> {
    prop_oneof![
        Just(Tweak::Variant),
        Just(Tweak::Key),
        namespace().prop_map(Tweak::Namespace),
        (1..3u32).prop_map(Tweak::Number),
        writer().prop_map(Tweak::Writer),
        Just(Tweak::Protect),
        Just(Tweak::Manage),
        Just(Tweak::Labels),
        Just(Tweak::Extra),
        (0..3usize).prop_map(Tweak::Code),
        expiry().prop_map(Tweak::Expiry),
        (0..64usize).prop_map(Tweak::Gke),
    ]
}

/// An edit.
pub fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => slot().prop_map(Change::Remove),
        3 => slot().prop_flat_map(section).prop_map(Change::Put),
        6 => (slot(), tweak()).prop_map(|(slot, tweak)| Change::Tweak(slot, tweak)),
        1 => tweak().prop_map(Change::Cluster),
        1 => (0..64usize).prop_map(|key| Change::Cluster(Tweak::Gke(key))),
        1 => (0..64usize).prop_map(|key| Change::Tweak(Slot::Pool(2), Tweak::Gke(key))),
    ]
}

impl Spec {
    fn find(&self, slot: Slot) -> Option<&Section> {
        self.sections.iter().find(|section| section.slot == slot)
    }

    /// Edits it. What an edit does not fit is left.
    pub fn edit(&mut self, change: &Change) {
        match change {
            Change::Put(section) => {
                self.sections.retain(|other| other.slot != section.slot);
                self.sections.push(section.clone());
            }
            Change::Remove(slot) => self.sections.retain(|other| other.slot != *slot),
            Change::Tweak(slot, tweak) => {
                for section in self.sections.iter_mut().filter(|section| section.slot == *slot) {
                    section.tweak(*tweak);
                }
            }
            Change::Cluster(Tweak::Labels) => self.labels = !self.labels,
            Change::Cluster(Tweak::Protect) => self.protect = !self.protect,
            Change::Cluster(Tweak::Gke(key)) => gke_keys::turn(&mut self.keys, gke_keys::CLUSTER, *key),
            Change::Cluster(_) => {}
        }
    }

    /// Returns true if GKE creates the nodes: the cluster has neither pools nor a driver.
    fn is_autopilot(&self) -> bool {
        self.autopilot && self.own_cluster && self.regional
    }

    /// Returns true if a section is in the file.
    fn is_said(&self, section: &Section) -> bool {
        match section.slot {
            // Without an operator there is nobody to run them: taking it out takes them out.
            Slot::Dask(_) | Slot::Job => self.find(Slot::Operator).is_some(),
            Slot::Pool(_) | Slot::Driver => !self.is_autopilot(),
            _ => true,
        }
    }

    /// The name of the stack's cluster.
    pub fn cluster(&self) -> &'static str {
        if self.own_cluster { "main" } else { "shared" }
    }

    /// The path of its location in GKE's API.
    pub fn parent(&self) -> String {
        let location = if self.regional { "us-central1" } else { "us-central1-c" };
        format!("/v1/projects/demo/locations/{location}")
    }

    /// The addresses of its sections, as flags take them.
    pub fn addresses(&self) -> Vec<String> {
        let sections: Vec<&Section> = self.sections.iter().filter(|section| self.is_said(section)).collect();
        let mut all: Vec<String> = sections.iter().map(|section| section.address()).collect();
        for section in sections.into_iter().filter(|section| section.has_group()) {
            all.push(format!("{}.group.big", section.address()));
        }
        if !self.is_autopilot() {
            all.push("node_pool.system".to_owned());
        }
        all.push("cluster".to_owned());
        all
    }

    /// The stack file and the files that it names.
    pub fn render(&self) -> Edit {
        let mut text = String::from("[stack]\nname = \"team\"\n\n[gke]\nproject = \"demo\"\n");
        let location = if self.regional { "us-central1" } else { "us-central1-c" };
        let _ = writeln!(text, "location = \"{location}\"\n\n[cluster]\nname = \"{}\"", self.cluster());
        if self.own_cluster {
            text.push_str(if self.labels { "labels = { team = \"x\" }\n" } else { "" });
            text.push_str(if self.protect { "protect = true\n" } else { "" });
            text.push_str(if self.is_autopilot() { "autopilot = true\n" } else { "" });
            text.push_str(&gke_keys::lines(gke_keys::CLUSTER, &self.keys, self.is_autopilot()));
        } else {
            text.push_str("manage = false\n");
        }
        let mut files = BTreeMap::new();
        if !self.is_autopilot() {
            let _ = write!(text, "\n{}", self.pool(&Section::of(Slot::Pool(0)), 0));
        }
        for slot in SLOTS {
            let there = self.find(slot).filter(|section| section.slot != Slot::Pool(0));
            let Some(section) = there.filter(|section| self.is_said(section)) else { continue };
            let _ = write!(text, "\n{}", self.section(section, &mut files));
        }
        Edit { stack: text, files }
    }

    fn section(&self, section: &Section, files: &mut BTreeMap<String, String>) -> String {
        let head = format!("[{}]\n", section.address());
        let protect = if section.protect { "protect = true\n" } else { "" };
        let labels = if section.labels { "labels = { team = \"x\" }\n" } else { "" };
        match section.slot {
            Slot::Pool(which) => self.pool(section, which),
            Slot::Namespace(which) => {
                let name = if section.renamed {
                    format!("name = \"{}\"\n", NAMESPACES[which])
                } else {
                    String::new()
                };
                match section.theirs {
                    true => format!("{head}{name}manage = false\n"),
                    false => format!("{head}{name}{labels}{protect}"),
                }
            }
            Slot::Driver => format!("{head}install = \"daemonset\"\n"),
            Slot::Operator => {
                let namespace = OPERATORS[section.namespace % OPERATORS.len()];
                format!("{head}version = \"2026.3.0\"\nnamespace = \"{namespace}\"\n{protect}")
            }
            Slot::Dask(which) => {
                let code = section.files(CLUSTERS[which], files);
                self.dask(section, which, &code)
            }
            Slot::Job => {
                let code = section.files("train", files);
                let namespace = NAMESPACES[section.namespace];
                let name = if section.renamed { "name = \"train\"\n" } else { "" };
                format!(
                    "{head}{name}image = \"{}\"\nargs = [\"python\", \"-c\", \"pass\"]\nnamespace = \"{namespace}\"\nworker = {{ replicas = {} }}\n{code}{protect}",
                    IMAGES[section.variant], section.number,
                )
            }
            Slot::Manifest(which) => {
                let file = format!("{}.yaml", MANIFESTS[which]);
                let namespace = NAMESPACES[section.namespace];
                files.insert(file.clone(), section.objects(which, namespace));
                format!("{head}file = \"{file}\"\nnamespace = \"{namespace}\"\n{protect}")
            }
            Slot::Check => match self.gpus() {
                Some(on) => format!(
                    "{head}run = \"cuda-vectoradd\"\n{on}\nimage = \"nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda12.{}\"\n",
                    section.variant
                ),
                None => String::new(),
            },
        }
    }

    /// Returns the key that selects GPUs: a pool, or the accelerator that GKE provides.
    fn gpus(&self) -> Option<String> {
        match self.is_autopilot() {
            true => Some("accelerator = \"nvidia-l4\"".to_owned()),
            false => self.find(Slot::Pool(1)).map(|pool| format!("pool = \"{}\"", pool.key())),
        }
    }

    fn pool(&self, section: &Section, which: usize) -> String {
        let head = format!("[{}]\n", section.address());
        let name = if section.renamed { format!("name = \"{}\"\n", POOLS[which]) } else { String::new() };
        if !self.own_cluster && which < 2 {
            return format!("{head}{name}manage = false\n");
        }
        let machine = match which {
            1 => "machine_type = \"n1-standard-4\"\naccelerator = \"nvidia-tesla-t4\"\n".to_owned(),
            2 if section.variant == 1 => "machine_type = \"n2-standard-8\"\n".to_owned(),
            2 => "machine_type = \"n2-standard-4\"\n".to_owned(),
            _ => "machine_type = \"e2-standard-4\"\n".to_owned(),
        };
        let zones = if self.regional { 3 } else { 1 };
        let nodes = match section.writer {
            Writer::Autoscaler => format!("{{ min = 0, max = {} }}", section.number * zones),
            Writer::File | Writer::Start => (section.number * zones).to_string(),
        };
        let labels = if section.labels { "labels = { team = \"x\" }\n" } else { "" };
        let taints = match which {
            2 if section.extra => "taints = [{ key = \"team\", value = \"x\", effect = \"NoSchedule\" }]\n",
            _ => "",
        };
        let protect = if section.protect { "protect = true\n" } else { "" };
        let keys = gke_keys::lines(gke_keys::POOL, &section.keys, false);
        format!("{head}{name}{machine}nodes = {nodes}\n{labels}{taints}{keys}{protect}")
    }

    fn dask(&self, section: &Section, which: usize, code: &str) -> String {
        let head = format!("[{}]\n", section.address());
        let name = if section.renamed { format!("name = \"{}\"\n", CLUSTERS[which]) } else { String::new() };
        let namespace = NAMESPACES[section.namespace];
        let image = IMAGES[section.variant];
        if section.theirs {
            return format!("{head}{name}namespace = \"{namespace}\"\nmanage = false\n");
        }
        let number = section.number;
        let replicas = match section.writer {
            Writer::File => number.to_string(),
            Writer::Autoscaler => format!("{{ min = 0, max = {number} }}"),
            Writer::Start => format!("{{ start = {number} }}"),
        };
        // So long that nothing of it ends here; others who delete the cluster look the same. What is protected has none.
        let (ttl, stop) = ("ttl = \"365d\"\n", "idle_stop = \"365d\"\n");
        let idle = match section.passing {
            Expiry::Never => String::new(),
            Expiry::IdleTimeout => "idle_timeout = 600\n".to_owned(),
            _ if section.protect => String::new(),
            Expiry::Ttl => ttl.to_owned(),
            Expiry::IdleStop => stop.to_owned(),
            Expiry::Both => format!("{ttl}{stop}"),
        };
        let labels = if section.labels { "labels = { team = \"x\" }\n" } else { "" };
        let protect = if section.protect { "protect = true\n" } else { "" };
        let mut text = format!(
            "{head}{name}namespace = \"{namespace}\"\nimage = \"{image}\"\n{idle}{labels}{protect}{code}worker = {{ replicas = {replicas} }}\n"
        );
        if section.has_group() {
            let protect = if section.extra_protect { "protect = true\n" } else { "" };
            let _ = write!(text, "\n[{}.group.big]\nreplicas = 1\n{protect}", section.address());
        }
        text
    }
}

impl Section {
    /// A section that says nothing more.
    pub fn of(slot: Slot) -> Self {
        Self {
            slot,
            renamed: false,
            namespace: 0,
            variant: 0,
            number: 1,
            writer: Writer::File,
            protect: false,
            theirs: false,
            labels: false,
            extra: false,
            extra_protect: false,
            code: 0,
            passing: Expiry::Never,
            keys: Keys::new(),
        }
    }

    /// Returns the key `files`, and adds the file that it names.
    fn files(&self, name: &str, files: &mut BTreeMap<String, String>) -> String {
        if self.code == 0 || self.theirs {
            return String::new();
        }
        files.insert(format!("{name}.py"), format!("VALUE = {}\n", self.code));
        format!("files = [\"{name}.py\"]\n")
    }

    fn has_group(&self) -> bool {
        matches!(self.slot, Slot::Dask(_)) && self.extra && !self.theirs
    }

    fn key(&self) -> String {
        let name = match self.slot {
            Slot::Pool(which) => POOLS[which],
            Slot::Namespace(which) => NAMESPACES[which],
            Slot::Driver => "gpu_driver",
            Slot::Operator => "dask_operator",
            Slot::Dask(which) => CLUSTERS[which],
            Slot::Job => "train",
            Slot::Manifest(which) => MANIFESTS[which],
            Slot::Check => "cuda",
        };
        if self.renamed { format!("{name}-key") } else { name.to_owned() }
    }

    /// `dask_cluster.rapids`.
    pub fn address(&self) -> String {
        let sort = match self.slot {
            Slot::Driver | Slot::Operator => {
                return Self { renamed: false, ..self.clone() }.key();
            }
            Slot::Pool(_) => "node_pool",
            Slot::Namespace(_) => "namespace",
            Slot::Dask(_) => "dask_cluster",
            Slot::Job => "dask_job",
            Slot::Manifest(_) => "manifest",
            Slot::Check => "check",
        };
        format!("{sort}.{}", self.key())
    }

    fn tweak(&mut self, tweak: Tweak) {
        match tweak {
            Tweak::Key => self.renamed = !self.renamed,
            Tweak::Namespace(namespace) => self.namespace = namespace,
            Tweak::Variant => self.variant = 1 - self.variant,
            Tweak::Number(number) => self.number = number,
            Tweak::Writer(writer) => self.writer = writer,
            Tweak::Protect => self.protect = !self.protect,
            Tweak::Manage => self.theirs = !self.theirs,
            Tweak::Labels => self.labels = !self.labels,
            Tweak::Extra => self.extra = !self.extra,
            Tweak::Code(code) => self.code = code,
            Tweak::Expiry(passing) => self.passing = passing,
            Tweak::Gke(key) if self.slot == Slot::Pool(2) => {
                gke_keys::turn(&mut self.keys, gke_keys::POOL, key);
            }
            Tweak::Gke(_) => {}
        }
    }

    /// The objects of a manifest.
    fn objects(&self, which: usize, namespace: &str) -> String {
        let mut objects = Vec::new();
        if which == 0 {
            let text = if self.variant == 0 { "one" } else { "two" };
            objects.push(json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "settings" }, "data": { "text": text } }));
            if self.extra {
                // The one built-in kind with two versions that people meet.
                let version = if self.variant == 0 { "autoscaling/v1" } else { "autoscaling/v2" };
                let metrics = match self.variant {
                    0 => json!({ "targetCPUUtilizationPercentage": 80 }),
                    _ => {
                        json!({ "metrics": [{ "type": "Resource", "resource": { "name": "cpu", "target": { "type": "Utilization", "averageUtilization": 80 } } }] })
                    }
                };
                let mut spec = json!({
                    "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
                    "minReplicas": 1, "maxReplicas": 2,
                });
                spec.as_object_mut().unwrap().extend(metrics.as_object().cloned().unwrap());
                objects.push(json!({ "apiVersion": version, "kind": "HorizontalPodAutoscaler", "metadata": { "name": "web" }, "spec": spec }));
            }
            let labels = json!({ "app": "web" });
            objects.push(json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web" },
                "spec": { "replicas": self.number, "selector": { "matchLabels": labels }, "template": {
                    "metadata": { "labels": labels },
                    "spec": { "containers": [{ "name": "web", "image": "nginx:1" }] },
                } },
            }));
        } else {
            objects.push(definition(self.number as usize, self.labels));
            if self.extra {
                let version = if self.variant == 0 { "v1" } else { "v1beta1" };
                objects.push(queue(version, namespace, "main"));
            }
        }
        let documents: Vec<String> = objects.iter().map(Value::to_string).collect();
        documents.join("\n---\n")
    }
}

/// A definition with one to three served versions; stored is the newest.
fn definition(versions: usize, label: bool) -> Value {
    let names = ["v1", "v1beta1", "v1alpha1"];
    let versions: Vec<Value> = names[..(versions + 1).min(3)]
        .iter()
        .map(|name| {
            let schema = json!({ "type": "object", "properties": { "spec": { "type": "object", "properties": { "size": { "type": "integer" } } } } });
            json!({ "name": name, "served": true, "storage": *name == "v1", "schema": { "openAPIV3Schema": schema } })
        })
        .collect();
    let labels = if label { json!({ "team": "x" }) } else { json!({}) };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "queues.example.com", "labels": labels },
        "spec": {
            "group": "example.com", "scope": "Namespaced", "versions": versions,
            "names": { "kind": "Queue", "listKind": "QueueList", "plural": "queues", "singular": "queue" },
        },
    })
}

fn queue(version: &str, namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": format!("example.com/{version}"), "kind": "Queue",
        "metadata": { "name": name, "namespace": namespace }, "spec": { "size": 3 },
    })
}

/// Something that others do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExternalChange {
    /// They make a namespace of their own with an object in it.
    Namespace,
    /// They make an object in one of ours.
    Object(usize),
    /// They attach a group of workers to a Dask cluster of ours.
    Group(usize, usize),
    /// They make a Dask cluster of their own.
    Dask(usize),
    /// They delete it.
    NoDask(usize),
    /// They add a pool to the GKE cluster.
    Pool,
    /// They make an object of our definition.
    Queue(usize),
    /// They put something into the namespace of records.
    Records,
    /// They put something into a namespace of the system.
    System,
    /// They make a namespace that is called as if it were of the system, with an object in it.
    Monitoring,
    /// They delete a Dask cluster of ours.
    DeleteOurs(usize, usize),
    /// They delete our job.
    DeleteJob(usize),
    /// They delete the record.
    DeleteRecord,
    /// They damage it.
    DamageRecord,
    /// They take a label off the namespaces of ours, or add one.
    Annotate(usize),
}

/// Something that others do.
pub fn external_change() -> impl Strategy<Value = ExternalChange> {
    let place = namespace;
    prop_oneof![
        Just(ExternalChange::Namespace),
        place().prop_map(ExternalChange::Object),
        (0..2usize, place()).prop_map(|(which, place)| ExternalChange::Group(which, place)),
        place().prop_map(ExternalChange::Dask),
        place().prop_map(ExternalChange::NoDask),
        Just(ExternalChange::Pool),
        place().prop_map(ExternalChange::Queue),
        Just(ExternalChange::Records),
        Just(ExternalChange::System),
        Just(ExternalChange::Monitoring),
    ]
}

/// Changes of the stack's objects by others or by accident.
pub fn foreign_damage() -> impl Strategy<Value = ExternalChange> {
    let place = namespace;
    prop_oneof![
        (0..2usize, place()).prop_map(|(which, place)| ExternalChange::DeleteOurs(which, place)),
        place().prop_map(ExternalChange::DeleteJob),
        Just(ExternalChange::DeleteRecord),
        Just(ExternalChange::DamageRecord),
        place().prop_map(ExternalChange::Annotate),
    ]
}

impl ExternalChange {
    /// The requests that it takes.
    pub fn requests(self, spec: &Spec) -> Vec<Others> {
        let record = "/api/v1/namespaces/dask-infra/configmaps/dask-infra-team";
        let dask = |namespace: usize, kind: &str, name: &str| {
            format!("/apis/kubernetes.dask.org/v1/namespaces/{}/{kind}/{name}", NAMESPACES[namespace])
        };
        match self {
            Self::Namespace => home("theirs"),
            Self::Monitoring => home("kube-monitoring"),
            Self::System => vec![config_map("kube-system")],
            Self::Object(namespace) => vec![config_map(NAMESPACES[namespace])],
            Self::Group(which, namespace) => {
                let name = format!("{}-theirs", CLUSTERS[which]);
                let spec =
                    json!({ "cluster": CLUSTERS[which], "worker": { "replicas": 1, "spec": worker() } });
                let body = json!({ "apiVersion": "kubernetes.dask.org/v1", "kind": "DaskWorkerGroup", "metadata": { "name": name }, "spec": spec });
                vec![apply(&dask(namespace, "daskworkergroups", &name), &body)]
            }
            Self::Dask(namespace) => {
                let service = json!({ "type": "ClusterIP", "selector": { "dask.org/cluster-name": "theirs", "dask.org/component": "scheduler" },
                    "ports": [{ "name": "tcp-comm", "port": 8786 }, { "name": "http-dashboard", "port": 8787 }] });
                let spec = json!({ "worker": { "replicas": 1, "spec": worker() }, "scheduler": { "spec": worker(), "service": service } });
                let body = json!({ "apiVersion": "kubernetes.dask.org/v1", "kind": "DaskCluster", "metadata": { "name": "theirs" }, "spec": spec });
                vec![apply(&dask(namespace, "daskclusters", "theirs"), &body)]
            }
            Self::NoDask(namespace) => {
                vec![Others::request("DELETE", dask(namespace, "daskclusters", "theirs"), &Value::Null)]
            }
            Self::Pool => {
                let path = format!("{}/clusters/{}/nodePools", spec.parent(), spec.cluster());
                let config =
                    json!({ "machineType": "e2-standard-4", "resourceLabels": { OTHERS_LABEL: "x" } });
                let body =
                    json!({ "nodePool": { "name": "theirs", "initialNodeCount": 1, "config": config } });
                vec![Others::request("POST", path, &body)]
            }
            Self::Queue(namespace) => {
                let path = format!("/apis/example.com/v1/namespaces/{}/queues/theirs", NAMESPACES[namespace]);
                vec![apply(&path, &queue("v1", NAMESPACES[namespace], "theirs"))]
            }
            Self::Records => vec![apply(
                "/api/v1/namespaces/dask-infra/serviceaccounts/ci",
                &json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "ci" } }),
            )],
            Self::DeleteOurs(which, namespace) => {
                vec![Others::request(
                    "DELETE",
                    dask(namespace, "daskclusters", CLUSTERS[which]),
                    &Value::Null,
                )]
            }
            Self::DeleteJob(namespace) => {
                vec![Others::request("DELETE", dask(namespace, "daskjobs", "train"), &Value::Null)]
            }
            Self::DeleteRecord => vec![Others::request("DELETE", record, &Value::Null)],
            Self::DamageRecord => vec![apply(
                record,
                &json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "dask-infra-team" }, "data": { "digest": "0000" } }),
            )],
            Self::Annotate(namespace) => vec![apply(
                &format!("/api/v1/namespaces/{}", NAMESPACES[namespace]),
                &json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACES[namespace], "annotations": { "seen": "yes" } } }),
            )],
        }
    }
}

/// Pods as Dask's clients write them.
fn worker() -> Value {
    json!({ "containers": [{ "name": "worker", "image": IMAGES[0], "args": ["dask", "worker"] }] })
}

/// A namespace that is not managed by the stack, with an object in it.
fn home(name: &str) -> Vec<Others> {
    let body = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    vec![apply(&format!("/api/v1/namespaces/{name}"), &body), config_map(name)]
}

fn config_map(namespace: &str) -> Others {
    let body = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "theirs" }, "data": { "a": "b" } });
    apply(&format!("/api/v1/namespaces/{namespace}/configmaps/theirs"), &body)
}

/// Others clear who wrote which field of a Dask cluster.
pub fn unmark(which: usize, namespace: usize) -> Others {
    let path = format!(
        "/apis/kubernetes.dask.org/v1/namespaces/{}/daskclusters/{}",
        NAMESPACES[namespace], CLUSTERS[which]
    );
    Others::request("MERGE", path, &json!({ "metadata": { "managedFields": [{}] } }))
}

/// A server-side apply of others.
pub fn apply(path: &str, body: &Value) -> Others {
    Others::request("PATCH", format!("{path}?fieldManager={OTHERS}&force=true"), body)
}

/// The cluster of others that a stack without one of its own works on.
pub fn platform(spec: &Spec) -> Vec<Others> {
    if spec.own_cluster {
        return Vec::new();
    }
    let parent = spec.parent();
    let config = |machine: &str| json!({ "machineType": machine, "resourceLabels": { OTHERS_LABEL: "x" } });
    let labels = json!({ OTHERS_LABEL: "x" });
    let pool = json!({ "name": "system", "initialNodeCount": 1, "config": config("e2-standard-4") });
    let cluster = json!({ "cluster": { "name": "shared", "resourceLabels": labels, "nodePools": [pool] } });
    let mut gpus = config("n1-standard-4");
    let driver = json!({ "gpuDriverVersion": "DEFAULT" });
    gpus["accelerators"] = json!([{ "acceleratorType": "nvidia-tesla-t4", "acceleratorCount": "1", "gpuDriverInstallationConfig": driver }]);
    let pool = json!({ "nodePool": { "name": "gpu", "initialNodeCount": 2, "config": gpus } });
    vec![
        Others::request("POST", format!("{parent}/clusters"), &cluster),
        Others::request("POST", format!("{parent}/clusters/shared/nodePools"), &pool),
    ]
}
