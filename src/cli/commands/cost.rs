//! `cost`: the cost of a stack now, and since it was created.

use jiff::Timestamp;

use crate::cli::Exit;
use crate::cli::commands::plan::parallelism;
use crate::cli::session::{LiveCost, Session, block_on};
use crate::cli::settings::{Failure, Format, Settings};
use crate::report::Reporter;
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
        let cost = read(settings, &session, reporter, args.parallelism)?;
        let text = match args.json {
            true => format!("{:#}\n", cost.json()),
            false => cost.text(settings.screen().data_look().width),
        };
        Ok(settings.print(&text))
    })
}

/// Reads the cost of the stack. Where Google bills nothing of it, nothing is read.
fn read(
    settings: &Settings,
    session: &Session,
    reporter: &mut dyn Reporter,
    parallelism: usize,
) -> Result<StackCost, Failure> {
    let (owner, target) = session.owner_and_target();
    let cost = StackCost::of_nothing(owner.clone(), target.clone(), Timestamp::now());
    if plan::cost::region(target).is_none() {
        return Ok(cost);
    }
    block_on(async {
        let link = session.connect(settings)?;
        session.read_prices(&link).await?;
        reporter.diagnostics(session.price_warnings(), session.sources());
        let LiveCost { bill, unplanned, record } = session.bill(&link, parallelism).await?;
        reporter.diagnostics(unplanned.as_deref().unwrap_or_default(), session.sources());
        link.close().await?;
        let now = Timestamp::now();
        let accrued = record.as_ref().and_then(|record| record.accrued_cost_at(now));
        Ok(StackCost {
            bill,
            is_planned: unplanned.is_none(),
            accrued,
            has_record: record.is_some(),
            now,
            ..cost
        })
    })
}
