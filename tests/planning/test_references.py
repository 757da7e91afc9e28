"""Names of objects that do not exist: errors where all objects are shown, with the nearest name."""

from typing import Any

import pytest
from ml_foundations.planning import UNKNOWN, Verdict
from ml_foundations.planning.input.program import CLUSTER, NODE_POOL, Resource
from ml_foundations.planning.verdict.program import judge_documents, judge_program
from ml_foundations.planning.verdict.verdicts import Verdicts

from tests.factories import (
    Manifest,
    container,
    in_namespace,
    job,
    namespace,
    namespaced,
    node,
    resource,
    template,
)

TEAM = namespace()
MACHINES: list[Resource] = [
    (CLUSTER, {"name": "c", "location": "us-central1-a", "removeDefaultNodePool": True}),
    (NODE_POOL, {"name": "p", "location": "us-central1-a", "nodeCount": 1, "nodeConfig": {"machineType": "n2-standard-8"}}),
]  # fmt: skip
READS = [{"secretRef": {"name": "hugging-fase"}}]
SECRET = namespaced("v1", "Secret", "hugging-face")


def stored_namespace(name: str) -> Manifest:
    manifest = namespace(name)
    manifest["metadata"]["uid"] = name
    return manifest


def kubernetes(*manifests: Manifest) -> list[Resource]:
    return [*map(resource, manifests)]


def train(**spec: Any) -> Manifest:
    main = container(cpu=1) | spec.pop("container", {})
    return job("train", 1, template(containers=[main], **spec))


def in_program(*manifests: Manifest) -> Verdicts:
    return judge_program([*MACHINES, *kubernetes(TEAM, *manifests)])


def told(verdicts: Verdicts) -> list[tuple[str, str, str]]:
    found = [each for each in verdicts.findings if each.rule in ("reference", "secret")]
    return [(each.rule, each.severity, each.path) for each in found]


SETTINGS = namespaced("v1", "ConfigMap", "settings", data={})


@pytest.mark.parametrize(
    ("manifest", "rule", "path"),
    [
        (train(serviceAccountName="trainer"), "reference", "serviceAccountName"),
        (train(priorityClassName="high"), "reference", "priorityClassName"),
        (train(volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "d"}}]), "reference", "volumes[0].persistentVolumeClaim.claimName"),
        (train(volumes=[{"name": "d", "secret": {"secretName": "d"}}]), "secret", "volumes[0].secret.secretName"),
        (train(volumes=[{"name": "d", "configMap": {"name": "d"}}]), "secret", "volumes[0].configMap.name"),
        (train(container={"envFrom": READS}), "secret", "containers[0].envFrom[0].secretRef.name"),
    ],
)  # fmt: skip
def test_what_pods_name_exists(manifest: Manifest, rule: str, path: str) -> None:
    verdicts = in_program(manifest)
    assert told(verdicts) == [(rule, "error", f"spec.template.spec.{path}")]
    assert verdicts.stack is verdicts.workloads[0].verdict is Verdict.CANNOT_FIT


def test_a_namespace_with_a_typo_names_the_nearest() -> None:
    pods = in_namespace("teem", train(container={"envFrom": READS}))
    (found,) = [each for each in in_program(pods).findings if each.rule in ("reference", "secret")]
    missing = "namespace names the Namespace teem, which is not declared"
    assert found.message == f"{missing} (did you mean team?)"
    assert found.remedy == "Write team, or declare the Namespace teem."


@pytest.mark.parametrize("name", ["default", "kube-system", "gke-managed-system", UNKNOWN])
def test_namespaces_that_every_cluster_has(name: Any) -> None:
    assert told(in_program(in_namespace(name, SETTINGS))) == []


def test_an_object_of_a_namespace_that_is_not_declared() -> None:
    verdicts = in_program(in_namespace("teem", SETTINGS))
    assert told(verdicts) == [("reference", "error", "metadata.namespace")]
    assert verdicts.stack is Verdict.CANNOT_FIT


@pytest.mark.parametrize(
    "more",
    [
        [train(container={"envFrom": [{"secretRef": {"name": "hugging-face"}}]}), SECRET],
        [train(container={"envFrom": [{"secretRef": {"name": "absent", "optional": True}}]})],
        [train(volumes=[{"name": "ca", "configMap": {"name": "kube-root-ca.crt"}}])],
        [train(serviceAccountName="default", priorityClassName="system-node-critical")],
    ],
)
def test_what_is_declared_optional_or_everywhere(more: list[Manifest]) -> None:
    assert told(in_program(*more)) == []


@pytest.mark.parametrize(
    "maker",
    [
        namespaced("external-secrets.io/v1", "ExternalSecret", "token", spec={}),
        namespaced("rbac.authorization.k8s.io/v1", "Role", "agent", rules=[{"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]}]),
        namespaced("rbac.authorization.k8s.io/v1", "RoleBinding", "agents", roleRef={"kind": "ClusterRole", "name": "edit"}, subjects=[{"kind": "Group", "name": "system:serviceaccounts:ci"}]),
        namespaced("v1", "Secret", UNKNOWN),  # pyright: ignore[reportArgumentType]
    ],
)  # fmt: skip
def test_what_somebody_may_make_is_not_certain(maker: Manifest) -> None:
    verdicts = in_program(train(container={"envFrom": READS}), maker)
    assert [each[:2] for each in told(verdicts)] == [("secret", "warning")]
    assert verdicts.stack is Verdict.UNDETERMINED


@pytest.mark.parametrize(
    ("shown", "severity"),
    [
        ([], ""),
        ([namespace("default")], ""),
        ([TEAM], "warning"),
        ([stored_namespace("team"), stored_namespace("default")], "warning"),
        ([namespace("default"), namespace("kube-system"), TEAM], "warning"),
        ([stored_namespace("default"), stored_namespace("kube-system")], "error"),
    ],
)
def test_manifests_with_the_namespaces_of_a_dump_have_all(
    shown: list[Manifest], severity: str
) -> None:
    pods = in_namespace("teem", train())
    verdicts = judge_documents([node("n"), *shown, pods])
    assert told(verdicts) == [("reference", severity, "metadata.namespace")] * bool(severity)
    expected = {"": Verdict.FITS, "warning": Verdict.UNDETERMINED, "error": Verdict.CANNOT_FIT}
    assert verdicts.stack is expected[severity]


def test_another_cluster_may_have_other_namespaces() -> None:
    pods = in_namespace("teem", train())
    found = told(judge_program(kubernetes(TEAM, pods)))
    assert found == [("reference", "warning", "metadata.namespace")]
    assert told(judge_program(kubernetes(pods))) == []


def test_queue_and_rank_of_a_job_exist() -> None:
    labels = {"kueue.x-k8s.io/queue-name": "q", "kueue.x-k8s.io/priority-class": "nope"}
    queued = train()
    queued["metadata"]["labels"] = labels
    paths = [path for _, severity, path in told(in_program(queued)) if severity == "error"]
    assert paths == [f"metadata.labels.{key}" for key in labels]


def test_the_queue_of_a_cron_jobs_jobs_exists() -> None:
    metadata = {"labels": {"kueue.x-k8s.io/queue-name": "q"}}
    template = {"metadata": metadata, "spec": train()["spec"]}
    spec = {"schedule": "0 0 * * *", "jobTemplate": template}
    nightly = in_namespace("team", namespaced("batch/v1", "CronJob", "nightly", spec=spec))
    paths = [path for _, severity, path in told(in_program(nightly)) if severity == "error"]
    assert paths == ["spec.jobTemplate.metadata.labels.kueue.x-k8s.io/queue-name"]


def test_an_accepted_reference_is_shown_and_decides_nothing() -> None:
    resources = [*MACHINES, *kubernetes(TEAM, train(container={"envFrom": READS}))]
    verdicts = judge_program(resources, accepted=["secret"])
    assert [rule for rule, *_ in told(verdicts)] == ["secret"]
    assert verdicts.stack is Verdict.FITS


def test_a_secret_with_the_name_of_a_claim_that_the_pod_makes_is_looked_for() -> None:
    made = {"ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}}
    volumes = [{"name": "d", **made}, {"name": "s", "secret": {"secretName": "train-d"}}]
    verdicts = in_program(train(volumes=volumes))
    path = "spec.template.spec.volumes[1].secret.secretName"
    assert ("secret", "error", path) in told(verdicts)
