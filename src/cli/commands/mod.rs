//! One file for each command.

pub(crate) mod adopt;
pub(crate) mod apply;
pub(crate) mod completions;
pub(crate) mod connect;
pub(crate) mod cost;
pub(crate) mod doctor;
pub(crate) mod effective;
pub(crate) mod explain;
pub(crate) mod graph;
pub(crate) mod import;
pub(crate) mod import_hosts;
pub(crate) mod init;
pub(crate) mod logs;
pub(crate) mod permissions;
pub(crate) mod plan;
pub(crate) mod run;
pub(crate) mod sandbox;
pub(crate) mod scale;
pub(crate) mod status;
pub(crate) mod stop;
pub(crate) mod validate;
pub(crate) mod when_capacity;
pub(crate) mod why;
