"""The replica of a cluster: its control plane, its daemon and the controllers of its charts."""

import os
import ssl
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from ml_foundations.rehearsal import files
from ml_foundations.rehearsal.cloud import daemon
from ml_foundations.rehearsal.cloud.store import Store
from ml_foundations.rehearsal.control_plane import configuration, controllers, kwok
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.processes import Process
from ml_foundations.rehearsal.tools.toolchain import Tools
from ml_foundations.rehearsal.watching import watched


def start(rehearsal: Rehearsal, tools: Tools) -> None:
    """Start a replica, whatever state it is in."""
    kwok.start(rehearsal, tools)
    _start_gke(rehearsal, tools)


def _start_gke(rehearsal: Rehearsal, tools: Tools) -> None:
    trust(rehearsal)
    daemon.start(rehearsal)
    controllers.resume(rehearsal, tools)


def resume(rehearsal: Rehearsal, tools: Tools) -> None:
    """Start all replicas. Delete one whose cluster was never created because of an interruption.

    The control plane is watched: without it, the daemon would wait for minutes.
    """
    for replica in rehearsal.replicas:
        if not _has_cluster(replica):
            delete(replica)
            continue
        kwok.start(replica, tools)
        with watched(partial(kwok.processes, replica), rehearsal.command("up")):
            _start_gke(replica, tools)


def delete(rehearsal: Rehearsal) -> None:
    """Stop a replica and remove its files."""
    controllers.stop(rehearsal)
    daemon.stop(rehearsal)
    kwok.delete(rehearsal)
    files.remove(rehearsal.replica_dir)


def processes(rehearsal: Rehearsal) -> Iterator[Process]:
    """Yield the processes of all replicas with a cluster, whether or not they run."""
    for replica in filter(_has_cluster, rehearsal.replicas):
        parts = (*kwok.processes(replica), daemon.process(replica), *controllers.processes(replica))
        for process in parts:
            if replica.cluster:
                process = replace(process, name=f"{process.name} of {replica.cluster}")
            yield process


def _has_cluster(rehearsal: Rehearsal) -> bool:
    """Return whether the cluster of a replica exists. The first replica needs none."""
    return not rehearsal.cluster or bool(Store(rehearsal).clusters())


def within(rehearsal: Rehearsal, name: str) -> str:
    """Return a name with its cluster in front of it, if the rehearsal has several clusters."""
    if len(rehearsal.replicas) == 1:
        return name
    cluster_id = next(iter(Store(rehearsal).clusters()), "")
    return "/".join([*cluster_id.split("/")[3::2], name])


def trust(rehearsal: Rehearsal) -> None:
    """Let clients trust the replicas, as they trust the public certificate of a DNS endpoint."""
    path = os.environ.get("SSL_CERT_FILE", "") or ssl.get_default_verify_paths().cafile
    bundle = Path(path).read_text() if path and Path(path).is_file() else ""
    for replica in rehearsal.replicas:
        ca = files.read_text(configuration.cluster_folder(replica) / "pki" / "ca.crt")
        if ca not in bundle:
            bundle += ca
    files.write(rehearsal.ca_bundle, bundle)
