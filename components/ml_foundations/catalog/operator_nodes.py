"""What the NVIDIA GPU Operator makes of GPU nodes, by its Helm values: GPUs advertised and labels.

For the proof at preview and for the rehearsal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from ml_foundations.catalog import machine_types
from ml_foundations.catalog.pools import PoolGpu
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.manifests import items, section

DRIVER = ("595", "91", "07")
CUDA = ("13", "2")
"""Driver of GPU Operator v26.7.0 and the CUDA version that it supports."""

DRIVER_INSTALLER = "nvidia-driver-installer-"
"""How the DaemonSets are named that install Google's driver; the rest is the node image."""

_TOLERATIONS = ({"key": labels.GPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule"},)
"""The chart's default of daemonsets.tolerations."""


@dataclass(frozen=True)
class Sharing:
    """How a node's GPUs are shared: how many pods may use each, and by what."""

    replicas: int = 1
    strategy: str = "none"


@dataclass(frozen=True)
class Operator:
    """The parts of the operator that show on a node."""

    drivers: frozenset[str] = frozenset({"ubuntu"})
    """Node images whose nodes get a driver: the operator's own is for Ubuntu; the others have Google's installer."""
    device_plugin: bool = True
    feature_discovery: bool = True
    tolerations: tuple[Mapping[str, Any], ...] = _TOLERATIONS
    sharing: Mapping[str, Sharing] = field(default_factory=dict[str, Sharing])
    """The device plugin's configurations, by name; that of nodes which choose none has the name "" too."""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Operator:
        """The operator as the values of its Helm release set it."""
        return cls(
            drivers=frozenset({"ubuntu"} if _enabled(values, "driver") else ()),
            device_plugin=_enabled(values, "devicePlugin"),
            feature_discovery=_enabled(values, "gfd"),
            tolerations=tuple(section(values, "daemonsets").get("tolerations", _TOLERATIONS) or ()),
            sharing=_sharing(section(values, "devicePlugin", "config")),
        )

    def beside(self, daemon_sets: Iterable[Mapping[str, Any]]) -> Operator:
        """The operator, in a cluster with these DaemonSets: some install a driver."""
        names = [str(item["metadata"]["name"]) for item in daemon_sets]
        installed = {name.removeprefix(DRIVER_INSTALLER) for name in names if name.startswith(DRIVER_INSTALLER)}
        return replace(self, drivers=self.drivers | installed)

    def sharing_of(self, node_labels: Mapping[str, str]) -> Sharing:
        """How the GPUs of a node with these labels are shared."""
        return self.sharing.get(node_labels.get(labels.DEVICE_PLUGIN_CONFIG, ""), Sharing())

    def advertised(self, gpu: PoolGpu, image: str, node_labels: Mapping[str, str]) -> int:
        """The nvidia.com/gpu resources that the operator's device plugin gives a node."""
        declined = node_labels.get(labels.GPU_DEPLOY_DEVICE_PLUGIN) == "false"
        if declined or not self.device_plugin or image not in self.drivers:
            return 0
        return gpu.count * self.sharing_of(node_labels).replicas

    def labels(self, gpu: PoolGpu, node_labels: Mapping[str, str]) -> dict[str, str]:
        """The labels that GPU Feature Discovery gives a node with a driver."""
        model, sharing = machine_types.GPUS[gpu.type], self.sharing_of(node_labels)
        major, minor = model.compute_capability
        found = {
            "cuda.driver-version.major": DRIVER[0],
            "cuda.driver-version.minor": DRIVER[1],
            "cuda.driver-version.revision": DRIVER[2],
            "cuda.driver-version.full": ".".join(DRIVER),
            "cuda.runtime-version.major": CUDA[0],
            "cuda.runtime-version.minor": CUDA[1],
            "cuda.runtime-version.full": ".".join(CUDA),
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


def _enabled(values: Mapping[str, Any], component: str) -> bool:
    return section(values, component).get("enabled", True) is not False


def _sharing(config: Mapping[str, Any]) -> dict[str, Sharing]:
    """The device plugin's configurations in the chart's value for their ConfigMap."""
    found = {name: _sharing_in(yaml.safe_load(text) or {}) for name, text in section(config, "data").items()}
    return found | {"": found.get(config.get("default") or "", Sharing())}


def _sharing_in(configuration: Mapping[str, Any]) -> Sharing:
    for part, strategy in (("timeSlicing", "time-slicing"), ("mps", "mps")):
        for resource in items(section(configuration, "sharing", part), "resources"):
            if resource.get("name") == labels.GPU_RESOURCE:
                return Sharing(int(resource.get("replicas", 1)), strategy)
    return Sharing()
