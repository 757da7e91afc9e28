"""The simulated GKE on the shared replica, for tests of what it does for claims of storage and of devices."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from rehearsal import gke
from tests.conftest import Cluster
from tests.rehearsal.test_gke import SYSTEM, Cloud, until


@contextmanager
def simulated_gke(cluster: Cluster) -> Iterator[Cloud]:
    """A cluster with a system pool, until the end."""
    cloud = Cloud(cluster.rehearsal)
    cloud.store.save_cluster("ml", {"inputs": {"name": "ml"}})
    cloud.store.save_pool(SYSTEM)
    settings = cluster.rehearsal.gke_dir / "settings.json"
    settings.write_text(json.dumps({"scale_down_seconds": 600}))
    gke.start(cluster.rehearsal)
    try:
        until(lambda: len(cloud.nodes("system")) == 2)
        yield cloud
        cloud.store.delete_pool("system")
        until(lambda: not cloud.nodes("system"))
    finally:
        gke.stop(cluster.rehearsal)
        cloud.store.delete_cluster("ml")
        settings.unlink()
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
        cloud.store.delete_pool(name)
    until(lambda: not any(cloud.nodes(name) for name in others) and not cloud.pods())
