"""Why a container cannot use its GPUs as its arguments say: causes with their values and limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from fractions import Fraction
from typing import Any

from ml_foundations.kubernetes.words import alternatives, number, shown, verb

GIB = 1024**3


class Severity(StrEnum):
    """The meaning of a reason for the container, the most severe first."""

    REFUSED = "refused"
    """The program certainly ends at start."""
    WARNING = "warning"
    UNDETERMINED = "undetermined"


class Cause(Enum):
    """A cause, with its sentence: what is invalid, and how to fix it."""

    UNKNOWN_ARGUMENT = "is {value}, which is not known: nothing about its GPUs is certain"
    UNKNOWN_VALUE = "the value of {value} is not known"
    UNREADABLE_SCRIPT = "is a script of several steps. Move the program to command and args"
    UNREADABLE_CONFIG = "is the file {value}, which is not known"
    JOINED_VALUE = "is {value}, which argparse does not split. Write its value as another argument"
    INVALID_VALUE = "is {value}, and {limit} is needed. Correct the argument"
    CHANGES_MEMORY = "sets {value}, whose effect on memory is not known"
    TAKES_MORE_MEMORY = "sets {value}, which takes memory that is not counted"
    UNKNOWN_MODEL = "{value} is not in the catalog of models. Declare the folder of its config.json"
    UNKNOWN_WEIGHTS = "the weights of {value} are not known. Declare the folder of its config.json"
    UNKNOWN_CACHE = "the KV cache of {value} is not known"
    UNKNOWN_QUANTIZATION = "the weights of {model} in {value} are not known"
    UNKNOWN_GPU_MEMORY = "the memory that CUDA reports for {value} is not known"
    SHARED_GPU = "other pods may use the memory of {value}, which is shared"
    GPUS = "{sizes} needs {gpus}, and there are {limit}. Lower the sizes or request {value}"
    IDLE_GPUS = "the program uses {gpus} of {limit}. Raise its sizes or request fewer GPUs"
    LOCAL_DATA = "is {value}, and the data parallel size is {limit}. Lower it"
    HEADS = "{model} has {value} attention heads, which {limit} does not divide. Set it to {sizes}"
    KV_HEADS = "{model} has {value} KV heads, which {limit} does not divide. Set it to {sizes}"
    VOCABULARY = (
        "{model} has a padded vocabulary of {value:,}, which {limit} does not divide. "
        "Set it to {sizes}"
    )
    FP8_BLOCK = "{limit} does not divide {value:,} columns of {model} into FP8 blocks. Lower it"
    EXPERTS = "{model} has no experts to divide. Remove the argument"
    DECODE_CONTEXT = "is {value}, and {model} with a tensor parallel size of {limit} needs 1"
    STAGES = "is {value}, and {stages} numbers that sum up to {limit} are needed"
    LENGTH_OF_MODEL = "is {value:,}, and the longest of {model} is {limit:,}. Lower it"
    BATCH = "is {value:,}, and it must not be below {least}, {limit:,}. Raise it"
    DTYPE_OF_GPU = "is bfloat16, which {gpu} does not support. Set it to float16"
    DTYPE_OF_MODEL = "is float16, in which {model} is not stable. Set it to bfloat16"
    UTILIZATION = "is {value}, and CUDA leaves less of a GPU free. Set it to 0.95 or less"
    PARTITIONS = "is {value}, and NCCL does not connect partitions of a GPU. Set it to 1"
    EXECUTOR = "is ray, and several nodes need mp. Set it to mp"
    NODES = "is {value}, which the number of nodes, {limit}, does not divide"
    PODS = "is {value}, and the workload has {limit} pods. Set both to the same number"
    ONE_PROCESS = "is 1, and --multi_gpu needs at least 2. Remove --multi_gpu"
    WEIGHTS = (
        "{model} in {dtype} has {total:.1f} GiB of weights: {value:.1f} GiB on {on}, "
        "which {have} {limit:.1f}"
    )
    NO_CACHE = (
        "{model} in {dtype} has {value:.1f} GiB of weights on {on}, and the server may use "
        "{limit:.1f} GiB"
    )
    REQUEST = (
        "a request of {length:,} tokens needs {value:.1f} GiB of KV cache on {on}, and "
        "next to the weights of {model} at most {limit:.1f} GiB are left"
    )
    NEAR_LIMIT = (
        "{model} in {dtype} may need {value:.1f} GiB on {on}, and the server may use "
        "{limit:.1f} GiB"
    )
    SAMPLER = (
        "is {value}, and vLLM before 0.20 allocates CUDA graphs and its sampler beyond it. "
        "Set it to 0.9"
    )


_IN_BYTES = (Cause.WEIGHTS, Cause.NO_CACHE, Cause.REQUEST, Cause.NEAR_LIMIT)


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

    def message(self, ways: Iterable[str] = ()) -> str:
        """Return the sentence, with ways to fix it that the caller knows."""
        values: dict[str, Any] = {
            "value": self.value,
            "limit": self.limit,
            "model": "the model",
            **self.details,
        }
        if self.cause in _IN_BYTES:
            in_bytes = ("value", "limit", "total")
            values |= {key: float(values[key]) / GIB for key in in_bytes if key in values}
            gpus = number(values["gpus"], values["gpu"])
            values["on"] = gpus if values["gpus"] == 1 else f"each of {gpus}"
            values["have"] = verb(values["gpus"], "has", "have")
        elif self.cause in (Cause.HEADS, Cause.KV_HEADS, Cause.VOCABULARY):
            sizes = [size for size in (1, 2, 4, 8, 16) if self.value % size == 0]
            values["sizes"] = alternatives(sizes)
        elif self.cause in (Cause.GPUS, Cause.IDLE_GPUS):
            values["gpus"] = number(self.value, "GPU")
        elif isinstance(self.value, Fraction):
            values["value"] = f"{float(self.value):g}"
        elif isinstance(self.value, str):
            values["value"] = shown(self.value).strip("'")
        where = f"{self.path}: " if self.path else ""
        remedies = [*ways]
        remedy = f" Use {alternatives(remedies)}." if remedies else ""
        return f"{where}{self.cause.value.format(**values)}.{remedy}"


def refused(cause: Cause, value: Any, limit: Any, path: str = "", **details: Any) -> Reason:
    """Return the reason for which a program certainly ends at start."""
    return Reason(Severity.REFUSED, cause, value, limit, path, details)


def warning(cause: Cause, value: Any, limit: Any, path: str = "", **details: Any) -> Reason:
    """Return a likely fault."""
    return Reason(Severity.WARNING, cause, value, limit, path, details)


def undetermined(cause: Cause, value: Any, path: str = "", **details: Any) -> Reason:
    """Return a reason for which nothing is certain about a part."""
    return Reason(Severity.UNDETERMINED, cause, value, None, path, details)
