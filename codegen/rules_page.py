"""Write the page of the proof's rules, from the rules themselves and the table of refusals."""

from pathlib import Path

from ml_foundations.planning.rules.built_in import REFUSALS, descriptions

from codegen import ROOT

_PAGE = ROOT / "docs" / "components" / "rules.md"
_INTRODUCTION = """# Rules of the proof

Each finding names its rule. If you accept the errors of a rule, use this name as the key under
[`accept`](../planning.md#in-the-stack-file). Each line is the condition that a stack should meet.

## Workloads
Planning judges each workload by these conditions of nodes, controllers and the API server.
"""
_OF_STACKS = """
## Stacks
These rules look at a whole stack. Each has its highest severity and an example that breaks it. You
can [add a rule](../your-own-rules.md).
"""


def files() -> dict[Path, str]:
    """Return the page and its text."""
    lines = [_INTRODUCTION]
    lines += [f"- `{name}`: {condition}" for name, condition in REFUSALS.items()]
    lines.append(_OF_STACKS)
    for described in descriptions():
        lines += [f"- `{described.name}`: {described.condition} ({described.severity})", ""]
        lines += ["```yaml", described.example, "```", ""]
    return {_PAGE: "\n".join(lines)}
