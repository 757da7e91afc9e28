"""Sizes that an engine refuses, and those that leave GPUs unused."""

from dataclasses import replace
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
    container = {"image": "vllm/vllm-openai:v0.24.0", "args": [model, *args], **more}
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
        ("-dp=2 -dpn=0", 2, 2, {Cause.IDLE_GPUS: WARNING}),
        ("-dp=2 --data-parallel-external-lb", 1, 2, {}),
        ("-dp=2 --data-parallel-hybrid-lb", 1, 2, {Cause.NO_LOCAL_DATA: REFUSED}),
        ("-dp=2 --data-parallel-hybrid-lb -dpl=1", 1, 2, {}),
        ("-dp=2 --data-parallel-hybrid-lb -dpl=$(LOCAL)", 1, 2, {}),
        ("-dp=2 --data-parallel-hybrid-lb -dpn=0", 1, 2, {}),
        ("-dp=2 --data-parallel-hybrid-lb --nnodes=2", 1, 2, {}),
        ("-dp=2 --no-data-parallel-hybrid-lb", 2, 1, {}),
        ("-dp=4 --data-parallel-multi-port-external-lb", 2, 2, {Cause.NO_LOCAL_DATA: REFUSED}),
        ("-dp=4 --data-parallel-multi-port-external-lb -dpl=2", 2, 2, {}),
        ("-dp=2 --no-data-parallel-external-lb", 1, 1, {Cause.GPUS: REFUSED}),
        ("--headless -dp=16 -dpr=8", 8, 2, {Cause.GPUS: REFUSED}),
        ("--headless -dp=16 -dpr=$(RANK) -dpl=8", 8, 2, {}),
        ("--headless -dp=16 -dpr=8 -dpl=4", 8, 2, {Cause.IDLE_GPUS: WARNING}),
        ("-dp=2 -dpl=2", 2, 1, {}),
        ("-tp=2 -dp=4 -dpl=0 --data-parallel-address=10.0.0.1", 1, 1, {}),
        ("-dp=2 -dpl=4", 4, 1, {Cause.LOCAL_DATA: REFUSED}),
        ("-dp=$(SIZE) -dpl=4", 4, 1, {}),
        ("-tp=8 --nnodes=2", 4, 2, {}),
        ("-tp=8 -pp=2 --nnodes=2", 4, 2, {Cause.GPUS: REFUSED}),
        ("-tp=8 --nnodes=2", 4, 3, {Cause.PODS: WARNING}),
        ("-tp=8 --nnodes=2 --node-rank=1", 4, 1, {}),
        ("-tp=8 --nnodes=2 --node-rank=$(RANK)", 4, 1, {Cause.PODS: WARNING}),
        ("-tp=8 --nnodes=2 --distributed-executor-backend=ray", 4, 2, {Cause.EXECUTOR: REFUSED}),
        ("-tp=8 --distributed-executor-backend=ray", 4, 2, {}),
        ("-tp=2 --distributed-executor-backend=ray", 4, 1, {}),
        ("-tp=8 --distributed-executor-backend=ray", 2, 2, {Cause.GPUS: REFUSED}),
        ("-tp=8 --distributed-executor-backend=external_launcher", 1, 1, {}),
    ],
)
def test_processes_against_gpus(args: str, gpus: int, pods: int, expected: Any) -> None:
    assert sizes(*args.split(), gpus=gpus, pods=pods) == expected


@pytest.mark.parametrize(
    ("image", "command", "cause"),
    [
        ("lmsysorg/sglang:v0.5.4", "sglang serve --model-path", "--tp=8"),
        ("lmsysorg/sglang:v0.5.4", "python3 -m sglang.launch_server --model-path", "--tp=8"),
        ("ghcr.io/huggingface/text-generation-inference:3.0", "", "--num-shard=8"),
        (
            "us-docker.pkg.dev/deeplearning-platform-release/gcr.io/"
            "huggingface-text-generation-inference-cu124.2-3.ubuntu2204.py311",
            "",
            "--num-shard=8",
        ),
    ],
)
def test_other_servers_divide_the_heads(image: str, command: str, cause: str) -> None:
    """28 heads on 8 GPUs end SGLang and TGI, too."""
    model = "Qwen/Qwen2.5-7B-Instruct"
    words = command.split()
    arguments = [*([model] if words else ["--model-id", model]), cause]
    container = {"image": image, "command": words, "args": arguments}
    serving = read_container(container)
    assert isinstance(serving, Serving), serving
    found = {reason.cause for reason in check_sizes(serving, MODELS[model], gpus=8)}
    assert found == {Cause.HEADS}


@pytest.mark.parametrize(
    ("release", "args", "expected"),
    [
        ("v0.11.0", "-tp=8", {}),
        ("v0.12.0", "-tp=8", {Cause.NO_RAY: REFUSED}),
        ("v0.33.0", "-tp=8 -pp=2", {Cause.NO_RAY: REFUSED}),
        ("v0.33.0", "-tp=8 --distributed-executor-backend=ray", {}),
        ("v0.33.0", "-tp=1 -dp=8 --data-parallel-backend=ray", {}),
        ("latest", "-tp=8", {}),
    ],
)
@pytest.mark.parametrize(
    "surroundings",
    [
        {"env": [{"name": "RAY_ADDRESS", "value": "head:6379"}]},
        {"envFrom": [{"secretRef": {"name": "more"}}]},
    ],
)
def test_the_gpus_of_a_ray_cluster_are_not_known(
    release: str, args: str, expected: Any, surroundings: dict[str, Any]
) -> None:
    image = f"vllm/vllm-openai:{release}"
    assert sizes(*args.split(), gpus=1, image=image, **surroundings) == expected


@pytest.mark.parametrize(
    ("model", "args", "cause"),
    [
        ("Qwen/Qwen3-14B", "-tp=3", Cause.HEADS),
        ("Qwen/Qwen3-14B", "-tp=5", Cause.VOCABULARY),
        ("Qwen/Qwen2.5-7B-Instruct", "-tp=8", Cause.HEADS),
        ("Qwen/Qwen2.5-7B-Instruct", "-tp=7", Cause.KV_HEADS),
        ("Qwen/Qwen3-235B-A22B-FP8", "-tp=8", Cause.FP8_BLOCK),
        ("MiniMaxAI/MiniMax-M2", "-tp=8", Cause.FP8_BLOCK),
        ("Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8", "-tp=8", Cause.FP8_BLOCK),
        ("zai-org/GLM-4.7-Flash", "-tp=8", Cause.HEADS),
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
        ("MiniMaxAI/MiniMax-M2", "-tp=8 --enable-expert-parallel"),
        ("zai-org/GLM-4.5-Air-FP8", "-tp=8"),
        ("zai-org/GLM-4.7-Flash", "-tp=4"),
        ("moonshotai/Kimi-K2-Thinking", "-tp=8 -dcp=8"),
        ("Qwen/Qwen3.5-397B-A17B", "-tp=8"),
        ("google/gemma-3-1b-it", "-tp=4"),
        ("Qwen/Qwen3-14B", "-tp=8 --max-model-len=auto"),
        ("Qwen/Qwen3-14B", '-tp=8 --max-model-len=131072 --hf-overrides={"a":1}'),
    ],
)
def test_what_a_model_accepts(model: str, args: str) -> None:
    assert REFUSED not in sizes(*args.split(), gpus=8, model=model).values()


@pytest.mark.parametrize(
    ("release", "capability", "args", "severity"),
    [
        ("v0.28.0", (9, 0), "-tp=8", REFUSED),
        ("v0.29.0", (9, 0), "-tp=8", None),
        ("v0.33.0", (8, 9), "-tp=8", None),
        ("v0.33.0", (9, 0), "-tp=7", REFUSED),
        ("v0.33.0", (9, 0), "-tp=32", REFUSED),  # 48 columns, in blocks of 16
        ("v0.33.0", (8, 0), "-tp=8", REFUSED),  # Marlin has blocks of 128
        ("v0.33.0", None, "-tp=8", WARNING),
        ("latest", (9, 0), "-tp=8", WARNING),
        ("latest", (8, 0), "-tp=8", REFUSED),
        # Replicas divide the experts, too.
        ("v0.24.0", (9, 0), "-tp=4 -dp=2", REFUSED),
        ("v0.24.0", (9, 0), "-tp=2 -dp=2", None),
        ("v0.24.0", (9, 0), "-tp=4 -dp=$(SIZE)", None),
        ("v0.24.0", (9, 0), "-tp=4 -dp=2 --enable-expert-parallel", None),
        ("v0.33.0", (9, 0), "-tp=4 -dp=2", None),
    ],
)
def test_blocks_of_experts(release: str, capability: Any, args: str, severity: Any) -> None:
    image = f"vllm/vllm-openai:{release}"
    model = "Qwen/Qwen3-235B-A22B-FP8"
    serving = read_container({"image": image, "args": [model, *args.split()]})
    assert isinstance(serving, Serving)
    facts = replace(MODELS[model], heads=64 * 7, kv_heads=None, vocabulary=None)
    reasons = check_sizes(serving, facts, gpus=serving.world * serving.data, capability=capability)
    severities = {reason.cause: reason.severity for reason in reasons}
    assert severities.pop(Cause.FP8_BLOCK, None) is severity
    assert REFUSED not in severities.values() or "$" in args


@pytest.mark.parametrize(
    ("capability", "args", "severity"),
    [
        ((9, 0), "--tp=8", REFUSED),
        ((9, 0), "--tp=4", None),
        ((9, 0), "--tp=4 --dp=2", None),  # replicas have whole experts
        ((9, 0), "--tp=8 --ep-size=8", None),
        ((9, 0), "--tp=8 --ep-size=$(SIZE)", None),
        ((9, 0), "--tp=8 --moe-a2a-backend=deepep", None),
        ((9, 0), "--tp=8 --dp=8 --enable-dp-attention", None),
        ((10, 0), "--tp=8", WARNING),  # its kernel pads 192 columns to 256
        (None, "--tp=8", WARNING),
    ],
)
def test_blocks_of_sglang(capability: Any, args: str, severity: Any) -> None:
    """Public guides serve MiniMax M2 on 4 GPUs, or on 8 with expert parallelism."""
    model = "MiniMaxAI/MiniMax-M2.5"
    command = ["python3", "-m", "sglang.launch_server", "--model-path", model, *args.split()]
    serving = read_container({"image": "lmsysorg/sglang:v0.5.4", "command": command})
    assert isinstance(serving, Serving)
    reasons = check_sizes(serving, MODELS[model], gpus=8, capability=capability)
    severities = {reason.cause: reason.severity for reason in reasons}
    severities.pop(Cause.IDLE_GPUS, None)
    assert severities == ({} if severity is None else {Cause.FP8_BLOCK: severity})


@pytest.mark.parametrize("capability", [(9, 0), (10, 0)])
def test_dense_layers_of_sglang_are_in_whole_blocks(capability: Any) -> None:
    facts = replace(MODELS["Qwen/Qwen3-14B"], quantization="fp8-block", intermediate=17408 - 64)
    serving = Serving(engine="sglang", release=(0, 5, 4), tensor=8)
    (reason,) = check_sizes(serving, facts, gpus=8, capability=capability)
    assert (reason.cause, reason.severity) == (Cause.FP8_BLOCK, REFUSED)


def test_dense_layers_are_in_whole_blocks() -> None:
    facts = replace(MODELS["Qwen/Qwen3-14B"], quantization="fp8-block", intermediate=17408 - 64)
    serving = Serving(engine="vllm", release=(0, 33, 0), tensor=8, data=2)
    (reason,) = check_sizes(serving, facts, gpus=16, capability=(9, 0))
    assert (reason.cause, reason.severity, reason.limit) == (Cause.FP8_BLOCK, REFUSED, 8)


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
    ("args", "gpus", "pods", "expected"),
    [
        ("--tp=2", 2, 1, {}),
        ("--tp=8", 1, 1, {Cause.GPUS: WARNING}),
        ("--tp=8 --nnodes=2", 4, 2, {}),
        ("--tp=4 --pp=3 --nnodes=3", 4, 3, {}),
        ("--tp=4 --nnodes=3", 2, 3, {Cause.NODES: REFUSED}),
        ("--tp=2", 4, 1, {Cause.IDLE_GPUS: WARNING}),
        ("--tp=2 --dp=2", 4, 1, {}),
        ("--tp=2 --dp=4", 4, 1, {Cause.GPUS: WARNING}),
        ("--tp=2 --dp=2", 8, 1, {Cause.IDLE_GPUS: WARNING}),
        ("--tp=2 --dp=$(REPLICAS)", 8, 1, {}),
        ("--tp=16 --dp=2 --nnodes=2", 8, 2, {Cause.DATA_OF_NODES: REFUSED}),
        ("--tp=16 --dp=16 --nnodes=2 --enable-dp-attention", 8, 2, {}),
        ("--tp=8 --dp=8 --enable-dp-attention", 8, 1, {}),
        ("--tp=16 --attn-dp-size=16 --nnodes=2", 8, 2, {}),
        ("--context-length=40960", 1, 1, {}),
        ("--context-length=40961", 1, 1, {Cause.LENGTH_OF_MODEL: REFUSED}),
    ],
)
def test_sglang(args: str, gpus: int, pods: int, expected: Any) -> None:
    assert sizes_of_sglang(args, gpus, pods) == expected


def sizes_of_sglang(
    args: str, gpus: int = 1, pods: int = 1, model: str = "Qwen/Qwen3-32B", **more: Any
) -> Any:
    command = ["python3", "-m", "sglang.launch_server", "--model-path", model, *args.split()]
    serving = read_container({"image": "lmsysorg/sglang:v0.5.4", "command": command, **more})
    assert isinstance(serving, Serving), serving
    reasons = check_sizes(serving, MODELS[model], gpus=gpus, pods=pods)
    assert all(reason.sentences() for reason in reasons)
    return {reason.cause: reason.severity for reason in reasons}


def test_sglang_divides_the_kv_heads() -> None:
    assert sizes_of_sglang("--tp=4", 4, model="microsoft/phi-4") == {Cause.KV_HEADS: REFUSED}
    assert sizes_of_sglang("--tp=5", 5, model="microsoft/phi-4") == {}
    assert sizes_of_sglang("--tp=8", 8, model="deepseek-ai/DeepSeek-R1") == {}
    attention = "--tp=4 --dp=4 --enable-dp-attention"
    assert Cause.KV_HEADS not in sizes_of_sglang(attention, 4, model="microsoft/phi-4")


def test_a_variable_allows_long_requests_of_sglang() -> None:
    name = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"
    longer = "--context-length=65536"
    assert sizes_of_sglang(longer, env=[{"name": name, "value": "yes"}]) == {}
    assert sizes_of_sglang(longer, envFrom=[{"secretRef": {"name": "more"}}]) == {}
    off = sizes_of_sglang(longer, env=[{"name": name, "value": "0"}])
    assert off == {Cause.LENGTH_OF_MODEL: REFUSED}


def test_sglang_scales_the_length_of_gemma() -> None:
    """It has a factor of 8 in its configuration, with which vLLM does not multiply."""
    model = "google/gemma-3-27b-it"
    assert sizes_of_sglang("--context-length=262144", model=model) == {}
    assert REFUSED in sizes("--max-model-len=262144", model=model).values()


@pytest.mark.parametrize(
    ("args", "env", "is_refused"),
    [
        ("--max-input-tokens=4095 --max-total-tokens=4096", {}, False),
        ("--max-input-tokens=4096 --max-total-tokens=4096", {}, True),
        ("--max-input-length=4096", {"MAX_TOTAL_TOKENS": "2048"}, True),
        ("--max-input-tokens=4096", {}, False),
        ("--max-total-tokens=4096 --max-batch-total-tokens=4096", {}, False),
        ("--max-total-tokens=4097 --max-batch-total-tokens=4096", {}, True),
        ("--max-total-tokens=9999999", {}, False),
    ],
)
def test_the_lengths_of_tgi(args: str, env: dict[str, str], is_refused: bool) -> None:
    model = "Qwen/Qwen3-14B"
    container = {
        "image": "ghcr.io/huggingface/text-generation-inference:3.3.7",
        "args": [f"--model-id={model}", "--num-shard=1", *args.split()],
        "env": [{"name": name, "value": value} for name, value in env.items()],
    }
    serving = read_container(container)
    assert isinstance(serving, Serving), serving
    reasons = check_sizes(serving, MODELS[model], gpus=1)
    expected = {Cause.BATCH} if is_refused else set[Cause]()
    assert {reason.cause for reason in reasons} == expected
    assert all(reason.sentences() for reason in reasons)


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


def shown(devices: str) -> list[dict[str, str]]:
    return [{"name": "CUDA_VISIBLE_DEVICES", "value": devices}]


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ("0,1,2,3", {Cause.VISIBLE_GPUS: REFUSED}),
        ("0,1,2,3,4,5,6,8", {Cause.VISIBLE_GPUS: REFUSED}),
        ("0, 1,2,3,4,5,6,7", {}),
        ("GPU-1", {}),
        ("", {}),
    ],
)
def test_gpus_that_cuda_does_not_show(devices: str, expected: dict[Cause, Severity]) -> None:
    assert sizes("-tp=8", gpus=8, env=shown(devices)) == expected


def test_gpus_that_are_not_shown_are_idle() -> None:
    assert sizes("-tp=4", gpus=8, env=shown("0,1,2,3")) == {Cause.IDLE_GPUS: WARNING}
    assert sizes("-tp=8", gpus=4, env=shown("0,1")) == {Cause.GPUS: REFUSED}


@pytest.mark.parametrize(
    ("processes", "expected"), [("gpu", Cause.IDLE_GPUS), ("8", Cause.VISIBLE_GPUS)]
)
def test_gpus_that_cuda_does_not_show_to_a_launcher(processes: str, expected: Cause) -> None:
    command = ["torchrun", f"--nproc-per-node={processes}", "train.py"]
    launch = read_container({"image": "mine", "command": command, "env": shown("0,1,2,3")})
    assert isinstance(launch, Launch)
    (reason,) = check_launch(launch, gpus=8)
    assert (reason.cause, reason.severity) == (expected, WARNING)
    assert all(reason.sentences())
