"""What the NVIDIA GPU Operator does on GPU nodes, by its Helm values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

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

    def advertised(self, gpus: int, image: str, node_labels: Mapping[str, str]) -> int:
        """The nvidia.com/gpu resources that the operator's device plugin gives a node with some GPUs."""
        declined = node_labels.get(labels.GPU_DEPLOY_DEVICE_PLUGIN) == "false"
        if declined or not self.device_plugin or image not in self.drivers:
            return 0
        return gpus * self.sharing_of(node_labels).replicas


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
