"""Workloads whose nodes may be bought in several ways: where they are, and what that costs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from ml_foundations.catalog.kueue import API_VERSION
from ml_foundations.catalog.nodes import node_labels
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import items, section
from ml_foundations.kubernetes.selectors import selects_node
from ml_foundations.planning.model.nodes import node_class
from ml_foundations.planning.verdict.cost import price_of
from ml_foundations.rehearsal.api import Api, by_name, existing
from ml_foundations.rehearsal.cloud.compute_classes import PATH, declared_pool, in_class
from ml_foundations.rehearsal.cloud.nodes import node_template
from ml_foundations.rehearsal.cloud.store import Pool
from ml_foundations.rehearsal.report.workloads import Workload

_KUEUE = f"/apis/{API_VERSION}"


@dataclass(frozen=True)
class Purchase:
    """The nodes of a workload, next to its first choice, with prices per hour in US dollars."""

    namespace: str
    workload: str
    pools: dict[str, int]
    """The number of its nodes by pool."""
    per_hour: Decimal | None
    """None if a price is not known."""
    first: str
    """The pool that comes first."""
    first_per_hour: Decimal | None
    """The price of as many nodes of this pool."""


def purchases(api: Api, pools: Mapping[str, Pool], rows: Sequence[Workload]) -> Iterator[Purchase]:
    """Yield the purchases of the workloads with a ComputeClass, or with a queue of many flavors."""
    if not any(row.queue or _class_of(row) for row in rows):
        return
    classes = by_name(existing(api, PATH))
    members = [in_class(pool, classes, declared_pool(pool)) for pool in pools.values()]
    flavors = _flavors(api)
    for row in rows:
        ways = list(_ways(row, flavors.get((row.namespace, row.queue), []), members))
        if len(ways) > 1:
            prices: dict[str, Decimal | None] = {}
            for pool in members:
                node = node_class(node_template(pool, pool.zones[0], None))
                prices[pool.name] = price_of(node)
            count = sum(row.pools.values())
            cost = _total((prices.get(name), number) for name, number in row.pools.items())
            first = ways[0], _total([(prices[ways[0]], count)])
            yield Purchase(row.namespace, f"{row.kind} {row.name}", row.pools, cost, *first)


def _ways(
    row: Workload, flavors: Sequence[Mapping[str, str]], pools: Sequence[Pool]
) -> Iterator[str]:
    """Yield the pools that may run a workload, in the order in which they are tried."""
    selectors: Sequence[Mapping[str, str]] = flavors or [{}]
    if len(selectors) == 1 and labels.COMPUTE_CLASS not in selectors[0] and not _class_of(row):
        return
    for selector in selectors:
        for pool in sorted(pools, key=lambda pool: pool.priority):
            node = node_labels(pool, pool.zones[0], None)
            is_selected = selects_node(row.pod_spec, {"metadata": {"labels": node}})
            if is_selected and selector.items() <= node.items():
                yield pool.name


def _class_of(row: Workload) -> str | None:
    return section(row.pod_spec, "nodeSelector").get(labels.COMPUTE_CLASS)


def _flavors(api: Api) -> dict[tuple[str, str], list[Mapping[str, str]]]:
    """Return the node labels of the flavors of each queue, by its namespace and name, in order."""
    flavors = by_name(existing(api, f"{_KUEUE}/resourceflavors"))
    queues = by_name(existing(api, f"{_KUEUE}/clusterqueues"))
    by_queue: dict[tuple[str, str], list[Mapping[str, str]]] = {}
    for local in existing(api, f"{_KUEUE}/localqueues"):
        ordered = by_queue[local["metadata"]["namespace"], local["metadata"]["name"]] = []
        queue = queues.get(local["spec"]["clusterQueue"], {})
        for group in items(section(queue, "spec"), "resourceGroups"):
            for flavor in group["flavors"]:
                spec = section(flavors.get(flavor["name"], {}), "spec")
                # The flavor of CPU and memory selects no nodes.
                if spec.get("nodeLabels"):
                    ordered.append(spec["nodeLabels"])
    return by_queue


def _total(parts: Iterable[tuple[Decimal | None, int]]) -> Decimal | None:
    total = Decimal(0)
    for price, count in parts:
        if price is None:
            return None
        total += price * count
    return total
