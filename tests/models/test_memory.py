"""Weights and cache against the memory of GPUs: certain refusals, warnings and what is unknown."""

import random
from dataclasses import replace
from fractions import Fraction
from typing import Any, cast

import pytest
from ml_foundations.catalog.machine_types import GPUS, MACHINE_TYPES, Accelerator, accelerator
from ml_foundations.models.cache import request_cache
from ml_foundations.models.facts import MODELS
from ml_foundations.models.memory import REFUSAL_MARGIN, GpuMemory, MemoryVerdict, check_memory
from ml_foundations.models.reasons import GIB, Cause, Reason, Severity, refused
from ml_foundations.models.serving import FIT, Serving
from ml_foundations.models.ways import ways
from ml_foundations.models.weights import Bounds, loaded_dtype, stage_layers, weights

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
        "which have 22.2 GiB",
        "",
    )


@pytest.mark.parametrize(
    ("gpu", "reported"),
    [
        ("T4", "14.76"),
        ("L4", "22.17"),
        ("A100", "39.59"),
        ("A100-80GB", "79.33"),
        ("H100", "79.33"),
        ("H200", "140.06"),
        ("B200", "178.36"),
        ("RTX-PRO-6000", "95.01"),
    ],
)
def test_drivers_report_different_totals(gpu: str, reported: str) -> None:
    """The totals of messages of PyTorch: none is above what refuses."""
    memory = GpuMemory.of(accelerator(gpu))
    assert Fraction(reported) <= memory.high * (1 + REFUSAL_MARGIN)


def test_images_are_not_smaller_on_a_small_gpu() -> None:
    facts = MODELS["Qwen/Qwen3-VL-4B-Instruct"]
    assert facts.params and facts.least_params
    serving = Serving(engine="vllm", release=(0, 24, 0), max_length=8192)
    l4 = GpuMemory.of(accelerator("L4"))
    images = check_memory(serving, facts, l4).cache
    text = check_memory(serving, replace(facts, params=facts.least_params), l4).cache
    assert images and text
    tower = (facts.params - facts.least_params) * 2 * Fraction("1.08")
    assert text.low - images.low == tower + Fraction("1.05") * GIB


def test_without_memory_for_a_cache_no_length_is_suggested() -> None:
    words = {"length": 4096, "model": "m"}
    assert refused(Cause.REQUEST, 2**30, 0, **words).sentences()[1] == ""
    assert refused(Cause.REQUEST, 2**30, 2**29, **words).sentences()[1].endswith("than 2,048")


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
        ("Qwen/Qwen3.5-27B", "H100", {}, Severity.UNDETERMINED, Cause.UNKNOWN_CACHE),
        ("Qwen/Qwen3.5-27B", "L4", {"tensor": 2}, Severity.REFUSED, Cause.WEIGHTS),
        ("google/gemma-4-31B-it", "A100", {}, Severity.REFUSED, Cause.WEIGHTS),
        ("zai-org/GLM-4.6", "H100", {"tensor": 8}, Severity.REFUSED, Cause.WEIGHTS),
        ("zai-org/GLM-4.6-FP8", "H200", {"tensor": 8}, None, None),
        ("zai-org/GLM-5-FP8", "H200", {"tensor": 8}, Severity.UNDETERMINED, Cause.UNKNOWN_CACHE),
        ("moonshotai/Kimi-K2-Thinking", "H200", {"tensor": 8}, None, None),
        ("moonshotai/Kimi-K2.5", "H100", {"tensor": 8}, Severity.WARNING, Cause.REQUEST),
        (
            "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16",
            "H200",
            {"tensor": 8, "data": 8},
            Severity.UNDETERMINED,
            Cause.UNKNOWN_CACHE,
        ),
        ("deepseek-ai/DeepSeek-V4-Flash", "H100", {}, Severity.UNDETERMINED, Cause.UNKNOWN_WEIGHTS),
        ("no/such", "H100", {}, Severity.UNDETERMINED, Cause.UNKNOWN_MODEL),
        ("no/such", "T4", {"dtype": "bfloat16"}, Severity.REFUSED, Cause.DTYPE_OF_GPU),
        ("no/such", "T4", {"quantization": "awq"}, Severity.UNDETERMINED, Cause.UNKNOWN_MODEL),
        ("no/such", "V100", {"quantization": "awq"}, Severity.REFUSED, Cause.QUANTIZATION_OF_GPU),
        (
            "no/such",
            "V100",
            {"quantization": "awq", "unknown": frozenset({"memory"})},
            Severity.UNDETERMINED,
            Cause.UNKNOWN_MODEL,
        ),
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
        ({}, Severity.REFUSED),
        ({"tensor": 2}, None),
    ],
)
def test_the_weights_of_any_engine_must_fit(changes: Any, severity: Any) -> None:
    serving = Serving(engine="sglang")
    verdict = judged("meta-llama/Llama-3.3-70B-Instruct", "H100", serving, **changes)
    assert verdict.severity is severity


@pytest.mark.parametrize(
    ("share", "severity"),
    [
        (None, None),
        (Fraction(9, 10), None),
        (Fraction(8, 10), Severity.REFUSED),
    ],
)
def test_weights_beyond_the_share_of_sglang(share: Fraction | None, severity: Any) -> None:
    """Two GPUs have 65.7 GiB each, and 0.8 of an H100 are 63.4 GiB."""
    serving = Serving(engine="sglang", tensor=2, utilization=share)
    verdict = judged("meta-llama/Llama-3.3-70B-Instruct", "H100", serving)
    assert verdict.severity is severity
    assert (Cause.NO_CACHE in causes(verdict)) == (severity is not None)


@pytest.mark.parametrize(
    ("gpu", "changes", "severity"),
    [
        # 78.3 GiB of weights, and 10 GiB of an H100 are reserved.
        ("H100", {"tensor": 8}, Severity.REFUSED),
        ("H100", {"tensor": 8, "release": None}, Severity.WARNING),
        ("H100", {"tensor": 8, "unknown": frozenset({"utilization"})}, None),
        ("H200", {"tensor": 8}, None),
        ("H100", {"tensor": 16}, None),
    ],
)
def test_the_default_share_of_sglang(gpu: str, changes: Any, severity: Any) -> None:
    serving = Serving(engine="sglang", release=(0, 5, 4))
    verdict = judged("deepseek-ai/DeepSeek-R1", gpu, serving, **changes)
    assert verdict.severity is severity
    assert (Cause.NO_CACHE in causes(verdict)) == (severity is not None)


@pytest.mark.parametrize(
    ("model", "gpu", "changes", "is_refused"),
    [
        ("openai/gpt-oss-20b", "T4", {"max_length": 8192}, True),
        ("openai/gpt-oss-20b", "T4", {"max_length": 8192, "release": None}, True),
        ("openai/gpt-oss-20b", "A100", {"max_length": 8192}, False),
        ("Qwen/Qwen3-4B", "T4", {"quantization": "fp8", "release": (0, 11, 0)}, True),
        ("Qwen/Qwen3-4B", "T4", {"quantization": "fp8", "release": (0, 14, 1)}, False),
        ("Qwen/Qwen3-4B", "T4", {"quantization": "fp8", "release": None}, False),
        ("Qwen/Qwen3-4B", "V100", {"quantization": "fp8", "release": None}, True),
        ("Qwen/Qwen3-4B", "V100", {"quantization": "awq"}, True),
        ("Qwen/Qwen3-4B", "T4", {"quantization": "gptq_marlin", "release": (0, 11, 0)}, True),
        ("Qwen/Qwen3-4B", "T4", {"quantization": "gptq_marlin"}, False),
        ("Qwen/Qwen3-235B-A22B-FP8", "V100", {}, True),
        ("openai/gpt-oss-20b", "T4", {"max_length": 8192, "engine": "sglang"}, False),
    ],
)
def test_quantizations_need_a_compute_capability(
    model: str, gpu: str, changes: Any, is_refused: bool
) -> None:
    verdict = judged(model, gpu, **changes)
    assert (Cause.QUANTIZATION_OF_GPU in causes(verdict)) is is_refused
    if is_refused:
        assert verdict.severity is Severity.REFUSED
        assert verdict.reasons[-1].sentences()[1] == "Choose another GPU or quantization"


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


def test_scales_of_four_bits_are_in_the_upper_bound_only() -> None:
    """With a group of a whole column there are almost none; with one of 128, two bytes for each."""
    llama = MODELS["meta-llama/Llama-3.1-8B-Instruct"]
    params = 8 * 2**30
    changes: dict[str, Any] = {"vocabulary": 0, "quantization": "int4", "stored_bytes": None}
    facts = replace(llama, params=params, least_params=params, **changes)
    stages = weights(VLLM, facts)
    assert isinstance(stages, tuple)
    assert stages[0].low == params / 2
    assert (stages[0].high or 0) > params * (Fraction(1, 2) + Fraction(2, 128))


def test_a_vision_tower_is_in_the_upper_bound_only() -> None:
    """Without images, it is not loaded. With several GPUs, each may have all of it."""
    gemma = MODELS["google/gemma-3-27b-it"]
    tower = ((gemma.params or 0) - (gemma.least_params or 0)) * 2
    assert tower == 2 * 423_404_400
    for size in (1, 2):
        stages = weights(replace(VLLM, tensor=size), gemma)
        assert isinstance(stages, tuple)
        assert stages[0].low == Fraction(2 * 27_009_002_240, size)
        assert stages[0].high == (stages[0].low + tower) * Fraction(108, 100)
    facts = replace(gemma, params=None)
    stages = weights(VLLM, facts)
    assert isinstance(stages, tuple)
    assert stages[0].high is None


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tgi"])
def test_no_server_loads_weights_in_four_bytes_by_default(engine: str) -> None:
    """SGLang also loads Gemma in 16 bits on a GPU without bfloat16."""
    serving = Serving(engine=engine)
    llama = replace(MODELS["meta-llama/Llama-3.1-8B-Instruct"], dtype="float32")
    assert loaded_dtype(serving, llama) == "bfloat16"
    assert loaded_dtype(serving, llama, (7, 5)) == "float16"
    gemma = loaded_dtype(serving, MODELS["google/gemma-2-2b-it"], (7, 5))
    assert gemma == ("float32" if engine == "vllm" else "float16")


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
        ):
            assert bounds is None or bounds.high is None or 0 <= bounds.low <= bounds.high, (
                serving,
                facts.model,
            )
        stages = weights(serving, facts)
        assert isinstance(stages, tuple)


@pytest.mark.parametrize(
    ("release", "is_refused"), [((0, 12, 0), False), ((0, 14, 1), True), ((0, 17, 1), False)]
)
def test_some_releases_count_the_cache_of_all_stages(
    release: tuple[int, int, int], is_refused: bool
) -> None:
    """Of 16.0 GiB, each of two stages has the half, and a GPU has at most 12.3 GiB for it."""
    base = Serving(engine="vllm", release=release, pipeline=2, max_length=131_072)
    verdict = judged("meta-llama/Llama-3.1-8B-Instruct", "L4", base)
    assert (verdict.severity is Severity.REFUSED) == is_refused
    assert (Cause.REQUEST in causes(verdict)) == is_refused


@pytest.mark.parametrize(("release", "fits"), [((0, 19, 0), False), ((0, 23, 0), True)])
def test_a_server_quantizes_while_it_loads(release: tuple[int, int, int], fits: bool) -> None:
    """An older one may hold all weights as they are first, 131 GiB."""
    facts = MODELS["meta-llama/Llama-3.1-70B-Instruct"]
    machines = MACHINE_TYPES.values()
    found = ways(facts, context=16384, requests=1, machines=machines, release=release)
    gpus = {(way.gpu, way.tensor) for way in found if way.quantization == "fp8"}
    assert (("nvidia-rtx-pro-6000", 1) in gpus) == fits


@pytest.mark.parametrize(
    ("release", "is_warned"), [((0, 11, 0), True), ((0, 23, 0), False), (None, False)]
)
def test_an_older_server_holds_all_weights_before_it_quantizes_them(
    release: tuple[int, int, int] | None, is_warned: bool
) -> None:
    serving = replace(VLLM, release=release, quantization="fp8", max_length=2048)
    verdict = check_memory(
        serving,
        MODELS.get("meta-llama/Llama-3.3-70B-Instruct"),
        GpuMemory.of(accelerator("RTX-PRO-6000")),
    )
    assert any(reason.cause is Cause.WHOLE_WEIGHTS for reason in verdict.reasons) == is_warned
    if is_warned:
        assert (
            "131.4 GiB on 1 RTX-PRO-6000, which has 95.0 GiB"
            in verdict.reasons[0].sentences("--quantization")[0]
        )


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


@pytest.mark.parametrize(
    ("gpu", "release", "batched", "sequences"),
    [
        ("H100", (0, 33, 0), 8192, 1024),
        ("A100-80GB", (0, 33, 0), 2048, 256),
        ("L4", (0, 33, 0), 2048, 256),
        ("B200", (0, 31, 0), 16384, 1024),
        ("B200", (0, 27, 1), 8192, 1024),
    ],
)
def test_the_default_batch(gpu: str, release: Any, batched: int, sequences: int) -> None:
    given: dict[str, Any] = {"release": release, "max_length": 8192}
    explicit: dict[str, Any] = given | {"batched_tokens": batched, "sequences": sequences}
    larger: dict[str, Any] = explicit | {"batched_tokens": 2 * batched, "sequences": 2 * sequences}
    default, same, less = (
        judged("Qwen/Qwen3-4B", gpu, **args) for args in (given, explicit, larger)
    )
    assert default.cache is not None
    assert default.cache == same.cache
    assert less.cache is not None
    assert less.cache.low < default.cache.low


@pytest.mark.parametrize(
    ("model", "gpu", "changes", "is_refused"),
    [
        ("Qwen/Qwen3-8B", "L4", {"sequences": 2049}, True),
        ("Qwen/Qwen3-8B", "L4", {"sequences": 2048}, False),
        ("Qwen/Qwen3-8B", "A100", {"sequences": 4096}, True),
        ("Qwen/Qwen3-8B", "H100", {"sequences": 4096}, False),
        ("Qwen/Qwen3-8B", "L4", {"sequences": 4096, "batched_tokens": 8192}, False),
        ("Qwen/Qwen3-8B", "L4", {"sequences": 4096, "chunked_prefill": False}, False),
        ("Qwen/Qwen3-8B", "L4", {"sequences": 4096, "release": None}, False),
        (
            "Qwen/Qwen3-8B",
            "L4",
            {"unknown": frozenset({"batched_tokens"}), "sequences": 4096},
            False,
        ),
        ("google/gemma-3-4b-it", "L4", {"sequences": 4096}, False),
    ],
)
def test_more_sequences_than_the_default_batch(
    model: str, gpu: str, changes: Any, is_refused: bool
) -> None:
    verdict = judged(model, gpu, **{"max_length": 8192, **changes})
    assert (Cause.DEFAULT_BATCH in causes(verdict)) is is_refused
    assert (verdict.severity is Severity.REFUSED) is is_refused


def test_the_default_utilization_of_an_unknown_release_is_between_both() -> None:
    lowest, any_release, highest = (
        judged("Qwen/Qwen3-4B", "H100", release=None, max_length=8192, utilization=share).cache
        for share in (Fraction(90, 100), None, Fraction(92, 100))
    )
    assert lowest and any_release and highest
    assert any_release == (lowest.low, highest.high)


def test_a_default_length_that_a_server_may_lower_is_a_warning() -> None:
    given: dict[str, Any] = {"tensor": 2, "utilization": Fraction(85, 100)}
    verdict = judged("deepseek-ai/DeepSeek-V2-Lite-Chat", "L4", **given)
    assert (verdict.severity, causes(verdict)) == (Severity.WARNING, {Cause.REQUEST})
    verdict = judged("deepseek-ai/DeepSeek-V2-Lite-Chat", "L4", **given, max_length=163840)
    assert (verdict.severity, causes(verdict)) == (Severity.REFUSED, {Cause.REQUEST})


@pytest.mark.parametrize("changes", [{"blocks": 64}, {"unknown": frozenset({"utilization"})}])
def test_a_cache_whose_size_is_not_known_is_not_refused(changes: Any) -> None:
    assert judged("meta-llama/Llama-3.1-8B-Instruct", "L4").severity is Severity.REFUSED
    verdict = judged("meta-llama/Llama-3.1-8B-Instruct", "L4", **changes)
    assert verdict.severity is not Severity.REFUSED


@pytest.mark.parametrize(
    ("kv_bytes", "changes", "is_refused"),
    [
        (6 * GIB, {}, False),
        (8 * GIB, {}, True),
        (10 * GIB, {"max_length": FIT}, True),
        (10 * GIB, {"blocks": 64}, False),
        (10 * GIB, {"tensor": 2}, False),
    ],
)
def test_weights_and_the_bytes_of_the_cache_fit(
    kv_bytes: int, changes: Any, is_refused: bool
) -> None:
    given = {"max_length": 8192, "kv_bytes": kv_bytes, **changes}
    verdict = judged("Qwen/Qwen3-8B", "L4", **given)
    assert (Cause.CACHE_BYTES in causes(verdict)) is is_refused
    assert (verdict.severity is Severity.REFUSED) is is_refused


def test_the_sentence_of_a_cache_beyond_the_gpu() -> None:
    verdict = judged("Qwen/Qwen3-8B", "L4", kv_bytes=10 * GIB)
    assert verdict.reasons[0].sentences("--kv-cache-memory-bytes") == (
        "the weights of Qwen3-8B in BF16 and --kv-cache-memory-bytes have 25.3 GiB on 1 L4, "
        "which has 22.2 GiB",
        "Lower --kv-cache-memory-bytes",
    )


def test_without_graphs_more_memory_is_left() -> None:
    graphs, eager = (
        judged("Qwen/Qwen3-4B", "H100", max_length=8192, eager=is_eager).cache
        for is_eager in (False, True)
    )
    assert graphs
    assert eager
    assert eager.low - graphs.low == 2 * GIB


def test_replicas_divide_the_experts() -> None:
    """With vLLM also without expert parallelism; those of other servers may have all of them."""
    mixtral = MODELS["mistralai/Mixtral-8x7B-Instruct-v0.1"]
    alone, one_of_two, sharing = (
        weights(replace(VLLM, **changes), mixtral)
        for changes in ({}, {"data": 2}, {"data": 2, "expert_parallel": True})
    )
    assert isinstance(alone, tuple)
    assert isinstance(one_of_two, tuple)
    assert isinstance(sharing, tuple)
    # 45.1 of 46.7 billion parameters are those of experts.
    assert sharing[0].low == one_of_two[0].low
    assert Fraction(51, 100) < sharing[0].low / alone[0].low < Fraction(53, 100)
    assert sharing[0].high == sharing[0].low * Fraction(101, 100)
    assert one_of_two[0].high == sharing[0].high
    of_context = weights(replace(VLLM, prefill_context=2), mixtral)
    assert isinstance(of_context, tuple)
    assert of_context[0] == sharing[0]
    of_sglang = weights(Serving(engine="sglang", data=2), mixtral)
    assert isinstance(of_sglang, tuple)
    assert of_sglang[0].high == alone[0].high


@pytest.mark.parametrize(
    ("model", "replicas", "gib"),
    [
        ("deepseek-ai/DeepSeek-R1", 8, "93.8"),
        ("deepseek-ai/DeepSeek-R1", 16, "55.7"),
        ("moonshotai/Kimi-K2-Instruct", 8, "131.2"),
        ("moonshotai/Kimi-K2-Instruct", 16, "72.2"),
        # 12.7 billion parameters of experts in 4.25 bits, and 1.8 billion others in 16.
        ("openai/gpt-oss-20b", 2, "8.1"),
    ],
)
def test_replicas_do_not_divide_layers_without_experts(model: str, replicas: int, gib: str) -> None:
    serving = replace(VLLM, data=replicas, expert_parallel=True)
    (stage,) = cast("tuple[Bounds, ...]", weights(serving, MODELS[model]))
    assert f"{float(stage.low / GIB):.1f}" == gib
    assert stage.high is not None
    if MODELS[model].attention == "mla":
        # 16-bit copies of kv_b_proj are on every GPU: 61 layers, heads of 256, a rank of 512.
        assert stage.high - stage.low > 61 * (MODELS[model].heads or 0) * 256 * 512 * 2


def test_of_files_whose_experts_are_not_known_the_upper_bound_has_all() -> None:
    deepseek = replace(
        MODELS["deepseek-ai/DeepSeek-R1"],
        **dict.fromkeys(("params", "least_params", "experts", "expert_intermediate")),
        stored_bytes=600 * GIB,
    )
    alone, shared = (
        cast(
            "tuple[Bounds, ...]", weights(replace(VLLM, data=size), replace(deepseek, experts=256))
        )
        for size in (1, 8)
    )
    assert shared[0].low < alone[0].low / 4
    assert shared[0].high == alone[0].high


def test_each_gpu_has_a_kv_head() -> None:
    qwen = MODELS["Qwen/Qwen3-14B"]
    alone, divided = (weights(replace(VLLM, tensor=size), qwen) for size in (1, 16))
    assert isinstance(alone, tuple)
    assert isinstance(divided, tuple)
    assert (qwen.kv_heads, qwen.hidden, qwen.head_dim, qwen.layers) == (8, 5120, 128, 40)
    # Half a KV head more, with keys and values, of two bytes.
    assert divided[0].low - alone[0].low / 16 == 2 * 5120 * 128 * 40 * 2 // 2


def test_tied_embeddings_are_one_matrix_of_two_bytes() -> None:
    qwen = MODELS["Qwen/Qwen3-4B"]
    assert qwen.tied
    stages = weights(replace(VLLM, quantization="fp8"), qwen)
    assert isinstance(stages, tuple)
    matrix = (qwen.vocabulary or 0) * (qwen.hidden or 0)
    assert stages[0].low == (qwen.params or 0) + matrix


@pytest.mark.parametrize(
    ("stages", "layers"), [(1, (30,)), (4, (7, 8, 8, 7)), (7, (4, 4, 4, 4, 5, 5, 4))]
)
def test_layers_are_divided_as_vllm_does(stages: int, layers: tuple[int, ...]) -> None:
    assert stage_layers(replace(VLLM, pipeline=stages), 30) == layers
