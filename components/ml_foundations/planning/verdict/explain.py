"""Reasons in words for the user: what is missing, the nearest pool, and how to fix it."""

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from ml_foundations.kinds.counts import lowered
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import items, name_of, section, texts
from ml_foundations.kubernetes.quantities import readable
from ml_foundations.kubernetes.words import alternatives, as_remedy, listed, names, number, verb
from ml_foundations.planning.model import decisions
from ml_foundations.planning.model.decisions import QuotaExceeded, Reason, Verdict
from ml_foundations.planning.model.declared import full_name
from ml_foundations.planning.model.node_groups import NodeGroup, PodClass
from ml_foundations.planning.model.nodes import NodeClass
from ml_foundations.planning.model.refusals import Cause, Refusal
from ml_foundations.planning.model.resources import is_extended, resource_name
from ml_foundations.planning.model.workloads import PodSet, Workload
from ml_foundations.planning.rules.findings import Finding, error, warning
from ml_foundations.planning.verdict import shortage
from ml_foundations.planning.verdict.shortage import lack_texts, lacks, needs


def finding(reason: Reason, verdict: Verdict, workload: Workload | None = None) -> Finding:
    """Return a reason of a verdict in words: an error if the verdict is certain, else a warning.

    A reason of the whole stack is about no workload.
    """
    match reason:
        case Refusal():
            words = reason
        case QuotaExceeded():
            words = _quota_exceeded(reason)
        case decisions.GrowthStops():
            words = _growth_stops(reason)
        case decisions.InTurns():
            words = _in_turns(reason)
        case decisions.Competition():
            words = _competition(reason, verdict)
        case decisions.Shortage():
            words = shortage.explained(reason)
    severe = error if verdict is Verdict.CANNOT_FIT else warning
    about = words.object or str(workload or "stack")
    shown = severe(words.rule, about, words.path, words.message, words.remedy)
    return replace(shown, workloads=words.workloads) if words.workloads else shown


def without_accepted(outcome: decisions.Outcome, accepted: Collection[str]) -> decisions.Outcome:
    """Return an outcome without the reasons that break accepted rules."""
    if not accepted:
        return outcome
    return outcome.without(lambda verdict, reason: finding(reason, verdict).rule in accepted)


def _quota_exceeded(reason: QuotaExceeded) -> Refusal:
    quota = name_of(reason.quota)
    resource = reason.resource
    amounts = _amounts(reason)
    need = f"in all {amounts.needed}" if reason.in_all else amounts.needed
    short = readable(reason.needed - reason.free)
    if reason.workloads:
        workloads = tuple(map(str, reason.workloads))
        message = (
            f"{names(workloads)} together need {need} {resource}, and the quota leaves "
            f"{amounts.free}: {short} too few"
        )
        remedy = f"Raise {resource} to {amounts.enough}, or lower what the workloads ask for."
        refusal = Refusal("quota-sum", f"spec.hard.{resource}", message, remedy)
        return refusal._replace(object=full_name(reason.quota), workloads=workloads)
    # Kubernetes counts the claims themselves: the workload only waits for them.
    is_of_claims = "storage" in resource or resource == "persistentvolumeclaims"
    who = "the claims that it needs come to" if is_of_claims else "it needs"
    of_all = "" if reason.free == reason.hard else f" of {readable(reason.hard)}"
    message = (
        f"{who} {need} {resource}, and ResourceQuota {quota} leaves {amounts.free}{of_all}: "
        f"{short} too few"
    )
    lower = "make the claims smaller or fewer" if is_of_claims else "ask for less"
    raised = f"Raise {resource} of ResourceQuota {quota} to {amounts.enough}"
    scopes = items(section(reason.quota, "spec", "scopeSelector"), "matchExpressions")
    excepted = [texts(scope, "values") for scope in scopes if scope.get("operator") == "NotIn"]
    if any(excepted) and reason.hard == 0 and not is_of_claims:
        # It is to allow nothing: quotas of their own count the pods of these classes.
        of_gpu = "priority_class of our workloads, by their GPU"
        raised = f"Set priorityClassName to {alternatives(excepted[0])} ({of_gpu})"
    remedy = f"{raised}, or {lower}."
    return Refusal("quota", f"ResourceQuota {quota}.spec.hard.{resource}", message, remedy)


class _Amounts(NamedTuple):
    """The amount that is needed of a quota, what it leaves, and what it would have to be."""

    needed: str
    free: str
    enough: str


def _amounts(exceeded: QuotaExceeded) -> _Amounts:
    enough = readable(exceeded.hard + exceeded.needed - exceeded.free, math.ceil)
    return _Amounts(readable(exceeded.needed), readable(max(0, exceeded.free)), enough)


def _growth_stops(reason: decisions.GrowthStops) -> Refusal:
    count = reason.count
    limit = reason.limit
    replica = "group" if reason.of_groups else "pod"
    if reason.rule == "autoscaling-ceiling":
        replicas = f"{count} {replica}s, which the autoscaler may set,"
        smaller = f"lower {listed(reason.pod_set.counts[0].ceilings)}"
    else:
        replicas = f"{count} {replica}s during a rollout"
        field = "spec.strategy.rollingUpdate"
        if reason.of_groups:
            field = "spec.rolloutStrategy.rollingUpdateConfiguration"
        smaller = f"set {field} to maxSurge 0 and maxUnavailable 1"
    if isinstance(limit, QuotaExceeded):
        quota = f"ResourceQuota {name_of(limit.quota)}"
        resource = limit.resource
        amounts = _amounts(limit)
        message = f"{replicas} need {amounts.needed} {resource}, and {quota} leaves {amounts.free}"
        remedy = f"Raise {resource} to {amounts.enough}, or {smaller}."
        return Refusal(reason.rule, f"{quota}.spec.hard.{resource}", message, remedy)
    most = number(limit, replica)
    if not reason.of_groups:
        most = f"{most} of {needs(reason.pod)}"
    message = f"{replicas} do not fit: the nodes take {most}"
    remedy = f"Make room for {count - limit} more, or {smaller}."
    return Refusal(reason.rule, reason.pod_set.count_path, message, remedy)


def _in_turns(reason: decisions.InTurns) -> Refusal:
    pod_set = reason.pod_set
    run = verb(reason.least, "runs", "run")
    message = f"{reason.least} of {pod_set.count} pods {run} at a time: {reason.limit} no more"
    how = as_remedy(lowered(pod_set.counts, reason.least), f"make room for {pod_set.count}")
    return Refusal("runs-in-turns", pod_set.count_path, message, how)


def node_refuses(
    pods: PodSet, node: NodeClass, refusal: Refusal, *, must_run: bool = False
) -> Refusal:
    """Return that a node refuses the pods, or perhaps, though they may or must run there."""
    path = f"{pods.path}.{refusal.path}".removesuffix(".")
    if must_run:
        message = f'its pod must run on "{node.name}" and cannot: {refusal.message}'
        remedy = f"Keep it off {node.name} by a node selector."
        return Refusal(refusal.rule, path, message, remedy)
    message = f'"{node.name}" may take the pods or not: {refusal.message}'
    remedy = refusal.remedy or "Select nodes by labels that the pool declares."
    if refusal.rule == "unknown-value":
        remedy = _HOW_TO_KNOW[refusal.cause]
    return Refusal(refusal.rule, path, message, remedy)


_HOW_TO_KNOW = {
    None: "Give it as a plain value, which is known at preview.",
    Cause.NO_POOL_LIST: (
        "Declare its node pools here, or describe the GPU pools of a cluster that exists."
    ),
    Cause.NOT_IN_CATALOG: (
        f"Declare its shape by the labels {labels.VCPUS} and {labels.MEMORY_GIB} of its nodes."
    ),
}
"""How to make known what is not known of nodes."""


def node_is_full(pods: PodSet, pod: PodClass, group: NodeGroup) -> Refusal:
    """Return that a node on which a DaemonSet must run has no room for its pod."""
    name = group.node.name
    lacking = "; ".join(lack_texts(lacks(pod, group)))
    against = lacking or "host ports or anti-affinity keep it off"
    message = f'"{name}" has no room for its pod: {against}'
    remedy = f"Lower the pod's requests, or keep it off {name} by a node selector."
    return Refusal("daemon-set-room", pods.path, message, remedy)


def eviction(pods: PodSet, pod: PodClass) -> Refusal:
    """Return that pods replace running pods with a lower priority."""
    message = f"its pods find room only by evicting running pods of a priority below {pod.priority}"
    remedy = "Make room for both, or lower the priority."
    return Refusal("preemption", f"{pods.path}.priorityClassName", message, remedy)


def shared_claim(claim: str, workloads: Sequence[Workload]) -> Refusal:
    """Return that pods on several nodes may mount a claim that one node may attach."""
    mounting = tuple(map(str, workloads)) if len(workloads) > 1 else ()
    message = (
        f"{names(mounting or ['several pods'])} mount the claim {claim}, which one node at a time "
        "may attach (ReadWriteOnce): pods on another node wait"
    )
    remedy = f"Give {claim} the access mode ReadWriteMany, or run the pods one after the other."
    return Refusal("volume-access", "volumes", message, remedy, workloads=mounting)


def _competition(reason: decisions.Competition, verdict: Verdict) -> Refusal:
    shortfall = _shortfall(reason)
    if reason.of_one:
        message = shortfall or "its pods may take each other's places"
        remedy = f"Let pools have more nodes, or lower {alternatives(reason.of_one)}."
        return Refusal("nodes", reason.of_one[0], message, remedy)
    if reason.job:
        all_end = all(workload.is_finite for workload in reason.staying)
        until = "until they have ended" if all_end else "forever"
        staying = tuple(map(str, reason.staying))
        why = shortfall or "they may take all the room"
        message = f"next to {names(staying)} it may wait {until}: {why}"
        remedy = "Let its pools have more nodes, or give it a separate pool."
        refusal = Refusal("competition", "", message, remedy, object=str(reason.job))
        return refusal._replace(workloads=staying)
    competing = dict.fromkeys(demand.pod.name for demand in reason.demands)
    able: dict[str, None] = {}
    for demand in reason.demands:
        with_room = [group for group in demand.node_groups if group.room(demand.pod)]
        able.update((group.node.name, None) for group in with_room or demand.node_groups)
    pools = names(able)
    why = f"on {pools} they may take each other's room, as the scheduler's choices fall"
    if verdict is Verdict.CANNOT_FIT:
        why = f"no way of placing them on {pools} has room for all"
    # The pod sets of one workload may compete, too.
    only = next(iter(competing)) if len(competing) == 1 else ""
    who = "its pods" if only else names(competing)
    way = "lower what its pods request" if only else "give the workloads separate pools"
    message = f"{who} run at the same time: {shortfall or why}"
    remedy = f"Raise the maximum of {pools}, or {way}."
    return Refusal("competition", "", message, remedy, object=only, workloads=tuple(competing))


def _shortfall(reason: decisions.Competition) -> str:
    """Return what all demands need together of the resources that are short, if it is certain."""
    if reason.shortfall is None:
        return ""
    needed = reason.shortfall.needed
    offered = reason.shortfall.offered
    nodes = reason.shortfall.nodes
    short = sorted(needed, key=lambda name: (not is_extended(name), name))
    amounts = listed(f"{readable(needed[name])} {resource_name(name)}" for name in short)
    if not nodes:
        return f"together they need {amounts}, and no node offers any"
    most = listed(readable(offered[name]) for name in short)
    offers = verb(len(nodes), "offers", "offer")
    return f"together they need {amounts}, and {names(nodes)} {offers} {most} at most"
