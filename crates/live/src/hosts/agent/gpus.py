"""GPUs of this host, and who has which."""


class Gpus:
    def free_gpus(self, number, host_gpus):
        """Of the GPUs of this host, those that no worker of this user has; to be called with the lock."""
        taken = {gpu for pod in self.store.all("pods") for gpu in pod.get("internal", {}).get("gpus", [])}
        free = [gpu for gpu in host_gpus if gpu not in taken]
        if len(free) < number:
            message = "%s free on this host, and the worker needs %d: others of this user hold the rest"
            raise Refused(500, "Failed", message % (counted(len(free), "GPU is", "GPUs are"), number))
        return free[:number]

    def with_gpus(self, names, wanted):
        """Of processes those for whose GPUs there is room; to be called with the lock."""
        needs = {name: own_gpus(wanted[name]) for name in names}
        if not any(needs.values()):
            return names
        taken = {gpu for pod in self.store.all("pods") for gpu in pod.get("internal", {}).get("gpus", [])}
        room, some = len(set(gpus()) - taken), []
        for name in names:
            if needs[name] <= room:
                room -= needs[name]
                some.append(name)
        return some

    def check_gpus(self, plural, live):
        """Whether this host has the GPUs that all clusters on it ask for: nothing is started that could not be whole."""
        def needs(one):
            workers = own_gpus(one["spec"]) * most_workers(one["spec"].get("worker", {}))
            ended = is_job(one) and has_ended(one)
            return 0 if ended else workers + (program_gpus(one["spec"]) if is_job(one) and leads(one) else 0)
        if plural not in STAFFED or not needs(live):
            return
        name = live["metadata"]["name"]
        others = [one for kind, one in self.staffed() if (kind, one["metadata"]["name"]) != (plural, name)]
        there, others = len(gpus()), sum(map(needs, others))
        if needs(live) + others > there:
            more = " beside %d that others of this user have" % others if others else ""
            message = "%s asks for %s on %s%s, which has %s: nothing was started"
            raise Refused(422, "Invalid", message % (
                name, counted(needs(live), "GPU", "GPUs"), socket.gethostname(), more,
                counted(there, "GPU", "GPUs") if there else "none that `nvidia-smi` or /proc/driver/nvidia tells of"), name)


def gpus():
    """The NVIDIA GPUs of this host, by the ids that CUDA knows them by: numbers depend on CUDA_DEVICE_ORDER."""
    smi = shutil.which("nvidia-smi")
    if smi:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            asked = subprocess.run(
                [smi, "--query-gpu=uuid", "--format=csv,noheader"],
                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30,
            )
            if asked.returncode == 0:
                return [line.strip() for line in asked.stdout.splitlines() if line.startswith("GPU-")]
    found = []
    folder = "/proc/driver/nvidia/gpus"
    for device in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        with contextlib.suppress(OSError):
            with open(os.path.join(folder, device, "information")) as text:
                known = re.search(r"^GPU UUID:\s*(GPU-[0-9a-f-]+)\s*$", text.read(), re.M)
            found += [known.group(1)] if known else []
    return found


def most_workers(worker):
    """The largest number of workers on this host."""
    return int(worker.get("adapt", {}).get("maximum", worker.get("replicas", 1)))


def processes_of(worker):
    """Processes of a worker: `dask cuda worker` has one for each GPU."""
    return int(worker.get("gpus") or worker.get("processes", 1))


def program_gpus(spec):
    """GPUs that the program of a job needs."""
    return int(spec["program"].get("gpus", 0))


def own_gpus(what):
    """GPUs of this host that a worker needs: those of a job are of its node."""
    return 0 if is_of_slurm(what) else int(what.get("worker", {}).get("gpus", 0))
