"""Rules of the proof: conditions with a name, each a function over the view of a stack."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from textwrap import dedent
from typing import TypeAlias

from ml_foundations.planning.rules.findings import Finding, Severity
from ml_foundations.planning.rules.stack import Stack

Check: TypeAlias = Callable[[Stack], Iterable[Finding]]


@dataclass(frozen=True)
class Description:
    """The name of a rule, and the texts that users read about it."""

    name: str
    """The name that stack files and policy packs use: short, kebab-case, stable."""
    severity: Severity
    """The highest severity of its findings."""
    condition: str
    """The condition that a stack should meet, as one sentence."""
    source: str
    """The source of the condition."""
    example: str
    """YAML documents that do not meet it: objects, and resources with their ``type``."""


@dataclass(frozen=True)
class Rule:
    """A function that yields the findings of one rule, or of several that belong together."""

    check: Check
    descriptions: tuple[Description, ...]

    def __call__(self, stack: Stack) -> Iterable[Finding]:
        """Return the findings on a stack."""
        return self.check(stack)


def rule(
    name: str, severity: Severity, condition: str, *, source: str = "", example: str = ""
) -> Callable[[Check | Rule], Rule]:
    """Make a rule of the function below; another ``@rule`` above adds the next name to it.

    The arguments are the attributes of a ``Description``. A finding may have the name of another
    rule, if both are about the same condition.
    """
    described = Description(name, severity, condition, source, dedent(example).strip())

    def as_rule(check: Check | Rule) -> Rule:
        if isinstance(check, Rule):
            return replace(check, descriptions=(described, *check.descriptions))
        return Rule(check, (described,))

    return as_rule
