"""Google's REST APIs and the Kubernetes API of one cluster, read with the standard library."""

import base64
import json
import os
import re
import shutil
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

ANSWER_SECONDS = 60
TOKEN_SECONDS = 600


class NoToken(Exception):
    """There is nothing to ask Google with."""


class Answer:
    """A status and a JSON body; status 0 when nobody answered."""

    def __init__(self, code, body):
        self.code, self.body = code, body if isinstance(body, dict) else {}

    @property
    def good(self):
        return 200 <= self.code < 300

    def reason(self):
        """The `ErrorInfo` reason, which clients tell errors apart by."""
        details = self.body.get("error", {}).get("details", [])
        return next((one["reason"] for one in details if "reason" in one), None)

    def words(self):
        error = self.body.get("error", {})
        parts = [str(self.code), error.get("status"), self.reason()]
        return " ".join(part for part in parts if part) + ": " + str(error.get("message", ""))


def environment(name):
    return os.environ.get(name) or None


def credentials_file():
    """Where application default credentials are."""
    folder = environment("CLOUDSDK_CONFIG") or os.path.expanduser("~/.config/gcloud")
    path = environment("GOOGLE_APPLICATION_CREDENTIALS")
    return path or os.path.join(folder, "application_default_credentials.json")


def credentials():
    """What that file says."""
    try:
        with open(credentials_file(), encoding="utf-8") as file:
            said = json.load(file)
    except (OSError, ValueError):
        return {}
    return said if isinstance(said, dict) else {}


def first_of(commands):
    """What the first command that succeeds prints."""
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0 and done.stdout.strip():
            return done.stdout.strip()
    return None


def exchanged(url, form):
    """A token from a token server."""
    request = urllib.request.Request(url, urllib.parse.urlencode(form).encode())
    with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
        return json.load(answer)["access_token"]


def on_google_cloud():
    url = "http://metadata.google.internal/computeMetadata/v1/instance/service-accounts/default/token"
    request = urllib.request.Request(url, headers={"Metadata-Flavor": "Google"})
    with urllib.request.urlopen(request, timeout=3) as answer:
        return json.load(answer)["access_token"]


def real_token():
    said = credentials()
    if shutil.which("gcloud"):
        token = first_of([["gcloud", "auth", "application-default", "print-access-token"]])
        if token:
            return token
    try:
        if said.get("type") == "authorized_user":
            keys = ("client_id", "client_secret", "refresh_token")
            form = {key: said[key] for key in keys}
            return exchanged("https://oauth2.googleapis.com/token", {**form, "grant_type": "refresh_token"})
        return on_google_cloud()
    except (OSError, KeyError, ValueError) as error:
        raise NoToken("no access token: install gcloud, or run on Google Cloud") from error


def self_signed(key, lifetime=600):
    """The assertion that a key file signs about itself. `openssl` signs: Python's library cannot."""

    def part(value):
        text = value if isinstance(value, bytes) else json.dumps(value).encode()
        return base64.urlsafe_b64encode(text).rstrip(b"=")

    now = int(time.time())
    who = key["client_email"]
    scopes = "https://www.googleapis.com/auth/cloud-platform https://www.googleapis.com/auth/userinfo.email"
    claims = {"iss": who, "sub": who, "scope": scopes, "iat": now, "exp": now + lifetime}
    text = part({"alg": "RS256", "typ": "JWT", "kid": key["private_key_id"]}) + b"." + part(claims)
    with tempfile.NamedTemporaryFile() as file:  # mode 0600, gone at the end
        file.write(key["private_key"].encode())
        file.flush()
        command = ["openssl", "dgst", "-sha256", "-sign", file.name]
        signed = subprocess.run(command, input=text, capture_output=True, check=True)
    return (text + b"." + part(signed.stdout)).decode()


class Google:
    """The APIs that the experiments look at. Under a sandbox, GKE and the little of Compute that it has."""

    def __init__(self):
        self.sandbox = environment("DASK_INFRA_GKE_ENDPOINT")
        self._token, self._until = None, 0.0

    def token(self):
        if time.monotonic() > self._until:
            file = environment("DASK_INFRA_SANDBOX_TOKEN_FILE")
            if self.sandbox and file:
                with open(file, encoding="utf-8") as opened:
                    self._token = opened.read().strip()
            else:
                self._token = "sandbox" if self.sandbox else real_token()
            self._until = time.monotonic() + TOKEN_SECONDS
        return self._token

    def url(self, service, path):
        if not self.sandbox:
            return f"https://{service}.googleapis.com/{path}"
        return f"{self.sandbox}/{path}" if service in ("container", "compute") else None

    def ask(self, method, service, path, body=None, token=None):
        url = self.url(service, path)
        if url is None:
            return Answer(404, {"error": {"message": f"the sandbox has no {service} API"}})
        headers = {"Authorization": f"Bearer {token or self.token()}"}
        charged = environment("GOOGLE_CLOUD_QUOTA_PROJECT") or credentials().get("quota_project_id")
        if charged and not self.sandbox:
            headers["x-goog-user-project"] = charged
        return sent(method, url, headers, body)

    def pages(self, service, path, key):
        """All items of a list, or the answer that refused it."""
        items, more = [], ""
        while True:
            answer = self.ask("GET", service, path + (f"?pageToken={more}" if more else ""))
            if not answer.good:
                return None, answer
            items += answer.body.get(key, [])
            more = answer.body.get("nextPageToken", "")
            if not more:
                return items, answer


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would take the token to another server."""

    def redirect_request(self, *_):
        return None


def sent(method, url, headers, body=None, context=None):
    data = None if body is None else json.dumps(body).encode()
    headers = {**headers, **({"Content-Type": "application/json"} if data else {})}
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        handlers = [NoRedirect, urllib.request.HTTPSHandler(context=context)]
        with urllib.request.build_opener(*handlers).open(request, timeout=ANSWER_SECONDS) as answer:
            return Answer(answer.status, json.loads(answer.read() or b"{}"))
    except urllib.error.HTTPError as error:
        text = error.read()
        try:
            return Answer(error.code, json.loads(text))
        except ValueError:
            return Answer(error.code, {"error": {"message": text.decode(errors="replace")}})
    except (OSError, ValueError) as error:
        return Answer(0, {"error": {"message": f"no answer: {error}"}})


def kubernetes(cluster, path, token):
    """A GET of the cluster's Kubernetes API, by the address that GKE calls its endpoint."""
    endpoint = cluster.get("endpoint", "")
    context = ssl.create_default_context()
    authority = cluster.get("masterAuth", {}).get("clusterCaCertificate")
    if authority and not endpoint.endswith(".goog"):
        context = ssl.create_default_context(cadata=base64.b64decode(authority).decode())
        # Authorities of clusters lack extensions that Python 3.13 asks for; gcloud and kubectl do not.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return sent("GET", f"https://{endpoint}{path}", {"Authorization": f"Bearer {token}"}, context=context)
