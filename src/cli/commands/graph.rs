//! `graph`: the order of changes.

use crate::cli::Exit;
use crate::cli::session::{PlanRequest, Session};
use crate::cli::settings::{Format, Settings};
use crate::report::graph::{Nodes, mermaid, text};
use crate::report::human::Detail;
use plan::Mode;

/// Shown below the options.
pub const EXAMPLES: &str = "Examples:\n  \
    dask-infra graph                            sections in the order of creation\n  \
    dask-infra graph -v                         every object\n  \
    dask-infra graph --format mermaid > g.mmd   a diagram, as GitHub and GitLab show it\n\
    \n\
    Shows a first apply; needs no network and no credentials.";

/// Options of `graph`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Output format
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    format: Written,
}

/// How a graph is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Written {
    /// Lines: `node_pool.a100  after cluster`.
    #[default]
    Text,
    /// A Mermaid flowchart.
    Mermaid,
}

/// Shows the graph of a first apply.
pub fn graph(settings: &Settings, args: &Args) -> Exit {
    settings.show(Format::Text, |reporter| {
        let session = Session::load(settings)?;
        reporter.diagnostics(session.warnings(), session.sources());
        let plan = session.plan_offline(&PlanRequest::new(Mode::Apply))?;
        let nodes = match settings.detail() {
            Detail::Objects => Nodes::Objects,
            Detail::Sections | Detail::Summary => Nodes::Sections,
        };
        Ok(match args.format {
            Written::Text => text(&plan, nodes),
            Written::Mermaid => mermaid(&plan, nodes),
        })
    })
}
