use super::super::testing::{World, pool};
use super::*;
use crate::kube::object::{Key, condition};

/// Kinds of Kueue with their plurals, and whether they lie in namespaces.
const KINDS: [(&str, &str, bool); 6] = [
    ("AdmissionCheck", "admissionchecks", false),
    ("ClusterQueue", "clusterqueues", false),
    ("LocalQueue", "localqueues", true),
    ("ProvisioningRequestConfig", "provisioningrequestconfigs", false),
    ("ResourceFlavor", "resourceflavors", false),
    ("Workload", "workloads", true),
];

fn definition((kind, plural, namespaced): (&str, &str, bool)) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": if namespaced { "Namespaced" } else { "Cluster" },
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
            "versions": [{
                "name": "v1beta2", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}

fn manager(frameworks: &str) -> [Value; 3] {
    let labels = json!({"app.kubernetes.io/name": "kueue"});
    let home = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}});
    let config = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "kueue-manager-config", "namespace": "kueue-system"},
        "data": {"controller_manager_config.yaml": format!("integrations:\n  frameworks:\n{frameworks}")},
    });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "kueue-controller-manager", "namespace": "kueue-system", "labels": labels},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "manager", "image": "kueue:1"}]}},
        },
    });
    [home, config, deployment]
}

fn queue(gpus: &str, strategy: &str) -> [Value; 3] {
    let api = "kueue.x-k8s.io/v1beta2";
    let flavor = json!({
        "apiVersion": api, "kind": "ResourceFlavor", "metadata": {"name": "p"},
        "spec": {"tolerations": [{"key": "q", "operator": "Exists", "effect": "NoSchedule"}]},
    });
    let quota = |name: &str, amount: &str| json!({"name": name, "nominalQuota": amount});
    let cluster_queue = json!({
        "apiVersion": api, "kind": "ClusterQueue", "metadata": {"name": "gpus"},
        "spec": {
            "namespaceSelector": {}, "queueingStrategy": strategy,
            "resourceGroups": [{
                "coveredResources": ["cpu", "memory", "example.com/gpu"],
                "flavors": [{"name": "p", "resources": [
                    quota("cpu", "100"), quota("memory", "100Gi"), quota("example.com/gpu", gpus),
                ]}],
            }],
        },
    });
    let local = json!({
        "apiVersion": api, "kind": "LocalQueue", "metadata": {"name": "gpus", "namespace": "default"},
        "spec": {"clusterQueue": "gpus"},
    });
    [flavor, cluster_queue, local]
}

/// A cluster with Kueue and one queue of four GPUs.
fn world_with(frameworks: &str) -> World {
    let mut world = World::new(vec![pool("p", "e2-standard-16", 2, json!({}))]);
    KINDS.into_iter().map(definition).for_each(|definition| drop(world.create(definition)));
    world.cluster.collect(world.now);
    manager(frameworks).into_iter().for_each(|object| drop(world.create(object)));
    world.pass(120);
    queue("4", "StrictFIFO").into_iter().for_each(|object| drop(world.create(object)));
    world.pass(5);
    world
}

fn world() -> World {
    world_with("  - batch/job\n  - pod\n")
}

/// A Deployment of one pod of a gang; `gpus` are asked for of a resource that no node has, so that nothing starts by itself.
fn member(gang: &str, part: &str, (count, gpus): (&str, i64)) -> Value {
    let labels = json!({"app": format!("{gang}-{part}"), QUEUE: "gpus", POD_GROUP: gang});
    let mut requests = json!({"cpu": "1"});
    if gpus > 0 {
        requests["example.com/gpu"] = json!(gpus.to_string());
    }
    let role = part.split('-').next().unwrap_or(part);
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": format!("{gang}-{part}"), "namespace": "default", "labels": labels},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels, "annotations": {COUNT: count, RETRIABLE: "false", ROLE: role}},
                "spec": {"containers": [{"name": "a", "image": "a:1", "resources": {"requests": requests, "limits": requests}}]},
            },
        },
    })
}

/// A scheduler and workers with one GPU each.
fn gang(world: &mut World, name: &str, workers: i64) {
    let count = (workers + 1).to_string();
    world.create(member(name, "scheduler", (&count, 0)));
    for worker in 0..workers {
        world.create(member(name, &format!("worker-{worker}"), (&count, 1)));
    }
}

fn gated(world: &World, gang: &str) -> (usize, usize) {
    let pods: Vec<Value> =
        world.pods("default").into_iter().filter(|pod| label(pod, POD_GROUP) == gang).collect();
    (pods.iter().filter(|pod| is_gated(pod)).count(), pods.len())
}

fn said(world: &World, workload: &str, ty: &str) -> String {
    let workload = world.get(GROUP, "workloads", "default", workload);
    let found = condition(&workload, ty).cloned().unwrap_or_default();
    format!("{} {}: {}", text(&found, "/status"), text(&found, "/reason"), text(&found, "/message"))
}

#[test]
fn a_gang_starts_whole_and_the_next_when_it_goes() {
    let mut world = world();
    gang(&mut world, "one", 3);
    world.pass(5);
    assert_eq!(gated(&world, "one"), (0, 4));
    assert_eq!(said(&world, "one", "Admitted"), "True Admitted: The workload is admitted");
    let workload = world.get(GROUP, "workloads", "default", "one");
    let sets: Vec<(&str, i64)> = list(&workload, "/spec/podSets")
        .iter()
        .map(|set| (text(set, "/name"), number(set, "/count").unwrap_or(0)))
        .collect();
    assert_eq!(sets, [("scheduler", 1), ("worker", 3)]);
    let pod = world.pods("default").into_iter().find(|pod| label(pod, POD_GROUP) == "one").unwrap();
    assert!(list(&pod, "/spec/tolerations").iter().any(|toleration| toleration["key"] == "q"), "{pod}");

    gang(&mut world, "two", 3);
    world.pass(5);
    assert_eq!(gated(&world, "two"), (4, 4));
    let expect = "False Pending: couldn't assign flavors to pod set worker: insufficient unused quota for example.com/gpu in \
                  flavor p, 2 more needed";
    assert_eq!(said(&world, "two", "QuotaReserved"), expect);
    let queue = world.get(GROUP, "clusterqueues", "", "gpus");
    let counts = ["pendingWorkloads", "admittedWorkloads"].map(|key| queue["status"][key].as_i64());
    assert_eq!(counts, [Some(1), Some(1)]);

    for part in ["scheduler", "worker-0", "worker-1", "worker-2"] {
        world.delete(&Key::new("apps", "deployments", "default", &format!("one-{part}")));
    }
    world.pass(60);
    assert_eq!(world.get(GROUP, "workloads", "default", "one"), Value::Null);
    assert_eq!((gated(&world, "one"), gated(&world, "two")), ((0, 0), (0, 4)));
}

#[test]
fn what_can_never_fit_and_what_is_not_complete_is_told() {
    let mut world = world();
    gang(&mut world, "large", 5);
    world.pass(5);
    let expect = "False Pending: couldn't assign flavors to pod set worker: insufficient quota for example.com/gpu in flavor \
                  p, previously considered podsets requests (0) + current podset request (5) > maximum capacity (4)";
    assert_eq!(said(&world, "large", "QuotaReserved"), expect);
    world.create(member("partly", "scheduler", ("3", 0)));
    world.pass(5);
    assert_eq!(world.get(GROUP, "workloads", "default", "partly"), Value::Null);
    let events = world.all("", "events");
    let told = events.iter().find(|event| text(event, "/reason") == "ErrWorkloadCompose").unwrap();
    assert_eq!(text(told, "/message"), "'partly' group has fewer runnable pods than expected");
}

#[test]
fn a_strict_queue_waits_for_its_oldest_work() {
    let mut world = world();
    gang(&mut world, "one", 3);
    world.pass(5);
    gang(&mut world, "two", 3);
    world.pass(5);
    gang(&mut world, "tiny", 1);
    world.pass(5);
    assert_eq!(gated(&world, "tiny"), (2, 2), "one GPU is free, and the older gang comes first");
    assert_eq!(said(&world, "tiny", "QuotaReserved"), " : ");
    world.merge(
        &Key::new(GROUP, "clusterqueues", "", "gpus"),
        &json!({"spec": {"queueingStrategy": "BestEffortFIFO"}}),
    );
    world.pass(5);
    assert_eq!((gated(&world, "tiny"), gated(&world, "two")), ((0, 2), (4, 4)));
}

#[test]
fn a_pod_that_is_too_many_goes() {
    let mut world = world();
    gang(&mut world, "one", 2);
    world.pass(5);
    world.create(member("one", "worker-9", ("3", 1)));
    world.pass(4);
    let events = world.all("", "events");
    assert!(events.iter().any(|event| text(event, "/reason") == "ExcessPodDeleted"));
    let workload = world.get(GROUP, "workloads", "default", "one");
    assert_eq!(number(&workload, "/spec/podSets/1/count"), Some(2));
}

#[test]
fn without_the_framework_pods_start_one_by_one() {
    let mut world = world_with("  - batch/job\n#  - pod\n");
    gang(&mut world, "one", 3);
    world.pass(5);
    assert_eq!(gated(&world, "one"), (0, 4));
    assert!(world.all(GROUP, "workloads").is_empty());
}

#[test]
fn a_parked_gang_gives_its_quota_back() {
    let mut world = world();
    gang(&mut world, "one", 3);
    world.pass(5);
    let place = Key::new(GROUP, "workloads", "default", "one");
    world.merge(&place, &json!({"spec": {"active": false}}));
    world.pass(60);
    assert_eq!(gated(&world, "one"), (4, 4));
    assert_eq!(said(&world, "one", "Evicted"), "True Deactivated: The workload is deactivated");
    world.merge(&place, &json!({"spec": {"active": true}}));
    world.pass(60);
    assert_eq!(gated(&world, "one"), (0, 4));
}

#[test]
fn a_job_is_suspended_until_it_is_admitted() {
    let mut world = world();
    gang(&mut world, "one", 4);
    world.pass(5);
    let requests = json!({"cpu": "1", "example.com/gpu": "1"});
    world.create(json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "j", "namespace": "default", "labels": {QUEUE: "gpus"}},
        "spec": {"template": {"spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "a", "image": "a:1", "resources": {"requests": requests, "limits": requests}}],
        }}},
    }));
    world.pass(5);
    let job = world.get("batch", "jobs", "default", "j");
    assert_eq!((&job["spec"]["suspend"], is_true(&job, "Suspended")), (&json!(true), true));
    let pods = world.pods("default");
    assert!(!pods.iter().any(|pod| name(pod).starts_with("j-")), "it has no pods");
    world.merge(
        &Key::new(GROUP, "clusterqueues", "", "gpus"),
        &json!({"spec": {"resourceGroups": queue("8", "StrictFIFO")[1]["spec"]["resourceGroups"]}}),
    );
    world.pass(5);
    let job = world.get("batch", "jobs", "default", "j");
    assert_eq!(job["spec"]["suspend"], false);
}
