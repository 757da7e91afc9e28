"""Node pools that are only declared, as nodes; the figures of GKE itself are tested with the catalog."""

from typing import Any

import pytest
from ml_foundations.catalog.operator_nodes import Operator
from ml_foundations.gpu.driver_installer import driver_installer_manifest
from ml_foundations.planning import UNKNOWN, Verdict, judge
from ml_foundations.planning.input.node_pools import from_node_pool
from ml_foundations.planning.model.nodes import by_zone
from ml_foundations.planning.verdict.program import judge_program

from tests.factories import GPU, ZONE, container, deployment, job, spread, template
from tests.support import recording

INSTALLER = driver_installer_manifest("cos")
TAINT = {"key": GPU, "value": "present", "effect": "NO_SCHEDULE"}
H100 = {"type": "nvidia-h100-80gb", "count": 8}
ON_GPUS = [container(gpu=8)]


def inputs(machine: str = "a3-highgpu-8g", **config: Any) -> dict[str, Any]:
    node = {"machineType": machine, "labels": {"node-type": "training"}}
    if machine.startswith("a3"):
        node |= {"guestAccelerators": [H100], "taints": [TAINT]}
    return {
        "name": "train",
        "location": "us-central1",
        "nodeLocations": ["us-central1-a", "us-central1-b"],
        "autoscaling": {"totalMinNodeCount": 1, "totalMaxNodeCount": 3},
        "nodeConfig": {**node, **config},
    }


def test_a_pool_is_a_class_of_nodes() -> None:
    node = from_node_pool(inputs())
    assert (node.name, node.fewest, node.count) == ("train", 1, 3)
    assert node.zones == ("us-central1-a", "us-central1-b")
    assert node.allocatable[GPU] == 8000
    assert node.labels["node-type"] == "training"
    assert node.labels["cloud.google.com/gke-nodepool"] == "train"
    assert node.labels[ZONE] is UNKNOWN
    assert node.taints == [{"key": GPU, "value": "present", "effect": "NoSchedule"}]


IDENTITY = {"workloadIdentityConfig": {"workloadPool": "p"}}
LEGACY, ADVANCED = ({"datapathProvider": f"{name}_DATAPATH"} for name in ("LEGACY", "ADVANCED"))


def test_what_gke_runs_itself_is_taken_from_the_node() -> None:
    alone, full, assumed = (
        from_node_pool(inputs("n2-standard-8"), cluster).allocatable
        for cluster in (LEGACY, ADVANCED | IDENTITY, None)
    )
    assert alone["cpu"] > full["cpu"] > assumed["cpu"]
    assert alone["pods"] - full["pods"] == 2000  # gke-metadata-server and netd


def test_a_pool_without_metadata_server_lacks_label_and_pods() -> None:
    label = "iam.gke.io/gke-metadata-server-enabled"
    own = inputs("n2-standard-8", workloadMetadataConfig={"mode": "GCE_METADATA"})
    without, served = (
        from_node_pool(pool, LEGACY | IDENTITY) for pool in (own, inputs("n2-standard-8"))
    )
    assert (label in without.labels, label in served.labels) == (False, True)
    assert without.allocatable["pods"] - served.allocatable["pods"] == 2000


@pytest.mark.parametrize(
    ("installer", "opted_out", "operator", "gpus"),
    [
        ("DEFAULT", "false", False, 8),
        ("INSTALLATION_DISABLED", "true", True, 8),
        ("INSTALLATION_DISABLED", "true", False, 0),
        ("INSTALLATION_DISABLED", "false", True, 0),
        ("DEFAULT", "true", True, 0),
    ],
)
def test_exactly_one_side_advertises_the_gpus(
    installer: str, opted_out: str, operator: bool, gpus: int
) -> None:
    driver = {"gpuDriverInstallationConfig": {"gpuDriverVersion": installer}}
    labels = {"gke-no-default-nvidia-gpu-device-plugin": opted_out}
    pool = inputs(guestAccelerators=[H100 | driver], labels=labels)
    declared = Operator().with_daemon_sets([INSTALLER]) if operator else None
    node = from_node_pool(pool, None, declared)
    assert node.allocatable.get(GPU, 0) == gpus * 1000


def test_partitions_and_sharing_multiply_the_gpus() -> None:
    sharing = {"gpuSharingConfig": {"maxSharedClientsPerGpu": 2}}
    accelerator = H100 | {"gpuPartitionSize": "1g.10gb"} | sharing
    node = from_node_pool(inputs(guestAccelerators=[accelerator]))
    assert node.allocatable[GPU] == 8 * 7 * 2 * 1000


@pytest.mark.parametrize(
    ("kind", "size"), [("nvidia-h100-80gb", "9g.10gb"), ("nvidia-l4", "1g.5gb"), ("", "1g.5gb")]
)
def test_a_partition_that_gke_does_not_cut_is_not_known(kind: str, size: str) -> None:
    accelerator = H100 | {"type": kind, "gpuPartitionSize": size}
    node = from_node_pool(inputs(guestAccelerators=[accelerator]))
    expected = f'nodeConfig.guestAccelerators[0].gpuPartitionSize "{size}"'
    assert [fact.name for fact in node.unknown] == [expected]


def test_numbers_of_nodes_per_zone() -> None:
    per_zone = inputs() | {"autoscaling": {"minNodeCount": 1, "maxNodeCount": 2}}
    assert (from_node_pool(per_zone).fewest, from_node_pool(per_zone).count) == (2, 4)
    fixed = inputs() | {"autoscaling": None, "nodeCount": 2}
    assert (from_node_pool(fixed).fewest, from_node_pool(fixed).count) == (4, 4)
    assert [part.count for part in by_zone(from_node_pool(inputs()))] == [2, 1]


def test_an_unknown_machine_leaves_workloads_undetermined() -> None:
    node = from_node_pool(inputs(machineType=UNKNOWN))
    assert [fact.name for fact in node.unknown] == ["nodeConfig.machineType"]
    (found,) = judge([deployment("web", 1, template())], [node]).workloads
    assert found.verdict is Verdict.UNDETERMINED
    (reason,) = found.reasons
    assert reason.path == "spec.template.spec"
    assert reason.remedy == "Give it as a plain value, which is known at preview."


def train(pods: int, name: str = "train", **spec: Any) -> dict[str, Any]:
    return job(name, pods, template(containers=ON_GPUS, **spec), gang=True)


PER_ZONE = {"autoscaling": {"minNodeCount": 0, "maxNodeCount": 1}}


@pytest.mark.parametrize(
    ("pods", "zone", "more", "verdict"),
    [
        (1, "us-central1-b", {}, Verdict.FITS),
        # GKE spreads three nodes 2 and 1 if it can, and it may put all of them into zone b.
        (3, "us-central1-b", {}, Verdict.UNDETERMINED),
        (4, "us-central1-b", {}, Verdict.CANNOT_FIT),
        (2, "us-central1-b", PER_ZONE, Verdict.CANNOT_FIT),
        (1, "us-central1-c", {}, Verdict.CANNOT_FIT),
    ],
)
def test_a_total_of_nodes_may_all_be_in_one_zone(
    pods: int, zone: str, more: dict[str, Any], verdict: Verdict
) -> None:
    in_zone = train(pods, nodeSelector={ZONE: zone})
    found = judge([in_zone], [from_node_pool(inputs() | more)])
    assert (found.workloads[0].verdict, found.stack) == (verdict, verdict)
    errors = [finding for finding in found.findings if finding.severity == "error"]
    assert bool(errors) == (verdict is Verdict.CANNOT_FIT)


def test_a_pool_that_is_split_over_zones_is_one_in_a_message() -> None:
    somewhere = train(1, "somewhere", nodeSelector={ZONE: "us-central1-a"})
    found = judge([train(4, "anywhere"), somewhere], [from_node_pool(inputs())]).workloads[0]
    assert found.verdict is Verdict.CANNOT_FIT
    (reason,) = found.reasons
    assert "at most 3 nodes" in reason.message
    assert "maximum of train to 4 nodes " in reason.remedy


def test_zones_matter_only_to_those_who_name_them() -> None:
    """One that names a zone without nodes is among the cases of one zone above."""
    pool = from_node_pool(inputs())
    assert judge([train(3)], [pool]).stack is Verdict.FITS
    spreading = template(containers=ON_GPUS, topologySpreadConstraints=[spread()])
    assert judge([deployment("web", 3, spreading)], [pool]).stack is Verdict.FITS


@pytest.mark.parametrize("stack", ["dev", "staging", "prod"])
def test_the_stacks_of_the_project_fit(stack: str) -> None:
    resources = [(each["type"], each["inputs"]) for each in recording.stack(stack)]
    verdicts = judge_program(resources, rehearsed=True)
    assert verdicts.workloads
    assert verdicts.stack is Verdict.FITS, verdicts.findings
    assert verdicts.cost.unknown == []
