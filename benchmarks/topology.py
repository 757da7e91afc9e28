"""Nodes in blocks and sub-blocks, and gangs in a queue that ask for them."""

from typing import Any

from ml_foundations.catalog.kueue import API_VERSION
from ml_foundations.kubernetes import labels

Manifest = dict[str, Any]
BLOCK, SUB_BLOCK, HOST = labels.GKE_TOPOLOGY
LEVELS = (*labels.GKE_TOPOLOGY, labels.HOSTNAME)
REQUESTS = (("required", BLOCK), ("preferred", SUB_BLOCK), ("unconstrained", "true"))
SIZES = (2, 4, 8, 16, 3, 100, 140)
"""The last is larger than a block."""


def documents(nodes: int, gangs: int) -> list[Manifest]:
    """A number of nodes in blocks of 128, each with its host, and a number of gangs."""
    return [*map(_node, range(nodes)), *_queue(), *map(_gang, range(gangs))]


def _node(index: int) -> Manifest:
    name, allocatable = f"n{index:04}", {"cpu": "200", "pods": "110", labels.GPU_RESOURCE: "8"}
    domains = (f"b{index // 128}", f"s{index // 16}", f"h{index}", name)
    own = {"gpu": "h100", **dict(zip(LEVELS, domains, strict=True))}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": own},
        "status": {"allocatable": allocatable},
    }


def _queue() -> list[Manifest]:
    quotas = [{"name": labels.GPU_RESOURCE, "nominalQuota": 10_000}]
    flavors = [{"name": "h100", "resources": quotas}]
    groups = [{"coveredResources": [labels.GPU_RESOURCE], "flavors": flavors}]
    return [
        _kueue("Topology", "gke", {"levels": [{"nodeLabel": level} for level in LEVELS]}),
        _kueue("ResourceFlavor", "h100", {"nodeLabels": {"gpu": "h100"}, "topologyName": "gke"}),
        _kueue("ClusterQueue", "team", {"namespaceSelector": {}, "resourceGroups": groups}),
        _kueue("LocalQueue", "training", {"clusterQueue": "team"}, namespace="team"),
    ]


def _kueue(kind: str, name: str, spec: Manifest, **metadata: str) -> Manifest:
    named = {"name": name, **metadata}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": named, "spec": spec}


def _gang(index: int) -> Manifest:
    mode, level = REQUESTS[index % len(REQUESTS)]
    resources = {"limits": {labels.GPU_RESOURCE: "8"}}
    pods = {
        "metadata": {"annotations": {labels.KUEUE_TOPOLOGY[mode]: level}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "i", "resources": resources}],
        },
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"gang-{index}",
            "namespace": "team",
            "labels": {labels.KUEUE_QUEUE: "training"},
            "annotations": {labels.GANG: "true"},
        },
        "spec": {"parallelism": SIZES[index % len(SIZES)], "template": pods},
    }
