//! Queues: the quota of a team, and the order in which its work starts. A section becomes a ClusterQueue, the flavors and checks
//! that it names, and a LocalQueue in each namespace whose work waits in it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::json::{count, text};
use crate::kind::{Compare, Kind, address_in};
use crate::kubernetes::calls::object_change_steps;
use crate::kubernetes::conditions;
use crate::kubernetes::kueue::{GROUP, kind};
use crate::kubernetes::object::{new_object, strip_generated_fields};
use crate::kubernetes::template::QUEUED_TAINT;
use crate::scope::{KUEUE, POOL_LABEL, PoolFacts, Scope};
use crate::section::{Lifecycle, LiveName, Manage, NameRule, Section, SectionHead, managed};
use crate::short_forms::seconds;
use crate::status::StatusLine;
use model::address::{Address, FieldPath};
use model::resource::{Effect, Facts, KindId, ObjectId, Recreation, Resource};

pub const SECTION: &str = "queue";

/// GPUs, as Kubernetes counts them.
pub const GPUS: &str = "nvidia.com/gpu";
/// The ProvisioningRequest class for which GKE creates all nodes at once.
pub const QUEUED_CLASS: &str = "queued-provisioning.gke.io";
/// The flavor of work that runs on any node.
pub const DEFAULT_FLAVOR: &str = "default-flavor";
/// The quotas of CPUs and memory that stand for no limit, as in Google's guide.
const NO_QUOTA_LIMIT: (&str, &str) = ("10k", "10000Gi");

/// Seconds until an object of Kueue counts as stuck: its manager may be starting.
const DEADLINE: u32 = 300;

/// All objects of Kueue's API: flavors, checks and queues.
pub const KIND: Kind = Kind {
    rank: 45,
    compare: Compare::Kubernetes(effect),
    change_steps: |context| object_change_steps(context, KindId::Queue, Facts::None, DEADLINE),
    readiness: |_, found| Ok(conditions::readiness(found.own_object())),
    status_line: |_, found| Ok(status_line(found.own_object())),
    plan_summary: about,
    shared: true,
    address: |object| address_in(SECTION, object),
    ..Kind::DEFAULT
};

/// Returns `8 × nvidia.com/gpu of a100`.
fn about(resource: &Resource) -> Vec<String> {
    let groups = resource.body["spec"]["resourceGroups"].as_array().into_iter().flatten();
    let flavors = groups.flat_map(|group| group["flavors"].as_array().into_iter().flatten());
    let quotas = flavors.filter(|flavor| flavor["name"] != DEFAULT_FLAVOR).flat_map(|flavor| {
        let resources = flavor["resources"].as_array().into_iter().flatten();
        resources.map(|quota| {
            format!(
                "{} × {} of {}",
                text(&quota["nominalQuota"]),
                text(&quota["name"]),
                text(&flavor["name"])
            )
        })
    });
    let selected = resource.body["spec"]["nodeLabels"][POOL_LABEL].as_str();
    quotas.chain(selected.map(|pool| format!("nodes of {pool}"))).collect()
}

/// Returns the `status` line: how much work waits and runs.
fn status_line(queue: &Value) -> StatusLine {
    let status = &queue["status"];
    if !["ClusterQueue", "LocalQueue"].contains(&text(&queue["kind"])) {
        return StatusLine::default();
    }
    let (pending, admitted) = (count(&status["pendingWorkloads"]), count(&status["admittedWorkloads"]));
    // Workloads that have their quota and are held by an admission check, that is, wait for queued nodes.
    let checked = count(&status["reservingWorkloads"]).saturating_sub(admitted);
    let checked_line = if checked > 0 { format!(", {checked} waiting for nodes") } else { String::new() };
    // A LocalQueue counts what its ClusterQueue counts, too.
    let line = match text(&queue["kind"]) {
        "ClusterQueue" => format!("{admitted} running{checked_line}, {pending} waiting for quota"),
        _ => String::new(),
    };
    StatusLine {
        line,
        facts: vec![
            ("workloads_admitted", json!(admitted)),
            ("workloads_checked", json!(checked)),
            ("workloads_pending", json!(pending)),
        ],
        ..StatusLine::default()
    }
}

/// Returns the effect of a change. Source: `Invalid value: field is immutable` of Kueue 0.15.0 for the queue behind a LocalQueue,
/// the rule `self == oldSelf` for the controller of an AdmissionCheck.
fn effect(path: &FieldPath) -> (Effect, Option<&'static str>) {
    let at = |keys: &[&str]| FieldPath::keys(keys.iter().copied()).contains(path);
    if at(&["spec", "clusterQueue"]) {
        return (Effect::Replace, Some("a LocalQueue belongs to one ClusterQueue for good"));
    }
    if at(&["value"]) {
        return (Effect::InPlace, Some("work that waits already keeps its priority"));
    }
    if at(&["spec", "controllerName"]) {
        return (Effect::Replace, Some("the controller of a check cannot be changed"));
    }
    (Effect::InPlace, None)
}

/// Returns true if Kueue keeps a deleted object as long as it is in use: a queue by its work, a flavor or a check by the queues
/// that name it. Source: its finalizer `kueue.x-k8s.io/resource-in-use`, seen on these three with Kueue 0.15.0.
pub fn is_kept_in_use(object: &ObjectId) -> bool {
    let kinds = ["AdmissionCheck", "ClusterQueue", "ResourceFlavor"];
    object.gvk.group == GROUP && kinds.contains(&object.gvk.kind.as_str())
}

/// A queue of Kueue: a quota, and the work that waits for it. Dask clusters, their groups and Dask jobs name it by `queue`
/// and start whole or not at all.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct Queue {
    /// The live name of the ClusterQueue and of its LocalQueues; defaults to the section's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The node pool whose GPUs it hands out. Work of a pool with `queued = true` also waits for its nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// GPUs that its work may use at once. Default all that the pool can have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000))]
    pub gpus: Option<u32>,
    /// Several node pools in place of `pool`, each with its GPUs, tried in the order of their names:
    /// `{ a100 = 8, t4 = 4 }`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pools: BTreeMap<String, u32>,
    /// CPUs that its work may use at once, as a Kubernetes quantity. Default `"10k"`, which is no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// Memory that its work may use at once, as a Kubernetes quantity. Default `"10000Gi"`, which is no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "64Gi")]
    pub memory: Option<String>,
    /// Queues of one cohort lend each other what they do not use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cohort: Option<String>,
    /// The order in which work starts. Default `"strict-fifo"`.
    #[serde(default, skip_serializing_if = "Strategy::is_strict")]
    pub strategy: Strategy,
    /// Priorities that its work can have, each with its value: `{ high = 1000, low = -10 }`. Work without one has 0. Of what
    /// waits the more urgent starts first; nothing that runs is stopped for it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub priorities: BTreeMap<String, i32>,
    /// Namespaces with a LocalQueue, beside those of the sections that name the queue.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// How long nodes of a pool with `queued = true` last for one piece of work, at most `"7d"`, which is the default:
    /// `"12h"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_run_duration: Option<String>,
    /// How often Kueue asks again for nodes of a pool with `queued = true` after a request failed. Default 3, Kueue's own;
    /// the waits between count from the first request, so they are mostly over when it fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub retries: Option<u32>,
    /// `false`: it exists and is managed elsewhere, with its LocalQueues. They are read and relied on, never written or
    /// deleted. Default `true`.
    #[serde(default, skip_serializing_if = "Manage::is_managed")]
    pub manage: Manage,
    /// `protect` and `depends_on`.
    #[serde(flatten)]
    pub lifecycle: Lifecycle,
}

/// The order in which the work of a queue starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// The oldest first: what needs little does not start before what has waited for much, which else may wait for ever.
    #[default]
    StrictFifo,
    /// Work that fits starts, the oldest of it first.
    BestEffortFifo,
}

impl Strategy {
    /// Returns true for the default, which `skip_serializing_if` leaves out.
    pub(crate) fn is_strict(&self) -> bool {
        *self == Self::StrictFifo
    }

    fn kueue(self) -> &'static str {
        match self {
            Self::StrictFifo => "StrictFIFO",
            Self::BestEffortFifo => "BestEffortFIFO",
        }
    }
}

impl Section for Queue {
    fn head(&self) -> SectionHead<'_> {
        SectionHead { manage: self.manage, depends_on: &self.lifecycle.depends_on, ..SectionHead::default() }
    }

    fn live_name<'a>(&'a self, key: &'a str) -> Option<LiveName<'a>> {
        Some(LiveName::new(self.name.as_deref(), key, NameRule::Object))
    }
}

impl Queue {
    pub fn live_name<'a>(&'a self, key: &'a str) -> &'a str {
        self.name.as_deref().unwrap_or(key)
    }

    /// Returns the keys of the pools that it serves, each with the GPUs that its work may use. Without pools, the GPUs may be of
    /// any pool.
    pub fn quotas<'a>(&'a self, pool: impl Fn(&str) -> Option<&'a PoolFacts>) -> Vec<(Option<&'a str>, u32)> {
        if let Some(key) = &self.pool {
            let all = pool(key).map_or(0, |facts| facts.gpus * facts.max_nodes);
            return vec![(Some(key.as_str()), self.gpus.unwrap_or(all))];
        }
        if !self.pools.is_empty() {
            return self.pools.iter().map(|(key, gpus)| (Some(key.as_str()), *gpus)).collect();
        }
        self.gpus.map(|gpus| (None, gpus)).into_iter().collect()
    }
}

/// Returns the resources of all queues of a stack. A flavor belongs to a pool instead of a queue: the queues of a cohort share it
/// to lend each other quota.
pub fn lower_all(queues: &BTreeMap<String, Queue>, scope: &Scope) -> Vec<Resource> {
    let mut resources: Vec<Resource> = Vec::new();
    for (key, section) in managed(queues) {
        for mut resource in lower(key, section, scope) {
            match resources.iter().find(|other| other.identity == resource.identity) {
                // A flavor that an earlier queue has made.
                Some(_) => {}
                None => {
                    let flavors: Vec<Address> = flavors_of(&resource)
                        .filter_map(|flavor| {
                            let same = |other: &&Resource| {
                                other.identity.object().is_some_and(|object| *object == flavor)
                            };
                            Some(resources.iter().find(same)?.address.clone())
                        })
                        .collect();
                    resource.depends_on.extend(flavors);
                    resources.push(resource);
                }
            }
        }
    }
    resources
}

/// Returns the flavors that a ClusterQueue names.
fn flavors_of(resource: &Resource) -> impl Iterator<Item = ObjectId> + '_ {
    let groups = resource.body["spec"]["resourceGroups"].as_array().into_iter().flatten();
    let flavors = groups.flat_map(|group| group["flavors"].as_array().into_iter().flatten());
    flavors.map(|flavor| ObjectId {
        gvk: kind("ResourceFlavor"),
        namespace: None,
        name: text(&flavor["name"]).to_owned(),
    })
}

/// Returns the LocalQueues that `[queue.KEY]` with `manage = false` relies on.
pub fn lower_external(key: &str, section: &Queue, scope: &Scope) -> Vec<Resource> {
    let maker = QueueBuilder { key, section, scope };
    maker.local_queues().into_iter().map(strip_generated_fields).collect()
}

fn lower(key: &str, section: &Queue, scope: &Scope) -> Vec<Resource> {
    let maker = QueueBuilder { key, section, scope };
    let mut resources = maker.flavors();
    resources.extend(maker.check());
    let before: Vec<Address> = resources.iter().map(|resource| resource.address.clone()).collect();
    let mut queue = maker.cluster_queue();
    queue.depends_on.extend(before);
    let address = queue.address.clone();
    resources.push(queue);
    for mut local in maker.local_queues() {
        local.depends_on.push(address.clone());
        resources.push(local);
    }
    resources.extend(maker.priorities());
    resources
}

struct QueueBuilder<'a> {
    key: &'a str,
    section: &'a Queue,
    scope: &'a Scope,
}

impl<'a> QueueBuilder<'a> {
    fn name(&self) -> &'a str {
        self.section.live_name(self.key)
    }

    fn origin(&self) -> FieldPath {
        FieldPath::keys([SECTION, self.key])
    }

    fn quotas(&self) -> Vec<(Option<&'a PoolFacts>, u32)> {
        let quotas = self.section.quotas(|key| self.scope.pool(key)).into_iter();
        quotas.map(|(pool, gpus)| (pool.and_then(|key| self.scope.pool(key)), gpus)).collect()
    }

    /// Returns the pools whose nodes are created for provisioning requests.
    fn queued(&self) -> Vec<&'a PoolFacts> {
        self.quotas().into_iter().filter_map(|(pool, _)| pool).filter(|pool| pool.queued).collect()
    }

    fn resource(&self, of: &str, namespace: Option<&str>, name: &str, spec: Value) -> Resource {
        let mut depends_on = match namespace {
            Some(namespace) => self.scope.namespace_dependencies(namespace),
            None => self.scope.cluster_dependency(),
        };
        depends_on.extend(self.scope.section(KUEUE));
        depends_on.extend(self.section.lifecycle.depends_on.iter().map(Address::new));
        let shared = of == "ResourceFlavor";
        let labels = if shared { self.scope.shared_labels() } else { self.scope.labels() };
        let mut metadata = json!({ "name": name, "labels": labels });
        if let Some(namespace) = namespace {
            metadata["namespace"] = json!(namespace);
        }
        let (identity, body) = new_object(kind(of), metadata, spec);
        let section = Address::of(SECTION, self.key);
        Resource {
            address: Address::object(section.as_str(), of, namespace, name),
            identity,
            kind: KindId::Queue,
            body,
            create_only: Value::Null,
            provenance: vec![(FieldPath::keys(["metadata", "name"]), self.origin().key("name"))],
            origin: self.origin(),
            depends_on,
            protect: self.section.lifecycle.protect,
            recreation: Recreation::Always,
        }
    }

    /// Returns a flavor for each pool, and one for work that runs anywhere. Kueue adds a flavor's node labels and tolerations to
    /// the pods when they start, and to the request for their nodes.
    fn flavors(&self) -> Vec<Resource> {
        let pools = self.quotas().into_iter().filter_map(|(pool, _)| pool).map(|pool| {
            let mut spec = json!({ "nodeLabels": { POOL_LABEL: pool.name } });
            if pool.queued {
                spec["tolerations"] =
                    json!([{ "key": QUEUED_TAINT, "operator": "Exists", "effect": "NoSchedule" }]);
            }
            self.resource("ResourceFlavor", None, &pool.name, spec)
        });
        let mut all: Vec<Resource> = pools.collect();
        all.push(self.resource("ResourceFlavor", None, DEFAULT_FLAVOR, json!({})));
        all
    }

    /// Returns the admission check that requests nodes before work starts, and its configuration, if pools create nodes for
    /// provisioning requests.
    fn check(&self) -> Vec<Resource> {
        if self.queued().is_empty() {
            return Vec::new();
        }
        let name = self.name();
        let mut asks = json!({ "provisioningClassName": QUEUED_CLASS, "managedResources": [GPUS] });
        if let Some(seconds) = self.section.max_run_duration.as_deref().and_then(seconds) {
            asks["parameters"] = json!({ "maxRunDurationSeconds": seconds.to_string() });
        }
        if let Some(retries) = self.section.retries {
            asks["retryStrategy"] = json!({ "backoffLimitCount": retries });
        }
        let mut config = self.resource("ProvisioningRequestConfig", None, name, asks);
        let field = |keys: &[&str]| FieldPath::keys(keys.iter().copied());
        config.provenance.push((field(&["spec", "parameters"]), self.origin().key("max_run_duration")));
        config.provenance.push((field(&["spec", "retryStrategy"]), self.origin().key("retries")));
        let parameters = json!({ "apiGroup": GROUP, "kind": "ProvisioningRequestConfig", "name": name });
        let check =
            json!({ "controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": parameters });
        let mut check = self.resource("AdmissionCheck", None, name, check);
        check.depends_on.push(config.address.clone());
        vec![config, check]
    }

    fn cluster_queue(&self) -> Resource {
        let quota = |name: &str, amount: &str| json!({ "name": name, "nominalQuota": amount });
        let mut groups = Vec::new();
        let gpus: Vec<Value> = self
            .quotas()
            .into_iter()
            .map(|(pool, gpus)| {
                let flavor = pool.map_or(DEFAULT_FLAVOR, |pool| pool.name.as_str());
                json!({ "name": flavor, "resources": [quota(GPUS, &gpus.to_string())] })
            })
            .collect();
        let Queue { cpu, memory, cohort, strategy, .. } = self.section;
        let others = [
            quota("cpu", cpu.as_deref().unwrap_or(NO_QUOTA_LIMIT.0)),
            quota("memory", memory.as_deref().unwrap_or(NO_QUOTA_LIMIT.1)),
        ];
        // A flavor may be in one group only.
        let anywhere = self.section.pool.is_none() && self.section.pools.is_empty();
        if anywhere && let Some(gpus) = self.section.gpus {
            let resources = [others[0].clone(), others[1].clone(), quota(GPUS, &gpus.to_string())];
            groups.push(json!({
                "coveredResources": ["cpu", "memory", GPUS],
                "flavors": [{ "name": DEFAULT_FLAVOR, "resources": resources }],
            }));
        } else {
            if !gpus.is_empty() {
                groups.push(json!({ "coveredResources": [GPUS], "flavors": gpus }));
            }
            groups.push(json!({
                "coveredResources": ["cpu", "memory"],
                "flavors": [{ "name": DEFAULT_FLAVOR, "resources": others }],
            }));
        }
        let mut spec = json!({
            "namespaceSelector": {}, "queueingStrategy": strategy.kueue(), "resourceGroups": groups,
        });
        if let Some(cohort) = cohort {
            spec["cohortName"] = json!(cohort);
        }
        let queued: Vec<&str> = self.queued().into_iter().map(|pool| pool.name.as_str()).collect();
        if !queued.is_empty() {
            // Only for these flavors: what needs no GPU does not wait for nodes.
            let rule = json!({ "name": self.name(), "onFlavors": queued });
            spec["admissionChecksStrategy"] = json!({ "admissionChecks": [rule] });
        }
        let mut queue = self.resource("ClusterQueue", None, self.name(), spec);
        let groups = FieldPath::keys(["spec", "resourceGroups"]);
        let last = queue.body["spec"]["resourceGroups"].as_array().map_or(0, |groups| groups.len() - 1);
        let others = groups.index(last).key("flavors").index(0).key("resources");
        for (index, key) in ["cpu", "memory"].into_iter().enumerate() {
            queue.provenance.push((others.index(index), self.origin().key(key)));
        }
        let key = if self.section.pools.is_empty() { "gpus" } else { "pools" };
        queue.provenance.extend([
            (groups, self.origin().key(key)),
            (FieldPath::keys(["spec", "queueingStrategy"]), self.origin().key("strategy")),
            (FieldPath::keys(["spec", "cohortName"]), self.origin().key("cohort")),
        ]);
        queue
    }

    /// Returns the WorkloadPriorityClasses. A changed value has no effect on existing work.
    fn priorities(&self) -> impl Iterator<Item = Resource> + '_ {
        self.section.priorities.iter().map(|(priority, value)| {
            let name = format!("{}-{priority}", self.name());
            let mut class = self.resource("WorkloadPriorityClass", None, &name, Value::Null);
            if let Some(body) = class.body.as_object_mut() {
                // It is no spec that it has.
                body.remove("spec");
                body.insert("value".to_owned(), json!(value));
            }
            class
                .provenance
                .push((FieldPath::keys(["value"]), self.origin().key("priorities").key(priority)));
            class
        })
    }

    fn local_queues(&self) -> Vec<Resource> {
        let used = self.scope.queue(self.key).map(|facts| facts.namespaces.clone()).unwrap_or_default();
        let spec = || json!({ "clusterQueue": self.name() });
        let local = |namespace: &String| self.resource("LocalQueue", Some(namespace), self.name(), spec());
        used.iter().map(local).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_queue_belongs_to_is_fixed() {
        for (path, expect) in [
            ("spec.clusterQueue", Effect::Replace),
            ("spec.controllerName", Effect::Replace),
            ("spec.resourceGroups[0].flavors[0].resources[0].nominalQuota", Effect::InPlace),
            ("spec.admissionChecksStrategy", Effect::InPlace),
            ("metadata.labels.a", Effect::InPlace),
        ] {
            assert_eq!(effect(&path.parse().unwrap()).0, expect, "{path}");
        }
    }
}
