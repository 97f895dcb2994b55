"""Deletes one DaskCluster when it is old enough, or has been without work for long enough.

It runs in the cluster's own image: Python's standard library, and `distributed` where a scheduler is asked.
"""

import asyncio
import calendar
import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.request

path = os.environ["DASK_INFRA_REAPER_PATH"]
seconds = int(os.environ["DASK_INFRA_REAPER_SECONDS"])
workload = os.environ.get("DASK_INFRA_REAPER_WORKLOAD", "")
scheduler = os.environ.get("DASK_INFRA_REAPER_SCHEDULER", "")
groups = os.environ.get("DASK_INFRA_REAPER_GROUPS", "").split()
pause = int(os.environ.get("DASK_INFRA_REAPER_PAUSE", "20"))
account = os.environ.get("DASK_INFRA_REAPER_ACCOUNT", "/var/run/secrets/kubernetes.io/serviceaccount")
host = os.environ["KUBERNETES_SERVICE_HOST"]
port = os.environ["KUBERNETES_SERVICE_PORT"]
if ":" in host:
    host = "[" + host + "]"

# Seconds. A look ends after four minutes in any case.
PATIENCE = 120


def send(method, path, body=None):
    with open(os.path.join(account, "token")) as file:
        token = file.read().strip()
    headers = {"Authorization": "Bearer " + token, "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request("https://" + host + ":" + port + path, data, headers, method=method)
    trust = ssl.create_default_context(cafile=os.path.join(account, "ca.crt"))
    # A proxy of the image's environment does not lead to the API server.
    direct = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust)
    )
    with direct.open(request, timeout=60) as answer:
        return json.load(answer)


def moment(text):
    return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ"))


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


def wants(group):
    """How many workers a group is to have now, whoever has said so last."""
    try:
        return send("GET", group)["spec"]["worker"].get("replicas", 1)
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
        return 0


async def work():
    """Since when its scheduler has had no work, nothing while there is some, and since when it has had a worker.

    The scheduler itself counts what its tasks do, so that work between two looks counts, too. Source: `check_idle` in
    `distributed/scheduler.py`, which the Dask operator asks for its idle timeout.
    """
    # Not every image of a CronJob has it.
    from distributed.core import rpc

    async with rpc(scheduler) as link:
        since = await link.check_idle()
        first = None
        for worker in (await link.identity())["workers"]:
            events = await link.events(topic=worker)
            joined = [at for at, event in events if isinstance(event, dict) and event.get("action") == "add-worker"]
            # The log of one that has been there for long has lost its beginning.
            first = min(first or time.time(), joined[-1] if joined else 0.0)
            if since is None or first <= since:
                break
        return since, first


def unused(created):
    """Since when it has been without work, or nothing, and what that means."""
    try:
        since, first = asyncio.run(asyncio.wait_for(work(), PATIENCE))
    except Exception as error:
        sys.exit("its scheduler does not say whether it has work, so it stays: %r" % error)
    if since is None:
        return None, "has work"
    if any(wants(group) for group in groups):
        if first is None:
            return None, "waits for its workers"
        since = max(since, first)
    return max(since, created), "without work"


try:
    metadata = send("GET", path)["metadata"]
    if "deletionTimestamp" in metadata:
        print("it is being deleted")
        sys.exit()
    since, what = (unused if scheduler else aged)(moment(metadata["creationTimestamp"]))
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
