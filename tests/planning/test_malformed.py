"""A value of the wrong type, wherever it stands, is a finding or nothing to planning: never a traceback."""

import copy
from typing import Any

import pytest
from ml_foundations.kubernetes.objects import api_object
from ml_foundations.planning import UNKNOWN, Verdict, judge
from ml_foundations.planning.input.program import granted_buckets
from ml_foundations.planning.verdict.program import judge_documents

from tests.factories import (
    HOSTNAME,
    ZONE,
    Manifest,
    anti_affinity,
    container,
    daemon_set,
    deployment,
    job,
    limit_range,
    node,
    node_affinity,
    quota,
    spread,
    stateful_set,
    template,
    workload,
)

VALUES: list[Any] = [
    None,
    "x",
    "",
    5,
    -1,
    1.5,
    True,
    [],
    {},
    ["x"],
    [5],
    [None],
    [{}],
    [[]],
    {"x": 5},
    UNKNOWN,
]
CLAIM = {
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}
PODS = template(
    containers=[
        container(cpu=1)
        | {
            "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
            "ports": [{"containerPort": 80, "hostPort": 80}],
            "securityContext": {"runAsUser": 5, "windowsOptions": {"hostProcess": False}},
            "volumeMounts": [{"name": "claimed", "mountPath": "/c"}],
            "livenessProbe": {"httpGet": {"port": 80}},
        }
    ],
    initContainers=[{"name": "first", "image": "i", "restartPolicy": "Always"}],
    affinity=anti_affinity() | node_affinity({"key": "a", "operator": "Exists"}),
    tolerations=[{"key": "a", "operator": "Exists", "tolerationSeconds": 5, "effect": "NoExecute"}],
    topologySpreadConstraints=[spread(matchLabelKeys=["k"])],
    volumes=[
        {"name": "claimed", "persistentVolumeClaim": {"claimName": "c"}},
        {"name": "made", "ephemeral": {"volumeClaimTemplate": {"spec": CLAIM["spec"]}}},
        {"name": "disk", "gcePersistentDisk": {"pdName": "d"}},
    ],
    nodeSelector={"a": "b"},
    resourceClaims=[{"name": "g", "resourceClaimTemplateName": "t"}],
    securityContext={
        "sysctls": [{"name": "a", "value": "b"}],
        "seccompProfile": {"type": "RuntimeDefault"},
    },
    schedulingGates=[{"name": "a"}],
    overhead={"cpu": "1"},
)
FAILING = {"rules": [{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [1]}}]}
JOB = job("run", 1, PODS, podFailurePolicy=FAILING, completions=1, backoffLimit=1)
WORKLOADS = [
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "one", "namespace": "team"},
        "spec": PODS["spec"],
    },
    deployment(
        "web", 1, PODS, strategy={"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}
    ),
    stateful_set("db", 1, PODS, volumeClaimTemplates=[CLAIM], ordinals={"start": 1}),
    daemon_set("agent", PODS),
    JOB,
    workload(
        "batch/v1",
        "CronJob",
        "nightly",
        {"schedule": "@daily", "jobTemplate": {"spec": JOB["spec"]}},
    ),
    workload(
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        "many",
        {"replicatedJobs": [{"name": "w", "replicas": 1, "template": {"spec": JOB["spec"]}}]},
    ),
]
RESTRICTED = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": "team", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
}
AROUND = [
    RESTRICTED,
    node("n", {ZONE: "a", "a": "b", HOSTNAME: "n"}, cpu="9"),
    quota(hard={"pods": "5", "requests.cpu": "5", "count/jobs.batch": "1"}),
    limit_range({"type": "Container", "default": {"cpu": "1"}}),
]


def paths(tree: Any, path: tuple[Any, ...] = ()) -> dict[tuple[Any, ...], Any]:
    """Return every value in a tree by its path."""
    values: dict[tuple[Any, ...], Any] = {}
    keys = tree if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    for key in keys:
        values[(*path, key)] = tree[key]
        values |= paths(tree[key], (*path, key))
    return values


def changed(tree: Manifest, path: tuple[Any, ...], value: Any) -> Manifest:
    result = copy.deepcopy(tree)
    holder: Any = result
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    return result


@pytest.mark.parametrize("whole", WORKLOADS, ids=lambda each: each["kind"])
def test_no_value_raises_an_exception(whole: Manifest) -> None:
    for number, path in enumerate(paths(whole)):
        for value in VALUES[number % 2 :: 2]:
            if path not in (("kind",), ("apiVersion",)):
                judge([*AROUND, changed(whole, path, value)])


SIMPLE = template(nodeSelector={"a": "b"}, priority=0, terminationGracePeriodSeconds=5)
FITTING = [deployment("web", 1, SIMPLE), stateful_set("db", 1, SIMPLE), job("run", 1, SIMPLE)]
ROOMY = node("n", {ZONE: "a", "a": "b", HOSTNAME: "n"}, cpu="90")


@pytest.mark.parametrize("whole", FITTING, ids=lambda each: each["kind"])
@pytest.mark.parametrize("value", [[[]], {"x": 5}], ids=["list", "object"])
def test_a_list_or_object_in_place_of_a_scalar_never_fits(whole: Manifest, value: Any) -> None:
    assert judge([ROOMY, whole]).stack is Verdict.FITS
    for path, original in paths(whole).items():
        if isinstance(original, str | int) and path not in (("kind",), ("apiVersion",)):
            verdicts = judge([ROOMY, changed(whole, path, value)])
            assert verdicts.stack is not Verdict.FITS, path


GATEWAY = "gateway.networking.k8s.io/v1"
SERVED = [
    api_object(
        "inference.networking.k8s.io/v1",
        "InferencePool",
        {"name": "llm"},
        spec={"selector": {"matchLabels": {"app": "a"}}, "targetPorts": [{"number": 8000}]},
    ),
    api_object(GATEWAY, "Gateway", {"name": "g"}, spec={"gatewayClassName": "gke-l7-rilb"}),
    api_object(
        GATEWAY,
        "HTTPRoute",
        {"name": "r"},
        spec={
            "parentRefs": [{"name": "g"}],
            "rules": [{"backendRefs": [{"kind": "InferencePool", "name": "llm"}]}],
        },
    ),
]


@pytest.mark.parametrize("whole", SERVED, ids=lambda each: each["kind"])
def test_an_object_of_another_group_without_a_field_is_judged(whole: Manifest) -> None:
    others = [each for each in SERVED if each is not whole]
    for path in paths(whole):
        if path not in (("kind",), ("apiVersion",), ("metadata",), ("metadata", "name")):
            holder: Any = copy.deepcopy(whole)
            changing = holder
            for key in path[:-1]:
                changing = changing[key]
            del changing[path[-1]]
            judge_documents([*others, holder])


def test_who_may_read_a_bucket_may_not_be_known_yet() -> None:
    given = ("gcp:storage/bucketIAMBinding:BucketIAMBinding", {"members": UNKNOWN, "bucket": "b"})
    assert [*granted_buckets([given])] == ["b"]


def test_gke_refuses_a_wrong_amount_of_a_container_that_it_adds() -> None:
    annotations = {"gke-gcsfuse/volumes": "true", "gke-gcsfuse/cpu-limit": "many"}
    pods = template() | {"metadata": {"annotations": annotations}}
    [item] = judge([ROOMY, job("run", 1, pods)]).workloads
    assert [reason.path for reason in item.reasons] == [
        "spec.template.metadata.annotations.gke-gcsfuse/cpu-limit"
    ]
