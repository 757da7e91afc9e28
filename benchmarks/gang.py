"""Measure a rehearsal of many nodes with networks between GPUs, and one gang on half of them.

    python -m benchmarks.gang [NODES]

Prints the seconds of the first ``up``, and of a second one without a change. See README.md in this
folder.
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.fleet import rehearse

NODES = 256
PROGRAM = """
from ml_foundations import (
    CpuNodePool, DistributedTraining, GkeCluster, GpuNodePool, JobSetController, TeamNamespace,
    TrainingQueue,
)

NODES = {nodes}
cluster = GkeCluster("ml", location="us-east4", multi_networking=True, deletion_protection=False)
CpuNodePool("system", cluster=cluster, machine_type="n2-standard-8", min_nodes=1, max_nodes=1)
mega = GpuNodePool(
    "mega", cluster=cluster, zones=["us-east4-b"], machine_type="a3-megagpu-8g", min_nodes=NODES,
    max_nodes=NODES, reservation="blocks", gpu_network="auto", deletion_protection=False,
)
JobSetController("jobsets", cluster=cluster)
cpu, memory = str(NODES * 200), f"{{NODES * 1700}}Gi"
team = TeamNamespace(
    "team", cluster=cluster, gpus=NODES * 8, cpu=cpu, memory=memory, storage="1Ti",
    pods=2 * NODES, pod_security="privileged",
)
queue = TrainingQueue(
    "queue", cluster=cluster, topology=["block", "sub-block", "host", "hostname"],
    flavors=[{{"name": "mega", "pool": mega}}],
    teams=[{{"team": team, "cpu": cpu, "memory": memory, "gpus": {{"mega": NODES * 8}}}}],
)
DistributedTraining(
    "gang", team=team, pool=mega, queue=queue.queue_name, topology="required:block", jobset=True,
    nodes=NODES // 2, gpus=8, cpu="190", memory="1600Gi", image="image",
    command=["torchrun", "train.py"],
)
"""


def main() -> None:
    nodes = int(sys.argv[1]) if sys.argv[1:] else NODES
    print(json.dumps({f"{nodes} nodes of A3 Mega, a gang on half of them": measure(nodes)}))


def measure(nodes: int = NODES) -> dict[str, Any]:
    """Return the seconds of ``up`` from nothing, and again."""
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder)
        (project / "Pulumi.yaml").write_text("name: gang\nruntime: python\n")
        (project / "Pulumi.dev.yaml").write_text("config: {gcp:project: my-project-dev}\n")
        (project / "__main__.py").write_text(PROGRAM.format(nodes=nodes))
        try:
            return {name: seconds_of(project, "up") for name in ("up", "up again")}
        finally:
            rehearse(project, "down")


def seconds_of(project: Path, command: str) -> float:
    started = time.perf_counter()
    rehearse(project, command)
    return round(time.perf_counter() - started, 1)


if __name__ == "__main__":
    main()
