"""Weights and cache against the memory of GPUs: certain refusals, warnings and what is unknown."""

import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from ml_foundations.catalog.machine_types import GPUS, MACHINE_TYPES, Accelerator, accelerator
from ml_foundations.models.cache import request_cache
from ml_foundations.models.facts import MODELS
from ml_foundations.models.memory import GpuMemory, MemoryVerdict, check_memory
from ml_foundations.models.reasons import GIB, Cause, Reason, Severity
from ml_foundations.models.serving import FIT, Serving
from ml_foundations.models.ways import ways
from ml_foundations.models.weights import weights

VLLM = Serving(engine="vllm", release=(0, 33, 0))


def judged(model: str, gpu: str, base: Serving = VLLM, **changes: Any) -> MemoryVerdict:
    return check_memory(replace(base, **changes), MODELS.get(model), GpuMemory.of(accelerator(gpu)))


def causes(verdict: MemoryVerdict) -> set[Cause]:
    return {reason.cause for reason in verdict.reasons}


def test_the_sentence_of_weights_beyond_memory() -> None:
    verdict = judged("meta-llama/Llama-3.3-70B-Instruct", "L4", tensor=2)
    assert verdict.severity is Severity.REFUSED
    (reason,) = verdict.reasons
    assert reason.sentences() == (
        "Llama-3.3-70B-Instruct in BF16 has 131.4 GiB of weights: 65.7 GiB on each of 2 L4s, "
        "which have 22.0",
        "",
    )


@pytest.mark.parametrize(
    ("model", "gpu", "changes", "severity", "cause"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "L4", {}, Severity.REFUSED, Cause.REQUEST),
        ("meta-llama/Llama-3.1-8B-Instruct", "L4", {"max_length": 8192}, None, None),
        ("meta-llama/Llama-3.1-8B-Instruct", "L4", {"max_length": FIT}, None, None),
        (
            "meta-llama/Llama-3.1-8B-Instruct",
            "T4",
            {"max_length": 1024},
            Severity.REFUSED,
            Cause.WEIGHTS,
        ),
        ("Qwen/Qwen2.5-3B-Instruct", "T4", {"max_length": 1024}, None, None),
        (
            "Qwen/Qwen2.5-3B-Instruct",
            "T4",
            {"dtype": "bfloat16"},
            Severity.REFUSED,
            Cause.DTYPE_OF_GPU,
        ),
        ("google/gemma-2-2b-it", "L4", {"dtype": "half"}, Severity.REFUSED, Cause.DTYPE_OF_MODEL),
        (
            "Qwen/Qwen3-32B",
            "H100",
            {"utilization": Fraction(3, 4)},
            Severity.REFUSED,
            Cause.NO_CACHE,
        ),
        (
            "Qwen/Qwen3-32B",
            "H100",
            {"utilization": Fraction(3, 4), "kv_bytes": 10 * GIB},
            None,
            None,
        ),
        ("Qwen/Qwen3-32B", "H100", {"kv_bytes": GIB}, Severity.REFUSED, Cause.REQUEST),
        ("Qwen/Qwen3-32B", "L4", {"quantization": "fp8"}, Severity.WARNING, Cause.WEIGHTS),
        (
            "Qwen/Qwen3-32B",
            "H100",
            {"quantization": "bitsandbytes"},
            Severity.UNDETERMINED,
            Cause.UNKNOWN_QUANTIZATION,
        ),
        (
            "Qwen/Qwen3-8B",
            "H100",
            {"kv_dtype": "nvfp4"},
            Severity.UNDETERMINED,
            Cause.UNKNOWN_CACHE,
        ),
        ("Qwen/Qwen3.5-27B", "H100", {}, Severity.UNDETERMINED, Cause.UNKNOWN_WEIGHTS),
        ("no/such", "H100", {}, Severity.UNDETERMINED, Cause.UNKNOWN_MODEL),
        ("deepseek-ai/DeepSeek-V3", "H200", {"tensor": 8, "max_length": 32768}, None, None),
        ("deepseek-ai/DeepSeek-V3", "H100", {"tensor": 8}, Severity.REFUSED, Cause.NO_CACHE),
        (
            "deepseek-ai/DeepSeek-V3",
            "H100",
            {"tensor": 8, "pipeline": 2, "max_length": 8192},
            None,
            None,
        ),
        (
            "meta-llama/Llama-3.1-405B-Instruct",
            "H100",
            {"tensor": 8},
            Severity.REFUSED,
            Cause.WEIGHTS,
        ),
        (
            "meta-llama/Llama-3.1-405B-Instruct",
            "H100",
            {"tensor": 8, "pipeline": 2, "max_length": 8192},
            None,
            None,
        ),
        ("Qwen/Qwen3-8B", "A100-MIG-1g.5gb", {}, Severity.REFUSED, Cause.WEIGHTS),
        (
            "Qwen/Qwen3-0.6B",
            "A100-MIG-1g.5gb",
            {"max_length": 512},
            Severity.UNDETERMINED,
            Cause.UNKNOWN_GPU_MEMORY,
        ),
        (
            "Qwen/Qwen3-0.6B",
            "L4-SHARED",
            {"max_length": 512},
            Severity.UNDETERMINED,
            Cause.SHARED_GPU,
        ),
        ("Qwen/Qwen3-8B", "L4", {"max_length": 512, "unknown": frozenset({"memory"})}, None, None),
    ],
)
def test_verdicts(model: str, gpu: str, changes: Any, severity: Any, cause: Any) -> None:
    verdict = judged(model, gpu, **changes)
    assert verdict.severity is severity, [reason.sentences() for reason in verdict.reasons]
    assert cause is None or cause in causes(verdict)
    assert all(reason.sentences() for reason in verdict.reasons)


@pytest.mark.parametrize(
    ("changes", "severity"),
    [
        ({}, None),
        ({"utilization": Fraction(1, 2)}, Severity.REFUSED),
        ({"tensor": 2, "utilization": Fraction(1, 2)}, None),
    ],
)
def test_sglang_needs_a_pool(changes: Any, severity: Any) -> None:
    verdict = judged("Qwen/Qwen3-32B", "H100", Serving(engine="sglang"), **changes)
    assert verdict.severity is severity


def test_gemma_on_a_gpu_without_bfloat16_is_loaded_in_four_bytes() -> None:
    verdict = judged("google/gemma-2-2b-it", "T4", max_length=1024)
    assert verdict.weights is not None
    assert round(float(verdict.weights.low / GIB), 1) == 9.7


def test_the_largest_cache_is_that_of_all_layers() -> None:
    """Gemma 3 keeps all tokens in a sixth of its layers only."""
    facts = MODELS["google/gemma-3-27b-it"]
    windowed, full = (
        request_cache(replace(VLLM, without_hybrid_cache=without), facts, 131072)
        for without in (False, True)
    )
    assert not isinstance(windowed, Reason) and not isinstance(full, Reason)
    assert windowed.low * 5 < full.low


NUMBERS = list(Severity)


def rank(verdict: MemoryVerdict) -> int:
    return {Severity.REFUSED: 2, Severity.WARNING: 1}.get(
        verdict.severity or Severity.UNDETERMINED, 0
    )


def random_case(chance: random.Random) -> tuple[Serving, Any, GpuMemory]:
    facts = MODELS[chance.choice([name for name, facts in MODELS.items() if facts.least_params])]
    serving = replace(
        VLLM,
        release=chance.choice([None, (0, 11, 0), (0, 19, 0), (0, 33, 0)]),
        tensor=chance.choice([1, 2, 4, 8]),
        pipeline=chance.choice([1, 1, 2]),
        max_length=chance.choice([512, 4096, 8192, 32768, 131072]),
        utilization=chance.choice([None, Fraction(1, 2), Fraction(9, 10)]),
        kv_dtype=chance.choice(["auto", "fp8"]),
        dtype=chance.choice(["auto", "auto", "float32"]),
        batched_tokens=chance.choice([None, 1024, 8192]),
    )
    return serving, facts, GpuMemory.of(Accelerator((GPUS[chance.choice(sorted(GPUS))],)))


def test_a_longer_context_never_fits_better() -> None:
    chance = random.Random(1)
    for _ in range(150):
        serving, facts, gpu = random_case(chance)
        longer = replace(serving, max_length=(serving.max_length or 1) * chance.randint(1, 8))
        first, second = (check_memory(case, facts, gpu) for case in (serving, longer))
        assert rank(first) <= rank(second), (serving, facts.model, gpu)
        if first.requests and second.requests:
            assert first.requests.low >= second.requests.low
            assert (first.requests.high or 0) >= (second.requests.high or 0)


def test_fewer_gpus_never_fit_better() -> None:
    chance = random.Random(2)
    for _ in range(150):
        serving, facts, gpu = random_case(chance)
        fewer = replace(serving, tensor=max(1, serving.tensor // 2))
        first, second = (check_memory(case, facts, gpu) for case in (serving, fewer))
        assert rank(first) <= rank(second), (serving, facts.model, gpu)
        assert not first.weights or not second.weights or first.weights.low <= second.weights.low


def test_bounds_are_in_order() -> None:
    chance = random.Random(3)
    for _ in range(150):
        serving, facts, gpu = random_case(chance)
        serving = replace(
            serving, data=chance.choice([1, 2, 8]), expert_parallel=chance.random() < 0.5
        )
        verdict = check_memory(serving, facts, gpu)
        for bounds in (
            verdict.weights,
            verdict.request,
            verdict.requests,
            verdict.cache,
            verdict.tokens,
        ):
            assert bounds is None or bounds.high is None or 0 <= bounds.low <= bounds.high, (
                serving,
                facts.model,
            )
        stages = weights(serving, facts)
        assert isinstance(stages, tuple)


def test_the_ways_to_serve_a_model() -> None:
    facts = MODELS["meta-llama/Llama-3.3-70B-Instruct"]
    found = ways(facts, context=32768, requests=2, machines=MACHINE_TYPES.values())
    prices = [way.usd_per_hour for way in found if way.usd_per_hour is not None]
    assert prices and prices == sorted(prices)
    assert all(way.requests >= 2 for way in found)
    assert {"", "fp8"} == {way.quantization for way in found}
    for longer, more in ((65536, 2), (32768, 20)):
        fewer = ways(facts, context=longer, requests=more, machines=MACHINE_TYPES.values())
        assert {(way.machine, way.tensor, way.quantization) for way in fewer} < {
            (way.machine, way.tensor, way.quantization) for way in found
        }


def test_every_gpu_of_the_catalog_has_bounds() -> None:
    for model in GPUS.values():
        memory = GpuMemory.of(Accelerator((model,)))
        assert memory.low is None or memory.low <= memory.high <= model.memory_gb, model
        for profile in model.mig_profiles:
            part = GpuMemory.of(Accelerator((model,), profile))
            assert 0 < part.high <= model.memory_gb
