"""What schedulers are asked, and where they listen."""

# Runs a scheduler whose page about itself answers while workers compute, too: what they measure then has keys that JSON does not
# have, and the page answers 500 to each request. Seen with distributed 2026.8.0.
SCHEDULES = (
    "import json, runpy, sys; from distributed.http.scheduler.json import IdentityJSON as page; "
    "page.get = lambda self: self.write(json.dumps(self.server.identity(), skipkeys=True)); "
    "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)


def address_of(interface):
    """The IPv4 address of a network interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # SIOCGIFADDR of linux/sockios.h; `struct ifreq` has the address 20 bytes from its beginning.
            answer = fcntl.ioctl(probe, 0x8915, struct.pack("256s", interface.encode()[:15]))
        except OSError:
            names = ", ".join(sorted(name for _, name in socket.if_nameindex()))
            message = "%s has no network interface %s with an IPv4 address; it has %s" % (socket.gethostname(), interface, names)
            raise OSError(errno.ENODEV, message) from None
    return socket.inet_ntoa(answer[20:24])


def terms_of(cluster):
    """The terms of a cluster's scheduler, with what its host chose or told, or its job."""
    spec, internal = cluster["spec"], cluster.get("internal", {})
    terms = dict(spec["scheduler"], **(spec.get("ports") or internal.get("ports") or {}))
    terms.update(internal.get("place", {}))
    if spec.get("reach"):
        terms["host"] = spec["reach"]
    if is_encrypted(cluster) and internal.get("tls"):
        terms["tls"] = internal["tls"]["folder"]
    return terms


def with_certificates(scheduler, terms):
    """The terms of a scheduler wherever its job comes to run."""
    return dict(scheduler, tls=terms["tls"]) if "tls" in terms else scheduler


def listens(terms):
    """The address of a scheduler with these terms: what is said or was told, or that of the interface here."""
    if terms.get("host"):
        return place_of(terms)
    if "slurm" in terms:
        raise OSError(errno.EHOSTUNREACH, "the job of its scheduler does not run yet")
    return address_of(terms["interface"])


def has_place(terms):
    """Whether it is known where a scheduler listens."""
    return "port" in terms and ("slurm" not in terms or "host" in terms)


def contact(terms):
    """Where workers and clients connect to."""
    return "%s://%s:%d" % (terms.get("protocol", "tcp"), url_host(listens(terms)), int(terms["port"]))


def free_ports():
    """Two ports that nobody listens on, at any address."""
    with socket.socket() as one, socket.socket() as other:
        for probe in (one, other):
            probe.bind(("", 0))
        return {"port": one.getsockname()[1], "dashboardPort": other.getsockname()[1]}


def is_taken(host, port):
    kind = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(kind, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def url_host(host):
    return "[%s]" % host if ":" in host else host


def ask(cluster, method, path, body, patience):
    """One request to the pages of a scheduler, whatever it does within so many seconds: a client of the standard library
    waits as long for each piece."""
    until = time.monotonic() + patience
    scheduler = terms_of(cluster)
    host, port = listens(scheduler), int(scheduler["dashboardPort"])
    sent = json.dumps(body).encode() if body is not None else b""
    # An answer to version 1.0 ends with the connection.
    head = "%s %s HTTP/1.0\r\nHost: %s:%d\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    with socket.create_connection((host, port), patience) as link:
        def bounded():
            link.settimeout(max(0.001, until - time.monotonic()))
            return link
        bounded().sendall((head % (method, path, url_host(host), port, len(sent))).encode() + sent)
        answer = b""
        while True:
            some = bounded().recv(1 << 16)
            answer += some
            if len(answer) > LONGEST_ANSWER:
                raise ValueError("%s answered more than %d bytes" % (path, LONGEST_ANSWER))
            if not some:
                break
            if time.monotonic() > until:
                raise socket.timeout("it did not answer in time")
    head, _, text = answer.partition(b"\r\n\r\n")
    if not re.match(rb"HTTP/1\.\d 200 ", head):
        raise ValueError("%s answered %r" % (path, head[:40]))
    return json.loads(text.decode())


def heard(cluster, patience):
    """What answers where a scheduler should."""
    until = time.monotonic() + patience
    while True:
        try:
            known = ask(cluster, "GET", "/json/identity.json", None, max(0.01, until - time.monotonic()))
            return known if isinstance(known, dict) else {}
        except ConnectionRefusedError:
            return {}
        except (OSError, ValueError):
            # It may be busy.
            if time.monotonic() + 0.2 > until:
                return {}
            time.sleep(0.2)


def identity(cluster, leader, patience):
    """What the scheduler that was started here says of itself; nothing when another one answers in its place, or none."""
    own = leader["internal"].get("scheduler")
    known = heard(cluster, patience) if own else {}
    return known if own and known.get("id") == own and is_at(cluster, known.get("address")) else {}


def is_at(cluster, address):
    """Whether a scheduler's address is the one that was asked for, which may be a name."""
    scheduler = terms_of(cluster)
    host, _, port = str(address).rpartition("://")[2].rpartition(":")
    host = host.strip("[]")
    if port != str(scheduler["port"]):
        return False
    with contextlib.suppress(OSError):
        own = listens(scheduler)
        if host == own or own in ("0.0.0.0", "::"):
            return True
        return host in {one[4][0] for one in socket.getaddrinfo(own, None)}
    return False


def is_its_own(cluster, processes):
    """Whether one of a scheduler's processes itself listens on its ports, as far as the system tells."""
    try:
        sockets = set().union(*(sockets_of(process["pid"]) for process in processes))
        listening = listeners_seen_by(processes[0]["pid"])
    except OSError:
        return is_alive(processes[0])
    scheduler = terms_of(cluster)
    ports = [int(scheduler[name]) for name in ("port", "dashboardPort")]
    return not listening or all(listening.get(port, set()) & sockets for port in ports)


class Look:
    """One look at which processes of this host are whose children, and at who listens."""
    def __init__(self):
        self.begun, self.listening = None, {}

    def children(self, pid):
        if self.begun is None:
            self.begun = {}
            for entry in filter(str.isdigit, os.listdir("/proc")):
                with contextlib.suppress(OSError):
                    with open("/proc/%s/stat" % entry) as file:
                        parent = int(file.read().rpartition(")")[2].split()[1])
                    self.begun.setdefault(parent, []).append(int(entry))
        return self.begun.get(pid, [])

    def family(self, pids):
        """These processes, and those that they began."""
        found = list(pids)
        for pid in found:
            found += self.children(pid)
        return found

    def listens(self, pids, port):
        """Whether one of some processes listens on a port; None where the system does not tell."""
        known = True
        for pid in pids:
            try:
                network = os.readlink("/proc/%s/ns/net" % pid)
                if network not in self.listening:
                    self.listening[network] = listeners_seen_by(pid)
                if self.listening[network].get(port, set()) & sockets_of(pid):
                    return True
            except (FileNotFoundError, ProcessLookupError):
                continue
            except OSError:
                known = False
        return False if known else None


def sockets_of(pid):
    """The sockets that a process holds, by inode."""
    sockets = set()
    for handle in os.listdir("/proc/%s/fd" % pid):
        with contextlib.suppress(OSError):
            target = os.readlink("/proc/%s/fd/%s" % (pid, handle))
            if target.startswith("socket:["):
                sockets.add(target[8:-1])
    return sockets


def listeners_seen_by(pid):
    """Sockets that listen in the network of a process: port to inodes."""
    listening = {}
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(FileNotFoundError):
            with open("/proc/%s/net/%s" % (pid, table)) as rows:
                for row in list(rows)[1:]:
                    fields = row.split()
                    # 0A: it listens.
                    if fields[3] == "0A":
                        listening.setdefault(int(fields[1].rsplit(":", 1)[1], 16), set()).add(fields[9])
    return listening


def used_by(port):
    """Who listens on a port of this host, as far as this user may know."""
    with contextlib.suppress(OSError):
        inodes = listeners_seen_by("self").get(port, set())
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if inodes & sockets_of(pid):
                    with open("/proc/%s/comm" % pid) as name:
                        return " by process %s (%s)" % (pid, name.read().strip())
    return ""


def check_free(host, port):
    if is_taken(host, port):
        raise Refused(422, "Invalid", "port %d of %s is in use on this host%s" % (port, host, used_by(port)))


def leads(cluster):
    """Whether the scheduler of a cluster is on this host."""
    host = cluster["spec"].get("host")
    return cluster["spec"]["scheduler"].get("on", host) == host


def is_refused(cluster):
    """Whether nothing listens where a scheduler should."""
    scheduler = terms_of(cluster)
    try:
        socket.create_connection((listens(scheduler), int(scheduler["dashboardPort"])), ANSWER).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        pass
    return False


def own_address(host, port):
    """By which address this host is seen from another one."""
    family, kind, protocol, _, to = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        # Nothing is sent.
        probe.connect(to)
        return probe.getsockname()[0]
