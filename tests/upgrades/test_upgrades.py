"""A stack that an earlier version deployed: this one's preview replaces nothing that the changelog does not name."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ml_foundations.rehearsal.engine import installation, project_files, stack
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.tools.toolchain import Tools

from tests.support.checkout import CHECKOUT, Checkout
from tests.upgrades import kept

NEW_OBJECTS = (
    *("research-network-namespaces", "storage-weights", "storage-weights-source"),
    *("storage-weights-snapshots", "gpu-operator-driver-installer"),
)
"""Objects in the cluster that an upgrade creates, or updates in place (the updateStrategy of the installer). Without a
cluster, neither can be previewed."""
IN_PLACE = {"same", "update", "create", "read", "discard"}


def said(rehearsal: Rehearsal, *command: str) -> str:
    """What a pulumi command on the stack prints."""
    done = stack.pulumi(rehearsal, *command)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def changed(
    rehearsal: Rehearsal, state: dict[str, Any], tools: Tools, scratch: Path
) -> dict[str, str]:
    """What a preview would do to a stack with this state, without a cluster: by type and name of what changes."""
    installation.install(rehearsal, tools)
    stack.create(rehearsal)
    # Encrypted as this stack's are: its first preview chooses how.
    said(rehearsal, "preview")
    salt = yaml.safe_load(project_files.stack_file(rehearsal).read_text())["encryptionsalt"]
    state["deployment"]["secrets_providers"] = {"type": "passphrase", "state": {"salt": salt}}
    scratch.write_text(json.dumps(state))
    said(rehearsal, "stack", "import", "--file", str(scratch))
    left_out = [f"--exclude=**::{name}" for name in NEW_OBJECTS]
    steps = json.loads(said(rehearsal, "preview", "--json", *left_out))["steps"]
    return {step["urn"].rpartition("$")[2].split("::", 2)[-1]: step["op"] for step in steps}


def unnamed(changes: dict[str, str]) -> dict[str, str]:
    """Changes that are not made in place, and that the changelog's newest section does not name."""
    news = (CHECKOUT / "CHANGELOG.md").read_text().split("\n## ")[1]
    others = {what: op for what, op in changes.items() if op not in IN_PLACE}
    return {what: op for what, op in others.items() if f"`{what}`" not in news}


@pytest.mark.parametrize("name", kept.STACKS)
@pytest.mark.parametrize("version", kept.versions())
def test_an_upgrade_replaces_nothing_unnamed(
    version: str, name: str, copy_checkout: Callable[[], Checkout], tools: Tools, tmp_path: Path
) -> None:
    checkout = copy_checkout()
    settings, state = kept.files(version, name)
    shutil.copy(settings, checkout.root / "stacks")
    scratch = tmp_path / "state.json"
    changes = changed(checkout.rehearsal(name), kept.read(state), tools, scratch)
    assert unnamed(changes) == {}


def test_a_replacement_is_seen(
    copy_checkout: Callable[[], Checkout], tools: Tools, tmp_path: Path
) -> None:
    """As if the version before had made a pool of other machines."""
    settings, path = kept.files(kept.versions()[0], "dev")
    checkout, state = copy_checkout(), kept.read(path)
    shutil.copy(settings, checkout.root / "stacks")
    resources = state["deployment"]["resources"]
    pool = next(each for each in resources if each["type"].endswith(":NodePool"))
    for properties in (pool["inputs"], pool["outputs"]):
        properties["nodeConfig"]["spot"] = not properties["nodeConfig"].get("spot", False)
    assert unnamed(changed(checkout.rehearsal(), state, tools, tmp_path / "state.json"))
