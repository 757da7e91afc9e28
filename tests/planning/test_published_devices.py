"""Claims of devices that drivers publish in ResourceSlices: planning counts them by node."""

import copy
from typing import Any

import pytest
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning import Verdict
from ml_foundations.planning.verdict.program import judge_documents

from tests.factories import (
    Manifest,
    cluster_wide,
    container,
    deployment,
    namespaced,
    node,
    template,
)

FITS, CANNOT_FIT, UNDETERMINED = Verdict.FITS, Verdict.CANNOT_FIT, Verdict.UNDETERMINED
API, DRIVER = "resource.k8s.io/v1", "gpu.example.com"
IS_DRIVER = f'device.driver == "{DRIVER}"'


def of(attribute: str, value: str) -> str:
    return f'device.attributes["{DRIVER}"].{attribute} == {value}'


def device_class(*expressions: str, name: str = DRIVER) -> Manifest:
    selectors = [{"cel": {"expression": expression}} for expression in expressions]
    return cluster_wide(API, "DeviceClass", name, spec={"selectors": selectors})


def devices(count: int, model: str = "big", memory: str = "80Gi") -> list[Manifest]:
    attributes = {"model": {"string": model}, "index": {"int": 7}, "ready": {"bool": True}}
    capacity = {"memory": {"value": memory}}
    return [
        {"name": f"{model}-{number}", "attributes": attributes, "capacity": capacity}
        for number in range(count)
    ]


def published(on: str, found: list[Manifest], **more: Any) -> Manifest:
    pool = {"name": on, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": on, "pool": pool, "devices": found} | more
    return cluster_wide(API, "ResourceSlice", f"{on}-{pool['name']}", spec=spec)


def claimed(*expressions: str, name: str = "g", count: int = 1, **more: Any) -> Manifest:
    selectors = [{"cel": {"expression": expression}} for expression in expressions]
    exact = {"deviceClassName": DRIVER, "count": count} | more
    exact |= {"selectors": selectors} if selectors else {}
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
    [(4, 1, FITS), (5, 1, CANNOT_FIT), (2, 2, FITS), (3, 2, CANNOT_FIT), (1, 3, CANNOT_FIT)],
)
def test_a_node_has_the_devices_of_its_slices(replicas: int, count: int, expected: Verdict) -> None:
    claim = claimed(count=count)
    assert verdict(device_class(IS_DRIVER), claim, server(replicas), *TWO_EACH) is expected


@pytest.mark.parametrize(
    ("condition", "replicas", "expected"),
    [
        (of("model", '"big"'), 2, FITS),
        (of("model", '"big"'), 3, CANNOT_FIT),
        (of("model", '"small"'), 4, FITS),
        (of("model", '"other"'), 1, CANNOT_FIT),
        (of("index", "7") + " && " + of("ready", "true"), 6, FITS),
        (of("ready", "false"), 1, CANNOT_FIT),
        (f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0', 2, FITS),
        (f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0', 3, CANNOT_FIT),
        # The scheduler gives up at an attribute that a device lacks, or of another type.
        (of("speed", '"x"'), 1, UNDETERMINED),
        (of("index", '"7"'), 1, UNDETERMINED),
        (of("model", '"big"') + " || true", 1, UNDETERMINED),
        ('device.attributes["other.example.com"].model == "big"', 1, UNDETERMINED),
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
    assert verdict(*shared, server(2), server(3, "h", "two")) is CANNOT_FIT


def test_overlapping_classes_are_undetermined() -> None:
    big = claimed(of("model", '"big"'), name="h")
    slices = [published("a", devices(2) + devices(2, "small")), published("b", [])]
    assert verdict(device_class(IS_DRIVER), claimed(), big, server(1), *slices) is UNDETERMINED


def allocation(device: str, **more: Any) -> Manifest:
    result = {"driver": DRIVER, "pool": "a", "device": device, "request": "gpu"} | more
    status = {"allocation": {"devices": {"results": [result]}}}
    spec = section_of(claimed())
    return namespaced(API, "ResourceClaim", device, spec=spec, status=status)


def section_of(claim: Manifest) -> Manifest:
    return claim["spec"]["spec"]


def test_claims_have_devices_already() -> None:
    shown = [device_class(IS_DRIVER), claimed(), *TWO_EACH, allocation("big-0")]
    assert verdict(*shown, server(3)) is FITS
    assert verdict(*shown, server(4)) is CANNOT_FIT


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
    assert verdict(device_class(IS_DRIVER), claimed(), server(1), *slices) is UNDETERMINED


def test_an_old_generation_of_a_pool_does_not_count() -> None:
    newer = {"name": "a", "generation": 2, "resourceSliceCount": 1}
    slices = [published("a", devices(8)), published("a", devices(1), pool=newer)]
    slices[1]["metadata"]["name"] = "newer"
    assert verdict(device_class(IS_DRIVER), claimed(), server(1), *slices) is FITS
    assert verdict(device_class(IS_DRIVER), claimed(), server(2), *slices) is CANNOT_FIT


@pytest.mark.parametrize(
    "other",
    [
        claimed(name="h", deviceClassName="absent"),
        claimed(name="h") | {"spec": {"spec": {"devices": {"requests": [{"firstAvailable": []}]}}}},
        namespaced(API, "ResourceClaim", "h", spec=section_of(claimed())),
        allocation("big-0", adminAccess=True),
    ],
)
def test_claims_that_are_not_followed_are_undetermined(other: Manifest) -> None:
    shown = [device_class(IS_DRIVER), claimed(), *TWO_EACH]
    assert verdict(*shown, copy.deepcopy(other), server(1)) is UNDETERMINED


def test_without_slices_or_class_nothing_is_known() -> None:
    assert verdict(device_class(IS_DRIVER), claimed(), server(1)) is UNDETERMINED
    assert verdict(claimed(), server(1), *TWO_EACH) is UNDETERMINED
    assert verdict(device_class(), claimed(), server(1), *TWO_EACH) is UNDETERMINED
