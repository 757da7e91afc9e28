"""The pod that all workloads share: where it runs, what it may use, what it mounts, and the user's last word."""

from typing import Any

import pytest
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.merging import strategic_merge

from tests.support.parts import manifest_of
from tests.support.refusing import refusal
from tests.workloads.building import container_of, cron, job, job_spec, pod_of, template_of

TERM = "requiredDuringSchedulingIgnoredDuringExecution"


def terms(**more: Any) -> Any:
    affinity = pod_of(job(**more)).get("affinity")
    return affinity and affinity["nodeAffinity"][TERM]["nodeSelectorTerms"][0]["matchExpressions"]


WITHOUT_GPUS = [{"key": labels.GKE_ACCELERATOR, "operator": "DoesNotExist"}]
ON_L4 = [{"key": labels.GPU_PRODUCT, "operator": "In", "values": ["NVIDIA-L4"]}]


@pytest.mark.parametrize(
    ("args", "expressions", "tolerated"),
    [
        ({}, WITHOUT_GPUS, []),
        ({"gpu": "L4", "gpus": 1}, ON_L4, ["nvidia.com/gpu"]),
        ({"gpus": 1}, None, ["nvidia.com/gpu"]),
        ({"gpu": "L4", "gpus": 1, "gpu_claim": {}}, None, ["nvidia.com/gpu"]),
        ({"gpus": 1, "spot": True}, None, ["nvidia.com/gpu", "cloud.google.com/gke-spot"]),
        (
            {"spot": True, "tolerations": [{"key": "team", "operator": "Exists"}]},
            WITHOUT_GPUS,
            ["cloud.google.com/gke-spot", "team"],
        ),
    ],
)
def test_where_it_may_run(args: dict[str, Any], expressions: Any, tolerated: list[str]) -> None:
    assert terms(**args) == expressions
    assert [item["key"] for item in pod_of(job(**args)).get("tolerations", [])] == tolerated


def test_requests_equal_limits_unless_the_user_says_otherwise() -> None:
    least = {"cpu": "8", "memory": "64Gi"}
    same = container_of(job(gpus=2))["resources"]
    assert same["requests"] == same["limits"] == least | {"nvidia.com/gpu": "2"}
    disk = {"ephemeral-storage": "1Ti"}
    other = container_of(job(requests=disk, limits={"cpu": None, "memory": "96Gi"}))
    assert other["resources"]["requests"] == least | disk
    assert other["resources"]["limits"] == {"memory": "96Gi"} | disk


def test_a_claim_takes_the_place_of_the_device_plugin() -> None:
    driver = "device.driver == 'gpu.nvidia.com'"
    args = {"gpu": "H100", "gpus": 8, "gpu_claim": {"selectors": [driver]}}
    made, pod = manifest_of(job_spec(**args), "ResourceClaimTemplate"), pod_of(job(**args))
    exactly = made["spec"]["spec"]["devices"]["requests"][0]["exactly"]
    assert (exactly["deviceClassName"], exactly["count"]) == ("gpu.nvidia.com", 8)
    product = 'device.attributes["gpu.nvidia.com"].productName.replace(" ", "-") == "NVIDIA-H100-80GB-HBM3"'
    assert [item["cel"]["expression"] for item in exactly["selectors"]] == [product, driver]
    claim = {"name": "gpus", "resourceClaimTemplateName": made["metadata"]["name"]}
    assert pod["resourceClaims"] == [claim]
    assert pod["containers"][0]["resources"]["claims"] == [{"name": "gpus"}]
    assert labels.GPU_RESOURCE not in pod["containers"][0]["resources"]["requests"]


def test_a_claims_name_follows_its_content_and_nothing_else() -> None:
    def name(**more: Any) -> str:
        spec = job_spec(**({"gpus": 1, "gpu_claim": {}} | more))
        return manifest_of(spec, "ResourceClaimTemplate")["metadata"]["name"]

    assert name() == name(image="other", cpu="1")
    different = [{}, {"gpus": 2}, {"gpu": "L4"}, {"gpu_claim": {"device_class": "mig"}}]
    patch = {"spec": {"spec": {"devices": {"config": []}}}}
    different.append({"overrides": {"ResourceClaimTemplate": patch}})
    assert len({name(**more) for more in different}) == 5


def test_a_template_that_there_is_is_taken_and_none_is_made() -> None:
    args = {"gpus": 1, "gpu_claim": {"template": "whole-gpu"}}
    assert [made["kind"] for made in job_spec(**args).manifests()] == ["Job"]
    assert pod_of(job(**args))["resourceClaims"][0]["resourceClaimTemplateName"] == "whole-gpu"


def test_pod_security_is_restricted_by_default() -> None:
    pod = pod_of(job())
    assert {"runAsNonRoot": True, "runAsUser": 1000}.items() <= pod["securityContext"].items()
    assert pod["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    root = pod_of(job(run_as_user=0))
    assert "runAsNonRoot" not in root["securityContext"]
    assert root["containers"][0]["securityContext"] == {"allowPrivilegeEscalation": False}


def test_the_users_variables_come_last_and_win() -> None:
    made = job(
        env={"A": "$(NODE)"},
        field_env={"NODE": "spec.nodeName"},
        secret_env={"S": {"name": "n", "key": "k"}},
    )
    names = [item["name"] for item in container_of(made)["env"]]
    assert names == ["HOME", "USER", "NODE", "S", "A"]


def test_a_bucket_brings_gkes_sidecar() -> None:
    mount = {"bucket": "models", "path": "/models", "mount_options": "uid=1000"}
    made = template_of(job(mounts=[mount]))
    assert made["metadata"]["annotations"] == {
        "gke-gcsfuse/volumes": "true",
        # GKE's own requests, and limits: without them the team's LimitRange sets its defaults.
        "gke-gcsfuse/cpu-request": "250m",
        "gke-gcsfuse/cpu-limit": "32",
        "gke-gcsfuse/memory-request": "256Mi",
        "gke-gcsfuse/memory-limit": "4Ti",
    }
    attributes = made["spec"]["volumes"][0]["csi"]["volumeAttributes"]
    assert attributes == {"bucketName": "models", "mountOptions": "uid=1000"}
    assert "annotations" not in template_of(job())["metadata"]


@pytest.mark.parametrize(
    "mount",
    [
        {"claim": "raw", "fuse": True},
        {"name": "raw", "volume": {"csi": {"driver": labels.GCS_FUSE_DRIVER, "readOnly": True}}},
    ],
    ids=["claim", "volume"],
)
def test_a_bucket_brings_the_sidecar_however_it_is_mounted(mount: dict[str, Any]) -> None:
    made = template_of(job(mounts=[{"path": "/raw", **mount}]))
    assert made["metadata"]["annotations"]["gke-gcsfuse/volumes"] == "true"
    disk = template_of(job(mounts=[{"path": "/raw", "claim": "raw"}]))
    assert "annotations" not in disk["metadata"]
    both = {"path": "/raw", "bucket": "raw", "fuse": True}
    assert "fuse: is for a claim" in refusal(job, mounts=[both])


def test_amounts_of_the_sidecar_that_are_set_stay() -> None:
    bucket = {"bucket": "models", "path": "/models"}
    own = {"gke-gcsfuse/memory-limit": "64Gi"}
    found = template_of(job(mounts=[bucket], annotations=own))["metadata"]["annotations"]
    assert found["gke-gcsfuse/memory-limit"] == "64Gi"
    assert "gke-gcsfuse/memory-request" not in found
    assert found["gke-gcsfuse/cpu-limit"] == "32"


def test_a_queue_takes_the_job_and_never_its_schedule() -> None:
    label = "kueue.x-k8s.io/queue-name"
    assert job(queue="research")["metadata"]["labels"][label] == "research"
    made = cron(queue="research")
    assert label not in made["metadata"]["labels"]
    assert made["spec"]["jobTemplate"]["metadata"]["labels"][label] == "research"


X, Y = {"name": "X", "value": "1"}, {"name": "Y", "value": "2"}
OVERRIDES: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ({"a": 1, "b": {"c": 1}}, {"b": {"d": 2}}, {"a": 1, "b": {"c": 1, "d": 2}}),
    ({"a": {"b": 1, "c": 2}}, {"a": {"b": None}}, {"a": {"c": 2}}),
    ({}, {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}),
    ({"args": ["a", "b"]}, {"args": ["c"]}, {"args": ["c"]}),
    (
        {"tolerations": [{"key": "a"}]},
        {"tolerations": [{"key": "b"}]},
        {"tolerations": [{"key": "b"}]},
    ),
    (
        {"containers": [{"name": "a", "image": "i", "env": [X]}, {"name": "b"}]},
        {"containers": [{"name": "a", "env": [Y]}, {"name": "c", "stdin": None}]},
        {"containers": [{"name": "a", "image": "i", "env": [X, Y]}, {"name": "b"}, {"name": "c"}]},
    ),
    (
        {"volumes": [{"name": "a", "emptyDir": {}}]},
        {"volumes": [{"name": "a", "emptyDir": None, "hostPath": {"path": "/"}}]},
        {"volumes": [{"name": "a", "hostPath": {"path": "/"}}]},
    ),
    (
        {"volumeMounts": [{"mountPath": "/a", "name": "a"}]},
        {"volumeMounts": [{"mountPath": "/a", "readOnly": True}, {"mountPath": "/b", "name": "b"}]},
        {
            "volumeMounts": [
                {"mountPath": "/a", "name": "a", "readOnly": True},
                {"mountPath": "/b", "name": "b"},
            ]
        },
    ),
    ({"containers": [{"name": "a"}]}, {"containers": None}, {}),
]


@pytest.mark.parametrize(("base", "top", "merged"), OVERRIDES)
def test_overrides_join_as_kubectl_patch_joins_them(
    base: dict[str, Any], top: dict[str, Any], merged: dict[str, Any]
) -> None:
    before = repr(base)
    assert strategic_merge(base, top) == merged
    assert repr(base) == before


def test_overrides_reach_anything_in_the_pod() -> None:
    overrides = {
        "hostNetwork": True,
        "nodeSelector": {"a": "b"},
        "containers": [
            {"name": "main", "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}}},
            {"name": "exporter", "image": "e"},
        ],
        "volumes": [{"name": "ib", "hostPath": {"path": "/dev/infiniband"}}],
        "affinity": None,
    }
    made = pod_of(job(pod_overrides=overrides, node_selector={"c": "d"}))
    assert made["nodeSelector"] == {"a": "b", "c": "d"}
    capabilities = made["containers"][0]["securityContext"]["capabilities"]
    assert capabilities == {"drop": ["ALL"], "add": ["IPC_LOCK"]}
    assert made["containers"][1] == {"name": "exporter", "image": "e"}
    assert made["hostNetwork"] is True
    assert "affinity" not in made
