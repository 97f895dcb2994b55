//! The nodes of a pool as Google bills them.

use serde_json::Value;

use super::fields::{DISK_SIZE_GB, default_disk};
use crate::cost::Node;
use crate::json::{self, number, text};
use model::catalog::PriceModel;

/// Reads what is billed of a node from the body of its pool, desired or live.
pub fn billed_node(pool: &Value) -> Node {
    let config = &pool["config"];
    let machine = text(&config["machineType"]);
    let (disk, boot) = (&config["diskType"], &config["bootDisk"]);
    let disk = text(if disk.is_null() { &boot["diskType"] } else { disk });
    let is_spot = config["spot"] == true || config["preemptible"] == true;
    Node {
        machine: machine.to_owned(),
        gpus: gpus(&config["accelerators"][0]),
        capacity: if is_spot { PriceModel::Spot } else { PriceModel::OnDemand },
        disk: if disk.is_empty() { default_disk(machine) } else { disk }.to_owned(),
        disk_gib: count(&config["diskSizeGb"]).or_else(|| count(&boot["sizeGb"])).unwrap_or(DISK_SIZE_GB),
        ssds: ssds(config),
        secondary_disks: secondary_disks(pool),
    }
}

/// Returns true if Google Cloud may delete nodes of the pool at any time or after a while, or creates them only once it has machines. Then
/// the pool may have fewer nodes than requested.
pub fn may_lose_nodes(pool: &Value) -> bool {
    let config = &pool["config"];
    let is_short_lived = ["spot", "preemptible", "flexStart"].iter().any(|key| config[*key] == true);
    is_short_lived || !config["maxRunDuration"].is_null() || pool["queuedProvisioning"]["enabled"] == true
}

/// `rapids-26-04 of node pool gpu`: the image of each secondary boot disk.
fn secondary_disks(pool: &Value) -> Vec<String> {
    let disks = pool["config"]["secondaryBootDisks"].as_array().into_iter().flatten();
    let images = disks.map(|disk| text(&disk["diskImage"]).rsplit('/').next().unwrap_or_default());
    images.map(|image| format!("{image} of node pool {}", text(&pool["name"]))).collect()
}

/// Returns the least and the most nodes of the body of a pool, in all zones together. `None` if it does not say.
pub fn node_bounds(pool: &Value) -> Option<(u32, u32)> {
    let number = |value: &Value| u32::try_from(json::count(value)).unwrap_or(u32::MAX);
    let scaled = &pool["autoscaling"];
    let zones = pool["locations"].as_array().map_or(1, Vec::len).max(1);
    let zones = u32::try_from(zones).unwrap_or(1);
    match scaled["enabled"] == true {
        true if !scaled["totalMaxNodeCount"].is_null() => {
            Some((number(&scaled["totalMinNodeCount"]), number(&scaled["totalMaxNodeCount"])))
        }
        true => Some((number(&scaled["minNodeCount"]) * zones, number(&scaled["maxNodeCount"]) * zones)),
        false if !pool["nodeCount"].is_null() => {
            Some((number(&pool["nodeCount"]), number(&pool["nodeCount"])))
        }
        false if !pool["initialNodeCount"].is_null() => {
            let nodes = number(&pool["initialNodeCount"]) * zones;
            Some((nodes, nodes))
        }
        false => None,
    }
}

fn gpus(accelerator: &Value) -> Option<(String, u32)> {
    let kind = accelerator["acceleratorType"].as_str()?;
    Some((kind.to_owned(), count(&accelerator["acceleratorCount"]).unwrap_or(1)))
}

/// Returns the number of local SSDs that a pool asks for, in each of the ways that the API has.
fn ssds(config: &Value) -> u32 {
    let counts = [
        &config["ephemeralStorageLocalSsdConfig"]["localSsdCount"],
        &config["localNvmeSsdBlockConfig"]["localSsdCount"],
        &config["localSsdCount"],
    ];
    counts.into_iter().filter_map(count).sum()
}

fn count(value: &Value) -> Option<u32> {
    number(value).and_then(|count| u32::try_from(count).ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use model::prices::{Prices, Sum};

    fn price(config: &Value, region: &str) -> Sum {
        billed_node(&json!({ "config": config })).price(Prices::list(), region)
    }

    fn machine_price(machine: &str, gpu: Option<(&str, u32)>, spot: bool) -> Option<String> {
        let gpus = gpu
            .map(|(kind, count)| json!([{ "acceleratorType": kind, "acceleratorCount": count.to_string() }]));
        let config = json!({ "machineType": machine, "accelerators": gpus, "spot": spot });
        let price = billed_node(&json!({ "config": config })).machine_price(Prices::list(), "us-central1");
        price.map(|price| format!("{price:.3}"))
    }

    #[test]
    fn machines_are_priced_with_their_gpus() {
        let (a100, t4) = ("nvidia-tesla-a100", "nvidia-tesla-t4");
        for (machine, gpu, spot, expected) in [
            ("a2-highgpu-2g", Some((a100, 2)), false, Some("7.347")),
            ("a2-highgpu-2g", None, false, Some("7.347")),
            ("a2-highgpu-2g", Some((a100, 2)), true, Some("3.856")),
            ("a2-highgpu-2g", Some((a100, 1)), false, None),
            ("n1-standard-2", Some((t4, 1)), false, Some("0.445")),
            ("n1-standard-2", None, false, Some("0.095")),
            ("n1-standard-2", Some((t4, 1)), true, None),
            ("e2-standard-4", None, false, Some("0.134")),
            ("e2-standard-4", Some((t4, 1)), false, None),
            ("a3-ultragpu-8g", None, false, None),
            ("e2-standard-3", None, false, None),
            ("n2-custom-8-16384", None, false, None),
            ("unknown", None, false, None),
        ] {
            assert_eq!(machine_price(machine, gpu, spot).as_deref(), expected, "{machine} {gpu:?} {spot}");
        }
    }

    #[test]
    fn ten_boot_disks_of_100_gb_cost_14_cents_an_hour() {
        let of = |size: Value| {
            price(&json!({ "machineType": "e2-standard-4", "diskSizeGb": size }), "us-central1").times(10)
        };
        let (with, without) = (of(Value::Null).usd, of(json!(0)).usd);
        assert_eq!(format!("{:.3}", with - without), "0.137");
        assert_eq!(of(Value::Null), of(json!(100)));
    }

    #[test]
    fn a_part_without_a_price_is_named_and_the_rest_is_summed() {
        let sum = price(&json!({ "machineType": "c4-standard-4" }), "us-central1");
        assert_eq!((format!("{:.4}", sum.usd).as_str(), sum.unknown.len()), ("0.1977", 1));
        assert!(sum.unknown.contains("disks hyperdisk-balanced"));
        let t4 = json!([{ "acceleratorType": "nvidia-tesla-t4", "acceleratorCount": "1" }]);
        let sum = price(&json!({ "machineType": "n1-standard-4", "accelerators": t4 }), "europe-west4");
        assert_eq!(sum.unknown.into_iter().collect::<Vec<_>>(), ["n1-standard-4 with nvidia-tesla-t4"]);
        assert!(sum.usd > 0.0);
        // Nobody pays for what is not there.
        assert!(price(&json!({ "machineType": "quantum" }), "us-central1").times(0).is_zero());
        let nowhere = price(&json!({ "machineType": "e2-standard-4" }), "moon-east1");
        assert_eq!((nowhere.usd, nowhere.unknown.len()), (0.0, 2));
    }

    #[test]
    fn secondary_boot_disks_are_named_and_have_no_price() {
        let disks = json!([{ "diskImage": "projects/p/global/images/rapids" }, { "diskImage": "model" }]);
        let config = json!({ "machineType": "e2-standard-4", "secondaryBootDisks": disks });
        let node = billed_node(&json!({ "name": "gpu", "config": config }));
        let price = |node: &Node| node.price(Prices::list(), "us-central1");
        let (with, without) = (price(&node), price(&node.clone().without_secondary_disks()));
        assert_eq!(with.usd, without.usd);
        assert!(without.is_known());
        let names =
            ["secondary boot disk model of node pool gpu", "secondary boot disk rapids of node pool gpu"];
        assert_eq!(with.unknown.into_iter().collect::<Vec<_>>(), names);
    }

    #[test]
    fn local_ssds_are_billed_where_they_are_attached() {
        let with = |machine: &str, ssds: u32| {
            let ssds = json!({ "localSsdCount": ssds });
            price(&json!({ "machineType": machine, "ephemeralStorageLocalSsdConfig": ssds }), "us-central1")
                .usd
        };
        assert_eq!(format!("{:.4}", with("n2-standard-8", 2) - with("n2-standard-8", 0)), "0.0822");
        // One SSD of 375 GiB comes with each GPU of A2 Ultra.
        assert_eq!(with("a2-ultragpu-1g", 1).to_bits(), with("a2-ultragpu-1g", 0).to_bits());
    }

    #[test]
    fn a_node_is_read_from_a_live_pool_as_from_a_desired_one() {
        let desired = json!({ "config": { "machineType": "n1-standard-2", "spot": true } });
        let live = json!({ "config": {
            "machineType": "n1-standard-2", "spot": true, "diskType": "pd-balanced", "diskSizeGb": 100, "imageType": "COS_CONTAINERD",
        } });
        assert_eq!(billed_node(&desired), billed_node(&live));
        assert!(billed_node(&desired).price(Prices::list(), "us-central1").spot);
    }
}
