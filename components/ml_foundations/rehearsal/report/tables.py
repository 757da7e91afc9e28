"""The report on the terminal: the answer first, then tables."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from ml_foundations.kubernetes import printable
from ml_foundations.kubernetes.labels import GPU_RESOURCE
from ml_foundations.kubernetes.objects import RELEASE
from ml_foundations.kubernetes.words import number, verb
from ml_foundations.planning.rules.findings import Finding
from ml_foundations.planning.verdict.quota_needs import QuotaNeed
from ml_foundations.planning.verdict.report import sentence
from ml_foundations.planning.verdict.retained import as_lines
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.progress import styled
from ml_foundations.rehearsal.report.contents import Report
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
    for finding in report.refuted:
        wrong = "the proof was wrong about a workload that completed here. Report this"
        console.print(_text(f"warning: {wrong}: {finding_line(finding)}"))
    console.print(Group(*_tables(report)))


def show_quotas(needs: Iterable[QuotaNeed], console: Console) -> None:
    """Print the quotas of Google Cloud that a stack needs."""
    table = _table("Quotas", "region", "quota", "at least", "at most", "of", "note")
    for need in needs:
        amounts = (f"{need.at_least:,}", f"{need.at_most:,}")
        table.add_row(*_cells(need.region, need.name, *amounts, need.unit, need.note))
    console.print(table)


def show_access(
    apis: Iterable[str], roles: Mapping[str, str], unlisted: Sequence[str], console: Console
) -> None:
    """Print the command that enables a stack's APIs, and one for each role that ``up`` needs."""
    enable = " \\\n  ".join(["gcloud services enable", *apis, "--project PROJECT"])
    grant = "gcloud projects add-iam-policy-binding PROJECT --member MEMBER --role"
    grants = [f"{grant} {role}  # {reason}" for role, reason in roles.items()]
    lines = ["\nAPIs", enable, "\nRoles of whoever runs pulumi up", *grants]
    console.print(_text("\n".join(lines)))
    if unlisted:
        console.print(_text(f"\nAPIs and roles are not known of: {', '.join(unlisted)}"))


def leftover_lines(commands: Mapping[str, str]) -> list[str]:
    """Return the commands that find what GKE's controllers made and left, each with what it is."""
    lines = [f"  {command}  # {what}" for command, what in commands.items()]
    title = "GKE's controllers make more in the project. After pulumi destroy, look for the rest:"
    return [title, *lines] if lines else []


def finding_line(finding: Finding) -> str:
    """Return a finding of the proof in one line."""
    return printable.line(sentence(finding))


def _verdict(report: Report, rehearsal: Rehearsal) -> Text:
    node_count = sum(pool["nodes"] for pool in report.pools)
    gpu_count = sum(pool["gpus"] for pool in report.pools)
    workloads = number(len(report.workloads), "workload")
    capacity = f"{number(node_count, 'node')}, {number(gpu_count, 'GPU')}"
    title = f"\n{rehearsal.title}"
    if not report.workloads:
        return _text(f"{title}: no workloads yet, {capacity}\n", "bold")
    errors = "".join(f"{finding_line(finding)}\n" for finding in report.errors)
    if report.unwell:
        unwell = len(report.unwell)
        answer = f"{unwell} of {workloads} {verb(unwell, 'does', 'do')} not run"
    elif errors:
        answer = f"{workloads} run here, and the proof finds errors"
    else:
        return _text(f"{title}: all is well: {workloads}, {capacity}\n", "bold green")
    fix = ""
    if report.unwell and not node_count:
        command = rehearsal.command("up", nodes="nodes.yaml")
        fix = f"There is no node. Declare node pools, or use copies of a cluster's: {command}\n"
    return _text(f"{title}: {answer}, on {capacity}\n{errors}{fix}", "bold red")


def _tables(report: Report) -> Iterable[RenderableType]:
    pools = _table("Node pools", "pool", "machine type", "nodes", "min-max", "GPUs", "GPUs in use")
    for pool in report.pools:
        bounds = f"{pool['min_nodes']}-{pool['max_nodes']}"
        numbers = (pool["nodes"], bounds, pool["gpus"], pool["gpus_in_use"])
        pools.add_row(*_cells(pool["name"], pool["machine_type"], *map(str, numbers)))
    yield pools

    workloads = _table("\nWorkloads", "namespace", "workload", "state", "nodes", "note")
    for row in report.workloads:
        state = _text(row.state, "green" if row.is_well else "red")
        about = _cells(row.namespace, f"{row.kind} {row.name}")
        workloads.add_row(*about, state, _nodes(row), *_cells(row.reason))
    yield workloads

    if report.information:
        yield _text("\nInformation", "bold")
        yield _text(printable.lines(map(finding_line, report.information)))
    if report.purchases:
        columns = ("namespace", "workload", "nodes", "$/h", "first choice", "$/h")
        bought = _table("\nWays to buy", *columns)
        for item in report.purchases:
            pools = ", ".join(f"{count} of {pool}" for pool, count in item.pools.items())
            chosen = (pools or "none", _dollars(item.per_hour))
            first = (item.first, _dollars(item.first_per_hour))
            bought.add_row(*_cells(item.namespace, item.workload, *chosen, *first))
        yield bought

    if report.quotas:
        quotas = _table("\nQuotas (used / hard)", "namespace", "quota", *_QUOTA_COLUMNS.values())
        for quota in report.quotas:
            uses: list[str] = []
            for resource in _QUOTA_COLUMNS:
                used = f"{quota.used.get(resource, '0')} / {quota.hard.get(resource)}"
                uses.append(used if resource in quota.hard else "-")
            quotas.add_row(*_cells(quota.namespace, quota.name, *uses))
        yield quotas
    if report.calls:
        yield _text("\nCalls between namespaces", "bold")
        yield _text(printable.lines(report.calls))
    if report.disruption:
        yield _text(f"\nLast disruption ({report.disruption.at})", "bold")
        yield _text(printable.lines(report.disruption.lines))
    if lines := as_lines(report.retained):
        yield _text("\n" + printable.lines(lines))
    if text := _recorded_text(report):
        yield _text(f"\n{text}", "dim")


def _dollars(amount: Decimal | None) -> str:
    return "unknown" if amount is None else f"{amount:,.2f}"


def _nodes(row: Workload) -> Text:
    """Return the names of a few nodes, or the number of nodes per pool."""
    if len(row.nodes) <= _MOST_NAMED:
        return _text(printable.lines(row.nodes))
    pools = sorted(row.pools.items())
    names = (f"{count} of {pool or 'nodes that are gone'}" for pool, count in pools)
    return _text(printable.lines(names))


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
    return printable.lines(f"{title}: {', '.join(names)}" for title, names in lines if names)


def _text(text: str, style: str = "") -> Text:
    """Return a text without commands in it, also if it is folded in the middle of a word."""
    return styled((re.sub(":(?=:)", r"\\x3a", text), style))


def _cells(*parts: str) -> list[Text]:
    return [_text(printable.line(part)) for part in parts]


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", header_style="dim")
    table.box = None
    table.pad_edge = False
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
