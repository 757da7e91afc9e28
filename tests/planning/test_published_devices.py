"""Claims of devices that drivers publish in ResourceSlices: planning counts them by node."""

import copy
from typing import Any

import pytest
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning import Verdict
from ml_foundations.planning.verdict.program import judge_documents

from tests.factories import (
    CANNOT,
    FITS,
    OPEN,
    Manifest,
    cluster_wide,
    container,
    deployment,
    namespaced,
    node,
    template,
)

API, DRIVER = "resource.k8s.io/v1", "gpu.example.com"
IS_DRIVER = f'device.driver == "{DRIVER}"'


def of(attribute: str, value: str) -> str:
    return f'device.attributes["{DRIVER}"].{attribute} == {value}'


def selectors(*expressions: str) -> list[Manifest]:
    return [{"cel": {"expression": expression}} for expression in expressions]


def device_class(*expressions: str, name: str = DRIVER) -> Manifest:
    return cluster_wide(API, "DeviceClass", name, spec={"selectors": selectors(*expressions)})


def devices(count: int, model: str = "big", memory: str = "80Gi") -> list[Manifest]:
    attributes = {"model": {"string": model}, "index": {"int": 7}, "ready": {"bool": True}}
    facts = {"attributes": attributes, "capacity": {"memory": {"value": memory}}}
    return [{"name": f"{model}-{number}", **facts} for number in range(count)]


def published(on: str, found: list[Manifest], **more: Any) -> Manifest:
    pool = {"name": on, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": on, "pool": pool, "devices": found} | more
    return cluster_wide(API, "ResourceSlice", f"{on}-{pool['name']}", spec=spec)


def claimed(*expressions: str, name: str = "g", count: int = 1, **more: Any) -> Manifest:
    exact = {"deviceClassName": DRIVER, "count": count} | more
    if expressions:
        exact["selectors"] = selectors(*expressions)
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exact}]}}
    return namespaced(API, "ResourceClaimTemplate", name, spec={"spec": spec})


def server(replicas: int, claim: str = "g", name: str = "llm") -> Manifest:
    pods = template({"app": name}, [container() | {"resources": {"claims": [{"name": "c"}]}}])
    pods["spec"]["resourceClaims"] = [{"name": "c", "resourceClaimTemplateName": claim}]
    return deployment(name, replicas, pods, strategy={"type": "Recreate"})


NODES = [node("a"), node("b")]
TWO_EACH = [published("a", devices(2)), published("b", devices(2))]


def verdict(*documents: Manifest) -> Verdict:
    return judge_documents([*NODES, *documents]).stack


@pytest.mark.parametrize(
    ("replicas", "count", "expected"),
    [(4, 1, FITS), (5, 1, CANNOT), (2, 2, FITS), (3, 2, CANNOT), (1, 3, CANNOT)],
)
def test_a_node_has_the_devices_of_its_slices(replicas: int, count: int, expected: Verdict) -> None:
    claim = claimed(count=count)
    assert verdict(device_class(IS_DRIVER), claim, server(replicas), *TWO_EACH) is expected


@pytest.mark.parametrize(
    ("condition", "replicas", "expected"),
    [
        (of("model", '"big"'), 2, FITS),
        (of("model", '"big"'), 3, CANNOT),
        (of("model", '"small"'), 4, FITS),
        (of("model", '"other"'), 1, CANNOT),
        (of("index", "7") + " && " + of("ready", "true"), 6, FITS),
        (of("ready", "false"), 1, CANNOT),
        (f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0', 2, FITS),
        (f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0', 3, CANNOT),
        # The scheduler gives up at an attribute that a device lacks, or of another type.
        (of("speed", '"x"'), 1, OPEN),
        (of("index", '"7"'), 1, OPEN),
        (of("model", '"big"') + " || true", 1, OPEN),
        ('device.attributes["other.example.com"].model == "big"', 1, OPEN),
    ],
)
@pytest.mark.parametrize("in_class", [True, False])
def test_conditions_choose_among_devices(
    condition: str, replicas: int, expected: Verdict, in_class: bool
) -> None:
    small = devices(2, "small", "20Gi")
    slices = [published("a", devices(2) + small), published("b", small)]
    of_class = [IS_DRIVER, condition] if in_class else [IS_DRIVER]
    claim = claimed() if in_class else claimed(condition)
    assert verdict(device_class(*of_class), claim, server(replicas), *slices) is expected


def test_two_classes_with_the_same_devices_share_them() -> None:
    other = claimed(name="h", deviceClassName="other")
    classes = [device_class(IS_DRIVER), device_class(f"{IS_DRIVER} ", name="other")]
    shared = [*classes, claimed(), other, *TWO_EACH]
    assert verdict(*shared, server(2), server(2, "h", "two")) is FITS
    assert verdict(*shared, server(2), server(3, "h", "two")) is CANNOT


def test_overlapping_classes_are_undetermined() -> None:
    big = claimed(of("model", '"big"'), name="h")
    slices = [published("a", devices(2) + devices(2, "small")), published("b", [])]
    assert verdict(device_class(IS_DRIVER), claimed(), big, server(1), *slices) is OPEN


def allocation(device: str, **more: Any) -> Manifest:
    result = {"driver": DRIVER, "pool": "a", "device": device, "request": "gpu"} | more
    status = {"allocation": {"devices": {"results": [result]}}}
    return namespaced(API, "ResourceClaim", device, spec=OF_CLAIM, status=status)


OF_CLAIM = claimed()["spec"]["spec"]
SHOWN = [device_class(IS_DRIVER), claimed(), *TWO_EACH]


def test_claims_have_devices_already() -> None:
    assert verdict(*SHOWN, allocation("big-0"), server(3)) is FITS
    assert verdict(*SHOWN, allocation("big-0"), server(4)) is CANNOT


@pytest.mark.parametrize(
    "change",
    [
        {"pool": {"name": "a", "generation": 1, "resourceSliceCount": 2}},
        {"sharedCounters": [{"name": "c"}]},
        {"nodeName": None, "allNodes": True},
        {"devices": [{"name": "x", "taints": [{"key": "broken"}]}]},
        {"driver": "other.example.com"},
        {"pool": UNKNOWN},
        {"devices": [5]},
        {"pool": {"name": {"a": 1}, "generation": "x"}},
    ],
)
def test_slices_that_are_not_followed_are_undetermined(change: Manifest) -> None:
    slices = [published("a", devices(2), **change)]
    assert verdict(device_class(IS_DRIVER), claimed(), server(1), *slices) is OPEN


def test_an_old_generation_of_a_pool_does_not_count() -> None:
    newer = {"name": "a", "generation": 2, "resourceSliceCount": 1}
    slices = [published("a", devices(8)), published("a", devices(1), pool=newer)]
    slices[1]["metadata"]["name"] = "newer"
    assert verdict(device_class(IS_DRIVER), claimed(), server(1), *slices) is FITS
    assert verdict(device_class(IS_DRIVER), claimed(), server(2), *slices) is CANNOT


@pytest.mark.parametrize(
    "other",
    [
        claimed(name="h", deviceClassName="absent"),
        claimed(name="h") | {"spec": {"spec": {"devices": {"requests": [{"firstAvailable": []}]}}}},
        namespaced(API, "ResourceClaim", "h", spec=OF_CLAIM),
        allocation("big-0", adminAccess=True),
    ],
)
def test_claims_that_are_not_followed_are_undetermined(other: Manifest) -> None:
    assert verdict(*SHOWN, copy.deepcopy(other), server(1)) is OPEN


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ([claimed('device.driver.matches("^gpu")', name="h")], "the condition"),
        ([namespaced(API, "ResourceClaim", "shared", spec=OF_CLAIM)], "ResourceClaim shared,"),
    ],
)
def test_what_is_not_followed_of_claims_is_named(more: list[Manifest], what: str) -> None:
    found = judge_documents([*SHOWN, *more, server(1)]).workloads[0]
    assert f"planning does not follow {what}" in str([each.message for each in found.reasons])


def test_the_channel_of_a_compute_domain_needs_no_declared_template() -> None:
    """NVIDIA's controller makes the template that the domain names."""
    channel = {"channel": {"resourceClaimTemplate": {"name": "g"}}, "numNodes": 1}
    domain = namespaced("resource.nvidia.com/v1beta1", "ComputeDomain", "dom", spec=channel)
    found = judge_documents([domain, server(1), node("n")])
    assert found.stack is OPEN
    (reason,) = found.workloads[0].reasons
    assert "a channel of ComputeDomain dom" in reason.message
    assert "Declare" not in reason.remedy
    elsewhere = {**domain, "metadata": {"name": "dom", "namespace": "other"}}
    (reason,) = judge_documents([elsewhere, server(1), node("n")]).workloads[0].reasons
    assert reason.remedy == "Declare ResourceClaimTemplate g."


def test_without_slices_or_class_nothing_is_known() -> None:
    assert verdict(device_class(IS_DRIVER), claimed(), server(1)) is OPEN
    assert verdict(claimed(), server(1), *TWO_EACH) is OPEN
    assert verdict(device_class(), claimed(), server(1), *TWO_EACH) is OPEN
