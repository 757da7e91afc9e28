"""Facts about Kueue: API version, frameworks and configuration."""

from collections.abc import Mapping
from typing import Any, cast

from ml_foundations.kubernetes.objects import Manifest, api_object, name_of, section
from ml_foundations.kubernetes.reading import ReadError, embedded_yaml
from ml_foundations.kubernetes.trees import UNKNOWN, Unknown, is_mapping, unknown_paths

API_VERSION = "kueue.x-k8s.io/v1beta2"
NAMESPACE = "kueue-system"

_LISTS: Mapping[str, type] = {
    "resources.excludeResourcePrefixes": str,
    "resources.transformations": dict,
    "resources.deviceClassMappings": dict,
    "integrations.frameworks": str,
    "managedJobsNamespaceSelector.matchExpressions": dict,
}
"""The lists in a configuration that planning reads, with the type of their items."""


def configuration_of(values: Mapping[str, Any]) -> Mapping[str, Any] | Unknown | None:
    """Return Kueue's configuration in the values of its chart; None if the chart's own applies.

    It is UNKNOWN if it cannot be read.
    """
    text = section(values, "managerConfig").get("controllerManagerConfigYaml")
    try:
        return None if text is None else _parsed(text)
    except ReadError:
        return UNKNOWN


def configuration_object(values: Manifest | Unknown) -> Manifest | None:
    """Return Kueue's configuration in the values of its chart, or None for the chart's default."""
    if isinstance(values, Unknown):
        return _as_object(UNKNOWN, "")
    text = section(values, "managerConfig").get("controllerManagerConfigYaml")
    return None if text is None else _as_object(text, "managerConfig.controllerManagerConfigYaml")


def mounted_configuration(config_map: Manifest) -> Manifest | None:
    """Return Kueue's configuration in its ConfigMap, or None for another ConfigMap."""
    text = section(config_map, "data").get("controller_manager_config.yaml")
    is_kueue = config_map["kind"] == "ConfigMap" and name_of(config_map) == "kueue-manager-config"
    field = "ConfigMap kueue-manager-config.data.controller_manager_config.yaml"
    return _as_object(text, field) if is_kueue and text is not None else None


def _as_object(text: Any, field: str) -> Manifest:
    version = "config.kueue.x-k8s.io/v1beta2"
    metadata = {"name": "kueue"}
    fields: dict[str, Any] = {"resources": UNKNOWN}
    try:
        parsed = _parsed(text)
    except ReadError as error:
        fields["unreadable"] = f"{field}: it cannot be read: {error}"
    else:
        if not isinstance(parsed, Unknown):
            fields = {key: parsed.get(key) or {} for key in ("resources", "featureGates")}
    return api_object(version, "Configuration", metadata, **fields)


def _parsed(text: Any) -> Mapping[str, Any] | Unknown:
    """Return a configuration whose lists have the items that planning reads, or UNKNOWN.

    Raises:
        ReadError: It cannot be read, or a value has another type.
    """
    if any(unknown_paths(text)):
        return UNKNOWN
    parsed = embedded_yaml(text)
    for path, type_ in _LISTS.items():
        *parents, last = path.split(".")
        holder: Any = parsed
        for key in parents:
            holder = (holder.get(key) or {}) if is_mapping(holder) else None
        if not is_mapping(holder):
            raise ReadError(f"{'.'.join(parents)} must be a mapping")
        listed: Any = holder.get(last) or []
        if not isinstance(listed, list) or {*map(type, cast("list[Any]", listed))} - {type_}:
            raise ReadError(f"{path} must be a list of {'texts' if type_ is str else 'mappings'}")
    return parsed


def ignores_claims(configuration: Manifest) -> bool:
    """Return whether Kueue ignores claims of devices. By default it counts them, or refuses them.

    See kueue v0.19.2, pkg/dra: NeedsDRAReconcile.
    """
    gates = section(configuration, "featureGates")
    off = ("KueueDRAIntegration", "KueueDRARejectWorkloadsWhenDRADisabled")
    return all(gates.get(gate) is False for gate in off)


PROVISIONING_CLASS = "queued-provisioning.gke.io"
"""The class of ProvisioningRequests that GKE answers: all nodes at once."""
