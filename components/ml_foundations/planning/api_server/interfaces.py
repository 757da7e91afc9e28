"""Interfaces of pods in further networks, which GKE's webhook makes them request."""

import re
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import Manifest, items, section
from ml_foundations.planning.model.nodes import NodeClass
from ml_foundations.planning.scheduler.filters import spec_refusals

_NETWORK = re.compile(r'"network"\s*:\s*"([^"]+)"')


def requests(interfaces: Any, spec: Manifest, nodes: Iterable[NodeClass]) -> tuple[list[str], str]:
    """Return the extended resources that interfaces of a pod request, and uncertain networks.

    A network is uncertain if some node may have or lack it. Nodes advertise NAME or NAME.IP for
    each network (kubernetes/cloud-provider-gcp, pkg/controller/nodeipam). The interfaces are the
    pod's annotation, and the spec is as the API server stores it.
    """
    names = {*_NETWORK.findall(str(interfaces))} - {"default"}
    if not names and str(interfaces).strip() != "[]":
        return [], "that it names"
    accepting = accepting_nodes(spec, nodes)
    resources: list[str] = []
    unclear: list[str] = []
    for name in sorted(names):
        wanted = {f"{labels.GKE_NETWORKS}{name}", f"{labels.GKE_NETWORKS}{name}.IP"}
        offered = wanted.intersection(chain.from_iterable(node.allocatable for node in accepting))
        if offered and not any(_may_offer(node, wanted) for node in accepting):
            resources += sorted(offered)
        else:
            unclear.append(name)
    return resources, ", ".join(unclear)


def accepting_nodes(spec: Manifest, nodes: Iterable[NodeClass]) -> list[NodeClass]:
    """Return the nodes that may accept pods, by their labels and taints."""
    accepting: list[NodeClass] = []
    for node in nodes:
        refused = () if node.unknown else spec_refusals(spec, node)
        if not any(refusal.certain for refusal in refused):
            accepting.append(node)
    return accepting


def _may_offer(node: NodeClass, wanted: set[str]) -> bool:
    is_planned = bool(node.unknown) or node.is_template
    may_have_more = is_planned and labels.GKE_NETWORKS not in node.lacks
    return may_have_more and not wanted & node.allocatable.keys()


def with_requests(spec: Manifest, resources: Sequence[str]) -> Manifest:
    """Return a pod's spec whose first container requests one of each resource."""
    first, *other_containers = items(spec, "containers")
    requested = dict(section(first, "resources"))
    for field in ("requests", "limits"):
        requested[field] = {**dict.fromkeys(resources, "1"), **section(requested, field)}
    return {**spec, "containers": [{**first, "resources": requested}, *other_containers]}
