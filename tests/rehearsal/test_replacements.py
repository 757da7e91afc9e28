"""What an update replaces, beside the preview of Pulumi's engine: each argument of the examples, changed once."""

import json
import runpy
import subprocess
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any, get_args

import ml_foundations.proof
import pulumi
import pytest
import yaml
from ml_foundations.component.base import Component
from ml_foundations.component.partial import validated
from ml_foundations.kubernetes.trees import UNKNOWN, map_leaves
from ml_foundations.rehearsal.engine import dry_run_process, environment, installation, stack
from ml_foundations.rehearsal.engine.dry_run import DryRun, parsed
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.plugins.gcp.provider import GcpProvider
from ml_foundations.rehearsal.plugins.kubernetes.provider import KubernetesProvider
from ml_foundations.rehearsal.plugins.provider import Provider, Resource, State
from ml_foundations.rehearsal.plugins.random.provider import RandomProvider
from ml_foundations.rehearsal.replacements import replacements
from ml_foundations.rehearsal.tools.toolchain import Tools

from tests.support import recording
from tests.support.attached import plugins
from tests.support.checkout import CHECKOUT
from tests.support.declaring import CLUSTER, run
from tests.support.project import offered

Changed = tuple[str, str, str]
"""A component's kind and name, and the argument that changes."""
MOST = 6
"""The changes that one preview shows; a trial shows all."""
CHECKED_BY_OTHERS = ("location", "multi_networking", "project", "zones")
"""Arguments that other components of a program compare with their own: no other value alone is valid."""


class Copy(pulumi.ComponentResource):
    """The example once more, for one change. Its type keeps the urns apart."""

    def __init__(self, number: int) -> None:
        super().__init__(f"tests:copies:N{number}", f"copy-{number}")


def candidates(value: Any, annotation: Any) -> Iterator[Any]:
    """Values that an argument may accept in place of one."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, value - 1, value * 2, value // 2)
    elif isinstance(value, str):
        yield from (get_args(annotation))
        yield from (f"{value}x", f"{value}0", "1", "us-east1", "n2-standard-16")
    elif isinstance(value, list):
        yield from (value[:-1], [*value, *value], [*value, "x"], ["x"])
    elif isinstance(value, dict):
        yield from ({**value, "x": "y"}, {}, {"x": "1"})
    else:
        yield from ("x", 2, True, "1Gi", ["x"], {"x": "y"})


def altered(spec: Any, field: str) -> Any:
    """The spec with another value of a field; None if none of the tried ones is valid."""
    kind, value = type(spec), getattr(spec, field)
    given = {name: getattr(spec, name) for name in spec.model_fields_set}
    annotation = kind.model_fields[field].annotation
    for candidate in () if isinstance(value, pulumi.Output) else candidates(value, annotation):
        values = {**given, field: candidate}
        other, errors = validated(kind, values, by_alias=False, by_name=True)
        if other is not None and not errors and getattr(other, field) != value:
            return other
    return None


def run_example(name: str, change: Changed | None, seen: list[Changed] | None = None) -> None:
    """Run an example's program, with one argument changed."""
    plain = Component._checked

    def checked(self: Any, own: str, *more: Any) -> Any:
        spec, *rest = plain(self, own, *more)
        kind = type(self).__name__
        if seen is not None:
            fields = [field for field in spec.model_fields_set if altered(spec, field) is not None]
            seen.extend((kind, own, field) for field in fields)
        if change and change[:2] == (kind, own):
            spec = altered(spec, change[2])
        return spec, *rest

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Component, "_checked", checked)
        patch.setattr(ml_foundations.proof, "Proof", lambda *_, **__: nullcontext())
        runpy.run_path(str(CHECKOUT / "examples" / name), run_name="__main__")


def copies(name: str, changes: list[Changed], *, changed: bool) -> None:
    """Declare an example once for each change, below a parent that is the copy's own."""
    plain = pulumi.Resource.__init__
    for number, change in enumerate(changes):
        copy = Copy(number)

        def init(self: Any, t: str, own: str, custom: bool, props: Any = None, opts: Any = None,
                 *more: Any, parent: Any = copy, **options: Any) -> None:  # fmt: skip
            opts = opts or pulumi.ResourceOptions()
            if opts.parent is None:
                opts = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(parent=parent))
            plain(self, t, own, custom, props, opts, *more, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pulumi.Resource, "__init__", init)
            run_example(name, change if changed else None)


def config(name: str) -> dict[str, str]:
    file = CHECKOUT / "examples" / name / "Pulumi.dev.yaml"
    given = (yaml.safe_load(file.read_text()) or {}).get("config", {}) if file.exists() else {}
    texts = {key: value for key, value in given.items() if isinstance(value, str)}
    return {key: json.dumps(value) for key, value in given.items()} | texts


def dry(name: str, program: Callable[[], None]) -> DryRun:
    """What a program declares, as a dry run finds it."""
    monitor = dry_run_process._Monitor(dry_run_process._InputsOnly())
    pulumi.runtime.set_all_config(config(name))
    try:
        run(program, monitor, name, "dev", preview=True)
    finally:
        pulumi.runtime.set_all_config({})
    resources, options = parsed(monitor.registered)
    return DryRun(resources, options=options)


@cache
def changes_of(name: str) -> list[Changed]:
    """Each argument of an example's components that no example before it has of the kind."""
    before = recording.EXAMPLES[: recording.EXAMPLES.index(name)]
    known = {(kind, field) for example in before for kind, _, field in changes_of(example)}
    seen: list[Changed] = []
    dry(name, lambda: run_example(name, None, seen))
    new: dict[tuple[str, str], Changed] = {}
    for change in sorted(seen):
        if (change[0], change[2]) not in known:
            new.setdefault((change[0], change[2]), change)
    return [*new.values()]


def sample(name: str, most: int) -> list[Changed]:
    """Some of an example's changes, from all of its components."""
    changes = [change for change in changes_of(name) if change[2] not in CHECKED_BY_OTHERS]
    return changes[:: max(1, len(changes) // most)] if most else changes


def computed(resource: Resource, outputs: Any) -> Any:
    """Outputs whose unknown ones have a value, which another resource does not have."""
    return map_leaves(outputs, lambda leaf: f"of-{resource.name}" if leaf is UNKNOWN else leaf)


class Kubernetes(KubernetesProvider):
    """The plugin with a cluster that stores everything."""

    def create(self, resource: Resource, new: Any) -> State:
        metadata = new.get("metadata", {})
        identity = f"{metadata.get('namespace', '')}/{metadata.get('name', resource.name)}"
        return State(identity.lstrip("/"), new, computed(resource, new))

    def preview(self, resource: Resource, old: State | None, new: Any) -> Any:
        return new

    def check(self, resource: Resource, old: Any, new: Any) -> Any:
        release = new if resource.type.endswith(":Release") else None
        return super().check(resource, old, new) if release is None else release

    def read(self, resource: Resource, old: State) -> State | None:
        return old

    def _must_replace_unready(self, old: State, new: Any) -> bool:
        return False


class Gcp(GcpProvider):
    """The plugin with a cloud that makes everything."""

    def create(self, resource: Resource, new: Any) -> State:
        more = CLUSTER if resource.type == "gcp:container/cluster:Cluster" else {}
        outputs = computed(resource, self.preview(resource, None, new) | more)
        return State(f"the-id-of-{resource.name}", new, outputs)


class Engine:
    """Pulumi's engine on plugins in this process."""

    def __init__(self, name: str, root: Path, tools: Tools) -> None:
        (root / "Pulumi.yaml").write_text(f"name: {name}\nruntime: python\n")
        (root / "Pulumi.dev.yaml").write_text(yaml.safe_dump({"config": config(name)}))
        (root / "__main__.py").write_text("")
        self._rehearsal = Rehearsal.of("dev", root)
        installation.install(self._rehearsal, tools)
        stack.create(self._rehearsal)
        # The state is written once, at the end, and not for each of the copies' resources.
        at_the_end = {"PULUMI_EXPERIMENTAL": "1", "PULUMI_SKIP_CHECKPOINTS": "1"}
        self._environment = environment.process_environment(self._rehearsal) | at_the_end

    def run(self, program: Callable[[], None], *args: str) -> str:
        made: dict[str, Callable[[], Provider]] = {
            "kubernetes": Kubernetes,
            "gcp": lambda: Gcp(self._rehearsal),
            "random": RandomProvider,
        }
        command = [self._rehearsal.bin_dir / "pulumi", *args, "--stack=dev", "--non-interactive"]
        with offered(program) as client, plugins(self._environment, **made) as variables:
            done = subprocess.run(
                [*command, *client],
                cwd=self._rehearsal.project,
                env=self._environment | variables,
                capture_output=True,
                text=True,
                timeout=3600,
                check=False,
            )
        assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
        return done.stdout

    def replaced(self, old: Callable[[], None], new: Callable[[], None]) -> set[str]:
        """The urns of what a preview of the new program replaces after an update to the old one."""
        self.run(old, "up", "--yes", "--skip-preview", "--suppress-outputs")
        steps = json.loads(self.run(new, "preview", "--json"))["steps"]
        return {step["urn"] for step in steps if "replace" in step["op"]}


@pytest.mark.parametrize("name", recording.EXAMPLES)
@pytest.mark.parametrize("most", [MOST, pytest.param(0, marks=pytest.mark.trial)])
def test_each_replacement_of_the_engine(name: str, most: int, tools: Tools, tmp_path: Path) -> None:
    changes = sample(name, most)

    def before() -> None:
        copies(name, changes, changed=False)

    def after() -> None:
        copies(name, changes, changed=True)

    expected = Engine(name, tmp_path, tools).replaced(before, after)
    found = replacements(dry(name, before), dry(name, after))
    assert {urn: change_of(urn, changes) for urn in expected - found.keys()} == {}
    assert {urn: change_of(urn, changes) for urn in found.keys() - expected} == {}


def change_of(urn: str, changes: list[Changed]) -> Changed:
    number = urn.partition("tests:copies:N")[2].partition("$")[0]
    return changes[int(number)]
