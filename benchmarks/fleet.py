"""Measure how fast a rehearsal adds nodes and runs the pods of a Job, with an anchor in each run.

    python -m benchmarks.fleet [NODES ...]

The anchor is a plain script over the same control plane: it creates the same nodes one after the
other, without the simulated GKE and its DaemonSets, and runs the same Job on them. An ``up`` of a
program with these nodes, and of one with one node, shows what a user waits for. Prints one JSON
document; see README.md in this folder.
"""

import http
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from ml_foundations.catalog.pools import PoolGpu
from ml_foundations.kubernetes.labels import GPU_RESOURCE
from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import Api, ApiError, Object, condition
from ml_foundations.rehearsal.cloud import daemon, nodes
from ml_foundations.rehearsal.cloud.informer import Informer
from ml_foundations.rehearsal.cloud.store import Pool, Store
from ml_foundations.rehearsal.control_plane import kwok
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.tools import toolchain

SIZES = (100, 300, 1000)
PODS_PER_NODE, MOST_PODS = 5, 10_000
NODES_PER_POOL = 1000
GPUS = 8
PATIENCE_SECONDS = 3600
COMPARED = ("nodes", "CPU of nodes", "pods", "CPU of pods", "megabytes")
ZONES = ("us-central1-a", "us-central1-b")
Make = Callable[[Rehearsal, Api, Sequence[Pool]], None]
_DAEMON_SETS = "/apis/apps/v1/daemonsets"
_JOBS = "/apis/batch/v1/namespaces/default/jobs"
PROGRAM = """
from ml_foundations import CpuNodePool, GkeCluster, GpuNodePool

place = {{"project": "my-project-dev", "location": "us-central1", "deletion_protection": False}}
cluster = GkeCluster("ml", place)
CpuNodePool("system", cluster=cluster, machine_type="n2-standard-4", min_nodes=1, max_nodes=1)
for name, size in {pools}.items():
    GpuNodePool(
        name, cluster=cluster, zones={zones}, machine_type="a3-highgpu-8g", min_nodes=size,
        max_nodes=size, deletion_protection=False,
    )
"""
"""What a user writes for the same pools."""


def main() -> None:
    sizes = [int(word) for word in sys.argv[1:]] or SIZES
    print(json.dumps(measure(sizes), indent=2))


def measure(sizes: Sequence[int] = SIZES) -> dict[str, Any]:
    """Return seconds, wall and CPU, until all nodes are Ready and a Job has completed, by size."""
    return {f"{size} nodes, {pods_on(size)} pods": compared(size) for size in sizes}


def pods_on(size: int) -> int:
    return min(size * PODS_PER_NODE, MOST_PODS)


def compared(size: int) -> dict[str, Any]:
    """A pool of a rehearsal, the anchor and an ``up`` of the same run, and their ratios."""
    anchor, mine = seconds_of(size, by_script), seconds_of(size, by_pool)
    ratio = {key: round(mine[key] / anchor[key], 2) for key in mine if key in COMPARED}
    one, many = seconds_of_up(1), seconds_of_up(size)
    nodes = round(many - one, 2)
    up = {"one node": one, "all nodes": many, "difference": nodes}
    ratio["difference of up to nodes"] = round(nodes / mine["nodes"], 2)
    return {"anchor": anchor, "rehearsal": mine, "up": up, "ratio": ratio}


def seconds_of_up(size: int) -> float:
    """Return the seconds of ``ml-foundations up`` of a program with so many nodes with GPUs."""
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder)
        (project / "Pulumi.yaml").write_text("name: fleet\nruntime: python\n")
        pools = {pool.name: pool.min_nodes for pool in pools_of(size)}
        (project / "__main__.py").write_text(PROGRAM.format(pools=pools, zones=ZONES))
        started = time.perf_counter()
        try:
            rehearse(project, "up")
            return round(time.perf_counter() - started, 2)
        finally:
            rehearse(project, "down")


def rehearse(project: Path, command: str) -> None:
    program = Path(sys.prefix, "bin", "ml-foundations")
    subprocess.run([program, command], cwd=project, check=True, stdout=sys.stderr)


def seconds_of(size: int, make: Make) -> dict[str, Any]:
    with replica() as rehearsal:
        api, changed = Api(Access(rehearsal.kubeconfig)), threading.Event()
        known = Informer(
            api, "/api/v1/nodes", changed, read=lambda node: node | {"ready": is_ready(node)}
        )
        known.start()
        started, spent = time.perf_counter(), cpu(rehearsal)
        make(rehearsal, api, pools_of(size))
        wait(lambda: sum(node["ready"] for node in known.items()) >= size)
        made, spent_on_nodes = time.perf_counter(), cpu(rehearsal) - spent
        wait(lambda: all(map(is_everywhere, api.get(_DAEMON_SETS)["items"])))
        whole, spent_until_whole = time.perf_counter(), cpu(rehearsal) - spent
        pods = pods_on(size)
        api.create(_JOBS, job(pods))
        wait(lambda: condition(api.get(f"{_JOBS}/many"), "Complete").get("status") == "True")
        done = time.perf_counter()
        return {
            "nodes": round(made - started, 2),
            "nodes per second": round(size / (made - started)),
            "CPU of nodes": round(spent_on_nodes, 1),
            "then pods of DaemonSets": round(whole - made, 2),
            "pods": round(done - whole, 2),
            "pods per second": round(pods / (done - whole)),
            "CPU of pods": round(cpu(rehearsal) - spent - spent_until_whole, 1),
            "megabytes": memory(rehearsal),
            "CPU and megabytes by process": {
                process.name(): [round(cpu_of(process), 1), megabytes_of(process)]
                for process in running(rehearsal)
            },
        }


def pools_of(size: int) -> list[Pool]:
    """Pools with as many nodes together, each of as many as GKE has in one zone."""
    rest = range(0, size, NODES_PER_POOL)
    return [
        pool_of(f"gpus-{index}", min(NODES_PER_POOL, size - before))
        for index, before in enumerate(rest)
    ]


def pool_of(name: str, size: int) -> Pool:
    bounds = dict.fromkeys(("min_nodes", "initial_nodes", "max_nodes"), size)
    return Pool(
        name,
        "a3-highgpu-8g",
        cluster="ml",
        zones=ZONES,
        gpu=PoolGpu("nvidia-h100-80gb", GPUS),
        **bounds,
    )


@contextmanager
def replica() -> Iterator[Rehearsal]:
    with tempfile.TemporaryDirectory() as folder:
        rehearsal = Rehearsal.of("fleet", Path(folder))
        rehearsal.make()
        kwok.start(rehearsal, toolchain.ensure())
        try:
            yield rehearsal
        finally:
            daemon.stop(rehearsal)
            kwok.delete(rehearsal)


def by_script(rehearsal: Rehearsal, api: Api, pools: Sequence[Pool]) -> None:
    for pool in pools:
        made = 0
        while made < pool.min_nodes:
            try:
                api.create("/api/v1/nodes", nodes.new_node(pool, ZONES[made % len(ZONES)], None))
                made += 1
            except (
                ApiError
            ) as error:  # of a thousand names with four random characters, two may be one
                if error.status != http.HTTPStatus.CONFLICT:
                    raise


def by_pool(rehearsal: Rehearsal, api: Api, pools: Sequence[Pool]) -> None:
    store = Store(rehearsal)
    store.save("clusters", "ml", {"id": "ml", "inputs": {"name": "ml"}})
    daemon.start(rehearsal)
    for pool in pools:
        store.save_pool(pool)


def is_ready(node: Object) -> bool:
    gpus = node["status"].get("allocatable", {}).get(GPU_RESOURCE)
    return condition(node, "Ready").get("status") == "True" and gpus == str(GPUS)


def is_everywhere(daemon_set: Object) -> bool:
    status = daemon_set["status"]
    is_seen = status.get("observedGeneration") == daemon_set["metadata"]["generation"]
    return is_seen and status.get("numberReady") == status.get("desiredNumberScheduled")


def job(pods: int) -> Object:
    container = {"name": "main", "image": "busybox", "resources": {"limits": {GPU_RESOURCE: "1"}}}
    tolerations = [{"key": GPU_RESOURCE, "operator": "Exists"}]
    template = {
        "spec": {"restartPolicy": "Never", "containers": [container], "tolerations": tolerations}
    }
    spec = {"parallelism": pods, "completions": pods, "template": template}
    return {"metadata": {"name": "many"}, "spec": spec}


def memory(rehearsal: Rehearsal) -> int:
    """Return the megabytes of a rehearsal's processes. Shared memory counts once."""
    return sum(map(megabytes_of, running(rehearsal)))


def megabytes_of(process: psutil.Process) -> int:
    return round(process.memory_full_info().pss / 1e6)


def cpu(rehearsal: Rehearsal) -> float:
    """The CPU seconds that the processes of a rehearsal have taken."""
    return sum(map(cpu_of, running(rehearsal)))


def cpu_of(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def running(rehearsal: Rehearsal) -> list[psutil.Process]:
    processes = [*kwok.processes(rehearsal), daemon.process(rehearsal)]
    return [psutil.Process(process.pid) for process in processes if process.pid]


def wait(is_done: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not is_done():
        if time.monotonic() > until:
            raise TimeoutError(f"nothing came of it in {PATIENCE_SECONDS} s")
        time.sleep(0.1)


if __name__ == "__main__":
    main()
