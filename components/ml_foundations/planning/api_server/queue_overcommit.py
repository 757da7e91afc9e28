"""Queues of Kueue that promise more GPUs than nodes have, or than a namespace's quota allows."""

from collections.abc import Iterator, Mapping

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import Manifest, items, name_of, namespace_of, section
from ml_foundations.kubernetes.quantities import WHOLE, Amounts, milli, times, total
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.kubernetes.words import names, verb
from ml_foundations.planning.api_server.cluster import Cluster
from ml_foundations.planning.api_server.cohorts import flavors_of, quota_of
from ml_foundations.planning.model.refusals import Refusal
from ml_foundations.planning.model.resources import is_extended

_FIELD = "nominalQuota (gpus of a TrainingQueue)"


def overpromised(cluster: Cluster) -> Iterator[Refusal]:
    """Yield extended resources with more nominal quota than nodes have or ResourceQuotas allow."""
    for flavor in cluster.by_kind["ResourceFlavor"]:
        yield from _more_than_nodes(cluster, flavor)
    for queue in cluster.by_kind["ClusterQueue"]:
        yield from _more_than_quotas(cluster, queue)


def _more_than_nodes(cluster: Cluster, flavor: Manifest) -> Iterator[Refusal]:
    selector = section(flavor, "spec", "nodeLabels")
    for node in cluster.declared:
        is_unknown = any(node.labels.get(key) is UNKNOWN for key in selector)
        if labels.GPU_RESOURCE not in node.lacks and (node.unknown or is_unknown):
            return
    nodes = [node for node in cluster.declared if selector.items() <= node.labels.items()]
    # An AdmissionCheck asks for nodes, here or in another cluster, whatever the quota.
    queues = cluster.by_kind["ClusterQueue"]
    queues = [queue for queue in queues if not cluster.queues.checks_of(queue)]
    promised = total(_nominal_quotas(queue, name_of(flavor)) for queue in queues)
    offered = total(times(node.allocatable, node.count) for node in nodes)
    holder = f"{names(node.name for node in nodes)} {verb(len(nodes), 'has', 'have')}"
    about = f"ResourceFlavor {name_of(flavor)}"
    for name, amount in _excess(promised, offered).items():
        if offered.get(name):
            yield _overcommitted(about, name, amount, holder, offered[name])
        else:
            promise = f"queues promise {amount // WHOLE} {name}"
            message = f"{promise}, and no node of this flavor has any"
            remedy = f"Declare nodes of the flavor that have {name}, or lower {_FIELD} to 0."
            yield Refusal("queue-capacity", "spec", message, remedy, object=about)


def _more_than_quotas(cluster: Cluster, queue: Manifest) -> Iterator[Refusal]:
    """Yield what a queue promises beyond the quotas of all namespaces that it serves."""
    served = set[str]()
    for local_queue in cluster.by_kind["LocalQueue"]:
        if section(local_queue, "spec").get("clusterQueue") == name_of(queue):
            served.add(namespace_of(local_queue))
    for name, amount in _excess(_nominal_quotas(queue), {}).items():
        limits = [_limit(cluster, namespace, name) for namespace in sorted(served)]
        known = [limit for limit in limits if limit is not None]
        most = sum(hard for hard, _ in known)
        if served and len(known) == len(limits) and amount > most:
            holders = names(holder for _, holder in known)
            have = f"{holders} {verb(len(known), 'has', 'have')}"
            yield _overcommitted(f"ClusterQueue {name_of(queue)}", name, amount, have, most)


def _limit(cluster: Cluster, namespace: str, resource: str) -> tuple[int, str] | None:
    """Return the least quota of a namespace for a resource, with its holder; None without one."""
    limits: list[tuple[int, str]] = []
    for quota in cluster.by_kind["ResourceQuota"]:
        spec = section(quota, "spec")
        key = f"requests.{resource}"
        is_scoped = spec.get("scopes") or spec.get("scopeSelector")
        if namespace_of(quota) == namespace and not is_scoped and key in section(spec, "hard"):
            hard = milli(section(spec, "hard")[key])
            limits.append((hard, f"ResourceQuota {namespace}/{name_of(quota)}"))
    return min(limits, default=None)


def _nominal_quotas(queue: Manifest, flavor_name: str | None = None) -> Amounts:
    """Return the nominal quotas of a queue by resource, of one flavor or of all."""
    quotas: list[Amounts] = []
    for _, flavor in flavors_of(queue):
        if flavor_name in (None, flavor.get("name")):
            for resource in items(flavor, "resources"):
                if name := resource.get("name"):
                    quotas.append({name: quota_of(flavor, name).nominal})
    return total(quotas)


def _excess(promised: Amounts, offered: Mapping[str, int]) -> Amounts:
    """Return the promised amounts of extended resources that exceed the offered ones."""
    names = [name for name in promised if promised[name] > offered.get(name, 0)]
    return {name: promised[name] for name in filter(is_extended, names)}


def _overcommitted(about: str, name: str, amount: int, holder: str, most: int) -> Refusal:
    message = f"queues promise {amount // WHOLE} {name}, and {holder} {most // WHOLE}"
    remedy = f"Lower {_FIELD} to {most // WHOLE} in all, or raise that amount."
    return Refusal("queue-capacity", "spec", message, remedy, object=about)
