//! The GKE cluster.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::api;
use super::compare::{call, merged_entries, owned_labels, sent};
use super::field::{self, Field, Maker, given, google_labels, listed, rule};
use crate::address::{Address, FieldPath};
use crate::kinds::json::{is_false, text};
use crate::kinds::kind::{ChangeContext, Compare, How, Kind, Rule, Update};
use crate::kinds::scope::Scope;
use crate::kinds::section::{LabelRules, Labels, Live, Manage, Naming, Section};
use crate::kinds::status::StatusLine;
use crate::resource::{
    Action, Api, Await, Call, ClusterName, Effect, Facts, Identity, KindId, Late, Life, Method, Readiness,
    Resource, Step, Until,
};
use crate::schema::Message;

/// Seconds: clusters take 3 to 9 minutes, and longer while GKE repairs.
const DEADLINE: u32 = 2700;

/// GKE clusters.
pub const KIND: Kind = Kind {
    rank: 0,
    compare: Compare::Gke(Message::Cluster, RULES),
    program,
    readiness: |_, found| Ok(readiness(found.itself())),
    status_line: |_, found| Ok(status_line(found.itself())),
    about,
    ..Kind::BARE
};

/// `zonal, stable channel`.
fn about(resource: &Resource) -> Vec<String> {
    let zonal = match &resource.identity {
        Identity::Cluster(cluster) => crate::catalog::region_of(&cluster.location).is_some(),
        Identity::NodePool { .. } | Identity::Object(_) | Identity::Check(_) => false,
    };
    let body = &resource.body;
    let version = match (text(&body["initialClusterVersion"]), text(&body["releaseChannel"]["channel"])) {
        ("", "" | "UNSPECIFIED") => String::new(),
        ("", channel) => format!("{} channel", channel.to_lowercase()),
        (version, _) => format!("version {version}"),
    };
    vec![if zonal { "zonal" } else { "regional" }.to_owned(), version]
}

const NETWORK: Option<&str> = Some("a cluster cannot change its network");
const ZONES: Option<&str> = Some("adds and removes nodes of all pools with the zones");
const SET_LABELS: &str = "setResourceLabels";

/// Source of what is changed how: googleapis `cluster_service.proto`, UpdateCluster and SetLabels.
pub const FIELDS: &[Field<Cluster>] = &[
    Field {
        key: "name",
        rule: rule("name", How::Exact, Effect::Replace, Update::Never, None),
        ..Field::NONE
    },
    Field {
        key: "release_channel",
        said: |cluster| cluster.release_channel.map(|channel| json!(channel.api())),
        sent: |cluster, _| Some(json!(cluster.release_channel.unwrap_or(ReleaseChannel::Regular).api())),
        import: |cluster, live| cluster.release_channel = Some(ReleaseChannel::of(text(live))),
        rule: rule(
            "releaseChannel.channel",
            How::Exact,
            Effect::InPlace,
            Update::Alone("desiredReleaseChannel"),
            None,
        ),
    },
    Field {
        key: "version",
        said: |cluster| cluster.version.as_deref().and_then(given),
        rule: rule("initialClusterVersion", How::AtCreation, Effect::Ignored, Update::Never, None),
        ..Field::NONE
    },
    Field {
        key: "zones",
        said: |cluster| listed(&cluster.zones),
        rule: rule("locations", How::Set, Effect::Rolling, Update::Alone("desiredLocations"), ZONES),
        ..Field::NONE
    },
    Field {
        key: "network",
        said: |cluster| cluster.network.as_deref().and_then(given),
        import: |cluster, live| cluster.network = other_network(live),
        rule: rule("network", How::LastPart, Effect::Replace, Update::Never, NETWORK),
        ..Field::NONE
    },
    Field {
        key: "subnetwork",
        said: |cluster| cluster.subnetwork.as_deref().and_then(given),
        import: |cluster, live| cluster.subnetwork = other_network(live),
        rule: rule("subnetwork", How::LastPart, Effect::Replace, Update::Never, NETWORK),
        ..Field::NONE
    },
    Field {
        key: "labels",
        said: |cluster| (!cluster.labels.is_empty()).then(|| json!(cluster.labels)),
        sent: |cluster, scope| Some(owned_labels(&cluster.labels, &scope.owner)),
        import: |cluster, live| cluster.labels = google_labels(live),
        rule: rule("resourceLabels", How::OwnEntries, Effect::InPlace, Update::Method(SET_LABELS), None),
    },
];

const RULES: &[&Rule] = &field::rules::<Cluster, { FIELDS.len() }>(FIELDS);

/// The name of a network or subnetwork that is not the default.
fn other_network(live: &Value) -> Option<String> {
    let name = text(live).rsplit('/').next().unwrap_or_default();
    (!name.is_empty() && name != "default").then(|| name.to_owned())
}

/// The GKE cluster. Its node pools are sections of their own.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// The cluster's name: at most 40 characters.
    pub name: String,
    /// `rapid`, `regular`, `stable` or `extended`; `none` for no channel. Default `regular`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release_channel: Option<ReleaseChannel>,
    /// The control plane's version when the cluster is created: `1.33`, `latest` or an exact one. Not compared later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Zones of the nodes, for a regional cluster or one with nodes in several zones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<String>,
    /// The VPC network. Default `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// The subnetwork. Default: the network's own in the region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnetwork: Option<String>,
    /// Google Cloud labels of the cluster.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Other fields of the API's `Cluster`, by its names: `addonsConfig = { gcsFuseCsiDriverConfig = { enabled = true } }`.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub api: Map<String, Value>,
    /// `false`: it exists and is managed elsewhere. It is read, compared with this section and relied on, never
    /// written, labelled or deleted. Default `true`.
    #[serde(default, skip_serializing_if = "Manage::is_managed")]
    pub manage: Manage,
    /// Refuses to delete or replace it, also in `destroy`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub protect: bool,
}

impl Section for Cluster {
    fn is_managed(&self) -> bool {
        self.manage.is_managed()
    }

    fn live<'a>(&'a self, key: &'a str) -> Option<Live<'a>> {
        Some(Live::new(Some(&self.name), key, Naming::Gke))
    }

    fn labels(&self) -> Vec<Labels<'_>> {
        vec![("labels", &self.labels, LabelRules::Google)]
    }
}

/// A release channel of GKE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReleaseChannel {
    /// New versions first.
    Rapid,
    /// GKE's default.
    Regular,
    /// Versions that have stood in the regular channel.
    Stable,
    /// Stable with longer support.
    Extended,
    /// No channel: versions are moved by hand.
    None,
}

impl ReleaseChannel {
    /// The API's name.
    fn api(self) -> &'static str {
        match self {
            Self::Rapid => "RAPID",
            Self::Regular => "REGULAR",
            Self::Stable => "STABLE",
            Self::Extended => "EXTENDED",
            Self::None => "UNSPECIFIED",
        }
    }

    fn of(api: &str) -> Self {
        let channels = [Self::Rapid, Self::Regular, Self::Stable, Self::Extended];
        channels.into_iter().find(|channel| channel.api() == api).unwrap_or(Self::None)
    }
}

/// What `[cluster]` becomes.
pub fn lower(section: &Cluster, name: &ClusterName, scope: &Scope) -> Resource {
    resource(section, name, scope, Maker::Stack)
}

/// What `[cluster]` with `manage = false` says of a cluster that others own.
pub fn read(section: &Cluster, name: &ClusterName, scope: &Scope) -> Resource {
    resource(section, name, scope, Maker::Others)
}

fn resource(section: &Cluster, name: &ClusterName, scope: &Scope, maker: Maker) -> Resource {
    let mut body = field::body(FIELDS, section, scope, maker);
    body["name"] = json!(name.cluster);
    let origin = FieldPath::keys(["cluster"]);
    let mut provenance = field::provenance(FIELDS, &origin);
    provenance.extend(api::lay_over(&mut body, Message::Cluster, &section.api, &origin));
    Resource {
        address: Address::new("cluster"),
        identity: Identity::Cluster(name.clone()),
        kind: KindId::Cluster,
        body,
        provenance,
        origin,
        follows: Vec::new(),
        protect: section.protect,
        life: Life::Kept,
        create_only: Value::Null,
    }
}

/// A live cluster in a few words.
pub fn summary(live: &Value) -> String {
    let channel = text(&live["releaseChannel"]["channel"]).to_lowercase();
    let parts = [text(&live["status"]), text(&live["currentMasterVersion"]), &channel];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

/// Whether a live cluster runs the version that is given: `1.33` is any of its patches. Words like `latest` are
/// for making one.
pub fn runs(live: &Value, version: &str) -> bool {
    let given = version.starts_with(|c: char| c.is_ascii_digit());
    let current = text(&live["currentMasterVersion"]);
    let rest = current.strip_prefix(version);
    !given || current.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-']))
}

fn program(context: &ChangeContext) -> Vec<Step> {
    let Identity::Cluster(name) = context.identity else { return Vec::new() };
    let wait = |until| {
        let (identity, kind) = (context.identity.clone(), KindId::Cluster);
        Step::Await(Await { kind, identity, until, facts: Facts::None, deadline: DEADLINE })
    };
    let delete = || call(Method::Delete, format!("/v1/{}", name.path()), None);
    let create = || {
        let mut cluster = context.body().clone();
        if let Some(pool) = context.inline_pool {
            cluster["nodePools"] = json!([super::node_pool::first_body(pool)]);
        }
        call(Method::Post, format!("/v1/{}/clusters", name.parent()), Some(json!({ "cluster": cluster })))
    };
    match context.action {
        Action::Keep => vec![wait(Until::Still)],
        Action::Create if context.leaving => vec![wait(Until::Gone), create(), wait(Until::Ready)],
        Action::Create => vec![create(), wait(Until::Ready)],
        Action::Update => {
            let mut steps = updates(context, name);
            steps.push(wait(Until::Ready));
            steps
        }
        Action::Replace => vec![delete(), wait(Until::Gone), create(), wait(Until::Ready)],
        Action::Delete => vec![delete(), wait(Until::Gone)],
        Action::Forget | Action::Run => Vec::new(),
    }
}

/// One call for each field: the API takes exactly one `desired…` at a time.
fn updates(context: &ChangeContext, name: &ClusterName) -> Vec<Step> {
    let (body, live) = (context.body(), context.live.unwrap_or(&Value::Null));
    let touched = |rule: &&Rule| sent(context.fields).any(|field| rule.path().contains(&field.path));
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
                body: Some(json!({ "resourceLabels": labels })),
                late: vec![(FieldPath::keys(["labelFingerprint"]), Late::LabelFingerprint)],
            }))
        }
        Update::Never | Update::Together(_) | Update::Rolling(_) | Update::Listed(_) => None,
    };
    let rules = api::rules(Message::Cluster, RULES, &[body]);
    let touched: Vec<&Rule> = rules.into_iter().filter(|rule| touched(rule)).collect();
    let mut steps: Vec<Step> = touched.iter().filter_map(|rule| request(rule)).collect();
    steps.extend(api::requests(&touched, body, live, &format!("/v1/{}", name.path())));
    steps
}

/// RUNNING is ready; RECONCILING is a running cluster that GKE works on; the control plane of a DEGRADED one answers, and
/// gcloud warns and goes on; ERROR is deleted by GKE later.
fn readiness(cluster: &Value) -> Readiness {
    match text(&cluster["status"]) {
        "RUNNING" | "RECONCILING" => Readiness::Ready,
        "DEGRADED" => Readiness::Impaired(degraded(cluster)),
        status @ ("ERROR" | "STOPPING") => {
            Readiness::Failed(format!("its status is {status}{}", super::node_pool::conditions(cluster)))
        }
        "" => Readiness::Progressing("not created yet".into()),
        status => Readiness::Progressing(format!("its status is {status}")),
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
        pending: Vec::new(),
    }
}
