"""The adapter by which autoscalers read metrics of Cloud Monitoring."""

from collections.abc import Iterator
from typing import Any

import pulumi
from typing_extensions import override

from ml_foundations.catalog.gke_kinds import METRICS_ADAPTER
from ml_foundations.catalog.versions import METRICS_ADAPTER_IMAGE
from ml_foundations.component.base import Child
from ml_foundations.component.children import ChildResource, cloud_child
from ml_foundations.component.data import yaml_file
from ml_foundations.component.objects import IN_PROJECT
from ml_foundations.component.spec import ComponentSpec
from ml_foundations.component.types import InputText, concat
from ml_foundations.kubernetes.objects import api_object
from ml_foundations.typed_args import MetricsAdapterComponent

_NAMESPACE = "custom-metrics"
_APIS = (
    ("v1beta1", "custom.metrics.k8s.io", 100),
    ("v1beta2", "custom.metrics.k8s.io", 200),
    ("v1beta1", "external.metrics.k8s.io", 100),
)
"""The versions of APIs that it serves, each with its priority."""


class MetricsAdapterSpec(ComponentSpec):
    """Arguments of a MetricsAdapter."""

    objects = {"cluster": IN_PROJECT}
    config_defaults = {"project": "gcp:project"}

    project: InputText
    """The Google Cloud project whose metrics it reads. By default, the setting gcp:project."""
    grant: bool = True
    """Grant its pods the role roles/monitoring.viewer in the project. The default is true. Set it
    to false if you may not change IAM policies, and have the role granted."""
    overrides: dict[str, dict[str, Any]] = {}
    """Fields of the created objects, by kind. They are merged over the component's: maps are
    merged, lists are replaced, and null removes a field."""

    @property
    def member(self) -> pulumi.Input[str]:
        """Its pods in an IAM policy (Workload Identity Federation)."""
        return concat(
            "serviceAccount:", self.project, f".svc.id.goog[{_NAMESPACE}/{METRICS_ADAPTER}]"
        )

    @override
    def children(self) -> Iterator[ChildResource]:
        words = {
            "adapter": METRICS_ADAPTER,
            "namespace": _NAMESPACE,
            "image": METRICS_ADAPTER_IMAGE,
        }
        before: list[str] = []
        if self.grant:
            access = {"project": self.project, "role": "roles/monitoring.viewer"}
            access |= {"member": self.member}
            yield cloud_child("access", "gcp:projects/iAMMember:IAMMember", access)
            before.append("access")
        for suffix, manifest in yaml_file("gke", "metrics_adapter.yaml", **words).items():
            yield ChildResource(suffix, manifest, list(before))
            before.append(suffix)
        for version, group, priority in _APIS:
            # Its certificate is its own, and only the API server asks it.
            spec = {
                "group": group,
                "version": version,
                "groupPriorityMinimum": 100,
                "versionPriority": priority,
                "insecureSkipTLSVerify": True,
                "service": {"name": METRICS_ADAPTER, "namespace": _NAMESPACE},
            }
            name = {"name": f"{version}.{group}"}
            service = api_object("apiregistration.k8s.io/v1", "APIService", name, spec=spec)
            # An API whose pods do not answer would keep namespaces from being deleted.
            suffix = f"{version}-{group.partition('.')[0]}"
            yield ChildResource(suffix, service, ["deployment", "service"])


class MetricsAdapter(MetricsAdapterComponent[MetricsAdapterSpec]):
    """Google's adapter: autoscalers can go by the metrics in Cloud Monitoring. One is enough.

    It serves the APIs custom.metrics.k8s.io and external.metrics.k8s.io, so no other adapter, such
    as KEDA's, can. Cloud Monitoring has the metrics of servers with ``monitoring="google"``. The
    cluster needs Workload Identity Federation, as each GkeCluster has.
    """

    deployment = Child("deployment")
    """The Deployment of the adapter."""
