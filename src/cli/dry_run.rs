//! Tries, before the first write, the creates and updates of a plan on the API server: dry runs, which store nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

use live::admission::{self, Admission};
use live::dry_run::TIME_LIMIT;
use live::served_kinds::served_versions;
use live::shape::ApiPath;
use live::{ApiError, ErrorClass, LiveApi, Reply, Request};
use model::address::Address;
use model::diag::{self, Diagnostic, Severity};
use model::resource::{Action, Api};
use model::secrets::env_values::EnvValues;
use model::source::Sources;
use plan::Plan;
use plan::review::dry_run::{Answer, DryRuns, Refusal, RefusedBy, Trial};

/// Choices for the dry runs: send or skip them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DryRunChoice {
    Run,
    Skip,
}

impl DryRunChoice {
    /// Returns the choice of `--skip-dry-run`.
    pub fn skip_if(skip: bool) -> Self {
        if skip { Self::Skip } else { Self::Run }
    }
}

/// Tries a plan's creates and updates on the API server, and notes in the plan what was tried. Returns the findings: errors
/// first, each in the order of the stack file. Without values from the environment, objects that need them are not tried.
pub async fn dry_run(
    api: &dyn LiveApi,
    plan: &mut Plan,
    (env_values, sources): (Option<&EnvValues>, &Sources),
    choice: DryRunChoice,
    parallelism: usize,
) -> Vec<Diagnostic> {
    plan.dry_run = None;
    let runs = DryRuns::of(plan, env_values).filter(|_| choice == DryRunChoice::Run);
    let Some(runs) = runs else { return Vec::new() };
    let requests = runs.trials().iter().map(request).collect();
    let results = live::dry_run::dry_run(api, requests, parallelism, TIME_LIMIT).await;
    let versions = versions_instead(api, plan, runs.trials(), &results).await;
    let answers = results.into_iter().zip(runs.trials());
    let answers = answers.map(|(result, trial)| answer(&trial.path, result, &versions)).collect();
    let (result, mut findings) = runs.review(plan, answers);
    plan.dry_run = Some(result);
    if sources.names().next().is_none() {
        locate(&mut findings, plan);
    }
    diag::sort(&mut findings, sources);
    findings.sort_by_key(|finding| finding.severity);
    if let Some(last) = findings.iter_mut().rfind(|finding| finding.severity == Severity::Error) {
        let stops = "apply stops before the first write because of it; `--skip-dry-run` goes on";
        last.help = Some(last.help.as_ref().map_or(stops.to_owned(), |help| format!("{help}\n{stops}")));
    }
    findings
}

fn request(trial: &Trial) -> Request {
    let (path, body) = (trial.path.clone(), Some(trial.body.clone()));
    Request { api: Api::Kubernetes, method: trial.method, path, body }
}

/// Adds the places in the stack file to findings about a saved plan, which has them as text.
fn locate(findings: &mut [Diagnostic], plan: &Plan) {
    let places: HashMap<&Address, &str> = plan
        .changes
        .iter()
        .filter_map(|change| Some((&change.address, change.location.as_deref()?)))
        .collect();
    for finding in findings {
        let place =
            finding.address().and_then(|address| places.get(address)).map(|place| format!(" ({place})"));
        finding.message.push_str(&place.unwrap_or_default());
    }
}

/// The versions that the API server serves of groups, by group.
pub type Versions = BTreeMap<String, Vec<String>>;

/// Returns what the API server serves of the groups whose version in the plan it does not know. Nothing is read if it knows all.
/// Left out are groups in which an operator of the plan may still define the kind.
async fn versions_instead(
    api: &dyn LiveApi,
    plan: &Plan,
    trials: &[Trial],
    results: &[Result<Reply, ApiError>],
) -> Versions {
    let unknown = trials
        .iter()
        .zip(results)
        .filter(|(_, result)| result.as_ref().is_err_and(ApiError::is_unknown_path));
    let has_operator = writes_deployment(plan);
    let groups = unknown.filter_map(|(trial, _)| Some(group_version(&trial.path)?.0));
    let groups: BTreeSet<String> = groups.filter(|group| !has_operator || is_built_in(group)).collect();
    if groups.is_empty() {
        return Versions::new();
    }
    // Without an answer nothing is known of other versions.
    served_versions(api, &groups).await.unwrap_or_default()
}

fn writes_deployment(plan: &Plan) -> bool {
    plan.changes.iter().any(|change| {
        let object = change.identity.object().filter(|_| change.action != Action::Keep);
        object.is_some_and(|object| object.gvk.kind == "Deployment")
    })
}

/// Returns true for groups in which a CustomResourceDefinition cannot define a kind. Source: apiextensions-apiserver's
/// `validation.go`: a group "should be a domain with at least one dot".
fn is_built_in(group: &str) -> bool {
    !group.contains('.')
}

fn group_version(path: &str) -> Option<(String, String)> {
    let path = ApiPath::parse(path)?;
    let (group, version) = path.api_version.split_once('/')?;
    Some((group.to_owned(), version.to_owned()))
}

/// Returns what the result of a dry run means. A refusal is one that the apply would meet, too; what an apply need not meet, and
/// what is not about the object, leaves it untried.
pub fn answer(path: &str, result: Result<Reply, ApiError>, versions: &Versions) -> Answer {
    let error = match result {
        Ok(Reply { value: _, warnings }) => return Answer::Accepted { warnings },
        Err(error) => error,
    };
    if let Some(webhook) = admission::without_dry_run(&error.message) {
        return Answer::Unknown(format!("admission webhook {webhook} does not support dry runs"));
    }
    let admission = Admission::from_message(&error.message);
    if let Some(Admission::Unanswered { webhook, .. }) = &admission {
        return Answer::Unknown(format!("admission webhook {webhook} does not answer"));
    }
    match error.class {
        ErrorClass::NotFound if error.is_unknown_path() => unserved(path, versions),
        ErrorClass::AlreadyExists => Answer::Exists,
        ErrorClass::Conflict if error.conflicts().is_empty() => Answer::Exists,
        ErrorClass::Denied => match missing_permission(&error.message) {
            Some(missing) => Answer::Unknown(format!("the credentials may not {missing}")),
            None => refused(&error, admission.as_ref()),
        },
        ErrorClass::Conflict | ErrorClass::Quota | ErrorClass::Invalid | ErrorClass::NotFound => {
            refused(&error, admission.as_ref())
        }
        // An apply that does not fit the schema. Source: `structuredMergeManager.Apply` of apimachinery.
        ErrorClass::Unavailable if error.message.contains("failed to create typed patch object") => {
            refused(&error, admission.as_ref())
        }
        ErrorClass::Busy => Answer::Unknown("its namespace is being deleted".to_owned()),
        ErrorClass::Throttled => Answer::Unknown("the API server takes no more requests".to_owned()),
        ErrorClass::Unavailable
        | ErrorClass::LockUnsure
        | ErrorClass::Lost
        | ErrorClass::Untrusted
        | ErrorClass::Unauthenticated
        | ErrorClass::Unreadable
        | ErrorClass::TooLarge
        | ErrorClass::Other => Answer::Unknown(format!("the API server did not answer: {}", error.message)),
    }
}

/// Returns the permission that the credentials lack: `patch daskclusters`. Source: `forbiddenMessage` in apiserver's
/// `endpoints/handlers/responsewriters/errors.go`.
fn missing_permission(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("\" cannot ")?;
    let (verb, rest) = rest.split_once(" resource \"")?;
    let (resource, _) = rest.split_once('"')?;
    Some(format!("{verb} {resource}"))
}

fn refused(error: &ApiError, admission: Option<&Admission>) -> Answer {
    let by = match (error.class, admission) {
        (ErrorClass::Quota, _) => RefusedBy::Quota(quota_name(&error.message)),
        (_, Some(Admission::Policy { .. })) => RefusedBy::Policy,
        (_, Some(_)) => RefusedBy::Webhook,
        (_, None) => RefusedBy::Rules,
    };
    let help = admission.map(|admission| admission::remedy(admission, &[]));
    Answer::Refused(Refusal { message: error.message.clone(), causes: causes(error), by, help })
}

/// Returns the name in `exceeded quota: NAME, requested: …`.
fn quota_name(message: &str) -> String {
    let name = message.split_once("exceeded quota: ").and_then(|(_, rest)| rest.split(',').next());
    name.unwrap_or_default().trim().to_owned()
}

fn causes(error: &ApiError) -> Vec<(String, String)> {
    let cause = |cause: &Value| {
        let message = cause["message"].as_str().filter(|message| !message.is_empty())?;
        Some((cause["field"].as_str().unwrap_or_default().to_owned(), message.to_owned()))
    };
    error.causes().filter_map(cause).collect()
}

/// Returns the answer about a kind at a path that is not served: a refusal if the API server serves its group in other versions.
/// Otherwise something in the plan, such as an operator, may still define it.
fn unserved(path: &str, versions: &Versions) -> Answer {
    let Some((group, version)) = group_version(path) else {
        return Answer::Unknown("its kind is not served".to_owned());
    };
    let api_version = format!("{group}/{version}");
    match versions.get(&group).filter(|served| !served.is_empty() && !served.contains(&version)) {
        None => Answer::Unknown(format!("its kind in {api_version} is not served yet")),
        Some(served) => {
            let served: Vec<String> = served.iter().map(|version| format!("`{group}/{version}`")).collect();
            let message = format!("it does not serve `{api_version}`, only {}", served.join(", "));
            let causes = vec![("apiVersion".to_owned(), message.clone())];
            let help =
                Some("use a version that the cluster serves, with the fields of that version".to_owned());
            Answer::Refused(Refusal { message, causes, by: RefusedBy::Rules, help })
        }
    }
}

#[cfg(test)]
mod tests {
    use model::resource::Method;
    use serde_json::json;

    use super::*;

    fn answered(status: u16, message: &str, details: &Value) -> Answer {
        let request = Request {
            api: Api::Kubernetes,
            method: Method::Patch,
            path: "/apis/policy/v1beta1/namespaces/n/poddisruptionbudgets/x?dryRun=All".to_owned(),
            body: None,
        };
        let body = json!({ "kind": "Status", "message": message, "reason": "", "details": details });
        let answer = live::answer::Answer {
            status,
            media: live::shape::Media::Other,
            warnings: Vec::new(),
            body: body.to_string().into_bytes(),
        };
        let versions = BTreeMap::from([("policy".to_owned(), vec!["v1".to_owned()])]);
        let path = request.path.clone();
        let result = request.read(answer).map(|value| Reply { value, warnings: Vec::new() });
        super::answer(&path, result, &versions)
    }

    /// The messages are those of kube-apiserver 1.36.
    #[test]
    fn only_what_the_apply_would_meet_is_a_refusal() {
        let unknown = |reason: &str| Answer::Unknown(reason.to_owned());
        for (status, message, expected) in [
            (
                400,
                "admission webhook \"v.example.com\" does not support dry run",
                unknown("admission webhook v.example.com does not support dry runs"),
            ),
            (
                403,
                "pods \"x\" is forbidden: User \"u\" cannot patch resource \"pods\" in API group \"\" in the namespace \"n\"",
                unknown("the credentials may not patch pods"),
            ),
            (
                500,
                "Internal error occurred: failed calling webhook \"v.example.com\": failed to call webhook: Post \"https://h.n.svc:443/?timeout=10s\": EOF",
                unknown("admission webhook v.example.com does not answer"),
            ),
            (429, "too many requests", unknown("the API server takes no more requests")),
            (504, "timeout", unknown("the API server did not answer: timeout")),
            (409, "the object has been modified", Answer::Exists),
        ] {
            assert_eq!(answered(status, message, &Value::Null), expected, "{message}");
        }
    }

    #[test]
    fn refusals_say_who_refused_and_which_fields() {
        let by = |answer: Answer| match answer {
            Answer::Refused(refusal) => refusal,
            other => panic!("{other:?}"),
        };
        let quota = by(answered(
            403,
            "pods \"x\" is forbidden: exceeded quota: small, requested: pods=1",
            &Value::Null,
        ));
        assert_eq!(quota.by, RefusedBy::Quota("small".to_owned()));
        let webhook = by(answered(403, "admission webhook \"v\" denied the request: no", &Value::Null));
        assert_eq!(webhook.by, RefusedBy::Webhook);
        assert!(webhook.help.unwrap().contains("webhook v"));
        let policy = "x is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no";
        assert_eq!(by(answered(403, policy, &Value::Null)).by, RefusedBy::Policy);
        let details =
            json!({ "causes": [{ "field": "data", "message": "Forbidden: immutable" }, { "field": "x" }] });
        let rules = by(answered(422, "ConfigMap \"x\" is invalid", &details));
        assert_eq!(rules.causes, [("data".to_owned(), "Forbidden: immutable".to_owned())]);
        let version = by(answered(404, "the server could not find the requested resource", &Value::Null));
        assert_eq!(version.message, "it does not serve `policy/v1beta1`, only `policy/v1`");
    }
}
