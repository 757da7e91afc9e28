"""Installs the packages of a lock into the environment of this Python, and shows how far it is.

``python rehearsal/packages.py requirements.lock``, before anything else is installed: the standard library has to do.
"""

import re
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

POLL_SECONDS = 0.5


def main() -> None:
    """Run pip; its errors go to standard error as they are, and its status is this command's."""
    lock = Path(sys.argv[1])
    wanted = len(re.findall(r"^\w\S*==", lock.read_text(), re.MULTILINE))
    print(f"installing the Python packages of {lock} into .venv (once, about two minutes)", flush=True)
    command = [sys.executable, "-m", "pip", "install", "--progress-bar=off", "--require-hashes", "-r", str(lock)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as pip:
        assert pip.stdout is not None
        fetched = 0
        for line in pip.stdout:
            if line.startswith("Installing collected packages"):
                break
            wanted -= line.startswith("Ignoring")  # it is for another platform
            fetched += line.startswith("Collecting")
            _show(f"{fetched} of {wanted} fetched")
        while pip.poll() is None:
            _show(f"{_installed()} of {fetched} installed")
            time.sleep(POLL_SECONDS)
    _show("")
    sys.exit(pip.returncode)


def _installed() -> int:
    """How many packages are there already, pip itself aside."""
    return sum(1 for found in Path(sysconfig.get_path("purelib")).glob("*.dist-info") if "pip-" not in found.name)


def _show(text: str) -> None:
    """Say it in place of what was said before; a log needs none of it."""
    if sys.stdout.isatty():
        print(f"\r\033[2K  {text}" if text else "\r\033[2K", end="", flush=True)


if __name__ == "__main__":
    main()
