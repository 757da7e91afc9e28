"""Findings: what planning has to say, as data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum


class Verdict(StrEnum):
    """Whether something finds its place."""

    FITS = "fits"
    """Whatever the arrival order and the scheduler's choices, everything finds its place."""
    CANNOT_FIT = "cannot-fit"
    """No assignment exists."""
    UNDETERMINED = "undetermined"
    """Neither is proved."""


class Severity(StrEnum):
    """How much a finding weighs."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True)
class Finding:
    """One thing that somebody may have to change.

    Attributes:
        rule: The rule's id: short, kebab-case, stable.
        severity: ``error`` where it keeps something from running.
        object: The object that it is about, as ``Kind namespace/name``.
        path: The field to look at, such as ``spec.replicas``.
        message: What is wrong, with the numbers.
        remedy: The shortest way out.
    """

    rule: str
    severity: Severity
    object: str
    path: str
    message: str
    remedy: str

    def weighed(self, verdict: Verdict) -> Finding:
        """The finding as a reason of a verdict: what is not proved is no error."""
        return replace(self, severity=Severity.WARNING) if verdict is Verdict.UNDETERMINED else self


def together(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict on several things of which each must find its place."""
    seen = set(verdicts)
    for verdict in (Verdict.CANNOT_FIT, Verdict.UNDETERMINED):
        if verdict in seen:
            return verdict
    return Verdict.FITS
