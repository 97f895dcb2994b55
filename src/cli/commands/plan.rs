//! `plan` and `show`.

use std::path::PathBuf;
use std::time::Duration;

use crate::cli::Exit;
use crate::cli::dry_run::{DryRunChoice, dry_run};
use crate::cli::preflight::{PreflightChoice, preflight};
use crate::cli::session::{PlanRequest, Session, block_on};
use crate::cli::settings::{Failure, Format, Settings};
use crate::cli::{approval, budget, completion_values, lock_holder, plan_file};
use crate::report::human::Detail;
use crate::report::{Next, Reporter, View, document};
use apply::{ApplyOptions, lock};
use live::LiveApi;
use model::diag::{Code, Diagnostic, Severity};
use model::record::Stop;
use model::resource::{Action, Identity};
use plan::{Approval, Budget, Change, Mode, Plan, Selection, StopRequest};

/// Shown below the options.
pub const EXAMPLES: &str = "Examples:\n  \
    dask-infra plan                        what apply would do\n  \
    dask-infra plan --summary              on one screen\n  \
    dask-infra plan -v                     every object and every request\n  \
    dask-infra plan --offline              without network or credentials\n  \
    dask-infra plan --out rapids.plan      then: dask-infra apply rapids.plan\n  \
    dask-infra plan --target gpu_driver    only that and what it needs\n  \
    dask-infra plan --refresh-only         what changed outside this stack since the last apply\n  \
    dask-infra plan --detailed-exitcode    0 nothing to do, 2 changes, 1 error\n\
    \n\
    Changes nothing; writes only the file of --out. Tries creates and updates on the API server as dry runs: these need \
    permission to write, call admission webhooks and appear in audit logs. --skip-dry-run leaves them out.";

/// Options of every command that makes a plan.
#[derive(clap::Args, Clone, Debug)]
pub struct PlanArgs {
    /// Approve replacing, deleting, adopting, or a change of unknown effect: `replace:ADDRESS`, `delete:ADDRESS`,
    /// `take:ADDRESS`, `update:ADDRESS`; or `budget`: exceed it this time
    #[arg(long, value_name = "VERB:ADDRESS", value_parser = approval::parse, add = completion_values::approvals())]
    pub allow: Vec<Approval>,
    /// Replace this, although nothing forces it
    #[arg(long, value_name = "ADDRESS", add = completion_values::addresses())]
    pub replace: Vec<String>,
    /// Replace node pools with `capacity` that are not on their first way, and try the ways from the first again
    #[arg(long)]
    pub retry_capacity: bool,
    /// Refuse a stack that may cost more, as `[budget]` does: `20/h` at its maximum, `8/day` when idle. May be repeated
    #[arg(long, value_name = "DOLLARS", value_parser = budget::parse)]
    pub budget: Vec<Budget>,
    #[command(flatten)]
    pub part: PartOptions,
    /// Allow another target than the stack's existing one: creates a second cluster
    #[arg(long)]
    pub retarget: bool,
    /// Before removing Dask workers (replacing or deleting a cluster, group or job), wait until their scheduler is
    /// idle
    #[arg(long)]
    pub when_idle: bool,
    /// Maximum wait for capacity that is queued (default 10m; then exit code 7), and with --when-idle for an idle
    /// scheduler (default 1h; then exit code 6): `90s`, `30m`, `4h`, `1h 30m`, `3d`
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub wait: Option<u32>,
    /// Bring back what is stopped, or went by `ttl`, `idle_stop` or `idle_timeout`
    #[arg(long)]
    pub start: bool,
    /// True if nobody is asked any more: the user who started the command agreed to an earlier apply of it.
    #[arg(skip)]
    pub unattended: bool,
    /// The digest of the stack that an earlier apply of the command was agreed to.
    #[arg(skip)]
    pub agreed: Option<blake3::Hash>,
    /// The user who stops the planned resources, and the time.
    #[arg(skip)]
    pub stop: Option<Stop>,
    /// Do not look at quotas, permissions, machine types and organization policies before the first write
    #[arg(long)]
    pub skip_preflight: bool,
    /// Do not try creates and updates of Kubernetes objects on the API server before the first write
    #[arg(long)]
    pub skip_dry_run: bool,
    /// Requests and changes at a time
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = parallelism)]
    pub parallelism: usize,
    /// Print JSON lines
    #[arg(long)]
    pub json: bool,
}

/// Which part of the stack.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct PartOptions {
    /// Only this and what it needs; with destroy: and what needs it. May be repeated
    #[arg(long, value_name = "ADDRESS", add = completion_values::addresses())]
    target: Vec<String>,
    /// Everything except this and what needs it; with destroy: and what it needs. May be repeated
    #[arg(long, value_name = "ADDRESS", add = completion_values::addresses())]
    exclude: Vec<String>,
}

impl PartOptions {
    /// Returns the options for a plan of these addresses alone.
    pub fn only(target: Vec<String>) -> Self {
        Self { target, exclude: Vec::new() }
    }

    /// As plans take it.
    pub fn selection(&self) -> Selection {
        Selection { targets: self.target.clone(), excludes: self.exclude.clone() }
    }
}

/// Seconds that `--when-idle` waits when nobody says otherwise.
const IDLE_WAIT: u32 = 3600;

/// Parses `--parallelism`.
pub fn parallelism(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number @ 1..=1000) => Ok(number),
        Ok(_) | Err(_) => Err("give a number from 1 to 1000".to_owned()),
    }
}

/// Parses `--wait` and `--since`: `4h`, `1h 30m`, `3d`, into seconds. A day has 24 hours.
pub fn seconds(text: &str) -> Result<u32, String> {
    let span: Option<jiff::Span> = text.parse().ok();
    let days = jiff::SpanRelativeTo::days_are_24_hours();
    let span = span.and_then(|span| span.to_duration(days).ok());
    let seconds = span.and_then(|span| u32::try_from(span.as_secs()).ok());
    seconds
        .filter(|seconds| *seconds > 0)
        .ok_or_else(|| "give a time as `90s`, `30m`, `1h 30m` or `3d`".to_owned())
}

/// Options of `plan`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    options: PlanArgs,
    /// Save the plan; `apply FILE` applies exactly this plan
    #[arg(long, value_name = "FILE", conflicts_with = "offline")]
    out: Option<PathBuf>,
    /// Exit with 2 when there are changes
    #[arg(long)]
    detailed_exitcode: bool,
    /// Plan to delete everything the stack owns
    #[arg(long, conflicts_with = "start")]
    destroy: bool,
    /// Plan as a first apply, without reading live state
    #[arg(long)]
    offline: bool,
    /// Only show what changed outside the stack since the last apply; exit with 2 if anything did
    #[arg(long, conflicts_with_all = ["out", "destroy", "offline", "allow", "replace", "retry_capacity", "summary", "start"])]
    refresh_only: bool,
    /// One line for each type of section, without fields
    #[arg(long, conflicts_with = "json")]
    summary: bool,
}

/// Options of `show`.
#[derive(clap::Args, Debug)]
pub struct ShowArgs {
    /// A plan saved by `plan --out FILE`
    #[arg(required_unless_present = "effective")]
    file: Option<PathBuf>,
    /// Show the stack instead, with extended files and variables resolved
    #[arg(long, conflicts_with = "file")]
    effective: bool,
    /// Print one JSON document, in the format of `terraform show -json`
    #[arg(long)]
    json: bool,
}

/// Shows what apply would do.
pub fn plan(settings: &Settings, args: &Args) -> Exit {
    let format = Format::json(args.options.json);
    if args.refresh_only {
        return settings.report(format, |reporter| refresh(settings, args, reporter));
    }
    let detail = if args.summary { Detail::Summary } else { settings.detail() };
    settings.report_in(format, detail, |reporter| {
        let session = Session::load(settings)?;
        if !args.destroy {
            // Warnings about likely mistakes do not matter for a destroy.
            reporter.diagnostics(session.warnings(), session.sources());
        }
        args.out.as_deref().map_or(Ok(()), plan_file::check_folder)?;
        let mode = if args.destroy { Mode::Destroy } else { Mode::Apply };
        let request = args.options.plan_request(mode);
        let (plan, findings) = if args.offline {
            session.take_kept_prices()?;
            (session.plan_offline(&request)?, Vec::new())
        } else {
            block_on(plan_live(settings, &session, &request, &args.options))?
        };
        reporter.diagnostics(session.price_warnings(), session.sources());
        if let Some(path) = &args.out {
            plan_file::save(path, &plan)?;
        }
        let next = match &args.out {
            Some(path) => Next::ApplyFile(path),
            None if args.offline => Next::PlanOnline,
            None => Next::Apply,
        };
        reporter.plan(&plan, &View { sources: Some(session.sources()), next });
        reporter.diagnostics(&findings, session.sources());
        let refused = approval::adoption_refusals(&plan, session.sources());
        if !refused.is_empty() {
            reporter.diagnostics(&refused, session.sources());
            return Ok(Exit::Refused);
        }
        reporter.diagnostics(&budget::warnings(&plan), session.sources());
        let over = budget::refusals(&plan, &[]);
        if !over.is_empty() {
            reporter.diagnostics(&over, session.sources());
            return Ok(Exit::Refused);
        }
        if findings.iter().any(|finding| finding.severity == Severity::Error) {
            return Ok(Exit::Error);
        }
        let exit = if args.detailed_exitcode && !plan.is_empty() { Exit::Changes } else { Exit::Done };
        // The process ends here, and its memory is given back whole: piece by piece it takes as long as to read the stack.
        std::mem::forget((session, plan));
        Ok(exit)
    })
}

/// Reports drift. Nothing is planned, so nothing can be applied from it.
fn refresh(settings: &Settings, args: &Args, reporter: &mut dyn Reporter) -> Result<Exit, Failure> {
    let session = Session::load(settings)?;
    reporter.diagnostics(session.warnings(), session.sources());
    let drifted = block_on(async {
        let link = session.connect(settings)?;
        let drifted = session.drift(&link, &args.options.plan_request(Mode::Apply)).await?;
        link.close().await?;
        Ok(drifted)
    })?;
    let lowered = session.lowered();
    reporter.drift(&drifted, &lowered.owner, &lowered.target);
    Ok(if drifted.found.is_empty() { Exit::Done } else { Exit::Changes })
}

/// Returns the plan, and what an apply of it would meet.
async fn plan_live(
    settings: &Settings,
    session: &Session,
    request: &PlanRequest<'_>,
    options: &PlanArgs,
) -> Result<(Plan, Vec<Diagnostic>), Failure> {
    let link = session.connect(settings)?;
    let mut plan = session.plan(&link, request).await?;
    let mut findings = preflight(&*link.api(), &plan, options.preflight(), request.parallelism).await;
    // Nobody has read the plan yet, and admission webhooks read what is sent.
    let context = (None, session.sources());
    findings.extend(dry_run(&*link.api(), &mut plan, context, options.dry_run(), request.parallelism).await);
    findings.extend(running_apply(&*link.api(), &plan).await);
    link.close().await?;
    Ok((plan, findings))
}

/// Warns if another apply of the stack is running: changes that it has not made yet are in this plan, too.
async fn running_apply(api: &dyn LiveApi, plan: &Plan) -> Option<Diagnostic> {
    let makes_cluster =
        |change: &Change| change.action == Action::Create && matches!(change.identity, Identity::Cluster(_));
    if plan.is_empty() || plan.changes.iter().any(makes_cluster) {
        return None;
    }
    let (who, sure) = lock::running(api, &plan.owner, lock_holder::liveness).await?;
    let is = if sure { "is" } else { "may be" };
    let what = format!(
        "another apply of this stack {is} running: {who}; what it has not done yet is in this plan, too"
    );
    Some(Diagnostic::warning(Code::Locked, what).help("plan again when it has ended"))
}

impl PlanArgs {
    /// Returns options that select nothing in particular, and try nothing.
    pub fn minimal(parallelism: usize, json: bool) -> Self {
        Self {
            allow: Vec::new(),
            replace: Vec::new(),
            retry_capacity: false,
            budget: Vec::new(),
            part: PartOptions::default(),
            retarget: false,
            when_idle: false,
            wait: None,
            start: false,
            unattended: false,
            agreed: None,
            stop: None,
            skip_preflight: false,
            skip_dry_run: true,
            parallelism,
            json,
        }
    }

    /// Returns the request for a plan that these options describe.
    pub fn plan_request(&self, mode: Mode) -> PlanRequest<'_> {
        let Self {
            allow,
            replace,
            retry_capacity,
            budget,
            part,
            retarget,
            when_idle,
            wait,
            start,
            unattended: _,
            agreed: _,
            stop,
            skip_preflight: _,
            skip_dry_run: _,
            parallelism,
            json: _,
        } = self;
        let stop_request = match stop {
            Some(stop) => StopRequest::Stop(stop.clone()),
            None if *start => StopRequest::Start,
            None => StopRequest::Leave,
        };
        let retry_capacity = *retry_capacity;
        let (selection, retarget, parallelism) = (part.selection(), *retarget, *parallelism);
        let when_idle = when_idle.then(|| wait.unwrap_or(IDLE_WAIT));
        let budget = budget.iter().fold(Budget::default(), |all, one| all.overridden_by(*one));
        PlanRequest {
            budget,
            mode,
            approved: allow,
            replace,
            retry_capacity,
            selection,
            parallelism,
            retarget,
            when_idle,
            stop_request,
        }
    }

    /// Returns how long a change waits for capacity.
    pub fn capacity(&self) -> Duration {
        self.wait.map_or(ApplyOptions::CAPACITY, |seconds| Duration::from_secs(seconds.into()))
    }

    /// Returns the choice of the preflight checks: run or skip them.
    pub fn preflight(&self) -> PreflightChoice {
        if self.skip_preflight { PreflightChoice::Skip } else { PreflightChoice::Run }
    }

    /// Returns the choice of the dry runs: send or skip them.
    pub fn dry_run(&self) -> DryRunChoice {
        DryRunChoice::skip_if(self.skip_dry_run)
    }
}

/// Shows a saved plan, or the effective stack.
pub fn show(settings: &Settings, args: &ShowArgs) -> Exit {
    let Some(file) = &args.file else { return crate::cli::commands::effective::show(settings, args.json) };
    if args.json {
        return match plan_file::load(file) {
            Ok(plan) => settings.print(&document::text(&plan)),
            Err(problem) => settings.report(Format::Text, |_| Err(problem.into())),
        };
    }
    settings.report(Format::Text, |reporter| {
        let plan = plan_file::load(file)?;
        reporter.plan(&plan, &View { sources: None, next: Next::Nothing });
        Ok(Exit::Done)
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn times_have_days_too() {
        for (text, expect) in [
            ("90s", Some(90)),
            ("30m", Some(1800)),
            ("1h 30m", Some(5400)),
            ("1h30m", Some(5400)),
            ("3d", Some(259_200)),
            ("1d 12h", Some(129_600)),
            ("1d12h", Some(129_600)),
            ("PT1H", Some(3600)),
            ("0s", None),
            ("-1h", None),
            ("1 month", None),
            ("3", None),
            ("", None),
            ("200y", None),
        ] {
            assert_eq!(super::seconds(text).ok(), expect, "{text}");
        }
    }
}
