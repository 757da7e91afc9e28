"""Google's NVIDIA driver installer: the DaemonSet without which driverless GKE nodes never get a driver.

Google publishes one for Container-Optimized OS and one for Ubuntu (GoogleCloudPlatform/container-engine-accelerators,
nvidia-driver-installer, read at commit 992db81). Each installs the driver that is built into the node's image.
"""

from typing import Any, Literal

from ml_foundations.catalog.operator_nodes import DRIVER_INSTALLER
from ml_foundations.catalog.versions import DRIVER_INSTALLER_IMAGES, GPU_PARTITIONER_IMAGE, PAUSE_IMAGE
from ml_foundations.component.parts import NOT_AWAITED
from ml_foundations.kubernetes import labels

_NodeImage = Literal["cos", "ubuntu"]
"""The operating system of nodes, as the label cloud.google.com/gke-os-distribution says it."""

GOOGLE_DRIVER_DIR = "/home/kubernetes/bin/nvidia"
"""Where Google's installer puts the driver on the node (NVIDIA, "GPU Operator with Google GKE")."""

_NAMESPACE = "kube-system"
"""Critical pods need no quota of their own here."""

_HOST_PATHS: dict[_NodeImage, dict[str, tuple[str, str]]] = {
    "cos": {
        "dev": ("/dev", "/dev"),
        "nvidia": (GOOGLE_DRIVER_DIR, "/usr/local/nvidia"),
        "vulkan": (f"{GOOGLE_DRIVER_DIR}/vulkan/icd.d", "/etc/vulkan/icd.d"),
        "root": ("/", "/root"),
        "cos-tools": ("/var/lib/cos-tools", "/build/cos-tools"),
        "nvidia-config": ("/etc/nvidia", "/etc/nvidia"),
    },
    "ubuntu": {"dev": ("/dev", "/dev"), "boot": ("/boot", "/boot"), "root": ("/", "/root")},
}
"""Of each volume: the folder of the node, and where the installer's container has it."""

_COS_ENVIRONMENT = {
    "NVIDIA_INSTALL_DIR_HOST": GOOGLE_DRIVER_DIR,
    "NVIDIA_INSTALL_DIR_CONTAINER": "/usr/local/nvidia",
    "VULKAN_ICD_DIR_HOST": f"{GOOGLE_DRIVER_DIR}/vulkan/icd.d",
    "VULKAN_ICD_DIR_CONTAINER": "/etc/vulkan/icd.d",
    "ROOT_MOUNT_DIR": "/root",
    "COS_TOOLS_DIR_HOST": "/var/lib/cos-tools",
    "COS_TOOLS_DIR_CONTAINER": "/build/cos-tools",
}

_INSTALL_ON_COS = "lsmod | grep -q ^nvidia && exit 0; exec /cos-gpu-installer install"
"""A node whose kernel has the modules already, after a restart of the pod, keeps its driver."""


def driver_installer_manifest(image: _NodeImage) -> dict[str, Any]:
    """The DaemonSet that installs the driver on GPU nodes of an operating system to which GKE gives none."""
    name = f"{DRIVER_INSTALLER}{image}"
    selector = {"k8s-app": name}
    expressions: list[dict[str, Any]] = [
        {"key": labels.GKE_ACCELERATOR, "operator": "Exists"},
        {"key": labels.GKE_GPU_DRIVER_VERSION, "operator": "DoesNotExist"},
        {"key": labels.GKE_OS_DISTRIBUTION, "operator": "In", "values": [image]},
    ]
    nodes = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    spec: dict[str, Any] = {
        "priorityClassName": "system-node-critical",
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": nodes}},
        "tolerations": [{"operator": "Exists"}],
        "volumes": [{"name": volume, "hostPath": {"path": path}} for volume, (path, _) in _HOST_PATHS[image].items()],
        "initContainers": [_installer(image), *([_partitioner()] if image == "cos" else [])],
        "containers": [{"name": "pause", "image": PAUSE_IMAGE}],
    }
    if image == "cos":
        spec |= {"hostNetwork": True, "hostPID": True}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": name,
            "namespace": _NAMESPACE,
            "labels": selector,
            # The driver takes minutes per node, and a pool may have no node for now.
            "annotations": NOT_AWAITED,
        },
        "spec": {
            "selector": {"matchLabels": selector},
            "updateStrategy": {"type": "RollingUpdate"},
            "template": {"metadata": {"labels": selector}, "spec": spec},
        },
    }


def _installer(image: _NodeImage) -> dict[str, Any]:
    container = _privileged("nvidia-driver-installer", DRIVER_INSTALLER_IMAGES[image], _mounts(image))
    if image == "cos":
        # It is part of the node's own image: there is no registry to pull it from.
        container["imagePullPolicy"] = "Never"
        container["command"] = ["bash", "-c", _INSTALL_ON_COS]
        container["env"] = [{"name": name, "value": value} for name, value in _COS_ENVIRONMENT.items()]
    return container


def _partitioner() -> dict[str, Any]:
    """What splits the GPUs of a node pool with a MIG partition size, once their driver is there."""
    mounts = [mount for mount in _mounts("cos") if mount["name"] in ("dev", "nvidia", "nvidia-config")]
    container = _privileged("partition-gpus", GPU_PARTITIONER_IMAGE, mounts)
    container["env"] = [{"name": "LD_LIBRARY_PATH", "value": "/usr/local/nvidia/lib64"}]
    return container


def _privileged(name: str, image: str, mounts: list[dict[str, str]]) -> dict[str, Any]:
    return {
        "name": name,
        "image": image,
        "resources": {"requests": {"cpu": "150m"}},
        "securityContext": {"privileged": True},
        "volumeMounts": mounts,
    }


def _mounts(image: _NodeImage) -> list[dict[str, str]]:
    return [{"name": volume, "mountPath": path} for volume, (_, path) in _HOST_PATHS[image].items()]
