"""ScaledObjects of KEDA: planning judges the autoscaler that KEDA makes of each."""

from typing import Any

import pytest
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning import Verdict
from ml_foundations.planning.verdict.program import judge_documents
from ml_foundations.planning.verdict.verdicts import Verdicts

from tests.factories import (
    Manifest,
    container,
    deployment,
    job,
    namespaced,
    node,
    quota,
    stateful_set,
    template,
)
from tests.support.cluster_objects import autoscaler

FITS, CANNOT_FIT, UNDETERMINED = Verdict.FITS, Verdict.CANNOT_FIT, Verdict.UNDETERMINED


def scaled(annotations: Any = None, **spec: Any) -> Manifest:
    spec = {"scaleTargetRef": {"name": "chat"}, "triggers": [{"type": "prometheus"}]} | spec
    made = namespaced("keda.sh/v1alpha1", "ScaledObject", "chat", spec=spec)
    made["metadata"]["annotations"] = annotations or {}
    return made


def verdicts(*documents: Manifest, free: int = 4) -> Verdicts:
    pods = template({"app": "chat"}, [container(gpu=8)])
    server = deployment("chat", 1, pods, strategy={"type": "Recreate"})
    nodes = [node(f"n{index}", gpu=8) for index in range(free)]
    return judge_documents([server, *documents, *nodes])


def judged(*documents: Manifest, free: int = 4) -> tuple[Verdict, set[str]]:
    found = verdicts(*documents, free=free)
    return found.stack, {finding.rule for finding in found.findings}


@pytest.mark.parametrize(
    ("spec", "verdict", "rules"),
    [
        ({"maxReplicaCount": 4}, FITS, set[str]()),
        ({"maxReplicaCount": 5}, FITS, {"autoscaling-ceiling"}),
        ({}, FITS, {"autoscaling-ceiling"}),  # at most 100
        ({"minReplicaCount": 4, "maxReplicaCount": 4}, FITS, set[str]()),
        ({"minReplicaCount": 5, "maxReplicaCount": 5}, CANNOT_FIT, {"nodes"}),
        ({"minReplicaCount": 0, "maxReplicaCount": 2}, FITS, set[str]()),
        ({"maxReplicaCount": "many"}, FITS, {"invalid"}),
        ({"maxReplicaCount": UNKNOWN}, UNDETERMINED, {"unknown-field"}),
        ({"scaleTargetRef": {"name": "other"}}, FITS, {"autoscaling-target"}),
        ({"scaleTargetRef": None}, FITS, {"invalid"}),
    ],
)
def test_it_bounds_the_replicas(spec: Manifest, verdict: Verdict, rules: set[str]) -> None:
    found, broken = judged(scaled(**spec))
    assert broken == rules
    assert found is verdict or "invalid" in rules


@pytest.mark.parametrize(
    ("annotations", "verdict"),
    [
        ({"paused": "true"}, FITS),
        ({"paused": "false"}, CANNOT_FIT),
        ({"paused-replicas": "2"}, FITS),
        ({"paused-replicas": "5"}, CANNOT_FIT),
    ],
)
def test_one_that_is_paused_scales_nothing(annotations: Manifest, verdict: Verdict) -> None:
    keys = {f"autoscaling.keda.sh/{key}": value for key, value in annotations.items()}
    assert judged(scaled(keys, minReplicaCount=5, maxReplicaCount=5))[0] is verdict


@pytest.mark.parametrize(
    ("bounds", "free", "verdict", "rules"),
    [
        ({"minReplicaCount": 0, "maxReplicaCount": 4}, 4, FITS, set[str]()),
        ({"minReplicaCount": 0, "maxReplicaCount": 5}, 4, FITS, {"autoscaling-ceiling"}),
        ({"maxReplicaCount": 5}, 0, CANNOT_FIT, {"no-nodes"}),
    ],
)
def test_it_scales_a_deployment_without_replicas(
    bounds: Manifest, free: int, verdict: Verdict, rules: set[str]
) -> None:
    """An autoscaler of Kubernetes does not."""
    pods = template({"app": "chat"}, [container(gpu=8)])
    idle = deployment("chat", 0, pods, strategy={"type": "Recreate"})
    nodes = [node(f"n{index}", gpu=8) for index in range(free)]
    found = judge_documents([idle, scaled(**bounds), *nodes])
    assert (found.stack, {finding.rule for finding in found.findings}) == (verdict, rules)
    by_kubernetes = judge_documents([idle, autoscaler(idle, maxReplicas=9), *nodes])
    assert by_kubernetes.stack is FITS
    assert by_kubernetes.workloads[0].gpus is None


def test_a_quota_counts_its_autoscaler() -> None:
    name = "count/horizontalpodautoscalers.autoscaling"
    bounds = {"maxReplicaCount": 2}
    assert judged(scaled(**bounds), quota(hard={name: "1"}))[0] is FITS
    assert judged(scaled(**bounds), quota(hard={name: "0"}))[0] is CANNOT_FIT


def test_a_fix_names_its_field() -> None:
    (finding,) = verdicts(scaled(maxReplicaCount=5)).findings
    expected = "Make room for 1 more, or lower spec.maxReplicaCount of ScaledObject chat."
    assert finding.remedy == expected


def test_its_credentials_decide_nothing() -> None:
    access = namespaced("keda.sh/v1alpha1", "TriggerAuthentication", "t", spec={})
    assert judged(access) == (FITS, set())


def test_two_autoscalers_of_a_deployment_do_nothing() -> None:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat"}
    spec = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 2}
    own = namespaced("autoscaling/v2", "HorizontalPodAutoscaler", "own", spec=spec)
    assert "autoscaling-metric" in judged(scaled(maxReplicaCount=2), own)[1]


def test_findings_name_the_scaled_object() -> None:
    """Also if KEDA gives its autoscaler another name."""
    named = {"horizontalPodAutoscalerConfig": {"name": "hpa"}}
    other = scaled(scaleTargetRef={"name": "other"}, advanced=named)
    [found] = judge_documents([other]).findings
    assert found.object == f"ScaledObject {other['metadata']['namespace']}/chat"
    pods = template({"app": "chat"}, [container(gpu=8)])
    many = scaled(minReplicaCount=5, maxReplicaCount=5)
    found, *_ = judge_documents([deployment("chat", 1, pods), many, node("n", gpu=8)]).findings
    assert "spec.minReplicaCount of ScaledObject chat" in found.remedy


def test_the_default_of_the_least_replicas_is_one() -> None:
    pods = template({"app": "chat"}, [container(gpu=8)])
    server = deployment("chat", 4, pods)
    objects = [server, autoscaler(server, maxReplicas=4), node("n", gpu=8)]
    finding, *_ = judge_documents(objects).findings
    assert "lower spec.replicas to 1" in finding.remedy
    assert "minReplicas" not in finding.remedy


GPUS = template({"app": "w"}, [container(gpu=8)])
JOB = {"restartPolicy": "Never", **GPUS["spec"]}
RESTING = [
    deployment("w", 0, GPUS),
    stateful_set("w", 0, GPUS),
    job("w", 0, GPUS),
    namespaced("ray.io/v1", "RayCluster", "w", spec={"headGroupSpec": {"template": template({}, [container(cpu=1)])}, "workerGroupSpecs": [{"groupName": "g", "replicas": 0, "minReplicas": 0, "maxReplicas": 10, "template": GPUS}]}),
    namespaced("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "w", spec={"replicas": 0, "leaderWorkerTemplate": {"size": 2, "workerTemplate": GPUS}}),
    namespaced("jobset.x-k8s.io/v1alpha2", "JobSet", "w", spec={"suspend": True, "replicatedJobs": [{"name": "j", "replicas": 0, "template": {"spec": {"template": {"spec": JOB}}}}]}),
]  # fmt: skip


@pytest.mark.parametrize("resting", RESTING, ids=lambda each: each["kind"])
@pytest.mark.parametrize(("gpus", "is_told"), [(8, False), (4, True)])
def test_one_pod_of_none_is_judged(resting: Manifest, gpus: int, is_told: bool) -> None:
    """It is a warning: at rest, the object needs no node."""
    (item,) = judge_documents([resting, node("cpu"), node("n", gpu=gpus)]).workloads
    assert item.verdict is FITS
    assert [each.rule for each in item.warnings] == ["resources"] * is_told
    resting = {**resting, "metadata": {**resting["metadata"], "uid": "u"}}
    (item,) = judge_documents([resting, node("cpu"), node("n", gpu=gpus)]).workloads
    assert not item.warnings
