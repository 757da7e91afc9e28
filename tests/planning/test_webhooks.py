"""Findings about webhooks on pods, and about workloads whose kind Kueue does not manage."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ml_foundations.kinds import kind_files
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning.input.program import Resource
from ml_foundations.planning.verdict.program import judge_documents, judge_program

from tests.factories import Manifest, container, deployment, job, namespaced, resource, template
from tests.factories import webhook as any_webhook

RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}


def in_namespaces(operator: str, name: str) -> Manifest:
    key = "kubernetes.io/metadata.name"
    return {"matchExpressions": [{"key": key, "operator": operator, "values": [name]}]}


TEAMS, MOST = in_namespaces("In", "team"), in_namespaces("NotIn", "kube-system")
EXISTS = {"matchExpressions": [{"key": "job", "operator": "Exists"}]}


def webhook(**fields: Any) -> Manifest:
    service = {"name": "hook", "namespace": "team", "path": "/"}
    return any_webhook("pods", **{"clientConfig": {"service": service}, "rules": [RULE], **fields})


def behind(replicas: int | None = 1) -> list[Manifest]:
    labels = {"app": "hook"}
    service = {"selector": labels, "ports": [{"port": 443}]}
    made = deployment("hook", replicas or 1, template(labels=labels))
    if replicas is None:
        del made["spec"]["replicas"]
    return [namespaced("v1", "Service", "hook", spec=service), made]


def rules(objects: list[Manifest]) -> list[str]:
    found = [each.rule for each in judge_documents(objects).findings]
    return [rule for rule in found if rule in ("webhook", "queue-kind")]


@pytest.mark.parametrize(
    ("hook", "replicas", "is_reported"),
    [
        ({}, 1, True),
        ({}, None, True),
        ({"failurePolicy": "Fail", "namespaceSelector": MOST}, 1, True),
        ({"failurePolicy": "Ignore"}, 1, False),
        ({}, 2, False),
        ({"namespaceSelector": TEAMS}, 1, False),
        ({"namespaceSelector": {"matchLabels": {"team": "ml"}}}, 1, False),
        ({"objectSelector": EXISTS}, 1, False),
        ({"rules": [{**RULE, "resources": ["deployments"]}]}, 1, False),
        ({"rules": [{**RULE, "operations": ["DELETE"]}]}, 1, False),
        ({"failurePolicy": UNKNOWN}, 1, False),
    ],
)
def test_webhook_that_may_stop_all_pods(
    hook: dict[str, Any], replicas: int | None, is_reported: bool
) -> None:
    assert rules([webhook(**hook), *behind(replicas)]) == ["webhook"] * is_reported


def test_a_webhook_of_a_hidden_deployment_is_not_reported() -> None:
    assert rules([webhook()]) == []


def kueue(frameworks: list[str] | None = None, replicas: int = 1, **configuration: Any) -> Resource:
    values: dict[str, Any] = {"controllerManager": {"replicas": replicas}}
    if frameworks is not None:
        text = yaml.safe_dump({"integrations": {"frameworks": frameworks}, **configuration})
        values["managerConfig"] = {"controllerManagerConfigYaml": text}
    return "kubernetes:helm.sh/v3:Release", {"chart": "kueue", "values": values}


@pytest.mark.parametrize(
    ("release", "is_reported"),
    [
        (kueue(), True),
        (kueue(["pod"]), True),
        (kueue(["pod"], managedJobsNamespaceSelector=MOST), True),
        (kueue(["pod"], managedJobsNamespaceSelector=TEAMS), False),
        (kueue(["pod"], replicas=2), False),
        (kueue(["batch/job"]), False),
    ],
)
def test_kueue_that_may_stop_all_pods(release: Resource, is_reported: bool) -> None:
    found = [each.object for each in judge_program([release]).findings if each.rule == "webhook"]
    assert found == ["Kueue"] * is_reported


def queued(workload: Manifest) -> Resource:
    workload["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "training"}
    return resource(workload)


def web() -> Manifest:
    return deployment("web", 1, template(containers=[container(cpu=1)]))


@pytest.mark.parametrize(
    ("workload", "release", "is_reported"),
    [
        (web(), kueue(["batch/job"]), True),
        (web(), kueue(["deployment"]), True),
        (web(), kueue(["pod", "deployment"]), False),
        (web(), kueue(), False),
        (job("train", 1, template()), kueue(["batch/job"]), False),
        (job("train", 1, template()), kueue(["pod"]), True),
        (job("train", 1, template()), kueue([]), False),
    ],
)
def test_queued_workload_is_of_a_kind_that_kueue_manages(
    workload: Manifest, release: Resource, is_reported: bool
) -> None:
    findings = judge_program([release, queued(workload)]).findings
    severities = [each.severity for each in findings if each.rule == "queue-kind"]
    assert severities == ["error"] * is_reported


@pytest.mark.parametrize(
    ("kind", "api_version", "fix"),
    [
        ("RayService", "ray.io/v1", "Add RayService to kinds of the TrainingQueue"),
        ("Gang", "example.com/v1", "Add example.com/gang to integrations.frameworks of"),
    ],
)
def test_a_users_kind_cannot_be_in_kinds_of_a_training_queue(
    kind: str, api_version: str, fix: str, tmp_path: Path, without_kinds: None
) -> None:
    (tmp_path / "gang.yaml").write_text(
        "{kind: Gang, group: example.com, version: v1, queue: {frameworks: [example.com/gang]}, "
        "pods: [{template: [spec.template]}]}"
    )
    kind_files.use(str(tmp_path))
    cluster = {"headGroupSpec": {"template": template(containers=[container(cpu=1)])}}
    workload = queued(namespaced(api_version, kind, "web", spec={"rayClusterConfig": cluster}))
    findings = judge_program([kueue(["batch/job"]), workload]).findings
    remedies = [item.remedy for item in findings if item.rule == "queue-kind"]
    assert [remedy.startswith(fix) for remedy in remedies] == [True], remedies


@pytest.fixture
def without_kinds() -> Iterator[None]:
    """Other tests of this process judge without the kinds of a test."""
    yield
    kind_files.use("")


def test_a_hidden_kueues_queue_may_manage_every_kind() -> None:
    findings = judge_program([queued(web())]).findings
    assert "queue-kind" not in {each.rule for each in findings}
