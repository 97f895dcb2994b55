//! Number of nodes of each pool: from its instance groups, else from the Nodes themselves.

use std::collections::BTreeMap;

use futures::StreamExt as _;
use serde_json::Value;

use crate::list::list_pages;
use crate::{LiveApi, Request};
use model::resource::{Api, World};

/// Returns the sum of the target sizes of each pool's instance groups. Leaves out pools whose groups could not all be read.
pub(crate) async fn instance_group_sizes(
    api: &dyn LiveApi,
    pools: &BTreeMap<String, Value>,
    parallelism: usize,
) -> BTreeMap<String, u32> {
    let groups = pools.iter().flat_map(|(name, pool)| {
        let urls = pool["instanceGroupUrls"].as_array().into_iter().flatten().filter_map(Value::as_str);
        urls.map(move |url| (name, url))
    });
    let sizes = groups.map(|(name, url)| async move { (name.clone(), instance_group_size(api, url).await) });
    let mut sizes = futures::stream::iter(sizes).buffer_unordered(parallelism.max(1));
    let mut sums = BTreeMap::<String, Option<u32>>::new();
    while let Some((name, size)) = sizes.next().await {
        let sum = sums.entry(name).or_insert(Some(0));
        *sum = sum.zip(size).map(|(sum, size)| sum + size);
    }
    sums.into_iter().filter_map(|(name, sum)| Some((name, sum?))).collect()
}

async fn instance_group_size(api: &dyn LiveApi, url: &str) -> Option<u32> {
    let (_, rest) = url.split_once("/projects/")?;
    // GKE names the manager in most replies and the group in some; only the manager has a target.
    let path = format!("/compute/v1/projects/{rest}").replace("/instanceGroups/", "/instanceGroupManagers/");
    let manager = api.send(Request::get(Api::Compute, path)).await.ok()?;
    let size = manager.get("targetSize").map_or(Some(0), Value::as_u64)?;
    u32::try_from(size).ok()
}

/// Counts the Node objects with the label of a pool, for pools whose instance groups could not be read.
pub(crate) async fn count_missing_nodes(api: &dyn LiveApi, world: &mut World) {
    let World { pools, sizes, .. } = world;
    let missing: Vec<&String> = pools
        .iter()
        .filter(|(name, pool)| !sizes.contains_key(*name) && pool["status"] != "PROVISIONING")
        .map(|(name, _)| name)
        .collect();
    if missing.is_empty() {
        return;
    }
    let Ok(nodes) = list_pages(api, "/api/v1/nodes", None).await else { return };
    for name in missing {
        let of_pool = |node: &&Value| node["metadata"]["labels"]["cloud.google.com/gke-nodepool"] == **name;
        sizes.insert(name.clone(), u32::try_from(nodes.iter().filter(of_pool).count()).unwrap_or(u32::MAX));
    }
}
