//! Resources of nodes and pods, as the integers that kube-scheduler compares.
//!
//! Source: `Resource` in pkg/scheduler/framework/types.go and `IsScalarResourceName` of Kubernetes 1.36.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use model::quantity::Quantity;

/// A resource, in the order in which kube-scheduler reports shortages.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// The number of pods; each pod counts 1.
    Pods,
    /// CPUs, in thousandths of a CPU.
    Cpu,
    /// Memory in bytes.
    Memory,
    /// Disk for logs, images and `emptyDir`, in bytes.
    EphemeralStorage,
    /// Anything with a domain (`nvidia.com/gpu`), huge pages and attachable volumes, in whole units.
    Extended(String),
}

impl Resource {
    /// Returns the resource for a key in `requests`; `None` for resources that kube-scheduler does not count.
    pub fn of(name: &str) -> Option<Self> {
        Some(match name {
            "pods" => Self::Pods,
            "cpu" => Self::Cpu,
            "memory" => Self::Memory,
            "ephemeral-storage" => Self::EphemeralStorage,
            _ => {
                let has_domain = name.contains('/') && !name.starts_with("requests.");
                let counted = has_domain
                    || ["hugepages-", "attachable-volumes-"].iter().any(|start| name.starts_with(start));
                return counted.then(|| Self::Extended(name.to_owned()));
            }
        })
    }

    /// Returns the key in `requests` and `allocatable`.
    pub fn name(&self) -> &str {
        match self {
            Self::Pods => "pods",
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::EphemeralStorage => "ephemeral-storage",
            Self::Extended(name) => name,
        }
    }

    /// Returns the quantity as the integer that kube-scheduler compares.
    pub fn count(&self, quantity: Quantity) -> i64 {
        match self {
            Self::Cpu => quantity.milli(),
            Self::Pods | Self::Memory | Self::EphemeralStorage | Self::Extended(_) => quantity.whole(),
        }
    }

    /// Returns an amount as people would write it: `1.93` CPUs, `5.48Gi`, `2`.
    pub fn text(&self, amount: i64) -> String {
        match self {
            Self::Cpu => decimal(amount, 1000, 3),
            Self::Memory | Self::EphemeralStorage => bytes(amount),
            Self::Pods | Self::Extended(_) => amount.to_string(),
        }
    }

    /// Returns true if the amount of this resource on GKE's nodes is known only to about 1 %.
    pub fn is_measured(&self) -> bool {
        matches!(self, Self::Cpu | Self::Memory | Self::EphemeralStorage)
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Returns bytes in the largest binary unit that is not above them, to two decimal places.
fn bytes(amount: i64) -> String {
    let units = [("Ti", 1_i64 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];
    let unit = units.into_iter().find(|(_, size)| amount.unsigned_abs() >= size.unsigned_abs());
    unit.map_or_else(|| amount.to_string(), |(unit, size)| decimal(amount, size, 2) + unit)
}

/// Returns `amount / size` rounded to `places` decimal places, without trailing zeros.
fn decimal(amount: i64, size: i64, places: u32) -> String {
    let power = 10_i128.pow(places);
    let sign = if amount < 0 { "-" } else { "" };
    let (amount, size) = (i128::from(amount).abs(), i128::from(size));
    let scaled = (amount * power + size / 2) / size;
    let width = usize::try_from(places).unwrap_or_default();
    let text = format!("{sign}{}.{:0width$}", scaled / power, scaled % power);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Amounts of resources that a node has, or that its pods use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// Thousandths of a CPU.
    pub cpu: i64,
    /// Bytes.
    pub memory: i64,
    /// Bytes.
    pub ephemeral_storage: i64,
    /// Pods.
    pub pods: i64,
    /// Whole units, by name.
    pub extended: BTreeMap<String, i64>,
}

impl Amounts {
    /// Reads `status.allocatable` or `status.capacity` of a Node. Values that are not quantities count as absent.
    pub fn read(list: &Value) -> Self {
        let mut out = Self::default();
        for (name, value) in list.as_object().into_iter().flatten() {
            if let Some((resource, quantity)) = Resource::of(name).zip(Quantity::of(value)) {
                out.add(&resource, resource.count(quantity));
            }
        }
        out
    }

    /// Returns the amount of one resource; 0 if there is none.
    pub fn get(&self, resource: &Resource) -> i64 {
        match resource {
            Resource::Pods => self.pods,
            Resource::Cpu => self.cpu,
            Resource::Memory => self.memory,
            Resource::EphemeralStorage => self.ephemeral_storage,
            Resource::Extended(name) => self.extended.get(name).copied().unwrap_or(0),
        }
    }

    /// Adds an amount to one resource.
    pub fn add(&mut self, resource: &Resource, amount: i64) {
        let held = match resource {
            Resource::Pods => &mut self.pods,
            Resource::Cpu => &mut self.cpu,
            Resource::Memory => &mut self.memory,
            Resource::EphemeralStorage => &mut self.ephemeral_storage,
            Resource::Extended(name) => {
                if !self.extended.contains_key(name) {
                    self.extended.insert(name.clone(), 0);
                }
                let Some(held) = self.extended.get_mut(name) else { return };
                held
            }
        };
        *held = held.saturating_add(amount);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn resources_that_kube_scheduler_counts() {
        let extended = |name: &str| Some(Resource::Extended(name.to_owned()));
        for (name, expected) in [
            ("cpu", Some(Resource::Cpu)),
            ("ephemeral-storage", Some(Resource::EphemeralStorage)),
            ("nvidia.com/gpu", extended("nvidia.com/gpu")),
            ("hugepages-2Mi", extended("hugepages-2Mi")),
            ("attachable-volumes-gce-pd", extended("attachable-volumes-gce-pd")),
            ("requests.nvidia.com/gpu", None),
            ("storage", None),
        ] {
            assert_eq!(Resource::of(name), expected, "{name}");
        }
    }

    #[test]
    fn amounts_are_read_and_written() {
        let read = Amounts::read(&json!({
            "cpu": "1930m", "memory": "5615Mi", "ephemeral-storage": "47060071478", "pods": "110", "nvidia.com/gpu": 2, "x": "1",
        }));
        assert_eq!((read.cpu, read.memory, read.pods), (1930, 5615 << 20, 110));
        assert_eq!(read.get(&Resource::Extended("nvidia.com/gpu".to_owned())), 2);
        assert_eq!(read.extended.len(), 1);
        for (resource, amount, text) in [
            (Resource::Cpu, 1930, "1.93"),
            (Resource::Cpu, 6000, "6"),
            (Resource::Cpu, -5, "-0.005"),
            (Resource::Memory, 5615 << 20, "5.48Gi"),
            (Resource::Memory, 100 << 30, "100Gi"),
            (Resource::EphemeralStorage, 512, "512"),
            (Resource::Pods, 110, "110"),
        ] {
            assert_eq!(resource.text(amount), text);
        }
    }
}
