"""The run of the second generator: batch after batch, its tables, and what the two disagree on."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.differential.schema.comparing import OUTCOMES, Comparison, compare
from tests.differential.schema.run import VERSION, Runs
from tests.differential.schema.shrinking import shrink

Object = dict[str, Any]
REGRESSIONS = Path(__file__).parent / "regressions"
UNKNOWN = frozenset({"beyond-planning", "unknown-admission", "unknown-field", "unknown-kind"})
VERDICTS = ("fits", "cannot-fit", "undetermined", "refused")


def prove(count: int, folder: Path, keep: bool, first: int) -> tuple[int, str]:
    """Compare at least so many cases, from a batch on. Returns how many the two disagree on, and the tables for the page."""
    runs = Runs(folder)
    comparisons: list[Comparison] = []
    number = first
    known: set[str] = set()
    while len(comparisons) < count:
        found = [(case, compare(case, answers)) for case, answers in runs.batch(number)]
        comparisons += [comparison for _, comparison in found]
        for documents, comparison in found:
            if comparison.wrong:
                print(f"batch {number}: {comparison.wrong[:300]}")
                if keep and (kind := _kind_of(comparison.wrong)) not in known:
                    known.add(kind)
                    print(f"  kept as {_keep(runs, documents, comparison)}")
        number += 1
        wrong = sum(bool(comparison.wrong) for comparison in comparisons)
        print(f"{len(comparisons):,} of {count:,} cases, {wrong} disagreements", flush=True)
    (folder / "features.md").write_text(features(comparisons, 1) + "\n")
    text = f"{summary(comparisons)}\n\n{table(comparisons)}\n\n{features(comparisons, len(comparisons) // 50)}"
    print(text)
    return sum(bool(comparison.wrong) for comparison in comparisons), text


def _kind_of(wrong: str) -> str:
    """Disagreements that differ in names and numbers only are one kind."""
    return re.sub(r'"[^"]*"|\S*\d\S*', "_", wrong)[:120]


def _keep(runs: Runs, documents: list[Object], comparison: Comparison) -> Path:
    """Shrink a case on which the two disagree, and store it."""
    kind = _kind_of(comparison.wrong)[:60]

    def disagree(cases: Sequence[list[Object]]) -> list[bool]:
        answers = runs.of(cases, "shrinking") if cases else []
        wrong = [compare(*pair).wrong for pair in zip(cases, answers, strict=True)]
        return [_kind_of(words).startswith(kind) for words in wrong]

    def may(case: list[Object]) -> bool:
        return bool(case) and compare(case, []).verdict == comparison.verdict

    small = shrink(documents, disagree, may)
    wrong = compare(small, runs.of([small], "shrinking")[0]).wrong
    path = REGRESSIONS / f"{hashlib.sha256(str(small).encode()).hexdigest()[:8]}.yaml"
    path.parent.mkdir(exist_ok=True)
    says = f"# Planning says {' '.join(wrong.split())}"
    path.write_text(f"{says}\n---\n{yaml.safe_dump_all(small, sort_keys=False)}")
    return path


def summary(comparisons: Sequence[Comparison]) -> str:
    """What was compared, in one sentence."""
    verdicts = Counter(comparison.verdict for comparison in comparisons)
    outcomes = Counter(comparison.outcome for comparison in comparisons)
    total = len(comparisons)
    unknown = sum(bool(UNKNOWN & set(c.rules)) for c in comparisons if c.verdict == "undetermined")
    return (
        f"{total:,} cases on Kubernetes {VERSION}, each in two orders: {verdicts['fits'] / total:.1%} fit, "
        f"{verdicts['cannot-fit'] / total:.1%} cannot fit, {verdicts['undetermined'] / total:.1%} undetermined "
        f"({unknown / total:.1%} for something that planning says it does not know), "
        f"{outcomes['unsettled']} without an answer, "
        f"{sum(bool(comparison.wrong) for comparison in comparisons)} disagreements."
    )


def table(comparisons: Sequence[Comparison]) -> str:
    """Verdicts and outcomes, as Markdown."""
    counts = Counter((comparison.verdict, comparison.outcome) for comparison in comparisons)
    lines = [f"| planning says | {' | '.join(OUTCOMES)} |", "|-|" + "-:|" * len(OUTCOMES)]
    for verdict in VERDICTS:
        numbers = " | ".join(f"{counts[verdict, outcome]:,}" for outcome in OUTCOMES)
        lines.append(f"| {verdict} | {numbers} |")
    return "\n".join(lines)


def features(comparisons: Sequence[Comparison], least: int) -> str:
    """For kinds and fields in so many cases at least: what planning says of these, and how often wrongly."""
    lines = [
        "| Feature | Cases | Fits | Cannot fit | Undetermined | Disagreements |",
        "|-|-:|-:|-:|-:|-:|",
    ]
    for name in sorted({name for comparison in comparisons for name in comparison.features}):
        mine = [comparison for comparison in comparisons if name in comparison.features]
        if len(mine) < least:
            continue
        verdicts = Counter(comparison.verdict for comparison in mine)
        wrong = sum(bool(comparison.wrong) for comparison in mine)
        unknown = f"{verdicts['undetermined']:,} ({verdicts['undetermined'] / len(mine):.0%})"
        refused = verdicts["cannot-fit"] + verdicts["refused"]
        lines.append(
            f"| {name} | {len(mine):,} | {verdicts['fits']:,} | {refused:,} | {unknown} | {wrong} |"
        )
    return "\n".join(lines)
