"""The generated part of docs/workloads.md: the objects that each workload component makes, its arguments and defaults.

The objects are found out by declaring the components against Pulumi's mocks; arguments and their defaults are read from
the models that check them.
"""

import asyncio
import json
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import ml_foundations
import pulumi
from ml_foundations.component.errors import ArgumentsError
from ml_foundations.component.spec import Spec
from pulumi.runtime.stack import run_pulumi_func
from pydantic_core import PydanticUndefined

DOCS = Path(__file__).parent
PAGE = DOCS / "workloads.md"
SCHEMA = json.loads((DOCS.parent / "components" / "schema.json").read_text())
START, END = "<!-- generated: make schema -->", "<!-- end -->"

Arguments = dict[str, Any]

POD: Arguments = {"namespace": "ml", "image": "i", "cpu": "8", "memory": "64Gi"}
TEAM: Arguments = {"namespace": "ml", "cpu": "8", "memory": "64Gi", "gpus": {"l4": 1}}

LEAST: dict[str, Arguments] = {
    "Task": POD,
    "TrainingJob": POD,
    "DistributedTraining": POD | {"nodes": 2},
    "Sweep": POD | {"command": ["python", "train.py"], "parameters": {"LR": {"values": [0.1]}}},
    "ScheduledTraining": POD | {"schedule": "@daily"},
    "ShardedSet": POD | {"shards": 2},
    "InferenceService": POD,
    "GpuMonitor": {},
    "TrainingQueue": {"flavors": [{"name": "l4", "gpu": "L4"}], "teams": [TEAM]},
}
"""The workload components, each with what it must be given."""

CLAIM: Arguments = {"gpus": 1, "gpu_claim": {}}
CHOICES: dict[str, Arguments] = {
    "gpu_claim": CLAIM,
    "jobset: true": {"jobset": True},
    "autoscaling": {"autoscaling": {"max_replicas": 2, "cpu_percent": 80}},
    "disruption_budget: false": {"disruption_budget": False},
    "callers": {"callers": ["web"]},
    "monitoring: google": {"monitoring": "google"},
    "monitoring: prometheus": {"monitoring": "prometheus"},
    "files": {"files": {"a.yaml": "a: 1"}},
    "port: 0": {"port": 0},
    "create_namespace: false": {"create_namespace": False},
    "install: false": {"install": False},
}
"""Arguments on which it depends which objects are made."""

GROUPS: dict[str, tuple[str, ...]] = {
    "Every workload with a pod": tuple(name for name in LEAST if name not in ("GpuMonitor", "TrainingQueue")),
    "Every Job": ("TrainingJob", "DistributedTraining", "Sweep", "ScheduledTraining"),
    "Jobs that Pulumi can wait for": ("TrainingJob", "DistributedTraining", "Sweep"),
    "Jobs of independent pods": ("TrainingJob", "ScheduledTraining"),
    "Every server": ("ShardedSet", "InferenceService"),
}
"""Components that share arguments."""


class _Recorder(pulumi.runtime.Mocks):
    """Answers with the inputs, and notes the kinds."""

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str, Arguments]:
        if args.typ.startswith("kubernetes:"):
            self.kinds.append(args.typ.rpartition(":")[2])
        return args.name, dict(args.inputs)

    def call(self, args: pulumi.runtime.MockCallArgs) -> Arguments:
        raise NotImplementedError(args.token)


def kinds(component: str, args: Arguments) -> list[str]:
    """The kinds of the objects that a component declares, each once."""
    recorder = _Recorder()
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    pulumi.runtime.set_mocks(recorder, project="p", stack="s", preview=False)
    program = run_pulumi_func(lambda: getattr(ml_foundations, component)("x", args))
    loop.run_until_complete(program)
    loop.close()
    return sorted(set(recorder.kinds))


def generated() -> str:
    """The generated part of the page."""
    lines = ["| component | makes | and, as it is told |", "|---|---|---|", *map(objects, LEAST), ""]
    lines += ["## Arguments and defaults", ""]
    lines += ["`*` must be given. Without a default here or in the text, nothing is said to Kubernetes.", ""]
    shown: set[tuple[str, str]] = set()
    for title, members in {**GROUPS, **{name: (name,) for name in LEAST}}.items():
        common = set.intersection(*(set(rows(name)) for name in members))
        own = [row for row in rows(members[0]) if row in common and (members[0], row) not in shown]
        shown |= {(name, row) for name in members for row in own}
        if own:
            listed = "" if title in LEAST else f"{', '.join(members)}.\n\n"
            lines += [f"### {title}", "", f"{listed}| argument | default | is |", "|---|---|---|", *own, ""]
    return "\n".join(lines)


def objects(component: str) -> str:
    """A row: what a component makes, and what else, or not, by which argument."""
    least = kinds(component, LEAST[component])
    said: list[str] = []
    for choice, args in CHOICES.items():
        with suppress(ArgumentsError):  # not a choice that this component has
            made = kinds(component, LEAST[component] | args)
            said += [f"`{choice}`: {change}"] if (change := changed(least, made)) else []
    name = f"[{component}](components/{component}.md)"
    return f"| {name} | {', '.join(least)} | {'; '.join(said)} |"


def changed(before: list[str], after: list[str]) -> str:
    """What comes and goes between two lists of kinds, in words."""
    come = [kind for kind in after if kind not in before]
    gone = [kind for kind in before if kind not in after]
    if come and gone:
        return f"{', '.join(come)} in place of {', '.join(gone)}"
    return ", ".join(come) or (f"no {', no '.join(gone)}" if gone else "")


def rows(component: str) -> list[str]:
    """A component's arguments: name, default and what it is."""
    entry = SCHEMA["resources"][f"ml-foundations:index:{component}"]
    required = entry.get("requiredInputs", [])
    fields = {field.alias: field.default for field in spec_of(component).model_fields.values()}
    ordered = sorted(entry["inputProperties"].items(), key=lambda item: item[0] not in required)
    return [
        f"| `{key}`{' *' if key in required else ''} | {default(fields.get(key))} | {described(value)} |"
        for key, value in ordered
    ]


def spec_of(component: str) -> type[Spec]:
    """The model that checks a component's arguments."""
    module = import_module(getattr(ml_foundations, component).__module__)
    return getattr(module, f"{component}Spec", None) or getattr(module, f"_{component}Spec")


def default(value: Any) -> str:
    """A default as a stack file says it; nothing where there is none, or where the component makes one up."""
    if value in (None, PydanticUndefined) or value in ({}, []):
        return ""
    return f"`{json.dumps(value, default=lambda spec: spec.given())}`".replace('"', "")


def described(value: Arguments) -> str:
    """A description in one line."""
    return " ".join(value["description"].split()).replace("|", "\\|")


def page() -> str:
    """The page, its generated part made anew."""
    before, _, rest = PAGE.read_text().partition(START)
    return f"{before}{START}\n\n{generated()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page())
