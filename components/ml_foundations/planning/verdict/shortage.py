"""Shortages in words: how many nodes or resources are missing, the nearest pool, and a remedy."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from ml_foundations.kinds.counts import lowered
from ml_foundations.kubernetes import labels, words
from ml_foundations.kubernetes.objects import items, section
from ml_foundations.kubernetes.quantities import WHOLE, millis, readable
from ml_foundations.kubernetes.selectors import required_node_affinity
from ml_foundations.kubernetes.tolerations import described_taint, untolerated_taints
from ml_foundations.kubernetes.words import listed, names, number, verb
from ml_foundations.planning.model.decisions import Shortage
from ml_foundations.planning.model.exclusive import JOB_LABEL
from ml_foundations.planning.model.node_groups import NodeGroup, PodClass, total_room
from ml_foundations.planning.model.refusals import Cause, Refusal
from ml_foundations.planning.model.resources import PODS, is_extended, requesting, resource_name
from ml_foundations.planning.model.workloads import PodSet
from ml_foundations.planning.scheduler.filters import refusals


class Lack(NamedTuple):
    """A resource that is short for a pod on a node, in thousandths."""

    resource: str
    needed: int
    free: int


def explained(reason: Shortage) -> Refusal:
    """Return the refusal in words, by the first of these that is true.

    How many pods find nodes depends on their order; there are no nodes; no node takes one pod; a
    constraint allows fewer pods than the nodes have room for; there are too few nodes.
    """
    pod = reason.pod
    path = reason.pod_set.path
    if reason.most >= reason.needed:
        some = f"between {reason.least} and {reason.needed} of {reason.needed} pods"
        message = f"{some} find a place, as the scheduler's choices fall"
        remedy = "Loosen the constraint, or give every domain room for all."
        return Refusal(reason.limited_by or "placement-order", path, message, remedy)
    if not reason.node_groups:
        return Refusal("no-nodes", path, "there are no nodes", "Declare a node pool.")
    able = _able(reason)
    if not able:
        return _no_node_takes_one(reason)
    if reason.limited_by and reason.most < total_room(pod, able):
        return _limited(reason, able)
    return _too_few_nodes(reason, able)


def _able(reason: Shortage) -> list[NodeGroup]:
    """Return the nodes that accept a pod and have room for it."""
    pod = reason.pod
    return [g for g in reason.node_groups if g.room(pod) and not refusals(pod, g.node)]


def roomiest(reason: Shortage) -> NodeGroup | None:
    """Return the nodes that a remedy asks for; None if no node takes a pod."""
    able = _able(reason)
    return _roomiest(reason.pod, able) if able else None


def _roomiest(pod: PodClass, able: Sequence[NodeGroup]) -> NodeGroup:
    return max(able, key=lambda group: (group.room(pod), group.count))


_OF_VOLUMES = dict.fromkeys(("disk-type", "volume-zone", "volume-binding"), 5)
_DISTANCES = {"taint": 2, "node-unschedulable": 2, **_OF_VOLUMES}
"""How far a node is that refuses pods by a rule: a toleration is easier to add than a machine."""
_OTHER_RULE = 10
_SHORT = 3
"""How far a node is whose resource is short."""
_ABSENT = 20
"""How far a node without an extended resource is: a pod with GPUs is nearer to any GPU node."""


def _refusal_distance(pod: PodClass, group: NodeGroup) -> int:
    """Return how far a node is from accepting a pod, whatever its resources are."""
    refused = refusals(pod, group.node)
    return sum(_DISTANCES.get(refusal.rule, _OTHER_RULE) for refusal in refused)


def _distance(pod: PodClass, group: NodeGroup) -> tuple[float, ...]:
    """Return how far a node is from taking one pod: the first number that differs decides.

    These are whether it is in another node pool than the pod selects; points for each rule that
    refuses the pod and each resource that is short; how much of these is missing, in shares of what
    the pod needs; and minus the number of such nodes.
    """
    points = _refusal_distance(pod, group)
    missing_shares = 0.0
    for lack in lacks(pod, group):
        is_absent = not group.node.allocatable.get(lack.resource)
        points += _ABSENT if is_absent and is_extended(lack.resource) else _SHORT
        missing_shares += 1 - lack.free / lack.needed
    pool = section(pod.spec, "nodeSelector").get(labels.GKE_NODE_POOL, "")
    return group.node.labels.get(labels.GKE_NODE_POOL) != pool, points, missing_shares, -group.count


def _no_node_takes_one(reason: Shortage) -> Refusal:
    """Return why the nearest node does not accept even one pod."""
    pod_set = reason.pod_set
    pod = reason.pod
    nearest = min(reason.node_groups, key=lambda group: _distance(pod, group))
    refused = refusals(pod, nearest.node)
    short = lacks(pod, nearest)
    against = "; ".join([*(refusal.message for refusal in refused), *lack_texts(short)])
    if refused:
        rule = refused[0].rule
        path = reason.sources.get(refused[0].path, f"{pod_set.path}.{refused[0].path}")
    elif short:
        # Requests for networks follow from interfaces: the path of another resource is better.
        first = min(short, key=lambda lack: lack.resource.startswith(labels.GKE_NETWORKS))
        rule = "resources"
        path = reason.sources.get(first.resource, _request_path(pod_set, first.resource))
    else:
        rule = "pod-anti-affinity"
        path = pod_set.path
        against = "pods that run there keep it off, by host ports or anti-affinity"
    name = nearest.node.name
    message = f'each pod needs {needs(pod)}; the nearest, "{name}", does not take it: {against}'
    return Refusal(rule, path, message, _remedy(reason, nearest))


def _request_path(pod_set: PodSet, resource: str) -> str:
    """Return where a template asks for most of a resource; its containers if it does not.

    Networks are in an annotation of the pods, next to their spec.
    """
    if resource.startswith(labels.GKE_NETWORKS):
        holder = pod_set.path.removesuffix("spec")  # "" of a Pod, else such as "spec.template."
        return f"{holder}metadata.annotations.{labels.GKE_INTERFACES}"
    amounts: dict[str, int] = {}
    for kind in ("containers", "initContainers"):
        for index, container in enumerate(items(section(pod_set.template, "spec"), kind)):
            for part in ("limits", "requests"):
                path = f"{pod_set.path}.{kind}[{index}].resources.{part}.{resource}"
                if amount := millis(section(container, "resources", part)).get(resource):
                    amounts[path] = amount
    return max(amounts, key=lambda path: amounts[path], default=f"{pod_set.path}.containers")


def daemon_set_nowhere(pod_set: PodSet, pod: PodClass, groups: Sequence[NodeGroup]) -> Refusal:
    """Return why no node runs a DaemonSet's pod: what the nearest node has against it."""
    rule = "daemon-set-without-nodes"
    path = pod_set.path
    if not groups:
        message = "it runs on no node, because there are none"
        return Refusal(rule, path, message, "Declare a node pool.")
    # Its controller reads the pods that it creates, without what the API server adds to them.
    pod = replace(pod, spec=pod.created_spec or pod.spec)
    # Of equals, a node with the labels that the pod names is nearer: GPU nodes with a wrong driver.
    terms = items(required_node_affinity(pod.spec) or {}, "nodeSelectorTerms")
    named = {item["key"] for term in terms for item in items(term, "matchExpressions")}
    nearest = min(
        groups,
        key=lambda group: (_refusal_distance(pod, group), -len(named & group.node.labels.keys())),
    )
    refused = refusals(pod, nearest.node)
    against = "; ".join(refusal.message for refusal in refused)
    against = against or "its controller does not choose it"
    message = f'it runs on no node; the nearest, "{nearest.node.name}", does not take it: {against}'
    shortage = Shortage(pod_set, pod, groups, least=0, most=0, limited_by="", needed=1)
    path = f"{path}.{refused[0].path}" if refused else path
    return Refusal(rule, path, message, _remedy(shortage, nearest))


def _remedy(reason: Shortage, nearest: NodeGroup) -> str:
    """Return the fewest changes with which the nearest pool accepts the pods."""
    refused = refusals(reason.pod, nearest.node)
    ways = _ways(reason, nearest, refused)
    steps = [*ways.values(), *_resource_ways(reason, nearest)]
    sentences = [words.as_remedy(listed(steps))] if steps else []
    sentences += [refusal.remedy for refusal in refused if refusal.rule not in ways]
    remedy = " ".join(filter(None, dict.fromkeys(sentences)))
    return remedy or "Free the node's host ports or loosen the anti-affinity."


def _ways(reason: Shortage, nearest: NodeGroup, refused: Sequence[Refusal]) -> dict[str, str]:
    """Return how to satisfy the rules by which the nearest node refuses the pods, by their names.

    A rule that is not among them has a remedy in its refusal.
    """
    pod_set = reason.pod_set
    name = nearest.node.name
    tolerations = items(reason.pod.spec, "tolerations")
    lasting = [item for item in tolerations if item.get("tolerationSeconds") is None]
    taints = listed(map(described_taint, untolerated_taints(lasting, nearest.node.taints)))
    if any(refusal.path == "tolerations.tolerationSeconds" for refusal in refused):
        taints += " without tolerationSeconds"
    selectors: dict[str, None] = {}
    values: list[str] = []
    for refusal in refused:
        if refusal.rule == "node-selector":
            values.append(_values(reason, nearest, refusal.path.removeprefix("nodeSelector.")))
            whole = pod_set.written_path("nodeSelector")
            selectors[reason.sources.get(refusal.path, whole)] = None
    affinity = f"correct {pod_set.written_path('affinity.nodeAffinity')}"
    if any(refusal.cause is Cause.NO_GPU_PRODUCT for refusal in refused):
        operator = f"the GPU Operator gives nodes {labels.GPU_PRODUCT}"
        affinity += f" ({operator}; else set accelerator_label of our workloads)"
    ways = {
        "taint": f"tolerate {taints}",
        "node-selector": f"correct {listed(selectors)} ({'; '.join(values)})",
        "node-affinity": affinity,
        "node-name": f"remove {pod_set.written_path('nodeName')}",
        "node-unschedulable": f"uncordon {name}",
        "shared-gpu": f"request 1 {labels.GPU_RESOURCE}",
        "volume-zone": f"give {name} nodes in the volume's zone",
        "disk-type": "choose a storage class with a disk type that the machine attaches",
    }
    rules = {refusal.rule for refusal in refused}
    return {rule: way for rule, way in ways.items() if rule in rules}


def _values(reason: Shortage, nearest: NodeGroup, key: str) -> str:
    """Return the values of a label that a pod may select, those of the nearest node first."""
    selected = section(reason.pod.spec, "nodeSelector").get(key)
    near = nearest.node.labels.get(key)
    if key == JOB_LABEL:
        return f"leave it out, or label nodes with {key}={selected}"
    labels_of_nodes = [group.node.labels for group in reason.node_groups]
    offered = {str(node_labels[key]) for node_labels in labels_of_nodes if key in node_labels}
    values = sorted(offered - {selected}, key=lambda value: (value != near, value))
    if not values:
        return f"{nearest.node.name} has no {key}" if offered else f"no node has {key}"
    if key == labels.GKE_NODE_POOL and selected not in offered:
        are = verb(len(values), "pool is", "pools are")
        return f"the node {are} {names(values)}, not {selected}"
    return f"nodes have {key} {' or '.join(values)}"


def _resource_ways(reason: Shortage, nearest: NodeGroup) -> list[str]:
    """Return how to need no more of each resource than the nearest node has free.

    What a DRA driver offers is claimed by count, and all else is requested by amount.
    """
    overhead = millis(section(reason.pod.spec, "overhead"))
    ways = list[str]()
    claims = list[str]()
    used = list[str]()
    absent = list[str]()
    for resource, _, free in lacks(reason.pod, nearest):
        left = free - overhead.get(resource, 0)
        most = readable(left, math.floor)
        claim = reason.sources.get(resource)
        if left > 0 and claim:
            ways.append(f"lower count to {most} in {claim}")
        elif left > 0:
            besides = " besides the overhead" if overhead.get(resource) else ""
            sharing = requesting(reason.pod.spec, resource)
            together = " together" if len(sharing) > 1 else ""
            where = f"{together} in {names(sharing)}" if sharing else ""
            ways.append(f"request at most {most} {resource}{besides}{where}")
        elif claim:
            claims.append(claim)
        elif nearest.node.allocatable.get(resource):
            used.append(resource)
        else:
            absent.append(resource)
    if claims:
        ways.append(f"let the selectors of {names(claims)} match free devices of one node")
    if used:
        name = nearest.node.name
        ways.append(f"add nodes to {name}, or free {names(_without_ip(used))} there")
    if absent:
        ways.append(f"choose a pool that offers {names(_without_ip(absent))}")
    return ways


def _limited(reason: Shortage, able: Sequence[NodeGroup]) -> Refusal:
    """Return that a constraint, and not the nodes' room, limits the number of pods."""
    pod = reason.pod
    pod_set = reason.pod_set
    most = reason.most
    field, constraints = {
        "topology-spread": ("topologySpreadConstraints", pod.spread),
        "pod-anti-affinity": ("affinity.podAntiAffinity", pod.anti_affinity),
        "pod-affinity": ("affinity.podAffinity", pod.affinity),
        "volume-access": ("volumes", ()),
    }[reason.limited_by]
    source = reason.sources.get(field)
    keys = dict.fromkeys(constraint.key for constraint in constraints)
    over = f"over {names(keys)}" if keys else "with ReadWriteOncePod"
    roomy = names([f"{number(group.count, 'node')} of {group.node.name}" for group in able])
    together = f"{number(reason.needed, 'pod')} must run at once"
    message = f"{together}, and {source or field} {over} lets {most}: {roomy} would have the room"
    way = f"change {source}" if source else f"loosen {pod_set.written_path(field)}"
    remedy = words.as_remedy(way, lowered(pod_set.counts, most))
    return Refusal(reason.limited_by, source or f"{pod_set.path}.{field}", message, remedy)


def _too_few_nodes(reason: Shortage, able: Sequence[NodeGroup]) -> Refusal:
    """Return that each pod fits some node, and there are too few nodes for all at once."""
    pod = reason.pod
    pod_set = reason.pod_set
    largest = _roomiest(pod, able)
    alone = math.ceil((reason.needed - reason.most) / largest.room(pod))
    # The pod sets of a workload take the nodes from each other.
    missing = max(alone, reason.missing_for_all)
    # A pool that is split over its zones is one pool to the reader.
    by_pool = dict[str, NodeGroup]()
    counts = Counter[str]()
    for group in able:
        by_pool[group.node.name] = group
        counts[group.node.name] += group.count
    offers = names(_offer(pod, group, counts[name]) for name, group in by_pool.items())
    name = largest.node.name
    lower = lowered(pod_set.counts, reason.most)
    way = f"raise the number of nodes by {missing}"
    if largest.node.is_template:
        way = f"raise the maximum of {name} to {number(counts[name] + missing, 'node')}"
    room = f"room for {reason.most} of the {reason.needed} pods that must run at once"
    message = f"each pod needs {needs(pod)}; {offers}: {room}"
    remedy = words.as_remedy(f"{way} or {lower}" if lower else way)
    return Refusal("nodes", pod_set.count_path, message, remedy)


def _offer(pod: PodClass, group: NodeGroup, count: int) -> str:
    """Return what nodes of a class offer of the resource that runs out first."""
    name = group.node.name
    nodes = f"{'at most ' if group.node.is_template else ''}{number(count, 'node')}"
    if pod.excludes_itself_per_node:
        return f'"{name}" takes one per node on {nodes}'
    pods = {key: group.free.get(key, 0) // amount for key, amount in pod.requests.items()}
    scarce = min(pods, key=lambda resource: (pods[resource], resource))
    free = readable(group.free.get(scarce, 0))
    return f'"{name}" offers {free} {resource_name(scarce)} per node on {nodes}'


def lacks(pod: PodClass, group: NodeGroup) -> list[Lack]:
    """Return the resources that are short for a pod on a node."""
    short: list[Lack] = []
    for resource, needed in sorted(pod.requests.items()):
        free = group.free.get(resource, 0)
        if needed > free:
            short.append(Lack(resource, needed, max(0, free)))
    return short


def lack_texts(short: Iterable[Lack]) -> list[str]:
    """Return what is short in words; extended resources that are short alike are one text."""
    alike: dict[tuple[str, int, int], list[str]] = {}
    for resource, needed, free in short:
        key = "" if is_extended(resource) else resource  # extended resources share a key
        alike.setdefault((key, needed, free), []).append(resource)
    texts: list[str] = []
    for (_, needed, free), resources in alike.items():
        shown = [*map(resource_name, _without_ip(resources))]
        what = f"each of {names(shown)}" if len(shown) > 1 else shown[0]
        rest = f"{readable(free)} {verb(free // WHOLE, 'is', 'are')} free"
        text = f"it needs {readable(needed)} {what}, and {rest}, {readable(needed - free)} short"
        texts.append("it has no place for one more pod" if resources == [PODS] else text)
    return texts


def _without_ip(resources: Iterable[str]) -> dict[str, None]:
    """Return resources, those of a network once: nodes offer NAME or NAME.IP."""
    return dict.fromkeys(name.removesuffix(".IP") for name in resources)


def needs(pod: PodClass) -> str:
    """Return what a pod requests: extended resources, then cpu and memory."""
    order = {"cpu": 1, "memory": 2, "ephemeral-storage": 3}
    requested = sorted(pod.requests.keys() - {PODS}, key=lambda name: (order.get(name, 0), name))
    networks: list[str] = []
    amounts: list[str] = []
    for name in requested:
        if name.startswith(labels.GKE_NETWORKS):
            networks.append(name)  # in one number: these requests follow from interfaces
        else:
            amounts.append(f"{readable(pod.requests[name])} {resource_name(name)}")
    if networks:
        amounts.append(number(len(_without_ip(networks)), "network"))
    return ", ".join(amounts) or "a place"
