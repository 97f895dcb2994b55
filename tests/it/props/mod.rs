//! Properties over generated stacks, edits, flags, accidents and other people's deeds.
//!
//! # Using it
//!
//! A case is a [`script::Script`]: the stack file, edits of it, commands with their flags, deaths, and requests of
//! others. It is data: what fails is printed as the TOML that `cases/NAME.toml` holds of the kept ones, which
//! `regressions` replays in every run. To keep a case, put the printed text there and say in `about` what it shows.
//!
//! - [`stacks`]: strategies of proptest for a stack as sections, and for edits of it. Shrinking takes sections away.
//!   `stacks::Spec::render` is the text and its files.
//! - [`gke_keys`]: the keys of clusters and node pools that are drawn, and where GKE has what they say.
//! - [`player::play`] plays a case on tokio's paused clock, and hands every step with a look at the world before and
//!   after it to a judge. [`player::Player`] does single steps, for cases that are written out.
//! - [`snapshot::Snapshot`] is all that is there by uid, out of the sandbox's store: the engine has no part in it.
//! - [`laws`] are the properties: each takes what a step came to and says what is wrong.
//! - [`harness::Harness`] is below all that: one sandbox, plans with flags, applies with faults, locks and deaths.
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
