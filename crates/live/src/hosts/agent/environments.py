"""Python environments of this host: made, looked at and taken away."""


# Has a Python tell its versions.
EXTRAS = ["dask-cuda", "bokeh"]
ABOUT_PROGRAM = "NAMES = %r%s" % (EXTRAS + [name for name in RULES if name != "python"], HERE)


# Where the installers of uv and of conda put them. A shell that is not interactive has few of these on its PATH.
# Source: docs.astral.sh/uv, docs.conda.io and mamba.readthedocs.io, installation.
USUAL = (
    "~/.local/bin", "~/.cargo/bin", "~/bin", "~/miniforge3/bin", "~/mambaforge/bin", "~/miniconda3/bin", "~/anaconda3/bin",
    "~/micromamba/bin", "/opt/miniforge3/bin", "/opt/miniconda3/bin", "/opt/conda/bin", "/opt/anaconda3/bin",
)
LOOKED = "The PATH and the usual folders (~/.local/bin, ~/miniforge3/bin, ~/miniconda3/bin and others) were searched; `prologue` of a host " \
    "in `[ssh]` can add another one to the PATH"


def find_program(name):
    """The file of a program that installs packages: of the PATH, or where it usually is."""
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(map(os.path.expanduser, USUAL)))


def extras_of(versions):
    """Takes the packages that no client has to match out of the versions of an environment. The dashboard needs bokeh, whose value is
    null where it is missing: a package that is not named was not looked for."""
    return dict({"bokeh": None}, **{name: versions.pop(name) for name in EXTRAS if name in versions})


class InstallFailed(Refused):
    """What installs packages failed; its log says why."""

    def __init__(self, message, log):
        super().__init__(500, "Failed", message)
        self.log = log


# What installers are configured with, and the way to where packages are. Tokens of who applies are not for what packages run.
FOR_MAKERS = re.compile(
    r"(PIP|UV|CONDA|MAMBA|XDG|LC)_\w+|(https?|all|no)_proxy|NETRC|SSL_CERT_DIR|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE", re.IGNORECASE)


def for_makers():
    return {name: value for name, value in os.environ.items() if name in PASSED_ON or FOR_MAKERS.fullmatch(name)}


class Environments:
    def environment(self, name):
        found = self.store.get("environments", name)
        return self.seen_environment(found) if found else None

    def seen_environment(self, live):
        """An environment with what is known of it now."""
        internal, spec = live.get("internal", {}), live["spec"]
        if is_going(live):
            noted = read_json(self.store.at("clears")) or {}
            left = self.left_of(live, noted.get("left", {}))
            status = {"message": noted["left"][left[0]]} if left else {}
            if left and noted["at"] > self.began:
                return dict(live, status=dict(status, phase="Stuck"))
            if not is_alive(noted):
                # Who removed it was interrupted, or could not when another command asked.
                self.collect()
            return dict(live, status=dict(status, phase="Removing"))
        status = dict(live.get("status", {}))
        if status.get("digest") != spec.get("digest"):
            status = {"phase": "Making", "digest": spec.get("digest")}
        if status.get("phase") == "Making" and not is_alive(internal.get("maker")):
            status.update(phase="Failed", message="it was interrupted before it was complete")
        if status.get("phase") == "Ready":
            container, python = status.get("container"), status.get("python", "")
            lost = self.lost(container) if container else None if os.access(python, os.X_OK) else "%s is gone" % python
            if lost:
                status.update(phase="Failed", message=lost)
        return dict(live, status=status)

    def make_environment(self, name):
        """Begins what is not made yet; to be called with the lock."""
        live = self.store.get("environments", name)
        phase, noted = self.seen_environment(live)["status"]["phase"], live.get("status", {})
        # With another digest it is still to be made.
        if phase == "Ready" or phase == "Making" and noted.get("digest") == live["spec"].get("digest"):
            return
        internal = live.setdefault("internal", {})
        self.end_maker(live)
        # It is looked for again when it is there.
        self.gone_images = frozenset()
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
            # It holds the lock of its folder as long as it is there.
            until = time.monotonic() + KILL
            while is_alive(maker) and time.monotonic() < until:
                time.sleep(0.01)
        # What it ran, had it ended before.
        kill_marked(self.maker_mark(live["metadata"]["uid"]), 1)

    def maker_mark(self, uid):
        return "maker-" + uid

    def made(self, name, spec, uid):
        try:
            status = dict(self.python_of(name, spec, uid), phase="Ready")
        except InstallFailed as why:
            status = {"phase": "Failed", "message": why.message, "log": why.log}
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
        if spec.get("container"):
            return self.image_of(name, spec, uid)
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
            base, sources = files, spec.get("sources")
            if sources:
                brought = self.files_folder(sources["digest"])
                if not os.path.isdir(brought) or os.path.islink(brought):
                    raise Refused(500, "Failed", "the local packages of the environment are not on this host: `apply` copies them")
                shutil.copytree(brought, files, symlinks=True, dirs_exist_ok=True)
                base = os.path.join(files, *parts_of(sources["base"])) if sources.get("base") else files
                os.makedirs(base, mode=0o700, exist_ok=True)
            for one, text in spec.get("files", {}).items():
                with open(os.path.join(base, os.path.basename(one)), "w") as file:
                    file.write(text)
            # Local packages are named relative to the file.
            self.run_makers(name, self.makers(spec, base, folder, python), folder, uid, base if sources else None)
        finally:
            shutil.rmtree(files, ignore_errors=True)

    def makers(self, spec, files, folder, python):
        """The commands that make an environment."""
        base, packages, given = spec.get("python"), list(spec.get("packages", [])), spec.get("files", {})
        uv = find_program("uv")
        if "pyproject.toml" in given:
            if not uv:
                message = "there is no uv on %s: it installs what uv.lock says. %s"
                raise Refused(500, "Failed", message % (socket.gethostname(), LOOKED))
            sources = spec.get("sources", {})
            # The folder that links would lead to is removed.
            only = ([] if sources.get("project") else ["--no-install-project"]) + (["--no-editable"] if sources else [])
            sync = [uv, "sync", "--locked"] + only + ["--no-dev", "--project", files]
            made = [sync + (["--python", base] if base else [])]
            return made + ([[uv, "pip", "install", "--python", python, "pip"]] if spec.get("pip") else [])
        if "environment.yml" in given:
            file = os.path.join(files, "environment.yml")
            for tool in ("micromamba", "mamba", "conda"):
                found = find_program(tool)
                if found:
                    made = ["create", "--yes"] if tool == "micromamba" else ["env", "create", "--quiet"]
                    return [[found] + made + ["--prefix", folder, "--file", file]]
            message = "there is neither micromamba nor mamba nor conda on %s: one of them makes an environment of conda. %s"
            raise Refused(500, "Failed", message % (socket.gethostname(), LOOKED))
        if "requirements.txt" in given:
            packages = ["-r", os.path.join(files, "requirements.txt")]
        if uv:
            # What workers install they install with pip, which uv leaves out.
            seed = ["--seed"] if spec.get("pip") else []
            make = [uv, "venv", "--quiet"] + seed + [folder] + (["--python", base] if base else [])
            fill = [uv, "pip", "install", "--python", python] + packages
        else:
            make = [self.base_python(base), "-m", "venv", folder]
            fill = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"] + packages
        return [make] + ([fill] if packages else [])

    def run_makers(self, name, commands, folder, uid, place=None):
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
                given = dict(for_makers(), **{MARK: mark, "UV_PROJECT_ENVIRONMENT": folder})
                # Installers read files of the current folder, which may be a repository of others.
                place = place or os.path.dirname(folder) or self.store.base
                running = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=given, cwd=place)
                try:
                    running.wait(max(0, until - time.monotonic()))
                except subprocess.TimeoutExpired:
                    kill_marked(mark)
                    raise Refused(500, "Failed", "%s did not end within %d minutes" % (said, INSTALL // 60)) from None
                if running.returncode:
                    log.flush()
                    last = tail(file)
                    if "`uv lock`" in last:
                        raise Refused(500, "Failed", "%s failed: uv.lock is not that of pyproject.toml any more: run `uv lock` beside it" % said)
                    raise InstallFailed("%s failed: %s" % (said, without_passwords(last)), last_lines(file))

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
        asked = [python, "-I", "-c", ABOUT_PROGRAM]
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
        return {"python": python, "versions": versions, "extras": extras_of(versions)}

    def collect(self):
        """Takes away folders of environments that nothing uses; to be called with the lock."""
        folder = self.store.at("environments")
        used = {live["spec"].get("digest") for live in self.store.all("environments") if not is_going(live)}
        # What only keeps the log of a program that ended uses none.
        pods = [pod for pod in self.store.all("pods") if not (is_program(pod) and self.outcome(pod))]
        used |= {pod.get("internal", {}).get("environment") for pod in pods}
        for digest in os.listdir(folder) if os.path.isdir(folder) else []:
            if digest not in used:
                self.store.discard("environments", digest)
        self.collect_files(pods)
        self.store.forget_made()
        self.clear()

    def clear(self):
        """Has a process remove what was discarded, during which this one would answer nothing, and after that forgets environments
        that are to go; to be called with the lock."""
        if os.path.isdir(self.store.at("discarded")):
            detach_once(self.store, self.store.at("clears"), self.cleared)
        else:
            self.forget_environments({})

    def cleared(self):
        folder, tries, why = self.store.at("discarded"), {}, {}
        while True:
            with self.store.locked():
                there = os.listdir(folder) if os.path.isdir(folder) else []
                # What was still written into meanwhile goes at the next try.
                left = [name for name in there if tries.get(name, 0) < 3]
                if not left:
                    self.forget_environments({name: why[name] for name in there})
                    return
            for name in left:
                tries[name] = tries.get(name, 0) + 1
                path = os.path.join(folder, name)
                shutil.rmtree(path, ignore_errors=True)
                reason = "it is being written to"
                try:
                    # The first of what is left tells.
                    shutil.rmtree(path)
                except OSError as error:
                    reason = error
                why[name] = "%s cannot be removed: %s" % (path, reason)

    def forget_environments(self, left):
        """`left` tells of folders that cannot be removed why that is: environments that had them stay."""
        for live in filter(is_going, self.store.all("environments")):
            if not self.left_of(live, left):
                self.store.drop("environments", live["metadata"]["name"])
        if left:
            self.store.write(self.store.at("clears"), {"left": left, "at": time.time()})
        else:
            self.store.remove("clears")

    def left_of(self, live, folders):
        """Folders that were discarded of an environment."""
        return [name for name in folders if name.startswith("%s." % live["spec"].get("digest"))]
