"""ComputeClasses: the order in which the pools of a class grow, and what GKE reports about it."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ml_foundations.catalog import compute_classes
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import Manifest, name_of, section
from ml_foundations.rehearsal.api import Api, Object, by_name, existing
from ml_foundations.rehearsal.cloud.events import now
from ml_foundations.rehearsal.cloud.store import Pool

PATH = f"/apis/{compute_classes.API_VERSION}/computeclasses"
_NOTHING_MATCHES = "-1"
"""The index of the priority of nodes that match none (GKE's autoscaler, nodeinfosproviders)."""


class ComputeClasses:
    """Applies the ComputeClasses of the cluster to its node pools."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def applied(self, pools: Mapping[str, Pool]) -> dict[str, Pool]:
        """Return the pools with their priorities, and report the faults of the classes."""
        listed = existing(self._api, PATH)
        declared = {name: declared_pool(pool) for name, pool in pools.items()}
        for item in listed:
            self._report(item, declared.values())
        classes = by_name(listed)
        return {name: in_class(pool, classes, declared[name]) for name, pool in pools.items()}

    def _report(self, compute_class: Object, pools: Iterable[Manifest]) -> None:
        conditions: dict[str, Object] = {}
        for type_, reason, message in compute_classes.conditions(compute_class, pools):
            conditions.setdefault(type_, _condition(type_, "True", reason, message))
        health = ("False", "the class has faults") if conditions else ("True", "no fault is found")
        conditions["Health"] = _condition("Health", health[0], "Health", health[1])
        known: list[Object] = section(compute_class, "status").get("conditions") or []
        if list(conditions.values()) != [item | {"lastTransitionTime": ""} for item in known]:
            written = [item | {"lastTransitionTime": now()} for item in conditions.values()]
            path = f"{PATH}/{name_of(compute_class)}/status"
            self._api.patch(path, {"status": {"conditions": written}})


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


def _condition(type_: str, status: str, reason: str, message: str) -> Object:
    stated = {"type": type_, "status": status, "reason": reason, "message": message}
    return {**stated, "lastTransitionTime": ""}
