"""A cluster that is there already: the program makes neither it nor its node pools, and everything above them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pulumi_kubernetes as k8s
from ml_foundations.component.spec import Spec
from ml_foundations.component.types import Name
from pydantic import Field


class ExistingClusterSettings(Spec):
    """What a stack file says about a cluster that is there already."""

    name: Name = Field(description="The cluster's name in Pulumi: another name is another cluster.")
    kubeconfig: str | None = Field(
        default=None, description="The file that says how to reach it; by default KUBECONFIG or ~/.kube/config."
    )
    context: str | None = Field(default=None, description="The context in that file; by default its current one.")


def is_existing(given: Any) -> bool:
    """Whether a cluster section means a cluster that is there already."""
    return isinstance(given, ExistingClusterSettings) or (
        isinstance(given, dict) and bool(given.keys() & {"kubeconfig", "context"})
    )


def provider(cluster: ExistingClusterSettings) -> k8s.Provider:
    """The kubernetes provider of the cluster. Another kubeconfig of the same cluster replaces nothing."""
    return k8s.Provider(
        f"{cluster.name}-kubernetes",
        kubeconfig=str(Path(cluster.kubeconfig).expanduser()) if cluster.kubeconfig else None,
        context=cluster.context,
        cluster_identifier=cluster.name,
    )
