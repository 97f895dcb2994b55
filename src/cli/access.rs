//! Diagnostics of failed reads: the cause in one line, the place in the stack file that the read comes from, and the command that
//! fixes the problem. Pure: an error in, a diagnostic out.

use crate::cli::rights::{grant, grant_on_account, role};
use apply::failure::denial_code;
use live::denial::DenialCause;
use live::prices::CONTRACT_PERMISSION;
use live::{ApiError, CREDENTIALS_REMEDY, ErrorClass, SOMETHING_ELSE};
use model::address::FieldPath;
use model::diag::{Code, Diagnostic};
use model::prices::cloud_billing::BillingAccount;
use model::resource::Target;
use model::source::Sources;

/// How detailed a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageDetail {
    /// The cause and the fix.
    Brief,
    /// Also the message of the underlying library.
    Full,
}

/// Returns the diagnostic of a request that could not be made or was refused while reading.
pub fn diagnose(error: &ApiError, target: &Target, sources: &Sources, detail: MessageDetail) -> Diagnostic {
    let (code, message, help) = if target.is_on_hosts() { on_host(error) } else { explain(error, target) };
    let place = match (target.gke.is_some(), code) {
        _ if target.is_on_hosts() => FieldPath::keys([target.hosts_section()]),
        (true, Code::Unreadable) if error.remedy().is_some() => FieldPath::keys(["cluster", "endpoint"]),
        (true, Code::NoProject | Code::ApiDisabled | Code::Denied | Code::Billing) => {
            FieldPath::keys(["gke", "project"])
        }
        (true, _) => FieldPath::keys(["gke"]),
        (false, _) if target.context.is_some() && message.contains("context") => {
            FieldPath::keys(["kubernetes", "context"])
        }
        (false, Code::Kubeconfig) => FieldPath::keys(["kubernetes", "kubeconfig"]),
        (false, _) => FieldPath::keys(["kubernetes"]),
    };
    let help = match (detail, error.detail()) {
        (MessageDetail::Full, Some(detail)) => format!("{help}\ndetail: {detail}"),
        (MessageDetail::Brief, Some(_)) => format!("{help}; -v shows more"),
        (MessageDetail::Full | MessageDetail::Brief, None) => help,
    };
    let there = sources.stands(&place);
    Diagnostic::error(code, message).at(sources.span(&place).filter(|_| there), "for this").help(help)
}

/// Returns the diagnostic of a refusal that is about a billing account; `None` for every other failure.
pub fn no_account(error: &ApiError, account: &BillingAccount) -> Option<Diagnostic> {
    let is_about_it = error.request.contains(BillingAccount::PREFIX)
        && DenialCause::from_error(error.body.as_ref(), &error.message).is_none();
    let what = match error.class {
        _ if !is_about_it => return None,
        ErrorClass::Denied => format!("permission {CONTRACT_PERMISSION} is missing on {account}"),
        ErrorClass::NotFound => {
            format!("{account} does not exist, or these credentials have no access to it")
        }
        _ => return None,
    };
    let help = format!("an administrator of the account grants it: {}", grant_on_account(account));
    Some(Diagnostic::error(Code::Denied, what).help(help))
}

/// Returns code, message and help for an error of the agent on a host.
fn on_host(error: &ApiError) -> (Code, String, String) {
    // The agent is ours: what it says in an answer counts, too.
    let remedy = error.body.as_ref().and_then(|body| body["remedy"].as_str());
    match (error.status, remedy) {
        (_, Some(remedy)) => (Code::HostAgent, error.message.clone(), remedy.to_owned()),
        (None, None) => {
            let help = "try again; what runs on the host is not affected";
            (Code::HostAgent, error.message.clone(), help.to_owned())
        }
        (Some(_), _) => {
            let help = "fix the cause, which may be a full disk or a folder without permission: \
                        ~/.local/state/dask-infra";
            (Code::HostAgent, error.to_string(), help.to_owned())
        }
    }
}

/// Returns the code, the cause and the fix.
fn explain(error: &ApiError, target: &Target) -> (Code, String, String) {
    let text = error.message.as_str();
    let plain = |code, help: &str| (code, error.to_string(), help.to_owned());
    match error.class {
        ErrorClass::Unauthenticated if target.gke.is_none() => kubeconfig(error),
        ErrorClass::Unauthenticated if error.status.is_none() => {
            (Code::Credentials, text.to_owned(), error.remedy().unwrap_or(CREDENTIALS_REMEDY).to_owned())
        }
        ErrorClass::Unauthenticated => (
            Code::Credentials,
            format!("the credentials were refused: {error}"),
            CREDENTIALS_REMEDY.to_owned(),
        ),
        ErrorClass::Untrusted => {
            let what = format!("{} has an untrusted certificate: {}", api_name(error, target), error.message);
            (Code::Interception, what, error.remedy().unwrap_or_default().to_owned())
        }
        ErrorClass::Denied => denied(error, target),
        ErrorClass::NotFound => match &target.gke {
            Some(name) => no_project(&name.project, error),
            None => plain(Code::Unreadable, "check that the server of the kubeconfig is a Kubernetes API"),
        },
        ErrorClass::Unavailable if error.proxy().is_some() => {
            let what = format!("{} cannot be reached: {}", api_name(error, target), error.message);
            (Code::Interception, what, error.remedy().unwrap_or_default().to_owned())
        }
        ErrorClass::Unavailable if error.remedy().is_some() => {
            (Code::NoAnswer, text.to_owned(), error.remedy().unwrap_or_default().to_owned())
        }
        ErrorClass::Unavailable | ErrorClass::Lost if error.status.is_none() => unreachable(error, target),
        ErrorClass::Unavailable
        | ErrorClass::LockUnsure
        | ErrorClass::Lost
        | ErrorClass::Busy
        | ErrorClass::Throttled
        | ErrorClass::Quota => plain(Code::NoAnswer, "the stack is not the cause: try again in a minute"),
        ErrorClass::Unreadable => plain(Code::Unreadable, SOMETHING_ELSE),
        ErrorClass::TooLarge => plain(
            Code::Unreadable,
            "delete what is not needed from the namespace, or ask the cluster's administrator",
        ),
        ErrorClass::AlreadyExists | ErrorClass::Conflict | ErrorClass::Invalid | ErrorClass::Other => {
            match error.remedy() {
                Some(remedy) => (Code::Unreadable, text.to_owned(), remedy.to_owned()),
                None => plain(
                    Code::Unreadable,
                    "a plan needs the live state; `--offline` plans without it, as a first apply",
                ),
            }
        }
    }
}

fn kubeconfig(error: &ApiError) -> (Code, String, String) {
    if error.status.is_none() {
        let help = "name the file and the context in [kubernetes]; `kubectl config get-contexts` lists them";
        return (Code::Kubeconfig, error.message.clone(), help.to_owned());
    }
    let what = format!("the cluster rejected the kubeconfig's credentials: {error}");
    (Code::Credentials, what, "log in as for kubectl, then try `kubectl get namespaces`".to_owned())
}

fn no_project(project: &str, error: &ApiError) -> (Code, String, String) {
    let what = format!(
        "project {project} does not exist, or these credentials have no access to it ({})",
        error.message
    );
    (
        Code::NoProject,
        what,
        "use the project's ID, not its name: `gcloud projects list` lists the projects you have access to"
            .to_owned(),
    )
}

fn denied(error: &ApiError, target: &Target) -> (Code, String, String) {
    let Some(name) = &target.gke else { return kubernetes_denial(error) };
    if error.request.contains(" /api") {
        return kubernetes_denial(error);
    }
    let project = &name.project;
    if let Some(cause) = DenialCause::from_error(error.body.as_ref(), &error.message) {
        return (denial_code(&cause), cause.what(project), cause.remedy(project));
    }
    match permission(&error.message) {
        Some(permission) => {
            let what = format!("permission {permission} is missing on project {project}");
            let help = match role(permission) {
                Some(role) => format!("an administrator grants it: {}", grant(project, role)),
                None => "ask an administrator of the project for it".to_owned(),
            };
            (Code::Denied, what, help)
        }
        None => (Code::Denied, error.to_string(), "ask an administrator of the project".to_owned()),
    }
}

/// Returns code, message and help for a denial by Kubernetes: its own words name user, verb and resource.
fn kubernetes_denial(error: &ApiError) -> (Code, String, String) {
    let help = "an administrator of the cluster grants it: on GKE with the role roles/container.developer or the one that \
                `dask-infra permissions` names, else with a ClusterRoleBinding; `kubectl auth can-i --list` shows \
                what you may do";
    (Code::Denied, format!("the cluster denied read access: {}", error.message), help.to_owned())
}

/// Returns the name of the API that was asked.
fn api_name(error: &ApiError, target: &Target) -> &'static str {
    match (&target.gke, error.request.contains(" /api")) {
        (Some(_), false) => "Google's API",
        (Some(_), true) => "the cluster's Kubernetes API",
        (None, _) => "the cluster of the kubeconfig",
    }
}

fn unreachable(error: &ApiError, target: &Target) -> (Code, String, String) {
    let words = error.message.to_ascii_lowercase();
    let who = api_name(error, target);
    // A connection that is closed early is reported as a TLS error, too.
    if ["close_notify", "handshake eof", "unexpected eof"].iter().any(|word| words.contains(word)) {
        let what = format!("the connection to {who} was closed: {}", error.message);
        let help =
            "try again; if this persists, a proxy or load balancer in between is cutting the connection";
        return (Code::NoAnswer, what, help.to_owned());
    }
    let trust = ["certificate", "unknownissuer", "tls", "handshake"].iter().any(|word| words.contains(word));
    if trust {
        let what = format!("{who} has an untrusted certificate: {}", error.message);
        let help = "for a proxy that intercepts TLS, add its certificate to the system's store \
             (SSL_CERT_FILE); for a cluster, its certificate authority to the kubeconfig";
        return (Code::Interception, what, help.to_owned());
    }
    if words.contains("proxy") || words.contains("tunnel") {
        let what = format!("the proxy refused the connection to {who}: {}", error.message);
        return (Code::Interception, what, "check HTTPS_PROXY and NO_PROXY".to_owned());
    }
    let help = match &target.gke {
        Some(_) if error.request.contains(" /api") => {
            "check the network. A control plane without a public address is reached from the cluster's network, through a \
             proxy there (HTTPS_PROXY), or by its DNS endpoint (`endpoint = \"dns\"` in [cluster])"
        }
        Some(_) => {
            "check the network; behind a proxy, set HTTPS_PROXY; DASK_INFRA_GKE_ENDPOINT, if set, must be a \
             sandbox that is being served. `--offline` plans without reading live state"
        }
        None => {
            "check the network and `server` in the kubeconfig: `kubectl version` uses the same. `--offline` \
             plans without reading live state"
        }
    };
    (Code::NoAnswer, format!("{who} cannot be reached: {}", error.message), help.to_owned())
}

/// `container.clusters.get` of `Required "container.clusters.get" permission(s) for …`.
fn permission(message: &str) -> Option<&str> {
    message
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '.'))
        .map(|word| word.trim_end_matches('.'))
        .find(|word| {
            word.split('.').count() == 3
                && !word.ends_with(".com")
                && word.starts_with(|c: char| c.is_ascii_lowercase())
        })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use live::answer::Answer;
    use live::shape::Media;
    use live::{Request, Trust};
    use model::resource::Api;
    use model::resource::ClusterName;

    fn gke() -> Target {
        let name = ClusterName { project: "p-1".into(), location: "l".into(), cluster: "c".into() };
        Target { gke: Some(name), ..Target::default() }
    }

    fn kube() -> Target {
        Target { context: Some("lab".into()), ..Target::default() }
    }

    fn error(
        class: ErrorClass,
        status: Option<u16>,
        request: &str,
        message: &str,
        body: Option<Value>,
    ) -> ApiError {
        ApiError { class, status, request: request.to_owned(), message: message.to_owned(), body }
    }

    const CLUSTER: &str = "GET /v1/projects/p-1/locations/l/clusters/c";
    const PODS: &str = "GET /api/v1/namespaces/n/pods";

    #[test]
    fn each_refusal_says_its_cause_and_its_cure() {
        let reason = |reason: &str| {
            Some(
                json!({ "error": { "details": [{ "reason": reason, "metadata": { "service": "container.googleapis.com" } }] } }),
            )
        };
        let none = || None::<Value>;
        let trust = |trust: Trust| Some(json!({ "remedy": trust.remedy() }));
        let rows = [
            (
                gke(),
                error(
                    ErrorClass::Unavailable,
                    None,
                    CLUSTER,
                    "error decoding response body: peer closed connection without sending TLS close_notify: \
                     https://x",
                    none(),
                ),
                "DI0604",
                "the connection to Google's API was closed",
                "is cutting the connection",
            ),
            (
                gke(),
                error(
                    ErrorClass::Unavailable,
                    None,
                    PODS,
                    "client error (Connect): tls handshake eof",
                    none(),
                ),
                "DI0604",
                "the connection to the cluster's Kubernetes API was closed",
                "try again",
            ),
            (
                gke(),
                error(
                    ErrorClass::Untrusted,
                    None,
                    PODS,
                    "invalid peer certificate: UnknownIssuer, tls handshake failed",
                    trust(Trust::Cluster),
                ),
                "DI0608",
                "has an untrusted certificate",
                "SSL_CERT_FILE",
            ),
            (
                gke(),
                error(ErrorClass::Unauthenticated, None, CLUSTER, "no Google credentials were found", none()),
                "DI0601",
                "no Google credentials were found",
                "gcloud auth application-default login",
            ),
            (
                gke(),
                error(ErrorClass::Unauthenticated, Some(401), CLUSTER, "invalid authentication", none()),
                "DI0601",
                "the credentials were refused",
                "application-default login",
            ),
            (
                gke(),
                error(
                    ErrorClass::Denied,
                    Some(403),
                    CLUSTER,
                    "Required \"container.clusters.get\" permission(s) for \"projects/p-1\".",
                    none(),
                ),
                "DI0602",
                "permission container.clusters.get is missing on project p-1",
                "roles/container.clusterViewer",
            ),
            (
                gke(),
                error(
                    ErrorClass::Denied,
                    Some(403),
                    CLUSTER,
                    "Permission 'container.clusters.create' denied on resource '//x'.",
                    none(),
                ),
                "DI0602",
                "container.clusters.create",
                "roles/container.clusterAdmin",
            ),
            (
                gke(),
                error(
                    ErrorClass::Denied,
                    Some(403),
                    CLUSTER,
                    "Kubernetes Engine API has not been used in project p-1 before or it is disabled.",
                    reason("SERVICE_DISABLED"),
                ),
                "DI0605",
                "container.googleapis.com is not enabled in project p-1",
                "gcloud services enable container.googleapis.com --project p-1",
            ),
            (
                gke(),
                error(
                    ErrorClass::Denied,
                    Some(403),
                    CLUSTER,
                    "Permission denied on resource project p-1.",
                    reason("CONSUMER_INVALID"),
                ),
                "DI0606",
                "project p-1 does not exist",
                "gcloud projects list",
            ),
            (
                gke(),
                error(ErrorClass::NotFound, Some(404), CLUSTER, "Resource not found.", none()),
                "DI0606",
                "project p-1 does not exist",
                "ID, not its name",
            ),
            (
                gke(),
                error(
                    ErrorClass::Denied,
                    Some(403),
                    PODS,
                    "pods is forbidden: User \"u\" cannot list resource \"pods\"",
                    none(),
                ),
                "DI0602",
                "cannot list resource",
                "roles/container.developer",
            ),
            (
                gke(),
                error(ErrorClass::Unavailable, None, CLUSTER, "dns error", none()),
                "DI0604",
                "Google's API cannot be reached",
                "HTTPS_PROXY",
            ),
            (
                gke(),
                error(
                    ErrorClass::Untrusted,
                    None,
                    CLUSTER,
                    "invalid peer certificate: UnknownIssuer",
                    trust(Trust::Public),
                ),
                "DI0608",
                "has an untrusted certificate",
                "SSL_CERT_FILE",
            ),
            (
                gke(),
                error(
                    ErrorClass::Unavailable,
                    None,
                    CLUSTER,
                    "tunnel error: proxy authorization required",
                    none(),
                ),
                "DI0608",
                "the proxy refused the connection",
                "HTTPS_PROXY",
            ),
            (
                gke(),
                error(ErrorClass::Unavailable, Some(503), CLUSTER, "unavailable", none()),
                "DI0604",
                "answered 503",
                "try again",
            ),
            (
                kube(),
                error(ErrorClass::Unauthenticated, None, PODS, "cannot use k: no context lab", none()),
                "DI0607",
                "cannot use k",
                "get-contexts",
            ),
            (
                kube(),
                error(ErrorClass::Unauthenticated, Some(401), PODS, "Unauthorized", none()),
                "DI0601",
                "rejected the kubeconfig's credentials",
                "kubectl",
            ),
            (
                kube(),
                error(ErrorClass::Unavailable, None, PODS, "connection refused", none()),
                "DI0604",
                "the cluster of the kubeconfig cannot be reached",
                "kubectl version",
            ),
        ];
        for (target, error, code, message, help) in rows {
            let found = diagnose(&error, &target, &Sources::default(), MessageDetail::Brief);
            assert_eq!(found.code.as_str(), code, "{found:?}");
            assert!(found.message.contains(message), "{found:?}");
            assert!(found.help.as_deref().unwrap().contains(help), "{found:?}");
        }
    }

    /// Answers as Google gives them.
    #[test]
    fn each_refusal_of_google_is_told_apart() {
        let rows: Vec<Value> =
            serde_json::from_str(include_str!("../../tests/data/google-refusals.json")).unwrap();
        for row in rows {
            let status = u16::try_from(row["status"].as_u64().unwrap()).unwrap();
            let body = json!({ "error": row["error"] }).to_string().into_bytes();
            let request = Request::get(Api::Gke, "/v1/projects/p-1/locations/l/clusters/c");
            let error =
                request.read(Answer { status, media: Media::Other, warnings: Vec::new(), body }).unwrap_err();
            let found = diagnose(&error, &gke(), &Sources::default(), MessageDetail::Brief);
            let text = |key: &str| row[key].as_str().unwrap();
            let help = found.help.as_deref().unwrap_or_default();
            assert_eq!(format!("{:?}", error.class), text("class"), "{}", text("why"));
            assert_eq!(found.code.as_str(), text("code"), "{}", text("why"));
            assert!(found.message.contains(text("message")), "{}: {found:?}", text("why"));
            assert!(help.contains(text("help")), "{}: {found:?}", text("why"));
        }
    }

    #[test]
    fn what_a_library_said_is_told_on_demand() {
        let body = Some(json!({ "detail": "a long story" }));
        let error =
            error(ErrorClass::Unauthenticated, None, CLUSTER, "no Google credentials were found", body);
        let help = |words| diagnose(&error, &gke(), &Sources::default(), words).help.unwrap();
        assert!(help(MessageDetail::Full).contains("a long story"));
        assert!(
            !help(MessageDetail::Brief).contains("a long story") && help(MessageDetail::Brief).contains("-v")
        );
    }

    #[test]
    fn permissions_are_found_in_the_words_of_refusals() {
        for (message, expect) in [
            ("Required 'compute.zones.get' permission for 'projects/p'", Some("compute.zones.get")),
            ("See https://cloud.google.com/iam for help.", None),
            ("forbidden", None),
        ] {
            assert_eq!(permission(message), expect, "{message}");
        }
    }
}
