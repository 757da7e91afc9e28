"""The replica of a cluster: its control plane, its GKE and the controllers of its charts."""

import os
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ml_foundations.rehearsal import files
from ml_foundations.rehearsal.cloud import daemon
from ml_foundations.rehearsal.cloud.store import Store
from ml_foundations.rehearsal.control_plane import configuration, controllers, kwok
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.processes import Process
from ml_foundations.rehearsal.tools.toolchain import Tools


def start(rehearsal: Rehearsal, tools: Tools) -> None:
    """Bring a replica up, whatever state it is in."""
    kwok.start(rehearsal, tools)
    trust(rehearsal)
    daemon.start(rehearsal)
    controllers.resume(rehearsal, tools)


def resume(rehearsal: Rehearsal, tools: Tools) -> None:
    """Bring all replicas of a rehearsal up; one that was left before its cluster was made goes."""
    for replica in rehearsal.replicas:
        if replica.cluster and not Store(replica).clusters():
            delete(replica)
        else:
            start(replica, tools)


def delete(rehearsal: Rehearsal) -> None:
    """End a replica and remove all that is its own."""
    controllers.stop(rehearsal)
    daemon.stop(rehearsal)
    kwok.delete(rehearsal)
    files.remove(rehearsal.replica_dir)


def processes(rehearsal: Rehearsal) -> Iterator[Process]:
    """The processes of all replicas whose clusters are there, whether or not they run."""
    for replica in rehearsal.replicas:
        if not replica.cluster or Store(replica).clusters():
            own = [
                *kwok.processes(replica),
                daemon.process(replica),
                *controllers.processes(replica),
            ]
            yield from (
                replace(each, name=" of ".join(filter(None, (each.name, replica.cluster))))
                for each in own
            )


def within(rehearsal: Rehearsal, name: str) -> str:
    """A name in a replica as a report has it: behind its cluster, where the program has several."""
    if len(rehearsal.replicas) == 1:
        return name
    return "/".join([*next(iter(Store(rehearsal).clusters()), "").split("/")[3::2], name])


def trust(rehearsal: Rehearsal) -> None:
    """Let clients trust the replicas as they trust the public certificate of a real cluster's DNS endpoint."""
    known = os.environ.get("SSL_CERT_FILE", "") or ssl.get_default_verify_paths().cafile
    public = Path(known).read_text() if known and Path(known).is_file() else ""
    own = (
        files.read_text(configuration.cluster_folder(each) / "pki" / "ca.crt")
        for each in rehearsal.replicas
    )
    files.write(rehearsal.ca_bundle, public + "".join(text for text in own if text not in public))
