//! A cluster with its loops and a clock, for tests.

use std::collections::BTreeMap;

use fit::gke::pool::Features;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::super::object::name;
use super::{Loops, PoolView, Scripts};
use crate::clock::Scale;
use crate::kube::object::Key;
use crate::kube::store::{Cluster, DeleteOptions};

pub struct World {
    pub cluster: Cluster,
    pub loops: Loops,
    pub pools: Vec<PoolView>,
    pub now: Timestamp,
}

/// Time runs as fast as in reality: seconds of a test are seconds of `stages.toml`.
const SCALE: Scale = Scale { time_scale: 1.0 };

impl World {
    pub fn new(pools: Vec<PoolView>) -> Self {
        let now = Timestamp::from_second(1_795_000_000).expect("a time");
        Self { cluster: Cluster::new("test", now), loops: Loops::new(Scripts::default()), pools, now }
    }

    /// With the Dask operator's CRDs.
    pub fn with_dask(pools: Vec<PoolView>) -> Self {
        let mut world = Self::new(pools);
        for crd in model::schema::dask_crds() {
            world.create(crd.clone());
        }
        world.cluster.collect(world.now);
        world
    }

    /// Lets seconds pass, stepping at every moment when something is due.
    pub fn pass(&mut self, seconds: i64) {
        let end = self.now + SignedDuration::from_secs(seconds);
        loop {
            self.loops.step(&mut self.cluster, &self.pools, self.now, &SCALE);
            match self.loops.due().filter(|due| *due <= end) {
                Some(due) => self.now = self.now.max(due),
                None => break,
            }
        }
        self.now = end;
        self.loops.step(&mut self.cluster, &self.pools, self.now, &SCALE);
    }

    pub fn create(&mut self, object: Value) -> Value {
        let made = self.cluster.create(self.now, "test", object);
        made.unwrap_or_else(|status| panic!("{status:?}"))
    }

    pub fn merge(&mut self, key: &Key, patch: &Value) {
        let merged =
            self.cluster.update(self.now, "test", key, |object| super::super::object::merge(object, patch));
        merged.unwrap_or_else(|status| panic!("{status:?}"));
    }

    pub fn delete(&mut self, key: &Key) {
        self.cluster.delete(self.now, key, &DeleteOptions::default()).expect("a deletion");
    }

    pub fn get(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Value {
        self.cluster.get(&Key::new(group, resource, namespace, name)).cloned().unwrap_or(Value::Null)
    }

    pub fn all(&self, group: &str, resource: &str) -> Vec<Value> {
        self.cluster.list(group, resource).map(|(_, object)| object.clone()).collect()
    }

    pub fn names(&self, group: &str, resource: &str, namespace: &str) -> Vec<String> {
        let all = self.cluster.list(group, resource).filter(|(key, _)| key.namespace == namespace);
        all.map(|(_, object)| name(object).to_owned()).collect()
    }

    pub fn pods(&self, namespace: &str) -> Vec<Value> {
        let all = self.cluster.list("", "pods").filter(|(key, _)| key.namespace == namespace);
        all.map(|(_, object)| object.clone()).collect()
    }
}

/// A pool of one zone; `config` is merged over a plain one.
pub fn pool(name: &str, machine: &str, size: u32, config: Value) -> PoolView {
    let mut pool = json!({
        "name": name, "version": "1.33.5-gke.1201000",
        "selfLink": format!(
            "https://container.googleapis.com/v1/projects/my-project/zones/us-central1-c/clusters/c/nodePools/{name}"
        ),
        "config": {
            "machineType": machine, "diskSizeGb": 100, "diskType": "pd-balanced", "imageType": "COS_CONTAINERD",
        },
        "maxPodsConstraint": {"maxPodsPerNode": "110"},
        "upgradeSettings": {"maxSurge": 1, "strategy": "SURGE"},
    });
    super::super::object::merge(&mut pool["config"], &config);
    let sizes = BTreeMap::from([("us-central1-c".to_owned(), size)]);
    PoolView {
        pool,
        target_sizes: sizes.clone(),
        wanted_sizes: sizes,
        scale_up_error: None,
        deleting: false,
        instance_prefix: format!("gke-c-{name}-0a1b2c3d"),
        features: Features::default(),
    }
}

pub fn gpu(ty: &str, count: &str, driver: &str) -> Value {
    json!({"accelerators": [{
        "acceleratorCount": count, "acceleratorType": ty,
        "gpuDriverInstallationConfig": {"gpuDriverVersion": driver},
    }]})
}
