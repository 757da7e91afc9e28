"""Guard rules: a stack that trips each, and one that trips none."""

import copy
from typing import Any

import guards
import pytest
from ml_foundations.kinds.kind_files import kinds
from ml_foundations.planning.rules.findings import Severity
from ml_foundations.planning.verdict.program import judge_program

GPU = "nvidia.com/gpu"


def container(**more: Any) -> dict[str, Any]:
    return {"name": "main", "image": "vllm:v1", "resources": {"limits": {GPU: "2"}}, **more}


def pod_spec(**more: Any) -> dict[str, Any]:
    shm = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}
    mounts = [{"name": "shm", "mountPath": "/dev/shm"}]
    main = container(
        volumeMounts=mounts, readinessProbe={"httpGet": {"path": "/health", "port": 8080}}
    )
    return {"containers": [main], "volumes": [shm], **more}


def job(**spec: Any) -> dict[str, Any]:
    spec = {"activeDeadlineSeconds": 3600, "template": {"spec": pod_spec()}, **spec}
    return {"kind": "Job", "metadata": {"name": "train", "namespace": "ml"}, "spec": spec}


def server(replicas: int = 1, **spec: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "chat"}}, "spec": pod_spec(**spec)}
    metadata = {"name": "chat", "namespace": "ml"}
    spec = {"replicas": replicas, "template": template}
    return {"kind": "Deployment", "metadata": metadata, "spec": spec}


QUOTA = {
    "kind": "ResourceQuota",
    "metadata": {"name": "quota", "namespace": "ml"},
    "spec": {"hard": {f"requests.{GPU}": "8"}},
}
BUDGET = {
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "chat", "namespace": "ml"},
    "spec": {"selector": {"matchLabels": {"app": "chat"}}},
}


def pool(least: int) -> dict[str, Any]:
    config = {"guestAccelerators": [{"type": "nvidia-l4", "count": 1}]}
    made = {"kind": "NodePool", "metadata": {"name": "l4"}, "nodeConfig": config}
    return made | {"autoscaling": {"totalMinNodeCount": least}}


def with_main(item: dict[str, Any], **changes: Any) -> dict[str, Any]:
    changed = copy.deepcopy(item)
    changed["spec"]["template"]["spec"]["containers"][0].update(changes)
    return changed


CPU = {"resources": {"limits": {"cpu": "1"}}}
GPU_TOLERATION = [{"key": GPU, "operator": "Exists"}]

NO_LIMIT = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
SPOT = {"cloud.google.com/gke-spot": "true"}


def job_of(**spec: Any) -> dict[str, Any]:
    """A Job whose pod has other fields."""
    return job(template={"spec": pod_spec(**spec)})


def tripped(words: str, *objects: dict[str, Any]) -> tuple[list[dict[str, Any]], str]:
    """Objects that trip a guard, and what it says of them."""
    return [*objects], words


TRIPS = {
    "image-pinned": [
        tripped("has no tag", with_main(job(), image="pytorch"), QUOTA),
        tripped("the tag latest", with_main(job(), image="registry:5000/a/pytorch:latest"), QUOTA),
    ],
    "cpu-pods-off-gpu-nodes": [
        tripped("asks for no GPU", with_main(job_of(tolerations=GPU_TOLERATION), **CPU))
    ],
    "job-deadline": [tripped("no deadline", job(activeDeadlineSeconds=None), QUOTA)],
    "job-ttl": [tripped("deletes itself", job(ttlSecondsAfterFinished=60), QUOTA)],
    "server-without-deadline": [
        tripped("pods of a server end", server(activeDeadlineSeconds=60), QUOTA)
    ],
    "server-probes": [
        tripped(
            "no container has a readiness probe", with_main(server(), readinessProbe=None), QUOTA
        )
    ],
    "server-disruption-budget": [
        tripped("2 replicas and no PodDisruptionBudget", server(replicas=2), QUOTA)
    ],
    "shared-memory": [
        tripped("no memory-backed", with_main(job(), volumeMounts=[]), QUOTA),
        tripped("no sizeLimit", job_of(volumes=NO_LIMIT), QUOTA),
    ],
    "spot-checkpoints": [tripped("names no checkpoint", job_of(nodeSelector=SPOT), QUOTA)],
    "gpu-quota": [tripped("no quota for GPUs in the namespace ml", job())],
    "pod-security": [
        tripped(
            "must be false, not True", with_main(job(), securityContext={"privileged": True}), QUOTA
        ),
        tripped("must be false, not True", job_of(hostNetwork=True), QUOTA),
        tripped(
            "SYS_ADMIN",
            with_main(job(), securityContext={"capabilities": {"add": ["SYS_ADMIN"]}}),
            QUOTA,
        ),
    ],
    "visible-devices": [
        tripped(
            "sets NVIDIA_VISIBLE_DEVICES",
            with_main(job(), env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]),
            QUOTA,
        )
    ],
    "idle-gpu-nodes": [tripped("at least 2 GPU nodes", pool(2))],
}


def test_every_guard_has_a_stack_that_trips_it() -> None:
    assert {guard.id for guard in guards.GUARDS} == set(TRIPS)


@pytest.mark.parametrize("guard", guards.GUARDS, ids=lambda guard: guard.id)
def test_a_stack_trips_this_guard_and_no_other(guard: guards.Guard) -> None:
    for objects, words in TRIPS[guard.id]:
        found = {other.id: list(other.check(objects)) for other in guards.GUARDS}
        assert [name for name, violations in found.items() if violations] == [guard.id]
        assert all(words in wrong for _, _, wrong in found[guard.id])


WITHOUT_APP = {"key": "app", "operator": "DoesNotExist"}


@pytest.mark.parametrize(
    ("selector", "selects"),
    [
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["chat"]}]}, True),
        ({"matchLabels": {"app": "chat"}, "matchExpressions": [WITHOUT_APP]}, False),
        ({}, True),
        (None, False),
    ],
)
def test_a_disruption_budget_selects_as_kubernetes_does(
    selector: dict[str, Any] | None, selects: bool
) -> None:
    (guard,) = (each for each in guards.GUARDS if each.id == "server-disruption-budget")
    budget = BUDGET | {"spec": {"selector": selector}}
    assert (not list(guard.check([server(replicas=2), budget]))) is selects


VERSIONS = dict.fromkeys(("Pod", "ReplicationController"), "v1")
VERSIONS |= dict.fromkeys(("Job", "CronJob"), "batch/v1")
VERSIONS |= dict.fromkeys(("RayCluster", "RayJob", "RayService"), "ray.io/v1")
VERSIONS |= {"LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1", "JobSet": "jobset.x-k8s.io/v1alpha2"}
GPUS_AS_THE_API_SERVER_REFUSES_THEM: list[tuple[dict[str, Any], str, str]] = [
    ({"requests": {GPU: "2"}}, "extended-resource-limit", f"requests 2 of {GPU} without a limit"),
    (
        {"requests": {GPU: "2"}, "limits": {GPU: "4"}},
        "extended-resource-limit",
        "with its limit of 4 it must be",
    ),
    (
        {"limits": {GPU: "0.5"}},
        "extended-resource-fraction",
        f"requests 500m of {GPU}, which comes in whole units",
    ),
]


@pytest.mark.parametrize(("resources", "rule", "words"), GPUS_AS_THE_API_SERVER_REFUSES_THEM)
@pytest.mark.parametrize("field", ["containers", "initContainers"])
@pytest.mark.parametrize("kind", sorted(guards.POD_KINDS))
def test_the_policy_pack_refuses_invalid_gpu_requests(
    kind: str, field: str, resources: dict[str, Any], rule: str, words: str
) -> None:
    """Also where the nodes are not known. No guard repeats the rule."""
    spec: dict[str, Any] = {"containers": [{"name": "main", "image": "i:1"}]}
    spec[field] = [{"name": "gpus", "image": "i:1", "resources": resources}]
    head = {"template": {"spec": {"containers": [{"name": "main", "image": "i:1"}]}}}
    for key in reversed(f"{kinds()[kind].main_template}.spec".lstrip(".").split(".")):
        is_group = key.endswith("[0]")
        name = {"name": "g"} if kind == "JobSet" else {"groupName": "g"}
        spec = {key.removesuffix("[0]"): [spec | name] if is_group else spec}
        spec |= {"headGroupSpec": head} if is_group and kind != "JobSet" else {}
    version = VERSIONS.get(kind, "apps/v1")
    metadata = {"name": "train", "namespace": "ml"}
    item = {"apiVersion": version, "kind": kind, "metadata": metadata, **spec}
    verdicts = judge_program([(f"kubernetes:{version}:{kind}", item)])
    (found,) = [finding for finding in verdicts.findings if finding.rule == rule]
    assert found.severity is Severity.ERROR
    assert found.object == f"{kind} ml/train"
    assert words in found.message


def test_guards_read_every_job_of_a_job_set() -> None:
    jobs = [
        {"name": name, "template": {"spec": {"template": {"spec": pod_spec()}}}}
        for name in ("driver", "workers")
    ]
    jobs[1]["template"]["spec"]["template"]["spec"]["containers"][0]["image"] = "pytorch"
    ring = {"kind": "JobSet", "metadata": {"name": "ring"}, "spec": {"replicatedJobs": jobs}}
    (violation,) = guards.image_pinned([ring])
    workers = "spec.replicatedJobs[1].template.spec.template.spec"
    assert violation.path == f"{workers}.containers[0].image"


@pytest.mark.parametrize("guard", guards.GUARDS, ids=lambda guard: guard.id)
def test_a_good_stack_trips_none(guard: guards.Guard) -> None:
    checkpoint = {"annotations": {guards.CHECKPOINT: "gs://bucket/run"}}
    spot = job(template={"metadata": checkpoint, "spec": pod_spec(nodeSelector=SPOT)})
    installer = {"name": "d", "image": "d:1", "securityContext": {"privileged": True}}
    on_gpus = {"containers": [installer], "tolerations": GPU_TOLERATION}
    driver = {"kind": "DaemonSet", "metadata": {"name": "d", "namespace": "system"}}
    driver |= {"spec": {"template": {"spec": on_gpus}}}
    level = {"pod-security.kubernetes.io/enforce": "privileged"}
    privileged = {"kind": "Namespace", "metadata": {"name": "system", "labels": level}}
    good = [job(), spot, server(2), BUDGET, QUOTA, pool(0), driver, privileged]
    assert list(guard.check(good)) == []
