//! Pods of GKE itself: those that run on each node, and those that run on some node.
//!
//! The amounts change with GKE's releases and are not published. Each row names its source:
//! - 1.36: a node of GKE 1.36.3-gke.1767000, 2026-10 (n2-standard-4, network policies, NodeLocal DNS);
//! - 1.31: nvidia-gpu-device-plugin of GKE 1.31.5-gke.1233000 in vllm-project/production-stack's tutorials;
//! - 1.29: a node of GKE 1.29.6-gke.1038001, 2024-07 (e2-small with everything on it), and cryptnono/cryptnono issue 34;
//! - 2025: CPU of all DaemonSets of a cluster with Dataplane V2 and GPUs, which somebody published without its version;
//! - 2026-03: cloudpilot-ai/karpenter-provider-gcp issues 202 and 473.
//!
//! Drivers of volumes have their own manifests: `deploy/base/node/node.yaml` in GoogleCloudPlatform/gcs-fuse-csi-driver (commit
//! f8d07ede; an older one, 04df4c7f, asked for 20m and 160 MiB) and `deploy/overlays/gke-release/node.yaml` in
//! GoogleCloudPlatform/lustre-csi-driver (commit 01a701e5). Google may run other versions: the unknown part is in the slack.

use model::address::FieldPath;

use super::pool::{Features, Pool};
use crate::pod::PodRequirements;
use crate::requests::Request;
use crate::resources::Resource;
use crate::taints::Toleration;

const MIB: i64 = 1 << 20;

/// A pod that GKE runs on a node, with its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemPod {
    pub name: &'static str,
    /// Thousandths of a CPU.
    pub cpu: i64,
    /// Bytes.
    pub memory: i64,
    /// Thousandths of a CPU by which the request may differ.
    pub cpu_slack: i64,
    /// Bytes by which the request may differ.
    pub memory_slack: i64,
}

const fn pod(name: &'static str, cpu: i64, mib: i64) -> SystemPod {
    SystemPod { name, cpu, memory: mib * MIB, cpu_slack: 0, memory_slack: 0 }
}

/// Returns a pod whose amounts are uncertain, with the possible difference.
const fn about(pod: SystemPod, cpu_slack: i64, slack_mib: i64) -> SystemPod {
    SystemPod { cpu_slack, memory_slack: slack_mib * MIB, ..pod }
}

/// GKE's device plugin. Its init container, which installs the driver, requests more CPU than the plugin itself.
pub const DEVICE_PLUGIN: SystemPod = pod("nvidia-gpu-device-plugin", 150, 80);

/// Returns the pods that run on each node of a pool: those of DaemonSets, and kube-proxy, which is a static pod.
pub fn on_each_node(pool: &Pool, features: Features) -> Vec<SystemPod> {
    let Features {
        dataplane_v2,
        network_policy,
        workload_identity,
        logging,
        monitoring,
        managed_prometheus,
        node_local_dns,
        masquerade,
        gcs_fuse_csi,
        filestore_csi,
        parallelstore_csi,
        lustre_csi,
        dcgm,
    } = features;
    // The newer dump for everything after the older one's version.
    let new = pool.minor.is_none_or(|minor| minor > 29);
    let calico = network_policy && !dataplane_v2;
    let rows = [
        (!dataplane_v2, pod("kube-proxy", 100, 0)),
        // The CPU of 2025. From memory: that of Google Distributed Cloud 1.25 asks for 110m and 164 MiB.
        (dataplane_v2, about(pod("anetd", 205, 164), 95, 164)),
        // An autoscaler of its own raises it with the cluster: 160m in 2026-03, 500m in the dump of 1.36.
        (calico, about(pod("calico-node", 160, 0), 340, 0)),
        (true, if new { pod("netd", 8, 65) } else { pod("netd", 7, 60) }),
        (true, pod("pdcsi-node", 10, 20)),
        (masquerade, pod("ip-masq-agent", 10, 16)),
        (workload_identity, pod("gke-metadata-server", 100, 100)),
        (logging, pod("fluentbit-gke", 105, 230)),
        (monitoring, if new { pod("gke-metrics-agent", 21, 145) } else { pod("gke-metrics-agent", 19, 155) }),
        // 36 MB.
        (managed_prometheus, pod("collector", 5, 35)),
        (node_local_dns, pod("node-local-dns", 30, 50)),
        (pool.gpus.is_some() && !no_plugin(pool), DEVICE_PLUGIN),
        // The CPU of 2025; its memory is not known, as that of filestore-node and runsc-metric-server.
        (pool.gpus.is_some() && dcgm, about(pod("dcgm-exporter", 100, 128), 0, 128)),
        (filestore_csi, about(pod("filestore-node", 25, 60), 0, 60)),
        (pool.gvisor, about(pod("runsc-metric-server", 3, 25), 0, 25)),
        (gcs_fuse_csi, about(pod("gcsfusecsi-node", 15, 20), 5, 140)),
        (lustre_csi, about(pod("lustre-csi-node", 15, 20), 5, 140)),
        // Neither a dump nor a manifest: like the others.
        (parallelstore_csi, about(pod("parallelstore-csi-node", 15, 20), 15, 140)),
    ];
    rows.into_iter().filter(|(runs, _)| *runs).map(|(_, pod)| pod).collect()
}

/// Returns true if the pool's labels turn off GKE's device plugin. Source: NVIDIA/aicr issue 1998.
fn no_plugin(pool: &Pool) -> bool {
    pool.labels.get("gke-no-default-nvidia-gpu-device-plugin").is_some_and(|value| value == "true")
}

/// Returns GKE's pods that need a place on some node without taints, each with its number. Dumps of 1.29; metrics-server and the
/// DNS grow with the cluster.
pub fn somewhere(features: Features) -> Vec<(u32, SystemPod)> {
    let rows = [
        (true, 2, pod("kube-dns", 265, 140)),
        (true, 1, pod("kube-dns-autoscaler", 20, 10)),
        (true, 2, pod("konnectivity-agent", 15, 60)),
        (true, 1, pod("konnectivity-agent-autoscaler", 10, 10)),
        (true, 1, pod("metrics-server", 48, 105)),
        (features.logging, 1, pod("event-exporter-gke", 3, 100)),
        (features.managed_prometheus, 1, pod("gmp-operator", 1, 16)),
    ];
    rows.into_iter().filter(|(runs, ..)| *runs).map(|(_, number, pod)| (number, pod)).collect()
}

impl SystemPod {
    /// Returns the pod as the scheduler sees it. Pods of each node tolerate everything. The others tolerate nothing here, because
    /// a stack never has the taints that they tolerate.
    pub fn requirements(&self, tolerations: Vec<Toleration>) -> PodRequirements {
        let amounts = [(Resource::Cpu, self.cpu), (Resource::Memory, self.memory)];
        let request = |(resource, amount)| Request { resource, amount, path: FieldPath::root() };
        PodRequirements {
            namespace: "kube-system".to_owned(),
            requests: amounts.into_iter().filter(|(_, amount)| *amount > 0).map(request).collect(),
            tolerations,
            ..PodRequirements::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The dump of GKE 1.36 has 384m and 626Mi of GKE's pods beside Calico's, which is 500m there.
    #[test]
    fn pods_of_a_real_node() {
        let mut pool = Pool::new("a", "n2-standard-4");
        pool.minor = Some(36);
        let features = Features {
            network_policy: true,
            managed_prometheus: false,
            node_local_dns: true,
            ..Features::default()
        };
        let all = on_each_node(&pool, features);
        let (calico, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|pod| pod.name == "calico-node");
        let cpu: i64 = others.iter().map(|pod| pod.cpu).sum();
        let memory: i64 = others.iter().map(|pod| pod.memory).sum();
        assert_eq!((cpu, memory / MIB), (384, 626));
        assert_eq!(calico[0].cpu + calico[0].cpu_slack, 500);
    }

    #[test]
    fn pods_depend_on_features() {
        let pool = Pool::new("a", "n2-standard-4");
        let names = |features| on_each_node(&pool, features).iter().map(|pod| pod.name).collect::<Vec<_>>();
        let all = names(Features::default());
        assert!(
            all.contains(&"kube-proxy")
                && !all.contains(&"anetd")
                && !all.contains(&"nvidia-gpu-device-plugin")
        );
        let v2 = names(Features { dataplane_v2: true, network_policy: true, ..Features::default() });
        assert!(!v2.contains(&"kube-proxy") && v2.contains(&"anetd") && !v2.contains(&"calico-node"));
        let drivers = Features {
            gcs_fuse_csi: true,
            filestore_csi: true,
            parallelstore_csi: true,
            lustre_csi: true,
            ..Features::default()
        };
        let slack = |features| {
            let all = on_each_node(&pool, features);
            all.iter().map(|pod| pod.memory_slack / MIB).sum::<i64>()
        };
        assert_eq!(
            (names(drivers).len() - all.len(), slack(Features::default()), slack(drivers)),
            (4, 0, 480)
        );
        let cpu: i64 =
            somewhere(Features::default()).iter().map(|(number, pod)| i64::from(*number) * pod.cpu).sum();
        assert!((600..800).contains(&cpu), "{cpu}");
    }
}
