"""Runs scenarios: all of them in one program, step by step, so that a step is one preview and one update."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.support.project import Project

FILE = Path(__file__).with_name("scenarios.yaml")
DIFFERENCES = FILE.with_name("differences.yaml")


@dataclass
class Scenario:
    """What a program declares step by step, and what comes of it."""

    name: str
    steps: list[dict[str, Any]]
    objects: Mapping[str, Any]

    @property
    def names(self) -> list[str]:
        """All resources that it ever declares."""
        return sorted({name for step in self.steps for name in step.get("declares", {})})

    def fails_at_preview(self, number: int) -> Mapping[str, str]:
        """What a step's preview says of the resources that it fails for; a scenario that has ended stays as it is."""
        return self.steps[min(number, len(self.steps) - 1)].get("previews", {})

    def resources(self, number: int) -> dict[str, Any]:
        """What is declared at a step: what was, with its changes."""
        declared: dict[str, Any] = {}
        for step in self.steps[: number + 1]:
            declared = merged(declared, step.get("declares", {}))
        return declared


@dataclass
class Outcome:
    """What one command did with each resource, by the name in the program."""

    operations: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    failed: set[str] = field(default_factory=set)
    said: defaultdict[str, str] = field(default_factory=lambda: defaultdict(str))

    def of(self, name: str) -> str:
        """In a word what became of a resource: ``create``, ``update``, ``replace``, ``replace first``, ``delete``."""
        done = self.operations[name]
        if "create-replacement" in done:
            is_deleted_first = "delete-replaced" in done[: done.index("create-replacement")]
            word = "replace first" if is_deleted_first else "replace"
        else:
            word = " ".join(step for step in done if step not in ("same", "refresh", "read"))
        return f"{word} fails".strip() if name in self.failed else word


def scenarios() -> list[Scenario]:
    """All scenarios of the file."""
    return [
        Scenario(entry["scenario"], entry["steps"], entry.get("objects", {}))
        for entry in yaml.load(FILE.read_text(), yaml.CSafeLoader)
    ]


def of_pulumis_own(scenarios: list[Scenario]) -> list[Scenario]:
    """The scenarios with what the built release of Pulumi's plugin does otherwise, by its source."""
    found: list[Scenario] = []
    differences: dict[str, Any] = yaml.safe_load(DIFFERENCES.read_text())
    for scenario in scenarios:
        difference = differences.pop(scenario.name, {})
        changes = difference.get("steps", {})
        steps = [step | changes.get(number, {}) for number, step in enumerate(scenario.steps, 1)]
        objects = difference.get("objects", scenario.objects)
        found.append(Scenario(scenario.name, steps, objects))
    assert not differences, f"no such scenarios: {', '.join(differences)}"
    return found


def merged(old: Any, new: Any) -> Any:
    """A declaration with changes: a null takes a key away, a list takes another's place."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    rest = {key: merged(old.get(key), value) for key, value in new.items() if value is not None}
    return {
        key: rest.get(key, old.get(key)) for key in (*old, *rest) if key in rest or key not in new
    }


def program(step: int, chosen: list[Scenario]) -> str:
    """The program of a step: every scenario in a namespace of its own."""
    declared = {scenario.name: scenario.resources(step) for scenario in chosen}
    return f"""
    import json
    def filled(value):
        # The output of another resource for each reference, such as $m.metadata.name; for *9 a text of 9 letters.
        if isinstance(value, dict):
            return {{key: filled(item) for key, item in value.items()}}
        if isinstance(value, list):
            return [filled(item) for item in value]
        if isinstance(value, str) and value[:1] == "*" and value[1:].isdigit():
            return "x" * int(value[1:])
        if not isinstance(value, str) or not value.startswith("$"):
            return value
        name, *path = value[1:].split(".")
        return getattr(made[name], path[0]).apply(lambda found: (found or {{}}).get(path[1])) if path else made[name]
    for scenario, resources in json.loads({json.dumps(json.dumps(declared))}).items():
        made = {{}}
        for name, manifest in resources.items():
            manifest = filled(manifest)
            given = manifest.pop("options", {{}})
            after = [made[other] for other in given.pop("depends_on", [])]
            given["aliases"] = [pulumi.Alias(**alias) for alias in given.pop("aliases", [])]
            api_version, kind = manifest["apiVersion"], manifest["kind"]
            group = api_version if "/" in api_version else "core/" + api_version
            manifest["kind"] = kind.removesuffix("Patch")
            if not manifest.pop("cluster", False):
                manifest.setdefault("metadata", {{}}).setdefault("namespace", scenario)
            made[name] = pulumi.CustomResource(
                "kubernetes:" + group + ":" + kind, scenario + "." + name, manifest, options(depends_on=after, **given))
    """


def preview(project: Project, step: int, chosen: list[Scenario], events: Path) -> Outcome:
    """Preview a step; the first error ends it."""
    return _run(project, program(step, chosen), events, "preview")


def up(project: Project, step: int, chosen: list[Scenario], events: Path) -> Outcome:
    """Make a step, whatever fails."""
    options = ("--yes", "--skip-preview", "--continue-on-error")
    return _run(project, program(step, chosen), events, "up", *options)


def _run(project: Project, text: str, events: Path, *command: str) -> Outcome:
    project.program(text)
    project.environment["PULUMI_DEBUG_COMMANDS"] = "true"
    events.unlink(missing_ok=True)
    done = project.pulumi(*command, "--stack", "t", "--event-log", str(events))
    assert events.exists(), done.stdout + done.stderr
    return _outcome(events)


def _outcome(events: Path) -> Outcome:
    outcome = Outcome()
    for event in map(json.loads, events.read_text().splitlines()):
        if told := event.get("resOutputsEvent") or event.get("resOpFailedEvent"):
            name = _name(told["metadata"]["urn"])
            outcome.operations[name].append(told["metadata"]["op"])
            if "resOpFailedEvent" in event:
                outcome.failed.add(name)
        elif told := event.get("diagnosticEvent"):
            name, message = _name(told.get("urn", "")), re.sub(r"<\{.*?\}>", "", told["message"])
            outcome.said[name] += message
            outcome.failed |= {name} if message.startswith("Preview failed") else set()
    return outcome


def _name(urn: str) -> str:
    return urn.rpartition("::")[2]


def unlike(wanted: Any, found: Any, path: str = "") -> Iterator[str]:
    """Where an object is not as wanted; a null is what must not be there."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key, value in wanted.items():
            yield from unlike(value, found.get(key), f"{path}.{key}")
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for index, value in enumerate(wanted):
            yield from unlike(value, found[index], f"{path}[{index}]")
    elif wanted != found:
        yield f"{path}: {found!r}, not {wanted!r}"
