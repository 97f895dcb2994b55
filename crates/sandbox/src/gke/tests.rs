//! GKE's behavior as a client sees it, call by call.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{ClusterId, Gke, Quota, Reply, Request, Settings, Stockout};

const CLUSTERS: &str = "/v1/projects/p/locations/us-central1-c/clusters";
const C: &str = "/v1/projects/p/locations/us-central1-c/clusters/c";

/// A GKE with a clock that moves when told.
struct Bench {
    gke: Gke,
    settings: Settings,
    now: Timestamp,
}

impl Bench {
    fn new() -> Self {
        Self {
            gke: Gke::new(),
            settings: Settings::default(),
            now: "2026-11-21T09:00:00Z".parse().expect("a time"),
        }
    }

    /// With one cluster `c` that has one CPU node.
    fn with_cluster() -> Self {
        let mut bench = Self::new();
        bench.done("POST", CLUSTERS, json!({"cluster": {"name": "c", "initialNodeCount": 1}}));
        bench
    }

    fn call(&mut self, method: &str, path: &str, body: Value) -> Reply {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        self.gke.handle(self.now, &self.settings, Request { method, path, query, body: &body })
    }

    fn get(&mut self, path: &str) -> Value {
        let reply = self.call("GET", path, Value::Null);
        assert_eq!(reply.code, 200, "{path}: {}", reply.body);
        reply.body
    }

    /// Starts an operation and gives its name.
    fn start(&mut self, method: &str, path: &str, body: Value) -> String {
        let reply = self.call(method, path, body);
        assert_eq!(reply.code, 200, "{method} {path}: {}", reply.body);
        let is_of_a_pool = reply.body["targetLink"].as_str().is_some_and(|link| link.contains("/nodePools/"));
        assert_eq!(reply.body["status"], if is_of_a_pool { "PENDING" } else { "RUNNING" });
        assert_eq!(reply.body["progress"], Value::Null);
        reply.body["name"].as_str().expect("a name").to_owned()
    }

    /// Lets seconds of the real service pass.
    fn pass(&mut self, seconds: f64) {
        self.now += self.settings.scale.real(seconds);
        self.gke.tick(self.now, &self.settings);
    }

    fn operation(&mut self, name: &str) -> Value {
        self.get(&format!("/v1/projects/p/locations/us-central1-c/operations/{name}"))
    }

    /// Starts an operation and lets it end; gives it as it ended.
    fn done(&mut self, method: &str, path: &str, body: Value) -> Value {
        let name = self.start(method, path, body);
        for _ in 0..200 {
            self.pass(10.0);
            let operation = self.operation(&name);
            if operation["status"] == "DONE" {
                return operation;
            }
        }
        panic!("{name} does not end");
    }

    /// The code and message of a refusal.
    fn refused(&mut self, method: &str, path: &str, body: Value) -> (u16, String) {
        let reply = self.call(method, path, body);
        assert_ne!(reply.code, 200, "{method} {path}: {}", reply.body);
        assert_eq!(reply.body["error"]["code"], reply.code);
        assert_eq!(reply.body["error"]["errors"][0]["message"], reply.body["error"]["message"]);
        (reply.code, reply.body["error"]["message"].as_str().expect("a message").to_owned())
    }

    fn pool(&mut self, name: &str) -> Value {
        self.get(&format!("{C}/nodePools/{name}"))
    }
}

fn gpu_pool(name: &str, nodes: u32) -> Value {
    json!({"nodePool": {
        "name": name, "initialNodeCount": nodes,
        "config": {
            "machineType": "n1-standard-2",
            "accelerators": [{"acceleratorType": "nvidia-tesla-t4", "acceleratorCount": "1"}],
        },
    }})
}

#[test]
fn a_cluster_comes_up_and_goes() {
    let mut bench = Bench::new();
    let (code, text) = bench.refused("GET", C, Value::Null);
    assert_eq!((code, &*text), (404, "Not found: projects/p/zones/us-central1-c/clusters/c."));
    let name = bench.start("POST", CLUSTERS, json!({"cluster": {"name": "c", "initialNodeCount": 2}}));
    assert_eq!(bench.get(C)["status"], "PROVISIONING");
    assert_eq!(bench.get(C)["endpoint"], Value::Null);
    bench.pass(160.0);
    let metrics = bench.operation(&name)["progress"]["metrics"].clone();
    assert_eq!(metrics[0], json!({"name": "CLUSTER_CONFIGURING", "intValue": "8"}));
    assert!(bench.get(C)["endpoint"].is_string());
    bench.pass(160.0);
    let cluster = bench.get(C);
    assert_eq!((&cluster["status"], &cluster["currentNodeCount"]), (&json!("RUNNING"), &json!(2)));
    assert_eq!(cluster["releaseChannel"]["channel"], "REGULAR");
    assert_eq!(
        bench.refused("POST", CLUSTERS, json!({"cluster": {"name": "c", "initialNodeCount": 2}})).0,
        409
    );
    let list = bench.get("/v1beta1/projects/p/locations/-/clusters");
    assert_eq!(list["clusters"][0]["name"], "c");
    let name = bench.start("DELETE", C, Value::Null);
    assert_eq!(bench.get(C)["status"], "STOPPING");
    bench.pass(200.0);
    assert_eq!(bench.operation(&name)["status"], "DONE");
    assert_eq!(bench.call("GET", C, Value::Null).code, 404);
    assert_eq!(bench.get("/v1/projects/p/locations/-/clusters"), json!({}));
}

#[test]
fn writes_exclude_each_other_as_gke_says() {
    let mut bench = Bench::new();
    let creating = bench.start("POST", CLUSTERS, json!({"cluster": {"name": "c", "initialNodeCount": 1}}));
    let (code, text) = bench.refused("POST", &format!("{C}/nodePools"), gpu_pool("a", 0));
    assert_eq!((code, text), (400, format!("Cluster is running incompatible operation {creating}.")));
    bench.pass(400.0);
    for name in ["a", "b", "d", "e", "f"] {
        bench.start("POST", &format!("{C}/nodePools"), gpu_pool(name, 0));
    }
    assert_eq!(bench.get(C)["status"], "RECONCILING");
    let (code, text) = bench.refused("POST", &format!("{C}/nodePools"), gpu_pool("g", 0));
    assert_eq!(code, 429);
    assert!(text.starts_with("Too many operations: cluster \"c\" hits the concurrent operations quota 5"));
    assert_eq!(bench.refused("POST", &format!("{C}/nodePools/a:setSize"), json!({"nodeCount": 1})).0, 400);
    let reply = bench.call("DELETE", C, Value::Null);
    assert_eq!(reply.body["error"]["details"][0]["reason"], "CLUSTER_ALREADY_HAS_OPERATION");
}

#[test]
fn the_gpu_taint_depends_on_the_order_of_pools() {
    let mut bench = Bench::with_cluster();
    bench.done("POST", &format!("{C}/nodePools"), gpu_pool("t4", 0));
    let taint = json!([{"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}]);
    assert_eq!(bench.pool("t4")["config"]["taints"], taint);
    let mut first = gpu_pool("default-pool", 1);
    let cluster = json!({"cluster": {"name": "gpu", "nodePools": [first["nodePool"].take()]}});
    bench.done("POST", CLUSTERS, cluster);
    let pools = format!("{CLUSTERS}/gpu/nodePools");
    assert_eq!(bench.get(&format!("{pools}/default-pool"))["config"]["taints"], Value::Null);
    bench.done("POST", &pools, gpu_pool("second", 0));
    assert_eq!(bench.get(&format!("{pools}/second"))["config"]["taints"], Value::Null);
}

#[test]
fn arm_machines_are_tainted_unless_the_pool_refuses_it() {
    let mut bench = Bench::with_cluster();
    let arm = |name: &str, behavior: &str| {
        let config =
            json!({"machineType": "t2a-standard-2", "taintConfig": {"architectureTaintBehavior": behavior}});
        json!({"nodePool": {"name": name, "initialNodeCount": 0, "config": config}})
    };
    bench.done("POST", &format!("{C}/nodePools"), arm("arm", "ARM"));
    bench.done("POST", &format!("{C}/nodePools"), arm("open", "NONE"));
    let taint = json!([{"key": "kubernetes.io/arch", "value": "arm64", "effect": "NO_SCHEDULE"}]);
    assert_eq!(bench.pool("arm")["config"]["taints"], taint);
    assert_eq!(bench.pool("open")["config"]["taints"], Value::Null);
}

#[test]
fn an_unset_driver_is_the_default_one_from_a_version_on() {
    let mut bench = Bench::new();
    for (name, version, want) in [
        ("new", "1.30.5-gke.1014001", json!({"gpuDriverVersion": "DEFAULT"})),
        ("old", "1.29.15-gke.1523000", Value::Null),
    ] {
        let pool = gpu_pool("default-pool", 1)["nodePool"].clone();
        let cluster = json!({"cluster": {
            "name": name, "initialClusterVersion": version, "nodePools": [pool],
            "releaseChannel": {"channel": "UNSPECIFIED"},
        }});
        bench.done("POST", CLUSTERS, cluster);
        let found = bench.get(&format!("{CLUSTERS}/{name}/nodePools/default-pool"));
        assert_eq!(found["config"]["accelerators"][0]["gpuDriverInstallationConfig"], want, "{name}");
    }
}

#[test]
fn updates_replace_what_they_name_and_nothing_else() {
    let mut bench = Bench::with_cluster();
    let mut create = gpu_pool("a", 1);
    create["nodePool"]["config"]["labels"] = json!({"x": "1"});
    bench.done("POST", &format!("{C}/nodePools"), create);
    let pool = format!("{C}/nodePools/a");
    bench.done("PUT", &pool, json!({"labels": {"labels": {"y": "2"}}}));
    assert_eq!(bench.pool("a")["config"]["labels"], json!({"y": "2"}));
    bench.done("PUT", &pool, json!({"labels": {"labels": {}}, "name": "ignored"}));
    assert_eq!(bench.pool("a")["config"]["labels"], Value::Null);
    let taints = bench.pool("a")["config"]["taints"].clone();
    assert!(taints.is_array(), "the GPU taint is there");
    bench.done("PUT", &pool, json!({"taints": {"taints": [{"key": "k", "value": "v", "effect": 1}]}}));
    assert_eq!(bench.pool("a")["config"]["taints"][0]["effect"], "NO_SCHEDULE");
    assert_eq!(bench.pool("a")["config"]["taints"].as_array().map(Vec::len), Some(1));
    bench.done("PUT", &pool, json!({"resourceLabels": {"labels": {"team": "x"}}}));
    let labels = bench.pool("a")["config"]["resourceLabels"].clone();
    assert_eq!(labels, json!({"team": "x", "goog-gke-node-pool-provisioning-model": "on-demand"}));
    bench.done("PUT", &pool, json!({"upgradeSettings": {"maxUnavailable": 1}}));
    assert_eq!(bench.pool("a")["upgradeSettings"], json!({"maxUnavailable": 1, "strategy": "SURGE"}));
    let before = bench.pool("a")["config"]["accelerators"].clone();
    bench.done("PUT", &pool, json!({"accelerators": []}));
    assert_eq!(bench.pool("a")["config"]["accelerators"], before);
    let entry = |count: &str, kind: &str, driver: &str| {
        json!({"accelerators": [{"acceleratorCount": count, "acceleratorType": kind,
            "gpuDriverInstallationConfig": {"gpuDriverVersion": driver}}]})
    };
    let text = bench.refused("PUT", &pool, entry("2", "nvidia-tesla-t4", "LATEST")).1;
    assert_eq!(text, "Accelerator count: 2 should not be updated.");
    let text = bench.refused("PUT", &pool, entry("1", "nvidia-tesla-p4", "LATEST")).1;
    assert_eq!(text, "Accelerator type: nvidia-tesla-p4 should not be updated.");
    let ended = bench.done("PUT", &pool, entry("1", "nvidia-tesla-t4", "LATEST"));
    assert_eq!(ended["operationType"], "UPGRADE_NODES");
    let driver = bench.pool("a")["config"]["accelerators"][0]["gpuDriverInstallationConfig"].clone();
    assert_eq!(driver, json!({"gpuDriverVersion": "LATEST"}));
    let (code, text) = bench.refused("PUT", &pool, json!({"initialNodeCount": 3}));
    assert_eq!(code, 400);
    assert_eq!(text, "Invalid JSON payload received. Unknown name \"initialNodeCount\": Cannot find field.");
}

#[test]
fn a_stale_etag_or_fingerprint_is_refused() {
    let mut bench = Bench::with_cluster();
    let before = bench.get(C);
    let labels = |fingerprint: &Value| json!({"resourceLabels": {"a": "b"}, "labelFingerprint": fingerprint});
    bench.done("POST", &format!("{C}:setResourceLabels"), labels(&before["labelFingerprint"]));
    let after = bench.get(C);
    assert_eq!(after["resourceLabels"], json!({"a": "b"}));
    assert_ne!(after["labelFingerprint"], before["labelFingerprint"]);
    let (code, text) =
        bench.refused("POST", &format!("{C}:setResourceLabels"), labels(&before["labelFingerprint"]));
    assert_eq!(code, 400);
    assert!(text.contains("fingerprint"), "{text}");
    let update = |etag: &Value| json!({"update": {"desiredLoggingService": "none", "etag": etag}});
    assert_eq!(bench.refused("PUT", C, update(&before["etag"])).0, 409);
    bench.done("PUT", C, update(&after["etag"]));
    assert_eq!(bench.get(C)["loggingService"], "none");
}

#[test]
fn a_cluster_takes_one_change_a_request() {
    let mut bench = Bench::new();
    let old = json!({"name": "c", "initialNodeCount": 1, "initialClusterVersion": "1.33",
        "releaseChannel": {"channel": "REGULAR"}});
    bench.done("POST", CLUSTERS, json!({"cluster": old}));
    assert_eq!(bench.refused("PUT", C, json!({"update": {}})).1, "Must specify a field to update.");
    let two =
        json!({"update": {"desiredReleaseChannel": {"channel": "RAPID"}, "desiredLoggingService": "none"}});
    assert!(bench.refused("PUT", C, two).1.starts_with("Exactly one update"));
    let cases = [
        (json!({"desiredReleaseChannel": {"channel": "RAPID"}}), "/releaseChannel/channel", json!("RAPID")),
        (
            json!({"desiredWorkloadIdentityConfig": {"workloadPool": "p.svc.id.goog"}}),
            "/workloadIdentityConfig/workloadPool",
            json!("p.svc.id.goog"),
        ),
        (
            json!({"desiredDnsConfig": {"clusterDns": "CLOUD_DNS"}}),
            "/networkConfig/dnsConfig/clusterDns",
            json!("CLOUD_DNS"),
        ),
        (json!({"desiredMasterVersion": "1.34"}), "/currentMasterVersion", json!("1.34.1-gke.1829001")),
        (
            json!({"desiredLocations": ["us-central1-a", "us-central1-c"]}),
            "/locations",
            json!(["us-central1-a", "us-central1-c"]),
        ),
    ];
    for (update, pointer, want) in cases {
        bench.done("PUT", C, json!({"update": update}));
        assert_eq!(bench.get(C).pointer(pointer), Some(&want), "{pointer}");
    }
    bench.pass(60.0);
    assert_eq!(bench.get(C)["currentNodeCount"], 2, "the new zone got a node");
    assert_eq!(bench.get(C)["currentNodeVersion"], "1.33.5-gke.1201000", "nodes stay behind");
    let autoscaling = json!({"update": {
        "desiredNodePoolId": "default-pool",
        "desiredNodePoolAutoscaling": {"enabled": true, "totalMaxNodeCount": 5},
    }});
    bench.done("PUT", C, autoscaling);
    let want = json!({"enabled": true, "totalMaxNodeCount": 5, "locationPolicy": "BALANCED"});
    assert_eq!(bench.pool("default-pool")["autoscaling"], want);
}

#[test]
fn a_size_counts_in_every_zone() {
    let mut bench = Bench::new();
    let cluster = json!({"cluster": {"name": "r", "initialNodeCount": 1}});
    let regional = "/v1/projects/p/locations/us-central1/clusters";
    bench.start("POST", regional, cluster);
    bench.pass(400.0);
    assert_eq!(bench.get(&format!("{regional}/r"))["currentNodeCount"], 3);
    let pool = format!("{regional}/r/nodePools/default-pool");
    bench.start("POST", &format!("{pool}:setSize"), json!({"nodeCount": 2}));
    let link = bench.get(&pool)["instanceGroupUrls"][0].as_str().expect("a link").to_owned();
    let path = link.strip_prefix("https://www.googleapis.com").expect("a compute link").to_owned();
    assert_eq!(bench.get(&path)["targetSize"], 2);
    bench.pass(100.0);
    assert_eq!(bench.get(&format!("{regional}/r"))["currentNodeCount"], 6);
    let group = path.replace("instanceGroupManagers", "instanceGroups");
    assert_eq!(bench.get(&group)["size"], 2);
}

#[test]
fn too_many_gpus_are_refused_at_once() {
    let mut bench = Bench::with_cluster();
    bench.settings.quota = Quota { default: 8, limits: [("NVIDIA_T4_GPUS".to_owned(), 1)].into() };
    let (code, text) = bench.refused("POST", &format!("{C}/nodePools"), gpu_pool("a", 2));
    assert_eq!(code, 403);
    assert_eq!(
        text,
        "Insufficient regional quota to satisfy request: resource \"NVIDIA_T4_GPUS\": request requires '2.0' and \
         is short '1.0'. project has a quota of '1.0' with '1.0' available. View and manage quotas at \
         https://console.cloud.google.com/iam-admin/quotas?usage=USED&project=p."
    );
    bench.done("POST", &format!("{C}/nodePools"), gpu_pool("a", 1));
    assert_eq!(bench.refused("POST", &format!("{C}/nodePools"), gpu_pool("b", 1)).0, 403);
}

#[test]
fn a_pool_without_machines_stays_and_tries_again() {
    let mut bench = Bench::with_cluster();
    bench.gke.add_stockouts(vec![Stockout::next("a*", 1)]);
    let ended = bench.done("POST", &format!("{C}/nodePools"), gpu_pool("a", 1));
    let text = ended["statusMessage"].as_str().expect("a reason");
    assert!(text.contains("[GCE_STOCKOUT]"), "{text}");
    assert_eq!(ended["error"]["message"], text);
    let pool = bench.pool("a");
    assert_eq!((&pool["status"], &pool["conditions"][0]["code"]), (&json!("ERROR"), &json!("GCE_STOCKOUT")));
    bench.pass(200.0);
    assert_eq!(bench.pool("a")["status"], "RUNNING");
    let id = ClusterId::new("p", "us-central1-c", "c");
    let cluster = bench.gke.cluster(&id).expect("there");
    let views = bench.gke.pool_views(cluster);
    assert_eq!(views[1].target_sizes["us-central1-c"], 1);
}

#[test]
fn numbers_for_enums_go_both_ways() {
    let mut bench = Bench::with_cluster();
    assert_eq!(bench.get(&format!("{C}?%24alt=json%3Benum-encoding%3Dint"))["status"], 2);
    let channel = json!({"update": {"desiredReleaseChannel": {"channel": 3}}});
    bench.done("PUT", C, channel);
    assert_eq!(bench.get(C)["releaseChannel"]["channel"], "STABLE");
}

#[test]
fn what_is_wrong_is_refused_before_anything_happens() {
    let mut bench = Bench::with_cluster();
    let long = "a".repeat(41);
    let pools = format!("{C}/nodePools");
    let cases = [
        (CLUSTERS.to_owned(), json!({"cluster": {"name": long, "initialNodeCount": 1}}), "regex"),
        (
            CLUSTERS.to_owned(),
            json!({"cluster": {"name": "d"}}),
            "initial_node_count must be greater than zero",
        ),
        (
            "/v1/projects/p/locations/mars1-a/clusters".to_owned(),
            json!({"cluster": {"name": "d", "initialNodeCount": 1}}),
            "Location \"mars1-a\" does not exist.",
        ),
        (
            CLUSTERS.to_owned(),
            json!({"cluster": {"name": "d", "initialNodeCount": 1, "initialClusterVersion": "1.2"}}),
            "Master version \"1.2\" is unsupported.",
        ),
        (
            pools.clone(),
            json!({"nodePool": {"name": "a", "config": {"machineTyp": "e2-medium"}}}),
            "Unknown name \"machineTyp\" at 'node_pool.config'",
        ),
        (
            pools.clone(),
            json!({"nodePool": {"name": "a", "initialNodeCount": [1]}}),
            "Proto field is not repeating",
        ),
        (
            pools,
            json!({"nodePool": {"name": "a", "management": {"autoRepair": true}}}),
            "Auto_upgrade cannot be false when release_channel REGULAR is set.",
        ),
    ];
    for (path, body, want) in cases {
        let (code, text) = bench.refused("POST", &path, body);
        assert_eq!(code, 400, "{text}");
        assert!(text.contains(want), "{text}");
    }
    assert_eq!(bench.get(&format!("{C}/nodePools"))["nodePools"].as_array().map(Vec::len), Some(1));
}

#[test]
fn the_state_comes_back_from_its_entries() {
    let mut bench = Bench::with_cluster();
    let running = bench.start("POST", &format!("{C}/nodePools"), gpu_pool("a", 1));
    let entries = bench.gke.take_dirty().into_iter().filter_map(|(key, value)| Some((key, value?)));
    let restored = Gke::restore(entries).expect("readable");
    let cluster = bench.get(C);
    bench.gke = restored;
    assert_eq!(bench.get(C), cluster);
    assert!(bench.gke.take_dirty().is_empty(), "nothing changed");
    bench.now += SignedDuration::from_secs(10);
    assert_eq!(bench.operation(&running)["status"], "DONE");
    assert_eq!(bench.pool("a")["status"], "RUNNING");
}

#[test]
fn a_counter_that_would_overflow_is_damage() {
    let bench = Bench::with_cluster();
    let entries = bench.gke.snapshot();
    for (key, path) in [("meta", "/counter"), ("cluster/", "/revision"), ("cluster/", "/pools/0/revision")] {
        let mut entries = entries.clone();
        let (name, entry) = entries.iter_mut().find(|(name, _)| name.starts_with(key)).expect("an entry");
        let name = name.clone();
        *entry.pointer_mut(path).expect("a counter") = json!(u64::MAX);
        let why = Gke::restore(entries).expect_err("refused");
        assert!(why.contains(&name) && why.contains("18446744073709551615"), "{why}");
    }
}
