"""Pods that claim their nodes' interfaces between GPUs (GKE's DRANET)."""

from typing import Any

import pytest
from ml_foundations.planning import UNKNOWN

from tests.factories import CANNOT, FITS, OPEN, container, job, namespaced, resource, template
from tests.planning.test_program import cluster, judge_program, pool

DRIVER = {"cloud.google.com/gke-networking-dra-driver": "true"}
RDMA, OTHERS = "mrdma.google.com", "netdev.google.com"


def claims(*requests: dict[str, Any], **devices: Any) -> Any:
    named = [{"name": f"r{i}", "exactly": request} for i, request in enumerate(requests)]
    spec = {"spec": {"devices": {"requests": named, **devices}}}
    return resource(namespaced("resource.k8s.io/v1", "ResourceClaimTemplate", "rdma", spec=spec))


def counted(count: int, name: str = RDMA, **more: Any) -> dict[str, Any]:
    return {"deviceClassName": name, "allocationMode": "ExactCount", "count": count, **more}


def training(pods: int, *names: str, gpu: int = 8) -> Any:
    claimed = [{"name": name, "resourceClaimTemplateName": name} for name in names or ("rdma",)]
    tolerated = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    spec = template(containers=[container(gpu=gpu)], resourceClaims=claimed, tolerations=tolerated)
    return resource(job("train", pods, spec, gang=True))


def a4(nodes: int = 2, labels: Any = DRIVER, machine: str = "a4-highgpu-8g", **config: Any) -> Any:
    gpus = [{"type": {"a4": "nvidia-b200", "a3": "nvidia-h200-141gb"}[machine[:2]], "count": 8}]
    return pool(machine, nodes, guestAccelerators=gpus, labels=labels, **config)


ALL = {"deviceClassName": RDMA, "allocationMode": "All"}


@pytest.mark.parametrize(
    ("pods", "gpu", "requests", "expected"),
    [
        (2, 8, [counted(8)], FITS),
        (3, 8, [counted(8)], CANNOT),
        (2, 8, [counted(9)], CANNOT),
        (4, 1, [counted(4)], FITS),
        (3, 1, [counted(8)], CANNOT),  # two pods of one GPU never share a node's interfaces
        (2, 1, [ALL], FITS),
        (3, 1, [ALL], CANNOT),
        (2, 8, [counted(8), counted(1, OTHERS)], FITS),
        (2, 8, [counted(8), counted(2, OTHERS)], CANNOT),
        (2, 8, [counted(8, selectors=[{"cel": {"expression": "true"}}])], OPEN),
        (2, 8, [counted(8, "dranet")], OPEN),
        (3, 8, [counted(8, "dranet")], CANNOT),  # by its GPUs
    ],
)
def test_pods_take_the_interfaces_of_their_node(
    pods: int, gpu: int, requests: list[dict[str, Any]], expected: Any
) -> None:
    found = judge_program([cluster(), a4(), claims(*requests), training(pods, gpu=gpu)])
    assert found.stack is expected, found.findings


def test_what_the_driver_decides_is_not_known() -> None:
    declared = claims(counted(8), constraints=[{"matchAttribute": "dra.net/rdma"}])
    assert judge_program([cluster(), a4(), declared, training(2)]).stack is OPEN


@pytest.mark.parametrize(
    ("labels", "expected"),
    [(DRIVER, FITS), ({}, CANNOT), ({next(iter(DRIVER)): UNKNOWN}, OPEN)],
)
def test_a_pool_without_the_driver_has_no_such_devices(labels: Any, expected: Any) -> None:
    found = judge_program([cluster(), a4(labels=labels), claims(counted(8)), training(2)])
    assert found.stack is expected
    if expected is CANNOT:
        [reason] = [each for each in found.findings if each.rule == "device-claim"]
        assert "cloud.google.com/gke-networking-dra-driver" in reason.message
        assert "gpu_network managed" in reason.remedy


def test_a_claim_of_more_than_a_node_has_names_its_number() -> None:
    found = judge_program([cluster(), a4(), claims(counted(9)), training(1)])
    [reason] = [each for each in found.findings if each.rule == "device-claim"]
    assert "claims 9 of mrdma.google.com" in reason.message and "more than 8" in reason.message


def test_other_pools_do_not_doubt() -> None:
    """A pool that does not accept the pods has nothing to say about their claims."""
    stack = [cluster(), a4(), claims(counted(8)), training(2)]
    assert judge_program([*stack, pool(labels={"a": "b"})]).stack is FITS
