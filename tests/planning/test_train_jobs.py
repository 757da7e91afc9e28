"""TrainJobs: planning judges the JobSets that Trainer makes of them."""

from typing import Any

import pytest
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning import Verdict
from ml_foundations.planning.verdict.program import judge_documents

from tests.factories import (
    CANNOT,
    FITS,
    OPEN,
    Manifest,
    cluster_wide,
    container,
    namespaced,
    node,
    quota,
    template,
)

API = "trainer.kubeflow.org/v1alpha1"
STEP = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}


def runtime(kind: str = "TrainingRuntime", gpus: int = 8, **policy: Any) -> Manifest:
    pods = template({}, [container(gpu=gpus) | {"name": "node"}], restartPolicy="Never")
    job = {"metadata": {"labels": STEP}, "spec": {"template": pods}}
    spec = {
        "mlPolicy": {"numNodes": 1, "torch": {}} | policy,
        "template": {"spec": {"replicatedJobs": [{"name": "node", "template": job}]}},
    }
    make = namespaced if kind == "TrainingRuntime" else cluster_wide
    return make(API, kind, "torch", spec=spec)


def train_job(kind: str = "TrainingRuntime", nodes: Any = None, **more: Any) -> Manifest:
    trainer = {} if nodes is None else {"numNodes": nodes}
    spec = {"runtimeRef": {"kind": kind, "name": "torch"}, "trainer": trainer} | more
    return namespaced(API, "TrainJob", "llama", spec=spec)


def nodes(count: int) -> list[Manifest]:
    return [node(f"n{index}", gpu=8) for index in range(count)]


def verdict(*documents: Manifest) -> Verdict:
    return judge_documents([*documents]).stack


@pytest.mark.parametrize("kind", ["TrainingRuntime", "ClusterTrainingRuntime"])
@pytest.mark.parametrize(
    ("of_job", "of_runtime", "free", "expected"),
    [(2, 1, 2, FITS), (2, 1, 1, CANNOT), (None, 2, 2, FITS), (None, 2, 1, CANNOT)],
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
    assert verdict(runtime(), train_job(nodes=2), *nodes(1)) is CANNOT


def patched(**pods: Any) -> Manifest:
    job = {"name": "node", "template": {"spec": {"template": {"spec": pods}}}}
    spec = {"template": {"spec": {"replicatedJobs": [job]}}}
    return train_job(runtimePatches=[{"manager": "example.com/me", "trainingRuntimeSpec": spec}])


def test_a_patch_changes_the_pods_of_its_runtime() -> None:
    assert verdict(runtime(), patched(nodeSelector={"a": "b"}), *nodes(1)) is CANNOT
    assert verdict(runtime(), patched(nodeSelector={}), *nodes(1)) is FITS


def test_a_container_of_a_patch_that_the_runtime_lacks_has_no_image() -> None:
    # Trainer merges a patch before it looks for the containers.
    found = judge_documents([runtime(), patched(initContainers=[{"name": "x"}]), *nodes(1)])
    assert [finding.path for finding in found.findings if finding.rule == "invalid"] == [
        "spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec"
        ".template.spec.initContainers[0].image"
    ]


@pytest.mark.parametrize(
    ("is_node", "total", "free", "expected"),
    [(True, 3, 3, FITS), (True, 3, 2, CANNOT), (False, 2, 3, FITS), (False, 2, 2, CANNOT)],
)
def test_the_launcher_of_mpi_may_be_one_of_the_nodes(
    is_node: bool, total: int, free: int, expected: Verdict
) -> None:
    made = runtime(torch=None, mpi={"runLauncherAsNode": is_node})
    launcher = made["spec"]["template"]["spec"]["replicatedJobs"][0]
    workers = {"name": "node", "template": launcher["template"] | {"metadata": {}}}
    made["spec"]["template"]["spec"]["replicatedJobs"] = [launcher | {"name": "launcher"}, workers]
    del made["spec"]["mlPolicy"]["torch"]
    assert verdict(made, train_job(nodes=total), *nodes(free)) is expected


@pytest.mark.parametrize("field", ["dataset", "model"])
def test_the_secret_of_an_initializer_has_a_valid_name(field: str) -> None:
    made = runtime()
    jobs = made["spec"]["template"]["spec"]["replicatedJobs"]
    step = f"{field}-initializer"
    pods = template({}, [container() | {"name": step}], restartPolicy="Never")
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": step}
    jobs.append(
        {"name": step, "template": {"metadata": {"labels": labels}, "spec": {"template": pods}}}
    )
    initializer = {field: {"storageUri": "hf://a/b", "secretRef": {"name": "A/b"}}}
    found = judge_documents([made, train_job(initializer=initializer), *nodes(1)])
    [finding] = [finding for finding in found.findings if finding.rule == "invalid"]
    assert finding.path == f"spec.initializer.{field}.secretRef.name"


def test_a_quota_counts_its_pods_and_its_job_set() -> None:
    hard = {"requests.nvidia.com/gpu": "16", "count/jobsets.jobset.x-k8s.io": "1", "pods": "2"}
    documents = [runtime(), train_job(nodes=2), *nodes(2)]
    assert verdict(*documents, quota(hard=hard)) is FITS
    for name in hard:
        less = hard | {name: str(int(hard[name]) - 1)}
        assert verdict(*documents, quota(hard=less)) is CANNOT, name


NOT_SHOWN = "torch of spec.runtimeRef is not shown"
NOT_KNOWN = "spec.runtimeRef is not known yet"
ELSEWHERE = "kueue.x-k8s.io/multikueue"


@pytest.mark.parametrize(
    ("of_runtime", "of_job", "cause"),
    [
        (None, train_job(), f"the TrainingRuntime {NOT_SHOWN}"),
        (runtime("ClusterTrainingRuntime"), train_job(), f"the TrainingRuntime {NOT_SHOWN}"),
        (runtime(), train_job("ClusterTrainingRuntime"), f"the ClusterTrainingRuntime {NOT_SHOWN}"),
        (runtime(torch=None, flux={}), train_job(), "its runtime has an mlPolicy flux"),
        (
            runtime(),
            train_job(runtimePatches=[{"manager": UNKNOWN}]),
            "spec.runtimePatches are not known yet",
        ),
        (
            runtime(),
            train_job(managedBy=ELSEWHERE),
            f"spec.managedBy: {ELSEWHERE} decides about it",
        ),
        (runtime(), train_job(nodes=UNKNOWN), "is not known yet"),
        (runtime(), train_job(trainer=UNKNOWN), "spec.trainer is not known yet"),
        (runtime(), train_job(runtimeRef=UNKNOWN), NOT_KNOWN),
        (runtime(), train_job(runtimeRef={"name": UNKNOWN}), NOT_KNOWN),
    ],
)
def test_one_that_is_undetermined_names_the_one_cause(
    of_runtime: Manifest | None, of_job: Manifest, cause: str
) -> None:
    shown = [of_runtime] if of_runtime else []
    verdicts = judge_documents([*shown, of_job, *nodes(4)])
    assert verdicts.stack is OPEN
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
