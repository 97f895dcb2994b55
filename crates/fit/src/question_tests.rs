use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::labels::labels;
use crate::node::Bound;
use crate::volumes::{Claim, ClassName};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

fn node(name: &str, zone: &str) -> Node {
    Node::read(&json!({
        "metadata": { "name": name, "labels": { "zone": zone, "host": name } },
        "status": { "allocatable": { "cpu": "4", "memory": "8Gi", "ephemeral-storage": "10Gi", "pods": "3", "nvidia.com/gpu": "1" } },
    }))
}

fn pod(spec: Value) -> PodRequirements {
    labelled(json!({}), spec)
}

fn labelled(labels: Value, spec: Value) -> PodRequirements {
    PodRequirements::read(&json!({ "metadata": { "labels": labels }, "spec": spec }), "default").unwrap()
}

fn asks(requests: Value) -> Value {
    json!({ "containers": [{ "resources": { "requests": requests } }] })
}

/// `PLUGIN at PATH: CLAUSE` for each refusal of a node.
fn refusals(cluster: &Cluster, pod: &PodRequirements, name: &str) -> Vec<String> {
    let (_, node) = cluster.nodes().find(|(_, node)| node.name == name).unwrap();
    let question = cluster.ask(pod);
    let all = question.refusals(node);
    assert_eq!(question.takes(node), all.is_empty());
    let text = |refusal: &Refusal| format!("{} at {}: {refusal}", refusal.predicate().plugin(), refusal.path);
    all.iter().map(text).collect()
}

fn one(mut node: Node, change: impl FnOnce(&mut Node)) -> Cluster {
    change(&mut node);
    let mut cluster = Cluster::default();
    cluster.add(node);
    cluster
}

fn on_plain(spec: Value) -> Vec<String> {
    refusals(&one(node("n", "a"), |_| {}), &pod(spec), "n")
}

#[test]
fn gates_cordons_and_names() {
    let spec = json!({ "schedulingGates": [{ "name": "g" }], "nodeName": "m" });
    let cluster = one(node("n", "a"), |node| node.unschedulable = true);
    assert_eq!(
        refusals(&cluster, &pod(spec.clone()), "n"),
        [
            "SchedulingGates at spec.schedulingGates: waits for scheduling gates: g",
            "NodeUnschedulable at spec.tolerations: may not use a cordoned node",
            "NodeName at spec.nodeName: names the node m",
        ]
    );
    let tolerant = json!({ "tolerations": [{ "key": CORDON, "operator": "Exists" }] });
    assert!(refusals(&cluster, &pod(tolerant), "n").is_empty());
    let gated = pod(json!({ "schedulingGates": [{ "name": "g" }] }));
    assert_eq!(Cluster::default().ask(&gated).verdict(&node("n", "a")), Fit::Fits);
}

#[test]
fn taints() {
    let cluster = one(node("n", "a"), |node| {
        node.taints = Taint::read_all(&json!([
            { "key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule" }, { "key": "x", "effect": "PreferNoSchedule" },
        ]));
    });
    assert_eq!(
        refusals(&cluster, &pod(json!({})), "n"),
        [
            "TaintToleration at spec.tolerations: does not tolerate the taint nvidia.com/gpu=present:NoSchedule"
        ]
    );
    let gpu = pod(asks(json!({ "nvidia.com/gpu": "1" }))).with_extended_resource_tolerations();
    assert!(refusals(&cluster, &gpu, "n").is_empty());
}

#[test]
fn selectors_and_affinity() {
    assert_eq!(
        on_plain(json!({ "nodeSelector": { "zone": "b", "pool": "p" } })),
        [
            "NodeAffinity at spec.nodeSelector.pool: selects nodes with pool=p, this one has no such label",
            "NodeAffinity at spec.nodeSelector.zone: selects nodes with zone=b, this one has zone=a",
        ]
    );
    let affinity = |terms: Value| json!({ "affinity": { "nodeAffinity": { REQUIRED: { "nodeSelectorTerms": terms } } } });
    let wants =
        |zone: &str| json!({ "matchExpressions": [{ "key": "zone", "operator": "In", "values": [zone] }] });
    assert!(on_plain(affinity(json!([wants("b"), wants("a")]))).is_empty());
    let at = format!("spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms");
    assert_eq!(
        on_plain(affinity(json!([wants("b")]))),
        [format!("NodeAffinity at {at}[0].matchExpressions[0]: requires nodes with zone=b")]
    );
    assert_eq!(
        on_plain(affinity(json!([wants("b"), wants("c")]))),
        [format!("NodeAffinity at {at}: requires nodes with zone=b, or zone=c")]
    );
    assert_eq!(
        on_plain(affinity(json!([{}]))),
        [format!("NodeAffinity at {at}[0]: requires nodes with nothing")]
    );
}

#[test]
fn ports() {
    let with_port = json!({ "containers": [{ "ports": [{ "containerPort": 80, "hostPort": 80 }] }] });
    let cluster = one(node("n", "a"), |node| node.bind(Bound::running(pod(with_port.clone()))));
    assert_eq!(
        refusals(&cluster, &pod(with_port), "n"),
        [
            "NodePorts at spec.containers[0].ports[0].hostPort: takes port 80/TCP of the node, which another pod has"
        ]
    );
}

#[test]
fn resources() {
    let cluster = one(node("n", "a"), |node| node.bind(Bound::running(pod(asks(json!({ "cpu": "3" }))))));
    assert!(refusals(&cluster, &pod(asks(json!({ "cpu": "1", "memory": "8Gi" }))), "n").is_empty());
    let at = "NodeResourcesFit at spec.containers[0].resources.requests";
    assert_eq!(
        refusals(
            &cluster,
            &pod(asks(json!({ "cpu": "1001m", "ephemeral-storage": "11Gi", "nvidia.com/gpu": 2, "x/y": 1 }))),
            "n"
        ),
        [
            format!("{at}.cpu: asks for 1.001 CPUs, 1 of 4 are free"),
            format!("{at}.ephemeral-storage: asks for 11Gi of disk, 10Gi of 10Gi are free"),
            format!("{at}.\"nvidia.com/gpu\": asks for 2 nvidia.com/gpu, 1 of 1 are free"),
            format!("{at}.\"x/y\": asks for 1 x/y, and the node has none"),
        ]
    );
    let full = one(node("n", "a"), |node| (0..3).for_each(|_| node.bind(Bound::running(pod(json!({}))))));
    assert_eq!(
        refusals(&full, &pod(json!({})), "n"),
        ["NodeResourcesFit at spec: is one pod more than the 3 that the node takes"]
    );
}

#[test]
fn about_enough_is_an_answer_of_its_own() {
    let slack = Amounts { cpu: 40, memory: 80 << 20, ..Amounts::default() };
    let template = Node { slack: Some(slack), ..node("n", "a") };
    let verdict = |spec: Value| Cluster::default().ask(&pod(spec)).verdict(&template);
    assert_eq!(verdict(asks(json!({ "cpu": "3.9" }))), Fit::Fits);
    for close in ["3.96", "4", "4.04"] {
        let Fit::Near(margins) = verdict(asks(json!({ "cpu": close }))) else { panic!("{close}") };
        assert_eq!((margins.len(), &margins[0].resource), (1, &Resource::Cpu));
    }
    let Fit::Near(margins) = verdict(asks(json!({ "memory": "8120Mi", "cpu": "1" }))) else {
        panic!("memory")
    };
    assert_eq!(
        margins[0].to_string(),
        "asks for 7.93Gi memory where about 8Gi are free: only a node that is there tells"
    );
    // Nothing is near that something else refuses.
    assert!(matches!(verdict(asks(json!({ "cpu": "4.041" }))), Fit::Refused(all) if all.len() == 1));
    assert!(
        matches!(verdict(asks(json!({ "cpu": "4.01", "nvidia.com/gpu": 2 }))), Fit::Refused(all) if all.len() == 2)
    );
    // A node that is there is known.
    let live = node("n", "a");
    let close = pod(asks(json!({ "cpu": "4" })));
    assert_eq!(Cluster::default().ask(&close).verdict(&live), Fit::Fits);
}

fn claim(state: ClaimState) -> Claim {
    Claim { state, one_pod: false, deleting: false }
}

#[test]
fn volumes() {
    let uses = |name: &str| pod(json!({ "volumes": [{ "persistentVolumeClaim": { "claimName": name } }] }));
    let mut cluster = one(node("n", "a"), |_| {});
    let zone = |zone: &str| NodeTerm {
        expressions: vec![Requirement {
            key: "zone".to_owned(),
            operator: crate::labels::Operator::In,
            values: vec![zone.to_owned()],
        }],
        fields: Vec::new(),
    };
    let bound = |there: &str| {
        ClaimState::Bound(BoundVolume { node_terms: Some(vec![zone(there)]), ..BoundVolume::default() })
    };
    let named = |class: &str| ClassName::Named(class.to_owned());
    let unbound = |class: &str| ClaimState::Unbound { class: named(class), node: None };
    let class = |waits_for_pod| StorageClass { waits_for_pod, provisions: true, ..StorageClass::default() };
    let elsewhere = [("zone".to_owned(), ["b".to_owned()].into())].into();
    cluster.classes = BTreeMap::from([
        ("early".to_owned(), class(false)),
        ("late".to_owned(), class(true)),
        ("away".to_owned(), StorageClass { topologies: vec![elsewhere], ..class(true) }),
    ]);
    cluster.claims = [
        ("here", claim(bound("a"))),
        ("there", claim(bound("b"))),
        ("early", claim(unbound("early"))),
        ("late", claim(unbound("late"))),
        ("away", claim(unbound("away"))),
        ("strange", claim(unbound("strange"))),
        ("plain", claim(ClaimState::Unbound { class: ClassName::Default, node: None })),
        ("chosen", claim(ClaimState::Unbound { class: named("late"), node: Some("m".to_owned()) })),
        ("planned", claim(ClaimState::Planned(named("early")))),
        ("lost", claim(ClaimState::Lost("v".to_owned()))),
        ("gone", claim(ClaimState::Gone("v".to_owned()))),
        ("named", claim(ClaimState::Named("v".to_owned(), Some(Labels::new())))),
        ("going", Claim { deleting: true, ..claim(bound("a")) }),
        ("mine", Claim { one_pod: true, ..claim(bound("a")) }),
    ]
    .map(|(name, claim)| (("default".to_owned(), name.to_owned()), claim))
    .into();
    for (name, expected) in [
        ("here", None),
        ("late", None),
        ("mine", None),
        ("there", Some("VolumeBinding: uses the claim there, whose volume is on nodes with zone=b")),
        ("early", Some("VolumeBinding: uses the claim early, which has no volume yet")),
        (
            "away",
            Some("VolumeBinding: uses the claim away, whose class away makes no volumes for such nodes"),
        ),
        ("none", Some("VolumeRestrictions: uses the claim none, which does not exist")),
        ("strange", Some("VolumeBinding: uses the claim strange, whose class strange does not exist")),
        ("plain", Some("VolumeBinding: uses the claim plain, which has no volume yet")),
        ("chosen", Some("VolumeBinding: uses the claim chosen, whose volume is being made for the node m")),
        ("planned", None),
        ("lost", Some("VolumeBinding: uses the claim lost, which has lost its volume v")),
        ("gone", Some("VolumeBinding: uses the claim gone, whose volume v does not exist")),
        ("named", Some("VolumeBinding: uses the claim named, which is not bound to its volume v yet")),
        ("going", Some("VolumeBinding: uses the claim going, which is being deleted")),
    ] {
        let found = refusals(&cluster, &uses(name), "n");
        let expected = expected
            .map(|text| text.replacen(':', " at spec.volumes[0].persistentVolumeClaim.claimName:", 1));
        assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{name}");
    }
    cluster.default_class = Some("late".to_owned());
    assert!(refusals(&cluster, &uses("plain"), "n").is_empty(), "it gets the default class");
    let id = cluster.nodes().next().unwrap().0;
    cluster.bind(id, Bound::running(uses("mine"))).unwrap();
    assert!(
        refusals(&cluster, &uses("mine"), "n")[0]
            .ends_with("uses the claim mine, which is for one pod and has one")
    );

    let disk = |read_only: bool| {
        pod(json!({ "volumes": [{ "gcePersistentDisk": { "pdName": "d", "readOnly": read_only } }] }))
    };
    cluster.bind(id, Bound::running(disk(true))).unwrap();
    assert!(refusals(&cluster, &disk(true), "n").is_empty());
    assert!(
        refusals(&cluster, &disk(false), "n")[0]
            .ends_with("uses the disk d, which another pod of the node has")
    );
}

#[test]
fn zones_of_volumes() {
    let key = "topology.kubernetes.io/zone";
    let mut cluster = one(node("n", "a"), |node| {
        node.labels.insert(key.to_owned(), "a".to_owned());
    });
    let bound = BoundVolume { node_terms: None, labels: labels(&json!({ key: "b" })) };
    cluster.claims.insert(("default".to_owned(), "old".to_owned()), claim(ClaimState::Bound(bound)));
    let uses = pod(json!({ "volumes": [{ "persistentVolumeClaim": { "claimName": "old" } }] }));
    assert_eq!(
        refusals(&cluster, &uses, "n"),
        [format!(
            "VolumeZone at spec.volumes[0].persistentVolumeClaim.claimName: uses the claim old, whose volume has {key}=b"
        )]
    );
}

/// Two nodes in zone a, one in b, with worker pods on them by number.
fn zones(pods: [u32; 3]) -> Cluster {
    let mut cluster = Cluster::default();
    for ((name, zone), pods) in [("n1", "a"), ("n2", "a"), ("n3", "b")].into_iter().zip(pods) {
        let mut node = node(name, zone);
        node.allocatable.pods = 100;
        (0..pods).for_each(|_| node.bind(Bound::running(labelled(json!({ "app": "w" }), json!({})))));
        cluster.add(node);
    }
    cluster
}

fn spread(more: Value) -> PodRequirements {
    let mut constraint = json!({
        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": { "matchLabels": { "app": "w" } },
    });
    constraint.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    labelled(json!({ "app": "w" }), json!({ "topologySpreadConstraints": [constraint] }))
}

fn taken(cluster: &Cluster, pod: &PodRequirements) -> Vec<String> {
    cluster.places(pod).into_iter().map(|id| cluster.node(id).unwrap().name.clone()).collect()
}

#[test]
fn topology_spread() {
    assert_eq!(taken(&zones([0, 0, 0]), &spread(json!({}))), ["n1", "n2", "n3"]);
    assert_eq!(taken(&zones([1, 1, 0]), &spread(json!({}))), ["n3"]);
    assert_eq!(taken(&zones([1, 1, 1]), &spread(json!({}))), ["n3"]);
    assert_eq!(taken(&zones([1, 0, 1]), &spread(json!({}))), ["n1", "n2", "n3"]);
    assert_eq!(
        refusals(&zones([1, 1, 0]), &spread(json!({})), "n1"),
        [
            "PodTopologySpread at spec.topologySpreadConstraints[0]: spreads by zone with a difference of 1 at most: a has 2, the fewest are 0"
        ]
    );
    // Two domains where three are asked for: the fewest are none.
    assert_eq!(taken(&zones([1, 0, 1]), &spread(json!({ "minDomains": 3 }))), Vec::<String>::new());
    // Without requirements a selector selects the pod itself, and counts nothing.
    assert_eq!(taken(&zones([5, 5, 0]), &spread(json!({ "labelSelector": {} }))).len(), 3);
    let by_rack = spread(json!({ "topologyKey": "rack" }));
    assert!(
        refusals(&zones([0, 0, 0]), &by_rack, "n1")[0]
            .ends_with("spreads by the label rack, which the node does not have")
    );
}

#[test]
fn topology_spread_counts_the_nodes_that_it_honors() {
    let mut cluster = Cluster::default();
    let tainted = Node { taints: vec![Taint::no_schedule("x", "")], ..node("n3", "b") };
    let mut full = node("n1", "a");
    full.bind(Bound::running(labelled(json!({ "app": "w" }), json!({}))));
    cluster.add(full);
    cluster.add(tainted);
    assert_eq!(taken(&cluster, &spread(json!({}))), Vec::<String>::new(), "b counts, with none");
    assert_eq!(taken(&cluster, &spread(json!({ "nodeTaintsPolicy": "Honor" }))), ["n1"]);
    let mut here = spread(json!({}));
    here.node_selector = labels(&json!({ "zone": "a" }));
    assert_eq!(taken(&cluster, &here), ["n1"]);
    here.spread[0].honors_affinity = false;
    assert_eq!(taken(&cluster, &here), Vec::<String>::new());
    let mut leaving = Cluster::default();
    let mut node = node("n1", "a");
    node.bind(Bound { terminating: true, ..Bound::running(labelled(json!({ "app": "w" }), json!({}))) });
    leaving.add(node);
    leaving.add(self::node("n2", "b"));
    assert_eq!(taken(&leaving, &spread(json!({}))), ["n1", "n2"]);
}

fn term(kind: &str, app: &str, key: &str) -> Value {
    json!({ "affinity": { kind: { REQUIRED: [{ "topologyKey": key, "labelSelector": { "matchLabels": { "app": app } } }] } } })
}

#[test]
fn pod_affinity() {
    let cluster = zones([0, 1, 0]);
    let near = |app: &str, key: &str| labelled(json!({ "app": "s" }), term("podAffinity", app, key));
    assert_eq!(taken(&cluster, &near("w", "zone")), ["n1", "n2"]);
    assert_eq!(taken(&cluster, &near("w", "host")), ["n2"]);
    assert_eq!(taken(&cluster, &near("x", "zone")), Vec::<String>::new());
    assert_eq!(taken(&cluster, &near("s", "zone")).len(), 3, "the first of its kind");
    assert_eq!(taken(&cluster, &near("s", "rack")), Vec::<String>::new());
    let at = format!("InterPodAffinity at spec.affinity.podAffinity.{REQUIRED}[0]");
    assert_eq!(
        refusals(&cluster, &near("w", "zone"), "n3"),
        [format!("{at}: must be near pods with app=w, and zone=b has none")]
    );
    assert_eq!(
        refusals(&cluster, &near("w", "rack"), "n3"),
        [format!("{at}: must be near pods with app=w by the label rack, which the node does not have")]
    );
}

#[test]
fn pod_anti_affinity_of_both() {
    let mut cluster = zones([0, 1, 0]);
    let apart = |app: &str, key: &str| labelled(json!({ "app": "s" }), term("podAntiAffinity", app, key));
    assert_eq!(taken(&cluster, &apart("w", "zone")), ["n3"]);
    assert_eq!(taken(&cluster, &apart("w", "host")), ["n1", "n3"]);
    assert_eq!(taken(&cluster, &apart("w", "rack")).len(), 3, "no domain has any");
    let at = format!("InterPodAffinity at spec.affinity.podAntiAffinity.{REQUIRED}[0]");
    assert_eq!(
        refusals(&cluster, &apart("w", "zone"), "n1"),
        [format!("{at}: must be apart from pods with app=w, and zone=a has some")]
    );
    let id = cluster.nodes().nth(2).unwrap().0;
    cluster.bind(id, Bound::running(apart("w", "zone"))).unwrap();
    let worker = labelled(json!({ "app": "w" }), json!({}));
    assert_eq!(
        refusals(&cluster, &worker, "n3"),
        ["InterPodAffinity at metadata.labels: is kept out of zone=b by the anti-affinity of another pod"]
    );
    assert_eq!(taken(&cluster, &worker), ["n1", "n2"]);
}

#[test]
fn namespaces_of_pod_affinity() {
    let mut cluster = zones([0, 1, 0]);
    cluster.namespaces.insert("default".to_owned(), labels(&json!({ "team": "a" })));
    let from = |more: Value| {
        let mut spec = term("podAffinity", "w", "zone");
        let term = &mut spec["affinity"]["podAffinity"][REQUIRED][0];
        term.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let pod = json!({ "metadata": { "namespace": "other" }, "spec": spec });
        PodRequirements::read(&pod, "").unwrap()
    };
    for (more, places) in [
        (json!({}), 0),
        (json!({ "namespaces": ["default"] }), 2),
        (json!({ "namespaceSelector": {} }), 2),
        (json!({ "namespaceSelector": { "matchLabels": { "team": "a" } } }), 2),
        (json!({ "namespaceSelector": { "matchLabels": { "team": "b" } } }), 0),
    ] {
        assert_eq!(taken(&cluster, &from(more.clone())).len(), places, "{more}");
    }
}

#[test]
fn equal_pods_are_one_group() {
    let (small, large) = (pod(asks(json!({ "cpu": "1" }))), pod(asks(json!({ "cpu": "2" }))));
    let pods = [small.clone(), large, small];
    assert_eq!(crate::groups(&pods), [vec![0, 2], vec![1]]);
    let mut cluster = Cluster::default();
    let id = cluster.add(node("n", "a"));
    assert_eq!(crate::fits(&pods[0], id, &cluster), Ok(Vec::new()));
}

#[test]
fn a_node_of_another_cluster_is_an_error() {
    let (small, mut other) = (pod(asks(json!({ "cpu": "1" }))), Cluster::default());
    let id = zones([0, 0, 0]).nodes().last().unwrap().0;
    assert_eq!(crate::fits(&small, id, &other), Err(crate::UnknownNode));
    assert_eq!(other.bind(id, Bound::running(small)), Err(crate::UnknownNode));
}

#[test]
fn volumes_of_the_pod_itself() {
    let with = |class: Value| {
        let template = json!({ "spec": { "storageClassName": class } });
        pod(json!({ "volumes": [{ "name": "scratch", "ephemeral": { "volumeClaimTemplate": template } }] }))
    };
    let mut cluster = one(node("n", "a"), |_| {});
    let made = StorageClass { waits_for_pod: true, provisions: true, ..StorageClass::default() };
    cluster.classes.insert("late".to_owned(), made);
    assert!(refusals(&cluster, &with(json!("late")), "n").is_empty());
    assert!(refusals(&cluster, &with(json!(null)), "n").is_empty(), "no class is the default");
    assert_eq!(
        refusals(&cluster, &with(json!("strange")), "n"),
        [
            "VolumeBinding at spec.volumes[0].ephemeral: has the volume scratch, whose class strange does not exist"
        ]
    );
}
