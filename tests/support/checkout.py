"""The checkout, and copies of it to run commands in as a user would."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ml_foundations.rehearsal.layout import Rehearsal

CHECKOUT = Path(__file__).resolve().parents[2]
COMMAND = Path(sys.prefix, "bin", "ml-foundations")


@dataclass(frozen=True)
class Checkout:
    """A copy of the checkout, to run commands in as a user would."""

    root: Path
    up_options: tuple[str, ...] = ()

    def rehearsal(self, stack: str = "dev") -> Rehearsal:
        return Rehearsal.of(stack, self.root)

    def run(self, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run ``ml-foundations …`` and return what it printed."""
        options = self.up_options if args[0] == "up" else ()
        return subprocess.run(
            [COMMAND, *args, *options],
            cwd=self.root,
            env=os.environ | {"NO_COLOR": "1", "PYTHONPATH": str(self.root / "components")} | env,
            capture_output=True,
            text=True,
            check=False,
            timeout=3600,
            umask=0,  # The most careless that a user may have: what is private is so by itself.
        )

    def shell(self, script: str, stack: str = "dev") -> subprocess.CompletedProcess[str]:
        """Run a shell script in the environment that ``ml-foundations env`` prints."""
        return subprocess.run(
            ["bash", "-c", f"{exports(self, stack)}\n{script}"],
            cwd=self.root,
            capture_output=True,
            text=True,
            check=False,
            timeout=3600,
        )


@cache
def exports(checkout: Checkout, stack: str) -> str:
    """What ``ml-foundations env`` prints for a stack: paths, which stay."""
    printed = checkout.run("env", "--stack", stack)
    assert printed.returncode == 0, printed.stderr
    return printed.stdout


def files(checkout: Checkout) -> dict[str, int]:
    """Every file outside of .rehearsal, with the time of its last change."""
    ours = {".rehearsal", ".venv", "__pycache__"}
    paths = (
        path for path in checkout.root.rglob("*") if not ours & set(path.parts) and path.is_file()
    )
    return {str(path): path.stat().st_mtime_ns for path in paths}


def state_ids(checkout: Checkout) -> dict[str, str]:
    exported = json.loads(checkout.shell("pulumi stack export -s dev").stdout)["deployment"]
    assert not exported.get("pending_operations")
    resources = exported["resources"]
    assert len({r["urn"] for r in resources}) == len(resources), "duplicates in the state"
    return {r["urn"]: r.get("id", "") for r in resources}
