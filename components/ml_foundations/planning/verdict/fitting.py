"""Placing each workload, next to running pods and to DaemonSets that come first or later."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain, takewhile

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import items, section
from ml_foundations.kubernetes.selectors import REQUIRED
from ml_foundations.planning.api_server.cluster import Cluster
from ml_foundations.planning.model.decisions import (
    NOTHING_DECIDED,
    OTHER_FLAVOR,
    AdmittedWorkload,
    Competition,
    GrowthStops,
    Outcome,
    PodSetClass,
    PodSets,
    Shortage,
    Shortfall,
    Verdict,
    in_turns,
)
from ml_foundations.planning.model.declared import written_kind
from ml_foundations.planning.model.node_groups import (
    NodeGroup,
    PodClass,
    PodGroup,
    carrying,
    node_count,
    total_room,
)
from ml_foundations.planning.model.refusals import Refusal, doubt
from ml_foundations.planning.model.workloads import PodSet, Workload
from ml_foundations.planning.scheduler.capacity import Capacity, capacity
from ml_foundations.planning.scheduler.competition import judge_together, label_keys, required_label
from ml_foundations.planning.scheduler.exhaustive_search import MOST_PODS, search
from ml_foundations.planning.scheduler.filters import refusals
from ml_foundations.planning.verdict import explain, shortage
from ml_foundations.planning.verdict.exclusive_groups import too_few_domains
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
        self.cluster, self._workloads = cluster, workloads
        self._daemons: list[PodGroup] = []
        for admitted in workloads:
            if admitted.workload.kind == "DaemonSet" and admitted.pod_sets and _may_run(admitted):
                [(_, pod), *_] = admitted.pod_sets
                self._daemons.append(PodGroup(pod, 0, self._of_daemon(pod), everywhere=True))

    def _of_daemon(self, pod: PodClass) -> list[NodeGroup]:
        """Return the node groups on which the pods of a DaemonSet run, or may run."""
        able: list[NodeGroup] = []
        wanted = [*self.cluster.accepting(pod), *self.cluster.possibly_accepting(pod)]
        for group in dict.fromkeys(wanted):
            is_out_of_reach = pod.volume_refusals and pod.volume_refusals(group.node)
            if group.room(pod) and not is_out_of_reach:
                able.append(group)
        return able

    def _occupied_without(
        self, rivals: Collection[PodGroup], least_priority: int | None = None
    ) -> list[NodeGroup]:
        """Return all node groups with the pods of all DaemonSets except some."""
        daemons_on: dict[NodeGroup, list[PodClass]] = {}
        for daemon in self._daemons:
            for group in daemon.node_groups if daemon not in rivals else ():
                daemons_on.setdefault(group, []).append(daemon.pod)
        groups: list[NodeGroup] = []
        for group in self.cluster.node_groups:
            added, stay = daemons_on.get(group, ()), group.running
            # If a least priority is given, running pods with a lower one are evicted.
            if least_priority is not None:
                stay = [pod for pod in group.running if pod.priority >= least_priority]
            is_same = not added and len(stay) == len(group.running)
            groups.append(group if is_same else carrying(group.node, (*stay, *added)))
        return groups

    @cached_property
    def occupied(self) -> list[NodeGroup]:
        """All node groups with the pods of all DaemonSets."""
        return self._occupied_without(())

    def _rivals(self, pods: Iterable[PodClass]) -> list[PodGroup]:
        """Return the DaemonSets that may come after some pods: they do not evict them all."""
        highest = max(pod.priority for pod in pods)
        rivals: list[PodGroup] = []
        for daemon in self._daemons:
            if not daemon.pod.preempts or daemon.pod.priority <= highest:
                rivals.append(daemon)
        return rivals

    def contenders(self, groups: Collection[NodeGroup]) -> list[Workload]:
        """Return the workloads that do not end, except DaemonSets, and may run on some nodes."""
        nodes = {group.node for group in groups}
        found: list[Workload] = []
        for admitted in self._workloads:
            workload = admitted.workload
            if workload.kind == "DaemonSet" or workload.is_finite or workload.queue is not None:
                continue
            for _, pod in admitted.pod_sets:
                if any(group.node in nodes for group in self.cluster.accepting(pod)):
                    found.append(workload)
        return found

    def place(self, admitted: AdmittedWorkload) -> Outcome:
        """Return whether a workload's pods find their nodes."""
        if admitted.workload.kind == "DaemonSet":
            return self._place_daemons(admitted)
        if admitted.workload.may_start_in_parts:
            return self._place_in_parts(admitted)
        if len(admitted.pod_sets) == 1:
            return self._place_one_set(admitted)
        return self._place_sets(admitted)

    def place_refused(self, admitted: AdmittedWorkload) -> Outcome:
        """Return why pods that the API server may refuse would not fit either."""
        # So the user sees all errors of a workload at once. A workload in a queue does not fit if
        # the nodes of no flavor accept its pods.
        is_queued = admitted.workload.queue is not None
        choices = admitted.flavor_choices if is_queued else [admitted.pod_sets]
        if len(choices) > 1 and admitted.workload.queued_replicas > 1:
            return NOTHING_DECIDED  # each replica may get another flavor
        first: Outcome | None = None
        for outcome in self._place_choices(admitted.workload, choices):
            if outcome.verdict is not Verdict.CANNOT_FIT:
                return NOTHING_DECIDED
            first = first or outcome
        return Outcome(Verdict.CANNOT_FIT, first.reasons) if first else NOTHING_DECIDED

    def place_in_other_flavors(self, admitted: AdmittedWorkload, placed: Outcome) -> Outcome:
        """Return the doubt about a workload that fits, and does not in each choice of flavors."""
        choices = admitted.flavor_choices
        # Kueue admits it to the first flavor with enough quota, whatever the nodes have.
        if len(choices) > 1 and not placed.may_not_fit:
            for outcome in self._place_choices(admitted.workload, choices):
                if outcome.may_not_fit:
                    return Outcome.of(Verdict.UNDETERMINED, OTHER_FLAVOR)
        return NOTHING_DECIDED

    def _place_choices(self, workload: Workload, choices: Iterable[PodSets]) -> Iterator[Outcome]:
        """Yield the outcomes of placing each choice of a workload's pods."""
        for choice in choices:
            yield self.place(AdmittedWorkload(workload, choice))

    def _place_daemons(self, admitted: AdmittedWorkload) -> Outcome:
        """Place a DaemonSet: it runs on every node that accepts it."""
        [(pod_set, pod), *_] = admitted.pod_sets
        cluster = self.cluster
        accepting, possible = cluster.accepting(pod), cluster.possibly_accepting(pod)
        outcome = Outcome.of(Verdict.FITS)
        if not accepting and not possible:
            nowhere = shortage.daemon_set_nowhere(pod_set, pod, cluster.node_groups)
            outcome += Outcome.warned([nowhere])
        for group in possible:
            [refusal, *_] = refusals(pod, group.node)
            reason = explain.node_refuses(pod_set, group.node, refusal)
            outcome += Outcome.of(Verdict.UNDETERMINED, reason)
        for group in accepting:
            outcome += _daemon_on(group, pod_set, pod)
        if pod.is_simple:
            return outcome
        demand = PodGroup(pod, pod_set.count, accepting, everywhere=True)
        verdict, _ = judge_together([demand], cluster.node_groups)
        if verdict is Verdict.FITS or outcome.verdict is not Verdict.FITS:
            return outcome
        if any(self._affecting(pod)):
            return outcome + self._place_with_affecting(admitted, pod_set, pod, pod_set.count)
        verb = "cannot" if verdict is Verdict.CANNOT_FIT else "perhaps cannot"
        why = "affinity, spreading or a claim of one pod keeps them apart"
        message = f"its pods {verb} be on every node: {why}"
        rules = "affinity, topologySpreadConstraints and ReadWriteOncePod claims"
        remedy = f"Remove {rules} from the DaemonSet."
        kept_apart = Refusal("daemon-set-spread", pod_set.path, message, remedy)
        return outcome + Outcome.of(verdict, kept_apart)

    def _place_one_set(self, admitted: AdmittedWorkload) -> Outcome:
        """Place a workload whose pods are all alike."""
        workload, [(pod_set, pod)] = admitted.workload, admitted.pod_sets
        most = max(pod_set.count, *(count for _, count in workload.ceilings), 0)
        if not pod_set.count or self._has_ample_room(pod, most):
            return Outcome.of(Verdict.FITS)
        wanted = pod_set.count if workload.all_at_once else 1
        bounds = self._bounds(pod, wanted)
        is_open = bounds.least < pod_set.count <= bounds.most
        if is_open and (exact := self._search([(pod_set, pod)], pod)):
            bounds = Capacity(*exact, bounds.limited_by)
        if bounds.least < wanted:
            return self._shortage(admitted, (pod_set, pod), bounds, wanted)
        outcome = Outcome.of(Verdict.FITS)
        if bounds.least < pod_set.count:
            outcome += Outcome.warned([in_turns(pod_set, bounds.least, "the nodes allow")])
            if workload.deadline is not None:
                late = MAY_WAIT_TOO_LONG._replace(path="activeDeadlineSeconds")
                outcome += Outcome.refused([late])
        return outcome + Outcome.warned(self._stopped_growth(admitted, bounds.most))

    def _stopped_growth(self, admitted: AdmittedWorkload, most: int) -> Iterable[GrowthStops]:
        """Yield rollouts and autoscaling for which the nodes have no room."""
        [(pod_set, pod)] = admitted.pod_sets
        for rule, count in admitted.workload.ceilings:
            if pod.exclusive_claims and rule == "rollout-surge":
                continue  # shared_disks names the claims
            limit = most
            if count > limit and rule == "rollout-surge":
                limit = max(limit, self._rollout_room(pod, pod_set.count, count))
            if count > limit:
                yield GrowthStops(rule, pod_set, pod, count, limit)

    def _stopped_groups(self, admitted: AdmittedWorkload) -> Iterable[GrowthStops]:
        """Yield rollouts and autoscaling of groups of pods for which the nodes have no room."""
        workload = admitted.workload
        for rule, count in workload.ceilings if workload.groups else ():
            more = range(workload.groups + 1, count + 1)
            index = bisect_left(more, True, key=partial(self._is_too_many_groups, admitted))
            if index < len(more):
                [(pod_set, pod), *_] = _of_groups(admitted, more[index])
                yield GrowthStops(rule, pod_set, pod, count, more[index] - 1, of_groups=True)

    def _is_too_many_groups(self, admitted: AdmittedWorkload, groups: int) -> bool:
        grown = replace(admitted, pod_sets=_of_groups(admitted, groups))
        demands = self.demands([grown], self.occupied)
        return self.judge_together(demands, self.occupied)[0] is Verdict.CANNOT_FIT

    def _rollout_room(self, pod: PodClass, count: int, wanted: int) -> int:
        """Return how many old and new pods find nodes, if affinity distinguishes them; else 0."""
        # Selectors with the label pod-template-hash look at the pods of one version only.
        new_hash = f"{pod.labels.get(labels.TEMPLATE_HASH)} new"
        new_labels = {**pod.labels, labels.TEMPLATE_HASH: new_hash}
        new = self.cluster.pod_class(
            pod.name, pod.namespace, new_labels, pod.spec, volume_refusals=pod.volume_refusals
        )
        old_rules, new_rules = pod.selecting_rules, new.selecting_rules
        pairs = zip(old_rules, new_rules, strict=True)
        if all(old.selector == other.selector for old, other in pairs):
            return 0
        groups = self.occupied
        old_pods = PodGroup(pod, count, self.cluster.accepting(pod, groups))
        accepting = self.cluster.accepting(new, groups)

        def is_too_many(surge: int) -> bool:
            together = [old_pods, PodGroup(new, surge, accepting)]
            return self.judge_together(together, groups)[0] is Verdict.CANNOT_FIT

        surge = bisect_left(range(1, wanted - count + 1), True, key=is_too_many)
        return count + surge if surge else 0

    def _has_ample_room(self, pod: PodClass, wanted: int) -> bool:
        """Return whether only free resources decide, and they suffice in any order."""
        # With thousands of nodes, most workloads find their room on the first few.
        if not pod.is_simple or self._daemons or self.cluster.running:
            return False
        for group in self.cluster.accepting(pod, self.occupied):
            wanted -= group.count * group.room(pod)
            if wanted <= 0:
                return True
        return False

    def _bounds(self, pod: PodClass, wanted: int, least_priority: int | None = None) -> Capacity:
        """Return how many pods find nodes, whether DaemonSets come before them or after."""
        with_all = self.occupied
        if least_priority is not None:
            with_all = self._occupied_without((), least_priority)
        after_daemons = self._capacity(pod, with_all)
        counts_daemons = any(_spread_counts(pod, daemon.pod) for daemon in self._daemons)
        # Nodes with room after all DaemonSets have room before them too: without a spread
        # constraint that counts them, DaemonSets only use resources.
        if after_daemons.least >= wanted and not counts_daemons:
            return after_daemons
        rivals = self._rivals([pod])
        if not rivals:
            return after_daemons
        without_rivals = self._occupied_without(rivals, least_priority)
        # If a spread constraint counts the pods of a DaemonSet, only the free resources bound the
        # number, since the skew depends on the order.
        if counts_daemons:
            return Capacity(0, total_room(pod, without_rivals), after_daemons.limited_by)
        before_rivals = self._capacity(pod, without_rivals)
        least = min(after_daemons.least, before_rivals.least)
        most = max(after_daemons.most, before_rivals.most)
        return Capacity(least, most, after_daemons.limited_by)

    def _search(self, pod_sets: Iterable[PodSetClass], pod: PodClass) -> tuple[int, int] | None:
        """Return the fewest and most pods of a class that find nodes; None if it takes too long."""
        groups = self.cluster.node_groups
        demands = [self._demand(pod_set, member, groups) for pod_set, member in pod_sets]
        # They compete with other sets and the DaemonSets, except those that the API server rejects.
        for daemon in self._daemons:
            demands.append(replace(daemon, count=node_count(daemon.node_groups)))
        result = search(demands, groups, count_each=True)
        if not result or not result.exhausted:
            return None
        for demand, least, most in zip(demands, result.least, result.most, strict=True):
            if demand.pod is pod:
                return least, most
        return None

    def _capacity(self, pod: PodClass, groups: Sequence[NodeGroup]) -> Capacity:
        accepting = self.cluster.accepting(pod, groups)
        return capacity(pod, [(group, group.room(pod)) for group in accepting], groups)

    def _shortage(
        self, admitted: AdmittedWorkload, pods: PodSetClass, bounds: Capacity, wanted: int
    ) -> Outcome:
        """Return the outcome for pods that may lack nodes, unless something else provides them."""
        # Three things may: evicting pods with a lower priority, nodes that may accept the pods, and
        # pods of other workloads that these pods must be near.
        pod_set, pod = pods
        running = chain.from_iterable(group.running for group in self.cluster.node_groups)
        if pod.preempts and any(other.priority < pod.priority for other in running):
            evicting = self._bounds(pod, wanted, pod.priority)
            by_eviction = explain.eviction(pod_set, pod)
            is_alone = len(admitted.pod_sets) == 1 and not pod.spread and not pod.affinity
            if is_alone and evicting.least >= wanted:
                return Outcome.of(Verdict.FITS) + Outcome.warned([by_eviction])
            if evicting.most >= wanted:
                return Outcome.of(Verdict.UNDETERMINED, by_eviction)
        possible = self.cluster.possibly_accepting(pod)
        is_unknown = any(group.node.unknown for group in possible)
        if is_unknown or (possible and self._room_with(pod, possible) >= wanted):
            node = possible[0].node
            reason = explain.node_refuses(pod_set, node, refusals(pod, node)[0])
            return Outcome.of(Verdict.UNDETERMINED, reason)
        if bounds.most < wanted and any(self._affecting(pod)):
            return self._place_with_affecting(admitted, pod_set, pod, wanted)
        return self._by_capacity(admitted, pod_set, pod, bounds, wanted)

    def _by_capacity(
        self,
        admitted: AdmittedWorkload,
        pod_set: PodSet,
        pod: PodClass,
        bounds: Capacity,
        wanted: int,
    ) -> Outcome:
        verdict = Verdict.UNDETERMINED if bounds.most >= wanted else Verdict.CANNOT_FIT
        figures = bounds.least, bounds.most, bounds.limited_by, wanted
        written = sources(self.cluster, admitted.workload, pod_set, pod)
        return Outcome.of(verdict, Shortage(pod_set, pod, self.occupied, *figures, written))

    def _room_with(self, pod: PodClass, possible: Sequence[NodeGroup]) -> int:
        """Return the room for pods, with the nodes that may accept them."""
        nodes = {group.node for group in possible}
        able: list[NodeGroup] = []
        for group in self.occupied:
            if group.node in nodes or not refusals(pod, group.node):
                able.append(group)
        return total_room(pod, able)

    def _affecting(self, pod: PodClass) -> Iterator[AdmittedWorkload]:
        """Yield workloads whose pods decide where a pod may go."""
        # The pod must be near them, or its spread constraints count them.

        def affects(other: PodClass) -> bool:
            return any(term.matches(other) for term in pod.affinity) or _spread_counts(pod, other)

        candidates: dict[AdmittedWorkload, None] = {}
        for rule in (*pod.affinity, *(rule for rule in pod.spread if not rule.is_empty)):
            candidates |= dict.fromkeys(self._by_label[required_label(rule.selector)])
        for admitted in candidates:
            if any(map(affects, _other_pods(admitted, pod))):
                yield admitted

    @cached_property
    def _by_label(self) -> Mapping[Hashable, list[AdmittedWorkload]]:
        """The workloads by the labels of their pods: most selectors require a label of few."""
        by_label = defaultdict[Hashable, list[AdmittedWorkload]](list)
        for admitted in self._workloads:
            labels_of_pods: dict[Hashable, None] = {}
            for _, pod in admitted.pod_sets:
                labels_of_pods |= dict.fromkeys(label_keys(pod.labels))
            for key in labels_of_pods:
                by_label[key].append(admitted)
        return by_label

    def _place_with_affecting(
        self, admitted: AdmittedWorkload, pod_set: PodSet, pod: PodClass, wanted: int
    ) -> Outcome:
        """Place pods together with those that decide where they may go."""
        company = self._company(admitted)
        pod_sets: list[PodSetClass] = []
        may_end = False
        for member in company:
            workload = member.workload
            if workload.kind == "DaemonSet":
                continue
            pod_sets += _nonempty(member)
            # Pods that have ended are not near any others.
            if member is not admitted and workload.ends:
                may_end = True
        least, most = self._search(pod_sets, pod) or (0, wanted)
        is_unknown = any(member.is_refused or member.unknowns for member in company)
        # If a term selects namespaces, the scheduler does not retry at once when pods come there.
        terms = items(section(pod.spec, "affinity", "podAffinity"), REQUIRED)
        is_unknown = is_unknown or any(term.get("namespaceSelector") for term in terms)
        if is_unknown or least < wanted <= most or (may_end and least >= wanted):
            others = "where the pods of other workloads are"
            message = f"whether its pods find a place depends on {others}"
            path, remedy = f"{pod_set.path}.affinity", "Select nodes by labels instead of by pods."
            near_others = Refusal("pod-affinity", path, message, remedy)
            return Outcome.of(Verdict.UNDETERMINED, near_others)
        if least >= wanted:
            return Outcome.of(Verdict.FITS)
        rule = "pod-affinity" if pod.affinity else "topology-spread"
        return self._by_capacity(admitted, pod_set, pod, Capacity(least, most, rule), wanted)

    def _company(self, admitted: AdmittedWorkload) -> list[AdmittedWorkload]:
        """Return a workload, those that affect it, those that affect these, and so on.

        With more pods than are searched, the rest changes nothing and is left out.
        """
        company, pending, pods = {admitted: None}, [admitted], _number_of_pods(admitted)
        while pending:
            for _, pod in pending.pop().pod_sets:
                for affecting in self._affecting(pod):
                    if affecting in company:
                        continue
                    company[affecting] = None
                    pending.append(affecting)
                    pods += _number_of_pods(affecting)
                    if pods > MOST_PODS:
                        return list(company)
        return list(company)

    def _place_in_parts(self, admitted: AdmittedWorkload) -> Outcome:
        """Place a JobSet whose pods perhaps need not run at once."""
        workload = admitted.workload
        # It fits if all pods that may run together find nodes, and cannot fit if one pod alone
        # finds none. Otherwise it depends on whether its pods wait for each other.
        not_together: list[Outcome] = []
        for pod_sets in admitted.phases():
            phase = self._place_sets(AdmittedWorkload(workload, pod_sets))
            if phase.verdict is not Verdict.FITS:
                not_together.append(phase)
        if not not_together:
            return Outcome.of(Verdict.FITS)
        impossible = NOTHING_DECIDED
        for pod_set, pod in admitted.pod_sets:
            one_pod = replace(pod_set, count=min(pod_set.count, 1))
            alone = self._place_sets(AdmittedWorkload(workload, ((one_pod, pod),)))
            if alone.verdict is Verdict.CANNOT_FIT:
                impossible += Outcome(Verdict.CANNOT_FIT, alone.reasons)
        if impossible.verdict is not None:
            return impossible
        kind = written_kind(workload.manifest)
        waiting = "whether they wait for each other is not known"
        message = f"there is no place for all of its pods at once, and {waiting}"
        gang = f'If they do, make room for all, and annotate the {kind} {labels.GANG}: "true".'
        remedy = f"{gang} If they do not, they run one after the other."
        may_wait = doubt("runs-in-turns", "spec.replicatedJobs", message, remedy)
        reasons = [reason for _, reason in not_together[0].reasons]
        return Outcome.of(Verdict.UNDETERMINED, may_wait, *reasons)

    def _place_sets(self, admitted: AdmittedWorkload) -> Outcome:
        """Place several sets of pods at once, such as those of a gang."""
        outcome = NOTHING_DECIDED
        for pod_set, pod in admitted.pod_sets:
            bounds = self._bounds(pod, pod_set.count)
            if pod_set.count > bounds.most:
                outcome += self._shortage(admitted, (pod_set, pod), bounds, pod_set.count)
        if outcome.may_not_fit:
            return outcome
        demands = self.demands([admitted], self.occupied)
        verdict, shortfall = self.judge_together(demands, self.occupied)
        rivals: Sequence[PodGroup] = ()
        if verdict is Verdict.CANNOT_FIT:
            rivals = self._rivals(pod for _, pod in admitted.pod_sets)
        if rivals:
            before = self._occupied_without(rivals)
            demands = self.demands([admitted], before)
            verdict, shortfall = self.judge_together(demands, before)
            verdict = Verdict.UNDETERMINED if verdict is Verdict.FITS else verdict
        if verdict is Verdict.FITS:
            stopped = Outcome.warned(self._stopped_groups(admitted))
            return outcome + Outcome.of(verdict) + stopped
        if few := too_few_domains(admitted, demands):
            return outcome + Outcome.of(verdict, few)
        paths = dict.fromkeys(pods.count_path for pods, _ in _nonempty(admitted))
        of_one = [*filter(None, paths)] or ["spec"]
        return outcome + Outcome.of(verdict, Competition(demands, shortfall, of_one=of_one))

    def _demand(self, pod_set: PodSet, pod: PodClass, among: Sequence[NodeGroup]) -> PodGroup:
        accepting = self.cluster.accepting(pod, among)
        return PodGroup(pod, pod_set.count, accepting, everywhere=pod.one_per_node)

    def judge_together(
        self, demands: Sequence[PodGroup], groups: Sequence[NodeGroup]
    ) -> tuple[Verdict, Shortfall | None]:
        """Return whether pod groups fit together, and what is missing."""
        verdict, shortfall = judge_together(demands, groups)
        if verdict is Verdict.CANNOT_FIT:
            # It is undetermined if other nodes may accept some of the pods.
            possible = any(self.cluster.possibly_accepting(demand.pod) for demand in demands)
            verdict = Verdict.UNDETERMINED if possible else verdict
        return verdict, shortfall

    def demands(
        self, workloads: Iterable[AdmittedWorkload], among: Sequence[NodeGroup]
    ) -> list[PodGroup]:
        """Return the pods that workloads run at once, with the node groups that accept them."""
        demands: list[PodGroup] = []
        for pod_set, pod in chain.from_iterable(map(_nonempty, workloads)):
            demands.append(self._demand(pod_set, pod, among))
        return demands


def _number_of_pods(admitted: AdmittedWorkload) -> int:
    """Return how many pods of a workload are searched; those of a DaemonSet count elsewhere."""
    is_daemon_set = admitted.workload.kind == "DaemonSet"
    return 0 if is_daemon_set else sum(pod_set.count for pod_set, _ in admitted.pod_sets)


def _of_groups(admitted: AdmittedWorkload, groups: int) -> list[PodSetClass]:
    """Return the sets of pods that a workload has with so many groups."""
    grown: list[PodSetClass] = []
    for pod_set, pod in admitted.pod_sets:
        grown.append((replace(pod_set, count=admitted.workload.pods_of(pod_set, groups)), pod))
    return grown


def _nonempty(admitted: AdmittedWorkload) -> list[PodSetClass]:
    return [(pod_set, pod) for pod_set, pod in admitted.pod_sets if pod_set.count]


def _daemon_on(group: NodeGroup, pod_set: PodSet, pod: PodClass) -> Outcome:
    """Return whether a DaemonSet's pod runs on each node of a group on which it must run."""
    if refused := refusals(pod, group.node):
        is_certain = any(refusal.certain for refusal in refused)
        reason = explain.node_refuses(pod_set, group.node, refused[0], must_run=True)
        return Outcome.of(Verdict.CANNOT_FIT if is_certain else Verdict.UNDETERMINED, reason)
    if group.room(pod):
        return NOTHING_DECIDED
    stay = group.running
    if pod.preempts:
        stay = [other for other in stay if other.priority >= pod.priority]
    if carrying(group.node, stay).room(pod):
        return Outcome.of(Verdict.UNDETERMINED, explain.eviction(pod_set, pod))
    return Outcome.of(Verdict.CANNOT_FIT, explain.node_is_full(pod_set, pod, group))


def _other_pods(admitted: AdmittedWorkload, pod: PodClass) -> list[PodClass]:
    """Return the pods of a workload except some; of an ordered StatefulSet, those before them."""
    pods = [member for _, member in admitted.pod_sets]
    before = list(takewhile(lambda member: member is not pod, pods))
    policy = section(admitted.workload.manifest, "spec").get("podManagementPolicy")
    if admitted.workload.kind == "StatefulSet" and policy != "Parallel":
        return before
    return [*before, *pods[len(before) + 1 :]]


def _spread_counts(pod: PodClass, other: PodClass) -> bool:
    """Return whether a spread constraint of a pod counts another pod."""
    return any(constraint.counts(pod, other) for constraint in pod.spread)


def _may_run(admitted: AdmittedWorkload) -> bool:
    """Return whether the API server accepts some pods of a workload, even if not all."""
    return not any(
        verdict is Verdict.CANNOT_FIT and isinstance(reason, Refusal)
        for verdict, reason in admitted.outcome.reasons
    )
