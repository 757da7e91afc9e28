"""Pods of every component, as it makes them by default, under the levels of Pod Security, on a real API server."""

from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client
from kubernetes.client.exceptions import ApiException
from ml_foundations.component.spec import check
from ml_foundations.gpu.monitor import GpuMonitorSpec

from tests.support.cluster import Cluster
from tests.support.parts import manifest_of
from tests.workloads import building
from tests.workloads.building import GPU, template_of

LEVELS = ("privileged", "baseline", "restricted")


def of_monitor(**args: Any) -> dict[str, Any]:
    spec = check(GpuMonitorSpec, "GpuMonitor", {"monitor_name": "dcgm"} | args)
    return manifest_of(spec, "DaemonSet")


RESTRICTED: dict[str, dict[str, Any]] = {
    "Task": building.pod(**GPU),
    "TrainingJob": building.job(**GPU, mounts=building.DATA),
    "TrainingJob without GPUs": building.job(),
    "TrainingJob with files": building.job(files={"/workspace/train.py": ""}),
    "TrainingJob with a claim of GPUs": building.job(**building.CLAIM),
    "TrainingJob with an init container": building.job(
        init_containers=[{"name": "fetch", "image": "fetch"}]
    ),
    "DistributedTraining": building.gang(**GPU)[-1],
    "DistributedTraining as a JobSet": building.gang(**GPU, jobset=True)[-1],
    "Sweep": building.searched(**GPU)[-1],
    "ScheduledTraining": building.cron(**GPU),
    "ShardedSet": manifest_of(building.shards_spec(), "StatefulSet"),
    "InferenceService": manifest_of(building.service_spec(gpu="L4"), "Deployment"),
}
BASELINE = {
    "Task of root": building.pod(run_as_user=0),
    "Task of the image's own user": building.pod(image_user=True),
    "InferenceService of root": manifest_of(building.service_spec(run_as_user=0), "Deployment"),
}
PRIVILEGES: dict[str, Any] = {"name": "main", "securityContext": {"privileged": True}}
ADMIN = {"capabilities": {"add": ["CAP_SYS_ADMIN"]}}
MOUNTS: dict[str, Any] = {"name": "mount", "image": "i", "securityContext": ADMIN}
PRIVILEGED = {
    "GpuMonitor": of_monitor(),
    "GpuMonitor of the operator's driver": of_monitor(driver="operator"),
    "Task with privileges": building.pod(privileged=True, host_network=True, host_ipc=True),
    "Task with privileges by overrides": building.pod(pod_overrides={"containers": [PRIVILEGES]}),
    "Task with an init container that adds CAP_SYS_ADMIN": building.pod(init_containers=[MOUNTS]),
}


@pytest.fixture(scope="module")
def namespaces(cluster: Cluster) -> Iterator[client.CoreV1Api]:
    """A namespace for each level that enforces it, named after it."""
    core = client.CoreV1Api(cluster.api)
    for level in LEVELS:
        labels = {"pod-security.kubernetes.io/enforce": level}
        core.create_namespace({"metadata": {"name": level, "labels": labels}})
        core.create_namespaced_service_account(level, {"metadata": {"name": "trainer"}})
    yield core
    for level in LEVELS:
        core.delete_namespace(level)


def refusal(core: client.CoreV1Api, level: str, manifest: dict[str, Any]) -> str:
    """What the API server has against a manifest's pod in a namespace of that level; nothing, if it takes it."""
    # What else the namespace and the cluster would have to have.
    given = {"serviceAccountName": "trainer", "priorityClassName": None, "runtimeClassName": None}
    pod = {"metadata": {"name": "pod"}, "spec": template_of(manifest)["spec"] | given}
    try:
        core.create_namespaced_pod(level, pod, dry_run="All", field_validation="Strict")
    except ApiException as error:
        assert "violates PodSecurity" in error.body, error.body
        return str(error.body)
    return ""


@pytest.mark.parametrize("name", RESTRICTED)
def test_by_default_the_strictest_level_is_satisfied(
    namespaces: client.CoreV1Api, name: str
) -> None:
    assert not refusal(namespaces, "restricted", RESTRICTED[name])


@pytest.mark.parametrize("name", BASELINE)
def test_root_takes_baseline(namespaces: client.CoreV1Api, name: str) -> None:
    assert "restricted" in refusal(namespaces, "restricted", BASELINE[name])
    assert not refusal(namespaces, "baseline", BASELINE[name])


@pytest.mark.parametrize("name", PRIVILEGED)
def test_what_looks_into_nodes_takes_privileged(namespaces: client.CoreV1Api, name: str) -> None:
    assert "baseline" in refusal(namespaces, "baseline", PRIVILEGED[name])
    assert not refusal(namespaces, "privileged", PRIVILEGED[name])
