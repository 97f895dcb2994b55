def compute():
    """Computes with cuDF on the GPU of a worker."""
    try:
        import cudf

        total = int(cudf.Series([1, 2, 3]).sum())
    except Exception as why:
        return "%s: %s" % (type(why).__name__, why)
    return ["cudf " + cudf.__version__] if total == 6 else "1 + 2 + 3 came to %d" % total


run_on_gpus("cudf", compute)
print("cudf: computed", flush=True)
