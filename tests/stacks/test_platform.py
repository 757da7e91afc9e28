"""Stack files whose parts do not go together: operator and pools, classes and machines, claims, models, quotas."""

import copy
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.stacks.test_settings import changed, sections

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "stacks"))

import settings


def errors(given: dict[str, Any]) -> str:
    with pytest.raises(ValueError) as caught:
        settings.parse(given)
    return str(caught.value)


def with_all(*changes: tuple[str, Any]) -> dict[str, Any]:
    """The dev stack with several values changed."""
    given = copy.deepcopy(sections())
    for path, value in changes:
        *parents, last = path.split(".")
        node = given
        for key in parents:
            node = node.setdefault(key, {})
        node[last] = value
    return given


@pytest.mark.parametrize(
    ("driver", "mode"), [("operator", "operator"), ("installer", "cos"), ("latest", "gke"), ("default", "gke")]
)
def test_the_operators_mode_follows_from_the_pools(driver: str, mode: str) -> None:
    given = with_all(
        ("nodePools.l4.driver", driver), ("nodePools.a100.driver", driver), ("gpuOperator", {"criticalPods": 200})
    )
    operator = settings.parse(given).operator
    assert operator is not None
    assert (operator.mode, operator.critical_pods) == (mode, 200)


def test_googles_installer_goes_by_the_image_of_the_pools() -> None:
    pools = [(f"nodePools.{pool}.{key}", value) for pool in ("l4", "a100") for key, value in INSTALLED.items()]
    operator = settings.parse(with_all(*pools, ("gpuOperator", {}))).operator
    assert operator is not None
    assert operator.mode == "ubuntu"


INSTALLED = {"driver": "installer", "image": "ubuntu"}


def test_a_driver_that_storage_needs_is_not_switched_off() -> None:
    given = with_all(("storage.filestore", {}), ("cluster.filestore", False))
    assert "cluster.filestore: is false, but storage.filestore needs it" in errors(given)
    settings.parse(with_all(("storage.filestore", {})))


def test_pools_that_need_different_modes_are_named() -> None:
    found = errors(with_all(("nodePools.l4.driver", "latest"), ("gpuOperator", {})))
    assert "nodePools.l4.driver: is latest, but gpuOperator.mode is operator" in found


def test_what_the_mode_of_the_pools_makes_of_the_operators_settings() -> None:
    both = [(f"nodePools.{pool}.driver", "latest") for pool in ("l4", "a100")]
    found = errors(with_all(*both, ("gpuOperator", {"driver": {"version": "1"}})))
    assert "gpuOperator.driver: is the operator's driver, but in the mode gke" in found


G4 = {"machineType": "g4-standard-96", "maxNodes": 2, "driver": "operator"}
JOB = {"image": "i", "cpu": "8", "memory": "64Gi", "gpu": "RTX-PRO-6000", "gpus": 1}


def on_g4(volume: dict[str, Any]) -> dict[str, Any]:
    job = JOB | {"mounts": [{"claim": "data", "path": "/data"}]}
    return with_all(
        ("nodePools.g4", G4),
        ("teams.research.volumes.data", {"size": "1Ti", **volume}),
        ("teams.research.trainingJobs.render", job),
    )


@pytest.mark.parametrize("storage_class", ["zonal-ssd", "fast-ssd", "zonal-balanced"])
def test_a_persistent_disk_on_a_machine_that_takes_none_is_refused_with_the_classes_that_attach(
    storage_class: str,
) -> None:
    found = errors(on_g4({"storageClass": storage_class}))
    assert f"render.mounts[0].claim: its class {storage_class} attaches to no g4-standard-96" in found
    assert "a class that does: hyperdisk-balanced or hyperdisk-ha or" in found
    assert "nfs-client" in found


@pytest.mark.parametrize("storage_class", ["hyperdisk-balanced", "hyperdisk-extreme", "nfs-client"])
def test_what_attaches_is_fine(storage_class: str) -> None:
    settings.parse(on_g4({"storageClass": storage_class}))


def test_a_bucket_attaches_everywhere() -> None:
    settings.parse(on_g4({"bucket": "my-bucket"}) | {})


def test_a_class_of_ones_own_is_judged_by_its_disk() -> None:
    given = on_g4({"storageClass": "mine"})
    given["storage"]["disks"] = {"mine": {"type": "pd-balanced"}}
    assert "its class mine attaches to no g4-standard-96" in errors(given)
    given["storage"]["disks"] = {"mine": {"type": "hyperdisk-balanced", "iops": 10000}}
    settings.parse(given)


VOLUMES: dict[str, tuple[dict[str, Any], str]] = {
    "no such class": ({"storageClass": "fastssd"}, 'data.storageClass: there is no class "fastssd". Classes: fast-ssd'),
    "writers of a disk": (
        {"storageClass": "zonal-ssd", "accessMode": "ReadWriteMany"},
        "data.accessMode: is ReadWriteMany; zonal-ssd gives ReadWriteOnce or ReadWriteOncePod or ReadOnlyMany. For "
        "ReadWriteMany: nfs-client",
    ),
    "too small": (
        {"storageClass": "hyperdisk-throughput", "size": "1Ti"},
        "data.size: is 1Ti, and a volume of hyperdisk-throughput has at least 2Ti",
    ),
    "no zones of datasets": (
        {"storageClass": "datasets", "accessMode": "ReadOnlyMany", "snapshot": "s"},
        'there is no class "datasets"',
    ),
}


@pytest.mark.parametrize("case", VOLUMES)
def test_a_volume_that_its_class_cannot_give_is_refused(case: str) -> None:
    volume, reason = VOLUMES[case]
    assert reason in errors(changed("teams.research.volumes.data", {"size": "1Ti", **volume}))


CLAIMED = {"machineType": "a2-highgpu-2g", "maxNodes": 2, "driver": "operator", "dra": True}
CLAIMING = {"image": "i", "cpu": "8", "memory": "64Gi", "gpu": "A100", "gpus": 2, "gpuClaim": {}}


def claiming(*changes: tuple[str, Any]) -> dict[str, Any]:
    return with_all(
        ("nodePools.claimed", dict(CLAIMED)),
        ("deviceClasses", {}),
        ("teams.research.quota.claimedGpus", 4),
        ("teams.research.trainingJobs.claiming", CLAIMING),
        *changes,
    )


def test_claimed_gpus_have_their_driver_where_the_operator_puts_it() -> None:
    claims = settings.parse(claiming()).claims
    assert claims is not None
    assert claims.gpu_driver_from == "operator"


CLAIMS: dict[str, tuple[tuple[str, Any], str]] = {
    "no driver": (("deviceClasses", None), "nodePools.claimed.dra: is true, but there is no deviceClasses"),
    "its label alone": (
        ("nodePools.l4.labels", {"cloud.google.com/gke-nvidia-gpu-dra-driver": "true"}),
        "nodePools.l4.labels: have cloud.google.com/gke-nvidia-gpu-dra-driver, which is for pools whose GPUs are claimed",
    ),
    "GKE's driver": (("nodePools.claimed.driver", "latest"), "GKE installs no driver where GPUs are claimed"),
    "no quota": (
        ("teams.research.quota.claimedGpus", 1),
        "claiming.gpus: is 2, and teams.research.quota.claimedGpus is 1; raise it",
    ),
    "a pool that advertises": (
        ("nodePools.claimed.dra", False),
        "claiming.gpu: no pool has NVIDIA-A100-SXM4-40GB that can be claimed",
    ),
}


@pytest.mark.parametrize("case", CLAIMS)
def test_claims_that_cannot_be_met_are_refused(case: str) -> None:
    change, reason = CLAIMS[case]
    assert reason in errors(claiming(change))


BY_MODEL = ("teams.research.quota.gpusByModel", {"A100": 2})


def test_gpus_that_are_counted_by_model() -> None:
    settings.parse(with_all(BY_MODEL))
    job = "teams.research.trainingJobs.finetune"
    assert "gpusByModel allows 0 nvidia-l4" in errors(with_all(BY_MODEL, (f"{job}.gpu", "L4"), (f"{job}.gpus", 1)))
    assert "finetune.gpu: is required: the team's GPUs are counted" in errors(with_all(BY_MODEL, (f"{job}.gpu", None)))
    wrong = errors(with_all(BY_MODEL, (f"{job}.priorityClass", "high")))
    assert "priorityClass: is high; GPUs of its model are counted by research-nvidia-tesla-a100" in wrong
