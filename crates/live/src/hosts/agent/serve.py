"""Requests: a line in, a line out."""


class Host(Slurm, Environments, Files, Containers, Gpus, Memory, Plugins, Certificates, Clusters, Adapted, Jobs, Pods, Status, Strangers, Boot):
    def __init__(self, base):
        self.store = Store(base)
        # What could not be done before that is tried once more.
        self.began = time.time()
        # Schedulers that did not answer, and until when that is believed.
        self.silent = {}
        # What schedulers and workers told of their versions, and until when that is believed.
        self.told = {}
        # Workers that were seen to be those that schedulers know by their names, and where.
        self.here = set()

    def answer(self, request):
        url = urllib.parse.urlsplit(request["path"])
        asked = {key: values[-1] for key, values in urllib.parse.parse_qs(url.query, keep_blank_values=True).items()}
        parts = [urllib.parse.unquote(part) for part in url.path.split("/") if part]
        self.asked, self.offered = [], request.get("certificates")
        plural, name = kind_and_name(parts)
        self.prepare(plural, name, request.get("body"), request.get("slurm", True))
        if plural == "environments":
            self.look_for_images()
        if request["method"] == "GET" and ("strangers" in parts or not os.path.isdir(self.store.root)):
            # A look leaves nothing behind, and one at processes of others asks their schedulers.
            self.store.check()
            return self.handle(request["method"], parts, asked, request.get("body"))
        with self.store.locked(LOCK):
            if request["method"] != "GET" and has_hung_up():
                # Who asked for it has gone, and somebody else may have decided otherwise since.
                sys.exit(0)
            self.cut_logs()
            if plural in ("clusters", "workergroups", "pods"):
                self.end_those_over()
            body = self.handle(request["method"], parts, asked, request.get("body"))
        self.ask_schedulers()
        return body

    def cut_logs(self):
        """Takes the beginning of very long logs away; whoever writes them goes on at the end."""
        folder = self.store.at("logs")
        for name in os.listdir(folder) if os.path.isdir(folder) else []:
            file = os.path.join(folder, name)
            with contextlib.suppress(OSError):
                if os.path.getsize(file) > LONG_LOG:
                    cut_to_end(file, LOG)

    def handle(self, method, parts, asked, body):
        found = self.discovery(parts) if method == "GET" else None
        if found is not None:
            return found
        version, rest = ("v1", parts[2:]) if parts[:2] == ["api", "v1"] else ("/".join(parts[1:3]), parts[3:])
        namespace = None
        if len(rest) > 2 and rest[0] == "namespaces":
            namespace, rest = rest[1], rest[2:]
        plural = rest[0] if rest else ""
        if plural not in KINDS or KINDS[plural][0] != version or len(rest) > 3:
            raise Refused(404, "", "404 page not found")
        kind, name = KINDS[plural], rest[1] if len(rest) > 1 else None
        below = rest[2] if len(rest) > 2 else None
        if name and (name in (".", "..") or not re.fullmatch(r"[a-z0-9A-Z._-]{1,253}", name)):
            raise Refused(422, "Invalid", "%r is not a name" % name)
        if below == "log" and plural == "pods" and method == "GET":
            return self.log(name, namespace, asked)
        if below == "certificates" and plural in LED and method == "GET":
            live = self.store.get(plural, name)
            if live is None:
                raise not_found(plural, name)
            return self.certificates(name, live)
        if below == "scale" and plural in ("clusters", "workergroups") and method == "PUT":
            return self.scale(plural, name, asked, body)
        if below:
            raise Refused(404, "", "404 page not found")
        if plural == "strangers" and (method != "GET" or name):
            raise Refused(405, "MethodNotAllowed", "processes of others can only be listed")
        if method == "GET" and name is None:
            return self.listed(plural, kind, namespace, asked)
        if method == "GET":
            if plural == "pods":
                without_process = self.pod_without_process(name, asked)
                if without_process:
                    return without_process
            live = self.store.get(plural, name, namespace)
            if live is None or asked.get("previous") == "true":
                raise not_found(plural, name)
            return self.seen(plural, live)
        if method == "PATCH" and name:
            return self.apply(plural, kind, name, namespace, asked, body or {})
        if method == "DELETE" and name:
            return self.delete(plural, name, namespace, body or {})
        raise Refused(405, "MethodNotAllowed", "%s is not served here" % method)

    def discovery(self, parts):
        if parts == ["version"]:
            return {"major": "1", "minor": "0", "gitVersion": "v1.0.0-host",
                    "platform": "Python " + sys.version.split()[0]}
        if parts == ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"]}
        if parts == ["apis"]:
            group, version = HOSTS.split("/")
            served = {"groupVersion": HOSTS, "version": version}
            return {
                "kind": "APIGroupList", "apiVersion": "v1",
                # A list without the group that every cluster has is not believed to be one.
                "groups": [
                    {"name": "apps", "versions": []},
                    {"name": group, "versions": [served], "preferredVersion": served},
                ],
            }
        if parts in (["api", "v1"], ["apis"] + HOSTS.split("/")):
            version = "/".join(parts[1:])
            rows = [(plural, kind) for plural, kind in KINDS.items() if kind[0] == version]
            return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": [
                {"name": plural, "kind": kind, "namespaced": inside, "verbs": ["delete", "get", "list", "patch"]}
                for plural, (_, kind, inside) in rows
            ]}
        return None

    def listed(self, plural, kind, namespace, asked):
        if plural == "pods" and (asked.get("previous") == "true" or ENVIRONMENT_LABEL in asked.get("labelSelector", "")):
            items = self.pods_without_processes(asked)
        else:
            lives = self.strangers() if plural == "strangers" else self.store.all(plural, namespace)
            items = [self.seen_or_unknown(plural, live) for live in lives]
        for term in filter(None, asked.get("labelSelector", "").split(",")):
            key, _, value = term.partition("=")
            def fits(labels):
                return labels.get(key) == value if "=" in term else key in labels
            items = [live for live in items if fits(live["metadata"].get("labels", {}))]
        return {
            "kind": kind[1] + "List", "apiVersion": kind[0], "metadata": {"resourceVersion": str(time.time_ns())},
            "items": items,
        }

    def apply(self, plural, kind, name, namespace, asked, body):
        live = self.store.get(plural, name, namespace)
        if live and plural == "environments" and is_going(live):
            # Of that one only the folder is left, under another name.
            live = None
        wanted = body.get("metadata", {})
        if live is None:
            if wanted.get("uid"):
                raise Refused(409, "Conflict", "%s %s is gone" % (kind[1], name))
            if kind[2] and namespace != "default" and not self.store.get("namespaces", namespace):
                raise not_found("namespaces", namespace)
            metadata = {"name": name, "uid": str(uuid.uuid4()), "creationTimestamp": now()}
            if kind[2]:
                metadata["namespace"] = namespace
            live = {"apiVersion": kind[0], "kind": kind[1], "metadata": metadata}
        else:
            for field in ("uid", "resourceVersion"):
                if wanted.get(field) and wanted[field] != live["metadata"].get(field):
                    message = "the object has been modified; please apply your changes to the latest version"
                    raise Refused(409, "Conflict", "%s %s: %s" % (kind[1], name, message))
        self.check_names(plural, live, body)
        # It is written into files, and not sent back.
        content = body.get("spec", {}).pop("content", None) if plural == "files" else None
        manager = asked.get("fieldManager") or "unknown"
        live = written(live, own_fields(body), manager, "Apply", None, asked.get("force") == "true")
        self.check_gpus(plural, live)
        self.check_boot(plural, live)
        if asked.get("dryRun"):
            self.check_ports(plural, live)
            return self.seen(plural, live) if plural not in ("environments", "files") else live
        if plural == "files":
            self.take_files(live, content)
        if plural in LED and not has_ended(live):
            self.take_certificates(live)
        self.store.put(plural, live)
        self.act(plural, live)
        return self.seen(plural, self.store.get(plural, name, namespace))

    def check_ports(self, plural, live):
        """Whether the scheduler that would replace another one could listen, before that one is stopped."""
        scheduler = live["spec"].get("scheduler", {}) if plural == "clusters" else {}
        if "slurm" in scheduler or not has_place(scheduler) or not leads(live):
            return
        before = self.store.get("clusters", live["metadata"]["name"])
        leader = self.store.leader(live["metadata"]["name"])
        terms = terms_of(before) if before and leader and self.lives(leader) else {}
        own = [terms.get(key) for key in ("port", "dashboardPort")]
        for port in (scheduler["port"], scheduler["dashboardPort"]):
            if port not in own:
                check_free(listens(scheduler), port)

    def check_names(self, plural, live, body):
        """Processes are named after their group, and that of a cluster itself after the cluster: whatever the stacks that
        they belong to, no two have one name."""
        name = live["metadata"]["name"]
        other = None
        if plural in LED:
            taken = [group for group in self.store.all("workergroups") if group["metadata"]["name"] in (name, name + "-default")]
            if taken:
                other = "the group of workers of the Dask cluster %s" % taken[0]["spec"]["cluster"]
            elif self.store.get("jobs" if plural == "clusters" else "clusters", name):
                other = ("the Dask job %s" if plural == "clusters" else "the Dask cluster %s") % name
        elif plural == "workergroups":
            for kind, called in (("clusters", "the Dask cluster %s"), ("jobs", "the Dask job %s")):
                taken = [one for one in self.store.all(kind) if name in (one["metadata"]["name"], one["metadata"]["name"] + "-default")]
                if taken:
                    other = called % taken[0]["metadata"]["name"]
        if other:
            message = "processes of %s would have the names of those of %s: give one of them another `name`"
            raise Refused(422, "Invalid", message % (name, other), name)

    def act(self, plural, live):
        """What follows from a write; to be called with the lock."""
        name = live["metadata"]["name"]
        if plural == "environments":
            self.make_environment(name)
        elif plural == "files":
            self.collect()
        elif plural == "clusters":
            if not bounds(live):
                self.store.remove("adapted", name)
            self.converge(name)
            self.keep_boot()
            self.watch_ttl(live)
        elif plural == "jobs":
            self.begin(live)
        elif plural == "workergroups":
            self.converge(live["spec"]["cluster"])
        elif plural == "pods" and "process" not in live.get("internal", {}):
            self.run(live)

    def scale(self, plural, name, asked, body):
        live = self.store.get(plural, name)
        if live is None:
            raise not_found(plural, name)
        number = body["spec"]["replicas"]
        fields = {("spec", "worker", "replicas"): number}
        live = written(live, fields, asked.get("fieldManager") or "unknown", "Update", "scale", True)
        self.check_gpus(plural, live)
        self.store.put(plural, live)
        self.act(plural, live)
        return {
            "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": name}, "spec": {"replicas": number},
        }

    def delete(self, plural, name, namespace, body):
        live = self.store.get(plural, name, namespace)
        if live is None:
            raise not_found(plural, name)
        for field, value in body.get("preconditions", {}).items():
            if live["metadata"].get(field) != value:
                raise Refused(409, "Conflict", "%s %s: the %s in the precondition does not match" % (plural, name, field))
        if plural in STAFFED:
            self.store.goes(plural, live, body.get("leaves") is True)
            self.converge(name if plural in LED else live["spec"]["cluster"])
            self.keep_boot()
        elif plural == "environments":
            self.end_maker(live)
            self.store.goes(plural, live)
            self.store.remove("logs", log_name("environment-" + name))
            self.collect()
        elif plural == "files":
            self.store.drop(plural, name)
            self.collect()
        elif plural == "pods":
            self.end(live)
            self.collect()
        elif plural == "namespaces":
            for one in self.store.all("pods", name):
                self.end(one)
            for one in self.store.all("configmaps", name):
                self.store.drop("configmaps", one["metadata"]["name"], name)
            self.store.drop(plural, name)
        else:
            self.store.drop(plural, name, namespace)
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                "details": {"name": name, "uid": live["metadata"]["uid"]}}

    def log(self, name, namespace, asked):
        without_process = self.pod_without_process(name, asked)
        pod = without_process or self.store.get("pods", name, namespace)
        if pod is None or asked.get("previous") == "true" and not without_process:
            raise not_found("pods", name)
        # An installer's may name an index with its password.
        is_installer = without_process is not None and asked.get("previous") != "true"
        def shown(text):
            text = text.decode(errors="replace")
            return without_passwords(text) if is_installer else text
        log = without_process["log"] if without_process else self.store.at("logs", log_name(name))
        try:
            with open(log, "rb") as file:
                size = file.seek(0, os.SEEK_END)
                if "offset" in asked:
                    # What came since a look: where it ends, the text, and whether more can come.
                    file.seek(min(int(asked["offset"]), size))
                    text = file.read(LOG)
                    alive = without_process["status"]["phase"] == "Running" if without_process else self.lives(pod)
                    return {"end": file.tell(), "text": shown(text), "alive": alive}
                file.seek(max(0, size - LOG))
                lines = shown(file.read()).splitlines(True)
        except FileNotFoundError:
            if "offset" in asked:
                return {"end": 0, "text": "", "alive": False}
            lines = []
        if asked.get("sinceSeconds"):
            since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time.time() - int(asked["sinceSeconds"])))
            stamped = [at for at, line in enumerate(lines) if re.match(r"\d{4}-\d\d-\d\d \d\d:", line) and line[:19] >= since]
            lines = lines[stamped[0]:] if stamped else []
        if asked.get("tailLines"):
            count = int(asked["tailLines"])
            lines = lines[-count:] if count else []
        return "".join(lines)


def kind_and_name(parts):
    """The kind of objects that a path is about, and the name of the one where it names one."""
    at = next((at for at, part in enumerate(parts) if part in KINDS and (part != "namespaces" or at + 2 >= len(parts))), None)
    if at is None:
        return None, None
    return parts[at], parts[at + 1] if at + 1 < len(parts) else None


def has_hung_up():
    """Whether nobody can send requests any more."""
    look = select.poll()
    look.register(0, select.POLLHUP | select.POLLERR | select.POLLRDHUP)
    return bool(look.poll(0))


def serve():
    # The terminal's Ctrl-C is for dask-infra, which ends this program by closing its input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    host, hello = None, {}
    if not os.path.exists("/proc/self/stat"):
        hello = {"error": "this host has no /proc: processes of Dask are managed on Linux only", "remedy": "use a Linux host"}
    else:
        try:
            host = Host(folder())
            host.store.check()
            hello = {"host": socket.gethostname(), "python": sys.version.split()[0], "folder": host.store.root,
                     "machine": machine()}
        except Unusable as why:
            hello = {"error": why.why, "remedy": why.cure}
        except OSError as why:
            hello = {"error": str(why), "remedy": "%s must be readable and writable" % folder()}
    # What shells print before is not it.
    print(json.dumps(dict(hello, nonce=sys.argv[1] if len(sys.argv) > 1 else None)), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            status, body = 200, host.answer(request)
        except Refused as why:
            status, body = why.status, why.answer() if why.reason else why.message
        except Unusable as why:
            status, body = 500, Refused(500, "InternalError", "%s; %s" % (why.why, why.cure)).answer()
        except Exception as why:
            status = 500
            body = Refused(500, "InternalError", "%s: %s" % (type(why).__name__, why)).answer()
        print(json.dumps({"id": request.get("id"), "status": status, "body": body}), flush=True)


def main():
    """What this program is started for: to serve a command, after a reboot, or beside a scheduler by another of its kind."""
    what, of = sys.argv[1:2], sys.argv[2:]
    if what == ["boot"]:
        Host(*of).after_boot()
    elif what == ["adapt"]:
        adapt(*of)
    elif what == ["bring"]:
        bring(*of)
    else:
        serve()


if "SOURCE" not in globals():
    # It was started from the file that is kept for reboots.
    with open(__file__) as text:
        SOURCE = text.read()
main()
