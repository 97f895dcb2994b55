//! Types that all crates share, and the facts that they rely on. No IO.
//!
//! The modules form layers: each may use only those that the table in `tests/it/pure/tidy.rs` names.
//!
//! - `address`: `Address` (what people type), `FieldPath` (a place in a tree), `Cursor` (the position of a walk through one).
//! - `quantity`: `Quantity`, the one reader of Kubernetes quantities.
//! - `schema`: reader of `schemas/`: types, list keys and quantities of Kubernetes kinds, Dask's definitions, GKE messages. No
//!   rules.
//! - `secrets`: values that no output may show, and texts without them.
//! - `shell`: text to paste: command lines of quoted words, strings of Python.
//! - `images`: facts about container images.
//! - `versions`: versions of Dask's processes and clients that work together.
//! - `catalog`: machines, GPUs and zones: data and look-up, no decisions.
//! - `prices`: list prices by region, and sums of prices.
//! - `accrued_cost`: the cost of a stack since it was created, between two bounds.
//! - `source`: the texts that a user wrote, and the place of every field in them. No values.
//! - `diag`: `Diagnostic`, the one table of codes, rendering to text and JSON. Nothing is printed.
//! - `resource`, `record`: identities, resources, worlds, fields of changes, steps and calls; the record of a stack. No behavior.

pub mod accrued_cost;
pub mod address;
pub mod catalog;
pub mod images;
pub mod prices;
pub mod quantity;
pub mod schema;
pub mod secrets;
pub mod shell;
pub mod source;
pub mod versions;

pub mod diag;

pub mod record;
pub mod resource;
