"""Write the page of the proof's rules, from ``planning/verdict/rules.csv``."""

from pathlib import Path

from ml_foundations.planning.verdict.findings import RULES

from codegen import ROOT

_PAGE = ROOT / "docs" / "components" / "rules.md"
_INTRODUCTION = """# Rules of the proof

Each finding names its rule. If you accept the errors of a rule, use this name as the key under
[`accept`](../planning.md#in-the-stack-file). Each line is the condition that a stack should meet.
"""


def files() -> dict[Path, str]:
    """Return the page and its text."""
    lines = [f"- `{rule}`: {condition}" for rule, condition in RULES.items()]
    return {_PAGE: "\n".join([_INTRODUCTION, *lines, ""])}
