"""Workers and schedulers as jobs of SLURM: the part of the agent that submits, finds and cancels them.

A job is found by its comment, which holds the id of the process that it is, so that one whose number was not noted in time is
not submitted twice. Text of squeue is read, not its JSON, whose fields differ between releases.
"""

# Seconds. The commands of SLURM give up by themselves after MessageTimeout, 10 by default and up to 100 in the field.
COMMAND = 40
# Between two tries.
PAUSES = (0.2, 1)
# How old a look at the queue may be.
RECENT = 1
# How long SLURM may take to say what only belongs to other stacks, and how long its silence is believed then.
FOR_OTHERS, SILENT_FOR_OTHERS = 5, 60
# A job that was cancelled goes after KillWait (30 by default), and after its node has cleaned up.
CANCELLED = 90
# Submitted one after the other while the files are held.
AT_ONCE = 8
# Seconds between two looks at a job whose scheduler is waited for, at most.
LONGEST_LOOK = 15
# A worker whose scheduler has gone while it waited in the queue gives up.
DEATH_TIMEOUT = 120
# Everything else is a job that is there. Source: squeue(1), JOB STATE CODES, of 22.05 to 25.05.
ENDED = (
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT",
)
WAITS = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT")
COLUMNS = ("id", "state", "reason", "node", "submitted", "starts", "name", "comment")
# What a host without an address of its own in the stack file is called there: the address that SLURM's controller sees.
AUTO = "auto"


def slurm_command(name, *words, **given):
    """Runs one of SLURM's programs. They are asked in English, and without the user's own defaults for them."""
    environment = {key: value for key, value in os.environ.items() if key in PASSED_ON or key.startswith("SLURM_CONF")}
    environment.update(given.get("variables", {}), LC_ALL="C")
    try:
        run = subprocess.run(
            [name] + list(words), stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=given.get("timeout", COMMAND), env=environment,
        )
    except FileNotFoundError:
        message = "there is no `%s` on the PATH" % name
        remedy = "name a login node of the cluster; by SSH it is the PATH of a shell that is not a login shell, which the first lines " \
            "of ~/.bashrc may set"
        raise Refused(500, "Failed", message, None, remedy) from None
    except subprocess.TimeoutExpired:
        raise unknown("`%s` did not end within %d s" % (name, given.get("timeout", COMMAND))) from None
    return run


def is_refused_by_slurm(run):
    """Whether a request came to nothing; a job that SLURM does not know any more needs no cancelling."""
    return run.returncode != 0 and "Invalid job id" not in run.stderr


def ask_slurm(name, *words):
    """Runs one of SLURM's programs that may be run twice, again where it fails: a controller that is busy refuses single requests."""
    for pause in PAUSES + (None,):
        run = slurm_command(name, *words)
        if pause is None or not is_refused_by_slurm(run):
            return run
        time.sleep(pause)


def unknown(message):
    """SLURM says nothing: what is there is unknown, not absent."""
    remedy = "what runs goes on; try again when `squeue` answers on the login node, or ask who runs the cluster"
    return Refused(503, "ServiceUnavailable", "SLURM cannot be asked: " + message, None, remedy)


def complaint(run):
    """What a program of SLURM said of its failure, in one line."""
    lines = [re.sub(r"^\w+: (error: )?", "", line).strip() for line in run.stderr.splitlines()]
    return "; ".join(line for line in lines if line)[-400:] or "it said nothing and ended with %d" % run.returncode


def job_uid(comment):
    found = re.match(r"dask-infra ([0-9a-f-]{36})( |$)", comment)
    return found.group(1) if found else None


def queue(for_others=False):
    """All jobs of this user that SLURM knows, those too that ended within MinJobAge (5 minutes by default)."""
    asked = time.time()
    words = ["squeue", "-h", "-t", "all", "-u", pwd.getpwuid(os.geteuid()).pw_name, "-o", "%i|%T|%r|%N|%V|%S|%j|%k"]
    run = slurm_command(*words, timeout=FOR_OTHERS) if for_others else ask_slurm(*words)
    if run.returncode:
        raise unknown("squeue: %s" % complaint(run))
    jobs = []
    for line in run.stdout.splitlines():
        fields = line.split("|", len(COLUMNS) - 1)
        if len(fields) == len(COLUMNS):
            jobs.append(dict(zip(COLUMNS, fields)))
    return asked, [dict(job, uid=job_uid(job["comment"])) for job in jobs if job_uid(job["comment"])]


def waits(job):
    return job["state"] in WAITS


def is_there(job):
    return job["state"] not in ENDED


def own_place():
    """The address of this host that SLURM's controller sees: that of the cluster's network, on a login node with several."""
    run = ask_slurm("scontrol", "show", "config")
    known = dict(re.findall(r"^(SlurmctldHost\[0\]|SlurmctldPort)\s*=\s*(\S+)", run.stdout, re.M))
    if run.returncode or len(known) < 2:
        raise unknown("scontrol: %s" % complaint(run))
    name, _, inner = known["SlurmctldHost[0]"].partition("(")
    return own_address(inner.rstrip(")") or name, int(re.match(r"\d+", known["SlurmctldPort"]).group()))


PLACES = []


def place_of(scheduler):
    """Where a scheduler listens."""
    if scheduler["host"] != AUTO:
        return scheduler["host"]
    if not PLACES:
        PLACES.append(own_place())
    return PLACES[0]


def value_of(text):
    """A value of an #SBATCH line."""
    return text if re.fullmatch(r"[\w./:@%+,=-]+", text) else '"%s"' % text.replace("\\", "\\\\").replace('"', '\\"')


# Stands for the folder that the script of a job finds, in the words of its command.
SCRATCH = "@dask-infra-scratch@"


def scratch_lines(above):
    """Lines of a script that find a folder on the node for what Dask spills. It reads that back as pickles and imports from it: one that
    another user made is not taken."""
    above = shlex.quote(os.path.expanduser(above)) if above else '"${DASK_TEMPORARY_DIRECTORY:-${TMPDIR:-/tmp}}"'
    return [
        "scratch=%s/dask-infra-scratch-$(id -u)" % above,
        'mkdir -p -m 700 "$scratch" 2> /dev/null || :',
        '[ -d "$scratch" ] && [ -O "$scratch" ] && [ ! -L "$scratch" ] || scratch=$(mktemp -d "$scratch-XXXXXXXX") || exit 1',
        'export DASK_TEMPORARY_DIRECTORY="$scratch"',
    ]


def worker_options(worker):
    """Options of a worker that is a job."""
    options = ["--dashboard-address", ":0", "--death-timeout", str(DEATH_TIMEOUT), "--local-directory", SCRATCH]
    if worker.get("interface"):
        options += ["--interface", worker["interface"]]
    limits = worker["slurm"]
    # `dask cuda worker` has no such option: SLURM ends it at the limit. Source: `cli.py` of dask-cuda 26.10.
    if limits.get("lifetime") and not worker.get("gpus"):
        # It leaves before SLURM ends it, and moves what it holds; not all of them at once.
        options += ["--lifetime", "%ds" % limits["lifetime"], "--lifetime-stagger", "%ds" % limits["stagger"]]
    return options


def scheduler_options(scheduler, file):
    """Options of a scheduler that is a job: it writes down where it is, on the folder that nodes and login node share. Ports that
    nobody named may be taken on a node, whatever they are."""
    options = ["--port", str(scheduler.get("port", 0)), "--dashboard-address", ":%d" % scheduler.get("dashboardPort", 0)]
    if scheduler.get("interface"):
        options += ["--interface", scheduler["interface"]]
    return options + ["--scheduler-file", file]


def code_lines(pod, variables):
    """Lines of a script that have its process work with the user's files, after those of the site, which may set a path, too."""
    internal, lines = pod["internal"], []
    if internal.get("files"):
        value, before = shlex.quote(variables[PYTHON_PATH]), ""
        if not is_contained(pod):
            # In a container the paths of the site mean nothing.
            value, before = shlex.quote(variables[PYTHON_PATH].partition(os.pathsep)[0]), '"${%s:+:$%s}"' % (PYTHON_PATH, PYTHON_PATH)
        lines.append("export %s=%s%s" % (PYTHON_PATH, value, before))
    if internal.get("folder") and not is_contained(pod):
        lines.append("cd %s || exit 1" % shlex.quote(internal["folder"]))
    return lines


def job_script(name, comment, log, slurm, command, variables, private=None, above=None, code=()):
    """A script that can be read and submitted by hand."""
    for key in variables:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key):
            raise Refused(422, "Invalid", "%r cannot be the name of a variable" % key)
    # `%` begins a pattern in the name of a log, and a file that is there is appended to.
    own = [
        ("job-name", name), ("comment", comment), ("output", log.replace("%", "%%")), ("open-mode", "append"),
    ]
    lines = ["#!/bin/sh", "# Written by dask-infra for %s." % name]
    lines += ["#SBATCH --%s=%s" % (key, value_of(value)) for key, value in own]
    lines += ["#SBATCH " + directive for directive in slurm["directives"]]
    lines += ["export %s=%s" % (key, shlex.quote(str(value))) for key, value in sorted(variables.items())]
    # SLURM keeps the script, and its administrators can read it.
    lines += [". " + shlex.quote(private)] if private else []
    lines += slurm.get("prologue", []) + list(code) + scratch_lines(above)
    # SLURM signals the script's process, and a worker that is not this process would outlive its job.
    lines.append("exec " + " ".join(shlex.quote(word).replace(SCRATCH, '"$scratch"') for word in command))
    return "\n".join(lines) + "\n"


class Slurm:
    """What a host does as a login node."""

    # The last look at the queue: when it was begun, and its jobs by the id of their workers.
    seen_jobs = None
    # Until when SLURM's silence is believed, and what it said, where only other stacks have jobs.
    silence = None

    def prepare(self, plural, name=None, body=None, has_jobs=True):
        """Looks at the queue before the files are held: SLURM may take its time. A list for a stack without jobs (`has_jobs`) is
        answered without SLURM, too: what it does not tell of belongs to other stacks."""
        if plural not in STAFFED + ("pods",):
            return
        if "slurm" in (body or {}).get("spec", {}).get("worker", {}) or name is not None and self.is_in_slurm(plural, name):
            self.silence = None
            self.look()
        elif name is not None:
            return
        elif any("slurm" in one["spec"]["worker"] for kind in LED for one in self.store.all(kind) if not has_ended(one)):
            with contextlib.suppress(*([] if has_jobs else [Refused])):
                self.look(for_others=not has_jobs)

    def is_in_slurm(self, plural, name):
        """Returns true for what is of a Dask cluster whose workers are jobs."""
        if plural == "pods":
            pod = self.store.get("pods", name, "default") or {"metadata": {}}
            cluster = pod["metadata"].get("labels", {}).get(CLUSTER_LABEL)
        else:
            group = self.store.get("workergroups", name) if plural == "workergroups" else None
            cluster = group["spec"].get("cluster") if group else name
        live = self.led(cluster) if cluster else None
        return bool(live) and "slurm" in live["spec"]["worker"] and not has_ended(live)

    def look(self, anew=False, for_others=False):
        """The last look at the queue, or a new one."""
        if anew or not self.seen_jobs or time.time() - self.seen_jobs[0] > RECENT:
            if self.silence and time.monotonic() < self.silence[0]:
                raise self.silence[1]
            try:
                at, jobs = queue(for_others)
            except Refused as why:
                if for_others:
                    self.silence = time.monotonic() + SILENT_FOR_OTHERS, why
                raise
            by_uid = {}
            for job in jobs:
                by_uid.setdefault(job["uid"], []).append(job)
            self.seen_jobs = (at, by_uid)
        return self.seen_jobs

    def job_of(self, pod):
        """The job of a process; None when SLURM does not know it any more."""
        noted = pod.get("internal", {}).get("job")
        if noted is None or pod["internal"].get("error"):
            return None
        at, jobs = self.look()
        uid = pod["metadata"]["uid"]
        found = sorted(jobs.get(uid, []), key=is_there)
        if found:
            return found[-1]
        if noted["at"] >= at or ("id" not in noted and marked(uid)):
            # It is submitted at this moment.
            return {"id": noted.get("id", ""), "state": "PENDING", "reason": "None", "submitted": "", "starts": "", "node": ""}
        return None

    def lives(self, pod):
        """Whether a process runs, or its job is there."""
        if "job" not in pod.get("internal", {}):
            return is_alive(self.process_of(pod))
        job = self.job_of(pod)
        return job is not None and is_there(job) and not self.is_begun_anew(pod, job)

    def is_queued(self, pod):
        job = self.job_of(pod)
        return job is not None and waits(job)

    def never_starts(self, pod):
        """Why a job waits for ever; None when it does not."""
        job = self.job_of(pod)
        return job["reason"] if job and waits(job) and job["reason"].startswith(tuple(NEVER)) else None

    def scheduler_file(self, name):
        """Where a scheduler that is a job writes down what it is: in a folder of its own, which its container sees."""
        return self.store.at("schedulers", name, "scheduler.json")

    def written_down(self, pod):
        """What the scheduler of a job wrote: its id and its place."""
        known = read_json(self.scheduler_file(pod["metadata"]["name"])) or {}
        host, _, port = str(known.get("address", "")).rpartition("://")[2].rpartition(":")
        pages = known.get("services", {}).get("dashboard")
        if not known.get("id") or not host or not pages:
            return None
        return {"id": known["id"], "host": host.strip("[]"), "port": int(port), "dashboardPort": int(pages)}

    def is_begun_anew(self, pod, job):
        """Whether a scheduler's job was requeued: the scheduler that was known is gone."""
        own = pod["internal"].get("scheduler")
        written = own and self.written_down(pod)
        # A look from before it answered tells that it waited then.
        waited = waits(job) and self.seen_jobs[0] > pod["internal"].get("answered", 0)
        return bool(own) and (waited or bool(written and written["id"] != own))

    def wait_for_job(self, cluster, pod):
        """Until the job of a scheduler runs and the scheduler answers, as long as it is wanted: SLURM may take days."""
        name, pause, until = pod["metadata"]["name"], 0.5, None
        def is_wanted():
            with self.store.locked():
                found = self.store.get("pods", name, "default")
                own = found and found["metadata"]["uid"] == pod["metadata"]["uid"]
                return bool(own) and self.is_as_wanted(cluster, found)
        while is_wanted():
            try:
                job = self.job_of(pod)
            except Refused:
                # SLURM may be away for a while, and its jobs are not.
                job = {"state": "PENDING"}
            if job is None or not is_there(job):
                return
            told = self.written_down(pod)
            if told:
                with self.store.locked():
                    self.store.write(self.store.at("schedulers", cluster), {key: told[key] for key in ("host", "port", "dashboardPort")})
                    live = self.led(cluster)
                known = heard(live, ANSWER) if live else {}
                if known.get("id") == told["id"]:
                    with self.store.locked():
                        found = self.store.get("pods", name, "default")
                        if found and found["metadata"]["uid"] == pod["metadata"]["uid"]:
                            found["internal"]["scheduler"] = told["id"]
                            found["internal"]["answered"] = time.time()
                            self.store.put("pods", found)
                    return
            if waits(job):
                pause, until = min(1.5 * pause, LONGEST_LOOK), None
            else:
                pause, until = 0.3, until or time.monotonic() + UP
            if until and time.monotonic() > until:
                where = "%s:%d" % (told["host"], told["dashboardPort"]) if told else "any port: it has not written down where it is"
                message = "the job of its scheduler runs, but the scheduler does not answer on %s within %d s: workers were not started"
                raise Refused(500, "Failed", message % (where, UP))
            rests = time.monotonic() + pause
            while time.monotonic() < rests and is_wanted():
                time.sleep(min(0.5, pause))

    def submit(self, pod, asked, command, variables):
        """Submits the job that a worker or a scheduler is; to be called with the lock."""
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        slurm, secrets = asked["slurm"], asked.get("secrets", {})
        cluster = pod["metadata"]["labels"][CLUSTER_LABEL]
        for folder in ("logs", "scripts"):
            os.makedirs(self.store.at(folder), mode=0o700, exist_ok=True)
        log = self.store.at("logs", log_name(name))
        # SLURM makes no folders, and one without a file is taken away.
        open(log, "w").close()
        # First the note, then the job: one that nobody noted would be nobody's.
        pod["internal"]["job"] = {"at": time.time()}
        pod["spec"]["containers"][0]["command"] = command
        self.store.put("pods", pod)
        file = self.store.at("scripts", name + ".sh")
        if pod["metadata"]["labels"].get(COMPONENT_LABEL) == "scheduler":
            self.store.remove("schedulers", name)
            os.makedirs(self.store.at("schedulers", name), mode=0o700)
            # Empty folders are taken away.
            open(self.store.at("schedulers", name, "job"), "w").close()
        private = self.store.at("scripts", name + ".env") if secrets else None
        if private:
            with open(os.open(private, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as own:
                own.writelines("export %s=%s\n" % (key, shlex.quote(variables[key])) for key in sorted(secrets))
        shown = {key: value for key, value in variables.items() if key not in secrets}
        code = code_lines(pod, variables)
        if pod["internal"].get("files"):
            own = shown.pop(PYTHON_PATH).partition(os.pathsep)[2]
            shown.update({PYTHON_PATH: own} if own else {})
        with open(file, "w") as script:
            above = asked.get("localDirectory")
            script.write(job_script(name, "dask-infra %s %s" % (uid, cluster), log, slurm, command, shown, private, above, code))
        words = ["--parsable", "--chdir", home_folder(), file]
        given = {key: value for key, value in os.environ.items() if is_contained(pod) and key.startswith(OF_JOBS)}
        run = slurm_command("sbatch", *words, variables=dict(given, **{MARK: uid}))
        if run.returncode == 0:
            pod["internal"]["job"]["id"] = run.stdout.strip().partition(";")[0]
        elif "Unable to contact" in run.stderr or "timed out" in run.stderr:
            # It may have been submitted: the queue tells.
            raise unknown("sbatch: %s" % complaint(run))
        else:
            pod["internal"]["error"] = "sbatch refused it: %s" % complaint(run)
        pod["internal"]["job"]["at"] = time.time()
        self.store.put("pods", pod)

    def cancel(self, pods):
        """Cancels the jobs of processes; says whose jobs do not end.
        Not to be called with the lock."""
        uids = {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in pods if pod["internal"].get("slurm")}
        if not uids:
            return []
        for uid in uids:
            # A submission that its command did not live to see the end of.
            for process in marked(uid):
                if command_of(process["pid"]) == "sbatch":
                    kill_marked(uid, 2)
        until, asked = time.monotonic() + CANCELLED, set()
        while True:
            _, jobs = self.look(anew=True)
            left = {job["id"]: uid for uid in uids for job in jobs.get(uid, []) if is_there(job)}
            # Its node cleans up, which does not need us.
            busy = {job["id"] for uid in uids for job in jobs.get(uid, []) if job["state"] != "COMPLETING"} & set(left)
            new = sorted(set(left) - asked)
            if new:
                run = ask_slurm("scancel", "--quiet", *new)
                if is_refused_by_slurm(run):
                    raise unknown("scancel: %s" % complaint(run))
                asked |= set(new)
            if not left or (not busy and time.monotonic() > until - CANCELLED + 20):
                return []
            if time.monotonic() > until:
                return sorted({uids[left[job]] for job in busy})
            time.sleep(0.2)

    def queue_of(self, pods):
        """What of a group's jobs waits, and how others ended."""
        jobs = [(pod, self.job_of(pod)) for pod in pods if "job" in pod.get("internal", {})]
        return queue_status([job for _, job in jobs if job])

    def job_status(self, pod):
        """What SLURM says of a worker, for its pod."""
        job = self.job_of(pod)
        if job is None:
            return None
        return {key: job[key] for key in ("id", "state", "reason", "node", "submitted", "starts") if job.get(key) not in ("", None)}


def queue_status(jobs):
    waiting, ended = {}, {}
    for job in jobs:
        if waits(job):
            waiting[job["reason"]] = waiting.get(job["reason"], 0) + 1
        elif not is_there(job):
            ended[job["state"]] = ended.get(job["state"], 0) + 1
    since = sorted(job["submitted"] for job in jobs if waits(job) and job["submitted"])
    starts = sorted(job["starts"] for job in jobs if waits(job) and job["starts"] not in ("", "N/A"))
    status = {"waiting": waiting, "ended": ended}
    if since:
        status["since"] = stamp(time.mktime(time.strptime(since[0], "%Y-%m-%dT%H:%M:%S")))
    if starts:
        status["starts"] = stamp(time.mktime(time.strptime(starts[0], "%Y-%m-%dT%H:%M:%S")))
    return status


def command_of(pid):
    try:
        with open("/proc/%d/comm" % pid) as file:
            return file.read().strip()
    except OSError:
        return ""
