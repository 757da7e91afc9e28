"""The bytes of the KV cache of a request (vllm 0.11 to 0.33, v1/core and config/cache.py)."""

from fractions import Fraction
from math import ceil

from ml_foundations.models.facts import DTYPE_BYTES, ModelFacts
from ml_foundations.models.reasons import Cause, Reason, undetermined
from ml_foundations.models.serving import Serving
from ml_foundations.models.weights import Bounds

_KV_BYTES = DTYPE_BYTES | dict.fromkeys(("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc", "int8"), 1)


def token_bytes(serving: Serving, facts: ModelFacts, dtype: str = "bfloat16") -> int | Reason:
    """Return the bytes of a token in one layer, on one GPU."""
    name = serving.kv_dtype
    if name == "auto":
        name = facts.kv_quantization or dtype
    size = _KV_BYTES.get(name)
    if size is None or "kv_dtype" in serving.unknown:
        return undetermined(Cause.UNKNOWN_CACHE, name, serving.paths.get("kv_dtype", ""))
    if facts.attention == "none":
        return 0
    if facts.attention == "mla" and facts.kv_lora_rank and facts.rope_head_dim:
        # It has one head, which each GPU has.
        return (facts.kv_lora_rank + facts.rope_head_dim) * size
    if facts.attention in ("full", "sliding", "hybrid") and facts.kv_heads and facts.head_dim:
        return 2 * max(1, facts.kv_heads // serving.tensor) * facts.head_dim * size
    return undetermined(Cause.UNKNOWN_CACHE, facts.name, serving.paths.get("model", ""))


def pooled_layers(full: int, windowed: int) -> int:
    """Return the layers of the pool that layers with and without a window share.

    They are in groups of equal size, the last of each kind padded. The size is the number of layers
    of the smaller kind, or of the larger one if that is below 1.5 times as large (vllm 0.19, 0.33).
    """
    if not full or not windowed:
        return full + windowed
    fewer, more = sorted((full, windowed))
    group = more if more * 2 < fewer * 3 else fewer
    return (ceil(full / group) + ceil(windowed / group)) * group


def request_cache(
    serving: Serving, facts: ModelFacts, length: int, dtype: str = "bfloat16", batched: int = 8192
) -> Bounds | Reason:
    """Return the bytes of one request of a length, on a GPU of each stage together.

    Args:
        serving: The server.
        facts: Its model.
        length: Tokens of the request.
        dtype: How the weights are loaded.
        batched: Tokens of a batch, which a window layer keeps in addition to its window.
    """
    size = token_bytes(serving, facts, dtype)
    if isinstance(size, Reason):
        return size
    layers = facts.layers or 0
    full = facts.full_layers if facts.attention in ("sliding", "hybrid") else layers
    if full is None:
        return undetermined(Cause.UNKNOWN_CACHE, facts.name, serving.paths.get("model", ""))
    tokens = Fraction(length, serving.decode_context * serving.prefill_context)
    if facts.attention == "hybrid":
        # The state of its other layers is not counted.
        return Bounds(full * tokens * size, None)
    block = serving.block_size or (64 if facts.attention == "mla" else 16)
    rounded = ceil(tokens / block) * block
    windowed = layers - full
    if not windowed or not facts.window or serving.without_hybrid_cache:
        return Bounds(layers * tokens * size, Fraction(layers * rounded * size))
    low = (full * tokens + windowed * min(facts.window, length)) * size
    in_window = ceil(min(facts.window - 1 + batched, length) / block) * block + block
    high = full * rounded + windowed * in_window
    return Bounds(low, Fraction(high * size * pooled_layers(full, windowed), layers))
