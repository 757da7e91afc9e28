"""Findings in words, for the person who must fix it: the number that is missing, the nearest pool, the way out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ml_foundations.kubernetes.manifests import Manifest, items, name_of, namespace_of
from ml_foundations.kubernetes.quantities import format_milli
from ml_foundations.kubernetes.tolerations import described_taint, untolerated_taints
from ml_foundations.planning.api_server import quotas
from ml_foundations.planning.api_server.admission import Objection
from ml_foundations.planning.model.places import Place, PodClass
from ml_foundations.planning.model.pods import PodSet, Workload
from ml_foundations.planning.model.resources import PODS, is_extended
from ml_foundations.planning.scheduler.competition import Demand, Judgement
from ml_foundations.planning.scheduler.filters import Refusal
from ml_foundations.planning.scheduler.one_class import Capacity
from ml_foundations.planning.verdict.findings import Finding, Severity, Verdict

Refused = Mapping[int, Sequence[Refusal]]
"""Why nodes refuse the pods, by the id of the place; nothing where they accept them."""

MOST_NAMES = 3


def unknown(workload: Workload) -> list[Finding]:
    """Values that are not known yet and decide."""
    return [
        _error(workload, "unknown-value", path, f"{path} is not known yet", f"Give {path} a plain value.")
        for path in workload.unknown
    ]


def objection(workload: Workload, pods: PodSet, found: Objection) -> Finding:
    """The API server refuses the pods."""
    path = f"{pods.path}.{found.path}"
    return _error(workload, found.rule, path, f"the API server refuses the pods: {found.message}", found.remedy)


def claim_objection(workload: Workload, claim: Manifest, found: Objection) -> Finding:
    """The API server refuses a claim of the pods."""
    message = f"the API server refuses the claim {name_of(claim)}: {found.message}"
    return _error(workload, found.rule, f"PersistentVolumeClaim.spec.{found.path}", message, found.remedy)


def open_question(workload: Workload, pods: PodSet, message: str, remedy: str, path: str) -> Finding:
    """Something decides that these rules do not know."""
    return _error(workload, "beyond-planning", f"{pods.path}.{path}", message, remedy)


def ambiguous_defaults(workload: Workload, resources: Sequence[str]) -> Finding:
    """Several LimitRanges give different defaults."""
    names = ", ".join(resources)
    return _error(
        workload,
        "limit-range-defaults",
        "LimitRange.spec.limits",
        f"LimitRanges of {workload.namespace} give different defaults for {names}; which one wins is undefined",
        "Keep one LimitRange that gives defaults.",
    )


def quota(workload: Workload, found: Manifest, resource: str, numbers: tuple[int, int, int]) -> Finding:
    """The workload alone needs more than a quota leaves."""
    wanted, free, hard = numbers
    short = format_milli(wanted - free)
    used = "" if free == hard else f" of {format_milli(hard)}"
    return _error(
        workload,
        "quota",
        f"{quotas.described(found)}.spec.hard.{resource}",
        f"it needs {format_milli(wanted)} {resource}, and {quotas.described(found)} leaves {format_milli(free)}{used}: "
        f"{short} too few",
        f"Raise {resource} of {quotas.described(found)} to {format_milli(hard + wanted - free)}, or ask for less.",
    )


def must_specify(workload: Workload, pods: PodSet, found: Manifest, resource: str, container: str) -> Finding:
    """A quota makes every container give a resource."""
    return _error(
        workload,
        "quota-requires",
        f"{pods.path}.containers",
        f"{quotas.described(found)} makes every container give {resource}, and container {container} does not",
        f"Set resources.{resource} of container {container}, or give a default in a LimitRange.",
    )


def quota_sum(found: Manifest, resource: str, numbers: tuple[int, int, int], workloads: Sequence[Workload]) -> Finding:
    """Workloads together need more than a quota leaves."""
    wanted, free, hard = numbers
    return Finding(
        "quota-sum",
        Severity.ERROR,
        f"ResourceQuota {namespace_of(found)}/{name_of(found)}",
        f"spec.hard.{resource}",
        f"{_names(map(str, workloads))} together need {format_milli(wanted)} {resource}, and the quota leaves "
        f"{format_milli(free)}: {format_milli(wanted - free)} too few",
        f"Raise {resource} to {format_milli(hard + wanted - free)}, or lower what the workloads ask for.",
    )


def unknown_queue(workload: Workload, queue: str) -> Finding:
    """The queue that a workload waits in is not declared."""
    return _error(
        workload,
        "queue",
        "metadata.labels",
        f"it waits in the queue {queue}, and there is no LocalQueue {workload.namespace}/{queue} with its ClusterQueue",
        f"Declare LocalQueue {queue} in namespace {workload.namespace}.",
    )


def queue_quota(workload: Workload, pods: PodSet, queue: Manifest, resource: str, wanted: int, most: int) -> Finding:
    """The quotas of a queue never admit a workload."""
    return _error(
        workload,
        "queue-quota",
        pods.count_path,
        f"it needs {format_milli(wanted)} {resource} at once, and one flavor of ClusterQueue {name_of(queue)} has "
        f"{format_milli(most)} at most, borrowed ones included: {format_milli(wanted - most)} too few",
        f"Raise nominalQuota of {resource} in ClusterQueue {name_of(queue)} by {format_milli(wanted - most)}, "
        "or ask for less.",
    )


def turns(workload: Workload, pods: PodSet, most: int, count: int, limit: str) -> Finding:
    """A plain Job runs a part of its pods at a time."""
    return _warning(
        workload,
        "runs-in-turns",
        pods.count_path,
        f"{most} of {count} pods run at a time: {limit} allow no more",
        f"Lower {pods.count_path} to {most}, or make room for {count}.",
    )


def ceiling_quota(
    workload: Workload,
    pods: PodSet,
    found: Manifest,
    rule: str,
    count: int,
    resource: str,
    numbers: tuple[int, int, int],
) -> Finding:
    """A quota stops a rollout, or an autoscaler before its maximum."""
    wanted, free, hard = numbers
    return _warning(
        workload,
        rule,
        f"{quotas.described(found)}.spec.hard.{resource}",
        f"{_grown(rule, count)} need {format_milli(wanted)} {resource}, and {quotas.described(found)} leaves "
        f"{format_milli(free)}",
        f"Raise {resource} to {format_milli(hard + wanted - free)}, or {_less_growth(rule, pods)}.",
    )


def ceiling_nodes(workload: Workload, pods: PodSet, pod: PodClass, rule: str, count: int, most: int) -> Finding:
    """The nodes stop a rollout, or an autoscaler before its maximum."""
    return _warning(
        workload,
        rule,
        pods.count_path,
        f"{_grown(rule, count)} do not fit: the nodes take {most} pods of {_needs(pod)}",
        f"Make room for {count - most} more, or {_less_growth(rule, pods)}.",
    )


def no_node_matches(workload: Workload, pods: PodSet) -> Finding:
    """A DaemonSet without nodes."""
    return _warning(
        workload,
        "daemon-set-without-nodes",
        pods.path,
        "no node matches its node selector, affinity and tolerations, so it runs nowhere",
        "Check the node selector against the labels of the pools.",
    )


def no_room_for_daemon(
    workload: Workload, pods: PodSet, pod: PodClass, place: Place, refused: Sequence[Refusal]
) -> Finding:
    """A node that a DaemonSet must run on does not take its pod."""
    if refused:
        return _error(
            workload,
            refused[0].rule,
            f"{pods.path}.{refused[0].path}",
            f'its pod must run on "{place.node.name}" and cannot: {refused[0].message}',
            f"Keep it off {place.node.name} by a node selector.",
        )
    return _error(
        workload,
        "daemon-set-room",
        pods.path,
        f'"{place.node.name}" has no room for its pod: {_lack(pod, place)}',
        f"Lower the pod's requests, or keep it off {place.node.name} by a node selector.",
    )


def together_unproved(workload: Workload, pods: PodSet, verdict: Verdict) -> Finding:
    """A DaemonSet's pods restrain each other."""
    certain = "cannot" if verdict is Verdict.CANNOT_FIT else "perhaps cannot"
    return _error(
        workload,
        "daemon-set-spread",
        pods.path,
        f"its pods {certain} be on every node: affinity or spreading keeps them apart",
        "Remove affinity and topologySpreadConstraints from the DaemonSet.",
    )


def evicts(workload: Workload, pods: PodSet, pod: PodClass) -> Finding:
    """The pods take the place of pods with a lower priority."""
    return _warning(
        workload,
        "preemption",
        f"{pods.path}.priorityClassName",
        f"its pods find room only by evicting running pods of a priority below {pod.priority}",
        "Make room for both, or lower the priority.",
    )


def unknown_nodes(workload: Workload, pods: PodSet, perhaps: Sequence[Place], refused: Sequence[Refusal]) -> Finding:
    """What is not known of the nodes decides."""
    rule, path, message = refused[0][:3]
    return _error(
        workload,
        rule,
        f"{pods.path}.{path}" if path else pods.path,
        f'"{perhaps[0].node.name}" may take the pods or not: {message}',
        "Give it as a plain value, which is known at preview."
        if rule == "unknown-value"
        else "Select nodes by labels that the pool declares.",
    )


def order_decides(workload: Workload, pods: PodSet, found: Capacity, wanted: int) -> Finding:
    """Whether all pods fit depends on where the first ones go."""
    return _error(
        workload,
        found.limited_by or "placement-order",
        pods.path,
        f"between {found.least} and {found.most} of {wanted} pods find a place, as the scheduler's choices fall",
        "Loosen the constraint, or give every domain room for all.",
    )


def company(workload: Workload, pod_set: PodSet) -> Finding:
    """Whether the pods fit depends on where other workloads' pods are."""
    return _error(
        workload,
        "pod-affinity",
        f"{pod_set.path}.affinity",
        "whether its pods find a place depends on where the pods of other workloads are",
        "Select nodes by labels instead of by pods.",
    )


def shortage(
    workload: Workload,
    pods: PodSet,
    pod: PodClass,
    places: Sequence[Place],
    refused: Refused,
    found: Capacity,
    wanted: int,
) -> Finding:
    """The nodes do not take so many pods: why the nearest does not, or how many are missing."""
    if not places:
        return _error(workload, "no-nodes", pods.path, "there are no nodes", "Declare a node pool.")
    able = [place for place in places if not refused[id(place)] and place.room(pod)]
    if not able:
        return _nowhere(workload, pods, pod, places, refused)
    room = sum(place.count * place.room(pod) for place in able)
    if found.limited_by and found.most < room:
        return _limited(workload, pods, pod, able, found, wanted)
    return _too_many(workload, pods, pod, able, found.most, wanted)


def _nowhere(workload: Workload, pods: PodSet, pod: PodClass, places: Sequence[Place], refused: Refused) -> Finding:
    """No node takes even one pod: tell of the nearest, which has the fewest things against it."""
    nearest = min(places, key=lambda place: (_distance(pod, place, refused[id(place)]), -place.count))
    found = refused[id(nearest)]
    short = lacks(pod, nearest)
    against = [*(refusal.message for refusal in found), *(_lack_text(*lack) for lack in short)]
    if not against:
        against = ["pods that run there keep it off, by host ports or anti-affinity"]
    rule = found[0].rule if found else ("resources" if short else "pod-anti-affinity")
    path = f"{pods.path}.{found[0].path}" if found else _resource_path(pods, short)
    return _error(
        workload,
        rule,
        path,
        f'each pod needs {_needs(pod)}; the nearest, "{nearest.node.name}", does not take it: {"; ".join(against)}',
        _remedy(pods, pod, nearest, found, short),
    )


def _distance(pod: PodClass, place: Place, refused: Sequence[Refusal]) -> int:
    """How far a place is from taking a pod: a toleration is soon added, another machine is not."""
    missing = sum(20 if is_extended(name) and not free else 3 for name, _, free in lacks(pod, place))
    return missing + sum(_DISTANCES.get(refusal.rule, 10) for refusal in refused)


_DISTANCES = {"taint": 2, "node-unschedulable": 2, "disk-type": 5, "volume-zone": 5}


def _limited(
    workload: Workload, pods: PodSet, pod: PodClass, able: Sequence[Place], found: Capacity, wanted: int
) -> Finding:
    keys: dict[str, tuple[str, list[str]]] = {
        "topology-spread": ("topologySpreadConstraints", [constraint.key for constraint in pod.spread]),
        "pod-anti-affinity": ("affinity.podAntiAffinity", [term.key for term in pod.anti_affinity]),
        "pod-affinity": ("affinity.podAffinity", [term.key for term in pod.affinity]),
        "volume-access": ("volumes", []),
    }
    path, over = keys.get(found.limited_by, ("affinity", []))
    across = f" over {_names(dict.fromkeys(over))}" if over else ""
    return _error(
        workload,
        found.limited_by,
        f"{pods.path}.{path}",
        f"{wanted} pods must run at once, and {path}{across} lets {found.most} of them: "
        f"{_names(f'{place.count} nodes of {place.node.name}' for place in able)} would have the room",
        f"Loosen {path}, or lower {pods.count_path} to {found.most}." if found.most else f"Loosen {path}.",
    )


def _too_many(
    workload: Workload, pods: PodSet, pod: PodClass, able: Sequence[Place], most: int, wanted: int
) -> Finding:
    """Each pod fits somewhere, but there are not nodes enough for all at once."""
    largest = max(able, key=lambda place: (place.room(pod), place.count))
    per_node = largest.room(pod)
    missing = -(-(wanted - most) // per_node)
    # A pool that is split over its zones is one to whoever reads this.
    by_pool = {place.node.name: place for place in able}
    counts = Counter[str]()
    for place in able:
        counts[place.node.name] += place.count
    whole = [replace(place, node=replace(place.node, count=counts[name])) for name, place in by_pool.items()]
    offers = _names(_offer(pod, place) for place in whole)
    limit = (
        f"the maximum of {largest.node.name} to {counts[largest.node.name] + missing} nodes"
        if largest.node.is_template
        else "the number of nodes"
    )
    return _error(
        workload,
        "nodes",
        pods.count_path,
        f"each pod needs {_needs(pod)}; {offers}: room for {most} of the {wanted} pods that must run at once",
        f"Raise {limit}{'' if largest.node.is_template else f' by {missing}'} or lower {pods.count_path} to {most}.",
    )


def _offer(pod: PodClass, place: Place) -> str:
    """What a place offers of the resource that runs out first."""
    if pod.excludes_itself_per_node:
        return f'"{place.node.name}" takes one per node on {_nodes(place)}'
    name = min(pod.requests, key=lambda each: (place.free.get(each, 0) // pod.requests[each], each))
    return f'"{place.node.name}" offers {format_milli(place.free.get(name, 0))} {name} per node on {_nodes(place)}'


def _nodes(place: Place) -> str:
    number = f"{place.count} node{'' if place.count == 1 else 's'}"
    return f"at most {number}" if place.node.is_template else number


def lacks(pod: PodClass, place: Place) -> list[tuple[str, int, int]]:
    """The resources of which one pod needs more than a node has free: name, needed, free."""
    return [
        (name, amount, max(0, place.free.get(name, 0)))
        for name, amount in sorted(pod.requests.items())
        if amount > place.free.get(name, 0)
    ]


def _lack(pod: PodClass, place: Place) -> str:
    return "; ".join(_lack_text(*lack) for lack in lacks(pod, place)) or "host ports or anti-affinity keep it off"


def _lack_text(name: str, needed: int, free: int) -> str:
    if name == PODS:
        return "it has no place for one more pod"
    return (
        f"it needs {format_milli(needed)} {name}, and {format_milli(free)} is free, {format_milli(needed - free)} short"
    )


def _remedy(
    pods: PodSet,
    pod: PodClass,
    nearest: Place,
    found: Sequence[Refusal],
    short: Sequence[tuple[str, int, int]],
) -> str:
    """The shortest way to the nearest pool."""
    taints = untolerated_taints(items(pod.spec, "tolerations"), nearest.node.taints)
    steps: list[str] = []
    if any(refusal.rule == "taint" for refusal in found) and taints:
        steps.append(f"tolerate {' and '.join(map(described_taint, taints))}")
    for rule, step in (
        ("node-selector", f"correct {pods.path}.nodeSelector"),
        ("node-affinity", f"correct {pods.path}.affinity.nodeAffinity"),
        ("node-name", f"remove {pods.path}.nodeName"),
        ("node-unschedulable", f"uncordon {nearest.node.name}"),
        ("volume-zone", f"give {nearest.node.name} nodes in the volume's zone"),
        ("disk-type", "choose a storage class with a disk type that the machine attaches"),
    ):
        if any(refusal.rule == rule for refusal in found):
            steps.append(step)
    steps += [
        f"request at most {format_milli(free)} {name}" if free else f"choose a pool that offers {name}"
        for name, _, free in short
    ]
    text = " and ".join(steps) or "free the node's host ports or loosen the anti-affinity"
    return f"{text[0].upper()}{text[1:]}."


def _resource_path(pods: PodSet, short: Sequence[tuple[str, int, int]]) -> str:
    return f"{pods.path}.containers[0].resources.requests.{short[0][0]}" if short else pods.path


def sets_compete(workload: Workload, judgement: Judgement) -> Finding:
    """The sets of a JobSet do not find their places at once, or perhaps not."""
    text = judgement.shortage or "its jobs may take each other's places"
    return _error(workload, "nodes", "spec.replicatedJobs", text, "Let pools have more nodes, or lower replicas.")


def stack_member(workload: Workload, verdict: Verdict | None) -> Finding:
    """A workload that does not fit, or perhaps not, keeps the stack from it."""
    text = "cannot fit" if verdict is Verdict.CANNOT_FIT else "is undetermined"
    return _error(workload, "workload", "", f"{workload} {text}", "See its own reasons.")


def competition(demands: Sequence[Demand], judgement: Judgement) -> Finding:
    """Workloads that fit alone do not fit together, or perhaps not."""
    names = _names(dict.fromkeys(demand.pod.name for demand in demands))
    pools = _names(dict.fromkeys(place.node.name for demand in demands for place in demand.places))
    if judgement.shortage:
        text = judgement.shortage
    elif judgement.verdict is Verdict.CANNOT_FIT:
        text = f"no way of placing them on {pools} has room for all"
    else:
        text = f"on {pools} they may take each other's room, as the scheduler's choices fall"
    return Finding(
        "competition",
        Severity.ERROR,
        "stack",
        "",
        f"{names} run at the same time: {text}",
        f"Raise the maximum of {pools}, or give the workloads pools of their own.",
    )


def job_waits(job: Workload, beside: Sequence[Workload], judgement: Judgement) -> Finding:
    """Workloads that keep their places may leave no room for a Job."""
    until = "until they have ended" if all(workload.is_finite for workload in beside) else "for ever"
    text = judgement.shortage or "they may take all the room"
    return _error(
        job,
        "competition",
        "",
        f"beside {_names(map(str, beside))} it may wait {until}: {text}",
        "Let its pools have more nodes, or give it one of its own.",
    )


def shared_claim(workloads: Sequence[Workload], claim: str) -> Finding:
    """A claim that only one node can attach, though pods on several nodes may mount it."""
    who = f"{_names(map(str, workloads))} mount" if len(workloads) > 1 else "several pods mount"
    return _warning(
        workloads[0],
        "volume-access",
        "volumes",
        f"{who} the claim {claim}, which one node at a time may attach (ReadWriteOnce): pods on another one wait",
        f"Give {claim} the access mode ReadWriteMany, or run the pods one after the other.",
    )


def _needs(pod: PodClass) -> str:
    shown = [f"{format_milli(amount)} {name}" for name, amount in _by_weight(pod) if name != PODS]
    return ", ".join(shown) or "a place"


def _by_weight(pod: PodClass) -> list[tuple[str, int]]:
    """Requests with the rarest resource first: extended ones, then cpu and memory."""
    order = {"cpu": 1, "memory": 2, "ephemeral-storage": 3, PODS: 4}
    return sorted(pod.requests.items(), key=lambda item: (order.get(item[0], 0), item[0]))


def _grown(rule: str, count: int) -> str:
    return (
        f"{count} pods during a rollout" if rule == "rollout-surge" else f"{count} pods, which the autoscaler may set,"
    )


def _less_growth(rule: str, pods: PodSet) -> str:
    if rule == "rollout-surge":
        return "set strategy.rollingUpdate to maxSurge 0 and maxUnavailable 1"
    return "lower the autoscaler's maxReplicas"


def _names(names: Iterable[str]) -> str:
    found = list(names)
    if len(found) > MOST_NAMES:
        found = [*found[:MOST_NAMES], f"{len(found) - MOST_NAMES} more"]
    return " and ".join(filter(None, [", ".join(found[:-1]), found[-1]])) if found else "nothing"


def _error(workload: Workload, rule: str, path: str, message: str, remedy: str) -> Finding:
    return Finding(rule, Severity.ERROR, str(workload), path, message, remedy)


def _warning(workload: Workload, rule: str, path: str, message: str, remedy: str) -> Finding:
    return Finding(rule, Severity.WARNING, str(workload), path, message, remedy)
