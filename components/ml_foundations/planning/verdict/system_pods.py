"""Nodes of GKE that are shown without the pods that GKE itself runs on each of them."""

from collections.abc import Iterator

from ml_foundations.catalog.node_resources import cluster_features, system_daemonsets
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import labels_of, namespace_of
from ml_foundations.kubernetes.quantities import Amounts, milli, readable, total
from ml_foundations.planning.api_server.cluster import Cluster
from ml_foundations.planning.model.node_groups import NodeGroup, PodClass, total_room
from ml_foundations.planning.model.nodes import NodeClass
from ml_foundations.planning.model.refusals import Refusal
from ml_foundations.planning.model.workloads import PodSet

_WITH_IDENTITY = {"workloadIdentityConfig": {"workloadPool": "any"}}
"""The property of a cluster that most have."""


def in_place_of_system_pods(
    cluster: Cluster, pod_set: PodSet, pod: PodClass, needed: int
) -> Iterator[Refusal]:
    """Yield pods that find no room if GKE's own pods, which are not shown, run too."""
    if not _lacks_system_pods(cluster):
        return
    left: list[NodeGroup] = []
    accepting = cluster.accepting(pod)
    for group in accepting:
        used = _requests(group.node)
        free = {name: amount - used.get(name, 0) for name, amount in group.free.items()}
        left.append(NodeGroup(group.node, free, group.running))
    if total_room(pod, left) < needed <= total_room(pod, accepting):
        used = max(map(_requests, [group.node for group in accepting]), key=lambda one: one["cpu"])
        amounts = f"about {readable(used['cpu'])} cpu and {readable(used['memory'])} memory"
        message = f"it fits only without GKE's own pods, which request {amounts} of each node"
        remedy = "Request less, or add the pods of kube-system to what is judged."
        yield Refusal("system-requests", pod_set.path, message, remedy)


def _lacks_system_pods(cluster: Cluster) -> bool:
    shown = [*cluster.by_kind["Pod"], *cluster.by_kind["DaemonSet"]]
    is_of_pool = any(labels.GKE_NODE_POOL in labels_of(node) for node in cluster.by_kind["Node"])
    return is_of_pool and all(namespace_of(item) != "kube-system" for item in shown)


def _requests(node: NodeClass) -> Amounts:
    """Return what GKE's DaemonSets request of a node, as far as it is of a node pool."""
    features = (
        cluster_features(_WITH_IDENTITY) if labels.GKE_NODE_POOL in node.labels else set[str]()
    )
    if labels.GKE_ACCELERATOR in node.labels:
        features.add("managed-gpu")
    requested = [daemon for daemon in system_daemonsets() if daemon.runs_where in features]
    amounts = [{"cpu": milli(one.cpu), "memory": milli(one.memory)} for one in requested]
    return total([{"cpu": 0, "memory": 0}, *amounts])
