//! A plan as one JSON document, in the shape of `terraform show -json PLAN`, so that policy scripts written for it
//! (conftest, OPA, jq) read ours. `schemas/plan.schema.json` is generated from the types here.
//! Source: <https://developer.hashicorp.com/terraform/internals/json-format>.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::cost::{self, PlanCost};
use super::dry_run::{self, DryRun};
use super::human::plan_text::approval_text;
use model::address::{FieldPath, Segment};
use model::resource::{ByIdentity, DurationEstimate, Effect, FieldChange, Identity, KindId, by_identity};
use model::secrets::masked;
use plan::{Action, Change, Mode, Note, Plan};

/// The version of Terraform's format that this follows.
pub const FORMAT_VERSION: &str = "1.2";

/// A plan.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(title = "dask-infra plan")]
pub struct Document {
    /// The version of the format: `1.2`.
    pub format_version: &'static str,
    /// The program's version, in the place of Terraform's.
    pub dask_infra_version: &'static str,
    /// Always empty: variables are in the values already.
    pub variables: BTreeMap<String, Value>,
    /// Everything as it should be afterwards.
    pub planned_values: PlannedValues,
    /// Changes made outside this stack since the last apply: `before` is the value that was set, `after` is the live value.
    pub resource_drift: Vec<ResourceChange>,
    /// Everything of the stack and what happens to it.
    pub resource_changes: Vec<ResourceChange>,
    /// Always empty: a stack has no outputs.
    pub output_changes: BTreeMap<String, Value>,
    /// True if there is something to apply.
    pub applyable: bool,
    /// Always true: a plan holds all that is to be done.
    pub complete: bool,
    /// Always false: what cannot be planned is not saved.
    pub errored: bool,
    /// Details of the plan that Terraform's format has no place for.
    pub dask_infra: PlanExtra,
}

/// Everything as it should be afterwards.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PlannedValues {
    /// The one module.
    pub root_module: Module,
}

/// A module.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Module {
    /// Its resources.
    pub resources: Vec<Planned>,
}

/// A resource as it should be afterwards.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Planned {
    /// The resource's address, with kind, namespace and name for an object of a section.
    pub address: String,
    /// Always `managed`.
    pub mode: &'static str,
    /// `node_pool`, `config_map`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The address without its section's word.
    pub name: String,
    /// Always `dask-infra`.
    pub provider_name: &'static str,
    /// The body as it is sent to the API.
    pub values: Value,
}

/// A resource and what happens to it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ResourceChange {
    /// The address.
    pub address: String,
    /// Always `managed`.
    pub mode: &'static str,
    /// `cluster`, `node_pool`, `dask_cluster`, `check`; for other Kubernetes kinds their name: `config_map`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The address without its section's word: `a100`.
    pub name: String,
    /// Always `dask-infra`.
    pub provider_name: &'static str,
    /// The actions, and the values before and after.
    pub change: Values,
    /// Terraform's word for why it is replaced or deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action_reason: Option<&'static str>,
    /// Details of the change that Terraform's format has no place for.
    pub dask_infra: ChangeExtra,
}

/// Before and after.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Values {
    /// `["no-op"]`, `["create"]`, `["update"]`, `["delete"]`, `["delete", "create"]`, `["forget"]`. A check that runs is a
    /// `["create"]`.
    pub actions: Vec<&'static str>,
    /// The live values of the fields that the stack says; for what goes the whole live object, without secrets and
    /// `managedFields`. Null when it is made.
    pub before: Value,
    /// The desired body. Null when it goes.
    pub after: Value,
    /// Always empty: bodies are known when they are planned.
    pub after_unknown: Value,
    /// Always false: what looks like a secret is hidden.
    pub before_sensitive: bool,
    /// Always false: what looks like a secret is hidden.
    pub after_sensitive: bool,
    /// The fields that force the replacement, each as a list of keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replace_paths: Vec<Vec<Value>>,
}

/// Details of a change that Terraform's format has no place for.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ChangeExtra {
    /// The resource as the API names it, in words: `node pool a100`.
    pub identity: String,
    /// The TOML place that asks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// Why, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Seconds that it usually takes, where that is known of what is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usual_seconds: Option<DurationEstimate>,
    /// True if the resource is not managed by this stack and is deleted as a consequence of another change.
    pub foreign: bool,
    /// From whom it would be taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taken_from: Option<String>,
}

/// Details of a plan that Terraform's format has no place for.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PlanExtra {
    /// The stack.
    pub stack: String,
    /// The stack's id.
    pub id: String,
    /// Where it acts.
    pub target: String,
    /// True if the sandbox answers instead of the cloud.
    pub simulated: bool,
    /// `apply` or `destroy`.
    pub mode: &'static str,
    /// US dollars per hour of the whole stack when autoscaled pools are at their maximum, as in `cost.most`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hourly: Option<f64>,
    /// US dollars per hour when autoscaled pools are at their minimum, as in `cost.idle`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hourly_minimum: Option<f64>,
    /// Seconds that the longest way through the plan usually takes, as far as it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usual_seconds: Option<DurationEstimate>,
    /// Images that are pulled and whose size is not known: `usual_seconds` is without their pulls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown_pulls: Vec<String>,
    /// Names of everything without a price, which is not in `hourly`: machine types, disks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unpriced: Vec<String>,
    /// The cost before and after the apply; absent where Google bills nothing of the stack by the hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<PlanCost>,
    /// Consents that are still to be given: `replace:dask_cluster.rapids`.
    #[serde(rename = "consents_needed")]
    pub approvals_needed: Vec<String>,
    /// Consents that are stored in the plan.
    #[serde(rename = "consents_given")]
    pub approvals_given: Vec<String>,
    /// The objects that the API server judged by dry runs, and those that it did not; absent if nothing was tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<DryRun>,
    /// Warnings.
    pub notes: Vec<NoteText>,
}

/// A warning.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct NoteText {
    /// The stable code.
    pub code: String,
    /// The address that the warning is about.
    pub address: String,
    /// The text.
    pub message: String,
}

const PROVIDER: &str = "dask-infra";

/// Returns a plan in the form of Terraform's JSON plans, which `show --json` prints.
pub fn document(plan: &Plan) -> Document {
    let resources = plan.desired.iter().map(|resource| Planned {
        address: resource.address.to_string(),
        mode: "managed",
        kind: kind_of(&resource.identity, resource.kind),
        name: name_of(resource.address.as_str()),
        provider_name: PROVIDER,
        values: masked(&resource.body),
    });
    let resources = match plan.mode {
        Mode::Apply => resources.collect(),
        Mode::Destroy => Vec::new(),
    };
    let desired = by_identity(&plan.desired);
    let drifted = |change: &&Change| change.fields.iter().any(|field| field.drift.is_some());
    Document {
        format_version: FORMAT_VERSION,
        dask_infra_version: env!("CARGO_PKG_VERSION"),
        variables: BTreeMap::new(),
        planned_values: PlannedValues { root_module: Module { resources } },
        resource_drift: plan.changes.iter().filter(drifted).map(|change| drift(&desired, change)).collect(),
        resource_changes: plan.changes.iter().map(|change| planned(&desired, change)).collect(),
        output_changes: BTreeMap::new(),
        applyable: !plan.is_empty(),
        complete: true,
        errored: false,
        dask_infra: extra(plan),
    }
}

/// Returns the document as text.
pub fn text(plan: &Plan) -> String {
    format!("{:#}\n", serde_json::to_value(document(plan)).unwrap_or_default())
}

/// Returns the schema of the document, draft-07.
pub fn schema() -> Value {
    let generator = schemars::generate::SchemaSettings::draft07().into_generator();
    generator.into_root_schema_for::<Document>().to_value()
}

fn extra(plan: &Plan) -> PlanExtra {
    let note = |Note { code, address, message }: &Note| NoteText {
        code: code.clone(),
        address: address.to_string(),
        message: message.clone(),
    };
    PlanExtra {
        stack: plan.owner.stack.clone(),
        id: plan.owner.id.clone(),
        target: plan.target.to_string(),
        simulated: plan.target.simulated,
        mode: match plan.mode {
            Mode::Apply => "apply",
            Mode::Destroy => "destroy",
        },
        hourly: cost::most(plan),
        hourly_minimum: cost::idle(plan),
        usual_seconds: plan.critical_path().map(|path| path.estimate),
        unknown_pulls: plan.unknown_pulls.clone(),
        unpriced: cost::unknown(plan),
        cost: cost::plan_cost(plan),
        approvals_needed: plan.missing_approvals(&[]).iter().map(approval_text).collect(),
        approvals_given: plan.approved.iter().map(approval_text).collect(),
        dry_run: dry_run::of(plan),
        notes: plan.notes.iter().map(note).collect(),
    }
}

type Desired<'a> = ByIdentity<'a>;

fn planned(desired: &Desired<'_>, change: &Change) -> ResourceChange {
    let body = desired.get(&change.identity).map(|resource| &resource.body);
    let body = body.map(masked).unwrap_or_default();
    let before = || as_it_was(&body, &change.fields);
    let (actions, before, after) = match change.action {
        Action::Keep => (vec!["no-op"], before(), body),
        Action::Create | Action::Run => (vec!["create"], Value::Null, body),
        Action::Update => (vec!["update"], before(), body),
        Action::Replace => (vec!["delete", "create"], before(), body),
        Action::Delete => (vec!["delete"], as_it_is(change), Value::Null),
        Action::Forget => (vec!["forget"], as_it_is(change), Value::Null),
    };
    let forces = |field: &&FieldChange| field.effect == Effect::Replace && change.action == Action::Replace;
    let replace_paths = change.fields.iter().filter(forces).map(|field| keys(&field.path)).collect();
    of_change(
        change,
        Values {
            actions,
            before,
            after,
            after_unknown: json!({}),
            before_sensitive: false,
            after_sensitive: false,
            replace_paths,
        },
    )
}

/// Returns the drift of a change: from the values that were set to the live values.
fn drift(desired: &Desired<'_>, change: &Change) -> ResourceChange {
    let fields: Vec<FieldChange> =
        change.fields.iter().filter(|field| field.drift.is_some()).cloned().collect();
    let body = desired.get(&change.identity).map(|resource| &resource.body);
    let before = body.map(masked).unwrap_or_default();
    let after = as_it_was(&before, &fields);
    of_change(
        change,
        Values {
            actions: vec!["update"],
            before,
            after,
            after_unknown: json!({}),
            before_sensitive: false,
            after_sensitive: false,
            replace_paths: Vec::new(),
        },
    )
}

fn of_change(change: &Change, values: Values) -> ResourceChange {
    let asked = change.is_requested();
    let action_reason = match change.action {
        Action::Replace if asked => Some("replace_by_request"),
        Action::Replace if values.replace_paths.is_empty() => Some("replace_because_tainted"),
        Action::Replace => Some("replace_because_cannot_update"),
        Action::Delete | Action::Forget => Some("delete_because_no_resource_config"),
        Action::Keep | Action::Create | Action::Update | Action::Run => None,
    };
    ResourceChange {
        address: change.address.to_string(),
        mode: "managed",
        kind: kind_of(&change.identity, change.kind),
        name: name_of(change.address.as_str()),
        provider_name: PROVIDER,
        change: values,
        action_reason,
        dask_infra: ChangeExtra {
            identity: change.identity.to_string(),
            location: change.location.clone(),
            reason: change.why(),
            foreign: change.foreign,
            usual_seconds: change.estimate,
            taken_from: change.adopted.as_ref().map(|taken| taken.from.clone()),
        },
    }
}

/// Returns the kind's own name; `config_map` for Kubernetes kinds that are nothing special here.
fn kind_of(identity: &Identity, kind: KindId) -> String {
    let Identity::Object(object) = identity else { return kind.to_string() };
    if !kinds::of(kind).shown_by_kubernetes_kind {
        return kind.to_string();
    }
    let mut words = String::new();
    for letter in object.gvk.kind.chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push('_');
        }
        words.extend(letter.to_lowercase());
    }
    words
}

fn name_of(address: &str) -> String {
    address.split_once(['.', '/']).map_or(address, |(_, name)| name).to_owned()
}

/// Returns the live object that is deleted or released, or its names if nothing else is known.
fn as_it_is(change: &Change) -> Value {
    if change.before.is_null() { named(&change.identity) } else { masked(&change.before.value()) }
}

/// Returns the names of something, where nothing else is known of it.
fn named(identity: &Identity) -> Value {
    match identity {
        Identity::Cluster(name) => {
            json!({ "project": name.project, "location": name.location, "name": name.cluster })
        }
        Identity::NodePool { cluster, pool } => json!({
            "project": cluster.project, "location": cluster.location, "cluster": cluster.cluster, "name": pool,
        }),
        Identity::Object(object) => {
            let mut metadata = json!({ "name": object.name });
            if let Some(namespace) = &object.namespace {
                metadata["namespace"] = json!(namespace);
            }
            json!({ "apiVersion": object.gvk.api_version(), "kind": object.gvk.kind, "metadata": metadata })
        }
        Identity::Check(address) => json!({ "name": address.as_str() }),
    }
}

fn keys(path: &FieldPath) -> Vec<Value> {
    let key = |segment: &Segment| match segment {
        Segment::Key(key) => json!(key),
        Segment::Index(index) => json!(index),
    };
    path.segments().iter().map(key).collect()
}

/// Returns the body with the live values of the fields that differ.
fn as_it_was(body: &Value, fields: &[FieldChange]) -> Value {
    let mut was = body.clone();
    for field in fields {
        put(&mut was, field.path.segments(), field.shown().0.as_ref());
    }
    was
}

fn put(tree: &mut Value, path: &[Segment], value: Option<&Value>) {
    let Some((first, rest)) = path.split_first() else {
        *tree = value.cloned().unwrap_or_default();
        return;
    };
    match (first, rest.is_empty(), value) {
        (Segment::Key(key), true, None) => {
            if let Value::Object(fields) = tree {
                fields.remove(key);
            }
        }
        (Segment::Key(key), ..) => {
            if !tree.is_object() {
                *tree = Value::Object(Map::new());
            }
            put(&mut tree[key.as_str()], rest, value);
        }
        (Segment::Index(index), ..) => {
            let Value::Array(items) = tree else { return };
            match (items.get_mut(*index), rest.is_empty(), value) {
                (Some(_), true, None) => drop(items.remove(*index)),
                (Some(item), ..) => put(item, rest, value),
                (None, true, Some(value)) => items.push(value.clone()),
                (None, ..) => {}
            }
        }
    }
}
