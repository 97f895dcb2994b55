"""What was seen, as JSON and as text, without what nobody else should read."""

import json
import os
import re
import textwrap

AS_EXPECTED, DIFFERS, NOT_TRIED = "as expected", "differs", "could not be tried"

# Letters of one text.
LONGEST = 1000


class Seen:
    """How an experiment came out."""

    def __init__(self, verdict, seen, **facts):
        self.verdict, self.seen, self.facts = verdict, seen, facts


def as_expected(seen, **facts):
    return Seen(AS_EXPECTED, seen, **facts)


def differs(seen, **facts):
    return Seen(DIFFERS, seen, **facts)


def not_tried(why, **facts):
    return Seen(NOT_TRIED, why, **facts)


def judged(good, seen, **facts):
    return Seen(AS_EXPECTED if good else DIFFERS, seen, **facts)


class Redactor:
    """Takes out of texts the names and secrets that it was told, and what looks like one."""

    SECRETS = [
        (re.compile(r"-----BEGIN[^-]*-----.*?-----END[^-]*-----", re.S), "KEY"),
        (re.compile(r"\bya29\.[\w.-]+"), "TOKEN"),
        (re.compile(r"\beyJ[\w-]+\.[\w-]+\.[\w-]*"), "TOKEN"),
        # Refresh tokens, client secrets and API keys of Google, and whatever a header carries.
        (re.compile(r"\b1//[\w-]{20,}"), "TOKEN"),
        (re.compile(r"\bGOCSPX-[\w-]+"), "TOKEN"),
        (re.compile(r"\bAIza[\w-]{30,}"), "TOKEN"),
        (re.compile(r"(?i)\b(?:bearer|basic)\s+[\w.~+/=-]{6,}"), "TOKEN"),
        (re.compile(r"[\w.+%-]+@[\w-]+(\.[\w-]+)+"), "ACCOUNT"),
    ]
    NAMES = [
        (re.compile(r"\bgke-[0-9a-f]{16,}-\d+\.[\w.-]+\.goog\b"), "ADDRESS"),
        (re.compile(r"(?<![\w.])\d{1,3}(\.\d{1,3}){3}(:\d+)?(?!\w|\.\d|-)"), "ADDRESS"),
        # IPv6: five groups or more, or `::` with a group on a side; a time of day has three.
        (re.compile(r"(?i)(?<![\w:.])(?:[0-9a-f]{1,4}:){4,7}[0-9a-f]{1,4}(?![\w:])"), "ADDRESS"),
        (re.compile(r"(?i)(?<![\w:.])(?:[0-9a-f]{1,4}:){1,6}(?::[0-9a-f]{1,4}){1,6}(?![\w:])"), "ADDRESS"),
        # Numbers of projects and organizations, ids of accounts.
        (re.compile(r"(?<![\w.])\d{10,}(?!\w)"), "NUMBER"),
    ]
    # Keys of credentials files that say nothing about their owner.
    HARMLESS = (
        "type",
        "project_id",
        "quota_project_id",
        "universe_domain",
        "auth_provider_x509_cert_url",
        "auth_uri",
        "token_uri",
    )

    def __init__(self):
        self.secrets, self.names = set(), {}

    def hide(self, value, name):
        """A name, where it stands alone. Short ones would be found in everything."""
        if value and len(value) >= 4:
            self.names[value] = name

    def hide_secret(self, value):
        if value and len(value) >= 4:
            self.secrets.add(value)

    def hide_credentials(self, said):
        for key, value in said.items():
            if isinstance(value, dict):
                self.hide_credentials(value)
            elif isinstance(value, str) and key not in self.HARMLESS:
                self.hide_secret(value)

    def clean(self, text):
        for secret in sorted(self.secrets, key=len, reverse=True):
            text = text.replace(secret, "SECRET")
        for pattern, name in self.SECRETS:
            text = pattern.sub(name, text)
        for value in sorted(self.names, key=len, reverse=True):
            alone = rf"(?<![A-Za-z0-9-]){re.escape(value)}(?![A-Za-z0-9-])"
            text = re.sub(alone, self.names[value], text)
        for pattern, name in self.NAMES:
            text = pattern.sub(name, text)
        return text

    def cleaned(self, value):
        """The same for everything in a value of JSON."""
        if isinstance(value, str):
            return shortened(self.clean(value))
        if isinstance(value, list):
            return [self.cleaned(one) for one in value]
        if isinstance(value, dict):
            return {self.clean(key): self.cleaned(one) for key, one in value.items()}
        return value


def shortened(text):
    """Only what is clean already: half a secret would not be found."""
    return text if len(text) <= LONGEST else text[:LONGEST] + " …"


def text_of(report):
    """The report as people read it: what differs first."""
    lines = ["The first hour of dask-infra, to be sent in", ""]
    about = {key: value for key, value in report.items() if not isinstance(value, (list, dict))}
    lines += [f"{key.replace('_', ' ')}: {value}" for key, value in about.items()]
    found = report["experiments"]
    counts = [
        f"{sum(one['verdict'] == verdict for one in found)} {verdict}" for verdict in (AS_EXPECTED, DIFFERS, NOT_TRIED)
    ]
    lines += ["", ", ".join(counts)]
    for verdict in (DIFFERS, AS_EXPECTED, NOT_TRIED):
        lines += ["", verdict.capitalize(), "-" * len(verdict)]
        for one in (one for one in found if one["verdict"] == verdict):
            lines += ["", f"{one['name']}: {one['question']}"]
            lines += wrapped("expected: ", one["expected"]) + wrapped("seen:     ", one["seen"])
            lines += wrapped("facts:    ", json.dumps(one["facts"])) if one["facts"] else []
    lines += ["", "Left behind: " + (", ".join(report["left_behind"]) or "nothing")]
    return "\n".join(lines) + "\n"


def wrapped(title, text):
    return textwrap.wrap(text, 110, initial_indent=f"  {title}", subsequent_indent=" " * (2 + len(title)))


def write(report, folder, redactor):
    """Both files; their paths."""
    clean = redactor.cleaned(report)
    paths = [os.path.join(folder, name) for name in ("report.json", "report.txt")]
    texts = [json.dumps(clean, indent=2, sort_keys=True) + "\n", text_of(clean)]
    for path, text in zip(paths, texts):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    return paths
