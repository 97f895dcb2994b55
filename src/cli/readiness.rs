//! Reads the readiness of resources once.

use std::collections::{BTreeMap, HashMap};

use futures::StreamExt as _;
use serde_json::Value;

use kinds::kind::QueryResults;
use live::{LiveApi, probe};
use model::resource::{Await, Identity, Query, Readiness, World};

/// Returns the readiness of resources. Objects that were read already are not read again, and unreadable ones are left out.
pub(crate) async fn read_readiness(
    api: &dyn LiveApi,
    world: &World,
    waits: &[(usize, Await)],
    parallelism: usize,
) -> Vec<(usize, Readiness)> {
    if waits.is_empty() {
        return Vec::new();
    }
    let objects = world.objects.live().into_iter().flatten();
    let of_gke = waits.iter().filter_map(|(_, wait)| match &wait.identity {
        Identity::Cluster(name) => Some((format!("/v1/{}", name.path()), world.cluster.live()?)),
        Identity::NodePool { cluster, pool } => {
            Some((format!("/v1/{}", cluster.pool_path(pool)), world.pools.get(pool)?))
        }
        Identity::Object(_) | Identity::Check(_) => None,
    });
    let read: HashMap<String, &Value> =
        objects.map(|(object, live)| (object.path(), live)).chain(of_gke).collect();
    let queries = |wait: &Await| (kinds::of(wait.kind).queries)(wait);
    let asked: BTreeMap<String, Query> = waits
        .iter()
        .flat_map(|(_, wait)| queries(wait).all().map(|(_, query)| query.clone()).collect::<Vec<_>>())
        .filter(|query| !read.contains_key(&query.path))
        .map(|query| (query.path.clone(), query))
        .collect();
    let reads = asked.into_iter().map(|(path, query)| async move { (path, probe(api, &query).await) });
    let mut reads = futures::stream::iter(reads).buffer_unordered(parallelism.max(1));
    let mut new: BTreeMap<String, Value> = BTreeMap::new();
    while let Some((path, found)) = reads.next().await {
        new.extend(found.ok().map(|found| (path, found)));
    }
    let judged = |(place, wait): &(usize, Await)| {
        let known = |query: &Query| read.get(&query.path).copied().or_else(|| new.get(&query.path));
        let queries = queries(wait);
        let reads = queries.all().map(|(what, query)| Some((what, known(query)?)));
        let found = QueryResults::of(reads.collect::<Option<Vec<_>>>()?);
        Some((*place, kinds::of(wait.kind).readiness(wait, &found)))
    };
    waits.iter().filter_map(judged).collect()
}
