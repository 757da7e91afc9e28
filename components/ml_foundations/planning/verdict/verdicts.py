"""The verdicts on workloads and on the stack, with reasons, costs and quotas."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from ml_foundations.kinds.kind_files import files_used
from ml_foundations.planning.model.decisions import Verdict, together
from ml_foundations.planning.model.volumes import Stored
from ml_foundations.planning.model.workloads import Workload
from ml_foundations.planning.rules.added import packages_used
from ml_foundations.planning.rules.findings import Finding, Severity, reason_of
from ml_foundations.planning.verdict.cost import Cost, GpuCost, RunCost
from ml_foundations.planning.verdict.quota_needs import QuotaNeed
from ml_foundations.planning.verdict.retained import Retained


@dataclass(frozen=True, slots=True)
class WorkloadVerdict:
    """The verdict on one workload alone, next to the DaemonSets and the running pods."""

    workload: Workload
    verdict: Verdict
    reasons: tuple[Finding, ...] = ()
    warnings: tuple[Finding, ...] = ()
    run_cost: RunCost | None = None
    """The most that one run costs, if the workload sets how long it may last."""
    gpus: GpuCost | None = None
    """The cost of its GPUs while all of its pods run; None if it requests none."""

    def with_reasons(
        self, findings: Iterable[Finding], accepted: Collection[str]
    ) -> "WorkloadVerdict":
        """Return the verdict with more reasons, which make it worse unless they are accepted."""
        added = tuple(findings)
        verdict = together([self.verdict, verdict_of(added, accepted)])
        return replace(self, verdict=verdict, reasons=self.reasons + added)


@dataclass(frozen=True)
class QuotaLeft:
    """The rest of a ResourceQuota while every workload runs, in thousandths by resource."""

    namespace: str
    name: str
    left: Mapping[str, int]
    hard: Mapping[str, int]


def verdict_of(findings: Iterable[Finding], accepted: Collection[str]) -> Verdict:
    """Return the verdict of some findings: the worst of those that break no accepted rule.

    What has an error cannot fit, and what has a warning is undetermined.
    """
    severities = {item.severity for item in findings if not item.is_accepted(accepted)}
    if Severity.ERROR in severities:
        return Verdict.CANNOT_FIT
    return Verdict.UNDETERMINED if severities else Verdict.FITS


_EXIT_CODES = {Verdict.FITS: 0, Verdict.CANNOT_FIT: 1, Verdict.UNDETERMINED: 3}
NOTHING_TO_JUDGE = 4


@dataclass(frozen=True)
class Verdicts:
    """The verdicts on all workloads and on the stack, with everything that they are based on."""

    workloads: tuple[WorkloadVerdict, ...]
    stack: Verdict
    reasons: tuple[Finding, ...]
    cost: Cost
    quotas: tuple[QuotaLeft, ...] = ()
    teams: Mapping[str, GpuCost] = field(default_factory=dict[str, GpuCost])
    """The cost of the GPUs of each namespace that can be in use at once."""
    stored: tuple[Stored, ...] = ()
    """The volumes that are created for claims."""
    retained: tuple[Retained, ...] = ()
    """The resources that outlive the stack; of a Pulumi program only."""
    needs: tuple[QuotaNeed, ...] = ()
    """The Google Cloud quotas that nodes and disks use; empty unless they are asked for."""

    judged_with: tuple[str, ...] = field(default_factory=lambda: (*files_used(), *packages_used()))
    """The files with the user's kinds, and the installed packages with rules, that were used."""

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to judge: no workload and no unknown object."""
        return not self.workloads and self.stack is Verdict.FITS

    @property
    def exit_code(self) -> int:
        """The exit code of a command that judges."""
        return NOTHING_TO_JUDGE if self.is_empty else _EXIT_CODES[self.stack]

    @property
    def of_stack(self) -> list[Finding]:
        """The findings about the stack itself, not about a workload that does not fit."""
        return [finding for finding in self.reasons if finding.rule != "workload"]

    def with_findings(self, change: Callable[[Finding], Finding]) -> "Verdicts":
        """Return the verdicts with another finding for each reason and warning."""
        workloads: list[WorkloadVerdict] = []
        for item in self.workloads:
            reasons = tuple(map(change, item.reasons))
            warnings = tuple(map(change, item.warnings))
            workloads.append(replace(item, reasons=reasons, warnings=warnings))
        reasons = tuple(map(change, self.reasons))
        return replace(self, workloads=tuple(workloads), reasons=reasons)

    def with_accepted(self, accepted: Mapping[str, str]) -> "Verdicts":
        """Return the verdicts with accepted errors as warnings that name the user's reason."""

        def shown(finding: Finding) -> Finding:
            if not finding.is_error or not finding.is_accepted(accepted):
                return finding
            reason = f"accepted, because {reason_of(finding, accepted)}: {finding.message}"
            return replace(finding, message=reason).as_warning()

        return self.with_findings(shown)

    @property
    def findings(self) -> list[Finding]:
        """Every finding, those of the stack itself last."""
        findings: list[Finding] = []
        for item in self.workloads:
            findings += (*item.reasons, *item.warnings)
        return findings + self.of_stack
