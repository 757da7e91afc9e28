"""The bytes of a training's weights, gradients and optimizer on each GPU.

The lower bound has weights of 16 bits: an optimizer that works layer by layer keeps no gradients
(LOMO; GaLore; torchtune, optimizer_in_bwd). The upper one has gradients, and also the weights and
the two moments of Adam in 32 bits. Activations are in neither.

Sources: deepspeed, runtime/zero/stage_1_and_2.py and stage3.py; pytorch, distributed/fsdp.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from ml_foundations.models.facts import ModelFacts
from ml_foundations.models.memory import REFUSAL_MARGIN, GpuMemory
from ml_foundations.models.reasons import GIB, Cause, Reason, refused, warning
from ml_foundations.models.weights import Bounds

METHODS = ("full", "lora", "qlora")
SHARDINGS = ("none", "zero1", "zero2", "zero3", "hybrid")


class _PerParameter(NamedTuple):
    """Bytes of a parameter that each GPU has, and those that the GPUs divide."""

    whole: int
    divided: int


_WHOLE = ("none", "zero1", "zero2")
"""Shardings with all weights on each GPU."""
_LEAST = {"full": Fraction(2), "lora": Fraction(2), "qlora": Fraction(1, 2)}
"""Bytes of a weight, by method. Those of LoRA's adapters depend on their rank."""
_GRADIENT = 2
"""Bytes of a gradient, which most optimizers keep."""
_MOST = {
    **dict.fromkeys(("none", ""), _PerParameter(16, 0)),
    "zero1": _PerParameter(4, 12),
    "zero2": _PerParameter(2, 18),
    **dict.fromkeys(("zero3", "hybrid"), _PerParameter(0, 18)),
}
"""Bytes of a training of all weights, by sharding; empty if it is not known."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """The way in which GPUs train a model, without memory of the host."""

    method: str
    """full, lora or qlora."""
    sharding: str
    """One of ``SHARDINGS``; empty if it is not known, so that all GPUs may divide all."""
    pods: int
    """Pods that train together."""
    gpus: int
    """GPUs of each pod."""


def state_bytes(training: Training, facts: ModelFacts) -> Bounds | None:
    """Return the bytes on each GPU, or None if nothing is certain about the model."""
    params = facts.least_params
    if not params or facts.quantization:
        return None
    sharding = training.sharding
    gpus = training.gpus if sharding == "hybrid" else training.gpus * training.pods
    low = params * _LEAST[training.method] / (1 if sharding in _WHOLE else gpus)
    if training.method != "full" or not facts.params:
        return Bounds(low, None)
    most = _MOST[sharding]
    return Bounds(low, facts.params * (most.whole + Fraction(most.divided, gpus)))


def check_training(
    training: Training, facts: ModelFacts, gpu: GpuMemory, states: Bounds
) -> Reason | None:
    """Return the reason if weights, alone or with gradients, exceed the memory of a GPU."""
    total = gpu.high * GIB
    limit = total * (1 + REFUSAL_MARGIN)
    words: dict[str, Any] = {
        "model": facts.name,
        "method": training.method,
        "gpu": gpu.name,
        "gpus": training.gpus * training.pods,
    }
    if states.low > limit:
        return refused(Cause.TRAINING, states.low, total, parts="weights", **words)
    # Other GPUs may have the gradients that ZeRO-2 divides.
    gpus = training.gpus * training.pods if training.sharding == "zero2" else 1
    usual = states.low * (1 + Fraction(_GRADIENT, gpus) / _LEAST["full"])
    if training.method == "full" and usual > limit:
        parts = "weights and gradients, unless its optimizer works layer by layer,"
        return warning(Cause.TRAINING, usual, total, parts=parts, **words)
    return None
