"""ComputeClasses: the order in which the pools of a class grow, and what GKE reports about it."""

from collections.abc import Mapping
from dataclasses import replace

from ml_foundations.catalog import compute_classes
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import Manifest, section
from ml_foundations.rehearsal.api import Object, by_name, existing
from ml_foundations.rehearsal.cloud.cluster import Controller
from ml_foundations.rehearsal.cloud.statuses import new_condition, set_status
from ml_foundations.rehearsal.cloud.store import Pool

PATH = f"/apis/{compute_classes.API_VERSION}/computeclasses"
_NOTHING_MATCHES = "-1"
"""The index of the priority of nodes that match none (GKE's autoscaler, nodeinfosproviders)."""


class ComputeClassController(Controller):
    """Applies the ComputeClasses of the cluster to its node pools."""

    def reconcile(self) -> None:
        """Give the pools their priorities, and report the faults of the classes."""
        pools = self.cluster.pools
        declared = {name: declared_pool(pool) for name, pool in pools.items()}
        classes = by_name(existing(self.api, PATH))
        for item in classes.values():
            conditions: dict[str, Object] = {}
            for type_, reason, message in compute_classes.conditions(item, declared.values()):
                conditions.setdefault(type_, new_condition(type_, reason, message))
            health = "the class has faults" if conditions else "no fault is found"
            is_well = not conditions
            conditions["Health"] = new_condition("Health", message=health, is_true=is_well)
            set_status(self.api, PATH, item, {"conditions": [*conditions.values()]})
        for name, pool in pools.items():
            pools[name] = in_class(pool, classes, declared[name])


def in_class(pool: Pool, classes: Mapping[str, Manifest], declared: Manifest) -> Pool:
    """Return a pool with its place among the pools of its class, if its class exists."""
    compute_class = classes.get(compute_classes.class_of(declared) or "")
    if compute_class is None:
        return pool
    index = compute_classes.matched(compute_class, declared)
    label = _NOTHING_MATCHES if index is None else str(index)
    return replace(
        pool,
        labels={**pool.labels, labels.COMPUTE_CLASS_PRIORITY: label},
        priority=len(compute_classes.priorities(compute_class)) if index is None else index,
        grows=index is not None or compute_classes.scales_up_anyway(compute_class),
    )


def declared_pool(pool: Pool) -> Manifest:
    """Return the inputs of a pool, with its zones."""
    return {**section(pool.resource, "inputs"), "name": pool.name, "nodeLocations": [*pool.zones]}
