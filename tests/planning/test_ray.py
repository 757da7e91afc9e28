"""Ray clusters and jobs: planning judges the pods that their operator makes."""

from typing import Any

import pytest
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning import Verdict
from ml_foundations.planning.verdict.program import judge_documents

from tests.factories import (
    CANNOT,
    FITS,
    GPU,
    OPEN,
    Manifest,
    container,
    namespace,
    namespaced,
    node,
    quota,
    template,
)

KINDS = pytest.mark.parametrize("kind", ["RayCluster", "RayJob", "RayService"])
OWNED = {"RayJob": "rayClusterSpec", "RayService": "rayClusterConfig"}


def ray(kind: str, replicas: int = 1, hosts: int = 1, head: int = 0, **group: Any) -> Manifest:
    def pods(gpus: int) -> Manifest:
        return template({"app": "ray"}, [container(gpu=gpus)])

    workers = {"groupName": "g", "replicas": replicas, "numOfHosts": hosts, "template": pods(8)}
    groups = [{"minReplicas": 0, "maxReplicas": 9, **workers, **group}]
    cluster = {"headGroupSpec": {"template": pods(head)}, "workerGroupSpecs": groups}
    own = {"entrypoint": "e", "shutdownAfterJobFinishes": True} if kind == "RayJob" else {}
    spec = cluster if kind == "RayCluster" else {OWNED[kind]: cluster, **own}
    return namespaced("ray.io/v1", kind, "r", spec=spec)


def with_head_alone(kind: str) -> Manifest:
    """One without workers, whose head no submitter joins."""
    made = ray(kind, 0)
    if kind == "RayJob":
        made["spec"]["submissionMode"] = "HTTPMode"
    return made


def head_of(made: Manifest) -> Manifest:
    """The container of the head."""
    return cluster_of(made)["headGroupSpec"]["template"]["spec"]["containers"][0]


def cluster_of(made: Manifest) -> Manifest:
    return made["spec"].get(OWNED.get(made["kind"]), made["spec"])


def nodes(count: int) -> list[Manifest]:
    # The head and the submitter run next to the workers.
    return [node(f"n{index}", gpu=8) for index in range(count)]


def verdict(*documents: Manifest) -> Verdict:
    return judge_documents([*documents]).stack


@KINDS
@pytest.mark.parametrize(
    ("replicas", "hosts", "free", "expected"),
    [(2, 1, 2, FITS), (2, 1, 1, CANNOT), (2, 2, 4, FITS), (2, 2, 3, CANNOT)],
)
def test_each_replica_has_its_hosts(
    kind: str, replicas: int, hosts: int, free: int, expected: Verdict
) -> None:
    assert verdict(ray(kind, replicas, hosts), *nodes(free)) is expected


@KINDS
def test_the_bounds_of_a_group_decide(kind: str) -> None:
    assert verdict(ray(kind, 1, minReplicas=3), *nodes(2)) is CANNOT
    assert verdict(ray(kind, 5, maxReplicas=2), *nodes(2)) is FITS
    assert verdict(ray(kind, 5, suspend=True), *nodes(1)) is FITS


@KINDS
def test_a_head_may_need_gpus(kind: str) -> None:
    assert verdict(ray(kind, 1, head=8), *nodes(2)) is FITS
    assert verdict(ray(kind, 1, head=8), *nodes(1)) is CANNOT


@KINDS
def test_a_quota_counts_pods_and_services(kind: str) -> None:
    services = {"RayCluster": 1, "RayJob": 2, "RayService": 3}[kind]
    pods = {"RayCluster": 3, "RayJob": 4, "RayService": 3}[kind]
    hard = {"requests.nvidia.com/gpu": "16", "services": str(services), "pods": str(pods)}
    made = ray(kind, 2)
    assert verdict(made, quota(hard=hard), *nodes(2)) is FITS
    for name in hard:
        less = hard | {name: str(int(hard[name]) - 1)}
        assert verdict(made, quota(hard=less), *nodes(2)) is CANNOT, name
    assert verdict(ray(kind, 1, 2), quota(hard=hard), *nodes(2)) is CANNOT, "a headless Service"


def test_jobs_that_end_leave_room_to_others() -> None:
    assert verdict(ray("RayJob", 2), *nodes(2)) is FITS
    other = namespaced("ray.io/v1", "RayJob", "s", spec=ray("RayJob", 2)["spec"])
    assert verdict(ray("RayCluster", 2), other, *nodes(2)) is not FITS


@pytest.mark.parametrize("field", ["replicas", "numOfHosts", "template", "groups"])
@KINDS
def test_a_value_that_is_not_known_is_undetermined(kind: str, field: str) -> None:
    made = ray(kind)
    spec = cluster_of(made)
    if field == "groups":
        spec["workerGroupSpecs"] = UNKNOWN
    else:
        spec["workerGroupSpecs"][0][field] = UNKNOWN
    assert verdict(made, *nodes(1)) is OPEN


@KINDS
def test_what_planning_does_not_follow_is_undetermined(kind: str) -> None:
    made = ray(kind)
    cluster_of(made)["gcsFaultToleranceOptions"] = {"redisAddress": "redis:6379"}
    assert verdict(made, *nodes(4)) is OPEN


@KINDS
@pytest.mark.parametrize(
    ("options", "free", "expected"),
    [
        ({}, "2499m", CANNOT),
        ({}, "2500m", FITS),
        ({"resources": {"requests": {"cpu": "1"}}}, "2999m", CANNOT),
        ({"resources": {"requests": {"cpu": "1"}}}, "3", FITS),
        ({"resources": UNKNOWN}, "3", OPEN),
        ({"idleTimeoutSeconds": 60, "version": "v2"}, "2500m", FITS),
    ],
)
def test_an_autoscaler_runs_next_to_the_head(
    kind: str, options: Manifest, free: str, expected: Verdict
) -> None:
    made, small = with_head_alone(kind), node("n", gpu=8, cpu=free)
    head_of(made)["resources"] = {"requests": {"cpu": "2"}}
    assert verdict(made, small) is FITS
    cluster_of(made).update(enableInTreeAutoscaling=True, autoscalerOptions=options)
    assert verdict(made, small) is expected


RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


@KINDS
def test_an_autoscaler_must_meet_the_pod_security_of_its_namespace(kind: str) -> None:
    team = namespace("team", {"pod-security.kubernetes.io/enforce": "restricted"})
    made = with_head_alone(kind)
    head_of(made)["securityContext"] = RESTRICTED
    assert verdict(made, team, *nodes(1)) is FITS
    cluster_of(made)["enableInTreeAutoscaling"] = True
    assert verdict(made, team, *nodes(1)) is CANNOT
    cluster_of(made)["autoscalerOptions"] = {"securityContext": RESTRICTED}
    assert verdict(made, team, *nodes(1)) is FITS


@pytest.mark.parametrize(("size", "expected"), [("1499m", CANNOT), ("1500m", FITS)])
def test_a_submitter_may_run_next_to_the_head(size: str, expected: Verdict) -> None:
    made = ray("RayJob", 0)
    made["spec"]["submissionMode"] = "SidecarMode"
    head = made["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    head["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    small = node("n", gpu=8)
    small["status"]["allocatable"] |= {"cpu": size, "pods": "1"}
    assert verdict(made, small) is expected


@pytest.mark.parametrize(
    ("strategy", "expected"), [("None", FITS), ("NewClusterWithIncrementalUpgrade", OPEN)]
)
def test_incremental_upgrades_of_a_service_are_undetermined(
    strategy: str, expected: Verdict
) -> None:
    made = ray("RayService")
    made["spec"]["upgradeStrategy"] = {"type": strategy}
    assert verdict(made, *nodes(1)) is expected


def test_a_submitter_has_the_operators_requests() -> None:
    made = ray("RayJob", 0)
    for size, expected in (("499m", CANNOT), ("600m", FITS)):
        small = node("n", gpu=8)
        small["status"]["allocatable"]["cpu"] = size
        assert verdict(made, small) is expected, size
    assert GPU
