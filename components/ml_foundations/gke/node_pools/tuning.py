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
    """The CPU manager policy: none, or static, which gives whole CPUs to one container. By default,
    GKE uses none."""
    memory_manager: Literal["None", "Static"] | None = None
    """The memory manager policy: None, or Static, which places guaranteed pods on one NUMA node. By
    default, GKE uses None."""
    topology_manager: Literal["none", "best-effort", "restricted", "single-numa-node"] | None = None
    """How close the CPUs, GPUs and memory of a pod are: none, best-effort, restricted or
    single-numa-node. By default, GKE decides."""
    pod_pids_limit: int | None = Field(default=None, ge=1024, le=4194304)
    """The most processes of a pod, 1024 to 4194304. By default, GKE decides."""
    shutdown_grace_period_seconds: Literal[30, 120] | None = None
    """Seconds until a Spot node ends after Google reclaims it, 30 or 120. The default is 30. Only
    for Spot pools, from GKE 1.35.0-gke.1171000 on. The last of these seconds are for critical
    pods."""
    shutdown_grace_period_critical_pods_seconds: int | None = Field(default=None, ge=0, le=120)
    """The number of these seconds that are for critical pods, at the end. The default is 15."""
    parallel_image_pulls: int | None = Field(default=None, ge=2, le=5)
    """The number of images that a node pulls at once, 2 to 5. By default, GKE decides."""

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        if self.memory_manager == "Static" and self.topology_manager in (None, "none"):
            reason = "is Static, which needs a topology_manager: restricted or single-numa-node"
            yield "memory_manager", reason
        whole = self.shutdown_grace_period_seconds
        critical = self.shutdown_grace_period_critical_pods_seconds
        if critical is not None and (whole is None or critical >= whole):
            reason = f"is {critical}; it must be less than shutdown_grace_period_seconds ({whole})"
            yield "shutdown_grace_period_critical_pods_seconds", reason


class Linux(Spec):
    """Settings of the Linux kernel of every node."""

    sysctls: dict[str, str] = {}
    """Kernel parameters, such as net.core.rmem_max. GKE accepts only the parameters in its list."""
    hugepages: dict[Literal["2Mi", "1Gi"], Annotated[int, Field(ge=0)]] = {}
    """The number of huge pages to reserve, by size: 2Mi or 1Gi."""


def tuning_arguments(kubelet: Kubelet | None, linux: Linux | None) -> dict[str, Any]:
    """Return the part of a pool's node_config about kubelet and kernel."""
    kubelet = kubelet or Kubelet()
    kernel = linux or Linux()
    memory = kubelet.memory_manager
    topology = kubelet.topology_manager
    settings = {
        "insecureKubeletReadonlyPortEnabled": "FALSE",  # CIS GKE Benchmark, 4.2.4
        "cpuManagerPolicy": kubelet.cpu_manager,
        "memoryManager": {"policy": memory} if memory else None,
        "topologyManager": {"policy": topology} if topology else None,
        "podPidsLimit": kubelet.pod_pids_limit,
        SHUTDOWN_GRACE: kubelet.shutdown_grace_period_seconds,
        CRITICAL_GRACE: kubelet.shutdown_grace_period_critical_pods_seconds,
        "maxParallelImagePulls": kubelet.parallel_image_pulls,
    }
    pages = {_HUGEPAGES[size]: count for size, count in kernel.hugepages.items()}
    linux_config = {"sysctls": kernel.sysctls or None, "hugepagesConfig": pages or None}
    return {"kubeletConfig": settings, "linuxNodeConfig": linux_config if linux else None}
