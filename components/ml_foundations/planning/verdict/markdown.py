"""Verdicts as a comment on a pull request: the answer first, the details folded."""

import html
import re
from collections.abc import Iterable, Sequence
from itertools import accumulate

from ml_foundations.kubernetes import printable
from ml_foundations.kubernetes.words import number
from ml_foundations.planning.model.decisions import Verdict
from ml_foundations.planning.rules.findings import Severity
from ml_foundations.planning.verdict.compare import Comparison
from ml_foundations.planning.verdict.report import SHOWN, as_summary, gpus_text, marked, sentence
from ml_foundations.planning.verdict.verdicts import Verdicts

MARK = "<!-- ml-foundations plan -->"
"""The first line, by which a workflow finds its comment again."""
_MARKS = {Verdict.FITS: "✅", Verdict.CANNOT_FIT: "❌", Verdict.UNDETERMINED: "❔"}
_OUTCOMES = {0: "✅", 1: "❌", 3: "❔", 4: "❔", 5: "⚠️"}
_MOST_ROWS = 50
_ROWS_BYTES = 36_000
"""The most bytes of the table of workloads. A comment of GitHub holds 65,536 characters."""
_LIST_BYTES = 5_000
"""The most bytes of each of the four other sections."""
_TEXT_BYTES = 3_000
"""The most bytes of a cell or bullet."""
_BREAK = "\u200b"
"""A space without width, which ends a link or a mention before it is one."""
_REFERENCE = re.compile(
    r"@|[#!$~%^&](?=[\w\"])"  # of users, issues, merge requests, snippets, labels, formulas
    r"|:(?=//|[\w+-]+:)|www(?=\.)|gh(?=-\d)",  # of addresses, emoji, issues
    re.IGNORECASE,
)
"""What GitHub and GitLab look for in text, after entities have become characters."""
_ESCAPED = str.maketrans({mark: f"&#{ord(mark)};" for mark in f"|@`*_[]#~\\${{}}{_BREAK}"})
_BEGINS_LIST = re.compile(r"^(\d*)([-+.)])(?=[-+ ]|$)")


def of_verdicts(verdicts: Verdicts) -> str:
    """Return the verdicts of one plan as a comment."""
    answer, *rest = as_summary(verdicts).splitlines()
    rows: list[tuple[str, ...]] = []
    information: list[str] = []
    for item in sorted(verdicts.workloads, key=lambda item: item.verdict is Verdict.FITS):
        findings = [sentence(finding, item.workload) for finding in item.reasons]
        for finding in item.warnings:
            if finding.severity is Severity.INFO:
                information.append(sentence(finding))
            else:
                findings.append(marked(finding, item.workload))
        why = "\n".join(dict.fromkeys(findings))
        verdict = f"{_MARKS[item.verdict]} {SHOWN[item.verdict]}"
        rows.append((str(item.workload), verdict, why, gpus_text(item.gpus) if item.gpus else ""))
    return _comment(
        f"{_OUTCOMES[verdicts.exit_code]} {answer}",
        _table(number(len(rows), "workload"), ("workload", "verdict", "why", "its GPUs"), rows),
        _bullets("Information", list(dict.fromkeys(information)), is_counted=False),
        _bullets("finding of the stack", list(map(marked, verdicts.of_stack))),
        _bullets("Quotas and cost", rest, is_counted=False),
    )


def of_comparison(comparison: Comparison) -> str:
    """Return the changes from one plan to another as a comment."""
    rows: list[tuple[str, ...]] = []
    for change in comparison.changes:
        before, after = change.verdicts(comparison.absent)
        rows.append((change.name, before, after, " ".join(change.reasons)))
    cost = f"Cost of the stack per hour in USD: {comparison.after.cost.text}, as before."
    if costs := comparison.costs():
        columns = ("USD per hour", "before", "after")
        cost = _head(columns) + _within(_rows(costs), len(costs), _LIST_BYTES)[0]
    return _comment(
        f"{_OUTCOMES[comparison.exit_code]} {comparison.answer}",
        cost,
        _table(number(len(rows), "changed workload"), ("workload", "before", "after", "why"), rows),
        _bullets("finding of the stack", list(map(sentence, comparison.findings))),
        _bullets("note", comparison.notes),
    )


def of_errors(errors: Iterable[str]) -> str:
    """Return what is wrong with unreadable input as a comment."""
    return _comment("⚠️ The input cannot be judged.", _bullets("error", list(errors)))


def _comment(answer: str, *parts: str) -> str:
    return "\n\n".join([MARK, f"**{_escape(answer)}**", *filter(None, parts)])


def _bullets(what: str, sentences: Sequence[str], *, is_counted: bool = True) -> str:
    title = number(len(sentences), what) if is_counted else what
    lines = [f"- {_escape(text)}" for text in sentences[:_MOST_ROWS]]
    return _folded(title, lines, len(sentences), _LIST_BYTES)


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return _folded(title, _rows(rows), len(rows), _ROWS_BYTES, _head(columns))


def _head(columns: Sequence[str]) -> str:
    return "\n".join([*_rows([columns]), f"{'| --- ' * len(columns)}|\n"])


def _rows(rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(map(_cell, row))} |" for row in rows[:_MOST_ROWS]]


def _cell(text: str) -> str:
    """Return the sentences of a cell below each other, or their beginning if they are long."""
    cell = "<br>".join(map(_escape, text.splitlines()))
    return cell if len(cell.encode()) <= _TEXT_BYTES else _escape(" ".join(text.splitlines()))


def _folded(title: str, lines: Sequence[str], count: int, most: int, head: str = "") -> str:
    """Return a section that opens at a click, or nothing if it has no lines."""
    text, shown = _within(lines, count, most)
    title += f", of which {shown} are shown" if shown < count else ""
    folded = f"<details><summary>{title}</summary>\n\n{head}{text}\n\n</details>"
    return folded if lines else ""


def _within(lines: Sequence[str], count: int, most_bytes: int) -> tuple[str, int]:
    """Return the first of ``count`` lines, with how many more there are, and their number."""
    # One always fits, as its cells are cut.
    sizes = accumulate(len(line.encode()) + 1 for line in lines)
    shown = sum(size <= most_bytes for size in sizes)
    rest = f"\n\nand {count - shown} more" if shown < count else ""
    return "\n".join(lines[:shown]) + rest, shown


def _escape(text: str) -> str:
    """Return text without mark-up, links and mentions in it, cut if it is long."""
    shown = printable.line(text[: _TEXT_BYTES + 1]).strip()
    kept = shown[:_TEXT_BYTES]
    while len((escaped := _with_entities(kept)).encode()) > _TEXT_BYTES:
        kept = kept[: len(kept) * 3 // 4]
    return escaped if kept == shown else f"{escaped}…"


def _with_entities(text: str) -> str:
    text = _REFERENCE.sub(rf"\g<0>{_BREAK}", text)
    text = html.escape(text, quote=False).translate(_ESCAPED)
    return _BEGINS_LIST.sub(lambda match: f"{match[1]}&#{ord(match[2])};", text)
