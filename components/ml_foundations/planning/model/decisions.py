"""Verdicts and their reasons as data; ``verdict/explain.py`` puts reasons into words."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple, Self

from ml_foundations.kubernetes.objects import Manifest, name_of, section
from ml_foundations.kubernetes.quantities import Amounts
from ml_foundations.planning.model.node_groups import Demand, NodeGroup, PodClass
from ml_foundations.planning.model.performance import unique
from ml_foundations.planning.model.refusals import Refusal, beyond_planning
from ml_foundations.planning.model.workloads import PodSet, Workload, ordinals


class Verdict(StrEnum):
    """A decision whether all pods of a workload, or of a stack, can run at once."""

    FITS = "fits"
    """All pods run, whatever the arrival order and the scheduler's choices."""
    CANNOT_FIT = "cannot-fit"
    """No assignment exists."""
    UNDETERMINED = "undetermined"
    """Neither is proved."""


RANKS = {Verdict.FITS: 0, Verdict.UNDETERMINED: 1, Verdict.CANNOT_FIT: 2}
"""A higher rank is a worse verdict."""


def together(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the verdict on several things that must all fit: the worst of theirs."""
    return max(verdicts, key=RANKS.__getitem__, default=Verdict.FITS)


@dataclass(frozen=True)
class QuotaExceeded:
    """A charge above what a quota leaves, in thousandths: by one workload or by several."""

    quota: Manifest
    resource: str
    needed: int
    free: int
    hard: int
    workloads: Sequence[Workload | str] = ()
    in_all: bool = False
    """Whether ended pods are part of the charge: they count until their Job is deleted."""


@dataclass(frozen=True)
class GrowthStops:
    """A rollout or an autoscaler that cannot add replicas: a quota or the nodes set a limit."""

    rule: str
    pod_set: PodSet
    pod: PodClass
    count: int
    limit: QuotaExceeded | int
    of_groups: bool = False
    """Whether each replica is a group of pods, and ``pod_set`` a part of it."""


@dataclass(frozen=True)
class InTurns:
    """Pods of a Job that run a few at a time, for a limit like "the nodes allow"."""

    pod_set: PodSet
    least: int
    """How many run at a time whatever the scheduler chooses."""
    most: int
    limit: str


@dataclass(frozen=True)
class Shortage:
    """Nodes for too few pods: for ``least`` in any order, for ``most`` in the best order."""

    pod_set: PodSet
    pod: PodClass
    node_groups: Sequence[NodeGroup]
    """All node groups, with the pods of DaemonSets."""
    least: int
    most: int
    limited_by: str
    """The rule that makes ``most`` smaller than the free resources would."""
    needed: int
    sources: Mapping[str, str] = field(default_factory=dict[str, str])
    """The fields of the pods' spec that are not of the template, and whose they are."""
    missing_for_all: int = 0
    """How many more of the roomiest nodes all pod sets of the workload need; 0 if not known."""


@dataclass(frozen=True)
class Shortfall:
    """The resources that are short: what demands need together, and what their nodes offer."""

    needed: Mapping[str, int]
    offered: Mapping[str, int]
    nodes: Sequence[str]


@dataclass(frozen=True)
class Competition:
    """Demands that compete for nodes and cannot all be met at once, or perhaps not."""

    demands: Sequence[Demand]
    shortfall: Shortfall | None
    """What is missing for certain, if that is known."""
    job: Workload | None = None
    """The Job that may wait, if other workloads stay."""
    staying: Sequence[Workload] = ()
    """The workloads that stay."""
    of_one: Sequence[str] = ()
    """The fields with the numbers of pods, if all are of one workload."""


Reason = Refusal | QuotaExceeded | GrowthStops | InTurns | Shortage | Competition
"""Why something does not fit, or perhaps not."""


_MAKES_VOLUMES = "volumeClaimPolicies"
"""The field by which a JobSet adds volumes that its pods mount without declaring them."""


class QueueUsage(NamedTuple):
    """Pods' use of a ClusterQueue."""

    queue: Manifest
    count_path: str
    """The path of the number of pods."""
    spec: Manifest
    requests: Amounts


class AdmittedPodSet(NamedTuple):
    """A pod set of an admitted workload."""

    pod_set: PodSet
    pod: PodClass
    """Its pods, as the scheduler sees them."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The verdict on a workload so far, with its reasons and warnings.

    Outcomes of several checks are added: the worst verdict counts. It is None if none decides.
    """

    verdict: Verdict | None = None
    reasons: tuple[tuple[Verdict, Reason], ...] = ()
    warnings: tuple[Reason, ...] = ()

    @classmethod
    def of(cls, verdict: Verdict, *reasons: Reason) -> Self:
        """Return a verdict with its reasons."""
        return cls(verdict, tuple([(verdict, reason) for reason in reasons]))

    @classmethod
    def refused(cls, reasons: Iterable[Refusal | QuotaExceeded]) -> Self:
        """Return what the API server rejects for certain, or may reject, as a verdict."""
        decided: list[tuple[Verdict, Reason]] = []
        for reason in reasons:
            is_certain = not isinstance(reason, Refusal) or reason.certain
            decided.append((Verdict.CANNOT_FIT if is_certain else Verdict.UNDETERMINED, reason))
        return cls(_worst(decided), tuple(decided))

    @classmethod
    def warned(cls, warnings: Iterable[Reason]) -> Self:
        """Return warnings without a verdict."""
        return cls(warnings=tuple(warnings))

    def __add__(self, added: "Outcome") -> "Outcome":
        # Most checks find nothing, of thousands of workloads.
        if added.verdict is None and not added.warnings:
            return self
        verdict = added.verdict
        if self.verdict is not None:
            verdict = self.verdict if verdict is None else together((self.verdict, verdict))
        return Outcome(verdict, self.reasons + added.reasons, self.warnings + added.warnings)

    @property
    def is_empty(self) -> bool:
        """Return whether there is no verdict, no reason and no warning."""
        return not (self.verdict or self.reasons or self.warnings)

    @property
    def may_not_fit(self) -> bool:
        """Return whether some reason is against the workload, certain or not."""
        return self.verdict not in (None, Verdict.FITS)

    @property
    def is_refused_at_worst(self) -> bool:
        """Return whether every reason can only reject pods: none changes their fields."""
        for verdict, reason in self.reasons:
            is_exceeded = isinstance(reason, QuotaExceeded)
            can_only_refuse = is_exceeded or (isinstance(reason, Refusal) and reason.only_refuses)
            if verdict is not Verdict.CANNOT_FIT and not can_only_refuse:
                return False
        return True

    def without(self, is_accepted: Callable[[Verdict, Reason], bool]) -> "Outcome":
        """Return the outcome of the reasons that the user does not accept."""
        kept: list[tuple[Verdict, Reason]] = []
        for verdict, reason in self.reasons:
            if not is_accepted(verdict, reason):
                kept.append((verdict, reason))
        is_same = len(kept) == len(self.reasons)
        return self if is_same else replace(self, verdict=_worst(kept), reasons=tuple(kept))


NOTHING_DECIDED = Outcome()


def _worst(reasons: Sequence[tuple[Verdict, Reason]]) -> Verdict | None:
    """Return the worst verdict of some reasons, or None if there are none."""
    return together([verdict for verdict, _ in reasons]) if reasons else None


def _copies_for(workload: Workload, pod_sets: Sequence[AdmittedPodSet]) -> list[AdmittedPodSet]:
    """Return the pod sets of an equivalent workload as those of a workload."""
    copies: list[AdmittedPodSet] = []
    for pod_set, (_, pod) in zip(workload.pods, pod_sets, strict=True):
        names = {"name": str(workload), "namespace": workload.namespace, "labels": pod_set.labels}
        copies.append(AdmittedPodSet(pod_set, pod.of(**names)))
    return copies


OTHER_FLAVOR = beyond_planning(
    "metadata.labels",
    "Kueue may admit its pods to a flavor whose nodes do not accept all of them",
    "Select the labels of one flavor.",
)
"""The doubt about pods that Kueue may admit to several flavors."""


@dataclass(frozen=True, eq=False, slots=True)
class AdmittedWorkload:
    """A workload with its pods as the scheduler would see them, and the outcome so far."""

    workload: Workload
    pod_sets: Sequence[AdmittedPodSet] = ()
    """Its pod sets; that of a DaemonSet with the number of pods on these nodes."""
    claims: Sequence[Manifest] = ()
    """The declared claims that its pods mount."""
    existing_claims: Sequence[Manifest] = ()
    """The claims that exist already, of those that are created for its pods."""
    queue_usage: Sequence[QueueUsage] = ()
    """What it uses of the queue that it waits in."""
    flavor_choices: Sequence[Sequence[AdmittedPodSet]] = ()
    """Its pod sets as each flavor of its queue changes them; empty if not known."""
    unknowns: Sequence[Refusal] = ()
    """What planning does not know of it: then nothing is certain."""
    outcome: Outcome = NOTHING_DECIDED

    def selection_of(self, node_labels: Manifest) -> tuple[int, int]:
        """Return how many pod sets select nodes with these labels, and minus all their labels."""
        selectors = [section(pod.spec, "nodeSelector") for _, pod in self.pod_sets]
        selecting = sum(node_labels.items() <= selector.items() for selector in selectors)
        return selecting, -sum(map(len, selectors))

    def in_each_flavor(self) -> "list[AdmittedWorkload]":
        """Return the workload with the pods of each choice of flavors, or itself."""
        if len(self.flavor_choices) < 2:
            return [self]
        variants: list[AdmittedWorkload] = []
        for choice in self.flavor_choices:
            usage: list[QueueUsage] = []
            for used, (_, pod) in zip(self.queue_usage, choice, strict=True):
                usage.append(used._replace(spec=pod.spec))
            variants.append(replace(self, pod_sets=choice, queue_usage=usage))
        return variants

    def with_outcome(self, outcome: Outcome) -> "AdmittedWorkload":
        """Return the workload with another outcome."""
        return replace(self, outcome=outcome)

    @property
    def verdict(self) -> Verdict | None:
        """The verdict so far."""
        return self.outcome.verdict

    @property
    def is_refused(self) -> bool:
        """Return whether the outcome so far is that it cannot fit."""
        return self.outcome.verdict is Verdict.CANNOT_FIT

    def is_charged_in(self, namespace: str) -> bool:
        """Return whether the quotas of a namespace count the workload, as far as it is known."""
        is_known = bool(self.pod_sets) and not self.unknowns
        return is_known and self.workload.namespace == namespace

    @property
    def is_plain(self) -> bool:
        """Return whether nothing is decided about it, and its pods have no separate volumes."""
        if not self.outcome.is_empty or self.claims or self.existing_claims:
            return False
        return not any(pod.volume_refusals or pod.made_claims for _, pod in self.pod_sets)

    def copy_for(self, workload: Workload) -> "AdmittedWorkload":
        """Return the same for another workload that no rule can tell apart."""
        choices = [_copies_for(workload, choice) for choice in self.flavor_choices]
        return AdmittedWorkload(
            workload,
            _copies_for(workload, self.pod_sets),
            queue_usage=self.queue_usage,
            flavor_choices=choices,
        )

    def phases(self) -> list[Sequence[AdmittedPodSet]]:
        """Return its pod sets that run together: all, or those of each phase of a JobSet."""
        if not self.workload.phases:
            return [self.pod_sets]
        phases: list[Sequence[AdmittedPodSet]] = []
        for paths in self.workload.phases:
            phases.append([pods for pods in self.pod_sets if pods.pod_set.path in paths])
        return phases

    def required_pods(self, pods: PodSet, *, in_all: bool = False) -> int:
        """Return how many pods of a set must run at once, or in all with those that follow."""
        count = pods.count if self.workload.all_at_once else min(pods.count, 1)
        return max(count, self.workload.completions) if in_all else count

    def made_claims(self, *, in_all: bool = False) -> Iterable[tuple[Manifest, int]]:
        """Yield the claims that are created for its pods, with their number at once, or in all."""
        missing: dict[str, int] = {}
        for pod_set, pod in self.pod_sets:
            for claim in pod.made_claims:
                count = self.required_pods(pod_set, in_all=in_all)
                if in_all:
                    count = max(count, pod_set.count)
                prefix = f"{name_of(claim)}-{self.workload.name}-"
                existing = sum(name_of(made).startswith(prefix) for made in self.existing_claims)
                if existing:
                    missing.setdefault(prefix, len(ordinals(self.workload)) - existing)
                    count = min(count, missing[prefix])
                    missing[prefix] -= count
                yield claim, count

    def downgrade_unknown(self) -> "AdmittedWorkload":
        """Return it as undetermined if something is not known; what is invalid stays invalid."""
        # An object with an unknown field is invalid anyway if another field is. The exception is a
        # JobSet's field that adds volumes: it can make mounts valid that name no volume.
        makes_volumes = any(gap.path.endswith(_MAKES_VOLUMES) for gap in self.unknowns)
        is_invalid = False
        known: list[Reason] = []
        for _, reason in self.outcome.reasons:
            if isinstance(reason, Refusal) and reason.rule == "invalid" and reason.certain:
                if makes_volumes and "volume" in reason.path:
                    continue
                is_invalid = True
            known.append(reason)
        if is_invalid and all(gap.rule == "unknown-field" for gap in self.unknowns):
            return replace(self, unknowns=())
        if not self.unknowns:
            return self
        undetermined = Outcome.of(Verdict.UNDETERMINED, *self.unknowns, *known)
        return self.with_outcome(replace(undetermined, warnings=self.outcome.warnings))


def needed_claims(
    workloads: Iterable[AdmittedWorkload], *, in_all: bool = False
) -> list[tuple[Manifest, int]]:
    """Return the claims of some workloads' pods with their number; a declared one counts once."""
    workloads = list(workloads)
    declared = unique(claim for admitted in workloads for claim in admitted.claims)
    claims = [(claim, 1) for claim in declared]
    for admitted in workloads:
        claims += admitted.made_claims(in_all=in_all)
    return claims
