//! Losses on hosts that no other module reports. A host of `[ssh]` may be unreachable, or its name may lead to another machine
//! than at the last apply. The last workers of a Dask cluster may hold data, and certificates expire.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

use crate::planner::Planner;
use crate::reason::Reason;
use crate::{Action, Inputs, Mode, Note};
use kinds::descriptions::counted;
use kinds::hosts;
use kinds::kind::Kind;
use model::address::Address;
use model::diag::Code;
use model::resource::{Effect, FieldChange, Host, HostConnection, KindId, ObjectId, Resource};

impl Planner<'_> {
    pub(crate) fn host_notes(&self) -> Vec<Note> {
        let mut notes = self.moved_worker_notes();
        notes.extend(self.moved_host_notes());
        notes.extend(self.left_without_workers());
        notes.extend(self.expiring_certificate_notes());
        notes
    }

    /// Marks replacements of Dask clusters that have no process: nothing is lost. Workers of groups, jobs in a queue and unread
    /// hosts count as processes.
    pub(crate) fn mark_replacements_without_processes(&mut self) {
        let Inputs { world, target, .. } = self.observed.inputs;
        let group = hosts::api::group();
        let has_group = |name: &str| {
            let mut live = world.objects.live().into_iter().flatten();
            live.any(|(object, live)| object.gvk == group && live["spec"]["cluster"] == name)
        };
        for change in &mut self.changes {
            if change.action != Action::Replace || change.kind != KindId::HostCluster {
                continue;
            }
            let (Some(object), Some(live)) = (change.identity.object(), world.find(&change.identity)) else {
                continue;
            };
            let (status, worker) = (&live["status"], &live["spec"]["worker"]);
            let is_idle = status["converging"] == false
                && status["scheduler"]["running"] == false
                && status["workers"]["running"] == 0;
            let is_alone =
                target.gone.is_empty() && worker.get("slurm").is_none() && !has_group(&object.name);
            if is_idle && is_alone {
                change.reasons.push(Reason::NothingRuns);
            }
        }
    }

    /// Returns notes on certificates of running Dask clusters that expire soon, or whose files are lost while `protect` forbids a
    /// replacement.
    fn expiring_certificate_notes(&self) -> Vec<Note> {
        let inputs = self.observed.inputs;
        let replaced = |resource: &Resource| {
            self.changes
                .iter()
                .any(|change| change.identity == resource.identity && change.action == Action::Replace)
        };
        let clusters = inputs.desired.iter().filter(|resource| resource.kind == KindId::HostCluster);
        let mut notes = Vec::new();
        for resource in clusters.filter(|resource| !replaced(resource)) {
            let Some(live) = inputs.world.find(&resource.identity) else { continue };
            let scheduler = &live["status"]["scheduler"];
            let tls = &scheduler["tls"];
            if scheduler["running"] != true {
                continue;
            }
            let what = if tls["lost"] == true && resource.protect {
                "its certificates are gone or have ended, and it is protected".to_owned()
            } else if tls["due"] == true {
                let ends = tls["ends"].as_str().unwrap_or_default();
                format!("its certificates end on {}", ends.split('T').next().unwrap_or_default())
            } else {
                continue;
            };
            let message = format!(
                "{what}: renewing them replaces the Dask cluster, and what it holds in memory is lost"
            );
            notes.push(Note::new(Code::CertificatesEnd, &resource.address, message));
        }
        notes
    }

    fn recorded_hosts(&self) -> impl Iterator<Item = &Host> {
        self.observed.inputs.world.record.iter().flat_map(|record| &record.hosts)
    }

    /// Returns notes on workers that run on hosts which are not in the stack.
    fn moved_worker_notes(&self) -> Vec<Note> {
        let inputs = self.observed.inputs;
        let (target, mut notes) = (&inputs.target, Vec::new());
        for resource in inputs.desired.iter().filter(|resource| resource.kind == KindId::HostCluster) {
            let live = inputs.world.find(&resource.identity).unwrap_or(&Value::Null);
            let hosts = live["status"]["scheduler"]["workersOn"].as_object();
            for (host, number) in hosts.into_iter().flatten() {
                let is_gone = target.gone.contains(host);
                let is_recorded = self.recorded_hosts().any(|known| known.name == *host);
                // One that left the file is still to be emptied.
                if target.hosts.iter().any(|known| known.name == *host) || is_recorded && !is_gone {
                    continue;
                }
                let number = number.as_u64().unwrap_or_default();
                let (workers, run) = (counted(number, "worker"), if number == 1 { "runs" } else { "run" });
                let what = if is_gone { "is named in `gone`" } else { "is not in `hosts`" };
                let cure = match (is_recorded, inputs.mode) {
                    (true, Mode::Apply) => "remove it from `gone`: the next apply empties it",
                    (true, Mode::Destroy) => "remove it from `gone` first: then this destroy empties it",
                    (false, Mode::Apply) => {
                        "add it to `hosts` and apply: after that, an apply without it empties it"
                    }
                    (false, Mode::Destroy) => "add it to `hosts` first: then this destroy empties it",
                };
                let message = format!(
                    "{host} {what}, but {workers} of {} {run} there, until the scheduler ends; if {host} exists, {cure}",
                    resource.address
                );
                notes.push(Note::new(Code::GoneButThere, &resource.address, message));
            }
        }
        notes
    }

    /// Returns notes on Dask clusters that stay and lose their last workers.
    pub(crate) fn left_without_workers(&self) -> Vec<Note> {
        let inputs = self.observed.inputs;
        let live = inputs.world.objects.live().into_iter().flatten();
        let (group, cluster) = (hosts::api::group(), hosts::api::cluster());
        let parts: Vec<(&ObjectId, &Value)> =
            live.filter(|(object, _)| object.gvk == cluster || object.gvk == group).collect();
        if parts.is_empty() {
            return Vec::new();
        }
        let changes =
            self.changes.iter().filter_map(|change| Some((change.identity.object()?, change.action)));
        let changes: HashMap<&ObjectId, Action> = changes.collect();
        let action = |object: &ObjectId| changes.get(object).copied().unwrap_or(Action::Keep);
        let number = hosts::api::replicas_path();
        // Where the work sets the number, it finds workers.
        let workers = |body: &Value| number.find(body).and_then(Value::as_u64).unwrap_or(1);
        let mut notes = Vec::new();
        for resource in inputs.desired.iter().filter(|resource| resource.kind == KindId::HostCluster) {
            let Some(cluster) = resource.identity.object() else { continue };
            let is_live = parts.iter().any(|(object, _)| *object == cluster);
            if !is_live || !matches!(action(cluster), Action::Keep | Action::Update) {
                continue;
            }
            let is_part = |object: &ObjectId, body: &Value| {
                object == cluster
                    || body["spec"]["cluster"] == cluster.name.as_str() && body["spec"]["worker"].is_object()
            };
            let (mut before, mut after) = (0, 0);
            for (object, body) in parts.iter().filter(|(object, body)| is_part(object, body)) {
                before += workers(body);
                if matches!(action(object), Action::Keep | Action::Forget) {
                    after += workers(body);
                }
            }
            for one in inputs.desired.iter() {
                if let Some(object) = one.identity.object()
                    && is_part(object, &one.body)
                    && matches!(action(object), Action::Create | Action::Update | Action::Replace)
                {
                    after += workers(&one.body);
                }
            }
            if before > 0 && after == 0 {
                let message = "no workers are left: results in their memory are computed again when there are workers, and data that \
                               was scattered is lost";
                notes.push(Note::new(Code::NoWorkersLeft, &resource.address, message));
            }
        }
        notes
    }

    /// Returns notes on host names that lead to another machine than at the last apply: the stack's processes are not there.
    fn moved_host_notes(&self) -> Vec<Note> {
        let inputs = self.observed.inputs;
        let lacks = |body: &Value, name: &str| {
            body["spec"]["hosts"].as_array().is_some_and(|hosts| hosts.iter().all(|host| host != name))
        };
        let live = inputs.desired.iter().filter(|resource| resource.kind == KindId::Environment);
        let live: Vec<&Value> = live.filter_map(|resource| inputs.world.find(&resource.identity)).collect();
        let mut told = BTreeSet::new();
        for before in self.recorded_hosts() {
            let now = inputs.target.hosts.iter().find(|now| now.name == before.name);
            if let Some(now) = now
                && reach_text(now) != reach_text(before)
                && live.iter().any(|live| lacks(live, &now.name))
            {
                told.insert((&now.name, reach_text(before), reach_text(now)));
            }
        }
        let note = |(name, before, now): (&String, String, String)| {
            let message = format!(
                "{name} was {before} at the last apply and is {now} now, where nothing of the stack is: what it has on the first stays there. \
                 To have that emptied, keep {name} as it was, or give the new host another name and leave {name} out"
            );
            Note::new(Code::HostMoved, &Address::new("stack"), message)
        };
        told.into_iter().map(note).collect()
    }
}

/// Adjusts the changes of workers on hosts: no restart is shown if none run, and the hosts on which workers start or stop are
/// listed once.
pub(crate) fn adjust_host_worker_changes(kind: &Kind, live: &Value, changes: &mut Vec<FieldChange>) {
    if !kind.retires_gracefully {
        return;
    }
    if hosts::api::replicas_path().find(live).is_some_and(|number| *number == 0) {
        for change in changes.iter_mut().filter(|change| change.effect == Effect::Rolling) {
            (change.effect, change.note) = (Effect::InPlace, None);
        }
    }
    let [all, of_workers] = hosts::api::hosts_paths();
    if changes.iter().any(|change| of_workers.contains(&change.path)) {
        changes.retain(|change| !all.contains(&change.path));
    }
}

/// `ada@10.0.0.7:2222`
fn reach_text(host: &Host) -> String {
    let HostConnection::Ssh { address, user, port, .. } = &host.connection else { return host.name.clone() };
    let user = user.as_ref().map(|user| format!("{user}@")).unwrap_or_default();
    let port = port.map(|port| format!(":{port}")).unwrap_or_default();
    format!("{user}{address}{port}")
}
