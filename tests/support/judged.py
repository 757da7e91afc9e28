"""What a replica's API server says to manifests, none of which it keeps."""

from collections.abc import Iterable
from typing import Any

from ml_foundations.rehearsal.api import Api, ApiError
from ml_foundations.rehearsal.cloud.addons import Addons
from ml_foundations.rehearsal.plugins.kubernetes.client import Client, UnknownKindError

from tests.factories import cluster_wide

Manifest = dict[str, Any]

BROUGHT = {
    *("AdmissionCheck", "ClusterQueue", "JobSet", "LeaderWorkerSet", "LocalQueue", "Topology"),
    *("ProvisioningRequestConfig", "RayCluster", "RayJob", "TrainJob", "TrainingRuntime"),
    *("ResourceFlavor", "ServiceMonitor"),
}
"""Kinds of Kueue, JobSet and LeaderWorkerSet, whose webhooks judge them in other tests, and of the Prometheus Operator."""


def prepared(api: Api) -> Client:
    """A client of a replica that has what GKE brings, and a RuntimeClass of our examples."""
    Addons(api).reconcile()
    gvisor = cluster_wide("node.k8s.io/v1", "RuntimeClass", "gvisor", handler="gvisor")
    api.ensure("/apis/node.k8s.io/v1/runtimeclasses", gvisor)
    return Client(api)


def refusals(client: Client, manifests: Iterable[Manifest]) -> list[str]:
    """For each manifest the words in which the API server refuses it; nothing for one that it takes."""
    manifests = list(manifests)
    heads = [{"name": manifest["metadata"].get("namespace")} for manifest in manifests]
    for head in [head for index, head in enumerate(heads) if head not in heads[:index]]:
        if head["name"]:
            _refusal(client, {"apiVersion": "v1", "kind": "Namespace", "metadata": head}, False)
    # A Pod is stored only if its account is there.
    for manifest in manifests:
        account = manifest["kind"] == "Pod" and manifest["spec"].get("serviceAccountName")
        if account:
            head = {"name": account, "namespace": manifest["metadata"].get("namespace", "default")}
            made = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": head}
            _refusal(client, made, False)
    return [_refusal(client, manifest) for manifest in manifests]


def _refusal(client: Client, manifest: Manifest, dry_run: bool = True) -> str:
    try:
        client.apply(manifest, "tests", dry_run=dry_run, force=True)
    except UnknownKindError as error:
        return "" if manifest["kind"] in BROUGHT else str(error)
    except ApiError as error:
        return f"{manifest['kind']} {error}"
    return ""
