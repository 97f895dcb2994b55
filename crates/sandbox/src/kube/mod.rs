//! A Kubernetes API server's imitation: [`store::Cluster`] holds the objects; the other rooms turn
//! requests into changes of it.

mod access;
mod age;
mod api;
mod apply;
mod body;
mod bounds;
mod call;
mod collect;
mod discovery;
mod fields;
mod form;
mod gnostic;
mod kinds;
mod names;
mod numbers;
pub mod object;
mod openapi;
mod patch;
pub mod protobuf;
mod proxy;
mod read;
pub(super) mod request;
pub mod run;
mod scale;
mod scheme;
mod selector;
pub(super) mod status;
pub mod store;
mod strategy;
mod table;
mod typed;
mod validate;
mod watch;
mod write;

pub use access::Access;
pub use api::router;
