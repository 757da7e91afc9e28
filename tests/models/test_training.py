"""The bytes of a training's weights, gradients and optimizer on each GPU."""

from dataclasses import replace
from fractions import Fraction

import pytest
from ml_foundations.catalog.machine_types import accelerator
from ml_foundations.models.facts import MODELS
from ml_foundations.models.memory import GpuMemory
from ml_foundations.models.reasons import Severity
from ml_foundations.models.training import (
    METHODS,
    SHARDINGS,
    Training,
    check_training,
    state_bytes,
)
from ml_foundations.models.weights import Bounds

LLAMA = MODELS["meta-llama/Llama-3.1-8B-Instruct"]
PARAMS = LLAMA.params or 0


def training(method: str = "full", sharding: str = "", pods: int = 2, gpus: int = 8) -> Training:
    return Training(method=method, sharding=sharding, pods=pods, gpus=gpus)


@pytest.mark.parametrize(
    ("method", "sharding", "low", "high"),
    [
        ("full", "none", Fraction(2), 16),
        ("full", "zero1", Fraction(2), 4 + Fraction(12, 16)),
        ("full", "zero2", Fraction(2), 2 + Fraction(18, 16)),
        ("full", "zero3", Fraction(2, 16), Fraction(18, 16)),
        ("full", "hybrid", Fraction(2, 8), Fraction(18, 8)),
        ("full", "", Fraction(2, 16), 16),
        ("lora", "none", Fraction(2), None),
        ("lora", "zero1", Fraction(2), None),
        ("lora", "zero2", Fraction(2), None),
        ("lora", "zero3", Fraction(2, 16), None),
        ("lora", "hybrid", Fraction(2, 8), None),
        ("lora", "", Fraction(2, 16), None),
        ("qlora", "none", Fraction(1, 2), None),
        ("qlora", "zero3", Fraction(1, 32), None),
    ],
)
def test_bytes_of_a_parameter(
    method: str, sharding: str, low: Fraction, high: Fraction | int | None
) -> None:
    states = state_bytes(training(method, sharding), LLAMA)
    assert states == (PARAMS * low, None if high is None else PARAMS * high)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("sharding", ["", *SHARDINGS])
def test_more_gpus_never_have_more_each(method: str, sharding: str) -> None:
    sizes = [state_bytes(training(method, sharding, pods), LLAMA) for pods in (1, 2, 4)]
    lows = [size.low for size in sizes if size]
    assert lows == sorted(lows, reverse=True)
    assert all(size and (size.high is None or size.low <= size.high) for size in sizes)


def test_measured_states_are_between_the_bounds() -> None:
    """Of torchtitan, 8 GPUs had 15.4 GiB more than 128: benchmarks/llama3_h100_202412."""
    few = state_bytes(training(sharding="zero3", pods=1), LLAMA)
    many = state_bytes(training(sharding="zero3", pods=16), LLAMA)
    assert few and many and few.high and many.high
    assert few.low - many.low <= Fraction("15.4") * 2**30 <= few.high - many.high


def test_of_a_model_that_is_quantized_or_not_known_nothing_is_certain() -> None:
    assert state_bytes(training(), replace(LLAMA, quantization="fp8")) is None
    unknown = replace(LLAMA, params=None, least_params=None)
    assert state_bytes(training(), unknown) is None
    partly = state_bytes(training(), replace(unknown, least_params=8))
    assert partly == (Fraction(8 * 2, 16), None)


@pytest.mark.parametrize(
    ("model", "method", "sharding", "severity", "beginning"),
    [
        (
            "Qwen/Qwen3-32B",
            "full",
            "none",
            Severity.REFUSED,
            "a full training of Qwen3-32B has at least 61.0 GiB of weights on each of 16 L4s",
        ),
        (
            LLAMA.model,
            "full",
            "none",
            Severity.WARNING,
            "a full training of Llama-3.1-8B-Instruct has at least 29.9 GiB of weights and "
            "gradients, unless its optimizer works layer by layer, on each of 16 L4s, which have "
            "22.2 GiB",
        ),
        # The gradients of 16 GPUs are divided.
        (LLAMA.model, "full", "zero2", None, ""),
        (LLAMA.model, "full", "zero3", None, ""),
        (LLAMA.model, "lora", "none", None, ""),
    ],
)
def test_weights_beyond_the_memory_are_refused_and_gradients_warned_of(
    model: str, method: str, sharding: str, severity: Severity | None, beginning: str
) -> None:
    """Layer-wise optimizers, such as LOMO, train all weights without keeping gradients."""
    facts = MODELS[model]
    small = training(method, sharding)
    states = state_bytes(small, facts)
    assert states
    reason = check_training(small, facts, GpuMemory.of(accelerator("L4")), states)
    assert (reason and reason.severity) == severity
    assert not reason or reason.sentences()[0].startswith(beginning)


def test_near_the_memory_nothing_is_certain() -> None:
    l4 = GpuMemory.of(accelerator("L4"))
    total = l4.high * 2**30
    near = Bounds(total * Fraction("1.004"), None)
    lora = training("lora")
    assert check_training(lora, LLAMA, l4, near) is None
    assert check_training(lora, LLAMA, l4, Bounds(total * Fraction("1.006"), None))
