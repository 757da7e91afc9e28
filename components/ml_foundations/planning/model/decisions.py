"""What is decided, as data: verdicts, and the reasons for them, for ``verdict/explain.py`` to put into words."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from ml_foundations.kubernetes.objects import Manifest, name_of
from ml_foundations.kubernetes.quantities import Amounts
from ml_foundations.kubernetes.words import verb
from ml_foundations.planning.model.node_groups import NodeGroup, PodClass, PodGroup
from ml_foundations.planning.model.refusals import Refusal, told
from ml_foundations.planning.model.workloads import PodSet, Workload, ordinals


class Verdict(StrEnum):
    """Whether something finds its place."""

    FITS = "fits"
    """Whatever the arrival order and the scheduler's choices, everything finds its place."""
    CANNOT_FIT = "cannot-fit"
    """No assignment exists."""
    UNDETERMINED = "undetermined"
    """Neither is proved."""


RANKS = {Verdict.FITS: 0, Verdict.UNDETERMINED: 1, Verdict.CANNOT_FIT: 2}
"""The higher, the worse."""


def together(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict on several things of which each must find its place."""
    return max(verdicts, key=RANKS.__getitem__, default=Verdict.FITS)


@dataclass(frozen=True)
class QuotaExceeded:
    """More is charged than a quota leaves, in thousandths: by the workload alone, or by several together."""

    quota: Manifest
    resource: str
    wanted: int
    free: int
    hard: int
    workloads: Sequence[Workload | str] = ()
    in_all: bool = False
    """Whether it is so in time only, by what pods that have ended leave until their Job is deleted."""


@dataclass(frozen=True)
class GrowthStops:
    """A rollout or an autoscaler finds no room for more pods: in a quota, or on the nodes for more than ``most``."""

    rule: str
    pods: PodSet
    pod: PodClass
    count: int
    limit: QuotaExceeded | int


def in_turns(pods: PodSet, most: int, limit: str) -> Refusal:
    """Only this many pods of a Job run at a time, because of a limit such as "the nodes allow"."""
    path, run = pods.count_path, verb(most, "runs", "run")
    return told("in-turns", path, most=most, count=pods.count, run=run, limit=limit, field=path)


@dataclass(frozen=True)
class Shortage:
    """Fewer pods than wanted find a place for certain: at least ``least``, and ``most`` at most.

    Attributes:
        places: All places, with what DaemonSets take.
        limited_by: The rule that makes ``most`` smaller than the nodes' room.
    """

    pods: PodSet
    pod: PodClass
    places: Sequence[NodeGroup]
    least: int
    most: int
    limited_by: str
    wanted: int


@dataclass(frozen=True)
class Shortfall:
    """What demands need together, and what all nodes offer that take any of them, of the resources that are short."""

    needed: Mapping[str, int]
    offered: Mapping[str, int]
    nodes: Sequence[str]


@dataclass(frozen=True)
class Competition:
    """Demands that compete do not find their places at once, or perhaps not.

    Attributes:
        demands: The pods.
        shortfall: What is missing for certain, where that is known.
        job: The Job that may wait, where the others stay.
        beside: The workloads that stay.
        of_one: Where one workload says how many there are, where all are of one.
    """

    demands: Sequence[PodGroup]
    shortfall: Shortfall | None
    job: Workload | None = None
    beside: Sequence[Workload] = ()
    of_one: str = ""


Reason = Refusal | QuotaExceeded | GrowthStops | Shortage | Competition
"""Why something does not fit, or perhaps not."""


_MAKES_VOLUMES = "volumeClaimPolicies"
"""The field by which a JobSet adds volumes to its pods, which they mount without declaring them."""

QueueUsage = tuple[Manifest, str, Manifest, Amounts]
"""What pods draw from a ClusterQueue of Kueue: it, the path of their number, their template's spec, their requests."""


@dataclass(eq=False, slots=True)
class AdmittedWorkload:
    """A workload with its pods as the scheduler would see them, and what is decided about it.

    Attributes:
        pod_sets: Its sets of pods; those of a DaemonSet with their number on these nodes.
        claims: The declared claims that its pods mount.
        existing_claims: The claims that are there already, of those that are made for its pods.
        is_refused: Whether the API server refuses some of its pods.
        unknowns: What planning does not know of it: nothing is certain then.
        queue_usage: What it draws from the queue that it waits in.
        flavor_choices: Its sets as each flavor of its queue makes them; empty if the flavors are not known.
    """

    workload: Workload
    pod_sets: list[tuple[PodSet, PodClass]] = field(default_factory=list[tuple[PodSet, PodClass]])
    claims: Sequence[Manifest] = ()
    existing_claims: Sequence[Manifest] = ()
    verdict: Verdict | None = None
    reasons: list[tuple[Verdict, Reason]] = field(default_factory=list[tuple[Verdict, Reason]])
    warnings: list[Reason] = field(default_factory=list[Reason])
    is_refused: bool = False
    unknowns: Sequence[Refusal] = ()
    queue_usage: Sequence[QueueUsage] = ()
    flavor_choices: Sequence[Sequence[tuple[PodSet, PodClass]]] = ()

    @property
    def is_plain(self) -> bool:
        """Whether nothing is said of it, and its pods have nothing of their own."""
        said = self.verdict or self.reasons or self.warnings or self.claims or self.existing_claims
        return not said and all(
            pod.volume_refusals is None and not pod.made_claims for _, pod in self.pod_sets
        )

    def copy_for(self, workload: Workload) -> "AdmittedWorkload":
        """The same of another workload that nothing tells apart."""
        whose = {"name": str(workload), "namespace": workload.namespace}
        sets = [
            (own, pod.of(**whose, labels=own.labels))
            for own, (_, pod) in zip(workload.pods, self.pod_sets, strict=True)
        ]
        return AdmittedWorkload(workload, sets, queue_usage=self.queue_usage)

    def phases(self) -> list[list[tuple[PodSet, PodClass]]]:
        """Return its sets of pods that run at the same time: all, or those of each phase of a JobSet."""
        phases = self.workload.phases or (frozenset(pods.count_path for pods, _ in self.pod_sets),)
        return [[each for each in self.pod_sets if each[0].count_path in phase] for phase in phases]

    def required_pods(self, pods: PodSet, *, in_all: bool = False) -> int:
        """How many pods of a set there must be: of a Job one at a time; in all, each that does its work."""
        count = pods.count if self.workload.all_at_once else min(pods.count, 1)
        return max(count, self.workload.completions) if in_all else count

    def made_claims(self, *, in_all: bool = False) -> Iterable[tuple[Manifest, int]]:
        """The claims that are made for its pods, with their number; in all, for each that is created."""
        for pod_set, pod in self.pod_sets:
            for claim in pod.made_claims:
                count = max(self.required_pods(pod_set, in_all=in_all), in_all * pod_set.count)
                kept = sum(
                    name_of(each).startswith(f"{name_of(claim)}-{self.workload.name}-")
                    for each in self.existing_claims
                )
                yield claim, min(count, len(ordinals(self.workload)) - kept) if kept else count

    def decide(self, verdict: Verdict, *reasons: Reason) -> None:
        """Give the verdict, unless it has a worse one."""
        self.verdict = together([verdict] if self.verdict is None else [verdict, self.verdict])
        self.reasons += [(verdict, reason) for reason in reasons]

    @property
    def is_refused_at_worst(self) -> bool:
        """Whether all that is decided so far keeps its pods from being created, or may do so, and changes no pod."""
        return all(
            verdict is Verdict.CANNOT_FIT or _can_only_refuse(reason)
            for verdict, reason in self.reasons
        )

    def ignore(self, is_ignored: Callable[[Verdict, Reason], bool]) -> bool:
        """Drop the reasons that the user accepts and return whether there were any. The others decide the verdict."""
        kept = [each for each in self.reasons if not is_ignored(*each)]
        if len(kept) == len(self.reasons):
            return False
        self.reasons = kept
        self.verdict = together(verdict for verdict, _ in kept) if kept else None
        self.is_refused = self.is_refused and self.verdict is Verdict.CANNOT_FIT
        return True

    def downgrade_unknown(self) -> None:
        """Take back what is decided where something is not known; what is invalid stays so."""
        makes_volumes = any(gap.path.endswith(_MAKES_VOLUMES) for gap in self.unknowns)
        is_invalid = any(
            isinstance(r, Refusal)
            and r.rule == "invalid"
            and r.certain
            and not (makes_volumes and "volume" in r.path)
            for _, r in self.reasons
        )
        if is_invalid and all(gap.rule == "unknown-field" for gap in self.unknowns):
            self.unknowns = ()
        if self.unknowns:
            self.verdict = Verdict.UNDETERMINED
            self.reasons = [
                (Verdict.UNDETERMINED, reason)
                for reason in (*self.unknowns, *(r for _, r in self.reasons))
            ]

    def refuse(self, reasons: Iterable[Refusal | QuotaExceeded]) -> None:
        """Decide what the API server refuses, or may refuse."""
        for reason in reasons:
            certain = not isinstance(reason, Refusal) or reason.certain
            self.decide(Verdict.CANNOT_FIT if certain else Verdict.UNDETERMINED, reason)


def _can_only_refuse(reason: Reason) -> bool:
    return isinstance(reason, QuotaExceeded) or (
        isinstance(reason, Refusal) and reason.only_refuses
    )


def needed_claims(
    candidates: Sequence[AdmittedWorkload], *, in_all: bool = False
) -> list[tuple[Manifest, int]]:
    """The claims of some workloads' pods, with their number; a declared one is the same for all."""
    declared = {id(claim): (claim, 1) for candidate in candidates for claim in candidate.claims}
    return [
        *declared.values(),
        *(made for candidate in candidates for made in candidate.made_claims(in_all=in_all)),
    ]
