//! Quotas and flavors: what a queue has, what is in use, and which flavor each part of a piece of work gets.
//! Source: `pkg/scheduler/flavorassigner` of Kueue 0.15.0, without preemption.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::super::super::object::{Key, is_true, list, milli, name, namespace, text};
use super::super::round::Run;
use super::super::scheduler::requests;
use super::conditions::GROUP;

/// A resource of a flavor.
type Share = (String, String);

/// The quota of queues and its usage, in thousandths, by the holder of the quota: a queue, or the cohort of several.
pub struct Quotas {
    nominal: BTreeMap<(String, Share), i64>,
    used: BTreeMap<(String, Share), i64>,
}

/// The parts of a piece of work with their flavors.
pub struct Sets(Vec<Set>);

struct Set {
    name: String,
    count: i64,
    /// Flavor and amount of each resource.
    given: BTreeMap<String, (String, i64)>,
}

impl Sets {
    /// As they stand in the status of a Workload.
    pub fn assignments(&self) -> Value {
        let one = |set: &Set| {
            let flavors: Map<String, Value> =
                set.given.iter().map(|(resource, (flavor, _))| (resource.clone(), json!(flavor))).collect();
            let usage: Map<String, Value> = set
                .given
                .iter()
                .map(|(resource, (_, amount))| (resource.clone(), json!(written(*amount))))
                .collect();
            json!({"name": set.name, "count": set.count, "flavors": flavors, "resourceUsage": usage})
        };
        self.0.iter().map(one).collect()
    }

    /// Returns true if some part has this flavor.
    pub fn has(&self, flavor: &str) -> bool {
        self.0.iter().any(|set| set.given.values().any(|(given, _)| given == flavor))
    }
}

/// An amount in thousandths as a quantity.
fn written(amount: i64) -> String {
    if amount % 1000 == 0 { (amount / 1000).to_string() } else { format!("{amount}m") }
}

/// Returns the name of the holder of a queue's quota: its cohort, or the queue itself.
fn pot(queue: &Value) -> String {
    match text(queue, "/spec/cohortName") {
        "" => format!("queue {}", name(queue)),
        cohort => format!("cohort {cohort}"),
    }
}

impl Quotas {
    pub fn of(run: &Run<'_>) -> Self {
        let mut quotas = Self { nominal: BTreeMap::new(), used: BTreeMap::new() };
        let queues = run.objects(GROUP, "clusterqueues");
        for queue in &queues {
            for flavor in list(queue, "/spec/resourceGroups").iter().flat_map(|group| list(group, "/flavors"))
            {
                for quota in list(flavor, "/resources") {
                    let share = (text(flavor, "/name").to_owned(), text(quota, "/name").to_owned());
                    *quotas.nominal.entry((pot(queue), share)).or_default() += milli(quota, "nominalQuota");
                }
            }
        }
        for workload in run.objects(GROUP, "workloads") {
            if !is_true(workload, "QuotaReserved") || is_true(workload, "Finished") {
                continue;
            }
            let queue = text(workload, "/status/admission/clusterQueue");
            let Some(queue) = queues.iter().find(|known| name(known) == queue) else { continue };
            for set in list(workload, "/status/admission/podSetAssignments") {
                for (resource, flavor) in set["flavors"].as_object().into_iter().flatten() {
                    let share = (flavor.as_str().unwrap_or_default().to_owned(), resource.clone());
                    let amount = milli(&set["resourceUsage"], resource);
                    *quotas.used.entry((pot(queue), share)).or_default() += amount;
                }
            }
        }
        quotas
    }

    /// Flavors for all of a piece of work, taken from its queue; or why there are none, in Kueue's words.
    pub fn assign(&mut self, run: &Run<'_>, queue: &Value, workload: &Value) -> Result<Sets, String> {
        let pot = pot(queue);
        let mut taken: BTreeMap<Share, i64> = BTreeMap::new();
        let mut sets = Vec::new();
        for set in list(workload, "/spec/podSets") {
            let count = set["count"].as_i64().unwrap_or(1);
            let spec = &set["template"]["spec"];
            let mut given = BTreeMap::new();
            for (resource, each) in requests(spec) {
                let amount = each * count;
                let fail =
                    |why: String| format!("couldn't assign flavors to pod set {}: {why}", text(set, "/name"));
                let covers = |group: &&Value| {
                    list(group, "/coveredResources").iter().any(|one| *one == resource.as_str())
                };
                let Some(group) = list(queue, "/spec/resourceGroups").iter().find(covers) else {
                    return Err(fail(format!("resource {resource} unavailable in ClusterQueue")));
                };
                let mut reasons = Vec::new();
                let flavors = list(group, "/flavors").iter().map(|flavor| text(flavor, "/name"));
                let found = flavors.into_iter().find(|flavor| {
                    let why = if fits(run, flavor, spec) {
                        self.lacks(&pot, flavor, &resource, (amount, &taken))
                    } else {
                        Some(format!("flavor {flavor} doesn't match node affinity"))
                    };
                    reasons.extend(why.clone());
                    why.is_none()
                });
                let Some(flavor) = found else { return Err(fail(reasons.join(", "))) };
                *taken.entry((flavor.to_owned(), resource.clone())).or_default() += amount;
                given.insert(resource, (flavor.to_owned(), amount));
            }
            sets.push(Set { name: text(set, "/name").to_owned(), count, given });
        }
        for (share, amount) in taken {
            *self.used.entry((pot.clone(), share)).or_default() += amount;
        }
        Ok(Sets(sets))
    }

    /// Returns the quota message if a flavor lacks an amount, beside what other parts of the same work take.
    fn lacks(
        &self,
        pot: &str,
        flavor: &str,
        resource: &str,
        (amount, taken): (i64, &BTreeMap<Share, i64>),
    ) -> Option<String> {
        let share = (flavor.to_owned(), resource.to_owned());
        let before = taken.get(&share).copied().unwrap_or(0);
        let place = (pot.to_owned(), share);
        let most = self.nominal.get(&place).copied().unwrap_or(0);
        let free = most - self.used.get(&place).copied().unwrap_or(0);
        let all = before + amount;
        if all > most {
            return Some(format!(
                "insufficient quota for {resource} in flavor {flavor}, previously considered podsets requests ({}) + \
                 current podset request ({}) > maximum capacity ({})",
                written(before),
                written(amount),
                written(most)
            ));
        }
        (all > free).then(|| {
            format!(
                "insufficient unused quota for {resource} in flavor {flavor}, {} more needed",
                written(all - free)
            )
        })
    }
}

/// Returns true if a pod may run on the nodes of a flavor: labels that it asks for by the flavor's keys are the flavor's.
fn fits(run: &Run<'_>, flavor: &str, spec: &Value) -> bool {
    let Some(flavor) = run.get(GROUP, "resourceflavors", "", flavor) else { return false };
    let labels = flavor["spec"]["nodeLabels"].as_object();
    labels
        .into_iter()
        .flatten()
        .all(|(key, value)| spec["nodeSelector"].get(key).is_none_or(|wanted| wanted == value))
}

/// The fields that the flavors and checks of a part add to its pods.
pub struct Placement {
    pub labels: Map<String, Value>,
    pub tolerations: Vec<Value>,
    pub annotations: Map<String, Value>,
}

impl Placement {
    /// Returns the patch for a pod, or a template of pods, when it starts.
    pub fn patch(&self, pod: &Value) -> Value {
        let own = list(pod, "/spec/tolerations");
        let mut tolerations = own.to_vec();
        tolerations.extend(self.tolerations.iter().filter(|one| !own.contains(one)).cloned());
        let mut patch = json!({"spec": {"nodeSelector": self.labels}});
        if !tolerations.is_empty() {
            patch["spec"]["tolerations"] = Value::Array(tolerations);
        }
        if !self.annotations.is_empty() {
            patch["metadata"]["annotations"] = json!(self.annotations);
        }
        patch
    }
}

/// Returns the fields to add to the pods of a part of admitted work.
pub fn placement(run: &Run<'_>, workload: &Value, set: &str) -> Placement {
    let mut placement = Placement { labels: Map::new(), tolerations: Vec::new(), annotations: Map::new() };
    let assignments = list(workload, "/status/admission/podSetAssignments");
    let assigned = assignments.iter().find(|assigned| text(assigned, "/name") == set);
    for flavor in assigned.and_then(|assigned| assigned["flavors"].as_object()).into_iter().flatten() {
        let name = flavor.1.as_str().unwrap_or_default();
        let Some(flavor) = run.get(GROUP, "resourceflavors", "", name) else { continue };
        placement.labels.extend(flavor["spec"]["nodeLabels"].as_object().cloned().unwrap_or_default());
        for toleration in list(flavor, "/spec/tolerations") {
            if !placement.tolerations.contains(toleration) {
                placement.tolerations.push(toleration.clone());
            }
        }
    }
    for check in list(workload, "/status/admissionChecks") {
        for update in list(check, "/podSetUpdates").iter().filter(|update| text(update, "/name") == set) {
            placement.annotations.extend(update["annotations"].as_object().cloned().unwrap_or_default());
        }
    }
    placement
}

/// The request for nodes of a piece of work that exists, by its number of tries before.
pub fn request<'a>(run: &Run<'a>, workload: &Value, request: &str) -> Option<&'a Value> {
    let key = request_key(namespace(workload), request);
    run.get(&key.group, &key.resource, &key.namespace, &key.name)
}

/// The key of a piece of work's request for nodes.
pub fn request_key(place: &str, request: &str) -> Key {
    Key::new("autoscaling.x-k8s.io", "provisioningrequests", place, request)
}
