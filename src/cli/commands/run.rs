//! `run`: runs a job or a check again. It is an apply of that section only, with a forced replace.

use crate::cli::commands::apply::{ChangeArgs, apply_stack};
use crate::cli::commands::plan::{PartOptions, PlanArgs};
use crate::cli::session::Session;
use crate::cli::settings::{Failure, Format, Settings};
use crate::cli::{Exit, approval};
use model::diag::{Code, Diagnostic};
use plan::{Approval, Mode};

/// Shown below the options.
pub const EXAMPLES: &str = "Examples:\n  \
    dask-infra run check.cuda                    again, although it has passed\n  \
    dask-infra run dask_job.train                asks for approval: deletes the objects of the last run\n  \
    dask-infra run train --auto-approve --allow replace:dask_job.train\n\
    \n\
    The same as `apply --target ADDRESS --replace ADDRESS`: updates what it needs and nothing else.";

/// Options of `run`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The job or check to run again
    #[arg(value_name = "ADDRESS")]
    address: String,
    /// Approve replacing it: `replace:ADDRESS`
    #[arg(long, value_name = "VERB:ADDRESS", value_parser = approval::parse)]
    allow: Vec<Approval>,
    #[command(flatten)]
    change_options: ChangeArgs,
}

/// Runs a job or a check again.
pub fn run(settings: &Settings, args: &Args) -> Exit {
    let mut meant = Vec::new();
    let exit = settings.report(Format::Text, |_| {
        meant = find_addresses(settings, &args.address)?;
        Ok(Exit::Done)
    });
    if exit != Exit::Done {
        return exit;
    }
    let Args { address: _, allow, change_options } = args;
    let part = PartOptions::only(meant.clone());
    let options = PlanArgs { allow: allow.clone(), replace: meant, part, ..change_options.plan_options() };
    apply_stack(settings, Mode::Apply, &options, change_options.auto_approve, change_options.force_unlock)
}

/// Returns the matching addresses, which must all be jobs or checks.
fn find_addresses(settings: &Settings, typed: &str) -> Result<Vec<String>, Failure> {
    let session = Session::load(settings)?;
    let found = session.find(typed)?;
    let runs = found.iter().filter(|resource| kinds::of(resource.kind).runs_to_completion);
    let meant: Vec<String> = runs.map(|resource| resource.address.to_string()).collect();
    if !meant.is_empty() {
        return Ok(meant);
    }
    let all: Vec<String> = session
        .resources()
        .filter(|resource| kinds::of(resource.kind).runs_to_completion)
        .map(|resource| resource.address.to_string())
        .collect();
    let problem = Diagnostic::error(Code::NotRunnable, format!("`{typed}` does not run to completion"));
    Err(session.failure(match all.as_slice() {
        [] => problem.help("jobs and checks do, and this stack has none"),
        all => problem.help(format!("give {}", model::diag::listed(all.iter().map(String::as_str), "or"))),
    }))
}
