"""The verdict on each workload alone: whether its pods find nodes.

Running pods are on the nodes already, and the pods of DaemonSets come before a workload or after
it. Most verdicts follow from two numbers: how many pods find nodes for certain, and how many at
most. If these do not decide, the pods are judged together or every way to place them is tried.

Example: a Deployment has 3 pods of 8 GPUs. A pool of 4 nodes with 8 GPUs has room for 4, so the
Deployment fits. With 2 nodes, 2 pods find nodes and no third can: it cannot fit, because of a
``Shortage``. It is undetermined if another pool, whose labels are not known, may accept the third.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import items, section
from ml_foundations.kubernetes.selectors import REQUIRED
from ml_foundations.planning.api_server.cluster import Cluster
from ml_foundations.planning.model.decisions import (
    NOTHING_DECIDED,
    OTHER_FLAVOR,
    AdmittedPodSet,
    AdmittedWorkload,
    Competition,
    GrowthStops,
    InTurns,
    Outcome,
    Reason,
    Shortage,
    Verdict,
)
from ml_foundations.planning.model.declared import written_kind
from ml_foundations.planning.model.node_groups import Demand, NodeGroup, PodClass, total_room
from ml_foundations.planning.model.refusals import Refusal, doubt
from ml_foundations.planning.model.workloads import Workload, is_stored
from ml_foundations.planning.scheduler.capacity import Capacity, capacity
from ml_foundations.planning.scheduler.competition import JointVerdict, judge_together
from ml_foundations.planning.scheduler.exhaustive_search import search
from ml_foundations.planning.scheduler.filters import refusals
from ml_foundations.planning.verdict import explain, shortage
from ml_foundations.planning.verdict.daemons import Daemons, judge_on_node
from ml_foundations.planning.verdict.exclusive_groups import too_few_domains
from ml_foundations.planning.verdict.neighbors import Neighbors, spread_counts
from ml_foundations.planning.verdict.sources import sources

MAY_WAIT_TOO_LONG = doubt(
    "runs-in-turns",
    "",
    "its deadline may pass while its pods wait for room or for others",
    "Raise activeDeadlineSeconds or leave it out, or make room for all pods at once.",
    only_refuses=True,
)
"""The doubt about a Job with a deadline whose pods wait: its users add the field or the Job."""


class Fitting:
    """The nodes of a cluster, for placing one workload after another.

    The workloads are as the API server admits them. Placing one does not change the nodes.
    """

    def __init__(self, cluster: Cluster, workloads: Sequence[AdmittedWorkload]) -> None:
        self.cluster = cluster
        self._workloads = workloads
        self._daemons = Daemons(cluster, workloads)
        self._neighbors = Neighbors(workloads)

    @property
    def occupied(self) -> list[NodeGroup]:
        """All node groups with the pods of all DaemonSets."""
        return self._daemons.occupied

    def contenders(self, groups: Collection[NodeGroup]) -> list[Workload]:
        """Return the workloads that may run on some nodes for good, and wait in no queue.

        DaemonSets are not among them.
        """
        nodes = {group.node for group in groups}
        contenders: list[Workload] = []
        for admitted in self._workloads:
            workload = admitted.workload
            if workload.kind == "DaemonSet" or workload.is_finite or workload.queue is not None:
                continue
            accepting = chain.from_iterable(self.cluster.accepting(p) for _, p in admitted.pod_sets)
            if any(group.node in nodes for group in accepting):
                contenders.append(workload)
        return contenders

    def place(self, admitted: AdmittedWorkload) -> Outcome:
        """Return whether a workload's pods find their nodes."""
        return self._place(admitted) + Outcome.warned(self._resting(admitted))

    def _resting(self, admitted: AdmittedWorkload) -> Iterator[Reason]:
        """Yield why pods find no node that do not run yet, such as those of no replicas."""
        workload = admitted.workload
        if workload.kind == "DaemonSet" or is_stored(workload.manifest):
            return
        for pod_set, pod in admitted.pod_sets:
            if pod_set.rests:
                single = AdmittedPodSet(replace(pod_set, count=1), pod)
                alone = self._place_sets(AdmittedWorkload(workload, (single,)))
                if alone.verdict is Verdict.CANNOT_FIT:
                    yield from [reason for _, reason in alone.reasons]

    def _place(self, admitted: AdmittedWorkload) -> Outcome:
        if admitted.workload.kind == "DaemonSet":
            return self._place_daemon_set(admitted)
        if admitted.workload.may_start_in_parts:
            return self._place_in_parts(admitted)
        if len(admitted.pod_sets) == 1:
            return self._place_one_set(admitted)
        return self._place_sets(admitted)

    def place_nowhere(self, admitted: AdmittedWorkload) -> Outcome:
        """Return why pods have no place, if that is certain: in a queue, in none of its flavors.

        It also judges pods that the API server may refuse: the user sees all errors at once.
        """
        workload = admitted.workload
        choices = [admitted.pod_sets] if workload.queue is None else admitted.flavor_choices
        # Without choices, the flavors are not known. With several, each replica may get another.
        if not choices or (len(choices) > 1 and workload.queued_replicas > 1):
            return NOTHING_DECIDED
        outcomes: list[Outcome] = []
        for choice in choices:
            outcomes.append(self.place(AdmittedWorkload(workload, choice)))
            if outcomes[-1].verdict is not Verdict.CANNOT_FIT:
                return NOTHING_DECIDED
        return Outcome(Verdict.CANNOT_FIT, outcomes[0].reasons)

    def place_in_other_flavors(self, admitted: AdmittedWorkload, placed: Outcome) -> Outcome:
        """Return the outcome of a workload that fits, but not with every choice of flavors."""
        choices = admitted.flavor_choices
        if len(choices) < 2 or placed.may_not_fit:
            return NOTHING_DECIDED
        # Kueue admits it to the first flavor with enough quota, whatever the nodes have.
        for choice in choices:
            if self.place(AdmittedWorkload(admitted.workload, choice)).may_not_fit:
                nowhere = self.place_nowhere(admitted)
                unsure = Outcome.of(Verdict.UNDETERMINED, OTHER_FLAVOR)
                return nowhere if nowhere.reasons else unsure
        return NOTHING_DECIDED

    def demands(
        self, workloads: Iterable[AdmittedWorkload], among: Sequence[NodeGroup]
    ) -> list[Demand]:
        """Return the pods that workloads run at once, with the node groups that accept them."""
        demands: list[Demand] = []
        for pod_set, pod in chain.from_iterable(admitted.pod_sets for admitted in workloads):
            if pod_set.count:
                accepting = self.cluster.accepting(pod, among)
                demands.append(Demand(pod, pod_set.count, accepting, everywhere=pod.one_per_node))
        return demands

    def judge_joint(self, demands: Sequence[Demand], groups: Sequence[NodeGroup]) -> JointVerdict:
        """Return whether pods fit together; undetermined if more nodes may accept some of them."""
        joint = judge_together(demands, groups)
        if joint.verdict is not Verdict.CANNOT_FIT:
            return joint
        may_have_more = any(self.cluster.possibly_accepting(demand.pod) for demand in demands)
        return joint._replace(verdict=Verdict.UNDETERMINED) if may_have_more else joint

    def _place_daemon_set(self, admitted: AdmittedWorkload) -> Outcome:
        """Place a DaemonSet: it runs on every node that accepts it."""
        pods = admitted.pod_sets[0]
        pod_set, pod = pods
        accepting = self.cluster.accepting(pod)
        possible = self.cluster.possibly_accepting(pod)
        outcome = Outcome.of(Verdict.FITS)
        if not accepting and not possible:
            nowhere = shortage.daemon_set_nowhere(pod_set, pod, self.cluster.node_groups)
            outcome += Outcome.warned([nowhere])
        for group in possible:
            outcome += Outcome.of(Verdict.UNDETERMINED, _may_refuse(group, pods))
        for group in accepting:
            outcome += judge_on_node(group, pods)
        if pod.is_simple or outcome.verdict is not Verdict.FITS:
            return outcome
        # Each node alone has room. Rules about other pods may still keep them from some nodes.
        everywhere = Demand(pod, pod_set.count, accepting, everywhere=True)
        verdict = judge_together([everywhere], self.cluster.node_groups).verdict
        if verdict is Verdict.FITS:
            return outcome
        if any(self._neighbors.affecting(pod)):
            return outcome + self._place_with_neighbors(admitted, pods, needed=pod_set.count)
        cannot = "cannot" if verdict is Verdict.CANNOT_FIT else "perhaps cannot"
        kept_apart = Refusal(
            "daemon-set-spread",
            pod_set.path,
            f"its pods {cannot} be on every node: affinity, spreading or a claim of one pod keeps "
            "them apart",
            "Remove affinity, topologySpreadConstraints and ReadWriteOncePod claims from the "
            "DaemonSet.",
        )
        return outcome + Outcome.of(verdict, kept_apart)

    def _place_one_set(self, admitted: AdmittedWorkload) -> Outcome:
        """Place a workload whose pods are all alike.

        Its pods are counted first. If that does not decide, every way to place them is tried.
        """
        workload = admitted.workload
        pods = admitted.pod_sets[0]
        pod_set, pod = pods
        most_later = max((pod_set.count, *(count for _, count in workload.ceilings)))
        if not pod_set.count or self._has_ample_room(pod, most_later):
            return Outcome.of(Verdict.FITS)
        # A Job whose pods may take turns runs if one of them finds a node.
        needed = pod_set.count if workload.all_at_once else 1
        counted = self._count(pod, needed)
        bounds = counted
        if counted.least < pod_set.count <= counted.most:
            searched = self._search(pod, [admitted])
            bounds = replace(searched, limited_by=counted.limited_by) if searched else counted
        if bounds.least < needed:
            return self._judge_shortage(admitted, pods, bounds, needed)
        outcome = Outcome.of(Verdict.FITS)
        if bounds.least < pod_set.count:
            few = InTurns(pod_set, bounds.least, bounds.most, "the nodes allow")
            outcome += Outcome.warned([few])
            if workload.deadline is not None:
                late = MAY_WAIT_TOO_LONG._replace(path="activeDeadlineSeconds")
                outcome += Outcome.of(Verdict.UNDETERMINED, late)
        # The search places only the declared pods: room for more is known from counting.
        return outcome + Outcome.warned(self._stopped_growth(admitted, counted.most))

    def _place_sets(self, admitted: AdmittedWorkload) -> Outcome:
        """Place several pod sets at once, such as those of a gang: each alone, then together."""
        outcome = NOTHING_DECIDED
        for pods in admitted.pod_sets:
            count = pods.pod_set.count
            bounds = self._count(pods.pod, count)
            if count > bounds.most:
                outcome += self._judge_shortage(admitted, pods, bounds, count)
        if outcome.may_not_fit:
            return outcome
        # A set that fits after a shortage evicts pods, or needs other workloads near it. Judging
        # the sets together knows neither, so that "cannot fit" is not certain.
        had_shortage = outcome.verdict is Verdict.FITS
        if had_shortage and len(admitted.pod_sets) == 1:
            return outcome
        demands = self.demands([admitted], self.occupied)
        verdict, shortfall = self.judge_joint(demands, self.occupied)
        if verdict is Verdict.CANNOT_FIT and (
            rivals := self._daemons.rivals(pod for _, pod in admitted.pod_sets)
        ):
            # It is certain only if the pods do not fit before these DaemonSets either.
            groups = self._daemons.occupied_without(rivals)
            demands = self.demands([admitted], groups)
            verdict, shortfall = self.judge_joint(demands, groups)
            if verdict is Verdict.FITS:
                verdict = Verdict.UNDETERMINED
        if verdict is Verdict.CANNOT_FIT and had_shortage:
            verdict = Verdict.UNDETERMINED
        if verdict is Verdict.FITS:
            stopped = Outcome.warned(self._stopped_groups(admitted))
            return outcome + Outcome.of(Verdict.FITS) + stopped
        if too_few := too_few_domains(admitted, demands):
            return outcome + Outcome.of(verdict, too_few)
        # The fields that make the sets smaller.
        paths = [pod_set.count_path for pod_set, _ in admitted.pod_sets if pod_set.count]
        of_one = list(dict.fromkeys(filter(None, paths))) or ["spec"]
        return outcome + Outcome.of(verdict, Competition(demands, shortfall, of_one=of_one))

    def _place_in_parts(self, admitted: AdmittedWorkload) -> Outcome:
        """Place a JobSet whose pods perhaps need not run at once.

        It fits if all pods that may run together find nodes. It cannot fit if one pod alone finds
        none. Otherwise, it depends on whether its pods wait for each other.
        """
        workload = admitted.workload
        phases = [self._place_sets(AdmittedWorkload(workload, p)) for p in admitted.phases()]
        failed = [phase for phase in phases if phase.verdict is not Verdict.FITS]
        if not failed:
            warnings = chain.from_iterable(phase.warnings for phase in phases)
            return Outcome.of(Verdict.FITS) + Outcome.warned(warnings)
        impossible = NOTHING_DECIDED
        for pod_set, pod in admitted.pod_sets:
            single = AdmittedPodSet(replace(pod_set, count=min(pod_set.count, 1)), pod)
            alone = self._place_sets(AdmittedWorkload(workload, (single,)))
            if alone.verdict is Verdict.CANNOT_FIT:
                impossible += Outcome(Verdict.CANNOT_FIT, alone.reasons)
        if impossible.verdict is not None:
            return impossible
        may_wait = doubt(
            "runs-in-turns",
            "spec.replicatedJobs",
            "there is no place for all of its pods at once, and whether they wait for each other "
            "is not known",
            f"If they do, make room for all, and annotate the {written_kind(workload.manifest)} "
            f'{labels.GANG}: "true". If they do not, they run one after the other.',
        )
        reasons = [reason for _, reason in failed[0].reasons]
        return Outcome.of(Verdict.UNDETERMINED, may_wait, *reasons)

    def _place_with_neighbors(
        self, admitted: AdmittedWorkload, pods: AdmittedPodSet, needed: int
    ) -> Outcome:
        """Place pods together with those that decide where they may go."""
        pod_set, pod = pods
        company = self._neighbors.company(admitted)
        competing = [member for member in company if member.workload.kind != "DaemonSet"]
        # If there are too many ways to place them, any number of pods may find nodes.
        bounds = self._search(pod, competing) or Capacity(0, needed)
        if bounds.most < needed:
            # The search evicts no pod.
            is_doubtful = self._may_evict(pod)
        else:
            # A neighbor that ends may have ended before these pods come: then they are near nobody.
            may_end = any(member.workload.ends for member in competing if member is not admitted)
            is_doubtful = bounds.least < needed or may_end
        # If a term selects namespaces, the scheduler does not retry at once when pods come there.
        terms = items(section(pod.spec, "affinity", "podAffinity"), REQUIRED)
        is_retried_late = any(term.get("namespaceSelector") for term in terms)
        is_unknown = any(member.is_refused or member.unknowns for member in company)
        if is_doubtful or is_retried_late or is_unknown:
            near_others = Refusal(
                "pod-affinity",
                f"{pod_set.path}.affinity",
                "whether its pods find a place depends on where the pods of other workloads are",
                "Select nodes by labels instead of by pods.",
            )
            return Outcome.of(Verdict.UNDETERMINED, near_others)
        if bounds.least >= needed:
            return Outcome.of(Verdict.FITS)
        rule = "pod-affinity" if pod.affinity else "topology-spread"
        return self._too_few_nodes(admitted, pods, replace(bounds, limited_by=rule), needed)

    def _has_ample_room(self, pod: PodClass, needed: int) -> bool:
        """Return whether only free resources decide, and they suffice in any order."""
        # With thousands of nodes, most workloads find their room on the first few.
        if not pod.is_simple or self._daemons.demands or self.cluster.running:
            return False
        for group in self.cluster.accepting(pod, self.occupied):
            needed -= group.count * group.room(pod)
            if needed <= 0:
                return True
        return False

    def _count(self, pod: PodClass, needed: int, least_priority: int | None = None) -> Capacity:
        """Return how many pods find nodes, whether DaemonSets come before them or after.

        If a least priority is given, running pods with a lower one are evicted.
        """
        occupied = self.occupied
        if least_priority is not None:
            occupied = self._daemons.occupied_without((), least_priority)
        after_daemons = self._capacity(pod, occupied)
        are_daemons_counted = any(spread_counts(pod, daemon) for daemon in self._daemons.demands)
        # Rivals are the DaemonSets whose pods may also come after these.
        rivals = self._daemons.rivals([pod])
        # Nodes with room after all DaemonSets have room before them too: without a spread
        # constraint that counts them, DaemonSets only use resources.
        if not rivals or (after_daemons.least >= needed and not are_daemons_counted):
            return after_daemons
        without_rivals = self._daemons.occupied_without(rivals, least_priority)
        # If a spread constraint counts the pods of a DaemonSet, only the free resources bound the
        # number, since the skew depends on the order.
        if are_daemons_counted:
            accepting = self.cluster.accepting(pod, without_rivals)
            return Capacity(0, total_room(pod, accepting), after_daemons.limited_by)
        before_rivals = self._capacity(pod, without_rivals)
        least = min(after_daemons.least, before_rivals.least)
        most = max(after_daemons.most, before_rivals.most)
        return Capacity(least, most, after_daemons.limited_by)

    def _capacity(self, pod: PodClass, groups: Sequence[NodeGroup]) -> Capacity:
        accepting = self.cluster.accepting(pod, groups)
        return capacity(pod, [(group, group.room(pod)) for group in accepting], groups)

    def _search(self, pod: PodClass, workloads: Iterable[AdmittedWorkload]) -> Capacity | None:
        """Return how many pods of a class find nodes, over every way to place some workloads.

        All DaemonSets are placed too. Return None if there are too many ways, or if no pod of the
        class is among these.
        """
        groups = self.cluster.node_groups
        demands = [*self.demands(workloads, groups), *self._daemons.demands.values()]
        result = search(demands, groups, count_each=True)
        searched = [demand.pod for demand in demands]
        if result is None or not result.exhausted or pod not in searched:
            return None
        index = searched.index(pod)
        return Capacity(result.least[index], result.most[index])

    def _judge_shortage(
        self, admitted: AdmittedWorkload, pods: AdmittedPodSet, bounds: Capacity, needed: int
    ) -> Outcome:
        """Return the outcome for pods that may lack nodes.

        Three things may help: evicting pods with a lower priority, nodes that may accept the pods,
        and pods of other workloads that these pods must be near.
        """
        pod_set, pod = pods
        if self._may_evict(pod):
            by_eviction = self._count(pod, needed, least_priority=pod.priority)
            eviction = explain.eviction(pod_set, pod)
            only_room_decides = len(admitted.pod_sets) == 1 and not pod.spread and not pod.affinity
            if only_room_decides and by_eviction.least >= needed:
                return Outcome.of(Verdict.FITS) + Outcome.warned([eviction])
            if by_eviction.most >= needed:
                return Outcome.of(Verdict.UNDETERMINED, eviction)
        possible = self.cluster.possibly_accepting(pod)
        if possible and self._may_suffice(possible, pod, needed):
            nearest = min(possible, key=lambda group: len(shortage.lacks(pod, group)))
            return Outcome.of(Verdict.UNDETERMINED, _may_refuse(nearest, pods))
        # If the most pods are enough, only the order decides: neighbors cannot change that.
        if bounds.most < needed and any(self._neighbors.affecting(pod)):
            return self._place_with_neighbors(admitted, pods, needed)
        return self._too_few_nodes(admitted, pods, bounds, needed)

    def _may_evict(self, pod: PodClass) -> bool:
        """Return whether pods preempt others, and some with a lower priority run."""
        running = chain.from_iterable(group.running for group in self.cluster.node_groups)
        return pod.preempts and any(victim.priority < pod.priority for victim in running)

    def _may_suffice(self, possible: Sequence[NodeGroup], pod: PodClass, needed: int) -> bool:
        """Return whether there may be enough room with the nodes that may accept the pods."""
        if any(group.node.unknown for group in possible):
            return True  # nor is it known how many pods they take
        able: list[NodeGroup] = []
        # Rivals may come after these pods, and these may evict others.
        rivals = self._daemons.rivals([pod])
        least_priority = pod.priority if pod.preempts else None
        for group in self._daemons.occupied_without(rivals, least_priority):
            if not any(refusal.certain for refusal in refusals(pod, group.node)):
                able.append(group)
        return total_room(pod, able) >= needed

    def _too_few_nodes(
        self, admitted: AdmittedWorkload, pods: AdmittedPodSet, bounds: Capacity, needed: int
    ) -> Outcome:
        """Return the shortage of nodes: certain if the most pods that find nodes are too few."""
        pod_set, pod = pods
        reason = Shortage(
            pod_set,
            pod,
            self.occupied,
            least=bounds.least,
            most=bounds.most,
            limited_by=bounds.limited_by,
            needed=needed,
            sources=sources(self.cluster, admitted.workload, pod_set, pod),
        )
        if len(admitted.pod_sets) > 1:
            reason = replace(reason, missing_for_all=self._missing_for_all(admitted, reason))
        is_certain = bounds.most < needed
        return Outcome.of(Verdict.CANNOT_FIT if is_certain else Verdict.UNDETERMINED, reason)

    def _missing_for_all(self, admitted: AdmittedWorkload, reason: Shortage) -> int:
        """Return how many more of the roomiest nodes all pod sets need; 0 if more do not help."""
        nodes = shortage.roomiest(reason)
        if nodes is None:
            return 0
        pods = sum(pod_set.count for pod_set, _ in admitted.pod_sets)

        def is_enough(more: int) -> bool:
            groups: list[NodeGroup] = []
            for group in self.occupied:
                count = group.count + (more if group is nodes else 0)
                groups.append(replace(group, node=replace(group.node, count=count)))
            demands = self.demands([admitted], groups)
            return self.judge_joint(demands, groups).verdict is not Verdict.CANNOT_FIT

        missing = 1 + _number_fitting(range(1, pods + 1), is_enough)
        return missing if missing <= pods else 0

    def _stopped_growth(self, admitted: AdmittedWorkload, most: int) -> Iterator[GrowthStops]:
        """Yield rollouts and autoscaling for which the nodes have no room: ``most`` pods fit."""
        pod_set, pod = admitted.pod_sets[0]
        for rule, count in admitted.workload.ceilings:
            is_rollout = rule == "rollout-surge"
            if count <= most or (is_rollout and pod.exclusive_claims):
                continue  # shared_disks.py reports rollouts with such claims
            limit = most
            if is_rollout and (surge := self._surge(pod, pod_set.count, count - pod_set.count)):
                limit = max(most, pod_set.count + surge)
            if count > limit:
                yield GrowthStops(rule, pod_set, pod, count=count, limit=limit)

    def _surge(self, pod: PodClass, old_count: int, new_count: int) -> int:
        """Return how many of a rollout's new pods find nodes next to the old ones, at most.

        Return 0 if no selector distinguishes them from the old ones: then all are pods of one set.
        """
        # Selectors with the label pod-template-hash look at the pods of one version only. That of
        # the new version may have any other value.
        new_hash = f"{pod.labels.get(labels.TEMPLATE_HASH)} new"
        new_labels = {**pod.labels, labels.TEMPLATE_HASH: new_hash}
        new_pod = self.cluster.pod_class(
            pod.name, pod.namespace, new_labels, pod.spec, volume_refusals=pod.volume_refusals
        )
        rules = zip(pod.selecting_rules, new_pod.selecting_rules, strict=True)
        if all(old_rule.selector == new_rule.selector for old_rule, new_rule in rules):
            return 0
        groups = self.occupied
        old_demand = Demand(pod, old_count, self.cluster.accepting(pod, groups))
        accepting = self.cluster.accepting(new_pod, groups)

        def is_too_many(surge: int) -> bool:
            demands = [old_demand, Demand(new_pod, surge, accepting)]
            return self.judge_joint(demands, groups).verdict is Verdict.CANNOT_FIT

        return _number_fitting(range(1, new_count + 1), is_too_many)

    def _stopped_groups(self, admitted: AdmittedWorkload) -> Iterator[GrowthStops]:
        """Yield rollouts and autoscaling of groups of pods for which the nodes have no room."""
        workload = admitted.workload
        if not workload.groups:
            return

        def is_too_many(groups: int) -> bool:
            demands = self.demands([_with_groups(admitted, groups)], self.occupied)
            return self.judge_joint(demands, self.occupied).verdict is Verdict.CANNOT_FIT

        for rule, count in workload.ceilings:
            more = range(workload.groups + 1, count + 1)
            limit = workload.groups + _number_fitting(more, is_too_many)
            if limit < count:
                pod_set, pod = _with_groups(admitted, limit + 1).pod_sets[0]
                yield GrowthStops(rule, pod_set, pod, count=count, limit=limit, of_groups=True)


def _with_groups(admitted: AdmittedWorkload, groups: int) -> AdmittedWorkload:
    pod_sets: list[AdmittedPodSet] = []
    for pod_set, pod in admitted.pod_sets:
        count = admitted.workload.pods_of(pod_set, groups)
        pod_sets.append(AdmittedPodSet(replace(pod_set, count=count), pod))
    return replace(admitted, pod_sets=pod_sets)


def _number_fitting(numbers: Sequence[int], is_too_many: Callable[[int], bool]) -> int:
    """Return how many of ascending numbers come before the first that is too many."""
    return bisect_left(numbers, True, key=is_too_many)


def _may_refuse(group: NodeGroup, pods: AdmittedPodSet) -> Refusal:
    """Return why nodes that may accept pods may also refuse them."""
    reason = refusals(pods.pod, group.node)[0]
    return explain.node_refuses(pods.pod_set, group.node, reason)
