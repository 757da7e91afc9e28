"""The operator's release by the real Helm: a small chart of the same name takes our values, and nodes get their GPUs."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ml_foundations.component.spec import check
from ml_foundations.gpu.driver_installer import driver_installer_manifest
from ml_foundations.gpu.operator import GpuOperatorSpec
from ml_foundations.rehearsal.tools.toolchain import Tools

from tests.support.cluster import Cluster
from tests.support.parts import values_of
from tests.support.project import Project
from tests.support.simulation import OPERATED, Cloud, clean
from tests.support.waiting import until

CHART = {
    "Chart.yaml": "apiVersion: v2\nname: gpu-operator\nversion: 26.7.0\n",
    "values.yaml": "devicePlugin: {config: {create: false}}\n",
    "templates/config.yaml": """
{{- if .Values.devicePlugin.config.create }}
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Values.devicePlugin.config.name }}}
data: {{ toYaml .Values.devicePlugin.config.data | nindent 2 }}
{{- end }}
""",
}
SHARING = {"sharing": {"four": {"replicas": 4}}, "default_sharing": "four"}
COS = replace(OPERATED, name="cos", image_type="COS_CONTAINERD")


@pytest.fixture
def cloud(plain_gke: Cloud) -> Iterator[Cloud]:
    yield plain_gke
    clean(plain_gke)


@pytest.fixture(scope="module")
def project(
    tmp_path_factory: pytest.TempPathFactory, cluster: Cluster, tools: Tools
) -> Iterator[Project]:
    project = Project(tmp_path_factory.mktemp("operator"), cluster, tools)
    yield project
    project.up("")


def release(project: Project, **given: Any) -> str:
    """A program that releases our values with the small chart."""
    folder: Path = project.root / "gpu-operator"
    for name, text in CHART.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    values = values_of(check(GpuOperatorSpec, "GpuOperator", given))
    return (
        f'k8s.helm.v3.Release("op", name="gpu-operator", chart={str(folder)!r}, namespace="default", '
        f"values={values!r}, opts=here)"
    )


def test_gpus_come_are_shared_and_go_with_the_release(cloud: Cloud, project: Project) -> None:
    cloud.store.save_pool(OPERATED)
    until(lambda: cloud.gpus("operated") == [0])
    project.up(release(project))
    until(lambda: cloud.gpus("operated") == [2])
    project.up(release(project, device_plugin=SHARING))
    until(lambda: cloud.gpus("operated") == [8])
    assert (
        "replicas: 4" in project.kubectl("get", "configmap", "device-plugin-config")["data"]["four"]
    )
    labels = cloud.nodes("operated")[0]["metadata"]["labels"]
    assert labels["nvidia.com/gpu.product"] == "NVIDIA-L4-SHARED"
    assert labels["nvidia.com/gpu.replicas"] == "4"
    cloud.run("shared", gpus=1, copies=8)
    until(lambda: len(cloud.running("shared")) == 8)
    cloud.stop("shared")
    project.up("")
    until(lambda: cloud.gpus("operated") == [0])


def test_toolkit_that_breaks_networking_keeps_gpus_away(cloud: Cloud, project: Project) -> None:
    cloud.store.save_pool(OPERATED)
    project.up(release(project))
    until(lambda: cloud.gpus("operated") == [2])
    project.up(release(project, values={"toolkit": {"env": []}}))
    until(lambda: cloud.gpus("operated") == [0])
    assert "nvidia.com/gpu.product" not in cloud.nodes("operated")[0]["metadata"]["labels"]
    project.up("")


def test_a_driverless_node_has_no_gpus_before_its_installer(cloud: Cloud, project: Project) -> None:
    cloud.store.save_pool(COS)
    project.up(release(project, mode="cos"))
    until(lambda: len(cloud.nodes("cos")) == 1)
    path = "/apis/apps/v1/namespaces/kube-system/daemonsets"
    time.sleep(1.5)
    assert cloud.gpus("cos") == [0]
    assert "nvidia.com/gpu.product" not in cloud.nodes("cos")[0]["metadata"]["labels"]
    cloud.api.create(path, driver_installer_manifest("cos"))
    until(lambda: cloud.gpus("cos") == [2])
    assert cloud.nodes("cos")[0]["metadata"]["labels"]["nvidia.com/gpu.product"] == "NVIDIA-L4"
    cloud.api.delete(f"{path}/nvidia-driver-installer-cos")
    until(lambda: cloud.gpus("cos") == [0])
