"""Stack files with monitors, shards and queues: what does not fit the rest is refused with its path."""

from typing import Any

import pytest

from tests.support.stack_files import sections, settings

SHARDS: dict[str, Any] = {
    "image": "i",
    "cpu": "1",
    "memory": "1Gi",
    "shards": 2,
    "volumes": [{"name": "table", "size": "10Gi", "storageClass": "zonal-ssd", "path": "/table"}],
}
QUEUE: dict[str, Any] = {"cpu": "8", "memory": "32Gi", "gpus": {"l4": 1}}
JOB: dict[str, Any] = {"image": "i", "cpu": "1", "memory": "1Gi"}


def stack(team: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The dev stack with more sections, and more of a team."""
    given = sections() | more
    given["teams"]["research"] |= team
    return given


def test_right_ones_are_taken() -> None:
    workloads = {
        "queue": QUEUE,
        "shardedSets": {"parts": SHARDS},
        "trainingJobs": {"a": JOB | {"queue": "training"}},
    }
    found = settings.parse(stack(workloads, gpuMonitors={"logs": {"image": "i", "driver": "none"}}))
    assert found.queues is not None
    (team,) = found.queues.teams
    assert (team.namespace, team.cpu, team.memory, team.gpus) == (
        "research",
        "8",
        "32Gi",
        {"l4": 1},
    )
    flavor = next(flavor for flavor in found.queues.flavors if flavor.name == "l4")
    assert (flavor.gpu, flavor.node_selector) == (
        "NVIDIA-L4",
        {"cloud.google.com/gke-nodepool": "l4"},
    )
    assert flavor.tolerations == []
    assert settings.parse(sections()).queues is None


def test_what_a_queue_starts_tolerates_its_pools_taints() -> None:
    """GKE's own for queued nodes, too, which the pool publishes and does not declare."""
    given = stack({"queue": QUEUE})
    given["nodePools"]["l4"] |= {
        "queuedProvisioning": True,
        "taints": [{"key": "team", "value": "ml"}],
    }
    queues = settings.parse(given).queues
    assert queues is not None
    flavor = next(flavor for flavor in queues.flavors if flavor.name == "l4")
    assert {each.key: each.value for each in flavor.tolerations} == {
        "team": "ml",
        "cloud.google.com/gke-queued": "true",
    }


WRONG: dict[str, tuple[dict[str, Any], list[str]]] = {
    "two exporters": (
        stack({}, gpuMonitors={"dcgm": {}}),
        ["gpuMonitors.dcgm: gpuOperator.dcgmExporter exports the same metrics"],
    ),
    "monitor": (
        stack({}, gpuMonitors={"logs": {"image": "i", "drivers": "none"}}),
        ["gpuMonitors.logs.drivers"],
    ),
    "unknown class of shards": (
        stack(
            {
                "shardedSets": {
                    "parts": SHARDS
                    | {"volumes": [SHARDS["volumes"][0] | {"storageClass": "fastest"}]}
                }
            }
        ),
        ['teams.research.shardedSets.parts.volumes[0].storageClass: there is no class "fastest"'],
    ),
    "long name of a set": (
        stack({"shardedSets": {"x" * 53: SHARDS}}),
        [f"teams.research.shardedSets.{'x' * 53}: has 53 characters, and 52 are allowed"],
    ),
    "no such pool": (
        stack({"queue": QUEUE | {"gpus": {"h200": 1}}}),
        ['teams.research.queue.gpus.h200: there is no flavor "h200". Known: l4 and a100'],
    ),
    "no queue": (
        stack({"trainingJobs": {"a": JOB | {"queue": "training"}}}),
        ["teams.research.trainingJobs.a.queue: the team has no queue training. Its queue: none"],
    ),
    "another queue": (
        stack({"queue": QUEUE, "trainingJobs": {"a": JOB | {"queue": "fast"}}}),
        ["teams.research.trainingJobs.a.queue: the team has no queue fast. Its queue: training"],
    ),
    "no topology": (
        stack(
            {
                "queue": QUEUE,
                "trainingJobs": {"a": JOB | {"queue": "training", "topology": "required:block"}},
            }
        ),
        [
            "teams.research.trainingJobs.a.topology: asks for the level block, "
            "but trainingQueue.topology has none; add it"
        ],
    ),
    "another level": (
        stack(
            {
                "queue": QUEUE,
                "trainingJobs": {
                    "a": JOB
                    | {
                        "queue": "training",
                        "topology": "required:cloud.google.com/gce-topology-block",
                        "topologySlices": [{"level": "host", "size": 1}],
                    }
                },
            },
            trainingQueue={"topology": ["block", "sub-block", "hostname"]},
        ),
        [
            'teams.research.trainingJobs.a.topologySlices[0]: there is no level "host". '
            "Did you mean hostname? Known: block, sub-block and hostname"
        ],
    ),
    "negative share": (
        stack({"queue": QUEUE | {"gpus": {"l4": -1}}}),
        ["teams.research.queue.gpus.l4: is -1"],
    ),
    "coherent times": (
        stack({"inferenceServices": {"chat": JOB | {"graceSeconds": 10}}}),
        [
            "teams.research.inferenceServices.chat.graceSeconds: is 10, and a pod needs 45",
            "drainSeconds 30",
        ],
    ),
}


@pytest.mark.parametrize(("given", "words"), WRONG.values(), ids=WRONG.keys())
def test_what_does_not_fit_is_refused_with_its_path(
    given: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(ValueError, match="invalid value") as caught:
        settings.parse(given)
    for word in words:
        assert word in str(caught.value), str(caught.value)


def test_the_queue_of_a3_mega_selects_a3_mega() -> None:
    """A3 High has the same product label, so that GKE's label is not computed from it."""
    given = stack({"queue": {"cpu": "400", "memory": "3Ti", "gpus": {"mega": 16}}})
    given["nodePools"]["mega"] = {
        "driver": "operator",
        "machineType": "a3-megagpu-8g",
        "maxNodes": 2,
        "zones": ["us-central1-a"],
    }
    queues = settings.parse(given).queues
    assert queues is not None
    made = next(each for each in queues.manifests() if each["metadata"]["name"] == "mega")
    assert made["spec"]["nodeLabels"] == {
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        "cloud.google.com/gke-accelerator": "nvidia-h100-mega-80gb",
        "cloud.google.com/gke-nodepool": "mega",
    }
