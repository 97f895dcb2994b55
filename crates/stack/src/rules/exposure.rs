//! Checks of schedulers on hosts that other users can reach without TLS.

use std::net::IpAddr;

use crate::rules::Context;
use crate::rules::hosts::section_of;
use kinds::dask::cluster::Scheduler;
use kinds::hosts::cluster::{AUTO, TCP, TLS, listen_address};
use model::address::FieldPath;
use model::diag::{Code, Diagnostic};

/// Warns of schedulers without TLS that other machines can reach: anyone who connects can run code as the user of the hosts.
pub(crate) fn schedulers_are_not_open(context: &mut Context<'_>) {
    let stack = context.stack;
    let (hosts, tls) = (stack.hosts(), stack.speaks_tls());
    let of_target = FieldPath::keys([section_of(stack), "tls"]);
    let says = [stack.local.as_ref().and_then(|local| local.tls), stack.ssh.as_ref().and_then(|ssh| ssh.tls)];
    let says = says.into_iter().chain([stack.slurm.as_ref().and_then(|slurm| slurm.tls)]).flatten().next();
    let usual = Scheduler::default();
    let clusters = stack.dask_cluster.iter().map(|(key, cluster)| {
        (FieldPath::keys(["dask_cluster", key]), &cluster.scheduler, cluster.worker.protocol.as_ref())
    });
    let jobs = stack.dask_job.iter().map(|(key, job)| {
        let own = job.worker.as_ref().and_then(|worker| worker.protocol.as_ref());
        (FieldPath::keys(["dask_job", key]), job.scheduler.as_ref().unwrap_or(&usual), own)
    });
    let mut findings = Vec::new();
    for (path, scheduler, own) in clusters.chain(jobs).filter(|_| stack.is_on_hosts()) {
        let speaks = own.map_or(if tls { TLS } else { TCP }, String::as_str);
        let (at, place) = match (&scheduler.slurm, &scheduler.interface, &scheduler.host) {
            (Some(_), ..) => ("its node", path.key("scheduler")),
            (None, Some(interface), _) => (interface.as_str(), path.key("scheduler").key("interface")),
            (None, None, Some(_)) => (listen_address(scheduler, &hosts), path.key("scheduler").key("host")),
            (None, None, None) => (listen_address(scheduler, &hosts), path.clone()),
        };
        let is_loopback =
            ["lo", "localhost"].contains(&at) || at.parse().is_ok_and(|at: IpAddr| at.is_loopback());
        if speaks == TLS || is_loopback {
            continue;
        }
        let at = if at == AUTO { "the login node" } else { at };
        let what = format!(
            "anyone who can connect to the scheduler of `{path}` on {at} can run code as you: `{speaks}` authenticates nobody"
        );
        let (place, help) = match own {
            Some(_) => (
                path.key("worker").key("protocol"),
                "`protocol = \"tls\"` lets only clients with its certificates connect",
            ),
            None if says.is_some() => {
                (of_target.clone(), "without `tls = false` only clients with its certificates connect")
            }
            None => (place, "`tls = true` in `[local]` lets only clients with its certificates connect"),
        };
        findings.push(Diagnostic::warning(Code::OpenScheduler, what).at_value(place, "").help(help));
    }
    findings.into_iter().for_each(|finding| context.say(finding));
}
