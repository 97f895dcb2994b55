//! `doctor`: reports what is missing, with the command that fixes it. Local checks come first, then checks with Google's APIs or
//! the cluster.

use std::path::Path;

use serde_json::Value;

use crate::cli::Exit;
use crate::cli::access::{self, MessageDetail};
use crate::cli::commands::sandbox::{self, State};
use crate::cli::first_hour;
use crate::cli::gcloud::{self, Gcloud};
use crate::cli::preflight::capacity_findings;
use crate::cli::rights::{self, Needs};
use crate::cli::session::{Link, PlanRequest, Session, block_on};
use crate::cli::settings::{Access, Failure, Settings};
use crate::report::human::findings::{Finding, Mark, render};
use kinds::hosts::api as hosts;
use live::credentials::adc::{self, AdcSearch, File};
use live::environment::env_var;
use live::{ApiError, ErrorClass, LiveApi, Request};
use model::diag::{Code, Diagnostic, Severity};
use model::resource::{Api, ClusterName, Target};
use plan::Mode;
use plan::review::preflight::Preflight;

/// Shown below the options.
pub const EXAMPLES: &str = "Examples:\n  \
    dask-infra doctor              everything\n  \
    dask-infra doctor --offline    only what this machine can tell\n  \
    dask-infra doctor --json | jq '.[] | select(.mark == \"bad\")'\n  \
    dask-infra doctor --live -- --list    what it would try on a real project\n\
    \n\
    Reads only, but for `--live`. Exits with 1 when it finds a problem. Shows no secrets.";

/// Requests at a time.
const PARALLELISM: usize = 16;

/// Options of `doctor`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Do not use the network
    #[arg(long)]
    offline: bool,
    /// Print JSON: one list
    #[arg(long)]
    json: bool,
    /// Try on a real project what is expected of GKE: makes a small cluster, asks before each step with its price, deletes what
    /// it made and writes a report without secrets. Needs Python 3; takes the options after `--`
    #[arg(long, conflicts_with_all = ["offline", "json"])]
    live: bool,
    /// Options of `--live`: `-- --help` lists them
    #[arg(last = true, requires = "live", value_name = "OPTIONS")]
    options: Vec<String>,
}

/// Runs the checks and prints the findings.
pub fn doctor(settings: &Settings, args: &Args) -> Exit {
    if args.live {
        return first_hour::exec(settings, &args.options);
    }
    let (mut findings, session) = stack(settings);
    findings.push(configuration(&gcloud::read(&env_var)));
    let on_host = session.as_ref().is_some_and(|session| session.lowered().target.is_on_hosts());
    findings.extend(match on_host {
        true => vec![Finding::new(Mark::Skipped, "credentials", "none are needed on this machine")],
        false => credentials(settings, &adc::find(&env_var)),
    });
    findings.extend(["gcloud", "kubectl", "helm"].map(tool));
    findings.push(the_sandbox(settings));
    findings.extend(online(settings, args, session.as_ref()));
    let text = if args.json {
        let list: Vec<Value> = findings.iter().map(Finding::json).collect();
        format!("{:#}\n", Value::Array(list))
    } else {
        render(&findings, settings.screen().data_look().width)
    };
    let told = settings.print(&text);
    let bad = findings.iter().any(|finding| finding.mark == Mark::Bad);
    if told == Exit::Done && bad { Exit::Error } else { told }
}

fn stack(settings: &Settings) -> (Vec<Finding>, Option<Session>) {
    match Session::load(settings) {
        Ok(session) => {
            let lowered = session.lowered();
            let seen =
                format!("stack {} on {} ({})", lowered.owner.stack, lowered.target, lowered.target.label());
            let mut findings = vec![Finding::new(Mark::Good, "stack", seen)];
            let doubts = session.warnings().iter().filter(|warning| warning.code == Code::Kubeconfig);
            findings.extend(
                doubts.map(|doubt| Finding::new(Mark::Doubtful, "kubeconfig", doubt.message.clone())),
            );
            (findings, Some(session))
        }
        Err(failure) => (vec![broken(settings, &failure)], None),
    }
}

fn broken(settings: &Settings, failure: &Failure) -> Finding {
    let all = failure.diagnostics();
    let first = all.first().map(|first| first.message.clone()).unwrap_or_default();
    let more = match all.len() {
        0 | 1 => String::new(),
        number => format!(" (and {} more)", number - 1),
    };
    let found = Finding::new(Mark::Bad, "stack", format!("{first}{more}"));
    // One mistake is mended by what it says itself.
    if let [only] = all
        && only.code != Code::StackNotFound
        && let Some(help) = &only.help
    {
        return found.remedy(help.as_str());
    }
    let exists = settings.stack.is_file() || settings.stack.join("stack.toml").is_file();
    let command = if exists { "validate" } else { "init" };
    found.remedy(format!("{} {command}", settings.program()))
}

fn configuration(gcloud: &Gcloud) -> Finding {
    let Gcloud { folder: _, configuration, project, zone, account } = gcloud;
    let said = [("project", project), ("zone", zone), ("account", account)];
    let said: Vec<String> = said
        .into_iter()
        .filter_map(|(name, property)| property.as_ref().map(|property| format!("{name} {}", property.value)))
        .collect();
    if said.is_empty() {
        return Finding::new(Mark::Skipped, "gcloud settings", "none; only `init` uses them");
    }
    Finding::new(Mark::Good, "gcloud settings", format!("configuration {configuration}: {}", said.join(", ")))
}

/// Returns the findings about the credentials file and the project that is charged.
fn credentials(settings: &Settings, found: &AdcSearch) -> Vec<Finding> {
    let what = "credentials";
    let needed = !settings.access.is_simulated();
    let remedy = "gcloud auth application-default login";
    let finding = match found {
        AdcSearch::File(File { path, kind, account, .. }) => {
            let whose = account.as_ref().map(|account| format!(" of {account}")).unwrap_or_default();
            Finding::new(Mark::Good, what, format!("{}{whose} in {}", kind.name(), path.display()))
        }
        AdcSearch::Unusable { path, why } => {
            let mark = if needed { Mark::Bad } else { Mark::Doubtful };
            Finding::new(mark, what, format!("{} cannot be used: {why}", path.display())).remedy(remedy)
        }
        AdcSearch::NoFile if needed => {
            let seen =
                "no application default credentials on this machine (Google Cloud machines have their own)";
            Finding::new(Mark::Doubtful, what, seen).remedy(remedy)
        }
        AdcSearch::NoFile => Finding::new(Mark::Skipped, what, "none; the sandbox needs none"),
    };
    let charged = adc::quota_project(&env_var, found).filter(|_| needed);
    let charged = charged.map(|project| Finding::new(Mark::Good, "quota project", project));
    [finding].into_iter().chain(charged).collect()
}

/// Returns the finding about a tool. No tool is required; they are useful for inspecting.
fn tool(name: &'static str) -> Finding {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| runs(file));
    match found {
        Some(file) => Finding::new(Mark::Good, name, file.display().to_string()),
        None => Finding::new(Mark::Skipped, name, "not on the PATH; not needed"),
    }
}

fn runs(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    file.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

fn the_sandbox(settings: &Settings) -> Finding {
    let dir = settings.sandbox_dir();
    let shown = dir.display();
    match sandbox::state(dir) {
        State::Empty => Finding::new(Mark::Skipped, "sandbox", format!("none in {shown}")),
        State::Idle => Finding::new(Mark::Good, "sandbox", format!("in {shown}, not in use")),
        State::Served(url) => Finding::new(Mark::Good, "sandbox", format!("in {shown}, served at {url}")),
        State::InUse => {
            let found =
                Finding::new(Mark::Doubtful, "sandbox", format!("in {shown}, in use by another process"));
            found.remedy("wait for it, or stop it")
        }
    }
}

/// Returns the findings that need the APIs or the hosts.
fn online(settings: &Settings, args: &Args, session: Option<&Session>) -> Vec<Finding> {
    let skipped = |why: &str| vec![Finding::new(Mark::Skipped, "access", why)];
    if args.offline {
        return skipped("skipped: --offline");
    }
    let Some(session) = session else { return skipped("skipped: fix the stack first") };
    let target = &session.lowered().target;
    let asked = block_on(async {
        let link = session.connect(settings)?;
        let api = link.api();
        let found = match &target.gke {
            Some(cluster) => {
                let mut found = project(&*api, session, settings, cluster).await;
                if found.iter().all(|finding| finding.mark != Mark::Bad) {
                    found.extend(capacity(session, &link).await);
                }
                found
            }
            None if target.is_on_hosts() => vec![host(&*api, session, settings).await],
            None => vec![cluster(&*api, session, settings, target).await],
        };
        link.close().await?;
        Ok(found)
    });
    asked.unwrap_or_else(|failure| {
        let first = failure.diagnostics().first();
        let seen = first.map(|first| first.message.clone()).unwrap_or_default();
        let mut found = Finding::new(Mark::Bad, "access", seen);
        found.remedy = first.and_then(|first| first.help.clone());
        vec![found]
    })
}

/// Checks that the agent of each host runs.
async fn host(api: &dyn LiveApi, session: &Session, settings: &Settings) -> Finding {
    // Each host answers a list, and one that does not is named.
    let kind = hosts::environment();
    let list = Request::get(Api::Kubernetes, format!("/apis/{}/{}", kind.api_version(), kind.plural));
    if let Err(error) = api.send(list).await {
        return in_the_way("host", &error, session, settings);
    }
    match api.send(Request::get(Api::Kubernetes, "/version")).await {
        Ok(version) => {
            let python = version["platform"].as_str().unwrap_or_default();
            let target = &session.lowered().target;
            let seen = match target.hosts.len() {
                1 => format!("{target} runs {python}"),
                _ => format!("{target} can be used; {} runs {python}", target.hosts[0]),
            };
            Finding::new(Mark::Good, "host", seen)
        }
        Err(error) => in_the_way("host", &error, session, settings),
    }
}

fn in_the_way(what: &'static str, error: &ApiError, session: &Session, settings: &Settings) -> Finding {
    let words = if settings.is_verbose() { MessageDetail::Full } else { MessageDetail::Brief };
    let said = access::diagnose(error, &session.lowered().target, session.sources(), words);
    let mut found = Finding::new(Mark::Bad, what, format!("{} ({})", said.message, said.code));
    found.remedy = said.help;
    found
}

async fn project(
    api: &dyn LiveApi,
    session: &Session,
    settings: &Settings,
    name: &ClusterName,
) -> Vec<Finding> {
    let list = Request::get(Api::Gke, format!("/v1/{}/clusters", name.parent()));
    let clusters = match api.send(list).await {
        Ok(found) => found["clusters"].as_array().cloned().unwrap_or_default(),
        Err(error) => return vec![in_the_way("GKE API", &error, session, settings)],
    };
    let there = clusters.iter().find(|cluster| cluster["name"] == name.cluster.as_str());
    let seen = match there.and_then(|cluster| cluster["status"].as_str()) {
        Some(status) => format!("cluster {} exists, {status}", name.cluster),
        None => format!("cluster {} does not exist yet", name.cluster),
    };
    let reached = format!("responds for project {} in {}", name.project, name.location);
    let mut findings =
        vec![Finding::new(Mark::Good, "GKE API", reached), Finding::new(Mark::Good, "cluster", seen)];
    if matches!(settings.access, Access::Sandbox(_)) {
        findings.push(Finding::new(Mark::Skipped, "permissions", "the sandbox allows everything"));
    } else {
        findings.push(permissions(api, session, settings, name).await);
    }
    findings
}

/// Returns the findings about needed permissions that the project does not grant.
async fn permissions(
    api: &dyn LiveApi,
    session: &Session,
    settings: &Settings,
    name: &ClusterName,
) -> Finding {
    let what = "permissions";
    let needed = rights::permissions(&Needs::of_stack(session.lowered()).apply);
    match api.send(rights::test(&name.project, &needed)).await {
        Ok(answer) => judged(&needed, &answer, &name.project),
        // A sandbox that is being served.
        Err(error) if error.class == ErrorClass::NotFound && settings.access.is_simulated() => {
            Finding::new(Mark::Skipped, what, "the sandbox allows everything")
        }
        Err(error) if matches!(error.class, ErrorClass::Denied | ErrorClass::NotFound) => {
            let seen = format!("unknown: the Resource Manager API gave no answer ({})", error.message);
            let remedy = format!(
                "gcloud services enable cloudresourcemanager.googleapis.com --project {}",
                name.project
            );
            Finding::new(Mark::Skipped, what, seen).remedy(remedy)
        }
        Err(error) => in_the_way(what, &error, session, settings),
    }
}

fn judged(needed: &[String], answer: &Value, project: &str) -> Finding {
    let missing = rights::missing(needed, answer);
    if missing.is_empty() {
        return Finding::new(Mark::Good, "permissions", format!("all {} that an apply needs", needed.len()));
    }
    // Reading is enough for plans.
    let mark = if missing.contains(&"container.clusters.get") { Mark::Bad } else { Mark::Doubtful };
    let seen = format!("missing: {}", rights::few(&missing));
    Finding::new(mark, "permissions", seen).remedy(rights::grants(project, &missing))
}

/// Checks that quotas, zones and policies have room for what an apply would create.
async fn capacity(session: &Session, link: &Link) -> Vec<Finding> {
    let what = "capacity";
    let request = PlanRequest { parallelism: PARALLELISM, ..PlanRequest::new(Mode::Apply) };
    let Ok(plan) = session.plan(link, &request).await else {
        return vec![Finding::new(Mark::Skipped, what, "not looked at: the stack cannot be planned")];
    };
    let Some(preflight) = Preflight::of(&plan) else {
        return vec![Finding::new(Mark::Skipped, what, "an apply creates no nodes")];
    };
    let found = capacity_findings(&*link.api(), &preflight, PARALLELISM).await;
    if found.is_empty() {
        let seen = "quotas, zones and organization policies have room for what an apply creates";
        return vec![Finding::new(Mark::Good, what, seen)];
    }
    let finding = |said: Diagnostic| {
        let mark = match (said.code, said.severity) {
            (Code::NotLookedAt, _) => Mark::Skipped,
            (_, Severity::Error) => Mark::Bad,
            (_, Severity::Warning) => Mark::Doubtful,
        };
        let mut found = Finding::new(mark, what, said.message);
        found.remedy = said.help;
        found
    };
    found.into_iter().map(finding).collect()
}

/// Returns the finding about the cluster of a kubeconfig.
async fn cluster(api: &dyn LiveApi, session: &Session, settings: &Settings, target: &Target) -> Finding {
    match api.send(Request::get(Api::Kubernetes, "/version")).await {
        Ok(version) => {
            let version = version["gitVersion"].as_str().unwrap_or("an unknown version").to_owned();
            Finding::new(Mark::Good, "cluster", format!("{target} responds: Kubernetes {version}"))
        }
        Err(error) => in_the_way("cluster", &error, session, settings),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn missing_permissions_are_named_with_roles_that_hold_them() {
        let needed: Vec<String> = [
            "container.clusters.create",
            "container.clusters.get",
            "container.pods.list",
            "container.thirdPartyObjects.create",
            "iam.serviceAccounts.actAs",
        ]
        .map(str::to_owned)
        .to_vec();
        let all = judged(&needed, &json!({ "permissions": needed }), "p");
        assert_eq!((all.mark, all.remedy), (Mark::Good, None));
        let some: Vec<&String> =
            needed.iter().filter(|needed| !needed.ends_with("clusters.create")).collect();
        let found = judged(&needed, &json!({ "permissions": some }), "p");
        assert_eq!(found.mark, Mark::Doubtful, "a plan still works");
        assert!(found.seen.contains("container.clusters.create"), "{found:?}");
        assert!(found.remedy.unwrap().contains("--role roles/container.clusterAdmin"));
        let none = judged(&needed, &json!({}), "p");
        assert_eq!(none.mark, Mark::Bad);
        assert_eq!(none.remedy.unwrap().lines().count(), 3);
    }
}
