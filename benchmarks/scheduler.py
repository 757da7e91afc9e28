"""Measure the real scheduler on a tenth of the pods of benchmarks.planning.

    python -m benchmarks.scheduler

The scheduler is paused until all nodes and pods exist, so that neither the API server's time to
create them nor the controllers' is counted. Prints one JSON document; see README.md in this folder.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
from ml_foundations.planning.model.nodes import MAX_NODES
from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import Api, ApiError
from ml_foundations.rehearsal.control_plane import kwok
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.tools import toolchain

from benchmarks import planning

WORKLOADS, NODES_PER_POOL = 100, 50
"""A small machine holds no 50,000 nodes. With fewer than these, planning is not sure that the pods
fit."""
CONNECTIONS = 4
POLL_SECONDS = 0.2
PATIENCE_SECONDS = 1800

Manifest = dict[str, Any]


def main() -> None:
    print(json.dumps(measure(), indent=2))


def measure() -> dict[str, Any]:
    """The seconds of one core that planning and the real scheduler take for the same documents."""
    documents = planning.documents(WORKLOADS, NODES_PER_POOL)
    planned = planning.judging_seconds(documents)
    wall, cpu = scheduling_seconds(documents)
    return {
        "nodes": planning.POOLS * NODES_PER_POOL,
        "pods": WORKLOADS * planning.PODS_PER_WORKLOAD,
        "seconds_of_cpu": {"planning": round(planned, 3), "scheduler": round(cpu, 1)},
        "seconds": {"scheduler": round(wall, 1)},
        "scheduler to planning, in CPU time": round(cpu / planned),
    }


def scheduling_seconds(documents: Iterable[Manifest]) -> tuple[float, float]:
    """Return seconds, wall and CPU, from the first pod that is seen until every pod has a node."""
    with tempfile.TemporaryDirectory() as folder:
        rehearsal = Rehearsal.of("bare", Path(folder))
        rehearsal.make()
        kwok.start(rehearsal, toolchain.ensure())
        try:
            return _schedule(rehearsal, list(documents))
        finally:
            kwok.delete(rehearsal)


def _schedule(rehearsal: Rehearsal, documents: list[Manifest]) -> tuple[float, float]:
    api = Api(Access(rehearsal.kubeconfig))
    nodes = [
        node for document in documents if document["kind"] == "Node" for node in nodes_of(document)
    ]
    pods = [
        pod for document in documents if document["kind"] != "Node" for pod in pods_of(document)
    ]
    namespaces = sorted({pod["metadata"]["namespace"] for pod in pods})
    for name in namespaces:
        api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    _create(api, "/api/v1/nodes", nodes)
    for name in namespaces:
        _wait(
            lambda name=name: _is_there(api, f"/api/v1/namespaces/{name}/serviceaccounts/default")
        )
    _wait(lambda: not any(_is_new(node) for node in api.get("/api/v1/nodes")["items"]))
    scheduler = psutil.Process(
        next(process.pid for process in kwok.processes(rehearsal) if "scheduler" in process.name)
    )
    scheduler.suspend()
    try:
        _create(api, "/api/v1/namespaces/{namespace}/pods", pods)
    finally:
        scheduler.resume()
    started, before = time.perf_counter(), _cpu_seconds(scheduler)
    # The collection of pods without a node gets empty; one of them is enough to see that it is not
    # yet.
    _wait(lambda: not api.get("/api/v1/pods", fieldSelector="spec.nodeName=", limit="1")["items"])
    return time.perf_counter() - started, _cpu_seconds(scheduler) - before


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _create(api: Api, path: str, objects: list[Manifest]) -> None:
    print(f"creating {len(objects)} {path.rpartition('/')[2]}", file=sys.stderr)
    with ThreadPoolExecutor(CONNECTIONS) as threads:
        for _ in threads.map(
            lambda item: api.create(path.format(**item["metadata"]), item), objects
        ):
            pass


def _is_there(api: Api, path: str) -> bool:
    try:
        api.get(path)
    except ApiError:
        return False
    return True


def _is_new(node: Manifest) -> bool:
    """Whether a node still has the taint that it begins with."""
    return any(
        taint["key"] == "node.kubernetes.io/not-ready" for taint in node["spec"].get("taints") or []
    )


def _wait(is_done: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not is_done():
        if time.monotonic() > until:
            raise TimeoutError(f"nothing changed in {PATIENCE_SECONDS} s")
        time.sleep(POLL_SECONDS)


def nodes_of(template: Manifest) -> Iterable[Manifest]:
    """The nodes that a template stands for; all are ready."""
    metadata, allocatable = template["metadata"], template["status"]["allocatable"]
    for index in range(int(metadata["annotations"][MAX_NODES])):
        name = f"{metadata['name']}-{index}"
        yield template | {
            "metadata": {
                "name": name,
                "labels": metadata["labels"] | {"kubernetes.io/hostname": name},
            },
            "status": {
                "allocatable": allocatable,
                "capacity": allocatable,
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }


def pods_of(workload: Manifest) -> Iterable[Manifest]:
    """The pods of a workload, without the workload."""
    name, namespace = workload["metadata"]["name"], workload["metadata"]["namespace"]
    template = workload["spec"]["template"]
    container = template["spec"]["containers"][0] | {"image": "none"}
    for index in range(workload["spec"]["replicas"]):
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": template["metadata"] | {"name": f"{name}-{index}", "namespace": namespace},
            "spec": template["spec"] | {"containers": [container]},
        }


if __name__ == "__main__":
    main()
