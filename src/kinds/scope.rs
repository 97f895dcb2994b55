//! What a section may know of its neighbours when it becomes resources.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::short::{DriverInstall, Taint};
use crate::address::Address;
use crate::resource::{OBJECT_LABEL_MANAGED_BY, OBJECT_LABEL_STACK, Owner, Target};

/// The label that GKE puts on every node of a pool.
pub const POOL_LABEL: &str = "cloud.google.com/gke-nodepool";

/// The name of everything that the operator needs.
pub const OPERATOR_NAME: &str = "dask-kubernetes-operator";

/// The section of the Dask operator.
pub const DASK_OPERATOR: &str = "dask_operator";

/// The DaemonSet's name, as upstream has it: two installers on one node would fight.
pub const DRIVER_INSTALLER: &str = "nvidia-driver-installer";

/// What a section may know of its neighbours when it becomes resources.
#[derive(Clone, Debug)]
pub struct Scope {
    /// Whose.
    pub owner: Owner,
    pub target: Target,
    /// The node pools of the file, by key.
    pub pools: Vec<PoolFacts>,
    /// Who installs the NVIDIA driver.
    pub driver: DriverInstall,
    /// Sections of the file that others may have to follow.
    pub sections: Vec<Address>,
    /// Checks and the keys of the pools they run on.
    pub checks: Vec<(Address, Option<String>)>,
    /// Live names of the file's namespaces, and their addresses.
    pub namespaces: Vec<(String, Address)>,
    /// In how many zones the cluster's nodes are.
    pub zones: u32,
}

/// A node pool as its neighbours see it.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolFacts {
    /// The section's key.
    pub key: String,
    /// The live name.
    pub name: String,
    /// Allocatable `nvidia.com/gpu` of a node: GPUs × partitions × clients.
    pub gpus: u32,
    /// Nodes at least, over all zones.
    pub nodes: u32,
    /// Machine type and GPUs, as text: what a check of the pool has checked.
    pub hardware: String,
    /// Labels that the file gives its nodes.
    pub labels: BTreeMap<String, String>,
    /// Taints that the file gives.
    pub taints: Vec<Taint>,
}

impl Scope {
    pub fn pool(&self, key: &str) -> Option<&PoolFacts> {
        self.pools.iter().find(|pool| pool.key == key)
    }

    /// The address of a section, when the file has it.
    pub fn section(&self, address: &str) -> Option<Address> {
        self.sections.iter().find(|known| known.as_str() == address).cloned()
    }

    /// What everything inside the cluster follows.
    pub fn inside(&self) -> Vec<Address> {
        self.section("cluster").into_iter().collect()
    }

    /// Labels of every object of the stack. They narrow LISTs; they do not tell who owns what.
    pub fn labels(&self) -> Value {
        json!({
            OBJECT_LABEL_MANAGED_BY: "dask-infra",
            OBJECT_LABEL_STACK: self.owner.stack,
        })
    }

    /// The section of a namespace, by its live name.
    pub fn namespace(&self, name: &str) -> Option<Address> {
        self.namespaces.iter().find(|(live, _)| live == name).map(|(_, address)| address.clone())
    }

    /// What follows from a namespace: its section when the file has one, else the cluster.
    pub fn in_namespace(&self, namespace: &str) -> Vec<Address> {
        let mut follows = self.inside();
        follows.extend(self.namespace(namespace));
        follows
    }

    /// Labels of what stacks share: the same from every stack, so that none takes them from another.
    pub fn shared_labels(&self) -> Value {
        json!({ OBJECT_LABEL_MANAGED_BY: "dask-infra" })
    }
}
