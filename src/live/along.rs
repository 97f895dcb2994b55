//! Looking further than a plan usually needs to: at everything in the namespaces that would go, and at the
//! project's other clusters.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt as _;
use serde_json::Value;

use super::list::{Once, list};
use super::retry::get;
use super::{ApiError, Class, LiveApi, Request};
use crate::resource::{
    Api, ClusterName, DeletionScope, Elsewhere, Gvk, LABEL_ID, LABEL_STACK, ObjectId, Owner, Seen, World,
};

/// Adds all objects within reach to what was read. What cannot be listed is named in [`World::unseen`].
pub async fn read_scope(api: &dyn LiveApi, world: &mut World, scope: &DeletionScope, parallelism: usize) {
    if !matches!(world.inside, Seen::Live(_)) {
        return;
    }
    let (found, unseen) = content(api, scope, parallelism).await;
    world.unseen = unseen;
    if let Seen::Live(inside) = &mut world.inside {
        let mut once = Once::of(std::mem::take(inside));
        once.extend(found.into_iter().collect());
        *inside = once.by_id;
    }
}

/// All objects within reach, of every kind that the cluster serves, and in words what could not be listed. The content of
/// Secrets and ConfigMaps is left out.
pub async fn content(
    api: &dyn LiveApi,
    scope: &DeletionScope,
    parallelism: usize,
) -> (BTreeMap<ObjectId, Value>, Vec<String>) {
    let DeletionScope { cluster, namespaces, definitions, nodes } = scope;
    let mut collections: BTreeSet<(Gvk, Option<String>)> = BTreeSet::new();
    let mut unseen = BTreeSet::new();
    if *cluster || !namespaces.is_empty() || !definitions.is_empty() {
        let Kinds { kinds, failed } = served(api, parallelism).await;
        unseen.extend(failed.iter().map(|Unserved { error, .. }| error.to_string()));
        for Served { gvk, namespaced, applied: _ } in kinds {
            if definitions.contains(&format!("{}.{}", gvk.plural, gvk.group)) || *cluster && namespaced {
                collections.insert((gvk, None));
            } else if namespaced {
                let places = namespaces.iter().cloned().map(Some);
                collections.extend(places.map(|place| (gvk.clone(), place)));
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
    let mut found: BTreeMap<ObjectId, Value> = BTreeMap::new();
    if *nodes {
        found.extend(requests_for_machines(api).await);
    }
    let lists = collections.iter();
    let lists = lists.map(|(gvk, place)| async move { (gvk, list(api, gvk, place.as_deref()).await) });
    let mut lists = futures::stream::iter(lists).buffer_unordered(parallelism.max(1));
    while let Some((gvk, listed)) = lists.next().await {
        match listed {
            Ok(objects) => found.extend(objects.into_iter().map(|(object, live)| (object, bare(live)))),
            Err(error) => drop(unseen.insert(format!("{}: {error}", gvk.kind))),
        }
    }
    (found, unseen.into_iter().collect())
}

/// ProvisioningRequests and the templates of their Pods, where the cluster has any. Most clusters do not know the kind, and who
/// may not list it has made none: that is nothing to hold a plan up.
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

/// Whether nothing is in a namespace but these and what every namespace holds. What cannot be listed may be there.
pub async fn holds_nothing_but(
    api: &dyn LiveApi,
    namespace: &str,
    these: impl Fn(&ObjectId) -> bool,
    parallelism: usize,
) -> bool {
    let known = |object: &ObjectId| match (object.gvk.kind.as_str(), object.name.as_str()) {
        // The certificate authority of the cluster, and the account of pods that name none.
        ("ConfigMap", "kube-root-ca.crt") | ("ServiceAccount", "default") => true,
        // They tell of others, and go by themselves.
        ("Event", _) => true,
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
    let scope =
        DeletionScope { namespaces: BTreeSet::from([namespace.to_owned()]), ..DeletionScope::default() };
    let (found, unseen) = content(api, &scope, parallelism).await;
    unseen.is_empty() && found.keys().all(known)
}

/// An object without content that nobody needs here, and that may be secret.
fn bare(mut live: Value) -> Value {
    if let Value::Object(fields) = &mut live {
        for content in ["data", "stringData", "binaryData"] {
            fields.remove(content);
        }
    }
    live
}

/// A kind that can be listed.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Served {
    pub gvk: Gvk,
    pub namespaced: bool,
    /// Whether objects of it can be applied.
    pub applied: bool,
}

/// What a cluster does not say of its kinds.
pub(super) struct Unserved {
    /// The group; `None` when it does not even say its groups.
    pub group: Option<String>,
    pub error: ApiError,
}

/// The kinds of a cluster.
pub(super) struct Kinds {
    pub kinds: Vec<Served>,
    pub failed: Vec<Unserved>,
}

/// The kinds that can be listed, each in the version that its group prefers.
pub(super) async fn served(api: &dyn LiveApi, parallelism: usize) -> Kinds {
    let mut failed = Vec::new();
    let mut versions = vec![(String::new(), "v1".to_owned())];
    match get(api, Request::get(Api::Kubernetes, "/apis")).await {
        Ok(groups) => {
            let groups = groups["groups"].as_array().cloned().unwrap_or_default();
            versions.extend(groups.iter().filter_map(|group| {
                let version = group["preferredVersion"]["version"].as_str()?;
                let name = group["name"].as_str().filter(|name| !is_measured(name))?;
                Some((name.to_owned(), version.to_owned()))
            }));
        }
        Err(error) => failed.push(Unserved { group: None, error }),
    }
    let asked = versions.into_iter().map(|(group, version)| async move {
        let path = match group.as_str() {
            "" => format!("/api/{version}"),
            group => format!("/apis/{group}/{version}"),
        };
        let resources = get(api, Request::get(Api::Kubernetes, path)).await;
        (group, version, resources)
    });
    let mut asked = futures::stream::iter(asked).buffer_unordered(parallelism.max(1));
    let mut kinds = BTreeSet::new();
    while let Some((group, version, resources)) = asked.next().await {
        match resources {
            Ok(resources) => kinds.extend(listable(&group, &version, &resources)),
            Err(error) => failed.push(Unserved { group: Some(group), error }),
        }
    }
    Kinds { kinds: kinds.into_iter().collect(), failed }
}

/// Groups in which nothing is kept: their objects are measurements, and their server is often away.
fn is_measured(group: &str) -> bool {
    group.ends_with("metrics.k8s.io")
}

fn listable(group: &str, version: &str, resources: &Value) -> Vec<Served> {
    let resources = resources["resources"].as_array().into_iter().flatten();
    let can = |resource: &Value, wanted: &str| {
        let verbs = resource["verbs"].as_array().into_iter().flatten();
        verbs.into_iter().any(|verb| verb == wanted)
    };
    let kinds = resources.filter(|resource| can(resource, "list")).filter_map(|resource| {
        let plural = resource["name"].as_str().filter(|name| !name.contains('/'))?;
        let kind = resource["kind"].as_str()?;
        let (group, version) = (group.to_owned(), version.to_owned());
        let gvk = Gvk { group, version, kind: kind.to_owned(), plural: plural.to_owned() };
        let (namespaced, applied) = (resource["namespaced"] == true, can(resource, "patch"));
        Some(Served { gvk, namespaced, applied })
    });
    kinds.collect()
}

/// Zones whose clusters are not in a list of all. Source: `ListClustersResponse.missing_zones`: "the list of clusters
/// may be missing those zones".
fn missing_zones(clusters: &Value) -> Option<String> {
    let zones: Vec<&str> =
        clusters["missingZones"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    (!zones.is_empty()).then(|| zones.join(", "))
}

/// Where else in its project the stack has a cluster.
///
/// # Errors
/// The project itself is not found: then nothing is known of the cluster either.
pub async fn elsewhere(api: &dyn LiveApi, name: &ClusterName, owner: &Owner) -> Result<Elsewhere, ApiError> {
    let path = format!("/v1/projects/{}/locations/-/clusters", name.project);
    let clusters = match get(api, Request::get(Api::Gke, path)).await {
        Ok(clusters) => match missing_zones(&clusters) {
            None => clusters,
            Some(zones) => {
                return Ok(Elsewhere::Unknown(format!("GKE cannot list the clusters in {zones} now")));
            }
        },
        Err(error) if error.class == Class::NotFound => return Err(error),
        Err(error) => return Ok(Elsewhere::Unknown(error.to_string())),
    };
    let ours = |cluster: &&Value| {
        let labels = &cluster["resourceLabels"];
        let going = cluster["status"] == "STOPPING";
        labels[LABEL_STACK] == *owner.stack && labels[LABEL_ID] == *owner.id && !going
    };
    let places = clusters["clusters"].as_array().into_iter().flatten().filter(ours).filter_map(|cluster| {
        let place = ClusterName {
            project: name.project.clone(),
            location: cluster["location"].as_str()?.to_owned(),
            cluster: cluster["name"].as_str()?.to_owned(),
        };
        (place != *name).then_some(place)
    });
    Ok(Elsewhere::Found(places.collect()))
}
