"""A control plane of the replica's own binaries, set up so that many small cases settle fast.

Every decision is made by the same code with the same defaults: flags only take out controllers that no case meets, and
waits: etcd's for the disk, the scheduler's back-off, and the volume controller's 15 seconds between two looks.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml
from ml_foundations.rehearsal.control_plane import configuration, kwok
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.tools import toolchain
from ml_foundations.rehearsal.tools.toolchain import Tools

UNUSED = (
    "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-cleaner-controller",
    "certificatesigningrequest-signing-controller",
    "clusterrole-aggregation-controller",
    "horizontal-pod-autoscaler-controller",
    "persistentvolume-attach-detach-controller",
    "token-cleaner-controller",
    "ttl-controller",
)
"""Controllers that decide nothing about where pods go, and watch every node or pod."""
SCHEDULER = {"podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 1}


@contextmanager
def running(folder: Path) -> Iterator[Rehearsal]:
    """A new control plane for as long as the context lasts."""
    # Memory is cheaper here than the garbage collectors' time; kwokctl hands its environment on.
    os.environ.setdefault("GOGC", "400")
    rehearsal = Rehearsal.of("bare", folder)
    rehearsal.make()
    kwok.delete(rehearsal)
    try:
        kwok.start(rehearsal, _tuned(rehearsal, toolchain.ensure()))
        yield rehearsal
    finally:
        kwok.delete(rehearsal)


def _tuned(rehearsal: Rehearsal, tools: Tools) -> Tools:
    """The tools with a few flags more."""
    folder = rehearsal.root / "tuned"
    folder.mkdir(exist_ok=True)
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {
            "kubeconfig": str(configuration.cluster_folder(rehearsal) / "kubeconfig.yaml"),
            "qps": 5000,
            "burst": 10000,
        },
        "leaderElection": {"leaderElect": False},
        **SCHEDULER,
    }
    (folder / "scheduler.yaml").write_text(yaml.safe_dump(config))
    controllers = ",".join(["*", *(f"-{name}" for name in UNUSED)])
    flags = {
        "etcd": ["--unsafe-no-fsync=true"],
        # Most cases are no GKE cluster, and lack its quota of critical pods.
        "kube_apiserver": ["--admission-control-config-file="],
        "kube_controller_manager": [
            f"--controllers={controllers}",
            "--pvclaimbinder-sync-period=1s",
        ],
        "kube_scheduler": [f"--config={folder / 'scheduler.yaml'}"],
    }
    wrapped = {
        tool: _wrapper(folder / tool, getattr(tools, tool), more) for tool, more in flags.items()
    }
    return dataclasses.replace(tools, **wrapped)


def _wrapper(script: Path, tool: Path, flags: list[str]) -> Path:
    """A script that runs a tool, under the name that it was called by, with some flags more."""
    script.write_text(
        f'#!/bin/bash\nexec -a "$0" {shlex.quote(str(tool))} "$@" {shlex.join(flags)}\n'
    )
    script.chmod(0o700)
    return script
