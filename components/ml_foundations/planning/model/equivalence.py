"""Equivalence of nodes and of workloads: there may be thousands, of a few kinds."""

import json
import re
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, cast

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import Manifest, items, labels_of, name_of, section
from ml_foundations.kubernetes.trees import is_mapping
from ml_foundations.planning.model.node_groups import PodClass
from ml_foundations.planning.model.nodes import NodeClass
from ml_foundations.planning.model.performance import fingerprint, identity
from ml_foundations.planning.model.workloads import OF_JOB, Workload, is_stored

_READ_LABELS = frozenset(value for value in vars(labels).values() if isinstance(value, str))
"""The labels that planning itself reads."""
_COMPARISONS = {"Gt", "Lt"}
_COMPARED = frozenset({"Pod", "Job", "Deployment", "ReplicaSet", "StatefulSet"})
_PLAIN_NAME = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?", re.ASCII)
"""A valid name that is so short that the names derived from it are valid too."""
_WORDS = "[A-Za-z0-9]+([-_.][A-Za-z0-9]+)*"
_PLAIN_LABEL = re.compile(rf"(?=.{{1,63}}\Z)(app\.kubernetes\.io/)?{_WORDS}={_WORDS}")
"""A label that is valid, and that no controller reads."""


def mentions(trees: Iterable[Any]) -> frozenset[str]:
    """Return every key and every string in some documents: rules compare only with these."""
    strings: set[str] = set()
    pending = list(trees)
    while pending:
        tree = pending.pop()
        if isinstance(tree, str):
            strings.add(tree)
        elif is_mapping(tree):
            strings.update(tree)
            pending += tree.values()
        elif isinstance(tree, (list, tuple)):
            pending += cast("Sequence[Any]", tree)
    return frozenset(strings)


def grouped(
    nodes: Iterable[NodeClass], running: Mapping[str, Sequence[PodClass]], mentioned: frozenset[str]
) -> list[tuple[NodeClass, Sequence[PodClass]]]:
    """Return nodes with the pods on each: equivalent nodes as one class, named by the first."""
    known: dict[Hashable, PodClass] = {}
    groups: dict[Hashable, tuple[list[NodeClass], list[PodClass]]] = {}
    read = (_READ_LABELS | mentioned) - {labels.HOSTNAME}
    compares_names = bool(_COMPARISONS & mentioned) and labels.HOSTNAME in mentioned
    for node in nodes:
        pods = () if node.is_template else running.get(node.name, ())
        pod_keys = [_pod_key(pod, mentioned) for pod in pods]
        name = name_of(node.manifest)
        # A node whose name is mentioned in the documents is a separate class. Of labels, those that
        # the documents mention or planning reads are compared.
        is_alone = (
            node.is_template
            or compares_names
            or name in mentioned
            or node.labels.get(labels.HOSTNAME) != name
        )
        key: Hashable = identity(node)
        if not is_alone:
            compared = [_only(node.labels, read), node.taints, node.allocatable]
            key = (fingerprint(compared) or key, *sorted(pod_keys))
        if key not in groups:
            groups[key] = [], list(map(known.setdefault, pod_keys, pods))
        groups[key][0].append(node)
    classes: list[tuple[NodeClass, Sequence[PodClass]]] = []
    for (first, *rest), pods in groups.values():
        name = f"{first.name} and {len(rest)} like it"
        as_one = replace(first, name=name, count=len(rest) + 1) if rest else first
        classes.append((as_one, pods))
    return classes


def _only(mapping: Mapping[str, Any], keys: Set[str]) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if key in keys}


def _pod_key(pod: PodClass, mentioned: frozenset[str]) -> str:
    """Return the fields of a running pod by which it decides about other pods, as text."""
    compared = [
        pod.namespace,
        _only(pod.labels, mentioned),
        [volume for volume in items(pod.spec, "volumes") if volume.keys() - {"name"}],
        section(pod.spec, "affinity").get("podAntiAffinity"),
        pod.requests,
        sorted(pod.ports),
        pod.priority,
        pod.recreated,
        sorted(pod.exclusive_claims),
    ]
    return json.dumps(compared, sort_keys=True, default=str)


def equivalence_key(
    workload: Workload, selected: Set[str], declared: Set[str]
) -> tuple[bytes, bytes] | None:
    """Return the shape of a workload and the amounts that it requests, as bytes to compare.

    Workloads with equal bytes are equivalent. Names, other labels, arguments and values of
    environment variables are not compared, nor is a namespace without declared objects. Return
    None if the workload is in a cluster, is of a kind that creates other objects, or has a name
    that may be invalid.

    ``selected`` are the keys of labels that any pod's affinity or spread constraint selects, and
    ``declared`` the namespaces with declared objects.
    """
    manifest = workload.manifest
    namespace = workload.namespace
    if workload.kind not in _COMPARED or workload.claims or is_stored(manifest):
        return None
    if not _PLAIN_NAME.fullmatch(str(workload.name)):
        return None
    [pods] = workload.pods
    spec = section(pods.template, "spec")
    has_plain_namespace = bool(_PLAIN_NAME.fullmatch(str(namespace)))
    if has_plain_namespace and namespace not in declared and "affinity" not in spec:
        namespace = ""
    metadata = _metadata(manifest, selected)
    metadata |= {} if namespace else {"namespace": ""}
    controller = {}
    if workload.kind != "Pod":
        controller = _without(section(manifest, "spec"), ("template",))
    if controller.get("selector") == {"matchLabels": labels_of(pods.template)}:
        controller["selector"] = "its own"
    init_containers = items(spec, "initContainers")
    containers = items(spec, "containers")
    shape = fingerprint(
        [
            workload.kind,
            manifest.get("apiVersion"),
            namespace,
            pods.count,
            workload.ceiling,
            metadata,
            _metadata(pods.template, selected),
            _only(pods.labels, selected),
            controller,
            _without(spec, ("containers", "initContainers")),
            [_shape(container) for container in containers],
            [_shape(container) for container in init_containers],
        ]
    )
    amounts: list[Any] = []
    for container in (*containers, *init_containers):
        resources = section(container, "resources")
        amounts += [resources.get("requests"), resources.get("limits")]
    requested = fingerprint(amounts)
    return (shape, requested) if shape and requested else None


def _without(mapping: Manifest, keys: Collection[str]) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if key not in keys}


def _metadata(holder: Manifest, read: Set[str]) -> dict[str, Any]:
    """Return an object's metadata without its name and without labels that nothing reads."""
    metadata = section(holder, "metadata")
    kept: dict[str, Any] = {}
    for key, value in section(metadata, "labels").items():
        if key in read or key in OF_JOB or not _PLAIN_LABEL.fullmatch(f"{key}={value}"):
            kept[key] = value
    return {**metadata, "name": "", "labels": kept}


def _shape(container: Manifest) -> Any:
    """Return a container without its arguments, its amounts and the values of its variables."""
    env = container.get("env")
    variables: list[Any] = []
    for variable in cast("list[Any]", env) if isinstance(env, list) else [env]:
        if is_mapping(variable):
            # A variable is only compared by whether it has a value.
            variable = {**variable, "value": bool(variable.get("value"))}
        variables.append(variable)
    resources = _without(section(container, "resources"), ("requests", "limits"))
    return _without(container, ("args", "command", "env", "resources")), resources, variables
