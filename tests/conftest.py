"""Fixtures that the whole suite shares: the tools, a bare replica, and copies of the checkout to rehearse in."""

import asyncio
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from kubernetes import config
from ml_foundations.rehearsal.cloud import daemon
from ml_foundations.rehearsal.control_plane import kwok
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.tools import toolchain
from ml_foundations.rehearsal.tools.toolchain import Tools

from tests.support import surroundings
from tests.support.checkout import CHECKOUT, Checkout
from tests.support.cluster import Cluster

COSTS = {"suffered": 360, "copy_checkout": 30, "tools": 10}
"""Fixtures of tests that need more than the shared replica, and what such a test takes, beside others."""
OF_THEIR_OWN = {"copy_checkout", "suffered", "project", "jobset", "outcomes"}
"""Fixtures that deploy a stack or a program, or start a controller: more than the shared replica."""
END_TO_END = Path(__file__).parent / "end_to_end"
"""The tests on one whole stack, which ``make test`` runs."""


def pytest_configure(config: pytest.Config) -> None:
    for mark in (
        "replica: needs a replica or its tools",
        "test_all: needs more than the shared replica; make test-all",
        "trial: repeats a random trial many times; make trials",
    ):
        config.addinivalue_line("markers", mark)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with its tier, and begin with the modules that take longest.

    Begun last, one of them would keep a single worker busy.
    """
    costs: Counter[Path] = Counter()
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        used = COSTS.keys() & fixtures
        if used:
            item.add_marker("replica")
        if _shares_a_replica(fixtures):
            costs[item.path] += 1
        elif used:
            costs[item.path] += max(COSTS[name] for name in used)
            if END_TO_END not in item.path.parents:
                item.add_marker("test_all")
    items.sort(key=lambda item: -costs[item.path])


def _shares_a_replica(fixtures: set[str]) -> bool:
    return "cluster" in fixtures and not OF_THEIR_OWN & fixtures


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Set an event loop, which Pulumi's Outputs need: ``asyncio.run`` of a test leaves none."""
    try:
        asyncio.get_event_loop()
    except RuntimeError:
        asyncio.set_event_loop(asyncio.new_event_loop())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure comes with what the simulated GKE logged: it tells what a test has waited for in vain."""
    report = yield
    for name in ("cloud", "cluster") if report.failed else ():
        rehearsal = getattr(getattr(item, "funcargs", {}).get(name), "rehearsal", None)
        if rehearsal and (log := daemon.process(rehearsal).end_of_log):
            report.sections.append(("The simulated GKE", log))
            break
    return report


# Before any test is imported: some read the environment then.
surroundings.settle()


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    """A command that runs in this process sets them for itself: a later SIGINT would end all tests."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE)
    before = [(number, signal.getsignal(number)) for number in numbers]
    yield
    for number, handler in before:
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def tools() -> Tools:
    return toolchain.ensure()


@pytest.fixture(scope="session")
def cluster(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    root = tmp_path_factory.mktemp("bare")
    (root / "Pulumi.yaml").write_text("name: bare\nruntime: python\n")
    rehearsal = Rehearsal.of("bare", root)
    rehearsal.make()
    kwok.start(rehearsal, tools)
    try:
        yield Cluster(
            rehearsal,
            rehearsal.kubeconfig,
            config.new_client_from_config(str(rehearsal.kubeconfig)),
        )
    finally:
        kwok.delete(rehearsal)


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
                shutil.copytree(
                    compiled, root / compiled.relative_to(CHECKOUT), ignore=half_written
                )
        # Pulumi's own language host takes the environment that Pulumi.yaml names.
        (root / ".venv").symlink_to(sys.prefix)
        copies.append(Checkout(root))
        return copies[-1]

    yield copy
    for checkout in copies:
        for stack in [path.name for path in (checkout.root / ".rehearsal").glob("*/")]:
            checkout.run("down", "--stack", stack)
