"""``plan`` with files of a stranger: what it reads, what it refuses by name, and how it ends."""

import io
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ml_foundations.kinds import kind_files
from ml_foundations.kubernetes import regular_files
from ml_foundations.planning import __main__ as planning
from ml_foundations.planning.__main__ import main
from ml_foundations.planning.verdict.markdown import MARK

from tests.factories import deployment, node, template
from tests.support.checkout import COMMAND

TOKEN = "ghp_0123456789012345678901234567890123456"
STACK = [node("a"), deployment("web", 1, template())]
GANG = """
apiVersion: evil.io/v1
kind: GpuGang
metadata: {name: a}
spec: {replicas: 1000, count: 0, template: {spec: {containers: [{name: c, image: n}]}}}
"""
JUDGE = """
{kind: GpuGang, group: evil.io, version: v1, harmless: [spec.replicas],
 pods: [{template: [spec.template], count: spec.count}]}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A checkout with a folder of manifests, and files outside of it."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "token.yaml").write_text(TOKEN)
    (tmp_path / "outside" / "stack.yaml").write_text(yaml.safe_dump_all(STACK))
    checkout = tmp_path / "checkout"
    (checkout / "manifests").mkdir(parents=True)
    (checkout / "manifests" / "stack.yaml").write_text(yaml.safe_dump_all(STACK))
    monkeypatch.chdir(checkout)
    yield checkout
    kind_files.use("")


def fifo(path: Path) -> None:
    os.mkfifo(path)


def large(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**28 + 1)


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def link(to: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(to)


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "a pipe": (fifo, "is a device, pipe or socket"),
    "a socket": (listening, "is a device, pipe or socket"),
    "a device": (link("/dev/zero"), "leads out of"),
    "a file outside": (link("../../outside/token.yaml"), "leads out of"),
    "objects outside": (link("../../outside/stack.yaml"), "leads out of"),
    "a folder outside": (link("../../outside"), "leads out of"),
    "the environment": (link("/proc/self/environ"), "leads out of"),
    "a loop": (link("x.yaml"), "Too many levels of symbolic links"),
    "nothing": (link("none.yaml"), "No such file"),
    "itself large": (large, "more than 128 MiB"),
    "no text": (lambda path: path.write_bytes(b"\xff\xfe"), "can't decode byte 0xff"),
}


FROM_CHECKOUT = {
    "a file outside": link("../outside/token.yaml"),
    "objects outside": link("../outside/token.yaml"),
    "a folder outside": link("../outside/"),
}
"""The links out of a checkout that begin in the checkout itself."""


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("is_named", [True, False])
def test_what_is_no_file_of_the_folder_is_refused_by_name(
    name: str, is_named: bool, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make, why = REFUSED[name]
    place = "x.yaml" if is_named else "manifests/x.yaml"
    (FROM_CHECKOUT.get(name, make) if is_named else make)(folder / place)
    if name == "a folder outside" and not is_named:
        pytest.skip("a link to a folder is not followed, as kubectl does")
    assert main([place if is_named else "manifests"]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(f"error: {place}: ")
    assert why in printed.err
    assert TOKEN not in printed.err + printed.out
    assert printed.err.count("\n") == 1


def test_links_inside_of_the_folder_are_followed(folder: Path) -> None:
    (folder / "manifests" / "stack.yaml").rename(folder / "manifests" / "real")
    (folder / "manifests" / "stack.yaml").symlink_to("real")
    (folder / "cluster.yaml").symlink_to("manifests/real")
    assert main(["manifests"]) == 0
    assert main(["cluster.yaml"]) == 0
    assert main([str(folder / "manifests")]) == 0
    assert main(["../checkout/manifests"]) == 0
    assert main(["../outside/stack.yaml"]) == 0


def test_the_folder_itself_may_not_lead_out(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("linked", "linked/below"):
        (folder / "linked").unlink(missing_ok=True)
        (folder / "linked").symlink_to("../outside")
        (folder.parent / "outside" / "below").mkdir(exist_ok=True)
        assert main([name]) == 2
        assert f"error: {name}: it leads out of the current folder" in capsys.readouterr().err


def test_odd_names_are_files_like_others(folder: Path) -> None:
    for name in ("-.yaml", "a\nb.yaml", "--diff.yaml", "…\udcff.json", ".hidden.yml"):
        (folder / "manifests" / name).write_text("{")
    (folder / "manifests" / "folder.yaml").mkdir()
    done = subprocess.run([COMMAND, "plan", "manifests"], capture_output=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count(b"error: manifests/") == 5


@pytest.mark.parametrize(
    "text",
    [TOKEN, f"- {TOKEN}", f"*{TOKEN}", f"!{TOKEN} x", f"a: !!int {TOKEN}", f"{TOKEN}: 1", "7" * 40],
)
def test_content_of_other_files_is_not_shown(
    text: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "x.yaml").write_text(text)
    assert main(["x.yaml"]) == 2
    error = capsys.readouterr().err
    assert TOKEN not in error
    assert text not in error
    assert ("must be a Kubernetes object, not a number" in error) is text.isdigit()


def test_standard_input_is_read_once_and_has_a_limit(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in (["-", "-"], ["--diff", "-", "-"], ["-", "--diff", "-", "manifests"]):
        assert main(arguments) == 2
        assert "standard input can be read only once" in capsys.readouterr().err
    monkeypatch.setattr(regular_files, "MOST_BYTES", 10)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a: " + b"1" * 10)))
    assert main(["-"]) == 2
    assert "standard input: it has more than" in capsys.readouterr().err


def test_a_folder_that_cannot_be_listed_is_an_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(path: Any) -> Any:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", refuse)
    assert main(["manifests"]) == 2
    assert "Permission denied" in capsys.readouterr().err


def test_kinds_come_only_from_a_folder_that_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "kinds").mkdir()
    (folder / "kinds" / "e.yaml").write_text(JUDGE)
    (folder / "manifests" / "gang.yaml").write_text(GANG)
    assert main(["manifests"]) == 3
    assert "Judged with" not in capsys.readouterr().out
    for arguments in (["manifests"], ["--diff", "manifests", "manifests"]):
        assert main([*arguments, "--kinds", "kinds"]) == 0
        assert "Judged with kinds/e.yaml." in capsys.readouterr().out
        assert main([*arguments, "--kinds", "kinds", "--format", "markdown"]) == 0
        assert "Judged with kinds/e.yaml." in capsys.readouterr().out
    main(["manifests", "--kinds", "kinds", "--json"])
    assert json.loads(capsys.readouterr().out)["judged_with"] == ["kinds/e.yaml"]
    variable = {**os.environ, kind_files.FOLDER_VARIABLE: "kinds"}
    done = subprocess.run(
        [COMMAND, "plan", "manifests"], env=variable, capture_output=True, check=False
    )
    assert b"Judged with kinds/e.yaml." in done.stdout


@pytest.mark.parametrize("name", ["a file outside", "a pipe", "a device", "no text"])
def test_files_of_kinds_are_read_like_others(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make, why = REFUSED[name]
    (folder / "kinds").mkdir()
    make(folder / "kinds" / "x.yaml")
    assert main(["manifests", "--kinds", "kinds"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: kinds/x.yaml: ")
    assert why in error
    assert TOKEN not in error


@pytest.mark.parametrize(
    "text", ["kind: !!bool foo", "[" * 5000, TOKEN, f"kind: [{TOKEN}]", "a: &a [*a]"]
)
def test_a_kind_that_cannot_be_read_is_code_2(
    text: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "kinds").mkdir()
    (folder / "kinds" / "x.yaml").write_text(text)
    assert main(["manifests", "--kinds", "kinds"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: kinds/x.yaml: ")
    assert TOKEN not in error


def test_a_folder_of_kinds_that_does_not_exist_is_an_error(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["manifests", "--kinds", "kinds"]) == 2
    assert "error: kinds: " in capsys.readouterr().err


def test_a_comment_is_never_empty(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "head.yaml").write_text("a: !!bool foo")
    assert main(["--diff", "manifests", "head.yaml", "--format", "markdown"]) == 2
    printed = capsys.readouterr()
    assert printed.out.startswith(f"{MARK}\n\n**⚠️ ")
    assert "head.yaml: the value is not a valid !!&#8203;bool, at line 1, column 4" in printed.out
    assert printed.err.startswith("error: head.yaml: the value")


@pytest.mark.parametrize(
    "error", [KeyError("x"), RecursionError("deep"), MemoryError(), TypeError("a\nb")]
)
def test_an_unexpected_error_is_one_line_and_code_2(
    error: Exception,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(planning, "judge_documents", fail)
    assert main(["manifests", "--format", "markdown"]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(f"error: an unexpected {type(error).__name__} at test_files.py:")
    assert " while judging: " in printed.err
    assert "SECURITY.md" in printed.err
    assert printed.err.count("\n") == 1
    assert type(error).__name__ in printed.out
    monkeypatch.setenv("ML_FOUNDATIONS_TRACEBACK", "1")
    assert main(["manifests"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_an_unexpected_error_names_the_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(planning.documents, "read", lambda *_: {}["x"])
    assert main(["manifests"]) == 2
    assert " while reading manifests/stack.yaml: 'x'" in capsys.readouterr().err


def test_a_change_that_adds_nodes_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "old").mkdir()
    (folder / "manifests" / "n.yaml").write_text(yaml.safe_dump(node("n2", cpu="64")))
    main(["--diff", "old", "manifests"])
    assert "The new side adds nodes, which count for it: a and n2" in capsys.readouterr().out
