"""Measure planning on one core: workloads against pools, and against the nodes of a live cluster.

    python -m benchmarks.planning

Prints one JSON document; see README.md in this folder.
"""

import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml
from ml_foundations.planning import judge
from ml_foundations.planning.model.nodes import MAX_NODES

from benchmarks import topology

POOLS, NODES_PER_POOL = 50, 1000
WORKLOADS, PODS_PER_WORKLOAD = 1000, 10
MOST_NODES = 65_000
"""GKE's own limit of nodes in one cluster (GKE, "Plan for large GKE clusters")."""
STREAMS = {"as many as are judged": 59_999, "100 MB, which is refused": 275_000}
RUNS = 5
GPU = "nvidia.com/gpu"
TAINT = {"key": GPU, "value": "present", "effect": "NoSchedule"}
ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"

Manifest = dict[str, Any]


def main() -> None:
    print(
        json.dumps(
            {"cores": os.cpu_count(), "python": platform.python_version()} | measure(), indent=2
        )
    )


def measure() -> dict[str, Any]:
    """The seconds of one core for each set; the largest are judged once."""
    fleet = nodes(NODES_PER_POOL)
    plain = list(map(workload, range(WORKLOADS)))
    spread = [spread_over(ZONE, workload(index)) for index in range(WORKLOADS)]
    apart = [kept_apart(workload(index)) for index in range(WORKLOADS)]
    mixed = [*spread[:15], *apart[15:30], *plain[30:44], *map(daemon_set, range(6))]
    seconds = {
        "10,000 pods, 50 pools of 1,000 nodes": judging_seconds(
            documents(WORKLOADS, NODES_PER_POOL)
        ),
        "10,000 pods, 50,000 Nodes": judging_seconds([*fleet, *plain], runs=1),
        f"10,000 pods, {MOST_NODES:,} Nodes": judging_seconds(
            [*nodes(MOST_NODES // POOLS), *plain], runs=1
        ),
        "10,000 pods spread over zones, 50,000 Nodes": judging_seconds([*fleet, *spread], runs=1),
        "10,000 pods apart from each other, 50,000 Nodes": judging_seconds(
            [*fleet, *apart], runs=1
        ),
        "50 workloads of every kind, 5,000 Nodes": judging_seconds([*nodes(100), *mixed], runs=1),
        "20,000 Jobs, 1,000 Nodes": judging_seconds([*nodes(20), *map(job, range(20_000))], runs=1),
        "20,000 Jobs of 50 kinds, 1,000 Nodes": judging_seconds(
            [*nodes(20), *map(run, range(20_000))], runs=1
        ),
        "2,000 Deployments spread over zones, 1,000 Nodes": judging_seconds(
            [*nodes(20), *(spread_over(ZONE, workload(index)) for index in range(2000))], runs=1
        ),
        "200 gangs in a queue, a topology of 1,000 Nodes": judging_seconds(
            topology.documents(nodes=1000, gangs=200)
        ),
        "command line, one workload": statistics.median(start_up() for _ in range(RUNS)),
    }
    return {
        "runs": RUNS,
        "seconds_of_cpu": {name: round(each, 3) for name, each in seconds.items()},
        "5,000 Nodes as kubectl prints them": {form: reading(form) for form in ("yaml", "json")},
        "small Jobs as a YAML stream": {size: streaming(count) for size, count in STREAMS.items()},
    }


def documents(workloads: int, nodes_per_pool: int) -> list[Manifest]:
    """A number of pools of a number of nodes each, and a number of workloads."""
    return [
        *(pool(index, nodes_per_pool) for index in range(POOLS)),
        *map(workload, range(workloads)),
    ]


def judging_seconds(documents: list[Manifest], runs: int = RUNS) -> float:
    """The median of the CPU time in which documents are judged."""
    times: list[float] = []
    for _ in range(runs):
        started = time.process_time()
        verdicts = judge(documents)
        times.append(time.process_time() - started)
        assert verdicts.workloads, "nothing was judged"
    return statistics.median(times)


def reading(form: str) -> dict[str, float]:
    """Return CPU time and memory of the command line for the nodes of a live cluster."""
    items = [printed(index, each) for index, each in enumerate([*nodes(100), workload(0)])]
    found = {"apiVersion": "v1", "items": items, "kind": "List"}
    with tempfile.NamedTemporaryFile("w", suffix=f".{form}") as file:
        json.dump(found, file, indent=4) if form == "json" else yaml.dump(
            found, file, Dumper=_Dumper
        )
        file.flush()
        return measured(Path(file.name))


def streaming(jobs: int) -> dict[str, float]:
    """Return the same for a stream of small Jobs with different names, labels and arguments."""
    texts = [yaml.dump(run(index), Dumper=_Dumper) for index in range(50)]
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(yaml.dump(pool(0, 1000), Dumper=_Dumper))
        for index in range(jobs):
            own = (
                texts[index % 50]
                .replace(f"'{index % 50}'", f"'{index}'")
                .replace(f"run-{index % 50}\n", f"run-{index}\n")
            )
            file.write(f"---\n{own}")
        file.flush()
        return measured(Path(file.name))


def measured(file: Path) -> dict[str, float]:
    """The size of a file, and the CPU time and memory that the command line takes for it."""
    command = [sys.executable, "-c", _MEASURED, str(file)]
    answer = json.loads(
        subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
    )
    return {"megabytes": round(file.stat().st_size / 1e6, 1), **answer}


_MEASURED = """
import json, resource, sys
from ml_foundations.planning.__main__ import main
main(sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_SELF)
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]
seconds = round(used.ru_utime + used.ru_stime, 2)
print(json.dumps({"seconds_of_cpu": seconds, "megabytes_at_most": int(peak) // 1000}))
"""


class _Dumper(yaml.CSafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def start_up() -> float:
    """The CPU time of the command line, of which next to nothing is judging."""
    command = [sys.executable, "-m", "ml_foundations.planning"]
    given = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents(1, 1)}).encode()
    before = os.times()
    subprocess.run(command, input=given, check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    return (
        after.children_user + after.children_system - before.children_user - before.children_system
    )


def pool(index: int, nodes: int) -> Manifest:
    has_gpus = index % 2 == 0
    allocatable = {"cpu": "95", "memory": "1300Gi", "pods": "110"} | (
        {GPU: "8"} if has_gpus else {}
    )
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


def nodes(per_pool: int) -> list[Manifest]:
    """The Nodes of a live cluster: each with its name, host name, zone and number."""
    found: list[Manifest] = []
    for index in range(POOLS):
        template = pool(index, 1)
        for number in range(per_pool):
            name = f"pool-{index}-{number:05d}"
            own = {HOSTNAME: name, ZONE: "abc"[number % 3], "number": str(number)}
            uid = f"{index:08x}-0000-4000-8000-{number:012x}"
            metadata = {
                "name": name,
                "uid": uid,
                "labels": {**template["metadata"]["labels"], **own},
            }
            found.append({**template, "metadata": metadata})
    return found


def printed(index: int, item: Manifest) -> Manifest:
    """An object with what else kubectl prints of a node: about 7 KB."""
    images = [
        {"names": [f"images.example/{number}@sha256:{number:064x}"], "sizeBytes": number}
        for number in range(30)
    ]
    conditions = [
        {
            "type": f"Condition{number}",
            "status": "False",
            "reason": "AsItShouldBe",
            "message": "The kubelet says so.",
        }
        | {
            "lastHeartbeatTime": "2026-01-01T00:00:00Z",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        for number in range(12)
    ]
    status = {**item.get("status", {}), "images": images, "conditions": conditions}
    return {**item, "metadata": {"uid": f"a{index:031x}", **item["metadata"]}, "status": status}


def spread_over(key: str, item: Manifest) -> Manifest:
    constraint = {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": own(item),
    }
    item["spec"]["template"]["spec"]["topologySpreadConstraints"] = [constraint]
    return item


def kept_apart(item: Manifest) -> Manifest:
    term = {"topologyKey": HOSTNAME, "labelSelector": own(item)}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    item["spec"]["template"]["spec"]["affinity"] = affinity
    return item


def own(item: Manifest) -> Manifest:
    return {"matchLabels": item["spec"]["template"]["metadata"]["labels"]}


def daemon_set(index: int) -> Manifest:
    container = {"name": "agent", "resources": {"requests": {"cpu": "100m", "memory": "100Mi"}}}
    template = {"metadata": {"labels": {"app": f"agent-{index}"}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": f"agent-{index}", "namespace": "agents"},
        "spec": {
            "selector": {"matchLabels": {"app": f"agent-{index}"}},
            "template": {
                **template,
                "spec": {"containers": [container], "tolerations": [{"operator": "Exists"}]},
            },
        },
    }


def job(index: int) -> Manifest:
    like = workload(index)
    template = {**like["spec"]["template"]}
    template["spec"] = {**template["spec"], "restartPolicy": "Never"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": like["metadata"],
        "spec": {"template": template},
    }


def run(index: int) -> Manifest:
    """Return one of fifty kinds of Jobs, with its own name, label and argument."""
    like = job(index % 50)
    [container] = like["spec"]["template"]["spec"]["containers"]
    container["args"] = ["--seed", str(index)]
    like["spec"]["template"]["metadata"] = {"labels": {"run": str(index)}}
    like["metadata"]["name"] = f"run-{index}"
    return like


def workload(index: int) -> Manifest:
    draw = random.Random(index)
    limits: Manifest = {"cpu": str(draw.randint(1, 8)), "memory": f"{draw.randint(1, 64)}Gi"}
    if index % 2:
        limits[GPU] = str(draw.choice([1, 2, 4, 8]))
    container = {"name": "main", "image": "example.com/main", "resources": {"limits": limits}}
    selector = {"size": str(draw.randint(0, 4))} if index % 3 else {}
    kind = draw.choice(["Deployment", "StatefulSet", "ReplicaSet"])
    labels = {"app": f"workload-{index}"}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": f"workload-{index}", "namespace": f"team-{index % 20}"},
        "spec": {
            "replicas": PODS_PER_WORKLOAD,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [container], "nodeSelector": selector},
            },
        },
    }


if __name__ == "__main__":
    main()
