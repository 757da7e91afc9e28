"""The project's own replica with a node without GPUs, four of 8 H100s in two blocks, and the namespace red."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kubernetes import utils
from ml_foundations.rehearsal.tools.toolchain import Tools

from tests.factories import cluster_wide
from tests.support.cluster import Cluster
from tests.support.own_replica import own_replica
from tests.support.project import fake_node

H100_NODE = {
    "cloud.google.com/gke-nodepool": "h100",
    "cloud.google.com/gke-accelerator": "nvidia-h100-80gb",
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
}
H100_FLAVOR = {
    "name": "h100",
    "gpu": "H100",
    "node_selector": {"cloud.google.com/gke-nodepool": "h100"},
}
"""The flavor of a queue on these nodes."""


@contextmanager
def h100_replica(tools: Tools, root: Path) -> Iterator[Cluster]:
    """The programs bring the controllers, by their charts."""
    with own_replica(tools, root) as cluster:
        for index in range(4):
            block = {"cloud.google.com/gce-topology-block": f"block-{index % 2}"}
            node = fake_node(f"h100-{index}", H100_NODE | block, gpus=8)
            utils.create_from_dict(cluster.api, node)
        utils.create_from_dict(cluster.api, fake_node("cpu-0", {}))
        utils.create_from_dict(cluster.api, cluster_wide("v1", "Namespace", "red"))
        yield cluster
