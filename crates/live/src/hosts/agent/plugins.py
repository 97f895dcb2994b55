"""Packages that running workers install, and those that they take out again: Dask's own plugins, registered with the scheduler, so that
workers that come later do it, too. It runs with the environment's Python, as a client of Dask."""

REGISTER = r"""
import contextlib, json, os, sys
from distributed import Client, InstallPlugin, PipInstall
asked = json.loads(sys.argv[1])
METRIC = asked["metric"]
INSTALL, UNINSTALL = "dask-infra-pip-install", "dask-infra-pip-uninstall"

def there(names):
    import importlib, importlib.metadata
    importlib.invalidate_caches()
    found = set()
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            importlib.metadata.version(name)
            found.add(name)
    return found

# Names what comes by these plugins: what an environment was made with stays with it.
def note():
    return os.path.join(sys.prefix, ".dask-infra-pip-install")

class Uninstall:
    def __init__(self, kept):
        self.kept = set(kept)

    def __call__(self):
        import subprocess
        try:
            with open(note()) as file:
                ours = set(file.read().split())
            some = sorted(there(ours - self.kept))
            if some:
                run = subprocess.run([sys.executable, "-m", "pip", "uninstall", "--yes"] + some, capture_output=True, text=True)
                if run.returncode:
                    raise RuntimeError("pip uninstall failed with %r" % run.stderr)
            with open(note() + ".new", "w") as file:
                file.writelines(name + "\n" for name in sorted(ours & self.kept))
            os.replace(note() + ".new", note())
        except FileNotFoundError:
            return
        except OSError as why:
            raise RuntimeError("ERROR: %s" % why) from None

# Has heartbeats of workers tell how it went: Dask only logs what fails while a worker starts. Seen with distributed 2026.3.0 and 2026.8.0.
class Told:
    def __init__(self, name, install, names):
        self.name, self.install, self.names = name, install, set(names)

    def __call__(self):
        from distributed import Worker
        def tell(why):
            for worker in Worker._instances:
                starts = not worker.periodic_callbacks["heartbeat"].is_running()
                worker.metrics[METRIC] = lambda worker, told=[self.name, why, starts]: told
        try:
            try:
                with open(note(), "a") as file:
                    file.writelines(name + "\n" for name in sorted(self.names - there(self.names)))
            except OSError as why:
                raise RuntimeError("ERROR: %s" % why) from None
            self.install()
        except Exception as why:
            tell(str(why)[-2000:])
            raise
        tell(None)

try:
    with Client(asked["address"], timeout="60s") as client:
        for name in (INSTALL, UNINSTALL):
            for forget in (client.unregister_scheduler_plugin, client.unregister_worker_plugin):
                # One that was registered halfway is not known everywhere.
                with contextlib.suppress(Exception):
                    forget(name)
        # Before workers are restarted: what one of them still installed goes then.
        plugin = InstallPlugin(Uninstall(asked["names"]), restart_workers=False)
        plugin.name = UNINSTALL
        client.register_plugin(plugin, name=UNINSTALL)
        if asked["packages"]:
            plugin = PipInstall(packages=asked["packages"])
            plugin.name = INSTALL
            plugin._install_fn = Told(asked["name"], plugin._install_fn, asked["names"])
            client.register_plugin(plugin, name=INSTALL)
        if asked["restart"]:
            workers = client.scheduler_info(n_workers=-1)["workers"]
            some = sorted(at for at, one in workers.items() if one.get("nanny"))
            half = (len(some) + 1) // 2
            for part in (some[:half], some[half:]):
                if part:
                    client.restart_workers(part, timeout=120)
except Exception as why:
    print("%s: %s" % (type(why).__name__, why), file=sys.stderr)
    # A scheduler that loses a worker meanwhile closes the connection of who asked. What pip itself says is a RuntimeError.
    sys.exit(os.EX_TEMPFAIL if isinstance(why, OSError) else 1)
"""
# What heartbeats of workers call it.
INSTALLED = "dask_infra_pip_install"
# Seconds: hundreds of megabytes may have to be downloaded, on each host.
PIP = 1500


class Plugins:
    def lacks_plugin(self, live):
        """Whether the scheduler of a cluster is to be told what its workers install; to be called with the lock."""
        environment = self.store.get("environments", live["spec"]["environment"]["name"]) or {"spec": {}}
        if not leads(live) or not environment["spec"].get("pip"):
            return False
        # One that was started again is told that there are none, too: its workers may have some from before.
        return live["spec"].get("pipInstall", []) != self.noted_plugin(live).get("packages")

    def noted_plugin(self, live):
        """What was registered last. A scheduler that was started again knows nothing of it."""
        name = live["metadata"]["name"]
        noted = read_json(self.store.at("plugins", name)) or {}
        leader = self.store.leader(name) or {"internal": {}}
        return noted if noted.get("scheduler") == leader["internal"].get("scheduler") else {}

    def uninstalled(self, cluster):
        """The uids of workers that started without their packages, which nobody installs later; not to be called with the lock."""
        with self.store.locked():
            live, pods = self.led(cluster), self.pods(CLUSTER_LABEL, cluster)
        if not live or is_going(live) or not live["spec"].get("pipInstall") or not has_place(terms_of(live)):
            return set()
        leader = next((pod for pod in pods if pod["metadata"]["labels"].get(COMPONENT_LABEL) == "scheduler"), None)
        workers = self.identity(live, leader, ANSWER).get("workers", {}).values()
        told = {str(one.get("id")): install_of(live, one) for one in workers}
        failed = {name for name, (_, why, starts) in told.items() if why and starts}
        return {pod["metadata"]["uid"] for pod in pods if not failed.isdisjoint(members(pod))}

    def register_plugin(self, cluster):
        """Not to be called with the lock: pip takes its time, and the scheduler does nothing else meanwhile."""
        with self.store.locked():
            live = self.led(cluster)
            leader = self.store.leader(cluster)
            if not live or is_going(live) or not leader or not self.lacks_plugin(live):
                return
            environment = self.environment(live["spec"]["environment"]["name"])
            terms, old = terms_of(live), self.noted_plugin(live).get("packages", [])
        python = (environment or {}).get("status", {}).get("python")
        if not python:
            raise Refused(500, "Failed", "the environment %s is not ready" % live["spec"]["environment"]["name"])
        wanted = live["spec"].get("pipInstall", [])
        asked = {
            "address": contact(terms), "name": plugin_name(wanted), "metric": INSTALLED, "packages": wanted,
            "names": distributions(wanted),
            # What is imported stays as it was.
            "restart": not set(old) <= set(wanted),
        }
        given = dict(os.environ, **{MARK: leader["metadata"]["uid"]})
        given.update(security(terms.get("tls")))
        try:
            run = subprocess.run(
                [python, "-c", REGISTER, json.dumps(asked)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE, text=True, timeout=PIP, env=given, cwd=home_folder(),
            )
        except subprocess.TimeoutExpired:
            raise Refused(500, "Failed", "pip did not end within %d minutes" % (PIP // 60)) from None
        if run.returncode == os.EX_TEMPFAIL:
            raise Refused(503, "ServiceUnavailable", "Dask lost a connection while pip ran: %s" % without_passwords(run.stderr.strip()[-400:]))
        if run.returncode:
            raise Refused(500, "Failed", complaint_of_pip(run.stderr))
        with self.store.locked():
            self.store.write(self.store.at("plugins", cluster), {
                "scheduler": leader["internal"]["scheduler"], "packages": wanted,
            })


def install_of(cluster, worker):
    """How the install of a cluster's packages went on a worker that its scheduler knows: whether it has ended, what failed, and whether
    that was while the worker started."""
    packages = cluster["spec"].get("pipInstall", [])
    name, why, starts = worker.get("metrics", {}).get(INSTALLED) or (None, None, None)
    if not packages or name != plugin_name(packages):
        return not packages, None, False
    return True, why and complaint_of_pip(why), starts


def plugin_name(packages):
    return "dask-infra-" + digest(packages)


def distributions(packages):
    """The names in `name[extra]>=1`; a URL has none."""
    found = (re.match(r"(?![a-z0-9+]+://)[A-Za-z0-9][A-Za-z0-9._-]*", package) for package in packages)
    return sorted({one.group() for one in found if one})


def complaint_of_pip(said):
    """What pip said last, out of the error that a client of Dask raises."""
    lines = [line.strip() for line in said.replace("\\n", "\n").splitlines()]
    errors = [line[line.index("ERROR: ") + 7:].rstrip("'\"") for line in lines if "ERROR: " in line]
    if "No module named pip" in said:
        return "the environment has no pip: add `pip` to the packages of conda"
    last = [line for line in lines if line]
    return "pip failed: %s" % without_passwords("; ".join(errors[-2:] or last[-1:])[-400:])
