"""The controller of LeaderWorkerSets, which an InferenceService over several nodes needs."""

from collections.abc import Iterator
from typing import Any

from typing_extensions import override

from ml_foundations.catalog.versions import LWS
from ml_foundations.component.base import OptionalChild
from ml_foundations.component.children import ChildResource, helm_child
from ml_foundations.component.objects import IN_CLUSTER
from ml_foundations.component.spec import ComponentSpec
from ml_foundations.typed_args import LeaderWorkerSetControllerComponent


class LeaderWorkerSetControllerSpec(ComponentSpec):
    """Arguments of a LeaderWorkerSetController."""

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
            yield helm_child("release", LWS, "lws-system", self.values, **more)


class LeaderWorkerSetController(LeaderWorkerSetControllerComponent[LeaderWorkerSetControllerSpec]):
    """The controller and the CRD of LeaderWorkerSet, by its Helm chart. A cluster needs one.

    Its webhooks judge LeaderWorkerSets and their pods alone. Let LeaderWorkerSets and a
    TrainingQueue depend on it (``depends_on``).
    """

    release = OptionalChild("release")
    """The Helm release. None if it is not installed here."""
