"""The folder of GKE's driver in the environment of containers with GPUs."""

from typing import Any

import pytest
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning.verdict.judging import judge

from tests.factories import Manifest, container, deployment, pool, template

OLD, NEW = "vllm/vllm-openai:v0.10.2", "vllm/vllm-openai:v0.31.0"
VERSION = "cloud.google.com/gke-gpu-driver-version"


def env(value: Any) -> Manifest:
    return {"env": [{"name": "LD_LIBRARY_PATH", "value": value}]}


def messages(labels: Manifest, gpus: int = 1, **fields: Any) -> list[str]:
    server = {**(container(gpu=1) if gpus else container(cpu=1)), **fields}
    other = pool("gke", 1, {"cloud.google.com/gke-nodepool": "gke"})
    stack = [deployment("chat", 1, template(containers=[server])), pool("l4", 1, labels, gpu="1")]
    found = judge([*stack, other]).findings
    return [finding.message for finding in found if finding.rule == "driver-path"]


EXPORT = ["sh", "-c", "export LD_LIBRARY_PATH=/usr/local/nvidia/lib64; v"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"image": OLD}, "the image vllm/vllm-openai:v0.10.2 sets no LD_LIBRARY_PATH for it"),
        ({"image": f"docker.io/{OLD}"}, "v0.10.2 sets no LD_LIBRARY_PATH for it"),
        (
            {"image": f"europe-docker.pkg.dev/p/r/{OLD}"},
            "is named like one that sets no LD_LIBRARY_PATH for it",
        ),
        ({"image": NEW, **env("/opt/lib")}, "its LD_LIBRARY_PATH (/opt/lib) replaces that of"),
        ({"image": NEW, **env("/opt/lib:$(LD_LIBRARY_PATH)")}, "replaces that of the image"),
    ],
)
def test_a_container_that_does_not_find_the_driver_of_gke_is_a_warning(
    fields: Manifest, said: str
) -> None:
    for version in ("default", "latest"):
        [message] = messages({VERSION: version}, **fields)
        assert said in message
        assert message.endswith("/usr/local/nvidia/lib64: CUDA finds no GPU")
    assert not messages({}, **fields), "the GPU Operator adds the driver to the loader's cache"
    assert not messages({VERSION: "disabled"}, **fields)
    assert not messages({VERSION: "default"}, gpus=0, **fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"image": NEW},
        {"image": "nvcr.io/nvidia/pytorch:25.06-py3"},
        {"image": "vllm/vllm-openai:v0.9"},
        {"image": OLD, **env("/usr/local/nvidia/lib64:/usr/local/cuda/lib64")},
        # As in Google's samples: Kubernetes keeps the text in braces, and the folder counts.
        {"image": OLD, **env("${LD_LIBRARY_PATH}:/usr/local/nvidia/lib64")},
        {"image": OLD, **env("$(DRIVER)")},
        {"image": OLD, **env(UNKNOWN)},
        {"image": OLD, "envFrom": [{"configMapRef": {"name": "settings"}}]},
        {"image": OLD, "command": EXPORT},
    ],
)
def test_what_may_find_the_driver_is_no_warning(fields: Manifest) -> None:
    assert not messages({VERSION: "default"}, **fields)
