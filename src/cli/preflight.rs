//! Checks, before the first write, what Google Cloud would refuse: asks the questions of [`Preflight`], and which permissions the
//! credentials have. It only reads, and only for plans that need capacity.

use serde_json::Value;

use crate::cli::rights::{self, Needs};
use crate::cli::settings::Failure;
use crate::report::Reporter;
use live::credentials::adc;
use live::denial::DenialCause;
use live::environment::env_var;
use live::{ApiError, ErrorClass, LiveApi, read_queries};
use model::diag::{Code, Diagnostic, Severity};
use model::source::Sources;
use plan::Plan;
use plan::review::preflight::{Answers, Preflight, Question};

/// Choices for the preflight checks: run or skip them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreflightChoice {
    Run,
    Skip,
}

/// Returns the problems that an apply of the plan would run into, as far as they can be known, most severe first.
pub async fn preflight(
    api: &dyn LiveApi,
    plan: &Plan,
    wanted: PreflightChoice,
    parallelism: usize,
) -> Vec<Diagnostic> {
    let Some(preflight) = Preflight::of(plan).filter(|_| wanted == PreflightChoice::Run) else {
        return Vec::new();
    };
    let (room, permissions) = tokio::join!(
        capacity_findings(api, &preflight, parallelism),
        permissions(api, plan, &preflight.project)
    );
    let mut findings: Vec<Diagnostic> = permissions.into_iter().chain(room).collect();
    findings.sort_by_key(|finding| finding.severity);
    if let Some(last) = findings.iter_mut().rfind(|finding| finding.severity == Severity::Error) {
        let stops = "apply stops before the first write because of it; `--skip-preflight` goes on";
        last.help = Some(last.help.as_ref().map_or(stops.to_owned(), |help| format!("{help}\n{stops}")));
    }
    findings
}

/// Reports findings; returns an error if an apply would certainly fail.
///
/// # Errors
/// Some findings are errors, so an apply would fail.
pub fn report_findings(
    findings: Vec<Diagnostic>,
    reporter: &mut dyn Reporter,
    sources: &Sources,
) -> Result<(), Failure> {
    let (errors, warnings): (Vec<Diagnostic>, Vec<Diagnostic>) =
        findings.into_iter().partition(|finding| finding.severity == Severity::Error);
    reporter.diagnostics(&warnings, sources);
    if errors.is_empty() { Ok(()) } else { Err(Failure::new(errors, sources.clone())) }
}

/// Returns the findings about quotas, machine types and organization policies.
pub async fn capacity_findings(
    api: &dyn LiveApi,
    preflight: &Preflight,
    parallelism: usize,
) -> Vec<Diagnostic> {
    let questions: Vec<Question> = preflight.questions().into_iter().collect();
    let queries = questions.iter().map(|question| question.query(preflight)).collect();
    let mut answers = Answers::new();
    let mut disabled = None;
    for (question, answer) in questions.into_iter().zip(read_queries(api, queries, parallelism).await) {
        let answer = answer.map_err(|error| {
            disabled = disabled.take().or_else(|| not_enabled(&error, &preflight.project));
            failure_reason(&question, &error, &preflight.project)
        });
        // A machine or a GPU may not be there. What else is not found is not known.
        let absent = matches!(answer, Ok(Value::Null));
        let answer = match question {
            Question::Region | Question::Project | Question::Policy(_) if absent => {
                Err("it was not found".to_owned())
            }
            _ => answer,
        };
        answers.insert(question, answer);
    }
    disabled.into_iter().chain(preflight.findings(&answers)).collect()
}

/// Returns the finding that the Compute Engine API is disabled, without which GKE creates no nodes. If another project is
/// charged, it may be disabled in that one.
fn not_enabled(error: &ApiError, project: &str) -> Option<Diagnostic> {
    let cause = DenialCause::from_error(error.body.as_ref(), &error.message)?;
    let DenialCause::ApiDisabled { service, .. } = &cause else { return None };
    let charged = adc::quota_project(&env_var, &adc::find(&env_var));
    let own = charged.is_none_or(|charged| charged == project);
    (own && service == "compute.googleapis.com")
        .then(|| Diagnostic::error(Code::ApiDisabled, cause.what(project)).help(cause.remedy(project)))
}

/// Returns why a question has no answer, in the same words for all that have the same reason.
fn failure_reason(question: &Question, error: &ApiError, project: &str) -> String {
    match DenialCause::from_error(error.body.as_ref(), &error.message) {
        Some(cause) => format!("{} (`{}`)", cause.what(project), cause.remedy(project)),
        None if error.class == ErrorClass::Denied => {
            format!("the permission {} is missing", question.permission())
        }
        None => error.message.clone(),
    }
}

/// Returns the findings about permissions of an apply that the credentials lack.
async fn permissions(api: &dyn LiveApi, plan: &Plan, project: &str) -> Vec<Diagnostic> {
    let Plan { target, desired, external, .. } = plan;
    let needed = rights::permissions(&Needs::of_resources(target, desired, external).apply);
    match api.send(rights::test(project, &needed)).await {
        Ok(answer) => missing_permissions(&needed, &answer, project),
        Err(error) => {
            let why = match DenialCause::from_error(error.body.as_ref(), &error.message) {
                Some(cause) => format!("{} (`{}`)", cause.what(project), cause.remedy(project)),
                None => error.message,
            };
            let what = format!("not looked at: permissions, because {why}");
            vec![Diagnostic::warning(Code::NotLookedAt, what)]
        }
    }
}

fn missing_permissions(needed: &[String], answer: &Value, project: &str) -> Vec<Diagnostic> {
    let (certain, maybe): (Vec<&str>, Vec<&str>) = rights::missing(needed, answer)
        .into_iter()
        .partition(|permission| rights::is_of_the_project(permission));
    let error = (!certain.is_empty()).then(|| {
        let what =
            format!("these credentials lack permissions on project {project}: {}", rights::few(&certain));
        Diagnostic::error(Code::Denied, what).help(rights::grants(project, &certain))
    });
    let warning = (!maybe.is_empty()).then(|| {
        let what = format!(
            "project {project} does not give these credentials {}; the cluster's RBAC or a service account may",
            rights::few(&maybe)
        );
        Diagnostic::warning(Code::Denied, what).help(rights::grants(project, &maybe))
    });
    error.into_iter().chain(warning).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_permission_that_only_the_project_gives_is_an_error() {
        let needed: Vec<String> =
            ["container.clusters.create", "container.pods.list", "iam.serviceAccounts.actAs"]
                .map(str::to_owned)
                .to_vec();
        let told = |answer: &Value| -> Vec<(Severity, String)> {
            let found = missing_permissions(&needed, answer, "p").into_iter();
            found.map(|found| (found.severity, found.message)).collect()
        };
        assert_eq!(told(&json!({ "permissions": needed })), []);
        let found = told(&json!({ "permissions": ["container.pods.list"] }));
        assert_eq!(found[0].0, Severity::Error);
        assert!(found[0].1.ends_with("project p: container.clusters.create"), "{found:?}");
        assert_eq!(found[1].0, Severity::Warning);
        assert!(found[1].1.contains("iam.serviceAccounts.actAs"), "{found:?}");
    }
}
