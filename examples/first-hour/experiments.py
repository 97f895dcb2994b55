"""The experiments in their order: what is asked and expected, what it takes, and how it is tried."""

import json
import os
import shutil
import subprocess

import google
from hour import PROBE
from report import as_expected, differs, judged, not_tried

ALL = []

# What each part needs. `look` reads, and asks for what is refused.
LOOK, CLUSTER, GPU, END = "look", "cluster", "gpu", "end"


class Experiment:
    """One question."""

    def __init__(self, run, part, minutes, machines, question, expected, dollars, lays):
        self.run, self.part, self.minutes, self.machines = run, part, minutes, machines
        self.question, self.expected, self.dollars, self.lays = question, expected, dollars, lays
        self.name = run.__name__.replace("_", "-")


def experiment(part, question, expected, minutes=0, machines="no other machines", dollars=0.0, lays=None):
    """Puts a function among the experiments. It adds `dollars` and the sections that it `lays` to an hour."""

    def put(run):
        ALL.append(Experiment(run, part, minutes, machines, question, expected, dollars, lays))
        return run

    return put


# What could not be settled in an hour, and why.
NEVER = [
    (
        "control-plane-away",
        "How long a zonal control plane is away during an upgrade or a repair",
        "nobody can bring it about",
    ),
    (
        "mig-label",
        "The node label cloud.google.com/gke-gpu-partition-size, and partitions of H100 Mega",
        "needs an A100 or a newer GPU",
    ),
    ("stock-out", "What GKE says when a zone has no machines", "nobody can bring it about"),
    ("autoscaler-minimum", "Whether the autoscaler brings a pool up to its minimum", "may take longer than the hour"),
    (
        "flex-start-change",
        "What changing flex_start does to nodes",
        "needs quota for flex-start and waits for machines",
    ),
    (
        "unknown-effects",
        "The fields that docs/gke-fields.md calls unknown, but max_run_duration",
        "one at a time, on a cluster of their own",
    ),
]


# Reading. Costs nothing.


@experiment(LOOK, "Does `doctor` find everything that an apply needs?", "nothing is missing")
def doctor(hour):
    done = hour.dask_infra("doctor", "--json")
    try:
        found = json.loads(done.out)
    except ValueError:
        return differs(f"no JSON: {done.errors()}")
    bad = [f"{one['what']}: {one['seen']}" for one in found if one["mark"] == "bad"]
    return judged(not bad, "; ".join(bad) or "nothing is missing", marks={one["what"]: one["mark"] for one in found})


@experiment(LOOK, "Do the roles that `permissions` names hold what it says?", "each permission is in one of the roles")
def roles(hour):
    said = json.loads(hour.dask_infra("permissions", "--format", "json").out)
    held, missing = {}, {}
    for use in ("plan", "apply"):
        for role in said[use]["roles"]:
            if role not in held:
                answer = hour.google.ask("GET", "iam", f"v1/{role}")
                if not answer.good:
                    return not_tried(answer.words())
                held[role] = set(answer.body.get("includedPermissions", []))
        all_held = set().union(*(held[role] for role in said[use]["roles"]))
        missing[use] = sorted(set(said[use]["permissions"]) - all_held)
    return judged(not any(missing.values()), f"not held: {missing}" if any(missing.values()) else "all are held")


def catalog():
    """The program's table of GPUs: beside this file as `doctor --live` brings it, else in the repository."""
    here = os.path.dirname(os.path.abspath(__file__))
    for folder in (here, os.path.join(here, "../../schemas")):
        try:
            import tomllib

            with open(os.path.join(folder, "gcp-accelerators.toml"), "rb") as file:
                return tomllib.load(file)
        except (ImportError, OSError):
            continue
    return None


NO_CATALOG = "needs Python 3.11 and the repository's schemas/gcp-accelerators.toml"


@experiment(
    LOOK,
    "Are the quotas of GPUs called what the catalog calls them?",
    "each metric is one of the region's, or GPUS_ALL_REGIONS of the project",
)
def quota_metrics(hour):
    if (known := catalog()) is None:
        return not_tried(NO_CATALOG)
    region = hour.location.rpartition("-")[0]
    live = {}
    for path in (f"regions/{region}", ""):
        answer = hour.google.ask("GET", "compute", f"compute/v1/projects/{hour.project}/{path}".rstrip("/"))
        if not answer.good or "quotas" not in answer.body:
            return not_tried(answer.words() if not answer.good else "no quotas in the answer")
        live.update({quota["metric"]: quota["limit"] for quota in answer.body["quotas"]})
    wanted = {known["quota"]["global_gpu"], *known["quota"]["regional_on_demand"].values()}
    wanted |= {known["quota"]["preemptible_prefix"] + name for name in known["quota"]["regional_on_demand"].values()}
    unknown = sorted(wanted - set(live))
    gpus = {name: limit for name, limit in live.items() if "GPU" in name}
    return judged(not unknown, f"not there: {', '.join(unknown)}" if unknown else "all are there", limits=gpus)


@experiment(LOOK, "Are the catalog's GPUs the ones that the region's zones offer?", "the same GPUs in each zone")
def gpu_zones(hour):
    if (known := catalog()) is None:
        return not_tried(NO_CATALOG)
    region = hour.location.rpartition("-")[0]
    other = {}
    for zone in zones(hour, region):
        path = f"compute/v1/projects/{hour.project}/zones/{zone}/acceleratorTypes"
        items, answer = hour.google.pages("compute", path, "items")
        if items is None:
            return not_tried(answer.words())
        live = {
            item["name"] for item in items if item["name"].startswith("nvidia-") and not item["name"].endswith("-vws")
        }
        listed = {one["type"] for one in known["accelerator"] if zone in one.get("zones", [])}
        if live != listed:
            other[zone] = {"only live": sorted(live - listed), "only listed": sorted(listed - live)}
    return judged(not other, f"other GPUs in {', '.join(other)}" if other else "the same", zones=other)


def zones(hour, region):
    items, _ = hour.google.pages("compute", f"compute/v1/projects/{hour.project}/zones", "items")
    return sorted(item["name"] for item in items or [] if item["name"].startswith(region + "-"))


@experiment(LOOK, "Is a zone's letter never behind f, as the warning DI0207 takes it?", "letters from a to f")
def zone_letters(hour):
    items, answer = hour.google.pages("compute", f"compute/v1/projects/{hour.project}/zones", "items")
    if items is None:
        return not_tried(answer.words())
    beyond = sorted(item["name"] for item in items if item["name"].rpartition("-")[2] > "f")
    return judged(not beyond, f"beyond f: {', '.join(beyond)}" if beyond else f"{len(items)} zones from a to f")


@experiment(
    LOOK, "Which release channels are there?", "RAPID, REGULAR, STABLE and EXTENDED, each with a default version"
)
def channels(hour):
    answer = hour.gke("GET", f"{hour.parent()}/serverConfig")
    if not answer.good:
        return differs(answer.words())
    live = {one["channel"]: one.get("defaultVersion") for one in answer.body.get("channels", [])}
    return judged(
        {"RAPID", "REGULAR", "STABLE", "EXTENDED"} == set(live) and all(live.values()),
        ", ".join(sorted(live)),
        versions=live,
    )


@experiment(LOOK, "What is said of a cluster that is not there?", "404 NOT_FOUND")
def absent(hour):
    answer = hour.gke("GET", hour.cluster_path() + "-none")
    return judged((answer.code, answer.body.get("error", {}).get("status")) == (404, "NOT_FOUND"), answer.words())


@experiment(LOOK, "What is said to a token that is none?", "401 UNAUTHENTICATED")
def unauthenticated(hour):
    if hour.simulated:
        return not_tried("the sandbox takes any token")
    answer = hour.google.ask("GET", "container", hour.parent() + "/clusters", token="none")
    return judged((answer.code, answer.body.get("error", {}).get("status")) == (401, "UNAUTHENTICATED"), answer.words())


# Requests that the program does not send, because GKE is expected to refuse them.


@experiment(
    CLUSTER,
    "Is a cluster refused whose first pool has no node?",
    "400; the program starts such a pool with a node (DI0365)",
    minutes=1,
    machines="none if it is refused; else a second cluster, which is deleted again (8 minutes)",
    dollars=0.10,
)
def first_pool_empty(hour):
    name = f"{hour.cluster_name}-b"
    pool = {"name": "empty", "initialNodeCount": 0, "config": {"machineType": "e2-medium"}}
    labels = {"dask-infra-first-hour": hour.run_id}
    answer = hour.gke(
        "POST", f"{hour.parent()}/clusters", {"cluster": {"name": name, "nodePools": [pool], "resourceLabels": labels}}
    )
    if not answer.good:
        return judged(answer.code == 400, answer.words())
    error = hour.settled(answer)
    left = hour.delete("cluster", f"{hour.location}/{name}")
    return differs(f"accepted; {error or 'the cluster was made'}", left=left)


@experiment(
    CLUSTER,
    "Is a cluster made as planned?",
    "two pools are made, and the operations and states of the sandbox are seen",
    minutes=8,
    machines="1 × e2-standard-2, 1 × e2-medium, a zonal control plane",
)
def cluster(hour):
    hour.has_cluster = True  # from here on there may be something to delete
    done = hour.apply()
    outcomes = next((line["outcomes"] for line in reversed(done.lines) if "outcomes" in line), [])
    seconds = {one["addr"]: round(one["elapsed_seconds"]) for one in outcomes}
    live = hour.cluster()
    facts = {
        "seconds": seconds,
        "operations": list(hour.operations().values()),
        "version": live.get("currentMasterVersion"),
        "status": live.get("status"),
    }
    return judged(done.code == 0, "made" if done.code == 0 else done.errors(), **facts)


@experiment(CLUSTER, "Does anything that GKE fills in look like a change?", "no changes")
def second_plan(hour):
    done = hour.dask_infra("plan", "--json", "--detailed-exitcode")
    fields = [field["path"] for line in done.lines for field in line.get("change", {}).get("fields", [])]
    return judged(done.code == 0, "no changes" if done.code == 0 else f"{fields or done.errors()}")


@experiment(
    CLUSTER,
    "What does GKE fill in for a pool that names only a machine?",
    "pd-balanced, 100 GB, COS_CONTAINERD, six scopes",
)
def defaults(hour):
    config = hour.pool("probe").get("config", {})
    kept = {key: config.get(key) for key in ("diskType", "diskSizeGb", "imageType")}
    scopes = [scope.rpartition("/")[2] for scope in config.get("oauthScopes", [])]
    good = kept == {"diskType": "pd-balanced", "diskSizeGb": 100, "imageType": "COS_CONTAINERD"} and len(scopes) == 6
    return judged(good, f"{kept}, {len(scopes)} scopes", scopes=scopes, metadata=sorted(config.get("metadata", {})))


@experiment(
    CLUSTER,
    "Is a new cluster RUNNING, or DEGRADED because the default account has no roles?",
    "RUNNING, or DEGRADED with a condition",
)
def status(hour):
    live = hour.cluster()
    conditions = [
        {key: one.get(key) for key in ("code", "canonicalCode", "message")} for one in live.get("conditions", [])
    ]
    good = live.get("status") == "RUNNING" or live.get("status") == "DEGRADED" and conditions
    return judged(good, f"{live.get('status')}, {len(conditions)} conditions", conditions=conditions)


@experiment(CLUSTER, "Is the plan of an imported cluster empty?", "no changes")
def imported(hour):
    out = os.path.join(hour.folder, "imported.toml")
    words = ["--project", hour.project, "--location", hour.location, "--cluster", hour.cluster_name, "--out", out]
    done = hour.dask_infra("import", *words)
    if done.code:
        return differs(done.errors())
    done = hour.dask_infra("plan", "--json", "--detailed-exitcode", stack="imported.toml")
    fields = [field["path"] for line in done.lines for field in line.get("change", {}).get("fields", [])]
    return judged(done.code == 0, "no changes" if done.code == 0 else f"{fields or done.errors()}")


def key_file(hour):
    """The key and its path, or why there is none."""
    if not hour.options.key_file:
        return None, "no key: give one with --key-file FILE"
    with open(hour.options.key_file, encoding="utf-8") as file:
        return json.load(file), None


@experiment(CLUSTER, "Does a key file reach the Kubernetes API?", "its exchanged token is accepted: the plan is empty")
def key_exchanged(hour):
    key, why = key_file(hour)
    if hour.simulated or not key:
        return not_tried(why or "the sandbox takes any token")
    path = {"GOOGLE_APPLICATION_CREDENTIALS": os.path.abspath(hour.options.key_file)}
    done = hour.dask_infra("plan", "--json", "--detailed-exitcode", environment=path)
    return judged(done.code == 0, "accepted" if done.code == 0 else done.errors())


@experiment(
    CLUSTER,
    "Is the assertion that a key file signs about itself accepted by the Kubernetes API?",
    "401; the program exchanges it for a token first",
)
def key_self_signed(hour):
    key, why = key_file(hour)
    if hour.simulated or not key:
        return not_tried(why or "the sandbox takes any token")
    if not shutil.which("openssl"):
        return not_tried("openssl is not on the PATH")
    try:
        token = google.self_signed(key)
    except subprocess.CalledProcessError:
        return not_tried("openssl cannot sign with this key")
    answer = google.kubernetes(hour.cluster(), "/api/v1/namespaces", token)
    return judged(answer.code == 401, answer.words() if not answer.good else "accepted")


def refused_pool(name, question, pool, code=400, dollars=0.10):
    """A pool that GKE is expected to refuse; what it makes of it is told, and deleted."""

    def run(hour):
        body = {"name": name, "initialNodeCount": 1, **pool}
        answer = hour.gke("POST", f"{hour.cluster_path()}/nodePools", {"nodePool": body})
        if not answer.good:
            return judged(answer.code == code, answer.words())
        error = hour.settled(answer)
        deleted = hour.gke("DELETE", f"{hour.cluster_path()}/nodePools/{body['name']}")
        left = hour.settled(deleted) if deleted.good else deleted.words()
        return differs(f"accepted; {error or 'the pool was made'}", left=left)

    run.__name__ = name
    machines = "none if it is refused; else 1 node, which is deleted again (5 minutes)"
    experiment(CLUSTER, question, f"{code}, before anything is made", 1, machines, dollars)(run)


E2 = {"machineType": "e2-medium"}
T4 = {"acceleratorType": "nvidia-tesla-t4", "acceleratorCount": "1"}
refused_pool("name-taken", "What is said of a pool whose name is taken?", {"name": "probe", "config": E2}, 409)
refused_pool("gpu-on-e2", "Is a GPU on a machine that takes none refused?", {"config": {**E2, "accelerators": [T4]}})
refused_pool(
    "disk-of-n4",
    "Is pd-balanced on a machine that takes Hyperdisk only refused?",
    {"config": {"machineType": "n4-standard-2", "diskType": "pd-balanced"}},
)
refused_pool(
    "above-maximum",
    "Is a pool refused that begins with more nodes than its autoscaler may have?",
    {"config": E2, "initialNodeCount": 2, "autoscaling": {"enabled": True, "totalMaxNodeCount": 1}},
)
refused_pool(
    "shared-by-49",
    "Are more than 48 clients of one GPU refused?",
    {
        "initialNodeCount": 0,
        "config": {
            "machineType": "n1-standard-1",
            "accelerators": [
                {**T4, "gpuSharingConfig": {"gpuSharingStrategy": "TIME_SHARING", "maxSharedClientsPerGpu": "49"}}
            ],
        },
    },
)


# Changes of one pool: accepted as planned, and the nodes kept or recreated as planned?


def change(hour, section, keys, allow=()):
    """Lays keys over a pool and applies; compares what becomes of the nodes with the effect that the plan names."""
    pool = section.partition(".")[2]
    hour.lay(section, keys)
    effects, planned = hour.plan()
    if not effects:
        hour.take_away(section, keys)
        return differs(f"nothing is planned: {planned.errors()}")
    known, before = hour.operations(), hour.nodes(pool)
    done = hour.apply(*(word for one in allow for word in ("--allow", one)))
    after = hour.nodes(pool)
    facts = {"planned": effects, "operations": list(hour.operations(known).values())}
    if done.code:
        hour.take_away(section, keys)
        return differs(f"not applied: {done.errors()}", **facts)
    if not before or not after:
        return not_tried("applied; the Node objects could not be read", **facts)
    recreated = not before & after
    facts["nodes"] = "recreated" if recreated else "kept"
    rolls = {"rolling", "in_place"} & set(effects.values())
    if not rolls:
        return as_expected(f"accepted; its effect is unknown: nodes {facts['nodes']}", **facts)
    good = recreated == ("rolling" in rolls)
    return judged(good, f"accepted; nodes {facts['nodes']}, planned {' and '.join(sorted(rolls))}", **facts)


def changes_probe(name, question, keys, minutes=4, allow=()):
    def run(hour):
        return change(hour, PROBE, keys, allow)

    run.__name__ = name
    expected = "accepted, in one request; nodes kept or recreated as planned"
    experiment(CLUSTER, question, expected, minutes, "the small node, recreated with one more beside it", 0.07)(run)


TAINT = '{ key = "first-hour", value = "%s", effect = "PreferNoSchedule" }'
changes_probe(
    "together",
    "Are labels, taints and resource labels accepted in one request?",
    {"labels": '{ first-hour = "a" }', "taints": f"[{TAINT % 'a'}]", "resource_labels": '{ first-hour = "a" }'},
)
changes_probe("labels", "What do changed labels do to nodes?", {"labels": '{ first-hour = "b" }'}, 1)
changes_probe("taints", "What do changed taints do to nodes?", {"taints": f"[{TAINT % 'b'}]"})
changes_probe(
    "resource-labels", "What do changed resource labels do to nodes?", {"resource_labels": '{ first-hour = "b" }'}
)
changes_probe("tags", "What do changed network tags do to nodes?", {"tags": '["first-hour"]'})
changes_probe(
    "machine-tags",
    "Are a machine type and network tags accepted in one request?",
    {"machine_type": '"e2-standard-2"', "tags": '["first-hour-b"]'},
)
changes_probe(
    "image", "Is an image type accepted without a node version beside it?", {"image_type": '"UBUNTU_CONTAINERD"'}
)
changes_probe(
    "run-duration",
    "What does a changed max_run_duration do to nodes?",
    {"max_run_duration": '"3d"'},
    allow=("update:node_pool.probe",),
)


@experiment(CLUSTER, "Is a number of nodes set, up and down?", "two nodes, then one", 4, "1 × e2-standard-2 more", 0.07)
def resize(hour):
    seen = []
    for number in ("2", "1"):
        done = hour.dask_infra("scale", PROBE, number, "--auto-approve", "--json")
        if done.code:
            return differs(f"to {number}: {done.errors()}")
        for _ in range(10):  # a Node object goes some moments after its machine
            nodes = hour.nodes("probe")
            if nodes is not None and len(nodes) == int(number):
                break
            hour.pause(15)
        seen.append(None if nodes is None else len(nodes))
    return judged(seen == [2, 1], f"{seen[0]}, then {seen[1]} nodes")


@experiment(
    CLUSTER,
    "Is a total maximum below the number of zones accepted?",
    "accepted: 0 to 1 nodes over two zones",
    2,
    "no node: a pool that begins with none",
)
def maximum_below_zones(hour):
    region = hour.location.rpartition("-")[0]
    others = [zone for zone in zones(hour, region) if zone != hour.location]
    if not others:
        return not_tried("no second zone was found")
    section = "node_pool.wide"
    hour.lay(
        section,
        {
            "machine_type": '"e2-medium"',
            "zones": json.dumps([hour.location, others[0]]),
            "nodes": "{ min = 0, max = 1 }",
        },
    )
    done = hour.apply()
    live = hour.pool("wide")
    hour.take_away(section)
    removed = hour.apply("--allow", f"delete:{section}")
    facts = {"autoscaling": live.get("autoscaling"), "removed": removed.code == 0}
    return judged(done.code == 0, "accepted" if done.code == 0 else done.errors(), **facts)


@experiment(
    CLUSTER,
    "Is a cluster DEGRADED when the account of a pool has no roles?",
    "RUNNING, or DEGRADED with a condition; plan and apply go on",
    10,
    "1 × e2-medium more, and a service account without roles (deleted at the end)",
    0.04,
)
def account_without_roles(hour):
    account = f"first-hour-{hour.run_id}"
    body = {"accountId": account, "serviceAccount": {"displayName": "first hour of dask-infra: to be deleted"}}
    answer = hour.google.ask("POST", "iam", f"v1/projects/{hour.project}/serviceAccounts", body)
    if not answer.good:
        return not_tried(answer.words())
    section = "node_pool.rightless"
    hour.pause(60)  # a new account is not known everywhere at once
    hour.lay(section, {"machine_type": '"e2-medium"', "service_account": json.dumps(answer.body["email"])})
    done = hour.apply()
    for _ in range(10):
        live = hour.cluster()
        if live.get("status") == "DEGRADED":
            break
        hour.pause(30)
    again = hour.dask_infra("plan", "--json", "--detailed-exitcode")
    conditions = [one.get("message") for one in live.get("conditions", [])]
    hour.take_away(section)
    removed = hour.apply("--allow", f"delete:{section}")
    facts = {"conditions": conditions, "plan": again.code, "removed": removed.code == 0}
    good = done.code == 0 and again.code == 0
    return judged(good, f"{live.get('status')}; " + ("applied" if done.code == 0 else done.errors()), **facts)


@experiment(
    CLUSTER,
    "May who makes the cluster also make the Dask operator's roles and definitions, and does a Dask cluster start?",
    "a scheduler and a worker are ready, and the second plan is empty",
    5,
    "no other machines; an image of 1 GB is loaded",
)
def dask(hour):
    hour.lay("dask_operator", {"version": '"2026.3.0"'})
    section = "dask_cluster.small"
    hour.lay(section, {"image": '"ghcr.io/dask/dask:2026.3.0-py3.12"', "worker": "{ replicas = 1 }"})
    done = hour.apply()
    again = hour.dask_infra("plan", "--json", "--detailed-exitcode")
    good = done.code == 0 and again.code == 0
    facts = {"second plan": again.code}
    return judged(good, "ready" if good else done.errors() if done.code else again.errors(), **facts)


# With a GPU. Needs quota.


def gpu_sections(hour):
    pool = {"machine_type": '"n1-standard-4"', "accelerator": json.dumps(hour.options.gpu), "nodes": "1"}
    check = {"run": '"cuda-vectoradd"', "pool": '"gpu"'}
    return {"gpu_driver": {"install": '"gke"'}, "node_pool.gpu": pool, "check.cuda": check}


@experiment(
    GPU,
    "Does a GPU pool come up, and does a GPU compute?",
    "GKE's driver is installed and the CUDA check passes",
    12,
    "1 × n1-standard-4 with the GPU",
    lays=gpu_sections,
)
def gpu(hour):
    for section, keys in gpu_sections(hour).items():
        hour.lay(section, keys)
    done = hour.apply()
    if done.code:
        return differs(done.errors())
    taints = hour.pool("gpu").get("config", {}).get("taints", [])
    again = hour.dask_infra("plan", "--json", "--detailed-exitcode")
    return judged(
        again.code == 0,
        "the check passed" + ("" if again.code == 0 else "; the second plan is not empty"),
        taints=taints,
    )


CUDA_IMAGE = "nvidia/cuda:12.9.1-base-ubuntu24.04"
RAPIDS_IMAGE = "nvcr.io/nvidia/rapidsai/base:26.04-cuda12-py3.13"
LIBRARIES = "ls /usr/local/nvidia/lib64 2>&1 | grep -c '^libcuda.so'"
CUDF = "python -c 'import cudf; print(cudf.Series([1, 2]).sum())' 2>&1 | tail -n 1"


def own_path(name, image, command, *lines):
    """A Job with a GPU, without the path that the program gives to its own; a line of text for each command."""
    shell = "; ".join(f'echo "{key}: $({line})"' for key, line in lines)
    container = {
        "name": "main",
        "image": image,
        command: ["bash", "-c", f"{{ {shell}; }} > /dev/termination-log"],
        "resources": {"limits": {"nvidia.com/gpu": 1}},
    }
    pool = {"cloud.google.com/gke-nodepool": "gpu"}
    pod = {"restartPolicy": "Never", "containers": [container], "nodeSelector": pool}
    template = {"metadata": {"labels": {"experiment": "driver-path"}}, "spec": pod}
    spec = {"backoffLimit": 0, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


@experiment(
    GPU,
    "Do images find GKE's driver by the path that they carry?",
    "libcuda.so is below /usr/local/nvidia/lib64, neither image has that folder on its path, and cuDF does not compute",
    12,
    "no other machines; an image of 10 GB is loaded",
)
def driver_path(hour):
    path = ("path", "echo $LD_LIBRARY_PATH")
    jobs = [
        own_path("path-of-cuda", CUDA_IMAGE, "command", path, ("libraries", LIBRARIES)),
        # The entry point prepares Python.
        own_path("path-of-rapids", RAPIDS_IMAGE, "args", path, ("libraries", LIBRARIES), ("cudf", CUDF)),
    ]
    with open(os.path.join(hour.folder, "driver-path.yaml"), "w", encoding="utf-8") as file:
        file.write("\n---\n".join(json.dumps(job) for job in jobs))
    hour.take_away("check.cuda")
    hour.lay("manifest.driver-path", {"file": '"driver-path.yaml"'})
    done = hour.apply()
    pods = hour.last_words("experiment=driver-path") or {}
    words = {pod.rpartition("-")[0]: said for pod, said in pods.items()}
    hour.take_away("manifest.driver-path")
    removed = hour.apply("--allow", "delete:manifest.driver-path")
    if not any(words.values()):
        return not_tried(done.errors() if done.code else "the jobs wrote nothing", removed=removed.code == 0)
    cuda, rapids = words.get("path-of-cuda", ""), words.get("path-of-rapids", "")
    bare = all("/usr/local/nvidia" not in said.partition("\n")[0] for said in (cuda, rapids))
    fails = rapids.splitlines()[-1:] != ["cudf: 3"]
    return judged(bare and fails and "libraries: 0" not in cuda, f"{cuda}; {rapids}", removed=removed.code == 0)


@experiment(
    GPU,
    "Does cuDF compute with the path that the program gives to containers with GPUs?",
    "it computes",
    4,
    "no other machines",
)
def cudf(hour):
    keys = {"image": json.dumps(RAPIDS_IMAGE), "args": json.dumps(["bash", "-c", f"{CUDF} > /dev/termination-log"])}
    hour.lay("job.cudf", {**keys, "gpus": "1", "pool": '"gpu"', "wait": "true"})
    done = hour.apply()
    words = list((hour.last_words("batch.kubernetes.io/job-name=cudf") or {}).values())
    hour.take_away("job.cudf")
    removed = hour.apply("--allow", "delete:job.cudf")
    if not any(words):
        return not_tried(done.errors() if done.code else "the job wrote nothing", removed=removed.code == 0)
    return judged(words == ["3"], words[0], removed=removed.code == 0)


@experiment(
    GPU,
    "Are a machine type, the driver's version and network tags accepted in one request?",
    "accepted; the node is recreated",
    10,
    "1 × n1-standard-2 with the GPU, recreated without a second one beside it",
)
def gpu_machine_driver_tags(hour):
    hour.take_away("check.cuda")
    # A quota of one GPU has no room for a surge.
    hour.lay("node_pool.gpu", {"surge": "{ max_surge = 0, max_unavailable = 1 }"})
    done = hour.apply()
    if done.code:
        return differs(f"surge: {done.errors()}")
    keys = {"machine_type": '"n1-standard-2"', "driver": '"latest"', "tags": '["first-hour"]'}
    return change(hour, "node_pool.gpu", keys)


# The end, which is also the cleaning up.


@experiment(END, "Does `destroy` delete everything?", "the cluster is gone, and nothing is planned", 5, "none")
def destroyed(hour):
    done = hour.dask_infra("destroy", "--auto-approve", "--json")
    if done.code:
        return differs(done.errors())
    gone = hour.gke("GET", hour.cluster_path()).code == 404
    again = hour.dask_infra("plan", "--destroy", "--json")
    summary = next((line["changes"] for line in again.lines if line.get("type") == "change_summary"), {})
    return judged(gone and summary.get("remove") == 0, "gone" if gone else "the cluster is still there")


@experiment(END, "Does a deleted cluster leave disks, instance groups or firewall rules behind?", "none")
def nothing_left(hour):
    found = {}
    for kind, path in (
        ("disks", f"zones/{hour.location}/disks"),
        ("instances", f"zones/{hour.location}/instances"),
        ("instance groups", f"zones/{hour.location}/instanceGroupManagers"),
        ("firewall rules", "global/firewalls"),
        ("instance templates", "global/instanceTemplates"),
    ):
        items, answer = hour.google.pages("compute", f"compute/v1/projects/{hour.project}/{path}", "items")
        if items is None:
            return not_tried(f"{kind}: {answer.words()}")
        # GKE shortens the cluster's name in theirs.
        found[kind] = sum(item["name"].startswith(f"gke-{hour.cluster_name}"[:20]) for item in items)
    return judged(not any(found.values()), f"left: {found}" if any(found.values()) else "none", **found)
