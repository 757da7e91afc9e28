"""Nodes that do not exist yet, and that an object of the cluster has made for pods that wait."""

from collections.abc import Iterable, Iterator

from ml_foundations.catalog import compute_classes
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import Manifest, name_of
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning.input.field_catalog import Makes, kind_of
from ml_foundations.planning.model.nodes import MAX_NODES, NodeClass
from ml_foundations.planning.model.refusals import UnknownFact


def made_nodes(documents: Iterable[Manifest]) -> Iterator[NodeClass]:
    """Yield the nodes that objects may have made, each object's as one class."""
    for document in documents:
        node_labels: Manifest = {}
        if document["kind"] == compute_classes.KIND:
            if not compute_classes.creates_pools(document):
                continue
            node_labels = {labels.COMPUTE_CLASS: name_of(document)}
        elif kind_of(str(document.get("apiVersion")), document["kind"]).makes is not Makes.NODES:
            continue
        maker = f"{document['kind']} {name_of(document)}"
        metadata = {"name": UNKNOWN, "annotations": {MAX_NODES: "1"}, "labels": node_labels}
        manifest = {"kind": "Node", "metadata": metadata}
        unknown = (UnknownFact("kind of machine"),)
        yield NodeClass(f"nodes of {maker}", manifest, fewest=0, unknown=unknown, made_by=maker)
