//! Google's own client as a judge: what we plan for GKE fits its types and comes back from them without loss, and it
//! drives the served sandbox.

#![allow(clippy::unwrap_used, reason = "test code outside of test functions")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use google_cloud_auth::credentials::anonymous;
use google_cloud_container_v1::client::ClusterManager;
use google_cloud_container_v1::model;
use google_cloud_container_v1::model::operation::Status;
use plan::Plan;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::clients::gcloud_oracle::{Request, fields, planned_intents, writes};
use crate::control_plane::contract::fits;
use crate::planned::planned_cases;
use crate::sandbox::recorded_gke::fast;
use crate::sandbox_server::SandboxServer;

/// Fewer bodies would be a loss.
const LEAST_BODIES: usize = 200;

/// Fields that the client's types lose: `METHOD PATH FIELD`, and why. May only get shorter.
const LOST: &[(&str, &str)] = &[];

/// A body through the type of its request: what comes back, or why it does not fit.
fn round_trip<T: DeserializeOwned + Serialize + std::fmt::Debug>(body: &Value) -> Result<Value, String> {
    let typed: T = serde_json::from_value(body.clone()).map_err(|error| error.to_string())?;
    // Both are kept and sent again, and still mean that the client does not know them.
    let shown = format!("{typed:?}");
    for unknown in ["_unknown_fields", "UnknownValue"] {
        if let Some((_, rest)) = shown.split_once(unknown) {
            return Err(format!("{unknown}{}", rest.chars().take(120).collect::<String>()));
        }
    }
    serde_json::to_value(&typed).map_err(|error| error.to_string())
}

fn typed(request: &Request) -> Result<Value, String> {
    let Request { method, path, body } = request;
    let last = path.rsplit('/').next().unwrap_or_default();
    let of_pool = path.contains("/nodePools");
    match (method.as_str(), last.split_once(':').map(|(_, verb)| verb)) {
        ("POST", None) if last == "clusters" => round_trip::<model::CreateClusterRequest>(body),
        ("POST", None) if last == "nodePools" => round_trip::<model::CreateNodePoolRequest>(body),
        ("PUT", None) if of_pool => round_trip::<model::UpdateNodePoolRequest>(body),
        ("PUT", None) => round_trip::<model::UpdateClusterRequest>(body),
        ("POST", Some("setSize")) => round_trip::<model::SetNodePoolSizeRequest>(body),
        ("POST", Some("setAutoscaling")) => round_trip::<model::SetNodePoolAutoscalingRequest>(body),
        ("POST", Some("setManagement")) => round_trip::<model::SetNodePoolManagementRequest>(body),
        ("POST", Some("setResourceLabels")) => round_trip::<model::SetLabelsRequest>(body),
        ("POST", Some("setMaintenancePolicy")) => round_trip::<model::SetMaintenancePolicyRequest>(body),
        ("POST", Some("setNetworkPolicy")) => round_trip::<model::SetNetworkPolicyRequest>(body),
        ("POST", Some("setLegacyAbac")) => round_trip::<model::SetLegacyAbacRequest>(body),
        _ => Err("no type is known for this request".to_owned()),
    }
}

/// Names of enums go out as numbers.
fn is_enum(sent: &str, back: &str) -> bool {
    let name = |word: &str| word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
    let number = |word: &str| word.parse::<u32>().is_ok();
    sent.split(", ").all(|word| name(word) && !number(word))
        && back.split(", ").all(number)
        && sent.split(", ").count() == back.split(", ").count()
}

/// Shares of one are single floats in Google's messages.
fn is_float(sent: &str, back: &str) -> bool {
    let float = |word: &str| word.contains('.').then(|| word.parse::<f32>().ok()).flatten();
    float(sent).is_some() && float(sent) == float(back)
}

/// The fields that do not come back.
fn lost_fields(request: &Request) -> Result<Vec<String>, String> {
    let (sent, back) = (fields(&request.body), fields(&typed(request)?));
    // An empty map and none are one in Google's messages: it is how labels are cleared.
    let is_empty = |value: &String| value == "{}";
    let same = |field: &str, value: &String| match back.get(field) {
        Some(b) => b == value || is_enum(value, b) || is_float(value, b),
        None => is_empty(value),
    };
    let mut found: Vec<String> = sent
        .iter()
        .filter(|(field, value)| !same(field, value))
        .map(|(field, value)| format!("{field} ({value}, {:?})", back.get(field.as_str())))
        .collect();
    found.extend(
        back.iter()
            .filter(|(field, value)| !sent.contains_key(*field) && !is_empty(value))
            .map(|(field, _)| format!("{field} (new)")),
    );
    Ok(found)
}

#[test]
fn what_is_planned_fits_the_types_of_googles_client() {
    let plans: Vec<(String, &Plan)> = planned_cases().chain(planned_intents()).collect();
    let of = |(name, plan): &(String, &Plan)| -> Vec<(String, Request)> {
        writes(plan, None).into_iter().map(|request| (name.clone(), request)).collect()
    };
    let writes: Vec<(String, Request)> =
        plans.iter().flat_map(of).filter(|(_, request)| !request.body.is_null()).collect();
    let mut idle: BTreeSet<&str> = LOST.iter().map(|(at, _)| *at).collect();
    let mut wrong = Vec::new();
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, request) in &writes {
        let Request { method, path, .. } = request;
        let kind = path.rsplit_once(':').map_or(method.as_str(), |(_, verb)| verb);
        *kinds.entry(kind).or_default() += 1;
        match lost_fields(request) {
            Err(why) => wrong.push(format!("{name} {method} {path}: {why}")),
            Ok(fields) => {
                for field in fields {
                    let place = format!("{method} {path} {field}");
                    match LOST.iter().find(|(at, _)| fits(at, &place)) {
                        Some((at, _)) => drop(idle.remove(at)),
                        None => wrong.push(format!("{name} {place}")),
                    }
                }
            }
        }
    }
    println!("{} bodies of {} plans: {kinds:?}", writes.len(), plans.len());
    assert!(wrong.is_empty(), "{} things are wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(idle.is_empty(), "these come back now, take them off the list: {idle:?}");
    assert!(writes.len() >= LEAST_BODIES, "only {} bodies", writes.len());
}

const PLACE: &str = "projects/demo/locations/us-central1-c";

/// Asks until an operation is done.
async fn wait_for_operation(client: &ClusterManager, operation: model::Operation) {
    let name = format!("{PLACE}/operations/{}", operation.name);
    for _ in 0..600 {
        let now = client.get_operation().set_name(&name).send().await.unwrap();
        if now.status == Status::Done {
            assert!(now.error.is_none(), "{now:?}");
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{name} does not end");
}

#[tokio::test(flavor = "multi_thread")]
#[allow(deprecated, reason = "the number of nodes is said nowhere else without Compute Engine")]
async fn googles_client_drives_the_sandbox() {
    // Fails when another test was first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let served = SandboxServer::with(fast());
    let client = ClusterManager::builder()
        .with_endpoint(&served.gke)
        .with_credentials(anonymous::Builder::new().build())
        .build()
        .await
        .unwrap();
    let cluster = format!("{PLACE}/clusters/c");
    let pool = |name: &str| format!("{cluster}/nodePools/{name}");
    let list = || async {
        let list = client.list_clusters().set_parent("projects/demo/locations/-").send().await.unwrap();
        list.clusters.into_iter().map(|cluster| cluster.name).collect::<Vec<_>>()
    };
    assert_eq!(list().await, [""; 0]);

    let first: model::NodePool = serde_json::from_value(json!({
        "name": "cpu", "initialNodeCount": 1, "config": { "machineType": "e2-standard-4" },
    }))
    .unwrap();
    let wanted = model::Cluster::new()
        .set_name("c")
        .set_release_channel(
            model::ReleaseChannel::new().set_channel(model::release_channel::Channel::Stable),
        )
        .set_node_pools([first]);
    wait_for_operation(
        &client,
        client.create_cluster().set_parent(PLACE).set_cluster(wanted).send().await.unwrap(),
    )
    .await;
    assert_eq!(list().await, ["c"]);
    let made = client.get_cluster().set_name(&cluster).send().await.unwrap();
    assert_eq!(made.status, model::cluster::Status::Running);
    assert_eq!(made.release_channel.unwrap().channel, model::release_channel::Channel::Stable);
    assert_eq!(made.current_node_count, 1);

    let gpu: model::NodePool = serde_json::from_value(json!({
        "name": "gpu", "initialNodeCount": 1,
        "config": {
            "machineType": "g2-standard-4",
            "accelerators": [{ "acceleratorType": "nvidia-l4", "acceleratorCount": "1" }],
        },
    }))
    .unwrap();
    let request = client.create_node_pool().set_parent(&cluster).set_node_pool(gpu);
    wait_for_operation(&client, request.send().await.unwrap()).await;
    let request = client.set_node_pool_size().set_name(pool("gpu")).set_node_count(2);
    wait_for_operation(&client, request.send().await.unwrap()).await;
    let read = client.get_node_pool().set_name(pool("gpu")).send().await.unwrap();
    let config = read.config.unwrap();
    assert_eq!((read.status, config.accelerators.len()), (model::node_pool::Status::Running, 1));
    assert_eq!(config.accelerators[0].accelerator_count, 1);
    let read = client.get_cluster().set_name(&cluster).send().await.unwrap();
    assert_eq!(read.current_node_count, 3);

    let update = model::ClusterUpdate::new().set_desired_locations(["us-central1-a", "us-central1-c"]);
    wait_for_operation(
        &client,
        client.update_cluster().set_name(&cluster).set_update(update).send().await.unwrap(),
    )
    .await;
    let pools = client.list_node_pools().set_parent(&cluster).send().await.unwrap().node_pools;
    assert_eq!(pools.iter().map(|pool| pool.name.as_str()).collect::<Vec<_>>(), ["cpu", "gpu"]);
    let operations = client.list_operations().set_parent(PLACE).send().await.unwrap().operations;
    assert!(
        operations.len() >= 4 && operations.iter().all(|one| one.status == Status::Done),
        "{operations:?}"
    );
    let config = client.get_server_config().set_name(PLACE).send().await.unwrap();
    assert!(!config.default_cluster_version.is_empty() && !config.channels.is_empty());

    wait_for_operation(&client, client.delete_node_pool().set_name(pool("gpu")).send().await.unwrap()).await;
    let gone = client.get_node_pool().set_name(pool("gpu")).send().await.unwrap_err();
    assert_eq!(gone.http_status_code(), Some(404), "{gone:?}");
    wait_for_operation(&client, client.delete_cluster().set_name(&cluster).send().await.unwrap()).await;
    assert_eq!(list().await, [""; 0]);
}
