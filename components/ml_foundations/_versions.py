"""The one home of the versions of charts and images that the components deploy."""

from typing import NamedTuple


class Chart(NamedTuple):
    """A Helm chart, pinned."""

    name: str
    version: str
    repo: str


GPU_OPERATOR = Chart("gpu-operator", "v26.7.0", "https://helm.ngc.nvidia.com/nvidia")
NFS_PROVISIONER = Chart(
    "nfs-subdir-external-provisioner", "4.0.18", "https://kubernetes-sigs.github.io/nfs-subdir-external-provisioner/"
)
