"""Which pools the simulated autoscaler lets grow: it asks planning where a pod has room."""

from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from ml_foundations.catalog.pools import PoolGpu
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.labels import GKE_REQUEST, GPU_RESOURCE, HOSTNAME, ZONE
from ml_foundations.rehearsal.cli import _parsers
from ml_foundations.rehearsal.cloud import autoscaler, nodes
from ml_foundations.rehearsal.cloud.autoscaler import Plan, is_unschedulable, plan
from ml_foundations.rehearsal.cloud.store import Pool, Store
from ml_foundations.rehearsal.layout import Rehearsal

from tests import factories
from tests.support.autoscaling import per_pool, waiting_pods
from tests.support.simulation import L4, SYSTEM, ZONES, Object

LABELS = {"app": "a"}
BIG = replace(SYSTEM, max_nodes=20)


def pending(count: int = 1, gpus: int = 0, **spec: Any) -> list[Object]:
    limits = {GPU_RESOURCE: str(gpus)} if gpus else {}
    pods = waiting_pods(count, {}, labels=LABELS)
    for pod in pods:
        container = {"name": "c", "image": "i", "resources": {"limits": limits}}
        pod["spec"] = {"containers": [container], **spec}
    return pods


def planned(
    pods: list[Object],
    *pools: Any,
    existing: tuple[Object, ...] = (),
    zones: frozenset[str] | None = None,
) -> Plan:
    return plan(pods, existing, [], pools or (BIG,), None, lambda pod: zones)


def anti_affinity(key: str) -> Object:
    return {"affinity": factories.anti_affinity(key, LABELS["app"])}


TOLERANT = {"tolerations": [{"operator": "Exists"}]}


def test_pods_share_a_node() -> None:
    assert per_pool(planned(pending(4, gpus=1, **TOLERANT), L4)) == {"l4": 2}
    assert per_pool(planned(pending(3))) == {BIG.name: 1}


def test_no_node_comes_for_pods_of_a_low_priority() -> None:
    assert not planned(pending(priority=-11)).new_nodes
    assert planned(pending(priority=-10)).new_nodes


def test_pods_that_keep_apart_get_a_node_each() -> None:
    assert per_pool(planned(pending(3, **anti_affinity(HOSTNAME)))) == {BIG.name: 3}


def test_one_pod_per_zone_takes_one_node_per_zone_and_no_more() -> None:
    found = planned(pending(5, **anti_affinity(ZONE)))
    assert found.new_nodes == Counter({(BIG.name, zone): 1 for zone in BIG.zones})


def test_a_host_port_is_taken_once_on_each_node() -> None:
    pods = pending(2)
    for pod in pods:
        pod["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    assert per_pool(planned(pods)) == {BIG.name: 2}


def test_pods_are_spread_over_the_zones() -> None:
    spread = factories.spread(app=LABELS["app"], minDomains=2)
    found = planned(pending(2, topologySpreadConstraints=[spread]))
    assert found.new_nodes == Counter({(BIG.name, zone): 1 for zone in BIG.zones})


def test_a_node_with_space_is_used_unless_other_pods_bar_it() -> None:
    node = nodes.new_node(BIG, BIG.zones[0], None)
    used = frozenset({node["metadata"]["name"]})
    assert planned(pending(), existing=(node,)) == Plan(Counter(), used)
    [running] = pending(**anti_affinity(HOSTNAME))
    running["spec"]["nodeName"] = node["metadata"]["name"]
    assert per_pool(planned([running, *pending()], existing=(node,))) == {BIG.name: 1}


@pytest.mark.parametrize(
    ("zones", "grown"), [(None, 1), (frozenset(BIG.zones[1:]), 1), (frozenset(), 0)]
)
def test_a_node_is_made_where_disks_are(zones: frozenset[str] | None, grown: int) -> None:
    found = planned(pending(), zones=zones)
    assert sum(found.new_nodes.values()) == grown
    assert all(zones is None or zone in zones for _, zone in found.new_nodes)


def test_the_scheduler_has_to_have_said_so() -> None:
    [pod] = pending()
    assert is_unschedulable(pod)
    pod["status"]["conditions"][0]["reason"] = "SchedulingGated"
    assert not is_unschedulable(pod)
    assert planned([pod]) == Plan()


QUEUED = replace(BIG, name="queued", queued=True)


def apart(count: int) -> list[Object]:
    """Pods that take a node each, of any pool."""
    return pending(count, **TOLERANT, **anti_affinity(HOSTNAME))


def requested(pods: list[Object], *pools: Pool, existing: tuple[Object, ...] = ()) -> Plan:
    """The plan for the pods of a ProvisioningRequest."""
    return plan(pods, existing, [], pools, None, lambda pod: None, queued=True)


def test_queued_pools_grow_for_requests_alone() -> None:
    assert per_pool(planned(apart(2), QUEUED)) == {}
    asked = requested(apart(2), BIG, QUEUED)
    assert (per_pool(asked), asked.unplaced) == ({"queued": 2}, ())


def test_a_request_beyond_the_largest_pool_is_reported() -> None:
    small = replace(QUEUED, max_nodes=3)
    there = (nodes.new_node(small, small.zones[0], None, "earlier"),)
    assert there[0]["metadata"]["labels"][GKE_REQUEST] == "earlier"
    assert len(requested(apart(3), small, existing=there).unplaced) == 1


def test_a_stockout_leaves_a_pool_fewer_nodes_than_it_may_have(tmp_path: Path) -> None:
    rehearsal = Rehearsal.of("t", tmp_path)
    store = Store(rehearsal)
    for pool in (BIG, QUEUED):
        store.save_pool(pool)
    given = _parsers()[0].parse_args(["up", "--max-nodes", f"{BIG.name}=1", "--stock", "gone=5"])
    store.put("stock", dict(given.max_nodes))
    [big, queued] = [store.available(store.pools()[name]) for name in (BIG.name, "queued")]
    assert (big.max_nodes, big.is_sold_out) == (1, True)
    assert (queued.max_nodes, queued.is_sold_out) == (20, False)
    # What runs stays: three nodes, of at most 20.
    assert store.available(BIG, existing=3).max_nodes == 3
    full = store.available(BIG, existing=20)
    assert (full.max_nodes, full.is_sold_out) == (20, False), "it is full, and not sold out"
    assert store.pools()[BIG.name].max_nodes == 20
    with pytest.raises(SystemExit):
        _parsers()[0].parse_args(["up", "--stock", BIG.name])


def test_pods_that_only_space_separates_are_planned_in_one_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[int] = []
    real = autoscaler.placeable

    def counting(pod: Any, places: Any) -> Any:
        looked.append(len(places))
        return real(pod, places)

    monkeypatch.setattr(autoscaler, "placeable", counting)
    big = replace(L4, max_nodes=300)
    existing = tuple(nodes.new_node(big, big.zones[0], None) for _ in range(100))
    found = planned(pending(600, gpus=2, **TOLERANT), big, existing=existing)
    assert (per_pool(found), len(found.unplaced)) == ({"l4": 200}, 300)
    # Each node is looked at once, and for each new one the pool and its zones.
    assert sum(looked) < 4 * 300


def reasons(found: Plan) -> list[str]:
    return [each.reason for each in found.unplaced]


def test_the_nearest_pool_and_what_it_lacks_are_reported() -> None:
    """An inference server that needs more memory than a node of the GPU pool has free."""
    small = replace(L4, name="inference", machine_type="g2-standard-8", gpu=PoolGpu("nvidia-l4", 1))
    [pod] = pending(gpus=1, **TOLERANT)
    pod["spec"]["containers"][0]["resources"]["requests"] = {"memory": "28Gi"}
    [reason] = reasons(planned([pod], BIG, small))
    assert 'the nearest, "inference", does not take it: it needs 28Gi memory, and ' in reason
    assert "Request at most " in reason


def no_more(pool: str) -> str:
    return f'a node of "{pool}" has the room, and no more nodes may come there for it'


def test_a_pool_with_all_its_nodes_is_reported_as_that() -> None:
    found = planned(pending(3, **anti_affinity(HOSTNAME)), replace(BIG, max_nodes=1))
    assert reasons(found) == [no_more(BIG.name)] * 2


def test_a_sold_out_pool_is_reported_as_that() -> None:
    gone, small = (replace(L4, name=name, max_nodes=0) for name in ("gone", "small"))
    limit = "and no more nodes may come there for it"
    pods = pending(**TOLERANT)
    [reason] = reasons(planned(pods, replace(gone, is_sold_out=True), small))
    assert reason.endswith(f'{limit}: "gone" is sold out in the stockout')
    both = [replace(pool, is_sold_out=True) for pool in (gone, small)]
    [reason] = reasons(planned(pods, *both))
    assert reason.endswith(f'{limit}: "gone" and "small" are sold out in the stockout')


def test_a_queued_pool_reports_what_its_nodes_come_for() -> None:
    why = "has the room, and nodes come there only for a ProvisioningRequest"
    assert set(reasons(planned(apart(2), QUEUED))) == {f'a node of "queued" {why}'}
    found = planned(apart(3), QUEUED, replace(BIG, max_nodes=1))
    assert set(reasons(found)) == {no_more(BIG.name)}
    assert set(reasons(requested(apart(3), replace(QUEUED, max_nodes=1)))) == {no_more("queued")}


def test_pods_kept_off_new_nodes_by_others_are_reported() -> None:
    why = "its affinity, anti-affinity or topology spread would not hold"
    found = planned(pending(5, **anti_affinity(ZONE)))
    assert set(reasons(found)) == {f'on a new node of "{BIG.name}" {why}'}


def test_disks_out_of_reach_are_reported_as_that() -> None:
    assert reasons(planned(pending(), zones=frozenset())) == [
        "no node pool is in a zone where it reaches all of its disks"
    ]


def test_no_node_is_made_for_the_pod_of_a_daemon_set() -> None:
    [pod] = pending()
    pod["metadata"]["ownerReferences"] = [{"kind": "DaemonSet", "name": "agent", "uid": "u"}]
    assert planned([pod]) == Plan()


def hopeless(found: Plan) -> list[bool]:
    return [each.is_hopeless for each in found.unplaced]


def test_only_pods_that_no_empty_or_new_node_takes_are_hopeless() -> None:
    crowd = planned(pending(2, **anti_affinity(HOSTNAME)), replace(BIG, max_nodes=1))
    assert hopeless(crowd) == [False], "a node may become free"
    assert hopeless(planned(pending(), zones=frozenset())) == [False], "a claim may be made yet"
    greedy = pending(gpus=3, **TOLERANT)
    assert hopeless(planned(greedy, BIG, L4)) == [True]
    other = nodes.new_node(replace(L4, name="other", gpu=PoolGpu("nvidia-l4", 4)), ZONES[0], None)
    other["spec"]["unschedulable"] = True
    given = plan(greedy, (), [], (BIG, L4), None, lambda pod: None, imported=(other,))
    assert hopeless(given) == [False], "a cordoned node of no pool may take it"


H100 = replace(
    SYSTEM, name="h100", machine_type="a3-megagpu-8g", gpu=PoolGpu("nvidia-h100-mega-80gb", 8)
)
BLOCK, SUB_BLOCK, HOST = labels.GKE_TOPOLOGY


@pytest.mark.parametrize(
    ("pool", "has_labels"),
    [
        (SYSTEM, False),
        (H100, True),
        (replace(H100, spot=True), False),
        (replace(H100, flex_start=True), False),
        (replace(H100, spot=True, reservation="r"), True),
        (replace(H100, machine_type="g2-standard-4", gpu=PoolGpu("nvidia-l4", 1)), False),
    ],
)
def test_nodes_with_a_network_between_gpus_have_topology_labels(
    pool: Pool, has_labels: bool
) -> None:
    place = next(nodes.free_places(pool, ZONES[0], []))
    assert bool(place) is has_labels
    node = nodes.new_node(pool, ZONES[0], None, place=place)
    assert (set(labels.GKE_TOPOLOGY) <= node["metadata"]["labels"].keys()) is has_labels


def test_a_new_node_gets_the_first_free_place() -> None:
    existing: list[Object] = []
    for place in islice(nodes.free_places(H100, ZONES[0], []), 129):
        existing.append(nodes.new_node(H100, ZONES[0], None, place=place))
    places = [node["metadata"]["labels"] for node in existing]
    assert len({place[HOST] for place in places}) == 129
    in_sub_blocks = Counter(place[SUB_BLOCK] for place in places)
    assert sorted(in_sub_blocks.values()) == [1, *[16] * 8]
    assert sorted(Counter(place[BLOCK] for place in places).values()) == [1, 128]
    gone = existing.pop(20)["metadata"]["labels"]
    assert next(nodes.free_places(H100, ZONES[0], existing))[HOST] == gone[HOST]
    other = next(nodes.free_places(H100, ZONES[1], existing))
    assert not set(other.values()) & {place[key] for place in places for key in labels.GKE_TOPOLOGY}


def test_an_nvlink_domain_is_a_sub_block_of_18_nodes() -> None:
    rack = replace(H100, machine_type="a4x-highgpu-4g", gpu=PoolGpu("nvidia-gb200", 4))
    found = islice(nodes.free_places(replace(rack, reservation="r"), ZONES[0], []), 36)
    assert set(Counter(place[SUB_BLOCK] for place in found).values()) == {18}
