//! What the stack says of Pods, wherever it says it.

use super::Context;
use crate::address::FieldPath;
use crate::stack::{self, DaskCluster, DaskJob, Notebook};

/// What the pod of a notebook is called in messages.
pub(super) const NOTEBOOK: &str = "the notebook";

/// A kind of Pod that the stack makes.
pub(super) struct Pod<'a> {
    pub(super) path: FieldPath,
    pub(super) image_path: FieldPath,
    pub(super) what: &'static str,
    pub(super) replicas: u32,
    pub(super) gpus: u32,
    pub(super) cpu: Option<&'a str>,
    pub(super) memory: Option<&'a str>,
    pub(super) pool: Option<&'a str>,
    pub(super) prefer_pool: Option<&'a str>,
    pub(super) args: &'a [String],
    pub(super) env: &'a stack::Env,
    pub(super) image: &'a str,
    pub(super) pod: Option<&'a stack::Pod>,
}

/// A [`Pod`] of a section that has the keys of one: they have the same names everywhere.
macro_rules! pod {
    ($keys:expr, $what:literal, $replicas:expr, $path:expr, $image:expr) => {{
        let (image_path, image) = $image;
        Pod {
            path: $path,
            image_path,
            what: $what,
            replicas: $replicas,
            gpus: $keys.gpus.unwrap_or(0),
            cpu: $keys.cpu.as_deref(),
            memory: $keys.memory.as_deref(),
            pool: $keys.pool.as_deref(),
            prefer_pool: $keys.prefer_pool.as_deref(),
            args: &$keys.args,
            env: &$keys.env,
            image,
            pod: $keys.pod.as_ref(),
        }
    }};
}

impl<'a> Context<'a> {
    /// Everything in the stack that becomes Pods of ours.
    pub(super) fn pods(&self) -> Vec<Pod<'a>> {
        pods_of(self.stack)
    }
}

/// Everything in a stack that becomes Pods of ours.
pub(super) fn pods_of(stack: &stack::Stack) -> Vec<Pod<'_>> {
    let of_clusters = stack.dask_cluster.iter().flat_map(|(name, cluster)| of_cluster(name, cluster));
    let of_jobs = stack.dask_job.iter().flat_map(|(name, job)| of_job(name, job));
    let of_notebooks = stack.notebook.iter().map(|(name, notebook)| of_notebook(name, notebook));
    of_clusters.chain(of_jobs).chain(of_notebooks).collect()
}

fn of_cluster<'a>(name: &str, cluster: &'a DaskCluster) -> Vec<Pod<'a>> {
    let DaskCluster { scheduler, worker, group, image, .. } = cluster;
    let section = FieldPath::keys(["dask_cluster", name]);
    let of_all = || (section.key("image"), image.as_str());
    let replicas = worker.replicas.most();
    let mut pods = Vec::new();
    // Of a cluster of others the stack makes groups only.
    if cluster.is_managed() {
        pods.push(pod!(scheduler, "the scheduler", 1, section.key("scheduler"), of_all()));
        pods.push(pod!(worker, "each worker", replicas, section.key("worker"), of_all()));
    }
    pods.extend(group.iter().map(|(key, group)| {
        let path = section.key("group").key(key);
        let own = group.image.as_deref().map(|image| (path.key("image"), image));
        pod!(group, "each worker", group.replicas.most(), path, own.unwrap_or_else(of_all))
    }));
    pods
}

fn of_job<'a>(name: &str, job: &'a DaskJob) -> Vec<Pod<'a>> {
    let path = FieldPath::keys(["dask_job", name]);
    let image = || (path.key("image"), job.image.as_deref().unwrap_or_default());
    let mut pods = vec![pod!(job, "the program", 1, path.clone(), image())];
    let scheduler = job.scheduler.as_ref();
    pods.extend(scheduler.map(|own| pod!(own, "the scheduler", 1, path.key("scheduler"), image())));
    pods.extend(job.worker.as_ref().map(|own| {
        let replicas = job.replicas.unwrap_or(own.replicas.most());
        pod!(own, "each worker", replicas, path.key("worker"), image())
    }));
    pods
}

fn of_notebook<'a>(name: &str, notebook: &'a Notebook) -> Pod<'a> {
    let path = FieldPath::keys(["notebook", name]);
    Pod {
        image_path: path.key("image"),
        path,
        what: NOTEBOOK,
        replicas: 1,
        gpus: notebook.gpus.unwrap_or(0),
        cpu: notebook.cpu.as_deref(),
        memory: notebook.memory.as_deref(),
        pool: notebook.pool.as_deref(),
        prefer_pool: notebook.prefer_pool.as_deref(),
        // What it runs is not the stack's to say.
        args: &[],
        env: &notebook.env,
        image: notebook.image.as_deref().unwrap_or_default(),
        pod: notebook.pod.as_ref(),
    }
}
