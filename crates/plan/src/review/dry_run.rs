//! Dry runs: creates and updates of Kubernetes objects that the API server judges before the first write. Pure: a plan in,
//! requests out; answers in, findings out.
//!
//! Each object is tried alone, on the cluster as it is. So an object is left out if something that decides about it comes with the
//! same plan, and a refusal is no finding if the plan changes its cause.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Action, Change, Mode, Plan};
use kinds::dask::check;
use model::address::{Address, FieldPath, Segment};
use model::diag::{Code, Diagnostic};
use model::resource::{
    Api, ByIdentity, Call, Deferred, Identity, JsonText, Method, ObjectId, Resource, Step, Until,
    by_identity, encoded,
};
use model::secrets::env_values::EnvValues;

/// The result of the dry runs of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DryRun {
    /// The number of objects that the API server judged.
    pub tried: usize,
    /// The objects that it did not judge, by the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub untried: Vec<Untried>,
}

/// Objects that the API server did not judge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Untried {
    pub reason: String,
    pub objects: Vec<Address>,
}

/// One dry run.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// The index of its change.
    change: usize,
    namespace: Option<String>,
    pub method: Method,
    /// The path with its query.
    pub path: String,
    pub body: Value,
    /// True if an object of the same name is there and is deleted first.
    replaces: bool,
}

/// An answer to a dry run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Accepted {
        /// The warnings of the API server.
        warnings: Vec<String>,
    },
    /// An object of this name exists. It is the last thing that the API server looks at.
    Exists,
    Refused(Refusal),
    /// The API server did not judge it, and why.
    Unknown(String),
}

/// A refusal of the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub message: String,
    /// The fields that it names, each with what is wrong.
    pub causes: Vec<(String, String)>,
    pub by: RefusedBy,
    pub help: Option<String>,
}

impl Refusal {
    /// Returns true if an object decides about objects of a namespace and may be the cause. Rules of a kind do not depend on
    /// others.
    fn is_decided_by(&self, object: &ObjectId, namespace: Option<&str>) -> bool {
        let beside = namespace.is_some() && object.namespace.as_deref() == namespace;
        match (object.gvk.kind.as_str(), &self.by) {
            (kind, RefusedBy::Quota(quota)) => kind == "ResourceQuota" && object.name == *quota && beside,
            // Its labels select policies, webhooks and the level of pod security.
            ("Namespace", _) => self.is_by_admission() && namespace == Some(&object.name),
            ("LimitRange", RefusedBy::Rules) => self.is_by_admission() && beside,
            (kind, RefusedBy::Policy) => kind.starts_with("ValidatingAdmissionPolicy"),
            (kind, RefusedBy::Webhook) => is_webhook_configuration(kind),
            (_, RefusedBy::Rules) => false,
        }
    }

    /// Returns true if admission refused. Source: `NewForbidden` of apimachinery; the validation of a kind says `is invalid`.
    fn is_by_admission(&self) -> bool {
        self.by != RefusedBy::Rules || self.message.contains(" is forbidden: ")
    }
}

/// The part of the API server that refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefusedBy {
    /// A ResourceQuota, by its name.
    Quota(String),
    /// A ValidatingAdmissionPolicy.
    Policy,
    /// An admission webhook.
    Webhook,
    /// The rules of the kind, or another admission check.
    Rules,
}

/// The dry runs of a plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DryRuns {
    trials: Vec<Trial>,
    /// Changes that cannot be tried, each with the reason.
    untried: Vec<(usize, String)>,
}

impl DryRuns {
    /// Returns the dry runs of a plan; `None` if it creates and updates no Kubernetes object, or has no API server. Without values
    /// from the environment, objects that need them are not tried.
    pub fn of(plan: &Plan, env_values: Option<&EnvValues>) -> Option<Self> {
        if plan.offline || plan.mode != Mode::Apply || plan.target.is_on_hosts() {
            return None;
        }
        let desired = by_identity(&plan.desired);
        let arrivals = Arrivals::of(plan, &desired);
        let manager = format!("fieldManager={}&", encoded(&plan.owner.field_manager()));
        let mut found = Self::default();
        for (index, change) in plan.changes.iter().enumerate() {
            let Some(object) = written_object(change, &desired) else { continue };
            let Some(write) = Write::of(change, &object, &manager) else { continue };
            let trial = match arrivals.reason(&object) {
                Some(reason) => Err(reason),
                None => write.trial(index, object, env_values),
            };
            match trial {
                Ok(trial) => found.trials.push(trial),
                Err(reason) => found.untried.push((index, reason)),
            }
        }
        (!found.trials.is_empty() || !found.untried.is_empty()).then_some(found)
    }

    /// Returns the dry runs, in the order of the plan.
    pub fn trials(&self) -> &[Trial] {
        &self.trials
    }

    /// Returns what the answers mean: one for each trial, in their order. Errors come before warnings.
    pub fn review(self, plan: &Plan, answers: Vec<Answer>) -> (DryRun, Vec<Diagnostic>) {
        let Self { trials, mut untried } = self;
        let mut review = Review { plan, desired: by_identity(&plan.desired), findings: Vec::new() };
        let mut warned = Warnings::default();
        let mut tried = 0;
        for (trial, answer) in trials.iter().zip(answers) {
            match review.judge(trial, answer) {
                Verdict::Tried(warnings) => {
                    tried += 1;
                    warned.add(trial.change, warnings);
                }
                Verdict::Untried(reason) => untried.push((trial.change, reason)),
            }
        }
        let mut findings = review.findings;
        findings.extend(warned.findings(plan));
        (DryRun { tried, untried: grouped(plan, untried) }, findings)
    }
}

fn is_written(change: &Change) -> bool {
    matches!(change.action, Action::Create | Action::Update | Action::Replace)
}

/// Returns the object that a change creates or updates: of a check that runs, its pod.
fn written_object(change: &Change, desired: &ByIdentity<'_>) -> Option<ObjectId> {
    match &change.identity {
        Identity::Object(object) => Some(object.clone()).filter(|_| is_written(change)),
        Identity::Check(_) if change.action == Action::Run => {
            desired.get(&change.identity).map(|check| check::pod(&check.body))
        }
        Identity::Check(_) | Identity::Cluster(_) | Identity::NodePool { .. } => None,
    }
}

/// Groups what is untried by reason: the most frequent first, then in the order of the plan.
fn grouped(plan: &Plan, mut untried: Vec<(usize, String)>) -> Vec<Untried> {
    untried.sort_by_key(|(change, _)| *change);
    let mut groups: Vec<Untried> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for (change, reason) in untried {
        let place = *places.entry(reason.clone()).or_insert_with(|| {
            groups.push(Untried { reason, objects: Vec::new() });
            groups.len() - 1
        });
        groups[place].objects.push(plan.changes[change].address.clone());
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.objects.len()));
    groups
}

/// Resources that come with a plan and decide about others.
#[derive(Default)]
struct Arrivals<'p> {
    cluster: Option<&'p str>,
    namespaces: HashSet<&'p str>,
    /// Definitions by their names: `PLURAL.GROUP`.
    definitions: HashSet<&'p str>,
    /// Configurations of admission webhooks, with their names.
    webhooks: Vec<(&'p str, &'p Value)>,
}

impl<'p> Arrivals<'p> {
    fn of(plan: &'p Plan, desired: &ByIdentity<'p>) -> Self {
        let mut found = Self::default();
        for change in plan.changes.iter().filter(|change| is_written(change)) {
            match &change.identity {
                Identity::Cluster(name) if change.action.creates() => found.cluster = Some(&name.cluster),
                Identity::Object(object) => found.add(object, change, desired),
                Identity::Cluster(_) | Identity::NodePool { .. } | Identity::Check(_) => {}
            }
        }
        found
    }

    fn add(&mut self, object: &'p ObjectId, change: &Change, desired: &ByIdentity<'p>) {
        match object.gvk.kind.as_str() {
            "Namespace" if object.gvk.group.is_empty() && change.action.creates() => {
                self.namespaces.insert(&object.name);
            }
            // Also a change of it may bring the fields that its objects use.
            "CustomResourceDefinition" => {
                self.definitions.insert(&object.name);
            }
            kind if is_webhook_configuration(kind) => {
                let body = desired.get(&change.identity).map(|resource| &resource.body["webhooks"]);
                self.webhooks.extend(body.map(|body| (object.name.as_str(), body)));
            }
            _ => {}
        }
    }

    /// Returns why an object cannot be tried yet.
    fn reason(&self, object: &ObjectId) -> Option<String> {
        if let Some(cluster) = self.cluster {
            return Some(format!("the plan creates GKE cluster {cluster}"));
        }
        if let Some(namespace) = object.namespace.as_deref().filter(|name| self.namespaces.contains(name)) {
            return Some(format!("the plan creates namespace {namespace}"));
        }
        let definition = format!("{}.{}", object.gvk.plural, object.gvk.group);
        if self.definitions.contains(definition.as_str()) {
            return Some(format!("the plan creates or changes the definition {definition}"));
        }
        let webhook = self.webhooks.iter().find(|(_, webhooks)| is_matched(webhooks, object));
        webhook.map(|(name, _)| format!("the plan creates or changes the admission webhooks of {name}"))
    }
}

fn is_webhook_configuration(kind: &str) -> bool {
    matches!(kind, "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration")
}

/// Returns true if one of these webhooks may be called for writes of an object. Selectors are not looked at.
fn is_matched(webhooks: &Value, object: &ObjectId) -> bool {
    let each = |value: &'_ Value| value.as_array().cloned().unwrap_or_default();
    let names = |rule: &Value, field: &str, wanted: &[&str]| {
        each(&rule[field]).iter().filter_map(Value::as_str).any(|name| wanted.contains(&name))
    };
    let plural = object.gvk.plural.as_str();
    let every = format!("{plural}/*");
    each(webhooks).iter().flat_map(|webhook| each(&webhook["rules"])).any(|rule| {
        names(&rule, "apiGroups", &["*", &object.gvk.group])
            && names(&rule, "resources", &["*", "*/*", plural, &every])
            && names(&rule, "operations", &["*", "CREATE", "UPDATE"])
    })
}

/// The write of a change that creates or updates its object with all its fields.
struct Write<'p> {
    call: &'p Call,
    /// True if the object of this name is deleted first.
    replaces: bool,
    /// True if another request for the object comes first.
    follows: bool,
}

impl<'p> Write<'p> {
    fn of(change: &'p Change, object: &ObjectId, manager: &str) -> Option<Self> {
        let own = format!("{}?", object.path());
        let (mut replaces, mut follows) = (false, false);
        for step in &change.steps {
            match step {
                Step::Await(wait) => {
                    replaces |= wait.until == Until::Gone && wait.identity == change.identity;
                }
                Step::Call(call) if call.api == Api::Kubernetes && call.path.starts_with(&own) => {
                    if call.method == Method::Patch && call.path.contains(manager) {
                        return Some(Self { call, replaces, follows });
                    }
                    follows = true;
                }
                Step::Call(_) | Step::ReadLog { .. } | Step::RecordCompletion { .. } => {}
            }
        }
        None
    }

    /// Returns the dry run. For an object whose predecessor is still there it is a create: the API server looks last whether the
    /// name is taken.
    fn trial(
        &self,
        change: usize,
        object: ObjectId,
        env_values: Option<&EnvValues>,
    ) -> Result<Trial, String> {
        let Self { call, replaces, follows } = *self;
        let forced = call.path.contains("&force=true");
        if follows && !forced {
            return Err("another request for the same object comes first".to_owned());
        }
        let mut body = filled(call, env_values)?;
        let ObjectId { gvk, namespace, name: _ } = object;
        if !replaces {
            let path = format!("{}&dryRun=All", call.path);
            return Ok(Trial { change, namespace, method: Method::Patch, path, body, replaces });
        }
        if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|field, _| !matches!(field.as_str(), "resourceVersion" | "uid"));
        }
        let query = call.path.split_once('?').map_or("", |(_, query)| query).replace("&force=true", "");
        let path = format!("{}?{query}&dryRun=All", gvk.collection(namespace.as_deref()));
        Ok(Trial { change, namespace, method: Method::Post, path, body, replaces })
    }
}

/// Returns the body of a call, with values from the environment.
fn filled(call: &Call, env_values: Option<&EnvValues>) -> Result<Value, String> {
    let mut body = call.body.as_ref().map(JsonText::value).unwrap_or_default();
    for (place, deferred) in &call.deferred {
        let Deferred::Environment { variable, .. } = deferred else { continue };
        let env_values = env_values.ok_or("only an apply sends values from the environment")?;
        let missing = || format!("the environment variable {variable} is not set");
        place.put(&mut body, env_values.encoded(variable).ok_or_else(missing)?);
    }
    Ok(body)
}

/// Warnings of the API server, each with the changes that it is about.
#[derive(Default)]
struct Warnings(BTreeMap<String, Vec<usize>>);

impl Warnings {
    fn add(&mut self, change: usize, texts: Vec<String>) {
        for text in texts {
            let changes = self.0.entry(text).or_default();
            if changes.last() != Some(&change) {
                changes.push(change);
            }
        }
    }

    fn findings(self, plan: &Plan) -> Vec<Diagnostic> {
        let desired = by_identity(&plan.desired);
        let finding = |(text, changes): (String, Vec<usize>)| {
            let first = &plan.changes[*changes.first()?];
            let more = match changes.len() - 1 {
                0 => String::new(),
                1 => " and 1 more object".to_owned(),
                more => format!(" and {more} more objects"),
            };
            let what = format!("the API server warns about {}{more}: {text}", first.identity);
            let origin =
                desired.get(&first.identity).map_or_else(|| first.origin.clone(), |one| one.origin.clone());
            let warning = Diagnostic::warning(Code::ServerWarning, what).at_value(origin, "requested here");
            Some(warning.about(first.address.clone(), ""))
        };
        self.0.into_iter().filter_map(finding).collect()
    }
}

enum Verdict {
    Tried(Vec<String>),
    Untried(String),
}

struct Review<'p> {
    plan: &'p Plan,
    desired: ByIdentity<'p>,
    findings: Vec<Diagnostic>,
}

impl Review<'_> {
    fn judge(&mut self, trial: &Trial, answer: Answer) -> Verdict {
        let change = &self.plan.changes[trial.change];
        match answer {
            Answer::Accepted { warnings } => Verdict::Tried(warnings),
            // A check goes on with the pod that an interrupted apply left.
            Answer::Exists if trial.replaces || change.action == Action::Run => Verdict::Tried(Vec::new()),
            Answer::Exists => Verdict::Untried("it has changed since it was read".to_owned()),
            Answer::Unknown(reason) => Verdict::Untried(reason),
            Answer::Refused(refusal) => match self.excuse(change, trial, &refusal) {
                Some(reason) => Verdict::Untried(reason),
                None => {
                    let found = self.refused(change, &refusal);
                    self.findings.extend(found);
                    Verdict::Tried(Vec::new())
                }
            },
        }
    }

    /// Returns why a refusal may not hold when the plan is applied: the plan changes its cause.
    fn excuse(&self, change: &Change, trial: &Trial, refusal: &Refusal) -> Option<String> {
        let namespace = trial.namespace.as_deref();
        let mut others = self.plan.changes.iter().filter(|other| other.action != Action::Keep);
        let decides = |object: &ObjectId| refusal.is_decided_by(object, namespace);
        if let Some(other) = others.clone().find(|other| other.identity.object().is_some_and(decides)) {
            return Some(format!("the plan changes {}, which refuses it now", other.identity));
        }
        let message = about(&refusal.message);
        if ["not found", "was found", "not exist", "n't exist"].iter().any(|words| message.contains(words)) {
            let named: HashSet<&str> = words(message).collect();
            let comes = |other: &&Change| {
                let object = other.identity.object().filter(|_| other.action.creates());
                object.is_some_and(|object| named.contains(object.name.as_str()))
                    && other.identity != change.identity
            };
            if let Some(other) = others.clone().find(comes) {
                return Some(format!("it needs {}, which the plan creates", other.identity));
            }
        }
        let held = message.contains("already");
        let frees = |other: &Change| {
            let goes = matches!(other.action, Action::Delete | Action::Replace);
            let object = other.identity.object().filter(|_| goes);
            object.is_some_and(|object| held || object.namespace.as_deref() == namespace)
        };
        let is_full = held || matches!(refusal.by, RefusedBy::Quota(_));
        let is_freed = is_full && (trial.replaces || others.any(frees));
        is_freed.then(|| "what the plan deletes makes room for it".to_owned())
    }

    fn refused(&self, change: &Change, refusal: &Refusal) -> Vec<Diagnostic> {
        let resource = self.desired.get(&change.identity).copied();
        let finding = |path: &FieldPath, what: &str| {
            let what = format!("the API server refuses {}: {what}", change.identity);
            let error = Diagnostic::error(Code::DryRunRefused, what)
                .at_value(origin(change, resource, path), "from here")
                .about(change.address.clone(), "");
            match &refusal.help {
                Some(help) => error.help(help),
                None => error,
            }
        };
        if refusal.causes.is_empty() {
            let path = named_field(&refusal.message);
            return vec![finding(&path, about(&refusal.message))];
        }
        let causes = refusal.causes.iter();
        causes.map(|(field, what)| finding(&field_path(field), &cause_text(field, what))).collect()
    }
}

fn cause_text(field: &str, what: &str) -> String {
    match field {
        "" | "<nil>" => what.to_owned(),
        field => format!("{field}: {what}"),
    }
}

/// Returns the path in the stack file of a field that the API server names, or of its nearest parent.
fn origin(change: &Change, resource: Option<&Resource>, path: &FieldPath) -> FieldPath {
    resource.map_or_else(|| change.origin.clone(), |resource| resource.origin_of(path))
}

/// Returns a message without its beginning, which names the object: `pods "x" is forbidden: `.
fn about(message: &str) -> &str {
    let marks = [" is forbidden: ", " is invalid: "];
    let cut = marks.iter().filter_map(|mark| Some(message.find(mark)? + mark.len())).min();
    cut.map_or(message, |cut| &message[cut..])
}

/// Returns the words of a message that can be names of objects.
fn words(message: &str) -> impl Iterator<Item = &str> {
    let in_name = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.' | '_');
    message
        .split(move |letter| !in_name(letter))
        .map(|word| word.trim_matches('.'))
        .filter(|word| !word.is_empty())
}

/// Returns the field in the message of an apply that does not fit the schema: `…: .spec.foo: field not declared in schema`.
fn named_field(message: &str) -> FieldPath {
    let mut parts = message.split(": ");
    parts.find(|part| part.starts_with('.')).map_or_else(FieldPath::root, field_path)
}

/// Reads a path as the API server prints it: `spec.containers[0].env`, `data[a.b]`, `metadata.labels[a/b]`.
fn field_path(text: &str) -> FieldPath {
    let mut segments = Vec::new();
    let mut rest = text.trim_start_matches('.');
    while !rest.is_empty() && rest != "<nil>" {
        if let Some((inside, after)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            let key = || Segment::Key(inside.trim_matches('"').to_owned());
            segments.push(inside.parse().map_or_else(|_| key(), Segment::Index));
            rest = after.trim_start_matches('.');
            continue;
        }
        let end = rest.find(['.', '[']).filter(|end| *end > 0).unwrap_or(rest.len());
        segments.push(Segment::Key(rest[..end].to_owned()));
        rest = rest[end..].trim_start_matches('.');
    }
    segments.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use model::resource::gvk;

    #[test]
    fn fields_are_read_as_the_server_prints_them() {
        for (text, expected) in [
            ("spec.containers[0].image", "spec.containers[0].image"),
            ("data[a.b]", "data.\"a.b\""),
            ("metadata.labels[a/b]", "metadata.labels.\"a/b\""),
            (".spec.replicas", "spec.replicas"),
            ("spec.ports[12]", "spec.ports[12]"),
            ("data[\"x\"].y", "data.x.y"),
            ("", ""),
            ("<nil>", ""),
            ("[", "\"[\""),
            ("a[", "a.\"[\""),
            ("a..b", "a.b"),
        ] {
            assert_eq!(field_path(text).to_string(), expected, "{text}");
        }
        let strict =
            "failed to create typed patch object (n/a; v1, Kind=ConfigMap): .data.x: field not declared";
        assert_eq!(named_field(strict).to_string(), "data.x");
    }

    #[test]
    fn messages_lose_the_name_and_are_read_for_others() {
        let message = r#"pods "x" is forbidden: error looking up service account team/app: serviceaccount "app" not found"#;
        let rest = about(message);
        assert!(rest.starts_with("error looking up"), "{rest}");
        assert_eq!(words(rest).filter(|word| *word == "app").count(), 2);
        assert!(!words(rest).any(|word| word == "x"));
        assert_eq!(about("no"), "no");
    }

    #[test]
    fn a_refusal_is_excused_by_what_decides_about_the_namespace() {
        let of = |group: &str, kind: &str, namespace: Option<&str>, name: &str| ObjectId {
            gvk: gvk(group, "v1", kind, ""),
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        };
        let refusal = |message: &str, by: RefusedBy| Refusal {
            message: message.to_owned(),
            causes: Vec::new(),
            by,
            help: None,
        };
        let pod_security = refusal(
            r#"pods "x" is forbidden: violates PodSecurity "restricted:latest": privileged"#,
            RefusedBy::Rules,
        );
        let limit = refusal(
            r#"persistentvolumeclaims "x" is forbidden: maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi"#,
            RefusedBy::Rules,
        );
        let immutable = refusal(r#"Pod "x" is invalid: spec: Forbidden: immutable"#, RefusedBy::Rules);
        let quota = refusal("exceeded quota: small", RefusedBy::Quota("small".to_owned()));
        let webhook = refusal("admission webhook \"w\" denied the request: no", RefusedBy::Webhook);
        let policy = refusal("denied request: no", RefusedBy::Policy);
        let namespace = of("", "Namespace", None, "team");
        let limits = of("", "LimitRange", Some("team"), "limits");
        let small = of("", "ResourceQuota", Some("team"), "small");
        let hook = of("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", None, "hook");
        for (refusal, object, expected) in [
            (&pod_security, &namespace, true),
            (&pod_security, &of("", "Namespace", None, "other"), false),
            (&webhook, &namespace, true),
            (&policy, &namespace, true),
            (&immutable, &namespace, false),
            (&limit, &limits, true),
            (&limit, &of("", "LimitRange", Some("other"), "limits"), false),
            (&immutable, &limits, false),
            (&policy, &limits, false),
            (&webhook, &limits, false),
            (&quota, &small, true),
            (&quota, &namespace, false),
            (&quota, &of("", "ResourceQuota", Some("team"), "large"), false),
            (&quota, &of("", "ResourceQuota", Some("other"), "small"), false),
            (&webhook, &hook, true),
            (&policy, &hook, false),
            (&limit, &of("", "ConfigMap", Some("team"), "limits"), false),
        ] {
            let message = &refusal.message;
            assert_eq!(refusal.is_decided_by(object, Some("team")), expected, "{object}: {message}");
        }
        assert!(!pod_security.is_decided_by(&namespace, None));
    }

    #[test]
    fn webhooks_match_by_group_resource_and_operation() {
        let object = ObjectId {
            gvk: gvk("batch", "v1", "Job", "jobs"),
            namespace: Some("n".into()),
            name: "j".into(),
        };
        let rule = |groups: &[&str], resources: &[&str], operations: &[&str]| json!([{ "rules": [{ "apiGroups": groups, "resources": resources, "operations": operations }] }]);
        for (webhooks, expected) in [
            (rule(&["batch"], &["jobs"], &["CREATE"]), true),
            (rule(&["*"], &["*"], &["*"]), true),
            (rule(&["batch"], &["jobs/*"], &["UPDATE"]), true),
            (rule(&["apps"], &["jobs"], &["CREATE"]), false),
            (rule(&["batch"], &["cronjobs"], &["CREATE"]), false),
            (rule(&["batch"], &["jobs"], &["DELETE"]), false),
            (json!(null), false),
        ] {
            assert_eq!(is_matched(&webhooks, &object), expected, "{webhooks}");
        }
    }
}
