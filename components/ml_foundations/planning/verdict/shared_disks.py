"""Disks that several pods use, though one node at a time may attach them.

The scheduler does not check whether another node has attached a disk: later pods wait on their
nodes until it is detached.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import Manifest, name_of, section
from ml_foundations.kubernetes.quantities import whole_number
from ml_foundations.planning.model.decisions import NOTHING_DECIDED, AdmittedWorkload, Outcome
from ml_foundations.planning.model.node_groups import HOSTNAME, NodeGroup, node_count
from ml_foundations.planning.model.performance import IdentityMap
from ml_foundations.planning.model.refusals import Refusal, doubt
from ml_foundations.planning.model.storage import access_modes
from ml_foundations.planning.verdict import explain
from ml_foundations.planning.verdict.fitting import Fitting


def shared_claims(
    fitting: Fitting, workloads: Sequence[AdmittedWorkload]
) -> Mapping[AdmittedWorkload, Outcome]:
    """Return the outcomes, by workload, of claims that pods on several nodes may mount."""
    mounting: IdentityMap[Manifest, list[AdmittedWorkload]] = IdentityMap()
    for admitted in workloads:
        for claim in admitted.claims:
            mounting.setdefault(claim, []).append(admitted)
    outcomes: dict[AdmittedWorkload, Outcome] = {}
    # If the first pod decides the zone of the volume, all other pods must be in that zone.
    for claim, sharing in mounting.items():
        shared = _shared_claim(fitting, claim, sharing)
        for admitted, outcome in chain(shared, _rollouts(fitting, claim, sharing)):
            outcomes[admitted] = outcomes.get(admitted, NOTHING_DECIDED) + outcome
    return outcomes


def _shared_claim(
    fitting: Fitting, claim: Manifest, sharing: Sequence[AdmittedWorkload]
) -> Iterable[tuple[AdmittedWorkload, Outcome]]:
    """Yield the outcomes of a claim for the workloads that mount it."""
    pod_count = 0
    volumes = fitting.cluster.volumes
    groups: dict[NodeGroup, None] = {}
    for pod_set, pod in chain.from_iterable(admitted.pod_sets for admitted in sharing):
        pod_count += pod_set.count
        groups |= dict.fromkeys(fitting.cluster.accepting(pod))
    if pod_count < 2 or node_count(groups) < 2:
        return
    if set(access_modes(claim)) == {"ReadWriteOnce"}:
        are_apart = False
        for admitted in sharing if volumes.is_of_one_node(claim) else ():
            count = admitted.pod_sets[0][0].count
            run_at_once = admitted.workload.all_at_once and count >= 2
            if run_at_once and _needs_nodes(fitting, admitted, count):
                are_apart = True
                message = (
                    f"its {count} pods mount the claim {name_of(claim)}, which one node at a time "
                    "may attach (ReadWriteOnce), and no node accepts all of them: pods on another "
                    "node never start"
                )
                remedy = (
                    f"Give {name_of(claim)} the access mode ReadWriteMany with a class that has "
                    "it, or run as many pods as one node accepts without anti-affinity or "
                    "spreading over nodes."
                )
                refused = Refusal("volume-access", "volumes", message, remedy)
                yield admitted, Outcome.refused([refused])
        if not are_apart:
            mounting = [admitted.workload for admitted in sharing]
            yield sharing[0], Outcome.warned([explain.shared_claim(name_of(claim), mounting)])
    zones: set[str | None] = set()
    for group in groups:
        zones.update(group.node.zones or (group.node.labels.get(labels.ZONE),))
    several = len(sharing) > 1 or sharing[0].workload.all_at_once
    if several and len(zones) > 1 and volumes.gets_a_zone(claim):
        first = f"the first pod decides the zone of claim {name_of(claim)}"
        message = f"{first}, and all others must be in it"
        remedy = "Keep the pods in one zone by a node selector."
        first_decides = doubt("volume-zone", "volumes", message, remedy, only_refuses=True)
        for admitted in sharing:
            yield admitted, Outcome.refused([first_decides])


def _rollouts(
    fitting: Fitting, claim: Manifest, sharing: Sequence[AdmittedWorkload]
) -> Iterable[tuple[AdmittedWorkload, Outcome]]:
    """Yield the warnings about rollouts whose new pods cannot be on the node with the disk."""
    of_one_pod = "ReadWriteOncePod" in access_modes(claim)
    if not of_one_pod and not fitting.cluster.volumes.is_of_one_node(claim):
        return
    for admitted in filter(_keeps_old_pods, sharing):
        [(pod_set, pod), *_] = admitted.pod_sets
        if of_one_pod:
            mounts = f"one pod at a time mounts claim {name_of(claim)} (ReadWriteOncePod)"
            yield admitted, Outcome.warned([_rollout_waits(mounts)])
            continue
        has_others = node_count(fitting.cluster.accepting(pod)) > 1
        if has_others and _needs_nodes(fitting, admitted, pod_set.count + 1):
            yield admitted, Outcome.warned([_disk_stays(f"claim {name_of(claim)}")])


def _keeps_old_pods(admitted: AdmittedWorkload) -> bool:
    """Return whether a rollout keeps all old pods until a new one is ready.

    Then maxUnavailable is 0, as by default for up to three replicas (Kubernetes,
    pkg/controller/deployment/util, ResolveFenceposts).
    """
    is_judged = bool(admitted.pod_sets)  # the pods of others run already
    if admitted.workload.kind != "Deployment" or not (is_judged and admitted.workload.surge):
        return False
    count = admitted.pod_sets[0][0].count
    spec = section(admitted.workload.manifest, "spec")
    most = section(spec, "strategy", "rollingUpdate").get("maxUnavailable", "25%")
    is_share = isinstance(most, str) and most.endswith("%")
    unavailable = count * whole_number(most[:-1]) // 100 if is_share else whole_number(most)
    return count > 0 and not unavailable


def _disk_stays(disk: str) -> Refusal:
    full = "no node accepts the old pods and a new one"
    return _rollout_waits(f"{full}, and one node at a time attaches {disk}")


def _rollout_waits(why: str) -> Refusal:
    message = f"{why}: a rollout keeps the old pods until the new one starts, which waits for it"
    remedy = "Set strategy.type to Recreate, or maxUnavailable to 1 and maxSurge to 0."
    return Refusal("rollout-disk", "spec.strategy", message, remedy)


def _needs_nodes(fitting: Fitting, admitted: AdmittedWorkload, count: int) -> bool:
    """Return whether so many pods of a workload never all fit one node."""
    [(_, pod), *other_sets] = admitted.pod_sets
    if other_sets or admitted.unknowns:
        return False
    cluster = fitting.cluster
    groups = [*cluster.accepting(pod, fitting.occupied), *cluster.possibly_accepting(pod)]
    if max((group.room(pod) for group in groups), default=count) < count:
        return True
    for constraint in pod.spread:
        is_over_nodes = constraint.key == HOSTNAME and constraint.counts_itself(pod)
        if is_over_nodes and constraint.max_skew < count:
            eligible = [group for group in groups if pod.is_eligible(constraint, group.node)]
            if node_count(eligible) > 1:
                return True
    return False


def inline_disks(admitted: AdmittedWorkload) -> Outcome:
    """Refuse several pods that write to one disk, which their volumes name."""
    # The scheduler keeps the pods of one node apart (its filter VolumeRestrictions).
    outcome = NOTHING_DECIDED
    for pod_set, pod in admitted.pod_sets:
        if not pod.writes_to_disks:
            continue
        disk = min(str(name) for _, name, *_ in pod.writes_to_disks)
        if pod_set.count > 1 and admitted.workload.all_at_once:
            attached = f"the disk {disk}, which one node attaches"
            excluded = "pods of one node exclude each other: one pod starts"
            message = f"its {pod_set.count} pods write to {attached}, and {excluded}"
            claim = "a claim of a class that has ReadWriteMany"
            remedy = f"Run one pod, mount the disk with readOnly, or give the pods {claim}."
            path = f"{pod_set.path}.volumes"
            outcome += Outcome.refused([Refusal("volume-access", path, message, remedy)])
        elif _keeps_old_pods(admitted):
            outcome += Outcome.warned([_disk_stays(f"disk {disk}")])
    return outcome
