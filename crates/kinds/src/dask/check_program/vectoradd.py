def add():
    """Adds vectors on the GPU of a worker."""
    number = 50000
    try:
        import cupy

        name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
        first, second = cupy.arange(number, dtype="f4"), cupy.arange(number, dtype="f4")
        total = (first + second).get()
    except ImportError:
        try:
            import numpy
            from numba import cuda
        except ImportError:
            return "neither cupy nor numba is there: the environment or the image needs `cupy-cuda12x` or `numba-cuda`"
        try:
            name = cuda.get_current_device().name.decode()

            @cuda.jit
            def kernel(first, second, total):
                at = cuda.grid(1)
                if at < total.size:
                    total[at] = first[at] + second[at]

            first, total = numpy.arange(number, dtype="f4"), numpy.zeros(number, dtype="f4")
            kernel[(number + 255) // 256, 256](first, first, total)
        except Exception as why:
            return "%s: %s" % (type(why).__name__, why)
    except Exception as why:
        return "%s: %s" % (type(why).__name__, why)
    wrong = sum(1 for at in range(number) if total[at] != 2 * at)
    return "%d of %d sums are wrong on %s" % (wrong, number, name) if wrong else ["passed on " + name]


run_on_gpus("cuda-vectoradd", add)
print("Test PASSED", flush=True)
