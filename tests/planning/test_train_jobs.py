"""TrainJobs: planning judges the JobSets that Trainer makes of them."""

from typing import Any

import pytest
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning import Verdict
from ml_foundations.planning.verdict.program import judge_documents

from tests.factories import Manifest, container, node, quota, template

FITS, CANNOT_FIT, UNDETERMINED = Verdict.FITS, Verdict.CANNOT_FIT, Verdict.UNDETERMINED
API = "trainer.kubeflow.org/v1alpha1"
STEP = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}


def runtime(kind: str = "TrainingRuntime", gpus: int = 8, **policy: Any) -> Manifest:
    pods = template({}, [container(gpu=gpus) | {"name": "node"}])
    pods["spec"]["restartPolicy"] = "Never"
    job = {"metadata": {"labels": STEP}, "spec": {"template": pods}}
    spec = {
        "mlPolicy": {"numNodes": 1, "torch": {}} | policy,
        "template": {"spec": {"replicatedJobs": [{"name": "node", "template": job}]}},
    }
    metadata = {"name": "torch"} | ({"namespace": "team"} if kind == "TrainingRuntime" else {})
    return {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec}


def train_job(kind: str = "TrainingRuntime", nodes: Any = None, **more: Any) -> Manifest:
    trainer = {} if nodes is None else {"numNodes": nodes}
    spec = {"runtimeRef": {"kind": kind, "name": "torch"}, "trainer": trainer} | more
    metadata = {"name": "llama", "namespace": "team"}
    return {"apiVersion": API, "kind": "TrainJob", "metadata": metadata, "spec": spec}


def nodes(count: int) -> list[Manifest]:
    return [node(f"n{index}", gpu=8) for index in range(count)]


def verdict(*documents: Manifest) -> Verdict:
    return judge_documents([*documents]).stack


@pytest.mark.parametrize("kind", ["TrainingRuntime", "ClusterTrainingRuntime"])
@pytest.mark.parametrize(
    ("of_job", "of_runtime", "free", "expected"),
    [(2, 1, 2, FITS), (2, 1, 1, CANNOT_FIT), (None, 2, 2, FITS), (None, 2, 1, CANNOT_FIT)],
)
def test_each_node_has_a_pod(
    kind: str, of_job: int | None, of_runtime: int, free: int, expected: Verdict
) -> None:
    made = runtime(kind, numNodes=of_runtime)
    found = judge_documents([made, train_job(kind, of_job), *nodes(free)])
    assert found.stack is expected
    # The finding is about the object that the user wrote.
    assert [str(item.workload) for item in found.workloads] == ["TrainJob team/llama"]


def test_a_job_may_set_the_resources_of_a_node() -> None:
    more = {"resourcesPerNode": {"limits": {"nvidia.com/gpu": "4"}}, "numNodes": 2}
    assert verdict(runtime(), train_job(trainer=more), *nodes(1)) is FITS
    assert verdict(runtime(), train_job(nodes=2), *nodes(1)) is CANNOT_FIT


def test_a_quota_counts_its_pods_and_its_job_set() -> None:
    hard = {"requests.nvidia.com/gpu": "16", "count/jobsets.jobset.x-k8s.io": "1", "pods": "2"}
    documents = [runtime(), train_job(nodes=2), *nodes(2)]
    assert verdict(*documents, quota(hard=hard)) is FITS
    for name in hard:
        less = hard | {name: str(int(hard[name]) - 1)}
        assert verdict(*documents, quota(hard=less)) is CANNOT_FIT, name


@pytest.mark.parametrize(
    ("documents", "cause"),
    [
        ([train_job()], "the TrainingRuntime torch of spec.runtimeRef is not shown"),
        (
            [runtime("ClusterTrainingRuntime"), train_job()],
            "the TrainingRuntime torch of spec.runtimeRef is not shown",
        ),
        (
            [runtime("TrainingRuntime"), train_job("ClusterTrainingRuntime")],
            "the ClusterTrainingRuntime torch of spec.runtimeRef is not shown",
        ),
        ([runtime(torch=None, mpi={}), train_job()], "its runtime has an mlPolicy mpi"),
        (
            [runtime(), train_job(runtimePatches=[{"manager": "example.com/me"}])],
            "spec.runtimePatches change what its runtime makes",
        ),
        (
            [runtime(), train_job(managedBy="kueue.x-k8s.io/multikueue")],
            "spec.managedBy: kueue.x-k8s.io/multikueue decides about it",
        ),
        ([runtime(), train_job(nodes=UNKNOWN)], "is not known yet"),
        ([runtime(), train_job(trainer=UNKNOWN)], "spec.trainer is not known yet"),
        ([runtime(), train_job(runtimeRef=UNKNOWN)], "spec.runtimeRef is not known yet"),
        (
            [runtime(), train_job(runtimeRef={"name": UNKNOWN})],
            "spec.runtimeRef is not known yet",
        ),
    ],
)
def test_one_that_is_undetermined_names_the_one_cause(
    documents: list[Manifest], cause: str
) -> None:
    verdicts = judge_documents([*documents, *nodes(4)])
    assert verdicts.stack is UNDETERMINED
    causes = [finding.message for finding in verdicts.findings if "not shown" in finding.message]
    causes += [each.message for each in verdicts.findings if each.rule.startswith("unknown")]
    assert all(cause in each for each in causes), causes
    assert causes


def test_a_runtime_without_the_networks_of_its_pool_is_slow() -> None:
    machine = {"node.kubernetes.io/instance-type": "a3-highgpu-8g"}
    h100 = [node(f"h100-{index}", machine, gpu=8) for index in range(2)]
    found = judge_documents([runtime(), train_job(nodes=2), *h100])
    assert found.stack is FITS
    (told,) = [each for each in found.findings if each.rule == "gpu-network"]
    assert told.object == "TrainJob team/llama" and "at most 200 of 1000 Gbps" in told.message
