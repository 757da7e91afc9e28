"""The rule that holds pods to the GPU model of their PriorityClass: on a real API server, and in the proof."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from ml_foundations.component.spec import check
from ml_foundations.kubernetes import labels
from ml_foundations.planning import judge
from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import Api, ApiError
from ml_foundations.tenancy.quota import gpu_key
from ml_foundations.tenancy.team_namespace import TeamNamespaceSpec

from tests.factories import REQUIRED, in_namespace
from tests.factories import pod as pod_with
from tests.support.cluster import Cluster
from tests.support.waiting import until
from tests.workloads.building import job, pod_of

BOTH = "NVIDIA-H100-80GB-HBM3"
"""The product label of A3 High and A3 Mega."""
HIGH, MEGA = ({labels.GKE_ACCELERATOR: f"nvidia-h100-{name}"} for name in ("80gb", "mega-80gb"))
TERMS = [
    {"matchExpressions": [{"key": labels.ZONE, "operator": "In", "values": [zone]}]}
    for zone in "ab"
]
TWO_TERMS = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": TERMS}}}
PODS: list[tuple[str, dict[str, Any], bool]] = [
    ("L4", {"gpu": "L4"}, True),
    ("L4", {"gpu": "L4", "accelerator_label": True}, True),
    ("L4", {"gpu": "L4", "affinity": TWO_TERMS}, True),
    ("L4", {"node_selector": {labels.GPU_PRODUCT: "NVIDIA-L4"}}, True),
    ("L4", {"node_selector": {labels.GPU_PRODUCT: "Tesla-T4"}}, False),
    ("L4", {"affinity": TWO_TERMS}, False),
    ("L4", {"gpu": ["L4", "T4"]}, False),
    ("L4", {}, False),
    ("A100", {"gpu": "A100-80GB"}, False),
    ("A100", {"gpu": "A100-MIG-1g.5gb"}, False),
    ("A100-MIG-1g.5gb", {"gpu": "A100-MIG-1g.5gb"}, True),
    ("A100-MIG-1g.5gb", {"gpu": "A100-MIG-1g.5gb", "accelerator_label": True}, True),
    ("H100", {"gpu": "H100", "accelerator_label": True}, True),
    ("H100", {"gpu": "H100", "node_selector": HIGH}, True),
    ("H100", {"gpu": "H100"}, False),
    ("H100", {"gpu": "H100", "node_selector": MEGA}, False),
    ("H100", {"gpu": "H100-MEGA"}, False),
    ("H100-MEGA", {"gpu": "H100-MEGA"}, True),
    ("H100-MEGA", {"gpu": "H100", "accelerator_label": True}, False),
    (BOTH, {"gpu": BOTH}, True),
    (BOTH, {"gpu": BOTH, "accelerator_label": True}, True),
    (BOTH, {"gpu": "H100-MEGA"}, True),
]
"""The model that a team's quota counts, the arguments of a workload, and whether its pods are admitted."""
MODELS = sorted({model for model, *_ in PODS})
TEAM: Any = {"gpus": 8, "cpu": "96", "memory": "512Gi", "storage": "4Ti"}
TEAM |= {"gpus_by_model": dict.fromkeys(MODELS, 8)}
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
RULES = {
    "ValidatingAdmissionPolicy": f"{POLICIES}ies",
    "ValidatingAdmissionPolicyBinding": f"{POLICIES}ybindings",
}


def team() -> list[dict[str, Any]]:
    return check(TeamNamespaceSpec, "TeamNamespace", {"namespace": "models", **TEAM}).manifests()


def pod(model: str, args: dict[str, Any]) -> dict[str, Any]:
    spec = pod_of(job(gpus=1, **args)) | {"priorityClassName": f"models-{gpu_key(model)}"}
    return in_namespace("models", pod_with("p", {"metadata": {}, "spec": spec}))


@pytest.mark.parametrize(("model", "args", "is_admitted"), PODS)
def test_the_proof_follows_the_rule(model: str, args: dict[str, Any], is_admitted: bool) -> None:
    (found,) = judge([*team(), pod(model, args)]).workloads
    assert any(reason.rule == "unknown-admission" for reason in found.reasons) is not is_admitted


@pytest.fixture(scope="module")
def api(cluster: Cluster) -> Iterator[Api]:
    api = Api(Access(cluster.kubeconfig))
    made = [each for each in team() if each["kind"] in {*RULES, "PriorityClass"}]
    paths = {**RULES, "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses"}
    api.create("/api/v1/namespaces", {"metadata": {"name": "models"}})
    for each in made:
        api.create(f"{paths[each['kind']]}?fieldValidation=Strict", each)
    with suppress(ApiError):  # the controller may have made it
        api.create("/api/v1/namespaces/models/serviceaccounts", {"metadata": {"name": "default"}})
    until(lambda: "need a node selector or required node affinity" in refusal(api, pod("L4", {})))
    yield api
    for each in made:
        api.delete(f"{paths[each['kind']]}/{each['metadata']['name']}")
    api.delete("/api/v1/namespaces/models")


def refusal(api: Api, body: dict[str, Any]) -> str:
    try:
        api.create("/api/v1/namespaces/models/pods?dryRun=All", body)
    except ApiError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("model", "args", "is_admitted"), PODS)
def test_the_api_server_holds_pods_to_their_model(
    api: Api, model: str, args: dict[str, Any], is_admitted: bool
) -> None:
    found = refusal(api, pod(model, args))
    assert ("need a node selector or required node affinity with" in found) is not is_admitted, (
        found
    )
    assert bool(found) is not is_admitted, found
