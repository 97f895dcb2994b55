//! GPUs and machine types: which go together. Facts come from the catalog; the wordings are from memory.

use serde_json::Value;

use super::errors::Refusal;
use crate::kube::object::text;
use model::catalog::{self, Attach, Machine, PriceModel};

/// Families of machine types that Compute Engine has; the catalog lists single types only where GPUs are.
const FAMILIES: &[&str] = &[
    "a2", "a3", "a4", "a4x", "c2", "c2d", "c3", "c3d", "c4", "c4a", "c4d", "ct3", "ct3p", "ct4p", "ct5l",
    "ct5lp", "ct5p", "ct6e", "custom", "e2", "f1", "g1", "g2", "g4", "h3", "h4d", "m1", "m2", "m3", "m4",
    "n1", "n2", "n2d", "n4", "n4d", "t2a", "t2d", "tpu7x", "x4", "z3",
];

/// Families that take Hyperdisk only. Source: Compute Engine's refusals of `pd-balanced` in public threads, and a
/// recorded n4 pool that came back with `hyperdisk-balanced`.
const HYPERDISK_ONLY: &[&str] = &["a4", "a4x", "c4", "c4a", "c4d", "g4", "n4", "n4d"];

/// Returns true if machines of this type refuse persistent disks. A3 Ultra is a single type of its family.
pub(super) fn takes_hyperdisk_only(machine: &str) -> bool {
    let family = machine.split('-').next().unwrap_or_default();
    HYPERDISK_ONLY.contains(&family) || machine.starts_with("a3-ultragpu")
}

/// The quota metric of an accelerator type, `NVIDIA_T4_GPUS`.
pub(super) fn quota_metric(accelerator: &str, preemptible: bool) -> Option<String> {
    catalog::quota_metric(accelerator, if preemptible { PriceModel::Spot } else { PriceModel::OnDemand })
}

/// Returns true if the name is that of a known machine type, or its family is known.
pub(super) fn exists(name: &str) -> bool {
    let family = name.split('-').next().unwrap_or_default();
    catalog::machine(name).is_some() || name.contains('-') && FAMILIES.contains(&family)
}

/// Returns true if a zone has a machine type. Those of which the catalog knows no zones are everywhere.
pub(super) fn has_machine(zone: &str, name: &str) -> bool {
    let zones = catalog::machine(name).map(|machine| machine.zones.as_slice()).unwrap_or_default();
    exists(name) && (zones.is_empty() || zones.iter().any(|known| known == zone))
}

/// Returns true if a zone has a GPU type. Those of which the catalog knows no zones are everywhere.
pub(super) fn has_gpu(zone: &str, kind: &str) -> bool {
    let known = catalog::accelerator(kind);
    known.is_some_and(|gpu| gpu.zones.is_empty() || gpu.zones.iter().any(|known| known == zone))
}

/// Refuses a NodeConfig whose machine type does not exist, or does not go with its accelerators.
pub(super) fn check(config: &Value) -> Result<(), Refusal> {
    let name = text(config, "/machineType");
    let machine = catalog::machine(name);
    if !exists(name) {
        return Err(Refusal::invalid(format!("Machine type with name \"{name}\" does not exist.")));
    }
    let entries: Vec<&Value> = config["accelerators"].as_array().into_iter().flatten().collect();
    if let Some(fixed) = machine.and_then(|machine| machine.accelerator.as_ref())
        && entries.is_empty()
    {
        return Err(Refusal::invalid(format!(
            "Machine type \"{name}\" needs {} accelerators of type \"{}\".",
            fixed.count, fixed.kind
        )));
    }
    entries.into_iter().try_for_each(|entry| accelerator(entry, name, machine))
}

fn accelerator(entry: &Value, name: &str, machine: Option<&Machine>) -> Result<(), Refusal> {
    let kind = text(entry, "/acceleratorType");
    let count: u32 = text(entry, "/acceleratorCount").parse().unwrap_or_default();
    // TPUs come with their machine types and are not in the catalog.
    if kind.starts_with("tpu-") {
        return Ok(());
    }
    if count == 0 {
        return Err(Refusal::invalid("Accelerator_count must be positive."));
    }
    let Some(known) = catalog::accelerator(kind) else {
        return Err(Refusal::invalid(format!("Accelerator type \"{kind}\" does not exist.")));
    };
    if let Some(fixed) = machine.and_then(|machine| machine.accelerator.as_ref()) {
        if fixed.kind != kind || fixed.count != count {
            return Err(Refusal::invalid(format!(
                "Machine type \"{name}\" has {} accelerators of type \"{}\"; {count} of type \"{kind}\" are not \
                 possible.",
                fixed.count, fixed.kind
            )));
        }
    } else if known.attach == Attach::Fixed || !name.starts_with("n1-") && !name.starts_with("custom-") {
        return Err(Refusal::invalid(format!(
            "Accelerator type \"{kind}\" is not compatible with machine type \"{name}\"."
        )));
    } else if !known.counts.contains(&count) {
        return Err(Refusal::invalid(format!(
            "The number of accelerators of type \"{kind}\" must be one of {:?}, found {count}.",
            known.counts
        )));
    } else if let (Some(machine), Some(most)) = (machine, known.n1_max_vcpus(count))
        && machine.vcpus.is_some_and(|vcpus| vcpus > most)
    {
        return Err(Refusal::invalid(format!(
            "Machine type \"{name}\" has too many CPUs for {count} accelerators of type \"{kind}\": at most {most}."
        )));
    }
    partition(entry, known)?;
    sharing(entry)
}

fn partition(entry: &Value, known: &catalog::Accelerator) -> Result<(), Refusal> {
    let size = text(entry, "/gpuPartitionSize");
    if size.is_empty() || known.mig.contains_key(size) {
        return Ok(());
    }
    Err(Refusal::invalid(format!(
        "Gpu_partition_size \"{size}\" is not supported for accelerator type \"{}\".",
        known.kind
    )))
}

fn sharing(entry: &Value) -> Result<(), Refusal> {
    let Some(clients) = entry.pointer("/gpuSharingConfig/maxSharedClientsPerGpu") else { return Ok(()) };
    let clients: u32 = clients.as_str().and_then(|text| text.parse().ok()).unwrap_or_default();
    let most = catalog::gpu_sharing().map_or(48, |sharing| sharing.max_clients);
    if (2..=most).contains(&clients) {
        return Ok(());
    }
    Err(Refusal::invalid(format!(
        "Max_shared_clients_per_gpu must be between 2 and {most}, found {clients}."
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn gpus_go_with_their_machines() {
        let gpu = |kind: &str, count: &str| json!([{ "acceleratorType": kind, "acceleratorCount": count }]);
        let cases = [
            ("e2-medium", json!(null), true),
            ("n4-standard-2", json!(null), true),
            ("nonsense", json!(null), false),
            ("q9-standard-1", json!(null), false),
            ("n1-standard-2", gpu("nvidia-tesla-t4", "1"), true),
            ("n1-standard-2", gpu("nvidia-tesla-t4", "3"), false),
            ("n1-standard-96", gpu("nvidia-tesla-t4", "1"), false),
            ("n2-standard-2", gpu("nvidia-tesla-t4", "1"), false),
            ("a2-highgpu-2g", gpu("nvidia-tesla-a100", "2"), true),
            ("a2-highgpu-2g", gpu("nvidia-tesla-a100", "1"), false),
            ("a2-highgpu-2g", json!(null), false),
            ("n1-standard-2", gpu("nvidia-tesla-t5", "1"), false),
            ("n1-standard-2", gpu("nvidia-tesla-t4", "0"), false),
        ];
        for (machine, accelerators, good) in cases {
            let config = json!({ "machineType": machine, "accelerators": accelerators });
            assert_eq!(check(&config).is_ok(), good, "{config}: {:?}", check(&config));
        }
    }
}
