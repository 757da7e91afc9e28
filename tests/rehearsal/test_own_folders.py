"""A rehearsal changes and deletes nothing that is not its own, and ends with a line on any error."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ml_foundations.kinds import kind_files
from ml_foundations.rehearsal import cli, difference
from ml_foundations.rehearsal.files import read_json, read_map
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.progress import RehearsalError

from tests.support.checkout import COMMAND

COMMANDS = (
    *(("up",), ("down",), ("status",), ("report",), ("env",), ("kubeconfig",), ("quota",)),
    ("disrupt", "--node", "a"),
)


def foreign(path: Path) -> None:
    path.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    os.chown(path, 12345, 12345)


def replaced(part: str) -> Callable[[Path, Path], None]:
    def replace(project: Path, victim: Path) -> None:
        place = project / ".rehearsal" / part
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(victim)

    return replace


LINKED = {
    "the folder": "",
    "the stack": "dev",
    "the marker": "dev~",
    "logs": "dev/logs",
    "clusters": "dev/clusters",
    "a cluster": "dev/clusters/c",
    "logs of a cluster": "dev/clusters/c/logs",
    "a folder of the control plane": "dev/cluster/.kwok/clusters/kwok",
    "a folder of controllers": "dev/controllers",
}
"""Places in the folder of rehearsals that are links to a folder elsewhere."""
CASES: dict[str, tuple[Callable[[Path, Path], object], str]] = {
    **{name: (replaced(part), "is a link") for name, part in LINKED.items()},
    "a folder above": (lambda project, _: (project / ".rehearsal").symlink_to(".."), "is a link"),
    "a dead link": (lambda project, _: (project / ".rehearsal").symlink_to("none"), "is a link"),
    "a file": (lambda project, _: (project / ".rehearsal").write_text(""), "is not a folder"),
    "another user's": (lambda project, _: foreign(project / ".rehearsal"), "is another user's"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_no_own_folder_is_refused_before_anything_changes(
    name: str, tmp_path: Path
) -> None:
    project, victim = tmp_path / "project", tmp_path / "victim"
    project.mkdir()
    (victim / "dev" / "precious").mkdir(parents=True)
    (victim / "c").mkdir()
    (victim / "dev" / "precious" / "file").write_text("kept")
    victim.chmod(0o755)
    (project / "Pulumi.yaml").write_text("name: p\nruntime: python\n")
    make, why = CASES[name]
    make(project, victim)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(RehearsalError, match=why):
        Rehearsal.of("dev", project)
    for words in COMMANDS if name == "the folder" else (("down",), ("up",)):
        command = [COMMAND, *words, "--project", project]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert why in " ".join(done.stderr.split())
        assert "Traceback" not in done.stderr
    assert sorted(tmp_path.rglob("*")) == before
    assert victim.stat().st_mode & 0o777 == 0o755


def test_a_list_of_ignored_files_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("kept")
    (tmp_path / ".rehearsal").mkdir()
    (tmp_path / ".rehearsal" / ".gitignore").symlink_to("../victim")
    Rehearsal.of("dev", tmp_path).make()
    assert (tmp_path / "victim").read_text() == "kept"
    assert (tmp_path / ".rehearsal" / ".gitignore").read_text() == "*\n"


@pytest.mark.parametrize("error", [KeyError("x"), RecursionError(), MemoryError(), OSError(5, "x")])
def test_an_unexpected_error_of_a_command_is_one_line(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: object) -> None:
        raise error

    monkeypatch.setattr(cli, "_parse", fail)
    monkeypatch.setattr(sys, "argv", ["ml-foundations", "status"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith(f"error: an unexpected {type(error).__name__} at ")


@pytest.mark.parametrize(
    "text", ["a: !!bool foo", 'a: !!int ""', "a: 0x" + "f" * 5000, "[" * 9999, "- a", "a: 1\na: 1"]
)
def test_a_stack_file_that_cannot_be_read_is_an_error(text: str, tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.dev.yaml"
    file.write_text(text)
    said = r"Pulumi\.dev\.yaml (cannot be read|is not a mapping)"
    with pytest.raises(RehearsalError, match=said):
        read_map(file, str(file))


@pytest.mark.parametrize("name", ["/dev/zero", "/etc/passwd", "pipe"])
def test_a_stack_file_is_a_regular_file_of_the_project(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    file = tmp_path / "Pulumi.dev.yaml"
    file.symlink_to(name)
    with pytest.raises(RehearsalError, match="cannot be read: it "):
        read_map(file, str(file))
    with pytest.raises(RehearsalError, match="cannot be read"):
        (tmp_path / "x.json").write_text("[" * 100_000)
        read_json(tmp_path / "x.json", {})


def test_a_comparison_uses_the_kinds_of_its_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    description = "{kind: Gang, group: e.io, version: v1, pods: [{template: [spec.template]}]}"
    root, tree = tmp_path / "root", tmp_path / "tree"
    for folder in (root / "kinds", tree / "kinds", tmp_path / "named"):
        folder.mkdir(parents=True)
    (root / "kinds" / "of-the-head.yaml").write_text(description)
    (tree / "kinds" / "of-the-base.yaml").write_text(description)
    (tmp_path / "named" / "own.yaml").write_text(description)
    monkeypatch.chdir(root)
    try:
        for folder, shown in {
            "": (),
            str(root / "kinds"): ("main:kinds/of-the-base.yaml",),
            str(tree / "kinds"): ("main:kinds/of-the-base.yaml",),
            str(root / "none"): (),
            str(tmp_path / "named"): (f"{tmp_path}/named/own.yaml",),
        }.items():
            difference._use_kinds(folder, root, tree, "main")
            assert kind_files.files_used() == shown
        (tree / "kinds" / "of-the-base.yaml").write_text("kind: !!bool foo")
        with pytest.raises(RehearsalError, match=r"main:kinds/of-the-base\.yaml: cannot be read"):
            difference._use_kinds(str(tree / "kinds"), root, tree, "main")
        shutil.rmtree(tree)
    finally:
        kind_files.use("")


@pytest.mark.parametrize("kinds", ["/gone", "/x\x1b[31m\n::error::pwn"])
def test_a_rehearsal_whose_kinds_are_gone_can_be_removed(
    kinds: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: p\nruntime: python\n")
    rehearsal = Rehearsal.of("dev", tmp_path)
    rehearsal.make()
    (rehearsal.root / "kinds.json").write_text(json.dumps(kinds))
    (rehearsal.root / "pulumi.pid").write_text("x y")
    done = subprocess.run([COMMAND, "down", "--project", tmp_path], check=False)
    printed = capfd.readouterr()
    assert done.returncode == 0, printed.err
    assert not rehearsal.root.exists()
    assert "\x1b" not in printed.out + printed.err
    assert "\n::" not in printed.out + printed.err
