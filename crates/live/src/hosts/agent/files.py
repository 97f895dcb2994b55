"""The user's own code on this host: a folder for each content, which is named by its digest. Objects, Dask clusters, jobs and processes
name it; what none of them names goes."""

# Of folders in which files are being written.
NEW = ".new-"
# The variable with the folders that Python imports from first.
PYTHON_PATH = "PYTHONPATH"


def parts_of(path):
    """The names in the path of a file that was sent; none of them leads out of its folder."""
    parts = path.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise Refused(422, "Invalid", "%r is not a path below a folder" % path)
    return parts


def write_whole(folder, path, content):
    """Writes a file below a folder whole or not at all. A link in its place, or in that of a folder above it, is taken away."""
    at = folder
    for part in parts_of(path)[:-1]:
        at = os.path.join(at, part)
        if os.path.islink(at) or os.path.lexists(at) and not os.path.isdir(at):
            os.unlink(at)
        if not os.path.isdir(at):
            os.mkdir(at, 0o700)
    file = os.path.join(folder, *parts_of(path))
    if os.path.isdir(file) and not os.path.islink(file):
        shutil.rmtree(file)
    handle, new = tempfile.mkstemp(prefix=NEW, dir=at)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(content["bytes"])
        os.chmod(new, 0o700 if content["executable"] else 0o600)
        os.replace(new, file)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise


def digest_of_file(path):
    """The content and the mode of a file, which is not a link, in a few characters; None when it is not there."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            return None
        known = hashlib.sha256()
        for part in iter(lambda: file.read(1 << 20), b""):
            known.update(part)
    return known.hexdigest()[:16] + ("x" if status.st_mode & stat.S_IXUSR else "")


def paths_below(folder):
    """The paths of the files below a folder, but for what Python compiles."""
    found = []
    for at, inner, files in os.walk(folder):
        inner[:] = [name for name in inner if name != "__pycache__"]
        found += [os.path.relpath(os.path.join(at, name), folder) for name in files if not name.endswith(".pyc")]
    return found


def python_path(folder, variables):
    """The folder before what the variables say."""
    own = variables.get(PYTHON_PATH)
    return folder + os.pathsep + own if own else folder


class Files:
    def files_folder(self, digest):
        """The folder of a content, below that of this machine's notes."""
        if not re.fullmatch(r"[0-9a-f]{8,64}", str(digest)):
            raise Refused(422, "Invalid", "%r is not a digest" % digest)
        return self.store.at("files", digest)

    def take_files(self, live, content):
        """Writes what was sent into its folder, where that lacks it or has something else; to be called with the lock."""
        folder, asked = self.files_folder(live["spec"]["digest"]), live["spec"].get("files", {})
        if content is None or set(content) != set(asked):
            return
        content = {path: {"bytes": base64.b64decode(one["base64"]), "executable": bool(one["executable"])} for path, one in content.items()}
        above = os.path.dirname(folder)
        if os.path.islink(above):
            os.unlink(above)
        os.makedirs(above, mode=0o700, exist_ok=True)
        if os.path.islink(folder) or os.path.lexists(folder) and not os.path.isdir(folder):
            os.unlink(folder)
        if os.path.isdir(folder):
            os.chmod(folder, 0o700)
        else:
            new = tempfile.mkdtemp(prefix=NEW, dir=above)
            try:
                for path in sorted(content):
                    write_whole(new, path, content[path])
                os.rename(new, folder)
            except BaseException:
                shutil.rmtree(new, ignore_errors=True)
                raise
        # In place: processes may work in it.
        known = {}
        for path in sorted(content):
            file = os.path.join(folder, *parts_of(path))
            known[path] = hashlib.sha256(content[path]["bytes"]).hexdigest()[:16] + ("x" if content[path]["executable"] else "")
            if self.is_led_away(folder, path) or digest_of_file(file) != known[path]:
                write_whole(folder, path, content[path])
        live.setdefault("internal", {})["known"] = known

    def is_led_away(self, folder, path):
        """Whether a folder above a file is a link."""
        parts = parts_of(path)
        return any(os.path.islink(os.path.join(folder, *parts[:length])) for length in range(1, len(parts)))

    def seen_files(self, live):
        """Files with what is known of their folder now."""
        folder, known = self.files_folder(live["spec"]["digest"]), live.get("internal", {}).get("known", {})
        wrong = [path for path in sorted(live["spec"].get("files", {})) if path not in known or self.is_led_away(folder, path)
                 or digest_of_file(os.path.join(folder, *parts_of(path))) != known[path]]
        if os.path.islink(folder) or not os.path.isdir(folder):
            status = {"phase": "Failed", "message": "the folder of its files is not there"}
        elif wrong:
            more = " and %s" % counted(len(wrong) - 1, "other file", "other files") if len(wrong) > 1 else ""
            status = {"phase": "Failed", "message": "`%s`%s is not what was copied" % (wrong[0], more)}
        else:
            status = {"phase": "Ready"}
        return dict(live, status=status)

    def with_files(self, pod, digest, folder, variables):
        """Has a process work with the user's files, and in a folder that is relative to them. Gives its variables, and the folders that its
        container needs to see."""
        files = self.files_folder(digest) if digest else None
        if files and not os.path.isdir(files):
            raise Refused(500, "Failed", "the files of its section are not on this host: `apply` copies them")
        place = os.path.expanduser(folder) if folder else None
        if place and not os.path.isabs(place):
            if not files:
                raise Refused(500, "Failed", "`working_dir` is relative to `files`, and there are none")
            place = os.path.join(files, place)
        place = place or files
        if not place:
            return variables, []
        pod["internal"]["folder"] = place
        if files:
            self.list_files(digest, files)
            pod["internal"]["files"] = digest
            variables = dict(variables, **{PYTHON_PATH: python_path(files, variables)})
        return variables, sorted({place, files} - {None})

    def list_files(self, digest, folder):
        """Notes which files there are before a process works in their folder, so that what it writes there is known as its own."""
        note = self.store.at("listed", digest + ".json")
        if not os.path.exists(note):
            self.store.write(note, sorted(paths_below(folder)))

    def has_results(self, digest):
        """Whether processes wrote files into the folder that they worked in."""
        folder, listed = self.store.at("files", digest), read_json(self.store.at("listed", digest + ".json"))
        return listed is not None and not os.path.islink(folder) and not set(paths_below(folder)) <= set(listed)

    def check_place(self, pod):
        """Whether the working folder of a process is there."""
        place = pod["internal"].get("folder")
        if place and not os.path.isdir(place):
            message = "there is no folder %s on %s: make it, or name another one in `working_dir`"
            raise Refused(500, "Failed", message % (place, socket.gethostname()))

    def collect_files(self, programs):
        """Takes away folders that nothing names, but for those with results; to be called with the lock. `programs` are processes whose
        folders stay."""
        above = self.store.at("files")
        if os.path.islink(above) or not os.path.isdir(above):
            return
        used = {live["spec"].get("digest") for live in self.store.all("files")}
        used |= {live["spec"].get("sources", {}).get("digest") for live in self.store.all("environments") if not is_going(live)}
        used |= {live["spec"].get("files") for _, live in self.staffed()}
        used |= {pod.get("internal", {}).get("files") for pod in programs}
        for name in os.listdir(above):
            if name not in used and not self.has_results(name):
                self.store.discard("files", name)
                self.store.remove("listed", name + ".json")
