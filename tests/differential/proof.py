"""The proof's run: batch after batch of answers, kept so that it can be resumed, and the table of agreement."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from ml_foundations.rehearsal.tools import groups

from tests.differential import replica
from tests.differential.case import Case, Document, write
from tests.differential.comparing import WITHOUT, Comparison, compare
from tests.differential.oracle import OracleError, Outcome
from tests.differential.shrinking import shrink

HERE = Path(__file__).parent
REGRESSIONS = HERE / "regressions"
ASKING = ("control_plane.py", "oracle.py", "replica.py")
"""The modules that decide how cases are tried. Planning is not among them: it is asked anew."""
VERSION = groups.KUBERNETES.pinned("k8s.io/kubernetes")


class Answers:
    """The replica's answers so far, in a folder: a file for each time that it was asked, found case by case."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._asking = b"".join((HERE / name).read_bytes() for name in ASKING) + VERSION.encode()
        self._known: dict[str, list[Document]] = {}
        for file in folder.glob("*.json"):
            self._known |= json.loads(file.read_text())

    def to(self, number: int, cases: Sequence[Case]) -> list[list[Outcome]]:
        """The answers to a batch: those that are kept, else new ones, which are kept.

        Raises:
            OracleError: The control plane gave no answer that can be read.
        """
        if missing := [case for case in cases if self._key(case) not in self._known]:
            self._keep(number, missing, replica.try_out(missing, self._folder, number))
        return [[Outcome(**outcome) for outcome in self._known[self._key(case)]] for case in cases]

    def _keep(
        self, number: int, cases: Sequence[Case], answers: Iterable[Sequence[Outcome]]
    ) -> None:
        keys = map(self._key, cases)
        new = {key: [*map(asdict, outcomes)] for key, outcomes in zip(keys, answers, strict=True)}
        file = self._folder / f"batch-{number}-{self._key(cases[0])}.json"
        unfinished = file.with_suffix(".part")
        unfinished.write_text(json.dumps(new))
        unfinished.replace(file)
        self._known |= new

    def _key(self, case: Case) -> str:
        """Tells whether an answer still holds: the documents, the way of asking and Kubernetes are the same."""
        return hashlib.sha256(self._asking + json.dumps(case.documents).encode()).hexdigest()[:16]


def keep(case: Case, comparison: Comparison, folder: Path) -> Path:
    """Shrink a case on which the two disagree, and store it as a regression."""

    def failing(candidates: Sequence[Case]) -> list[bool]:
        try:
            answers = replica.try_out(candidates, folder)
        except OracleError:
            return [False] * len(candidates)
        return [not compare(*pair).agrees for pair in zip(candidates, answers, strict=True)]

    small = shrink(case, failing)
    name = f"{case.rule}-{hashlib.sha256(str(small).encode()).hexdigest()[:8]}.yaml"
    answer = "placed every pod" if comparison.placed else "did not place every pod"
    words = f"The scheduler {answer}; planning said: {comparison.verdict}."
    write(small, REGRESSIONS / name, words)
    return REGRESSIONS / name


def summary(comparisons: Sequence[Comparison]) -> str:
    """What was compared, in one sentence."""
    verdicts = [comparison.verdict for comparison in comparisons]
    together = sum(len(comparison.kinds) > 1 for comparison in comparisons)
    return (
        f"{len(comparisons):,} cases on Kubernetes {VERSION}, {together:,} of them with several workloads: "
        f"{verdicts.count('cannot-fit') / len(verdicts):.1%} cannot fit, "
        f"{verdicts.count('undetermined') / len(verdicts):.1%} undetermined, "
        f"{sum(not comparison.agrees for comparison in comparisons)} disagreements."
    )


def table(comparisons: Sequence[Comparison]) -> str:
    """The table of agreement, as Markdown: one line per rule, and one for all."""
    lines = [
        "| Rule | Cases | Decides | Fits | Cannot fit | Undetermined | Disagreements |",
        "|-|-:|-:|-:|-:|-:|-:|",
    ]
    for rule in WITHOUT:
        mine = [comparison for comparison in comparisons if comparison.rule == rule]
        decided = sum(rule in comparison.decided_by for comparison in comparisons)
        lines.append(_line(rule, mine, f"{decided:,} ({decided / max(1, len(comparisons)):.1%})"))
    lines.append(_line("**all**", comparisons, ""))
    return "\n".join(lines)


def _line(name: str, comparisons: Sequence[Comparison], decided: str) -> str:
    verdicts = [comparison.verdict for comparison in comparisons]
    counts = [verdicts.count(verdict) for verdict in ("fits", "cannot-fit", "undetermined")]
    wrong = sum(not comparison.agrees for comparison in comparisons)
    numbers = " | ".join(f"{number:,}" for number in [*counts, wrong])
    return f"| {name} | {len(comparisons):,} | {decided} | {numbers} |"
