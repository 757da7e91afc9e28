"""The real controller of LeaderWorkerSets beside a real control plane, brought by the component."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config, utils
from ml_foundations.rehearsal.control_plane import controllers, kwok
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.tools.toolchain import Tools

from tests.support.cluster import Cluster
from tests.support.project import Project, fake_node
from tests.support.waiting import until

NAME = "leaderworkerset.sigs.k8s.io/name"
CONTROLLER = (
    "from ml_foundations import LeaderWorkerSetController\n"
    "lws = LeaderWorkerSetController('lws', {}, here)\n"
)
H100_NODE = {
    "cloud.google.com/gke-nodepool": "h100",
    "cloud.google.com/gke-accelerator": "nvidia-h100-80gb",
}
POD = {
    "spec": {
        "containers": [{"name": "main", "image": "i"}],
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
    }
}
GROUPS = {
    "apiVersion": "leaderworkerset.x-k8s.io/v1",
    "kind": "LeaderWorkerSet",
    "metadata": {"name": "ring", "namespace": "red"},
    "spec": {"replicas": 2, "leaderWorkerTemplate": {"size": 3, "workerTemplate": POD}},
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lws")


@pytest.fixture(scope="module")
def replica(tools: Tools, root: Path) -> Iterator[Cluster]:
    """The project's own replica with four nodes of 8 H100; the programs bring the controller, by its chart."""
    rehearsal = Rehearsal.of("t", root)
    rehearsal.make()
    try:
        kwok.start(rehearsal, tools)
        cluster = Cluster(
            rehearsal,
            rehearsal.kubeconfig,
            config.new_client_from_config(str(rehearsal.kubeconfig)),
        )
        for index in range(4):
            utils.create_from_dict(cluster.api, fake_node(f"h100-{index}", H100_NODE, gpus=8))
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "red"}}
        utils.create_from_dict(cluster.api, namespace)
        yield cluster
    finally:
        controllers.stop(rehearsal)
        kwok.delete(rehearsal)


@pytest.fixture(scope="module")
def project(root: Path, replica: Cluster, tools: Tools) -> Project:
    return Project(root, replica, tools)


@pytest.fixture(autouse=True)
def clean(project: Project) -> Iterator[None]:
    yield
    project.clear()


def declared(manifest: dict[str, Any]) -> str:
    return f"""{CONTROLLER}manifest = {manifest!r}
k8s.apiextensions.CustomResource("groups", api_version=manifest["apiVersion"], kind=manifest["kind"],
    metadata=manifest["metadata"], spec=manifest["spec"], opts=options(depends_on=[lws]))"""


def pods(project: Project, name: str) -> dict[str, dict[str, Any]]:
    listed = project.kubectl("get", "pods", "-n", "red", "-l", f"{NAME}={name}")["items"]
    return {pod["metadata"]["name"]: pod for pod in listed}


def running(project: Project, name: str) -> set[str]:
    placed = pods(project, name).items()
    return {key for key, pod in placed if pod["status"].get("phase") == "Running"}


def test_each_group_gets_a_leader_and_its_workers(project: Project) -> None:
    """Its webhook tells each pod the leader's address; leader and workers of a group have its index."""
    project.up(declared(GROUPS))
    members = {f"ring-{group}{worker}" for group in range(2) for worker in ("", "-1", "-2")}
    until(lambda: running(project, "ring") == members)
    worker = pods(project, "ring")["ring-1-2"]
    env = {item["name"]: item["value"] for item in worker["spec"]["containers"][0]["env"]}
    assert env["LWS_LEADER_ADDRESS"] == "ring-1.ring.red"
    assert (env["LWS_GROUP_SIZE"], env["LWS_WORKER_INDEX"]) == ("3", "2")
    owner = worker["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"]) == ("StatefulSet", "ring-1")


def test_its_webhooks_stop_no_pods_of_others_when_it_is_down(
    replica: Cluster, project: Project, tools: Tools
) -> None:
    """Of pods, they match those of LeaderWorkerSets alone: all other pods can be created, in any namespace."""
    project.up(CONTROLLER)
    [process] = controllers.processes(replica.rehearsal)
    core = client.CoreV1Api(replica.api)
    pod: Any = {"metadata": {"name": "probe"}, **POD}
    process.stop()
    try:
        for namespace in ("red", "default", "kube-system"):
            core.create_namespaced_pod(namespace, pod)
            core.delete_namespaced_pod("probe", namespace, grace_period_seconds=0)
        pod["metadata"] = {"name": "probe", "labels": {NAME: "ring"}}
        with pytest.raises(client.ApiException, match="failed calling webhook"):
            core.create_namespaced_pod("red", pod)
    finally:
        controllers.resume(replica.rehearsal, tools)
