//! Limits of nodes that come all at once, as a file tells them without a network, each at its boundary: the most is taken,
//! and one more is named by its code. Source: "Limitations" of GKE's guide to the Dynamic Workload Scheduler.

use std::collections::BTreeMap;
use std::fs;

use stack::{Options, parse_in};

/// A pool for requests with this maximum, two GPUs a node, and one that the operator runs on.
fn pools(most: u64, buys: &str) -> String {
    format!(
        "[stack]\nname = \"s\"\n[gke]\nproject = \"demo\"\nlocation = \"us-central1-c\"\n[cluster]\nname = \"c\"\n\
         [node_pool.cpu]\nmachine_type = \"e2-standard-8\"\n\
         [node_pool.a100]\nmachine_type = \"a2-highgpu-2g\"\nnodes = {{ min = 0, max = {most} }}\n{buys}\n\
         [dask_operator]\nversion = \"2026.3.0\"\n"
    )
}

const QUEUED: &str =
    "queued = true\nreservation = \"none\"\nlocation_policy = \"any\"\nauto_repair = false\ngvnic = true";
/// The `queued` option by another key.
const WAY: &str = "capacity = [\"queued\"]";
const KUEUE: &str = "[kueue]\nmanage = false\n[queue.q]\npool = \"a100\"\n";

/// Codes of what is said about a stack, with a manifest beside it.
fn diagnostic_codes(stack: &str, manifest: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("m.yaml"), manifest).unwrap();
    let options = Options { env: &|_| None, vars: &BTreeMap::new(), helm: None };
    let found = match parse_in(folder.path(), "stack.toml", stack, &options) {
        Ok(loaded) => loaded.warnings,
        Err(failure) => failure.diagnostics,
    };
    found.iter().map(|diagnostic| diagnostic.code.as_str().to_owned()).collect()
}

/// Holds one limit at its boundary.
fn holds(what: &str, code: &str, most: u64, codes: impl Fn(u64) -> Vec<String>) {
    let is = |number: u64| codes(number).iter().any(|one| one == code);
    assert!(!is(most), "{what}: {most} is taken, and not {:?}", codes(most));
    assert!(is(most + 1), "{what}: {} is {code}, and not {:?}", most + 1, codes(most + 1));
}

/// A section whose pods take one node each, as many as are asked for.
type Asks = fn(u64) -> String;

const REQUESTS: [(&str, Asks); 5] = [
    ("request", |number| format!("[provisioning_request.r]\ncount = {number}\ngpus = 2\npool = \"a100\"\n")),
    ("job", |number| {
        format!(
            "[job.j]\nimage = \"i:1\"\ngpus = 2\npool = \"a100\"\nparallelism = {number}\n[provisioning_request.r]\njob = \"j\"\n"
        )
    }),
    ("cluster", |number| {
        format!(
            "[dask_cluster.d]\nimage = \"i:1\"\ncapacity = \"queued\"\nworker = {{ replicas = {number}, gpus = 2, pool = \"a100\" }}\n"
        )
    }),
    ("group", |number| {
        format!(
            "[dask_cluster.d]\nimage = \"i:1\"\n[dask_cluster.d.group.more]\ncapacity = \"queued\"\nreplicas = {number}\n\
             gpus = 2\npool = \"a100\"\n"
        )
    }),
    ("Dask job", |number| {
        format!(
            "[dask_job.j]\nimage = \"i:1\"\nargs = [\"python\"]\ncapacity = \"queued\"\n\
             worker = {{ replicas = {number}, gpus = 2, pool = \"a100\" }}\n"
        )
    }),
];

const GANGS: [(&str, Asks); 4] = [
    ("cluster", |number| {
        format!(
            "[dask_cluster.d]\nimage = \"i:1\"\nqueue = \"q\"\nscheduler = {{ pool = \"cpu\" }}\n\
             worker = {{ replicas = {number}, gpus = 2, pool = \"a100\" }}\n"
        )
    }),
    ("group", |number| {
        format!(
            "[dask_cluster.d]\nimage = \"i:1\"\n[dask_cluster.d.group.more]\nqueue = \"q\"\nreplicas = {number}\n\
             gpus = 2\npool = \"a100\"\n"
        )
    }),
    ("Dask job", |number| {
        format!(
            "[dask_job.j]\nimage = \"i:1\"\nargs = [\"python\"]\nqueue = \"q\"\n\
             worker = {{ replicas = {number}, gpus = 2, pool = \"a100\" }}\n"
        )
    }),
    ("job", |number| {
        format!(
            "[job.j]\nimage = \"i:1\"\ngpus = 2\npool = \"a100\"\nqueue = \"q\"\nparallelism = {number}\n"
        )
    }),
];

/// A request of a manifest, with its pods.
fn manifest(sets: u64, count: u64, seconds: u64) -> String {
    let set = format!("  - count: {count}\n    podTemplateRef: {{ name: pods }}\n");
    let sets = set.repeat(usize::try_from(sets).unwrap());
    format!(
        "apiVersion: v1\nkind: PodTemplate\nmetadata: {{ name: pods, namespace: default }}\ntemplate:\n  spec:\n    \
         nodeSelector: {{ cloud.google.com/gke-nodepool: a100 }}\n    containers:\n    - name: c\n      image: i:1\n      \
         resources: {{ limits: {{ nvidia.com/gpu: 2 }} }}\n    restartPolicy: Never\n---\n\
         apiVersion: autoscaling.x-k8s.io/v1\nkind: ProvisioningRequest\nmetadata: {{ name: r, namespace: default }}\nspec:\n  \
         provisioningClassName: queued-provisioning.gke.io\n  parameters: {{ maxRunDurationSeconds: \"{seconds}\" }}\n  \
         podSets:\n{sets}"
    )
}

const MANIFEST: &str = "[manifest.m]\nfile = \"m.yaml\"\n";

#[test]
fn a_request_has_a_thousand_machines_at_most() {
    for buys in [QUEUED, WAY] {
        for (what, asks) in REQUESTS {
            holds(what, "DI0324", 1000, |number| {
                diagnostic_codes(&format!("{}{}", pools(15000, buys), asks(number)), "")
            });
        }
        for (what, asks) in GANGS {
            let all =
                |number: u64| diagnostic_codes(&format!("{}{KUEUE}{}", pools(15000, buys), asks(number)), "");
            holds(what, "DI0321", 1000, all);
        }
        let stack = format!("{}{MANIFEST}", pools(15000, buys));
        holds("manifest", "DI0324", 1000, |number| diagnostic_codes(&stack, &manifest(1, number, 600)));
    }
    holds("pool", "DI0290", 1000, |most| {
        diagnostic_codes(&pools(most, &format!("{QUEUED}\nmax_run_duration = \"1d\"")), "")
    });
}

#[test]
fn a_request_fits_the_maximum_of_its_pool() {
    for (what, asks) in REQUESTS {
        holds(what, "DI0324", 4, |number| {
            diagnostic_codes(&format!("{}{}", pools(4, QUEUED), asks(number)), "")
        });
    }
    for (what, asks) in GANGS {
        holds(what, "DI0321", 4, |number| {
            diagnostic_codes(&format!("{}{KUEUE}{}", pools(4, QUEUED), asks(number)), "")
        });
    }
    let stack = format!("{}{MANIFEST}", pools(4, QUEUED));
    holds("manifest", "DI0324", 4, |number| diagnostic_codes(&stack, &manifest(1, number, 600)));
    // Two pods of one GPU each share a node.
    let shared =
        |number: u64| format!("[provisioning_request.r]\ncount = {number}\ngpus = 1\npool = \"a100\"\n");
    holds("shared nodes", "DI0324", 8, |number| {
        diagnostic_codes(&format!("{}{}", pools(4, QUEUED), shared(number)), "")
    });
}

#[test]
fn nodes_last_for_seven_days_at_most() {
    const WEEK: u64 = 604_800;
    let lasts = |seconds: u64| format!("max_run_duration = \"{seconds}s\"\n");
    let pool = |seconds| diagnostic_codes(&pools(4, &format!("{QUEUED}\n{}", lasts(seconds))), "");
    holds("pool", "DI0289", WEEK, pool);
    let queue = |seconds| diagnostic_codes(&format!("{}{KUEUE}{}", pools(4, QUEUED), lasts(seconds)), "");
    holds("queue", "DI0289", WEEK, queue);
    let sections = [
        "[provisioning_request.r]\ncount = 2\ngpus = 2\npool = \"a100\"\n",
        "[dask_job.j]\nimage = \"i:1\"\nargs = [\"python\"]\ncapacity = \"queued\"\n\
         worker = { replicas = 2, gpus = 2, pool = \"a100\" }\n",
        "[dask_cluster.d]\nimage = \"i:1\"\ncapacity = \"queued\"\nworker = { replicas = 2, gpus = 2, pool = \"a100\" }\n",
        "[dask_cluster.d]\nimage = \"i:1\"\n[dask_cluster.d.group.more]\ncapacity = \"queued\"\nreplicas = 2\ngpus = 2\n\
         pool = \"a100\"\n",
    ];
    for section in sections {
        let all = |seconds| diagnostic_codes(&format!("{}{section}{}", pools(4, QUEUED), lasts(seconds)), "");
        holds(section, "DI0289", WEEK, all);
    }
    let stack = format!("{}{MANIFEST}", pools(4, QUEUED));
    holds("manifest", "DI0326", WEEK, |seconds| diagnostic_codes(&stack, &manifest(1, 2, seconds)));
}

#[test]
fn a_request_has_one_pod_set() {
    let stack = format!("{}{MANIFEST}", pools(4, QUEUED));
    holds("manifest", "DI0326", 1, |sets| diagnostic_codes(&stack, &manifest(sets, 2, 600)));
}

/// A run that is longer than the time between two windows meets one, whatever key sets its length.
#[test]
fn runs_end_between_two_maintenance_windows() {
    const DAY: u64 = 86_400;
    let daily = "[cluster.maintenance]\ndaily = \"03:00\"\n";
    let lasts = |seconds: u64| format!("max_run_duration = \"{seconds}s\"\n");
    let of_pool = |seconds| {
        diagnostic_codes(&format!("{}{daily}", pools(4, &format!("{QUEUED}\n{}", lasts(seconds)))), "")
    };
    holds("pool", "DI0290", DAY, of_pool);
    let of_queue =
        |seconds| diagnostic_codes(&format!("{}{daily}{KUEUE}{}", pools(4, QUEUED), lasts(seconds)), "");
    holds("queue", "DI0290", DAY, of_queue);
    for (what, asks) in REQUESTS {
        // The key follows the section's own, and those of the Dask cluster go before its group.
        let all = |seconds| {
            diagnostic_codes(&format!("{}{daily}{}{}", pools(4, QUEUED), asks(2), lasts(seconds)), "")
        };
        holds(what, "DI0290", DAY, all);
    }
}
