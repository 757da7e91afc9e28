"""The package's schema for programs that are no Python: every kind that the SDK knows, with its properties untyped."""

from __future__ import annotations

import importlib
import inspect
import re
from functools import cache
from typing import Any, Literal, get_args, get_origin

from ml_foundations.rehearsal.plugins.sdk import ANY, modules

CLUSTER_SCOPED = (
    *("APIService", "AuditSink", "CSIDriver", "CSINode", "CertificateSigningRequest", "ClusterCIDR", "ClusterRole"),
    *("ClusterRoleBinding", "ClusterTrustBundle", "CustomResourceDefinition", "DeviceClass", "DeviceTaintRule"),
    *("FlowSchema", "IPAddress", "IngressClass", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"),
    *("MutatingWebhookConfiguration", "Namespace", "Node", "PersistentVolume", "PodSecurityPolicy", "PriorityClass"),
    *("PriorityLevelConfiguration", "ResourceClass", "ResourceSlice", "RuntimeClass", "ServiceCIDR", "StorageClass"),
    *("StorageVersionMigration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
    *("ValidatingWebhookConfiguration", "VolumeAttachment", "VolumeAttributesClass"),
)
"""The kinds of Kubernetes' own whose objects have no namespace."""


@cache
def tokens() -> frozenset[str]:
    """The types of Kubernetes' own kinds, such as ``kubernetes:core/v1:Pod``."""
    return frozenset(token for module in modules("pulumi_kubernetes") for token in module["classes"])


def is_namespaced(api_version: str, kind: str) -> bool | None:
    """Whether objects of one of Kubernetes' own kinds have a namespace; None for a kind of a CRD."""
    group = api_version if "/" in api_version else f"core/{api_version}"
    return kind not in CLUSTER_SCOPED if f"kubernetes:{group}:{kind}" in tokens() else None


@cache
def resources() -> dict[str, Any]:
    """The schema of each resource type, by its token."""
    return {
        token: _resource(getattr(importlib.import_module(module["fqn"]), name))
        for module in modules("pulumi_kubernetes")
        for token, name in module["classes"].items()
    }


def provider() -> dict[str, Any]:
    """The schema of the provider itself."""
    return {"inputProperties": _resource(importlib.import_module("pulumi_kubernetes").Provider)["inputProperties"]}


def _resource(kind: Any) -> dict[str, Any]:
    parameters = list(inspect.signature(kind._internal_init).parameters.values())[3:-1]
    inputs = {_camel_case(parameter.name): _property(parameter.annotation) for parameter in parameters}
    getters: list[Any] = [prop.fget for prop in vars(kind).values() if isinstance(prop, property)]
    outputs = [getter._pulumi_name for getter in getters]
    return {"inputProperties": inputs, "properties": {name: inputs.get(name, ANY) for name in outputs}}


def _property(annotation: Any) -> dict[str, Any]:
    """Anything, but for apiVersion and kind: a kind has but one of each."""
    for choice in get_args(annotation):
        if get_origin(choice) is Literal:
            return {"type": "string", "const": get_args(choice)[0]}
    return ANY


def _camel_case(name: str) -> str:
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), name)
