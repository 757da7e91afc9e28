"""The report as a page: ``page.html`` with the data, in one file without links to others."""

import base64
import hashlib
import json
from dataclasses import asdict, replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from ml_foundations.kubernetes.quantities import parse_quantity
from ml_foundations.rehearsal.report.contents import Quota, Report
from ml_foundations.rehearsal.report.fleet import Fleet

_TEMPLATE = Path(__file__).with_name("page.html")


def render(report: Report, fleet: Fleet, title: str, now: datetime, reload_seconds: int = 0) -> str:
    """Return the page of a rehearsal, as read at a time. It may reload itself periodically."""
    template = _TEMPLATE.read_text(encoding="utf-8")
    # The page allows this one script, by its hash (Content-Security-Policy), and nothing else.
    script = template.rpartition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    verdicts = fleet.verdicts
    least, most = (None, None) if verdicts.cost.text == "unknown" else verdicts.cost.at_least
    cost = {
        "now": fleet.cost.at_least[0] + replace(verdicts.cost, pools=()).at_least[0],
        "least": least,
        "most": most,
        "pools": list(map(asdict, verdicts.cost.every)),
        "unknown": sorted({*verdicts.cost.unknown, *fleet.cost.unknown}),
    }
    data = {
        **report.to_dict(),
        "title": title,
        "now": now,
        "workloads": _workloads(report, fleet),
        "quotas": list(map(_quota, report.quotas)),
        "disruption": list(report.disruption.lines) if report.disruption else [],
        "nodes": list(map(asdict, fleet.nodes)),
        "node_times": fleet.node_times,
        "pod_times": list(map(asdict, fleet.pod_times)),
        "cost": cost,
        "retained": list(map(asdict, verdicts.retained)),
        "teams": {team: asdict(team_cost) for team, team_cost in verdicts.teams.items()},
        "findings": [finding.to_dict() for finding in verdicts.findings],
        "reload": reload_seconds,
    }
    # Escaped, so that no text can end the script element that holds the data.
    text = json.dumps(data, default=_as_json).replace("<", "\\u003c")
    return template.replace("{{hash}}", digest, 1).replace("{{data}}", text, 1)


def _as_json(value: Decimal | datetime) -> float | str:
    return float(value) if isinstance(value, Decimal) else value.isoformat()


def _workloads(report: Report, fleet: Fleet) -> list[dict[str, Any]]:
    """Return the workloads, each with the cost of its GPUs if it has any."""
    costs: dict[tuple[str, str, str], dict[str, Any]] = {}
    for verdict in fleet.verdicts.workloads:
        if verdict.gpus:
            workload = verdict.workload
            costs[workload.namespace, workload.kind, workload.name] = asdict(verdict.gpus)
    rows: list[dict[str, Any]] = []
    for row in report.workloads:
        gpus = costs.get((row.namespace, row.kind, row.name))
        rows.append({**row.to_dict(), "is_well": row.is_well, "gpus": gpus})
    return rows


def _quota(quota: Quota) -> dict[str, Any]:
    """Return a quota with the percentage that is used of each resource; None if it allows none."""
    rows: list[dict[str, Any]] = []
    for resource, hard in sorted(quota.hard.items()):
        used = quota.used.get(resource, "0")
        limit = parse_quantity(hard)
        share = float(parse_quantity(used) / limit * 100) if limit else None
        rows.append({"resource": resource, "used": used, "hard": hard, "share": share})
    return {"title": f"{quota.namespace}/{quota.name}", "rows": rows}
