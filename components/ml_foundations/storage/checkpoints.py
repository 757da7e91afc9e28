"""Checkpoints in the memory of nodes, which GKE copies to other nodes and to a bucket."""

from collections.abc import Iterator
from typing import Any

from pydantic import Field
from typing_extensions import override

from ml_foundations.component.base import Child
from ml_foundations.component.children import ChildResource, cloud_child
from ml_foundations.component.objects import IN_PROJECT, ObjectArgument
from ml_foundations.component.outputs import KnownOutput
from ml_foundations.component.spec import ComponentSpec
from ml_foundations.component.tolerations import Toleration, toleration_manifest
from ml_foundations.component.types import BucketName, InputText, Name, Quantity, concat
from ml_foundations.kubernetes.objects import api_object
from ml_foundations.typed_args import CheckpointConfigurationComponent

_AGENT = "gke-managed-checkpointing/gke-checkpointing-multitier-node"
"""Namespace and service account of what copies the checkpoints (GKE, "Train large-scale machine
learning models on GKE with Multi-Tier Checkpointing")."""


class CheckpointConfigurationSpec(ComponentSpec):
    """Arguments of a CheckpointConfiguration."""

    objects = {
        "cluster": IN_PROJECT,
        "pool": ObjectArgument(
            ("GpuNodePool",),
            "The GpuNodePool whose nodes keep the checkpoints. "
            "It sets node_selector and tolerations. You may add to both.",
            {"node_selector": "node_selector", "tolerations": "tolerations"},
        ),
    }
    name_field = "configuration_name"
    config_defaults = {"project": "gcp:project"}

    configuration_name: Name
    """The name of the CheckpointConfiguration. By default, the name of the component."""
    project: InputText
    """The Google Cloud project of the cluster. By default, the setting gcp:project."""
    bucket: BucketName
    """The name of the bucket for the copies, with a hierarchical namespace. Without that, no
    copies are made."""
    in_memory_volume_size: Quantity
    """The memory of each node for checkpoints, such as 200Gi. Pods have the rest."""
    node_selector: dict[str, str] = Field(min_length=1)
    """Labels of the nodes, such as GpuNodePool.node_selector."""
    tolerations: list[Toleration] = []
    """Taints of the nodes, such as GpuNodePool.tolerations."""
    grant: bool = True
    """Grant GKE's agent the role roles/storage.objectUser on the bucket. The default is true. Set
    it to false if you may not change IAM policies, and have the role granted."""
    overrides: dict[str, dict[str, Any]] = {}
    """Fields of the created object, by kind. They are merged over the component's: maps are merged,
    lists are replaced, and null removes a field."""

    @property
    def checkpoints(self) -> bool:
        """True: pods may mount checkpoints once it exists."""
        return True

    @override
    def children(self) -> Iterator[ChildResource]:
        before: list[str] = []
        if self.grant:
            member = concat("serviceAccount:", self.project, f".svc.id.goog[{_AGENT}]")
            access = {"bucket": self.bucket, "role": "roles/storage.objectUser", "member": member}
            type_ = "gcp:storage/bucketIAMMember:BucketIAMMember"
            yield cloud_child("access", type_, access)
            before.append("access")
        spec = {
            "cloudStorageBucketName": self.bucket,
            "inMemoryVolumeSize": self.in_memory_volume_size,
            "nodeSelector": self.node_selector,
            "tolerations": [toleration_manifest(item) for item in self.tolerations],
        }
        metadata = {"name": self.configuration_name}
        version = "checkpointing.gke.io/v1"
        manifest = api_object(version, "CheckpointConfiguration", metadata, spec=spec)
        yield ChildResource("configuration", manifest, before)


class CheckpointConfiguration(CheckpointConfigurationComponent[CheckpointConfigurationSpec]):
    """Multi-tier checkpointing on the nodes of a pool: GKE keeps their checkpoints.

    A training that mounts ``checkpoints`` writes them to the memory of its node within seconds. GKE
    copies them to other nodes and to the bucket, and a new node gets them back. The training is a
    JobSet, and the cluster needs ``multi_tier_checkpointing``.
    """

    checkpoints: KnownOutput[bool]
    """True. A mount accepts the component as checkpoints."""
    configuration = Child("configuration")
    """The CheckpointConfiguration."""
