"""RayCluster and RayJob: a head without GPUs, workers on GPU nodes, and the operator's way to the head."""

import re
from typing import Any

import pytest
from ml_foundations import GpuNodePool
from ml_foundations.component.spec import check
from ml_foundations.workloads.ray_cluster import RayClusterSpec
from ml_foundations.workloads.ray_job import RayJobSpec

from tests.support.declaring import declared, inputs
from tests.support.refusing import refusal

LEAST: dict[str, Any] = {
    "namespace": "ml",
    "image": "rayproject/ray:2.52.0-gpu",
    "workers": 2,
    "gpus": 8,
    "cpu": "8",
    "memory": "64Gi",
    "gpu": "H100",
}
JOB = LEAST | {"job_name": "score", "entrypoint": ["python", "score.py", "--text=a b"]}


def cluster(**more: Any) -> dict[str, Any]:
    return check(RayClusterSpec, "RayCluster", LEAST | {"cluster_name": "nb"} | more).cluster()


def resources(template: dict[str, Any]) -> dict[str, str]:
    return template["spec"]["containers"][0]["resources"]["requests"]


def test_the_head_runs_no_tasks_and_needs_no_gpu() -> None:
    made = cluster(head_cpu="2", head_memory="4Gi", shared_memory="8Gi")
    head, [group] = made["headGroupSpec"], made["workerGroupSpecs"]
    assert head["rayStartParams"] == {"num-cpus": "0"}
    assert resources(head["template"]) == {"cpu": "2", "memory": "4Gi"}
    assert "tolerations" not in head["template"]["spec"]
    assert resources(group["template"])["nvidia.com/gpu"] == "8"
    assert [group[key] for key in ("replicas", "minReplicas", "maxReplicas")] == [2, 2, 2]


def test_a_job_ends_with_its_cluster_and_keeps_its_words() -> None:
    spec = check(RayJobSpec, "RayJob", JOB | {"runtime_env": {"pip": ["torch"]}})
    policy, job = spec.manifests()
    assert job["spec"]["entrypoint"] == "python score.py '--text=a b'"
    assert job["spec"]["runtimeEnvYAML"] == "pip:\n- torch\n"
    assert job["spec"]["shutdownAfterJobFinishes"]
    assert policy["spec"]["ingress"][0]["ports"] == [{"port": 8265, "protocol": "TCP"}]


@pytest.mark.parametrize("field", ["command", "arguments"])
def test_ray_starts_its_pods_itself(field: str) -> None:
    message = refusal(cluster, **{field: ["python", "train.py"]})
    assert re.search(f"{field}: .*set entrypoint of a RayJob", message)


@pytest.mark.parametrize(
    ("spec", "field", "most"), [(RayClusterSpec, "cluster_name", 53), (RayJobSpec, "job_name", 47)]
)
def test_names_have_room_for_what_kuberay_adds(spec: Any, field: str, most: int) -> None:
    given = (JOB if field == "job_name" else LEAST) | {field: "a" * most}
    check(spec, "Ray", given)
    message = refusal(check, spec, "Ray", given | {field: "a" * (most + 1)})
    assert f"{field}: is longer than {most}" in message


def test_a_cluster_asks_for_a_token_if_its_ray_can() -> None:
    assert "authOptions" not in cluster(ray_version="2.52.0")
    for options, named in (({}, {}), ({"secret_name": "mine"}, {"secretName": "mine"})):
        expected = {"mode": "token"} | named
        made = cluster(ray_version="2.52.0", auth_options=options)
        assert made["authOptions"] == expected
        newer = JOB | {"ray_version": "2.100.1", "auth_options": options}
        assert check(RayJobSpec, "RayJob", newer).cluster()["authOptions"] == expected
    assert cluster(auth_options={"mode": "disabled"})["authOptions"] == {"mode": "disabled"}
    for version in (None, "2.51.9", "1.99.0"):
        message = refusal(cluster, ray_version=version, auth_options={})
        assert "auth_options: needs Ray 2.52.0 or newer; set" in message


def test_workers_of_whole_nodes_get_the_network_of_their_pool() -> None:
    fabric = {"kind": "tcpxo", "gpus_per_node": 8, "networks": [f"n{i}" for i in range(8)]}
    [group] = cluster(gpu_fabric=fabric)["workerGroupSpecs"]
    pod = group["template"]["spec"]
    assert [each["name"] for each in pod["initContainers"]] == ["tcpxo-daemon"]
    # KubeRay runs it before `ray start`.
    assert pod["containers"][0]["command"][0].startswith(". /usr/local/nvidia/lib64/")
    assert "initContainers" not in cluster(gpu_fabric=fabric)["headGroupSpec"]["template"]["spec"]


def test_a_pool_is_for_the_workers() -> None:
    def program() -> None:
        from ml_foundations import GkeCluster, RayCluster

        gke = GkeCluster("ml", project="my-project", location="us-central1")
        pool = GpuNodePool("l4", cluster=gke, machine_type="g2-standard-8", max_nodes=2)
        RayCluster("nb", pool=pool, **{key: LEAST[key] for key in LEAST if key != "gpu"})

    made = inputs(declared(program)["nb-cluster"])["spec"]
    assert "nodeSelector" not in made["headGroupSpec"]["template"]["spec"]
    assert made["workerGroupSpecs"][0]["template"]["spec"]["nodeSelector"]
