"""Nodes that nothing tells apart, taken together: a live cluster has thousands, of a few kinds."""

import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.manifests import is_mapping, items, name_of, section
from ml_foundations.planning.model.nodes import NodeClass
from ml_foundations.planning.model.places import PodClass

_READ_LABELS = frozenset(value for value in vars(labels).values() if isinstance(value, str)) - {labels.HOSTNAME}
"""The labels that planning itself reads."""
_COMPARISONS = {"Gt", "Lt"}


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


def together(
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
    compares_names = bool(_COMPARISONS & mentioned) and labels.HOSTNAME in mentioned
    for node in nodes:
        own = running.get(node.name, ()) if not node.is_template else ()
        pods = [(_pod_key(pod, mentioned), pod) for pod in own]
        name = name_of(node.manifest)
        is_alone = node.is_template or compares_names or name in mentioned or node.labels.get(labels.HOSTNAME) != name
        key = id(node) if is_alone else (_node_key(node, mentioned), *sorted(key for key, _ in pods))
        group = groups.setdefault(key, ([], [known.setdefault(each, pod) for each, pod in pods]))
        group[0].append(node)
    return [(_as_one(alike), pods) for alike, pods in groups.values()]


def _as_one(nodes: Sequence[NodeClass]) -> NodeClass:
    first, others = nodes[0], len(nodes) - 1
    return replace(first, name=f"{first.name} and {others} like it", count=len(nodes)) if others else first


def _node_key(node: NodeClass, mentioned: frozenset[str]) -> Hashable:
    mine = [each for each in node.labels.items() if each[0] in _READ_LABELS or each[0] in mentioned]
    told = frozenset(each for each in mine if each[0] != labels.HOSTNAME)
    return told, repr(node.taints), frozenset(node.allocatable.items())


def _pod_key(pod: PodClass, mentioned: frozenset[str]) -> str:
    """What decides of a pod that runs: its room, its neighbours, its volumes and whether it gives way."""
    own = {key: value for key, value in pod.labels.items() if key in mentioned}
    volumes = [volume for volume in items(pod.spec, "volumes") if volume.keys() - {"name"}]
    anti_affinity = section(pod.spec, "affinity").get("podAntiAffinity")
    others = [pod.requests, sorted(pod.ports), pod.priority, pod.recreated, sorted(pod.exclusive_claims)]
    return json.dumps([pod.namespace, own, volumes, anti_affinity, *others], sort_keys=True, default=str)
