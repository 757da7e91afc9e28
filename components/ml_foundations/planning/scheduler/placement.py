"""Finding the nodes on which the scheduler may put one more pod: an autoscaler's question."""

from collections.abc import Sequence

from ml_foundations.kubernetes.objects import Manifest
from ml_foundations.planning.model.node_groups import Demand, NodeGroup, PodClass, carrying, pod_of
from ml_foundations.planning.model.nodes import node_class
from ml_foundations.planning.model.refusals import Refusal
from ml_foundations.planning.scheduler.exhaustive_search import placeable_nodes
from ml_foundations.planning.scheduler.filters import refusals


def placeable(pod: PodClass, node_groups: Sequence[NodeGroup]) -> list[NodeGroup]:
    """Return the groups on whose nodes the scheduler may put a pod, volumes disregarded.

    The node groups are all nodes, as ``carrying`` returns them with the pods that run there: these
    count for host ports, affinity and spreading. After a pod was placed, ``take`` takes its room.
    """
    accepting = [group for group in node_groups if not refusals(pod, group.node)]
    return placeable_nodes(Demand(pod, 1, accepting), node_groups)


def refusals_on_node(pod: Manifest, node: Manifest) -> list[Refusal]:
    """Return why the scheduler refuses a Pod or a pod template on an empty Node.

    The affinity of other pods is not considered. A limit without a request is a request.
    """
    requesting = pod_of(pod)
    group = carrying(node_class(node), ())
    reasons = refusals(requesting, group.node)
    if reasons or group.room(requesting):
        return reasons
    return [Refusal("resources", "", "it has no room for the pod")]
