//! Reading the world: the GKE cluster with its pools, how many nodes they have, the record, and one LIST for
//! each kind and namespace, side by side. What could not be read is never taken for absent.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt as _;
use serde_json::Value;

use super::connection::endpoint;
use super::retry::{self, Patience};
use super::{ApiError, Class, LiveApi, Request, record};
use crate::record::Record;
use crate::resource::{Api, ClusterName, Gvk, Identity, ObjectId, Seen, Wanted, World};

/// What a reading found.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// What is live.
    pub world: World,
    /// What the user should know about it: a record that could not be understood.
    pub warnings: Vec<String>,
    /// The request that failed, when a place could not be read.
    pub trouble: Option<ApiError>,
}

/// Reads what is wanted, at most `parallelism` requests at a time. Collections that the record names are
/// read as well, so that what is no longer in the file is found.
pub async fn read(api: &dyn LiveApi, wanted: &Wanted, parallelism: usize) -> Reading {
    let mut reading = Reading { world: World::empty(), warnings: Vec::new(), trouble: None };
    if let Some(name) = &wanted.cluster {
        match get(api, Request::get(Api::Gke, format!("/v1/{}", name.path()))).await {
            Err(error) if says_absent(&error, name) => {
                match super::along::elsewhere(api, name, &wanted.owner).await {
                    Ok(elsewhere) => reading.world.elsewhere = elsewhere,
                    Err(error) => reading.cannot(error),
                }
                return reading;
            }
            Err(error) => {
                reading.cannot(error);
                return reading;
            }
            Ok(cluster) => {
                let (cluster, pools) = split_pools(cluster);
                // While GKE makes the cluster nothing of ours is in it: writes wait for it to run.
                let made = endpoint(&cluster).is_some() && cluster["status"] != "PROVISIONING";
                reading.world.cluster = Seen::Live(cluster);
                reading.world.pools = pools;
                if !made {
                    // Without an endpoint there is no API that anything could be in.
                    return reading;
                }
            }
        }
    }
    let inside = read_inside(api, wanted, parallelism);
    let sizes = instance_group_sizes(api, &reading.world.pools, parallelism);
    let (inside, sizes) = futures::join!(inside, sizes);
    reading.world.sizes = sizes;
    match inside {
        Ok(Inside { objects, record, warnings }) => {
            reading.world.inside = Seen::Live(objects);
            reading.world.record = record;
            reading.warnings = warnings;
            count_missing_nodes(api, &mut reading.world).await;
        }
        Err(error) => {
            reading.world.inside = Seen::Unreadable(unreadable(&reading.world, &error));
            reading.trouble = Some(error);
        }
    }
    reading
}

impl Reading {
    /// Nothing is known of the cluster.
    fn cannot(&mut self, error: ApiError) {
        let why = error.to_string();
        self.world.cluster = Seen::Unreadable(why.clone());
        self.world.inside = Seen::Unreadable(why);
        self.trouble = Some(error);
    }
}

/// Whether GKE says that the cluster is not there. A 404 that names something else, such as the project or the
/// location, says nothing of the cluster. Source: recorded, `Not found: projects/P/zones/Z/clusters/C.`
fn says_absent(error: &ApiError, name: &ClusterName) -> bool {
    let mut words = error.message.split(|c: char| c.is_whitespace() || c == '"' || c == '\'');
    let ending = format!("/clusters/{}", name.cluster);
    error.class == Class::NotFound
        && words.any(|word| word.trim_end_matches(['.', ',', ':']).ends_with(&ending))
}

pub(super) async fn get(api: &dyn LiveApi, request: Request) -> Result<Value, ApiError> {
    retry::send(api, request, Patience::Reading).await
}

fn unreadable(world: &World, error: &ApiError) -> String {
    let status = world.cluster.live().and_then(|cluster| cluster["status"].as_str());
    match status {
        Some("STOPPING") => format!("the cluster is being deleted: {error}"),
        _ => error.to_string(),
    }
}

/// The cluster without its pools, and the pools by name.
fn split_pools(mut cluster: Value) -> (Value, BTreeMap<String, Value>) {
    let pools = match &mut cluster {
        Value::Object(fields) => fields.remove("nodePools"),
        _ => None,
    };
    let Some(Value::Array(pools)) = pools else { return (cluster, BTreeMap::new()) };
    let named = pools.into_iter().filter_map(|pool| Some((pool["name"].as_str()?.to_owned(), pool)));
    let named = named.collect();
    (cluster, named)
}

struct Inside {
    objects: BTreeMap<ObjectId, Value>,
    record: Option<Record>,
    warnings: Vec<String>,
}

async fn read_inside(api: &dyn LiveApi, wanted: &Wanted, parallelism: usize) -> Result<Inside, ApiError> {
    let record = read_record(api, wanted.record.as_ref());
    let objects = list_all(api, &wanted.collections, parallelism);
    let (record, objects) = futures::join!(record, objects);
    let ((record, warnings), mut objects) = (record?, objects?);
    let more = record.as_ref().map(recorded_collections).unwrap_or_default();
    let more: BTreeSet<_> = more.difference(&wanted.collections).cloned().collect();
    objects.extend(list_all(api, &more, parallelism).await?);
    let manager = wanted.owner.field_manager();
    let instances = defined(&objects, &manager);
    let known = |(gvk, place): &(Gvk, Option<String>)| {
        wanted.collections.contains(&(gvk.clone(), None)) || more.contains(&(gvk.clone(), place.clone()))
    };
    let instances = instances.into_iter().filter(|collection| !known(collection)).collect();
    objects.extend(list_all(api, &instances, parallelism).await?);
    Ok(Inside { objects, record, warnings })
}

async fn read_record(
    api: &dyn LiveApi,
    place: Option<&ObjectId>,
) -> Result<(Option<Record>, Vec<String>), ApiError> {
    let Some(place) = place else { return Ok((None, Vec::new())) };
    let found = record::fetch(api, place, Patience::Reading).await?;
    Ok(match found.map(|stored| stored.record) {
        None => (None, Vec::new()),
        Some(Ok(record)) => (Some(record), Vec::new()),
        Some(Err(why)) => (None, vec![format!("{place}: {why}")]),
    })
}

fn recorded_collections(record: &Record) -> BTreeSet<(Gvk, Option<String>)> {
    let objects = record.inventory.iter().filter_map(|entry| match &entry.identity {
        Identity::Object(ObjectId { gvk, namespace, .. }) => Some((gvk.clone(), namespace.clone())),
        Identity::Cluster(_) | Identity::NodePool { .. } | Identity::Check(_) => None,
    });
    objects.collect()
}

/// Everything of the kinds that this stack has defined, others' included: a definition that goes takes all of it.
fn defined(objects: &BTreeMap<ObjectId, Value>, manager: &str) -> BTreeSet<(Gvk, Option<String>)> {
    let ours = |live: &Value| {
        let entries = live.pointer("/metadata/managedFields").and_then(Value::as_array);
        let applied = |entry: &Value| entry["manager"] == manager && entry["operation"] == "Apply";
        entries.into_iter().flatten().any(applied)
    };
    let definitions =
        objects.iter().filter(|(object, live)| object.gvk.kind == "CustomResourceDefinition" && ours(live));
    let kinds = definitions.filter_map(|(_, live)| {
        let spec = &live["spec"];
        let versions = spec["versions"].as_array()?;
        let version = versions.iter().find(|version| version["served"] == true)?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Some(Gvk {
            group: text(&spec["group"])?,
            version: text(&version["name"])?,
            kind: text(&spec["names"]["kind"])?,
            plural: text(&spec["names"]["plural"])?,
        })
    });
    kinds.map(|gvk| (gvk, None)).collect()
}

async fn list_all(
    api: &dyn LiveApi,
    collections: &BTreeSet<(Gvk, Option<String>)>,
    parallelism: usize,
) -> Result<BTreeMap<ObjectId, Value>, ApiError> {
    let lists = collections.iter().map(|(gvk, namespace)| list(api, gvk, namespace.as_deref()));
    let mut lists = futures::stream::iter(lists).buffer_unordered(parallelism.max(1));
    let mut objects = BTreeMap::new();
    while let Some(found) = lists.next().await {
        objects.extend(found?);
    }
    Ok(objects)
}

/// All objects of a kind in a namespace, or in the cluster; none when the kind is not served.
pub(super) async fn list(
    api: &dyn LiveApi,
    gvk: &Gvk,
    namespace: Option<&str>,
) -> Result<Vec<(ObjectId, Value)>, ApiError> {
    let items = match list_pages(api, &gvk.collection(namespace)).await {
        Err(error) if error.is_unknown_path() => return Ok(Vec::new()),
        result => result?,
    };
    let named = items.into_iter().filter_map(|mut item| {
        let name = item.pointer("/metadata/name")?.as_str()?.to_owned();
        let namespace = item.pointer("/metadata/namespace").and_then(Value::as_str).map(str::to_owned);
        // Lists of built-in kinds leave these out of their items.
        if let Value::Object(fields) = &mut item {
            fields.entry("apiVersion").or_insert_with(|| gvk.api_version().into());
            fields.entry("kind").or_insert_with(|| gvk.kind.clone().into());
        }
        Some((ObjectId { gvk: gvk.clone(), namespace, name }, item))
    });
    Ok(named.collect())
}

/// Items of a LIST, page by page; from the start in one page when the pages went stale in between.
async fn list_pages(api: &dyn LiveApi, collection: &str) -> Result<Vec<Value>, ApiError> {
    let mut items = Vec::new();
    let mut path = format!("{collection}?limit=500");
    loop {
        let mut page = match get(api, Request::get(Api::Kubernetes, path.clone())).await {
            Err(error) if error.status == Some(410) && path != collection => {
                items.clear();
                path = collection.to_owned();
                continue;
            }
            result => result?,
        };
        if let Some(Value::Array(found)) = page.get_mut("items").map(Value::take) {
            items.extend(found);
        }
        match page.pointer("/metadata/continue").and_then(Value::as_str) {
            Some(token) if !token.is_empty() => {
                path = format!("{collection}?limit=500&continue={}", encode(token));
            }
            _ => return Ok(items),
        }
    }
}

/// A query value; page tokens are base64 with its `+`, `/` and `=`.
fn encode(text: &str) -> String {
    let bytes = text.bytes().map(|byte| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    });
    bytes.collect()
}

/// Nodes that each pool's instance groups aim for; only pools of which every group could be read.
async fn instance_group_sizes(
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

/// For pools whose instance groups could not be read: how many Node objects carry the pool's label.
async fn count_missing_nodes(api: &dyn LiveApi, world: &mut World) {
    let World { pools, sizes, .. } = world;
    let missing: Vec<&String> = pools
        .iter()
        .filter(|(name, pool)| !sizes.contains_key(*name) && pool["status"] != "PROVISIONING")
        .map(|(name, _)| name)
        .collect();
    if missing.is_empty() {
        return;
    }
    let Ok(nodes) = list_pages(api, "/api/v1/nodes").await else { return };
    for name in missing {
        let of_pool = |node: &&Value| node["metadata"]["labels"]["cloud.google.com/gke-nodepool"] == **name;
        sizes.insert(name.clone(), u32::try_from(nodes.iter().filter(of_pool).count()).unwrap_or(u32::MAX));
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use futures::future::BoxFuture;
    use serde_json::json;

    use super::*;

    /// Answers by path; what it does not know is not there.
    struct Fixed(BTreeMap<&'static str, Result<Value, (Class, u16, &'static str)>>);

    impl LiveApi for Fixed {
        fn send(&self, request: Request) -> BoxFuture<'_, Result<Value, ApiError>> {
            let refused = |class, status, message: &str| ApiError {
                status: Some(status),
                ..request.failed(class, message)
            };
            let answer = match self.0.get(request.path.as_str()) {
                Some(Ok(value)) => Ok(value.clone()),
                Some(Err((class, status, message))) => Err(refused(*class, *status, message)),
                None => Err(refused(Class::NotFound, 404, "not found")),
            };
            async move { answer }.boxed()
        }
    }

    fn gvk(plural: &str, kind: &str) -> Gvk {
        Gvk { group: String::new(), version: "v1".into(), kind: kind.into(), plural: plural.into() }
    }

    fn wanted() -> Wanted {
        Wanted {
            cluster: Some(ClusterName { project: "p".into(), location: "l".into(), cluster: "c".into() }),
            collections: BTreeSet::from([(gvk("pods", "Pod"), Some("n".into()))]),
            record: Some(Record::object("s")),
            owner: Default::default(),
        }
    }

    const CLUSTERS: &str = "/v1/projects/p/locations/-/clusters";
    const CLUSTER: &str = "/v1/projects/p/locations/l/clusters/c";
    const RECORD: &str = "/api/v1/namespaces/dask-infra/configmaps/dask-infra-s";
    const PODS: &str = "/api/v1/namespaces/n/pods?limit=500";
    const GROUP: &str = "https://www.googleapis.com/compute/v1/projects/p/zones/z/instanceGroupManagers/g";

    fn cluster() -> Value {
        json!({"name": "c", "status": "RUNNING", "endpoint": "e", "nodePools": [
            {"name": "a", "status": "RUNNING", "instanceGroupUrls": [GROUP]},
            {"name": "b", "status": "RUNNING", "instanceGroupUrls": ["https://x/projects/p/zones/z/instanceGroups/h"]}]})
    }

    fn list_of(names: &[&str]) -> Value {
        let items = names.iter().map(|name| json!({"metadata": {"name": name, "namespace": "n"}}));
        json!({"kind": "PodList", "metadata": {}, "items": items.collect::<Vec<_>>()})
    }

    #[tokio::test]
    async fn without_a_cluster_all_is_absent_and_others_of_the_stack_are_looked_for() {
        let api = Fixed(BTreeMap::from([
            (CLUSTER, Err((Class::NotFound, 404, "Not found: projects/p/zones/l/clusters/c."))),
            (CLUSTERS, Ok(json!({}))),
        ]));
        let reading = read(&api, &wanted(), 4).await;
        let elsewhere = crate::resource::Elsewhere::Found(Vec::new());
        assert_eq!(reading.world, World { elsewhere, ..World::empty() });
    }

    #[tokio::test]
    async fn a_denied_cluster_is_unreadable_inside_too() {
        let api = Fixed(BTreeMap::from([(CLUSTER, Err((Class::Denied, 403, "no")))]));
        let world = read(&api, &wanted(), 4).await.world;
        assert!(matches!(world.cluster, Seen::Unreadable(_)));
        assert!(matches!(world.inside, Seen::Unreadable(_)));
    }

    #[tokio::test]
    async fn a_404_that_is_not_of_the_cluster_is_no_absent_cluster() {
        let absent = Err((Class::NotFound, 404, "Not found: projects/p/zones/l/clusters/c."));
        for (cluster, clusters) in [
            (Err((Class::NotFound, 404, "Not found: projects/p.")), Ok(json!({}))),
            (Err((Class::NotFound, 404, "Not found: projects/p/zones/l/clusters/abc.")), Ok(json!({}))),
            (Err((Class::NotFound, 404, "Requested entity was not found.")), Ok(json!({}))),
            (absent, Err((Class::NotFound, 404, "Not found: projects/p."))),
        ] {
            let api = Fixed(BTreeMap::from([(CLUSTER, cluster), (CLUSTERS, clusters)]));
            let reading = read(&api, &wanted(), 4).await;
            assert!(matches!(reading.world.cluster, Seen::Unreadable(_)), "{:?}", reading.world.cluster);
            assert_eq!(reading.trouble.map(|error| error.class), Some(Class::NotFound));
        }
    }

    #[tokio::test]
    async fn a_cluster_without_endpoint_has_nothing_inside() {
        let api = Fixed(BTreeMap::from([(CLUSTER, Ok(json!({"status": "PROVISIONING"})))]));
        let world = read(&api, &wanted(), 4).await.world;
        assert!(world.cluster.live().is_some());
        assert_eq!(world.inside, Seen::Absent);
    }

    #[tokio::test]
    async fn pools_sizes_record_and_objects_are_read() {
        let record = Record {
            version: Record::VERSION,
            stack: "s".into(),
            inventory: vec![crate::record::Entry {
                address: crate::address::Address::new("x"),
                identity: Identity::Object(ObjectId {
                    gvk: gvk("services", "Service"),
                    namespace: Some("n".into()),
                    name: "left".into(),
                }),
                kind: "Service".into(),
                set: Value::Null,
            }],
            ..Record::default()
        };
        let text = serde_json::to_string(&record).unwrap();
        let node = |pool: &str| json!({"metadata": {"labels": {"cloud.google.com/gke-nodepool": pool}}});
        let api = Fixed(BTreeMap::from([
            (CLUSTER, Ok(cluster())),
            (RECORD, Ok(json!({"data": {"record": text}}))),
            (PODS, Ok(json!({"items": list_of(&["one"])["items"], "metadata": {"continue": "a+/="}}))),
            ("/api/v1/namespaces/n/pods?limit=500&continue=a%2B%2F%3D", Ok(list_of(&["two"]))),
            ("/api/v1/namespaces/n/services?limit=500", Ok(list_of(&["left"]))),
            ("/compute/v1/projects/p/zones/z/instanceGroupManagers/g", Ok(json!({"targetSize": 3}))),
            (
                "/compute/v1/projects/p/zones/z/instanceGroupManagers/h",
                Err((Class::Denied, 403, "compute.instanceGroupManagers.get")),
            ),
            ("/api/v1/nodes?limit=500", Ok(json!({"items": [node("a"), node("b"), node("b")]}))),
        ]));
        let Reading { world, warnings, trouble: _ } = read(&api, &wanted(), 4).await;
        assert_eq!(warnings, Vec::<String>::new());
        assert_eq!(world.record, Some(record));
        assert_eq!(world.cluster.live().and_then(|cluster| cluster.get("nodePools")), None);
        assert_eq!(world.pools.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(world.sizes, BTreeMap::from([("a".to_owned(), 3), ("b".to_owned(), 2)]));
        let objects = world.inside.live().unwrap();
        let names: Vec<String> = objects.keys().map(ToString::to_string).collect();
        assert_eq!(names, ["Pod n/one", "Pod n/two", "Service n/left"]);
        assert!(objects.values().all(|object| object["apiVersion"] == "v1"));
    }

    #[tokio::test]
    async fn a_kind_that_is_not_served_is_empty_and_a_denied_list_is_unreadable() {
        let missing = "the server could not find the requested resource";
        for (answer, readable) in [
            (Err((Class::NotFound, 404, missing)), true),
            (Err((Class::Denied, 403, "pods is forbidden")), false),
        ] {
            let api = Fixed(BTreeMap::from([(CLUSTER, Ok(cluster())), (PODS, answer)]));
            let world = read(&api, &wanted(), 4).await.world;
            assert_eq!(world.inside.live().is_some(), readable, "{:?}", world.inside);
        }
    }
}
