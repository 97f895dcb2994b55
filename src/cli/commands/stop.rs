//! `stop` and `start`: delete and recreate what costs money, without changing the stack file.

use crate::cli::approval::PlanApproval;
use crate::cli::commands::apply::{ChangeArgs, apply_linked, apply_stack};
use crate::cli::commands::plan::{PartOptions, PlanArgs, seconds};
use crate::cli::session::{Link, Session, block_on};
use crate::cli::settings::{Failure, Format, Settings};
use crate::cli::{Exit, approval, completion_values, lock_holder};
use model::address::Address;
use model::diag::{Code, Diagnostic};
use model::record::Stop;
use model::resource::{Lowered, Resource};
use plan::stop::startable;
use plan::{Approval, Mode};

/// Shown below the options.
pub const STOP_EXAMPLES: &str = "Examples:\n  \
    dask-infra stop                            everything that can be stopped\n  \
    dask-infra stop dask_cluster.rapids        with its groups and autoscaler\n  \
    dask-infra stop node_pool.a100             and what must run on it\n  \
    dask-infra stop rapids --when-idle         once its scheduler is idle\n  \
    dask-infra stop --auto-approve\n\
    \n\
    Deletes Dask clusters, their groups, jobs that have not ended, requests for nodes, notebooks and Pods, and scales node \
    pools to 0 nodes. The stack file stays as it is: later plans leave stopped sections stopped and name who stopped them and when. \
    `dask-infra start` brings them back.";

/// Shown below the options of `start`.
pub const START_EXAMPLES: &str = "Examples:\n  \
    dask-infra start                           everything that is stopped\n  \
    dask-infra start dask_cluster.rapids       and the node pools that it needs\n  \
    dask-infra apply --start                   the same for the whole stack, with all other changes\n\
    \n\
    Also recreates Dask clusters that `ttl`, `idle_stop` or `idle_timeout` deleted. A job that was stopped runs from its beginning.";

/// Options of `stop`.
#[derive(clap::Args, Debug)]
pub struct StopArgs {
    /// Addresses to stop; without any, everything that can be stopped
    #[arg(value_name = "ADDRESS", add = completion_values::addresses())]
    addresses: Vec<String>,
    /// Approve deleting Pods outside the stack that would be deleted along: `delete:ADDRESS`
    #[arg(long, value_name = "VERB:ADDRESS", value_parser = approval::parse)]
    allow: Vec<Approval>,
    /// Before removing Dask workers, wait until their scheduler is idle
    #[arg(long)]
    when_idle: bool,
    /// Maximum wait of --when-idle: `90s`, `30m`, `4h`, `1h 30m`, `3d`; then exit code 6
    #[arg(long, value_name = "TIME", default_value = "1h", requires = "when_idle", value_parser = seconds)]
    wait: u32,
    #[command(flatten)]
    change_options: ChangeArgs,
}

/// Options of `start`.
#[derive(clap::Args, Debug)]
pub struct StartArgs {
    /// Addresses to start; without any, everything that is stopped
    #[arg(value_name = "ADDRESS", add = completion_values::addresses())]
    addresses: Vec<String>,
    /// Approve replacing, deleting or adopting something that it needs
    #[arg(long, value_name = "VERB:ADDRESS", value_parser = approval::parse)]
    allow: Vec<Approval>,
    /// Maximum wait for capacity that is queued (default 10m; then exit code 7): `90s`, `30m`, `4h`, `3d`
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    wait: Option<u32>,
    /// Do not look at quotas, permissions, machine types and organization policies before the first write
    #[arg(long)]
    skip_preflight: bool,
    /// Do not try creates and updates of Kubernetes objects on the API server before the first write
    #[arg(long)]
    skip_dry_run: bool,
    #[command(flatten)]
    change_options: ChangeArgs,
}

/// Deletes what costs money.
pub fn stop(settings: &Settings, args: &StopArgs) -> Exit {
    let StopArgs { addresses, allow, when_idle, wait, change_options } = args;
    let now = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second()).unwrap_or_default();
    let options = PlanArgs {
        allow: allow.clone(),
        part: PartOptions::only(addresses.clone()),
        stop: Some(Stop { by: lock_holder::current().who, since: now.to_string(), section: None }),
        when_idle: *when_idle,
        wait: when_idle.then_some(*wait),
        // Nothing is made.
        skip_preflight: true,
        ..change_options.plan_options()
    };
    apply_stack(settings, Mode::Apply, &options, change_options.auto_approve, change_options.force_unlock)
}

/// Recreates what is stopped.
pub fn start(settings: &Settings, args: &StartArgs) -> Exit {
    let StartArgs { addresses, allow, wait, skip_preflight, skip_dry_run, change_options } = args;
    let format = Format::json(change_options.json);
    let approval = PlanApproval::of(change_options.auto_approve);
    settings.report(format, |reporter| {
        let session = Session::load(settings)?;
        block_on(async {
            let link = session.connect(settings)?;
            let (meant, told) =
                find_addresses(&session, &link, addresses, change_options.parallelism).await?;
            reporter.diagnostics(&told, session.sources());
            if meant.is_empty() {
                link.close().await?;
                return Ok(Exit::Done);
            }
            reporter.diagnostics(session.warnings(), session.sources());
            let options = PlanArgs {
                allow: allow.clone(),
                part: PartOptions::only(meant),
                start: true,
                wait: *wait,
                skip_preflight: *skip_preflight,
                skip_dry_run: *skip_dry_run,
                ..change_options.plan_options()
            };
            let how = (approval, change_options.force_unlock);
            apply_linked((session, link), Mode::Apply, &options, how, |_| Ok(()), reporter).await
        })
    })
}

/// Returns the selected addresses that are stopped, and a message about selected ones that are not.
async fn find_addresses(
    session: &Session,
    link: &Link,
    typed: &[String],
    parallelism: usize,
) -> Result<(Vec<String>, Vec<Diagnostic>), Failure> {
    let named: Result<Vec<(&String, Vec<&Resource>)>, Failure> =
        typed.iter().map(|typed| Ok((typed, session.find(typed)?))).collect();
    let named = named?;
    let world = session.world(link, parallelism).await?;
    let Lowered { resources, external, .. } = session.lowered();
    let stopped: Vec<&Resource> = {
        let addresses = startable(resources, external, &world);
        resources.iter().filter(|resource| addresses.contains(&&resource.address)).collect()
    };
    let texts = |found: Vec<&Resource>| -> Vec<String> {
        found.into_iter().map(|resource| resource.address.to_string()).collect()
    };
    let not = |what: String, help: &str| Diagnostic::warning(Code::NotStopped, what).help(help);
    if named.is_empty() {
        let told = stopped.is_empty().then(|| {
            not("nothing in this stack is stopped".to_owned(), "`dask-infra plan` shows what would change")
        });
        return Ok((texts(stopped), Vec::from_iter(told)));
    }
    let (mut targets, mut told) = (Vec::new(), Vec::new());
    for (typed, meant) in named {
        let of = |resource: &&Resource| meant.iter().any(|meant| meant.origin.contains(&resource.origin));
        let found: Vec<&Resource> = stopped.iter().copied().filter(of).collect();
        if found.is_empty() {
            let section = meant.first().map(|resource| Address::new(resource.address.section()));
            let name = section.map_or_else(|| typed.clone(), |section| section.to_string());
            let help = "`start` brings back what `stop`, `ttl`, `idle_stop` or `idle_timeout` took away; `dask-infra apply` \
                        creates what is missing otherwise";
            told.push(not(format!("{name} is not stopped"), help));
        }
        targets.extend(texts(found));
    }
    Ok((targets, told))
}
