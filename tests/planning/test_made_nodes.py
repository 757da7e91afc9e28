"""Nodes that do not exist yet and are made for pods that wait: no node refuses such pods for certain."""

from typing import Any

import pytest
from ml_foundations.planning import Verdict, judge
from ml_foundations.planning.input.field_catalog import table

from tests.factories import (
    CANNOT,
    FITS,
    OPEN,
    Manifest,
    cluster_wide,
    container,
    daemon_set,
    deployment,
    job,
    node,
    node_affinity,
    template,
)

CLASS = "cloud.google.com/compute-class"
AUTO = {"priorities": [{"machineFamily": "g2"}], "nodePoolAutoCreation": {"enabled": True}}
SMALL = node("n", {"cloud.google.com/gke-nodepool": "sys"}, cpu="2")


def compute_class(name: str = "gpus", **spec: Any) -> Manifest:
    return cluster_wide("cloud.google.com/v1", "ComputeClass", name, spec=AUTO | spec)


def verdict(*documents: Manifest) -> Verdict:
    return judge([SMALL, *documents]).workloads[0].verdict


def web(**spec: Any) -> Manifest:
    return deployment("web", 1, template(containers=[container(cpu=8)], **spec))


OF_CLASS = {"nodeSelector": {CLASS: "gpus"}}
IN_CLASS = {"affinity": node_affinity({"key": CLASS, "operator": "In", "values": ["x", "gpus"]})}


RUN = job("run", 1, template(containers=[container(cpu=8)], **OF_CLASS))
AGENT = daemon_set("agent", template(containers=[container(cpu=1)]))


@pytest.mark.parametrize(
    ("made", "classes", "expected"),
    [
        (web(**OF_CLASS), [compute_class()], OPEN),
        (web(**IN_CLASS), [compute_class()], OPEN),
        (web(**OF_CLASS), [compute_class(nodePoolAutoCreation={"enabled": False})], CANNOT),
        (web(**OF_CLASS), [compute_class("other")], CANNOT),
        (web(), [compute_class()], CANNOT),
        # A cluster may give this class to all pods without one.
        (web(), [compute_class("default")], OPEN),
        (RUN, [compute_class()], OPEN),
        (AGENT, [compute_class()], FITS),
    ],
)
def test_a_class_that_makes_pools_lifts_what_nodes_refuse_of_its_pods(
    made: Manifest, classes: list[Manifest], expected: Verdict
) -> None:
    assert verdict(made, *classes) is expected


def test_a_class_does_not_lift_what_the_api_server_refuses() -> None:
    wrong = web(**OF_CLASS, restartPolicy="Sometimes")
    assert verdict(wrong, compute_class()) is CANNOT


MAKERS = table()["kinds"]["node_makers"]["it makes nodes for pods that wait"]


@pytest.mark.parametrize("kind", MAKERS)
def test_an_unknown_autoscaler_lifts_what_nodes_refuse(kind: str) -> None:
    group, _, _ = kind.partition("/")
    maker = cluster_wide(f"{group}/v1", "NodePool", "gpus", spec={"limits": {"cpu": 1000}})
    assert verdict(web(), maker) is OPEN
    assert verdict(deployment("small", 1, template()), maker) is FITS
    assert verdict(web(), {**maker, "apiVersion": "example.com/v1"}) is CANNOT
