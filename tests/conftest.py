"""Fixtures that the whole suite shares: the tools, a bare replica, and copies of the checkout to rehearse in."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from kubernetes import client, config
from ml_foundations.rehearsal import control_plane, toolchain
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.toolchain import Tools

CHECKOUT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Cluster:
    """A bare replica: a control plane without node pools."""

    rehearsal: Rehearsal
    kubeconfig: Path
    api: client.ApiClient


@dataclass(frozen=True)
class Checkout:
    """A copy of the checkout, to run commands in as a user would."""

    root: Path
    up_options: tuple[str, ...] = ()

    def rehearsal(self, stack: str = "dev") -> Rehearsal:
        return Rehearsal.of(stack, self.root)

    def run(self, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run ``python -m rehearsal …`` and return what it printed."""
        options = self.up_options if args[0] == "up" else ()
        return subprocess.run(
            [sys.executable, "-m", "ml_foundations.rehearsal", *args, *options],
            cwd=self.root,
            env=os.environ | {"NO_COLOR": "1", "PYTHONPATH": str(self.root / "components")} | env,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )

    def shell(self, script: str, stack: str = "dev") -> subprocess.CompletedProcess[str]:
        """Run a shell script in the environment that ``python -m rehearsal env`` prints."""
        return subprocess.run(
            ["bash", "-c", f"{exports(self, stack)}\n{script}"],
            cwd=self.root,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )


@cache
def exports(checkout: Checkout, stack: str) -> str:
    """What ``python -m rehearsal env`` prints for a stack: paths, which stay."""
    printed = checkout.run("env", "--stack", stack)
    assert printed.returncode == 0, printed.stderr
    return printed.stdout


LONGEST = (
    *("test_examples", "test_training", "test_stack", "test_kubernetes", "test_queue", "test_serving"),
    *("test_proof", "test_pack", "test_language_host", "test_differential", "test_control_plane", "test_storage"),
    *("test_gke", "test_typescript", "test_planned", "test_wheel"),
)
"""The modules that take minutes, the longest first: begun last, one of them would keep a single worker busy."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest modules; the others fill what is left of the workers."""
    rank = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.stem, len(rank)))


# The Go programs of a test live for seconds: let them collect garbage less often.
os.environ.setdefault("GOGC", "400")


@pytest.fixture(scope="session")
def tools() -> Tools:
    return toolchain.ensure()


@pytest.fixture(scope="session")
def cluster(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    rehearsal = Rehearsal.of("bare", tmp_path_factory.mktemp("bare"))
    rehearsal.make()
    control_plane.start(rehearsal, tools)
    try:
        yield Cluster(rehearsal, rehearsal.kubeconfig, config.new_client_from_config(str(rehearsal.kubeconfig)))
    finally:
        control_plane.delete(rehearsal)


@pytest.fixture(scope="session")
def copy_checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Checkout]]:
    """Make copies of what git tracks or would track; every rehearsal in them is taken down at the end."""
    copies: list[Checkout] = []

    def copy() -> Checkout:
        root = tmp_path_factory.mktemp("checkout")
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=CHECKOUT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for name in filter(None, listed.split("\0")):
            if (CHECKOUT / name).is_file():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(CHECKOUT / name, root / name)
        # With what Python compiled of it: compiling takes longer than copying.
        for top in ("components", "stacks"):
            for compiled in (CHECKOUT / top).rglob("__pycache__"):
                half_written = shutil.ignore_patterns("*.pyc.*")
                shutil.copytree(compiled, root / compiled.relative_to(CHECKOUT), ignore=half_written)
        # Pulumi's own language host takes the environment that Pulumi.yaml names.
        (root / ".venv").symlink_to(sys.prefix)
        copies.append(Checkout(root))
        return copies[-1]

    yield copy
    for checkout in copies:
        for stack in [path.name for path in (checkout.root / ".rehearsal").glob("*")]:
            checkout.run("down", "--stack", stack)
