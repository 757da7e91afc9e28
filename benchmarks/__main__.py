"""``make bench``: how long planning and a rehearsal take. Prints one JSON document; see README.md beside this file."""

import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ml_foundations.rehearsal.control_plane import kwok
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.tools import toolchain

from benchmarks import planning, scheduler

CHECKOUT = Path(__file__).resolve().parents[1]
RUNS = 3


def main() -> None:
    tools = toolchain.ensure()
    with tempfile.TemporaryDirectory() as folder:
        checkout = copy_checkout(Path(folder))
        results = {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "planning": planning.measure(),
            "planning and the real scheduler": scheduler.measure(),
            "runs": RUNS,
            "seconds_median": {
                "control plane ready": control_plane_ready(Path(folder) / "bare", tools),
                **stack_times(checkout),
            },
        }
    print(json.dumps(results, indent=2))


def copy_checkout(folder: Path) -> Path:
    target = folder / "checkout"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(CHECKOUT / name, target / name)
    return target


def control_plane_ready(root: Path, tools: toolchain.Tools) -> float:
    def run() -> float:
        rehearsal = Rehearsal.of("bare", root)
        rehearsal.make()
        try:
            return timed(lambda: kwok.start(rehearsal, tools))
        finally:
            kwok.delete(rehearsal)
            shutil.rmtree(root)

    return statistics.median(run() for _ in range(RUNS))


def stack_times(checkout: Path) -> dict[str, float]:
    first, second = [], []
    for _ in range(RUNS):
        first.append(timed(lambda: rehearse(checkout, "up")))
        second.append(timed(lambda: rehearse(checkout, "up")))
        rehearse(checkout, "down")
    return {"up of dev, from nothing running": statistics.median(first), "up again": statistics.median(second)}


def rehearse(checkout: Path, command: str) -> None:
    subprocess.run([Path(sys.prefix, "bin", "ml-foundations"), command], cwd=checkout, check=True, stdout=sys.stderr)


def timed(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return round(time.perf_counter() - started, 2)


if __name__ == "__main__":
    main()
