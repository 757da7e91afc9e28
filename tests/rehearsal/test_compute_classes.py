"""ComputeClasses in a rehearsal: which pool grows first, what GKE reports, and what its API refuses."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from ml_foundations.kubernetes.labels import COMPUTE_CLASS, COMPUTE_CLASS_PRIORITY, GKE_NODE_POOL
from ml_foundations.rehearsal.api import ApiError, condition
from ml_foundations.rehearsal.cli import _parsers
from ml_foundations.rehearsal.cloud.autoscaler import Plan, plan
from ml_foundations.rehearsal.cloud.compute_classes import PATH, declared_pool, in_class
from ml_foundations.rehearsal.cloud.nodes import node_template
from ml_foundations.rehearsal.cloud.store import Pool
from ml_foundations.rehearsal.report.purchases import purchases
from ml_foundations.rehearsal.report.workloads import Workload

from tests.support.autoscaling import per_pool, waiting_pods
from tests.support.simulation import L4, ZONES, Cloud, clean
from tests.support.waiting import is_served, until

OF_CLASS = {COMPUTE_CLASS: "any"}
TAINT = {"key": COMPUTE_CLASS, "value": "any", "effect": "NoSchedule"}
SPEC: dict[str, Any] = {
    "nodeSelector": {COMPUTE_CLASS: "any"},
    "tolerations": [{"operator": "Exists"}],
}


def pool_of_class(name: str, most: int = 2, **config: Any) -> Pool:
    node = {"machineType": L4.machine_type, "labels": OF_CLASS}
    node |= {"taints": [{**TAINT, "effect": "NO_SCHEDULE"}], **config}
    inputs = {"autoscaling": {"totalMaxNodeCount": most}, "nodeConfig": node}
    return replace(
        L4,
        name=name,
        max_nodes=most,
        spot=bool(config.get("spot")),
        labels=OF_CLASS,
        taints=(*L4.taints, TAINT),
        resource={"inputs": inputs},
    )


def class_of(*priorities: Any, **spec: Any) -> dict[str, Any]:
    names = {"apiVersion": "cloud.google.com/v1", "kind": "ComputeClass"}
    return {**names, "metadata": {"name": "any"}, "spec": {"priorities": [*priorities], **spec}}


def planned(manifest: dict[str, Any], pods: int, *pools: Pool) -> Plan:
    container = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "2"}}}
    waiting = waiting_pods(pods, {"containers": [container], **SPEC})
    classes = {"any": manifest}
    members = [in_class(pool, classes, declared_pool(pool)) for pool in pools]
    return plan(waiting, [], [], members, None, lambda pod: None)


FIRST, SECOND = pool_of_class("first"), pool_of_class("second")
IN_ORDER = class_of({"nodepools": ["first"]}, {"nodepools": ["second"]})


@pytest.mark.parametrize(
    ("pods", "grown"),
    [(2, {"first": 2}), (3, {"first": 2, "second": 1}), (4, {"first": 2, "second": 2})],
)
def test_the_pool_of_the_first_priority_grows_first(pods: int, grown: dict[str, int]) -> None:
    # The second pool is cheaper, and it would come first without the class.
    cheap = replace(SECOND, spot=True)
    assert per_pool(planned(IN_ORDER, pods, cheap, FIRST)) == grown
    reverse = class_of({"nodepools": ["second"]}, {"nodepools": ["first"]})
    assert per_pool(planned(reverse, pods, cheap, FIRST))["second"] == 2


def test_a_priority_without_machines_is_passed_over() -> None:
    without = replace(FIRST, max_nodes=0)
    assert per_pool(planned(IN_ORDER, 2, without, SECOND)) == {"second": 2}
    found = planned(IN_ORDER, 3, without, SECOND)
    assert (per_pool(found), len(found.unplaced)) == ({"second": 2}, 1)


def test_pools_of_one_priority_are_chosen_by_price() -> None:
    cheap = replace(SECOND, spot=True)
    both = class_of({"nodepools": ["first", "second"]})
    assert per_pool(planned(both, 2, FIRST, cheap)) == {"second": 2}


@pytest.mark.parametrize(
    ("policy", "grown"),
    [("DoNotScaleUp", {"first": 2}), ("ScaleUpAnyway", {"first": 2, "second": 1})],
)
def test_other_pools_of_the_class_grow_last_or_never(policy: str, grown: dict[str, int]) -> None:
    manifest = class_of({"nodepools": ["first"]}, whenUnsatisfiable=policy)
    assert per_pool(planned(manifest, 3, replace(SECOND, spot=True), FIRST)) == grown


def test_a_rule_is_met_by_equality() -> None:
    manifest = class_of({"spot": True}, {"machineFamily": "g2"})
    spot = pool_of_class("second", spot=True)
    assert per_pool(planned(manifest, 1, FIRST, spot)) == {"second": 1}


def test_a_class_that_does_not_exist_changes_nothing() -> None:
    assert in_class(FIRST, {}, declared_pool(FIRST)) == FIRST
    assert in_class(L4, {"any": IN_ORDER}, declared_pool(L4)) == L4


@pytest.mark.parametrize(("name", "index"), [("first", "0"), ("second", "1"), ("third", "-1")])
def test_nodes_have_the_index_of_their_priority(name: str, index: str) -> None:
    pool = pool_of_class(name)
    member = in_class(pool, {"any": IN_ORDER}, declared_pool(pool))
    node = node_template(member, ZONES[0], None)
    assert node["metadata"]["labels"][COMPUTE_CLASS_PRIORITY] == index


class _Lists:
    """An API that has lists of objects."""

    def __init__(self, **lists: list[dict[str, Any]]) -> None:
        self._lists = lists

    def find(self, path: str) -> dict[str, Any] | None:
        items = self._lists.get(path.rpartition("/")[2])
        return None if items is None else {"items": items}


def node_affinity(pool: str) -> dict[str, Any]:
    """The affinity of pods that run on one pool."""
    term = {"matchExpressions": [{"key": GKE_NODE_POOL, "operator": "In", "values": [pool]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"affinity": {"nodeAffinity": required}}


def flavor(name: str, **node_labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"nodeLabels": node_labels}}


def queue(*flavors: str) -> dict[str, list[dict[str, Any]]]:
    """A queue with flavors in order, next to a flavor of CPU."""
    groups = [["compute"], flavors]
    spec = {"resourceGroups": [{"flavors": [{"name": name} for name in group]} for group in groups]}
    local = {"metadata": {"namespace": "nlp", "name": "q"}, "spec": {"clusterQueue": "nlp"}}
    named = [flavor(name, **{GKE_NODE_POOL: name}) for name in ("first", "second")]
    of_class = flavor("class", **{COMPUTE_CLASS: "any"})
    return {
        "localqueues": [local],
        "clusterqueues": [{"metadata": {"name": "nlp"}, "spec": spec}],
        "resourceflavors": [*named, of_class, {"metadata": {"name": "compute"}, "spec": {}}],
    }


def bought(lists: dict[str, Any], **row: Any) -> list[tuple[str, bool]]:
    """The first choice of a workload on two nodes of the second pool, and whether these cost less."""
    spot = pool_of_class("second", spot=True)
    queue = row.pop("queue", "")
    workload = Workload("nlp", "Job", "a", "Running", [], "", {"second": 2}, queue, row)
    api: Any = _Lists(**lists)
    found = purchases(api, {"second": spot, "first": FIRST}, [workload])
    return [(item.first, (item.per_hour or 0) < (item.first_per_hour or 0)) for item in found]


CLASSES = {"computeclasses": [IN_ORDER]}


@pytest.mark.parametrize(
    ("lists", "row", "first"),
    [
        (CLASSES, {"nodeSelector": OF_CLASS}, [("first", True)]),
        (CLASSES, {"nodeSelector": {**OF_CLASS, GKE_NODE_POOL: "second"}}, []),
        (CLASSES, {"nodeSelector": {GKE_NODE_POOL: "second"}}, []),
        (queue("first", "second"), {"queue": "q"}, [("first", True)]),
        (queue("second", "first"), {"queue": "q"}, [("second", False)]),
        (queue("first", "second"), {"queue": "q", "nodeSelector": {GKE_NODE_POOL: "first"}}, []),
        (queue("first"), {"queue": "q"}, []),
        (CLASSES | queue("class"), {"queue": "q"}, [("first", True)]),
        ({}, {"queue": "q"}, []),
        (queue("first", "second"), {"queue": "q", **node_affinity("second")}, []),
    ],
)
def test_who_has_a_choice_is_shown_next_to_the_first(
    lists: dict[str, Any], row: dict[str, Any], first: list[tuple[str, bool]]
) -> None:
    assert bought(lists, **row) == first


def test_pools_of_a_stockout_are_a_list() -> None:
    given = _parsers()[0].parse_args(["up", "--stockout", "a,b", "--stockout", "c"])
    assert given.stockout == ["a", "b", "c"]
    assert _parsers()[0].parse_args(["up"]).stockout == []


@pytest.fixture
def declared(plain_gke: Cloud) -> Iterator[Cloud]:
    until(lambda: is_served(plain_gke.api, PATH))
    yield plain_gke
    plain_gke.api.delete(f"{PATH}/any")
    clean(plain_gke)


def health(cloud: Cloud) -> tuple[str, list[str]]:
    """The health of the class, and the reasons of its faults."""
    item = cloud.api.get(f"{PATH}/any")
    faults = (item.get("status") or {}).get("conditions") or []
    reasons = [fault["reason"] for fault in faults if fault["type"] != "Health"]
    return condition(item, "Health").get("status", ""), reasons


def test_a_stockout_leads_to_the_next_pool(declared: Cloud) -> None:
    declared.api.create(PATH, IN_ORDER)
    declared.store.put("stock", {"first": 0})
    try:
        for pool in (FIRST, SECOND):
            declared.store.save_pool(pool)
        declared.run("train", 2, **SPEC)
        until(lambda: len(declared.running("train")) == 1)
    finally:
        declared.store.put("stock", {})
    assert not declared.nodes("first")
    [node] = declared.nodes("second")
    assert node["metadata"]["labels"][COMPUTE_CLASS_PRIORITY] == "1"
    until(lambda: health(declared) == ("True", []))
    # When the machines are back, the next pod gets one of them.
    declared.run("more", 2, **SPEC)
    until(lambda: len(declared.nodes("first")) == 1)


def test_faults_of_a_class_are_in_its_status(declared: Cloud) -> None:
    declared.api.create(PATH, IN_ORDER)
    declared.store.save_pool(FIRST)
    until(lambda: health(declared) == ("False", ["NodePoolNotExist"]))
    declared.store.save_pool(pool_of_class("second", taints=[]))
    until(lambda: health(declared) == ("False", ["TaintMissing"]))
    declared.store.save_pool(SECOND)
    until(lambda: health(declared) == ("True", []))


REFUSED = {
    "a name of GKE": class_of({"nodepools": ["p"]}) | {"metadata": {"name": "gke-any"}},
    "pools with properties": class_of({"nodepools": ["p"], "spot": True}),
    "type and family": class_of({"machineType": "g2-standard-8", "machineFamily": "g2"}),
    "spot and flex-start": class_of({"spot": True, "flexStart": {"enabled": True}}),
    "an empty priority": class_of({}),
    "an unknown policy": class_of({"spot": True}, whenUnsatisfiable="Perhaps"),
}


def test_the_api_refuses_what_gke_refuses(declared: Cloud) -> None:
    for case, manifest in REFUSED.items():
        with pytest.raises(ApiError, match="422"):
            declared.api.create(PATH, manifest)
            raise AssertionError(case)
    flex = {"flexStart": {"enabled": False}, "spot": True}
    made = declared.api.create(PATH, class_of(flex, {"nodepools": ["p"]}))
    assert made["spec"]["whenUnsatisfiable"] == "DoNotScaleUp"
