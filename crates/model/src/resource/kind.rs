//! Kinds of resources, as this program distinguishes them.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

macro_rules! kinds {
    ($($(#[$doc:meta])* $id:ident $name:literal,)*) => {
        /// The kind of a resource in this program: it decides how the resource is compared, changed and judged.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum KindId {
            $($(#[$doc])* $id,)*
        }

        impl KindId {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$id,)*];

            /// Returns its name in plans, records and output.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$id => $name,)*
                }
            }
        }
    };
}

kinds! {
    /// A GKE cluster.
    Cluster "cluster",
    /// A node pool of a GKE cluster.
    NodePool "node_pool",
    /// A namespace.
    Namespace "namespace",
    /// A CustomResourceDefinition.
    Crd "definition",
    /// A Kubernetes object without a kind of its own here.
    Object "object",
    /// A RoleBinding or ClusterRoleBinding.
    Binding "binding",
    /// An object of Kueue: a queue, a flavor, a check.
    Queue "queue",
    /// A Service.
    Service "service",
    /// A Deployment.
    Deployment "deployment",
    /// A DaemonSet.
    DaemonSet "daemon_set",
    /// A StatefulSet.
    StatefulSet "stateful_set",
    /// A Pod without a controller.
    Pod "pod",
    /// A Job.
    Job "job",
    /// A request for nodes that are created all at once.
    ProvisioningRequest "provisioning_request",
    /// The DaemonSet that installs the NVIDIA driver.
    GpuDriver "gpu_driver",
    /// A check: an action that leaves no resource.
    Check "check",
    /// A Dask cluster.
    DaskCluster "dask_cluster",
    /// A group of Dask workers.
    DaskGroup "dask_group",
    /// An autoscaler of Dask workers.
    DaskAutoscaler "dask_autoscaler",
    /// A CronJob that deletes a Dask cluster, or stops the stack.
    Expiry "dask_reaper",
    /// A Dask job.
    DaskJob "dask_job",
    /// A Jupyter server.
    Notebook "notebook",
    /// A Python environment on a host.
    Environment "environment",
    /// The user's own code on a host.
    HostFiles "host_files",
    /// A Dask cluster of processes on a host.
    HostCluster "host_cluster",
    /// A group of its workers.
    HostGroup "host_group",
    /// A job on a host, with a Dask cluster of its own.
    HostJob "host_job",
}

impl KindId {
    /// Returns the kind with a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.as_str() == name)
    }
}

impl fmt::Display for KindId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for KindId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for KindId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::named(&name).ok_or_else(|| serde::de::Error::custom(format!("{name:?} is an unknown kind")))
    }
}

/// A kind as a record names it. A record may be from another version of this program, and name a kind that this version does not
/// know. Such a resource is treated as an object without its own kind, and the name of the kind is preserved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RecordedKind {
    /// One that this program knows.
    Known(KindId),
    /// Another one.
    Unknown(String),
}

impl RecordedKind {
    /// Returns the kind that it is treated as.
    pub fn id(&self) -> KindId {
        match self {
            Self::Known(id) => *id,
            Self::Unknown(_) => KindId::Object,
        }
    }

    /// Returns its name.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Known(id) => id.as_str(),
            Self::Unknown(name) => name,
        }
    }
}

impl From<KindId> for RecordedKind {
    fn from(id: KindId) -> Self {
        Self::Known(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_keeps_the_name_of_a_kind_that_is_not_known() {
        for name in ["node_pool", "of_tomorrow"] {
            let text = format!("{name:?}");
            let kind: RecordedKind = serde_json::from_str(&text).unwrap();
            assert_eq!(serde_json::to_string(&kind).unwrap(), text);
            assert_eq!(kind.as_str(), name);
        }
        let kind: RecordedKind = serde_json::from_str("\"of_tomorrow\"").unwrap();
        assert_eq!(kind.id(), KindId::Object);
        let said = serde_json::from_str::<KindId>("\"of_tomorrow\"").unwrap_err().to_string();
        assert!(said.contains("\"of_tomorrow\" is an unknown kind"), "{said}");
    }
}
