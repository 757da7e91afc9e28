"""A pytest plugin that notes the manifests which components make in other tests: no test can forget to hand in its own.

Run beside other tests as ``-p tests.support.collecting``; ``MANIFESTS`` names the file, which gets a line for each.
"""

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from ml_foundations.component.children import ChildResource
from ml_foundations.component.spec import ComponentSpec

_found: dict[str, str] = {}
"""The test that made each manifest first, by the manifest's text."""
_declared_children, _all_errors = ComponentSpec.declared_children, ComponentSpec._all_errors
_checked: list[ComponentSpec] = []
"""The specs that are being checked: what they would make may be refused."""


def _noted(spec: ComponentSpec) -> list[ChildResource]:
    parts = _declared_children(spec)
    for part in parts:
        if part.manifest and part.manifest["kind"] != "Secret" and not _checked:
            test = os.environ.get("PYTEST_CURRENT_TEST", "a module").partition(" ")[0]
            with suppress(TypeError):  # an Output, which has no value yet
                _found.setdefault(json.dumps(part.manifest, sort_keys=True), test)
    return parts


def _unnoted(spec: ComponentSpec) -> Iterator[tuple[str, str]]:
    _checked.append(spec)
    try:
        yield from _all_errors(spec)
    finally:
        _checked.pop()


def pytest_configure(config: pytest.Config) -> None:
    ComponentSpec.declared_children, ComponentSpec._all_errors = _noted, _unnoted


def pytest_unconfigure(config: Any) -> None:
    noted = ({"test": test, "manifest": json.loads(text)} for text, test in _found.items())
    Path(os.environ["MANIFESTS"]).write_text("".join(f"{json.dumps(each)}\n" for each in noted))
