"""Kueue's quotas: what a queue can never admit, and where it sends what it admits."""

from collections.abc import Callable
from typing import Any

import pytest
from ml_foundations.kubernetes.objects import RELEASE
from ml_foundations.kubernetes.trees import unknown_paths
from ml_foundations.planning import UNKNOWN, Verdict, judge
from ml_foundations.planning.input.program import objects_of

from tests.factories import (
    CANNOT,
    FITS,
    GPU,
    OPEN,
    Manifest,
    cluster_wide,
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
from tests.support.cluster_objects import kueue, taint, using
from tests.support.findings import told

NODES = pool("h100", 4, {"gpu": "h100"}, [{"key": "reserved", "effect": "NoSchedule"}], gpu="8")


def verdict(*documents: Manifest) -> Verdict:
    """The verdict on the first workload, with a queue's flavor, LocalQueue and nodes."""
    return judge([*documents, FLAVOR, LOCAL, NODES]).workloads[0].verdict


@pytest.mark.parametrize(("queues", "is_enough"), BORROWING)
def test_quotas_of_a_queue_and_what_it_borrows(queues: list[Manifest], is_enough: bool) -> None:
    assert verdict(queued(3), *queues) is (FITS if is_enough else CANNOT)
    assert verdict(queued(2), *queues) is FITS


def test_a_queue_that_is_not_declared() -> None:
    assert verdict(queued(2)) is OPEN


def test_a_kind_that_is_not_known_waits_in_a_queue() -> None:
    """Its namespace is none that a known workload has."""
    assert verdict(queued(2) | {"apiVersion": "v1"}, cluster_queue()) is OPEN


@pytest.mark.parametrize(
    ("rank", "pods", "expected"),
    [("high", 2, FITS), ("hihg", 2, OPEN), ("hihg", 3, CANNOT), (UNKNOWN, 2, FITS)],
)
def test_the_rank_of_a_queued_job_exists(rank: Any, pods: int, expected: Verdict) -> None:
    """Kueue 0.19 makes no Workload for a Job whose WorkloadPriorityClass does not exist."""
    high = cluster_wide("kueue.x-k8s.io/v1beta2", "WorkloadPriorityClass", "high", value=1)
    plain, ranked = queued(1), queued(pods)
    plain["metadata"]["name"] = "plain"
    ranked["metadata"]["labels"] |= {"kueue.x-k8s.io/priority-class": rank}
    stack = [plain, ranked, high, FLAVOR, LOCAL, NODES, cluster_queue()]
    assert [each.verdict for each in judge(stack).workloads] == [FITS, expected]


TOLERANT = template(containers=[container(gpu=8)], tolerations=[{"operator": "Exists"}])


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (queued(2), FITS),
        (deployment("web", 2, TOLERANT), FITS),
        (deployment("web", 3, TOLERANT), OPEN),
    ],
)
def test_what_waits_in_a_queue_takes_turns(other: Manifest, expected: Verdict) -> None:
    assert judge([queued(2), other, FLAVOR, LOCAL, NODES, cluster_queue()]).stack is expected


def test_a_resource_that_a_queue_does_not_cover_has_no_quota_to_raise() -> None:
    train = waiting(job("train", 1, using(gpu=8, cpu=1)))
    (found,) = judge([LOCAL, *AN_H100, offering("h100"), train]).workloads
    assert found.verdict is CANNOT
    (reason,) = found.reasons
    assert reason.message.startswith("ClusterQueue team does not cover cpu")
    assert "nominalQuota" not in reason.remedy
    for way in ("coveredResources", "excludeResourcePrefixes"):
        assert way in reason.remedy
    excluded = configured("resources: {excludeResourcePrefixes: [cpu]}")
    assert judge([LOCAL, *AN_H100, offering("h100"), train, excluded]).stack is FITS


def test_the_message_names_what_is_missing() -> None:
    (reason,) = judge([queued(3), FLAVOR, LOCAL, NODES, cluster_queue()]).workloads[0].reasons
    assert reason.message == (
        "it needs 24 nvidia.com/gpu at once, and one flavor of ClusterQueue team has 16 at most, borrowed ones included: 8 too few"
    )


def in_namespace(manifest: Manifest, name: str) -> Manifest:
    return manifest | {"metadata": manifest["metadata"] | {"namespace": name}}


OF_TEAM, OF_B = quota(hard={f"requests.{GPU}": "8"}), quota("b", {f"requests.{GPU}": "4"})
IN_B = in_namespace(LOCAL, "b"), in_namespace(OF_B, "b")
ANOTHER = pool("other", 1, {"gpu": "h100"}, gpu="8")
UNSURE = pool("unsure", 1, {"gpu": UNKNOWN}, gpu="8")  # pyright: ignore[reportArgumentType]
L4 = kueue("ResourceFlavor", "l4", nodeLabels={"gpu": "l4"})


@pytest.mark.parametrize(
    ("documents", "found"),
    [
        ([cluster_queue("team", 16), cluster_queue("other", 16)], []),
        (
            [cluster_queue("team", 16), cluster_queue("other", 17)],
            ["ResourceFlavor h100: queues promise 33 nvidia.com/gpu, and h100 has 32"],
        ),
        (
            [cluster_queue("team", 9), OF_TEAM],
            [
                "ClusterQueue team: queues promise 9 nvidia.com/gpu, and ResourceQuota team/quota has 8"
            ],
        ),
        # A queue of two namespaces may have the quotas of both.
        ([cluster_queue("team", 12), OF_TEAM, *IN_B], []),
        ([cluster_queue("team", 13), OF_TEAM, IN_B[0]], []),
        (
            [cluster_queue("team", 13), OF_TEAM, *IN_B],
            [
                "ClusterQueue team: queues promise 13 nvidia.com/gpu, and ResourceQuota b/b and "
                "ResourceQuota team/quota have 12"
            ],
        ),
        (
            [cluster_queue("team", 41), ANOTHER],
            ["ResourceFlavor h100: queues promise 41 nvidia.com/gpu, and h100 and other have 40"],
        ),
        (
            [L4, offering("l4")],
            [
                "ResourceFlavor l4: queues promise 8 nvidia.com/gpu, and no node of this flavor has any"
            ],
        ),
        # A quota counts GPUs under this name only.
        ([cluster_queue("team", 9), quota(hard={GPU: "8"})], []),
        ([cluster_queue("team", 33), UNSURE], []),
        # Whoever checks asks for nodes, so people write an endless quota.
        ([kueue("ClusterQueue", "team", **cluster_queue()["spec"], admissionChecks=["dws"])], []),
        (
            [cluster_queue("team", 1024)],
            ["ResourceFlavor h100: queues promise 1024 nvidia.com/gpu, and h100 has 32"],
        ),
    ],
)
def test_queues_promise_what_nodes_have_and_quotas_allow(
    documents: list[Manifest], found: list[str]
) -> None:
    findings = told([FLAVOR, LOCAL, NODES, *documents], "queue-capacity")
    assert [f"{each.object}: {each.message}" for each in findings] == found
    assert {each.severity for each in findings} <= {"warning"}


@pytest.mark.parametrize("amount", ["9223372036854775807", "1000000000Ti", "1e30"])
def test_a_quota_beyond_64_bits_has_no_limit(amount: str) -> None:
    endless = cluster_queue()
    endless["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = amount
    assert verdict(queued(2), endless) is FITS
    assert verdict(queued(2), cluster_queue("team", 1, borrowingLimit=amount)) is CANNOT  # pyright: ignore[reportArgumentType]


def on_models(*models: str) -> Manifest:
    return {"affinity": node_affinity({"key": "gpu", "operator": "In", "values": [*models]})}


@pytest.mark.parametrize(
    ("spec", "taints", "expected"),
    [
        ({}, [], FITS),
        ({"nodeSelector": {"gpu": "h100", "disk": "ssd"}}, [], CANNOT),  # no node has the disk
        ({"nodeSelector": {"gpu": "l4"}}, [], CANNOT),
        (on_models("h100", "l4"), [], FITS),
        (on_models("l4"), [], CANNOT),
        ({}, [taint("owned", "x")], CANNOT),
        ({"tolerations": [{"key": "owned", "operator": "Exists"}]}, [taint("owned", "x")], FITS),
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
ONE_JOB = waiting(job("train", 1, using(gpu=8)))
CHECKED: Manifest = {"admissionChecksStrategy": {"admissionChecks": [{"name": "budget"}]}}
FOREIGN = kueue("AdmissionCheck", "budget", controllerName="example.com/x")


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        # What Kueue v0.19.2 did with them.
        ([*AN_H100, *AN_L4, offering("h100", "l4"), ONE_JOB], FITS),
        ([*flavor("h100", 4), *AN_L4, offering("h100", "l4"), ONE_JOB], OPEN),
        ([*flavor("h100", 4), *flavor("l4", 4), *flavor("free"), offering("h100", "l4"), ONE_JOB], CANNOT),
        ([*AN_H100, *AN_L4, offering("h100", "l4"), ring(1, 1)], FITS),
        ([*AN_H100, *AN_L4, offering("h100"), ring(1, 1)], CANNOT),
        ([*AN_H100, *AN_L4, offering("h100", gpus=16), ring(2)], OPEN),  # one waits until the other ends
        ([*AN_H100, offering("h100"), server("a", 4), server("b", 4)], FITS),
        ([*AN_H100, offering("h100", gpus=4), server("a", 4), server("b", 4)], OPEN),
        ([*AN_H100, offering("h100", gpus=4), offering("h100", name="other", gpus=4), server("a", 4), server("b", 4, "other")], FITS),
        ([pool("h100", 2, {"gpu": "h100"}, gpu="8"), AN_H100[0], offering("h100", gpus=4), offering("h100", name="other", gpus=4),
          server("a", 4, "other"), ONE_JOB], OPEN),
        ([*AN_H100, offering("h100", "gone"), ONE_JOB], OPEN),
        ([*AN_H100, offering("h100", **CHECKED), ONE_JOB], OPEN),
        ([*AN_H100, offering("h100", **CHECKED), FOREIGN, ONE_JOB], OPEN),
        ([*AN_H100, offering("l4"), *flavor("l4", 0), waiting(job("train", 1, template(containers=[{"name": "main"}])))], FITS),
        ([*AN_H100, offering("h100", resourceGroups=[]), waiting(job("train", 1, template(containers=[{"name": "main"}])))], OPEN),
    ],
)  # fmt: skip
def test_what_kueue_admits_and_where(documents: list[Manifest], expected: Verdict) -> None:
    assert judge([LOCAL, OTHER, *documents]).stack is expected


@pytest.mark.parametrize(
    ("checks", "message"),
    [
        ([], "without its AdmissionCheck budget, which is not declared"),
        ([FOREIGN], "budget of ClusterQueue team is of the controller example.com/x"),
    ],
)
def test_the_check_of_another_controller_is_declared(checks: list[Manifest], message: str) -> None:
    (found,) = judge([LOCAL, *AN_H100, offering("h100", **CHECKED), *checks, ONE_JOB]).workloads
    (reason,) = found.reasons
    assert message in reason.message


@pytest.mark.parametrize(
    ("make", "spec", "expected"),
    [(job, {}, FITS), (deployment, {"strategy": {"type": "Recreate"}}, CANNOT)],
    ids=["Job", "Deployment"],
)
def test_kueue_counts_job_templates_and_deployment_pods(
    make: Callable[..., Manifest], spec: Manifest, expected: Verdict
) -> None:
    """GKE adds the sidecar of a bucket to pods, and to no template."""
    pods = using({"app": "train"}, gpu=8)
    pods["metadata"]["annotations"] = {"gke-gcsfuse/volumes": "true"}
    nodes = pool("h100", 1, {"gpu": "h100", "cloud.google.com/gke-nodepool": "h100"}, gpu="8")
    nodes["status"]["allocatable"]["ephemeral-storage"] = "80Gi"
    stack = [LOCAL, AN_H100[0], nodes, cluster_queue(), waiting(make("train", 1, pods, **spec))]
    assert judge(stack).workloads[0].verdict is expected


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
    assert verdict(queued(3), cluster_queue(), made) is OPEN


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
    assert (found.verdict is FITS) == (rule is None)
    assert rule is None or rule in [reason.rule for reason in found.reasons], found.reasons


REPLACED = "resources: {transformations: [{input: %s, strategy: Replace, outputs: {example.com/credits: 1}}]}"


@pytest.mark.parametrize(
    ("text", "gpus", "quota", "expected"),
    [
        ("{}", 8, 4, CANNOT),
        ("resources: {excludeResourcePrefixes: [nvidia.com/]}", 8, 4, FITS),
        ("resources: {excludeResourcePrefixes: [example.com/]}", 8, 4, CANNOT),
        (REPLACED % GPU, 8, 4, OPEN),
        (REPLACED % GPU, 8, 8, OPEN),
        (REPLACED % "nvidia.com/mig-1g.5gb", 8, 4, CANNOT),
        # No node has so many: no configuration of Kueue changes that.
        (REPLACED % GPU, 9, 4, CANNOT),
        ("resources: [", 8, 4, OPEN),
    ],
)
def test_the_configuration_of_kueue_decides_what_it_counts(
    text: str, gpus: int, quota: int, expected: Verdict
) -> None:
    train = waiting(job("train", 1, using(gpu=gpus)))
    stack = [LOCAL, *AN_H100, offering("h100", gpus=quota), train, configured(text)]
    assert judge(stack).workloads[0].verdict is expected


def test_the_values_of_kueues_chart_have_its_configuration() -> None:
    text = "resources: {excludeResourcePrefixes: [a/]}"
    values = {"managerConfig": {"controllerManagerConfigYaml": text}}
    release: Manifest = {"chart": "kueue", "repositoryOpts": {}, "values": values}
    (found,) = objects_of([(RELEASE, release)])
    assert found["resources"] == {"excludeResourcePrefixes": ["a/"]}
    (unknown,) = objects_of([(RELEASE, release | {"valueYamlFiles": ["a.yaml"]})])
    assert any(unknown_paths(unknown["resources"]))


TWO_FLAVORS = [*AN_H100, *AN_L4]
"""Two flavors of one node with 8 GPUs each."""


@pytest.mark.parametrize(
    ("gpus", "workloads", "expected"),
    [
        (8, [server("a", 8), server("b", 8)], FITS),
        (16, [server("a", 8), server("b", 8)], OPEN),
        (16, [server("a", 4), server("b", 4)], FITS),
        (64, [server(name, 1) for name in "abcdefgh"], FITS),
        (64, [server(name, 2) for name in "abcdefgh"], OPEN),
        (8, [ring(1, 1)], FITS),
        (16, [ring(1, 1)], OPEN),
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
    [(1, 8, FITS), (2, 8, OPEN), (2, 9, CANNOT)],
)
def test_kueue_may_queue_each_replica_to_another_flavor(
    replicas: int, gpus: int, expected: Verdict
) -> None:
    pods = template({"app": "web"}, [container(gpu=gpus)])
    made = waiting(deployment("web", replicas, pods, strategy={"type": "Recreate"}))
    documents = [made, LOCAL, offering("a", "b"), *flavor("a"), *flavor("b")]
    assert judge(documents).stack is expected


@pytest.mark.parametrize("jobs", [("leader", "worker"), ("worker", "leader")])
def test_a_queued_job_may_wait_for_room_for_any_of_its_pod_sets(jobs: tuple[str, str]) -> None:
    """The leader has a pool of its own, and a Deployment fills that of the workers."""

    def on(pool_name: str) -> Manifest:
        return template({}, [container(gpu=8)], nodeSelector={"gpu": pool_name})

    gang = ring(1, 1)
    for replicated, name in zip(gang["spec"]["replicatedJobs"], jobs, strict=True):
        replicated["template"] = {"spec": job("ring", 1, on(name))["spec"] | {"completions": 1}}
    pools = [pool(name, 1, {"gpu": name}, gpu="8") for name in jobs]
    queue = [LOCAL, kueue("ResourceFlavor", "any"), offering("any", gpus=16)]
    verdicts = judge([gang, deployment("rival", 1, on("worker")), *pools, *queue])
    assert {judged.verdict for judged in verdicts.workloads} == {FITS}
    assert verdicts.stack is OPEN
