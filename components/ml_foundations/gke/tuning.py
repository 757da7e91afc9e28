"""Settings of the kubelet and of the Linux kernel on a pool's nodes."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import override

from ml_foundations.catalog.pools import CRITICAL_GRACE, SHUTDOWN_GRACE
from ml_foundations.component.spec import Spec

_HUGEPAGES = {"2Mi": "hugepageSize2m", "1Gi": "hugepageSize1g"}
"""The GKE API's names of sizes."""


class Kubelet(Spec):
    """Settings of the kubelet of every node."""

    cpu_manager: Literal["none", "static"] | None = None
    """none or static: whether a container with whole CPUs has them for itself; by default GKE's own, none."""
    memory_manager: Literal["None", "Static"] | None = None
    """None or Static: whether the memory of guaranteed pods is from one NUMA node; by default None."""
    topology_manager: Literal["none", "best-effort", "restricted", "single-numa-node"] | None = None
    """none, best-effort, restricted or single-numa-node: whether CPUs, GPUs and memory of a pod are close together."""
    pod_pids_limit: int | None = Field(default=None, ge=1024, le=4194304)
    """The most processes of a pod, 1024 to 4194304; by default GKE's own."""
    shutdown_grace_period_seconds: Literal[30, 120] | None = None
    """Seconds from the moment in which Google takes a Spot node back to its end, 30 or 120; by default 30. Spot pools
    only, from GKE 1.35.0-gke.1171000 on. The last of them are for critical pods."""
    shutdown_grace_period_critical_pods_seconds: int | None = Field(default=None, ge=0, le=120)
    """How many of these seconds are for critical pods, at their end; by default 15."""
    parallel_image_pulls: int | None = Field(default=None, ge=2, le=5)
    """How many images a node pulls at once, 2 to 5; by default GKE's own."""

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        whole, critical = self.shutdown_grace_period_seconds, self.shutdown_grace_period_critical_pods_seconds
        if critical is not None and (whole is None or critical >= whole):
            reason = f"is {critical}; it must be less than shutdown_grace_period_seconds ({whole})"
            yield "shutdown_grace_period_critical_pods_seconds", reason


class Linux(Spec):
    """Settings of the Linux kernel of every node."""

    sysctls: dict[str, str] = {}
    """Kernel parameters, such as net.core.rmem_max; GKE has a list of those that it takes."""
    hugepages: dict[Literal["2Mi", "1Gi"], Annotated[int, Field(ge=0)]] = {}
    """How many huge pages to set aside, by their size: 2Mi or 1Gi."""


def tuning_arguments(kubelet: Kubelet | None, linux: Linux | None) -> dict[str, Any]:
    """The part of a pool's node_config about kubelet and kernel.

    The kubelet's port that anybody may read is shut (CIS GKE Benchmark, 4.2.4).
    """
    kubelet, kernel = kubelet or Kubelet(), linux or Linux()
    settings = {
        "insecureKubeletReadonlyPortEnabled": "FALSE",
        "cpuManagerPolicy": kubelet.cpu_manager,
        "memoryManager": {"policy": kubelet.memory_manager} if kubelet.memory_manager else None,
        "topologyManager": {"policy": kubelet.topology_manager} if kubelet.topology_manager else None,
        "podPidsLimit": kubelet.pod_pids_limit,
        SHUTDOWN_GRACE: kubelet.shutdown_grace_period_seconds,
        CRITICAL_GRACE: kubelet.shutdown_grace_period_critical_pods_seconds,
        "maxParallelImagePulls": kubelet.parallel_image_pulls,
    }
    pages = {_HUGEPAGES[size]: count for size, count in kernel.hugepages.items()}
    linux_config = {"sysctls": kernel.sysctls or None, "hugepagesConfig": pages or None}
    return {"kubeletConfig": settings, "linuxNodeConfig": linux_config if linux else None}
