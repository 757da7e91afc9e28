"""Errors that a user accepts, as warnings with the reason."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ml_foundations.planning.rules.findings import Finding, reason_of
from ml_foundations.planning.verdict.verdicts import Verdicts


def with_accepted(verdicts: Verdicts, accepted: Mapping[str, str]) -> Verdicts:
    """Return verdicts whose accepted errors are warnings: each names the user's reason."""

    def shown(findings: Sequence[Finding]) -> tuple[Finding, ...]:
        return tuple(_shown(finding, accepted) for finding in findings)

    workloads = tuple(
        replace(item, reasons=shown(item.reasons), warnings=shown(item.warnings))
        for item in verdicts.workloads
    )
    return replace(verdicts, workloads=workloads, reasons=shown(verdicts.reasons))


def _shown(finding: Finding, accepted: Mapping[str, str]) -> Finding:
    if not finding.is_error or not finding.is_accepted(accepted):
        return finding
    reason = f"accepted, because {reason_of(finding, accepted)}: {finding.message}"
    return replace(finding, message=reason).as_warning()
