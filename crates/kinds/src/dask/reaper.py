# Deletes one DaskCluster when it is old enough, or has been without work for long enough.
path = os.environ["DASK_INFRA_REAPER_PATH"]
seconds = int(os.environ["DASK_INFRA_REAPER_SECONDS"])
workload = os.environ.get("DASK_INFRA_REAPER_WORKLOAD", "")
scheduler = os.environ.get("DASK_INFRA_REAPER_SCHEDULER", "")
groups = os.environ.get("DASK_INFRA_REAPER_GROUPS", "").split()
pause = int(os.environ.get("DASK_INFRA_REAPER_PAUSE", "20"))


def admitted():
    """Since when a cluster in a queue may run; nothing while it waits."""
    for condition in send("GET", workload).get("status", {}).get("conditions", []):
        if condition["type"] == "Admitted" and condition["status"] == "True":
            return moment(condition["lastTransitionTime"])
    return None


def aged(created):
    """Since when its time counts, or nothing, and what that means."""
    if not workload:
        return created, "old"
    for again in (True, False):
        try:
            since = admitted()
            return since, "waits in its queue" if since is None else "in use"
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            # Kueue makes one that was deleted anew, within seconds.
            if again:
                time.sleep(pause)
    # Nobody holds it back.
    return created, "old"


try:
    metadata = send("GET", path)["metadata"]
    if "deletionTimestamp" in metadata:
        print("it is being deleted")
        sys.exit()
    created = moment(metadata["creationTimestamp"])
    since, what = unused(created, scheduler, groups) if scheduler else aged(created)
    age = None if since is None else time.time() - since
    if age is None:
        print("it %s, and its time has not begun" % what)
    elif age < seconds:
        print("it is %d s %s, and stays until it is %d s %s" % (age, what, seconds, what))
    else:
        # Another one of its name that was made meanwhile stays.
        send("DELETE", path, {"preconditions": {"uid": metadata["uid"]}})
        print("deleted: it was %d s %s" % (age, what))
except urllib.error.HTTPError as error:
    if error.code not in (404, 409):
        sys.exit("the API server answers %d: %s" % (error.code, error.read().decode(errors="replace")))
    print("there is nothing to delete")
