//! Computed sizes against those of real nodes.

use model::catalog;

use super::*;

fn hardware(machine_type: &str) -> Hardware<'_> {
    let machine = catalog::machine(machine_type).unwrap();
    #[expect(clippy::cast_possible_truncation, reason = "sizes of machines are far below 2^53")]
    let memory = (machine.memory_gb.unwrap() * 1_073_741_824.0) as i64;
    Hardware {
        machine_type,
        vcpus: machine.vcpus.unwrap(),
        memory,
        disk: 100,
        local_ssds: 0,
        image: Image::Cos,
        arch: Arch::Amd64,
        max_pods: 110,
    }
}

/// The difference in hundredths of a percent, rounded away from zero.
fn off(computed: i64, real: i64) -> i64 {
    let difference = (i128::from(computed) - i128::from(real)) * 10_000;
    let size = (difference.abs() + i128::from(real) - 1) / i128::from(real);
    i64::try_from(size * difference.signum()).unwrap()
}

/// KiB of a number of GiB with three places, as one of the sources has them.
const fn gi(thousandths: i64) -> i64 {
    thousandths * (GIB / KIB) / 1000
}

/// Machine types of real nodes: CPU in thousandths, allocatable memory in KiB, and how far the computed memory may be off, in hundredths
/// of a percent.
///
/// The first ten are from 2i2c's `instance_capacities.yaml` (github.com/2i2c-org/infrastructure, BSD-3-Clause; dumps of `kubectl get
/// node`, 2023 to 2024), n2-highmem-64 from issue 2121 there. The others, each a dump that somebody published: n2-standard-4 of
/// GKE 1.36.3 (2026-10), g2-standard-4 with an L4, e2-standard-2 of 2022, e2-medium of 2022, e2-small of GKE 1.29 (2024-07).
const REAL: [(&str, i64, i64, i64); 16] = [
    ("n2-highmem-2", 1930, gi(12_973), 15),
    ("n2-highmem-4", 3920, 29_085_928, 15),
    ("n2-highmem-8", 7910, gi(57_270), 15),
    ("n2-highmem-16", 15_890, 122_210_676, 15),
    ("n2-highmem-32", 31_850, gi(240_079), 15),
    ("n2-highmem-64", 63_770, 510_603_916, 15),
    ("n1-highmem-4", 3920, gi(22_192), 15),
    ("e2-highmem-16", 15_890, gi(116_549), 15),
    ("n1-standard-2", 1930, gi(5_483), 15),
    ("n1-standard-8", 7910, gi(25_888), 15),
    ("n1-standard-16", 15_890, gi(53_571), 15),
    ("e2-standard-2", 1930, 6_186_972, 15),
    ("n2-standard-4", 3920, 13_591_652, 20),
    ("g2-standard-4", 3920, 13_594_692, 20),
    ("e2-medium", 940, 2_880_076, 20),
    ("e2-small", 940, 1_397_472, 90),
];

#[test]
fn allocatable_of_real_nodes() {
    for (machine_type, cpu, memory, bound) in REAL {
        let computed = hardware(machine_type).allocatable();
        let off = off(computed.memory, memory * KIB);
        assert_eq!(computed.cpu, cpu, "{machine_type}");
        assert!(off.abs() <= bound, "{machine_type}: {off} hundredths of a percent");
    }
}

/// One thread for each core halves the CPUs. Source: dumps of A100 and V100 nodes with `--threads-per-core=1` in
/// github.com/converged-computing/metrics-operator-experiments (2023).
#[test]
fn allocatable_with_one_thread_for_each_core() {
    for (machine_type, vcpus, cpu, memory) in
        [("a2-highgpu-1g", 6, 5915, 80_404_476), ("n1-standard-32", 16, 15_890, 114_327_136)]
    {
        let computed = Hardware { vcpus, ..hardware(machine_type) }.allocatable();
        assert_eq!(computed.cpu, cpu, "{machine_type}");
        assert!(off(computed.memory, memory * KIB).abs() <= 15, "{machine_type}");
    }
}

/// `kubeReserved.memory` in kubelets' configurations and in instance metadata, which people published.
#[test]
fn reserves_of_real_kubelets() {
    for (gib, reserved) in [
        (2.0, 512),
        (3.75, 960),
        (4.0, 1019),
        (7.5, 1736),
        (8.0, 1819),
        (16.0, 2623),
        (104.0, 8029),
        (128.0, 9381),
        (512.0, 17_245),
    ] {
        #[expect(clippy::cast_possible_truncation, reason = "sizes of machines are far below 2^53")]
        let memory = (gib * 1_073_741_824.0) as i64;
        assert_eq!(reserved_memory(memory) / MIB, reserved, "{gib} GiB");
    }
    for (disk, reserved) in [(10, 5), (50, 23), (100, 41), (300, 100)] {
        let hardware = Hardware { disk, ..hardware("e2-medium") };
        assert_eq!(hardware.reserved_storage() / GIB, reserved, "{disk} GiB");
    }
    let many = Hardware { max_pods: 256, ..hardware("n2-standard-4") };
    assert_eq!(many.allocatable().cpu, 3520);
}

/// 98,831,908 KiB and 47,060,071,478 bytes are what nodes with COS and the disk of 100 GB have shown since 2022.
#[test]
fn disks_of_real_nodes() {
    let computed = hardware("n2-standard-4");
    assert!(off(computed.capacity().ephemeral_storage, 98_831_908 * KIB).abs() <= 15);
    let allocatable = computed.allocatable().ephemeral_storage;
    assert!(off(allocatable, 47_060_071_478).abs() <= 15, "{allocatable}");
    let ssds = Hardware { local_ssds: 2, ..computed };
    assert_eq!(ssds.capacity().ephemeral_storage, 750 * GIB - 13_725_224 * KIB);
    let small = Hardware { disk: 10, ..computed }.allocatable().ephemeral_storage;
    assert!((0..GIB).contains(&small), "{small}");
}
