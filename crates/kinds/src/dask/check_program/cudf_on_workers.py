import os
import sys
from distributed import Client


def compute():
    """What a worker's cudf comes to; nothing for a worker that was given no GPU."""
    import os

    if not os.environ.get("CUDA_VISIBLE_DEVICES"):
        return None
    try:
        import cudf

        total = int(cudf.Series([1, 2, 3]).sum())
    except Exception as why:
        return "%s: %s" % (type(why).__name__, why)
    return ["cudf", cudf.__version__] if total == 6 else "1 + 2 + 3 came to %d" % total


with Client(os.environ["DASK_SCHEDULER_ADDRESS"], timeout="60s") as client:
    agree(client, "cudf")
    found = {worker: said for worker, said in client.run(compute).items() if said is not None}
    if not found:
        sys.exit("cudf: no worker of this Dask cluster has a GPU: give `gpus` to its workers or to a group")
    for worker, said in sorted(found.items()):
        print("%s: %s" % (worker, " ".join(said) if isinstance(said, list) else said), flush=True)
    failed = sum(1 for said in found.values() if not isinstance(said, list))
    if failed:
        sys.exit("cudf: %d of %d workers with a GPU cannot use it" % (failed, len(found)))
    print("cudf: computed", flush=True)
