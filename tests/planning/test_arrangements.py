"""Arrangements on nodes, by hand: what blocks a node, and what still has room."""

import pytest
from ml_foundations.planning.model.node_groups import Demand, PodClass, carrying, pod_class
from ml_foundations.planning.model.nodes import node_class
from ml_foundations.planning.scheduler.exhaustive_search import SearchResult
from ml_foundations.planning.scheduler.packing import arrangements

from tests.factories import ZONE, anti_affinity, container, pool, spread


def pod(cpu: int, port: int | None = None, **spec: object) -> PodClass:
    ports = {"ports": [{"containerPort": port, "hostPort": port}]} if port else {}
    return pod_class(
        "web", "team", {"app": "web"}, {"containers": [container(cpu=cpu) | ports], **spec}, {}
    )


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ([(pod(2), 4)], SearchResult(complete=True, stuck=False)),
        ([(pod(2), 5)], SearchResult(complete=False, stuck=True)),
        ([(pod(1, port=80), 2)], SearchResult(complete=True, stuck=False)),
        ([(pod(1, port=80), 3)], SearchResult(complete=False, stuck=True)),
        ([(pod(1, affinity=anti_affinity()), 3)], SearchResult(complete=False, stuck=True)),
        ([(pod(4), 1), (pod(1), 4)], SearchResult(complete=True, stuck=True)),
        ([(pod(4), 1), (pod(1), 1)], SearchResult(complete=True, stuck=False)),
        ([(pod(1, port=80), 1), (pod(1, port=80), 1)], SearchResult(complete=True, stuck=False)),
    ],
)
def test_two_nodes_of_four_cpus(pods: list[tuple[PodClass, int]], expected: SearchResult) -> None:
    cluster = [carrying(node_class(pool("p", 2)), ())]
    assert arrangements([Demand(pod, count, cluster) for pod, count in pods]) == expected


@pytest.mark.parametrize(
    "spec", [{"affinity": anti_affinity(ZONE)}, {"topologySpreadConstraints": [spread()]}]
)
def test_pods_that_look_at_other_nodes_are_left_to_the_search(spec: dict[str, object]) -> None:
    cluster = [carrying(node_class(pool("p", 2)), ())]
    assert arrangements([Demand(pod(1, **spec), 1, cluster)]) is None
