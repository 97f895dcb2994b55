//! Resources of nodes and pods, in the whole numbers that kube-scheduler compares.
//!
//! Source: `Resource` in pkg/scheduler/framework/types.go and `IsScalarResourceName` of Kubernetes 1.36.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use model::quantity::Quantity;

/// A resource, in the order in which kube-scheduler reports shortages.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// Places for pods: one for each.
    Pods,
    /// Processors, in thousandths.
    Cpu,
    /// Memory in bytes.
    Memory,
    /// Disk for logs, images and `emptyDir`, in bytes.
    EphemeralStorage,
    /// Anything with a domain (`nvidia.com/gpu`), huge pages and attachable volumes, in whole units.
    Extended(String),
}

impl Resource {
    /// Returns the resource of a key in `requests`; `None` for those that kube-scheduler does not count.
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

    /// The key in `requests` and `allocatable`.
    pub fn name(&self) -> &str {
        match self {
            Self::Pods => "pods",
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::EphemeralStorage => "ephemeral-storage",
            Self::Extended(name) => name,
        }
    }

    /// Returns the number that kube-scheduler compares.
    pub fn count(&self, quantity: Quantity) -> i64 {
        match self {
            Self::Cpu => quantity.milli(),
            Self::Pods | Self::Memory | Self::EphemeralStorage | Self::Extended(_) => quantity.whole(),
        }
    }

    /// Returns an amount as people write it: `1.93` CPUs, `5.48Gi`, `2`.
    pub fn text(&self, amount: i64) -> String {
        match self {
            Self::Cpu => decimal(amount, 1000, 3),
            Self::Memory | Self::EphemeralStorage => bytes(amount),
            Self::Pods | Self::Extended(_) => amount.to_string(),
        }
    }

    /// Returns true if GKE's nodes are known only to about 1 % in this resource.
    pub fn is_measured(&self) -> bool {
        matches!(self, Self::Cpu | Self::Memory | Self::EphemeralStorage)
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Bytes in the largest binary unit below them, to a hundredth.
fn bytes(amount: i64) -> String {
    let units = [("Ti", 1_i64 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];
    let unit = units.into_iter().find(|(_, size)| amount.unsigned_abs() >= size.unsigned_abs());
    unit.map_or_else(|| amount.to_string(), |(unit, size)| decimal(amount, size, 2) + unit)
}

/// `amount / size` rounded to so many places, without zeros at the end.
fn decimal(amount: i64, size: i64, places: u32) -> String {
    let power = 10_i128.pow(places);
    let sign = if amount < 0 { "-" } else { "" };
    let (amount, size) = (i128::from(amount).abs(), i128::from(size));
    let scaled = (amount * power + size / 2) / size;
    let width = usize::try_from(places).unwrap_or_default();
    let text = format!("{sign}{}.{:0width$}", scaled / power, scaled % power);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Amounts of resources: those of a node, or what pods take of it.
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
    /// Reads `status.allocatable` or `status.capacity` of a Node. Values that are no quantities count as absent.
    pub fn read(list: &Value) -> Self {
        let mut out = Self::default();
        for (name, value) in list.as_object().into_iter().flatten() {
            if let Some((resource, quantity)) = Resource::of(name).zip(Quantity::of(value)) {
                out.add(&resource, resource.count(quantity));
            }
        }
        out
    }

    /// The amount of one resource; 0 when there is none.
    pub fn get(&self, resource: &Resource) -> i64 {
        match resource {
            Resource::Pods => self.pods,
            Resource::Cpu => self.cpu,
            Resource::Memory => self.memory,
            Resource::EphemeralStorage => self.ephemeral_storage,
            Resource::Extended(name) => self.extended.get(name).copied().unwrap_or(0),
        }
    }

    /// Adds to one resource.
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
