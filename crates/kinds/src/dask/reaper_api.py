"""Requests to the API server from a Pod, and the idle time of a scheduler.

Python's standard library, and `distributed` where a scheduler is asked.
"""

import asyncio
import calendar
import json
import os
import signal
import ssl
import sys
import time
import urllib.error
import urllib.request

account = os.environ.get("DASK_INFRA_REAPER_ACCOUNT", "/var/run/secrets/kubernetes.io/serviceaccount")
host = os.environ["KUBERNETES_SERVICE_HOST"]
port = os.environ["KUBERNETES_SERVICE_PORT"]
if ":" in host:
    host = "[" + host + "]"

# Seconds. A look ends after four minutes in any case.
PATIENCE = 120


def send(method, path, body=None, content="application/json"):
    with open(os.path.join(account, "token")) as file:
        token = file.read().strip()
    headers = {"Authorization": "Bearer " + token, "Content-Type": content}
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


def wants(group):
    """How many workers a group is to have now, whoever has said so last."""
    try:
        return send("GET", group)["spec"]["worker"].get("replicas", 1)
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
        return 0


async def work(scheduler):
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


def unused(created, scheduler, groups):
    """Since when it has been without work, or nothing, and what that means."""
    try:
        since, first = asyncio.run(asyncio.wait_for(work(scheduler), PATIENCE))
    except Exception as error:
        sys.exit("its scheduler does not say whether it has work, so it stays: %r" % error)
    if since is None:
        return None, "has work"
    if any(wants(group) for group in groups):
        if first is None:
            return None, "waits for its workers"
        since = max(since, first)
    return max(since, created), "without work"


