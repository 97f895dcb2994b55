//! Hosts of `[ssh]` that are not looked at, or that are others than at the last apply, while something of the stack is there.

use std::collections::BTreeSet;

use serde_json::Value;

use super::planner::Planner;
use super::{Mode, Note};
use crate::address::Address;
use crate::diag::Code;
use crate::kinds::about::counted;
use crate::resource::{Host, KindId, Reach};

impl Planner<'_> {
    pub(super) fn hosts_in_doubt(&self) -> Vec<Note> {
        let mut notes = self.workers_elsewhere();
        notes.extend(self.hosts_elsewhere());
        notes
    }

    fn recorded_hosts(&self) -> impl Iterator<Item = &Host> {
        self.seen.inputs.world.record.iter().flat_map(|record| &record.hosts)
    }

    /// Workers that schedulers have on hosts that the stack does not look at.
    fn workers_elsewhere(&self) -> Vec<Note> {
        let inputs = self.seen.inputs;
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
                notes.push(Note::of(Code::GoneButThere, &resource.address, message));
            }
        }
        notes
    }

    /// Names that lead elsewhere than at the last apply, where what was there is not there now.
    fn hosts_elsewhere(&self) -> Vec<Note> {
        let inputs = self.seen.inputs;
        let lacks = |body: &Value, name: &str| {
            body["spec"]["hosts"].as_array().is_some_and(|hosts| hosts.iter().all(|host| host != name))
        };
        let live = inputs.desired.iter().filter(|resource| resource.kind == KindId::Environment);
        let live: Vec<&Value> = live.filter_map(|resource| inputs.world.find(&resource.identity)).collect();
        let mut told = BTreeSet::new();
        for before in self.recorded_hosts() {
            let now = inputs.target.hosts.iter().find(|now| now.name == before.name);
            if let Some(now) = now
                && way(now) != way(before)
                && live.iter().any(|live| lacks(live, &now.name))
            {
                told.insert((&now.name, way(before), way(now)));
            }
        }
        let note = |(name, before, now): (&String, String, String)| {
            let message = format!(
                "{name} was {before} at the last apply and is {now} now, where nothing of the stack is: what it has on the first stays there. \
                 To have that emptied, keep {name} as it was, or give the new host another name and leave {name} out"
            );
            Note::of(Code::HostMoved, &Address::new("stack"), message)
        };
        told.into_iter().map(note).collect()
    }
}

/// `ada@10.0.0.7:2222`
fn way(host: &Host) -> String {
    let Reach::Ssh { address, user, port, identity: _ } = &host.way else { return host.name.clone() };
    let user = user.as_ref().map(|user| format!("{user}@")).unwrap_or_default();
    let port = port.map(|port| format!(":{port}")).unwrap_or_default();
    format!("{user}{address}{port}")
}
