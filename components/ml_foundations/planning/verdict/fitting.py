"""Whether each workload finds its place: beside the pods that run already, and DaemonSets that come first or later."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain, takewhile

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import Manifest, items, name_of, section
from ml_foundations.kubernetes.selectors import REQUIRED
from ml_foundations.planning.api_server.cluster import Cluster
from ml_foundations.planning.model.decisions import (
    AdmittedWorkload,
    Competition,
    GrowthStops,
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
from ml_foundations.planning.model.refusals import Refusal, told
from ml_foundations.planning.model.storage import access_modes
from ml_foundations.planning.model.workloads import PodSet
from ml_foundations.planning.scheduler.capacity import Capacity, capacity
from ml_foundations.planning.scheduler.competition import independent_sets, judge_together
from ml_foundations.planning.scheduler.exhaustive_search import search
from ml_foundations.planning.scheduler.filters import refusals
from ml_foundations.planning.verdict import explain, shortage


class Fitting:
    """The nodes of a cluster, for one workload after the other."""

    def __init__(self, cluster: Cluster, candidates: Sequence[AdmittedWorkload]) -> None:
        """Take what the DaemonSets among the candidates need from the nodes."""
        self._cluster = cluster
        self._candidates = candidates
        daemons = [
            c.pod_sets[0][1]
            for c in candidates
            if c.workload.kind == "DaemonSet" and c.pod_sets and _may_run(c)
        ]
        self._daemons = [PodGroup(pod, 0, self._of_daemon(pod), everywhere=True) for pod in daemons]

    def _of_daemon(self, pod: PodClass) -> list[NodeGroup]:
        """The places where the pods of a DaemonSet run, or may run."""
        wanted = [*self._cluster.accepting(pod), *self._cluster.possibly_accepting(pod)]
        able = (place for place in wanted if place.room(pod))
        return list(
            {
                id(p): p for p in able if not (pod.volume_refusals and pod.volume_refusals(p.node))
            }.values()
        )

    def _places_for(
        self, daemons: Iterable[PodGroup], least_priority: int | None = None
    ) -> list[NodeGroup]:
        """All places with DaemonSets' pods; without running pods that pods of a priority may evict."""
        of_place: dict[int, list[PodClass]] = {}
        for daemon in daemons:
            for place in daemon.places:
                of_place.setdefault(id(place), []).append(daemon.pod)
        found: list[NodeGroup] = []
        for place in self._cluster.places:
            mine = of_place.get(id(place), ())
            stay = [
                pod
                for pod in place.running
                if least_priority is None or pod.priority >= least_priority
            ]
            is_same = not mine and len(stay) == len(place.running)
            found.append(place if is_same else carrying(place.node, (*stay, *mine)))
        return found

    @cached_property
    def occupied(self) -> list[NodeGroup]:
        """All places with the pods of the DaemonSets."""
        return self._places_for(self._daemons)

    def _rivals(self, pods: Iterable[PodClass]) -> list[PodGroup]:
        """The DaemonSets that do not evict all of some pods: whichever comes first takes the room."""
        highest = max(pod.priority for pod in pods)
        return [
            each
            for each in self._daemons
            if not (each.pod.preempts and each.pod.priority > highest)
        ]

    def _without(
        self, rivals: Sequence[PodGroup], least_priority: int | None = None
    ) -> list[NodeGroup]:
        """All places as pods find them that come before some DaemonSets."""
        return self._places_for(
            [each for each in self._daemons if each not in rivals], least_priority
        )

    def place(self, candidate: AdmittedWorkload) -> None:
        """Give a workload's verdict."""
        if candidate.workload.kind == "DaemonSet":
            self._place_daemons(candidate)
        elif candidate.workload.may_start_in_parts:
            self._place_loose(candidate)
        elif len(candidate.pod_sets) == 1:
            self._place_one_set(candidate)
        else:
            self._place_sets(candidate)

    def place_refused(self, candidate: AdmittedWorkload) -> None:
        """Add why pods that are refused, or may be, would not fit either: all errors of a workload are shown at once.

        Of a workload in a queue, that holds if no flavor's nodes take the pods.
        """
        ways = (
            candidate.flavor_choices
            if candidate.workload.queue is not None
            else [candidate.pod_sets]
        )
        placed = [AdmittedWorkload(candidate.workload, list(sets)) for sets in ways]
        for each in placed:
            self.place(each)
        if placed and all(each.verdict is Verdict.CANNOT_FIT for each in placed):
            candidate.decide(Verdict.CANNOT_FIT)
            candidate.reasons += placed[0].reasons

    def judge_shared_claims(self) -> None:
        """Look at claims that pods on several nodes may mount.

        The scheduler does not look at whether one node at a time may attach a claim: the later pods wait on their nodes
        until the disk is detached. Where the first pod decides the zone of the volume, all others must be in it.
        """
        mounting: dict[int, tuple[Manifest, list[AdmittedWorkload]]] = {}
        for candidate in self._candidates:
            for claim in candidate.claims:
                mounting.setdefault(id(claim), (claim, []))[1].append(candidate)
        for claim, candidates in mounting.values():
            sets = [
                (pod_set, pod) for candidate in candidates for pod_set, pod in candidate.pod_sets
            ]
            places = list(
                {
                    id(place): place for _, pod in sets for place in self._cluster.accepting(pod)
                }.values()
            )
            if (
                sum(pod_set.count for pod_set, _ in sets) < 2
                or sum(place.count for place in places) < 2
            ):
                continue
            if set(access_modes(claim)) == {"ReadWriteOnce"}:
                apart = [
                    c
                    for c in candidates
                    if self._cluster.volumes.is_of_one_node(claim) and self._needs_nodes(c)
                ]
                for candidate in apart:
                    pods = candidate.pod_sets[0][0]
                    candidate.refuse(
                        [
                            told(
                                "one-node-is-too-small",
                                "volumes",
                                claim=name_of(claim),
                                count=pods.count,
                            )
                        ]
                    )
                if not apart:
                    candidates[0].warnings.append(
                        explain.shared_claim(name_of(claim), [c.workload for c in candidates])
                    )
            zones = {
                zone
                for place in places
                for zone in place.node.zones or (place.node.labels.get(labels.ZONE),)
            }
            is_split = len(candidates) > 1 or candidates[0].workload.all_at_once
            if is_split and len(zones) > 1 and self._cluster.volumes.gets_a_zone(claim):
                for candidate in candidates:
                    candidate.refuse(
                        [told("zone-of-the-first", "volumes", certain=False, claim=name_of(claim))]
                    )

    def judge_inline_disks(self) -> None:
        """Refuse several pods that write to one disk: pods of one node exclude each other, and others cannot attach it.

        The scheduler keeps them apart (its filter VolumeRestrictions), and does not look at the nodes that attach it.
        """
        for candidate in self._candidates:
            for pod_set, pod in candidate.pod_sets:
                if pod_set.count > 1 and candidate.workload.all_at_once and pod.writes_to_disks:
                    disk = min(str(name) for _, name, *_ in pod.writes_to_disks)
                    candidate.refuse(
                        [
                            told(
                                "disk-of-one-pod",
                                f"{pod_set.path}.volumes",
                                disk=disk,
                                count=pod_set.count,
                            )
                        ]
                    )

    def _needs_nodes(self, candidate: AdmittedWorkload) -> bool:
        """Return whether the pods of a workload, all of which must run at once, never find their place on one node."""
        [(pod_set, pod), *others] = candidate.pod_sets
        if others or not candidate.workload.all_at_once or candidate.unknowns or pod_set.count < 2:
            return False
        places = [
            *self._cluster.accepting(pod, self.occupied),
            *self._cluster.possibly_accepting(pod),
        ]
        if max((place.room(pod) for place in places), default=pod_set.count) < pod_set.count:
            return True
        over_nodes = (
            c
            for c in pod.spread
            if c.key == HOSTNAME and c.counts_itself(pod) and c.max_skew < pod_set.count
        )
        return any(
            sum(place.count for place in places if pod.is_eligible(c, place.node)) > 1
            for c in over_nodes
        )

    def failing(self, judged: Sequence[AdmittedWorkload]) -> Iterable[Refusal]:
        """Why Jobs may fail where not all pods have room at once: time passes, or evicted pods count as failed."""
        highest = max(
            (pod.priority for each in judged for _, pod in each.pod_sets if pod.preempts), default=0
        )
        fragile: list[tuple[set[int], Refusal]] = []
        for job in judged:
            is_evicted = any(
                pod.priority < highest and not pod.recreated for _, pod in job.pod_sets
            )
            is_left_alone = (
                job.workload.is_finite
                and job.workload.queue is None
                and job.verdict is Verdict.FITS
            )
            if is_left_alone and (is_evicted or job.workload.deadline is not None):
                rule = "evicted-job" if is_evicted else "waits-too-long"
                own = {id(pod) for _, pod in job.pod_sets}
                fragile.append((own, told(rule, certain=False, object=str(job.workload))))
        for group in (
            independent_sets(self.demands(judged, self._cluster.places)) if fragile else ()
        ):
            pods = {id(demand.pod) for demand in group}
            found = [refusal for own, refusal in fragile if not own.isdisjoint(pods)]
            if found and self.judge_together(group, self._cluster.places)[0] is not Verdict.FITS:
                yield from found

    def _place_daemons(self, candidate: AdmittedWorkload) -> None:
        """A DaemonSet runs on every node that takes it."""
        pod_set, pod = candidate.pod_sets[0]
        accepting, perhaps = self._cluster.accepting(pod), self._cluster.possibly_accepting(pod)
        candidate.decide(Verdict.FITS)
        if not accepting and not perhaps:
            candidate.warnings.append(
                shortage.daemon_set_nowhere(pod_set, pod, self._cluster.places)
            )
        for place in perhaps:
            refused = refusals(pod, place.node)
            candidate.decide(
                Verdict.UNDETERMINED, explain.node_refuses(pod_set, place.node, refused[0])
            )
        for place in accepting:
            if refused := refusals(pod, place.node):
                certain = any(refusal.certain for refusal in refused)
                reason = explain.node_refuses(pod_set, place.node, refused[0], must_run=True)
                candidate.decide(Verdict.CANNOT_FIT if certain else Verdict.UNDETERMINED, reason)
            elif not place.room(pod):
                stay = [
                    each
                    for each in place.running
                    if each.priority >= pod.priority or not pod.preempts
                ]
                if carrying(place.node, stay).room(pod):
                    candidate.decide(Verdict.UNDETERMINED, explain.eviction(pod_set, pod))
                else:
                    candidate.decide(Verdict.CANNOT_FIT, explain.node_is_full(pod_set, pod, place))
        if not pod.is_simple:
            demand = PodGroup(pod, pod_set.count, accepting, everywhere=True)
            verdict, _ = judge_together([demand], self._cluster.places)
            if verdict is not Verdict.FITS and candidate.verdict is Verdict.FITS:
                if self._friends(pod):
                    self._place_with_friends(candidate, pod_set, pod, pod_set.count)
                else:
                    verb = "cannot" if verdict is Verdict.CANNOT_FIT else "perhaps cannot"
                    candidate.decide(verdict, told("daemon-set-apart", pod_set.path, verb=verb))

    def _place_one_set(self, candidate: AdmittedWorkload) -> None:
        workload, (pod_set, pod) = candidate.workload, candidate.pod_sets[0]
        most = max(pod_set.count, *(count for _, count in workload.ceilings), 0)
        if not pod_set.count or self._is_roomy(pod, most):
            candidate.decide(Verdict.FITS)
            return
        wanted = pod_set.count if workload.all_at_once else 1
        found = self._bounds(pod, wanted)
        is_open = found.least < pod_set.count <= found.most
        if is_open and (outcome := self._search([(pod_set, pod)], pod)):
            found = Capacity(*outcome, found.limited_by)
        if found.least < wanted:
            self._decide_shortage(candidate, pod_set, pod, found, wanted)
            return
        candidate.decide(Verdict.FITS)
        if found.least < pod_set.count:
            candidate.warnings.append(in_turns(pod_set, found.least, "the nodes allow"))
            waits = told("waits-too-long", "activeDeadlineSeconds", certain=False)
            candidate.refuse([waits] if workload.deadline is not None else ())
        for rule, count in workload.ceilings:
            is_short = count > found.most
            most = (
                self._rollout_room(pod, pod_set.count, count)
                if is_short and rule == "rollout-surge"
                else 0
            )
            if count > (limit := max(found.most, most)):
                candidate.warnings.append(GrowthStops(rule, pod_set, pod, count, limit))

    def _rollout_room(self, pod: PodClass, count: int, wanted: int) -> int:
        """Return how many old and new pods find a place if their affinity tells them apart; else 0."""
        new_labels = {
            **pod.labels,
            labels.TEMPLATE_HASH: f"{pod.labels.get(labels.TEMPLATE_HASH)} new",
        }
        new = self._cluster.pod_class(
            pod.name, pod.namespace, new_labels, pod.spec, volume_refusals=pod.volume_refusals
        )
        if all(
            old.selector == other.selector
            for old, other in zip(_terms(pod), _terms(new), strict=True)
        ):
            return 0
        places = self.occupied
        for surge in range(wanted - count, 0, -1):
            pods = ((pod, count), (new, surge))
            demands = [
                PodGroup(each, number, self._cluster.accepting(each, places))
                for each, number in pods
            ]
            if self.judge_together(demands, places)[0] is not Verdict.CANNOT_FIT:
                return count + surge
        return 0

    def _is_roomy(self, pod: PodClass, wanted: int) -> bool:
        """Whether nothing but room decides, and there is enough of it: whoever comes first."""
        if not pod.is_simple or self._daemons or self._cluster.running:
            return False
        for place in self._cluster.accepting(pod, self.occupied):
            wanted -= place.count * place.room(pod)
            if wanted <= 0:
                return True
        return False

    def _bounds(self, pod: PodClass, wanted: int, least_priority: int | None = None) -> Capacity:
        """How many pods find a place, whether DaemonSets come before them or after."""
        late = (
            self.occupied
            if least_priority is None
            else self._places_for(self._daemons, least_priority)
        )
        found = self._capacity(pod, late)
        counted = any(
            constraint.counts(pod, each.pod) for constraint in pod.spread for each in self._daemons
        )
        rivals = self._rivals([pod]) if found.least < wanted or counted else []
        if not rivals:
            return found
        early = self._capacity(pod, free := self._without(rivals, least_priority))
        most = (
            sum(place.count * place.room(pod) for place in free)
            if counted
            else max(found.most, early.most)
        )
        return Capacity(0 if counted else min(found.least, early.least), most, found.limited_by)

    def _search(
        self, sets: Iterable[tuple[PodSet, PodClass]], pod: PodClass
    ) -> tuple[int, int] | None:
        """How many pods of a class find a place beside other sets and the DaemonSets, in every order; None if unknown.

        A DaemonSet that the API server refuses is not among them.
        """
        demands = [self._demand(*each, self._cluster.places) for each in sets]
        demands += [
            replace(each, count=sum(place.count for place in each.places)) for each in self._daemons
        ]
        outcome = search(demands, self._cluster.places, each=True)
        index = next((number for number, demand in enumerate(demands) if demand.pod is pod), None)
        if index is None or not outcome or not outcome.exhausted:
            return None
        return outcome.least[index], outcome.most[index]

    def _capacity(self, pod: PodClass, occupied: Sequence[NodeGroup]) -> Capacity:
        return capacity(
            pod,
            [(place, place.room(pod)) for place in self._cluster.accepting(pod, occupied)],
            occupied,
        )

    def _decide_shortage(
        self,
        candidate: AdmittedWorkload,
        pod_set: PodSet,
        pod: PodClass,
        found: Capacity,
        wanted: int,
    ) -> None:
        """The nodes are not known to have room enough: decide so, unless something else may make it."""
        if pod.preempts and any(
            other.priority < pod.priority
            for place in self._cluster.places
            for other in place.running
        ):
            evicting = self._bounds(pod, wanted, pod.priority)
            is_alone = len(candidate.pod_sets) == 1 and not pod.spread and not pod.affinity
            if is_alone and evicting.least >= wanted:
                candidate.decide(Verdict.FITS)
                candidate.warnings.append(explain.eviction(pod_set, pod))
                return
            if evicting.most >= wanted:
                candidate.decide(Verdict.UNDETERMINED, explain.eviction(pod_set, pod))
                return
        perhaps = self._cluster.possibly_accepting(pod)
        if any(place.node.unknown for place in perhaps) or (
            perhaps and self._room_with(pod, perhaps) >= wanted
        ):
            first = perhaps[0].node
            candidate.decide(
                Verdict.UNDETERMINED, explain.node_refuses(pod_set, first, refusals(pod, first)[0])
            )
        elif found.most < wanted and self._friends(pod):
            self._place_with_friends(candidate, pod_set, pod, wanted)
        else:
            self._decide_by_capacity(candidate, pod_set, pod, found, wanted)

    def _decide_by_capacity(
        self,
        candidate: AdmittedWorkload,
        pod_set: PodSet,
        pod: PodClass,
        found: Capacity,
        wanted: int,
    ) -> None:
        reason = Shortage(
            pod_set, pod, self.occupied, found.least, found.most, found.limited_by, wanted
        )
        candidate.decide(
            Verdict.UNDETERMINED if found.most >= wanted else Verdict.CANNOT_FIT, reason
        )

    def _room_with(self, pod: PodClass, perhaps: Sequence[NodeGroup]) -> int:
        """The room for pods, with the nodes that may accept them."""
        named = {id(place.node) for place in perhaps}
        places = [p for p in self.occupied if id(p.node) in named or not refusals(pod, p.node)]
        return sum(place.count * place.room(pod) for place in places)

    def _friends(self, pod: PodClass) -> list[AdmittedWorkload]:
        """Workloads whose other pods these want to be near, or whose other pods count for their spreading."""

        def counts(theirs: PodClass) -> bool:
            near = any(term.matches(theirs) for term in pod.affinity)
            return near or any(constraint.counts(pod, theirs) for constraint in pod.spread)

        others = self._candidates if pod.affinity or pod.spread else ()
        return [other for other in others if any(map(counts, _beside(other, pod)))]

    def _place_with_friends(
        self, candidate: AdmittedWorkload, pod_set: PodSet, pod: PodClass, wanted: int
    ) -> None:
        """The pods want company: judge them with those that they look for."""
        company = [candidate]
        for member in company:
            for _, theirs in member.pod_sets:
                company += [friend for friend in self._friends(theirs) if friend not in company]
        members = [member for member in company if member.workload.kind != "DaemonSet"]
        sets = [each for member in members for each in member.pod_sets if each[0].count]
        outcome = self._search(sets, pod)
        least, most = outcome or (0, wanted)
        # Pods that have ended are no company.
        others = [member.workload for member in members if member is not candidate]
        ends = any(other.is_finite or other.may_make_room for other in others)
        refused = any(member.is_refused or member.unknowns for member in company)
        # Pods that come to a namespace which a term selects do not make the scheduler look again at once.
        terms = items(section(pod.spec, "affinity", "podAffinity"), REQUIRED)
        refused = refused or any(term.get("namespaceSelector") for term in terms)
        if refused or least < wanted <= most or (ends and least >= wanted):
            candidate.decide(Verdict.UNDETERMINED, told("near-others", f"{pod_set.path}.affinity"))
        elif least >= wanted:
            candidate.decide(Verdict.FITS)
        else:
            rule = "pod-affinity" if pod.affinity else "topology-spread"
            self._decide_by_capacity(candidate, pod_set, pod, Capacity(least, most, rule), wanted)

    def _place_loose(self, candidate: AdmittedWorkload) -> None:
        """NodeGroup a JobSet of which nothing says that its pods need each other.

        It fits if all pods that may run together find a place, and cannot fit if one pod alone finds none. Else it
        depends on whether its pods wait for each other.
        """
        workload = candidate.workload
        together = [AdmittedWorkload(workload, sets) for sets in candidate.phases()]
        for each in together:
            self._place_sets(each)
        open_ = [each for each in together if each.verdict is not Verdict.FITS]
        for pod_set, pod in candidate.pod_sets if open_ else ():
            alone = AdmittedWorkload(
                workload, [(replace(pod_set, count=min(pod_set.count, 1)), pod)]
            )
            self._place_sets(alone)
            if alone.verdict is Verdict.CANNOT_FIT:
                candidate.decide(Verdict.CANNOT_FIT)
                candidate.reasons += alone.reasons
        if candidate.verdict is None:
            candidate.decide(Verdict.UNDETERMINED if open_ else Verdict.FITS)
            for each in open_[:1]:
                candidate.refuse(
                    [told("loose-job-set", "spec.replicatedJobs", certain=False, gang=labels.GANG)]
                )
                candidate.decide(Verdict.UNDETERMINED, *(reason for _, reason in each.reasons))

    def _place_sets(self, candidate: AdmittedWorkload) -> None:
        """A JobSet: all its sets at once."""
        for pod_set, pod in candidate.pod_sets:
            found = self._bounds(pod, pod_set.count)
            if pod_set.count > found.most:
                self._decide_shortage(candidate, pod_set, pod, found, pod_set.count)
        if candidate.verdict in (None, Verdict.FITS):
            demands = self.demands([candidate], self.occupied)
            verdict, shortfall = self.judge_together(demands, self.occupied)
            rivals = (
                self._rivals(pod for _, pod in candidate.pod_sets)
                if verdict is Verdict.CANNOT_FIT
                else ()
            )
            if rivals:
                early = self._without(rivals)
                verdict, shortfall = self.judge_together(
                    demands := self.demands([candidate], early), early
                )
                verdict = Verdict.UNDETERMINED if verdict is Verdict.FITS else verdict
            candidate.decide(verdict)
            if verdict is not Verdict.FITS:
                path = (
                    "spec.replicatedJobs"
                    if candidate.workload.kind == "JobSet"
                    else candidate.pod_sets[0][0].count_path
                )
                candidate.decide(verdict, Competition(demands, shortfall, of_one=path))

    def _demand(
        self, pod_set: PodSet, pod: PodClass, among: Sequence[NodeGroup] | None = None
    ) -> PodGroup:
        accepting = self._cluster.accepting(pod, self.occupied if among is None else among)
        return PodGroup(pod, pod_set.count, accepting, everywhere=pod.one_per_node)

    def judge_together(
        self, demands: Sequence[PodGroup], places: Sequence[NodeGroup]
    ) -> tuple[Verdict, Shortfall | None]:
        """Whether demands find their place together; not known where other nodes may accept some of them."""
        verdict, shortfall = judge_together(demands, places)
        if verdict is Verdict.CANNOT_FIT and any(
            self._cluster.possibly_accepting(demand.pod) for demand in demands
        ):
            verdict = Verdict.UNDETERMINED
        return verdict, shortfall

    def demands(
        self, candidates: Iterable[AdmittedWorkload], among: Sequence[NodeGroup]
    ) -> list[PodGroup]:
        """What workloads need at once, of these places."""
        sets = [each for candidate in candidates for each in candidate.pod_sets]
        return [self._demand(*each, among) for each in sets if each[0].count]


def _beside(candidate: AdmittedWorkload, pod: PodClass) -> list[PodClass]:
    """The pods of a workload beside some; of a StatefulSet that makes one after the other, those before them."""
    pods = [theirs for _, theirs in candidate.pod_sets]
    before = list(takewhile(lambda theirs: theirs is not pod, pods))
    in_order = (
        section(candidate.workload.manifest, "spec").get("podManagementPolicy", "OrderedReady")
        != "Parallel"
    )
    return (
        before
        if in_order and candidate.workload.kind == "StatefulSet"
        else [*before, *pods[len(before) + 1 :]]
    )


def _terms(pod: PodClass) -> Iterable[AffinityTerm | SpreadConstraint]:
    return chain(pod.anti_affinity, pod.spread, pod.affinity)


def _may_run(candidate: AdmittedWorkload) -> bool:
    """Whether the API server accepts pods of a workload, be it too few of them."""
    return not any(
        v is Verdict.CANNOT_FIT and isinstance(reason, Refusal) for v, reason in candidate.reasons
    )
