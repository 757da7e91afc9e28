"""Findings about PodDisruptionBudgets that let no pod be evicted, as upgrades of nodes need.

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
from ml_foundations.planning.model.declared import full_name, of_kind
from ml_foundations.planning.model.workloads import COUNTED, PodSet, Workload, is_stored
from ml_foundations.planning.verdict.findings import Finding, warning
from ml_foundations.planning.verdict.verdicts import Verdicts

_SCALED = COUNTED - {"Job"} | {"LeaderWorkerSet", "Pod"}
"""The kinds whose pods a share is of. Those of others, such as Jobs, have no scale: then no pod may
be evicted (Kubernetes, pkg/controller/disruption, getExpectedScale)."""
_WAIT = "so each drain of a node waits, an hour in an upgrade of GKE"


def eviction_budget_findings(objects: Sequence[Manifest], verdicts: Verdicts) -> Iterator[Finding]:
    """Yield findings of the rule ``eviction-budget`` on the judged workloads."""
    budgets: list[Manifest] = []
    for budget in of_kind(objects, "PodDisruptionBudget"):
        if not any(unknown_paths(budget.get("spec"))):
            budgets.append(budget)
    selected: defaultdict[str, list[tuple[Workload, PodSet]]] = defaultdict(list)
    for workload in [item.workload for item in verdicts.workloads] if budgets else ():
        # Drains skip the pods of DaemonSets, and a live workload runs in part already.
        if workload.kind == "DaemonSet" or is_stored(workload.manifest):
            continue
        for pods in workload.pods:
            of_pods = [full_name(budget) for budget in budgets if _selects(budget, workload, pods)]
            for name in of_pods:
                selected[name].append((workload, pods))
            if len(of_pods) > 1:
                # See Kubernetes, pkg/registry/core/pod/storage/eviction.go.
                message = f"{names(sorted(of_pods))} select its pods, and no pod of two is evicted"
                remedy = "Keep one of them."
                yield _warning(str(workload), "metadata.labels", f"{message}, {_WAIT}", remedy)
    for budget in budgets:
        if reason := _why_closed(section(budget, "spec"), selected[full_name(budget)]):
            remedy = "Set maxUnavailable: 1, or run more replicas than it keeps."
            yield _warning(full_name(budget), "spec", f"{reason}, {_WAIT}", remedy)


def _warning(about: str, path: str, message: str, remedy: str) -> Finding:
    return warning("eviction-budget", about, path, message, remedy)


def _selects(budget: Manifest, workload: Workload, pods: PodSet) -> bool:
    selector: Any = section(budget, "spec").get("selector")
    is_here = namespace_of(budget) == workload.namespace
    return is_here and pods.count > 0 and selects(selector, pods.labels)


def _why_closed(spec: Manifest, selected: Sequence[tuple[Workload, PodSet]]) -> str:
    """Return why a budget lets no pod be evicted even while all of its pods are healthy."""
    if not selected:
        return ""
    healthy = sum(max(pods.count, workload.ceiling or 0) for workload, pods in selected)
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    without_scale = [str(workload) for workload, _ in selected if workload.kind not in _SCALED]
    if without_scale and (most is not None or isinstance(least, str)):
        return f"it lets none be evicted: {without_scale[0]} has no scale to take a share of"
    # Without both, the controller lets none be evicted.
    kept = healthy - _share(most, healthy)
    if least is not None:
        kept = _share(least, healthy)
    workloads = names(sorted({str(workload) for workload, _ in selected}))
    return f"it keeps all {healthy} pods of {workloads}" if kept >= healthy else ""


def _share(value: Any, count: int) -> int:
    """Return a number of pods, or a percentage of them, rounded up as the controller does."""
    if isinstance(value, str) and value.endswith("%"):
        return math.ceil(count * whole_number(value[:-1], 0) / 100)
    return whole_number(value, 0)
