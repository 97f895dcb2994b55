import sys

try:
    import cudf

    total = int(cudf.Series([1, 2, 3]).sum())
except Exception as why:
    sys.exit("cudf: %s: %s" % (type(why).__name__, why))
if total != 6:
    sys.exit("cudf: 1 + 2 + 3 came to %d" % total)
print("cudf: %s" % cudf.__version__, flush=True)
print("cudf: computed", flush=True)
