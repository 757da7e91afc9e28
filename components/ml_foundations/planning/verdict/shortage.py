"""Shortages in words: how many nodes or resources are missing, the nearest pool, and a remedy."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from ml_foundations.kubernetes import labels, words
from ml_foundations.kubernetes.objects import items, section
from ml_foundations.kubernetes.quantities import WHOLE, millis, readable
from ml_foundations.kubernetes.tolerations import described_taint, untolerated_taints
from ml_foundations.kubernetes.words import listed, names, number, verb
from ml_foundations.planning.model.counts import lowered
from ml_foundations.planning.model.decisions import Shortage
from ml_foundations.planning.model.node_groups import NodeGroup, PodClass, total_room
from ml_foundations.planning.model.refusals import Refusal
from ml_foundations.planning.model.resources import PODS, is_extended, resource_name
from ml_foundations.planning.model.workloads import PodSet
from ml_foundations.planning.scheduler.filters import refusals


def explained(reason: Shortage) -> Refusal:
    """Return why the nearest node refuses a pod, or how many nodes are missing."""
    path = reason.pods.path
    if reason.most >= reason.wanted:
        some = f"between {reason.least} and {reason.most} of {reason.wanted} pods"
        message = f"{some} find a place, as the scheduler's choices fall"
        remedy = "Loosen the constraint, or give every domain room for all."
        return Refusal(reason.limited_by or "placement-order", path, message, remedy)
    if not reason.node_groups:
        return Refusal("no-nodes", path, "there are no nodes", "Declare a node pool.")
    with_room = [group for group in reason.node_groups if group.room(reason.pod)]
    able = [group for group in with_room if not refusals(reason.pod, group.node)]
    if not able:
        return _nowhere(reason)
    if reason.limited_by and reason.most < total_room(reason.pod, able):
        return _limited(reason, able)
    return _too_many(reason, able)


_DISTANCES = {
    "taint": 2,
    "node-unschedulable": 2,
    "disk-type": 5,
    "volume-zone": 5,
    "volume-binding": 5,
}
"""How far a node is that refuses pods by a rule: a toleration is easier to add than a machine.

Other rules count 10. In ``_nowhere``, a resource that is short counts 3, and an extended resource
that the node lacks counts 20: a pod with GPUs is nearer to any node with GPUs.
"""


def _refusal_distance(pod: PodClass, group: NodeGroup) -> int:
    """Return how far a node is from accepting a pod."""
    return sum(_DISTANCES.get(refusal.rule, 10) for refusal in refusals(pod, group.node))


def _nowhere(reason: Shortage) -> Refusal:
    """Return why the nearest node, which has the fewest reasons, does not accept even one pod."""
    pods, pod = reason.pods, reason.pod

    def distance(group: NodeGroup) -> tuple[float, ...]:
        missing, shares = _refusal_distance(pod, group), 0.0
        for name, needed, free in lacks(pod, group):
            missing += 20 if is_extended(name) and not free else 3
            shares += 1 - free / needed
        return missing, shares, -group.count

    nearest = min(reason.node_groups, key=distance)
    refused, short = refusals(pod, nearest.node), lacks(pod, nearest)
    against = [refusal.message for refusal in refused]
    against += lack_texts(short)
    against = against or ["pods that run there keep it off, by host ports or anti-affinity"]
    rule, path = "pod-anti-affinity", pods.path
    if refused:
        rule, path = refused[0].rule, _written(reason, refused[0].path)
    elif short:
        lacking = min(short, key=lambda lack: lack[0].startswith(labels.GKE_NETWORKS))
        rule, path = "resources", reason.sources.get(lacking[0], _request_path(pods, lacking[0]))
    name = nearest.node.name
    message = f'each pod needs {needs(pod)}; the nearest, "{name}", does not take it'
    message = f"{message}: {'; '.join(against)}"
    return Refusal(rule, path, message, _remedy(reason, nearest, refused))


def _written(reason: Shortage, path: str) -> str:
    """Return the field that the user wrote for one of the pods' spec."""
    return reason.sources.get(path, f"{reason.pods.path}.{path}")


def _request_path(pods: PodSet, resource: str) -> str:
    """Return where a template asks for most of a resource; its containers if it does not."""
    if resource.startswith(labels.GKE_NETWORKS):
        holder = pods.path.removesuffix(".spec") if "." in pods.path else ""
        return f"{holder}.metadata.annotations.{labels.GKE_INTERFACES}".lstrip(".")
    asked = dict[str, int]()
    for kind in ("containers", "initContainers"):
        for index, container in enumerate(items(section(pods.template, "spec"), kind)):
            for part in ("limits", "requests"):
                path = f"{pods.path}.{kind}[{index}].resources.{part}.{resource}"
                if amount := millis(section(container, "resources", part)).get(resource):
                    asked[path] = amount
    return max(asked, key=lambda path: asked[path], default=f"{pods.path}.containers")


def daemon_set_nowhere(pods: PodSet, pod: PodClass, groups: Sequence[NodeGroup]) -> Refusal:
    """Return why no node runs a DaemonSet's pod: what the nearest node has against it."""
    if not groups:
        message = "it runs on no node, because there are none"
        return Refusal("daemon-set-without-nodes", pods.path, message, "Declare a node pool.")
    nearest = min(groups, key=lambda group: _refusal_distance(pod, group))
    refused = refusals(pod, nearest.node)
    messages = "; ".join(refusal.message for refusal in refused)
    against = messages or "its controller does not choose it"
    name = nearest.node.name
    path = f"{pods.path}.{refused[0].path}" if refused else pods.path
    message = f'it runs on no node; the nearest, "{name}", does not take it: {against}'
    remedy = _remedy(Shortage(pods, pod, groups, 0, 0, "", 1), nearest, refused)
    return Refusal("daemon-set-without-nodes", path, message, remedy)


def _remedy(reason: Shortage, nearest: NodeGroup, refused: Sequence[Refusal]) -> str:
    """Return the fewest changes with which the nearest pool accepts the pods."""
    pod, rules = reason.pod, {refusal.rule for refusal in refused}
    remedies = _remedies(reason, nearest, refused)
    steps = [remedy for rule, remedy in remedies.items() if rule in rules]
    for refusal in refused:
        if refusal.remedy and refusal.rule not in remedies:
            steps.append(refusal.remedy.rstrip("."))
    overhead = millis(section(pod.spec, "overhead"))
    lacking = lacks(pod, nearest)
    for resource, _, free in lacking:
        left = free - overhead.get(resource, 0)
        besides = " besides the overhead" if overhead.get(resource) else ""
        most = readable(left, math.floor)
        if left > 0 and resource in reason.sources:
            steps.append(f"lower count to {most} in {reason.sources[resource]}")
        elif left > 0:
            steps.append(f"request at most {most} {resource}{besides}")
    nowhere = [resource for resource, _, free in lacking if free <= overhead.get(resource, 0)]
    if claimed := [reason.sources[name] for name in nowhere if name in reason.sources]:
        steps.append(f"let the selectors of {names(claimed)} match free devices of one node")
    if nowhere := [name for name in nowhere if name not in reason.sources]:
        steps.append(f"choose a pool that offers {names(_without_ip(nowhere))}")
    text = listed(steps) if steps else "free the node's host ports or loosen the anti-affinity"
    return words.as_remedy(text)


def _remedies(reason: Shortage, nearest: NodeGroup, refused: Sequence[Refusal]) -> dict[str, str]:
    """Return how to satisfy each rule by which the nearest node may refuse the pods."""
    path, name = reason.pods.path, nearest.node.name
    selectors = dict[str, None]()
    tolerations = items(reason.pod.spec, "tolerations")
    lasting = [one for one in tolerations if one.get("tolerationSeconds") is None]
    taints = listed(map(described_taint, untolerated_taints(lasting, nearest.node.taints)))
    if any("Seconds" in refusal.path for refusal in refused):
        taints += " without tolerationSeconds"
    values: list[str] = []
    of_gpus = ""
    for refusal in refused:
        if refusal.rule == "node-selector":
            key = refusal.path.removeprefix("nodeSelector.")
            values.append(_values(reason, nearest, key))
            whole = f"{path}.nodeSelector"
            selectors[reason.sources.get(refusal.path, whole)] = None
        if f"has no {labels.GPU_PRODUCT}" in refusal.message:
            adds_label = f"the GPU Operator gives nodes {labels.GPU_PRODUCT}"
            of_gpus = f" ({adds_label}; else set accelerator_label)"
    return {
        "taint": f"tolerate {taints}",
        "node-selector": f"correct {listed(selectors)} ({'; '.join(values)})",
        "node-affinity": f"correct {path}.affinity.nodeAffinity{of_gpus}",
        "node-name": f"remove {path}.nodeName",
        "node-unschedulable": f"uncordon {name}",
        "shared-gpu": f"request 1 {labels.GPU_RESOURCE}",
        "volume-zone": f"give {name} nodes in the volume's zone",
        "disk-type": "choose a storage class with a disk type that the machine attaches",
    }


def _values(reason: Shortage, nearest: NodeGroup, key: str) -> str:
    """Return the values of a label that a pod may select, those of the nearest node first."""
    selected = section(reason.pod.spec, "nodeSelector").get(key)
    near = nearest.node.labels.get(key)
    offered: set[str] = set()
    for group in reason.node_groups:
        if key in group.node.labels:
            offered.add(str(group.node.labels[key]))
    values = sorted(offered - {selected}, key=lambda value: (value != near, value))
    return f"nodes have {key} {' or '.join(values)}" if values else f"no node has {key}"


def _limited(reason: Shortage, able: Sequence[NodeGroup]) -> Refusal:
    """Return that a constraint, and not the nodes' room, limits the number of pods."""
    pod, pods, most = reason.pod, reason.pods, reason.most
    path, rules = {
        "topology-spread": ("topologySpreadConstraints", pod.spread),
        "pod-anti-affinity": ("affinity.podAntiAffinity", pod.anti_affinity),
        "pod-affinity": ("affinity.podAffinity", pod.affinity),
        "volume-access": ("volumes", ()),
    }[reason.limited_by]
    keys = dict.fromkeys(rule.key for rule in rules)
    over = f"over {names(keys)}" if keys else "with ReadWriteOncePod"
    roomy = names([f"{number(group.count, 'node')} of {group.node.name}" for group in able])
    wanted = f"{number(reason.wanted, 'pod')} must run at once"
    way = "change" if path in reason.sources else "loosen"
    path = _written(reason, path)
    remedy = words.as_remedy(f"{way} {path}", lowered(pods.counts, most))
    message = f"{wanted}, and {path.removeprefix(f'{pods.path}.')} {over} lets {most}"
    return Refusal(reason.limited_by, path, f"{message}: {roomy} would have the room", remedy)


def _too_many(reason: Shortage, able: Sequence[NodeGroup]) -> Refusal:
    """Return that each pod fits some node, and there are too few nodes for all at once."""
    pod, count_path = reason.pod, reason.pods.count_path
    largest = max(able, key=lambda group: (group.room(pod), group.count))
    missing = math.ceil((reason.wanted - reason.most) / largest.room(pod))
    # A pool that is split over its zones is one pool to the reader.
    by_pool, counts = dict[str, NodeGroup](), Counter[str]()
    for group in able:
        by_pool[group.node.name] = group
        counts[group.node.name] += group.count
    offers = names(_offer(pod, group, counts[name]) for name, group in by_pool.items())
    name, more = largest.node.name, f"the number of nodes by {missing}"
    if largest.node.is_template:
        more = f"the maximum of {name} to {number(counts[name] + missing, 'node')}"
    room = f"room for {reason.most} of the {reason.wanted} pods that must run at once"
    lower = lowered(reason.pods.counts, reason.most)
    remedy = words.as_remedy(f"raise {more}{f' or {lower}' if lower else ''}")
    return Refusal("nodes", count_path, f"each pod needs {needs(pod)}; {offers}: {room}", remedy)


def _offer(pod: PodClass, group: NodeGroup, count: int) -> str:
    """Return what nodes of a class offer of the resource that runs out first."""
    nodes = number(count, "node")
    nodes = f"at most {nodes}" if group.node.is_template else nodes
    if pod.excludes_itself_per_node:
        return f'"{group.node.name}" takes one per node on {nodes}'

    def pods_and_name(resource: str) -> tuple[int, str]:
        return group.free.get(resource, 0) // pod.requests[resource], resource

    name = min(pod.requests, key=pods_and_name)
    free = readable(group.free.get(name, 0))
    return f'"{group.node.name}" offers {free} {resource_name(name)} per node on {nodes}'


def lacks(pod: PodClass, group: NodeGroup) -> list[tuple[str, int, int]]:
    """Return the resources that are short for a pod on a node: name, needed, free."""
    short: list[tuple[str, int, int]] = []
    for name, needed in sorted(pod.requests.items()):
        free = group.free.get(name, 0)
        if needed > free:
            short.append((name, needed, max(0, free)))
    return short


def lack_text(lack: tuple[str, int, int]) -> str:
    """Return one of ``lacks`` in words."""
    name, needed, free = lack
    if name == PODS:
        return "it has no place for one more pod"
    are_free = f"{readable(free)} {verb(free // WHOLE, 'is', 'are')} free"
    return f"it needs {readable(needed)} {name}, and {are_free}, {readable(needed - free)} short"


def lack_texts(short: Sequence[tuple[str, int, int]]) -> list[str]:
    """Return ``lacks`` in words, with the resources that are short alike in one text."""
    alike = dict[tuple[str, int, int], list[str]]()
    for name, needed, free in short:
        alike.setdefault(("" if is_extended(name) else name, needed, free), []).append(name)
    texts: list[str] = []
    for (_, needed, free), resources in alike.items():
        resources = [*map(resource_name, _without_ip(resources))]
        each = "each of " if len(resources) > 1 else ""
        texts.append(lack_text((f"{each}{names(resources)}", needed, free)))
    return texts


def _without_ip(resources: Iterable[str]) -> Iterable[str]:
    """Return resources, those of a network once: nodes offer NAME or NAME.IP."""
    return dict.fromkeys(name.removesuffix(".IP") for name in resources)


def needs(pod: PodClass) -> str:
    """Return what a pod requests: extended resources, then cpu and memory."""
    order = {"cpu": 1, "memory": 2, "ephemeral-storage": 3}
    requested = sorted(pod.requests.keys() - {PODS}, key=lambda name: (order.get(name, 0), name))
    # Requests for networks follow from interfaces.
    own = [name for name in requested if not name.startswith(labels.GKE_NETWORKS)]
    amounts = [f"{readable(pod.requests[name])} {resource_name(name)}" for name in own]
    if networks := [*_without_ip(name for name in requested if name not in own)]:
        amounts.append(number(len(networks), "network"))
    return ", ".join(amounts) or "a place"
