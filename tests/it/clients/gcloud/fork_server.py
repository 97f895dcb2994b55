"""gcloud with its modules loaded before the first command: each command is a fork of this process.

gcloud's own launcher runs this file in the place of lib/gcloud.py (CLOUDSDK_PYTHON_ARGS), so it has the Python and the
environment that gcloud has, and gets the path of lib/gcloud.py as its argument. Each line of its input is a command as
JSON: its words, what is set in its environment. Each line of its output is what came of it: exit code, stdout, stderr.
It ends with its input. A fork runs lib/gcloud.py unchanged, as `__main__`; only the modules are there already.
"""

import gc
import importlib
import json
import os
import runpy
import sys
import tempfile

# What every command of `gcloud container` loads. Whatever a command loads beyond it, its fork loads itself.
MODULES = (
    "googlecloudsdk.gcloud_main",
    "googlecloudsdk.api_lib.container.api_adapter",
    "googlecloudsdk.command_lib.container.flags",
    "googlecloudsdk.command_lib.container.container_command_util",
    "googlecloudsdk.generated_clients.apis.container.v1.container_v1_client",
    "googlecloudsdk.generated_clients.apis.container.v1beta1.container_v1beta1_client",
    "googlecloudsdk.generated_clients.apis.serviceusage.v1.serviceusage_v1_client",
    "googlecloudsdk.api_lib.container.transforms",
    "googlecloudsdk.api_lib.functions.api_enablement",
    "googlecloudsdk.core.credentials.transports",
    "googlecloudsdk.core.credentials.requests",
)


def load(gcloud):
    """Loads the modules in the way of lib/gcloud.py, and says which path Python begins with."""
    here = os.path.dirname(gcloud)
    sys.argv, sys.path[0] = [gcloud], here
    begun = list(sys.path)
    # Not as __main__: it only sets the path of modules.
    starts = runpy.run_path(gcloud, run_name="gcloud")
    sys.path = starts["reorder_sys_path"](sys.path)
    for module in MODULES:
        importlib.import_module(module)
    # A fork shares what is never looked at again.
    gc.freeze()
    return begun


def become(command, begun, streams):
    """What a process of its own would begin with."""
    for number, stream in enumerate(streams):
        os.dup2(stream.fileno(), number)
    sys.argv += command["words"]
    sys.path = begun
    os.environ.update(command["environment"])
    # It was read when modules were loaded.
    importlib.import_module("googlecloudsdk.core.configurations.named_configs").ActivePropertiesFile.Invalidate()


def main():
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    for number in (0, 1):
        os.dup2(os.open(os.devnull, os.O_RDWR), number)
    gcloud = sys.argv[1]
    begun = load(gcloud)
    # The words for Python were for this file.
    words = os.environ["CLOUDSDK_PYTHON_ARGS"].split()
    os.environ["CLOUDSDK_PYTHON_ARGS"] = " ".join(word for word in words if word != __file__)
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in requests:
        with open(os.devnull, "rb") as nothing, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            child = os.fork()
            if child == 0:
                become(json.loads(line), begun, (nothing, out, err))
                return gcloud
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            said = []
            for stream in (out, err):
                stream.seek(0)
                said.append(stream.read().decode("utf-8", "replace"))
        print(json.dumps({"code": code, "out": said[0], "err": said[1]}), file=answers, flush=True)
    return None


if forked := main():
    runpy.run_path(forked, run_name="__main__")
