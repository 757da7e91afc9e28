"""The proof at preview and the simulated GKE see the same node in a pool: labels, taints and GPUs."""

from typing import Any

import pytest
from ml_foundations import GpuNodePool
from ml_foundations.catalog.operator_nodes import Operator, Sharing
from ml_foundations.gpu.driver_installer import driver_installer_manifest
from ml_foundations.kubernetes.labels import GPU_RESOURCE, HOSTNAME
from ml_foundations.kubernetes.quantities import milli
from ml_foundations.planning import UNKNOWN
from ml_foundations.planning.input.node_pools import from_node_pool
from ml_foundations.rehearsal.cloud.nodes import node_template
from ml_foundations.rehearsal.plugins.gcp.location import GcpLocation
from ml_foundations.rehearsal.plugins.gcp.node_pool import node_pool

from tests.gke.building import POOL
from tests.support.declaring import declared, inputs

CLUSTER = {"name": "c", "workloadIdentityConfig": {"workloadPool": "project.svc.id.goog"}}
BROKEN = Operator.of({}).on([{"releaseChannel": {"channel": "REGULAR"}}])
OPERATOR = Operator(sharing={"": Sharing(2, "time-slicing")}).with_daemon_sets(
    [driver_installer_manifest("cos")]
)


SHAPE = {"vcpus": 24, "memory_gib": 170.5}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"driver": "latest", "spot": True},
        {"driver": "operator"},
        {"driver": "installer"},
        {"driver": "operator", "machine_type": "n1-standard-8", "gpu": "V100", "gpus": 1},
        {"mig_partition": "1g.5gb"},
        {"sharing": {"strategy": "TIME_SHARING", "clients": 3}},
        {"flex_start": True, "queued_provisioning": True},
        {"machine_type": "a9-highgpu-1g", "machine": SHAPE, "gpu": "A100", "gpus": 1},
        {"taints": [{"key": "team", "value": "a"}], "labels": {"team": "a"}},
        {"linux": {"hugepages": {"2Mi": 512, "1Gi": 2}}},
        {"threads_per_core": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "operator", [None, OPERATOR, BROKEN], ids=["no operator", "operator", "broken nodes"]
)
def test_they_agree(changes: Any, operator: Operator | None) -> None:
    given = inputs(declared(lambda: GpuNodePool("p", POOL | changes))["p-pool"])
    planned = from_node_pool(given, CLUSTER, operator)
    pool = node_pool(given, GcpLocation("project"), CLUSTER)
    simulated = node_template(pool, "us-central1-a", operator)
    # Host names, and which nodes are near to each other, are not known before there are nodes.
    labels = {key: value for key, value in planned.labels.items() if value is not UNKNOWN}
    labels.pop(HOSTNAME, None)
    assert labels == simulated["metadata"]["labels"]
    taints, same = planned.manifest["spec"]["taints"], simulated["spec"]["taints"]
    assert sorted(map(str, taints)) == sorted(map(str, same))
    free = simulated["status"]["allocatable"]
    for resource in (GPU_RESOURCE, "hugepages-2Mi", "hugepages-1Gi"):
        assert planned.allocatable.get(resource, 0) == milli(free.get(resource, 0))
    for resource, most in (("cpu", "1"), ("memory", "2Gi")):
        assert 0 <= milli(free[resource]) - planned.allocatable[resource] <= milli(most)


def test_a_zone_that_is_named_twice_counts_once() -> None:
    changes: Any = {"zones": ["us-central1-a", "us-central1-a", "us-central1-b"]}
    given = inputs(declared(lambda: GpuNodePool("p", POOL | changes))["p-pool"])
    per_zone = {"name": "p", "autoscaling": {"minNodeCount": 0, "maxNodeCount": 3}}
    pool = node_pool({**given, **per_zone}, GcpLocation("project"), CLUSTER)
    planned = from_node_pool({**given, **per_zone}, CLUSTER)
    assert (planned.count, planned.zones) == (6, ("us-central1-a", "us-central1-b"))
    assert (pool.max_nodes, tuple(pool.zones)) == (planned.count, planned.zones)
