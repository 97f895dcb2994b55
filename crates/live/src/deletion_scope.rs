//! Reads all objects of the namespaces that a plan deletes, foreign ones too, and finds the project's other clusters. Plans
//! without such deletes do not need it.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use futures::StreamExt as _;
use serde_json::Value;

use crate::list::{Collections, ListResult, UniqueObjects, list, list_all};
use crate::retry::get;
use crate::served_kinds::{Served, Version, groups};
use crate::{ApiError, ErrorClass, LiveApi, Request};
use model::resource::{
    Api, ClusterName, DeletionScope, Gvk, LABEL_ID, LABEL_STACK, ObjectId, OtherClusters, Owner, Seen, World,
    drop_managed_fields,
};

/// Adds all objects in the scope to the world. Collections that the same reading has already listed are not listed again: the
/// plan compares with those objects. Collections that cannot be listed are named in [`World::unlisted_foreign`].
pub async fn read_scope(
    api: &dyn LiveApi,
    (world, listed): (&mut World, &Collections),
    scope: &DeletionScope,
    parallelism: usize,
) {
    if !matches!(world.objects, Seen::Live(_)) {
        return;
    }
    let (found, unlisted) = objects_in_scope(api, scope, listed, parallelism).await;
    world.unlisted_foreign = unlisted;
    if let Seen::Live(inside) = &mut world.objects {
        let mut objects = UniqueObjects::new(std::mem::take(inside));
        objects.extend(found.into_iter().collect());
        *inside = objects.by_id;
    }
}

/// Lists all objects in the scope that were not listed before, of every kind that the cluster serves, and describes what could
/// not be listed. Leaves out the contents of Secrets and ConfigMaps, and managedFields.
async fn objects_in_scope(
    api: &dyn LiveApi,
    scope: &DeletionScope,
    listed: &Collections,
    parallelism: usize,
) -> (BTreeMap<ObjectId, Value>, Vec<String>) {
    let DeletionScope { cluster, namespaces, crds, nodes, excluded_kinds } = scope;
    // In whatever version: it is the same objects.
    let listed: BTreeSet<(&str, &str, Option<&str>)> = listed
        .iter()
        .map(|(gvk, namespace)| (gvk.group.as_str(), gvk.plural.as_str(), namespace.as_deref()))
        .collect();
    let is_listed = |gvk: &Gvk, namespace: Option<&str>| {
        [namespace, None].iter().any(|namespace| listed.contains(&(&gvk.group, &gvk.plural, *namespace)))
    };
    let mut collections = Collections::new();
    let mut unseen = BTreeSet::new();
    if *cluster || !namespaces.is_empty() || !crds.is_empty() {
        let ListableKinds { kinds, failed } = listable_kinds(api, parallelism).await;
        unseen.extend(failed.iter().map(|DiscoveryError { error, .. }| error.to_string()));
        for Served { gvk, namespaced, .. } in kinds {
            if excluded_kinds.contains(&gvk.kind.as_str()) {
                continue;
            }
            if crds.contains(&format!("{}.{}", gvk.plural, gvk.group)) || *cluster && namespaced {
                collections.insert((gvk, None));
            } else if namespaced {
                let found = namespaces.iter().cloned().map(Some);
                collections.extend(found.map(|namespace| (gvk.clone(), namespace)));
            }
        }
    }
    if *nodes {
        let core = |kind: &str, plural: &str| {
            let (group, version) = (String::new(), "v1".to_owned());
            (Gvk { group, version, kind: kind.to_owned(), plural: plural.to_owned() }, None)
        };
        collections.extend([core("Pod", "pods"), core("Node", "nodes")]);
    }
    collections.retain(|(gvk, namespace)| !is_listed(gvk, namespace.as_deref()));
    let mut found: BTreeMap<ObjectId, Value> = BTreeMap::new();
    if *nodes {
        found.extend(requests_for_machines(api).await);
    }
    let each = |gvk: &Gvk, listed: ListResult| -> Result<(), Infallible> {
        match listed {
            Ok(objects) => {
                found.extend(objects.into_iter().map(|(object, live)| (object, without_content(live))));
            }
            Err(error) => drop(unseen.insert(format!("{}: {error}", gvk.kind))),
        }
        Ok(())
    };
    let Ok(()) = list_all(api, &collections, parallelism, each).await;
    if *nodes {
        let mut owner_collections = owner_collections(&found);
        owner_collections.retain(|(gvk, namespace)| !is_listed(gvk, namespace.as_deref()));
        let each = |_: &Gvk, listed: ListResult| -> Result<(), Infallible> {
            let objects = listed.unwrap_or_default();
            found.extend(objects.into_iter().map(|(object, live)| (object, without_content(live))));
            Ok(())
        };
        let Ok(()) = list_all(api, &owner_collections, parallelism, each).await;
    }
    (found, unseen.into_iter().collect())
}

/// Returns the collections of the Pods' intermediate owners (ReplicaSets, Jobs), to find their root owner: the Dask cluster of a
/// worker, the CronJob of `ttl`. If one cannot be listed, more Pods count as foreign.
fn owner_collections(found: &BTreeMap<ObjectId, Value>) -> Collections {
    let kinds = [("apps", "ReplicaSet", "replicasets"), ("batch", "Job", "jobs")];
    let pods = found.iter().filter(|(object, _)| object.gvk.kind == "Pod" && object.gvk.group.is_empty());
    let mut collections = Collections::new();
    for (pod, live) in pods {
        for owner in live["metadata"]["ownerReferences"].as_array().into_iter().flatten() {
            for (group, kind, plural) in kinds.iter().filter(|(_, kind, _)| owner["kind"] == *kind) {
                let gvk = Gvk {
                    group: (*group).to_owned(),
                    version: "v1".to_owned(),
                    kind: (*kind).to_owned(),
                    plural: (*plural).to_owned(),
                };
                collections.insert((gvk, pod.namespace.clone()));
            }
        }
    }
    collections
}

/// Returns the ProvisioningRequests and the templates of their Pods, if the cluster has any. Most clusters do not serve the kind,
/// and a user without permission to list it has created none, so an error is no reason to stop a plan.
async fn requests_for_machines(api: &dyn LiveApi) -> Vec<(ObjectId, Value)> {
    let gvk = |group: &str, version: &str, kind: &str, plural: &str| Gvk {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    };
    for version in ["v1", "v1beta1"] {
        let requests = gvk("autoscaling.x-k8s.io", version, "ProvisioningRequest", "provisioningrequests");
        let Ok(mut found) = list(api, &requests, None).await else { continue };
        if !found.is_empty() {
            let templates = gvk("", "v1", "PodTemplate", "podtemplates");
            found.extend(list(api, &templates, None).await.unwrap_or_default());
        }
        return found;
    }
    Vec::new()
}

/// Returns true if a namespace contains only objects for which `these` is true and the objects of every namespace. Returns false
/// if a kind cannot be listed.
pub async fn holds_only(
    api: &dyn LiveApi,
    namespace: &str,
    these: impl Fn(&ObjectId) -> bool,
    parallelism: usize,
) -> bool {
    let known = |object: &ObjectId| match (object.gvk.kind.as_str(), object.name.as_str()) {
        // The certificate authority of the cluster, and the account of pods that name none.
        ("ConfigMap", "kube-root-ca.crt") | ("ServiceAccount", "default") => true,
        _ => these(object),
    };
    // Most namespaces hold some, and then there is no need to look for more.
    let gvk = Gvk {
        group: String::new(),
        version: "v1".into(),
        kind: "ConfigMap".into(),
        plural: "configmaps".into(),
    };
    match list(api, &gvk, Some(namespace)).await {
        Ok(found) if found.iter().all(|(object, _)| known(object)) => {}
        Ok(_) | Err(_) => return false,
    }
    let scope = DeletionScope {
        namespaces: BTreeSet::from([namespace.to_owned()]),
        // They tell of others, and go by themselves.
        excluded_kinds: &["Event"],
        ..DeletionScope::default()
    };
    let listed = Collections::from([(gvk, Some(namespace.to_owned()))]);
    let (found, unseen) = objects_in_scope(api, &scope, &listed, parallelism).await;
    unseen.is_empty() && found.keys().all(known)
}

/// Returns an object without contents that a plan does not need and that may be secret.
fn without_content(mut live: Value) -> Value {
    if let Value::Object(fields) = &mut live {
        for content in ["data", "stringData", "binaryData"] {
            fields.remove(content);
        }
    }
    drop_managed_fields(&mut live);
    live
}

/// An error of API discovery.
pub(crate) struct DiscoveryError {
    /// The group; `None` if the list of groups failed.
    pub group: Option<String>,
    pub error: ApiError,
}

/// The kinds of a cluster.
pub(crate) struct ListableKinds {
    pub kinds: Vec<Served>,
    pub failed: Vec<DiscoveryError>,
}

/// Returns the kinds that can be listed, each in the group's most preferred version that serves it. Without aggregated discovery,
/// only kinds of the group's preferred version.
pub(crate) async fn listable_kinds(api: &dyn LiveApi, parallelism: usize) -> ListableKinds {
    let mut failed = Vec::new();
    let mut versions = vec![(0, Version::new("", "v1"))];
    match groups(api).await {
        Ok(groups) => {
            let kept = groups.into_iter().filter(|group| !is_metrics_group(&group.name));
            let ranked = kept.flat_map(|group| group.versions.into_iter().enumerate());
            versions.extend(ranked.filter(|(rank, version)| *rank == 0 || version.has_kinds()));
        }
        Err(error) => failed.push(DiscoveryError { group: None, error }),
    }
    let asked = versions
        .into_iter()
        .map(|(rank, version)| async move { (rank, version.group.clone(), version.kinds(api).await) });
    let mut asked = futures::stream::iter(asked).buffer_unordered(parallelism.max(1));
    let mut kinds: BTreeMap<(String, String), (usize, Served)> = BTreeMap::new();
    while let Some((rank, group, served)) = asked.next().await {
        match served {
            Ok(served) => {
                for kind in served.into_iter().filter(|kind| kind.listable) {
                    let name = (kind.gvk.group.clone(), kind.gvk.plural.clone());
                    if kinds.get(&name).is_none_or(|(best, _)| rank < *best) {
                        kinds.insert(name, (rank, kind));
                    }
                }
            }
            Err(error) => failed.push(DiscoveryError { group: Some(group), error }),
        }
    }
    ListableKinds { kinds: kinds.into_values().map(|(_, kind)| kind).collect(), failed }
}

/// Returns true for groups that store nothing: their objects are measurements, and their server is often unavailable.
fn is_metrics_group(group: &str) -> bool {
    group.ends_with("metrics.k8s.io")
}

/// Returns zones whose clusters are missing in a list of all. Source: `ListClustersResponse.missing_zones`: "the list of clusters
/// may be missing those zones".
fn missing_zones(clusters: &Value) -> Option<String> {
    let zones: Vec<&str> =
        clusters["missingZones"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    (!zones.is_empty()).then(|| zones.join(", "))
}

/// Finds the stack's clusters at other locations of its project.
///
/// # Errors
///
/// The project itself is not found: then the cluster is not known either.
pub async fn find_other_clusters(
    api: &dyn LiveApi,
    name: &ClusterName,
    owner: &Owner,
) -> Result<OtherClusters, ApiError> {
    let path = format!("/v1/projects/{}/locations/-/clusters", name.project);
    let clusters = match get(api, Request::get(Api::Gke, path)).await {
        Ok(clusters) => match missing_zones(&clusters) {
            None => clusters,
            Some(zones) => {
                return Ok(OtherClusters::Unknown(format!("GKE cannot list the clusters in {zones} now")));
            }
        },
        Err(error) if error.class == ErrorClass::NotFound => return Err(error),
        Err(error) => return Ok(OtherClusters::Unknown(error.to_string())),
    };
    let ours = |cluster: &&Value| {
        let labels = &cluster["resourceLabels"];
        let going = cluster["status"] == "STOPPING";
        labels[LABEL_STACK] == *owner.stack && labels[LABEL_ID] == *owner.id && !going
    };
    let found = clusters["clusters"].as_array().into_iter().flatten().filter(ours).filter_map(|cluster| {
        let other = ClusterName {
            project: name.project.clone(),
            location: cluster["location"].as_str()?.to_owned(),
            cluster: cluster["name"].as_str()?.to_owned(),
        };
        (other != *name).then_some(other)
    });
    Ok(OtherClusters::Found(found.collect()))
}
