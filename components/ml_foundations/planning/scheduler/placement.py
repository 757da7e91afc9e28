"""Where the scheduler may put one more pod: what an autoscaler asks."""

from collections.abc import Sequence

from ml_foundations.kubernetes.objects import Manifest
from ml_foundations.planning.model.node_groups import (
    NodeGroup,
    PodClass,
    PodGroup,
    carrying,
    pod_of,
)
from ml_foundations.planning.model.nodes import node_class
from ml_foundations.planning.model.refusals import Refusal
from ml_foundations.planning.scheduler.exhaustive_search import takers
from ml_foundations.planning.scheduler.filters import refusals


def placeable(pod: PodClass, places: Sequence[NodeGroup]) -> list[NodeGroup]:
    """The places on whose nodes the scheduler may put a pod: by every filter but those of volumes.

    Args:
        pod: The pod; ``places.pod_of`` makes it of a manifest.
        places: All nodes, with what they have free and the pods that run there, which count for host ports, affinity
            and spreading; ``places.carrying`` makes them. After a pod was placed, ``places.take`` takes its room.
    """
    return takers(
        PodGroup(pod, 1, [place for place in places if not refusals(pod, place.node)]), places
    )


def refusals_on_node(pod: Manifest, node: Manifest) -> list[Refusal]:
    """Why the scheduler refuses a pod on an empty node, other pods' affinity apart; empty where the pod fits.

    Args:
        pod: A Pod or a pod template. A limit without a request is a request.
        node: A Node with its ``status.allocatable``.
    """
    asking, place = pod_of(pod), carrying(node_class(node), ())
    found = refusals(asking, place.node)
    return (
        found
        if found or place.room(asking)
        else [Refusal("resources", "", "it has no room for the pod")]
    )
