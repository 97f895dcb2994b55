use serde_json::json;

use super::*;

fn read(pod: &Value) -> PodRequirements {
    PodRequirements::read(pod, "default").unwrap()
}

#[test]
fn metadata_and_simple_fields() {
    let pod = read(&json!({
        "metadata": { "namespace": "team", "labels": { "app": "dask" } },
        "spec": {
            "nodeName": "n", "nodeSelector": { "pool": "a" }, "schedulingGates": [{ "name": "kueue.x-k8s.io/admission" }],
            "tolerations": [{ "operator": "Exists" }], "containers": [{ "name": "c" }],
        },
    }));
    assert_eq!((&*pod.namespace, pod.node_name.as_deref(), pod.tolerations.len()), ("team", Some("n"), 1));
    assert_eq!((pod.gates.as_slice(), pod.requests.len()), (&["kueue.x-k8s.io/admission".to_owned()][..], 0));
    assert_eq!(
        read(&json!({})),
        PodRequirements { namespace: "default".to_owned(), ..PodRequirements::default() }
    );
}

#[test]
fn ports_of_the_node() {
    let container = |ports: Value| json!({ "ports": ports });
    let text = |spec: Value| -> Vec<String> {
        let pod = read(&json!({ "spec": spec }));
        pod.ports
            .iter()
            .map(|port| format!("{}:{}/{} {}", port.ip, port.port, port.protocol, port.path))
            .collect()
    };
    let ports = json!([{ "containerPort": 80 }, { "containerPort": 81, "hostPort": 8081, "protocol": "UDP", "hostIP": "127.0.0.1" }]);
    assert_eq!(
        text(json!({ "containers": [container(ports.clone())] })),
        ["127.0.0.1:8081/UDP spec.containers[0].ports[1].hostPort"]
    );
    assert_eq!(
        text(json!({ "containers": [container(ports.clone())], "hostNetwork": true }))[0],
        "0.0.0.0:80/TCP spec.containers[0].ports[0].containerPort"
    );
    // Init containers that end hold none when the pod runs.
    assert!(text(json!({ "initContainers": [container(ports.clone())] })).is_empty());
    let sidecar = json!({ "ports": ports, "restartPolicy": "Always" });
    assert_eq!(text(json!({ "initContainers": [sidecar] })).len(), 1);
}

#[test]
fn ports_conflict_by_address() {
    let port = |ip: &str, protocol: &str, port: i64| HostPort {
        ip: ip.to_owned(),
        protocol: protocol.to_owned(),
        port,
        path: FieldPath::root(),
    };
    let all = port("0.0.0.0", "TCP", 80);
    for (other, conflicts) in [
        (port("0.0.0.0", "TCP", 80), true),
        (port("10.0.0.1", "TCP", 80), true),
        (port("0.0.0.0", "UDP", 80), false),
        (port("0.0.0.0", "TCP", 81), false),
    ] {
        assert_eq!((all.conflicts(&other), other.conflicts(&all)), (conflicts, conflicts), "{other:?}");
    }
    assert!(!port("10.0.0.1", "TCP", 80).conflicts(&port("10.0.0.2", "TCP", 80)));
}

#[test]
fn spread_constraints_that_refuse() {
    let constraint = |when: &str| {
        json!({
            "maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": when, "matchLabelKeys": ["part"],
            "labelSelector": { "matchLabels": { "app": "dask" } }, "nodeTaintsPolicy": "Honor",
        })
    };
    let pod = read(&json!({
        "metadata": { "labels": { "app": "dask", "part": "worker" } },
        "spec": { "topologySpreadConstraints": [constraint("ScheduleAnyway"), constraint("DoNotSchedule")] },
    }));
    let [spread] = pod.spread.as_slice() else { panic!("{:?}", pod.spread) };
    assert_eq!(
        (spread.max_skew, spread.min_domains, spread.honors_affinity, spread.honors_taints),
        (2, 1, true, true)
    );
    assert_eq!(spread.selector.to_string(), "pods with app=dask, part=worker");
    assert_eq!(spread.path.to_string(), "spec.topologySpreadConstraints[1]");
}

#[test]
fn terms_of_pod_affinity_name_their_namespaces() {
    let term = |more: Value| {
        let mut term = json!({ "topologyKey": "zone", "labelSelector": {} });
        term.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        term
    };
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let terms = [json!({}), json!({ "namespaces": ["a"] }), json!({ "namespaceSelector": {} })].map(term);
    let pod = read(&json!({ "spec": { "affinity": { "podAntiAffinity": { required: terms } } } }));
    let names: Vec<Vec<&str>> =
        pod.apart.iter().map(|term| term.namespaces.iter().map(String::as_str).collect()).collect();
    assert_eq!(names, [vec!["default"], vec!["a"], vec![]]);
    assert!(
        pod.apart[2].namespace_selector.is_everything() && !pod.apart[0].namespace_selector.is_everything()
    );
    assert_eq!(
        pod.apart[1].path.to_string(),
        "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[1]"
    );
}

#[test]
fn volumes_that_decide_on_nodes() {
    let pod = read(&json!({ "spec": { "volumes": [
        { "name": "a", "emptyDir": {} },
        { "name": "b", "persistentVolumeClaim": { "claimName": "data" } },
        { "name": "c", "ephemeral": { "volumeClaimTemplate": { "spec": { "storageClassName": "fast" } } } },
        { "name": "d", "gcePersistentDisk": { "pdName": "disk", "readOnly": true } },
    ] } }));
    let path = |text: &str| text.parse::<FieldPath>().unwrap();
    assert_eq!(
        pod.volumes,
        [
            Volume::Claim {
                name: "data".to_owned(),
                path: path("spec.volumes[1].persistentVolumeClaim.claimName")
            },
            Volume::Ephemeral {
                volume: "c".to_owned(),
                class: ClassName::Named("fast".to_owned()),
                path: path("spec.volumes[2].ephemeral"),
            },
            Volume::Disk {
                name: "disk".to_owned(),
                read_only: true,
                path: path("spec.volumes[3].gcePersistentDisk")
            },
        ]
    );
}

#[test]
fn tolerations_of_extended_resources() {
    let container =
        json!({ "resources": { "limits": { "nvidia.com/gpu": 1, "cpu": 1, "hugepages-2Mi": "2Mi" } } });
    let pod = read(&json!({ "spec": { "containers": [container] } })).with_extended_resource_tolerations();
    assert_eq!(pod.tolerations, [Toleration::exists("nvidia.com/gpu", Effect::NoSchedule)]);
}

#[test]
fn values_that_kubernetes_refuses_are_told_with_their_place() {
    let spec = json!({ "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{ "matchExpressions": [{ "key": "a", "operator": "Is", "values": ["b"] }] }],
    } } } });
    let told = PodRequirements::read(&json!({ "spec": spec }), "default").unwrap_err();
    assert!(told.to_string().ends_with(
        "nodeSelectorTerms[0].matchExpressions[0].operator: `Is` is not an operator of selectors"
    ));
}

#[test]
fn pods_that_select_arm_tolerate_it_on_gke() {
    let arm = || json!({ "kubernetes.io/arch": "arm64" });
    let term = |arch: &str| {
        let one = json!({ "key": "kubernetes.io/arch", "operator": "In", "values": ["amd64", arch] });
        json!({ "nodeAffinity": { REQUIRED: { "nodeSelectorTerms": [{ "matchExpressions": [one] }] } } })
    };
    let taint = crate::Taint::no_schedule("kubernetes.io/arch", "arm64");
    for (spec, tolerated) in [
        (json!({ "nodeSelector": arm() }), true),
        (json!({ "affinity": term("arm64") }), true),
        (json!({ "affinity": term("s390x") }), false),
        (json!({}), false),
    ] {
        let pod = read(&json!({ "spec": spec })).with_gke_tolerations();
        assert_eq!(pod.tolerations.iter().any(|one| one.tolerates(&taint)), tolerated, "{spec}");
    }
}

/// The YAML mistake: `nodeSelector: { cloud.google.com/gke-spot: true }` without quotes.
#[test]
fn values_of_another_type_are_told_with_their_place() {
    let told = |pod: Value| PodRequirements::read(&pod, "default").unwrap_err().to_string();
    let spec = |spec: Value| told(json!({ "spec": spec }));
    assert_eq!(
        spec(json!({ "nodeSelector": { "cloud.google.com/gke-spot": true } })),
        "spec.nodeSelector.\"cloud.google.com/gke-spot\": `true` is not a string"
    );
    assert_eq!(
        told(json!({ "metadata": { "labels": { "size": 1 } } })),
        "metadata.labels.size: `1` is not a string"
    );
    let ports = json!([{ "ports": [{ "hostPort": "80" }] }]);
    assert_eq!(
        spec(json!({ "containers": ports })),
        "spec.containers[0].ports[0].hostPort: `80` is not an integer"
    );
    let spread = json!([{ "maxSkew": "1", "whenUnsatisfiable": "DoNotSchedule" }]);
    assert_eq!(
        spec(json!({ "topologySpreadConstraints": spread })),
        "spec.topologySpreadConstraints[0].maxSkew: `1` is not an integer"
    );
    let values = json!([{ "matchExpressions": [{ "key": "size", "operator": "In", "values": [1] }] }]);
    assert!(
        spec(json!({ "affinity": { "nodeAffinity": { REQUIRED: { "nodeSelectorTerms": values } } } }))
            .ends_with("matchExpressions[0].values[0]: `1` is not a string")
    );
    assert_eq!(
        spec(json!({ "tolerations": { "key": "a" } })),
        "spec.tolerations: `{\"key\":\"a\"}` is not an array"
    );
}
