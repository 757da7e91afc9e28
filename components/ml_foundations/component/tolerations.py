"""Tolerations: what node pools publish and workloads take."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field
from typing_extensions import override

from ml_foundations.component.spec import Spec
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.merging import without_none


class Toleration(Spec):
    """A taint that pods tolerate."""

    key: str = Field(min_length=1)
    """The taint's key."""
    value: str = ""
    """The taint's value. It is required for the operator Equal."""
    operator: Literal["Equal", "Exists"] = "Equal"
    """Equal or Exists. The default is Equal."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """NoSchedule, PreferNoSchedule or NoExecute. By default, every effect."""

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        if self.operator == "Exists" and self.value:
            reason = f'is "{self.value}", but the operator Exists accepts no value; leave it out'
            yield "value", reason


GPU_TOLERATION = Toleration(
    key=labels.GPU_TAINT_KEY, value=labels.GPU_TAINT_VALUE, effect=labels.GPU_TAINT_EFFECT
)


def class_selector(compute_class: str | None) -> dict[str, str]:
    """Return the node label by which pods ask for a ComputeClass."""
    return {labels.COMPUTE_CLASS: compute_class} if compute_class else {}


def class_tolerations(compute_class: str | None) -> list[Toleration]:
    """Return the toleration of the taint that the nodes of a ComputeClass have."""
    key = labels.COMPUTE_CLASS
    effect = "NoSchedule"
    return [Toleration(key=key, value=compute_class, effect=effect)] if compute_class else []


def toleration_manifest(toleration: Toleration) -> dict[str, str]:
    """Return a toleration as Kubernetes writes it."""
    key = toleration.key
    operator = toleration.operator
    effect = toleration.effect
    value = toleration.value if operator == "Equal" else None
    fields = {"key": key, "operator": operator, "value": value, "effect": effect}
    return without_none(fields)
