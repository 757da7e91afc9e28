"""Whatever is in the place of a field that planning reads, there are verdicts or refusals: never an unexpected error.

The fields are those that readers ask for, noted while they judge all manifests of the tests and examples and all golden
programs: also fields that an object lacks.
"""

import copy
import json
import random
import re
import subprocess
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from ml_foundations.kubernetes.objects import plural
from ml_foundations.planning import UNKNOWN
from ml_foundations.planning.input import documents, field_catalog
from ml_foundations.planning.input.dump import dump_command
from ml_foundations.planning.verdict import markdown, report
from ml_foundations.planning.verdict.program import judge_documents, judge_program
from ml_foundations.planning.verdict.verdicts import Verdicts

from tests.support.checkout import CHECKOUT
from tests.support.field_reads import Place, noting
from tests.support.trials import sizes

_Judge = Callable[[Sequence[Any]], Any]
_ABSENT: Any = object()
VALUES: list[Any] = [
    *(_ABSENT, None, "", "x", 5, -1, 1.5, True, 10**30, [], {}, {"x": 5}, {"x": None}),
    *(["x"], [5], [None], [{}], [[]], [{"name": []}], [{"name": "x"}]),
]
_MANIFESTS = ("tests/planning", "tests/golden/workloads", "examples")
_PROGRAMS = ("tests/golden/dev.yaml", "tests/golden/examples", "tests/golden/gke")


def _loaded(path: Path) -> list[Any]:
    return [tree for tree in yaml.load_all(path.read_text(), yaml.CSafeLoader) if tree]


def _manifests() -> Iterator[tuple[str, list[Any]]]:
    for path in sorted(path for name in _MANIFESTS for path in (CHECKOUT / name).rglob("*.yaml")):
        trees = _loaded(path)
        if trees and all(isinstance(tree, dict) and "kind" in tree for tree in trees):
            yield str(path), [item for tree in trees for item in tree.get("items", [tree])]


def _programs() -> Iterator[tuple[str, list[Any]]]:
    """Yield the golden programs, and the manifests as programs, which do not pass the reader of files."""
    files = [CHECKOUT / name for name in _PROGRAMS]
    for path in sorted(below for file in files for below in (file, *file.rglob("*.yaml"))):
        trees = _loaded(path)[0] if path.is_file() else []
        if isinstance(trees, list):
            yield str(path), [[each["type"], each.get("inputs", {})] for each in trees]
    for path, trees in _manifests():
        yield path, [["kubernetes:of:Manifest", tree] for tree in trees]


def _plan(trees: Sequence[Any]) -> None:
    try:
        manifests = documents.read(json.dumps({"kind": "List", "items": trees}), "trees")
    except documents.UnreadableError:
        return  # each error has its place
    _show(judge_documents(manifests))


def _prove(trees: Sequence[Any]) -> None:
    _show(judge_program([(type_, inputs) for type_, inputs in trees], rehearsed=True))


def _show(verdicts: Verdicts) -> None:
    report.as_text(verdicts)
    report.as_json(verdicts)
    markdown.of_verdicts(verdicts)


def places(trees: Sequence[Any], judge: _Judge) -> dict[tuple[Any, ...], Place]:
    """Return where readers look in some trees, by kind and field."""
    reads: set[Place] = set()
    with pytest.MonkeyPatch.context() as patched:
        # Its copies would note nothing.
        patched.setattr(field_catalog, "as_stored", lambda tree: tree)
        judge(noting(trees, reads))
    found: dict[tuple[Any, ...], Place] = {}
    for place in sorted(reads, key=str):
        tree = trees[place[0]]
        keys = place[2:] if isinstance(tree, list) else place[1:]
        if keys and len(place) > 1:
            type_, manifest = tree if isinstance(tree, list) else ("", tree)
            kind = f"{manifest.get('apiVersion')} {manifest.get('kind')} {type_}"
            found[(kind, *("[]" if isinstance(key, int) else key for key in keys))] = place
    return found


def changed(trees: Sequence[Any], place: Place, value: Any) -> list[Any]:
    """Return a copy of trees with a value at a place."""
    result: Any = copy.deepcopy([*trees])
    holder = result
    for key in place[:-1]:
        holder = holder[key]
    if value is not _ABSENT:
        holder[place[-1]] = value
    elif isinstance(holder, list) or place[-1] in holder:
        del holder[place[-1]]
    return result


@cache
def _planned() -> list[tuple[str, list[Any], dict[tuple[Any, ...], Place]]]:
    """Return the manifests of each file, with the places where planning reads."""
    return [(name, trees, places(trees, judge_documents)) for name, trees in _manifests()]


def _proved() -> Iterator[tuple[str, list[Any], dict[tuple[Any, ...], Place]]]:
    for name, trees in _programs():
        yield name, trees, places(trees, _prove)


def trials(
    files: Iterable[tuple[str, list[Any], dict[tuple[Any, ...], Place]]], values: list[Any]
) -> Iterator[tuple[str, list[Any], Place, Any]]:
    """Yield each field that is read, with each value, in any of the files that have it."""
    draw, by_field = (
        random.Random(1),
        defaultdict[tuple[Any, ...], list[tuple[str, list[Any], Place]]](list),
    )
    for name, trees, found in files:
        for field, place in found.items():
            by_field[field].append((name, trees, place))
    for holders in by_field.values():
        for value in values:
            # What reads the value next depends on the other objects of the file.
            yield *draw.choice(holders), value


@pytest.mark.parametrize("count", sizes(400, 3_000))
@pytest.mark.parametrize("way", ["plan", "proof"])
def test_no_value_of_a_field_that_is_read_is_unexpected(way: str, count: int) -> None:
    if way == "plan":
        judge, every = _plan, [*trials(_planned(), VALUES)]
    else:
        judge, every = _prove, [*trials(_proved(), [*VALUES, UNKNOWN])]
    assert len(every) > 50_000
    failed: list[str] = []
    for name, trees, place, value in random.Random(1).sample(every, min(count, len(every))):
        try:
            judge(changed(trees, place, value))
        except Exception as error:
            shown = "nothing" if value is _ABSENT else repr(value)
            where = traceback.extract_tb(error.__traceback__)[-1]
            at = f"{Path(where.filename).name}:{where.lineno}"
            field = ".".join(map(str, place))
            failed.append(f"{at} {error!r}: {Path(name).name} {field} = {shown}")
    assert not failed, "\n".join(sorted(failed)[:40])


_PARTITION = ("metadata", "labels", "cloud.google.com/gke-gpu-partition-size")
_FLAVOR = ("spec", "resourceGroups", 0, "flavors", 1, "name")
_CONTAINERS = ("spec", "replicatedJobs", 0, "template", "spec", "template", "spec", "containers")


@pytest.mark.parametrize(
    ("file", "kind", "field", "value"),
    [
        ("inference-pool-wrong-port.yaml", "Node", _PARTITION, ""),
        ("inference-pool-wrong-port.yaml", "Node", _PARTITION, ["x"]),
        ("a3mega-training.yaml", "ClusterQueue", _FLAVOR, UNKNOWN),
        ("a3mega-training.yaml", "JobSet", _CONTAINERS, []),
    ],
)
def test_what_the_trials_once_showed(file: str, kind: str, field: Place, value: Any) -> None:
    (trees,) = (trees for name, trees in _programs() if Path(name).name == file)
    index = next(i for i, (_, tree) in enumerate(trees) if tree.get("kind") == kind)
    _prove(changed(trees, (index, 1, *field), value))


def test_the_dump_has_all_kinds_whose_fields_are_read() -> None:
    read: set[tuple[str, str]] = set()
    for _, _, found in _planned():
        for kind, *field in found:
            version, name, _ = kind.split(" ")
            is_known = field_catalog.kind_of(version, name)[0] != field_catalog.UNKNOWN_KIND
            if is_known and field[0] not in ("apiVersion", "kind", "metadata"):
                read.add((version.rpartition("/")[0], name))
    pattern = re.search("-Ex '(.*?)'", dump_command())
    assert pattern and len(read) > 40
    for group, name in sorted(read):
        resource = f"{plural(name)}.{group}".rstrip(".")
        is_dumped = re.fullmatch(pattern[1], resource) is not None
        assert is_dumped or name in ("Secret", "Configuration"), resource
    # What planning replaces by what controllers make of it.
    for resource in ("scaledobjects.keda.sh", "trainjobs.trainer.kubeflow.org"):
        assert re.fullmatch(pattern[1], resource), resource


def test_the_page_dumps_by_the_command() -> None:
    page = (CHECKOUT / "docs" / "planning.md").read_text()
    assert ".venv/bin/ml-foundations plan --dump-command | sh > cluster.yaml" in page
    assert "kubectl get all," not in page


def test_the_command_asks_the_cluster_for_what_it_has(tmp_path: Path) -> None:
    kubectl = tmp_path / "kubectl"
    listed = "pods\\npods.metrics.k8s.io\\nsecrets\\nhorizontalpodautoscalers.autoscaling\\nevents\\nclusterqueues.kueue.x-k8s.io\\napiservices.apiregistration.k8s.io\\njobsets.jobset.x-k8s.io"
    kubectl.write_text(f'#!/bin/sh\n[ $1 = get ] && echo "$@" || printf "{listed}\\n"\n')
    kubectl.chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", dump_command()],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == (
        "get pods,horizontalpodautoscalers.autoscaling,clusterqueues.kueue.x-k8s.io,"
        "apiservices.apiregistration.k8s.io,jobsets.jobset.x-k8s.io -A -o yaml\n"
    )
