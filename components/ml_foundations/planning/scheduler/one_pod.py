"""Where the scheduler may put one more pod: what an autoscaler asks."""

from collections.abc import Iterable, Mapping, Sequence

from ml_foundations.kubernetes.objects import Manifest
from ml_foundations.kubernetes.quantities import readable
from ml_foundations.planning.model.nodes import NodeClass, node_class
from ml_foundations.planning.model.places import Demand, Place, PodClass, pod_of
from ml_foundations.planning.model.refusals import Refusal
from ml_foundations.planning.scheduler.every_order import takers
from ml_foundations.planning.scheduler.filters import refusals


def placeable(pod: PodClass, places: Sequence[Place]) -> list[Place]:
    """The places on whose nodes the scheduler may put a pod: by every filter but those of volumes.

    Args:
        pod: The pod; ``places.pod_of`` makes it of a manifest.
        places: All nodes, with what they have free and the pods that run there, which count for host ports, affinity
            and spreading; ``places.carrying`` makes them. After a pod was placed, ``places.take`` takes its room.
    """
    return takers(Demand(pod, 1, [place for place in places if not refusals(pod, place.node)]), places)


def refusals_on_node(pod: Manifest, node: Manifest, used: Mapping[str, int] | None = None) -> list[Refusal]:
    """Why the scheduler refuses a pod on a node, other pods' affinity and ports apart; empty where the pod fits.

    Args:
        pod: A Pod or a pod template. A limit without a request is a request.
        node: A Node with its ``status.allocatable``.
        used: What the pods on the node request, in thousandths by resource, with their number as ``pods``.
    """
    asking, there = pod_of(pod), node_class(node)
    return [*refusals(asking, there), *_insufficient(asking, there, used or {})]


def _insufficient(pod: PodClass, node: NodeClass, used: Mapping[str, int]) -> Iterable[Refusal]:
    for name, wanted in sorted(pod.requests.items()):
        whole = node.allocatable.get(name, 0)
        free = whole - used.get(name, 0)
        if wanted > free:
            shown = [readable(amount) for amount in (wanted, max(free, 0), whole)]
            yield Refusal("resources", "", "insufficient {}: needs {}, {} free of {}".format(name, *shown))
