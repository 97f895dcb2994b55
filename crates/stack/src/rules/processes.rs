//! Checks that the keys for worker processes are compatible, on every target.

use crate::rules::Context;
use crate::rules::gpu_memory;
use crate::rules::worker_section::{Finding, Workers};
use kinds::dask::cluster::{Scheduler, Worker};
use kinds::dask::process::{Nanny, ports};
use kinds::hosts::cluster::TCP;
use kinds::hosts::workers::threads_of;
use kinds::worker_resources;
use model::address::FieldPath;
use model::diag::{Code, Diagnostic};

/// Checks that the keys for worker processes fit each other and the target.
pub(crate) fn processes_fit(context: &mut Context<'_>) {
    let on_hosts = context.stack.is_on_hosts();
    let mut findings = Vec::new();
    for (key, cluster) in &context.stack.dask_cluster {
        let path = FieldPath::keys(["dask_cluster", key]);
        let worker = &cluster.worker;
        let mut all = vec![Workers {
            path: path.key("worker"),
            process: &worker.process,
            device_memory: &worker.device_memory,
            image: &cluster.image,
            keys: &worker.keys,
            args: &worker.args,
            resources: &worker.resources,
        }];
        all.extend(cluster.group.iter().map(|(key, group)| Workers {
            path: path.key("group").key(key),
            process: &group.process,
            device_memory: &group.device_memory,
            image: group.image.as_deref().unwrap_or(&cluster.image),
            keys: &group.keys,
            args: &group.args,
            resources: &group.resources,
        }));
        for workers in &all {
            of_workers(workers, on_hosts, &mut findings);
        }
        of_scheduler(&cluster.scheduler, &path.key("scheduler"), &mut findings);
        if let Some(protocol) = &worker.protocol {
            of_protocol(protocol, &path.key("worker").key("protocol"), on_hosts, &mut findings);
        }
    }
    for (key, job) in &context.stack.dask_job {
        let path = FieldPath::keys(["dask_job", key]);
        if let Some(worker) = &job.worker {
            let path = path.key("worker");
            if let Some(protocol) = &worker.protocol {
                of_protocol(protocol, &path.key("protocol"), on_hosts, &mut findings);
            }
            let Worker { process, device_memory, keys, args, resources, .. } = worker;
            let like = job.like.as_ref().and_then(|like| context.stack.dask_cluster.get(like));
            let image = like.map(|like| &*like.image).or(job.image.as_deref()).unwrap_or_default();
            of_workers(
                &Workers { path, process, device_memory, image, keys, args, resources },
                on_hosts,
                &mut findings,
            );
        }
        if let Some(scheduler) = &job.scheduler {
            of_scheduler(scheduler, &path.key("scheduler"), &mut findings);
        }
    }
    for Finding { message, places, help } in findings {
        let is_of_value = places.len() == 1;
        let finding = Diagnostic::error(Code::WorkerProcess, message).help(help);
        let finding =
            places.into_iter().fold(finding, |finding, (place, said)| finding.at_value(place, said));
        if is_of_value { context.say_of_value(finding) } else { context.say(finding) }
    }
}

fn of_workers(workers: &Workers<'_>, on_hosts: bool, findings: &mut Vec<Finding>) {
    anywhere(workers, findings);
    findings.extend(Finding::of_resources(workers.resources, &workers.path.key("resources")));
    gpu_memory::fits(workers, findings);
    if on_hosts { on_a_host(workers, findings) } else { in_pods(workers, findings) }
}

fn of_scheduler(scheduler: &Scheduler, path: &FieldPath, findings: &mut Vec<Finding>) {
    if scheduler.host.is_some() && scheduler.interface.is_some() {
        findings.push(Finding {
            message: format!("`{path}` has both `host` and `interface`"),
            places: vec![(path.key("host"), "an address"), (path.key("interface"), "and another")],
            help: "keep one: the scheduler listens on one address".to_owned(),
        });
    }
}

fn anywhere(workers: &Workers<'_>, findings: &mut Vec<Finding>) {
    let Workers { path, process, keys, .. } = workers;
    let mut say = |message: String, places: Vec<(FieldPath, &'static str)>, help: &str| {
        findings.push(Finding { message, places, help: help.to_owned() });
    };
    let nanny = path.key("nanny");
    let fractions: Vec<_> = process.nanny.iter().flat_map(Nanny::fractions).collect();
    for (key, _) in fractions.iter().filter(|(_, fraction)| !fraction.is_sound()) {
        let message = format!("`{}` is not a fraction of the memory limit", nanny.key(key));
        say(message, vec![(nanny.key(key), "")], "give a number above 0 and up to 1, or `false` for never");
    }
    for pair in fractions.windows(2) {
        let [(one, lower), (other, upper)] = pair else { continue };
        if let (Some(lower), Some(upper)) = (lower.number(), upper.number().filter(|upper| *upper > 0.0))
            && lower > upper
        {
            let message = format!("`{}` is above `{}`", nanny.key(one), nanny.key(other));
            let places = vec![(nanny.key(one), "reached later"), (nanny.key(other), "reached first")];
            say(message, places, "memory fills in the order target, spill, pause, terminate");
        }
    }
    if !process.has_nanny() {
        let enabled = (nanny.key("enabled"), "no nanny");
        let several = process.processes.is_some_and(|processes| processes > 1);
        let rows = [
            (keys.gpus() > 0, path.key("gpus"), "`dask cuda worker` always has a nanny"),
            (several, path.key("processes"), "only a nanny runs several processes"),
            (process.nanny_port.is_some(), path.key("nanny_port"), "a worker listens on its own port only"),
            (
                fractions.iter().any(|(key, _)| *key == "terminate"),
                nanny.key("terminate"),
                "only a nanny ends a worker at its memory limit",
            ),
        ];
        for (_, place, why) in rows.into_iter().filter(|(there, ..)| *there) {
            let message = format!("`{place}` needs a nanny: {why}");
            say(message, vec![(place, ""), enabled.clone()], "remove one of them");
        }
    }
    if keys.gpus() > 0 && process.processes.is_some() {
        let message = format!("`{path}` has both `gpus` and `processes`");
        let places = vec![(path.key("gpus"), "one process for each GPU"), (path.key("processes"), "again")];
        say(message, places, "remove `processes`: `dask cuda worker` starts one process for each GPU");
    }
    for (name, _) in process.variables().iter().filter(|(name, _)| keys.env.contains_key(name)) {
        let message = format!("`{}` sets what `nanny` sets", path.key("env").key(name));
        let places = vec![(path.key("env").key(name), ""), (nanny.clone(), "and here")];
        say(message, places, "remove one of them");
    }
    for (key, place) in [("interface", &process.interface), ("local_directory", &process.local_directory)] {
        let Some(text) = place else { continue };
        if text.is_empty() || text.starts_with('-') {
            let message = format!("`{}` is not a value for it: `{text}`", path.key(key));
            say(message, vec![(path.key(key), "")], "give a name, or remove it");
        }
    }
}

fn join(section: &FieldPath, key: &FieldPath) -> FieldPath {
    section.segments().iter().chain(key.segments()).cloned().collect()
}

fn on_a_host(workers: &Workers<'_>, findings: &mut Vec<Finding>) {
    let Workers { path, process, keys, .. } = workers;
    if let (Some(threads), Some(cpu)) = (process.threads, keys.cpu.as_deref())
        && threads_of(cpu).is_some_and(|known| known != u64::from(threads))
    {
        findings.push(Finding {
            message: format!("`{path}` has two numbers of threads: on a host `cpu` is one, too"),
            places: vec![(path.key("threads"), "threads"), (path.key("cpu"), "threads, on a host")],
            help: "remove one of them, or give the same number in both".to_owned(),
        });
    }
    if let Some(folder) = &process.local_directory
        && !folder.starts_with('/')
        && !folder.starts_with("~/")
    {
        let place = path.key("local_directory");
        findings.push(Finding::relative_path(folder, place, "begin it with `/` or with `~/`"));
    }
    for (key, text) in process.port_keys() {
        let place = path.key(key);
        let processes = process.processes.unwrap_or(1);
        let (message, help) = match ports(text) {
            // `dask cuda worker` has no such option. Source: `cli.py` of dask-cuda 26.10.
            _ if keys.gpus() > 0 => (
                format!("`{place}` cannot be used with `gpus`: `dask cuda worker` has no option for it"),
                "remove it, or let the ports of `/proc/sys/net/ipv4/ip_local_port_range` through the firewall",
            ),
            None => (
                format!("`{}` is neither a port nor a range of ports", text.escape_debug()),
                "write `\"40000\"`, or the first and the last of several: `\"40000:40099\"`",
            ),
            Some((first, last)) if u32::from(last - first) + 1 < processes => (
                format!("`{place}` has fewer ports than the {processes} processes of a worker"),
                "each process of each worker on the host needs one: give a longer range",
            ),
            Some(_) => continue,
        };
        findings.push(Finding { message, places: vec![(place, "")], help: help.to_owned() });
    }
}

fn in_pods(workers: &Workers<'_>, findings: &mut Vec<Finding>) {
    let Workers { path, process, device_memory, resources, .. } = workers;
    if process.processes.is_some_and(|processes| processes > 1) {
        findings.push(Finding {
            message: format!(
                "`{}` cannot be used on Kubernetes: the Dask operator retires a worker by the name of its Pod, and \
                 several processes have names of their own",
                path.key("processes")
            ),
            places: vec![(path.key("processes"), "for hosts")],
            help: "raise `replicas` instead: one process a Pod".to_owned(),
        });
    }
    for (key, _) in process.port_keys() {
        findings.push(Finding {
            message: format!(
                "`{}` cannot be used on Kubernetes: each Pod has an address of its own",
                path.key(key)
            ),
            places: vec![(path.key(key), "for hosts")],
            help: "remove it; a NetworkPolicy says who may reach a Pod".to_owned(),
        });
    }
    if let Some(folder) = process.local_directory.as_deref().filter(|folder| !folder.starts_with('/')) {
        let help = "begin it with `/`: in a container there is no home to begin with";
        findings.push(Finding::relative_path(folder, path.key("local_directory"), help));
    }
    let options = process.options().into_iter().map(|(key, option, _)| (FieldPath::keys([key]), option));
    let options = options.chain(device_memory.options().into_iter().map(|(key, option, _)| (key, option)));
    let declares =
        (!resources.is_empty()).then(|| (FieldPath::keys(["resources"]), worker_resources::OPTION));
    let options = options.chain(declares);
    for (key, option) in options.filter(|(_, option)| workers.has_option(option)) {
        let key = join(path, &key);
        findings.push(Finding {
            message: format!("`{key}` sets `{option}`, and so does `{}`", path.key("args")),
            places: vec![(key, ""), (path.key("args"), "and here")],
            help: "remove one of them".to_owned(),
        });
    }
}

fn of_protocol(protocol: &str, place: &FieldPath, on_hosts: bool, findings: &mut Vec<Finding>) {
    let mut say = |message: String, help: &str| {
        findings.push(Finding { message, places: vec![(place.clone(), "")], help: help.to_owned() });
    };
    let is_word = protocol.starts_with(|c: char| c.is_ascii_lowercase())
        && protocol.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    if !is_word {
        say(format!("`{protocol}` is not a protocol of Dask"), "`tls`, `tcp` and `ucx` are");
    } else if !on_hosts && protocol != TCP {
        let why = "the Dask operator gives workers a `tcp://` address";
        say(
            format!("`{place}` cannot be `{protocol}` on Kubernetes: {why}"),
            match protocol {
                "ucx" => {
                    "remove it: a `[job]` with all GPUs of a node can run `LocalCUDACluster(protocol=\"ucx\")`, and stacks with \
                     `[local]`, `[ssh]` or `[slurm]` have `protocol = \"ucx\"`"
                }
                _ => "remove it, or put it into the stack of a host",
            },
        );
    }
}
