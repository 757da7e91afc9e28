"""LeaderWorkerSets: planning judges the pods that their controller makes."""

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
    claim,
    container,
    namespaced,
    node,
    quota,
    template,
)
from tests.planning.queues import waiting
from tests.planning.topologies import KUEUE, RACK, queue, racks
from tests.support.cluster_objects import autoscaler, claim_template, policy, storage_class
from tests.support.findings import of_rule

EXCLUSIVE = {"leaderworkerset.sigs.k8s.io/exclusive-topology": "rack"}


def pods(gpus: int = 8, **spec: Any) -> Manifest:
    return template({"app": "chat"}, [container(gpu=gpus)], **spec)


def groups(replicas: int = 1, size: int = 2, surge: Any = 0, **more: Any) -> Manifest:
    rollout = {"maxSurge": surge, "maxUnavailable": 1}
    parts = {"size": size, "workerTemplate": pods()} | more.pop("parts", {})
    spec = {"replicas": replicas, "leaderWorkerTemplate": parts} | more
    spec["rolloutStrategy"] = {"type": "RollingUpdate", "rollingUpdateConfiguration": rollout}
    return namespaced("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "chat", spec=spec)


def exclusive(made: Manifest) -> Manifest:
    """Groups that each need a domain of their own."""
    made["metadata"]["annotations"] = EXCLUSIVE
    return made


def nodes(count: int) -> list[Manifest]:
    return [node(f"n{index}", gpu=8) for index in range(count)]


def judged(*documents: Manifest) -> tuple[Verdict, list[str]]:
    verdicts = judge_documents([*documents])
    return verdicts.stack, [f"{finding.rule} {finding.message}" for finding in verdicts.findings]


@pytest.mark.parametrize(
    ("replicas", "size", "free", "expected"),
    [(1, 2, 2, FITS), (1, 2, 1, CANNOT), (2, 3, 6, FITS), (2, 3, 5, CANNOT)],
)
def test_each_group_needs_its_leader_and_its_workers(
    replicas: int, size: int, free: int, expected: Verdict
) -> None:
    assert judged(groups(replicas, size), *nodes(free))[0] is expected


def test_a_leader_may_have_its_own_template() -> None:
    small = {"leaderTemplate": pods(gpus=0)}
    assert judged(groups(1, 3, parts=small), *nodes(2))[0] is FITS
    assert judged(groups(1, 3), *nodes(2))[0] is CANNOT


@pytest.mark.parametrize(
    ("surge", "free", "stops"), [(1, 4, 0), (1, 3, 1), (0, 2, 0), ("50%", 3, 1)]
)
def test_a_rollout_that_adds_a_group_needs_spare_nodes(surge: Any, free: int, stops: int) -> None:
    verdict, found = judged(groups(1, 2, surge), *nodes(free))
    assert verdict is FITS
    words = "rollout-surge 2 groups during a rollout do not fit: the nodes take 1 group"
    assert found == [words] * stops


@pytest.mark.parametrize(("most", "free", "stops"), [(2, 4, False), (3, 4, True)])
def test_an_autoscaler_adds_whole_groups(most: int, free: int, stops: bool) -> None:
    scaler = autoscaler(groups(), "chat", minReplicas=1, maxReplicas=most, metrics=[])
    _, found = judged(groups(1, 2), scaler, *nodes(free))
    assert any(text.startswith("autoscaling-ceiling") for text in found) is stops


def test_a_quota_counts_the_pods_of_all_groups_and_the_objects_around_them() -> None:
    hard = {
        "requests.nvidia.com/gpu": "32",
        "count/statefulsets.apps": "3",
        "services": "1",
        "count/leaderworkersets.leaderworkerset.x-k8s.io": "1",
    }
    assert judged(groups(2, 2), quota(hard=hard), *nodes(4))[0] is FITS
    for name in ("requests.nvidia.com/gpu", "count/statefulsets.apps", "services"):
        less = hard | {name: str(int(hard[name]) - 1)}
        assert judged(groups(2, 2), quota(hard=less), *nodes(4))[0] is CANNOT, name


@pytest.mark.parametrize(("services", "expected"), [("2", FITS), ("1", CANNOT)])
def test_groups_with_their_own_services_need_a_quota_for_each(
    services: str, expected: Verdict
) -> None:
    own = groups(2, 2, networkConfig={"subdomainPolicy": "UniquePerReplica"})
    assert judged(own, quota(hard={"services": services}), *nodes(4))[0] is expected


@pytest.mark.parametrize(("racks", "expected"), [(1, CANNOT), (2, FITS)])
def test_exclusive_groups_each_need_a_domain(racks: int, expected: Verdict) -> None:
    free = nodes(4)
    for index, item in enumerate(free):
        item["metadata"]["labels"]["rack"] = f"r{index % racks}"
    assert judged(exclusive(groups(2, 2)), *free)[0] is expected


def test_a_topology_key_that_no_node_has_keeps_every_pod_away() -> None:
    assert judged(groups(1, 2), *nodes(4))[0] is FITS
    assert judged(exclusive(groups(1, 2)), *nodes(4))[0] is CANNOT


@pytest.mark.parametrize(
    ("size", "policy", "expected"),
    [
        (4, {"subGroupSize": 2}, FITS),
        (4, {"subGroupSize": 3}, FITS),
        (4, {"subGroupSize": 3, "subGroupPolicyType": "LeaderExcluded"}, FITS),
        (4, {"subGroupSize": 2, "subGroupPolicyType": "LeaderExcluded"}, CANNOT),
        (5, {"subGroupSize": 3}, CANNOT),
        (2, {"subGroupSize": 3}, CANNOT),
        (4, {}, CANNOT),
        (4, {"subGroupSize": 0}, CANNOT),
        (4, {"subGroupSize": UNKNOWN}, FITS),
    ],
)
def test_subgroups_decide_no_place(size: int, policy: dict[str, Any], expected: Verdict) -> None:
    made = groups(1, size, parts={"subGroupPolicy": policy})
    assert judged(made, *nodes(size))[0] is expected
    if expected is FITS:
        assert judged(made, *nodes(size - 1))[0] is CANNOT


def test_subgroups_with_an_exclusive_topology_are_undetermined() -> None:
    made = groups(1, 4, parts={"subGroupPolicy": {"subGroupSize": 2}})
    key = "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology"
    made["metadata"]["annotations"] = {key: "rack"}
    assert judged(made, *nodes(4))[0] is OPEN


@pytest.mark.parametrize("field", ["replicas", "size", "gpus"])
def test_a_value_that_is_not_known_is_undetermined(field: str) -> None:
    made = groups()
    parts = made["spec"]["leaderWorkerTemplate"]
    if field == "gpus":
        resources = parts["workerTemplate"]["spec"]["containers"][0]["resources"]
        resources["requests"] = {GPU: UNKNOWN}
    else:
        (parts if field == "size" else made["spec"])[field] = UNKNOWN
    assert judged(made, *nodes(1))[0] is OPEN


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"name": "8b"}, "metadata.name"),
        ({"size": 0}, "spec.leaderWorkerTemplate.size"),
        ({"restartPolicy": "Never"}, "spec.leaderWorkerTemplate.workerTemplate.spec.restartPolicy"),
        ({"maxUnavailable": 0}, "spec"),
        ({"maxUnavailable": "40%"}, "spec"),
        ({"maxUnavailable": "50%"}, ""),
    ],
)
def test_the_server_and_the_webhook_refuse_invalid_fields(
    change: dict[str, Any], path: str
) -> None:
    made = groups(2)
    parts = made["spec"]["leaderWorkerTemplate"]
    rollout = made["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"]
    pod = parts["workerTemplate"]["spec"]
    holders = {"name": made["metadata"], "size": parts, "restartPolicy": pod}
    for key, value in change.items():
        holders.get(key, rollout)[key] = value
    verdicts = judge_documents([made, *nodes(4)])
    paths = [finding.path for finding in verdicts.findings if finding.rule == "invalid"]
    assert paths == ([path] if path else [])


@pytest.mark.parametrize(("leaders", "replicas"), [(True, 1), (True, 2), (False, 1)])
def test_kueue_groups_a_leader_with_its_workers(leaders: bool, replicas: int) -> None:
    """It queues each group. Without a template for leaders, a group has one set of pods."""
    grouped = pods()
    grouped["metadata"]["annotations"] = {
        f"{KUEUE}required-topology": RACK,
        f"{KUEUE}group-name": "ring",
    }
    parts = {"workerTemplate": grouped} | ({"leaderTemplate": grouped} if leaders else {})
    made = waiting(groups(replicas, 2, parts=parts))
    verdict, found = judged(made, *queue(), *racks(2, 2))
    refused = "Kueue refuses the group ring: it has 1 sets of pods, and must have 2"
    assert any(refused in text for text in found) is not leaders
    assert verdict is (FITS if leaders else CANNOT), found


def answering(port: int) -> Manifest:
    main = container(gpu=8) | {"ports": [{"containerPort": port}]}
    return template({"app": "chat"}, [main])


def behind(**spec: Any) -> Manifest:
    fields = {"selector": {"app": "chat"}, "ports": [{"port": 80, "targetPort": 8000}], **spec}
    return namespaced("v1", "Service", "chat", spec=fields)


LEADER = {"leaderworkerset.sigs.k8s.io/worker-index": "0"}


@pytest.mark.parametrize(
    ("spec", "worker", "is_refused"),
    [
        ({}, pods(), True),
        ({}, answering(8000), False),
        ({"selector": {"app": "chat"} | LEADER}, pods(), False),
        ({"selector": {"app": "other"}}, pods(), False),
        ({"selector": UNKNOWN}, pods(), False),
        ({"clusterIP": "None"}, pods(), False),
        ({"ports": [{"port": 80, "targetPort": "http"}]}, pods(), False),
        ({"ports": [{"port": 8000}]}, pods(), True),
        ({"ports": [{"port": 9000}]}, pods(), False),
    ],
)
def test_a_service_of_leaders_selects_no_workers(
    spec: Manifest, worker: Manifest, is_refused: bool
) -> None:
    def found(**more: Any) -> list[tuple[str, str]]:
        parts = {"leaderTemplate": answering(8000), "workerTemplate": worker, **more}
        verdicts = judge_documents([groups(parts=parts), behind(**spec), *nodes(2)])
        return [(each.message, each.remedy) for each in of_rule(verdicts, "group-service")]

    text = (
        "it selects all pods of LeaderWorkerSet team/chat, "
        "and some have no port 8000: requests fail there"
    )
    leader = 'leaderworkerset.sigs.k8s.io/worker-index: "0"'
    assert found() == [(text, f"Add {leader} to the selector.")] * is_refused
    assert found(size=1) == []


@pytest.mark.parametrize(
    ("selector", "worker", "times"),
    [
        ({"matchLabels": LEADER}, pods(), 1),
        ({}, pods(), 2),
        ({}, pods() | {"metadata": {"labels": UNKNOWN}}, 0),
    ],
)
def test_network_policies_apply_to_leaders_and_workers(
    selector: Manifest, worker: Manifest, times: int
) -> None:
    closed = policy("closed", podSelector=selector, policyTypes=["Egress"])
    message = (
        "network-policy its network policies close the way to DNS, so its pods resolve no name"
    )
    made = groups(parts={"workerTemplate": worker})
    assert judged(made, closed, *nodes(2))[1].count(message) == times


FAST = storage_class(parameters={"type": "pd-ssd"})


def with_claims(name: str = "weights", **more: Any) -> Manifest:
    worker = pods()
    worker["spec"]["containers"][0]["volumeMounts"] = [{"name": "weights", "mountPath": "/w"}]
    claims = [claim_template(name, size="100Gi", storageClassName="fast", **more)]
    return groups(2, 3, parts={"workerTemplate": worker, "volumeClaimTemplates": claims})


@pytest.mark.parametrize(
    ("most", "existing", "expected"),
    [
        ("6", [], FITS),
        ("5", [], CANNOT),
        # The leader of the first group, and a worker of the second.
        ("6", ["weights-chat-0", "weights-chat-1-2"], FITS),
        # As for a StatefulSet, the other claim may go.
        ("6", ["weights-chat-0", "other"], OPEN),
    ],
)
def test_each_pod_of_a_group_has_its_claims(
    most: str, existing: list[str], expected: Verdict
) -> None:
    limit = quota(hard={"persistentvolumeclaims": most})
    claims = [claim(name, size="100Gi", storageClassName="fast") for name in existing]
    verdict, _ = judged(with_claims(), FAST, limit, *claims, *nodes(6))
    assert verdict is expected


def test_the_claims_of_groups_are_judged() -> None:
    verdict, messages = judged(with_claims(mode="ReadWriteMany"), FAST, *nodes(6))
    assert verdict is CANNOT
    assert any("ReadWriteMany" in message for message in messages)
    assert judged(with_claims(), *nodes(6))[0] is OPEN
    assert "must be the name of a volume" in str(judged(with_claims("other"), FAST, *nodes(6)))


def test_the_disks_of_all_groups_cost() -> None:
    verdicts = judge_documents([with_claims(), FAST, *nodes(6)])
    assert [stored.number for stored in verdicts.stored] == [6]
