"""DistributedTraining: rendezvous, the headless Service, and JobSets."""

import re
from typing import Any

import pulumi
import pytest
from ml_foundations import DistributedTraining

from tests.support.declaring import declared, inputs
from tests.support.refusing import refusal
from tests.workloads.building import WORKLOAD, container_of, gang, gang_spec, pod_of


def environment(manifest: dict[str, Any]) -> dict[str, Any]:
    env = container_of(manifest)["env"]
    return {item["name"]: item.get("value", item.get("valueFrom")) for item in env}


def test_torchrun_finds_its_arguments_in_the_environment() -> None:
    service, job = gang(gpu="H100", gpus=8, nodes=4)
    index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    assert environment(job) == {
        "HOME": "/home/user",
        "USER": "user",
        "PET_NNODES": "4",
        "PET_NPROC_PER_NODE": "8",
        "PET_NODE_RANK": {"fieldRef": {"fieldPath": index}},
        "PET_MASTER_ADDR": "gang-0.gang",
        "PET_MASTER_PORT": "29500",
    }
    assert pod_of(job)["subdomain"] == service["metadata"]["name"] == "gang"
    assert service["spec"] == {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {"batch.kubernetes.io/job-name": "gang"},
    }
    assert job["spec"]["completionMode"] == "Indexed"
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == 4


@pytest.mark.parametrize(
    ("args", "name", "value"),
    [
        ({}, "PET_NPROC_PER_NODE", "1"),
        ({"gpus": 8, "processes_per_node": 4}, "PET_NPROC_PER_NODE", "4"),
        ({"rendezvous_port": 3389}, "PET_MASTER_PORT", "3389"),
        ({"service_name": "peers"}, "PET_MASTER_ADDR", "gang-0.peers"),
        ({"jobset": True}, "PET_MASTER_ADDR", "gang-workers-0-0.gang"),
        ({"jobset": True, "service_name": "peers"}, "PET_MASTER_ADDR", "gang-workers-0-0.peers"),
        ({"env": {"PET_MASTER_PORT": "1"}}, "PET_MASTER_PORT", "1"),
        ({"launcher": "env"}, "WORLD_SIZE", "2"),
        ({"launcher": "env"}, "MASTER_ADDR", "gang-0.gang"),
    ],
)
def test_the_environment_follows_the_arguments(args: dict[str, Any], name: str, value: str) -> None:
    assert environment(gang(**args)[-1])[name] == value


def test_a_gang_says_that_it_is_one() -> None:
    for args in ({}, {"jobset": True}):
        assert gang(**args)[-1]["metadata"]["annotations"]["ml-foundations/gang"] == "true"


@pytest.mark.parametrize(
    ("args", "limit"),
    [({"nodes": 4}, 12), ({"nodes": 4, "backoff_limit": 1}, 1), ({"nodes": 4, "jobset": True}, 0)],
)
def test_a_failure_of_all_pods_counts_once_for_each(args: dict[str, Any], limit: int) -> None:
    spec = gang(**args)[-1]["spec"]
    if args.get("jobset"):
        spec = spec["replicatedJobs"][0]["template"]["spec"]
    assert spec["backoffLimit"] == limit


def test_a_jobset_starts_all_anew_unless_no_retry_can_help() -> None:
    (plain,) = gang(jobset=True, max_restarts=5)
    (fatal,) = gang(jobset=True, fail_on_exit_codes=[2])
    assert plain["spec"]["failurePolicy"] == {"maxRestarts": 5}
    assert "podFailurePolicy" not in plain["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert fatal["spec"]["failurePolicy"]["rules"][0]["action"] == "FailJobSet"


def test_a_job_set_is_replaced_if_its_webhook_refuses_an_update() -> None:
    args: Any = WORKLOAD | {"nodes": 2, "jobset": True}
    requests = declared(lambda: DistributedTraining("x", args))
    assert set(requests) == {"x", "x-jobset"}
    assert requests["x-jobset"].deleteBeforeReplace
    assert "spec.replicatedJobs" in requests["x-jobset"].replaceOnChanges
    assert inputs(requests["x-jobset"])["apiVersion"] == "jobset.x-k8s.io/v1alpha2"


def test_the_job_in_a_jobset_can_be_overridden() -> None:
    alone = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "topology.kubernetes.io/zone"}
    spec = {"podReplacementPolicy": "Failed", "backoffLimit": None}
    change = {"metadata": {"annotations": alone}, "spec": spec}
    (made,) = gang(jobset=True, overrides={"Job": change})
    (workers,) = made["spec"]["replicatedJobs"]
    assert workers["template"]["metadata"] == {"annotations": alone}
    assert workers["template"]["spec"]["podReplacementPolicy"] == "Failed"
    assert "backoffLimit" not in workers["template"]["spec"]
    assert "kind" not in workers["template"]


def test_the_service_is_there_before_the_job() -> None:
    args: Any = WORKLOAD | {"nodes": 2}
    requests = declared(lambda: DistributedTraining("x", args))
    assert any(urn.endswith("::x-service") for urn in requests["x-job"].dependencies)


@pytest.mark.parametrize(
    ("more", "is_torchrun"),
    [
        ({}, True),
        ({"command": ["torchrun", "train.py"]}, True),
        ({"command": ["bash", "-c", "exec torchrun train.py"]}, True),
        ({"command": ["python", "-m"], "arguments": ["torch.distributed.run", "train.py"]}, True),
        ({"command": ["bash", "/run.sh"], "files": {"/run.sh": "torchrun train.py"}}, True),
        ({"command": [pulumi.Output.from_input("x")]}, True),
        ({"command": ["python", "train.py"]}, False),
        ({"command": ["accelerate", "launch", "train.py"]}, False),
        ({"command": ["accelerate", "launch", "train.py"], "launcher": "torchrun"}, True),
    ],
    ids=lambda value: re.sub(r"<.*?>", "Output", str(value)),
)
def test_torchruns_variables_are_for_torchrun(more: dict[str, Any], is_torchrun: bool) -> None:
    assert ("PET_NNODES" in environment(gang(**more)[-1])) is is_torchrun
    assert bool([*gang_spec(**more).warnings()]) is not is_torchrun


def test_pods_that_do_not_learn_of_each_other_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    args: Any = WORKLOAD | {"nodes": 2, "command": ["/opt/train.sh"]}
    declared(lambda: DistributedTraining("x", args))
    assert "DistributedTraining x: the command contains no torchrun" in caplog.text
    for silent in ({"launcher": "none"}, {"nodes": 1}):
        assert not [*gang_spec(**args | silent).warnings()]


@pytest.mark.parametrize(
    ("launcher", "names"),
    [("env", {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}), ("none", set())],
)
def test_what_is_no_torchrun_gets_none_of_its_variables(launcher: str, names: set[str]) -> None:
    assert environment(gang(launcher=launcher)[-1]).keys() == {"HOME", "USER", *names}


@pytest.mark.parametrize("field", ["hostname", "subdomain"])
def test_the_names_of_pods_for_each_other_are_reserved(field: str) -> None:
    assert f"{field}: is set by the component" in refusal(gang, **{field: "mine"})
