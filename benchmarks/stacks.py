"""Measure a rehearsal of a whole stack, each figure with an anchor in the same run.

    python -m benchmarks.stacks

The anchors: a control plane with ``kubectl apply`` of the same objects for ``up``; for a second
``up`` and a preview, a program that declares nothing. Prints one JSON document; see README.md
in this folder.
"""

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from ml_foundations.rehearsal.control_plane import kwok
from ml_foundations.rehearsal.engine import installation, stack
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.tools import toolchain

from benchmarks import fleet

CHECKOUT = Path(__file__).resolve().parents[1]
RUNS = 3


def main() -> None:
    print(json.dumps(measure(), indent=2))


def measure() -> dict[str, Any]:
    """Return the seconds of the rehearsal, of its anchor, their ratio, and dev's memory."""
    with tempfile.TemporaryDirectory() as folder:
        checkout, empty = copy_checkout(Path(folder)), empty_project(Path(folder))
        rows: dict[str, Any] = {
            "preview of prod": compared(lambda: preview(checkout, "prod"), lambda: preview(empty))
        }
        first: list[float] = []
        anchors: list[float] = []
        again: list[float] = []
        nothing: list[float] = []
        memory: list[int] = []
        for _ in range(RUNS):
            first.append(timed(lambda: fleet.rehearse(checkout, "up")))
            anchors.append(applied(Path(folder) / "bare", objects_of(checkout)))
            fleet.rehearse(empty, "up")
            again.append(timed(lambda: fleet.rehearse(checkout, "up")))
            nothing.append(timed(lambda: fleet.rehearse(empty, "up")))
            memory.append(fleet.memory(Rehearsal.of("dev", checkout)))
            fleet.rehearse(empty, "down")
            fleet.rehearse(checkout, "down")
        rows["up of dev, from nothing running"] = row(first, anchors)
        rows["up of dev again, nothing changed"] = row(again, nothing)
        return {"seconds_median": rows, "megabytes of dev at rest": statistics.median(memory)}


def compared(work: Callable[[], None], anchor: Callable[[], None]) -> dict[str, float]:
    pairs = [(timed(work), timed(anchor)) for _ in range(RUNS + 1)][1:]
    return row([pair[0] for pair in pairs], [pair[1] for pair in pairs])


def row(seconds: list[float], anchors: list[float]) -> dict[str, float]:
    found = {"rehearsal": statistics.median(seconds), "anchor": statistics.median(anchors)}
    ratios = [mine / other for mine, other in zip(seconds, anchors, strict=True)]
    return {**found, "ratio": round(statistics.median(ratios), 2)}


def copy_checkout(folder: Path) -> Path:
    target = folder / "checkout"
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(CHECKOUT / name, target / name)
    # Pulumi's own language host takes the environment that Pulumi.yaml names.
    (target / ".venv").symlink_to(sys.prefix)
    return target


def empty_project(folder: Path) -> Path:
    target = folder / "empty"
    target.mkdir()
    (target / "Pulumi.yaml").write_text("name: empty\nruntime: python\n")
    (target / "__main__.py").touch()
    return target


def preview(project: Path, name: str = "dev") -> None:
    rehearsal = Rehearsal.of(name, project)
    if not rehearsal.bin_dir.exists():
        installation.install(rehearsal, toolchain.ensure())
        stack.create(rehearsal)
    done = stack.pulumi(rehearsal, "preview")
    assert done.returncode == 0, done.stdout + done.stderr


def objects_of(checkout: Path) -> list[dict[str, Any]]:
    """Return the objects of the rehearsed stack, except those of kinds that GKE adds."""
    state = json.loads(stack.state_file(Rehearsal.of("dev", checkout)).read_text())
    declared = (each.get("inputs", {}) for each in state["checkpoint"]["latest"]["resources"])
    found = (each for each in declared if {"apiVersion", "kind"} <= each.keys())
    return [each for each in found if not each["apiVersion"].startswith("snapshot.")]


def applied(root: Path, objects: list[dict[str, Any]]) -> float:
    """The seconds of a control plane, and of ``kubectl apply``."""
    rehearsal, tools = Rehearsal.of("bare", root), toolchain.ensure()
    rehearsal.make()

    def work() -> None:
        kwok.start(rehearsal, tools)
        command = [
            tools.kubectl,
            f"--kubeconfig={rehearsal.kubeconfig}",
            "apply",
            "--server-side",
            "--filename=-",
        ]
        subprocess.run(
            command, input=yaml.safe_dump_all(objects), text=True, check=True, stdout=sys.stderr
        )

    try:
        return timed(work)
    finally:
        kwok.delete(rehearsal)
        shutil.rmtree(root)


def timed(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return round(time.perf_counter() - started, 2)


if __name__ == "__main__":
    main()
