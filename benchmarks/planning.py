"""How long planning takes: 1,000 workloads of 10 pods against 50 pools of 1,000 nodes, on one core.

    python -m benchmarks.planning

Prints one JSON document; see README.md beside this file.
"""

import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from typing import Any

from ml_foundations.planning import Verdict, judge
from ml_foundations.planning.model.nodes import MAX_NODES

POOLS, NODES_PER_POOL = 50, 1000
WORKLOADS, PODS_PER_WORKLOAD = 1000, 10
RUNS = 5
GPU = "nvidia.com/gpu"
TAINT = {"key": GPU, "value": "present", "effect": "NoSchedule"}

Manifest = dict[str, Any]


def main() -> None:
    print(json.dumps({"cores": os.cpu_count(), "python": platform.python_version()} | measure(), indent=2))


def measure() -> dict[str, Any]:
    """The size of the set, and the seconds of one core that it takes."""
    return {
        "runs": RUNS,
        "nodes": POOLS * NODES_PER_POOL,
        "pods": WORKLOADS * PODS_PER_WORKLOAD,
        "seconds_of_cpu_median": {
            "judge": round(judging_seconds(documents(WORKLOADS, NODES_PER_POOL)), 3),
            "command line, one workload": round(statistics.median(start_up() for _ in range(RUNS)), 3),
        },
    }


def documents(workloads: int, nodes_per_pool: int) -> list[Manifest]:
    """A number of pools of a number of nodes each, and a number of workloads."""
    return [*(pool(index, nodes_per_pool) for index in range(POOLS)), *map(workload, range(workloads))]


def judging_seconds(documents: list[Manifest]) -> float:
    """The median of the CPU time in which documents are judged, all of which fit."""
    times: list[float] = []
    for _ in range(RUNS):
        started = time.process_time()
        verdicts = judge(documents)
        times.append(time.process_time() - started)
        assert verdicts.stack is Verdict.FITS, verdicts.reasons
    return statistics.median(times)


def start_up() -> float:
    """The CPU time of the command line, of which next to nothing is judging."""
    command = [sys.executable, "-m", "ml_foundations.planning"]
    given = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents(1, 1)}).encode()
    before = os.times()
    subprocess.run(command, input=given, check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def pool(index: int, nodes: int) -> Manifest:
    has_gpus = index % 2 == 0
    allocatable = {"cpu": "95", "memory": "1300Gi", "pods": "110"} | ({GPU: "8"} if has_gpus else {})
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": f"pool-{index}",
            "labels": {"pool": f"pool-{index}", "size": str(index % 5)},
            "annotations": {MAX_NODES: str(nodes)},
        },
        "spec": {"taints": [TAINT] if has_gpus else []},
        "status": {"allocatable": allocatable},
    }


def workload(index: int) -> Manifest:
    draw = random.Random(index)
    limits: Manifest = {"cpu": str(draw.randint(1, 8)), "memory": f"{draw.randint(1, 64)}Gi"}
    if index % 2:
        limits[GPU] = str(draw.choice([1, 2, 4, 8]))
    container = {"name": "main", "resources": {"limits": limits}}
    selector = {"size": str(draw.randint(0, 4))} if index % 3 else {}
    kind = draw.choice(["Deployment", "StatefulSet", "ReplicaSet"])
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": f"workload-{index}", "namespace": f"team-{index % 20}"},
        "spec": {
            "replicas": PODS_PER_WORKLOAD,
            "template": {
                "metadata": {"labels": {"app": f"workload-{index}"}},
                "spec": {"containers": [container], "nodeSelector": selector},
            },
        },
    }


if __name__ == "__main__":
    main()
