"""Reasons in words, for the person who must fix it: the number that is missing, the nearest pool, the way out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import singledispatch
from typing import NamedTuple

from ml_foundations.kubernetes.manifests import items, name_of, namespace_of
from ml_foundations.kubernetes.quantities import format_milli
from ml_foundations.kubernetes.tolerations import described_taint, untolerated_taints
from ml_foundations.planning.model.decisions import (
    Company,
    Competition,
    Eviction,
    GrowthStops,
    InTurns,
    KeptApart,
    Member,
    NodeIsFull,
    NodeRefuses,
    NoNodeMatches,
    QuotaExceeded,
    Reason,
    SharedClaim,
    Shortage,
    Verdict,
)
from ml_foundations.planning.model.places import Place, PodClass
from ml_foundations.planning.model.refusals import Refusal
from ml_foundations.planning.model.resources import PODS, is_extended
from ml_foundations.planning.model.workloads import PodSet, Workload
from ml_foundations.planning.scheduler.filters import refusals
from ml_foundations.planning.verdict.findings import Finding, Severity

_MOST_NAMES = 3


class _Words(NamedTuple):
    rule: str
    path: str
    message: str
    remedy: str
    object: str = ""
    """What the finding is about, where that is not the workload."""


def finding(reason: Reason, verdict: Verdict, workload: Workload | None = None) -> Finding:
    """A reason of a verdict in words: an error where the verdict is certain. That of ``fits`` is a warning.

    Args:
        reason: The reason.
        verdict: The verdict that it leads to.
        workload: The workload that it is about; of a reason of the whole stack, none.
    """
    rule, path, message, remedy, about = _words(reason, verdict)
    # Where workloads together exceed a quota, some of them are refused, whichever comes first.
    certain = verdict is Verdict.CANNOT_FIT or isinstance(reason, QuotaExceeded)
    severity = Severity.ERROR if certain else Severity.WARNING
    return Finding(rule, severity, about or str(workload or "stack"), path, message, remedy)


@singledispatch
def _words(reason: object, _verdict: Verdict) -> _Words:
    raise TypeError(f"no words for {reason!r}")


@_words.register
def _(reason: Refusal, _verdict: Verdict) -> _Words:
    return _Words(reason.rule, reason.path, reason.message, reason.remedy)


@_words.register
def _(reason: QuotaExceeded, _verdict: Verdict) -> _Words:
    quota = name_of(reason.quota)
    wanted, free, short, enough = _numbers(reason)
    if reason.workloads:
        return _Words(
            "quota-sum",
            f"spec.hard.{reason.resource}",
            f"{_names(map(str, reason.workloads))} together need {wanted} {reason.resource}, and the quota leaves "
            f"{free}: {short} too few",
            f"Raise {reason.resource} to {enough}, or lower what the workloads ask for.",
            f"ResourceQuota {namespace_of(reason.quota)}/{quota}",
        )
    used = "" if reason.free == reason.hard else f" of {format_milli(reason.hard)}"
    return _Words(
        "quota",
        f"ResourceQuota {quota}.spec.hard.{reason.resource}",
        f"it needs {wanted} {reason.resource}, and ResourceQuota {quota} leaves {free}{used}: {short} too few",
        f"Raise {reason.resource} of ResourceQuota {quota} to {enough}, or ask for less.",
    )


def _numbers(exceeded: QuotaExceeded) -> tuple[str, ...]:
    """What is wanted, what is free, what is missing and what would be enough."""
    wanted, free, hard = exceeded.wanted, exceeded.free, exceeded.hard
    return tuple(map(format_milli, (wanted, free, wanted - free, hard + wanted - free)))


@_words.register
def _(reason: GrowthStops, _verdict: Verdict) -> _Words:
    if reason.rule == "rollout-surge":
        grown = f"{reason.count} pods during a rollout"
        less = "set strategy.rollingUpdate to maxSurge 0 and maxUnavailable 1"
    else:
        grown = f"{reason.count} pods, which the autoscaler may set,"
        less = "lower the autoscaler's maxReplicas"
    if isinstance(reason.limit, QuotaExceeded):
        quota, resource = f"ResourceQuota {name_of(reason.limit.quota)}", reason.limit.resource
        wanted, free, _, enough = _numbers(reason.limit)
        return _Words(
            reason.rule,
            f"{quota}.spec.hard.{resource}",
            f"{grown} need {wanted} {resource}, and {quota} leaves {free}",
            f"Raise {resource} to {enough}, or {less}.",
        )
    return _Words(
        reason.rule,
        reason.pods.count_path,
        f"{grown} do not fit: the nodes take {reason.limit} pods of {_needs(reason.pod)}",
        f"Make room for {reason.count - reason.limit} more, or {less}.",
    )


@_words.register
def _(reason: InTurns, _verdict: Verdict) -> _Words:
    path, count = reason.pods.count_path, reason.pods.count
    limit = "the nodes" if reason.quota is None else f"ResourceQuota {name_of(reason.quota)}"
    return _Words(
        "runs-in-turns",
        path,
        f"{reason.most} of {count} pods run at a time: {limit} allow no more",
        f"Lower {path} to {reason.most}, or make room for {count}.",
    )


@_words.register
def _(reason: NoNodeMatches, _verdict: Verdict) -> _Words:
    return _Words(
        "daemon-set-without-nodes",
        reason.pods.path,
        "no node matches its node selector, affinity and tolerations, so it runs nowhere",
        "Check the node selector against the labels of the pools.",
    )


@_words.register
def _(reason: NodeRefuses, _verdict: Verdict) -> _Words:
    rule, path, message, *_ = reason.refusal
    path = f"{reason.pods.path}.{path}".removesuffix(".")
    if reason.must_run:
        message = f'its pod must run on "{reason.node}" and cannot: {message}'
        return _Words(rule, path, message, f"Keep it off {reason.node} by a node selector.")
    remedy = "Select nodes by labels that the pool declares."
    if rule == "unknown-value":
        remedy = "Give it as a plain value, which is known at preview."
    return _Words(rule, path, f'"{reason.node}" may take the pods or not: {message}', remedy)


@_words.register
def _(reason: NodeIsFull, _verdict: Verdict) -> _Words:
    name, lacks = reason.place.node.name, map(_lack, _lacks(reason.pod, reason.place))
    return _Words(
        "daemon-set-room",
        reason.pods.path,
        f'"{name}" has no room for its pod: {"; ".join(lacks) or "host ports or anti-affinity keep it off"}',
        f"Lower the pod's requests, or keep it off {name} by a node selector.",
    )


@_words.register
def _(reason: KeptApart, verdict: Verdict) -> _Words:
    certain = "cannot" if verdict is Verdict.CANNOT_FIT else "perhaps cannot"
    return _Words(
        "daemon-set-spread",
        reason.pods.path,
        f"its pods {certain} be on every node: affinity or spreading keeps them apart",
        "Remove affinity and topologySpreadConstraints from the DaemonSet.",
    )


@_words.register
def _(reason: Eviction, _verdict: Verdict) -> _Words:
    return _Words(
        "preemption",
        f"{reason.pods.path}.priorityClassName",
        f"its pods find room only by evicting running pods of a priority below {reason.pod.priority}",
        "Make room for both, or lower the priority.",
    )


@_words.register
def _(reason: Company, _verdict: Verdict) -> _Words:
    return _Words(
        "pod-affinity",
        f"{reason.pods.path}.affinity",
        "whether its pods find a place depends on where the pods of other workloads are",
        "Select nodes by labels instead of by pods.",
    )


@_words.register
def _(reason: SharedClaim, _verdict: Verdict) -> _Words:
    workloads, claim = reason.workloads, reason.claim
    mounting = f"{_names(map(str, workloads))} mount" if len(workloads) > 1 else "several pods mount"
    return _Words(
        "volume-access",
        "volumes",
        f"{mounting} the claim {claim}, which one node at a time may attach (ReadWriteOnce): pods on another one wait",
        f"Give {claim} the access mode ReadWriteMany, or run the pods one after the other.",
    )


@_words.register
def _(reason: Member, verdict: Verdict) -> _Words:
    text = "cannot fit" if verdict is Verdict.CANNOT_FIT else "is undetermined"
    return _Words("workload", "", f"{reason.workload} {text}", "See its own reasons.", str(reason.workload))


@_words.register
def _(reason: Competition, verdict: Verdict) -> _Words:
    missing = _missing(reason)
    if reason.of_one:
        message = missing or "its jobs may take each other's places"
        return _Words("nodes", "spec.replicatedJobs", message, "Let pools have more nodes, or lower replicas.")
    if reason.job:
        until = "until they have ended" if all(workload.is_finite for workload in reason.beside) else "for ever"
        beside = _names(map(str, reason.beside))
        message = f"beside {beside} it may wait {until}: {missing or 'they may take all the room'}"
        remedy = "Let its pools have more nodes, or give it one of its own."
        return _Words("competition", "", message, remedy, str(reason.job))
    names = _names(dict.fromkeys(demand.pod.name for demand in reason.demands))
    pools = _names(dict.fromkeys(place.node.name for demand in reason.demands for place in demand.places))
    if verdict is Verdict.CANNOT_FIT:
        missing = missing or f"no way of placing them on {pools} has room for all"
    return _Words(
        "competition",
        "",
        f"{names} run at the same time: "
        + (missing or f"on {pools} they may take each other's room, as the scheduler's choices fall"),
        f"Raise the maximum of {pools}, or give the workloads pools of their own.",
    )


def _missing(reason: Competition) -> str:
    """What demands need together of the resources that are short; nothing where none is for certain."""
    if reason.shortfall is None:
        return ""
    needed, offered, nodes = reason.shortfall.needed, reason.shortfall.offered, reason.shortfall.nodes
    short = sorted(needed, key=lambda name: (not is_extended(name), name))
    return (
        f"together they need {' and '.join(f'{format_milli(needed[name])} {name}' for name in short)}, "
        f"and {', '.join(nodes) or 'no node'} offer{'' if len(nodes) > 1 else 's'} "
        f"{' and '.join(format_milli(offered[name]) for name in short)} at most"
    )


@_words.register
def _(reason: Shortage, _verdict: Verdict) -> _Words:
    """Why the nearest node does not take a pod, or how many nodes are missing."""
    path = reason.pods.path
    if reason.most >= reason.wanted:
        return _Words(
            reason.limited_by or "placement-order",
            path,
            f"between {reason.least} and {reason.most} of {reason.wanted} pods find a place, "
            "as the scheduler's choices fall",
            "Loosen the constraint, or give every domain room for all.",
        )
    if not reason.places:
        return _Words("no-nodes", path, "there are no nodes", "Declare a node pool.")
    able = [place for place in reason.places if place.room(reason.pod) and not refusals(reason.pod, place.node)]
    if not able:
        return _nowhere(reason)
    room = sum(place.count * place.room(reason.pod) for place in able)
    return _limited(reason, able) if reason.limited_by and reason.most < room else _too_many(reason, able)


_DISTANCES = {"taint": 2, "node-unschedulable": 2, "disk-type": 5, "volume-zone": 5}
"""How far a node is that refuses the pods: a toleration is soon added, another machine is not."""


def _nowhere(reason: Shortage) -> _Words:
    """No node takes even one pod: tell of the nearest, which has the fewest things against it."""
    pods, pod = reason.pods, reason.pod

    def distance(place: Place) -> tuple[int, int]:
        missing = sum(20 if is_extended(name) and not free else 3 for name, _, free in _lacks(pod, place))
        return missing + sum(_DISTANCES.get(each.rule, 10) for each in refusals(pod, place.node)), -place.count

    nearest = min(reason.places, key=distance)
    found, short = refusals(pod, nearest.node), _lacks(pod, nearest)
    against = [*(refusal.message for refusal in found), *map(_lack, short)]
    if not against:
        against = ["pods that run there keep it off, by host ports or anti-affinity"]
    rule, path = "pod-anti-affinity", pods.path
    if found:
        rule, path = found[0].rule, f"{pods.path}.{found[0].path}"
    elif short:
        rule, path = "resources", f"{pods.path}.containers[0].resources.requests.{short[0][0]}"
    return _Words(
        rule,
        path,
        f'each pod needs {_needs(pod)}; the nearest, "{nearest.node.name}", does not take it: {"; ".join(against)}',
        _remedy(pods, pod, nearest, {refusal.rule for refusal in found}),
    )


def _remedy(pods: PodSet, pod: PodClass, nearest: Place, rules: set[str]) -> str:
    """The shortest way to the nearest pool, which refuses the pod by some rules."""
    name = nearest.node.name
    taints = untolerated_taints(items(pod.spec, "tolerations"), nearest.node.taints)
    ways = {
        "taint": f"tolerate {' and '.join(map(described_taint, taints))}",
        "node-selector": f"correct {pods.path}.nodeSelector",
        "node-affinity": f"correct {pods.path}.affinity.nodeAffinity",
        "node-name": f"remove {pods.path}.nodeName",
        "node-unschedulable": f"uncordon {name}",
        "volume-zone": f"give {name} nodes in the volume's zone",
        "disk-type": "choose a storage class with a disk type that the machine attaches",
    }
    steps = [way for rule, way in ways.items() if rule in rules]
    steps += [
        f"request at most {format_milli(free)} {resource}" if free else f"choose a pool that offers {resource}"
        for resource, _, free in _lacks(pod, nearest)
    ]
    text = " and ".join(steps) or "free the node's host ports or loosen the anti-affinity"
    return f"{text[0].upper()}{text[1:]}."


def _limited(reason: Shortage, able: Sequence[Place]) -> _Words:
    pod, pods, most = reason.pod, reason.pods, reason.most
    path, keys = {
        "topology-spread": ("topologySpreadConstraints", [constraint.key for constraint in pod.spread]),
        "pod-anti-affinity": ("affinity.podAntiAffinity", [term.key for term in pod.anti_affinity]),
        "pod-affinity": ("affinity.podAffinity", [term.key for term in pod.affinity]),
        "volume-access": ("volumes", []),
    }[reason.limited_by]
    over = f" over {_names(dict.fromkeys(keys))}" if keys else ""
    return _Words(
        reason.limited_by,
        f"{pods.path}.{path}",
        f"{reason.wanted} pods must run at once, and {path}{over} lets {most} of them: "
        f"{_names(f'{place.count} nodes of {place.node.name}' for place in able)} would have the room",
        f"Loosen {path}, or lower {pods.count_path} to {most}." if most else f"Loosen {path}.",
    )


def _too_many(reason: Shortage, able: Sequence[Place]) -> _Words:
    """Each pod fits somewhere, but there are not nodes enough for all at once."""
    pod, count_path = reason.pod, reason.pods.count_path
    largest = max(able, key=lambda place: (place.room(pod), place.count))
    missing = -(-(reason.wanted - reason.most) // largest.room(pod))
    # A pool that is split over its zones is one to the reader.
    by_pool, counts = {place.node.name: place for place in able}, Counter[str]()
    for place in able:
        counts[place.node.name] += place.count
    offers = _names(_offer(pod, place, counts[name]) for name, place in by_pool.items())
    name = largest.node.name
    more = (
        f"the maximum of {name} to {counts[name] + missing} nodes"
        if largest.node.is_template
        else f"the number of nodes by {missing}"
    )
    return _Words(
        "nodes",
        count_path,
        f"each pod needs {_needs(pod)}; {offers}: room for {reason.most} of the {reason.wanted} pods "
        "that must run at once",
        f"Raise {more} or lower {count_path} to {reason.most}.",
    )


def _offer(pod: PodClass, place: Place, count: int) -> str:
    """What a number of nodes of a class offer of the resource that runs out first."""
    nodes = f"{count} node{'' if count == 1 else 's'}"
    nodes = f"at most {nodes}" if place.node.is_template else nodes
    if pod.excludes_itself_per_node:
        return f'"{place.node.name}" takes one per node on {nodes}'
    name = min(pod.requests, key=lambda each: (place.free.get(each, 0) // pod.requests[each], each))
    return f'"{place.node.name}" offers {format_milli(place.free.get(name, 0))} {name} per node on {nodes}'


def _lacks(pod: PodClass, place: Place) -> list[tuple[str, int, int]]:
    """The resources of which one pod needs more than a node has free: name, needed, free."""
    return [
        (name, amount, max(0, place.free.get(name, 0)))
        for name, amount in sorted(pod.requests.items())
        if amount > place.free.get(name, 0)
    ]


def _lack(lack: tuple[str, int, int]) -> str:
    name, *amounts = lack
    needed, free, short = map(format_milli, (*amounts, amounts[0] - amounts[1]))
    if name == PODS:
        return "it has no place for one more pod"
    return f"it needs {needed} {name}, and {free} is free, {short} short"


def _needs(pod: PodClass) -> str:
    """What a pod requests, the rarest resource first: extended ones, then cpu and memory."""
    order = {"cpu": 1, "memory": 2, "ephemeral-storage": 3}
    names = sorted(pod.requests.keys() - {PODS}, key=lambda name: (order.get(name, 0), name))
    return ", ".join(f"{format_milli(pod.requests[name])} {name}" for name in names) or "a place"


def _names(names: Iterable[str]) -> str:
    found = list(names)
    if len(found) > _MOST_NAMES:
        found = [*found[:_MOST_NAMES], f"{len(found) - _MOST_NAMES} more"]
    return " and ".join(filter(None, [", ".join(found[:-1]), found[-1]])) if found else "nothing"
