//! The fields of a cluster.

use serde_json::{Value, json};

use super::keys::{Addons, Autoprovisioning, Maintenance, Networks};
use super::section::{Cluster, ReleaseChannel};
use crate::gke::compare::owned_labels;
use crate::gke::enums::{LogComponent, MetricComponent, SecurityPosture, VulnerabilityScanning};
use crate::gke::field::{
    self, Field, RuleSource, google_labels, non_empty, non_empty_list, rule, schema_row,
};
use crate::json::text;
use crate::kind::{FieldComparison, Rule, Update};
use model::resource::Effect;

const AUTOPILOT: Option<&str> = Some("a cluster is Autopilot or not from its creation on");
const NETWORK: Option<&str> = Some("a cluster cannot change its network");
const UPGRADE: Option<&str> =
    Some("GKE upgrades the control plane; that of a zonal cluster does not answer meanwhile");
const CREATION: Option<&str> = Some("GKE takes it only at creation");
const ZONES: Option<&str> = Some("adds and removes nodes of all pools with the zones");
pub(super) const SET_LABELS: &str = "setResourceLabels";

/// The fields of a cluster. Source of their updates: googleapis `cluster_service.proto`, UpdateCluster and SetLabels.
pub const FIELDS: &[Field<Cluster>] = &[
    Field {
        key: "name",
        rule: rule("name", FieldComparison::Exact, Effect::Replace, Update::Never, None),
        ..Field::NONE
    },
    Field {
        key: "autopilot",
        from_section: |cluster| cluster.autopilot.then_some(Value::Bool(true)),
        // That it is off is compared, too: pools cannot be made in an Autopilot cluster.
        to_api: |cluster, _| Some(json!(cluster.autopilot)),
        import: |cluster, live| cluster.autopilot = *live == true,
        rule: rule("autopilot.enabled", FieldComparison::Exact, Effect::Replace, Update::Never, AUTOPILOT),
    },
    Field {
        key: "release_channel",
        from_section: |cluster| cluster.release_channel.map(|channel| json!(channel.api())),
        to_api: |cluster, _| Some(json!(cluster.release_channel.unwrap_or(ReleaseChannel::Regular).api())),
        import: |cluster, live| cluster.release_channel = Some(ReleaseChannel::of(text(live))),
        rule: rule(
            "releaseChannel.channel",
            FieldComparison::Exact,
            Effect::InPlace,
            Update::Alone("desiredReleaseChannel"),
            None,
        ),
    },
    Field {
        key: "version",
        from_section: |cluster| cluster.version.as_deref().and_then(non_empty),
        rule: rule(
            "initialClusterVersion",
            FieldComparison::MinVersion,
            Effect::InPlace,
            Update::Alone("desiredMasterVersion"),
            UPGRADE,
        ),
        ..Field::NONE
    },
    Field {
        key: "zones",
        from_section: |cluster| non_empty_list(&cluster.zones),
        rule: rule(
            "locations",
            FieldComparison::Set,
            Effect::Rolling,
            Update::Alone("desiredLocations"),
            ZONES,
        ),
        ..Field::NONE
    },
    Field {
        key: "network",
        from_section: |cluster| cluster.network.as_deref().and_then(non_empty),
        import: |cluster, live| cluster.network = other_network(live),
        rule: rule("network", FieldComparison::LastSegment, Effect::Replace, Update::Never, NETWORK),
        ..Field::NONE
    },
    Field {
        key: "subnetwork",
        from_section: |cluster| cluster.subnetwork.as_deref().and_then(non_empty),
        import: |cluster, live| cluster.subnetwork = other_network(live),
        rule: rule("subnetwork", FieldComparison::LastSegment, Effect::Replace, Update::Never, NETWORK),
        ..Field::NONE
    },
    Field {
        key: "labels",
        from_section: |cluster| (!cluster.labels.is_empty()).then(|| json!(cluster.labels)),
        to_api: |cluster, scope| Some(owned_labels(&cluster.labels, &scope.owner)),
        import: |cluster, live| cluster.labels = google_labels(live),
        rule: rule(
            "resourceLabels",
            FieldComparison::OwnEntries,
            Effect::InPlace,
            Update::Method(SET_LABELS),
            None,
        ),
    },
    schema_row!(private_nodes: switch, "networkConfig.defaultEnablePrivateNodes"),
    schema_row!(
        authorized_networks,
        "controlPlaneEndpointsConfig.ipEndpointsConfig.authorizedNetworksConfig",
        Networks::api,
        Networks::of
    ),
    schema_row!(public_endpoint: switch, "controlPlaneEndpointsConfig.ipEndpointsConfig.enablePublicEndpoint"),
    schema_row!(ip_endpoints: switch, "controlPlaneEndpointsConfig.ipEndpointsConfig.enabled"),
    schema_row!(dns_endpoint: switch, "controlPlaneEndpointsConfig.dnsEndpointConfig.allowExternalTraffic"),
    Field {
        key: "pods_range",
        from_section: |cluster| named_range(cluster.pods_range.as_ref()),
        rule: RuleSource::FromSchema("ipAllocationPolicy.clusterSecondaryRangeName"),
        ..Field::NONE
    },
    Field {
        key: "pods_range",
        from_section: |cluster| sized_range(cluster.pods_range.as_ref()),
        rule: at_creation("ipAllocationPolicy.clusterIpv4CidrBlock"),
        ..Field::NONE
    },
    Field {
        key: "services_range",
        from_section: |cluster| named_range(cluster.services_range.as_ref()),
        import: |cluster, live| cluster.services_range = given_text(live),
        rule: RuleSource::FromSchema("ipAllocationPolicy.servicesSecondaryRangeName"),
        ..Field::NONE
    },
    Field {
        key: "services_range",
        from_section: |cluster| sized_range(cluster.services_range.as_ref()),
        rule: at_creation("ipAllocationPolicy.servicesIpv4CidrBlock"),
        ..Field::NONE
    },
    schema_row!(
        workload_identity,
        "workloadIdentityConfig.workloadPool",
        |on: &bool| json!(if *on { WORKLOAD_POOL } else { "" }),
        |live: &Value| text(live).ends_with(WORKLOAD_POOL).then_some(true)
    ),
    schema_row!(autoprovisioning, "autoscaling", Autoprovisioning::api, Autoprovisioning::of),
    schema_row!(maintenance, "maintenancePolicy.window", Maintenance::api, Maintenance::of),
    schema_row!(
        dataplane_v2,
        "networkConfig.datapathProvider",
        |on: &bool| json!(if *on { "ADVANCED_DATAPATH" } else { "LEGACY_DATAPATH" }),
        |live: &Value| (*live == "ADVANCED_DATAPATH").then_some(true)
    ),
    schema_row!(multi_networking: switch, "networkConfig.enableMultiNetworking"),
    // Before what others say below it.
    schema_row!(addons, "addonsConfig", |addons: &Addons| addons.api(), Addons::of),
    schema_row!(
        network_policy,
        "networkPolicy",
        |on: &bool| if *on {
            json!({ "enabled": true, "provider": "CALICO" })
        } else {
            json!({ "enabled": false })
        },
        |live: &Value| live["enabled"].as_bool()
    ),
    Field {
        key: "network_policy",
        from_section: |cluster| cluster.network_policy.filter(|on| *on).map(|_| json!({ "disabled": false })),
        rule: RuleSource::FromSchema("addonsConfig.networkPolicyConfig"),
        ..Field::NONE
    },
    schema_row!(
        logging,
        "loggingConfig.componentConfig.enableComponents",
        |components: &Vec<LogComponent>| components.iter().map(|word| word.api()).collect(),
        |live: &Value| live.as_array()?.iter().map(LogComponent::of).collect()
    ),
    schema_row!(
        monitoring,
        "monitoringConfig.componentConfig.enableComponents",
        |components: &Vec<MetricComponent>| components.iter().map(|word| word.api()).collect(),
        |live: &Value| live.as_array()?.iter().map(MetricComponent::of).collect()
    ),
    schema_row!(managed_prometheus: switch, "monitoringConfig.managedPrometheusConfig.enabled"),
    schema_row!(secrets_key: text, "databaseEncryption.keyName"),
    Field {
        key: "secrets_key",
        // Responses have another value (recorded).
        to_api: |cluster, _| cluster.secrets_key.as_ref().map(|_| json!("ENCRYPTED")),
        rule: rule(
            "databaseEncryption.state",
            FieldComparison::AtCreation,
            Effect::Ignored,
            Update::Never,
            None,
        ),
        ..Field::NONE
    },
    schema_row!(shielded_nodes: switch, "shieldedNodes.enabled"),
    schema_row!(
        binary_authorization,
        "binaryAuthorization.evaluationMode",
        |on: &bool| json!(if *on { "PROJECT_SINGLETON_POLICY_ENFORCE" } else { "DISABLED" }),
        |live: &Value| (*live == "PROJECT_SINGLETON_POLICY_ENFORCE").then_some(true)
    ),
    schema_row!(cost_allocation: switch, "costManagementConfig.enabled"),
    schema_row!(vertical_pod_autoscaling: switch, "verticalPodAutoscaling.enabled"),
    schema_row!(security_posture: word SecurityPosture, "securityPostureConfig.mode"),
    schema_row!(vulnerability_scanning: word VulnerabilityScanning, "securityPostureConfig.vulnerabilityMode"),
    schema_row!(
        notification_topic,
        "notificationConfig.pubsub",
        |topic: &String| json!({ "enabled": true, "topic": topic }),
        |live: &Value| given_text(&live["topic"])
    ),
    schema_row!(fleet: text, "fleet.project"),
    schema_row!(max_pods_per_node: int64, "defaultMaxPodsConstraint.maxPodsPerNode"),
];

/// The suffix of a project's workload identity pool.
pub(super) const WORKLOAD_POOL: &str = ".svc.id.goog";

const fn at_creation(path: &'static str) -> RuleSource {
    rule(path, FieldComparison::CidrOrPrefixLength, Effect::Replace, Update::Never, CREATION)
}

/// Returns an existing secondary range of the subnetwork, by its name.
fn named_range(range: Option<&String>) -> Option<Value> {
    range.filter(|range| !range.contains('/')).map(|range| json!(range))
}

/// Returns a range that GKE creates: `10.4.0.0/14`, or its size, `/20`.
fn sized_range(range: Option<&String>) -> Option<Value> {
    range.filter(|range| range.contains('/')).map(|range| json!(range))
}

fn given_text(live: &Value) -> Option<String> {
    Some(text(live).to_owned()).filter(|text| !text.is_empty())
}

pub const RULES: &[&Rule] = &field::rules::<Cluster, { field::count(FIELDS) }>(FIELDS);

/// Returns the name of a network or subnetwork that is not the default.
fn other_network(live: &Value) -> Option<String> {
    let name = text(live).rsplit('/').next().unwrap_or_default();
    (!name.is_empty() && name != "default").then(|| name.to_owned())
}
