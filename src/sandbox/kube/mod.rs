//! A Kubernetes API server's imitation: [`store::Cluster`] holds the objects; the other rooms turn
//! requests into changes of it.

pub mod apply;
pub mod collect;
pub mod defaults;
pub mod fields;
pub mod kinds;
pub mod run;
pub mod status;
pub mod store;
pub mod typed;
