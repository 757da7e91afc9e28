"""Controllers of workloads, each installed by its Helm chart. A cluster needs one of each."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from typing_extensions import override

from ml_foundations.catalog.versions import JOBSET, KUBERAY, LWS, TRAINER, Chart
from ml_foundations.component.base import OptionalChild
from ml_foundations.component.children import ChildResource, helm_child
from ml_foundations.component.objects import IN_CLUSTER
from ml_foundations.component.spec import ComponentSpec
from ml_foundations.kubernetes.merging import merged
from ml_foundations.kubernetes.objects import section
from ml_foundations.typed_args import (
    JobSetControllerComponent,
    LeaderWorkerSetControllerComponent,
    RayOperatorComponent,
    TrainerControllerComponent,
)

RAY_NAMESPACE = "kuberay-system"
"""The namespace of the operator of Ray."""


class ControllerSpec(ComponentSpec):
    """Arguments of a controller that a Helm chart installs."""

    objects = {"cluster": IN_CLUSTER}
    chart: ClassVar[Chart]
    namespace: ClassVar[str]
    own_values: ClassVar[Mapping[str, Any]] = {}
    """Values of the chart unless the user sets them."""

    install: bool = True
    """Install it by its Helm chart. The default is true. Set it to false if the cluster has it
    already."""
    values: dict[str, Any] = {}
    """Values of the chart."""

    @override
    def children(self) -> Iterator[ChildResource]:
        if self.install:
            more: dict[str, Any] = {"createNamespace": True, "timeout": 600}
            values = merged(self.own_values, self.values)
            yield helm_child("release", self.chart, self.namespace, values, **more)


class JobSetControllerSpec(ControllerSpec):
    """Arguments of a JobSetController."""

    chart = JOBSET
    namespace = "jobset-system"


class JobSetController(JobSetControllerComponent[JobSetControllerSpec]):
    """The controller and the CRD of JobSet, by its Helm chart. A cluster needs one.

    Let JobSets and a TrainingQueue depend on it (``depends_on``).
    """

    release = OptionalChild("release")
    """The Helm release. None if it is not installed here."""


class LeaderWorkerSetControllerSpec(ControllerSpec):
    """Arguments of a LeaderWorkerSetController."""

    chart = LWS
    namespace = "lws-system"


class LeaderWorkerSetController(LeaderWorkerSetControllerComponent[LeaderWorkerSetControllerSpec]):
    """The controller and the CRD of LeaderWorkerSet, by its Helm chart. A cluster needs one.

    Its webhooks judge LeaderWorkerSets and their pods alone. Let LeaderWorkerSets and a
    TrainingQueue depend on it (``depends_on``).
    """

    release = OptionalChild("release")
    """The Helm release. None if it is not installed here."""


class RayOperatorSpec(ControllerSpec):
    """Arguments of a RayOperator."""

    chart = KUBERAY
    namespace = RAY_NAMESPACE


class RayOperator(RayOperatorComponent[RayOperatorSpec]):
    """The operator of Ray (KubeRay) and its CRDs, by its Helm chart. A cluster needs one.

    GKE's own add-on for Ray is another operator: use one of them. Let RayClusters, RayJobs and a
    TrainingQueue depend on it (``depends_on``).
    """

    release = OptionalChild("release")
    """The Helm release. None if it is not installed here."""


class TrainerControllerSpec(ControllerSpec):
    """Arguments of a TrainerController."""

    chart = TRAINER
    namespace = "kubeflow-system"
    # The chart's own JobSet would be a second controller next to that of JobSetController.
    own_values = {"jobset": {"install": False}}

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        if section(self.values, "jobset").get("install"):
            reason = "would install a second controller of JobSets"
            yield "values.jobset.install", f"{reason}; leave it out, and declare a JobSetController"


class TrainerController(TrainerControllerComponent[TrainerControllerSpec]):
    """The controller and the CRDs of Kubeflow Trainer, by its Helm chart. A cluster needs one.

    It makes JobSets, so it depends on a JobSetController (``depends_on``). Its webhooks judge
    TrainJobs and their runtimes alone. Let TrainJobs and a TrainingQueue depend on it.
    """

    release = OptionalChild("release")
    """The Helm release. None if it is not installed here."""
