"""What the proof reports, by rule."""

from collections.abc import Iterable

from ml_foundations.planning import judge
from ml_foundations.planning.rules.findings import Finding
from ml_foundations.planning.verdict.verdicts import Verdicts

from tests.factories import Manifest


def of_rule(verdicts: Verdicts, rule: str) -> list[Finding]:
    """Return the findings of one rule."""
    return [finding for finding in verdicts.findings if finding.rule == rule]


def told(documents: Iterable[Manifest], rule: str) -> list[Finding]:
    """Return what the proof reports about documents by one rule."""
    return of_rule(judge([*documents]), rule)


def objects(verdicts: Verdicts, rule: str) -> list[tuple[str, str]]:
    """Return the objects that a rule is about, each with the severity."""
    return [(finding.object, str(finding.severity)) for finding in of_rule(verdicts, rule)]
