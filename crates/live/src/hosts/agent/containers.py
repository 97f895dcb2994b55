"""Environments that are images: processes in containers of podman, docker, apptainer or singularity.

The runtime's client stays in the foreground and is the process that is noted, so it is found again and signalled as others are; it
passes SIGTERM on. Containers of podman and docker outlive a client that was killed: each has a name that is made of its pod's, by
which it is removed. Tried on podman 4.3 and docker 20.10; SingularityCE 4.3 for apptainer and singularity.
"""

# In the order in which they are tried where none is named.
RUNTIMES = ("podman", "docker", "apptainer", "singularity")
# Jobs of SLURM run on other machines, to which a file on a shared file system is known. The daemon of docker would run them outside of their job.
RUNTIMES_OF_JOBS = ("apptainer", "singularity", "podman")
# Their images are files.
OF_FILES = ("apptainer", "singularity")
# Whether a runtime answers.
PROBES = {"podman": ["info", "--format", "{{.Version.Version}}"], "docker": ["version", "--format", "{{.Server.Version}}"]}
# Seconds: a runtime's answer, and the removal of containers that are told to end at once.
RUNTIME_ANSWER, REMOVAL = 30, 60
# What clients find their daemons, stores and registries by.
OF_RUNTIMES = (
    "APPTAINER", "CONTAINER", "DBUS_SESSION_BUS_ADDRESS", "DOCKER_", "REGISTRY_AUTH_FILE", "SINGULARITY", "XDG_RUNTIME_DIR",
)
# Those of them that mean the same on another node.
OF_JOBS = ("APPTAINER", "CONTAINER", "REGISTRY_AUTH_FILE", "SINGULARITY")
# Of the host's variables what means the same in a container.
INTO_CONTAINERS = ("HOME", "LANG", "LOGNAME", "TZ", "USER")
# Where the Container Device Interface is described. Source: podman-run(1), `--device`.
CDI = ("/etc/cdi", "/var/run/cdi")


def runtime_says(program, *words, patience=RUNTIME_ANSWER):
    """What a runtime answers; it is asked in English."""
    try:
        return subprocess.run(
            (program,) + words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=patience,
            env=dict(os.environ, LC_ALL="C"),
        )
    except (OSError, subprocess.TimeoutExpired) as why:
        said = "it did not answer within %d s" % patience if isinstance(why, subprocess.TimeoutExpired) else str(why)
        return subprocess.CompletedProcess((program,) + words, 255, "", said)


def last_line(said):
    lines = [line.strip() for line in said.splitlines() if is_telling(line)]
    return lines[-1][-300:] if lines else "it said nothing"


def runtime_for(asked):
    """The name and the program of the runtime that an environment is run by."""
    host, image = socket.gethostname(), asked["image"]
    names = [asked["runtime"]] if asked.get("runtime") else RUNTIMES_OF_JOBS if asked.get("jobs") else RUNTIMES
    names = [name for name in names if name in OF_FILES or not is_file(image)]
    silent = []
    for name in names:
        program = shutil.which(name)
        if not program:
            continue
        run = runtime_says(program, *PROBES.get(name, ["--version"]))
        if run.returncode == 0:
            return name, program
        silent.append("%s: %s" % (name, last_line(run.stderr)))
    if silent:
        message = "no container runtime of %s can be used: %s; start it or ask for the right to use it, or name another one in `runtime`"
        raise Refused(500, "Failed", message % (host, "; ".join(silent)))
    missing = names[0] + " is not" if len(names) == 1 else "none of %s is" % ", ".join(names)
    message = "%s on the PATH of %s, and the image %s needs it: install it there, or name another one in `runtime`"
    raise Refused(500, "Failed", message % (missing, host, image))


def is_file(image):
    return image.startswith(("/", "~"))


def without_scheme(image):
    return image[len("docker://"):] if image.startswith("docker://") else image


def image_id(program, image, patience=RUNTIME_ANSWER):
    """The id of an image that is there, and by which name and digest others can pull the same; None when it is not there."""
    words = "image", "inspect", "--format", "{{.Id}}{{range .RepoDigests}} {{.}}{{end}}", image
    run = runtime_says(program, *words, patience=patience)
    if run.returncode == 0 and run.stdout.split():
        found = run.stdout.split()
        known = found[0] if ":" in found[0] else "sha256:" + found[0]
        return known, found[1] if len(found) > 1 else None
    said = run.stderr.lower()
    # Source: podman 4.3 and 5, docker 20.10 and 28.
    if "no such image" in said or "image not known" in said:
        return None
    raise Refused(500, "Failed", "%s was asked for the image %s: %s" % (program, image, last_line(run.stderr)))


def mount_of(text):
    """`/data`, `/data:/inside`, `/data:/inside:ro` as a host's folder and the rest."""
    outside, _, rest = text.partition(":")
    outside = os.path.expanduser(outside)
    return outside, rest or outside


def is_below(path, folder):
    return os.path.join(path, "").startswith(os.path.join(folder, ""))


def container_names(pod):
    """Names of the containers of a pod: a program that is started again has another one."""
    stem = "dask-infra-%s-%s" % (pod["metadata"]["name"].replace("_", "-"), pod["metadata"]["uid"][:8])
    again = pod["internal"].get("restarts", 0)
    return [stem] + ["%s-%d" % (stem, number + 1) for number in range(again)]


def is_contained(pod):
    return "container" in pod.get("internal", {})


def has_libcuda():
    ldconfig = shutil.which("ldconfig", path="/sbin:/usr/sbin:%s" % os.environ.get("PATH", os.defpath))
    return bool(ldconfig) and "libcuda.so" in runtime_says(ldconfig, "-p").stdout


def has_cdi():
    files = [name for folder in CDI if os.path.isdir(folder) for name in os.listdir(folder)]
    return any("nvidia" in name and name.endswith((".yaml", ".json")) for name in files)


def check_gpu_access(name):
    """Whether a runtime of this host can give GPUs to containers, as far as can be told before."""
    if name in OF_FILES and not has_libcuda():
        message = "`%s exec --nv` brings the driver's libraries of the host into the container, and ldconfig of %s knows no libcuda.so: " \
            "install the NVIDIA driver's libraries"
    elif name == "podman" and not has_cdi():
        message = "%s gives GPUs to containers by the Container Device Interface, and %s describes none of NVIDIA in /etc/cdi or " \
            "/var/run/cdi: install the NVIDIA Container Toolkit and run `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`"
    else:
        return
    raise Refused(500, "Failed", message % (name, socket.gethostname()))


class Containers:
    # Images that are not there any more, as found before the files were held, and until when that is believed.
    gone_images, images_until = frozenset(), 0

    def look_for_images(self):
        """Runtimes take their time, so they are asked before the files are held, and not at each look: the lock of a stack is renewed
        by the same agent."""
        if time.monotonic() < self.images_until:
            return
        gone = set()
        for live in self.store.all("environments"):
            container = live.get("status", {}).get("container", {})
            if container and container["runtime"] not in OF_FILES and os.access(container["program"], os.X_OK):
                # One that does not answer says nothing of its images.
                with contextlib.suppress(Refused):
                    if image_id(container["program"], container["image"], ANSWER) is None:
                        gone.add(container["image"])
        self.gone_images, self.images_until = frozenset(gone), time.monotonic() + SILENT

    def lost(self, container):
        """What is gone of what an environment's containers need; nothing when all is there."""
        if not os.access(container["program"], os.X_OK):
            return "%s is gone" % container["program"]
        if container["runtime"] in OF_FILES:
            return None if os.path.exists(container["image"]) else "the image %s is gone" % container["image"]
        return "the image %s is gone" % container["image"] if container["image"] in self.gone_images else None

    def image_of(self, name, spec, uid):
        """Brings an image to this host, and says what is in it."""
        asked = spec["container"]
        runtime, program = runtime_for(asked)
        container = {"runtime": runtime, "program": program, "mounts": asked.get("mounts", []), "options": asked.get("options", [])}
        if not asked.get("home", True):
            container["home"] = False
        for outside, _ in map(mount_of, container["mounts"]):
            if not asked.get("jobs") and not os.path.exists(outside):
                message = "there is no %s on %s, which `mounts` names: make it, or take it out"
                raise Refused(500, "Failed", message % (outside, socket.gethostname()))
        image = asked["image"]
        if runtime in OF_FILES:
            container["image"] = self.image_file(name, spec, uid, program)
        else:
            image = without_scheme(image)
            if image_id(program, image) is None:
                with self.store.making(spec["digest"]):
                    self.run_makers(name, [[program, "pull", image]], "", uid)
            known = image_id(program, image)
            if known is None:
                raise Refused(500, "Failed", "`%s pull %s` succeeded, and the image is not there" % (program, image))
            container["image"], pinned = known
            if asked.get("jobs"):
                # Other nodes have other ids.
                container["shared"] = pinned or image
        return self.about_image(container, spec.get("python") or "python3", image, uid)

    def image_file(self, name, spec, uid, program):
        """The file or folder of an image."""
        image = spec["container"]["image"]
        if is_file(image):
            image = os.path.expanduser(image)
            if not os.path.exists(image):
                raise Refused(500, "Failed", "there is no image %s on %s" % (image, socket.gethostname()))
            return image
        folder = self.store.at("environments", spec["digest"])
        file, complete = os.path.join(folder, "image.sif"), os.path.join(folder, ".complete")
        with self.store.making(spec["digest"]):
            if not (os.path.exists(complete) and os.path.exists(file)):
                shutil.rmtree(folder, ignore_errors=True)
                os.makedirs(folder, mode=0o700)
                source = image if "://" in image else "docker://" + image
                self.run_makers(name, [[program, "pull", file, source]], folder, uid)
                with open(complete, "w"):
                    pass
        return file

    def about_image(self, container, python, image, uid):
        name = "dask-infra-versions-" + uid[:8]
        command, variables = contained(container, [python, "-I", "-c", ABOUT_PROGRAM], {}, name=name)
        try:
            run = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=2 * ABOUT, env=client_variables(variables),
            )
        except subprocess.TimeoutExpired:
            remove_containers(container, [name])
            raise Refused(500, "Failed", "`%s` of the image %s did not tell its versions within %d s" % (python, image, 2 * ABOUT)) from None
        try:
            versions = json.loads(run.stdout.splitlines()[-1]) if run.returncode == 0 else None
        except (IndexError, ValueError):
            versions = None
        if versions is None:
            message = "`%s` does not run in the image %s: %s; `python` names another interpreter in it, by its absolute path"
            raise Refused(500, "Failed", message % (python, image, last_line(run.stderr)))
        if "distributed" not in versions:
            message = "the image %s has no package `distributed` for its `%s`: install `dask[distributed]` in the image, or name " \
                "another interpreter in it with `python`, by its absolute path"
            raise Refused(500, "Failed", message % (image, python))
        extras = extras_of(versions)
        by_hand, _ = contained(container, [python], {})
        return {"python": python, "versions": versions, "extras": extras, "container": container,
                "run": " ".join(map(shlex.quote, by_hand))}

    def in_environment(self, pod, status, command, variables, **given):
        """A command as it is run in an environment: as it is, or in a container of the pod."""
        container = status.get("container")
        if not container:
            return command, variables
        pod["internal"]["container"] = {key: container[key] for key in ("runtime", "program", "home") if key in container}
        if given.get("gpus") and not given.get("job"):
            check_gpu_access(container["runtime"])
        return contained(container, command, variables, name=container_names(pod)[-1], place=pod["internal"].get("folder"), **given)

    def listeners(self, pod, process):
        """Processes of which one listens where a scheduler does: in a container that is not the noted one."""
        if not is_contained(pod):
            return [process]
        inside = [one for one in marked(pod["metadata"]["uid"]) if one["pid"] != process["pid"]]
        container = pod["internal"]["container"]
        if not inside and container["runtime"] not in OF_FILES:
            # Its variables cannot be read everywhere.
            names = container_names(pod)
            run = runtime_says(container["program"], "container", "inspect", "--format", "{{.State.Pid}}", names[-1])
            pid = run.stdout.strip()
            inside = [this_process(int(pid))] if pid.isdigit() and int(pid) else []
        return [process] + inside

    def remove_containers_of(self, pods, patience=REMOVAL):
        """Removes what is left of the containers of pods, at once; says whose are still there."""
        left, by_program = [], {}
        for pod in pods:
            if is_contained(pod) and "job" not in pod["internal"]:
                by_program.setdefault(json.dumps(pod["internal"]["container"], sort_keys=True), []).append(pod)
        for container, some in sorted(by_program.items()):
            names = [name for pod in some for name in container_names(pod)]
            said = remove_containers(json.loads(container), names, patience)
            left += [(pod, said) for pod in some if said]
        return left


def remove_containers(container, names, patience=REMOVAL):
    """Nothing, or why containers may still be there."""
    if container["runtime"] in OF_FILES:
        # Its processes have the mark of theirs, and nothing else is there.
        return None
    words = ["rm", "--force"] + (["--ignore", "--time", "0"] if container["runtime"] == "podman" else [])
    run = runtime_says(container["program"], *(words + ["--volumes"] + names), patience=patience)
    troubles = [line for line in run.stderr.splitlines() if "no such container" not in line.lower() and is_telling(line)]
    # docker before 23 fails when one is not there, podman when it is being removed by somebody else.
    troubles = [line for line in troubles if "no container with" not in line.lower() and "already in progress" not in line.lower()]
    return last_line("\n".join(troubles)) if run.returncode and troubles else None


def client_variables(variables):
    """The environment of a runtime's client. Apptainer gives it to the program, for which files of the host are not there."""
    given = {key: value for key, value in os.environ.items() if key in PASSED_ON or key.startswith(("LC_",) + OF_RUNTIMES)}
    for key in ("LD_LIBRARY_PATH", "SSL_CERT_FILE"):
        given.pop(key, None)
    return dict(given, **variables)


def contained(container, command, variables, name=None, folders=(), gpus=False, job=False, place=None):
    """The command line that runs a command in a container, and the variables of the runtime's client. One without a name is for
    people to type."""
    home = home_folder() if container.get("home", True) else "/"
    home = home if home != "/" else None
    mounts = ["%s:%s" % (folder, folder) for folder in folders if not (home and is_below(folder, home))]
    mounts += ["%s:%s" % mount_of(text) for text in container["mounts"]]
    # A user's own packages, which are in the home, are those of another Python.
    variables = dict({"PYTHONNOUSERSITE": "1"}, **variables)
    image = container.get("shared", container["image"]) if job else container["image"]
    if container["runtime"] in OF_FILES:
        line = [container["program"], "exec", "--pwd", place or home or "/"] + (["--nv"] if gpus else [])
        # The folder that it is started in is mounted as well, and those that the site's configuration names, which may hold homes.
        line += [] if home else ["--no-mount", "home,cwd,hostfs,bind-paths"]
        line += [word for mount in mounts for word in ("--bind", mount)]
        line += [] if name else ["--env", "PYTHONNOUSERSITE=1"]
        return line + container["options"] + [image] + command, variables
    line = [container["program"], "run", "--rm"]
    line += ["--name", name, "--log-driver", "none"] if name else ["--interactive", "--tty"]
    # Workers of one host share memory, and the 64 MiB of a container of its own end those that use it. A label for containers
    # is nothing that the files of a home have.
    line += ["--network", "host", "--ipc", "host", "--security-opt", "label=disable"]
    if container["runtime"] == "podman" and os.geteuid() != 0:
        line += ["--userns", "keep-id"]
    if job:
        # Its limits are those of its job.
        line += ["--cgroups", "disabled"]
    line += ["--user", "%d:%d" % (os.geteuid(), os.getegid()), "--workdir", place or home or "/"]
    line += [word for mount in (["%s:%s" % (home, home)] if home else []) + mounts for word in ("--volume", mount)]
    if gpus:
        line += ["--device", "nvidia.com/gpu=all"] if container["runtime"] == "podman" else ["--gpus", "all"]
    # Values on a command line are everybody's to read, so the client has them; but for those that would change what it does.
    own = {key for key in variables if not name or key in PASSED_ON or key.startswith(OF_RUNTIMES)}
    passed = {key for key in os.environ if key in INTO_CONTAINERS or key.startswith("LC_")} | {MARK, KEEPS_MARK, "CUDA_VISIBLE_DEVICES"}
    for key in sorted((passed if name else {"HOME"}) - (set() if home else {"HOME"}) | set(variables)):
        line += ["--env", "%s=%s" % (key, variables[key]) if key in own else key]
    kept = {key: value for key, value in variables.items() if key not in own}
    return line + container["options"] + ["--entrypoint", command[0], image] + command[1:], kept
