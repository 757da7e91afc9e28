"""The replica that tests share."""

from dataclasses import dataclass
from pathlib import Path

from kubernetes import client
from ml_foundations.rehearsal.layout import Rehearsal


@dataclass(frozen=True)
class Cluster:
    """A bare replica: a control plane without node pools."""

    rehearsal: Rehearsal
    kubeconfig: Path
    api: client.ApiClient
