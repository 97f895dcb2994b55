"""Deletes one DaskCluster when it is old enough. Python's standard library only, as it runs in the cluster's own image."""

import datetime
import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.request

path = os.environ["DASK_INFRA_TTL_PATH"]
seconds = int(os.environ["DASK_INFRA_TTL_SECONDS"])
workload = os.environ.get("DASK_INFRA_TTL_WORKLOAD", "")
pause = int(os.environ.get("DASK_INFRA_TTL_PAUSE", "20"))
account = os.environ.get("DASK_INFRA_TTL_ACCOUNT", "/var/run/secrets/kubernetes.io/serviceaccount")
host = os.environ["KUBERNETES_SERVICE_HOST"]
port = os.environ["KUBERNETES_SERVICE_PORT"]
if ":" in host:
    host = "[" + host + "]"


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


def age(since):
    begun = datetime.datetime.strptime(since, "%Y-%m-%dT%H:%M:%SZ")
    return (datetime.datetime.utcnow() - begun).total_seconds()


def admitted():
    """Since when a cluster in a queue may run; nothing while it waits."""
    for condition in send("GET", workload).get("status", {}).get("conditions", []):
        if condition["type"] == "Admitted" and condition["status"] == "True":
            return condition["lastTransitionTime"]
    return None


def begun(metadata):
    """Since when its time counts, and what it has done since then."""
    if not workload:
        return metadata["creationTimestamp"], "old"
    for again in (True, False):
        try:
            return admitted(), "in use"
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            # Kueue makes one that was deleted anew, within seconds.
            if again:
                time.sleep(pause)
    # Nobody holds it back.
    return metadata["creationTimestamp"], "old"


try:
    metadata = send("GET", path)["metadata"]
    since, what = begun(metadata)
    if "deletionTimestamp" in metadata:
        print("it is being deleted")
    elif since is None:
        print("it waits in its queue, and its time has not begun")
    elif age(since) < seconds:
        print("it is %d s %s, and stays until it is %d s %s" % (age(since), what, seconds, what))
    else:
        # Another one of its name that was made meanwhile stays.
        send("DELETE", path, {"preconditions": {"uid": metadata["uid"]}})
        print("deleted: it was %d s %s" % (age(since), what))
except urllib.error.HTTPError as error:
    if error.code not in (404, 409):
        sys.exit("the API server answers %d: %s" % (error.code, error.read().decode(errors="replace")))
    print("there is nothing to delete")
