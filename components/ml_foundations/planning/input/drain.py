"""A cluster without some of its nodes: their pods wait for a place again, as after a drain."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import (
    Manifest,
    annotations_of,
    items,
    labels_of,
    name_of,
    section,
)
from ml_foundations.planning.input.documents import UnreadableError
from ml_foundations.planning.model.workloads import is_finished

_POOL = "pool:"
_MIRROR = "kubernetes.io/config.mirror"
"""The annotation of a pod that a node's kubelet runs by itself (Kubernetes, "Create static Pods")."""


@dataclass(frozen=True)
class Without:
    """A cluster without some nodes.

    Attributes:
        documents: What is left of it; the pods that ran there have no node.
        nodes: The names of the nodes that are gone.
        pods: The pods that ran there, without those of DaemonSets.
    """

    documents: list[Manifest]
    nodes: list[str]
    pods: list[Manifest]


def without(documents: Iterable[Manifest], names: Sequence[str]) -> Without:
    """Take nodes away.

    Args:
        documents: The cluster.
        names: Names of Nodes, or ``pool:`` and the name of a GKE node pool, or of the Node that is its template.

    Raises:
        UnreadableError: There is no node of such a name; every one is named.
    """
    found = list(documents)
    nodes = [document for document in found if document["kind"] == "Node"]
    named = [
        (name_of(node), (name_of(node), f"{_POOL}{_pool(node)}", f"{_POOL}{name_of(node)}"))
        for node in nodes
    ]
    gone = {name: [own for own, its in named if name in its] for name in names}
    if missing := [name for name, matches in gone.items() if not matches]:
        known = [
            *map(name_of, nodes),
            *(f"{_POOL}{pool}" for pool in sorted(set(filter(None, map(_pool, nodes))))),
        ]
        near = {name: " or ".join(get_close_matches(name, known)) for name in missing}
        raise UnreadableError(
            [f"there is no node {n!r}{near[n] and f': did you mean {near[n]}?'}" for n in missing]
        )
    removed = {name for matches in gone.values() for name in matches}
    left: list[Manifest] = []
    moved: list[Manifest] = []
    for document in found:
        if document["kind"] == "Node" and name_of(document) in removed:
            continue
        if document["kind"] != "Pod" or section(document, "spec").get("nodeName") not in removed:
            left.append(document)
        elif not is_finished(document) and _moves(document):
            spec = {
                key: value for key, value in section(document, "spec").items() if key != "nodeName"
            }
            moved.append({**document, "spec": spec, "status": {}})
    return Without([*left, *moved], sorted(removed), moved)


def _pool(node: Manifest) -> str | None:
    return labels_of(node).get(labels.GKE_NODE_POOL)


def _moves(pod: Manifest) -> bool:
    """Whether a pod is made anew elsewhere: not one of a DaemonSet, nor a node's own."""
    owners = {owner.get("kind") for owner in items(section(pod, "metadata"), "ownerReferences")}
    return not owners & {"DaemonSet", "Node"} and _MIRROR not in annotations_of(pod)
