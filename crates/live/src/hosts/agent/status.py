"""What is seen of objects."""

ELSEWHERE = "the scheduler knows a worker %s at %s, which does not run on this host: stop it there, or give this host another name in `hosts`"


class Status:
    def seen(self, plural, live):
        if plural == "environments":
            live = self.seen_environment(live)
        elif plural == "files":
            live = self.seen_files(live)
        elif plural == "pods":
            live = self.seen_pod(live)
        elif plural in STAFFED:
            live = dict(live, status=self.status_of(plural, live))
        return {key: value for key, value in live.items() if key != "internal"}

    def seen_or_unknown(self, plural, live):
        """One of a list: what SLURM does not tell of where another stack's jobs are is unknown, and in nobody's way."""
        try:
            return self.seen(plural, live)
        except Refused as why:
            if not self.silence or why is not self.silence[1]:
                raise
            return dict({key: value for key, value in live.items() if key != "internal"}, status={"unknown": why.message})

    def seen_pod(self, live):
        internal, container = live.get("internal", {}), live["spec"]["containers"][0]
        check = COMPONENT_LABEL not in live["metadata"].get("labels", {})
        alive, job, outcome = self.lives(live), self.job_status(live), None
        since = live["metadata"]["creationTimestamp"]
        if alive and job and waits(job):
            alive, phase, state = False, "Pending", {"waiting": {"reason": job.get("reason", "None")}}
        elif alive:
            phase, state = "Running", {"running": {"startedAt": since}}
        elif not internal.get("error") and is_alive(internal.get("starter")):
            phase, state = "Pending", {"waiting": {"reason": "Starting"}}
        else:
            outcome = self.outcome(live) if check or is_program(live) else None
            done = outcome is not None and outcome["jobStatus"] == "Successful"
            phase = "Succeeded" if done else "Failed"
            state = {"terminated": {"reason": "Ended", "message": internal.get("error", "")}}
            if outcome and "exitCode" in outcome:
                state["terminated"]["exitCode"] = outcome["exitCode"]
        ready = {"type": "Ready", "status": "True" if alive else "False"}
        status = {
            "phase": phase, "conditions": [ready], "startTime": since,
            "containerStatuses": [{"name": container["name"], "ready": alive, "restartCount": 0, "state": state}],
        }
        if internal.get("error"):
            status["message"] = internal["error"]
        elif outcome and outcome["jobStatus"] == "Failed" and "exitCode" not in outcome:
            status["message"] = outcome["message"]
        if job:
            status["slurm"] = job
        return dict(live, status=status)

    def status_of(self, plural, live):
        name = live["metadata"]["name"]
        cluster = name if plural in LED else live["spec"].get("cluster", "")
        of = self.led(cluster)
        pods = self.pods(CLUSTER_LABEL, cluster)
        own = name + "-default" if plural in LED else name
        workers = [pod for pod in pods if group_of(pod) == own]
        alive = [pod for pod in workers if self.lives(pod)]
        ended = [pod for pod in workers if pod not in alive]
        leader = next((pod for pod in pods if pod["metadata"]["labels"].get(COMPONENT_LABEL) == "scheduler"), None)
        running = leader is not None and self.lives(leader)
        wanted = self.wanted(cluster)
        # Those that go on under other terms than they were started with.
        names = {pod["metadata"]["name"]: pod["internal"].get("text") for pod in alive}
        changed = sum(names[name] != digest(wanted[name]) for name in names if name in wanted)
        status = {
            "converging": self.is_converging(cluster),
            "workers": {"running": len(alive), "present": len(workers), "registered": 0, "changed": changed},
            "scheduler": {"running": running, "answers": False},
        }
        if "slurm" in live["spec"]["worker"]:
            status["queue"] = self.queue_of(workers)
        shortage = self.memory_shortage(live)
        if shortage:
            status["memory"] = shortage
        if bounds(live):
            self.adapted_status(status, live, pods)
        if of and (running or not leads(of)) and has_place(terms_of(of)):
            # The scheduler is asked when the files are free for others.
            self.asked.append((status, of, leader, alive, ended))
            if plural == "clusters" and "host" in of["spec"] and leads(of):
                status["scheduler"]["workersOn"] = {}
        if "restart" in live["spec"] and plural == "clusters":
            status["boot"] = self.boot_way()
        environment = self.environment(live["spec"]["environment"]["name"])
        versions = (environment or {}).get("status", {}).get("versions")
        if versions:
            status["versions"] = versions
        if plural in LED:
            scheduler = terms_of(live)
            if is_encrypted(live):
                status["scheduler"]["tls"] = self.certificates_status(live)
            try:
                if "slurm" not in scheduler or has_place(scheduler):
                    status["scheduler"]["host"] = listens(scheduler)
                if has_place(scheduler):
                    ports = {key: int(scheduler[key]) for key in ("port", "dashboardPort")}
                    at = url_host(status["scheduler"]["host"]), ports["dashboardPort"]
                    status["scheduler"].update(ports, address=contact(scheduler), dashboard="http://%s:%d/status" % at)
            except OSError as why:
                status["message"] = why.strerror or str(why)
            if leader and leader["internal"].get("slurm") and self.is_as_wanted(cluster, leader):
                status["scheduler"]["queue"] = self.queue_of([leader])
            if leader and not running:
                status["message"] = self.said(leader)
            if running and leader["internal"].get("scheduler") and not is_going(live) and self.lacks_plugin(live):
                if status["converging"]:
                    status["installs"] = True
                else:
                    noted = read_json(self.store.at("run", cluster)) or {}
                    status["plugin"] = noted.get("error") or "the scheduler was not told to"
        elif of:
            theirs = self.environment(of["spec"]["environment"]["name"])
            theirs = (theirs or {}).get("status", {}).get("versions")
            if versions and theirs:
                # What runs is asked for later. Workers that do not understand their scheduler do not come as far as that.
                tell_skew(status, [("its scheduler", theirs), ("its workers", versions)])
        kept = [pod for pod in workers if pod["internal"].get("kept")]
        if ended and "message" not in status:
            status["message"] = "%s ended: %s" % (ended[0]["metadata"]["name"], self.said(ended[0]))
        elif kept and "message" not in status:
            status["message"] = "%s: %s" % (kept[0]["metadata"]["name"], kept[0]["internal"]["kept"])
        if plural == "jobs":
            message = status.pop("message", None)
            status.update(self.state_of(live))
            if status["jobStatus"] in JOB_ENDED:
                # Its cluster goes as it should, and nobody connects to it any more.
                status["scheduler"] = {"running": running, "answers": False}
                return status
            if message:
                status["message"] = message
        noted = read_json(self.store.at("run", cluster))
        if noted and not status["converging"]:
            # Why it was not mended, behind what there is to mend.
            said = noted.get("error") or "the last change was interrupted before it was complete"
            status["message"] = "; ".join(filter(None, [status.get("message"), said]))
        return status

    def ask_schedulers(self):
        """Fills in what only schedulers know; not to be called with the lock. One that is silent holds nobody up for long."""
        until, known, look = time.monotonic() + ANSWERS, {}, Look()
        for at, (status, cluster, leader, alive, ended) in enumerate(self.asked):
            uid = cluster["metadata"]["uid"]
            if uid not in known:
                patience = AGAIN if self.silent.get(uid, 0) > time.monotonic() else ANSWER
                rest = len({one[1]["metadata"]["uid"] for one in self.asked[at:]} - set(known))
                known[uid] = self.identity(cluster, leader, min(patience, max(AGAIN, (until - time.monotonic()) / rest)))
                if known[uid]:
                    self.silent.pop(uid, None)
                else:
                    self.silent[uid] = time.monotonic() + SILENT
            listed = {str(one.get("id")): at for at, one in known[uid].get("workers", {}).items()}
            status["scheduler"]["answers"] = bool(known[uid])
            if leader is None:
                status["scheduler"]["running"] = bool(known[uid])
            if "workersOn" in status["scheduler"]:
                status["scheduler"]["workersOn"] = workers_on(listed)
            # Workers of a machine that had the name of this host before.
            elsewhere = [name for pod in alive + ended for name in members(pod)
                         if name in listed and not self.is_here(cluster, pod, listed[name], look)]
            if elsewhere and not status["converging"]:
                said = ELSEWHERE % (elsewhere[0], listed[elsewhere[0]])
                status["message"] = "; ".join(filter(None, [said, status.get("message")]))
            theirs = {str(one.get("id")): install_of(cluster, one) for one in known[uid].get("workers", {}).values()}
            done = {name for name, (installed, _, _) in theirs.items() if installed} - set(elsewhere)
            names = [members(pod) for pod in alive]
            status["workers"]["registered"] = sum(done.issuperset(some) for some in names)
            failed = sorted((name, theirs[name][1]) for some in names for name in some if theirs.get(name, (None, None))[1])
            if failed and not status["converging"] and "plugin" not in status:
                status["plugin"] = "%s: %s" % failed[0]
            own = {name: listed[name] for some in names for name in some if name in listed}
            told = self.versions_of(cluster, known[uid].get("id"), own, min(ANSWER, max(AGAIN, until - time.monotonic())))
            if told:
                status["scheduler"]["versions"] = told[0]
                tell_skew(status, [("its scheduler", told[0])] + [(name, told[1].get(at, {})) for name, at in sorted(own.items())])

    def is_here(self, cluster, pod, address, look):
        """Whether a worker that a scheduler knows by the name of one of this host is that one, as far as the system tells."""
        key = pod["metadata"]["uid"], address
        if "host" not in cluster["spec"] or "job" in pod.get("internal", {}) or key in self.here:
            return True
        if not address.startswith(("tcp://", "tls://")):
            return True
        process = self.process_of(pod)
        processes = self.listeners(pod, process) if is_alive(process) else []
        if is_contained(pod) and len(processes) == 1:
            # What is in a container cannot be seen everywhere.
            return True
        pids = look.family([one["pid"] for one in processes])
        if look.listens(pids, int(address.rpartition(":")[2])) is False:
            return False
        self.here.add(key)
        return True

    def versions_of(self, cluster, scheduler, workers, patience):
        """What a scheduler and some of its workers run: asked once for each of them, and not soon again when they are silent."""
        key = cluster["metadata"]["uid"], scheduler, tuple(sorted(workers.values()))
        until, told = self.told.get(key, (0, None))
        if scheduler and time.monotonic() >= until:
            told = versions_at(cluster, workers.values(), patience)
            self.told[key] = (time.monotonic() + SILENT if told is None else float("inf"), told)
        return told

    def said(self, pod):
        """The last words of a process that ended."""
        error = pod.get("internal", {}).get("error")
        if not error and "job" in pod.get("internal", {}):
            job = self.job_of(pod)
            error = "job %s: %s" % (job["id"], job["state"]) if job and job["state"] != "FAILED" else None
            if job and self.is_begun_anew(pod, job):
                error = "job %s was requeued, and began anew" % job["id"]
        return error or tail(self.store.at("logs", log_name(pod["metadata"]["name"])))


def tell_skew(status, sides):
    """Notes what differs in versions, instead of what was noted before."""
    for field, said in zip(("skew", "unlike"), skew(sides)):
        status.pop(field, None)
        if said:
            status[field] = "; ".join(said)
