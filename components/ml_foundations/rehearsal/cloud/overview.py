"""What the simulated Google Cloud has: for the report."""

from __future__ import annotations

from typing import Any

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.quantities import WHOLE
from ml_foundations.planning.model.resources import pod_requests
from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import Api, Object
from ml_foundations.rehearsal.cloud import operator
from ml_foundations.rehearsal.cloud.autoscaler import is_busy
from ml_foundations.rehearsal.cloud.nodes import is_simulated
from ml_foundations.rehearsal.cloud.store import Store
from ml_foundations.rehearsal.layout import Rehearsal


def pools(rehearsal: Rehearsal) -> list[dict[str, Any]]:
    """The node pools as they are now, with their nodes and GPUs; copied nodes of no pool by their machine type."""
    declared = Store(rehearsal).pools()
    api = Api(Access(rehearsal.kubeconfig))
    nodes: dict[tuple[str, bool], list[Object]] = {(name, True): [] for name in declared}
    for node in api.get("/api/v1/nodes")["items"]:
        # A pool of one's own cluster may have the name of one that is declared, and has its own place.
        key = _pool_name(node["metadata"].get("labels") or {}), is_simulated(node)
        nodes.setdefault(key, []).append(node)
    used: dict[str, int] = {}
    for pod in filter(is_busy, api.get("/api/v1/pods")["items"]):
        gpus = pod_requests(pod["spec"]).get(labels.GPU_RESOURCE, 0) // WHOLE
        used[pod["spec"]["nodeName"]] = used.get(pod["spec"]["nodeName"], 0) + gpus
    return [
        {
            "name": name,
            "machine_type": pool.machine_type if pool else _machine_type(mine[0]),
            "nodes": len(mine),
            "min_nodes": pool.min_nodes if pool else len(mine),
            "max_nodes": pool.max_nodes if pool else len(mine),
            "gpus": sum(map(_gpus, mine)),
            "gpus_in_use": sum(used.get(node["metadata"]["name"], 0) for node in mine),
        }
        for (name, simulated), mine in nodes.items()
        for pool in [declared.get(name) if simulated else None]
    ]


def _machine_type(node: Object) -> str:
    return (node["metadata"].get("labels") or {}).get(labels.INSTANCE_TYPE, "")


def _pool_name(node_labels: dict[str, str]) -> str:
    """The pool of a node; of a node that has none, its machine type."""
    return node_labels.get(labels.GKE_NODE_POOL) or node_labels.get(labels.INSTANCE_TYPE) or "other"


def pools_without_operator(rehearsal: Rehearsal) -> list[str]:
    """The node pools that have no GPUs because they leave them to the GPU Operator, and it is not installed."""
    left = [name for name, pool in Store(rehearsal).pools().items() if pool.is_left_to_operator]
    if not left:
        return []
    secrets = Api(Access(rehearsal.kubeconfig)).get("/api/v1/secrets", labelSelector=operator.HELM_SECRETS)["items"]
    return [] if operator.find(rehearsal, map(operator.read_release, secrets)) else left


def history(rehearsal: Rehearsal) -> list[dict[str, Any]]:
    """Where finished pods ran: namespace, pod, owner_kind, owner_name, node, pool and phase of each."""
    return Store(rehearsal).history()


def recorded(rehearsal: Rehearsal) -> list[dict[str, str]]:
    """The Google Cloud resources that the rehearsal only recorded: type and name of each."""
    return [{"type": entry["type"], "name": entry["name"]} for entry in Store(rehearsal).recorded()]


def _gpus(node: Object) -> int:
    return int(node["status"].get("capacity", {}).get(labels.GPU_RESOURCE, 0))
