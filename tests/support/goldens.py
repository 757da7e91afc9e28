"""The objects of Kubernetes that stacks, examples and the golden files of components declare."""

from collections.abc import Iterator
from typing import Any

import yaml

from tests.support import recording
from tests.support.golden import GOLDEN


def objects() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each object with the stack, example or golden file that declares it."""
    for stack in recording.STACKS:
        yield from _objects(stack, recording.stack(stack))
    for example in recording.EXAMPLES:
        yield from _objects(example, recording.example(example))
    yield from _objects("every-key", yaml.safe_load((GOLDEN / "every-key.yaml").read_text()))
    for path in sorted((GOLDEN / "gke").glob("*.yaml")):
        yield from _objects(path.stem, yaml.safe_load(path.read_text()))
    for path in sorted((GOLDEN / "workloads").glob("*.yaml")):
        for manifest in yaml.safe_load_all(path.read_text()):
            yield path.stem, manifest


def _objects(where: str, resources: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for resource in resources:
        if {"apiVersion", "kind"} <= resource.get("inputs", {}).keys():
            yield where, resource["inputs"]
