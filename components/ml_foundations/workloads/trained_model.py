"""The model that a training trains, for planning."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field
from typing_extensions import override

from ml_foundations.component.types import InputText
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.merging import without_none
from ml_foundations.workloads.pod import WorkloadSpec


class TrainedModelSpec(WorkloadSpec):
    """Arguments of trainings.

    They let planning judge whether the GPUs have the memory for the model.
    """

    model: str | None = Field(None, pattern=r"^[^/]")
    """The model that it trains, for planning: a name in the catalog, such as Qwen/Qwen3-8B, or the
    folder of its config.json, below the folder in which the program runs."""
    method: Literal["full", "lora", "qlora"] | None = None
    """How it trains the model: full, lora (frozen weights of 16 bits) or qlora (of 4 bits). Leave
    it out if weights or optimizer are in the memory of the host."""
    sharding: Literal["none", "zero1", "zero2", "zero3", "hybrid"] | None = None
    """What GPUs divide: none (as DDP), zero1 (the optimizer), zero2 (also gradients), zero3 (also
    weights, as FSDP) or hybrid (the same between the GPUs of a pod). By default, all may be
    divided."""

    @property
    @override
    def pod_annotations(self) -> dict[str, InputText]:
        about = {
            labels.MODEL: self.model,
            labels.TRAINING_METHOD: self.method,
            labels.TRAINING_SHARDING: self.sharding,
        }
        return without_none(about) | super().pod_annotations

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        yield from super().errors()
        if self.method is not None and self.model is None:
            yield "method", "needs model; set model, or leave it out"
        if self.sharding is not None and self.method is None:
            yield "sharding", "needs method; set method, or leave it out"
