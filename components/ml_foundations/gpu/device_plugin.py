"""How the NVIDIA device plugin shares GPUs."""

from collections.abc import Mapping
from typing import Any, Literal

import yaml
from pydantic import Field

from ml_foundations.catalog.pools import MOST_CLIENTS
from ml_foundations.component.spec import Spec
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.merging import without_none

_CONFIG_MAP = "device-plugin-config"


class Sharing(Spec):
    """One way to share a GPU between pods."""

    replicas: int = Field(ge=2, le=MOST_CLIENTS)
    """How many pods may use a GPU at once."""
    strategy: Literal["time-slicing", "mps"] = "time-slicing"
    """time-slicing, or mps for the Multi-Process Service; default time-slicing."""


def device_plugin_config(sharing: Mapping[str, Sharing], default: str | None) -> dict[str, Any]:
    """The chart's value for the ConfigMap with the device plugin's configurations; empty where there is none."""
    if not sharing:
        return {}
    data = {name: yaml.safe_dump(_configuration(way), sort_keys=False) for name, way in sharing.items()}
    return {"config": without_none({"create": True, "name": _CONFIG_MAP, "default": default, "data": data})}


def _configuration(way: Sharing) -> dict[str, Any]:
    """A configuration file of the device plugin (NVIDIA/k8s-device-plugin, "Shared Access to GPUs")."""
    resource = {"name": labels.GPU_RESOURCE, "replicas": way.replicas}
    part = "timeSlicing" if way.strategy == "time-slicing" else "mps"
    return {"version": "v1", "sharing": {part: {"resources": [resource]}}}
