"""Gangs and capacity: the real Kueue beside the simulated GKE, whose pools have too few machines, or queue for them."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kubernetes import utils
from ml_foundations.catalog.pools import PoolGpu
from ml_foundations.rehearsal.api import NODES
from ml_foundations.rehearsal.report.contents import collect
from ml_foundations.rehearsal.tools.toolchain import Tools

from tests.factories import cluster_wide
from tests.support.cluster import Cluster
from tests.support.event_log import event_log
from tests.support.own_replica import own_replica
from tests.support.project import Project
from tests.support.project_steps import FOR_LONG, WHOLE_NODE, program
from tests.support.simulation import L4, ZONES, Cloud, Pool, simulated_gke
from tests.support.waiting import until

H100 = replace(
    L4,
    name="h100",
    machine_type="a3-highgpu-8g",
    max_nodes=4,
    zones=ZONES[:1],
    labels={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
    gpu=PoolGpu("nvidia-h100-80gb", 8),
)
QUEUED = replace(H100, name="queued", queued=True, location_policy="ANY")
REQUEST = "autoscaling.gke.io/provisioning-request"


@pytest.fixture(scope="module")
def replica(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A control plane of this module's own: Kueue and the simulated GKE are of one rehearsal, which a program changes."""
    with own_replica(tools, tmp_path_factory.mktemp("capacity")) as cluster:
        utils.create_from_dict(cluster.api, cluster_wide("v1", "Namespace", "red"))
        yield cluster


@pytest.fixture(scope="module")
def cloud(replica: Cluster) -> Iterator[Cloud]:
    with simulated_gke(replica, scale_down_seconds=3) as made:
        made.store.save_pool(H100)
        made.store.save_pool(QUEUED)
        yield made


@pytest.fixture(scope="module")
def project(replica: Cluster, tools: Tools) -> Project:
    return Project(Path(replica.rehearsal.project), replica, tools)


@pytest.fixture(autouse=True)
def clean(project: Project, cloud: Cloud) -> Iterator[None]:
    yield
    project.clear()
    cloud.store.put("stock", {})
    # A gang may run on what was made for another one.
    until(lambda: not cloud.nodes("h100") and not cloud.nodes("queued"))


def gang(pool: Pool, ready_seconds: int = 600, topology: bool = False) -> str:
    """A queue for a pool, and a Job of two pods that each take a whole node, and run until they are stopped."""
    flavor = {
        "name": pool.name,
        "gpu": "H100",
        "node_selector": {"cloud.google.com/gke-nodepool": pool.name},
        "tolerations": [{"key": "cloud.google.com/gke-queued", "value": "true"}] * pool.queued,
        "queued_provisioning": pool.queued,
    }
    levels = ["block", "sub-block", "host", "hostname"] if topology else []
    team = {"namespace": "red", "cpu": "1000", "memory": "8Ti", "gpus": {pool.name: 16}}
    queue = {"flavors": [flavor], "teams": [team], "topology": levels}
    queue["ready_seconds"] = ready_seconds
    job = WHOLE_NODE | FOR_LONG | {"namespace": "red", "queue": "training"}
    job |= {"completions": 2, "parallelism": 2}
    job |= {"topology": "required:block"} if topology else {}
    made = (
        f"from ml_foundations import TrainingQueue\nqueue = TrainingQueue('ml', {queue!r}, here)\n"
    )
    return made + program("TrainingJob", "gang", job, "options(depends_on=[queue])")


def running(cloud: Cloud) -> list[dict[str, Any]]:
    pods = cloud.pods("batch.kubernetes.io/job-name=gang", "red")
    on_nodes = [pod for pod in pods if pod["spec"].get("nodeName")]
    return [pod for pod in on_nodes if not pod["metadata"].get("deletionTimestamp")]


def state(cloud: Cloud) -> tuple[str, str]:
    """What the report says of the gang."""
    [row] = [row for row in collect(cloud.rehearsal).workloads if row.name == "gang"]
    return row.state, row.reason


def test_half_a_gang_gives_its_node_back_in_a_stockout(project: Project, cloud: Cloud) -> None:
    """The quota has room for two nodes, and Google has one: nothing runs, and nothing is paid for, until it has two."""
    cloud.store.put("stock", {"h100": 1})
    project.up(gang(H100, ready_seconds=30))
    until(lambda: len(running(cloud)) == 1 and len(cloud.nodes("h100")) == 1)
    until(lambda: not running(cloud) and not cloud.nodes("h100"))

    def has_given_up() -> bool:
        word, reason = state(cloud)
        return word == "Suspended" and "PodsReady timeout" in reason

    until(has_given_up)
    [queued] = project.kubectl("get", "workloads.kueue.x-k8s.io", "-n", "red")["items"]
    assert queued["spec"]["active"]
    # It is tried again after a minute, and again.
    assert queued["status"]["requeueState"]["count"] >= 1


def test_queued_nodes_come_for_a_request_all_at_once(project: Project, cloud: Cloud) -> None:
    cloud.store.put("stock", {"queued": 1})
    project.up(gang(QUEUED))
    until(lambda: state(cloud)[0] == "Pending" and "at once" in state(cloud)[1])
    time.sleep(4)  # longer than a request waits that can be granted
    assert not cloud.nodes("queued"), "one of two nodes would be paid for and useless"
    cloud.store.put("stock", {})
    until(lambda: len(running(cloud)) == 2)
    requests = "provisioningrequests.autoscaling.x-k8s.io"
    [request] = project.kubectl("get", requests, "-n", "red")["items"]
    assert request["spec"]["provisioningClassName"] == "queued-provisioning.gke.io"
    nodes = {node["metadata"]["name"]: node["metadata"]["labels"] for node in cloud.nodes("queued")}
    assert {labels[REQUEST] for labels in nodes.values()} == {request["metadata"]["name"]}
    assert {pod["spec"]["nodeName"] for pod in running(cloud)} == nodes.keys()
    until(lambda: state(cloud)[0] == "Running")


def test_a_topology_is_found_when_the_queued_nodes_are_there(
    project: Project, cloud: Cloud
) -> None:
    """Kueue reserves quota, waits for the nodes, and assigns domains in a second pass."""
    project.up(gang(QUEUED, topology=True))
    until(lambda: len(running(cloud)) == 2)
    [queued] = project.kubectl("get", "workloads.kueue.x-k8s.io", "-n", "red")["items"]
    [assigned] = queued["status"]["admission"]["podSetAssignments"]
    assert assigned["delayedTopologyRequest"] == "Ready"
    assert assigned["topologyAssignment"]["levels"] == ["kubernetes.io/hostname"]
    block = "cloud.google.com/gce-topology-block"
    assert len({labels[block] for labels in cloud.labels("queued")}) == 1


def test_nodes_without_a_topology_keep_a_gang_waiting(project: Project, cloud: Cloud) -> None:
    """GKE promises no labels of blocks on flex-start nodes: these are paid for, and nothing runs."""
    cloud.store.save_pool(replace(QUEUED, flex_start=True))
    selector = "cloud.google.com/gke-nodepool=queued"
    try:
        with event_log(cloud.api, NODES, labelSelector=selector) as events:
            project.up(gang(QUEUED, topology=True))
            until(lambda: "no topology domains" in state(cloud)[1])
            # An idle node goes after seconds.
            until(lambda: [event["type"] for event in events].count("ADDED") == 2)
        assert not running(cloud)
    finally:
        cloud.store.save_pool(QUEUED)


def test_nothing_else_makes_queued_nodes_grow(project: Project, cloud: Cloud) -> None:
    """Without its AdmissionCheck, the gang is let go and waits for ever."""
    project.up(gang(QUEUED).replace("'queued_provisioning': True", "'queued_provisioning': False"))
    why = "only for a ProvisioningRequest"
    until(lambda: state(cloud)[0] == "Pending" and why in state(cloud)[1])
    time.sleep(4)
    assert not running(cloud)


def l4_pool(**more: Any) -> str:
    given = {"project": "p", "location": "us-central1", "cluster_name": "ml"}
    given["node_service_account"] = "nodes@example"
    machines = {"zones": ZONES[:1], "machine_type": "g2-standard-8", "max_nodes": 2}
    return f"""
        from ml_foundations import GpuNodePool
        GpuNodePool("l4", {given | machines | more!r})
    """


def test_a_pool_of_scarce_machines_is_not_replaced_silently(project: Project, cloud: Cloud) -> None:
    """Two GPUs for one is another pool. It goes once its owner has said so, in an update before."""
    made = {**cloud.store.clusters()["ml"], "id": "projects/p/locations/us-central1/clusters/ml"}
    cloud.store.save("clusters", made["id"], made)
    try:
        change_a_scarce_pool(project, cloud)
    finally:
        cloud.store.delete("clusters", made["id"])


def change_a_scarce_pool(project: Project, cloud: Cloud) -> None:
    project.up(l4_pool())
    for command in ("preview", "up"):
        said = " ".join(project.fails(l4_pool(machine_type="g2-standard-24"), command).split())
        urn = "urn:pulumi:t::t::ml-foundations:index:GpuNodePool$gcp:container/nodePool:NodePool::l4-pool"
        assert f'resource "{urn}"' in said
        assert "unable to replace resource" in said
        assert "remove the `protect` flag" in said
    project.fails("pass")
    assert cloud.store.pools()["l4"].machine_type == "g2-standard-8"
    project.up(l4_pool(deletion_protection=False))
    project.up(l4_pool(deletion_protection=False, machine_type="g2-standard-24"))
    assert cloud.store.pools()["l4"].machine_type == "g2-standard-24"
    project.up("pass")
    assert "l4" not in cloud.store.pools()
