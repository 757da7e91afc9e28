"""What people read: the number that is missing, the nearest pool, the shortest remedy."""

from typing import Any

import pytest
from ml_foundations.kubernetes.words import listed, names, number, verb
from ml_foundations.planning import Verdict, judge
from ml_foundations.planning.rules.findings import Finding
from ml_foundations.planning.verdict.compare import Change
from ml_foundations.planning.verdict.markdown import of_verdicts
from ml_foundations.planning.verdict.report import as_summary, as_text

from tests.factories import (
    GPU,
    ZONE,
    Manifest,
    anti_affinity,
    cluster_wide,
    container,
    daemon_set,
    deployment,
    job,
    limit_range,
    namespaced,
    node,
    pool,
    quota,
    spread,
    template,
)
from tests.support.cluster_objects import LATE, mounted, taint, using, web

H100 = pool("h100", 2, {"gpu": "h100", ZONE: "a"}, [taint(GPU, "present")], gpu="8")
CPU = pool("cpu", 3, {ZONE: "b"})
BRIEF = {"key": "team", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
EVICTING = pool("brief", 1, {}, [{"key": "team", "effect": "NoExecute"}])
SANDBOXED = {"runtimeClassName": "sandbox", "overhead": {"cpu": "1"}}
OVERHEAD = {"podFixed": {"cpu": "1"}}
SANDBOX = cluster_wide(
    "node.k8s.io/v1", "RuntimeClass", "sandbox", handler="sandbox", overhead=OVERHEAD
)
SIDECAR = container(cpu=2) | {"name": "proxy", "image": "i", "restartPolicy": "Always"}
HUNGRY = using(gpu=8, cpu=4)
DATA = mounted()
OF_FAST = {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast"}
DISK = [
    cluster_wide("storage.k8s.io/v1", "StorageClass", "fast", volumeBindingMode=LATE),
    namespaced("v1", "PersistentVolumeClaim", "data", spec=OF_FAST),
]
SPREAD = web(3, topologySpreadConstraints=[spread(minDomains=2)])
SMALL_MOST = limit_range({"type": "Container", "max": {"cpu": "500m"}})
"""A LimitRange whose maximum is half a CPU."""


def line(finding: Finding) -> str:
    """What people read about a finding."""
    return f"{finding.rule}: {finding.message}. | {finding.remedy}"


def line_with_path(finding: Finding) -> str:
    return f"{finding.rule} at {finding.path}: {finding.message}. | {finding.remedy}"


def starting(cpu: int) -> Manifest:
    return container(cpu=cpu) | {"name": "stage", "image": "i"}


def train(pods: int, gpus: int, **spec: Any) -> Manifest:
    return job("train", pods, using(gpu=gpus), **spec)


def of_pods(name: str, replicas: int) -> Manifest:
    return deployment(name, replicas, template())


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        (
            [train(4, 8, gang=True), H100, CPU],
            'nodes at spec.parallelism: each pod needs 8 nvidia.com/gpu; "h100" offers 8 nvidia.com/gpu per node on at most 2 nodes: '
            "room for 2 of the 4 pods that must run at once. | Raise the maximum of h100 to 4 nodes or lower spec.parallelism to 2.",
        ),
        (
            [train(1, 16), H100, CPU],
            "resources at spec.template.spec.containers[0].resources.limits.nvidia.com/gpu: each pod needs 16 nvidia.com/gpu; "
            'the nearest, "h100", does not take it: it needs 16 nvidia.com/gpu, and 8 are free, 8 short. | '
            "Request at most 8 nvidia.com/gpu.",
        ),
        (
            [web(nodeSelector={"gpu": "h100"}), H100, CPU],
            'taint at spec.template.spec.tolerations: each pod needs 1 cpu; the nearest, "h100", does not take it: '
            "untolerated taint nvidia.com/gpu=present:NoSchedule. | Tolerate nvidia.com/gpu=present:NoSchedule.",
        ),
        (
            [train(1, 16), pool("small", 9, {}, gpu="1"), pool("large", 1, {}, gpu="8")],
            "resources at spec.template.spec.containers[0].resources.limits.nvidia.com/gpu: each pod needs 16 nvidia.com/gpu; "
            'the nearest, "large", does not take it: it needs 16 nvidia.com/gpu, and 8 are free, 8 short. | '
            "Request at most 8 nvidia.com/gpu.",
        ),
        (
            [web(nodeSelector={"gpu": "b200"}), H100, pool("l4", 1, {"gpu": "l4"})],
            'node-selector at spec.template.spec.nodeSelector.gpu: each pod needs 1 cpu; the nearest, "l4", does not take it: '
            "node selector gpu=b200: the node has gpu=l4. | "
            "Correct spec.template.spec.nodeSelector (nodes have gpu l4 or h100).",
        ),
        (
            [web(nodeSelector={"disk": "ssd"}), CPU],
            'node-selector at spec.template.spec.nodeSelector.disk: each pod needs 1 cpu; the nearest, "cpu", does not take it: '
            "node selector disk=ssd: the node has no disk. | Correct spec.template.spec.nodeSelector (no node has disk).",
        ),
        (
            [web(13), CPU],
            'nodes at spec.replicas: each pod needs 1 cpu; "cpu" offers 4 cpu per node on at most 3 nodes: '
            "room for 12 of the 13 pods that must run at once. | Raise the maximum of cpu to 4 nodes or lower spec.replicas to 12.",
        ),
        (
            [web(4, affinity=anti_affinity()), CPU],
            'nodes at spec.replicas: each pod needs 1 cpu; "cpu" takes one per node on at most 3 nodes: '
            "room for 3 of the 4 pods that must run at once. | Raise the maximum of cpu to 4 nodes or lower spec.replicas to 3.",
        ),
        (
            [SPREAD, CPU],
            "topology-spread at spec.template.spec.topologySpreadConstraints: 3 pods must run at once, and "
            "topologySpreadConstraints over topology.kubernetes.io/zone lets 1: 3 nodes of cpu would have the room. | "
            "Loosen spec.template.spec.topologySpreadConstraints, or lower spec.replicas to 1.",
        ),
        (
            [web(3), CPU, quota("team-quota", {"requests.cpu": "2"})],
            "quota at ResourceQuota team-quota.spec.hard.requests.cpu: it needs 3 requests.cpu, and ResourceQuota team-quota "
            "leaves 2: 1 too few. | Raise requests.cpu of ResourceQuota team-quota to 3, or ask for less.",
        ),
        (
            [web(), CPU, SMALL_MOST],
            "limit-range-max at spec.template.spec.containers[0].resources.limits.cpu: the API server refuses the pods: "
            "LimitRange limits allows container main at most 500m of cpu, and it has 1. | "
            "Lower cpu to 500m, or raise the maximum of LimitRange limits.",
        ),
        (
            [daemon_set("agent", using(memory="17Gi")), CPU],
            'daemon-set-room at spec.template.spec: "cpu" has no room for its pod: it needs 17Gi memory, and 16Gi are free, 1Gi short. | '
            "Lower the pod's requests, or keep it off cpu by a node selector.",
        ),
        (
            [web(3, tolerations=[BRIEF], affinity=anti_affinity()), EVICTING],
            'taint at spec.template.spec.tolerations.tolerationSeconds: each pod needs 1 cpu; the nearest, "brief", does not '
            "take it: it tolerates the taint team:NoExecute for some seconds only. | "
            "Tolerate team:NoExecute without tolerationSeconds.",
        ),
        (
            [web(containers=[container(cpu=5)], **SANDBOXED), SANDBOX, CPU],
            "resources at spec.template.spec.containers[0].resources.limits.cpu: each pod needs 6 cpu; "
            'the nearest, "cpu", does not take it: it needs 6 cpu, and 4 are free, 2 short. | '
            "Request at most 3 cpu besides the overhead.",
        ),
        (
            [web(initContainers=[SIDECAR, starting(3)], containers=[container(cpu=1)]), CPU],
            "resources at spec.template.spec.initContainers[1].resources.limits.cpu: each pod needs 5 cpu; "
            'the nearest, "cpu", does not take it: it needs 5 cpu, and 4 are free, 1 short. | '
            "Request at most 4 cpu together in proxy and stage.",
        ),
        (
            [web(initContainers=[starting(5)], containers=[container(cpu=1)]), CPU],
            "resources at spec.template.spec.initContainers[0].resources.limits.cpu: each pod needs 5 cpu; "
            'the nearest, "cpu", does not take it: it needs 5 cpu, and 4 are free, 1 short. | '
            "Request at most 4 cpu in stage.",
        ),
        (
            [web()],
            "no-nodes at spec.template.spec: there are no nodes. | Declare a node pool.",
        ),
    ],
)
def test_reasons(documents: list[Manifest], expected: str) -> None:
    (reason,) = judge(documents).workloads[0].reasons
    assert line_with_path(reason) == expected


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        (
            [job("sweep", 9, using(gpu=8)), H100],
            "runs-in-turns at spec.parallelism: 2 of 9 pods run at a time: the nodes allow no more. | "
            "Lower spec.parallelism to 2, or make room for 9.",
        ),
        (
            [job("sweep", 3, template()), CPU, quota(hard={"pods": "1"})],
            "runs-in-turns at spec.parallelism: 1 of 3 pods runs at a time: ResourceQuota quota allows no more. | "
            "Lower spec.parallelism to 1, or make room for 3.",
        ),
        (
            [web(12), CPU],
            "rollout-surge at spec.replicas: 15 pods during a rollout do not fit: the nodes take 12 pods of 1 cpu. | "
            "Make room for 3 more, or set spec.strategy.rollingUpdate to maxSurge 0 and "
            "maxUnavailable 1.",
        ),
        (
            [job("prepare", 1, template(**DATA)), job("train", 1, template(**DATA)), *DISK, CPU],
            "volume-access at volumes: Job team/prepare and Job team/train mount the claim data, which one node at a time "
            "may attach (ReadWriteOnce): pods on another node wait. | "
            "Give data the access mode ReadWriteMany, or run the pods one after the other.",
        ),
    ],
)
def test_warnings(documents: list[Manifest], expected: str) -> None:
    (warning,) = judge(documents).workloads[0].warnings
    assert line_with_path(warning) == expected


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        (
            [of_pods("a", 6), of_pods("b", 8), CPU],
            "competition: Deployment team/a and Deployment team/b run at the same time: together they need 14 cpu, and cpu "
            "offers 12 at most. | Raise the maximum of cpu, or give the workloads separate pools.",
        ),
        (
            [deployment("a", 1, HUNGRY), deployment("b", 2, HUNGRY), H100],
            "competition: Deployment team/a and Deployment team/b run at the same time: together they need "
            "24 nvidia.com/gpu and 12 cpu, and h100 offers 16 and 8 at most. | "
            "Raise the maximum of h100, or give the workloads separate pools.",
        ),
        (
            [of_pods("a", 6), of_pods("b", 8), pool("east", 2), pool("west", 1)],
            "competition: Deployment team/a and Deployment team/b run at the same time: together they need 14 cpu, and "
            "east and west offer 12 at most. | Raise the maximum of east and west, or give the workloads separate pools.",
        ),
        (
            [of_pods("a", 12), job("j", 1, template()), CPU],
            "competition: next to Deployment team/a it may wait forever: together they need 13 cpu, and cpu offers 12 "
            "at most. | Let its pools have more nodes, or give it a separate pool.",
        ),
        (
            [job("a", 12, template(), gang=True), job("j", 1, template()), CPU],
            "competition: next to Job team/a it may wait until they have ended: together they need 13 cpu, and cpu offers "
            "12 at most. | Let its pools have more nodes, or give it a separate pool.",
        ),
        (
            [of_pods("a", 2), of_pods("b", 2), CPU, quota(hard={"requests.cpu": "3"})],
            "quota-sum: Deployment team/a and Deployment team/b together need 4 requests.cpu, and the quota leaves 3: 1 too few. | "
            "Raise requests.cpu to 4, or lower what the workloads ask for.",
        ),
    ],
)
def test_reasons_of_the_stack(documents: list[Manifest], expected: str) -> None:
    (reason,) = judge(documents).reasons
    assert line(reason) == expected


def test_a_quota_that_is_used_beyond_its_amounts_leaves_nothing() -> None:
    used = {**quota(hard={"pods": "1"}), "status": {"hard": {"pods": "1"}, "used": {"pods": "3"}}}
    assert "leaves pods 0 of 1." in as_summary(judge([used, web(2), CPU]))


FAILING = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}}]}
OF_SUCCESS = {"rules": [{"succeededIndexes": "7"}]}
INDEXED: Manifest = {"completionMode": "Indexed"}
LATER = {"operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5}


@pytest.mark.parametrize(
    ("spec", "pods", "wrong"),
    [
        (
            {"podFailurePolicy": FAILING},
            {"restartPolicy": "OnFailure"},
            "spec.template.spec.restartPolicy must be Never, not 'OnFailure', because podFailurePolicy is set",
        ),
        ({}, {"restartPolicy": "Always"}, "must be one of OnFailure, Never, not 'Always'"),
        (
            INDEXED | {"completions": None},
            {},
            "spec.completions must be given, because completionMode is Indexed and parallelism is set",
        ),
        (
            {"backoffLimitPerIndex": 1},
            {},
            "must be left out, not 1, because completionMode is not Indexed",
        ),
        (
            INDEXED | {"completions": 4, "successPolicy": OF_SUCCESS},
            {},
            "must be indexes in ascending order below 4, because completions is 4",
        ),
        (
            {},
            {"hostUsers": False, "hostPID": True},
            "hostPID must be false, not True, because hostUsers is false",
        ),
        (
            {},
            {"tolerations": [LATER]},
            "effect must be NoExecute, not 'NoSchedule', because tolerationSeconds is set",
        ),
    ],
)
def test_a_refused_value_names_the_field_that_forbids_it(
    spec: Manifest, pods: Manifest, wrong: str
) -> None:
    workload = job("train", 1, template(**{"restartPolicy": "Never"} | pods))
    workload["spec"] |= spec
    reasons = judge([workload, CPU]).workloads[0].reasons
    assert [reason.message for reason in reasons if reason.message.endswith(wrong)], reasons


def test_a_refused_quota_is_not_taken_for_the_workload() -> None:
    refused = quota("q", {"services": "2"}, scopes=["NotTerminating"])
    text = as_text(judge([job("train", 1, template()), CPU, refused]))
    told = "ResourceQuota q: the API server refuses it: spec.scopes must not hold NotTerminating, because spec.hard has"
    assert f"\n  {told} services." in text
    assert f"\nerror: {told} services." in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (number(1, "pod"), "1 pod"),
        (number(0, "node"), "0 nodes"),
        (number(2, "GPU"), "2 GPUs"),
        (verb(1, "has", "have"), "has"),
        (verb(2, "has", "have"), "have"),
        (listed([]), "nothing"),
        (listed(["a"]), "a"),
        (listed(["a", "b"]), "a and b"),
        (listed("abcde"), "a, b, c, d and e"),
        (names("abc"), "a, b and c"),
        (names("abcde"), "a, b, c and 2 more"),
    ],
)
def test_numbers_verbs_and_lists(text: str, expected: str) -> None:
    assert text == expected


@pytest.mark.parametrize(
    ("documents", "accepted", "answer"),
    [
        ([web(), CPU], 0, "The stack fits."),
        ([web(), CPU], 2, "fits, except for 2 accepted findings."),
        ([web(13), CPU], 0, "The stack cannot fit."),
        ([web(13), CPU], 1, "fits, except for 1 accepted finding."),
    ],
)
def test_the_first_line_agrees_with_what_happens(
    documents: list[Manifest], accepted: int, answer: str
) -> None:
    first, *_ = as_summary(judge(documents), accepted).splitlines()
    assert first.endswith(answer)


def test_a_claim_that_is_too_large_is_not_the_fault_of_its_job() -> None:
    claim = {**DISK[1], "spec": {**DISK[1]["spec"], "resources": {"requests": {"storage": "9Ti"}}}}
    limit = quota("team-quota", {"requests.storage": "1Ti"})
    found = judge([job("train", 1, template(**DATA)), DISK[0], claim, limit, CPU]).workloads[0]
    (reason,) = [reason for reason in found.reasons if reason.rule == "quota"]
    assert reason.message.startswith("the claims that it needs come to 9Ti requests.storage")
    assert reason.remedy.endswith("or make the claims smaller or fewer.")


def test_an_object_that_is_declared_twice_is_named_in_every_verdict() -> None:
    verdicts = judge([of_pods("other", 1), web(1), web(2), CPU])
    assert {finding.object for finding in verdicts.findings} == {"Deployment team/web"}


def test_one_fault_at_several_paths_is_one_line() -> None:
    pods = template(serviceAccountName="gone")
    group = {"size": 2, "leaderTemplate": pods, "workerTemplate": pods}
    kind = ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "web")
    verdicts = judge([namespaced(*kind, spec={"leaderWorkerTemplate": group}), node("n")])
    (web,) = verdicts.workloads
    assert len(web.reasons) == 2
    assert as_text(verdicts).count("account gone is not") == 1
    assert of_verdicts(verdicts).count("account gone is not") == 1
    assert len(Change(None, web).reasons) == 1


def test_a_class_that_several_requests_name_is_missing_once() -> None:
    requests = [{"name": name, "exactly": {"deviceClassName": "mig"}} for name in ("a", "b")]
    claimed = namespaced("resource.k8s.io/v1", "ResourceClaimTemplate", "g")
    claimed["spec"] = {"spec": {"devices": {"requests": requests}}}
    shown = {
        "driver": "d",
        "nodeName": "n",
        "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
    }
    slices = cluster_wide("resource.k8s.io/v1", "ResourceSlice", "s", spec=shown)
    pods = template(resourceClaims=[{"name": "g", "resourceClaimTemplateName": "g"}])
    found = judge([deployment("web", 1, pods), claimed, slices, node("n")]).workloads[0]
    assert found.reasons[0].message.count("DeviceClass mig") == 1


def test_the_pod_sets_of_a_workload_need_nodes_together() -> None:
    """Leader and workers each need whole nodes: as many as each lacks alone are too few."""
    pods = using(gpu=2)
    group = {"size": 3, "leaderTemplate": pods, "workerTemplate": pods}
    kind = ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "web")
    serving = namespaced(*kind, spec={"leaderWorkerTemplate": group})
    (reason,) = judge([serving, pool("l4", 1, gpu="2")]).workloads[0].reasons
    assert reason.remedy.startswith("Raise the maximum of l4 to 3 nodes ")
    assert judge([serving, pool("l4", 3, gpu="2")]).stack is Verdict.FITS
