//! A Kubernetes API server's imitation: [`store::Cluster`] holds the objects; the other rooms turn
//! requests into changes of it.

pub mod access;
pub mod age;
pub mod api;
pub mod apply;
pub mod body;
pub mod bounds;
pub mod call;
pub mod collect;
pub mod discovery;
pub mod fields;
pub mod form;
pub mod gnostic;
pub mod kinds;
pub mod names;
pub mod numbers;
pub mod object;
pub mod openapi;
pub mod patch;
pub mod protobuf;
pub mod proxy;
pub mod read;
pub mod request;
pub mod run;
pub mod scale;
pub mod scheme;
pub mod selector;
pub mod status;
pub mod store;
pub mod strategy;
pub mod table;
pub mod typed;
pub mod validate;
pub mod watch;
pub mod write;

pub use access::Access;
pub use api::router;
