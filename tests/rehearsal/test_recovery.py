"""What an interruption leaves, and how the next ``make up`` goes on from there."""

import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from ml_foundations.rehearsal import progress
from ml_foundations.rehearsal.cloud.store import Store
from ml_foundations.rehearsal.engine import environment, stack
from ml_foundations.rehearsal.files import write
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.tools.toolchain import Tools
from rich.console import Console

from tests.support.checkout import CHECKOUT
from tests.support.cluster import Cluster
from tests.support.project import Project
from tests.support.waiting import until

UP = """
from pathlib import Path
from typing import Any
from ml_foundations.rehearsal.engine import stack
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.progress import user_errors
with user_errors():
    stack.pulumi(Rehearsal.of("dev", Path({project!r})), "up")
"""

SLOW_TO_END = """
folder = pathlib.Path({folder!r})
def end(*_):
    time.sleep(1)
    (folder / "ended").touch()
    sys.exit(1)
signal.signal(signal.SIGINT, end)
(folder / "begun").touch()
time.sleep(60)
"""
"""It takes its time to end, as pulumi does."""

BEGUN = "(pathlib.Path({folder!r}) / 'begun').touch(); time.sleep(60)"


@pytest.fixture(scope="module")
def project(
    tmp_path_factory: pytest.TempPathFactory, cluster: Cluster, tools: Tools
) -> Iterator[Project]:
    project = Project(tmp_path_factory.mktemp("project"), cluster, tools)
    yield project
    project.up("")


def locks_of(rehearsal: Rehearsal, stack: str) -> Path:
    folder = rehearsal.backend_dir / ".pulumi" / "locks" / "organization" / "t" / stack
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def with_pulumi(project: Path, program: str) -> Rehearsal:
    """A rehearsal in a new project whose pulumi is a Python program."""
    (project / "Pulumi.yaml").write_text("name: t\nruntime: python\n")
    rehearsal = Rehearsal.of("dev", project)
    rehearsal.make()
    pulumi = rehearsal.bin_dir / "pulumi"
    pulumi.write_text(f"#!{sys.executable}\nimport pathlib, signal, sys, time\n{program}")
    pulumi.chmod(0o700)
    return rehearsal


def started_up(project: Path, **options: Any) -> subprocess.Popen[str]:
    """A command whose pulumi is at work."""
    command = [sys.executable, "-c", UP.format(project=str(project))]
    up = subprocess.Popen(command, cwd=CHECKOUT, **options)
    until((project / "begun").exists)
    return up


@pytest.fixture(autouse=True)
def environ_of_its_own() -> Iterator[None]:
    """A restored state changes the environment of its process: other tests' programs must not see that."""
    yield
    os.environ.pop("PULUMI_K8S_UPSERT_EXISTING_OBJECTS", None)


@pytest.mark.parametrize("send", [os.kill, os.killpg])
def test_an_interrupt_leaves_pulumi_the_time_to_end(
    send: Callable[[int, int], None], tmp_path: Path
) -> None:
    """It comes to the command alone, or by Ctrl-C to all of its process group."""
    with_pulumi(tmp_path, SLOW_TO_END.format(folder=str(tmp_path)))
    up = started_up(tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True)
    send(up.pid, signal.SIGINT)
    _, said = up.communicate(timeout=600)
    assert (tmp_path / "ended").exists()
    assert up.returncode == 130
    assert "interrupted: run the same command again" in said


def test_a_pulumi_that_does_not_end_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ignores = f"signal.signal(signal.SIGINT, signal.SIG_IGN); {BEGUN.format(folder=str(tmp_path))}"
    rehearsal = with_pulumi(tmp_path, ignores)
    monkeypatch.setattr(stack, "_INTERRUPTS", ((signal.SIGINT, 0.2), (signal.SIGKILL, 10)))
    main_thread = threading.get_ident()

    def interrupt() -> None:
        until((tmp_path / "begun").exists)
        signal.pthread_kill(main_thread, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        stack.pulumi(rehearsal, "up")
    assert not stack.process(rehearsal).running


def test_a_pulumi_whose_command_was_killed_is_ended(tmp_path: Path) -> None:
    rehearsal = with_pulumi(tmp_path, SLOW_TO_END.format(folder=str(tmp_path)))
    up = started_up(tmp_path)
    up.kill()
    up.wait()
    left = psutil.Process(int((rehearsal.root / "pulumi.pid").read_text().split()[0]))
    assert left.is_running()
    stack.process(rehearsal).stop()
    assert not left.is_running() or left.status() == psutil.STATUS_ZOMBIE


WORDS = "print(*sys.argv[1:3])"
"""A pulumi that says what it is asked to do."""
BOTH = "preview --event-log\nup --yes\n"


def test_the_first_update_overlaps_the_replicas_start(tmp_path: Path) -> None:
    rehearsal = with_pulumi(tmp_path, WORDS)
    with stack.start_early(rehearsal) as early:
        assert early
        lines: list[str] = []
        assert early.read(lines.append) == 0
    assert "".join(lines) == BOTH


def test_a_first_preview_that_asks_the_replica_is_left_to_up(tmp_path: Path) -> None:
    replica = tmp_path / "replica"
    ends = f"sys.exit('preview' in sys.argv and not pathlib.Path({str(replica)!r}).exists())"
    rehearsal = with_pulumi(tmp_path, f"{WORDS}; {ends}")
    with stack.start_early(rehearsal) as early:
        assert early
        assert early.read(list[str]().append) is None
    replica.touch()
    stack.up(rehearsal, None, quiet=True)
    assert rehearsal.up_log.read_text() == BOTH


def test_nothing_is_updated_if_the_preview_fails(tmp_path: Path) -> None:
    rehearsal = with_pulumi(tmp_path, f"{WORDS}; sys.exit('preview' in sys.argv and 1)")
    with pytest.raises(RehearsalError, match=r"pulumi up failed"):
        stack.up(rehearsal, None, quiet=True)
    assert rehearsal.up_log.read_text() == "preview --event-log\n"


def test_an_update_waits_for_a_replica_that_is_still_starting(tmp_path: Path) -> None:
    rehearsal = with_pulumi(tmp_path, WORDS)
    rehearsal.kubeconfig.touch()
    with stack.start_early(rehearsal) as early:
        assert early
    stack.up(rehearsal, early, quiet=True)
    assert rehearsal.up_log.read_text() == BOTH


SLOW_UPDATE = """
if 'preview' in sys.argv:
    pathlib.Path(sys.argv[sys.argv.index('--event-log') + 1]).write_text('what is declared')
    print('Previewing update (dev):')
else:
    print('Updating (dev):', flush=True)
    for _ in range(1200):
        if pathlib.Path({judged!r}).exists():
            sys.exit()
        time.sleep(0.05)
    sys.exit(1)
"""
"""An update that ends well once something has happened, for which it waits a minute."""


def test_what_was_previewed_is_judged_while_the_update_waits(tmp_path: Path) -> None:
    judged = tmp_path / "judged"
    rehearsal = with_pulumi(tmp_path, SLOW_UPDATE.format(judged=str(judged)))

    def judge() -> None:
        assert rehearsal.preview_events.read_text() == "what is declared"
        judged.touch()

    with stack.start_early(rehearsal) as early:
        pass
    stack.up(rehearsal, early, quiet=True, previewed=judge)
    judged.unlink()
    write(rehearsal.applied, "[]")
    stack.up(rehearsal, quiet=True, previewed=judge)
    judged.unlink()
    stack.up(rehearsal, quiet=True, previewed=judge)
    assert judged.exists(), "what is deployed and unchanged may still wait"


def test_every_line_is_shown_and_how_long_a_silent_update_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = tmp_path / "seen"

    class Shown(io.StringIO):
        def write(self, text: str) -> int:
            if "… pulumi up --stack dev: begins (" in text:
                seen.touch()
            return super().write(text)

    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.1)
    terminal = Console(file=Shown(), width=160)
    monkeypatch.setattr(progress, "console", lambda: terminal)
    rehearsal = with_pulumi(tmp_path, SLOW_UPDATE.format(judged=str(seen)))
    stack.up(rehearsal, verbose=True)
    assert capsys.readouterr().out == "Previewing update (dev):\nUpdating (dev):\n"


def test_an_update_that_fails_during_the_start_is_reported(tmp_path: Path) -> None:
    rehearsal = with_pulumi(tmp_path, "sys.exit(print('error: no such zone') or 'up' in sys.argv)")
    with stack.start_early(rehearsal) as early:
        assert early
    with pytest.raises(RehearsalError, match=r"pulumi up failed"):
        stack.up(rehearsal, early, quiet=True)
    assert not rehearsal.applied.exists()


@pytest.mark.parametrize("command", ["preview", "up"])
def test_nothing_goes_on_beside_a_start_that_failed(command: str, tmp_path: Path) -> None:
    slow = BEGUN.format(folder=str(tmp_path))
    rehearsal = with_pulumi(tmp_path, f"if {command!r} in sys.argv: {slow}")
    with pytest.raises(KeyError), stack.start_early(rehearsal) as early:
        until((tmp_path / "begun").exists)
        raise KeyError
    assert not stack.process(rehearsal).running
    assert early
    assert early.read(list[str]().append) != 0


def test_applied_objects_are_updated_only_if_that_changes_them(tmp_path: Path) -> None:
    called = tmp_path.with_suffix(".called")
    program = f"open({str(called)!r}, 'a').write(sys.argv[1] + '\\n')\nsys.exit('preview' in sys.argv and {{}})"
    rehearsal = with_pulumi(tmp_path, program.format("None"))
    state = stack.state_file(rehearsal)
    write(state, json.dumps({"checkpoint": {}}))

    def calls() -> list[str]:
        called.unlink(missing_ok=True)
        stack.up(rehearsal, quiet=True)
        return called.read_text().split()

    assert calls() == ["preview", "up"]
    assert calls() == ["preview"]
    (tmp_path / "Pulumi.dev.yaml").write_text("config: {}\n")
    assert calls() == ["preview", "up"]
    write(state, state.read_text())
    assert calls() == ["preview", "up"]
    with_pulumi(tmp_path, program.format("'--expect-no-changes' in sys.argv and 'changes'"))
    os.utime(tmp_path / "Pulumi.yaml")
    assert calls() == ["preview", "up"]
    assert calls() == ["preview", "up"]


def test_resources_created_before_pulumi_was_killed_are_adopted(project: Project) -> None:
    body = """
        import pulumi_gcp as gcp
        gcp.storage.Bucket("data", location="US", project="p")
        """
    project.up(body)
    project.as_if_killed("data")
    stack.recover(project.rehearsal)
    assert "3 unchanged" in project.up(body)
    assert len(Store(project.rehearsal).resources()) == 1


def test_a_pulumi_that_has_just_ended_holds_no_lock(project: Project, tmp_path: Path) -> None:
    project.up("")
    script = tmp_path / "pulumi"
    script.write_text("#!/bin/sh\nexit 1\n")
    script.chmod(0o700)
    ended = subprocess.Popen([script])
    until(lambda: psutil.Process(ended.pid).status() == psutil.STATUS_ZOMBIE)
    lock = locks_of(project.rehearsal, "t") / "lock.json"
    here = {"pid": ended.pid, "hostname": socket.gethostname()}
    lock.write_text(json.dumps(here | {"username": "u", "timestamp": "2026-01-01T00:00:00Z"}))
    stack.recover(project.rehearsal)
    ended.wait()
    assert not lock.exists()


def test_a_lock_cut_off_by_a_full_disk_blocks_nothing(project: Project) -> None:
    project.up("")
    draft = locks_of(project.rehearsal, "t") / "lock.json.1.tmp"
    draft.touch()
    stack.recover(project.rehearsal)
    assert not draft.exists()


@pytest.mark.parametrize("kept", ["bak", "backup"])
def test_a_state_cut_off_by_a_full_disk_is_restored(
    project: Project, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = '{"namespace": "default", "name": "before"}'
    earlier = f'k8s.core.v1.ConfigMap("before", metadata={metadata})\n'
    later = earlier + earlier.replace("before", "since")
    project.up(earlier)
    state = stack.state_file(project.rehearsal)
    whole, backup = state.read_text(), state.with_name(f"{state.name}.bak")
    project.up(later)
    since = project.kubectl("get", "configmap", "since")["metadata"]["uid"]
    state.write_text(whole[:100])
    backup.write_text(whole if kept == "bak" else "")
    for other in project.rehearsal.backend_dir.glob(".pulumi/backups/t/t/*.json"):
        other.write_text(whole)
    monkeypatch.setenv("PULUMI_K8S_UPSERT_EXISTING_OBJECTS", "false")
    stack.restore(project.rehearsal)
    project.environment = environment.process_environment(project.rehearsal)
    project.up(later)
    assert project.kubectl("get", "configmap", "since")["metadata"]["uid"] == since
    assert project.urn("since")


def test_where_no_state_is_whole_the_stack_begins_anew(tmp_path: Path) -> None:
    rehearsal = with_pulumi(tmp_path, "")
    state = stack.state_file(rehearsal)
    state.parent.mkdir(parents=True)
    state.touch()
    stack.restore(rehearsal)
    assert not state.exists()
