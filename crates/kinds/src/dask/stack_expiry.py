# Stops a stack when it is old enough, or has been without work for long enough: deletes its Dask clusters, jobs, notebooks and Pods, and
# empties its node pools, as `dask-infra stop` does, or deletes the GKE cluster.
plan = json.loads(os.environ["DASK_INFRA_REAPER_STACK"])
google = os.environ.get("DASK_INFRA_REAPER_GOOGLE", "https://container.googleapis.com/v1/")
# By its address: the names of the cluster's DNS go with its nodes.
metadata_server = os.environ.get("GCE_METADATA_HOST", "169.254.169.254")
seconds = int(os.environ["DASK_INFRA_REAPER_SECONDS"])
pause = float(os.environ.get("DASK_INFRA_REAPER_PAUSE", "20"))
begun = time.time()
# Seconds that a look has for operations; the next one goes on.
BUDGET = 180
# Seconds after which pools are emptied although objects are still there: the node of a Pod may be dead, and an operator down.
DELETES = 600
# Seconds after which the other key may go on with a stop.
STUCK = 1800

LOCK = "dask-infra.dev/lock"
MARK = "dask-infra.dev/ended"
# On the CronJob: when there was work last. What worked may be gone at the next look.
WORKED = "dask-infra.dev/worked"
QUEUE = "kueue.x-k8s.io/queue-name"
# The lock of an apply that no longer renews it.
stale = None


def read(path):
    try:
        return send("GET", path)
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
        return None


def annotation(live, name):
    return (live["metadata"].get("annotations") or {}).get(name)


class Refused(Exception):
    """GKE's refusal of a request."""


def gke(method, path, body=None):
    """A request to GKE with the identity of this Pod. Nothing for what does not exist."""
    account = "http://" + metadata_server + "/computeMetadata/v1/instance/service-accounts/default/token"
    asks = urllib.request.Request(account, headers={"Metadata-Flavor": "Google"})
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(asks, timeout=60) as answer:
        token = json.load(answer)["access_token"]
    headers = {"Authorization": "Bearer " + token, "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(google + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise Refused("%s %s: %d %s" % (method, path, error.code, error.read().decode(errors="replace")))


def is_ours(labels):
    return (labels or {}).get("dask-infra-id") == plan["id"]


def is_locked(record):
    """Whether an apply runs: it renews its lock every five seconds."""
    global stale
    lock = annotation(record, LOCK)
    if lock is None:
        return False
    time.sleep(pause)
    again = read(plan["record"])
    stale = lock
    return again is not None and annotation(again, LOCK) not in (None, lock)


def ends(live):
    """The times, as text, at which a job, a Pod or a request has ended; an empty one if it has ended at an unknown time."""
    status = live.get("status") or {}
    over = ("Complete", "Failed", "Finished", "BookingExpired", "CapacityRevoked")
    found = [
        one.get("lastTransitionTime") or ""
        for one in status.get("conditions") or []
        if one["type"] in over and one["status"] == "True"
    ]
    if status.get("phase") in ("Succeeded", "Failed") or status.get("jobStatus") in ("Successful", "Failed"):
        states = [one.get("state", {}).get("terminated") or {} for one in status.get("containerStatuses") or []]
        found += [one.get("finishedAt") or "" for one in states] or [status.get("endTime") or ""]
    return found


def ended_at(live):
    """When it has ended, as exactly as it says so: a Pod that was refused or evicted has no times of its containers."""
    status = live.get("status") or {}
    conditions = [one.get("lastTransitionTime") for one in status.get("conditions") or []]
    for texts in (ends(live), conditions, [status.get("startTime")]):
        # `2026-11-29T20:00:00Z`, with a fraction or an offset of zero in objects of the operator.
        times = [moment(text[:19] + "Z") for text in texts if text]
        if times:
            return max(times)
    return moment(live["metadata"]["creationTimestamp"])


def rests(live):
    """Whether it is a Job that somebody has suspended, and no queue."""
    labels = live["metadata"].get("labels") or {}
    return live["kind"] == "Job" and live["spec"].get("suspend") is True and not labels.get(QUEUE)


def works(item, live):
    """Whether an object that ends by itself has not ended."""
    return live is not None and bool(item["runs"]) and not ends(live) and not rests(live)


def idle_since(begin):
    """Since when nothing of the stack has had work, or nothing, and why."""
    for item in plan["delete"]:
        live = read(item["path"]) if item["runs"] else None
        if works(item, live):
            return None, "%s has not ended" % item["path"]
        if live is not None and ends(live):
            begin = max(begin, ended_at(live))
    for cluster in plan["clusters"]:
        live = read(cluster["path"])
        # One that its own `idle_stop` has deleted has no work.
        if live is None:
            continue
        created = moment(live["metadata"]["creationTimestamp"])
        since, what = unused(created, cluster["scheduler"], cluster["groups"])
        if since is None:
            return None, "%s %s" % (cluster["path"], what)
        begin = max(begin, since)
    return begin, "without work"


def last_work(job, begin):
    """Since when nothing has had work, or nothing, and why; work that is seen is noted."""
    noted = float(annotation(job, WORKED) or 0)
    since, what = idle_since(max(begin, noted))
    at = time.time() if since is None else since
    if at > max(begin, noted):
        metadata = {"annotations": {WORKED: "%d" % at}}
        path = plan["jobs"][-1] + "?fieldManager=dask-infra-expiry"
        send("PATCH", path, {"metadata": metadata}, "application/merge-patch+json")
    return since, what


def marked(record):
    """The note that the stop has begun. Every write of the record since then makes it void."""
    noted = annotation(record, MARK)
    mark = {} if noted is None else json.loads(noted)
    return mark if mark.get("digest") == record["data"]["digest"] else None


def write_mark(mark, record):
    metadata = {"annotations": {MARK: json.dumps(mark)}, "resourceVersion": record["metadata"]["resourceVersion"]}
    path = plan["record"] + "?fieldManager=dask-infra-expiry"
    send("PATCH", path, {"metadata": metadata}, "application/merge-patch+json")


def begin_stop(record):
    """Notes the stop and what it deletes, so that `start` makes that again, and no job that had ended."""
    going = [item["path"] for item in plan["delete"] if is_going(item, read(item["path"]))]
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    mark = {"by": plan["key"], "digest": record["data"]["digest"], "since": now, "deleted": going, "empty": []}
    write_mark(mark, record)
    return mark


def is_going(item, live):
    """Whether an object is the stack's, and has not ended."""
    if live is None or (item["runs"] and not works(item, live)):
        return False
    managers = live["metadata"].get("managedFields") or []
    return any(one["manager"] == plan["manager"] and one["operation"] == "Apply" for one in managers)


def goes_on():
    """Returns the record, or ends this look if somebody has started the stack again or is about to."""
    record = read(plan["record"])
    mark = record and marked(record)
    if not mark or mark["by"] != plan["key"]:
        print("the stack has changed since the stop began")
        sys.exit()
    if annotation(record, LOCK) not in (None, stale):
        print("an apply runs")
        sys.exit()
    return record


def delete(live, path):
    options = {"propagationPolicy": "Background", "preconditions": {"uid": live["metadata"]["uid"]}}
    try:
        send("DELETE", path, options)
    except urllib.error.HTTPError as error:
        # It went with its Dask cluster.
        if error.code != 404:
            raise
    else:
        print("deleted: %s" % path)


def delete_objects():
    """Deletes what the stack made, and returns the paths of what is still there."""
    left = []
    for item in plan["delete"]:
        live = read(item["path"])
        if is_going(item, live):
            left.append(item["path"])
            if "deletionTimestamp" not in live["metadata"]:
                goes_on()
                delete(live, item["path"])
    return left


def others():
    """Node pools of the cluster, and stacks in it, that are not this one's."""
    cluster = gke("GET", plan["cluster"])
    if cluster is None or not is_ours(cluster.get("resourceLabels")):
        return ["no label of the stack"]
    found = []
    if not cluster.get("autopilot", {}).get("enabled"):
        for pool in (gke("GET", plan["cluster"] + "/nodePools") or {}).get("nodePools", []):
            made = pool.get("autoscaling", {}).get("autoprovisioned")
            if not made and not is_ours(pool.get("config", {}).get("resourceLabels")):
                found.append("the node pool " + pool["name"])
    folder, own = plan["record"].rsplit("/", 1)
    for item in send("GET", folder)["items"]:
        name = item["metadata"]["name"]
        if name.startswith("dask-infra-") and "." not in name and name != own:
            found.append("the stack " + name[len("dask-infra-") :])
    return found


def wait(operations, failures):
    """Waits for operations of GKE by pool, notes their errors, and returns the pools that are done."""
    where = plan["cluster"].rsplit("/clusters/", 1)[0]
    done = []
    while operations:
        for name, operation in list(operations.items()):
            if operation.get("status") == "DONE":
                del operations[name]
                if operation.get("error"):
                    failures[name] = operation["error"].get("message")
                else:
                    done.append(name)
        if not operations:
            break
        if time.time() - begun > BUDGET:
            print("GKE still works on %s" % ", ".join(operations))
            sys.exit()
        time.sleep(pause)
        for name, operation in operations.items():
            operations[name] = gke("GET", "%s/operations/%s" % (where, operation["name"])) or {"status": "DONE"}
    return done


def change(names, failures, request):
    """Sends a request for each pool, all at once, and returns the pools for which it is done."""
    operations = {}
    for name in names:
        try:
            goes_on()
            operations[name] = request(name) or {"status": "DONE"}
        except Refused as refused:
            # Another operation may be running; the next look tries again.
            failures[name] = str(refused)
    return wait(operations, failures)


def pool_path(name):
    return "%s/nodePools/%s" % (plan["cluster"], name)


def fix(name):
    """Turns the autoscaling of a pool off, so that nothing brings a node back. GKE keeps that of queued and flex-start pools."""
    pool = gke("GET", pool_path(name))
    waits = pool.get("queuedProvisioning", {}).get("enabled") or pool.get("config", {}).get("flexStart")
    if pool.get("autoscaling", {}).get("enabled") and not waits:
        return gke("POST", pool_path(name) + ":setAutoscaling", {"autoscaling": {"enabled": False}})
    return None


def empty(name):
    return gke("POST", pool_path(name) + ":setSize", {"nodeCount": 0})


def own_pools():
    for name in plan["pools"]:
        pool = gke("GET", pool_path(name))
        if pool is None or not is_ours(pool.get("config", {}).get("resourceLabels")):
            print("the node pool %s is not the stack's, and stays" % name)
        else:
            yield name


def empty_pools(mark):
    failures = {}
    names = [name for name in own_pools() if name not in mark["empty"]]
    # All of them before any node goes: Pods of a pool that drains would bring nodes of another one.
    ready = change(names, failures, fix)
    first = [name for name in ready if name != plan["home"]]
    for name in change(first, failures, empty):
        print("emptied: the node pool %s" % name)
        mark["empty"].append(name)
    write_mark(mark, goes_on())
    if failures:
        sys.exit("GKE: %s" % "; ".join("%s: %s" % failure for failure in sorted(failures.items())))
    return plan["home"] in ready


def destroy():
    """Deletes the GKE cluster, and returns whether it goes. One that stays has its pools emptied."""
    found = others()
    if found:
        print("the GKE cluster stays, as it has %s" % ", ".join(found))
        return False
    goes_on()
    try:
        gke("DELETE", plan["cluster"])
    except Refused as refused:
        print("the GKE cluster stays: %s" % refused)
        return False
    print("deleted: the GKE cluster")
    return True


def stop(mark):
    while True:
        left = delete_objects()
        if not left:
            break
        if time.time() - moment(mark["since"]) > DELETES:
            print("still being deleted, which is not waited for any longer: %s" % " ".join(left))
            break
        if time.time() - begun > BUDGET:
            print("still being deleted: %s" % " ".join(left))
            sys.exit()
        time.sleep(min(pause, 5))
    if plan["destroy"] and destroy():
        return
    # Its own node goes last, and with the CronJob this Pod. `start` makes both again.
    empties_home = bool(plan["pools"]) and empty_pools(mark)
    jobs = [(path, read(path)) for path in plan["jobs"]]
    for path, live in jobs:
        if path == plan["jobs"][-1] and empties_home:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            goes_on()
            empty(plan["home"])
            print("emptied: the node pool %s" % plan["home"])
        if live is not None:
            goes_on()
            delete(live, path)


try:
    job, record = send("GET", plan["jobs"][-1]), read(plan["record"])
    if record is None or "digest" not in record.get("data", {}):
        sys.exit("the stack has no record, so nothing would know that it is stopped")
    if plan["cluster"] and gke("GET", plan["cluster"]) is None:
        sys.exit("GKE does not have %s" % plan["cluster"])
    if is_locked(record):
        print("an apply runs")
        sys.exit()
    mark = marked(record)
    if mark is not None and mark["by"] != plan["key"]:
        if time.time() - moment(mark["since"]) < STUCK:
            print("the stack is being stopped by its %s" % mark["by"])
            sys.exit()
        mark["by"] = plan["key"]
        write_mark(mark, record)
    if mark is None:
        times = [job["metadata"]["creationTimestamp"], record["data"].get("started")]
        begin = max(moment(one) for one in times if one)
        since, what = (begin, "old") if plan["key"] == "ttl" else last_work(job, begin)
        if since is None:
            print("it stays: %s" % what)
            sys.exit()
        age = time.time() - since
        if age < seconds:
            print("it is %d s %s, and stays until it is %d s %s" % (age, what, seconds, what))
            sys.exit()
        mark = begin_stop(record)
        print("stopped: it was %d s %s" % (age, what))
    stop(mark)
except Refused as refused:
    sys.exit("GKE refuses %s" % refused)
except urllib.error.HTTPError as error:
    if error.code != 409:
        sys.exit("the API server answers %d: %s" % (error.code, error.read().decode(errors="replace")))
    print("something has changed meanwhile; the next look goes on")
except urllib.error.URLError as error:
    sys.exit("cannot be reached: %s" % error.reason)
