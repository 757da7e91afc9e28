"""Components with invalid arguments: a program ends with the errors of all of them, and registers none."""

from collections.abc import Callable
from typing import Any

import pulumi
import pytest
from ml_foundations import (
    CpuNodePool,
    DistributedTraining,
    GkeCluster,
    GpuNodePool,
    InferenceService,
    TeamNamespace,
    TrainingJob,
    Volume,
)
from ml_foundations.component.errors import ArgumentsError
from ml_foundations.proof import Proof

from tests.support.declaring import declared

QUOTA = {"gpus": 1, "cpu": "1", "memory": "1Gi", "storage": "1Gi"}


def program() -> None:
    """A program whose first components are invalid, so that others use what there is not."""
    cluster = GkeCluster(
        "c", project="some-project", location="us-central1", node_zone=["us-central1-a"]
    )
    CpuNodePool("cpu", cluster=cluster, machine_type="n2-standard-4", max_nodes=0)
    pool = GpuNodePool("a100", cluster=cluster, machine_type="a2-nope", max_nodes=1)
    team = TeamNamespace("research", cluster=cluster, **(QUOTA | {"cpu": "many"}))
    data = Volume("data", team=team, sise="1Gi")
    pod: Any = {"team": team, "image": f"{team.namespace}/i", "cpu": "1", "memory": "1Gi"}
    TrainingJob("train", pool=pool, mounts=[{"volume": data}], gpu_count=1, **pod)
    more = {**pool.node_selector, "team": team.namespace}
    InferenceService("chat", node_selector=more, tolerations=[*pool.tolerations], **pod)
    DistributedTraining("align", nodes=0, **pod, opts=pulumi.ResourceOptions(depends_on=[data]))
    pulumi.export("namespace", team.namespace)


ERRORS = [
    "GkeCluster c: 1 invalid argument:\n  node_zone: ",
    "CpuNodePool cpu: 1 invalid argument:\n  max_nodes: ",
    "GpuNodePool a100: 1 invalid argument:\n  machine_type: ",
    "TeamNamespace research: 1 invalid argument:\n  cpu: ",
    "Volume data: 2 invalid arguments:\n  sise: ",
    "TrainingJob train: 1 invalid argument:\n  gpu_count: ",
    "DistributedTraining align: 1 invalid argument:\n  nodes: ",
]


def in_proof() -> None:
    with Proof():
        program()


def finished() -> None:
    proof = Proof()
    program()
    proof.finish()


def broken() -> None:
    """A program that needs a child that there is not: its own error would hide those of the components."""
    with Proof():
        program()
        raise KeyError("pool")


@pytest.mark.parametrize("run", [program, in_proof, finished, broken])
def test_the_errors_of_all_components_come_at_once(run: Callable[[], None]) -> None:
    with pytest.raises(pulumi.RunError) as refused:
        declared(run)
    text = str(refused.value)
    assert [error for error in ERRORS if error not in text] == [], text
    assert text.count("invalid argument") == len(ERRORS)


def test_without_a_program_the_constructor_raises() -> None:
    with pytest.raises(ArgumentsError):
        GpuNodePool("a100", project="p", location="l", machine_type="a2-nope", max_nodes=1)


def test_the_next_program_has_no_errors_of_the_last() -> None:
    with pytest.raises(pulumi.RunError):
        declared(program)
    assert declared(lambda: TeamNamespace("research", **QUOTA))
