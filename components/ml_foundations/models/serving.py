"""What an inference server will do with its GPUs, read from its container.

Sources of defaults: vllm 0.11 to 0.33, sglang 0.5, text-generation-inference.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from ml_foundations.kubernetes.quantities import decimal_number
from ml_foundations.kubernetes.words import alternatives
from ml_foundations.models.arguments import (
    Given,
    Parsed,
    Parser,
    UnplacedError,
    whole_number,
    with_config,
)
from ml_foundations.models.command import Program, Release, program
from ml_foundations.models.launches import Launch, read_launch
from ml_foundations.models.reasons import Cause, Reason, refused, undetermined, warning

FIT = -1
"""A longest length that the server chooses so that it fits."""
_HAS_AUTO_LENGTH: Release = (0, 14, 0)
"""From this release, --max-model-len may be auto (engine/arg_utils.py)."""
_REFUSES_NO_MODEL: Release = (0, 17, 0)
"""From this release, --served-model-name needs a model (utils/argparse_utils.py)."""
_READ_RELEASES = {"vllm": ((0, 11, 0), (0, 34, 0)), "sglang": ((0, 5, 0), (0, 6, 0))}
"""Releases whose sources were read: from the first, before the last."""
_LOADERS = ("auto", "safetensors", "pt", "hf", "fastsafetensors", "mistral", "npcache")
"""Formats that load the files of a checkpoint as they are."""
_OPTIONAL = ("data_local", "kv_bytes", "blocks")
"""Fields that vLLM leaves at its default if the value is empty or None (optional_type)."""
_WITHOUT_MODEL = {"vllm": "Qwen/Qwen3-0.6B", "tgi": "bigscience/bloom-560m"}
"""What a server loads if no model is named (vllm, config/model.py; launcher/src/main.rs)."""
_ALLOWS_LONG = {
    "vllm": "VLLM_ALLOW_LONG_MAX_MODEL_LEN",
    "sglang": "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN",
}
"""Variables that allow lengths beyond the model's."""
_ADDRESSES = {"vllm": ("0.0.0.0", 8000), "sglang": ("127.0.0.1", 30000)}
"""The hosts and ports of servers by default (cli_args.py; server_args.py). TGI has none."""
_LISTENS_ELSEWHERE = {"uds", "headless", "data-parallel-multi-port-external-lb"}
"""Arguments with which vLLM listens on a socket, not at all, or on several ports."""
_TRUE = ("1", "true", "yes", "y")


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
    is_one_replica: bool = False
    """Whether the container has one of the replicas."""
    needs_data_local: bool = False
    """Whether the server refuses to start without data_local."""
    data_backend: str = "mp"
    prefill_context: int = 1
    decode_context: int = 1
    nodes: int = 1
    has_literal_rank: bool = False
    """Whether the rank of the node is a number: the other nodes have separate objects."""
    expert_parallel: bool = False
    """Whether GPUs may have whole experts: an argument about it is set."""
    executor: str | None = None
    utilization: Fraction | None = None
    """The share of a GPU's memory that the server may use."""
    max_length: int | None = None
    """The longest request in tokens; ``FIT`` if the server chooses it."""
    input_length: int | None = None
    """The tokens of the longest request that its user writes."""
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
    download_dir: str | None = None
    cache_folder: str | None = None
    """The folder of downloads if there is no download_dir, None if not known."""
    cpu_offload_gib: Fraction = Fraction(0)
    eager: bool = False
    without_hybrid_cache: bool = False
    allows_long: bool | None = False
    """Whether lengths beyond the model's are allowed; None if a variable is not known."""
    has_ray: bool | None = False
    """Whether the address of a Ray cluster is set; None if a variable is not known."""
    visible: tuple[int, ...] | None = None
    """The GPUs that ``CUDA_VISIBLE_DEVICES`` lists."""
    layers_of_stages: tuple[int, ...] = ()
    """Layers by pipeline stage, if a variable sets them."""
    host: str | None = None
    port: int | None = None
    """The address on which the container listens; None if not known."""
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


def _is_given(value: str | bool) -> bool:
    return value is not False  # a rank may be 0


_PARSERS = {name: Parser(name) for name in ("vllm", "sglang", "tgi")}
_READERS: dict[str, tuple[Callable[[Any], Any], int, int]] = {
    **dict.fromkeys(("tensor", "pipeline", "data", "nodes"), (int, 1, 2**16)),
    **dict.fromkeys(("prefill_context", "decode_context"), (int, 1, 2**16)),
    **dict.fromkeys(("input_length", "sequences", "block_size", "blocks"), (int, 1, 10**15)),
    **dict.fromkeys(("is_one_replica", "needs_data_local"), (_is_given, 0, 1)),
    "data_local": (int, 0, 2**16),
    **dict.fromkeys(("utilization", "cpu_offload_gib"), (_decimal, 0, 10**15)),
    "batched_tokens": (whole_number, 1, 10**15),
    "kv_bytes": (whole_number, 0, 10**15),
    "max_length": (_length, FIT, 10**15),
}
"""How numbers are read, by field, the least that is valid, and a bound that no server reaches."""


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
        return replace(read_launch(started), visible=started.visible())
    try:
        return _serving(started, files)
    except UnplacedError as error:
        return error.reason


def _serving(started: Program, files: Mapping[str, str]) -> Serving:
    parser = _PARSERS[started.name]
    is_vllm = started.name == "vllm"
    words = with_config(started.arguments, files) if is_vllm else started.arguments
    surroundings = _surroundings(started)
    release = surroundings["release"]
    parsed = parser.parse(words, release)
    if is_vllm:
        _place_model(started, parsed, release)
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
        key = argument.field
        if is_vllm and key in _OPTIONAL and given.value in ("", "None"):
            continue
        option = f"--{name}"
        value = _value(key, given.value)
        if given.value == "auto" and value == FIT and release and release < _HAS_AUTO_LENGTH:
            value = None
        accepted = argument.accepts(given.value, release) if is_vllm and release and value else []
        value = None if accepted else value
        effect = argument.effect if given.value is not False or key else ""
        if effect == "read":
            paths[key] = given.path
            if value is None:
                unknown.add(key)
                reason = undetermined(Cause.UNKNOWN_VALUE, option, given.path)
                limit = alternatives(accepted) if accepted else f"another {option}"
                invalid = refused(Cause.INVALID_VALUE, given.value, limit, given.path)
                reasons.append(reason if given.value is None else invalid)
                continue
            values[key] = value
        is_other_loader = key == "load_format" and value not in _LOADERS
        if effect == "unknown" or is_other_loader or (key == "cpu_offload_gib" and value):
            unknown.add("memory")
            reasons.append(undetermined(Cause.CHANGES_MEMORY, option, given.path))
        elif effect == "more":
            reasons.append(undetermined(Cause.TAKES_MORE_MEMORY, option, given.path))
    if started.name == "tgi" and "tensor" not in values:
        unknown.add("tensor")  # as many GPUs as it sees
    if not {"model"} & (values.keys() | unknown):
        values["model"] = _WITHOUT_MODEL.get(started.name)
    rank = parsed.given.get("node-rank", Given("", "")).value
    return Serving(
        engine=started.name,
        has_literal_rank=str(rank).isdecimal(),
        **surroundings,
        **values,
        **_address(started, parsed.given),
        unknown=frozenset(unknown),
        paths=paths,
        reasons=tuple(reasons),
    )


def _place_model(started: Program, parsed: Parsed, release: Release | None) -> None:
    """Give vLLM the model before its options, if this is how it starts.

    Raises:
        UnplacedError: It refuses its options without a model.
    """
    options = [(word.text or "").partition("=")[0].replace("_", "-") for word in started.arguments]
    model = parsed.positional.pop(0) if parsed.positional else None
    default = _WITHOUT_MODEL["vllm"]
    if started.is_api_server:
        if model and "model" not in parsed.given and model.value != default:
            parsed.reasons.append(warning(Cause.IGNORED_MODEL, model.value, default, model.path))
        return
    has_model = bool({"--model", "--config"} & {*options})
    needs_model = release is not None and release >= _REFUSES_NO_MODEL
    is_named = "--served-model-name" in options
    if needs_model and is_named and not has_model and options[0].startswith("-"):
        path = parsed.given["served-model-name"].path
        raise UnplacedError(refused(Cause.NO_MODEL, None, None, path))
    # It wins over a file's. `vllm serve` moves a --model of the command line before it.
    if model and "--model" not in options:
        parsed.given["model"] = model


def _value(key: str, text: Any) -> Any:
    """Return the value of a field, None if it is not known or not valid."""
    if text is None or key not in _READERS:
        return text
    read, least, most = _READERS[key]
    try:
        value = read(text)
    except ValueError:
        return None
    return value if least <= value <= most else None


def _address(started: Program, given: Mapping[str, Given]) -> dict[str, Any]:
    """Return the host and the port on which a program listens, as far as they are known."""
    is_elsewhere = bool(_LISTENS_ELSEWHERE & given.keys())
    if started.name not in _ADDRESSES or is_elsewhere or not started.is_alone:
        return {}
    host, port = _ADDRESSES[started.name]
    at = given["port"].value if "port" in given else str(port)
    return {
        "host": given["host"].value if "host" in given else host,
        "port": decimal_number(at or ""),
    }


def has_other_release(container: Mapping[str, Any]) -> bool:
    """Return whether the tag of a container's image is a release whose source was not read."""
    started = program(container)
    return isinstance(started, Program) and _is_other_release(started)


def _is_other_release(started: Program) -> bool:
    if started.release is None or started.name not in _READ_RELEASES:
        return False
    first, end = _READ_RELEASES[started.name]
    return not first <= started.release < end


def _surroundings(started: Program) -> dict[str, Any]:
    """Return what the image's tag and the environment say."""
    absent = "" if started.env_is_complete else None
    allows_long = started.env.get(_ALLOWS_LONG.get(started.name, ""), absent)
    ray_address = started.env.get("RAY_ADDRESS", absent)
    may_start_ray = re.search(r"\bray|\.sh\b", started.before)
    partition = started.env.get("VLLM_PP_LAYER_PARTITION") or ""
    stages = map(decimal_number, partition.replace(" ", "").split(","))
    return {
        "release": None if _is_other_release(started) else started.release,
        "allows_long": None if allows_long is None else allows_long.lower() in _TRUE,
        "cache_folder": _cache_folder(started),
        "has_ray": None if ray_address is None or may_start_ray else bool(ray_address),
        "visible": started.visible(),
        "layers_of_stages": tuple(count for count in stages if count is not None),
    }


def _cache_folder(started: Program) -> str | None:
    """Return where the hub's client keeps models in vLLM's own image, None if not known."""
    elsewhere = {"HF_HUB_OFFLINE", "VLLM_USE_MODELSCOPE"}
    if started.image != "vllm-openai" or elsewhere & started.env.keys():
        return None
    folders = {"HF_HUB_CACHE": "", "HUGGINGFACE_HUB_CACHE": "", "HF_HOME": "/hub"}
    folders |= {"XDG_CACHE_HOME": "/huggingface/hub", "HOME": "/.cache/huggingface/hub"}
    for name, below in folders.items():
        if name in started.env or not started.env_is_complete:
            value = started.env.get(name)
            return None if value is None else f"{value}{below}"
    return "/root/.cache/huggingface/hub"
