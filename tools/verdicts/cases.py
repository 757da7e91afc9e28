"""The cases: the manifests and golden programs of a checkout, and seeded edits of them."""

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

MANIFESTS = ("tests", "examples")
PROGRAMS = ("tests/golden",)
NODE_POOL = "gcp:container/nodePool:NodePool"
_NUMBERS = (0, 1, 2, 3, 8, 64, 1000)


class Case(NamedTuple):
    """Manifests or a program that a commit judges at once."""

    name: str
    is_program: bool
    parts: list[Any]
    """Manifests, or the ``[type, inputs]`` of the resources of a program."""


def cases(root: Path, seed: int, documents: int, pools: int, programs: int) -> Iterator[Case]:
    """Yield all cases of a checkout, then as many edits of each kind as asked for."""
    manifests = [Case(name, False, parts) for name, parts in _manifests(root)]
    whole = [Case(name, True, parts) for name, parts in _programs(root)]
    with_pools = [case for case in whole if _pools(case)]
    yield from manifests
    yield from whole
    chance = random.Random(seed)
    for kind, count, bases in (
        ("documents", documents, manifests),
        ("pools", pools, with_pools),
        ("programs", programs, whole),
    ):
        for number in range(count):
            base = chance.choice(bases)
            parts = copy.deepcopy(base.parts)
            edited = parts
            if kind == "pools":
                edited = [parts[index] for index in _pools(base)]
            for _ in range(chance.randint(1, 3)):
                _edit(edited, chance)
            yield Case(f"{kind} {number} of {base.name}", base.is_program, parts)


def _manifests(root: Path) -> Iterator[tuple[str, list[Any]]]:
    for name, trees in _files(root, MANIFESTS):
        if all(isinstance(tree, dict) and "kind" in tree for tree in trees):
            yield name, [part for tree in trees for part in tree.get("items") or [tree]]


def _programs(root: Path) -> Iterator[tuple[str, list[Any]]]:
    for name, trees in _files(root, PROGRAMS):
        if isinstance(trees[0], list) and all("type" in part for part in trees[0]):
            yield name, [[part["type"], part.get("inputs", {})] for part in trees[0]]


def _files(root: Path, folders: tuple[str, ...]) -> Iterator[tuple[str, list[Any]]]:
    for path in sorted(path for folder in folders for path in (root / folder).rglob("*.yaml")):
        try:
            trees = [tree for tree in yaml.load_all(path.read_text(), yaml.CSafeLoader) if tree]
            # The copy has no part twice, which an edit would change in both places.
            trees = json.loads(json.dumps(trees, default=str))
        except (yaml.YAMLError, ValueError):
            continue  # of tests of the reader
        if trees:
            yield str(path.relative_to(root)), trees


def _pools(case: Case) -> list[int]:
    return [index for index, (type_, _) in enumerate(case.parts) if type_ == NODE_POOL]


def _edit(parts: list[Any], chance: random.Random) -> None:
    """Change, remove or double one value somewhere in the parts."""
    places = list(_places(parts))
    if not places:
        return
    holder, key = chance.choice(places)
    value = holder[key]
    change = chance.randrange(4)
    if change == 0:
        del holder[key]
    elif isinstance(value, bool):
        holder[key] = not value
    elif isinstance(value, int):
        holder[key] = chance.choice(_NUMBERS)
    elif isinstance(value, str):
        same = [copy.deepcopy(part[name]) for part, name in places if name == key]
        holder[key] = chance.choice([*same, value + "x", ""])
    elif isinstance(value, list) and value:
        value.append(copy.deepcopy(chance.choice(value)))
    elif change == 1:
        holder[key] = None


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each place below a tree, as its holder and its key there."""
    if isinstance(tree, dict | list):
        keys = list(tree) if isinstance(tree, dict) else range(len(tree))
        for key in keys:
            # A case stays a list of manifests or resources.
            if not isinstance(tree, list) or not isinstance(tree[key], dict | list):
                yield tree, key
            yield from _places(tree[key])
