"""The configuration of the kubernetes provider."""

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
"""The input that makes a kind mutable, and the environment variable if it is not set."""
_CLUSTER_INPUTS = ("kubeconfig", "context", "cluster")
"""The inputs that select a cluster."""


class Settings:
    """The inputs of a provider, and the client of its cluster, made when first needed."""

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
        apply = ("enableServerSideApply", "PULUMI_K8S_ENABLE_SERVER_SIDE_APPLY", "true")
        self.applies_server_side = self._option(*apply)
        """Whether the user wants server-side apply, which is the default."""
        # KUBECONFIG is what the rehearsal sets. The user's own ~/.kube/config is never read.
        default = os.environ.get("KUBECONFIG", "").partition(os.pathsep)[0]
        selected = {key: str(config[key]) for key in _CLUSTER_INPUTS if config.get(key)}
        self._cluster = {"kubeconfig": default} | selected

    @cached_property
    def replica(self) -> Rehearsal:
        """The replica of the cluster that the program names, or the first replica."""
        first = Rehearsal.of_this_process()
        clusters = read_json(first.servers, {})
        return Rehearsal(first.stack, first.root, clusters.get(_server(self._cluster), ""))

    @cached_property
    def access(self) -> Access:
        """The access to the replica of the cluster."""
        if not self._cluster["kubeconfig"]:
            fix = "Set the resource's provider to one of your cluster"
            raise RehearsalError(f"the kubernetes provider has no kubeconfig. {fix}")
        kubeconfig = self.replica.kubeconfig
        cluster = self.replica.cluster
        if cluster and not kubeconfig.exists():
            raise RehearsalError(f"the cluster {cluster} cannot be reached: it was deleted")
        # The program's kubeconfig may have the replica's address at an earlier start.
        if _server(self._cluster) == server_of(str(kubeconfig)):
            return Access(self._cluster["kubeconfig"], self._cluster.get("context", ""))
        return Access(kubeconfig)

    @cached_property
    def client(self) -> Client:
        """The client of the cluster."""
        return Client(Api(self.access))

    def _option(self, key: str, variable: str, default: str = "false") -> bool:
        """Return the value of an input or, if it is not set, of an environment variable."""
        return str(self._config.get(key, os.environ.get(variable, default))).lower() == "true"


def check(config: Properties) -> None:
    """Raise a CheckError for settings that a rehearsal or strict mode does not allow."""
    unsupported = ("helmReleaseSettings", "renderYamlToDirectory")
    if ignored := [key for key in unsupported if config.get(key)]:
        raise CheckError(*((key, "is not supported in a rehearsal") for key in ignored))
    if os.environ.get("PULUMI_K8S_AWAIT_ALL") == "true":
        raise CheckError(("", "PULUMI_K8S_AWAIT_ALL is not supported in a rehearsal: unset it"))
    # The stack's configuration is an input of the default provider only.
    if config.get("strictMode") == "true":
        fix = "set the provider of each resource"
        raise CheckError(("", f"strict mode prohibits the default provider: {fix}"))


def diff(old: Properties, new: Properties) -> Diff:
    """Return the changes of a provider; another cluster replaces it with its objects."""
    # The order is that of DiffConfig of pulumi-kubernetes, provider/pkg/provider/provider.go.
    keys = sorted({*old, *new} - {"version"})
    changed = [key for key in keys if old.get(key) != new.get(key)]
    before = old.get("clusterIdentifier")
    after = new.get("clusterIdentifier")
    if before and after:
        return Diff(changed, ["clusterIdentifier"] if before != after else [])
    if unknown := [key for key in _CLUSTER_INPUTS if new.get(key) is UNKNOWN]:
        return Diff(changed, unknown)
    before = _server(old)
    after = _server(new)
    if not before or not after or before == after:
        return Diff(changed)
    return Diff(changed, [key for key in _CLUSTER_INPUTS if key in changed])


def _server(config: Properties) -> str:
    """Return the address of the API server in a kubeconfig; empty if it cannot be read."""
    try:
        return server_of(str(config.get("kubeconfig", "")), str(config.get("context", "")))
    except RehearsalError:
        return ""
