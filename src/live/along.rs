//! Looking further than a plan usually needs to: at everything in the namespaces that would go, and at the
//! project's other clusters.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt as _;
use serde_json::Value;

use super::read::{get, list};
use super::{ApiError, Class, LiveApi, Request};
use crate::resource::{
    Api, ClusterName, Elsewhere, Gvk, LABEL_ID, LABEL_STACK, ObjectId, Owner, Reach, Seen, World,
};

/// Adds all namespaced objects within reach to what was read, of every kind that the cluster serves. What cannot be
/// listed is named in [`World::unseen`]. The content of Secrets and ConfigMaps is not kept.
pub async fn deepen(api: &dyn LiveApi, world: &mut World, reach: &Reach, parallelism: usize) {
    if !matches!(world.inside, Seen::Live(_)) {
        return;
    }
    let (kinds, mut unseen) = served(api, parallelism).await;
    let places: Vec<Option<String>> = match reach {
        Reach::Cluster => vec![None],
        Reach::Namespaces(names) => names.iter().cloned().map(Some).collect(),
    };
    let lists = kinds.iter().flat_map(|gvk| places.iter().map(move |place| (gvk, place)));
    let lists = lists.map(|(gvk, place)| async move { (gvk, list(api, gvk, place.as_deref()).await) });
    let mut lists = futures::stream::iter(lists).buffer_unordered(parallelism.max(1));
    let mut found: BTreeMap<ObjectId, Value> = BTreeMap::new();
    while let Some((gvk, listed)) = lists.next().await {
        match listed {
            Ok(objects) => found.extend(objects.into_iter().map(|(object, live)| (object, bare(live)))),
            Err(error) => drop(unseen.insert(format!("{}: {error}", gvk.kind))),
        }
    }
    world.unseen = unseen.into_iter().collect();
    if let Seen::Live(inside) = &mut world.inside {
        let seen: BTreeSet<(String, Option<String>, String)> = inside.keys().map(sameness).collect();
        found.retain(|object, _| !seen.contains(&sameness(object)));
        inside.extend(found);
    }
}

/// What tells one object from another although it was listed under another version or group of its kind.
fn sameness(object: &ObjectId) -> (String, Option<String>, String) {
    (object.gvk.kind.clone(), object.namespace.clone(), object.name.clone())
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

/// The namespaced kinds that can be listed, each in the version that its group prefers.
async fn served(api: &dyn LiveApi, parallelism: usize) -> (Vec<Gvk>, BTreeSet<String>) {
    let mut unseen = BTreeSet::new();
    let mut versions = vec![(String::new(), "v1".to_owned())];
    match get(api, Request::get(Api::Kubernetes, "/apis")).await {
        Ok(groups) => {
            let groups = groups["groups"].as_array().cloned().unwrap_or_default();
            versions.extend(groups.iter().filter_map(|group| {
                let version = group["preferredVersion"]["version"].as_str()?;
                Some((group["name"].as_str()?.to_owned(), version.to_owned()))
            }));
        }
        Err(error) => drop(unseen.insert(error.to_string())),
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
            Err(error) => drop(unseen.insert(error.to_string())),
        }
    }
    (kinds.into_iter().collect(), unseen)
}

fn listable(group: &str, version: &str, resources: &Value) -> Vec<Gvk> {
    let resources = resources["resources"].as_array().into_iter().flatten();
    let lists = |resource: &&Value| {
        let verbs = resource["verbs"].as_array().into_iter().flatten();
        resource["namespaced"] == true && verbs.into_iter().any(|verb| verb == "list")
    };
    let kinds = resources.filter(lists).filter_map(|resource| {
        let plural = resource["name"].as_str().filter(|name| !name.contains('/'))?;
        let kind = resource["kind"].as_str()?;
        let (group, version) = (group.to_owned(), version.to_owned());
        Some(Gvk { group, version, kind: kind.to_owned(), plural: plural.to_owned() })
    });
    kinds.collect()
}

/// Where else in its project the stack has a cluster.
///
/// # Errors
/// The project itself is not found: then nothing is known of the cluster either.
pub async fn elsewhere(api: &dyn LiveApi, name: &ClusterName, owner: &Owner) -> Result<Elsewhere, ApiError> {
    let path = format!("/v1/projects/{}/locations/-/clusters", name.project);
    let clusters = match get(api, Request::get(Api::Gke, path)).await {
        Ok(clusters) => clusters,
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
