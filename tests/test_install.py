"""install.sh with stand-ins for Python, pip and uv: which of them works, and what it prints if none does."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.checkout import CHECKOUT

LOCKS = ("requirements.lock", "requirements-up.lock")
PYTHON = """#!/bin/sh
echo "python $*" >>calls
case "$*" in
  "-c import sys"*) exit ${OLD:-0} ;;
  "-c import ensurepip") exit ${NO_ENSUREPIP:-0} ;;
  "-m venv"*) mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
  "-m pip install"*uv.lock) [ -z "$PIP_FAILS" ] && cp bin/uv-stand-in .venv/bin/uv || { echo "$PIP_FAILS"; exit 1; } ;;
  "-m pip config list")
    echo ":env:.index-url='https://index.example/simple'"
    echo "global.extra-index-url='https://extra.example/simple'"
    echo "global.index-url='https://other.example/simple'" ;;
  "-m pip install"*) [ -z "$PIP_FAILS" ] || { echo "$PIP_FAILS"; exit 1; } ;;
esac
"""
UV = """#!/bin/sh
echo "uv $* from $UV_DEFAULT_INDEX" >>calls
[ "$1" = venv ] && mkdir -p .venv/bin && cp bin/python3 .venv/bin/python
exit ${UV_FAILS:-0}
"""


def executable(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("install.sh", *LOCKS):
        shutil.copy(CHECKOUT / name, tmp_path)
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in [
        "sh",
        "awk",
        "cat",
        "cp",
        "date",
        "grep",
        "head",
        "mkdir",
        "rm",
        "sed",
        "tail",
        "touch",
    ]:
        (tools / name).symlink_to(str(shutil.which(name)))
    executable(tools / "python3", PYTHON)
    executable(tools / "uv-stand-in", UV)
    return tmp_path


def install(checkout: Path, *python: str, **env: str) -> tuple[int, str, list[str]]:
    """Return the exit status, what was printed, and the calls of Python and uv without questions."""
    (checkout / "calls").unlink(missing_ok=True)
    done = subprocess.run(
        ["sh", "install.sh", "requirements-up.lock", *python],
        cwd=checkout,
        env={"PATH": str(checkout / "bin"), **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    calls = (checkout / "calls").read_text().splitlines() if (checkout / "calls").exists() else []
    return done.returncode, done.stdout, [call for call in calls if " -c " not in call]


def test_it_prints_one_line_and_verifies_hashes(checkout: Path) -> None:
    status, printed, calls = install(checkout)
    assert status == 0
    line = r"installing \d+ Python packages into \.venv \(once\) … done in \d+ s\n"
    assert re.fullmatch(line, printed)
    assert calls[0] == "python -m venv .venv"
    assert "--require-hashes -r .venv/uv.lock" in calls[1]
    from_index = "from https://index.example/simple"
    assert calls[3:] == [
        f"uv pip install -q --python .venv/bin/python --require-hashes -r requirements-up.lock {from_index}",
        f"uv pip install -q --python .venv/bin/python --no-deps --no-build-isolation -e . {from_index}",
    ]
    assert (checkout / ".venv" / "uv.lock").read_text().count("==") == 1


def test_uv_of_the_path_needs_no_ensurepip(checkout: Path) -> None:
    executable(checkout / "bin" / "uv", UV)
    status, printed, calls = install(checkout, NO_ENSUREPIP="1")
    assert status == 0, printed
    assert not [call for call in calls if call.startswith("python -m pip")]


def test_pip_installs_what_uv_cannot(checkout: Path) -> None:
    status, printed, calls = install(checkout, UV_FAILS="1")
    assert status == 0, printed
    assert [call for call in calls if call.endswith("--require-hashes -r requirements-up.lock")]
    assert calls[-1].startswith("python -m pip install") and calls[-1].endswith("-e .")


def test_an_interrupted_environment_is_made_again(checkout: Path) -> None:
    assert install(checkout)[0] == 0
    (checkout / ".venv" / ".ready").touch()
    (checkout / ".venv" / "kept").touch()
    assert install(checkout, PIP_FAILS="no space left", UV_FAILS="1")[0] == 1
    assert not (checkout / ".venv" / ".ready").exists()
    assert (checkout / ".venv" / "kept").exists(), "a finished environment is changed, not replaced"
    assert install(checkout)[0] == 0
    assert not (checkout / ".venv" / "kept").exists()


UNRESOLVED = "[Errno -3] Temporary failure in name resolution"
FAULTS: dict[str, tuple[dict[str, str], str, str]] = {
    "old-python": ({"OLD": "1"}, "python3 is not Python 3.11 or newer", ""),
    "no-ensurepip": ({"NO_ENSUREPIP": "1"}, "sudo apt install python3-venv", ""),
    "offline": ({"PIP_FAILS": UNRESOLVED}, "cannot be reached", ""),
    "wrong-hash": ({"PIP_FAILS": "hashes do not match"}, "see above", "hashes do not match"),
    "invalid-index": (
        {"PIP_FAILS": "http://me:s3/cr3t@[bad/x is invalid"},
        "see above",
        "***@[bad/x is invalid",
    ),
    "no-scheme": (
        {"PIP_FAILS": "'me:s3cr3t@index' is ignored"},
        "see above",
        "'***@index' is ignored",
    ),
}
"""The environment of each fault, the error, and what is printed before it."""


@pytest.mark.parametrize(("fault", "message", "log"), FAULTS.values(), ids=FAULTS)
def test_a_failure_is_explained(
    checkout: Path, fault: dict[str, str], message: str, log: str
) -> None:
    status, printed, _ = install(checkout, **fault)
    assert status == 1
    *before, last = printed.splitlines()
    assert last.startswith("error: ") and message in last
    assert log in printed
    assert log or len(before) == 1, printed


def test_a_newer_python_is_found_unless_one_is_named(checkout: Path) -> None:
    executable(checkout / "bin" / "python3.12", PYTHON)
    executable(checkout / "bin" / "python3", "#!/bin/sh\nexit 1\n")
    status, printed, _ = install(checkout, "python3")
    assert status == 0, printed
    shutil.rmtree(checkout / ".venv")
    status, printed, _ = install(checkout, "python3.9")
    assert status == 1 and "error: python3.9 is not Python 3.11 or newer" in printed


def commands_of(target: str, changed: str) -> str:
    """Return the commands that make would run for a target after a lock has changed."""
    command = ["make", "-n", "-W", changed, target]
    return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout


def test_make_installs_what_a_target_needs() -> None:
    everything, up = LOCKS
    assert f"install.sh {up} " in commands_of("up", up)
    assert f"install.sh {everything} " in commands_of("lint", everything)
    assert f"install.sh {everything} " not in commands_of("up", everything)


def blocks(lock: str) -> dict[str, str]:
    """Return the requirements of a lock with their hashes, by name."""
    text = re.sub(r"^ *#.*\n", "", (CHECKOUT / lock).read_text(), flags=re.MULTILINE)
    found = re.findall(r"^(([a-z0-9._-]+)==.*(?:\n .*)*)", text, re.MULTILINE)
    return {name: block for block, name in found}


def test_up_installs_what_the_lock_has_without_the_tools_of_development() -> None:
    everything, up = (blocks(lock) for lock in LOCKS)
    assert up.items() <= everything.items(), "run: make lock"
    assert {"pulumi", "rich", "psutil", "hatchling", "editables"} <= up.keys()
    assert not {"pytest", "ruff", "pyright", "hypothesis", "uv"} & up.keys()
