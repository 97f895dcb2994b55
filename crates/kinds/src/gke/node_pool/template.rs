//! The node that GKE makes for a pool, in the terms of `fit`.

use serde_json::Value;

use super::fields::{DISK_SIZE_GB, default_disk};
use crate::json::{number, text};
use fit::gke::pool::{Driver, Gpus, Image, Pool, Purchase, Sharing, Strategy};
use fit::{Labels, Taint};

/// The machine type of a pool that names none. Source: `NodeConfig.machineType` of GKE's API.
const MACHINE: &str = "e2-medium";

/// The label by which a pool keeps GKE's device plugin off its nodes. Source: NVIDIA's page "NVIDIA GPU Operator with Google GKE".
const NO_DEVICE_PLUGIN: &str = "gke-no-default-nvidia-gpu-device-plugin";

/// Reads the settings that decide on the pods of a pool from the body of its request, or from the live pool. `has_gpu_taint` is
/// true if GKE adds its taint to the pool's nodes if they have GPUs.
pub fn settings(body: &Value, has_gpu_taint: bool) -> Pool {
    let config = &body["config"];
    let or = |value: &Value, default: &str| match text(value) {
        "" => default.to_owned(),
        set => set.to_owned(),
    };
    let machine = or(&config["machineType"], MACHINE);
    let pool = Pool::new(text(&body["name"]), &machine);
    Pool {
        gpus: gpus(&config["accelerators"][0]),
        disk_type: or(&config["diskType"], default_disk(&machine)),
        disk_gib: count(&config["diskSizeGb"]).unwrap_or(DISK_SIZE_GB),
        local_ssds: count(&config["ephemeralStorageLocalSsdConfig"]["localSsdCount"]).unwrap_or(0),
        image: Image::of(text(&config["imageType"])),
        labels: labels(&config["labels"]),
        taints: Taint::read_all(&config["taints"]),
        purchase: purchase(body),
        auto_provisioned: body["autoscaling"]["autoprovisioned"] == true,
        gpu_taint: has_gpu_taint,
        gvisor: config["sandboxConfig"]["type"] == "GVISOR",
        max_pods: count(&body["maxPodsConstraint"]["maxPodsPerNode"]).unwrap_or(pool.max_pods),
        threads_per_core: count(&config["advancedMachineFeatures"]["threadsPerCore"])
            .unwrap_or(pool.threads_per_core),
        minor: text(&body["version"]).split('.').nth(1).and_then(|minor| minor.parse().ok()),
        ..pool
    }
}

/// Returns true if others than GKE say how many GPUs the nodes of a pool have to give.
pub fn has_other_device_plugin(body: &Value) -> bool {
    let labels = &body["config"]["labels"];
    labels[NO_DEVICE_PLUGIN] == "true"
}

fn count(value: &Value) -> Option<u32> {
    number(value).and_then(|number| u32::try_from(number).ok())
}

fn labels(labels: &Value) -> Labels {
    let pairs = labels.as_object().into_iter().flatten();
    pairs.map(|(key, value)| (key.clone(), text(value).to_owned())).collect()
}

fn purchase(body: &Value) -> Purchase {
    let config = &body["config"];
    if body["queuedProvisioning"]["enabled"] == true {
        Purchase::Queued
    } else if config["flexStart"] == true {
        Purchase::FlexStart
    } else if config["spot"] == true {
        Purchase::Spot
    } else if config["preemptible"] == true {
        Purchase::Preemptible
    } else {
        Purchase::OnDemand
    }
}

fn gpus(accelerator: &Value) -> Option<Gpus> {
    let kind = accelerator["acceleratorType"].as_str()?.to_owned();
    let sharing = &accelerator["gpuSharingConfig"];
    let clients = count(&sharing["maxSharedClientsPerGpu"]);
    let strategy = match text(&sharing["gpuSharingStrategy"]) {
        "MPS" => Strategy::Mps,
        _ => Strategy::TimeSharing,
    };
    Some(Gpus {
        kind,
        count: count(&accelerator["acceleratorCount"]).unwrap_or(1),
        partition: accelerator["gpuPartitionSize"]
            .as_str()
            .filter(|size| !size.is_empty())
            .map(str::to_owned),
        sharing: clients.map(|clients| Sharing { strategy, clients }),
        driver: match text(&accelerator["gpuDriverInstallationConfig"]["gpuDriverVersion"]) {
            "LATEST" => Driver::Latest,
            "INSTALLATION_DISABLED" => Driver::None,
            _ => Driver::Default,
        },
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_are_those_of_the_request() {
        let pool = settings(
            &json!({
                "name": "t4", "version": "1.36.3-gke.1767000",
                "config": {
                    "machineType": "n1-standard-4", "diskSizeGb": 200, "imageType": "UBUNTU_CONTAINERD", "spot": true,
                    "accelerators": [{
                        "acceleratorType": "nvidia-tesla-t4", "acceleratorCount": "2",
                        "gpuSharingConfig": { "gpuSharingStrategy": "MPS", "maxSharedClientsPerGpu": "4" },
                        "gpuDriverInstallationConfig": { "gpuDriverVersion": "INSTALLATION_DISABLED" },
                    }],
                    "labels": { "team": "ml" },
                    "taints": [{ "key": "team", "value": "ml", "effect": "NO_SCHEDULE" }],
                },
                "maxPodsConstraint": { "maxPodsPerNode": "32" },
            }),
            true,
        );
        let gpus = pool.gpus.as_ref().unwrap();
        assert_eq!((gpus.count, gpus.allocatable().unwrap(), gpus.driver), (2, 8, Driver::None));
        assert_eq!((pool.disk_gib, pool.image, pool.purchase), (200, Image::Ubuntu, Purchase::Spot));
        assert_eq!((pool.max_pods, pool.minor, pool.labels["team"].as_str()), (32, Some(36), "ml"));
        assert_eq!(pool.taints[0].to_string(), "team=ml:NoSchedule");
    }

    #[test]
    fn what_is_not_said_is_gkes_default() {
        let pool = settings(&json!({ "name": "a", "config": {} }), false);
        assert_eq!(pool, Pool { ..Pool::new("a", "e2-medium") });
    }
}
