"""Settings of the kubelet and of the Linux kernel on a pool's nodes."""

from collections.abc import Iterator
from typing import Literal, NotRequired, TypedDict

import pulumi_gcp as gcp
from pydantic import Field
from typing_extensions import override

from ml_foundations.component.spec import Spec


class KubeletArgs(TypedDict):
    """Settings of the kubelet of every node."""

    cpu_manager: NotRequired[str]
    """none or static: whether a container with whole CPUs has them for itself; by default GKE's own, none."""
    memory_manager: NotRequired[str]
    """None or Static: whether the memory of guaranteed pods is from one NUMA node; by default None."""
    topology_manager: NotRequired[str]
    """none, best-effort, restricted or single-numa-node: whether CPUs, GPUs and memory of a pod are close together."""
    pod_pids_limit: NotRequired[int]
    """The most processes of a pod, 1024 to 4194304; by default GKE's own."""
    parallel_image_pulls: NotRequired[int]
    """How many images a node pulls at once, 2 to 5; by default GKE's own."""


class Kubelet(Spec):
    """A checked KubeletArgs."""

    cpu_manager: Literal["none", "static"] | None = None
    memory_manager: Literal["None", "Static"] | None = None
    topology_manager: Literal["none", "best-effort", "restricted", "single-numa-node"] | None = None
    pod_pids_limit: int | None = Field(default=None, ge=1024, le=4194304)
    parallel_image_pulls: int | None = Field(default=None, ge=2, le=5)

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        if self.memory_manager == "Static" and self.topology_manager in (None, "none"):
            yield "memory_manager", "is Static, which needs a topology_manager: restricted or single-numa-node"


class LinuxArgs(TypedDict):
    """Settings of the Linux kernel of every node."""

    sysctls: NotRequired[dict[str, str]]
    """Kernel parameters, such as net.core.rmem_max; GKE has a list of those that it takes."""
    hugepages_2m: NotRequired[int]
    """How many huge pages of 2 MiB to set aside."""
    hugepages_1g: NotRequired[int]
    """How many huge pages of 1 GiB to set aside."""


class Linux(Spec):
    """A checked LinuxArgs."""

    sysctls: dict[str, str] = {}
    hugepages_2m: int | None = Field(default=None, ge=0)
    hugepages_1g: int | None = Field(default=None, ge=0)


def kubelet_arguments(kubelet: Kubelet | None) -> gcp.container.NodePoolNodeConfigKubeletConfigArgsDict:
    """The kubelet_config of a pool. The port that anybody may read is shut (CIS GKE Benchmark, 4.2.4)."""
    kubelet = kubelet or Kubelet()
    return {
        "insecure_kubelet_readonly_port_enabled": "FALSE",
        "cpu_manager_policy": kubelet.cpu_manager,
        "memory_manager": {"policy": kubelet.memory_manager} if kubelet.memory_manager else None,
        "topology_manager": {"policy": kubelet.topology_manager} if kubelet.topology_manager else None,
        "pod_pids_limit": kubelet.pod_pids_limit,
        "max_parallel_image_pulls": kubelet.parallel_image_pulls,
    }


def linux_arguments(linux: Linux | None) -> gcp.container.NodePoolNodeConfigLinuxNodeConfigArgsDict | None:
    """The linux_node_config of a pool."""
    if linux is None:
        return None
    pages = linux.hugepages_2m is not None or linux.hugepages_1g is not None
    return {
        "sysctls": linux.sysctls or None,
        "hugepages_config": {"hugepage_size2m": linux.hugepages_2m, "hugepage_size1g": linux.hugepages_1g}
        if pages
        else None,
    }
