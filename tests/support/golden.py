"""Files that hold what was read and found right: UPDATE_GOLDEN=1 writes them again, to be read again."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.support.checkout import CHECKOUT

GOLDEN = CHECKOUT / "tests" / "golden"


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def holds(path: Path, made: str) -> None:
    """Assert that a golden file has this text."""
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(made)
    assert made == path.read_text(), (
        f"{path.relative_to(CHECKOUT)} differs; read it, then UPDATE_GOLDEN=1"
    )


def whole(resources: list[dict[str, Any]]) -> str:
    """Resources, each with what was said of it."""
    return _text([_said(resource) for resource in resources])


def difference(
    name: str, resources: list[dict[str, Any]], base: str, others: list[dict[str, Any]]
) -> str:
    """How the resources of a stack differ from those of another, once that one's name is replaced by its own."""
    renamed = json.loads(re.sub(rf"(?<!\w){base}(?![\w/])", name, json.dumps(others)))
    ours = {(resource["type"], resource["name"]): resource for resource in resources}
    theirs = {(resource["type"], resource["name"]): resource for resource in renamed}
    return _text(
        {
            "added": [_said(ours[key]) for key in sorted(ours.keys() - theirs.keys())],
            "removed": [" ".join(key) for key in sorted(theirs.keys() - ours.keys())],
            "changed": {
                " ".join(key): dict(_changes(theirs[key], ours[key], base, name))
                for key in sorted(ours.keys() & theirs.keys())
                if ours[key] != theirs[key]
            },
        }
    )


def _said(resource: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in resource.items() if value}


def _changes(
    old: Any, new: Any, base: str, name: str, path: str = ""
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each value that differs, by its path; a stack without it is not listed."""
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            if key in old and key in new:
                yield from _changes(
                    old[key], new[key], base, name, f"{path}.{key}" if path else key
                )
            else:
                yield f"{path}.{key}", {base: old[key]} if key in old else {name: new[key]}
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from _changes(before, after, base, name, f"{path}[{index}]")
    else:
        yield path, {base: old, name: new}


def _text(value: Any) -> str:
    return yaml.dump(value, Dumper=_Dumper, sort_keys=True, width=110, default_flow_style=None)
