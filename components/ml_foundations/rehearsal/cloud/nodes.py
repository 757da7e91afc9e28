"""The Node objects of a pool, as GKE creates them."""

import hashlib
import secrets
import string
import uuid
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from ml_foundations.catalog import node_resources
from ml_foundations.catalog.nodes import advertised_gpus, node_labels, node_taints
from ml_foundations.catalog.operator_nodes import Operator
from ml_foundations.catalog.topology import places
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import annotations_of, api_object, items, labels_of, section
from ml_foundations.kubernetes.quantities import parse_quantity
from ml_foundations.rehearsal.api import condition
from ml_foundations.rehearsal.cloud.store import Pool

KUBERNETES_VERSION = "v1.36.3-gke.1000000"
KWOK_NODE = {"kwok.x-k8s.io/node": "fake"}
"""kwok's annotation of the nodes that it simulates."""

DISRUPTED = "rehearsal.ml-foundations/disrupted"
"""The annotation of a node that is to fail or to be drained, and of the pods of a failed node. kwok
plays no kubelet for what has the value ``failure`` (control_plane/kwokctl.yaml)."""
DRAIN = "drain"
FAILURE = "failure"
REPLACE = "replace"
BLUE = "blue"
"""Values for nodes of an upgrade. A drained node gets its successor first, a replaced node when it
is gone. A blue node has its successor, and waits for its drain."""

_HOST = labels.TOPOLOGY_LEVELS["host"]
_LAST_LABELS = "node.gke.io/last-applied-node-labels"
_LAST_TAINTS = "node.gke.io/last-applied-node-taints"
"""Annotations in which GKE keeps what a pool declared, so that an update can remove it."""

_OPERATOR_LABELS = (
    *("nvidia.com/gpu.", "nvidia.com/cuda.", "nvidia.com/gfd.", "nvidia.com/mig."),
    "nvidia.com/mps.",
)
"""The prefixes of the labels that the operator and GPU Feature Discovery own."""


def is_simulated(node: Mapping[str, Any]) -> bool:
    """Return whether a node was created here for a pool, and not copied from the user's cluster."""
    return _LAST_LABELS in annotations_of(node)


def is_ready(node: dict[str, Any]) -> bool:
    """Return whether the kubelet of a node has reported that pods can run there."""
    return condition(node, "Ready").get("status") == "True"


def disruption_of(node: Mapping[str, Any]) -> str:
    """Return how ``disrupt`` takes a node away, or nothing."""
    return annotations_of(node).get(DISRUPTED, "")


def is_current(node: Mapping[str, Any], pool: Pool) -> bool:
    """Return whether a node has its pool's machine type and zone. Other nodes are replaced.

    A node that is to be drained is replaced as in an upgrade.
    """
    node_labels = labels_of(node)
    if disruption_of(node) in (DRAIN, REPLACE, BLUE):
        return False
    is_of_type = node_labels.get(labels.INSTANCE_TYPE) == pool.machine_type
    return is_of_type and node_labels.get(labels.ZONE) in pool.zones


def gpus_of(node: Mapping[str, Any], part: str = "capacity") -> int:
    """Return the number of GPUs in the capacity, or in another part, of a node's status."""
    return int(section(node, "status", part).get(labels.GPU_RESOURCE, 0))


def node_template(pool: Pool, zone: str, operator: Operator | None) -> dict[str, Any]:
    """Return a node of a pool in a zone, without a name."""
    taints = node_taints(pool)
    taint_texts = [f"{t['key']}={t.get('value', '')}:{t['effect']}" for t in taints]
    label_texts = [f"{key}={value}" for key, value in sorted(pool.labels.items())]
    last = {_LAST_LABELS: ",".join(label_texts), _LAST_TAINTS: ",".join(taint_texts)}
    metadata = {"labels": node_labels(pool, zone, operator), "annotations": KWOK_NODE | last}
    status = _resources(pool, advertised_gpus(pool, operator))
    return api_object("v1", "Node", metadata, spec={"taints": taints}, status=status)


def free_places(
    pool: Pool, zone: str, existing: Iterable[Mapping[str, Any]]
) -> Iterator[dict[str, str]]:
    """Yield the topology labels of places that no existing node has, the nearest first."""
    taken = {labels_of(node).get(_HOST) for node in existing} - {None}
    return filter(lambda place: place.get(_HOST) not in taken, places(pool, zone))


def new_node(
    pool: Pool,
    zone: str,
    operator: Operator | None,
    request: str = "",
    place: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return a new node of a pool in a zone. It may belong to a ProvisioningRequest.

    ``place`` are its topology labels.
    """
    # GKE's names are gke-<cluster>-<pool>-<instance group>-<4 random characters>.
    node = node_template(pool, zone, operator)
    group = hashlib.sha256(f"{pool.cluster}/{pool.name}/{zone}".encode()).hexdigest()[:8]
    suffix = "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(4))
    name = f"gke-{pool.cluster[:16].rstrip('-')}-{pool.name[:16].rstrip('-')}-{group}-{suffix}"
    node["metadata"]["name"] = name
    node["metadata"]["labels"] |= {labels.HOSTNAME: name, **(place or {})}
    if request:
        node["metadata"]["labels"][labels.GKE_REQUEST] = request
    if pool.max_run_seconds:
        end = datetime.now(UTC) + timedelta(seconds=pool.max_run_seconds)
        termination = end.strftime("%Y-%m-%dT%H:%M:%SZ")
        node["metadata"]["annotations"][labels.GKE_TERMINATION_TIME] = termination
    node["spec"]["providerID"] = f"gce://{pool.project or 'rehearsal'}/{zone}/{name}"
    is_ubuntu = pool.image_os == "ubuntu"
    node["status"]["nodeInfo"] = {
        "architecture": pool.machine.arch,
        "bootID": str(uuid.uuid4()),
        "containerRuntimeVersion": "containerd://2.1.4",
        "kernelVersion": "6.12.30+",
        **dict.fromkeys(("kubeProxyVersion", "kubeletVersion"), KUBERNETES_VERSION),
        **dict.fromkeys(("machineID", "systemUUID"), uuid.uuid4().hex),
        "operatingSystem": "linux",
        "osImage": "Ubuntu" if is_ubuntu else "Container-Optimized OS from Google",
    }
    return node


def _resources(pool: Pool, gpus: int) -> dict[str, Any]:
    """Return capacity and allocatable of a node."""
    machine = pool.machine
    capacity = node_resources.capacity(machine)
    allocatable = node_resources.allocatable(machine, pool.max_pods, sum(pool.hugepages.values()))
    disks = node_resources.ephemeral_storage_gib(pool.boot_disk_gib, pool.ephemeral_local_ssds)
    disk, allocatable_disk = (str(int(gib * node_resources.GIB)) for gib in disks)
    both = {"pods": str(pool.max_pods)}
    for name, kib in pool.hugepages.items():
        both[name] = f"{kib}Ki"
    if gpus:
        both[labels.GPU_RESOURCE] = str(gpus)
    both |= dict.fromkeys(pool.networks, "1")
    total = {"cpu": str(machine.vcpus), "memory": f"{capacity.memory_kib}Ki"}
    usable = {"cpu": f"{allocatable.cpu_millis}m", "memory": f"{allocatable.memory_kib}Ki"}
    return {
        "capacity": total | {"ephemeral-storage": disk} | both,
        "allocatable": usable | {"ephemeral-storage": allocatable_disk} | both,
    }


class NodeChanges(NamedTuple):
    """The merge patches of a node and of its status; empty if there is nothing to change."""

    node: dict[str, Any]
    status: dict[str, Any]


def changes(node: Mapping[str, Any], template: Mapping[str, Any]) -> NodeChanges:
    """Return the changes of a node that its pool requires."""
    current = labels_of(node)
    declared_labels = template["metadata"]["labels"]
    last_labels = annotations_of(node).get(_LAST_LABELS, "").split(",")
    declared = {entry.partition("=")[0] for entry in last_labels}
    owned = {key for key in current if key in declared or key.startswith(_OPERATOR_LABELS)}
    # A null in a merge patch removes the label. Labels that users have set stay.
    label_patch: dict[str, Any] = dict.fromkeys(owned - declared_labels.keys())
    label_patch |= _changed(declared_labels, current)
    annotations = _changed(template["metadata"]["annotations"], annotations_of(node))
    patch: dict[str, Any] = {}
    if label_patch or annotations:
        patch["metadata"] = {"labels": label_patch, "annotations": annotations}
    if _LAST_TAINTS in annotations:
        # Taints of the node controller (not ready, cordoned) stay.
        taints = items(node["spec"], "taints")
        kept = [taint for taint in taints if taint["key"].startswith("node.kubernetes.io/")]
        patch["spec"] = {"taints": [*kept, *template["spec"]["taints"]]}
    status: dict[str, Any] = {}
    for part in ("capacity", "allocatable"):
        reported = section(node, "status", part)
        amounts: dict[str, Any] = {}
        for key in reported.keys() - template["status"][part].keys():
            if key.startswith(("nvidia.com/", labels.GKE_NETWORKS)):
                amounts[key] = None  # This removes it.
        for key, amount in template["status"][part].items():
            if key not in reported or parse_quantity(reported[key]) != parse_quantity(amount):
                amounts[key] = amount
        if amounts:
            status[part] = amounts
    return NodeChanges(patch, status)


def _changed(target: Mapping[str, Any], current: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in target.items() if current.get(key) != value}
