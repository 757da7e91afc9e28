"""Facts about models: the catalog's rows, and the files of a checkpoint."""

import json
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from ml_foundations.catalog.tables import rows
from ml_foundations.kubernetes.reading import ReadError
from ml_foundations.models.facts import MODELS, ModelFacts, catalog_model
from ml_foundations.models.reasons import GIB

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0},
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}


def folder(path: Path, index: Any = None, **changes: Any) -> Path:
    (path / "config.json").write_text(json.dumps({**LLAMA, **changes}))
    if index is not None:
        (path / "model.safetensors.index.json").write_text(json.dumps(index))
    return path


def test_every_model_of_the_catalog_is_complete_enough() -> None:
    assert len({facts.model for facts in MODELS.values()}) == 144
    for name, facts in MODELS.items():
        assert facts.architecture, name
        assert facts.attention in ("full", "sliding", "mla", "hybrid", "none", "other"), name
        assert facts.layers, name
        assert facts.params is None or facts.params >= (facts.least_params or 0) > 0, name
        if facts.attention == "full" and facts.least_params:
            assert all(
                (facts.hidden, facts.heads, facts.kv_heads, facts.head_dim, facts.vocabulary)
            ), name
        if facts.attention == "sliding":
            assert facts.window and facts.full_layers is not None, name
        if facts.attention == "mla":
            assert facts.kv_lora_rank and facts.rope_head_dim, name
    for row in rows("models.csv"):
        assert row["source"], row
        assert date.fromisoformat(row["source_date"]).year >= 2026, row


def test_the_parameters_agree_with_the_published_files() -> None:
    """The files also have layers for speculation, which a server does not load by itself."""
    sizes = {
        row["model"]: int(row["params"]) * 2 / GIB / float(row["published_gib"])
        for row in rows("models.csv")
        if row["params"] and row["published_gib"] and not row["quantization"]
    }
    assert len(sizes) >= 20
    assert {model: size for model, size in sizes.items() if not 0.97 < size < 1.001} == {}


def test_a_folder_is_read_as_the_catalog_describes_the_model(tmp_path: Path) -> None:
    facts = ModelFacts.from_folder(folder(tmp_path, {"metadata": {"total_size": 16060522496}}))
    known = MODELS["meta-llama/Llama-3.1-8B-Instruct"]
    for key in (
        "params",
        "layers",
        "kv_heads",
        "head_dim",
        "attention",
        "max_length",
        "tied",
        "dtype",
    ):
        assert getattr(facts, key) == getattr(known, key), key


def test_tensors_for_speculation_are_not_counted(tmp_path: Path) -> None:
    changes: Any = {"architectures": ["DeepseekV3ForCausalLM"], "kv_lora_rank": 512}
    index = {"metadata": {"total_size": 1_000}}
    assert ModelFacts.from_folder(folder(tmp_path, index, **changes)).params == 500
    changes["num_nextn_predict_layers"] = 1
    assert ModelFacts.from_folder(folder(tmp_path, index, **changes)).params is None


@pytest.mark.parametrize("factor", [Fraction(1, 2), Fraction(2)])
def test_files_of_another_type_do_not_count(tmp_path: Path, factor: Fraction) -> None:
    size = int(16060522496 * factor)
    facts = ModelFacts.from_folder(folder(tmp_path, {"metadata": {"total_size": size}}))
    known = MODELS["meta-llama/Llama-3.1-8B-Instruct"]
    assert facts.params is None
    assert facts.least_params == pytest.approx(known.params, rel=1e-3)


@pytest.mark.parametrize(
    ("changes", "dense"),
    [
        ({"first_k_dense_replace": 3}, 3),
        ({"first_k_dense_replace": 0}, None),
        ({"mlp_only_layers": [0, 1]}, 2),
        ({"mlp_only_layers": []}, None),
    ],
)
def test_layers_without_experts(tmp_path: Path, changes: Any, dense: int | None) -> None:
    sizes = {"num_experts": 8, "moe_intermediate_size": 1024}
    changes = {"architectures": ["Qwen3MoeForCausalLM"], **sizes, **changes}
    facts = ModelFacts.from_folder(folder(tmp_path, **changes))
    assert facts.dense_layers == dense
    in_layer = 2 * 4096 * 128 * (32 + 8)
    with_experts = 3 * 4096 * 1024 * 8 * (32 - (dense or 0))
    others = 3 * 4096 * 14336 * (dense or 0) + 2 * 128256 * 4096
    assert facts.least_params == 32 * in_layer + with_experts + others


def test_without_an_index_the_matrices_are_counted(tmp_path: Path) -> None:
    facts = ModelFacts.from_folder(folder(tmp_path))
    known = MODELS["meta-llama/Llama-3.1-8B-Instruct"].params
    assert facts.params is None
    assert facts.least_params is not None and known is not None
    assert known * 0.999 < facts.least_params <= known


@pytest.mark.parametrize(
    ("quantization", "name", "cache", "has_head"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8-block", "", False),
        ({"quant_method": "awq", "bits": 4}, "int4", "", False),
        ({"quant_method": "gptq", "bits": 8, "lm_head": True}, "int8", "", True),
        (
            {
                "quant_method": "compressed-tensors",
                "ignore": ["lm_head"],
                "config_groups": {"g": {"weights": {"type": "float", "num_bits": 8}}},
            },
            "fp8",
            "",
            False,
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"g": {"weights": {"type": "int", "num_bits": 4}}},
                "kv_cache_scheme": {"num_bits": 8},
            },
            "int4",
            "fp8",
            True,
        ),
        ({"quant_method": "exl2"}, "exl2", "", False),
    ],
)
def test_quantization(
    tmp_path: Path, quantization: Any, name: str, cache: str, has_head: bool
) -> None:
    facts = ModelFacts.from_folder(folder(tmp_path, quantization_config=quantization))
    assert (facts.quantization, facts.kv_quantization, facts.quantized_head) == (
        name,
        cache,
        has_head,
    )
    assert facts.params is None
    index = {"metadata": {"total_size": 5_000}}
    facts = ModelFacts.from_folder(folder(tmp_path, index, quantization_config=quantization))
    assert (facts.params, facts.stored_bytes) == (None, 5_000)


@pytest.mark.parametrize(
    ("changes", "attention", "full"),
    [
        ({"architectures": ["Gemma2ForCausalLM"], "sliding_window": 4096}, "sliding", 16),
        (
            {
                "architectures": ["Gemma3ForCausalLM"],
                "sliding_window": 512,
                "sliding_window_pattern": 6,
            },
            "sliding",
            5,
        ),
        (
            {
                "architectures": ["Qwen2ForCausalLM"],
                "sliding_window": 512,
                "use_sliding_window": False,
            },
            "full",
            None,
        ),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": 4096}, "sliding", 0),
        (
            {"sliding_window": 9, "layer_types": ["full_attention", "linear_attention"]},
            "other",
            None,
        ),
        ({"architectures": ["NewForCausalLM"]}, "other", None),
    ],
)
def test_attention(tmp_path: Path, changes: Any, attention: str, full: int | None) -> None:
    facts = ModelFacts.from_folder(folder(tmp_path, **changes))
    assert (facts.attention, facts.full_layers) == (attention, full)


@pytest.mark.parametrize(
    "changes",
    [
        {"num_hidden_layers": "many"},
        {"hidden_size": -1},
        {"vocab_size": 10**30},
        {"num_attention_heads": True},
        {"architectures": []} | {"num_key_value_heads": 1.5},
        {"quantization_config": [1]},
        {"layer_types": 3, "sliding_window": 4},
    ],
)
def test_wrong_values_are_named(tmp_path: Path, changes: Any) -> None:
    with pytest.raises(ReadError, match=r"config\.json: "):
        ModelFacts.from_folder(folder(tmp_path, **changes))


@pytest.mark.parametrize(
    ("changes", "length"),
    [
        ({}, 131072),
        ({"rope_scaling": None}, 131072),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, None),
        ({"rope_scaling": None, "rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, None),
        ({"rope_scaling": None, "rope_parameters": {"rope_type": "default"}}, 131072),
        ({"rope_scaling": None, "rope_parameters": {"full_attention": {"factor": 8.0}}}, None),
    ],
)
def test_a_scaled_length_is_not_known(tmp_path: Path, changes: Any, length: int | None) -> None:
    """Since version 5 of transformers, rope_parameters has what rope_scaling had."""
    assert ModelFacts.from_folder(folder(tmp_path, **changes)).max_length == length


@pytest.mark.parametrize("name", ["qwen/qwen3-32b", "QWEN/Qwen3-32B"])
def test_names_on_the_hub_ignore_case(name: str) -> None:
    assert catalog_model(name) is ModelFacts.named(name) is MODELS["Qwen/Qwen3-32B"]


@pytest.mark.parametrize("size", ["8B", "70B", "405B"])
def test_a_model_has_its_former_name(size: str) -> None:
    facts = MODELS[f"meta-llama/Llama-3.1-{size}-Instruct"]
    assert MODELS[f"meta-llama/Meta-Llama-3.1-{size}-Instruct"] is facts
    assert ModelFacts.named(f"Meta-Llama-3.1-{size}-Instruct") is facts


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 10000, "null", '"x"'])
def test_files_that_cannot_be_read_are_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ReadError, match=r"config\.json: "):
        ModelFacts.from_folder(tmp_path)


def test_a_folder_without_a_configuration(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match=r"config\.json: "):
        ModelFacts.from_folder(tmp_path / "none")


def test_zero_is_for_none_and_a_list_for_what_differs_by_layer(tmp_path: Path) -> None:
    dense = ModelFacts.from_folder(folder(tmp_path, num_local_experts=0, moe_intermediate_size=0))
    assert (dense.experts, dense.expert_intermediate, dense.intermediate) == (None, None, 14336)
    listed = {"num_experts": 8, "moe_intermediate_size": [1536, 512]}
    facts = ModelFacts.from_folder(folder(tmp_path, **listed, num_key_value_heads=[8, 4]))
    assert (facts.heads, facts.experts) == (32, 8)
    # Of nothing that follows from these is it known how much there is.
    assert (facts.expert_intermediate, facts.kv_heads, facts.least_params) == (None, None, None)
    assert facts.attention == "other"
