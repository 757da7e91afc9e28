"""Reasons in words for the user: what is missing, the nearest pool, and how to fix it."""

import math
from collections.abc import Collection, Sequence

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import name_of
from ml_foundations.kubernetes.quantities import readable
from ml_foundations.kubernetes.words import alternatives, listed, names, number, verb
from ml_foundations.planning.model import decisions
from ml_foundations.planning.model.decisions import QuotaExceeded, Reason, Verdict
from ml_foundations.planning.model.declared import full_name
from ml_foundations.planning.model.node_groups import NodeGroup, PodClass
from ml_foundations.planning.model.nodes import NodeClass
from ml_foundations.planning.model.refusals import Refusal
from ml_foundations.planning.model.resources import is_extended, resource_name
from ml_foundations.planning.model.workloads import PodSet, Workload
from ml_foundations.planning.verdict import shortage
from ml_foundations.planning.verdict.findings import Finding, error, warning
from ml_foundations.planning.verdict.shortage import lack_texts, lacks, needs


def finding(reason: Reason, verdict: Verdict, workload: Workload | None = None) -> Finding:
    """Return a reason of a verdict in words: an error if the verdict is certain, else a warning.

    A reason of the whole stack is about no workload.
    """
    words = _words(reason, verdict)
    severe = error if verdict is Verdict.CANNOT_FIT else warning
    about = words.object or str(workload or "stack")
    return severe(words.rule, about, words.path, words.message, words.remedy)


def without_accepted(outcome: decisions.Outcome, accepted: Collection[str]) -> decisions.Outcome:
    """Return an outcome without the reasons that break accepted rules."""
    if not accepted:
        return outcome
    return outcome.without(lambda verdict, reason: finding(reason, verdict).rule in accepted)


def _words(reason: Reason, verdict: Verdict) -> Refusal:
    match reason:
        case Refusal():
            return reason
        case QuotaExceeded():
            return _quota_exceeded(reason)
        case decisions.GrowthStops():
            return _growth_stops(reason)
        case decisions.Competition():
            return _competition(reason, verdict)
        case decisions.Shortage():
            return shortage.explained(reason)


def _quota_exceeded(reason: QuotaExceeded) -> Refusal:
    quota, resource = name_of(reason.quota), reason.resource
    wanted, free, enough = _amounts(reason)
    wanted = f"in all {wanted}" if reason.in_all else wanted
    short = f"{readable(reason.wanted - reason.free)} too few"
    if reason.workloads:
        together = f"{names(map(str, reason.workloads))} together need {wanted} {resource}"
        path, message = f"spec.hard.{resource}", f"{together}, and the quota leaves {free}: {short}"
        remedy = f"Raise {resource} to {enough}, or lower what the workloads ask for."
        return Refusal("quota-sum", path, message, remedy, object=full_name(reason.quota))
    # Kubernetes counts the claims themselves: the workload only waits for them.
    is_of_claims = "storage" in resource or resource == "persistentvolumeclaims"
    who = "the claims that it needs come to" if is_of_claims else "it needs"
    lower = "make the claims smaller or fewer" if is_of_claims else "ask for less"
    of_all = "" if reason.free == reason.hard else f" of {readable(reason.hard)}"
    leaves = f"ResourceQuota {quota} leaves {free}{of_all}"
    path = f"ResourceQuota {quota}.spec.hard.{resource}"
    message = f"{who} {wanted} {resource}, and {leaves}: {short}"
    remedy = f"Raise {resource} of ResourceQuota {quota} to {enough}, or {lower}."
    return Refusal("quota", path, message, remedy)


def _amounts(exceeded: QuotaExceeded) -> tuple[str, str, str]:
    """Return what is wanted, what is free and what would be enough."""
    wanted, free, hard = exceeded.wanted, exceeded.free, exceeded.hard
    enough = readable(hard + wanted - free, math.ceil)
    return readable(wanted), readable(max(0, free)), enough


_ONE_BY_ONE = "set strategy.rollingUpdate to maxSurge 0 and maxUnavailable 1"
_FEWER = "lower the autoscaler's maxReplicas"
_GROUP_BY_GROUP = "set rollingUpdateConfiguration to maxSurge 0 and maxUnavailable 1"
_GROWTH = {
    "rollout-surge": ("s during a rollout", _ONE_BY_ONE),
    "autoscaling-ceiling": ("s, which the autoscaler may set,", _FEWER),
}
"""When there are the replicas that a rule is about, and another remedy than more resources."""


def _growth_stops(reason: decisions.GrowthStops) -> Refusal:
    (when, other_remedy), count, limit = _GROWTH[reason.rule], reason.count, reason.limit
    replica = "group" if reason.of_groups else "pod"
    pods = f"{replica}{when}"
    if reason.of_groups and other_remedy == _ONE_BY_ONE:
        other_remedy = _GROUP_BY_GROUP
    if isinstance(limit, QuotaExceeded):
        quota, resource = f"ResourceQuota {name_of(limit.quota)}", limit.resource
        wanted, free, enough = _amounts(limit)
        message = f"{count} {pods} need {wanted} {resource}, and {quota} leaves {free}"
        remedy = f"Raise {resource} to {enough}, or {other_remedy}."
        return Refusal(reason.rule, f"{quota}.spec.hard.{resource}", message, remedy)
    most = number(limit, replica)
    if not reason.of_groups:
        most = f"{most} of {needs(reason.pod)}"
    message = f"{count} {pods} do not fit: the nodes take {most}"
    remedy = f"Make room for {count - limit} more, or {other_remedy}."
    return Refusal(reason.rule, reason.pods.count_path, message, remedy)


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


def node_is_full(pods: PodSet, pod: PodClass, group: NodeGroup) -> Refusal:
    """Return that a node on which a DaemonSet must run has no room for its pod."""
    short = "; ".join(lack_texts(lacks(pod, group)))
    short, name = short or "host ports or anti-affinity keep it off", group.node.name
    remedy = f"Lower the pod's requests, or keep it off {name} by a node selector."
    message = f'"{name}" has no room for its pod: {short}'
    return Refusal("daemon-set-room", pods.path, message, remedy)


def eviction(pods: PodSet, pod: PodClass) -> Refusal:
    """Return that pods replace running pods with a lower priority."""
    below = f"a priority below {pod.priority}"
    message = f"its pods find room only by evicting running pods of {below}"
    remedy = "Make room for both, or lower the priority."
    return Refusal("preemption", f"{pods.path}.priorityClassName", message, remedy)


def shared_claim(claim: str, workloads: Sequence[Workload]) -> Refusal:
    """Return that pods on several nodes may mount a claim that one node may attach."""
    mounting = f"{names(map(str, workloads))} mount" if len(workloads) > 1 else "several pods mount"
    one_node = "one node at a time may attach (ReadWriteOnce)"
    message = f"{mounting} the claim {claim}, which {one_node}: pods on another node wait"
    remedy = f"Give {claim} the access mode ReadWriteMany, or run the pods one after the other."
    return Refusal("volume-access", "volumes", message, remedy)


def _competition(reason: decisions.Competition, verdict: Verdict) -> Refusal:
    missing = _missing(reason)
    if reason.of_one:
        message = missing or "its pods may take each other's places"
        remedy = f"Let pools have more nodes, or lower {alternatives(reason.of_one)}."
        return Refusal("nodes", reason.of_one[0], message, remedy)
    if reason.job:
        all_end = all(workload.is_finite for workload in reason.staying)
        until = "until they have ended" if all_end else "forever"
        staying = names(map(str, reason.staying))
        missing = missing or "they may take all the room"
        message = f"next to {staying} it may wait {until}: {missing}"
        remedy = "Let its pools have more nodes, or give it a separate pool."
        return Refusal("competition", "", message, remedy, object=str(reason.job))
    pod_names: dict[str, None] = {}
    pool_names: dict[str, None] = {}
    for demand in reason.demands:
        pod_names[demand.pod.name] = None
        pool_names |= dict.fromkeys(group.node.name for group in demand.node_groups)
    competing, pools = names(pod_names), names(pool_names)
    if not missing and verdict is Verdict.CANNOT_FIT:
        missing = f"no way of placing them on {pools} has room for all"
    if not missing:
        choices = "as the scheduler's choices fall"
        missing = f"on {pools} they may take each other's room, {choices}"
    message = f"{competing} run at the same time: {missing}"
    remedy = f"Raise the maximum of {pools}, or give the workloads separate pools."
    return Refusal("competition", "", message, remedy)


def _missing(reason: decisions.Competition) -> str:
    """Return what pod groups need together of the resources that are short, if it is certain."""
    if reason.shortfall is None:
        return ""
    needed, offered = reason.shortfall.needed, reason.shortfall.offered
    nodes = reason.shortfall.nodes
    short = sorted(needed, key=lambda name: (not is_extended(name), name))
    wanted = listed(f"{readable(needed[name])} {resource_name(name)}" for name in short)
    if not nodes:
        return f"together they need {wanted}, and no node offers any"
    most = listed(readable(offered[name]) for name in short)
    offers = verb(len(nodes), "offers", "offer")
    return f"together they need {wanted}, and {names(nodes)} {offers} {most} at most"
