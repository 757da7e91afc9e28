"""Rules that are not of this package: those of a ``Proof``, and those of installed packages.

An installed package names its rules in the entry point group ``GROUP``. Only the folders of the
interpreter are searched for it, never the current folder: whoever may add a file there would run
code in your CI.
"""

import site
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoint, distributions
from typing import NamedTuple

from ml_foundations.planning.rules.built_in import RULES
from ml_foundations.planning.rules.findings import Finding, warning
from ml_foundations.planning.rules.rule import Rule
from ml_foundations.planning.rules.stack import Stack

GROUP = "ml_foundations.rules.v1"
"""The entry point group of rules. A change of the view that breaks rules has a new number."""
RULE_ERROR = "rule-error"
_REMEDY = "Correct the rule, or leave it out."


class _Installed(NamedTuple):
    """The rules of installed packages, and why some of them cannot be loaded."""

    packages: Sequence[str]
    rules: Sequence[Rule]
    errors: Sequence[Finding]


def checked(rules: Iterable[Rule]) -> list[Rule]:
    """Return rules whose names are not taken.

    Raises:
        TypeError: Something is not a rule.
        ValueError: A name is that of another rule.
    """
    taken = set(RULES)
    added: list[Rule] = []
    for rule in rules:
        # Users' programs need not be typed.
        if not isinstance(rule, Rule):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"{rule!r} is not a rule. Put @rule above the function")
        for described in rule.descriptions:
            if described.name in taken:
                raise ValueError(f"a rule {described.name} exists already. Choose another name")
            taken.add(described.name)
        added.append(rule)
    return added


def added_findings(stack: Stack, rules: Iterable[Rule]) -> Iterator[Finding]:
    """Yield the findings of installed rules and of others; a rule that raises is a finding."""
    yield from _installed().errors
    for rule in (*_installed().rules, *rules):
        try:
            findings = list(rule(stack))
            for finding in findings:
                if not isinstance(finding, Finding):  # pyright: ignore[reportUnnecessaryIsInstance]
                    raise TypeError(f"it yields {finding!r}, which is not a Finding")
        except Exception as error:
            names = ", ".join(described.name for described in rule.descriptions)
            yield _error(names, error)
        else:
            yield from findings


def known_rules() -> Mapping[str, str]:
    """Return what each rule requires, by name: the rules of this package and the installed ones."""
    known = dict(RULES)
    for rule in _installed().rules:
        known |= {described.name: described.condition for described in rule.descriptions}
    return known


def unknown_rule(accepted: str) -> str:
    """Return the rule of ``RULE`` or ``RULE/NAME`` if there is no such rule, or nothing."""
    name = accepted.partition("/")[0]
    return "" if name in known_rules() else name


def packages_used() -> Sequence[str]:
    """Return the installed packages with rules, with their versions."""
    return _installed().packages


def _error(name: str, error: Exception) -> Finding:
    message = f"it cannot be judged: {type(error).__name__}: {error}"
    return warning(RULE_ERROR, f"Rule {name}", "", message, _REMEDY)


@cache
def _installed() -> _Installed:
    packages: list[str] = []
    rules: list[Rule] = []
    errors: list[Finding] = []
    for package, entry_point in _entry_points():
        packages.append(package)
        try:
            rules = checked([*rules, entry_point.load()])
        except Exception as error:
            errors.append(_error(f"{entry_point.name} of {package}", error))
    return _Installed(tuple(dict.fromkeys(packages)), rules, errors)


def _entry_points() -> Iterator[tuple[str, EntryPoint]]:
    """Yield each entry point of the group, with its package and version."""
    for distribution in distributions(path=_folders()):
        for entry_point in distribution.entry_points:
            if entry_point.group == GROUP:
                yield f"{distribution.name} {distribution.version}", entry_point


def _folders() -> list[str]:
    """Return the folders that packages are installed in."""
    folders = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    folders += site.getsitepackages()
    if site.ENABLE_USER_SITE:
        folders.append(site.getusersitepackages())
    return list(dict.fromkeys(folders))
