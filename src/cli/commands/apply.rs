//! `apply` and `destroy`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::cli::Exit;
use crate::cli::approval::{self, ApprovedBy, PlanApproval};
use crate::cli::budget;
use crate::cli::commands::plan::{PartOptions, PlanArgs, parallelism};
use crate::cli::dry_run::{DryRunChoice, dry_run};
use crate::cli::lock_holder;
use crate::cli::plan_file;
use crate::cli::preflight::{preflight, report_findings};
use crate::cli::session::{Link, Session, block_on, plan_again, read_env_secrets};
use crate::cli::settings::{Failure, Format, Settings, quoted};
use crate::cli::signals::StopSignals;
use crate::cli::stack_file;
use crate::report::{Next, Reporter, View};
use apply::lock::{Liveness, Lock, LockError, LockOptions};
use apply::{AcquireError, ApplyOptions};
use kinds::dask::expiry::After;
use model::address::FieldPath;
use model::diag::{Code, Diagnostic};
use model::resource::Owner;
use model::secrets::env_values::EnvValues;
use model::source::Sources;
use plan::{Approval, Mode, Plan, file};
use stack::edit;

/// Shown below the options.
pub const EXAMPLES: &str = "Examples:\n  \
    dask-infra apply                       plans, asks, applies\n  \
    dask-infra apply rapids.plan           a plan saved by `plan --out rapids.plan`\n  \
    dask-infra apply --auto-approve --allow replace:dask_cluster.rapids\n  \
    dask-infra apply --target gpu_driver   only that and what it needs\n  \
    dask-infra apply --start               and what was stopped\n  \
    dask-infra apply --when-idle --wait 4h --allow replace:dask_cluster.rapids\n    \
    a new image, once the scheduler is idle\n  \
    dask-infra apply --wait 2h             waits that long for queued capacity, then exit code 7\n  \
    dask-infra apply --when-capacity --wait 3d\n    \
    applies again when there is capacity, without a lock meanwhile\n  \
    dask-infra apply --ttl 8h              stops the whole stack in 8 hours, with this machine off\n\
    \n\
    Writes to Google Cloud and to the cluster; of this machine's files only --ttl changes one, the stack file.\n\
    \n\
    Ctrl-C once: starts nothing new and lets running steps finish safely. Twice: stops immediately.";

/// Shown below the options of `destroy`.
pub const DESTROY_EXAMPLES: &str = "Examples:\n  \
    dask-infra plan --destroy              shows what would be deleted\n  \
    dask-infra destroy                     plans, asks, deletes\n  \
    dask-infra --sandbox destroy --auto-approve\n\
    \n\
    What this stack did not create is never deleted without its own --allow; `protect = true` prevents deletion.";

/// Options of `apply`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// A plan saved by `plan --out FILE`; without it, plans now
    #[arg(value_name = "PLAN", conflicts_with_all = ["replace", "retry_capacity", "budget", "target", "exclude", "when_idle", "start", "ttl"])]
    file: Option<PathBuf>,
    /// Do not ask for `yes`; replacing and deleting still need --allow
    #[arg(long)]
    auto_approve: bool,
    /// Break the lock of another apply of this stack that is no longer running
    #[arg(long)]
    force_unlock: bool,
    /// While capacity is queued, look every 15 seconds and apply again when there is some, until --wait is over (default
    /// 7d; then exit code 7). The stack is locked only while it is applied
    #[arg(long, conflicts_with_all = ["file", "when_idle", "ttl"])]
    when_capacity: bool,
    /// Write `ttl` of `[stack]` to the stack file: a CronJob in the cluster stops the whole stack this long after it was created
    /// or started, or got a ttl: `90m`, `8h`, `3d`
    #[arg(long, value_name = "TIME", conflicts_with_all = ["target", "exclude"])]
    ttl: Option<String>,
    #[command(flatten)]
    options: PlanArgs,
}

/// Options of `destroy`.
#[derive(clap::Args, Debug)]
pub struct DestroyArgs {
    /// Do not ask for `yes`
    #[arg(long)]
    auto_approve: bool,
    /// Break the lock of another apply of this stack that is no longer running
    #[arg(long)]
    force_unlock: bool,
    /// Approve deleting resources outside the stack that would be deleted along: `delete:ADDRESS`
    #[arg(long, value_name = "VERB:ADDRESS", value_parser = approval::parse)]
    allow: Vec<Approval>,
    #[command(flatten)]
    part: PartOptions,
    /// Requests and changes at a time
    #[arg(long, value_name = "N", default_value_t = ApplyOptions::PARALLELISM, value_parser = parallelism)]
    parallelism: usize,
    /// Print JSON lines
    #[arg(long)]
    json: bool,
}

/// Options of every command that changes one resource.
#[derive(clap::Args, Debug)]
pub struct ChangeArgs {
    /// Do not ask for `yes`; deleting and replacing still need --allow
    #[arg(long)]
    pub auto_approve: bool,
    /// Break the lock of another apply of this stack that is no longer running
    #[arg(long)]
    pub force_unlock: bool,
    /// Requests and changes at a time
    #[arg(long, value_name = "N", default_value_t = ApplyOptions::PARALLELISM, value_parser = parallelism)]
    pub parallelism: usize,
    /// Print JSON lines
    #[arg(long)]
    pub json: bool,
}

impl Args {
    /// Returns, for `--when-capacity`, the options of the plan, true if all is approved, and true if a lock is broken.
    pub(crate) fn when_capacity_options(&self) -> Option<(&PlanArgs, bool, bool)> {
        let Self { auto_approve, force_unlock, when_capacity, options, .. } = self;
        when_capacity.then_some((options, *auto_approve, *force_unlock))
    }
}

impl ChangeArgs {
    /// Returns the options of the plan of such a command.
    pub fn plan_options(&self) -> PlanArgs {
        PlanArgs::minimal(self.parallelism, self.json)
    }

    /// Returns the options of the apply of such a command.
    pub(crate) fn apply_request(&self, if_changed: IfPlanChanged, given: EnvValues) -> ApplyRequest {
        let Self { parallelism, force_unlock: force, .. } = *self;
        ApplyRequest {
            parallelism,
            force,
            if_changed,
            given,
            capacity: ApplyOptions::CAPACITY,
            dry_run: DryRunChoice::Skip,
        }
    }
}

/// Makes the live state match the stack or a saved plan.
pub fn apply(settings: &Settings, args: &Args) -> Exit {
    let Args { file, auto_approve, force_unlock, when_capacity: _, ttl, options } = args;
    let (force, format) = (*force_unlock, Format::json(options.json));
    match (file, ttl) {
        (Some(file), _) => settings
            .report(format, |reporter| block_on(apply_saved(settings, file, options, force, reporter))),
        (None, Some(ttl)) => settings.report_edit(format, |reporter, written| {
            apply_with_ttl(
                settings,
                ttl,
                options,
                (PlanApproval::of(*auto_approve), force),
                reporter,
                written,
            )
        }),
        (None, None) => apply_stack(settings, Mode::Apply, options, *auto_approve, force),
    }
}

/// Applies with another `ttl` of the stack, which is written to the stack file once it is approved.
fn apply_with_ttl(
    settings: &Settings,
    ttl: &str,
    options: &PlanArgs,
    how: (PlanApproval, bool),
    reporter: &mut dyn Reporter,
    written: &mut Option<String>,
) -> Result<Exit, Failure> {
    let session = Session::load(settings)?;
    let key = FieldPath::keys(["stack", "ttl"]);
    let place = match session.stack().stack.ttl {
        Some(After::Table(_)) => key.key("after"),
        Some(After::Time(_)) | None => key,
    };
    let edit = edit::value(session.sources(), &place, ttl)
        .map_err(|problem| Failure::new(vec![problem], session.sources().clone()))?;
    let session = Session::load_with(settings, &[(place, ttl.into())])?;
    reporter.diagnostics(session.warnings(), session.sources());
    let keep = |planned: &Session| {
        if edit.before != edit.after {
            stack_file::write(
                settings,
                &edit,
                planned,
                "nothing was applied; fix the cause, or omit `--ttl`",
            )?;
            *written = Some(edit.what);
        }
        Ok(())
    };
    block_on(async {
        let link = session.connect(settings)?;
        apply_linked((session, link), Mode::Apply, options, how, keep, reporter).await
    })
}

/// Deletes all that the stack owns.
pub fn destroy(settings: &Settings, args: &DestroyArgs) -> Exit {
    let DestroyArgs { auto_approve, force_unlock, allow, part, parallelism, json } = args;
    let options = PlanArgs {
        allow: allow.clone(),
        part: part.clone(),
        skip_preflight: true,
        ..PlanArgs::minimal(*parallelism, *json)
    };
    apply_stack(settings, Mode::Destroy, &options, *auto_approve, *force_unlock)
}

/// Plans, asks for approval, and applies.
pub fn apply_stack(
    settings: &Settings,
    mode: Mode,
    options: &PlanArgs,
    auto_approve: bool,
    force: bool,
) -> Exit {
    let how = (PlanApproval::of(auto_approve), force);
    settings.report(Format::json(options.json), |reporter| {
        let session = Session::load(settings)?;
        session.check_agreed(options.agreed)?;
        if mode == Mode::Apply {
            // Warnings about likely mistakes do not matter for a destroy.
            reporter.diagnostics(session.warnings(), session.sources());
        }
        block_on(async {
            let link = session.connect(settings)?;
            apply_linked((session, link), mode, options, how, |_| Ok(()), reporter).await
        })
    })
}

/// Plans, asks for approval and applies, once the stack is loaded and connected. `before_writes` runs once the plan is approved.
pub(crate) async fn apply_linked(
    (session, link): (Session, Link),
    mode: Mode,
    options: &PlanArgs,
    (approval, force): (PlanApproval, bool),
    before_writes: impl FnOnce(&Session) -> Result<(), Failure>,
    reporter: &mut dyn Reporter,
) -> Result<Exit, Failure> {
    let mut plan = session.plan(&link, &options.plan_request(mode)).await?;
    reporter.diagnostics(session.price_warnings(), session.sources());
    let context = (Some(session.env_values()), session.sources());
    let refused = dry_run(&*link.api(), &mut plan, context, options.dry_run(), options.parallelism).await;
    reporter.plan(&plan, &View { sources: Some(session.sources()), next: Next::Nothing });
    reporter.diagnostics(&budget::warnings(&plan), session.sources());
    if plan.has_nothing_to_do() {
        before_writes(&session)?;
        link.close().await?;
        return Ok(Exit::Done);
    }
    let mut findings = preflight(&*link.api(), &plan, options.preflight(), options.parallelism).await;
    findings.extend(refused);
    report_findings(findings, reporter, session.sources())?;
    let approved_by = match plan.is_empty() {
        // A wait needs no approval.
        true => ApprovedBy::Options,
        // The plan knows the approvals that were given by a unique ending.
        false => approval::obtain(
            &plan,
            &plan.approved,
            approval,
            Format::json(options.json || options.unattended),
        )?,
    };
    before_writes(&session)?;
    let PlanArgs { parallelism, .. } = *options;
    let given = session.env_values().clone();
    // The plan holds everything from here on. The texts and positions are freed because an apply may take hours.
    drop(session);
    let again = async |link: &Link, plan: &Plan| plan_again(plan, link, &given, parallelism).await;
    let if_changed = IfPlanChanged::after(approved_by, "plan and apply again");
    let (capacity, given_values) = (options.capacity(), given.clone());
    let apply_request = ApplyRequest {
        parallelism,
        force,
        if_changed,
        given: given_values,
        capacity,
        dry_run: options.dry_run(),
    };
    run(plan, link, apply_request, reporter, again).await
}

/// Applies a saved plan. It is planned again twice, first and under the lock, and applied only if nothing that it relies on has
/// changed. No request is sent, not even a dry run, that only the file says.
async fn apply_saved(
    settings: &Settings,
    file: &Path,
    options: &PlanArgs,
    force: bool,
    reporter: &mut dyn Reporter,
) -> Result<Exit, Failure> {
    let mut plan = plan_file::load(file)?;
    check_same_stack(settings, file, &plan)?;
    let link = Link::for_plan(settings, &plan)?;
    let PlanArgs { parallelism, .. } = *options;
    let (name, again) = (file.display().to_string(), plan_again_help(settings, file));
    let given = read_env_secrets(&plan.desired, settings);
    let mut now = plan_again(&plan, &link, &given, parallelism).await?;
    let moved = file::stale_changes(&plan, &now);
    if !moved.is_empty() {
        link.close().await?;
        return Err(stale(&name, &moved, &again));
    }
    if plan.has_nothing_to_do() {
        // There is nothing to lock for.
        link.close().await?;
        reporter.plan(&plan, &View { sources: None, next: Next::Nothing });
        return Ok(Exit::Done);
    }
    let no_sources = Sources::default();
    let context = (Some(&given), &no_sources);
    let refused = dry_run(&*link.api(), &mut now, context, options.dry_run(), parallelism).await;
    plan.dry_run = now.dry_run;
    reporter.plan(&plan, &View { sources: None, next: Next::Nothing });
    let mut findings = preflight(&*link.api(), &plan, options.preflight(), parallelism).await;
    findings.extend(refused);
    report_findings(findings, reporter, &no_sources)?;
    approval::obtain(&plan, &options.allow, PlanApproval::Given, Format::json(options.json))?;
    let if_changed = IfPlanChanged::Fail { plan: name, again };
    let again = async |link: &Link, plan: &Plan| plan_again(plan, link, &given, parallelism).await;
    let (capacity, given_values) = (options.capacity(), given.clone());
    // Another plan than the saved one is not applied, so nothing is left to be tried.
    let dry_run = DryRunChoice::Skip;
    let apply_request =
        ApplyRequest { parallelism, force, if_changed, given: given_values, capacity, dry_run };
    run(plan, link, apply_request, reporter, again).await
}

/// Returns the command that creates a saved plan again. A plan needs no stack file, so there may be none where it is applied.
fn plan_again_help(settings: &Settings, file: &Path) -> String {
    let command = format!("plan --out {}", quoted(&file.display().to_string()));
    match Session::load(settings) {
        Ok(_) => format!("plan again: {} {command}", settings.program()),
        Err(_) => format!(
            "plan again with the plan's own stack: {} {command}",
            settings.program_with(Path::new("FOLDER"))
        ),
    }
}

/// Refuses a saved plan if there is a stack file for another stack or another target: one of the two is a mistake. A saved plan
/// needs no stack file.
fn check_same_stack(settings: &Settings, file: &Path, plan: &Plan) -> Result<(), Failure> {
    let Ok(session) = Session::load(settings) else { return Ok(()) };
    let (owner, target) = session.owner_and_target();
    let (file, stack) = (file.display(), settings.stack.display());
    let other = |what: String, help: String| Err(Diagnostic::error(Code::PlanFile, what).help(help).into());
    if owner != &plan.owner {
        let whose = |owner: &Owner| match owner.id == owner.stack {
            true => format!("stack {}", owner.stack),
            false => format!("stack {} (id {})", owner.stack, owner.id),
        };
        return other(
            format!(
                "{file} is a plan of {}, but {stack} is the stack file of {}",
                whose(&plan.owner),
                whose(owner)
            ),
            "give the plan's own stack with `--stack`, or plan this one".to_owned(),
        );
    }
    // A context is pinned in the plan and may have been switched since: the plan's counts.
    if target.gke.is_some() && plan.target.gke.is_some() && target.gke != plan.target.gke {
        return other(
            format!("{file} was made for {}, but the stack file now targets {target}", plan.target),
            format!("plan again: {} plan --out {}", settings.program(), quoted(&file.to_string())),
        );
    }
    Ok(())
}

fn stale(plan: &str, moved: &[String], again: &str) -> Failure {
    let what = format!("{plan} is stale; nothing was done. What changed:\n{}", moved.join("\n"));
    Failure::new(vec![Diagnostic::error(Code::Stale, what).help(again)], Sources::default())
}

fn lock_failure(why: LockError) -> Diagnostic {
    match why {
        LockError::HeldByOther(who) => Diagnostic::error(
            Code::Locked,
            format!("another apply of this stack is running: {who}; nothing was done"),
        )
        .help(
            "wait until it finishes; `--force-unlock` breaks the lock of an apply that is no longer running",
        ),
        LockError::Failed(why) => {
            Diagnostic::error(Code::RecordNotWritten, format!("the stack cannot be locked: {why}"))
        }
    }
}

/// The reaction if the plan made under the lock differs from the approved one.
pub(crate) enum IfPlanChanged {
    /// Exit code 4.
    Fail {
        /// The name of the plan in messages.
        plan: String,
        /// The next step for the user.
        again: String,
    },
    /// The first plan was approved without being looked at. The new one is shown, and applied if it needs no further approval.
    Show,
}

impl IfPlanChanged {
    /// Returns the reaction after an approval.
    pub(crate) fn after(approved_by: ApprovedBy, again: &str) -> Self {
        match approved_by {
            ApprovedBy::Prompt => Self::Fail { plan: "the plan".to_owned(), again: again.to_owned() },
            ApprovedBy::Options => Self::Show,
        }
    }
}

/// Options of the apply of an approved plan.
pub(crate) struct ApplyRequest {
    /// Requests and changes at a time.
    pub parallelism: usize,
    /// True to break another process's lock.
    pub force: bool,
    /// The reaction if the plan made under the lock differs.
    pub if_changed: IfPlanChanged,
    /// Values from the environment that Secrets of the stack ask for.
    pub given: EnvValues,
    /// How long a change waits for capacity.
    pub capacity: Duration,
    /// The choice of the dry runs of a plan that differs from the first one.
    pub dry_run: DryRunChoice,
}

/// Refuses a plan made under the lock that differs from the approved one, unless it needs no further approval.
fn check_approved(now: &Plan, moved: &[String], if_changed: IfPlanChanged) -> Result<(), Failure> {
    match if_changed {
        IfPlanChanged::Fail { plan, again } => Err(stale(&plan, moved, &again)),
        IfPlanChanged::Show if !now.missing_approvals(&[]).is_empty() => {
            Err(stale("the plan", moved, "plan and apply again"))
        }
        IfPlanChanged::Show => Ok(()),
    }
}

/// Applies an approved plan: takes the lock and plans again first.
pub(crate) async fn run(
    plan: Plan,
    link: Link,
    ApplyRequest { parallelism, force, if_changed, given, capacity, dry_run: choice }: ApplyRequest,
    reporter: &mut dyn Reporter,
    again: impl AsyncFnOnce(&Link, &Plan) -> Result<Plan, Failure>,
) -> Result<Exit, Failure> {
    let stops = StopSignals::listen()?;
    let (holder, liveness, now) = (
        lock_holder::current(),
        lock_holder::liveness as fn(&str) -> Liveness,
        jiff::Timestamp::now as fn() -> _,
    );
    let locking = LockOptions { holder, liveness, force, now, clock: lock_holder::since_boot };
    let lock = Arc::new(Lock::new(link.api(), &plan.owner, locking));
    let under_lock = async {
        let mut now = again(&link, &plan).await?;
        let moved = file::stale_changes(&plan, &now);
        if moved.is_empty() {
            return Ok(now);
        }
        check_approved(&now, &moved, if_changed)?;
        let no_sources = Sources::default();
        let context = (Some(&given), &no_sources);
        let findings = dry_run(&*link.api(), &mut now, context, choice, parallelism).await;
        let refused = report_findings(findings, reporter, &no_sources);
        reporter.plan(&now, &View { sources: None, next: Next::Nothing });
        refused.map(|()| now)
    };
    let begun = apply::acquire(&plan, &*link.api(), &lock, &stops.count, under_lock).await;
    let now = match begun {
        Ok(now) => now,
        Err(AcquireError::Interrupted) => {
            let what =
                "interrupted before the first change: nothing was changed, and the stack's lock is released";
            let told = Diagnostic::warning(Code::Interrupted, what).help("run the command again to apply");
            reporter.diagnostics(&[told], &Sources::default());
            return Ok(Exit::of_signal(stops.first()));
        }
        Err(AcquireError::Lock(why)) => return Err(lock_failure(why).into()),
        Err(AcquireError::Failed(failure)) => {
            link.close().await?;
            return Err(failure);
        }
    };
    drop(plan);
    if now.has_nothing_to_do() {
        apply::release(&lock, &stops.count).await;
        link.close().await?;
        return Ok(Exit::Done);
    }
    let options = ApplyOptions {
        parallelism,
        lock: Some(lock),
        given,
        capacity,
        ..ApplyOptions::new(stops.count.clone())
    };
    let summary = apply::apply(&now, link.api(), options, |event| reporter.event(&now, &event)).await;
    reporter.summary(&now, &summary);
    link.close().await?;
    Ok(Exit::of_summary(&summary, stops.first()))
}
