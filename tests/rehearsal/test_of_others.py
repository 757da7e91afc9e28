"""A program that gives outputs of its other resources to the components is previewed, and rehearsed."""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ml_foundations.rehearsal.commands import WATCHING
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.tools.toolchain import Tools

from tests.support.checkout import CHECKOUT
from tests.support.previewing import preview
from tests.support.waiting import until


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("of-others")
    (folder / "Pulumi.yaml").write_text("name: of-others\nruntime: python\n")
    (folder / "Pulumi.dev.yaml").write_text("config: {gcp:project: acme-ops}\n")
    shutil.copy(CHECKOUT / "tests" / "support" / "of_others.py", folder / "__main__.py")
    yield folder
    assert rehearse(folder, "down").returncode == 0


def command(folder: Path, name: str, *more: str) -> list[str]:
    return [sys.executable, "-m", "ml_foundations.rehearsal", name, "--project", str(folder), *more]


def rehearse(folder: Path, name: str, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(folder, name, *more), capture_output=True, text=True, check=False, timeout=3600
    )


def test_only_unknown_values_are_undetermined_at_preview(project: Path, tools: Tools) -> None:
    said = preview(project, tools)
    assert said.ok, said.of("error")
    assert said.of("warning") and all(
        text.startswith("Job (not known yet)/train: ") for text in said.of("warning")
    )


@pytest.mark.usefixtures("tools")
def test_a_watched_rehearsal_keeps_its_secret(project: Path) -> None:
    rehearsal = Rehearsal.of("dev", project)
    with (project / "up.log").open("w") as log:
        up = subprocess.Popen(
            command(project, "up", "--watch"), stdout=log, stderr=subprocess.STDOUT
        )
    try:
        said = (project / "up.log").read_text
        until(lambda: WATCHING in said() or up.poll() is not None, "no page", 1800)
        until(lambda: '"reload": 2' in rehearsal.page.read_text())
    finally:
        up.send_signal(signal.SIGINT)
        up.wait(600)
    assert up.returncode == 0, said()
    assert '"reload": 0' in rehearsal.page.read_text()
    found = json.loads(rehearse(project, "report", "--json").stdout)["workloads"]
    assert {(each["name"], each["state"]) for each in found} == {
        ("train", "Completed"),
        ("check", "Completed"),
    }
    kept = (path.read_text(errors="replace") for path in rehearsal.root.rglob("*.json"))
    assert not any("hunter2" in text for text in kept), "a secret is written down"
