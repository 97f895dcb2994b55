"""Brings the processes of Dask clusters to what is asked for."""


def seconds_left(live):
    """Until the `ttl` of a Dask cluster has passed."""
    created = calendar.timegm(time.strptime(live["metadata"]["creationTimestamp"], "%Y-%m-%dT%H:%M:%SZ"))
    return created + live["spec"]["ttl"] - time.time()


class Clusters:
    def led(self, name):
        """The Dask cluster of a name, or the job whose own cluster has it: no two have one name."""
        return self.store.get("clusters", name) or self.store.get("jobs", name)

    def staffed(self):
        """Clusters, jobs and groups that are to stay, each with its kind."""
        return [(kind, one) for kind in STAFFED for one in self.store.all(kind) if not is_going(one)]

    def groups(self, cluster):
        return [group for group in self.store.all("workergroups") if group["spec"].get("cluster") == cluster]

    def pods(self, label, name):
        return [pod for pod in self.store.all("pods") if pod["metadata"].get("labels", {}).get(label) == name]

    def wanted(self, cluster):
        """The processes that a cluster and its groups ask for: name to what is to run."""
        live = self.led(cluster)
        going = live is None or is_going(live)
        if not going and is_job(live):
            going = has_ended(live) or not is_open(live)
        wanted = {}
        terms = {} if going else terms_of(live)
        if not going and leads(live):
            wanted[cluster + "-scheduler"] = {
                "component": "scheduler", "group": "", "environment": live["spec"]["environment"],
                # Wherever its job comes to run.
                "scheduler": with_certificates(live["spec"]["scheduler"], terms) if "slurm" in terms else terms,
            }
            if live["spec"].get("idleTimeout"):
                wanted[cluster + "-scheduler"]["idle"] = live["spec"]["idleTimeout"]
            if live["spec"].get("files"):
                wanted[cluster + "-scheduler"]["files"] = live["spec"]["files"]
        if not going and has_adapter(live):
            wanted[adapter_name(live)] = {
                "component": ADAPTER, "group": "", "cluster": cluster, "environment": live["spec"]["environment"],
                "scheduler": terms,
            }
        groups = [("", live)] if live else []
        groups += [(group["metadata"]["name"], group) for group in self.groups(cluster)]
        for group, owner in groups:
            if going or is_going(owner):
                continue
            numbers = ("replicas", "adapt", "hosts")
            worker = {key: value for key, value in owner["spec"]["worker"].items() if key not in numbers}
            for index in self.indices(owner):
                name = worker_name(group or cluster, owner["spec"].get("host"), index)
                wanted[name] = {
                    "component": "worker", "group": group, "environment": owner["spec"]["environment"],
                    "scheduler": terms, "worker": worker,
                }
                if "host" in live["spec"]:
                    wanted[name]["spread"] = True
                if owner["spec"].get("files"):
                    wanted[name]["files"] = owner["spec"]["files"]
        return wanted

    def is_as_wanted(self, cluster, pod):
        """Whether a process was started under the terms that are asked for; to be called with the lock."""
        return pod["internal"].get("text") == digest(self.wanted(cluster).get(pod["metadata"]["name"]))

    def converge(self, cluster):
        """Begins to bring the processes of a cluster to what is asked for; to be called with the lock."""
        file = self.store.at("run", cluster)
        detach_once(self.store, file, self.converging(cluster, file))

    def is_converging(self, cluster):
        return is_alive(read_json(self.store.at("run", cluster)))

    def converged(self, cluster, file):
        until = None
        while True:
            with self.store.locked():
                asked = read_json(file)
            try:
                return self.bring(cluster, file)
            except Exception as why:
                refused = isinstance(why, Refused)
                error = why.message if refused else "%s: %s" % (type(why).__name__, why)
                until = until or time.monotonic() + AWAY
                again = refused and why.status == 503 and time.monotonic() < until
            with self.store.locked():
                # What was asked for meanwhile has not failed.
                if not again and asked == read_json(file):
                    return self.store.write(file, {"error": error})
            time.sleep(1)

    def bring(self, cluster, file):
        early = {}
        try:
            self.bring_with(cluster, file, early)
        finally:
            self.end_early(early)

    def bring_with(self, cluster, file, early):
        """`early` are the workers that were started before their scheduler was known, and where they are told."""
        tried, kept, complaints, begun, met = set(), set(), [], False, False
        has_jobs = any(pod["internal"].get("slurm") for pod in self.pods(CLUSTER_LABEL, cluster))
        leader, uninstalled = cluster + "-scheduler", self.uninstalled(cluster)
        while True:
            if has_jobs:
                # SLURM may take its time: nobody waits for the files meanwhile.
                self.look()
            with self.store.locked():
                wanted = self.wanted(cluster)
                has_jobs = has_jobs or any(is_of_slurm(one) for one in wanted.values())
                live = self.led(cluster)
                pods = {pod["metadata"]["name"]: pod for pod in self.pods(CLUSTER_LABEL, cluster)}
                if live and not is_going(live):
                    # The program of a job is brought to nothing: it runs once, and its log stays.
                    pods = {name: pod for name, pod in pods.items() if not is_program(pod)}
                if not begun:
                    begun = True
                    self.forget_kept(pods.values())
                alive = {name for name, pod in pods.items() if self.lives(pod)}
                same = {name for name in pods if name in wanted and pods[name]["internal"].get("text") == digest(wanted[name])}
                missing = sorted(name for name in wanted if name not in pods)
                # On another host, which this one knows by its address only.
                away = live is not None and not leads(live) and (not is_going(live) or "leaves" in live.get("internal", {}))
                # Workers end with their scheduler, and none takes them over.
                lost = not away and (leader not in same or (leader not in alive and leader not in tried))
                dead = [name for name in pods if name not in alive and not (name in same and name in tried)]
                # Nothing is lost with it.
                dead += [name for name in pods if is_adapter(pods[name]) and name in alive and name not in same]
                goes = [name for name in sorted(pods) if name in alive and name not in kept | set(dead)
                        and (name not in same or pods[name]["metadata"]["uid"] in uninstalled)]
                known = met if away else bool(pods.get(leader, {}).get("internal", {}).get("scheduler"))
                if lost and not pods:
                    if leader in wanted:
                        # What it asked for, it does not ask for any more.
                        self.store.remove("adapted", cluster)
                        # Where one before it was.
                        self.store.remove("schedulers", cluster)
                        tried.add(leader)
                        self.start(cluster, leader, wanted[leader])
                        continue
                    missing = []
                if not lost and not away and leader not in alive:
                    # It does not start: nothing else can.
                    missing = []
                # Where GPUs are given back by those who go, they are waited for.
                ready = self.with_gpus(missing, wanted) if goes else missing
                # Before workers are started: the scheduler installs them first, for all that share its environment.
                installs = not lost and not away and known and leader in alive and self.lacks_plugin(live)
                if not lost and not dead and known and ready and not installs:
                    # Before others go, so that they can take over what those hold.
                    for name in ready[:AT_ONCE] if has_jobs else ready:
                        tried.add(name)
                        self.start(cluster, name, wanted[name])
                    continue
                waits = not lost and not known and (leader in alive or away)
                if known:
                    tell(early)
                elif waits and not away and not dead:
                    names = [name for name in missing if self.may_start_early(live, wanted[name])]
                    tried.update(names)
                    early.update(self.start_early(cluster, names, wanted))
                if not (pods and lost) and not dead and not goes and not waits and not installs and not early:
                    if live and is_going(live) and kept & set(pods):
                        # The next deletion tries it again.
                        raise Refused(500, "Failed", "%s still runs: its scheduler did not retire it" % ", ".join(sorted(kept & set(pods))))
                    self.finish(cluster)
                    self.collect()
                    if complaints:
                        raise Refused(500, "Failed", "; ".join(complaints))
                    self.store.remove("run", os.path.basename(file))
                    return
            if early and (dead or not waits):
                self.end_early(early)
            elif lost or dead:
                left = self.stop([pods[name] for name in (sorted(pods) if lost else sorted(dead))])
                if left:
                    raise Refused(500, "Failed", "%s cannot be ended: its processes do not react to SIGKILL" % ", ".join(left))
            elif installs:
                self.register_plugin(cluster)
            elif waits and away:
                self.meet(cluster, live)
                met = True
            elif waits and "job" in pods[leader]["internal"]:
                self.wait_for_job(cluster, pods[leader])
            elif waits:
                self.wait_for_scheduler(cluster, pods[leader])
            else:
                self.replace(cluster, pods, goes, wanted, alive & same, tried & same, alive, kept, complaints)

    def replace(self, cluster, pods, goes, wanted, stay, begun, alive, kept, complaints):
        """Ends workers that go on under other terms or not at all. What only they hold moves to others first: those that are started
        again before those that are not, and half of them at a time, so that there are others. `begun` are those that were started
        here."""
        # Those that wait in SLURM's queue first: nothing is lost with them, and they show whether the new terms can start. Those of
        # another group do not show it.
        changed = sorted((name for name in goes if name in wanted), key=lambda name: (not self.is_queued(pods[name]), group_of(pods[name])))
        changed = [name for name in changed if group_of(pods[name]) == group_of(pods[changed[0]])]
        # Those that are not wanted any more go last: they may be the only ones to take over.
        some = changed[:max(1, len(changed) // 2)] or goes
        # The adapter chose them by what they hold, and chooses others when that is different now.
        adapted = [name for name in some if name not in wanted and self.is_adapted(cluster, pods[name])]
        some = adapted or some
        leader = cluster + "-scheduler"
        others = {name for name in stay | set(goes) if not is_adapter(pods[name])} - set(some) - {leader}
        absent = set() if adapted else self.wait_for_workers(cluster, pods.get(leader), others & stay, begun)
        def alike(names):
            return [pods[name] for name in sorted(names) if group_of(pods[name]) == group_of(pods[some[0]])]
        why = some[0] in wanted and (self.never_start(alike(others & stay)) or self.not_up(alike(begun - alive | absent)))
        if why:
            kept.update(changed)
            return complaints.append(why + ": those that run were not restarted")
        theirs = {name: set(members(pods[name])) for name in some}
        names = set().union(*theirs.values())
        retired = self.retire(cluster, pods.get(leader), names, bool(others or adapted), bool(adapted))
        unmoved = [name for name in some if not theirs[name] <= retired]
        left = self.stop([pods[name] for name in some if name not in unmoved])
        kept.update(unmoved, left)
        with self.store.locked():
            for name in unmoved:
                self.keep(pods[name], "the scheduler did not retire it, so it still runs: what only it holds would be lost")

    def keep(self, pod, why):
        """Notes why a process that should go is still there; to be called with the lock."""
        live = self.store.get("pods", pod["metadata"]["name"], "default")
        if live and live["metadata"]["uid"] == pod["metadata"]["uid"]:
            live["internal"]["kept"] = why
            self.store.put("pods", live)

    def forget_kept(self, pods):
        for pod in pods:
            if pod["internal"].pop("kept", None):
                self.store.put("pods", pod)

    def wait_for_scheduler(self, cluster, pod):
        """Until a scheduler that was started here answers, and with what id: another one may have taken its port."""
        until = time.monotonic() + UP
        with self.store.locked():
            live = self.led(cluster)
        process = self.process_of(pod)
        while live and is_alive(process):
            known = heard(live, ANSWER)
            if known.get("id") and is_at(live, known.get("address")) and is_its_own(live, self.listeners(pod, process)):
                with self.store.locked():
                    now_there = self.store.get("pods", pod["metadata"]["name"], "default")
                    if now_there and now_there["metadata"]["uid"] == pod["metadata"]["uid"]:
                        now_there["internal"]["scheduler"] = known["id"]
                        self.store.put("pods", now_there)
                return
            if time.monotonic() > until:
                message = "its scheduler runs, but does not answer on port %s within %d s: workers were not started"
                raise Refused(500, "Failed", message % (terms_of(live)["dashboardPort"], UP))
            time.sleep(0.1)

    def never_start(self, pods):
        """What SLURM says of the first of these jobs that waits for ever; nothing when none does."""
        for pod in pods:
            why = self.never_starts(pod)
            if why:
                return "%s can never start, as SLURM says %s" % (pod["metadata"]["name"], why)
        return None

    def not_up(self, pods):
        """What became of the first of these workers, which were started under new terms."""
        if not pods:
            return None
        name = pods[0]["metadata"]["name"]
        with contextlib.suppress(OSError):
            if "memory budget" in end_of(self.store.at("logs", log_name(name))):
                return "%s does not stay up: its nanny ends it, as it needs more than its `memory`" % name
        return "%s does not stay up: %s" % (name, self.said(pods[0]) or "it is not registered")

    def wait_for_workers(self, cluster, leader, names, fresh):
        """Until workers are registered, and those that were started here stay so, as far as they live: before that they can take nothing over. Says which do not
        come; not those that SLURM lets wait."""
        began, seen, begun = time.monotonic(), None, {}
        while names:
            may_queue = time.monotonic() < began + QUEUED
            with self.store.locked():
                live = self.led(cluster)
                pods = [self.store.get("pods", name, "default") for name in names]
                comes = [pod for pod in pods if pod and self.lives(pod) and not self.never_starts(pod)
                         and (may_queue or not self.is_queued(pod))]
                ended = {pod["metadata"]["name"] for pod in pods if pod and not self.lives(pod)}
                alive = leader is None or self.lives(leader)
            known = self.identity(live, leader, ANSWER) if live and alive else {}
            at = {str(one.get("id")): address for address, one in known.get("workers", {}).items()}
            now = {one: at.get(one) for pod in comes for one in members(pod)}
            if not alive or not now:
                return ended
            look = Look()
            for name, pod in ((pod["metadata"]["name"], pod) for pod in comes if pod["metadata"]["name"] in fresh):
                # Children of a nanny that ended are workers that it ended.
                children = set(look.children((self.process_of(pod) or {}).get("pid")))
                known, most = begun.get(name, (set(), 0))
                begun[name] = known | children, max(most, len(children))
            if None in now.values():
                seen = None
            elif not names & fresh:
                return ended
            elif seen is None or seen[0] != now:
                seen = now, time.monotonic()
            elif time.monotonic() > seen[1] + STAYS:
                return ended
            restarts = {name for name, (known, most) in begun.items() if len(known) >= most + RESTARTS}
            if restarts or time.monotonic() > began + UP:
                return ended | (restarts or {pod["metadata"]["name"] for pod in comes if not self.is_queued(pod)})
            time.sleep(0.2)
        return set()

    def end_those_over(self):
        """Deletes Dask clusters whose time is over; to be called with the lock."""
        for live in self.store.all("clusters"):
            # What SLURM does not tell of is not over.
            with contextlib.suppress(Refused):
                if not is_going(live) and self.is_over(live):
                    self.end_cluster(live)

    def is_over(self, live):
        """Returns true where the `ttl` of a Dask cluster has passed, or its scheduler ended as it had no work for too long. On another host
        its workers have ended then, and nothing listens where the scheduler was."""
        spec, name = live["spec"], live["metadata"]["name"]
        if spec.get("ttl") and seconds_left(live) <= 0:
            return True
        if not spec.get("idleTimeout") or self.is_converging(name):
            return False
        if leads(live):
            leader = self.store.leader(name)
            if leader is None or self.lives(leader) or leader["internal"].get("error"):
                return False
            # Source: `check_idle` and `close` of scheduler.py, distributed 2026.8.0.
            with contextlib.suppress(OSError):
                return "idle-timeout-exceeded" in end_of(self.store.at("logs", log_name(name + "-scheduler")))
            return False
        met = (read_json(self.store.at("schedulers", name)) or {}).get("id")
        return bool(met) and not any(map(self.lives, self.pods(CLUSTER_LABEL, name))) and has_place(terms_of(live)) and is_refused(live)

    def end_cluster(self, live):
        """Deletes a Dask cluster with its groups; to be called with the lock."""
        self.store.goes("clusters", live)
        for group in self.groups(live["metadata"]["name"]):
            self.store.goes("workergroups", group)
        self.converge(live["metadata"]["name"])
        self.keep_boot()

    def watch_ttl(self, live):
        """Has a process wait for the end of a Dask cluster; to be called with the lock."""
        if live["spec"].get("ttl"):
            file = self.store.at("follow", live["metadata"]["name"])
            detach_once(self.store, file, lambda: self.ttl_watched(live["metadata"]["name"]))

    def ttl_watched(self, name):
        while True:
            with self.store.locked():
                live = self.store.get("clusters", name)
                is_there = live and not is_going(live) and live["spec"].get("ttl")
                left = seconds_left(live) if is_there else 0
                if left <= 0:
                    self.store.remove("follow", name)
                    if is_there:
                        self.end_cluster(live)
                    return
            # The clock may be set, and the time be changed.
            time.sleep(min(left, TTL_LOOK))

    def finish(self, cluster):
        """Lets objects go whose processes are gone; to be called with the lock."""
        for group in self.groups(cluster):
            if is_going(group):
                self.store.drop("workergroups", group["metadata"]["name"])
        live = self.led(cluster)
        # It was left for the groups that were still here.
        left = live and not is_job(live) and live["spec"].get("host") not in live["spec"].get("hosts", [None]) and not self.groups(cluster)
        if left or live and is_going(live):
            self.store.drop("jobs" if is_job(live) else "clusters", cluster)
            self.store.remove("schedulers", cluster)
            self.store.remove("plugins", cluster)
            self.store.remove("adapted", cluster)
            self.store.remove("ended", cluster)
            # Of one who was killed; who lives ends by itself.
            self.store.remove("follow", cluster)
            if left:
                self.keep_boot()
        self.forget_certificates(cluster)

    def retire(self, cluster, leader, names, is_strict, is_once=False):
        """Has a scheduler move what workers hold; says which may end. Each that it retired is a key of its answer. Those that it does
        not retire are asked for again, unless once is enough.
        Source: tried on distributed 2026.8.0."""
        until = time.monotonic() + RETIRE
        with self.store.locked():
            live = self.led(cluster)
        def goes_on():
            return self.lives(leader) if leader else live and not is_refused(live)
        retired = set()
        while live and goes_on() and time.monotonic() < until:
            known = self.identity(live, leader, ANSWER)
            if known:
                at = {str(one.get("id")): address for address, one in known.get("workers", {}).items()}
                # Other hosts have workers, too, and so may others.
                is_strict = is_strict or bool(set(at) - names)
                # One that is not listed has nothing, or has gone.
                retired |= {name for name in names if name not in at}
                if retired >= names:
                    return retired
                wanted = {at[name]: name for name in names - retired}
                answer = None
                with contextlib.suppress(*NO_ANSWER):
                    left = until - time.monotonic()
                    answer = (retired_at if is_spoken(terms_of(live)) else self.retired_by_client)(live, wanted, left)
                    retired |= {wanted[address] for address in answer}
                if not is_strict:
                    # There is nobody who could take anything over.
                    return names
                if retired >= names or (is_once and answer is not None):
                    return retired
            time.sleep(0.3)
        # Without a scheduler nothing can be moved, and what workers hold is of no use.
        return retired if goes_on() else names

    def retired_by_client(self, live, workers, patience):
        """As `retired_at`, in the environment of the cluster."""
        with self.store.locked():
            status = (self.environment(live["spec"]["environment"]["name"]) or {}).get("status", {})
        if not status.get("python"):
            raise ValueError("the environment is not ready")
        pod = {"metadata": {"name": live["metadata"]["name"] + "-retire", "uid": str(uuid.uuid4())}, "internal": {}}
        command = [status["python"], "-c", RETIRES, contact(terms_of(live)), json.dumps(sorted(workers))]
        command, variables = self.in_environment(pod, status, command, dict(terms_of(live).get("env", {})))
        given = client_variables(variables) if is_contained(pod) else dict(os.environ, **variables)
        try:
            run = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=patience,
                env=given, cwd=home_folder(),
            )
        except subprocess.TimeoutExpired:
            raise socket.timeout("it did not answer in time") from None
        return set(workers).intersection(json.loads(run.stdout))

    def meet(self, cluster, live):
        """Waits for a scheduler on another host, and notes who it is; no longer than somebody wants it."""
        until = time.monotonic() + UP
        while self.is_wanted(live):
            known = heard(live, ANSWER)
            if known.get("id") and is_at(live, known.get("address")) and is_certified(live):
                with self.store.locked():
                    self.store.write(self.store.at("schedulers", cluster), {"id": known["id"]})
                return
            if time.monotonic() > until:
                scheduler = terms_of(live)
                message = "no scheduler of %s://%s:%s answers on port %s: %s"
                who = "the one there calls itself %s" % known["address"] if known.get("address") else "nothing is there, or a firewall in between"
                raise Refused(500, "Failed", message % (
                    scheduler.get("protocol", "tcp"), url_host(listens(scheduler)), scheduler["port"],
                    scheduler["dashboardPort"], who))
            time.sleep(0.2)

    def is_wanted(self, live):
        """Whether a cluster is still that one, and stays."""
        with self.store.locked():
            found = self.led(live["metadata"]["name"])
        return bool(found) and found["metadata"]["uid"] == live["metadata"]["uid"] and not is_going(found)

    def identity(self, live, leader, patience):
        """What the scheduler of a cluster says of itself, wherever it is."""
        if leader is None:
            noted = read_json(self.store.at("schedulers", live["metadata"]["name"])) or {}
            leader = {"internal": {"scheduler": noted.get("id")}}
        return identity(live, leader, patience)
