"""Whether the pods of one workload find their places, counted alone with the DaemonSets and what runs already."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

from ml_foundations.planning.model.cluster import Cluster
from ml_foundations.planning.model.places import Place, PodClass, take
from ml_foundations.planning.model.pods import PodSet
from ml_foundations.planning.scheduler import competition as stack
from ml_foundations.planning.scheduler.every_order import search
from ml_foundations.planning.scheduler.one_class import Capacity, capacity
from ml_foundations.planning.verdict import explain
from ml_foundations.planning.verdict.candidates import Candidate, ceilings
from ml_foundations.planning.verdict.cost import RunCost, run_cost
from ml_foundations.planning.verdict.findings import Verdict


class Fitting:
    """The nodes of a cluster, for one workload after the other."""

    def __init__(self, cluster: Cluster, candidates: Sequence[Candidate]) -> None:
        """Take what the DaemonSets among the candidates need from the nodes."""
        self._cluster = cluster
        self._candidates = candidates
        daemons = [c.sets[0][1] for c in candidates if c.workload.kind == "DaemonSet" and c.verdict is None]
        self._daemons = [(pod, cluster.accepting(pod)) for pod in daemons]

    def _places_for(self, own: PodClass | None, least_priority: int | None = None) -> list[Place]:
        """All places with the DaemonSets' pods; without running pods that pods of a priority may evict."""
        found: list[Place] = []
        for place in self._cluster.places:
            running = place.running
            free = place.free
            if least_priority is not None:
                running = tuple(other for other in running if other.priority >= least_priority)
                free = dict(place.node.allocatable)
                for other in running:
                    take(free, other)
            mine = [pod for pod, accepting in self._daemons if pod is not own and any(place is p for p in accepting)]
            if mine:
                free = dict(free)
                for pod in mine:
                    take(free, pod)
            found.append(Place(place.node, free, (*running, *mine)) if mine or free is not place.free else place)
        return found

    @cached_property
    def _occupied(self) -> list[Place]:
        return self._places_for(None)

    def place(self, candidate: Candidate) -> None:
        """Give a workload's verdict."""
        workload = candidate.workload
        if workload.kind == "DaemonSet":
            self._place_daemons(candidate)
        elif len(candidate.sets) == 1:
            self._place_one_set(candidate)
        else:
            self._place_sets(candidate)
        candidate.run_cost = self._run_cost(candidate)

    def place_refused(self, candidate: Candidate) -> None:
        """Say of a workload that the API server refuses what else keeps it from running: all errors at once."""
        beyond = Candidate(candidate.workload, candidate.sets)
        self.place(beyond)
        if beyond.verdict is Verdict.CANNOT_FIT:
            candidate.reasons += beyond.reasons

    def warn_of_shared_claims(self) -> None:
        """Warn of claims that one node at a time may attach, where pods on several nodes may mount them.

        The scheduler does not look at that: the later pods wait on their nodes until the disk is detached.
        """
        mounting: dict[tuple[str, str], list[Candidate]] = {}
        for candidate in self._candidates:
            for claim in self._cluster.volumes.on_one_node(candidate.workload):
                mounting.setdefault((candidate.workload.namespace, claim), []).append(candidate)
        for (_, claim), candidates in mounting.items():
            sets = [(pod_set, pod) for candidate in candidates for pod_set, pod in candidate.sets]
            places = {id(place): place.count for _, pod in sets for place in self._cluster.accepting(pod)}
            if sum(pod_set.count for pod_set, _ in sets) > 1 and sum(places.values()) > 1:
                candidates[0].warnings.append(explain.shared_claim([c.workload for c in candidates], claim))

    def _run_cost(self, candidate: Candidate) -> RunCost | None:
        """What a run costs, where the workload says how long it may last."""
        seconds = candidate.workload.deadline
        if seconds is None or len(candidate.sets) != 1 or candidate.verdict is not Verdict.FITS:
            return None
        pod_set, pod = candidate.sets[0]
        rooms = [(place.node, place.room(pod)) for place in self._cluster.accepting(pod, self._occupied)]
        return run_cost(rooms, pod_set.count, seconds)

    def _place_daemons(self, candidate: Candidate) -> None:
        """A DaemonSet runs on every node that takes it."""
        workload, (pod_set, pod) = candidate.workload, candidate.sets[0]
        accepting, perhaps = self._cluster.accepting(pod), self._cluster.perhaps(pod)
        candidate.decide(Verdict.FITS)
        if not accepting and not perhaps:
            candidate.warnings.append(explain.no_node_matches(workload, pod_set))
        for place in perhaps:
            refused = pod.refusals(place.node)
            candidate.decide(Verdict.UNDETERMINED, explain.unknown_nodes(workload, pod_set, [place], refused))
        for place in accepting:
            refused = pod.refusals(place.node)
            if refused or not place.room(pod):
                certain = not refused or any(refusal.certain for refusal in refused)
                finding = explain.no_room_for_daemon(workload, pod_set, pod, place, refused)
                candidate.decide(Verdict.CANNOT_FIT if certain else Verdict.UNDETERMINED, finding)
        if pod.spread or pod.affinity or pod.anti_affinity:
            demand = stack.Demand(pod, sum(place.count for place in accepting), accepting, everywhere=True)
            judgement = stack.judge_together([demand], self._cluster.places)
            if judgement.verdict is not Verdict.FITS and candidate.verdict is Verdict.FITS:
                candidate.decide(judgement.verdict, explain.together_unproved(workload, pod_set, judgement.verdict))

    def _place_one_set(self, candidate: Candidate) -> None:
        workload, (pod_set, pod) = candidate.workload, candidate.sets[0]
        if not pod_set.count:
            candidate.decide(Verdict.FITS)
            return
        occupied = self._occupied
        found = self._capacity(pod, occupied)
        if not found.is_exact and found.least < pod_set.count <= found.most:
            outcome = search([(pod, pod_set.count)], occupied, each=True)
            if outcome and outcome.exhausted:
                found = Capacity(outcome.least[0], outcome.most[0], found.limited_by)
        wanted = 1 if workload.is_partial else pod_set.count
        if found.least >= wanted:
            candidate.decide(Verdict.FITS)
            if found.least < pod_set.count:
                candidate.warnings.append(explain.turns(workload, pod_set, found.least, pod_set.count, "the nodes"))
            self._warn_of_growth(candidate, pod_set, pod, found)
            return
        self._decide_shortage(candidate, pod_set, pod, found, wanted)

    def _capacity(self, pod: PodClass, occupied: Sequence[Place]) -> Capacity:
        rooms = [(place, place.room(pod)) for place in self._cluster.accepting(pod, occupied)]
        return capacity(pod, rooms, occupied)

    def _decide_shortage(
        self, candidate: Candidate, pod_set: PodSet, pod: PodClass, found: Capacity, wanted: int
    ) -> None:
        """The nodes are not known to have room enough: say so, unless something else may make it."""
        workload = candidate.workload
        if pod.preempts and any(
            other.priority < pod.priority for place in self._cluster.places for other in place.running
        ):
            evicting = self._capacity(pod, self._places_for(pod, pod.priority))
            if evicting.is_exact and evicting.least >= wanted and not pod.spread and not pod.affinity:
                candidate.decide(Verdict.FITS)
                candidate.warnings.append(explain.evicts(workload, pod_set, pod))
                return
            if evicting.most >= wanted:
                candidate.decide(Verdict.UNDETERMINED, explain.evicts(workload, pod_set, pod))
                return
        perhaps = self._cluster.perhaps(pod)
        unknown = any(place.node.unknown for place in perhaps)
        if unknown or (perhaps and self._capacity_with(pod, perhaps) >= wanted):
            candidate.decide(
                Verdict.UNDETERMINED,
                explain.unknown_nodes(workload, pod_set, perhaps, pod.refusals(perhaps[0].node)),
            )
        elif found.most >= wanted:
            candidate.decide(Verdict.UNDETERMINED, explain.order_decides(workload, pod_set, found, wanted))
        elif self._friends(candidate, pod):
            self._place_with_friends(candidate, pod_set, pod, wanted)
        else:
            refused = {id(place): pod.refusals(place.node) for place in self._occupied}
            candidate.decide(
                Verdict.CANNOT_FIT,
                explain.shortage(workload, pod_set, pod, self._occupied, refused, found, wanted),
            )

    def _capacity_with(self, pod: PodClass, perhaps: Sequence[Place]) -> int:
        named = {id(place.node) for place in perhaps}
        rooms = [
            (place, place.room(pod))
            for place in self._occupied
            if id(place.node) in named or not pod.refusals(place.node)
        ]
        return sum(place.count * room for place, room in rooms)

    def _friends(self, candidate: Candidate, pod: PodClass) -> list[Candidate]:
        """Other workloads whose pods this one wants to be near, or whose pods count for its spreading."""
        return [
            other
            for other in self._candidates
            if other is not candidate
            and any(
                any(term.matches(theirs) for term in pod.affinity)
                or any(constraint.counts(pod, theirs) for constraint in pod.spread)
                for _, theirs in other.sets
            )
        ]

    def _place_with_friends(self, candidate: Candidate, pod_set: PodSet, pod: PodClass, wanted: int) -> None:
        """The pods want company: judge them with those that they look for."""
        company = [candidate]
        for member in company:
            for _, theirs in member.sets:
                company += [friend for friend in self._friends(member, theirs) if friend not in company]
        sets = [(theirs, s.count) for member in company for s, theirs in member.sets if s.count > 0]
        outcome = search(sets, self._occupied, each=True)
        if outcome is None or not outcome.exhausted or any(member.is_refused for member in company):
            candidate.decide(Verdict.UNDETERMINED, explain.company(workload=candidate.workload, pod_set=pod_set))
            return
        index = next(number for number, (theirs, _) in enumerate(sets) if theirs is pod)
        if outcome.least[index] >= wanted:
            candidate.decide(Verdict.FITS)
        elif outcome.most[index] >= wanted:
            candidate.decide(Verdict.UNDETERMINED, explain.company(workload=candidate.workload, pod_set=pod_set))
        else:
            refused = {id(place): pod.refusals(place.node) for place in self._occupied}
            found = Capacity(outcome.least[index], outcome.most[index], "pod-affinity")
            candidate.decide(
                Verdict.CANNOT_FIT,
                explain.shortage(candidate.workload, pod_set, pod, self._occupied, refused, found, wanted),
            )

    def _warn_of_growth(self, candidate: Candidate, pod_set: PodSet, pod: PodClass, found: Capacity) -> None:
        for rule, count in ceilings(candidate.workload, pod_set.count):
            if count > found.most:
                candidate.warnings.append(
                    explain.ceiling_nodes(candidate.workload, pod_set, pod, rule, count, found.most)
                )

    def _place_sets(self, candidate: Candidate) -> None:
        """A JobSet: all its sets at once."""
        workload = candidate.workload
        for pod_set, pod in candidate.sets:
            found = self._capacity(pod, self._occupied)
            if pod_set.count > found.most:
                refused = {id(place): pod.refusals(place.node) for place in self._occupied}
                candidate.decide(
                    Verdict.CANNOT_FIT,
                    explain.shortage(workload, pod_set, pod, self._occupied, refused, found, pod_set.count),
                )
        if candidate.verdict is not None:
            return
        judged = stack.judge_together(self.demands([candidate], self._occupied), self._occupied)
        if judged.verdict is Verdict.FITS:
            candidate.decide(Verdict.FITS)
        else:
            candidate.decide(judged.verdict, explain.sets_compete(workload, judged))

    def demands(self, candidates: Iterable[Candidate], occupied: Sequence[Place]) -> list[stack.Demand]:
        """What workloads need at once, of these places."""
        return [
            stack.Demand(
                pod,
                self._cluster.count(candidate.workload, pod_set, pod),
                self._cluster.accepting(pod, occupied),
                everywhere=candidate.workload.kind == "DaemonSet",
            )
            for candidate in candidates
            for pod_set, pod in candidate.sets
            if pod_set.count
        ]
