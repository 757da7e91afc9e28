"""What must hold of a rehearsal after a fault: its state, its objects, and what is left when it is gone."""

from __future__ import annotations

import json
import os
import socket
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import Api
from ml_foundations.rehearsal.cloud.store import Store
from ml_foundations.rehearsal.engine import stack
from ml_foundations.rehearsal.layout import Rehearsal

_MADE = {
    "ConfigMap": ("/api/v1/namespaces/research/configmaps", {"note-0", "note-1", "note-2"}),
    "Job": ("/apis/batch/v1/namespaces/research/jobs", {"finetune"}),
    "PersistentVolumeClaim": ("/api/v1/namespaces/research/persistentvolumeclaims", {"data"}),
    "Namespace": ("/api/v1/namespaces", {"research"}),
}
_OTHERS = {
    *("kube-root-ca.crt", "default", "kube-system", "kube-public", "kube-node-lease"),
    "kueue-system",
}
"""What a cluster has by itself among these kinds."""


def processes_of(rehearsal: Rehearsal) -> list[psutil.Process]:
    """The processes that have the rehearsal's folder among their arguments or in their environment, but not this."""
    root, own = str(rehearsal.root), os.getpid()
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid == own or process.status() == psutil.STATUS_ZOMBIE:
                continue
            if any(root in word for word in process.cmdline()) or (
                process.environ().get("ML_FOUNDATIONS_REHEARSAL") == root
            ):
                found.append(process)
    return found


def claim_of(rehearsal: Rehearsal) -> str:
    """The uid of the protected claim."""
    path = "/api/v1/namespaces/research/persistentvolumeclaims/data"
    return Api(Access(rehearsal.kubeconfig)).get(path)["metadata"]["uid"]


def wrong(rehearsal: Rehearsal, revision: int) -> Iterator[str]:
    """What does not hold of a rehearsal that is up, at this revision of its program."""
    yield from _readable(rehearsal)
    done = stack.pulumi(rehearsal, "stack", "export")
    if done.returncode != 0:
        yield f"stack export fails: {done.stderr.strip()}"
        return
    state = json.loads(done.stdout)["deployment"]
    yield from _state(state)
    api = Api(Access(rehearsal.kubeconfig))
    secrets = ("/api/v1/namespaces/research/secrets", {f"key-{revision % 2}"})
    for kind, (path, names) in {**_MADE, "Secret": secrets}.items():
        found = {item["metadata"]["name"]: item for item in api.get(path)["items"]}
        if found.keys() - _OTHERS != names:
            yield f"{kind}: {sorted(found.keys() - _OTHERS)}, not {sorted(names)}"
        data = [found[name].get("data") for name in names & {*found}]
        if kind == "ConfigMap" and any(each != {"revision": str(revision)} for each in data):
            yield "a ConfigMap is of another revision"
    labels = [node["metadata"]["labels"] for node in api.get("/api/v1/nodes")["items"]]
    nodes = Counter(each.get("cloud.google.com/gke-nodepool") for each in labels)
    if nodes["system"] != 1 or nodes["l4"] not in (1, 2):
        yield f"nodes: {dict(nodes)}"
    pods = [pod["metadata"]["name"] for pod in api.get("/api/v1/namespaces/research/pods")["items"]]
    if len(pods) != 1:
        yield f"pods: {pods}"
    recorded = Counter(resource["urn"] for resource in Store(rehearsal).resources())
    in_state = Counter(r["urn"] for r in state["resources"] if r["type"].startswith("gcp:"))
    if recorded != in_state:
        yield f"Google Cloud has {sorted(recorded - in_state)} too much, and lacks {sorted(in_state - recorded)}"


def _readable(rehearsal: Rehearsal) -> Iterator[str]:
    """What others can read of a rehearsal; the logs of Pulumi are those of this module's own ``pulumi`` too."""
    for path in [rehearsal.root, *rehearsal.root.rglob("*")]:
        with suppress(FileNotFoundError):
            is_ours = not path.is_symlink() and path.parent.name != "logs"
            if is_ours and path.lstat().st_mode & 0o077:
                yield f"{path} can be read by others"


def _state(state: dict[str, Any]) -> Iterator[str]:
    """What is wrong with an exported state: every reference leads to what stands before it, and nothing is pending."""
    if state.get("pending_operations"):
        yield f"pending operations: {[op['resource']['urn'] for op in state['pending_operations']]}"
    seen: set[str] = set()
    for resource in state["resources"]:
        urn = resource["urn"]
        needed = [resource.get("parent"), (resource.get("provider") or "").rpartition("::")[0]]
        needed += resource.get("dependencies") or []
        if dangling := [other for other in filter(None, needed) if other not in seen]:
            yield f"{urn} refers to {dangling}"
        if urn in seen:
            yield f"{urn} stands twice"
        if resource.get("delete"):
            yield f"{urn} is to be deleted still"
        seen.add(urn)


def left(rehearsal: Rehearsal, ports: Iterable[int], temporary: Path) -> Iterator[str]:
    """What a rehearsal has left behind that was taken down: processes, ports, files, keys."""
    for process in processes_of(rehearsal):
        with suppress(psutil.Error):
            yield f"process {process.pid}: {' '.join(process.cmdline())[:120]}"
    for port in ports:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                yield f"port {port} is open"
    if rehearsal.root.parent.exists():
        yield f"{rehearsal.root.parent} is there: {[str(path) for path in rehearsal.root.parent.rglob('*')][:5]}"
    if files := [path.name for path in temporary.iterdir()]:
        yield f"temporary files: {files}"
