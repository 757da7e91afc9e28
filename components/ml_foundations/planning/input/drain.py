"""A cluster without some of its nodes, as after a drain: their pods wait for a place again."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import (
    Manifest,
    annotations_of,
    items,
    labels_of,
    name_of,
    section,
)
from ml_foundations.kubernetes.spelling import did_you_mean
from ml_foundations.planning.input.documents import UnreadableError
from ml_foundations.planning.model.workloads import MIRROR, is_finished

_POOL = "pool:"


@dataclass(frozen=True)
class DrainedCluster:
    """A cluster without some nodes.

    Attributes:
        documents: Its objects; the pods that ran on the nodes have none.
        nodes: The names of the removed nodes.
        pods: The pods that ran there and are created again elsewhere.
    """

    documents: list[Manifest]
    nodes: list[str]
    pods: list[Manifest]


def drain(documents: Iterable[Manifest], names: Sequence[str]) -> DrainedCluster:
    """Return a cluster without some nodes.

    Args:
        documents: The cluster.
        names: Names of Nodes, or ``pool:`` and the name of a GKE node pool or of the Node that is
            its template.

    Raises:
        UnreadableError: No node has one of the names; each of these is in the error.
    """
    documents = list(documents)
    nodes_by_name = _nodes_by_name(documents)
    errors: list[str] = []
    for name in names:
        if name not in nodes_by_name:
            missing = f"there is no node {name!r}"
            if name.startswith(_POOL):
                label = f"{labels.GKE_NODE_POOL}={name.removeprefix(_POOL)}"
                missing = f"no node has the label {label}, by which {name} finds them"
            errors.append(f"{missing}. {did_you_mean(name, nodes_by_name)}".rstrip(" "))
    if errors:
        raise UnreadableError(errors)
    removed = {node for name in names for node in nodes_by_name[name]}
    kept: list[Manifest] = []
    moved: list[Manifest] = []
    for document in documents:
        spec = section(document, "spec")
        if document["kind"] == "Node" and name_of(document) in removed:
            continue
        if document["kind"] != "Pod" or spec.get("nodeName") not in removed:
            kept.append(document)
            continue
        references = items(section(document, "metadata"), "ownerReferences")
        owners = {owner.get("kind") for owner in references}
        # A pod of a DaemonSet or of its node does not run elsewhere after a drain.
        is_of_node = bool(owners & {"DaemonSet", "Node"}) or MIRROR in annotations_of(document)
        if not is_of_node and not is_finished(document):
            unbound = {key: value for key, value in spec.items() if key != "nodeName"}
            moved.append({**document, "spec": unbound, "status": {}})
    return DrainedCluster([*kept, *moved], sorted(removed), moved)


def _nodes_by_name(documents: Iterable[Manifest]) -> dict[str, list[str]]:
    """Return the nodes by name: of each name of a node or of a pool."""
    nodes_by_name: dict[str, list[str]] = {}
    for document in documents:
        if document["kind"] == "Node":
            node = name_of(document)
            pool = labels_of(document).get(labels.GKE_NODE_POOL)
            for name in dict.fromkeys((node, f"{_POOL}{pool or node}", f"{_POOL}{node}")):
                nodes_by_name.setdefault(name, []).append(node)
    return nodes_by_name
