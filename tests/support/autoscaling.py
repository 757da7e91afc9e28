"""What tests of the simulated autoscaler share: pods that wait for a node, and the nodes that a plan adds."""

from collections import Counter

from ml_foundations.rehearsal.cloud.autoscaler import Plan

from tests.support.simulation import Object

UNSCHEDULABLE = {
    **{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"},
    "message": "in whatever words",
}
"""What the scheduler notes on a pod that has no node."""


def waiting_pods(count: int, spec: Object, **metadata: Object) -> list[Object]:
    """Return pods for which the scheduler has found no node."""
    return [
        {
            "metadata": {"name": f"p{index}", "namespace": "default", **metadata},
            "spec": spec,
            "status": {"phase": "Pending", "conditions": [dict(UNSCHEDULABLE)]},
        }
        for index in range(count)
    ]


def per_pool(found: Plan) -> Counter[str]:
    """Return the number of nodes that a plan adds to each pool."""
    counts: Counter[str] = Counter()
    for (pool, _), count in found.new_nodes.items():
        counts[pool] += count
    return counts
