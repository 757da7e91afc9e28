"""Streams of YAML documents as manifests, checked as far as planning reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import yaml

from ml_foundations.kubernetes.manifests import UNKNOWN, Manifest
from ml_foundations.kubernetes.quantities import parse_quantity
from ml_foundations.planning.input.streams import parse
from ml_foundations.planning.model.nodes import HOURLY_PRICE, MAX_NODES, MIN_NODES
from ml_foundations.planning.model.workloads import WORKLOAD_KINDS

_Check = Callable[[Any, str], Iterable[tuple[str, str]]]
"""What is wrong with a value at a field path: path and reason."""


class UnreadableError(ValueError):
    """Input that cannot be judged; each error names file, document and field."""

    def __init__(self, errors: list[str]) -> None:
        super().__init__("\n".join(errors))
        self.errors = errors


def read(text: str, file: str) -> list[Manifest]:
    """The manifests of a stream of YAML documents; a List gives its items.

    Args:
        text: The stream.
        file: What to call it in messages.

    Raises:
        UnreadableError: It is no YAML, or a field that planning reads is wrong; names every one.
    """
    try:
        parsed = parse(text)
    except yaml.YAMLError as error:
        raise UnreadableError([f"{file}: {' '.join(str(error).split())}"]) from None
    found: list[Manifest] = []
    errors: list[str] = []
    for number, path, manifest in parsed:
        wrong = [f"{path}{field}: {reason}" for field, reason in _errors(manifest)]
        errors += [f"{file}: document {number}: {error}" for error in wrong]
        if not wrong:
            found.append(manifest)
    if errors:
        raise UnreadableError(errors)
    return found


def _errors(manifest: Any) -> list[tuple[str, str]]:
    """What is wrong with the fields of a manifest that planning reads: path and reason."""
    if not isinstance(manifest, Mapping):
        return [("", f"must be a Kubernetes object, not {_shown(manifest)}")]
    document = cast("Manifest", manifest)
    kind = document.get("kind")
    if not isinstance(kind, str) or not kind:
        return [("kind", "is required")]
    required = ("metadata", "spec") if kind in WORKLOAD_KINDS else ("metadata",)
    check = _object({**_METADATA, **_KINDS.get(kind, {})}, required)
    return [(path.lstrip("."), reason) for path, reason in check(document, "")]


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _check(valid: Callable[[Any], bool], wanted: str, hint: str = "") -> _Check:
    """A check of values that are given and known."""

    def check(value: Any, path: str) -> Iterable[tuple[str, str]]:
        if value is not None and value is not UNKNOWN and not valid(value):
            yield path, f"must be {wanted}, not {_shown(value)}{hint}"

    return check


def _is_integer(value: Any, least: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _integer(least: int) -> _Check:
    return _check(lambda value: _is_integer(value, least), f"a whole number of at least {least}")


def _is_percentage(value: Any) -> bool:
    return _is_integer(value) or (isinstance(value, str) and value.endswith("%") and value[:-1].isdigit())


def _is_price(value: Any) -> bool:
    try:
        return parse_quantity(value) >= 0
    except ValueError:
        return False


_text = _check(lambda value: isinstance(value, str), "a string", "; put it in quotes")
_boolean = _check(lambda value: isinstance(value, bool), "true or false")
_percentage = _check(_is_percentage, 'a whole number or a percentage such as "25%"')
_price = _check(_is_price, 'an amount in quotes, such as "1.25"')
_integer_text = _check(
    lambda value: isinstance(value, str) and value.isascii() and value.isdigit(),
    'a whole number in quotes, such as "4"',
)
_is_map = _check(lambda value: isinstance(value, Mapping), "a mapping")
_is_list = _check(lambda value: isinstance(value, list), "a list")


def _quantity(value: Any, path: str) -> Iterable[tuple[str, str]]:
    if value is None or value is UNKNOWN:
        return
    try:
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise ValueError(f"{_shown(value)} is not a Kubernetes quantity, such as 500m, 2 or 16Gi")
        if parse_quantity(value) < 0:
            yield path, f"must not be negative, as {_shown(value)} is"
    except ValueError as error:
        yield path, str(error)


def _map(check: _Check) -> _Check:
    def checked(value: Any, path: str) -> Iterable[tuple[str, str]]:
        yield from _is_map(value, path)
        for key, item in cast("Manifest", value).items() if isinstance(value, Mapping) else ():
            yield from check(item, f"{path}.{key}")

    return checked


def _list(check: _Check) -> _Check:
    def checked(value: Any, path: str) -> Iterable[tuple[str, str]]:
        yield from _is_list(value, path)
        for index, item in enumerate(cast("list[Any]", value)) if isinstance(value, list) else ():
            if item is None:
                yield f"{path}[{index}]", "must not be empty"
            yield from check(item, f"{path}[{index}]")

    return checked


def _object(fields: Mapping[str, _Check], required: tuple[str, ...] = ()) -> _Check:
    def checked(value: Any, path: str) -> Iterable[tuple[str, str]]:
        yield from _is_map(value, path)
        if isinstance(value, Mapping):
            held = cast("Manifest", value)
            yield from ((f"{path}.{key}", "is required") for key in required if held.get(key) is None)
            for key in (key for key in fields if key in held):
                yield from fields[key](held[key], f"{path}.{key}")

    return checked


_QUANTITIES = _map(_quantity)
_TEXTS = _map(_text)
_RESOURCES = _object({"requests": _QUANTITIES, "limits": _QUANTITIES})
_PORT = _object({"hostPort": _integer(0), "containerPort": _integer(0), "hostIP": _text, "protocol": _text})
_CONTAINER = _object({"name": _text, "resources": _RESOURCES, "ports": _list(_PORT), "restartPolicy": _text})
_REQUIREMENT = _object({"key": _text, "operator": _text, "values": _list(_text)}, ("key", "operator"))
_SELECTOR = _object({"matchLabels": _TEXTS, "matchExpressions": _list(_REQUIREMENT)})
_NODE_TERM = _object({"matchExpressions": _list(_REQUIREMENT), "matchFields": _list(_REQUIREMENT)})
_NODE_SELECTOR = _object({"nodeSelectorTerms": _list(_NODE_TERM)})
_AFFINITY_TERM = _object(
    {
        "topologyKey": _text,
        "labelSelector": _SELECTOR,
        "namespaces": _list(_text),
        "namespaceSelector": _SELECTOR,
        "matchLabelKeys": _list(_text),
        "mismatchLabelKeys": _list(_text),
    },
    ("topologyKey",),
)
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_POD_AFFINITY = _object({_REQUIRED: _list(_AFFINITY_TERM)})
_SPREAD = _object(
    {
        "maxSkew": _integer(1),
        "topologyKey": _text,
        "minDomains": _integer(1),
        "labelSelector": _SELECTOR,
        "matchLabelKeys": _list(_text),
    },
    ("maxSkew", "topologyKey"),
)
_CLAIM_SPEC = _object(
    {"accessModes": _list(_text), "storageClassName": _text, "volumeName": _text, "resources": _RESOURCES}
)
_VOLUME = _object(
    {
        "persistentVolumeClaim": _object({"claimName": _text}, ("claimName",)),
        "ephemeral": _object({"volumeClaimTemplate": _object({"spec": _CLAIM_SPEC})}),
    }
)
_POD_SPEC = _object(
    {
        "containers": _list(_CONTAINER),
        "initContainers": _list(_CONTAINER),
        "resources": _RESOURCES,
        "overhead": _QUANTITIES,
        "nodeName": _text,
        "nodeSelector": _TEXTS,
        "affinity": _object(
            {
                "nodeAffinity": _object({_REQUIRED: _NODE_SELECTOR}),
                "podAffinity": _POD_AFFINITY,
                "podAntiAffinity": _POD_AFFINITY,
            }
        ),
        "tolerations": _list(_object({"key": _text, "operator": _text, "value": _text, "effect": _text})),
        "topologySpreadConstraints": _list(_SPREAD),
        "hostNetwork": _boolean,
        "priority": _integer(-(2**31)),
        "priorityClassName": _text,
        "volumes": _list(_VOLUME),
    },
    ("containers",),
)
_POD_METADATA = _object({"labels": _TEXTS, "annotations": _TEXTS})
_TEMPLATE = _object({"metadata": _POD_METADATA, "spec": _POD_SPEC}, ("spec",))
_JOB_SPEC = _object({"parallelism": _integer(0), "completions": _integer(0), "template": _TEMPLATE}, ("template",))
_CLAIM = _object({"metadata": _object({"name": _text}), "spec": _CLAIM_SPEC})
_REPLICATED = _object(
    {
        "replicas": _integer(0),
        "template": _TEMPLATE,
        "strategy": _object({"type": _text, "rollingUpdate": _object({"maxSurge": _percentage})}),
        "volumeClaimTemplates": _list(_CLAIM),
    },
    ("template",),
)
_LIMIT = _object(
    {
        "type": _text,
        **{key: _QUANTITIES for key in ("min", "max", "default", "defaultRequest", "maxLimitRequestRatio")},
    },
    ("type",),
)
_SCOPE = _object({"scopeName": _text, "operator": _text, "values": _list(_text)}, ("scopeName", "operator"))
_ANNOTATIONS = _object({MAX_NODES: _integer_text, MIN_NODES: _integer_text, HOURLY_PRICE: _price})
_METADATA: Mapping[str, _Check] = {
    "metadata": _object({"name": _text, "namespace": _text, "labels": _TEXTS, "annotations": _ANNOTATIONS}, ("name",))
}
_REPLICATED_OBJECT: Mapping[str, _Check] = {"spec": _REPLICATED}
_KINDS: Mapping[str, Mapping[str, _Check]] = {
    "Node": {
        "spec": _object({"taints": _list(_object({"key": _text, "value": _text, "effect": _text}, ("key", "effect")))}),
        "status": _object({"allocatable": _QUANTITIES}),
    },
    "Pod": {"spec": _POD_SPEC, "status": _object({"phase": _text})},
    "Job": {"spec": _JOB_SPEC},
    "CronJob": {
        "spec": _object({"jobTemplate": _object({"spec": _JOB_SPEC}, ("spec",))}, ("jobTemplate",)),
    },
    "JobSet": {
        "spec": _object(
            {
                "replicatedJobs": _list(
                    _object(
                        {"replicas": _integer(0), "template": _object({"spec": _JOB_SPEC}, ("spec",))},
                        ("template",),
                    )
                )
            }
        )
    },
    **dict.fromkeys(
        ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController"), _REPLICATED_OBJECT
    ),
    "ResourceQuota": {
        "spec": _object(
            {
                "hard": _QUANTITIES,
                "scopes": _list(_text),
                "scopeSelector": _object({"matchExpressions": _list(_SCOPE)}),
            }
        ),
        "status": _object({"used": _QUANTITIES}),
    },
    "LimitRange": {"spec": _object({"limits": _list(_LIMIT)})},
    "PriorityClass": {"value": _integer(-(2**31)), "globalDefault": _boolean, "preemptionPolicy": _text},
    "PersistentVolumeClaim": {"spec": _CLAIM_SPEC},
    "PersistentVolume": {
        "spec": _object(
            {
                "capacity": _QUANTITIES,
                "accessModes": _list(_text),
                "storageClassName": _text,
                "nodeAffinity": _object({"required": _NODE_SELECTOR}),
            }
        )
    },
    "HorizontalPodAutoscaler": {
        "spec": _object(
            {
                "minReplicas": _integer(0),
                "maxReplicas": _integer(1),
                "scaleTargetRef": _object({"kind": _text, "name": _text}, ("kind", "name")),
            },
            ("scaleTargetRef", "maxReplicas"),
        )
    },
}
