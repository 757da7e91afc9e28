"""PodDisruptionBudgets that let no pod be evicted, as upgrades of nodes need.

GKE waits an hour for such a pod in each drain of a node, and then deletes it (GKE, "Node upgrade
strategies").
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from ml_foundations.kubernetes.objects import Manifest, namespace_of, section
from ml_foundations.kubernetes.quantities import whole_number
from ml_foundations.kubernetes.selectors import selects
from ml_foundations.kubernetes.trees import unknown_paths
from ml_foundations.kubernetes.words import names
from ml_foundations.planning.model.declared import full_name
from ml_foundations.planning.model.workloads import PodSet, Workload, has_scale, is_stored
from ml_foundations.planning.rules.findings import Finding, Severity, warning
from ml_foundations.planning.rules.rule import rule
from ml_foundations.planning.rules.stack import Stack

_WAIT = "so each drain of a node waits, an hour in an upgrade of GKE"


@rule(
    "eviction-budget",
    Severity.WARNING,
    "A pod has one PodDisruptionBudget at most, and the budget lets some pod be evicted.",
    source=(
        "Kubernetes v1.36, pkg/registry/core/pod/storage/eviction.go and pkg/controller/disruption"
    ),
    example="""
        apiVersion: policy/v1
        kind: PodDisruptionBudget
        metadata: {name: llm, namespace: ml}
        spec: {minAvailable: 1, selector: {matchLabels: {app: llm}}}
        ---
        apiVersion: apps/v1
        kind: Deployment
        metadata: {name: llm, namespace: ml}
        spec:
          replicas: 1
          selector: {matchLabels: {app: llm}}
          template:
            metadata: {labels: {app: llm}}
            spec: {containers: [{name: llm, image: llm:1}]}
    """,
)
def eviction_budgets(stack: Stack) -> Iterator[Finding]:
    """Yield the budgets that let no pod be evicted, and the workloads that have two budgets."""
    budgets: list[Manifest] = []
    for budget in stack.of_kind("PodDisruptionBudget"):
        if not any(unknown_paths(budget.get("spec"))):
            budgets.append(budget)
    selected: defaultdict[str, list[tuple[Workload, PodSet]]] = defaultdict(list)
    for workload, *_ in stack.workloads if budgets else ():
        # Drains skip the pods of DaemonSets, and a live workload runs in part already.
        if workload.kind == "DaemonSet" or is_stored(workload.manifest):
            continue
        for pods in workload.pods:
            of_pods: list[str] = []
            for budget in budgets:
                is_here = namespace_of(budget) == workload.namespace and pods.count > 0
                if is_here and selects(section(budget, "spec").get("selector"), pods.labels):
                    of_pods.append(full_name(budget))
                    selected[full_name(budget)].append((workload, pods))
            if len(of_pods) > 1:
                # See Kubernetes, pkg/registry/core/pod/storage/eviction.go.
                message = f"{names(sorted(of_pods))} select its pods, and no pod of two is evicted"
                remedy = "Keep one of them."
                yield _warning(str(workload), "metadata.labels", f"{message}, {_WAIT}", remedy)
    for budget in budgets:
        yield from _closed(budget, selected[full_name(budget)])


def _warning(about: str, path: str, message: str, remedy: str) -> Finding:
    return warning("eviction-budget", about, path, message, remedy)


def _closed(budget: Manifest, selected: Sequence[tuple[Workload, PodSet]]) -> Iterator[Finding]:
    """Yield the finding on a budget that lets no pod be evicted even while all are healthy."""
    spec = section(budget, "spec")
    least = spec.get("minAvailable")
    most = spec.get("maxUnavailable")
    healthy = sum(map(_most, selected))
    # The controller counts shares, and what may be unavailable, of the scales of pods' owners. It
    # lets no pod be evicted if an owner has no scale, or all are without an owner (Kubernetes,
    # pkg/controller/disruption, getExpectedScale and updatePdbStatus).
    of_scale = most is not None or isinstance(least, str)
    owned = [item for item in selected if not of_scale or item[0].kind != "Pod"]
    without = [str(workload) for workload, _ in owned or selected if not has_scale(workload.kind)]
    expected = sum(map(_most, owned))
    # Without both, the controller lets none be evicted.
    kept = expected - _share(most, expected) if least is None else _share(least, expected)
    if of_scale and without:
        reason = f"it lets none be evicted: {without[0]} has no scale to take a share of"
    elif healthy and kept >= healthy:
        pods = "the only pod" if healthy == 1 else f"all {healthy} pods"
        reason = f"it keeps {pods} of {names(sorted({str(workload) for workload, _ in selected}))}"
    else:
        return
    remedy = "Set maxUnavailable: 1, or run more replicas than it keeps."
    if without:
        remedy = f"Set minAvailable to a number of at most {healthy - 1}, without maxUnavailable."
    yield _warning(full_name(budget), "spec", f"{reason}, {_WAIT}", remedy)


def _most(selected: tuple[Workload, PodSet]) -> int:
    """Return how many pods of a set there are, or will be by an autoscaler."""
    workload, pods = selected
    return max(pods.count, workload.ceiling or 0)


def _share(value: Any, count: int) -> int:
    """Return a number of pods, or a percentage of them, rounded up as the controller does."""
    if isinstance(value, str) and value.endswith("%"):
        return math.ceil(count * whole_number(value[:-1], 0) / 100)
    return whole_number(value, 0)
