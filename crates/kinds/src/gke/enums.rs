//! Enumerations: the words of the stack file and their names in the GKE API. Also durations.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::json::text;
pub use crate::short_forms::seconds;

/// Declares an enumeration: words of the stack file, each with its name in the API.
macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $word:ident = $api:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema)]
        #[serde(rename_all = "kebab-case")]
        pub enum $name { $($(#[$doc])* $word,)* }

        impl $name {
            /// Returns the API's name.
            pub fn api(self) -> Value {
                match self { $(Self::$word => json!($api),)* }
            }

            /// Returns the word of the stack file for a name of the API; `None` if there is none.
            pub fn of(live: &Value) -> Option<Self> {
                match text(live) { $($api => Some(Self::$word),)* _ => None }
            }
        }
    };
}

words! {
    /// Where the machines of a pool stand.
    Placement {
        /// Close together, for workers that exchange much.
        Compact = "COMPACT",
    }
}

words! {
    /// In which zones the autoscaler adds nodes.
    LocationPolicy {
        /// Where machines are to be had: for GPUs, Spot and reservations.
        Any = "ANY",
        /// An equal number of nodes in each zone, as far as possible. GKE's default.
        Balanced = "BALANCED",
    }
}

words! {
    /// Which metadata server Pods see.
    WorkloadMetadata {
        /// GKE's: Pods are Kubernetes service accounts, never the node's. Needs `workload_identity` of the cluster.
        Gke = "GKE_METADATA",
        /// Compute Engine's: Pods can act as the node's service account.
        Gce = "GCE_METADATA",
    }
}

words! {
    /// The agent that collects logs of Pods.
    LoggingVariant {
        /// Good for 100 kB/s a node.
        Default = "DEFAULT",
        /// For 10 MB/s a node, at the price of more CPU.
        MaxThroughput = "MAX_THROUGHPUT",
    }
}

words! {
    /// How GPUs reach those of other nodes past the CPU, where the API has a field for it.
    GpuDirect {
        /// RDMA over the network cards of A3 Ultra, A4 and A4X.
        Rdma = "RDMA",
    }
}

words! {
    /// How the memory of nodes is encrypted.
    Confidential {
        /// AMD SEV.
        Sev = "SEV",
        /// AMD SEV-SNP.
        SevSnp = "SEV_SNP",
        /// Intel TDX.
        Tdx = "TDX",
    }
}

words! {
    /// How a label of a node group is compared.
    TenantOperator {
        /// One of the values.
        In = "IN",
        /// None of the values.
        NotIn = "NOT_IN",
    }
}

words! {
    /// How hard the autoscaler tries to remove nodes.
    AutoscalingProfile {
        /// GKE's default.
        Balanced = "BALANCED",
        /// Removes nodes earlier, for less money.
        OptimizeUtilization = "OPTIMIZE_UTILIZATION",
    }
}

words! {
    /// The problems that GKE looks for in workloads.
    SecurityPosture {
        /// Nothing.
        Disabled = "DISABLED",
        /// Known misconfigurations. GKE's default.
        Basic = "BASIC",
        /// Threats as well.
        Enterprise = "ENTERPRISE",
    }
}

words! {
    /// The packages in which GKE looks for known vulnerabilities.
    VulnerabilityScanning {
        /// None.
        Disabled = "VULNERABILITY_DISABLED",
        /// Packages of the operating system.
        Basic = "VULNERABILITY_BASIC",
        /// Packages of the operating system and of programming languages.
        Enterprise = "VULNERABILITY_ENTERPRISE",
    }
}

words! {
    /// The upgrades that a maintenance exclusion prevents.
    ExclusionScope {
        /// Every upgrade.
        NoUpgrades = "NO_UPGRADES",
        /// Upgrades to another minor version.
        NoMinorUpgrades = "NO_MINOR_UPGRADES",
        /// Upgrades to another minor version, and upgrades of nodes.
        NoMinorOrNodeUpgrades = "NO_MINOR_OR_NODE_UPGRADES",
    }
}

words! {
    /// Components that write logs to Cloud Logging.
    LogComponent {
        /// GKE's own Pods and nodes.
        System = "SYSTEM_COMPONENTS",
        /// All other Pods.
        Workloads = "WORKLOADS",
        /// The API server.
        Apiserver = "APISERVER",
        /// The scheduler.
        Scheduler = "SCHEDULER",
        /// The controller manager.
        ControllerManager = "CONTROLLER_MANAGER",
    }
}

words! {
    /// Components that send metrics to Cloud Monitoring.
    MetricComponent {
        /// GKE's own Pods and nodes.
        System = "SYSTEM_COMPONENTS",
        /// The API server.
        Apiserver = "APISERVER",
        /// The scheduler.
        Scheduler = "SCHEDULER",
        /// The controller manager.
        ControllerManager = "CONTROLLER_MANAGER",
        /// Volumes.
        Storage = "STORAGE",
        /// Horizontal Pod autoscalers.
        Hpa = "HPA",
        /// Pods.
        Pod = "POD",
        /// DaemonSets.
        Daemonset = "DAEMONSET",
        /// Deployments.
        Deployment = "DEPLOYMENT",
        /// StatefulSets.
        Statefulset = "STATEFULSET",
        /// JobSets.
        Jobset = "JOBSET",
        /// Containers.
        Cadvisor = "CADVISOR",
        /// The kubelet.
        Kubelet = "KUBELET",
        /// NVIDIA GPUs.
        Dcgm = "DCGM",
    }
}

/// Returns a duration in the form of protobuf's JSON: `604800s`. A text that is not a duration is returned unchanged, and a rule
/// reports it.
pub fn to_proto_duration(text: &str) -> Value {
    seconds(text).map_or_else(|| json!(text), |seconds| json!(format!("{seconds}s")))
}

/// Returns a live duration as people write it.
pub fn from_proto_duration(live: &Value) -> Option<String> {
    let seconds: u64 = text(live).strip_suffix('s')?.parse().ok()?;
    let units = [(86_400, 'd'), (3600, 'h'), (60, 'm')];
    let whole = units.into_iter().find(|(unit, _)| seconds > 0 && seconds.is_multiple_of(*unit));
    Some(whole.map_or_else(|| format!("{seconds}s"), |(unit, name)| format!("{}{name}", seconds / unit)))
}

/// Renames the keys of a table to the API's fields: `pod_pids_limit` to `podPidsLimit`. 64-bit numbers, which `wide` names,
/// become strings.
pub fn to_api_keys(table: &impl Serialize, wide: &[&str]) -> Value {
    rename_keys(&serde_json::to_value(table).unwrap_or_default(), &|key| to_camel(key), &|key, value| {
        let wide = wide.contains(&key) && value.is_number();
        if wide { json!(value.to_string()) } else { value }
    })
}

/// Renames the API's fields to keys of the stack file, and drops fields without a key.
pub fn from_api_keys<T: for<'de> Deserialize<'de>>(live: &Value, wide: &[&str]) -> Option<T> {
    live.as_object()?;
    let table = rename_keys(live, &to_snake, &|key, value| {
        let number = value.as_str().and_then(|text| text.parse::<u64>().ok());
        number.filter(|_| wide.contains(&key)).map_or(value, Value::from)
    });
    serde_json::from_value(table).ok()
}

/// Renames keys of the outermost table and of the tables in it.
fn rename_keys(value: &Value, key: &impl Fn(&str) -> String, inner: &impl Fn(&str, Value) -> Value) -> Value {
    let Some(table) = value.as_object() else { return value.clone() };
    table
        .iter()
        .map(|(name, value)| {
            let value = if name == "sysctls" { value.clone() } else { rename_keys(value, key, inner) };
            let name = key(name);
            let value = inner(&name, value);
            (name, value)
        })
        .collect()
}

fn to_camel(key: &str) -> String {
    let mut parts = key.split('_');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |mut all, part| {
        let mut letters = part.chars();
        all.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        all.extend(letters);
        all
    })
}

fn to_snake(key: &str) -> String {
    let mut all = String::new();
    for letter in key.chars() {
        if letter.is_ascii_uppercase() {
            all.push('_');
        }
        all.push(letter.to_ascii_lowercase());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::short_forms::seconds;

    #[test]
    fn durations() {
        let known = [("7d", 604_800), ("1h30m", 5400), ("45s", 45)];
        for (text, expect) in known {
            assert_eq!(seconds(text), Some(expect), "{text}");
        }
        for text in ["", "7", "7 d", "d", "1w", "-1h"] {
            assert_eq!(seconds(text), None, "{text}");
        }
        let back: Vec<Option<String>> = ["604800s", "5400s", "45s", "0s", "1.5s"]
            .iter()
            .map(|live| from_proto_duration(&json!(live)))
            .collect();
        let expect = [Some("7d"), Some("90m"), Some("45s"), Some("0s"), None];
        assert_eq!(back, expect.map(|text| text.map(str::to_owned)));
    }
}
