//! The resources that a Compute Engine machine type gives to Kubernetes.

use model::catalog;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Virtual CPUs.
    pub cpus: u32,
    /// Memory in GiB.
    pub memory: f64,
}

/// GiB of memory per vCPU by family and class, for types named `FAMILY-CLASS-CPUS` that the catalog does
/// not have (Compute Engine's machine family pages).
const PER_CPU: &[(&str, &str, f64)] = &[
    ("n1", "standard", 3.75),
    ("n1", "highmem", 6.5),
    ("n1", "highcpu", 0.9),
    ("c3", "highcpu", 2.0),
    ("c4", "highcpu", 2.0),
    ("", "standard", 4.0),
    ("", "highmem", 8.0),
    ("", "highcpu", 1.0),
];

/// Types that share cores, which follow no pattern.
const SHARED_CORE: &[(&str, u32, f64)] = &[
    ("e2-micro", 2, 1.0),
    ("e2-small", 2, 2.0),
    ("e2-medium", 2, 4.0),
    ("f1-micro", 1, 0.6),
    ("g1-small", 1, 1.7),
];

/// The shape of a machine type; an unknown one counts as e2-medium, GKE's default.
pub fn shape(machine_type: &str) -> Shape {
    let listed = catalog::machine(machine_type)
        .and_then(|machine| Some(Shape { cpus: machine.vcpus?, memory: machine.memory_gb? }));
    listed.or_else(|| from_name(machine_type)).unwrap_or(Shape { cpus: 2, memory: 4.0 })
}

fn from_name(machine_type: &str) -> Option<Shape> {
    if let Some(&(_, cpus, memory)) = SHARED_CORE.iter().find(|(name, ..)| *name == machine_type) {
        return Some(Shape { cpus, memory });
    }
    let mut parts = machine_type.split('-');
    let (family, class, cpus) = (parts.next()?, parts.next()?, parts.next()?);
    let cpus: u32 = cpus.parse().ok()?;
    let fits = |row: &&(&str, &str, f64)| (row.0.is_empty() || row.0 == family) && row.1 == class;
    PER_CPU.iter().find(fits).map(|&(_, _, per_cpu)| Shape { cpus, memory: per_cpu * f64::from(cpus) })
}

impl Shape {
    /// KiB that the kubelet reports: the kernel and the firmware keep about 3 %.
    pub fn capacity_ki(self) -> i64 {
        whole(self.memory * 1024.0 * 1024.0 * 0.97)
    }

    /// KiB that pods may request: capacity less GKE's reservation (25 % of the first 4 GiB, 20 % of the
    /// next 4, 10 % of the next 8, 6 % of the next 112, 2 % above) and 100 MiB for eviction, from GKE's
    /// page "Plan GKE node sizes".
    pub fn allocatable_ki(self) -> i64 {
        let bands = [(4.0, 0.25), (4.0, 0.20), (8.0, 0.10), (112.0, 0.06), (f64::MAX, 0.02)];
        let reserved = banded(self.memory, &bands);
        self.capacity_ki() - whole(reserved * 1024.0 * 1024.0) - 100 * 1024
    }

    /// Thousandths of a CPU that pods may request: 6 % of the first core are reserved, 1 % of the second,
    /// 0.5 % of the next two, 0.25 % above; shared cores lose 1060m in all (same page).
    pub fn allocatable_milli_cpu(self, machine_type: &str) -> i64 {
        let all = i64::from(self.cpus) * 1000;
        if matches!(machine_type, "e2-micro" | "e2-small" | "e2-medium") {
            return all - 1060;
        }
        let bands = [(1.0, 0.06), (1.0, 0.01), (2.0, 0.005), (f64::MAX, 0.0025)];
        all - whole((banded(f64::from(self.cpus), &bands) * 1000.0).round())
    }
}

/// The sum over bands of (width, share) up to `amount`.
fn banded(amount: f64, bands: &[(f64, f64)]) -> f64 {
    let mut left = amount;
    let mut sum = 0.0;
    for (width, share) in bands {
        let part = left.min(*width);
        sum += part * share;
        left -= part;
    }
    sum
}

/// Bytes of the boot disk that pods may use: GKE keeps the smaller of half the disk, 6 GiB and 35 %,
/// and 100 GiB, and 10 % for eviction.
pub fn ephemeral_bytes(disk_gb: i64) -> (i64, i64) {
    let gib = 1_073_741_824.0;
    // About 6 % of the disk are partitions of the system.
    #[expect(clippy::cast_precision_loss, reason = "disk sizes are far below 2^52")]
    let capacity = disk_gb as f64 * gib * 0.94;
    let system = (capacity * 0.5).min(6.0 * gib + capacity * 0.35).min(100.0 * gib);
    (whole(capacity), whole(capacity * 0.9 - system).max(0))
}

#[expect(clippy::cast_possible_truncation, reason = "sizes of machines are far below 2^53")]
fn whole(number: f64) -> i64 {
    number as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes() {
        for (name, cpus, memory) in [
            ("n1-standard-2", 2, 7.5),
            ("a2-highgpu-2g", 24, 170.0),
            ("a2-ultragpu-1g", 12, 170.0),
            ("e2-medium", 2, 4.0),
            ("e2-standard-4", 4, 16.0),
            ("g2-standard-8", 8, 32.0),
            ("n1-highmem-8", 8, 52.0),
            ("n2-custom-6-20480", 6, 20.0),
            ("nonsense", 2, 4.0),
        ] {
            assert_eq!(shape(name), Shape { cpus, memory }, "{name}");
        }
    }

    #[test]
    fn reservations() {
        // The page's own example rows: n1-standard-2 leaves 1.93 CPU; 4 cores leave 3.92.
        assert_eq!(shape("n1-standard-2").allocatable_milli_cpu("n1-standard-2"), 1930);
        assert_eq!(shape("e2-standard-4").allocatable_milli_cpu("e2-standard-4"), 3920);
        assert_eq!(shape("e2-medium").allocatable_milli_cpu("e2-medium"), 940);
        let memory = shape("n1-standard-2").allocatable_ki() / 1024;
        assert!((5500..5800).contains(&memory), "{memory}");
    }
}
