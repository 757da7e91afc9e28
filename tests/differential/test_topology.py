"""Planning's topology domains are those of the real Kueue, for random nodes and gangs."""

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from ml_foundations.kubernetes.labels import HOSTNAME
from ml_foundations.kubernetes.objects import Manifest
from ml_foundations.planning.scheduler.topology import REQUIRED, TopologyRequest, Usage
from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import Api
from ml_foundations.rehearsal.control_plane import controllers, kwok
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.plugins.kubernetes.client import Client
from ml_foundations.rehearsal.tools.toolchain import Tools

from tests.differential.topology import (
    FLAVOR_LABEL,
    NAMESPACE,
    Fleet,
    Gang,
    RealKueue,
    fleet,
    gang,
    planned,
    pods,
    workload,
)
from tests.factories import GPU, node
from tests.support.trials import sizes
from tests.support.waiting import until

CASES_OF_A_FLEET = 25
AT_ONCE = 4


@pytest.fixture(scope="module")
def api(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    rehearsal = Rehearsal.of("t", tmp_path_factory.mktemp("topology"))
    rehearsal.make()
    try:
        kwok.start(rehearsal, tools)
        controllers.start(rehearsal, tools, controllers.KUEUE, {})
        yield Api(Access(rehearsal.kubeconfig))
    finally:
        controllers.stop(rehearsal)
        kwok.delete(rehearsal)


@pytest.mark.parametrize("cases", sizes(50, 500))
def test_kueue_assigns_the_domains_that_planning_finds(api: Api, cases: int) -> None:
    chance = random.Random(f"topology {cases}")
    number = cases // CASES_OF_A_FLEET
    fleets = [fleet(chance, f"f{cases}-{index:02}") for index in range(number)]
    _create(api, fleets)
    seeds = [chance.random() for _ in fleets]
    with ThreadPoolExecutor(AT_ONCE) as threads:
        found = list(
            threads.map(lambda each: _compared(api, *each), zip(fleets, seeds, strict=True))
        )
    disagreements = [line for lines, _ in found for line in lines]
    fitting = sum(count for _, count in found)
    assert not disagreements, "\n".join(disagreements)
    assert 0.2 * cases < fitting < 0.9 * cases * 2, "some gangs fit, and some do not"


def test_kueue_judges_a_leader_by_the_conditions_of_its_workers(api: Api) -> None:
    """Kueue issue 15373: no node accepts the leader, and Kueue admits it."""
    nodes: list[Manifest] = []
    for name in ("lead-0", "lead-1"):
        made = node(name, {FLAVOR_LABEL: "lead"}, gpu="8")
        made["metadata"]["annotations"] = {"kwok.x-k8s.io/node": "fake"}
        nodes.append(made)
    _create(api, [Fleet("lead", [HOSTNAME], nodes)])
    request = TopologyRequest(REQUIRED, HOSTNAME, group="ring")
    made = workload("lead", "lead", Gang(request, [1, 1], pods({GPU: "1"})))
    leader = made["spec"]["podSets"][1]["template"]
    leader["spec"] = {**leader["spec"], "nodeSelector": {"role": "head"}}
    assignments, message = RealKueue(api).decision(made)
    assert message == ""
    assert assignments == [[(("lead-0",), 1)], [(("lead-0",), 1)]]


def _create(api: Api, fleets: list[Fleet]) -> None:
    client = Client(api)
    objects = [each for one in fleets for each in one.objects()]
    account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
    api.ensure("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    until(lambda: api.find(account) is not None)
    with ThreadPoolExecutor(AT_ONCE) as threads:
        for kinds in (("Node",), ("Pod",), None):
            wanted = [each for each in objects if kinds is None or each["kind"] in kinds]
            objects = [each for each in objects if each not in wanted]
            list(threads.map(client.create, map(dict, wanted)))
            until(lambda wanted=wanted: all(_is_ready(client.get(dict(each))) for each in wanted))


def _is_ready(document: Manifest | None) -> bool:
    """Return whether a node or a queue is ready, and a pod runs."""
    assert document is not None
    status = document.get("status", {})
    if document["kind"] == "Pod":
        return status.get("phase") == "Running"
    names = {"Node": "Ready", "ClusterQueue": "Active", "LocalQueue": "Active"}
    if (name := names.get(document["kind"])) is None:
        return True
    taints = [taint["key"] for taint in document["spec"].get("taints", [])]
    holds = [each["status"] for each in status.get("conditions", []) if each["type"] == name]
    return holds == ["True"] and "node.kubernetes.io/not-ready" not in taints


def _compared(api: Api, fleet: Fleet, seed: float) -> tuple[list[str], int]:
    """Return where planning and Kueue disagree about gangs on a fleet, and how many fit."""
    chance, nodes, kueue = random.Random(seed), fleet.planned(), RealKueue(api)
    disagreements: list[str] = []
    fitting = 0
    for case in range(CASES_OF_A_FLEET):
        taken, created = Usage(), list[str]()
        # The second gang finds what the first one leaves.
        for index in range(chance.choice((1, 1, 2))):
            one = gang(chance, fleet.levels)
            name = f"{fleet.name}-{case}-{index}"
            expected = planned(nodes, one, taken)
            assignments, message = kueue.decision(workload(name, fleet.name, one))
            created.append(name)
            wanted = [expected.workers, expected.leader][: len(one.counts)]
            is_equal = expected.failure in message if expected.failure else assignments == wanted
            fitting += not expected.failure
            if not is_equal:
                found = message or assignments
                disagreements.append(f"{name} {one}: planning {expected}, Kueue {found}")
                break
        kueue.delete(created)
    return disagreements, fitting
