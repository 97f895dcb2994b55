//! `apply` and `destroy`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Exit;
use super::consent::{self, Came, Whole};
use super::holder;
use super::plan::{Making, Part, parallelism};
use super::session::{Link, Session, block_on, plan_again};
use super::settings::{Failure, Format, Settings};
use super::stop::Stops;
use crate::apply::lock::{Lives, Lock, Locking, Unlocked};
use crate::apply::{self, ApplyOptions};
use crate::diag::{Code, Diagnostic};
use crate::plan::{Consent, Mode, Plan, file};
use crate::report::{Next, Reporter, View};
use crate::resource::Owner;
use crate::source::Sources;

/// Shown below the options.
pub const EXAMPLES: &str = "Examples:\n  \
    dask-infra apply                       plans, asks, applies\n  \
    dask-infra apply rapids.plan           what `plan --out rapids.plan` saved\n  \
    dask-infra apply --auto-approve --allow replace:dask_cluster.rapids\n  \
    dask-infra apply --target gpu_driver   only that and what it needs\n  \
    dask-infra apply --when-idle --wait 4h --allow replace:dask_cluster.rapids\n    \
    a new image, once the scheduler has no work\n\
    \n\
    Writes to Google Cloud and into the cluster, and nothing on this machine.\n\
    \n\
    Ctrl-C once: nothing new is started and running steps reach a safe point. Twice: stops now.";

/// Shown below the options of `destroy`.
pub const DESTROY_EXAMPLES: &str = "Examples:\n  \
    dask-infra plan --destroy              what it would delete\n  \
    dask-infra destroy                     plans, asks, deletes\n  \
    dask-infra --sandbox destroy --auto-approve\n\
    \n\
    What others made is never deleted without an --allow of its own; `protect = true` refuses.";

/// Options of `apply`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// What `plan --out FILE` saved; without it a plan is made now
    #[arg(value_name = "PLAN", conflicts_with_all = ["replace", "target", "exclude", "when_idle"])]
    file: Option<PathBuf>,
    /// Do not ask for `yes`; replacing and deleting still need --allow
    #[arg(long)]
    auto_approve: bool,
    /// Break the lock of another apply of this stack; only when that one does not run any more
    #[arg(long)]
    force_unlock: bool,
    #[command(flatten)]
    making: Making,
}

/// Options of `destroy`.
#[derive(clap::Args, Debug)]
pub struct DestroyArgs {
    /// Do not ask for `yes`
    #[arg(long)]
    auto_approve: bool,
    /// Break the lock of another apply of this stack; only when that one does not run any more
    #[arg(long)]
    force_unlock: bool,
    /// Consent to deleting what others made and what would go along: `delete:ADDRESS`
    #[arg(long, value_name = "VERB:ADDRESS", value_parser = consent::parse)]
    allow: Vec<Consent>,
    #[command(flatten)]
    part: Part,
    /// Requests and changes at a time
    #[arg(long, value_name = "N", default_value_t = ApplyOptions::PARALLELISM, value_parser = parallelism)]
    parallelism: usize,
    /// Say it in JSON lines
    #[arg(long)]
    json: bool,
}

/// Options of every command that changes one thing.
#[derive(clap::Args, Debug)]
pub struct Changing {
    /// Do not ask for `yes`; what is deleted or made anew still needs --allow
    #[arg(long)]
    pub auto_approve: bool,
    /// Break the lock of another apply of this stack; only when that one does not run any more
    #[arg(long)]
    pub force_unlock: bool,
    /// Requests and changes at a time
    #[arg(long, value_name = "N", default_value_t = ApplyOptions::PARALLELISM, value_parser = parallelism)]
    pub parallelism: usize,
    /// Say it in JSON lines
    #[arg(long)]
    pub json: bool,
}

/// Makes the world as the stack or a saved plan says.
pub fn apply(settings: &Settings, args: &Args) -> Exit {
    let Args { file, auto_approve, force_unlock, making } = args;
    let force = *force_unlock;
    match file {
        Some(file) => settings.report(Format::json(making.json), |reporter| {
            block_on(apply_saved(settings, file, making, force, reporter))
        }),
        None => apply_stack(settings, Mode::Apply, making, *auto_approve, force),
    }
}

/// Deletes all that the stack owns.
pub fn destroy(settings: &Settings, args: &DestroyArgs) -> Exit {
    let DestroyArgs { auto_approve, force_unlock, allow, part, parallelism, json } = args;
    let making = Making {
        allow: allow.clone(),
        replace: Vec::new(),
        part: part.clone(),
        retarget: false,
        when_idle: false,
        wait: 0,
        parallelism: *parallelism,
        json: *json,
    };
    apply_stack(settings, Mode::Destroy, &making, *auto_approve, *force_unlock)
}

/// Plans, asks, applies.
pub fn apply_stack(
    settings: &Settings,
    mode: Mode,
    making: &Making,
    auto_approve: bool,
    force: bool,
) -> Exit {
    let format = Format::json(making.json);
    let whole = if auto_approve { Whole::Given } else { Whole::Ask };
    settings.report(format, |reporter| {
        let session = Session::load(settings)?;
        reporter.diagnostics(session.warnings(), session.sources());
        block_on(async {
            let link = session.connect(settings)?;
            let (plan, warnings) = session.plan(&link, &making.ask(mode)).await?;
            reporter.diagnostics(&warnings, session.sources());
            reporter.plan(&plan, &View { sources: Some(session.sources()), next: Next::Nothing });
            if plan.is_empty() {
                link.close().await?;
                return Ok(Exit::Done);
            }
            // The plan knows the consents that were given by a unique ending.
            if consent::get(&plan, &plan.allowed, whole, format)? == Came::Asked {
                let now = plan_again(&plan, &link, making.parallelism).await?;
                let moved = file::moved(&plan, &now);
                if !moved.is_empty() {
                    return Err(stale("the plan", &moved, "plan and apply again"));
                }
            }
            run(&plan, link, making.parallelism, force, reporter).await
        })
    })
}

/// A saved plan is planned again first: it is applied only when nothing that it relies on has moved.
async fn apply_saved(
    settings: &Settings,
    file: &Path,
    making: &Making,
    force: bool,
    reporter: &mut dyn Reporter,
) -> Result<Exit, Failure> {
    let plan = file::load(file)?;
    of_this_stack(settings, file, &plan)?;
    let link = Link::of_plan(settings, &plan)?;
    let now = plan_again(&plan, &link, making.parallelism).await?;
    let moved = file::moved(&plan, &now);
    if !moved.is_empty() {
        let again = format!("plan again: {} plan --out {}", settings.program(), file.display());
        return Err(stale(&file.display().to_string(), &moved, &again));
    }
    reporter.plan(&plan, &View { sources: None, next: Next::Nothing });
    if plan.is_empty() {
        link.close().await?;
        return Ok(Exit::Done);
    }
    consent::get(&plan, &making.allow, Whole::Given, Format::json(making.json))?;
    run(&plan, link, making.parallelism, force, reporter).await
}

/// A saved plan needs no stack file. Where there is one, and it is another stack or goes to another place, one of the two
/// is not what is meant.
fn of_this_stack(settings: &Settings, file: &Path, plan: &Plan) -> Result<(), Failure> {
    let Ok(session) = Session::load(settings) else { return Ok(()) };
    let (owner, target) = session.whose();
    let (file, stack) = (file.display(), settings.stack.display());
    let other = |what: String, help: String| Err(Diagnostic::error(Code::PlanFile, what).help(help).into());
    if owner != &plan.owner {
        let whose = |owner: &Owner| match owner.id == owner.stack {
            true => format!("stack {}", owner.stack),
            false => format!("stack {} (id {})", owner.stack, owner.id),
        };
        return other(
            format!(
                "{file} is a plan of {}, and the stack file of {stack} is that of {}",
                whose(&plan.owner),
                whose(owner)
            ),
            "name the plan's own stack with `--stack`, or plan this one".to_owned(),
        );
    }
    // A context is pinned in the plan and may have been switched since: the plan's counts.
    if target.gke.is_some() && plan.target.gke.is_some() && target.gke != plan.target.gke {
        return other(
            format!("{file} was made for {}, and the stack file says {target} now", plan.target),
            format!("plan again: {} plan --out {file}", settings.program()),
        );
    }
    Ok(())
}

pub(super) fn stale(plan: &str, moved: &[String], again: &str) -> Failure {
    let what = format!("{plan} is stale; nothing was done. What moved:\n{}", moved.join("\n"));
    Failure::new(vec![Diagnostic::error(Code::Stale, what).help(again)], Sources::default())
}

fn locked(why: Unlocked) -> Diagnostic {
    match why {
        Unlocked::Held(who) => Diagnostic::error(
            Code::Locked,
            format!("another apply of this stack is under way: {who}; nothing was done"),
        )
        .help("wait until it ends; `--force-unlock` breaks the lock of one that does not run any more"),
        Unlocked::Cannot(why) => {
            Diagnostic::error(Code::RecordNotWritten, format!("cannot lock the stack: {why}"))
        }
    }
}

/// Applies a plan that is agreed to.
pub(super) async fn run(
    plan: &Plan,
    link: Link,
    parallelism: usize,
    force: bool,
    reporter: &mut dyn Reporter,
) -> Result<Exit, Failure> {
    let stops = Stops::listen()?;
    let (holder, lives, now) =
        (holder::this(), holder::lives as fn(&str) -> Lives, jiff::Timestamp::now as fn() -> _);
    let lock = Lock::new(link.api(), &plan.owner, Locking { holder, lives, force, now });
    lock.take_early().await.map_err(locked)?;
    let lock = Some(Arc::new(lock));
    let options = ApplyOptions { parallelism, lock, ..ApplyOptions::new(stops.count.clone()) };
    let summary = apply::apply(plan, link.api(), options, |event| reporter.event(plan, &event)).await;
    reporter.summary(plan, &summary);
    link.close().await?;
    Ok(Exit::of_summary(&summary, stops.first()))
}
