"""The Node objects of a pool, as GKE would make them."""

from __future__ import annotations

import hashlib
import secrets
import string
import uuid
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from ml_foundations import labels
from ml_foundations.gke import machine_types
from ml_foundations.gke.machine_types import GIB, MachineType, machine_type
from ml_foundations.planning.filters import untolerated_taints
from ml_foundations.planning.quantity import parse_quantity

from rehearsal.gke.operator import Operator, Sharing
from rehearsal.gke.store import Pool, PoolGpu

KUBERNETES_VERSION = "v1.36.3-gke.1000000"
KWOK_NODE = {"kwok.x-k8s.io/node": "fake"}
"""The annotation with which kwok takes a node over."""

LAST_LABELS = "node.gke.io/last-applied-node-labels"
LAST_TAINTS = "node.gke.io/last-applied-node-taints"
"""Annotations in which GKE keeps what a pool declared, so that a later update can take it back."""

INSTALLATION_DISABLED = "INSTALLATION_DISABLED"
GFD_DRIVER = ("595", "91", "07")
GFD_CUDA = ("13", "2")
"""Driver of GPU Operator v26.7.0 and the CUDA version that it supports."""

OPERATOR_LABELS = (
    "nvidia.com/gpu.",
    "nvidia.com/cuda.",
    "nvidia.com/gfd.",
    "nvidia.com/mig.",
    "nvidia.com/mps.",
)
"""Prefixes of the labels that the operator and GPU Feature Discovery own."""


def region(zone: str) -> str:
    """The region of a zone: us-central1 of us-central1-a."""
    return zone.rpartition("-")[0]


def devices(gpu: PoolGpu) -> int:
    """The nvidia.com/gpu resources that GKE's device plugin advertises for a node's GPUs."""
    instances = 1
    if gpu.partition_size:
        instances = machine_types.GPUS[gpu.type].mig_profiles[gpu.partition_size]
    return gpu.count * instances * (gpu.max_shared_clients or 1)


def is_gke_managed(pool: Pool) -> bool:
    """Whether GKE installs the driver and runs the device plugin on the pool's nodes."""
    opted_out = pool.labels.get(labels.GKE_NO_DEVICE_PLUGIN) == "true"
    return pool.gpu is not None and not opted_out and pool.gpu.driver_version != INSTALLATION_DISABLED


def is_left_to_operator(pool: Pool) -> bool:
    """Whether the pool leaves driver and device plugin to the GPU Operator: exactly one side advertises."""
    opted_out = pool.labels.get(labels.GKE_NO_DEVICE_PLUGIN) == "true"
    return pool.gpu is not None and opted_out and pool.gpu.driver_version == INSTALLATION_DISABLED


def pool_taints(pool: Pool) -> list[dict[str, str]]:
    """The taints of a pool's nodes: those declared and those that GKE adds, each once."""
    taints = [{key: taint[key] for key in ("key", "value", "effect") if taint.get(key)} for taint in pool.taints]
    if pool.automatic_gpu_taint and not any(taint["key"] == labels.GPU_TAINT_KEY for taint in taints):
        taints.append({"key": labels.GPU_TAINT_KEY, "value": labels.GPU_TAINT_VALUE, "effect": labels.GPU_TAINT_EFFECT})
    if pool.queued:
        taints.append({"key": labels.GKE_QUEUED, "value": "true", "effect": "NoSchedule"})
    if machine_type(pool.machine_type).arch == "arm64":
        taints.append({"key": "kubernetes.io/arch", "value": "arm64", "effect": "NoSchedule"})
    return taints


def node_template(pool: Pool, zone: str, operator: Operator | None) -> dict[str, Any]:
    """A node of a pool in a zone, before it has a name."""
    machine = machine_type(pool.machine_type)
    taints = pool_taints(pool)
    node_labels = _gke_labels(pool, machine, zone) | dict(pool.labels)
    gpus = 0
    if pool.gpu and is_gke_managed(pool):
        gpus = devices(pool.gpu)
    if pool.gpu and operator and _runs_on(operator, taints):
        if is_left_to_operator(pool):
            gpus = operator.advertised(pool.gpu, _os(pool), pool.labels)
        has_driver = is_gke_managed(pool) or (is_left_to_operator(pool) and _os(pool) in operator.drivers)
        if operator.feature_discovery and has_driver:
            # What the pool itself declares stays: GPU Feature Discovery writes through the same label.
            node_labels |= _operator_labels(pool, pool.gpu, operator.sharing_of(pool.labels))
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "labels": node_labels,
            "annotations": {
                **KWOK_NODE,
                LAST_LABELS: ",".join(f"{key}={value}" for key, value in sorted(pool.labels.items())),
                LAST_TAINTS: ",".join(f"{t['key']}={t.get('value', '')}:{t['effect']}" for t in taints),
            },
        },
        "spec": {"taints": taints},
        "status": _resources(pool, machine, gpus),
    }


def new_node(pool: Pool, zone: str, operator: Operator | None) -> dict[str, Any]:
    """A node of a pool in a zone, with a name of its own as GKE forms it."""
    node = node_template(pool, zone, operator)
    name = node_name(pool, zone)
    node["metadata"] |= {"name": name}
    node["metadata"]["labels"] |= {labels.HOSTNAME: name}
    node["spec"] |= {"providerID": f"gce://{pool.project or 'rehearsal'}/{zone}/{name}"}
    identity = uuid.uuid4().hex
    node["status"] |= {
        "nodeInfo": {
            "architecture": machine_type(pool.machine_type).arch,
            "bootID": str(uuid.uuid4()),
            "containerRuntimeVersion": "containerd://2.1.4",
            "kernelVersion": "6.12.30+",
            "kubeProxyVersion": KUBERNETES_VERSION,
            "kubeletVersion": KUBERNETES_VERSION,
            "machineID": identity,
            "operatingSystem": "linux",
            "osImage": "Ubuntu" if "UBUNTU" in pool.image_type else "Container-Optimized OS from Google",
            "systemUUID": identity,
        }
    }
    return node


def node_name(pool: Pool, zone: str) -> str:
    """A new name as GKE forms it: gke-<cluster>-<pool>-<instance group>-<4 random characters>."""
    group = hashlib.sha256(f"{pool.cluster}/{pool.name}/{zone}".encode()).hexdigest()[:8]
    suffix = "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(4))
    return f"gke-{pool.cluster[:16].rstrip('-')}-{pool.name[:16].rstrip('-')}-{group}-{suffix}"


def _runs_on(operator: Operator, taints: list[dict[str, str]]) -> bool:
    return not untolerated_taints({"spec": {"tolerations": operator.tolerations}}, taints)


def _os(pool: Pool) -> str:
    """The operating system of a pool's nodes, as their label says it."""
    return "ubuntu" if "UBUNTU" in pool.image_type else "cos"


def _gke_labels(pool: Pool, machine: MachineType, zone: str) -> dict[str, str]:
    found = {
        "beta.kubernetes.io/arch": machine.arch,
        "beta.kubernetes.io/instance-type": machine.name,
        "beta.kubernetes.io/os": "linux",
        "cloud.google.com/gke-boot-disk": pool.boot_disk_type,
        "cloud.google.com/gke-container-runtime": "containerd",
        "cloud.google.com/gke-cpu-scaling-level": str(machine.vcpus),
        "cloud.google.com/gke-max-pods-per-node": str(pool.max_pods),
        "cloud.google.com/gke-memory-gb-scaling-level": str(machine.memory_gib),
        labels.GKE_NODE_POOL: pool.name,
        "cloud.google.com/gke-os-distribution": _os(pool),
        "cloud.google.com/gke-provisioning": "spot" if pool.spot else "standard",
        "cloud.google.com/machine-family": machine.name.partition("-")[0],
        "failure-domain.beta.kubernetes.io/region": region(zone),
        "failure-domain.beta.kubernetes.io/zone": zone,
        "kubernetes.io/arch": machine.arch,
        "kubernetes.io/os": "linux",
        labels.INSTANCE_TYPE: machine.name,
        "topology.gke.io/zone": zone,
        labels.REGION: region(zone),
        labels.ZONE: zone,
    }
    if pool.spot:
        found |= {labels.GKE_SPOT: "true"}
    if pool.flex_start:
        found |= {labels.GKE_FLEX_START: "true"}
    if pool.reservation:
        found |= {labels.GKE_RESERVATION: pool.reservation.partition("/reservationBlocks/")[0].rpartition("/")[2]}
    if pool.workload_identity:
        found |= {"iam.gke.io/gke-metadata-server-enabled": "true"}
    if pool.gpu:
        found |= {
            labels.GKE_ACCELERATOR: pool.gpu.type,
            "cloud.google.com/gke-accelerator-count": str(pool.gpu.count),
            "cloud.google.com/gke-gpu": "true",
        }
        if is_gke_managed(pool):
            found[labels.GKE_GPU_DRIVER_VERSION] = (pool.gpu.driver_version or "DEFAULT").lower()
            found |= _sharing_labels(pool.gpu)
    return found


def _sharing_labels(gpu: PoolGpu) -> dict[str, str]:
    found: dict[str, str] = {}
    if gpu.partition_size:
        found[labels.GKE_PARTITION_SIZE] = gpu.partition_size
    if gpu.sharing_strategy:
        found[labels.GKE_SHARING_STRATEGY] = gpu.sharing_strategy.lower().replace("_", "-")
        found[labels.GKE_SHARED_CLIENTS] = str(gpu.max_shared_clients)
    return found


def _operator_labels(pool: Pool, gpu: PoolGpu, sharing: Sharing) -> dict[str, str]:
    model = machine_types.GPUS[gpu.type]
    major, minor = model.compute_capability
    found = {
        "cuda.driver-version.major": GFD_DRIVER[0],
        "cuda.driver-version.minor": GFD_DRIVER[1],
        "cuda.driver-version.revision": GFD_DRIVER[2],
        "cuda.driver-version.full": ".".join(GFD_DRIVER),
        "cuda.runtime-version.major": GFD_CUDA[0],
        "cuda.runtime-version.minor": GFD_CUDA[1],
        "cuda.runtime-version.full": ".".join(GFD_CUDA),
        "gpu.compute.major": str(major),
        "gpu.compute.minor": str(minor),
        "gpu.count": str(gpu.count),
        "gpu.family": model.architecture,
        "gpu.machine": "Google-Compute-Engine",
        "gpu.mode": "compute",
        "gpu.present": "true",
        "gpu.product": machine_types.shared_product(model, gpu.partition_size, shared=sharing.replicas > 1),
        "gpu.replicas": str(sharing.replicas),
        "gpu.sharing-strategy": sharing.strategy,
        "mig.capable": str(bool(model.mig_profiles)).lower(),
        "mps.capable": "false",
    }
    if model.memory_label_mib is not None:
        found["gpu.memory"] = str(model.memory_label_mib)
    return {f"nvidia.com/{key}": value for key, value in found.items()}


def _resources(pool: Pool, machine: MachineType, gpus: int) -> dict[str, Any]:
    whole, free = machine_types.capacity(machine), machine_types.allocatable(machine, pool.max_pods)
    disk, disk_free = machine_types.ephemeral_storage_gib(pool.boot_disk_gib, pool.ephemeral_local_ssds)
    capacity = {
        "cpu": str(machine.vcpus),
        "memory": f"{whole.memory_kib}Ki",
        "ephemeral-storage": str(disk * GIB),
        "pods": str(pool.max_pods),
    }
    allocatable = {
        "cpu": f"{free.cpu_millis}m",
        "memory": f"{free.memory_kib}Ki",
        "ephemeral-storage": str(int(disk_free * Fraction(GIB))),
        "pods": str(pool.max_pods),
    }
    if gpus:
        capacity[labels.GPU_RESOURCE] = allocatable[labels.GPU_RESOURCE] = str(gpus)
    return {"capacity": capacity, "allocatable": allocatable}


def changes(node: Mapping[str, Any], wanted: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The merge patches of a node and of its status that bring it to what its pool wants; empty if none."""
    have, want = node["metadata"], wanted["metadata"]
    applied = {entry.partition("=")[0] for entry in (have.get("annotations") or {}).get(LAST_LABELS, "").split(",")}
    owned = {key for key in have["labels"] if key in applied or key.startswith(OPERATOR_LABELS)}
    label_patch: dict[str, str | None] = {key: None for key in owned - want["labels"].keys()}
    label_patch |= {key: value for key, value in want["labels"].items() if have["labels"].get(key) != value}
    annotations = {
        key: value for key, value in want["annotations"].items() if (have.get("annotations") or {}).get(key) != value
    }
    patch: dict[str, Any] = {}
    if label_patch or annotations:
        patch["metadata"] = {"labels": label_patch, "annotations": annotations}
    if LAST_TAINTS in annotations:
        # Taints of the node's own life (not ready, cordoned) stay as they are.
        life = [t for t in node["spec"].get("taints") or [] if t["key"].startswith("node.kubernetes.io/")]
        patch["spec"] = {"taints": [*life, *wanted["spec"]["taints"]]}
    status: dict[str, Any] = {}
    for part in ("capacity", "allocatable"):
        current = node["status"].get(part) or {}
        # Merge patches keep what they do not name: a resource that went away must be named.
        difference: dict[str, str | None] = {
            key: None for key in current.keys() - wanted["status"][part].keys() if key.startswith("nvidia.com/")
        }
        difference |= {
            key: value
            for key, value in wanted["status"][part].items()
            if key not in current or parse_quantity(current[key]) != parse_quantity(value)
        }
        if difference:
            status[part] = difference
    return patch, status
