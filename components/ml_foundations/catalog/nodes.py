"""Labels, taints and GPUs of a node pool's nodes, as GKE and the GPU Operator set them.

For the proof at preview and for the rehearsal.
"""

from ml_foundations.catalog.machine_types import with_suffix
from ml_foundations.catalog.operator_nodes import CUDA, DRIVER, Operator, Sharing
from ml_foundations.catalog.pools import PoolTraits
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.tolerations import untolerated_taints

NEW_NODE_SECONDS = 1200
"""Time for a pod on a new node: GKE's autoscaler waits 15 minutes for one, and then come the driver
and the image."""


def node_taints(pool: PoolTraits) -> list[dict[str, str]]:
    """Return the taints of a pool's nodes: declared ones and those that GKE adds, each once."""
    taints: list[dict[str, str]] = []
    for taint in pool.taints:
        taints.append({key: taint[key] for key in ("key", "value", "effect") if taint.get(key)})
    keys = {taint.get("key") for taint in taints}
    added: list[tuple[str, str]] = []
    if pool.automatic_gpu_taint and labels.GPU_TAINT_KEY not in keys:
        added.append((labels.GPU_TAINT_KEY, labels.GPU_TAINT_VALUE))
    if pool.queued:
        added.append((labels.GKE_QUEUED, "true"))
    if pool.machine.arch == "arm64":
        added.append((labels.ARCH, "arm64"))
    return taints + [{"key": key, "value": value, "effect": "NoSchedule"} for key, value in added]


def node_labels(pool: PoolTraits, zone: str, operator: Operator | None) -> dict[str, str]:
    """Return the labels of a pool's nodes in a zone, except the host name."""
    # GPU Feature Discovery writes over what the pool declares.
    published = _gke_labels(pool, zone) | dict(pool.labels)
    if operator and operator.feature_discovery and _drives(operator, pool):
        published |= _discovered(pool, operator.sharing_of(pool.labels))
    return published


def has_driver(pool: PoolTraits, operator: Operator | None) -> bool:
    """Return whether the nodes get a GPU driver: from GKE, the operator or an installer."""
    if operator is None or not pool.is_left_to_operator:
        return pool.is_gke_managed
    model = pool.gpu_model
    fault = operator.driver_fault(model.architecture if model else None)
    return pool.image_os in operator.drivers and not (pool.image_os == "ubuntu" and fault)


def advertised_gpus(pool: PoolTraits, operator: Operator | None) -> int:
    """Return the nvidia.com/gpu of a node, from GKE's device plugin or the GPU Operator's."""
    if pool.gpu is None or (operator and operator.breaks_networking and _reaches(operator, pool)):
        return 0
    if pool.is_gke_managed:
        return pool.gpu.devices
    if pool.is_left_to_operator and operator and _drives(operator, pool):
        return operator.advertised(pool.gpu.count, pool.image_os, pool.labels)
    return 0


def _reaches(operator: Operator, pool: PoolTraits) -> bool:
    return not untolerated_taints(operator.tolerations, node_taints(pool))


def _drives(operator: Operator, pool: PoolTraits) -> bool:
    """Return whether the operator's pods start on a pool's nodes, and find a driver there."""
    starts = _reaches(operator, pool) and not operator.breaks_networking
    return starts and has_driver(pool, operator)


def _gke_labels(pool: PoolTraits, zone: str) -> dict[str, str]:
    machine = pool.machine
    region = zone.rpartition("-")[0]
    published = {
        "beta.kubernetes.io/arch": machine.arch,
        "beta.kubernetes.io/instance-type": machine.name,
        "beta.kubernetes.io/os": "linux",
        labels.GKE_BOOT_DISK: pool.boot_disk_type,
        "cloud.google.com/gke-container-runtime": "containerd",
        "cloud.google.com/gke-cpu-scaling-level": str(machine.vcpus),
        labels.GKE_MAX_PODS: str(pool.max_pods),
        "cloud.google.com/gke-memory-gb-scaling-level": str(int(machine.memory_gib)),
        labels.GKE_NODE_POOL: pool.name,
        labels.GKE_OS_DISTRIBUTION: pool.image_os,
        "cloud.google.com/gke-provisioning": "spot" if pool.spot else "standard",
        "cloud.google.com/machine-family": machine.name.partition("-")[0],
        labels.ARCH: machine.arch,
        labels.OS: "linux",
        labels.INSTANCE_TYPE: machine.name,
        **dict.fromkeys(labels.REGIONS, region),
        **dict.fromkeys(labels.ZONES, zone),
    }
    flags = {
        labels.GKE_SPOT: pool.spot,
        labels.GKE_FLEX_START: pool.flex_start,
        "iam.gke.io/gke-metadata-server-enabled": pool.workload_identity,
        "cloud.google.com/gke-gpu": pool.gpu,
    }
    published |= {key: "true" for key, holds in flags.items() if holds}
    if pool.reservation:
        whole = pool.reservation.partition("/reservationBlocks/")[0]
        published[labels.GKE_RESERVATION] = whole.rpartition("/")[2]
    if pool.gpu:
        published[labels.GKE_ACCELERATOR] = pool.gpu.type
        published[labels.GKE_ACCELERATOR_COUNT] = str(pool.gpu.count)
    if pool.gpu and pool.is_gke_managed:
        gpu = pool.gpu
        published[labels.GKE_GPU_DRIVER_VERSION] = (gpu.driver_version or "DEFAULT").lower()
        if gpu.partition_size:
            published[labels.GKE_PARTITION_SIZE] = gpu.partition_size
        if gpu.sharing_strategy:
            published[labels.GKE_SHARING_STRATEGY] = gpu.sharing_strategy.lower().replace("_", "-")
            published[labels.GKE_SHARED_CLIENTS] = str(gpu.clients)
    return published


def _discovered(pool: PoolTraits, sharing: Sharing) -> dict[str, str]:
    gpu = pool.gpu
    model = pool.gpu_model
    if gpu is None or model is None:
        return {}
    major, minor = model.compute_capability or (None, None)
    features = {
        "cuda.driver-version.major": DRIVER[0],
        "cuda.driver-version.minor": DRIVER[1],
        "cuda.driver-version.revision": DRIVER[2],
        "cuda.driver-version.full": ".".join(DRIVER),
        "cuda.runtime-version.major": CUDA[0],
        "cuda.runtime-version.minor": CUDA[1],
        "cuda.runtime-version.full": ".".join(CUDA),
        "gpu.compute.major": major,
        "gpu.compute.minor": minor,
        "gpu.count": str(gpu.count),
        "gpu.family": model.architecture,
        "gpu.machine": "Google-Compute-Engine",
        "gpu.mode": "compute",
        "gpu.present": "true",
        "gpu.memory": model.memory_label_mib,
        "gpu.product": with_suffix(model.product, gpu.partition_size, shared=sharing.replicas > 1),
        "gpu.replicas": str(sharing.replicas),
        "gpu.sharing-strategy": sharing.strategy,
        "mig.capable": str(bool(model.mig_profiles)).lower(),
        "mps.capable": "false",
    }
    return {f"nvidia.com/{key}": str(value) for key, value in features.items() if value is not None}
