use serde_json::{Value, json};

use super::pool::Sharing;
use super::*;
use crate::pod::PodRequirements;
use crate::{Cluster, Fit, Reason};

fn gpus(kind: &str, count: u32) -> Gpus {
    Gpus { kind: kind.to_owned(), count, partition: None, sharing: None, driver: Driver::Default }
}

fn of(pool: &Pool) -> Node {
    template(pool, "us-central1-c", Features::default()).unwrap()
}

fn verdict(pool: &Pool, limits: Value) -> Fit {
    let pod = json!({ "spec": { "containers": [{ "resources": { "limits": limits } }] } });
    let pod = PodRequirements::read(&pod, "default").unwrap().with_extended_resource_tolerations();
    Cluster::default().ask(&pod).verdict(&of(pool))
}

/// The labels of the dump of GKE 1.36 that are GKE's.
#[test]
fn labels_of_a_real_node() {
    let mut pool = Pool::new("n2-standard-4-v2", "n2-standard-4");
    pool.purchase = Purchase::Spot;
    pool.max_pods = 22;
    let features = Features { network_policy: true, node_local_dns: true, ..Features::default() };
    let node = template(&pool, "europe-west1-d", features).unwrap();
    let real = "addon.gke.io/node-local-dns-ds-ready=true beta.kubernetes.io/arch=amd64 \
        beta.kubernetes.io/instance-type=n2-standard-4 beta.kubernetes.io/os=linux cloud.google.com/gke-boot-disk=pd-balanced \
        cloud.google.com/gke-container-runtime=containerd cloud.google.com/gke-cpu-scaling-level=4 \
        cloud.google.com/gke-logging-variant=DEFAULT cloud.google.com/gke-max-pods-per-node=22 \
        cloud.google.com/gke-memory-gb-scaling-level=16 cloud.google.com/gke-netd-ready=true \
        cloud.google.com/gke-nodepool=n2-standard-4-v2 cloud.google.com/gke-os-distribution=cos \
        cloud.google.com/gke-provisioning=spot cloud.google.com/gke-spot=true cloud.google.com/gke-stack-type=IPV4 \
        cloud.google.com/machine-family=n2 cloud.google.com/private-node=false \
        disk-type.gke.io/hyperdisk-throughput=true disk-type.gke.io/pd-balanced=true disk-type.gke.io/pd-extreme=true \
        disk-type.gke.io/pd-ssd=true disk-type.gke.io/pd-standard=true failure-domain.beta.kubernetes.io/region=europe-west1 \
        failure-domain.beta.kubernetes.io/zone=europe-west1-d iam.gke.io/gke-metadata-server-enabled=true \
        kubernetes.io/arch=amd64 kubernetes.io/hostname=n2-standard-4-v2-europe-west1-d kubernetes.io/os=linux \
        node.kubernetes.io/instance-type=n2-standard-4 node.kubernetes.io/masq-agent-ds-ready=true \
        projectcalico.org/ds-ready=true topology.gke.io/zone=europe-west1-d topology.kubernetes.io/region=europe-west1 \
        topology.kubernetes.io/zone=europe-west1-d";
    let found: Vec<String> = node.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(found, real.split_whitespace().collect::<Vec<_>>());
    assert!(node.taints.is_empty());
}

#[test]
fn labels_of_gpus_and_of_the_pool() {
    let mut pool = Pool::new("t4", "n1-standard-2");
    let sharing = Some(Sharing { strategy: Strategy::TimeSharing, clients: 4 });
    pool.gpus = Some(Gpus { sharing, ..gpus("nvidia-tesla-t4", 1) });
    pool.labels.insert("dedicated".to_owned(), "scheduler".to_owned());
    let node = of(&pool);
    for (key, value) in [
        ("cloud.google.com/gke-accelerator", "nvidia-tesla-t4"),
        ("cloud.google.com/gke-gpu-driver-version", "default"),
        ("cloud.google.com/gke-gpu-sharing-strategy", "time-sharing"),
        ("cloud.google.com/gke-max-shared-clients-per-gpu", "4"),
        ("dedicated", "scheduler"),
        ("cloud.google.com/machine-family", "n1"),
    ] {
        assert_eq!(node.labels.get(key).map(String::as_str), Some(value), "{key}");
    }
    assert_eq!(node.allocatable.extended["nvidia.com/gpu"], 4);
}

#[test]
fn taints_that_gke_adds_and_those_it_does_not() {
    let text = |pool: &Pool| of(pool).taints.iter().map(ToString::to_string).collect::<Vec<_>>();
    let mut pool = Pool::new("t4", "n1-standard-2");
    pool.gpus = Some(gpus("nvidia-tesla-t4", 1));
    assert!(text(&pool).is_empty(), "every pool of the cluster has GPUs");
    pool.gpu_taint = true;
    assert_eq!(text(&pool), ["nvidia.com/gpu=present:NoSchedule"]);
    pool.taints = vec![Taint::no_schedule("nvidia.com/gpu", "present"), Taint::no_schedule("team", "ml")];
    assert_eq!(text(&pool), ["nvidia.com/gpu=present:NoSchedule", "team=ml:NoSchedule"]);

    let mut spot = Pool::new("spot", "e2-standard-4");
    spot.purchase = Purchase::Spot;
    assert!(text(&spot).is_empty());
    spot.auto_provisioned = true;
    assert_eq!(text(&spot), ["cloud.google.com/gke-spot=true:NoSchedule"]);
    let queued = Pool { purchase: Purchase::Queued, ..Pool::new("q", "a2-highgpu-1g") };
    assert_eq!(text(&queued), ["cloud.google.com/gke-queued=true:NoSchedule"]);
    assert_eq!(text(&Pool::new("arm", "t2a-standard-4")), ["kubernetes.io/arch=arm64:NoSchedule"]);
    let open = Pool { arch_taint: false, ..Pool::new("arm", "t2a-standard-4") };
    assert!(text(&open).is_empty(), "architectureTaintBehavior: NONE");
    let gvisor = Pool { gvisor: true, ..Pool::new("safe", "e2-standard-4") };
    assert_eq!(text(&gvisor), ["sandbox.gke.io/runtime=gvisor:NoSchedule"]);
}

#[test]
fn gpus_are_multiplied_by_partitions_and_clients() {
    let mut a100 = Gpus { partition: Some("1g.5gb".to_owned()), ..gpus("nvidia-tesla-a100", 2) };
    assert_eq!(a100.allocatable(), Ok(14));
    a100.sharing = Some(Sharing { strategy: Strategy::Mps, clients: 3 });
    assert_eq!(a100.allocatable(), Ok(42));
    a100.partition = Some("9g.1gb".to_owned());
    assert_eq!(
        a100.allocatable().unwrap_err().to_string(),
        "partitions 9g.1gb of nvidia-tesla-a100 are not known"
    );
    let machine = template(&Pool::new("x", "z9-standard-4"), "us-central1-c", Features::default());
    assert_eq!(machine.unwrap_err().to_string(), "the sizes of the machine type z9-standard-4 are not known");
}

/// The pods of issue 36 that were "valid": a scheduler of 60Gi on an e2-standard-2, workers of 100Gi on n1-standard-2.
#[test]
fn pods_that_no_node_of_a_pool_takes() {
    let small = Pool::new("small", "e2-standard-2");
    let Fit::Refused(refusals) = verdict(&small, json!({ "cpu": "6", "memory": "60Gi" })) else {
        panic!("fits")
    };
    let told: Vec<String> = refusals.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        ["asks for 6 CPUs, 1.571 of 1.93 are free", "asks for 60Gi of memory, 5.3Gi of 5.9Gi are free"]
    );

    let mut t4 = Pool::new("t4", "n1-standard-2");
    t4.gpus = Some(gpus("nvidia-tesla-t4", 1));
    t4.gpu_taint = true;
    assert_eq!(verdict(&t4, json!({ "cpu": "1", "memory": "4Gi", "nvidia.com/gpu": "1" })), Fit::Fits);
    let Fit::Refused(refusals) = verdict(&t4, json!({ "memory": "100Gi", "nvidia.com/gpu": "2" })) else {
        panic!("fits")
    };
    assert!(refusals.iter().all(|refusal| matches!(refusal.reason, Reason::Short { .. })));
    assert_eq!(refusals.len(), 2);
}

/// SkyPilot issue 4935: 12 CPUs and 85 GB "fit" on a node of 12 CPUs and 85 GB.
#[test]
fn a_whole_machine_does_not_fit_on_itself() {
    let mut a100 = Pool::new("a100", "a2-highgpu-1g");
    a100.gpus = Some(gpus("nvidia-tesla-a100", 1));
    assert!(!verdict(&a100, json!({ "cpu": "12", "memory": "85G", "nvidia.com/gpu": "1" })).is_possible());
    assert_eq!(verdict(&a100, json!({ "cpu": "11", "memory": "74Gi", "nvidia.com/gpu": "1" })), Fit::Fits);
    assert!(matches!(verdict(&a100, json!({ "memory": "76Gi", "nvidia.com/gpu": "1" })), Fit::Near(_)));
}

#[test]
fn huge_pages_are_no_memory_for_pods() {
    let pages = json!({ "hugepageSize2m": 1024, "hugepageSize1g": 2 });
    let body = |pages: &Value| json!({ "name": "p", "config": { "machineType": "n2-standard-8", "linuxNodeConfig": { "hugepages": pages } } });
    let node_with = |pages: &Value| {
        let pool = Pool::read(&body(pages));
        (node(&pool, "us-central1-a", "n", Features::default()).unwrap(), capacity(&pool).unwrap())
    };
    let ((plain, of_plain), (huge, of_huge)) = (node_with(&Value::Null), node_with(&pages));
    assert_eq!(plain.allocatable.memory - huge.allocatable.memory, 4 << 30);
    assert_eq!(huge.allocatable.extended["hugepages-2Mi"], 2 << 30);
    assert_eq!(huge.allocatable.extended["hugepages-1Gi"], 2 << 30);
    assert!(!plain.allocatable.extended.contains_key("hugepages-2Mi"));
    // They are a part of the capacity.
    assert_eq!(of_plain.memory, of_huge.memory);
    let (all, _) = node_with(&json!({ "hugepageSize1g": 64 }));
    assert_eq!(all.allocatable.memory, 0);
}

#[test]
fn one_thread_for_each_core_halves_the_cpus() {
    let pool = Pool { threads_per_core: 1, ..Pool::new("a", "n2-standard-8") };
    assert_eq!(of(&pool).allocatable.cpu, 3920);
    let slack = of(&pool).slack.unwrap();
    assert_eq!((slack.cpu, slack.memory >> 20), (40, 321));
}

#[test]
fn machines_whose_cores_have_one_thread_keep_their_cpus() {
    for (machine, cpu) in [("t2d-standard-4", 3920), ("t2a-standard-4", 3920), ("n2d-standard-4", 1930)] {
        let pool = Pool { threads_per_core: 1, ..Pool::new("a", machine) };
        assert_eq!(of(&pool).allocatable.cpu, cpu, "{machine}");
    }
}

/// The DaemonSet of Cloud Storage FUSE takes from each node what nobody has published: a pod that just fits may not.
#[test]
fn pods_of_addons_make_answers_uncertain() {
    let pool = Pool::new("small", "e2-medium");
    let pod = json!({ "spec": { "containers": [{ "resources": { "requests": { "memory": "2100Mi" } } }] } });
    let pod = PodRequirements::read(&pod, "default").unwrap();
    let verdict =
        |features| Cluster::default().ask(&pod).verdict(&template(&pool, "us-central1-c", features).unwrap());
    assert_eq!(verdict(Features::default()), Fit::Fits);
    let Fit::Near(margins) = verdict(Features { gcs_fuse_csi: true, ..Features::default() }) else {
        panic!("certain")
    };
    assert_eq!(margins[0].resource, crate::Resource::Memory);
}

#[test]
fn classes_and_admission_of_gke() {
    let names = |features| storage_classes(features).into_keys().collect::<Vec<_>>();
    assert_eq!(names(Features::default()), ["premium-rwo", "standard", "standard-rwo"]);
    assert_eq!(names(Features { filestore_csi: true, ..Features::default() }).len(), 8);
    assert!(storage_classes(Features::default())[DEFAULT_CLASS].waits_for_pod);
    let safe = Pool { gvisor: true, ..Pool::new("safe", "e2-standard-4") };
    let pod = admission().read(&json!({ "spec": { "runtimeClassName": "gvisor" } }), "default").unwrap();
    assert_eq!(Cluster::default().ask(&pod).verdict(&of(&safe)), Fit::Fits);
    assert!(matches!(
        Cluster::default().ask(&pod).verdict(&of(&Pool::new("a", "e2-standard-4"))),
        Fit::Refused(_)
    ));
}

#[test]
fn features_are_those_of_the_request() {
    let features = Features::read(&json!({
        "networkConfig": { "datapathProvider": "ADVANCED_DATAPATH" },
        "workloadIdentityConfig": { "workloadPool": "p.svc.id.goog" },
        "loggingConfig": { "componentConfig": { "enableComponents": [] } },
        "addonsConfig": { "dnsCacheConfig": { "enabled": true } },
    }));
    let Features {
        dataplane_v2, network_policy, workload_identity, logging, monitoring, node_local_dns, ..
    } = features;
    assert_eq!((dataplane_v2, network_policy, workload_identity), (true, false, true));
    assert_eq!((logging, monitoring, node_local_dns), (false, true, true));
}
