"""The proof of trainings in the network between GPUs."""

from typing import Any

import pytest
from ml_foundations.planning import judge

from tests.factories import namespace, pool
from tests.workloads.building import FABRICS, gang, on_fabric

MACHINES = {
    "tcpx": "a3-highgpu-8g",
    "tcpxo": "a3-megagpu-8g",
    "rdma": "a3-ultragpu-8g",
    "managed": "a4-highgpu-8g",
}


def findings(name: str, level: str, **more: Any) -> dict[str, str]:
    """The fixes of the rules that the proof reports of a training, in a namespace with a Pod Security level."""
    team = namespace("ml", {"pod-security.kubernetes.io/enforce": level})
    nodes = pool("nodes", 2, {"node.kubernetes.io/instance-type": MACHINES[name]}, gpu="8")
    declared = [team, *gang(**on_fabric(name, **more)), nodes]
    return {each.rule: each.remedy for each in judge(declared).findings}


@pytest.mark.parametrize("name", FABRICS)
def test_its_pods_need_the_level_privileged(name: str) -> None:
    remedy = findings(name, "baseline")["pod-security"]
    assert "Set the namespace's level to privileged (pod_security of the team)" in remedy
    assert "pod-security" not in findings(name, "privileged")


@pytest.mark.parametrize("name", FABRICS)
def test_only_pods_without_it_are_slow(name: str) -> None:
    assert "gpu-network" not in findings(name, "privileged")
    assert "gpu-network" in findings(name, "privileged", gpu_fabric=None)


def test_other_pods_keep_the_general_fix() -> None:
    remedy = findings("tcpxo", "restricted", gpu_fabric=None, run_as_user=0)["pod-security"]
    assert remedy == "Correct the field, or lower the level of the namespace."
