"""What planning is told by a stack's settings alone is what the program then declares."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from ml_foundations.planning import Verdict
from ml_foundations.planning.input.program import RELEASE, Resource, nodes_of
from ml_foundations.planning.verdict.program import judge_program

from tests.stacks.test_settings import sections
from tests.support.recording import changed_stack

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "stacks"))

import planned  # noqa: E402  (the program's folder is no package)
import settings  # noqa: E402

DECIDING = {
    *("Job", "CronJob", "JobSet", "Pod", "Deployment", "StatefulSet", "DaemonSet", "HorizontalPodAutoscaler"),
    *("ResourceQuota", "LimitRange", "PriorityClass", "PersistentVolumeClaim", "PersistentVolume", "StorageClass"),
    *("Namespace", "ResourceFlavor", "ClusterQueue", "LocalQueue"),
}
"""The kinds that planning reads."""


def by_name(resources: list[Resource]) -> dict[tuple[str, str, str], Any]:
    """The objects that planning reads, by kind, namespace and name; as JSON knows them."""
    found = [inputs for type_, inputs in resources if type_ != RELEASE and inputs.get("kind") in DECIDING]
    return {
        (item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]): json.loads(json.dumps(item))
        for item in found
        if item["metadata"].get("namespace", item["metadata"]["name"]) not in OF_CHARTS
    }


OF_CHARTS = ("gpu-operator", "nvidia-dra-driver")
"""Namespaces of ours in which only charts have pods."""

RICH: dict[str, Any] = {
    "teams": {
        "research": {
            "quota": {"gpus": 8, "cpu": "96", "memory": "512Gi", "storage": "4Ti", "gpusByModel": {"A100": 4}},
            "priorities": {"urgent": 10},
            "largestVolume": "1Ti",
            "volumes": {"data": {"size": "500Gi", "storageClass": "zonal-ssd"}},
            "distributedTrainings": {
                "gang": {
                    "image": "i:1",
                    "nodes": 2,
                    "cpu": "4",
                    "memory": "8Gi",
                    "jobset": True,
                    "gpu": "A100",
                    "gpus": 1,
                }
            },
            "tasks": {
                "check": {"image": "i:1", "cpu": "1", "memory": "1Gi", "mounts": [{"claim": "data", "path": "/d"}]}
            },
        }
    },
    "gpuMonitors": {"watch": {"image": "i:1", "driver": "none", "port": 0}},
}


def recorded(stack: str, changes: dict[str, Any]) -> list[Resource]:
    """What the program declares, against Pulumi's mocks."""
    given = sections(stack) | changes
    config = {"gcp:project": given.pop("project"), **{f"ml-foundations:{key}": value for key, value in given.items()}}
    return [(item["type"], item["inputs"]) for item in changed_stack(stack, config)]


@pytest.mark.parametrize(
    ("stack", "changes"),
    [("dev", {}), ("staging", {}), ("prod", {}), ("dev", RICH)],
    ids=["dev", "staging", "prod", "rich"],
)
def test_settings_say_what_the_program_will_declare(stack: str, changes: dict[str, Any]) -> None:
    declared = recorded(stack, changes)
    told = list(planned.resources(settings.parse(sections(stack) | changes)))
    assert by_name(told) == by_name(declared)
    pools = {node.name: vars(node) for node in nodes_of(declared)}
    assert {node.name: vars(node) for node in nodes_of(told)} == pools
    assert judge_program(told).stack == judge_program(declared).stack


@pytest.mark.parametrize("stack", ["dev", "staging", "prod"])
def test_our_stacks_fit_by_their_settings_alone(stack: str) -> None:
    verdicts = judge_program(planned.resources(settings.parse(sections(stack))))
    assert verdicts.stack is Verdict.FITS, verdicts.findings
    assert verdicts.workloads
