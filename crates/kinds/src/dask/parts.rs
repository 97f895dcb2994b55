//! The scheduler and the default workers of a cluster, from its own section or from the section that a job copies.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::dask::device_memory::{self, DeviceMemoryKeys};
use crate::dask::pods::{self, PodSpecKeys};
use crate::dask::process::ProcessKeys;
use crate::dask::replicas::Replicas;
use crate::dask_config::DaskConfig;
use crate::kubernetes::pod_code::PodCode;
use crate::scope::Scope;
use crate::section::{PodKeys, PodRole, Pods};
use crate::slurm::SlurmKeys;
use crate::worker_resources::WorkerResources;
use model::address::FieldPath;

/// The scheduler of a Dask cluster.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct Scheduler {
    /// With `[ssh]`: the host that it runs on. Default the home of the stack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<String>,
    /// On a host: the address that scheduler and workers listen on. Whoever reaches it can run code. Default `127.0.0.1`;
    /// with `[ssh]` the address of its host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// On a host: the network interface that the scheduler listens on, instead of `host`: `"ib0"`. Its IPv4 address counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// With `[slurm]`: the scheduler is a job, too, instead of a process on the login node, and this is what it asks for where it
    /// is not what `[slurm]` says: `{ time_limit = "2d" }`, or `{}`. `cpu` and `memory` are its own; default one CPU, and the memory that
    /// its partition gives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slurm: Option<SlurmKeys>,
    /// On a host: the port for workers and clients. Default 8786; a free one of its node where it is a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u16>,
    /// On a host: the port of the dashboard, which also tells the state of the workers. Default 8787; a free
    /// one of its node where it is a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub dashboard_port: Option<u16>,
    /// The resources and the placement of each pod.
    #[serde(flatten)]
    pub keys: PodKeys,
    /// Arguments of the image's entry point. Default `dask scheduler`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
}

/// The default group of workers of a Dask cluster.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct Worker {
    /// How many: a number; `{ min = 0, max = 8 }` for the operator's autoscaler, on a host for distributed's own `Adaptive`;
    /// `{ start = 2 }` for the initial number, which then belongs to notebooks. Default 1.
    #[serde(default)]
    pub replicas: Replicas,
    /// With `[slurm]`: what their jobs ask for, where it is not what `[slurm]` says: `{ partition = "gpu" }`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slurm: Option<SlurmKeys>,
    /// With `[ssh]`: the hosts that they are spread over; `gpu[1-4]` is `gpu1` to `gpu4`. Default all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// On a host: what scheduler and workers speak: `"tls"`, the default with `[ssh]` and `[slurm]`, `"tcp"`, the default with `[local]`, or
    /// `"ucx"` for InfiniBand and NVLink, which needs `distributed-ucxx` in the environment and has no TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// The folder that the workers work in, where it is not the `working_dir` of the whole cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    /// How their processes run.
    #[serde(flatten)]
    pub process: ProcessKeys,
    /// Their use of GPU memory.
    #[serde(flatten)]
    pub device_memory: DeviceMemoryKeys,
    /// The resources and the placement of each pod.
    #[serde(flatten)]
    pub keys: PodKeys,
    /// Dask resources of each worker, which tasks can request: `{ GPU = 1 }`.
    #[serde(default, skip_serializing_if = "WorkerResources::is_empty")]
    pub resources: WorkerResources,
    /// Arguments of the image's entry point. Default `dask cuda worker --name $(DASK_WORKER_NAME)` with GPUs,
    /// `dask worker --name $(DASK_WORKER_NAME)` without.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
}

impl Scheduler {
    pub(crate) fn pod_keys<'a>(&'a self, image: &'a str, config: &'a DaskConfig) -> PodSpecKeys<'a> {
        PodSpecKeys { image, args: &self.args, keys: &self.keys, resources: None, config: Some(config) }
    }

    /// Returns its pod; `image` is the path of the image, and the image.
    pub(crate) fn pods<'a>(&'a self, path: FieldPath, image: (FieldPath, &'a str)) -> Pods<'a> {
        let (image_path, image) = image;
        Pods {
            path,
            role: PodRole::Scheduler,
            replicas: 1,
            image,
            image_path,
            args: &self.args,
            keys: &self.keys,
        }
    }
}

impl Worker {
    pub(crate) fn pod_keys<'a>(&'a self, image: &'a str, config: &'a DaskConfig) -> PodSpecKeys<'a> {
        let resources = Some(&self.resources);
        PodSpecKeys { image, args: &self.args, keys: &self.keys, resources, config: Some(config) }
    }

    /// Returns its pods; `image` is the path of the image, and the image.
    pub(crate) fn pods<'a>(
        &'a self,
        path: FieldPath,
        image: (FieldPath, &'a str),
        replicas: u32,
    ) -> Pods<'a> {
        let (image_path, image) = image;
        Pods { path, role: PodRole::Worker, replicas, image, image_path, args: &self.args, keys: &self.keys }
    }
}

/// The scheduler and the workers of a cluster, each with the path of the section that describes it.
pub(crate) struct SchedulerAndWorkers<'a> {
    pub image: &'a str,
    /// Dask's configuration, and the path of its table.
    pub config: (&'a DaskConfig, FieldPath),
    /// The user's own code.
    pub code: PodCode<'a>,
    /// The path of the key that switches cuDF's spilling on, for some workers of the cluster.
    pub cudf_spill: Option<FieldPath>,
    pub scheduler: (&'a Scheduler, FieldPath),
    pub worker: (&'a Worker, FieldPath),
}

impl<'a> SchedulerAndWorkers<'a> {
    pub fn pod_keys(&self) -> [PodSpecKeys<'a>; 2] {
        let config = self.config.0;
        [self.scheduler.0.pod_keys(self.image, config), self.worker.0.pod_keys(self.image, config)]
    }

    /// Returns both parts as the spec of a DaskCluster.
    pub fn spec(&self, scope: &Scope) -> Value {
        let [scheduler, worker] = self.pod_keys();
        let mut scheduler_pod = pods::scheduler(&scheduler, scope);
        if self.cudf_spill.is_some() {
            let env = &scheduler.keys.env;
            device_memory::add_spill_to_container(&mut scheduler_pod["containers"][0], env);
        }
        let Worker { process, device_memory, working_dir, .. } = self.worker.0;
        let mut worker_pod = pods::worker(&worker, process, device_memory, scope);
        self.code.add_to(&mut scheduler_pod, &scheduler.keys.env, None);
        self.code.add_to(&mut worker_pod, &worker.keys.env, working_dir.as_deref());
        json!({ "scheduler": { "spec": scheduler_pod }, "worker": { "spec": worker_pod } })
    }

    /// Merges the labels, annotations and the `pod` table of both into the spec, whose path in the body is `path`. Adds the
    /// provenance of their pods.
    pub fn merge_into(
        &self,
        spec: &mut Value,
        path: &FieldPath,
        provenance: &mut Vec<(FieldPath, FieldPath)>,
    ) {
        let Self { scheduler: (scheduler, scheduler_of), worker: (worker, worker_of), .. } = self;
        let (config, config_of) = &self.config;
        let parts = [("scheduler", &scheduler.keys, scheduler_of), ("worker", &worker.keys, worker_of)];
        for (part, keys, section) in parts {
            let (path, from) = (path.key(part), section.key(part));
            provenance.extend(pods::provenance(&path.key("spec"), &from, &section.key("image")));
            let container = path.key("spec").key("containers").index(0);
            let made = &spec[part]["spec"]["containers"][0];
            provenance.extend(config.container_provenance(made, &container, config_of));
            let folder = (part == "worker" && worker.working_dir.is_some()).then(|| from.key("working_dir"));
            provenance.extend(self.code.provenance(&spec[part]["spec"], &path.key("spec"), folder));
            if let Some(spill) = self.cudf_spill.as_ref().filter(|_| part == "scheduler") {
                provenance.extend(device_memory::spill_provenance(made, &keys.env, &container, spill));
            }
            keys.merge_into(&mut spec[part], &path, &from, provenance);
        }
    }
}
