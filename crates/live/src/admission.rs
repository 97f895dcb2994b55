//! Errors of an API server when an admission check stops a write: an admission webhook that refuses or does not answer, a policy.
//! Only this module parses these messages. Pure. Source: kube-apiserver 1.36,
//! `apiserver/pkg/admission/plugin/webhook/errors/statuserror.go`, `.../webhook/generic/webhook.go` and `.../policy/validating`.

use serde_json::Value;

use model::resource::{Gvk, ObjectId};

/// Kinds of admission checks that stop a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// A webhook refused the write.
    Refused {
        /// Its name in its configuration.
        webhook: String,
        /// The webhook's message.
        why: String,
    },
    /// A webhook could not be called.
    Unanswered {
        /// Its name in its configuration.
        webhook: String,
        /// The Service of the webhook, with its namespace.
        service: Option<(String, String)>,
        /// The error of the connection.
        why: String,
    },
    /// A ValidatingAdmissionPolicy refused the write.
    Policy {
        policy: String,
        /// The policy's message.
        why: String,
    },
}

impl Admission {
    /// Returns the admission check that a refusal's message names.
    pub fn from_message(message: &str) -> Option<Self> {
        if let Some(rest) = after(message, "failed calling webhook ") {
            let (webhook, rest) = quoted(rest, '"')?;
            let why = rest.trim_start_matches(": ").trim_start_matches("failed to call webhook: ");
            return Some(Self::Unanswered { webhook, service: service(rest), why: why.to_owned() });
        }
        if let Some(rest) = after(message, "admission webhook ") {
            let (webhook, rest) = quoted(rest, '"')?;
            let why = rest.trim_start().strip_prefix("denied the request")?;
            return Some(Self::Refused { webhook, why: why.trim_start_matches(": ").trim().to_owned() });
        }
        let rest = after(message, "ValidatingAdmissionPolicy ")?;
        let (policy, rest) = quoted(rest, '\'')?;
        let (_, why) = rest.split_once("denied request: ")?;
        Some(Self::Policy { policy, why: why.to_owned() })
    }

    /// Returns the webhook's name; `None` for a policy.
    pub fn webhook(&self) -> Option<&str> {
        match self {
            Self::Refused { webhook, .. } | Self::Unanswered { webhook, .. } => Some(webhook),
            Self::Policy { .. } => None,
        }
    }
}

/// Returns the webhook that refuses dry runs because it has side effects. Source: `NewDryRunUnsupportedErr` of the first source.
pub fn without_dry_run(message: &str) -> Option<String> {
    let (webhook, rest) = quoted(after(message, "admission webhook ")?, '"')?;
    rest.starts_with(" does not support dry run").then_some(webhook)
}

fn after<'a>(text: &'a str, words: &str) -> Option<&'a str> {
    text.split_once(words).map(|(_, rest)| rest)
}

fn quoted(text: &str, quote: char) -> Option<(String, &str)> {
    let (name, rest) = text.strip_prefix(quote)?.split_once(quote)?;
    Some((name.to_owned(), rest))
}

/// Returns the namespace and name of the Service in `https://NAME.NAMESPACE.svc:443/path`.
fn service(text: &str) -> Option<(String, String)> {
    let host = after(text, "https://")?.split(['/', ':', '"', '?']).next()?;
    let mut parts = host.split('.');
    let (name, namespace) = (parts.next()?, parts.next()?);
    (parts.next() == Some("svc")).then(|| (namespace.to_owned(), name.to_owned()))
}

/// Returns the kinds of webhook configurations.
pub fn configurations() -> [Gvk; 2] {
    ["Validating", "Mutating"].map(|sort| Gvk {
        group: "admissionregistration.k8s.io".into(),
        version: "v1".into(),
        kind: format!("{sort}WebhookConfiguration"),
        plural: format!("{}webhookconfigurations", sort.to_ascii_lowercase()),
    })
}

/// The configuration of a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookConfig {
    /// `ValidatingWebhookConfiguration NAME`.
    pub configuration: ObjectId,
    /// Its Service, with its namespace; `None` for one behind a URL.
    pub service: Option<(String, String)>,
}

/// Returns the live configurations that have a webhook with this name.
pub fn configured<'v>(
    webhook: &str,
    live: impl Iterator<Item = (&'v ObjectId, &'v Value)>,
) -> Vec<WebhookConfig> {
    let found = live.filter_map(|(configuration, live)| {
        let entry = live["webhooks"].as_array()?.iter().find(|entry| entry["name"] == webhook)?;
        let of = &entry["clientConfig"]["service"];
        let text = |field: &str| of[field].as_str().map(str::to_owned);
        let service = text("namespace").zip(text("name"));
        Some(WebhookConfig { configuration: configuration.clone(), service })
    });
    found.collect()
}

/// Returns the remedy, with the commands.
pub fn remedy(admission: &Admission, configured: &[WebhookConfig]) -> String {
    let resource = |found: &WebhookConfig| {
        format!("{} {}", found.configuration.gvk.kind.to_ascii_lowercase(), found.configuration.name)
    };
    let names: Vec<String> = configured.iter().map(|found| found.configuration.to_string()).collect();
    let by = if names.is_empty() { String::new() } else { format!(" of {}", names.join(", ")) };
    let look = match configured.first() {
        Some(found) => format!("`kubectl get {} -o yaml`", resource(found)),
        None => "`kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations`".to_owned(),
    };
    match admission {
        Admission::Refused { webhook, .. } => {
            format!(
                "webhook {webhook}{by} denied the request: change what it names, then apply again; {look} \
                 shows what the webhook matches"
            )
        }
        Admission::Unanswered { webhook, service, .. } => {
            let service = service.as_ref().or_else(|| configured.first()?.service.as_ref());
            let serves = match service {
                Some((namespace, name)) => format!(
                    "its Service {namespace}/{name} does not respond: `kubectl -n {namespace} get \
                     endpointslices -l kubernetes.io/service-name={name}` shows whether it has a pod"
                ),
                None => format!("{look} shows what should respond"),
            };
            let gone = match configured.first() {
                Some(found) => {
                    format!("; if it no longer exists: `kubectl delete {}`", resource(found))
                }
                None => String::new(),
            };
            format!("webhook {webhook}{by} could not be called. {serves}; then apply again{gone}")
        }
        Admission::Policy { policy, .. } => format!(
            "ValidatingAdmissionPolicy {policy} denied the request: change what it names, then apply again; \
             `kubectl get validatingadmissionpolicy {policy} -o yaml` shows the rule"
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn who_stands_in_the_way_is_read() {
        let unanswered = |webhook: &str, service: Option<(&str, &str)>, why: &str| Admission::Unanswered {
            webhook: webhook.into(),
            service: service.map(|(namespace, name)| (namespace.into(), name.into())),
            why: why.into(),
        };
        let refused =
            |webhook: &str, why: &str| Admission::Refused { webhook: webhook.into(), why: why.into() };
        let queue = Some(("kueue-system", "kueue-webhook-service"));
        for (message, expect) in [
            (
                r#"Internal error occurred: failed calling webhook "mclusterqueue.kb.io": failed to call webhook: Post "https://kueue-webhook-service.kueue-system.svc:443/mutate-kueue-x-k8s-io-v1beta1-clusterqueue?timeout=10s": no endpoints available for service "kueue-webhook-service""#,
                Some(unanswered(
                    "mclusterqueue.kb.io",
                    queue,
                    r#"Post "https://kueue-webhook-service.kueue-system.svc:443/mutate-kueue-x-k8s-io-v1beta1-clusterqueue?timeout=10s": no endpoints available for service "kueue-webhook-service""#,
                )),
            ),
            (
                r#"Internal error occurred: failed calling webhook "v.example.com": failed to call webhook: Post "https://hook.ops.svc:8443/?timeout=10s": dial tcp 10.96.14.2:8443: connect: connection refused"#,
                Some(unanswered(
                    "v.example.com",
                    Some(("ops", "hook")),
                    r#"Post "https://hook.ops.svc:8443/?timeout=10s": dial tcp 10.96.14.2:8443: connect: connection refused"#,
                )),
            ),
            (
                r#"Internal error occurred: failed calling webhook "v.example.com": failed to call webhook: Post "https://hooks.example.com/v": context deadline exceeded"#,
                Some(unanswered(
                    "v.example.com",
                    None,
                    r#"Post "https://hooks.example.com/v": context deadline exceeded"#,
                )),
            ),
            (
                r#"admission webhook "vclusterqueue.kb.io" denied the request: spec.resourceGroups: Invalid value"#,
                Some(refused("vclusterqueue.kb.io", "spec.resourceGroups: Invalid value")),
            ),
            (
                r#"admission webhook "v.example.com" denied the request without explanation"#,
                Some(refused("v.example.com", "without explanation")),
            ),
            (
                r#"deployments.apps "web" is forbidden: ValidatingAdmissionPolicy 'replicas' with binding 'all' denied request: at most 5"#,
                Some(Admission::Policy { policy: "replicas".into(), why: "at most 5".into() }),
            ),
            (r#"pods "x" is forbidden: exceeded quota: gpus"#, None),
            ("failed calling webhook without a name", None),
            ("", None),
        ] {
            assert_eq!(Admission::from_message(message), expect, "{message}");
        }
    }

    #[test]
    fn the_configuration_and_its_service_are_named() {
        let [validating, _] = configurations();
        let object = ObjectId { gvk: validating, namespace: None, name: "kueue".into() };
        let live = json!({"webhooks": [{"name": "other"}, {"name": "v.kb.io",
            "clientConfig": {"service": {"namespace": "kueue-system", "name": "hook"}}}]});
        let found = configured("v.kb.io", [(&object, &live)].into_iter());
        assert_eq!(configured("v", [(&object, &live)].into_iter()), Vec::new());
        let silent = Admission::Unanswered { webhook: "v.kb.io".into(), service: None, why: String::new() };
        let remedy = remedy(&silent, &found);
        for part in [
            "ValidatingWebhookConfiguration kueue",
            "kueue-system/hook",
            "kubectl -n kueue-system get endpointslices",
            "kubectl delete validatingwebhookconfiguration kueue",
        ] {
            assert!(remedy.contains(part), "{remedy}");
        }
    }
}
