"""A real ``pulumi preview`` or ``pulumi up`` on the embedded plugins, from an empty state and without a cluster."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from ml_foundations.rehearsal.engine import installation, stack
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.tools.toolchain import Tools

from tests.support.checkout import Checkout


@dataclass(frozen=True)
class Said:
    """What Pulumi did and said."""

    ok: bool
    created: list[str]
    """The resources that it would create, by name; but for the stack itself."""
    diagnostics: list[dict[str, Any]]

    def of(self, severity: str) -> list[str]:
        """The messages of a severity: error, warning or info."""
        found = (item for item in self.diagnostics if item["severity"] == severity)
        return [item["message"].strip().removeprefix(f"{severity}: ") for item in found]


def write(checkout: Checkout, given: dict[str, Any]) -> None:
    """Make sections of settings the stack file of dev."""
    project = given.pop("project")
    config = {
        "gcp:project": project,
        **{f"ml-foundations:{key}": value for key, value in given.items()},
    }
    (checkout.root / "stacks" / "Pulumi.dev.yaml").write_text(yaml.safe_dump({"config": config}))


def preview(project: Path, tools: Tools, name: str = "dev", *options: str) -> Said:
    """Preview a stack of a project."""
    rehearsal = Rehearsal.of(name, project)
    installation.install(rehearsal, tools)
    stack.create(rehearsal)
    done = stack.pulumi(rehearsal, "preview", "--json", *options)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    urns = [step["urn"] for step in found.get("steps") or []]
    created = [urn.rpartition("::")[2] for urn in urns if "::pulumi:pulumi:Stack::" not in urn]
    return Said(done.returncode == 0, created, found.get("diagnostics") or [])
