"""Ray clusters and jobs: planning judges the pods that their operator makes."""

from typing import Any

import pytest
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning import Verdict
from ml_foundations.planning.verdict.program import judge_documents

from tests.factories import GPU, Manifest, container, node, quota, template

FITS, CANNOT_FIT, UNDETERMINED = Verdict.FITS, Verdict.CANNOT_FIT, Verdict.UNDETERMINED
KINDS = pytest.mark.parametrize("kind", ["RayCluster", "RayJob"])


def ray(kind: str, replicas: int = 1, hosts: int = 1, head: int = 0, **group: Any) -> Manifest:
    def pods(gpus: int) -> Manifest:
        return template({"app": "ray"}, [container(gpu=gpus)])

    workers = {"groupName": "g", "replicas": replicas, "numOfHosts": hosts, "template": pods(8)}
    groups = [{"minReplicas": 0, "maxReplicas": 9, **workers, **group}]
    cluster = {"headGroupSpec": {"template": pods(head)}, "workerGroupSpecs": groups}
    spec = {"entrypoint": "e", "shutdownAfterJobFinishes": True, "rayClusterSpec": cluster}
    made = {"apiVersion": "ray.io/v1", "kind": kind, "metadata": {"name": "r", "namespace": "team"}}
    return made | {"spec": spec if kind == "RayJob" else cluster}


def nodes(count: int) -> list[Manifest]:
    # The head and the submitter run next to the workers.
    return [node(f"n{index}", gpu=8) for index in range(count)]


def verdict(*documents: Manifest) -> Verdict:
    return judge_documents([*documents]).stack


@KINDS
@pytest.mark.parametrize(
    ("replicas", "hosts", "free", "expected"),
    [(2, 1, 2, FITS), (2, 1, 1, CANNOT_FIT), (2, 2, 4, FITS), (2, 2, 3, CANNOT_FIT)],
)
def test_each_replica_has_its_hosts(
    kind: str, replicas: int, hosts: int, free: int, expected: Verdict
) -> None:
    assert verdict(ray(kind, replicas, hosts), *nodes(free)) is expected


@KINDS
def test_the_bounds_of_a_group_decide(kind: str) -> None:
    assert verdict(ray(kind, 1, minReplicas=3), *nodes(2)) is CANNOT_FIT
    assert verdict(ray(kind, 5, maxReplicas=2), *nodes(2)) is FITS
    assert verdict(ray(kind, 5, suspend=True), *nodes(1)) is FITS


@KINDS
def test_a_head_may_need_gpus(kind: str) -> None:
    assert verdict(ray(kind, 1, head=8), *nodes(2)) is FITS
    assert verdict(ray(kind, 1, head=8), *nodes(1)) is CANNOT_FIT


@KINDS
def test_a_quota_counts_pods_and_services(kind: str) -> None:
    services = {"RayCluster": 1, "RayJob": 2}[kind]
    pods = {"RayCluster": 3, "RayJob": 4}[kind]
    hard = {"requests.nvidia.com/gpu": "16", "services": str(services), "pods": str(pods)}
    made = ray(kind, 2)
    assert verdict(made, quota(hard=hard), *nodes(2)) is FITS
    for name in hard:
        less = hard | {name: str(int(hard[name]) - 1)}
        assert verdict(made, quota(hard=less), *nodes(2)) is CANNOT_FIT, name
    assert verdict(ray(kind, 1, 2), quota(hard=hard), *nodes(2)) is CANNOT_FIT, "a headless Service"


def test_jobs_that_end_leave_room_to_others() -> None:
    first, second = ray("RayJob", 2), ray("RayJob", 2)
    second["metadata"] = {"name": "s", "namespace": "team"}
    for job in (first, second):
        job["metadata"]["labels"] = {}
    assert verdict(first, *nodes(2)) is FITS
    assert verdict(ray("RayCluster", 2), second, *nodes(2)) is not FITS


@pytest.mark.parametrize("field", ["replicas", "numOfHosts", "template", "groups"])
@KINDS
def test_a_value_that_is_not_known_is_undetermined(kind: str, field: str) -> None:
    made = ray(kind)
    spec = made["spec"].get("rayClusterSpec", made["spec"])
    if field == "groups":
        spec["workerGroupSpecs"] = UNKNOWN
    else:
        spec["workerGroupSpecs"][0][field] = UNKNOWN
    assert verdict(made, *nodes(1)) is UNDETERMINED


@KINDS
def test_what_planning_does_not_follow_is_undetermined(kind: str) -> None:
    made = ray(kind)
    made["spec"].get("rayClusterSpec", made["spec"])["enableInTreeAutoscaling"] = True
    assert verdict(made, *nodes(4)) is UNDETERMINED


def test_a_submitter_has_the_operators_requests() -> None:
    made = ray("RayJob", 0)
    for size, expected in (("499m", CANNOT_FIT), ("600m", FITS)):
        small = node("n", gpu=8)
        small["status"]["allocatable"]["cpu"] = size
        assert verdict(made, small) is expected, size
    assert GPU
