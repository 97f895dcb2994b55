//! `cost`: the cost of a stack now, and since it was created.

use jiff::Timestamp;

use crate::cli::Exit;
use crate::cli::commands::plan::parallelism;
use crate::cli::session::{Session, block_on};
use crate::cli::settings::{Failure, Format, Settings};
use crate::report::stack_cost::StackCost;
use apply::ApplyOptions;

/// Shown below the options.
pub const EXAMPLES: &str = "Examples:\n  \
    dask-infra cost                    each section by the hour, and the cost of the stack so far\n  \
    dask-infra --prices live cost      with Google's prices of today\n  \
    dask-infra cost --json | jq .since.usd_at_most\n\
    \n\
    Reads only. The cost so far is from the record, at the prices of the commands that changed the stack. It is no invoice: \
    see docs/costs.md.";

/// Options of `cost`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Print JSON: one object
    #[arg(long)]
    json: bool,
    /// Requests at a time
    #[arg(long, value_name = "N", default_value_t = ApplyOptions::PARALLELISM, value_parser = parallelism)]
    parallelism: usize,
}

/// Shows the cost of the stack.
pub fn cost(settings: &Settings, args: &Args) -> Exit {
    settings.report(Format::Text, |reporter| {
        let session = Session::load(settings)?;
        let cost = read(settings, &session, args.parallelism)?;
        reporter.diagnostics(session.price_warnings(), session.sources());
        let text = match args.json {
            true => format!("{:#}\n", cost.json()),
            false => cost.text(settings.screen().data_look().width),
        };
        Ok(settings.print(&text))
    })
}

/// Reads the cost of the stack. Where Google bills nothing of it, nothing is read.
fn read(settings: &Settings, session: &Session, parallelism: usize) -> Result<StackCost, Failure> {
    let (owner, target) = session.owner_and_target();
    let (owner, target) = (owner.clone(), target.clone());
    if plan::cost::region(&target).is_none() {
        return Ok(StackCost { owner, target, bill: None, accrued: None, has_record: false });
    }
    block_on(async {
        let link = session.connect(settings)?;
        let (bill, record) = session.bill(&link, parallelism).await?;
        link.close().await?;
        let accrued = record.as_ref().and_then(|record| record.accrued_cost_at(Timestamp::now()));
        Ok(StackCost { owner, target, bill, accrued, has_record: record.is_some() })
    })
}
