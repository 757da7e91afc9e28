"""How much longer planning takes for more: next to nothing but n log n, and exceptions by name.

CPU time is compared at a size and a fourth of it: n log n takes at most five times as long, the square sixteen times.
A factor of ten tells them apart on a busy machine too. What takes less than ``FLOOR`` is not compared.
"""

import time
from collections.abc import Iterable

import pytest
from ml_foundations.planning.input import field_catalog
from ml_foundations.planning.model.performance import without_garbage_collector
from ml_foundations.planning.scheduler.budget import MOST_STEPS
from ml_foundations.planning.verdict.program import judge_documents

from tests.factories import HOSTNAME, ZONE, Manifest, affinity, deployment, node, template
from tests.planning import growing
from tests.planning.growing import Case

FLOOR, MOST, SQUARE = 0.05, 10.0, 24.0
"""Seconds of CPU; the most that four times as much may take, times as long; and if it is an exception."""
PER_NODE = "each pod is compared with each kind of node that some rule tells apart: 8 µs a pair"
PER_PAIR = "each pod is compared with each that it may keep off its node: 20 µs a pair"
PER_OBJECT = "each of them is about every workload of the namespace: 4 to 40 µs a pair"
EXCEPTIONS = {
    **{
        f"podAntiAffinity by {HOSTNAME} to {whom}": PER_PAIR
        for whom in ("own", "next", "in", "none")
    },
    "Deployments on their own nodes": PER_NODE,
    "Deployments on two nodes each": PER_NODE,
    "Deployments off a node each": PER_NODE,
    "Deployments that fit nowhere": PER_NODE,
    "tainted nodes": PER_NODE,
    "Deployments with their own host port": PER_PAIR,
    "inline disks": PER_PAIR,
    "DaemonSets": PER_PAIR,
    "DaemonSets and Deployments": PER_PAIR,
    "DaemonSets and as many nodes": PER_NODE,
    "DaemonSets on their own nodes": PER_NODE,
    "running pods and pods apart": PER_PAIR,
    "running pods on as many nodes": PER_NODE,
    "Pods with volumes of their nodes": PER_NODE,
    **dict.fromkeys(("quotas", "quotas that are exceeded", "LimitRanges"), PER_OBJECT),
    **dict.fromkeys(("NetworkPolicies", "NetworkPolicies and Services", "routes"), PER_OBJECT),
    **dict.fromkeys(("webhooks", "webhooks with Services"), PER_OBJECT),
    **dict.fromkeys(("policies", "policies and other objects"), PER_OBJECT),
    "namespaces that nothing has": "each missing name is compared with all names, for the nearest",
}
"""What takes the square, and why: it is the product of two numbers that a stack has, and never more."""

KINDS = field_catalog.schema()["kinds"]
FIRST = sorted(KINDS, key=lambda kind: (kind not in field_catalog.judged_kinds(), kind))
BY_KIND: dict[str, list[Case]] = {}
for _case in growing.fields({kind: KINDS[kind] for kind in FIRST}, once=True):
    BY_KIND.setdefault(" ".join(_case.name.split(" ", 2)[:2]), []).append(_case)
RELATED = {case.name: case for case in growing.relations()}


def cpu(case: Case, size: int) -> float:
    documents = case.grown(size)
    with without_garbage_collector():
        started = time.process_time()
        judge_documents(documents)
        return time.process_time() - started


def slower(case: Case, size: int, most: float = MOST) -> str:
    """Return how much longer a size takes than a fourth of it, if that is too much; else nothing."""
    longest = cpu(case, size)
    for _ in range(3):
        if longest < FLOOR or longest < most * (before := cpu(case, size // 4)):
            return ""
        longest = min(longest, cpu(case, size))
    return f"{case.name}: {longest:.2f} s for {size}, {before:.3f} s for {size // 4}"


def grows_with_its_value(case: Case) -> str:
    """Return that a number takes longer the larger it is; else nothing."""
    seconds = [cpu(case, size) for size in case.sizes]
    return f"{case.name}: {seconds}" if max(seconds) > MOST * max(FLOOR, seconds[0]) else ""


def faults(cases: Iterable[Case]) -> list[str]:
    found: list[str] = []
    for case in cases:
        is_number = case.sizes is growing.NUMBERS
        found.append(grows_with_its_value(case) if is_number else slower(case, case.sizes[-1]))
    return list(filter(None, found))


@pytest.mark.parametrize("kind", BY_KIND)
def test_the_fields_of_a_kind(kind: str) -> None:
    assert faults(BY_KIND[kind]) == []


@pytest.mark.parametrize("name", RELATED)
def test_objects_that_are_about_each_other(name: str) -> None:
    is_square, size = name in EXCEPTIONS, growing.SIZES[-1]
    fault = slower(RELATED[name], size // 2, SQUARE) if is_square else slower(RELATED[name], size)
    assert fault == ""


def test_the_searches_of_a_stack_share_a_budget() -> None:
    assert MOST_STEPS == 800_000, "docs/reliability.md names it"
    nodes = [node(f"n{index}", {ZONE: "a"}, cpu="9") for index in range(20)]
    stack: list[Manifest] = list(nodes)
    for index in range(16):
        pods = template({"app": f"w{index}"}, affinity=affinity(app=f"w{index}"))
        stack.append(deployment(f"w{index}", 2, pods))
    verdicts = judge_documents(stack)
    assert "work-budget" in {finding.rule for finding in verdicts.findings}
    assert "work-budget" not in {finding.rule for finding in judge_documents(stack[:-12]).findings}
