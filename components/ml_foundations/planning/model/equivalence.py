"""Nodes and workloads that nothing tells apart: there may be thousands, of a few kinds."""

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
from ml_foundations.planning.model.performance import fingerprint
from ml_foundations.planning.model.workloads import OF_JOB, Workload, is_stored

_READ_LABELS = frozenset(value for value in vars(labels).values() if isinstance(value, str))
"""The labels that planning itself reads."""
_COMPARISONS = {"Gt", "Lt"}
_COMPARED = frozenset({"Pod", "Job", "Deployment", "ReplicaSet", "StatefulSet"})
_LISTS = ("containers", "initContainers")
_AMOUNTS = ("requests", "limits")
_PLAIN_NAME = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?", re.ASCII)
"""A name that is valid, and so is every name that is made of it."""
_WORDS = "[A-Za-z0-9]+([-_.][A-Za-z0-9]+)*"
_PLAIN_LABEL = re.compile(rf"(?=.{{1,63}}\Z)(app\.kubernetes\.io/)?{_WORDS}={_WORDS}")
"""A label that is valid, and that no controller reads."""


def mentions(trees: Iterable[Any]) -> frozenset[str]:
    """Every key and every string in some documents: what can tell nodes or pods apart."""
    found: set[str] = set()
    left = list(trees)
    while left:
        tree = left.pop()
        if isinstance(tree, str):
            found.add(tree)
        elif is_mapping(tree):
            found.update(tree)
            left += tree.values()
        elif isinstance(tree, (list, tuple)):
            left += cast("Sequence[Any]", tree)
    return frozenset(found)


def grouped(
    nodes: Iterable[NodeClass], running: Mapping[str, Sequence[PodClass]], mentioned: frozenset[str]
) -> list[tuple[NodeClass, Sequence[PodClass]]]:
    """Nodes with the pods on each; those that are alike as one class, under the name of the first.

    Args:
        nodes: All nodes.
        running: The pods that take room already, by the name of their node.
        mentioned: What documents mention: nodes that are named stay alone, and other labels than these decide nothing.
    """
    known: dict[Hashable, PodClass] = {}
    groups: dict[Hashable, tuple[list[NodeClass], list[PodClass]]] = {}
    read = (_READ_LABELS | mentioned) - {labels.HOSTNAME}
    compares_names = bool(_COMPARISONS & mentioned) and labels.HOSTNAME in mentioned
    for node in nodes:
        own = running.get(node.name, ()) if not node.is_template else ()
        pods = [(_pod_key(pod, mentioned), pod) for pod in own]
        name = name_of(node.manifest)
        is_alone = (
            node.is_template
            or compares_names
            or name in mentioned
            or node.labels.get(labels.HOSTNAME) != name
        )
        key = id(node) if is_alone else (_node_key(node, read), *sorted([key for key, _ in pods]))
        if key not in groups:
            groups[key] = [], [known.setdefault(each, pod) for each, pod in pods]
        groups[key][0].append(node)
    return [(_as_one(alike), pods) for alike, pods in groups.values()]


def _as_one(nodes: Sequence[NodeClass]) -> NodeClass:
    first, others = nodes[0], len(nodes) - 1
    return (
        replace(first, name=f"{first.name} and {others} like it", count=len(nodes))
        if others
        else first
    )


def _node_key(node: NodeClass, read: Set[str]) -> Hashable:
    told = {key: value for key, value in node.labels.items() if key in read}
    return fingerprint([told, node.taints, node.allocatable]) or id(node)


def _pod_key(pod: PodClass, mentioned: frozenset[str]) -> str:
    """What decides of a pod that runs: its room, its neighbours, its volumes and whether it gives way."""
    own = {key: value for key, value in pod.labels.items() if key in mentioned}
    volumes = [volume for volume in items(pod.spec, "volumes") if volume.keys() - {"name"}]
    anti_affinity = section(pod.spec, "affinity").get("podAntiAffinity")
    others = [
        pod.requests,
        sorted(pod.ports),
        pod.priority,
        pod.recreated,
        sorted(pod.exclusive_claims),
    ]
    return json.dumps(
        [pod.namespace, own, volumes, anti_affinity, *others], sort_keys=True, default=str
    )


def equivalence_key(
    workload: Workload, selected: Set[str], declared: Set[str]
) -> tuple[bytes, bytes] | None:
    """What decides about a workload but for the amounts that its containers ask for, and these amounts.

    Names, labels, arguments and values of variables decide nothing, nor does a namespace that nothing is declared of.
    None for what is in a cluster, for kinds that make other objects of their own, and where a name may be wrong.

    Args:
        workload: The workload.
        selected: The keys of labels that any pod's affinity or spreading looks at.
        declared: The namespaces of which something is declared.
    """
    manifest, namespace = workload.manifest, workload.namespace
    if workload.kind not in _COMPARED or workload.claims or is_stored(manifest):
        return None
    if not _PLAIN_NAME.fullmatch(str(workload.name)):
        return None
    [pods] = workload.pods
    own, spec = section(manifest, "spec"), section(pods.template, "spec")
    if (
        namespace not in declared
        and "affinity" not in spec
        and _PLAIN_NAME.fullmatch(str(namespace))
    ):
        namespace = ""
    told = {key: value for key, value in pods.labels.items() if key in selected}
    metadata = [_metadata(holder, selected) for holder in (manifest, pods.template)]
    metadata[0] |= {} if namespace else {"namespace": ""}
    own = _without(own, ("template",)) if workload.kind != "Pod" else {}
    if own.get("selector") == {"matchLabels": labels_of(pods.template)}:
        own["selector"] = "its own"
    containers = [each for key in _LISTS for each in items(spec, key)]
    rest = [
        _without(spec, _LISTS),
        *(len(items(spec, key)) for key in _LISTS),
        *map(_shape, containers),
    ]
    parts = [
        workload.kind,
        manifest.get("apiVersion"),
        namespace,
        pods.count,
        workload.ceiling,
        metadata,
        told,
        own,
    ]
    amounts = [section(each, "resources").get(field) for each in containers for field in _AMOUNTS]
    shape, asked = fingerprint([*parts, *rest]), fingerprint(amounts)
    return (shape, asked) if shape and asked else None


def _without(fields: Manifest, left_out: Collection[str]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key not in left_out}


def _metadata(holder: Manifest, read: Set[str]) -> dict[str, Any]:
    """An object's metadata without its name and the labels that say nothing to anybody here."""
    metadata = section(holder, "metadata")
    own = section(metadata, "labels").items()
    kept = {
        key: value
        for key, value in own
        if key in read or key in OF_JOB or not _PLAIN_LABEL.fullmatch(f"{key}={value}")
    }
    return {**metadata, "name": "", "labels": kept}


def _shape(container: Manifest) -> Any:
    """A container without its arguments and amounts, and of its variables only whether they have a value."""
    env = container.get("env")
    listed = cast("list[Any]", env) if isinstance(env, list) else [env]
    shapes = [
        {**each, "value": bool(each.get("value"))} if is_mapping(each) else each for each in listed
    ]
    others = _without(section(container, "resources"), _AMOUNTS)
    return _without(container, ("args", "command", "env", "resources")), others, shapes
