"""Kueue's quotas: what a queue can never admit, and where it sends what it admits."""

import copy
from typing import Any

import pytest
from ml_foundations.kubernetes.trees import unknown_paths
from ml_foundations.planning import UNKNOWN, Verdict, judge
from ml_foundations.planning.input.program import objects_of

from tests.factories import (
    GPU,
    Manifest,
    container,
    deployment,
    job,
    namespaced,
    node_affinity,
    pool,
    quota,
    template,
)
from tests.planning.queues import (
    BORROWING,
    FLAVOR,
    LOCAL,
    cluster_queue,
    cohort,
    configured,
    flavor,
    offering,
    queued,
    ring,
    server,
    waiting,
)

NODES = pool("h100", 4, {"gpu": "h100"}, [{"key": "reserved", "effect": "NoSchedule"}], gpu="8")


@pytest.mark.parametrize(("queues", "is_enough"), BORROWING)
def test_quotas_of_a_queue_and_what_it_borrows(queues: list[Manifest], is_enough: bool) -> None:
    expected = Verdict.FITS if is_enough else Verdict.CANNOT_FIT
    assert judge([queued(3), FLAVOR, LOCAL, NODES, *queues]).workloads[0].verdict is expected
    assert judge([queued(2), FLAVOR, LOCAL, NODES, *queues]).workloads[0].verdict is Verdict.FITS


def test_a_queue_that_is_not_declared() -> None:
    assert judge([queued(2), FLAVOR, LOCAL, NODES]).workloads[0].verdict is Verdict.UNDETERMINED


@pytest.mark.parametrize(
    ("rank", "pods", "expected"),
    [
        ("high", 2, Verdict.FITS),
        ("hihg", 2, Verdict.UNDETERMINED),
        ("hihg", 3, Verdict.CANNOT_FIT),
        (UNKNOWN, 2, Verdict.FITS),
    ],
)
def test_the_rank_of_a_queued_job_exists(rank: Any, pods: int, expected: Verdict) -> None:
    """Kueue 0.19 makes no Workload for a Job whose WorkloadPriorityClass does not exist."""
    high = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": "high"},
    }
    ranked, plain = (
        queued(pods),
        queued(1) | {"metadata": {**queued(1)["metadata"], "name": "plain"}},
    )
    ranked["metadata"]["labels"] |= {"kueue.x-k8s.io/priority-class": rank}
    stack = [plain, ranked, high | {"value": 1}, FLAVOR, LOCAL, NODES, cluster_queue()]
    assert [each.verdict for each in judge(stack).workloads] == [Verdict.FITS, expected]


def test_what_waits_in_a_queue_takes_turns() -> None:
    assert (
        judge([queued(2), queued(2), FLAVOR, LOCAL, NODES, cluster_queue()]).stack is Verdict.FITS
    )
    tolerant = template(containers=[container(gpu=8)], tolerations=[{"operator": "Exists"}])
    assert (
        judge(
            [queued(2), deployment("web", 2, tolerant), FLAVOR, LOCAL, NODES, cluster_queue()]
        ).stack
        is Verdict.FITS
    )
    assert (
        judge(
            [queued(2), deployment("web", 3, tolerant), FLAVOR, LOCAL, NODES, cluster_queue()]
        ).stack
        is Verdict.UNDETERMINED
    )


def test_the_message_names_what_is_missing() -> None:
    (reason,) = judge([queued(3), FLAVOR, LOCAL, NODES, cluster_queue()]).workloads[0].reasons
    assert reason.message == (
        "it needs 24 nvidia.com/gpu at once, and one flavor of ClusterQueue team has 16 at most, borrowed ones included: 8 too few"
    )


def test_queues_promise_what_nodes_have_and_quotas_allow() -> None:
    def findings(*documents: Manifest) -> list[str]:
        found = judge([FLAVOR, LOCAL, NODES, *documents]).findings
        return [
            f"{f.severity} {f.object}: {f.message}" for f in found if f.rule == "queue-capacity"
        ]

    assert findings(cluster_queue("team", 16), cluster_queue("other", 16)) == []
    assert findings(cluster_queue("team", 16), cluster_queue("other", 17)) == [
        "warning ResourceFlavor h100: queues promise 33 nvidia.com/gpu, and h100 has 32"
    ]
    assert findings(cluster_queue("team", 9), quota(hard={f"requests.{GPU}": "8"})) == [
        "warning ClusterQueue team: queues promise 9 nvidia.com/gpu, and ResourceQuota team/quota has 8"
    ]
    # A queue of two namespaces may have the quotas of both.
    quotas = [quota(hard={f"requests.{GPU}": "8"}), quota("b", hard={f"requests.{GPU}": "4"})]
    second = copy.deepcopy([LOCAL, quotas[1]])
    for item in second:
        item["metadata"]["namespace"] = "b"
    assert findings(cluster_queue("team", 12), quotas[0], *second) == []
    assert findings(cluster_queue("team", 13), quotas[0], second[0]) == []
    (both,) = findings(cluster_queue("team", 13), quotas[0], *second)
    assert both.endswith("ResourceQuota b/b and ResourceQuota team/quota have 12")
    other = pool("other", 1, {"gpu": "h100"}, gpu="8")
    assert findings(cluster_queue("team", 41), other) == [
        "warning ResourceFlavor h100: queues promise 41 nvidia.com/gpu, and h100 and other have 40"
    ]
    elsewhere = {**FLAVOR, "metadata": {"name": "l4"}, "spec": {"nodeLabels": {"gpu": "l4"}}}
    queue = cluster_queue("team", 8)
    queue["spec"]["resourceGroups"][0]["flavors"][0]["name"] = "l4"
    assert findings(elsewhere, queue) == [
        "warning ResourceFlavor l4: queues promise 8 nvidia.com/gpu, and no node of this flavor has any"
    ]
    # A quota counts GPUs under this name only.
    assert findings(cluster_queue("team", 9), quota(hard={GPU: "8"})) == []
    unsure = pool("unsure", 1, {"gpu": UNKNOWN}, gpu="8")  # pyright: ignore[reportArgumentType]
    assert findings(cluster_queue("team", 33), unsure) == []


@pytest.mark.parametrize(
    ("spec", "taints", "expected"),
    [
        ({}, [], Verdict.FITS),
        (
            {"nodeSelector": {"gpu": "h100", "disk": "ssd"}},
            [],
            Verdict.CANNOT_FIT,
        ),  # no node has the disk
        ({"nodeSelector": {"gpu": "l4"}}, [], Verdict.CANNOT_FIT),
        (
            {"affinity": node_affinity({"key": "gpu", "operator": "In", "values": ["h100", "l4"]})},
            [],
            Verdict.FITS,
        ),
        (
            {"affinity": node_affinity({"key": "gpu", "operator": "In", "values": ["l4"]})},
            [],
            Verdict.CANNOT_FIT,
        ),
        ({}, [{"key": "owned", "value": "x", "effect": "NoSchedule"}], Verdict.CANNOT_FIT),
        (
            {"tolerations": [{"key": "owned", "operator": "Exists"}]},
            [{"key": "owned", "value": "x", "effect": "NoSchedule"}],
            Verdict.FITS,
        ),
    ],
)
def test_a_flavor_accepts_pods_that_select_and_tolerate_it(
    spec: Manifest, taints: list[Manifest], expected: Verdict
) -> None:
    flavor = {**FLAVOR, "spec": {"nodeLabels": {"gpu": "h100"}, "nodeTaints": taints}}
    train = queued(1)
    train["spec"]["template"]["spec"] |= spec
    nodes = pool("h100", 4, {"gpu": "h100"}, gpu="8")
    verdicts = judge([train, flavor, LOCAL, nodes, cluster_queue()])
    assert verdicts.workloads[0].verdict is expected


OTHER = namespaced("kueue.x-k8s.io/v1beta2", "LocalQueue", "other", spec={"clusterQueue": "other"})
AN_H100, AN_L4 = flavor("h100"), flavor("l4")
ONE_JOB = waiting(job("train", 1, template(containers=[container(gpu=8)])))
CHECKED: Manifest = {"admissionChecksStrategy": {"admissionChecks": [{"name": "budget"}]}}
FOREIGN = {
    **FLAVOR,
    "kind": "AdmissionCheck",
    "metadata": {"name": "budget"},
    "spec": {"controllerName": "example.com/x"},
}


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        # What Kueue v0.19.2 did with them.
        ([*AN_H100, *AN_L4, offering("h100", "l4"), ONE_JOB], Verdict.FITS),
        ([*flavor("h100", 4), *AN_L4, offering("h100", "l4"), ONE_JOB], Verdict.UNDETERMINED),
        ([*AN_H100, *AN_L4, offering("h100", "l4"), ring(1, 1)], Verdict.FITS),
        ([*AN_H100, *AN_L4, offering("h100"), ring(1, 1)], Verdict.CANNOT_FIT),
        ([*AN_H100, *AN_L4, offering("h100", gpus=16), ring(2)], Verdict.UNDETERMINED),  # one waits until the other ends
        ([*AN_H100, offering("h100"), server("a", 4), server("b", 4)], Verdict.FITS),
        ([*AN_H100, offering("h100", gpus=4), server("a", 4), server("b", 4)], Verdict.UNDETERMINED),
        ([*AN_H100, offering("h100", gpus=4), offering("h100", name="other", gpus=4), server("a", 4), server("b", 4, "other")], Verdict.FITS),
        ([pool("h100", 2, {"gpu": "h100"}, gpu="8"), AN_H100[0], offering("h100", gpus=4), offering("h100", name="other", gpus=4),
          server("a", 4, "other"), ONE_JOB], Verdict.UNDETERMINED),
        ([*AN_H100, offering("h100", "gone"), ONE_JOB], Verdict.UNDETERMINED),
        ([*AN_H100, offering("h100", **CHECKED), ONE_JOB], Verdict.UNDETERMINED),
        ([*AN_H100, offering("h100", **CHECKED), FOREIGN, ONE_JOB], Verdict.UNDETERMINED),
        ([*AN_H100, offering("l4"), *flavor("l4", 0), waiting(job("train", 1, template(containers=[{"name": "main"}])))], Verdict.FITS),
        ([*AN_H100, offering("h100", resourceGroups=[]), waiting(job("train", 1, template(containers=[{"name": "main"}])))], Verdict.UNDETERMINED),
    ],
)  # fmt: skip
def test_what_kueue_admits_and_where(documents: list[Manifest], expected: Verdict) -> None:
    assert judge([LOCAL, OTHER, *documents]).stack is expected


@pytest.mark.parametrize(
    ("kind", "expected"), [("Job", Verdict.FITS), ("Deployment", Verdict.CANNOT_FIT)]
)
def test_kueue_counts_job_templates_and_deployment_pods(kind: str, expected: Verdict) -> None:
    """GKE adds the sidecar of a bucket to pods, and to no template."""
    pods = template({"app": "train"}, [container(gpu=8)])
    pods["metadata"]["annotations"] = {"gke-gcsfuse/volumes": "true"}
    made = (
        job("train", 1, pods)
        if kind == "Job"
        else deployment("train", 1, pods, strategy={"type": "Recreate"})
    )
    nodes = pool("h100", 1, {"gpu": "h100", "cloud.google.com/gke-nodepool": "h100"}, gpu="8")
    nodes["status"]["allocatable"]["ephemeral-storage"] = "80Gi"
    assert (
        judge([LOCAL, AN_H100[0], nodes, cluster_queue(), waiting(made)]).workloads[0].verdict
        is expected
    )


@pytest.mark.parametrize(
    ("lender", "spec"),
    [
        (UNKNOWN, {}),
        ("all", {"parentName": "all"}),
        ("all", {"fairSharing": {"weight": UNKNOWN}}),
        ("other", {"parentName": UNKNOWN}),
        ("other", {"parentName": "all", "fairSharing": {"weight": UNKNOWN}}),
    ],
)
def test_cohorts_above_each_other_or_with_unknown_values(lender: Any, spec: Manifest) -> None:
    made = cohort(lender, 7)
    made["spec"] |= spec
    documents = [queued(3), FLAVOR, LOCAL, NODES, cluster_queue(), made]
    assert judge(documents).workloads[0].verdict is Verdict.UNDETERMINED


@pytest.mark.parametrize(
    ("least", "rule"),
    [
        ("2", None),
        ("3", "queue-quota"),
        ("many", "queue"),
        ("0", "queue"),
        ("4", "queue"),
        (UNKNOWN, "queue"),
    ],
)
def test_only_the_minimum_of_a_partial_admission_must_fit(least: Any, rule: str | None) -> None:
    train = queued(4)
    train["metadata"]["annotations"] = {"kueue.x-k8s.io/job-min-parallelism": least}
    (found,) = judge([train, FLAVOR, LOCAL, NODES, cluster_queue()]).workloads
    assert (found.verdict is Verdict.FITS) == (rule is None)
    assert rule is None or rule in [reason.rule for reason in found.reasons], found.reasons


REPLACED = "resources: {transformations: [{input: %s, strategy: Replace, outputs: {example.com/credits: 1}}]}"


@pytest.mark.parametrize(
    ("text", "gpus", "quota", "expected"),
    [
        ("{}", 8, 4, Verdict.CANNOT_FIT),
        ("resources: {excludeResourcePrefixes: [nvidia.com/]}", 8, 4, Verdict.FITS),
        ("resources: {excludeResourcePrefixes: [example.com/]}", 8, 4, Verdict.CANNOT_FIT),
        (REPLACED % GPU, 8, 4, Verdict.UNDETERMINED),
        (REPLACED % GPU, 8, 8, Verdict.UNDETERMINED),
        (REPLACED % "nvidia.com/mig-1g.5gb", 8, 4, Verdict.CANNOT_FIT),
        # No node has so many: no configuration of Kueue changes that.
        (REPLACED % GPU, 9, 4, Verdict.CANNOT_FIT),
        ("resources: [", 8, 4, Verdict.UNDETERMINED),
    ],
)
def test_the_configuration_of_kueue_decides_what_it_counts(
    text: str, gpus: int, quota: int, expected: Verdict
) -> None:
    train = waiting(job("train", 1, template(containers=[container(gpu=gpus)])))
    stack = [LOCAL, *AN_H100, offering("h100", gpus=quota), train, configured(text)]
    assert judge(stack).workloads[0].verdict is expected


def test_the_values_of_kueues_chart_have_its_configuration() -> None:
    release = {
        "chart": "kueue",
        "repositoryOpts": {},
        "values": {
            "managerConfig": {
                "controllerManagerConfigYaml": "resources: {excludeResourcePrefixes: [a/]}"
            }
        },
    }
    (found,) = objects_of([("kubernetes:helm.sh/v3:Release", release)])
    assert found["resources"] == {"excludeResourcePrefixes": ["a/"]}
    (unknown,) = objects_of(
        [("kubernetes:helm.sh/v3:Release", release | {"valueYamlFiles": ["a.yaml"]})]
    )
    assert any(unknown_paths(unknown["resources"]))


TWO_FLAVORS = [*AN_H100, *AN_L4]
"""Two flavors of one node with 8 GPUs each."""


@pytest.mark.parametrize(
    ("gpus", "workloads", "expected"),
    [
        (8, [server("a", 8), server("b", 8)], Verdict.FITS),
        (16, [server("a", 8), server("b", 8)], Verdict.UNDETERMINED),
        (16, [server("a", 4), server("b", 4)], Verdict.FITS),
        (64, [server(name, 1) for name in "abcdefgh"], Verdict.FITS),
        (64, [server(name, 2) for name in "abcdefgh"], Verdict.UNDETERMINED),
        (8, [ring(1, 1)], Verdict.FITS),
        (16, [ring(1, 1)], Verdict.UNDETERMINED),
    ],
)
def test_each_flavor_has_room_for_what_its_quota_admits(
    gpus: int, workloads: list[Manifest], expected: Verdict
) -> None:
    """Kueue admits workloads to the first flavor with enough quota, whatever its nodes have."""
    queue = offering("h100", "l4", gpus=gpus)
    assert judge([LOCAL, *TWO_FLAVORS, queue, *workloads]).stack is expected


@pytest.mark.parametrize(
    ("replicas", "gpus", "expected"),
    [(1, 8, Verdict.FITS), (2, 8, Verdict.UNDETERMINED), (2, 9, Verdict.CANNOT_FIT)],
)
def test_kueue_may_queue_each_replica_to_another_flavor(
    replicas: int, gpus: int, expected: Verdict
) -> None:
    pods = template({"app": "web"}, [container(gpu=gpus)])
    made = waiting(deployment("web", replicas, pods, strategy={"type": "Recreate"}))
    documents = [made, LOCAL, offering("a", "b"), *flavor("a"), *flavor("b")]
    assert judge(documents).stack is expected
