"""The verdict on each workload alone: whether its pods find nodes.

Running pods are on the nodes already, and the pods of DaemonSets come before a workload or after
it. Most verdicts follow from two numbers: how many pods find nodes for certain, and how many at
most. If these do not decide, the pods are judged together or every way to place them is tried.

Example: a Deployment has 3 pods of 8 GPUs. A pool of 4 nodes with 8 GPUs has room for 4, so the
Deployment fits. With 2 nodes, 2 pods find nodes and no third can: it cannot fit, because of a
``Shortage``. It is undetermined if another pool, whose labels are not known, may accept the third.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
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
    Outcome,
    Shortage,
    Verdict,
    in_turns,
)
from ml_foundations.planning.model.declared import written_kind
from ml_foundations.planning.model.node_groups import Demand, NodeGroup, PodClass, total_room
from ml_foundations.planning.model.refusals import Refusal, doubt
from ml_foundations.planning.model.workloads import Workload
from ml_foundations.planning.scheduler.capacity import Capacity, capacity
from ml_foundations.planning.scheduler.competition import JointVerdict, judge_together
from ml_foundations.planning.scheduler.exhaustive_search import search
from ml_foundations.planning.scheduler.filters import refusals
from ml_foundations.planning.verdict import explain, shortage
from ml_foundations.planning.verdict.daemons import Daemons, judge_on_node
from ml_foundations.planning.verdict.exclusive_groups import too_few_domains
from ml_foundations.planning.verdict.neighbors import Neighbors
from ml_foundations.planning.verdict.sources import sources

MAY_WAIT_TOO_LONG = doubt(
    "runs-in-turns",
    "",
    "its deadline may pass while its pods wait for room or for others",
    "Raise activeDeadlineSeconds or leave it out, or make room for all pods at once.",
    only_refuses=True,
)
"""The doubt about a Job with a deadline whose pods wait."""


class Fitting:
    """The nodes of a cluster, for placing one workload after another.

    The workloads are as the API server admits them. Placing one does not change the nodes.
    """

    def __init__(self, cluster: Cluster, workloads: Sequence[AdmittedWorkload]) -> None:
        """Find the nodes of the DaemonSets among the workloads."""
        self.cluster = cluster
        self._workloads = workloads
        self._daemons = Daemons(cluster, workloads)
        self._neighbors = Neighbors(workloads)

    @property
    def occupied(self) -> list[NodeGroup]:
        """All node groups with the pods of all DaemonSets."""
        return self._daemons.occupied

    def contenders(self, groups: Collection[NodeGroup]) -> list[Workload]:
        """Return the workloads that may run on some nodes, and neither end nor wait in a queue.

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
        if admitted.workload.kind == "DaemonSet":
            return self._place_daemon_set(admitted)
        if admitted.workload.may_start_in_parts:
            return self._place_in_parts(admitted)
        if len(admitted.pod_sets) == 1:
            return self._place_one_set(admitted)
        return self._place_sets(admitted)

    def place_refused(self, admitted: AdmittedWorkload) -> Outcome:
        """Return why pods that the API server may refuse would not fit either.

        So the user sees all errors of a workload at once. A workload in a queue does not fit if the
        nodes of no flavor accept its pods.
        """
        workload = admitted.workload
        choices = [admitted.pod_sets] if workload.queue is None else admitted.flavor_choices
        if len(choices) > 1 and workload.queued_replicas > 1:
            return NOTHING_DECIDED  # each replica may get another flavor
        outcomes: list[Outcome] = []
        for choice in choices:
            outcome = self.place(AdmittedWorkload(workload, choice))
            if outcome.verdict is not Verdict.CANNOT_FIT:
                return NOTHING_DECIDED
            outcomes.append(outcome)
        return Outcome(Verdict.CANNOT_FIT, outcomes[0].reasons) if outcomes else NOTHING_DECIDED

    def place_in_other_flavors(self, admitted: AdmittedWorkload, placed: Outcome) -> Outcome:
        """Return the doubt about a workload that fits, and does not in each choice of flavors."""
        choices = admitted.flavor_choices
        if len(choices) < 2 or placed.may_not_fit:
            return NOTHING_DECIDED
        # Kueue admits it to the first flavor with enough quota, whatever the nodes have.
        for choice in choices:
            if self.place(AdmittedWorkload(admitted.workload, choice)).may_not_fit:
                return Outcome.of(Verdict.UNDETERMINED, OTHER_FLAVOR)
        return NOTHING_DECIDED

    def demands(
        self, workloads: Iterable[AdmittedWorkload], among: Sequence[NodeGroup]
    ) -> list[Demand]:
        """Return the pods that workloads run at once, with the node groups that accept them."""
        pod_sets = chain.from_iterable(map(_nonempty, workloads))
        return [self._demand(pods, among) for pods in pod_sets]

    def _demand(self, pods: AdmittedPodSet, among: Sequence[NodeGroup]) -> Demand:
        declared, pod = pods
        accepting = self.cluster.accepting(pod, among)
        return Demand(pod, declared.count, accepting, everywhere=pod.one_per_node)

    def judge_together(
        self, demands: Sequence[Demand], groups: Sequence[NodeGroup]
    ) -> JointVerdict:
        """Return whether pods fit together; undetermined if more nodes may accept some of them."""
        joint = judge_together(demands, groups)
        if joint.verdict is not Verdict.CANNOT_FIT:
            return joint
        may_have_more = any(self.cluster.possibly_accepting(demand.pod) for demand in demands)
        return joint._replace(verdict=Verdict.UNDETERMINED) if may_have_more else joint

    def _place_daemon_set(self, admitted: AdmittedWorkload) -> Outcome:
        """Place a DaemonSet: it runs on every node that accepts it."""
        pods = admitted.pod_sets[0]
        declared, pod = pods
        accepting = self.cluster.accepting(pod)
        possible = self.cluster.possibly_accepting(pod)
        outcome = Outcome.of(Verdict.FITS)
        if not accepting and not possible:
            nowhere = shortage.daemon_set_nowhere(declared, pod, self.cluster.node_groups)
            outcome += Outcome.warned([nowhere])
        for group in possible:
            outcome += Outcome.of(Verdict.UNDETERMINED, _may_refuse(group, pods))
        for group in accepting:
            outcome += judge_on_node(group, pods)
        if pod.is_simple or outcome.verdict is not Verdict.FITS:
            return outcome
        demand = Demand(pod, declared.count, accepting, everywhere=True)
        verdict = judge_together([demand], self.cluster.node_groups).verdict
        if verdict is Verdict.FITS:
            return outcome
        if any(self._neighbors.affecting(pod)):
            return outcome + self._place_with_neighbors(admitted, pods, declared.count)
        cannot = "cannot" if verdict is Verdict.CANNOT_FIT else "perhaps cannot"
        kept_apart = Refusal(
            "daemon-set-spread",
            declared.path,
            f"its pods {cannot} be on every node: affinity, spreading or a claim of one pod keeps "
            "them apart",
            "Remove affinity, topologySpreadConstraints and ReadWriteOncePod claims from the "
            "DaemonSet.",
        )
        return outcome + Outcome.of(verdict, kept_apart)

    def _place_one_set(self, admitted: AdmittedWorkload) -> Outcome:
        """Place a workload whose pods are all alike."""
        workload = admitted.workload
        pods = admitted.pod_sets[0]
        declared, pod = pods
        most_later = max((declared.count, *(count for _, count in workload.ceilings)))
        if not declared.count or self._has_ample_room(pod, most_later):
            return Outcome.of(Verdict.FITS)
        needed = declared.count if workload.all_at_once else 1
        bounds = self._bounds(pod, needed)
        if bounds.least < declared.count <= bounds.most and (exact := self._search(pods, [pods])):
            bounds = replace(exact, limited_by=bounds.limited_by)
        if bounds.least < needed:
            return self._judge_shortage(admitted, pods, bounds, needed)
        outcome = Outcome.of(Verdict.FITS)
        if bounds.least < declared.count:
            outcome += Outcome.warned([in_turns(declared, bounds.least, "the nodes allow")])
            if workload.deadline is not None:
                late = MAY_WAIT_TOO_LONG._replace(path="activeDeadlineSeconds")
                outcome += Outcome.refused([late])
        return outcome + Outcome.warned(self._stopped_growth(admitted, bounds.most))

    def _place_sets(self, admitted: AdmittedWorkload) -> Outcome:
        """Place several pod sets at once, such as those of a gang."""
        outcome = NOTHING_DECIDED
        for pods in admitted.pod_sets:
            count = pods.declared.count
            bounds = self._bounds(pods.scheduled, count)
            if count > bounds.most:
                outcome += self._judge_shortage(admitted, pods, bounds, count)
        if outcome.may_not_fit:
            return outcome
        demands = self.demands([admitted], self.occupied)
        joint = self.judge_together(demands, self.occupied)
        if joint.verdict is Verdict.CANNOT_FIT and (
            rivals := self._daemons.rivals(pod for _, pod in admitted.pod_sets)
        ):
            # It is certain only if the pods do not fit before these DaemonSets either.
            groups = self._daemons.occupied_without(rivals)
            demands = self.demands([admitted], groups)
            joint = self.judge_together(demands, groups)
            if joint.verdict is Verdict.FITS:
                joint = joint._replace(verdict=Verdict.UNDETERMINED)
        if joint.verdict is Verdict.FITS:
            stopped = Outcome.warned(self._stopped_groups(admitted))
            return outcome + Outcome.of(Verdict.FITS) + stopped
        if too_few := too_few_domains(admitted, demands):
            return outcome + Outcome.of(joint.verdict, too_few)
        paths = dict.fromkeys(declared.count_path for declared, _ in _nonempty(admitted))
        of_one = [path for path in paths if path] or ["spec"]
        competition = Competition(demands, joint.shortfall, of_one=of_one)
        return outcome + Outcome.of(joint.verdict, competition)

    def _place_in_parts(self, admitted: AdmittedWorkload) -> Outcome:
        """Place a JobSet whose pods perhaps need not run at once.

        It fits if all pods that may run together find nodes. It cannot fit if one pod alone finds
        none. Otherwise, it depends on whether its pods wait for each other.
        """
        workload = admitted.workload
        phases = [self._place_sets(AdmittedWorkload(workload, p)) for p in admitted.phases()]
        failed = [phase for phase in phases if phase.verdict is not Verdict.FITS]
        if not failed:
            return Outcome.of(Verdict.FITS)
        impossible = NOTHING_DECIDED
        for declared, pod in admitted.pod_sets:
            single = AdmittedPodSet(replace(declared, count=min(declared.count, 1)), pod)
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
        declared, pod = pods
        company = self._neighbors.company(admitted)
        is_unknown = any(member.is_refused or member.unknowns for member in company)
        # If a term selects namespaces, the scheduler does not retry at once when pods come there.
        terms = items(section(pod.spec, "affinity", "podAffinity"), REQUIRED)
        is_unknown = is_unknown or any(term.get("namespaceSelector") for term in terms)
        competing = [member for member in company if member.workload.kind != "DaemonSet"]
        # Pods that have ended are not near any others.
        may_end = any(member.workload.ends for member in competing if member is not admitted)
        together = chain.from_iterable(map(_nonempty, competing))
        # If there are too many ways to place them, any number of pods may find nodes.
        bounds = self._search(pods, together) or Capacity(0, needed)
        depends_on_order = bounds.least < needed <= bounds.most
        depends_on_ends = may_end and bounds.least >= needed
        if is_unknown or depends_on_order or depends_on_ends:
            near_others = Refusal(
                "pod-affinity",
                f"{declared.path}.affinity",
                "whether its pods find a place depends on where the pods of other workloads are",
                "Select nodes by labels instead of by pods.",
            )
            return Outcome.of(Verdict.UNDETERMINED, near_others)
        if bounds.least >= needed:
            return Outcome.of(Verdict.FITS)
        rule = "pod-affinity" if pod.affinity else "topology-spread"
        return self._by_bounds(admitted, pods, replace(bounds, limited_by=rule), needed)

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

    def _bounds(self, pod: PodClass, needed: int, least_priority: int | None = None) -> Capacity:
        """Return how many pods find nodes, whether DaemonSets come before them or after.

        If a least priority is given, running pods with a lower one are evicted.
        """
        occupied = self.occupied
        if least_priority is not None:
            occupied = self._daemons.occupied_without((), least_priority)
        after_daemons = self._capacity(pod, occupied)
        are_daemons_counted = self._daemons.are_counted_by(pod)
        # Nodes with room after all DaemonSets have room before them too: without a spread
        # constraint that counts them, DaemonSets only use resources.
        if after_daemons.least >= needed and not are_daemons_counted:
            return after_daemons
        rivals = self._daemons.rivals([pod])
        if not rivals:
            return after_daemons
        without_rivals = self._daemons.occupied_without(rivals, least_priority)
        # If a spread constraint counts the pods of a DaemonSet, only the free resources bound the
        # number, since the skew depends on the order.
        if are_daemons_counted:
            return Capacity(0, total_room(pod, without_rivals), after_daemons.limited_by)
        before_rivals = self._capacity(pod, without_rivals)
        least = min(after_daemons.least, before_rivals.least)
        most = max(after_daemons.most, before_rivals.most)
        return Capacity(least, most, after_daemons.limited_by)

    def _capacity(self, pod: PodClass, groups: Sequence[NodeGroup]) -> Capacity:
        accepting = self.cluster.accepting(pod, groups)
        return capacity(pod, [(group, group.room(pod)) for group in accepting], groups)

    def _search(self, pods: AdmittedPodSet, together: Iterable[AdmittedPodSet]) -> Capacity | None:
        """Return how many pods of a set find nodes, over every way to place pod sets together.

        The set is one of these, or of a DaemonSet. Return None if there are too many ways.
        """
        groups = self.cluster.node_groups
        demands = [self._demand(member, groups) for member in together]
        demands += self._daemons.demands.values()
        result = search(demands, groups, count_each=True)
        searched = [demand.pod for demand in demands]
        if result is None or not result.exhausted or pods.scheduled not in searched:
            return None
        index = searched.index(pods.scheduled)
        return Capacity(result.least[index], result.most[index])

    def _judge_shortage(
        self, admitted: AdmittedWorkload, pods: AdmittedPodSet, bounds: Capacity, needed: int
    ) -> Outcome:
        """Return the outcome for pods that may lack nodes.

        Three things may help: evicting pods with a lower priority, nodes that may accept the pods,
        and pods of other workloads that these pods must be near.
        """
        if evicting := self._by_eviction(admitted, pods, needed):
            return evicting
        if possible := self._on_possible_nodes(pods, needed):
            return possible
        if bounds.most < needed and any(self._neighbors.affecting(pods.scheduled)):
            return self._place_with_neighbors(admitted, pods, needed)
        return self._by_bounds(admitted, pods, bounds, needed)

    def _by_eviction(
        self, admitted: AdmittedWorkload, pods: AdmittedPodSet, needed: int
    ) -> Outcome | None:
        """Return the outcome if evicting running pods makes room, or may; else None."""
        declared, pod = pods
        running = chain.from_iterable(group.running for group in self.cluster.node_groups)
        if not pod.preempts or all(victim.priority >= pod.priority for victim in running):
            return None
        bounds = self._bounds(pod, needed, least_priority=pod.priority)
        eviction = explain.eviction(declared, pod)
        only_room_decides = len(admitted.pod_sets) == 1 and not pod.spread and not pod.affinity
        if only_room_decides and bounds.least >= needed:
            return Outcome.of(Verdict.FITS) + Outcome.warned([eviction])
        return Outcome.of(Verdict.UNDETERMINED, eviction) if bounds.most >= needed else None

    def _on_possible_nodes(self, pods: AdmittedPodSet, needed: int) -> Outcome | None:
        """Return the doubt if nodes that may accept the pods would be enough; else None."""
        pod = pods.scheduled
        possible = self.cluster.possibly_accepting(pod)
        if not possible:
            return None
        doubtful = Outcome.of(Verdict.UNDETERMINED, _may_refuse(possible[0], pods))
        if any(group.node.unknown for group in possible):
            return doubtful
        nodes = {group.node for group in possible}
        able: list[NodeGroup] = []
        for group in self.occupied:
            if group.node in nodes or not refusals(pod, group.node):
                able.append(group)
        return doubtful if total_room(pod, able) >= needed else None

    def _by_bounds(
        self, admitted: AdmittedWorkload, pods: AdmittedPodSet, bounds: Capacity, needed: int
    ) -> Outcome:
        """Return the shortage of nodes: certain if the most pods that find nodes are too few."""
        declared, pod = pods
        reason = Shortage(
            declared,
            pod,
            self.occupied,
            least=bounds.least,
            most=bounds.most,
            limited_by=bounds.limited_by,
            wanted=needed,
            sources=sources(self.cluster, admitted.workload, declared, pod),
        )
        is_certain = bounds.most < needed
        return Outcome.of(Verdict.CANNOT_FIT if is_certain else Verdict.UNDETERMINED, reason)

    def _stopped_growth(self, admitted: AdmittedWorkload, most: int) -> Iterator[GrowthStops]:
        """Yield rollouts and autoscaling for which the nodes have no room."""
        declared, pod = admitted.pod_sets[0]
        for rule, count in admitted.workload.ceilings:
            limit = most
            if rule == "rollout-surge":
                if pod.exclusive_claims:
                    continue  # shared_disks.py reports these, with the claims
                if count > limit:
                    limit = max(limit, self._most_in_rollout(pod, declared.count, count))
            if count > limit:
                yield GrowthStops(rule, declared, pod, count=count, limit=limit)

    def _most_in_rollout(self, pod: PodClass, old_count: int, in_all: int) -> int:
        """Return how many old and new pods find nodes, if affinity distinguishes them; else 0."""
        # Selectors with the label pod-template-hash look at the pods of one version only.
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
            return self.judge_together(demands, groups).verdict is Verdict.CANNOT_FIT

        surges = range(1, in_all - old_count + 1)
        fitting_surge = bisect_left(surges, True, key=is_too_many)
        return old_count + fitting_surge if fitting_surge else 0

    def _stopped_groups(self, admitted: AdmittedWorkload) -> Iterator[GrowthStops]:
        """Yield rollouts and autoscaling of groups of pods for which the nodes have no room."""
        workload = admitted.workload
        if not workload.groups:
            return

        def is_too_many(groups: int) -> bool:
            demands = self.demands([_with_groups(admitted, groups)], self.occupied)
            return self.judge_together(demands, self.occupied).verdict is Verdict.CANNOT_FIT

        for rule, count in workload.ceilings:
            numbers = range(workload.groups + 1, count + 1)
            fitting = bisect_left(numbers, True, key=is_too_many)
            if fitting < len(numbers):
                declared, pod = _with_groups(admitted, numbers[fitting]).pod_sets[0]
                limit = workload.groups + fitting
                yield GrowthStops(rule, declared, pod, count=count, limit=limit, of_groups=True)


def _with_groups(admitted: AdmittedWorkload, groups: int) -> AdmittedWorkload:
    """Return a workload with so many groups of pods."""
    pod_sets: list[AdmittedPodSet] = []
    for declared, pod in admitted.pod_sets:
        count = admitted.workload.pods_of(declared, groups)
        pod_sets.append(AdmittedPodSet(replace(declared, count=count), pod))
    return replace(admitted, pod_sets=pod_sets)


def _nonempty(admitted: AdmittedWorkload) -> list[AdmittedPodSet]:
    return [pods for pods in admitted.pod_sets if pods.declared.count]


def _may_refuse(group: NodeGroup, pods: AdmittedPodSet) -> Refusal:
    """Return why nodes that may accept pods may also refuse them."""
    reason = refusals(pods.scheduled, group.node)[0]
    return explain.node_refuses(pods.declared, group.node, reason)
