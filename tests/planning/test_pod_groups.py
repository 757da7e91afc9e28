"""Groups of Pods in a queue: Kueue admits all of them at once, or none."""

import pytest
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning import Verdict
from ml_foundations.planning.verdict.program import judge_documents

from tests.factories import Manifest, container, deployment, node, pod, template
from tests.planning.queues import (
    COUNT,
    FLAVOR,
    GROUP,
    LOCAL,
    cluster_queue,
    member,
    pod_group,
    waiting,
)
from tests.planning.topologies import queue, racks

FITS, CANNOT_FIT, UNDETERMINED = Verdict.FITS, Verdict.CANNOT_FIT, Verdict.UNDETERMINED


def judged(*pods: Manifest, gpus: int = 32, nodes: int = 4) -> tuple[Verdict, str]:
    machines = [node(f"n{index}", {"gpu": "h100"}, gpu=8) for index in range(nodes)]
    verdicts = judge_documents([*pods, FLAVOR, LOCAL, cluster_queue(gpus=gpus), *machines])
    return verdicts.stack, " | ".join(finding.message for finding in verdicts.findings)


@pytest.mark.parametrize(
    ("pods", "expected", "why"),
    [
        (pod_group(3, "3"), FITS, ""),
        (pod_group(2, "3"), CANNOT_FIT, "group ring has 2 of its 3 pods"),
        (pod_group(4, "3"), UNDETERMINED, "Kueue deletes the newest of the 4 pods of group ring"),
        ([member("a", "1"), member("b", "1", "other")], FITS, ""),
        ([member("a", "2"), member("b", "2", "other")], CANNOT_FIT, "group other has 1 of its 2"),
        ([member("a", "2"), member("b", "2", by_annotation=True)], FITS, ""),
        ([member("a", "2"), member("b", "3")], CANNOT_FIT, "different queues or total counts"),
        ([member("a", "0")], CANNOT_FIT, "Kueue refuses kueue.x-k8s.io/pod-group-total-count: 0"),
        ([member("a", "two")], CANNOT_FIT, "pod-group-total-count: two"),
        ([member("a", "9" * 5000)], CANNOT_FIT, "pod-group-total-count: 99"),
        ([member("a")], CANNOT_FIT, "one of pod-group-name and pod-group-total-count"),
        ([member("a", "1", "")], CANNOT_FIT, "one of pod-group-name and pod-group-total-count"),
        ([member("a", UNKNOWN)], UNDETERMINED, "its pod group is not known yet"),
        ([member("a", "1", UNKNOWN)], UNDETERMINED, "pod-group-name is not known yet"),
    ],
)
def test_kueue_waits_for_all_pods_of_a_group(
    pods: list[Manifest], expected: Verdict, why: str
) -> None:
    verdict, messages = judged(*pods)
    assert verdict is expected, messages
    assert why in messages


def test_pods_that_run_belong_to_the_group_and_failed_ones_do_not() -> None:
    other = member("other", "3")
    other["spec"]["nodeName"] = "n0"
    for phase, expected in (("Running", FITS), ("Succeeded", FITS), ("Failed", CANNOT_FIT)):
        other["status"] = {"phase": phase}
        assert judged(*pod_group(2, "3"), other)[0] is expected, phase


def test_a_quota_is_for_the_whole_group() -> None:
    """Without the group, the pods take turns."""
    assert judged(*pod_group(3, "3"), gpus=24)[0] is FITS
    verdict, why = judged(*pod_group(3, "3"), gpus=16)
    assert verdict is CANNOT_FIT
    assert "8 too few" in why
    assert judged(member("a", "1"), member("b", "1", "other"), gpus=8)[0] is not CANNOT_FIT


def test_fast_admission_is_undetermined() -> None:
    made = member("a", "3")
    made["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-fast-admission"] = "true"
    assert judged(made)[0] is UNDETERMINED


def test_a_group_with_a_topology_is_undetermined() -> None:
    verdicts = judge_documents([*pod_group(2, "2"), *queue(), *racks(2)])
    assert verdicts.stack is UNDETERMINED
    assert "each pod of a group" in str(verdicts.findings)


def test_a_group_in_a_template_is_undetermined() -> None:
    pods = template({GROUP: "ring"}, [container(gpu=8)])
    pods["metadata"]["annotations"] = {COUNT: "1"}
    server = deployment("web", 1, pods, strategy={"type": "Recreate"})
    for document in (server, waiting(server), pod("alone", pods)):
        assert judged(document)[0] is UNDETERMINED
