"""Runs that last: what a preview reports of deadlines, lost work and upgrades, and what ends the report."""

import copy
from typing import Any

import pytest
import yaml
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning import judge
from ml_foundations.planning.input.maintenance import node_upgrade
from ml_foundations.planning.model.nodes import NodeUpgrade
from ml_foundations.planning.rules.findings import Finding
from ml_foundations.planning.verdict import long_runs
from ml_foundations.planning.verdict.program import judge_program
from ml_foundations.planning.verdict.verdicts import Verdicts

from tests.factories import GPU, Manifest, container, job, pool, template
from tests.planning.job_sets import job_set
from tests.support import recording
from tests.support.checkout import CHECKOUT

SPOT, FLEX = {"cloud.google.com/gke-spot": "true"}, {"cloud.google.com/gke-flex-start": "true"}
DAY = 86400


def train(seconds: int | None = None, pods: int = 1, **annotations: str) -> Manifest:
    limit: Any = {} if seconds is None else {"activeDeadlineSeconds": seconds}
    made = job("train", pods, template(containers=[container(gpu=8)]), **limit)
    annotations |= {"ml-foundations/gang": "true"} if pods > 1 else {}
    return made | {"metadata": made["metadata"] | {"annotations": annotations}}


def found(*documents: Manifest) -> dict[str, Finding]:
    rules = ("deadline-waits", "lost-work", "upgrade")
    return {each.rule: each for each in judge(documents).findings if each.rule in rules}


def nodes(labels: Manifest | None = None, fewest: int = 0) -> Manifest:
    made = pool("h100", 2, labels, gpu="8")
    made["metadata"]["annotations"]["ml-foundations/min-nodes"] = str(fewest)
    return made


@pytest.mark.parametrize(
    ("documents", "is_late"),
    [
        ([train(DAY - 1), nodes(SPOT)], True),
        ([train(DAY - 1), nodes(FLEX)], True),
        ([train(DAY), nodes(SPOT)], False),
        ([train(), nodes(SPOT)], False),
        ([train(3600), nodes()], False),
        ([train(3600), nodes(SPOT, fewest=1)], False),
        ([train(3600), nodes(SPOT), pool("others", 2, gpu="8")], False),
        # A pool without GPUs is no home for pods with GPUs, whatever their labels accept.
        ([train(3600), nodes(SPOT), pool("system", 2)], True),
    ],
)
def test_a_deadline_may_pass_while_a_job_waits_for_scarce_nodes(
    documents: list[Manifest], is_late: bool
) -> None:
    assert ("deadline-waits" in found(*documents)) == is_late


def test_the_deadline_of_a_jobset_is_that_of_its_jobs() -> None:
    made = job_set("train", 1, 1)
    made["spec"]["replicatedJobs"][0]["template"]["spec"]["activeDeadlineSeconds"] = 3600
    assert "deadline-waits" in found(made, nodes(SPOT))


def test_a_queued_job_starts_with_the_nodes_that_are_made_for_it() -> None:
    made = train(3600)
    made["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "training"}
    made["spec"]["template"]["spec"]["tolerations"] = [{"operator": "Exists"}]
    taint = {"key": "cloud.google.com/gke-queued", "value": "true", "effect": "NoSchedule"}
    assert "deadline-waits" not in found(made, pool("flex", 2, FLEX, [taint], gpu="8"))
    assert "deadline-waits" in found(made, pool("flex", 2, FLEX, gpu="8"))


@pytest.mark.parametrize(
    ("documents", "why"),
    [
        ([train(pods=2), nodes()], "it may run for any time"),
        ([train(), nodes()], ""),
        ([job("sweep", 2, template(containers=[container(gpu=8)])), nodes()], ""),
        ([train(2 * DAY), nodes()], "it may run for 2 days"),
        ([train(DAY), nodes()], ""),
        ([train(3601), nodes(SPOT)], "Google may take its Spot nodes back"),
        ([train(3600), nodes(SPOT)], ""),
        ([train(DAY), nodes(FLEX)], "nodes of flex-start end"),
        ([train(None, 2, **{"ml-foundations/checkpoint-seconds": "600"}), nodes()], ""),
        ([train(None, 2, **{"ml-foundations/run-seconds": "3600"}), nodes(SPOT)], ""),
        ([job("prepare", 1, template(containers=[container()])), nodes()], ""),
    ],
)
def test_a_training_that_may_be_interrupted_keeps_its_work(
    documents: list[Manifest], why: str
) -> None:
    told = found(*documents).get("lost-work")
    assert (told.message if told else "").startswith(why)
    assert bool(told) == bool(why)
    assert told is None or "annotate it with ml-foundations/checkpoint-seconds" in told.remedy


@pytest.mark.parametrize(
    ("volume", "keeps"),
    [
        ({"persistentVolumeClaim": {"claimName": "c"}}, True),
        ({"persistentVolumeClaim": {"claimName": "c", "readOnly": True}}, False),
        ({"csi": {"driver": "gcsfuse.csi.storage.gke.io"}}, True),
        ({"csi": {"driver": "gcsfuse.csi.storage.gke.io", "readOnly": True}}, False),
        ({"nfs": {"server": "s", "path": "/"}}, True),
        ({"emptyDir": {}}, False),
        ({"hostPath": {"path": "/data"}}, False),
        ({"configMap": {"name": "c"}}, False),
    ],
)
def test_some_volumes_stay(volume: Manifest, keeps: bool) -> None:
    mounts = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    pods = template(containers=[container(gpu=8) | mounts], volumes=[{"name": "v", **volume}])
    assert ("lost-work" in found(job("train", 2, pods, gang=True), nodes())) == (not keeps)


WINDOW = {"recurringWindow": {"recurrence": "FREQ=WEEKLY;BYDAY=SA"}}
FREEZE = {"startTime": "2026-01-01T00:00:00Z", "endTime": "2026-01-15T00:00:00Z"}


def policy(*exclusions: Manifest) -> Manifest:
    return {"maintenancePolicy": WINDOW | {"maintenanceExclusions": list(exclusions)}}


def scope(name: str, **more: str) -> Manifest:
    return {"exclusionOptions": {"scope": name, **more}}


IN_WINDOW = "in the maintenance window FREQ=WEEKLY;BYDAY=SA"
UNTIL_END = scope("NO_MINOR_OR_NODE_UPGRADES", endTimeBehavior="UNTIL_END_OF_SUPPORT")


OF_SUPPORT = {"maintenancePolicies": [{"exclusionUntilEndOfSupports": [{"enabled": True}]}]}


@pytest.mark.parametrize(
    ("of_pool", "of_cluster", "expected"),
    [
        ({}, {}, NodeUpgrade("at any time", 0)),
        ({}, policy(), NodeUpgrade(IN_WINDOW, 0)),
        ({}, policy(FREEZE), NodeUpgrade(IN_WINDOW, 14 * DAY)),
        ({}, policy(FREEZE | scope("NO_MINOR_UPGRADES")), NodeUpgrade(IN_WINDOW, 0)),
        ({}, policy(FREEZE | {"endTime": "soon"}), NodeUpgrade(IN_WINDOW, 0)),
        ({}, policy(UNTIL_END), None),
        ({}, {"maintenancePolicy": UNKNOWN}, None),
        ({}, policy(FREEZE | {"endTime": UNKNOWN}), None),
        ({"nodeConfig": {"flexStart": True}}, policy(), None),
        ({"queuedProvisioning": {"enabled": True}}, policy(), None),
        ({"management": {"autoUpgrade": False}}, policy(), None),
        (OF_SUPPORT, policy(), None),
        ({"maintenancePolicies": [UNKNOWN]}, policy(), None),
    ],
)
def test_the_policies_of_pool_and_cluster_say_when_nodes_are_drained(
    of_pool: Manifest, of_cluster: Manifest, expected: NodeUpgrade | None
) -> None:
    assert node_upgrade(of_pool, of_cluster) == expected


def judged(resources: list[Any]) -> Verdicts:
    return judge_program([(each["type"], each["inputs"]) for each in resources], rehearsed=True)


def upgrades(change: Any) -> dict[str, Finding]:
    config = copy.deepcopy(recording.stack_file("prod"))
    change(config["ml-foundations:cluster"])
    findings = judged(recording.changed_stack("prod", config)).findings
    return {each.object: each for each in findings if each.rule == "upgrade"}


def test_the_long_trainings_of_prod_are_safe_by_its_exclusion_alone() -> None:
    assert upgrades(lambda cluster: None) == {}
    without = upgrades(lambda cluster: cluster.pop("maintenanceExclusions"))
    told = without.pop("Job pretraining/pretrain")
    others = {"Job pretraining/align", "Job research/finetune", "CronJob research/retrain"}
    assert without.keys() == others
    assert told.message == (
        "it may run for 14 days, and GKE may drain h100 for an upgrade in the maintenance window "
        "FREQ=WEEKLY;BYDAY=SA,SU"
    )
    assert "NO_MINOR_OR_NODE_UPGRADES" in told.remedy

    def shorter(cluster: Any) -> None:
        exclusion = cluster["maintenanceExclusions"]["long-trainings"]
        exclusion["endTime"] = "2026-01-08T00:00:00Z"

    assert upgrades(shorter).keys() == {"Job pretraining/pretrain"}


def shipped(name: str) -> list[Any]:
    """The resources of a stack or an example."""
    return recording.stack(name) if name in recording.STACKS else recording.example(name)


@pytest.mark.parametrize("name", [*recording.STACKS, *recording.EXAMPLES])
def test_every_shipped_training_keeps_its_work(name: str) -> None:
    """On any nodes: who copies an example may run it for longer, and elsewhere."""
    for item in judged(shipped(name)).workloads:
        workload = item.workload
        seconds = long_runs.longest_run(workload)
        if workload.is_finite and GPU in str(workload.pods):
            is_short = seconds is not None and seconds <= 3600
            assert is_short or long_runs._keeps_work(workload, workload.pods), str(workload)


def test_the_trainings_of_the_example_in_yaml_keep_their_work() -> None:
    text = (CHECKOUT / "examples" / "yaml" / "Pulumi.yaml").read_text()
    trainings = 0
    for resource in yaml.safe_load(text)["resources"].values():
        if resource["type"].endswith(("TrainingJob", "DistributedTraining", "Sweep")):
            trainings += 1
            assert any(not mount.get("readOnly") for mount in resource["properties"]["mounts"])
    assert trainings
