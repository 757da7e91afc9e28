"""Two verdicts compared: the workloads with another verdict, and the costs that change."""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, TypeVar

from ml_foundations.kubernetes import printable
from ml_foundations.kubernetes.words import listed, number, verb
from ml_foundations.planning.model.decisions import RANKS, Verdict
from ml_foundations.planning.rules.findings import Finding
from ml_foundations.planning.verdict import report
from ml_foundations.planning.verdict.cost import range_text
from ml_foundations.planning.verdict.report import SHOWN, sentence
from ml_foundations.planning.verdict.verdicts import NOTHING_TO_JUDGE, Verdicts, WorkloadVerdict

LOSES_DATA = 5
_T = TypeVar("_T")


@dataclass(frozen=True)
class Change:
    """A workload before and after; None if it does not exist then."""

    before: WorkloadVerdict | None
    after: WorkloadVerdict | None

    @property
    def name(self) -> str:
        """The name of the workload, as ``Kind namespace/name``."""
        item = self.after or self.before
        return str(item.workload) if item else ""

    @property
    def reasons(self) -> list[str]:
        """Return why it does not fit after the change, in words."""
        if self.after is None:
            return []
        workload = self.after.workload
        return [*dict.fromkeys(sentence(finding, workload) for finding in self.after.reasons)]

    @property
    def is_worse(self) -> bool:
        """Return whether its verdict is worse than before; a new workload counts as fitting."""
        rank = RANKS[self.before.verdict] if self.before else 0
        return self.after is not None and RANKS[self.after.verdict] > rank

    @property
    def is_change(self) -> bool:
        """Return whether its verdict, its GPUs or their cost change, or an error is accepted."""
        old = self.before
        new = self.after
        if old is None or new is None:
            return old is not new
        if (old.verdict, old.gpus) != (new.verdict, new.gpus):
            return True
        # What fits has only reasons that the user accepts.
        return new.verdict is Verdict.FITS and not {*new.reasons} <= {*old.reasons}

    def verdicts(self, absent: str) -> tuple[str, str]:
        """Return its verdicts before and after, in words; ``absent`` if it was not judged then."""
        return _shown(self.before, absent), _shown(self.after, "is gone")


@dataclass(frozen=True)
class Comparison:
    """The verdicts before and after a change."""

    title: str
    """The change, in words."""
    before: Verdicts
    after: Verdicts
    notes: tuple[str, ...] = ()
    """More sentences for the user."""
    absent: str = "is not there"
    """The words for a workload that was not judged before."""
    lost: tuple[str, ...] = ()
    """The names of what loses its data."""
    restarted: tuple[str, ...] = ()
    """The names of the workloads that an update deletes and starts again."""

    @property
    def changes(self) -> list[Change]:
        """The workloads whose verdict or GPUs change, those with a worse verdict first."""
        old = {str(item.workload): item for item in self.before.workloads}
        new = {str(item.workload): item for item in self.after.workloads}
        changes = [Change(before, after) for _, before, after in _pairs(old, new)]
        changes = [change for change in changes if change.is_change]
        return sorted(changes, key=lambda change: not change.is_worse)

    @property
    def is_worse(self) -> bool:
        """Return whether the verdict on a workload or on the stack is worse than before."""
        is_stack_worse = RANKS[self.after.stack] > RANKS[self.before.stack]
        return is_stack_worse or any(change.is_worse for change in self.changes)

    @property
    def exit_code(self) -> int:
        """The exit code of the new verdicts if one is worse; otherwise 5 if data is lost."""
        if self.is_worse:
            return self.after.exit_code
        if self.lost:
            return LOSES_DATA
        return NOTHING_TO_JUDGE if self.before.is_empty and self.after.is_empty else 0

    @property
    def findings(self) -> list[Finding]:
        """The findings about the stack that are new, whatever their severity was."""
        key = attrgetter("rule", "place", "message")
        known = set(map(key, self.before.reasons))
        return [finding for finding in self.after.of_stack if key(finding) not in known]

    @property
    def answer(self) -> str:
        """The comparison in one sentence."""
        worse = [change for change in self.changes if change.is_worse]
        count = len(self.after.workloads)
        effects = [f"loses data of {listed(self.lost)}"] if self.lost else []
        if self.restarted:
            effects.append(f"deletes and starts again {listed(self.restarted)}")
        title = f"{self.title}, which {' and '.join(effects)}" if effects else self.title
        if worse:
            fare = verb(len(worse), "fares", "fare")
            return f"{title}: {len(worse)} of {number(count, 'workload')} {fare} worse."
        if self.is_worse:
            stack = f"all together {SHOWN[self.after.stack]}"
            return f"{title}: alone, each fares as before, and {stack}."
        return f"{title}: {'no workload' if effects else 'nothing'} fares worse."

    def costs(self) -> list[tuple[str, str, str]]:
        """Return the costs per hour that change: the part, its cost before and after."""
        pairs = _pairs(_costs_of(self.before), _costs_of(self.after))
        return [(name, old or "none", new or "none") for name, old, new in pairs if old != new]


def _costs_of(verdicts: Verdicts) -> dict[str, str]:
    """Return the costs per hour of the stack and its parts, in words."""
    cost = verdicts.cost
    costs = {"the stack": cost.text}
    for name, part in cost.parts.items():
        if name != "nodes":
            costs[name] = part.text
    for pool in cost.pools:
        if pool.per_node is not None:
            costs[f"nodes of {pool.name}"] = range_text(pool.per_hour_min, pool.per_hour_max)
    for team, gpus in verdicts.teams.items():
        costs[f"GPUs of team {team}"] = f"{range_text(gpus.per_hour)} ({gpus.count})"
    return costs


def as_json(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as JSON values: the changes, then both verdicts in full."""
    changes: list[dict[str, Any]] = []
    for change in comparison.changes:
        before = change.before
        after = change.after
        values = {"name": change.name, "worse": change.is_worse}
        values |= {"before": before and before.verdict, "after": after and after.verdict}
        changes.append(values)
    return {
        "worse": comparison.is_worse,
        "changes": changes,
        "notes": list(comparison.notes),
        "loses_data": list(comparison.lost),
        "restarted": list(comparison.restarted),
        "before": report.as_json(comparison.before),
        "after": report.as_json(comparison.after),
    }


def as_text(comparison: Comparison) -> str:
    """Return a comparison as text, the answer first."""
    lines = [comparison.answer]
    for change in comparison.changes:
        was, now = change.verdicts(comparison.absent)
        lines.append(f"{change.name}: {was if was == now else f'{was}, then {now}'}")
        lines += [f"  {reason}" for reason in change.reasons]
    lines += map(sentence, comparison.findings)
    lines += comparison.notes
    for name, old, new in comparison.costs():
        lines.append(f"Cost of {name} per hour in USD: {old}, then {new}.")
    return printable.lines(lines)


def _pairs(old: Mapping[str, _T], new: Mapping[str, _T]) -> list[tuple[str, _T | None, _T | None]]:
    return [(name, old.get(name), new.get(name)) for name in dict.fromkeys((*old, *new))]


def _shown(item: WorkloadVerdict | None, absent: str) -> str:
    if item is None:
        return absent
    return f"{SHOWN[item.verdict]} with {item.gpus.count}" if item.gpus else SHOWN[item.verdict]
