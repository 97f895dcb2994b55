"""What is live on this host, as a small Kubernetes-like API.

dask-infra runs this program with the host's own Python for as long as one command runs: a request a line on stdin, an
answer a line on stdout. Nothing listens on a port. Objects are JSON files below one folder of the user and the machine, so
that the next command finds them; processes outlive this program and are found by process id, start time and boot.

Standard library only, Python 3.8 and later, Linux: start times and environments of processes are read from /proc.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import pwd
import re
import select
import shlex
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import time
import urllib.parse
import uuid

HOSTS = "hosts.dask-infra.dev/v1"
# Plural, API version, kind, whether it lies in a namespace.
KINDS = {
    "namespaces": ("v1", "Namespace", False),
    "configmaps": ("v1", "ConfigMap", True),
    "pods": ("v1", "Pod", True),
    "events": ("v1", "Event", True),
    "environments": (HOSTS, "Environment", False),
    "clusters": (HOSTS, "Cluster", False),
    "workergroups": (HOSTS, "WorkerGroup", False),
}
CLUSTER_LABEL = "dask.org/cluster-name"
GROUP_LABEL = "dask.org/workergroup-name"
COMPONENT_LABEL = "dask.org/component"
# Tells a program where the scheduler is.
SCHEDULER = "DASK_SCHEDULER_ADDRESS"
# In the environment of every process that is started here; children inherit it.
MARK = "DASK_INFRA_PROCESS"
# What processes get of the environment of who applies: a shell's other variables would make two applies differ, and may
# hold secrets.
PASSED_ON = ("HOME", "LANG", "LD_LIBRARY_PATH", "LOGNAME", "PATH", "SHELL", "SSL_CERT_FILE", "TMPDIR", "TZ", "USER")
# The scheduler's routes with its API, which retires workers; a list replaces the default one.
# Source: distributed.yaml of distributed 2026.8.0.
ROUTES = [
    "distributed.http.scheduler." + name for name in ("prometheus", "info", "json", "api")
] + ["distributed.http." + name for name in ("health", "proxy", "statics")]
# Seconds. A scheduler may take so long to answer; all that are asked for one request; one that was silent a moment ago.
ANSWER, ANSWERS, AGAIN = 2, 3, 0.2
# How long one that was silent counts as such.
SILENT = 15
# A scheduler that was started to answer, and workers that were started to register: imports take up to ten seconds on a
# machine that does other things, for each process.
UP = 180
# Retiring moves what workers hold: gigabytes, over a network.
RETIRE = 120
TERMINATE = 15
KILL = 10
# Less than an apply waits for an environment.
INSTALL, ABOUT = 1700, 60
# Beside the lock of a maker: the folder of the files that it reads.
FILES = ".files"
# How long a request waits for the files.
LOCK = 10
# Bytes of a log that are sent at most, and above which one is cut to as much as that.
LOG, LONG_LOG = 4 * 1024 * 1024, 64 * 1024 * 1024
# Bytes that are kept, so that the record and the lock of a stack can be written on a full disk.
RESERVE = 256 * 1024
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def stamp(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def now():
    return stamp(time.time())


class Refused(Exception):
    def __init__(self, status, reason, message, name=None, remedy=None):
        super().__init__(message)
        self.status, self.reason, self.message, self.name, self.remedy = status, reason, message, name, remedy

    def answer(self):
        return {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.status, "details": {"name": self.name},
            "remedy": self.remedy,
        }


class Broken(Refused):
    """A Python that does not run."""

    def __init__(self, message):
        super().__init__(500, "Failed", message)


def not_found(plural, name):
    return Refused(404, "NotFound", '%s "%s" not found' % (plural, name), name)


# Processes

def boot():
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def started(pid):
    """When a process started, in ticks since boot; None when it is not there or only waits to be reaped."""
    try:
        with open("/proc/%d/stat" % pid) as file:
            # The name in parentheses may hold anything, other parentheses too.
            fields = file.read().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def this_process(pid):
    return {"pid": pid, "start": started(pid), "boot": boot()}


def is_alive(process):
    if not process or not process.get("pid") or process.get("boot") != boot():
        return False
    start = started(process["pid"])
    return start is not None and start == process["start"]


def marked(uid):
    """Processes with a mark in their environment."""
    wanted = ("%s=%s" % (MARK, uid)).encode()
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        process = this_process(int(entry))
        try:
            with open("/proc/%s/environ" % entry, "rb") as file:
                if wanted in file.read().split(b"\0") and process["start"] is not None:
                    found.append(process)
        except OSError:
            continue
    return found


def is_first(process):
    """Whether a process is the one of its group that was started here."""
    try:
        return os.getpgid(process["pid"]) == process["pid"]
    except OSError:
        return False


def kill_marked(uid, patience=KILL):
    """Ends every process with a mark, those too that are begun meanwhile; says which do not end."""
    until = time.monotonic() + patience
    while True:
        left = marked(uid)
        for process in left:
            send_signal(process, signal.SIGKILL)
        if not left or time.monotonic() > until:
            return left
        time.sleep(0.02)


def send_signal(process, number):
    """Only to a process that is still the one that was meant."""
    if is_alive(process):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process["pid"], number)


# Handles of locks: a child that keeps one keeps the lock.
HELD = set()
# That of who applies: what workers write is the user's, what is written here is for the user alone.
UMASK = os.umask(0o077)


def detach(work):
    """Runs a function in a process group that outlives this one, and says which process leads it."""
    read, write = os.pipe()
    child = os.fork()
    if child:
        os.close(write)
        os.waitpid(child, 0)
        with os.fdopen(read) as file:
            pid = int(file.read() or 0)
        return this_process(pid) if pid else None
    try:
        os.close(read)
        for handle in HELD:
            os.close(handle)
        HELD.clear()
        os.setsid()
        if os.fork():
            os._exit(0)
        # A group of its own, by whose number all of it is signalled.
        os.setpgid(0, 0)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        os.write(write, str(os.getpid()).encode())
        os.close(write)
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        work()
    except BaseException as error:
        with contextlib.suppress(BaseException):
            os.write(2, ("%s\n" % error).encode())
        os._exit(1)
    os._exit(0)


# Server-side apply, for trees whose lists are values

def leaves(tree, path=()):
    if isinstance(tree, dict) and tree:
        for key, value in tree.items():
            yield from leaves(value, path + (key,))
    else:
        yield path, tree


def find(tree, path):
    for key in path:
        if not isinstance(tree, dict) or key not in tree:
            return None
        tree = tree[key]
    return tree


def put(tree, path, value):
    for key in path[:-1]:
        if not isinstance(tree.get(key), dict):
            tree[key] = {}
        tree = tree[key]
    tree[path[-1]] = value


def take(tree, path):
    above = find(tree, path[:-1])
    if isinstance(above, dict) and path[-1] in above:
        del above[path[-1]]
        if not above and len(path) > 2:
            take(tree, path[:-1])


def fields_of(paths):
    tree = {}
    for path in sorted(paths):
        place = tree
        for key in path:
            place = place.setdefault("f:" + key, {})
    return tree


def paths_of(fields, path=()):
    found = set()
    for key, below in fields.items():
        inner = paths_of(below, path + (key[2:],))
        found |= inner or {path + (key[2:],)}
    return found


NOT_FIELDS = {("apiVersion",), ("kind",)} | {
    ("metadata", name)
    for name in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")
}


def own_fields(body):
    return {
        path: value for path, value in leaves(body)
        if path not in NOT_FIELDS and path[0] not in ("status", "internal") and path[:2] != ("metadata", "managedFields")
    }


def written(live, wanted, manager, operation, subresource, force):
    """A live object with the fields that a manager writes."""
    entries = live["metadata"].get("managedFields", [])
    def is_own(entry):
        return (entry["manager"], entry["operation"], entry.get("subresource")) == (manager, operation, subresource)
    def overlaps(one, other):
        shorter = min(len(one), len(other))
        return one[:shorter] == other[:shorter]
    others = [(entry, paths_of(entry["fieldsV1"])) for entry in entries if not is_own(entry)]
    before = set().union(*[paths_of(entry["fieldsV1"]) for entry in entries if is_own(entry)])
    for path, value in wanted.items():
        if find(live, path) == value:
            continue
        for entry, paths in others:
            taken = {other for other in paths if overlaps(path, other)}
            if taken and operation == "Apply" and not force:
                message = 'Apply failed with 1 conflict: conflict with "%s": .%s' % (entry["manager"], ".".join(path))
                raise Refused(409, "Conflict", message)
            paths -= taken
        put(live, path, value)
    own = set(wanted)
    if operation == "Apply":
        kept = own.union(*[paths for _, paths in others])
        for path in sorted(before - own):
            if not any(overlaps(path, other) for other in kept):
                take(live, path)
    else:
        own |= before
    entries = [dict(entry, fieldsV1=fields_of(paths)) for entry, paths in others if paths]
    if own:
        entry = {
            "manager": manager, "operation": operation, "apiVersion": live["apiVersion"], "time": now(),
            "fieldsType": "FieldsV1", "fieldsV1": fields_of(own),
        }
        if subresource:
            entry["subresource"] = subresource
        entries.append(entry)
    live["metadata"]["managedFields"] = entries
    return live


# Objects on disk

def machine():
    """What tells this machine, and this container, from others that share a home: a process id and a boot mean something
    only here."""
    known = ""
    for file in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        with contextlib.suppress(OSError):
            with open(file) as text:
                known = known or text.read().strip()
    # Of a secret that machines keep to themselves only a digest is written.
    known = hashlib.sha256(("dask-infra %s" % known).encode()).hexdigest()[:16]
    return {"machine": known, "processes": os.readlink("/proc/self/ns/pid")}


def is_safe(status):
    """Whether only the user writes what is in a folder."""
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def check_folder(path):
    """A folder that others can write would have this program signal processes and run programs of their choice."""
    status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        why, cure = "is a symbolic link", "set XDG_STATE_HOME to the folder above the place that it leads to"
    elif not stat.S_ISDIR(status.st_mode):
        why, cure = "is not a folder", "move it away"
    elif status.st_uid != os.geteuid():
        why, cure = "belongs to another user", "set XDG_STATE_HOME to a folder of your own"
    elif not is_safe(status):
        why, cure = "can be written by others", "run `chmod go-w %s`" % path
    else:
        return
    raise Unusable("%s %s" % (path, why), cure)


class Unusable(Exception):
    """Nothing can be said of this machine: what is there is unknown, not absent."""

    def __init__(self, why, cure):
        super().__init__(why)
        self.why, self.cure = why, cure


class Store:
    def __init__(self, base):
        self.base = base
        self.root = os.path.join(base, "at", self.name())

    def name(self):
        """The folder of this machine: by its name, which people know; under an older name while it runs."""
        own = re.sub(r"[^A-Za-z0-9._-]", "_", socket.gethostname()).lstrip(".") or "localhost"
        others = os.path.join(self.base, "at")
        if not os.path.exists(os.path.join(others, own)):
            for other in sorted(os.listdir(others)) if os.path.isdir(others) else []:
                noted = read_json(os.path.join(others, other, "machine"))
                if noted and noted == dict(machine(), boot=noted.get("boot")) and noted["boot"] == boot():
                    return other
        return own

    def at(self, *parts):
        return os.path.join(self.root, *parts)

    def check(self):
        """Whether what is there is this user's and this machine's."""
        for folder in (self.base, os.path.dirname(self.root), self.root):
            if not os.path.lexists(folder):
                return
            check_folder(folder)
        noted = read_json(self.at("machine"))
        own = machine()
        if noted and any(noted.get(key) != own[key] for key in own):
            why = "%s belongs to another machine or container of the name %s, which shares this home" % (
                self.root, socket.gethostname())
            cure = "give one of them another host name or another XDG_STATE_HOME; if the other one is gone for good, remove %s"
            raise Unusable(why, cure % self.root)

    @contextlib.contextmanager
    def locked(self, patience=None):
        """Alone with the files; for who waits for an answer only so many seconds long. The folder goes when nothing is left
        in it."""
        until = None if patience is None else time.monotonic() + patience
        while True:
            os.makedirs(self.root, mode=0o700, exist_ok=True)
            self.check()
            try:
                # A file, not the folder: over NFS only what is open for writing can be locked.
                handle = os.open(self.at("machine"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            except FileNotFoundError:
                continue
            try:
                lock(handle, until)
                if os.stat(self.at("machine")).st_ino == os.fstat(handle).st_ino:
                    break
            except FileNotFoundError:
                pass
            except BaseException:
                os.close(handle)
                raise
            # Whoever was here before took the empty folder away.
            os.close(handle)
        HELD.add(handle)
        try:
            note = json.dumps(dict(machine(), boot=boot())).encode()
            if os.pread(handle, len(note) + 1, 0) != note:
                os.ftruncate(handle, 0)
                os.pwrite(handle, note, 0)
            yield
        finally:
            try:
                self.prune()
            finally:
                HELD.discard(handle)
                os.close(handle)

    def prune(self):
        """Takes empty folders away, but for those that others fill without the lock: a worker begins with an empty scratch
        space, and a maker with no environment."""
        filled = self.at("environments"), self.at("scratch"), self.at("making")
        folders = []
        for folder, inner, _ in os.walk(self.root):
            if folder in filled:
                inner.clear()
            if folder != self.at("environments") or not self.all("environments"):
                folders.append(folder)
        for folder in reversed(folders):
            if folder == self.root and set(os.listdir(folder)) <= {"machine", "reserve"}:
                self.remove("reserve")
                self.remove("machine")
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        for folder in (os.path.dirname(self.root), self.base):
            with contextlib.suppress(OSError):
                os.rmdir(folder)

    def file(self, plural, namespace, name):
        return self.at("objects", plural, (namespace or "_"), name + ".json")

    def load(self, path):
        with open(path) as file:
            live = json.load(file)
            status = os.fstat(file.fileno())
        if not status.st_mode & stat.S_IWUSR:
            live["metadata"].setdefault("deletionTimestamp", stamp(status.st_ctime))
        return live

    def get(self, plural, name, namespace=None):
        try:
            return self.load(self.file(plural, namespace, name))
        except FileNotFoundError:
            return None

    def all(self, plural, namespace=None):
        found = []
        folder = self.at("objects", plural)
        for inner in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
            if namespace and inner != namespace:
                continue
            for name in sorted(os.listdir(os.path.join(folder, inner))):
                if name.endswith(".json"):
                    found.append(self.load(os.path.join(folder, inner, name)))
        return found

    def put(self, plural, live):
        metadata = live["metadata"]
        metadata["resourceVersion"] = str(time.time_ns())
        file = self.file(plural, metadata.get("namespace"), metadata["name"])
        try:
            self.write(file, live)
            self.fill_reserve()
        except OSError as error:
            if error.errno not in FULL or not os.path.exists(self.at("reserve")):
                raise
            self.remove("reserve")
            self.write(file, live)

    def write(self, file, what):
        os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
        try:
            with open(file + ".new", "w") as out:
                json.dump(what, out, indent=1, sort_keys=True)
                out.flush()
                os.fsync(out.fileno())
            os.replace(file + ".new", file)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(file + ".new")
            raise

    def fill_reserve(self):
        """Room that a full disk leaves: without it a destroy could not take the lock that it needs to make room."""
        with contextlib.suppress(OSError):
            if os.path.exists(self.at("reserve")):
                return
            with open(self.at("reserve"), "wb") as file:
                file.write(b"\0" * RESERVE)

    def goes(self, plural, live):
        """Notes that an object is to go. A bit of its file says so: that needs no room on the disk."""
        metadata = live["metadata"]
        os.chmod(self.file(plural, metadata.get("namespace"), metadata["name"]), 0o400)

    def drop(self, plural, name, namespace=None):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.file(plural, namespace, name))

    def remove(self, *parts):
        path = self.at(*parts)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    @contextlib.contextmanager
    def making(self, digest):
        """Alone with the folder of an environment: two stacks may ask for one and the same."""
        file = self.at("making", digest)
        while True:
            with contextlib.suppress(FileNotFoundError):
                os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
                handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                lock(handle, None)
                with contextlib.suppress(FileNotFoundError):
                    if os.stat(file).st_ino == os.fstat(handle).st_ino:
                        break
                os.close(handle)
        try:
            yield
        finally:
            self.remove("making", digest)
            os.close(handle)

    def forget_made(self):
        """Takes the locks of makers away that were killed."""
        folder = self.at("making")
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
            if name.endswith(FILES):
                # Only who has the lock has files.
                if not os.path.exists(os.path.join(folder, name[:-len(FILES)])):
                    self.remove("making", name)
                continue
            with contextlib.suppress(OSError):
                handle = os.open(os.path.join(folder, name), os.O_RDWR | os.O_CLOEXEC)
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    self.remove("making", name)
                finally:
                    os.close(handle)


def lock(handle, until):
    if until is None:
        fcntl.flock(handle, fcntl.LOCK_EX)
        return
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > until:
                message = "another command or a stopped one holds the files of this machine; nothing was done"
                raise Refused(503, "ServiceUnavailable", message) from None
        time.sleep(0.02)


def log_name(pod):
    return pod + ".log"


class Host(Slurm):
    def __init__(self, base):
        self.store = Store(base)
        # Schedulers that did not answer, and until when that is believed.
        self.silent = {}

    # Environments

    def environment(self, name):
        found = self.store.get("environments", name)
        return self.seen_environment(found) if found else None

    def seen_environment(self, live):
        """An environment with what is known of it now."""
        internal, spec = live.get("internal", {}), live["spec"]
        status = dict(live.get("status", {}))
        if status.get("digest") != spec.get("digest"):
            status = {"phase": "Making", "digest": spec.get("digest")}
        if status.get("phase") == "Making" and not is_alive(internal.get("maker")):
            status.update(phase="Failed", message="it was interrupted before it was complete")
        if status.get("phase") == "Ready" and not os.access(status.get("python", ""), os.X_OK):
            status.update(phase="Failed", message="%s is gone" % status.get("python"))
        return dict(live, status=status)

    def make_environment(self, name):
        """Begins what is not made yet; to be called with the lock."""
        live = self.store.get("environments", name)
        if self.seen_environment(live)["status"]["phase"] == "Ready":
            return
        internal = live.setdefault("internal", {})
        if is_alive(internal.get("maker")) and live.get("status", {}).get("digest") == live["spec"].get("digest"):
            return
        self.end_maker(live)
        live["status"] = {"phase": "Making", "digest": live["spec"].get("digest")}
        # The maker waits for the lock, which is still held here.
        internal["maker"] = detach(lambda: self.made(name, live["spec"], live["metadata"]["uid"]))
        self.store.put("environments", live)

    def end_maker(self, live):
        """To be called with the lock."""
        maker = live.get("internal", {}).get("maker")
        if is_alive(maker):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(maker["pid"], signal.SIGKILL)
        # What it ran, had it ended before.
        kill_marked(self.maker_mark(live["metadata"]["uid"]), 1)

    def maker_mark(self, uid):
        return "maker-" + uid

    def made(self, name, spec, uid):
        try:
            status = dict(self.python_of(name, spec, uid), phase="Ready")
        except Refused as why:
            status = {"phase": "Failed", "message": why.message}
        except Exception as why:
            status = {"phase": "Failed", "message": "%s: %s" % (type(why).__name__, why)}
        status["digest"] = spec.get("digest")
        with self.store.locked():
            live = self.store.get("environments", name)
            if live and live["spec"].get("digest") == spec.get("digest"):
                live["status"] = status
                self.store.put("environments", live)
            self.collect()

    def python_of(self, name, spec, uid):
        if spec.get("path"):
            path = os.path.expanduser(spec["path"])
            if not os.path.isabs(path):
                raise Refused(500, "Failed", "%s is relative, and nobody knows to what" % path)
            inner = os.path.join(path, "bin", "python")
            python = inner if os.path.isdir(path) else path
            if not os.access(python, os.X_OK):
                raise Refused(500, "Failed", "there is no Python at %s" % python)
            return self.about(python)
        folder = self.store.at("environments", spec["digest"])
        python, complete = os.path.join(folder, "bin", "python"), os.path.join(folder, ".complete")
        with self.store.making(spec["digest"]):
            if os.path.exists(complete):
                # Its interpreter may have gone from the machine, or part of it.
                with contextlib.suppress(Broken):
                    return self.about(python)
            shutil.rmtree(folder, ignore_errors=True)
            self.install(name, spec, folder, python, uid)
            with open(complete, "w"):
                pass
            return self.about(python)

    def install(self, name, spec, folder, python, uid):
        os.makedirs(os.path.dirname(folder), mode=0o700, exist_ok=True)
        files = self.store.at("making", spec["digest"] + FILES)
        os.makedirs(files, mode=0o700, exist_ok=True)
        try:
            for one, text in spec.get("files", {}).items():
                with open(os.path.join(files, os.path.basename(one)), "w") as file:
                    file.write(text)
            self.run_makers(name, self.makers(spec, files, folder, python), folder, uid)
        finally:
            shutil.rmtree(files, ignore_errors=True)

    def makers(self, spec, files, folder, python):
        """The commands that make an environment."""
        base, packages, given = spec.get("python"), list(spec.get("packages", [])), spec.get("files", {})
        uv = shutil.which("uv")
        if "pyproject.toml" in given:
            if not uv:
                raise Refused(500, "Failed", "uv is not on the PATH of %s: it installs what uv.lock says" % socket.gethostname())
            sync = [uv, "sync", "--locked", "--no-install-project", "--no-dev", "--project", files]
            return [sync + (["--python", base] if base else [])]
        if "environment.yml" in given:
            file = os.path.join(files, "environment.yml")
            for tool in ("micromamba", "mamba", "conda"):
                found = shutil.which(tool)
                if found:
                    made = ["create", "--yes"] if tool == "micromamba" else ["env", "create", "--quiet"]
                    return [[found] + made + ["--prefix", folder, "--file", file]]
            message = "neither micromamba nor mamba nor conda is on the PATH of %s: one of them makes an environment of conda"
            raise Refused(500, "Failed", message % socket.gethostname())
        if "requirements.txt" in given:
            packages = ["-r", os.path.join(files, "requirements.txt")]
        if uv:
            make = [uv, "venv", "--quiet", folder] + (["--python", base] if base else [])
            fill = [uv, "pip", "install", "--python", python] + packages
        else:
            make = [self.base_python(base), "-m", "venv", folder]
            fill = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"] + packages
        return [make] + ([fill] if packages else [])

    def run_makers(self, name, commands, folder, uid):
        file = self.store.at("logs", log_name("environment-" + name))
        with self.store.locked():
            os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
            self.store.remove("logs", log_name("environment-" + name))
            log = open(file, "a")
        mark, until = self.maker_mark(uid), time.monotonic() + INSTALL
        with log:
            for command in commands:
                said = "`%s`" % " ".join(command[:3])
                log.write("$ %s\n" % without_passwords(" ".join(command)))
                log.flush()
                given = dict(os.environ, **{MARK: mark, "UV_PROJECT_ENVIRONMENT": folder})
                running = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=given)
                try:
                    running.wait(max(0, until - time.monotonic()))
                except subprocess.TimeoutExpired:
                    kill_marked(mark)
                    raise Refused(500, "Failed", "%s did not end within %d minutes" % (said, INSTALL // 60)) from None
                if running.returncode:
                    log.flush()
                    last = tail(file)
                    if "`uv lock`" in last:
                        last = "uv.lock is not that of pyproject.toml any more: run `uv lock` beside it"
                    raise Refused(500, "Failed", "%s failed: %s" % (said, last))

    def base_python(self, base):
        if not base:
            return sys.executable
        if "/" in base:
            return os.path.expanduser(base)
        for name in (base, "python" + base):
            found = shutil.which(name)
            if found:
                return found
        raise Refused(500, "Failed", "there is no Python %s on this host; uv would download one" % base)

    def about(self, python):
        program = (
            "import importlib.metadata as m, json, platform\n"
            "found = {'python': platform.python_version()}\n"
            "for name in ('dask', 'distributed', 'dask-cuda'):\n"
            "    try:\n"
            "        found[name] = m.version(name)\n"
            "    except m.PackageNotFoundError:\n"
            "        pass\n"
            "print(json.dumps(found))\n"
        )
        asked = [python, "-I", "-c", program]
        try:
            asked = subprocess.run(asked, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=ABOUT)
        except (OSError, subprocess.TimeoutExpired) as why:
            raise Broken("%s does not run: %s" % (python, why)) from None
        if asked.returncode:
            raise Broken("%s does not run: %s" % (python, asked.stderr.strip()[-300:]))
        try:
            # A program that a user's Python always runs may say something first.
            versions = json.loads(asked.stdout.splitlines()[-1])
        except (IndexError, ValueError):
            raise Broken("%s does not run: it said %r" % (python, asked.stdout[-100:])) from None
        if "distributed" not in versions:
            raise Refused(500, "Failed", "%s has no package `distributed`" % python)
        extras = {name: versions.pop(name) for name in ("dask-cuda",) if name in versions}
        return {"python": python, "versions": versions, "extras": extras}

    def collect(self):
        """Takes away folders of environments that nothing uses; to be called with the lock."""
        folder = self.store.at("environments")
        used = {live["spec"].get("digest") for live in self.store.all("environments")}
        used |= {pod.get("internal", {}).get("environment") for pod in self.store.all("pods")}
        for digest in os.listdir(folder) if os.path.isdir(folder) else []:
            if digest not in used:
                self.store.remove("environments", digest)
        self.store.forget_made()

    # Processes of clusters

    def groups(self, cluster):
        return [group for group in self.store.all("workergroups") if group["spec"].get("cluster") == cluster]

    def pods(self, label, name):
        return [pod for pod in self.store.all("pods") if pod["metadata"].get("labels", {}).get(label) == name]

    def wanted(self, cluster):
        """The processes that a cluster and its groups ask for: name to what is to run."""
        live = self.store.get("clusters", cluster)
        going = live is None or is_going(live)
        wanted, terms = {}, {}
        if not going:
            terms = live["spec"]["scheduler"]
            if live["spec"].get("reach"):
                terms = dict(terms, host=live["spec"]["reach"])
        if not going and leads(live):
            wanted[cluster + "-scheduler"] = {
                "component": "scheduler", "group": "", "environment": live["spec"]["environment"], "scheduler": terms,
            }
        def prefix(name, owner):
            # Of one scheduler no two workers have one name. No other name has a `_`.
            host = owner["spec"].get("host")
            return "%s_%s-worker" % (name, host) if host else name + "-worker"
        groups = [(prefix(cluster, live), "", live)] if live else []
        groups += [
            (prefix(group["metadata"]["name"], group), group["metadata"]["name"], group) for group in self.groups(cluster)
        ]
        for first, group, owner in groups:
            if going or is_going(owner):
                continue
            worker = {key: value for key, value in owner["spec"]["worker"].items() if key not in ("replicas", "hosts")}
            for index in range(int(owner["spec"]["worker"].get("replicas", 1))):
                wanted["%s-%d" % (first, index)] = {
                    "component": "worker", "group": group, "environment": owner["spec"]["environment"],
                    "scheduler": terms, "worker": worker,
                }
                if "host" in live["spec"]:
                    wanted["%s-%d" % (first, index)]["spread"] = True
        return wanted

    def converge(self, cluster):
        """Begins to bring the processes of a cluster to what is asked for; to be called with the lock."""
        file = self.store.at("run", cluster)
        if is_alive(read_json(file)):
            return
        process = detach(lambda: self.converged(cluster, file))
        try:
            self.store.write(file, process)
        except OSError as error:
            # Its work may be what makes room. Two of them at once only do things twice.
            if error.errno not in FULL:
                raise

    def is_converging(self, cluster):
        return is_alive(read_json(self.store.at("run", cluster)))

    def converged(self, cluster, file):
        try:
            self.bring(cluster, file)
        except Exception as why:
            error = why.message if isinstance(why, Refused) else "%s: %s" % (type(why).__name__, why)
            with self.store.locked():
                self.store.write(file, {"error": error})

    def bring(self, cluster, file):
        tried, kept, begun, met = set(), set(), False, False
        has_jobs = any(pod["internal"].get("slurm") for pod in self.pods(CLUSTER_LABEL, cluster))
        leader = cluster + "-scheduler"
        while True:
            if has_jobs:
                # SLURM may take its time: nobody waits for the files meanwhile.
                self.look()
            with self.store.locked():
                wanted = self.wanted(cluster)
                has_jobs = has_jobs or any(is_of_slurm(one) for one in wanted.values())
                pods = {pod["metadata"]["name"]: pod for pod in self.pods(CLUSTER_LABEL, cluster)}
                if not begun:
                    begun = True
                    self.forget_kept(pods.values())
                alive = {name for name, pod in pods.items() if self.lives(pod)}
                same = {name for name in pods if name in wanted and pods[name]["internal"].get("text") == digest(wanted[name])}
                missing = sorted(name for name in wanted if name not in pods)
                live = self.store.get("clusters", cluster)
                # On another host, which this one knows by its address only.
                away = live is not None and not is_going(live) and not leads(live)
                # Workers end with their scheduler, and none takes them over.
                lost = not away and (leader not in same or (leader not in alive and leader not in tried))
                dead = [name for name in pods if name not in alive and not (name in same and name in tried)]
                goes = [name for name in sorted(pods) if name in alive and name not in same and name not in kept]
                known = met if away else bool(pods.get(leader, {}).get("internal", {}).get("scheduler"))
                if lost and not pods:
                    if leader in wanted:
                        tried.add(leader)
                        self.start(cluster, leader, wanted[leader])
                        continue
                    missing = []
                if not lost and not away and leader not in alive:
                    # It does not start: nothing else can.
                    missing = []
                # Where GPUs are given back by those who go, they are waited for.
                ready = self.with_gpus(missing, wanted) if goes else missing
                if not lost and not dead and known and ready:
                    # Before others go, so that they can take over what those hold.
                    for name in ready[:AT_ONCE] if has_jobs else ready:
                        tried.add(name)
                        self.start(cluster, name, wanted[name])
                    continue
                waits = not lost and not known and (leader in alive or away)
                if not (pods and lost) and not dead and not goes and not waits:
                    self.finish(cluster)
                    self.store.remove("run", os.path.basename(file))
                    self.collect()
                    return
            if lost or dead:
                left = self.stop([pods[name] for name in (sorted(pods) if lost else sorted(dead))])
                if left:
                    raise Refused(500, "Failed", "%s cannot be ended: its processes do not react to SIGKILL" % ", ".join(left))
            elif waits and away:
                self.meet(cluster, live)
                met = True
            elif waits:
                self.wait_for_scheduler(cluster, pods[leader])
            else:
                self.replace(cluster, pods, goes, wanted, alive & same, kept)

    def replace(self, cluster, pods, goes, wanted, stay, kept):
        """Ends workers that go on under other terms or not at all. What only they hold moves to others first: of those that
        are started again, half at a time, so that there are others."""
        changed = [name for name in goes if name in wanted]
        some = [name for name in goes if name not in wanted] or changed[:max(1, len(changed) // 2)]
        leader = cluster + "-scheduler"
        others = (stay | set(goes)) - set(some) - {leader}
        self.wait_for_workers(cluster, pods.get(leader), others & stay)
        theirs = {name: set(members(pods[name])) for name in some}
        retired = self.retire(cluster, pods.get(leader), set().union(*theirs.values()), bool(others))
        unmoved = [name for name in some if not theirs[name] <= retired]
        left = self.stop([pods[name] for name in some if name not in unmoved])
        kept.update(unmoved, left)
        with self.store.locked():
            for name in unmoved:
                self.keep(pods[name], "the scheduler did not retire it, so it still runs: what only it holds would be lost")

    def keep(self, pod, why):
        """Notes why a process that should go is still there; to be called with the lock."""
        live = self.store.get("pods", pod["metadata"]["name"], "default")
        if live and live["metadata"]["uid"] == pod["metadata"]["uid"]:
            live["internal"]["kept"] = why
            self.store.put("pods", live)

    def forget_kept(self, pods):
        for pod in pods:
            if pod["internal"].pop("kept", None):
                self.store.put("pods", pod)

    def wait_for_scheduler(self, cluster, pod):
        """Until a scheduler that was started here answers, and with what id: another one may have taken its port."""
        until = time.monotonic() + UP
        with self.store.locked():
            live = self.store.get("clusters", cluster)
        process = self.process_of(pod)
        while live and is_alive(process):
            known = heard(live, ANSWER)
            if known.get("id") and is_at(live, known.get("address")) and is_its_own(live, process):
                with self.store.locked():
                    now_there = self.store.get("pods", pod["metadata"]["name"], "default")
                    if now_there and now_there["metadata"]["uid"] == pod["metadata"]["uid"]:
                        now_there["internal"]["scheduler"] = known["id"]
                        self.store.put("pods", now_there)
                return
            if time.monotonic() > until:
                message = "its scheduler runs, but does not answer on port %s within %d s: workers were not started"
                raise Refused(500, "Failed", message % (live["spec"]["scheduler"]["dashboardPort"], UP))
            time.sleep(0.1)

    def wait_for_workers(self, cluster, leader, names):
        """Until workers are registered, as far as they live: before that they can take nothing over."""
        until = time.monotonic() + UP
        while names and time.monotonic() < until:
            with self.store.locked():
                live = self.store.get("clusters", cluster)
                pods = [self.store.get("pods", name, "default") for name in names]
                waited = {one for pod in pods if pod and self.lives(pod) for one in members(pod)}
                alive = leader is None or is_alive(self.process_of(leader))
            known = self.identity(live, leader, ANSWER) if live and alive else {}
            if not alive or waited <= {str(one.get("id")) for one in known.get("workers", {}).values()}:
                return
            time.sleep(0.2)

    def finish(self, cluster):
        """Lets objects go whose processes are gone; to be called with the lock."""
        for group in self.groups(cluster):
            if is_going(group):
                self.store.drop("workergroups", group["metadata"]["name"])
        live = self.store.get("clusters", cluster)
        if live and is_going(live):
            self.store.drop("clusters", cluster)
            self.store.remove("schedulers", cluster)

    def process_of(self, pod):
        """The process of a pod; one whose start was not noted in time is found by its mark."""
        process = pod.get("internal", {}).get("process")
        if process is None and not pod.get("internal", {}).get("error"):
            if "job" in pod.get("internal", {}):
                return None
            process = next(filter(is_first, marked(pod["metadata"]["uid"])), None)
        return process

    def start(self, cluster, name, what):
        """Starts a process; to be called with the lock."""
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
            pod["internal"]["processes"] = int(worker.get("gpus") or worker["processes"])
        try:
            scratch = self.scratch(name, uid, worker) if what["component"] == "worker" and not is_of_slurm(what) else None
            if scratch and worker.get("localDirectory"):
                pod["internal"]["scratch"] = scratch
            command, variables = self.command(name, what, scratch)
            if own_gpus(what):
                pod["internal"]["gpus"] = self.free_gpus(own_gpus(what))
                variables["CUDA_VISIBLE_DEVICES"] = ",".join(pod["internal"]["gpus"])
        except (Refused, OSError) as why:
            if isinstance(why, OSError) and why.errno in FULL:
                raise
            pod["internal"]["error"] = why.message if isinstance(why, Refused) else why.strerror or str(why)
            self.store.put("pods", pod)
            return
        pod["spec"]["containers"][0]["command"] = command
        if is_of_slurm(what):
            pod["internal"]["slurm"] = True
            if what["component"] == "worker":
                self.submit(pod, worker["slurm"], command, variables)
                return
        if worker.get("localDirectory"):
            # First the note, then the folder: one outside of the own ones would be nobody's.
            self.store.put("pods", pod)
        if scratch:
            os.makedirs(scratch, mode=0o700, exist_ok=True)
        self.spawn(pod, command, variables)

    def scratch(self, name, uid, worker):
        """The folder for what a worker writes to disk."""
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

    # GPUs

    def free_gpus(self, number):
        """GPUs of this host that no worker of this user has; to be called with the lock."""
        taken = {gpu for pod in self.store.all("pods") for gpu in pod.get("internal", {}).get("gpus", [])}
        free = [gpu for gpu in gpus() if gpu not in taken]
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
            return own_gpus(one["spec"]) * int(one["spec"].get("worker", {}).get("replicas", 1))
        if plural not in ("clusters", "workergroups") or not needs(live):
            return
        name = live["metadata"]["name"]
        others = [
            one for kind in ("clusters", "workergroups") for one in self.store.all(kind)
            if (kind, one["metadata"]["name"]) != (plural, name) and not is_going(one)
        ]
        there, others = len(gpus()), sum(map(needs, others))
        if needs(live) + others > there:
            more = " beside %d that other workers of this user have" % others if others else ""
            message = "%s asks for %s on %s%s, which has %s: nothing was started"
            raise Refused(422, "Invalid", message % (
                name, counted(needs(live), "GPU", "GPUs"), socket.gethostname(), more,
                counted(there, "GPU", "GPUs") if there else "none that `nvidia-smi` or /proc/driver/nvidia tells of"), name)

    def command(self, name, what, scratch):
        environment = self.environment(what["environment"]["name"])
        if not environment or environment["status"].get("phase") != "Ready":
            raise Refused(500, "Failed", "the environment %s is not ready" % what["environment"]["name"])
        python = environment["status"]["python"]
        scheduler = what["scheduler"]
        host, port, pages = listens(what), int(scheduler["port"]), int(scheduler["dashboardPort"])
        at, protocol = url_host(host), scheduler.get("protocol")
        spoken = ["--protocol", protocol] if protocol else []
        if what["component"] == "scheduler":
            for one in (port, pages):
                if is_taken(host, one):
                    raise Refused(500, "Failed", "port %d of %s is in use on this host" % (one, host))
            variables = dict(scheduler.get("env", {}))
            variables["DASK_DISTRIBUTED__SCHEDULER__HTTP__ROUTES"] = repr(ROUTES)
            return [
                python, "-m", "distributed.cli.dask_scheduler", "--host", host, "--port", str(port),
                "--dashboard-address", "%s:%d" % (at, pages),
            ] + spoken, variables
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
        if worker.get("gpus"):
            if "dask-cuda" not in environment["status"].get("extras", {"dask-cuda": None}):
                message = "the environment %s has no package `dask-cuda`, which starts workers with GPUs"
                raise Refused(500, "Failed", message % what["environment"]["name"])
            # It starts a process for each GPU that it sees. It has no option for their number, and none for a nanny.
            # Source: `cli.py` of dask-cuda 26.10.
            command = [python, "-m", "dask", "cuda", "worker", address, "--name", name]
        else:
            command = [
                python, "-m", "distributed.cli.dask_worker", address, "--name", name,
                "--nworkers", str(worker.get("processes", 1)),
            ]
        command += ["--nthreads", str(worker.get("threads", 1))] + spoken
        if is_of_slurm(what):
            command += worker_options(worker)
        else:
            command += ["--host", host, "--dashboard-address", "%s:0" % at, "--local-directory", scratch]
        if worker.get("nanny") is False:
            command.append("--no-nanny")
        if worker.get("memory"):
            command += ["--memory-limit", str(worker["memory"])]
        if worker.get("resources"):
            pairs = ["%s=%s" % pair for pair in sorted(worker["resources"].items())]
            command += ["--resources", ",".join(pairs)]
        return command, dict(worker.get("env", {}))

    def spawn(self, pod, command, variables):
        """To be called with the lock."""
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        os.makedirs(self.store.at("logs"), mode=0o700, exist_ok=True)
        # First the note, then the process: one that nobody noted would be nobody's.
        self.store.put("pods", pod)
        given = {key: value for key, value in os.environ.items() if key in PASSED_ON or key.startswith("LC_")}
        given.update(variables)
        given[MARK] = uid
        log = os.open(self.store.at("logs", log_name(name)), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        home = os.path.expanduser("~")
        def run():
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.umask(UMASK)
            os.chdir(home if os.path.isdir(home) else "/")
            os.execve(command[0], command, given)
        pod["internal"]["process"] = detach(run)
        os.close(log)
        self.store.put("pods", pod)

    def stop(self, pods):
        """Ends processes and forgets them, workers first; not to be called with the lock. Says which do not end."""
        workers = [pod for pod in pods if pod["metadata"]["labels"].get(COMPONENT_LABEL) != "scheduler"]
        left = self.cancel(workers)
        for some in (workers, [pod for pod in pods if pod not in workers]):
            processes = [self.process_of(pod) for pod in some]
            for process in processes:
                send_signal(process, signal.SIGTERM)
            until = time.monotonic() + TERMINATE
            while any(map(is_alive, processes)) and time.monotonic() < until:
                time.sleep(0.05)
            # It, and children that outlived it.
            left += [pod["metadata"]["name"] for pod in some if pod["metadata"]["name"] not in left
                     and kill_marked(pod["metadata"]["uid"])]
        with self.store.locked():
            for pod in pods:
                name = pod["metadata"]["name"]
                if name in left:
                    why = "its process does not react to SIGKILL: it waits for a disk, a network or a device"
                    self.keep(pod, "SLURM has not ended its job" if "job" in pod["internal"] else why)
                    continue
                live = self.store.get("pods", name, "default")
                if live and live["metadata"]["uid"] == pod["metadata"]["uid"]:
                    self.store.remove("logs", log_name(name))
                    self.remove_scratch(live)
                    self.store.remove("scripts", name + ".sh")
                    self.store.drop("pods", name, "default")
        return left

    def retire(self, cluster, leader, names, is_strict):
        """Has a scheduler move what workers hold; says which may end. The scheduler knows workers by address
        only, and answers 200 to what it ignores: each that it retired is a key of its answer.
        Source: tried on distributed 2026.8.0."""
        until = time.monotonic() + RETIRE
        process = self.process_of(leader) if leader else None
        with self.store.locked():
            live = self.store.get("clusters", cluster)
        def goes_on():
            return is_alive(process) if leader else live and not is_refused(live)
        retired = set()
        while live and goes_on() and time.monotonic() < until:
            known = self.identity(live, leader, ANSWER)
            if known:
                at = {str(one.get("id")): address for address, one in known.get("workers", {}).items()}
                # Other hosts have workers, too, and so may others.
                is_strict = is_strict or bool(set(at) - names)
                # One that is not listed has nothing, or has gone.
                retired |= {name for name in names if name not in at}
                if retired >= names:
                    return retired
                wanted = {at[name]: name for name in names - retired}
                with contextlib.suppress(OSError, ValueError):
                    left = until - time.monotonic()
                    answer = ask(live, "POST", "/api/v1/retire_workers", {"workers": sorted(wanted)}, left)
                    retired |= {wanted[address] for address in answer if address in wanted}
                if not is_strict:
                    # There is nobody who could take anything over.
                    return names
                if retired >= names:
                    return retired
            time.sleep(0.3)
        # Without a scheduler nothing can be moved, and what workers hold is of no use.
        return retired if goes_on() else names

    def meet(self, cluster, live):
        """Waits for a scheduler on another host, and notes who it is."""
        until = time.monotonic() + UP
        while True:
            known = heard(live, ANSWER)
            if known.get("id") and is_at(live, known.get("address")):
                with self.store.locked():
                    self.store.write(self.store.at("schedulers", cluster), {"id": known["id"]})
                return
            if time.monotonic() > until:
                scheduler = live["spec"]["scheduler"]
                message = "no scheduler of %s://%s:%s answers on port %s: %s"
                who = "the one there calls itself %s" % known["address"] if known.get("address") else "nothing is there, or a firewall in between"
                raise Refused(500, "Failed", message % (
                    scheduler.get("protocol", "tcp"), url_host(listens(live["spec"])), scheduler["port"],
                    scheduler["dashboardPort"], who))
            time.sleep(0.2)

    def identity(self, live, leader, patience):
        """What the scheduler of a cluster says of itself, wherever it is."""
        if leader is None:
            noted = read_json(self.store.at("schedulers", live["metadata"]["name"])) or {}
            leader = {"internal": {"scheduler": noted.get("id")}}
        return identity(live, leader, patience)

    # What is seen

    def seen(self, plural, live):
        if plural == "environments":
            live = self.seen_environment(live)
        elif plural == "pods":
            live = self.seen_pod(live)
        elif plural in ("clusters", "workergroups"):
            live = dict(live, status=self.status_of(plural, live))
        return {key: value for key, value in live.items() if key != "internal"}

    def seen_pod(self, live):
        internal, container = live.get("internal", {}), live["spec"]["containers"][0]
        check = COMPONENT_LABEL not in live["metadata"].get("labels", {})
        alive, job = self.lives(live), self.job_status(live)
        since = live["metadata"]["creationTimestamp"]
        if alive and job and waits(job):
            alive, phase, state = False, "Pending", {"waiting": {"reason": job.get("reason", "None")}}
        elif alive:
            phase, state = "Running", {"running": {"startedAt": since}}
        else:
            # What a check's program came to is told by its log.
            phase = "Succeeded" if check and not internal.get("error") else "Failed"
            state = {"terminated": {"reason": "Ended", "message": internal.get("error", "")}}
        ready = {"type": "Ready", "status": "True" if alive else "False"}
        status = {
            "phase": phase, "conditions": [ready], "startTime": since,
            "containerStatuses": [{"name": container["name"], "ready": alive, "restartCount": 0, "state": state}],
        }
        if internal.get("error"):
            status["message"] = internal["error"]
        if job:
            status["slurm"] = job
        return dict(live, status=status)

    def status_of(self, plural, live):
        name = live["metadata"]["name"]
        cluster = name if plural == "clusters" else live["spec"].get("cluster", "")
        of = self.store.get("clusters", cluster)
        pods = self.pods(CLUSTER_LABEL, cluster)
        own = name + "-default" if plural == "clusters" else name
        workers = [pod for pod in pods if pod["metadata"]["labels"].get(GROUP_LABEL) == own]
        alive = [pod for pod in workers if self.lives(pod)]
        ended = [pod for pod in workers if pod not in alive]
        leader = next((pod for pod in pods if pod["metadata"]["labels"].get(COMPONENT_LABEL) == "scheduler"), None)
        running = leader is not None and is_alive(self.process_of(leader))
        status = {
            "converging": self.is_converging(cluster),
            "workers": {"running": len(alive), "present": len(workers), "registered": 0},
            "scheduler": {"running": running, "answers": False},
        }
        if "slurm" in live["spec"]["worker"]:
            status["queue"] = self.queue_of(workers)
        if of and (running or not leads(of)):
            # The scheduler is asked when the files are free for others.
            self.asked.append((status, of, leader, [members(pod) for pod in alive]))
        environment = self.environment(live["spec"]["environment"]["name"])
        versions = (environment or {}).get("status", {}).get("versions")
        if versions:
            status["versions"] = versions
        if plural == "clusters":
            scheduler = live["spec"]["scheduler"]
            try:
                host = listens(live["spec"])
                at = url_host(host)
                status["scheduler"].update(
                    host=host, address="%s://%s:%d" % (scheduler.get("protocol", "tcp"), at, int(scheduler["port"])),
                    dashboard="http://%s:%d/status" % (at, int(scheduler["dashboardPort"])),
                )
            except OSError as why:
                status["message"] = why.strerror or str(why)
            if leader and not running:
                status["message"] = self.said(leader)
        elif of:
            theirs = self.environment(of["spec"]["environment"]["name"])
            theirs = (theirs or {}).get("status", {}).get("versions")
            if versions and theirs and versions != theirs:
                differ = [
                    "%s %s, not %s" % (key, versions.get(key), theirs.get(key))
                    for key in sorted(versions) if differs(key, versions.get(key), theirs.get(key))
                ]
                if differ:
                    status["skew"] = ", ".join(differ)
        kept = [pod for pod in workers if pod["internal"].get("kept")]
        if ended and "message" not in status:
            status["message"] = "%s ended: %s" % (ended[0]["metadata"]["name"], self.said(ended[0]))
        elif kept and "message" not in status:
            status["message"] = "%s: %s" % (kept[0]["metadata"]["name"], kept[0]["internal"]["kept"])
        noted = read_json(self.store.at("run", cluster))
        if noted and "message" not in status and not status["converging"]:
            status["message"] = noted.get("error") or "the last change was interrupted before it was complete"
        return status

    def ask_schedulers(self):
        """Fills in what only schedulers know; not to be called with the lock. One that is silent holds nobody up for long."""
        until, known = time.monotonic() + ANSWERS, {}
        for at, (status, cluster, leader, names) in enumerate(self.asked):
            uid = cluster["metadata"]["uid"]
            if uid not in known:
                patience = AGAIN if self.silent.get(uid, 0) > time.monotonic() else ANSWER
                rest = len({one[1]["metadata"]["uid"] for one in self.asked[at:]} - set(known))
                known[uid] = self.identity(cluster, leader, min(patience, max(AGAIN, (until - time.monotonic()) / rest)))
                if known[uid]:
                    self.silent.pop(uid, None)
                else:
                    self.silent[uid] = time.monotonic() + SILENT
            listed = {str(one.get("id")) for one in known[uid].get("workers", {}).values()}
            status["scheduler"]["answers"] = bool(known[uid])
            if leader is None:
                status["scheduler"]["running"] = bool(known[uid])
            status["workers"]["registered"] = sum(listed.issuperset(some) for some in names)

    def said(self, pod):
        """The last words of a process that ended."""
        error = pod.get("internal", {}).get("error")
        if not error and "job" in pod.get("internal", {}):
            job = self.job_of(pod)
            error = "job %s: %s" % (job["id"], job["state"]) if job and job["state"] != "FAILED" else None
        return error or tail(self.store.at("logs", log_name(pod["metadata"]["name"])))

    # Requests

    def answer(self, request):
        url = urllib.parse.urlsplit(request["path"])
        asked = {key: values[-1] for key, values in urllib.parse.parse_qs(url.query, keep_blank_values=True).items()}
        parts = [urllib.parse.unquote(part) for part in url.path.split("/") if part]
        self.asked = []
        self.prepare(next((part for part in parts if part in KINDS), None), request.get("body"))
        if not os.path.isdir(self.store.root) and request["method"] == "GET":
            # A look leaves nothing behind.
            self.store.check()
            return self.handle(request["method"], parts, asked, request.get("body"))
        with self.store.locked(LOCK):
            if request["method"] != "GET" and has_hung_up():
                # Who asked for it has gone, and somebody else may have decided otherwise since.
                sys.exit(0)
            self.cut_logs()
            body = self.handle(request["method"], parts, asked, request.get("body"))
        self.ask_schedulers()
        return body

    def cut_logs(self):
        """Takes the beginning of very long logs away; whoever writes them goes on at the end."""
        folder = self.store.at("logs")
        for name in os.listdir(folder) if os.path.isdir(folder) else []:
            file = os.path.join(folder, name)
            with contextlib.suppress(OSError):
                if os.path.getsize(file) > LONG_LOG:
                    with open(file, "r+b") as log:
                        log.seek(-LOG, os.SEEK_END)
                        rest = log.read()
                        log.truncate(0)
                    with open(file, "ab") as log:
                        log.write(rest[rest.find(b"\n", 0, -1) + 1:])

    def handle(self, method, parts, asked, body):
        found = self.discovery(parts) if method == "GET" else None
        if found is not None:
            return found
        version, rest = ("v1", parts[2:]) if parts[:2] == ["api", "v1"] else ("/".join(parts[1:3]), parts[3:])
        namespace = None
        if len(rest) > 2 and rest[0] == "namespaces":
            namespace, rest = rest[1], rest[2:]
        plural = rest[0] if rest else ""
        if plural not in KINDS or KINDS[plural][0] != version or len(rest) > 3:
            raise Refused(404, "", "404 page not found")
        kind, name = KINDS[plural], rest[1] if len(rest) > 1 else None
        below = rest[2] if len(rest) > 2 else None
        if name and (name in (".", "..") or not re.fullmatch(r"[a-z0-9A-Z._-]{1,253}", name)):
            raise Refused(422, "Invalid", "%r is not a name" % name)
        if below == "log" and plural == "pods" and method == "GET":
            return self.log(name, namespace, asked)
        if below == "scale" and plural in ("clusters", "workergroups") and method == "PUT":
            return self.scale(plural, name, asked, body)
        if below:
            raise Refused(404, "", "404 page not found")
        if method == "GET" and name is None:
            return self.listed(plural, kind, namespace, asked)
        if method == "GET":
            live = self.store.get(plural, name, namespace)
            if live is None:
                raise not_found(plural, name)
            return self.seen(plural, live)
        if method == "PATCH" and name:
            return self.apply(plural, kind, name, namespace, asked, body or {})
        if method == "DELETE" and name:
            return self.delete(plural, name, namespace, body or {})
        raise Refused(405, "MethodNotAllowed", "%s is not served here" % method)

    def discovery(self, parts):
        if parts == ["version"]:
            return {"major": "1", "minor": "0", "gitVersion": "v1.0.0-host",
                    "platform": "Python " + sys.version.split()[0]}
        if parts == ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"]}
        if parts == ["apis"]:
            group, version = HOSTS.split("/")
            served = {"groupVersion": HOSTS, "version": version}
            return {
                "kind": "APIGroupList", "apiVersion": "v1",
                # A list without the group that every cluster has is not believed to be one.
                "groups": [
                    {"name": "apps", "versions": []},
                    {"name": group, "versions": [served], "preferredVersion": served},
                ],
            }
        if parts in (["api", "v1"], ["apis"] + HOSTS.split("/")):
            version = "/".join(parts[1:])
            rows = [(plural, kind) for plural, kind in KINDS.items() if kind[0] == version]
            return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": [
                {"name": plural, "kind": kind, "namespaced": inside, "verbs": ["delete", "get", "list", "patch"]}
                for plural, (_, kind, inside) in rows
            ]}
        return None

    def listed(self, plural, kind, namespace, asked):
        items = [self.seen(plural, live) for live in self.store.all(plural, namespace)]
        for term in filter(None, asked.get("labelSelector", "").split(",")):
            key, _, value = term.partition("=")
            def fits(labels):
                return labels.get(key) == value if "=" in term else key in labels
            items = [live for live in items if fits(live["metadata"].get("labels", {}))]
        return {
            "kind": kind[1] + "List", "apiVersion": kind[0], "metadata": {"resourceVersion": str(time.time_ns())},
            "items": items,
        }

    def apply(self, plural, kind, name, namespace, asked, body):
        live = self.store.get(plural, name, namespace)
        wanted = body.get("metadata", {})
        if live is None:
            if wanted.get("uid"):
                raise Refused(409, "Conflict", "%s %s is gone" % (kind[1], name))
            if kind[2] and namespace != "default" and not self.store.get("namespaces", namespace):
                raise not_found("namespaces", namespace)
            metadata = {"name": name, "uid": str(uuid.uuid4()), "creationTimestamp": now()}
            if kind[2]:
                metadata["namespace"] = namespace
            live = {"apiVersion": kind[0], "kind": kind[1], "metadata": metadata}
        else:
            for field in ("uid", "resourceVersion"):
                if wanted.get(field) and wanted[field] != live["metadata"].get(field):
                    message = "the object has been modified; please apply your changes to the latest version"
                    raise Refused(409, "Conflict", "%s %s: %s" % (kind[1], name, message))
        self.check_names(plural, live, body)
        manager = asked.get("fieldManager") or "unknown"
        live = written(live, own_fields(body), manager, "Apply", None, asked.get("force") == "true")
        self.check_gpus(plural, live)
        if asked.get("dryRun"):
            return self.seen(plural, live) if plural != "environments" else live
        self.store.put(plural, live)
        self.act(plural, live)
        return self.seen(plural, self.store.get(plural, name, namespace))

    def check_names(self, plural, live, body):
        """Processes are named after their group, and that of a cluster itself after the cluster: whatever the stacks that
        they belong to, no two have one name."""
        name = live["metadata"]["name"]
        if plural == "clusters":
            taken = [group for group in self.store.all("workergroups") if group["metadata"]["name"] in (name, name + "-default")]
            other = "the group of workers of the Dask cluster %s" % taken[0]["spec"]["cluster"] if taken else None
        elif plural == "workergroups":
            taken = [one for one in self.store.all("clusters") if name in (one["metadata"]["name"], one["metadata"]["name"] + "-default")]
            other = "the Dask cluster %s" % taken[0]["metadata"]["name"] if taken else None
        else:
            return
        if other:
            message = "processes of %s would have the names of those of %s: give one of them another `name`"
            raise Refused(422, "Invalid", message % (name, other), name)

    def act(self, plural, live):
        """What follows from a write; to be called with the lock."""
        name = live["metadata"]["name"]
        if plural == "environments":
            self.make_environment(name)
        elif plural == "clusters":
            self.converge(name)
        elif plural == "workergroups":
            self.converge(live["spec"]["cluster"])
        elif plural == "pods" and "process" not in live.get("internal", {}):
            self.run(live)

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
            # Only this host knows the address of an interface, and the one that SLURM sees.
            try:
                variables[SCHEDULER] = re.sub(r"//.*:", lambda _: "//%s:" % url_host(listens(live["spec"])), variables[SCHEDULER])
            except OSError as why:
                internal["error"] = why.strerror or str(why)
                self.store.put("pods", pod)
                return
        self.spawn(pod, [python] + container["command"][1:], variables)

    def scale(self, plural, name, asked, body):
        live = self.store.get(plural, name)
        if live is None:
            raise not_found(plural, name)
        number = body["spec"]["replicas"]
        fields = {("spec", "worker", "replicas"): number}
        live = written(live, fields, asked.get("fieldManager") or "unknown", "Update", "scale", True)
        self.check_gpus(plural, live)
        self.store.put(plural, live)
        self.act(plural, live)
        return {
            "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": name}, "spec": {"replicas": number},
        }

    def delete(self, plural, name, namespace, body):
        live = self.store.get(plural, name, namespace)
        if live is None:
            raise not_found(plural, name)
        for field, value in body.get("preconditions", {}).items():
            if live["metadata"].get(field) != value:
                raise Refused(409, "Conflict", "%s %s: the %s in the precondition does not match" % (plural, name, field))
        if plural in ("clusters", "workergroups"):
            self.store.goes(plural, live)
            self.converge(name if plural == "clusters" else live["spec"]["cluster"])
        elif plural == "environments":
            self.end_maker(live)
            self.store.drop(plural, name)
            self.store.remove("logs", log_name("environment-" + name))
            self.collect()
        elif plural == "pods":
            self.end(live)
            self.collect()
        elif plural == "namespaces":
            for one in self.store.all("pods", name):
                self.end(one)
            for one in self.store.all("configmaps", name):
                self.store.drop("configmaps", one["metadata"]["name"], name)
            self.store.drop(plural, name)
        else:
            self.store.drop(plural, name, namespace)
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                "details": {"name": name, "uid": live["metadata"]["uid"]}}

    def end(self, pod):
        """To be called with the lock, which is why it is not waited for long."""
        name = pod["metadata"]["name"]
        if kill_marked(pod["metadata"]["uid"], 2):
            raise Refused(503, "ServiceUnavailable", "the process of %s does not react to SIGKILL" % name)
        self.store.remove("logs", log_name(name))
        self.remove_scratch(pod)
        self.store.drop("pods", name, pod["metadata"].get("namespace"))

    def log(self, name, namespace, asked):
        pod = self.store.get("pods", name, namespace)
        if pod is None:
            raise not_found("pods", name)
        try:
            with open(self.store.at("logs", log_name(name)), "rb") as file:
                size = file.seek(0, os.SEEK_END)
                if "offset" in asked:
                    # What came since a look: where it ends, the text, and whether more can come.
                    file.seek(min(int(asked["offset"]), size))
                    text, alive = file.read(LOG), self.lives(pod)
                    return {"end": file.tell(), "text": text.decode(errors="replace"), "alive": alive}
                file.seek(max(0, size - LOG))
                lines = file.read().decode(errors="replace").splitlines(True)
        except FileNotFoundError:
            if "offset" in asked:
                return {"end": 0, "text": "", "alive": False}
            lines = []
        if asked.get("sinceSeconds"):
            since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time.time() - int(asked["sinceSeconds"])))
            stamped = [at for at, line in enumerate(lines) if re.match(r"\d{4}-\d\d-\d\d \d\d:", line) and line[:19] >= since]
            lines = lines[stamped[0]:] if stamped else []
        if asked.get("tailLines"):
            count = int(asked["tailLines"])
            lines = lines[-count:] if count else []
        return "".join(lines)


def without_passwords(text):
    """Without what stands before the host of a URL."""
    return re.sub(r"://[^/@\s]*@", "://***@", text)


def counted(number, one, several):
    return "%d %s" % (number, one if number == 1 else several)


def members(pod):
    """By which names a scheduler knows what a worker consists of: `NAME-0` and so on where it is several processes, as
    `dask worker --nworkers` and `dask cuda worker` name them."""
    name, number = pod["metadata"]["name"], pod.get("internal", {}).get("processes", 1)
    return ["%s-%d" % (name, index) for index in range(number)] if number > 1 else [name]


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


def address_of(interface):
    """The IPv4 address of a network interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # SIOCGIFADDR of linux/sockios.h; `struct ifreq` has the address 20 bytes from its beginning.
            answer = fcntl.ioctl(probe, 0x8915, struct.pack("256s", interface.encode()[:15]))
        except OSError:
            names = ", ".join(sorted(name for _, name in socket.if_nameindex()))
            message = "%s has no network interface %s with an IPv4 address; it has %s" % (socket.gethostname(), interface, names)
            raise OSError(errno.ENODEV, message) from None
    return socket.inet_ntoa(answer[20:24])


def listens(spec):
    """The address of the scheduler of a cluster: what is said, what its host told, or that of the interface here."""
    scheduler = spec["scheduler"]
    if scheduler.get("host"):
        return place_of(scheduler)
    return spec.get("reach") or address_of(scheduler["interface"])


def is_of_slurm(what):
    return "slurm" in what.get("worker", {})


def own_gpus(what):
    """GPUs of this host that a worker needs: those of a job are of its node."""
    return 0 if is_of_slurm(what) else int(what.get("worker", {}).get("gpus", 0))


def is_going(live):
    return bool(live["metadata"].get("deletionTimestamp"))


def digest(what):
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]


def differs(package, one, other):
    """Python's patch releases understand each other."""
    short = (lambda version: version and version.rsplit(".", 1)[0]) if package == "python" else (lambda version: version)
    return short(one) != short(other)


def read_json(file):
    try:
        with open(file) as text:
            return json.load(text)
    except (OSError, ValueError):
        return None


def tail(file):
    """The last line of a log that says something: what is indented goes on from another line, and Python's tracker of
    semaphores only says that somebody else was killed."""
    try:
        with open(file, "rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - 4096))
            lines = [line.rstrip() for line in log.read().decode(errors="replace").splitlines()]
    except OSError:
        return "it left no log"
    lines = [line for line in lines if line and not line.startswith(" ") and "resource_tracker" not in line]
    return lines[-1][-300:] if lines else "its log is empty"


def is_taken(host, port):
    kind = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(kind, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def url_host(host):
    return "[%s]" % host if ":" in host else host


def ask(cluster, method, path, body, patience):
    """One request to the pages of a scheduler, whatever it does within so many seconds: a client of the standard library
    waits as long for each piece."""
    until = time.monotonic() + patience
    scheduler = cluster["spec"]["scheduler"]
    host, port = listens(cluster["spec"]), int(scheduler["dashboardPort"])
    sent = json.dumps(body).encode() if body is not None else b""
    # An answer to version 1.0 ends with the connection.
    head = "%s %s HTTP/1.0\r\nHost: %s:%d\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    with socket.create_connection((host, port), patience) as link:
        def bounded():
            link.settimeout(max(0.001, until - time.monotonic()))
            return link
        bounded().sendall((head % (method, path, url_host(host), port, len(sent))).encode() + sent)
        answer = b""
        while True:
            some = bounded().recv(1 << 16)
            answer += some
            if not some:
                break
            if time.monotonic() > until:
                raise socket.timeout("it did not answer in time")
    head, _, text = answer.partition(b"\r\n\r\n")
    if not re.match(rb"HTTP/1\.\d 200 ", head):
        raise ValueError("%s answered %r" % (path, head[:40]))
    return json.loads(text.decode())


def heard(cluster, patience):
    """What answers where a scheduler should."""
    until = time.monotonic() + patience
    while True:
        try:
            known = ask(cluster, "GET", "/json/identity.json", None, max(0.01, until - time.monotonic()))
            return known if isinstance(known, dict) else {}
        except ConnectionRefusedError:
            return {}
        except (OSError, ValueError):
            # Right after workers came it answers 500 for up to a second (seen with distributed 2026.8.0).
            if time.monotonic() + 0.2 > until:
                return {}
            time.sleep(0.2)


def identity(cluster, leader, patience):
    """What the scheduler that was started here says of itself; nothing when another one answers in its place, or none."""
    own = leader["internal"].get("scheduler")
    known = heard(cluster, patience) if own else {}
    return known if own and known.get("id") == own and is_at(cluster, known.get("address")) else {}


def is_at(cluster, address):
    """Whether a scheduler's address is the one that was asked for, which may be a name."""
    scheduler = cluster["spec"]["scheduler"]
    host, _, port = str(address).rpartition("://")[2].rpartition(":")
    host = host.strip("[]")
    if port != str(scheduler["port"]):
        return False
    with contextlib.suppress(OSError):
        own = listens(cluster["spec"])
        if host == own or own in ("0.0.0.0", "::"):
            return True
        return host in {one[4][0] for one in socket.getaddrinfo(own, None)}
    return False


def is_its_own(cluster, process):
    """Whether a process itself listens on the ports of a scheduler, as far as the system tells."""
    sockets, listening = set(), {}
    try:
        for handle in os.listdir("/proc/%d/fd" % process["pid"]):
            with contextlib.suppress(OSError):
                target = os.readlink("/proc/%d/fd/%s" % (process["pid"], handle))
                if target.startswith("socket:["):
                    sockets.add(target[8:-1])
        for table in ("tcp", "tcp6"):
            with contextlib.suppress(FileNotFoundError):
                with open("/proc/%d/net/%s" % (process["pid"], table)) as rows:
                    for row in list(rows)[1:]:
                        fields = row.split()
                        # 0A: it listens.
                        if fields[3] == "0A":
                            listening.setdefault(int(fields[1].rsplit(":", 1)[1], 16), set()).add(fields[9])
    except OSError:
        return is_alive(process)
    scheduler = cluster["spec"]["scheduler"]
    ports = [int(scheduler[name]) for name in ("port", "dashboardPort")]
    return not listening or all(listening.get(port, set()) & sockets for port in ports)


def leads(cluster):
    """Whether the scheduler of a cluster is on this host."""
    host = cluster["spec"].get("host")
    return cluster["spec"]["scheduler"].get("on", host) == host


def is_refused(cluster):
    """Whether nothing listens where a scheduler should."""
    scheduler = cluster["spec"]["scheduler"]
    try:
        socket.create_connection((listens(cluster["spec"]), int(scheduler["dashboardPort"])), ANSWER).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        pass
    return False


def own_address(host, port):
    """By which address this host is seen from another one."""
    family, kind, protocol, _, to = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        # Nothing is sent.
        probe.connect(to)
        return probe.getsockname()[0]


def has_hung_up():
    """Whether nobody can send requests any more."""
    look = select.poll()
    look.register(0, select.POLLHUP | select.POLLERR | select.POLLRDHUP)
    return bool(look.poll(0))


def folder():
    given = os.environ.get("XDG_STATE_HOME", "")
    base = given if os.path.isabs(given) else os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(base, "dask-infra")


def serve():
    # The terminal's Ctrl-C is for dask-infra, which ends this program by closing its input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    host, hello = None, {}
    if not os.path.exists("/proc/self/stat"):
        hello = {"error": "this host has no /proc: processes of Dask are managed on Linux only", "remedy": "use a Linux host"}
    else:
        try:
            host = Host(folder())
            host.store.check()
            hello = {"host": socket.gethostname(), "python": sys.version.split()[0], "folder": host.store.root,
                     "machine": machine()}
        except Unusable as why:
            hello = {"error": why.why, "remedy": why.cure}
        except OSError as why:
            hello = {"error": str(why), "remedy": "%s must be readable and writable" % folder()}
    # What shells print before is not it.
    print(json.dumps(dict(hello, nonce=sys.argv[1] if len(sys.argv) > 1 else None)), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            status, body = 200, host.answer(request)
        except Refused as why:
            status, body = why.status, why.answer() if why.reason else why.message
        except Unusable as why:
            status, body = 500, Refused(500, "InternalError", "%s; %s" % (why.why, why.cure)).answer()
        except Exception as why:
            status = 500
            body = Refused(500, "InternalError", "%s: %s" % (type(why).__name__, why)).answer()
        print(json.dumps({"id": request.get("id"), "status": status, "body": body}), flush=True)


serve()
