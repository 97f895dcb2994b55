"""Certificates of Dask clusters: files that only their user can read, in a folder for each authority.

dask-infra makes an authority and a certificate for each Dask cluster, and hands them over with the request that creates it. Scheduler,
workers and clients have the same certificate: Dask does not tell them apart by it. Processes get the paths of the files in their variables.
The folder is named after the authority: a job of SLURM that starts days later reads the files that it was submitted with, or none.
"""

ENCRYPTED = "tls"
AUTHORITY, CERTIFICATE, KEY = "ca.pem", "cert.pem", "key.pem"
PEMS = {"authority": AUTHORITY, "certificate": CERTIFICATE, "key": KEY}
# Plans warn of certificates when less than one part in so many of their life is left.
RENEWED = 12


def is_encrypted(live):
    return live["spec"].get("scheduler", {}).get("protocol") == ENCRYPTED


def seconds_of(text):
    """The time of a stamp."""
    return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ"))


def fingerprint_of(authority):
    text = "".join(line for line in authority.splitlines() if not line.startswith("-"))
    return hashlib.sha256(base64.b64decode(text)).hexdigest()


def has_certificates(noted):
    return all(os.path.isfile(os.path.join(noted["folder"], name)) for name in PEMS.values())


def security(folder):
    """Variables of Dask's configuration for processes that use the files of a folder.
    Source: `distributed.yaml` of distributed 2026.8.0, `distributed.comm`."""
    if not folder:
        return {}
    if not has_certificates({"folder": folder}):
        raise Refused(500, "Failed", "its certificates in %s are gone: `plan` shows the replacement that creates new ones" % folder)
    comm = "DASK_DISTRIBUTED__COMM__"
    found = {comm + "REQUIRE_ENCRYPTION": "True", comm + "TLS__CA_FILE": os.path.join(folder, AUTHORITY)}
    for role in ("SCHEDULER", "WORKER", "CLIENT"):
        found["%sTLS__%s__CERT" % (comm, role)] = os.path.join(folder, CERTIFICATE)
        found["%sTLS__%s__KEY" % (comm, role)] = os.path.join(folder, KEY)
    return found


def wrapped(link, terms):
    """A connection to a scheduler with these terms, which is the one that has the cluster's own certificate."""
    if terms.get("protocol") != ENCRYPTED:
        return link
    if not terms.get("tls"):
        raise OSError(errno.ENOENT, "its certificates are gone")
    # It takes longer to import than all else together, and most requests ask no scheduler.
    import ssl
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # The authority has signed for this Dask cluster only; its certificate names no host.
    context.check_hostname = False
    context.load_verify_locations(os.path.join(terms["tls"], AUTHORITY))
    context.load_cert_chain(os.path.join(terms["tls"], CERTIFICATE), os.path.join(terms["tls"], KEY))
    return context.wrap_socket(link)


class Certificates:
    # What came with a request.
    offered = None

    def take_certificates(self, live):
        """Keeps the certificates that came with a request, where the Dask cluster has none, or others on the host of its scheduler; to
        be called with the lock."""
        internal = live.setdefault("internal", {})
        if not is_encrypted(live):
            internal.pop("tls", None)
            return
        own, offered = internal.get("tls"), self.offered
        if own and leads(live) and self.has_scheduler(live["metadata"]["name"]):
            # It has loaded them. New ones need a start of all processes, which a replacement brings.
            return
        if own and has_certificates(own):
            if leads(live) and not self.is_due(own):
                return
            if not offered or own["fingerprint"] == fingerprint_of(offered["authority"]):
                return
        if not offered:
            message = "no certificates came with the request for %s, which speaks TLS: another version of dask-infra sent it"
            raise Refused(422, "Invalid", message % live["metadata"]["name"], live["metadata"]["name"])
        fingerprint = fingerprint_of(offered["authority"])
        folder = self.store.at("certificates", live["metadata"]["name"], fingerprint[:16])
        os.makedirs(folder, mode=0o700, exist_ok=True)
        for field, name in PEMS.items():
            file = os.path.join(folder, name)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(file)
            with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as out:
                out.write(offered[field])
                out.flush()
                os.fsync(out.fileno())
        internal["tls"] = dict({key: offered[key] for key in ("begins", "ends")}, fingerprint=fingerprint, folder=folder)

    def has_scheduler(self, cluster):
        leader = self.store.leader(cluster)
        return leader is not None and self.lives(leader)

    def is_due(self, noted):
        """Returns true for certificates that end soon."""
        begins, ends = seconds_of(noted["begins"]), seconds_of(noted["ends"])
        return time.time() > ends - (ends - begins) / RENEWED

    def certificates(self, name, live):
        """Returns the certificates for clients and other hosts, over the pipe of who asks."""
        noted = live.get("internal", {}).get("tls")
        if not noted or not is_encrypted(live):
            raise not_found("certificates", name)
        if not has_certificates(noted):
            raise Refused(500, "Failed", "the certificates of %s are gone: `plan` shows the replacement that creates new ones" % name, name)
        found = {key: noted[key] for key in ("begins", "ends", "fingerprint", "folder")}
        for field, file in PEMS.items():
            with open(os.path.join(noted["folder"], file)) as text:
                found[field] = text.read()
        return found

    def certificates_status(self, live):
        """Tells who the authority is, until when they hold, and what is amiss."""
        noted = live.get("internal", {}).get("tls")
        if not noted:
            return {"lost": True}
        status = {"fingerprint": noted["fingerprint"], "ends": noted["ends"]}
        if not has_certificates(noted) or leads(live) and time.time() > seconds_of(noted["ends"]):
            status["lost"] = True
        elif leads(live) and self.is_due(noted):
            status["due"] = True
        return status

    def forget_certificates(self, cluster):
        """Removes the files that no process of a Dask cluster uses any more; to be called with the lock."""
        live = self.led(cluster)
        kept = live and live.get("internal", {}).get("tls", {}).get("folder")
        folder = self.store.at("certificates", cluster)
        for name in os.listdir(folder) if os.path.isdir(folder) else []:
            if not kept or os.path.basename(kept) != name:
                self.store.remove("certificates", cluster, name)
