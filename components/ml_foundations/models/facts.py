"""What is known about a model: from the catalog, or from the files of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

from ml_foundations.catalog.tables import table
from ml_foundations.kubernetes import regular_files
from ml_foundations.kubernetes.reading import ReadError, embedded_json, json_value
from ml_foundations.kubernetes.trees import is_mapping
from ml_foundations.kubernetes.words import shown

DTYPE_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}
"""Bytes of a number, by the names that checkpoints and servers use."""
_MLA = ("DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM")
_GATED = {
    *("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM"),
    *("MistralForCausalLM", "MixtralForCausalLM", "Phi3ForCausalLM", "GraniteForCausalLM"),
    *("Gemma2ForCausalLM", "Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"),
}
"""Architectures of attention and a gated feed-forward network, or experts that are such."""
KNOWN_ARCHITECTURES = {*_MLA, *_GATED, "GptOssForCausalLM"}
"""Architectures whose cache follows from the usual keys of a config.json."""

_MAY_BE_BY_LAYER = ("num_key_value_heads", "intermediate_size", "moe_intermediate_size")
"""Keys of a config.json that some models have as lists."""


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """A model: a row of ``catalog/models.csv``, or a folder. None is for what is not known."""

    model: str
    """The name on the hub, or of the folder."""
    architecture: str
    params: int | None = None
    """All parameters, if known; least_params is known then, too."""
    least_params: int | None = None
    """At least so many are loaded: those of a vision tower are not without images."""
    layers: int | None = None
    hidden: int | None = None
    intermediate: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    attention: str = "other"
    """full, sliding, mla, hybrid, none or other: see ``catalog/models.csv``."""
    kv_lora_rank: int | None = None
    rope_head_dim: int | None = None
    window: int | None = None
    full_layers: int | None = None
    """Layers that attend to all tokens, if others do not."""
    dense_layers: int | None = None
    """Layers without experts, if others have them."""
    experts: int | None = None
    expert_intermediate: int | None = None
    vocabulary: int | None = None
    max_length: int | None = None
    dtype: str = ""
    quantization: str = ""
    """Of the checkpoint: fp8, fp8-block, int8, int4, mxfp4, another name, or empty."""
    kv_quantization: str = ""
    """Of the KV cache, if the checkpoint declares it."""
    quantized_head: bool = False
    """Whether the output matrix may be quantized, too."""
    stored_bytes: int | None = None
    """Bytes of all tensors of a quantized checkpoint."""
    tied: bool | None = None
    """Whether embedding and output share one matrix."""
    former_names: tuple[str, ...] = ()
    """Names on the hub that lead to it, too."""

    @property
    def name(self) -> str:
        """The name without its owner."""
        return self.model.rpartition("/")[2]

    @classmethod
    def named(cls, name: str) -> ModelFacts:
        """Return a model of the catalog, by its name with or without its owner, or of a folder.

        Raises:
            ReadError: There is no such model, or the folder cannot be read.
        """
        if facts := catalog_model(name):
            return facts
        if len(name) < 256 and Path(name).is_dir():
            return cls.from_folder(name)
        matches = [known for known in MODELS if known.lower().endswith(f"/{name.lower()}")]
        if len(matches) == 1:
            return MODELS[matches[0]]
        about = shown(name, most=200).strip("'")
        raise ReadError(f"{about} is neither in the catalog nor a folder")

    @classmethod
    def from_folder(cls, path: str | Path) -> ModelFacts:
        """Return what config.json and, if it exists, model.safetensors.index.json say.

        Raises:
            ReadError: A file cannot be read, or a value in it is not what its key says.
        """
        folder = Path(path)
        config = _json(folder / "config.json")
        index = folder / "model.safetensors.index.json"
        listed: Mapping[str, Any] = _json(index, is_large=True) if index.exists() else {}
        try:
            size = _count(_section(listed, "metadata"), "total_size")
            return _from_config(folder.name, config, size)
        except (AttributeError, TypeError, ValueError, IndexError) as error:
            raise ReadError(f"{folder / 'config.json'}: {error}") from None


_CATALOG = table("models.csv", ModelFacts)
MODELS = {name: facts for facts in _CATALOG.values() for name in (facts.model, *facts.former_names)}
"""Public models by their names, and by those that they had."""
_BY_LOWER_NAME = {name.lower(): facts for name, facts in MODELS.items()}


def catalog_model(name: str | None) -> ModelFacts | None:
    """Return a model of the catalog, None if it lacks the name.

    The hub ignores case in names (huggingface_hub, issue 2090).
    """
    return _BY_LOWER_NAME.get((name or "").lower())


def _json(path: Path, *, is_large: bool = False) -> Mapping[str, Any]:
    try:
        text = regular_files.read(path)
        value = json_value(text) if is_large else embedded_json(text)
    except ReadError as error:
        raise ReadError(f"{path}: {error}") from None
    if not is_mapping(value):
        raise ReadError(f"{path}: it has to be a mapping")
    return value


def _section(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value: Any = config.get(key) or {}
    if not is_mapping(value):
        raise ValueError(f"{key} has to be a mapping")
    return value


def _count(config: Mapping[str, Any], *keys: str) -> int | None:
    """Return the first number that is set. 0 is for none, and a list is by layer, so not known."""
    for key in keys:
        value = config.get(key)
        if isinstance(value, list):
            return None
        if value in (None, 0):
            continue
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 10**18:
            raise ValueError(f"{key} is {value!r:.60}, and a positive whole number is needed")
        return value
    return None


def _from_config(name: str, config: Mapping[str, Any], size: int | None) -> ModelFacts:
    architecture = str((config.get("architectures") or [""])[0])
    text_config = config.get("text_config")
    if is_mapping(text_config):
        config = {**config, **text_config}
    heads = _count(config, "num_attention_heads", "n_head")
    hidden = _count(config, "hidden_size", "n_embd")
    experts = _count(config, "num_local_experts", "num_experts", "n_routed_experts")
    intermediate = _count(config, "intermediate_size")
    scaling = _section(config, "rope_scaling") or _section(config, "rope_parameters")
    way = scaling.get("rope_type", scaling.get("type"))
    # Other ways of scaling change the longest length, and differently by release.
    is_scaled = bool(scaling) and way not in ("llama3", "default")
    facts = ModelFacts(
        model=name,
        architecture=architecture,
        layers=_count(config, "num_hidden_layers", "n_layer"),
        hidden=hidden,
        intermediate=intermediate,
        heads=heads,
        kv_heads=_count(config, "num_key_value_heads") or heads,
        head_dim=_count(config, "head_dim") or (hidden // heads if hidden and heads else None),
        kv_lora_rank=_count(config, "kv_lora_rank"),
        rope_head_dim=_count(config, "qk_rope_head_dim"),
        dense_layers=_dense_layers(config),
        experts=experts,
        expert_intermediate=_count(config, "moe_intermediate_size")
        or (intermediate if experts else None),
        vocabulary=_count(config, "vocab_size"),
        max_length=None if is_scaled else _count(config, "max_position_embeddings"),
        dtype=str(config.get("dtype") or config.get("torch_dtype") or ""),
        tied=config.get("tie_word_embeddings"),
    )
    if any(isinstance(config.get(key), list) for key in _MAY_BE_BY_LAYER):
        return replace(facts, intermediate=None, expert_intermediate=None, kv_heads=None)
    if architecture not in KNOWN_ARCHITECTURES:
        return replace(facts, quantization=_quantization(config).get("quantization", ""))
    facts = replace(facts, **_attention(facts, config), **_quantization(config))
    # A checkpoint may have tensors that are not loaded, such as a layer for speculation.
    is_exact = not is_mapping(text_config) and not config.get("num_nextn_predict_layers")
    params = None
    if size is not None and is_exact and not facts.quantization and facts.dtype in DTYPE_BYTES:
        params = size // DTYPE_BYTES[facts.dtype]
    least = _least_params(facts)
    # The files of some checkpoints have numbers of more or fewer bytes than the configuration says.
    if params and least and not Fraction(5, 6) * least < params < Fraction(6, 5) * least:
        params = None
    return replace(
        facts,
        params=params,
        least_params=params or least,
        stored_bytes=size if facts.quantization and is_exact else None,
    )


def _dense_layers(config: Mapping[str, Any]) -> int | None:
    """Return the layers without experts of DeepSeek and Kimi, or of Qwen (mlp_only_layers)."""
    first = config.get("first_k_dense_replace") or None
    only = len(config.get("mlp_only_layers") or ())
    return only or (None if first is None else _count(config, "first_k_dense_replace"))


def _attention(facts: ModelFacts, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the kind of attention, with the window and the layers without it."""
    if facts.architecture in _MLA:
        return {"attention": "mla"}
    window = _count(config, "sliding_window")
    kinds = cast("list[str] | None", config.get("layer_types"))
    pattern = _count(config, "sliding_window_pattern")
    if window is None or config.get("use_sliding_window") is False:
        return {"attention": "full"}
    if kinds is not None and set(kinds) <= {"full_attention", "sliding_attention"}:
        full = kinds.count("full_attention")
    elif kinds is not None:
        return {}
    elif pattern is not None or facts.architecture == "Gemma2ForCausalLM":
        full = (facts.layers or 0) // (pattern or 2)
    elif facts.architecture == "MistralForCausalLM":
        full = 0
    else:
        return {}
    return {"attention": "sliding", "window": window, "full_layers": full}


def _quantization(config: Mapping[str, Any]) -> dict[str, Any]:
    quantized = _section(config, "quantization_config")
    method = str(quantized.get("quant_method", ""))
    has_head = bool(quantized.get("lm_head"))
    if method == "compressed-tensors":
        groups = _section(quantized, "config_groups")
        weights = [_section(_section(groups, name), "weights") for name in groups]
        kinds = {f"{group.get('type')}{group.get('num_bits')}" for group in weights}
        names = {"float8": "fp8", "int8": "int8", "int4": "int4"}
        method = names.get(kinds.pop(), method) if len(kinds) == 1 else method
        has_head = "lm_head" not in (quantized.get("ignore") or [])
    elif method in ("awq", "gptq") and quantized.get("bits") in (4, 8):
        method = f"int{quantized['bits']}"
    elif method == "fp8" and quantized.get("weight_block_size"):
        method = "fp8-block"
    scheme = _section(quantized, "kv_cache_scheme")
    cache = "" if not scheme else "fp8" if scheme.get("num_bits") == 8 else "other"
    return {"quantization": method, "kv_quantization": cache, "quantized_head": has_head}


def _least_params(facts: ModelFacts) -> int | None:
    """Return the parameters of the matrices of a usual decoder, without biases and norms."""
    inner = facts.expert_intermediate if facts.experts else facts.intermediate
    sizes = facts.layers, facts.hidden, facts.heads, facts.kv_heads, facts.head_dim, inner
    if facts.architecture not in _GATED or None in sizes or facts.vocabulary is None:
        return None
    layers, hidden, heads, kv_heads, head_dim, inner = cast("tuple[int, ...]", sizes)
    attention = 2 * hidden * head_dim * (heads + kv_heads)
    dense = facts.dense_layers or 0
    experts = 3 * hidden * inner * (facts.experts or 1) * (layers - dense)
    feed_forward = experts + 3 * hidden * (facts.intermediate or 0) * dense
    embeddings = facts.vocabulary * hidden * (2 if facts.tied is False else 1)
    return layers * attention + feed_forward + embeddings
