//! `permissions`: what a stack needs permission for, to hand to whoever grants it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::cli::Exit;
use crate::cli::rights::{self, Need, Needs};
use crate::cli::session::Session;
use crate::cli::settings::{Format, Settings};
use kinds::dask::stack_expiry;
use live::prices::{CONTRACT_PERMISSION, CONTRACT_ROLE};
use model::prices::cloud_billing::BillingAccount;
use model::resource::Lowered;

/// Shown below the options.
pub const EXAMPLES: &str = "Examples:\n  \
    dask-infra permissions           for plan and for apply\n  \
    dask-infra permissions --format json | jq -r '.apply.roles[]'\n\
    \n\
    Needs no network and no credentials; writes nothing. `dask-infra doctor` says which of them are missing.";

/// Options of `permissions`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Output format
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    format: Written,
}

/// How permissions are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Written {
    /// Lines.
    #[default]
    Text,
    /// One JSON object.
    Json,
}

/// Shows what the stack needs.
pub fn permissions(settings: &Settings, args: &Args) -> Exit {
    settings.show(Format::Text, |reporter| {
        let session = Session::load(settings)?;
        reporter.diagnostics(session.warnings(), session.sources());
        let lowered = session.lowered();
        if lowered.target.is_on_hosts() {
            return Ok(match args.format {
                Written::Text => {
                    "plan and apply need no permissions: processes on a host are those of who applies\n"
                        .to_owned()
                }
                Written::Json => format!("{:#}\n", json!({ "plan": {}, "apply": {} })),
            });
        }
        let needs = Needs::of_stack(lowered);
        let project = lowered.target.gke.as_ref().map(|name| name.project.as_str());
        let account = project.and_then(|_| settings.prices.as_ref()?.account());
        Ok(match (args.format, project) {
            (Written::Text, Some(project)) => {
                of_project(&needs, project) + &of_expiry(lowered, project) + &of_prices(account)
            }
            (Written::Text, None) => of_cluster(&needs),
            (Written::Json, project) => {
                let mut all = as_json(&needs, lowered, project);
                if let Some(account) = account {
                    all["prices"] = json!({
                        "account": account.to_string(), "permissions": [CONTRACT_PERMISSION], "roles": [CONTRACT_ROLE],
                    });
                }
                format!("{all:#}\n")
            }
        })
    })
}

fn as_json(needs: &Needs, lowered: &Lowered, project: Option<&str>) -> Value {
    let part = |needs: &BTreeSet<Need>| match project.is_some() {
        true => {
            let permissions = rights::permissions(needs);
            json!({ "roles": rights::roles(permissions.iter().map(String::as_str)), "permissions": permissions })
        }
        false => json!({ "rules": rights::rules(needs) }),
    };
    let mut all = json!({ "plan": part(&needs.plan), "apply": part(&needs.apply) });
    for (section, commands) in project.map(|project| grants(lowered, project)).into_iter().flatten() {
        all["expiry"][section] = json!(commands);
    }
    all
}

fn of_project(needs: &Needs, project: &str) -> String {
    let mut text = String::new();
    for (name, needs) in [("plan", &needs.plan), ("apply", &needs.apply)] {
        let permissions = rights::permissions(needs);
        text.push_str(&format!("{name} needs {} permissions on project {project}\n", permissions.len()));
        permissions.iter().for_each(|permission| text.push_str(&format!("  {permission}\n")));
        text.push_str("the least predefined roles that hold them:\n");
        for role in rights::roles(permissions.iter().map(String::as_str)) {
            text.push_str(&format!("  {}\n", rights::grant(project, role)));
        }
        text.push('\n');
    }
    text.trim_end().to_owned() + "\n"
}

/// Returns the sections of the stack's CronJobs that change node pools, each with the commands that grant it the right.
fn grants<'r>(lowered: &'r Lowered, project: &str) -> Vec<(&'r str, [String; 2])> {
    let jobs = lowered.resources.iter().filter(|resource| stack_expiry::uses_google(resource));
    jobs.map(|job| (job.address.section(), stack_expiry::grants(job, project))).collect()
}

fn of_expiry(lowered: &Lowered, project: &str) -> String {
    let needs = |(section, commands): &(&str, [String; 2])| {
        format!("\n{section} needs\n  {}\n", commands.join("\n  "))
    };
    grants(lowered, project).iter().map(needs).collect()
}

/// The right that the prices of a contract need. List prices need none.
fn of_prices(account: Option<&BillingAccount>) -> String {
    let needs = |account| {
        format!(
            "\n--prices needs {CONTRACT_PERMISSION} on {account}\n  {}\n",
            rights::grant_on_account(account)
        )
    };
    account.map(needs).unwrap_or_default()
}

fn of_cluster(needs: &Needs) -> String {
    let mut text = String::new();
    for (name, needs) in [("plan", &needs.plan), ("apply", &needs.apply)] {
        text.push_str(&format!("{name} needs, as rules of a ClusterRole\n"));
        for rule in rights::rules(needs) {
            text.push_str(&format!("  - {rule}\n"));
        }
        text.push('\n');
    }
    text.trim_end().to_owned() + "\n"
}
