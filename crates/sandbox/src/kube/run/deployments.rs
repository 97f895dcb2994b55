//! Deployments: ReplicaSets per template, rollouts, and the conditions that the real controller writes.
//!
//! From memory of `pkg/controller/deployment` (`rolling.go`, `progress.go`, `sync.go`); objects are compared with
//! those of a real control plane (Kubernetes 1.36) by `control_plane::sandbox_equality`.

use serde_json::{Map, Value, json};

use super::super::object::{
    annotation, condition, generation, is_deleted, key, name, namespace, number, reference_to, set_condition,
    template_hash, text, time, uid,
};
use super::events::{self, Level};
use super::round::Run;
use super::stages::stages;
use super::workloads::{MANAGER, is_active, pods_of, replicas, share};

const HASH_LABEL: &str = "pod-template-hash";
const REVISION: &str = "deployment.kubernetes.io/revision";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MAXIMUM: &str = "deployment.kubernetes.io/max-replicas";
/// Annotations that a Deployment does not hand down.
const KEPT_BACK: &[&str] = &[
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    "deployment.kubernetes.io/revision-history",
    DESIRED,
    MAXIMUM,
    "deprecated.deployment.rollback.to",
];

/// One round over all Deployments.
pub fn run(run: &mut Run<'_>) {
    let mut sets = run.by_owner("apps", "replicasets");
    for deployment in run.objects("apps", "deployments") {
        if is_deleted(deployment) {
            continue;
        }
        let mine = sets.remove(uid(deployment)).unwrap_or_default();
        Rollout::of(deployment, mine).step(run);
    }
}

/// A Deployment with its ReplicaSets.
struct Rollout<'a> {
    deployment: &'a Value,
    new: Option<&'a Value>,
    old: Vec<&'a Value>,
    hash: String,
}

impl<'a> Rollout<'a> {
    fn of(deployment: &'a Value, sets: Vec<&'a Value>) -> Self {
        let collisions = number(deployment, "/status/collisionCount").unwrap_or(0);
        let hash = template_hash(&deployment["spec"]["template"], collisions);
        let new_name = format!("{}-{hash}", name(deployment));
        let (new, old): (Vec<&Value>, Vec<&Value>) = sets.into_iter().partition(|set| name(set) == new_name);
        Self { deployment, new: new.first().copied(), old, hash }
    }

    fn step(&self, run: &mut Run<'_>) {
        let paused = self.deployment["spec"]["paused"] == true;
        match self.new {
            None if !paused => self.start(run),
            Some(new) => {
                self.annotate(run, new);
                if !paused {
                    self.roll(run, new);
                }
            }
            None => {}
        }
        self.write_status(run);
        self.clean_up(run);
    }

    fn replicas(&self) -> i64 {
        replicas(self.deployment)
    }

    fn recreates(&self) -> bool {
        text(self.deployment, "/spec/strategy/type") == "Recreate"
    }

    fn surge(&self) -> i64 {
        if self.recreates() {
            return 0;
        }
        let value = &self.deployment["spec"]["strategy"]["rollingUpdate"]["maxSurge"];
        share(value, self.replicas(), (self.replicas() * 25 + 99) / 100, true)
    }

    fn unavailable(&self) -> i64 {
        if self.recreates() {
            return 0;
        }
        let value = &self.deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"];
        let allowed = share(value, self.replicas(), self.replicas() * 25 / 100, false);
        let allowed = if allowed == 0 && self.surge() == 0 { 1 } else { allowed };
        allowed.min(self.replicas())
    }

    fn revision(&self) -> i64 {
        let of =
            |set: &&Value| annotation(set, REVISION).and_then(|text| text.parse::<i64>().ok()).unwrap_or(0);
        self.old.iter().map(of).max().unwrap_or(0) + 1
    }

    fn annotations(&self) -> Map<String, Value> {
        let own = self.deployment.pointer("/metadata/annotations").and_then(Value::as_object);
        let mut out: Map<String, Value> = own
            .into_iter()
            .flatten()
            .filter(|(key, _)| !KEPT_BACK.contains(&key.as_str()))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        out.insert(DESIRED.to_owned(), json!(self.replicas().to_string()));
        out.insert(MAXIMUM.to_owned(), json!((self.replicas() + self.surge()).to_string()));
        out
    }

    /// How many replicas the new ReplicaSet may have now.
    fn new_replicas(&self) -> i64 {
        if self.recreates() {
            return self.replicas();
        }
        let current = self.new.map_or(0, replicas);
        let total = current + self.old.iter().map(|set| replicas(set)).sum::<i64>();
        let room = self.replicas() + self.surge() - total;
        if room <= 0 { current.min(self.replicas()) } else { (current + room).min(self.replicas()) }
    }

    /// Makes the ReplicaSet of the current template.
    fn start(&self, run: &mut Run<'_>) {
        if self.recreates() && self.stop_old(run) {
            return;
        }
        let spec = &self.deployment["spec"];
        let with_hash = |labels: &Value| {
            let mut labels = if labels.is_object() { labels.clone() } else { json!({}) };
            labels[HASH_LABEL] = json!(self.hash);
            labels
        };
        let mut template = spec["template"].clone();
        template["metadata"]["labels"] = with_hash(&template["metadata"]["labels"]);
        let mut selector = spec["selector"].clone();
        selector["matchLabels"] = with_hash(&selector["matchLabels"]);
        let mut annotations = self.annotations();
        annotations.insert(REVISION.to_owned(), json!(self.revision().to_string()));
        let replicas = self.new_replicas();
        let set_name = format!("{}-{}", name(self.deployment), self.hash);
        run.create(
            MANAGER,
            json!({
                "apiVersion": "apps/v1", "kind": "ReplicaSet",
                "metadata": {
                    "name": set_name, "namespace": namespace(self.deployment),
                    "labels": template["metadata"]["labels"], "annotations": annotations,
                    "ownerReferences": [reference_to(self.deployment)],
                },
                "spec": {"replicas": replicas, "selector": selector, "template": template},
            }),
        );
        let message = format!("Scaled up replica set {set_name} from 0 to {replicas}");
        self.tell(run, &message);
    }

    /// For `Recreate`: takes the old pods away; whether some are left.
    fn stop_old(&self, run: &mut Run<'_>) -> bool {
        for set in &self.old {
            self.scale(run, set, 0);
        }
        self.old.iter().any(|set| !pods_of(run, set).is_empty())
    }

    fn annotate(&self, run: &mut Run<'_>, new: &Value) {
        let mut wanted = self.annotations();
        let live = annotation(new, REVISION).and_then(|text| text.parse::<i64>().ok()).unwrap_or(0);
        let revision = live.max(self.revision()).to_string();
        wanted.insert(REVISION.to_owned(), json!(revision));
        let differs = wanted.iter().any(|(key, value)| annotation(new, key) != value.as_str());
        if differs {
            run.merge(MANAGER, key("apps", "replicasets", new), json!({"metadata": {"annotations": wanted}}));
        }
        if annotation(self.deployment, REVISION) != Some(&revision) {
            let patch = json!({"metadata": {"annotations": {REVISION: revision}}});
            run.merge_with_status(MANAGER, key("apps", "deployments", self.deployment), patch);
        }
    }

    /// Moves pods from the old ReplicaSets to the new one, as far as surge and availability allow.
    fn roll(&self, run: &mut Run<'_>, new: &Value) {
        if self.recreates() {
            if self.stop_old(run) {
                return;
            }
            self.scale(run, new, self.replicas());
            return;
        }
        self.scale(run, new, self.new_replicas());
        let available = |set: &Value| number(set, "/status/availableReplicas").unwrap_or(0);
        let total: i64 = replicas(new) + self.old.iter().map(|set| replicas(set)).sum::<i64>();
        let minimum = self.replicas() - self.unavailable();
        let new_unavailable = (replicas(new) - available(new)).max(0);
        let mut removable = total - minimum - new_unavailable;
        // Broken old pods go first, they serve nobody; then working ones, while enough are available.
        let all_available = available(new) + self.old.iter().map(|set| available(set)).sum::<i64>();
        let mut working = (all_available - minimum).max(0);
        for set in &self.old {
            let size = replicas(set);
            let broken = (size - available(set)).clamp(0, removable.max(0));
            let good = (size - broken).min(removable - broken).min(working).max(0);
            removable -= broken + good;
            working -= good;
            self.scale(run, set, size - broken - good);
        }
    }

    fn tell(&self, run: &mut Run<'_>, message: &str) {
        let (reason, who) = ("ScalingReplicaSet", "deployment-controller");
        events::emit(run, self.deployment, Level::Normal, reason, who, message);
    }

    fn scale(&self, run: &mut Run<'_>, set: &Value, size: i64) {
        let from = replicas(set);
        if from == size {
            return;
        }
        run.merge(MANAGER, key("apps", "replicasets", set), json!({"spec": {"replicas": size}}));
        let way = if size > from { "up" } else { "down" };
        let message = format!("Scaled {way} replica set {} from {from} to {size}", name(set));
        self.tell(run, &message);
    }

    fn write_status(&self, run: &mut Run<'_>) {
        let sets = || self.new.iter().chain(&self.old);
        let sum = |field: &str| -> i64 {
            sets().map(|set| number(set, &format!("/status/{field}")).unwrap_or(0)).sum()
        };
        let (total, ready, available) = (sum("replicas"), sum("readyReplicas"), sum("availableReplicas"));
        let updated = self.new.and_then(|new| number(new, "/status/replicas")).unwrap_or(0);
        let specified: i64 = sets().map(|set| replicas(set)).sum();
        let mut counts =
            Counts { total, updated, ready, available, unavailable: (specified - available).max(0) };
        if self.new.is_none() {
            counts.unavailable = counts.unavailable.max(0);
        }
        let mut conditions = super::super::object::list(self.deployment, "/status/conditions").to_vec();
        self.set_available(run, &mut conditions, counts);
        self.set_progressing(run, &mut conditions, counts);
        let mut status = json!({"observedGeneration": generation(self.deployment), "conditions": conditions});
        for (field, count) in [
            ("replicas", total),
            ("updatedReplicas", updated),
            ("readyReplicas", ready),
            ("availableReplicas", available),
            ("unavailableReplicas", counts.unavailable),
        ] {
            if count > 0 {
                status[field] = json!(count);
            }
        }
        if let Some(collisions) = number(self.deployment, "/status/collisionCount") {
            status["collisionCount"] = json!(collisions);
        }
        run.status(MANAGER, key("apps", "deployments", self.deployment), self.deployment, status);
    }

    fn set_available(&self, run: &Run<'_>, conditions: &mut Vec<Value>, counts: Counts) {
        let enough = counts.available >= self.replicas() - self.unavailable();
        let (status, reason, message) = if enough {
            ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
        } else {
            ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
        };
        put(run, conditions, "Available", status, reason, message);
    }

    /// `NewReplicaSetCreated` → `ReplicaSetUpdated` → `NewReplicaSetAvailable`, or
    /// `ProgressDeadlineExceeded` when nothing moves for too long.
    fn set_progressing(&self, run: &mut Run<'_>, conditions: &mut Vec<Value>, counts: Counts) {
        let known = condition(self.deployment, "Progressing");
        let reason_now = known.map_or("", |known| text(known, "/reason"));
        if self.deployment["spec"]["paused"] == true {
            put(run, conditions, "Progressing", "Unknown", "DeploymentPaused", "Deployment is paused");
            return;
        }
        let set_name = format!("{}-{}", name(self.deployment), self.hash);
        if self.new.is_none() {
            let message = format!("Created new replica set \"{set_name}\"");
            put(run, conditions, "Progressing", "True", "NewReplicaSetCreated", &message);
            return;
        }
        let wanted = self.replicas();
        let complete = counts.updated == wanted
            && counts.total == wanted
            && counts.available == wanted
            && self.old.iter().all(|set| number(set, "/status/replicas").unwrap_or(0) == 0);
        let message_names_new = known.is_some_and(|known| text(known, "/message").contains(&set_name));
        if complete {
            let message = format!("ReplicaSet \"{set_name}\" has successfully progressed.");
            put(run, conditions, "Progressing", "True", "NewReplicaSetAvailable", &message);
            return;
        }
        // A finished rollout that loses pods is not a rollout again.
        if reason_now == "NewReplicaSetAvailable" && message_names_new && counts.total == counts.updated {
            return;
        }
        let mark = format!(
            "{} rollout {} {} {} {} {}",
            uid(self.deployment),
            self.hash,
            counts.updated,
            counts.ready,
            counts.available,
            counts.total - counts.updated
        );
        let deadline = self.deployment["spec"]["progressDeadlineSeconds"].as_f64();
        if run.passed(mark, deadline.unwrap_or_else(|| stages().delay("deploy_deadline"))) {
            let message = format!("ReplicaSet \"{set_name}\" has timed out progressing.");
            put(run, conditions, "Progressing", "False", "ProgressDeadlineExceeded", &message);
            return;
        }
        let moved = ["updatedReplicas", "readyReplicas", "availableReplicas"]
            .iter()
            .zip([counts.updated, counts.ready, counts.available])
            .any(|(field, count)| number(self.deployment, &format!("/status/{field}")).unwrap_or(0) < count);
        if moved || !message_names_new {
            let message = format!("ReplicaSet \"{set_name}\" is progressing.");
            put(run, conditions, "Progressing", "True", "ReplicaSetUpdated", &message);
        }
    }

    /// Old, empty ReplicaSets beyond the history limit go.
    fn clean_up(&self, run: &mut Run<'_>) {
        let limit = number(self.deployment, "/spec/revisionHistoryLimit").unwrap_or(10);
        let mut empty: Vec<&Value> = self
            .old
            .iter()
            .copied()
            .filter(|set| replicas(set) == 0 && number(set, "/status/replicas").unwrap_or(0) == 0)
            .collect();
        empty.sort_by_key(|set| {
            annotation(set, REVISION).and_then(|text| text.parse::<i64>().ok()).unwrap_or(0)
        });
        let surplus = empty.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        for set in empty.into_iter().take(surplus) {
            run.delete(key("apps", "replicasets", set));
        }
    }
}

#[derive(Clone, Copy)]
struct Counts {
    total: i64,
    updated: i64,
    ready: i64,
    available: i64,
    unavailable: i64,
}

/// Sets a Deployment condition; `lastUpdateTime` moves when something but the time differs.
fn put(run: &Run<'_>, conditions: &mut Vec<Value>, ty: &str, status: &str, reason: &str, message: &str) {
    let known = conditions.iter().find(|condition| condition["type"] == ty);
    let same = known.filter(|known| {
        text(known, "/status") == status
            && text(known, "/reason") == reason
            && text(known, "/message") == message
    });
    if same.is_some() {
        return;
    }
    let condition = json!({
        "type": ty, "status": status, "reason": reason, "message": message, "lastUpdateTime": time(run.now),
    });
    set_condition(conditions, condition, run.now);
}

/// Returns the active pods of a Deployment, through its ReplicaSets.
pub fn active_pods<'a>(run: &Run<'a>, deployment: &Value) -> Vec<&'a Value> {
    let mine = run.by_owner("apps", "replicasets").remove(uid(deployment)).unwrap_or_default();
    mine.iter().flat_map(|set| pods_of(run, set)).filter(|pod| is_active(pod)).collect()
}

#[cfg(test)]
#[path = "deployments_tests.rs"]
mod tests;
