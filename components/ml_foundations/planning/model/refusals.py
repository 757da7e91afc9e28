"""What the API server says against an object, or a node against a pod."""

from __future__ import annotations

from typing import NamedTuple


class Refusal(NamedTuple):
    """Why the API server refuses an object, or a node a pod."""

    rule: str
    path: str
    """The field that decides, below the pod's spec."""
    message: str
    remedy: str = ""
    certain: bool = True
    """Whether it is refused; otherwise something that is not known decides."""
    object: str = ""
    """What it is about, where that is not the workload."""
