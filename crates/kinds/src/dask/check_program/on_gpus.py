import os
import sys
from distributed import Client, TimeoutError


def run_on_gpus(check, compute):
    """Runs a function on each worker. It returns None on a worker without a GPU, a list with one text if it computed, and a text with the
    reason if it could not. Ends the program unless all workers with a GPU computed."""
    with Client(os.environ["DASK_SCHEDULER_ADDRESS"], timeout="60s") as client:
        agree(client, check)
        try:
            client.wait_for_workers(1, timeout=120)
        except TimeoutError:
            sys.exit("%s: no worker has connected to the scheduler within 120 s" % check)
        found = {}
        # Workers that connect meanwhile compute, too.
        while new := [worker for worker in client.nthreads() if worker not in found]:
            found.update(client.run(compute, workers=new))
        found = {worker: said for worker, said in found.items() if said is not None}
        if not found:
            sys.exit("%s: no worker of this Dask cluster has a GPU: give `gpus` to its workers or to a group" % check)
        for worker, said in sorted(found.items()):
            print("%s: %s" % (worker, said[0] if isinstance(said, list) else said), flush=True)
        failed = sum(1 for said in found.values() if not isinstance(said, list))
        if failed:
            sys.exit("%s: %d of %d workers with a GPU cannot use it" % (check, failed, len(found)))


