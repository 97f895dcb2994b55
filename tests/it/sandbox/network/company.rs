//! A company's project as one run: a private regional cluster in a shared VPC, behind a proxy, by its DNS endpoint, with the key
//! file of a service account.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::proxy::Authority;
use super::{EMAIL, World, ask, user};
use crate::sandbox_server::{RunningCommand, User};

const STACK: &str = r#"[stack]
name = "company"

[gke]
project = "demo"
location = "us-central1"

[cluster]
name = "net"
network = "projects/host/global/networks/shared"
subnetwork = "projects/host/regions/us-central1/subnetworks/gke"
pods_range = "pods"
services_range = "services"
private_nodes = true
public_endpoint = false
dns_endpoint = true
endpoint = "dns"
authorized_networks = { office = "10.0.0.0/8" }
workload_identity = true

[node_pool.system]
machine_type = "e2-standard-4"
nodes = 3

[node_pool.gpu]
machine_type = "g2-standard-8"
zones = ["us-central1-a"]
nodes = { min = 1, max = 3 }
labels = { team = "rapids" }

[namespace.team]
"#;
const CLUSTER: &str = "/v1/projects/demo/locations/us-central1/clusters/net";
/// The DNS endpoints of clusters there.
const NAMES: &str = "*.us-central1.gke.goog:443";

fn live(world: &World) -> Value {
    ask(&world.sandbox, http::Method::GET, CLUSTER, &Value::Null)
}

fn pool<'v>(cluster: &'v Value, name: &str) -> &'v Value {
    let pools = cluster["nodePools"].as_array().unwrap();
    pools.iter().find(|pool| pool["name"] == name).unwrap()
}

#[test]
fn a_companys_cluster_is_made_changed_imported_and_destroyed() {
    let world = World::new();
    world.opens(NAMES, &world.google);
    let user = user(STACK);
    world.run(&user, &["apply", "--auto-approve"]).expect(0);
    world.run(&user, &["plan", "--detailed-exitcode"]).expect(0);
    let made = live(&world);
    for (place, value) in [
        ("/networkConfig/network", json!("projects/host/global/networks/shared")),
        ("/networkConfig/subnetwork", json!("projects/host/regions/us-central1/subnetworks/gke")),
        ("/networkConfig/defaultEnablePrivateNodes", json!(true)),
        ("/ipAllocationPolicy/clusterSecondaryRangeName", json!("pods")),
        ("/ipAllocationPolicy/servicesSecondaryRangeName", json!("services")),
        ("/controlPlaneEndpointsConfig/dnsEndpointConfig/allowExternalTraffic", json!(true)),
        ("/workloadIdentityConfig/workloadPool", json!("demo.svc.id.goog")),
    ] {
        assert_eq!(made.pointer(place), Some(&value), "{place} of {made}");
    }
    assert_eq!(pool(&made, "gpu")["networkConfig"]["podRange"], "pods");

    user.edit("labels = { team = \"rapids\" }", "labels = { team = \"rapids\", tier = \"gpu\" }");
    user.edit("max = 3", "max = 4");
    user.edit("workload_identity = true", "workload_identity = true\ncost_allocation = true");
    user.edit("office = \"10.0.0.0/8\"", "office = \"10.0.0.0/8\", vpn = \"172.16.0.0/12\"");
    world.run(&user, &["apply", "--auto-approve"]).expect(0);
    world.run(&user, &["plan", "--detailed-exitcode"]).expect(0);
    let changed = live(&world);
    assert_eq!(pool(&changed, "gpu")["config"]["labels"]["tier"], "gpu");
    assert_eq!(pool(&changed, "gpu")["autoscaling"]["totalMaxNodeCount"], 4);
    assert_eq!(changed["costManagementConfig"]["enabled"], true);

    let other = User::empty();
    let place = ["--project", "demo", "--location", "us-central1", "--cluster", "net"];
    world.run(&other, &[&["import", "--endpoint", "dns"], &place[..]].concat()).expect(0);
    let text = other.stack();
    for line in [
        "endpoint = \"dns\"",
        "network = \"projects/host/global/networks/shared\"",
        "subnetwork = \"projects/host/regions/us-central1/subnetworks/gke\"",
        "pods_range = \"pods\"",
        "private_nodes = true",
        "public_endpoint = false",
        "dns_endpoint = true",
        "workload_identity = true",
        "cost_allocation = true",
    ] {
        assert!(text.lines().any(|known| known == line), "no {line} in\n{text}");
    }
    world.run(&other, &["plan", "--detailed-exitcode"]).expect(0);

    world.run(&user, &["destroy", "--auto-approve"]).expect(0);
    assert!(world.sandbox.clusters().is_empty());
    let hosts = world.proxy.hosts();
    assert!(hosts.iter().any(|host| host.ends_with(".us-central1.gke.goog:443")), "{hosts:?}");
    assert!(!hosts.iter().any(|host| host.starts_with("203.0.113.")), "{hosts:?}");
    let seen = [world.at_google.lock().unwrap().clone(), world.at_cluster.lock().unwrap().clone()].concat();
    assert!(seen.iter().all(|(bearer, _)| bearer == "Bearer ya29.Canary-token"));
    world.run(&user, &["doctor"]).says(EMAIL);
}

/// Of an address that nobody can reach from outside, import says what else there is.
#[test]
fn an_import_says_which_endpoints_a_cluster_has() {
    let world = World::new();
    world.opens(NAMES, &world.google);
    let user = user(&STACK.replace("public_endpoint = false\n", "ip_endpoints = false\n"));
    world.run(&user, &["apply", "--auto-approve"]).expect(0);
    let other = User::empty();
    let import =
        ["import", "--project", "demo", "--location", "us-central1", "--cluster", "net", "--out", "-"];
    let closed = world.run(&other, &[&import[..], &["--endpoint", "private"]].concat()).expect(1);
    closed.says("no private endpoint").says("--endpoint");
    let auto = world.run(&other, &import).expect(0);
    assert!(!auto.out.contains("\nendpoint ="), "{}", auto.out);
    let both = world.run(&other, &["import", "--context", "lab", "--endpoint", "dns"]).expect(1);
    both.says("--endpoint");
}

#[test]
fn a_certificate_that_is_not_trusted_ends_an_apply_at_once() {
    let world = World::new();
    world.opens(NAMES, &Authority::new());
    let user = user(STACK);
    let begun = Instant::now();
    let said = world.run(&user, &["apply", "--auto-approve"]).expect(1);
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    said.says("DI0608").says("invalid peer").says(".us-central1.gke.goog").says("SSL_CERT_FILE");
    world.opens(NAMES, &world.google);
    world.run(&user, &["apply", "--auto-approve"]).expect(0);
    world.run(&user, &["plan", "--detailed-exitcode"]).expect(0);
}

#[test]
fn a_name_that_leads_nowhere_yet_is_waited_for() {
    let world = World::new();
    let user = user(STACK);
    let apply = RunningCommand::of(world.command(&user, &["apply", "--auto-approve"]));
    let begun = Instant::now();
    while !world.proxy.hosts().iter().any(|host| host.contains(".gke.goog")) {
        assert!(begun.elapsed() < Duration::from_secs(120), "{:?}", world.proxy.hosts());
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(Duration::from_secs(1));
    world.opens(NAMES, &world.google);
    assert_eq!(apply.end(), Some(0));
}
