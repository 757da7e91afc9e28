"""What ``up`` shows before its tools exist, and what it suggests at its end: both are true."""

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from ml_foundations.rehearsal import commands
from ml_foundations.rehearsal.engine.dry_run import DryRun, dry_run
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.report import hints
from ml_foundations.rehearsal.report.outline import outline
from ml_foundations.rehearsal.report.workloads import Workload

from tests.support.checkout import CHECKOUT

README = (CHECKOUT / "README.md").read_text()
STACKS = ["dev", "staging", "prod"]


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of the project's program and stack files."""
    shutil.copytree(CHECKOUT / "stacks", tmp_path / "stacks")
    shutil.copy(CHECKOUT / "Pulumi.yaml", tmp_path)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    return tmp_path


def suggested(stack: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the commands that ``up`` suggests for a stack of this project."""
    monkeypatch.chdir(CHECKOUT)
    monkeypatch.setenv("ML_FOUNDATIONS_MAKE", "1")
    lines = hints.hints(Rehearsal.of(stack, CHECKOUT)).splitlines()
    return [line.strip() for line in lines if line.startswith("    ")]


def edited(command: str, project: Path, stack: str) -> DryRun:
    """Run the edit of a suggested command in a copy of the project, then the program."""
    edit, _, up = command.partition(" && ")
    assert up == ("make up" if stack == "dev" else f"make up STACK={stack}")
    subprocess.run(["bash", "-c", edit], cwd=project, check=True)
    return dry_run(Rehearsal.of(stack, project))


@pytest.mark.parametrize("stack", STACKS)
def test_the_edits_have_the_promised_results(
    stack: str, copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = f"stacks/Pulumi.{stack}.yaml"
    change, breaks, back = suggested(stack, monkeypatch)[:3]
    before = dry_run(Rehearsal.of(stack, copied)).resources
    changed = edited(change, copied, stack)
    assert not changed.error
    differing = [urn for urn in before if changed.resources[urn] != before[urn]]
    kinds = {urn.split("::")[2].rpartition("$")[2] for urn in differing}
    scaler = "kubernetes:autoscaling/v2:HorizontalPodAutoscaler"
    assert kinds - {scaler} == {"kubernetes:apps/v1:Deployment"}
    refused = edited(breaks, copied, stack)
    assert refused.is_certain and "Deployment serving/" in refused.error
    if stack == "dev":
        (shown,) = re.findall(r"```sh\n(sed .*)\n```\n\n```\n(.*\n(?: .*\n)+)```", README)
        assert shown[0] == breaks
        assert " ".join(shown[1].split()) in " ".join(f"error: {refused.error}".split())
    subprocess.run(["bash", "-c", back.partition(" && ")[0]], cwd=copied, check=True)
    assert (copied / file).read_text() == (CHECKOUT / file).read_text()


def test_every_suggested_command_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hints.shutil, "which", lambda _: "/usr/bin/xdg-open")
    monkeypatch.setenv("DISPLAY", ":0")
    lines = suggested("dev", monkeypatch)
    assert lines[3] == "xdg-open .rehearsal/dev/report.html"
    for line in lines:
        done = subprocess.run(["bash", "-n"], input=line, text=True, check=False)
        assert done.returncode == 0, line
    monkeypatch.delenv("DISPLAY")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert f"file://{CHECKOUT}/.rehearsal/dev/report.html" in suggested("dev", monkeypatch)


def test_another_project_gets_no_edit_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: t\nruntime: python\n")
    (tmp_path / "Pulumi.dev.yaml").write_text("config: {t:x: {replicas: 3}}\n")
    monkeypatch.chdir(tmp_path)
    printed = hints.hints(Rehearsal.of("dev", tmp_path))
    assert "sed" not in printed and "Change a number in your program" in printed


def test_a_running_gang_can_be_disrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    def shown(*rows: Workload) -> str:
        return hints.hints(Rehearsal.of("dev", CHECKOUT), rows)

    monkeypatch.chdir(CHECKOUT)
    gang = Workload("ml", "JobSet", "train", "Running", ["gke-ml-a", "gke-ml-b"])
    assert "ml-foundations disrupt --node gke-ml-a --how failure" in shown(gang)
    assert "disrupt" not in shown(replace(gang, state="Completed"), replace(gang, kind="Job"))


def test_the_outline_has_nodes_workloads_cost_and_verdict() -> None:
    lines = outline(dry_run(Rehearsal.of("dev", CHECKOUT))).splitlines()
    assert [line.split()[0] for line in lines] == ["nodes", "workloads", "cost", "proof"]
    assert "a100 0-2, cpu 1-4 and l4 0-4" in lines[0]
    assert "3: Deployment serving/chat, Job research/finetune" in lines[1]
    assert " to " in lines[2] and "USD per hour" in lines[2]
    assert lines[3] == "  proof      the stack fits"
    tutorial = (CHECKOUT / "docs" / "tutorial.md").read_text()
    assert "\n".join(["dev will have", *lines]) in tutorial


PROGRAM = """
import pulumi_kubernetes as k8s
from ml_foundations import Proof
with Proof({ACCEPTED}):
    k8s.core.v1.Namespace("team", metadata={{"name": "team"}})
    k8s.core.v1.ResourceQuota("quota", metadata={{"name": "q", "namespace": "team"}},
        spec={{"hard": {{"pods": "0"}}}})
    k8s.core.v1.Pod("pod", metadata={{"name": "pod", "namespace": "team"}},
        spec={{"containers": [{{"name": "c", "image": "busybox:1.37.0"}}]}})
"""


def test_the_outline_knows_the_accepted_rules(tmp_path: Path) -> None:
    virtualenv = {"virtualenv": sys.prefix}
    (tmp_path / "Pulumi.yaml").write_text(
        f"name: t\nruntime: {{name: python, options: {virtualenv}}}\n"
    )
    main = tmp_path / "__main__.py"
    main.write_text(PROGRAM.format(ACCEPTED="{'quota': 'raised soon'}"))
    accepted = dry_run(Rehearsal.of("dev", tmp_path))
    assert accepted.accepted == ["quota"] and not accepted.error
    assert "error" not in outline(accepted)
    expected = "the stack is undetermined, except for 1 accepted finding"
    assert expected in outline(accepted), "its nodes are not declared"
    assert "\n  not known  Pod team/pod: " in outline(accepted)
    assert not (tmp_path / ".rehearsal").exists()
    main.write_text(PROGRAM.replace("with Proof({ACCEPTED}):", "if True:").format())
    lines = outline(dry_run(Rehearsal.of("dev", tmp_path))).splitlines()
    assert "  proof      the stack cannot fit" in lines
    assert lines[-1].startswith("  error      Pod team/pod: ") and lines[-1].endswith("[quota]")


def test_up_shows_the_outline_before_it_builds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands.console.cache_clear()
    commands._require_working_program(Rehearsal.of("dev", CHECKOUT))
    printed = capsys.readouterr().err
    assert "dev will have\n  nodes " in printed


def test_up_shows_before_it_builds_why_a_program_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    virtualenv = {"virtualenv": sys.prefix}
    (tmp_path / "Pulumi.yaml").write_text(
        f"name: t\nruntime: {{name: python, options: {virtualenv}}}\n"
    )
    (tmp_path / "__main__.py").write_text("import pulumi\nprint(pulumi.Config().nothing)\n")
    commands.console.cache_clear()
    commands._require_working_program(Rehearsal.of("dev", tmp_path))
    printed = capsys.readouterr().err
    assert "warning: the program fails without its tools" in printed
    assert "no attribute 'nothing'" in printed and "will have" not in printed
    commands.console.cache_clear()
