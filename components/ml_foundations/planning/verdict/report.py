"""Verdicts as JSON and as text."""

import math
from collections.abc import Iterable
from dataclasses import asdict
from decimal import Decimal
from typing import Any

from ml_foundations.catalog.charges import HOURS_PER_MONTH
from ml_foundations.kubernetes import printable
from ml_foundations.kubernetes.quantities import readable
from ml_foundations.kubernetes.words import listed, number
from ml_foundations.planning.model.decisions import Verdict
from ml_foundations.planning.model.workloads import Workload
from ml_foundations.planning.rules.findings import Finding, Severity
from ml_foundations.planning.verdict.cost import NOT_COUNTED, GpuCost, PoolCost
from ml_foundations.planning.verdict.quota_needs import summary
from ml_foundations.planning.verdict.retained import as_lines
from ml_foundations.planning.verdict.verdicts import Verdicts, WorkloadVerdict

_NOTHING = "There is nothing to judge: no workload is declared."
SHOWN = {
    Verdict.FITS: "fits",
    Verdict.CANNOT_FIT: "cannot fit",
    Verdict.UNDETERMINED: "is undetermined",
}
"""Verdicts in words."""


def as_json(verdicts: Verdicts) -> dict[str, Any]:
    """Return the verdicts as JSON values; an amount of money is a number, or null if unknown."""
    return {
        "workloads": list(map(_workload_as_json, verdicts.workloads)),
        "stack": {
            "verdict": "nothing-to-judge" if verdicts.is_empty else verdicts.stack,
            "reasons": _as_json(verdicts.reasons, Severity.ERROR, Severity.WARNING),
            "information": _as_json(verdicts.reasons, Severity.INFO),
        },
        "cost": {
            "currency": verdicts.cost.currency,
            "per_hour_min": _number(verdicts.cost.per_hour_min),
            "per_hour_max": _number(verdicts.cost.per_hour_max),
            "unknown": verdicts.cost.unknown,
            "pools": _pieces_as_json(verdicts.cost.pools),
            "storage": _pieces_as_json(verdicts.cost.storage),
            "platform": _pieces_as_json(verdicts.cost.platform),
            "teams": {team: _cost_as_json(gpus) for team, gpus in verdicts.teams.items()},
        },
        "quota": list(map(asdict, verdicts.needs)),
        "judged_with": list(verdicts.judged_with),
    }


def _workload_as_json(item: WorkloadVerdict) -> dict[str, Any]:
    return {
        "kind": item.workload.kind,
        "namespace": str(item.workload.namespace),
        "name": item.workload.name,
        **({"cluster": item.workload.cluster} if item.workload.cluster else {}),
        "verdict": item.verdict,
        "reasons": _as_json(item.reasons, *Severity),
        "warnings": _as_json(item.warnings, Severity.WARNING),
        "information": _as_json(item.warnings, Severity.INFO),
        "gpus": _cost_as_json(item.gpus),
    }


def as_text(verdicts: Verdicts) -> str:
    """Return the verdicts as text: lines for workloads, reasons and quotas, and the cost."""
    lines: list[str] = []
    for item in verdicts.workloads:
        lines.append(f"{item.workload} {SHOWN[item.verdict]}")
        # Several pods or containers may have one fault, each at another path.
        lines += dict.fromkeys(f"  {sentence(finding, item.workload)}" for finding in item.reasons)
        by_weight = sorted(item.warnings, key=lambda finding: finding.severity is Severity.INFO)
        lines += dict.fromkeys(f"  {marked(finding, item.workload)}" for finding in by_weight)
        if item.gpus and item.verdict is not Verdict.CANNOT_FIT:
            lines.append(f"  {gpus_text(item.gpus)}")
        if run := item.run_cost:
            most = f"{run.amount:.2f} {verdicts.cost.currency} at most"
            lines.append(f"  A run costs {most}: {run.nodes} x {run.pool} for {run.hours:.1f} h.")
    lines += map(marked, verdicts.of_stack)
    return printable.lines([*lines, *as_summary(verdicts).splitlines()])


def as_summary(verdicts: Verdicts, accepted: int = 0) -> str:
    """Return the verdict on the stack, the rest of each quota and the cost as text.

    ``accepted`` is the number of errors that the program accepts.
    """
    lines = [answer(verdicts, accepted)]
    for left in verdicts.quotas:
        amounts: list[str] = []
        for name, amount in sorted(left.left.items()):
            hard = left.hard[name]
            # Unused amounts are no news. GKE's own quota of a thousand million pods limits nothing.
            if amount < hard and (name != "pods" or hard < 10**12):
                amounts.append(f"{name} {readable(amount, math.floor)} of {readable(hard)}")
        if amounts:
            lines.append(f"Quota {left.namespace}/{left.name} leaves {', '.join(amounts)}.")
    cost = verdicts.cost
    if cost.is_known:
        parts = ", ".join(f"{name} {part.text}" for name, part in cost.parts.items())
        amount = f"{cost.text} {cost.currency} per hour by list prices"
        amount += f": {parts}" if len(cost.parts) > 1 else ""
        lines.append(f"{cost.what.capitalize()} cost {amount}.")
        lines.append(f"Not counted: {NOT_COUNTED}.")
    if cost.unknown:
        lines.append(f"No price is known for {listed(cost.unpriced)}.")
    lines += as_lines(verdicts.retained)
    if verdicts.needs:
        lines.append(f"It needs {summary(verdicts.needs)}; `ml-foundations quota` lists them all.")
    lines += [f"Team {namespace}: {gpus_text(gpus)}" for namespace, gpus in verdicts.teams.items()]
    lines += kinds_used(verdicts)
    return printable.lines(lines)


def kinds_used(verdicts: Verdicts) -> tuple[str, ...]:
    """Return a sentence with the files of the user's kinds, if there are any."""
    return (f"Judged with {listed(verdicts.judged_with)}.",) if verdicts.judged_with else ()


def answer(verdicts: Verdicts, accepted: int = 0) -> str:
    """Return in one sentence whether a stack can run, although it has some accepted errors."""
    if accepted:
        verdict = Verdict.FITS if verdicts.stack is Verdict.CANNOT_FIT else verdicts.stack
        return f"The stack {SHOWN[verdict]}, except for {number(accepted, 'accepted finding')}."
    return _NOTHING if verdicts.is_empty else f"The stack {SHOWN[verdicts.stack]}."


def _pieces_as_json(pieces: Iterable[PoolCost]) -> dict[str, dict[str, float | None]]:
    values: dict[str, dict[str, float | None]] = {}
    for piece in pieces:
        least = _number(piece.per_hour_min)
        most = _number(piece.per_hour_max)
        values[piece.name] = {"per_hour_min": least, "per_hour_max": most}
    return values


def _as_json(findings: Iterable[Finding], *severities: Severity) -> list[dict[str, str]]:
    """Return the findings of some severities as JSON values, which do not have it."""
    values = [finding.to_dict() for finding in findings if finding.severity in severities]
    for value in values:
        del value["severity"]
        if not value["cluster"]:
            del value["cluster"]
    return values


def _cost_as_json(cost: GpuCost | None) -> dict[str, Any] | None:
    if cost is None:
        return None
    amounts = {name: _number(getattr(cost, name)) for name in ("per_hour", "per_run", "per_month")}
    return {"count": cost.gpus, "at_least": cost.at_least, **amounts}


def gpus_text(cost: GpuCost) -> str:
    """Return the cost of GPUs as a sentence, as far as prices are known."""
    if cost.per_hour is None:
        return f"{cost.count} at once, at a price that is not known."
    run = "" if cost.per_run is None else f", at most {cost.per_run:.2f} per run"
    if cost.per_month is None:
        return f"{cost.count} at once: {cost.per_hour:.2f} USD per hour of a run{run}."
    month = f"{cost.per_month:.0f} in a month of {HOURS_PER_MONTH} h for what stays"
    return f"{cost.count} at once: {cost.per_hour:.2f} USD per hour{run}, {month}."


def _number(amount: Decimal | None) -> float | None:
    return None if amount is None else float(amount)


def marked(finding: Finding, workload: Workload | None = None) -> str:
    """Return a finding as text, with its severity in front."""
    return f"{finding.severity}: {sentence(finding, workload)}"


def sentence(finding: Finding, workload: Workload | None = None) -> str:
    """Return a finding as text: its object unless that is the workload, message, fix and rule."""
    about = "" if finding.place == str(workload) else f"{finding.place}: "
    return f"{about}{finding.text} [{finding.rule}]"
