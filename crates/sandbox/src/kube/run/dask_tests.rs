use super::super::testing::{World, pool};
use super::*;
use crate::kube::object::Key;
use crate::kube::object::{controller, is_owned_by};

const MARKER: &str = "kopf.zalando.org/KopfFinalizerMarker";

/// A cluster of ordinary nodes with the operator running.
fn world() -> World {
    let mut world = World::with_dask(vec![pool("p", "e2-standard-16", 2, json!({}))]);
    world.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "dask-operator"}}));
    world.create(operator(1));
    world.pass(120);
    world
}

fn operator(replicas: i64) -> Value {
    let labels =
        json!({"app.kubernetes.io/name": "dask-kubernetes-operator", "app.kubernetes.io/instance": "r"});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "dask-kubernetes-operator", "namespace": "dask-operator", "labels": labels},
        "spec": {
            "replicas": replicas, "strategy": {"type": "Recreate"}, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [
                {"name": "dask-kubernetes-operator", "image": "ghcr.io/dask/dask-kubernetes-operator:2026.3.0"},
            ]}},
        },
    })
}

fn stop_operator(world: &mut World) {
    let key = Key::new("apps", "deployments", "dask-operator", "dask-kubernetes-operator");
    world.merge(&key, &json!({"spec": {"replicas": 0}}));
    world.pass(30);
}

fn worker_section(replicas: i64) -> Value {
    json!({
        "replicas": replicas,
        "metadata": {"labels": {"tier": "worker"}, "annotations": {"w": "1"}},
        "spec": {"containers": [
            {"name": "worker", "image": "dask:1", "args": ["dask", "worker"], "env": [{"name": "A", "value": "b"}]},
            {"name": "side", "image": "side:1", "env": [{"name": "DASK_WORKER_NAME", "value": "mine"}]},
        ]},
    })
}

fn scheduler_section(service_type: &str) -> Value {
    json!({
        "metadata": {"labels": {"tier": "scheduler"}},
        "spec": {"containers": [{"name": "scheduler", "image": "dask:1", "args": ["dask", "scheduler"]}]},
        "service": {
            "type": service_type,
            "selector": {"dask.org/cluster-name": "c", "dask.org/component": "scheduler"},
            "ports": [
                {"name": "tcp-comm", "protocol": "TCP", "port": 8786, "targetPort": "tcp-comm"},
                {"name": "http-dashboard", "protocol": "TCP", "port": 8787, "targetPort": "http-dashboard"},
            ],
        },
    })
}

fn dask_cluster(cluster_name: &str, replicas: i64, service_type: &str) -> Value {
    json!({
        "apiVersion": "kubernetes.dask.org/v1", "kind": "DaskCluster",
        "metadata": {
            "name": cluster_name, "namespace": "default", "labels": {"team": "x"},
            "annotations": {"note": "n", "kubectl.kubernetes.io/last-applied-configuration": "{}"},
        },
        "spec": {"worker": worker_section(replicas), "scheduler": scheduler_section(service_type)},
    })
}

fn cluster_key() -> Key {
    Key::new(GROUP, "daskclusters", "default", "c")
}

fn group_key(group: &str) -> Key {
    Key::new(GROUP, "daskworkergroups", "default", group)
}

fn phase(world: &World) -> String {
    text(&world.get(GROUP, "daskclusters", "default", "c"), "/status/phase").to_owned()
}

fn workers(world: &World, group: &str) -> Vec<Value> {
    let all = world.all("apps", "deployments");
    all.into_iter().filter(|object| label(object, "dask.org/workergroup-name") == group).collect()
}

#[test]
fn children_are_what_the_real_operator_makes() {
    let mut world = world();
    world.create(dask_cluster("c", 2, "ClusterIP"));
    world.pass(120);
    let cluster = world.get(GROUP, "daskclusters", "default", "c");
    assert_eq!(phase(&world), "Running");
    assert_eq!(cluster["metadata"]["finalizers"], json!([MARKER]));
    assert!(annotation(&cluster, kopf::LAST_HANDLED).is_some_and(|text| text.ends_with("}\n")));

    let scheduler = world.get("apps", "deployments", "default", "c-scheduler");
    let want = json!({
        "team": "x", "tier": "scheduler", "dask.org/cluster-name": "c", "dask.org/component": "scheduler",
        "sidecar.istio.io/inject": "false",
    });
    assert_eq!(scheduler["metadata"]["labels"], want);
    assert_eq!(scheduler["spec"]["selector"]["matchLabels"], want);
    assert_eq!(scheduler["spec"]["template"]["metadata"]["labels"], want);
    assert_eq!(annotation(&scheduler, "note"), Some("n"));
    assert_eq!(annotation(&scheduler, "kubectl.kubernetes.io/last-applied-configuration"), None);
    assert_eq!(annotation(&scheduler, kopf::LAST_HANDLED), None);
    assert!(is_owned_by(&scheduler, &cluster));
    assert_eq!(number(&scheduler, "/spec/replicas"), Some(1));

    let service = world.get("", "services", "default", "c-scheduler");
    let want = json!({
        "team": "x", "tier": "scheduler", "dask.org/cluster-name": "c", "dask.org/component": "scheduler",
    });
    assert_eq!(service["metadata"]["labels"], want);
    assert_eq!(number(&service, "/spec/ports/1/port"), Some(8787));
    assert!(is_owned_by(&service, &cluster));

    let group = world.get(GROUP, "daskworkergroups", "default", "c-default");
    let want = json!({
        "team": "x", "tier": "worker", "dask.org/cluster-name": "c", "dask.org/component": "workergroup",
    });
    assert_eq!(group["metadata"]["labels"], want);
    assert_eq!((annotation(&group, "note"), annotation(&group, "w")), (Some("n"), Some("1")));
    assert_eq!(text(&group, "/spec/cluster"), "c");
    assert_eq!(group["metadata"]["finalizers"], Value::Null, "groups get no finalizer");
    assert!(is_owned_by(&group, &cluster));
}

#[test]
fn workers_carry_names_labels_and_environment() {
    let mut world = world();
    world.create(dask_cluster("c", 2, "ClusterIP"));
    world.pass(120);
    let group = world.get(GROUP, "daskworkergroups", "default", "c-default");
    let workers = workers(&world, "c-default");
    assert_eq!(workers.len(), 2);
    for worker in &workers {
        let id = name(worker).strip_prefix("c-default-worker-").expect("the group's name first");
        assert!(id.len() == 10 && id.chars().all(|c| c.is_ascii_hexdigit()), "{id}");
        let want = json!({
            "team": "x", "tier": "worker", "dask.org/cluster-name": "c", "dask.org/component": "worker",
            "dask.org/workergroup-name": "c-default", "sidecar.istio.io/inject": "false",
        });
        assert_eq!(worker["metadata"]["labels"], want);
        assert_eq!(worker["spec"]["selector"]["matchLabels"], want);
        assert!(is_owned_by(worker, &group));
        let containers = list(worker, "/spec/template/spec/containers");
        let address = json!({
            "name": "DASK_SCHEDULER_ADDRESS", "value": "tcp://c-scheduler.default.svc.cluster.local:8786",
        });
        let own = json!({"name": "A", "value": "b"});
        let named = json!({"name": "DASK_WORKER_NAME", "value": name(worker)});
        assert_eq!(containers[0]["env"], json!([own, named, address]));
        let kept = json!({"name": "DASK_WORKER_NAME", "value": "mine"});
        assert_eq!(containers[1]["env"], json!([kept, address]), "what is there stays");
    }
    let pods = world.pods("default");
    assert_eq!(pods.len(), 3);
    assert!(pods.iter().all(is_ready));
    let scheduler =
        pods.iter().find(|pod| label(pod, "dask.org/component") == "scheduler").expect("a scheduler");
    let key = Key::new("", "pods", "default", name(scheduler));
    let log = super::super::logs::log(&world.cluster, &key).expect("a log");
    let line = format!("Scheduler at:   tcp://{}:8786", text(scheduler, "/status/podIP"));
    assert!(log.contains(&line), "{log}");
}

#[test]
fn phases_come_in_order_and_depend_on_the_service() {
    let mut world = world();
    world.create(dask_cluster("c", 1, "ClusterIP"));
    let mut seen: Vec<String> = Vec::new();
    for _ in 0..20 {
        let now = phase(&world);
        if seen.last() != Some(&now) {
            seen.push(now);
        }
        world.now += jiff::SignedDuration::from_millis(500);
        world.pass(0);
    }
    assert_eq!(seen, ["", "Created", "Pending", "Running"]);

    let mut world = self::world();
    world.create(dask_cluster("c", 1, "LoadBalancer"));
    world.pass(20);
    assert_eq!(phase(&world), "Pending", "no address yet");
    world.pass(60);
    assert_eq!(phase(&world), "Running");
}

#[test]
fn nothing_happens_without_the_operator() {
    for off in ["never there", "switched off"] {
        let mut world = if off == "never there" { World::with_dask(Vec::new()) } else { world() };
        world.loops.scripts.imitate_operator = off == "never there";
        world.create(dask_cluster("c", 1, "ClusterIP"));
        world.pass(120);
        let cluster = world.get(GROUP, "daskclusters", "default", "c");
        assert_eq!(cluster.get("status"), None, "{off}");
        assert!(workers(&world, "c-default").is_empty(), "{off}");
    }
}

#[test]
fn scaling_goes_through_the_default_group() {
    let mut world = world();
    world.create(dask_cluster("c", 2, "ClusterIP"));
    world.pass(120);
    for wanted in [4, 1, 0, 2] {
        world.merge(&cluster_key(), &json!({"spec": {"worker": {"replicas": wanted}}}));
        world.pass(60);
        let group = world.get(GROUP, "daskworkergroups", "default", "c-default");
        assert_eq!(number(&group, "/spec/worker/replicas"), Some(wanted));
        assert_eq!(workers(&world, "c-default").len(), usize::try_from(wanted).expect("small"));
    }
}

#[test]
fn other_edits_reach_nobody_and_lost_children_stay_lost() {
    let mut world = world();
    world.create(dask_cluster("c", 2, "ClusterIP"));
    world.pass(120);
    let before = world.get("apps", "deployments", "default", "c-scheduler")["spec"].clone();
    let group = world.get(GROUP, "daskworkergroups", "default", "c-default")["spec"].clone();
    world.merge(
        &cluster_key(),
        &json!({
            "metadata": {"labels": {"team": "y"}},
            "spec": {
                "scheduler": {"spec": {"containers": [{"name": "scheduler", "image": "dask:2"}]}},
                "worker": {"spec": {"containers": [{"name": "worker", "image": "dask:2"}]}},
            },
        }),
    );
    let lost = workers(&world, "c-default").remove(0);
    world.delete(&Key::new("apps", "deployments", "default", name(&lost)));
    world.pass(120);
    assert_eq!(world.get("apps", "deployments", "default", "c-scheduler")["spec"], before);
    assert_eq!(world.get(GROUP, "daskworkergroups", "default", "c-default")["spec"], group);
    assert_eq!(workers(&world, "c-default").len(), 1);
    // Status is ordinary data: setting the phase back makes what is missing, and only that.
    world.delete(&Key::new("apps", "deployments", "default", "c-scheduler"));
    world.merge(&cluster_key(), &json!({"status": {"phase": "Created"}}));
    world.pass(60);
    let made = world.get("apps", "deployments", "default", "c-scheduler");
    assert_eq!(text(&made, "/spec/template/spec/containers/0/image"), "dask:2");
    assert_eq!(world.get(GROUP, "daskworkergroups", "default", "c-default")["spec"], group);
}

#[test]
fn groups_of_others_are_adopted_even_when_they_come_first() {
    let mut world = world();
    let mut worker = worker_section(1);
    worker["metadata"] = json!({});
    world.create(json!({
        "apiVersion": "kubernetes.dask.org/v1", "kind": "DaskWorkerGroup",
        "metadata": {"name": "big", "namespace": "default"}, "spec": {"cluster": "c", "worker": worker},
    }));
    world.pass(10);
    world.create(dask_cluster("c", 1, "ClusterIP"));
    world.pass(30);
    assert!(workers(&world, "big").is_empty(), "tried again only after a minute");
    world.pass(60);
    let group = world.get(GROUP, "daskworkergroups", "default", "big");
    let owner = controller(&group).expect("adopted");
    assert_eq!((text(owner, "/kind"), text(owner, "/name")), ("DaskCluster", "c"));
    assert_eq!(workers(&world, "big").len(), 1);
    assert_eq!(label(&workers(&world, "big")[0], "team"), "x", "the cluster's labels are added");
    world.merge(&group_key("big"), &json!({"spec": {"worker": {"replicas": 3}}}));
    world.pass(30);
    assert_eq!(workers(&world, "big").len(), 3);
}

#[test]
fn deletion_waits_for_a_living_operator() {
    let mut world = world();
    world.create(dask_cluster("c", 1, "ClusterIP"));
    world.pass(120);
    stop_operator(&mut world);
    world.delete(&cluster_key());
    world.pass(600);
    let cluster = world.get(GROUP, "daskclusters", "default", "c");
    assert_eq!(cluster["metadata"]["finalizers"], json!([MARKER]), "stuck");
    assert_ne!(world.get("apps", "deployments", "default", "c-scheduler"), Value::Null);
    let key = Key::new("apps", "deployments", "dask-operator", "dask-kubernetes-operator");
    world.merge(&key, &json!({"spec": {"replicas": 1}}));
    world.pass(60);
    assert_eq!(world.get(GROUP, "daskclusters", "default", "c"), Value::Null);
    assert_eq!(world.names("apps", "deployments", "default"), Vec::<String>::new());
    assert_eq!(world.names(GROUP, "daskworkergroups", "default"), Vec::<String>::new());
    assert_eq!(world.get("", "services", "default", "c-scheduler"), Value::Null);
    assert_eq!(world.names("", "pods", "default"), Vec::<String>::new());
}

#[test]
fn names_that_are_too_long_end_in_error() {
    let fifty_four = "c".repeat(54);
    for (cluster_name, want) in
        [("c".repeat(53).as_str(), true), (&fifty_four, false), ("a.b", false), ("a-", false), ("9a-b", true)]
    {
        assert_eq!(is_cluster_name(cluster_name), want, "{cluster_name}");
    }
    let mut world = world();
    world.create(dask_cluster(&fifty_four, 1, "ClusterIP"));
    world.pass(60);
    let cluster = world.get(GROUP, "daskclusters", "default", &fifty_four);
    assert_eq!(text(&cluster, "/status/phase"), "Error");
    assert!(world.names("apps", "deployments", "default").is_empty());
}

#[test]
fn an_autoscaler_is_adopted_and_shrinks_an_idle_cluster() {
    let mut world = world();
    world.create(dask_cluster("c", 4, "ClusterIP"));
    world.pass(120);
    world.create(json!({
        "apiVersion": "kubernetes.dask.org/v1", "kind": "DaskAutoscaler",
        "metadata": {"name": "a", "namespace": "default"}, "spec": {"cluster": "c", "minimum": 2, "maximum": 5},
    }));
    world.pass(10);
    let scaler = world.get(GROUP, "daskautoscalers", "default", "a");
    assert_eq!(scaler["metadata"]["finalizers"], json!([MARKER]));
    assert_eq!(controller(&scaler).map(|owner| text(owner, "/name")), Some("c"));
    assert_eq!(workers(&world, "c-default").len(), 3, "a quarter at a time");
    assert!(annotation(&world.get(GROUP, "daskautoscalers", "default", "a"), COOLDOWN).is_some());
    world.pass(60);
    assert_eq!(workers(&world, "c-default").len(), 2);
    let cluster = world.get(GROUP, "daskclusters", "default", "c");
    assert_eq!(number(&cluster, "/spec/worker/replicas"), Some(4), "the cluster's own number stays");
    world.merge(&Key::new(GROUP, "daskautoscalers", "default", "a"), &json!({"spec": {"minimum": 5}}));
    world.pass(60);
    assert_eq!(workers(&world, "c-default").len(), 5);
}

#[test]
fn a_job_runs_and_takes_its_cluster_down() {
    let mut world = world();
    world.create(json!({
        "apiVersion": "kubernetes.dask.org/v1", "kind": "DaskJob",
        "metadata": {"name": "c", "namespace": "default", "labels": {"team": "x"}},
        "spec": {
            "job": {"spec": {"restartPolicy": "Never", "containers": [{"name": "job", "image": "dask:1"}]}},
            "cluster": {"spec": {"worker": worker_section(1), "scheduler": scheduler_section("ClusterIP")}},
        },
    }));
    world.pass(10);
    let runner = world.get("", "pods", "default", "c-runner");
    assert_eq!(label(&runner, "dask.org/component"), "job-runner");
    let env = json!([{
        "name": "DASK_SCHEDULER_ADDRESS", "value": "tcp://c-scheduler.default.svc.cluster.local:8786",
    }]);
    assert_eq!(runner["spec"]["containers"][0]["env"], env);
    let job = world.get(GROUP, "daskjobs", "default", "c");
    assert!(is_owned_by(&world.get(GROUP, "daskclusters", "default", "c"), &job));
    world.pass(30);
    let job = world.get(GROUP, "daskjobs", "default", "c");
    assert_eq!(text(&job, "/status/jobStatus"), "Running");
    assert_eq!(text(&job, "/status/jobRunnerPodName"), "c-runner");
    world.pass(120);
    let job = world.get(GROUP, "daskjobs", "default", "c");
    assert_eq!(text(&job, "/status/jobStatus"), "Successful");
    assert!(!text(&job, "/status/endTime").is_empty());
    assert_eq!(world.get(GROUP, "daskclusters", "default", "c"), Value::Null);
    assert_eq!(text(&world.get("", "pods", "default", "c-runner"), "/status/phase"), "Succeeded");
}

#[test]
fn writes_carry_the_names_of_the_operators_clients() {
    let mut world = world();
    world.create(dask_cluster("c", 1, "ClusterIP"));
    world.pass(120);
    let managers = |object: &Value| -> Vec<String> {
        let entries = list(object, "/metadata/managedFields");
        let mut names: Vec<String> = entries
            .iter()
            .map(|entry| format!("{} {}", text(entry, "/manager"), text(entry, "/operation")))
            .collect();
        names.sort();
        names.dedup();
        names
    };
    let cluster = world.get(GROUP, "daskclusters", "default", "c");
    assert_eq!(managers(&cluster), ["kopf Update", "kr8s Update", "test Update"]);
    let group = world.get(GROUP, "daskworkergroups", "default", "c-default");
    assert_eq!(managers(&group), ["kopf Update", "kr8s Update"]);
}
