"""The memory of this host, and what workers may use of it."""


class Memory:
    def memory_shortage(self, live):
        """What workers with a limit of their own may use together, where that is more than this host has; else None."""
        if not limits_of(live["spec"]):
            return None
        running = (one for _, one in self.staffed() if not (is_job(one) and has_ended(one)))
        asked, there = sum(limits_of(one["spec"]) for one in running), host_memory()
        if not there or asked <= there:
            return None
        return "workers here may use %s of memory together, by `memory`, and the host has %s" % (gibibytes(asked), gibibytes(there))


def limits_of(spec):
    """Bytes that the workers of a cluster, a group or a job may use of this host: those of a job of SLURM are on its node."""
    worker = spec.get("worker", {})
    # The limit is of each process.
    return 0 if is_of_slurm(spec) else int(worker.get("memory", 0)) * processes_of(worker) * most_workers(worker)


def host_memory():
    """Bytes of memory that this user's processes can have; 0 if nothing tells. Containers have a limit of their own."""
    found = []
    with contextlib.suppress(OSError, ValueError):
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    # Version 2 of control groups, and version 1. The text is `max` where there is no limit.
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            with open(path) as text:
                found.append(int(text.read()))
    return min(found, default=0)


def gibibytes(size):
    return "%.1f GiB" % (size / 2 ** 30)
