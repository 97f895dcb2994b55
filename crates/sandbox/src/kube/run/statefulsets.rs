//! StatefulSets: pods with names that last, one after the other, and claims of their own.
//!
//! From memory of `pkg/controller/statefulset` (`stateful_set_control.go`, `stateful_set_utils.go`). Left out: ControllerRevisions, so that
//! a pod below the partition of an update gets the newest template when it is made again; `maxUnavailable`; `whenScaled` of the retention policy.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::object::{
    fill, generation, is_deleted, is_finished, key, label, list, name, namespace, number, reference_to,
    template_hash, text,
};
use super::events::{self, Level};
use super::round::Run;
use super::workloads::{MANAGER, is_ready, pod as from_template, pods_of, replicas};

const REVISION: &str = "controller-revision-hash";

/// One round over all StatefulSets.
pub fn run(run: &mut Run<'_>) {
    for set in run.objects("apps", "statefulsets") {
        let replicas = Replicas::of(set, pods_of(run, set));
        if !is_deleted(set) {
            replicas.step(run);
        }
        replicas.write_status(run);
    }
}

/// A StatefulSet with its pods by ordinal.
struct Replicas<'a> {
    set: &'a Value,
    pods: BTreeMap<i64, &'a Value>,
    revision: String,
    first: i64,
}

impl<'a> Replicas<'a> {
    fn of(set: &'a Value, pods: Vec<&'a Value>) -> Self {
        let prefix = format!("{}-", name(set));
        let ordinal = |pod: &Value| name(pod).strip_prefix(&prefix)?.parse::<i64>().ok();
        Self {
            pods: pods.into_iter().filter_map(|pod| Some((ordinal(pod)?, pod))).collect(),
            revision: format!("{}-{}", name(set), template_hash(&set["spec"]["template"], 0)),
            first: number(set, "/spec/ordinals/start").unwrap_or(0),
            set,
        }
    }

    /// The ordinals of the pods that there should be.
    fn wanted(&self) -> std::ops::Range<i64> {
        self.first..self.first + replicas(self.set)
    }

    /// The next writes. Without `Parallel` each pod waits for those below it, and goes before them.
    fn step(&self, run: &mut Run<'_>) {
        let one_by_one = text(self.set, "/spec/podManagementPolicy") != "Parallel";
        for ordinal in self.wanted() {
            let stands = match self.pods.get(&ordinal) {
                None => {
                    self.create(run, ordinal);
                    false
                }
                // A pod that has ended gives its name to the next one.
                Some(pod) if is_finished(pod) => {
                    self.delete(run, pod);
                    false
                }
                Some(pod) => is_ready(pod) && !is_deleted(pod),
            };
            if one_by_one && !stands {
                return;
            }
        }
        let surplus = self.pods.iter().rev().filter(|(ordinal, _)| !self.wanted().contains(ordinal));
        for (_, pod) in surplus {
            self.delete(run, pod);
            if one_by_one {
                return;
            }
        }
        self.roll(run);
    }

    /// One pod of an older template after the other, the last first.
    fn roll(&self, run: &mut Run<'_>) {
        if text(self.set, "/spec/updateStrategy/type") == "OnDelete" {
            return;
        }
        let partition = number(self.set, "/spec/updateStrategy/rollingUpdate/partition").unwrap_or(0);
        for ordinal in self.wanted().rev().take_while(|ordinal| *ordinal >= partition) {
            let Some(pod) = self.pods.get(&ordinal) else { return };
            if is_deleted(pod) || !self.is_new(pod) {
                return self.delete(run, pod);
            }
            if !is_ready(pod) {
                return;
            }
        }
    }

    fn is_new(&self, pod: &Value) -> bool {
        label(pod, REVISION) == self.revision
    }

    fn delete(&self, run: &mut Run<'_>, pod: &Value) {
        if is_deleted(pod) {
            return;
        }
        run.delete(key("", "pods", pod));
        let message = format!("delete Pod {} in StatefulSet {} successful", name(pod), name(self.set));
        events::emit(run, self.set, Level::Normal, "SuccessfulDelete", "statefulset-controller", &message);
    }

    fn create(&self, run: &mut Run<'_>, ordinal: i64) {
        let (set, whole) = (self.set, format!("{}-{ordinal}", name(self.set)));
        let mut pod = from_template(set, &set["spec"]["template"]);
        if let Some(metadata) = pod["metadata"].as_object_mut() {
            metadata.remove("generateName");
            metadata.insert("name".to_owned(), json!(whole));
        }
        let own = json!({"labels": {
            REVISION: self.revision, "statefulset.kubernetes.io/pod-name": whole,
            "apps.kubernetes.io/pod-index": ordinal.to_string(),
        }});
        fill(&mut pod["metadata"], &own);
        pod["spec"]["hostname"] = json!(whole);
        pod["spec"]["subdomain"] = set["spec"]["serviceName"].clone();
        let templates = list(set, "/spec/volumeClaimTemplates");
        let mut volumes: Vec<Value> = list(&pod, "/spec/volumes").to_vec();
        volumes.retain(|volume| !templates.iter().any(|template| name(template) == text(volume, "/name")));
        for template in templates {
            let claim = format!("{}-{whole}", name(template));
            volumes.push(json!({"name": name(template), "persistentVolumeClaim": {"claimName": claim}}));
            if run.get("", "persistentvolumeclaims", namespace(set), &claim).is_none() {
                run.create(MANAGER, self.claim(template, &claim));
            }
        }
        if !volumes.is_empty() {
            pod["spec"]["volumes"] = Value::Array(volumes);
        }
        run.create(MANAGER, pod);
        let message = format!("create Pod {whole} in StatefulSet {} successful", name(set));
        events::emit(run, set, Level::Normal, "SuccessfulCreate", "statefulset-controller", &message);
    }

    /// A claim stays when its pod goes, and when the StatefulSet goes unless that says otherwise.
    fn claim(&self, template: &Value, claim: &str) -> Value {
        let set = self.set;
        let mut made = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": claim, "namespace": namespace(set)},
            "spec": template["spec"],
        });
        for field in ["labels", "annotations"] {
            if let Some(value) = template["metadata"].get(field).filter(|value| !value.is_null()) {
                made["metadata"][field] = value.clone();
            }
        }
        if let Some(labels) = set.pointer("/spec/selector/matchLabels") {
            fill(&mut made["metadata"], &json!({"labels": labels}));
        }
        if text(set, "/spec/persistentVolumeClaimRetentionPolicy/whenDeleted") == "Delete" {
            made["metadata"]["ownerReferences"] = json!([reference_to(set)]);
        }
        made
    }

    fn write_status(&self, run: &mut Run<'_>) {
        let present: Vec<&Value> = self.pods.values().copied().filter(|pod| !is_finished(pod)).collect();
        let staying = || present.iter().filter(|pod| !is_deleted(pod));
        let ready = staying().filter(|pod| is_ready(pod)).count();
        let updated = staying().filter(|pod| self.is_new(pod)).count();
        let wanted = usize::try_from(replicas(self.set)).unwrap_or_default();
        let before = text(self.set, "/status/currentRevision");
        let is_whole = updated == wanted && ready == wanted && present.len() == wanted;
        let current = if before.is_empty() || is_whole { self.revision.as_str() } else { before };
        let of_current = staying().filter(|pod| label(pod, REVISION) == current).count();
        let mut status = json!({
            "observedGeneration": generation(self.set), "replicas": present.len(), "availableReplicas": ready,
            "currentRevision": current, "updateRevision": self.revision, "collisionCount": 0,
        });
        // The API drops zeros here.
        for (field, count) in
            [("readyReplicas", ready), ("currentReplicas", of_current), ("updatedReplicas", updated)]
        {
            if count > 0 {
                status[field] = json!(count);
            }
        }
        run.status(MANAGER, key("apps", "statefulsets", self.set), self.set, status);
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::object::Key;
    use super::super::testing::{World, pool};
    use super::*;

    fn world(more: &Value) -> World {
        let mut world = World::new(vec![pool("p", "e2-standard-16", 1, json!({}))]);
        world.pass(120);
        let mut set = json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db", "namespace": "default"},
            "spec": {
                "serviceName": "db", "replicas": 3, "selector": {"matchLabels": {"app": "db"}},
                "template": {
                    "metadata": {"labels": {"app": "db"}},
                    "spec": {"containers": [{"name": "c", "image": "postgres:1"}]},
                },
                "volumeClaimTemplates": [{
                    "metadata": {"name": "data"},
                    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
                }],
            },
        });
        crate::kube::object::merge(&mut set["spec"], more);
        world.create(set);
        world
    }

    fn set() -> Key {
        Key::new("apps", "statefulsets", "default", "db")
    }

    fn pods(world: &World) -> Vec<String> {
        world.names("", "pods", "default")
    }

    fn status(world: &World) -> Value {
        world.get("apps", "statefulsets", "default", "db")["status"].clone()
    }

    #[test]
    fn pods_come_one_after_the_other_with_a_claim_each() {
        let mut world = world(&json!({}));
        world.pass(1);
        assert_eq!(pods(&world), ["db-0"], "the next one waits until this one is ready");
        world.pass(120);
        assert_eq!(pods(&world), ["db-0", "db-1", "db-2"]);
        let claims = world.names("", "persistentvolumeclaims", "default");
        assert_eq!(claims, ["data-db-0", "data-db-1", "data-db-2"]);
        let pod = world.get("", "pods", "default", "db-1");
        assert_eq!(pod["spec"]["hostname"], "db-1");
        assert_eq!(label(&pod, "apps.kubernetes.io/pod-index"), "1");
        let mounted = list(&pod, "/spec/volumes").iter().find(|volume| volume["name"] == "data");
        assert_eq!(mounted.unwrap()["persistentVolumeClaim"]["claimName"], "data-db-1");
        let status = status(&world);
        let generation = generation(&world.get("apps", "statefulsets", "default", "db"));
        assert_eq!(status["observedGeneration"], json!(generation));
        assert_eq!([&status["readyReplicas"], &status["updatedReplicas"]], [&json!(3), &json!(3)]);
        assert_eq!(status["currentRevision"], status["updateRevision"]);
    }

    #[test]
    fn the_last_goes_first_and_claims_stay() {
        let mut world = world(&json!({}));
        world.pass(120);
        world.merge(&set(), &json!({"spec": {"replicas": 1}}));
        world.pass(1);
        let going = |pod: &&Value| is_deleted(pod);
        let all = world.pods("default");
        assert_eq!(all.iter().filter(going).map(name).collect::<Vec<_>>(), ["db-2"]);
        world.pass(200);
        assert_eq!(pods(&world), ["db-0"]);
        world.delete(&set());
        world.pass(200);
        assert!(pods(&world).is_empty());
        assert_eq!(world.names("", "persistentvolumeclaims", "default").len(), 3);
    }

    #[test]
    fn another_template_rolls_from_the_last_to_the_partition() {
        let mut world = world(&json!({"podManagementPolicy": "Parallel"}));
        world.pass(1);
        assert_eq!(pods(&world).len(), 3, "in parallel");
        world.pass(120);
        let image = json!([{"name": "c", "image": "postgres:2"}]);
        world.merge(
            &set(),
            &json!({"spec": {
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}},
                "template": {"spec": {"containers": image}},
            }}),
        );
        world.pass(1);
        let all = world.pods("default");
        assert_eq!(all.iter().filter(|pod| is_deleted(pod)).map(name).collect::<Vec<_>>(), ["db-2"]);
        world.pass(300);
        let images: Vec<String> = world
            .pods("default")
            .iter()
            .map(|pod| text(pod, "/spec/containers/0/image").to_owned())
            .collect();
        assert_eq!(images, ["postgres:1", "postgres:2", "postgres:2"]);
        assert_eq!(status(&world)["updatedReplicas"], json!(2));
    }
}
