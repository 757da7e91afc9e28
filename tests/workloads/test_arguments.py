"""What public manifests say, each as an argument of its own."""

import re
from typing import Any

import pytest
from ml_foundations.component.spec import check
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.selectors import REQUIRED
from ml_foundations.storage.volume import VolumeSpec

from tests.support.parts import manifest_of
from tests.support.refusing import refusal
from tests.workloads.building import container_of, gang, job, job_spec, pod, pod_of, service_spec

ZONE = {"key": labels.ZONE, "operator": "In", "values": ["us-central1-a"]}


def terms(**args: Any) -> Any:
    return pod_of(job(**args))["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]


def test_any_of_several_gpu_models_will_do() -> None:
    [term] = terms(gpus=8, gpu=["A100", "NVIDIA-H100-SXM5-80GB"])
    models = ["NVIDIA-A100-SXM4-40GB", "NVIDIA-H100-80GB-HBM3"]
    assert term["matchExpressions"] == [
        {"key": labels.GPU_PRODUCT, "operator": "In", "values": models}
    ]
    claim = job_spec(gpus=1, gpu=["L4", "T4"], gpu_claim={}).claim_template() or {}
    [request] = claim["spec"]["spec"]["devices"]["requests"]
    name = 'device.attributes["gpu.nvidia.com"].productName.replace(" ", "-")'
    [selector] = request["exactly"]["selectors"]
    assert selector["cel"]["expression"] == f'{name} == "NVIDIA-L4" || {name} == "Tesla-T4"'


@pytest.mark.parametrize(
    ("wrong", "why"),
    [([], "a list of accepted models"), (5, "a list of accepted models"), (["L4", "X9"], "'X9'")],
)
def test_what_is_no_gpu_model_is_refused(wrong: Any, why: str) -> None:
    assert re.search(rf"\n  gpu: .*{why}", refusal(job_spec, gpus=1, gpu=wrong))


def test_nodes_without_feature_discovery_use_gkes_label() -> None:
    [term] = terms(gpus=1, gpu="L4", accelerator_label=True)
    assert term["matchExpressions"] == [of_types("nvidia-l4"), ALONE]


def of_types(*types: str) -> dict[str, Any]:
    return {"key": labels.GKE_ACCELERATOR, "operator": "In", "values": [*types]}


ALONE = {"key": labels.GKE_SHARING_STRATEGY, "operator": "DoesNotExist"}
SHARED = ALONE | {"operator": "Exists"}
WHOLE = {"key": labels.GKE_PARTITION_SIZE, "operator": "DoesNotExist"}
ANY_H100 = of_types("nvidia-h100-80gb", "nvidia-h100-mega-80gb")
PART = {"key": labels.GKE_PARTITION_SIZE, "operator": "In", "values": ["1g.5gb"]}


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [
        ("H100-MEGA", [[of_types("nvidia-h100-mega-80gb"), WHOLE, ALONE]]),
        ("H100", [[of_types("nvidia-h100-80gb"), WHOLE, ALONE]]),
        ("NVIDIA-H100-80GB-HBM3", [[ANY_H100, WHOLE, ALONE]]),
        ("A100", [[of_types("nvidia-tesla-a100"), WHOLE, ALONE]]),
        ("A100-MIG-1g.5gb", [[of_types("nvidia-tesla-a100"), PART, ALONE]]),
        ("L4-SHARED", [[of_types("nvidia-l4"), SHARED]]),
        (["A100", "L4"], [[of_types("nvidia-tesla-a100", "nvidia-l4"), WHOLE, ALONE]]),
        (
            ["L4", "A100-MIG-1g.5gb"],
            [[of_types("nvidia-l4"), ALONE], [of_types("nvidia-tesla-a100"), PART, ALONE]],
        ),
    ],
)
def test_gkes_labels_tell_type_partition_and_sharing(gpu: Any, expected: list[Any]) -> None:
    found = terms(gpus=1, gpu=gpu, accelerator_label=True)
    assert [term["matchExpressions"] for term in found] == expected


def test_an_ambiguous_product_label_is_not_enough_for_a3_mega() -> None:
    product = {"key": labels.GPU_PRODUCT, "operator": "In", "values": ["NVIDIA-H100-80GB-HBM3"]}
    [term] = terms(gpus=8, gpu="H100-MEGA")
    assert term["matchExpressions"] == [product, of_types("nvidia-h100-mega-80gb")]
    [term] = terms(gpus=8, gpu="H100")
    assert term["matchExpressions"] == [product]


def test_a_claim_of_a3_mega_runs_on_a3_mega() -> None:
    """The devices of A3 High have the same product name."""
    [term] = terms(gpus=8, gpu="H100-MEGA", gpu_claim={})
    assert term["matchExpressions"] == [of_types("nvidia-h100-mega-80gb")]
    assert "affinity" not in pod_of(job(gpus=8, gpu="H100", gpu_claim={}))


def test_gpu_requirements_extend_each_term_of_an_affinity() -> None:
    product = {"key": labels.GPU_PRODUCT, "operator": "In", "values": ["NVIDIA-L4"]}
    given = {
        "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [ZONE]}, {}]}},
        "podAntiAffinity": {REQUIRED: [{"topologyKey": labels.HOSTNAME}]},
    }
    made = pod_of(job(gpus=1, gpu="L4", affinity=given))["affinity"]
    joined = [{"matchExpressions": [ZONE, product]}, {"matchExpressions": [product]}]
    assert made["nodeAffinity"][REQUIRED]["nodeSelectorTerms"] == joined
    assert made["podAntiAffinity"] == given["podAntiAffinity"]
    assert pod_of(job(gpus=1, affinity=given))["affinity"] == given


def test_the_pod_has_what_its_arguments_say() -> None:
    sides = [{"name": "logs", "image": "fluent-bit"}]
    args = dict.fromkeys(("privileged", "host_network", "host_ipc"), True)
    more = {"runtime_class": "gvisor", "scheduler": "volcano"}
    made = pod(**args, **more, side_containers=sides)["spec"]
    assert made["containers"][0]["securityContext"] == {"privileged": True}
    assert made["hostNetwork"] is made["hostIPC"] is True
    assert made["dnsPolicy"] == "ClusterFirstWithHostNet"
    assert (made["runtimeClassName"], made["schedulerName"]) == ("gvisor", "volcano")
    assert made["containers"][1]["name"] == "logs"
    assert made["containers"][1]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    override = {"containers": [{"name": "logs", "env": [{"name": "LEVEL", "value": "debug"}]}]}
    overridden = pod(side_containers=sides, pod_overrides=override)["spec"]["containers"][1]
    assert overridden["env"][0]["value"] == "debug"


def test_objects_have_the_labels_that_are_given_and_their_own() -> None:
    own, given = "app.kubernetes.io/name", {"team": "ml"}
    made = [*gang(object_labels=given), *service_spec(object_labels=given).manifests()]
    for manifest in made:
        assert manifest["metadata"]["labels"]["team"] == "ml"
        assert own in manifest["metadata"]["labels"]
    message = refusal(job_spec, object_labels={own: "other"})
    assert f"object_labels.{own}: is set by" in message


def test_probes_have_the_given_timings_and_null_removes_one() -> None:
    probes = {"startup": None, "readiness": {"periodSeconds": 1}}
    spec = service_spec(probes=probes, service_type="LoadBalancer")
    container = container_of(manifest_of(spec, "Deployment"))
    assert "startupProbe" not in container
    assert container["readinessProbe"] == {
        "httpGet": {"path": "/health", "port": "http"},
        "timeoutSeconds": 5,
        "periodSeconds": 1,
        "failureThreshold": 3,
    }
    assert manifest_of(spec, "Service")["spec"]["type"] == "LoadBalancer"


def test_a_bucket_and_a_claim_have_attributes_and_labels() -> None:
    mount = {"bucket": "models", "path": "/models", "attributes": {"fileCacheCapacity": "100Gi"}}
    attributes = pod_of(job(mounts=[mount]))["volumes"][0]["csi"]["volumeAttributes"]
    assert attributes == {
        "bucketName": "models",
        "mountOptions": "implicit-dirs",
        "fileCacheCapacity": "100Gi",
    }
    args: Any = {"claim_name": "data", "namespace": "ml", "size": "1Ti", "storage_class": "fast"}
    volume = check(VolumeSpec, "Volume", args | {"labels": {"team": "ml"}})
    assert manifest_of(volume, "PersistentVolumeClaim")["metadata"]["labels"] == {"team": "ml"}


def test_an_unknown_argument_is_led_to_pod_overrides() -> None:
    message = refusal(job_spec, shareProcessNamespace=True)
    assert re.search(r"shareProcessNamespace: is not known\. .*put it into pod_overrides", message)
