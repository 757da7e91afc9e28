"""Access to a cluster by a kubeconfig, with certificates, a token or an exec plugin."""

import base64
import json
import os
import ssl
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import urllib3
import yaml

from ml_foundations.kubernetes.reading import json_value
from ml_foundations.rehearsal.files import read_map
from ml_foundations.rehearsal.progress import RehearsalError

_CONNECTIONS = 64
_EXEC_SECONDS = 60


class Access:
    """A connection pool with the credentials of a kubeconfig.

    The kubeconfig is a path or the document itself. Keys are on disk only while they are loaded.
    """

    def __init__(self, kubeconfig: str | Path, context: str = "") -> None:
        document = read_kubeconfig(str(kubeconfig))
        cluster, user = _cluster_and_user(document, context)
        if "exec" in user:
            user = _exec_credential(user["exec"], cluster)
        self.server: str = cluster["server"].rstrip("/")
        self.headers = {"Authorization": f"Bearer {user['token']}"} if user.get("token") else {}
        try:
            tls = ssl.create_default_context(cadata=_pem(cluster, "certificate-authority"))
            if cluster.get("insecure-skip-tls-verify"):
                tls.check_hostname = False
                tls.verify_mode = ssl.CERT_NONE
            if certificate := _pem(user, "client-certificate"):
                # No key stays in a file, even if the engine kills this plugin.
                with private_file(f"{certificate}\n{_pem(user, 'client-key') or ''}") as path:
                    tls.load_cert_chain(path)
        except (OSError, ValueError) as error:
            raise RehearsalError(f"the kubeconfig's certificates cannot be used: {error}") from None
        self.pool = urllib3.PoolManager(maxsize=_CONNECTIONS, retries=False, ssl_context=tls)
        self._document = document | ({"current-context": context} if context else {})

    @contextmanager
    def kubeconfig_file(self) -> Iterator[Path]:
        """Yield the kubeconfig as a private file for a child process, and delete it afterwards."""
        with private_file(yaml.safe_dump(self._document)) as path:
            yield path


@contextmanager
def private_file(text: str, suffix: str = "") -> Iterator[Path]:
    """Yield a temporary file that only the user can read. ``down`` deletes it after a kill."""
    folder = os.environ.get("ML_FOUNDATIONS_REHEARSAL")
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", prefix="ml-foundations-", suffix=suffix, dir=folder
    ) as file:
        file.write(text)
        file.flush()
        yield Path(file.name)


def _pem(entry: dict[str, Any], key: str) -> str | None:
    """Return a certificate or key, from the kubeconfig itself or from the file that it names."""
    if data := entry.get(f"{key}-data"):
        return base64.b64decode(data).decode()
    return Path(entry[key]).expanduser().read_text() if entry.get(key) else None


def server_of(kubeconfig: str, context: str = "") -> str:
    """Return the address of the API server in a kubeconfig."""
    cluster, _ = _cluster_and_user(read_kubeconfig(kubeconfig), context)
    return cluster["server"].rstrip("/")


def read_kubeconfig(value: str) -> dict[str, Any]:
    """Return the kubeconfig of a provider's argument: a path or the document itself."""
    is_document = "\n" in value or value.lstrip().startswith("{")
    document = read_map(value if is_document else Path(value), "the kubeconfig")
    if not document.get("clusters"):
        raise RehearsalError("the kubeconfig names no cluster")
    return document


def _cluster_and_user(
    document: dict[str, Any], context: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    entry = _entry(document, "contexts", context or document.get("current-context", ""))
    cluster = _entry(document, "clusters", entry.get("cluster", ""))
    if not cluster.get("server"):
        raise RehearsalError(f'the kubeconfig has no server for the cluster "{entry["cluster"]}"')
    return cluster, _entry(document, "users", entry.get("user", ""))


def _entry(document: dict[str, Any], kind: str, name: str) -> dict[str, Any]:
    entries = {entry["name"]: entry for entry in document.get(kind) or []}
    if name not in entries:
        known = ", ".join(entries) or "there is none"
        raise RehearsalError(f'the kubeconfig has no entry "{name}" among its {kind}: {known}')
    return entries[name].get(kind[:-1]) or {}


def _exec_credential(plugin: dict[str, Any], cluster: dict[str, Any]) -> dict[str, Any]:
    """Run a credential plugin, and return its answer with the keys of a kubeconfig's user.

    Source: Kubernetes, client authentication API.
    """
    command = plugin["command"]
    spec: dict[str, Any] = {"interactive": False}
    if plugin.get("provideClusterInfo"):
        spec["cluster"] = cluster
    info = {"apiVersion": plugin["apiVersion"], "kind": "ExecCredential", "spec": spec}
    environment = dict(os.environ)
    for variable in plugin.get("env") or []:
        environment[variable["name"]] = variable["value"]
    environment["KUBERNETES_EXEC_INFO"] = json.dumps(info)
    try:
        done = subprocess.run(
            [command, *(plugin.get("args") or [])],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_EXEC_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        hint = plugin.get("installHint") or f"put {command} on PATH"
        raise RehearsalError(f"the credential plugin {command} was not found. {hint}") from None
    except subprocess.TimeoutExpired:
        raise RehearsalError(
            f"the credential plugin {command} did not answer within {_EXEC_SECONDS} s"
        ) from None
    if done.returncode != 0:
        output = done.stderr.strip() or done.stdout.strip() or "no output"
        raise RehearsalError(
            f"the credential plugin {command} failed with code {done.returncode}: {output}"
        )
    try:
        status = json_value(done.stdout)["status"]
    except (ValueError, KeyError, TypeError):
        raise RehearsalError(f"the credential plugin {command} printed no ExecCredential") from None
    user: dict[str, Any] = {}
    for key, field in (
        ("client-certificate-data", "clientCertificateData"),
        ("client-key-data", "clientKeyData"),
    ):
        if field in status:
            user[key] = base64.b64encode(status[field].encode()).decode()
    if "token" in status:
        user["token"] = status["token"]
    return user
