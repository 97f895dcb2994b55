//! The NVIDIA driver: GKE's own, or the installer DaemonSet, which is ready once nodes have allocatable GPUs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::node_pool::allocatable_gpus;
use crate::kind::{
    Compare, Kind, MissingQuery, Neighbor, Queries, QueryResults, address_in, own_object_query,
};
use crate::kubernetes::calls::object_change_steps;
use crate::kubernetes::object::{bare, gvk};
use crate::kubernetes::pods;
use crate::kubernetes::workload::{self, daemon_set_ready, template_effect};
use crate::scope::{DRIVER_INSTALLER, Scope};
use crate::section::{Lifecycle, Manage, Section, SectionHead};
use crate::short_forms::DriverInstall;
use model::address::{Address, FieldPath};
use model::resource::{
    Action, Api, Await, Facts, Identity, KindId, ObjectId, Query, Readiness, Recreation, Resource,
};

/// Seconds: downloading and building takes minutes, nodes report GPUs up to 15 minutes after they are Ready.
const DEADLINE: u32 = 1800;

/// The installer DaemonSet.
pub const KIND: Kind = Kind {
    rank: 41,
    compare: Compare::Kubernetes(template_effect),
    change_steps: |context| object_change_steps(context, KindId::GpuDriver, Facts::None, DEADLINE),
    queries,
    readiness,
    shared: true,
    status_line: |_, found| Ok(workload::daemon_set_status(found.own_object())),
    pods: pods::selecting,
    address: |object| address_in("gpu_driver", object),
    invalidates_checks: |action| matches!(action, Action::Create | Action::Replace | Action::Update),
    ..Kind::DEFAULT
};

/// How the NVIDIA driver gets onto GPU nodes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct GpuDriver {
    /// `gke`: GKE installs it. `daemonset`: the installer DaemonSet for Container-Optimized OS does, and GKE's
    /// installation is disabled on the pools. `none`: GKE's installation is disabled, and others bring the driver, as NVIDIA's GPU
    /// Operator does. Default `gke`.
    #[serde(default)]
    pub install: DriverInstall,
    /// `false`: the DaemonSet exists and is managed elsewhere. It is read and relied on, never written or deleted.
    /// Default `true`.
    #[serde(default, skip_serializing_if = "Manage::is_managed")]
    pub manage: Manage,
    /// `protect` and `depends_on`.
    #[serde(flatten)]
    pub lifecycle: Lifecycle,
}

impl Section for GpuDriver {
    fn head(&self) -> SectionHead<'_> {
        SectionHead { manage: self.manage, depends_on: &self.lifecycle.depends_on, ..SectionHead::default() }
    }
}

/// Returns the DaemonSet of `[gpu_driver]`; `None` if GKE or something else installs the driver. The pools then have the setting.
pub fn lower(section: &GpuDriver, scope: &Scope) -> Option<Resource> {
    let GpuDriver { install, manage: _, lifecycle } = section;
    if *install != DriverInstall::Daemonset {
        return None;
    }
    let object = ObjectId {
        gvk: gvk("apps", "v1", "DaemonSet", "daemonsets"),
        namespace: Some("kube-system".into()),
        name: DRIVER_INSTALLER.into(),
    };
    let origin = FieldPath::keys(["gpu_driver"]);
    let gpu_pools = scope.pools.iter().filter(|pool| pool.gpus > 0);
    let mut depends_on = scope.cluster_dependency();
    depends_on.extend(gpu_pools.map(|pool| Address::of("node_pool", &pool.key)));
    depends_on.extend(lifecycle.depends_on.iter().map(Address::new));
    Some(Resource {
        address: Address::object("gpu_driver", "DaemonSet", Some("kube-system"), DRIVER_INSTALLER),
        identity: Identity::Object(object),
        kind: KindId::GpuDriver,
        body: daemon_set(scope),
        provenance: vec![(FieldPath::root(), origin.key("install"))],
        origin,
        depends_on,
        protect: lifecycle.protect,
        recreation: Recreation::Always,
        create_only: Value::Null,
    })
}

/// Returns the DaemonSet that `[gpu_driver]` with `manage = false` relies on.
pub fn lower_external(section: &GpuDriver, scope: &Scope) -> Option<Resource> {
    let mut resource = lower(section, scope)?;
    resource.body = bare(&resource.body);
    Some(resource)
}

/// Returns the installer for the newest driver of a node's Container-Optimized OS build. Source:
/// GoogleCloudPlatform/container-engine-accelerators at 992db81, `nvidia-driver-installer/cos/daemonset-preloaded-latest.yaml`:
/// its values, in our own text.
fn daemon_set(scope: &Scope) -> Value {
    let mut labels = scope.shared_labels();
    labels["k8s-app"] = json!(DRIVER_INSTALLER);
    let pod_labels = json!({ "name": DRIVER_INSTALLER, "k8s-app": DRIVER_INSTALLER });
    let needs =
        |key: &str, operator: &str| json!({ "key": format!("cloud.google.com/{key}"), "operator": operator });
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": { "name": DRIVER_INSTALLER, "namespace": "kube-system", "labels": labels },
        "spec": {
            "selector": { "matchLabels": { "k8s-app": DRIVER_INSTALLER } },
            "updateStrategy": { "type": "RollingUpdate" },
            "template": {
                "metadata": { "labels": pod_labels },
                "spec": {
                    "priorityClassName": "system-node-critical",
                    "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{ "matchExpressions": [
                            needs("gke-accelerator", "Exists"),
                            needs("gke-gpu-driver-version", "DoesNotExist"),
                            needs("gke-confidential-nodes-instance-type", "DoesNotExist"),
                        ] }],
                    } } },
                    "tolerations": [{ "operator": "Exists" }],
                    "hostNetwork": true,
                    "hostPID": true,
                    "volumes": volumes(),
                    "initContainers": [installer(), partitioner()],
                    "containers": [{
                        "name": "pause",
                        "image": "gke.gcr.io/pause:3.8@sha256:880e63f94b145e46f1b1082bb71b85e21f16b99b180b9996407d61240ceb9830",
                    }],
                },
            },
        },
    })
}

fn volumes() -> Value {
    let paths = [
        ("dev", "/dev"),
        ("vulkan-icd-mount", "/home/kubernetes/bin/nvidia/vulkan/icd.d"),
        ("nvidia-install-dir-host", "/home/kubernetes/bin/nvidia"),
        ("root-mount", "/"),
        ("cos-tools", "/var/lib/cos-tools"),
        ("nvidia-config", "/etc/nvidia"),
    ];
    paths.iter().map(|(name, path)| json!({ "name": name, "hostPath": { "path": path } })).collect()
}

fn mounts(pairs: &[(&str, &str)]) -> Value {
    pairs.iter().map(|(name, path)| json!({ "name": name, "mountPath": path })).collect()
}

fn env(pairs: &[(&str, &str)]) -> Value {
    pairs.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect()
}

/// The script of the installer. It leaves a loaded driver as it is: the installer never upgrades a driver in place.
const INSTALL: &str = "set -o errexit
if grep -q '^nvidia ' /proc/modules; then
  echo 'a driver is loaded already'
  exit 0
fi
/cos-gpu-installer install --version=latest
chmod 755 /root/home/kubernetes/bin/nvidia
";

fn installer() -> Value {
    json!({
        "name": DRIVER_INSTALLER,
        "image": "cos-nvidia-installer:fixed",
        "imagePullPolicy": "Never",
        "command": ["bash", "-c", INSTALL],
        "resources": { "requests": { "cpu": "150m" } },
        "securityContext": { "privileged": true },
        "env": env(&[
            ("NVIDIA_INSTALL_DIR_HOST", "/home/kubernetes/bin/nvidia"),
            ("NVIDIA_INSTALL_DIR_CONTAINER", "/usr/local/nvidia"),
            ("VULKAN_ICD_DIR_HOST", "/home/kubernetes/bin/nvidia/vulkan/icd.d"),
            ("VULKAN_ICD_DIR_CONTAINER", "/etc/vulkan/icd.d"),
            ("ROOT_MOUNT_DIR", "/root"),
            ("COS_TOOLS_DIR_HOST", "/var/lib/cos-tools"),
            ("COS_TOOLS_DIR_CONTAINER", "/build/cos-tools"),
        ]),
        "volumeMounts": mounts(&[
            ("nvidia-install-dir-host", "/usr/local/nvidia"),
            ("vulkan-icd-mount", "/etc/vulkan/icd.d"),
            ("dev", "/dev"),
            ("root-mount", "/root"),
            ("cos-tools", "/build/cos-tools"),
        ]),
    })
}

fn partitioner() -> Value {
    json!({
        "name": "partition-gpus",
        "image": "gcr.io/gke-release/nvidia-partition-gpu@sha256:de12f85ebfb4fb6c1893cd30c23aab662a72fa0448f97ef74fccb82d7522ef17",
        "resources": { "requests": { "cpu": "150m" } },
        "securityContext": { "privileged": true },
        "env": env(&[("LD_LIBRARY_PATH", "/usr/local/nvidia/lib64")]),
        "volumeMounts": mounts(&[
            ("nvidia-install-dir-host", "/usr/local/nvidia"),
            ("dev", "/dev"),
            ("nvidia-config", "/etc/nvidia"),
        ]),
    })
}

fn queries(wait: &Await) -> Queries {
    let mut queries = own_object_query(wait);
    if wait.until.is_ready() {
        let path = "/api/v1/nodes?labelSelector=cloud.google.com%2Fgke-accelerator".to_owned();
        queries.neighbor(Neighbor::Nodes, Query { api: Api::Kubernetes, path });
    }
    queries
}

/// Returns ready once it is rolled out and every GPU node has allocatable GPUs. A DaemonSet without pods is ready only if GKE
/// installed the driver on every GPU node; otherwise it is stalled.
fn readiness(_: &Await, found: &QueryResults) -> Result<Readiness, MissingQuery> {
    let nodes = found.get(Neighbor::Nodes)?;
    match daemon_set_ready(found.own_object()) {
        Readiness::Ready => {}
        other => return Ok(other),
    }
    let nodes: Vec<&Value> = nodes["items"].as_array().into_iter().flatten().collect();
    let have = nodes.iter().filter(|node| allocatable_gpus(node) > 0).count();
    if have == nodes.len() {
        return Ok(Readiness::Ready);
    }
    Ok(Readiness::progressing(format!("{have} of {} GPU nodes have allocatable GPUs", nodes.len())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::Part;
    use crate::scope::POOL_LABEL;
    use model::resource::Until;

    #[test]
    fn the_gate_is_allocatable_gpus_on_every_gpu_node() {
        let set = json!({ "metadata": { "generation": 1 }, "status": {
            "observedGeneration": 1, "desiredNumberScheduled": 1, "currentNumberScheduled": 1,
            "updatedNumberScheduled": 1, "numberReady": 1, "numberAvailable": 1,
        } });
        let node = |gpus: &str| {
            json!({ "items": [{
                "metadata": { "name": "n1", "labels": { POOL_LABEL: "a100" } },
                "status": { "allocatable": { "nvidia.com/gpu": gpus } },
            }] })
        };
        let wait = Await {
            kind: KindId::GpuDriver,
            identity: Identity::Check(Address::new("x")),
            until: Until::Ready,
            facts: Facts::None,
            deadline: 1,
        };
        let judged = |nodes: Value| {
            readiness(&wait, &QueryResults::of([(Part::Itself, &set)]).with(Neighbor::Nodes, &nodes)).unwrap()
        };
        assert_eq!(judged(node("2")), Readiness::Ready);
        let expect = "0 of 1 GPU nodes have allocatable GPUs";
        assert_eq!(judged(node("0")), Readiness::progressing(expect));
    }
}
