//! Common parts of the sections of the stack file.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::env::{self, Env, NeededVariable};
use crate::json::is_false;
use crate::node_selection::Machines;
use crate::pod::{self, Pod};
use crate::security_defaults;
use model::address::FieldPath;

/// The manager of what a section describes: `true` for the stack, which creates and changes it, `false` for somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct Manage(bool);

impl Default for Manage {
    fn default() -> Self {
        Self(true)
    }
}

impl Manage {
    /// `manage = false`: the resources exist and are managed elsewhere.
    pub const EXTERNAL: Self = Self(false);

    /// Returns true for the default, which `skip_serializing_if` leaves out.
    pub fn is_managed(&self) -> bool {
        self.0
    }
}

/// How a section's objects live beside the others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct Lifecycle {
    /// Refuses to delete or replace it, also in `destroy`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub protect: bool,
    /// Addresses that must be done before this one, beyond what is inferred.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
}

/// The resources and the placement of a pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct PodKeys {
    /// GPUs of each pod. Default none. A worker with GPUs is `dask cuda worker`, and one GPU a worker keeps scale-down
    /// exact; a scheduler with one can unpack data from GPU workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 16))]
    pub gpus: Option<u32>,
    /// CPUs, as a Kubernetes quantity: `"2"`, `"500m"`; of workers with a `pool` also `"fit"`, their share of a node. On a host: threads of
    /// each worker, rounded up; 1 when it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// Memory, as a Kubernetes quantity: `"8Gi"`; of workers with a `pool` also `"fit"`, their share of a node. On a host: the limit at
    /// which its nanny restarts a worker. Default there the host's memory × threads / CPUs; with `gpus`, the host's memory / its GPUs
    /// for each process; in a job of SLURM the job's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "8Gi")]
    pub memory: Option<String>,
    /// The node pool it must run on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The node pool to run on if it has free capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefer_pool: Option<String>,
    /// Which machines it runs on where no pool is named.
    #[serde(flatten)]
    pub machines: Machines,
    /// Environment variables: text, `{ secret = "NAME", key = "KEY" }` for a key of a Secret in the pod's namespace, or
    /// `{ secret = "env:NAME" }` for the value of the environment variable `NAME` when the stack is applied.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: Env,
    /// Labels of the pods, for queues, meshes, cost and monitoring. Of Dask pods the operator copies them when it creates
    /// the pods; a change replaces what has them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the pods; as `labels`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// A PodSpec, or parts of one, merged over the result of the other keys: a table, or the name of a YAML file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Pod>,
    /// `false` turns the security defaults of the pods off. With `true`, the default, they have no service account token unless `pod`
    /// names an account (`serviceAccountName`) or sets `automountServiceAccountToken = true`. They cannot escalate privileges (`sudo`)
    /// and use the runtime's seccomp profile. With a Dask or RAPIDS image they have no capabilities, unless it installs packages with
    /// apt or conda at start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confined: Option<bool>,
}

/// The text of an amount that is a worker's share of its node. A loaded stack has the share in its place.
pub const FIT: &str = "fit";

impl PodKeys {
    /// Returns the quantities of CPUs and memory by their keys.
    pub fn quantities(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.amounts().filter(|(_, amount)| *amount != FIT)
    }

    /// Returns the keys whose amount is the share of a node.
    pub fn fitted(&self) -> impl Iterator<Item = &'static str> {
        self.amounts().filter(|(_, amount)| *amount == FIT).map(|(key, _)| key)
    }

    fn amounts(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let rows = [("cpu", &self.cpu), ("memory", &self.memory)];
        rows.into_iter().filter_map(|(key, amount)| Some((key, amount.as_deref()?)))
    }

    /// Adds the labels and annotations of the pods to the `metadata` of `part`; a part without any gets none. Entries
    /// that exist are kept.
    pub fn add_metadata(&self, part: &mut Value) {
        for (key, entries) in [("labels", &self.labels), ("annotations", &self.annotations)] {
            for (name, value) in entries {
                let there = part["metadata"][key].get(name).is_some();
                if !there {
                    part["metadata"][key][name] = json!(value);
                }
            }
        }
    }

    /// Returns the provenance of the labels and annotations: `part` is the path in the body whose `metadata` has
    /// them.
    pub fn metadata_provenance(part: &FieldPath, section: &FieldPath) -> [(FieldPath, FieldPath); 2] {
        ["labels", "annotations"].map(|key| (part.key("metadata").key(key), section.key(key)))
    }

    /// Merges labels, annotations and the table `pod` into a part of a body, which has `metadata` and `spec`. `path`
    /// is the path of the part in the body, `section` that of the keys in the stack file. The paths of the merged
    /// fields are added to `provenance`.
    pub fn merge_into(
        &self,
        part: &mut Value,
        path: &FieldPath,
        section: &FieldPath,
        provenance: &mut Vec<(FieldPath, FieldPath)>,
    ) {
        self.add_metadata(part);
        provenance.extend(Self::metadata_provenance(path, section));
        let (pod, from) = (&mut part["spec"], section.key("pod"));
        pod::merge_pod(pod, self.pod.as_ref(), &path.key("spec"), &from, provenance);
        if let Some(Pod(given)) = self.pod.as_ref().filter(|_| self.has_security_defaults()) {
            security_defaults::remove_conflicts(pod, given);
        }
    }

    /// Returns true if the pods have the security defaults.
    pub fn has_security_defaults(&self) -> bool {
        self.confined != Some(false)
    }

    /// Returns the GPUs of each pod.
    pub fn gpus(&self) -> u32 {
        self.gpus.unwrap_or(0)
    }
}

/// Purposes of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodRole {
    /// The scheduler of a Dask cluster.
    Scheduler,
    /// A worker of a Dask cluster.
    Worker,
    /// The program of a Dask job.
    Program,
    /// A Jupyter server.
    Notebook,
    /// A pod of a Job.
    Job,
    /// A pod that a provisioning request describes.
    Requested,
}

impl PodRole {
    /// Returns the name of the section's container. The Dask operator finds the containers of Dask by name.
    pub fn container(self) -> &'static str {
        match self {
            Self::Scheduler => "scheduler",
            Self::Worker => "worker",
            Self::Program => "job",
            Self::Notebook => "notebook",
            Self::Job => "job",
            Self::Requested => "pod",
        }
    }

    /// Returns true if the Dask operator creates it.
    pub fn is_dask(self) -> bool {
        matches!(self, Self::Scheduler | Self::Worker | Self::Program)
    }
}

impl fmt::Display for PodRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scheduler => "the scheduler",
            Self::Worker => "each worker",
            Self::Program => "the program",
            Self::Notebook => "the notebook",
            Self::Job => "each pod of the job",
            Self::Requested => "each requested pod",
        })
    }
}

/// The pods of a section.
pub struct Pods<'a> {
    /// The path of their keys.
    pub path: FieldPath,
    /// The purpose of the pods.
    pub role: PodRole,
    /// The largest number of pods.
    pub replicas: u32,
    /// The image; empty if another section has it.
    pub image: &'a str,
    /// The path of the image.
    pub image_path: FieldPath,
    /// Arguments of the image's entry point; empty for the default ones.
    pub args: &'a [String],
    /// The resources and the placement of the pods.
    pub keys: &'a PodKeys,
}

/// Rules for names. All allow lowercase letters, digits and `-`; the last character cannot be `-`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// Names of GKE clusters and node pools, and of the stack, which is the value of a label on these.
    Gke,
    /// The stack's id, which is also the value of a label on GKE resources.
    StackId,
    /// Kubernetes objects whose name is a DNS label (RFC 1123).
    Object,
    /// Services (RFC 1035).
    Service,
    /// DaskClusters and DaskJobs. The operator adds `-scheduler` to name a Service.
    Dask,
    /// Releases of Helm, with Helm's own limit: charts add to the name.
    Release,
    /// A check's Pod is called `check-KEY-DIGEST`.
    Check,
}

impl NameRule {
    /// Returns the largest number of characters.
    pub fn longest(self) -> usize {
        match self {
            Self::Gke | Self::StackId => 40,
            Self::Object | Self::Service => 63,
            Self::Dask | Self::Release => 53,
            Self::Check => 50,
        }
    }

    /// Returns true if a digit may come first.
    pub fn digit_first(self) -> bool {
        match self {
            Self::Gke | Self::Service => false,
            Self::StackId | Self::Object | Self::Dask | Self::Release | Self::Check => true,
        }
    }
}

/// The live name of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveName<'a> {
    /// The namespace; empty for cluster-wide names.
    pub namespace: &'a str,
    pub name: &'a str,
    /// The field that sets it; `None` if it is the section's key.
    pub field: Option<&'static str>,
    /// The rules that the name follows.
    pub naming: NameRule,
}

impl<'a> LiveName<'a> {
    /// Creates the name from the field `name` if it is given, else from the key.
    pub fn new(given: Option<&'a str>, key: &'a str, naming: NameRule) -> Self {
        Self { namespace: "", name: given.unwrap_or(key), field: given.map(|_| "name"), naming }
    }

    /// Returns this name in a namespace.
    pub fn within(self, namespace: &'a str) -> Self {
        Self { namespace, ..self }
    }
}

/// Rules that labels follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelRules {
    /// Labels of Kubernetes.
    Kubernetes,
    /// Annotations: keys like those of labels, any value.
    Annotations,
    /// Labels of Google Cloud.
    Google,
}

/// Labels of a section: the field, its value, and the rules that it follows.
pub type Labels<'a> = (&'static str, &'a BTreeMap<String, String>, LabelRules);

/// Returns the labels and annotations of an object.
pub(crate) fn object_labels<'a>(
    labels: &'a BTreeMap<String, String>,
    annotations: &'a BTreeMap<String, String>,
) -> Vec<Labels<'a>> {
    vec![("labels", labels, LabelRules::Kubernetes), ("annotations", annotations, LabelRules::Annotations)]
}

/// A section inside another one: `dask_cluster.rapids.group.big`.
pub struct NestedSection<'a> {
    /// The field of the outer section that holds it.
    pub field: &'static str,
    /// Its key in that field.
    pub key: &'a str,
    pub section: &'a dyn Section,
}

/// The keys that most sections have.
#[derive(Clone, Copy, Default)]
pub struct SectionHead<'a> {
    pub manage: Manage,
    pub depends_on: &'a [String],
    pub namespace: Option<&'a str>,
}

/// Properties that all sections have, so that rules need not list the types of sections.
pub trait Section {
    /// Returns the keys that most sections have. By default the stack manages the section.
    fn head(&self) -> SectionHead<'_> {
        SectionHead::default()
    }

    /// Returns true if the stack creates and changes it.
    fn is_managed(&self) -> bool {
        self.head().manage.is_managed()
    }

    /// Returns the addresses of its `depends_on`.
    fn depends_on(&self) -> &[String] {
        self.head().depends_on
    }

    /// Returns its name on its server.
    fn live_name<'a>(&'a self, _key: &'a str) -> Option<LiveName<'a>> {
        None
    }

    /// Returns the value of its field `namespace`.
    fn given_namespace(&self) -> Option<&str> {
        self.head().namespace
    }

    /// Returns its labels and annotations.
    fn labels(&self) -> Vec<Labels<'_>> {
        Vec::new()
    }

    /// Returns the pods that the stack creates for it and for the sections inside it. `path` is the section's path.
    fn pods(&self, _path: &FieldPath) -> Vec<Pods<'_>> {
        Vec::new()
    }

    /// Returns the variables that its pods need from the environment of the user who applies the stack.
    fn environment(&self, path: &FieldPath) -> Vec<NeededVariable<'_>> {
        let pods = self.pods(path).into_iter().filter(|_| self.is_managed());
        environment_of(pods, self.given_namespace())
    }

    /// Returns the sections inside it.
    fn inner(&self) -> Vec<NestedSection<'_>> {
        Vec::new()
    }
}

/// Returns the sections that the stack manages.
pub fn managed<S: Section>(sections: &BTreeMap<String, S>) -> impl Iterator<Item = (&String, &S)> {
    sections.iter().filter(|(_, section)| section.is_managed())
}

/// Returns the external sections.
pub fn external_sections<S: Section>(sections: &BTreeMap<String, S>) -> impl Iterator<Item = (&String, &S)> {
    sections.iter().filter(|(_, section)| !section.is_managed())
}

/// Returns the variables that pods in a namespace need from the environment of the user who applies the stack.
pub(crate) fn environment_of<'a>(
    pods: impl Iterator<Item = Pods<'a>>,
    namespace: Option<&'a str>,
) -> Vec<NeededVariable<'a>> {
    let namespace = namespace.unwrap_or("default");
    pods.flat_map(|pods| env::needed(&pods.keys.env, namespace, &pods.path.key("env"))).collect()
}
