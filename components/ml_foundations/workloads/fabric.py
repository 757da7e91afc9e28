"""What the pods of a workload get for the network between the GPUs of several nodes."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ml_foundations.catalog.fabric_pods import (
    NCCL_PAIRS,
    WITHOUT_PLUGIN,
    FabricDaemon,
    FabricPod,
    fabric_pods,
    image_tag,
)
from ml_foundations.catalog.gpu_fabrics import by_address_only
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.merging import without_none
from ml_foundations.kubernetes.objects import Manifest, api_object
from ml_foundations.kubernetes.selectors import devices
from ml_foundations.workloads.gpu_fabric import GpuFabric

ROOT = 0
_SEVERAL = 2
INTERFACES_CLAIM = "interfaces"
"""The name by which a pod and its container know their claim of interfaces."""
_DAEMON_RESOURCES = {
    "requests": {"cpu": "2", "memory": "4Gi"},
    "limits": {"cpu": "32", "memory": "32Gi"},
}
"""Google's manifests set none, and the default limit of a namespace, such as 500m, would slow the
daemon down. No source has what it uses, so the limits are far above it."""


@dataclass(frozen=True)
class PodFabric:
    """The parts of a pod for the network between GPUs; without fields, none."""

    annotations: Mapping[str, str] = field(default_factory=dict[str, str])
    daemons: Sequence[dict[str, Any]] = ()
    """The daemon, as a sidecar: a Job ends although it still runs."""
    volumes: Sequence[dict[str, Any]] = ()
    mounts: Sequence[dict[str, Any]] = ()
    env: Mapping[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    capabilities: Sequence[str] = ()
    script: str | None = None
    """The script that the command needs first."""
    claimed: int = 0
    """Interfaces that the pod claims."""
    unrequested: Sequence[str] = ()
    """Resources that GKE would add to the pod's requests, and that no node has."""

    @property
    def is_used(self) -> bool:
        """Return whether the pod has anything for such a network."""
        return bool(self.mounts)

    def command(self, command: Sequence[str] | None) -> list[str] | None:
        """Return a command that first reads the script, and fails on a node without it.

        Otherwise NCCL would use the slow network, and nothing would report it.
        """
        if command is None or self.script is None:
            return None if command is None else [*command]
        missing = f"{self.script} is missing: the NCCL plugin is not installed on this node"
        check = f'[ -r {self.script} ] || {{ echo "{missing}" >&2; exit 1; }}'
        # The words after the text are $0 and the arguments, so nothing is quoted twice.
        return ["bash", "-c", f'{check}; . {self.script}; exec "$@"', "bash", *command]


def without_fabric(fabric: GpuFabric | None, gpus: int) -> PodFabric:
    """Return what a pod needs that does not use the network of its nodes.

    The nodes have NCCL's plugin nevertheless, which NCCL finds if it connects several GPUs.
    """
    if fabric is None or not fabric.host_libraries or gpus < _SEVERAL:
        return PodFabric()
    return PodFabric(env={name: {"value": value} for name, value in WITHOUT_PLUGIN.items()})


def pod_fabric(fabric: GpuFabric) -> PodFabric:
    """Return what a pod needs that uses all GPUs of a node, and the network between the nodes."""
    needs = fabric_pods()[fabric.kind]
    volumes: list[dict[str, Any]] = []
    for name, folder in needs.volumes.items():
        # A folder of the node must exist, so that the pod waits for the installer.
        of_node = {"hostPath": {"path": folder, "type": "Directory"}}
        source: Mapping[str, Any] = {"emptyDir": {}} if folder is None else of_node
        volumes.append({"name": _volume_name(name), **source})
    # Nodes may advertise these networks by NAME.IP alone.
    unrequested = fabric.networks if by_address_only(fabric.kind) else ()
    return PodFabric(
        annotations=_annotations(fabric, needs),
        daemons=[_daemon(needs.daemon, fabric.kind)] if needs.daemon else [],
        volumes=volumes,
        mounts=_mounts(needs.mounts),
        env={name: {"value": value} for name, value in needs.env.items()},
        capabilities=needs.capabilities,
        script=needs.script,
        claimed=0 if fabric.networks else fabric.gpus_per_node,
        unrequested=[f"{labels.GKE_NETWORKS}{name}" for name in unrequested],
    )


def interfaces_claim(metadata: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Return a ResourceClaimTemplate for the RDMA interfaces of a node, one for each GPU.

    A count leaves a pod Pending if its node lacks an interface. With allocationMode All it would
    start, and all pods would wait for its slowest GPU. Kueue does not know All (pkg/dra).
    """
    request = {"name": "rdma", "exactly": devices(labels.RDMA_DEVICE_CLASS, count, [])}
    spec = {"spec": {"devices": {"requests": [request]}}}
    return api_object("resource.k8s.io/v1", "ResourceClaimTemplate", metadata, spec=spec)


def daemon_errors(
    fabric: PodFabric, kind: str, containers: Sequence[Manifest], overrides: Sequence[Manifest]
) -> Iterator[tuple[str, str]]:
    """Yield a daemon that the user adds, or whose version differs from the plugin's.

    ``containers`` are the user's containers, ``overrides`` the fields of pod_overrides.
    """
    names = [daemon["name"] for daemon in fabric.daemons]
    for container in containers:
        if container.get("name") in names:
            fix = "leave it out, or change it in pod_overrides.initContainers"
            yield "init_containers", f"has {names[0]}, which the component adds; {fix}"
    pair = NCCL_PAIRS.get(kind)
    for container in overrides:
        image = container.get("image")
        if pair is None or container["name"] not in names or not isinstance(image, str):
            continue
        if image_tag(image) != image_tag(pair.daemon):
            reason = f"belongs to another plugin than the installed {image_tag(pair.plugin)}"
            fix = f"set the tag {image_tag(pair.daemon)}, or leave the image out"
            yield "pod_overrides.initContainers", f"{image} {reason}; {fix}"


def _annotations(fabric: GpuFabric, needs: FabricPod) -> dict[str, str]:
    """Return the annotations for the interfaces, and for the devices of the daemon."""
    annotations: dict[str, str] = {}
    if fabric.networks:
        networks = ["default", *fabric.networks]
        pairs = [
            {"interfaceName": f"eth{i}", "network": network} for i, network in enumerate(networks)
        ]
        annotations[labels.GKE_DEFAULT_INTERFACE] = "eth0"
        annotations[labels.GKE_INTERFACES] = json.dumps(pairs)
    if needs.daemon is not None:
        gpus = [f"/dev/nvidia{index}" for index in range(fabric.gpus_per_node)]
        paths = "".join(f"- path: {path}\n" for path in (*gpus, *needs.devices))
        annotations[f"{labels.GKE_DEVICES_OF}{needs.daemon.name}"] = paths
    return annotations


def _daemon(daemon: FabricDaemon, kind: str) -> dict[str, Any]:
    """Return the daemon. It is root, because only root's added capabilities have an effect."""
    security = {
        "runAsUser": ROOT,
        "runAsNonRoot": False,
        "allowPrivilegeEscalation": False,
        "capabilities": {"add": daemon.capabilities},
    }
    container = {
        "name": daemon.name,
        "image": NCCL_PAIRS[kind].daemon,
        "restartPolicy": "Always",
        "command": daemon.command,
        "args": daemon.args,
        "env": [{"name": name, "value": value} for name, value in daemon.env.items()],
        "startupProbe": daemon.ready,
        "resources": _DAEMON_RESOURCES,
        "securityContext": security,
        "volumeMounts": _mounts(daemon.mounts),
    }
    return without_none(container)


def _mounts(paths: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"name": _volume_name(name), "mountPath": path} for name, path in paths.items()]


def _volume_name(name: str) -> str:
    return f"fabric-{name}"
