"""Starting the parts of a replica beside a load: it must never fail falsely."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import Api, ApiError, Object
from ml_foundations.rehearsal.cloud import daemon
from ml_foundations.rehearsal.control_plane import controllers, kwok
from ml_foundations.rehearsal.control_plane.controllers import JOBSET, KUEUE, LWS, Controller
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.tools import toolchain

from tests.factories import cluster_wide
from tests.support.api_paths import path_of

_LOAD = 16
"""Processes that compute all the while."""
_POD = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i"}]}


def _first(version: str, kind: str, **fields: Object) -> Object:
    made = cluster_wide(version, kind, "first", **fields)
    made["metadata"]["namespace"] = "default"
    return made


_POD_TEMPLATE = {"template": {"spec": _POD}}
_JOB = {"name": "job", "template": {"spec": _POD_TEMPLATE}}
_OBJECTS: dict[str, Object] = {
    JOBSET.name: _first("jobset.x-k8s.io/v1alpha2", "JobSet", spec={"replicatedJobs": [_JOB]}),
    LWS.name: _first(
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
        spec={"leaderWorkerTemplate": {"workerTemplate": {"spec": _POD}}},
    ),
    KUEUE.name: cluster_wide("kueue.x-k8s.io/v1beta2", "ResourceFlavor", "first"),
}
"""What each controller's webhooks must take as soon as it has started."""


def try_all(folder: Path, count: int) -> int:
    """Start and stop each part so many times, and print how long it took; the number of failures."""
    with load(_LOAD):
        failures = _tries("the control plane", count, lambda: _of_control_plane(folder))
        rehearsal, tools = Rehearsal.of("parts", folder), toolchain.ensure()
        kwok.start(rehearsal, tools)
        try:
            failures += _tries("the simulated GKE", count, lambda: _of_gke(rehearsal))
            for controller in (JOBSET, LWS, KUEUE):
                start = partial(_of_controller, rehearsal, controller)
                failures += _tries(controller.name, count, start)
        finally:
            kwok.delete(rehearsal)
    return failures


def _tries(what: str, count: int, start: Callable[[], float]) -> int:
    took, failures = list[float](), 0
    for number in range(count):
        try:
            took.append(start())
        except (RehearsalError, ApiError) as error:
            failures += 1
            print(f"start {number}: {error}", flush=True)
    seconds = f": median {statistics.median(took):.0f} s, longest {max(took):.0f} s" if took else ""
    beside = f"beside a load of {_LOAD}"
    print(f"{count} starts of {what} {beside}, {failures} failures{seconds}", flush=True)
    return failures


def _of_control_plane(folder: Path) -> float:
    began, rehearsal = time.monotonic(), Rehearsal.of("start", folder)
    try:
        kwok.start(rehearsal, toolchain.ensure())
        return time.monotonic() - began
    finally:
        kwok.delete(rehearsal)


def _of_gke(rehearsal: Rehearsal) -> float:
    began = time.monotonic()
    try:
        daemon.start(rehearsal)
        return time.monotonic() - began
    finally:
        daemon.stop(rehearsal)


def _of_controller(rehearsal: Rehearsal, controller: Controller) -> float:
    began, tools = time.monotonic(), toolchain.ensure()
    body = _OBJECTS[controller.name]
    path = path_of(body)
    try:
        controllers.start(rehearsal, tools, controller, {})
        took, api = time.monotonic() - began, Api(Access(rehearsal.kubeconfig))
        api.create(path, body)
        with suppress(ApiError):  # it may be gone
            api.patch(f"{path}/first", {"metadata": {"finalizers": []}})
        api.delete(f"{path}/first")
        return took
    finally:
        controllers.remove(rehearsal, tools, controller)


@contextmanager
def load(processes: int) -> Iterator[None]:
    """Keep so many processes computing."""
    running = [multiprocessing.Process(target=_compute, daemon=True) for _ in range(processes)]
    for process in running:
        process.start()
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.join()


def _compute() -> None:
    while True:
        sum(range(10**6))
