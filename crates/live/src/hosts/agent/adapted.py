"""Numbers of workers that follow the work.

A process beside the scheduler, the adapter, runs in the environment of its cluster: distributed's own `Adaptive` decides there
between the bounds, and workers are started and retired as a command has them started and retired. dask-jobqueue's SLURMCluster
would do both, but its scheduler and the list of its jobs live in its own process and end with it. The scheduler here outlives every
command, and jobs are known again whoever was killed. Source: `core.py` of dask-jobqueue 0.9.0, `spec.py` and `adaptive.py` of
distributed 2026.8.0.
"""

ADAPTER = "adapter"
# This program, for another process of its kind: the text comes over its standard input.
START = "import sys; SOURCE = sys.stdin.read(); exec(compile(SOURCE, 'dask-infra', 'exec'))"


def bounds(live):
    """Between which numbers a cluster adapts; nothing where the number is the file's."""
    return live["spec"].get("worker", {}).get("adapt")


def adapter_name(live):
    """Each host of a cluster has one."""
    name, host = live["metadata"]["name"], live["spec"].get("host")
    return "%s-%s" % (name if leads(live) else "%s_%s" % (name, host), ADAPTER)


def worker_name(cluster, host, number):
    # Of one scheduler no two workers have one name. No other name has a `_`.
    return "%s-worker-%d" % ("%s_%s" % (cluster, host) if host else cluster, number)


def workers_on(names):
    """How many workers each host has by the names that a scheduler knows: several processes of one have a number each."""
    workers = {(name.rpartition("-worker-")[0], name.rpartition("-worker-")[2].partition("-")[0]) for name in names if "_" in name}
    counts = {}
    for of, _ in workers:
        host = of.partition("_")[2]
        counts[host] = counts.get(host, 0) + 1
    return counts


def has_adapter(live):
    """Whether a host has a part in adapting a cluster: it has the scheduler, or may have workers."""
    return bool(bounds(live)) and (leads(live) or live["spec"].get("host") in live["spec"]["worker"].get("hosts", []))


def share(number, live):
    """What of a number of workers is this host's, as they are spread over hosts."""
    host, hosts = live["spec"].get("host"), live["spec"]["worker"].get("hosts", [])
    if host is None:
        return number
    return len([index for index in range(number) if hosts and hosts[index % len(hosts)] == host])


def is_adapter(pod):
    return pod["metadata"].get("labels", {}).get(COMPONENT_LABEL) == ADAPTER


def with_free(numbers, least):
    """Numbers, and the lowest others until there are so many."""
    some, number = set(numbers), 0
    while len(some) < least:
        some.add(number)
        number += 1
    return some


def program():
    """A file with this program, from which another process reads it."""
    text = tempfile.TemporaryFile()
    text.write(SOURCE.encode())
    text.seek(0)
    return text


class Adapted:
    # Whether this is the process of an adapter.
    is_beside = False

    def indices(self, owner):
        """The numbers in the names of the workers that a cluster or a group asks for."""
        worker, name = owner["spec"]["worker"], owner["metadata"]["name"]
        if not bounds(owner):
            return list(range(int(worker.get("replicas", 1))))
        noted = self.noted(owner)
        if noted:
            return noted["workers"]
        # Those that are there go on.
        there = [int(pod["metadata"]["name"].rpartition("-")[2]) for pod in self.pods(GROUP_LABEL, name + "-default")]
        return sorted(with_free(there, share(int(worker["adapt"]["minimum"]), owner)))

    def noted(self, live):
        """What the adapter of a cluster asked for last."""
        noted = read_json(self.store.at("adapted", live["metadata"]["name"])) or {}
        return noted if noted.get("uid") == live["metadata"]["uid"] else {}

    def is_adapted(self, cluster, pod):
        """Whether a worker is one of those whose number follows the work."""
        with self.store.locked():
            live = self.led(cluster)
        own = group_of(pod) == cluster + "-default"
        return bool(own and live and not is_going(live) and bounds(live))

    def adapted_status(self, status, live, pods):
        """Adds what is seen of an adapter and its workers; to be called with the lock."""
        adapter = next(filter(is_adapter, pods), None)
        if has_adapter(live):
            running = adapter is not None and is_alive(self.process_of(adapter))
            status["adapter"] = {"running": running}
            if adapter and not running:
                status["adapter"]["message"] = self.said(adapter)
        status["workers"]["wanted"] = len(self.indices(live))

    def around(self, variables):
        """The variables of an adapter: it works with the same SLURM as who applied, and configuration of `distributed.adaptive`
        stands where that of the scheduler does."""
        passed = {key: value for key, value in os.environ.items() if key.startswith("SLURM_CONF")}
        return dict(passed, **variables)

    def converging(self, cluster, file):
        """What a process of its own does to bring the processes of a cluster to what is asked for."""
        if not self.is_beside:
            return lambda: self.converged(cluster, file)
        # Another program, without the mark of the adapter, which may be ended by it.
        text = program()
        variables = {key: value for key, value in os.environ.items() if key != MARK}
        command = [sys.executable, "-I", "-u", "-c", START, "bring", self.store.base, cluster]
        def run():
            os.dup2(text.fileno(), 0)
            os.umask(UMASK)
            os.execve(command[0], command, variables)
        return run


class Keeper:
    """What the adapter of a host knows of the workers there, and does with them."""

    def __init__(self, host, cluster):
        self.host, self.cluster = host, cluster
        # What is asked for on this host, as which decision; whether something is to be done that was not asked for yet.
        self.numbers, self.decision, self.is_due = set(), None, False
        # Those that were registered once; when others that ended may be started again.
        self.known, self.pauses, self.failures, self.again = set(), {}, 0, 0
        self.complained = None

    def say(self, text):
        print("%s - adapter - %s" % (time.strftime("%Y-%m-%d %H:%M:%S"), text), flush=True)

    def complain(self, text):
        """Says once what goes on."""
        if text != self.complained:
            self.complained = text
            self.say(text)

    def name(self, number):
        return worker_name(self.cluster, self.place, number)

    def live(self):
        """The cluster, as long as there is something to adapt; to be called with the lock."""
        live = self.host.store.get("clusters", self.cluster)
        return live if live and not is_going(live) and bounds(live) else None

    def leader(self):
        """The scheduler that was started for it: its id, and whether it is there, as far as this host knows."""
        self.host.prepare("clusters", self.cluster)
        with self.host.store.locked(LOCK):
            live = self.live()
            if live is None:
                return None, False
            if not leads(live):
                return (read_json(self.host.store.at("schedulers", self.cluster)) or {}).get("id"), True
            pod = self.host.store.leader(self.cluster)
            return (pod["internal"].get("scheduler"), self.host.lives(pod)) if pod else (None, False)

    def look(self, registered):
        """Sees what is there; says whether there is something to adapt."""
        self.host.prepare("clusters", self.cluster)
        with self.host.store.locked(LOCK):
            live = self.live()
            if live is None:
                return False
            self.spec, self.place, self.leads = live["spec"], live["spec"].get("host"), leads(live)
            pods = {pod["metadata"]["name"]: pod for pod in self.host.pods(GROUP_LABEL, self.cluster + "-default")}
            alive = {name for name, pod in pods.items() if self.host.lives(pod)}
            noted, is_busy = self.host.noted(live), self.host.is_converging(self.cluster)
            numbers = set(self.host.indices(live))
            ended = {name: self.host.said(pods[name]) for name in map(self.name, numbers) if name in pods and name not in alive}
        self.numbers, self.decision, self.is_due = set(numbers), noted.get("decision"), False
        there = {name for name in alive if registered.issuperset(members(pods[name]))}
        if there - self.known:
            self.failures = 0
        self.known |= there
        if not is_busy:
            # What the scheduler did not retire goes on.
            self.numbers |= {int(name.rpartition("-")[2]) for name in alive}
            for name, why in sorted(ended.items()):
                if self.may_start_again(name, why):
                    self.numbers.discard(int(name.rpartition("-")[2]))
                    self.is_due = True
            missing = [name for name in map(self.name, numbers) if name not in pods]
            if missing and time.monotonic() > self.again:
                # What began to start them came to nothing.
                self.again, self.is_due = time.monotonic() + BACKOFF, True
        self.is_due |= self.numbers != numbers
        return True

    def may_start_again(self, name, why):
        """Whether the place of a worker that ended is free: at once if it worked, after a pause if it never did."""
        if name in self.known:
            self.known.discard(name)
            self.say("%s has ended: %s" % (name, why))
            return True
        if name not in self.pauses:
            pause = min(BACKOFF * 2 ** min(self.failures, 8), LONGEST)
            self.failures += 1
            self.pauses[name] = time.monotonic() + pause
            self.say("%s ended before it was registered: %s; another one may be started in %d s" % (name, why, pause))
        if time.monotonic() < self.pauses[name]:
            return False
        del self.pauses[name]
        return True

    def decide(self, numbers, decision):
        self.numbers, self.decision, self.is_due = set(numbers), decision, True

    def settle(self):
        """Has done what was decided."""
        if not self.is_due:
            return
        with self.host.store.locked(LOCK):
            live = self.live()
            if live is None:
                return
            note = {"uid": live["metadata"]["uid"], "workers": sorted(self.numbers), "decision": self.decision}
            self.host.store.write(self.host.store.at("adapted", self.cluster), note)
            self.host.converge(self.cluster)


class Staff:
    """The workers of a cluster on all of its hosts, for the adapter beside the scheduler."""

    def __init__(self, keeper):
        self.keeper = keeper
        # For each host the numbers that are asked for, as which decision, and what was heard of it last, and when.
        self.asked, self.decisions, self.heard = {}, {}, {}
        # Names of workers to host and number; of these the ones that are registered; processes of others.
        self.plan, self.observed, self.others = {}, set(), 0

    def look(self, registered, told, decided):
        """Takes in what the adapters of the other hosts told, and what another adapter in this place decided."""
        keeper = self.keeper
        worker = keeper.spec["worker"]
        self.least, self.most = int(worker["adapt"]["minimum"]), int(worker["adapt"]["maximum"])
        self.processes = processes_of(worker)
        self.hosts = worker.get("hosts", []) if keeper.place else [None]
        asked = {keeper.place: keeper.numbers}
        for host in self.hosts:
            if host in asked:
                continue
            said = told.get(host)
            if said and said != self.heard.get(host, (None, 0))[0]:
                self.heard[host] = said, time.monotonic()
            last = decided.get(host, {})
            self.decisions[host] = last.get("decision")
            # It knows best which of its workers are there, once it knows what was decided.
            if said and (not last or said["decision"] == last["decision"]):
                asked[host] = set(said["numbers"])
            else:
                asked[host] = set(last.get("numbers", []))
        self.asked = {host: numbers for host, numbers in asked.items() if host in self.hosts}
        self.before = {host: set(numbers) for host, numbers in self.asked.items()}
        names = {
            worker_name(keeper.cluster, host, number): (host, number)
            for host, numbers in self.asked.items() for number in numbers
        }
        there = {name for name in names if registered.issuperset(self.members(name))}
        # Those of a host that says nothing are believed when the scheduler knows them.
        self.plan = {name: at for name, at in names.items() if self.is_heard(at[0]) or name in there}
        self.observed = there
        self.others = len(registered - {one for name in names for one in self.members(name)})

    def members(self, name):
        return members({"metadata": {"name": name}, "internal": {"processes": self.processes}})

    def is_heard(self, host):
        return host == self.keeper.place or time.monotonic() - self.heard.get(host, (None, -SILENT))[1] < SILENT

    def share(self, target):
        """Of the processes that a scheduler wants the workers of this group: others are there as they are."""
        return max(0, -(-(target - self.others) // self.processes))

    def up(self, number):
        hosts = [host for host in self.hosts if self.is_heard(host)]
        if not hosts:
            return
        self.keeper.say("%s wanted, %d asked for" % (counted(number, "worker", "workers"), len(self.plan)))
        for _ in range(number - len(self.plan)):
            host = min(hosts, key=lambda one: len(self.asked[one]))
            self.asked[host] = with_free(self.asked[host], len(self.asked[host]) + 1)

    def down(self, names):
        self.keeper.say("not needed: %s" % ", ".join(sorted(names)))
        for name in names:
            host, number = self.plan[name]
            self.asked[host].discard(number)

    async def idle(self, scheduler, target):
        """Workers that may be closed, the best first: those without work whose data has room elsewhere, and others when there
        are more than the maximum."""
        def whole(names):
            names = {str(name) for name in names}
            return sorted(name for name in self.observed if names.issuperset(self.members(name)))
        some = whole(await scheduler.workers_to_close(attribute="name"))[:max(0, len(self.observed) - target)]
        over = len(self.observed) - self.most
        if over > len(some):
            every = whole(await scheduler.workers_to_close(n=over * self.processes, attribute="name"))
            some += [name for name in every + sorted(self.observed - set(every)) if name not in some][:over - len(some)]
        return some

    def decided(self):
        """What is to be told: for each host the numbers that are asked for now."""
        for host, numbers in self.asked.items():
            if numbers != self.before[host]:
                self.decisions[host] = str(uuid.uuid4())
                if host == self.keeper.place:
                    self.keeper.decide(numbers, self.decisions[host])
        return {
            host: {"decision": self.decisions[host], "numbers": sorted(numbers)}
            for host, numbers in self.asked.items() if host != self.keeper.place and self.decisions.get(host)
        }


def adapt(base, cluster, address):
    """What the process of an adapter does, until there is nothing to adapt any more."""
    import asyncio

    import dask
    from dask.utils import parse_timedelta
    from distributed.core import rpc
    from distributed.deploy.adaptive import Adaptive
    from distributed.security import Security

    host = Host(base)
    host.is_beside = True
    keeper = Keeper(host, cluster)
    staff = Staff(keeper)

    class OfProcesses(Adaptive):
        # What is asked for is asked for once: a job that waits in a queue is asked for as well as one that runs.
        plan = property(lambda _: set(staff.plan))
        requested = property(lambda _: set(staff.plan))
        observed = property(lambda _: staff.observed)
        scheduler = property(lambda self: self.cluster)

        async def target(self):
            return staff.share(await super().target())

        async def workers_to_close(self, target):
            return await staff.idle(self.scheduler, target)

        async def scale_up(self, n):
            staff.up(n)

        async def scale_down(self, workers):
            # The scheduler retires them before they are ended.
            staff.down(workers)

    # Adapters of several hosts tell each other by the scheduler.
    decisions, telling = ["dask-infra", cluster, "decided"], ["dask-infra", cluster, "told"]

    async def turn(scheduler, decides, known):
        """Says whether there is another one."""
        registered = {str(one["id"]) for one in known["workers"].values()}
        if not keeper.look(registered):
            return False
        told = decided = {}
        if keeper.place:
            told, decided = [await scheduler.get_metadata(keys=keys, default={}) for keys in (telling, decisions)]
        if keeper.leads:
            staff.look(registered, told, decided)
            decides.minimum, decides.maximum = staff.least, staff.most
            await decides.adapt()
            decided = staff.decided()
            if keeper.place:
                await scheduler.set_metadata(keys=decisions, value=decided)
        else:
            own = decided.get(keeper.place, {})
            if own.get("decision") not in (None, keeper.decision):
                keeper.decide(own["numbers"], own["decision"])
            said = {"numbers": sorted(keeper.numbers), "decision": keeper.decision, "at": time.time()}
            await scheduler.set_metadata(keys=telling + [keeper.place], value=said)
        keeper.settle()
        return True

    async def run():
        scheduler = rpc(address, connection_args=Security().get_connection_args("client"))
        # Turns are taken here.
        decides = OfProcesses(scheduler, interval=0)
        pause = parse_timedelta(dask.config.get("distributed.adaptive.interval"))
        while True:
            try:
                wanted, is_there = keeper.leader()
                if not wanted or not is_there:
                    return
                known = await scheduler.identity()
                if known.get("id") == wanted and not await turn(scheduler, decides, known):
                    return
            except (Refused, OSError) as why:
                keeper.complain(why.message if isinstance(why, Refused) else "%s: %s" % (type(why).__name__, why))
            await asyncio.sleep(pause)

    keeper.say("follows the work of %s" % address)
    asyncio.run(run())
    keeper.say("has nothing to follow any more")


def bring(base, cluster):
    """What another process does for an adapter."""
    host = Host(base)
    host.converged(cluster, host.store.at("run", cluster))
