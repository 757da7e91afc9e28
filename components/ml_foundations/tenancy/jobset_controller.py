"""The controller of JobSets, which a DistributedTraining with ``jobset`` needs."""

from collections.abc import Iterator
from typing import Any

from typing_extensions import override

from ml_foundations.catalog.versions import JOBSET
from ml_foundations.component.base import OptionalChild
from ml_foundations.component.children import ChildResource, helm_child
from ml_foundations.component.objects import IN_CLUSTER
from ml_foundations.component.spec import ComponentSpec
from ml_foundations.typed_args import JobSetControllerComponent


class JobSetControllerSpec(ComponentSpec):
    """Arguments of a JobSetController."""

    objects = {"cluster": IN_CLUSTER}

    install: bool = True
    """Install it by its Helm chart. The default is true. Set it to false if the cluster has it
    already."""
    values: dict[str, Any] = {}
    """Values of the chart."""

    @override
    def children(self) -> Iterator[ChildResource]:
        if self.install:
            more: dict[str, Any] = {"createNamespace": True, "timeout": 600}
            yield helm_child("release", JOBSET, "jobset-system", self.values, **more)


class JobSetController(JobSetControllerComponent[JobSetControllerSpec]):
    """The controller and the CRD of JobSet, by its Helm chart. A cluster needs one.

    Let JobSets and a TrainingQueue depend on it (``depends_on``).
    """

    release = OptionalChild("release")
    """The Helm release. None if it is not installed here."""
