//! The target of a stack: where its resources live.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{ClusterName, Endpoint, Identity};

/// The place where a plan acts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The GKE cluster, for a stack with `[gke]`.
    pub gke: Option<ClusterName>,
    /// The endpoint of the GKE cluster's control plane to use.
    #[serde(default, skip_serializing_if = "Endpoint::is_auto")]
    pub endpoint: Endpoint,
    /// The hosts, for a stack with `[local]`, `[ssh]` or `[slurm]`. The first one keeps the record.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<Host>,
    /// Names of former hosts that no longer exist: nothing is read there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<String>,
    /// The kubeconfig context, if `[kubernetes]` names one.
    pub context: Option<String>,
    /// The kubeconfig file, if `[kubernetes]` names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<String>,
    /// True if the sandbox answers instead of the cloud.
    pub simulated: bool,
}

/// A host on which Dask runs as processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    pub name: String,
    #[serde(rename = "way")]
    pub connection: HostConnection,
    /// True if it is the login node of a SLURM cluster.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub slurm: bool,
}

/// The connection to a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostConnection {
    /// It is the machine that the command runs on.
    #[serde(rename = "here")]
    Local,
    /// The system's OpenSSH. Its configuration applies to everything that is not set here.
    Ssh {
        address: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        port: Option<u16>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        identity: Option<String>,
        /// The Python interpreter on the host; `None` for `python3` on its `PATH`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        python: Option<String>,
        /// Shell lines that run before the interpreter.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        prologue: Vec<String>,
    },
}

impl Host {
    pub fn this_machine() -> Self {
        Self { name: "this machine".to_owned(), connection: HostConnection::Local, slurm: false }
    }

    /// Returns its network address; the loopback address for this machine.
    pub fn address(&self) -> &str {
        match &self.connection {
            HostConnection::Local => "127.0.0.1",
            HostConnection::Ssh { address, .. } => address,
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// `project / location / cluster`, `this machine`, or `context NAME of FILE`.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.gke {
            return write!(f, "{} / {} / {}", name.project, name.location, name.cluster);
        }
        match self.hosts.as_slice() {
            [] => {}
            [host] => return host.fmt(f),
            [first, others @ ..] => {
                let hosts = if others.len() == 1 { "host" } else { "hosts" };
                return write!(f, "{first} and {} other {hosts}", others.len());
            }
        }
        match &self.context {
            Some(context) => write!(f, "context {context}")?,
            None => f.write_str("the current context")?,
        }
        match &self.kubeconfig {
            Some(file) => write!(f, " of {file}"),
            None => f.write_str(" of the kubeconfig"),
        }
    }
}

impl Target {
    /// Returns true if Dask runs as processes on hosts.
    pub fn is_on_hosts(&self) -> bool {
        !self.hosts.is_empty()
    }

    /// Returns false for resources of the GKE API if the stack has no `[gke]`: no command reads or changes them.
    pub fn reads(&self, identity: &Identity) -> bool {
        self.gke.is_some() || !matches!(identity, Identity::Cluster(_) | Identity::NodePool { .. })
    }

    /// Returns true if workers are SLURM jobs.
    pub fn is_slurm(&self) -> bool {
        self.hosts.iter().any(|host| host.slurm)
    }

    /// Returns the names of the hosts on which resources are placed; `None` for a single machine, or if SLURM places them.
    pub fn host_names(&self) -> Option<Vec<String>> {
        let is_local = self.hosts.iter().all(|host| host.connection == HostConnection::Local || host.slurm);
        (!is_local).then(|| self.hosts.iter().map(|host| host.name.clone()).collect())
    }

    /// Returns the section of the stack file that defines the hosts: `ssh`.
    pub fn hosts_section(&self) -> &'static str {
        match (self.is_slurm(), self.host_names()) {
            (true, _) => "slurm",
            (false, Some(_)) => "ssh",
            (false, None) => "local",
        }
    }

    /// `LIVE` or `SIMULATED`.
    pub fn label(&self) -> &'static str {
        if self.simulated { "SIMULATED" } else { "LIVE" }
    }
}
