//! What a thing is, in the few words that a row of a plan has room for: number, machine and GPUs first, images last. What
//! the address and the kind say already is not said again.

use serde_json::Value;

use super::json::text;
use super::scope::POOL_LABEL;
use crate::resource::{Identity, KindId, Resource};

/// A wanted thing in a few words, `None` where its name says it all.
pub fn about(resource: &Resource) -> Option<String> {
    let body = &resource.body;
    let said = match resource.kind {
        KindId::Cluster => vec![cluster(&resource.identity, body)],
        KindId::NodePool => vec![pool(body)],
        KindId::DaemonSet => vec![image(&body["spec"]["template"]["spec"])],
        KindId::Deployment | KindId::StatefulSet => {
            vec![replicas(&body["spec"]), image(&body["spec"]["template"]["spec"])]
        }
        KindId::Job => vec![image(&body["spec"]["template"]["spec"])],
        KindId::Pod => vec![image(&body["spec"])],
        KindId::Check => vec![on_pool(&body["spec"])],
        KindId::DaskCluster => dask_cluster(resource),
        KindId::DaskGroup => vec![workers(resource, "/spec/worker"), image(&body["spec"]["worker"]["spec"])],
        KindId::DaskAutoscaler => vec![between(&body["spec"]["minimum"], &body["spec"]["maximum"], "worker")],
        KindId::DaskJob => {
            let cluster = "/spec/cluster/spec/worker";
            vec![workers(resource, cluster), image(&body["spec"]["job"]["spec"])]
        }
        KindId::Notebook => {
            let pod = &body["spec"]["template"]["spec"];
            vec![with_gpus(pod).trim_start().to_owned(), image(pod)]
        }
        KindId::Namespace
        | KindId::Definition
        | KindId::Object
        | KindId::Binding
        | KindId::Service
        // The container that it keeps running does nothing: those before it install the driver.
        | KindId::GpuDriver => Vec::new(),
    };
    let said: Vec<String> = said.into_iter().filter(|said| !said.is_empty()).collect();
    (!said.is_empty()).then(|| said.join(", "))
}

/// `zonal, stable channel`.
fn cluster(identity: &Identity, body: &Value) -> String {
    let zonal = match identity {
        Identity::Cluster(cluster) => crate::catalog::region_of(&cluster.location).is_some(),
        Identity::NodePool { .. } | Identity::Object(_) | Identity::Check(_) => false,
    };
    let kind = if zonal { "zonal" } else { "regional" };
    let version = match (text(&body["initialClusterVersion"]), text(&body["releaseChannel"]["channel"])) {
        ("", "" | "UNSPECIFIED") => String::new(),
        ("", channel) => format!(", {} channel", channel.to_lowercase()),
        (version, _) => format!(", version {version}"),
    };
    format!("{kind}{version}")
}

/// `0–4 × a2-highgpu-1g with 1 × nvidia-tesla-a100, spot`.
fn pool(body: &Value) -> String {
    let (config, scaled) = (&body["config"], &body["autoscaling"]);
    let nodes = match scaled["enabled"] == true {
        true if scaled["totalMaxNodeCount"].is_number() => {
            range(&scaled["totalMinNodeCount"], &scaled["totalMaxNodeCount"])
        }
        true => range(&scaled["minNodeCount"], &scaled["maxNodeCount"]),
        false => {
            number(&body["nodeCount"]).or_else(|| number(&body["initialNodeCount"])).map(|n| n.to_string())
        }
    };
    let machine = text(&config["machineType"]);
    let machine = nodes.map_or_else(|| machine.to_owned(), |nodes| format!("{nodes} × {machine}"));
    let gpu = &config["accelerators"][0];
    let gpus = number(&gpu["acceleratorCount"]).filter(|count| *count > 0);
    let gpus =
        gpus.map(|count| format!(" with {count} × {}", text(&gpu["acceleratorType"]))).unwrap_or_default();
    let spot = if config["spot"] == true { ", spot" } else { "" };
    format!("{machine}{gpus}{spot}")
}

/// `scheduler with 1 GPU, 2 workers with 1 GPU each`, and the images.
fn dask_cluster(resource: &Resource) -> Vec<String> {
    let spec = &resource.body["spec"];
    let scheduler = &spec["scheduler"]["spec"];
    let (one, other) = (image(scheduler), image(&spec["worker"]["spec"]));
    let images = if one == other || other.is_empty() { one } else { format!("{one} and {other}") };
    let scheduler = format!("scheduler{}", with_gpus(scheduler));
    vec![scheduler, workers(resource, "/spec/worker"), images]
}

/// `2 workers with 1 GPU each`; the number may be one that is only set at the beginning.
fn workers(resource: &Resource, place: &str) -> String {
    let at = |value: &Value| value.pointer(place).cloned().unwrap_or_default();
    let (worker, initial) = (at(&resource.body), at(&resource.initial));
    let number = number(&worker["replicas"]).or_else(|| number(&initial["replicas"]));
    let gpus = with_gpus(&worker["spec"]);
    let each = if gpus.is_empty() || number == Some(1) { "" } else { " each" };
    let workers = number.map_or_else(|| "workers".to_owned(), |number| counted(number, "worker"));
    format!("{workers}{gpus}{each}")
}

/// How many pods, where it is not the one that everybody expects.
fn replicas(spec: &Value) -> String {
    let more = number(&spec["replicas"]).filter(|number| *number != 1);
    more.map(|number| counted(number, "pod")).unwrap_or_default()
}

/// `2 to 10 workers`.
fn between(least: &Value, most: &Value, noun: &str) -> String {
    range(least, most).map(|range| format!("{range} {noun}s")).unwrap_or_default()
}

fn range(least: &Value, most: &Value) -> Option<String> {
    let (least, most) = (number(least).unwrap_or_default(), number(most)?);
    Some(if least == most { most.to_string() } else { format!("{least}–{most}") })
}

/// ` with 1 GPU`, nothing for none.
fn with_gpus(pod: &Value) -> String {
    let containers = pod["containers"].as_array().into_iter().flatten();
    let gpus: u64 =
        containers.filter_map(|container| number(&container["resources"]["limits"]["nvidia.com/gpu"])).sum();
    if gpus == 0 { String::new() } else { format!(" with {}", counted(gpus, "GPU")) }
}

/// The image of the first container, without its registry.
fn image(pod: &Value) -> String {
    let image = text(&pod["containers"][0]["image"]);
    let from = image.rmatch_indices('/').nth(1).map_or(0, |(slash, _)| slash + 1);
    image[from..].to_owned()
}

fn on_pool(pod: &Value) -> String {
    let pool = text(&pod["nodeSelector"][POOL_LABEL]);
    if pool.is_empty() { String::new() } else { format!("on pool {pool}") }
}

fn counted(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Numbers stand in JSON as numbers or as text.
fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pool_says_how_many_of_which_machine() {
        let gpu = json!([{ "acceleratorType": "nvidia-tesla-t4", "acceleratorCount": "2" }]);
        for (body, said) in [
            (json!({ "config": { "machineType": "e2-standard-4" }, "nodeCount": 3 }), "3 × e2-standard-4"),
            (
                json!({ "config": { "machineType": "n1-standard-8", "accelerators": gpu, "spot": true },
                        "autoscaling": { "enabled": true, "maxNodeCount": 4 } }),
                "0–4 × n1-standard-8 with 2 × nvidia-tesla-t4, spot",
            ),
            (json!({ "config": { "machineType": "e2-small" } }), "e2-small"),
        ] {
            assert_eq!(pool(&body), said);
        }
    }

    #[test]
    fn an_image_is_named_without_its_registry() {
        for (given, said) in [
            ("nvcr.io/nvidia/rapidsai/base:26.04", "rapidsai/base:26.04"),
            ("ghcr.io/dask/dask:2026.3.0", "dask/dask:2026.3.0"),
            ("rapids:1", "rapids:1"),
        ] {
            assert_eq!(image(&json!({ "containers": [{ "image": given }] })), said);
        }
    }
}
