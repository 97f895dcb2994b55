"""What is live on this host, as a small Kubernetes-like API.

dask-infra runs this program with the host's own Python for as long as one command runs: a request a line on stdin, an
answer a line on stdout. Nothing listens on a port. Objects are JSON files below one folder of the user and the machine, so
that the next command finds them; processes outlive this program and are found by process id, start time and boot.

Standard library only, Python 3.8 and later, Linux: start times and environments of processes are read from /proc.
"""

import base64
import calendar
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
import tempfile
import time
import urllib.parse
import uuid

HOSTS = "hosts.dask-infra.dev/v1"
# Plural, API version, kind, whether it lies in a namespace.
KINDS = {
    "namespaces": ("v1", "Namespace", False),
    "configmaps": ("v1", "ConfigMap", True),
    # Values that processes get in their variables. Files of the user alone; no note of a process has one.
    "secrets": ("v1", "Secret", True),
    "pods": ("v1", "Pod", True),
    "events": ("v1", "Event", True),
    "environments": (HOSTS, "Environment", False),
    "files": (HOSTS, "Files", False),
    "clusters": (HOSTS, "Cluster", False),
    "workergroups": (HOSTS, "WorkerGroup", False),
    "jobs": (HOSTS, "Job", False),
    "strangers": (HOSTS, "Stranger", False),
}
# What has a scheduler of its own, and what has workers.
LED = ("clusters", "jobs")
STAFFED = LED + ("workergroups",)
CLUSTER_LABEL = "dask.org/cluster-name"
GROUP_LABEL = "dask.org/workergroup-name"
COMPONENT_LABEL = "dask.org/component"
# Of the log of an environment's installer, which is shown as that of a pod.
ENVIRONMENT_LABEL = "hosts.dask-infra.dev/environment"
# Tells a program where the scheduler is.
SCHEDULER = "DASK_SCHEDULER_ADDRESS"
# In the environment of every process that is started here; children inherit it.
MARK = "DASK_INFRA_PROCESS"
# setproctitle, which distributed uses where it is there, writes over the variables of a process otherwise, and the mark with them.
KEEPS_MARK = "SPT_NOENV"
# What processes get of the environment of who applies: a shell's other variables would make two applies differ, and may
# hold secrets.
PASSED_ON = ("HOME", "LANG", "LD_LIBRARY_PATH", "LOGNAME", "PATH", "SHELL", "SSL_CERT_FILE", "TMPDIR", "TZ", "USER")
# Seconds. A scheduler may take so long to answer; all that are asked for one request; one that was silent a moment ago.
ANSWER, ANSWERS, AGAIN = 2, 3, 0.2
# How long one that was silent counts as such.
SILENT = 15
# A scheduler that was started to answer, and workers that were started to register: imports take up to ten seconds on a
# machine that does other things, for each process.
UP = 180
# A worker that its nanny ends for its memory, and starts again, is registered for a moment each time.
STAYS, RESTARTS = 1, 3
# A job to start that is to take over from those that go: SLURM frees what one before it had, and looks at its queue. One that still waits
# then may wait for hours, or for what they have.
QUEUED = 30
# To try what may work in a moment: a controller of SLURM that is busy, or starts again, refuses single requests; Dask may lose a worker
# in the middle of something.
AWAY = 60
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
# Logs of processes that ended which are kept for each Dask cluster, and bytes of each.
ENDED_LOGS, ENDED_LOG = 40, 512 * 1024
# Seconds between two looks at the clock for a `ttl`.
TTL_LOOK = 60
# Lines of an installer's log that stand in the error.
LAST_LINES = 15
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


def without_passwords(text):
    """Without what stands before the host of a URL, and without tokens behind it."""
    text = re.sub(r"([?&][\w-]*(?:token|secret|passw|signature|credential|key|sig|auth)[\w-]*=)[^&#\s]+", r"\1***", text, flags=re.I)
    return re.sub(r"://[^/@\s]*@", "://***@", text)


def counted(number, one, several):
    return "%d %s" % (number, one if number == 1 else several)


def digest(what):
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]


def read_json(file):
    try:
        with open(file) as text:
            return json.load(text)
    except (OSError, ValueError):
        return None


def is_telling(line):
    """Whether a line of a log says something: what is indented goes on from another line, Python's tracker of semaphores only says
    that somebody else was killed, and docker ends each complaint by where its options are told."""
    return bool(line.strip()) and not line.startswith(" ") and "resource_tracker" not in line and "run --help'" not in line


def end_of(file):
    with open(file, "rb") as log:
        log.seek(max(0, log.seek(0, os.SEEK_END) - 4096))
        return log.read().decode(errors="replace")


def tail(file):
    """The last line of a log that says something."""
    try:
        lines = [line.rstrip() for line in end_of(file).splitlines()]
    except OSError:
        return "it left no log"
    lines = list(filter(is_telling, lines))
    if lines and " - INFO - " in lines[-1] and not re.search("Clos|End|Reason|Retir|Stopp|signal", lines[-1]):
        # What ends by itself logs that it closes or why.
        return "it ended without a word, as a process does that is killed; its log ends with: %s" % lines[-1][-200:]
    return lines[-1][-300:] if lines else "its log is empty"


def last_lines(file):
    """The end of an installer's log: what follows the command that failed, without its progress."""
    with contextlib.suppress(OSError):
        lines = [line.rstrip() for line in end_of(file).replace("\r", "\n").splitlines() if line.strip()]
        begins = max([at for at, line in enumerate(lines) if line.startswith("$ ")], default=-1)
        return without_passwords("\n".join(lines[begins + 1:][-LAST_LINES:]))
    return ""


def is_going(live):
    return bool(live["metadata"].get("deletionTimestamp"))


def log_name(pod):
    return pod + ".log"


def cut_to_end(file, most):
    """Leaves the end of a long log, from the beginning of a line; whoever writes it goes on at the end."""
    with open(file, "r+b") as log:
        log.seek(-most, os.SEEK_END)
        rest = log.read()
        log.truncate(0)
    with open(file, "ab") as log:
        log.write(rest[rest.find(b"\n", 0, -1) + 1:])
