//! A Kubernetes API server's imitation: [`store::Cluster`] holds the objects; the other rooms turn
//! requests into changes of it.

pub mod api;
pub mod apply;
pub mod body;
pub mod bounds;
pub mod collect;
pub mod defaults;
pub mod discovery;
pub mod fields;
pub mod gnostic;
pub mod kinds;
pub mod openapi;
pub mod patch;
pub mod protobuf;
pub mod proxy;
pub mod read;
pub mod request;
pub mod run;
pub mod selector;
pub mod status;
pub mod store;
pub mod table;
pub mod typed;
pub mod validate;
pub mod watch;
pub mod write;

pub use api::{Access, router};
