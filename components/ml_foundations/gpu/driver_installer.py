"""Google's NVIDIA driver installer, a DaemonSet for GKE nodes that get no driver otherwise.

Google publishes one for Container-Optimized OS and one for Ubuntu. Each installs the driver that is
built into the node's image.
"""

from typing import Any, Literal

from ml_foundations.catalog import versions
from ml_foundations.catalog.operator_nodes import DRIVER_INSTALLER
from ml_foundations.component.children import node_daemon_set
from ml_foundations.component.data import yaml_file
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.selectors import node_affinity

GOOGLE_DRIVER_DIR = "/home/kubernetes/bin/nvidia"
"""The folder on the node in which Google's installer puts the driver (NVIDIA, "GPU Operator with
Google GKE")."""


def driver_installer_manifest(image: Literal["cos", "ubuntu"]) -> dict[str, Any]:
    """Return the DaemonSet that installs the driver on GPU nodes to which GKE gives none."""
    name = f"{DRIVER_INSTALLER}{image}"
    affinity = node_affinity(
        {"key": labels.GKE_ACCELERATOR, "operator": "Exists"},
        {"key": labels.GKE_GPU_DRIVER_VERSION, "operator": "DoesNotExist"},
        {"key": labels.GKE_OS_DISTRIBUTION, "operator": "In", "values": [image]},
    )
    pods = yaml_file(
        "gpu",
        "driver_installers.yaml",
        driver=GOOGLE_DRIVER_DIR,
        cos_image=versions.DRIVER_INSTALLER_IMAGES["cos"],
        ubuntu_image=versions.DRIVER_INSTALLER_IMAGES["ubuntu"],
        partitioner_image=versions.GPU_PARTITIONER_IMAGE,
        pause_image=versions.PAUSE_IMAGE,
    )
    pod = pods[image] | {
        "priorityClassName": "system-node-critical",
        "affinity": affinity,
        "tolerations": [{"operator": "Exists"}],
    }
    return node_daemon_set(name, pod)
