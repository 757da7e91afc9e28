"""What Kueue's queues promise: GPUs beyond those that nodes have, or that the quota of a namespace allows."""

from collections.abc import Iterable, Mapping

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import Manifest, items, name_of, namespace_of, section
from ml_foundations.kubernetes.quantities import Amounts, millis, readable, times, total
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.kubernetes.words import names, verb
from ml_foundations.planning.api_server.cluster import Cluster
from ml_foundations.planning.api_server.cohorts import quota_of
from ml_foundations.planning.model.refusals import Refusal, told
from ml_foundations.planning.model.resources import is_extended


def overpromised(cluster: Cluster) -> Iterable[Refusal]:
    """Extended resources of which the nominal quotas of queues are more than nodes have or quotas allow."""
    for flavor in cluster.by_kind["ResourceFlavor"]:
        wanted = section(flavor, "spec", "nodeLabels")
        open_nodes = [node for node in cluster.declared if labels.GPU_RESOURCE not in node.lacks]
        if any(
            node.unknown or any(node.labels.get(key) is UNKNOWN for key in wanted)
            for node in open_nodes
        ):
            continue
        nodes = [node for node in cluster.declared if wanted.items() <= node.labels.items()]
        promised = total(
            _nominal(queue, name_of(flavor)) for queue in cluster.by_kind["ClusterQueue"]
        )
        offered = total(times(node.allocatable, node.count) for node in nodes)
        holder = f"{names(node.name for node in nodes)} {verb(len(nodes), 'has', 'have')}"
        yield from _excess(f"ResourceFlavor {name_of(flavor)}", promised, offered, holder)
    for quota in cluster.by_kind["ResourceQuota"]:
        spec, namespace = section(quota, "spec"), namespace_of(quota)
        if spec.get("scopes") or spec.get("scopeSelector"):
            continue
        given = section(spec, "hard").items()
        hard = millis(
            {
                name.removeprefix("requests."): most
                for name, most in given
                if name.startswith("requests.")
            }
        )
        for local in cluster.by_kind["LocalQueue"]:
            queue = cluster.queues.cluster_queue(namespace, name_of(local))
            if queue is not None and namespace_of(local) == namespace:
                promised = {
                    name: amount for name, amount in _nominal(queue).items() if name in hard
                }
                holder = f"ResourceQuota {namespace}/{name_of(quota)} has"
                yield from _excess(f"ClusterQueue {name_of(queue)}", promised, hard, holder)


def _nominal(queue: Manifest, flavor: str | None = None) -> Amounts:
    """The nominal quotas of a queue by resource, of one flavor or of all."""
    return total(
        {name: quota_of(offered, name).nominal}
        for group in items(section(queue, "spec"), "resourceGroups")
        for offered in items(group, "flavors")
        if flavor in (None, offered.get("name"))
        for name in (resource.get("name") for resource in items(offered, "resources"))
        if name
    )


def _excess(
    about: str, promised: Amounts, offered: Mapping[str, int], holder: str
) -> Iterable[Refusal]:
    for name, amount in promised.items():
        most = offered.get(name, 0)
        if is_extended(name) and amount > most:
            refusal = (
                "queue-capacity"
                if most or about.startswith("ClusterQueue")
                else "queue-without-nodes"
            )
            amount, most = readable(amount), readable(most)
            yield told(
                refusal, "spec", object=about, amount=amount, name=name, holder=holder, most=most
            )
