"""Bad stack files: each error names the path, the value and what is allowed, and all come at once."""

import json
import re
from typing import Any

import pulumi
import pytest
import yaml

from tests.support.stack_files import STACKS, changed, errors, refusal, sections, settings


@pytest.mark.parametrize("stack", ["dev", "staging", "prod"])
def test_our_stacks_are_right(stack: str) -> None:
    settings.parse(sections(stack))


FINETUNE = "teams.research.trainingJobs.finetune"
LEAST = {"image": "i", "cpu": "1", "memory": "1Gi"}


def refused(path: str, value: Any, *words: str) -> tuple[str, Any, tuple[str, ...]]:
    """A path in the dev stack, a wrong value there, and words of the message about it."""
    return path, value, words


WRONG = {
    "unknown key": refused(
        "nodePools.l4.maxNode", 3, "nodePools.l4.maxNode: is not known", "maxNodes"
    ),
    "unknown section key": refused("cluster.nam", "x", "cluster.nam: is not known", "name"),
    "unknown rule": refused(
        "proof.accept",
        {"quota-summ": "because"},
        "proof.accept.quota-summ: is not known. Did you mean quota-sum",
    ),
    "no reason": refused(
        "proof.accept", {"quota-sum": ""}, "proof.accept.quota-sum", "must not be empty"
    ),
    "negative size": refused(
        "nodePools.l4.maxNodes", -1, "nodePools.l4.maxNodes", "greater than or equal to 1", "-1"
    ),
    "unknown machine type": refused(
        "nodePools.l4.machineType", "g2-standard-9", "nodePools.l4.machineType", "g2-standard-96"
    ),
    "gpu count of another machine": refused(
        "nodePools.a100.gpus", 3, "nodePools.a100", "a2-highgpu-2g", "2 GPUs per node, not 3"
    ),
    "gpu of another machine": refused(
        "nodePools.a100.gpu", "H100", "nodePools.a100", "nvidia-tesla-a100, not nvidia-h100-80gb"
    ),
    "min above max": refused(
        "nodePools.l4.minNodes", 9, "nodePools.l4.minNodes", "9", "maxNodes (4)"
    ),
    "unknown gpu": refused(
        f"{FINETUNE}.gpu", "H10O", "finetune.gpu", "GPU 'H10O' is not in the catalog", "H100"
    ),
    "no such volume": refused(
        "teams.research.trainingJobs.preprocess.mounts",
        [{"claim": "raw", "path": "/data"}],
        "preprocess.mounts[0].claim",
        'no volume "raw"',
        "raw-data",
    ),
    "nfs without server": refused(
        "teams.research.volumes.shared-checkpoints.storageClass",
        "nfs-client",
        "shared-checkpoints.storageClass",
        "storage.nfs names no server",
    ),
    "file that is not there": refused(
        f"{FINETUNE}.files",
        {"/workspace/a.py": "@scripts/none.py"},
        "finetune.files./workspace/a.py: is @scripts/none.py, and stacks/scripts/none.py cannot be read: No such file",
    ),
    "file outside": refused(
        f"{FINETUNE}.files",
        {"/workspace/a.py": "@/etc/passwd", "/workspace/b.py": "@../README.md"},
        "finetune.files./workspace/a.py: is @/etc/passwd",
        "finetune.files./workspace/b.py: is @../README.md",
        "leads out of",
    ),
    "bad quantity": refused(
        "teams.research.quota.memory", "1e3Gi", "teams.research.quota.memory", "1e3Gi", "16Gi"
    ),
    "long name": refused("teams.research.trainingJobs." + "x" * 64, LEAST, "x" * 64, "63"),
    "name too long once derived": refused(
        "teams.research.trainingJobs." + "x" * 60, LEAST, "66 characters, and 63 are allowed"
    ),
    "what follows from the place": refused(
        f"{FINETUNE}.namespace",
        "serving",
        "finetune.namespace: is serving, but follows from its place in the file, here research; leave it out",
    ),
    "a pool's cluster": refused(
        "nodePools.l4.clusterName",
        "c",
        "nodePools.l4.clusterName: is c, but follows from its place in the file; leave it out",
    ),
    "capital in a name": refused("teams.Research", {}, "teams.Research"),
    "driver without operator": refused(
        "gpuOperator", None, "nodePools.l4.driver", "there is no gpuOperator"
    ),
    "pool that GKE drives beside the operator": refused(
        "nodePools.l4.driver",
        "latest",
        "nodePools.l4.driver: is latest, but gpuOperator.mode is operator",
    ),
    "pool that nobody drives": refused(
        "gpuOperator.mode", "gke", "nodePools.l4.driver: is operator", "nobody installs the driver"
    ),
    "shared memory beyond memory": refused(
        f"{FINETUNE}.sharedMemory", "1Ti", "finetune.sharedMemory: is 1Ti", "memory (128Gi)"
    ),
    "waiting for a Job that deletes itself": refused(
        FINETUNE,
        LEAST | {"waitForCompletion": True, "ttlSecondsAfterFinished": 60},
        "finetune.ttlSecondsAfterFinished: a Job that is waited for",
    ),
    "wrong word": refused(
        "teams.research.podSecurity",
        "strict",
        "podSecurity",
        "'baseline' or 'restricted'",
        "'strict'",
    ),
    "cluster name too long for its service account": refused(
        "cluster.name", "x" * 25, "cluster.name", "30 are allowed"
    ),
    "pool name too long": refused(
        "nodePools." + "x" * 41, {"machineType": "n2-standard-8", "maxNodes": 1}, "41", "40"
    ),
    "no project": refused("project", "", "gcp:project"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_value_is_refused_with_its_path_and_the_way_out(case: str) -> None:
    path, value, words = WRONG[case]
    message = errors(changed((path, value)))
    assert not [word for word in words if word not in message], message


def test_a_cluster_that_is_made_needs_pools() -> None:
    assert "nodePools: are required" in errors(changed(("nodePools", {})))


def test_null_is_the_same_as_nothing() -> None:
    given = changed(("teams.research.trainingJobs.finetune.graceSeconds", None))
    job = settings.parse(given).teams["research"].training_jobs["finetune"]
    assert "grace_seconds" not in job.given()


@pytest.mark.parametrize("stack", ["dev", "staging", "prod"])
def test_a_stack_has_every_key_that_pulumi_takes_for_mandatory(stack: str) -> None:
    declared = yaml.safe_load((STACKS.parent / "Pulumi.yaml").read_text())["config"]
    mandatory = {
        key.partition(":")[2]
        for key, what in declared.items()
        if "type" in what and "default" not in what
    }
    assert mandatory == {"cluster"}
    assert mandatory <= sections(stack).keys()


def test_all_errors_come_at_once() -> None:
    given = changed(("nodePools.l4.maxNodes", -1))
    given["nodePools"]["a100"]["machineType"] = "a2-nope"
    given["teams"]["research"]["quota"]["gpus"] = -4
    assert "3 invalid values:" in errors(given)


EXISTING = {"name": "lab", "kubeconfig": "~/lab.yaml", "context": "lab"}


def on_existing_cluster(**sections: Any) -> dict[str, Any]:
    """The dev stack on a cluster that is there already."""
    given = changed(("cluster", EXISTING))
    return {key: value for key, value in (given | sections).items() if value is not None}


def test_thousands_of_errors_are_counted_and_the_first_are_explained() -> None:
    given = sections("dev")
    given["teams"]["research"] |= {f"quotas{index}": 1 for index in range(10_000)}
    lines = errors(given).splitlines()
    assert lines[0] == "10000 invalid values:"
    assert len(lines) == 102
    assert lines[-1] == "  ml-foundations: and 9900 more, after these"


def test_everything_above_a_cluster_works_on_one_that_exists() -> None:
    parsed = settings.parse(on_existing_cluster(nodePools=None, gpuOperator=None))
    assert parsed.cluster.context == "lab"
    assert set(parsed.teams) == {"research", "serving"}


def test_described_pools_of_an_existing_cluster_are_checked() -> None:
    pools: dict[str, Any] = {"l4": {"machineType": "g2-standard-8", "maxNodes": 3}}
    found = refusal(on_existing_cluster(nodePools=pools, gpuOperator=None))
    assert "Job research/finetune: each pod needs 2 nvidia.com/gpu" in found
    product = "nvidia.com/gpu.product"
    wanted = f"{product} In [NVIDIA-A100-SXM4-40GB] (the node has {product}=NVIDIA-L4)"
    assert wanted in found
    assert "Written at ml-foundations:teams.research.trainingJobs.finetune. [node-affinity" in found
    assert found.count("Written at") == 1, found
    pools["a100"] = {"machineType": "a2-highgpu-1g", "maxNodes": 2}
    found = refusal(on_existing_cluster(nodePools=pools, gpuOperator=None))
    assert "it needs 2 nvidia.com/gpu, and 1 is free" in found
    pools["a100"]["machineType"] = "a2-highgpu-2g"
    assert refusal(on_existing_cluster(nodePools=pools, gpuOperator=None)) == ""


def test_an_existing_cluster_takes_no_setting_of_a_new_one() -> None:
    message = errors(changed(("cluster", EXISTING | {"releaseChannel": "RAPID"})))
    assert "cluster.releaseChannel: is not known" in message


def test_a_team_of_a_google_group_needs_groups_in_the_cluster() -> None:
    message = errors(changed(("teams.research.group", "ml@example.com")))
    assert re.search(r"cluster.securityGroup: is required.*teams.research.group", message)


def test_networks_of_gpus_need_a_cluster_with_more_than_one() -> None:
    networks = [{"network": f"n{index}", "subnetwork": f"s{index}"} for index in range(4)]
    message = errors(changed(("nodePools.a100.additionalNetworks", networks)))
    assert "cluster.multiNetworking: is false, but nodePools.a100" in message


def test_a_shared_gpu_goes_to_a_pod_one_at_a_time() -> None:
    given = changed(("gpuOperator", None))
    sharing = {"strategy": "TIME_SHARING", "clients": 4}
    given["nodePools"]["l4"] |= {"driver": "default", "sharing": sharing}
    given["nodePools"]["a100"] |= {"driver": "default"}
    chat = given["teams"]["serving"]["inferenceServices"]["chat"]
    chat |= {"gpu": "L4-SHARED"}
    settings.parse(given)
    chat |= {"gpus": 2}
    found = refusal(given)
    one = "GKE gives a container one shared GPU, and it asks for 2. Request 1 nvidia.com/gpu."
    assert one in found
    assert "Written at ml-foundations:teams.serving.inferenceServices.chat. [shared-gpu, " in found
    chat |= {"gpus": 1, "gpu": "L4"}
    assert "the node has nvidia.com/gpu.product=NVIDIA-L4-SHARED" in refusal(given)


BUCKET = ("teams.research.volumes.raw", {"bucket": "my-bucket"})
MOUNT = "teams.research.trainingJobs.preprocess.mounts"


def test_a_mounted_bucket_is_known_by_its_volume() -> None:
    """Without the annotation that says so, GKE's sidecar would not come, and the pod never start."""
    given = changed(
        BUCKET, (MOUNT, [{"claim": "raw", "path": "/raw"}, {"claim": "raw-data", "path": "/data"}])
    )
    mounts = settings.parse(given).teams["research"].training_jobs["preprocess"].mounts
    assert [mount.fuse for mount in mounts] == [True, False]
    assert refusal(given) == ""
    refused = refusal(changed(BUCKET, (MOUNT, [{"claim": "raw", "path": "/raw", "fuse": False}])))
    assert "the claim raw is a bucket" in refused
    assert "bucket-sidecar" in refused


def test_job_sets_come_with_their_controller() -> None:
    gang = {"image": "i", "nodes": 2, "cpu": "1", "memory": "1Gi", "jobset": True}
    trained = ("teams.research.distributedTrainings.gang", gang)
    assert settings.parse(changed()).job_sets is None
    assert settings.parse(changed(trained)).job_sets is not None
    assert refusal(changed(trained)) == ""
    refused = refusal(changed(trained, ("jobSetController", {"install": False})))
    assert "JobSet research/gang: GKE has no JobSet, and nothing here installs jobset" in refused


def test_groups_of_servers_come_with_their_controller() -> None:
    sizes = ["--model=m", "--tensor-parallel-size=1", "--pipeline-parallel-size=2"]
    server = {"image": "i", "nodes": 2, "cpu": "1", "memory": "1Gi", "arguments": sizes}
    served = ("teams.research.inferenceServices.large", server)
    assert settings.parse(changed()).leader_worker_sets is None
    assert settings.parse(changed(served)).leader_worker_sets is not None
    assert refusal(changed(served)) == ""
    refused = refusal(changed(served, ("leaderWorkerSetController", {"install": False})))
    assert "LeaderWorkerSet research/large: GKE has no LeaderWorkerSet, and nothing here" in refused


def test_a_queued_pool_is_a_queued_flavor() -> None:
    given = changed(
        ("teams.research.queue", {"cpu": "8", "memory": "8Gi", "gpus": {"a100": 2}}),
        ("nodePools.a100.queuedProvisioning", True),
        ("nodePools.a100.locationPolicy", "ANY"),
    )
    found = settings.parse(given).queues
    assert found is not None
    assert {flavor.name: flavor.queued_provisioning for flavor in found.flavors} == {
        "l4": False,
        "a100": True,
    }


def test_kueue_manages_the_kinds_that_wait_in_a_queue() -> None:
    share = {"cpu": "8", "memory": "64Gi", "gpus": {"l4": 4}}
    given = [("teams.serving.queue", share), ("trainingQueue", {"readySeconds": 1800})]
    chat = "teams.serving.inferenceServices.chat"
    queued = [(f"{chat}.queue", "training")]
    grouped = [*queued, (f"{chat}.nodes", 2), (f"{chat}.launcher", "none")]
    for changes, more in (([], []), (queued, ["Deployment"]), (grouped, ["LeaderWorkerSet"])):
        queues = settings.parse(changed(*given, *changes)).queues
        assert queues is not None
        assert queues.kinds == ["Job", "JobSet", *more]


def test_a_server_in_a_queue_has_the_time_to_load() -> None:
    """Kueue stops what is not ready in time, and would start it anew for ever."""
    team = ("teams.serving.queue", {"cpu": "8", "memory": "64Gi", "gpus": {"l4": 4}})
    slow = [
        (f"teams.serving.inferenceServices.chat.{key}", value)
        for key, value in (("queue", "training"), ("loadSeconds", 1800))
    ]
    refused = errors(changed(team, *slow, ("trainingQueue.readySeconds", 2999)))
    assert "chat.loadSeconds: is 1800, and a new node needs 1200 at most" in refused
    assert "trainingQueue.readySeconds is 2999: make it 3000 or more" in refused
    settings.parse(changed(team, *slow, ("trainingQueue.readySeconds", 3000)))


def test_callers_are_let_out_to_the_servers_that_list_them() -> None:
    given = changed(
        ("teams.serving.inferenceServices.chat.callers", ["research", "serving", "web"])
    )
    found = settings.parse(given)
    assert found.teams["research"].egress_namespaces == ["serving"]
    assert found.teams["serving"].egress_namespaces == []
    kept = changed(
        ("teams.serving.inferenceServices.chat.callers", ["research"]),
        ("teams.research.egressNamespaces", ["data", "serving"]),
    )
    assert settings.parse(kept).teams["research"].egress_namespaces == ["data", "serving"]


LAYERS = [
    ("nodePool", {}, "nodePool"),
    ("nodePools.l4.maxNode", 3, "nodePools.l4.maxNode"),
    ("nodePools.a100.minNodes", 9, "nodePools.a100.minNodes"),
    ("gpuMonitors.m", {"image": "i", "port": "x"}, "gpuMonitors.m.port"),
    ("teams.serving.quota.gpusByModel", {"L4": 9}, "teams.serving.quota.gpusByModel.nvidia-l4"),
    ("proof.accept", {"quota-summ": "because"}, "proof.accept.quota-summ"),
    ("teams.research.group", "ml@example.com", "cluster.securityGroup"),
    ("teams.research.quota.gpusByModel", {"A100": 8}, "teams.research.trainingJobs.new.gpu"),
    ("teams.research.volumes.raw-data.storageClass", "fsat-ssd", "volumes.raw-data.storageClass"),
    ("teams.research.trainingJobs.finetune.shm_size", "1Gi", "finetune.shm_size"),
    (
        "teams.research.trainingJobs.finetune.mounts",
        [{"claim": "raw", "path": "/data"}],
        "finetune.mounts[0].claim",
    ),
    ("teams.research.trainingJobs.new", {"gpus": 1, "foo": 1}, "new.image"),
    ("teams.Serving", {"quota": {}}, "teams.Serving"),
]
"""Errors of keys, values, combinations in a section, and references to others: path, value, and a path with an error."""


def test_errors_of_all_kinds_come_at_once() -> None:
    text = errors(changed(*((path, value) for path, value, _ in LAYERS)))
    assert [path for *_, path in LAYERS if f"{path}: " not in text] == [], text


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("teams.research.volumes.raw-data.size", "big"),
        ("nodePools.cpu.maxNodes", "many"),
        ("nodePools.l4.driver", "nvidia"),
        ("gpuOperator.mode", "best"),
        ("cluster.location", 3),
        ("nodePools", 3),
        ("gpuMonitors", ["a"]),
        ("teams.research.volumes", "none"),
        ("teams.research.trainingJobs", [{}]),
        ("teams.research.quota.gpus", "all"),
        ("teams.research.trainingJobs.finetune.gpus", "two"),
        ("teams.research.trainingJobs.finetune.mounts", [{"claim": "raw-data", "path": 1}]),
        ("teams.research.trainingJobs.finetune.mounts", [{"path": "/data"}]),
    ],
)
def test_an_error_has_no_others_in_its_train(path: str, value: Any) -> None:
    """A check that reads an invalid argument would report an error that disappears once that is fixed."""
    text = errors(changed((path, value)))
    assert text.startswith("1 invalid value:"), text


def test_a_missing_project_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    config = yaml.safe_load((STACKS / "Pulumi.dev.yaml").read_text())["config"]
    texts = {key: json.dumps(value) for key, value in config.items() if key != "gcp:project"}
    monkeypatch.setattr(pulumi, "get_stack", lambda: "dev")
    pulumi.runtime.set_all_config(texts)
    try:
        with pytest.raises(pulumi.RunError) as caught:
            settings.load()
    finally:
        pulumi.runtime.set_all_config({})
    expected = "stacks/Pulumi.dev.yaml: 1 invalid value:\n  gcp:project: is required"
    assert str(caught.value) == expected
