//! Values, files of the repository and the built program: these need nothing else.

mod cli;
mod costs;
mod docs_blocks;
mod node_counts;
mod page_references;
mod partial_failure;
mod plans;
mod queued_limits;
mod reports;
mod stacks;
mod tidy;
