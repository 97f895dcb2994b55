//! The sandbox: an imitation of GKE and of the Kubernetes clusters it creates, in this process. It shares no rules with the rest
//! of the program, so one mistake cannot hide in both.

pub mod backing;
mod clock;
mod cluster_access;
mod endpoint;
mod error;
pub mod faults;
mod gke;
mod guard;
pub mod kube;
mod options;
mod persist;
mod routers;
pub mod serve;
mod state;

pub use self::clock::Scale;
pub use self::endpoint::{TOKEN, has_other_owner, write_private};
pub use self::error::SandboxError;
pub use self::gke::{ClusterId, Quota, Stockout};
pub use self::options::{Clock, Options};
pub use self::state::Sandbox;
