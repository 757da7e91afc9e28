"""The topology that a workload asks Kueue for: how near to each other its pods run."""

import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Annotated

from pydantic import AfterValidator, Field

from ml_foundations.component.spec import Spec
from ml_foundations.component.topology import TopologyLevel, known_level, level_label
from ml_foundations.kubernetes import labels

_MOST_SLICES = 3
"""The most layers of slices (kueue v0.19.2, pkg/controller/jobframework/tas_validation.go)."""


def _valid_request(request: str) -> str:
    mode, _, level = request.partition(":")
    if request != "unconstrained" and mode not in ("required", "preferred"):
        forms = "required:LEVEL, preferred:LEVEL or unconstrained"
        raise ValueError(f"is {request}; set it to {forms}, such as required:block")
    if request != "unconstrained":
        known_level(level)
    return request


TopologyArgument = Annotated[str, AfterValidator(_valid_request)]
"""A request such as required:block, preferred:sub-block or unconstrained."""


class TopologySlice(Spec):
    """Pods of a workload that share one domain, such as the pods of a pipeline stage."""

    level: TopologyLevel
    """The level of their domain: block, sub-block, host, hostname or the key of a node label."""
    size: int = Field(ge=1)
    """The number of pods that share a domain."""


def topology_errors(
    topology: str | None, slices: Sequence[TopologySlice], queue: object
) -> Iterator[tuple[str, str]]:
    """Yield errors about the topology of a workload, as Kueue's webhook would refuse it."""
    for field, value in (("topology", topology), ("topology_slices", slices)):
        if value and queue is None:
            yield field, "is read by Kueue, but there is no queue; set queue, or leave it out"
    if len(slices) > _MOST_SLICES:
        yield "topology_slices", f"has {len(slices)} layers; Kueue accepts {_MOST_SLICES}"
    for index, (outer, inner) in enumerate(itertools.pairwise(slices), start=1):
        if outer.size % inner.size:
            reason = f"is {inner.size}, and must divide the size of the layer before ({outer.size})"
            yield f"topology_slices[{index}].size", reason
        if inner.level in [layer.level for layer in slices[:index]]:
            yield f"topology_slices[{index}].level", f"{inner.level} is taken; choose another"


def topology_annotations(topology: str | None, slices: Sequence[TopologySlice]) -> dict[str, str]:
    """Return the annotations of pods by which Kueue knows their topology."""
    annotations: dict[str, str] = {}
    if topology is not None:
        mode, _, level = topology.partition(":")
        annotations[labels.KUEUE_TOPOLOGY[mode]] = level_label(level) if level else "true"
    layers = [{"topology": level_label(layer.level), "size": layer.size} for layer in slices]
    if len(layers) == 1:
        annotations[labels.KUEUE_SLICE_LEVEL] = str(layers[0]["topology"])
        annotations[labels.KUEUE_SLICE_SIZE] = str(layers[0]["size"])
    elif layers:
        annotations[labels.KUEUE_SLICES] = json.dumps(layers)
    return annotations
