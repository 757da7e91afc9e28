"""Rehearsals of whole stacks that share none with other tests: an interrupted one, and two in one checkout."""

import subprocess
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psutil
import yaml
from ml_foundations.rehearsal.report.contents import collect

from tests.support.checkout import COMMAND, Checkout, files, state_ids
from tests.support.processes import processes_naming


def test_down_leaves_no_process_and_no_file(copy_checkout: Callable[[], Checkout]) -> None:
    checkout = copy_checkout()
    before = files(checkout)
    interrupted_up(checkout)
    assert not list(checkout.rehearsal().backend_dir.rglob("*.attrs"))
    assert checkout.run("up").returncode == 0
    state_ids(checkout)
    assert checkout.run("down").returncode == 0
    assert not (checkout.root / ".rehearsal").exists()
    assert files(checkout) == before
    assert not processes_naming(checkout.root)


def test_stacks_of_one_checkout_are_rehearsed_at_once(
    copy_checkout: Callable[[], Checkout],
) -> None:
    """By make, as a user would; each has its own workloads, all of them well, and the end of one leaves the other."""
    checkout = copy_checkout()

    def make(*words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["make", "-o", ".venv/.ready", *words],
            cwd=checkout.root,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    ups = {name: make("up", f"STACK={name}") for name in ("staging", "prod")}
    for name, up in ups.items():
        said, _ = up.communicate(timeout=3600)
        assert up.returncode == 0, said
        assert f"{name}: all is well" in said
    for name in ups:
        pools = {pool["name"] for pool in collect(checkout.rehearsal(name)).pools}
        assert pools == set(settings_of(checkout, name)["ml-foundations:nodePools"])
        assert make("down", f"STACK={name}").wait(3600) == 0
        others = [other for other in ups if (checkout.root / ".rehearsal" / other).exists()]
        assert name not in others
        assert all(checkout.run("status", "--stack", other).returncode == 0 for other in others)
    assert not (checkout.root / ".rehearsal").exists()


def settings_of(checkout: Checkout, stack: str) -> dict[str, Any]:
    return yaml.safe_load((checkout.root / "stacks" / f"Pulumi.{stack}.yaml").read_text())["config"]


def interrupted_up(checkout: Checkout) -> None:
    """Start ``up`` and kill pulumi with SIGKILL once it has created a few resources."""
    up = subprocess.Popen(
        [COMMAND, "up", "--verbose"],
        cwd=checkout.root,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert up.stdout
    for line in up.stdout:
        if "kubernetes:" in line and "created" in line:
            break
    for process in psutil.Process(up.pid).children(recursive=True):
        with suppress(psutil.Error):  # Some of them live for a moment.
            if process.name() == "pulumi":
                process.kill()
    up.stdout.read()
    assert up.wait() != 0
