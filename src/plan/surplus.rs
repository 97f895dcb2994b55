//! Workers that the Dask operator left behind when it scaled a cluster down, and reports as gone: they go with the next
//! apply, as many as are too many.

use serde_json::Value;

use super::make::{Maker, is_going};
use super::{Action, Change, Note};
use crate::diag::Code;
use crate::kinds::{self, dask};
use crate::resource::{Identity, KindId, ObjectId, Resource, Step};

impl Maker<'_> {
    /// Why a DaskCluster or a group of workers that is as it is wanted has something to do all the same.
    pub(super) fn left_behind(&mut self, resource: &Resource) -> Option<String> {
        let Identity::Object(cluster) = &resource.identity else { return None };
        let name = match resource.kind {
            KindId::DaskCluster => format!("{}-default", cluster.name),
            KindId::DaskGroup => cluster.name.clone(),
            _ => return None,
        };
        let wanted = resource.body["spec"]["worker"]["replicas"].as_u64()?;
        let inside = self.inputs.world.inside.live()?;
        let beside = |object: &ObjectId| object.namespace == cluster.namespace;
        let group = inside
            .iter()
            .find(|(object, _)| beside(object) && object.gvk == dask::api::group() && object.name == name);
        let (_, group) = group?;
        let workers: Vec<(&ObjectId, &Value)> =
            inside.iter().filter(|(object, _)| beside(object) && object.gvk.kind == "Deployment").collect();
        let left: Vec<(ObjectId, Value)> = dask::cluster::left_behind(wanted, group, &workers)
            .into_iter()
            .map(|(object, live)| (object.clone(), live.clone()))
            .collect();
        if left.is_empty() {
            return None;
        }
        let names: Vec<&str> = left.iter().map(|(object, _)| object.name.as_str()).collect();
        let what = format!(
            "the Dask operator says that it has scaled to {wanted} and did not; what is too many is deleted: {}",
            names.join(", ")
        );
        self.surplus.insert(resource.address.clone(), left);
        Some(what)
    }

    /// The steps of such an update: nothing of the DaskCluster itself is written.
    pub(super) fn surplus_goes(&mut self) {
        let Self { changes, surplus, .. } = self;
        let update = |change: &&mut Change| change.action == Action::Update;
        for change in changes.iter_mut().filter(update) {
            let Some(left) = surplus.get(&change.address) else { continue };
            let waits =
                change.steps.drain(..).filter(|step| matches!(step, Step::Await(_))).collect::<Vec<_>>();
            let deletes = left
                .iter()
                .map(|(object, live)| Step::Call(kinds::kubernetes::requests::delete_call(object, live)));
            change.steps = deletes.chain(waits).collect();
        }
    }

    /// The workers that go when a DaskCluster or a group comes to `wanted`, where the cluster has workers of several
    /// groups: the operator would ask the scheduler, which chooses among those of all groups.
    /// Source: `retire_workers` in dask-kubernetes 2026.3.0; issue 914.
    pub(super) fn chosen(&self, object: &ObjectId, wanted: u64) -> Vec<(ObjectId, Value)> {
        let of_cluster = object.gvk == dask::api::cluster();
        if !of_cluster && object.gvk != dask::api::group() {
            return Vec::new();
        }
        let group = if of_cluster { dask::api::default_group(object) } else { object.clone() };
        let Some(inside) = self.inputs.world.inside.live() else { return Vec::new() };
        let Some(cluster) = inside.get(&group).map(|live| &live["spec"]["cluster"]) else {
            return Vec::new();
        };
        let beside = |other: &ObjectId| other.namespace == group.namespace;
        let workers: Vec<(&ObjectId, &Value)> =
            inside.iter().filter(|(other, _)| beside(other) && other.gvk.kind == "Deployment").collect();
        let has_workers = |other: &ObjectId| {
            workers.iter().any(|(_, live)| {
                live["metadata"]["labels"]["dask.org/workergroup-name"] == other.name.as_str()
                    && !is_going(live)
            })
        };
        let several = inside.iter().any(|(other, live)| {
            let another = other.gvk == dask::api::group() && beside(other) && other.name != group.name;
            another && live["spec"]["cluster"] == *cluster && has_workers(other)
        });
        if !several {
            return Vec::new();
        }
        let go = dask::cluster::too_many(wanted, &group.name, &workers);
        go.into_iter().map(|(object, live)| (object.clone(), live.clone())).collect()
    }

    /// Says which workers go.
    pub(super) fn tell_chosen(&mut self, resource: &Resource, goes: &[(ObjectId, Value)]) {
        if goes.is_empty() {
            return;
        }
        let names: Vec<&str> = goes.iter().map(|(object, _)| object.name.as_str()).collect();
        let message = format!(
            "these go, so that no worker of another group does: {}; the scheduler is not asked, and Dask computes again \
             what they held",
            names.join(", ")
        );
        let (code, address) = (Code::ChosenWorkers.as_str().into(), resource.address.clone());
        self.notes.push(Note { code, address, message });
    }

    /// The same for a plan of the stack: who falls in number loses its own workers.
    pub(super) fn choose_workers(&mut self) {
        let path = dask::api::replicas_path();
        let inputs = self.inputs;
        for place in 0..self.changes.len() {
            let change = &self.changes[place];
            let falls = change.fields.iter().find(|field| field.path == path);
            let to = falls.and_then(|field| field.after.as_ref()).and_then(Value::as_u64);
            let (Action::Update, Some(to), Identity::Object(object)) = (change.action, to, &change.identity)
            else {
                continue;
            };
            let Some(resource) = inputs.desired.iter().find(|wanted| wanted.address == change.address) else {
                continue;
            };
            let goes = self.chosen(object, to);
            self.tell_chosen(resource, &goes);
            let deletes = goes
                .iter()
                .map(|(object, live)| Step::Call(kinds::kubernetes::requests::delete_call(object, live)));
            let steps: Vec<Step> = deletes.chain(self.changes[place].steps.drain(..)).collect();
            self.changes[place].steps = steps;
        }
    }
}
