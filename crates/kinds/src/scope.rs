//! Facts about other sections that a section may use when it is lowered.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::dask_config::DaskConfig;
use crate::short_forms::{DriverInstall, Taint};
use crate::slurm::SlurmKeys;
use model::address::Address;
use model::resource::{OBJECT_LABEL_MANAGED_BY, OBJECT_LABEL_STACK, Owner, Target};

/// The label that GKE puts on every node of a pool.
pub const POOL_LABEL: &str = "cloud.google.com/gke-nodepool";

/// The name of the Dask operator in its labels, and the prefix of the names of its objects.
pub const OPERATOR_NAME: &str = "dask-kubernetes-operator";

pub const DASK_OPERATOR: &str = "dask_operator";

pub const KUEUE: &str = "kueue";

/// The prefix of a label that allows a pod to connect to a Dask cluster with `network_policy` in its namespace. The cluster's
/// name (at most 53 characters) follows; together they fit into the 63 characters of a label's name.
pub const CLIENT_LABEL_PREFIX: &str = "dask-infra.dev/client-of-";

/// Adds the label that allows a pod to connect to a Dask cluster to the metadata of the pod or its template.
pub fn allow_client(metadata: &mut Value, cluster: &str) {
    metadata["labels"][format!("{CLIENT_LABEL_PREFIX}{cluster}")] = json!("true");
}

/// The API group of Kueue.
pub const KUEUE_GROUP: &str = "kueue.x-k8s.io";

/// The name of the driver installer's DaemonSet. It is the upstream name, because two installers on one node would conflict.
pub const DRIVER_INSTALLER: &str = "nvidia-driver-installer";

/// The API group of objects on hosts.
pub const HOSTS_GROUP: &str = "hosts.dask-infra.dev";

#[derive(Clone, Debug)]
pub struct Scope {
    pub owner: Owner,
    pub target: Target,
    /// The node pools of the file, by key.
    pub pools: Vec<PoolFacts>,
    /// The installer of the NVIDIA driver.
    pub driver: DriverInstall,
    /// Addresses of sections that other sections may depend on.
    pub sections: Vec<Address>,
    /// The queues of the file.
    pub queues: Vec<QueueFacts>,
    /// True if a Kueue that serves v1beta2 is part of the file.
    pub newer_kueue: bool,
    /// The namespace of the file's operator.
    pub operator_namespace: Option<String>,
    /// Checks, each with the key of its pool.
    pub checks: Vec<(Address, Option<String>)>,
    /// Live names and addresses of the file's namespaces.
    pub namespaces: Vec<(String, Address)>,
    /// The number of zones of the cluster's nodes.
    pub zones: u32,
    /// The Dask clusters of the file, by key.
    pub dask: Vec<DaskFacts>,
    /// The options of `[slurm]`, if the stack has it.
    pub slurm: Option<SlurmKeys>,
    /// Python environments on hosts.
    pub environments: Vec<EnvironmentFacts>,
    /// True if Dask on hosts uses TLS unless a section sets another protocol.
    pub tls: bool,
}

/// The facts of a Dask cluster for checks.
#[derive(Clone, Debug, PartialEq)]
pub struct DaskFacts {
    pub key: String,
    /// The live name.
    pub name: String,
    pub image: String,
    /// Dask's configuration.
    pub config: DaskConfig,
    /// True if some of its workers have cuDF's spilling.
    pub spills: bool,
    /// True if a NetworkPolicy restricts its clients.
    pub is_network_restricted: bool,
    /// Other namespaces with notebooks and checks that connect to it.
    pub client_namespaces: BTreeSet<String>,
    /// The address of its scheduler, for its workers and its checks.
    pub scheduler: String,
    /// The environment that its section names.
    pub environment: Option<String>,
    /// The host of its scheduler, if there are several hosts.
    pub scheduler_host: Option<String>,
}

/// The facts of an environment for other sections.
#[derive(Clone, Debug, PartialEq)]
pub struct EnvironmentFacts {
    pub key: String,
    /// The digest of its content.
    pub digest: String,
    /// The packages of `pip_install`, which workers install when they start.
    pub pip_install: Vec<String>,
}

impl EnvironmentFacts {
    /// Returns its name on the host. It contains the stack's id, as several stacks on one machine may have an environment `main`.
    pub fn live_name(&self, owner: &Owner) -> String {
        format!("{}-{}", owner.id, self.key)
    }
}

/// The facts of a node pool for other sections.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolFacts {
    /// The section's key.
    pub key: String,
    /// The live name.
    pub name: String,
    /// Allocatable `nvidia.com/gpu` of a node: GPUs × partitions × clients.
    pub gpus: u32,
    /// The largest number of nodes, over all zones.
    pub max_nodes: u32,
    /// Machine type and GPUs, as text: part of a check's digest.
    pub hardware: String,
    /// Labels that the file gives its nodes.
    pub labels: BTreeMap<String, String>,
    /// Taints that the file gives its nodes.
    pub taints: Vec<Taint>,
    /// True if its nodes serve, or may serve, provisioning requests.
    pub queued: bool,
    /// True if it has other capacity options besides `queued`.
    pub other_options: bool,
}

/// The facts of a queue for the work in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueFacts {
    /// The section's key.
    pub key: String,
    /// The live name.
    pub name: String,
    /// Namespaces with work that waits in it.
    pub namespaces: BTreeSet<String>,
    /// True if the stack creates the WorkloadPriorityClasses of its priorities.
    pub manages_priorities: bool,
}

impl QueueFacts {
    /// Returns the name of the WorkloadPriorityClass for one of its priorities. Classes are cluster-wide, but priorities belong
    /// to a queue. So the names of the stack's classes contain the queue's name.
    pub fn priority_class(&self, priority: &str) -> String {
        match self.manages_priorities {
            true => format!("{}-{priority}", self.name),
            false => priority.to_owned(),
        }
    }
}

impl Scope {
    /// Returns the name of the WorkloadPriorityClass for a priority in a queue.
    pub fn priority_class(&self, queue: Option<&str>, priority: Option<&str>) -> Option<String> {
        Some(self.queue(queue?)?.priority_class(priority?))
    }

    pub fn queue(&self, key: &str) -> Option<&QueueFacts> {
        self.queues.iter().find(|queue| queue.key == key)
    }

    pub fn pool(&self, key: &str) -> Option<&PoolFacts> {
        self.pools.iter().find(|pool| pool.key == key)
    }

    /// Returns the environment of this key; without one, the only one of the file.
    pub fn environment(&self, key: Option<&str>) -> Option<&EnvironmentFacts> {
        match (key, self.environments.as_slice()) {
            (Some(key), all) => all.iter().find(|environment| environment.key == key),
            (None, [only]) => Some(only),
            (None, _) => None,
        }
    }

    /// Returns the Dask cluster of this key; without one, the only one of the file.
    pub fn dask_cluster(&self, key: Option<&str>) -> Option<&DaskFacts> {
        match (key, self.dask.as_slice()) {
            (Some(key), all) => all.iter().find(|cluster| cluster.key == key),
            (None, [only]) => Some(only),
            (None, _) => None,
        }
    }

    /// Returns the Dask cluster of the section with this address.
    pub fn dask_of(&self, section: &Address) -> Option<&DaskFacts> {
        self.dask_cluster(Some(section.as_str().strip_prefix("dask_cluster.")?))
    }

    /// Returns the address of a section, if the file has it.
    pub fn section(&self, address: &str) -> Option<Address> {
        self.sections.iter().find(|known| known.as_str() == address).cloned()
    }

    /// Returns the address of `[cluster]`, on which everything in the cluster depends; empty if the file has none.
    pub fn cluster_dependency(&self) -> Vec<Address> {
        self.section("cluster").into_iter().collect()
    }

    /// Returns the labels of every object of the stack. They narrow LISTs and do not prove ownership.
    pub fn labels(&self) -> Value {
        json!({
            OBJECT_LABEL_MANAGED_BY: "dask-infra",
            OBJECT_LABEL_STACK: self.owner.stack,
        })
    }

    /// Returns the section of a namespace, by its live name.
    pub fn namespace(&self, name: &str) -> Option<Address> {
        self.namespaces.iter().find(|(live, _)| live == name).map(|(_, address)| address.clone())
    }

    /// Returns the addresses that resources in a namespace depend on: the cluster, and the namespace's section if there is one.
    pub fn namespace_dependencies(&self, namespace: &str) -> Vec<Address> {
        let mut depends_on = self.cluster_dependency();
        depends_on.extend(self.namespace(namespace));
        depends_on
    }

    /// Returns the labels of objects that stacks share. They are the same for every stack, so that stacks do not overwrite each
    /// other's labels.
    pub fn shared_labels(&self) -> Value {
        json!({ OBJECT_LABEL_MANAGED_BY: "dask-infra" })
    }
}
