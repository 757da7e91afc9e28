"""Whether the NVIDIA GPU Operator runs in the replica, and how it is set."""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ml_foundations.labels import GPU_RESOURCE

from rehearsal.gke.store import read_json
from rehearsal.layout import Rehearsal

CHART = "gpu-operator"
HELM_SECRETS = "owner=helm,status=deployed"
"""The label selector of the Secrets in which Helm keeps the releases that are deployed."""

_TOLERATIONS = ({"key": GPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule"},)
"""The chart's default of daemonsets.tolerations."""


@dataclass(frozen=True)
class Operator:
    """The parts of the operator that show on a node."""

    device_plugin: bool = True
    feature_discovery: bool = True
    tolerations: tuple[Mapping[str, Any], ...] = _TOLERATIONS

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Operator:
        """The operator as the values of its Helm release set it."""
        daemonsets = values.get("daemonsets") or {}
        return cls(
            device_plugin=_enabled(values, "devicePlugin"),
            feature_discovery=_enabled(values, "gfd"),
            tolerations=tuple(daemonsets.get("tolerations", _TOLERATIONS) or ()),
        )


def _enabled(values: Mapping[str, Any], component: str) -> bool:
    return (values.get(component) or {}).get("enabled", True) is not False


def find(rehearsal: Rehearsal, releases: Iterable[Mapping[str, Any]]) -> Operator | None:
    """The operator, where its chart is installed or its release is recorded.

    Args:
        rehearsal: The rehearsal, for the releases that were recorded because their chart is out of reach.
        releases: What Helm has deployed, as ``read_release`` gives it.
    """
    recorded = (read_json(path, {}) for path in rehearsal.releases_dir.glob("*.json"))
    # Of a release that Helm installed, Helm's own Secret is the truth: it also goes with `helm uninstall`.
    for release in (*(entry for entry in recorded if not entry.get("installed")), *releases):
        if str(release.get("chart", "")).rpartition("/")[2] == CHART:
            return Operator.of(release.get("values") or {})
    return None


def read_release(secret: Mapping[str, Any]) -> dict[str, Any]:
    """Chart and values of the Helm release that a Secret holds."""
    try:
        packed = base64.b64decode(base64.b64decode(secret["data"]["release"]))
        release = json.loads(gzip.decompress(packed))
        return {"chart": release["chart"]["metadata"]["name"], "values": release.get("config") or {}}
    except (KeyError, ValueError, OSError, EOFError, zlib.error):
        return {}
