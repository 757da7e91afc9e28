"""The Node objects of a pool, as GKE would make them."""

import hashlib
import secrets
import string
import uuid
from collections.abc import Mapping
from typing import Any

from ml_foundations.catalog import node_resources
from ml_foundations.catalog.machine_types import MachineType
from ml_foundations.catalog.nodes import advertised_gpus, node_labels, node_taints
from ml_foundations.catalog.operator_nodes import Operator
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import annotations_of, api_object, items, labels_of, section
from ml_foundations.kubernetes.quantities import parse_quantity
from ml_foundations.rehearsal.cloud.store import Pool

KUBERNETES_VERSION = "v1.36.3-gke.1000000"
KWOK_NODE = {"kwok.x-k8s.io/node": "fake"}
"""The annotation with which kwok takes a node over."""

_LAST_LABELS = "node.gke.io/last-applied-node-labels"
_LAST_TAINTS = "node.gke.io/last-applied-node-taints"
"""Annotations in which GKE keeps what a pool declared, so that a later update can take it back."""

_OPERATOR_LABELS = (
    "nvidia.com/gpu.",
    "nvidia.com/cuda.",
    "nvidia.com/gfd.",
    "nvidia.com/mig.",
    "nvidia.com/mps.",
)
"""Prefixes of the labels that the operator and GPU Feature Discovery own."""


def is_simulated(node: Mapping[str, Any]) -> bool:
    """Whether a node was made here for a pool. Copies of a cluster's own nodes come without annotations of GKE's."""
    return _LAST_LABELS in annotations_of(node)


def node_template(pool: Pool, zone: str, operator: Operator | None) -> dict[str, Any]:
    """A node of a pool in a zone, before it has a name."""
    taints = node_taints(pool)
    annotations = {
        **KWOK_NODE,
        _LAST_LABELS: ",".join(f"{key}={value}" for key, value in sorted(pool.labels.items())),
        _LAST_TAINTS: ",".join(f"{t['key']}={t.get('value', '')}:{t['effect']}" for t in taints),
    }
    metadata = {"labels": node_labels(pool, zone, operator), "annotations": annotations}
    status = _resources(pool, pool.machine, advertised_gpus(pool, operator))
    return api_object("v1", "Node", metadata, spec={"taints": taints}, status=status)


def new_node(pool: Pool, zone: str, operator: Operator | None, request: str = "") -> dict[str, Any]:
    """A node of a pool in a zone, perhaps for a ProvisioningRequest.

    Its name is as GKE forms it: gke-<cluster>-<pool>-<instance group>-<4 random characters>.
    """
    node = node_template(pool, zone, operator)
    group = hashlib.sha256(f"{pool.cluster}/{pool.name}/{zone}".encode()).hexdigest()[:8]
    suffix = "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(4))
    name = f"gke-{pool.cluster[:16].rstrip('-')}-{pool.name[:16].rstrip('-')}-{group}-{suffix}"
    node["metadata"] |= {"name": name}
    node["metadata"]["labels"] |= {labels.HOSTNAME: name} | (
        {labels.GKE_REQUEST: request} if request else {}
    )
    node["spec"] |= {"providerID": f"gce://{pool.project or 'rehearsal'}/{zone}/{name}"}
    identity = uuid.uuid4().hex
    node["status"] |= {
        "nodeInfo": {
            "architecture": pool.machine.arch,
            "bootID": str(uuid.uuid4()),
            "containerRuntimeVersion": "containerd://2.1.4",
            "kernelVersion": "6.12.30+",
            **dict.fromkeys(("kubeProxyVersion", "kubeletVersion"), KUBERNETES_VERSION),
            **dict.fromkeys(("machineID", "systemUUID"), identity),
            "operatingSystem": "linux",
            "osImage": "Ubuntu"
            if pool.image_os == "ubuntu"
            else "Container-Optimized OS from Google",
        }
    }
    return node


def _resources(pool: Pool, machine: MachineType, gpus: int) -> dict[str, Any]:
    whole = node_resources.capacity(machine)
    free = node_resources.allocatable(machine, pool.max_pods, sum(pool.hugepages.values()))
    disk, disk_free = node_resources.ephemeral_storage_gib(
        pool.boot_disk_gib, pool.ephemeral_local_ssds
    )
    parts = {
        "capacity": (str(machine.vcpus), whole, disk),
        "allocatable": (f"{free.cpu_millis}m", free, disk_free),
    }
    both = {"pods": str(pool.max_pods)} | {name: f"{kib}Ki" for name, kib in pool.hugepages.items()}
    both |= {labels.GPU_RESOURCE: str(gpus)} if gpus else {}
    return {
        part: {
            "cpu": cpu,
            "memory": f"{of.memory_kib}Ki",
            "ephemeral-storage": str(int(gib * node_resources.GIB)),
        }
        | both
        for part, (cpu, of, gib) in parts.items()
    }


def changes(
    node: Mapping[str, Any], wanted: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The merge patches of a node and of its status that bring it to what its pool wants; empty if none."""
    have, want = labels_of(node), wanted["metadata"]["labels"]
    applied = {
        entry.partition("=")[0] for entry in annotations_of(node).get(_LAST_LABELS, "").split(",")
    }
    owned = {key for key in have if key in applied or key.startswith(_OPERATOR_LABELS)}
    label_patch = dict.fromkeys(owned - want.keys()) | _others(want, have)
    annotations = _others(wanted["metadata"]["annotations"], annotations_of(node))
    patch: dict[str, Any] = {}
    if label_patch or annotations:
        patch["metadata"] = {"labels": label_patch, "annotations": annotations}
    if _LAST_TAINTS in annotations:
        # Taints of the node's own life (not ready, cordoned) stay as they are.
        life = [
            t for t in items(node["spec"], "taints") if t["key"].startswith("node.kubernetes.io/")
        ]
        patch["spec"] = {"taints": [*life, *wanted["spec"]["taints"]]}
    status: dict[str, Any] = {}
    for part in ("capacity", "allocatable"):
        current, amounts = section(node, "status", part), wanted["status"][part]
        # Merge patches keep what they do not name: a resource that went away must be named.
        gone = [key for key in current.keys() - amounts.keys() if key.startswith("nvidia.com/")]
        other = [
            k
            for k, v in amounts.items()
            if k not in current or parse_quantity(current[k]) != parse_quantity(v)
        ]
        if difference := dict.fromkeys(gone) | {key: amounts[key] for key in other}:
            status[part] = difference
    return patch, status


def _others(wanted: Mapping[str, Any], there: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in wanted.items() if there.get(key) != value}
