"""Kinds, drivers, storage classes and metrics of a GKE cluster, by its settings."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ml_foundations.catalog.disks import FILESTORE_CSI, LUSTRE_CSI, PD_CSI
from ml_foundations.catalog.inference_gateways import (
    GATEWAY_GROUP,
    POLICY_KINDS,
    POOL_GROUP,
    POOLS_SINCE,
)
from ml_foundations.catalog.tables import rows
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import section
from ml_foundations.kubernetes.packaged_yaml import packaged_documents
from ml_foundations.kubernetes.trees import UNKNOWN

_METRICS_VERSION = "1.35.1-gke.1396000"
_METRICS_PROFILE = "podAutoscaling.hpaProfile PERFORMANCE"
METRICS_NEED = f"GKE {_METRICS_VERSION}, releaseChannel RAPID and {_METRICS_PROFILE}"
"""What a cluster that serves metrics of pods to autoscalers has (GKE, "Expose custom metrics for
autoscaling")."""

METRICS_ADAPTER = "custom-metrics-stackdriver-adapter"
"""The name of Google's adapter for metrics of Cloud Monitoring, and of its Service."""

FUSE_PROFILE = "gcsfusecsi-"
FUSE_PROFILES_SINCE = "1.35.1-gke.1616000"
"""How the names of GKE's classes for buckets begin, and the version of GKE that has them (GKE,
"Cloud Storage FUSE profiles")."""

_OLDEST = {row["channel"]: row["oldest"] for row in rows("release_channels.csv")}
"""The oldest version of GKE that each release channel has; UNSPECIFIED means none."""

_NETWORK_KINDS = ("networks.networking.gke.io", "gkenetworkparamsets.networking.gke.io")

LATER_FIELDS: dict[str, list[tuple[str, str]]] = {}
for _row in rows("gke_definitions.csv"):
    _fields = (field.split("@") for field in _row["later"].split())
    LATER_FIELDS[_row["definition"]] = [(path, release) for path, release in _fields]
"""By definition of a kind, the fields that the oldest release lacks, each with the release that
added it."""

CHECKPOINTING = "highScaleCheckpointingConfig"
CHECKPOINTS_SINCE = "1.32.4-gke.1415000"
"""The add-on for multi-tier checkpointing, and the version of GKE that has it (GKE, "Train
large-scale machine learning models on GKE with Multi-Tier Checkpointing")."""

CSI_ADDONS = {
    PD_CSI: ("gcePersistentDiskCsiDriverConfig", ""),
    FILESTORE_CSI: ("gcpFilestoreCsiDriverConfig", "filestore"),
    LUSTRE_CSI: ("lustreCsiDriverConfig", "lustre"),
    labels.GCS_FUSE_DRIVER: ("gcsFuseCsiDriverConfig", "gcs_fuse"),
    "parallelstore.csi.storage.gke.io": ("parallelstoreCsiDriverConfig", "parallelstore"),
    labels.CHECKPOINT_DRIVER: (CHECKPOINTING, "multi_tier_checkpointing"),
}
"""GKE's CSI drivers: what switches them on, in a cluster's addonsConfig and as an argument of
GkeCluster."""


def missing_drivers(cluster: Mapping[str, Any] | None) -> dict[str, str]:
    """Return GKE's CSI drivers that a cluster lacks, and the setting that enables each.

    A cluster whose add-ons are unknown lacks none.
    """
    # Standard clusters have that of Compute Engine's disks by default, and no other; Autopilot has
    # its own rules (GKE, the page of each driver).
    if cluster is None or cluster.get("addonsConfig") is UNKNOWN or cluster.get("enableAutopilot"):
        return {}
    addons = section(cluster, "addonsConfig")
    missing = dict[str, str]()
    for driver, (key, argument) in CSI_ADDONS.items():
        enabled = _value(addons, key, "enabled")
        if enabled is False or (enabled is None and driver != PD_CSI):
            of_component = f" ({argument} of a GkeCluster)" if argument else ""
            missing[driver] = f"addonsConfig.{key}{of_component}"
    # It needs GKE's metadata server on the node (gcs-fuse-csi-driver, pkg/csi_driver/node.go).
    if not cluster.get("workloadIdentityConfig"):
        missing.setdefault(labels.GCS_FUSE_DRIVER, "workloadIdentityConfig")
    return missing


def own_classes(cluster: Mapping[str, Any] | None) -> Sequence[Mapping[str, Any]]:
    """Return GKE's own storage classes whose drivers the cluster has.

    A cluster whose add-ons are unknown has none for certain.
    """
    if cluster is None or cluster.get("addonsConfig") is UNKNOWN:
        return ()
    lacks = missing_drivers(cluster)
    return [
        storage_class for storage_class in _classes() if storage_class["provisioner"] not in lacks
    ]


@cache
def _classes() -> Sequence[Mapping[str, Any]]:
    return packaged_documents(Path(__file__).with_name("storage_classes.yaml").read_text())


def missing_kinds(cluster: Mapping[str, Any]) -> dict[str, str]:
    """Return the kinds of add-ons that a cluster lacks, and the settings that enable each.

    A key is an API group, or the name of a definition of one kind of it. The cluster's properties
    are named as by the gcp provider. Unknown settings lack nothing.
    """
    # On by default (Google Cloud, "Get started with managed collection").
    off = section(cluster, "monitoringConfig", "managedPrometheus").get("enabled") is False
    kinds = {"monitoring.googleapis.com": "monitoringConfig.managedPrometheus"} if off else {}
    # ManagedCertificate of the same group is always there (GKE, "Set up multi-network support").
    if not cluster.get("enableMultiNetworking"):
        setting = "enableMultiNetworking (multi_networking)"
        kinds |= dict.fromkeys(_NETWORK_KINDS, setting)
    # Autopilot has gateways by default.
    channel = _value(cluster, "gatewayApiConfig", "channel")
    if channel in (None, "CHANNEL_DISABLED") and not cluster.get("enableAutopilot"):
        setting = "gatewayApiConfig CHANNEL_STANDARD (gateway_api)"
        kinds |= dict.fromkeys((GATEWAY_GROUP, POOL_GROUP, *POLICY_KINDS), setting)
    if begins_before(cluster, POOLS_SINCE):
        kinds.setdefault(POOL_GROUP, f"minMasterVersion {POOLS_SINCE}")
    if not _value(section(cluster, "addonsConfig"), CHECKPOINTING, "enabled"):
        setting = f"addonsConfig.{CHECKPOINTING} (multi_tier_checkpointing)"
        kinds["checkpointing.gke.io"] = setting
    elif begins_before(cluster, CHECKPOINTS_SINCE):
        kinds["checkpointing.gke.io"] = f"minMasterVersion {CHECKPOINTS_SINCE}"
    missing = " and ".join(_missing_for_the_kind(cluster))
    return kinds | ({"autoscaling.gke.io": missing} if missing else {})


def missing_for_metrics(cluster: Mapping[str, Any]) -> str:
    """Return the settings of ``METRICS_NEED`` that a cluster lacks; unknown ones count as set."""
    profile = _value(cluster, "podAutoscaling", "hpaProfile")
    hpa = [] if profile in ("PERFORMANCE", UNKNOWN) else [_METRICS_PROFILE]
    return " and ".join([*_missing_for_the_kind(cluster), *hpa])


def _missing_for_the_kind(cluster: Mapping[str, Any]) -> Iterator[str]:
    if _value(cluster, "releaseChannel", "channel") not in ("RAPID", UNKNOWN):
        yield "releaseChannel RAPID"
    if begins_before(cluster, _METRICS_VERSION):
        yield f"minMasterVersion {_METRICS_VERSION}"


def enforces_policies(cluster: Mapping[str, Any]) -> bool:
    """Return whether a cluster may enforce NetworkPolicies (GKE, "Use network policies")."""
    has_dataplane = cluster.get("datapathProvider") in ("ADVANCED_DATAPATH", UNKNOWN)
    is_on = _value(cluster, "networkPolicy", "enabled") in (True, UNKNOWN)
    return has_dataplane or is_on or bool(cluster.get("enableAutopilot"))


def begins_before(cluster: Mapping[str, Any], version: str) -> bool:
    """Return whether a cluster is declared to start with an older version of GKE.

    A part of a version means the newest version that begins so.
    """
    declared = _numbers(str(cluster.get("minMasterVersion") or ""))
    return declared < _numbers(version)[: len(declared)]


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def may_be_before(cluster: Mapping[str, Any], version: str) -> bool:
    """Return whether a cluster may run an older version of GKE.

    It may if its release channel still has one, and it is not declared to begin with a newer one.
    The channel upgrades a cluster that begins with an even older version.
    """
    oldest = _OLDEST.get(_value(cluster, "releaseChannel", "channel") or "UNSPECIFIED", "1.0")
    begins = cluster.get("minMasterVersion")
    floors = [oldest, begins] if begins and begins is not UNKNOWN else [oldest]
    return all(begins_before({"minMasterVersion": floor}, version) for floor in floors)


def _value(cluster: Mapping[str, Any], key: str, field: str) -> Any:
    return UNKNOWN if cluster.get(key) is UNKNOWN else section(cluster, key).get(field)
