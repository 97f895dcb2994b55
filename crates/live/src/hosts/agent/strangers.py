"""Processes of Dask that nobody noted here: started by hand, by SSHCluster or SLURMCluster, or by a stack whose notes are
gone or in another state folder."""

# A scheduler in a notebook has no argument that tells.
ROLES = ("scheduler", "worker")
# The name that dask-jobqueue gives its jobs. Source: `jobqueue.yaml` of 0.9.0.
JOBQUEUE = "dask-worker"


def words_of(pid):
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            return [word.decode(errors="replace") for word in file.read().split(b"\0")[:-1]]
    except OSError:
        return []


def variables_of(pid):
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            pairs = (pair.partition(b"=") for pair in file.read().split(b"\0"))
            return {name.decode(errors="replace"): value.decode(errors="replace") for name, _, value in pairs}
    except OSError:
        return {}


def role_of(words):
    """Which part of Dask a command is: `dask worker`, `dask cuda worker`, `dask-worker`, `-m distributed.cli.dask_worker`, or
    `dask_spec`, by which SSHCluster starts both."""
    # Between the interpreter and what it runs stand options.
    for at, word in enumerate(words[:6]):
        name = os.path.basename(word)
        rest = [one for one in words[at + 1:at + 3] if one != "cuda"]
        if word.startswith("distributed.cli.dask_"):
            name = "dask-" + word.rpartition("_")[2]
        if name == "dask" and rest:
            name = "dask-" + rest[0]
        if name == "dask-spec":
            return "scheduler" if "Scheduler" in " ".join(words[at:]) else "worker"
        if name.startswith("dask-") and name[5:] in ROLES:
            return name[5:]
    return None


def listening(pid):
    """The TCP ports that a process listens on, with a loopback address that leads to each."""
    sockets, found = set(), []
    try:
        for handle in os.listdir("/proc/%d/fd" % pid):
            with contextlib.suppress(OSError):
                target = os.readlink("/proc/%d/fd/%s" % (pid, handle))
                if target.startswith("socket:["):
                    sockets.add(target[8:-1])
        with open("/proc/%d/net/tcp" % pid) as rows:
            for row in list(rows)[1:]:
                fields = row.split()
                if fields[3] == "0A" and fields[9] in sockets:
                    host, _, port = fields[1].rpartition(":")
                    # The kernel prints the four bytes of an address as one number of this machine.
                    host = socket.inet_ntoa(struct.pack("=L", int(host, 16)))
                    found.append(("127.0.0.1" if host == "0.0.0.0" else host, int(port, 16)))
    except OSError:
        pass
    return sorted(found)


def speaks_first(host, port):
    """Whether who listens begins, as Dask does and a server of HTTP does not."""
    try:
        with socket.create_connection((host, port), ANSWER) as link:
            link.settimeout(ANSWER)
            return bool(link.recv(1))
    except OSError:
        return False


def is_beside(pid):
    """Whether a process sees the files and processes that this one sees: a path in a container is another file here."""
    try:
        return all(os.readlink("/proc/%d/ns/%s" % (pid, kind)) == os.readlink("/proc/self/ns/" + kind) for kind in ("mnt", "pid"))
    except OSError:
        return False


def installed(pid, program):
    """Versions of what the Python of a process has, by the names of folders. Nothing is run: a process calls itself what it likes."""
    places = [program] if os.path.isabs(program) else []
    with contextlib.suppress(OSError):
        # That of an environment is a link to another one.
        places.append(os.readlink("/proc/%d/exe" % pid))
    for place in places if is_beside(pid) else []:
        library = os.path.join(os.path.dirname(os.path.dirname(place)), "lib")
        with contextlib.suppress(OSError):
            for name in sorted(name for name in os.listdir(library) if name.startswith("python3")):
                folder = os.path.join(library, name, "site-packages")
                known = map(re.compile(r"(\w+)-([\w.+!]{1,40})\.dist-info").fullmatch, os.listdir(folder) if os.path.isdir(folder) else [])
                found = {one.group(1): one.group(2) for one in known if one and one.group(1) in RULES}
                if "distributed" in found:
                    return found
    return {}


def state_of_others(pid, uid):
    """Another state folder whose notes have a process. Its log is there; its variables may be those of its stack."""
    with contextlib.suppress(OSError, ValueError, Refused):
        # BASE/at/MACHINE/logs/NAME.log
        base = os.path.abspath(os.path.join(os.readlink("/proc/%d/fd/1" % pid), *[os.pardir] * 4))
        if os.path.basename(base) == STATE and any(pod["metadata"]["uid"] == uid for pod in Store(base).all("pods")):
            return base
    return None


class Strangers:
    def strangers(self):
        """As objects of a list; looks at this user's processes only. Not to be called with the lock."""
        seen = []
        for entry in sorted(filter(str.isdigit, os.listdir("/proc")), key=int):
            process, words = this_process(int(entry)), words_of(int(entry))
            role = role_of(words)
            with contextlib.suppress(OSError):
                if role and process["start"] is not None and os.stat("/proc/" + entry).st_uid == os.geteuid():
                    seen.append((process, role, words, variables_of(process["pid"])))
        noted = set()
        if os.path.isdir(self.store.root):
            with self.store.locked(LOCK):
                noted = {pod["metadata"]["uid"] for pod in self.store.all("pods")}
        found, jobs = [], set()
        for process, role, words, variables in seen:
            mark, job, pid = variables.get(MARK), variables.get("SLURM_JOB_ID"), process["pid"]
            # One that was noted and has ended since is nobody's any more.
            if mark in noted or not is_alive(process):
                continue
            one = self.stranger("%d-%d" % (pid, process["start"]), role, " ".join(words))
            one.update(pid=pid, ours=mark is not None, stop="kill %d" % pid)
            if mark is not None:
                one["state"] = state_of_others(pid, mark)
            if job:
                jobs.add(job)
                one.update(job=job, stop="scancel %s" % job)
            if role == "scheduler":
                one.update(self.answers(pid))
            versions = installed(pid, words[0])
            if versions:
                one["versions"] = versions
            found.append(one)
        return found + self.strange_jobs(jobs)

    def stranger(self, name, role, command):
        return {
            "apiVersion": HOSTS, "kind": "Stranger", "metadata": {"name": name}, "role": role,
            "command": without_passwords(command)[:300], "host": socket.gethostname(),
            "user": pwd.getpwuid(os.geteuid()).pw_name,
        }

    def answers(self, pid):
        """What a scheduler says of itself, at whichever of its ports it does."""
        for host, port in listening(pid):
            if speaks_first(host, port):
                # The port for workers and clients, which takes a request for the size of a message.
                continue
            at = {"spec": {"scheduler": {"host": host, "port": port, "dashboardPort": port}}}
            with contextlib.suppress(OSError, ValueError):
                known = ask(at, "GET", "/json/identity.json", None, ANSWER)
                if isinstance(known, dict) and known.get("type") == "Scheduler":
                    workers = known.get("workers", {})
                    return {"address": known.get("address"), "dashboard": "http://%s:%d/status" % (url_host(host), port),
                            "workers": known.get("n_workers", len(workers))}
        return {}

    def strange_jobs(self, known):
        """Jobs of dask-jobqueue that wait, or run on other nodes."""
        if not shutil.which("squeue"):
            return []
        found = []
        run = slurm_command("squeue", "-h", "-u", pwd.getpwuid(os.geteuid()).pw_name, "-n", JOBQUEUE, "-o", "%i|%T|%k")
        if run.returncode:
            # The programs of a SLURM that this host is no part of. Source: seen with 22.05.
            if "configuration source" in run.stderr:
                return []
            raise unknown("squeue: %s" % complaint(run))
        for line in run.stdout.splitlines():
            number, state, comment = line.split("|", 2)
            if number not in known and not job_uid(comment):
                one = self.stranger("job-" + number, "worker", "job %s, %s" % (JOBQUEUE, state))
                found.append(dict(one, job=number, ours=False, stop="scancel %s" % number))
        return found
