"""Kueue's choice of topology domains, step by step."""

import pytest
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.quantities import WHOLE
from ml_foundations.planning.scheduler.topology import (
    PREFERRED,
    REQUIRED,
    UNCONSTRAINED,
    Assigned,
    Slices,
    Topology,
    TopologyNode,
    TopologyPods,
    TopologyRequest,
    Usage,
    add_usage,
)
from ml_foundations.planning.scheduler.topology_search import assign

BLOCK, RACK, HOST = "block", "rack", labels.HOSTNAME
LEVELS = [BLOCK, RACK, HOST]
GPU = labels.GPU_RESOURCE


def node(block: str, rack: str, host: str, gpus: int = 8) -> TopologyNode:
    free = {GPU: gpus * WHOLE, "pods": 110 * WHOLE}
    return TopologyNode(host, {BLOCK: block, RACK: rack, HOST: host}, free)


def topology(*shape: list[int], gpus: int = 8) -> Topology:
    """Blocks of racks, each rack with its number of nodes."""
    nodes: list[TopologyNode] = []
    for b, racks in enumerate(shape):
        for r, size in enumerate(racks):
            for n in range(size):
                nodes.append(node(f"b{b}", f"b{b}r{r}", f"b{b}r{r}n{n}", gpus))
    return Topology("t", LEVELS, nodes)


def demand(
    count: int, mode: str, level: str | None = None, *slices: Slices, gpus: int = 8
) -> TopologyPods:
    requests = {GPU: gpus * WHOLE, "pods": WHOLE}
    return TopologyPods(TopologyRequest(mode, level, slices), count, requests)


def on(assigned: Assigned) -> dict[str, int]:
    return {values[0]: count for values, count in assigned.workers}


@pytest.mark.parametrize(
    ("count", "level", "fits"),
    [(3, RACK, True), (4, RACK, False), (5, BLOCK, True), (6, BLOCK, False), (1, HOST, True)],
)
def test_a_required_domain_holds_all_pods(count: int, level: str, fits: bool) -> None:
    found = assign(topology([2, 3], [4 - 1]), demand(count, REQUIRED, level))
    assert bool(found.workers) is fits


def test_the_smallest_domain_that_is_big_enough_is_taken() -> None:
    found = assign(topology([4], [2], [3]), demand(3, REQUIRED, BLOCK))
    assert on(found) == {"b2r0n0": 1, "b2r0n1": 1, "b2r0n2": 1}


def test_a_preferred_level_climbs_and_then_spreads() -> None:
    made = topology([2, 2], [3])
    assert on(assign(made, demand(3, PREFERRED, RACK))).keys() == {"b1r0n0", "b1r0n1", "b1r0n2"}
    assert {name[:2] for name in on(assign(made, demand(4, PREFERRED, RACK)))} == {"b0"}
    assert sum(on(assign(made, demand(7, PREFERRED, RACK))).values()) == 7
    assert "7 out of 8" in assign(made, demand(8, PREFERRED, RACK)).failure


def test_unconstrained_pods_fill_the_nodes_with_least_free() -> None:
    made = Topology("t", LEVELS, [node("a", "r", "big"), node("a", "r", "small", 4)])
    assert on(assign(made, demand(2, UNCONSTRAINED, gpus=2))) == {"small": 2}
    assert on(assign(made, demand(3, UNCONSTRAINED, gpus=2))) == {"big": 3}
    assert on(assign(made, demand(5, UNCONSTRAINED, gpus=2))) == {"small": 2, "big": 3}


def test_each_slice_has_a_domain() -> None:
    made = topology([3, 3])
    assert assign(made, demand(4, REQUIRED, BLOCK, Slices(RACK, 2))).workers
    six = assign(made, demand(6, REQUIRED, BLOCK, Slices(RACK, 2)))
    assert six.failure == 'topology "t" allows to fit only 2 out of 3 slice(s)'
    above = assign(made, demand(4, REQUIRED, RACK, Slices(BLOCK, 2)))
    assert above.failure == "podset slice topology block is above the podset topology rack"


def test_slices_of_several_layers() -> None:
    layers = (Slices(BLOCK, 4), Slices(RACK, 2))
    pods = demand(4, UNCONSTRAINED, None, *layers)
    assert on(assign(topology([2, 3]), pods)).keys() == {"b0r0n0", "b0r0n1", "b0r1n0", "b0r1n1"}
    fitting = "0/1 slice(s) fit on level block; 1/2 slice(s) fit on level rack"
    failure = assign(topology([1, 3]), pods).failure
    assert failure == f'topology "t" doesn\'t allow to fit; {fitting}'


def test_a_leader_takes_its_room_next_to_the_workers() -> None:
    leader = TopologyPods(TopologyRequest(REQUIRED, RACK), 1, {GPU: 8 * WHOLE, "pods": WHOLE})
    three, four = topology([3]), topology([4])
    assert not assign(three, demand(3, REQUIRED, RACK), leader).workers
    found = assign(four, demand(3, REQUIRED, RACK), leader)
    assert len(found.workers) == 3
    assert len(found.leader) == 1
    assert not {values for values, _ in found.workers} & {values for values, _ in found.leader}


def test_the_message_has_the_reasons_of_the_nodes() -> None:
    made = topology([2, 2])
    excluded = {"b0r0n0": 'taint "a=b:NoSchedule"', "b0r0n1": "nodeSelector"}
    assert assign(made, demand(3, REQUIRED, RACK), excluded=excluded).failure == (
        'topology "t" allows to fit only 2 out of 3 pod(s). Total nodes: 4; '
        'excluded: nodeSelector: 1, taint "a=b:NoSchedule": 1'
    )
    assert assign(made, demand(1, REQUIRED, RACK, gpus=9)).failure == (
        'topology "t" doesn\'t allow to fit any of 1 pod(s). Total nodes: 4; '
        'excluded: resource "nvidia.com/gpu": 4'
    )


@pytest.mark.parametrize(
    ("level", "failure"),
    [
        (BLOCK, "no topology domains at level: block"),
        ("zone", "no requested topology level: zone"),
    ],
)
def test_levels_that_no_node_or_no_topology_has(level: str, failure: str) -> None:
    made = Topology("t", LEVELS, [TopologyNode("n", {HOST: "n", BLOCK: "b"}, {})])
    assert assign(made, demand(1, REQUIRED, level)).failure == failure


def test_a_domain_without_host_names_sums_its_nodes() -> None:
    """Kueue sees no fragmentation then, and no reason of single nodes."""
    halves = [node("b", "r", "n0", 4), node("b", "r", "n1", 4)]
    made = Topology("t", [BLOCK, RACK], halves)
    excluded = {"n0": "nodeSelector"}
    found = assign(made, demand(1, REQUIRED, RACK), excluded=excluded)
    assert found.workers == [(("b", "r"), 1)]


def test_what_is_taken_is_no_longer_free() -> None:
    made, pods = topology([2]), demand(1, REQUIRED, RACK)
    taken: Usage = {}
    for free in (True, True, False):
        found = assign(made, pods, taken=taken)
        assert bool(found.workers) is free
        add_usage(taken, found.workers, pods.requests)
