"""Why a container cannot use its GPUs as its arguments say: causes with their values and limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from fractions import Fraction
from typing import Any

from ml_foundations.kubernetes.words import alternatives, number, shown, verb

GIB = 1024**3
TENSOR_SIZES = (1, 2, 4, 8, 16)
"""The tensor parallel sizes that are suggested."""


class Severity(StrEnum):
    """The meaning of a reason for the container, the most severe first."""

    REFUSED = "refused"
    """The program certainly ends at start."""
    WARNING = "warning"
    UNDETERMINED = "undetermined"


class Cause(Enum):
    """A cause, with its sentence: what is invalid, and how to fix it."""

    UNKNOWN_ARGUMENT = "{value} is not known, so its use of GPUs is not judged"
    UNKNOWN_VALUE = "the value of {value} is not known"
    UNREADABLE_SCRIPT = (
        "{it} is a script with {value}, which is not read",
        "Write a script without it, or use command and args",
    )
    UNKNOWN_START = "{value} may start a server, whose arguments are not read"
    UNREADABLE_CONFIG = "{it} is the file {value}, which is not known"
    CONFIG_FORM = (
        "{value} is not read: vLLM reads a file only from --config FILE",
        "Write --config FILE",
    )
    SWITCH_VALUE = ("{value} has a value, which the flag does not accept", "Write {limit}")
    OF_RELEASE = ("{value} is unknown to vLLM {limit}", "Remove it, or use {use}")
    INVALID_VALUE = ("{it} is {value}, and {limit} is needed", "Correct the argument")
    IGNORED_MODEL = (
        "vllm.entrypoints.openai.api_server ignores {value} and serves {limit}",
        "Write --model={value}",
    )
    NO_MODEL = (
        "vllm serve refuses {it} without a model before all options, or --model",
        "Write --model=NAME",
    )
    CHANGES_MEMORY = "the effect of {value} on memory is not known"
    TAKES_MORE_MEMORY = "the memory that {value} takes is not counted"
    UNKNOWN_MODEL = "{value} is not in the catalog of models"
    UNKNOWN_WEIGHTS = "the weights of {value} are not known"
    UNKNOWN_CACHE = "the KV cache of {value} is not known"
    UNKNOWN_QUANTIZATION = "the weights of {model} in {value} are not known"
    UNKNOWN_GPU_MEMORY = "the memory that CUDA reports for {value} is not known"
    SHARED_GPU = "other pods may use the memory of {value}, which is shared"
    SHARED_UTILIZATION = (
        "its {pods} pods share {limit} GPUs, and a server needs {value} of a GPU free at its start",
        "Lower --gpu-memory-utilization so that pods fit a GPU together, or use whole GPUs",
    )
    GPUS = ("{sizes} needs {gpus}, and {limit} requested", "Lower {it}, or request {gpus}")
    NO_RAY = (
        "{sizes} needs {gpus}, and {limit} in the container, without the name of Ray",
        "Add --distributed-executor-backend=ray, or set --nnodes",
    )
    IDLE_GPUS = ("it uses {gpus}, and {limit} requested", "Raise {it}, or request {gpus}")
    VISIBLE_GPUS = (
        "{sizes} needs {gpus}, and CUDA_VISIBLE_DEVICES shows {limit}",
        "Remove CUDA_VISIBLE_DEVICES",
    )
    NO_LOCAL_DATA = (
        "{it} needs the number of replicas in the container",
        "Add --data-parallel-size-local",
    )
    DATA_OF_NODES = ("{it} is {value}, and replicas on {limit} nodes are refused", "Set {it} to 1")
    LOCAL_DATA = ("{it} is {value}, and the data parallel size is {limit}", "Lower {it}")
    HEADS = (
        "{model} has {value} attention heads, which {limit} does not divide",
        "Set {it} to {sizes}",
    )
    KV_HEADS = (
        "{model} has {value} KV heads, which {limit} does not divide",
        "Set {it} to {sizes}",
    )
    VOCABULARY = (
        "{model} has a padded vocabulary of {value:,}, which {limit} does not divide",
        "Set {it} to {sizes}",
    )
    FP8_BLOCK = (
        "{limit} does not divide {value:,} columns of {model} into FP8 blocks",
        "Lower {it}",
    )
    EXPERTS = ("{model} has no experts to divide", "Remove the argument")
    DECODE_CONTEXT = "{it} is {value}, and {model} with a tensor parallel size of {limit} needs 1"
    STAGES = "{it} is {value}, and {stages} numbers that sum up to {limit} are needed"
    LENGTH_OF_MODEL = ("{it} is {value:,}, and the longest of {model} is {limit:,}", "Lower {it}")
    BATCH = ("{it} is {value:,}, and it must not be below {least}, {limit:,}", "Raise {it}")
    DEFAULT_BATCH = (
        "{it} is {value:,}, and on {gpu} a batch has {limit:,} tokens by default",
        "Lower {it}, or set --max-num-batched-tokens",
    )
    DTYPE_OF_GPU = ("{it} is bfloat16, which {gpu} does not support", "Set {it} to {usable}")
    DTYPE_OF_MODEL = ("{it} is float16, in which {model} is not stable", "Set {it} to {usable}")
    QUANTIZATION_OF_GPU = (
        "vLLM loads {value} on GPUs of compute capability {limit} or later",
        "Choose another GPU or quantization",
    )
    UTILIZATION = (
        "{it} is {value}, and CUDA leaves less of a GPU free",
        "Set {it} to 0.95 or less",
    )
    PARTITIONS = ("{it} is {value}, and NCCL does not connect partitions of a GPU", "Set {it} to 1")
    SOME_PARTITIONS = (
        "{it} is {value}, and {place} its pods may get partitions, which NCCL does not connect",
        "Keep its pods off nodes with the label {limit}, by a node affinity with DoesNotExist",
    )
    EXECUTOR = ("{it} is ray, and several nodes need mp", "Set {it} to mp")
    NODES = (
        "TP x PP is {value}, which the number of nodes, {limit}, does not divide",
        "Correct {it}",
    )
    PODS = ("{it} is {value}, and the number of pods is {limit}", "Set both to the same number")
    WEIGHTS = (
        "{model} in {dtype} has {total:.1f} GiB of weights: {value:.1f} GiB on {on}, which {have} "
        "{limit:.1f} GiB"
    )
    WHOLE_WEIGHTS = (
        "{model} may be loaded in 16 bits before it is quantized: {value:.1f} GiB on {on}, which "
        "{have} {limit:.1f} GiB",
        "Use vLLM 0.23 or later, a checkpoint in FP8, or more GPUs",
    )
    NO_CACHE = (
        "{model} in {dtype} has {value:.1f} GiB of weights on {on}, and the server may use "
        "{limit:.1f} GiB"
    )
    CACHE_BYTES = (
        "the weights of {model} in {dtype} and {it} have {value:.1f} GiB on {on}, which {have} "
        "{limit:.1f} GiB",
        "Lower {it}",
    )
    REQUEST = (
        (
            "a request of {length:,} tokens needs {value:.1f} GiB of KV cache on {on}, and next "
            "to the weights of {model} at most {limit:.1f} GiB are left"
        ),
        "Set --max-model-len to less than {most:,}",
    )
    NEAR_LIMIT = (
        "{model} in {dtype} may need {value:.1f} GiB on {on}, and the server may use {limit:.1f} "
        "GiB"
    )
    TRAINING = (
        "a {method} training of {model} has at least {value:.1f} GiB of {parts} on {on}, which "
        "{have} {limit:.1f} GiB",
        "Use more GPUs, a sharding that divides more, or larger GPUs",
    )
    DOWNLOAD = (
        "the files of {model} have {value:.1f} GiB, and {place} has {limit:.1f} GiB",
        "Make it larger",
    )
    SHARED_MEMORY = (
        "its {value} processes exchange data in /dev/shm, which has {limit} MiB without a volume",
        "Mount an emptyDir of medium Memory at /dev/shm, as shared_memory does",
    )
    PORT = (
        "{who} {ask} port {limit}, and the server listens on {value}",
        "Set --port={limit}, or ask port {value}",
    )
    LOOPBACK = (
        "the server listens on {value} alone, where {who} {do} not reach it",
        "Set --host=0.0.0.0",
    )
    SAMPLER = (
        "{it} is {value}, and vLLM before 0.20 allocates CUDA graphs and its sampler beyond it",
        "Set {it} to 0.9",
    )

    def __init__(self, fault: str, remedy: str = "") -> None:
        self.fault = fault
        self.remedy = remedy


OF_EVERY_RELEASE = (Cause.GPUS, Cause.HEADS, Cause.WEIGHTS, Cause.DOWNLOAD)
"""Causes that do not depend on a server's release."""
_IN_BYTES = (
    *(Cause.WEIGHTS, Cause.WHOLE_WEIGHTS, Cause.NO_CACHE, Cause.REQUEST, Cause.NEAR_LIMIT),
    Cause.CACHE_BYTES,
    *(Cause.TRAINING, Cause.DOWNLOAD),
)


@dataclass(frozen=True)
class Reason:
    """One reason: a value that does not meet a limit, and the field that the user wrote."""

    severity: Severity
    cause: Cause
    value: Any = None
    limit: Any = None
    path: str = ""
    """The field in the container, such as ``args[2]``; empty for what no field says."""
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further values of the sentence, by name."""

    def sentences(self, it: str = "") -> tuple[str, str]:
        """Return what is invalid, and how to fix it, if that is known.

        Args:
            it: The argument as the user knows it; by default, its field.
        """
        values: dict[str, Any] = {
            "it": it or self.path or "the argument",
            "value": self.value,
            "limit": self.limit,
            "model": "the model",
            **self.details,
        }
        if self.cause in _IN_BYTES:
            in_bytes = ("value", "limit", "total")
            values |= {key: float(values[key]) / GIB for key in in_bytes if key in values}
            gpus = number(values.get("gpus", 1), values.get("gpu", "GPU"))
            values["on"] = gpus if values.get("gpus", 1) == 1 else f"each of {gpus}"
            values["have"] = verb(values.get("gpus", 1), "has", "have")
            values["most"] = int(values.get("length", 0) * self.limit / self.value)
        elif self.cause in (Cause.HEADS, Cause.KV_HEADS, Cause.VOCABULARY):
            sizes = [size for size in TENSOR_SIZES if self.value % size == 0]
            values["sizes"] = alternatives(sizes)
        elif self.cause in (Cause.GPUS, Cause.NO_RAY, Cause.IDLE_GPUS):
            values["gpus"] = number(self.value, "GPU")
            values["limit"] = f"{self.limit} {verb(self.limit, 'is', 'are')}"
        elif self.cause is Cause.VISIBLE_GPUS:
            values["gpus"] = number(self.value, "GPU")
        elif isinstance(self.value, Fraction):
            values["value"] = f"{float(self.value):g}"
        elif isinstance(self.value, str):
            values["value"] = shown(self.value).strip("'")
        has_remedy = self.cause is not Cause.REQUEST or values["most"]
        remedy = self.cause.remedy if has_remedy else ""
        return self.cause.fault.format(**values), remedy.format(**values)


def refused(cause: Cause, value: Any, limit: Any, path: str = "", **details: Any) -> Reason:
    """Return the reason for which a program certainly ends at start."""
    return Reason(Severity.REFUSED, cause, value, limit, path, details)


def warning(cause: Cause, value: Any, limit: Any, path: str = "", **details: Any) -> Reason:
    """Return a likely fault."""
    return Reason(Severity.WARNING, cause, value, limit, path, details)


def undetermined(cause: Cause, value: Any, path: str = "", **details: Any) -> Reason:
    """Return a reason for which nothing is certain about a part."""
    return Reason(Severity.UNDETERMINED, cause, value, None, path, details)
