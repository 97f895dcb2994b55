//! What admission adds to pods: tolerations for the extended resources that they ask for (GKE runs
//! `ExtendedResourceToleration`), the default tolerations of failing nodes, priority and service account.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::Run;
use super::object::{key, list, text};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// Pods that tolerate a failing node only for a while stay on it for that long.
const TOLERATED_SECONDS: i64 = 300;

/// Whether a resource name is an extended one: with a domain that is not Kubernetes' own.
fn is_extended(resource: &str) -> bool {
    resource.split_once('/').is_some_and(|(domain, _)| {
        !(domain == "kubernetes.io"
            || domain.ends_with(".kubernetes.io")
            || resource.starts_with("requests."))
    })
}

/// The names of the extended resources that a pod asks for.
fn extended_resources(spec: &Value) -> BTreeSet<&str> {
    ["/initContainers", "/containers"]
        .into_iter()
        .flat_map(|pointer| list(spec, pointer))
        .flat_map(|container| [&container["resources"]["requests"], &container["resources"]["limits"]])
        .filter_map(Value::as_object)
        .flat_map(|resources| resources.keys())
        .map(String::as_str)
        .filter(|resource| is_extended(resource))
        .collect()
}

/// What admission makes of a pod that is being created. Doing it twice changes nothing.
pub fn admit_pod(pod: &mut Value) {
    let Some(spec) = pod.get("spec").filter(|spec| spec.is_object()) else {
        return;
    };
    let mut tolerations = list(spec, "/tolerations").to_vec();
    for resource in extended_resources(spec) {
        let wanted = json!({"key": resource, "operator": "Exists", "effect": "NoSchedule"});
        let covered = tolerations.iter().any(|toleration| {
            toleration["key"] == wanted["key"]
                && text(toleration, "/operator") == "Exists"
                && matches!(text(toleration, "/effect"), "" | "NoSchedule")
        });
        if !covered {
            tolerations.push(wanted);
        }
    }
    for taint in [NOT_READY, UNREACHABLE] {
        let covered = tolerations.iter().any(|toleration| {
            matches!(text(toleration, "/effect"), "" | "NoExecute")
                && (text(toleration, "/key") == taint
                    || (text(toleration, "/key").is_empty() && text(toleration, "/operator") == "Exists"))
        });
        if !covered {
            tolerations.push(json!({
                "key": taint, "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": TOLERATED_SECONDS,
            }));
        }
    }
    let system = match text(spec, "/priorityClassName") {
        "system-node-critical" => 2_000_001_000_i64,
        "system-cluster-critical" => 2_000_000_000,
        _ => 0,
    };
    let account = match text(spec, "/serviceAccountName") {
        "" => "default".to_owned(),
        account => account.to_owned(),
    };
    let spec = &mut pod["spec"];
    spec["tolerations"] = Value::Array(tolerations);
    for (field, value) in [
        ("priority", json!(system)),
        ("preemptionPolicy", json!("PreemptLowerPriority")),
        ("serviceAccountName", json!(account)),
        ("serviceAccount", json!(account)),
    ] {
        if spec.get(field).is_none_or(Value::is_null) {
            spec[field] = value;
        }
    }
}

/// One round: pods that came in without admission get it before they are bound.
pub(super) fn run(run: &mut Run<'_>) {
    for pod in run.objects("", "pods") {
        if !text(pod, "/spec/nodeName").is_empty() {
            continue;
        }
        let mut admitted = pod.clone();
        admit_pod(&mut admitted);
        if admitted["spec"] != pod["spec"] {
            let spec = admitted["spec"].take();
            run.merge("kube-apiserver", key("", "pods", pod), json!({"spec": spec}));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_that_ask_for_gpus_tolerate_their_taint() {
        let own = json!({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"});
        let table = [
            (json!({"resources": {"limits": {"nvidia.com/gpu": 1}}}), json!([]), true),
            (json!({"resources": {"requests": {"nvidia.com/gpu": "1"}}}), json!([own]), true),
            (json!({"resources": {"limits": {"cpu": 1, "hugepages-2Mi": "2Mi"}}}), json!([]), false),
            (json!({}), json!([]), false),
        ];
        for (container, tolerations, want) in table {
            let mut pod = json!({"spec": {"containers": [container], "tolerations": tolerations}});
            admit_pod(&mut pod);
            let found =
                list(&pod, "/spec/tolerations").iter().filter(|toleration| **toleration == own).count();
            assert_eq!(found, usize::from(want), "{pod}");
            let again = pod.clone();
            admit_pod(&mut pod);
            assert_eq!(pod, again, "admission twice");
        }
    }

    #[test]
    fn every_pod_survives_a_failing_node_for_a_while() {
        let mut pod = json!({"spec": {"containers": []}});
        admit_pod(&mut pod);
        let seconds: Vec<_> = list(&pod, "/spec/tolerations")
            .iter()
            .map(|t| (text(t, "/key"), &t["tolerationSeconds"]))
            .collect();
        assert_eq!(seconds, [(NOT_READY, &json!(300)), (UNREACHABLE, &json!(300))]);
        let mut all = json!({"spec": {"containers": [], "tolerations": [{"operator": "Exists"}]}});
        admit_pod(&mut all);
        assert_eq!(all["spec"]["tolerations"], json!([{"operator": "Exists"}]));
    }
}
