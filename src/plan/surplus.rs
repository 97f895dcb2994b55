//! Workers that the Dask operator left behind when it scaled a cluster down, and reports as gone: they go with the next
//! apply, as many as are too many.

use serde_json::Value;

use super::make::Maker;
use super::{Action, Change};
use crate::kinds::{self, dask_cluster, dask_group};
use crate::resource::{Identity, ObjectId, Resource, Step};

impl Maker<'_> {
    /// Why a DaskCluster or a group of workers that is as it is wanted has something to do all the same.
    pub(super) fn left_behind(&mut self, resource: &Resource) -> Option<String> {
        let Identity::Object(cluster) = &resource.identity else { return None };
        let name = match resource.kind.as_str() {
            kind if kind == dask_cluster::KIND.name => format!("{}-default", cluster.name),
            kind if kind == dask_group::KIND.name => cluster.name.clone(),
            _ => return None,
        };
        let wanted = resource.body["spec"]["worker"]["replicas"].as_u64()?;
        let inside = self.inputs.world.inside.live()?;
        let beside = |object: &ObjectId| object.namespace == cluster.namespace;
        let group = inside
            .iter()
            .find(|(object, _)| beside(object) && object.gvk == dask_group::api() && object.name == name);
        let (_, group) = group?;
        let workers: Vec<(&ObjectId, &Value)> =
            inside.iter().filter(|(object, _)| beside(object) && object.gvk.kind == "Deployment").collect();
        let left: Vec<(ObjectId, Value)> = dask_cluster::left_behind(wanted, group, &workers)
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
            let deletes = left.iter().map(|(object, live)| Step::Call(kinds::delete_call(object, live)));
            change.steps = deletes.chain(waits).collect();
        }
    }
}
