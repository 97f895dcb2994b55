//! The stack file as a typed tree. Spans are not here: [`Sources`] finds the place of any field path, now and later.
//!
//! `disk` is the only file that touches the disk. `parse` turns texts into the tree (overlays, variables, shape and types) and
//! reports all mistakes in one pass. `rules` has the checks across sections. `lower` turns sections into resources with the
//! functions of the kinds.
//!
//! Doc comments of sections and fields are what `schema`, editors and `docs/stack-reference.md` show.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub mod budget;
pub mod charts;
mod check;
pub mod disk;
pub mod edit;
pub mod effective;
pub mod explain;
mod fields;
mod files;
pub mod lower;
mod overlay;
pub mod parse;
pub mod ready;
pub mod reference;
mod references;
pub mod rules;
pub mod schema;
pub mod sections;
mod shares;
mod slurm;
mod ssh;
#[cfg(test)]
mod tests;
pub mod toml;
mod tree;
mod variables;
mod yaml;

pub use budget::Budget;
pub use fields::fields;
pub use kinds::dask::check::{BuiltInCheck, Check, CheckRole, CheckRun};
pub use kinds::dask::cluster::{DaskCluster, Scheduler, Worker};
use kinds::dask::expiry::ExpiryCause;
pub use kinds::dask::group::DaskGroup;
pub use kinds::dask::idle::{IdleTable, IdleTimeout};
pub use kinds::dask::job::{DaskJob, Restart};
pub use kinds::dask::notebook::Notebook;
pub use kinds::dask::operator::{DaskOperator, OperatorSource};
pub use kinds::dask::replicas::{Replicas, ReplicasTable, WorkerCountOwner};
pub use kinds::dask::service::{DaskService, ServiceType};
use kinds::dask::stack_expiry::StackAfter;
pub use kinds::env::{Env, SecretKey, Variable};
pub use kinds::gke::cluster::{Cluster, ReleaseChannel};
pub use kinds::gke::gpu_driver::GpuDriver;
pub use kinds::gke::node_pool::{DriverVersion, NodePool, Surge};
pub use kinds::hosts::environment::Environment;
use kinds::kubernetes::bundle::Bundle;
pub use kinds::kubernetes::helm_release::HelmRelease;
pub use kinds::kubernetes::hooks::Hooks;
pub use kinds::kubernetes::job::Job;
pub use kinds::kubernetes::kueue::install::Kueue;
pub use kinds::kubernetes::kueue::queue::{Queue, Strategy};
pub use kinds::kubernetes::manifest::{Files, Manifest};
pub use kinds::kubernetes::namespace::Namespace;
pub use kinds::kubernetes::provisioning::ProvisioningRequest;
pub use kinds::pod::Pod;
pub use kinds::short_forms::DriverInstall;
pub use kinds::short_forms::{Accelerator, Nodes, Scalar, Sharing, SharingStrategy};
pub use kinds::short_forms::{Taint, TaintEffect};
use model::resource::Host;
pub use model::source::{Location, Sources, Span};
pub use parse::{Failure, Loaded, Options, load, load_with, parse_in, parse_text, sections};
pub use reference::reference;
pub use schema::json_schema;
pub use slurm::Slurm;
pub use ssh::{Ssh, SshHost};

/// A stack: what should exist, from the GKE cluster down to the Dask workers and the checks.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "dask-infra stack")]
pub struct Stack {
    /// The name and the id of the stack.
    pub stack: Header,
    /// Where in Google Cloud. Give this, `[kubernetes]`, `[local]`, `[ssh]` or `[slurm]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gke: Option<Gke>,
    /// An existing Kubernetes cluster, by kubeconfig and context. Give this, `[gke]`, `[local]` or `[ssh]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<Kubernetes>,
    /// This machine: Dask clusters as processes, without Kubernetes. Give this, `[gke]`, `[kubernetes]` or `[ssh]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local: Option<Local>,
    /// Hosts at the other end of SSH: Dask clusters as processes, without Kubernetes. Give this, `[gke]`, `[kubernetes]` or
    /// `[local]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssh: Option<Ssh>,
    /// A cluster run by SLURM: Dask clusters whose workers are jobs. Give this, `[gke]`, `[kubernetes]`, `[local]` or `[ssh]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slurm: Option<Slurm>,
    /// Values to use elsewhere as `${var.NAME}`. A value here may use `${env.NAME}`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub vars: BTreeMap<String, Scalar>,
    /// The GKE cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Cluster>,
    /// GKE node pools, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_pool: BTreeMap<String, NodePool>,
    /// Kubernetes namespaces, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub namespace: BTreeMap<String, Namespace>,
    /// How the NVIDIA driver gets onto GPU nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_driver: Option<GpuDriver>,
    /// The Dask operator: its custom resource definitions, rights and Deployment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dask_operator: Option<DaskOperator>,
    /// Python environments on the host, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, Environment>,
    /// Dask clusters by name: run by the operator, or processes on the host.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub dask_cluster: BTreeMap<String, DaskCluster>,
    /// Kueue, which holds work back until a queue has room for all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kueue: Option<Kueue>,
    /// Queues of Kueue, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub queue: BTreeMap<String, Queue>,
    /// Programs that run once, each with its own Dask cluster, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub dask_job: BTreeMap<String, DaskJob>,
    /// Programs that run once, each a Kubernetes Job, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub job: BTreeMap<String, Job>,
    /// Requests for nodes that GKE makes all at once when it has the machines, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub provisioning_request: BTreeMap<String, ProvisioningRequest>,
    /// Jupyter notebooks in the cluster, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub notebook: BTreeMap<String, Notebook>,
    /// Kubernetes objects from YAML files, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub manifest: BTreeMap<String, Manifest>,
    /// Helm charts, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub helm_release: BTreeMap<String, HelmRelease>,
    /// Limits of what the stack may cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// Exceptions for what is usually a mistake, each with a reason.
    #[serde(default, skip_serializing_if = "Allow::is_empty")]
    pub allow: Allow,
    /// Actions that must pass before what depends on them is created. One that passed runs again when its text changes, or when an apply
    /// creates or replaces its node pool, the GPU driver or the Dask cluster that it computes on; `dask-infra run check.NAME` runs it at
    /// any time.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub check: BTreeMap<String, Check>,
}

impl Stack {
    /// Returns the Dask cluster that a check names, or the only one of the file, with its key.
    pub fn cluster_of_check(&self, check: &Check) -> Option<(&String, &DaskCluster)> {
        match &check.cluster {
            Some(name) => self.dask_cluster.get_key_value(name),
            None => self.dask_cluster.iter().next().filter(|_| self.dask_cluster.len() == 1),
        }
    }

    /// Returns the hosts on which Dask runs as processes; none with Kubernetes.
    pub fn hosts(&self) -> Vec<Host> {
        match (&self.ssh, &self.slurm, &self.local) {
            (Some(ssh), ..) => ssh.all(),
            (None, Some(slurm), _) => vec![slurm.host()],
            (None, None, Some(_)) => vec![Host::this_machine()],
            (None, None, None) => Vec::new(),
        }
    }

    pub fn is_on_hosts(&self) -> bool {
        self.local.is_some() || self.ssh.is_some() || self.slurm.is_some()
    }

    /// Returns true if Dask on the stack's hosts uses TLS by default. A section can set another protocol.
    pub fn speaks_tls(&self) -> bool {
        match (&self.ssh, &self.slurm, &self.local) {
            (Some(ssh), ..) => ssh.tls.unwrap_or(true),
            (None, Some(slurm), _) => slurm.tls.unwrap_or(true),
            (None, None, local) => local.as_ref().and_then(|local| local.tls).unwrap_or(false),
        }
    }

    /// Returns everything that comes from YAML, manifests and rendered charts, in the order of creation.
    pub fn bundles(&self) -> Vec<Bundle<'_>> {
        let operator = self.dask_operator.iter().filter_map(DaskOperator::bundle);
        let kueue = self.kueue.iter().filter_map(Kueue::bundle);
        let manifests = self.manifest.iter().map(|(key, section)| section.bundle(key));
        let releases = self.helm_release.iter().map(|(key, section)| section.bundle(key));
        operator.chain(kueue).chain(manifests).chain(releases).collect()
    }
}

impl Stack {
    /// Returns the section that requests the nodes of a job, with its key.
    pub fn request_of(&self, job: &str) -> Option<(&str, &ProvisioningRequest)> {
        let mut requests = self.provisioning_request.iter();
        let found = requests.find(|(_, request)| request.job.as_deref() == Some(job));
        found.map(|(key, request)| (key.as_str(), request))
    }
}

/// The name and the id of the stack.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// The owner of everything the stack makes: lower-case letters, digits and `-`, at most 40 characters.
    pub name: String,
    /// Distinguishes stacks of the same name. Written by `init`; defaults to the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// How long the stack runs after it was created or started: `"8h"`, or a table with `after`, `destroy` and `image`. Then a
    /// CronJob in the cluster stops it as `dask-infra stop` does, and its node pools have no nodes; with `destroy = true` the CronJob
    /// deletes the GKE cluster with everything in it. `dask-infra start` restores a stopped stack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<StackAfter>,
    /// How long the stack runs without work: `"30m"`, or a table as for `ttl`. It has work while a Dask cluster has tasks, and while a
    /// job, a Dask job, a Pod or a request for nodes has not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_stop: Option<StackAfter>,
}

/// Exceptions for what is usually a mistake, each with a reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Allow {
    /// Secrets in plain text (DI0254): the address named in the error, or its section, and why it may be public. `"dask_cluster.rapids.worker.env.DEMO_TOKEN" = "a public demo"`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub literal_secrets: BTreeMap<String, String>,
}

impl Header {
    /// Returns the reasons why CronJobs stop the stack, with their durations.
    pub fn expirations(&self) -> impl Iterator<Item = (ExpiryCause, &StackAfter)> {
        let keys = [(ExpiryCause::Ttl, &self.ttl), (ExpiryCause::IdleStop, &self.idle_stop)];
        keys.into_iter().filter_map(|(cause, after)| Some((cause, after.as_ref()?)))
    }
}

impl Allow {
    /// Returns true if nothing is allowed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Where in Google Cloud.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Gke {
    /// The project's id. `${env.NAME}` may be used here.
    pub project: String,
    /// A zone (`us-central1-c`) or a region (`us-central1`).
    pub location: String,
}

/// An existing Kubernetes cluster.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Kubernetes {
    /// The kubeconfig file; defaults to `$KUBECONFIG`, then `~/.kube/config`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<String>,
    /// The context in it; defaults to the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
}

/// This machine. Scheduler and workers are processes that outlive the command; what is known of them is kept below
/// `~/.local/state/dask-infra` (`$XDG_STATE_HOME`). Linux only, and it needs Python 3.8 or later.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Local {
    /// Encrypts what schedulers, workers and clients of Dask send, and lets only those with the certificates of their Dask cluster connect. Default `false`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<bool>,
}
