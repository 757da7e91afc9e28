"""What an inference server will do with its GPUs, read from its container.

Sources of defaults: vllm 0.11 to 0.33, sglang 0.5, text-generation-inference.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from ml_foundations.models.arguments import (
    Argument,
    Given,
    Parser,
    UnplacedError,
    whole_number,
    with_config,
)
from ml_foundations.models.command import Program, Release, program
from ml_foundations.models.launches import Launch, read_launch
from ml_foundations.models.reasons import Cause, Reason, refused, undetermined

FIT = -1
"""A longest length that the server chooses so that it fits."""
_FIRST_RELEASE = (0, 11, 0)
_LAST_RELEASE = (0, 34, 0)
"""Releases of vLLM whose sources were read: from the first, before the last."""
_LOADERS = ("auto", "safetensors", "pt", "hf", "fastsafetensors", "mistral", "npcache")
"""Formats that load the files of a checkpoint as they are."""
_WITHOUT_MODEL = {"vllm": "Qwen/Qwen3-0.6B", "tgi": "bigscience/bloom-560m"}
"""What a server loads if no model is named (vllm, config/model.py; launcher/src/main.rs)."""


@dataclass(frozen=True, kw_only=True)
class Serving:
    """An inference server's arguments. None is for the server's own default."""

    engine: str
    """vllm, sglang or tgi."""
    release: Release | None = None
    """The release, if the image's tag has it and its source was read."""
    model: str | None = None
    """The name on the hub or a path, or None if it is not known."""
    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    data_local: int | None = None
    data_rank: int | None = None
    data_external: bool = False
    data_hybrid: bool = False
    data_backend: str = "mp"
    prefill_context: int = 1
    decode_context: int = 1
    nodes: int = 1
    expert_parallel: bool = False
    executor: str | None = None
    utilization: Fraction | None = None
    """The share of a GPU's memory that the server may use."""
    max_length: int | None = None
    """The longest request in tokens; ``FIT`` if the server chooses it."""
    batched_tokens: int | None = None
    sequences: int | None = None
    chunked_prefill: bool = True
    dtype: str = "auto"
    quantization: str | None = None
    kv_dtype: str = "auto"
    kv_bytes: int | None = None
    block_size: int | None = None
    blocks: int | None = None
    load_format: str = "auto"
    cpu_offload_gib: Fraction = Fraction(0)
    eager: bool = False
    without_hybrid_cache: bool = False
    allows_long: bool | None = False
    """Whether lengths beyond the model's are allowed; None if a variable is not known."""
    has_ray: bool | None = False
    """Whether the address of a Ray cluster is set; None if a variable is not known."""
    layers_of_stages: tuple[int, ...] = ()
    """Layers by pipeline stage, if a variable sets them."""
    unknown: frozenset[str] = frozenset()
    """Fields whose values are not known, and "memory" if an argument may change what is counted."""
    paths: Mapping[str, str] = field(default_factory=dict[str, str])
    """The field in the container that sets a value, by name."""
    reasons: tuple[Reason, ...] = ()

    @property
    def world(self) -> int:
        """The processes of one replica of the model, each with a GPU."""
        return self.tensor * self.pipeline * self.prefill_context


def _decimal(text: str) -> Fraction:
    # Fraction alone also reads 1/3, and numbers with millions of digits.
    if not re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d\d?)?", text):
        raise ValueError(text)
    return Fraction(text)


def _length(text: str) -> int:
    return FIT if text.lower() == "auto" else whole_number(text)


_PARSERS = {name: Parser(name) for name in ("vllm", "sglang", "tgi")}
_READERS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("tensor", "pipeline", "data", "data_local", "data_rank", "nodes"), int),
    **dict.fromkeys(
        ("prefill_context", "decode_context", "sequences", "block_size", "blocks"), int
    ),
    **dict.fromkeys(("batched_tokens", "kv_bytes"), whole_number),
    **dict.fromkeys(("utilization", "cpu_offload_gib"), _decimal),
    "max_length": _length,
}
_LEAST = {
    **dict.fromkeys(_READERS, 1),
    **dict.fromkeys(("data_local", "data_rank", "utilization", "cpu_offload_gib", "kv_bytes"), 0),
    "max_length": FIT,
}
_MOST: dict[str, int] = dict.fromkeys(("tensor", "pipeline", "data", "nodes"), 2**16)
_MOST_OF_OTHERS = 10**15
"""Bounds that no server reaches."""


def read_container(
    container: Mapping[str, Any], files: Mapping[str, str] = MappingProxyType({})
) -> Serving | Launch | Reason | None:
    """Return what a container does with its GPUs.

    Args:
        container: A plain manifest with image, command, args, env and envFrom.
        files: The texts of the known files in its volumes, by path in the container.

    Returns:
        None for a program that is not known. A reason if nothing can be said about the program:
        why an argument cannot be placed, or why the program ends at once.
    """
    started = program(container)
    if not isinstance(started, Program):
        return started
    if started.name not in _PARSERS:
        return read_launch(started)
    try:
        return _serving(started, files)
    except UnplacedError as error:
        return error.reason


def _serving(started: Program, files: Mapping[str, str]) -> Serving:
    parser = _PARSERS[started.name]
    is_vllm = started.name == "vllm"
    parsed = parser.parse(with_config(started.arguments, files) if is_vllm else started.arguments)
    if is_vllm and parsed.positional:
        # `vllm serve` moves --model to the front: it wins over a model without a name.
        parsed.given.setdefault("model", parsed.positional.pop(0))
    for word in parsed.positional:
        raise UnplacedError(undetermined(Cause.UNKNOWN_ARGUMENT, word.value, word.path))
    for name in parser.arguments if started.name == "tgi" else ():
        variable = name.replace("-", "_").upper()
        if variable in started.env:
            parsed.given.setdefault(name, Given(started.env[variable], f"env[{variable}]"))
    values: dict[str, Any] = {}
    paths: dict[str, str] = {}
    unknown: set[str] = set()
    reasons = parsed.reasons
    for name, given in parsed.given.items():
        argument = parser.arguments[name]
        reason = _effect(argument, given)
        if reason is not None:
            reasons.append(reason)
        if reason is not None and reason.cause is Cause.CHANGES_MEMORY:
            unknown.add("memory")
        if argument.effect == "read":
            paths[argument.field] = given.path
            values[argument.field] = _value(argument.field, given.value)
            if values[argument.field] is None:
                unknown.add(argument.field)
                del values[argument.field]
    if started.name == "tgi" and "tensor" not in values:
        unknown.add("tensor")  # as many GPUs as it sees
    if not {"model"} & (values.keys() | unknown):
        values["model"] = _WITHOUT_MODEL.get(started.name)
    return Serving(
        engine=started.name,
        **_surroundings(started),
        **values,
        unknown=frozenset(unknown),
        paths=paths,
        reasons=tuple(reasons),
    )


def _effect(argument: Argument, given: Given) -> Reason | None:
    """Return why an argument leaves something unknown, or ends the server."""
    value, path = given
    option = f"--{argument.name}"
    key = argument.field
    if argument.effect == "read" and value is None:
        return undetermined(Cause.UNKNOWN_VALUE, option, path)
    if argument.effect == "read" and _value(key, value) is None:
        return refused(Cause.INVALID_VALUE, value, f"another {option}", path)
    is_other_loader = key == "load_format" and value not in _LOADERS
    is_offloaded = key == "cpu_offload_gib" and _value(key, value) != 0
    if (argument.effect == "unknown" and value is not False) or is_other_loader or is_offloaded:
        return undetermined(Cause.CHANGES_MEMORY, option, path)
    if argument.effect == "more" and value is not False:
        return undetermined(Cause.TAKES_MORE_MEMORY, option, path)
    return None


def _value(key: str, text: Any) -> Any:
    """Return the value of a field, None if it is not known or not valid."""
    if text is None or key not in _READERS:
        return text
    try:
        value = _READERS[key](text)
    except ValueError:
        return None
    return value if _LEAST[key] <= value <= _MOST.get(key, _MOST_OF_OTHERS) else None


def _surroundings(started: Program) -> dict[str, Any]:
    """Return what the image's tag and the environment say."""
    release = started.release
    if started.name == "vllm" and release and not _FIRST_RELEASE <= release < _LAST_RELEASE:
        release = None
    absent = "" if started.env_is_complete else None
    allows_long = started.env.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN", absent)
    ray_address = started.env.get("RAY_ADDRESS", absent)
    stages = (started.env.get("VLLM_PP_LAYER_PARTITION") or "").split(",")
    return {
        "release": release,
        "allows_long": None if allows_long is None else allows_long.lower() in ("1", "true"),
        "has_ray": None if ray_address is None else bool(ray_address),
        "layers_of_stages": tuple(int(count) for count in stages if count.strip().isdecimal()),
    }
