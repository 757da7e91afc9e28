"""Processes of this machine that tests look for."""

from pathlib import Path

import psutil


def processes_naming(folder: Path) -> list[psutil.Process]:
    """Return the processes that have a folder in their command lines."""
    running = psutil.process_iter(["cmdline"])
    return [each for each in running if str(folder) in " ".join(each.info["cmdline"] or [])]
