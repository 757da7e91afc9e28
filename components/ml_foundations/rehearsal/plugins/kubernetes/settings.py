"""What a program configures the kubernetes provider with."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from ml_foundations.rehearsal.access import Access, read_kubeconfig, server_of
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.plugins.provider import Diff
from ml_foundations.rehearsal.plugins.values import Properties, has_unknown
from ml_foundations.rehearsal.progress import RehearsalError

_MUTABLE: Mapping[str, tuple[str, str]] = {
    "ConfigMap": ("enableConfigMapMutable", "PULUMI_K8S_ENABLE_CONFIGMAP_MUTABLE"),
    "Secret": ("enableSecretMutable", "PULUMI_K8S_ENABLE_SECRET_MUTABLE"),
}
"""What makes a kind mutable: an input of the provider or, if that is not given, an environment variable."""


class Settings:
    """The inputs of a provider; the cluster is not asked before it is needed."""

    def __init__(self, config: Properties) -> None:
        self._config = config

    @property
    def namespace(self) -> str:
        """Where objects are whose inputs name no namespace."""
        return str(self._config.get("namespace") or "default")

    @property
    def mutable_kinds(self) -> list[str]:
        """The kinds whose content changes in place."""
        return [kind for kind, option in _MUTABLE.items() if self._option(*option, "false")]

    @property
    def applies_server_side(self) -> bool:
        """Whether the user wants server-side apply, which is the default."""
        return self._option("enableServerSideApply", "PULUMI_K8S_ENABLE_SERVER_SIDE_APPLY", "true")

    @cached_property
    def access(self) -> Access:
        """The cluster: whichever the program names, in a rehearsal the replica stands for it."""
        # Of the environment only what a rehearsal sets itself: never the user's own ~/.kube/config.
        kubeconfig = self._config.get("kubeconfig") or os.environ.get("KUBECONFIG")
        if not kubeconfig:
            raise RehearsalError(
                "the kubernetes provider has no kubeconfig. Give the resource a provider of your cluster"
            )
        context, replica = str(self._config.get("context", "")), Rehearsal.of_this_process().kubeconfig
        if replica.exists() and not _leads_to(str(replica), str(kubeconfig), context):
            return Access(str(replica))
        return Access(str(kubeconfig), context)

    def _option(self, key: str, variable: str, default: str) -> bool:
        """What an input of the provider says, or else an environment variable."""
        return str(self._config.get(key, os.environ.get(variable, default))).lower() == "true"


def diff(old: Properties, new: Properties) -> Diff:
    """Another cluster replaces the provider and all it made; another kubeconfig of the same cluster does not."""
    changed = [key for key in sorted({*old, *new}) if key != "version" and old.get(key) != new.get(key)]
    replaces = [key for key in changed if key == "clusterIdentifier"]
    known = not has_unknown(new.get("kubeconfig"))
    if "kubeconfig" in changed and known and not new.get("clusterIdentifier") and _servers(old) != _servers(new):
        replaces.append("kubeconfig")
    return Diff(changed, replaces)


def _leads_to(replica: str, kubeconfig: str, context: str) -> bool:
    """Whether a kubeconfig is of the replica; one that cannot be read is of some other cluster."""
    try:
        return server_of(kubeconfig, context) == server_of(replica)
    except RehearsalError:
        return False


def _servers(config: Properties) -> Any:
    """Where the clusters of a kubeconfig are; the kubeconfig itself if it cannot be read."""
    try:
        clusters = read_kubeconfig(str(config.get("kubeconfig", "")))["clusters"]
    except RehearsalError:
        return config.get("kubeconfig")
    return [entry["cluster"].get("server") for entry in clusters]
