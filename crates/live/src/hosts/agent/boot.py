"""Brings Dask clusters back after their host was restarted, where they ask for it: a unit of the user's systemd, or else a line of
their crontab, runs this very program, which is kept beside the objects for that."""

ON_BOOT = "on-boot"
# Seconds. One of the programs asked; between two tries after a boot, whose network may come late; and for all of them.
PROGRAM_TIME, BOOT_PAUSE, BOOT_TIME = 10, 15, 900


def run_program(*words, **given):
    """Runs a program of the system: whether it succeeded, and what it said."""
    try:
        run = subprocess.run(
            words, input=given.get("told"), stdin=None if "told" in given else subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, universal_newlines=True, timeout=PROGRAM_TIME, env=dict(os.environ, LC_ALL="C"),
        )
    except (OSError, subprocess.TimeoutExpired) as why:
        return False, str(why)
    return run.returncode == 0, run.stdout


def crontab():
    """The lines of the user's crontab; None where they may have none."""
    there, said = run_program("crontab", "-l")
    # Source: cron 3.0pl1 and cronie 1.6.
    if not there and "no crontab for" in said:
        return []
    return said.splitlines() if there else None


def has_systemd():
    """Whether the user's systemd runs, and would after a reboot before anybody logs in."""
    name = pwd.getpwuid(os.geteuid()).pw_name
    if not run_program("systemctl", "--user", "show-environment")[0]:
        return False
    lingers, said = run_program("loginctl", "show-user", name, "--property=Linger")
    return lingers and said.strip() == "Linger=yes"


class Boot:
    def asks(self, live):
        return live["spec"].get("restart") == ON_BOOT and not is_going(live)

    def check_boot(self, plural, live):
        """Refuses what nobody would do."""
        if plural != "clusters" or not self.asks(live) or has_systemd() or crontab() is not None:
            return
        message = (
            "nothing on %s would start it after a reboot: the user has no systemd that lingers, and no crontab; "
            "`loginctl enable-linger` gives them one, or install cron, or remove `restart`"
        )
        raise Refused(422, "Invalid", message % socket.gethostname(), live["metadata"]["name"])

    def boot_line(self):
        """The line of the crontab, which ends with the folder that it is about."""
        program = self.store.at("boot", "agent.py")
        command = "[ -r %s ] && exec %s -I %s boot %s" % tuple(
            map(shlex.quote, (program, sys.executable, program, self.store.base)))
        # `%` is the end of a line to cron.
        return "@reboot %s # dask-infra %s" % (command.replace("%", "\\%"), self.store.root)

    def boot_unit(self):
        """The file of the unit."""
        above = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
        return os.path.join(above, "systemd", "user", "dask-infra-%s.service" % digest(self.store.root))

    def boot_way(self):
        """What starts the clusters of this host after a reboot; None when nothing does."""
        noted = read_json(self.store.at("boot", "way")) or {}
        if not os.path.exists(self.store.at("boot", "agent.py")):
            return None
        if noted.get("way") == "systemd":
            return "systemd" if has_systemd() and os.path.exists(self.boot_unit()) else None
        return "crontab" if noted and self.boot_line() in (crontab() or []) else None

    def keep_boot(self):
        """Sets up what the clusters of this host ask for, and takes it away when none asks; to be called with the lock."""
        asked = any(map(self.asks, self.store.all("clusters")))
        noted = read_json(self.store.at("boot", "way"))
        if asked and not self.boot_way():
            if noted:
                self.end_boot(noted)
            self.begin_boot("systemd" if has_systemd() else "crontab")
        elif noted and not asked:
            self.end_boot(noted)

    def begin_boot(self, way):
        given = {key: value for key, value in os.environ.items()
                 if key in PASSED_ON or key.startswith(("LC_", "SLURM_CONF") + OF_RUNTIMES)}
        # First the note, then what it is about.
        self.store.write(self.store.at("boot", "way"), {"way": way, "variables": given})
        with open(self.store.at("boot", "agent.py"), "w") as file:
            file.write(SOURCE)
        if way == "crontab":
            lines = crontab()
            done, said = run_program("crontab", "-", told="\n".join((lines or []) + [self.boot_line(), ""]))
        else:
            words = [sys.executable, "-I", self.store.at("boot", "agent.py"), "boot", self.store.base]
            words = " ".join('"%s"' % re.sub(r'(["\\])', r"\\\1", word).replace("%", "%%").replace("$", "$$") for word in words)
            os.makedirs(os.path.dirname(self.boot_unit()), exist_ok=True)
            with open(self.boot_unit(), "w") as file:
                # What it starts goes on when it has ended. Source: systemd.kill(5), systemd.service(5).
                file.write("[Unit]\nDescription=Dask clusters of dask-infra, after a reboot\n\n[Service]\nType=oneshot\n"
                           "RemainAfterExit=yes\nKillMode=process\nExecStart=%s\n\n[Install]\nWantedBy=default.target\n" % words)
            done, said = run_program("systemctl", "--user", "daemon-reload")
            if done:
                done, said = run_program("systemctl", "--user", "enable", os.path.basename(self.boot_unit()))
        if not done:
            message = "the start after a reboot cannot be set up: %s: %s" % (way, (said.strip().splitlines() or ["it said nothing"])[-1])
            raise Refused(500, "Failed", message)

    def end_boot(self, noted):
        if noted.get("way") == "crontab":
            lines = crontab()
            left = [line for line in lines or [] if not line.endswith(" # dask-infra " + self.store.root)]
            done, said = True, ""
            if lines is None:
                # There is none any more, and so none of its lines.
                done = shutil.which("crontab") is None
                said = "the crontab cannot be read"
            elif left != lines:
                told = "\n".join(left + [""]) if left else None
                done, said = run_program("crontab", "-", told=told) if left else run_program("crontab", "-r")
            if not done:
                raise Refused(500, "Failed", "the line for reboots cannot be taken out of the crontab: %s" % said.strip())
        elif os.path.exists(self.boot_unit()):
            run_program("systemctl", "--user", "disable", os.path.basename(self.boot_unit()))
            os.unlink(self.boot_unit())
            run_program("systemctl", "--user", "daemon-reload")
        self.store.remove("boot")

    def after_boot(self):
        """What a reboot ended is started again."""
        os.environ.update((read_json(self.store.at("boot", "way")) or {}).get("variables", {}))
        until = time.monotonic() + BOOT_TIME
        while True:
            with self.store.locked():
                asked = [live["metadata"]["name"] for live in self.store.all("clusters") if self.asks(live)]
                for name in asked:
                    for live in [self.store.get("clusters", name)] + self.groups(name):
                        if self.store.get("environments", live["spec"]["environment"]["name"]):
                            # One that was being made.
                            self.make_environment(live["spec"]["environment"]["name"])
                    self.converge(name)
                    self.watch_ttl(self.store.get("clusters", name))
            while any(map(self.is_converging, asked)):
                time.sleep(0.2)
            # What failed left a note.
            if not any(read_json(self.store.at("run", name)) for name in asked) or time.monotonic() > until:
                return
            time.sleep(BOOT_PAUSE)
