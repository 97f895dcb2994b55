//! Facts about its neighbors that a section may use when it becomes resources.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::short_forms::{DriverInstall, Taint};
use crate::slurm::SlurmKeys;
use model::address::Address;
use model::resource::{OBJECT_LABEL_MANAGED_BY, OBJECT_LABEL_STACK, Owner, Target};

/// The label that GKE puts on every node of a pool.
pub const POOL_LABEL: &str = "cloud.google.com/gke-nodepool";

/// The name of everything that the operator needs.
pub const OPERATOR_NAME: &str = "dask-kubernetes-operator";

pub const DASK_OPERATOR: &str = "dask_operator";

pub const KUEUE: &str = "kueue";

/// The start of the label by which a pod may connect to a Dask cluster of its namespace whose network is closed. With the cluster's name, of
/// at most 53 characters, it fits into the 63 of a label's name.
pub const CLIENT_LABEL_PREFIX: &str = "dask-infra.dev/client-of-";

/// Puts that label into the metadata of a pod, or of its template.
pub fn allow_client(metadata: &mut Value, cluster: &str) {
    metadata["labels"][format!("{CLIENT_LABEL_PREFIX}{cluster}")] = json!("true");
}

/// The API group of Kueue.
pub const KUEUE_GROUP: &str = "kueue.x-k8s.io";

/// The DaemonSet's name, as upstream has it: two installers on one node would fight.
pub const DRIVER_INSTALLER: &str = "nvidia-driver-installer";

/// The API group of what lives on hosts.
pub const HOSTS_GROUP: &str = "hosts.dask-infra.dev";

#[derive(Clone, Debug)]
pub struct Scope {
    pub owner: Owner,
    pub target: Target,
    /// The node pools of the file, by key.
    pub pools: Vec<PoolFacts>,
    /// The installer of the NVIDIA driver.
    pub driver: DriverInstall,
    /// Sections of the file that others may have to follow.
    pub sections: Vec<Address>,
    /// The queues of the file.
    pub queues: Vec<QueueFacts>,
    /// True if a Kueue that serves v1beta2 is part of the file.
    pub newer_kueue: bool,
    /// Where the operator of the file runs.
    pub operator_namespace: Option<String>,
    /// Checks and the keys of the pools they run on.
    pub checks: Vec<(Address, Option<String>)>,
    /// Live names of the file's namespaces, and their addresses.
    pub namespaces: Vec<(String, Address)>,
    /// In how many zones the cluster's nodes are.
    pub zones: u32,
    /// The Dask clusters of the file, by key.
    pub dask: Vec<DaskFacts>,
    /// The options of `[slurm]`, when the stack has it.
    pub slurm: Option<SlurmKeys>,
    /// Python environments on hosts.
    pub environments: Vec<EnvironmentFacts>,
    /// True where Dask on hosts speaks TLS by default: a section may name another protocol.
    pub tls: bool,
}

/// A Dask cluster as checks see it.
#[derive(Clone, Debug, PartialEq)]
pub struct DaskFacts {
    pub key: String,
    /// The live name.
    pub name: String,
    pub image: String,
    /// True if a NetworkPolicy restricts its clients.
    pub is_network_restricted: bool,
    /// Other namespaces with notebooks and checks of it.
    pub client_namespaces: BTreeSet<String>,
    /// The address of its scheduler, as its workers and its checks reach it.
    pub scheduler: String,
    /// The environment that its section names.
    pub environment: Option<String>,
    /// The host of its scheduler, if there are several hosts.
    pub scheduler_host: Option<String>,
}

/// An environment as its neighbors see it.
#[derive(Clone, Debug, PartialEq)]
pub struct EnvironmentFacts {
    pub key: String,
    /// Tells one text of it from another.
    pub digest: String,
    /// Packages that workers install when they start.
    pub pip_install: Vec<String>,
}

impl EnvironmentFacts {
    /// Returns its name on the host: several stacks of one machine have an environment `main`.
    pub fn live_name(&self, owner: &Owner) -> String {
        format!("{}-{}", owner.id, self.key)
    }
}

/// A node pool as its neighbors see it.
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
    /// Nodes at most, over all zones.
    pub most: u32,
    /// Machine type and GPUs, as text: what a check of the pool has checked.
    pub hardware: String,
    /// Labels that the file gives its nodes.
    pub labels: BTreeMap<String, String>,
    /// Taints that the file gives.
    pub taints: Vec<Taint>,
    /// True if its nodes are for queued requests, or may be.
    pub queued: bool,
    /// True if its nodes may also be had in a way that needs no request.
    pub other_options: bool,
}

/// A queue as the work in it sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueFacts {
    /// The section's key.
    pub key: String,
    /// The live name.
    pub name: String,
    /// Namespaces with work that waits in it.
    pub namespaces: BTreeSet<String>,
    /// True if its priorities are managed by the stack.
    pub managed: bool,
}

impl QueueFacts {
    /// The class of a priority of its work. Classes are of the whole cluster, and what is urgent in one queue is not so in
    /// another: those of the stack have the queue's name in theirs.
    pub fn priority_class(&self, priority: &str) -> String {
        match self.managed {
            true => format!("{}-{priority}", self.name),
            false => priority.to_owned(),
        }
    }
}

impl Scope {
    /// The class of the priority of work in a queue.
    pub fn priority_class(&self, queue: Option<&str>, priority: Option<&str>) -> Option<String> {
        Some(self.queue(queue?)?.priority_class(priority?))
    }

    pub fn queue(&self, key: &str) -> Option<&QueueFacts> {
        self.queues.iter().find(|queue| queue.key == key)
    }

    pub fn pool(&self, key: &str) -> Option<&PoolFacts> {
        self.pools.iter().find(|pool| pool.key == key)
    }

    /// The environment of this key; without one, the only one of the file.
    pub fn environment(&self, key: Option<&str>) -> Option<&EnvironmentFacts> {
        match (key, self.environments.as_slice()) {
            (Some(key), all) => all.iter().find(|environment| environment.key == key),
            (None, [only]) => Some(only),
            (None, _) => None,
        }
    }

    /// The Dask cluster of this key; without one, the only one of the file.
    pub fn dask_cluster(&self, key: Option<&str>) -> Option<&DaskFacts> {
        match (key, self.dask.as_slice()) {
            (Some(key), all) => all.iter().find(|cluster| cluster.key == key),
            (None, [only]) => Some(only),
            (None, _) => None,
        }
    }

    /// The Dask cluster of the section with this address.
    pub fn dask_of(&self, section: &Address) -> Option<&DaskFacts> {
        self.dask_cluster(Some(section.as_str().strip_prefix("dask_cluster.")?))
    }

    /// The address of a section, when the file has it.
    pub fn section(&self, address: &str) -> Option<Address> {
        self.sections.iter().find(|known| known.as_str() == address).cloned()
    }

    /// Returns the addresses that everything inside the cluster follows.
    pub fn cluster_dependency(&self) -> Vec<Address> {
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

    /// Returns the addresses that things in a namespace follow: the cluster, and the namespace's section if there is one.
    pub fn in_namespace(&self, namespace: &str) -> Vec<Address> {
        let mut depends_on = self.cluster_dependency();
        depends_on.extend(self.namespace(namespace));
        depends_on
    }

    /// Labels of what stacks share: the same from every stack, so that none takes them from another.
    pub fn shared_labels(&self) -> Value {
        json!({ OBJECT_LABEL_MANAGED_BY: "dask-infra" })
    }
}
