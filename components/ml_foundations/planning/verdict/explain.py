"""Reasons in words, for the person who must fix it: the number that is missing, the nearest pool, the way out."""

from __future__ import annotations

import math
from functools import singledispatch

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.manifests import name_of, namespace_of
from ml_foundations.kubernetes.quantities import readable
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
    Overpromised,
    QuotaExceeded,
    Reason,
    SharedClaim,
    Shortage,
    Verdict,
)
from ml_foundations.planning.model.refusals import Refusal
from ml_foundations.planning.model.resources import is_extended
from ml_foundations.planning.model.workloads import Workload
from ml_foundations.planning.verdict import shortage
from ml_foundations.planning.verdict.findings import Finding, Severity
from ml_foundations.planning.verdict.shortage import Words, lack_text, lacks, names, needs


def finding(reason: Reason, verdict: Verdict, workload: Workload | None = None) -> Finding:
    """A reason of a verdict in words: an error where the verdict is certain. That of ``fits`` is a warning.

    Args:
        reason: The reason.
        verdict: The verdict that it leads to.
        workload: The workload that it is about; of a reason of the whole stack, none.
    """
    rule, path, message, remedy, about = _words(reason, verdict)
    # Where workloads together exceed a quota, some are refused, whichever comes first; a promise is kept or it is not.
    certain = verdict is Verdict.CANNOT_FIT or isinstance(reason, QuotaExceeded | Overpromised)
    severity = Severity.ERROR if certain else Severity.WARNING
    return Finding(rule, severity, about or str(workload or "stack"), path, message, remedy)


@singledispatch
def _words(reason: object, _verdict: Verdict) -> Words:
    raise TypeError(f"no words for {reason!r}")


@_words.register
def _(reason: Refusal, _verdict: Verdict) -> Words:
    return Words(reason.rule, reason.path, reason.message, reason.remedy, reason.object)


@_words.register
def _(reason: QuotaExceeded, _verdict: Verdict) -> Words:
    quota = name_of(reason.quota)
    wanted, free, short, enough = _numbers(reason)
    if reason.workloads:
        return Words(
            "quota-sum",
            f"spec.hard.{reason.resource}",
            f"{names(map(str, reason.workloads))} together need {wanted} {reason.resource}, and the quota leaves "
            f"{free}: {short} too few",
            f"Raise {reason.resource} to {enough}, or lower what the workloads ask for.",
            f"ResourceQuota {namespace_of(reason.quota)}/{quota}",
        )
    used = "" if reason.free == reason.hard else f" of {readable(reason.hard)}"
    return Words(
        "quota",
        f"ResourceQuota {quota}.spec.hard.{reason.resource}",
        f"it needs {wanted} {reason.resource}, and ResourceQuota {quota} leaves {free}{used}: {short} too few",
        f"Raise {reason.resource} of ResourceQuota {quota} to {enough}, or ask for less.",
    )


def _numbers(exceeded: QuotaExceeded) -> tuple[str, ...]:
    """What is wanted, what is free, what is missing and what would be enough."""
    wanted, free, hard = exceeded.wanted, exceeded.free, exceeded.hard
    return *map(readable, (wanted, free, wanted - free)), readable(hard + wanted - free, math.ceil)


@_words.register
def _(reason: GrowthStops, _verdict: Verdict) -> Words:
    if reason.rule == "rollout-surge":
        grown = f"{reason.count} pods during a rollout"
        less = "set strategy.rollingUpdate to maxSurge 0 and maxUnavailable 1"
    else:
        grown = f"{reason.count} pods, which the autoscaler may set,"
        less = "lower the autoscaler's maxReplicas"
    if isinstance(reason.limit, QuotaExceeded):
        quota, resource = f"ResourceQuota {name_of(reason.limit.quota)}", reason.limit.resource
        wanted, free, _, enough = _numbers(reason.limit)
        return Words(
            reason.rule,
            f"{quota}.spec.hard.{resource}",
            f"{grown} need {wanted} {resource}, and {quota} leaves {free}",
            f"Raise {resource} to {enough}, or {less}.",
        )
    return Words(
        reason.rule,
        reason.pods.count_path,
        f"{grown} do not fit: the nodes take {reason.limit} pods of {needs(reason.pod)}",
        f"Make room for {reason.count - reason.limit} more, or {less}.",
    )


@_words.register
def _(reason: InTurns, _verdict: Verdict) -> Words:
    path, count = reason.pods.count_path, reason.pods.count
    limit = "the nodes" if reason.quota is None else f"ResourceQuota {name_of(reason.quota)}"
    return Words(
        "runs-in-turns",
        path,
        f"{reason.most} of {count} pods run at a time: {limit} allow no more",
        f"Lower {path} to {reason.most}, or make room for {count}.",
    )


@_words.register
def _(reason: NoNodeMatches, _verdict: Verdict) -> Words:
    return Words(
        "daemon-set-without-nodes",
        reason.pods.path,
        "no node matches its node selector, affinity and tolerations, so it runs nowhere",
        "Check the node selector against the labels of the pools.",
    )


@_words.register
def _(reason: NodeRefuses, _verdict: Verdict) -> Words:
    rule, path, message, *_ = reason.refusal
    path = f"{reason.pods.path}.{path}".removesuffix(".")
    if reason.must_run:
        message = f'its pod must run on "{reason.node}" and cannot: {message}'
        return Words(rule, path, message, f"Keep it off {reason.node} by a node selector.")
    remedy = reason.refusal.remedy or "Select nodes by labels that the pool declares."
    if rule == "unknown-value":
        remedy = "Give it as a plain value, which is known at preview."
        if "not in the catalog" in message:
            remedy = f"Declare its shape by the labels {labels.VCPUS} and {labels.MEMORY_GIB} of its nodes."
    return Words(rule, path, f'"{reason.node}" may take the pods or not: {message}', remedy)


@_words.register
def _(reason: NodeIsFull, _verdict: Verdict) -> Words:
    name, short = reason.place.node.name, map(lack_text, lacks(reason.pod, reason.place))
    return Words(
        "daemon-set-room",
        reason.pods.path,
        f'"{name}" has no room for its pod: {"; ".join(short) or "host ports or anti-affinity keep it off"}',
        f"Lower the pod's requests, or keep it off {name} by a node selector.",
    )


@_words.register
def _(reason: KeptApart, verdict: Verdict) -> Words:
    certain = "cannot" if verdict is Verdict.CANNOT_FIT else "perhaps cannot"
    return Words(
        "daemon-set-spread",
        reason.pods.path,
        f"its pods {certain} be on every node: affinity or spreading keeps them apart",
        "Remove affinity and topologySpreadConstraints from the DaemonSet.",
    )


@_words.register
def _(reason: Eviction, _verdict: Verdict) -> Words:
    return Words(
        "preemption",
        f"{reason.pods.path}.priorityClassName",
        f"its pods find room only by evicting running pods of a priority below {reason.pod.priority}",
        "Make room for both, or lower the priority.",
    )


@_words.register
def _(reason: Company, _verdict: Verdict) -> Words:
    return Words(
        "pod-affinity",
        f"{reason.pods.path}.affinity",
        "whether its pods find a place depends on where the pods of other workloads are",
        "Select nodes by labels instead of by pods.",
    )


@_words.register
def _(reason: SharedClaim, _verdict: Verdict) -> Words:
    workloads, claim = reason.workloads, reason.claim
    mounting = f"{names(map(str, workloads))} mount" if len(workloads) > 1 else "several pods mount"
    return Words(
        "volume-access",
        "volumes",
        f"{mounting} the claim {claim}, which one node at a time may attach (ReadWriteOnce): pods on another one wait",
        f"Give {claim} the access mode ReadWriteMany, or run the pods one after the other.",
    )


@_words.register
def _(reason: Overpromised, _verdict: Verdict) -> Words:
    promised, offered = readable(reason.promised), readable(reason.offered)
    return Words(
        "queue-capacity",
        "spec",
        f"queues promise {promised} {reason.resource}, and {reason.holder} has {offered}",
        f"Lower nominalQuota to {offered} in all, or raise what {reason.holder} has.",
        reason.object,
    )


@_words.register
def _(reason: Member, verdict: Verdict) -> Words:
    text = "cannot fit" if verdict is Verdict.CANNOT_FIT else "is undetermined"
    return Words("workload", "", f"{reason.workload} {text}", "See its own reasons.", str(reason.workload))


@_words.register
def _(reason: Competition, verdict: Verdict) -> Words:
    missing = _missing(reason)
    if reason.of_one:
        message = missing or "its pods may take each other's places"
        return Words("nodes", reason.of_one, message, "Let pools have more nodes, or lower replicas.")
    if reason.job:
        until = "until they have ended" if all(workload.is_finite for workload in reason.beside) else "forever"
        beside = names(map(str, reason.beside))
        message = f"beside {beside} it may wait {until}: {missing or 'they may take all the room'}"
        remedy = "Let its pools have more nodes, or give it one of its own."
        return Words("competition", "", message, remedy, str(reason.job))
    competing = names(dict.fromkeys(demand.pod.name for demand in reason.demands))
    pools = names(dict.fromkeys(place.node.name for demand in reason.demands for place in demand.places))
    if verdict is Verdict.CANNOT_FIT:
        missing = missing or f"no way of placing them on {pools} has room for all"
    return Words(
        "competition",
        "",
        f"{competing} run at the same time: "
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
        f"together they need {' and '.join(f'{readable(needed[name])} {name}' for name in short)}, "
        f"and {', '.join(nodes) or 'no node'} offer{'' if len(nodes) > 1 else 's'} "
        f"{' and '.join(readable(offered[name]) for name in short)} at most"
    )


@_words.register
def _(reason: Shortage, _verdict: Verdict) -> Words:
    return shortage.words(reason)
