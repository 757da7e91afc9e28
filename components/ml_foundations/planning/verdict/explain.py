"""Reasons in words, for the person who must fix it: the number that is missing, the nearest pool, the way out."""

import math
from collections.abc import Sequence
from typing import Any

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import name_of, namespace_of
from ml_foundations.kubernetes.quantities import readable
from ml_foundations.kubernetes.words import listed, names, number, verb
from ml_foundations.planning.model.decisions import (
    Competition,
    GrowthStops,
    QuotaExceeded,
    Reason,
    Shortage,
    Verdict,
)
from ml_foundations.planning.model.node_groups import NodeGroup, PodClass
from ml_foundations.planning.model.nodes import NodeClass
from ml_foundations.planning.model.refusals import Refusal, told
from ml_foundations.planning.model.resources import is_extended
from ml_foundations.planning.model.workloads import PodSet, Workload
from ml_foundations.planning.verdict import shortage
from ml_foundations.planning.verdict.findings import Finding, Severity
from ml_foundations.planning.verdict.shortage import lack_text, lacks, needs


def finding(reason: Reason, verdict: Verdict, workload: Workload | None = None) -> Finding:
    """A reason of a verdict in words: an error where the verdict is certain. That of ``fits`` is a warning.

    A reason of the whole stack is about no workload.
    """
    words = _words(reason, verdict)
    # Where workloads together exceed a quota, some are refused, whichever comes first.
    certain = verdict is Verdict.CANNOT_FIT or (
        isinstance(reason, QuotaExceeded) and not reason.in_all
    )
    severity = Severity.ERROR if certain else Severity.WARNING
    about = words.object or str(workload or "stack")
    return Finding(words.rule, severity, about, words.path, words.message, words.remedy)


def _words(reason: Reason, verdict: Verdict) -> Refusal:
    match reason:
        case Refusal():
            return reason
        case QuotaExceeded():
            return _quota_exceeded(reason)
        case GrowthStops():
            return _growth_stops(reason)
        case Competition():
            return _competition(reason, verdict)
        case Shortage():
            return shortage.words(reason)


def _quota_exceeded(reason: QuotaExceeded) -> Refusal:
    quota, (wanted, free, short, enough) = name_of(reason.quota), _numbers(reason)
    wanted = f"in all {wanted}" if reason.in_all else wanted
    said: dict[str, Any] = dict(
        wanted=wanted, free=free, short=short, enough=enough, resource=reason.resource
    )
    if reason.workloads:
        who, where = (
            names(map(str, reason.workloads)),
            f"ResourceQuota {namespace_of(reason.quota)}/{quota}",
        )
        return told("quota-sum", f"spec.hard.{reason.resource}", object=where, who=who, **said)
    used = "" if reason.free == reason.hard else f" of {readable(reason.hard)}"
    return told(
        "quota",
        f"ResourceQuota {quota}.spec.hard.{reason.resource}",
        quota=quota,
        used=used,
        **said,
    )


def _numbers(exceeded: QuotaExceeded) -> tuple[str, ...]:
    """What is wanted, what is free, what is missing and what would be enough."""
    wanted, free, hard = exceeded.wanted, exceeded.free, exceeded.hard
    return *map(readable, (wanted, max(0, free), wanted - free)), readable(
        hard + wanted - free, math.ceil
    )


def _growth_stops(reason: GrowthStops) -> Refusal:
    rule, count, limit = reason.rule, reason.count, reason.limit
    if isinstance(limit, QuotaExceeded):
        quota, (wanted, free, _, enough) = f"ResourceQuota {name_of(limit.quota)}", _numbers(limit)
        said: dict[str, Any] = dict(
            quota=quota, resource=limit.resource, wanted=wanted, free=free, enough=enough
        )
        return told(f"{rule}-quota", f"{quota}.spec.hard.{limit.resource}", count=count, **said)
    path, more = reason.pods.count_path, count - limit
    return told(
        f"{rule}-nodes",
        path,
        count=count,
        limit=number(limit, "pod"),
        needs=needs(reason.pod),
        more=more,
    )


def node_refuses(
    pods: PodSet, node: NodeClass, refusal: Refusal, *, must_run: bool = False
) -> Refusal:
    """A node refuses the pods, or perhaps: one where they might run, or one where a DaemonSet must."""
    rule, path, message, *_ = refusal
    path = f"{pods.path}.{path}".removesuffix(".")
    if must_run:
        message = f'its pod must run on "{node.name}" and cannot: {message}'
        return Refusal(rule, path, message, f"Keep it off {node.name} by a node selector.")
    remedy = refusal.remedy or "Select nodes by labels that the pool declares."
    if rule == "unknown-value":
        remedy = "Give it as a plain value, which is known at preview."
        if "list of node pools" in message:
            remedy = (
                "Declare its node pools here, or describe the GPU pools of a cluster that exists."
            )
        if "not in the catalog" in message:
            remedy = f"Declare its shape by the labels {labels.VCPUS} and {labels.MEMORY_GIB} of its nodes."
    return Refusal(rule, path, f'"{node.name}" may take the pods or not: {message}', remedy)


def node_is_full(pods: PodSet, pod: PodClass, place: NodeGroup) -> Refusal:
    """A node where a DaemonSet must run has no room for its pod."""
    short = (
        "; ".join(map(lack_text, lacks(pod, place))) or "host ports or anti-affinity keep it off"
    )
    return told("daemon-set-room", pods.path, name=place.node.name, short=short)


def eviction(pods: PodSet, pod: PodClass) -> Refusal:
    """The pods take the place of pods with a lower priority."""
    return told("by-eviction", f"{pods.path}.priorityClassName", priority=pod.priority)


def shared_claim(claim: str, workloads: Sequence[Workload]) -> Refusal:
    """Pods on several nodes may mount a claim that one node at a time may attach."""
    mounting = f"{names(map(str, workloads))} mount" if len(workloads) > 1 else "several pods mount"
    return told("one-node-claim", "volumes", mounting=mounting, claim=claim)


def _competition(reason: Competition, verdict: Verdict) -> Refusal:
    missing = _missing(reason)
    if reason.of_one:
        message = missing or "its pods may take each other's places"
        return Refusal(
            "nodes", reason.of_one, message, "Let pools have more nodes, or lower replicas."
        )
    if reason.job:
        until = (
            "until they have ended"
            if all(workload.is_finite for workload in reason.beside)
            else "forever"
        )
        beside = names(map(str, reason.beside))
        missing = missing or "they may take all the room"
        return told(
            "beside-others", object=str(reason.job), beside=beside, until=until, missing=missing
        )
    competing = names(dict.fromkeys(demand.pod.name for demand in reason.demands))
    pools = names(
        dict.fromkeys(place.node.name for demand in reason.demands for place in demand.places)
    )
    if verdict is Verdict.CANNOT_FIT:
        missing = missing or f"no way of placing them on {pools} has room for all"
    missing = (
        missing or f"on {pools} they may take each other's room, as the scheduler's choices fall"
    )
    return told("pools-too-small", "", competing=competing, missing=missing, pools=pools)


def _missing(reason: Competition) -> str:
    """What demands need together of the resources that are short; nothing where none is for certain."""
    if reason.shortfall is None:
        return ""
    needed, offered, nodes = (
        reason.shortfall.needed,
        reason.shortfall.offered,
        reason.shortfall.nodes,
    )
    short = sorted(needed, key=lambda name: (not is_extended(name), name))
    wanted = listed(f"{readable(needed[name])} {name}" for name in short)
    most = listed(readable(offered[name]) for name in short)
    offer = (
        f"{names(nodes)} {verb(len(nodes), 'offers', 'offer')} {most} at most"
        if nodes
        else "no node offers any"
    )
    return f"together they need {wanted}, and {offer}"
