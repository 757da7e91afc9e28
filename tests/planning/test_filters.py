"""The scheduler's filters, case by case."""

from typing import Any

import pytest
from ml_foundations.kubernetes.quantities import WHOLE, millis
from ml_foundations.planning.model.node_groups import NodeGroup, pod_of
from ml_foundations.planning.model.nodes import node_class
from ml_foundations.planning.model.resources import PODS
from ml_foundations.planning.scheduler.placement import refusals_on_node

Case = dict[str, Any]


def container(requests: Case | None = None, limits: Case | None = None, **fields: Any) -> Case:
    resources = {"requests": requests or {}, "limits": limits or {}}
    return {"name": "main", "resources": resources, **fields}


def pod(**spec: Any) -> Case:
    return {"metadata": {"name": "pod"}, "spec": {"containers": [container()]} | spec}


def node(labels: Case | None = None, taints: list[Case] | None = None, **spec: Any) -> Case:
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "3", "nvidia.com/gpu": "2"}
    return {
        "metadata": {"name": "node-1", "labels": {"gpu": "a100", "cores": "8"} | (labels or {})},
        "spec": {"taints": taints or []} | spec,
        "status": {"allocatable": amounts},
    }


def messages(pod: Case, node: Case) -> list[str]:
    return [refusal.message for refusal in refusals_on_node(pod, node)]


@pytest.mark.parametrize(
    ("spec", "requests"),
    [
        ({"containers": [container({"cpu": "1"}), container({"cpu": "500m", "memory": "1Gi"})]},
         {"cpu": "1500m", "memory": "1Gi"}),
        # An init container runs before the others: the larger of the two counts.
        ({"containers": [container({"cpu": "1"})], "initContainers": [container({"cpu": "3"})]}, {"cpu": "3"}),
        ({"containers": [container({"cpu": "1"})],
          "initContainers": [container({"cpu": "1"}), container({"cpu": "1"})]}, {"cpu": "1"}),
        # A sidecar stays: it adds to the containers, and to the init containers behind it but not before it.
        ({"containers": [container({"cpu": "1"})],
          "initContainers": [container({"cpu": "2"}, restartPolicy="Always")]}, {"cpu": "3"}),
        ({"containers": [container({"cpu": "1"})],
          "initContainers": [container({"cpu": "2"}, restartPolicy="Always"), container({"cpu": "4"})]}, {"cpu": "6"}),
        ({"containers": [container({"cpu": "1"})],
          "initContainers": [container({"cpu": "4"}), container({"cpu": "2"}, restartPolicy="Always")]}, {"cpu": "4"}),
        ({"containers": [container({"cpu": "1"})], "overhead": {"cpu": "250m", "memory": "1Ki"}},
         {"cpu": "1250m", "memory": "1Ki"}),
        # A limit alone is a request too.
        ({"containers": [container(limits={"nvidia.com/gpu": 1, "cpu": "2"}, requests={"cpu": "1"})]},
         {"nvidia.com/gpu": "1", "cpu": "1"}),
        # Resources of the pod as a whole replace the sum, for cpu, memory and huge pages.
        ({"containers": [container({"cpu": "1", "nvidia.com/gpu": 1})],
          "resources": {"requests": {"cpu": "3", "nvidia.com/gpu": 7}}}, {"cpu": "3", "nvidia.com/gpu": "1"}),
        ({"containers": [container({"cpu": "1"})], "resources": {"limits": {"cpu": "3", "memory": "1Gi"}}},
         {"cpu": "1", "memory": "1Gi"}),
    ],
)  # fmt: skip
def test_requests(spec: Case, requests: dict[str, str]) -> None:
    assert pod_of({"spec": spec}).requests == millis(requests) | {PODS: WHOLE}


@pytest.mark.parametrize(
    ("requests", "used", "fits"),
    [
        ({"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": 2}, {}, True),
        ({"cpu": "4001m"}, {}, False),
        ({"nvidia.com/gpu": 2}, {"nvidia.com/gpu": "1"}, False),
        ({"nvidia.com/gpu": 8}, {}, False),
        ({"example.com/fpga": 1}, {}, False),
        ({"example.com/fpga": 0}, {}, True),
        ({}, {"pods": "3"}, False),
        ({"cpu": "0"}, {"cpu": "5"}, True),
    ],
)
def test_resources(requests: Case, used: dict[str, str], fits: bool) -> None:
    asking, free = pod(containers=[container(requests)]), node_class(node())
    taken = millis(used)
    left = {name: amount - taken.get(name, 0) for name, amount in free.allocatable.items()}
    assert bool(NodeGroup(free, left).room(pod_of(asking))) is fits
    if not used:
        assert messages(asking, node()) == ([] if fits else ["it has no room for the pod"])


def required(*terms: Case) -> Case:
    selector = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}


def term(key: str, operator: str, *values: str) -> Case:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("terms", "fits"),
    [
        ([term("gpu", "In", "h100", "a100")], True),
        ([term("gpu", "In", "h100")], False),
        ([term("zone", "In", "a")], False),
        ([term("gpu", "NotIn", "h100")], True),
        ([term("gpu", "NotIn", "a100")], False),
        ([term("zone", "NotIn", "a")], True),
        ([term("gpu", "Exists")], True),
        ([term("zone", "Exists")], False),
        ([term("zone", "DoesNotExist")], True),
        ([term("gpu", "DoesNotExist")], False),
        ([term("cores", "Gt", "7")], True),
        ([term("cores", "Gt", "8")], False),
        ([term("cores", "Lt", "9")], True),
        ([term("cores", "Lt", "8")], False),
        ([term("gpu", "Gt", "1")], False),
        ([term("zone", "Lt", "1")], False),
        ([term("cores", "Gt", "x")], False),
        ([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}], True),
        ([{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["node-1"]}]}], False),
        # Terms are alternatives; the expressions of one term must all hold.
        ([term("gpu", "In", "h100"), term("gpu", "In", "a100")], True),
        ([{"matchExpressions": [*term("gpu", "Exists")["matchExpressions"],
                                *term("zone", "Exists")["matchExpressions"]]}], False),
        # No term, or an empty one, matches nothing.
        ([], False),
        ([{}], False),
    ],
)  # fmt: skip
def test_required_node_affinity(terms: list[Case], fits: bool) -> None:
    assert (messages(pod(affinity=required(*terms)), node()) == []) is fits


def test_affinity_and_selector_say_what_the_node_has() -> None:
    wants = pod(affinity=required(term("gpu", "In", "h100")), nodeSelector={"tier": "gold"})
    assert messages(wants, node()) == [
        "node selector tier=gold: the node has no tier",
        "required node affinity: gpu In [h100] (the node has gpu=a100)",
    ]


def test_preferred_affinity_refuses_nothing() -> None:
    preferred = [{"weight": 1, "preference": term("gpu", "In", "h100")}]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    assert messages(pod(affinity=affinity), node()) == []


TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"key": "nvidia.com/gpu", "operator": "Exists"}, True),
        ({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "nvidia.com/gpu", "operator": "Equal", "value": "present"}, True),
        ({"key": "nvidia.com/gpu", "value": "present"}, True),
        ({"key": "nvidia.com/gpu", "value": "absent"}, False),
        ({"key": "nvidia.com/gpu"}, False),
        ({"operator": "Exists"}, True),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "nvidia.com/gpu", "operator": "Lt", "value": "5"}, False),
    ],
)
def test_tolerations(toleration: Case, tolerated: bool) -> None:
    reasons = messages(pod(tolerations=[toleration]), node(taints=[TAINT]))
    assert reasons == ([] if tolerated else ["untolerated taint nvidia.com/gpu=present:NoSchedule"])


@pytest.mark.parametrize(
    ("effect", "refused"), [("NoSchedule", True), ("NoExecute", True), ("PreferNoSchedule", False)]
)
def test_effects(effect: str, refused: bool) -> None:
    assert bool(messages(pod(), node(taints=[{"key": "k", "effect": effect}]))) is refused


def test_every_taint_needs_a_toleration() -> None:
    taints = [TAINT, {"key": "k", "effect": "NoExecute"}]
    tolerant = pod(tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists"}])
    assert messages(tolerant, node(taints=taints)) == ["untolerated taint k:NoExecute"]


def test_cordoned_node() -> None:
    assert messages(pod(), node(unschedulable=True)) == ["the node is cordoned (unschedulable)"]
    assert messages(pod(tolerations=[{"operator": "Exists"}]), node(unschedulable=True)) == []


def test_node_name() -> None:
    assert messages(pod(nodeName="node-1"), node()) == []
    assert messages(pod(nodeName="other"), node()) == ["the pod names the node other"]


def test_absent_sections_are_empty() -> None:
    bare = {"metadata": {}, "status": {"allocatable": {"pods": "1"}}}
    assert messages({"spec": {"containers": []}}, bare) == []
