//! `adopt`: takes over existing resources that the stack did not create.

use serde_json::{Value, json};

use crate::cli::Exit;
use crate::cli::approval::{self, PlanApproval};
use crate::cli::commands::apply::{ChangeArgs, IfPlanChanged, run};
use crate::cli::session::{Link, PlanRequest, Session, block_on};
use crate::cli::settings::{Failure, Format, Settings};
use crate::cli::stack_file::replace_file;
use crate::report::{Next, Reporter, View};
use import::kept_by;
use model::address::{Address, FieldPath};
use model::diag::{Code, Diagnostic};
use model::resource::World;
use plan::propose::adopt::{self as rules, AcceptedChanges};
use plan::{Action, Approval, ApprovalVerb, Mode, Plan, Selection};
use stack::edit::{self, Edit};

/// Shown below the options.
pub const EXAMPLES: &str = "Examples:\n  \
    dask-infra adopt node_pool.gpu                 plans, asks, adopts\n  \
    dask-infra adopt dask_cluster.rapids --auto-approve\n  \
    dask-infra adopt dask_operator --allow take:dask_operator     also from Helm, Argo CD or Flux\n\
    \n\
    Marks live resources as this stack's and changes nothing else: labels on GKE clusters and node pools, a \
    field manager and labels on Kubernetes objects. Anything else that would change is refused. GKE may recreate \
    the nodes of a pool whose labels change: where Pods run on it, `--allow update:ADDRESS` is needed. Marks of another \
    stack are removed. Then removes the line `manage = false` from the stack file; comments stay.";

/// Options of `adopt`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// A section with `manage = false`, or one whose resources exist outside the stack
    #[arg(value_name = "ADDRESS")]
    address: String,
    /// Also update live values to match the stack file
    #[arg(long)]
    with_changes: bool,
    /// Approve adopting it from Helm, Argo CD, Flux or another stack: `take:ADDRESS`; that GKE may recreate the nodes of a
    /// pool with Pods: `update:ADDRESS`
    #[arg(long, value_name = "VERB:ADDRESS", value_parser = approval::parse)]
    allow: Vec<Approval>,
    #[command(flatten)]
    change_options: ChangeArgs,
}

/// Adopts one section.
pub fn adopt(settings: &Settings, args: &Args) -> Exit {
    let format = Format::json(args.change_options.json);
    settings.report_edit(format, |reporter, written| adopt_section(settings, args, format, reporter, written))
}

fn adopt_section(
    settings: &Settings,
    args: &Args,
    format: Format,
    reporter: &mut dyn Reporter,
    written: &mut Option<String>,
) -> Result<Exit, Failure> {
    let session = Session::load(settings)?;
    let section = find_section(&session, &args.address)?;
    let place = manage_path(&section);
    let external = place.find(&json!(session.stack())) == Some(&Value::Bool(false));
    let fail = |problem| Failure::new(vec![problem], session.sources().clone());
    let edit = match external {
        true => Some(edit::without(session.sources(), &place, "false").map_err(fail)?),
        false => None,
    };
    let instead: Vec<(FieldPath, Value)> = edit.iter().map(|_| (place.clone(), json!(true))).collect();
    let asked = Session::load_with(settings, &instead)?;
    reporter.diagnostics(asked.warnings(), asked.sources());
    let selection = Selection { targets: vec![section.to_string()], excludes: Vec::new() };
    let request = PlanRequest {
        selection,
        approved: &args.allow,
        parallelism: args.change_options.parallelism,
        ..PlanRequest::new(Mode::Apply)
    };
    block_on(async {
        let link = asked.connect(settings)?;
        let mut plan = asked.plan(&link, &request).await?;
        reporter.diagnostics(asked.price_warnings(), asked.sources());
        let world = asked.world(&link, args.change_options.parallelism).await?;
        let agreed = AcceptedChanges { field_changes: args.with_changes, approvals: &args.allow };
        let against = rules::adoption_errors(&plan, &section, &world, agreed, asked.sources());
        if !against.is_empty() {
            return Err(Failure::new(against, asked.sources().clone()));
        }
        plan.approved.extend(implied_approvals(&plan, &world));
        reporter.plan(&plan, &View { sources: Some(asked.sources()), next: Next::Nothing });
        if plan.is_empty() {
            link.close().await?;
            *written = Some(write_edit(settings, &section, edit.as_ref(), &asked)?);
            return Ok(Exit::Done);
        }
        for warning in kept_by_others(&plan, &world) {
            reporter.diagnostics(&[warning], asked.sources());
        }
        obtain_approval(&plan, args, format)?;
        rules::without_waits(&mut plan);
        let again = async |link: &Link, _: &Plan| {
            let mut now = asked.plan(link, &request).await?;
            rules::without_waits(&mut now);
            Ok(now)
        };
        let if_changed = IfPlanChanged::Fail { plan: "the plan".to_owned(), again: "adopt again".to_owned() };
        let exit = run(
            plan,
            link,
            args.change_options.apply_request(if_changed, asked.env_values().clone()),
            reporter,
            again,
        )
        .await?;
        // The resources first: what is adopted and still `manage = false` in the file is only read.
        if exit == Exit::Done {
            *written = Some(write_edit(settings, &section, edit.as_ref(), &asked)?);
        }
        Ok(exit)
    })
}

/// Returns the section that an argument means.
fn find_section(session: &Session, typed: &str) -> Result<Address, Failure> {
    let found = session.find(typed)?;
    let section = found.first().map(|resource| Address::new(resource.address.section()));
    section.ok_or_else(|| {
        Diagnostic::error(Code::UnknownAddress, format!("`{typed}` is not an address in this stack")).into()
    })
}

fn manage_path(section: &Address) -> FieldPath {
    let path: FieldPath = section.as_str().parse().unwrap_or_default();
    path.key("manage")
}

/// Returns warnings for resources in the plan that another tool keeps changing.
fn kept_by_others(plan: &Plan, world: &World) -> Vec<Diagnostic> {
    let taken =
        plan.changes.iter().filter(|change| change.adopted.is_some() && change.action != Action::Keep);
    let kept = taken.filter_map(|change| Some((&change.identity, kept_by(world.find(&change.identity)?)?)));
    let warnings = kept.map(|(thing, keeper)| {
        let what =
            format!("{thing} is managed by {keeper}, which will revert values that differ from its own");
        let help = "remove it there as well, or keep `manage = false`";
        Diagnostic::warning(Code::KeptByOthers, what).help(help)
    });
    warnings.collect()
}

/// Returns the approvals that naming an address implies: to adopt it, but not from a tool that manages it.
fn implied_approvals(plan: &Plan, world: &World) -> Vec<Approval> {
    let free = |change: &&plan::Change| {
        change.adopted.is_some() && world.find(&change.identity).is_none_or(|live| kept_by(live).is_none())
    };
    let adopts = plan.changes.iter().filter(free);
    adopts.map(|change| Approval { verb: ApprovalVerb::Adopt, address: change.address.clone() }).collect()
}

fn obtain_approval(plan: &Plan, args: &Args, format: Format) -> Result<(), Failure> {
    let approval = PlanApproval::of(args.change_options.auto_approve);
    approval::obtain(plan, &args.allow, approval, format).map(drop)
}

/// Removes `manage = false` from the file. The stack must then be the one that was applied.
fn write_edit(
    settings: &Settings,
    section: &Address,
    edit: Option<&Edit>,
    asked: &Session,
) -> Result<String, Failure> {
    let Some(edit) = edit else { return Ok(format!("{section} now belongs to this stack.")) };
    let by_hand = |why: String| -> Failure {
        let what = format!("{section} is adopted, but the stack file still says `manage = false`: {why}");
        let help = format!("remove `manage = false` from [{section}] by hand; until then it is only read");
        Diagnostic::error(Code::CannotEdit, what).help(help).into()
    };
    replace_file(&edit.file, &edit.before, &edit.after).map_err(|problem| by_hand(problem.message))?;
    match Session::load(settings) {
        Ok(now) if now.lowered().resources == asked.lowered().resources => Ok(edit.what.clone()),
        Ok(_) | Err(_) => {
            replace_file(&edit.file, &edit.after, &edit.before)
                .map_err(|problem| by_hand(problem.message))?;
            Err(by_hand("another file sets it, too".to_owned()))
        }
    }
}
