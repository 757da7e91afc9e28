"""What routes, pools and autoscalers lead to: for each row of the table, with and without it."""

from collections.abc import Mapping
from typing import Any

import pytest
from ml_foundations.catalog.pools import CLUSTER
from ml_foundations.planning.model.workloads import groups
from ml_foundations.planning.rules.built_in import RULES
from ml_foundations.planning.rules.findings import Finding
from ml_foundations.planning.rules.targets import _ROWS, targets

from tests.factories import Manifest
from tests.support.stacks import stack_of

VERSION = "gateway.networking.k8s.io/v1"


def source(row: Mapping[str, str], **reference: Any) -> Manifest:
    """An object with the reference of a row of the table; its group has no unknown kinds."""
    value: Any = {"name": "it", **reference}
    for key in reversed(row["path"].split(".")[:-1]):
        value = {key.removesuffix("[]"): [value] if key.endswith("[]") else value}
    metadata = {"name": "source", "namespace": "team"}
    return {"apiVersion": VERSION, "kind": row["of"], "metadata": metadata, **value}


def target(version: str, kind: str, namespace: str = "team", **spec: Any) -> Manifest:
    metadata = {"name": "it", "namespace": namespace}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def found(*objects: Manifest, is_complete: bool = True) -> list[Finding]:
    cluster = ((CLUSTER, {}),) if is_complete else ()
    return [*targets(stack_of(objects, *cluster))]


def test_an_action_of_the_controller_of_aws_names_no_service() -> None:
    """As in the samples of Argo Rollouts: the annotation of that name has the Services."""
    (row,) = (each for each in _ROWS if each["path"] == "spec.defaultBackend.service.name")
    assert found(source(row, port={"name": "use-annotation"})) == []
    assert len(found(source(row, port={"name": "http"}))) == 1


@pytest.mark.parametrize("row", _ROWS, ids=lambda row: f"{row['of']} {row['path']}")
def test_what_an_object_names_exists(row: Mapping[str, str]) -> None:
    kind = row["kind"] or "Deployment"
    group = row["group"] if row["kind"] else "apps"
    version = f"{group}/v1".lstrip("/")
    by = {} if row["kind"] else {"kind": kind, "apiVersion": version}
    [missing] = found(source(row, **by))
    place = row["path"].replace("[]", "[0]")
    assert (missing.rule, missing.path, missing.is_error) == (row["rule"], place, True)
    assert not found(source(row, **by), is_complete=False)[0].is_error
    assert row["rule"] in RULES
    assert found(source(row, **by), target(version, kind)) == []
    [other] = found(source(row, **by), target("other.example.org/v1", kind))
    assert other.is_error
    assert "other.example.org" in other.remedy
    if not row["kind"]:
        [legacy] = found(source(row, kind=kind), target(version, kind))
        field = "apiVersion" if row["rule"] == "autoscaling-target" else "group"
        assert legacy.path.endswith(field)
    stored = source(row, **by)
    stored["metadata"]["uid"] = "u"
    assert found(stored) == []


ROUTE = next(row for row in _ROWS if row["of"] == "HTTPRoute")


@pytest.mark.parametrize(
    ("port", "is_open"),
    [(80, True), ({"number": 80}, True), ({"name": "http"}, True), (8000, False), (None, True)],
)
def test_a_service_has_the_port(port: Any, is_open: bool) -> None:
    service = target("v1", "Service", ports=[{"name": "http", "port": 80, "targetPort": 8000}])
    assert (found(source(ROUTE, port=port), service) == []) is is_open


def grant(**to: str) -> Manifest:
    route = {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": "team"}
    spec = {"from": [route], "to": [{"group": "", "kind": "Service", **to}]}
    return target("gateway.networking.k8s.io/v1beta1", "ReferenceGrant", "other", **spec)


@pytest.mark.parametrize(
    ("grants", "is_granted"),
    [
        ([], False),
        ([grant()], True),
        ([grant(name="it")], True),
        ([grant(name="another")], False),
        ([grant(kind="InferencePool")], False),
    ],
)
def test_another_namespace_grants_a_route(grants: list[Manifest], is_granted: bool) -> None:
    objects = [source(ROUTE, namespace="other"), target("v1", "Service", "other"), *grants]
    assert (found(*objects) == []) is is_granted
    assert [each.is_error for each in found(*objects)] == [True] * (not is_granted)


def test_a_backend_of_weight_0_gets_no_requests() -> None:
    assert found(source(ROUTE, weight=0)) == []
    assert found(source(ROUTE, weight=1)) != []


@pytest.mark.parametrize("row", _ROWS, ids=lambda row: f"{row['of']} {row['path']}")
@pytest.mark.parametrize("kind", ["Job", "CronJob", "JobSet", "DaemonSet", "Pod", "RayCluster"])
def test_what_an_object_names_is_of_the_right_kind(row: Mapping[str, str], kind: str) -> None:
    version = f"{groups()[kind]}/v1".lstrip("/")
    by = {"kind": kind, "apiVersion": version}
    [wrong] = found(source(row, **by), target(version, kind), is_complete=False)
    assert (wrong.rule, wrong.is_error) == (row["rule"], True)
    assert wrong.path.endswith(".kind")
    right = "Deployment" if row["rule"] == "autoscaling-target" else "Service"
    assert right in wrong.remedy
    assert found(source(row, kind="Unknown")) == []


def test_the_kind_of_an_object_with_the_name_is_offered() -> None:
    scaler = next(row for row in _ROWS if row["of"] == "HorizontalPodAutoscaler")
    by = {"kind": "StatefulSet", "apiVersion": "apps/v1"}
    [wrong] = found(source(scaler, **by), target("apps/v1", "Deployment"))
    assert wrong.remedy == "Set kind to Deployment, or declare the StatefulSet team/it."
    [wrong] = found(source(ROUTE, kind="Deployment"), target("v1", "Service"))
    assert wrong.remedy == "Set kind to Service."
