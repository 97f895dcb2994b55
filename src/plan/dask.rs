//! What plans know of Dask's things beyond their fields: whose number of workers counts, and what goes with a cluster.

use serde_json::Value;

use super::planner::Planner;
use super::reason::Unknown;
use super::{Inputs, Note, diff};
use crate::address::Address;
use crate::diag::Code;
use crate::kinds::gke::compare::Compared;
use crate::kinds::json::is_going;
use crate::kinds::{self, dask};
use crate::resource::{Effect, FieldChange, Identity, Life, ObjectId, Resource};

impl Planner<'_> {
    /// Things whose number of workers others may write: a field that is given away says to whom, and a number of the
    /// file's is held against the group that counts.
    pub(super) fn number_of_workers(&mut self, resource: &Resource, live: &Value, compared: &mut Compared) {
        let Identity::Object(object) = &resource.identity else { return };
        if object.gvk == dask::api::job() {
            return self.job(resource, live, compared);
        }
        let of_cluster = object.gvk == dask::api::cluster();
        if !of_cluster && object.gvk != dask::api::group() {
            return;
        }
        let path = dask::api::replicas_path();
        match path.find(&resource.body) {
            Some(wanted) if of_cluster => {
                self.default_group(object, wanted, live, compared);
                self.two_writers(resource, object);
            }
            Some(_) => {}
            None => self.given_away(resource, live, compared),
        }
    }

    /// `KubeCluster.scale` and `kubectl scale` write the default group, and the cluster's own number stays as it was.
    fn default_group(&self, cluster: &ObjectId, wanted: &Value, live: &Value, compared: &mut Compared) {
        let path = dask::api::replicas_path();
        let group = dask::api::default_group(cluster);
        let Some(group_live) = self.seen.inputs.world.find(&Identity::Object(group.clone())) else { return };
        let have = path.find(group_live);
        compared.seen.push((path.key("default group"), have.cloned().unwrap_or_default()));
        // A changed number of the cluster is handed on by the operator.
        if have.is_none() || have == Some(wanted) || path.find(live) != Some(wanted) {
            return;
        }
        let unknown = || ("others".to_owned(), "an unknown time".to_owned());
        compared.changes.push(FieldChange {
            path: path.clone(),
            before: have.cloned(),
            after: Some(wanted.clone()),
            effect: Effect::InPlace,
            note: Some(format!("of {group}, which decides")),
            drift: Some(diff::written_by(group_live, &path).unwrap_or_else(unknown)),
            secret: false,
        });
    }

    /// An autoscaler of others writes the number that is the file's: `KubeCluster.adapt` makes one.
    fn two_writers(&mut self, resource: &Resource, cluster: &ObjectId) {
        let objects = self.seen.inputs.world.inside.live().into_iter().flatten();
        let mut others = objects.filter(|(object, live)| {
            object.gvk == dask::api::autoscaler()
                && object.namespace == cluster.namespace
                && live["spec"]["cluster"] == cluster.name.as_str()
                && !self.seen.has_applied(live)
        });
        let Some((other, _)) = others.next() else { return };
        self.notes.push(Note::of(
            Code::TwoWriters,
            &resource.address,
            format!(
                "{other}, which is not in this stack, sets the number of workers too, and the two overwrite \
                 each other: delete it, or leave the number to it with `replicas = {{ start = 2 }}`"
            ),
        ));
    }

    fn given_away(&mut self, resource: &Resource, live: &Value, compared: &mut Compared) {
        let path = dask::api::replicas_path();
        let Some(start) = path.find(&resource.create_only) else { return };
        let autoscaled = self.is_autoscaled(resource);
        let to = if autoscaled { "the autoscaler" } else { "notebooks" };
        for field in compared.changes.iter_mut().filter(|field| field.path == path && field.after.is_none()) {
            field.note = Some(format!("unchanged, and left to {to} from now on"));
        }
        let set = self.seen.inputs.owner.initial_manager();
        let now = path.find(live);
        if !autoscaled && now.is_some_and(|now| now != start) && diff::owns(live, &set, &path) {
            self.notes.push(Note::of(
                Code::StartHasNoEffect,
                &resource.address,
                format!(
                    "`start = {start}` applies only at creation; the number now belongs to notebooks and is \
                     not changed"
                ),
            ));
        }
    }

    fn is_autoscaled(&self, resource: &Resource) -> bool {
        let Identity::Object(cluster) = &resource.identity else { return false };
        self.seen.inputs.desired.iter().any(|other| match &other.identity {
            Identity::Object(object) => {
                object.gvk == dask::api::autoscaler()
                    && object.namespace == cluster.namespace
                    && other.body["spec"]["cluster"] == cluster.name.as_str()
            }
            _ => false,
        })
    }

    /// Drift never runs a job again: its text is taken back where it is, unless the file's text changed, too. Nor does a
    /// change of the cluster that it copied. A job that failed is told of.
    fn job(&mut self, resource: &Resource, live: &Value, compared: &mut Compared) {
        let record = self.seen.inputs.world.record.as_ref();
        let made = record.and_then(|record| record.passes.get(&resource.identity));
        let edited = made.is_some_and(|made| !kinds::kubernetes::made::is(made, resource));
        for field in &mut compared.changes {
            if field.drift.is_some() && !edited {
                field.effect = Effect::InPlace;
                field.note = Some("the job does not run again because of it".to_owned());
            } else if !resource.origin.contains(&resource.origin_of(&field.path)) {
                field.effect = Effect::Ignored;
                field.note = Some("the job copied its cluster when it started".to_owned());
            }
        }
        if live["status"]["jobStatus"] == "Failed" {
            self.notes.push(Note::of(
                Code::JobEnded,
                &resource.address,
                format!("the job failed; `--replace {}` runs it again", resource.address),
            ));
        }
    }

    /// Whether a thing is wanted, not there, and rightly so: it was made once in its present text and has gone since,
    /// or it goes with a cluster of that sort.
    pub(super) fn stays_gone(&mut self, resource: &Resource) -> bool {
        let Inputs { world, mode: _, replace, .. } = self.seen.inputs;
        let live = world.find(&resource.identity).filter(|_| !self.renewed);
        if live.is_some_and(|live| !is_going(live)) || replace.contains(&resource.address) {
            return false;
        }
        if self.cluster_of(resource).is_some_and(|cluster| self.gone.contains(&cluster)) {
            return true;
        }
        let Life::Once { .. } = resource.life else { return false };
        let passed = world.record.as_ref().and_then(|record| record.passes.get(&resource.identity));
        if self.renewed || !passed.is_some_and(|made| kinds::kubernetes::made::is(made, resource)) {
            return false;
        }
        let address = &resource.address;
        let idle = &resource.body["spec"]["idleTimeout"];
        let (code, message) = match idle.as_u64() {
            Some(seconds) => (
                Code::IdleGone,
                format!(
                    "it does not exist: the operator deletes it after {seconds} s without work. `--replace \
                     {address}` recreates it"
                ),
            ),
            None => (
                Code::JobEnded,
                format!("the job has run and was deleted since; `--replace {address}` runs it again"),
            ),
        };
        self.notes.push(Note::of(code, address, message));
        true
    }

    /// Why making a thing that runs once may be to run it again: an apply died while it made it, or the record that would
    /// know is lost.
    pub(super) fn may_have_run(&self, resource: &Resource) -> Option<Unknown> {
        let Inputs { world, replace, .. } = self.seen.inputs;
        let once = matches!(resource.life, Life::Once { .. }) && !replace.contains(&resource.address);
        if !once || self.renewed {
            return None;
        }
        match &world.record {
            Some(record) if record.begun.contains(&resource.identity) => Some(Unknown::Interrupted),
            None if self.has_things() => Some(Unknown::RecordMissing),
            Some(_) | None => None,
        }
    }

    /// The DaskCluster that a wanted group or autoscaler is attached to.
    fn cluster_of(&self, resource: &Resource) -> Option<Identity> {
        let Identity::Object(object) = &resource.identity else { return None };
        let attached = object.gvk == dask::api::group() || object.gvk == dask::api::autoscaler();
        let name = resource.body["spec"]["cluster"].as_str().filter(|_| attached)?.to_owned();
        let (gvk, namespace) = (dask::api::cluster(), object.namespace.clone());
        Some(Identity::Object(ObjectId { gvk, namespace, name }))
    }

    /// The DaskCluster that takes a live group or autoscaler along when it goes in this plan: the operator has made it
    /// their owner.
    pub(super) fn goes_with(&self, resource: &Resource, live: &Value) -> Option<Address> {
        let Identity::Object(object) = &resource.identity else { return None };
        let attached = object.gvk == dask::api::group() || object.gvk == dask::api::autoscaler();
        let owners = live["metadata"]["ownerReferences"].as_array().map_or(0, Vec::len);
        if !attached || owners == 0 || !self.seen.has_applied(live) {
            return None;
        }
        let cluster = Identity::Object(ObjectId {
            gvk: dask::api::cluster(),
            namespace: object.namespace.clone(),
            name: live["spec"]["cluster"].as_str()?.to_owned(),
        });
        let goes = |change: &&super::Change| {
            change.identity == cluster
                && matches!(change.action, super::Action::Replace | super::Action::Create)
        };
        self.changes.iter().find(goes).map(|change| change.address.clone())
    }
}
