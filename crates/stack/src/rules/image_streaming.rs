//! Checks that a node pool with image streaming has an image to stream: GKE streams images of Artifact Registry only.

use serde_json::Value;

use crate::rules::Context;
use kinds::gke::placement::{PodTemplate, PoolNodes, Pools, all_pod_templates};
use kinds::kubernetes::kueue::flavor::started_forms;
use model::address::FieldPath;
use model::catalog;
use model::diag::{Code, Diagnostic};
use model::images::{self, RemoteRepository};
use model::resource::{ClusterName, Identity, KindId, Lowered, Resource};

/// The maximum number of images that a message shows.
const MAX_IMAGES: usize = 3;

/// Checks the images of the Pods that can be on each pool with image streaming.
pub(crate) fn images_can_be_streamed(context: &mut Context<'_>) {
    if context.stack.cluster.is_none() || !context.doubt.sections.is_empty() {
        return;
    }
    let lowered = context.take_lowered();
    for finding in findings(&lowered) {
        context.say(finding);
    }
    context.lowered = Some(lowered);
}

fn findings(lowered: &Lowered) -> Vec<Diagnostic> {
    let external = lowered.external.iter().map(|external| &external.resource);
    let cluster = lowered.resources.iter().chain(external).find_map(|resource| match &resource.identity {
        Identity::Cluster(name) => Some((resource, name)),
        Identity::NodePool { .. } | Identity::Object(_) | Identity::Check(_) => None,
    });
    let Some((cluster, name)) = cluster else { return Vec::new() };
    let is_candidate = |resource: &Resource| {
        resource.kind == KindId::NodePool
            && place_of_switch(resource, cluster).is_some()
            && !pulls_elsewhere(resource)
    };
    // Most stacks have no such pool, and pay for no reading of Pods.
    if !lowered.resources.iter().any(is_candidate) {
        return Vec::new();
    }
    let Some(pools) = Pools::of(&lowered.resources, &lowered.external, &lowered.capacity_options) else {
        return Vec::new();
    };
    let templates: Vec<PodTemplate<'_>> = lowered.resources.iter().flat_map(all_pod_templates).collect();
    let pods: Vec<PlacedPods<'_>> = templates
        .iter()
        .filter(|pod| pod.is_work())
        .filter_map(|pod| PlacedPods::of(pod, &pools, &lowered.resources))
        .collect();
    let candidates = lowered.resources.iter().filter(|resource| is_candidate(resource));
    candidates.filter_map(|pool| finding(pool, place_of_switch(pool, cluster)?, name, &pods)).collect()
}

/// Returns the place of the key that turns image streaming on for a pool; `None` where it is off.
fn place_of_switch(pool: &Resource, cluster: &Resource) -> Option<FieldPath> {
    const OF_POOL: [&str; 3] = ["config", "gcfsConfig", "enabled"];
    const OF_CLUSTER: [&str; 4] = ["nodePoolDefaults", "nodeConfigDefaults", "gcfsConfig", "enabled"];
    let (own, default) = (FieldPath::keys(OF_POOL), FieldPath::keys(OF_CLUSTER));
    match own.find(&pool.body).and_then(Value::as_bool) {
        Some(is_on) => is_on.then(|| pool.origin_of(&own)),
        None => (default.find(&cluster.body)? == true).then(|| cluster.origin_of(&default)),
    }
}

/// Returns true for a pool that has its images from elsewhere: from mirrors, or from disks, which need image streaming to be on.
fn pulls_elsewhere(pool: &Resource) -> bool {
    let config = &pool.body["config"];
    !config["secondaryBootDisks"].is_null() || !config["containerdConfig"]["registryHosts"].is_null()
}

/// A template of Pods with the pools on which these can be.
struct PlacedPods<'a> {
    template: &'a PodTemplate<'a>,
    pools: Vec<&'a Resource>,
}

impl<'a> PlacedPods<'a> {
    /// Returns `None` for Pods whose queue is outside of the stack: nobody knows where it lets them start.
    fn of(template: &'a PodTemplate<'a>, pools: &Pools<'a>, resources: &[Resource]) -> Option<Self> {
        let own = || vec![template.requirements.clone()];
        let forms = match template.queue {
            None => own(),
            Some(queue) => started_forms(&template.requirements, queue, resources)?,
        };
        let takers = forms.iter().flat_map(|form| pools.takers(form));
        Some(Self { template, pools: takers.map(|pool: &PoolNodes<'a>| pool.resource).collect() })
    }
}

fn finding(
    pool: &Resource,
    switch: FieldPath,
    cluster: &ClusterName,
    pods: &[PlacedPods<'_>],
) -> Option<Diagnostic> {
    let is_here = |pods: &&PlacedPods<'_>| pods.pools.iter().any(|other| other.identity == pool.identity);
    let mut here: Vec<&PodTemplate<'_>> = pods.iter().filter(is_here).map(|pods| pods.template).collect();
    // The images of built-in checks are small.
    here.sort_by_key(|pod| pod.resource.kind == KindId::Check);
    let mut found: Vec<(FieldPath, &str)> = Vec::new();
    for pod in here {
        for (path, image) in pod.images() {
            if images::is_streamed(image) != Some(false) {
                return None;
            }
            if found.iter().all(|(_, known)| *known != image) {
                found.push((pod.resource.origin_of(&path), image));
            }
        }
    }
    let (_, first) = *found.first()?;
    let what = format!(
        "image streaming has no effect on `{}`: GKE streams images of Artifact Registry only, and none of its Pods has one",
        pool.address
    );
    let mut finding = Diagnostic::warning(Code::StreamedImages, what).at_value(switch, "turned on here");
    for (place, image) in found.iter().take(MAX_IMAGES) {
        let (registry, _) = images::registry_and_path(image);
        finding =
            finding.at_value(place.clone(), format!("from {registry}: pulled whole before the Pod starts"));
    }
    let region = catalog::region_of(&cluster.location).unwrap_or(&cluster.location);
    let RemoteRepository { command, image } = RemoteRepository::of(first, &cluster.project, region);
    Some(finding.help(format!(
        "pull it through Artifact Registry, with `{command}` and the image `{image}`, or remove `image_streaming`"
    )))
}
