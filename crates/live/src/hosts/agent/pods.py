"""Processes as pods: started, ended and forgotten."""


# Runs a worker once there is a line to read: meanwhile it imports what takes most of the time of a start, and so does the server that its
# processes are forks of, where it has one.
WAITS_FOR_LINE = """
import contextlib, os, runpy, sys
with open(os.dup(0)) as line:
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    with contextlib.suppress(Exception):
        from distributed.utils import get_mp_context
        if get_mp_context().get_start_method() == "forkserver":
            from multiprocessing.forkserver import ensure_running
            ensure_running()
    if not line.readline():
        sys.exit("what started it ended before its scheduler answered")
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""


class Pods:
    def process_of(self, pod):
        """The process of a pod; one whose start was not noted in time is found by its mark."""
        process = pod.get("internal", {}).get("process")
        if process is None and not pod.get("internal", {}).get("error"):
            if "job" in pod.get("internal", {}):
                return None
            process = next(filter(is_first, marked(pod["metadata"]["uid"])), None)
        return process

    def start(self, cluster, name, what, said=None):
        """Starts a process, which may wait for what it is told; to be called with the lock."""
        if self.store.get("pods", name, "default"):
            raise Refused(409, "Conflict", "there is another process of the name %s" % name)
        uid = str(uuid.uuid4())
        labels = {CLUSTER_LABEL: cluster, COMPONENT_LABEL: what["component"]}
        if what["component"] == "worker":
            labels[GROUP_LABEL] = what["group"] or cluster + "-default"
        pod = {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "namespace": "default", "uid": uid, "labels": labels, "creationTimestamp": now(),
            },
            "spec": {"containers": [{"name": what["component"]}]},
            "internal": {"text": digest(what), "environment": what["environment"].get("digest")},
        }
        worker = what.get("worker", {})
        if worker.get("processes") or worker.get("gpus"):
            pod["internal"]["processes"] = processes_of(worker)
        try:
            has_scratch = what["component"] in ("scheduler", "worker") and not is_of_slurm(what)
            scratch = self.scratch(name, uid, worker) if has_scratch else None
            if scratch and worker.get("localDirectory"):
                pod["internal"]["scratch"] = scratch
            command, variables = self.command(name, what, scratch)
            own = worker or (what["scheduler"] if what["component"] == "scheduler" else {})
            variables, seen = self.with_files(pod, what.get("files"), own.get("workingDir"), variables)
            if not is_of_slurm(what):
                self.check_place(pod)
            if own_gpus(what):
                host_gpus = gpus()
                pod["internal"]["gpus"] = self.free_gpus(own_gpus(what), host_gpus)
                variables["CUDA_VISIBLE_DEVICES"] = ",".join(pod["internal"]["gpus"])
                if not worker.get("memory"):
                    # Each process gets the host's memory by the number of GPUs that it sees, which are only its own. Source:
                    # `cuda_worker.py` of dask-cuda 26.10.
                    command += ["--memory-limit", str(round(1 / len(host_gpus), 4))]
            given = {"gpus": bool(worker.get("gpus")), "job": is_of_slurm(what)}
            folders = [scratch or worker.get("localDirectory")]
            if is_of_slurm(what):
                folders.append(SCRATCH)
                if not worker:
                    # Where its scheduler file goes.
                    folders.append(os.path.dirname(self.scheduler_file(name)))
            folders.append(what["scheduler"].get("tls"))
            given["folders"] = [os.path.expanduser(folder) for folder in folders if folder] + seen
            status = self.environment(what["environment"]["name"])["status"]
            command, variables = self.in_environment(pod, status, command, variables, **given)
        except (Refused, OSError) as why:
            if isinstance(why, OSError) and why.errno in FULL:
                raise
            pod["internal"]["error"] = why.message if isinstance(why, Refused) else why.strerror or str(why)
            self.store.put("pods", pod)
            return
        pod["spec"]["containers"][0]["command"] = command
        if is_of_slurm(what):
            pod["internal"]["slurm"] = True
            self.submit(pod, worker or what["scheduler"], command, variables)
            return
        if worker.get("localDirectory"):
            # First the note, then the folder: one outside of the own ones would be nobody's.
            self.store.put("pods", pod)
        if scratch:
            os.makedirs(scratch, mode=0o700, exist_ok=True)
        if said:
            # As it is written down, it can be run by hand.
            command = [command[0], "-c", WAITS_FOR_LINE] + command[2:]
        self.spawn(pod, command, variables, program() if what["component"] == ADAPTER else said)

    def may_start_early(self, live, what):
        """Whether a worker may run before its scheduler is known: it has its scheduler's environment, and that has all it needs."""
        if what["component"] != "worker" or is_of_slurm(what) or own_gpus(what) or live["spec"].get("pipInstall"):
            return False
        found = self.environment(what["environment"]["name"]) or {}
        return "slurm" not in what["scheduler"] and not found.get("status", {}).get("container")

    def start_early(self, cluster, names, wanted):
        """Starts workers that wait for a line before they connect; to be called with the lock. Gives for each where to write it, by
        whose end they end, too."""
        early = {}
        for name in names:
            read, early[name] = os.pipe()
            with os.fdopen(read) as said:
                self.start(cluster, name, wanted[name], said)
        return early

    def end_early(self, early):
        """Ends and forgets workers that waited in vain; not to be called with the lock."""
        if early:
            with self.store.locked():
                pods = list(filter(None, (self.store.get("pods", name, "default") for name in early)))
            tell(early, "")
            self.stop(pods)

    def scratch(self, name, uid, worker):
        """The folder for what a scheduler or a worker writes to disk."""
        above = os.path.expanduser(worker.get("localDirectory", ""))
        if not above:
            return self.store.at("scratch", name)
        if not os.path.isdir(above):
            raise Refused(500, "Failed", "there is no folder %s on this host: make it, or name another one in `local_directory`" % above)
        if not os.access(above, os.W_OK | os.X_OK):
            raise Refused(500, "Failed", "the folder %s of `local_directory` cannot be written" % above)
        return os.path.join(above, "dask-infra-%s-%s" % (name, uid[:8]))

    def remove_scratch(self, pod):
        self.store.remove("scratch", pod["metadata"]["name"])
        if pod.get("internal", {}).get("scratch"):
            shutil.rmtree(pod["internal"]["scratch"], ignore_errors=True)

    def command(self, name, what, scratch):
        environment = self.environment(what["environment"]["name"])
        if not environment or environment["status"].get("phase") != "Ready":
            raise Refused(500, "Failed", "the environment %s is not ready" % what["environment"]["name"])
        python = environment["status"]["python"]
        scheduler = what["scheduler"]
        encrypted = security(scheduler.get("tls"))
        if what["component"] == ADAPTER:
            words = [python, "-u", "-c", START, "adapt", self.store.base, what["cluster"], contact(scheduler)]
            return words, dict(self.around(self.with_secrets(scheduler)), **encrypted)
        protocol = scheduler.get("protocol")
        spoken = ["--protocol", protocol] if protocol else []
        schedules = [python, "-c", SCHEDULES, "distributed.cli.dask_scheduler"]
        own = self.with_secrets(scheduler) if what["component"] == "scheduler" else {}
        if what.get("idle"):
            own["DASK_DISTRIBUTED__SCHEDULER__IDLE_TIMEOUT"] = "%ds" % what["idle"]
        own.update(encrypted)
        if what["component"] == "scheduler" and is_of_slurm(what):
            return schedules + scheduler_options(scheduler, self.scheduler_file(name)) + spoken, own
        host, port, pages = listens(scheduler), int(scheduler["port"]), int(scheduler["dashboardPort"])
        at = url_host(host)
        if what["component"] == "scheduler":
            for one in (port, pages):
                check_free(host, one)
            # Dask imports from this folder, and otherwise takes one in /tmp that any user may have made.
            own.setdefault("DASK_TEMPORARY_DIRECTORY", scratch)
            listening = ["--host", host, "--port", str(port), "--dashboard-address", "%s:%d" % (at, pages)]
            return schedules + listening + spoken, own
        worker = what["worker"]
        if what.get("spread"):
            host = own_address(host, port)
            at, scheduler_at = url_host(host), at
        else:
            scheduler_at = at
        if worker.get("interface") and not is_of_slurm(what):
            host = address_of(worker["interface"])
            at = url_host(host)
        address = "%s://%s:%d" % (protocol or "tcp", scheduler_at, port)
        variables = self.with_secrets(worker)
        if worker.get("gpus"):
            if "dask-cuda" not in environment["status"].get("extras", {"dask-cuda": None}):
                message = "the environment %s has no package `dask-cuda`, which starts workers with GPUs"
                raise Refused(500, "Failed", message % what["environment"]["name"])
            # It starts a process for each GPU that it sees. It has no option for their number, and none for a nanny.
            # Source: `cli.py` of dask-cuda 26.10.
            command = [python, "-m", "dask", "cuda", "worker", address, "--name", name] + worker.get("cudaOptions", [])
        else:
            processes = worker.get("processes", 1)
            command = [
                python, "-m", "distributed.cli.dask_worker", address, "--name", name, "--nworkers", str(processes),
            ]
            if processes > 1:
                # They are forks of one process that has imported distributed, where each would import it: four are up in two thirds
                # of the time. Its own tests run so. Source: `get_mp_context` of distributed 2026.8.0, measured with benches/hosts.rs.
                variables.setdefault("DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD", "forkserver")
        command += ["--nthreads", str(worker.get("threads", 1))] + spoken
        if is_of_slurm(what):
            command += worker_options(worker)
        else:
            command += ["--host", host, "--dashboard-address", "%s:0" % at, "--local-directory", scratch]
        for option, ports in (("--worker-port", worker.get("workerPort")), ("--nanny-port", worker.get("nannyPort"))):
            command += [option, str(ports)] if ports else []
        if worker.get("nanny") is False:
            command.append("--no-nanny")
        if worker.get("memory"):
            command += ["--memory-limit", str(worker["memory"])]
        if worker.get("resources"):
            pairs = ["%s=%s" % pair for pair in sorted(worker["resources"].items())]
            command += ["--resources", ",".join(pairs)]
        return command, dict(variables, **encrypted)

    def with_secrets(self, asked):
        """The variables of a process, with those whose values are in a Secret."""
        variables = dict(asked.get("env", {}))
        for name, place in sorted(asked.get("secrets", {}).items()):
            data = (self.store.get("secrets", place["secret"], "default") or {}).get("data", {})
            if place["key"] not in data:
                message = "the value of %s is not on this host, so nothing that needs it was started: `apply` brings it"
                raise Refused(500, "Failed", message % name)
            variables[name] = base64.b64decode(data[place["key"]]).decode()
        return variables

    def spawn(self, pod, command, variables, said=None):
        """To be called with the lock."""
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        os.makedirs(self.store.at("logs"), mode=0o700, exist_ok=True)
        # First the note, then the process: one that nobody noted would be nobody's. Who looks meanwhile must not take it for ended.
        pod["internal"]["starter"] = this_process(os.getpid())
        self.store.put("pods", pod)
        if is_contained(pod):
            given = client_variables(variables)
        else:
            given = {key: value for key, value in os.environ.items() if key in PASSED_ON or key.startswith("LC_")}
            given.update(variables)
        given.update({MARK: uid, KEEPS_MARK: "1"})
        # What is started again goes on in its log.
        begins = 0 if pod["internal"].get("restarts") else os.O_TRUNC
        log = os.open(self.store.at("logs", log_name(name)), os.O_WRONLY | os.O_CREAT | os.O_APPEND | begins, 0o600)
        def run():
            os.dup2(log, 1)
            os.dup2(log, 2)
            if said:
                os.dup2(said.fileno(), 0)
            os.umask(UMASK)
            # Runtimes may show a container the folder that they are started in.
            outside = home_folder() if pod["internal"].get("container", {}).get("home", True) else "/"
            os.chdir(outside if is_contained(pod) else pod["internal"].get("folder", outside))
            os.execve(command[0], command, given)
        pod["internal"]["process"] = detach(run)
        del pod["internal"]["starter"]
        os.close(log)
        self.store.put("pods", pod)

    def stop(self, pods):
        """Ends processes and forgets them, workers first; not to be called with the lock. Says which do not end."""
        workers = [pod for pod in pods if pod["metadata"]["labels"].get(COMPONENT_LABEL) != "scheduler"]
        left, kept = [], {}
        programs = [pod for pod in workers if is_program(pod)]
        workers = [pod for pod in workers if pod not in programs]
        for some in (programs, workers, [pod for pod in pods if pod not in programs + workers]):
            left += self.cancel(some)
            processes = [self.process_of(pod) for pod in some]
            for process in processes:
                # A program stands behind the shell that waits for it.
                send_signal(process, signal.SIGTERM, some is programs)
            until = time.monotonic() + TERMINATE
            while any(map(is_alive, processes)) and time.monotonic() < until:
                time.sleep(0.05)
            for pod, why in self.remove_containers_of(some):
                kept[pod["metadata"]["name"]] = "its container cannot be removed: " + why
            left += [name for name in sorted(kept) if name not in left]
            # It, and children that outlived it.
            left += [pod["metadata"]["name"] for pod in some if pod["metadata"]["name"] not in left
                     and kill_marked(pod["metadata"]["uid"])]
        with self.store.locked():
            for pod in pods:
                name = pod["metadata"]["name"]
                if name in left:
                    why = "its process does not react to SIGKILL: it waits for a disk, a network or a device"
                    self.keep(pod, "SLURM has not ended its job" if "job" in pod["internal"] else kept.get(name, why))
                    continue
                live = self.store.get("pods", name, "default")
                if live and live["metadata"]["uid"] == pod["metadata"]["uid"]:
                    self.keep_log(live)
                    self.forget_log(name)
                    self.remove_scratch(live)
                    self.store.remove("scripts", name + ".sh")
                    self.store.remove("schedulers", name)
                    self.store.remove("scripts", name + ".env")
                    self.store.drop("pods", name, "default")
        return left

    def run(self, pod):
        """A program that somebody asks for by itself: with the environment of the cluster that it names."""
        live = self.store.get("clusters", pod["metadata"].get("annotations", {}).get("hosts.dask-infra.dev/cluster", ""))
        environment = self.environment(live["spec"]["environment"]["name"]) if live else None
        python = (environment or {}).get("status", {}).get("python")
        internal = pod.setdefault("internal", {})
        if not python:
            internal["error"] = "the Dask cluster that it names has no environment that is ready"
            self.store.put("pods", pod)
            return
        container = pod["spec"]["containers"][0]
        internal["environment"] = live["spec"]["environment"].get("digest")
        variables = {one["name"]: one.get("value", "") for one in container.get("env", [])}
        if SCHEDULER in variables and live["spec"]["scheduler"].get("host") in (None, AUTO):
            # Only this host knows the address of an interface, the one that SLURM sees, and that of a job.
            try:
                variables[SCHEDULER] = contact(terms_of(live))
            except OSError as why:
                internal["error"] = why.strerror or str(why)
                self.store.put("pods", pod)
                return
        command = [python] + container["command"][1:]
        folder, own = terms_of(live).get("tls"), pod["metadata"].get("annotations", {})
        try:
            variables.update(security(folder))
            variables, seen = self.with_files(pod, own.get("hosts.dask-infra.dev/files"), container.get("workingDir"), variables)
            self.check_place(pod)
        except Refused as why:
            internal["error"] = why.message
            self.store.put("pods", pod)
            return
        folders = ([folder] if folder else []) + seen
        command, variables = self.in_environment(pod, environment["status"], command, variables, folders=folders)
        name = pod["metadata"]["name"]
        self.store.remove("logs", exit_name(name))
        self.spawn(pod, ["/bin/sh", "-c", SHELL, "sh", self.store.at("logs", exit_name(name))] + command, variables)

    def keep_log(self, pod):
        """Puts the log of a process that ended aside for as long as its Dask cluster is there: the last few, of long ones the end.
        To be called with the lock."""
        name, cluster = pod["metadata"]["name"], pod["metadata"]["labels"].get(CLUSTER_LABEL)
        live, log = self.led(cluster), self.store.at("logs", log_name(name))
        # Without room on the disk, or where it cannot be read, there is nothing to look into.
        with contextlib.suppress(OSError):
            if live is None or is_going(live) or not os.path.getsize(log):
                return
            folder = self.store.at("ended", cluster)
            kept = os.path.join(folder, "%d.%s" % (time.time_ns(), name))
            seen = {"metadata": pod["metadata"], "spec": {"containers": [{"name": pod["spec"]["containers"][0]["name"]}]}}
            self.store.write(kept + ".json", seen)
            if os.path.getsize(log) > ENDED_LOG:
                cut_to_end(log, ENDED_LOG)
            os.rename(log, kept + ".log")
            for old in sorted(one for one in os.listdir(folder) if one.endswith(".json"))[:-ENDED_LOGS]:
                self.store.remove("ended", cluster, old)
                self.store.remove("ended", cluster, old[:-len(".json")] + ".log")

    def ended_pods(self):
        """Processes that ended and left a log: the last one of each name, and those before it as `NAME.1`, `NAME.2`."""
        found, seen, above = [], {}, self.store.at("ended")
        for cluster in sorted(os.listdir(above)) if os.path.isdir(above) else []:
            for one in sorted(os.listdir(os.path.join(above, cluster)), reverse=True):
                pod = read_json(os.path.join(above, cluster, one)) if one.endswith(".json") else None
                log = os.path.join(above, cluster, one[:-len(".json")] + ".log")
                if pod and os.path.exists(log):
                    name = pod["metadata"]["name"]
                    before = seen.get(name, 0)
                    seen[name] = before + 1
                    if before:
                        pod["metadata"]["name"] = "%s.%d" % (name, before)
                    found.append(shown_log(pod, log, "Failed"))
        return found

    def installs(self):
        """The logs of what installed the environments of this host, as pods."""
        found = []
        for live in map(self.seen_environment, self.store.all("environments")):
            name, host = live["metadata"]["name"], live["spec"].get("host")
            log = self.store.at("logs", log_name("environment-" + name))
            if os.path.exists(log):
                phase = {"Ready": "Succeeded", "Making": "Running"}.get(live["status"].get("phase"), "Failed")
                metadata = dict(live["metadata"], namespace="default", labels={ENVIRONMENT_LABEL: name})
                # Of several hosts no two have one name.
                metadata["name"] = "environment-" + name + ("_" + host if host else "")
                found.append(shown_log({"metadata": metadata, "spec": {"containers": [{"name": "installer"}]}}, log, phase))
        return found

    def pods_without_processes(self, asked):
        return self.ended_pods() if asked.get("previous") == "true" else self.installs()

    def pod_without_process(self, name, asked):
        """What only has a log: a process that ended, or what installed an environment. None for all others."""
        if asked.get("previous") != "true" and not name.startswith("environment-"):
            return None
        return next((pod for pod in self.pods_without_processes(asked) if pod["metadata"]["name"] == name), None)

    def forget_log(self, name):
        self.store.remove("logs", log_name(name))
        self.store.remove("logs", exit_name(name))
        self.store.remove("logs", exit_name(name) + UNFINISHED)

    def end(self, pod):
        """To be called with the lock, which is why it is not waited for long."""
        name = pod["metadata"]["name"]
        for _, why in self.remove_containers_of([pod], KILL):
            raise Refused(503, "ServiceUnavailable", "the container of %s cannot be removed: %s" % (name, why))
        if kill_marked(pod["metadata"]["uid"], 2):
            raise Refused(503, "ServiceUnavailable", "the process of %s does not react to SIGKILL" % name)
        self.forget_log(name)
        self.remove_scratch(pod)
        self.store.drop("pods", name, pod["metadata"].get("namespace"))


def shown_log(pod, log, phase):
    """A log as a pod whose process is not noted."""
    state = {"running": {}} if phase == "Running" else {"terminated": {"reason": "Ended"}}
    container = {"name": pod["spec"]["containers"][0]["name"], "ready": False, "restartCount": 0, "state": state}
    metadata = {key: value for key, value in pod["metadata"].items() if key != "managedFields"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod["spec"], "log": log,
            "status": {"phase": phase, "containerStatuses": [container]}}


def tell(early, line="\n"):
    """Lets workers that were started early go on, or end."""
    for pipe in early.values():
        with contextlib.suppress(BrokenPipeError):
            os.write(pipe, line.encode())
        os.close(pipe)
    early.clear()


def group_of(pod):
    return pod["metadata"]["labels"].get(GROUP_LABEL)


def members(pod):
    """By which names a scheduler knows what a worker consists of: `NAME-0` and so on where it is several processes, as
    `dask worker --nworkers` and `dask cuda worker` name them."""
    name, number = pod["metadata"]["name"], pod.get("internal", {}).get("processes", 1)
    return ["%s-%d" % (name, index) for index in range(number)] if number > 1 else [name]


def is_of_slurm(what):
    return "slurm" in what.get("worker", {}) or what.get("component") == "scheduler" and "slurm" in what["scheduler"]
