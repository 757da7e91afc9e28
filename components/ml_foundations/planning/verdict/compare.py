"""Two verdicts compared: which workloads fare otherwise, and what changes in cost, by pool and by team."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from ml_foundations.kubernetes.words import listed, number, verb
from ml_foundations.planning.model.decisions import RANKS, Verdict
from ml_foundations.planning.verdict import report
from ml_foundations.planning.verdict.cost import range_text
from ml_foundations.planning.verdict.findings import Finding
from ml_foundations.planning.verdict.report import SHOWN, sentence
from ml_foundations.planning.verdict.verdicts import NOTHING_TO_JUDGE, Verdicts, WorkloadVerdict

LOSES_DATA = 5
_T = TypeVar("_T")


@dataclass(frozen=True)
class Change:
    """A workload before and after; None where it is not there."""

    before: WorkloadVerdict | None
    after: WorkloadVerdict | None

    @property
    def name(self) -> str:
        """What it is about, as ``Kind namespace/name``."""
        found = self.after or self.before
        return str(found.workload) if found else ""

    @property
    def reasons(self) -> list[str]:
        """Return why it does not fit after the change, in words."""
        return (
            [sentence(finding, self.after.workload) for finding in self.after.reasons]
            if self.after
            else []
        )

    @property
    def is_worse(self) -> bool:
        """Whether less is certain of it than before; a new one that does not fit is worse than none."""
        rank = RANKS[self.before.verdict] if self.before else 0
        return self.after is not None and RANKS[self.after.verdict] > rank

    @property
    def is_change(self) -> bool:
        """Whether there is anything to tell."""
        old, new = ((each and (each.verdict, each.gpus)) for each in (self.before, self.after))
        return old != new

    def verdicts(self, absent: str) -> tuple[str, str]:
        """What becomes of it before and after, in words; ``absent`` is what was before where nothing was judged."""
        return _shown(self.before, absent), _shown(self.after, "is gone")


@dataclass(frozen=True)
class Comparison:
    """Two verdicts.

    Attributes:
        title: What was changed, for people.
        before: What was judged first.
        after: What was judged then.
        notes: What else there is to tell.
        absent: What was before of a workload that is only judged then.
        lost: What loses its data.
    """

    title: str
    before: Verdicts
    after: Verdicts
    notes: tuple[str, ...] = ()
    absent: str = "is not there"
    lost: tuple[str, ...] = ()

    @property
    def changes(self) -> list[Change]:
        """The workloads that fare otherwise, the worse first."""
        old, new = (
            {str(item.workload): item for item in each.workloads}
            for each in (self.before, self.after)
        )
        changes = [change for _, *pair in _pairs(old, new) if (change := Change(*pair)).is_change]
        return sorted(changes, key=lambda change: not change.is_worse)

    @property
    def is_worse(self) -> bool:
        """Whether something fits less than before."""
        return (
            any(change.is_worse for change in self.changes)
            or RANKS[self.after.stack] > RANKS[self.before.stack]
        )

    @property
    def exit_code(self) -> int:
        """As of the verdicts where something fares worse; 5 where else nothing but data is lost."""
        if self.is_worse:
            return self.after.exit_code
        if self.lost:
            return LOSES_DATA
        return NOTHING_TO_JUDGE if self.before.is_empty and self.after.is_empty else 0

    @property
    def findings(self) -> list[Finding]:
        """What is found of the stack that was not before."""
        known = {(each.rule, each.object, each.message) for each in self.before.reasons}
        return [
            each
            for each in self.after.of_stack
            if (each.rule, each.object, each.message) not in known
        ]

    @property
    def answer(self) -> str:
        """The comparison in one sentence."""
        worse = [change for change in self.changes if change.is_worse]
        count = len(self.after.workloads)
        title = self.title + (f", which loses data of {listed(self.lost)}" if self.lost else "")
        if worse:
            fare = verb(len(worse), "fares", "fare")
            return f"{title}: {len(worse)} of {number(count, 'workload')} {fare} worse."
        if self.is_worse:
            return (
                f"{title}: alone, each fares as before, and all together {SHOWN[self.after.stack]}."
            )
        return f"{title}: {'no workload' if self.lost else 'nothing'} fares worse."

    def costs(self) -> list[tuple[str, str, str]]:
        """Return what costs otherwise per hour: the stack, each part and pool of it, the GPUs of each team."""
        costs: list[dict[str, str]] = []
        for each in (self.before, self.after):
            rows = {"the stack": each.cost.text}
            rows |= {name: part.text for name, part in each.cost.parts.items() if name != "nodes"}
            priced = (pool for pool in each.cost.pools if pool.per_node is not None)
            rows |= {
                f"nodes of {pool.name}": range_text(pool.per_hour_min, pool.per_hour_max)
                for pool in priced
            }
            rows |= {
                f"GPUs of team {name}": f"{range_text(c.per_hour)} ({c.count})"
                for name, c in each.teams.items()
            }
            costs.append(rows)
        return [
            (name, old or "none", new or "none") for name, old, new in _pairs(*costs) if old != new
        ]


def as_json(comparison: Comparison) -> dict[str, Any]:
    """The comparison as a tree of JSON values: what changes, then both verdicts whole."""
    return {
        "worse": comparison.is_worse,
        "changes": [
            {
                "name": change.name,
                "worse": change.is_worse,
                "before": change.before and change.before.verdict,
                "after": change.after and change.after.verdict,
            }
            for change in comparison.changes
        ],
        "notes": list(comparison.notes),
        "loses_data": list(comparison.lost),
        "before": report.as_json(comparison.before),
        "after": report.as_json(comparison.after),
    }


def as_text(comparison: Comparison) -> str:
    """The comparison for people, the answer first."""
    lines = [comparison.answer]
    for change in comparison.changes:
        was, now = change.verdicts(comparison.absent)
        lines.append(f"{change.name}: {was if was == now else f'{was}, then {now}'}")
        if change.after and change.after.verdict is not Verdict.FITS:
            lines += [f"  {reason}" for reason in change.reasons]
    lines += map(sentence, comparison.findings)
    lines += comparison.notes
    lines += [
        f"Cost of {name} per hour in USD: {old}, then {new}."
        for name, old, new in comparison.costs()
    ]
    return "\n".join(lines)


def _pairs(old: Mapping[str, _T], new: Mapping[str, _T]) -> list[tuple[str, _T | None, _T | None]]:
    return [(name, old.get(name), new.get(name)) for name in dict.fromkeys((*old, *new))]


def _shown(item: WorkloadVerdict | None, absent: str) -> str:
    if item is None:
        return absent
    return f"{SHOWN[item.verdict]} with {item.gpus.count}" if item.gpus else SHOWN[item.verdict]
