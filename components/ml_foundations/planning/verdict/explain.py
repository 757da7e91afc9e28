"""Reasons in words for the user: what is missing, the nearest pool, and how to fix it."""

import math
from collections.abc import Sequence

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
from ml_foundations.planning.model.refusals import Refusal
from ml_foundations.planning.model.resources import is_extended
from ml_foundations.planning.model.workloads import PodSet, Workload
from ml_foundations.planning.verdict import shortage
from ml_foundations.planning.verdict.findings import Finding, Severity
from ml_foundations.planning.verdict.shortage import lack_text, lacks, needs


def finding(reason: Reason, verdict: Verdict, workload: Workload | None = None) -> Finding:
    """Return a reason of a verdict in words: an error if the verdict is certain, else a warning.

    A reason of the whole stack is about no workload.
    """
    words = _words(reason, verdict)
    # If workloads together exceed a quota, some are rejected, whichever comes first.
    is_exceeded = isinstance(reason, QuotaExceeded) and not reason.in_all
    is_error = verdict is Verdict.CANNOT_FIT or is_exceeded
    severity = Severity.ERROR if is_error else Severity.WARNING
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
    quota, resource = name_of(reason.quota), reason.resource
    wanted, free, enough = _amounts(reason)
    wanted = f"in all {wanted}" if reason.in_all else wanted
    short = f"{readable(reason.wanted - reason.free)} too few"
    if reason.workloads:
        together = f"{names(map(str, reason.workloads))} together need {wanted} {resource}"
        return Refusal(
            rule="quota-sum",
            path=f"spec.hard.{resource}",
            message=f"{together}, and the quota leaves {free}: {short}",
            remedy=f"Raise {resource} to {enough}, or lower what the workloads ask for.",
            object=f"ResourceQuota {namespace_of(reason.quota)}/{quota}",
        )
    # Kubernetes counts the claims themselves: the workload only waits for them.
    is_of_claims = "storage" in resource or resource == "persistentvolumeclaims"
    who = "the claims that it needs come to" if is_of_claims else "it needs"
    lower = "make the claims smaller or fewer" if is_of_claims else "ask for less"
    of_all = "" if reason.free == reason.hard else f" of {readable(reason.hard)}"
    leaves = f"ResourceQuota {quota} leaves {free}{of_all}"
    return Refusal(
        rule="quota",
        path=f"ResourceQuota {quota}.spec.hard.{resource}",
        message=f"{who} {wanted} {resource}, and {leaves}: {short}",
        remedy=f"Raise {resource} of ResourceQuota {quota} to {enough}, or {lower}.",
    )


def _amounts(exceeded: QuotaExceeded) -> tuple[str, str, str]:
    """Return what is wanted, what is free and what would be enough."""
    wanted, free, hard = exceeded.wanted, exceeded.free, exceeded.hard
    enough = readable(hard + wanted - free, math.ceil)
    return readable(wanted), readable(max(0, free)), enough


_GROWTH = {
    "rollout-surge": (
        "pods during a rollout",
        "set strategy.rollingUpdate to maxSurge 0 and maxUnavailable 1",
    ),
    "autoscaling-ceiling": (
        "pods, which the autoscaler may set,",
        "lower the autoscaler's maxReplicas",
    ),
}
"""The pods that a rule is about, and another remedy than more resources."""


def _growth_stops(reason: GrowthStops) -> Refusal:
    pods, other_remedy = _GROWTH[reason.rule]
    count, limit = reason.count, reason.limit
    if isinstance(limit, QuotaExceeded):
        quota, resource = f"ResourceQuota {name_of(limit.quota)}", limit.resource
        wanted, free, enough = _amounts(limit)
        return Refusal(
            rule=reason.rule,
            path=f"{quota}.spec.hard.{resource}",
            message=f"{count} {pods} need {wanted} {resource}, and {quota} leaves {free}",
            remedy=f"Raise {resource} to {enough}, or {other_remedy}.",
        )
    most = f"{number(limit, 'pod')} of {needs(reason.pod)}"
    return Refusal(
        rule=reason.rule,
        path=reason.pods.count_path,
        message=f"{count} {pods} do not fit: the nodes take {most}",
        remedy=f"Make room for {count - limit} more, or {other_remedy}.",
    )


def node_refuses(
    pods: PodSet, node: NodeClass, refusal: Refusal, *, must_run: bool = False
) -> Refusal:
    """Return that a node refuses the pods, or perhaps, though they may or must run there."""
    rule, path, message, *_ = refusal
    path = f"{pods.path}.{path}".removesuffix(".")
    if must_run:
        message = f'its pod must run on "{node.name}" and cannot: {message}'
        return Refusal(rule, path, message, f"Keep it off {node.name} by a node selector.")
    remedy = refusal.remedy or "Select nodes by labels that the pool declares."
    if rule == "unknown-value":
        remedy = "Give it as a plain value, which is known at preview."
        if "list of node pools" in message:
            pools = "describe the GPU pools of a cluster that exists"
            remedy = f"Declare its node pools here, or {pools}."
        if "not in the catalog" in message:
            shape = f"the labels {labels.VCPUS} and {labels.MEMORY_GIB} of its nodes"
            remedy = f"Declare its shape by {shape}."
    return Refusal(rule, path, f'"{node.name}" may take the pods or not: {message}', remedy)


def node_is_full(pods: PodSet, pod: PodClass, place: NodeGroup) -> Refusal:
    """Return that a node on which a DaemonSet must run has no room for its pod."""
    short = "; ".join(map(lack_text, lacks(pod, place)))
    short = short or "host ports or anti-affinity keep it off"
    name = place.node.name
    return Refusal(
        rule="daemon-set-room",
        path=pods.path,
        message=f'"{name}" has no room for its pod: {short}',
        remedy=f"Lower the pod's requests, or keep it off {name} by a node selector.",
    )


def eviction(pods: PodSet, pod: PodClass) -> Refusal:
    """Return that pods replace running pods with a lower priority."""
    below = f"a priority below {pod.priority}"
    return Refusal(
        rule="preemption",
        path=f"{pods.path}.priorityClassName",
        message=f"its pods find room only by evicting running pods of {below}",
        remedy="Make room for both, or lower the priority.",
    )


def shared_claim(claim: str, workloads: Sequence[Workload]) -> Refusal:
    """Return that pods on several nodes may mount a claim that one node may attach."""
    mounting = f"{names(map(str, workloads))} mount" if len(workloads) > 1 else "several pods mount"
    one_node = "one node at a time may attach (ReadWriteOnce)"
    return Refusal(
        rule="volume-access",
        path="volumes",
        message=f"{mounting} the claim {claim}, which {one_node}: pods on another node wait",
        remedy=f"Give {claim} the access mode ReadWriteMany, or run the pods one after the other.",
    )


def _competition(reason: Competition, verdict: Verdict) -> Refusal:
    missing = _missing(reason)
    if reason.of_one:
        return Refusal(
            rule="nodes",
            path=reason.of_one,
            message=missing or "its pods may take each other's places",
            remedy="Let pools have more nodes, or lower replicas.",
        )
    if reason.job:
        all_end = all(workload.is_finite for workload in reason.beside)
        until = "until they have ended" if all_end else "forever"
        staying = names(map(str, reason.beside))
        missing = missing or "they may take all the room"
        return Refusal(
            rule="competition",
            path="",
            message=f"next to {staying} it may wait {until}: {missing}",
            remedy="Let its pools have more nodes, or give it a separate pool.",
            object=str(reason.job),
        )
    competing = names(dict.fromkeys(demand.pod.name for demand in reason.demands))
    places = [place for demand in reason.demands for place in demand.node_groups]
    pools = names(dict.fromkeys(place.node.name for place in places))
    if not missing and verdict is Verdict.CANNOT_FIT:
        missing = f"no way of placing them on {pools} has room for all"
    if not missing:
        choices = "as the scheduler's choices fall"
        missing = f"on {pools} they may take each other's room, {choices}"
    return Refusal(
        rule="competition",
        path="",
        message=f"{competing} run at the same time: {missing}",
        remedy=f"Raise the maximum of {pools}, or give the workloads separate pools.",
    )


def _missing(reason: Competition) -> str:
    """Return what pod groups need together of the resources that are short, if it is certain."""
    if reason.shortfall is None:
        return ""
    needed, offered = reason.shortfall.needed, reason.shortfall.offered
    nodes = reason.shortfall.nodes
    short = sorted(needed, key=lambda name: (not is_extended(name), name))
    wanted = listed(f"{readable(needed[name])} {name}" for name in short)
    if not nodes:
        return f"together they need {wanted}, and no node offers any"
    most = listed(readable(offered[name]) for name in short)
    offers = verb(len(nodes), "offers", "offer")
    return f"together they need {wanted}, and {names(nodes)} {offers} {most} at most"
