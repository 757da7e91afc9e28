"""Too little room in words: the number that is missing, the nearest pool, the way out."""

import math
from collections import Counter
from collections.abc import Sequence

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import items, section
from ml_foundations.kubernetes.quantities import millis, readable
from ml_foundations.kubernetes.tolerations import described_taint, untolerated_taints
from ml_foundations.kubernetes.words import listed, names, number
from ml_foundations.planning.model.decisions import Shortage
from ml_foundations.planning.model.node_groups import NodeGroup, PodClass
from ml_foundations.planning.model.refusals import Refusal, told
from ml_foundations.planning.model.resources import PODS, is_extended
from ml_foundations.planning.model.workloads import PodSet
from ml_foundations.planning.scheduler.filters import refusals


def words(reason: Shortage) -> Refusal:
    """Why the nearest node does not take a pod, or how many nodes are missing."""
    path = reason.pods.path
    if reason.most >= reason.wanted:
        some = f"between {reason.least} and {reason.most} of {reason.wanted} pods"
        message = f"{some} find a place, as the scheduler's choices fall"
        remedy = "Loosen the constraint, or give every domain room for all."
        return Refusal(reason.limited_by or "placement-order", path, message, remedy)
    if not reason.places:
        return Refusal("no-nodes", path, "there are no nodes", "Declare a node pool.")
    able = [
        place
        for place in reason.places
        if place.room(reason.pod) and not refusals(reason.pod, place.node)
    ]
    if not able:
        return _nowhere(reason)
    room = sum(place.count * place.room(reason.pod) for place in able)
    return (
        _limited(reason, able)
        if reason.limited_by and reason.most < room
        else _too_many(reason, able)
    )


_DISTANCES = {"taint": 2, "node-unschedulable": 2, "disk-type": 5, "volume-zone": 5}
"""How far a node is that refuses the pods: a toleration is soon added, another machine is not."""


def _nowhere(reason: Shortage) -> Refusal:
    """No node takes even one pod: tell of the nearest, which has the fewest things against it."""
    pods, pod = reason.pods, reason.pod

    def distance(place: NodeGroup) -> tuple[float, ...]:
        short = lacks(pod, place)
        missing = sum(20 if is_extended(name) and not free else 3 for name, _, free in short)
        refused = sum(_DISTANCES.get(each.rule, 10) for each in refusals(pod, place.node))
        return missing + refused, sum(1 - free / needed for _, needed, free in short), -place.count

    nearest = min(reason.places, key=distance)
    found, short = refusals(pod, nearest.node), lacks(pod, nearest)
    against = [*(refusal.message for refusal in found), *map(lack_text, short)]
    if not against:
        against = ["pods that run there keep it off, by host ports or anti-affinity"]
    rule, path = "pod-anti-affinity", pods.path
    if found:
        rule, path = found[0].rule, f"{pods.path}.{found[0].path}"
    elif short:
        rule, path = "resources", f"{pods.path}.containers[0].resources.requests.{short[0][0]}"
    message = f'each pod needs {needs(pod)}; the nearest, "{nearest.node.name}", does not take it: {"; ".join(against)}'
    return Refusal(rule, path, message, _remedy(reason, nearest, found))


def daemon_set_nowhere(pods: PodSet, pod: PodClass, places: Sequence[NodeGroup]) -> Refusal:
    """Return why no node runs a DaemonSet's pod: what the nearest node has against it."""
    if not places:
        return told("daemon-set-without-any-node", pods.path)

    def distance(place: NodeGroup) -> int:
        return sum(_DISTANCES.get(each.rule, 10) for each in refusals(pod, place.node))

    nearest = min(places, key=distance)
    found = refusals(pod, nearest.node)
    reason = Shortage(pods, pod, places, 0, 0, "", 1)
    against = "; ".join(each.message for each in found) or "its controller does not choose it"
    path = f"{pods.path}.{found[0].path}" if found else pods.path
    remedy = _remedy(reason, nearest, found)
    return told("daemon-set-nowhere", path, name=nearest.node.name, against=against, remedy=remedy)


def _remedy(reason: Shortage, nearest: NodeGroup, found: Sequence[Refusal]) -> str:
    """The shortest way to the nearest pool."""
    pods, pod, name, rules = (
        reason.pods,
        reason.pod,
        nearest.node.name,
        {refusal.rule for refusal in found},
    )
    keys = [
        refusal.path.removeprefix("nodeSelector.")
        for refusal in found
        if refusal.rule == "node-selector"
    ]
    values = "; ".join(_values(reason, nearest, key) for key in keys)
    lasting = [
        each for each in items(pod.spec, "tolerations") if each.get("tolerationSeconds") is None
    ]
    taints = listed(map(described_taint, untolerated_taints(lasting, nearest.node.taints)))
    for_good = (
        " without tolerationSeconds" if any("Seconds" in refusal.path for refusal in found) else ""
    )
    is_unlabelled = any(f"has no {labels.GPU_PRODUCT}" in refusal.message for refusal in found)
    of_gpus = (
        f" (the GPU Operator gives nodes {labels.GPU_PRODUCT}; else say accelerator_label)"
        if is_unlabelled
        else ""
    )
    ways = {
        "taint": f"tolerate {taints}{for_good}",
        "node-selector": f"correct {pods.path}.nodeSelector ({values})",
        "node-affinity": f"correct {pods.path}.affinity.nodeAffinity{of_gpus}",
        "node-name": f"remove {pods.path}.nodeName",
        "node-unschedulable": f"uncordon {name}",
        "shared-gpu": f"request 1 {labels.GPU_RESOURCE}",
        "volume-zone": f"give {name} nodes in the volume's zone",
        "disk-type": "choose a storage class with a disk type that the machine attaches",
    }
    steps = [way for rule, way in ways.items() if rule in rules]
    steps += [each.remedy.rstrip(".") for each in found if each.remedy and each.rule not in ways]
    overhead = millis(section(pod.spec, "overhead"))
    for resource, _, free in lacks(pod, nearest):
        own = overhead.get(resource, 0)
        besides = " besides the overhead" if own else ""
        at_most = f"request at most {readable(free - own, math.floor)} {resource}{besides}"
        steps.append(at_most if free > own else f"choose a pool that offers {resource}")
    text = listed(steps) if steps else "free the node's host ports or loosen the anti-affinity"
    return f"{text[0].upper()}{text[1:]}."


def _values(reason: Shortage, nearest: NodeGroup, key: str) -> str:
    """Return the values of a label that a pod may select instead of its own, that of the nearest node first."""
    own = section(reason.pod.spec, "nodeSelector").get(key)
    near = nearest.node.labels.get(key)
    others = {
        str(place.node.labels[key]) for place in reason.places if key in place.node.labels
    } - {own}
    values = sorted(others, key=lambda value: (value != near, value))
    return f"nodes have {key} {' or '.join(values)}" if values else f"no node has {key}"


def _limited(reason: Shortage, able: Sequence[NodeGroup]) -> Refusal:
    pod, pods, most = reason.pod, reason.pods, reason.most
    path, keys = {
        "topology-spread": (
            "topologySpreadConstraints",
            [constraint.key for constraint in pod.spread],
        ),
        "pod-anti-affinity": ("affinity.podAntiAffinity", [term.key for term in pod.anti_affinity]),
        "pod-affinity": ("affinity.podAffinity", [term.key for term in pod.affinity]),
        "volume-access": ("volumes", []),
    }[reason.limited_by]
    over = f"over {names(dict.fromkeys(keys))}" if keys else "with ReadWriteOncePod"
    roomy = [f"{number(place.count, 'node')} of {place.node.name}" for place in able]
    message = (
        f"{number(reason.wanted, 'pod')} must run at once, and {path} {over} lets {most}: "
        f"{names(roomy)} would have the room"
    )
    remedy = f"Loosen {path}, or lower {pods.count_path} to {most}." if most else f"Loosen {path}."
    return Refusal(reason.limited_by, f"{pods.path}.{path}", message, remedy)


def _too_many(reason: Shortage, able: Sequence[NodeGroup]) -> Refusal:
    """Each pod fits somewhere, but there are not nodes enough for all at once."""
    pod, count_path = reason.pod, reason.pods.count_path
    largest = max(able, key=lambda place: (place.room(pod), place.count))
    missing = -(-(reason.wanted - reason.most) // largest.room(pod))
    # A pool that is split over its zones is one to the reader.
    by_pool, counts = {place.node.name: place for place in able}, Counter[str]()
    for place in able:
        counts[place.node.name] += place.count
    offers = names(_offer(pod, place, counts[name]) for name, place in by_pool.items())
    name = largest.node.name
    of_pool = f"the maximum of {name} to {number(counts[name] + missing, 'node')}"
    more = of_pool if largest.node.is_template else f"the number of nodes by {missing}"
    room = f"room for {reason.most} of the {reason.wanted} pods that must run at once"
    message = f"each pod needs {needs(pod)}; {offers}: {room}"
    return Refusal(
        "nodes", count_path, message, f"Raise {more} or lower {count_path} to {reason.most}."
    )


def _offer(pod: PodClass, place: NodeGroup, count: int) -> str:
    """What a number of nodes of a class offer of the resource that runs out first."""
    nodes = number(count, "node")
    nodes = f"at most {nodes}" if place.node.is_template else nodes
    if pod.excludes_itself_per_node:
        return f'"{place.node.name}" takes one per node on {nodes}'
    name = min(pod.requests, key=lambda each: (place.free.get(each, 0) // pod.requests[each], each))
    return (
        f'"{place.node.name}" offers {readable(place.free.get(name, 0))} {name} per node on {nodes}'
    )


def lacks(pod: PodClass, place: NodeGroup) -> list[tuple[str, int, int]]:
    """The resources of which one pod needs more than a node has free: name, needed, free."""
    return [
        (name, amount, max(0, place.free.get(name, 0)))
        for name, amount in sorted(pod.requests.items())
        if amount > place.free.get(name, 0)
    ]


def lack_text(lack: tuple[str, int, int]) -> str:
    """One of ``lacks`` in words."""
    name, *amounts = lack
    needed, free, short = map(readable, (*amounts, amounts[0] - amounts[1]))
    if name == PODS:
        return "it has no place for one more pod"
    return f"it needs {needed} {name}, and {free} is free, {short} short"


def needs(pod: PodClass) -> str:
    """What a pod requests, the rarest resource first: extended ones, then cpu and memory."""
    order = {"cpu": 1, "memory": 2, "ephemeral-storage": 3}
    found = sorted(pod.requests.keys() - {PODS}, key=lambda name: (order.get(name, 0), name))
    return ", ".join(f"{readable(pod.requests[name])} {name}" for name in found) or "a place"
