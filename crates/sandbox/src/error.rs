//! Errors of opening, storing and serving a sandbox.

use std::path::PathBuf;

use super::faults::mistakes::Mistakes;

/// Errors of opening, storing and serving a sandbox.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SandboxError {
    /// The state file cannot be used.
    #[error("cannot read {}: {cause}; start again with `dask-infra sandbox reset --dir {}`", path.display(), path.parent().unwrap_or(path).display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The problem with the file.
        cause: String,
    },
    /// A change could not be stored.
    #[error("cannot write {}: {cause}; is the disk full?", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The reason why the write failed.
        cause: String,
    },
    /// Another process uses the folder.
    #[error("{} is in use by another sandbox{}; stop it or choose another folder", dir.display(), by(*pid))]
    InUse {
        /// The folder.
        dir: PathBuf,
        /// The ID of that process, if known.
        pid: Option<u32>,
    },
    /// The API server to put behind the clusters cannot be used.
    #[error("the kubeconfig {} cannot be used: {cause}", kubeconfig.display())]
    Kubernetes {
        kubeconfig: PathBuf,
        /// The problem with the kubeconfig or the server.
        cause: String,
    },
    /// Another user owns the folder.
    #[error(
        "{} belongs to another user, who would say what answers there; name a folder of your own", dir.display()
    )]
    OfOthers {
        /// The folder.
        dir: PathBuf,
    },
    /// The folder is a symbolic link, which is refused because it may point anywhere.
    #[error("{} is a link; name the folder that it leads to, if it is for a sandbox", dir.display())]
    Link {
        /// The link.
        dir: PathBuf,
    },
    /// The faults file has mistakes.
    #[error("{0}")]
    Faults(Box<Mistakes>),
    /// The clusters of the folder were created with another kind of API server.
    #[error("{0}")]
    OtherBacking(&'static str),
    /// A file of the folder, a socket or a certificate could not be made.
    #[error("cannot {what}: {cause}")]
    Io {
        /// The action that failed, such as `make a server certificate`.
        what: String,
        /// The reason why it failed.
        cause: String,
    },
}

fn by(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
}

impl SandboxError {
    /// Returns the error of an action that failed and the reason why.
    pub fn io(what: impl Into<String>, cause: impl std::fmt::Display) -> Self {
        Self::Io { what: what.into(), cause: cause.to_string() }
    }
}
