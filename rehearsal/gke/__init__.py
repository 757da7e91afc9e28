"""Simulated GKE, one process per rehearsal: node pools become nodes of the replica, and the pools scale."""

from __future__ import annotations

from typing import Any

from ml_foundations import labels
from ml_foundations.planning.filters import pod_requests

from rehearsal.gke import operator
from rehearsal.gke.api import Api, Object
from rehearsal.gke.autoscaler import is_busy
from rehearsal.gke.life import process, start, stop
from rehearsal.gke.nodes import is_left_to_operator
from rehearsal.gke.store import Store
from rehearsal.layout import Rehearsal

__all__ = ["history", "pools", "pools_without_operator", "process", "recorded", "start", "stop"]


def pools(rehearsal: Rehearsal) -> list[dict[str, Any]]:
    """The node pools as they are now, with their nodes and GPUs."""
    declared = Store(rehearsal).pools()
    if not declared:
        return []
    api = Api(rehearsal.kubeconfig)
    nodes = api.get("/api/v1/nodes", labelSelector=labels.GKE_NODE_POOL)["items"]
    used: dict[str, int] = {}
    for pod in filter(is_busy, api.get("/api/v1/pods")["items"]):
        gpus = int(pod_requests(pod).get(labels.GPU_RESOURCE, 0))
        used[pod["spec"]["nodeName"]] = used.get(pod["spec"]["nodeName"], 0) + gpus
    return [
        {
            "name": pool.name,
            "machine_type": pool.machine_type,
            "nodes": len(mine),
            "min_nodes": pool.min_nodes,
            "max_nodes": pool.max_nodes,
            "gpus": sum(map(_gpus, mine)),
            "gpus_in_use": sum(used.get(node["metadata"]["name"], 0) for node in mine),
        }
        for pool in declared.values()
        for mine in [[n for n in nodes if n["metadata"]["labels"][labels.GKE_NODE_POOL] == pool.name]]
    ]


def pools_without_operator(rehearsal: Rehearsal) -> list[str]:
    """The node pools that have no GPUs because they leave them to the GPU Operator, and it is not installed."""
    left = [name for name, pool in Store(rehearsal).pools().items() if is_left_to_operator(pool)]
    if not left:
        return []
    secrets = Api(rehearsal.kubeconfig).get("/api/v1/secrets", labelSelector=operator.HELM_SECRETS)["items"]
    return [] if operator.find(rehearsal, map(operator.read_release, secrets)) else left


def history(rehearsal: Rehearsal) -> list[dict[str, Any]]:
    """Where finished pods ran: namespace, pod, owner_kind, owner_name, node, pool and phase of each."""
    return Store(rehearsal).history()


def recorded(rehearsal: Rehearsal) -> list[dict[str, str]]:
    """The Google Cloud resources that the rehearsal only recorded: type and name of each."""
    return [{"type": entry["type"], "name": entry["name"]} for entry in Store(rehearsal).recorded()]


def _gpus(node: Object) -> int:
    return int(node["status"].get("capacity", {}).get(labels.GPU_RESOURCE, 0))
