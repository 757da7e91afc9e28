"""Nodes and Jobs that nothing tells apart are judged once, and every verdict is the same as with each alone."""

import copy
import sys
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest
from ml_foundations.kubernetes.labels import HOSTNAME
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning import Verdict, judge
from ml_foundations.planning.api_server import cluster, validation
from ml_foundations.planning.api_server.cluster import Cluster
from ml_foundations.planning.model.decisions import AdmittedWorkload
from ml_foundations.planning.model.workloads import Workload
from ml_foundations.planning.verdict.verdicts import Verdicts

from tests.differential import generator
from tests.factories import (
    Manifest,
    anti_affinity,
    cluster_wide,
    container,
    deployment,
    job,
    limit_range,
    node,
    quota,
    template,
)
from tests.factories import pod as pod_of


def pod(name: str, node_name: str = "", **spec: Any) -> Manifest:
    made = {"containers": [{"image": "i", **container(cpu=1)}], **spec}
    if not node_name:
        return cluster_wide("v1", "Pod", name, spec=made)
    running = {"phase": "Running"}
    return cluster_wide("v1", "Pod", name, spec=made | {"nodeName": node_name}, status=running)


def groups(*documents: Manifest) -> list[int]:
    return [place.count for place in Cluster(documents, ()).node_groups]


NODES = [node(f"n{index}", {"serial": str(index), "zone": "a"}, cpu=4) for index in range(4)]
OF_ZONE_B = node("n4", {"serial": "4", "zone": "b"}, cpu=4)


@pytest.mark.parametrize(
    ("documents", "sizes"),
    [
        ([], [4]),
        ([pod("a")], [4]),
        ([pod("a", nodeName="n1")], [1, 3]),
        ([pod("a", nodeSelector={HOSTNAME: "n0"})], [1, 3]),
        ([pod("a", nodeSelector={"serial": "2"})], [1, 1, 1, 1]),
        ([pod("a", nodeSelector={"zone": "a"})], [4]),
        ([pod("runs", "n2")], [1, 3]),
        ([pod("one", "n2"), pod("other", "n3")], [2, 2]),
        ([OF_ZONE_B, pod("a", nodeSelector={"zone": "b"})], [4, 1]),
        ([node("n4", {"serial": "4", "zone": "a"}, cpu=5)], [4, 1]),
    ],
)
def test_what_tells_nodes_apart(documents: list[Manifest], sizes: list[int]) -> None:
    found = groups(*NODES, *documents)
    assert sorted(found) == sorted(sizes), found


def test_nodes_that_share_a_host_name_stay_alone() -> None:
    assert groups(*(node(name, {HOSTNAME: "same"}, cpu=1) for name in "ab")) == [1, 1]


def test_a_group_is_named_after_its_first_node() -> None:
    verdicts = judge([*NODES, pod("a", containers=[{"image": "i", **container(cpu=8)}])])
    assert "n0 and 3 like it" in verdicts.workloads[0].reasons[0].message


def verdicts_of(found: Verdicts) -> list[Verdict]:
    return [found.stack, *(each.verdict for each in found.workloads)]


def test_grouping_changes_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """But that the smaller problem may be decided where the larger one was not."""
    cases = [[*case.documents, *copies(case.documents)] for case in generator.batch(0)[::5]]
    grouped = [verdicts_of(judge(documents)) for documents in cases]
    monkeypatch.setattr(
        cluster,
        "grouped",
        lambda nodes, running, mentioned: [(each, running.get(each.name, ())) for each in nodes],
    )
    for documents, found in zip(cases, grouped, strict=True):
        for one, other in zip(found, verdicts_of(judge(documents)), strict=True):
            assert other in (one, Verdict.UNDETERMINED)


def copies(documents: tuple[Manifest, ...]) -> list[Manifest]:
    """Two more nodes like each."""
    found = [copy.deepcopy(each) for each in documents if each["kind"] == "Node" for _ in range(2)]
    for index, each in enumerate(found):
        each["metadata"]["name"] += f"-{index}"
        if HOSTNAME in each["metadata"].get("labels", {}):
            each["metadata"]["labels"][HOSTNAME] = each["metadata"]["name"]
    return found


def told(found: Verdicts, index: int) -> tuple[Any, ...]:
    """The verdict on a Job, in words that do not name it."""
    item = found.workloads[index]
    name = item.workload.name
    reasons = [replace(each, message=each.message.replace(name, "it")) for each in item.reasons]
    return item.verdict, reasons


VARIABLE = {"env": [{"name": "A", "value": "1"}]}
JOB = job("first", 1, template({"app": "train"}, [container(cpu=1, gpu=1) | VARIABLE]))
OF_POD, OF_CONTAINER = "spec.template.spec", "spec.template.spec.containers.0"
BY_FIELD = {"fieldRef": {"fieldPath": "metadata.name"}}
GPU_NODE = node("n0", {"zone": "a"}, cpu=4, gpu=8)


@pytest.mark.parametrize(
    ("path", "value", "is_alike"),
    [
        ("metadata.labels", {"run": "2"}, True),
        ("spec.template.metadata.labels", {"app": "other"}, True),
        (f"{OF_CONTAINER}.args", ["--seed", "2"], True),
        (f"{OF_CONTAINER}.env.0.value", "2", True),
        (f"{OF_CONTAINER}.env.0.value", UNKNOWN, True),
        (f"{OF_CONTAINER}.env", UNKNOWN, False),
        ("metadata.name", "Not-A-Name", False),
        ("metadata.name", "n" * 64, False),
        ("metadata.labels", {"run": "not a label"}, False),
        ("metadata.labels", {"run": "l" * 64}, False),
        ("metadata.labels", {"kueue.x-k8s.io/queue-name": "none"}, False),
        ("metadata.uid", "1", False),
        ("metadata.annotations", {"a": "b"}, False),
        ("metadata.namespace", "other", True),
        ("metadata.namespace", "kube-system", False),
        ("metadata.namespace", "Not-A-Name", False),
        ("spec.template.metadata.labels", {"app": "apart"}, False),
        ("spec.template.metadata.labels", {"job-name": "another"}, False),
        ("spec.template.metadata.annotations", {"a": "b"}, False),
        ("spec.parallelism", 2, False),
        (f"{OF_CONTAINER}.env.0.name", "=", False),
        (f"{OF_CONTAINER}.env.0.value", "", False),
        (f"{OF_CONTAINER}.env.0.valueFrom", BY_FIELD, False),
        (f"{OF_CONTAINER}.name", "Main", False),
        (f"{OF_CONTAINER}.resources.limits", {"cpu": "9"}, False),
        (f"{OF_POD}.priorityClassName", "high", False),
        (f"{OF_POD}.nodeSelector", {"zone": "b"}, False),
    ],
)
def test_a_job_is_judged_as_if_alone(
    path: str, value: Any, is_alike: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside another one that differs in one field: only what decides nothing is not judged again."""
    other = copy.deepcopy(JOB)
    other["metadata"]["name"] = "second"
    *keys, last = [int(key) if key.isdigit() else key for key in path.split(".")]
    holder: Any = other
    for key in keys:
        holder = holder.setdefault(key, {}) if isinstance(holder, dict) else holder[key]
    holder[last] = value
    away = pod("away", affinity=anti_affinity(app="apart"))
    beside = [GPU_NODE, *([away] if value == {"app": "apart"} else [])]
    again: list[Workload] = []
    really = AdmittedWorkload.copy_for
    monkeypatch.setattr(
        AdmittedWorkload,
        "copy_for",
        lambda self, each: again.append(each) or really(self, each),
    )
    together, alone = judge([*beside, JOB, other]), judge([*beside, other])
    assert told(together, -1) == told(alone, -1)
    assert [each.manifest for each in again] == [other] * is_alike


FEW = quota("few", {"requests.cpu": "1"})
LIMITED = limit_range({"type": "Container", "max": {"cpu": "1"}})
ABOVE = {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}


@pytest.mark.parametrize(
    ("kind", "resources", "beside", "rule"),
    [
        ("Job", {"limits": {"cpu": "2", "nvidia.com/gpu": "2"}}, [], ""),
        ("Deployment", {"limits": {"cpu": "2"}}, [], ""),
        ("Pod", {"limits": {"memory": "1Gi"}}, [], ""),
        ("Job", None, [], ""),
        ("Job", {"limits": {"cpu": "9"}}, [], "resources"),
        ("Job", {"limits": {"nvidia.com/gpu": "1500m"}}, [], "extended-resource-fraction"),
        ("Deployment", ABOVE, [], "request-above-limit"),
        ("Pod", {"limits": {"hugepages-2Mi": "4Mi"}}, [], "invalid"),
        ("Job", {"limits": {"cpu": "2"}}, [FEW], "quota"),
        ("Job", {"limits": {"memory": "1Gi"}}, [FEW], "quota-requires"),
        ("Job", {"limits": {"cpu": "2"}}, [LIMITED], "limit-range-max"),
    ],
)
def test_a_workload_with_other_amounts_is_judged_as_if_alone(
    kind: str, resources: Any, beside: list[Manifest], rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other = (of_kind(kind, name) for name in ("first", "second"))
    spec = other["spec"] if kind == "Pod" else other["spec"]["template"]["spec"]
    spec["containers"][0]["resources"] = resources
    validated: list[Workload] = []
    really = validation.refusals
    monkeypatch.setattr(validation, "refusals", lambda each: validated.append(each) or really(each))
    together = judge([GPU_NODE, *beside, first, other])
    assert [each.name for each in validated] == ["first"]
    assert told(together, -1) == told(judge([GPU_NODE, *beside, other]), -1)
    rules = [each.rule for each in together.workloads[-1].reasons]
    assert rule in rules if rule else not rules


def of_kind(kind: str, name: str) -> Manifest:
    """A workload whose one pod fits, and breaks no limit."""
    pods = template({"app": name}, [container(cpu=1)])
    match kind:
        case "Job":
            return job(name, 1, pods)
        case "Pod":
            return pod_of(name, pods)
        case _:
            return deployment(name, 1, pods)


def calls(nodes: int, jobs: int) -> int:
    """How many functions are called to judge so many Jobs on so many nodes that are alike."""
    documents = [
        *(node(f"n{index}", cpu=64) for index in range(nodes)),
        *(job(f"j{i}", 1, template()) for i in range(jobs)),
    ]
    count = 0

    def counted(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        judge(documents)
    finally:
        sys.setprofile(before)
    return count


def test_no_workload_looks_at_every_node() -> None:
    calls(2, 2)  # what is read once is read
    few, many = (calls(nodes, 30) - calls(nodes, 10) for nodes in (20, 200))
    assert abs(many - few) < 20 * 20, (
        "another workload costs more where there are more nodes of a class"
    )
