//! Pods of GKE itself: those that run on each node, and those that need a place somewhere.
//!
//! Amounts change with GKE's releases and are not published. Each row has the dump that it is from:
//! - 1.36: a node of GKE 1.36.3-gke.1767000, 2026-10 (n2-standard-4, network policies, NodeLocal DNS);
//! - 1.31: nvidia-gpu-device-plugin of GKE 1.31.5-gke.1233000 in vllm-project/production-stack's tutorials;
//! - 1.29: a node of GKE 1.29.6-gke.1038001, 2024-07 (e2-small with everything on it), and cryptnono/cryptnono issue 34;
//! - 2026-03: cloudpilot-ai/karpenter-provider-gcp issues 202 and 473.

use model::address::FieldPath;

use super::pool::{Features, Pool};
use crate::pod::PodRequirements;
use crate::requests::Request;
use crate::resources::Resource;
use crate::taints::Toleration;

const MIB: i64 = 1 << 20;

/// A pod of GKE on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemPod {
    pub name: &'static str,
    /// Thousandths of a CPU.
    pub cpu: i64,
    /// Bytes.
    pub memory: i64,
    /// Thousandths of a CPU by which it has been seen to be more.
    pub cpu_slack: i64,
}

const fn pod(name: &'static str, cpu: i64, mib: i64) -> SystemPod {
    SystemPod { name, cpu, memory: mib * MIB, cpu_slack: 0 }
}

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
    } = features;
    // The newer dump for everything after the older one's version.
    let new = pool.minor.is_none_or(|minor| minor > 29);
    let calico = network_policy && !dataplane_v2;
    let rows = [
        (!dataplane_v2, pod("kube-proxy", 100, 0)),
        // Recalled: of GKE's own `anetd` there is no dump; that of Google Distributed Cloud 1.25 asks for so much.
        (dataplane_v2, SystemPod { cpu_slack: 110, ..pod("anetd", 110, 164) }),
        // An autoscaler of its own raises it with the cluster: 160m in 2026-03, 500m in the dump of 1.36.
        (calico, SystemPod { cpu_slack: 340, ..pod("calico-node", 160, 0) }),
        (true, if new { pod("netd", 8, 65) } else { pod("netd", 7, 60) }),
        (true, pod("pdcsi-node", 10, 20)),
        (masquerade, pod("ip-masq-agent", 10, 16)),
        (workload_identity, pod("gke-metadata-server", 100, 100)),
        (logging, pod("fluentbit-gke", 105, 230)),
        (monitoring, if new { pod("gke-metrics-agent", 21, 145) } else { pod("gke-metrics-agent", 19, 155) }),
        // 36 MB.
        (managed_prometheus, pod("collector", 5, 35)),
        (node_local_dns, pod("node-local-dns", 30, 50)),
        (pool.gpus.is_some() && !no_plugin(pool), pod("nvidia-gpu-device-plugin", 150, 80)),
    ];
    rows.into_iter().filter(|(runs, _)| *runs).map(|(_, pod)| pod).collect()
}

/// Returns true if the pool's labels switch GKE's device plugin off.
/// Source: NVIDIA/aicr issue 1998.
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
    /// The pod as the scheduler sees it. Those of nodes tolerate everything; those that need a place tolerate nothing here, as the
    /// taints that they tolerate are none of a stack.
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
        let cpu: i64 =
            somewhere(Features::default()).iter().map(|(number, pod)| i64::from(*number) * pod.cpu).sum();
        assert!((600..800).contains(&cpu), "{cpu}");
    }
}
