//! Sizes of GKE's nodes: the part of a machine that the kubelet reports (capacity), and the part of that which pods can request
//! (allocatable).
//!
//! Sources, and how far they hold (`sizes_tests.rs` compares with real nodes):
//! - the kernel's and the file system's share: `gce_reserved.go` of Kubernetes' cluster-autoscaler (commit 0be995de, Apache-2.0),
//!   measured by GKE's developers. Memory is right within 0.2 % from 4 GiB on, and within 0.9 % below.
//! - GKE's reserve: its page "Plan GKE Standard node sizes", whose gigabytes turned out to be thousands of MiB of the machine's
//!   memory, rounded down to a MiB. So it is equal to `kubeReserved` of real nodes: 512, 960, 1019, 1736, 1819, 2623, 8029 MiB
//!   for machines of 2, 3.75, 4, 7.5, 8, 16 and 104 GiB; and 23 and 41 GiB for disks of 50 and 100 GiB.

use crate::resources::Amounts;

use super::pool::{Arch, Image};

const KIB: i64 = 1 << 10;
const MIB: i64 = 1 << 20;
const GIB: i64 = 1 << 30;

/// The kubelet evicts pods if less memory than this is free, so pods cannot request it. Source: `evictionHard` of GKE's kubelets.
const EVICTION_MEMORY: i64 = 100 * MIB;

/// Machine types with shared cores. They provide less CPU than they report. Source: GKE's page "Plan GKE Standard node sizes".
const SHARED_CORE: [&str; 3] = ["e2-micro", "e2-small", "e2-medium"];

/// The machine and disks of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hardware<'a> {
    pub machine_type: &'a str,
    /// Virtual CPUs that the node uses.
    pub vcpus: u32,
    /// Memory in bytes.
    pub memory: i64,
    /// The boot disk in GiB.
    pub disk: u32,
    /// The number of local SSDs that hold the scratch space of pods, instead of the boot disk.
    pub local_ssds: u32,
    pub image: Image,
    pub arch: Arch,
    pub max_pods: u32,
}

impl Hardware<'_> {
    /// Returns `status.capacity` as the kubelet reports it, without GPUs.
    pub fn capacity(&self) -> Amounts {
        Amounts {
            cpu: i64::from(self.vcpus) * 1000,
            memory: (self.memory - self.kernel_memory()).max(0),
            ephemeral_storage: self.file_system(),
            pods: i64::from(self.max_pods),
            ..Amounts::default()
        }
    }

    /// Returns `status.allocatable`: the capacity minus the reserves of GKE and of eviction.
    pub fn allocatable(&self) -> Amounts {
        let mut left = self.capacity();
        left.cpu = (left.cpu - self.reserved_cpu()).max(0);
        left.memory = (left.memory - reserved_memory(self.memory) - EVICTION_MEMORY).max(0);
        // `nodefs.available: 10%`.
        let eviction = left.ephemeral_storage / 10;
        left.ephemeral_storage = (left.ephemeral_storage - self.reserved_storage() - eviction).max(0);
        left
    }

    /// Returns the memory in bytes that kernel and firmware use, which the kubelet does not count.
    fn kernel_memory(&self) -> i64 {
        let mut kept = self.memory / 64 + 16 * MIB;
        // The software IO TLB, for memory above 4 GiB of addresses.
        if self.memory > 3 * GIB {
            kept += 64 * MIB;
        }
        if self.memory <= 8 * GIB {
            kept += 8 * MIB;
        }
        // 0.175 %, whose origin its finders do not know.
        kept += (self.memory / 100_000 * 175).min(248 * MIB);
        match (self.image, self.arch) {
            (Image::Ubuntu, _) => kept + 4 * MIB,
            (Image::Cos, Arch::Arm64) => kept / 10_000 * 9971,
            (Image::Cos, Arch::Amd64) => kept,
        }
    }

    /// Returns the bytes of the file system that pods share with images and logs.
    fn file_system(&self) -> i64 {
        if self.local_ssds > 0 {
            let overhead = local_ssd_overhead(self.local_ssds, self.image) * KIB;
            return (i64::from(self.local_ssds) * 375 * GIB - overhead).max(0);
        }
        let disk = i64::from(self.disk) * GIB;
        let partitions = match self.image {
            Image::Cos => share(disk, 15_635) + share(GIB, 4_148_000),
            Image::Ubuntu => share(disk, 30_830) + share(GIB, 171_000),
        };
        let arm = if (self.image, self.arch) == (Image::Cos, Arch::Arm64) { 64 * MIB } else { 0 };
        (disk - partitions - share(disk, 1000).min(100 * MIB) - arm).max(0)
    }

    /// Returns GKE's CPU reserve in thousandths of a CPU: 6 % of the first core, 1 % of the second, 0.5 % of the third and
    /// fourth, 0.25 % of all others.
    fn reserved_cpu(&self) -> i64 {
        if SHARED_CORE.contains(&self.machine_type) {
            return 1060;
        }
        let cores = i64::from(self.vcpus);
        let banded = banded(cores * 1000, &[(1000, 600), (1000, 100), (2000, 50), (i64::MAX, 25)], 10_000);
        // From memory of the same page: more than 110 pods cost 400m.
        banded + if self.max_pods > 110 { 400 } else { 0 }
    }

    /// Returns the bytes of the file system that GKE reserves, in whole GiB.
    fn reserved_storage(&self) -> i64 {
        let kept = match self.local_ssds {
            0 => (i64::from(self.disk) * 50).min(600 + i64::from(self.disk) * 35).min(10_000) / 100,
            // From memory of the page "Plan GKE Standard node sizes".
            1 => 50,
            2 => 75,
            _ => 100,
        };
        kept * GIB
    }
}

/// Returns the bytes of a machine's memory that GKE reserves: 25 % of the first 4000 MiB, 20 % of the next 4000, 10 % of the next
/// 8000, 6 % of the next 112,000 and 2 % of the rest; 255 MiB of less than 1 GiB.
fn reserved_memory(memory: i64) -> i64 {
    if memory < GIB {
        return 255 * MIB;
    }
    let bands = [(4000, 25), (4000, 20), (8000, 10), (112_000, 6), (i64::MAX, 2)];
    banded(memory / MIB, &bands, 100) * MIB
}

/// Returns the sum over bands of (width, parts of `whole`), rounded down.
fn banded(amount: i64, bands: &[(i64, i64)], whole: i64) -> i64 {
    let (mut left, mut sum) = (amount, 0);
    for (width, parts) in bands {
        let part = left.min(*width);
        sum += part * parts;
        left -= part;
    }
    sum / whole
}

/// Returns this many millionths of a number, rounded up.
fn share(of: i64, millionths: i64) -> i64 {
    let product = i128::from(of) * i128::from(millionths);
    i64::try_from((product + 999_999) / 1_000_000).unwrap_or(i64::MAX)
}

/// Returns the KiB that the file system on local SSDs itself uses, by the number of SSDs. For numbers that were not measured, the
/// next larger one counts. Source: `gce_reserved.go`, as above.
fn local_ssd_overhead(count: u32, image: Image) -> i64 {
    let rows: [(u32, i64, i64); 10] = [
        (1, 7_289_472, 7_219_840),
        (2, 13_725_224, 13_651_496),
        (3, 20_031_312, 19_953_488),
        (4, 26_332_924, 26_255_100),
        (5, 32_634_536, 32_556_712),
        (6, 38_946_604, 38_860_588),
        (7, 45_254_008, 45_163_896),
        (8, 51_556_096, 51_465_984),
        (16, 52_837_800, 52_747_688),
        (24, 78_686_620, 78_601_704),
    ];
    let [.., last] = rows;
    let (_, cos, ubuntu) = rows.into_iter().find(|(at, ..)| count <= *at).unwrap_or(last);
    match image {
        Image::Cos => cos,
        Image::Ubuntu => ubuntu,
    }
}

#[cfg(test)]
#[path = "sizes_tests.rs"]
mod tests;
