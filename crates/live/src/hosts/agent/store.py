"""Objects on disk, and the locks around them."""


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


# The end of the name of a file until it is whole; no name of an object has one.
UNFINISHED = "~"
# While a process lives that was started here, it holds this file: one that restarts under its name finds it free.
ALIVE = "alive"
# Where it is, once the files were held.
ALIVE_FILE = []


def hold_alive():
    """Holds the file of those that live, also beyond `exec`."""
    for file in ALIVE_FILE:
        with contextlib.suppress(OSError):
            handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            os.set_inheritable(handle, True)


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
                own_note = dict(machine(), boot=boot())
                if noted and all(noted.get(key) == own_note[key] for key in own_note):
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
        if noted and any(noted.get(key) != own[key] for key in own) and not self.is_left(noted, own):
            why = "%s belongs to another machine or container of the name %s, which shares this home" % (
                self.root, socket.gethostname())
            cure = "give one of them another host name or another XDG_STATE_HOME; if the other one is gone for good, remove %s"
            raise Unusable(why, cure % self.root)

    def is_left(self, noted, own):
        """Returns true when the folder is of this machine before it restarted: a container or pod has another number of its
        processes then, and none of those that were started before lives."""
        if noted.get("machine") != own["machine"] or not noted.get("held"):
            return False
        try:
            handle = os.open(self.at(ALIVE), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as why:
            return why.errno == errno.ENOENT
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            return False
        finally:
            os.close(handle)

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
            ALIVE_FILE[:] = [self.at(ALIVE)]
            before = os.pread(handle, 4096, 0)
            known = {} if not before else read_json(self.at("machine")) or {}
            # What an older version started holds nothing.
            held = {"held": True} if not before or known.get("held") else {}
            note = json.dumps(dict(machine(), boot=boot(), **held)).encode()
            if before != note:
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
        """Takes unfinished files and empty folders away, but for those that others fill or empty without the lock: a worker begins with an
        empty scratch space, a maker with no environment, and the shell of a program writes its exit code."""
        filled = self.at("environments"), self.at("scratch"), self.at("making"), self.at("discarded"), self.at("files")
        folders = []
        for folder, inner, files in os.walk(self.root):
            if folder in filled:
                inner.clear()
            elif folder != self.at("logs"):
                # Who writes has the lock: the writer of these was killed.
                for name in files:
                    if name.endswith(UNFINISHED):
                        os.unlink(os.path.join(folder, name))
            if folder != self.at("environments") or not self.all("environments"):
                folders.append(folder)
        for folder in reversed(folders):
            if folder == self.root and set(os.listdir(folder)) <= {"machine", "reserve", ALIVE}:
                self.remove("reserve")
                self.remove(ALIVE)
                self.remove("machine")
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        for folder in (os.path.dirname(self.root), self.base):
            with contextlib.suppress(OSError):
                if folder == self.base:
                    self.forget_compiled()
                os.rmdir(folder)

    def forget_compiled(self):
        # One that is being written has its last name at the second look.
        for _ in range(2):
            names = os.listdir(self.base)
            for name in names if all(name.startswith(COMPILED) for name in names) else []:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(self.base, name))

    def file(self, plural, namespace, name):
        return self.at("objects", plural, (namespace or "_"), name + ".json")

    def load(self, path):
        with open(path) as file:
            live = json.load(file)
            status = os.fstat(file.fileno())
        if not status.st_mode & stat.S_IWUSR:
            live["metadata"].setdefault("deletionTimestamp", stamp(status.st_ctime))
            if status.st_mode & stat.S_IXUSR:
                live.setdefault("internal", {})["leaves"] = True
        if "slurm" in live.get("spec", {}).get("scheduler", {}):
            # Where a job runs is no change of the object.
            live.setdefault("internal", {})["place"] = read_json(self.at("schedulers", live["metadata"]["name"])) or {}
        return live

    def get(self, plural, name, namespace=None):
        try:
            return self.load(self.file(plural, namespace, name))
        except FileNotFoundError:
            return None

    def leader(self, cluster):
        """The process of the scheduler of a Dask cluster, as an object; nothing where there is none."""
        return self.get("pods", cluster + "-scheduler", "default")

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
        """Writes a file whole or not at all; to be called with the lock."""
        os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
        try:
            with open(file + UNFINISHED, "w") as out:
                json.dump(what, out, indent=1, sort_keys=True)
                out.flush()
                os.fsync(out.fileno())
            os.replace(file + UNFINISHED, file)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(file + UNFINISHED)
            raise

    def fill_reserve(self):
        """Room that a full disk leaves: without it a destroy could not take the lock that it needs to make room."""
        with contextlib.suppress(OSError):
            if os.path.exists(self.at("reserve")):
                return
            with open(self.at("reserve"), "wb") as file:
                file.write(b"\0" * RESERVE)

    def goes(self, plural, live, leaves=False):
        """Notes that an object is to go, or that it goes on elsewhere and only leaves this host. Bits of its file say so: that needs
        no room on the disk."""
        metadata = live["metadata"]
        os.chmod(self.file(plural, metadata.get("namespace"), metadata["name"]), 0o500 if leaves else 0o400)

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

    def discard(self, kind, name):
        """Puts a folder aside, as that of an environment, gigabytes of small files, for `clear` to remove. Of a link only the link."""
        path = self.at(kind, name)
        try:
            if os.path.islink(path):
                return os.unlink(path)
            os.makedirs(self.at("discarded"), mode=0o700, exist_ok=True)
            os.rename(path, self.at("discarded", "%s.%d" % (name, time.time_ns())))
        except OSError:
            self.remove(kind, name)

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
