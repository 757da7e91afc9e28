"""The command ``ml-foundations``, and how messages name it."""

import argparse
import fcntl
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from ml_foundations.planning.rules.findings import Finding, Severity
from ml_foundations.planning.verdict.judging import judge
from ml_foundations.planning.verdict.verdicts import Verdicts
from ml_foundations.rehearsal import cli, commands
from ml_foundations.rehearsal.files import write
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.progress import RehearsalError, output
from ml_foundations.rehearsal.report.contents import Report
from ml_foundations.rehearsal.report.workloads import Workload

from tests.support.cases import cases
from tests.support.checkout import CHECKOUT, COMMAND
from tests.support.deployed import shop


@pytest.fixture
def rehearsal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rehearsal:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ML_FOUNDATIONS_COMMAND", ".venv/bin/ml-foundations")
    return Rehearsal.of("prod", tmp_path / "a project")


HERE = "--project 'a project' --stack prod"


def test_a_message_names_the_command_as_it_was_typed(rehearsal: Rehearsal) -> None:
    assert rehearsal.command("up") == f".venv/bin/ml-foundations up {HERE}"
    assert Rehearsal.of("dev", Path.cwd()).command("env") == ".venv/bin/ml-foundations env"


def test_where_make_ran_it_a_message_names_makes_own_targets(
    rehearsal: Rehearsal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ML_FOUNDATIONS_MAKE", "1")
    up = "make up PROJECT='a project' STACK=prod NODES=n.yaml"
    assert rehearsal.command("up", nodes="n.yaml") == up
    assert rehearsal.command("env") == f".venv/bin/ml-foundations env {HERE}"


def test_a_key_of_the_stack_file_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    output().print("few:key: 2")
    assert capsys.readouterr().out == "few:key: 2\n"


def test_a_rehearsal_is_named_by_its_stack_and_project(tmp_path: Path) -> None:
    assert Rehearsal.of("dev", CHECKOUT).title == "dev"
    assert Rehearsal.of("dev", tmp_path).title == f"{tmp_path.name} dev"


@pytest.mark.parametrize(
    ("platform", "command", "is_refused"),
    [("darwin", "up", True), ("win32", "status", True), ("darwin", "doctor", False)],
)
def test_other_systems_than_linux_hear_first_that_a_rehearsal_needs_it(
    platform: str, command: str, is_refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(sys, "argv", ["ml-foundations", command])
    monkeypatch.setattr(commands, "run", lambda *_: sys.exit(0))
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert str(end.value.code).startswith("error: a rehearsal needs Linux") == is_refused


@pytest.mark.parametrize("command", [[COMMAND], [sys.executable, "-m", "ml_foundations.rehearsal"]])
def test_what_is_not_up_says_how_to_start_it(command: list[str | Path], tmp_path: Path) -> None:
    done = subprocess.run(
        [*command, "status"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "kube-apiserver             not running" in done.stdout
    named = COMMAND if command == [COMMAND] else "python -m ml_foundations.rehearsal"
    assert done.stderr == f"error: dev is not up. Start it: {named} up\n"


@pytest.mark.parametrize(
    ("words", "message"),
    cases("""
command: [[reprot], "error: reprot is not known. Did you mean report? Run ml-foundations --help"]
no near command: [[foo], "error: foo is not known. Run ml-foundations --help"]
option: [[up, --quite],
  "error: --quite is not known. Did you mean --quiet? Run ml-foundations up --help"]
value: [[up, --max-nodes, h100], "'h100' is invalid. Write POOL=NODES, such as h100=1"]
"""),
)
def test_an_invalid_word_is_answered_with_the_nearest_names(
    words: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["ml-foundations", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith(f"{message}\n")


def test_a_waiting_workload_may_use_quota_of_a_completed_one(
    rehearsal: Rehearsal, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = Workload("research", "Job", "holder", "Running")
    waiting = Workload("research", "Job", "waiting", "Suspended", reason="insufficient quota")
    seen = [
        [holder, waiting],
        [replace(holder, state="Completed"), waiting],
        [replace(waiting, state="Completed")],
    ]
    reports = iter([Report("prod", [], workloads, [], [], []) for workloads in seen])
    monkeypatch.setattr(commands.contents, "collect", lambda _: next(reports))
    assert not commands._settle(rehearsal).unwell


def down(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [COMMAND, "down", "--project", folder]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_one_command_at_a_time_changes_a_rehearsal(tmp_path: Path) -> None:
    rehearsal = shop(tmp_path)
    rehearsal.make()
    held = os.open(rehearsal.root, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    refused = down(tmp_path)
    assert refused.returncode == 1
    assert refused.stderr.startswith("error: another command is changing the rehearsal of")
    assert rehearsal.root.exists()
    os.close(held)
    assert down(tmp_path).returncode == 0
    assert not rehearsal.root.exists()


def test_an_interrupted_removal_ends_before_anything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rehearsal = shop(tmp_path)
    rehearsal.make()
    rehearsal.removal_marker.touch()
    (rehearsal.backend_dir / "left").touch()
    found: list[bool] = []

    def install(*_: object, **__: object) -> None:
        found.append((rehearsal.backend_dir / "left").exists())
        raise RehearsalError("enough")

    monkeypatch.setattr(commands.installation, "install", install)
    monkeypatch.setattr(commands.toolchain, "missing", list)
    monkeypatch.setattr(commands.toolchain, "ensure", lambda: None)
    monkeypatch.setenv("ML_FOUNDATIONS_REHEARSAL", "")
    args = argparse.Namespace(quiet=False, official_kubernetes_plugin=False, allow_provider=[])
    with pytest.raises(RehearsalError, match="enough"):
        commands._up(rehearsal, args)
    assert found == [False]
    assert not rehearsal.removal_marker.exists()


def test_what_a_removal_left_is_removed(tmp_path: Path) -> None:
    rehearsal = Rehearsal.of("dev", tmp_path)
    rehearsal.root.parent.mkdir()
    rehearsal.removal_marker.touch()
    assert down(tmp_path).returncode == 0
    assert not rehearsal.root.parent.exists()


def test_a_program_without_a_proof_is_judged_before_the_wait(
    rehearsal: Rehearsal, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def found(message: str) -> Finding:
        place = ("Deployment chat", "spec")
        return Finding("resources", Severity.ERROR, *place, message, "Request less.")

    early, late = found("it needs 28Gi memory"), found("it needs 2 GPUs")
    verdicts = {
        commands.previewed: [early, found("x").as_warning()],
        commands.fleet.deployed: [early, late],
    }

    def judged(_: Rehearsal, read: Any = commands.fleet.deployed) -> Verdicts:
        return replace(judge(()), reasons=tuple(verdicts[read]))

    monkeypatch.setattr(commands.fleet, "judge_stack", judged)
    commands.console.cache_clear()
    warned = set[tuple[str, str]]()
    line = "warning: Deployment chat: it needs {}. Request less. [resources]\n"
    commands._warn_early(rehearsal, warned)
    assert capsys.readouterr().err == line.format("28Gi memory")
    commands._warn(judged(rehearsal), rehearsal, warned)
    shown = capsys.readouterr().err
    assert shown == line.format("2 GPUs"), "a failure shows only what the preview did not"
    write(rehearsal.root / commands.fleet.ACCEPTED, "[]")
    commands._warn_early(rehearsal, set())
    assert not capsys.readouterr().err, "its Proof has judged it"
    commands.console.cache_clear()


@pytest.mark.parametrize(
    ("copy", "said"),
    [
        ("config: {t:token: {secure: v1:AA}, t:deep: {a: [{secure: v1:AB}]}, t:open: 1}", True),
        ("config: {t:open: 1, t:key: rehearsed}", False),
        ("config: [", False),
        ("config: [a]", False),
    ],
)
def test_down_names_the_secrets_that_only_the_rehearsal_had(
    tmp_path: Path, copy: str, said: bool
) -> None:
    root = shop(tmp_path).root
    root.mkdir(parents=True)
    (root / "Pulumi.dev.yaml").write_text(copy)
    done = down(tmp_path)
    assert done.returncode == 0, done.stderr
    lost = "It had secrets that only it could decrypt: t:token and t:deep. Set them again"
    assert (lost in " ".join(done.stderr.split())) is said
    assert ("secrets" in done.stderr) is said
    assert not root.exists()


LEFT = """
- {type: "gcp:container/cluster:Cluster",
   inputs: {name: c, location: us-central1-a, removeDefaultNodePool: true}}
- {type: "gcp:container/nodePool:NodePool",
   inputs: {name: cpu, location: us-central1-a, nodeCount: 1,
            nodeConfig: {machineType: n2-standard-8}}}
- type: kubernetes:storage.k8s.io/v1:StorageClass
  inputs: {apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: fast},
           provisioner: pd.csi.storage.gke.io, parameters: {type: pd-ssd}}
- type: kubernetes:core/v1:PersistentVolumeClaim
  retainOnDelete: true
  inputs:
    apiVersion: v1
    kind: PersistentVolumeClaim
    metadata: {name: data, namespace: team}
    spec:
      storageClassName: fast
      accessModes: [ReadWriteOnce]
      resources: {requests: {storage: 100Gi}}
"""


def test_down_names_what_would_be_left_on_google_cloud(tmp_path: Path) -> None:
    shop(tmp_path, *yaml.safe_load(LEFT))
    done = down(tmp_path)
    assert done.returncode == 0, done.stderr
    said = " ".join((done.stdout + done.stderr).split())
    assert "After pulumi destroy, this stays on Google Cloud for 17 USD a month:" in said
    claim = "claim team/data (100 GiB of pd-ssd), 17 USD"
    assert f"{claim}: Pulumi keeps the claim (retain_on_delete)" in said
