//! `plan` and `show`.

use std::path::PathBuf;

use super::Exit;
use super::consent;
use super::session::{Ask, Session, block_on};
use super::settings::{Failure, Format, Settings};
use crate::plan::{Consent, Mode, Plan, file};
use crate::report::{Next, Reporter, View};

/// Shown below the options.
pub const EXAMPLES: &str = "Examples:\n  \
    dask-infra plan                        what apply would do\n  \
    dask-infra plan -v                     every object and every call\n  \
    dask-infra plan --offline              without network and credentials\n  \
    dask-infra plan --out rapids.plan      then: dask-infra apply rapids.plan\n  \
    dask-infra plan --detailed-exitcode    0 nothing to do, 2 changes, 1 error";

/// Options of every command that makes a plan.
#[derive(clap::Args, Debug)]
pub struct Making {
    /// Consent to replacing, deleting, or taking over from others: `replace:ADDRESS`, `delete:ADDRESS`,
    /// `take:ADDRESS`
    #[arg(long, value_name = "VERB:ADDRESS", value_parser = consent::parse)]
    pub allow: Vec<Consent>,
    /// Delete this and make it anew, although nothing forces it
    #[arg(long, value_name = "ADDRESS")]
    pub replace: Vec<String>,
    /// Another target than the one where this stack is already is meant: a second cluster is made
    #[arg(long)]
    pub retarget: bool,
    /// Requests and changes at a time
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = parallelism)]
    pub parallelism: usize,
    /// Say it in JSON lines
    #[arg(long)]
    pub json: bool,
}

fn parallelism(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number @ 1..=1000) => Ok(number),
        Ok(_) | Err(_) => Err("give a number from 1 to 1000".to_owned()),
    }
}

/// Options of `plan`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    making: Making,
    /// Save the plan; `apply FILE` does exactly what it says
    #[arg(long, value_name = "FILE", conflicts_with = "offline")]
    out: Option<PathBuf>,
    /// Exit with 2 when there are changes
    #[arg(long)]
    detailed_exitcode: bool,
    /// Plan to delete all that the stack owns
    #[arg(long)]
    destroy: bool,
    /// Plan against an empty world, without reading anything
    #[arg(long)]
    offline: bool,
}

/// Options of `show`.
#[derive(clap::Args, Debug)]
pub struct ShowArgs {
    /// What `plan --out FILE` wrote
    #[arg(required_unless_present = "effective")]
    file: Option<PathBuf>,
    /// Show the stack instead: its files laid over each other, variables put in
    #[arg(long, conflicts_with = "file")]
    effective: bool,
    /// Say it in JSON lines; with --effective as one JSON document
    #[arg(long)]
    json: bool,
}

/// Shows what apply would do.
pub fn plan(settings: &Settings, args: &Args) -> Exit {
    settings.report(Format::json(args.making.json), |reporter| {
        let session = Session::load(settings)?;
        reporter.diagnostics(session.warnings(), session.sources());
        let mode = if args.destroy { Mode::Destroy } else { Mode::Apply };
        let ask = args.making.ask(mode);
        let plan = if args.offline {
            session.plan_offline(&ask)?
        } else {
            block_on(plan_live(settings, &session, &ask, reporter))?
        };
        if let Some(path) = &args.out {
            file::save(path, &plan)?;
        }
        let next = match &args.out {
            Some(path) => Next::ApplyFile(path),
            None if args.offline => Next::PlanOnline,
            None => Next::Apply,
        };
        reporter.plan(&plan, &View { sources: Some(session.sources()), next });
        let refused = consent::not_ours(&plan, session.sources());
        if !refused.is_empty() {
            reporter.diagnostics(&refused, session.sources());
            return Ok(Exit::Refused);
        }
        Ok(if args.detailed_exitcode && !plan.is_empty() { Exit::Changes } else { Exit::Done })
    })
}

async fn plan_live(
    settings: &Settings,
    session: &Session,
    ask: &Ask<'_>,
    reporter: &mut dyn Reporter,
) -> Result<Plan, Failure> {
    let link = session.connect(settings)?;
    let (plan, warnings) = session.plan(&link, ask).await?;
    reporter.diagnostics(&warnings, session.sources());
    link.close().await?;
    Ok(plan)
}

impl Making {
    /// What they ask for.
    pub fn ask(&self, mode: Mode) -> Ask<'_> {
        let Self { allow, replace, retarget, parallelism, json: _ } = self;
        Ask { mode, allowed: allow, replace, parallelism: *parallelism, retarget: *retarget }
    }
}

/// Shows a saved plan, or the effective stack.
pub fn show(settings: &Settings, args: &ShowArgs) -> Exit {
    let Some(file) = &args.file else { return super::effective::show(settings, args.json) };
    settings.report(Format::json(args.json), |reporter| {
        let plan = file::load(file)?;
        reporter.plan(&plan, &View { sources: None, next: Next::Nothing });
        Ok(Exit::Done)
    })
}
