"""Bad input: a part of what ``python -m tests.reliability`` tries by the thousand, and what it has found."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ml_foundations.planning.input import documents
from ml_foundations.rehearsal.files import read_map
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.progress import RehearsalError

from tests.reliability import odd
from tests.support.checkout import CHECKOUT, COMMAND
from tests.support.trials import sizes

PODS = "\n---\n".join(
    f"{{apiVersion: v1, kind: Pod, metadata: {{name: p{n}}}, spec: {{containers: [{{name: a, image: i}}]}}}}"
    for n in range(2000)
)


def python(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *map(str, words)]
    return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("count", sizes(300, 3000))
def test_hostile_input_is_refused_or_judged(count: int, tmp_path: Path) -> None:
    done = python("-m", "tests.reliability", count, "--kind", "inputs", "--folder", tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr


BOUNDLESS = {
    "brackets": ("x: " + "[" * 100_000, "nests more than 500 levels deep"),
    "dashes": ("x:\n  " + "- " * 100_000, "nests more than 500 levels deep"),
    "itself": ("x: &x\n  y: *x\n", "has too many aliases"),
    "laughs": (odd.laughs(), "has too many aliases"),
    "digits": ("x: " + "1" * 5000, "is not a valid !!int, at line 1"),
}


@pytest.mark.parametrize("name", BOUNDLESS)
def test_what_would_never_end_is_refused(name: str) -> None:
    text, why = BOUNDLESS[name]
    with pytest.raises(documents.UnreadableError, match=why):
        documents.read(text, "stream")
    with pytest.raises(RehearsalError, match=why):
        read_map(text, "the stack file")


def test_json_that_nests_without_end_is_refused() -> None:
    with pytest.raises(documents.UnreadableError, match="500 levels deep"):
        documents.read('{"a":' * 100_000, "stream")


def test_an_alias_is_no_bomb() -> None:
    assert read_map("a: &a [1, 2]\nb: *a\nc: {<<: {d: *a}}", "the stack file")["c"] == {"d": [1, 2]}


def test_keys_are_text_as_kubectl_makes_them() -> None:
    text = "{apiVersion: v1, kind: ConfigMap, metadata: {name: x, labels: {on: a, 2: b}}}"
    [found] = documents.read(text, "stream")
    assert found["metadata"]["labels"] == {"true": "a", "2": "b"}


def plan(folder: Path, text: str, stdout: int = -1) -> subprocess.CompletedProcess[bytes]:
    (folder / "stream").write_text(text)
    command = [COMMAND, "plan", folder / "stream"]
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, check=False)


def test_a_name_that_no_terminal_can_show(tmp_path: Path) -> None:
    metadata = '{"name": "\\ud800"}'
    done = plan(
        tmp_path, f'{{"apiVersion": "v1", "kind": "Pod", "metadata": {metadata}, "spec": {{}}}}'
    )
    assert b"Traceback" not in done.stderr
    assert done.returncode in (1, 2)


def test_nobody_reads_the_verdicts_to_their_end(tmp_path: Path) -> None:
    (tmp_path / "stream").write_text(PODS)
    running = subprocess.Popen(
        [COMMAND, "plan", "-"], stdin=(tmp_path / "stream").open(), stdout=-1, stderr=-1
    )
    assert running.stdout and running.stderr
    running.stdout.close()
    assert running.stderr.read() == b""
    assert running.wait() == -signal.SIGPIPE


def test_the_verdicts_do_not_fit_on_the_disk(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = plan(tmp_path, PODS, full.fileno())
    assert done.stderr == b"error: the verdicts cannot be written: No space left on device\n"
    assert done.returncode == 2


@pytest.mark.parametrize("folder", ["a,b", "a:b"])
def test_a_path_that_tools_would_cut_is_refused(folder: str, tmp_path: Path) -> None:
    with pytest.raises(RehearsalError, match="Rename or move the folder"):
        Rehearsal.of("dev", tmp_path / folder)


LOUD = """
import os, sys
from ml_foundations.rehearsal.progress import Step, output
for index in range(3):
    with Step("a step"):
        output().print("a line")
print("the end", file=open(sys.argv[1], "w"))
"""


def test_work_goes_on_when_nobody_reads(tmp_path: Path) -> None:
    read, written = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-c", LOUD, tmp_path / "end"], stdout=written, stderr=written, check=False
    )
    assert (tmp_path / "end").read_text() == "the end\n"
    assert done.returncode == 0


FULL = """
from pathlib import Path
from ml_foundations.rehearsal.progress import user_errors
with user_errors():
    with open("/dev/full", "w") as full:
        full.write("x")
"""


def test_a_file_in_the_place_of_a_folder_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    fetch = ("-m", "ml_foundations.rehearsal", "tools", "fetch")
    done = python(*fetch, "--to", tmp_path / "file")
    assert done.returncode == 1
    assert "A file is in the place of a folder: move it, or choose another" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_full_disk_is_one_sentence() -> None:
    done = python("-c", FULL)
    full = "error: [Errno 28] No space left on device"
    assert done.stderr == f"{full}. Free some space, then run the same command again\n"
    assert done.returncode == 1
