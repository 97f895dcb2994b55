//! `scale`: changes the live number of one resource.

use serde_json::json;

use crate::cli::Exit;
use crate::cli::approval::{self, PlanApproval};
use crate::cli::commands::apply::{ChangeArgs, IfPlanChanged, run};
use crate::cli::completion_values;
use crate::cli::preflight::{PreflightChoice, preflight, report_findings};
use crate::cli::session::{Link, Session, block_on};
use crate::cli::settings::{Failure, Format, Settings};
use crate::cli::stack_file;
use crate::report::{Next, Reporter, View};
use kinds::kubernetes::helm_release::{self, groups_meant};
use kinds::scale::{ReplicaOwner, ScaleTarget};
use model::address::Address;
use model::diag::{Code, Diagnostic, listed};
use model::resource::{ObjectId, Resource};
use plan::Plan;
use plan::scale::ScaleRequest;
use stack::edit;

/// Shown below the options.
pub const EXAMPLES: &str = "Examples:\n  \
    dask-infra scale dask_cluster.rapids 5         workers of the default group\n  \
    dask-infra scale rapids.group.large 2          any unique ending works\n  \
    dask-infra scale helm_release.rapids/gpu-workers 5   a group of workers of the Dask chart\n  \
    dask-infra scale node_pool.a100 3 --write      nodes, and writes 3 to the stack file\n  \
    dask-infra scale rapids 0 --auto-approve\n\
    \n\
    Changes that number and nothing else. Without --write the next apply restores the number in the stack file; with it the file is edited in place, comments and layout stay, and a number from an extended file is overridden in the stack's own file.\n\
    A number between bounds (`{ min, max }`) belongs to its autoscaler and cannot be scaled.";

/// Options of `scale`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// A Dask cluster, one of its groups, a node pool, a worker group of the Dask chart, a Deployment or StatefulSet
    /// of a manifest or chart
    #[arg(value_name = "ADDRESS", add = completion_values::addresses())]
    address: String,
    /// How many workers, nodes (in all zones together) or pods
    #[arg(value_name = "N", value_parser = number)]
    number: u32,
    /// Also write the number to the stack file
    #[arg(long)]
    write: bool,
    /// Do not look at quotas, permissions and organization policies before nodes are added
    #[arg(long)]
    skip_preflight: bool,
    #[command(flatten)]
    change_options: ChangeArgs,
}

/// Parses the number; refuses unreasonably large numbers.
fn number(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(number @ 0..=15000) => Ok(number),
        Ok(_) | Err(_) => {
            Err("give a whole number from 0 to 15000: `dask-infra scale dask_cluster.rapids 5`".to_owned())
        }
    }
}

impl Args {
    fn preflight(&self) -> PreflightChoice {
        if self.skip_preflight { PreflightChoice::Skip } else { PreflightChoice::Run }
    }
}

/// Scales one resource to a number.
pub fn scale(settings: &Settings, args: &Args) -> Exit {
    let format = Format::json(args.change_options.json);
    settings.report_edit(format, |reporter, written| scale_thing(settings, args, format, reporter, written))
}

fn scale_thing(
    settings: &Settings,
    args: &Args,
    format: Format,
    reporter: &mut dyn Reporter,
    written: &mut Option<String>,
) -> Result<Exit, Failure> {
    let session = Session::load(settings)?;
    let (resource, scaled) = find_scalable(&session, &args.address)?;
    let fail = |problem| Failure::new(vec![problem], session.sources().clone());
    let edit = match args.write {
        true => Some(edit::value(session.sources(), &scaled.origin, i64::from(args.number)).map_err(fail)?),
        false => None,
    };
    // The rules of the file hold for the new number, too.
    let instead = [(scaled.origin.clone(), json!(args.number))];
    let asked = Session::load_with(settings, &instead)?;
    reporter.diagnostics(&without_expected(asked.warnings(), args.number), asked.sources());
    let wish = ScaleRequest {
        address: &resource.address,
        target: &scaled,
        replicas: args.number,
        persist: edit.is_some(),
    };
    let keep = |written: &mut Option<String>| match &edit {
        Some(edit) if edit.before != edit.after => {
            stack_file::write(
                settings,
                edit,
                &asked,
                "nothing was scaled; fix the cause, or omit `--write`",
            )?;
            *written = Some(edit.what.clone());
            Ok(())
        }
        Some(_) | None => Ok::<(), Failure>(()),
    };
    block_on(async {
        let link = asked.connect(settings)?;
        let plan = asked.scale(&link, &wish, args.change_options.parallelism).await?;
        reporter.diagnostics(asked.price_warnings(), asked.sources());
        reporter.plan(&plan, &View { sources: Some(asked.sources()), next: Next::Nothing });
        if plan.is_empty() {
            keep(written)?;
            link.close().await?;
            return Ok(Exit::Done);
        }
        let findings =
            preflight(&*link.api(), &plan, args.preflight(), args.change_options.parallelism).await;
        report_findings(findings, reporter, asked.sources())?;
        let approval = PlanApproval::of(args.change_options.auto_approve);
        let approved_by = approval::obtain(&plan, &plan.approved, approval, format)?;
        // The file first: an apply goes on from there when this is interrupted.
        keep(written)?;
        let if_changed = IfPlanChanged::after(approved_by, "scale again");
        let again =
            async |link: &Link, _: &Plan| asked.scale(link, &wish, args.change_options.parallelism).await;
        run(
            plan,
            link,
            args.change_options.apply_request(if_changed, asked.env_values().clone()),
            reporter,
            again,
        )
        .await
    })
}

/// Returns the warnings without the expected ones: Pods do not fit in a pool that is scaled to zero nodes.
fn without_expected(warnings: &[Diagnostic], number: u32) -> Vec<Diagnostic> {
    let meant = |warning: &&Diagnostic| number > 0 || warning.code != Code::MoreGpusThanPool;
    warnings.iter().filter(meant).cloned().collect()
}

/// Returns the one resource that the argument names and that can be scaled.
fn find_scalable(session: &Session, typed: &str) -> Result<(Resource, ScaleTarget), Failure> {
    let found = match session.find(typed) {
        Err(nothing) => session.find(&helm_workers(session, typed).ok_or(nothing)?)?,
        found => found?,
    };
    let lowered = session.lowered();
    let sources = session.sources();
    let fail = |problem: Diagnostic| Err(Failure::new(vec![problem], sources.clone()));
    let ours = |resource: &&Resource| lowered.resources.iter().any(|own| own.address == resource.address);
    let counted: Vec<(&Resource, ScaleTarget)> = found
        .iter()
        .copied()
        .filter(ours)
        .filter_map(|resource| {
            Some((resource, (kinds::of(resource.kind).scale_target)(resource, &lowered.resources)?))
        })
        .collect();
    let at = found.first().and_then(|resource| sources.key_span(&resource.origin));
    let (resource, scaled) = match counted.as_slice() {
        [(resource, scaled)] => ((*resource).clone(), scaled.clone()),
        [] => {
            let external = found.iter().any(|resource| !ours(resource));
            let (why, help) = if external {
                ("it is managed elsewhere (`manage = false`)", "ask its owner, or scale it with its own tool")
            } else {
                (
                    "it has nothing to scale",
                    "workers of Dask clusters and groups, nodes of pools, and pods of Deployments and \
                     StatefulSets from manifests can be scaled",
                )
            };
            let what = format!("`{typed}` cannot be scaled: {why}");
            return fail(Diagnostic::error(Code::NothingToScale, what).at(at, "this").help(help));
        }
        several => {
            let names = several.iter().map(|(resource, _)| resource.address.as_str());
            let what = format!("`{typed}` has several numbers to scale");
            let help = format!("use one of {}", listed(names, "or"));
            return fail(Diagnostic::error(Code::NothingToScale, what).at(at, "this").help(help));
        }
    };
    if let ReplicaOwner::Autoscaler { min, max, whose, origin: place } = &scaled.replica_owner {
        let what = format!(
            "{whose} sets the number of {} of {}, between {min} and {max}",
            scaled.unit, resource.address
        );
        let problem = Diagnostic::error(Code::NumberOfOthers, what).at(sources.span(place), "its bounds");
        return fail(problem.help("change the bounds and apply, or replace them with a number and apply"));
    }
    Ok((resource, scaled))
}

/// Returns the address of the Deployment behind a group of workers of a Helm chart: `helm_release.rapids/gpu-workers`. `None`
/// when there is none, or there are several.
fn helm_workers(session: &Session, typed: &str) -> Option<String> {
    let groups = groups_meant(&session.stack().helm_release, typed);
    let [(key, group)] = groups.as_slice() else { return None };
    let section = Address::of(helm_release::SECTION, key);
    let ObjectId { gvk, namespace, name } = &group.object;
    let address = Address::object(section.as_str(), &gvk.kind, namespace.as_deref(), name);
    Some(address.as_str().to_owned())
}
