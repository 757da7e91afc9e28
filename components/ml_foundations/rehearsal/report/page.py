"""The report as a page: one file with its data, which ``page.html`` draws; it needs nothing else."""

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
    """The page of a rehearsal under a title, as it was read at a time; it reloads after seconds, if any."""
    template = _TEMPLATE.read_text(encoding="utf-8")
    script = template.rpartition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # No text can end the element that holds the data.
    drawn = _data(report, fleet, title, now) | {"reload": reload_seconds}
    plain = json.dumps(
        drawn,
        default=lambda value: float(value) if isinstance(value, Decimal) else value.isoformat(),
    )
    return template.replace("{{hash}}", digest, 1).replace(
        "{{data}}", plain.replace("<", "\\u003c"), 1
    )


def _data(report: Report, fleet: Fleet, title: str, now: datetime) -> dict[str, Any]:
    verdicts = fleet.verdicts
    judged = ((item.workload, item.gpus) for item in verdicts.workloads)
    costs = {(work.namespace, work.kind, work.name): asdict(gpus) for work, gpus in judged if gpus}
    least, most = (None, None) if verdicts.cost.text == "unknown" else verdicts.cost.at_least
    workloads = [
        {
            **asdict(row),
            "is_well": row.is_well,
            "gpus": costs.get((row.namespace, row.kind, row.name)),
        }
        for row in report.workloads
    ]
    return {
        **asdict(report),
        "title": title,
        "now": now,
        "workloads": workloads,
        "quotas": list(map(_quota, report.quotas)),
        "nodes": [asdict(node) for node in fleet.nodes],
        "came": fleet.came,
        "lives": [asdict(life) for life in fleet.lives],
        "cost": {
            "now": fleet.cost.at_least[0] + replace(verdicts.cost, pools=()).at_least[0],
            "least": least,
            "most": most,
            "pools": [asdict(each) for each in verdicts.cost.every],
            "unknown": sorted({*verdicts.cost.unknown, *fleet.cost.unknown}),
        },
        "retained": [asdict(each) for each in verdicts.retained],
        "teams": {team: asdict(cost) for team, cost in verdicts.teams.items()},
        "findings": [asdict(finding) for finding in verdicts.findings],
    }


def _quota(quota: Quota) -> dict[str, Any]:
    """A quota with the share of each resource that is used, in per cent; None where it allows none."""
    rows: list[dict[str, Any]] = []
    for resource, hard in sorted(quota.hard.items()):
        used, most = quota.used.get(resource, "0"), parse_quantity(hard)
        share = float(parse_quantity(used) / most * 100) if most else None
        rows.append({"resource": resource, "used": used, "hard": hard, "share": share})
    return {"title": f"{quota.namespace}/{quota.name}", "rows": rows}
