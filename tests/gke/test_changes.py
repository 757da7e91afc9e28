"""Which change of a node pool is made in place, and which makes its nodes anew, as the provider marks properties."""

from pathlib import Path
from typing import Any

import pytest
from ml_foundations import GkeCluster, GpuNodePool
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.plugins.gcp import container
from ml_foundations.rehearsal.plugins.gcp.provider import GcpProvider
from ml_foundations.rehearsal.plugins.provider import Diff, Resource, State

from tests.gke.building import POOL, WEEKEND_8H
from tests.support.declaring import declared, inputs

CLUSTER: Any = {"project": "project", "location": "us-central1"}

IN_PLACE = {
    "labels": {"labels": {"team": "a"}},
    "taints": {"taints": [{"key": "team", "value": "a"}]},
    "most nodes": {"max_nodes": 4},
    "fewest nodes": {"min_nodes": 1},
    "zones": {"zones": ["us-central1-a", "us-central1-b"]},
    "location policy": {"location_policy": "BALANCED"},
    "machine type": {"machine_type": "a2-highgpu-1g", "disk_type": "pd-ssd"},
    "boot disk": {"disk_size_gb": 200},
    "image streaming": {"image_streaming": True},
    "fast socket": {"fast_socket": True},
    "kubelet": {"kubelet": {"cpu_manager": "static"}},
    "kernel": {"linux": {"sysctls": {"net.core.somaxconn": "4096"}}},
    "upgrades": {"upgrade": {"max_surge": 2}},
    "blue-green upgrades": {"upgrade": {"strategy": "BLUE_GREEN"}},
    "labels on the bill": {"resource_labels": {"team": "a"}},
    "network tags": {"network_tags": ["gpu"]},
    "repair": {"auto_repair": False},
    "version": {"no_minor_upgrades": True},
}
ANEW = {
    "another number of GPUs": {"machine_type": "a2-highgpu-2g"},
    "driver version": {"driver": "latest"},
    "driver installer": {"driver": "installer"},
    "MIG": {"mig_partition": "1g.5gb"},
    "sharing": {"sharing": {"strategy": "MPS", "clients": 2}},
    "spot": {"spot": True},
    "flex-start": {"flex_start": True},
    "queued provisioning": {"queued_provisioning": True},
    "run time": {"max_run_seconds": 3600},
    "reservation": {"reservation": "mine"},
    "placement": {"compact_placement": True},
    "local SSDs": {"local_ssd": {"count": 1}},
    "secondary boot disks": {"secondary_boot_disks": [{"disk_image": "global/images/i"}]},
    "pods of a node": {"max_pods": 64},
    "secure boot": {"secure_boot": False},
    "scopes": {"scopes": ["https://www.googleapis.com/auth/devstorage.read_only"]},
    "account": {"node_service_account": "other"},
    "disk key": {"disk_key": "projects/p/locations/l/keyRings/r/cryptoKeys/k"},
    "threads": {"threads_per_core": 1},
    "hosts": {"host_maintenance": "PERIODIC"},
    "name": {"pool_name": "other"},
}
CLUSTER_IN_PLACE = {
    "release channel": {"release_channel": "STABLE"},
    "endpoint": {"endpoint": "private"},
    "authorized networks": {"authorized_networks": {"office": "203.0.113.0/24"}},
    "secrets key": {"secrets_key": "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"},
    "add-ons": dict.fromkeys(("filestore", "lustre", "parallelstore", "stateful_ha"), True)
    | {"gcs_fuse": False},
    "logs and metrics": {"logging": ["SYSTEM_COMPONENTS"], "monitoring": ["SYSTEM_COMPONENTS"]},
    "maintenance": {"maintenance_window": WEEKEND_8H | {"recurrence": "FREQ=DAILY"}},
    "zones": {"node_zones": ["us-central1-a"]},
    "groups": {"security_group": "gke-security-groups@example.com"},
    "protection": {"deletion_protection": False},
    "multi-networking": {"multi_networking": True},
}
CLUSTER_ANEW = {
    "pods of a node": {"max_pods": 64},
    "network": {"network": {"network": "n", "subnetwork": "s"}},
    "addresses of the control plane": {"control_plane_cidr": "172.16.0.0/28"},
}


def pool(changes: Any) -> dict[str, Any]:
    return compared(declared(lambda: GpuNodePool("p", POOL | changes))["p-pool"])


def cluster(changes: Any) -> dict[str, Any]:
    return compared(declared(lambda: GkeCluster("c", CLUSTER | changes))["c-cluster"])


def compared(request: Any) -> dict[str, Any]:
    """The inputs that the engine compares: those whose changes are ignored are not among them."""
    given = inputs(request)
    return {key: given[key] for key in given if key not in request.ignoreChanges}


def compare(tmp_path: Path, token: str, before: dict[str, Any], after: dict[str, Any]) -> Diff:
    provider = GcpProvider(Rehearsal.of("changes", tmp_path))
    return provider.diff(Resource(urn="u", type=token, name="x"), State("i", before, {}), after)


@pytest.mark.parametrize("change", IN_PLACE)
def test_a_pool_changes_in_place(change: str, tmp_path: Path) -> None:
    found = compare(tmp_path, container.NODE_POOL, pool({}), pool(IN_PLACE[change]))
    assert found.changed
    assert not found.replaces


@pytest.mark.parametrize("change", ANEW)
def test_a_pool_is_made_anew(change: str, tmp_path: Path) -> None:
    found = compare(tmp_path, container.NODE_POOL, pool({}), pool(ANEW[change]))
    assert found.replaces, found.changed


@pytest.mark.parametrize("change", CLUSTER_IN_PLACE)
def test_a_cluster_changes_in_place(change: str, tmp_path: Path) -> None:
    found = compare(tmp_path, container.CLUSTER, cluster({}), cluster(CLUSTER_IN_PLACE[change]))
    assert found.changed
    assert not found.replaces


@pytest.mark.parametrize("change", CLUSTER_ANEW)
def test_a_cluster_is_made_anew(change: str, tmp_path: Path) -> None:
    assert compare(tmp_path, container.CLUSTER, cluster({}), cluster(CLUSTER_ANEW[change])).replaces
