"""Findings: what planning tells its user, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from ml_foundations.catalog.tables import rows

RULES: Mapping[str, str] = {
    r["rule"]: r["wants"] for r in rows("rules.csv", "ml_foundations.planning.verdict")
}
"""What each rule wants, by the id with which stack files and policy packs name it."""


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

    def as_warning(self) -> Finding:
        """The finding where it is not proved."""
        return replace(self, severity=Severity.WARNING)
