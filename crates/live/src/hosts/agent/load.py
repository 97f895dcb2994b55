"""What is read first. To compile the rest takes a tenth of a second, more than most commands need otherwise: what came of it is
kept beside what is managed here, for as long as there is something, and used again for the same text by the same Python."""

import contextlib
import hashlib
import json
import marshal
import os
import stat
import sys

# The oldest Python that this program runs with.
OLDEST = (3, 8)
# The folder below that of a user's states.
STATE = "dask-infra"
# How the file begins in which the program is kept, one for each Python.
COMPILED = "agent."


def refuse_old():
    """Ends this program with what is wrong where its Python is too old to read the rest of it."""
    if sys.version_info[:2] < OLDEST:
        said = "its Python %s is %s, and %d.%d is the oldest that can be used" % ((sys.executable, sys.version.split()[0]) + OLDEST)
        remedy = "install Python %d.%d or later, or name one: `python` of the host in `[ssh]`, DASK_INFRA_PYTHON for this machine" % OLDEST
        print(json.dumps({"error": said, "remedy": remedy, "nonce": sys.argv[1] if len(sys.argv) > 1 else None}))
        sys.stdout.flush()
        sys.exit(1)


def folder():
    given = os.environ.get("XDG_STATE_HOME", "")
    base = given if os.path.isabs(given) else os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(base, STATE)


def is_safe(status):
    """Whether only the user writes what is in a folder."""
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def is_own_folder(path):
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and is_safe(status)


def load(text):
    """The program of a text."""
    base = folder()
    file = os.path.join(base, COMPILED + sys.implementation.cache_tag)
    whose = hashlib.sha256(("%s\n%s" % (sys.version, text)).encode()).digest()
    is_kept = is_own_folder(base)
    if is_kept:
        with contextlib.suppress(OSError):
            with open(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as kept:
                known, sum_of, code = kept.read(32), kept.read(32), kept.read()
                if known == whose and is_safe(os.fstat(kept.fileno())) and hashlib.sha256(code).digest() == sum_of:
                    return marshal.loads(code)
    program = compile(text, "dask-infra", "exec")
    if is_kept:
        new = "%s.%d" % (file, os.getpid())
        # Without it nothing is missing but time.
        with contextlib.suppress(OSError):
            try:
                code = marshal.dumps(program)
                with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as kept:
                    kept.write(whose + hashlib.sha256(code).digest() + code)
                os.replace(new, file)
            except OSError:
                os.unlink(new)
    return program
