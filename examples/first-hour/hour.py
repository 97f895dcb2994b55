"""One run: its folder, its stack, the program, and what is cleaned up."""

import datetime
import json
import os
import signal
import subprocess
import time
import urllib.parse

import google

LABEL = "dask-infra-first-hour"
# No command takes longer; what waits for something that does not come is interrupted.
LONGEST_SECONDS = 40 * 60
PROBE = "node_pool.probe"


class Stopped(BaseException):
    """Ctrl-C, or a signal that ends programs."""


class Interrupts:
    """Signals end the run, but not while a child is being started: nobody would know of it, and end it. An exception that comes
    while an object is being taken away is lost to Python, so what has come stays known until the run has ended for it."""

    def __init__(self):
        self.held = False
        self.waiting = None

    def stop(self, number, _frame):
        self.waiting = number
        if not self.held:
            raise Stopped(number)

    def started(self, start):
        """What `start` starts. From here on signals wait for `come`."""
        self.held = True
        try:
            return start()
        except BaseException:
            self.held = False
            raise

    def come(self):
        """Those that came and did not end the run."""
        self.held = False
        if self.waiting is not None:
            raise Stopped(self.waiting)

    def over(self):
        """The run has ended for them."""
        self.held, self.waiting = False, None


INTERRUPTS = Interrupts()


class Done:
    """What a command of dask-infra said."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err
        self.lines = [json.loads(line) for line in out.splitlines() if line.startswith("{") and line.endswith("}")]

    def errors(self):
        """The errors' codes and texts."""
        found = [line["diagnostic"] for line in self.lines if line.get("type") == "diagnostic"]
        found = [f"{one.get('code')} {one['summary']}" for one in found if one.get("severity") == "error"]
        return "; ".join(found) or self.err.strip() or f"exit code {self.code}"


class Hour:
    """Everything that the experiments of one run share."""

    def __init__(self, options, folder, program):
        self.options, self.folder, self.program = options, folder, program
        self.run_id = datetime.datetime.now(datetime.timezone.utc).strftime("%m%d%H%M%S")
        self.project = os.environ["GOOGLE_CLOUD_PROJECT"]
        self.location = options.zone
        self.google = google.Google()
        self.simulated = self.google.sandbox is not None
        self.layers, self.has_cluster = {}, False
        self.commands = 0
        self.cluster_name = f"first-hour-{self.run_id}"

    # The stack: the file of this folder, and over it what the experiments set.

    def lay(self, section, keys):
        self.layers.setdefault(section, {}).update(keys)
        self.write_stack()

    def take_away(self, section, keys=None):
        for key in list(keys or self.layers.get(section, {})):
            self.layers.get(section, {}).pop(key, None)
        if keys is None:
            self.layers.pop(section, None)
        self.write_stack()

    def write_stack(self):
        text = 'extends = "stack.toml"\n\n[vars]\n'
        text += f'run = "{self.run_id}"\nlocation = "{self.location}"\n'
        for section, keys in self.layers.items():
            text += f"\n[{section}]\n" + "".join(f"{key} = {value}\n" for key, value in keys.items())
        # Whole or not at all: Ctrl-C may come here, and `destroy` reads it next.
        path = os.path.join(self.folder, "now.toml")
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(f"{path}.new", path)

    # The program.

    def dask_infra(self, *words, environment=None, stack="now.toml"):
        self.commands += 1
        command = [self.program, "--stack", os.path.join(self.folder, stack), *words]
        child = INTERRUPTS.started(
            lambda: subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, **(environment or {})},
                start_new_session=True,  # Ctrl-C reaches it through us, once
            )
        )
        try:
            INTERRUPTS.come()
            out, err = child.communicate(timeout=LONGEST_SECONDS)
        except subprocess.TimeoutExpired:
            out, err = ended(child)
            err += f"\nnot done after {LONGEST_SECONDS // 60} minutes, and interrupted"
        except Stopped:
            ended(child)
            raise
        log = os.path.join(self.folder, f"{self.commands:03}-{words[0]}.log")
        with open(log, "w", encoding="utf-8") as file:
            file.write(f"$ {' '.join(command)}\n{out}\n{err}")
        return Done(child.returncode, out, err)

    def plan(self):
        """The effect of each field that would change."""
        done = self.dask_infra("plan", "--json")
        fields = [field for line in done.lines for field in line.get("change", {}).get("fields", [])]
        return {field["path"]: field.get("effect", "in_place") for field in fields}, done

    def hourly(self):
        """US dollars for an hour of the stack, and whether machines are not in it whose price is not known."""
        done = self.dask_infra("plan", "--offline", "--json")
        summary = next((line for line in done.lines if line.get("type") == "change_summary"), {})
        return summary.get("hourly_minimum"), bool(summary.get("unpriced"))

    def apply(self, *words):
        return self.dask_infra("apply", "--auto-approve", "--json", *words)

    # What is live.

    def parent(self):
        return f"v1/projects/{self.project}/locations/{self.location}"

    def cluster_path(self):
        return f"{self.parent()}/clusters/{self.cluster_name}"

    def gke(self, method, path, body=None):
        return self.google.ask(method, "container", path, body)

    def cluster(self):
        return self.gke("GET", self.cluster_path()).body

    def pool(self, name):
        return self.gke("GET", f"{self.cluster_path()}/nodePools/{name}").body

    def nodes(self, pool):
        """The ids of a pool's Node objects: a node that was recreated has another one."""
        selector = urllib.parse.quote(f"cloud.google.com/gke-nodepool={pool}")
        path = f"/api/v1/nodes?labelSelector={selector}"
        answer = google.kubernetes(self.cluster(), path, self.google.token())
        if not answer.good:
            return None
        return {node["metadata"]["uid"] for node in answer.body.get("items", [])}

    def last_words(self, selector):
        """What the containers of pods wrote to /dev/termination-log, by pod; None when the pods cannot be listed."""
        path = f"/api/v1/namespaces/default/pods?labelSelector={urllib.parse.quote(selector)}"
        answer = google.kubernetes(self.cluster(), path, self.google.token())
        if not answer.good:
            return None
        found = {}
        for pod in answer.body.get("items", []):
            states = [one.get("state", {}) for one in pod.get("status", {}).get("containerStatuses", [])]
            said = "".join(state.get("terminated", {}).get("message", "") for state in states)
            found[pod["metadata"]["name"]] = said.strip()
        return found

    def operations(self, known=()):
        """Operations on the cluster by name, without those that are known: type, state, seconds."""
        answer = self.gke("GET", f"{self.parent()}/operations")
        found = {}
        for one in answer.body.get("operations", []):
            target = one.get("targetLink", "").partition("/clusters/")[2].split("/")[0]
            if target == self.cluster_name and one["name"] not in known:
                took = None
                if one.get("endTime"):
                    took = round((moment(one["endTime"]) - moment(one["startTime"])).total_seconds())
                found[one["name"]] = {"type": one["operationType"], "status": one["status"], "seconds": took}
        return found

    def settled(self, answer, minutes=20):
        """Waits for the operation of an answer; its error, if it has one."""
        name = answer.body.get("name", "")
        until = time.monotonic() + minutes * 60
        while time.monotonic() < until:
            now = self.gke("GET", f"{self.parent()}/operations/{name}")
            if now.body.get("status") == "DONE":
                error = now.body.get("error", {}).get("message")
                return error or now.body.get("statusMessage")
            self.pause(5)
        return f"its operation did not end in {minutes} minutes"

    def pause(self, seconds):
        """The sandbox's time runs faster."""
        time.sleep(seconds / 60 if self.simulated else seconds)

    # What is left.

    def leftovers(self):
        """Clusters and accounts of any run, by label and name. `None` when they cannot be listed."""
        answer = self.gke("GET", f"v1/projects/{self.project}/locations/-/clusters")
        if not answer.good:
            return None
        found = [
            ("cluster", f"{one['location']}/{one['name']}")
            for one in answer.body.get("clusters", [])
            if LABEL in one.get("resourceLabels", {})
        ]
        accounts, _ = self.google.pages("iam", f"v1/projects/{self.project}/serviceAccounts", "accounts")
        own = [one["email"] for one in accounts or [] if one["email"].startswith("first-hour-")]
        return found + [("service account", email) for email in own]

    def delete(self, kind, name):
        """Until it is gone; why it is not, if it is not."""
        if kind == "service account":
            answer = self.google.ask("DELETE", "iam", f"v1/projects/{self.project}/serviceAccounts/{name}")
            return None if answer.good or answer.code == 404 else answer.words()
        location, cluster = name.split("/")
        path = f"v1/projects/{self.project}/locations/{location}/clusters/{cluster}"
        until = time.monotonic() + 40 * 60
        answer = self.gke("DELETE", path)
        while time.monotonic() < until and self.gke("GET", path).code != 404:
            self.pause(10)
            answer = self.gke("DELETE", path)  # refused while another operation runs, also its own
        return None if self.gke("GET", path).code == 404 else answer.words()

    def by_hand(self, kind, name):
        """The command that deletes it."""
        if kind == "service account":
            return f"gcloud iam service-accounts delete {name} --project {self.project}"
        location, cluster = name.split("/")
        return f"gcloud container clusters delete {cluster} --location {location} --project {self.project}"

    def mine(self, found):
        return [(kind, name) for kind, name in found or [] if self.run_id in name]


def ended(child):
    """Ends a command as Ctrl-C does, or at once when that takes too long; what it said."""
    child.send_signal(signal.SIGINT)
    try:
        return child.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.communicate()


def moment(text):
    """A time of Google's, which has more digits than Python reads."""
    return datetime.datetime.strptime(text[:19], "%Y-%m-%dT%H:%M:%S")
