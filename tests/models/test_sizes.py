"""Sizes that an engine refuses, and those that leave GPUs unused."""

from typing import Any

import pytest
from ml_foundations.models.facts import MODELS
from ml_foundations.models.launches import Launch
from ml_foundations.models.reasons import Cause, Severity
from ml_foundations.models.serving import Serving, read_container
from ml_foundations.models.sizes import check_launch, check_sizes


def sizes(
    *args: str, gpus: int = 1, pods: int | None = 1, model: str = "Qwen/Qwen3-14B", **more: Any
) -> dict[Cause, Severity]:
    container = {"image": "vllm/vllm-openai:v0.19.1", "args": [model, *args], **more}
    serving = read_container(container)
    assert isinstance(serving, Serving), serving
    reasons = check_sizes(serving, MODELS.get(model), gpus=gpus, pods=pods)
    for reason in reasons:
        assert reason.sentences()
    return {reason.cause: reason.severity for reason in reasons}


REFUSED, WARNING = Severity.REFUSED, Severity.WARNING


@pytest.mark.parametrize(
    ("args", "gpus", "pods", "expected"),
    [
        ("-tp=1", 1, 1, {}),
        ("-tp=8", 1, 1, {Cause.GPUS: REFUSED}),
        ("-tp=4", 2, 1, {Cause.GPUS: REFUSED}),
        ("-tp=4 -pp=2", 8, 1, {}),
        ("-tp=4 -pp=4", 8, 1, {Cause.GPUS: REFUSED}),
        ("-tp=4", 8, 1, {Cause.IDLE_GPUS: WARNING}),
        ("-tp=2 -dp=4", 8, 1, {}),
        ("-dp=2", 1, 1, {Cause.GPUS: REFUSED}),
        ("-dp=2 -dpl=1", 1, 2, {}),
        ("-dp=2 -dpn=0", 1, 2, {}),
        ("-dp=2 -dpl=4", 4, 1, {Cause.LOCAL_DATA: REFUSED}),
        ("-tp=8 --nnodes=2", 4, 2, {}),
        ("-tp=8 -pp=2 --nnodes=2", 4, 2, {Cause.GPUS: REFUSED}),
        ("-tp=8 --nnodes=2", 4, 3, {Cause.PODS: WARNING}),
        ("-tp=8 --nnodes=2 --distributed-executor-backend=ray", 4, 2, {Cause.EXECUTOR: REFUSED}),
        ("-tp=8 --distributed-executor-backend=ray", 4, 2, {}),
        ("-tp=8 --distributed-executor-backend=ray", 2, 2, {Cause.GPUS: REFUSED}),
        ("-tp=8 --distributed-executor-backend=external_launcher", 1, 1, {}),
    ],
)
def test_processes_against_gpus(args: str, gpus: int, pods: int, expected: Any) -> None:
    assert sizes(*args.split(), gpus=gpus, pods=pods) == expected


def test_the_gpus_of_a_ray_cluster_are_not_known() -> None:
    assert sizes("-tp=8", gpus=1, env=[{"name": "RAY_ADDRESS", "value": "head:6379"}]) == {}
    assert sizes("-tp=8", gpus=1, envFrom=[{"secretRef": {"name": "more"}}]) == {}


@pytest.mark.parametrize(
    ("model", "args", "cause"),
    [
        ("Qwen/Qwen3-14B", "-tp=3", Cause.HEADS),
        ("Qwen/Qwen3-14B", "-tp=5", Cause.VOCABULARY),
        ("Qwen/Qwen2.5-7B-Instruct", "-tp=8", Cause.HEADS),
        ("Qwen/Qwen2.5-7B-Instruct", "-tp=7", Cause.KV_HEADS),
        ("Qwen/Qwen3-235B-A22B-FP8", "-tp=8", Cause.FP8_BLOCK),
        ("Qwen/Qwen3-14B", "--enable-expert-parallel", Cause.EXPERTS),
        ("Qwen/Qwen3-14B", "-tp=8 -dcp=2", Cause.DECODE_CONTEXT),
        ("Qwen/Qwen3-14B", "--max-model-len=65536", Cause.LENGTH_OF_MODEL),
        ("Qwen/Qwen3-14B", "--max-num-batched-tokens=64 --max-num-seqs=128", Cause.BATCH),
        (
            "Qwen/Qwen3-14B",
            "--max-num-batched-tokens=1k --no-enable-chunked-prefill --max-model-len=2k",
            Cause.BATCH,
        ),
        ("Qwen/Qwen3-14B", "--gpu-memory-utilization=1.1", Cause.UTILIZATION),
        ("Qwen/Qwen3-14B", "--gpu-memory-utilization=0", Cause.UTILIZATION),
    ],
)
def test_what_a_model_refuses(model: str, args: str, cause: Cause) -> None:
    assert sizes(*args.split(), gpus=8, model=model).get(cause) is REFUSED


@pytest.mark.parametrize(
    ("model", "args"),
    [
        ("Qwen/Qwen3-235B-A22B-FP8", "-tp=4"),
        ("Qwen/Qwen3-235B-A22B-FP8", "-tp=8 --enable-expert-parallel"),
        ("deepseek-ai/DeepSeek-V3", "-tp=8"),
        ("google/gemma-3-1b-it", "-tp=4"),
        ("Qwen/Qwen3-14B", "-tp=8 --max-model-len=auto"),
        ("Qwen/Qwen3-14B", '-tp=8 --max-model-len=131072 --hf-overrides={"a":1}'),
    ],
)
def test_what_a_model_accepts(model: str, args: str) -> None:
    assert REFUSED not in sizes(*args.split(), gpus=8, model=model).values()


def test_layers_by_stage() -> None:
    def stages(value: str) -> Any:
        env = [{"name": "VLLM_PP_LAYER_PARTITION", "value": value}]
        return sizes("-pp=2", gpus=2, env=env)

    assert stages("18,22") == {}
    assert stages("18,20") == {Cause.STAGES: REFUSED}
    assert stages("10,10,20") == {Cause.STAGES: REFUSED}


def test_partitions_are_not_connected() -> None:
    serving = Serving(engine="vllm", tensor=2)
    reasons = check_sizes(serving, gpus=2, is_partition=True)
    assert [reason.cause for reason in reasons] == [Cause.PARTITIONS]


@pytest.mark.parametrize(
    ("tensor", "nodes", "gpus", "expected"),
    [
        (2, 1, 2, {}),
        (8, 1, 1, {Cause.GPUS: WARNING}),
        (8, 2, 4, {}),
        (3, 2, 2, {Cause.NODES: REFUSED}),
    ],
)
def test_sglang(tensor: int, nodes: int, gpus: int, expected: Any) -> None:
    serving = Serving(engine="sglang", tensor=tensor, nodes=nodes)
    reasons = check_sizes(serving, gpus=gpus, pods=nodes)
    assert {reason.cause: reason.severity for reason in reasons} == expected


@pytest.mark.parametrize(
    ("launch", "expected"),
    [
        (Launch(launcher="torchrun", nodes=(2, 2), per_node=8), {}),
        (Launch(launcher="torchrun", nodes=(1, 4), per_node=0), {}),
        (Launch(launcher="torchrun", nodes=(2, 2), per_node=16), {Cause.GPUS}),
        (Launch(launcher="torchrun", nodes=(2, 2), per_node=4), {Cause.IDLE_GPUS}),
        (Launch(launcher="torchrun", nodes=(4, 4), per_node=8), {Cause.PODS}),
        (Launch(launcher="torchrun"), {}),
    ],
)
def test_launches(launch: Launch, expected: Any) -> None:
    reasons = check_launch(launch, gpus=8, pods=2)
    assert {reason.cause for reason in reasons} == {*expected}
    assert all(reason.sentences() for reason in reasons)
