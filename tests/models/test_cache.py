"""The bytes of the KV cache of a request."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from ml_foundations.models.cache import pooled_layers, request_cache, token_bytes
from ml_foundations.models.facts import MODELS
from ml_foundations.models.serving import Serving
from ml_foundations.models.weights import Bounds

VLLM = Serving(engine="vllm", release=(0, 33, 0))
QWEN = MODELS["Qwen/Qwen3-14B"]
"""40 layers with 8 KV heads of 128 numbers."""
DEEPSEEK = MODELS["deepseek-ai/DeepSeek-V2-Lite-Chat"]
"""27 layers with a latent vector of 576 numbers."""


@pytest.mark.parametrize(("tensor", "heads"), [(1, 8), (2, 4), (8, 1), (16, 1)])
def test_each_gpu_has_a_head(tensor: int, heads: int) -> None:
    assert token_bytes(replace(VLLM, tensor=tensor), QWEN) == 2 * heads * 128 * 2


@pytest.mark.parametrize(
    ("full", "windowed", "layers"), [(10, 0, 10), (0, 9, 9), (10, 52, 70), (10, 12, 24), (2, 3, 6)]
)
def test_layers_of_both_kinds_are_in_groups_of_equal_size(
    full: int, windowed: int, layers: int
) -> None:
    assert pooled_layers(full, windowed) == layers


@pytest.mark.parametrize(
    ("facts", "changes", "tokens", "rounded"),
    [
        (QWEN, {}, 1000, 1008),
        (QWEN, {"block_size": 32}, 1000, 1024),
        (QWEN, {"decode_context": 2}, 500, 512),
        (QWEN, {"prefill_context": 4}, 250, 256),
        (DEEPSEEK, {}, 1000, 1024),
    ],
)
def test_a_request_is_held_in_blocks(facts: Any, changes: Any, tokens: int, rounded: int) -> None:
    in_layer = token_bytes(VLLM, facts)
    assert isinstance(in_layer, int)
    size = in_layer * (facts.layers or 0)
    cache = request_cache(replace(VLLM, **changes), facts, 1000)
    assert cache == Bounds(Fraction(tokens * size), Fraction(rounded * size))


def test_a_layer_with_a_window_keeps_also_the_tokens_of_a_batch() -> None:
    gemma = MODELS["google/gemma-2-2b-it"]
    assert (gemma.window, gemma.full_layers, gemma.layers) == (4096, 13, 26)
    size = token_bytes(VLLM, gemma)
    assert isinstance(size, int)
    cache = request_cache(VLLM, gemma, 8192, batched=2048)
    # 6,143 tokens are 384 blocks, and there is one more.
    assert cache == Bounds(Fraction(13 * (8192 + 4096) * size), Fraction(13 * (8192 + 6160) * size))
