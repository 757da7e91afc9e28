"""The report as a page: one file that needs nothing else, for people who look, who use the keyboard, and who listen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from ml_foundations.kubernetes.labels import GPU_RESOURCE
from ml_foundations.kubernetes.quantities import parse_quantity
from ml_foundations.planning.verdict.cost import HOURS_PER_MONTH, Cost
from ml_foundations.planning.verdict.findings import Finding, Severity
from ml_foundations.planning.verdict.gpu_cost import GpuCost
from ml_foundations.planning.verdict.verdicts import Verdicts
from ml_foundations.rehearsal.report.contents import Quota, Report
from ml_foundations.rehearsal.report.fleet import Fleet, Life, Node
from ml_foundations.rehearsal.report.html import Html, folded, joined, table, tag
from ml_foundations.rehearsal.report.workloads import Workload

_STYLE = Path(__file__).with_name("page.css")
_TEAM_COLOURS = 8
_MOST_NODES = 120
"""Of a pool with more nodes, those that are alike are drawn as one."""
_MOST_CELLS = 60
_MOST_PODS = 60
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_Colours = Mapping[str, int]


def render(report: Report, fleet: Fleet, title: str, now: datetime) -> str:
    """The page of a rehearsal.

    Args:
        report: The state of the rehearsal.
        fleet: Its nodes, times, cost and proof.
        title: What to call it.
        now: When they were read.
    """
    holders = {holder for node in fleet.nodes for holder in node.holders}
    colours = {namespace: index % _TEAM_COLOURS for index, namespace in enumerate(sorted(holders))}
    sections = (
        ("Fleet", _fleet(report, fleet, colours)),
        ("Workloads", _workloads(report.workloads, fleet.verdicts)),
        ("Quotas", _quotas(report.quotas)),
        ("Cost", _cost(fleet.cost, fleet.verdicts)),
        ("Findings of the proof", _findings(fleet.verdicts)),
        ("Time line", _time_line(fleet, now)),
        ("Only recorded", _recorded(report)),
    )
    body = [
        tag("header", tag("h1", f"Rehearsal of {title}"), _answer(report), _sums(report, fleet)),
        tag("main", [tag("section", tag("h2", name), *parts, aria_label=name) for name, parts in sections]),
        tag(
            "footer",
            tag("p", f"As of {now:%Y-%m-%d %H:%M:%S %Z}. Prices are list prices, in US dollars.", class_="soft"),
        ),
    ]
    head = [
        Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
        tag("title", f"{title}: rehearsal"),
        tag("style", Html(_STYLE.read_text())),
    ]
    return f"<!doctype html>\n{tag('html', tag('head', head), tag('body', body), lang='en')}\n"


def _answer(report: Report) -> Html:
    count = len(report.workloads)
    if not report.unwell:
        return tag("p", f"✓ All is well: {_number(count, 'workload')}.", class_="answer good")
    return tag("p", f"✗ {len(report.unwell)} of {_number(count, 'workload')} not running.", class_="answer bad")


def _sums(report: Report, fleet: Fleet) -> Html:
    gpus, used = (sum(pool[key] for pool in report.pools) for key in ("gpus", "gpus_in_use"))
    broken = sum(bool(node.fault or node.missing) for node in fleet.nodes)
    shown = [("Nodes", str(len(fleet.nodes)), f"{broken} broken" if broken else "none broken")]
    shown.append(("GPUs in use", f"{used} of {gpus}", f"{gpus - used} free"))
    shown.append(("Cost now", *_price(fleet.cost, 0)))
    if fleet.verdicts:
        shown.append(("At least", *_price(fleet.verdicts.cost, 0)))
        shown.append(("At most", *_price(fleet.verdicts.cost, 1)))
    cells = [tag("li", name, tag("b", value), tag("span", note, class_="soft")) for name, value, note in shown]
    return tag("ul", cells, class_="sums")


def _fleet(report: Report, fleet: Fleet, colours: _Colours) -> Iterator[Html]:
    keys = [tag("li", _gpu(name, colours), f" {name}") for name in colours]
    keys.append(tag("li", _gpu("", colours), " free"))
    keys.append(tag("li", tag("span", class_="gpu lost"), " broken"))
    yield tag("ul", keys, class_="legend", aria_label="Whose pods hold a GPU")
    yield tag(
        "div", [_pool(pool, fleet, colours) for pool in report.pools] or "There are no node pools.", class_="pools"
    )


def _pool(pool: Mapping[str, Any], fleet: Fleet, colours: _Colours) -> Html:
    mine = [node for node in fleet.nodes if node.pool == pool["name"]]
    bounds = f"{_number(len(mine), 'node')} of {pool['min_nodes']} to {pool['max_nodes']}"
    gpus = f", {pool['gpus_in_use']} of {_number(pool['gpus'], 'GPU')} in use" if pool["gpus"] else ""
    empty = sum(node.is_empty for node in mine)
    faults = sum(bool(node.fault or node.missing) for node in mine)
    notes = [f", {empty} empty" if empty else "", tag("b", f", {faults} broken", class_="bad") if faults else ""]
    return tag(
        "div",
        tag("h3", pool["name"]),
        tag("p", f"{pool['machine_type']}: {bounds}{gpus}", *notes, class_="soft"),
        tag("ul", _cells(mine, colours), class_="nodes", aria_label=f"Nodes of {pool['name']}"),
        class_="pool",
    )


def _cells(nodes: Sequence[Node], colours: _Colours) -> list[Html]:
    """A cell for each node, the broken first; of many, one for those that are alike."""
    if not nodes:
        return [tag("li", tag("small", "no nodes"), class_="node none", aria_label="no nodes")]
    if len(nodes) <= _MOST_NODES:
        alike = [(node, 1) for node in nodes]
    else:
        states: dict[tuple[object, ...], list[Node]] = {}
        for node in nodes:
            key = (node.gpus, node.holders, node.fault, node.missing, node.is_empty)
            states.setdefault(key, []).append(node)
        alike = [(found[0], len(found)) for found in states.values()]
    alike.sort(key=lambda each: (not (each[0].fault or each[0].missing), -each[1]))
    cells = [_cell(node, count, colours) for node, count in alike[: _MOST_CELLS if len(nodes) > _MOST_NODES else None]]
    left = sum(count for _, count in alike) - sum(count for _, count in alike[: len(cells)])
    return [*cells, tag("li", f"and {_number(left, 'node')} more")] if left else cells


def _cell(node: Node, count: int, colours: _Colours) -> Html:
    free = max(0, node.gpus - len(node.holders) - node.missing)
    held = ", ".join(f"{number} {name}" for name, number in Counter(node.holders).items())
    said = [node.fault, f"{_number(node.missing, 'GPU')} broken" if node.missing else ""]
    said.append(f"{_number(node.gpus, 'GPU')}: {', '.join(filter(None, [held, f'{free} free']))}" if node.gpus else "")
    said.append("empty" if node.is_empty else _number(node.pods, "pod") if count == 1 else "")
    name = node.name if count == 1 else f"{count} nodes like {node.name}"
    alike = f"{count} alike" if count > 1 else ""
    fault = node.fault or ("broken GPU" if node.missing else "")
    note = fault or alike or ("empty" if node.is_empty else "" if node.gpus else _number(node.pods, "pod"))
    state = " fault" if fault else " none" if node.is_empty else ""
    return tag(
        "li",
        [_gpu(holder, colours) for holder in node.holders],
        [tag("span", class_="gpu lost")] * node.missing,
        [_gpu("", colours)] * free,
        tag("small", f"{fault}, {alike}" if fault and alike else note) if note else "",
        class_=f"node{state}",
        tabindex=0,
        aria_label=f"{name}: {'; '.join(filter(None, said))}",
    )


def _gpu(holder: str, colours: _Colours) -> Html:
    return tag("span", class_=f"gpu t{colours[holder]}" if holder else "gpu")


def _workloads(workloads: Sequence[Workload], verdicts: Verdicts | None) -> Iterator[Html]:
    judged = verdicts.workloads if verdicts else ()
    costs = {(w.workload.namespace, w.workload.kind, w.workload.name): w.gpus for w in judged}
    rows = [
        (
            joined([row.name, " ", tag("span", row.kind, class_="soft")]),
            row.namespace,
            tag("span", f"{'✓' if row.is_well else '✗'} {row.state}", class_="good" if row.is_well else "bad"),
            _few(row.nodes),
            row.reason,
            _gpu_cost(costs.get((row.namespace, row.kind, row.name))),
        )
        for row in sorted(workloads, key=lambda row: row.is_well)
    ]
    columns = ("workload", "namespace", "state", "nodes", "note", "its GPUs")
    yield table("Workloads", columns, rows) if rows else tag("p", "There are no workloads.", class_="soft")


def _few(names: Sequence[str]) -> object:
    """Some names; many are folded."""
    if len(names) <= 3:
        return [tag("div", name) for name in names]
    return folded(_number(len(names), "node"), ", ".join(names))


def _gpu_cost(cost: GpuCost | None) -> str:
    if cost is None:
        return ""
    count = _number(cost.gpus, "GPU")
    if cost.per_hour is None:
        return f"{count}, no price known"
    run = "" if cost.per_run is None else f", {cost.per_run:,.2f} per run"
    return f"{count}: ${cost.per_hour:,.2f} per hour{run}"


def _quotas(quotas: Sequence[Quota]) -> Iterator[Html]:
    for quota in quotas:
        names = sorted(quota.hard, key=lambda name: (GPU_RESOURCE not in name, name))
        none = [name for name in names if not parse_quantity(quota.hard[name])]
        bars = [_bar(name, quota.used.get(name, "0"), quota.hard[name]) for name in names if name not in none]
        text = tag("p", f"Allows no {', '.join(none)}.", class_="soft") if none else ""
        title = tag("h3", f"{quota.namespace}/{quota.name}")
        yield tag("div", title, tag("ul", bars, class_="bars"), text, class_="pool")
    if not quotas:
        yield tag("p", "There are no quotas.", class_="soft")


def _bar(resource: str, used: str, hard: str) -> Html:
    share = min(100.0, float(parse_quantity(used) / parse_quantity(hard)) * 100)
    fill = tag("i", style=f"width:{share:.1f}%", class_="full" if share == 100 else None)
    said = f"{resource}: {used} of {hard}"
    return tag("li", said, tag("div", fill, class_="bar", aria_hidden="true"))


def _cost(now: Cost, verdicts: Verdicts | None) -> Iterator[Html]:
    if verdicts is None:
        return
    declared = verdicts.cost
    pools = [
        (
            pool.name,
            _dollars(pool.per_node),
            f"{pool.fewest} to {pool.most}",
            _dollars(pool.per_hour_min),
            _dollars(pool.per_hour_max),
        )
        for pool in declared.pools
    ]
    if pools:
        yield table("Cost of node pools per hour", ("pool", "a node", "nodes", "at least", "at most"), pools)
    teams = [
        (name, cost.gpus, _dollars(cost.per_hour), _dollars(cost.per_month)) for name, cost in verdicts.teams.items()
    ]
    if teams:
        yield tag("p", "What the GPUs of each team cost while all of its workloads run, as their part of the nodes:")
        yield table("Cost of teams", ("team", "GPUs", "per hour", f"in {HOURS_PER_MONTH} h"), teams)
    if unknown := sorted({*declared.unknown, *now.unknown}):
        yield tag("p", f"No price is known for {', '.join(unknown)}.", class_="wait")


def _findings(verdicts: Verdicts | None) -> Iterator[Html]:
    found = [each for each in verdicts.findings if each.rule != "workload"] if verdicts else []
    for finding in sorted(found, key=lambda each: list(Severity).index(each.severity)):
        yield _finding(finding)
    if not found:
        yield tag("p", "✓ None.", class_="good")


def _finding(finding: Finding) -> Html:
    is_error = finding.severity is Severity.ERROR
    mark = tag("b", "✗ " if is_error else "! ", f"{finding.severity}: ", class_="bad" if is_error else "wait")
    where = f"{finding.rule}, {finding.path}" if finding.path else finding.rule
    return folded(
        joined([mark, f"{finding.object}: {finding.message}"]),
        tag("p", finding.remedy),
        tag("p", tag("code", where), class_="soft"),
        is_open=is_error,
    )


def _time_line(fleet: Fleet, now: datetime) -> Iterator[Html]:
    """The nodes that came, then the pods: how long each waited, started and ran."""
    lives = sorted(fleet.lives, key=lambda life: (life.made, life.name))
    times = [*(time for came in fleet.came.values() for time in came), *(life.made for life in lives)]
    if not times:
        yield tag("p", "Nothing has happened yet.", class_="soft")
        return
    start, end = min(times), max([now, *times])
    whole = max(1.0, (end - start).total_seconds())

    def track(spans: Iterable[tuple[str, datetime, datetime]], said: str) -> Html:
        bars = [
            tag("i", class_=kind, style=f"left:{_share(since, start, whole)}%;width:{_share(until, since, whole)}%")
            for kind, since, until in spans
        ]
        return tag("div", tag("div", bars, class_="track", aria_hidden="true"), tag("span", said, class_="soft"))

    kinds = (("waits", "waits for a node"), ("starts", "starts"), ("runs", "runs, or a node is there"))
    yield tag("ul", [tag("li", tag("span", class_=f"key {kind}"), f" {text}") for kind, text in kinds], class_="legend")
    yield tag("p", f"From {start:%H:%M:%S} to {end:%H:%M:%S} ({_seconds(start, end)}).", class_="soft")
    rows = [
        (f"pool {pool}", track([("runs", came[0], end)], f"{_number(len(came), 'node')} came {_span(came, start)}"))
        for pool, came in sorted(fleet.came.items())
    ]
    rows += [(life.name, track(_spans(life, end), _told(life, end))) for life in lives[:_MOST_PODS]]
    yield table("Time line", ("what", "when"), rows)
    if len(lives) > _MOST_PODS:
        yield tag("p", f"And {_number(len(lives) - _MOST_PODS, 'pod')} more.", class_="soft")


def _spans(life: Life, end: datetime) -> list[tuple[str, datetime, datetime]]:
    until = life.ended or end
    scheduled = life.scheduled or until
    ready = min(life.ready or (scheduled if life.ended else until), until)
    return [("waits", life.made, scheduled), ("starts", scheduled, ready), ("runs", ready, until)]


def _told(life: Life, end: datetime) -> str:
    if not life.scheduled:
        return f"waits for a node, {_seconds(life.made, end)}"
    text = f"got {life.node or 'a node'} after {_seconds(life.made, life.scheduled)}"
    if life.ended:
        return f"{text}, ended after {_seconds(life.scheduled, life.ended)} on it"
    return f"{text}, ready {_seconds(life.scheduled, life.ready)} later" if life.ready else f"{text}, starting"


def _span(came: Sequence[datetime], start: datetime) -> str:
    first, last = _seconds(start, came[0]), _seconds(start, came[-1])
    return f"after {first}" if first == last else f"after {first} to {last}"


def _share(until: datetime, since: datetime, whole: float) -> str:
    return f"{max(0.0, (until - since).total_seconds()) / whole * 100:.2f}"


def _seconds(since: datetime, until: datetime) -> str:
    seconds = round((until - since).total_seconds())
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"


def _recorded(report: Report) -> Iterator[Html]:
    if report.placeholders:
        names = ", ".join(report.placeholders)
        yield tag("p", f"Encrypted values, for which the program got a placeholder: {names}.")
    recorded = report.recorded
    counts = Counter(item["type"].rpartition(":")[2] for item in recorded)
    if not counts:
        yield tag("p", "Nothing.", class_="soft")
        return
    rows = [(item["name"], item["type"], item.get("instead", "")) for item in recorded]
    title = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    yield folded(title, table("Only recorded", ("name", "type", "instead"), rows))


def _price(cost: Cost, index: int) -> tuple[str, str]:
    """What the nodes cost with the fewest (0) or the most (1), as far as prices are known."""
    amount = cost.at_least[index]
    unknown = ", and what has no price" if cost.unknown else ""
    return f"${amount:,.2f}", f"per hour{unknown}; ${amount * HOURS_PER_MONTH:,.0f} in {HOURS_PER_MONTH} h"


def _dollars(amount: Decimal | None) -> str:
    return "unknown" if amount is None else f"${amount:,.2f}"


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
