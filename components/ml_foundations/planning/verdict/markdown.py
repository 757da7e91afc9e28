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
    """Return the verdicts of one plan as a comment."""
    answer, *rest = as_summary(verdicts).splitlines()
    rows: list[tuple[str, ...]] = []
    for item in sorted(verdicts.workloads, key=lambda item: item.verdict is Verdict.FITS):
        findings = (*item.reasons, *item.warnings)
        why = "\n".join(sentence(finding, item.workload) for finding in findings)
        verdict = f"{_MARKS[item.verdict]} {SHOWN[item.verdict]}"
        rows.append((str(item.workload), verdict, why, gpus_text(item.gpus) if item.gpus else ""))
    workloads = _table(("workload", "verdict", "why", "its GPUs"), rows)
    return _comment(
        f"{_OUTCOMES[verdicts.exit_code]} {answer}",
        _folded(_count(rows, "workload"), workloads, rows),
        _findings(map(sentence, verdicts.of_stack)),
        _folded("Quotas and cost", _bullets(rest), rest),
    )


def of_comparison(comparison: Comparison) -> str:
    """Return the changes from one plan to another as a comment."""
    rows: list[tuple[str, ...]] = []
    for change in comparison.changes:
        before, after = change.verdicts(comparison.absent)
        rows.append((change.name, before, after, "\n".join(change.reasons)))
    workloads = _table(("workload", "before", "after", "why"), rows)
    cost = f"Cost of the stack per hour in USD: {comparison.after.cost.text}, as before."
    if costs := comparison.costs():
        cost = _table(("USD per hour", "before", "after"), costs)
    return _comment(
        f"{_OUTCOMES[comparison.exit_code]} {comparison.answer}",
        cost,
        _folded(_count(rows, "changed workload"), workloads, rows),
        _findings(map(sentence, comparison.findings)),
        _findings(comparison.notes, "note"),
    )


def _comment(answer: str, *parts: str) -> str:
    return "\n\n".join([MARK, f"**{_escape(answer)}**", *filter(None, parts)])


def _findings(sentences: Iterable[str], what: str = "finding of the stack") -> str:
    lines = list(sentences)
    return _folded(_count(lines, what), _bullets(lines[:_MOST_ROWS]), lines)


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {_escape(line)}" for line in lines)


def _folded(title: str, text: str, rows: Sequence[object]) -> str:
    """Return a section that opens at a click, or nothing if it has no rows."""
    return f"<details><summary>{title}</summary>\n\n{text}\n\n</details>" if rows else ""


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    shown = [columns, ["---"] * len(columns)]
    shown += [list(map(_escape, row)) for row in rows[:_MOST_ROWS]]
    return "\n".join(f"| {' | '.join(row)} |" for row in shown)


def _count(rows: Sequence[object], what: str) -> str:
    more = f", of which {_MOST_ROWS} are shown" if len(rows) > _MOST_ROWS else ""
    return f"{number(len(rows), what)}{more}"


def _escape(text: str) -> str:
    """Return text without mark-up in it and without mentions of users."""
    return html.escape(text, quote=False).translate(_ESCAPED)
