"""The components as a package for programs in any of Pulumi's languages: its schema, as the CLI reads it."""

import json
import re
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from ml_foundations.rehearsal.engine import environment, installation
from ml_foundations.rehearsal.tools.toolchain import Tools

from tests.support.checkout import CHECKOUT, Checkout

COMMITTED = CHECKOUT / "components" / "schema.json"


@pytest.fixture(scope="module")
def schema(tools: Tools, copy_checkout: Callable[[], Checkout]) -> dict[str, Any]:
    checkout = copy_checkout()
    rehearsal = checkout.rehearsal()
    installation.install(rehearsal, tools)
    done = subprocess.run(
        [rehearsal.bin_dir / "pulumi", "package", "get-schema", "./components"],
        cwd=checkout.root,
        env=environment.process_environment(rehearsal),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_committed_schema_is_current(schema: dict[str, Any]) -> None:
    assert schema == json.loads(COMMITTED.read_text()), "run: make generate"


def test_everything_is_described(schema: dict[str, Any]) -> None:
    silent = [
        f"{name}.{part}.{key}"
        for section in ("resources", "types")
        for name, entry in schema[section].items()
        for part in ("inputProperties", "properties")
        for key, value in entry.get(part, {}).items()
        if not value.get("description")
    ]
    silent += [
        name
        for section in ("resources", "types")
        for name, e in schema[section].items()
        if not e.get("description")
    ]
    assert not silent


def test_the_official_host_installs_what_the_lock_says() -> None:
    locked = pins((CHECKOUT / "requirements.lock").read_text())
    package = pins((CHECKOUT / "components" / "requirements.txt").read_text())
    assert {"pulumi", "pulumi-gcp", "pulumi-kubernetes", "pydantic"} <= package.keys()
    assert package.items() <= locked.items()


def pins(text: str) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", text, re.MULTILINE))
