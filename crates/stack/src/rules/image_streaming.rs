//! Checks that a node pool with image streaming has an image to stream: GKE streams images of Artifact Registry only.

use std::collections::BTreeMap;

use crate::rules::Context;
use kinds::gke::placement::{PodTemplate, PoolNodes, Pools, all_pod_templates};
use kinds::image_pull::ImageSource;
use kinds::kubernetes::kueue::flavor::started_forms;
use kinds::scope::POOL_LABEL;
use model::address::FieldPath;
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
    let source = |pool: &Resource| ImageSource::of(&pool.body, &cluster.body, name);
    let streams = |resource: &Resource| {
        let source = (resource.kind == KindId::NodePool).then(|| source(resource));
        source.is_some_and(|source| source.streams && !source.has_disks && !source.has_mirrors)
    };
    // Most stacks have no such pool, and pay for no reading of Pods.
    if !lowered.resources.iter().any(streams) {
        return Vec::new();
    }
    let Some(pools) = Pools::of(&lowered.resources, &lowered.external, &lowered.capacity_options) else {
        return Vec::new();
    };
    let names = lowered.resources.iter().filter(|resource| streams(resource));
    let names = names.filter_map(|resource| pools.pool(resource.identity.pool()?));
    let mut candidates: BTreeMap<&str, Candidate<'_>> = names
        .filter_map(|pool| {
            let candidate = Candidate { pool, source: source(pool.resource), images: Vec::new() };
            Some((pool.resource.identity.pool()?, candidate))
        })
        .collect();
    let mut templates: Vec<PodTemplate<'_>> = lowered.resources.iter().flat_map(all_pod_templates).collect();
    // The images of built-in checks are small.
    templates.sort_by_key(|pod| pod.resource.kind == KindId::Check);
    let pods: Vec<Pods<'_>> = templates.iter().map(|pod| Pods::of(pod, &lowered.resources)).collect();
    for pods in &pods {
        pods.drop_streaming(&pools, &mut candidates);
    }
    if candidates.is_empty() {
        return Vec::new();
    }
    for pods in pods.iter().filter(|pods| pods.template.is_work() || pods.name.is_some()) {
        if let Some(candidate) = pods.only_pool(&pools).and_then(|name| candidates.get_mut(name)) {
            candidate.add(pods.template);
        }
    }
    say(candidates.into_values(), cluster, name)
}

/// A pool with image streaming, none of whose Pods has an image that is streamed, as far as they have been looked at.
struct Candidate<'a> {
    pool: &'a PoolNodes<'a>,
    source: ImageSource<'a>,
    /// The first images of its Pods, with their places.
    images: Vec<(FieldPath, &'a str)>,
}

impl<'a> Candidate<'a> {
    fn add(&mut self, pod: &PodTemplate<'a>) {
        for (path, image) in pod.images() {
            let is_known = || self.images.iter().any(|(_, known)| *known == image);
            if self.images.len() < MAX_IMAGES && !is_known() {
                self.images.push((pod.resource.origin_of(&path), image));
            }
        }
    }
}

/// The Pods of a template and the forms in which they may start.
struct Pods<'a> {
    template: &'a PodTemplate<'a>,
    /// The pool that they select by its name.
    name: Option<&'a str>,
    /// `None` for Pods whose queue is outside of the stack: nobody knows where it lets them start.
    forms: Option<Vec<fit::PodRequirements>>,
}

impl<'a> Pods<'a> {
    fn of(template: &'a PodTemplate<'a>, resources: &[Resource]) -> Self {
        let own = &template.requirements;
        let forms = match template.queue {
            None => Some(Vec::new()),
            Some(queue) => started_forms(own, queue, resources),
        };
        Self { template, name: own.node_selector.get(POOL_LABEL).map(String::as_str), forms }
    }

    /// Returns the forms, of which Pods without a queue have one.
    fn forms(&self) -> Option<&[fit::PodRequirements]> {
        match self.forms.as_deref() {
            Some([]) if self.template.queue.is_none() => {
                Some(std::slice::from_ref(&self.template.requirements))
            }
            forms => forms,
        }
    }

    /// Removes the pools on which an image of the Pods may be streamed.
    fn drop_streaming(&self, pools: &Pools<'_>, candidates: &mut BTreeMap<&str, Candidate<'a>>) {
        // All are in the region of the cluster.
        let Some(source) = candidates.values().next().map(|candidate| candidate.source) else { return };
        if !self.template.images().any(|(_, image)| source.may_stream(image)) {
            return;
        }
        let is_here = |candidate: &Candidate<'_>| {
            self.forms().is_none_or(|forms| forms.iter().any(|form| pools.takes(candidate.pool, form)))
        };
        match self.name {
            Some(name) => {
                if candidates.get(name).is_some_and(is_here) {
                    candidates.remove(name);
                }
            }
            None => candidates.retain(|_, candidate| !is_here(candidate)),
        }
    }

    /// Returns the pool on which the Pods certainly are: they select it, or no other one takes them.
    fn only_pool<'p>(&'p self, pools: &'p Pools<'_>) -> Option<&'p str> {
        let pool_of = |form: &fit::PodRequirements| match self.name {
            Some(name) => {
                Some(name).filter(|name| pools.pool(name).is_some_and(|pool| pools.takes(pool, form)))
            }
            None => pools.only_taker(form).and_then(|pool| pool.resource.identity.pool()),
        };
        let mut found = self.forms()?.iter().map(pool_of);
        let first = found.next()??;
        found.all(|other| other == Some(first)).then_some(first)
    }
}

/// Returns a warning for the pools that have the same key and the same images.
fn say<'a>(
    candidates: impl Iterator<Item = Candidate<'a>>,
    cluster: &Resource,
    name: &ClusterName,
) -> Vec<Diagnostic> {
    let mut groups: BTreeMap<(FieldPath, Vec<&str>), Vec<Candidate<'a>>> = BTreeMap::new();
    for candidate in candidates.filter(|candidate| !candidate.images.is_empty()) {
        let images = candidate.images.iter().map(|(_, image)| *image).collect();
        let switch = place_of_switch(candidate.pool.resource, cluster);
        groups.entry((switch, images)).or_default().push(candidate);
    }
    groups.into_iter().filter_map(|((switch, _), alike)| finding(&alike, switch, (cluster, name))).collect()
}

/// Returns the path of a cluster's default for its pools.
fn default_switch() -> FieldPath {
    FieldPath::keys(["nodePoolDefaults", "nodeConfigDefaults", "gcfsConfig", "enabled"])
}

/// Returns the place of the key that turns image streaming on for a pool.
fn place_of_switch(pool: &Resource, cluster: &Resource) -> FieldPath {
    let own = FieldPath::keys(["config", "gcfsConfig", "enabled"]);
    match own.find(&pool.body) {
        Some(_) => pool.origin_of(&own),
        None => cluster.origin_of(&default_switch()),
    }
}

fn finding(
    alike: &[Candidate<'_>],
    switch: FieldPath,
    (gke, cluster): (&Resource, &ClusterName),
) -> Option<Diagnostic> {
    let Candidate { pool, source, images } = alike.first()?;
    let (_, image) = images.first()?;
    let address = &pool.resource.address;
    let (pools, on) = match alike.len() {
        1 => (format!("`{address}`"), "it"),
        several => (format!("`{address}` and {} more", several - 1), "them"),
    };
    let region = source.region;
    let by_default = default_switch().find(&gke.body).is_some_and(|on| *on == true);
    let is_own = pool.resource.body["config"]["gcfsConfig"]["enabled"] == true && !by_default;
    let what = format!(
        "image streaming has no effect on {pools}: GKE streams images of Artifact Registry in `{region}` only, and none of the \
         stack's Pods on {on} has one"
    );
    let mut finding =
        Diagnostic::warning(Code::StreamedImages, what).at_value(switch.clone(), "turned on here");
    for (place, image) in images {
        let (registry, _) = images::registry_and_path(image);
        let elsewhere =
            images::registry_location(registry).map(|location| format!(", which is in `{location}`"));
        let elsewhere = elsewhere.unwrap_or_default();
        finding = finding.at_value(
            place.clone(),
            format!("from {registry}{elsewhere}: pulled whole before the Pod starts"),
        );
    }
    let (registry, _) = images::registry_and_path(image);
    let cure = match RemoteRepository::of(image, &cluster.project, region) {
        Some(RemoteRepository { command, image }) => {
            format!("pull it through Artifact Registry, with `{command}` and the image `{image}`")
        }
        None if images::registry_location(registry).is_some() => {
            format!("copy it to a repository of Artifact Registry in `{region}`")
        }
        None => format!("push it to Artifact Registry in `{region}`"),
    };
    let off = match (is_own, alike.len()) {
        (true, _) => format!("remove `{switch}`"),
        (false, 1) => "set `image_streaming = false` on the pool".to_owned(),
        (false, _) => "set `image_streaming = false` on the pools".to_owned(),
    };
    Some(finding.help(format!("{cure}, or {off}")))
}
