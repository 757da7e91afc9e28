"""What GKE's controllers make in the project for load balancers.

A finalizer holds the Gateway, Service or Ingress until it is removed. If the cluster goes first, it
is left, and its network cannot be deleted (terraform-provider-google, issues 5948 and 7637).
"""

from typing import NamedTuple

from ml_foundations.kubernetes.objects import name_of, namespace_of
from ml_foundations.rehearsal.api import Object, path_in
from ml_foundations.rehearsal.cloud.cluster import Cluster
from ml_foundations.rehearsal.cloud.networks import cluster_network


class _Kind(NamedTuple):
    """A kind of object with a load balancer.

    Attributes:
        finalizer: Its finalizer (kubernetes/cloud-provider, service/helpers; ingress-gce,
            pkg/utils/common; the Gateways of GKE have theirs in public outputs of kubectl).
        prefix: How the names of the objects in the project begin.
        made: The collections of these objects.
    """

    finalizer: str
    prefix: str
    made: tuple[str, ...]


_BALANCER = ("forwardingRules", "backendServices", "healthChecks", "firewalls")
_PROXIES = ("targetHttpProxies", "targetHttpsProxies", "urlMaps", "networkEndpointGroups")
KINDS = {
    "services": _Kind("service.kubernetes.io/load-balancer-cleanup", "k8s", _BALANCER),
    "ingresses": _Kind("networking.gke.io/ingress-finalizer-V2", "k8s1", (*_BALANCER, *_PROXIES)),
    "gateways": _Kind("gateway.finalizer.networking.gke.io", "gkegw1", (*_BALANCER, *_PROXIES)),
}
"""By the names of their collections, the kinds for which GKE makes load balancers."""


def follow(cluster: Cluster, collection: str, item: Object, *, is_served: bool) -> bool:
    """Make what an object needs in the project, or remove it. Return whether it is needed."""
    kind = KINDS[collection.rpartition("/")[2]]
    metadata = item["metadata"]
    finalizers: list[str] = metadata.get("finalizers") or []
    is_needed = is_served and "deletionTimestamp" not in metadata
    if is_needed == (kind.finalizer in finalizers):
        return is_needed
    kept = [finalizer for finalizer in finalizers if finalizer != kind.finalizer]
    name = f"{kind.prefix}-{namespace_of(item)}-{name_of(item)}-{metadata['uid'][:8]}"
    for made in kind.made:
        if is_needed:
            record = {"name": f"{made}/{name}", "in": cluster_network(cluster.properties)}
            cluster.project.save("made", f"{made}.{name}", record)
        else:
            cluster.project.delete("made", f"{made}.{name}")
    if is_needed:
        kept.append(kind.finalizer)
    change = {"finalizers": kept, "resourceVersion": metadata["resourceVersion"]}
    cluster.api.patch(path_in(collection, item), {"metadata": change})
    return is_needed
