//! Children of a Dask cluster that are lost: the operator makes each once and never again. It is told to make what is
//! missing, as a planned change; nothing that is there is touched.
//!
//! Source: `daskcluster_create_components` in dask-kubernetes 2026.3.0 runs when `status.phase` becomes `Created` and makes
//! what does not exist; `daskworkergroup_replica_update` runs when the number of a group changes and counts Deployments.
//! Held against the real operator by `tests/it/real_scale.rs`.

use serde_json::{Value, json};

use super::make::{Maker, is_going};
use super::{Action, Change};
use crate::kinds::{self, dask};
use crate::resource::{Await, Identity, KindId, ObjectId, Resource, Step, Until};

/// What is done about lost children.
#[derive(Clone, Debug)]
pub(super) struct Mend {
    steps: Vec<Step>,
    /// Whether nothing else of the thing differs, so that it is not written itself.
    alone: bool,
}

/// Seconds in which the operator notes a number: it retries after a minute.
const NOTED: u32 = 300;

impl Maker<'_> {
    /// What of a DaskCluster or a group is lost, in words; how it is mended is kept for the steps. `alone` says that
    /// nothing else of it changes.
    pub(super) fn lost(&mut self, resource: &Resource, live: &Value, alone: bool) -> Option<String> {
        let Identity::Object(object) = &resource.identity else { return None };
        let (said, steps) = if object.gvk == dask::api::cluster() {
            let (said, steps) = self.lost_children(object, live);
            // Without its group a cluster has no workers to count.
            if steps.is_empty() {
                self.lost_workers(&dask::api::default_group(object))?
            } else {
                (said, steps)
            }
        } else if object.gvk == dask::api::group() {
            self.lost_workers(object)?
        } else {
            return None;
        };
        self.lost.insert(resource.address.clone(), Mend { steps, alone });
        Some(said)
    }

    /// Scheduler, its Service and the default group.
    fn lost_children(&self, cluster: &ObjectId, live: &Value) -> (String, Vec<Step>) {
        let none = (String::new(), Vec::new());
        // Only then the operator says that it has made them.
        if !matches!(live["status"]["phase"].as_str(), Some("Pending" | "Running")) {
            return none;
        }
        let Some(inside) = self.inputs.world.inside.live() else { return none };
        let child = |gvk, end: &str| ObjectId {
            gvk,
            namespace: cluster.namespace.clone(),
            name: format!("{}-{end}", cluster.name),
        };
        let children = [
            child(kinds::kubernetes::object::gvk("apps", "v1", "Deployment", "deployments"), "scheduler"),
            child(kinds::kubernetes::object::gvk("", "v1", "Service", "services"), "scheduler"),
            dask::api::default_group(cluster),
        ];
        let lost = children.iter().filter(|child| inside.get(child).is_none_or(is_going));
        let lost: Vec<String> = lost.map(ToString::to_string).collect();
        if lost.is_empty() {
            return none;
        }
        let said = format!(
            "lost, and the Dask operator makes it no second time by itself: {}; it is told to make what is missing",
            lost.join(", ")
        );
        let body = json!({
            "apiVersion": cluster.gvk.api_version(),
            "kind": cluster.gvk.kind,
            "metadata": {
                "name": cluster.name, "namespace": cluster.namespace, "uid": live["metadata"]["uid"],
            },
            "status": { "phase": "Created" },
        });
        let call = kinds::kubernetes::requests::mend_call(cluster, &self.inputs.owner, body);
        (said, vec![Step::Call(call)])
    }

    /// Workers of a group that the operator takes for made. A number that comes down to those that there are and goes
    /// up again makes the rest, and retires nobody.
    fn lost_workers(&self, group: &ObjectId) -> Option<(String, Vec<Step>)> {
        let inside = self.inputs.world.inside.live()?;
        let live = inside.get(group)?;
        let wanted = live["spec"]["worker"]["replicas"].as_u64()?;
        if dask::handled::scaled_to(live) != Some(wanted) {
            return None;
        }
        let own = inside.iter().filter(|(object, worker)| {
            object.gvk.kind == "Deployment"
                && object.namespace == group.namespace
                && worker["metadata"]["labels"]["dask.org/workergroup-name"] == group.name.as_str()
        });
        let own: Vec<_> = own.collect();
        // One that goes is still counted by the operator: it is not known yet whether it is lost.
        let there = own.len() as u64;
        if there >= wanted || own.iter().any(|(_, worker)| is_going(worker)) {
            return None;
        }
        let said = format!(
            "{} of {wanted} workers of {group} lost, and the Dask operator makes them no second time by itself: its number \
             comes down to the {there} that there are and goes up again",
            wanted - there
        );
        let manager = self.inputs.owner.scale_manager();
        let scale =
            |number: u64| Step::Call(kinds::kubernetes::requests::scale_as(group, &manager, json!(number)));
        let noted = Step::Await(Await {
            kind: KindId::DaskGroup,
            identity: Identity::Object(group.clone()),
            until: Until::Ready,
            facts: json!({ "noted": there }),
            deadline: NOTED,
        });
        Some((said, vec![scale(there), noted, scale(wanted)]))
    }

    /// The steps of such changes come before the others.
    pub(super) fn mended(&mut self) {
        let Self { changes, lost, .. } = self;
        let update = |change: &&mut Change| change.action == Action::Update;
        for change in changes.iter_mut().filter(update) {
            let Some(Mend { steps, alone }) = lost.remove(&change.address) else { continue };
            let waits = |step: &Step| matches!(step, Step::Await(_));
            let rest: Vec<Step> = change.steps.drain(..).filter(|step| !alone || waits(step)).collect();
            change.steps = steps.into_iter().chain(rest).collect();
        }
    }
}
