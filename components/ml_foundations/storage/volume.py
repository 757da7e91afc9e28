"""A claim of storage."""

from typing import Any, Literal, NotRequired, TypedDict

import pulumi
import pulumi_kubernetes as k8s

from ml_foundations._manifest import arguments, child_options
from ml_foundations._spec import Name, Quantity, Spec, check

AccessMode = Literal["ReadWriteOnce", "ReadWriteOncePod", "ReadOnlyMany", "ReadWriteMany"]


class VolumeArgs(TypedDict):
    """Arguments of a Volume."""

    namespace: str
    """The namespace of the claim and of the pods that mount it."""
    size: str
    """How much, such as 500Gi. It can grow later, never shrink."""
    storage_class: str
    """The storage class. For GPU workloads: one whose disks attach to their machines."""
    claim_name: NotRequired[str]
    """The name of the claim; default is the component's."""
    access_mode: NotRequired[str]
    """ReadWriteOnce, ReadWriteOncePod, ReadOnlyMany or ReadWriteMany; default ReadWriteOnce."""
    data: NotRequired[bool]
    """Whether it holds data that must outlive the stack: protected, and kept when it leaves. Default true."""


class VolumeSettings(Spec):
    """What a stack file says about a volume."""

    size: Quantity
    storage_class: Name
    access_mode: AccessMode = "ReadWriteOnce"
    data: bool = True


class _VolumeSpec(VolumeSettings):
    namespace: Name
    claim_name: Name


class Volume(pulumi.ComponentResource):
    """A PersistentVolumeClaim. What holds data is protected and is never deleted by an update.

    Give it a kubernetes provider in its options.
    """

    claim_name: str
    """The claim's name; workloads take it."""
    size: str
    """The size that was asked for."""

    def __init__(self, name: str, args: VolumeArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the claim."""
        spec = check(_VolumeSpec, f"Volume {name}", {"claim_name": name, **args})
        super().__init__("ml-foundations:index:Volume", name, {}, opts)
        k8s.core.v1.PersistentVolumeClaim(
            f"{name}-claim",
            **arguments(claim_manifest(spec)),
            opts=child_options(self, protect=spec.data, retain_on_delete=spec.data),
        )
        self.claim_name = spec.claim_name
        self.size = spec.size
        self.register_outputs({"claim_name": self.claim_name, "size": self.size})


def claim_manifest(spec: _VolumeSpec) -> dict[str, Any]:
    """The PersistentVolumeClaim."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": spec.claim_name, "namespace": spec.namespace},
        "spec": {
            "accessModes": [spec.access_mode],
            "storageClassName": spec.storage_class,
            "resources": {"requests": {"storage": spec.size}},
        },
    }
