"""The simulated GKE on a real control plane: nodes as declared, GPUs when they are due, pools that scale."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from ml_foundations.gke.machine_types import allocatable, machine_type
from ml_foundations.gke.nodes import PoolGpu
from ml_foundations.labels import GPU_RESOURCE
from ml_foundations.planning.quantity import parse_quantity

from rehearsal import gke
from rehearsal.gke.life import SCALE_DOWN_VARIABLE
from rehearsal.progress import RehearsalError
from tests.conftest import Cluster
from tests.rehearsal.simulation import GPU_TAINT, L4, OPERATED, ZONES, Cloud, Object, clean, simulated_gke
from tests.waiting import until

SCALE_DOWN_SECONDS = 3


@pytest.fixture(scope="module")
def running(cluster: Cluster) -> Iterator[Cloud]:
    inputs = {"name": "ml", "workloadIdentityConfig": {"workloadPool": "p"}}
    with simulated_gke(cluster, inputs, SCALE_DOWN_SECONDS) as cloud:
        yield cloud


@pytest.fixture
def cloud(running: Cloud) -> Iterator[Cloud]:
    yield running
    clean(running)


def record_operator(cloud: Cloud, **values: Any) -> None:
    release = {"namespace": "gpu-operator", "name": "gpu-operator", "chart": "gpu-operator", "installed": False}
    path = cloud.rehearsal.releases_dir / "gpu-operator.gpu-operator.json"
    path.write_text(json.dumps(release | {"values": values}))


def test_nodes_are_as_their_pool_declares_them(cloud: Cloud) -> None:
    found = cloud.nodes("system")
    expected = allocatable(machine_type("n2-standard-4"))
    assert {node["metadata"]["labels"]["topology.kubernetes.io/zone"] for node in found} == set(ZONES)
    for node in found:
        status, labels = node["status"], node["metadata"]["labels"]
        assert node["metadata"]["name"].startswith("gke-ml-system-")
        assert labels["kubernetes.io/hostname"] == node["metadata"]["name"]
        assert labels["node.kubernetes.io/instance-type"] == "n2-standard-4"
        assert labels["cloud.google.com/machine-family"] == "n2"
        assert labels["topology.kubernetes.io/region"] == "us-central1"
        assert node["spec"]["providerID"].startswith("gce://")
        assert status["capacity"]["cpu"] == "4"
        assert parse_quantity(status["allocatable"]["cpu"]) * 1000 == expected.cpu_millis
        assert parse_quantity(status["allocatable"]["memory"]) == expected.memory_kib * 1024
        assert status["allocatable"]["pods"] == "110"
        assert GPU_RESOURCE not in status["capacity"]
        until(lambda node=node: "True" in [c["status"] for c in ready_conditions(cloud, node)])


def ready_conditions(cloud: Cloud, node: Object) -> list[Object]:
    status = cloud.api.get(f"/api/v1/nodes/{node['metadata']['name']}")["status"]
    return [condition for condition in status.get("conditions", []) if condition["type"] == "Ready"]


def test_system_daemonsets_take_their_part_of_every_node(cloud: Cloud) -> None:
    expected = {"fluentbit-gke", "gke-metrics-agent", "ip-masq-agent", "kube-proxy", "pdcsi-node"}

    def by_node() -> dict[str, list[Object]]:
        pods = [pod for pod in cloud.pods(namespace="kube-system") if pod["status"]["phase"] == "Running"]
        names = [node["metadata"]["name"] for node in cloud.nodes("system")]
        return {name: [pod for pod in pods if pod["spec"]["nodeName"] == name] for name in names}

    until(lambda: all({pod["metadata"]["labels"]["k8s-app"] for pod in p} == expected for p in by_node().values()))
    for pods in by_node().values():
        requests = [c["resources"]["requests"]["cpu"] for pod in pods for c in pod["spec"]["containers"]]
        assert sum(map(parse_quantity, requests)) == parse_quantity("244m")


def test_a_pool_grows_from_zero_to_its_maximum_and_not_beyond(cloud: Cloud) -> None:
    cloud.store.save_pool(L4)
    time.sleep(1)
    assert cloud.report("l4")["nodes"] == 0
    # 3 nodes of 2 GPUs: 6 of 8 pods run, without a node too many on the way.
    cloud.run("train", gpus=1, copies=8)
    until(lambda: len(cloud.running("train")) == 6)
    time.sleep(2)
    assert len(cloud.running("train")) == 6
    report = cloud.report("l4")
    assert (report["nodes"], report["max_nodes"], report["gpus"], report["gpus_in_use"]) == (3, 3, 6, 6)
    zones = [node["metadata"]["labels"]["topology.kubernetes.io/zone"] for node in cloud.nodes("l4")]
    assert set(zones) == set(ZONES)


def test_pending_pods_share_the_nodes_that_are_to_come(cloud: Cloud) -> None:
    cloud.store.save_pool(L4)
    cloud.run("pair", gpus=1, copies=2)
    until(lambda: len(cloud.running("pair")) == 2)
    time.sleep(1.5)
    assert cloud.report("l4")["nodes"] == 1


def test_the_cheapest_pool_that_fits_grows(cloud: Cloud) -> None:
    cloud.store.save_pool(replace(L4, name="dear", machine_type="g2-standard-96", gpu=PoolGpu("nvidia-l4", 8)))
    cloud.store.save_pool(L4)
    cloud.run("one", gpus=1)
    until(lambda: len(cloud.running("one")) == 1)
    assert (cloud.report("dear")["nodes"], cloud.report("l4")["nodes"]) == (0, 1)
    cloud.run("eight", gpus=8)
    until(lambda: len(cloud.running("eight")) == 1)
    assert cloud.report("dear")["nodes"] == 1


def test_too_many_gpus_stay_pending_and_grow_nothing(cloud: Cloud) -> None:
    cloud.store.save_pool(L4)
    cloud.run("greedy", gpus=3)
    time.sleep(3)
    assert not cloud.running("greedy")
    assert cloud.report("l4")["nodes"] == 0


def test_a_cpu_pod_is_never_on_a_gpu_node(cloud: Cloud) -> None:
    cloud.store.save_pool(replace(L4, min_nodes=1, initial_nodes=1))
    until(lambda: len(cloud.nodes("l4")) == 1)
    cloud.run("cpu", copies=20)
    until(lambda: len(cloud.running("cpu")) == 20)
    gpu_nodes = {node["metadata"]["name"] for node in cloud.nodes("l4")}
    assert not gpu_nodes & {pod["spec"]["nodeName"] for pod in cloud.running("cpu")}


def test_idle_nodes_go_and_busy_ones_stay(cloud: Cloud) -> None:
    cloud.store.save_pool(L4)
    cloud.run("short", gpus=2)
    cloud.run("long", gpus=2)
    until(lambda: len(cloud.running("short") + cloud.running("long")) == 2)
    home = cloud.running("long")[0]["spec"]["nodeName"]
    cloud.stop("short")
    until(lambda: len(cloud.nodes("l4")) == 1)
    time.sleep(SCALE_DOWN_SECONDS + 2)
    assert [node["metadata"]["name"] for node in cloud.nodes("l4")] == [home]
    assert len(cloud.running("long")) == 1
    cloud.stop("long")
    until(lambda: not cloud.nodes("l4"))


def test_history_remembers_where_a_job_ran_until_the_job_is_gone(cloud: Cloud) -> None:
    cloud.store.save_pool(L4)
    container = {"name": "main", "image": "busybox", "resources": {"limits": {GPU_RESOURCE: "1"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    cloud.api.create(jobs, {"metadata": {"name": "remembered"}, "spec": {"template": template}})

    def entries() -> list[Object]:
        return [entry for entry in gke.history(cloud.rehearsal) if entry["owner_name"] == "remembered"]

    until(lambda: bool(entries()))
    entry = entries()[0]
    assert (entry["owner_kind"], entry["pool"], entry["phase"]) == ("Job", "l4", "Succeeded")
    assert entry["node"].startswith("gke-ml-l4-")
    until(lambda: not cloud.nodes("l4"))
    assert entries()
    cloud.api.delete(f"{jobs}/remembered")
    until(lambda: not entries())


def test_gpus_come_and_go_with_the_operator(cloud: Cloud) -> None:
    cloud.store.save_pool(OPERATED)
    until(lambda: len(cloud.nodes("operated")) == 1)
    cloud.run("waiting", gpus=1)
    time.sleep(2)
    assert cloud.gpus("operated") == [0]
    assert not cloud.running("waiting")
    assert "nvidia.com/gpu.product" not in cloud.nodes("operated")[0]["metadata"]["labels"]

    record_operator(cloud)
    until(lambda: cloud.gpus("operated") == [2] and len(cloud.running("waiting")) == 1)
    labels = cloud.nodes("operated")[0]["metadata"]["labels"]
    assert labels["nvidia.com/gpu.product"] == "NVIDIA-L4"
    assert labels["nvidia.com/gpu.count"] == "2"
    assert labels["nvidia.com/gpu.present"] == "true"
    assert labels["node-type"] == "training"

    cloud.stop("waiting")
    next(cloud.rehearsal.releases_dir.glob("*.json")).unlink()
    until(lambda: cloud.gpus("operated") == [0])
    assert "nvidia.com/gpu.product" not in cloud.nodes("operated")[0]["metadata"]["labels"]


@pytest.mark.parametrize(
    "values",
    [{"devicePlugin": {"enabled": False}}, {"daemonsets": {"tolerations": []}}],
    ids=["no device plugin", "its pods are kept off by the taint"],
)
def test_an_operator_that_cannot_advertise_gives_no_gpus(cloud: Cloud, values: dict[str, Any]) -> None:
    cloud.store.save_pool(OPERATED)
    record_operator(cloud, **values)
    until(lambda: len(cloud.nodes("operated")) == 1)
    time.sleep(1.5)
    assert cloud.gpus("operated") == [0]


def test_gpus_that_gke_manages_are_there_at_once_without_the_operators_labels(cloud: Cloud) -> None:
    cloud.store.save_pool(replace(L4, min_nodes=1, initial_nodes=1))
    until(lambda: cloud.gpus("l4") == [2])
    labels = cloud.nodes("l4")[0]["metadata"]["labels"]
    assert labels["cloud.google.com/gke-accelerator"] == "nvidia-l4"
    assert not [key for key in labels if key.startswith("nvidia.com/")]


@pytest.mark.parametrize(
    ("gpu", "gpus", "labels"),
    [
        (
            PoolGpu("nvidia-tesla-a100", 1, partition_size="1g.5gb"),
            7,
            {"gke-gpu-partition-size": "1g.5gb"},
        ),
        (
            PoolGpu("nvidia-tesla-a100", 1, sharing_strategy="TIME_SHARING", max_shared_clients=4),
            4,
            {"gke-gpu-sharing-strategy": "time-sharing", "gke-max-shared-clients-per-gpu": "4"},
        ),
        (
            PoolGpu("nvidia-tesla-a100", 1, None, "3g.20gb", "MPS", 5),
            10,
            {"gke-gpu-partition-size": "3g.20gb", "gke-gpu-sharing-strategy": "mps"},
        ),
    ],
    ids=["MIG", "time-sharing", "MPS on MIG"],
)
def test_partitions_and_sharing_change_what_nodes_offer(
    cloud: Cloud, gpu: PoolGpu, gpus: int, labels: dict[str, str]
) -> None:
    pool = replace(
        L4,
        name="cut",
        machine_type="a2-highgpu-1g",
        min_nodes=1,
        max_nodes=1,
        initial_nodes=1,
        zones=ZONES[:1],
        gpu=gpu,
    )
    cloud.store.save_pool(pool)
    until(lambda: cloud.gpus("cut") == [gpus])
    found = cloud.nodes("cut")[0]["metadata"]["labels"]
    assert {f"cloud.google.com/{key}": value for key, value in labels.items()}.items() <= found.items()


def test_how_a_node_was_bought_is_on_its_labels(cloud: Cloud) -> None:
    one = replace(L4, min_nodes=1, max_nodes=1, initial_nodes=1)
    cloud.store.save_pool(replace(one, name="spot", spot=True))
    cloud.store.save_pool(replace(one, name="flex", flex_start=True))
    cloud.store.save_pool(replace(one, name="reserved", reservation="projects/p/reservations/mine/reservationBlocks/b"))
    until(lambda: all(len(cloud.nodes(name)) == 1 for name in ("spot", "flex", "reserved")))
    expected = {
        "spot": {"gke-spot": "true"},
        "flex": {"gke-flex-start": "true"},
        "reserved": {"reservation-name": "mine"},
    }
    for name, labels in expected.items():
        found = cloud.nodes(name)[0]["metadata"]["labels"]
        ways = ("gke-spot", "gke-flex-start", "reservation-name")
        have = {way: found[f"cloud.google.com/{way}"] for way in ways if f"cloud.google.com/{way}" in found}
        assert have == labels


def test_queued_nodes_do_not_come_for_a_pod(cloud: Cloud) -> None:
    cloud.store.save_pool(replace(L4, name="queued", queued=True))
    tolerate = [
        {"key": GPU_RESOURCE, "operator": "Exists"},
        {"key": "cloud.google.com/gke-queued", "operator": "Exists"},
    ]
    cloud.run("plain", gpus=1, tolerations=tolerate)
    time.sleep(3)
    assert cloud.report("queued")["nodes"] == 0
    cloud.store.save_pool(L4)
    until(lambda: len(cloud.running("plain")) == 1)
    assert (cloud.report("queued")["nodes"], cloud.report("l4")["nodes"]) == (0, 1)


def test_a_pool_that_takes_any_zone_need_not_fill_them_alike(cloud: Cloud) -> None:
    cloud.store.save_pool(replace(L4, location_policy="ANY"))
    cloud.run("many", gpus=2, copies=3)
    until(lambda: len(cloud.running("many")) == 3)
    assert {node["metadata"]["labels"]["topology.kubernetes.io/zone"] for node in cloud.nodes("l4")} == {ZONES[0]}


def test_an_update_of_labels_and_taints_reaches_the_nodes(cloud: Cloud) -> None:
    pool = replace(L4, min_nodes=1, initial_nodes=1, labels={"old": "1", "kept": "1"})
    cloud.store.save_pool(pool)
    until(lambda: len(cloud.nodes("l4")) == 1)
    before = cloud.nodes("l4")[0]["metadata"]["uid"]
    taint = {"key": "team", "value": "a", "effect": "NoExecute"}
    cloud.store.save_pool(replace(pool, labels={"new": "1", "kept": "2"}, taints=(GPU_TAINT, taint)))
    until(lambda: cloud.nodes("l4")[0]["metadata"]["labels"].get("new") == "1")
    node = cloud.nodes("l4")[0]
    assert node["metadata"]["uid"] == before
    assert "old" not in node["metadata"]["labels"]
    assert node["metadata"]["labels"]["kept"] == "2"
    assert taint in node["spec"]["taints"]


def test_a_restart_finds_everything_as_it_was(cloud: Cloud) -> None:
    cloud.store.save_pool(L4)
    cloud.run("kept", gpus=2)
    until(lambda: len(cloud.running("kept")) == 1)
    before = {node["metadata"]["uid"] for pool in ("system", "l4") for node in cloud.nodes(pool)}
    gke.stop(cloud.rehearsal)
    assert not gke.process(cloud.rehearsal).running
    gke.start(cloud.rehearsal)
    gke.start(cloud.rehearsal)
    assert gke.process(cloud.rehearsal).running
    time.sleep(2)
    assert {node["metadata"]["uid"] for pool in ("system", "l4") for node in cloud.nodes(pool)} == before


def test_how_long_a_node_may_idle_is_a_number(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SCALE_DOWN_VARIABLE, "soon")
    with pytest.raises(RehearsalError, match="is a number of seconds, and not 'soon'"):
        gke.start(cloud.rehearsal)


def test_a_pid_that_is_not_ours_is_left_alone(cloud: Cloud) -> None:
    known = cloud.rehearsal.gke_dir / "supervisor.json"
    saved = known.read_text()
    known.write_text(json.dumps({"pid": 1, "create_time": 0}))
    try:
        assert not gke.process(cloud.rehearsal).running
    finally:
        known.write_text(saved)
    assert gke.process(cloud.rehearsal).running
