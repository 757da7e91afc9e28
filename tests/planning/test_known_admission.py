"""The webhooks and policies of a cluster that planning follows, and ended workloads in a dump."""

from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from ml_foundations.catalog.tables import rows
from ml_foundations.planning import Verdict
from ml_foundations.planning.input.known_admission import is_known
from ml_foundations.planning.verdict.program import judge_documents

from tests.factories import Manifest, container, deployment, job, namespaced, node, template
from tests.factories import webhook as any_webhook
from tests.support.checkout import CHECKOUT

ADDONS = CHECKOUT / "components" / "ml_foundations" / "rehearsal" / "cloud" / "addons.yaml"
POLICIES: dict[str, Manifest] = {
    document["metadata"]["name"]: document
    for document in yaml.load_all(ADDONS.read_text(), yaml.CSafeLoader)
    if document["kind"] == "MutatingAdmissionPolicy"
}
TABLE = rows("known_admission.csv", "ml_foundations.planning.input")
KNOWN = [(row["name"], row["known_by"]) for row in TABLE]
WEBHOOKS = [(name, service) for name, service in KNOWN if "/" in service]


def judged(*documents: Manifest) -> Verdict:
    pods = template({"app": "web"}, [container(gpu=8)])
    return judge_documents([deployment("web", 1, pods), node("n", gpu=8), *documents]).stack


def webhook(name: str, client: Manifest) -> Manifest:
    made = any_webhook("pods", clientConfig=client)
    return made | {"metadata": {"name": name}}


@pytest.mark.parametrize(("name", "service"), WEBHOOKS)
def test_a_webhook_is_known_by_its_name_and_its_service(name: str, service: str) -> None:
    namespace, _, called = service.partition("/")
    client = {"service": {"namespace": namespace, "name": called}}
    assert judged(webhook(name, client)) is Verdict.FITS
    assert judged(webhook("other", client)) is Verdict.UNDETERMINED
    for other in (
        {"service": {"namespace": "team", "name": called}},
        {"service": {"namespace": namespace, "name": "other"}},
        {"url": "https://hooks.example.com/"},
    ):
        assert judged(webhook(name, other)) is Verdict.UNDETERMINED


def test_all_policies_of_the_replica_are_known() -> None:
    assert POLICIES.keys() == {name for name, _ in KNOWN} - dict(WEBHOOKS).keys()
    assert all(map(is_known, POLICIES.values()))


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_is_known_by_what_it_does(name: str) -> None:
    spec = POLICIES[name]["spec"]
    rule = spec["matchConstraints"]["resourceRules"][0]

    def judged_with(**changed: Any) -> Verdict:
        return judged({**POLICIES[name], "spec": {**spec, **changed}})

    def of_rule(**changed: Any) -> Manifest:
        return {"matchConstraints": {"resourceRules": [{**rule, **changed}]}}

    stored = {**of_rule(scope="*"), "failurePolicy": "Fail"}
    assert judged_with(**stored) is Verdict.FITS
    patch = {"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"}}
    assert judged_with(mutations=[patch]) is Verdict.UNDETERMINED
    assert judged_with(**of_rule(resources=["*"])) is Verdict.UNDETERMINED


def ended(document: Manifest, status: Mapping[str, Any], uid: str = "u") -> Manifest:
    metadata = {**document["metadata"], **({"uid": uid} if uid else {})}
    return {**document, "metadata": metadata, "status": status}


TOO_LARGE = template(containers=[container(gpu=8)], restartPolicy="Never")
JOB = job("train", 9, TOO_LARGE)
JOBS = [{"name": "a", "template": {"spec": JOB["spec"]}}]
JOB_SET = namespaced("jobset.x-k8s.io/v1alpha2", "JobSet", "train", spec={"replicatedJobs": JOBS})
OF_TRAINER, RUNTIME = "trainer.kubeflow.org/v1alpha1", {"runtimeRef": {"name": "torch"}}
TRAIN_JOB = namespaced(OF_TRAINER, "TrainJob", "train", spec=RUNTIME)
HEAD = {"rayStartParams": {}, "template": TOO_LARGE}
GROUP = {"groupName": "g", "replicas": 9, **HEAD}
CLUSTER = {"headGroupSpec": HEAD, "workerGroupSpecs": [GROUP]}
ENTRY = {"entrypoint": "python train.py", "rayClusterSpec": CLUSTER}
RAY_JOB = namespaced("ray.io/v1", "RayJob", "train", spec=ENTRY)


def condition(type_: str, status: str = "True") -> Manifest:
    return {"conditions": [{"type": type_, "status": status}]}


def terminal(state: str) -> Manifest:
    return {"terminalState": state}


def deployment_status(status: str) -> Manifest:
    return {"jobDeploymentStatus": status}


ENDED = [condition("Complete"), condition("Failed")]


@pytest.mark.parametrize(
    ("document", "ends", "runs"),
    [
        (JOB, ENDED, condition("Complete", "False")),
        (
            JOB_SET,
            [terminal("Completed"), terminal("Failed"), condition("Completed")],
            condition("Suspended"),
        ),
        (
            RAY_JOB,
            [deployment_status("Complete"), deployment_status("Failed")],
            deployment_status("Retrying"),
        ),
        (TRAIN_JOB, ENDED, condition("Suspended")),
    ],
    ids=lambda value: value.get("kind") if isinstance(value, dict) else None,
)
def test_what_has_ended_is_left_out(
    document: Manifest, ends: list[Manifest], runs: Manifest
) -> None:
    for status in ends:
        assert judged(ended(document, status)) is Verdict.FITS
        # The API server drops the status of what is created.
        assert judged(ended(document, status, uid="")) is not Verdict.FITS
    assert judged(ended(document, runs)) is not Verdict.FITS
