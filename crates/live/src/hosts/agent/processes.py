"""Processes: found again by process id, start time and boot, signalled by their mark."""


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


def home_folder():
    """Where processes run. Python imports from the folder that it is started in, and that of whoever types may be open to others."""
    home = os.path.expanduser("~")
    return home if os.path.isdir(home) else "/"


def uids_of(entry):
    """The real, effective, saved and file system users of a process. Source: proc_pid_status(5)."""
    with open("/proc/%s/status" % entry) as file:
        line = next(line for line in file if line.startswith("Uid:"))
    return map(int, line.split()[1:])


def marked(uid):
    """Processes of this user with a mark in their environment: SLURM shows marks to everybody, and root reads every environment. One that
    another user began with other rights, such as `su`, is not this user's."""
    wanted = ("%s=%s" % (MARK, uid)).encode()
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        process = this_process(int(entry))
        try:
            with open("/proc/%s/environ" % entry, "rb") as file:
                holds = wanted in file.read().split(b"\0") and process["start"] is not None
            if holds and set(uids_of(entry)) == {os.geteuid()}:
                found.append(process)
        except OSError:
            continue
    return found


def is_first(process):
    """Whether a process is the one of its group that was started here, and not the first one of a container."""
    try:
        inside = os.readlink("/proc/%d/ns/pid" % process["pid"]) != os.readlink("/proc/self/ns/pid")
        return not inside and os.getpgid(process["pid"]) == process["pid"]
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


def send_signal(process, number, whole=False):
    """Only to a process that is still the one that was meant; `whole` is its group, too."""
    if is_alive(process):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            (os.killpg if whole else os.kill)(process["pid"], number)


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
        hold_alive()
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        work()
    except BaseException as error:
        with contextlib.suppress(BaseException):
            os.write(2, ("%s\n" % error).encode())
        os._exit(1)
    os._exit(0)


def detach_once(store, file, work):
    """Detaches a function unless the one before, which the file names, still runs: then it is noted that there is more to do. To be
    called with the lock."""
    noted = read_json(file)
    running = is_alive(noted)
    note_process(store, file, dict(noted, asked=time.time_ns()) if running else detach(lambda: work_once(store, file, work)))


def work_once(store, file, work):
    """Does the work of the process that a file names. Whoever began this process may have been killed before it was noted: then it is
    noted here, unless another one was begun since."""
    with store.locked():
        noted = read_json(file)
        if not is_alive(noted):
            note_process(store, file, this_process(os.getpid()))
        elif noted["pid"] != os.getpid():
            return
    work()


def note_process(store, file, process):
    try:
        store.write(file, process)
    except OSError as error:
        # Its work may be what makes room. Two of them at once only do things twice.
        if error.errno not in FULL:
            raise
