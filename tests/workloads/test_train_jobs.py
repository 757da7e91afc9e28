"""TrainJob and TrainingRuntime: what a platform engineer sets once, and an ML engineer each time."""

from typing import Any

import pytest
from ml_foundations.component.spec import check
from ml_foundations.workloads.train_job import TrainJobSpec
from ml_foundations.workloads.training_runtime import TrainingRuntimeSpec

from tests.support.declaring import declared, inputs
from tests.support.refusing import refusal

POD = {"namespace": "ml", "image": "i", "gpu": "H100-MEGA", "gpus": 8}
TCPXO = {"kind": "tcpxo", "gpus_per_node": 8, "networks": [f"n{i}" for i in range(8)]}


def runtime(**more: Any) -> TrainingRuntimeSpec:
    return check(TrainingRuntimeSpec, "TrainingRuntime", {"runtime_name": "torch"} | POD | more)


def job(**more: Any) -> dict[str, Any]:
    least = {"job_name": "llama", "namespace": "ml", "runtime": "torch"}
    [made] = check(TrainJobSpec, "TrainJob", least | more).manifests()
    return made["spec"]


def test_the_network_of_a_pool_is_in_the_runtime() -> None:
    """A TrainJob cannot add containers, and replaces the command."""
    spec = runtime(gpu_fabric=TCPXO)
    [made] = spec.manifests()
    [replicated] = made["spec"]["template"]["spec"]["replicatedJobs"]
    pod = replicated["template"]["spec"]["template"]["spec"]
    assert [item["name"] for item in pod["initContainers"]] == ["tcpxo-daemon"]
    assert pod["containers"][0]["name"] == "node"
    command = job(command=["torchrun", "a.py"], command_prefix=spec.command_prefix)["trainer"]
    assert command["command"] == [*spec.command_prefix, "torchrun", "a.py"]
    assert "nccl-env-profile.sh" in command["command"][2]


def test_a_job_sets_only_what_is_given() -> None:
    torch = {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": "torch"}
    assert job() == {"runtimeRef": torch, "trainer": {}}
    assert job(nodes=2, processes_per_node=4)["trainer"] == {"numNodes": 2, "numProcPerNode": 4}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"queue": "q"}, "queue: is for a TrainJob"),
        ({"container_name": "main"}, "container_name: is main"),
    ],
)
def test_what_a_runtime_cannot_have_is_refused(more: dict[str, Any], message: str) -> None:
    assert message in refusal(runtime, **more)


def test_a_priority_needs_a_queue() -> None:
    message = refusal(job, queue_priority="high")
    assert "queue_priority: ranks a workload in its queue" in message


def test_a_job_uses_the_runtime_of_its_program() -> None:
    def program() -> None:
        from ml_foundations import TrainingRuntime, TrainJob

        made = TrainingRuntime("torch", namespace="ml", image="i", gpu="H100", gpus=8)
        TrainJob("llama", runtime=made, nodes=2)

    made = declared(program)["llama-job"]
    assert inputs(made)["metadata"]["namespace"] == "ml"
    assert inputs(made)["spec"]["runtimeRef"]["name"] == "torch"
    assert any(urn.endswith("::torch-runtime") for urn in made.dependencies)
