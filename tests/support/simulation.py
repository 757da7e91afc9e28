"""The simulated GKE on the shared replica, for tests of what it does: pools, pods that run there, and their end."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from ml_foundations.catalog.pools import PoolGpu
from ml_foundations.kubernetes.labels import GPU_RESOURCE
from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import Api
from ml_foundations.rehearsal.cloud import daemon
from ml_foundations.rehearsal.cloud.daemon import SCALE_DOWN_VARIABLE
from ml_foundations.rehearsal.cloud.store import Pool, Store
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.report import contents

from tests.support.cluster import Cluster
from tests.support.waiting import until

BUCKETS = {"gcsFuseCsiDriverConfig": {"enabled": True}}
ZONES = ("us-central1-a", "us-central1-b")
GPU_TAINT = {"key": GPU_RESOURCE, "value": "present", "effect": "NoSchedule"}
SYSTEM = Pool(
    "system", "n2-standard-4", cluster="ml", min_nodes=2, max_nodes=2, initial_nodes=2, zones=ZONES
)
L4 = Pool(
    "l4",
    "g2-standard-24",
    cluster="ml",
    max_nodes=3,
    zones=ZONES,
    taints=(GPU_TAINT,),
    gpu=PoolGpu("nvidia-l4", 2),
)
ONE_L4 = replace(L4, min_nodes=1, initial_nodes=1)
"""The same with a node from the start."""
OPERATED = replace(
    ONE_L4,
    name="operated",
    labels={"gke-no-default-nvidia-gpu-device-plugin": "true", "node-type": "training"},
    gpu=PoolGpu("nvidia-l4", 2, "INSTALLATION_DISABLED"),
    image_type="UBUNTU_CONTAINERD",
)
Object = dict[str, Any]


class Cloud:
    """The simulated GKE of a test, and the replica behind it."""

    def __init__(self, rehearsal: Rehearsal) -> None:
        self.rehearsal = rehearsal
        self.store = Store(rehearsal)
        self.api = Api(Access(rehearsal.kubeconfig))

    def nodes(self, pool: str) -> list[Object]:
        return self.api.get("/api/v1/nodes", labelSelector=f"cloud.google.com/gke-nodepool={pool}")[
            "items"
        ]

    def labels(self, pool: str) -> list[dict[str, str]]:
        return [node["metadata"]["labels"] for node in self.nodes(pool)]

    def pods(self, selector: str = "", namespace: str = "default") -> list[Object]:
        return self.api.get(f"/api/v1/namespaces/{namespace}/pods", labelSelector=selector)["items"]

    def report(self, pool: str) -> dict[str, Any]:
        return next(
            entry for entry in contents.collect(self.rehearsal).pools if entry["name"] == pool
        )

    def run(self, name: str, gpus: int = 0, copies: int = 1, **spec: Any) -> None:
        """Start pods that run until they are deleted."""
        limits = {GPU_RESOURCE: str(gpus)} if gpus else {}
        for index in range(copies):
            self.api.create(
                "/api/v1/namespaces/default/pods",
                {
                    "metadata": {"name": f"{name}-{index}", "labels": {"run": name}},
                    "spec": {
                        "containers": [
                            {"name": "main", "image": "busybox", "resources": {"limits": limits}}
                        ]
                    }
                    | spec,
                },
            )

    def stop(self, name: str) -> None:
        for pod in self.pods(f"run={name}"):
            self.api.delete(f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}")

    def running(self, name: str) -> list[Object]:
        return [pod for pod in self.pods(f"run={name}") if pod["status"]["phase"] == "Running"]

    def record_release(self, name: str, chart: str, **values: Any) -> None:
        """Record a release, as the kubernetes plugin does where the chart is out of reach."""
        release = {"namespace": name, "name": name, "chart": chart, "installed": False}
        path = self.rehearsal.releases_dir / f"{name}.{name}.json"
        path.write_text(json.dumps(release | {"values": values}))

    def gpus(self, pool: str) -> list[int]:
        return [
            int(node["status"]["allocatable"].get(GPU_RESOURCE, 0)) for node in self.nodes(pool)
        ]


@contextmanager
def simulated_gke(
    cluster: Cluster, inputs: Object | None = None, scale_down_seconds: float = 600
) -> Iterator[Cloud]:
    """A cluster with a system pool, until the end.

    Each module starts its own: clusters differ in their settings, and tests of others need the replica without it.
    """
    cloud = Cloud(cluster.rehearsal)
    until(
        lambda: not cloud.api.get("/api/v1/pods")["items"],
        "pods that other tests left would make pools grow",
    )
    cloud.store.save(
        "clusters", "ml", {"id": "ml", "inputs": inputs or {"name": "ml", "addonsConfig": BUCKETS}}
    )
    cloud.store.save_pool(SYSTEM)
    os.environ[SCALE_DOWN_VARIABLE] = str(scale_down_seconds)
    try:
        daemon.start(cluster.rehearsal)
        until(lambda: len(cloud.nodes("system")) == 2)
        yield cloud
    finally:
        # Also after a failure: the next module on this replica begins without pools and their nodes.
        with ExitStack() as rest:
            rest.callback(_end, cloud)
            left = cloud.store.pools()
            for name in left:
                cloud.store.delete("node_pools", name)
            gke = daemon.process(cluster.rehearsal)
            until(lambda: not (gke.running and any(map(cloud.nodes, left))))


def _end(cloud: Cloud) -> None:
    """End the daemon, and what it has made in the replica."""
    daemon.stop(cloud.rehearsal)
    cloud.store.delete("clusters", "ml")
    shutil.rmtree(cloud.store.root / "recorded", ignore_errors=True)
    del os.environ[SCALE_DOWN_VARIABLE]
    daemon_sets = "/apis/apps/v1/namespaces/kube-system/daemonsets"
    for item in cloud.api.get(daemon_sets)["items"]:
        cloud.api.delete(f"{daemon_sets}/{item['metadata']['name']}")


def clean(cloud: Cloud) -> None:
    """Take away the pods of a test, the releases it recorded and its pools."""
    for pod in cloud.pods():
        cloud.api.delete(f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}")
    for release in cloud.rehearsal.releases_dir.glob("*.json"):
        release.unlink()
    others = [name for name in cloud.store.pools() if name != "system"]
    for name in others:
        cloud.store.delete("node_pools", name)
    until(lambda: not any(cloud.nodes(name) for name in others) and not cloud.pods())
