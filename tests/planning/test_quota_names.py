"""Names in ResourceQuotas under which Kubernetes counts nothing."""

from typing import Any

import pytest
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning import Verdict
from ml_foundations.planning.rules.findings import Finding
from ml_foundations.planning.verdict.program import judge_documents, judge_program
from ml_foundations.planning.verdict.report import as_text

from tests.factories import (
    GPU,
    Manifest,
    container,
    deployment,
    job,
    node,
    quota,
    resource,
    template,
)

TRAINING = job("train", 1, template(containers=[container(gpu=4, cpu=1)]))
SCOPED = {"scopes": ["NotTerminating"]}


def findings(hard: Manifest, **spec: Any) -> list[Finding]:
    verdicts = judge_documents([TRAINING, node("n", gpu="4"), quota(hard=hard, **spec)])
    assert verdicts.stack is Verdict.FITS
    return [each for each in verdicts.findings if each.rule == "quota-name"]


ALPHA = "requests.alpha.kubernetes.io/nvidia-gpu"
OF_CLASS = "fast.storageclass.storage.k8s.io"


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        (GPU, f"Replace it with requests.{GPU}."),
        (f"limits.{GPU}", f"Replace it with requests.{GPU}."),
        ("google.com/tpu", "Replace it with requests.google.com/tpu."),
        (ALPHA, f"Remove {ALPHA}."),
        (f"{OF_CLASS}/storage", f"Remove {OF_CLASS}/storage."),
        ("count/deployments", "Replace it with count/deployments.apps."),
        ("count/job", "Replace it with count/jobs.batch."),
        ("count/pod", "Replace it with count/pods."),
        ("count/nodes", "Add its API group, as in count/jobs.batch, or remove count/nodes."),
    ],
)
def test_names_that_count_nothing_are_reported(name: str, remedy: str) -> None:
    (finding,) = findings({name: "0"})
    assert (finding.severity, finding.path) == ("warning", f"spec.hard.{name}")
    assert finding.remedy == remedy
    assert f"its amount of {name} limits nothing: " in finding.message


@pytest.mark.parametrize(
    "name",
    [
        *(f"requests.{GPU}", "requests.cpu", "pods", "count/pods", "count/configmaps"),
        *("count/jobs.batch", "count/widgets.example.com", f"{OF_CLASS}/requests.storage"),
        "gpu.nvidia.com.deviceclass.resource.k8s.io/devices",
    ],
)
def test_names_that_count_are_not_reported(name: str) -> None:
    assert findings({name: "99"}) == []


@pytest.mark.parametrize(
    ("name", "counts"), [(f"requests.{GPU}", True), ("count/pods", True), ("count/secrets", False)]
)
def test_quotas_with_scopes_count_pods_only(name: str, counts: bool) -> None:
    assert [each.remedy for each in findings({name: "99"}, **SCOPED)] == (
        [] if counts else [f"Move {name} to a ResourceQuota without scopes."]
    )


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("count/persistentvolumeclaims", True),
        (f"{OF_CLASS}/requests.storage", True),
        ("gpu.nvidia.com.deviceclass.resource.k8s.io/devices", False),
        (f"requests.{GPU}", False),
        ("count/pods", False),
    ],
)
def test_quotas_with_the_scope_of_claims_count_claims_only(name: str, counts: bool) -> None:
    faults = findings({name: "99"}, scopes=["VolumeAttributesClass"])
    of_claims = ["counts persistentvolumeclaims only" in each.message for each in faults]
    assert of_claims == ([] if counts else [True])


def test_a_name_is_removed_if_its_remedy_is_there() -> None:
    (finding,) = findings({GPU: "4", f"requests.{GPU}": "4"})
    assert finding.remedy == f"Remove {GPU}."


def test_the_summary_leaves_out_names_that_count_nothing() -> None:
    limited = quota(hard={GPU: "1", f"requests.{GPU}": "4"})
    text = as_text(judge_documents([TRAINING, node("n", gpu="4"), limited]))
    assert f"Quota team/quota leaves requests.{GPU} 0 of 4.\n" in text


def test_programs_are_warned_too() -> None:
    unknown = quota(hard={GPU: UNKNOWN, "resourcequotas": UNKNOWN})
    documents = [deployment("web", 1, template()), node("n"), unknown]
    verdicts = judge_program(map(resource, documents))
    assert verdicts.stack is Verdict.FITS
    found = [each.object for each in verdicts.findings if each.rule == "quota-name"]
    assert found == ["ResourceQuota team/quota"]
