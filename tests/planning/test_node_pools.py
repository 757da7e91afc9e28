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


def inputs(machine: str = "a3-highgpu-8g", **config: Any) -> dict[str, Any]:
    accelerator = {"type": "nvidia-h100-80gb", "count": 8}
    gpus = (
        {"guestAccelerators": [accelerator], "taints": [TAINT]} if machine.startswith("a3") else {}
    )
    return {
        "name": "train",
        "location": "us-central1",
        "nodeLocations": ["us-central1-a", "us-central1-b"],
        "autoscaling": {"totalMinNodeCount": 1, "totalMaxNodeCount": 3},
        "nodeConfig": {
            "machineType": machine,
            "labels": {"node-type": "training"},
            **gpus,
            **config,
        },
    }


def test_a_pool_is_a_class_of_nodes() -> None:
    node = from_node_pool(inputs())
    assert (node.name, node.fewest, node.count, node.zones) == (
        "train",
        1,
        3,
        ("us-central1-a", "us-central1-b"),
    )
    assert node.allocatable[GPU] == 8000
    assert node.labels["node-type"] == "training"
    assert node.labels["cloud.google.com/gke-nodepool"] == "train"
    assert node.labels[ZONE] is UNKNOWN
    assert node.taints == [{"key": GPU, "value": "present", "effect": "NoSchedule"}]


def test_what_gke_runs_itself_is_taken_from_the_node() -> None:
    least = {"datapathProvider": "LEGACY_DATAPATH"}
    most = {
        "datapathProvider": "ADVANCED_DATAPATH",
        "workloadIdentityConfig": {"workloadPool": "p"},
    }
    alone, full, assumed = (
        from_node_pool(inputs("n2-standard-8"), cluster).allocatable
        for cluster in (least, most, None)
    )
    assert alone["cpu"] > full["cpu"] > assumed["cpu"]
    assert alone["pods"] - full["pods"] == 2000  # gke-metadata-server and netd


def test_a_pool_without_metadata_server_lacks_label_and_pods() -> None:
    cluster = {
        "datapathProvider": "LEGACY_DATAPATH",
        "workloadIdentityConfig": {"workloadPool": "p"},
    }
    label = "iam.gke.io/gke-metadata-server-enabled"
    without = from_node_pool(
        inputs("n2-standard-8", workloadMetadataConfig={"mode": "GCE_METADATA"}), cluster
    )
    served = from_node_pool(inputs("n2-standard-8"), cluster)
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
    accelerator = {
        "type": "nvidia-h100-80gb",
        "count": 8,
        "gpuDriverInstallationConfig": {"gpuDriverVersion": installer},
    }
    pool = inputs(
        guestAccelerators=[accelerator],
        labels={"gke-no-default-nvidia-gpu-device-plugin": opted_out},
    )
    assert (
        from_node_pool(
            pool, None, Operator().with_daemon_sets([INSTALLER]) if operator else None
        ).allocatable.get(GPU, 0)
        == gpus * 1000
    )


def test_partitions_and_sharing_multiply_the_gpus() -> None:
    accelerator = {"type": "nvidia-h100-80gb", "count": 8, "gpuPartitionSize": "1g.10gb"}
    sharing = {"gpuSharingConfig": {"maxSharedClientsPerGpu": 2}}
    assert (
        from_node_pool(inputs(guestAccelerators=[accelerator | sharing])).allocatable[GPU]
        == 8 * 7 * 2 * 1000
    )


def test_numbers_of_nodes_per_zone() -> None:
    per_zone = inputs() | {"autoscaling": {"minNodeCount": 1, "maxNodeCount": 2}}
    assert (from_node_pool(per_zone).fewest, from_node_pool(per_zone).count) == (2, 4)
    fixed = inputs() | {"autoscaling": None, "nodeCount": 2}
    assert (from_node_pool(fixed).fewest, from_node_pool(fixed).count) == (4, 4)
    assert [part.count for part in by_zone(from_node_pool(inputs()))] == [2, 1]


def test_an_unknown_machine_leaves_workloads_undetermined() -> None:
    node = from_node_pool(inputs(machineType=UNKNOWN))
    assert node.unknown == ("nodeConfig.machineType",)
    verdicts = judge([deployment("web", 1, template())], [node])
    assert verdicts.workloads[0].verdict is Verdict.UNDETERMINED
    (reason,) = verdicts.workloads[0].reasons
    assert (reason.path, reason.remedy) == (
        "spec.template.spec",
        "Give it as a plain value, which is known at preview.",
    )


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
    train = template(containers=[container(gpu=8)], nodeSelector={ZONE: zone})
    found = judge([job("train", pods, train, gang=True)], [from_node_pool(inputs() | more)])
    assert (found.workloads[0].verdict, found.stack) == (verdict, verdict)
    errors = [finding for finding in found.findings if finding.severity == "error"]
    assert bool(errors) == (verdict is Verdict.CANNOT_FIT)


def test_a_pool_that_is_split_over_zones_is_one_in_a_message() -> None:
    anywhere = job("anywhere", 4, template(containers=[container(gpu=8)]), gang=True)
    somewhere = job(
        "somewhere",
        1,
        template(containers=[container(gpu=8)], nodeSelector={ZONE: "us-central1-a"}),
    )
    found = judge([anywhere, somewhere], [from_node_pool(inputs())]).workloads[0]
    assert found.verdict is Verdict.CANNOT_FIT
    (reason,) = found.reasons
    assert "at most 3 nodes" in reason.message
    assert "maximum of train to 4 nodes " in reason.remedy


def test_zones_matter_only_to_those_who_name_them() -> None:
    pool = from_node_pool(inputs())
    train = template(containers=[container(gpu=8)])
    assert judge([job("train", 3, train, gang=True)], [pool]).stack is Verdict.FITS
    spreading = template(containers=[container(gpu=8)], topologySpreadConstraints=[spread()])
    assert judge([deployment("web", 3, spreading)], [pool]).stack is Verdict.FITS
    assert (
        judge(
            [
                job(
                    "train",
                    1,
                    template(containers=[container(gpu=8)], nodeSelector={ZONE: "us-central1-c"}),
                )
            ],
            [pool],
        ).stack
        is Verdict.CANNOT_FIT
    )


@pytest.mark.parametrize("stack", ["dev", "staging", "prod"])
def test_the_stacks_of_the_project_fit(stack: str) -> None:
    verdicts = judge_program(
        ((r["type"], r["inputs"]) for r in recording.stack(stack)), rehearsed=True
    )
    assert verdicts.workloads
    assert verdicts.stack is Verdict.FITS, verdicts.findings
    assert verdicts.cost.unknown == []
