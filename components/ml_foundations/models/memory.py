"""Whether a model's weights and the KV cache of one request fit the memory of its GPUs.

A lower bound beyond the memory is a refusal. Activation, NCCL and CUDA graphs were measured, not
derived: they only lead to a warning.

Sources: vllm 0.11 to 0.33 (v1/worker, v1/core, engine/arg_utils.py), and measured starts of vllm
0.11 to 0.19 on H100 GPUs, which tests/models/measured.csv has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from ml_foundations.catalog.machine_types import Accelerator
from ml_foundations.models.cache import request_cache
from ml_foundations.models.facts import ModelFacts
from ml_foundations.models.reasons import (
    GIB,
    Cause,
    Reason,
    Severity,
    refused,
    undetermined,
    warning,
)
from ml_foundations.models.serving import FIT, Serving
from ml_foundations.models.weights import (
    Bounds,
    gpu_fault,
    is_quantized_at_load,
    loaded_dtype,
    quantization,
    stage_layers,
    weights,
)

REFUSAL_MARGIN = Fraction(1, 200)
"""A lower bound refuses only if it is above the memory by more than this share of it."""
_QUANTIZES_WHILE_LOADING = (0, 23, 0)
"""The first release that was seen to load 131 GiB with fp8 on a GPU of 95 GiB. Since vllm pull
request 31914, no server holds all weights as they are before it quantizes them."""
_DEFAULT_LENGTH_IS_LOWER = (
    "Phi3ForCausalLM",
    "DeepseekV2ForCausalLM",
    "DeepseekV3ForCausalLM",
    "KimiK25ForConditionalGeneration",
)
"""Architectures whose default length may be below the one of their configuration."""
_H100_TOKENS = 8192
"""The tokens of a batch at which activation was measured."""
_IMAGES = Fraction("2.1")
"""The GiB of activation of Mistral 3: on a smaller GPU, images are not smaller."""
_SAMPLER = Fraction(95, 100)
"""The utilization at which vLLM 0.19 had no memory for the sampler of gpt-oss. Models with graphs
of fewer sequences started."""
_DECIDING = {
    *("memory", "tensor", "pipeline", "data", "dtype", "quantization"),
    *("decode_context", "prefill_context"),
}
"""Fields without which nothing is certain about memory."""


@dataclass(frozen=True, kw_only=True)
class GpuMemory:
    """The total memory of a GPU or a partition as CUDA reports it, in GiB."""

    name: str
    low: Fraction | None
    """None if no figure was measured."""
    high: Fraction
    compute_capability: tuple[int, int] | None
    is_shared: bool = False
    is_partition: bool = False

    @classmethod
    def of(cls, gpu: Accelerator) -> GpuMemory:
        """Return the memory of a GPU in the catalog."""
        model = gpu.models[0]
        partition = gpu.partition
        name = model.accelerator_type.removeprefix("nvidia-").removeprefix("tesla-").upper()
        # The GB of a name as GiB are above what CUDA reports for every GPU and partition, and the
        # GB of a declared model are rounded down.
        high = max(Fraction(model.memory_gb), Fraction(model.memory_label_mib or 0, 1024))
        if partition is not None:
            named = Fraction(partition.partition(".")[2].partition("gb")[0])
            high = model.mig_gib.get(partition, named)
            name = f"{name}-MIG-{partition}"
        elif model.cuda_gib_high is not None:
            high = model.cuda_gib_high
        return cls(
            name=name,
            low=model.cuda_gib_low if partition is None else None,
            high=high,
            compute_capability=model.compute_capability,
            is_shared=gpu.shared,
            is_partition=partition is not None,
        )


@dataclass(frozen=True, kw_only=True)
class MemoryVerdict:
    """The memory of the fullest GPU in bytes. A figure is None if it is not known."""

    severity: Severity | None
    """The most severe of the reasons, None if all fits."""
    reasons: tuple[Reason, ...]
    weights: Bounds | None = None
    request: Bounds | None = None
    """The KV cache of one request of the longest length, in all pipeline stages together."""
    length: int | None = None
    """The longest length in tokens."""
    cache: Bounds | None = None
    """What is left for the KV cache."""
    requests: Bounds | None = None
    """Requests of the longest length at once."""


def budget_shares(serving: Serving) -> tuple[Fraction, Fraction]:
    """Return the least and the most of a GPU's memory that vLLM may use."""
    if "utilization" in serving.unknown:
        return Fraction(0), Fraction(1)
    before = Fraction(90, 100)
    since = Fraction(92, 100)
    if serving.utilization is not None or serving.release is None:
        return serving.utilization or before, serving.utilization or since
    share = before if serving.release < (0, 20, 0) else since
    return share, share


def _batch(serving: Serving, gpu: GpuMemory) -> tuple[int, int]:
    """Return the tokens and the sequences of a batch."""
    release = serving.release or (0, 0, 0)
    tokens = 2048
    sequences = 256
    if gpu.high >= 70 and not gpu.name.startswith("A100"):
        tokens = 16384 if gpu.high >= 160 and release >= (0, 31, 0) else 8192
        sequences = 1024
    return serving.batched_tokens or tokens, serving.sequences or sequences


def _default_batch(serving: Serving, facts: ModelFacts, gpu: GpuMemory) -> Reason | None:
    """Return whether sequences exceed the default tokens of a batch (vllm, config/scheduler.py).

    Models of images, replicas with experts and encoders have other defaults.
    """
    is_other = facts.architecture.endswith("ForConditionalGeneration")
    is_other |= facts.attention == "none" or bool(facts.experts and serving.data > 1)
    is_other |= bool(serving.unknown & {"batched_tokens", "sequences", "chunked_prefill"})
    is_other |= any(reason.value == "--performance-mode" for reason in serving.reasons)
    is_read = serving.engine == "vllm" and serving.release is not None
    if serving.batched_tokens or not serving.chunked_prefill or is_other or not is_read:
        return None
    tokens, sequences = _batch(serving, gpu)
    path = serving.paths.get("sequences", "")
    beyond = refused(Cause.DEFAULT_BATCH, sequences, tokens, path, gpu=gpu.name)
    return beyond if sequences > tokens else None


def _overhead(serving: Serving, gpu: GpuMemory, facts: ModelFacts) -> Fraction:
    """Return the bytes that activation, NCCL and CUDA graphs typically need at most."""
    tokens, sequences = _batch(serving, gpu)
    scale = max(Fraction(1, 4), Fraction(max(tokens, 8 * sequences), _H100_TOKENS))
    release = serving.release or (0, 0, 0)
    activation = scale * (Fraction("4.2") if release >= (0, 17, 0) else 8)
    if facts.params != facts.least_params:
        activation = max(activation, _IMAGES)
    beyond_torch = Fraction("2.3") if serving.tensor > 1 else Fraction("0.6")
    is_in_budget = serving.release is None or release >= (0, 20, 0)
    graphs = Fraction(2) if is_in_budget and not serving.eager else Fraction(0)
    return (activation + beyond_torch + graphs) * GIB


def _most_of_sglang(serving: Serving, gpu: GpuMemory) -> Fraction:
    """Return a share of a GPU's memory that SGLang's default is certainly below.

    It reserves at least so much for activation and graphs, and more if arguments ask for it
    (sglang 0.5.4, server_args.py). It divides by the memory that the label has, which is larger.
    """
    if gpu.is_partition:
        return Fraction(1)
    reserve = max(Fraction(7, 2) + Fraction(serving.world, 8), 10 if gpu.high > 60 else 0)
    return 1 - reserve * Fraction(95, 100) / gpu.high


@dataclass
class _Check:
    """A server, its model and its GPUs, while their memory is judged."""

    serving: Serving
    facts: ModelFacts
    gpu: GpuMemory
    stages: tuple[Bounds, ...]
    budget: Bounds
    dtype: str
    words: dict[str, Any]
    """Values of the sentences."""

    @property
    def heaviest(self) -> Bounds:
        """The weights of the fullest stage."""
        return max(self.stages, key=lambda stage: stage.low)

    def exceeds(self, cause: Cause, low: Fraction, limit: Fraction, *fields: str) -> Reason:
        """Return the reason for a lower bound above its limit."""
        paths = [self.serving.paths[key] for key in fields if key in self.serving.paths]
        # While it quantizes, the server may hold more or less than the lower bound.
        at_load = is_quantized_at_load(self.serving, self.facts)
        reason = warning if at_load else refused
        return reason(cause, low, limit, next(iter(paths), ""), **self.words)


def check_memory(serving: Serving, facts: ModelFacts | None, gpu: GpuMemory) -> MemoryVerdict:
    """Return whether a server's weights and the cache of one request fit the fullest GPU."""
    reasons = [*serving.reasons]
    is_read = not serving.unknown & _DECIDING
    fault = gpu_fault(serving, facts, gpu.compute_capability) if is_read else None
    if facts is None:
        unknown = undetermined(Cause.UNKNOWN_MODEL, serving.model, serving.paths.get("model", ""))
        return _verdict([*reasons, fault or unknown])
    if not is_read:
        return _verdict(reasons)
    if fault:
        return _verdict([*reasons, fault])
    if fault := _default_batch(serving, facts, gpu):
        return _verdict([*reasons, fault])
    dtype = loaded_dtype(serving, facts, gpu.compute_capability)
    if isinstance(dtype, Reason):
        return _verdict([*reasons, dtype])
    stages = weights(serving, facts, dtype)
    if isinstance(stages, Reason):
        return _verdict([*reasons, stages])
    if gpu.is_shared:
        reasons.append(undetermined(Cause.SHARED_GPU, gpu.name))
    if gpu.low is None:
        reasons.append(undetermined(Cause.UNKNOWN_GPU_MEMORY, gpu.name))
    least, most = budget_shares(serving)
    budget = Bounds((gpu.low or Fraction(0)) * least * GIB, gpu.high * most * GIB)
    names = {"bfloat16": "BF16", "float16": "FP16", "float32": "FP32"}
    scheme = str(quantization(serving, facts) or names[dtype]).partition("-")[0].upper()
    words: dict[str, Any] = {
        "model": facts.name,
        "dtype": scheme,
        "gpu": gpu.name,
        "gpus": serving.world,
    }
    check = _Check(serving, facts, gpu, stages, budget, dtype, words)
    low = check.heaviest.low
    total = gpu.high * GIB
    is_early = serving.release is not None and serving.release < _QUANTIZES_WHILE_LOADING
    if is_early and is_quantized_at_load(serving, facts):
        loaded = weights(replace(serving, quantization=None), facts, dtype)
        whole = Fraction(0) if isinstance(loaded, Reason) else max(stage.low for stage in loaded)
        if whole > total:
            path = serving.paths.get("quantization", "")
            reasons.append(warning(Cause.WHOLE_WEIGHTS, whole, total, path, **words))
    figures: dict[str, Any] = {"weights": check.heaviest}
    if low > total * (1 + REFUSAL_MARGIN):
        alone = weights(replace(serving, tensor=1, pipeline=1, data=1), facts, dtype)
        words["total"] = Fraction(0) if isinstance(alone, Reason) else alone[0].low
        reasons.append(check.exceeds(Cause.WEIGHTS, low, total, "tensor", "model"))
    elif serving.engine == "sglang" and "utilization" not in serving.unknown:
        # The pool is what is left of this share (profile_max_num_token, _profile_available_bytes).
        share = total * (serving.utilization or _most_of_sglang(serving, gpu))
        if low > share * (1 + REFUSAL_MARGIN):
            reason = check.exceeds(Cause.NO_CACHE, low, share, "utilization", "tensor")
            is_known = serving.utilization is not None or serving.release is not None
            reasons.append(reason if is_known else replace(reason, severity=Severity.WARNING))
    elif serving.engine == "vllm":
        figures |= _cache_figures(check)
        reasons += _of_vllm(check, figures.get("request"))
    return _verdict(reasons, **figures)


def _verdict(reasons: Iterable[Reason], **figures: Any) -> MemoryVerdict:
    listed = tuple(reasons)
    present = {reason.severity for reason in listed}
    severity = next((severity for severity in Severity if severity in present), None)
    return MemoryVerdict(severity=severity, reasons=listed, **figures)


def _cache_figures(check: _Check) -> dict[str, Any]:
    """Return the request, its length, and what the cache has for such requests."""
    serving = check.serving
    facts = check.facts
    heaviest = check.heaviest
    length = facts.max_length if serving.max_length in (None, FIT) else serving.max_length
    if length is None or "max_length" in serving.unknown:
        return {}
    tokens, _ = _batch(serving, check.gpu)
    need = request_cache(serving, facts, length, check.dtype, tokens)
    if isinstance(need, Reason):
        return {"length": length}
    figures: dict[str, Any] = {"length": length, "request": need}
    most = (check.budget.high or Fraction(0)) - heaviest.low
    if heaviest.high is None:
        return figures
    least = check.budget.low - heaviest.high - _overhead(serving, check.gpu, facts)
    if serving.kv_bytes:
        least = most = Fraction(serving.kv_bytes)
    figures["cache"] = Bounds(max(Fraction(0), least), max(Fraction(0), most))
    if need.low and need.high:
        # The fullest stage has at most this share of the layers, and at least the mean.
        share = Fraction(1, serving.pipeline)
        fullest = Fraction(max(stage_layers(serving, facts.layers or 1)), facts.layers or 1)
        requests = (max(Fraction(0), least) / (need.high * fullest), most / (need.low * share))
        figures["requests"] = Bounds(*(Fraction(max(0, int(count))) for count in requests))
    return figures


def _of_vllm(check: _Check, need: Bounds | None) -> Iterator[Reason]:
    """Yield what vLLM does not meet as it sizes its cache."""
    serving = check.serving
    facts = check.facts
    stages = check.stages
    most = check.budget.high or Fraction(0)
    tolerance = most * REFUSAL_MARGIN
    is_sized = serving.kv_bytes is not None or "kv_bytes" in serving.unknown
    has_blocks = serving.blocks is not None or "blocks" in serving.unknown
    if not is_sized and not has_blocks and check.heaviest.low > most + tolerance:
        yield check.exceeds(Cause.NO_CACHE, check.heaviest.low, most, "utilization", "tensor")
        return
    sized = check.heaviest.low + (serving.kv_bytes or 0)
    total = check.gpu.high * GIB
    if serving.kv_bytes and not has_blocks and sized > total * (1 + REFUSAL_MARGIN):
        yield check.exceeds(Cause.CACHE_BYTES, sized, total, "kv_bytes")
        return
    shares = [Fraction(1, serving.pipeline)] * len(stages)
    held = [stage.low for stage in stages]
    if len(stages) > 1 and facts.attention == "full" and facts.layers:
        shares = [Fraction(count, facts.layers) for count in stage_layers(serving, facts.layers)]
    elif len(stages) > 1:
        # Which stage has the layers without a window is not known: one has at least the mean.
        held = [sum(held, Fraction(0)) / len(held)] * len(held)
    if serving.release and (0, 14, 0) <= serving.release < (0, 15, 2):
        # They compare the cache of all stages with each GPU (vllm, pull request 33698).
        shares = [Fraction(1)] * len(stages)
    if serving.max_length == FIT:
        need = None
    elif need is None:
        yield undetermined(Cause.UNKNOWN_CACHE, facts.name, serving.paths.get("model", ""))
        return
    caches = [need.low * share if need else Fraction(0) for share in shares]
    available, cache = min(
        ((most - weight, cache) for weight, cache in zip(held, caches, strict=True)),
        key=lambda pair: pair[0] - pair[1],
    )
    if serving.kv_bytes:
        available = Fraction(serving.kv_bytes)
        tolerance = Fraction(0)
    is_certain = not has_blocks and not serving.unknown & {"kv_bytes", "utilization"}
    if is_certain and cache > max(Fraction(0), available) + tolerance:
        length = facts.max_length if serving.max_length is None else serving.max_length
        check.words["length"] = length
        reason = check.exceeds(Cause.REQUEST, cache, max(Fraction(0), available), "max_length")
        is_lower = serving.max_length is None and facts.architecture in _DEFAULT_LENGTH_IS_LOWER
        yield replace(reason, severity=Severity.WARNING) if is_lower else reason
        return
    is_before_20 = serving.release is not None and serving.release < (0, 20, 0)
    is_gpt_oss = facts.architecture == "GptOssForCausalLM"
    utilization = serving.utilization or Fraction(0)
    is_full = utilization >= _SAMPLER and _batch(serving, check.gpu)[1] >= 1024
    if is_before_20 and is_gpt_oss and is_full:
        path = serving.paths.get("utilization", "")
        yield warning(Cause.SAMPLER, utilization, _SAMPLER, path)
    most_held = check.heaviest.high
    if most_held is None or (need and need.high is None):
        cause = Cause.UNKNOWN_WEIGHTS if most_held is None else Cause.UNKNOWN_CACHE
        yield undetermined(cause, facts.name)
        return
    most_cache = (need.high or Fraction(0)) if need else Fraction(0)
    full = most_held + most_cache * max(shares) + _overhead(serving, check.gpu, facts)
    if check.gpu.low is not None and is_certain and not is_sized and full > check.budget.low:
        path = serving.paths.get("max_length", "")
        yield warning(Cause.NEAR_LIMIT, full, check.budget.low, path, **check.words)
