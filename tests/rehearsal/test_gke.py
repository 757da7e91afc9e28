"""The simulated GKE on a real control plane: nodes as declared, GPUs when they are due, pools that scale."""

import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from ml_foundations.catalog.machine_types import machine_type
from ml_foundations.catalog.node_resources import allocatable
from ml_foundations.catalog.pools import PoolGpu
from ml_foundations.gpu.agents import agent_namespace
from ml_foundations.kubernetes.labels import GPU_RESOURCE, INGRESS_CLASS
from ml_foundations.kubernetes.quantities import parse_quantity
from ml_foundations.rehearsal.api import NODES, ApiError
from ml_foundations.rehearsal.cloud import daemon, imported_nodes, load_balancers, volumes
from ml_foundations.rehearsal.cloud.cluster import OTHERS
from ml_foundations.rehearsal.cloud.daemon import SCALE_DOWN_VARIABLE
from ml_foundations.rehearsal.cloud.store import ASSUMED
from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.report import contents

from tests import factories
from tests.factories import claim
from tests.support.cluster import Cluster
from tests.support.controlled import cluster_of
from tests.support.event_log import event_log
from tests.support.simulation import (
    GPU_TAINT,
    L4,
    ONE_L4,
    OPERATED,
    SYSTEM,
    ZONES,
    Cloud,
    Object,
    clean,
    simulated_gke,
)
from tests.support.waiting import until

SCALE_DOWN_SECONDS = 3


@pytest.fixture(scope="module")
def running(cluster: Cluster) -> Iterator[Cloud]:
    """A simulated GKE of this module's own: idle nodes go after seconds, and others need them for longer."""
    inputs = {"name": "ml", "workloadIdentityConfig": {"workloadPool": "p"}}
    with simulated_gke(cluster, inputs, SCALE_DOWN_SECONDS) as cloud:
        yield cloud


@pytest.fixture
def cloud(running: Cloud) -> Iterator[Cloud]:
    yield running
    clean(running)


PRODUCT, ACCELERATOR = "nvidia.com/gpu.product", "cloud.google.com/gke-accelerator"
FROM_FILE = {"env": [{"name": "RUNTIME_CONFIG_SOURCE", "value": "file"}]}


def record_operator(cloud: Cloud, **values: Any) -> None:
    cloud.record_release("gpu-operator", "gpu-operator", **{"toolkit": FROM_FILE} | values)


def test_nodes_are_as_their_pool_declares_them(cloud: Cloud) -> None:
    found = cloud.nodes("system")
    expected = allocatable(machine_type("n2-standard-4"))
    assert zones(cloud, "system") == set(ZONES)
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


def zones(cloud: Cloud, pool: str) -> set[str]:
    return {labels["topology.kubernetes.io/zone"] for labels in cloud.labels(pool)}


def test_a_critical_pod_wants_a_quota_for_it(cloud: Cloud) -> None:
    pods = factories.template(priorityClassName="system-node-critical")
    agent = factories.pod("agent", pods) | {"metadata": {"name": "agent"}}
    namespace, quota = (
        part.manifest or {} for part in agent_namespace("agents", "critical-pods", 1)
    )
    cloud.api.ensure("/api/v1/namespaces", dict(namespace))

    def is_admitted() -> bool:
        try:
            cloud.api.create("/api/v1/namespaces/agents/pods", agent)
        except ApiError as error:
            # The API server hears of the quota a moment later, and counts what it holds then.
            assert re.search("insufficient quota|status unknown for quota", str(error)), error
            return False
        return True

    try:
        account = "/api/v1/namespaces/agents/serviceaccounts/default"
        until(lambda: cloud.api.find(account) is not None)
        with pytest.raises(ApiError, match="insufficient quota to match these scopes"):
            cloud.api.create("/api/v1/namespaces/agents/pods", agent)
        cloud.api.ensure("/api/v1/namespaces/agents/resourcequotas", dict(quota))
        until(is_admitted)
    finally:
        # A pod that stays would keep the next module from its start.
        cloud.api.delete("/api/v1/namespaces/agents")


def ready_conditions(cloud: Cloud, node: Object) -> list[Object]:
    status = cloud.api.get(f"/api/v1/nodes/{node['metadata']['name']}")["status"]
    return [condition for condition in status.get("conditions", []) if condition["type"] == "Ready"]


def test_system_daemonsets_take_their_part_of_every_node(cloud: Cloud) -> None:
    expected = {"fluentbit-gke", "gke-metrics-agent", "ip-masq-agent", "kube-proxy", "pdcsi-node"}

    def by_node() -> dict[str, list[Object]]:
        found: dict[str, list[Object]] = {}
        for pod in cloud.pods(namespace="kube-system"):
            if pod["status"]["phase"] == "Running":
                found.setdefault(pod["spec"]["nodeName"], []).append(pod)
        names = [node["metadata"]["name"] for node in cloud.nodes("system")]
        return {name: found.get(name, []) for name in names}

    def apps() -> list[set[str]]:
        return [
            {pod["metadata"]["labels"]["k8s-app"] for pod in pods} for pods in by_node().values()
        ]

    until(lambda: all(found == expected for found in apps()))
    for pods in by_node().values():
        requests = [
            c["resources"]["requests"]["cpu"] for pod in pods for c in pod["spec"]["containers"]
        ]
        assert sum(map(parse_quantity, requests)) == parse_quantity("244m")


def test_pods_of_gkes_daemon_sets_are_ignored(cloud: Cloud) -> None:
    def pods(**query: str) -> list[str]:
        found = cloud.api.get("/api/v1/namespaces/kube-system/pods", **query)["items"]
        return [pod["metadata"]["labels"]["k8s-app"] for pod in found]

    path = "/apis/apps/v1/namespaces/kube-system/daemonsets"
    made = factories.daemon_set("of-others", factories.template({"k8s-app": "netd"}))
    cloud.api.create(path, made | {"metadata": {"name": "of-others"}})
    until(lambda: pods(labelSelector=OTHERS) == ["netd"] * 2 and "kube-proxy" in pods())
    cloud.api.delete(f"{path}/of-others")
    until(lambda: not pods(labelSelector=OTHERS))


def test_a_pool_grows_from_zero_to_its_maximum_and_not_beyond(cloud: Cloud) -> None:
    cloud.store.save_pool(L4)
    time.sleep(1)
    assert cloud.report("l4")["nodes"] == 0
    # 3 nodes of 2 GPUs: 6 of 8 pods run, without a node too many on the way.
    cloud.run("train", gpus=1, copies=8)
    until(lambda: len(cloud.running("train")) == 6)
    time.sleep(2)
    assert len(cloud.running("train")) == 6
    expected = {"nodes": 3, "max_nodes": 3, "gpus": 6, "gpus_in_use": 6}
    assert expected.items() <= cloud.report("l4").items()
    assert zones(cloud, "l4") == set(ZONES)


def test_pending_pods_share_the_nodes_that_are_to_come(cloud: Cloud) -> None:
    cloud.store.save_pool(L4)
    cloud.run("pair", gpus=1, copies=2)
    until(lambda: len(cloud.running("pair")) == 2)
    time.sleep(1.5)
    assert cloud.report("l4")["nodes"] == 1


def test_a_waiting_pod_runs_on_the_first_node_of_a_pool(cloud: Cloud) -> None:
    cloud.run("early", gpus=1)
    until(lambda: all("conditions" in pod["status"] for pod in cloud.pods("run=early")))
    cloud.store.save_pool(ONE_L4)
    until(lambda: len(cloud.running("early")) == 1)
    assert (len(cloud.nodes("l4")), cloud.store.get("sizes", {})["l4"]) == (1, 1)


def test_the_cheapest_pool_that_fits_grows(cloud: Cloud) -> None:
    cloud.store.save_pool(
        replace(L4, name="dear", machine_type="g2-standard-96", gpu=PoolGpu("nvidia-l4", 8))
    )
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


def test_a_program_without_nodes_gets_default_nodes(cloud: Cloud) -> None:
    cluster = cloud.store.clusters()["ml"]
    cloud.store.delete("clusters", "ml")
    cloud.store.delete("node_pools", "system")
    try:
        until(lambda: not cloud.nodes("system"))
        cloud.run("plain")
        until(lambda: len(cloud.running("plain")) == 1)
        until(lambda: len(cloud.nodes(ASSUMED.name)) == ASSUMED.max_nodes)
    finally:
        cloud.store.save("clusters", cluster["id"], cluster)
        cloud.store.save_pool(SYSTEM)
    until(lambda: len(cloud.nodes("system")) == 2 and not cloud.nodes(ASSUMED.name))
    assert ASSUMED.name not in cloud.store.pools()


def test_a_cpu_pod_is_never_on_a_gpu_node(cloud: Cloud) -> None:
    cloud.store.save_pool(ONE_L4)
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


def test_history_keeps_a_jobs_nodes_until_the_job_is_gone(cloud: Cloud) -> None:
    cloud.store.save_pool(L4)
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    remembered = factories.job(
        "remembered", 1, factories.template(containers=[factories.container(gpu=1)])
    )
    job = cloud.api.create(jobs, remembered | {"metadata": {"name": "remembered"}})

    def ran_on() -> dict[str, str]:
        return cloud.store.get("ran_on", {}).get(job["metadata"]["uid"], {})

    until(lambda: bool(ran_on()))
    [(node, pool)] = ran_on().items()
    assert pool == "l4"
    assert node.startswith("gke-ml-l4-")
    until(lambda: not cloud.nodes("l4"))
    assert ran_on()
    cloud.api.delete(f"{jobs}/remembered")
    until(lambda: not ran_on())


def test_gpus_come_and_go_with_the_operator(cloud: Cloud) -> None:
    cloud.store.save_pool(OPERATED)
    until(lambda: len(cloud.nodes("operated")) == 1)
    cloud.run("waiting", gpus=1)
    time.sleep(2)
    assert cloud.gpus("operated") == [0]
    assert not cloud.running("waiting")
    assert PRODUCT not in cloud.labels("operated")[0]

    record_operator(cloud)
    until(lambda: cloud.gpus("operated") == [2] and len(cloud.running("waiting")) == 1)
    of_gpus = {PRODUCT: "NVIDIA-L4", "nvidia.com/gpu.count": "2", "nvidia.com/gpu.present": "true"}
    assert (of_gpus | {"node-type": "training"}).items() <= cloud.labels("operated")[0].items()

    cloud.stop("waiting")
    next(cloud.rehearsal.releases_dir.glob("*.json")).unlink()
    until(lambda: cloud.gpus("operated") == [0])
    assert PRODUCT not in cloud.labels("operated")[0]


@pytest.mark.parametrize(
    "values",
    [{"devicePlugin": {"enabled": False}}, {"daemonsets": {"tolerations": []}}, {"toolkit": {}}],
    ids=["no device plugin", "its pods are kept off by the taint", "its toolkit breaks networking"],
)
def test_an_operator_that_cannot_advertise_gives_no_gpus(
    cloud: Cloud, values: dict[str, Any]
) -> None:
    cloud.store.save_pool(OPERATED)
    record_operator(cloud, **values)
    until(lambda: len(cloud.nodes("operated")) == 1)
    time.sleep(1.5)
    assert cloud.gpus("operated") == [0]


def test_a_toolkit_that_asks_containerd_breaks_managed_nodes(cloud: Cloud) -> None:
    cloud.store.save_pool(ONE_L4)
    record_operator(cloud)
    until(lambda: cloud.gpus("l4") == [2])
    command = {"name": "RUNTIME_CONFIG_SOURCE", "value": "command,file"}
    record_operator(cloud, toolkit={"env": [command]})
    until(lambda: cloud.gpus("l4") == [0])
    record_operator(cloud)
    until(lambda: cloud.gpus("l4") == [2])


@pytest.mark.parametrize(
    "inputs", [None, {"releaseChannel": {"channel": "EXTENDED"}}], ids=["no cluster", "extended"]
)
def test_a_toolkit_breaks_nothing_where_the_proof_only_warns(cloud: Cloud, inputs: Any) -> None:
    before = cloud.store.clusters()["ml"]
    if inputs is None:
        cloud.store.delete("clusters", "ml")
    else:
        cloud.store.save("clusters", "ml", before | {"inputs": before["inputs"] | inputs})
    try:
        cloud.store.save_pool(OPERATED)
        record_operator(cloud, toolkit={})
        until(lambda: cloud.gpus("operated") == [2])
    finally:
        cloud.store.save("clusters", "ml", before)
    until(lambda: cloud.gpus("operated") == [0])


def test_a_driver_that_does_not_support_the_gpus_gives_none(cloud: Cloud) -> None:
    v100 = PoolGpu("nvidia-tesla-v100", 2, "INSTALLATION_DISABLED")
    cloud.store.save_pool(replace(OPERATED, machine_type="n1-standard-8", gpu=v100))
    record_operator(cloud)
    until(lambda: len(cloud.nodes("operated")) == 1)
    time.sleep(1.5)
    assert cloud.gpus("operated") == [0]
    assert PRODUCT not in cloud.labels("operated")[0]
    record_operator(cloud, driver={"version": "580.126.20"})
    until(lambda: cloud.gpus("operated") == [2])


def test_gpus_managed_by_gke_need_no_operator_labels(cloud: Cloud) -> None:
    cloud.store.save_pool(ONE_L4)
    until(lambda: cloud.gpus("l4") == [2])
    [labels] = cloud.labels("l4")
    assert labels[ACCELERATOR] == "nvidia-l4"
    assert not [key for key in labels if key.startswith("nvidia.com/")]


MIG, STRATEGY = "gke-gpu-partition-size", "gke-gpu-sharing-strategy"


@pytest.mark.parametrize(
    ("cut", "gpus", "labels"),
    [
        ({"partition_size": "1g.5gb"}, 7, {MIG: "1g.5gb"}),
        (
            {"sharing_strategy": "TIME_SHARING", "clients": 4},
            4,
            {STRATEGY: "time-sharing", "gke-max-shared-clients-per-gpu": "4"},
        ),
        (
            {"partition_size": "3g.20gb", "sharing_strategy": "MPS", "clients": 5},
            10,
            {MIG: "3g.20gb", STRATEGY: "mps"},
        ),
    ],
    ids=["MIG", "time-sharing", "MPS on MIG"],
)
def test_partitions_and_sharing_change_what_nodes_offer(
    cloud: Cloud, cut: dict[str, Any], gpus: int, labels: dict[str, str]
) -> None:
    gpu = PoolGpu("nvidia-tesla-a100", 1, **cut)
    place = {"machine_type": "a2-highgpu-1g", "max_nodes": 1, "zones": ZONES[:1]}
    cloud.store.save_pool(replace(ONE_L4, name="cut", gpu=gpu, **place))
    until(lambda: cloud.gpus("cut") == [gpus])
    wanted = {f"cloud.google.com/{key}": value for key, value in labels.items()}
    assert wanted.items() <= cloud.labels("cut")[0].items()


def test_how_a_node_was_bought_is_on_its_labels(cloud: Cloud) -> None:
    one = replace(ONE_L4, max_nodes=1)
    block = "projects/p/reservations/mine/reservationBlocks/b"
    bought: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
        "spot": ({"spot": True}, {"gke-spot": "true"}),
        "flex": ({"flex_start": True}, {"gke-flex-start": "true"}),
        "reserved": ({"reservation": block}, {"reservation-name": "mine"}),
    }
    for name, (way, _) in bought.items():
        cloud.store.save_pool(replace(one, name=name, **way))
    until(lambda: all(len(cloud.nodes(name)) == 1 for name in bought))
    ways = {f"cloud.google.com/{key}": key for _, labels in bought.values() for key in labels}
    for name, (_, labels) in bought.items():
        [found] = cloud.labels(name)
        assert {ways[key]: found[key] for key in ways.keys() & found.keys()} == labels


def test_a_preempted_node_ends_its_pods_in_time(cloud: Cloud) -> None:
    cloud.store.save_pool(replace(ONE_L4, name="spot", max_nodes=1, spot=True, shutdown_grace=4))
    until(lambda: len(cloud.nodes("spot")) == 1)
    here = {
        "nodeSelector": {"cloud.google.com/gke-spot": "true"},
        "tolerations": [{"operator": "Exists"}],
    }
    # In this order, so that the quick one ends first even if both end in one round of a busy daemon.
    cloud.run("quick", terminationGracePeriodSeconds=1, **here)
    cloud.run("patient", terminationGracePeriodSeconds=600, **here)
    until(lambda: cloud.running("patient") and cloud.running("quick"))
    [node] = cloud.nodes("spot")
    taint = {"key": "cloud.google.com/impending-node-termination", "effect": "NoSchedule"}
    name, taints = node["metadata"]["name"], [*node["spec"].get("taints", []), taint]
    with event_log(cloud.api, "/api/v1/namespaces/default/pods") as events:
        began = time.monotonic()
        cloud.api.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": taints}})
        until(lambda: not cloud.running("patient"))
        assert time.monotonic() - began >= 4, "it has the time that the pool leaves"
        until(lambda: "patient" in ended(events))
    assert ended(events)[0] == "quick"
    assert {pod["status"].get("reason") for pod in cloud.pods("run=patient")} <= {"Terminated"}
    until(lambda: [each["metadata"]["name"] for each in cloud.nodes("spot")] not in ([], [name]))


def ended(events: list[Object]) -> list[str]:
    """The pods that no longer run, in the order of their ends."""
    pods = [event["object"] for event in events if event["object"]["status"]["phase"] != "Running"]
    return [pod["metadata"]["labels"]["run"] for pod in pods]


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
    assert zones(cloud, "l4") == {ZONES[0]}


def test_an_update_of_labels_and_taints_reaches_the_nodes(cloud: Cloud) -> None:
    pool = replace(ONE_L4, labels={"old": "1", "kept": "1"})
    cloud.store.save_pool(pool)
    until(lambda: len(cloud.nodes("l4")) == 1)
    before = cloud.nodes("l4")[0]["metadata"]["uid"]
    taint = {"key": "team", "value": "a", "effect": "NoExecute"}
    cloud.store.save_pool(
        replace(pool, labels={"new": "1", "kept": "2"}, taints=(GPU_TAINT, taint))
    )
    until(lambda: cloud.labels("l4")[0].get("new") == "1")
    [node] = cloud.nodes("l4")
    assert node["metadata"]["uid"] == before
    assert "old" not in cloud.labels("l4")[0]
    assert cloud.labels("l4")[0]["kept"] == "2"
    assert taint in node["spec"]["taints"]


def test_a_restart_finds_everything_as_it_was(cloud: Cloud) -> None:
    cloud.store.save_pool(L4)
    cloud.run("kept", gpus=2)
    until(lambda: len(cloud.running("kept")) == 1)

    def uids() -> set[str]:
        return {node["metadata"]["uid"] for pool in ("system", "l4") for node in cloud.nodes(pool)}

    before = uids()
    daemon.stop(cloud.rehearsal)
    assert not daemon.process(cloud.rehearsal).running
    daemon.start(cloud.rehearsal)
    daemon.start(cloud.rehearsal)
    assert daemon.process(cloud.rehearsal).running
    time.sleep(2)
    assert uids() == before


def test_the_daemon_restarts_if_its_address_or_code_changes(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = daemon.process(cloud.rehearsal).pid
    daemon.start(cloud.rehearsal)
    assert daemon.process(cloud.rehearsal).pid == before
    kubeconfig = cloud.rehearsal.kubeconfig.read_text()
    try:
        cloud.rehearsal.kubeconfig.write_text(f"{kubeconfig}# another port\n")
        daemon.start(cloud.rehearsal)
        second = daemon.process(cloud.rehearsal).pid
        assert second != before
    finally:
        cloud.rehearsal.kubeconfig.write_text(kubeconfig)
    daemon.start(cloud.rehearsal)
    third = daemon.process(cloud.rehearsal).pid
    with monkeypatch.context() as patched:
        patched.setattr(daemon, "_sources", lambda: [Path(__file__)])
        daemon.start(cloud.rehearsal)
    assert daemon.process(cloud.rehearsal).pid != third
    code = {path.name for path in daemon._sources()}
    assert {"supervisor.py", "addons.yaml", "api.py", "quantities.py", "machine_types.csv"} <= code


def test_how_long_a_node_may_idle_is_a_number(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SCALE_DOWN_VARIABLE, "soon")
    with pytest.raises(RehearsalError, match="must be a number of seconds, not 'soon'"):
        daemon.start(cloud.rehearsal)


def test_a_pid_that_is_not_ours_is_left_alone(cloud: Cloud) -> None:
    known = daemon.process(cloud.rehearsal).file
    saved = known.read_text()
    known.write_text("1")
    try:
        assert not daemon.process(cloud.rehearsal).running
    finally:
        known.write_text(saved)
    assert daemon.process(cloud.rehearsal).running


OWN_NODE = """
apiVersion: v1
kind: Node
metadata:
  annotations:
    container.googleapis.com/instance_id: "4711"
    csi.volume.kubernetes.io/nodeid: '{"pd.csi.storage.gke.io":"projects/p/zones/z/instances/a"}'
    node.alpha.kubernetes.io/ttl: "0"
    node.gke.io/last-applied-node-labels: cloud.google.com/gke-nodepool=POOL
    node.gke.io/last-applied-node-taints: nvidia.com/gpu=present:NoSchedule
    volumes.kubernetes.io/controller-managed-attach-detach: "true"
  creationTimestamp: "2026-08-01T08:00:00Z"
  labels:
    cloud.google.com/gke-accelerator: nvidia-l4
    cloud.google.com/gke-nodepool: POOL
    kubernetes.io/hostname: NAME
    kubernetes.io/os: linux
    node.kubernetes.io/instance-type: g2-custom-8-32768
    topology.gke.io/zone: us-central1-a
    topology.kubernetes.io/zone: us-central1-a
  managedFields: [{manager: kubelet, operation: Update, apiVersion: v1, time: "2026-08-01T08:00:00Z"}]
  name: NAME
  resourceVersion: "123456"
  uid: 0b9a8f0e-0000-4000-8000-000000000000
spec:
  podCIDR: 10.4.2.0/24
  podCIDRs: [10.4.2.0/24]
  providerID: gce://p/us-central1-a/NAME
  taints: [{key: nvidia.com/gpu, value: present, effect: NoSchedule}]
status:
  addresses: [{address: 10.128.0.7, type: InternalIP}, {address: NAME, type: Hostname}]
  allocatable: {cpu: 7910m, ephemeral-storage: "47060071478", hugepages-2Mi: "0", memory: 29074448Ki, pods: "110"}
  capacity: {cpu: "8", ephemeral-storage: 98831908Ki, hugepages-2Mi: "0", memory: 32865744Ki, pods: "110"}
  conditions:
  - {lastHeartbeatTime: &now "2026-08-01T08:00:00Z", lastTransitionTime: *now, status: "True", type: Ready}
  - {lastHeartbeatTime: *now, lastTransitionTime: *now, status: "False", type: DiskPressure}
  daemonEndpoints: {kubeletEndpoint: {Port: 10250}}
  images: [{names: ["gke.gcr.io/pause:3.10"], sizeBytes: 318731}]
  nodeInfo: {kubeletVersion: v1.33.2-gke.1111000, operatingSystem: linux}
  volumesInUse: ["kubernetes.io/csi/pd.csi.storage.gke.io^a"]
"""


def own_node(name: str, pool: str, gpus: int = 1, **node_labels: str) -> Object:
    """A node of one's own cluster, as ``kubectl get nodes -o yaml`` prints it."""
    node = yaml.safe_load(OWN_NODE.replace("NAME", name).replace("POOL", pool))
    node["metadata"]["labels"] |= node_labels
    for part in ("capacity", "allocatable") if gpus else ():
        node["status"][part][GPU_RESOURCE] = str(gpus)
    return node


@pytest.fixture
def bring(cloud: Cloud, tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Copy nodes of one's own cluster into the replica; they go at the end."""

    def bring(*own: Object) -> None:
        (tmp_path / "nodes.yaml").write_text(json.dumps({"kind": "List", "items": own}))
        imported_nodes.copy(cloud.rehearsal, tmp_path / "nodes.yaml")

    yield bring
    for node in cloud.api.get("/api/v1/nodes")["items"]:
        if node["metadata"]["name"].startswith("gke-own-"):
            imported_nodes.remove(cloud.api, node["metadata"]["name"])


def on_gpus(pool: str) -> Object:
    """What sends a pod to the GPU nodes of a pool."""
    return {
        "nodeSelector": {"cloud.google.com/gke-nodepool": pool},
        "tolerations": [{"key": GPU_RESOURCE, "operator": "Exists"}],
    }


def own(cloud: Cloud, name: str) -> Object:
    return cloud.api.get(f"/api/v1/nodes/{name}")


def test_nodes_of_ones_own_pools_are_left_alone(cloud: Cloud, bring: Callable[..., None]) -> None:
    names = {"default-pool": "gke-own-default-1", "l4": "gke-own-l4-1"}
    cloud.store.save_pool(replace(L4, max_nodes=1))
    bring(*(own_node(name, pool) for pool, name in names.items()))
    cloud.run("large", gpus=2, **on_gpus("l4"))
    until(lambda: len(cloud.running("large")) == 1)
    assert cloud.running("large")[0]["spec"]["nodeName"].startswith("gke-ml-l4-"), (
        "the one node that the pool may have"
    )
    cloud.run("small", gpus=1, **on_gpus("default-pool"))
    until(lambda: len(cloud.running("small")) == 1)
    time.sleep(SCALE_DOWN_SECONDS + 2)
    for pool, name in names.items():
        node, wanted = own(cloud, name), own_node(name, pool)
        assert wanted["metadata"]["labels"].items() <= node["metadata"]["labels"].items()
        assert node["spec"]["taints"] == wanted["spec"]["taints"]
        assert not node["spec"].get("unschedulable")
    pools = contents.collect(cloud.rehearsal).pools
    sizes = [(pool["nodes"], pool["max_nodes"]) for pool in pools if pool["name"] == "l4"]
    assert sizes == [(1, 1), (1, 1)], "the declared pool, and one's own of the same name"


def test_nodes_are_brought_again_as_the_file_says_then(
    cloud: Cloud, bring: Callable[..., None]
) -> None:
    kept, gone = "gke-own-1", "gke-own-2"
    bring(
        own_node(kept, "default-pool", gpus=2, tier="old"), own_node(gone, "default-pool", gpus=4)
    )
    cloud.run("fits", gpus=4, **on_gpus("default-pool"))
    until(lambda: len(cloud.running("fits")) == 1)
    changed = own_node(kept, "default-pool", gpus=0, team="a")
    changed["spec"].pop("taints")
    bring(changed)
    node = own(cloud, kept)
    assert "tier" not in node["metadata"]["labels"]
    assert node["metadata"]["labels"]["team"] == "a"
    assert not node["spec"].get("taints")
    for part in ("capacity", "allocatable"):
        assert node["status"][part] == changed["status"][part]
    assert [condition["status"] for condition in ready_conditions(cloud, node)] == ["True"]
    assert [node["metadata"]["name"] for node in cloud.nodes("default-pool")] == [kept]
    until(lambda: not cloud.pods("run=fits"))


def test_a_claim_on_a_brought_node_gets_its_disk(cloud: Cloud, bring: Callable[..., None]) -> None:
    claims = "/api/v1/namespaces/default/persistentvolumeclaims"
    bring(own_node("gke-own-1", "default-pool"))
    data = claim("data", storageClassName="standard-rwo")
    cloud.api.create(claims, data | {"metadata": {"name": "data"}})
    try:
        mount = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
        cloud.run("mounts", gpus=1, volumes=mount, **on_gpus("default-pool"))
        until(lambda: len(cloud.running("mounts")) == 1)
    finally:
        cloud.stop("mounts")
        cloud.api.delete(f"{claims}/data")


def test_a_pool_that_cannot_be_keeps_no_other_from_its_nodes(cloud: Cloud) -> None:
    one = ONE_L4
    cloud.store.save_pool(replace(one, name="a-typo", machine_type="g2-standard-5"))
    cloud.store.save_pool(replace(one, name="b-refused", labels={"team": "not a label's value"}))
    cloud.store.save_pool(one)
    cloud.run("train", gpus=2, copies=2)
    until(lambda: len(cloud.running("train")) == 2)
    assert not cloud.nodes("a-typo") + cloud.nodes("b-refused")
    log = cloud.rehearsal.log_dir / "gke.log"
    for line in (
        "pool a-typo: will try again: UnknownNameError",
        "the number of nodes of pool b-refused: will try again: ApiError: 422",
    ):
        until(lambda line=line: line in log.read_text())


def test_an_operator_with_values_of_no_sense_changes_nothing(cloud: Cloud) -> None:
    cloud.store.save_pool(OPERATED)
    record_operator(cloud)
    until(lambda: cloud.gpus("operated") == [2])
    record_operator(cloud, devicePlugin="on")
    cloud.store.save_pool(ONE_L4)
    until(lambda: cloud.gpus("l4") == [2])
    assert cloud.gpus("operated") == [2]


def test_a_disk_that_is_refused_keeps_no_other_claim_waiting() -> None:
    """The API server may refuse a volume, whatever the reason."""
    made: list[str] = []

    class Refusing:
        def find(self, _: str) -> None:
            return None

        def ensure(self, path: str, body: Object) -> Object:
            if body["spec"]["claimRef"]["name"] == "first":
                raise ApiError(403, "no")
            made.append(body["spec"]["claimRef"]["name"])
            return body

    claims = [claim(name, storageClassName="c") for name in ("first", "second")]
    for each in claims:
        each["metadata"]["uid"] = each["metadata"]["name"]
        each["metadata"]["annotations"] = {
            volumes._PROVISIONER: volumes.PD_CSI,
            volumes._SELECTED_NODE: "gke-a",
        }
    storage_class: Object = {"metadata": {"name": "c"}, "provisioner": volumes.PD_CSI}
    node = {"metadata": own_node("gke-a", "default-pool")["metadata"]}
    live: dict[str, list[Object]] = {NODES: [node], volumes.CLAIMS: claims}
    live[volumes.CLASSES] = [storage_class]
    volumes.VolumeProvisioner(cluster_of(Refusing(), live=live)).reconcile()
    assert made == ["second"]


SERVICES = "/api/v1/namespaces/default/services"
INGRESSES = "/apis/networking.k8s.io/v1/namespaces/default/ingresses"


def load_balancer(cloud: Cloud, name: str, **spec: Any) -> None:
    spec = {"type": "LoadBalancer", "ports": [{"port": 80}]} | spec
    cloud.api.create(SERVICES, {"metadata": {"name": name}, "spec": spec})


def addresses(cloud: Cloud, path: str) -> list[str]:
    balancer = cloud.api.get(path)["status"]["loadBalancer"]
    return [entry["ip"] for entry in balancer.get("ingress", [])]


def firewalls(cloud: Cloud) -> list[str]:
    return [each["name"] for each in cloud.store.made() if each["name"].startswith("firewalls/")]


def test_load_balancers_have_an_address_each_and_keep_it(cloud: Cloud) -> None:
    load_balancer(cloud, "plain")
    load_balancer(cloud, "classed", loadBalancerClass="networking.gke.io/l4-regional-external")
    load_balancer(cloud, "foreign", loadBalancerClass="example.com/own")
    backend = {"service": {"name": "plain", "port": {"number": 80}}}
    cloud.api.create(INGRESSES, {"metadata": {"name": "web"}, "spec": {"defaultBackend": backend}})
    paths = [f"{SERVICES}/plain", f"{SERVICES}/classed", f"{INGRESSES}/web"]
    try:
        until(lambda: all(addresses(cloud, path) for path in paths))
        given = [addresses(cloud, path) for path in paths]
        assert all(len(one) == 1 and one[0].startswith("198.51.100.") for one in given)
        assert len({one[0] for one in given}) == 3
        cloud.api.patch(f"{SERVICES}/plain", {"spec": {"type": "ClusterIP"}})
        daemon.stop(cloud.rehearsal)
        daemon.start(cloud.rehearsal)
        until(lambda: [addresses(cloud, path) for path in paths] == [[], *given[1:]])
        assert not addresses(cloud, f"{SERVICES}/foreign")
        kept = ["firewalls/k8s-default-classed", "firewalls/k8s1-default-web"]
        until(lambda: [name.rpartition("-")[0] for name in firewalls(cloud)] == kept)
        cloud.api.delete(f"{SERVICES}/classed")
        until(lambda: cloud.api.find(f"{SERVICES}/classed") is None)
        assert {each["name"].split("-")[2] for each in cloud.store.made()} == {"web"}
    finally:
        for path in (*paths, f"{SERVICES}/foreign"):
            cloud.api.delete(path)
        until(lambda: not cloud.store.made())


@pytest.mark.parametrize(
    ("spec", "annotation", "served"),
    [
        ({}, None, True),
        ({}, "gce-internal", True),
        ({}, "nginx", True),
        ({}, "traefik", False),
        ({"ingressClassName": "nginx"}, None, True),
        ({"ingressClassName": "gce"}, None, False),
    ],
)
def test_an_ingress_of_an_unserved_class_gets_no_address(
    spec: dict[str, str], annotation: str | None, served: bool
) -> None:
    noted = {INGRESS_CLASS: annotation} if annotation else {}
    ingress = {"metadata": {"name": "i", "annotations": noted}, "spec": spec}
    assert load_balancers.is_served(ingress, {"nginx"}) == served


def test_an_address_follows_from_its_object() -> None:
    first = load_balancers.address("a", ())
    assert load_balancers.address("a", ()) == first
    second = load_balancers.address("a", {first})
    assert second != first
    assert load_balancers.address("a", load_balancers.ADDRESSES) == first


def test_the_autoscaler_reports_what_the_nearest_pool_lacks(cloud: Cloud) -> None:
    cloud.store.save_pool(L4)
    cloud.run("of-four-gpus", gpus=4)
    events = "/api/v1/namespaces/default/events"
    of_pod = "reason=NotTriggerScaleUp,involvedObject.name=of-four-gpus-0"
    until(lambda: cloud.api.get(events, fieldSelector=of_pod)["items"])
    *_, event = cloud.api.get(events, fieldSelector=of_pod)["items"]
    lack = (
        f'the nearest, "l4", does not take it: it needs 4 {GPU_RESOURCE}, and 2 are free, 2 short'
    )
    assert event["type"] == "Normal"
    assert event["message"].startswith("pod didn't trigger scale-up: ") and lack in event["message"]
    rows = {row.name: row.reason for row in contents.collect(cloud.rehearsal).workloads}
    assert lack in rows["of-four-gpus-0"]
