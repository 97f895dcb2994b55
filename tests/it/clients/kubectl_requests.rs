//! Requests of kubectl beyond reading and writing objects: the shape of kinds, bodies in
//! protobuf, watches.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use sandbox::kube::Access as _;
use serde_json::{Value, json};

use crate::clients::kubectl::{KubernetesServer, has_kubectl};

async fn with_dask() -> KubernetesServer {
    let served = KubernetesServer::start().await;
    for crd in model::schema::dask_crds() {
        served.cluster_handle.with(|cluster, now| cluster.create(now, "test", crd.clone())).unwrap();
    }
    served.ok(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=5s"]).await;
    served
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_explains_built_in_and_custom_kinds() {
    if !has_kubectl() {
        return;
    }
    let served = with_dask().await;
    let definition = served.file("widgets.json", &widgets().to_string());
    served.ok(&["create", "-f", &definition]).await;
    served.ok(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=5s"]).await;
    for (words, lines) in [
        (
            &["pod.spec.containers"][..],
            &[
                "KIND:       Pod",
                "FIELD: containers <[]Container>",
                "imagePullPolicy\t<string>",
                "name\t<string> -required-",
                "ports\t<[]ContainerPort>",
            ][..],
        ),
        (
            &["deploy.spec.strategy", "--recursive"],
            &["GROUP:      apps", "rollingUpdate\t<RollingUpdateDeployment>", "maxSurge\t<IntOrString>"],
        ),
        (&["pod.spec.containers.resources.limits"], &["<map[string]Quantity>"]),
        (
            &["daskcluster.spec.worker"],
            &["GROUP:      kubernetes.dask.org", "replicas\t<integer>", "spec\t<Object> -required-"],
        ),
        (
            &["dsk.spec.worker.spec.containers", "--recursive"],
            &["FIELD: containers <[]Object>", "imagePullPolicy\t<string>"],
        ),
        (&["daskcluster.metadata.ownerReferences"], &["blockOwnerDeletion\t<boolean>"]),
        (&["widgets"], &["A widget is round.", "spec\t<Object>"]),
        (&["widgets.spec"], &["How many there are.", "size\t<integer>"]),
        (
            &["pod.spec.containers", "--output=plaintext-openapiv2"],
            &["RESOURCE: containers <[]Object>", "imagePullPolicy\t<string>", "resources\t<Object>"],
        ),
        (
            &["daskcluster.spec.worker", "--output=plaintext-openapiv2"],
            &["KIND:     DaskCluster", "replicas\t<integer>"],
        ),
    ] {
        let words = [&["explain"], words].concat();
        let said = served.ok(&words).await;
        for line in lines {
            assert!(said.contains(line), "{words:?}: no {line:?} in\n{said}");
        }
    }
    let refused = served.refused(&["explain", "pod.spec.bogus"]).await;
    assert!(refused.contains(r#"field "bogus" does not exist"#), "{refused}");
    served.ok(&["delete", "crd", "widgets.example.com"]).await;
    served.refused(&["explain", "widgets"]).await;
}

/// A definition with descriptions.
fn widgets() -> Value {
    let size = json!({"type": "integer", "description": "How many there are."});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "description": "A widget is round.",
                "properties": {"spec": {"type": "object", "properties": {"size": size}}}}}}]}})
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_makes_built_in_kinds_whose_bodies_are_protobuf() {
    if !has_kubectl() {
        return;
    }
    let served = KubernetesServer::start().await;
    let binary = served.home.path().join("binary");
    std::fs::write(&binary, [0, 159, 146, 150]).unwrap();
    let file = format!("--from-file=raw={}", binary.display());
    for words in [
        &["namespace", "n"][..],
        &["configmap", "c", "--from-literal=a=b", &file],
        &["secret", "generic", "s", "--from-literal=password=x"],
        &["deployment", "d", "--image=web:1", "--replicas=0", "--port=80"],
        &["deployment", "many", "--image=web:1", "--image=proxy:2"],
        &["service", "clusterip", "v", "--tcp=80:http"],
        &["service", "nodeport", "np", "--tcp=80:8080"],
        &["serviceaccount", "a"],
        &["role", "r", "--verb=get,list", "--resource=pods"],
        &["rolebinding", "b", "--role=r", "--serviceaccount=default:a"],
        &["clusterrole", "cr", "--verb=*", "--resource=deployments.apps"],
        &["clusterrolebinding", "crb", "--clusterrole=cr", "--group=g"],
        &["job", "j", "--image=x", "--", "true"],
        &["cronjob", "cj", "--image=x", "--schedule=0 0 * * *"],
        &["quota", "q", "--hard=cpu=1500m,pods=2"],
        &["poddisruptionbudget", "p", "--selector=app=d", "--min-available=50%"],
        &["ingress", "i", "--rule=example.com/a*=v:80"],
        &["priorityclass", "pc", "--value=-5", "--preemption-policy=Never"],
    ] {
        let words = [&["create"], words].concat();
        let said = served.ok(&words).await;
        assert!(said.contains("created"), "{words:?}: {said}");
    }
    for (thing, expression, expected) in [
        ("configmap/c", "{.data.a} {.binaryData.raw}", "b AJ+Slg=="),
        ("secret/s", "{.data.password} {.type}", "eA== Opaque"),
        ("deploy/d", "{.spec.replicas} {.spec.template.spec.containers[0].ports[0].containerPort}", "0 80"),
        ("deploy/d", "{.spec.template.spec.restartPolicy} {.spec.template.spec.hostNetwork}", "Always "),
        ("deploy/many", "{.spec.template.spec.containers[*].image}", "web:1 proxy:2"),
        ("service/v", "{.spec.ports[0].targetPort} {.spec.type}", "http ClusterIP"),
        ("service/np", "{.spec.ports[0].targetPort}", "8080"),
        ("role/r", "{.rules[0].verbs}", r#"["get","list"]"#),
        ("quota/q", "{.spec.hard.cpu} {.spec.hard.pods}", "1500m 2"),
        ("pdb/p", "{.spec.minAvailable}", "50%"),
        ("priorityclass/pc", "{.value}", "-5"),
        ("cronjob/cj", "{.spec.jobTemplate.spec.template.spec.containers[0].image}", "x"),
        ("deploy/d", "{.metadata.managedFields[0].manager}", "kubectl-create"),
    ] {
        let out = served.ok(&["get", thing, "-o", &format!("jsonpath={expression}")]).await;
        assert_eq!(out, expected, "{thing} {expression}");
    }
    let again = served.refused(&["create", "namespace", "n"]).await;
    assert!(again.contains("AlreadyExists"), "{again}");
    let wrong = served.refused(&["create", "deployment", "UPPER", "--image=x"]).await;
    assert!(wrong.contains("Invalid value: \"UPPER\""), "{wrong}");
    // Other writes that kubectl makes with typed clients.
    served.ok(&["set", "image", "deploy/d", "web=web:2"]).await;
    served.ok(&["rollout", "restart", "deploy/d"]).await;
    served.ok(&["rollout", "pause", "deploy/d"]).await;
    served.ok(&["autoscale", "deploy/d", "--min=1", "--max=3"]).await;
    served.ok(&["expose", "deploy/d", "--port=80", "--name=exposed"]).await;
    served.ok(&["auth", "can-i", "--list"]).await;
    served.ok(&["auth", "whoami"]).await;
    served.ok(&["delete", "namespace", "n"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_watches_until_it_is_ended() {
    if !has_kubectl() {
        return;
    }
    let served = KubernetesServer::start().await;
    let mut child = served
        .command(&[
            "get",
            "configmaps",
            "-w",
            "--no-headers",
            "-o",
            "custom-columns=N:.metadata.name,V:.data.v",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (lines, seen) = tokio::sync::mpsc::unbounded_channel();
    let out = BufReader::new(child.stdout.take().unwrap());
    let reader = std::thread::spawn(move || {
        for line in out.lines().map_while(Result::ok) {
            let _ = lines.send(line.split_whitespace().collect::<Vec<_>>().join(" "));
        }
    });
    let mut seen = seen;
    let mut wait_until = async |wanted: &str| {
        let found = async {
            while let Some(line) = seen.recv().await {
                if line == wanted {
                    return true;
                }
            }
            false
        };
        let patience = std::time::Duration::from_secs(60);
        assert_eq!(tokio::time::timeout(patience, found).await, Ok(true), "no {wanted}");
    };
    served.ok(&["create", "configmap", "one", "--from-literal=v=1"]).await;
    wait_until("one 1").await;
    served.ok(&["patch", "configmap", "one", "-p", r#"{"data":{"v":"2"}}"#]).await;
    wait_until("one 2").await;
    served.ok(&["delete", "configmap", "one"]).await;
    wait_until("one 2").await;
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap();
}

const CLUSTER: &str = r#"
apiVersion: kubernetes.dask.org/v1
kind: DaskCluster
metadata: {name: d}
spec:
  worker:
    replicas: 2
    spec: {containers: [{name: worker, image: x}]}
  scheduler:
    spec: {containers: [{name: scheduler, image: x}]}
    service: {type: ClusterIP, selector: {a: b}, ports: [{name: tcp-comm, protocol: TCP, port: 8786, targetPort: tcp-comm}]}
"#;

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_applies_diffs_and_deletes_custom_resources() {
    if !has_kubectl() {
        return;
    }
    let served = with_dask().await;
    let file = served.file("d.yaml", CLUSTER);
    assert!(served.ok(&["apply", "-f", &file]).await.contains("created"));
    assert!(served.ok(&["apply", "-f", &file]).await.contains("unchanged"));
    let (code, said, _) = served.run(&["diff", "-f", &file]).await;
    assert_eq!(code, 0, "{said}");
    let more = served.file("more.yaml", &CLUSTER.replace("replicas: 2", "replicas: 3"));
    for words in [&["diff", "-f", &more][..], &["diff", "--server-side", "--force-conflicts", "-f", &more]] {
        let (code, said, err) = served.run(words).await;
        assert_eq!(code, 1, "{said}{err}");
        assert!(said.contains("+    replicas: 3"), "{said}");
    }
    assert!(served.ok(&["apply", "-f", &more]).await.contains("configured"));
    // The manager of client-side apply goes over to server-side apply.
    assert!(served.ok(&["apply", "--server-side", "-f", &more]).await.contains("serverside-applied"));
    let wrong = served.file("wrong.yaml", &CLUSTER.replace("replicas: 2", "replica: 2"));
    let refused = served.refused(&["apply", "-f", &wrong]).await;
    assert!(refused.contains("unknown field \"spec.worker.replica\""), "{refused}");
    assert!(served.ok(&["delete", "-f", &file, "--wait=true"]).await.contains("deleted"));
    assert!(served.ok(&["get", "dsk", "--ignore-not-found"]).await.is_empty());
}
