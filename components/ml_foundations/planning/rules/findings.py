"""Findings: the errors and warnings of planning, as data."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum


class Severity(StrEnum):
    """The weight of a finding."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True)
class Finding:
    """One thing that somebody may have to change.

    Attributes:
        rule: The rule's id: short, kebab-case, stable.
        severity: ``error`` if it keeps something from running.
        object: Its object, as ``Kind namespace/name``.
        path: The field to look at, such as ``spec.replicas``.
        message: What is invalid or missing, with the numbers.
        remedy: The shortest fix.
        cluster: Its cluster in words, if a program has several.
        value: The value that it is about, if that is a placeholder.
        workloads: The workloads that its message names.
    """

    rule: str
    severity: Severity
    object: str
    path: str
    message: str
    remedy: str
    cluster: str = ""
    value: str = ""
    workloads: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, str]:
        """Return what reports show of it, by name."""
        fields = asdict(self)
        del fields["value"], fields["workloads"]
        return fields

    @property
    def place(self) -> str:
        """Its object, with the cluster if there are several."""
        return f"{self.object} in {self.cluster}" if self.cluster else self.object

    @property
    def text(self) -> str:
        """Its message, with its remedy if it has one."""
        return f"{self.message}. {self.remedy}" if self.remedy else f"{self.message}."

    @property
    def is_error(self) -> bool:
        """Return whether it keeps something from running for certain."""
        return self.severity is Severity.ERROR

    def is_accepted(self, accepted: Collection[str]) -> bool:
        """Return whether a user accepts its rule, or the rule for its object, as ``RULE/NAME``.

        NAME is the object's ``name``, ``namespace/name`` or ``Kind namespace/name``.
        """
        full = self.object.partition(" and ")[0]  # of several objects, the first
        place = full.rpartition(" ")[2]
        names = (full, place, place.rpartition("/")[2])
        return self.rule in accepted or any(f"{self.rule}/{name}" in accepted for name in names)

    def as_warning(self) -> Finding:
        """Return the finding as a warning, because it is not certain."""
        return replace(self, severity=Severity.WARNING)


def error(rule: str, about: str, path: str, message: str, remedy: str) -> Finding:
    """Return a finding that keeps something from running."""
    return Finding(rule, Severity.ERROR, about, path, message, remedy)


def warning(rule: str, about: str, path: str, message: str, remedy: str) -> Finding:
    """Return a finding that may have to be changed."""
    return Finding(rule, Severity.WARNING, about, path, message, remedy)


def info(rule: str, about: str, path: str, message: str, remedy: str) -> Finding:
    """Return a finding that is good to know."""
    return Finding(rule, Severity.INFO, about, path, message, remedy)


def reason_of(finding: Finding, accepted: Mapping[str, str]) -> str:
    """Return why a user accepts a finding; nothing if nobody does."""
    return next((accepted[name] for name in accepted if finding.is_accepted([name])), "")


def unmatched(accepted: Iterable[str], findings: Sequence[Finding]) -> Iterator[str]:
    """Yield what to change about each accepted rule that is the rule of no finding."""
    for name in accepted:
        if not any(finding.is_accepted([name]) for finding in findings):
            yield (
                f"accept {name}: no finding has this rule and name; write RULE, RULE/NAME or "
                "RULE/NAMESPACE/NAME of a finding, or leave it out"
            )
