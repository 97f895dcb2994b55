import os
from distributed import Client

with Client(os.environ["DASK_SCHEDULER_ADDRESS"], timeout="60s") as client:
    agree(client, "dask-sum")
    total = client.submit(sum, client.map(int, range(10)))
    print("dask-sum:", total.result(timeout=300), flush=True)
