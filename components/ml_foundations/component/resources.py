"""From a manifest, as Kubernetes writes it, to the arguments of the typed resource of that kind."""

from collections.abc import Mapping
from typing import Any

import pulumi

# What is not awaited must be gone at once when it is deleted, or its replacement would meet it.
NOT_AWAITED = {"pulumi.com/skipAwait": "true", "pulumi.com/deletionPropagationPolicy": "background"}

PARTS = {
    "metadata": "metadata",
    "spec": "spec",
    "data": "data",
    "rules": "rules",
    "subjects": "subjects",
    "roleRef": "role_ref",
    "provisioner": "provisioner",
    "parameters": "parameters",
    "reclaimPolicy": "reclaim_policy",
    "volumeBindingMode": "volume_binding_mode",
    "allowVolumeExpansion": "allow_volume_expansion",
    "allowedTopologies": "allowed_topologies",
    "automountServiceAccountToken": "automount_service_account_token",
    "imagePullSecrets": "image_pull_secrets",
    "type": "type",
    "stringData": "string_data",
    "value": "value",
    "description": "description",
}


def arguments(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments for the class of the manifest's kind; apiVersion and kind are the class's own."""
    return {PARTS[key]: value for key, value in manifest.items() if key not in ("apiVersion", "kind")}


def child_options(parent: pulumi.Resource, **options: Any) -> pulumi.ResourceOptions:
    """Options of a child resource."""
    return pulumi.ResourceOptions(parent=parent, **options)


def merged(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """Two trees as Helm merges values: maps join, anything else of the upper one wins."""
    both = {key: merged(base[key], top[key]) for key in base.keys() & top.keys() if _are_maps(base[key], top[key])}
    return {**base, **top, **both}


def _are_maps(*values: Any) -> bool:
    return all(isinstance(value, Mapping) for value in values)


def without_none(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """A mapping without the keys of which nothing was said."""
    return {key: value for key, value in mapping.items() if value is not None}
