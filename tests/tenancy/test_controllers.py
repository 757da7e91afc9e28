"""The charts that install controllers, in the versions that a rehearsal runs."""

from typing import Any

import pytest
from ml_foundations import (
    JobSetController,
    LeaderWorkerSetController,
    RayOperator,
    TrainerController,
)
from ml_foundations.catalog import versions
from ml_foundations.catalog.versions import Chart
from ml_foundations.component.errors import ArgumentsError
from ml_foundations.rehearsal.plugins.kubernetes.chart_values import unknown_keys
from ml_foundations.rehearsal.tools import groups
from ml_foundations.rehearsal.tools.groups import Group

from tests.support.declaring import declared, inputs

CHARTS: list[tuple[Any, Chart, str, dict[str, Any]]] = [
    (JobSetController, versions.JOBSET, "jobset-system", {"controller": {"replicas": 2}}),
    (LeaderWorkerSetController, versions.LWS, "lws-system", {"replicaCount": 2}),
    (RayOperator, versions.KUBERAY, "kuberay-system", {"leaderElectionEnabled": False}),
    (
        TrainerController,
        versions.TRAINER,
        "kubeflow-system",
        {"manager": {"replicas": 2}, "jobset": {"install": False}},
    ),
]
"""Each component, its chart, its namespace, and a value of the chart."""

PINNED = [
    (groups.JOBSET, "sigs.k8s.io/jobset", versions.JOBSET),
    (groups.LWS, "sigs.k8s.io/lws", versions.LWS),
    (groups.KUBERAY, "github.com/ray-project/kuberay/ray-operator", versions.KUBERAY),
    (groups.TRAINER, "github.com/kubeflow/trainer/v2", versions.TRAINER),
]
"""Each group of tools, the module whose version it pins, and the chart."""


@pytest.mark.parametrize(("component", "chart", "namespace", "values"), CHARTS)
def test_it_is_the_chart_with_the_users_values(
    component: Any, chart: Chart, namespace: str, values: dict[str, Any]
) -> None:
    release = inputs(declared(lambda: component("it", {"values": values}))["it-release"])
    is_oci = chart.repo.startswith("oci:")
    assert release["chart"] == (f"{chart.repo}/{chart.name}" if is_oci else chart.name)
    assert (release["version"], release["namespace"]) == (chart.version, namespace)
    assert release["createNamespace"]
    assert release["values"] == values
    assert not list(unknown_keys(chart.name, values))
    assert "it-release" not in declared(lambda: component("it", {"install": False}))


def test_trainer_installs_no_second_controller_of_job_sets() -> None:
    assert declared(lambda: TrainerController("it", {"values": {"jobset": {"install": False}}}))
    with pytest.raises(ArgumentsError, match=r"values\.jobset\.install: would install a second"):
        declared(lambda: TrainerController("it", {"values": {"jobset": {"install": True}}}))


@pytest.mark.parametrize(("group", "module", "chart"), PINNED)
def test_a_rehearsal_runs_the_same_version(group: Group, module: str, chart: Chart) -> None:
    assert group.pinned(module) == f"v{chart.version}"
