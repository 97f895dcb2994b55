//! Types that all crates share, and the facts that they rely on: addresses, resources and the record of a stack, sources and
//! diagnostics, schemas of the APIs, the catalog of machines. No IO but reading files of a stack.
//!
//! One line a module, in layer order: a module may use those above it. `tests/it/pure/tidy.rs` checks it.

pub mod address;
pub mod catalog;
pub mod schema;
pub mod secrets;
pub mod shell;
pub mod source;
pub mod versions;

pub mod diag;

pub mod record;
pub mod resource;
