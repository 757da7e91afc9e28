"""Stack files whose parts do not go together: operator and pools, classes and machines, claims, models, quotas."""

from typing import Any

import pytest
from ml_foundations.proof import Proof

from tests.support.stack_files import changed, errors, refusal, sections, settings


@pytest.mark.parametrize(
    ("driver", "mode"),
    [("operator", "operator"), ("installer", "cos"), ("latest", "gke"), ("default", "gke")],
)
def test_the_operators_mode_follows_from_the_pools(driver: str, mode: str) -> None:
    given = changed(
        ("nodePools.l4.driver", driver),
        ("nodePools.a100.driver", driver),
        ("gpuOperator", {"criticalPods": 200}),
    )
    operator = settings.parse(given).gpu_operator
    assert operator is not None
    assert (operator.mode, operator.critical_pods) == (mode, 200)


def test_googles_installer_goes_by_the_image_of_the_pools() -> None:
    pools = [
        (f"nodePools.{pool}.{key}", value)
        for pool in ("l4", "a100")
        for key, value in INSTALLED.items()
    ]
    operator = settings.parse(changed(*pools, ("gpuOperator", {}))).gpu_operator
    assert operator is not None
    assert operator.mode == "ubuntu"


INSTALLED = {"driver": "installer", "image": "ubuntu"}


def test_a_driver_that_storage_needs_is_not_switched_off() -> None:
    given = changed(("cluster.filestore", False))
    assert "cluster.filestore: is false, but storage.filestore needs it" in errors(given)
    settings.parse(changed())


IN_ONE_ZONE: list[tuple[str, Any]] = [
    (f"nodePools.{pool}.zones", ["us-central1-a"]) for pool in ("l4", "a100")
]
OWN_ZONES = ("storage.filestore.zones", ["us-central1-f"])


@pytest.mark.parametrize(
    ("changes", "zones"),
    [
        ([], []),
        ([("cluster.nodeZones", ["us-central1-a"])], []),  # two pools have zones of their own
        ([(f"nodePools.{pool}.zones", ["us-central1-a"]) for pool in ("l4", "a100")], []),
        ([("cluster.nodeZones", ["us-central1-a"]), *IN_ONE_ZONE], ["us-central1-a"]),
        ([("cluster.nodeZones", ["us-central1-b"]), *IN_ONE_ZONE], []),
        ([*IN_ONE_ZONE, ("cluster.nodeZones", ["us-central1-a"]), OWN_ZONES], ["us-central1-f"]),
    ],
)
def test_filestore_is_in_the_zone_of_all_pools(changes: list[Any], zones: list[str]) -> None:
    filestore = settings.parse(changed(*changes)).storage.filestore
    assert filestore is not None
    assert filestore.zones == zones


def test_pools_that_need_different_modes_are_named() -> None:
    found = errors(changed(("nodePools.l4.driver", "latest"), ("gpuOperator", {})))
    assert "nodePools.l4.driver: is latest, but gpuOperator.mode is operator" in found


def test_the_operators_settings_follow_from_the_pools_mode() -> None:
    both = [(f"nodePools.{pool}.driver", "latest") for pool in ("l4", "a100")]
    found = errors(changed(*both, ("gpuOperator", {"driver": {"version": "1"}})))
    assert "gpuOperator.driver: is the operator's, but the mode gke installs" in found


N1 = {"machineType": "n1-standard-8", "gpus": 1, "maxNodes": 1, "driver": "operator"}


@pytest.mark.parametrize(
    ("gpu", "driver", "reason"),
    [
        ("V100", None, "the last that does is 580"),
        ("P100", {"version": "595.91.07"}, "the last that does is 580"),
        ("V100", {"version": "580.126.20"}, None),
        ("V100", {"version": "580.126.20", "kernelModules": "open"}, "the open kernel modules"),
        ("T4", None, None),
    ],
)
def test_a_driver_without_support_for_the_pools_gpus_is_refused(
    gpu: str, driver: Any, reason: str | None
) -> None:
    operator = {"driver": driver} if driver else {}
    given = changed(("nodePools.old", N1 | {"gpu": gpu}), ("gpuOperator", operator))
    if reason is None:
        assert settings.parse(given)
        return
    found = errors(given)
    assert "gpuOperator.driver: does not suit" in found
    assert "of nodePools.old: " in found
    assert reason in found


G4 = {"machineType": "g4-standard-96", "maxNodes": 2, "driver": "operator"}
JOB = {"image": "i", "cpu": "8", "memory": "64Gi", "gpu": "RTX-PRO-6000", "gpus": 1}


def on_g4(volume: dict[str, Any]) -> dict[str, Any]:
    job = JOB | {"mounts": [{"claim": "data", "path": "/data"}]}
    return changed(
        ("nodePools.g4", G4),
        ("teams.research.volumes.data", {"size": "1Ti", **volume}),
        ("teams.research.trainingJobs.render", job),
    )


@pytest.mark.parametrize("storage_class", ["zonal-ssd", "fast-ssd", "zonal-balanced"])
def test_a_machine_without_persistent_disks_refuses_them(
    storage_class: str,
) -> None:
    found = refusal(on_g4({"storageClass": storage_class}))
    disk = {"zonal-ssd": "pd-ssd", "fast-ssd": "regional pd-ssd", "zonal-balanced": "pd-balanced"}[
        storage_class
    ]
    assert f"g4-standard-96 does not attach {disk} disks" in found
    assert "it attaches hyperdisk-balanced, hyperdisk-balanced-high-availability" in found
    assert "ml-foundations:teams.research.trainingJobs.render" in found


@pytest.mark.parametrize("storage_class", ["hyperdisk-balanced", "hyperdisk-extreme"])
def test_what_attaches_is_fine(storage_class: str) -> None:
    assert refusal(on_g4({"storageClass": storage_class})) == ""


def test_what_is_mounted_over_the_network_attaches_everywhere() -> None:
    assert refusal(on_g4({"storageClass": "filestore-basic-hdd"})) == ""
    assert refusal(on_g4({"bucket": "my-bucket"})) == ""


def test_a_class_of_ones_own_is_judged_by_its_disk() -> None:
    given = on_g4({"storageClass": "mine"})
    given["storage"]["disks"] = {"mine": {"type": "pd-balanced"}}
    assert "g4-standard-96 does not attach pd-balanced disks of storage class mine" in refusal(
        given
    )
    given["storage"]["disks"] = {"mine": {"type": "hyperdisk-balanced", "iops": 10000}}
    assert refusal(given) == ""


VOLUMES: dict[str, tuple[dict[str, Any], str]] = {
    "no such class": (
        {"storageClass": "fastssd"},
        'data.storageClass: there is no class "fastssd". Did you mean fast-ssd? Known: fast-ssd, ',
    ),
    "no zones of datasets": (
        {"storageClass": "datasets", "accessMode": "ReadOnlyMany", "snapshot": "s"},
        'there is no class "datasets"',
    ),
}


@pytest.mark.parametrize("case", VOLUMES)
def test_a_volume_of_no_class_is_refused(case: str) -> None:
    volume, reason = VOLUMES[case]
    assert reason in errors(changed(("teams.research.volumes.data", {"size": "1Ti", **volume})))


NOT_GIVEN = {
    "writers of a disk": (
        {"storageClass": "zonal-ssd", "accessMode": "ReadWriteMany"},
        "asks for ReadWriteMany, and volumes of the class zonal-ssd are ReadWriteOnce or ReadWriteOncePod or "
        "ReadOnlyMany. Ask for another access mode, or for a class that has ReadWriteMany: filestore-basic-hdd.",
    ),
    "too small": (
        {"storageClass": "hyperdisk-throughput"},
        "asks for 1Ti, and volumes of the class hyperdisk-throughput have at least 2Ti. Ask for 2Ti or more, or for",
    ),
}


@pytest.mark.parametrize(
    "mounts", [[], [{"claim": "data", "path": "/data"}]], ids=["unused", "mounted"]
)
@pytest.mark.parametrize("case", NOT_GIVEN)
def test_the_proof_refuses_a_volume_that_its_class_cannot_give(
    case: str, mounts: list[dict[str, str]]
) -> None:
    volume, reason = NOT_GIVEN[case]
    data = ("teams.research.volumes.data", {"size": "1Ti", **volume})
    found = refusal(changed(data, ("teams.research.trainingJobs.preprocess.mounts", mounts)))
    assert f"PersistentVolumeClaim research/data: the claim data {reason}" in found
    assert "Written at ml-foundations:teams.research.volumes.data. [volume-class, spec." in found
    assert found.count("[volume-class") == 1, found


CLAIMED = {"machineType": "a2-highgpu-2g", "maxNodes": 2, "driver": "operator", "dra": True}
CLAIMING = {"image": "i", "cpu": "8", "memory": "64Gi", "gpu": "A100", "gpus": 2, "gpuClaim": {}}


def claiming(*changes: tuple[str, Any]) -> dict[str, Any]:
    return changed(
        ("nodePools.claimed", dict(CLAIMED)),
        ("deviceClasses", {}),
        ("teams.research.quota.claimedGpus", 4),
        ("teams.research.trainingJobs.claiming", CLAIMING),
        *changes,
    )


def test_claimed_gpus_have_the_drivers_path_of_the_operator() -> None:
    claims = settings.parse(claiming()).device_classes
    assert claims is not None
    assert claims.gpu_driver_from == "operator"


CLAIMS: dict[str, tuple[tuple[str, Any], str]] = {
    "no driver": (
        ("deviceClasses", None),
        "nodePools.claimed.dra: is true, but there is no deviceClasses",
    ),
    "its label alone": (
        ("nodePools.l4.labels", {"cloud.google.com/gke-nvidia-gpu-dra-driver": "true"}),
        "nodePools.l4.labels: have cloud.google.com/gke-nvidia-gpu-dra-driver, which is for pools with dra",
    ),
    "GKE's driver": (
        ("nodePools.claimed.driver", "latest"),
        "GKE installs no driver if GPUs are claimed",
    ),
    "claims without devices": (
        ("deviceClasses", None),
        "claiming.gpuClaim: claims GPUs, but there is no deviceClasses; add the section",
    ),
}


@pytest.mark.parametrize("case", CLAIMS)
def test_claims_that_cannot_be_met_are_refused(case: str) -> None:
    change, reason = CLAIMS[case]
    assert reason in errors(claiming(change))


@pytest.mark.parametrize("cluster", [{}, {"name": "lab", "context": "lab"}], ids=["made", "exists"])
def test_the_proof_refuses_claims_of_advertised_gpus(cluster: dict[str, str]) -> None:
    on = [("cluster", cluster)] if cluster else []
    found = refusal(claiming(("nodePools.claimed.dra", False), *on))
    label = "cloud.google.com/gke-nvidia-gpu-dra-driver"
    assert (
        f"it claims 2 NVIDIA-A100-SXM4-40GB, and a100, claimed must have the label {label} for that"
        in found
    )
    assert (
        "Give the pool this label (GpuNodePool: dra), or request counted GPUs. Written at" in found
    )
    assert "teams.research.trainingJobs.claiming. [device-claim, " in found
    assert refusal(claiming(*on)) == ""


CLAIMING_PATH = "teams.research.trainingJobs.claiming"
DEVICES = "gpu.nvidia.com.deviceclass.resource.k8s.io/devices"


@pytest.mark.parametrize("quota", [0, 1])
def test_the_proof_refuses_claims_beyond_the_quota(quota: int) -> None:
    found = refusal(claiming(("teams.research.quota.claimedGpus", quota)))
    assert f"it needs 2 {DEVICES}, and ResourceQuota team-quota leaves {quota}" in found
    assert f"Written at ml-foundations:{CLAIMING_PATH}. [quota," in found
    assert refusal(claiming(("teams.research.quota.claimedGpus", 2))) == ""


EXISTING = {"name": "lab", "kubeconfig": "~/lab", "context": "lab"}
CLAIMING_WORKLOADS: dict[str, dict[str, Any]] = {
    "distributedTrainings": {"nodes": 2},
    "sweeps": {"command": ["train"], "parameters": {"lr": {"values": ["1", "2"]}}},
    "scheduledTrainings": {"schedule": "0 3 * * *"},
    "tasks": {},
    "inferenceServices": {},
    "shardedSets": {
        "shards": 1,
        "volumes": [{"name": "t", "size": "10Gi", "storageClass": "zonal-ssd", "path": "/t"}],
    },
}


@pytest.mark.parametrize("section", CLAIMING_WORKLOADS)
def test_the_quota_of_claimed_gpus_covers_every_kind(section: str) -> None:
    own = (f"teams.research.{section}.other", CLAIMING | CLAIMING_WORKLOADS[section])
    found = refusal(
        claiming(own, ("teams.research.trainingJobs", {}), ("teams.research.quota.claimedGpus", 1))
    )
    assert f"{DEVICES}, and ResourceQuota team-quota leaves 1" in found, found
    assert f"Written at ml-foundations:teams.research.{section}.other. [quota," in found, found


QUEUE = {"cpu": "8", "memory": "32Gi"}
OF_RESEARCH, OF_SERVING = "teams.research.queue", "teams.serving.queue"
PROMISES: dict[str, tuple[list[tuple[str, Any]], str, str]] = {
    "more than the pool has": (
        [(OF_RESEARCH, QUEUE | {"gpus": {"l4": 5}})],
        "ResourceFlavor l4: queues promise 5 nvidia.com/gpu, and l4 has 4",
        "nodePools.l4",
    ),
    "more than the pool has, in all": (
        [(OF_RESEARCH, QUEUE | {"gpus": {"l4": 3}}), (OF_SERVING, QUEUE | {"gpus": {"l4": 2}})],
        "ResourceFlavor l4: queues promise 5 nvidia.com/gpu, and l4 has 4",
        "nodePools.l4",
    ),
    "more than the pool of a cluster that exists has": (
        [(OF_RESEARCH, QUEUE | {"gpus": {"l4": 5}}), ("cluster", EXISTING)],
        "ResourceFlavor l4: queues promise 5 nvidia.com/gpu, and l4 has 4",
        "nodePools.l4",
    ),
    "more than the quota allows": (
        [(OF_RESEARCH, QUEUE | {"gpus": {"l4": 2, "a100": 2}}), ("teams.research.quota.gpus", 3)],
        "ClusterQueue research: queues promise 4 nvidia.com/gpu, and ResourceQuota research/team-quota has 3",
        OF_RESEARCH,
    ),
    "more than the quota allows on a cluster that exists": (
        [
            (OF_RESEARCH, QUEUE | {"gpus": {"l4": 4}}),
            ("teams.research.quota.gpus", 3),
            ("cluster", EXISTING),
        ],
        "ClusterQueue research: queues promise 4 nvidia.com/gpu, and ResourceQuota research/team-quota has 3",
        OF_RESEARCH,
    ),
}


@pytest.mark.parametrize("case", PROMISES)
def test_the_proof_warns_of_queues_that_promise_too_much(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes, reason, place = PROMISES[case]
    assert refusal(changed(*changes)) == ""
    found = promises(changed(*changes), monkeypatch)
    assert reason in found, found
    assert f"Written at ml-foundations:{place}. [queue-capacity," in found, found
    assert found.count("[queue-capacity,") == 1, found


def promises(stack: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what queues of a stack promise too much, which is a warning, as its refusal."""
    # Pulumi's mocks call no transforms, without which the proof shows no warnings.
    monkeypatch.setattr(Proof, "_is_error", lambda _, finding: finding.rule == "queue-capacity")
    return refusal(stack)


def test_a_shared_pool_promises_as_many_gpus_as_pods_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared = ("nodePools.l4.sharing", {"strategy": "TIME_SHARING", "clients": 2})
    latest = [(f"nodePools.{pool}.driver", "latest") for pool in ("l4", "a100")]
    given = [shared, *latest, ("gpuOperator", None), ("teams.serving.inferenceServices", {})]
    enough = changed(*given, (OF_RESEARCH, QUEUE | {"gpus": {"l4": 8}}))
    assert promises(enough, monkeypatch) == ""
    raised = ("teams.research.quota.gpus", 9)
    more = changed(*given, raised, (OF_RESEARCH, QUEUE | {"gpus": {"l4": 9}}))
    assert "and l4 has 8" in promises(more, monkeypatch)


BY_MODEL = ("teams.research.quota.gpusByModel", {"A100": 2})


def test_gpus_that_are_counted_by_model() -> None:
    settings.parse(changed(BY_MODEL))
    job = "teams.research.trainingJobs.finetune"
    fix = "Add it to quota.gpusByModel of the team, which has nvidia-tesla-a100"
    assert f"finetune.gpu: is nvidia-l4, and the team has none. {fix}" in errors(
        changed(BY_MODEL, (f"{job}.gpu", "L4"), (f"{job}.gpus", 1))
    )
    more = refusal(changed(("teams.research.quota.gpusByModel", {"A100": 1})))
    assert (
        "it needs 2 requests.nvidia.com/gpu, and ResourceQuota gpus-nvidia-tesla-a100 leaves 1"
        in more
    )
    assert refusal(changed(BY_MODEL)) == ""
    assert "finetune.gpu: is required: the team's GPUs are counted" in errors(
        changed(BY_MODEL, (f"{job}.gpu", None))
    )
    wrong = errors(changed(BY_MODEL, (f"{job}.priorityClass", "high")))
    assert (
        "priorityClass: is high, but follows from its place in the file, here research-nvidia-tesla-a100"
        in wrong
    )
    settings.parse(changed(BY_MODEL, (f"{job}.priorityClass", "research-nvidia-tesla-a100")))


@pytest.mark.parametrize(
    ("gpu", "selected"),
    [("H100", "nvidia-h100-80gb"), ("H100-MEGA", "nvidia-h100-mega-80gb"), ("L4", None)],
)
def test_gpus_that_are_counted_by_model_are_selected_by_type(
    gpu: str, selected: str | None
) -> None:
    """A3 High and A3 Mega have one product label."""
    job = "teams.research.trainingJobs.finetune"
    given = settings.parse(
        changed(("teams.research.quota.gpusByModel", {gpu: 2}), (f"{job}.gpu", gpu))
    )
    selector = given.teams["research"].training_jobs["finetune"].node_selector
    assert selector.get("cloud.google.com/gke-accelerator") == selected


@pytest.mark.parametrize(
    ("section", "entry"),
    [
        ("volumes", {"storageClass": "standard-ssd", "size": "1Ti"}),
        ("trainingJobs", {"image": "i", "cpu": "1", "memory": "1Gi"}),
        ("priorities", 5),
    ],
)
def test_names_of_two_teams_that_become_one_are_refused(section: str, entry: Any) -> None:
    team = {"quota": sections()["teams"]["research"]["quota"]}
    teams = {"ml": team | {section: {"ops-a": entry}}, "ml-ops": team | {section: {"a": entry}}}
    found = errors(changed(("teams", teams)))
    assert (
        f"teams.ml-ops.{section}.a: makes the name ml-ops-a, as teams.ml.{section}.ops-a does"
        in found
    )


def test_a_priority_and_a_model_of_two_teams_may_share_a_name() -> None:
    quota = sections()["teams"]["research"]["quota"]
    teams = {
        "ml": {"quota": quota, "priorities": {"ops-nvidia-l4": 5}},
        "ml-ops": {"quota": quota | {"gpusByModel": {"L4": 1}}},
    }
    assert "teams.ml-ops.quota.gpusByModel.nvidia-l4: makes the name ml-ops-nvidia-l4" in errors(
        changed(("teams", teams))
    )


JOB_PATH = "teams.research.trainingJobs.finetune"
SHARDS = {
    "image": "i",
    "cpu": "1",
    "memory": "1Gi",
    "shards": 1,
    "gpu": "L4",
    "gpus": 1,
    "volumes": [{"name": "table", "size": "10Gi", "storageClass": "fast-ssd", "path": "/table"}],
}
UNPLACED: dict[str, tuple[tuple[str, Any], list[str]]] = {
    "gpu in no pool": (
        (f"{JOB_PATH}.gpu", "H100"),
        ["nvidia.com/gpu.product In [NVIDIA-H100-80GB-HBM3]", JOB_PATH],
    ),
    "too many gpus": (
        (f"{JOB_PATH}.gpus", 16),
        ["it needs 16 nvidia.com/gpu, and 2 are free", JOB_PATH],
    ),
    "class that does not attach": (
        ("teams.research.volumes.training-data.storageClass", "fast-ssd"),
        ["a2-highgpu-2g does not attach regional pd-ssd disks of storage class fast-ssd", JOB_PATH],
    ),
    "class of shards that does not attach": (
        ("teams.research.shardedSets.parts", SHARDS),
        [
            "g2-standard-8 does not attach regional pd-ssd disks of storage class fast-ssd",
            "research.shardedSets.parts",
        ],
    ),
    "beyond the quota": (
        ("teams.research.quota.gpus", 1),
        ["it needs 2 requests.nvidia.com/gpu, and ResourceQuota team-quota leaves 1", JOB_PATH],
    ),
}


@pytest.mark.parametrize("case", UNPLACED)
def test_the_proof_names_where_a_workload_is_defined(case: str) -> None:
    change, words = UNPLACED[case]
    found = refusal(changed(change))
    for word in words:
        assert word in found, found


def test_the_quota_of_critical_pods_follows_from_the_pools() -> None:
    given = changed(
        *[(f"nodePools.{pool}.driver", "installer") for pool in ("l4", "a100")],
        ("gpuOperator", {}),
        ("nodePools.l4.maxNodes", 100),
    )
    parsed = settings.parse(given)
    assert parsed.gpu_operator is not None
    with_gpus = sum(pool.max_nodes for pool in parsed.gpu_pools.values())
    assert parsed.gpu_operator.critical_pods >= 9 * with_gpus


def test_gkes_own_metrics_of_gpus_give_way_to_the_operators() -> None:
    def kept(operator: Any) -> list[str]:
        return settings.parse(changed(("gpuOperator", operator))).cluster.monitoring  # pyright: ignore

    assert kept({}) == ["SYSTEM_COMPONENTS"]
    assert kept({"dcgmExporter": {"enabled": False}}) == ["SYSTEM_COMPONENTS", "DCGM"]


@pytest.mark.parametrize("protected", [True, False])
def test_gpu_pools_are_protected_as_the_cluster_is(protected: bool) -> None:
    pools = settings.parse(changed(("cluster.deletionProtection", protected))).gpu_pools
    assert {pool.deletion_protection for pool in pools.values()} == {protected}
    own = ("nodePools.l4.deletionProtection", not protected)
    pools = settings.parse(changed(("cluster.deletionProtection", protected), own)).gpu_pools
    assert {name: pool.deletion_protection for name, pool in pools.items()} == {
        "l4": not protected,
        "a100": protected,
    }


def test_a_file_may_declare_a_machine_outside_the_catalog() -> None:
    new = {
        "machineType": "a9-highgpu-8g",
        "gpu": "B200",
        "gpus": 8,
        "maxNodes": 2,
        "nodePrice": 98.5,
        "driver": "operator",
    }
    assert (
        "nodePools.new.machineType: machine type 'a9-highgpu-8g' is not in the catalog"
        in errors(changed(("nodePools.new", new)))
    )
    shape = {"vcpus": 224, "memoryGib": 3968}
    pool = settings.parse(changed(("nodePools.new", {**new, "machine": shape}))).gpu_pools["new"]
    assert (pool.shape.vcpus, pool.gpus_per_node) == (224, 8)
    queue = ("teams.research.queue", {"cpu": "8", "memory": "8Gi", "gpus": {"new": 8}})
    model = {"acceleratorType": "nvidia-r100", "product": "NVIDIA-R100", "memoryGib": 288}
    unknown = {key: value for key, value in new.items() if key != "gpu"} | {
        "machine": {**shape, "gpu": model}
    }
    found = settings.parse(changed(("nodePools.new", unknown), queue))
    assert found.gpu_pools["new"].product == "NVIDIA-R100"
    assert found.queues is not None
    (flavor,) = [flavor for flavor in found.queues.flavors if flavor.name == "new"]
    assert (flavor.gpu, flavor.node_selector) == (None, {"cloud.google.com/gke-nodepool": "new"})
