//! The GKE cluster.

use serde_json::{Value, json};

use super::api;
use super::compare::{call, merged_entries, sent_changes};
use super::field::{self, ManagedBy};
use crate::cost::Billed;
use crate::json::text;
use crate::kind::{ChangeContext, Compare, Kind, Rule, Update};
use crate::scope::Scope;
use crate::status::StatusLine;
use model::address::{Address, FieldPath};
use model::catalog;
use model::resource::{
    Action, Api, Await, Call, ClusterName, Deferred, DurationEstimate, Facts, Identity, KindId, Method,
    Readiness, Recreation, Resource, Step, Until,
};
use model::schema::Message;

pub mod autopilot;
mod fields;
mod keys;
mod section;

pub use fields::FIELDS;
use fields::{RULES, WORKLOAD_POOL};
pub use keys::{Addons, Autoprovisioning, Exclusion, Maintenance, Networks};
pub use section::{Cluster, ReleaseChannel};

/// Seconds: clusters take 3 to 9 minutes, and longer while GKE repairs.
const DEADLINE: u32 = 2700;

/// The usual duration of creating one, according to issues of Google's providers for Terraform and Config Connector.
const USUAL: DurationEstimate = DurationEstimate { least: 3 * 60, most: 9 * 60 };

/// GKE clusters.
pub const KIND: Kind = Kind {
    rank: 0,
    compare: Compare::Gke(Message::Cluster, RULES),
    change_steps,
    readiness: |_, found| Ok(readiness(found.own_object())),
    status_line: |_, found| Ok(status_line(found.own_object())),
    plan_summary: about,
    estimate: |_| Some(USUAL),
    ..Kind::DEFAULT
};

/// Returns `zonal, stable channel`.
fn about(resource: &Resource) -> Vec<String> {
    let zonal = match &resource.identity {
        Identity::Cluster(cluster) => catalog::region_of(&cluster.location).is_some(),
        Identity::NodePool { .. } | Identity::Object(_) | Identity::Check(_) => false,
    };
    let body = &resource.body;
    let version = match (text(&body["initialClusterVersion"]), text(&body["releaseChannel"]["channel"])) {
        ("", "" | "UNSPECIFIED") => String::new(),
        ("", channel) => format!("{} channel", channel.to_lowercase()),
        (version, _) => format!("version {version}"),
    };
    let location = match zonal {
        _ if autopilot::is_on(body) => "Autopilot",
        true => "zonal",
        false => "regional",
    };
    vec![location.to_owned(), version]
}

/// Returns the resource that `[cluster]` declares.
pub fn lower(section: &Cluster, name: &ClusterName, scope: &Scope) -> Resource {
    resource(section, name, scope, ManagedBy::Stack)
}

/// Returns the resource to read and compare for `[cluster]` with `manage = false`.
pub fn lower_external(section: &Cluster, name: &ClusterName, scope: &Scope) -> Resource {
    resource(section, name, scope, ManagedBy::Others)
}

fn resource(section: &Cluster, name: &ClusterName, scope: &Scope, maker: ManagedBy) -> Resource {
    let mut body = field::body(FIELDS, section, scope, maker);
    body["name"] = json!(name.cluster);
    // The one workload pool that a cluster can have is its project's.
    if body["workloadIdentityConfig"]["workloadPool"] == WORKLOAD_POOL {
        body["workloadIdentityConfig"]["workloadPool"] = json!(format!("{}{WORKLOAD_POOL}", name.project));
    }
    let origin = FieldPath::keys(["cluster"]);
    let mut provenance = field::provenance(FIELDS, &origin);
    provenance.extend(api::merge_into_body(&mut body, Message::Cluster, &section.api, &origin));
    Resource {
        address: Address::new("cluster"),
        identity: Identity::Cluster(name.clone()),
        kind: KindId::Cluster,
        body,
        provenance,
        origin,
        depends_on: Vec::new(),
        protect: section.protect,
        recreation: Recreation::Always,
        create_only: Value::Null,
    }
}

/// Summarizes a live cluster.
pub fn summary(live: &Value) -> String {
    let channel = text(&live["releaseChannel"]["channel"]).to_lowercase();
    let parts = [text(&live["status"]), text(&live["currentMasterVersion"]), &channel];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

fn change_steps(context: &ChangeContext) -> Vec<Step> {
    let Identity::Cluster(name) = context.identity else { return Vec::new() };
    let wait = |until| {
        let (identity, kind) = (context.identity.clone(), KindId::Cluster);
        Step::Await(Await { kind, identity, until, facts: Facts::None, deadline: DEADLINE })
    };
    let delete = || call(Method::Delete, format!("/v1/{}", name.path()), None);
    let create = || {
        let mut cluster = autopilot::created(context.body());
        if let Some(pool) = context.inline_pool {
            cluster["nodePools"] = json!([super::node_pool::inline_body(pool)]);
        }
        call(Method::Post, format!("/v1/{}/clusters", name.parent()), Some(json!({ "cluster": cluster })))
    };
    match context.action {
        Action::Keep => vec![wait(Until::StillReady)],
        Action::Create if context.terminating => vec![wait(Until::Gone), create(), wait(Until::Ready)],
        Action::Create => vec![create(), wait(Until::Ready)],
        Action::Update => {
            let mut steps = updates(context, name);
            steps.push(wait(Until::Ready));
            steps
        }
        Action::Replace => vec![delete(), wait(Until::Gone), create(), wait(Until::Ready)],
        Action::Delete => vec![delete(), wait(Until::Gone)],
        // The labels that say whose it is.
        Action::Forget => updates(context, name),
        Action::Run => Vec::new(),
    }
}

/// Returns one call for each field: the API accepts exactly one `desired…` field in a request.
fn updates(context: &ChangeContext, name: &ClusterName) -> Vec<Step> {
    let (body, live) = (context.body(), context.live.unwrap_or(&Value::Null));
    let touched = |rule: &&Rule| sent_changes(context.fields).any(|field| rule.path().contains(&field.path));
    let request = |rule: &Rule| match rule.update {
        Update::Alone(desired) => {
            let part = rule.path.split('.').next().unwrap_or_default();
            let update = json!({ "update": { desired: body[part] } });
            Some(call(Method::Put, format!("/v1/{}", name.path()), Some(update)))
        }
        Update::Method(method) => {
            let labels = merged_entries(
                &body["resourceLabels"],
                &live["resourceLabels"],
                context.fields,
                &rule.path(),
            );
            Some(Step::Call(Call {
                api: Api::Gke,
                method: Method::Post,
                path: format!("/v1/{}:{method}", name.path()),
                body: Some(json!({ "resourceLabels": labels }).into()),
                deferred: vec![(FieldPath::keys(["labelFingerprint"]), Deferred::LabelFingerprint)],
            }))
        }
        Update::Never | Update::Together(_) | Update::Rolling(_) | Update::FromSchema(_) => None,
    };
    let rules = api::rules(Message::Cluster, RULES, &[body]);
    let touched: Vec<&Rule> = rules.into_iter().filter(|rule| touched(rule)).collect();
    let mut steps: Vec<Step> = touched.iter().filter_map(|rule| request(rule)).collect();
    steps.extend(api::requests(Message::Cluster, &touched, body, live, &format!("/v1/{}", name.path())));
    steps
}

/// Returns the readiness. RUNNING is ready. A RECONCILING cluster runs while GKE works on it. The control plane of a DEGRADED
/// cluster answers: gcloud warns and continues. GKE deletes a cluster with ERROR later.
fn readiness(cluster: &Value) -> Readiness {
    match text(&cluster["status"]) {
        "RUNNING" | "RECONCILING" => Readiness::Ready,
        "DEGRADED" => Readiness::Impaired(degraded(cluster)),
        status @ ("ERROR" | "STOPPING") => {
            Readiness::Failed(format!("its status is {status}{}", super::node_pool::conditions(cluster)))
        }
        "" => Readiness::progressing("not created yet"),
        status => Readiness::progressing(format!("its status is {status}")),
    }
}

fn degraded(cluster: &Value) -> String {
    format!("its status is DEGRADED{}", super::node_pool::conditions(cluster))
}

fn status_line(live: &Value) -> StatusLine {
    let (status, version) = (text(&live["status"]), text(&live["currentMasterVersion"]));
    let version = if version.is_empty() { String::new() } else { format!(", version {version}") };
    let status = if status == "DEGRADED" { degraded(live) } else { status.to_owned() };
    StatusLine {
        line: format!("{status}{version}"),
        facts: vec![("status", live["status"].clone()), ("version", live["currentMasterVersion"].clone())],
        // Of the rest of an Autopilot cluster Google bills what Pods request, while they run.
        billed: [Billed::Cluster]
            .into_iter()
            .chain(autopilot::is_on(live).then_some(Billed::AutopilotPods))
            .collect(),
        ..StatusLine::default()
    }
}
