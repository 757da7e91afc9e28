"""The report on the terminal: the answer first, then tables."""

from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from functools import partial

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from ml_foundations.kubernetes.labels import GPU_RESOURCE
from ml_foundations.kubernetes.objects import RELEASE
from ml_foundations.kubernetes.words import number, verb
from ml_foundations.planning.verdict.findings import Finding
from ml_foundations.planning.verdict.quota_needs import QuotaNeed
from ml_foundations.planning.verdict.retained import as_lines
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.report.contents import Quota, Report
from ml_foundations.rehearsal.report.workloads import Workload

_MOST_NAMED = 8
"""A workload on more nodes than this shows their number per pool."""


_QUOTA_COLUMNS = {
    f"requests.{GPU_RESOURCE}": "GPUs",
    "requests.cpu": "CPU",
    "requests.memory": "memory",
    "requests.storage": "storage",
    "pods": "pods",
    "count/jobs.batch": "Jobs",
    "persistentvolumeclaims": "claims",
}


def show(report: Report, rehearsal: Rehearsal, console: Console) -> None:
    """Print the report as tables, the answer first."""
    console.print(_verdict(report, rehearsal))
    console.print(Group(*_tables(report)))


def show_quotas(needs: Iterable[QuotaNeed], apis: Iterable[str], console: Console) -> None:
    """Print the quotas of Google Cloud that a stack needs, and the command for its APIs."""
    table = _table("Quotas", "region", "quota", "at least", "at most", "of", "note")
    for need in needs:
        amounts = (f"{need.at_least:,}", f"{need.at_most:,}")
        table.add_row(need.region, need.name, *amounts, need.unit, need.note)
    console.print(table)
    command = " \\\n  ".join(["gcloud services enable", *apis, "--project PROJECT"])
    console.print(Text(f"\nAPIs\n{command}"))


def finding_line(finding: Finding) -> str:
    """Return a finding of the proof in one line."""
    return f"{finding.object}: {finding.message}. {finding.remedy} [{finding.rule}]"


def _verdict(report: Report, rehearsal: Rehearsal) -> Text:
    node_count = sum(pool["nodes"] for pool in report.pools)
    gpu_count = sum(pool["gpus"] for pool in report.pools)
    workloads = number(len(report.workloads), "workload")
    capacity = f"{number(node_count, 'node')}, {number(gpu_count, 'GPU')}"
    title = f"\n{rehearsal.title}"
    if not report.workloads:
        return Text(f"{title}: no workloads yet, {capacity}\n", style="bold")
    errors = "".join(f"{finding_line(finding)}\n" for finding in report.errors)
    if report.unwell:
        unwell = len(report.unwell)
        answer = f"{unwell} of {workloads} {verb(unwell, 'does', 'do')} not run"
    elif errors:
        answer = f"{workloads} run here, and the proof finds errors"
    else:
        return Text(f"{title}: all is well: {workloads}, {capacity}\n", style="bold green")
    fix = ""
    if report.unwell and not node_count:
        command = rehearsal.command("up", nodes="nodes.yaml")
        fix = f"There is no node. Declare node pools, or use copies of a cluster's: {command}\n"
    return Text(f"{title}: {answer}, on {capacity}\n{errors}{fix}", style="bold red")


def _tables(report: Report) -> Iterable[RenderableType]:
    pools = _table("Node pools", "pool", "machine type", "nodes", "min-max", "GPUs", "GPUs in use")
    for pool in report.pools:
        bounds = f"{pool['min_nodes']}-{pool['max_nodes']}"
        numbers = (pool["nodes"], bounds, pool["gpus"], pool["gpus_in_use"])
        pools.add_row(pool["name"], pool["machine_type"], *map(str, numbers))
    yield pools

    workloads = _table("\nWorkloads", "namespace", "workload", "state", "nodes", "note")
    for row in report.workloads:
        state = Text(row.state, style="green" if row.is_well else "red")
        workloads.add_row(row.namespace, f"{row.kind} {row.name}", state, _nodes(row), row.reason)
    yield workloads

    if report.purchases:
        columns = ("namespace", "workload", "nodes", "$/h", "first choice", "$/h")
        bought = _table("\nWays to buy", *columns)
        for item in report.purchases:
            pools = ", ".join(f"{count} of {pool}" for pool, count in item.pools.items())
            chosen = (pools or "none", _dollars(item.per_hour))
            first = (item.first, _dollars(item.first_per_hour))
            bought.add_row(item.namespace, item.workload, *chosen, *first)
        yield bought

    if report.quotas:
        quotas = _table("\nQuotas (used / hard)", "namespace", "quota", *_QUOTA_COLUMNS.values())
        for quota in report.quotas:
            quotas.add_row(quota.namespace, quota.name, *map(partial(_use, quota), _QUOTA_COLUMNS))
        yield quotas
    if report.calls:
        yield Text("\nCalls between namespaces", style="bold")
        yield Text("\n".join(report.calls))
    if report.disruption:
        yield Text(f"\nLast disruption ({report.disruption.at})", style="bold")
        yield Text("\n".join(report.disruption.lines))
    if lines := as_lines(report.retained):
        yield Text("\n" + "\n".join(lines))
    if text := _recorded_text(report):
        yield Text(f"\n{text}", style="dim")


def _dollars(amount: Decimal | None) -> str:
    return "unknown" if amount is None else f"{amount:,.2f}"


def _use(quota: Quota, resource: str) -> str:
    if resource not in quota.hard:
        return "-"
    return f"{quota.used.get(resource, '0')} / {quota.hard[resource]}"


def _nodes(row: Workload) -> str:
    """Return the names of a few nodes, or the number of nodes per pool."""
    if len(row.nodes) <= _MOST_NAMED:
        return "\n".join(row.nodes)
    pools = sorted(row.pools.items())
    return "\n".join(f"{count} of {pool or 'nodes that are gone'}" for pool, count in pools)


def _recorded_text(report: Report) -> str:
    """Return the recorded resources by type, the recorded charts and the placeholders."""
    counts: Counter[str] = Counter()
    charts: list[str] = []
    for item in report.recorded:
        if item["type"] == RELEASE:
            charts.append(f"{item['name'].rpartition('/')[2]} ({item['instead']})")
        else:
            counts[item["type"].rpartition(":")[2]] += 1
    kinds = [f"{count} {kind}" for kind, count in sorted(counts.items())]
    lines = (
        ("Recorded only, not simulated", kinds),
        ("Recorded, chart not installed", charts),
        ("Encrypted values, for which the program got a placeholder", report.placeholders),
        ("Placeholders, which a preview for Google Cloud refuses", report.to_replace),
    )
    return "\n".join(f"{title}: {', '.join(names)}" for title, names in lines if names)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", header_style="dim")
    table.box, table.pad_edge = None, False
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
