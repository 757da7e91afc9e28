"""Whether the NVIDIA GPU Operator runs in the replica, and how it is set."""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import yaml
from ml_foundations import labels
from ml_foundations.labels import GPU_RESOURCE

from rehearsal.gke.store import PoolGpu, read_json
from rehearsal.layout import Rehearsal

CHART = "gpu-operator"
HELM_SECRETS = "owner=helm,status=deployed"
"""The label selector of the Secrets in which Helm keeps the releases that are deployed."""

INSTALLER = "nvidia-driver-installer-"
"""How the DaemonSets are named that install Google's driver; the rest is the node image."""

_TOLERATIONS = ({"key": GPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule"},)
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

    def sharing_of(self, node_labels: Mapping[str, str]) -> Sharing:
        """How the GPUs of a node with these labels are shared."""
        return self.sharing.get(node_labels.get(labels.DEVICE_PLUGIN_CONFIG, ""), Sharing())

    def beside(self, daemon_sets: Iterable[Mapping[str, Any]]) -> Operator:
        """The operator, in a cluster with these DaemonSets: some install a driver."""
        names = [str(item["metadata"]["name"]) for item in daemon_sets]
        installed = {name.removeprefix(INSTALLER) for name in names if name.startswith(INSTALLER)}
        return replace(self, drivers=self.drivers | installed)

    def advertised(self, gpu: PoolGpu, image: str, node_labels: Mapping[str, str]) -> int:
        """The nvidia.com/gpu resources that the operator's device plugin gives a node."""
        declined = node_labels.get(labels.GPU_DEPLOY_DEVICE_PLUGIN) == "false"
        if declined or not self.device_plugin or image not in self.drivers:
            return 0
        return gpu.count * self.sharing_of(node_labels).replicas

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Operator:
        """The operator as the values of its Helm release set it."""
        daemonsets = values.get("daemonsets") or {}
        return cls(
            drivers=frozenset({"ubuntu"} if _enabled(values, "driver") else ()),
            device_plugin=_enabled(values, "devicePlugin"),
            feature_discovery=_enabled(values, "gfd"),
            tolerations=tuple(daemonsets.get("tolerations", _TOLERATIONS) or ()),
            sharing=_sharing((values.get("devicePlugin") or {}).get("config") or {}),
        )


def _enabled(values: Mapping[str, Any], component: str) -> bool:
    return (values.get(component) or {}).get("enabled", True) is not False


def _sharing(config: Mapping[str, Any]) -> dict[str, Sharing]:
    """The device plugin's configurations in the chart's value for their ConfigMap."""
    found = {name: _sharing_in(yaml.safe_load(text) or {}) for name, text in (config.get("data") or {}).items()}
    return found | {"": found.get(config.get("default") or "", Sharing())}


def _sharing_in(configuration: Mapping[str, Any]) -> Sharing:
    for part, strategy in (("timeSlicing", "time-slicing"), ("mps", "mps")):
        for resource in ((configuration.get("sharing") or {}).get(part) or {}).get("resources") or []:
            if resource.get("name") == GPU_RESOURCE:
                return Sharing(int(resource.get("replicas", 1)), strategy)
    return Sharing()


def find(rehearsal: Rehearsal, releases: Iterable[Mapping[str, Any]]) -> Operator | None:
    """The operator, where its chart is installed or its release is recorded; for the arguments see ``released``."""
    values = released(CHART, rehearsal, releases)
    return None if values is None else Operator.of(values)


def released(chart: str, rehearsal: Rehearsal, releases: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The values of a chart's release; None where there is none.

    Args:
        chart: The chart's name.
        rehearsal: The rehearsal, for the releases that were recorded because their chart is out of reach.
        releases: What Helm has deployed, as ``read_release`` gives it.
    """
    recorded = (read_json(path, {}) for path in rehearsal.releases_dir.glob("*.json"))
    # Of a release that Helm installed, Helm's own Secret is the truth: it also goes with `helm uninstall`.
    for release in (*(entry for entry in recorded if not entry.get("installed")), *releases):
        if str(release.get("chart", "")).rpartition("/")[2] == chart:
            return release.get("values") or {}
    return None


def read_release(secret: Mapping[str, Any]) -> dict[str, Any]:
    """Chart and values of the Helm release that a Secret holds."""
    try:
        packed = base64.b64decode(base64.b64decode(secret["data"]["release"]))
        release = json.loads(gzip.decompress(packed))
        return {"chart": release["chart"]["metadata"]["name"], "values": release.get("config") or {}}
    except (KeyError, ValueError, OSError, EOFError, zlib.error):
        return {}
