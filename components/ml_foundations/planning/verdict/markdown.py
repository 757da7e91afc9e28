"""Verdicts as a comment on a pull request: the answer first, the details folded."""

import html
from collections.abc import Iterable, Sequence

from ml_foundations.kubernetes.words import number
from ml_foundations.planning.model.decisions import Verdict
from ml_foundations.planning.verdict.compare import Comparison
from ml_foundations.planning.verdict.report import SHOWN, as_summary, gpus_text, sentence
from ml_foundations.planning.verdict.verdicts import Verdicts

MARK = "<!-- ml-foundations plan -->"
"""The first line, by which a workflow finds its comment again."""
_MARKS = {Verdict.FITS: "✅", Verdict.CANNOT_FIT: "❌", Verdict.UNDETERMINED: "❔"}
_OUTCOMES = {0: "✅", 1: "❌", 3: "❔", 4: "❔", 5: "⚠️"}
_MOST_ROWS = 50
"""A comment of GitHub holds 65,536 characters."""
_ESCAPED = str.maketrans({"\n": " "} | {mark: f"&#{ord(mark)};" for mark in "|@`*_[#"})


def of_verdicts(verdicts: Verdicts) -> str:
    """The verdicts of one plan."""
    answer, *rest = as_summary(verdicts).splitlines()
    rows = [
        (
            str(item.workload),
            f"{_MARKS[item.verdict]} {SHOWN[item.verdict]}",
            "\n".join(
                sentence(finding, item.workload) for finding in (*item.reasons, *item.warnings)
            ),
            gpus_text(item.gpus) if item.gpus else "",
        )
        for item in sorted(verdicts.workloads, key=lambda item: item.verdict is Verdict.FITS)
    ]
    return _comment(
        f"{_OUTCOMES[verdicts.exit_code]} {answer}",
        _folded(
            _count(rows, "workload"), _table(("workload", "verdict", "why", "its GPUs"), rows), rows
        ),
        _findings(map(sentence, verdicts.of_stack)),
        _folded("Quotas and cost", "\n".join(f"- {_escape(line)}" for line in rest), rest),
    )


def of_comparison(comparison: Comparison) -> str:
    """What changes from one plan to another."""
    rows = [
        (each.name, *each.verdicts(comparison.absent), "\n".join(each.reasons))
        for each in comparison.changes
    ]
    costs, same = (
        comparison.costs(),
        f"Cost of the stack per hour in USD: {comparison.after.cost.text}, as before.",
    )
    return _comment(
        f"{_OUTCOMES[comparison.exit_code]} {comparison.answer}",
        _table(("USD per hour", "before", "after"), costs) if costs else same,
        _folded(
            _count(rows, "changed workload"),
            _table(("workload", "before", "after", "why"), rows),
            rows,
        ),
        _findings(map(sentence, comparison.findings)),
        _findings(comparison.notes, "note"),
    )


def _comment(answer: str, *parts: str) -> str:
    return "\n\n".join([MARK, f"**{_escape(answer)}**", *filter(None, parts)])


def _findings(found: Iterable[str], what: str = "finding of the stack") -> str:
    lines = list(found)
    return _folded(
        _count(lines, what), "\n".join(f"- {_escape(line)}" for line in lines[:_MOST_ROWS]), lines
    )


def _folded(title: str, text: str, found: Sequence[object]) -> str:
    return f"<details><summary>{title}</summary>\n\n{text}\n\n</details>" if found else ""


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    shown = [
        columns,
        ["---"] * len(columns),
        *([_escape(cell) for cell in row] for row in rows[:_MOST_ROWS]),
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in shown)


def _count(found: Sequence[object], what: str) -> str:
    more = f", of which {_MOST_ROWS} are shown" if len(found) > _MOST_ROWS else ""
    return f"{number(len(found), what)}{more}"


def _escape(text: str) -> str:
    """Text that stands for itself: no mark-up, and nobody is mentioned by it."""
    return html.escape(text, quote=False).translate(_ESCAPED)
