//! Reads the world: the GKE cluster with its pools and their sizes, the record, and one LIST for each kind and namespace, or for
//! a kind of many namespaces, in parallel. An unreadable resource never counts as absent.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt as _;
use serde_json::Value;

use crate::endpoint::endpoint;
use crate::list::{Collections, ListResult, UniqueObjects, is_applied_by, list_all};
use crate::owned_objects::read_owned;
use crate::pool_sizes::{count_missing_nodes, instance_group_sizes};
use crate::record::{self, StoredRecord};
use crate::retry::{RetryPolicy, get};
use crate::{ApiError, ErrorClass, LiveApi, Request};
use model::record::Record;
use model::resource::{Api, ClusterName, Gvk, ObjectId, ReadSet, Seen, World};

/// The result of a read.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The live state.
    pub world: World,
    /// The request that failed, if a part could not be read.
    pub error: Option<ApiError>,
    /// Collections that were listed completely.
    pub listed: Collections,
}

/// Reads a set of resources, with at most `parallelism` requests at a time. Collections that the record names are read as well,
/// to find resources that are no longer in the file.
pub async fn read(api: &dyn LiveApi, read_set: &ReadSet, parallelism: usize) -> Reading {
    let mut reading = Reading { world: World::empty(), error: None, listed: Collections::new() };
    if let Some(name) = &read_set.cluster {
        match get(api, Request::get(Api::Gke, format!("/v1/{}", name.path()))).await {
            Err(error) if says_absent(&error, name) => {
                match crate::deletion_scope::find_other_clusters(api, name, &read_set.owner).await {
                    Ok(elsewhere) => reading.world.other_clusters = elsewhere,
                    Err(error) => reading.set_unreadable(error),
                }
                return reading;
            }
            Err(error) => {
                reading.set_unreadable(error);
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
    let inside = read_contents(api, read_set, parallelism);
    let sizes = instance_group_sizes(api, &reading.world.pools, parallelism);
    let (inside, sizes) = futures::join!(inside, sizes);
    reading.world.sizes = sizes;
    match inside {
        Ok(ClusterContents { objects, listed, stored_record, unlisted, record_namespace_left }) => {
            reading.world.objects = Seen::Live(objects);
            reading.listed = listed;
            match stored_record {
                StoredRecord::Absent => {}
                StoredRecord::OnlyLock => reading.world.lock_without_record = true,
                StoredRecord::Record(stored) => match stored.record {
                    // Hosts that left the file may have what no list above has seen.
                    Ok(record) if api.add_hosts(&record.hosts) => {
                        return Box::pin(read(api, read_set, parallelism)).await;
                    }
                    Ok(record) => {
                        reading.world.record = Some(record.with_project_of(read_set.cluster.as_ref()));
                    }
                    Err(why) => reading.world.record_error = Some(why),
                },
            }
            reading.world.unlisted_owned = unlisted;
            reading.world.record_namespace_left = record_namespace_left;
            count_missing_nodes(api, &mut reading.world).await;
        }
        Err(error) => {
            reading.world.objects = Seen::Unreadable(unreadable(&reading.world, &error));
            reading.error = Some(error);
        }
    }
    reading
}

impl Reading {
    /// Marks the cluster and its contents as unreadable.
    fn set_unreadable(&mut self, error: ApiError) {
        let why = error.to_string();
        self.world.cluster = Seen::Unreadable(why.clone());
        self.world.objects = Seen::Unreadable(why);
        self.error = Some(error);
    }
}

/// Returns true if GKE says that the cluster does not exist. A 404 about something else, such as the project or the location,
/// says nothing about the cluster. Source: recorded, `Not found: projects/P/zones/Z/clusters/C.`
fn says_absent(error: &ApiError, name: &ClusterName) -> bool {
    let mut words = error.message.split(|c: char| c.is_whitespace() || c == '"' || c == '\'');
    let ending = format!("/clusters/{}", name.cluster);
    error.class == ErrorClass::NotFound
        && words.any(|word| word.trim_end_matches(['.', ',', ':']).ends_with(&ending))
}

/// Returns true if a GKE cluster has a reliable Kubernetes API: it exists, and is neither being created nor being deleted.
///
/// # Errors
///
/// GKE does not answer.
pub async fn is_api_ready(api: &dyn LiveApi, name: &ClusterName) -> Result<bool, ApiError> {
    match get(api, Request::get(Api::Gke, format!("/v1/{}", name.path()))).await {
        Err(error) if says_absent(&error, name) => Ok(false),
        Err(error) => Err(error),
        Ok(cluster) => {
            let status = cluster["status"].as_str().unwrap_or_default();
            Ok(endpoint(&cluster).is_some() && !matches!(status, "PROVISIONING" | "STOPPING" | "ERROR"))
        }
    }
}

fn unreadable(world: &World, error: &ApiError) -> String {
    let status = world.cluster.live().and_then(|cluster| cluster["status"].as_str());
    match status {
        Some("STOPPING") => format!("the cluster is being deleted: {error}"),
        _ => error.to_string(),
    }
}

/// Returns the cluster without its pools, and the pools by name.
fn split_pools(mut cluster: Value) -> (Value, BTreeMap<String, Value>) {
    let pools = match &mut cluster {
        Value::Object(fields) => fields.remove("nodePools"),
        _ => None,
    };
    // GKE manages the pools of an Autopilot cluster and refuses every request for them.
    let own = cluster["autopilot"]["enabled"] == true;
    let Some(Value::Array(pools)) = pools.filter(|_| !own) else { return (cluster, BTreeMap::new()) };
    let named = pools.into_iter().filter_map(|pool| Some((pool["name"].as_str()?.to_owned(), pool)));
    let named = named.collect();
    (cluster, named)
}

struct ClusterContents {
    objects: BTreeMap<ObjectId, Value>,
    listed: Collections,
    stored_record: StoredRecord,
    /// Kinds of which not all objects of the stack could be listed.
    unlisted: Vec<String>,
    /// True if an interrupted apply left the namespace of records without any record.
    record_namespace_left: bool,
}

async fn read_contents(
    api: &dyn LiveApi,
    read_set: &ReadSet,
    parallelism: usize,
) -> Result<ClusterContents, ApiError> {
    let record_id = read_set.record.as_ref();
    let found = async {
        match record_id {
            Some(record_id) => record::fetch(api, record_id, RetryPolicy::Read).await,
            None => Ok(StoredRecord::Absent),
        }
    };
    let listed = list_each(api, &read_set.collections, parallelism);
    let (stored_record, listed) = futures::join!(found, listed);
    let (stored_record, listed) = (stored_record?, listed?);
    let record = stored_record.record();
    let mut objects = UniqueObjects::default();
    // Objects of the file are compared in the API version that the file names.
    objects.extend(read_each(api, &read_set.single_objects, parallelism).await?);
    objects.extend(listed);
    let mut known = read_set.collections.clone();
    let more = record.map(recorded_collections).unwrap_or_default();
    let more: Collections = more.into_iter().filter(|collection| !covers(&known, collection)).collect();
    objects.extend(list_each(api, &more, parallelism).await?);
    known.extend(more);
    let manager = read_set.owner.field_manager();
    let mut unlisted = BTreeSet::new();
    if record_id.is_some() && record.is_none_or(|record| record.incomplete) {
        let namespaces = known.iter().filter_map(|(_, namespace)| namespace.as_deref()).collect();
        let found = read_owned(api, &manager, &namespaces, parallelism).await?;
        objects.extend(found.objects);
        unlisted = found.unlisted;
    }
    let record_namespace_left = match stored_record {
        StoredRecord::Absent if record_id.is_some() => {
            record::removable_namespace(api, |_| false, RetryPolicy::Read, parallelism).await?.is_some()
        }
        StoredRecord::Absent | StoredRecord::OnlyLock | StoredRecord::Record(_) => false,
    };
    let instances = instances_of_own_kinds(&objects.by_id, &known, &manager);
    let instances: Collections =
        instances.into_iter().filter(|collection| !covers(&known, collection)).collect();
    objects.extend(list_each(api, &instances, parallelism).await?);
    known.extend(instances);
    Ok(ClusterContents {
        objects: objects.by_id,
        listed: known,
        stored_record,
        unlisted: unlisted.into_iter().collect(),
        record_namespace_left,
    })
}

/// Returns true if one of these collections contains another one.
fn covers(known: &Collections, other: &(Gvk, Option<String>)) -> bool {
    known.contains(other) || known.contains(&(other.0.clone(), None))
}

/// Reads single objects, each in the version of its id.
async fn read_each(
    api: &dyn LiveApi,
    apart: &[ObjectId],
    parallelism: usize,
) -> Result<Vec<(ObjectId, Value)>, ApiError> {
    let reads = apart.iter().map(|object| async move {
        match get(api, Request::get(Api::Kubernetes, object.path())).await {
            Err(error) if error.class == ErrorClass::NotFound => Ok(None),
            result => result.map(|live| Some((object.clone(), live))),
        }
    });
    let mut reads = futures::stream::iter(reads).buffer_unordered(parallelism.max(1));
    let mut found = Vec::new();
    while let Some(read) = reads.next().await {
        found.extend(read?);
    }
    Ok(found)
}

fn recorded_collections(record: &Record) -> Collections {
    let objects = record.inventory.iter().filter_map(|entry| entry.identity.object());
    objects.map(|object| (object.gvk.clone(), object.namespace.clone())).collect()
}

/// Returns the collections of all custom kinds that the stack defines, foreign objects included: deleting a CRD deletes them. The
/// version is that of other objects of the kind that are read, else the storage version.
fn instances_of_own_kinds(
    objects: &BTreeMap<ObjectId, Value>,
    known: &Collections,
    manager: &str,
) -> Collections {
    let crds = objects.iter().filter(|(object, live)| {
        object.gvk.kind == "CustomResourceDefinition" && is_applied_by(live, manager)
    });
    let kinds = crds.filter_map(|(_, live)| {
        let spec = &live["spec"];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let gvk = Gvk {
            group: text(&spec["group"])?,
            version: String::new(),
            kind: text(&spec["names"]["kind"])?,
            plural: text(&spec["names"]["plural"])?,
        };
        let served: Vec<&Value> =
            spec["versions"].as_array()?.iter().filter(|version| version["served"] == true).collect();
        let read = known.iter().find(|(other, _)| *other == gvk).map(|(other, _)| other.version.as_str());
        let read = served.iter().find(|version| version["name"].as_str() == read);
        let stored = || served.iter().find(|version| version["storage"] == true);
        let version = read.or_else(stored).or(served.first())?;
        Some(Gvk { version: text(&version["name"])?, ..gvk })
    });
    kinds.map(|gvk| (gvk, None)).collect()
}

/// Lists collections.
async fn list_each(
    api: &dyn LiveApi,
    collections: &Collections,
    parallelism: usize,
) -> Result<Vec<(ObjectId, Value)>, ApiError> {
    let mut objects = Vec::new();
    let found = |_: &Gvk, listed: ListResult| listed.map(|listed| objects.extend(listed));
    list_all(api, collections, parallelism, found).await?;
    Ok(objects)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use futures::future::BoxFuture;
    use serde_json::json;

    use super::*;
    use model::resource::Identity;
    use model::resource::KindId;

    /// Fixed answers by path; all other objects do not exist.
    struct Fixed(BTreeMap<&'static str, Result<Value, (ErrorClass, u16, &'static str)>>);

    impl LiveApi for Fixed {
        fn send(&self, request: Request) -> BoxFuture<'_, Result<Value, ApiError>> {
            let refused = |class, status, message: &str| ApiError {
                status: Some(status),
                ..request.failed(class, message)
            };
            let answer = match self.0.get(request.path.as_str()) {
                Some(Ok(value)) => Ok(value.clone()),
                Some(Err((class, status, message))) => Err(refused(*class, *status, message)),
                None => Err(refused(ErrorClass::NotFound, 404, "not found")),
            };
            async move { answer }.boxed()
        }
    }

    fn gvk(plural: &str, kind: &str) -> Gvk {
        Gvk { group: String::new(), version: "v1".into(), kind: kind.into(), plural: plural.into() }
    }

    fn read_set() -> ReadSet {
        ReadSet {
            cluster: Some(ClusterName { project: "p".into(), location: "l".into(), cluster: "c".into() }),
            collections: BTreeSet::from([(gvk("pods", "Pod"), Some("n".into()))]),
            ..ReadSet::default()
        }
    }

    fn with_record() -> ReadSet {
        ReadSet { record: Some(Record::object("s")), ..read_set() }
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
            (CLUSTER, Err((ErrorClass::NotFound, 404, "Not found: projects/p/zones/l/clusters/c."))),
            (CLUSTERS, Ok(json!({}))),
        ]));
        let reading = read(&api, &read_set(), 4).await;
        let elsewhere = model::resource::OtherClusters::Found(Vec::new());
        assert_eq!(reading.world, World { other_clusters: elsewhere, ..World::empty() });
    }

    /// `missingZones`: zones that GKE could not reach. Source: the reference of `projects.locations.clusters.list`.
    #[tokio::test]
    async fn a_cluster_may_be_in_a_zone_that_gke_cannot_list() {
        for (clusters, why) in [
            (Ok(json!({ "missingZones": ["us-east1-b"] })), "cannot list the clusters in us-east1-b now"),
            (Err((ErrorClass::Denied, 403, "no list for you")), "no list for you"),
        ] {
            let absent = Err((ErrorClass::NotFound, 404, "Not found: projects/p/zones/l/clusters/c."));
            let api = Fixed(BTreeMap::from([(CLUSTER, absent), (CLUSTERS, clusters)]));
            let elsewhere = read(&api, &read_set(), 4).await.world.other_clusters;
            let model::resource::OtherClusters::Unknown(said) = &elsewhere else { panic!("{elsewhere:?}") };
            assert!(said.contains(why), "{said}");
        }
    }

    #[tokio::test]
    async fn a_denied_cluster_is_unreadable_inside_too() {
        let api = Fixed(BTreeMap::from([(CLUSTER, Err((ErrorClass::Denied, 403, "no")))]));
        let world = read(&api, &read_set(), 4).await.world;
        assert!(matches!(world.cluster, Seen::Unreadable(_)));
        assert!(matches!(world.objects, Seen::Unreadable(_)));
    }

    #[tokio::test]
    async fn a_404_that_is_not_of_the_cluster_is_no_absent_cluster() {
        let absent = Err((ErrorClass::NotFound, 404, "Not found: projects/p/zones/l/clusters/c."));
        for (cluster, clusters) in [
            (Err((ErrorClass::NotFound, 404, "Not found: projects/p.")), Ok(json!({}))),
            (Err((ErrorClass::NotFound, 404, "Not found: projects/p/zones/l/clusters/abc.")), Ok(json!({}))),
            (Err((ErrorClass::NotFound, 404, "Requested entity was not found.")), Ok(json!({}))),
            (absent, Err((ErrorClass::NotFound, 404, "Not found: projects/p."))),
        ] {
            let api = Fixed(BTreeMap::from([(CLUSTER, cluster), (CLUSTERS, clusters)]));
            let reading = read(&api, &read_set(), 4).await;
            assert!(matches!(reading.world.cluster, Seen::Unreadable(_)), "{:?}", reading.world.cluster);
            assert_eq!(reading.error.map(|error| error.class), Some(ErrorClass::NotFound));
        }
    }

    #[tokio::test]
    async fn a_cluster_without_endpoint_has_nothing_inside() {
        let api = Fixed(BTreeMap::from([(CLUSTER, Ok(json!({"status": "PROVISIONING"})))]));
        let world = read(&api, &read_set(), 4).await.world;
        assert!(world.cluster.live().is_some());
        assert_eq!(world.objects, Seen::Absent);
    }

    #[tokio::test]
    async fn pools_sizes_record_and_objects_are_read() {
        let record = Record {
            version: Record::VERSION,
            stack: "s".into(),
            inventory: vec![model::record::Entry {
                address: model::address::Address::new("x"),
                identity: Identity::Object(ObjectId {
                    gvk: gvk("services", "Service"),
                    namespace: Some("n".into()),
                    name: "left".into(),
                }),
                kind: KindId::Service.into(),
                set: Value::Null,
                ready: None,
                took: None,
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
                Err((ErrorClass::Denied, 403, "compute.instanceGroupManagers.get")),
            ),
            ("/api/v1/nodes?limit=500", Ok(json!({"items": [node("a"), node("b"), node("b")]}))),
        ]));
        let Reading { world, .. } = read(&api, &with_record(), 4).await;
        assert_eq!((world.record, world.record_error), (Some(record), None));
        assert_eq!(world.cluster.live().and_then(|cluster| cluster.get("nodePools")), None);
        assert_eq!(world.pools.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(world.sizes, BTreeMap::from([("a".to_owned(), 3), ("b".to_owned(), 2)]));
        let objects = world.objects.live().unwrap();
        let names: Vec<String> = objects.keys().map(ToString::to_string).collect();
        assert_eq!(names, ["Pod n/one", "Pod n/two", "Service n/left"]);
        assert!(objects.values().all(|object| object["apiVersion"] == "v1"));
    }

    /// Returns a Queue as the versions of its kind show it.
    fn queue(version: &str, name: &str) -> Value {
        json!({ "apiVersion": format!("example.com/{version}"), "kind": "Queue",
            "metadata": { "name": name, "namespace": "n", "uid": format!("uid-{name}") } })
    }

    fn queues(version: &str) -> Gvk {
        Gvk {
            group: "example.com".into(),
            version: version.into(),
            kind: "Queue".into(),
            plural: "queues".into(),
        }
    }

    /// Returns the API versions of the objects in a world.
    async fn versions(api: &Fixed, read_set: &ReadSet) -> Vec<String> {
        let world = read(api, read_set, 4).await.world;
        let objects = world.objects.live().unwrap();
        let shown = |(id, live): (&ObjectId, &Value)| {
            assert_eq!(
                live["apiVersion"],
                id.gvk.api_version(),
                "a value under the version that it was read in"
            );
            format!("{} {}", id.gvk.version, id.name)
        };
        objects.iter().filter(|(id, _)| id.gvk.kind == "Queue").map(shown).collect()
    }

    #[tokio::test]
    async fn what_is_served_in_several_versions_is_read_once_and_as_it_is_asked_for() {
        let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?limit=500";
        let crd = json!({
            "metadata": { "name": "queues.example.com", "uid": "crd",
                "managedFields": [{ "manager": "dask-infra/", "operation": "Apply" }] },
            "spec": { "group": "example.com", "names": { "kind": "Queue", "plural": "queues" }, "versions": [
                { "name": "v1alpha1", "served": false }, { "name": "v1beta1", "served": true },
                { "name": "v1", "served": true, "storage": true }] },
        });
        let record = |version: &str| {
            let identity = Identity::Object(ObjectId {
                gvk: queues(version),
                namespace: Some("n".into()),
                name: "old".into(),
            });
            let address = model::address::Address::new("x");
            let entry = model::record::Entry {
                address,
                identity,
                kind: KindId::Object.into(),
                set: Value::Null,
                ready: None,
                took: None,
            };
            let record = Record {
                version: Record::VERSION,
                stack: "s".into(),
                inventory: vec![entry],
                ..Record::default()
            };
            Ok(json!({ "data": { "record": serde_json::to_string(&record).unwrap() } }))
        };
        let unserved = (ErrorClass::NotFound, 404, "the server could not find the requested resource");
        let both = |version: &str| Ok(json!({ "items": [queue(version, "old"), queue(version, "new")] }));
        let api = |recorded: &str| {
            Fixed(BTreeMap::from([
                (CLUSTER, Ok(cluster())),
                (RECORD, record(recorded)),
                (crds, Ok(json!({ "items": [crd.clone()] }))),
                (
                    "/apis",
                    Ok(json!({ "groups": [
                        { "name": "apps", "versions": [{ "version": "v1" }] },
                        { "name": "example.com", "versions": [{ "version": "v1" }, { "version": "v1beta1" }] },
                    ] })),
                ),
                ("/apis/example.com/v1alpha1/namespaces/n/queues?limit=500", Err(unserved)),
                ("/apis/example.com/v1/namespaces/n/queues?limit=500", both("v1")),
                ("/apis/example.com/v1/queues?limit=500", both("v1")),
                ("/apis/example.com/v1/namespaces/n/queues/new", Ok(queue("v1", "new"))),
                ("/apis/example.com/v1beta1/namespaces/n/queues?limit=500", both("v1beta1")),
                ("/apis/example.com/v1beta1/queues?limit=500", both("v1beta1")),
            ]))
        };
        let crds = (
            Gvk {
                group: "apiextensions.k8s.io".into(),
                ..gvk("customresourcedefinitions", "CustomResourceDefinition")
            },
            None,
        );
        for (asked, instances_of_own_kinds, recorded, apart, found) in [
            (Some("v1"), true, "v1beta1", false, ["v1 new", "v1 old"]),
            (Some("v1beta1"), true, "v1", false, ["v1beta1 new", "v1beta1 old"]),
            (Some("v1beta1"), true, "v1", true, ["v1 new", "v1beta1 old"]),
            (None, true, "v1beta1", false, ["v1beta1 new", "v1beta1 old"]),
            // The version of the record is no longer served.
            (None, false, "v1alpha1", false, ["v1 new", "v1 old"]),
            (Some("v1alpha1"), false, "v1alpha1", false, ["v1 new", "v1 old"]),
        ] {
            let mut read_set = ReadSet { collections: BTreeSet::new(), ..with_record() };
            read_set.collections.extend(asked.map(|version| (queues(version), Some("n".to_owned()))));
            read_set.collections.extend(instances_of_own_kinds.then(|| crds.clone()));
            if apart {
                let (gvk, namespace) = (queues("v1"), Some("n".into()));
                read_set.single_objects.push(ObjectId { gvk, namespace, name: "new".into() });
            }
            assert_eq!(versions(&api(recorded), &read_set).await, found, "{asked:?} {recorded}");
        }
    }

    #[tokio::test]
    async fn a_kind_is_missing_only_when_the_cluster_says_so() {
        let queues = Gvk {
            group: "q.example.com".into(),
            version: "v1".into(),
            kind: "Queue".into(),
            plural: "queues".into(),
        };
        let policies = Gvk { group: "policy".into(), ..queues.clone() };
        let group = |name: &str| json!({"name": name, "versions": [{"version": "v1"}]});
        let groups =
            |names: &[&str]| Ok(json!({"groups": names.iter().map(|name| group(name)).collect::<Vec<_>>()}));
        let serves = |plural: &str| Ok(json!({"resources": [{"name": plural}]}));
        let nothing = || Err((ErrorClass::NotFound, 404, "404 page not found"));
        let denied = || Err((ErrorClass::Denied, 403, "no"));
        let (q, p) = (&queues, &policies);
        for (gvk, apis, of_group, readable, why) in [
            (q, groups(&["apps"]), nothing(), true, "no such group"),
            (q, groups(&["apps", "q.example.com"]), serves("others"), true, "no such kind"),
            (p, groups(&["apps", "policy"]), serves("others"), true, "an old kind that clusters had once"),
            (q, groups(&["apps", "q.example.com"]), serves("queues"), false, "it is served"),
            (q, groups(&["apps", "q.example.com"]), denied(), false, "nobody knows"),
            (q, groups(&["q.example.com"]), serves("others"), false, "no list of a cluster"),
            (q, groups(&[]), nothing(), false, "no list of a cluster"),
            (q, nothing(), nothing(), false, "no list at all"),
            (q, denied(), nothing(), false, "no list at all"),
        ] {
            let path: &'static str = format!("/apis/{}/v1", gvk.group).leak();
            let api = Fixed(BTreeMap::from([
                (CLUSTER, Ok(cluster())),
                (PODS, Ok(list_of(&[]))),
                ("/apis", apis),
                (path, of_group),
                (format!("{path}/queues?limit=500").leak(), nothing()),
            ]));
            let mut read_set = read_set();
            read_set.collections.insert((gvk.clone(), None));
            let world = read(&api, &read_set, 4).await.world;
            assert_eq!(world.objects.live().is_some(), readable, "{why}: {:?}", world.objects);
        }
    }

    #[tokio::test]
    async fn a_list_that_is_refused_is_unreadable_and_a_large_one_is_read_in_small_pages() {
        let refused =
            Fixed(BTreeMap::from([(CLUSTER, Ok(cluster())), (PODS, Err((ErrorClass::Denied, 403, "no")))]));
        assert_eq!(read(&refused, &read_set(), 4).await.world.objects.live(), None);
        let large = Fixed(BTreeMap::from([
            (CLUSTER, Ok(cluster())),
            (PODS, Err((ErrorClass::TooLarge, 200, "too large"))),
            ("/api/v1/namespaces/n/pods?limit=40", Ok(list_of(&["one"]))),
        ]));
        assert_eq!(read(&large, &read_set(), 4).await.world.objects.live().map(BTreeMap::len), Some(1));
    }
}
