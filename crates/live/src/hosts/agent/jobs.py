"""Programs that run to their end beside a Dask cluster of their own.

A shell waits for the program and notes its exit code in a file, so that it is known whoever else was killed meanwhile. A process
that outlives the command follows the job: it starts the program once the scheduler answers, and takes the cluster away at its end.
"""

PROGRAM = "job-runner"
# Notes the exit code whole or not at all.
SHELL = 'file=$1; shift; "$@"; code=$?; echo $code > "$file~" && mv "$file~" "$file"; exit $code'
# Seconds between two looks; before a program that failed is started again, at first and at most, as a kubelet does.
LOOK, BACKOFF, LONGEST = 0.2, 10, 300
# Seconds between two looks at the cluster of a job whose program runs: at processes, and at SLURM's queue.
KEEP, KEEP_IN_QUEUE = 2, 15
# Seconds without a fault after which the next one is repaired at once again.
STEADY = 60
# As the Dask operator calls it.
JOB_ENDED = ("Successful", "Failed")


class Upkeep:
    """Has what ended of a job's cluster started again while its program runs: at once, and after longer and longer pauses where
    it soon ends again."""

    def __init__(self, host, live):
        self.host, self.name, self.in_queue = host, live["metadata"]["name"], "slurm" in live["spec"]["worker"]
        self.next, self.pause, self.last = 0, BACKOFF, None

    def looks(self):
        """Returns true when it is time to look; not to be called with the lock, as SLURM may take its time."""
        if time.monotonic() < self.next:
            return False
        try:
            if self.in_queue:
                self.host.look()
            return True
        except Refused:
            # What SLURM does not tell of is unknown, not gone.
            return False
        finally:
            self.next = time.monotonic() + (KEEP_IN_QUEUE if self.in_queue else KEEP)

    def repair(self):
        """To be called with the lock, after a look."""
        if self.host.is_converging(self.name):
            return
        wanted = self.host.wanted(self.name)
        pods = {pod["metadata"]["name"]: pod for pod in self.host.pods(CLUSTER_LABEL, self.name)}
        if all(name in pods and self.host.lives(pods[name]) for name in wanted):
            return
        at = time.monotonic()
        if self.last is not None:
            if at < self.last + self.pause:
                return
            self.pause = BACKOFF if at > self.last + self.pause + STEADY else min(2 * self.pause, LONGEST)
        self.last = at
        self.host.converge(self.name)


class Jobs:
    def begin(self, live):
        """Begins what a job asks for, or goes on with it; to be called with the lock."""
        name, terms = live["metadata"]["name"], live["spec"]["scheduler"]
        state = self.state_of(live)
        if state["jobStatus"] in JOB_ENDED and not has_ended(live):
            # Nobody was there to note it.
            state.pop("followed")
            self.note_end(live, state)
        elif not has_ended(live):
            if leads(live) and "ports" not in live.setdefault("internal", {}):
                given = {key: terms[key] for key in ("port", "dashboardPort") if key in terms}
                # Dask's usual ones are those of the clusters of a stack.
                live["internal"]["ports"] = dict(free_ports(), **given)
                self.store.put("jobs", live)
            if is_open(live):
                self.follow(name)
        self.converge(name)

    def follow(self, name):
        """To be called with the lock."""
        file = self.store.at("follow", name)
        detach_once(self.store, file, lambda: self.followed(name, file))

    def is_followed(self, name):
        return is_alive(read_json(self.store.at("follow", name)))

    def followed(self, name, file):
        with self.store.locked():
            # Who began it writes down first who this is.
            live = self.store.get("jobs", name)
        try:
            if live and leads(live):
                self.to_its_end(live)
            elif live:
                self.to_the_end_of_its_scheduler(live)
        except Exception as why:
            error = why.message if isinstance(why, Refused) else "%s: %s" % (type(why).__name__, why)
            with self.store.locked():
                self.note_end(live, {"jobStatus": "Failed", "message": error})
        with self.store.locked():
            self.store.remove("follow", os.path.basename(file))
            if self.is_still(live):
                self.converge(name)

    def is_still(self, live):
        """Whether a job is there, and is that one; to be called with the lock."""
        found = live and self.store.get("jobs", live["metadata"]["name"])
        return bool(found) and found["metadata"]["uid"] == live["metadata"]["uid"] and not is_going(found)

    def program_of(self, name):
        return self.store.get("pods", name + "-runner", "default")

    def to_its_end(self, live):
        name, again, pause, unlike = live["metadata"]["name"], 0, BACKOFF, None
        leader, upkeep = name + "-scheduler", Upkeep(self, live)
        while True:
            looks = upkeep.looks()
            with self.store.locked():
                if not self.is_still(live) or has_ended(self.store.get("jobs", name)):
                    return
                pod, scheduler = self.program_of(name), self.store.get("pods", leader, "default")
                starts = pod is None and scheduler and scheduler["internal"].get("scheduler") and not self.lacks_plugin(live)
                if starts and unlike:
                    self.note_end(live, {"jobStatus": "Failed", "message": unlike})
                    return
                if starts and unlike is not None:
                    self.start_program(live)
                elif pod is None and not starts and not self.is_converging(name):
                    noted = read_json(self.store.at("run", name)) or {}
                    said = noted.get("error") or (self.said(scheduler) if scheduler else "its start was interrupted")
                    why = "not all of `pip_install` is installed" if self.lives(scheduler or {}) else "its scheduler does not run"
                    message = "%s, so its program was not started: %s" % (why, said)
                    self.note_end(live, {"jobStatus": "Failed", "message": message})
                    return
                outcome = self.outcome(pod) if pod else None
                if outcome and self.starts_again(live, pod, outcome):
                    if not again:
                        again, pause = time.monotonic() + pause, min(2 * pause, LONGEST)
                    elif time.monotonic() > again:
                        again = 0
                        self.run_program(pod, live)
                elif outcome:
                    self.note_end(live, outcome)
                    ended = pod["metadata"]["uid"]
                    break
                elif pod and looks:
                    upkeep.repair()
            if starts and unlike is None:
                unlike = self.unlike_program(live)
                continue
            time.sleep(LOOK)
        # What it left running in the background.
        self.remove_containers_of([pod])
        kill_marked(ended)

    def to_the_end_of_its_scheduler(self, live):
        """On another host than the scheduler's: workers that ended with it are forgotten."""
        name, upkeep = live["metadata"]["name"], Upkeep(self, live)
        while True:
            time.sleep(5 * LOOK)
            with self.store.locked():
                if not self.is_still(live):
                    return
                live = self.store.get("jobs", name)
                pods = self.pods(CLUSTER_LABEL, name)
                busy = self.is_converging(name) or any(map(self.lives, pods))
            looks = upkeep.looks()
            # While its scheduler answers, its program may run.
            answers = bool(heard(live, ANSWER)) if looks or not busy else busy
            if not busy and not answers:
                self.stop(pods)
                return
            if looks and answers and is_open(live):
                with self.store.locked():
                    if self.is_still(live):
                        upkeep.repair()

    def starts_again(self, live, pod, outcome):
        """Whether a program that ended runs once more: one that cannot be run at all does not."""
        fails = outcome["jobStatus"] == "Failed" and not pod["internal"].get("error")
        return fails and live["spec"].get("restart") == "on-failure"

    def note_end(self, live, status):
        """To be called with the lock."""
        if not self.is_still(live):
            return
        live = self.store.get("jobs", live["metadata"]["name"])
        pod = self.program_of(live["metadata"]["name"])
        if pod:
            status = dict(status, startTime=pod["metadata"]["creationTimestamp"])
            if pod["internal"].pop("gpus", None):
                self.store.put("pods", pod)
        live["status"] = dict(status, endTime=now())
        self.store.put("jobs", live)

    def outcome(self, pod):
        """How a program ended; nothing while it runs."""
        internal, name = pod["internal"], pod["metadata"]["name"]
        if internal.get("error"):
            return {"jobStatus": "Failed", "message": internal["error"]}
        process = self.process_of(pod)
        if is_alive(process):
            return None
        code = read_json(self.store.at("logs", exit_name(name)))
        if isinstance(code, int):
            status = {"jobStatus": "Failed" if code else "Successful", "exitCode": code}
            return dict(status, message=tail(self.store.at("logs", log_name(name)))) if code else status
        if process and process.get("boot") != boot():
            message = "the host was restarted while it ran"
        else:
            message = "it and what waited for it were killed, so its exit code is not known"
        return {"jobStatus": "Failed", "message": message}

    def start_program(self, live):
        """To be called with the lock."""
        name = live["metadata"]["name"]
        pod = {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name + "-runner", "namespace": "default", "uid": str(uuid.uuid4()), "creationTimestamp": now(),
                "labels": {CLUSTER_LABEL: name, COMPONENT_LABEL: PROGRAM},
            },
            "spec": {"containers": [{"name": PROGRAM}]},
            "internal": {"environment": live["spec"]["environment"].get("digest")},
        }
        try:
            if program_gpus(live["spec"]):
                pod["internal"]["gpus"] = self.free_gpus(program_gpus(live["spec"]), gpus())
            self.run_program(pod, live)
        except (Refused, OSError) as why:
            pod["internal"]["error"] = why.message if isinstance(why, Refused) else why.strerror or str(why)
            self.store.put("pods", pod)

    def run_program(self, pod, live):
        """To be called with the lock."""
        spec, name = live["spec"], pod["metadata"]["name"]
        program = spec["program"]
        environment = self.environment(spec["environment"]["name"])
        if not environment or environment["status"].get("phase") != "Ready":
            raise Refused(500, "Failed", "the environment %s is not ready" % spec["environment"]["name"])
        given, seen = self.with_files(pod, spec.get("files"), program.get("workingDir"), self.with_secrets(program))
        self.check_place(pod)
        found = self.program_file(program["args"][0], environment["status"], pod["internal"].get("folder"))
        if not found:
            message = "there is no program `%s` in the environment %s, nor on the PATH of this host"
            raise Refused(500, "Failed", message % (program["args"][0], spec["environment"]["name"]))
        terms = terms_of(self.store.get("jobs", live["metadata"]["name"]))
        variables = dict({"PYTHONUNBUFFERED": "1", SCHEDULER: contact(terms)}, **given)
        variables.update(security(terms.get("tls")))
        if "container" not in environment["status"]:
            variables.setdefault("PATH", path_with(environment["status"]["python"]))
        if pod["internal"].get("gpus"):
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(pod["internal"]["gpus"])
        if pod["internal"].pop("process", None):
            pod["internal"]["restarts"] = pod["internal"].get("restarts", 0) + 1
        command = [found] + program["args"][1:]
        command, variables = self.in_environment(
            pod, environment["status"], command, variables, gpus=bool(pod["internal"].get("gpus")),
            folders=([terms["tls"]] if "tls" in terms else []) + seen)
        pod["spec"]["containers"][0]["command"] = command
        self.store.remove("logs", exit_name(name))
        self.spawn(pod, ["/bin/sh", "-c", SHELL, "sh", self.store.at("logs", exit_name(name))] + command, variables)

    def program_file(self, first, status, folder=None):
        # The environment's, even where it is called otherwise.
        if first in ("python", "python3"):
            return status["python"]
        # Only its image tells what is in it.
        first = os.path.expanduser(first)
        if folder and "/" in first:
            first = os.path.join(folder, first)
        return first if "container" in status else shutil.which(first, path=path_with(status["python"]))

    def unlike_program(self, live):
        """Why a program must not send work: a Python of its own has other versions than the scheduler. Nothing when it may; not to be
        called with the lock."""
        with self.store.locked():
            environment = self.environment(live["spec"]["environment"]["name"])
        status = (environment or {}).get("status", {})
        found = status.get("python") and self.program_file(live["spec"]["program"]["args"][0], status)
        own = python_behind(found) if found and "container" not in status else None
        if not own or os.path.dirname(own) == os.path.dirname(status["python"]):
            return ""
        with contextlib.suppress(Refused):
            versions = self.about(own)["versions"]
            told = versions_at(self.store.get("jobs", live["metadata"]["name"]) or live, [], ANSWER)
            breaks, _ = skew([("its scheduler", told[0] if told else status["versions"]), ("its program", versions)])
            if breaks:
                cure = "its program was not started, as %s has other versions than its scheduler (%s): let it run with `python`, " \
                    "which is that of its environment, or install the same versions there"
                return cure % (own, "; ".join(breaks))
        return ""

    def state_of(self, live):
        """How far a job is."""
        name = live["metadata"]["name"]
        status = {"followed": self.is_followed(name)}
        if has_ended(live):
            return dict(status, **live["status"])
        pod = self.program_of(name)
        if pod is None:
            return dict(status, jobStatus="JobCreated")
        status["startTime"] = pod["metadata"]["creationTimestamp"]
        # Who follows it notes its end, and knows whether it is one.
        outcome = None if status["followed"] else self.outcome(pod)
        if outcome and not self.starts_again(live, pod, outcome):
            return dict(status, **outcome)
        return dict(status, jobStatus="Running")


def is_job(live):
    return live["kind"] == "Job"


def is_program(pod):
    return pod["metadata"].get("labels", {}).get(COMPONENT_LABEL) == PROGRAM


def is_open(live):
    """Whether a job has a scheduler to connect to: its host does not tell others its ports any more when it has ended."""
    return leads(live) or "ports" in live["spec"]


def has_ended(live):
    return live.get("status", {}).get("jobStatus") in JOB_ENDED


def exit_name(pod):
    return pod + ".exit"


def path_with(python):
    """The PATH of a program: that of the environment comes first."""
    return "%s:%s" % (os.path.dirname(python), os.environ.get("PATH", os.defpath))


def python_behind(file):
    """The Python that runs a program: itself, or that of its first line; nothing where that cannot be told."""
    if re.fullmatch(r"python[0-9.]*", os.path.basename(file)):
        return file
    with contextlib.suppress(OSError):
        with open(file, "rb") as text:
            first = re.match(rb"#!\s*(/\S*/python[0-9.]*)\s", text.read(256))
        return first and os.fsdecode(first.group(1))
    return None
