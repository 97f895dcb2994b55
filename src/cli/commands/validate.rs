//! `validate`, `schema` and `version`: commands that read only files.

use crate::cli::Exit;
use crate::cli::session::Session;
use crate::cli::settings::{Format, Settings};

/// Options of `validate`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Print JSON lines
    #[arg(long)]
    json: bool,
}

/// Options of `version`.
#[derive(clap::Args, Debug)]
pub struct VersionArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Checks a stack without reading the live state.
pub fn validate(settings: &Settings, args: &Args) -> Exit {
    settings.report(Format::json(args.json), |reporter| {
        let session = Session::load(settings)?;
        session.validate()?;
        reporter.diagnostics(session.warnings(), session.sources());
        reporter.valid(session.warnings().len());
        Ok(Exit::Done)
    })
}

/// Returns the JSON Schema of stack files.
pub fn schema(settings: &Settings) -> Exit {
    settings.print(&format!("{:#}\n", stack::json_schema()))
}

/// Returns the version.
pub fn version(settings: &Settings, args: &VersionArgs) -> Exit {
    let version = env!("CARGO_PKG_VERSION");
    if args.json {
        return settings.print(&format!("{}\n", serde_json::json!({ "dask-infra": version })));
    }
    settings.print(&format!("dask-infra {version}\n"))
}
