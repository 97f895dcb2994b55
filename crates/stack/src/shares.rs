//! `cpu = "fit"` and `memory = "fit"` of workers: the share of a node of their pool, as an amount.
//!
//! The share is what kube-scheduler certainly finds free on a new node beside Pods of GKE and of DaemonSets, divided by the workers on
//! the node, less what runs beside Dask in a worker's Pod. Taints keep all other Pods off the node. So Dask's own limits act before
//! those of the kernel, and no two workers of a node each count on all of its memory.

use fit::gke::admission;
use fit::{PodRequirements, Resource as Amount};
use kinds::gke::placement::{PoolNodes, Pools};
use kinds::section::{PodRole, Pods, external_sections};
use model::address::FieldPath;
use model::resource::Lowered;
use serde_json::{Value, json};

use crate::files::put;
use crate::lower::lower;
use crate::{NodePool, Stack};

/// Thousandths of a CPU below which no share is set, and the steps of small shares.
const CPU_STEP: i64 = 100;
/// Thousandths of a CPU from which a share is a whole number of CPUs, as the number of threads of `dask worker` is.
const WHOLE_CPUS: i64 = 4000;
const MIB: i64 = 1 << 20;
/// The steps of shares of memory, in MiB: of small ones, and from [`WHOLE_GIB`] on.
const SMALL_MEMORY_STEP: i64 = 256;
const LARGE_MEMORY_STEP: i64 = 1024;
/// The memory, in MiB, from which a share is a whole number of GiB.
const WHOLE_GIB: i64 = 16 * 1024;

/// An amount that is to be a share of a node.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The section with the amount.
    pub section: FieldPath,
    /// The key of the pool; empty without a pool.
    pub pool: String,
    /// `cpu` or `memory`.
    pub key: &'static str,
    /// The share as a quantity.
    pub share: Result<String, NoShare>,
}

/// The reason why an amount cannot be a share of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoShare {
    /// The Pods are not those of workers.
    NoWorkers,
    OnHosts,
    /// The cluster is that of `[kubernetes]`.
    OtherCluster,
    Autopilot,
    ExternalCluster,
    NoPool,
    ExternalPool,
    UnknownSize,
    NotReserved,
    NoRoom(NoRoom),
    /// A part of the file that the share needs has an error.
    Unclear,
}

/// A share that is too small.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NoRoom {
    pub resource: Amount,
    /// The amount that is certainly free on a new node.
    pub free: i64,
    /// The workers on a node.
    pub workers: i64,
    /// The amount for other containers of each worker's Pod.
    pub taken: i64,
}

/// Returns all amounts of a stack that are to be shares. `is_sound` is false if values of the file are missing in the stack.
pub(crate) fn of(stack: &Stack, is_sound: bool) -> Vec<Shared> {
    // A job may copy an external Dask cluster.
    let external = external_sections(&stack.dask_cluster)
        .flat_map(|(key, cluster)| cluster.own_pods(&FieldPath::keys(["dask_cluster", key])));
    let sections: Vec<Pods<'_>> = stack.pods().into_iter().chain(external).collect();
    if sections.iter().all(|pods| pods.keys.fitted().next().is_none()) {
        return Vec::new();
    }
    let lowered = is_sound.then(|| lower(stack, true));
    let pools = lowered
        .as_ref()
        .and_then(|lowered| Pools::of(&lowered.resources, &lowered.external, &lowered.capacity_options));
    let shared = |pods: &Pods<'_>| {
        let workers = Workers::of(pods, stack, lowered.as_ref(), pools.as_ref());
        let share = |key| workers.as_ref().map_err(NoShare::clone).and_then(|workers| workers.share(key));
        let pool = pods.keys.pool.clone().unwrap_or_default();
        let shared = |key| Shared { section: pods.path.clone(), pool: pool.clone(), key, share: share(key) };
        pods.keys.fitted().map(shared).collect::<Vec<_>>()
    };
    sections.iter().flat_map(shared).collect()
}

/// Puts the shares in the place of `fit`.
pub(crate) fn put_in(value: &mut Value, shared: &[Shared]) {
    for Shared { section, key, share, .. } in shared {
        if let Ok(share) = share {
            put(value, section.key(key).segments(), &json!(share));
        }
    }
}

/// The workers of a section, on the pool that they name.
struct Workers<'a> {
    pools: &'a Pools<'a>,
    pool: &'a PoolNodes<'a>,
    /// The workers on a node.
    number: i64,
    /// Their Pod without the amounts in question.
    pod: PodRequirements,
    /// Their Pod without init containers either.
    running: PodRequirements,
}

impl<'a> Workers<'a> {
    fn of(
        pods: &Pods<'_>,
        stack: &Stack,
        lowered: Option<&Lowered>,
        pools: Option<&'a Pools<'a>>,
    ) -> Result<Self, NoShare> {
        let (key, section) = pool_of(pods, stack)?;
        let lowered = lowered.ok_or(NoShare::Unclear)?;
        let (pools, pool) = pools
            .and_then(|pools| Some((pools, pools.pool(section.live_name(key))?)))
            .ok_or(NoShare::UnknownSize)?;
        if !pools.is_reserved(pool) {
            return Err(NoShare::NotReserved);
        }
        let mut template = template(&pods.path, lowered).ok_or(NoShare::Unclear)?.clone();
        let pod = read(&template)?;
        remove_init_containers(&mut template);
        let workers = Self { pools, pool, number: 1, pod, running: read(&template)? };
        let by_gpus = section.allocatable_gpus().checked_div(pods.keys.gpus()).map(i64::from);
        Ok(Self { number: workers.number(pods, by_gpus), ..workers })
    }

    /// Returns how many workers share a node: as many as its GPUs, the amount that is a quantity and the number of its Pods allow; one,
    /// where neither GPUs nor an amount are given, or where the node has too little for one, which a rule reports.
    fn number(&self, pods: &Pods<'_>, by_gpus: Option<i64>) -> i64 {
        let by_amount = pods.keys.quantities().filter_map(|(key, _)| {
            let resource = Amount::of(key)?;
            Some(self.free(&resource) / amount(&self.pod, &resource).max(1))
        });
        let number = by_gpus.into_iter().chain(by_amount).min().unwrap_or(1);
        number.min(self.free(&Amount::Pods)).max(1)
    }

    fn free(&self, resource: &Amount) -> i64 {
        self.pools.free(self.pool, resource)
    }

    fn share(&self, key: &str) -> Result<String, NoShare> {
        let resource = Amount::of(key).ok_or(NoShare::Unclear)?;
        let (free, workers) = (self.free(&resource), self.number);
        let (running, most) = (amount(&self.running, &resource), amount(&self.pod, &resource));
        let part = free / workers;
        let share = text(&resource, part.saturating_sub(running)).filter(|_| most <= part);
        share.ok_or(NoShare::NoRoom(NoRoom { resource, free, workers, taken: most }))
    }
}

/// Returns the pool of workers, by its key, if the stack creates its nodes.
fn pool_of<'s>(pods: &'s Pods<'_>, stack: &'s Stack) -> Result<(&'s str, &'s NodePool), NoShare> {
    if pods.role != PodRole::Worker {
        return Err(NoShare::NoWorkers);
    }
    if stack.is_on_hosts() {
        return Err(NoShare::OnHosts);
    }
    let cluster = stack.cluster.as_ref().ok_or(NoShare::OtherCluster)?;
    if cluster.autopilot {
        return Err(NoShare::Autopilot);
    }
    if !cluster.manage.is_managed() {
        return Err(NoShare::ExternalCluster);
    }
    let key = pods.keys.pool.as_ref().ok_or(NoShare::NoPool)?;
    let pool = stack.node_pool.get(key).ok_or(NoShare::Unclear)?;
    pool.manage.is_managed().then_some((key.as_str(), pool)).ok_or(NoShare::ExternalPool)
}

/// Returns the template of the workers at a path, also if there are none for now.
fn template<'r>(workers: &FieldPath, lowered: &'r Lowered) -> Option<&'r Value> {
    let sections = [Some(workers.clone()), workers.parent()];
    let external = lowered.external.iter().map(|external| &external.resource);
    let own = lowered.resources.iter().chain(external);
    own.filter(|resource| sections.iter().flatten().any(|section| *section == resource.origin)).find_map(
        |resource| {
            let of_job = resource.body.pointer("/spec/cluster/spec/worker");
            of_job.or_else(|| resource.body.pointer("/spec/worker"))
        },
    )
}

fn read(template: &Value) -> Result<PodRequirements, NoShare> {
    admission().read(template, "default").map_err(|_| NoShare::Unclear)
}

/// Removes the init containers. All end before the other containers start: Dask's kinds have no field that makes sidecars of them.
fn remove_init_containers(template: &mut Value) {
    if let Some(containers) = template.pointer_mut("/spec/initContainers") {
        *containers = Value::Null;
    }
}

/// Returns the amount of a resource that a Pod requests.
fn amount(pod: &PodRequirements, resource: &Amount) -> i64 {
    pod.request(resource).map_or(0, |request| request.amount)
}

/// Returns a share as a quantity, rounded down; `None` if nothing is left.
fn text(resource: &Amount, share: i64) -> Option<String> {
    if *resource == Amount::Cpu { cpu_text(share) } else { memory_text(share) }
}

/// Returns thousandths of a CPU as a quantity, rounded down.
fn cpu_text(milli: i64) -> Option<String> {
    let step = if milli >= WHOLE_CPUS { 1000 } else { CPU_STEP };
    let rounded = milli / step * step;
    match rounded % 1000 {
        _ if rounded < CPU_STEP => None,
        0 => Some((rounded / 1000).to_string()),
        _ => Some(format!("{rounded}m")),
    }
}

/// Returns bytes as a quantity, rounded down.
fn memory_text(bytes: i64) -> Option<String> {
    let mib = bytes / MIB;
    let step = if mib >= WHOLE_GIB { LARGE_MEMORY_STEP } else { SMALL_MEMORY_STEP };
    let rounded = mib / step * step;
    match rounded % 1024 {
        _ if rounded < step => None,
        0 => Some(format!("{}Gi", rounded / 1024)),
        _ => Some(format!("{rounded}Mi")),
    }
}

#[cfg(test)]
#[path = "shares_tests.rs"]
mod tests;
