"""What a report, its page and its tables show of a program that has odd inputs, and of a replica with odd names."""

from __future__ import annotations

import builtins
import copy
import json
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from enum import EnumType
from random import Random
from typing import Any, cast, get_args, get_origin, get_type_hints

from ml_foundations.kubernetes.labels import GPU_RESOURCE
from ml_foundations.kubernetes.objects import RELEASE
from ml_foundations.planning.model.nodes import node_class
from ml_foundations.planning.verdict import markdown, report
from ml_foundations.planning.verdict.cost import cost_of
from ml_foundations.planning.verdict.program import judge_program
from ml_foundations.planning.verdict.verdicts import Verdicts
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.progress import output
from ml_foundations.rehearsal.report import tables
from ml_foundations.rehearsal.report.contents import Quota, Report, Seen
from ml_foundations.rehearsal.report.fleet import Fleet, Node, PodTimes
from ml_foundations.rehearsal.report.page import _TEMPLATE, render  # pyright: ignore[reportPrivateUsage]

from tests.reliability import checks, objects, odd
from tests.reliability.trial import SECRET, Trial

_NOW = datetime(2026, 1, 2, tzinfo=UTC)
_PLAIN = {datetime: _NOW, int: 1, float: 1.0, Decimal: Decimal(1), bool: True, type(None): None}
_OMITTED = (list[Seen],)


def try_page(trial: Trial) -> None:
    """A program with odd inputs, and a page, a table and a comment on it."""
    draw, resources = trial.draw, objects.resources()
    chosen = copy.deepcopy(draw.sample(resources, min(len(resources), draw.choice([5, 40, 400]))))
    declared = (each for each in objects.stack(draw) if isinstance(each, dict))
    chosen += [(f"kubernetes:x/v1:{each.get('kind')}", each) for each in declared if "kind" in each]
    chosen += [_release(draw) for _ in range(draw.choice([0, 0, 1]))]
    for _ in range(draw.choice([0, 1, 2, 3])):
        index = draw.randrange(len(chosen))
        edited = objects.edited(chosen[index][1], draw)
        chosen[index] = (chosen[index][0], edited if isinstance(edited, dict) else {})
    (trial.folder / "resources.json").write_text(json.dumps(chosen, default=str))
    try:
        verdicts = trial.meter(lambda: judge_program(chosen))
    except Exception:
        # Proof, diff and report each end with one sentence then: the engine checks a program's types.
        trial.outcome = "could not be judged"
        return
    try:
        trial.outcome = str(verdicts.stack)
        trial.wrong += checks.wrong_text(report.as_text(verdicts).encode(errors="replace").decode())
        trial.wrong += checks.wrong_comment(markdown.of_verdicts(verdicts))
        _show(trial, verdicts)
    except Exception as error:
        trial.outcome = "failed"
        trial.wrong.append(checks.crashed(error))


def _release(draw: Random) -> tuple[str, Any]:
    """A chart whose values have the configuration of another program as text."""
    sharing = {"sharing": {"timeSlicing": {"resources": [{"name": GPU_RESOURCE, "replicas": 2}]}}}
    configuration = odd.document(draw, {"resources": {}})
    queue = {"managerConfig": {"controllerManagerConfigYaml": configuration}}
    plugin = {"data": {"a": odd.document(draw, sharing)}, "default": "a"}
    operator = {"devicePlugin": {"config": plugin}}
    chart, values = draw.choice([("kueue", queue), ("gpu-operator", operator)])
    return RELEASE, {"chart": chart, "name": chart, "namespace": "a", "values": values}


def _show(trial: Trial, verdicts: Verdicts) -> None:
    """Check the page, the report and its tables, of which each text may be odd."""
    row = {"name": _text(trial.draw), "machine_type": _text(trial.draw), "nodes": 1, "gpus": 1}
    pools = [row | {"min_nodes": 0, "max_nodes": 1, "gpus_in_use": 1}]
    quota = replace(_filled(Quota, trial.draw), hard={_text(trial.draw): "1"}, used={"a": "1"})
    recorded = [{"type": _text(trial.draw), "name": _text(trial.draw)}]
    own = {"pools": pools, "quotas": [quota], "recorded": recorded, "seen": []}
    shown: Report = replace(_filled(Report, trial.draw), **own)
    nodes = [node_class(each) for each in objects.streams()[0] if each["kind"] == "Node"]
    times = {"node_times": {}, "pod_times": _filled(list[PodTimes], trial.draw)}
    fleet = Fleet(_filled(list[Node], trial.draw), **times, cost=cost_of(nodes), verdicts=verdicts)
    page = render(shown, fleet, _text(trial.draw), _NOW)
    trial.wrong += checks.wrong_page(page, _TEMPLATE.read_text(), SECRET)
    trial.wrong += ["a secret in the report"] * (SECRET in shown.to_json())
    terminal = output()
    with terminal.capture() as captured:
        tables.show(shown, Rehearsal.of("dev", trial.folder), terminal)
    trial.wrong += checks.wrong_text(captured.get())


def _text(draw: Random) -> str:
    return odd.text(draw, "a") if draw.random() < 0.4 else "a"


def _filled(type_: Any, draw: Random) -> Any:
    """A value of a type, with text that may be odd, and a secret where anything is allowed."""
    inner = get_args(type_)
    if isinstance(type_, EnumType):
        return draw.choice([*type_])
    if is_dataclass(type_):
        make, hints = cast("Any", type_), get_type_hints(type_)
        names = [each.name for each in fields(type_) if hints[each.name] not in _OMITTED]
        return make(**{name: _filled(hints[name], draw) for name in names})
    match get_origin(type_):
        case None:
            return _text(draw) if type_ is str else _PLAIN.get(type_, SECRET)
        case builtins.dict:
            return {_filled(inner[0], draw): _filled(inner[1], draw)}
        case builtins.list | builtins.tuple:
            return get_origin(type_)([_filled(inner[0], draw)] * draw.choice([0, 1, 1, 2]))
        case _:
            return _filled(draw.choice(inner), draw)
