"""The project's own replica with a node without GPUs, four of 8 H100s in two blocks, and the namespace red."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kubernetes import config, utils
from ml_foundations.rehearsal.control_plane import controllers, kwok
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.tools.toolchain import Tools

from tests.support.cluster import Cluster
from tests.support.project import fake_node

H100_NODE = {
    "cloud.google.com/gke-nodepool": "h100",
    "cloud.google.com/gke-accelerator": "nvidia-h100-80gb",
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
}


@contextmanager
def h100_replica(tools: Tools, root: Path) -> Iterator[Cluster]:
    """The programs bring the controllers, by their charts."""
    rehearsal = Rehearsal.of("t", root)
    rehearsal.make()
    try:
        kwok.start(rehearsal, tools)
        cluster = Cluster(
            rehearsal,
            rehearsal.kubeconfig,
            config.new_client_from_config(str(rehearsal.kubeconfig)),
        )
        for index in range(4):
            block = {"cloud.google.com/gce-topology-block": f"block-{index % 2}"}
            node = fake_node(f"h100-{index}", H100_NODE | block, gpus=8)
            utils.create_from_dict(cluster.api, node)
        utils.create_from_dict(cluster.api, fake_node("cpu-0", {}))
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "red"}}
        utils.create_from_dict(cluster.api, namespace)
        yield cluster
    finally:
        controllers.stop(rehearsal)
        kwok.delete(rehearsal)
