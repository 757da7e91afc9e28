"""Interfaces of pods in further networks, which GKE's webhook makes them request."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, cast

from ml_foundations.catalog.injections import INTERFACES, injections
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import Manifest, items, section
from ml_foundations.kubernetes.reading import ReadError, embedded_json
from ml_foundations.kubernetes.trees import UNKNOWN, is_mapping
from ml_foundations.planning.model.nodes import NodeClass, machine_of
from ml_foundations.planning.model.refusals import Refusal, doubt
from ml_foundations.planning.scheduler.filters import spec_refusals

_NETWORK = re.compile(r'"network"\s*:\s*"([^"]+)"')


def requests(interfaces: Any, spec: Manifest, nodes: Iterable[NodeClass]) -> tuple[list[str], str]:
    """Return the extended resources that interfaces of a pod request, and uncertain networks.

    A network is uncertain if some node may have or lack it. Nodes advertise NAME or NAME.IP for
    each network (kubernetes/cloud-provider-gcp, pkg/controller/nodeipam). If none can, pods request
    both, and stay pending. The interfaces are the pod's annotation, and the spec is as the API
    server stores it.
    """
    if interfaces is UNKNOWN:
        return [], "that it names"
    accepting = accepting_nodes(spec, nodes)
    resources: list[str] = []
    unclear: list[str] = []
    for name in _names(interfaces):
        injected = {resource.format(name) for resource in injections()[INTERFACES].resources}
        offered = injected.intersection(chain.from_iterable(node.allocatable for node in accepting))
        if any(_may_offer(node, injected) for node in accepting):
            unclear.append(name)
        else:
            resources += sorted(offered or injected)
    return resources, ", ".join(unclear)


def refusals(interfaces: Any, spec: Manifest, nodes: Iterable[NodeClass]) -> Iterator[Refusal]:
    """Yield why GKE gives pods none of their interfaces: without these, no container starts.

    Sources: GKE, "Set up multi-network support for Pods", "Allocate network resources by using GKE
    managed DRANET" (a node pool has one of both).
    """
    path = f"metadata.annotations.{labels.GKE_INTERFACES}"
    fault = _fault(interfaces)
    if spec.get("hostNetwork") is True:
        fault = "is for pods with their own network, and hostNetwork is true"
    if fault:
        remedy = 'Write it as [{"interfaceName": "eth1", "network": "NAME"}], without hostNetwork.'
        yield Refusal("pod-interfaces", path, f"its annotation {fault}", remedy)
        return
    accepting = accepting_nodes(spec, nodes)
    managed = [node.labels.get(labels.GKE_NETWORK_DRA_DRIVER) == "true" for node in accepting]
    if managed and all(managed):
        pools = ", ".join(dict.fromkeys(node.name for node in accepting))
        message = f"it names interfaces, and pods of {pools} claim them: GKE makes its networks"
        remedy = "Claim the interfaces (gpu_fabric of the pool), and leave the annotation out."
        yield Refusal("pod-interfaces", path, message, remedy)
        return
    requested: Manifest = {}
    for container in items(spec, "containers")[:1]:
        requested = section(container, "resources", "requests")
    for name in _names(interfaces) if accepting and all(map(_by_address_only, accepting)) else ():
        resource = f"{labels.GKE_NETWORKS}{name}"
        if str(requested.get(resource)) != "0":
            seen = f"nodes of {accepting[0].name} may offer {resource}.IP alone"
            message = f"GKE requests {resource} for the pods, and {seen}: then they wait for ever"
            zero = f'Set {resource} to "0" in requests and limits of the first container'
            remedy = f"{zero} (gpu_fabric does), or have GKE make the networks (gpu_network: auto)."
            yield doubt("pod-interfaces", path, message, remedy, only_refuses=True)
            return


def _by_address_only(node: NodeClass) -> bool:
    # Reading the catalog takes a third of the start-up time.
    from ml_foundations.catalog.gpu_fabrics import by_address_only, gpu_fabric

    machine = machine_of(node)
    fabric = gpu_fabric(machine) if machine else None
    return fabric is not None and by_address_only(fabric.kind)


def _names(interfaces: Any) -> list[str]:
    """Return the names of a pod's networks, without that of the cluster."""
    return sorted({*_NETWORK.findall(str(interfaces))} - {"default"})


def _fault(interfaces: Any) -> str:
    """Return what is invalid about the annotation; empty if nothing is, or if it is not known."""
    if interfaces is UNKNOWN:
        return ""
    try:
        parsed = embedded_json(interfaces)
    except ReadError as error:
        return f"is not JSON: {error}"
    listed = cast("list[Any]", parsed) if isinstance(parsed, list) else [parsed]
    entries = list(filter(is_mapping, listed))
    if entries != parsed:
        return "is not a list of interfaces"
    for field in ("interfaceName", "network"):
        values = [entry.get(field) for entry in entries]
        if not all(isinstance(value, str) and value for value in values):
            return f"has an interface without {field}"
        for value, count in Counter(values).items():
            if count > 1:
                return f"has {field} {value} twice"
    return ""


def accepting_nodes(spec: Manifest, nodes: Iterable[NodeClass]) -> list[NodeClass]:
    """Return the nodes that may accept pods, by their labels and taints."""
    accepting: list[NodeClass] = []
    for node in nodes:
        refused = () if node.unknown else spec_refusals(spec, node)
        if not any(refusal.certain for refusal in refused):
            accepting.append(node)
    return accepting


def _may_offer(node: NodeClass, resources: set[str]) -> bool:
    is_planned = bool(node.unknown) or node.is_template
    may_have_more = is_planned and labels.GKE_NETWORKS not in node.lacks
    return may_have_more and not resources & node.allocatable.keys()


def with_requests(spec: Manifest, resources: Sequence[str]) -> Manifest:
    """Return a pod's spec whose first container requests one of each resource, unless it sets it.

    The API server has copied its limits to its requests before.
    """
    containers = items(spec, "containers")
    if not containers:
        return spec  # which the API server refuses
    first = containers[0]
    requested = dict(section(first, "resources"))
    given = {**section(requested, "limits"), **section(requested, "requests")}
    added = dict.fromkeys((name for name in resources if name not in given), "1")
    for field in ("requests", "limits"):
        requested[field] = {**added, **section(requested, field)}
    return {**spec, "containers": [{**first, "resources": requested}, *containers[1:]]}
