"""What a program configures the kubernetes provider with."""

import os
from collections.abc import Mapping
from functools import cached_property

from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.rehearsal.access import Access, server_of
from ml_foundations.rehearsal.api import Api
from ml_foundations.rehearsal.files import read_json
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.plugins.kubernetes.client import Client
from ml_foundations.rehearsal.plugins.provider import CheckError, Diff
from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.protocol.values import Properties

_MUTABLE: Mapping[str, tuple[str, str]] = {
    "ConfigMap": ("enableConfigMapMutable", "PULUMI_K8S_ENABLE_CONFIGMAP_MUTABLE"),
    "Secret": ("enableSecretMutable", "PULUMI_K8S_ENABLE_SECRET_MUTABLE"),
}
"""What makes a kind mutable: an input of the provider or, if that is not given, an environment variable."""
_WAYS = ("kubeconfig", "context", "cluster")
"""The inputs that lead to a cluster."""


class Settings:
    """The inputs of a provider. The cluster is asked only when it is needed."""

    def __init__(self, config: Properties) -> None:
        self._config = config
        self.namespace = str(config.get("namespace") or "default")
        """The namespace of objects whose inputs name none."""
        self.mutable_kinds = [kind for kind, option in _MUTABLE.items() if self._option(*option)]
        """The kinds whose content changes in place."""
        self.forces = self._option("enablePatchForce", "PULUMI_K8S_ENABLE_PATCH_FORCE")
        """Whether updates take fields from other managers."""
        self.upserts = self._option("upsertExistingObjects", "PULUMI_K8S_UPSERT_EXISTING_OBJECTS")
        """Whether a create takes over an object that exists."""
        self.applies_server_side = self._option(
            "enableServerSideApply", "PULUMI_K8S_ENABLE_SERVER_SIDE_APPLY", "true"
        )
        """Whether the user wants server-side apply, which is the default."""
        # Of the environment only what a rehearsal sets itself: never the user's own ~/.kube/config.
        ambient = os.environ.get("KUBECONFIG", "").partition(os.pathsep)[0]
        self._way = {"kubeconfig": ambient} | {
            key: str(config[key]) for key in _WAYS if config.get(key)
        }

    @cached_property
    def replica(self) -> Rehearsal:
        """The replica of the cluster that the program names; of one that is not the program's, the first."""
        first = Rehearsal.of_this_process()
        return Rehearsal(
            first.stack, first.root, read_json(first.servers, {}).get(_server(self._way), "")
        )

    @cached_property
    def access(self) -> Access:
        """The cluster: in a rehearsal its replica."""
        if not self._way["kubeconfig"]:
            raise RehearsalError(
                "the kubernetes provider has no kubeconfig. Give the resource a provider of your cluster"
            )
        ours = self.replica.kubeconfig
        if self.replica.cluster and not ours.exists():
            raise RehearsalError(
                f"the cluster {self.replica.cluster} cannot be reached: it was deleted"
            )
        # Its address may be that of an earlier start.
        is_same = _server(self._way) == server_of(str(ours))
        return (
            Access(self._way["kubeconfig"], self._way.get("context", ""))
            if is_same
            else Access(ours)
        )

    @cached_property
    def client(self) -> Client:
        """Requests to the cluster."""
        return Client(Api(self.access))

    def _option(self, key: str, variable: str, default: str = "false") -> bool:
        """The value of an input of the provider or, if it is not given, of an environment variable."""
        return str(self._config.get(key, os.environ.get(variable, default))).lower() == "true"


def check(config: Properties) -> None:
    """Raise a CheckError for settings that would be ignored, and for what strict mode prohibits."""
    if ignored := [
        key for key in ("helmReleaseSettings", "renderYamlToDirectory") if config.get(key)
    ]:
        raise CheckError([(key, "is not supported in a rehearsal") for key in ignored])
    if os.environ.get("PULUMI_K8S_AWAIT_ALL") == "true":
        raise CheckError([("", "PULUMI_K8S_AWAIT_ALL is not supported in a rehearsal: unset it")])
    # Of a stack's configuration only the default provider gets inputs.
    if config.get("strictMode") == "true":
        raise CheckError(
            [("", "strict mode prohibits the default provider: give each resource one of its own")]
        )


def diff(old: Properties, new: Properties) -> Diff:
    """Another cluster replaces the provider and all it made; another way to the same cluster does not.

    DiffConfig of pulumi-kubernetes, provider/pkg/provider/provider.go.
    """
    changed = [
        key for key in sorted({*old, *new}) if key != "version" and old.get(key) != new.get(key)
    ]
    given = [identity for config in (old, new) if (identity := config.get("clusterIdentifier"))]
    if len(given) == 2:
        return Diff(changed, ["clusterIdentifier"] if given[0] != given[1] else [])
    if unknown := [key for key in _WAYS if new.get(key) is UNKNOWN]:
        return Diff(changed, unknown)
    before, after = _server(old), _server(new)
    moved = bool(before and after) and before != after
    return Diff(changed, [key for key in _WAYS if moved and key in changed])


def _server(config: Properties) -> str:
    """Where the API server of a kubeconfig is; empty if that cannot be read."""
    try:
        return server_of(str(config.get("kubeconfig", "")), str(config.get("context", "")))
    except RehearsalError:
        return ""
