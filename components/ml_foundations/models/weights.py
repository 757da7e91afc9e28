"""The bytes of a model's weights on each GPU.

The lower bound counts what a server certainly holds. The upper one adds the margin by which
measured starts of vllm 0.11 to 0.19 were at most above it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from ml_foundations.catalog.tables import table
from ml_foundations.models.facts import DTYPE_BYTES, ModelFacts
from ml_foundations.models.reasons import Cause, Reason, refused, undetermined
from ml_foundations.models.serving import Serving

_LINEAR_BYTES: dict[str, Fraction] = {
    **dict.fromkeys(("fp8", "fp8-block", "int8"), Fraction(1)),
    "int4": Fraction(1, 2),
}
"""Bytes of a parameter of a quantized matrix, by quantization, without scales."""
_MXFP4_BYTES = Fraction(1, 2) + Fraction(1, 32)
"""Four bits, and one exponent of eight for 32 parameters."""
_MLA_HEAD = 128 + 128
"""A head's keys without position and values, of DeepSeek V2, V3 and Kimi K2 (their config.json)."""
_SAME_AS_CHECKPOINT = {
    "fp8": ("fp8", "fp8-block"),
    "compressed-tensors": ("fp8", "int8", "int4"),
    **dict.fromkeys(("gptq", "gptq_marlin"), ("int4", "int8")),
    **dict.fromkeys(("awq", "awq_marlin"), ("int4",)),
    "mxfp4": ("mxfp4",),
}
"""Names of ``--quantization`` that repeat what the checkpoint has."""
_UNSTABLE_IN_FLOAT16 = ("Gemma2For", "Gemma3For", "Glm4For")
"""Architectures that vLLM refuses in float16 (vllm, config/model.py)."""
_BFLOAT16_SINCE = (8, 0)
"""The compute capability of bfloat16 (vllm, platforms/cuda.py)."""


@dataclass(frozen=True, kw_only=True)
class _Method:
    method: str
    capability: tuple[int, int]
    former_capability: tuple[int, int] | None
    former_until: tuple[int, int] | None


_METHODS = table("quantizations.csv", _Method)


class Bounds(NamedTuple):
    """At least and at most so many bytes; None if there is no upper bound."""

    low: Fraction
    high: Fraction | None


def loaded_dtype(
    serving: Serving, facts: ModelFacts, capability: tuple[int, int] | None = None
) -> str | Reason:
    """Return float16, bfloat16 or float32: how the weights are loaded on a GPU."""
    path = serving.paths.get("dtype", "")
    is_vllm = serving.engine == "vllm"
    is_unstable = facts.architecture.startswith(_UNSTABLE_IN_FLOAT16)
    lacks_bfloat16 = capability is not None and capability < _BFLOAT16_SINCE
    name = {"half": "float16", "float": "float32"}.get(serving.dtype, serving.dtype)
    if name == "auto":
        name = "bfloat16" if facts.dtype == "float32" else facts.dtype
        if name == "bfloat16" and lacks_bfloat16:
            name = "float32" if is_vllm and is_unstable else "float16"
    elif is_vllm and name == "float16" and is_unstable:
        usable = "float32" if lacks_bfloat16 else "bfloat16"
        values = {"model": facts.name, "usable": usable}
        return refused(Cause.DTYPE_OF_MODEL, name, facts.architecture, path, **values)
    if name in DTYPE_BYTES:
        return name
    return undetermined(Cause.UNKNOWN_WEIGHTS, facts.name, path)


def quantization(serving: Serving, facts: ModelFacts) -> str | Reason:
    """Return how the weights are quantized in memory; empty if they are not."""
    asked = serving.quantization
    if asked is None or facts.quantization in _SAME_AS_CHECKPOINT.get(asked, ()):
        name = facts.quantization
        if not name or name in _LINEAR_BYTES or name == "mxfp4" or facts.stored_bytes:
            return name
        return undetermined(Cause.UNKNOWN_QUANTIZATION, name, model=facts.name)
    if is_quantized_at_load(serving, facts):
        return "fp8"
    path = serving.paths.get("quantization", "")
    return undetermined(Cause.UNKNOWN_QUANTIZATION, asked, path, model=facts.name)


def gpu_fault(
    serving: Serving, facts: ModelFacts | None, capability: tuple[int, int] | None
) -> Reason | None:
    """Return why vLLM refuses a dtype or a quantization on GPUs of a compute capability.

    An argument counts for every model, what a checkpoint has only if its facts are known.
    """
    if serving.engine != "vllm" or capability is None:
        return None
    architecture = facts.architecture if facts else ""
    if serving.dtype == "bfloat16" and capability < _BFLOAT16_SINCE:
        path = serving.paths.get("dtype", "")
        usable = "float32" if architecture.startswith(_UNSTABLE_IN_FLOAT16) else "float16"
        values = {"gpu": "the GPU", "usable": usable}
        return refused(Cause.DTYPE_OF_GPU, serving.dtype, capability, path, **values)
    of_checkpoint = facts.quantization if facts and facts.quantization != "fp8" else ""
    name = serving.quantization or of_checkpoint.removesuffix("-block")
    method = _METHODS.get(name)
    if method is None:
        return None
    least = method.capability
    if method.former_until and serving.release and serving.release < method.former_until:
        least = method.former_capability or least
    if capability >= least:
        return None
    path = serving.paths.get("quantization", serving.paths.get("model", ""))
    return refused(Cause.QUANTIZATION_OF_GPU, name, ".".join(map(str, least)), path)


def is_quantized_at_load(serving: Serving, facts: ModelFacts) -> bool:
    """Return whether vLLM itself makes 8 bits of 16-bit weights."""
    is_vllm = serving.engine == "vllm"
    return is_vllm and serving.quantization == "fp8" and not facts.quantization


def stage_layers(serving: Serving, layers: int) -> tuple[int, ...]:
    """Return the layers of each pipeline stage (vllm, distributed/utils.py, get_pp_indices)."""
    stages = serving.pipeline
    if len(serving.layers_of_stages) == stages:
        return serving.layers_of_stages
    counts = [layers // stages] * stages
    for position in range(2, layers % stages + 2):
        counts[-position] += 1
    return tuple(counts)


def weights(
    serving: Serving, facts: ModelFacts, dtype: str = "bfloat16"
) -> tuple[Bounds, ...] | Reason:
    """Return the bytes on a GPU of each pipeline stage.

    Of a model whose layers differ, it is one stage, which the fullest one certainly has.
    """
    scheme = quantization(serving, facts)
    if isinstance(scheme, Reason):
        return scheme
    params = facts.least_params
    if not params and not facts.stored_bytes:
        return undetermined(Cause.UNKNOWN_WEIGHTS, facts.name, serving.paths.get("model", ""))
    size = DTYPE_BYTES[dtype]
    tensor = serving.tensor
    stages = serving.pipeline
    matrix = (facts.vocabulary or 0) * (facts.hidden or 0)
    # If it is not known whether they are tied, one is counted.
    outputs = matrix if facts.tied is False else 0
    head_bytes = _LINEAR_BYTES.get(scheme, Fraction(size)) if facts.quantized_head else size
    embedding = Fraction(matrix * size, tensor)
    output = Fraction(outputs * head_bytes, tensor)
    in_layers = (params or 0) - matrix - outputs
    experts = ((facts.layers or 0) - (facts.dense_layers or 0)) * (facts.experts or 0) * 3
    experts *= (facts.hidden or 0) * (facts.expert_intermediate or 0)
    linear_bytes = _LINEAR_BYTES.get(scheme, Fraction(0 if scheme else size))
    expert_bytes = experts * (_MXFP4_BYTES if scheme == "mxfp4" else linear_bytes)
    if facts.stored_bytes:
        linear = facts.stored_bytes - (embedding + output) * tensor
    else:
        others = (in_layers - experts) * (size if scheme == "mxfp4" else linear_bytes)
        linear = expert_bytes + others
    low = high = linear / tensor
    replicas = serving.data * serving.prefill_context
    if replicas > 1 and facts.experts:
        # Replicas divide the experts, with and without expert parallelism (vllm,
        # fused_moe/config.py). Those of other servers may have all of them.
        divided = 1 - Fraction(1, replicas)
        most = expert_bytes
        if facts.stored_bytes:  # with scales, but not with more bytes than other parameters
            most = linear * Fraction(experts, in_layers) if in_layers > 0 else linear
        low -= min(most, linear) / tensor * divided
        high -= min(expert_bytes, linear) / tensor * divided if serving.engine == "vllm" else 0
    if facts.attention == "mla" and scheme:
        # Each GPU keeps its kv_b_proj in 16 bits, too (vllm, mla_attention.py).
        copied = (facts.layers or 0) * (facts.heads or 0) * (facts.kv_lora_rank or 0)
        high += Fraction(copied * _MLA_HEAD * size, tensor)
    if facts.attention in ("full", "sliding") and not scheme:
        # Each GPU has at least one KV head.
        replicated = max(Fraction(0), 1 - Fraction(facts.kv_heads or 1, tensor))
        per_head = 2 * (facts.hidden or 0) * (facts.head_dim or 0) * (facts.layers or 0) * size
        low = low + per_head * replicated
        high = high + per_head * replicated
    is_known = bool(facts.params or facts.stored_bytes)
    # Each GPU may have a whole vision tower, or none without images.
    tower = (facts.params - params) * size if facts.params and params else 0
    margin = 1 + _margin(facts, scheme, tensor)

    def bounds(share: Fraction, ends: Fraction, least: Fraction | None = None) -> Bounds:
        most = (high * share + ends + tower) * margin if is_known else None
        return Bounds(low * share + ends if least is None else least, most)

    if stages == 1:
        return (bounds(Fraction(1), embedding + output),)
    layers = facts.layers or stages
    shares = [Fraction(count, layers) for count in stage_layers(serving, layers)]
    if facts.attention not in ("full", "sliding"):
        mean = (low + embedding + output) / stages
        return (bounds(max(shares), embedding + output, mean),)
    # The first stage has the embedding; the last has the output, which may be the same matrix.
    at_ends = [embedding, *[Fraction(0)] * (stages - 2), output or embedding]
    return tuple(bounds(share, end) for share, end in zip(shares, at_ends, strict=False))


def _margin(facts: ModelFacts, scheme: str, tensor: int) -> Fraction:
    if scheme == "mxfp4":
        return Fraction(12, 100)
    if scheme == "int4" and not facts.stored_bytes:
        # A group may be a whole column, or have 128 parameters and a scale of two bytes.
        return Fraction(1, 32) + Fraction(2, 100)
    if facts.architecture.endswith("ForConditionalGeneration"):
        return Fraction(8, 100)
    if facts.attention == "mla" and tensor > 1:
        return Fraction(3, 100)
    return Fraction(2 if scheme else 1, 100)
