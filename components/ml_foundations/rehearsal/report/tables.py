"""The report on the terminal: the answer first, then tables."""

from collections import Counter
from collections.abc import Iterable

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from ml_foundations.kubernetes.labels import GPU_RESOURCE
from ml_foundations.kubernetes.objects import RELEASE
from ml_foundations.kubernetes.words import number, verb
from ml_foundations.planning.verdict.quota_needs import QuotaNeed
from ml_foundations.planning.verdict.retained import as_lines
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.report.contents import Report
from ml_foundations.rehearsal.report.workloads import Workload

_MOST_NAMED = 8
"""As many nodes of a workload as are shown by name."""


def show(report: Report, rehearsal: Rehearsal, console: Console) -> None:
    """Print the report as tables, the answer first."""
    console.print(_verdict(report, rehearsal))
    console.print(Group(*_tables(report)))


def show_quotas(needs: Iterable[QuotaNeed], apis: Iterable[str], console: Console) -> None:
    """Print the quotas and the APIs of Google Cloud that a stack needs, the APIs as a command that enables them."""
    table = _table("Quotas", "region", "quota", "at least", "at most", "of", "note")
    for need in needs:
        table.add_row(
            need.region, need.name, f"{need.at_least:,}", f"{need.at_most:,}", need.unit, need.note
        )
    console.print(table)
    command = " \\\n  ".join(["gcloud services enable", *apis, "--project PROJECT"])
    console.print(Text(f"\nAPIs\n{command}"))


def _verdict(report: Report, rehearsal: Rehearsal) -> Text:
    nodes = sum(pool["nodes"] for pool in report.pools)
    gpus = sum(pool["gpus"] for pool in report.pools)
    workloads = number(len(report.workloads), "workload")
    room = f"{number(nodes, 'node')}, {number(gpus, 'GPU')}"
    if not report.workloads:
        return Text(f"\n{rehearsal.title}: no workloads yet, {room}\n", style="bold")
    errors = "".join(
        f"{each.object}: {each.message}. {each.remedy} [{each.rule}]\n" for each in report.errors
    )
    if not report.unwell and errors:
        said = f"\n{rehearsal.title}: {workloads} run here, and the proof finds errors, on {room}\n{errors}"
        return Text(said, style="bold red")
    if not report.unwell:
        return Text(f"\n{rehearsal.title}: all is well: {workloads}, {room}\n", style="bold green")
    do = verb(len(report.unwell), "does", "do")
    said = f"\n{rehearsal.title}: {len(report.unwell)} of {workloads} {do} not run, on {room}\n"
    said += errors
    if not nodes:
        bring = rehearsal.command("up", nodes="nodes.yaml")
        said += f"There is no node. Declare node pools, or bring copies of a cluster's: {bring}\n"
    return Text(said, style="bold red")


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

    quotas = _table("\nQuotas (used / hard)", "namespace", "quota", *_QUOTA_COLUMNS.values())
    for quota in report.quotas:
        cells = (
            f"{quota.used.get(k, '0')} / {quota.hard[k]}" if k in quota.hard else "-"
            for k in _QUOTA_COLUMNS
        )
        quotas.add_row(quota.namespace, quota.name, *cells)
    if report.quotas:
        yield quotas
    if report.calls:
        yield Text("\nCalls between namespaces", style="bold")
        yield Text("\n".join(report.calls))
    if lines := as_lines(report.retained):
        yield Text("\n" + "\n".join(lines))
    if text := _recorded_text(report):
        yield Text(f"\n{text}", style="dim")


def _nodes(row: Workload) -> str:
    """The names of a few nodes; of more, how many of each pool. ``report --json`` has all names."""
    if len(row.nodes) <= _MOST_NAMED:
        return "\n".join(row.nodes)
    return "\n".join(
        f"{count} of {pool or 'nodes that are gone'}" for pool, count in sorted(row.pools.items())
    )


def _recorded_text(report: Report) -> str:
    """How many of each type, ``2 IAMMember, 1 Network``, and each chart; ``report --json`` has all names."""
    recorded = report.recorded
    counts = Counter(
        item["type"].rpartition(":")[2] for item in recorded if item["type"] != RELEASE
    )
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    charts = [
        f"{item['name'].rpartition('/')[2]} ({item['instead']})"
        for item in recorded
        if item["type"] == RELEASE
    ]
    lines = (
        ("Recorded only, not simulated", kinds),
        ("Recorded, chart not installed", ", ".join(charts)),
        (
            "Encrypted values, for which the program got a placeholder",
            ", ".join(report.placeholders),
        ),
        ("Placeholders, which a preview for Google Cloud refuses", ", ".join(report.to_replace)),
    )
    return "\n".join(f"{title}: {text}" for title, text in lines if text)


_QUOTA_COLUMNS = {
    f"requests.{GPU_RESOURCE}": "GPUs",
    "requests.cpu": "CPU",
    "requests.memory": "memory",
    "requests.storage": "storage",
    "pods": "pods",
    "count/jobs.batch": "Jobs",
    "persistentvolumeclaims": "claims",
}


def _table(title: str, *columns: str) -> Table:
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        header_style="dim",
        box=None,
        pad_edge=False,
    )
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
