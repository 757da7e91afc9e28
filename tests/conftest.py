"""Fixtures that the whole suite shares: the tools, a bare replica, and copies of the checkout to rehearse in."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from kubernetes import config
from ml_foundations.rehearsal import control_plane, toolchain
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.toolchain import Tools

from tests.support.checkout import CHECKOUT, Checkout
from tests.support.cluster import Cluster

NEED_A_REPLICA = {"tools", "cluster", "copy_checkout"}
"""Fixtures of tests that need the tools of a rehearsal, or start one."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "replica: needs the tools of a rehearsal; set for whatever uses their fixtures")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need a replica, and begin with their modules: they take longest."""
    for item in items:
        if NEED_A_REPLICA & set(getattr(item, "fixturenames", ())):
            item.add_marker("replica")
    slow = {item.path for item in items if item.get_closest_marker("replica")}
    items.sort(key=lambda item: item.path not in slow)


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
