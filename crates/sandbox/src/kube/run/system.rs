//! The workloads of GKE itself in `kube-system`, as far as users meet them: the GPU device plugin, which waits for
//! the driver, and a DNS that has to land on some node.

use serde_json::{Value, json};

use super::super::object::name;
use super::autoscaler::is_queued;
use super::nodes::ACCELERATOR_LABEL;
use super::round::Run;
use fit::gke::system::DEVICE_PLUGIN;
use model::schema::provisioning_crd;

/// The field manager of GKE's own workloads.
const ADDONS: &str = "addon-manager";
const SYSTEM: &str = "kube-system";

/// One round: makes what is missing. As GKE's addon manager, it puts back what somebody deletes.
pub fn run(run: &mut Run<'_>) {
    if run.get("", "namespaces", "", SYSTEM).is_none() {
        return;
    }
    // GKE has it in every cluster; here it comes with what it is for.
    let definition = provisioning_crd();
    if (run.makes_pools || run.pools.iter().any(is_queued))
        && run.get("apiextensions.k8s.io", "customresourcedefinitions", "", name(definition)).is_none()
    {
        run.create(ADDONS, definition.clone());
    }
    if run.get("apps", "daemonsets", SYSTEM, "nvidia-gpu-device-plugin").is_none() {
        run.create(ADDONS, device_plugin());
    }
    if run.get("apps", "deployments", SYSTEM, "kube-dns").is_none() {
        run.create(ADDONS, dns());
    }
    if run.get("", "services", SYSTEM, "kube-dns").is_none() {
        run.create(ADDONS, dns_service());
    }
}

fn device_plugin() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {
            "name": "nvidia-gpu-device-plugin", "namespace": SYSTEM,
            "labels": {
                "k8s-app": "nvidia-gpu-device-plugin", "addonmanager.kubernetes.io/mode": "Reconcile",
            },
        },
        "spec": {
            "selector": {"matchLabels": {"k8s-app": "nvidia-gpu-device-plugin"}},
            "updateStrategy": {"type": "RollingUpdate"},
            "template": {
                "metadata": {"labels": {"k8s-app": "nvidia-gpu-device-plugin"}},
                "spec": {
                    "priorityClassName": "system-node-critical",
                    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [
                            {"key": ACCELERATOR_LABEL, "operator": "Exists"},
                            {"key": "gke-no-default-nvidia-gpu-device-plugin", "operator": "DoesNotExist"},
                        ]}],
                    }}},
                    "tolerations": [{"operator": "Exists"}],
                    "hostNetwork": true, "hostPID": true,
                    "initContainers": [{
                        "name": "wait-for-driver", "image": "gke.gcr.io/nvidia-gpu-device-plugin:1.1",
                        "command": ["bash", "-c"],
                        "args": ["until ls /usr/local/nvidia/lib64; do echo 'Waiting for GPU driver libraries \
                                  to be available.'; sleep 30; done"],
                    }],
                    "containers": [{
                        "name": "nvidia-gpu-device-plugin", "image": "gke.gcr.io/nvidia-gpu-device-plugin:1.1",
                        "command": ["/usr/bin/nvidia-gpu-device-plugin", "-logtostderr"],
                        "resources": {
                            "requests": {
                                "cpu": format!("{}m", DEVICE_PLUGIN.cpu), "memory": DEVICE_PLUGIN.memory.to_string(),
                            },
                        },
                    }],
                },
            },
        },
    })
}

fn dns() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": "kube-dns", "namespace": SYSTEM,
            "labels": {"k8s-app": "kube-dns", "addonmanager.kubernetes.io/mode": "Reconcile"},
        },
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"k8s-app": "kube-dns"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "10%", "maxUnavailable": 0}},
            "template": {
                "metadata": {"labels": {"k8s-app": "kube-dns"}},
                "spec": {
                    "priorityClassName": "system-cluster-critical",
                    "tolerations": [
                        {"key": "CriticalAddonsOnly", "operator": "Exists"},
                        {"key": "components.gke.io/gke-managed-components", "operator": "Exists"},
                    ],
                    "containers": [{
                        "name": "kubedns", "image": "gke.gcr.io/k8s-dns-kube-dns:1.23.0",
                        "ports": [
                            {"name": "dns-local", "containerPort": 10053, "protocol": "UDP"},
                            {"name": "dns-tcp-local", "containerPort": 10053, "protocol": "TCP"},
                        ],
                        "resources": {"requests": {"cpu": "100m", "memory": "70Mi"}, "limits": {"memory": "210Mi"}},
                    }],
                },
            },
        },
    })
}

fn dns_service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": "kube-dns", "namespace": SYSTEM,
            "labels": {
                "k8s-app": "kube-dns", "kubernetes.io/name": "KubeDNS", "kubernetes.io/cluster-service": "true",
                "addonmanager.kubernetes.io/mode": "Reconcile",
            },
        },
        "spec": {
            "clusterIP": "34.118.224.10",
            "selector": {"k8s-app": "kube-dns"},
            "ports": [
                {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": 53},
                {"name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": 53},
            ],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{World, gpu, pool};
    use super::*;
    use crate::kube::object::{label, text};

    fn dns_phase(pools: Vec<super::super::PoolView>) -> (String, String) {
        let mut world = World::new(pools);
        world.pass(120);
        let pods = world.pods(SYSTEM);
        let dns = pods.iter().find(|pod| label(pod, "k8s-app") == "kube-dns").expect("a DNS pod");
        let pool = world.get("", "nodes", "", text(dns, "/spec/nodeName"));
        (text(dns, "/status/phase").to_owned(), label(&pool, super::super::nodes::POOL_LABEL).to_owned())
    }

    #[test]
    fn system_pods_land_where_they_are_let() {
        let gpus = gpu("nvidia-tesla-a100", "2", "DEFAULT");
        let mut tainted = gpus.clone();
        tainted["taints"] = json!([{"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}]);
        let a100 = |config: &Value| pool("a100", "a2-highgpu-2g", 1, config.clone());
        let cpu = pool("cpu", "e2-standard-4", 1, json!({}));
        let running = |pool: &str| ("Running".to_owned(), pool.to_owned());
        assert_eq!(dns_phase(vec![a100(&gpus)]), running("a100"), "untainted GPU nodes carry everything");
        assert_eq!(dns_phase(vec![a100(&tainted), cpu]), running("cpu"));
        assert_eq!(dns_phase(vec![a100(&tainted)]), ("Pending".to_owned(), String::new()));
    }
}
