"""Objects by which a monitoring system scrapes pods."""

from collections.abc import Mapping
from typing import Any, Literal

from ml_foundations.kubernetes.objects import api_object

MonitoringSystem = Literal["none", "google", "prometheus"]
"""Who scrapes: Google Cloud Managed Service for Prometheus, the Prometheus Operator, or nobody."""

_MONITORS: Mapping[str, tuple[str, str]] = {
    "google": ("monitoring.googleapis.com/v1", "PodMonitoring"),
    "prometheus": ("monitoring.coreos.com/v1", "ServiceMonitor"),
}
"""API version and kind of the object that each system reads."""


def monitor_manifest(
    system: MonitoringSystem,
    metadata: Mapping[str, Any],
    selector: Mapping[str, str],
    port: str,
    path: str,
) -> dict[str, Any]:
    """Return the object that names port and path of the metrics of the selected pods."""
    api_version, kind = _MONITORS[system]
    endpoints = [{"port": port, "path": path, "interval": "30s"}]
    spec = {"selector": {"matchLabels": selector}, "endpoints": endpoints}
    return api_object(api_version, kind, metadata, spec=spec)
