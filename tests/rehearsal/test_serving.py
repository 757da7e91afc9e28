"""Servers on a real control plane, over several updates: what is kept, updated, replaced or refused."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client, utils
from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import Api
from ml_foundations.rehearsal.cloud.addons import Addons
from ml_foundations.rehearsal.tools.toolchain import Tools

from tests.support.cluster import Cluster
from tests.support.project import Project, fake_node, project_over
from tests.support.project_steps import (
    kubectl_in,
    pods_of,
    program,
    refreshed,
    restricted_namespace,
    uid,
    waiting_class,
)
from tests.support.waiting import until

GPU = "nvidia.com/gpu"
NAMESPACE = "serving"
IMPATIENT = {"progress_seconds": 20, "timeout_seconds": 24}
"""Of an update that fails. One that does not has all the time that it needs."""
QUICK = {"load_seconds": 10, "deregister_seconds": 1, "drain_seconds": 1, "grace_seconds": 5}
CHAT: dict[str, Any] = {"namespace": NAMESPACE, "image": "i:1", "cpu": "1", "memory": "1Gi"} | QUICK
WEIGHTS = {"name": "weights", "size": "10Gi", "storage_class": "shards-ssd", "path": "/weights"}
PARTS: dict[str, Any] = {
    **{"namespace": NAMESPACE, "image": "i:1", "cpu": "1", "memory": "1Gi", "shards": 2},
    **{"load_seconds": 10, "grace_seconds": 5, "volumes": [WEIGHTS]},
}


@pytest.fixture(scope="module")
def project(
    tmp_path_factory: pytest.TempPathFactory, cluster: Cluster, tools: Tools
) -> Iterator[Project]:
    """A project over a replica with two GPUs, both of which a service of two pods takes, and a node without any."""
    gpu = {"cloud.google.com/gke-accelerator": "nvidia-l4", "nvidia.com/gpu.product": "NVIDIA-L4"}
    team = {GPU: "present", "team": "x"}
    Addons(Api(Access(cluster.kubeconfig))).reconcile()
    with project_over(
        cluster,
        tools,
        tmp_path_factory.mktemp("serving"),
        fake_node("serving-cpu", {}),
        fake_node("serving-gpu", gpu, gpus=2),
        fake_node("serving-team", gpu, taints=team),
        restricted_namespace(NAMESPACE),
        waiting_class("shards-ssd", allowVolumeExpansion=True),
    ) as project:
        yield project


def chat(**more: Any) -> str:
    return program("InferenceService", "chat", CHAT | more)


def parts(name: str = "parts", **more: Any) -> str:
    return program("ShardedSet", name, PARTS | more)


def get(project: Project, kind: str, name: str) -> dict[str, Any]:
    return project.kubectl("get", kind, name, "-n", NAMESPACE)


def pods(project: Project, app: str, namespace: str = NAMESPACE) -> dict[str, dict[str, Any]]:
    """The pods of an app that are not on their way out, by uid."""
    return {uid(pod): pod for pod in pods_of(project, namespace, app)}


def listed(project: Project, kind: str) -> list[dict[str, Any]]:
    return project.kubectl("get", kind, "-n", NAMESPACE)["items"]


def images(project: Project, app: str) -> set[str]:
    return {item["spec"]["containers"][0]["image"] for item in pods(project, app).values()}


def kubectl(project: Project, *args: str) -> None:
    kubectl_in(project, NAMESPACE, *args)


@pytest.fixture(autouse=True)
def clean(project: Project) -> Iterator[None]:
    """Start each test with an empty stack."""
    yield
    project.clear()
    kubectl(project, "delete", "pvc", "--all")


def test_a_second_up_of_all_of_a_service_changes_nothing(project: Project) -> None:
    everything = chat(
        gpu="L4",
        replicas=2,
        autoscaling={"max_replicas": 2, "cpu_percent": 80, "metric": "queue", "target": "5"},
        callers=["web"],
        monitoring="google",
        ports=[{"name": "metrics", "port": 8002}],
        metrics_port="metrics",
        shared_memory="256Mi",
    )
    assert "restricted" not in project.up(everything), (
        "the pods break a rule of the strictest level"
    )
    for kind in ("deployment", "service", "hpa", "pdb", "networkpolicy", "podmonitoring"):
        assert get(project, kind, "chat"), kind
    assert {item["spec"]["nodeName"] for item in pods(project, "chat").values()} == {"serving-gpu"}
    assert "created" not in (again := project.up(everything))
    assert "updated" not in again
    assert "updated" not in refreshed(project)
    assert "updated" not in project.up(everything)


def test_a_new_image_rolls_out_where_no_gpu_is_free(project: Project) -> None:
    project.up(chat(gpu="L4", replicas=2))
    before = uid(get(project, "deployment", "chat"))
    project.up(chat(gpu="L4", replicas=2, image="i:2"))
    assert uid(get(project, "deployment", "chat")) == before
    assert images(project, "chat") == {"i:2"}
    project.up(chat(gpu="L4", replicas=2, image="i:3"))
    assert images(project, "chat") == {"i:3"}


def test_a_surge_without_a_spare_gpu_fails_and_says_why(project: Project) -> None:
    more = {"gpu": "L4", "replicas": 2, "surge": True}
    project.up(chat(**more))
    said = project.fails(chat(**more, **IMPATIENT, image="i:2"))
    assert f"Insufficient {GPU}" in said
    assert "i:1" in images(project, "chat"), "what served goes on"


def test_scaling_starts_and_stops_pods_and_leaves_the_others(project: Project) -> None:
    """From one pod to two and back, the strategy changes between Recreate and RollingUpdate too."""
    project.up(chat(gpu="L4"))
    [first] = pods(project, "chat")
    project.up(chat(gpu="L4", replicas=2))
    assert first in pods(project, "chat")
    assert len(pods(project, "chat")) == 2
    project.up(chat(gpu="L4"))
    until(lambda: len(pods(project, "chat")) == 1)
    assert get(project, "deployment", "chat")["spec"]["strategy"] == {"type": "Recreate"}


def test_another_name_frees_the_gpus_first(project: Project) -> None:
    project.up(chat(gpu="L4", replicas=2, service_name="old"))
    project.up(chat(gpu="L4", replicas=2, service_name="new"))
    assert not pods(project, "old")
    assert get(project, "deployment", "old") is None
    assert len(pods(project, "new")) == 2


def test_no_update_takes_back_what_the_autoscaler_did(project: Project) -> None:
    scaled = {"gpus": 0, "autoscaling": {"max_replicas": 6, "cpu_percent": 80}}
    project.up(chat(**scaled))
    kubectl(project, "scale", "deployment", "chat", "--replicas=4")
    project.up(chat(**scaled, image="i:2"))
    assert get(project, "deployment", "chat")["spec"]["replicas"] == 4
    refreshed(project)
    project.up(chat(**scaled, image="i:3"))
    assert get(project, "deployment", "chat")["spec"]["replicas"] == 4
    # The real autoscaler has no metrics here, and still holds to its bounds.
    project.up(chat(**scaled | {"replicas": 5}))
    until(lambda: get(project, "deployment", "chat")["spec"]["replicas"] == 5)


def test_an_autoscaler_may_come_later_and_go_again(project: Project) -> None:
    project.up(chat(gpus=0, replicas=3))
    scaled = {"gpus": 0, "autoscaling": {"max_replicas": 6, "cpu_percent": 80}}
    project.up(chat(**scaled, replicas=2))
    assert get(project, "deployment", "chat")["spec"]["replicas"] == 3, (
        "the autoscaler decides from now on"
    )
    project.up(chat(gpus=0, replicas=2))
    assert get(project, "hpa", "chat") is None
    until(lambda: len(pods(project, "chat")) == 2)


def test_no_service_is_waited_for_beside_its_pods(project: Project) -> None:
    """A Service is created before the pods that it finds, and has their addresses once they are ready."""
    for image in ("i:1", "i:2"):
        started = time.monotonic()
        project.up(chat(gpus=0, image=image) + "\n" + parts(image=image))
        assert time.monotonic() - started < 600, "the wait for a Service"
        until(lambda: all(item["endpoints"] for item in listed(project, "endpointslices")))


def test_a_service_that_is_not_ready_is_refreshed_and_mended(project: Project) -> None:
    nowhere = {"node_selector": {"nowhere": "true"}, **IMPATIENT}
    project.up(chat(gpus=0))
    before = uid(get(project, "deployment", "chat"))
    for _ in range(2):
        project.fails(chat(gpus=0, **nowhere))
        refreshed(project)
    project.up(chat(gpus=0))
    assert uid(get(project, "deployment", "chat")) == before
    assert len(pods(project, "chat")) == 1


def test_shards_keep_rank_and_volume_over_updates(project: Project) -> None:
    project.up(parts())
    names = ("weights-parts-0", "weights-parts-1")
    claims = {name: uid(get(project, "pvc", name)) for name in names}
    before = uid(get(project, "statefulset", "parts"))
    project.up(parts(image="i:2"))
    assert images(project, "parts") == {"i:2"}
    project.up(parts(image="i:2", shards=3))
    project.up(parts(image="i:2", shards=1))
    until(lambda: len(pods(project, "parts")) == 1)
    project.up(parts(image="i:3", shards=2))
    assert uid(get(project, "statefulset", "parts")) == before
    assert {name: uid(get(project, "pvc", name)) for name in claims} == claims
    assert get(project, "pvc", "weights-parts-2"), "the volume of a shard that went is kept"
    found = {item["metadata"]["name"]: item for item in pods(project, "parts").values()}
    for rank, name in enumerate(("parts-0", "parts-1")):
        assert found[name]["metadata"]["labels"]["apps.kubernetes.io/pod-index"] == str(rank)
        [claim] = [v for v in found[name]["spec"]["volumes"] if v["name"] == "weights"]
        assert claim["persistentVolumeClaim"]["claimName"] == f"weights-{name}"


BIGGER = [WEIGHTS | {"size": "20Gi"}]


@pytest.mark.parametrize(
    "change", [{"volumes": BIGGER}, {"set_name": "other"}], ids=["size", "name"]
)
def test_another_size_or_name_is_refused_at_preview(
    project: Project, change: dict[str, Any]
) -> None:
    project.up(parts())
    before = uid(get(project, "statefulset", "parts"))
    said = project.fails(parts(**change), "preview")
    assert "protection" in said, said
    assert uid(get(project, "statefulset", "parts")) == before


def test_volumes_grow_stepwise_without_a_restart_of_shards(project: Project) -> None:
    project.up(parts())
    running = set(pods(project, "parts"))
    grown = json.dumps({"spec": {"resources": {"requests": {"storage": "20Gi"}}}})
    for rank in range(2):
        kubectl(project, "patch", "pvc", f"weights-parts-{rank}", "-p", grown)
    kubectl(project, "delete", "statefulset", "parts", "--cascade=orphan")
    refreshed(project)
    project.up(parts(volumes=BIGGER))
    assert set(pods(project, "parts")) == running
    template = get(project, "statefulset", "parts")["spec"]["volumeClaimTemplates"][0]
    for claim in (template, get(project, "pvc", "weights-parts-1")):
        assert claim["spec"]["resources"]["requests"]["storage"] == "20Gi"


def test_a_broken_update_of_shards_is_mended_by_the_next(project: Project) -> None:
    """With shards that start one after the other, the broken pod would have to be deleted by hand."""
    nowhere = {"node_selector": {"nowhere": "true"}, "timeout_seconds": 10}
    project.up(parts())
    project.fails(parts(**nowhere))
    project.up(parts(image="i:2"))
    assert images(project, "parts") == {"i:2"}


def test_a_monitor_is_on_every_gpu_node_and_on_no_other(project: Project) -> None:
    project.up(program("GpuMonitor", "dcgm", {}))
    on = {item["spec"]["nodeName"] for item in pods(project, "dcgm", "dcgm").values()}
    assert on == {"serving-gpu", "serving-team"}
    before = uid(project.kubectl("get", "daemonset", "dcgm", "-n", "dcgm"))
    image = "nvcr.io/nvidia/k8s/dcgm-exporter:next"
    project.up(program("GpuMonitor", "dcgm", {"image": image}))
    assert uid(project.kubectl("get", "daemonset", "dcgm", "-n", "dcgm")) == before
    found = pods(project, "dcgm", "dcgm").values()
    assert {item["spec"]["containers"][0]["image"] for item in found} == {image}
    # A node that joins gets its pod, whatever its taints.
    l4 = {"cloud.google.com/gke-accelerator": "nvidia-l4"}
    late = fake_node("serving-late", l4, gpus=1, taints={"late": "true"})
    utils.create_from_dict(project.cluster.api, late)
    try:
        until(lambda: len(pods(project, "dcgm", "dcgm")) == 3)
    finally:
        # The pod goes with its DaemonSet: left on a node that is gone, it would stay for a minute.
        project.clear()
        client.CoreV1Api(project.cluster.api).delete_node("serving-late")
