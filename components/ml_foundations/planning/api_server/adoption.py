"""Controllers that adopt pods and ReplicaSets without an owner that their selector matches."""

from collections import defaultdict
from collections.abc import Mapping

from ml_foundations.kinds.kind_files import kind_named
from ml_foundations.kubernetes.objects import Manifest, labels_of, name_of, namespace_of, section
from ml_foundations.kubernetes.selectors import selects
from ml_foundations.kubernetes.trees import unknown_paths
from ml_foundations.planning.api_server.cluster import Cluster
from ml_foundations.planning.model.workloads import Workload, ordinals


def adoptions(cluster: Cluster) -> Mapping[str, list[str]]:
    """Return messages about adoptions, by the workloads that adopt and by the adopted objects.

    The controllers decide how many pods remain then.
    """
    messages: defaultdict[str, list[str]] = defaultdict(list)
    bare: defaultdict[tuple[str, str], list[Manifest]] = defaultdict(list)
    for kind in ("Pod", "ReplicaSet"):
        for document in cluster.by_kind[kind]:
            if not section(document, "metadata").get("ownerReferences"):
                bare[kind, namespace_of(document)].append(document)
    for controller in cluster.workloads:
        for document in bare[kind_named(controller.kind).adopts, controller.namespace]:
            if _finds(controller, document):
                taken = f"{document['kind']} {controller.namespace}/{name_of(document)}"
                message = (
                    f"{controller} takes over the {taken}, which matches its selector "
                    "or has the name of one of its pods"
                )
                for participant in (str(controller), taken):
                    messages[participant].append(message)
    return messages


def _finds(controller: Workload, document: Manifest) -> bool:
    selector = section(controller.manifest, "spec").get("selector")
    if controller.kind == "ReplicationController":
        selector = {
            "matchLabels": selector or labels_of(section(controller.manifest, "spec", "template"))
        }
    if controller.unknown or not selector or any(unknown_paths(selector)):
        return False
    if controller.kind == "StatefulSet":
        # Of pods with its name, it adopts those with other numbers only by its selector.
        stem, _, number = str(name_of(document)).rpartition("-")
        is_its_own = stem == controller.name and number.isdecimal()
        if not is_its_own or int(number) in ordinals(controller):
            return is_its_own
    return selects(selector, labels_of(document))
