//! `[slurm]`: a cluster run by SLURM, on which workers of Dask are jobs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SshHost;
use kinds::slurm::SlurmKeys;
use model::resource::{Host, HostConnection};

/// A cluster run by SLURM: schedulers of Dask are processes on its login node, and each worker is a job. What is known of them
/// is kept on the login node below `~/.local/state/dask-infra`, which nodes must see: a home that is shared, as on most
/// clusters. SLURM 20.11 or later, and Python 3.8 or later as `python3` on the login node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct Slurm {
    /// The login node: a name as `ssh` takes it, or a table as in `[ssh]`. Name one node, not a name that leads to another one each time.
    /// Default the machine that the command runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<SshHost>,
    /// Encrypts what schedulers, workers and clients of Dask send, and lets only those with the certificates of their Dask cluster connect. Default `true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<bool>,
    /// Settings for all jobs; `slurm` of workers and groups overrides them.
    #[serde(flatten)]
    pub keys: SlurmKeys,
}

impl Slurm {
    pub fn host(&self) -> Host {
        let login = self.login.as_ref().map(SshHost::all).and_then(|all| all.into_iter().next());
        let host = login.unwrap_or(Host {
            name: "this login node".to_owned(),
            connection: HostConnection::Local,
            slurm: false,
        });
        Host { slurm: true, ..host }
    }
}
