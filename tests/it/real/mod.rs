//! Reality for tests: a control plane, KWOK and the Dask operator as `tests/real/build` makes them, started
//! on free ports of the loopback interface in scratch folders, and ended with the test whatever happens to it.
//!
//! ```text
//! #[tokio::test]
//! async fn something_real() {
//!     needs!(Part::CONTROL_PLANE);
//!     let plane = ControlPlane::start().await;
//!     plane.client().get("/version").await;
//! }
//! ```

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "test code outside of test functions")]

mod client;
mod control_plane;
mod dask;
mod dask_fixture;
mod egress_proxy;
mod kubelet;
mod kueue;
mod kwok;
mod operator;
mod parts;
mod process_group;
mod slurm;

pub use client::{Client, http_client};
pub use control_plane::{Access, ControlPlane, PATIENCE};
pub use dask::Dask;
pub use dask_fixture::{DaskFixture, start_operator};
pub use kubelet::Kubelet;
pub use kueue::Kueue;
pub use kwok::CudaCheck;
pub use operator::Operator;
pub(crate) use parts::needs;
pub use parts::{Part, can_run, versions};
pub use process_group::{ProcessGroup, alive, free_ports};
pub use slurm::Cluster;
