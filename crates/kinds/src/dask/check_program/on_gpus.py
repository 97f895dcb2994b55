import os
import sys
import time
from distributed import Client

# Readiness of Pods says nothing about the connections of the processes in them.
SECONDS = 120


def run_on_gpus(check, compute):
    """Runs a function on each worker with a GPU. It returns a list with one text if it computed, and a text with the reason if it could
    not. Ends the program unless all of them computed."""
    def on_worker():
        # dask-cuda and dask-infra's hosts say which GPUs a process has. Other processes in a Pod have what its container has.
        in_pod = "KUBERNETES_SERVICE_HOST" in os.environ and os.path.exists("/dev/nvidiactl")
        return compute() if os.environ.get("CUDA_VISIBLE_DEVICES") or in_pod else None

    # Nothing where the file gives no GPUs to workers: theirs are in a patch of their Pods, or of a cluster that is managed elsewhere.
    least = int(os.environ.get("DASK_INFRA_MIN_GPU_WORKERS", "0"))
    with Client(os.environ["DASK_SCHEDULER_ADDRESS"], timeout="60s") as client:
        agree(client, check)
        seen, said, until = set(), {}, time.monotonic() + SECONDS
        while True:
            new = [worker for worker in client.nthreads() if worker not in seen]
            seen.update(new)
            if new:
                said.update((worker, text) for worker, text in client.run(on_worker, workers=new).items() if text is not None)
            elif seen and len(said) >= least or time.monotonic() > until:
                break
            else:
                time.sleep(0.5)
        for worker, text in sorted(said.items()):
            print("%s: %s" % (worker, text[0] if isinstance(text, list) else text), flush=True)
        failed = sum(1 for text in said.values() if not isinstance(text, list))
        if failed:
            sys.exit("%s: %d of %d workers with a GPU cannot use it" % (check, failed, len(said)))
        if not said:
            sys.exit("%s: no worker of this Dask cluster has a GPU: give `gpus` to its workers or to a group" % check)
        if len(said) < least:
            sys.exit("%s: %d of %d workers with a GPU have connected within %d s" % (check, len(said), least, SECONDS))
