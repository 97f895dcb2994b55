//! Properties over generated stacks, edits, flags, accidents and changes by others.
//!
//! # Using it
//!
//! A case is a [`script::Script`]: the stack file, edits of it, commands with their flags, deaths, and requests of
//! others. It is data: a failing case is printed as TOML. Save it as `cases/NAME.toml`, with its purpose in `about`, and
//! `regressions` replays it in every run.
//!
//! - [`stacks`]: strategies of proptest for a stack as sections, and for edits of it. Shrinking takes sections away.
//!   `stacks::Spec::render` is the text and its files.
//! - [`gke_keys`]: the keys of clusters and node pools that are drawn, and where GKE has what they say.
//! - [`player::play`] plays a case on tokio's paused clock, and gives every step to a judge, with a snapshot of the world
//!   before and after it. [`player::Player`] does single steps, for cases that are written out.
//! - [`snapshot::Snapshot`] has all live objects by uid, out of the sandbox's store: the engine has no part in it.
//! - [`laws`] are the properties: each takes the result of a step and returns an error if it does not hold.
//! - [`harness::Harness`] is the base: one sandbox, plans with flags, applies with faults, locks and deaths.
//! - [`cases::check`] runs a property: so many cases (`DASK_INFRA_CASES`), from a seed (`DASK_INFRA_SEED`), shrunk.
//!
//! ```ignore
//! cases::check("my property", 20, my_strategy(), |script: &Script| {
//!     play(script, async |player, step, done| my_law(player, step, done).await)
//! });
//! ```
//!
//! The default of all properties of the tree together is meant to fit into eight minutes of two loaded cores in a debug
//! build; an apply costs about a second there.

mod calls;
mod capacity;
pub mod cases;
mod deletions;
mod gke_keys;
mod handovers;
pub mod harness;
mod interrupted_commands;
pub mod laws;
mod leftovers;
mod node_waits;
pub mod player;
mod queued_work;
mod regressions;
mod saved_plans;
pub mod script;
pub mod snapshot;
pub mod stacks;
mod stopped_sections;
mod unreadable_answers;
mod versions;
mod world;
