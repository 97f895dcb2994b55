//! Reads a cluster for an import: the GKE cluster with its pools, and the objects of some kinds. Kinds that could not be listed
//! are reported instead of counting as absent.

use std::collections::BTreeMap;

use futures::StreamExt as _;
use serde_json::Value;

use crate::list::list;
use crate::read::read;
use crate::{ApiError, LiveApi, Request};
use model::resource::{Api, ClusterName, Gvk, ObjectId, ReadSet, Seen};

/// The live state of a cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Survey {
    /// The GKE cluster without pools; `null` if none was requested.
    pub cluster: Value,
    /// Its pools by name.
    pub pools: BTreeMap<String, Value>,
    /// The number of nodes of each pool, as far as it is known.
    pub sizes: BTreeMap<String, u32>,
    pub objects: BTreeMap<ObjectId, Value>,
    /// Kinds that could not be listed, and why.
    pub unlisted: Vec<(Gvk, ApiError)>,
}

/// Reasons why a cluster cannot be read.
#[derive(Clone, Debug, PartialEq)]
pub enum SurveyError {
    /// There is no such GKE cluster.
    NoCluster,
    /// GKE is creating or deleting the cluster, so it cannot be read. The text is its status.
    NotRunning(String),
    /// It cannot be read.
    Unreadable(ApiError),
}

/// Reads a GKE cluster, or the cluster of a kubeconfig if no GKE cluster is named. Each kind is listed in one namespace, or in
/// all.
///
/// # Errors
///
/// The cluster does not exist or cannot be read at all.
pub async fn survey(
    api: &dyn LiveApi,
    cluster: Option<&ClusterName>,
    kinds: &[(Gvk, Option<String>)],
    parallelism: usize,
) -> Result<Survey, SurveyError> {
    let mut survey = Survey::default();
    if let Some(name) = cluster {
        let wanted = ReadSet { cluster: Some(name.clone()), ..ReadSet::default() };
        let reading = read(api, &wanted, parallelism).await;
        let world = reading.world;
        match world.cluster {
            Seen::Live(live) => survey.cluster = live,
            Seen::Absent => return Err(SurveyError::NoCluster),
            Seen::Unreadable(_) => {
                return Err(reading.error.map_or(SurveyError::NoCluster, SurveyError::Unreadable));
            }
        }
        let status = survey.cluster["status"].as_str().unwrap_or_default();
        if matches!(status, "PROVISIONING" | "STOPPING" | "ERROR") {
            return Err(SurveyError::NotRunning(status.to_owned()));
        }
        (survey.pools, survey.sizes) = (world.pools, world.sizes);
    }
    let lists =
        kinds.iter().map(|(gvk, namespace)| async move { (gvk, list(api, gvk, namespace.as_deref()).await) });
    let mut lists = futures::stream::iter(lists).buffered(parallelism.max(1));
    while let Some((gvk, listed)) = lists.next().await {
        match listed {
            Ok(objects) => survey.objects.extend(objects),
            Err(error) => survey.unlisted.push((gvk.clone(), error)),
        }
    }
    // Where not one list came back, it is not about a kind.
    if survey.unlisted.len() == kinds.len()
        && let Some((_, error)) = survey.unlisted.first()
    {
        return Err(SurveyError::Unreadable(error.clone()));
    }
    Ok(survey)
}

/// Returns a project's clusters with their locations.
///
/// # Errors
///
/// They cannot be listed.
pub async fn clusters(api: &dyn LiveApi, project: &str) -> Result<Vec<ClusterName>, ApiError> {
    let path = format!("/v1/projects/{project}/locations/-/clusters");
    let found = crate::retry::get(api, Request::get(Api::Gke, path)).await?;
    let clusters = found["clusters"].as_array().into_iter().flatten();
    let named = clusters.filter_map(|cluster| {
        Some(ClusterName {
            project: project.to_owned(),
            location: cluster["location"].as_str()?.to_owned(),
            cluster: cluster["name"].as_str()?.to_owned(),
        })
    });
    Ok(named.collect())
}
