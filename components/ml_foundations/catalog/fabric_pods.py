"""Facts about pods that use the network between the GPUs of several nodes: fabric_pods.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ml_foundations.catalog import versions
from ml_foundations.catalog.tables import rows
from ml_foundations.kubernetes.packaged_yaml import packaged_yaml


class FabricDaemon(NamedTuple):
    """The container next to the workload's that moves its data."""

    name: str
    """The name of the container, which the annotation of its devices has."""
    command: list[str]
    """Its command."""
    args: list[str]
    """The command's arguments."""
    env: dict[str, str]
    """Its environment variables."""
    capabilities: list[str]
    """The capabilities that it has in addition to the runtime's."""
    mounts: dict[str, str]
    """Its mount paths, by volume."""
    ready: dict[str, Any] | None = None
    """The startup probe; None if the daemon does not show when it is ready."""


class FabricTest(NamedTuple):
    """The benchmark in Google's image for a kind of fabric."""

    folder: str
    """The folder of the NCCL tests."""
    ssh: str
    """The command that starts sshd, on port 222."""
    size: str
    """The largest message of Google's test, for which the bandwidth is known."""
    cpus: str | None = None
    """The CPUs that it runs on."""


class FabricPod(NamedTuple):
    """The needs of a pod for a kind of fabric."""

    volumes: dict[str, str | None]
    """Volumes: the folder of the node, or None for an empty one."""
    mounts: dict[str, str]
    """Mount paths of the workload's container, by volume."""
    env: dict[str, str]
    """Its environment variables."""
    test: FabricTest
    """The benchmark of the fabric."""
    capabilities: list[str] = []
    """The capabilities that it has in addition to the runtime's."""
    devices: list[str] = []
    """Devices of the daemon besides the GPUs."""
    script: str | None = None
    """The script for bash that sets more environment variables."""
    daemon: FabricDaemon | None = None
    """The daemon."""


class NcclPair(NamedTuple):
    """The images of a plugin of NCCL and of its daemon, which are released together."""

    plugin: str
    daemon: str


NCCL_PAIRS: Mapping[str, NcclPair] = {
    "tcpx": NcclPair(versions.TCPX_PLUGIN_IMAGE, versions.TCPX_DAEMON_IMAGE),
    "tcpxo": NcclPair(versions.TCPXO_PLUGIN_IMAGE, versions.TCPXO_DAEMON_IMAGE),
}
"""Plugin and daemon by kind of fabric. Others are not supported (container-engine-accelerators,
gpudirect-tcpxo/README.md)."""

WITHOUT_PLUGIN: Mapping[str, str] = {"NCCL_NET_PLUGIN": "none", "NCCL_TUNER_PLUGIN": "none"}
"""What keeps NCCL from the plugin of its node.

The plugin is in /usr/local/nvidia/lib64, where the images of vLLM and NGC look for libraries.
Without its settings, NCCL fails at the start (llm-d, pull request 1282, and
guides/recipes/modelserver/components/disable-gke-nccl-tuner-patch). Older releases of NCCL load the
plugin if NCCL_NET_PLUGIN is empty, so it is none (NVIDIA/nccl, src/plugin/net.cc)."""
CROSS_RAIL = {"UCX_IB_ROCE_REACHABILITY_MODE": "all"}
"""What lets UCX, and so NIXL, connect interfaces of different subnetworks (llm-d's overlay for GKE
of wide-ep-lws for GLM-5.2)."""

FABRIC_DAEMON = "tcpgpudmarxd-dev"
"""The image of the daemons, without registry and tag."""
NCCL_TEST_IMAGES: Mapping[str, str] = {
    "tcpx": versions.TCPX_PLUGIN_IMAGE,
    "tcpxo": versions.TCPXO_PLUGIN_IMAGE,
    "rdma": versions.GIB_TEST_IMAGE,
}
"""Images of the benchmark, by kind of fabric."""


NCCL_BANDWIDTHS = {row["gpu"]: float(row["bus_bandwidth"]) for row in rows("nccl_bandwidths.csv")}
"""The known bus bandwidth of all_gather_perf between two nodes in GB/s, by accelerator type."""


@cache
def fabric_pods() -> Mapping[str, FabricPod]:
    """Return what a pod needs, by kind of fabric."""
    text = Path(__file__).with_name("fabric_pods.yaml").read_text()
    pods: dict[str, FabricPod] = {}
    for kind, fields in packaged_yaml(text).items():
        daemon = fields.pop("daemon", None)
        test = FabricTest(**fields.pop("test"))
        of_daemon = FabricDaemon(**daemon) if daemon else None
        pods[kind] = FabricPod(**fields, test=test, daemon=of_daemon)
    return pods


def image_tag(image: str) -> str:
    """Return the tag of an image, without its digest."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[2]
