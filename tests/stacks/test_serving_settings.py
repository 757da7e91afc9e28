"""Stack files with monitors, shards and queues: what does not fit the rest is refused with its path."""

from typing import Any

import pytest

from tests.support.stack_files import errors, sections, settings

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
    assert (team.namespace, team.cpu, team.memory) == ("research", "8", "32Gi")
    assert team.gpus == {"l4": 1}
    flavor = next(flavor for flavor in found.queues.flavors if flavor.name == "l4")
    assert flavor.gpu == "NVIDIA-L4"
    assert flavor.node_selector == {"cloud.google.com/gke-nodepool": "l4"}
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


def refused(
    *words: str, team: dict[str, Any] | None = None, **more: Any
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The dev stack with sections of which one is wrong, and words of the message about it."""
    return stack(team or {}, **more), words


def job(**more: Any) -> dict[str, Any]:
    """A team with a queue and a job."""
    return {"queue": QUEUE, "trainingJobs": {"a": JOB | more}}


FAR = "required:cloud.google.com/gce-topology-block"
HOSTS = [{"level": "host", "size": 1}]
FASTEST = SHARDS | {"volumes": [SHARDS["volumes"][0] | {"storageClass": "fastest"}]}
WRONG = {
    "two exporters": refused(
        "gpuMonitors.dcgm: gpuOperator.dcgmExporter exports the same metrics",
        gpuMonitors={"dcgm": {}},
    ),
    "monitor": refused(
        "gpuMonitors.logs.drivers", gpuMonitors={"logs": {"image": "i", "drivers": "none"}}
    ),
    "unknown class of shards": refused(
        'teams.research.shardedSets.parts.volumes[0].storageClass: there is no class "fastest"',
        team={"shardedSets": {"parts": FASTEST}},
    ),
    "long name of a set": refused(
        f"teams.research.shardedSets.{'x' * 53}: has 53 characters, and 52 are allowed",
        team={"shardedSets": {"x" * 53: SHARDS}},
    ),
    "no such pool": refused(
        'teams.research.queue.gpus.h200: there is no flavor "h200". Known: l4 and a100',
        team={"queue": QUEUE | {"gpus": {"h200": 1}}},
    ),
    "no queue": refused(
        "teams.research.trainingJobs.a.queue: the team has no queue training. Its queue: none",
        team={"trainingJobs": {"a": JOB | {"queue": "training"}}},
    ),
    "another queue": refused(
        "teams.research.trainingJobs.a.queue: the team has no queue fast. Its queue: training",
        team=job(queue="fast"),
    ),
    "no topology": refused(
        "teams.research.trainingJobs.a.topology: asks for the level block, "
        "but trainingQueue.topology has none; add it",
        team=job(queue="training", topology="required:block"),
    ),
    "another level": refused(
        'teams.research.trainingJobs.a.topologySlices[0]: there is no level "host". '
        "Did you mean hostname? Known: block, sub-block and hostname",
        team=job(queue="training", topology=FAR, topologySlices=HOSTS),
        trainingQueue={"topology": ["block", "sub-block", "hostname"]},
    ),
    "negative share": refused(
        "teams.research.queue.gpus.l4: is -1", team={"queue": QUEUE | {"gpus": {"l4": -1}}}
    ),
    "coherent times": refused(
        "teams.research.inferenceServices.chat.graceSeconds: is 10, and a pod needs 45",
        "drainSeconds 30",
        team={"inferenceServices": {"chat": JOB | {"graceSeconds": 10}}},
    ),
}


@pytest.mark.parametrize(("given", "words"), WRONG.values(), ids=WRONG.keys())
def test_what_does_not_fit_is_refused_with_its_path(
    given: dict[str, Any], words: tuple[str, ...]
) -> None:
    message = errors(given)
    assert not [word for word in ("invalid value", *words) if word not in message], message


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
