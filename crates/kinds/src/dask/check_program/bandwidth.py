import os
import sys
import time
from distributed import Client, wait

# Bytes of one transfer, of which the best of several counts: what else a network does is not what is measured. Pairs at most.
SIZE, TIMES, PAIRS = 32 * 2**20, 5, 16
least = int(os.environ.get("DASK_INFRA_MIN_BANDWIDTH", "0"))


def host(address):
    return address.rpartition("://")[2].rpartition(":")[0]


def spread(workers):
    """Neighbours are on different hosts, as far as there are several."""
    hosts = {}
    for address in sorted(workers):
        hosts.setdefault(host(address), []).append(address)
    rows = list(hosts.values())
    return [row[at] for at in range(max(map(len, rows))) for row in rows if at < len(row)]


def seconds(client, size, source, target):
    best = None
    for _ in range(TIMES):
        data = client.submit(os.urandom, size, workers=[source], pure=False)
        wait(data, timeout=60)
        start = time.perf_counter()
        client.submit(len, data, workers=[target], pure=False).result(timeout=300)
        took = time.perf_counter() - start
        best = took if best is None else min(best, took)
    return best


with Client(os.environ["DASK_SCHEDULER_ADDRESS"], timeout="60s") as client:
    agree(client, "bandwidth")
    workers = spread(client.nthreads())
    if len(workers) < 2:
        sys.exit("bandwidth: there is %d worker, and two are needed" % len(workers))
    pairs = list(zip(workers, workers[1:] + workers[:1]))[:PAIRS]
    slow = 0
    for source, target in pairs:
        # A task takes its time, too, whatever it is given.
        took = seconds(client, SIZE, source, target) - seconds(client, 1, source, target)
        rate = SIZE / max(took, 1e-6)
        slow += rate < least
        note = ", less than %.0f MB/s" % (least / 1e6) if rate < least else ""
        print("%s -> %s: %.0f MB/s%s" % (source, target, rate / 1e6, note), flush=True)
    if slow:
        sys.exit("bandwidth: %d of %d connections are too slow" % (slow, len(pairs)))
    print("bandwidth: measured", flush=True)
