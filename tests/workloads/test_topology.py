"""The annotations by which Kueue knows the topology of a workload."""

from typing import Any

import pytest

from tests.workloads.building import gang_spec, job_spec

BLOCK, SUB_BLOCK = "cloud.google.com/gce-topology-block", "cloud.google.com/gce-topology-subblock"
KUEUE = "kueue.x-k8s.io/podset-"


def annotations(spec: Any) -> dict[str, str]:
    job = next(each for each in spec.manifests() if each["kind"] == "Job")
    return job["spec"]["template"]["metadata"].get("annotations", {})


@pytest.mark.parametrize(
    ("topology", "expected"),
    [
        (None, {}),
        ("unconstrained", {f"{KUEUE}unconstrained-topology": "true"}),
        ("required:block", {f"{KUEUE}required-topology": BLOCK}),
        ("preferred:sub-block", {f"{KUEUE}preferred-topology": SUB_BLOCK}),
        ("required:example.com/rack", {f"{KUEUE}required-topology": "example.com/rack"}),
    ],
)
def test_the_topology_is_an_annotation_of_the_pods(
    topology: str | None, expected: dict[str, str]
) -> None:
    assert annotations(job_spec(queue="q", topology=topology)) == expected


def test_one_layer_of_slices_and_several() -> None:
    inner = {"level": "sub-block", "size": 2}
    assert annotations(gang_spec(queue="q", nodes=8, topology_slices=[inner])) == {
        f"{KUEUE}slice-required-topology": SUB_BLOCK,
        f"{KUEUE}slice-size": "2",
    }
    both = [{"level": "block", "size": 4}, inner]
    assert annotations(gang_spec(queue="q", nodes=8, topology_slices=both)) == {
        f"{KUEUE}slice-required-topology-constraints": (
            f'[{{"topology": "{BLOCK}", "size": 4}}, {{"topology": "{SUB_BLOCK}", "size": 2}}]'
        )
    }
