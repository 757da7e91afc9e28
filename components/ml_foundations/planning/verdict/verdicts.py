"""All that planning has found."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ml_foundations.planning.model.decisions import Verdict
from ml_foundations.planning.model.volumes import Stored
from ml_foundations.planning.model.workloads import Workload
from ml_foundations.planning.verdict.cost import Cost, GpuCost, RunCost
from ml_foundations.planning.verdict.findings import Finding
from ml_foundations.planning.verdict.quota_needs import QuotaNeed
from ml_foundations.planning.verdict.retained import Retained


@dataclass(frozen=True, slots=True)
class WorkloadVerdict:
    """What becomes of one workload, counted alone with the DaemonSets and the pods that run already."""

    workload: Workload
    verdict: Verdict
    reasons: tuple[Finding, ...] = ()
    warnings: tuple[Finding, ...] = ()
    run_cost: RunCost | None = None
    """What one run costs at most, where the workload says how long it may last."""
    gpus: GpuCost | None = None
    """What its GPUs cost while all of its pods run, where it requests some."""


@dataclass(frozen=True)
class QuotaLeft:
    """What a ResourceQuota leaves once every workload runs, in thousandths by its resources."""

    namespace: str
    name: str
    left: Mapping[str, int]
    hard: Mapping[str, int]


_EXIT_CODES = {Verdict.FITS: 0, Verdict.CANNOT_FIT: 1, Verdict.UNDETERMINED: 3}
NOTHING_TO_JUDGE = 4


@dataclass(frozen=True)
class Verdicts:
    """All that planning has found."""

    workloads: tuple[WorkloadVerdict, ...]
    stack: Verdict
    reasons: tuple[Finding, ...]
    cost: Cost
    quotas: tuple[QuotaLeft, ...] = ()
    teams: Mapping[str, GpuCost] = field(default_factory=dict[str, GpuCost])
    """The cost of the GPUs of each namespace that can be in use at once."""
    stored: tuple[Stored, ...] = ()
    """The volumes that are made for claims."""
    retained: tuple[Retained, ...] = ()
    """What outlives the stack; of a Pulumi program only."""
    needs: tuple[QuotaNeed, ...] = ()
    """The quotas of Google Cloud that nodes and disks take from, as far as somebody asked for them."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to judge: no workload, and no object that planning does not know."""
        return not self.workloads and self.stack is Verdict.FITS

    @property
    def exit_code(self) -> int:
        """The exit code of a command that judges."""
        return NOTHING_TO_JUDGE if self.is_empty else _EXIT_CODES[self.stack]

    @property
    def of_stack(self) -> list[Finding]:
        """What is found of the stack itself, without that one of its workloads does not fit: that one says why."""
        return [finding for finding in self.reasons if finding.rule != "workload"]

    @property
    def findings(self) -> list[Finding]:
        """Every finding, those of the stack itself last."""
        return [
            *[finding for item in self.workloads for finding in (*item.reasons, *item.warnings)],
            *self.of_stack,
        ]
