"""What is not known yet refuses nothing, wherever it is: each field of many objects in turn."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning.verdict.program import judge_program
from ml_foundations.planning.verdict.verdicts import Verdicts

from tests.support.checkout import CHECKOUT

HERE = Path(__file__).parent
FILES = [
    HERE / "of_every_kind.yaml",
    HERE / "of_other_kinds.yaml",
    *sorted((CHECKOUT / "tests/golden/workloads").glob("*.yaml")),
    *sorted((CHECKOUT / "tests/differential/regressions").glob("*.yaml")),
]


def documents_of(file: Path) -> list[Any]:
    text = file.read_text()
    return [document for document in yaml.load_all(text, yaml.CSafeLoader) if document]


def judged(documents: list[Any]) -> Verdicts:
    """The verdicts on documents as a program would declare them."""
    versions = [each["apiVersion"] for each in documents]
    groups = [version if "/" in version else f"core/{version}" for version in versions]
    return judge_program(
        [
            (f"kubernetes:{group}:{each['kind']}", each)
            for group, each in zip(groups, documents, strict=True)
        ],
        (),
    )


def refused(verdicts: Verdicts) -> set[tuple[str, str]]:
    """The fields that the API server is said to refuse for certain."""
    return {(each.object, each.path) for each in verdicts.findings if each.rule == "invalid"}


def each_unknown(tree: Any) -> Iterator[Any]:
    """The tree with one part after the other not known."""
    for key in tree if isinstance(tree, dict) else range(len(tree)):
        changed = copy.copy(tree)
        changed[key] = UNKNOWN
        yield changed
        if isinstance(tree[key], dict | list):
            for below in each_unknown(tree[key]):
                yield (
                    {**tree, key: below}
                    if isinstance(tree, dict)
                    else [*tree[:key], below, *tree[key + 1 :]]
                )


def cases() -> Iterator[Any]:
    """Yield the documents of each file with the number of one of them."""
    for file in FILES:
        documents = documents_of(file)
        for index, document in enumerate(documents):
            # Without the defaults of a LimitRange, pods may be refused that would be admitted.
            if document["kind"] != "LimitRange":
                name = f"{file.stem}-{index}-{document['kind']}"
                yield pytest.param(documents, index, id=name)


def test_the_objects_of_every_kind_fit() -> None:
    assert judged(documents_of(HERE / "of_every_kind.yaml")).stack == "fits"


@pytest.mark.parametrize(("documents", "index"), cases())
def test_what_is_not_known_refuses_nothing(documents: list[Any], index: int) -> None:
    before = refused(judged(documents))
    paths_before = {path for _, path in before}
    for changed in each_unknown(documents[index]):
        if UNKNOWN in (changed["apiVersion"], changed["kind"]):
            continue
        new = refused(judged([*documents[:index], changed, *documents[index + 1 :]])) - before
        assert not {path for _, path in new} - paths_before, changed
