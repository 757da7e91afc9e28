"""Facts about Kueue: API version, frameworks and configuration."""

from collections.abc import Mapping
from typing import Any

import yaml

from ml_foundations.kubernetes.objects import Manifest, api_object, name_of, section
from ml_foundations.kubernetes.trees import UNKNOWN, Unknown, is_mapping, unknown_paths

API_VERSION = "kueue.x-k8s.io/v1beta2"
NAMESPACE = "kueue-system"

FRAMEWORKS: Mapping[str, tuple[str, ...]] = {
    "Job": ("batch/job",),
    "JobSet": ("jobset.x-k8s.io/jobset",),
    "TrainJob": ("trainer.kubeflow.org/trainjob",),
    "RayCluster": ("ray.io/raycluster",),
    "RayJob": ("ray.io/rayjob",),
    "Pod": ("pod",),
    "Deployment": ("pod", "deployment"),
    "StatefulSet": ("pod", "statefulset"),
    "LeaderWorkerSet": ("pod", "leaderworkerset.x-k8s.io/leaderworkerset"),
}
"""The integrations of Kueue that a kind of workload needs (kueue v0.19.2, pkg/controller/jobs:
DependencyList)."""

_DEFAULT_FRAMEWORKS = frozenset({"batch/job"})
"""Those of a configuration that names none (kueue v0.19.2, apis/config/v1beta2/defaults.go)."""


def configuration_of(values: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return Kueue's configuration in the values of its chart; None if the chart's own applies."""
    text = section(values, "managerConfig").get("controllerManagerConfigYaml")
    return None if text is None else yaml.safe_load(str(text)) or {}


def configuration_object(values: Manifest | Unknown) -> Manifest | None:
    """Return Kueue's configuration in the values of its chart, or None for the chart's default."""
    if isinstance(values, Unknown):
        return _as_object(UNKNOWN)
    found = configuration_of(values)
    return None if found is None else _as_object(found)


def mounted_configuration(config_map: Manifest) -> Manifest | None:
    """Return Kueue's configuration in its ConfigMap, or None for another ConfigMap."""
    text = section(config_map, "data").get("controller_manager_config.yaml")
    is_kueue = config_map["kind"] == "ConfigMap" and name_of(config_map) == "kueue-manager-config"
    if not is_kueue or text is None:
        return None
    try:
        found = UNKNOWN if any(unknown_paths(text)) else yaml.safe_load(str(text))
    except yaml.YAMLError:
        found = UNKNOWN
    return _as_object(found)


def _as_object(found: Any) -> Manifest:
    version, metadata = "config.kueue.x-k8s.io/v1beta2", {"name": "kueue"}
    fields: dict[str, Any] = {"resources": UNKNOWN}
    if is_mapping(found):
        fields = {key: found.get(key) or {} for key in ("resources", "featureGates")}
    return api_object(version, "Configuration", metadata, **fields)


def ignores_claims(configuration: Manifest) -> bool:
    """Return whether Kueue ignores claims of devices. By default it counts them, or refuses them.

    See kueue v0.19.2, pkg/dra: NeedsDRAReconcile.
    """
    gates = section(configuration, "featureGates")
    off = ("KueueDRAIntegration", "KueueDRARejectWorkloadsWhenDRADisabled")
    return all(gates.get(gate) is False for gate in off)


def frameworks_of(values: Mapping[str, Any]) -> frozenset[str]:
    """Return the frameworks that a release of Kueue's chart enables; by default, all."""
    configuration = configuration_of(values)
    if configuration is None:
        return frozenset(name for names in FRAMEWORKS.values() for name in names)
    declared = section(configuration, "integrations").get("frameworks")
    return frozenset(declared or _DEFAULT_FRAMEWORKS)


PROVISIONING_CLASS = "queued-provisioning.gke.io"
"""The class of ProvisioningRequests that GKE answers: all nodes at once."""
