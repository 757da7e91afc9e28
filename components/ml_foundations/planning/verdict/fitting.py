"""Placing each workload, next to running pods and to DaemonSets that come first or later."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain, takewhile

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import Manifest, items, name_of, section
from ml_foundations.kubernetes.selectors import REQUIRED
from ml_foundations.planning.api_server.cluster import Cluster
from ml_foundations.planning.model.decisions import (
    NOTHING_DECIDED,
    OTHER_FLAVOR,
    AdmittedWorkload,
    Competition,
    GrowthStops,
    Outcome,
    Shortage,
    Shortfall,
    Verdict,
    in_turns,
)
from ml_foundations.planning.model.node_groups import (
    HOSTNAME,
    AffinityTerm,
    NodeGroup,
    PodClass,
    PodGroup,
    SpreadConstraint,
    carrying,
)
from ml_foundations.planning.model.performance import IdentityMap
from ml_foundations.planning.model.refusals import Refusal
from ml_foundations.planning.model.storage import access_modes
from ml_foundations.planning.model.workloads import PodSet
from ml_foundations.planning.scheduler.capacity import Capacity, capacity
from ml_foundations.planning.scheduler.competition import independent_sets, judge_together
from ml_foundations.planning.scheduler.exhaustive_search import search
from ml_foundations.planning.scheduler.filters import refusals
from ml_foundations.planning.verdict import explain, shortage

_MAY_WAIT_TOO_LONG = Refusal(
    rule="runs-in-turns",
    path="",
    message="its deadline may pass while its pods wait for room or for others",
    remedy="Raise activeDeadlineSeconds or leave it out, or make room for all pods at once.",
    certain=False,
    only_refuses=True,
)


def may_wait_too_long(job: AdmittedWorkload) -> Refusal:
    """Return that a Job's deadline may pass while its pods wait."""
    return _MAY_WAIT_TOO_LONG._replace(object=str(job.workload))


class Fitting:
    """The nodes of a cluster, for placing one workload after another.

    The workloads are as the API server admits them. Placing one does not change the nodes.
    """

    def __init__(self, cluster: Cluster, workloads: Sequence[AdmittedWorkload]) -> None:
        """Find the nodes of the DaemonSets among the workloads."""
        self._cluster = cluster
        self._workloads = workloads
        self._daemons: list[PodGroup] = []
        for admitted in workloads:
            if admitted.workload.kind == "DaemonSet" and admitted.pod_sets and _may_run(admitted):
                [(_, pod), *_] = admitted.pod_sets
                self._daemons.append(PodGroup(pod, 0, self._of_daemon(pod), everywhere=True))

    def _of_daemon(self, pod: PodClass) -> list[NodeGroup]:
        """Return the node groups on which the pods of a DaemonSet run, or may run."""
        wanted = [*self._cluster.accepting(pod), *self._cluster.possibly_accepting(pod)]
        able = [place for place in dict.fromkeys(wanted) if place.room(pod)]
        if refuses := pod.volume_refusals:
            able = [place for place in able if not refuses(place.node)]
        return able

    def _places_for(
        self, daemons: Iterable[PodGroup], least_priority: int | None = None
    ) -> list[NodeGroup]:
        """Return all node groups with the pods of some DaemonSets.

        Args:
            daemons: The DaemonSets.
            least_priority: If given, running pods with a lower priority are evicted.
        """
        of_place: dict[NodeGroup, list[PodClass]] = {}
        for daemon in daemons:
            for place in daemon.node_groups:
                of_place.setdefault(place, []).append(daemon.pod)
        places: list[NodeGroup] = []
        for place in self._cluster.node_groups:
            added, stay = of_place.get(place, ()), place.running
            if least_priority is not None:
                stay = [pod for pod in place.running if pod.priority >= least_priority]
            is_same = not added and len(stay) == len(place.running)
            places.append(place if is_same else carrying(place.node, (*stay, *added)))
        return places

    @cached_property
    def occupied(self) -> list[NodeGroup]:
        """All node groups with the pods of all DaemonSets."""
        return self._places_for(self._daemons)

    def _rivals(self, pods: Iterable[PodClass]) -> list[PodGroup]:
        """Return the DaemonSets that may come after some pods: they do not evict them all."""
        highest = max(pod.priority for pod in pods)
        rivals: list[PodGroup] = []
        for daemon in self._daemons:
            if not daemon.pod.preempts or daemon.pod.priority <= highest:
                rivals.append(daemon)
        return rivals

    def _without(
        self, rivals: Sequence[PodGroup], least_priority: int | None = None
    ) -> list[NodeGroup]:
        """Return all node groups before the pods of some DaemonSets come."""
        daemons = [daemon for daemon in self._daemons if daemon not in rivals]
        return self._places_for(daemons, least_priority)

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
        """Return why pods that the API server may refuse would not fit either.

        So the user sees all errors of a workload at once. A workload in a queue does not fit if the
        nodes of no flavor accept its pods.
        """
        choices = [admitted.pod_sets]
        if admitted.workload.queue is not None:
            choices = list(admitted.flavor_choices)
        placed = [self.place(AdmittedWorkload(admitted.workload, choice)) for choice in choices]
        if {outcome.verdict for outcome in placed} == {Verdict.CANNOT_FIT}:
            return Outcome(Verdict.CANNOT_FIT, placed[0].reasons)
        return NOTHING_DECIDED

    def place_in_other_flavors(self, admitted: AdmittedWorkload, placed: Outcome) -> Outcome:
        """Return the doubt about a workload that fits, and does not in each choice of flavors.

        Kueue admits it to the first flavor with enough quota, whatever the nodes have.
        """
        choices = admitted.flavor_choices
        if len(choices) < 2 or placed.verdict not in (None, Verdict.FITS):
            return NOTHING_DECIDED
        for choice in choices:
            outcome = self.place(AdmittedWorkload(admitted.workload, choice))
            if outcome.verdict not in (None, Verdict.FITS):
                return Outcome.of(Verdict.UNDETERMINED, OTHER_FLAVOR)
        return NOTHING_DECIDED

    def shared_claims(self) -> Mapping[AdmittedWorkload, Outcome]:
        """Return the outcomes, by workload, of claims that pods on several nodes may mount.

        The scheduler does not check whether several nodes may attach a claim: later pods wait on
        their nodes until the disk is detached. If the first pod decides the zone of the volume, all
        other pods must be in that zone.
        """
        mounting: IdentityMap[Manifest, list[AdmittedWorkload]] = IdentityMap()
        for admitted in self._workloads:
            for claim in admitted.claims:
                mounting.setdefault(claim, []).append(admitted)
        outcomes: dict[AdmittedWorkload, Outcome] = {}
        for claim, sharing in mounting.items():
            for admitted, outcome in self._shared_claim(claim, sharing):
                outcomes[admitted] = outcomes.get(admitted, NOTHING_DECIDED) + outcome
        return outcomes

    def _shared_claim(
        self, claim: Manifest, sharing: Sequence[AdmittedWorkload]
    ) -> Iterable[tuple[AdmittedWorkload, Outcome]]:
        """Yield the outcomes of a claim for the workloads that mount it."""
        pod_count = 0
        places: dict[NodeGroup, None] = {}
        for pod_set, pod in chain.from_iterable(admitted.pod_sets for admitted in sharing):
            pod_count += pod_set.count
            places |= dict.fromkeys(self._cluster.accepting(pod))
        if pod_count < 2 or sum(place.count for place in places) < 2:
            return
        volumes = self._cluster.volumes
        if set(access_modes(claim)) == {"ReadWriteOnce"}:
            apart: list[AdmittedWorkload] = []
            if volumes.is_of_one_node(claim):
                apart = list(filter(self._needs_nodes, sharing))
            for admitted in apart:
                count = admitted.pod_sets[0][0].count
                yield admitted, Outcome.refused([_one_node_is_too_small(claim, count)])
            if not apart:
                workloads = [admitted.workload for admitted in sharing]
                shared = explain.shared_claim(name_of(claim), workloads)
                yield sharing[0], Outcome.warned([shared])
        zones: set[str | None] = set()
        for place in places:
            zones.update(place.node.zones or (place.node.labels.get(labels.ZONE),))
        several = len(sharing) > 1 or sharing[0].workload.all_at_once
        if several and len(zones) > 1 and volumes.gets_a_zone(claim):
            first_decides = Refusal(
                rule="volume-zone",
                path="volumes",
                message=f"the first pod decides the zone of claim {name_of(claim)}, and all others"
                " must be in it",
                remedy="Keep the pods in one zone by a node selector.",
                certain=False,
                only_refuses=True,
            )
            for admitted in sharing:
                yield admitted, Outcome.refused([first_decides])

    def _needs_nodes(self, admitted: AdmittedWorkload) -> bool:
        """Return whether the pods of a workload must run at once and never all fit one node."""
        [(pod_set, pod), *other_sets] = admitted.pod_sets
        must_run_at_once = admitted.workload.all_at_once and pod_set.count >= 2
        if other_sets or not must_run_at_once or admitted.unknowns:
            return False
        cluster = self._cluster
        places = [*cluster.accepting(pod, self.occupied), *cluster.possibly_accepting(pod)]
        if max((place.room(pod) for place in places), default=pod_set.count) < pod_set.count:
            return True
        for constraint in pod.spread:
            is_over_nodes = constraint.key == HOSTNAME and constraint.counts_itself(pod)
            if is_over_nodes and constraint.max_skew < pod_set.count:
                eligible = [place for place in places if pod.is_eligible(constraint, place.node)]
                if sum(place.count for place in eligible) > 1:
                    return True
        return False

    def failing(self, judged: Sequence[AdmittedWorkload]) -> Iterable[Refusal]:
        """Yield why Jobs may fail if not all pods have room at once.

        Their deadline passes, or pods with a higher priority evict theirs, which count as failed.
        """
        pod_sets = chain.from_iterable(admitted.pod_sets for admitted in judged)
        highest = max((pod.priority for _, pod in pod_sets if pod.preempts), default=0)
        fragile: list[tuple[set[PodClass], Refusal]] = []
        for job in judged:
            pods = {pod for _, pod in job.pod_sets}
            is_evicted = any(pod.priority < highest and not pod.recreated for pod in pods)
            starts_alone = job.workload.is_finite and job.workload.queue is None
            if not starts_alone or job.verdict is not Verdict.FITS:
                continue
            if is_evicted:
                evicted = Refusal(
                    rule="preemption",
                    path="",
                    message="pods of a higher priority may evict its pods, which count as failed",
                    remedy="Make room for all pods at once, or let its podFailurePolicy ignore the"
                    " condition DisruptionTarget.",
                    certain=False,
                    object=str(job.workload),
                )
                fragile.append((pods, evicted))
            elif job.workload.deadline is not None:
                fragile.append((pods, may_wait_too_long(job)))
        if not fragile:
            return
        places = self._cluster.node_groups
        for group in independent_sets(self.demands(judged, places)):
            competing = {demand.pod for demand in group}
            failing = [refusal for pods, refusal in fragile if not pods.isdisjoint(competing)]
            if failing and self.judge_together(group, places)[0] is not Verdict.FITS:
                yield from failing

    def _place_daemons(self, admitted: AdmittedWorkload) -> Outcome:
        """Place a DaemonSet: it runs on every node that accepts it."""
        [(pod_set, pod), *_] = admitted.pod_sets
        cluster = self._cluster
        accepting, possible = cluster.accepting(pod), cluster.possibly_accepting(pod)
        outcome = Outcome.of(Verdict.FITS)
        if not accepting and not possible:
            nowhere = shortage.daemon_set_nowhere(pod_set, pod, cluster.node_groups)
            outcome += Outcome.warned([nowhere])
        for place in possible:
            [refusal, *_] = refusals(pod, place.node)
            reason = explain.node_refuses(pod_set, place.node, refusal)
            outcome += Outcome.of(Verdict.UNDETERMINED, reason)
        for place in accepting:
            outcome += _daemon_on(place, pod_set, pod)
        if pod.is_simple:
            return outcome
        demand = PodGroup(pod, pod_set.count, accepting, everywhere=True)
        verdict, _ = judge_together([demand], cluster.node_groups)
        if verdict is Verdict.FITS or outcome.verdict is not Verdict.FITS:
            return outcome
        if self._affecting(pod):
            return outcome + self._place_with_affecting(admitted, pod_set, pod, pod_set.count)
        verb = "cannot" if verdict is Verdict.CANNOT_FIT else "perhaps cannot"
        kept_apart = Refusal(
            rule="daemon-set-spread",
            path=pod_set.path,
            message=f"its pods {verb} be on every node: affinity, spreading or a claim of one pod"
            " keeps them apart",
            remedy="Remove affinity, topologySpreadConstraints and ReadWriteOncePod claims from the"
            " DaemonSet.",
        )
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
            return self._shortage(admitted, pod_set, pod, bounds, wanted)
        outcome = Outcome.of(Verdict.FITS)
        if bounds.least < pod_set.count:
            outcome += Outcome.warned([in_turns(pod_set, bounds.least, "the nodes allow")])
            if workload.deadline is not None:
                late = _MAY_WAIT_TOO_LONG._replace(path="activeDeadlineSeconds")
                outcome += Outcome.refused([late])
        return outcome + Outcome.warned(self._stopped_growth(admitted, bounds.most))

    def _stopped_growth(self, admitted: AdmittedWorkload, most: int) -> Iterable[GrowthStops]:
        """Yield rollouts and autoscaling for which the nodes have no room."""
        [(pod_set, pod)] = admitted.pod_sets
        for rule, count in admitted.workload.ceilings:
            limit = most
            if count > limit and rule == "rollout-surge":
                limit = max(limit, self._rollout_room(pod, pod_set.count, count))
            if count > limit:
                yield GrowthStops(rule, pod_set, pod, count, limit)

    def _rollout_room(self, pod: PodClass, count: int, wanted: int) -> int:
        """Return how many old and new pods find nodes, if affinity distinguishes them; else 0.

        Selectors with the label pod-template-hash look at the pods of one version only.
        """
        new_hash = f"{pod.labels.get(labels.TEMPLATE_HASH)} new"
        new_labels = {**pod.labels, labels.TEMPLATE_HASH: new_hash}
        new = self._cluster.pod_class(
            pod.name, pod.namespace, new_labels, pod.spec, volume_refusals=pod.volume_refusals
        )
        rules = zip(_rules(pod), _rules(new), strict=True)
        if all(old.selector == other.selector for old, other in rules):
            return 0
        places = self.occupied
        for surge in range(wanted - count, 0, -1):
            demands = [
                PodGroup(pod, count, self._cluster.accepting(pod, places)),
                PodGroup(new, surge, self._cluster.accepting(new, places)),
            ]
            if self.judge_together(demands, places)[0] is not Verdict.CANNOT_FIT:
                return count + surge
        return 0

    def _has_ample_room(self, pod: PodClass, wanted: int) -> bool:
        """Return whether only free resources decide, and they suffice in any order."""
        if not pod.is_simple or self._daemons or self._cluster.running:
            return False
        for place in self._cluster.accepting(pod, self.occupied):
            wanted -= place.count * place.room(pod)
            if wanted <= 0:
                return True
        return False

    def _bounds(self, pod: PodClass, wanted: int, least_priority: int | None = None) -> Capacity:
        """Return how many pods find nodes, whether DaemonSets come before them or after.

        If a spread constraint counts the pods of a DaemonSet, only the free resources bound the
        number, since the skew depends on the order.
        """
        with_all = self.occupied
        if least_priority is not None:
            with_all = self._places_for(self._daemons, least_priority)
        after_daemons = self._capacity(pod, with_all)
        counts_daemons = any(_spread_counts(pod, daemon.pod) for daemon in self._daemons)
        # Nodes with room after all DaemonSets have room before them too: without a spread
        # constraint that counts them, DaemonSets only use resources.
        if after_daemons.least >= wanted and not counts_daemons:
            return after_daemons
        rivals = self._rivals([pod])
        if not rivals:
            return after_daemons
        without_rivals = self._without(rivals, least_priority)
        before_rivals = self._capacity(pod, without_rivals)
        if counts_daemons:
            most = sum(place.count * place.room(pod) for place in without_rivals)
            return Capacity(0, most, after_daemons.limited_by)
        least = min(after_daemons.least, before_rivals.least)
        most = max(after_daemons.most, before_rivals.most)
        return Capacity(least, most, after_daemons.limited_by)

    def _search(
        self, pod_sets: Iterable[tuple[PodSet, PodClass]], pod: PodClass
    ) -> tuple[int, int] | None:
        """Return the fewest and the most pods of a class that find nodes, over all orders.

        They compete with other sets and the DaemonSets, except those that the API server rejects.
        Return None if the search is too long.
        """
        places = self._cluster.node_groups
        demands = [self._demand(pod_set, member, places) for pod_set, member in pod_sets]
        for daemon in self._daemons:
            count = sum(place.count for place in daemon.node_groups)
            demands.append(replace(daemon, count=count))
        result = search(demands, places, each=True)
        if not result or not result.exhausted:
            return None
        for demand, least, most in zip(demands, result.least, result.most, strict=True):
            if demand.pod is pod:
                return least, most
        return None

    def _capacity(self, pod: PodClass, places: Sequence[NodeGroup]) -> Capacity:
        accepting = self._cluster.accepting(pod, places)
        return capacity(pod, [(place, place.room(pod)) for place in accepting], places)

    def _shortage(
        self,
        admitted: AdmittedWorkload,
        pod_set: PodSet,
        pod: PodClass,
        bounds: Capacity,
        wanted: int,
    ) -> Outcome:
        """Return the outcome for pods that may lack nodes, unless something else provides them.

        Three things may: evicting pods with a lower priority, nodes that may accept the pods, and
        pods of other workloads that these pods must be near.
        """
        if self._can_evict(pod):
            evicting = self._bounds(pod, wanted, pod.priority)
            by_eviction = explain.eviction(pod_set, pod)
            is_alone = len(admitted.pod_sets) == 1 and not pod.spread and not pod.affinity
            if is_alone and evicting.least >= wanted:
                return Outcome.of(Verdict.FITS) + Outcome.warned([by_eviction])
            if evicting.most >= wanted:
                return Outcome.of(Verdict.UNDETERMINED, by_eviction)
        possible = self._cluster.possibly_accepting(pod)
        is_unknown = any(place.node.unknown for place in possible)
        if is_unknown or (possible and self._room_with(pod, possible) >= wanted):
            node = possible[0].node
            reason = explain.node_refuses(pod_set, node, refusals(pod, node)[0])
            return Outcome.of(Verdict.UNDETERMINED, reason)
        if bounds.most < wanted and self._affecting(pod):
            return self._place_with_affecting(admitted, pod_set, pod, wanted)
        return self._by_capacity(pod_set, pod, bounds, wanted)

    def _can_evict(self, pod: PodClass) -> bool:
        """Return whether some running pod has a lower priority."""
        running = chain.from_iterable(place.running for place in self._cluster.node_groups)
        return pod.preempts and any(other.priority < pod.priority for other in running)

    def _by_capacity(
        self, pod_set: PodSet, pod: PodClass, bounds: Capacity, wanted: int
    ) -> Outcome:
        verdict = Verdict.UNDETERMINED if bounds.most >= wanted else Verdict.CANNOT_FIT
        least, most, limit = bounds.least, bounds.most, bounds.limited_by
        return Outcome.of(
            verdict, Shortage(pod_set, pod, self.occupied, least, most, limit, wanted)
        )

    def _room_with(self, pod: PodClass, possible: Sequence[NodeGroup]) -> int:
        """Return the room for pods, with the nodes that may accept them."""
        nodes = {place.node for place in possible}
        room = 0
        for place in self.occupied:
            if place.node in nodes or not refusals(pod, place.node):
                room += place.count * place.room(pod)
        return room

    def _affecting(self, pod: PodClass) -> list[AdmittedWorkload]:
        """Return workloads whose pods decide where a pod may go.

        The pod must be near them, or its spread constraints count them.
        """
        if not (pod.affinity or pod.spread):
            return []

        def affects(other: PodClass) -> bool:
            return any(term.matches(other) for term in pod.affinity) or _spread_counts(pod, other)

        workloads = self._workloads
        return [admitted for admitted in workloads if any(map(affects, _other_pods(admitted, pod)))]

    def _place_with_affecting(
        self, admitted: AdmittedWorkload, pod_set: PodSet, pod: PodClass, wanted: int
    ) -> Outcome:
        """Place pods together with those that decide where they may go."""
        company = [admitted]
        for member in company:  # the list grows: those that affect a member are members
            for _, member_pod in member.pod_sets:
                for affecting in self._affecting(member_pod):
                    if affecting not in company:
                        company.append(affecting)
        pod_sets: list[tuple[PodSet, PodClass]] = []
        may_end = False
        for member in company:
            workload = member.workload
            if workload.kind == "DaemonSet":
                continue
            pod_sets += _nonempty(member)
            # Pods that have ended are not near any others.
            if member is not admitted and (workload.is_finite or workload.may_make_room):
                may_end = True
        least, most = self._search(pod_sets, pod) or (0, wanted)
        is_unknown = any(member.is_refused or member.unknowns for member in company)
        # If a term selects namespaces, the scheduler does not retry at once when pods come there.
        terms = items(section(pod.spec, "affinity", "podAffinity"), REQUIRED)
        is_unknown = is_unknown or any(term.get("namespaceSelector") for term in terms)
        if is_unknown or least < wanted <= most or (may_end and least >= wanted):
            near_others = Refusal(
                rule="pod-affinity",
                path=f"{pod_set.path}.affinity",
                message="whether its pods find a place depends on where the pods of other"
                " workloads are",
                remedy="Select nodes by labels instead of by pods.",
            )
            return Outcome.of(Verdict.UNDETERMINED, near_others)
        if least >= wanted:
            return Outcome.of(Verdict.FITS)
        rule = "pod-affinity" if pod.affinity else "topology-spread"
        return self._by_capacity(pod_set, pod, Capacity(least, most, rule), wanted)

    def _place_in_parts(self, admitted: AdmittedWorkload) -> Outcome:
        """Place a JobSet whose pods perhaps need not run at once.

        It fits if all pods that may run together find nodes, and cannot fit if one pod alone finds
        none. Otherwise it depends on whether its pods wait for each other.
        """
        workload = admitted.workload
        phases: list[Outcome] = []
        for pod_sets in admitted.phases():
            phases.append(self._place_sets(AdmittedWorkload(workload, pod_sets)))
        not_together = [phase for phase in phases if phase.verdict is not Verdict.FITS]
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
        may_wait = Refusal(
            rule="runs-in-turns",
            path="spec.replicatedJobs",
            message="there is no place for all of its pods at once, and whether they wait for each"
            " other is not known",
            remedy=f'If they do, make room for all, and annotate the JobSet {labels.GANG}: "true".'
            " If they do not, they run one after the other.",
            certain=False,
        )
        reasons = [reason for _, reason in not_together[0].reasons]
        return Outcome.of(Verdict.UNDETERMINED, may_wait, *reasons)

    def _place_sets(self, admitted: AdmittedWorkload) -> Outcome:
        """Place several sets of pods at once, such as those of a gang."""
        outcome = NOTHING_DECIDED
        for pod_set, pod in admitted.pod_sets:
            bounds = self._bounds(pod, pod_set.count)
            if pod_set.count > bounds.most:
                outcome += self._shortage(admitted, pod_set, pod, bounds, pod_set.count)
        if outcome.verdict not in (None, Verdict.FITS):
            return outcome
        demands = self.demands([admitted], self.occupied)
        verdict, shortfall = self.judge_together(demands, self.occupied)
        if verdict is Verdict.CANNOT_FIT:
            rivals = self._rivals(pod for _, pod in admitted.pod_sets)
            if rivals:
                before = self._without(rivals)
                demands = self.demands([admitted], before)
                verdict, shortfall = self.judge_together(demands, before)
                verdict = Verdict.UNDETERMINED if verdict is Verdict.FITS else verdict
        if verdict is Verdict.FITS:
            return outcome + Outcome.of(verdict)
        path = "spec.replicatedJobs"
        if admitted.workload.kind != "JobSet":
            path = admitted.pod_sets[0][0].count_path
        return outcome + Outcome.of(verdict, Competition(demands, shortfall, of_one=path))

    def _demand(self, pod_set: PodSet, pod: PodClass, among: Sequence[NodeGroup]) -> PodGroup:
        accepting = self._cluster.accepting(pod, among)
        return PodGroup(pod, pod_set.count, accepting, everywhere=pod.one_per_node)

    def judge_together(
        self, demands: Sequence[PodGroup], places: Sequence[NodeGroup]
    ) -> tuple[Verdict, Shortfall | None]:
        """Return whether pod groups fit together, and what is missing.

        It is undetermined if other nodes may accept some of the pods.
        """
        verdict, shortfall = judge_together(demands, places)
        if verdict is Verdict.CANNOT_FIT:
            possible = any(self._cluster.possibly_accepting(demand.pod) for demand in demands)
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


def _nonempty(admitted: AdmittedWorkload) -> list[tuple[PodSet, PodClass]]:
    return [(pod_set, pod) for pod_set, pod in admitted.pod_sets if pod_set.count]


def _daemon_on(place: NodeGroup, pod_set: PodSet, pod: PodClass) -> Outcome:
    """Return whether a DaemonSet's pod runs on each node of a group on which it must run."""
    if refused := refusals(pod, place.node):
        is_certain = any(refusal.certain for refusal in refused)
        reason = explain.node_refuses(pod_set, place.node, refused[0], must_run=True)
        return Outcome.of(Verdict.CANNOT_FIT if is_certain else Verdict.UNDETERMINED, reason)
    if place.room(pod):
        return NOTHING_DECIDED
    stay = place.running
    if pod.preempts:
        stay = [other for other in stay if other.priority >= pod.priority]
    if carrying(place.node, stay).room(pod):
        return Outcome.of(Verdict.UNDETERMINED, explain.eviction(pod_set, pod))
    return Outcome.of(Verdict.CANNOT_FIT, explain.node_is_full(pod_set, pod, place))


def _one_node_is_too_small(claim: Manifest, count: int) -> Refusal:
    return Refusal(
        rule="volume-access",
        path="volumes",
        message=f"its {count} pods mount the claim {name_of(claim)}, which one node at a time may"
        " attach (ReadWriteOnce), and no node accepts all of them: pods on another node never"
        " start",
        remedy=f"Give {name_of(claim)} the access mode ReadWriteMany with a class that has it, or"
        " run as many pods as one node accepts without anti-affinity or spreading over nodes.",
    )


def inline_disks(admitted: AdmittedWorkload) -> Outcome:
    """Refuse several pods that write to one disk, which their volumes name.

    The scheduler keeps the pods apart (its filter VolumeRestrictions), and does not check which
    node has attached the disk.
    """
    outcome = NOTHING_DECIDED
    for pod_set, pod in admitted.pod_sets:
        if pod_set.count > 1 and admitted.workload.all_at_once and pod.writes_to_disks:
            disk, count = min(str(name) for _, name, *_ in pod.writes_to_disks), pod_set.count
            one_pod = Refusal(
                rule="volume-access",
                path=f"{pod_set.path}.volumes",
                message=f"its {count} pods write to the disk {disk}, which one node attaches, and"
                " pods of one node exclude each other: one pod starts",
                remedy="Run one pod, mount the disk with readOnly, or give the pods a claim of a"
                " class that has ReadWriteMany.",
            )
            outcome += Outcome.refused([one_pod])
    return outcome


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


def _rules(pod: PodClass) -> Iterable[AffinityTerm | SpreadConstraint]:
    return chain(pod.anti_affinity, pod.spread, pod.affinity)


def _may_run(admitted: AdmittedWorkload) -> bool:
    """Return whether the API server accepts some pods of a workload, even if not all."""
    return not any(
        verdict is Verdict.CANNOT_FIT and isinstance(reason, Refusal)
        for verdict, reason in admitted.outcome.reasons
    )
